//! Programs for comparison: a minimal server, and a sender that works like dns64perf++.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use net::affinity::pin_to;
use net::batch::{ServerBatch, Wait};
use net::socket::Endpoint;
use signal_hook::consts::SIGTERM;
use units::CpuId;
use wire::name::Domain;
use wire::template::QueryTemplate;
use wire::view::Message;

/// Maximum number of queries of [`first_answer`], and address of its first name.
const FIRST_ANSWER_QUERIES: u32 = 20_000;
const FIRST_ANSWER_NAME: u32 = u32::from_be_bytes([9, 0, 0, 0]);

/// Runs a null reflector on one CPU until SIGTERM. The reflector sends every datagram back as a response, using only
/// `recvmmsg` and `sendmmsg`. At the end it prints the number of datagrams.
pub(crate) fn reflect(address: SocketAddr, cpu: usize) -> Result<()> {
    pin_to(CpuId(cpu))?;
    let endpoint = Endpoint::listen(address, 1)?.remove(0);
    endpoint.set_receive_timeout(Duration::from_millis(100))?;
    let mut batch = ServerBatch::new(1500, 1500);
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&ended))?;
    let mut sent = 0;
    while !ended.load(Ordering::Relaxed) {
        let turn = batch.turn(&endpoint, Wait::ForFirst, |query, _, out| {
            let len = query.bytes.len();
            out[..len].copy_from_slice(query.bytes);
            if let Some(flags) = out.get_mut(2) {
                *flags |= 0x80;
            }
            len
        })?;
        sent += turn.sent as u64;
    }
    println!("{sent}");
    Ok(())
}

/// Sends a query every millisecond until a reply contains an answer, then prints `answered`. Each query has a different
/// name, because a server may cache failures.
pub(crate) fn first_answer(server: SocketAddr, source_port: u16) -> Result<()> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, source_port))?;
    socket.set_nonblocking(true)?;
    let mut query = QueryTemplate::aaaa(&Domain::dns64perf()).bytes().to_vec();
    let mut reply = [0; 1500];
    for number in 0..FIRST_ANSWER_QUERIES {
        QueryTemplate::patch(&mut query, number as u16, Ipv4Addr::from(FIRST_ANSWER_NAME + number));
        // The server does not listen yet, or is not reachable.
        let _ = socket.send_to(&query, server);
        thread::sleep(Duration::from_millis(1));
        while let Ok(length) = socket.recv(&mut reply) {
            if Message::new(&reply[..length]).is_some_and(|reply| reply.ancount() > 0) {
                println!("answered");
                return Ok(());
            }
        }
    }
    bail!("{server} does not answer")
}

/// Method by which a sender that calls `send` for each query determines the time of the next query, in nanoseconds
/// after the start.
///
/// Both methods are those of dns64perf++, as described by G. Lencse and A. Pivoda in "Checking and Increasing the
/// Accuracy of the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018, DOI 10.11601/ijates.v7i1.255).
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Timing {
    /// Equation 1: the remaining time is divided by the number of remaining queries. The delay of a query is
    /// compensated at the end.
    Original,
    /// Equation 2: query i is due at t₁ + i·T, regardless of delays of earlier queries.
    Corrected,
}

impl Timing {
    /// Returns the waiting time before query `next` of `count`. The previous query was started at `began`, and had been
    /// sent at `now`.
    fn wait(self, next: u64, count: u64, rate: u64, began: u64, now: u64) -> u64 {
        let due = |i: u64| (u128::from(i) * 1_000_000_000 / u128::from(rate)) as u64;
        match self {
            Timing::Original => {
                let each = due(count).saturating_sub(began) / (count - (next - 1));
                each.saturating_sub(now - began)
            }
            Timing::Corrected => due(next).saturating_sub(now),
        }
    }
}

/// Configuration of a dns64perf++-style sender.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Classic {
    /// The server
    server: SocketAddr,
    /// Queries per second
    rate: u64,
    /// Duration in seconds
    seconds: u64,
    /// Timing method
    #[arg(long, value_enum, default_value_t = Timing::Corrected)]
    timing: Timing,
    /// Index of the first name, counted from 10.0.0.0
    #[arg(long, default_value_t = 0)]
    first_name: u64,
    /// Number of names, which are used in a cycle
    #[arg(long, default_value_t = 1 << 16)]
    names: u64,
    /// Timeout of a query in milliseconds
    #[arg(long, default_value_t = 250)]
    timeout_ms: u64,
    /// CPU of the sender
    #[arg(long)]
    cpu: Option<usize>,
    /// File for the send times, one line for each query, in nanoseconds after the start
    #[arg(long)]
    times: Option<PathBuf>,
}

/// Result of a dns64perf++-style sender.
pub(crate) struct Sent {
    /// Share of the queries that were answered in time.
    pub(crate) answered: f64,
    /// Send time of each query, in nanoseconds after the start.
    pub(crate) times: Vec<u64>,
}

impl Classic {
    /// Sends the queries, prints the result, and writes the send times if requested.
    pub(crate) fn run(&self) -> Result<()> {
        let sent = self.send()?;
        if let Some(path) = &self.times {
            let mut out = BufWriter::new(File::create(path)?);
            for time in &sent.times {
                writeln!(out, "{time}")?;
            }
            out.flush()?;
        }
        println!("{}", sent.answered);
        Ok(())
    }

