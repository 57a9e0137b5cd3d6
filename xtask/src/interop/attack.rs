//! dns64d under attack and overload: queries with a forged address, and more queries than it can answer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{A, AAAA, Bench, LIMIT, TOLERANT, two_cpus, wait_for};
use super::tally::Skipped;
use super::test::{Resource, Test};
use crate::process::{Server, cpu_seconds, free_port, output};
use crate::servers::wait_until_listens;

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "dns64d: replies to one unverified address stay below five times its queries",
        &[],
        amplification,
    ),
    Test::new("dns64d: goodput at twice its capacity", &["taskset", "sh"], goodput)
        .holding(Resource::Cpus),
];

/// Duration of the flood, and its rate: 50 queries every 10 ms.
const FLOOD: Duration = Duration::from_secs(10);
const BURST: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of reply octets per query octet.
const MOST: usize = 5;
/// Number of A records of `large.test`. The reply has 476 octets, and the query has 28.
const LARGE: u8 = 28;

fn amplification(bench: &Bench) -> Result<()> {
    let upstream = UdpSocket::bind("127.0.0.1:0")?;
    let port = free_port()?;
    let config = bench.dns64d_config(port, upstream.local_addr()?.port())?;
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| answer(&upstream, &is_over));
        let _over = StopGuard(&is_over);
        let _dns64d = Server::start(bench.dns64d_program(), &["--config", &config])?;
        wait_for(&server.to_string(), "small.test", A)?;
        let flood = scope.spawn(|| flood(server));
        let honest = honest(server, &flood)?;
        let (asked, got) = flood.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        println!("        {got} octets of replies for {asked} octets of queries");
        ensure!(got > asked && got <= MOST * asked, "{got} octets for {asked}");
        println!(
            "        during the flood {} of {} honest queries were answered",
            honest.0, honest.1
        );
        ensure!(honest.0 * 100 >= honest.1 * 99, "{honest:?}");
        Ok(())
    })
}

/// Guard that ends the thread of the upstream, even if the test fails.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers queries for A records, and others with NODATA.
fn answer(socket: &UdpSocket, is_over: &AtomicBool) {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(100)));
    let mut query = [0; 512];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut query) else { continue };
        let question = query[..len].get(12..).unwrap_or_default();
        let Some(end) = question.windows(4).position(|end| end == [0, 0, A, 0]) else {
            let mut reply = query[..len].to_vec();
            reply[2..4].copy_from_slice(&[0x81, 0x80]);
            let _ = socket.send_to(&reply, from);
            continue;
        };
        let count = if query[13..].starts_with(b"large") { LARGE } else { 1 };
        let mut reply = query[..12 + end + 5].to_vec();
        reply[2..4].copy_from_slice(&[0x81, 0x80]);
        reply[6..12].copy_from_slice(&[0, count, 0, 0, 0, 0]);
        for n in 1..=count {
            reply.extend([0xc0, 12, 0, A, 0, 1, 0, 0, 1, 0, 0, 4, 192, 0, 2, n]);
        }
        let _ = socket.send_to(&reply, from);
    }
}

/// Returns a query without EDNS, and therefore without a cookie.
fn query(name: &str, rtype: u8) -> Vec<u8> {
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, rtype, 0, 1]);
    query
}

/// Sends queries with large answers from one address. Returns the total octets of the queries and of the replies.
fn flood(server: SocketAddr) -> Result<(usize, usize)> {
    let socket = UdpSocket::bind("127.0.0.2:0")?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    let (query, begun) = (query("large.test", A), Instant::now());
    let (mut asked, mut got) = (0, 0);
    let mut reply = [0; 4_096];
    while begun.elapsed() < FLOOD {
        for _ in 0..BURST {
            asked += socket.send(&query).unwrap_or(0);
        }
        thread::sleep(PAUSE);
        while let Ok(len) = socket.recv(&mut reply) {
            got += len;
        }
    }
    Ok((asked, got))
}

