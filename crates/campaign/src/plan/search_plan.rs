//! Plan of a set of searches, and the facts that determine its compliance with RFC 8219.

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
    /// Settings of every trial. The rate and the first queried name differ between trials, and are set for each trial.
    pub trial: TrialPlan,
    /// Range of the searched rates.
    pub range: SearchRange,
    /// Number of searches, at least 1.
    pub repeat: u32,
    /// Pause between two trials.
    pub pause: Duration,
    /// True if names may be queried a second time after all names in the block of names have been
    /// used.
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
    /// MLRsearch (RFC 9971) for these goals. The first goal is the goal of RFC 8219, with the
    /// plan's duration and acceptance criterion.
    MlrSearch(Vec<Goal>),
}

impl Method {
    /// Returns an MLRsearch with several goals. The first goal is the goal of RFC 8219 with the
    /// given duration and acceptance criterion. The goals in `others` follow.
    pub fn mlrsearch(
        duration: Duration,
        accept: Acceptance,
        width: f64,
        others: &[TypedGoal],
    ) -> Method {
        // The loss ratio is rounded, because 1 − 0.9 is slightly less than 0.1 in floating point.
        let loss_ratio = ((1.0 - accept.0) * 1e12).round() / 1e12;
        let first = Goal { loss_ratio, ..Goal::rfc8219(duration.into(), width) };
        let others = others.iter().map(|goal| goal.goal(duration, width));
        Method::MlrSearch(iter::once(first).chain(others).collect())
    }
}

/// A self-test that passed. A result above the rate that the self-test validates is only a lower
/// bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PassedSelfTest {
    /// Rate at which the self-test passed, queries per second. With several searches, this is the
    /// smallest of their rates.
    pub passed: Qps,
    /// The reserve δ of RFC 8219 §9.2, a fraction of the rate.
    pub delta: f64,
    /// True if the self-test complies with RFC 8219 §9.2.1.
    #[serde(default)]
    pub compliant: bool,
    /// Send settings of the self-test; absent if only the rate of the self-test is known.
    #[serde(default)]
    pub sent: Option<SelfTestSending>,
}

impl PassedSelfTest {
    /// Returns the rate up to which the self-test validates the tester for trials with the settings `plan`.
    pub fn allowed(&self, plan: &TrialPlan) -> Qps {
        allowed_rate(self.passed, plan.aaaa_share, plan.cached_share, self.delta)
    }

    /// Returns the self-test's proof that the tester was reliable in `trial`. `plan` is the plan of
    /// that trial. The rate of the trial is not checked.
    pub fn proof(&self, plan: &TrialPlan, trial: &TrialResult) -> TesterProof {
        let delta = self.delta;
        let is_the_same = |sent: &SelfTestSending| {
            let same_priority = sent.priority == trial.sending.priority;
            // RFC 8219 §9.2.1 requires that the self-test's timeout is at most a quarter of the
            // timeout of `plan`.
            let wanted = method::selftest::timeout(plan.timeout);
            let in_time = sent.timeout.is_none_or(|timeout| timeout <= wanted);
            sent.settings == plan.sender_settings() && same_priority && sent.auth_checked && in_time
        };
        match &self.sent {
            Some(sent) if is_the_same(sent) && self.compliant => TesterProof::SelfTest { delta },
            Some(sent) if is_the_same(sent) => TesterProof::NotCompliant { delta },
            _ => TesterProof::OtherSettings { delta },
        }
    }

    /// Returns the self-test's proof that the tester was reliable in `trial`, including at its rate. Unlike
    /// [`PassedSelfTest::proof`], checks that the rate of the trial is within the range that the self-test validates.
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

/// Send settings of a self-test. A self-test validates only trials with the same settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestSending {
    /// The settings that were requested for the self-test.
    pub settings: SenderSettings,
    /// Scheduling priority that the kernel granted to the sending threads.
    pub priority: Priority,
    /// True if AuthDNS's response time was checked against the limit in every trial.
    #[serde(rename = "held_auth")]
    pub auth_checked: bool,
    /// Timeout for a reply, nanoseconds; absent in files that older versions of dns64bench wrote.
    #[serde(default)]
    pub timeout: Option<Nanos>,
}

