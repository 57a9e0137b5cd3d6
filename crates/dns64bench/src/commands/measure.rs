//! `measure`: one trial at one rate.

use crate::args::Measure;
use crate::output::{Outcome, print_json, print_trial, status_of};
use crate::progress::run_trial;

pub(crate) fn run(args: &Measure) -> Outcome {
    let trial = run_trial(&args.resolve(), args.display.quiet, &format!("{} q/s", args.rate))?;
    if args.display.json {
        print_json(&trial)?;
    } else {
        print_trial(&trial);
    }
    Ok(status_of(trial.verdict))
}
