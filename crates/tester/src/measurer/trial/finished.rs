//! Last state of a trial: all threads have ended, and their results are combined into the result of the trial.

use hdrhistogram::Histogram;
use method::pacing::PacingRecorder;
use method::reason::Reason;
use method::records::Counts;
use method::verdict::{Evidence, Verdict, decide};
use method::warning::Warning;
use net::clock::ClockRate;
use net::cpu_time::{CpuTimes, Stolen};
use units::Nanos;

use super::prepared::{PairThreads, Prepared};
use super::started::{Started, TrialStart};
use crate::intervals::Intervals;
use crate::measurer::error::TrialError;
use crate::measurer::host_losses::Losses;
use crate::measurer::plan::TrialPlan;
use crate::measurer::receiver::Received;
use crate::measurer::recorder::Recorder;
use crate::measurer::result::{Findings, Priority, Rtt, Sending, TrialResult};
use crate::measurer::sender::Sent;
use crate::measurer::shards::ShardPart;
use crate::measurer::sources::SourcesUsed;

/// Time for which the receive buffers should be able to store arriving replies while the receiver does not run.
const BUFFERED: Nanos = Nanos::from_millis(50);
/// Octets that the kernel counts in a receive buffer for one small packet.
const PACKET_CHARGE: u64 = 768;

/// Maximum frequency offset of the monotonic clock from the hardware clock, in parts per million. The query rate has
/// the same relative error. Clock synchronization never changes the frequency by more than 500 ppm (`MAXFREQ` in
/// kernel/time/ntp.c).
const SLEW_LIMIT_PPM: f64 = 1_000.0;

/// Share of a CPU's time in per cent. If a hypervisor takes more than this share, a warning is reported.
const STOLEN_LIMIT: f64 = 1.0;

/// A trial after its threads have ended.
pub(super) struct Finished<'a> {
    prepared: Prepared<'a>,
    began: TrialStart,
    pairs: Vec<(Sent, Received)>,
    losses: Losses,
    stolen: Option<Stolen>,
    records: Records,
    /// True if the user stopped the trial before the last query was sent.
    is_interrupted: bool,
}

/// Result of writing the per-query records.
struct Records {
    /// Number of records lost because the disk was too slow.
    lost: u64,
    /// Error that prevented writing the record file; `None` if there was no error.
    error: Option<String>,
}

impl Records {
    fn close(recorder: Option<Recorder>, is_interrupted: bool) -> Records {
        let lost = match recorder {
            // Records of an interrupted trial must not be mistaken for records of a complete trial.
            Some(recorder) if is_interrupted => {
                recorder.discard();
                Ok(0)
            }
            Some(recorder) => recorder.finish(),
            None => Ok(0),
        };
        // An error, such as a full disk, must not change the verdict.
        match lost {
            Ok(lost) => Records { lost, error: None },
            Err(error) => Records { lost: 0, error: Some(error.to_string()) },
        }
    }
}

