//! The verdict of a run in words: what was found, how exactly, and what speaks against it.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use super::Run;
use super::chart::{AT_LEAST, number};
use crate::contradictions::Contradiction;
use crate::measures::conform;
use crate::measures::search::{Ends, PointResult, worst_point};
use crate::point::Point;
use crate::results::{DutResult, Period, Results};
use crate::wording;

/// What a reader must know first, in sentences.
pub(super) struct RunSummary {
    /// The answer: at most three.
    pub(super) answer: Vec<String>,
    /// When it was measured, and for how long.
    pub(super) when: Option<String>,
    /// What speaks against it, or limits it.
    pub(super) caveats: Vec<String>,
}

impl RunSummary {
    /// All sentences, the answer first.
    pub(super) fn all(self) -> Vec<String> {
        self.answer.into_iter().chain(self.when).chain(self.caveats).collect()
    }
}

/// What a reader must know of a run first.
pub(super) fn summary(run: &Run) -> RunSummary {
    let r = &run.results;
    let ranked = ranked(r);
    let mut sentences: Vec<String> = answer(r, &ranked).into_iter().collect();
    if sentences.is_empty() {
        sentences.push("No server has a result in the worst case yet.".into());
    }
    sentences.extend(ratios(&ranked));
    sentences.push(standing(r));
    RunSummary { answer: sentences, when: when(r), caveats: caveats(run, &ranked) }
}

/// How far the answer can be trusted: who vouches for it, whether it is all, whether it is
/// compliant.
fn standing(r: &Results) -> String {
    let vouched = match r.own_self_test().map(|test| test.allows) {
        Some(Some(allows)) => {
            format!(
                "The self-test vouches for the tester up to {} queries/s in the worst case",
                number(allows.0 as f64)
            )
        }
        Some(None) => {
            "The tester did not pass its self-test, so every result is a lower bound".into()
        }
        None => "There was no self-test, so nothing vouches for the tester".into(),
    };
    let whole = if r.complete {
        "the run is complete"
    } else {
        "this run is not complete: some points of the plan are missing or have fewer searches"
    };
    let compliant = match r.noncompliance.len() {
        0 => "all of it is as RFC 8219 §9.2 wants it, where a table does not say otherwise"
            .to_owned(),
        1 => "in one point it is not as RFC 8219 §9.2 wants it".into(),
        n => format!("in {n} points it is not as RFC 8219 §9.2 wants it"),
    };
    format!("{vouched}; {whole}; {compliant}.")
}

/// What speaks against the answer, or limits it.
fn caveats(run: &Run, ranked: &[(&str, &PointResult)]) -> Vec<String> {
    let r = &run.results;
    let mut lines: Vec<String> = run.notes.iter().map(|note| format!("Note: {note}.")).collect();
    lines.extend(r.host_changes.iter().map(ToString::to_string));
    lines.extend(r.contradictions.iter().map(Contradiction::in_words));
    lines.extend(voids(r));
    lines.extend(r.duts.iter().filter_map(conform::caveat));
    for auth in r.silent() {
        lines.push(format!(
            "\"0 % cached\" is unproven in every number with {auth} as AuthDNS: it does not count what it is asked, so nothing \
             shows that new names were not answered from a cache."
        ));
    }
    for (name, point) in ranked {
        let reasons = wording::lower_bounds(&point.lower_bound_reasons);
        lines.extend(reasons.iter().map(|reason| format!("{name} may do more: {reason}.")));
    }
    lines.extend(r.duts.iter().filter_map(deaths));
    if let Some(factor) = ranked.iter().map(|(_, p)| p.overstatement).find(|&factor| factor > 1.0) {
        lines.push(format!(
            "The trials are short: what waited in queues when they ended was answered in time all the same. Rates may be \
             overstated by a factor of up to {factor:.3}, by which the intervals' lower ends are widened."
        ));
    }
    lines
}

/// The worst case of every DUT that has a number there, the fastest first.
fn ranked(r: &Results) -> Vec<(&str, &PointResult)> {
    let all = super::ranked(r).into_iter();
    all.filter_map(|dut| {
        Some((dut.name.as_str(), worst_point(dut).filter(|point| point.figures.n > 0)?))
    })
    .collect()
}

