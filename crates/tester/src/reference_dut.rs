//! The reference DUT: a DNS64 server with a known capacity, loss rate, lateness and error rate, used to validate the
//! whole tester.
//!
//! The reference DUT needs no AuthDNS, because each queried name contains the IPv4 address of its reply. Upstream
//! queries to an AuthDNS can be enabled ([`crate::upstream_queries`]). Each query takes one token from a token bucket;
//! if no token is left, the query is dropped. The bucket is refilled according to the *kernel's* receive times of the
//! queries, so the scheduling of this program has no effect.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::affinity::pin_to;
use net::clock::ClockPair;
use net::socket::{Endpoint, ListenError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use units::{CpuId, Nanos, Qps, Share};
use wire::name::{Domain, parse_label};
use wire::template::HEADER_LEN;

use crate::authdns::AuthError;
use crate::authdns::answer::{Answered, AuthTransport, Zone};
use crate::delay_line::{Delay, DelayLine};
use crate::port::Port;
use crate::upstream_queries::{UpstreamQuerier, UpstreamQueryConfig};
use crate::xdp::{XdpConfig, XdpInterface};

/// Interval at which an idle worker checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Behaviour of the reference DUT.
///
/// For any 100 consecutive names, exactly the configured shares of the replies are lost, late and wrong. No reply has
/// two of these faults.
#[derive(Clone, Debug)]
pub struct ReferenceConfig {
    /// Address to serve over UDP.
    pub listen: SocketAddr,
    /// Capacity in queries per second. Queries beyond the capacity are dropped at once. If the capacity is `None`, all
    /// queries are answered.
    pub capacity: Option<Qps>,
    /// Maximum unused capacity that later queries may use, expressed as time at full capacity. At the beginning of each
    /// trial, this maximum is available on credit.
    pub burst: Nanos,
    /// Zone of the names that are answered.
    pub domain: Domain,
    /// Share of names with a native AAAA record.
    pub aaaa_share: Share,
    /// The /96 prefix of the synthesized addresses.
    pub prefix: Ipv6Addr,
    /// Share of queries without a reply.
    pub loss: Share,
    /// Share of queries with a reply delayed by `late_by`.
    pub late_share: Share,
    /// Delay of late replies.
    pub late_by: Nanos,
    /// Share of queries that get a wrong address.
    pub wrong_share: Share,
    /// Delay of all replies that are not late on purpose.
    pub delay: Delay,
    /// Probability, from 0 to 1, that a trial loses one query. The probability does not depend on the query rate. The
    /// lost query is the first query that arrives at least half a second after the trial began. A trial begins after a
    /// pause of [`TokenBucket::NEW_TRIAL`].
    pub failing_trials: f64,
    /// Seed of all random decisions (delays and failing trials).
    pub seed: u64,
    /// CPU on which the worker runs.
    pub cpu: Option<CpuId>,
    /// Interface on which queries are also answered by AF_XDP. The interface must have the address of `listen`, and
    /// only one queue, because each queue would have a separate capacity.
    pub xdp: Option<XdpConfig>,
    /// Upstream queries for the answered names; if `None`, no upstream queries are sent.
    pub asking: Option<UpstreamQueryConfig>,
}

/// Number of counters.
const COUNTERS: usize = 8;

/// Counters of the reference DUT. `received` = `answered` + `over_capacity` + `lost` + `ignored`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ReferenceCounters {
    /// Number of datagrams read.
    pub received: u64,
    /// Number of replies created, including late and wrong ones.
    pub answered: u64,
    /// Number of queries dropped because the token bucket was empty.
    pub over_capacity: u64,
    /// Number of replies withheld to simulate packet loss (`--loss`) and failing trials (`--failing-trials`).
    pub lost: u64,
    /// Number of packets that were not queries.
    pub ignored: u64,
    /// Number of queries dropped by the kernel because this program was too slow. If this number is not 0, the capacity
    /// was not exact.
    pub socket_drops: u64,
    /// Number of replies that the kernel or the AF_XDP ring (`--xdp`) did not accept at once. These replies are also
    /// counted in `answered`, although the tester misses them because of this program.
    pub refused: u64,
    /// Maximum time, in µs, from the receipt of a query by the kernel until this program reads the query; 0 for queries
    /// received by AF_XDP. A tester with a timeout below this time misses replies because of this program.
    pub longest_wait_us: u64,
}

