//! Ramp: the rate grows linearly from 0, and may then stay constant for a while. The rate of the server is the highest
//! rate at which its responses keep up with the queries (resperf's manual page, DNS-OARC). Every outcome is attributed
//! to the send time of the query.

use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;

use hdrhistogram::Histogram;
use net::clock;
use serde::Serialize;
use units::{CpuId, Nanos};

use super::client_thread::{ClientThread, LoadModel, RampShare, share};
pub use super::schedule::{Ending, Ramp, Status};
use super::tally::Tally;
use super::{ClientSettings, SocketError};
use crate::intervals::{Interval, Intervals, histogram};

/// A ramp and its limits.
#[derive(Clone, Debug)]
pub struct RampPlan {
    /// Source of the queries, and settings of the client. The field `interval` must be set. It is the width of the
    /// intervals for which results are reported.
    pub settings: ClientSettings,
    /// Maximum rate, duration of the growth to this rate, and duration for which the rate then stays constant.
    pub ramp: Ramp,
    /// Number of source ports, or of TCP connections.
    pub clients: usize,
    /// Number of threads, which share the ports; at least 1.
    pub threads: usize,
    /// CPUs of the threads, used round robin; if empty, the kernel selects the CPUs.
    pub cpus: Vec<CpuId>,
    /// Number of queries in flight at which the ramp ends.
    pub outstanding: usize,
    /// Maximum number of queries that are due but have not been sent; 0 means unlimited.
    pub behind: u64,
    /// True if, after the last query has been sent, sending starts again with the first query.
    pub repeat: bool,
    /// Time to wait for responses after the planned end of the ramp, even if sending ended earlier. Queries that are
    /// still in flight at the end of this time are lost.
    pub wait: Nanos,
}

/// Time for which resperf waits for responses after the end of the ramp.
pub const WAIT: Nanos = Nanos(40 * Nanos::SECOND.0);

/// A bucket: the queries of one interval and their outcomes. Rates are per second, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Bucket {
    /// Middle of the interval, relative to the start of the ramp.
    pub time: f64,
    /// Width of the interval. The last interval may be narrower than the others, or up to a tenth wider.
    pub width: f64,
    /// Rate at which queries were due.
    pub target_qps: f64,
    /// Rate at which queries were sent.
    pub actual_qps: f64,
    /// Rate of the responses to the queries that were sent in this interval. The arrival time of the responses does not
    /// matter.
    pub responses_per_sec: f64,
    /// Rate of the responses with an RCODE other than NOERROR and NXDOMAIN.
    pub failures_per_sec: f64,
    /// Mean round-trip time of the responses.
    pub avg_latency: f64,
    /// Connections made per second.
    pub connections: f64,
    /// Mean connection setup time.
    pub conn_avg_latency: f64,
}

impl Bucket {
    /// Returns the share of the queries without a response, in per cent.
    pub fn loss_pct(&self) -> f64 {
        if self.actual_qps > 0.0 {
            (1.0 - self.responses_per_sec / self.actual_qps).max(0.0) * 100.0
        } else {
            0.0
        }
    }
}

/// Result of a ramp.
#[derive(Debug)]
pub struct RampResult {
    /// All totals and histograms of the ramp.
    pub tally: Tally,
    /// Reason why sending ended.
    pub ending: Ending,
    /// Duration of sending.
    pub sending: Nanos,
    /// Time from the first query until every query was answered or counted as lost.
    pub total: Nanos,
    /// Buckets: the results for each interval of the ramp, in chronological order.
    pub buckets: Vec<Bucket>,
    /// Lateness of the queries in ns.
    pub lateness: Histogram<u64>,
    /// Start time (wall clock).
    pub began: Nanos,
}

impl RampResult {
    /// Returns the bucket with the highest response rate. The first bucket with a loss above `max_loss` per cent
    /// (resperf's `-L`) and all later buckets are excluded. Buckets narrower than half the normal width are ignored,
    /// because they are too noisy.
    pub fn best(&self, max_loss: f64) -> Option<Bucket> {
        let width = self.buckets.first()?.width;
        let counted = self.buckets.iter().filter(|bucket| bucket.width >= width / 2.0);
        let before = counted.take_while(|bucket| bucket.loss_pct() <= max_loss);
        before.max_by(|a, b| a.responses_per_sec.total_cmp(&b.responses_per_sec)).copied()
    }

