//! Resolving names before a trial with a cached share, so that they are cached when it begins.

use crate::closed_loop::{self, ClosedLoopError, ClosedLoopPlan};

use super::expect::Expectation;
use super::plan::TrialPlan;
use super::trial::TrialError;

/// Names asked at once: few enough for any DUT, many enough to be done soon.
const AT_ONCE: usize = 64;
/// How many times the names are gone through before giving up; those that are cached by then cost little.
const PASSES: u32 = 5;

/// Resolves the names that the trial's first cached queries repeat. Returns how many could not be resolved.
pub(super) fn preload(plan: &TrialPlan, expectation: &Expectation) -> Result<u64, TrialError> {
    let count = plan.name_sequence().preloaded_count();
    let names = ClosedLoopPlan {
        server: plan.server,
        outstanding: AT_ONCE,
        threads: 1,
        source_ports: 4,
        cpus: Vec::new(),
        domain: plan.domain.clone(),
        names: plan.names,
        first_name: plan.first_name,
        count,
        duration: None,
        timeout: plan.timeout,
        expectation: expectation.clone(),
        offload: plan.offload,
    };
    let mut missing = count;
    for _ in 0..PASSES {
        let pass = closed_loop::run(&names).map_err(|error| match error {
            ClosedLoopError::Socket { server, source } => TrialError::Socket { server, source },
            other => unreachable!("TrialPlan::check has seen to that: {other}"),
        })?;
        missing = count - pass.counts.valid;
        // A server that resolves nothing at all is not asked again.
        if missing == 0 || pass.counts.valid == 0 {
            break;
        }
    }
    Ok(missing)
}
