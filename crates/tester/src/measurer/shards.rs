//! One trial shared by several testers: assignment of queries, common start, and data for the overall verdict.
//!
//! ```text
//! query:    0  1  2  3  4  5  6  7 …       the schedule of one trial
//! tester:   0  1  2  0  1  2  0  1 …       `--shard 0/3`, `1/3`, `2/3`; all begin at `--start-at`
//!
//! each: counts, histograms, windows ─► a file ─┐
//!                                   a file ─┼─► `merge` ─► one verdict
//!                                   a file ─┘
//! ```
//!
//! The testers do not communicate while they send, because the plan determines each query's name, message id and send
//! time.

use hdrhistogram::Histogram;
use method::pacing::PacingRecorder;
use method::schedule::Part;
use net::clock::{self, ClockError, ClockPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use units::Nanos;

use super::error::TrialError;
use super::histogram::{Hdr, rtt_histogram};
use super::plan::TrialPlan;
use super::plan::shard::{Moment, ShardPlan};
use super::thread_pair::Progress;

/// Time between the start of the threads and the first query. In this time the threads pin themselves and measure their
/// timers.
pub(super) const LEAD: Nanos = Nanos::from_millis(30);
/// Time between the read of the host's counters and the first query.
const EARLY: Nanos = Nanos::from_millis(300);
/// Interval at which a waiting tester checks for an interruption.
const SAMPLE_INTERVAL: Nanos = Nanos::from_millis(50);
/// Maximum number of bits of a generated seed. This is the precision of a JavaScript number.
const SEED_BITS: u32 = 53;

impl TrialPlan {
    /// Returns the plan with only those settings that are the same for all testers of this trial. The shard index is 0.
    ///
    /// Settings that may differ between testers (threads, sockets or AF_XDP, CPUs, batching, files) are set to their
    /// defaults.
    pub fn common(&self) -> TrialPlan {
        let plain = TrialPlan::new(self.server, self.rate);
        TrialPlan {
            threads: plain.threads,
            source_ports: plain.source_ports,
            source_addresses: None,
            xdp: None,
            cpus: Vec::new(),
            spin: plain.spin,
            max_burst: plain.max_burst,
            send_cost: None,
            real_time: plain.real_time,
            offload: plain.offload,
            separate_hosts: false,
            auth_status: None,
            records: None,
            interval: None,
            shard: self.shard.map(|shard| ShardPlan { index: 0, ..shard }),
            ..self.clone()
        }
    }

    /// Returns the default seed. It is computed from the start time and from the settings that are the same for all
    /// testers.
    pub fn seed_from(&self, start: Moment) -> u64 {
        let common = TrialPlan { shard: None, ..self.common() };
        // A plan contains strings and numbers only.
        let text = serde_json::to_string(&(common, start)).unwrap_or_default();
        let first: [u8; 8] = Sha256::digest(text)[..8].try_into().expect("a digest has 32 octets");
        u64::from_be_bytes(first) >> (u64::BITS - SEED_BITS)
    }

    /// Returns the part of the trial's schedule that this tester sends.
    pub fn own_part(&self) -> Part {
        let (index, of) = self.place();
        self.schedule().part(index, of)
    }

    /// Returns the part of the trial's schedule that one pair of threads of this tester sends.
    pub(super) fn part_of(&self, thread: u16) -> Part {
        let (index, of) = self.place();
        let threads = u64::from(self.threads);
        self.schedule().part(index + of * u64::from(thread), of * threads)
    }

    /// Returns the number of testers that share the trial.
    pub(super) fn testers(&self) -> u64 {
        self.place().1
    }

    /// Returns this tester's index among the testers that share the trial, and the number of these testers.
    fn place(&self) -> (u64, u64) {
        self.shard.map_or((0, 1), |shard| (shard.index.into(), shard.of.into()))
    }
}

/// Waits until shortly before the trial of `shard` begins. Returns the start time on the monotonic clock, converted by
/// `clock`.
///
/// # Errors
/// Returns [`TrialError::TooLate`] if there is too little time left, or [`TrialError::Interrupted`] if the user stops
/// the trial.
pub(super) fn await_start(
    shard: &ShardPlan,
    clock: &AskedClock,
    progress: &Progress,
) -> Result<Nanos, TrialError> {
    shard.has_time()?;
    let start = clock.pair.monotonic_at(shard.start.0);
    let until = Nanos(start.0.saturating_sub(EARLY.0));
    while clock::now() < until {
        if progress.is_stopped() {
            return Err(TrialError::Interrupted);
        }
        clock::sleep_until(until.min(clock::now() + SAMPLE_INTERVAL));
    }
    Ok(start)
}

/// State of this host's wall clock when a trial's start time was converted to the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedClock {
    pair: ClockPair,
    /// Error of the clock; `None` if the kernel does not report the error.
    error: Option<ClockError>,
}

