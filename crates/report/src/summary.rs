//! The summary of a run as text: results, precision and caveats.

use crate::places::PointWords;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use campaign::results::{
    DutEndCounts, DutResult, NoResult, Period, PointResult, Results, WithoutResult, by_key,
};
use units::counted;

use crate::run::{Run, has_failed_self_test, worst_point};
use crate::sections::{conform, self_test};
use crate::{caveats, wording};

/// The first sentences of a report.
pub(crate) struct RunSummary {
    /// The main results, in at most three sentences.
    pub(super) answer: Vec<String>,
    /// Time and duration of the measurement.
    pub(super) when: Option<String>,
    /// Caveats about the results, and limits of their validity.
    pub(super) caveats: Vec<String>,
}

impl RunSummary {
    /// Returns all sentences, starting with the main results.
    pub(super) fn all(self) -> Vec<String> {
        self.answer.into_iter().chain(self.when).chain(self.caveats).collect()
    }
}

/// Returns the summary of a run.
pub(crate) fn summary(run: &Run) -> RunSummary {
    let r = &run.results;
    let ranked = ranked(r);
    let mut sentences: Vec<String> = answer(r, &ranked).into_iter().collect();
    if sentences.is_empty() {
        sentences.push("No server has a result in the worst case yet.".into());
    }
    if !has_failed_self_test(r) {
        sentences.extend(ratios(r, &ranked));
    }
    sentences.push(standing(r));
    RunSummary { answer: sentences, when: when(r), caveats: caveats(run, &ranked) }
}

/// Returns a sentence about the reliability of the results. The sentence covers the self-test, the completeness of the
/// run, and compliance with RFC 8219.
pub(crate) fn standing(r: &Results) -> String {
    let validated = match r.own_self_test() {
        None => "There was no self-test: the tester is not validated".into(),
        Some(test) => format!("Self-test: {}", self_test::in_words(test)),
    };
    let whole = match (r.without_result.len(), r.plan.points().len()) {
        (0, _) => "the run is complete: every point of the plan has a result".into(),
        (1, of) => format!("the run is not complete: 1 of {of} points has no result (see Caveats)"),
        (n, of) => {
            format!("the run is not complete: {n} of {of} points have no result (see Caveats)")
        }
    };
    let compliant = match r.noncompliance.len() {
        0 => "it complies with RFC 8219 §9.2 unless a table states otherwise".into(),
        n => {
            let ways = counted(n as u64, "way", "ways");
            format!("it deviates from RFC 8219 §9.2 in {ways} (see Caveats)")
        }
    };
    format!("{validated}; {whole}; {compliant}.")
}

/// Returns the caveats about the results, and the limits of their validity.
fn caveats(run: &Run, ranked: &[(&str, &PointResult)]) -> Vec<String> {
    let r = &run.results;
    let mut lines: Vec<String> = run.notes.iter().map(|note| format!("Note: {note}.")).collect();
    lines.extend(r.host_changes.iter().map(ToString::to_string));
    lines.extend(caveats::contradictions(&r.contradictions));
    lines.extend(without_result(r));
    lines.extend(r.duts.iter().filter_map(conform::caveat));
    for auth in r.without_counters() {
        lines.push(format!(
            "\"0 % cached\" is unproven in every result with {auth} as AuthDNS: it does not count queries, so nothing \
             proves that new names were not answered from a cache."
        ));
    }
    lines.extend(caveats::lower_bounds(ranked));
    lines.extend(r.duts.iter().filter_map(deaths));
    if let Some(factor) = ranked.iter().map(|(_, p)| p.overstatement).find(|&factor| factor > 1.0) {
        lines.push(format!(
            "The trials are short: queries that were queued when the sending ended were still answered in time. Rates may be \
             overstated by a factor of up to {factor:.3}; the lower ends of the intervals are divided by it."
        ));
    }
    lines
}

/// Returns the measurement points without a result, with a line for each reason.
fn without_result(r: &Results) -> Vec<String> {
    let line = |(why, open): (&NoResult, Vec<&WithoutResult>)| {
        let points: Vec<&str> = open.iter().map(|open| open.point.as_str()).collect();
        format!("No result ({why}): {}.", points.join("; "))
    };
    by_key(&r.without_result, |open| &open.missing).into_iter().map(line).collect()
}

