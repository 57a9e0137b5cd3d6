//! Reduction of privileges after the sockets have been bound. The process gives up root privileges,
//! access to most files, the right to signal other processes, and system calls that it does not
//! need (`syscall_filter`).

use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, path_beneath_rules,
};
use nix::unistd::{Uid, User, initgroups, setgid, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::syscall_filter;

/// Errors that occur while privileges are dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum HardenError {
    /// The configured user does not exist.
    #[error("user '{0}' does not exist; create it, or change `user`")]
    NoUser(String),
    /// The kernel refused the change of user.
    #[error("cannot switch to user '{user}': {source}")]
    Become {
        /// Name of the user in the configuration.
        user: String,
        /// Error returned by the system call.
        source: nix::Error,
    },
    /// The owner of a file cannot be changed to the configured user.
    #[error("cannot change the owner of {} to '{user}': {source}", .file.display())]
    HandOver {
        /// Path of the file whose owner cannot be changed.
        file: PathBuf,
        /// Name of the user in the configuration.
        user: String,
        /// Error returned by the system call.
        source: std::io::Error,
    },
    /// The kernel refused to drop the capabilities.
    #[error("cannot drop capabilities: {0}")]
    Capabilities(std::io::Error),
    /// The kernel supports landlock, but rejected the ruleset.
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    /// The kernel supports seccomp, but rejected the filter.
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
}

/// Switches to `user` if the process is root and a user is configured. Otherwise, the process only drops its
/// capabilities. If the process remains root, it still owns the files of root. `made` lists the files that the process
/// has created and still needs. The function makes `user` the owner of these files. Returns true if the process is
/// still root.
///
/// # Errors
/// Returns an error if the user does not exist, or if a system call fails.
pub(super) fn drop_root(user: Option<&str>, made: &[&Path]) -> Result<bool, HardenError> {
    let (true, Some(name)) = (Uid::effective().is_root(), user) else {
        drop_capabilities()?;
        return Ok(Uid::effective().is_root());
    };
    let failed = |source| HardenError::Become { user: name.into(), source };
    let user =
        User::from_name(name).map_err(failed)?.ok_or_else(|| HardenError::NoUser(name.into()))?;
    let c_name = std::ffi::CString::new(name).map_err(|_| HardenError::NoUser(name.into()))?;
    for &file in made {
        let failed =
            |source| HardenError::HandOver { file: file.into(), user: name.into(), source };
        // Unlike chown(2), lchown(2) does not follow links. The user may own the folder, and may
        // have placed a link to another file there.
        lchown(file, Some(user.uid.as_raw()), None).map_err(failed)?;
    }
    initgroups(&c_name, user.gid).map_err(failed)?;
    setgid(user.gid).map_err(failed)?;
    setuid(user.uid).map_err(failed)?;
    Ok(user.uid.is_root())
}

/// Drops all capabilities (capabilities(7)). Only a newly started program could regain them, and the confinement
/// (`confine`) forbids starting programs. If the process has no capabilities, capset(2) is not called, because a
/// service manager may forbid this call.
///
/// # Errors
/// Returns an error if a system call fails.
fn drop_capabilities() -> Result<(), HardenError> {
    let failed = |error: rustix::io::Errno| HardenError::Capabilities(error.into());
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    if capabilities(None).map_err(failed)? == none {
        return Ok(());
    }
    set_capabilities(None, none).map_err(failed)
}

/// Confinement mechanisms that the kernel supports and that are therefore in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confinement {
    /// True if access to files is restricted (landlock). The process can then read only the folders
    /// of the configuration, the trust anchors and the certificates, the system's random number devices and, if
    /// needed, the possible targets of resolv.conf. It can write only into the folder of the query log, and remove only
    /// files in the folder of the control socket.
    pub files: bool,
    /// True if system calls are filtered (seccomp). Calls that start programs, change the system or
    /// the attributes of files, or act on other processes then fail.
    pub calls: bool,
}

/// Files needed by a confined server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeededFiles<'a> {
    /// Configuration file, which each reload reads.
    pub config: Option<&'a Path>,
    /// File with trust anchors, which each reload reads.
    pub trust_anchors: Option<&'a Path>,
    /// Certificates and private keys, which other programs replace.
    pub certificates: &'a [PathBuf],
    /// The system's resolv.conf, which other programs replace.
    pub resolv_conf: Option<&'a Path>,
    /// File of the control socket, which is removed at shutdown.
    pub socket: Option<&'a Path>,
    /// File of the query log, which each reload opens again.
    pub log: Option<&'a Path>,
}