/// A token bucket with an exact long-term rate.
///
/// If the client pauses within a trial, the bucket collects tokens for at most the time `burst`. The queries that
/// arrive together after the pause are thus answered. After a pause of [`TokenBucket::NEW_TRIAL`], the next query
/// begins a new trial. The bucket is then filled on credit, because the first queries of a trial may also arrive
/// together. The credit is paid back over the first half second. From then on, the number of answered queries is at
/// most the capacity multiplied by the time since the trial began. A trial of at least half a second therefore loses
/// queries if its rate is above the capacity.
#[derive(Clone, Debug)]
pub(crate) struct TokenBucket {
    /// Interval between two tokens, in units of 2⁻²⁰ ns. The rounding error is at most one query in several hours.
    cost: u64,
    /// Capacity of the bucket, expressed as the time needed to fill it. The credit at the beginning of a trial is equal
    /// to this capacity.
    burst: i64,
    last: Option<Nanos>,
    began: Nanos,
    /// Tokens in the bucket, expressed as the time needed to add them, in units of 2⁻²⁰ ns.
    level: i64,
    repaid: i64,
}

impl TokenBucket {
    /// Pause after which the next query begins a new trial.
    pub(crate) const NEW_TRIAL: Nanos = Nanos::from_millis(100);
    /// Time from the beginning of a trial until the tokens given on credit at this beginning are paid back. After this
    /// time, the credit no longer raises the rate of answered queries.
    pub(crate) const REPAYMENT: Nanos = Nanos::from_millis(500);

    const SCALE: u32 = 20;

    /// Creates a bucket that receives `capacity` tokens per second.
    pub(crate) fn new(capacity: Qps, burst: Nanos) -> TokenBucket {
        let cost = ((u128::from(Nanos::SECOND.0) << Self::SCALE) / u128::from(capacity.0)) as u64;
        TokenBucket {
            cost,
            // The burst covers at least one query, even if the capacity is very low.
            burst: ((burst.0 << Self::SCALE) as i64).max(cost as i64),
            last: None,
            began: Nanos(0),
            level: 0,
            repaid: 0,
        }
    }

    /// Returns true if a query that arrived at `now` gets a token. If `now` is before the previous arrival, the
    /// previous arrival time is used instead.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let passed = match self.last {
            Some(last) if now.since(last) < Self::NEW_TRIAL => now.since(last),
            _ => {
                (self.began, self.level, self.repaid) = (now, self.burst, 0);
                Nanos(0)
            }
        };
        self.last = Some(self.last.unwrap_or(now).max(now));
        self.level += (passed.0 << Self::SCALE) as i64;
        // Part of the credit that must be paid back by now. The token of the first query is not paid back.
        let lent = self.burst - self.cost as i64;
        let share = now.since(self.began).0.min(Self::REPAYMENT.0);
        let due = (i128::from(lent) * i128::from(share) / i128::from(Self::REPAYMENT.0)) as i64;
        self.level -= due - self.repaid;
        self.repaid = due;
        self.level = self.level.min(self.burst);
        let enough = self.level >= self.cost as i64;
        if enough {
            self.level -= self.cost as i64;
        }
        enough
    }
}

/// Random choice of the trials that lose a query.
#[derive(Clone, Debug)]
struct RandomFailures {
    /// Probability that a trial loses a query.
    chance: f64,
    last: Option<Nanos>,
    /// The first query that arrives at or after this moment is lost. `None` if the current trial loses no query, or no
    /// further query.
    due: Option<Nanos>,
}

impl RandomFailures {
    /// Time from the beginning of a trial to the lost query. Shorter exchanges, such as liveness probes, lose nothing.
    const AFTER: Nanos = Nanos::from_millis(500);

    fn new(chance: f64) -> RandomFailures {
        RandomFailures { chance, last: None, due: None }
    }

    /// Returns true if a failing trial loses the query that arrived at `now`.
    fn strike(&mut self, now: Nanos, rng: &mut StdRng) -> bool {
        if self.last.is_none_or(|last| now.since(last) >= TokenBucket::NEW_TRIAL) {
            self.due = rng.random_bool(self.chance).then_some(now + Self::AFTER);
        }
        self.last = Some(now);
        self.due.take_if(|due| *due <= now).is_some()
    }
}

