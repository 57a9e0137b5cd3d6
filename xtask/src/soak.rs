//! `soak`: runs dns64d under mixed load for a long time, and checks for lost replies, memory growth and panics.
//!
//! ```text
//! Measurer at half of the highest rate ──┐
//! malformed datagrams ───────────────────┤
//! clients that abandon queries, UDP+TCP ─┼─► dns64d ─► AuthDNS    its memory and counters, once a second
//! slow TCP clients, an octet at a time ──┘
//! ```
//!
//! dns64d has a separate CPU (the last one), as in `bench dns64`. All other programs share the first CPU.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use net::affinity::{allowed_cpus, pin_to};
use net::cpu_time::CpuTimes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::bench::lab::reasons;
use crate::claims::{Bound, Claims, ResultOptions};
use crate::cpu_stalls::watched;
use crate::process::{self, Server, free_port, memory, output};
use crate::servers::wait_until_listens;

/// Numbers of malformed datagrams and of abandoned queries per second.
const MALFORMED: u64 = 2_000;
const CANCELLED: u64 = 200;
const SLOW_CLIENTS: usize = 50;
/// Number of queries in a flood. It exceeds dns64d's limit of pending queries (`limits.in-flight`).
const FLOOD: u32 = 80_000;
/// Number of queries in flight from one source port. The maximum is 32 768.
const PER_PORT: u32 = 10_000;
/// Duration of the warm-up, as a share of the total time. After the warm-up, memory must not grow.
const WARM_UP: f64 = 0.3;
/// Memory growth that is allowed after the warm-up, as a share, because the allocator causes some noise.
const GROWTH: f64 = 0.1;
/// Interval of progress lines in seconds.
const TELL: usize = 10;
/// AAAA query for the name of 250.0.0.0, with the RD bit.
const QUERY: &[u8] =
    b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x0f250-000-000-000\x09dns64perf\x04test\0\0\x1c\0\x01";

#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// Duration in seconds
    #[arg(long, default_value_t = 60)]
    duration: u64,
    /// Path of a dns64d to run instead of the workspace's, to compare versions
    #[arg(long, value_name = "PROGRAM")]
    dns64d: Option<PathBuf>,
    /// Queries per second, instead of half of dns64d's highest rate
    #[arg(long)]
    rate: Option<u64>,
    #[command(flatten)]
    keeping: ResultOptions,
}

/// Counts of queries that the disturbing clients sent.
#[derive(Default)]
struct Done {
    over: AtomicBool,
    malformed: AtomicU64,
    cancelled: AtomicU64,
    slow: AtomicU64,
}

impl Soak {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = self.keeping.build().dns64bench()?;
        let cpus = allowed_cpus();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        // All threads and programs that are started after this call inherit the affinity.
        pin_to(first)?;
        let folder = tempfile::tempdir()?;
        let (auth_port, port, metrics_port) = (free_port()?, free_port()?, free_port()?);
        let listen = format!("127.0.0.1:{auth_port}");
        let auth = Server::start(&program, &["auth", "--listen", &listen, "--threads", "1"])?;
        let config = folder.path().join("dns64d.toml");
        // The cache is small, so that it is full before the warm-up is over.
        fs::write(
            &config,
            format!(
                "listen = ['127.0.0.1:{port}']\nthreads = 1\n[cache]\nmebibytes = 32\n[dns64]\n\
                 prefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
                 [dnssec]\nvalidate = false\n\
                 [[upstream]]\naddress = '127.0.0.1'\nport = {auth_port}\n\
                 [metrics]\nlisten = '127.0.0.1:{metrics_port}'\n"
            ),
        )?;
        let dns64d = self.dns64d.clone().unwrap_or_else(|| program.with_file_name("dns64d"));
        let (dns64d, config) = (dns64d.to_string_lossy(), config.to_string_lossy());
        let log = folder.path().join("log");
        let server = Server::start_logged(
            "taskset",
            &["-c", &last.0.to_string(), &dns64d, "--config", &config],
            &log,
        )?;
        wait_until_listens(&[], auth_port)?;
        wait_until_listens(&[], port)?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let metrics = SocketAddr::from(([127, 0, 0, 1], metrics_port));
        let highest = closed_loop(&program, address, 200)?;
        // The flood fills the table of pending queries once. Otherwise a stall of this machine could fill the table
        // later, and the memory for the table would look like a leak.
        flood(&program, address, &auth, || look(server.pid()?, metrics))?;
        let rate = self.rate.unwrap_or(highest / 2);
        println!(
            "dns64d answers at most {highest} names/s; {rate}/s for {} s, with disturbing clients",
            self.duration
        );

