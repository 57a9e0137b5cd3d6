//! Caveats about the results of a run. If several servers or measurement points have the same caveat, it is listed only
//! once.

use campaign::results::{Contradiction, PointResult, by_key};
use method::set::LowerBound;
use units::{Qps, grouped};

use crate::format::{almost, number};
use crate::wording;

/// Returns the reasons why results are lower bounds, each with the names of the affected servers.
pub(crate) fn lower_bounds(ranked: &[(&str, &PointResult)]) -> Vec<String> {
    let each: Vec<(LowerBound, &str)> = ranked
        .iter()
        .flat_map(|(name, point)| point.lower_bound_reasons.iter().map(move |&why| (why, *name)))
        .collect();
    let sentence = |(why, all): (LowerBound, Vec<&(LowerBound, &str)>)| {
        let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
        format!("The limit of {} may be higher: {}.", names.join(", "), wording::lower_bound(&why))
    };
    by_key(&each, |(why, _)| *why).into_iter().map(sentence).collect()
}

/// Returns the contradictions in the results as sentences. One sentence covers all measurement points that exceed the
/// same self-test limit.
pub(crate) fn contradictions(all: &[Contradiction]) -> Vec<String> {
    let beyond: Vec<(Qps, &Contradiction, &str)> = all
        .iter()
        .filter_map(|one| match one {
            Contradiction::BeyondSelfTest { point, allowed, .. } => {
                Some((*allowed, one, point.as_str()))
            }
            _ => None,
        })
        .collect();
    let others = all.iter().filter(|one| !matches!(one, Contradiction::BeyondSelfTest { .. }));
    let merged = by_key(&beyond, |(allowed, ..)| *allowed).into_iter().map(|(allowed, points)| {
        match points[..] {
            [(_, one, _)] => in_words(one),
            _ => {
                let names: Vec<&str> = points.iter().map(|(_, _, point)| *point).collect();
                format!(
                    "{} points passed above {} queries/s, up to which the self-test validates the tester: {}. Higher rates \
                     are unverified; use a faster tester or give each role its own CPUs.",
                    names.len(),
                    grouped(allowed.0),
                    names.join("; ")
                )
            }
        }
    });
    others.map(in_words).chain(merged).collect()
}

/// Returns a contradiction in the results as a sentence, with advice.
pub(crate) fn in_words(found: &Contradiction) -> String {
    match found {
        Contradiction::LessForLess { dut, accept, less, all } => format!(
            "{dut} reached less with a lower acceptance criterion: {} queries/s with {} % accepted, {} with 100 %. This is \
                 noise; use longer trials and more searches.",
            wording::interval(less),
            number(accept * 100.0),
            wording::interval(all)
        ),
        Contradiction::DoesNotHold { dut, rate, valid } => format!(
            "{dut}: the median is not reproducible. In trials at {} queries/s, {} of the queries had a valid reply. The \
                 interval is extended down to the next lower rate that passed. Use longer trials and more searches.",
            grouped(rate.0),
            almost(*valid)
        ),
        Contradiction::BeyondSelfTest { point, passed, allowed } => format!(
            "{point}: searches passed at up to {} queries/s, but the self-test validates the tester only up to {}. Higher \
                 rates are unverified; use a faster tester or give each role its own CPUs.",
            number(*passed),
            grouped(allowed.0)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_that_does_not_hold_has_its_share() {
        let found = Contradiction::DoesNotHold {
            dut: "BIND".into(),
            rate: units::Qps(175),
            valid: 19.0 / 175.0,
        };
        let words = in_words(&found);
        assert!(words.contains("not reproducible") && words.contains("10.86 %"), "{words}");
    }

    #[test]
    fn points_beyond_one_limit_are_in_one_sentence() {
        use campaign::plan::Plan;
        use campaign::results::Results;
        use campaign::runner::simulated::journal_of;
        use hosts::environment::Environment;
        // The self-test covers rates up to 1 000 queries/s. The servers pass at higher rates, which
        // are above the validated range.
        let text = "name = 'x'\n[trial]\nduration = '2s'\npause = '0s'\n[search]\nmin = 100\nmax = 3000\nresolution = 100\n\
                    repeat = 2\n[self-test]\nmin = 500\nmax = 1000\nresolution = 500\nrepeat = 1\n\
                    [[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\n";
        let plan = Plan::parse(text, std::path::Path::new("p.toml")).unwrap();
        let results =
            Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 3_000, &[]));
        assert_eq!(results.contradictions.len(), 2, "{:?}", results.contradictions);
        let found = contradictions(&results.contradictions);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("2 points passed above "), "{found:?}");
        assert!(found[0].contains("Unbound") && found[0].contains("BIND"), "{found:?}");
        let ranked: Vec<(&str, &PointResult)> =
            results.duts.iter().map(|dut| (dut.name.as_str(), &dut.points[0])).collect();
        let bounds = lower_bounds(&ranked);
        assert!(
            bounds
                .iter()
                .all(|line| line.starts_with("The limit of Unbound, BIND may be higher: ")),
            "{bounds:?}"
        );
        assert!(!bounds.is_empty());
    }
}