/// Reasons why a reference DUT cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The address cannot be served, or AF_XDP does not work on the interface.
    #[error(transparent)]
    Serve(#[from] AuthError),
    /// The interface has several queues. This is not supported, because each queue would have a separate capacity.
    #[error(
        "{interface} has {queues} queues, and a reference DUT supports one: ethtool -L {interface} combined 1"
    )]
    Queues {
        /// The interface's name.
        interface: String,
        /// Number of receive queues.
        queues: usize,
    },
}

/// A running reference DUT. Dropping this value stops the server.
pub struct RunningReference {
    address: SocketAddr,
    counters: Arc<[AtomicU64; COUNTERS]>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    xdp: Option<XdpInterface>,
}

impl RunningReference {
    /// Returns the interface on which queries are also answered by AF_XDP; `None` if AF_XDP is not used.
    pub fn xdp(&self) -> Option<&XdpInterface> {
        self.xdp.as_ref()
    }

    /// Returns the served address with its actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the current values of the counters.
    pub fn counters(&self) -> ReferenceCounters {
        let [
            received,
            answered,
            over_capacity,
            lost,
            ignored,
            refused,
            socket_drops,
            longest_wait_us,
        ] = std::array::from_fn(|i| self.counters[i].load(Ordering::Relaxed));
        ReferenceCounters {
            received,
            answered,
            over_capacity,
            lost,
            ignored,
            socket_drops,
            refused,
            longest_wait_us,
        }
    }
}

impl Drop for RunningReference {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a reference DUT.
///
/// # Errors
/// Returns an error if the address cannot be served, or if AF_XDP does not work on the interface.
pub fn start(config: ReferenceConfig) -> Result<RunningReference, ReferenceError> {
    let address = config.listen;
    let at = |source| {
        ReferenceError::Serve(AuthError::Listen { address, source: ListenError::Udp(source) })
    };
    if address.ip().is_unspecified() {
        return Err(AuthError::WildcardDelay { address }.into());
    }
    let endpoint = Endpoint::listen(address, 1).map_err(at)?.remove(0);
    endpoint.use_kernel_timestamps().map_err(at)?;
    endpoint.set_receive_timeout(STOP_CHECK).map_err(at)?;
    let address = endpoint.local_address().map_err(at)?;
    let endpoint = Arc::new(endpoint);
    let mut ports = vec![Port::socket(Arc::clone(&endpoint))];
    let mut xdp = None;
    if let Some(wanted) = &config.xdp {
        let (served, servers) = XdpInterface::serve(wanted, &[address]).map_err(AuthError::Xdp)?;
        ports.extend(Port::rings(servers, &served));
        if served.queues > 1 {
            let XdpInterface { interface, queues, .. } = served;
            return Err(ReferenceError::Queues { interface, queues });
        }
        xdp = Some(served);
    }
    let counters: Arc<[AtomicU64; COUNTERS]> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let upstream_queries = config
        .asking
        .map(|asking| UpstreamQuerier::new(asking, &config.domain, config.aaaa_share))
        .transpose();
    let upstream_queries = upstream_queries.map_err(at)?;
    let worker = Worker::new(
        config,
        upstream_queries,
        (endpoint, ports),
        Arc::clone(&counters),
        Arc::clone(&stop),
    );
    let thread =
        thread::Builder::new().name("reference".into()).spawn(move || worker.run()).map_err(at)?;
    Ok(RunningReference { address, counters, stop, thread: Some(thread), xdp })
}

/// Treatment of a query, which depends on the queried name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    Right,
    Lost,
    Late,
    Wrong,
}

struct Worker {
    config: ReferenceConfig,
    zone: Zone,
    /// Socket for delayed replies.
    endpoint: Arc<Endpoint>,
    /// Ports on which queries arrive at the reference DUT.
    ports: Vec<Port>,
    counters: Arc<[AtomicU64; COUNTERS]>,
    stop: Arc<AtomicBool>,
    bucket: Option<TokenBucket>,
    random_failures: RandomFailures,
    upstream_queries: Option<UpstreamQuerier>,
    rng: StdRng,
}

impl Worker {
    fn new(
        config: ReferenceConfig,
        upstream_queries: Option<UpstreamQuerier>,
        (endpoint, ports): (Arc<Endpoint>, Vec<Port>),
        counters: Arc<[AtomicU64; COUNTERS]>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let zone = Zone::new(
            config.domain.clone(),
            config.aaaa_share,
            Duration::from_secs(1),
            Ipv4Addr::LOCALHOST,
        )
        .seen_through_dns64(config.prefix);
        let bucket = config.capacity.map(|capacity| TokenBucket::new(capacity, config.burst));
        let random_failures = RandomFailures::new(config.failing_trials);
        let rng = StdRng::seed_from_u64(config.seed);
        Worker {
            config,
            zone,
            endpoint,
            ports,
            counters,
            stop,
            bucket,
            random_failures,
            upstream_queries,
            rng,
        }
    }

