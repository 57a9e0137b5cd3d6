//! Functions that run other programs, and start and end servers.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub(crate) use hosts::servers::find;
use net::clock;
use net::ports;

/// Time limit of git.
const GIT_LIMIT: Duration = Duration::from_secs(60);

/// Returns the folder of the workspace, which contains its Cargo.toml.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| ".".into(), Path::to_path_buf)
}

/// Path of this program.
///
/// # Errors
/// Returns an error if the system does not provide it.
pub(crate) fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("path of xtask")?;
    // Linux appends this if cargo has replaced the file since the program started.
    let path = path.to_string_lossy();
    Ok(path.strip_suffix(" (deleted)").unwrap_or(&path).into())
}

/// Runs cargo in the workspace.
///
/// # Errors
/// Returns an error if cargo fails.
pub(crate) fn cargo(args: &[&str]) -> Result<()> {
    in_workspace(env!("CARGO"), args, &[])
}

/// Returns a build command without the variables that cargo sets for the package xtask. Build scripts of dependencies
/// read these variables. If the variables were set, cargo would recompile the dependencies each time `cargo xtask` and
/// another cargo command are used in turn.
pub(crate) fn build_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a program in the folder of the workspace, with additional environment variables.
///
/// # Errors
/// Returns an error if the program cannot be started or fails.
pub(crate) fn in_workspace(
    program: impl AsRef<Path>,
    args: &[&str],
    variables: &[(&str, String)],
) -> Result<()> {
    let program = program.as_ref();
    let mut command = build_command(program);
    command.args(args).current_dir(root());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(status.success(), "{} {}: {status}", program.display(), args.join(" "));
    Ok(())
}

/// A build of both programs. The profiles are described in Cargo.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Build with debug assertions and overflow checks, used by all tests.
    Dev,
    /// Build that users create from source. The instruction gate counts the instructions of this build.
    Release,
    /// Build for packages and published benchmarks.
    Dist,
}

impl Build {
    /// Returns the arguments of cargo.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            // Builds the whole workspace, as the tests do. If only some packages were built, the features of
            // dependencies would differ, and cargo would compile the dependencies a second time.
            Build::Dev => "build --workspace --bins --quiet",
            // `tester` contains the program for counting the Measurer's instructions.
            Build::Release => "build --release --quiet -p dns64bench -p dns64 -p tester",
            Build::Dist => "build --profile dist --quiet -p dns64bench -p dns64",
        }
    }

    /// Returns the name of the profile in Cargo.toml.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Build::Dev => "dev",
            Build::Release => "release",
            Build::Dist => "dist",
        }
    }

    /// Returns the folder of the programs below [`target`].
    const fn folder(self) -> &'static str {
        match self {
            Build::Dev => "debug",
            Build::Release => "release",
            Build::Dist => "dist",
        }
    }

    /// Builds both programs and returns the path of dns64bench; dns64d is in the same folder.
    ///
    /// # Errors
    /// Returns an error if cargo fails.
    pub(crate) fn dns64bench(self) -> Result<PathBuf> {
        cargo(&self.words().split(' ').collect::<Vec<_>>())?;
        Ok(target().join(self.folder()).join("dns64bench"))
    }
}

/// Returns the target folder of cargo.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns the default target of the compiler, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = output(rustc, &["-vV"], Duration::from_secs(60))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV reports no host")
}

/// Output and exit status of a program that has ended.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: Option<i32>,
}

/// Runs a program until it ends, with a time limit.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: &[S],
    limit: Duration,
) -> Result<Ran> {
    let mut command = Command::new("timeout");
    command
        .arg("--signal=KILL")
        .arg(limit.as_secs().max(1).to_string())
        .arg(program.as_ref())
        .args(args);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run timeout (Debian package coreutils)")?;
    Ok(Ran {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code(),
    })
}

/// Runs a program that must succeed, and returns its standard output.
pub(crate) fn output<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: &[S],
    limit: Duration,
) -> Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let ran = run(program, args, limit)?;
    if ran.status != Some(0) {
        let args: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
        bail!(
            "{name} {} ended with {:?}\n{}\n{}",
            args.join(" "),
            ran.status,
            ran.stdout,
            ran.stderr
        );
    }
    Ok(ran.stdout)
}

