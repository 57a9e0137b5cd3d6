//! `measure`: one trial at a constant rate.

use method::compliance::Facts;
use method::evidence::Deviation;
use method::reason::ReasonKind;
use tester::measurer::plan::TrialPlan;
use tester::measurer::recorder::Recorder;
use tester::measurer::result::TrialResult;
use tester::measurer::{TrialError, liveness};
use units::Nanos;

use crate::args::Measure;
use crate::intervals::Load;
use crate::output::{
    Failure, INTERRUPTED, Outcome, grouped, is_interrupted, print_json_if, print_trial, status_of,
};
use crate::progress::run_trial;
use crate::resolve::passed_self_test;
use crate::{interruption, metrics};

pub(crate) fn run(args: &Measure) -> Outcome {
    interruption::install_handlers()?;
    let plan = args.resolve()?;
    metrics::serve(args.display.metrics, "measure", &plan.cpus, args.display.quiet)?;
    let self_test = args.self_test.as_deref().map(passed_self_test).transpose()?;
    let files = args.intervals.open()?;
    if let Some(path) = &plan.records {
        Recorder::try_name(path).map_err(TrialError::from)?;
    }
    if args.asking.liveness {
        liveness::require_right(&plan, plan.names_needed())?;
    }
    let mut trial = run_trial(&plan, args.display.quiet, &format!("{} q/s", grouped(plan.rate.0)))?;
    if let Some(test) = self_test {
        trial.set_facts(Facts { proof: test.proof_at_its_rate(&plan, &trial), ..trial.facts });
    }
    // The result is printed before the files are written, because a write error must not discard it.
    if args.display.json {
        print_json_if(args.environment, &trial)?;
    } else {
        print_trial(&trial);
    }
    if is_interrupted(&trial) {
        return Ok(INTERRUPTED.into());
    }
    if let Some(intervals) = &trial.intervals {
        let began = Nanos((trial.started_unix_s * 1e9) as u64);
        files.write(&Load {
            generator: "dns64bench measure",
            timeout: plan.timeout,
            began,
            ended: began + plan.duration,
            counts: &trial.counts,
            intervals,
            connections: None,
        })?;
    }
    if let Some(why) = &trial.records_error {
        return Err(Failure::environment(anyhow::anyhow!(
            "{why}; the results of the trial are above"
        )));
    }
    if let Some(lost) = trial.reasons.iter().find(|r| r.kind() == ReasonKind::AuthLost) {
        return Err(Failure::environment(anyhow::anyhow!(
            "{lost}; the counts of the trial are above"
        )));
    }
    if let Some(advice) = cache_advice(&plan, &trial) {
        eprintln!("dns64bench: {advice}");
    }
    // These checks do not apply to a shard, because `merge` evaluates the whole trial.
    if args.asking.liveness && trial.counts.valid == 0 && plan.shard.is_none() {
        liveness::require_reply(&plan)?;
        if let Some(replies) = liveness::misconfigured(&plan, plan.names_needed(), &trial.counts) {
            eprintln!("dns64bench: every reply of {} is wrong: {replies}", plan.server);
        }
    }
    Ok(status_of(trial.verdict))
}

/// Returns advice if the actual cache hit rate was above the requested one. The cause is that the server had already
/// cached some of the names.
fn cache_advice(plan: &TrialPlan, trial: &TrialResult) -> Option<String> {
    let Some(Deviation::CachedShare { wanted, real }) = trial.deviation else { return None };
    let next = (plan.first_name + plan.names_needed()) % plan.names.count();
    (real > wanted).then(|| {
        format!("the names were not new to the server: clear its cache, or use new ones with --first-name {next}")
    })
}

#[cfg(test)]
mod tests {
    use method::records::Counts;
    use units::Qps;

    use super::*;

    #[test]
    fn names_from_the_cache_have_advice() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(10));
        let used = plan.names_needed();
        let advice = |first_name, wanted, real| {
            let plan = TrialPlan { first_name, ..plan.clone() };
            let counts = Counts { sent: used, valid: used, ..Counts::default() };
            let deviation = Some(Deviation::CachedShare { wanted, real });
            let trial = TrialResult { deviation, ..TrialResult::simulated(&plan, counts) };
            cache_advice(&plan, &trial)
        };
        let words = advice(100, 0.0, 1.0).unwrap();
        assert!(words.ends_with(&format!("--first-name {}", 100 + used)), "{words}");
        // After the last name of the block, the first one follows.
        let words = advice(plan.names.count() - 1, 0.0, 1.0).unwrap();
        assert!(words.ends_with(&format!("--first-name {}", used - 1)), "{words}");
        assert_eq!(advice(100, 0.6, 0.1), None, "names that were not cached");
    }
}