    fn run(mut self) {
        if let Some(cpu) = self.config.cpu
            && let Err(error) = pin_to(cpu)
        {
            tracing::warn!("cannot pin the reference DUT to CPU {}: {error}", cpu.0);
        }
        let line = DelayLine::new(Arc::clone(&self.endpoint));
        let mut ports = std::mem::take(&mut self.ports);
        // The worker waits only for the last port, and only briefly if there are other ports.
        let last = ports.len() - 1;
        let patience = if last == 0 { STOP_CHECK } else { Duration::from_millis(1) };
        while !self.stop.load(Ordering::Relaxed) {
            for (number, port) in ports.iter_mut().enumerate() {
                let limit = if number == last { patience } else { Duration::ZERO };
                let counts = self.turn(port, limit, &line);
                self.publish(&counts);
            }
            let drops = ports.iter_mut().map(Port::drops).sum();
            self.counters[6].store(drops, Ordering::Relaxed);
        }
    }

    /// Answers the queries that arrive at a port.
    fn turn(&mut self, port: &mut Port, limit: Duration, line: &DelayLine) -> ReferenceCounters {
        let mut clocks = None;
        let mut counts = ReferenceCounters::default();
        let turn = port.turn(limit, |query, source, out| {
            // The clocks are sampled after the receive, so that no arrival seems to be in the future if the wall clock
            // is set. Such an arrival would leave all queries before that time without a token.
            let clocks = clocks.get_or_insert_with(ClockPair::sample);
            let arrived = clocks.arrival(query.received);
            let waited_us = clocks.monotonic().since(arrived).0 / 1_000;
            counts.longest_wait_us = counts.longest_wait_us.max(waited_us);
            let (len, held) = self.answer(query.bytes, arrived, out, &mut counts);
            match (held, source.address()) {
                (Some(held), Some(to)) if len > 0 => {
                    line.send_at(arrived + held, to, &out[..len]);
                    0
                }
                _ => len,
            }
        });
        let turn = turn.unwrap_or_default();
        (counts.received, counts.refused) = (turn.received as u64, turn.refused as u64);
        counts
    }

    /// Writes the reply, if there is one, and returns the length and delay of the reply.
    fn answer(
        &mut self,
        query: &[u8],
        arrived: Nanos,
        out: &mut [u8],
        counts: &mut ReferenceCounters,
    ) -> (usize, Option<Nanos>) {
        let Answered { len, name, .. } = self.zone.answer(query, AuthTransport::Udp, out);
        if len == 0 {
            counts.ignored += 1;
            return (0, None);
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take(arrived)) {
            counts.over_capacity += 1;
            return (0, None);
        }
        if let (Some(upstream_queries), Some(name)) = (&mut self.upstream_queries, name) {
            upstream_queries.ask_for(name);
        }
        let fate = match self.random_failures.strike(arrived, &mut self.rng) {
            true => Disposition::Lost,
            false => self.fate(query),
        };
        if fate == Disposition::Lost {
            counts.lost += 1;
            return (0, None);
        }
        if fate == Disposition::Wrong && len > HEADER_LEN {
            // The reply has one record, so its last octet belongs to the address.
            out[len - 1] ^= 1;
        }
        counts.answered += 1;
        let delay = (!self.config.delay.is_none()).then(|| self.config.delay.draw(&mut self.rng));
        (len, if fate == Disposition::Late { Some(self.config.late_by) } else { delay })
    }

    fn fate(&self, query: &[u8]) -> Disposition {
        let label = query.get(HEADER_LEN + 1..HEADER_LEN + 16).and_then(parse_label);
        let Some(name) = label.map(|address| u64::from(u32::from(address))) else {
            return Disposition::Right;
        };
        let (loss, late, wrong) = (
            self.config.loss.per_hundred(),
            self.config.late_share.per_hundred(),
            self.config.wrong_share.per_hundred(),
        );
        // The names selected by a larger share include those of every smaller share, so the differences are exact and
        // do not overlap.
        let within = |percent: u8| Share::percent(percent).selects(name);
        match () {
            () if within(loss) => Disposition::Lost,
            () if within(loss.saturating_add(late)) => Disposition::Late,
            () if within(loss.saturating_add(late).saturating_add(wrong)) => Disposition::Wrong,
            () => Disposition::Right,
        }
    }

