//! Closed loop: a fixed number of queries in flight; each answer lets the next query go (dnsperf's way, and with one query
//! per thread dns64perf2's, seed 002).
//!
//! ```text
//!   free ids ─► fill: next name, query ─► SendQueue ─► server
//!      ▲                                                 │
//!      └── judge ◄── by port and id ◄── ReceiveBatch ◄───┘        and from the oldest: given up after the timeout
//! ```
//!
//! It finds the rate at which a server answers when it is never idle, and never asked more than it can hold. It is not the
//! rate of RFC 8219, which wants every query of a constant rate answered.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use method::records::{Counts, Outcome};
use method::units::{CpuId, Nanos};
use net::affinity::pin_to;
use net::batch::{BATCH, OFFLOAD_LEN, ReceiveBatch, Wait};
use net::clock;
use net::poller::Poller;
use net::queue::SendQueue;
use net::socket::Endpoint;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use wire::name::{Domain, NameRange};
use wire::template::QueryTemplate;
use wire::view::Message;

use crate::measurer::expect::{Expectation, answers_at};
use crate::measurer::result::Rtt;

/// Queries in flight per port at the most: its ids, less room for late replies to be told from new ones.
const MOST_PER_PORT: usize = 32_768;

/// A closed loop: what to ask, and how much at once.
#[derive(Clone, Debug)]
pub struct ClosedLoopPlan {
    /// Where the queries go.
    pub server: SocketAddr,
    /// Queries in flight, over all threads.
    pub outstanding: usize,
    /// Threads, each with its share of the ports and names.
    pub threads: usize,
    /// UDP source ports, over all threads.
    pub source_ports: usize,
    /// CPUs of the threads, round robin; none: the kernel decides.
    pub cpus: Vec<CpuId>,
    /// Zone of the names.
    pub domain: Domain,
    /// Block of names.
    pub names: NameRange,
    /// Position in that block of the first name.
    pub first_name: u64,
    /// Names to ask for, each thread its share of them.
    pub count: u64,
    /// How long to go round and round; none: once through the names.
    pub duration: Option<Nanos>,
    /// A query without an answer by then is given up.
    pub timeout: Nanos,
    /// What the answers must hold.
    pub expectation: Expectation,
    /// Whether queries leave and answers arrive several at a time (`UDP_SEGMENT`, `UDP_GRO`), as behind a NIC that does so.
    pub offload: bool,
}

/// Why a closed loop cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClosedLoopError {
    /// Numbers that do not fit each other.
    #[error(
        "--outstanding {outstanding}, --threads {threads}, --source-ports {ports}: every thread needs a port, every port a \
         query, and a port has {MOST_PER_PORT} at the most"
    )]
    Shares {
        /// As given.
        outstanding: usize,
        /// As given.
        threads: usize,
        /// As given.
        ports: usize,
    },
    /// Too few names.
    #[error("--names {names} from --first-name {first} on has fewer than --count {count} names")]
    Names {
        /// As given.
        names: NameRange,
        /// As given.
        first: u64,
        /// As given.
        count: u64,
    },
    /// No socket towards the server, or it failed.
    #[error("cannot ask {server}: {source}")]
    Socket {
        /// The server.
        server: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// What a closed loop found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClosedLoopResult {
    /// The server that was asked.
    pub server: String,
    /// Queries in flight.
    pub outstanding: usize,
    /// Length in seconds, from the first query to the last answer.
    pub seconds: f64,
    /// What became of the queries.
    #[serde(flatten)]
    pub counts: Counts,
    /// Valid answers per second.
    pub qps: f64,
    /// Round-trip times in microseconds, by the client's own reading of the answers; absent if there was no valid answer.
    pub rtt_us: Option<Rtt>,
}

