//! Processes that an agent starts on its host: their logs, CPU time and termination, including
//! termination after a crash of dns64bench. Each process leads a process group, which is ended
//! together with the process.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use net::clock;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::cpu_list::cpu_list;
use crate::environment::Tree;
use crate::environment::quota::smallest;
use crate::place::Allowed;

/// Ticks per second in `/proc/PID/stat`: USER_HZ, 100 on all architectures that run Rust.
const TICKS: f64 = 100.0;
/// Time limit for a process to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// A child process, which is ended when this value is dropped.
pub struct Process {
    child: Child,
    registry: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `log`. If `stdout` is given, standard output goes to
    /// that file instead. A file in the folder `registry` identifies the process, so that a later
    /// run can end the process if this run is killed.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started or the files cannot be written.
    pub fn start(
        mut command: Command,
        stdout: Option<File>,
        log: &Path,
        registry: &Path,
    ) -> io::Result<Process> {
        let output = File::options().create(true).append(true).open(log)?;
        let stdout = stdout.map_or_else(|| output.try_clone(), Ok)?;
        command.stdin(Stdio::null()).stdout(stdout).stderr(output).process_group(0);
        let child = command.spawn()?;
        let registry = registry.join(format!("{}.pid", child.id()));
        let started = start_time(child.id()).unwrap_or_default();
        // This value is created before the registration. If the registration fails, the value is
        // dropped, which ends the process.
        let process = Process { child, registry };
        fs::write(&process.registry, format!("{} {started}\n", process.pid()))?;
        Ok(process)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// If the process has ended, returns its exit status (`None` after a signal) and a description of its end. The
    /// process stays a zombie until this value is dropped. Its id, which is also the id of its group, is therefore not
    /// reused before the group is ended.
    pub fn ended(&self) -> Option<(Option<i32>, String)> {
        let id = Id::Pid(Pid::from_raw(self.child.id() as i32));
        match waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, status)) => {
                Some((Some(status), format!("exit status: {status}")))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Some((None, format!("signal: {signal}"))),
            _ => None,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(self.child.id(), PATIENCE, || self.ended().is_some());
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.registry);
    }
}

/// Sends SIGTERM to the process group of `pid`. Sends SIGKILL to the group once the process has
/// ended, or once `patience` has passed. SIGCONT is also sent, because a stopped process does not
/// handle SIGTERM.
fn end(pid: u32, patience: Duration, mut is_over: impl FnMut() -> bool) {
    let group = Pid::from_raw(pid as i32);
    let mut over = is_over();
    if !over {
        let _ = killpg(group, Signal::SIGTERM);
        let _ = killpg(group, Signal::SIGCONT);
    }
    let give_up = Instant::now() + patience;
    while !over && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(10));
        over = is_over();
    }
    // SIGKILL ends the remaining processes of the group, such as children of the leader.
    let _ = killpg(group, Signal::SIGKILL);
}

/// Ends the processes that an earlier run registered in `registry`. A process is ended only if its
/// id *and* its start time match.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub(crate) fn end_leftover(registry: &Path) -> io::Result<()> {
    end_noted(registry, PATIENCE)
}

/// Ends the same processes as [`end_leftover`], but sends SIGKILL immediately after SIGTERM.
///
/// # Errors
/// Returns an error if the folder cannot be read.
pub(crate) fn kill_left_over(registry: &Path) -> io::Result<()> {
    end_noted(registry, Duration::ZERO)
}

fn end_noted(registry: &Path, patience: Duration) -> io::Result<()> {
    for entry in fs::read_dir(registry)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut words = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        if let (Some(pid), Some(started)) = (words.next(), words.next())
            && start_time(pid as u32) == Some(started)
        {
            end(pid as u32, patience, || start_time(pid as u32) != Some(started));
        }
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Returns the fields of `/proc/PID/stat` that follow the program's name: state, parent, and so on (field 3 and later
/// in proc_pid_stat(5)).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> =
        text.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
    // A zombie counts as ended.
    (fields.first()? != "Z").then_some(fields)
}

