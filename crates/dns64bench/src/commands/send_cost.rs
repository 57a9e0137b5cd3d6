//! `send-cost`: measures the CPU time that a sending thread needs for a wake-up and for a query. A campaign runs this
//! command once for all trials.

use std::process::ExitCode;

use tester::measurer::burst::SendCost;
use units::CpuId;

use crate::args::SendCostArguments;
use crate::output::{Failure, Outcome, print_versioned};

pub(crate) fn run(args: &SendCostArguments) -> Outcome {
    let cost = SendCost::measure(args.cpu.map(CpuId)).map_err(Failure::environment)?;
    print_versioned(&cost)?;
    Ok(ExitCode::SUCCESS)
}
