//! AuthDNS's counters of queries and replies. Each worker has separate counters, which can be read while AuthDNS runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use method::reason::ZoneFacts;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::answer::{Answered, Kind, QueryType};
use super::host_drops::HostDrops;
use super::times::Times;
use crate::xdp::XdpInterface;

const KINDS: usize = 8;
const TYPES: usize = 3;

/// Counts of one batch of queries, before they are added to the worker's counters.
#[derive(Default)]
pub(crate) struct BatchCounts {
    kinds: [u64; KINDS],
    types: [u64; TYPES],
    aaaa_present: u64,
    pub(crate) lost: u64,
}

impl BatchCounts {
    #[inline]
    pub(crate) fn add(&mut self, answered: &Answered) {
        let Answered { kind, qtype, .. } = *answered;
        self.kinds[kind as usize] += 1;
        if kind != Kind::Ignored {
            self.types[qtype as usize] += 1;
        }
        self.aaaa_present += u64::from(kind == Kind::Answer && qtype == QueryType::Aaaa);
    }
}

/// Processing times and intervals between repeated queries, recorded by one worker thread. Only that thread writes
/// them.
#[derive(Default)]
struct WorkerTimes {
    own: Times,
    repeats: Repeats,
}

/// Receive times of one batch of queries, and intervals between repeated queries. They are later added to the worker's
/// counters.
#[derive(Default)]
pub(crate) struct BatchTimes {
    /// Kernel receive times of the answered queries (wall clock).
    pub(crate) received: Vec<Nanos>,
    /// For each repeated query, its type and the time since the previous query for the same name and type.
    pub(crate) repeats: Vec<(QueryType, Nanos)>,
}

/// A worker's counters, written only by that worker.
#[derive(Default)]
pub(crate) struct WorkerCounters {
    kinds: [AtomicU64; KINDS],
    types: [AtomicU64; TYPES],
    aaaa_present: AtomicU64,
    lost: AtomicU64,
    send_refused: AtomicU64,
    pub(crate) socket_drops: AtomicU64,
    /// Datagrams received by the worker's socket; 0 for an AF_XDP worker.
    pub(crate) received: AtomicU64,
    times: Mutex<WorkerTimes>,
}

impl WorkerCounters {
    pub(crate) fn publish(&self, counts: &BatchCounts, send_refused: usize) {
        let pairs =
            self.kinds.iter().zip(&counts.kinds).chain(self.types.iter().zip(&counts.types));
        let others = [
            (&self.aaaa_present, &counts.aaaa_present),
            (&self.lost, &counts.lost),
            (&self.send_refused, &(send_refused as u64)),
        ];
        for (sum, &n) in pairs.chain(others) {
            if n > 0 {
                sum.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of datagrams that the worker's socket received or dropped.
    pub(crate) fn at_socket(&self) -> u64 {
        self.received.load(Ordering::Relaxed) + self.socket_drops.load(Ordering::Relaxed)
    }

    /// Adds the processing times of a batch of queries to the counters. All replies of the batch were sent at `sent`
    /// (wall clock). Empties the batch.
    pub(crate) fn publish_times(&self, batch: &mut BatchTimes, sent: Nanos) {
        if batch.received.is_empty() && batch.repeats.is_empty() {
            return;
        }
        // Readers of the counters also take this lock, but only for microseconds.
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        for received in batch.received.drain(..) {
            times.own.add(sent.since(received));
        }
        for (qtype, age) in batch.repeats.drain(..) {
            match qtype {
                QueryType::Aaaa => times.repeats.aaaa.add(age),
                _ => times.repeats.a.add(age),
            }
        }
    }
}

/// Counters of AuthDNS: totals over all its workers since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuthCounters {
    /// Random number drawn when AuthDNS started; for several servers, the sum of their numbers modulo 2³². If the
    /// number has changed, a server was restarted and its counters began at 0 again.
    #[serde(default)]
    pub start: u32,
    /// Number of AuthDNS servers that these counters include.
    #[serde(default = "one")]
    pub servers: u32,
    /// Zones that AuthDNS serves; each zone is listed once.
    #[serde(default)]
    pub zones: Vec<ZoneFacts>,
    /// Counts of the trials of other testers, derived from the connections to the status socket.
    #[serde(default)]
    pub other_trials: OtherTrials,
    /// Queries by type, including queries to which AuthDNS withheld the reply.
    pub queries: QueryCounters,
    /// Replies by kind.
    pub replies: ReplyCounters,
    /// Packets without a reply because they were not queries.
    pub ignored: u64,
    /// Replies that AuthDNS withheld to simulate packet loss (`--loss`).
    pub lost_on_purpose: u64,
    /// Replies that could not be sent because of an error.
    pub send_refused: u64,
    /// Queries that the kernel dropped because AuthDNS was too slow.
    pub socket_drops: u64,
    /// Packets lost in the network stack or an interface of AuthDNS's host, including packets of other programs.
    #[serde(default)]
    pub host_drops: HostDrops,
    /// AAAA queries for names that have an AAAA record.
    pub aaaa_present: u64,
    /// AuthDNS's processing time over UDP: from the kernel's receive timestamp of a query until its reply was handed to
    /// the kernel or queued for delayed sending.
    pub own_time: Times,
    /// For each repeated query, the time since the previous query for the same name and type.
    pub repeats: Repeats,
    /// Interface on which AuthDNS answers queries by AF_XDP, with its attach mode; absent if AF_XDP is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "past_stack")]
    pub xdp: Option<XdpInterface>,
}

/// Default value for the number of AuthDNS servers, used for counters from older versions of dns64bench, which do not
/// contain this number.
fn one() -> u32 {
    1
}

/// Counts of the trials of all testers except the one that reads the counters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct OtherTrials {
    /// Number of trials that are running.
    pub running: u64,
    /// Number of trials that have begun since the start of AuthDNS.
    pub begun: u64,
}

/// Time between a repeated query and the previous query for the same name and type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Repeats {
    /// For each repeated A query, the time since the previous A query for the same name, in nanoseconds.
    pub a: Times,
    /// For each repeated AAAA query, the time since the previous AAAA query for the same name, in nanoseconds.
    pub aaaa: Times,
}

