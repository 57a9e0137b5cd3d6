//! Support for tests: network namespaces and virtual Ethernet pairs (created with ip(8) as root),
//! resource limits, reports of skipped tests, and functions that wait for events.
//!
//! ```text
//! the calling thread's own namespace: near ───── veth ───── far: a Namespace, entered by `run`
//! ```

#![forbid(unsafe_code)]

use std::env;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::geteuid;

pub mod golden;
pub mod signed;

/// Limits the number of open descriptors of this process.
///
/// # Panics
/// Panics if the limit cannot be set.
pub fn limit_descriptors(most: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit of descriptors");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(hard), hard).expect("a lower limit");
}

/// Reports that a test, or a part of a test, does not run here.
///
/// The report is written to standard error, and to the file named by `DNS64BENCH_SKIPPED`. `cargo
/// xtask test` prints this file at the end of its run. A test in the file does not count as passed.
///
/// # Panics
/// Panics if `DNS64BENCH_MUST_RUN` is set, which `cargo xtask test` does in CI.
pub fn skip(test: &str, reason: &str) {
    assert!(env::var_os("DNS64BENCH_MUST_RUN").is_none(), "{test} must run here: {reason}");
    note_skipped(test, reason);
}

/// Reports a skipped test that may also be skipped in CI.
pub fn note_skipped(test: &str, reason: &str) {
    let reason = format!("{test}: {}", reason.trim().replace('\n', "; "));
    eprintln!("SKIPPED {reason}");
    let Some(path) = env::var_os("DNS64BENCH_SKIPPED") else { return };
    // cargo-nextest sets both variables.
    let name = ["NEXTEST_BINARY_ID", "NEXTEST_TEST_NAME"].map(env::var);
    let name = match name {
        [Ok(binary), Ok(name)] => format!("{binary} {name}"),
        _ => test.to_owned(),
    };
    let file = File::options().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{name}\t{reason}\n").as_bytes()));
}

/// Time limit for waiting for an event. The limit is so long that, even on a busy machine, it
/// expires only if the event never occurs.
pub const LAST_RESORT: Duration = Duration::from_secs(60);

