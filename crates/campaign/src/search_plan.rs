//! What a set of searches is to do, and in which points that is not as RFC 8219 wants it.

use std::time::Duration;

use method::compliance::{Facts, Proof};
use method::precision::overstatement;
use method::search::SearchRange;
use method::selftest::allowed_rate;
use method::units::Qps;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::{SenderSettings, TrialPlan};
use tester::measurer::result::{Priority, TrialResult};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassedSelfTest {
    /// The rate at which it passed; of several the smallest.
    pub passed: Qps,
    /// Its reserve δ.
    pub delta: f64,
    /// How it was sent; absent where only its rate is known.
    #[serde(default)]
    pub sent: Option<SelfTestSending>,
}

/// How a self-test was sent: it vouches for trials that are sent in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTestSending {
    /// What was asked for.
    pub settings: SenderSettings,
    /// The priority that the senders got.
    pub priority: Priority,
    /// Whether AuthDNS's own time was held to the limit.
    pub held_auth: bool,
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
        self.self_test.as_ref().map(|t| allowed_rate(t.passed, trial.aaaa_share, trial.cached_share, t.delta))
    }

    /// What vouches for the tester in trials like `trial`.
    pub fn proof(&self, trial: &TrialResult) -> Proof {
        let Some(test) = &self.self_test else { return Proof::None };
        let delta = test.delta;
        let is_the_same = |sent: &SelfTestSending| {
            let same_priority = sent.priority == trial.sending.priority;
            sent.settings == self.trial.sender_settings() && same_priority && sent.held_auth
        };
        if test.sent.as_ref().is_some_and(is_the_same) {
            Proof::SelfTest { delta }
        } else {
            Proof::OtherSettings { delta }
        }
    }

    /// What decides whether the set is as RFC 8219 §9.2 wants it, where `trial` is one of its trials.
    pub fn facts(&self, trial: &TrialResult) -> Facts {
        Facts {
            repeats: Some(self.repeat),
            resolution: Some(self.range.resolution),
            reuses_names: self.reuse_names,
            proof: self.proof(trial),
            ..trial.facts
        }
    }

    /// By which factor the rates may be overstated, because replies after the end of short trials count as well.
    pub fn overstatement(&self) -> f64 {
        overstatement(self.trial.duration, self.trial.timeout)
    }
}
