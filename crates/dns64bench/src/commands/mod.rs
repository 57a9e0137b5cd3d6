//! Subcommands, one file each.

pub(crate) mod agent;
pub(crate) mod auth;
pub(crate) mod campaign;
pub(crate) mod check;
pub(crate) mod closed_loop;
pub(crate) mod conform;
pub(crate) mod dns64perf;
pub(crate) mod lab;
pub(crate) mod measure;
pub(crate) mod merge;
pub(crate) mod pages;
pub(crate) mod queryfile;
pub(crate) mod quickstart;
pub(crate) mod reference_dut;
pub(crate) mod report;
pub(crate) mod resperf;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod self_test;
pub(crate) mod send_cost;
mod short_run;
pub(crate) mod try_server;
pub(crate) mod zone;

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use tester::measurer::burst::SendCost;
use tester::measurer::plan::TrialPlan;
use tester::measurer::{TrialError, needs_send_cost};

use crate::output::Failure;

/// Returns the CPU time that sending costs on this host. The cost is the same for all trials with the same send
/// settings. It is measured only if the maximum batching delay in `plan` depends on the cost.
fn measured_send_cost(plan: &TrialPlan) -> Result<Option<SendCost>, TrialError> {
    if !needs_send_cost(plan) {
        return Ok(plan.send_cost);
    }
    SendCost::measure(plan.cpus.first().copied())
        .map(Some)
        .map_err(|source| TrialError::SendCost { source })
}

/// Exit status after a panic, as in other Rust programs.
const PANICKED: i32 = 101;

/// Installs a hook that ends the program after a panic in any thread. Otherwise a server would continue without one of
/// its threads, and the replies lost by that thread would look like losses of the DUT.
fn end_with_any_thread() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        eprintln!("dns64bench: a defect of this program; its measurements are not valid");
        std::process::exit(PANICKED);
    }));
}

/// Waits until SIGINT or SIGTERM arrives, or until `duration` has passed.
fn wait_for_end(duration: Option<Duration>) -> Result<(), Failure> {
    let end = duration.map(|d| Instant::now() + d);
    let mut signals =
        signal_hook::iterator::Signals::new([SIGINT, SIGTERM]).map_err(Failure::environment)?;
    while signals.pending().next().is_none() && end.is_none_or(|end| Instant::now() < end) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::thread;

    use super::*;

    /// Environment variable that is set in the test process whose thread panics.
    const ENDS: &str = "DNS64BENCH_TEST_ENDS";

    #[test]
    fn a_thread_that_panics_ends_the_program() {
        if env::var_os(ENDS).is_some() {
            end_with_any_thread();
            let _ = thread::spawn(|| panic!("one thread of many")).join();
            unreachable!("the program continues without its thread");
        }
        let this = "commands::tests::a_thread_that_panics_ends_the_program";
        let mut itself = Command::new(env::current_exe().unwrap());
        let output = itself.args([this, "--exact", "--nocapture"]).env(ENDS, "1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(PANICKED), "{stderr}");
        assert!(stderr.contains("one thread of many") && stderr.contains("a defect"), "{stderr}");
    }
}
