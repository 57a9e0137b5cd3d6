//! Data of the scoreboard, a table of results with checks as rows and servers as columns.

use std::cmp::Reverse;

use crate::check::Level;
use crate::outcome::{Outcome, Report, Verdict};

/// A check and its outcome for each server.
pub(crate) struct Row<'a> {
    /// Fields that are the same for all servers: id, title, source, sentence, level.
    pub(crate) check: &'a Outcome,
    /// Outcome of the check for each server; `None` if the check was not run.
    pub(crate) cells: Vec<Option<&'a Outcome>>,
}

impl Row<'_> {
    /// Returns the worst verdict that any server has for this check.
    pub(crate) fn worst(&self) -> Verdict {
        self.verdicts().min().unwrap_or(Verdict::NotTried)
    }

    /// True if every server passes this check.
    pub(crate) fn is_passed_by_all(&self) -> bool {
        self.verdicts().count() == self.cells.len() && self.worst() == Verdict::Passed
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.cells.iter().flatten().map(|outcome| outcome.verdict)
    }

    fn failures(&self) -> usize {
        self.verdicts().filter(|verdict| *verdict == Verdict::Failed).count()
    }
}

/// Rows of the scoreboard, a table of results with a row for each check and a column for each server.
pub(crate) struct Board<'a> {
    rows: Vec<Row<'a>>,
}

impl<'a> Board<'a> {
    /// Creates the rows in the order of the checks in the reports. Checks that are only in a later report follow the
    /// checks of the earlier reports.
    pub(crate) fn from_reports(reports: &'a [Report]) -> Board<'a> {
        let mut rows: Vec<Row<'a>> = Vec::new();
        for (column, report) in reports.iter().enumerate() {
            for outcome in &report.outcomes {
                let known = rows.iter().position(|row| row.check.id == outcome.id);
                let at = known.unwrap_or_else(|| {
                    rows.push(Row { check: outcome, cells: vec![None; reports.len()] });
                    rows.len() - 1
                });
                rows[at].cells[column] = Some(outcome);
            }
        }
        Board { rows }
    }

    /// Returns the rows of the checks with these requirement levels. Failed checks come first, sorted by decreasing
    /// number of failing servers. Next are checks that were not run, or that test an unsupported feature. Checks that
    /// all servers pass come last.
    pub(crate) fn group(&self, levels: &[Level]) -> Vec<&Row<'a>> {
        let is_in = |row: &&Row<'a>| levels.contains(&row.check.level);
        let mut rows: Vec<&Row<'a>> = self.rows.iter().filter(is_in).collect();
        rows.sort_by_key(|row| (row.is_passed_by_all(), row.worst(), Reverse(row.failures())));
        rows
    }

    /// Returns the pairs of checks with opposite requirements. Each pair occurs once. The requirement of the first
    /// check is from an RFC, and that of the second is hardening advice.
    pub(crate) fn conflicts(&self) -> Vec<(&Row<'a>, &Row<'a>)> {
        let mut pairs: Vec<(&Row<'a>, &Row<'a>)> = Vec::new();
        for row in &self.rows {
            let opposite =
                |other: &&Row<'a>| row.check.contradicts.as_ref() == Some(&other.check.id);
            let Some(other) = self.rows.iter().find(opposite) else { continue };
            let is_advice = row.check.level == Level::Hardening;
            let (first, second) = if is_advice { (other, row) } else { (row, other) };
            let is_same = |(a, b): &(&Row<'_>, &Row<'_>)| {
                let ids = [&a.check.id, &b.check.id];
                ids.contains(&&first.check.id) && ids.contains(&&second.check.id)
            };
            if !pairs.iter().any(is_same) {
                pairs.push((first, second));
            }
        }
        pairs
    }
}
