//! A trial from plan to result, as a chain of states. Each state consumes the previous state.
//!
//! ```text
//! TrialPlan ─ check ─► Prepared ─ begin ─► Started ─ await_end ─► Finished ─ into_result ─► TrialResult
//!                      ports, rings        threads, counters      counts, losses
//! ```

mod finished;
mod prepared;
mod started;

use std::io;
use std::sync::Arc;

use method::reason::Reason;
use method::records::Counts;
use net::clock;
use units::Nanos;

use self::finished::{Finished, TrialTotals};
use self::prepared::{NotStarted, Prepared, TrialContext};
use self::started::Started;
use super::error::TrialError;
use super::host_losses;
use super::plan::TrialPlan;
use super::preload::preload;
use super::result::TrialResult;
use super::thread_pair::Progress;
use crate::authdns::auth_delta::AuthDelta;
use crate::authdns::counters::AuthCounters;
use crate::authdns::status::Session;

/// Carries out one trial. `progress` must have been created for the same plan.
///
/// # Errors
/// Returns an error only if the trial cannot be carried out. Failures of the server are reported in the result instead.
/// A trial of several testers is invalid if one of them is not ready at the common start.
pub fn run(plan: &TrialPlan, progress: &Arc<Progress>) -> Result<TrialResult, TrialError> {
    plan.check()?;
    plan.check_sources()?;
    plan.check_xdp()?;
    let auth = AuthWatch::begin(plan)?;
    let finished = match carry_out(plan, progress) {
        Ok(finished) => Ok(finished),
        Err(NotStarted::Invalid(reason)) => Err(reason),
        Err(NotStarted::Error(error)) => return Err(error),
    };
    let auth = auth.map(AuthWatch::end);
    let mut result = match finished {
        Ok(finished) => finished.into_result(),
        Err(reason) => TrialResult::not_begun(plan, vec![reason]),
    };
    match auth {
        None => {}
        Some(Ok(delta)) => result.apply_auth(delta, plan.auth_limit, plan.subject),
        // Without AuthDNS's counters there is no valid verdict.
        Some(Err(error)) => result.invalidate([Reason::AuthLost { error: error.to_string() }]),
    }
    Ok(result)
}

/// Sends the queries and checks the replies. Does not read AuthDNS's counters.
fn carry_out<'a>(
    plan: &'a TrialPlan,
    progress: &'a Arc<Progress>,
) -> Result<Finished<'a>, NotStarted> {
    // After the common start, preloading would disturb the trial of the other testers.
    if let Some(shard) = &plan.shard {
        shard.has_time()?;
    }
    let next_hop = host_losses::reach(plan.server)?;
    let unresolved = preload(plan, progress.stop())?;
    if progress.is_stopped() {
        return Err(TrialError::Interrupted.into());
    }
    if unresolved > 0 {
        return Err(NotStarted::Invalid(Reason::NotPreloaded { names: unresolved }));
    }
    let prepared = Prepared::new(plan, progress, &next_hop)?;
    let started = Started::begin(prepared)?;
    Ok(Finished::await_end(started)?)
}

/// The trial's connection to AuthDNS's status socket, and AuthDNS's counters before the first query.
struct AuthWatch<'a> {
    plan: &'a TrialPlan,
    session: Session,
    before: AuthCounters,
}

impl<'a> AuthWatch<'a> {
    /// Reports the beginning of the trial to AuthDNS, if the plan contains the path of AuthDNS's status socket.
    fn begin(plan: &'a TrialPlan) -> Result<Option<AuthWatch<'a>>, TrialError> {
        let Some(path) = plan.auth_status.as_deref() else { return Ok(None) };
        let (session, before) = Session::begin(path).map_err(auth_status(plan))?;
        Ok(Some(AuthWatch { plan, session, before }))
    }

    /// Reports the end of the trial to AuthDNS, and returns the change of AuthDNS's counters.
    fn end(self) -> io::Result<AuthDelta> {
        let after = self.session.end()?;
        Ok(AuthDelta::between(&self.before, &after, self.plan.timeout, self.plan.auth_limit))
    }
}

fn auth_status(plan: &TrialPlan) -> impl Fn(io::Error) -> TrialError {
    let path = plan.auth_status.clone().unwrap_or_default();
    move |source| TrialError::AuthStatus { path: path.clone(), source }
}

/// Sends all queries of `plan`, calls `await_replies`, then reads and checks the replies, all in the
/// calling thread.
///
/// All queries are due at the start, and all replies have arrived before they are read. The number of instructions
/// therefore does not depend on the clock. The plan must have one pair of threads. It must contain no queries for
/// cached names, no division of the trial among several testers, and no AF_XDP.
///
/// # Errors
/// Returns any error from [`run`] or `await_replies`.
#[doc(hidden)]
pub fn run_without_clock(
    plan: &TrialPlan,
    await_replies: impl FnOnce() -> io::Result<()>,
) -> Result<Counts, TrialError> {
    plan.check()?;
    let next_hop = host_losses::reach(plan.server)?;
    let progress = Progress::new(plan);
    let prepared = Prepared::new(plan, &progress, &next_hop)?;
    let start = Nanos(clock::now().0.saturating_sub(plan.duration.0));
    let run = TrialContext { start, recorder: None };
    let (sender, receiver) = prepared.pair(0, &prepared.ports[0], None, run);
    let sent = sender.run();
    await_replies().map_err(|source| TrialError::Socket { server: plan.server, source })?;
    Ok(TrialTotals::of(plan, vec![(sent, receiver.run())]).counts)
}
