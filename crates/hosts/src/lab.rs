//! The lab: three hosts on one machine. The hosts are network namespaces, connected as in figure 2
//! of G. Lencse and Y. Kadobayashi, "Benchmarking DNS64 Implementations: Theory and Practice"
//! (2018, DOI 10.1016/j.comcom.2018.05.005).
//!
//! ```text
//!              2001:2::/64              198.18.0.0/24, 2001:2:0:2::/64
//! tester ::2 ─────────────── ::1 dut .1, ::1 ─────────────── .2, ::2 auth
//!    │                                                          │
//!    └───────────── self-test: 198.18.1.0/24, 2001:2:1::/64 ────┘
//!      .1, ::1                                            .2, ::2
//! ```
//!
//! If root creates the lab, the namespaces have names (`ip netns`) that begin with `dns64bench-`.
//! If another user creates it, the namespaces belong to a user namespace. Each namespace then
//! exists only as long as a process runs in it. The ids of the three processes that keep the
//! namespaces alive are stored in a file.

mod links;
mod reach;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::lab::links::{LINKS, Link, io_error};
use crate::new_file::write_whole;
use crate::state;

pub use links::{Host, LabError};
pub use reach::reach;

/// Creates the lab, and waits until its links answer, so that a trial can start immediately. Does
/// nothing if the lab is already up.
///
/// # Errors
/// Returns an error if the kernel or a missing program prevents the creation, or if a link does not answer within
/// ten seconds. In both cases, all parts created so far are removed.
pub fn up() -> Result<(), LabError> {
    if is_up() {
        return Ok(());
    }
    down()?;
    let made = if geteuid().is_root() { up_as_root() } else { up_as_user() }
        .and_then(|()| reach::all_links());
    if made.is_err() {
        let _ = down();
    }
    made
}

/// Removes the lab, or those parts of it that still exist. Returns true if there was anything to remove.
///
/// # Errors
/// Returns an error if the namespaces cannot be removed.
pub fn down() -> Result<bool, LabError> {
    if geteuid().is_root() {
        let mut was_there = false;
        for host in Host::ALL.iter().filter(|host| named(**host).exists()) {
            ip(None, &["netns", "del", &host.namespace()])?;
            was_there = true;
        }
        return Ok(was_there);
    }
    let Some(state) = State::read() else { return Ok(false) };
    let was_there = state.holders.iter().any(Holder::lives);
    state.holders.iter().for_each(Holder::end);
    fs::remove_file(State::path()?).map_err(io_error("remove the lab's state file"))?;
    Ok(was_there)
}