/// Returns the start time of a process, in ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// Returns the CPU time of the given processes, their descendants and their process groups, in
/// seconds. The resolution is 1 ns, or 10 ms for a process that ends during this call.
pub fn cpu_seconds(roots: &[u32]) -> f64 {
    let (family, ticked) = family_and_times(stat_lines().iter().map(String::as_str), roots);
    let used = family.iter().filter_map(|pid| {
        let exact = clock::process_cpu_time(*pid).map(|used| used.as_secs_f64()).ok();
        exact.or_else(|| ticked.get(pid).copied())
    });
    used.sum()
}

/// Returns the smallest CPU quota of the given processes, their descendants and their process
/// groups, in thousandths of a CPU. Returns `None` if there is no quota.
pub(crate) fn quota(roots: &[u32]) -> Option<u64> {
    let family = family(stat_lines().iter().map(String::as_str), roots);
    let texts =
        family.iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok());
    let tree = Tree::here();
    texts.filter_map(|text| Some(smallest(&tree, &text)?.millicpu)).min()
}

/// Returns the CPUs on which the threads of the given processes, their descendants and their
/// process groups may run.
pub fn allowed_cpus(roots: &[u32]) -> Vec<Allowed> {
    let family = family(stat_lines().iter().map(String::as_str), roots);
    let tasks = family
        .iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten());
    let texts: Vec<String> =
        tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    allowed(texts.iter().flat_map(|text| text.lines()))
}

/// Returns the same result as [`allowed_cpus`], but computes it from `lines`, the text of all files
/// `/proc/PID/task/*/status`.
pub(crate) fn allowed<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Allowed> {
    let mut all: Vec<Allowed> = Vec::new();
    for list in lines.filter_map(|line| line.strip_prefix("Cpus_allowed_list:")) {
        let cpus = cpu_list(list);
        match all.iter_mut().find(|known| known.cpus == cpus) {
            Some(known) => known.threads += 1,
            None => all.push(Allowed { cpus, threads: 1 }),
        }
    }
    all
}

/// Returns the lines of `/proc/*/stat`. Processes that end before their file is read are omitted.
fn stat_lines() -> Vec<String> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(|n| fs::read_to_string(format!("/proc/{n}/stat")).ok()).collect()
}

/// Returns the same result as [`cpu_seconds`], but computes it from `lines`, the text of all files `/proc/*/stat`. The
/// resolution is 10 ms.
pub(crate) fn family_seconds<'a>(lines: impl Iterator<Item = &'a str>, roots: &[u32]) -> f64 {
    let (family, used) = family_and_times(lines, roots);
    family.iter().filter_map(|pid| used.get(pid)).sum()
}

/// Returns the CPU time that other programs have used so far, in seconds. The sum excludes kernel threads, this
/// program, and the processes `ours` with their descendants and the members of their process groups. The sum includes
/// the time of children that have ended. Returns `None` if this host does not show all of its processes.
pub(crate) fn other_seconds(ours: &[u32]) -> Option<f64> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let sees_all = namespace.to_str() == Some(FIRST_NAMESPACE) && stat(1).is_some();
    let mut roots = ours.to_vec();
    roots.extend(same_program());
    let lines = stat_lines();
    sees_all.then(|| seconds_of_others(lines.iter().map(String::as_str), &roots))
}

/// Name of the initial PID namespace, which contains all processes (`PROC_PID_INIT_INO` in the
/// kernel).
pub(crate) const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// The flag for kernel threads in `/proc/PID/stat` (`PF_KTHREAD` in the kernel).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Returns the ids of this process and of its ancestors that run the same program.
fn same_program() -> Vec<u32> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(std::process::id());
    let mut all = vec![std::process::id()];
    let parent = |pid: u32| stat(pid)?.get(1)?.parse::<u32>().ok();
    while let Some(above) = parent(all[all.len() - 1])
        && own.is_some()
        && program(above) == own
    {
        all.push(above);
    }
    all
}

