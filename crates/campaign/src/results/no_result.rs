//! Reasons why a measurement point has no result.

use std::fmt;

use method::evidence::Deviation;
use method::records::Wrong;
use serde::{Deserialize, Serialize};

use crate::plan::Point;
use crate::record::{CannotBeMade, DutEnd, Entry};
use crate::sequence::Recorded;

/// Reason why a measurement point has no result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoResult {
    /// No trial of the measurement point has ended.
    NotBegun {
        /// The last incident at this measurement point or at a different point of the same DUT;
        /// absent if there was no incident.
        because: Option<String>,
    },
    /// Trials have ended, but too few for a result.
    Unfinished,
    /// All trials from which the result could be computed are invalid.
    #[serde(rename = "spoiled")]
    Invalid,
    /// The measurement point is void: AuthDNS's counters show that the DUT was not measured under
    /// the conditions of this point.
    Void(Deviation),
    /// The DUT is misconfigured: nearly all replies in its first trial were wrong in the same way,
    /// and no rate passed.
    WrongReplies(Wrong),
    /// The DUT died or hung during a trial.
    Ended(DutEnd),
    /// The worst-case searches of the same DUT on the same CPUs have no median, so the rate of this
    /// measurement point is unknown.
    NoRate,
    /// A search of the self-test found no passing rate.
    NoPassingRate,
    /// The DUT's host cannot set the CPU frequency governor of the measurement point.
    CannotBeMade(CannotBeMade),
    /// The host does not report the quantity, such as CPU use.
    NotCounted,
    /// No check could be executed.
    NotChecked {
        /// The error that `dns64bench conform` reported.
        why: String,
    },
}

impl NoResult {
    /// Returns the reason why a measurement point without trials has no result. The reason contains
    /// the last incident recorded at this point or at a different point of the same DUT.
    pub(crate) fn not_begun(recorded: &Recorded<'_>, point: &Point) -> NoResult {
        let because = recorded.entries.iter().rev().find_map(|entry| match entry {
            Entry::Incident { point: of, what, .. }
                if of == point || of.dut().is_some() && of.dut() == point.dut() =>
            {
                Some(what.clone())
            }
            _ => None,
        });
        NoResult::NotBegun { because }
    }
}

impl fmt::Display for NoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoResult::NotBegun { because: None } => write!(f, "not measured: no trial has ended"),
            NoResult::NotBegun { because: Some(why) } => write!(f, "not measured: {why}"),
            NoResult::Unfinished => write!(f, "not finished: too few trials have ended"),
            NoResult::Invalid => write!(f, "not measured: the tester invalidated the trials"),
            NoResult::Void(why) => write!(f, "invalid: {why}"),
            NoResult::WrongReplies(wrong) => {
                write!(f, "no result: every reply was wrong ({wrong}); check its configuration")
            }
            NoResult::Ended(end) => write!(f, "no result: {end}"),
            NoResult::NoRate => {
                write!(f, "not measured: the worst case has no median to take a share of")
            }
            NoResult::NoPassingRate => write!(f, "a search found no passing rate"),
            NoResult::CannotBeMade(why) => write!(f, "not possible here: {why}"),
            NoResult::NotCounted => write!(f, "not measured: the host does not count it"),
            NoResult::NotChecked { why } => write!(f, "not checked: {why}"),
        }
    }
}