        let done = Done::default();
        let pid = server.pid()?;
        let (trial, samples, pause) = thread::scope(|scope| {
            scope.spawn(|| malformed(address, &done));
            scope.spawn(|| cancelled(address, &done));
            scope.spawn(|| slow(address, &done));
            let samples = scope.spawn(|| watch(pid, metrics, &done));
            let (trial, pause) =
                watched(&[first, last], || measure(&program, address, rate, self.duration));
            done.over.store(true, Ordering::Relaxed);
            (trial, samples.join().expect("watching does not panic"), pause)
        });
        let trial = trial?;
        let mut claims = Claims::default();
        let end = look(pid, metrics)?;
        let begin = samples.first().context("dns64d could not be sampled")?;
        let losses = Losses { unread: end.unread - begin.unread, pause };
        self.judge(&trial, &samples, losses, &done, &mut claims)?;
        let still = measure(&program, address, 1_000, 1)?;
        let after = look(pid, metrics)?;
        let unread = after.unread - end.unread;
        let found = unanswered(&still, Losses { unread, pause: Duration::ZERO });
        claims.hold("unanswered queries of 1 000 afterwards", Bound::AtMost(0.0), found);
        drop(server);
        let log = fs::read_to_string(&log)?;
        let panics = log.lines().filter(|line| line.contains("panicked")).count();
        claims.hold("panics in its log", Bound::AtMost(0.0), Ok(panics as f64));
        let defects = after.defects;
        claims.hold("panics that it survived", Bound::AtMost(0.0), Ok(defects as f64));
        if panics > 0 || defects > 0 {
            eprintln!("{log}");
        }
        claims.conclude(&self.keeping)
    }

    fn judge(
        &self,
        trial: &Value,
        samples: &[Sample],
        losses: Losses,
        done: &Done,
        claims: &mut Claims,
    ) -> Result<()> {
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
            "also: {} malformed datagrams, {} abandoned queries, {} octets from slow clients",
            done.malformed.load(Ordering::Relaxed),
            done.cancelled.load(Ordering::Relaxed),
            done.slow.load(Ordering::Relaxed)
        );
        let seconds = samples.len();
        let enough = seconds > 0 && seconds as u64 + 2 >= self.duration;
        ensure!(enough, "dns64d was sampled {seconds} times in {} s", self.duration);
        let busiest = samples.iter().map(|sample| sample.in_flight).max().unwrap_or(0);
        let (first, last) = (&samples[0], &samples[seconds - 1]);
        let Losses { unread, pause } = losses;
        println!(
            "dns64d: {} upstream queries, {} of them not answered in time, at most {busiest} \
             queries pending, {} rejected, {unread} dropped by the kernel before they were read",
            last.asked - first.asked,
            last.timeouts - first.timeouts,
            last.turned_away - first.turned_away
        );
        let stolen = samples
            .windows(2)
            .map(|pair| pair[1].cpu.stolen_since(&pair[0].cpu).all_pct)
            .fold(0.0, f64::max);
        let all = last.cpu.stolen_since(&first.cpu).all_pct;
        println!(
            "the host took {all:.1} % of the CPUs' time, {stolen:.0} % in the worst second; the \
             longest time in which a CPU ran none of our threads was {} ms",
            pause.as_millis()
        );
        let warm = samples[(seconds as f64 * WARM_UP) as usize].memory;
        let last = last.memory;
        println!("memory: {warm:.1} MiB after the warm-up, {last:.1} MiB at the end");
        claims.hold(
            "memory at the end divided by that after the warm-up",
            Bound::AtMost(1.0 + GROWTH),
            Ok(last / warm),
        );
        claims.hold(
            "queries without a correct answer",
            Bound::AtMost(0.0),
            unanswered(trial, losses),
        );
        claims.keep("trial", trial.clone());
        claims.keep("samples", samples.iter().map(Sample::raw).collect());
        Ok(())
    }
}

