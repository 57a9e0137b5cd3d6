//! Names of cores, CPU placements and AuthDNS servers in column headings, legends and captions.

use campaign::plan::Cores;
use campaign::results::{NoResult, PointResult};
use hosts::place::{CpuPlacement, cores_in_words};
use method::set::LowerBound;

use crate::wording;

/// Returns the name of a CPU placement in column headings.
fn place_name(place: &Cores) -> String {
    let name = place.placement.clone().unwrap_or_else(|| place.cores.to_string());
    place.authdns.as_ref().map_or(name.clone(), |authdns| format!("{name} with {authdns}"))
}

/// Texts that describe the result of a measurement point in a report.
pub(crate) trait PointWords {
    /// Returns caveats about the result, or the reason for its absence; empty if there is neither.
    fn mark(&self) -> String;

    /// Returns the observed CPU placement of the DUT as text. If no placement was observed, the text contains the
    /// requested number of cores.
    fn ran_on(&self) -> String;

    /// Returns the heading of a column or row: the requested cores or CPU placement, and any deviation from the
    /// request.
    fn column(&self) -> String;

    /// Returns the cores to which the DUT was confined, as text for legends and captions.
    fn on_cores(&self) -> String;
}

impl PointWords for PointResult {
    fn mark(&self) -> String {
        if let Some(why) = &self.missing {
            return why.to_string();
        }
        let validated = self.lower_bound_reasons.iter().filter_map(|reason| match reason {
            LowerBound::SelfTest { .. } => Some(wording::lower_bound(reason)),
            _ => None,
        });
        let objection = Some(wording::objection(&self.figures)).filter(|words| !words.is_empty());
        objection.into_iter().chain(validated).collect::<Vec<_>>().join("; ")
    }

    fn ran_on(&self) -> String {
        ran_on(&self.conditions.place, self.place.as_ref())
    }

    fn column(&self) -> String {
        column(&self.conditions.place, self.place.as_ref(), self.missing.as_ref())
    }

    fn on_cores(&self) -> String {
        on_cores(&self.conditions.place, self.place.as_ref())
    }
}

/// Returns the observed CPU placement of a DUT as text. If no placement was observed, the text contains the number of
/// cores that `asked` requests.
pub(crate) fn ran_on(asked: &Cores, seen: Option<&CpuPlacement>) -> String {
    seen.map_or_else(|| format!("{} requested, not observed", asked.cores), CpuPlacement::in_words)
}

/// Returns the heading of a column or row: the requested cores or CPU placement, and any deviation from the request.
pub(crate) fn column(
    asked: &Cores,
    seen: Option<&CpuPlacement>,
    missing: Option<&NoResult>,
) -> String {
    let name = place_name(asked);
    let deviations = match seen {
        Some(place) => place.deviations_from(asked.cores),
        None if missing.is_some() => Vec::new(),
        None => vec![ran_on(asked, None)],
    };
    if deviations.is_empty() { name } else { format!("{name} ({})", deviations.join(", ")) }
}

/// Returns the CPU placement of a DUT, as text for legends and captions. The text contains the cores to which the DUT
/// was confined. They may differ from the requested cores. If the placement or AuthDNS has a name, the text also
/// contains that name.
pub(crate) fn on_cores(asked: &Cores, seen: Option<&CpuPlacement>) -> String {
    let not_seen = || format!("{} requested, not observed", cores_in_words(asked.cores));
    let cores = seen.map_or_else(not_seen, CpuPlacement::cores_in_words);
    let placement = asked.placement.as_ref().map_or(String::new(), |name| format!("{name}: "));
    let authdns =
        asked.authdns.as_ref().map_or(String::new(), |authdns| format!(" with {authdns}"));
    format!("{placement}{cores}{authdns}")
}
