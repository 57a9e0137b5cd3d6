//! A run shown in a report, and the order of its DUTs.

use std::path::Path;

use campaign::archive::{self, ArchiveError, journal_header};
use campaign::results::{DutResult, NoResult, PointResult, Results, SelfTestResult};

/// Returns the worst-case result of a DUT (compulsory test of RFC 8219 §9.2), at the first CPU placement in the plan.
pub(crate) fn worst_point(dut: &DutResult) -> Option<&PointResult> {
    dut.points.iter().find(|p| p.conditions.is_worst_case())
}

/// A run, with its name in a comparison.
pub struct Run {
    /// Name of the run folder.
    pub name: String,
    /// Results, computed from the journal of the run.
    pub results: Results,
    /// Notes that precede all other contents of the report.
    pub notes: Vec<String>,
}

impl Run {
    /// Returns the name of the plan. If the name of the run folder differs from it, the folder name is appended.
    pub fn title(&self) -> String {
        let plan = &self.results.plan.name;
        if *plan == self.name { plan.clone() } else { format!("{plan} ({})", self.name) }
    }

    /// Reads a run folder of a complete or incomplete run.
    ///
    /// # Errors
    /// Returns an error if `folder` is not a run folder, or its journal is empty.
    pub fn read(folder: &Path) -> Result<Run, ArchiveError> {
        let (plan, environment, entries) = archive::read(folder)?;
        if entries.is_empty() {
            return Err(ArchiveError::Empty { folder: folder.into() });
        }
        let name = folder
            .file_name()
            .map_or_else(|| plan.name.clone(), |name| name.to_string_lossy().into_owned());
        let notes = journal_header::difference_of(&plan, folder).into_iter().collect();
        Ok(Run { name, results: Results::compute(&plan, &environment, &entries), notes })
    }
}

/// True if the self-test of the tester has ended without a passing rate. The results of the run are
/// then lower bounds, and the servers are not ranked.
pub(crate) fn has_failed_self_test(results: &Results) -> bool {
    let is_over = |test: &SelfTestResult| {
        !matches!(test.missing, Some(NoResult::NotBegun { .. } | NoResult::Unfinished))
    };
    results.own_self_test().is_some_and(|test| is_over(test) && test.allows.is_none())
}

/// Returns the DUTs of a run, sorted by their worst-case results ([`worst_point`]). The fastest DUT is first, and DUTs
/// without a result are last. If the self-test failed, the DUTs are in plan order.
pub(crate) fn ranked(results: &Results) -> Vec<&DutResult> {
    let mut all: Vec<&DutResult> = results.duts.iter().collect();
    if !has_failed_self_test(results) {
        all.sort_by(|a, b| match (worst_point(a), worst_point(b)) {
            (Some(a), Some(b)) => a.by_result(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
    }
    all
}

/// Returns the DUTs of all runs, run by run. The order within a run is that of [`ranked`].
pub(crate) fn each_dut(runs: &[Run]) -> impl Iterator<Item = (&Run, &DutResult)> {
    runs.iter().flat_map(|run| ranked(&run.results).into_iter().map(move |dut| (run, dut)))
}

/// Returns the name of a DUT for a legend. If there are several runs, the text includes the name of
/// the run.
pub(crate) fn legend(run: &Run, dut: &str, many: bool) -> String {
    if many { format!("{dut} ({})", run.name) } else { dut.into() }
}

/// Returns `note`, followed by a caveat for each AuthDNS that does not count queries.
pub(crate) fn with_proof(run: &Run, note: &str) -> String {
    run.results.without_counters().iter().fold(note.to_owned(), |note, auth| {
        format!("{note} Cached shares are unproven with {auth} as AuthDNS, because it does not count queries.")
    })
}

#[cfg(test)]
mod tests {
    use campaign::archive::Archive;
    use campaign::plan::Plan;
    use hosts::environment::Environment;

    use super::*;

    #[test]
    fn an_empty_journal_has_no_report() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let plan = Plan::load(Path::new("smoke")).unwrap();
        Archive::create(&folder, &plan, Environment::for_tests()).unwrap();
        std::fs::write(folder.join("journal.jsonl"), "").unwrap();
        let error = Run::read(&folder).err().unwrap().to_string();
        assert!(error.contains("is empty") && error.contains("campaign resume"), "{error}");
    }
}