/// Reasons that a trial may have if the drop counters explain all its losses. Any other reason means that this machine
/// stalled, or that losses were not counted.
const COUNTED: [&str; 2] = ["host_loss", "too_few_valid"];

/// Effects that this machine had on queries to dns64d.
#[derive(Clone, Copy)]
struct Losses {
    /// Number of datagrams that the kernel dropped before dns64d read them, at half of the rate that dns64d can
    /// process.
    unread: u64,
    /// Longest time during which a CPU ran none of our threads.
    pause: Duration,
}

/// Duration of a CPU stall that explains late replies or abandoned upstream queries.
const STOOD_STILL: Duration = Duration::from_millis(300);

/// Largest share of queries that a server without a fault may leave unread at half of its highest rate. A larger share
/// indicates a fault, or a stall of the server's CPU.
const FEW_UNREAD: f64 = 0.001;

/// Returns the number of queries without a valid reply that count against dns64d. Datagrams that the tester's host
/// dropped, and the few that the kernel dropped before dns64d read them, are subtracted.
///
/// # Errors
/// Returns an error if the behaviour of the tester or of this machine may explain all missing replies.
fn unanswered(trial: &Value, Losses { unread, pause }: Losses) -> Result<f64, String> {
    let count = |key: &str| trial[key].as_u64().ok_or_else(|| format!("no {key} in {trial}"));
    let (sent, drops) = (count("sent")?, count("tester_drops")?);
    let unanswered = sent.abs_diff(count("valid")?);
    let is_few = unread as f64 <= sent as f64 * FEW_UNREAD;
    let unread = if is_few || pause >= STOOD_STILL { unread } else { 0 };
    let causes = trial["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_counted = |cause: &Value| COUNTED.iter().any(|kind| cause["kind"] == *kind);
    let is_ours =
        unanswered <= drops + unread || pause >= STOOD_STILL || !causes.iter().all(is_counted);
    if unanswered > 0 && is_ours {
        return Err(format!(
            "{unanswered} unanswered, {drops} dropped by this host, {unread} unread by dns64d, a \
             CPU stalled for {} ms; {}",
            pause.as_millis(),
            reasons(trial)
        ));
    }
    Ok(unanswered.saturating_sub(drops + unread) as f64)
}

/// Returns the number of names per second that dns64d answers with `outstanding` queries in flight.
fn closed_loop(program: &Path, address: SocketAddr, outstanding: u32) -> Result<u64> {
    let ports = outstanding.div_ceil(PER_PORT).to_string();
    let (address, outstanding) = (address.to_string(), outstanding.to_string());
    let args =
        ["closed-loop", "--server", &address, "--count", "400000", "--outstanding", &outstanding];
    let args = [&args[..], &["--source-ports", &ports, "--json"]].concat();
    let printed = output(program, &args, Duration::from_secs(60))?;
    let result: Value = serde_json::from_str(&printed)?;
    result["qps"].as_f64().map(|qps| qps as u64).context("no rate")
}

/// Sends more queries than dns64d allows to be pending. AuthDNS is stopped after the first queries, because otherwise
/// the number of pending queries would depend on the speed of this machine. Returns once all queries have been answered
/// or have timed out.
///
/// # Errors
/// Returns an error if dns64d rejected no query.
fn flood(
    program: &Path,
    address: SocketAddr,
    auth: &Server,
    look: impl Fn() -> Result<Sample>,
) -> Result<()> {
    let auth = Pid::from_raw(i32::try_from(auth.pid()?)?);
    let until = |never: &str, is_so: fn(&Sample) -> bool| {
        process::wait_until(never, Duration::from_secs(10), || Ok(is_so(&look()?)))
    };
    thread::scope(|scope| {
        let queries = scope.spawn(|| closed_loop(program, address, FLOOD));
        let begun = until("no query arrived", |sample| sample.in_flight > 0);
        kill(auth, Signal::SIGSTOP).context("cannot stop AuthDNS")?;
        let too_many = format!("the limit was not reached with {FLOOD} queries in flight");
        let turned_away = begun.and_then(|()| until(&too_many, |sample| sample.turned_away > 0));
        kill(auth, Signal::SIGCONT).context("cannot continue AuthDNS")?;
        queries.join().expect("a closed loop does not panic")?;
        turned_away
    })
}

fn measure(program: &Path, address: SocketAddr, rate: u64, seconds: u64) -> Result<Value> {
    let (address, rate, duration) = (address.to_string(), rate.to_string(), format!("{seconds}s"));
    let args = [
        "measure",
        "--server",
        &address,
        "--rate",
        &rate,
        "--duration",
        &duration,
        "--names",
        "0.0.0.0/0",
    ];
    let more =
        ["--first-name", "200000000", "--expect-prefix", "64:ff9b::/96", "--max-burst", "200us"];
    // This test ignores pacing, but not losses on this host.
    let limits = ["--window-limit", "100", "--lateness-limit", "1s"];
    let args =
        [&args[..], &more[..], &limits[..], &["--timeout", "1s", "--json", "--quiet"]].concat();
    let ran = process::run(program, &args, Duration::from_secs(seconds + 60))?;
    serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
}

impl Sample {
    fn raw(&self) -> Value {
        let Sample { memory, asked, timeouts, turned_away, unread, defects, in_flight, .. } = self;
        json!({ "unread": unread, "defects": defects, "mebibytes": memory, "asked": asked, "timeouts": timeouts, "turned_away": turned_away, "in_flight": in_flight })
    }
}

/// State at one moment: memory of dns64d in MiB, metrics of dns64d, and CPU time of this machine.
struct Sample {
    memory: f64,
    cpu: CpuTimes,
    asked: u64,
    timeouts: u64,
    /// Number of queries that were not served because of a limit: in total, for one client, or for an unresponsive
    /// zone.
    turned_away: u64,
    /// Number of datagrams that the kernel dropped before dns64d read them.
    unread: u64,
    /// Number of panics that dns64d survived. Each panic leaves one query without an answer.
    defects: u64,
    in_flight: u64,
}

/// Takes a sample once a second, until the end or until the process is gone, and prints progress lines.
fn watch(pid: u32, metrics: SocketAddr, done: &Done) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    let (start, mut seconds) = (Instant::now(), 0);
    while !done.over.load(Ordering::Relaxed) {
        match look(pid, metrics) {
            Ok(sample) => samples.push(sample),
            Err(_) if memory(pid).is_err() => break,
            Err(error) => eprintln!("no metrics: {error}"),
        }
        if samples.len() > TELL && samples.len().is_multiple_of(TELL) {
            let [before, now] = [&samples[samples.len() - TELL - 1], &samples[samples.len() - 1]];
            let between = TELL as u64;
            eprintln!(
                "{:4} s: {:6} upstream queries/s, {:6}/s not answered in time, {:5} queries \
                 pending, {:5}/s rejected, {:.1} MiB, {:2.0} % of the CPUs taken by the host",
                samples.len(),
                (now.asked - before.asked) / between,
                (now.timeouts - before.timeouts) / between,
                now.in_flight,
                (now.turned_away - before.turned_away) / between,
                now.memory,
                now.cpu.stolen_since(&before.cpu).all_pct
            );
        }
        seconds += 1;
        thread::sleep(
            (start + Duration::from_secs(seconds)).saturating_duration_since(Instant::now()),
        );
    }
    samples
}

