//! Results of self-tests.

use std::fmt;
use std::net::SocketAddr;

use method::precision::Figures;
use method::search::Found;
use method::selftest::allowed_rate;
use method::set::smallest_pass;
use serde::{Deserialize, Serialize};
use units::{Qps, Share};

use crate::plan::{Family, Point};
use crate::results::no_result::NoResult;
use crate::results::search::{Trials, count};
use crate::sequence::Recorded;

/// Result of a self-test.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestResult {
    /// Name of the server that acts as AuthDNS.
    pub server: String,
    /// IP version of the queries; absent if no trial was run.
    pub family: Option<Family>,
    /// Number of CPUs that the server was confined to; absent if it was not confined.
    pub cores: Option<usize>,
    /// True if the self-test validates the tester for trials of the plan. False for a self-test
    /// that serves for comparison only.
    #[serde(rename = "vouches")]
    pub validates_trials: bool,
    /// Smallest result of the searches, queries per second; absent if a search found no passing
    /// rate.
    pub passed: Option<Qps>,
    /// Rate, in queries per second, up to which the tester is validated for trials without AAAA
    /// records and without cached names.
    pub allows: Option<Qps>,
    /// Statistics of the results of all searches, in queries per second.
    pub figures: Figures,
    /// Result of each search, in order; rates in queries per second.
    pub found: Vec<Found>,
    /// True if all searches of the self-test have ended.
    pub complete: bool,
    /// Reason why there is no result; absent if there is a result.
    pub missing: Option<NoResult>,
    /// Counts of the full-length trials and of the invalid trials.
    pub trials: Trials,
}

/// True if a complete self-test has a result. The caller checks that the self-test is complete.
pub(crate) fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    let replay = recorded.replay(point);
    replay.is_some_and(|replay| {
        replay
            .sequence
            .searches()
            .is_some_and(|set| set.found().iter().all(|f| f.highest.is_some()))
    })
}

/// Returns the reason why the self-test has no result, or `None` if it has a result.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    let test = result(recorded, point)?;
    test.missing.or(test.passed.is_none().then_some(NoResult::NoPassingRate))
}

/// Returns the result of a self-test.
pub(super) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<SelfTestResult> {
    let (Point::SelfTest(at), Some(test)) = (point, &recorded.plan.self_test) else { return None };
    let replay = recorded.replay(point)?;
    let found = replay.sequence.searches()?.found();
    let passed = smallest_pass(&found);
    let is_own = recorded.plan.own_self_test().as_ref() == Some(point);
    let figures = Figures::of(&found, 1.0, test.resolution);
    let asked = replay.trials.first().and_then(|m| m.at_rate()?.server.parse::<SocketAddr>().ok());
    let missing = match (figures.n, replay.trials.is_empty(), found.is_empty()) {
        (0, true, _) => Some(NoResult::not_begun(recorded, point)),
        (0, _, true) => Some(NoResult::Unfinished),
        (0, ..) => Some(NoResult::Invalid),
        _ => None,
    };
    Some(SelfTestResult {
        server: at.named.clone().unwrap_or_else(|| at.server.name().into()),
        family: asked.map(|a| if a.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }).or(at.family),
        cores: Some(recorded.plan.auth_cpus(point).len()).filter(|&cores| cores > 0),
        validates_trials: at.named.is_some() || is_own,
        passed,
        allows: passed.map(|p| allowed_rate(p, Share::ZERO, Share::ZERO, test.delta)),
        figures,
        found,
        complete: replay.due().is_none(),
        missing,
        trials: count(replay.trials.iter().copied()),
    })
}

/// A self-test in which a search found no passing rate.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedSelfTest {
    /// The measurement point of the failed self-test.
    pub point: Point,
    /// Rate of the last trial, queries per second.
    pub rate: Qps,
    /// Reason why the last trial did not pass.
    pub reason: String,
}

impl fmt::Display for FailedSelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedSelfTest { point, rate, reason } = self;
        write!(
            f,
            "the {point} failed: no rate passed, the last trial was at {rate} queries/s ({reason})"
        )
    }
}

impl<'a> Recorded<'a> {
    /// Returns the first failed self-test, or `None` if no self-test failed. Self-tests that serve for comparison only
    /// are ignored. A self-test fails if a search found no passing rate.
    pub fn failed_self_test(&self) -> Option<FailedSelfTest> {
        self.plan.points().into_iter().find_map(|point| {
            let result = result(self, &point)?;
            if !result.validates_trials || !result.complete || result.passed.is_some() {
                return None;
            }
            let replay = self.replay(&point)?;
            let (rate, reason) = replay
                .trials
                .last()
                .map(|last| (last.step.rate, last.reasons().first().map(ToString::to_string)))?;
            Some(FailedSelfTest { point, rate, reason: reason.unwrap_or_default() })
        })
    }
}
