//! Plan of a set of searches, and its deviations from RFC 8219.

use std::iter;
use std::time::Duration;

use method::compliance::{Facts, TesterProof};
use method::mlr::goal::Goal;
use method::precision::overstatement;
use method::search::SearchRange;
use method::selftest::allowed_rate;
use method::set::SetPlan;
use method::verdict::Acceptance;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::{SenderSettings, TrialPlan};
use tester::measurer::result::{Priority, TrialResult};
use units::{Nanos, Qps};

use crate::plan::goal::{TypedGoal, distance};

/// Plan of a set of searches: the range, the method and the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchPlan {
    /// The trial. Its rate and its first name are replaced in each trial.
    pub trial: TrialPlan,
    /// Range of the searched rates.
    pub range: SearchRange,
    /// Number of searches, at least 1.
    pub repeat: u32,
    /// Pause between two trials.
    pub pause: Duration,
    /// True if the names may start again when the block is used up.
    pub reuse_names: bool,
    /// The self-test that the tester passed.
    pub self_test: Option<PassedSelfTest>,
    /// The method that chooses the rates.
    #[serde(default)]
    pub method: Method,
}

/// The method that chooses the rates of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Bisection of the range with full trials, as in RFC 8219 §9.2.
    #[default]
    Bisection,
    /// MLRsearch (RFC 9971) for these goals. The first goal is that of RFC 8219, with the plan's
    /// duration and acceptance criterion.
    MlrSearch(Vec<Goal>),
}

impl Method {
    /// Returns an MLRsearch whose first goal is the goal of RFC 8219 with this duration and
    /// acceptance criterion, followed by `others`.
    pub fn mlrsearch(
        duration: Duration,
        accept: Acceptance,
        width: f64,
        others: &[TypedGoal],
    ) -> Method {
        // Rounded, because 1 − 0.9 is slightly less than 0.1 in floating point.
        let loss_ratio = ((1.0 - accept.0) * 1e12).round() / 1e12;
        let first = Goal { loss_ratio, ..Goal::rfc8219(duration.into(), width) };
        let others = others.iter().map(|goal| goal.goal(duration, width));
        Method::MlrSearch(iter::once(first).chain(others).collect())
    }
}

/// A self-test that passed. Up to the rate that it validates, results are more than lower bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PassedSelfTest {
    /// The rate at which it passed; the smallest of several.
    pub passed: Qps,
    /// The reserve δ of RFC 8219 §9.2, a fraction.
    pub delta: f64,
    /// True if the self-test complies with RFC 8219 §9.2.1.
    #[serde(default)]
    pub compliant: bool,
    /// Send settings of the self-test; absent if only its rate is known.
    #[serde(default)]
    pub sent: Option<SelfTestSending>,
}

impl PassedSelfTest {
    /// Returns the rate up to which the tester is validated for trials like `plan`.
    pub fn allowed(&self, plan: &TrialPlan) -> Qps {
        allowed_rate(self.passed, plan.aaaa_share, plan.cached_share, self.delta)
    }

    /// Returns the self-test's proof for `trial` of `plan`, at any rate.
    pub fn proof(&self, plan: &TrialPlan, trial: &TrialResult) -> TesterProof {
        let delta = self.delta;
        let is_the_same = |sent: &SelfTestSending| {
            let same_priority = sent.priority == trial.sending.priority;
            // RFC 8219 §9.2.1 requires a quarter of the test's timeout.
            let wanted = method::selftest::timeout(plan.timeout);
            let in_time = sent.timeout.is_none_or(|timeout| timeout <= wanted);
            sent.settings == plan.sender_settings() && same_priority && sent.held_auth && in_time
        };
        match &self.sent {
            Some(sent) if is_the_same(sent) && self.compliant => TesterProof::SelfTest { delta },
            Some(sent) if is_the_same(sent) => TesterProof::NotCompliant { delta },
            _ => TesterProof::OtherSettings { delta },
        }
    }

    /// Same as [`PassedSelfTest::proof`], for a single trial, whose rate must be within the
    /// validated range.
    pub fn proof_at_its_rate(&self, plan: &TrialPlan, trial: &TrialResult) -> TesterProof {
        match (self.proof(plan, trial), self.allowed(plan)) {
            (TesterProof::SelfTest { delta } | TesterProof::NotCompliant { delta }, allowed)
                if plan.rate > allowed =>
            {
                TesterProof::BelowRate { delta, allowed }
            }
            (proof, _) => proof,
        }
    }
}

/// Send settings of a self-test. It validates only trials with the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestSending {
    /// The requested settings.
    pub settings: SenderSettings,
    /// The scheduling priority that the senders got.
    pub priority: Priority,
    /// True if AuthDNS's response time was checked against the limit.
    pub held_auth: bool,
    /// The timeout, nanoseconds; absent in files of older versions.
    #[serde(default)]
    pub timeout: Option<Nanos>,
}

impl SearchPlan {
    /// Returns the plan of the searches, which consist of full trials only.
    pub fn set(&self) -> SetPlan {
        SetPlan { range: self.range, repeat: self.repeat, probes: false }
    }

    /// Returns the requested distance between passed and failed rates; for an MLRsearch, the
    /// distance at the end of its range.
    pub(crate) fn wanted_resolution(&self) -> Qps {
        match &self.method {
            Method::Bisection => self.range.resolution,
            Method::MlrSearch(goals) => {
                goals.first().map_or(Qps(1), |goal| distance(goal.width, self.range.max))
            }
        }
    }

    /// Returns the trial at `rate` whose names begin at `first_name`.
    pub fn trial_at(&self, rate: Qps, first_name: u64) -> TrialPlan {
        TrialPlan { rate, first_name, ..self.trial.clone() }
    }

