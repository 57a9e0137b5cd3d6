//! The verdict of a run in words: what was found, how exactly, and what speaks against it.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use method::units::Qps;

use super::Run;
use super::chart::number;
use crate::measures::search::{PointResult, worst_point};
use crate::point::Point;
use crate::results::{Period, Results};
use crate::wording;

/// All sentences, the answer first.
pub(super) fn summary(run: &Run) -> Vec<String> {
    let r = &run.results;
    let resolution = r.plan.search.resolution;
    let ranked = ranked(r);
    let mut lines: Vec<String> = answer(r, &ranked, resolution).into_iter().collect();
    lines.extend(run.notes.iter().map(|note| format!("Note: {note}.")));
    lines.extend(ratios(&ranked));
    lines.extend(when(r));
    lines.extend(r.contradictions.iter().map(|contradiction| contradiction.in_words(resolution)));
    lines.extend(voids(r));
    for auth in r.silent() {
        lines.push(format!(
            "\"0 % cached\" is unproven in every number with {auth} as AuthDNS: it does not count what it is asked, so nothing \
             shows that new names were not answered from a cache."
        ));
    }
    for (name, point) in &ranked {
        let reasons = wording::lower_bounds(&point.lower_bound_reasons);
        lines.extend(reasons.iter().map(|reason| format!("{name} may do more: {reason}.")));
    }
    if let Some(factor) = ranked.iter().map(|(_, p)| p.overstatement).find(|&factor| factor > 1.0) {
        lines.push(format!(
            "The trials are short: what waited in queues when they ended was answered in time all the same. Rates may be \
             overstated by a factor of up to {factor:.3}, by which the intervals' lower ends are widened."
        ));
    }
    lines.push(match r.own_self_test() {
        Some(test) => match test.allows {
            Some(allows) => {
                format!(
                    "The self-test vouches for the tester up to {} queries/s in the worst case.",
                    number(allows.0 as f64)
                )
            }
            None => "The tester did not pass its self-test: every result is a lower bound.".into(),
        },
        None => "There was no self-test: nothing vouches for the tester.".into(),
    });
    if !r.complete {
        lines.push("This run is not complete: some points of the plan are missing or have fewer searches.".into());
    }
    if r.noncompliance.is_empty() {
        lines.push("All of it is as RFC 8219 §9.2 wants it, where a table does not say otherwise.".into());
    }
    lines
}

/// The worst case of every DUT that has a number there, the fastest first.
fn ranked(r: &Results) -> Vec<(&str, &PointResult)> {
    let mut ranked: Vec<(&str, &PointResult)> = r
        .duts
        .iter()
        .filter_map(|dut| Some((dut.name.as_str(), worst_point(dut).filter(|p| p.figures.n > 0)?)))
        .collect();
    let rate = |p: &PointResult| p.figures.median.unwrap_or(0.0);
    ranked.sort_by(|a, b| rate(b.1).total_cmp(&rate(a.1)));
    ranked
}

fn answer(r: &Results, ranked: &[(&str, &PointResult)], resolution: Qps) -> Option<String> {
    let n = ranked.iter().map(|(_, point)| point.figures.n).min()?;
    let each = wording::searches(n);
    let same = same_place(ranked);
    let mut line = match n {
        1 => format!("Worst case, {each} at each server, which is no result yet. It passed and failed at, queries/s:"),
        _ => format!("Worst case, median of {each} and the interval in which all of them lie, queries/s:"),
    };
    for (i, (name, point)) in ranked.iter().enumerate() {
        let interval = wording::interval(&point.figures.interval, resolution);
        let found = match n {
            1 => interval,
            _ => format!("{} in {interval}", wording::median(&point.figures, resolution)),
        };
        let place = if same { String::new() } else { format!(" (CPU cores: {})", point.column()) };
        let _ = write!(line, "{} {name}{place} {found}", if i == 0 { "" } else { ";" });
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

/// Whether all of them were measured on the same number of cores, or in the same placement.
fn same_place(ranked: &[(&str, &PointResult)]) -> bool {
    ranked.windows(2).all(|two| two[0].1.conditions.place == two[1].1.conditions.place)
}

/// The fastest against each of the others that had as many cores, as far as the intervals decide.
fn ratios(ranked: &[(&str, &PointResult)]) -> Option<String> {
    let ((first, best), rest) = ranked.split_first()?;
    let told = |(name, point): &(&str, &PointResult)| {
        if point.conditions.place != best.conditions.place {
            return format!("not compared with {name}'s, which had other cores");
        }
        match wording::ratio(&best.figures.interval.ratio_to(&point.figures.interval)) {
            Some(times) => format!("{times} {name}'s"),
            None => format!("not told apart from {name}'s"),
        }
    };
    (!rest.is_empty()).then(|| format!("{first}'s rate is {}.", rest.iter().map(told).collect::<Vec<_>>().join(", ")))
}

fn when(r: &Results) -> Option<String> {
    let Period { begun, ended } = r.period_unix_s?;
    let at = |seconds: f64| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs_f64(seconds.max(0.0)));
    let length = Duration::from_secs((ended - begun).max(0.0) as u64);
    Some(format!("Measured from {} on, for {}.", at(begun), humantime::format_duration(length)))
}

fn voids(r: &Results) -> Vec<String> {
    let points = r.duts.iter().flat_map(|dut| &dut.points);
    let void = |point: &PointResult| {
        let why = point.void?;
        Some(format!("No number for {}: {why}.", Point::Search(point.conditions.clone())))
    };
    points.filter_map(void).collect()
}
