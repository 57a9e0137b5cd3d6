//! Functions used by both commands `quickstart` and `try`: a closed loop, a search with a temporary journal, and a
//! summary of invalid trials.

use std::collections::BTreeMap;
use std::path::Path;

use campaign::journal::{Journal, Lines, SearchEntry};
use campaign::plan::SearchPlan;
use campaign::search::{Runner, SearchError, SearchResult};
use method::reason::ReasonKind;
use method::verdict::Verdict;
use tester::client::closed_loop::{ClosedLoopPlan, ClosedLoopResult, run_until};
use tester::client::progress::Progress;
use tester::client::{Additional, Check, ClientSettings, Names, Source, Transport};
use tester::measurer::expect::Expectation;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, counted, grouped};

use crate::output::{Failure, rounded};
use crate::{interruption, progress};

/// Number of names in a closed loop. No name is queried twice if the server answers at most 2 million queries per
/// second.
pub(super) const CLOSED_LOOP_NAMES: u64 = 4_000_000;
/// Number of queries in flight in a closed loop.
const IN_FLIGHT: usize = 100;
/// Duration of a closed loop.
const CLOSED_LOOP: Nanos = Nanos(2 * Nanos::SECOND.0);

/// File name of the temporary journal.
const JOURNAL: &str = "journal.jsonl";

/// Advice to the user about invalid trials.
pub(super) const BUSY: &str =
    "this machine was busy: end other programs, then run dns64bench check";

/// Runs a closed loop with the server, the names and the expected addresses of `trial`.
///
/// # Errors
/// Returns an error if there is no route to the server.
pub(super) fn closed_loop(trial: &TrialPlan, quiet: bool) -> Result<ClosedLoopResult, Failure> {
    let names = Names::new(&trial.domain, trial.names, trial.first_name, CLOSED_LOOP_NAMES)
        .ok_or_else(|| Failure::usage(anyhow::anyhow!("too few names for a closed loop")))?;
    let plan = ClosedLoopPlan {
        settings: ClientSettings {
            server: trial.server,
            local: None,
            transport: Transport::Udp,
            source: Source::Names(names),
            additional: Additional::new(None, None, 0),
            check: Check::Address(Expectation {
                aaaa_share: trial.aaaa_share,
                check_own_aaaa: trial.check_own_aaaa,
                prefixes: trial.prefixes.clone(),
            }),
            timeout: Nanos::SECOND,
            offload: trial.offload,
            buffer: None,
            interval: None,
        },
        outstanding: IN_FLIGHT,
        threads: 1,
        source_ports: 1,
        cpus: Vec::new(),
        duration: Some(CLOSED_LOOP),
        most: None,
    };
    let title = format!("Closed loop for {}", rounded(CLOSED_LOOP.into()));
    let run = || run_until(&plan, &interruption::flag(), &Progress::new(plan.threads));
    progress::during(quiet, &title, |_| run()).map_err(Failure::environment)
}

/// Describes a closed loop: `12 345 valid answers per second with 100 queries in flight`.
pub(super) fn closed_loop_words(found: &ClosedLoopResult) -> String {
    let rate =
        counted(found.qps.round() as u64, "valid answer per second", "valid answers per second");
    format!("{rate} with {} in flight", counted(found.outstanding as u64, "query", "queries"))
}

/// Runs a set of searches with its journal in `folder`. Returns `None` if the set ended without a trial.
///
/// # Errors
/// Returns an error if a trial cannot be run, or if the user interrupts the program.
pub(super) fn search(
    plan: &SearchPlan,
    folder: &Path,
    runner: &mut dyn Runner,
) -> Result<Option<SearchResult>, SearchError> {
    let mut journal = Journal::create(&folder.join(JOURNAL), plan)?;
    campaign::search::run(plan, &mut journal, Vec::new(), runner)
}

/// Returns the result of the first `searches` searches of an interrupted set of searches, or `None` if `searches` is 0.
/// The result is computed from the journal of the set in `folder`. No trial is run, although the argument `runner` is
/// required.
///
/// # Errors
/// Returns an error if the journal cannot be read, or if the journal of the completed searches cannot be written.
pub(super) fn completed(
    plan: &SearchPlan,
    folder: &Path,
    searches: u32,
    runner: &mut dyn Runner,
) -> Result<Option<SearchResult>, SearchError> {
    if searches == 0 {
        return Ok(None);
    }
    let is_completed = |entry: &SearchEntry| match entry {
        SearchEntry::Plan(_) => false,
        SearchEntry::Started(started) => started.repeat < searches,
        SearchEntry::Finished(finished) => finished.repeat < searches,
    };
    let done = Lines::read(&folder.join(JOURNAL))?.into_iter().filter(is_completed).collect();
    let plan = SearchPlan { repeat: searches, ..plan.clone() };
    let mut journal = Journal::create(&folder.join("completed.jsonl"), &plan)?;
    campaign::search::run(&plan, &mut journal, done, runner)
}

/// Describes the number of invalid trials and their most frequent reason; `None` if no trial is invalid.
pub(super) fn invalid_trials(trials: &[TrialResult]) -> Option<String> {
    let invalid: Vec<_> = trials.iter().filter(|trial| trial.verdict == Verdict::Invalid).collect();
    if invalid.is_empty() {
        return None;
    }
    let mut reasons: BTreeMap<ReasonKind, usize> = BTreeMap::new();
    for reason in invalid.iter().flat_map(|trial| &trial.reasons) {
        *reasons.entry(reason.kind()).or_default() += 1;
    }
    let most = reasons.into_iter().max_by_key(|(_, times)| *times);
    let why = most.map_or(String::new(), |(kind, _)| format!(", most often: {kind}"));
    let of = counted(trials.len() as u64, "trial", "trials");
    Some(format!("{} of {of} invalid{why}", grouped(invalid.len() as u64)))
}

/// Returns the result of a closed loop with this rate.
#[cfg(test)]
pub(super) fn simulated(qps: f64) -> ClosedLoopResult {
    ClosedLoopResult {
        server: "[::1]:53".into(),
        outstanding: IN_FLIGHT,
        seconds: 2.0,
        elapsed: 2.0,
        interrupted: false,
        interrupted_queries: 0,
        client_drops: 0,
        counts: method::records::Counts::default(),
        qps,
        rcodes: BTreeMap::new(),
        truncated: 0,
        retried: 0,
        rtt_us: None,
        connections: tester::client::Connections::default(),
        connecting_us: None,
        tally: None,
        began: Nanos(0),
    }
}

#[cfg(test)]
mod tests {
    use method::reason::Reason;
    use method::records::Counts;
    use units::Qps;

    use super::*;

    #[test]
    fn invalid_trials_report_most_frequent_reason() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100));
        let valid =
            TrialResult::simulated(&plan, Counts { sent: 9, valid: 9, ..Counts::default() });
        let invalid = |reason| TrialResult {
            verdict: Verdict::Invalid,
            reasons: vec![reason],
            ..valid.clone()
        };
        let late = || Reason::Late { p999_us: 9e4, limit: Nanos::SECOND };
        assert_eq!(invalid_trials(std::slice::from_ref(&valid)), None);
        let trials = [invalid(late()), invalid(Reason::LedgerFull), invalid(late()), valid.clone()];
        assert_eq!(
            invalid_trials(&trials).as_deref(),
            Some(
                "3 of 4 trials invalid, most often: pacing: one query in a thousand was sent late"
            )
        );
    }
}