/// Waits until `is_so` returns true.
///
/// # Panics
/// Panics if `is_so` does not return true within the time limit [`LAST_RESORT`]. The message contains `what`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + LAST_RESORT;
    while !is_so() {
        assert!(Instant::now() < give_up, "still waiting after {LAST_RESORT:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs up to two trials and returns the first valid one. If a trial is invalid, `trial` returns
/// the reasons as an error. After two invalid trials, this function reports the calling test as
/// skipped, and returns `None`.
pub fn valid_trial<T>(trial: impl FnMut() -> Result<T, String>) -> Option<T> {
    first_valid(trial)
        .inspect_err(|reasons| {
            // The test harness runs each test in a thread with the name of the test.
            let thread = thread::current();
            note_skipped(thread.name().unwrap_or("a test"), reasons);
        })
        .ok()
}

/// Runs up to two trials and returns the first valid one. If both trials are invalid, returns the
/// reasons for both.
fn first_valid<T>(mut trial: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    trial()
        .or_else(|first| trial().map_err(|second| format!("two invalid trials: {first}; {second}")))
}

/// Returns true if a test that needs root can run; otherwise calls [`skip`].
///
/// # Panics
/// Panics if the test must run but cannot.
pub fn is_root(test: &str) -> bool {
    let root = geteuid().is_root() && Command::new("ip").arg("-V").output().is_ok();
    if !root {
        skip(test, "needs root and ip(8)");
    }
    root
}

/// Runs `ip` in the calling thread's namespace. The words of `line` are its arguments.
pub fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().expect("there is ip(8)");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace, which is removed when this value is dropped.
pub struct Namespace(String);

impl Namespace {
    /// Creates a namespace for this test. `test` is a unique word that becomes part of the namespace's name.
    ///
    /// # Panics
    /// Panics if ip(8) fails.
    pub fn new(test: &str) -> Namespace {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("dns64bench-{test}-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"));
        Namespace(name)
    }

    /// Returns the namespace's name, as used in the command `ip -n`.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Starts a thread in the namespace. The thread's child threads are also in the namespace.
    ///
    /// # Panics
    /// The thread panics if the namespace no longer exists.
    pub fn start<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let path = format!("/run/netns/{}", self.0);
        thread::spawn(move || {
            let file = File::open(path).expect("the namespace is there");
            setns(file, CloneFlags::CLONE_NEWNET).expect("it can be entered");
            f()
        })
    }

    /// Runs `f` in a thread in the namespace and waits until `f` returns.
    ///
    /// # Panics
    /// Panics if `f` panics.
    pub fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(f).join().expect("what runs in the namespace does not panic")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs a test in a thread with its own network namespace, and returns the test's result.
///
/// A virtual Ethernet pair connects this namespace to a second namespace, which is passed to the test. The local end is
/// `near`, with `queues` queues in each direction, and the remote end is `far`. Both ends are up. Addresses include
/// prefix lengths, such as `2001:2::2/64`. If [`is_root`] is false, nothing runs and `None` is returned.
///
/// # Panics
/// Panics if the test panics, or if ip(8) fails to create the namespaces.
pub fn with_veth_pair<T: Send>(
    test: &str,
    queues: u32,
    here: &[&str],
    there: &[&str],
    run: impl FnOnce(Namespace) -> T + Send,
) -> Option<T> {
    if !is_root(test) {
        return None;
    }
    let in_a_thread = || {
        let far = Namespace::new("far");
        unshare(CloneFlags::CLONE_NEWNET).expect("root may have namespaces");
        ethernet(&far, queues, here, there);
        run(far)
    };
    let ended = thread::scope(|scope| scope.spawn(in_a_thread).join());
    Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn ethernet(far: &Namespace, queues: u32, here: &[&str], there: &[&str]) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let Namespace(name) = far;
    ip(&format!("link add near {queues} type veth peer name far {queues} netns {name}"));
    let add = |of: &str, interface: &str, address: &str| {
        let at_once = if address.contains(':') { "nodad" } else { "" };
        ip(&format!("{of} addr add {address} dev {interface} {at_once}"));
    };
    here.iter().for_each(|address| add("", "near", address));
    there.iter().for_each(|address| add(&format!("-n {name}"), "far", address));
    // Tests that measure the cost of sending use loopback, and so does the traffic of a namespace
    // to itself.
    ip("link set lo up");
    ip("link set near up");
    ip(&format!("-n {name} link set lo up"));
    ip(&format!("-n {name} link set far up"));
}

/// Maximum number of datagrams that [`flood`] has in flight. It is half the queue length of a virtual Ethernet
/// interface, so that other traffic does not cause losses.
const UNDER_WAY: u64 = 128;
/// Time without a received datagram after which the missing datagrams count as lost.
const LOST: Duration = Duration::from_secs(5);

/// Sends `count` datagrams from an address of the namespace to a socket, and returns the number of received datagrams.
///
/// A separate thread reads the socket. The sender waits for this thread, so that no kernel queue
/// overflows. `meanwhile` is called repeatedly until all datagrams have been sent.
///
/// # Panics
/// Panics if the sockets fail, or if a datagram arrives twice or out of order.
pub fn flood(
    far: &Namespace,
    from: IpAddr,
    reader: UdpSocket,
    count: u64,
    mut meanwhile: impl FnMut(),
) -> u64 {
    setsockopt(&reader, sockopt::RcvBufForce, &(16 << 20)).expect("root may have a large buffer");
    reader.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let to = reader.local_addr().expect("it is bound");
    let (read, all_sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (so_far, is_over) = (Arc::clone(&read), Arc::clone(&all_sent));
    let reading = thread::spawn(move || {
        let (mut octets, mut last) = ([0; 8], None);
        loop {
            match reader.recv(&mut octets) {
                Ok(_) => {
                    let number = Some(u64::from_be_bytes(octets));
                    assert!(number > last, "{number:?} after {last:?}");
                    last = number;
                    so_far.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) if is_over.load(Ordering::Relaxed) => return,
                Err(_) => {}
            }
        }
    });
    let so_far = Arc::clone(&read);
    let sending = far.start(move || {
        let socket = UdpSocket::bind((from, 0)).expect("an address of the namespace");
        for number in 0..count {
            socket.send_to(&number.to_be_bytes(), to).expect("a way there");
            let since = Instant::now();
            // The first datagram is sent alone. Others could overtake it while it waits for address resolution.
            let under_way = if number == 0 { 1 } else { UNDER_WAY };
            while number + 1 >= so_far.load(Ordering::Relaxed) + under_way {
                if since.elapsed() > LOST {
                    return;
                }
                thread::yield_now();
            }
        }
    });
    while !sending.is_finished() {
        meanwhile();
    }
    all_sent.store(true, Ordering::Relaxed);
    sending.join().expect("it sends");
    reading.join().expect("it reads");
    read.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_trial_is_repeated_once() {
        let after = |invalid: usize| {
            let mut trials = 0;
            let result = first_valid(|| {
                trials += 1;
                if trials > invalid { Ok(trials) } else { Err(format!("held up {trials}")) }
            });
            (result, trials)
        };
        assert_eq!([0, 1].map(after), [(Ok(1), 1), (Ok(2), 2)]);
        assert_eq!(after(2), (Err("two invalid trials: held up 1; held up 2".to_owned()), 2));
    }
}
