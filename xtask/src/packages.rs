//! Debian's packages of the servers and clients that tests and benchmarks need.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::find;

/// Debian's packages of what is tested against, by the program that shows whether they are there.
const PACKAGES: [(&str, &str); 19] = [
    ("nsd", "nsd"),
    ("knotd", "knot"),
    ("kxdpgun", "knot-dnsutils"),
    ("dnsperf", "dnsperf"),
    ("unbound", "unbound"),
    ("named", "bind9"),
    ("pdns_recursor", "pdns-recursor"),
    ("kdig", "knot-dnsutils"),
    ("dig", "bind9-dnsutils"),
    ("ip", "iproute2"),
    ("chromium", "chromium"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("yadifad", "yadifa"),
    ("kresd", "knot-resolver"),
    ("resperf", "dnsperf"),
    ("systemd-analyze", "systemd"),
    ("strace", "strace"),
    ("nft", "nftables"),
];

/// Installs what is missing, where this is Debian and we may.
pub(crate) fn install() {
    let missing: Vec<_> = PACKAGES.iter().filter(|(program, _)| find(program).is_none()).map(|(_, p)| *p).collect();
    let is_root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if missing.is_empty() || !is_root || find("apt-get").is_none() {
        return;
    }
    println!("Installing {}", missing.join(" "));
    // Packages of servers start them; this machine is to be quiet. 101 tells Debian's tools to start nothing.
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let ours = !policy.exists() && fs::write(policy, "#!/bin/sh\nexit 101\n").is_ok();
    let _ = Command::new("chmod").args(["+x", "/usr/sbin/policy-rc.d"]).status();
    for args in [vec!["update", "-qq"], [vec!["install", "-y", "-qq", "--no-install-recommends"], missing].concat()] {
        let status = Command::new("apt-get").args(&args).env("DEBIAN_FRONTEND", "noninteractive").output();
        if !status.is_ok_and(|o| o.status.success()) {
            println!("apt-get {} failed", args[0]);
        }
    }
    if ours {
        let _ = fs::remove_file(policy);
    }
}
