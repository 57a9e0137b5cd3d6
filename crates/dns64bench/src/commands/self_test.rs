//! `self-test`: runs trials of the Measurer directly against AuthDNS (RFC 8219 §9.2.1).

use std::process::ExitCode;
use std::time::Duration;

use campaign::plan::{PassedSelfTest, SelfTestSending};
use campaign::search::{Runner, SearchProgress};
use method::noncompliance::Noncompliance;
use method::search::SearchRange;
use method::selftest::{allowed_rate, required_rate};
use method::set::{Set, SetPlan, smallest_pass};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use tester::measurer::TrialError;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Qps, Share};

use super::measured_send_cost;
use super::search::{Terminal, UsedNames};
use crate::args::SelfTest;
use crate::output::{
    DUT_FAILED, Failure, INVALID, Outcome, grouped, print_json, print_points, print_wrong,
};
use crate::{colour, interruption, metrics};

/// Result of a self-test.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct SelfTestResult {
    /// Highest rate at which DUTs will be tested.
    pub(crate) for_rate: Qps,
    /// AAAA record rate (α) used in the tests of DUTs.
    pub(crate) aaaa_share: Share,
    /// Cache hit rate (β) used in the tests of DUTs.
    pub(crate) cached_share: Share,
    /// Reserve δ of RFC 8219 §9.2.1 as a fraction: 0.1 is 10 %.
    pub(crate) delta: f64,
    /// Rate at which the self-test must pass to validate tests of DUTs at `for_rate`.
    pub(crate) required_rate: Qps,
    /// Highest rate at which the self-test passed. If the search was repeated, this is the lowest result of the
    /// searches. Absent if a search found no passing rate.
    pub(crate) passed_rate: Option<Qps>,
    /// Highest rate at which DUTs may be tested after a self-test that passed at `passed_rate`.
    pub(crate) allowed_rate: Option<Qps>,
    /// Verdict of the self-test: passed if the tester is reliable enough for tests of DUTs at `for_rate`.
    pub(crate) verdict: Verdict,
    /// Send settings of the self-test. The self-test validates only trials with the same settings. Absent if the
    /// scheduling priority changed during the self-test.
    pub(crate) sent: Option<SelfTestSending>,
    /// True if the self-test complies with RFC 8219 §9.2.1.
    pub(crate) compliant: bool,
    /// Deviations of the self-test from RFC 8219.
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    pub(crate) noncompliance: Vec<Noncompliance>,
    /// All trials in the order in which they were run.
    pub(crate) trials: Vec<TrialResult>,
}

impl SelfTestResult {
    /// Returns the send settings and the rate that the self-test validates, or `None` if the self-test did not pass.
    pub(crate) fn passed_self_test(&self) -> Option<PassedSelfTest> {
        Some(PassedSelfTest {
            passed: self.passed_rate?,
            delta: self.delta,
            compliant: self.compliant,
            sent: self.sent.clone(),
        })
    }
}

pub(crate) fn run(args: &SelfTest) -> Outcome {
    interruption::install_handlers()?;
    let plan = args.resolve()?;
    metrics::serve(args.display.metrics, "self-test", &plan.trial.cpus, args.display.quiet)?;
    let result = self_test(&plan, args.display.quiet, args.asking.liveness)?;
    if args.display.json {
        print_json(&result)?;
    } else {
        print(&result);
    }
    Ok(match result.verdict {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Failed => DUT_FAILED.into(),
        Verdict::Invalid => INVALID.into(),
    })
}

/// Plan of a self-test.
pub(crate) struct SelfTestPlan {
    /// Template of the trials; rate and first name are set for each trial.
    pub(crate) trial: TrialPlan,
    /// Highest rate at which DUTs will be tested.
    pub(crate) for_rate: Qps,
    /// AAAA record rate (α) used in the tests of DUTs.
    pub(crate) aaaa_share: Share,
    /// Cache hit rate (β) used in the tests of DUTs.
    pub(crate) cached_share: Share,
    /// Reserve δ of RFC 8219 §9.2.1 as a fraction: 0.1 is 10 %.
    pub(crate) delta: f64,
    /// Number of trials (or searches) that must pass; at least 1.
    pub(crate) repeat: u32,
    /// Upper end of a search for the highest rate; `None` to test the required rate only.
    pub(crate) search_to: Option<Qps>,
}

