//! All tables and figures of a report.

use crate::chart::Figure;
use crate::run::Run;
use crate::table::Table;
use crate::{pacing, sections, servers, tables, valid_replies};

/// Returns all figures that the runs have data for.
pub(crate) fn figures(runs: &[Run]) -> Vec<Figure> {
    let measured = sections::all().flat_map(|measure| measure.figures(runs));
    valid_replies::figures(runs).into_iter().chain(measured).chain(pacing::pacing(runs)).collect()
}

/// Returns the tables of one run.
pub(crate) fn tables(run: &Run) -> Vec<Table> {
    let measured = sections::all().flat_map(|measure| measure.tables(run));
    measured.chain([tables::cross_check(run), tables::trials(run), tables::health(run)]).collect()
}

/// Returns the tables of all runs together: first the comparison of the servers.
pub(crate) fn comparisons(runs: &[Run]) -> Vec<Table> {
    let measured = sections::all().flat_map(|measure| measure.comparisons(runs));
    servers::table(runs).into_iter().chain(measured).collect()
}