/// Confines the calling thread and its future threads. Mechanisms that an old kernel lacks are
/// skipped.
///
/// # Errors
/// Returns an error if the kernel supports a mechanism, but rejects the rules for it.
pub(super) fn confine(needed: NeededFiles<'_>) -> Result<Confinement, HardenError> {
    let files = confine_files(needed)?;
    let calls = syscall_filter::forbid(syscall_filter::rules()?)?;
    Ok(Confinement { files, calls })
}

/// Devices that supply the system's random numbers. The statically linked program in the container
/// image does not find getrandom(2), and reads these devices instead.
const RANDOM: [&str; 2] = ["/dev/urandom", "/dev/random"];

/// Folders that can contain the target of the link /etc/resolv.conf. resolvconf(8), NetworkManager,
/// systemd-resolved and similar programs store the target in these folders.
const OF_NAME_SERVERS: [&str; 3] = ["/etc", "/run", "/usr/lib/systemd"];
/// Maximum number of links that the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Returns the folder of a file.
fn folder(file: &Path) -> PathBuf {
    let folder = file.parent().unwrap_or(file);
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

/// Returns the folder of a file. If the file is a link, also returns the folders of all further links and of the final
/// target. A missing folder is replaced by its nearest existing ancestor. The root folder is left out.
fn folders_on_the_way(file: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut next = file.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = folder(&next);
        let is_there = folder.ancestors().find(|folder| folder.is_dir());
        folders.extend(is_there.and_then(|folder| folder.canonicalize().ok()));
        let Ok(target) = std::fs::read_link(&next) else { break };
        next = folder.join(target);
    }
    folders.retain(|folder| folder.parent().is_some());
    folders
}

