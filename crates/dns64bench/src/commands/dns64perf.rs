//! `dns64perf++`: arguments and output of the original tester, with our Measurer.

use std::process::ExitCode;

use method::verdict::Verdict;
use tester::measurer::result::TrialResult;

use crate::args::Dns64perf;
use crate::interruption;
use crate::output::{Failure, INTERRUPTED, Outcome, SPOILED, grouped, is_interrupted};
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
    // The original has no verdicts: a server that fails is no error of the program.
    Ok(if trial.verdict == Verdict::Invalid { SPOILED.into() } else { ExitCode::SUCCESS })
}

/// Returns the lines of the original. Late replies count as received, but not as valid.
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
