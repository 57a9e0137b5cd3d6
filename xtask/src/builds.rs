//! Two builds of one program, measured in alternation until the ratio of their figures is precise enough. On a machine
//! whose speed changes from minute to minute, only figures of the same round can be compared.
//!
//! ```text
//! round 1: ours, theirs   round 2: theirs, ours   …   ratio of each round ─► median, its 95 % interval ─► narrow
//! enough? ─► end
//! ```
//!
//! A round may measure each build several times, alternately (ours, theirs, theirs, ours, …). Disturbances of a few
//! seconds affect several short measurements less than one long measurement. Properties of newly started programs, such
//! as their memory layout, also differ from round to round.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::builder::RangedI64ValueParser;
use clap::value_parser;
use method::stats::{Summary, median_interval};

use crate::claims::NotDecided;

/// Maximum width of the 95 % interval of a ratio that is precise enough.
const WIDTH: f64 = 0.03;
/// Minimum number of rounds. Fewer rounds give no 95 % interval, and the first rounds warm up the machine.
const AT_LEAST: u16 = 8;

/// Required ratio, and the number of rounds in which it must be established.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Minimum ratio ours / theirs.
    pub(crate) at_least: f64,
    /// Maximum number of rounds.
    pub(crate) rounds: u16,
}

/// Returns the parser of `--rounds`.
pub(crate) fn rounds() -> RangedI64ValueParser<u16> {
    value_parser!(u16).range(i64::from(AT_LEAST)..)
}

/// One of the two builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Build of this checkout.
    Ours,
    /// Build with which the build of this checkout is compared.
    Theirs,
}

/// Ratios ours / theirs of one figure, round by round.
struct Ratios {
    figure: &'static str,
    by_round: Vec<f64>,
}

/// Result for a figure after some rounds.
#[derive(Debug, PartialEq)]
enum Finding {
    /// The interval is narrow enough; contains the median.
    Known(f64),
    /// The interval is too wide after the maximum number of rounds.
    Undecided,
}

impl Ratios {
    fn interval(&self) -> Option<(f64, f64)> {
        median_interval(&self.by_round)
    }

    fn is_known(&self) -> bool {
        self.by_round.len() >= usize::from(AT_LEAST)
            && self.interval().is_some_and(|(low, high)| high - low <= WIDTH)
    }

    fn median(&self) -> f64 {
        Summary::of(&self.by_round).map_or(f64::NAN, |summary| summary.median)
    }

    fn finding(&self) -> Finding {
        if self.is_known() { Finding::Known(self.median()) } else { Finding::Undecided }
    }

    fn print(&self) {
        let (low, high) = self.interval().unwrap_or((f64::NAN, f64::NAN));
        let rounds = self.by_round.len();
        let unknown = if self.is_known() { "" } else { ": not decided" };
        println!(
            "{}: ours / theirs {:.3} ({low:.3} to {high:.3}, {rounds} rounds){unknown}",
            self.figure,
            self.median()
        );
    }
}

