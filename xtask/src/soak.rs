//! `soak`: dns64d under mixed load for long. Does it lose replies, does it grow, does it panic?
//!
//! ```text
//! Measurer at half of the highest rate ─┐
//! malformed datagrams ──────────────────┤
//! clients that ask and go away, UDP+TCP ┼─► dns64d ─► AuthDNS          RSS, once a second
//! slow TCP clients, an octet at a time ─┘
//! ```

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::process::{self, Server, free_port, memory, output};

/// Malformed datagrams, and clients that go away, per second.
const MALFORMED: u64 = 2_000;
const CANCELLED: u64 = 200;
const SLOW_CLIENTS: usize = 50;
/// Share of the time after which memory must not grow.
const WARM_UP: f64 = 0.3;
/// What it may grow by after that: the noise of the allocator.
const GROWTH: f64 = 0.1;
/// AAAA of 250.0.0.0's name, with RD.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x0f250-000-000-000\x09dns64perf\x04test\0\0\x1c\0\x01";

#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How long, in seconds
    #[arg(long, default_value_t = 60)]
    duration: u64,
}

/// What the disturbers did.
#[derive(Default)]
struct Done {
    over: AtomicBool,
    malformed: AtomicU64,
    cancelled: AtomicU64,
    slow: AtomicU64,
}

impl Soak {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = process::dns64bench()?;
        let folder = tempfile::tempdir()?;
        let (auth_port, port) = (free_port()?, free_port()?);
        let listen = format!("127.0.0.1:{auth_port}");
        let _auth = Server::start(&program, &["auth", "--listen", &listen, "--threads", "1"])?;
        let config = folder.path().join("dns64d.toml");
        // A small cache, so that it is full before the warm-up is over.
        fs::write(
            &config,
            format!(
                "listen = ['127.0.0.1:{port}']\nthreads = 1\n[cache]\nmebibytes = 32\n[dns64]\n\
                 prefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
                 [[upstream]]\naddress = '127.0.0.1'\nport = {auth_port}\n"
            ),
        )?;
        let server = Server::start(program.with_file_name("dns64d"), &["--config", &config.to_string_lossy()])?;
        thread::sleep(Duration::from_millis(500));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let highest = highest_rate(&program, address)?;
        let rate = highest / 2;
        println!("dns64d answers {highest} names/s at the most; {rate}/s for {} s, and disturbers", self.duration);

        let done = Done::default();
        let pid = server.pid()?;
        let (trial, sizes) = thread::scope(|scope| {
            scope.spawn(|| malformed(address, &done));
            scope.spawn(|| cancelled(address, &done));
            scope.spawn(|| slow(address, &done));
            let sizes = scope.spawn(|| watch(pid, &done));
            let trial = measure(&program, address, rate, self.duration);
            done.over.store(true, Ordering::Relaxed);
            (trial, sizes.join().expect("watching does not panic"))
        });
        let trial = trial?;
        self.judge(&trial, &sizes, &done)?;
        let still = measure(&program, address, 1_000, 1)?;
        ensure!(still["valid"] == still["sent"], "it does not answer any more: {still}");
        drop(server);
        Ok(ExitCode::SUCCESS)
    }

    fn judge(&self, trial: &Value, sizes: &[f64], done: &Done) -> Result<()> {
        let count = |key: &str| trial[key].as_u64().unwrap_or(0);
        println!(
            "{} queries: {} valid, {} late, {} lost, {} dropped by this host; p99 {} µs",
            count("sent"),
            count("valid"),
            count("late"),
            count("lost"),
            count("tester_drops"),
            trial["rtt_us"]["p99"]
        );
        println!(
            "besides: {} malformed datagrams, {} clients that went away, {} octets from slow ones",
            done.malformed.load(Ordering::Relaxed),
            done.cancelled.load(Ordering::Relaxed),
            done.slow.load(Ordering::Relaxed)
        );
        ensure!(sizes.len() as u64 + 2 >= self.duration, "dns64d ended after {} s", sizes.len());
        let warm = sizes[(sizes.len() as f64 * WARM_UP) as usize];
        let last = sizes.last().copied().unwrap_or_default();
        println!("memory: {warm:.1} MiB after the warm-up, {last:.1} MiB at the end");
        ensure!(last <= warm * (1.0 + GROWTH), "it grows");
        ensure!(count("valid") + count("tester_drops") >= count("sent"), "replies were lost: {trial}");
        Ok(())
    }
}

