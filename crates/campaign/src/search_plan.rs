//! What a set of searches is to do, and in which points that is not as RFC 8219 wants it.

use std::iter;
use std::time::Duration;

use method::compliance::{Facts, Proof};
use method::mlr::goal::Goal;
use method::precision::overstatement;
use method::search::SearchRange;
use method::selftest::allowed_rate;
use method::set::SetPlan;
use method::units::{Nanos, Qps};
use method::verdict::Acceptance;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::{SenderSettings, TrialPlan};
use tester::measurer::result::{Priority, TrialResult};

use crate::goal::{TypedGoal, distance};

/// What to search for, and by which trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SearchPlan {
    /// The trial, but for its rate and its first name.
    pub trial: TrialPlan,
    /// The rates between which is searched.
    pub range: SearchRange,
    /// How many searches there are, at least 1.
    pub repeat: u32,
    /// How long the tester waits between two trials.
    pub pause: Duration,
    /// Whether the names may begin again when the block is used up.
    pub reuse_names: bool,
    /// The self-test that the tester passed.
    pub self_test: Option<PassedSelfTest>,
    /// How rates are chosen.
    #[serde(default)]
    pub method: Method,
}

/// How the rates of a search are chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Halving the range with full trials, as RFC 8219 §9.2 has it.
    #[default]
    Bisection,
    /// MLRsearch (RFC 9971) for these goals; the first is that of RFC 8219, at the plan's duration
    /// and acceptance.
    MlrSearch(Vec<Goal>),
}

impl Method {
    /// MLRsearch: the first goal is that of RFC 8219 at this duration and acceptance, `others`
    /// follow.
    pub fn mlrsearch(
        duration: Duration,
        accept: Acceptance,
        width: f64,
        others: &[TypedGoal],
    ) -> Method {
        // 0.1 of 0.9, where the difference of the two numbers is a little less.
        let loss_ratio = ((1.0 - accept.0) * 1e12).round() / 1e12;
        let first = Goal { loss_ratio, ..Goal::rfc8219(duration.into(), width) };
        let others = others.iter().map(|goal| goal.goal(duration, width));
        Method::MlrSearch(iter::once(first).chain(others).collect())
    }
}

/// The self-test that says up to which rate results are more than lower bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PassedSelfTest {
    /// The rate at which it passed; of several the smallest.
    pub passed: Qps,
    /// The reserve δ of RFC 8219 §9.2 that it was made with, a fraction.
    pub delta: f64,
    /// Whether it is itself as RFC 8219 §9.2.1 wants it.
    #[serde(default)]
    pub compliant: bool,
    /// How it was sent; absent where only its rate is known.
    #[serde(default)]
    pub sent: Option<SelfTestSending>,
}

impl PassedSelfTest {
    /// Up to which rate it vouches for the tester in trials like `plan`.
    pub fn allowed(&self, plan: &TrialPlan) -> Qps {
        allowed_rate(self.passed, plan.aaaa_share, plan.cached_share, self.delta)
    }

    /// What vouches for the tester in `trial` of `plan`, whatever its rate is.
    pub fn proof(&self, plan: &TrialPlan, trial: &TrialResult) -> Proof {
        let delta = self.delta;
        let is_the_same = |sent: &SelfTestSending| {
            let same_priority = sent.priority == trial.sending.priority;
            // RFC 8219 §9.2.1 wants a quarter of the test's.
            let wanted = method::selftest::timeout(plan.timeout);
            let in_time = sent.timeout.is_none_or(|timeout| timeout <= wanted);
            sent.settings == plan.sender_settings() && same_priority && sent.held_auth && in_time
        };
        match &self.sent {
            Some(sent) if is_the_same(sent) && self.compliant => Proof::SelfTest { delta },
            Some(sent) if is_the_same(sent) => Proof::NotCompliant { delta },
            _ => Proof::OtherSettings { delta },
        }
    }

    /// As [`PassedSelfTest::proof`], of a single trial, whose rate must be one that the self-test
    /// vouches for.
    pub fn proof_at_its_rate(&self, plan: &TrialPlan, trial: &TrialResult) -> Proof {
        match (self.proof(plan, trial), self.allowed(plan)) {
            (Proof::SelfTest { delta } | Proof::NotCompliant { delta }, allowed)
                if plan.rate > allowed =>
            {
                Proof::BelowRate { delta, allowed }
            }
            (proof, _) => proof,
        }
    }
}

/// How a self-test was sent: it vouches for trials that are sent in the same way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestSending {
    /// What was asked for.
    pub settings: SenderSettings,
    /// The priority that the senders got.
    pub priority: Priority,
    /// Whether AuthDNS's own time was held to the limit.
    pub held_auth: bool,
    /// Its timeout, nanoseconds; absent in what older versions wrote.
    #[serde(default)]
    pub timeout: Option<Nanos>,
}