impl ClosedLoopPlan {
    fn check(&self) -> Result<(), ClosedLoopError> {
        let ClosedLoopPlan { outstanding, threads, source_ports: ports, names, first_name: first, count, .. } = *self;
        if threads == 0 || ports < threads || outstanding < ports || outstanding.div_ceil(ports) > MOST_PER_PORT {
            return Err(ClosedLoopError::Shares { outstanding, threads, ports });
        }
        if count < threads as u64 || first.saturating_add(count) > names.count() {
            return Err(ClosedLoopError::Names { names, first, count });
        }
        Ok(())
    }
}

/// The `i`-th share of `total` things dealt out to `of`.
fn share(total: usize, i: usize, of: usize) -> usize {
    total / of + usize::from(i < total % of)
}

/// Runs a closed loop to its end.
///
/// # Errors
/// If the plan's numbers do not fit, or there is no socket towards the server. What the server does is part of the result.
pub fn run(plan: &ClosedLoopPlan) -> Result<ClosedLoopResult, ClosedLoopError> {
    plan.check()?;
    let failed = |source| ClosedLoopError::Socket { server: plan.server, source };
    let mut lanes = Vec::new();
    for thread in 0..plan.threads {
        lanes.push(Lane::new(plan, thread).map_err(failed)?);
    }
    let start = clock::now();
    let ended: Vec<io::Result<Lane<'_>>> = thread::scope(|scope| {
        let running: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || lane.run(start))).collect();
        running.into_iter().map(|thread| thread.join().expect("a lane does not panic")).collect()
    });
    let mut counts = Counts::default();
    let mut rtt = histogram();
    let mut last = start;
    for lane in ended {
        let lane = lane.map_err(failed)?;
        counts.merge(&lane.counts);
        // What the kernel refused was waited for like the rest, and is no query that the server lost.
        counts.sent -= lane.counts.refused;
        counts.lost -= lane.counts.refused;
        rtt.add(&lane.rtt).expect("equal bounds");
        last = last.max(lane.last_answer);
    }
    let seconds = last.since(start).as_secs_f64();
    Ok(ClosedLoopResult {
        server: plan.server.to_string(),
        outstanding: plan.outstanding,
        seconds,
        qps: if seconds > 0.0 { counts.valid as f64 / seconds } else { 0.0 },
        rtt_us: Rtt::of(&rtt),
        counts,
    })
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100 * Nanos::SECOND.0, 3).expect("constant bounds")
}

/// A query in flight.
#[derive(Clone, Copy)]
struct Flight {
    name: Ipv4Addr,
    sent: Nanos,
}

/// A source port and its queries.
struct Port {
    endpoint: Endpoint,
    queue: SendQueue,
    /// By id.
    flights: Box<[Option<Flight>]>,
    /// Ids that may be used next, the one that rested longest first.
    free: VecDeque<u16>,
    /// Ids in the order of their queries, those answered since included.
    order: VecDeque<(u16, Nanos)>,
    in_flight: usize,
    most: usize,
}

impl Port {
    fn new(plan: &ClosedLoopPlan, most: usize) -> io::Result<Port> {
        let endpoint = Endpoint::connect(plan.server)?;
        if plan.offload {
            endpoint.use_receive_offload();
        }
        // Ids at random, and as few as let each rest a while: a small table stays in the processor's cache.
        let mut ids: Vec<u16> = (0..=u16::MAX).collect();
        ids.shuffle(&mut rand::rng());
        ids.truncate((most * 4).next_power_of_two().clamp(256, 65_536));
        let queue = if plan.offload { SendQueue::new() } else { SendQueue::without_offload() };
        Ok(Port {
            endpoint,
            queue,
            flights: vec![None; 65_536].into(),
            free: ids.into(),
            order: VecDeque::with_capacity(most * 4),
            in_flight: 0,
            most,
        })
    }
}