impl<'a> Finished<'a> {
    /// Monitors the host for packet losses until all threads have ended, then reads the host's counters.
    pub(super) fn await_end(started: Started<'a>) -> Result<Finished<'a>, TrialError> {
        let Started { prepared, began, mut losses, recorder, cpu_times, pairs } = started;
        losses.watch_while(|| {
            pairs
                .iter()
                .any(|(sending, receiving)| !sending.is_finished() || !receiving.is_finished())
        });
        // A panic of a thread is a defect of the tester and must not become a verdict.
        let join = |(sending, receiving): PairThreads| {
            (
                sending.join().expect("a sender never panics"),
                receiving.join().expect("a receiver never panics"),
            )
        };
        let pairs: Vec<_> = pairs.into_iter().map(join).collect();
        let now = CpuTimes::now().ok();
        let stolen = cpu_times.zip(now).map(|(before, after)| after.stolen_since(&before));
        let sum = |of: fn(&Received) -> u64| pairs.iter().map(|(_, received)| of(received)).sum();
        let (datagrams, rings) = (sum(|r| r.datagrams), sum(|r| r.ring_drops));
        let server = prepared.plan.server;
        let at = |source| TrialError::Interface { server, source };
        let losses = losses.conclude(&prepared.ports, datagrams, rings).map_err(at)?;
        let planned = prepared.plan.own_part().count();
        let is_interrupted = tried(&pairs).sum::<u64>() < planned && prepared.progress.is_stopped();
        let records = Records::close(recorder, is_interrupted);
        Ok(Finished { prepared, began, pairs, losses, stolen, records, is_interrupted })
    }

    /// Combines the results of all pairs of threads, and decides the verdict on the trial.
    pub(super) fn into_result(self) -> TrialResult {
        let plan = self.prepared.plan;
        if !self.is_interrupted {
            let (stolen, error) = (self.stolen, self.records.error.clone());
            let mut result = self.judge(plan);
            result.records_error = error;
            result.warnings.extend(stolen.and_then(stolen_warning));
            result.stolen = stolen;
            return result;
        }
        let own = plan.own_part();
        let duration = own.schedule().deadline(own.index(tried(&self.pairs).sum())).max(Nanos(1));
        let cut = TrialPlan { duration, ..plan.clone() };
        let reasons = vec![Reason::Interrupted { duration, planned: plan.duration }];
        let mut result = self.judge(&cut);
        if let Some(shard) = &mut result.shard {
            shard.plan = plan.clone();
        }
        TrialResult { verdict: Verdict::Invalid, reasons, ..result }
    }

    /// Decides the verdict on the trial. After an interruption, `plan` is shorter than the original plan.
    fn judge(self, plan: &TrialPlan) -> TrialResult {
        let Finished { prepared, began, pairs, losses, records, .. } = self;
        let source_addresses = SourcesUsed::of(plan, prepared.pace.block, tried(&pairs));
        let TrialTotals { counts, mut faults, rtt, pacing, intervals, priority } =
            TrialTotals::of(plan, pairs);
        let ppm = began.rate.ppm_until(ClockRate::sample());
        if ppm.abs() > SLEW_LIMIT_PPM {
            faults.push(Reason::ClockSlewed { ppm, limit_ppm: SLEW_LIMIT_PPM });
        }
        if records.lost > 0 {
            faults.push(Reason::RecordsLost { records: records.lost });
        }
        let sending = Sending { source_addresses, ..prepared.sending(priority) };
        let mut warnings = warnings(plan, &sending);
        let own = plan.own_part();
        let shard = plan.shard.and(pacing.as_ref().zip(rtt.as_ref()));
        let part = |(pacing, rtt): (_, &Histogram<_>)| {
            Box::new(ShardPart::new(plan, &began.clock, pacing, rtt.clone()))
        };
        let shard = shard.map(part);
        let windows = pacing.as_ref().map(|p| p.windows(&own));
        let pacing = pacing.map(|p| p.audit(&own)).unwrap_or_default();
        warnings.extend(losses.warnings(&counts, plan.accept));
        let evidence = Evidence {
            planned: own.count(),
            counts: &counts,
            pacing: &pacing,
            host_losses: &losses.places,
            missed: losses.drops.missed.unwrap_or(0),
            faults: &faults,
        };
        let (verdict, reasons) = decide(&evidence, plan.accept, &plan.limits);
        let (drops, rtt) = (losses.drops, rtt.as_ref().and_then(Rtt::of));
        let found = Findings {
            began: began.wall,
            counts,
            drops,
            rtt,
            pacing,
            windows,
            sending,
            verdict,
            reasons,
            warnings,
            intervals,
        };
        TrialResult { shard, ..TrialResult::new(plan, found) }
    }
}

/// For each pair of threads, returns the number of queries that the sender sent or tried to send.
fn tried(pairs: &[(Sent, Received)]) -> impl Iterator<Item = u64> {
    pairs.iter().map(|(sent, _)| sent.queries + sent.refused)
}

/// Totals of all pairs of threads.
pub(super) struct TrialTotals {
    pub(super) counts: Counts,
    faults: Vec<Reason>,
    rtt: Option<Histogram<u64>>,
    pacing: Option<PacingRecorder>,
    intervals: Option<Intervals>,
    /// Lowest scheduling priority of any sender thread.
    priority: Priority,
}

impl TrialTotals {
    pub(super) fn of(plan: &TrialPlan, pairs: Vec<(Sent, Received)>) -> TrialTotals {
        let mut all = TrialTotals {
            counts: Counts::default(),
            faults: Vec::new(),
            rtt: None,
            pacing: None,
            intervals: plan.interval.map(Intervals::new),
            priority: Priority::RealTime,
        };
        for (sent, received) in pairs {
            if let (Some(sum), Some(pair)) = (&mut all.intervals, &received.intervals) {
                sum.merge(pair);
            }
            all.counts.merge(&Counts {
                sent: sent.queries,
                refused: sent.refused,
                sent_again: sent.again,
                ..received.counts
            });
            all.priority = all.priority.min(sent.priority);
            all.faults.extend(sent.faults);
            all.faults.extend(received.faults);
            match &mut all.rtt {
                Some(sum) => sum.add(&received.rtt).expect("equal bounds"),
                None => all.rtt = Some(received.rtt),
            }
            match &mut all.pacing {
                Some(sum) => sum.merge(&sent.pacing),
                None => all.pacing = Some(sent.pacing),
            }
        }
        all
    }
}

fn warnings(plan: &TrialPlan, sending: &Sending) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let held = plan.own_rate() * BUFFERED.as_secs_f64() / f64::from(plan.source_ports)
        * PACKET_CHARGE as f64;
    if (sending.receive_buffer as f64) < held {
        warnings.push(Warning::SmallReceiveBuffer {
            octets: sending.receive_buffer,
            holds: BUFFERED,
            wanted: net::socket::REQUESTED_BUFFER,
        });
    }
    if plan.retention() < Nanos(plan.timeout.0 * 2) {
        warnings.push(Warning::ShortMemory {
            source_ports: plan.source_ports,
            retention: plan.retention(),
        });
    }
    warnings
}

/// Returns a warning if a hypervisor took more than [`STOLEN_LIMIT`] per cent of a CPU's time.
fn stolen_warning(stolen: Stolen) -> Option<Warning> {
    let worst_cpu_pct = stolen.worst_cpu_pct;
    (worst_cpu_pct > STOLEN_LIMIT).then_some(Warning::Stolen { worst_cpu_pct })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_one_per_cent_stolen_time_is_a_warning() {
        let of =
            |worst_cpu_pct| stolen_warning(Stolen { all_pct: 0.5, worst_cpu_pct, worst_cpu: 1 });
        assert_eq!(of(1.0), None);
        assert_eq!(of(1.1), Some(Warning::Stolen { worst_cpu_pct: 1.1 }));
    }
}
