//! Installation of the Debian packages of servers and clients that tests and benchmarks need.

mod coredns;

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::find;

/// Programs that tests and benchmarks need, each with its Debian package. A package counts as installed if its program
/// is found.
const PACKAGES: [(&str, &str); 47] = [
    ("nsd", "nsd"),
    ("knotd", "knot"),
    ("kxdpgun", "knot-dnsutils"),
    ("dnsperf", "dnsperf"),
    ("unbound", "unbound"),
    ("named", "bind9"),
    ("pdns_recursor", "pdns-recursor"),
    ("kdig", "knot-dnsutils"),
    ("kzonesign", "knot-dnssecutils"),
    ("ldns-signzone", "ldnsutils"),
    ("dnssec-signzone", "bind9-utils"),
    ("dig", "bind9-dnsutils"),
    ("dnstap-read", "bind9-dnsutils"),
    ("fstrm_capture", "fstrm-bin"),
    ("faketime", "faketime"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("chromium", "chromium"),
    ("pdflatex", "texlive-latex-base"),
    ("lualatex", "texlive-luatex"),
    // The LaTeX package booktabs has no program. Its Debian package also contains thumbpdf.
    ("thumbpdf", "texlive-latex-recommended"),
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
    ("tayga", "tayga"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("sbatch", "slurm-client"),
    ("munged", "munge"),
    ("ansible-playbook", "ansible-core"),
    ("valgrind", "valgrind"),
    // pip3 is needed to install tools from PyPI.
    ("pip3", "python3-pip"),
    // libFuzzer is written in C++.
    ("c++", "g++"),
];

/// Program that Debian's tools run to decide whether a package may start its services.
const POLICY: &str = "/usr/sbin/policy-rc.d";
/// Content of the policy file: status 101 prohibits the start of services. If a run could not remove the file, the
/// comment shows a later run that the file is ours.
const START_NOTHING: &str =
    "#!/bin/sh\n# Created by cargo xtask while it installed packages; may be removed.\nexit 101\n";

/// Consent to install missing programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// Given by the user, or by CI (`CI=true`).
    Given,
    /// A prompt on a terminal asks for consent.
    Ask,
    /// Refused: nothing is installed, and tests that cannot run are listed.
    Refused,
}

impl Consent {
    /// Derives the consent from `--install`, the environment, and the presence of a terminal.
    pub(crate) fn of(install: bool) -> Consent {
        if install || Consent::in_ci() {
            Consent::Given
        } else if io::stdin().is_terminal() && io::stdout().is_terminal() {
            Consent::Ask
        } else {
            Consent::Refused
        }
    }

    /// True in continuous integration.
    pub(crate) fn in_ci() -> bool {
        std::env::var("CI").is_ok_and(|ci| ci == "true")
    }
}

/// True if this process runs as root.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// True if packages can be installed here, which requires root and apt-get.
pub(crate) fn can_install() -> bool {
    is_root() && find("apt-get").is_some()
}

/// Installs missing programs if that is possible and allowed. Prints the programs that are not installed, and the
/// reason.
pub(crate) fn install(consent: Consent) {
    let coredns = coredns::is_missing();
    let wanted = PACKAGES.iter().chain(coredns.then_some(&coredns::GO));
    let mut missing: Vec<_> =
        wanted.filter(|(program, _)| find(program).is_none()).map(|(_, p)| *p).collect();
    missing.dedup();
    NoServiceStartGuard::clean_up(Path::new(POLICY));
    if missing.is_empty() && !coredns {
        return;
    }
    let words =
        missing.iter().copied().chain(coredns.then_some("CoreDNS")).collect::<Vec<_>>().join(" ");
    if !can_install() {
        println!("Not installed: {words} (this needs root and Debian's apt-get)");
        return;
    }
    if !agreed(consent, &words) {
        println!("Not installed: {words} (install with cargo xtask … --install)");
        return;
    }
    println!("Installing {words}");
    if !missing.is_empty() {
        report(Command::new("apt-get").args(["update", "-qq"]), "apt-get update");
        let quiet = NoServiceStartGuard::begin(Path::new(POLICY));
        let mut command = quiet.command("apt-get");
        command.args(["install", "-y", "-qq", "--no-install-recommends"]).args(missing);
        report(command.env("DEBIAN_FRONTEND", "noninteractive"), "apt-get install");
    }
    if coredns && let Err(error) = coredns::install() {
        println!("CoreDNS: {error:#}");
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
            io::stdin().lock().read_line(&mut answer).is_ok()
                && answer.trim().eq_ignore_ascii_case("y")
        }
    }
}