impl SearchPlan {
    /// The searches, each of full trials only.
    pub fn set(&self) -> SetPlan {
        SetPlan { range: self.range, repeat: self.repeat, probes: false }
    }

    /// How close passed and failed rates are to be; of an MLRsearch at the end of its range.
    pub(crate) fn wanted_resolution(&self) -> Qps {
        match &self.method {
            Method::Bisection => self.range.resolution,
            Method::MlrSearch(goals) => {
                goals.first().map_or(Qps(1), |goal| distance(goal.width, self.range.max))
            }
        }
    }

    /// The trial at `rate` whose names begin at `first_name`.
    pub fn trial_at(&self, rate: Qps, first_name: u64) -> TrialPlan {
        TrialPlan { rate, first_name, ..self.trial.clone() }
    }

    /// The most names that the set can take: every search of the full length, at the highest rate.
    /// Of an MLRsearch, which ends when it may, so many as its goals take at the least: two loads
    /// for each, at the highest rate.
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

    /// Up to which rate the self-test vouches for the tester.
    pub fn allowed(&self) -> Option<Qps> {
        self.self_test.as_ref().map(|test| test.allowed(&self.trial))
    }

    /// What vouches for the tester in trials like `trial`.
    pub fn proof(&self, trial: &TrialResult) -> Proof {
        self.self_test.as_ref().map_or(Proof::None, |test| test.proof(&self.trial, trial))
    }

    /// What decides whether the set is as RFC 8219 §9.2 wants it, where `trial` is one of its
    /// trials.
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

    /// How long a trial takes with the pause before it, but for the time in which names to be
    /// cached are resolved.
    pub fn each(&self) -> Duration {
        Duration::from(self.trial.duration + self.trial.timeout).saturating_add(self.pause)
    }

    /// By which factor the rates may be overstated, because replies after the end of short trials
    /// count as well.
    pub fn overstatement(&self) -> f64 {
        overstatement(self.trial.duration, self.trial.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use method::records::Counts;

    #[test]
    fn a_self_test_vouches_for_a_trial_that_is_sent_as_it_was_up_to_its_rate() {
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
        assert_eq!(test.proof_at_its_rate(&plan, &trial), Proof::SelfTest { delta: 0.1 });
        let faster = TrialPlan { rate: Qps(501), ..plan.clone() };
        let weak = PassedSelfTest { compliant: false, ..test.clone() };
        assert_eq!(weak.proof_at_its_rate(&plan, &trial), Proof::NotCompliant { delta: 0.1 });
        let below = Proof::BelowRate { delta: 0.1, allowed: Qps(500) };
        assert_eq!(test.proof_at_its_rate(&faster, &trial), below);
        let others = [
            TrialPlan { threads: 2, ..plan.clone() },
            TrialPlan { offload: !plan.offload, ..plan.clone() },
            TrialPlan { source_addresses: "::1/128".parse().ok(), ..plan.clone() },
        ];
        for other in others {
            assert_eq!(
                test.proof_at_its_rate(&other, &trial),
                Proof::OtherSettings { delta: 0.1 },
                "{other:?}"
            );
        }
        // RFC 8219 §9.2.1: a quarter of the test's timeout, or less.
        let within = |timeout| {
            let sent = Some(SelfTestSending { timeout: Some(timeout), ..sent.clone() });
            PassedSelfTest { sent, ..test.clone() }.proof(&plan, &trial)
        };
        assert_eq!(within(Nanos(plan.timeout.0 / 4)), Proof::SelfTest { delta: 0.1 });
        assert_eq!(within(plan.timeout), Proof::OtherSettings { delta: 0.1 });
        // Those of the trial are of another version of IP, and as many.
        let over_ipv4 = TrialPlan { source_addresses: "127.1.0.0/24".parse().ok(), ..plan.clone() };
        let over_ipv6 =
            TrialPlan { source_addresses: "2001:2:0:ff::/64".parse().ok(), ..plan.clone() };
        let from_many = PassedSelfTest {
            sent: Some(SelfTestSending { settings: over_ipv4.sender_settings(), ..sent.clone() }),
            ..test.clone()
        };
        assert_eq!(from_many.proof_at_its_rate(&over_ipv6, &trial), Proof::SelfTest { delta: 0.1 });
        assert_eq!(from_many.proof_at_its_rate(&plan, &trial), Proof::OtherSettings { delta: 0.1 });
        let lax =
            PassedSelfTest { sent: Some(SelfTestSending { held_auth: false, ..sent }), ..test };
        assert_eq!(lax.proof_at_its_rate(&plan, &trial), Proof::OtherSettings { delta: 0.1 });
    }
}