/// Returns the worst-case results of all DUTs, fastest first. DUTs without such a result are
/// omitted.
fn ranked(r: &Results) -> Vec<(&str, &PointResult)> {
    let all = crate::run::ranked(r).into_iter();
    all.filter_map(|dut| {
        Some((dut.name.as_str(), worst_point(dut).filter(|point| point.figures.n > 0)?))
    })
    .collect()
}

fn answer(r: &Results, ranked: &[(&str, &PointResult)]) -> Option<String> {
    let (_, first) = ranked.first()?;
    let is_same_place = ranked.iter().all(|(_, point)| are_comparable(r, first, point));
    let mut line = "Worst case, queries/s, median in the interval of all searches:".to_owned();
    for (i, (name, point)) in ranked.iter().enumerate() {
        let place = if is_same_place { String::new() } else { format!(", {}", point.on_cores()) };
        let ends = point.ends.in_words().map_or(String::new(), |ends| format!(", {ends}"));
        let _ = write!(
            line,
            "{} {name} {} ({}{place}{ends})",
            if i == 0 { "" } else { ";" },
            wording::found(&point.figures),
            wording::searches(point.figures.n),
        );
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

/// Returns a sentence about a DUT that died or hung in trials of its searches.
fn deaths(dut: &DutResult) -> Option<String> {
    let ends = dut.points.iter().map(|point| point.ends).reduce(DutEndCounts::plus)?;
    Some(format!(
        "{} {} of its searches. These trials were repeated with a restarted server, and the third try counts: if it ends often \
         at a rate, that rate may be overstated. See \"Incidents\".",
        dut.name,
        ends.in_words()?
    ))
}

/// True if the results of two DUTs can be compared, because both DUTs ran on the same CPUs and used the same AuthDNS.
pub(crate) fn are_comparable(r: &Results, a: &PointResult, b: &PointResult) -> bool {
    let [of_a, of_b] = [a, b].map(|point| {
        let authdns = point.conditions.place.authdns.as_deref();
        r.plan.auth_named(authdns).name()
    });
    of_a == of_b && a.is_on_the_cpus_of(b)
}

/// Compares the fastest server with each of the others. Servers with overlapping intervals are not
/// ranked.
fn ratios(r: &Results, ranked: &[(&str, &PointResult)]) -> Option<String> {
    let ((first, best), rest) = ranked.split_first()?;
    let (mut times, mut overlapping, mut elsewhere) = (Vec::new(), vec![*first], Vec::new());
    for (name, point) in rest {
        let ratio = best.figures.interval.ratio_to(&point.figures.interval);
        match wording::ratio(&ratio) {
            _ if !are_comparable(r, best, point) => elsewhere.push(*name),
            Some(ratio) => times.push(format!("{ratio} {name}'s")),
            None => overlapping.push(*name),
        }
    }
    let mut sentences = Vec::new();
    if !times.is_empty() {
        sentences.push(format!("{first}'s rate is {}.", times.join(", ")));
    }
    if overlapping.len() > 1 {
        let names = listed(&overlapping);
        sentences.push(format!("The intervals overlap: {names} cannot be ranked."));
    }
    if !elsewhere.is_empty() {
        sentences.push(format!(
            "Not compared with {first}, because not observed on the same CPUs with the same AuthDNS: {}.",
            listed(&elsewhere)
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Joins texts with commas and "and": `a`, `a and b` or `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => (*last).into(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
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

impl Run {
    /// Returns the summary as sentences: the main results, then precision and caveats.
    pub fn summary(&self) -> Vec<String> {
        summary(self).all()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use campaign::plan::{AuthPlan, Plan};
    use campaign::runner::simulated::journal_of;
    use hosts::environment::Environment;
    use method::precision::Figures;

    use super::*;

    /// Returns the results of two servers in the worst case, each with one requested core.
    fn two_servers() -> Results {
        let text = "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 3000\n\
                    resolution = 10\nrepeat = 2\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 1_000, &[]))
    }

    /// Returns the sentences about the rates: the main results and the comparison.
    fn said(results: &Results) -> (String, String) {
        let ranked = ranked(results);
        (answer(results, &ranked).unwrap(), ratios(results, &ranked).unwrap())
    }

    /// Multiplies the rates of a measurement point by nine.
    fn speed_up(point: &mut PointResult) {
        let figures = &mut point.figures;
        for rate in [&mut figures.median, &mut figures.interval.from, &mut figures.interval.to] {
            *rate = rate.map(|rate| 9.0 * rate);
        }
    }

    #[test]
    fn overlapping_intervals_are_not_ranked() {
        let mut results = two_servers();
        let (answer, ratios) = said(&results);
        assert!(!answer.contains("core"), "{answer}");
        assert_eq!(ratios, "The intervals overlap: Unbound and BIND cannot be ranked.");
        speed_up(&mut results.duts[1].points[0]);
        let (answer, ratios) = said(&results);
        assert!(answer.find("BIND") < answer.find("Unbound"), "the fastest first: {answer}");
        assert!(
            ratios.starts_with("BIND's rate is ") && ratios.ends_with(" Unbound's."),
            "{ratios}"
        );
        assert!(ratios.contains("at least ") || ratios.contains(" to "), "{ratios}");
    }

    #[test]
    fn servers_on_other_cpus_are_not_compared() {
        let mut results = two_servers();
        let point = &mut results.duts[1].points[0];
        speed_up(point);
        let place = point.place.as_mut().unwrap();
        (place.cpus, place.configured_threads) = ([1].into(), None);
        place.allowed[0].cpus = [1].into();
        let (answer, ratios) = said(&results);
        for place in ["(2 searches, 1 CPU, threads chosen by the server)", "(2 searches, 1 core)"] {
            assert!(answer.contains(place), "{place} is not in {answer}");
        }
        let not_compared = "Not compared with BIND, because not observed on the same CPUs with the same AuthDNS: Unbound.";
        assert_eq!(ratios, not_compared);
    }

    /// One server chooses its number of threads itself, and its plan has a different name for the same AuthDNS. The
    /// texts of the two servers' results differ, but the CPUs are the same.
    #[test]
    fn servers_on_the_same_cpus_are_compared() {
        let mut results = two_servers();
        let point = &mut results.duts[1].points[0];
        speed_up(point);
        point.place.as_mut().unwrap().configured_threads = None;
        point.conditions.place.authdns = Some("AuthDNS".into());
        let (answer, ratios) = said(&results);
        assert!(!answer.contains("core"), "{answer}");
        assert!(ratios.starts_with("BIND's rate is "), "{ratios}");
    }

    #[test]
    fn servers_with_another_authdns_are_not_compared() {
        let mut results = two_servers();
        let other = AuthPlan { name: Some("Other".into()), ..AuthPlan::default() };
        results.plan.authdns.push(other);
        let point = &mut results.duts[1].points[0];
        speed_up(point);
        point.conditions.place.authdns = Some("Other".into());
        let (_, ratios) = said(&results);
        let not_compared = "Not compared with BIND, because not observed on the same CPUs with the same AuthDNS: Unbound.";
        assert_eq!(ratios, not_compared);
    }

    #[test]
    fn each_server_has_its_number_of_searches() {
        let mut results = two_servers();
        let point = &mut results.duts[1].points[0];
        point.figures = Figures::of(&point.found[..1], 1.0, point.resolution);
        let interval = wording::interval(&point.figures.interval);
        let (answer, _) = said(&results);
        let one = format!("BIND {interval} (1 search, which is not a result)");
        assert!(answer.contains(&one) && answer.contains("(2 searches)"), "{one}: {answer}");
    }

    /// Tests the journal of an interrupted run, and that of a server that passes at no rate.
    #[test]
    fn a_run_with_a_point_without_a_result_is_not_complete() {
        let text = "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 3000\n\
                    resolution = 10\nrepeat = 2\n[measure.loads]\nshares = [0.5, 1]\nduration = '4s'\n\
                    transient = '1s'\n[[dut]]\ndriver = 'unbound'\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        let of = |entries: &[_]| {
            let results = Results::compute(&plan, Environment::for_tests(), entries);
            (standing(&results), without_result(&results).join(" "), results.complete)
        };
        let (standing, open, complete) = of(&journal_of(&plan, 1_000, &[]));
        assert!(standing.contains("the run is complete: every point"), "{standing}");
        assert!(complete && open.is_empty(), "{open}");

        let whole = journal_of(&plan, 50, &[]);
        let (standing, open, complete) = of(&whole);
        assert!(standing.contains("not complete: 2 of 3 points have no result"), "{standing}");
        let loads = "Unbound, 1 core, load 0.5; Unbound, 1 core, load 1.";
        let why = "the worst case has no median to take a share of";
        assert_eq!((open, complete), (format!("No result (not measured: {why}): {loads}"), false));

        let (standing, open, complete) = of(&[]);
        assert!(standing.contains("not complete: 3 of 3 points"), "{standing}");
        assert!(!complete && open.contains("Unbound, 1 core, AAAA 0"), "{open}");
    }
}
