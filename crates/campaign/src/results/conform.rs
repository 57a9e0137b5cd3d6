//! Results of conformance checks.

use std::cmp::Reverse;

use conform::check::Level;
use conform::outcome::{Count, Report};
use hosts::place::CpuPlacement;
use hosts::servers::Variant;
use serde::{Deserialize, Serialize};

use crate::plan::{AtPlace, Cores, Point};
use crate::record::{DutEnd, Measured};
use crate::results::no_result::NoResult;
use crate::sequence::Recorded;

/// For each level of requirement, the number of checks with each outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Counts {
    /// Checks of MUST requirements (BCP 14).
    pub must: Count,
    /// Checks of SHOULD requirements. Checks of RFC statements without a BCP 14 keyword are
    /// included.
    pub should: Count,
    /// Checks of MAY requirements. A failed check means that the DUT does not support an option,
    /// which is not a fault.
    pub may: Count,
    /// Checks of hardening measures that no RFC requires.
    pub hardening: Count,
}

impl Counts {
    fn of(report: &Report) -> Counts {
        Counts {
            must: report.count(&[Level::Must]),
            should: report.count(&[Level::Should, Level::Says]),
            may: report.count(&[Level::May]),
            hardening: report.count(&[Level::Hardening]),
        }
    }

    /// Returns three values for each level of requirement: its name in the CSV file (`results.csv`), its name in texts,
    /// and the number of its checks with each outcome.
    pub fn by_level(&self) -> [(&'static str, &'static str, Count); 4] {
        [
            ("must", "MUST", self.must),
            ("should", "SHOULD, RFC says", self.should),
            ("may", "MAY", self.may),
            ("hardening", "hardening", self.hardening),
        ]
    }
}

/// Correctness of a DUT's answers.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConformResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// True if the checks are done.
    pub complete: bool,
    /// Reason why checks have no verdict; absent if all checks have a verdict.
    pub missing: Option<NoResult>,
    /// The way in which the DUT died or hung during the checks; absent if it did neither.
    pub ended: Option<DutEnd>,
    /// The variant of the DUT's configuration in which the DUT died or hung. Absent if the DUT died or hung in its
    /// usual configuration, or if it did neither.
    pub ended_in: Option<String>,
    /// CPU placement of the DUT; absent if it was not observed.
    #[serde(rename = "place")]
    pub seen: Option<CpuPlacement>,
    /// Duration of the checks with all variants, in seconds; absent if no check was executed.
    pub duration_s: Option<f64>,
    /// For each level of requirement, the number of checks with each outcome.
    pub counts: Option<Counts>,
    /// Result of each check, with the version of the DUT.
    pub report: Option<Report>,
}

impl ConformResult {
    /// Merges the result of the checks in a different variant of the DUT's configuration into this
    /// result. There is a merged report only if the usual configuration has a report, because only
    /// a few checks run in the other variants.
    fn with(self, variant: &Variant, found: ConformResult) -> ConformResult {
        let mut report = self.report;
        if let (Some(report), Some(further)) = (&mut report, found.report) {
            report.add(&variant.to_string(), further);
        }
        // If a variant has not been checked yet, `complete` is false and no reason is needed.
        let missing = found.missing.and_then(|missing| match missing {
            NoResult::NotChecked { why } => {
                Some(NoResult::NotChecked { why: format!("{variant}: {why}") })
            }
            _ => None,
        });
        let ended_in = match (&self.ended, &found.ended) {
            (None, Some(_)) => Some(variant.to_string()),
            _ => self.ended_in,
        };
        ConformResult {
            complete: self.complete && found.complete,
            missing: self.missing.or(missing),
            ended: self.ended.or(found.ended),
            ended_in,
            duration_s: self.duration_s.map(|time| time + found.duration_s.unwrap_or_default()),
            counts: report.as_ref().map(Counts::of),
            report,
            ..self
        }
    }

    /// Returns a text for the case that the DUT died or hung, or that verdicts are missing. Otherwise, the text is
    /// empty.
    pub fn state(&self) -> String {
        let state = match (&self.ended, &self.missing) {
            (Some(DutEnd::Died(how)), _) => format!("DIED: {how}"),
            (Some(DutEnd::Hung), _) => "HUNG".into(),
            (None, Some(why)) => why.to_string(),
            (None, None) => String::new(),
        };
        match &self.ended_in {
            Some(variant) => format!("{state} ({variant})"),
            None => state,
        }
    }

    /// Returns the sort key of a DUT. DUTs without verdicts come last. The other DUTs are sorted by
    /// failed MUST checks, then by failed SHOULD checks, then by passed checks.
    pub fn faults(&self) -> (bool, usize, usize, Reverse<usize>) {
        let failed = |of: fn(&Counts) -> usize| self.counts.as_ref().map_or(0, of);
        (
            self.counts.is_none(),
            failed(|counts| counts.must.failed),
            failed(|counts| counts.should.failed),
            Reverse(failed(|counts| counts.must.passed + counts.should.passed)),
        )
    }
}

/// True if there is a report of the checks, or if the DUT died or hung during the checks.
pub(crate) fn has_result(recorded: &Recorded<'_>, point: &Point) -> bool {
    let has = |m: &Measured| m.dut_end.is_some() || m.checked().is_some_and(|t| t.report.is_some());
    recorded.replay(point).is_some_and(|replay| replay.trials.into_iter().any(has))
}

/// Returns the reason why the measurement point has no report, or `None` if it has a report.
pub(crate) fn missing(recorded: &Recorded<'_>, point: &Point) -> Option<NoResult> {
    of_variant(recorded, point)?.missing
}

/// Returns the result of the checks of a DUT in all variants of its configuration.
pub(crate) fn result(
    recorded: &Recorded<'_>,
    dut: &str,
    points: &[Point],
) -> Option<ConformResult> {
    let of_dut = points.iter().filter(|point| point.dut() == Some(dut));
    let mut each =
        of_dut.filter_map(|point| Some((point.variant()?, of_variant(recorded, point)?)));
    let (_, usual) = each.next()?;
    Some(each.fold(usual, |all, (variant, found)| all.with(variant, found)))
}

/// Returns the result of the checks in one variant of the DUT's configuration.
fn of_variant(recorded: &Recorded<'_>, point: &Point) -> Option<ConformResult> {
    let Point::Conform(AtPlace { dut, place, .. }) = point else { return None };
    let replay = recorded.replay(point)?;
    let measured = replay.trials.first();
    let trial = measured.and_then(|m| m.checked());
    let ended = measured.and_then(|m| m.dut_end.clone());
    let report = trial
        .and_then(|trial| trial.report.clone())
        .map(|report| Report { version: recorded.version(dut).unwrap_or_default(), ..report });
    let missing = match (trial, &report, &ended) {
        (None, ..) => Some(NoResult::not_begun(recorded, point)),
        (_, Some(_), _) => None,
        (_, None, Some(end)) => Some(NoResult::Ended(end.clone())),
        (Some(trial), None, None) => Some(NoResult::NotChecked { why: trial.why.clone() }),
    };
    Some(ConformResult {
        place: place.clone(),
        complete: replay.due().is_none(),
        missing,
        ended,
        ended_in: None,
        seen: crate::results::search::place_of(replay.trials.iter().copied()),
        duration_s: trial.map(|trial| trial.duration_s),
        counts: report.as_ref().map(Counts::of),
        report,
    })
}