/// What one thread does.
struct Lane<'a> {
    plan: &'a ClosedLoopPlan,
    template: QueryTemplate,
    cpu: Option<CpuId>,
    ports: Vec<Port>,
    /// Position of the lane's first name, how many it has, and how many it has asked for.
    first: u64,
    count: u64,
    asked: u64,
    counts: Counts,
    rtt: Histogram<u64>,
    last_answer: Nanos,
}

impl<'a> Lane<'a> {
    fn new(plan: &'a ClosedLoopPlan, thread: usize) -> io::Result<Lane<'a>> {
        let ports = share(plan.source_ports, thread, plan.threads);
        let outstanding = share(plan.outstanding, thread, plan.threads).max(ports);
        let names = plan.count / plan.threads as u64;
        let first = names * thread as u64;
        let last_lane = thread + 1 == plan.threads;
        Ok(Lane {
            plan,
            template: QueryTemplate::aaaa(&plan.domain),
            cpu: plan.cpus.get(thread % plan.cpus.len().max(1)).copied(),
            ports: (0..ports).map(|i| Port::new(plan, share(outstanding, i, ports))).collect::<io::Result<_>>()?,
            first: plan.first_name + first,
            count: if last_lane { plan.count - first } else { names },
            asked: 0,
            counts: Counts::default(),
            rtt: histogram(),
            last_answer: Nanos(0),
        })
    }

    fn run(mut self, start: Nanos) -> io::Result<Lane<'a>> {
        if let Some(cpu) = self.cpu {
            pin_to(cpu)?;
        }
        let mut poller = Poller::new(self.ports.len())?;
        for (token, port) in self.ports.iter().enumerate() {
            poller.add(&port.endpoint, token)?;
        }
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        let end = self.plan.duration.map(|duration| start + duration);
        self.last_answer = start;
        loop {
            let now = clock::now();
            let more = end.map_or(self.asked < self.count, |end| now < end);
            for at in 0..self.ports.len() {
                self.give_up(at, now);
                if more {
                    self.fill(at, now, end.is_some());
                }
            }
            if !more && self.ports.iter().all(|port| port.in_flight == 0) {
                return Ok(self);
            }
            let ready: Vec<usize> = poller.wait(Duration::from_millis(10))?.collect();
            for at in ready {
                self.drain(at, &mut batch);
            }
        }
    }

    /// Lets as many queries go as the port has room for.
    fn fill(&mut self, at: usize, now: Nanos, round_and_round: bool) {
        let port = &mut self.ports[at];
        while port.in_flight < port.most && (round_and_round || self.asked < self.count) {
            let Some(id) = port.free.pop_front() else { break };
            let name = self.plan.names.address(self.first + self.asked % self.count);
            let bytes = self.template.bytes();
            port.queue.push(None, |out| {
                let at = out.len();
                out.extend_from_slice(bytes);
                QueryTemplate::patch(&mut out[at..], id, name);
            });
            port.flights[usize::from(id)] = Some(Flight { name, sent: now });
            port.order.push_back((id, now));
            port.in_flight += 1;
            self.asked += 1;
            self.counts.sent += 1;
            if port.queue.is_full() {
                self.counts.refused += port.queue.flush(&port.endpoint).refused as u64;
            }
        }
        self.counts.refused += port.queue.flush(&port.endpoint).refused as u64;
    }

    /// Gives up the queries that have waited for longer than the timeout.
    fn give_up(&mut self, at: usize, now: Nanos) {
        let port = &mut self.ports[at];
        while let Some(&(id, sent)) = port.order.front() {
            let flight = &mut port.flights[usize::from(id)];
            match flight {
                Some(open) if open.sent == sent => {
                    if now.since(sent) < self.plan.timeout {
                        return;
                    }
                    *flight = None;
                    port.free.push_back(id);
                    port.in_flight -= 1;
                    self.counts.add(Outcome::Lost);
                }
                _ => {}
            }
            port.order.pop_front();
        }
    }