    fn publish(&self, counts: &ReferenceCounters) {
        let c = counts;
        let values = [c.received, c.answered, c.over_capacity, c.lost, c.ignored, c.refused];
        for (sum, n) in self.counters.iter().zip(values) {
            sum.fetch_add(n, Ordering::Relaxed);
        }
        self.counters[7].fetch_max(c.longest_wait_us, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends queries at `rate` for `seconds`, with arrival times given by `arrival`. Returns the number of dropped
    /// queries.
    fn dropped(capacity: u64, rate: u64, seconds: u64, arrival: impl Fn(u64) -> u64) -> u64 {
        let mut bucket = TokenBucket::new(Qps(capacity), Nanos::from_millis(50));
        let start = 1_000_000_000;
        (0..rate * seconds)
            .filter(|&i| !bucket.take(Nanos(start + arrival(i * 1_000_000_000 / rate))))
            .count() as u64
    }

    #[test]
    fn exact_sending_passes_up_to_the_capacity_and_not_above() {
        for capacity in [1_000, 7_777, 100_000] {
            assert_eq!(dropped(capacity, capacity * 999 / 1000, 2, |t| t), 0, "{capacity}");
            assert!(dropped(capacity, capacity + capacity / 1000 + 1, 2, |t| t) > 0, "{capacity}");
            let excess = dropped(capacity, capacity * 2, 1, |t| t);
            assert!(excess.abs_diff(capacity) <= 1 + capacity / 250, "{capacity}: {excess}");
        }
    }

    #[test]
    fn bunches_and_stalls_of_the_sender_cost_nothing() {
        let bunched = |t: u64| t.div_ceil(100_000) * 100_000;
        assert_eq!(dropped(100_000, 99_800, 2, bunched), 0);
        let stall = |t: u64| if (900_000_000..910_000_000).contains(&t) { 910_000_000 } else { t };
        assert_eq!(dropped(100_000, 99_800, 2, stall), 0);
    }

    #[test]
    fn failing_trials_lose_one_query_each() {
        const TRIALS: u64 = 2_000;
        let lost_with = |chance: f64, queries: u64| -> Vec<u64> {
            let (mut random_failures, mut rng) =
                (RandomFailures::new(chance), StdRng::seed_from_u64(1));
            let mut lost_of = |trial: u64| {
                // A second of queries, 10 ms apart, and a pause.
                let times = (0..queries).map(|n| Nanos(trial * 2_000_000_000 + n * 10_000_000));
                times.filter(|&at| random_failures.strike(at, &mut rng)).count() as u64
            };
            (0..TRIALS).map(&mut lost_of).collect()
        };
        let failed = lost_with(0.1, 100);
        assert!(failed.iter().all(|&lost| lost <= 1));
        let count: u64 = failed.iter().sum();
        // Binomial: 200 with a standard deviation of 13.
        assert!((140..=260).contains(&count), "{count}");
        assert_eq!(lost_with(0.0, 100).iter().sum::<u64>(), 0);
        assert_eq!(lost_with(1.0, 100), vec![1; TRIALS as usize]);
        assert_eq!(lost_with(1.0, 3).iter().sum::<u64>(), 0, "a few questions are no trial");
    }

    #[test]
    fn every_trial_begins_alike() {
        let mut bucket = TokenBucket::new(Qps(1000), Nanos::from_millis(50));
        for trial in 1..4u64 {
            let burst = (0..100).filter(|_| bucket.take(Nanos(trial * 1_000_000_000))).count();
            assert_eq!(burst, 50, "fifty milliseconds' credit");
        }
    }

    /// A client that could not begin in time sends its first queries together. A server with spare capacity has room
    /// for these queries; a server without spare capacity still loses queries.
    #[test]
    fn a_late_begin_costs_nothing() {
        for capacity in [401, 1_000, 100_000] {
            let late = |t: u64| t.max(45_000_000);
            assert_eq!(dropped(capacity, capacity * 4 / 5, 2, late), 0, "{capacity}");
            assert!(dropped(capacity, capacity * 501 / 500 + 1, 2, late) > 0, "{capacity}");
            assert!(dropped(capacity, capacity * 51 / 50 + 1, 1, |t| t) > 0, "{capacity}");
        }
    }
}
