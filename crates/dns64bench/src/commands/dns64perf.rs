//! `dns64perf++`: a trial by the Measurer, with the arguments and output of the original dns64perf++.

use std::process::ExitCode;

use method::verdict::Verdict;
use tester::measurer::result::TrialResult;

use crate::args::Dns64perf;
use crate::interruption;
use crate::output::{Failure, INTERRUPTED, INVALID, Outcome, grouped, is_interrupted};
use crate::progress::run_trial;

pub(crate) fn run(args: &Dns64perf) -> Outcome {
    interruption::install_handlers()?;
    let plan = args.resolve()?;
    let trial = run_trial(&plan, false, &format!("{} q/s", grouped(plan.rate.0)))?;
    print!("{}", printed(&trial));
    if let Some(why) = &trial.records_error {
        return Err(Failure::environment(anyhow::anyhow!("{why}")));
    }
    if is_interrupted(&trial) {
        return Ok(INTERRUPTED.into());
    }
    for reason in trial.reasons.iter().filter(|_| trial.verdict == Verdict::Invalid) {
        eprintln!("dns64perf++: the tester invalidated this trial: {reason}");
    }
    // The original dns64perf++ has no verdicts, so a trial that the server failed also ends with status 0.
    Ok(if trial.verdict == Verdict::Invalid { INVALID.into() } else { ExitCode::SUCCESS })
}

/// Returns the output in the format of dns64perf++. Late replies count as received, but not as valid.
fn printed(trial: &TrialResult) -> String {
    let c = &trial.counts;
    let received = c.valid + c.late + c.wrong.total();
    let pct = |n: u64| n as f64 / c.sent.max(1) as f64 * 100.0;
    let (mean, deviation) = trial.rtt_us.as_ref().map_or((0.0, 0.0), |rtt| (rtt.mean, rtt.stdev));
    format!(
        "Sent queries: {}\nReceived answers: {received} ({:.2}%)\nValid answers: {} ({:.2}%)\n\
         Average round-trip time: {:.2} ms\nStandard deviation of the round-trip time: {:.2} ms\n",
        c.sent,
        pct(received),
        c.valid,
        pct(c.valid),
        mean / 1000.0,
        deviation / 1000.0
    )
}
