//! Tests of listen addresses with encrypted transports.

use super::*;

/// Returns the entries of `listen`, each as one line, and the notes that affect answers and contain `words`.
fn listen(name: &str, text: &str, words: &str) -> (Vec<String>, Vec<String>) {
    let (_folder, path) = file(name, text);
    let source = name.ends_with("yaml").then_some(Source::KnotResolver);
    let Imported { toml, notes } = import(&path, source).unwrap_or_else(|error| panic!("{error}"));
    let folder = path.parent().unwrap().to_str().unwrap();
    let table: toml::Table = toml::from_str(&toml).unwrap();
    let entry = |entry: &toml::Value| match entry.as_table() {
        None => entry.as_str().unwrap().to_owned(),
        Some(table) => {
            let keys = ["transport", "address", "certificate", "key", "https-path", "tls12"];
            assert!(table.keys().all(|key| keys.contains(&key.as_str())), "{table}");
            let values = keys.iter().filter_map(|key| table.get(*key));
            let values: Vec<String> =
                values.map(|value| value.to_string().replace('"', "")).collect();
            values.join(" ").replace(folder, "DIR")
        }
    };
    let notes = notes.iter().filter(|note| note.changes_answers()).map(ToString::to_string);
    let notes = notes.filter(|note| note.contains(words)).collect();
    (table["listen"].as_array().unwrap().iter().map(entry).collect(), notes)
}

/// A configuration, the expected entries of `listen`, and the expected notes that contain the words of the test.
type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str]);

