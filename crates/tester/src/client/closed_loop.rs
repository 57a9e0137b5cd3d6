//! Closed loop: the number of queries in flight is fixed, so each response triggers the next query. This is the method
//! of dnsperf and, with one query per thread, of dns64perf2 (G. Lencse, "Performance Analysis of MTD64, our Tiny
//! Multi-Threaded DNS64 Server Implementation: Proof of Concept").
//!
//! The closed loop measures the rate of a server that is never idle and never receives more queries than its queue can
//! store.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;

use method::records::Counts;
use net::clock;
use serde::{Deserialize, Serialize};
use units::{CpuId, Nanos, Qps};

use super::client_thread::{ClientThread, LoadModel, share};
use super::progress::Progress;
use super::tally::Tally;
use super::{ClientSettings, Connections, SocketError};
use crate::measurer::result::Rtt;

/// Maximum number of queries in flight per port. It is half the number of ids, so that an id is not reused before a
/// late reply has arrived.
const MOST_PER_PORT: usize = 32_768;

/// Plan of a closed loop.
#[derive(Clone, Debug)]
pub struct ClosedLoopPlan {
    /// Source of the queries, and settings of the client.
    pub settings: ClientSettings,
    /// Total number of queries in flight across all threads.
    pub outstanding: usize,
    /// Number of threads. The ports and queries are divided among them.
    pub threads: usize,
    /// Total number of source ports across all threads; over TCP, the number of connections.
    pub source_ports: usize,
    /// CPUs of the threads, used round robin; if empty, the kernel selects the CPUs.
    pub cpus: Vec<CpuId>,
    /// Duration of the closed loop, in which the list of queries is repeated. If the duration is `None`, each query is
    /// sent once.
    pub duration: Option<Nanos>,
    /// Maximum queries per second across all threads; `None` means unlimited.
    pub most: Option<Qps>,
}

/// Reasons why a closed loop cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClosedLoopError {
    /// The numbers of queries, threads and ports are inconsistent.
    #[error(
        "--outstanding {outstanding}, --threads {threads}, --source-ports {ports}: every thread needs a port, every \
         port needs a query, and a port has at most {MOST_PER_PORT}"
    )]
    Shares {
        /// Total number of queries in flight across all threads (`--outstanding`).
        outstanding: usize,
        /// Number of threads (`--threads`).
        threads: usize,
        /// Total number of source ports across all threads (`--source-ports`).
        ports: usize,
    },
    /// There are fewer queries than threads.
    #[error("{count} queries for {threads} threads; there must be at least one per thread")]
    Questions {
        /// Number of queries.
        count: u64,
        /// Number of threads (`--threads`).
        threads: usize,
    },
    /// No socket towards the server could be opened, or it failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Result of a closed loop.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClosedLoopResult {
    /// The queried server.
    pub server: String,
    /// Total number of queries in flight at any time, across all threads.
    pub outstanding: usize,
    /// Length of the closed loop in seconds: from the first query to the last response, or to the last query if that
    /// was later. The length is at least the planned duration. After an interruption, the length is the time from the
    /// first query to the interruption.
    #[serde(rename = "duration_s", alias = "seconds")]
    pub seconds: f64,
    /// Seconds from the first query until all queries were answered or given up.
    #[serde(rename = "elapsed_s", alias = "elapsed")]
    pub elapsed: f64,
    /// True if the user interrupted the closed loop.
    pub interrupted: bool,
    /// Queries in flight when the user interrupted the closed loop. They have no outcome and are not part of `sent`.
    #[serde(default)]
    pub interrupted_queries: u64,
    /// Responses dropped on this host because its socket buffers were full. They count as lost, although the server did
    /// not lose them.
    pub client_drops: u64,
    /// Outcomes of the queries.
    #[serde(flatten)]
    pub counts: Counts,
    /// Valid responses per second.
    pub qps: f64,
    /// Received responses by RCODE number.
    #[serde(with = "method::records::by_number")]
    #[schemars(with = "std::collections::BTreeMap<String, u64>")]
    pub rcodes: BTreeMap<u8, u64>,
    /// Truncated responses, including those retried over TCP.
    pub truncated: u64,
    /// Queries retried over TCP.
    pub retried: u64,
    /// Round-trip times of the valid responses in microseconds, from kernel timestamps if available; absent if no
    /// response was valid.
    pub rtt_us: Option<Rtt>,
    /// Counts of TCP connections; all are 0 over UDP.
    pub connections: Connections,
    /// Connection setup times in microseconds; absent if no connection was established.
    pub connecting_us: Option<Rtt>,
    /// Totals and histograms from which the other fields are computed.
    #[serde(skip)]
    pub tally: Option<Box<Tally>>,
    /// Start time (wall clock).
    #[serde(skip)]
    pub began: Nanos,
}

