//! `closed-loop`: a number of queries in flight, and how many are answered per second.

use std::process::ExitCode;

use tester::closed_loop::{ClosedLoopError, ClosedLoopResult, run as run_loop};

use crate::args::ClosedLoop;
use crate::output::{DUT_FAILED, Failure, Outcome, print_json, print_rtt, print_wrong};

pub(crate) fn run(args: &ClosedLoop) -> Outcome {
    let result = run_loop(&args.resolve()).map_err(|error| match error {
        ClosedLoopError::Socket { .. } => Failure::environment(error),
        _ => Failure::usage(error),
    })?;
    if args.display.json {
        print_json(&result)?;
    } else {
        print(&result);
    }
    Ok(if result.counts.valid > 0 { ExitCode::SUCCESS } else { DUT_FAILED.into() })
}

fn print(result: &ClosedLoopResult) {
    let c = &result.counts;
    println!("Answers     {:.0} valid per second, with {} queries in flight", result.qps, result.outstanding);
    println!(
        "Queries     {} sent in {:.3} s, {} valid, {} lost, {} wrong",
        c.sent,
        result.seconds,
        c.valid,
        c.lost,
        c.wrong.total()
    );
    print_wrong(&c.wrong);
    println!("Besides     {} stray or too late, {} refused by the kernel", c.stray, c.refused);
    print_rtt(result.rtt_us.as_ref());
}