/// Restricts access to files. The process may still read the files that a reload reads, append to
/// the query log, and remove the control socket. On Linux 6.12 and later, the process can send
/// signals only to itself.
fn confine_files(needed: NeededFiles<'_>) -> Result<bool, HardenError> {
    let abi = ABI::V5;
    // An editor may replace the file with a new file of the same name. The folder of the file must
    // therefore stay readable. If the file is a link, the folder of its target must also stay
    // readable.
    let readable = needed.config.into_iter().chain(needed.trust_anchors).flat_map(|file| {
        [folder(file), folder(&file.canonicalize().unwrap_or_else(|_| file.into()))]
    });
    // The files of a certificate, and the folders in their paths, are often links, for example those of certbot.
    let paths = needed.certificates.iter().flat_map(|file| file.ancestors());
    let links = paths.filter(|path| path.is_symlink() || path.is_file());
    let certificates = links.flat_map(folders_on_the_way);
    // Other programs replace resolv.conf. The new file may be a link into a different folder, which
    // may not exist yet.
    let resolv_conf = needed.resolv_conf.into_iter().flat_map(|file| {
        folders_on_the_way(file).into_iter().chain(OF_NAME_SERVERS.map(PathBuf::from))
    });
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(certificates, AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(resolv_conf, AccessFs::ReadFile))?
        .add_rules(path_beneath_rules(RANDOM, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(needed.socket.map(folder), AccessFs::RemoveFile))?
        .add_rules(path_beneath_rules(
            needed.log.map(folder),
            AccessFs::WriteFile | AccessFs::MakeReg,
        ))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use landlock::{CompatLevel, Compatible};
    use nix::sys::resource::{Resource, getrlimit};
    use nix::sys::signal::{Signal, kill, raise};
    use nix::unistd::Pid;

    use super::*;
    use crate::config::RESOLV_CONF;
    use crate::control::socket::ControlSocket;

    /// True if the kernel supports landlock. The ruleset is created, but not applied, so nothing is
    /// confined.
    fn has_landlock() -> bool {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V1))
            .and_then(Ruleset::create)
            .is_ok()
    }

    #[test]
    fn root_without_a_user_has_no_capabilities() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // Dropping capabilities is permanent, but affects only the calling thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(drop_root(None, &[]).unwrap(), Uid::effective().is_root());
                let left = rustix::thread::capabilities(None).unwrap();
                assert!(left.effective.is_empty() && left.permitted.is_empty(), "{left:?}");
                assert!(std::os::unix::fs::chown(file.path(), Some(1), Some(1)).is_err());
            });
        });
    }

    /// chmod(2) after bind(2) would follow a link that the owner of the folder has put in place of
    /// the socket.
    #[test]
    fn the_control_socket_has_its_mode_without_chmod() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let by_name = syscall_filter::OLD_FILES
                    .iter()
                    .chain(&[libc::SYS_fchmodat, syscall_filter::FCHMODAT2]);
                let has_seccomp = syscall_filter::forbid(syscall_filter::always(by_name)).unwrap();
                let _socket = ControlSocket::bind(&path, None).unwrap();
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "seccomp: {has_seccomp}");
            });
        });
    }

    /// The test forbids capset(2), as the systemd unit does.
    #[test]
    fn without_capabilities_capset_is_not_called() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop_capabilities().unwrap();
                syscall_filter::forbid(syscall_filter::always(&[libc::SYS_capset])).unwrap();
                let sets = rustix::thread::capabilities(None).unwrap();
                assert!(set_capabilities(None, sets).is_err(), "it is forbidden");
                drop_root(None, &[]).unwrap();
            });
        });
    }

    /// Root without capabilities still owns root's files and processes.
    #[test]
    fn confinement_protects_other_files_and_processes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mode = std::fs::Permissions::from_mode;
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(other.id().cast_signed());
        let group = nix::unistd::getegid().as_raw();
        // Confinement is permanent, but affects only the calling thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(kill(pid, None), Ok(()), "before confinement");
                if !confine(NeededFiles::default()).unwrap().calls {
                    return;
                }
                let path = file.path();
                let refused = |done: std::io::Result<()>| {
                    done.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
                };
                for (name, done) in [
                    ("chmod", std::fs::set_permissions(path, mode(0o777))),
                    ("fchmod", file.as_file().set_permissions(mode(0o777))),
                    ("chown", std::os::unix::fs::chown(path, None, Some(group))),
                    ("lchown", lchown(path, None, Some(group))),
                    ("utimensat", file.as_file().set_modified(std::time::UNIX_EPOCH)),
                    ("kill", kill(pid, None).map_err(Into::into)),
                    ("kill of the process group", kill(Pid::from_raw(0), None).map_err(Into::into)),
                ] {
                    assert!(refused(done), "{name}");
                }
                // abort(3) and panics need raise(3). The default action for SIGURG is to ignore the
                // signal.
                assert_eq!(raise(Signal::SIGURG), Ok(()));
                // Limits and CPUs of this process stay accessible.
                assert!(getrlimit(Resource::RLIMIT_NOFILE).is_ok());
                assert!(!net::affinity::allowed_cpus().is_empty());
                let cpus = net::affinity::allowed_cpus();
                assert!(net::affinity::pin_to(cpus[0]).is_ok());
            });
        });
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn confinement_takes_files_and_programs_away() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("dns64d.toml");
        let target = tempfile::tempdir().unwrap();
        std::fs::write(target.path().join("real.toml"), "").unwrap();
        std::os::unix::fs::symlink(target.path().join("real.toml"), &inside).unwrap();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        let of_anchors = tempfile::tempdir().unwrap();
        let anchors = of_anchors.path().join("anchors");
        std::fs::write(&anchors, "").unwrap();
        let [run, logs, far] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let (socket, log) = (run.path().join("control.sock"), logs.path().join("queries.log"));
        let reader = far.path().join("dnstap.sock");
        let listen = |path| std::os::unix::net::UnixListener::bind(path).unwrap();
        let _listening = [&socket, &reader].map(listen);
        // Confinement is permanent, but affects only the calling thread.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // If the kernel supports landlock, it must have been used; otherwise the checks
                // below would be skipped.
                let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
                let has_landlock = has_landlock();
                let needed = NeededFiles {
                    config: Some(&inside),
                    trust_anchors: Some(&anchors),
                    socket: Some(&socket),
                    log: Some(&log),
                    ..NeededFiles::default()
                };
                let confined = confine(needed).unwrap();
                assert_eq!(
                    confined.calls,
                    status.contains("\nSeccomp:"),
                    "the kernel says whether it has seccomp"
                );
                assert_eq!(confined.files, has_landlock, "landlock is used if the kernel has it");
                assert!(std::fs::read(&inside).is_ok() && std::fs::read(&anchors).is_ok());
                for random in RANDOM {
                    assert!(std::fs::File::open(random).is_ok(), "{random}");
                }
                if confined.files {
                    assert!(std::fs::read(RESOLV_CONF).is_err());
                    assert!(std::fs::read(elsewhere.path()).is_err());
                    assert!(std::fs::write(&inside, "x").is_err());
                    assert!(std::fs::remove_file(&inside).is_err());
                }
                // Operations performed by a reload and by the shutdown.
                let append = |file| std::fs::File::options().append(true).create(true).open(file);
                let rotated = logs.path().join("new.log");
                for file in [&log, &rotated] {
                    append(file).unwrap().write_all(b"a line").unwrap();
                }
                assert!(!confined.files || std::fs::read(&log).is_err(), "only written to");
                assert!(std::fs::remove_file(&socket).is_ok());
                // The server can connect to a dnstap reader at any time.
                assert!(std::os::unix::net::UnixStream::connect(&reader).is_ok());
                if confined.calls {
                    assert!(nix::sched::unshare(nix::sched::CloneFlags::empty()).is_err());
                }
            });
        });
        assert!(std::fs::read(elsewhere.path()).is_ok());
    }

    #[test]
    fn a_link_to_a_later_folder_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for made in ["etc", "run", "other"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        let link = |target: &str, path: &str| {
            let new = at("etc/new");
            std::os::unix::fs::symlink(target, &new).unwrap();
            std::fs::rename(new, at(path)).unwrap();
        };
        link("../run/first/resolv.conf", "etc/resolv.conf");
        std::fs::write(at("other/resolv.conf"), "other").unwrap();
        let (confined, wait) = std::sync::mpsc::channel();
        let (changed, go_on) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let at = &at;
            let reader = scope.spawn(move || {
                let resolv_conf = at("etc/resolv.conf");
                let needed =
                    NeededFiles { resolv_conf: Some(&resolv_conf), ..NeededFiles::default() };
                let files = confine(needed).unwrap().files;
                let mut seen = Vec::new();
                confined.send(()).unwrap();
                for () in go_on {
                    seen.push(std::fs::read_to_string(&resolv_conf).ok());
                    assert!(!files || std::fs::write(&resolv_conf, "x").is_err());
                    assert!(!files || std::fs::read_dir(at("etc")).is_err());
                    confined.send(()).unwrap();
                }
                (files, seen)
            });
            let next = || {
                changed.send(()).unwrap();
                wait.recv().unwrap();
            };
            wait.recv().unwrap();
            next();
            std::fs::create_dir_all(at("run/first")).unwrap();
            std::fs::write(at("run/first/resolv.conf"), "first").unwrap();
            next();
            std::fs::write(at("etc/new"), "replaced").unwrap();
            std::fs::rename(at("etc/new"), at("etc/resolv.conf")).unwrap();
            next();
            std::fs::create_dir_all(at("run/second")).unwrap();
            std::fs::write(at("run/second/resolv.conf"), "second").unwrap();
            link("../run/second/resolv.conf", "etc/resolv.conf");
            next();
            link("../other/resolv.conf", "etc/resolv.conf");
            next();
            drop(changed);
            let (files, seen) = reader.join().unwrap();
            assert_eq!(files, has_landlock());
            let seen: Vec<&str> = seen.iter().map(|text| text.as_deref().unwrap_or("-")).collect();
            let other = if files { "-" } else { "other" };
            assert_eq!(seen, ["-", "first", "replaced", "second", other]);
        });
    }

    #[test]
    fn the_root_is_never_readable_because_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("resolv.conf");
        std::os::unix::fs::symlink("/there/is/no/such/folder/resolv.conf", &link).unwrap();
        assert_eq!(folders_on_the_way(&link), [folder.path().canonicalize().unwrap()]);
        assert_eq!(folders_on_the_way(Path::new("/resolv.conf")), Vec::<PathBuf>::new());
    }
}