impl ClosedLoopPlan {
    /// Checks the numbers of queries, threads and ports.
    ///
    /// # Errors
    /// Returns an error if the numbers are inconsistent.
    pub fn check(&self) -> Result<(), ClosedLoopError> {
        let ClosedLoopPlan { outstanding, threads, source_ports: ports, .. } = *self;
        if threads == 0
            || ports < threads
            || outstanding < ports
            || outstanding.div_ceil(ports) > MOST_PER_PORT
        {
            return Err(ClosedLoopError::Shares { outstanding, threads, ports });
        }
        let count = self.settings.source.count();
        if count < threads as u64 {
            return Err(ClosedLoopError::Questions { count, threads });
        }
        Ok(())
    }
}

/// Runs a closed loop to its end.
///
/// # Errors
/// Returns an error if the plan's numbers are inconsistent, or if a socket towards the server fails. Missing or wrong
/// responses are not an error.
pub fn run(plan: &ClosedLoopPlan) -> Result<ClosedLoopResult, ClosedLoopError> {
    run_until(plan, &AtomicBool::new(false), &Progress::new(plan.threads))
}

/// Runs a closed loop to its end, or until `stop` is set. `progress` must have the plan's number of threads.
///
/// # Errors
/// Returns the same errors as [`run`].
pub fn run_until(
    plan: &ClosedLoopPlan,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<ClosedLoopResult, ClosedLoopError> {
    plan.check()?;
    let failed = |source| SocketError { server: plan.settings.server, source };
    let (mut client_threads, mut first_port) = (Vec::new(), 0);
    for thread in 0..plan.threads {
        let ports = share(plan.source_ports, thread, plan.threads);
        let room = share(plan.outstanding, thread, plan.threads).max(ports);
        let cursor = plan.settings.source.cursor(thread, plan.threads, plan.duration.is_some());
        let cpu = plan.cpus.get(thread % plan.cpus.len().max(1)).copied();
        client_threads.push(
            ClientThread::new(&plan.settings, cpu, first_port, ports, room, cursor)
                .map_err(failed)?,
        );
        first_port += ports;
    }
    let (start, began) = (clock::now(), clock::wall());
    let end = plan.duration.map(|duration| start + duration);
    let ended: Vec<io::Result<ClientThread<'_>>> = thread::scope(|scope| {
        let running: Vec<_> = client_threads
            .into_iter()
            .enumerate()
            .map(|(thread, client_thread)| {
                let most = plan
                    .most
                    .map(|Qps(most)| Qps(share(most as usize, thread, plan.threads).max(1) as u64));
                let progress = progress.of(thread);
                let mut load_model = LoadModel::Closed { end, most, stop, progress };
                scope.spawn(move || client_thread.run(start, &mut load_model))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a client thread does not panic"))
            .collect()
    });
    let mut tally = Tally::new(plan.settings.interval);
    tally.last_answer = start;
    for client_thread in ended {
        tally.merge(&client_thread.map_err(failed)?.tally);
    }
    let elapsed = clock::now().since(start);
    Ok(result(plan, tally, start, began, elapsed))
}

fn result(
    plan: &ClosedLoopPlan,
    mut tally: Tally,
    start: Nanos,
    began: Nanos,
    elapsed: Nanos,
) -> ClosedLoopResult {
    tally.settle_refused();
    // The time is at least the planned duration, even if the server stopped answering.
    let wanted = plan.duration.map_or(start, |duration| start + duration);
    let end = match tally.interrupted {
        Some(_) => start + elapsed,
        None => tally.last_answer.max(tally.last_sent).max(wanted),
    };
    let seconds = end.since(start).as_secs_f64();
    ClosedLoopResult {
        server: plan.settings.server.to_string(),
        outstanding: plan.outstanding,
        seconds,
        elapsed: elapsed.as_secs_f64(),
        interrupted: tally.interrupted.is_some(),
        interrupted_queries: tally.interrupted.unwrap_or(0),
        client_drops: tally.client_drops,
        qps: if seconds > 0.0 { tally.counts.valid as f64 / seconds } else { 0.0 },
        rcodes: (0..).zip(tally.rcodes).filter(|(_, n)| *n > 0).collect(),
        truncated: tally.truncated,
        retried: tally.retried,
        rtt_us: Rtt::of(&tally.rtt),
        connections: tally.connections.clone(),
        connecting_us: Rtt::of(&tally.connecting),
        counts: tally.counts.clone(),
        tally: Some(Box::new(tally)),
        began,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Additional, Check, Names, Source, Transport};
    use crate::delay_line::Delay;
    use crate::measurer::expect::Expectation;
    use crate::reference_dut::{ReferenceConfig, start};
    use std::net::SocketAddr;
    use std::sync::atomic::Ordering;
    use units::Share;
    use wire::name::Domain;

    fn names(count: u64) -> Source {
        Source::Names(
            Names::new(&Domain::dns64perf(), "10.0.0.0/8".parse().unwrap(), 0, count).unwrap(),
        )
    }

    fn plan(server: SocketAddr) -> ClosedLoopPlan {
        let check = Check::Address(Expectation {
            aaaa_share: Share::ZERO,
            check_own_aaaa: true,
            prefixes: vec!["64:ff9b::/96".parse().unwrap()],
        });
        let settings = ClientSettings {
            server,
            local: None,
            transport: Transport::Udp,
            source: names(2_000),
            additional: Additional::default(),
            check,
            // A stall of this host must not make replies late.
            timeout: Nanos(2 * Nanos::SECOND.0),
            offload: true,
            buffer: None,
            interval: None,
        };
        ClosedLoopPlan {
            settings,
            outstanding: 30,
            threads: 2,
            source_ports: 3,
            cpus: Vec::new(),
            duration: None,
            most: None,
        }
    }

    #[test]
    fn every_name_is_queried_once_and_has_an_outcome() {
        let dut = start(ReferenceConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            capacity: None,
            burst: Nanos::from_millis(20),
            domain: Domain::dns64perf(),
            aaaa_share: Share::ZERO,
            prefix: "64:ff9b::".parse().unwrap(),
            loss: Share::percent(2),
            late_share: Share::ZERO,
            late_by: Nanos(0),
            wrong_share: Share::percent(5),
            delay: Delay { min: Nanos(0), max: Nanos(0) },
            failing_trials: 0.0,
            seed: 1,
            cpu: None,
            xdp: None,
            asking: None,
        })
        .unwrap();
        for offload in [true, false] {
            let mut plan = plan(dut.address());
            plan.settings.offload = offload;
            let result = run(&plan).unwrap();
            let c = &result.counts;
            assert!(c.is_balanced(), "{c:?}");
            assert_eq!(
                (c.sent, c.lost, c.wrong.address, c.valid),
                (2_000, 40, 100, 1_860),
                "{c:?}"
            );
            assert!(result.qps > 0.0 && result.rtt_us.is_some());
        }
    }

    #[test]
    fn a_dead_server_ends_the_loop_in_its_time() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut plan = plan(silent.local_addr().unwrap());
        plan.settings.source = names(40);
        plan.settings.timeout = Nanos::from_millis(300);
        let result = run(&plan).unwrap();
        assert_eq!((result.counts.sent, result.counts.lost, result.qps), (40, 40, 0.0));
    }

    /// The server replies to 20 queries and then stops. The user interrupts the loop at the 40th query.
    #[test]
    fn an_interrupted_loop_ends_at_once_without_losses() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut plan = plan(server.local_addr().unwrap());
        (plan.settings.timeout, plan.outstanding) = (Nanos(600 * Nanos::SECOND.0), 20);
        let stop = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                let mut bytes = [0; 512];
                for number in 1..=40 {
                    let (len, peer) = server.recv_from(&mut bytes).unwrap();
                    (bytes[2], bytes[3]) = (0x80, 3);
                    if number <= 20 {
                        server.send_to(&bytes[..len], peer).unwrap();
                    }
                }
                stop.store(true, Ordering::Relaxed);
            });
            run_until(&plan, &stop, &Progress::new(plan.threads)).unwrap()
        });
        let c = &result.counts;
        assert!(result.interrupted && c.is_balanced(), "{c:?}");
        assert_eq!((c.sent, c.wrong.total(), c.lost, result.interrupted_queries), (20, 20, 0, 20));
        assert_eq!(result.seconds, result.elapsed, "the time until the interruption");
    }

    #[test]
    fn inconsistent_shares_are_rejected() {
        let good = plan("127.0.0.1:53".parse().unwrap());
        for bad in [
            ClosedLoopPlan { threads: 0, ..good.clone() },
            ClosedLoopPlan { threads: 4, ..good.clone() },
            ClosedLoopPlan { outstanding: 2, ..good.clone() },
            ClosedLoopPlan { outstanding: 1_000_000, ..good.clone() },
            ClosedLoopPlan {
                settings: ClientSettings { source: names(1), ..good.settings.clone() },
                ..good.clone()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        good.check().unwrap();
    }
}