impl AskedClock {
    /// Reads the state of the wall clock.
    pub(super) fn now() -> AskedClock {
        AskedClock { pair: ClockPair::sample(), error: ClockError::now().ok() }
    }
}

impl ShardPlan {
    /// Checks that there is time left until the trial begins.
    ///
    /// # Errors
    /// Returns [`TrialError::TooLate`] if there is too little time.
    pub fn has_time(&self) -> Result<(), TrialError> {
        let now = clock::wall();
        if self.start.0 < now + LEAD {
            return Err(TrialError::TooLate { start: self.start, now: Moment(now) });
        }
        Ok(())
    }
}

/// Data of one tester that [`merge`](super::merge::merge) needs in addition to the tester's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShardPart {
    /// Plan of the whole trial, with the index of this tester.
    pub plan: TrialPlan,
    /// Boot identifier of the kernel. Two testers with the same identifier share a clock. Empty if the kernel does not
    /// report it.
    pub boot_id: String,
    /// Error of this host's clock, if the kernel reports it. The error is read when the start time is read from the
    /// clock, and again after the trial. The larger of the two errors is used.
    pub clock: Option<ClockError>,
    /// Time, in nanoseconds, by which the clock was stepped after the start time had been read and before the trial
    /// ended. A forward step is positive.
    pub clock_step_ns: i64,
    /// Number of queries sent in each interval of 10 ms since the trial's start.
    pub sent_per_10ms: Vec<u32>,
    /// Lateness of the queries in nanoseconds.
    pub lateness_ns: Hdr,
    /// Round-trip times of valid replies in nanoseconds.
    pub rtt_ns: Hdr,
}

impl ShardPart {
    /// Creates the data of one tester after the trial of `plan` has finished. `asked` is the state of the wall clock
    /// when the start time was converted to the monotonic clock.
    pub(super) fn new(
        plan: &TrialPlan,
        asked: &AskedClock,
        pacing: &PacingRecorder,
        rtt: Histogram<u64>,
    ) -> ShardPart {
        let now = AskedClock::now();
        ShardPart {
            plan: plan.clone(),
            boot_id: clock::boot_id(),
            clock: asked.error.zip(now.error).map(|(then, now)| then.or_worse(now)),
            clock_step_ns: asked.pair.step_until(now.pair),
            sent_per_10ms: pacing.sent_per_10ms().to_vec(),
            lateness_ns: Hdr(pacing.lateness().clone()),
            rtt_ns: Hdr(rtt),
        }
    }

    /// Creates the data of a tester that sent no queries.
    pub(super) fn of_nothing(plan: &TrialPlan) -> ShardPart {
        let pacing = PacingRecorder::new(Nanos(0));
        ShardPart::new(plan, &AskedClock::now(), &pacing, rtt_histogram())
    }