/// Returns the CPU time of other programs, in seconds. It is computed from `lines`, the text of all files
/// `/proc/*/stat`. Kernel threads are excluded. The processes `ours`, their descendants and the members of their
/// process groups are excluded too.
pub(crate) fn seconds_of_others<'a>(
    lines: impl Iterator<Item = &'a str> + Clone,
    ours: &[u32],
) -> f64 {
    let (family, _) = family_and_times(lines.clone(), ours);
    let of = |line: &str| -> Option<f64> {
        let pid = line.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = line.rsplit(')').next()?.split_whitespace().collect();
        let number = |i: usize| fields.get(i)?.parse::<u64>().ok();
        // In proc_pid_stat(5), the flags are field 9, and the CPU times are fields 14 to 17.
        let used = number(11)? + number(12)? + number(13)? + number(14)?;
        let is_kernels = number(6)? & KERNEL_THREAD != 0;
        (!family.contains(&pid) && !is_kernels).then_some(used as f64 / TICKS)
    };
    lines.filter_map(of).sum()
}

/// Returns the ids of the given processes, of their descendants, and of the members of the process groups that these
/// processes lead. `lines` is the text of all files `/proc/*/stat`. Processes that have ended are omitted.
pub(crate) fn family<'a>(lines: impl Iterator<Item = &'a str>, roots: &[u32]) -> HashSet<u32> {
    let lives = |line: &&str| !line.rsplit(')').next().is_some_and(|s| s.starts_with(" Z"));
    let (family, times) = family_and_times(lines.filter(lives), roots);
    family.into_iter().filter(|pid| times.contains_key(pid)).collect()
}

