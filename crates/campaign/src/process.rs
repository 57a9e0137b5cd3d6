//! Processes that a campaign starts: their logs, their CPU time, and their end, also after a crash of ours.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Ticks per second in `/proc/PID/stat`: USER_HZ, 100 on all architectures that run Rust.
const TICKS: f64 = 100.0;
/// How long a server may take to end on SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a log is quoted when its server has died.
const TAIL: u64 = 2_000;

/// A process of ours, which ends with this value.
pub struct Process {
    child: Child,
    log: PathBuf,
    registry: PathBuf,
}

impl Process {
    /// Starts `command` with its output in `log`, or its standard output in `stdout`. `registry` is a folder in which a file tells a later run of ours what to end if
    /// this one is killed.
    ///
    /// # Errors
    /// If the program cannot be started or the files not be written.
    pub fn start(mut command: Command, stdout: Option<File>, log: &Path, registry: &Path) -> io::Result<Process> {
        let output = File::options().create(true).append(true).open(log)?;
        let stdout = stdout.map_or_else(|| output.try_clone(), Ok)?;
        command.stdin(Stdio::null()).stdout(stdout).stderr(output);
        let child = command.spawn()?;
        let registry = registry.join(format!("{}.pid", child.id()));
        let started = start_time(child.id()).unwrap_or_default();
        fs::write(&registry, format!("{} {started}\n", child.id()))?;
        Ok(Process { child, log: log.into(), registry })
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(self.child.id(), || matches!(self.child.try_wait(), Ok(Some(_))));
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.registry);
    }
}

/// SIGTERM, and SIGKILL where that does not help. A stopped process takes neither before it goes on.
fn end(pid: u32, mut is_over: impl FnMut() -> bool) {
    let pid = Pid::from_raw(pid as i32);
    if is_over() {
        return;
    }
    let _ = kill(pid, Signal::SIGTERM);
    let _ = kill(pid, Signal::SIGCONT);
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        if is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = kill(pid, Signal::SIGKILL);
}

/// Ends what an earlier run of ours left behind in `registry`: only processes with the id *and* the start time that it noted.
///
/// # Errors
/// If the folder cannot be read.
pub fn end_left_over(registry: &Path) -> io::Result<()> {
    for entry in fs::read_dir(registry)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut words = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        if let (Some(pid), Some(started)) = (words.next(), words.next())
            && start_time(pid as u32) == Some(started)
        {
            end(pid as u32, || start_time(pid as u32) != Some(started));
        }
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Fields of `/proc/PID/stat` after the program's name: state, parent, … (proc_pid_stat(5), from field 3 on).
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<String> = text.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
    // A zombie has ended.
    (fields.first()? != "Z").then_some(fields)
}

/// When a process started, in ticks since boot.
fn start_time(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// CPU seconds that a process and its descendants have used.
pub fn cpu_seconds(pid: u32) -> f64 {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut used: HashMap<u32, f64> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Some(fields) = stat(pid) else { continue };
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
        children.entry(number(1) as u32).or_default().push(pid);
        used.insert(pid, (number(11) + number(12)) / TICKS);
    }
    let (mut sum, mut open) = (0.0, vec![pid]);
    while let Some(pid) = open.pop() {
        sum += used.get(&pid).copied().unwrap_or(0.0);
        open.extend(children.get(&pid).into_iter().flatten());
    }
    sum
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
        let mut process = sleep(folder.path());
        let pid = process.pid();
        assert_eq!(process.ended(), None);
        kill(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
        drop(process);
        assert_eq!(start_time(pid), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the log is left, the note is not");
    }

    #[test]
    fn what_a_killed_run_left_is_ended_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let registry = folder.path().join("running");
        fs::create_dir(&registry).unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let process = Process::start(command, None, &folder.path().join("log"), &registry).unwrap();
        // A note about a process of that id which started at another time is about a process that is gone.
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(registry.join("x.pid"), format!("{} 1\n", other.id())).unwrap();
        end_left_over(&registry).unwrap();
        assert_eq!(start_time(process.pid()), None);
        assert!(start_time(other.id()).is_some());
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(fs::read_dir(&registry).unwrap().count(), 0);
    }

    #[test]
    fn cpu_time_is_that_of_the_whole_family() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done & wait"]);
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(shell, None, &folder.path().join("log"), folder.path()).unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        while cpu_seconds(process.pid()) < 0.05 {
            assert!(Instant::now() < give_up, "a busy child uses no CPU");
            thread::sleep(Duration::from_millis(20));
        }
        // The child is not ours to end by the shell's SIGTERM.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.pid())).unwrap();
        for child in children.split_whitespace() {
            kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
        }
    }
}