fn look(pid: u32, metrics: SocketAddr) -> Result<Sample> {
    let mut stream = TcpStream::connect_timeout(&metrics, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let value = |name: &str| -> Result<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .with_context(|| format!("no {name}"))?;
        Ok(line.trim().parse()?)
    };
    Ok(Sample {
        memory: memory(pid)?,
        cpu: CpuTimes::now()?,
        asked: value("dns64d_upstream_queries_total{transport=\"udp\"}")?,
        timeouts: value("dns64d_upstream_results_total{result=\"timeout\"}")?,
        turned_away: ["overload", "client-share", "dead-branch"]
            .iter()
            .map(|reason| value(&format!("dns64d_denied_total{{reason=\"{reason}\"}}")))
            .sum::<Result<u64>>()?,
        unread: value("dns64d_queries_dropped_by_kernel_total")?,
        defects: value("dns64d_defects_total")?,
        in_flight: value("dns64d_in_flight")?,
    })
}

/// Calls `act` `per_second` times per second, until the end.
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

/// Sends queries with one altered octet, queries that are cut off, and random octets.
fn malformed(address: SocketAddr, done: &Done) {
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else { return };
    // The seed is fixed, so that every run sends the same noise.
    let mut noise = StdRng::seed_from_u64(1);
    regularly(MALFORMED, done, |n| {
        let mut bytes = QUERY.to_vec();
        match n % 3 {
            0 => {
                let at = noise.random_range(..bytes.len());
                bytes[at] = noise.random();
            }
            1 => bytes.truncate(noise.random_range(..bytes.len())),
            _ => noise.fill(&mut bytes[..]),
        }
        let _ = socket.send_to(&bytes, address);
        done.malformed.fetch_add(1, Ordering::Relaxed);
    });
}

