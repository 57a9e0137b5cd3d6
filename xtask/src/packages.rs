//! Debian's packages of the servers and clients that tests and benchmarks need.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::process::Command;

use crate::process::find;

/// Debian's packages of what is tested against, by the program that shows whether they are there.
const PACKAGES: [(&str, &str); 26] = [
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
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("strip", "binutils"),
    ("zstd", "zstd"),
    ("man", "man-db"),
    ("script", "bsdutils"),
    ("mmdebstrap", "mmdebstrap"),
    ("buildah", "buildah"),
];

/// CoreDNS is no package of Debian's; Go's proxy has its modules.
const COREDNS: &str = "github.com/coredns/coredns@v1.12.4";
/// Debian's tools ask this file whether a package may start its servers.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// 101 tells them to start nothing. The comment tells a later run that the file is ours, if this one could not remove it.
const START_NOTHING: &str = "#!/bin/sh\n# Made by cargo xtask while it installed packages; may be removed.\nexit 101\n";

/// Whether what is missing may be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The user said so, or this is CI (`CI=true`).
    Given,
    /// The user is asked, on a terminal.
    Ask,
    /// Nothing is installed; what cannot run is listed.
    Refused,
}

impl Consent {
    /// From `--install`, the environment, and whether somebody is there to be asked.
    pub(crate) fn of(install: bool) -> Consent {
        if install || Consent::in_ci() {
            Consent::Given
        } else if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Consent::Ask
        } else {
            Consent::Refused
        }
    }

    /// Whether this is a run of continuous integration.
    pub(crate) fn in_ci() -> bool {
        std::env::var("CI").is_ok_and(|ci| ci == "true")
    }
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Whether packages can be installed here: as root, with apt-get.
pub(crate) fn can_install() -> bool {
    is_root() && find("apt-get").is_some()
}

/// Installs what is missing, where that is possible and wanted, and says what is not done and why.
pub(crate) fn install(consent: Consent) {
    let mut missing: Vec<_> = PACKAGES.iter().filter(|(program, _)| find(program).is_none()).map(|(_, p)| *p).collect();
    missing.dedup();
    let coredns = find("coredns").is_none() && find("go").is_some();
    if missing.is_empty() && !coredns {
        return;
    }
    let words = missing.iter().copied().chain(coredns.then_some("CoreDNS")).collect::<Vec<_>>().join(" ");
    if !can_install() {
        println!("Not installed: {words} (that takes root and Debian's apt-get)");
        return;
    }
    if !agreed(consent, &words) {
        println!("Not installed: {words} (cargo xtask … --install does)");
        return;
    }
    println!("Installing {words}");
    if !missing.is_empty() {
        let _quiet = NothingStarts::begin();
        for args in [vec!["update", "-qq"], [vec!["install", "-y", "-qq", "--no-install-recommends"], missing].concat()]
        {
            report(Command::new("apt-get").args(&args).env("DEBIAN_FRONTEND", "noninteractive"), args[0]);
        }
    }
    if coredns {
        report(Command::new("go").args(["install", COREDNS]).env("GOBIN", "/usr/local/bin"), "go install");
    }
}

fn agreed(consent: Consent, words: &str) -> bool {
    match consent {
        Consent::Given => true,
        Consent::Refused => false,
        Consent::Ask => {
            print!("The tests need {words}. Install? [y/N] ");
            let _ = io::stdout().flush();
            let mut answer = String::new();
            io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim().eq_ignore_ascii_case("y")
        }
    }
}

/// Runs an installer; where it fails its last lines say why.
fn report(command: &mut Command, what: &str) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let last: Vec<_> = said.lines().rev().take(5).collect();
            println!("{what} failed:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        Err(error) => println!("{what} failed: {error}"),
    }
}

/// Packages of servers start them, and this machine is to stay quiet. A policy that somebody else has made is left as it is.
struct NothingStarts {
    is_ours: bool,
}

impl NothingStarts {
    fn begin() -> NothingStarts {
        if fs::read_to_string(POLICY).is_ok_and(|policy| policy == START_NOTHING) {
            return NothingStarts { is_ours: true };
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        NothingStarts { is_ours: made.is_ok_and(|mut file| file.write_all(START_NOTHING.as_bytes()).is_ok()) }
    }
}

impl Drop for NothingStarts {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}