    /// Compares the number of sent queries with the number of due queries in each bucket. Returns the largest relative
    /// deviation in per cent.
    ///
    /// The last bucket, in which sending ended, is ignored. A deviation of one query per bucket is tolerated.
    pub fn worst_pacing_pct(&self) -> f64 {
        let full = self
            .buckets
            .iter()
            .take(self.buckets.len().saturating_sub(1))
            .filter(|b| b.target_qps > 0.0);
        let off = |b: &Bucket| {
            ((b.actual_qps - b.target_qps).abs() * b.width - 1.0).max(0.0)
                / (b.target_qps * b.width)
        };
        full.map(|b| off(b) * 100.0).fold(0.0, f64::max)
    }
}

/// Runs a ramp to its end, or until `until` becomes true. `watch` is called at each change of the status.
///
/// # Errors
/// Returns an error if a socket towards the server cannot be opened, or fails.
pub fn run(
    plan: &RampPlan,
    until: &AtomicBool,
    watch: &(dyn Fn(Status) + Sync),
) -> Result<RampResult, SocketError> {
    let failed = |source| SocketError { server: plan.settings.server, source };
    let threads = plan
        .threads
        .clamp(1, plan.clients.max(1))
        .min(plan.settings.source.count().max(1) as usize);
    let over = AtomicBool::new(false);
    let (mut client_threads, mut first_port) = (Vec::new(), 0);
    for thread in 0..threads {
        let ports = share(plan.clients.max(1), thread, threads);
        let cursor = plan.settings.source.cursor(thread, threads, plan.repeat);
        let cpu = plan.cpus.get(thread % plan.cpus.len().max(1)).copied();
        let client_thread =
            ClientThread::new(&plan.settings, cpu, first_port, ports, 65_536 * ports, cursor)
                .map_err(failed)?;
        first_port += ports;
        client_threads.push((client_thread, due(plan, thread, threads, [&over, until], watch)));
    }
    let (start, began) = (clock::now(), clock::wall());
    let ended: Vec<io::Result<(ClientThread<'_>, RampShare<'_>)>> = thread::scope(|scope| {
        let running: Vec<_> = client_threads
            .into_iter()
            .map(|(client_thread, due)| {
                scope.spawn(move || {
                    let mut load_model = LoadModel::Ramp(Box::new(due));
                    let client_thread = client_thread.run(start, &mut load_model)?;
                    let LoadModel::Ramp(due) = load_model else { unreachable!("set above") };
                    Ok((client_thread, *due))
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a client thread does not panic"))
            .collect()
    });
    let total = clock::now().since(start);
    let mut tally = Tally::new(plan.settings.interval);
    let (mut ending, mut sending, mut lateness) = (Ending::Time, Nanos(0), histogram());
    for client_thread in ended {
        let (client_thread, due) = client_thread.map_err(failed)?;
        tally.merge(&client_thread.tally);
        if let Some(why) = due.ending.filter(|&why| why != Ending::Other) {
            (ending, sending) = (why, due.ended);
        }
        lateness.add(&due.lateness).expect("a histogram that grows takes any other");
    }
    tally.settle_refused();
    let buckets = buckets(&tally, plan.ramp, sending);
    Ok(RampResult { tally, ending, sending, total, buckets, lateness, began })
}

fn due<'a>(
    plan: &RampPlan,
    thread: usize,
    threads: usize,
    [over, until]: [&'a AtomicBool; 2],
    watch: &'a (dyn Fn(Status) + Sync),
) -> RampShare<'a> {
    RampShare {
        ramp: plan.ramp,
        wait: plan.wait,
        watch,
        on_plateau: plan.ramp.constant == Nanos(0),
        client_thread: thread as u64,
        of: threads as u64,
        outstanding: share(plan.outstanding, thread, threads).max(1),
        behind: plan.behind.div_ceil(threads as u64),
        over,
        until,
        asked: 0,
        ending: None,
        ended: Nanos(0),
        lateness: histogram(),
        burns: RampShare::can_busy_wait(),
    }
}

/// Returns a bucket for each interval until the end of sending, with counts converted to rates. A last interval shorter
/// than a tenth of the width is merged into the previous interval, because a rate over such a short time is
/// meaningless.
fn buckets(tally: &Tally, ramp: Ramp, sending: Nanos) -> Vec<Bucket> {
    let Some(Intervals { width, list }) = &tally.intervals else { return Vec::new() };
    let whole = (sending.0 / width.0) as usize;
    let rest = sending.0 % width.0;
    let count = if whole == 0 || rest >= width.0 / 10 { whole + 1 } else { whole };
    // Later intervals contain no queries. They may contain connections that were re-established during the wait for the
    // last responses.
    let mut intervals: Vec<Interval> = list.iter().take(whole + 1).cloned().collect();
    intervals.resize_with(count.max(intervals.len()), Interval::default);
    for left in intervals.split_off(count) {
        intervals[count - 1].merge(&left);
    }
    let bucket = |(i, interval): (usize, &Interval)| {
        let begin = Nanos(width.0 * i as u64);
        let end = if i + 1 == count { sending.max(begin + Nanos(1)) } else { begin + *width };
        bucket_of(interval, ramp, begin, end)
    };
    intervals.iter().enumerate().map(bucket).collect()
}

fn bucket_of(interval: &Interval, ramp: Ramp, begin: Nanos, end: Nanos) -> Bucket {
    let seconds = end.since(begin).as_secs_f64();
    let per_second = |n: u64| n as f64 / seconds;
    Bucket {
        time: (begin.as_secs_f64() + end.as_secs_f64()) / 2.0,
        width: seconds,
        target_qps: (ramp.area(end) - ramp.area(begin)) / seconds,
        actual_qps: per_second(interval.sent),
        responses_per_sec: per_second(interval.answered()),
        failures_per_sec: per_second(interval.failed()),
        avg_latency: if interval.rtt.is_empty() { 0.0 } else { interval.rtt.mean() / 1e9 },
        connections: per_second(interval.connections),
        conn_avg_latency: interval.connecting as f64 / 1e9 / interval.connections.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use units::Qps;
    use wire::name::Domain;

    use super::super::{Additional, Check, Names, Source, Transport};
    use super::*;

    #[test]
    fn waiting_for_responses_ends_before_the_timeout() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let block = "10.0.0.0/24".parse().unwrap();
        let names = Names::new(&Domain::dns64perf(), block, 0, 256).unwrap();
        let settings = ClientSettings {
            server: silent.local_addr().unwrap(),
            local: None,
            transport: Transport::Udp,
            source: Source::Names(names),
            additional: Additional::default(),
            check: Check::Rcode,
            timeout: Nanos(3_600 * Nanos::SECOND.0),
            offload: false,
            buffer: None,
            interval: Some(Nanos::from_millis(100)),
        };
        let (growing, constant) = (Nanos::from_millis(100), Nanos::from_millis(100));
        let plan = RampPlan {
            settings,
            ramp: Ramp { max: Qps(200), growing, constant },
            clients: 2,
            threads: 2,
            cpus: Vec::new(),
            outstanding: 1_000,
            behind: 0,
            repeat: false,
            wait: Nanos::from_millis(100),
        };
        let result = run(&plan, &AtomicBool::new(false), &|_| {}).unwrap();
        let counts = &result.tally.counts;
        assert!(counts.sent > 0 && counts.lost == counts.sent, "{counts:?}");
        assert!(result.total >= plan.ramp.length() + plan.wait, "{:?}", result.total);
    }

    #[test]
    fn a_short_last_interval_joins_the_previous_one() {
        let ramp = Ramp { max: Qps(100), growing: Nanos(0), constant: Nanos(Nanos::SECOND.0) };
        let mut tally = Tally::new(Some(Nanos::from_millis(500)));
        for ms in (0..1000).step_by(10) {
            tally.sent(Nanos::from_millis(ms), 1);
        }
        tally.sent(Nanos::from_millis(1_000), 1);
        let all = buckets(&tally, ramp, Nanos::from_millis(1_001));
        assert_eq!((all.len(), all[0].actual_qps, all[1].actual_qps.round()), (2, 100.0, 102.0));
        let all = buckets(&tally, ramp, Nanos::from_millis(700));
        assert_eq!((all.len(), all[1].time, all[1].width), (2, 0.6, 0.2));
        assert_eq!(buckets(&tally, ramp, Nanos::from_millis(3)).len(), 1);
    }

    fn bucket(width: f64, sent: f64, answered: f64) -> Bucket {
        Bucket {
            time: 0.0,
            width,
            target_qps: sent,
            actual_qps: sent,
            responses_per_sec: answered,
            failures_per_sec: 0.0,
            avg_latency: 0.0,
            connections: 0.0,
            conn_avg_latency: 0.0,
        }
    }

    #[test]
    fn the_best_bucket_precedes_the_loss_and_is_whole() {
        let buckets = vec![
            bucket(0.5, 10.0, 10.0),
            bucket(0.5, 20.0, 19.0),
            bucket(0.5, 40.0, 30.0),
            bucket(0.1, 90.0, 90.0),
        ];
        let result = RampResult {
            tally: Tally::new(None),
            ending: Ending::Time,
            sending: Nanos(0),
            total: Nanos(0),
            buckets,
            lateness: histogram(),
            began: Nanos(0),
        };
        let best = |loss| result.best(loss).map(|b| (b.responses_per_sec, b.loss_pct().round()));
        assert_eq!(
            (best(100.0), best(10.0), best(1.0)),
            (Some((30.0, 25.0)), Some((19.0, 5.0)), Some((10.0, 0.0)))
        );
    }
}