/// Queries received by AuthDNS, by type.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct QueryCounters {
    /// Queries for A records.
    pub a: u64,
    /// Queries for AAAA records.
    pub aaaa: u64,
    /// Queries of any other type, and those with an unparsable question.
    pub other: u64,
}

impl QueryCounters {
    /// Returns the sum over all types.
    pub fn total(&self) -> u64 {
        self.a + self.aaaa + self.other
    }
}

/// Replies by kind, including those that AuthDNS withheld to simulate packet loss.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ReplyCounters {
    /// NOERROR with a record.
    pub noerror: u64,
    /// NOERROR without a record.
    pub nodata: u64,
    /// NXDOMAIN: names that are below AuthDNS's domain but do not exist.
    pub nxdomain: u64,
    /// REFUSED: names outside AuthDNS's domain, and classes other than IN.
    pub refused: u64,
    /// FORMERR: queries that could not be parsed.
    pub formerr: u64,
    /// NOTIMP: messages with an opcode other than QUERY.
    pub notimp: u64,
    /// BADVERS: an EDNS version above 0 (RFC 6891 §6.1.3).
    pub badvers: u64,
}

impl AuthCounters {
    /// Adds the counters of one more AuthDNS.
    pub fn merge(&mut self, other: &AuthCounters) {
        let AuthCounters { queries, replies, own_time, repeats, .. } = self;
        for (sum, more) in [
            (&mut queries.a, other.queries.a),
            (&mut queries.aaaa, other.queries.aaaa),
            (&mut queries.other, other.queries.other),
            (&mut replies.noerror, other.replies.noerror),
            (&mut replies.nodata, other.replies.nodata),
            (&mut replies.nxdomain, other.replies.nxdomain),
            (&mut replies.refused, other.replies.refused),
            (&mut replies.formerr, other.replies.formerr),
            (&mut replies.notimp, other.replies.notimp),
            (&mut replies.badvers, other.replies.badvers),
            (&mut self.ignored, other.ignored),
            (&mut self.lost_on_purpose, other.lost_on_purpose),
            (&mut self.send_refused, other.send_refused),
            (&mut self.socket_drops, other.socket_drops),
            (&mut self.aaaa_present, other.aaaa_present),
        ] {
            *sum += more;
        }
        self.start = self.start.wrapping_add(other.start);
        self.servers += other.servers;
        let new = other.zones.iter().filter(|zone| !self.zones.contains(zone));
        self.zones.extend(new.cloned().collect::<Vec<_>>());
        self.other_trials.running += other.other_trials.running;
        self.other_trials.begun += other.other_trials.begun;
        self.host_drops.merge(&other.host_drops);
        own_time.merge(&other.own_time);
        repeats.a.merge(&other.repeats.a);
        repeats.aaaa.merge(&other.repeats.aaaa);
    }