    fn drain(&mut self, at: usize, batch: &mut ReceiveBatch) {
        for _ in 0..16 {
            // ICMP errors say that a query reached nobody; it is given up in its time.
            let Ok(received) = batch.receive(&self.ports[at].endpoint, Wait::Dont) else { continue };
            let now = clock::now();
            for datagram in batch.iter() {
                for reply in datagram.segments() {
                    if !self.reply(at, reply, now) {
                        self.counts.stray += 1;
                    }
                }
            }
            if received < BATCH {
                return;
            }
        }
    }

    /// Books an answer; false if it answers nothing that is in flight.
    fn reply(&mut self, at: usize, bytes: &[u8], now: Nanos) -> bool {
        let port = &mut self.ports[at];
        let Some(message) = Message::new(bytes).filter(Message::is_response) else { return false };
        let slot = &mut port.flights[usize::from(message.id())];
        let Some(flight) = *slot else { return false };
        let Some(answers_at) = answers_at(&message, bytes, &self.template, flight.name) else {
            return false;
        };
        *slot = None;
        port.free.push_back(message.id());
        port.in_flight -= 1;
        let outcome = match self.plan.expectation.judge(&message, answers_at, flight.name) {
            Ok(()) => Outcome::Valid,
            Err(wrong) => Outcome::Wrong(wrong),
        };
        if outcome == Outcome::Valid {
            self.rtt.saturating_record(now.since(flight.sent).0.max(1));
        }
        self.counts.add(outcome);
        self.last_answer = now;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay_line::Delay;
    use crate::reference_dut::{ReferenceConfig, start};
    use method::units::Share;

    fn plan(server: SocketAddr) -> ClosedLoopPlan {
        ClosedLoopPlan {
            server,
            outstanding: 30,
            threads: 2,
            source_ports: 3,
            cpus: Vec::new(),
            domain: Domain::dns64perf(),
            names: "10.0.0.0/8".parse().unwrap(),
            first_name: 0,
            count: 2_000,
            duration: None,
            timeout: Nanos::from_millis(300),
            expectation: Expectation {
                aaaa_share: Share::ZERO,
                check_own_aaaa: true,
                prefixes: vec!["64:ff9b::/96".parse().unwrap()],
            },
            offload: true,
        }
    }

    #[test]
    fn shares_add_up() {
        for (total, of) in [(10, 3), (7, 7), (200, 1), (5, 2)] {
            assert_eq!((0..of).map(|i| share(total, i, of)).sum::<usize>(), total);
        }
    }

    #[test]
    fn every_name_is_asked_for_once_and_has_its_outcome() {
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
            cpu: None,
        })
        .unwrap();
        for offload in [true, false] {
            let result = run(&ClosedLoopPlan { offload, ..plan(dut.address()) }).unwrap();
            let c = &result.counts;
            assert!(c.is_balanced(), "{c:?}");
            assert_eq!((c.sent, c.lost, c.wrong.address, c.valid), (2_000, 40, 100, 1_860), "{c:?}");
            assert!(result.qps > 0.0 && result.rtt_us.is_some());
        }
    }

    #[test]
    fn a_dead_server_ends_the_loop_in_its_time() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let result = run(&ClosedLoopPlan { count: 40, ..plan(nobody.local_addr().unwrap()) }).unwrap();
        assert_eq!((result.counts.sent, result.counts.lost, result.qps), (40, 40, 0.0));
    }

    #[test]
    fn shares_that_do_not_fit_are_refused() {
        let good = plan("127.0.0.1:53".parse().unwrap());
        for bad in [
            ClosedLoopPlan { threads: 0, ..good.clone() },
            ClosedLoopPlan { threads: 4, ..good.clone() },
            ClosedLoopPlan { outstanding: 2, ..good.clone() },
            ClosedLoopPlan { outstanding: 1_000_000, ..good.clone() },
            ClosedLoopPlan { names: "10.0.0.0/24".parse().unwrap(), ..good.clone() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        good.check().unwrap();
    }
}