    /// Returns the number of names that the set may need: the names for every search with
    /// full-length trials at the highest rate. An MLRsearch can end early, so the minimum of its
    /// goals counts: two loads for each goal, at the highest rate.
    pub fn most_names(&self) -> u64 {
        if let Method::MlrSearch(goals) = &self.method {
            let of = |goal: &Goal| {
                TrialPlan { duration: goal.duration_sum, ..self.trial_at(self.range.max, 0) }
                    .names_needed()
            };
            let one: u64 =
                goals.iter().map(|goal| of(goal).saturating_mul(2)).fold(0, u64::saturating_add);
            return one.saturating_mul(self.repeat.into());
        }
        let span =
            (self.range.max.0 - self.range.min.0).max(1) / self.range.resolution.0.max(1) + 1;
        let trials = u64::from(span.ilog2()) + 3;
        let each = self.trial_at(self.range.max, 0).names_needed();
        each.saturating_mul(trials).saturating_mul(self.repeat.into())
    }

    /// Returns the rate up to which the self-test validates the tester.
    pub fn allowed(&self) -> Option<Qps> {
        self.self_test.as_ref().map(|test| test.allowed(&self.trial))
    }

    /// Returns the self-test's proof for trials like `trial`.
    pub fn proof(&self, trial: &TrialResult) -> TesterProof {
        self.self_test.as_ref().map_or(TesterProof::None, |test| test.proof(&self.trial, trial))
    }

    /// Returns the facts that decide the compliance of the set with RFC 8219 §9.2; `trial` is one
    /// of its trials.
    pub fn facts(&self, trial: &TrialResult) -> Facts {
        Facts {
            repeats: Some(self.repeat),
            // Shorter trials of an MLRsearch only lead up to those that decide.
            duration: self.trial.duration,
            resolution: Some(self.range.resolution),
            reuses_names: self.reuse_names,
            proof: self.proof(trial),
            ..trial.facts
        }
    }

    /// Returns the duration of a trial with the pause before it, excluding the time in which names
    /// are cached.
    pub fn each(&self) -> Duration {
        Duration::from(self.trial.duration + self.trial.timeout).saturating_add(self.pause)
    }

    /// Returns the factor by which rates may be overstated because replies that arrive after the
    /// end of short trials count too.
    pub fn overstatement(&self) -> f64 {
        overstatement(self.trial.duration, self.trial.timeout)
    }
}

#[cfg(test)]
mod tests {
    use method::records::Counts;

    use super::*;

    #[test]
    fn self_test_validates_similar_trials_up_to_its_rate() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(500));
        let trial = TrialResult::simulated(&plan, Counts::default());
        let (settings, priority) = (plan.sender_settings(), trial.sending.priority);
        let sent = SelfTestSending { settings, priority, held_auth: true, timeout: None };
        let test = PassedSelfTest {
            passed: Qps(1_100),
            delta: 0.1,
            compliant: true,
            sent: Some(sent.clone()),
        };
        assert_eq!(test.proof_at_its_rate(&plan, &trial), TesterProof::SelfTest { delta: 0.1 });
        let faster = TrialPlan { rate: Qps(501), ..plan.clone() };
        let weak = PassedSelfTest { compliant: false, ..test.clone() };
        assert_eq!(weak.proof_at_its_rate(&plan, &trial), TesterProof::NotCompliant { delta: 0.1 });
        let below = TesterProof::BelowRate { delta: 0.1, allowed: Qps(500) };
        assert_eq!(test.proof_at_its_rate(&faster, &trial), below);
        let others = [
            TrialPlan { threads: 2, ..plan.clone() },
            TrialPlan { offload: !plan.offload, ..plan.clone() },
            TrialPlan { source_addresses: "::1/128".parse().ok(), ..plan.clone() },
        ];
        for other in others {
            assert_eq!(
                test.proof_at_its_rate(&other, &trial),
                TesterProof::OtherSettings { delta: 0.1 },
                "{other:?}"
            );
        }
        // RFC 8219 §9.2.1: at most a quarter of the test's timeout.
        let within = |timeout| {
            let sent = Some(SelfTestSending { timeout: Some(timeout), ..sent.clone() });
            PassedSelfTest { sent, ..test.clone() }.proof(&plan, &trial)
        };
        assert_eq!(within(Nanos(plan.timeout.0 / 4)), TesterProof::SelfTest { delta: 0.1 });
        assert_eq!(within(plan.timeout), TesterProof::OtherSettings { delta: 0.1 });
        // The trial's source addresses are of another IP version, but equally many.
        let over_ipv4 = TrialPlan { source_addresses: "127.1.0.0/24".parse().ok(), ..plan.clone() };
        let over_ipv6 =
            TrialPlan { source_addresses: "2001:2:0:ff::/64".parse().ok(), ..plan.clone() };
        let from_many = PassedSelfTest {
            sent: Some(SelfTestSending { settings: over_ipv4.sender_settings(), ..sent.clone() }),
            ..test.clone()
        };
        assert_eq!(
            from_many.proof_at_its_rate(&over_ipv6, &trial),
            TesterProof::SelfTest { delta: 0.1 }
        );
        assert_eq!(
            from_many.proof_at_its_rate(&plan, &trial),
            TesterProof::OtherSettings { delta: 0.1 }
        );
        let lax =
            PassedSelfTest { sent: Some(SelfTestSending { held_auth: false, ..sent }), ..test };
        assert_eq!(lax.proof_at_its_rate(&plan, &trial), TesterProof::OtherSettings { delta: 0.1 });
    }
}
