//! All tables and figures of a report. Each kind of measurement has a section. The section's module
//! has the same name as in `campaign::sequence`.

mod closed_loop;
pub(crate) mod conform;
mod constant_rate;
mod load;
pub(crate) mod search;
pub(crate) mod self_test;
mod sustained;

use campaign::sequence::{
    ClosedLoopMeasure, ConformMeasure, ConstantRateMeasure, LoadMeasure, SearchMeasure,
    SelfTestMeasure,
};

use crate::section::Section;

use crate::chart::Figure;
use crate::run::Run;
use crate::table::Table;
use crate::{pacing, servers, tables, valid_replies};

/// All sections, in the order of the kinds of measurement.
pub(crate) const ALL: [&dyn Section; 6] = [
    &SelfTestMeasure,
    &SearchMeasure,
    &LoadMeasure,
    &ConstantRateMeasure,
    &ClosedLoopMeasure,
    &ConformMeasure,
];

/// Returns all figures for which the runs contain data.
pub(crate) fn figures(runs: &[Run]) -> Vec<Figure> {
    let measured = ALL.iter().flat_map(|measure| measure.figures(runs));
    valid_replies::figures(runs).into_iter().chain(measured).chain(pacing::pacing(runs)).collect()
}

/// Returns the tables of one run.
pub(crate) fn tables(run: &Run) -> Vec<Table> {
    let measured = ALL.iter().flat_map(|measure| measure.tables(run));
    measured.chain([tables::cross_check(run), tables::trials(run), tables::health(run)]).collect()
}

/// Returns the tables of all runs together. The comparison of the servers is first.
pub(crate) fn comparisons(runs: &[Run]) -> Vec<Table> {
    let measured = ALL.iter().flat_map(|measure| measure.comparisons(runs));
    servers::table(runs).into_iter().chain(measured).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_has_its_section() {
        let measures = campaign::sequence::ALL.map(|measure| measure.name());
        assert_eq!(ALL.map(|section| section.name()), measures);
    }
}