/// Runs the self-test.
///
/// # Errors
/// Returns an error if an argument is out of range, if a trial cannot be run, or if the user interrupts the program.
pub(crate) fn self_test(
    wanted: &SelfTestPlan,
    quiet: bool,
    liveness: bool,
) -> Result<SelfTestResult, Failure> {
    let &SelfTestPlan {
        ref trial,
        for_rate,
        aaaa_share: aaaa,
        cached_share: cached,
        delta,
        repeat,
        search_to,
    } = wanted;
    if !(0.0..=10.0).contains(&delta) || repeat == 0 {
        return Err(Failure::usage(anyhow::anyhow!(
            "--delta from 0 to 10 and --repeat of 1 or more are needed"
        )));
    }
    let required = required_rate(for_rate, aaaa, cached, delta);
    let range = range_from(required, search_to)?;
    let mut set = Set::new(SetPlan { range, repeat, probes: false });
    let mut trials: Vec<TrialResult> = Vec::new();
    // All trials may use the same names, because AuthDNS has no cache.
    let count = TrialPlan { rate: required, ..trial.clone() }.names_needed();
    let used = UsedNames { first: trial.first_name, count };
    let mut terminal = Terminal::new(quiet, liveness.then_some(used));
    let send_cost = measured_send_cost(&TrialPlan { rate: required, ..trial.clone() })?;
    let mut first_name = trial.first_name;
    // The loop ends when a search found no passing rate, because the self-test has then failed.
    while set.found().iter().all(|found| found.highest.is_some())
        && let Some(due) = set.next()
    {
        let plan = TrialPlan { rate: due.rate, send_cost, first_name, ..trial.clone() };
        first_name += plan.names_needed();
        let each = Duration::from(plan.duration + plan.timeout);
        let (number, bracket) = (trials.len() as u64 + 1, due.bracket);
        let standing = SearchProgress {
            repeat: due.repeat,
            of: repeat,
            rate: due.rate,
            bracket,
            number,
            forecast: None,
        }
        .with_trials_left(Some(set.trials_left()), each);
        let trial = terminal.trial(&plan, standing).map_err(|error| on_failure(error, &trials))?;
        terminal.finished(&trial);
        set.report(trial.verdict, &trial.counts);
        trials.push(trial);
    }
    let passed = smallest_pass(set.found());
    let verdict = match set.found().iter().find(|found| found.highest.is_none()) {
        None => Verdict::Passed,
        Some(found) if found.unmeasurable.is_some() => Verdict::Invalid,
        Some(_) => Verdict::Failed,
    };
    let noncompliance = trials.first().map(|t| t.noncompliance.clone()).unwrap_or_default();
    Ok(SelfTestResult {
        for_rate,
        aaaa_share: aaaa,
        cached_share: cached,
        sent: sending(&trials),
        compliant: noncompliance.is_empty(),
        delta,
        required_rate: required,
        passed_rate: passed,
        allowed_rate: passed.map(|p| allowed_rate(p, aaaa, cached, delta)),
        verdict,
        noncompliance,
        trials,
    })
}

/// Returns the range of rates to search: from the required rate to `search_to`. Without `search_to` the range contains
/// only the required rate.
fn range_from(required: Qps, search_to: Option<Qps>) -> Result<SearchRange, Failure> {
    let max = search_to.unwrap_or(required);
    if max < required {
        return Err(Failure::usage(anyhow::anyhow!(
            "--search-to {max} is below the required rate {required}"
        )));
    }
    let resolution = Qps((max.0 / 256).max(1));
    Ok(SearchRange { min: required, max, resolution, invalid_retries: 2 })
}

/// Returns the error that ends a self-test. If the server stopped responding or the user interrupted the program, the
/// error contains the highest rate that passed, because a self-test has no journal.
fn on_failure(error: TrialError, trials: &[TrialResult]) -> Failure {
    if !matches!(
        error,
        TrialError::NoAnswer { .. } | TrialError::NoAnswerToSource { .. } | TrialError::Interrupted
    ) {
        return error.into();
    }
    let highest = trials.iter().filter(|t| t.verdict == Verdict::Passed).map(|t| t.rate).max();
    let so_far = highest.map_or("no trial has passed".to_owned(), |rate| {
        format!("so far passed: {} queries/s", grouped(rate.0))
    });
    Failure::from(error).with_advice(&format!(
        "{so_far}; start it again, because it has not validated any rate yet"
    ))
}

/// Returns the send settings of the trials, or `None` if the settings differ between trials.
fn sending(trials: &[TrialResult]) -> Option<SelfTestSending> {
    let first = trials.first()?;
    let alike = |t: &&TrialResult| {
        t.settings == first.settings && t.sending.priority == first.sending.priority
    };
    trials.iter().all(|t| alike(&t)).then(|| SelfTestSending {
        settings: first.settings.clone(),
        priority: first.sending.priority,
        auth_checked: trials.iter().all(|t| t.auth.is_some()),
        timeout: Some(first.facts.timeout),
    })
}

fn print(result: &SelfTestResult) {
    let verdict = |verdict: Verdict| colour::verdict(verdict, &std::io::stdout());
    println!(
        "Self-test   {} for DUTs up to {} queries/s",
        verdict(result.verdict),
        grouped(result.for_rate.0)
    );
    println!("Required    {} queries/s (δ = {})", grouped(result.required_rate.0), result.delta);
    if let (Some(passed), Some(allowed)) = (result.passed_rate, result.allowed_rate) {
        let [passed, allowed] = [passed, allowed].map(|rate| grouped(rate.0));
        println!(
            "Passed      {passed} queries/s, which validates tests up to {allowed} (use --json, and search --self-test)"
        );
    }
    for trial in &result.trials {
        let reason = trial.reasons.first().map_or(String::new(), |r| format!(": {r}"));
        println!("Trial       {} at {}{reason}", verdict(trial.verdict), grouped(trial.rate.0));
        print_wrong(&trial.counts.wrong);
    }
    if result.trials.iter().any(|trial| trial.counts.wrong.no_aaaa > 0) {
        println!(
            "Reason      a self-test queries AuthDNS directly, whose names must all have AAAA records: auth --aaaa-share 1"
        );
    }
    print_points("Not RFC 8219 compliant", &result.noncompliance);
}