fn check(name: &str, words: &str, cases: &[Case<'_>]) {
    for (text, wanted, wanted_notes) in cases {
        let (found, notes) = listen(name, text, words);
        assert_eq!(&found[..], *wanted, "{text}\n{notes:#?}");
        let is_noted = notes.iter().zip(*wanted_notes).all(|(note, wanted)| note.contains(wanted));
        assert!(notes.len() == wanted_notes.len() && is_noted, "{text}\n{notes:#?}");
    }
}

#[test]
fn unbound_ports_determine_the_transport() {
    let files = "server:\n  tls-service-pem: /c\n  tls-service-key: k\n";
    let with_files =
        |more: &str| more.lines().fold(files.to_owned(), |text, line| text + "  " + line + "\n");
    let cases: [(String, &[&str], &[&str]); 13] = [
        (
            with_files("interface: ::1\ninterface: ::1@853\ninterface: 192.0.2.1@443"),
            &["[::1]:53", "tls [::1]:853 /c DIR/k true", "https 192.0.2.1:443 /c DIR/k true"],
            &[],
        ),
        (
            with_files("interface: ::1@853\nquic-port: 853\nhttps-port: 8443\ninterface: ::1@8443"),
            &[
                "tls [::1]:853 /c DIR/k true",
                "quic [::1]:853 /c DIR/k",
                "https [::1]:8443 /c DIR/k true",
            ],
            &[],
        ),
        (
            with_files("interface: ::1@8853\nquic-port: 8853\ninterface: ::1@853"),
            &["quic [::1]:8853 /c DIR/k", "tls [::1]:853 /c DIR/k true"],
            &[],
        ),
        (
            with_files("tls-port: 5\ntls-additional-port: 6\ninterface: ::1@5\ninterface: ::1@6"),
            &["tls [::1]:5 /c DIR/k true", "tls [::1]:6 /c DIR/k true"],
            &[],
        ),
        (
            with_files("interface: ::1@853\ntls-protocols: \"TLSv1.3\""),
            &["tls [::1]:853 /c DIR/k"],
            &[],
        ),
        (
            with_files("interface: ::1@443\nhttp-endpoint: \"/q\""),
            &["https [::1]:443 /c DIR/k /q true"],
            &[],
        ),
        (
            with_files("interface: ::1\ninterface: ::1@443\nhttp-endpoint: \"/q?x\""),
            &["[::1]:53"],
            &[":5: interface: ::1@443"],
        ),
        (
            with_files("http-notls-downstream: yes\ninterface: ::1@443\ninterface: ::2@443"),
            &["https [::1]:443"],
            &["certificate and key"],
        ),
        (
            with_files("interface: ::@853\ninterface: ::1@853"),
            &["tls [::]:853 /c DIR/k true"],
            &[],
        ),
        ("server:\n  ssl-service-key: k\n  interface: ::1@853\n  interface: ::1\n".into(), &["[::1]:53"], &[
            "no tls-service-pem for this key: add the address to listen, with transport = \"tls\", certificate and key",
        ]),
        // Without a key, Unbound has no encrypted transports.
        ("server:\n  interface: ::1@853\n  quic-port: 853\n".into(), &["[::1]:853"], &[]),
        (
            "server:\n  ssl-service-key: /k\n  ssl-service-pem: /c\n  ssl-port: 5\n  port: 5\n  interface: 192.0.2.1\n".into(),
            &["tls 192.0.2.1:5 /c /k true"],
            &[],
        ),
        ("server:\n  tls-service-key: \"\"\n  interface: ::1@853\n".into(), &["[::1]:853"], &[]),
    ];
    for (text, listen, notes) in &cases {
        check("unbound.conf", "interface:", &[(text, listen, notes)]);
    }
}

#[test]
fn bind_tls_and_http_listeners_are_carried_over() {
    let tls = "tls t { cert-file \"/c\"; key-file \"k\"; };\n";
    let options = |lists: &str| format!("{tls}options {{ {lists} listen-on-v6 {{ none; }}; }};\n");
    let new =
        "tls n { cert-file \"/n\"; key-file \"/k\"; protocols { TLSv1.3; }; ca-file \"/a\"; };\n";
    let cases: [(String, &[&str], &[&str]); 12] = [
        (
            options("listen-on { 192.0.2.1; }; listen-on tls t { 192.0.2.1; 192.0.2.2; };"),
            &["192.0.2.1:53", "tls 192.0.2.1:853 /c DIR/k true", "tls 192.0.2.2:853 /c DIR/k true"],
            &[],
        ),
        (
            options(
                "tls-port 5; https-port 6; listen-on tls t { any; }; listen-on tls t http default { any; };",
            ),
            &["tls 0.0.0.0:5 /c DIR/k true", "https 0.0.0.0:6 /c DIR/k true"],
            &[],
        ),
        (
            "http h { endpoints { \"/q\"; \"/r\"; }; listener-clients 5; };\n".to_owned()
                + &options("listen-on port 8443 tls t http h { 127.0.0.1; };"),
            &["https 127.0.0.1:8443 /c DIR/k /q true"],
            &["only one https-path"],
        ),
        (
            options("listen-on tls none http default { 127.0.0.1; 192.0.2.1; };"),
            &["https 127.0.0.1:80"],
            &[
                "http default { 192.0.2.1 }: not carried over (answers may differ): it is not encrypted",
            ],
        ),
        (
            options("listen-on { 127.0.0.1; }; listen-on tls ephemeral { 127.0.0.1; };"),
            &["127.0.0.1:53"],
            &[
                "self-signed certificate: add the address to listen, with transport = \"tls\", certificate and key",
            ],
        ),
        (options("listen-on tls none { 127.0.0.1; };"), &["127.0.0.1:53"], &[]),
        (
            options("listen-on { 127.0.0.1; }; listen-on tls other { 127.0.0.1; };"),
            &["127.0.0.1:53"],
            &["no such tls statement"],
        ),
        (
            options("listen-on { 127.0.0.1; }; listen-on tls t http other { 127.0.0.1; };"),
            &["127.0.0.1:53"],
            &["no such http statement"],
        ),
        (
            options("listen-on { 127.0.0.1; }; listen-on proxy plain tls t { 127.0.0.1; };"),
            &["127.0.0.1:53"],
            &["PROXY protocol"],
        ),
        (
            new.to_owned() + &options("listen-on tls n { 127.0.0.1; };"),
            &["tls 127.0.0.1:853 /n /k"],
            &["ca-file /a"],
        ),
        // The tls statement is only for outgoing connections.
        (new.to_owned() + &options("listen-on { 127.0.0.1; };"), &["127.0.0.1:53"], &[]),
        (
            new.to_owned() + &options("listen-on tls t { any; }; listen-on tls n { 127.0.0.1; };"),
            &["tls 0.0.0.0:853 /c DIR/k true"],
            &["ca-file /a", "already have a different transport, certificate or path"],
        ),
    ];
    for (text, listen, notes) in &cases {
        let text = format!("{text}acl x {{ any; }};\n");
        let (found, all) = super::listen::listen("named.conf", &text, "");
        assert_eq!(&found[..], *listen, "{text}\n{all:#?}");
        for wanted in *notes {
            assert!(all.iter().any(|note| note.contains(wanted)), "{text}\n{all:#?}");
        }
        // The other notes are the same for all configurations.
        let others = ["options", "empty-zones-enable", "forward"];
        let is_other =
            |note: &&String| !others.iter().any(|word| note.contains(&format!(": {word}")));
        assert_eq!(all.iter().filter(is_other).count(), notes.len(), "{text}\n{all:#?}");
    }
}

#[test]
fn bind_paths_with_special_characters_are_quoted() {
    let tls = "tls t { cert-file \"/a\nb'\"; key-file \"/c\\d\"; };\n";
    let (_folder, path) =
        file("named.conf", &format!("{tls}options {{ listen-on tls t {{ any; }}; }};\n"));
    let toml = import(&path, None).unwrap().toml;
    let table: toml::Table = toml::from_str(&toml).unwrap();
    let entry = &table["listen"].as_array().unwrap()[0];
    assert_eq!(entry["certificate"].as_str(), Some("/a\nb'"), "{toml}");
    assert_eq!(entry["key"].as_str(), Some("/c\\d"), "{toml}");
}

#[test]
fn kresd_kinds_become_transports() {
    let tls = "net.tls('/c', 'k')\n";
    let cases: [(String, &[&str], &[&str]); 9] = [
        (
            format!(
                "net.listen('::1', 853, {{ kind = 'tls' }})\nnet.listen('::1', 8443, {{ kind = 'doh2' }})\n{tls}"
            ),
            &["tls [::1]:853 /c DIR/k true", "https [::1]:8443 /c DIR/k"],
            &[],
        ),
        (
            format!("{tls}net.listen({{'::1', '127.0.0.1'}}, 853)\nnet.listen('::1', 443)\n"),
            &[
                "tls [::1]:853 /c DIR/k true",
                "tls 127.0.0.1:853 /c DIR/k true",
                "https [::1]:443 /c DIR/k",
            ],
            &[],
        ),
        (
            format!("{tls}net.listen('::1', 5, {{ tls = true }})\nnet.listen('::1', 853, {{ kind = 'DoQ' }})\n"),
            &["tls [::1]:5 /c DIR/k true", "quic [::1]:853 /c DIR/k"],
            &[],
        ),
        (
            "net.listen('::1', 80, { kind = 'doh2-insecure' })\nnet.listen('::2', 80, { kind = 'doh2-insecure' })\n"
                .to_owned(),
            &["https [::1]:80"],
            &[":2: net.listen(::2, 80"],
        ),
        (
            "net.tls('/old', '/o')\nnet.tls(\"/c\", \"/k\")\nnet.tls()\nnet.listen('::1', 853)\n".to_owned(),
            &["tls [::1]:853 /c /k true"],
            &[],
        ),
        (
            "net.listen('::1', 53)\nnet.listen('::1', 853)\n".to_owned(),
            &["[::1]:53"],
            &["self-signed certificate: add the address to listen, with transport = \"tls\", certificate and key"],
        ),
        (
            "net.tls(a, b)\nnet.listen('::1', 53)\nnet.listen('::1', 853)\n".to_owned(),
            &["[::1]:53"],
            &["the arguments of net.tls are not literal"],
        ),
        (
            format!("{tls}net.listen('::1')\nnet.listen('::1', 443, {{ kind = 'doh_legacy' }})\n"),
            &["[::1]:53"],
            &["no equivalent of this kind"],
        ),
        (
            format!("{tls}net.listen('::1', 853, {{ kind = 'dns' }})\nnet.listen('::1', 853, {{ kind = 'tls' }})\n"),
            &["[::1]:853"],
            &["already have a different transport"],
        ),
    ];
    for (text, listen, notes) in &cases {
        check("kresd.conf", "", &[(text, listen, notes)]);
    }
}

#[test]
fn knot_resolver_6_kinds_become_transports() {
    let network =
        |listen: &str, tls: &str| format!("network:\n  listen: [{listen}]\n  tls: {{ {tls} }}\n");
    let files = "cert-file: /c, key-file: k, padding: true";
    let cases: [(String, &[&str], &[&str]); 7] = [
        (
            network("{ interface: '::1' }, { interface: ['::1', '::2'], kind: dot }", files),
            &["[::1]:53", "tls [::1]:853 /c DIR/k true", "tls [::2]:853 /c DIR/k true"],
            &[],
        ),
        (
            network("{ interface: '::1', kind: doh2 }, { interface: '::1@5', kind: doq }", files),
            &["https [::1]:443 /c DIR/k", "quic [::1]:5 /c DIR/k"],
            &[],
        ),
        (network("{ interface: '::1', kind: doh2-insecure }", files), &["https [::1]:80"], &[]),
        (
            network("{ interface: '::1' }, { interface: '::1', kind: dot }", ""),
            &["[::1]:53"],
            &[
                "self-signed certificate: add the address to listen, with transport = \"tls\", certificate and key",
            ],
        ),
        (
            network("{ interface: '::1' }, { interface: '::1', kind: doh-legacy }", files),
            &["[::1]:53"],
            &["no equivalent of this kind"],
        ),
        (
            network("{ interface: '::1' }, { unix-socket: /run/x, kind: dot }", files),
            &["[::1]:53"],
            &["only IP addresses"],
        ),
        (
            network(
                "{ interface: '::1', port: 5, kind: dot }",
                "cert-file: /c, key-file: /k, new: 1",
            ),
            &["tls [::1]:5 /c /k true"],
            &["new: not carried over"],
        ),
    ];
    for (text, listen, notes) in &cases {
        check("config.yaml", "", &[(text, listen, notes)]);
    }
}

#[test]
fn coredns_schemes_become_transports() {
    let block = |zones: &str, plugins: &str| format!("{zones} {{\n{plugins}\n}}\n");
    let tls = "bind ::1\ntls /c k";
    let plain = block(".", "bind ::1");
    let cases: [(String, &[&str], &[&str]); 11] = [
        (
            plain.clone() + &block("tls://., https://.", tls) + &block("quic://.:5", tls),
            &[
                "[::1]:53",
                "tls [::1]:853 /c DIR/k true",
                "https [::1]:443 /c DIR/k true",
                "quic [::1]:5 /c DIR/k",
            ],
            &[],
        ),
        (
            block("tls://.", "tls /c /k"),
            &["tls 0.0.0.0:853 /c /k true", "tls [::]:853 /c /k true"],
            &[],
        ),
        (
            block(
                ". tls://example.org:8853",
                "bind ::1\nroot /r\ntls c /k /ca {\nclient_auth nocert\n}",
            ),
            &["[::1]:53", "tls [::1]:8853 /r/c /k true"],
            &[],
        ),
        (
            block("tls://a.example", tls) + &block("tls://b.example", tls),
            &["tls [::1]:853 /c DIR/k true"],
            &[],
        ),
        (
            block("tls://a.example", tls) + &block("tls://b.example", "bind ::1\ntls /d /k"),
            &["tls [::1]:853 /c DIR/k true"],
            &["already have a different transport, certificate or path"],
        ),
        (block("https://.:8080", "bind ::1"), &["https [::1]:8080"], &[]),
        (
            plain.clone() + &block("https://.:8080", "bind ::2"),
            &["[::1]:53"],
            &[
                "https://.:8080 with bind ::2: not carried over (answers may differ): it is not encrypted",
            ],
        ),
        (plain.clone() + &block("tls://.", "bind ::1"), &["[::1]:53"], &["it is not encrypted"]),
        (
            plain.clone() + &block("tls://.", "bind ::1\ntls {\nacme dns.example\n}"),
            &["[::1]:53"],
            &[
                "ACME, or there is no key: add the address to listen, with transport = \"tls\", certificate and key",
            ],
        ),
        (
            block(". grpc://. https3://.", tls),
            &["[::1]:53"],
            &["serves only UDP, TCP, TLS, HTTPS with HTTP/2, and QUIC"],
        ),
        (
            block("tls://.", &format!("{tls} {{\nclient_auth require\nkeylog /l\n}}")),
            &["tls [::1]:853 /c DIR/k true"],
            &["client_auth require"],
        ),
    ];
    for (text, listen, notes) in &cases {
        check("Corefile", "", &[(text, listen, notes)]);
    }
}

#[test]
fn coredns_blocks_that_differ_in_transport_have_no_note() {
    let block = |zone: &str, prefix: &str| {
        let plugins = "bind ::1\ntls /c /k\nacl {\nallow net ::1\nblock\n}";
        format!("{zone} {{\n{plugins}\ndns64 {prefix}\nforward . 192.0.2.1\n}}\n")
    };
    for (second, is_noted) in [("64:ff9b::/96", false), ("fd64::/96", true)] {
        let text = block(".", "64:ff9b::/96") + &block("tls://.", second);
        let (found, notes) = listen("Corefile", &text, "");
        assert_eq!(found, ["[::1]:53", "tls [::1]:853 /c /k true"]);
        let has = |words: &str| notes.iter().any(|note| note.contains(words));
        assert_eq!(has("applies to all names"), is_noted, "{notes:#?}");
        assert!(!has("only one list"), "{notes:#?}");
    }
}
