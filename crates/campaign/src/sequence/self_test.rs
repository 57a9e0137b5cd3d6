//! Self-test: the Measurer queries AuthDNS without a DUT (RFC 8219 §9.2.1). A self-test shows the
//! rate up to which the tester is reliable. To compare authoritative servers, a plan has one self-test
//! for each of them.

use std::time::Duration;

use method::search::SearchRange;
use method::selftest::{self, MIN_DELTA, factor};
use method::set::SetPlan;
use tester::measurer::plan::{Subject, TrialPlan};
use units::{Share, counted};

use crate::plan::{DutPlan, Family, FurtherSelfTest, Plan, Point, SelfTestTarget};
use crate::record::Step;
use crate::sequence::measure::{Measure, Paper, PaperItem};
use crate::sequence::replay::Recorded;
use crate::sequence::search::{check_range, effort};
use crate::sequence::steps::{SearchSequence, Task, TrialSequence};

/// The measurement of `[self-test]`: searches in which the Measurer queries AuthDNS directly.
pub struct SelfTestMeasure;

impl Measure for SelfTestMeasure {
    fn name(&self) -> &'static str {
        "self-test"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let (Some(test), None) = (&plan.self_test, dut) else { return Vec::new() };
        let also = |&FurtherSelfTest { server, family, cores }: &FurtherSelfTest| {
            Point::SelfTest(SelfTestTarget { server, family, cores, named: None })
        };
        // Each AuthDNS that a DUT queries needs a self-test, because each AuthDNS and the Measurer
        // form a different tester.
        let asked = plan.auths_of_duts().into_iter().filter_map(|auth| plan.self_test_with(auth));
        plan.own_self_test().into_iter().chain(asked).chain(test.also.iter().map(also)).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let Some(test) = &plan.self_test else { return Ok(()) };
        check_range("self-test", (test.min, test.max), test.resolution, test.repeat)?;
        let most = plan.cpus.auth.len();
        let hosts = plan.ssh.as_ref().map_or(1, |ssh| ssh.auth_hosts().len());
        if (test.repeat as usize) < hosts {
            return Err(format!(
                "[self-test] repeat: {} for {hosts} AuthDNS; each search queries one of them, and the smallest result counts",
                counted(test.repeat.into(), "search", "searches")
            ));
        }
        let over_ssh = plan.ssh.as_ref().map(|ssh| ssh.self_test_addresses()[0].is_ipv6());
        let other = |also: &FurtherSelfTest| {
            also.family
                .is_some_and(|family| over_ssh.is_some_and(|v6| v6 != (family == Family::Ipv6)))
        };
        if test.also.iter().any(other) {
            return Err(
                "[[self-test.also]] family: [ssh.addresses] has no such address for self-tests"
                    .into(),
            );
        }
        match test
            .also
            .iter()
            .find_map(|also| also.cores.filter(|&cores| cores == 0 || cores > most))
        {
            Some(cores) => {
                Err(format!("[[self-test.also]] cores: {cores} of the {most} CPUs in [cpus] auth"))
            }
            None => Ok(()),
        }
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        set_of(plan, point)
            .map_or((0, Duration::ZERO), |set| effort(&set, plan.takes(plan.trial.duration), None))
    }

    fn sequence(&self, recorded: &Recorded<'_>, point: &Point) -> Option<TrialSequence> {
        set_of(recorded.plan, point)
            .map(|set| TrialSequence::Searches(SearchSequence::bisection(set)))
    }

    fn restarts_servers(&self) -> bool {
        true
    }

    fn task(&self, plan: &Plan, _: &Step, mut base: TrialPlan) -> Task {
        base.timeout = selftest::timeout(base.timeout);
        base.aaaa_share = Share::ONE;
        let delta = plan.self_test.as_ref().map_or(MIN_DELTA, |test| test.delta);
        base.subject = Subject::Tester { factor: factor(Share::ZERO, Share::ZERO, delta), delta };
        Task::Trial(Box::new(base))
    }

    fn paper_items(&self, plan: &Plan, point: &Point) -> Vec<PaperItem> {
        let Point::SelfTest(at) = point else { return Vec::new() };
        vec![Paper::Benchmarking.has(match (plan.auth_at(point).cores, at.family) {
            (Some(1), _) => "Table IV",
            (_, Some(Family::Ipv6)) => "Table II",
            _ => "Table I",
        })]
    }
}

/// Returns the plan of the searches of a self-test: how many there are, and the range of rates that they search.
fn set_of(plan: &Plan, point: &Point) -> Option<SetPlan> {
    let (Some(t), Point::SelfTest(_)) = (&plan.self_test, point) else { return None };
    let range = SearchRange {
        min: t.min,
        max: t.max,
        resolution: t.resolution,
        invalid_retries: plan.search.invalid_retries,
    };
    Some(SetPlan { range, repeat: t.repeat, probes: false })
}
