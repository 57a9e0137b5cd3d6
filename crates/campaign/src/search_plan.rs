//! What a set of searches is to do, and in which points that is not as RFC 8219 wants it.

use std::time::Duration;

use method::search::SearchRange;
use method::selftest::allowed_rate;
use method::units::Qps;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::noncompliance;

/// Repetitions that RFC 8219 §9.2 asks for at least.
pub const COMPLIANT_REPEATS: u32 = 20;

/// What to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchPlan {
    /// The trial, but for its rate and its first name.
    pub trial: TrialPlan,
    /// Where to search.
    pub range: SearchRange,
    /// How many times.
    pub repeat: u32,
    /// Pause between trials.
    pub pause: Duration,
    /// Whether the names may begin again when the block is used up.
    pub reuse_names: bool,
    /// The self-test that the tester passed.
    pub self_test: Option<PassedSelfTest>,
}

/// The self-test that says up to which rate results are more than lower bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassedSelfTest {
    /// The rate at which it passed; of several the smallest (seed 001).
    pub passed: Qps,
    /// Its reserve δ.
    pub delta: f64,
}

impl SearchPlan {
    /// The trial at `rate` whose names begin at `first_name`.
    pub fn trial_at(&self, rate: Qps, first_name: u64) -> TrialPlan {
        TrialPlan { rate, first_name, ..self.trial.clone() }
    }

    /// The most names that the set can take: every search of the full length, at the highest rate.
    pub fn most_names(&self) -> u64 {
        let span = (self.range.max.0 - self.range.min.0).max(1) / self.range.resolution.0.max(1) + 1;
        let trials = u64::from(span.ilog2()) + 3;
        let each = self.trial_at(self.range.max, 0).names_needed();
        each.saturating_mul(trials).saturating_mul(self.repeat.into())
    }

    /// Up to which rate the self-test vouches for the tester.
    pub fn allowed(&self) -> Option<Qps> {
        let trial = &self.trial;
        self.self_test.map(|t| allowed_rate(t.passed, trial.aaaa_share, trial.cached_share, t.delta))
    }

    /// In which points the set is not as RFC 8219 §9.2 wants it.
    pub fn noncompliance(&self) -> Vec<String> {
        let mut points = noncompliance(&self.trial);
        if self.repeat < COMPLIANT_REPEATS {
            points.push(format!("{} repetitions, not at least {COMPLIANT_REPEATS}", self.repeat));
        }
        match &self.self_test {
            None => points.push("no self-test was given (--self-test-passed)".into()),
            Some(t) if t.delta < method::selftest::MIN_DELTA => {
                points.push(format!("the self-test's reserve is {}, less than 0.1", t.delta));
            }
            Some(_) => {}
        }
        if self.range.resolution > Qps(1) {
            points.push(format!("the resolution is {} queries/s, not 1", self.range.resolution));
        }
        if self.reuse_names {
            points.push("names may have repeated".into());
        }
        points
    }
}