fn highest_rate(program: &Path, address: SocketAddr) -> Result<u64> {
    let args = ["closed-loop", "--server", &address.to_string(), "--count", "400000", "--outstanding", "200", "--json"];
    let printed = output(program, &args, Duration::from_secs(60))?;
    let result: Value = serde_json::from_str(&printed)?;
    result["qps"].as_f64().map(|qps| qps as u64).context("no rate")
}

fn measure(program: &Path, address: SocketAddr, rate: u64, seconds: u64) -> Result<Value> {
    let (address, rate, duration) = (address.to_string(), rate.to_string(), format!("{seconds}s"));
    let args = ["measure", "--server", &address, "--rate", &rate, "--duration", &duration, "--names", "0.0.0.0/0"];
    let more = ["--first-name", "200000000", "--expect-prefix", "64:ff9b::/96", "--max-burst", "200us"];
    let args = [&args[..], &more[..], &["--json", "--quiet"]].concat();
    let ran = process::run(program, &args, Duration::from_secs(seconds + 60))?;
    serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
}

/// Memory once a second, MiB, until the end or until the process is gone.
fn watch(pid: u32, done: &Done) -> Vec<f64> {
    let mut sizes = Vec::new();
    while !done.over.load(Ordering::Relaxed) {
        let Ok(size) = memory(pid) else { break };
        sizes.push(size);
        thread::sleep(Duration::from_secs(1));
    }
    sizes
}

/// Calls `act` so many times a second.
fn regularly(per_second: u64, done: &Done, mut act: impl FnMut(u64)) {
    let start = Instant::now();
    for n in 0.. {
        if done.over.load(Ordering::Relaxed) {
            return;
        }
        act(n);
        let due = Duration::from_nanos(n * 1_000_000_000 / per_second);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// Queries with an octet changed, cut off, or nothing but noise.
fn malformed(address: SocketAddr, done: &Done) {
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else { return };
    // A linear congruential generator is noise enough, and the same in every run.
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    regularly(MALFORMED, done, |n| {
        let mut bytes = QUERY.to_vec();
        match n % 3 {
            0 => {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            1 => bytes.truncate(random() % bytes.len()),
            _ => bytes.iter_mut().for_each(|octet| *octet = random() as u8),
        }
        let _ = socket.send_to(&bytes, address);
        done.malformed.fetch_add(1, Ordering::Relaxed);
    });
}

/// Clients that ask for a new name and are gone before the answer comes.
fn cancelled(address: SocketAddr, done: &Done) {
    regularly(CANCELLED, done, |n| {
        let mut query = QUERY.to_vec();
        query[17..28].copy_from_slice(format!("{:03}-{:03}-{:03}", n >> 16 & 255, n >> 8 & 255, n & 255).as_bytes());
        if n % 10 == 0 {
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ = stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat());
            }
        } else if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _ = socket.send_to(&query, address);
        }
        done.cancelled.fetch_add(1, Ordering::Relaxed);
    });
}

/// TCP clients that send their query an octet at a time; those that the server closes come back.
fn slow(address: SocketAddr, done: &Done) {
    let message = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
    let mut clients: Vec<(Option<TcpStream>, usize)> = (0..SLOW_CLIENTS).map(|_| (None, 0)).collect();
    while !done.over.load(Ordering::Relaxed) {
        for (stream, at) in &mut clients {
            let open = stream.take().or_else(|| {
                *at = 0;
                TcpStream::connect(address).ok()
            });
            let Some(mut open) = open else { continue };
            let _ = open.set_nonblocking(true);
            let mut answers = [0; 1024];
            let closed = matches!(open.read(&mut answers), Ok(0));
            if !closed && open.write_all(&message[*at..=*at]).is_ok() {
                *at = (*at + 1) % message.len();
                done.slow.fetch_add(1, Ordering::Relaxed);
                *stream = Some(open);
            }
        }
        thread::sleep(Duration::from_millis(200));
    }
}