/// Measures both builds alternately. `begin` starts a round. `measure` returns the values of `figures` for one build,
/// in the same order; greater values are better. A round measures each build `looks` times, and uses the mean of the
/// values. All figures are measured until each of them is precise enough, because a measurement always returns all
/// figures. A round is left out if `measure` returns [`NotDecided`].
///
/// The status is 1 if the median ratio of a figure is lower than required. Otherwise it is 2 if a figure is undecided.
pub(crate) fn compare<const N: usize, R>(
    figures: [&'static str; N],
    wanted: Wanted,
    looks: usize,
    mut begin: impl FnMut(usize) -> Result<R>,
    mut measure: impl FnMut(&mut R, Build) -> Result<[f64; N]>,
) -> Result<ExitCode> {
    let mut all = figures.map(|figure| Ratios { figure, by_round: Vec::new() });
    for round in 0..usize::from(wanted.rounds) {
        let mut started = begin(round)?;
        let by_figure = match ratios_of_round(round, looks, |build| measure(&mut started, build)) {
            Err(error) if error.is::<NotDecided>() => {
                eprintln!("round {}: {error:#}", round + 1);
                continue;
            }
            by_figure => by_figure?,
        };
        for (ratios, ratio) in all.iter_mut().zip(by_figure) {
            ratios.by_round.push(ratio);
        }
        // The ratios are shown after each round, so that they are not lost if the user ends the program early.
        let so_far = all
            .iter()
            .zip(by_figure)
            .map(|(ratios, ratio)| format!("{} {ratio:.3}", ratios.figure));
        eprintln!("round {}: {}", round + 1, so_far.collect::<Vec<_>>().join(", "));
        if all.iter().all(Ratios::is_known) {
            break;
        }
    }
    all.iter().for_each(Ratios::print);
    Ok(status(&all.map(|ratios| ratios.finding()), wanted.at_least))
}

/// Returns the ratios ours / theirs of one round.
fn ratios_of_round<const N: usize>(
    round: usize,
    looks: usize,
    mut measure: impl FnMut(Build) -> Result<[f64; N]>,
) -> Result<[f64; N]> {
    // Sums are sufficient, because the ratio of the sums equals the ratio of the means.
    let (mut ours, mut theirs) = ([0.0; N], [0.0; N]);
    for look in 0..looks {
        let order = if (round + look).is_multiple_of(2) {
            [Build::Ours, Build::Theirs]
        } else {
            [Build::Theirs, Build::Ours]
        };
        for build in order {
            let figures = measure(build)?;
            ensure!(figures.iter().all(|figure| *figure > 0.0), "{build:?}: a figure is 0");
            let sums = if build == Build::Ours { &mut ours } else { &mut theirs };
            sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
    }
    Ok(std::array::from_fn(|i| ours[i] / theirs[i]))
}

fn status(findings: &[Finding], at_least: f64) -> ExitCode {
    if findings.iter().any(|finding| matches!(finding, Finding::Known(ratio) if *ratio < at_least))
    {
        return ExitCode::FAILURE;
    }
    if findings.contains(&Finding::Undecided) { ExitCode::from(2) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    const ROUNDS: u16 = 60;

    /// Simulates equal builds on a machine whose speed drifts and whose single figures scatter by a few per cent.
    fn simulated(ratio: f64, scatter: f64) -> (ExitCode, usize) {
        let (mut state, mut rounds) = (1_u64, 0);
        let mut noise = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31) - 0.5
        };
        let wanted = Wanted { at_least: 0.97, rounds: ROUNDS };
        let begin = |round| {
            rounds = round + 1;
            Ok(round)
        };
        let code = compare(["simulated"], wanted, 2, begin, |round, build| {
            let speed =
                1000.0 * (1.0 + (*round as f64 / 5.0).sin() / 4.0) * (1.0 + scatter * noise());
            Ok([if build == Build::Ours { speed * ratio } else { speed }])
        });
        (code.unwrap(), rounds)
    }

    #[test]
    fn rounds_with_invalid_trials_are_left_out() {
        let compared = |is_invalid: fn(usize) -> bool| {
            let wanted = Wanted { at_least: 0.97, rounds: ROUNDS };
            let code = compare(["simulated"], wanted, 1, Ok, |&mut round, build| {
                if is_invalid(round) && build == Build::Theirs {
                    bail!(NotDecided("late".into()));
                }
                Ok([if is_invalid(round) { 1.0 } else { 1_000.0 }])
            });
            format!("{:?}", code.unwrap())
        };
        assert_eq!(compared(|round| round % 2 == 0), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(compared(|_| true), format!("{:?}", ExitCode::from(2)));
    }

    #[test]
    fn a_slower_build_is_found_and_equal_ones_pass() {
        let same = |(code, _): (ExitCode, usize), other: ExitCode| {
            assert_eq!(format!("{code:?}"), format!("{other:?}"));
        };
        same(simulated(1.0, 0.02), ExitCode::SUCCESS);
        same(simulated(0.93, 0.02), ExitCode::FAILURE);
        assert!(simulated(1.0, 0.02).1 < usize::from(ROUNDS));
        // With this much scatter, no result is possible.
        let (code, rounds) = simulated(1.0, 1.5);
        assert_eq!(rounds, usize::from(ROUNDS));
        same((code, rounds), ExitCode::from(2));
    }
}