/// Returns the ids of the given processes, of their descendants, and of the members of the process groups that these
/// processes lead. Also returns the CPU time of every process in `lines`, in seconds.
fn family_and_times<'a>(
    lines: impl Iterator<Item = &'a str>,
    roots: &[u32],
) -> (HashSet<u32>, HashMap<u32, f64>) {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut used: HashMap<u32, f64> = HashMap::new();
    for line in lines {
        let Some((pid, rest)) =
            line.split_once(' ').and_then(|(pid, rest)| Some((pid.parse().ok()?, rest)))
        else {
            continue;
        };
        let fields: Vec<&str> = rest.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
        for parent in [number(1) as u32, number(2) as u32] {
            children.entry(parent).or_default().push(pid);
        }
        used.insert(pid, (number(11) + number(12)) / TICKS);
    }
    let (mut family, mut open) = (HashSet::new(), roots.to_vec());
    while let Some(pid) = open.pop() {
        if family.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    (family, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(folder: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Process::start(command, None, &folder.join("log"), folder).unwrap()
    }

    #[test]
    fn it_ends_with_its_value_even_when_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let process = sleep(folder.path());
        let pid = process.pid();
        assert_eq!(process.ended(), None);
        killpg(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
        drop(process);
        assert_eq!(start_time(pid), None);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "the log is left, the note is not"
        );
    }

    #[test]
    fn only_processes_of_a_killed_run_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let registry = folder.path().join("running");
        fs::create_dir(&registry).unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::start(command, None, &folder.path().join("log"), &registry).unwrap();
        // An entry with a different start time belongs to an earlier process with the same id.
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(registry.join("x.pid"), format!("{} 1\n", other.id())).unwrap();
        end_leftover(&registry).unwrap();
        assert_eq!(start_time(process.pid()), None);
        assert!(start_time(other.id()).is_some());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(fs::read_dir(&registry).unwrap().count(), 0);
    }

    #[test]
    fn cpu_time_and_end_cover_the_whole_family() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done & wait"]);
        let folder = tempfile::tempdir().unwrap();
        let process =
            Process::start(shell, None, &folder.path().join("log"), folder.path()).unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        let mut used = 0.0;
        while used < 0.05 {
            assert!(Instant::now() < give_up, "a busy child uses no CPU");
            thread::sleep(Duration::from_millis(20));
            used = cpu_seconds(&[process.pid()]);
        }
        // A server with few queries uses less CPU time than one kernel tick.
        assert_ne!(used, (used / 0.01).round() * 0.01, "in hundredths of a second only");
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.pid())).unwrap();
        let child: u32 = children.trim().parse().unwrap();
        drop(process);
        let give_up = Instant::now() + Duration::from_secs(30);
        while start_time(child).is_some() {
            assert!(Instant::now() < give_up, "the child outlives its group's leader");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn threads_are_counted_by_allowed_cpus() {
        let text = "Name:\tx\nCpus_allowed_list:\t0-1\nCpus_allowed:\t3\nCpus_allowed_list:\t1\nCpus_allowed_list:\t0-1\n";
        let expected =
            [Allowed { cpus: [0, 1].into(), threads: 2 }, Allowed { cpus: [1].into(), threads: 1 }];
        assert_eq!(allowed(text.lines()), expected);
        let mut command = Command::new("taskset");
        command.args(["-c", "0", "sh", "-c", "sleep 1000 & wait"]);
        let folder = tempfile::tempdir().unwrap();
        let process =
            Process::start(command, None, &folder.path().join("log"), folder.path()).unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        // A shell and its child are both on the assigned CPU.
        while allowed_cpus(&[process.pid()]) != [Allowed { cpus: [0].into(), threads: 2 }] {
            assert!(Instant::now() < give_up, "{:?}", allowed_cpus(&[process.pid()]));
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn other_programs_are_neither_ours_nor_the_kernels() {
        let line = |pid: u32, parent: u32, flags: u64, ended: u64| {
            format!(
                "{pid} (a b) c) S {parent} {pid} 0 0 -1 {flags} 0 0 0 0 100 50 {ended} 0 20 0 1"
            )
        };
        // Processes 2 and 3 are kernel threads. Process 10 is the given process, and 11 is its
        // child. Process 20 had children that have ended.
        let lines = [
            line(1, 0, 0x40_0100, 0),
            line(2, 0, KERNEL_THREAD, 0),
            line(3, 2, KERNEL_THREAD | 0x40, 0),
            line(10, 1, 0, 700),
            line(11, 10, 0, 0),
            line(20, 1, 0x40_0000, 250),
        ];
        let of = |ours: &[u32]| seconds_of_others(lines.iter().map(String::as_str), ours);
        assert_eq!((of(&[10]), of(&[10, 20])), (1.5 + 4.0, 1.5));
        assert_eq!(seconds_of_others(["nonsense", "1 (x) S"].into_iter(), &[]), 0.0);
    }

    #[test]
    fn this_program_is_none_of_the_others() {
        if other_seconds(&[]).is_none() {
            eprintln!("skipped: this host does not show all processes");
            return;
        }
        assert!(same_program().contains(&std::process::id()));
    }

    #[test]
    fn families_are_found_by_parent_and_by_group() {
        let line = |pid: u32, parent: u32, group: u32| {
            format!("{pid} (a b) c) S {parent} {group} 0 0 0 0 0 0 0 0 100 50 0 0 0 0 1 0 77 0")
        };
        // Process 11 is a child of 10. Process 12 has a different parent but is in the group of 10.
        // Process 13 is unrelated.
        let lines = [line(10, 1, 10), line(11, 10, 11), line(12, 1, 10), line(13, 1, 13)];
        let of = |roots: &[u32]| family_seconds(lines.iter().map(String::as_str), roots);
        assert_eq!((of(&[10]), of(&[13]), of(&[10, 11]), of(&[])), (4.5, 1.5, 4.5, 0.0));
        // A process that has ended runs on no CPU. Its CPU time counts until its parent waits for
        // it.
        let ended = line(13, 1, 13).replace(" S ", " Z ");
        assert_eq!(family([ended.as_str()].into_iter(), &[13]), HashSet::new());
        assert_eq!(family_seconds([ended.as_str()].into_iter(), &[13]), 1.5);
    }
}