    /// Returns this tester's data for the pacing audit.
    pub(super) fn pacing(&self) -> PacingRecorder {
        PacingRecorder::of(self.sent_per_10ms.clone(), &self.lateness_ns.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{CpuId, Qps};

    #[test]
    fn times_are_parsed_in_common_formats() {
        let at = |text: &str| text.parse::<Moment>().map(|moment| moment.0.0);
        let noon = 1_795_608_000_000_000_000;
        for text in [
            "2026-11-25T12:00:00Z",
            "2026-11-25T12:00:00.000Z",
            "2026-11-25T13:00:00+01:00",
            "2026-11-25T13:00:00,000000000+01:00",
            "2026-11-25T06:30:00-05:30",
            "1795608000",
            "1795608000.0",
        ] {
            assert_eq!(at(text), Ok(noon), "{text}");
        }
        assert_eq!(at("1795608000.25"), Ok(noon + 250_000_000));
        assert_eq!(at("2026-11-25T12:00:00,123456789+00:00"), Ok(noon + 123_456_789));
        for wrong in [
            "",
            "now",
            "2026-11-25T12:00:00",
            "2026-11-25",
            "-5",
            "1.",
            "2026-11-25T12:00:00+25:00",
            "é+01:00",
        ] {
            assert!(at(wrong).unwrap_err().contains("time zone"), "{wrong}");
        }
        let moment = Moment(Nanos(noon + 7));
        assert_eq!(moment.to_string(), "2026-11-25T12:00:00.000000007Z");
        assert_eq!(moment.to_string().parse(), Ok(moment));
    }

    #[test]
    fn the_seed_follows_from_the_common_plan() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        let start = Moment(Nanos(5));
        let own = TrialPlan {
            threads: 4,
            cpus: vec![CpuId(3)],
            records: Some("r.csv".into()),
            shard: Some(ShardPlan { index: 1, of: 3, seed: 9, start }),
            ..plan.clone()
        };
        assert_eq!(own.seed_from(start), plan.seed_from(start));
        assert_ne!(plan.seed_from(Moment(Nanos(6))), plan.seed_from(start));
        let faster = TrialPlan { rate: Qps(1001), ..plan.clone() };
        assert_ne!(faster.seed_from(start), plan.seed_from(start));
        assert!(plan.seed_from(start) < 1 << SEED_BITS);
    }

    #[test]
    fn testers_and_their_threads_have_each_query_once() {
        let start = Moment(Nanos(5));
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        let mut all: Vec<u64> = (0..3u16)
            .flat_map(|index| {
                let shard = Some(ShardPlan { index, of: 3, seed: 9, start });
                // The testers have different numbers of threads.
                let own = TrialPlan { threads: index + 1, shard, ..plan.clone() };
                (0..own.threads).flat_map(move |thread| {
                    let part = own.part_of(thread);
                    (0..part.count()).map(move |k| part.index(k).0).collect::<Vec<_>>()
                })
            })
            .collect();
        all.sort_unstable();
        assert_eq!(all, (0..plan.schedule().count()).collect::<Vec<_>>());
    }

    #[test]
    fn histograms_round_trip_and_garbage_is_rejected() {
        let mut histogram = super::rtt_histogram();
        (1..1000).for_each(|n| histogram.record(n * 997).unwrap());
        let text = serde_json::to_string(&Hdr(histogram.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Hdr>(&text).unwrap().0, histogram);
        for wrong in ["\"\"", "\"AAAA\"", "\"not base64\"", "5"] {
            assert!(serde_json::from_str::<Hdr>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_late_tester_reports_its_delay() {
        let plan = |start| ShardPlan { index: 0, of: 1, seed: 0, start: Moment(start) };
        let second = Nanos::SECOND;
        assert!(plan(clock::wall() + second).has_time().is_ok());
        let late = plan(Nanos(clock::wall().0 - second.0)).has_time().unwrap_err().to_string();
        assert!(late.contains("--start-at") && late.contains("past"), "{late}");
    }
}