fn answer(r: &Results, ranked: &[(&str, &PointResult)]) -> Option<String> {
    let n = ranked.iter().map(|(_, point)| point.figures.n).min()?;
    let each = wording::searches(n);
    let same = same_place(ranked);
    let mut line = match n {
        1 => format!(
            "Worst case, {each} at each server, which is no result yet. It passed and failed at, queries/s:"
        ),
        _ => format!(
            "Worst case, median of {each} and the interval in which all of them lie, queries/s:"
        ),
    };
    for (i, (name, point)) in ranked.iter().enumerate() {
        let (figures, resolution) = (&point.figures, point.resolution);
        let found = match n {
            1 => wording::interval(&figures.interval, resolution),
            _ => format!(
                "{}{} in {}",
                if point.lower_bound_reasons.is_empty() { "" } else { AT_LEAST },
                wording::median(figures, resolution),
                wording::range(&figures.interval, resolution)
            ),
        };
        let place = if same { String::new() } else { format!(" (CPU cores: {})", point.column()) };
        let ends = point.ends.in_words().map_or(String::new(), |ends| format!(" ({ends})"));
        let _ = write!(line, "{} {name}{place} {found}{ends}", if i == 0 { "" } else { ";" });
    }
    let missing: Vec<&str> = r
        .duts
        .iter()
        .map(|dut| dut.name.as_str())
        .filter(|name| !ranked.iter().any(|(known, _)| known == name))
        .collect();
    if !missing.is_empty() {
        let _ = write!(line, "; {}: not measured", missing.join(", "));
    }
    Some(line + ".")
}

/// A DUT that died or hung in trials of its searches.
fn deaths(dut: &DutResult) -> Option<String> {
    let ends = dut.points.iter().map(|point| point.ends).reduce(Ends::plus)?;
    Some(format!(
        "{} {} of its searches. These trials were repeated with a new server, and the third try counts: if it ends often at a \
         rate, that rate may be overstated. See the incidents below.",
        dut.name,
        ends.in_words()?
    ))
}

/// Whether all of them ran on the same cores, whatever they were to have.
fn same_place(ranked: &[(&str, &PointResult)]) -> bool {
    ranked.windows(2).all(|two| two[0].1.on_cores() == two[1].1.on_cores())
}

/// The fastest against each of the others that ran on the same cores, as far as the intervals
/// decide.
fn ratios(ranked: &[(&str, &PointResult)]) -> Option<String> {
    let ((first, best), rest) = ranked.split_first()?;
    let told = |(name, point): &(&str, &PointResult)| {
        if point.on_cores() != best.on_cores() {
            return format!("not compared with {name}'s, which ran on other cores");
        }
        match wording::ratio(&best.figures.interval.ratio_to(&point.figures.interval)) {
            Some(times) => format!("{times} {name}'s"),
            None => format!("not told apart from {name}'s"),
        }
    };
    (!rest.is_empty()).then(|| {
        format!("{first}'s rate is {}.", rest.iter().map(told).collect::<Vec<_>>().join(", "))
    })
}

fn when(r: &Results) -> Option<String> {
    let Period { begun, ended, trials_s } = r.period_unix_s?;
    let at = |seconds: f64| {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs_f64(seconds.max(0.0)))
    };
    let length = |seconds: f64| {
        humantime::format_duration(Duration::from_secs(seconds.max(0.0).round() as u64))
    };
    let (begun, ended, whole, trials) =
        (at(begun), at(ended), length(ended - begun), length(trials_s));
    Some(format!(
        "Measured from {begun} to {ended}, which is {whole}; the trials alone took {trials}."
    ))
}

fn voids(r: &Results) -> Vec<String> {
    let points = r.duts.iter().flat_map(|dut| &dut.points);
    let void = |point: &PointResult| {
        let why = point.void?;
        Some(format!("No number for {}: {why}.", Point::Search(point.conditions.clone())))
    };
    points.filter_map(void).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::environment::Environment;
    use crate::plan::Plan;
    use crate::runner::simulated::journal_of;

    /// Two servers in the worst case, each of which was to have one core.
    fn two_servers() -> Results {
        let text = "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 3000\n\
                    resolution = 10\nrepeat = 2\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        Results::compute(&plan, Environment::of_tests(), &journal_of(&plan, 1_000, &[]))
    }

    /// What is said of the rates: the answer, and how they compare.
    fn said(results: &Results) -> (String, String) {
        let ranked = ranked(results);
        (answer(results, &ranked).unwrap(), ratios(&ranked).unwrap())
    }

    #[test]
    fn servers_that_ran_on_other_cores_than_asked_for_are_not_compared() {
        let mut results = two_servers();
        let (answer, ratios) = said(&results);
        assert!(!answer.contains("CPU cores"), "{answer}");
        assert_eq!(ratios, "Unbound's rate is not told apart from BIND's.");

        // Its own command ends it, so that nothing confines it, and it has threads as it likes.
        let point = &mut results.duts[1].points[0];
        let place = point.place.as_mut().unwrap();
        place.cpus.clear();
        place.told = None;
        for rate in [&mut point.figures.median, &mut point.figures.interval.from] {
            *rate = rate.map(|rate| 9.0 * rate);
        }
        point.figures.interval.to = point.figures.interval.to.map(|to| 9.0 * to);
        let (answer, ratios) = said(&results);
        for place in [
            "BIND (CPU cores: 1 (threads by its own choice, not confined)) ",
            "Unbound (CPU cores: 1) ",
        ] {
            assert!(answer.contains(place), "{place} is not in {answer}");
        }
        assert_eq!(ratios, "BIND's rate is not compared with Unbound's, which ran on other cores.");
    }
}