/// Runs clients that send a query for a new name and leave before the answer arrives.
fn cancelled(address: SocketAddr, done: &Done) {
    regularly(CANCELLED, done, |n| {
        let mut query = QUERY.to_vec();
        query[17..28].copy_from_slice(
            format!("{:03}-{:03}-{:03}", n >> 16 & 255, n >> 8 & 255, n & 255).as_bytes(),
        );
        if n % 10 == 0 {
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ =
                    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat());
            }
        } else if let Ok(socket) = UdpSocket::bind("127.0.0.1:0") {
            let _ = socket.send_to(&query, address);
        }
        done.cancelled.fetch_add(1, Ordering::Relaxed);
    });
}

/// Runs TCP clients that send their query one octet at a time. If the server closes a connection, the client
/// reconnects.
fn slow(address: SocketAddr, done: &Done) {
    let message = [&(QUERY.len() as u16).to_be_bytes()[..], QUERY].concat();
    let mut clients: Vec<(Option<TcpStream>, usize)> =
        (0..SLOW_CLIENTS).map(|_| (None, 0)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_excuses_one_reply_and_no_more() {
        let none = Losses { unread: 0, pause: Duration::ZERO };
        let of = |sent, valid, drops, kind: &str, losses| {
            let causes = if kind.is_empty() { json!([]) } else { json!([{ "kind": kind }]) };
            let trial =
                json!({ "sent": sent, "valid": valid, "tester_drops": drops, "causes": causes });
            unanswered(&trial, losses)
        };
        assert_eq!(of(100, 100, 0, "", none), Ok(0.0));
        assert_eq!(of(100, 100, 3, "host_loss", none), Ok(0.0));
        assert_eq!(of(100, 99, 0, "too_few_valid", none), Ok(1.0));
        assert_eq!(of(100, 50, 1, "host_loss", none), Ok(49.0));
        assert!(of(100, 99, 1, "host_loss", none).is_err());
        // This machine stalled.
        assert!(of(100, 99, 0, "late", none).is_err());
        let still = Losses { pause: Duration::from_millis(1_200), ..none };
        assert!(of(100, 60, 0, "too_few_valid", still).is_err());
        assert_eq!(of(100, 100, 0, "", still), Ok(0.0));
        let unread = Losses { unread: 3, ..none };
        assert!(of(3_000, 2_997, 0, "too_few_valid", unread).is_err());
        assert_eq!(of(3_000, 2_996, 0, "too_few_valid", unread), Ok(1.0));
        // If more queries are unread without a pause, the server was too slow.
        assert_eq!(of(2_999, 2_996, 0, "too_few_valid", unread), Ok(3.0));
        let paused = Losses { unread: 3, ..still };
        assert!(of(2_999, 2_996, 0, "too_few_valid", paused).is_err());
        assert!(unanswered(&json!({}), none).is_err());
    }
}