/// Runs an installer. If the installer fails, prints the last lines of its output.
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

/// Guard that prevents newly installed packages from starting servers, so that this machine stays idle.
///
/// If there is a policy that is not ours, it remains in force. Our policy is removed at the end. If Ctrl-C ends this
/// program, the shell that runs the installer removes our policy. If that also fails, the next run removes our policy.
struct NoServiceStartGuard {
    /// Policy file that this program created.
    made: Option<PathBuf>,
}

/// Shell script whose arguments are a file and a command. It runs the command, and then removes the file, even if a
/// signal ends the command.
const REMOVE_AFTER: &str =
    "file=$1; shift; trap 'rm -f \"$file\"' EXIT; trap 'exit 130' INT TERM HUP; \"$@\"";

impl NoServiceStartGuard {
    fn begin(policy: &Path) -> NoServiceStartGuard {
        NoServiceStartGuard::clean_up(policy);
        // Opening fails if the path exists, even if it is a dangling link.
        let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(0o755).open(policy)
        else {
            return NoServiceStartGuard { made: None };
        };
        // If writing fails, the file is still ours, and is removed at the end.
        let _ = file.write_all(START_NOTHING.as_bytes());
        NoServiceStartGuard { made: Some(policy.into()) }
    }

    /// Removes the policy file of an earlier run.
    fn clean_up(policy: &Path) {
        let is_file = fs::symlink_metadata(policy).is_ok_and(|entry| entry.is_file());
        if is_file && fs::read_to_string(policy).is_ok_and(|text| text == START_NOTHING) {
            let _ = fs::remove_file(policy);
        }
    }

    /// Returns the command of an installer, to which arguments can be added.
    fn command(&self, program: &str) -> Command {
        let Some(policy) = &self.made else { return Command::new(program) };
        let mut command = Command::new("sh");
        command.args(["-c", REMOVE_AFTER, "sh"]).arg(policy).arg(program);
        command
    }
}

impl Drop for NoServiceStartGuard {
    fn drop(&mut self) {
        if let Some(policy) = &self.made {
            NoServiceStartGuard::clean_up(policy);
            // A shorter file is our policy that could not be written completely.
            if fs::metadata(policy).is_ok_and(|file| file.len() < START_NOTHING.len() as u64) {
                let _ = fs::remove_file(policy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn foreign_policy_file_remains() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 104\n").unwrap();
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&policy).unwrap();
        let quiet = NoServiceStartGuard::begin(&policy);
        assert!(quiet.made.is_none() && quiet.command("true").status().unwrap().success());
        drop(quiet);
        assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\nexit 104\n");
        let after = fs::metadata(&policy).unwrap();
        assert_eq!(
            (after.mode(), after.ino(), after.mtime_nsec()),
            (before.mode(), before.ino(), before.mtime_nsec())
        );

        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        symlink(&target, &link).unwrap();
        drop(NoServiceStartGuard::begin(&link));
        assert!(
            fs::symlink_metadata(&link).is_ok() && !target.exists(),
            "a link may belong to another program"
        );
    }

    #[test]
    fn our_policy_forbids_to_start_and_is_gone_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy-rc.d");
        let quiet = NoServiceStartGuard::begin(&policy);
        // Debian's tools run the policy in this way, with the name of a service and an action.
        assert_eq!(
            Command::new(&policy).args(["unbound", "start"]).status().unwrap().code(),
            Some(101)
        );
        drop(quiet);
        assert!(!policy.exists());

        // The file is also removed if it was left behind by a run that was killed.
        fs::write(&policy, START_NOTHING).unwrap();
        drop(NoServiceStartGuard::begin(&policy));
        assert!(!policy.exists());
    }

    #[test]
    fn an_installer_that_is_interrupted_leaves_no_policy() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy-rc.d");
        let quiet = NoServiceStartGuard::begin(&policy);
        // The installer kills its shell with the signal that Ctrl-C sends to both.
        let status = quiet.command("sh").args(["-c", "kill -INT $PPID"]).status().unwrap();
        assert!(!policy.exists(), "{status}");
        std::mem::forget(quiet);
    }
}
