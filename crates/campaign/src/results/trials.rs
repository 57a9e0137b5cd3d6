//! List of the trials of a run. It is used for `trials.csv`, and for the figure that shows the valid replies at each
//! offered rate.

use method::narrow::Length;
use method::reason::Reason;
use method::records::Counts;
use method::verdict::Verdict;
use tester::measurer::result::Rtt;
use units::Qps;

use crate::plan::Point;
use crate::record::{DutEnd, Entry, Measured, TaskResult};

/// A trial of the journal. Conformance checks are not listed.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The measurement point of the trial.
    pub point: Point,
    /// Sequence number of the search or repetition at this measurement point, starting at 1.
    pub repeat: u32,
    /// Length of the trial: a short trial (probe), a full-length trial, or the duration chosen by MLRsearch.
    pub length: Length,
    /// Offered rate, queries per second; absent in a closed loop.
    pub rate: Option<Qps>,
    /// Start of the trial, seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Duration of sending, in seconds. For a closed loop, this is the duration of all experiments.
    pub duration_s: f64,
    /// Counts of the queries of the trial, by outcome.
    pub counts: Counts,
    /// Round-trip times of valid replies in microseconds; absent in a closed loop, or if there is
    /// no valid reply.
    pub rtt_us: Option<Rtt>,
    /// Mean CPU use of the DUT in cores; absent if it was not observed.
    pub cpu: Option<f64>,
    /// Verdict of the trial.
    pub verdict: Verdict,
    /// Reasons for the verdict; empty for a trial that passed.
    pub reasons: Vec<Reason>,
    /// The way in which the DUT failed during the trial; absent if it did not die or hang.
    pub ended: Option<DutEnd>,
}

impl Trial {
    /// Returns all trials of a journal, in the order in which they ended.
    pub(crate) fn all(entries: &[Entry]) -> Vec<Trial> {
        let finished = entries.iter().filter_map(|entry| match entry {
            Entry::Finished(measured) => Some(&**measured),
            _ => None,
        });
        finished.filter_map(Trial::of).collect()
    }

    fn of(m: &Measured) -> Option<Trial> {
        let (rate, started_unix_s, duration_s, rtt_us) = match &m.found {
            TaskResult::Trial(t) => (Some(t.rate), t.started_unix_s, t.duration_s, t.rtt_us),
            TaskResult::ClosedLoop(t) => {
                let length = t.experiments.experiments_ms.iter().sum::<f64>() / 1e3;
                (None, t.experiments.started_unix_s, length, None)
            }
            TaskResult::Conform(_) => return None,
        };
        let seconds = &m.cpu.dut;
        let cpu = (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64);
        Some(Trial {
            point: m.step.point.clone(),
            repeat: m.step.repeat + 1,
            length: m.step.length,
            rate,
            started_unix_s,
            duration_s,
            counts: m.counts().clone(),
            rtt_us,
            cpu,
            verdict: m.verdict(),
            reasons: m.reasons().to_vec(),
            ended: m.dut_end.clone(),
        })
    }

    /// Returns the fraction of queries that got a valid reply, from 0 to 1. Returns `None` if no query was sent.
    pub fn valid(&self) -> Option<f64> {
        (self.counts.sent > 0).then(|| self.counts.valid as f64 / self.counts.sent as f64)
    }
}