/// Runs git in the workspace and returns its standard output, trimmed.
///
/// # Errors
/// Returns an error if git is missing or fails.
pub(crate) fn git(args: &[&str]) -> Result<String> {
    let folder = root().to_string_lossy().into_owned();
    let args: Vec<_> = ["-C", &folder].iter().chain(args).copied().collect();
    Ok(output("git", &args, GIT_LIMIT)?.trim().to_owned())
}

/// True if no tracked file differs from the current commit.
pub(crate) fn is_committed() -> Result<bool> {
    Ok(git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty())
}

/// A server process that is ended when this value is dropped. It gets SIGTERM first, so that it can print its counters.
pub(crate) struct Server {
    child: Option<Child>,
}

impl Server {
    /// Starts a server. Its standard output is kept for [`Server::end`].
    pub(crate) fn start<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[S]) -> Result<Server> {
        Server::start_with(program, args, Stdio::null())
    }

    /// Same as [`Server::start`], but writes the server's standard error to a file.
    pub(crate) fn start_logged<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: &[S],
        log: &Path,
    ) -> Result<Server> {
        let file =
            fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        Server::start_with(program, args, file.into())
    }

    fn start_with<S: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: &[S],
        stderr: Stdio,
    ) -> Result<Server> {
        let name = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Server { child: Some(child) })
    }

    /// Returns the server's process id.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.as_ref().map(Child::id).context("it has ended already")
    }

    /// Waits until the server ends by itself, and returns its standard output.
    pub(crate) fn wait(mut self) -> Result<String> {
        let child = self.child.take().context("it has ended already")?;
        Ok(String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned())
    }

    /// Ends the server, and returns its standard output.
    pub(crate) fn end(mut self) -> Result<String> {
        let child = self.child.take().context("it has ended already")?;
        terminate(child.id());
        let output = child.wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn terminate(pid: u32) {
    let _ = Command::new("kill").arg(pid.to_string()).status();
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        terminate(child.id());
        let give_up = Instant::now() + Duration::from_secs(3);
        while Instant::now() < give_up {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Runs a function for each item of `all`, in `many` threads. Returns the results in the order of completion.
pub(crate) fn at_the_same_time<T, R: Send>(
    many: usize,
    all: impl Iterator<Item = T> + Send,
    one: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let (queue, done) = (Mutex::new(all), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no thread panics while it holds the lock").next();
    let work = || {
        while let Some(item) = next() {
            let result = one(item);
            done.lock().expect("no thread panics while it holds the lock").push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..many.max(1) {
            scope.spawn(work);
        }
    });
    done.into_inner().expect("no thread panics while it holds the lock")
}

/// Waits until `is_so` returns true, polling every 20 ms. If that takes longer than `limit`, returns an error with the
/// text `never`.
pub(crate) fn wait_until(
    never: &str,
    limit: Duration,
    mut is_so: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let give_up = Instant::now() + limit;
    while !is_so()? {
        ensure!(Instant::now() < give_up, "{never}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the CPU time of a child process in seconds, summed over all its threads.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let used = clock::process_cpu_time(pid);
    Ok(used.with_context(|| format!("CPU time of process {pid}"))?.as_secs_f64())
}

/// Returns the resident memory in MiB.
pub(crate) fn memory(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
    Ok(kib / 1024.0)
}

/// Returns a port on loopback, outside the ephemeral range, that is free for UDP and TCP over IPv4 and IPv6.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let port = ports::free(Ipv4Addr::LOCALHOST.into())?.port();
        if ports::is_free(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of 127.0.0.1 is also free on ::1")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn jobs_all_run_within_the_parallel_limit() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut done = at_the_same_time(2, 0..50, |n| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
            2 * n
        });
        done.sort_unstable();
        assert!(done.into_iter().eq((0..50).map(|n| 2 * n)));
        assert!(most.into_inner() <= 2);
        assert_eq!(at_the_same_time(0, [7].into_iter(), |n| n), [7], "at least one thread");
    }

    #[test]
    fn a_build_does_not_see_the_package_of_xtask() {
        assert!(std::env::var("CARGO_PKG_NAME").is_ok(), "cargo sets it for this test");
        let seen = build_command("env").output().unwrap().stdout;
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("PATH=") && !seen.contains("CARGO_PKG_"), "{seen}");
    }
}
