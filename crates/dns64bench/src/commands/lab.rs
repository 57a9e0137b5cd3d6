//! `lab`: creates and removes three network namespaces, which are connected as described in `hosts::lab`.

use std::process::ExitCode;

use hosts::lab;

use crate::args::{Lab, LabAction};
use crate::output::{Failure, Outcome};

pub(crate) fn run(args: &Lab) -> Outcome {
    match &args.action {
        LabAction::Up => {
            lab::up().map_err(Failure::environment)?;
            eprintln!(
                "The lab is up: tester 2001:2::2 ─ 2001:2::1 dut 198.18.0.1 ─ 198.18.0.2 auth;"
            );
            eprintln!(
                "self-test link: tester 198.18.1.1, 2001:2:1::1 ─ 198.18.1.2, 2001:2:1::2 auth"
            );
        }
        LabAction::Down => {
            if !lab::down().map_err(Failure::environment)? {
                eprintln!("The lab was not up.");
            }
        }
        LabAction::Exec { name, command } => {
            return Err(Failure::environment(lab::exec(*name, command)));
        }
        LabAction::Hold => lab::hold(),
        LabAction::Reach { addresses } => lab::reach(addresses).map_err(Failure::environment)?,
    }
    Ok(ExitCode::SUCCESS)
}
