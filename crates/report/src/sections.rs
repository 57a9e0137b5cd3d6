//! The sections of a report, one per measure, under the name that the measure has in `campaign::sequence`.

mod closed_loop;
pub(crate) mod conform;
mod constant_rate;
pub(crate) mod load;
pub(crate) mod search;
pub(crate) mod self_test;
mod sustained;

use crate::section::Section;

/// All sections with the names of their measures, in the order of these.
const ALL: [(&str, &dyn Section); 6] = [
    ("self-test", &self_test::SelfTestSection),
    ("search", &search::SearchSection),
    ("load", &load::LoadSection),
    ("constant rate", &constant_rate::ConstantRateSection),
    ("closed loop", &closed_loop::ClosedLoopSection),
    ("conform", &conform::ConformSection),
];

/// All sections, in the order of the measures.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Section> {
    ALL.into_iter().map(|(_, section)| section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_has_its_section() {
        let measures = ALL.map(|(measure, _)| measure);
        assert_eq!(measures, campaign::sequence::ALL.map(|measure| measure.name()));
    }
}