    /// Returns the sums of the counters of these workers. The packets lost on the host are not included.
    pub(crate) fn sum(workers: &[WorkerCounters]) -> AuthCounters {
        let sum = |of: fn(&WorkerCounters) -> &AtomicU64| {
            workers.iter().map(|w| of(w).load(Ordering::Relaxed)).sum()
        };
        let (mut own_time, mut repeats) = (Times::default(), Repeats::default());
        for worker in workers {
            let times = worker.times.lock().unwrap_or_else(PoisonError::into_inner);
            own_time.merge(&times.own);
            repeats.a.merge(&times.repeats.a);
            repeats.aaaa.merge(&times.repeats.aaaa);
        }
        AuthCounters {
            start: 0,
            servers: 1,
            zones: Vec::new(),
            other_trials: OtherTrials::default(),
            queries: QueryCounters {
                a: sum(|w| &w.types[QueryType::A as usize]),
                aaaa: sum(|w| &w.types[QueryType::Aaaa as usize]),
                other: sum(|w| &w.types[QueryType::Other as usize]),
            },
            replies: ReplyCounters {
                noerror: sum(|w| &w.kinds[Kind::Answer as usize]),
                nodata: sum(|w| &w.kinds[Kind::NoData as usize]),
                nxdomain: sum(|w| &w.kinds[Kind::NxDomain as usize]),
                refused: sum(|w| &w.kinds[Kind::Refused as usize]),
                formerr: sum(|w| &w.kinds[Kind::FormErr as usize]),
                notimp: sum(|w| &w.kinds[Kind::NotImp as usize]),
                badvers: sum(|w| &w.kinds[Kind::BadVers as usize]),
            },
            ignored: sum(|w| &w.kinds[Kind::Ignored as usize]),
            lost_on_purpose: sum(|w| &w.lost),
            send_refused: sum(|w| &w.send_refused),
            socket_drops: sum(|w| &w.socket_drops),
            host_drops: HostDrops::default(),
            aaaa_present: sum(|w| &w.aaaa_present),
            own_time,
            repeats,
            xdp: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Share;

    use super::*;

    /// Returns a worker's counters, each a different number, starting with `first`.
    fn worker(first: u64) -> WorkerCounters {
        let worker = WorkerCounters::default();
        let WorkerCounters { aaaa_present, lost, send_refused, socket_drops, .. } = &worker;
        let others = [aaaa_present, lost, send_refused, socket_drops];
        let sums = worker.kinds.iter().chain(&worker.types).chain(others);
        sums.zip(first..).for_each(|(sum, number)| sum.store(number, Ordering::Relaxed));
        let repeats = vec![(QueryType::A, Nanos(5)), (QueryType::Aaaa, Nanos(first))];
        let mut batch = BatchTimes { received: vec![Nanos(1)], repeats };
        worker.publish_times(&mut batch, Nanos(first));
        worker
    }

    #[test]
    fn counters_of_several_servers_are_added() {
        let mut merged = AuthCounters::sum(&[worker(100)]);
        merged.merge(&AuthCounters::sum(&[worker(1_000)]));
        let both = AuthCounters::sum(&[worker(100), worker(1_000)]);
        assert_eq!(merged, AuthCounters { servers: 2, ..both });
        assert_eq!((merged.queries.aaaa, merged.own_time.count()), (109 + 1_009, 2));
    }

    #[test]
    fn zones_of_several_servers_count_once() {
        let zone = |domain: &str| ZoneFacts { domain: domain.into(), aaaa_share: Share::ZERO };
        let serving = |domain: &str, running| AuthCounters {
            zones: vec![zone(domain)],
            other_trials: OtherTrials { running, begun: 3 },
            ..AuthCounters::sum(&[])
        };
        let mut merged = serving("a.test", 1);
        merged.merge(&serving("a.test", 0));
        merged.merge(&serving("b.test", 1));
        assert_eq!((merged.servers, merged.zones), (3, vec![zone("a.test"), zone("b.test")]));
        assert_eq!(merged.other_trials, OtherTrials { running: 2, begun: 9 });
    }

    #[test]
    fn counters_of_older_versions_are_of_one_server() {
        let mut json = serde_json::to_value(AuthCounters::sum(&[])).unwrap();
        let keys = json.as_object_mut().unwrap();
        for new in ["servers", "zones", "other_trials"] {
            keys.remove(new).unwrap();
        }
        let read: AuthCounters = serde_json::from_value(json).unwrap();
        assert_eq!(read, AuthCounters::sum(&[]));
    }
}