impl SearchPlan {
    /// Returns the range and the number of searches. In these searches, no short trials precede the full-length trials.
    pub fn set(&self) -> SetPlan {
        SetPlan { range: self.range, repeat: self.repeat, probes: false }
    }

    /// Returns the requested distance between the highest passed and the lowest failed rate. For an
    /// MLRsearch, in which the distance is proportional to the rate, returns the distance at the
    /// highest rate of the range.
    pub(crate) fn wanted_resolution(&self) -> Qps {
        match &self.method {
            Method::Bisection => self.range.resolution,
            Method::MlrSearch(goals) => {
                goals.first().map_or(Qps(1), |goal| distance(goal.width, self.range.max))
            }
        }
    }

    /// Returns the settings of a trial at the rate `rate`. The first name that the trial queries has the index
    /// `first_name` in the block of names.
    pub fn trial_at(&self, rate: Qps, first_name: u64) -> TrialPlan {
        TrialPlan { rate, first_name, ..self.trial.clone() }
    }

    /// Estimates the number of names that the searches need if all trials are at the highest rate. For a bisection, the
    /// estimate is an upper limit: it includes all possible trials, each with the full length. For an MLRsearch, which
    /// can end early, the estimate includes only the trials that decide the two bounds of each goal.
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

    /// Returns the rate up to which the self-test validates the tester, or `None` without a
    /// self-test.
    pub fn allowed(&self) -> Option<Qps> {
        self.self_test.as_ref().map(|test| test.allowed(&self.trial))
    }

    /// Returns the self-test's proof that the tester was reliable in `trial`, a trial of these searches.
    pub fn proof(&self, trial: &TrialResult) -> TesterProof {
        self.self_test.as_ref().map_or(TesterProof::None, |test| test.proof(&self.trial, trial))
    }

    /// Returns the facts that determine the compliance of the searches with RFC 8219 §9.2. `trial`
    /// is one of the trials of the searches.
    pub fn facts(&self, trial: &TrialResult) -> Facts {
        Facts {
            repeats: Some(self.repeat),
            // The shorter trials of an MLRsearch do not decide its result, so their duration does
            // not matter.
            duration: self.trial.duration,
            resolution: Some(self.range.resolution),
            reuses_names: self.reuse_names,
            proof: self.proof(trial),
            ..trial.facts
        }
    }

    /// Returns the duration of a trial plus the pause before it. The time needed to fill the DUT's
    /// cache is not included.
    pub fn each(&self) -> Duration {
        Duration::from(self.trial.duration + self.trial.timeout).saturating_add(self.pause)
    }

    /// Returns the largest factor by which short trials may overstate a rate. Short trials
    /// overstate rates, because replies that arrive after the end of sending also count.
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
        let sent = SelfTestSending { settings, priority, auth_checked: true, timeout: None };
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
        // RFC 8219 §9.2.1 allows the self-test at most a quarter of the timeout of the trials.
        let within = |timeout| {
            let sent = Some(SelfTestSending { timeout: Some(timeout), ..sent.clone() });
            PassedSelfTest { sent, ..test.clone() }.proof(&plan, &trial)
        };
        assert_eq!(within(Nanos(plan.timeout.0 / 4)), TesterProof::SelfTest { delta: 0.1 });
        assert_eq!(within(plan.timeout), TesterProof::OtherSettings { delta: 0.1 });
        // The trial has as many source addresses as the self-test, but they have a different IP
        // version.
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
            PassedSelfTest { sent: Some(SelfTestSending { auth_checked: false, ..sent }), ..test };
        assert_eq!(lax.proof_at_its_rate(&plan, &trial), TesterProof::OtherSettings { delta: 0.1 });
    }
}