    /// Sends the queries like dns64perf++: one `send` per query from a single port, busy waiting, one receiver, and
    /// default buffers. A query counts as answered if NOERROR and a record arrive within the timeout.
    fn send(&self) -> Result<Sent> {
        let any = if self.server.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.server)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let total = self.rate * self.seconds;
        let sent_at: Vec<AtomicU64> = (0..1 << 16).map(|_| AtomicU64::new(0)).collect();
        let over = AtomicBool::new(false);
        let mut times = Vec::with_capacity(total as usize);
        let start = Instant::now();
        let valid = thread::scope(|scope| -> Result<u64> {
            let receiver = scope.spawn(|| self.receive(&socket, start, &sent_at, &over));
            if let Some(cpu) = self.cpu {
                pin_to(CpuId(cpu))?;
            }
            let begin = elapsed(start) + 20_000_000;
            spin(start, 20_000_000);
            let mut query = template();
            for i in 0..total {
                let began = elapsed(start);
                write_name(&mut query, i, self.first_name + i % self.names);
                sent_at[(i & 0xffff) as usize].store(elapsed(start), Ordering::Relaxed);
                let _ = socket.send(&query);
                let left = elapsed(start);
                times.push(left.saturating_sub(begin));
                let since = |moment: u64| moment.saturating_sub(begin);
                // The wait is computed first, and the clock is read again when the wait starts, as in dns64perf++'s
                // timer.
                if i + 1 < total {
                    spin(
                        start,
                        self.timing.wait(
                            i + 1,
                            total,
                            self.rate,
                            since(began),
                            since(elapsed(start)),
                        ),
                    );
                }
            }
            thread::sleep(Duration::from_millis(self.timeout_ms + 50));
            over.store(true, Ordering::Relaxed);
            Ok(receiver.join().unwrap_or(0))
        })?;
        Ok(Sent { answered: valid as f64 / total as f64, times })
    }

    /// Counts the answers that arrive in time.
    fn receive(
        &self,
        socket: &UdpSocket,
        start: Instant,
        sent_at: &[AtomicU64],
        over: &AtomicBool,
    ) -> u64 {
        let timeout = self.timeout_ms * 1_000_000;
        let mut valid = 0;
        let mut reply = [0; 512];
        while !over.load(Ordering::Relaxed) {
            let Ok(n) = socket.recv(&mut reply) else { continue };
            let id = usize::from(u16::from_be_bytes([reply[0], reply[1]]));
            let rtt = elapsed(start).saturating_sub(sent_at[id].load(Ordering::Relaxed));
            valid += u64::from(n > 12 && reply[3] & 15 == 0 && reply[7] > 0 && rtt < timeout);
        }
        valid
    }
}

fn elapsed(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Busy-waits for `wait` nanoseconds from now.
fn spin(start: Instant, wait: u64) {
    let from = elapsed(start);
    while elapsed(start) - from < wait {
        std::hint::spin_loop();
    }
}

/// Returns an AAAA query for a name of dns64perf.test.
fn template() -> Vec<u8> {
    b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x0f010-000-000-000\x09dns64perf\x04test\0\0\x1c\0\x01".to_vec()
}

fn write_name(query: &mut [u8], i: u64, name: u64) {
    query[..2].copy_from_slice(&(i as u16).to_be_bytes());
    let label = format!("010-{:03}-{:03}-{:03}", name >> 16 & 255, name >> 8 & 255, name & 255);
    query[13..28].copy_from_slice(label.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the send times for the case that each query takes `cost` ns to prepare and send, and that each wait is
    /// `over` ns too long.
    fn simulate(timing: Timing, rate: u64, count: u64, cost: u64, over: u64) -> Vec<u64> {
        let (mut now, mut times) = (0, Vec::new());
        for i in 0..count {
            let began = now;
            now += cost;
            times.push(now);
            if i + 1 < count {
                now += timing.wait(i + 1, count, rate, began, now) + over;
            }
        }
        times
    }

    fn per_window(times: &[u64]) -> Vec<usize> {
        let mut windows = vec![0; 10];
        for time in times {
            let window = (time / 100_000_000).min(9);
            windows[window as usize] += 1;
        }
        windows
    }

    #[test]
    fn original_timing_lags_and_catches_up_at_the_end() {
        // Table I: if each query takes 90 ns too long at 250 000 queries/s, 24 450 queries instead of 25 000 are sent
        // in 100 ms.
        let windows = per_window(&simulate(Timing::Original, 250_000, 250_000, 1_000, 90));
        assert!(windows[0].abs_diff(24_450) < 60, "{windows:?}");
        assert!(windows[9] > 25_500, "{windows:?}");
        assert!(windows.is_sorted() && windows[5] < 25_000, "{windows:?}");
        assert_eq!(windows.iter().sum::<usize>(), 250_000);
    }

    #[test]
    fn the_corrected_timing_keeps_every_window() {
        let windows = per_window(&simulate(Timing::Corrected, 250_000, 250_000, 1_000, 90));
        assert!(windows.iter().all(|n| n.abs_diff(25_000) <= 1), "{windows:?}");
    }

    #[test]
    fn names_follow_each_other_and_times_are_kept() {
        let mut query = template();
        write_name(&mut query, 0x1_0203, 0x0a0b0c);
        assert_eq!((&query[..2], &query[13..28]), (&[2, 3][..], &b"010-010-011-012"[..]));
        // There are no answers, because neither the receiver nor the send times need any.
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let classic = Classic {
            server: silent.local_addr().unwrap(),
            rate: 1_000,
            seconds: 1,
            timing: Timing::Corrected,
            first_name: 0,
            names: 10,
            timeout_ms: 1,
            cpu: None,
            times: None,
        };
        let sent = classic.send().unwrap();
        assert_eq!((sent.times.len(), sent.answered), (1_000, 0.0));
        assert!(sent.times.is_sorted());
    }
}
