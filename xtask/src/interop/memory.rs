//! Tests of dns64d in a control group with a memory limit.
//!
//! ```text
//! a client: unique names ─► dns64d in a group of 64, 128 or 256 MiB ─► upstream: 60 A records for each name
//! ```

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::harness::{A, Bench, wait_for};
use super::tally::Skipped;
use super::test::{ROOT, Test};
use crate::process::{Server, free_port};

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "dns64d in 64 MiB of memory: unique names with 60 addresses each",
        &["sh", ROOT],
        |bench| in_mebibytes(bench, 64),
    ),
    Test::new(
        "dns64d in 128 MiB of memory: unique names with 60 addresses each",
        &["sh", ROOT],
        |bench| in_mebibytes(bench, 128),
    ),
    Test::new(
        "dns64d in 256 MiB of memory: unique names with 60 addresses each",
        &["sh", ROOT],
        |bench| in_mebibytes(bench, 256),
    ),
];

/// Smallest limit in MiB with which the server must start. With a lower limit, the server may end with an error that
/// states the required size.
const LEAST: u64 = 128;
/// Number of queries. Their answers need 256 MiB of memory, which is more than any of the caches.
const QUERIES: u32 = 250_000;
/// Queries in flight.
const WINDOW: u32 = 64;
/// Records of each answer.
const RECORDS: u8 = 60;
/// Time after which a query counts as unanswered.
const SILENCE: Duration = Duration::from_secs(20);
/// Interval at which the upstream checks whether it must end.
const LOOK: Duration = Duration::from_millis(50);

fn in_mebibytes(bench: &Bench, mebibytes: u64) -> Result<()> {
    let group = Group::new(bench, mebibytes << 20)?;
    let upstream = UdpSocket::bind("127.0.0.1:0")?;
    upstream.set_read_timeout(Some(LOOK))?;
    let upstream_port = upstream.local_addr()?.port();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| answer_all(&upstream, &is_over));
        let done = serve_all(bench, &group, upstream_port, mebibytes < LEAST);
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

/// Sends all queries to a dns64d in the group, which must still answer the last query. If `may_refuse` is true, dns64d
/// may instead end at start-up with an error that states the required size.
fn serve_all(bench: &Bench, group: &Group, upstream: u16, may_refuse: bool) -> Result<()> {
    let port = free_port()?;
    let config = format!(
        "listen = ['127.0.0.1:{port}']\nthreads = 2\n[[upstream]]\naddress = '127.0.0.1'\nport = {upstream}\n"
    );
    let (config, log) = (bench.file("memory.toml", &config)?, bench.path("memory.log"));
    let (folder, program) = (group.folder.to_string_lossy(), bench.dns64d_program());
    let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let args = ["-c", enter, &folder, &program, "--config", &config];
    let server = Server::start_logged("sh", &args, Path::new(&log))?;
    let address = format!("127.0.0.1:{port}");
    if let Err(error) = wait_for(&address, "first.test", A) {
        let log = fs::read_to_string(&log)?;
        ensure!(may_refuse && log.contains("MiB or more; raise the limit"), "{error:#}: {log}");
        return Ok(());
    }
    ask_all(&address)?;
    wait_for(&address, "last.test", A)?;
    ensure!(group.kills()? == 0, "the kernel killed a process of the group");
    server.end()?;
    let log = fs::read_to_string(&log)?;
    ensure!(log.contains("the cache is reduced ") && log.contains(group.file), "{log}");
    Ok(())
}

/// Queries unique names, with up to 64 queries in flight. Each query must get a reply.
fn ask_all(server: &str) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(SILENCE))?;
    let (mut sent, mut reply) = (0, [0; 4096]);
    for replies in 0..QUERIES {
        while sent < QUERIES && sent - replies < WINDOW {
            socket.send(&query(sent)).with_context(|| format!("after {replies} replies"))?;
            sent += 1;
        }
        socket.recv(&mut reply).with_context(|| format!("no reply after {replies}"))?;
    }
    Ok(())
}

/// Returns a query with EDNS for the A records of the name with this number.
fn query(number: u32) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    let mut query = vec![high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    let label = format!("n{number}");
    query.push(label.len() as u8);
    query.extend(label.bytes());
    query.extend(b"\x06memory\x04test\0\0\x01\0\x01");
    query.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    query
}

/// Runs an upstream that answers with 60 A records if the name begins with "n", and otherwise with one record.
fn answer_all(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut query = [0; 512];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((len, peer)) = socket.recv_from(&mut query) else { continue };
        let name = query[12..len.max(12)].iter().position(|&octet| octet == 0);
        let Some(end) = name.map(|len| 12 + len + 5) else { continue };
        let mut answer = query[..end].to_vec();
        let records = if query[13] == b'n' { RECORDS } else { 1 };
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, records, 0, 0, 0, 0]);
        for record in 0..records {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0x0e, 0x10, 0, 4, 192, 0, 2, record]);
        }
        let _ = socket.send_to(&answer, peer);
    }
}

/// A control group of processes with a memory limit. It is removed when dropped.
struct Group {
    folder: PathBuf,
    /// File that contains the limit.
    file: &'static str,
}

impl Group {
    /// Creates a control group, in cgroup version 1 or 2.
    ///
    /// # Errors
    /// Returns [`Skipped`] if no control group can be created here.
    fn new(bench: &Bench, octets: u64) -> Result<Group> {
        // On some systems with version 2, this controller is disabled.
        let control = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
        let _ = control.exists().then(|| fs::write(control, "+memory"));
        let name = bench.folder.path().file_name().context("the folder has a name")?;
        let versions =
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        for (parent, file) in versions {
            let folder = Path::new(parent).join(name);
            if fs::create_dir(&folder).is_err() {
                continue;
            }
            let group = Group { folder, file };
            // A new folder at the top of version 1, where the hierarchies are, contains no files.
            let limit = group.folder.join(file);
            if limit.exists() && fs::write(limit, octets.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err(Skipped("no control group with a memory limit can be made".into()).into())
    }

    /// Returns the number of processes that the kernel killed because of the limit.
    fn kills(&self) -> Result<u64> {
        let files = ["memory.events", "memory.oom_control"].map(|file| self.folder.join(file));
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
        let text = text.context("no count of killed processes")?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Ok(kills.context("no oom_kill")?.parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty now, unless the test failed before the server ended.
        let _ = fs::remove_dir(&self.folder);
    }
}