/// Sends queries with small and large answers from another address in the same network until the flood ends. After a
/// truncated reply, the query is repeated over TCP. Returns the number of answered queries and the total number of
/// queries.
fn honest(
    server: SocketAddr,
    flood: &thread::ScopedJoinHandle<'_, Result<(usize, usize)>>,
) -> Result<(usize, usize)> {
    let socket = UdpSocket::bind("127.0.0.3:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let (mut answered, mut all) = (0, 0);
    while !flood.is_finished() {
        for (name, rtype) in [("small.test", A), ("small.test", AAAA), ("large.test", A)] {
            let query = query(name, rtype);
            all += 1;
            socket.send(&query)?;
            let mut reply = [0; 4_096];
            let Ok(len) = socket.recv(&mut reply) else { continue };
            let is_truncated = reply[2] & 2 != 0;
            let is_answered = if is_truncated {
                over_tcp(server, &query).is_ok_and(|reply| reply[7] > 0)
            } else {
                len > 12 && reply[7] > 0
            };
            answered += usize::from(is_answered);
        }
        thread::sleep(PAUSE);
    }
    Ok((answered, all))
}

fn over_tcp(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(&[&(query.len() as u16).to_be_bytes(), query].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut reply)?;
    (reply.len() > 12).then_some(reply).context("no reply")
}

/// Number of other programs on dns64d's CPU. They reduce the capacity of dns64d below that of the tester.
const OTHERS: usize = 2;
/// Minimum rate of timely answers, as a share of the capacity, if queries arrive at twice the capacity.
const GOODPUT: f64 = 0.95;
/// Maximum change of the capacity during a comparison, as a share of the smaller value.
const CHANGE: f64 = 0.05;
/// Maximum number of comparisons. If the capacity changes too much in all of them, the test counts as not run.
const ATTEMPTS: u8 = 3;

/// Compares two loads: the rate of a closed loop, which is dns64d's capacity, and twice this rate.
///
/// Rates are replies per second of dns64d's CPU time, because the kernel gives dns64d a varying share of the CPU.
fn goodput(bench: &Bench) -> Result<()> {
    let [first, last] = two_cpus();
    ensure!(first != last, "dns64d needs a separate CPU");
    let (upstream, port) = (free_port()?, free_port()?);
    let listen = format!("127.0.0.1:{upstream}");
    let _auth = Server::start(
        "taskset",
        &["-c", &first, bench.program(), "auth", "--listen", &listen, "--threads", "1"],
    )?;
    wait_until_listens(&[], upstream)?;
    let config = bench.dns64d_config(port, upstream)?;
    let dns64d =
        Server::start("taskset", &["-c", &last, &bench.dns64d_program(), "--config", &config])?;
    wait_until_listens(&[], port)?;
    let busy = ["-c", &last, "sh", "-c", "while :; do :; done"];
    let _others =
        (0..OTHERS).map(|_| Server::start("taskset", &busy)).collect::<Result<Vec<_>>>()?;
    let load =
        Overload { bench, server: format!("127.0.0.1:{port}"), pid: dns64d.pid()?, cpu: first };
    let mut changes = Vec::new();
    for attempt in 0..ATTEMPTS {
        // Each load uses different names, so that no name is cached.
        let names = |load: u8| format!("{}.0.0.0/8", 20 + 4 * attempt + load);
        let rate = load.closed_loop(&names(0))?;
        let before = load.trial(rate, &names(1))?;
        let in_time = load.trial(2.0 * rate, &names(2))?;
        let after = load.trial(rate, &names(3))?;
        let capacity = before.max(after);
        println!("        {in_time:.0} in time; {before:.0} and {after:.0} at half of the rate");
        if in_time >= GOODPUT * capacity {
            return Ok(());
        }
        // A lower rate is evidence only if the capacity did not change in the meantime.
        let change = (before - after).abs() / before.min(after);
        ensure!(change > CHANGE, "{in_time} of {capacity} replies/s of CPU time");
        changes.push(format!("{:.0} %", 100.0 * change));
    }
    Err(Skipped(format!("the capacity changed by {}", changes.join(", "))).into())
}

/// Generator of loads for a server.
struct Overload<'a> {
    bench: &'a Bench,
    server: String,
    /// Process of the server.
    pid: u32,
    /// CPU of the client.
    cpu: String,
}

impl Overload<'_> {
    /// Runs a closed loop, and returns its rate.
    fn closed_loop(&self, names: &str) -> Result<f64> {
        let program =
            ["-c", &self.cpu, self.bench.program(), "closed-loop", "--server", &self.server];
        let load = ["--names", names, "--count", "100000", "--outstanding", "200", "--json"];
        let result: Value =
            serde_json::from_str(&output("taskset", &[&program[..], &load].concat(), LIMIT)?)?;
        result["qps"].as_f64().context("no rate")
    }

    /// Runs a trial at this rate, and returns the number of timely replies per second of CPU time.
    fn trial(&self, rate: f64, names: &str) -> Result<f64> {
        let before = cpu_seconds(self.pid)?;
        let rate = (rate as u64).to_string();
        let load =
            ["--server", &self.server, "--names", names, "--rate", &rate, "--duration", "8s"];
        let more = ["--expect-prefix", "64:ff9b::/96", "--liveness", "false", "--timeout", "2s"];
        let trial = self.bench.measure(&[&load[..], &more, TOLERANT].concat())?;
        let replies = trial["valid"].as_f64().context("no count of valid replies")?;
        Ok(replies / (cpu_seconds(self.pid)? - before))
    }
}
