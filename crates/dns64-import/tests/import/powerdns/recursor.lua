-- Trust anchors
addTA('corp.example', "4711 13 2 1111111111111111111111111111111111111111111111111111111111111111")
addNTA("lab.example", "not signed yet")
rpzFile("dblfilename", {defcontent="badserver.example.com"})