/// Replaces this process with `command`, which runs on the lab's host `host`. Returns only if this fails.
pub fn exec(host: Host, command: &[OsString]) -> LabError {
    if let Err(error) = enter(host) {
        return error;
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    io_error(format!("run {}", command[0].display()))(error)
}

/// True if all three hosts of the lab exist.
pub(crate) fn is_up() -> bool {
    if geteuid().is_root() {
        Host::ALL.iter().all(|host| named(*host).exists())
    } else {
        State::read().is_some_and(|state| {
            state.holders.len() == 3 && state.holders.iter().all(Holder::lives)
        })
    }
}

/// Returns an identifier of this instance of the lab, or `None` if the lab is not up.
pub fn identity() -> Option<String> {
    if !is_up() {
        return None;
    }
    let words: Vec<String> = if geteuid().is_root() {
        // A namespace is identified by the inode number of its file.
        let file =
            |host: &Host| fs::metadata(named(*host)).map_or(0, |file| file.ino()).to_string();
        Host::ALL.iter().map(file).collect()
    } else {
        let holder = |holder: &Holder| format!("{}:{}", holder.pid, holder.started);
        State::read()?.holders.iter().map(holder).collect()
    };
    Some(words.join(" "))
}

fn named(host: Host) -> PathBuf {
    Path::new("/run/netns").join(host.namespace())
}

fn enter(host: Host) -> Result<(), LabError> {
    if !is_up() {
        return Err(LabError::NotUp);
    }
    let into = |path: &Path, kind| {
        let file = File::open(path).map_err(io_error(format!("open {}", path.display())))?;
        let entered = setns(file, kind).map_err(io::Error::from);
        entered.map_err(io_error(format!("enter {}", path.display())))
    };
    if geteuid().is_root() {
        return into(&named(host), CloneFlags::CLONE_NEWNET);
    }
    let state = State::read().ok_or(LabError::NotUp)?;
    let holder = state.holders.iter().find(|holder| holder.host == host).ok_or(LabError::NotUp)?;
    let proc = PathBuf::from(format!("/proc/{}/ns", holder.pid));
    into(&proc.join("user"), CloneFlags::CLONE_NEWUSER)?;
    into(&proc.join("net"), CloneFlags::CLONE_NEWNET)
}

fn up_as_root() -> Result<(), LabError> {
    for host in Host::ALL {
        ip(None, &["netns", "add", &host.namespace()])?;
    }
    let run = |host: Host, args: &[&str]| {
        let namespace = host.namespace();
        ip(None, &[&["-n", &namespace], args].concat())
    };
    join(&run, &|host| host.namespace())
}

fn up_as_user() -> Result<(), LabError> {
    // The state file is written first. If writing fails, no process is started, because a process
    // that is not in the file could not be ended later.
    State { holders: Vec::new() }.write()?;
    let mut holders: Vec<Holder> = Vec::new();
    for host in Host::ALL {
        let holder = Holder::start(host, holders.first().map(|owner| owner.pid))?;
        holders.push(holder);
        let noted = State { holders: holders.clone() }.write();
        if noted.is_err() {
            holders.iter().for_each(Holder::end);
            return noted;
        }
    }
    let pid = |host: Host| holders.iter().find(|h| h.host == host).map_or(0, |h| h.pid).to_string();
    let run = |host: Host, args: &[&str]| ip(Some(&pid(host)), args);
    join(&run, &pid)
}

/// Function that runs the program `ip` with the given arguments on a host of the lab.
type RunIp<'a> = dyn Fn(Host, &[&str]) -> Result<(), LabError> + 'a;

/// Creates and configures the links between the hosts of the lab. `run` runs the program `ip` on a host. `name` returns
/// the name by which `ip` identifies a host's namespace.
fn join(run: &RunIp<'_>, name: &dyn Fn(Host) -> String) -> Result<(), LabError> {
    for host in Host::ALL {
        run(host, &["link", "set", "lo", "up"])?;
    }
    for Link { ends: [near, far] } in &LINKS {
        let namespace = name(far.host);
        let link = [
            "link",
            "add",
            near.interface,
            "type",
            "veth",
            "peer",
            "name",
            far.interface,
            "netns",
            &namespace,
        ];
        run(near.host, &link)?;
        for end in [near, far] {
            for address in end.addresses {
                // Duplicate address detection would make an IPv6 address unusable for a second.
                let nodad: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
                run(
                    end.host,
                    &[&["address", "add", address, "dev", end.interface], nodad].concat(),
                )?;
            }
            run(end.host, &["link", "set", end.interface, "up"])?;
        }
    }
    Ok(())
}

/// Runs the program `ip`. If `inside` is a process id, `ip` runs in the namespaces of that process.
fn ip(inside: Option<&str>, args: &[&str]) -> Result<(), LabError> {
    let mut command = match inside {
        None => Command::new("ip"),
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["-t", pid, "-U", "-n", "--preserve-credentials", "ip"]);
            command
        }
    };
    let shown = format!("ip {}", args.join(" "));
    let output = command.args(args).output();
    let output = output
        .map_err(io_error(format!("run '{shown}' (Debian packages iproute2 and util-linux)")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Command {
        command: shown,
        why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Processes that keep the lab's namespaces alive. They exist only if a user other than root created the lab.
#[derive(Serialize, Deserialize)]
struct State {
    holders: Vec<Holder>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Holder {
    host: Host,
    pid: i32,
    /// Start time of the process, which distinguishes it from a later process with the same id.
    started: String,
}

impl State {
    fn path() -> Result<PathBuf, LabError> {
        let folder = state::runtime_folder()
            .map_err(io_error("find a folder for the lab's state (XDG_RUNTIME_DIR)"))?;
        Ok(folder.join("lab.json"))
    }

    fn read() -> Option<State> {
        serde_json::from_slice(&fs::read(State::path().ok()?).ok()?).ok()
    }

    fn write(&self) -> Result<(), LabError> {
        let bytes = serde_json::to_vec(self)
            .map_err(io::Error::other)
            .map_err(io_error("write the lab's state"))?;
        write_whole(&State::path()?, &bytes)
            .map_err(|e| io_error("record the lab's processes")(io::Error::other(e)))
    }
}

impl Holder {
    /// Starts one of the three processes that keep the lab's namespaces alive. Each process gets a new network
    /// namespace. The first process also gets a new user namespace, and the other two join it. `owner` is the id of the
    /// first process, or `None` for the first process itself.
    fn start(host: Host, owner: Option<i32>) -> Result<Holder, LabError> {
        let mut command;
        match owner {
            None => {
                command = Command::new("unshare");
                command.args(["-U", "--map-root-user", "-n"]);
            }
            Some(pid) => {
                command = Command::new("nsenter");
                command.args([
                    "-t",
                    &pid.to_string(),
                    "-U",
                    "--preserve-credentials",
                    "unshare",
                    "-n",
                ]);
            }
        }
        let program = std::env::current_exe().map_err(io_error("find this program"))?;
        command.arg(program).args(["lab", "hold"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child =
            command.spawn().map_err(io_error("run unshare (Debian package util-linux)"))?;
        // The process prints a word once it runs in its namespaces. If it cannot enter them,
        // unshare prints an error.
        let mut word = [0; 3];
        let stdout = child.stdout.take();
        if stdout.is_none_or(|mut out| io::Read::read_exact(&mut out, &mut word).is_err()) {
            let why = child
                .wait_with_output()
                .map(|o| String::from_utf8_lossy(&o.stderr).trim().to_owned());
            return Err(LabError::NoUserNamespaces { why: why.unwrap_or_default() });
        }
        let pid = child.id() as i32;
        Ok(Holder { host, pid, started: started(pid).unwrap_or_default() })
    }

    /// Ends the process and thus its namespace. Does nothing if the process id no longer belongs to
    /// the process that was started.
    fn end(&self) {
        if self.lives() {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        }
    }

    fn lives(&self) -> bool {
        started(self.pid).is_some_and(|started| started == self.started)
    }
}

/// Returns the start time of process `pid`, in clock ticks (proc(5): field 22 of stat).
fn started(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(19).map(str::to_owned)
}

/// Keeps the namespaces of this process alive: prints a word, and waits until a signal ends the
/// process.
pub fn hold() -> ! {
    use std::io::Write;
    let _ = io::stdout().write_all(b"up\n");
    let _ = io::stdout().flush();
    loop {
        nix::unistd::pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::links::End;

    #[test]
    fn the_links_are_those_of_the_paper() {
        let end = |end: &End| {
            format!("{} {} {}", end.host.as_str(), end.interface, end.addresses.join(" "))
        };
        let ends: Vec<String> = LINKS.iter().flat_map(|link| &link.ends).map(end).collect();
        assert_eq!(
            ends,
            [
                "tester to-dut 2001:2::2/64",
                "dut to-tester 2001:2::1/64",
                "dut to-auth 198.18.0.1/24 2001:2:0:2::1/64",
                "auth to-dut 198.18.0.2/24 2001:2:0:2::2/64",
                "tester to-auth 198.18.1.1/24 2001:2:1::1/64",
                "auth to-tester 198.18.1.2/24 2001:2:1::2/64",
            ]
        );
        assert_eq!("dut".parse(), Ok(Host::Dut));
        assert!("server".parse::<Host>().is_err());
    }

    #[test]
    fn a_holder_is_ended_but_not_a_reused_process_id() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let holder = Holder { host: Host::Dut, pid, started: started(pid).unwrap() };
        Holder { started: "1".into(), ..holder.clone() }.end();
        assert!(holder.lives(), "it is not the recorded process");
        holder.end();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_process_differs_from_a_later_one_with_its_id() {
        let me = std::process::id() as i32;
        let holder = Holder { host: Host::Dut, pid: me, started: started(me).unwrap() };
        assert!(holder.lives());
        assert!(!Holder { started: "1".into(), ..holder }.lives());
    }
}
