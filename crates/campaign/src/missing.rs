//! Why there is no number where one was to be.

use std::fmt;

use method::evidence::Deviation;
use method::records::Wrong;
use serde::{Deserialize, Serialize};

use crate::archive::{DutEnd, Entry};
use crate::governor::CannotBeMade;
use crate::point::Point;
use crate::recorded::Recorded;

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// No trial of the point has ended.
    NotBegun {
        /// What happened to the point, or to its server, if anything did.
        because: Option<String>,
    },
    /// Trials have ended, and not enough of them for a number.
    Unfinished,
    /// The tester spoiled all trials that could have given the number.
    Spoiled,
    /// The DUT was not asked what the point is about.
    Void(Deviation),
    /// The DUT is misconfigured: the replies in its first trial were wrong in one way, and it passed
    /// at no rate.
    WrongReplies(Wrong),
    /// The DUT ended in a trial.
    Ended(DutEnd),
    /// The worst case of the same server on the same CPUs has no median to take a share of.
    NoRate,
    /// A search of the self-test found no passing rate.
    NoPassingRate,
    /// The DUT's host has not what it takes.
    CannotBeMade(CannotBeMade),
    /// The host does not count it.
    NotCounted,
    /// No check could be made.
    NotChecked {
        /// What `conform` said.
        why: String,
    },
}

impl Missing {
    /// That a point has no trial, and the last thing that was noted of it or of its server.
    pub(crate) fn not_begun(recorded: &Recorded<'_>, point: &Point) -> Missing {
        let because = recorded.entries.iter().rev().find_map(|entry| match entry {
            Entry::Mishap { point: of, what, .. }
                if of == point || of.dut().is_some() && of.dut() == point.dut() =>
            {
                Some(what.clone())
            }
            _ => None,
        });
        Missing::NotBegun { because }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NotBegun { because: None } => write!(f, "not measured: no trial has ended"),
            Missing::NotBegun { because: Some(why) } => write!(f, "not measured: {why}"),
            Missing::Unfinished => write!(f, "not finished: too few trials have ended"),
            Missing::Spoiled => write!(f, "not measured: the tester spoiled the trials"),
            Missing::Void(why) => write!(f, "invalid: {why}"),
            Missing::WrongReplies(wrong) => {
                write!(f, "no number: every reply was wrong ({wrong}), see its configuration")
            }
            Missing::Ended(end) => write!(f, "no number: {end}"),
            Missing::NoRate => {
                write!(f, "not measured: the worst case has no median to take a share of")
            }
            Missing::NoPassingRate => write!(f, "a search found no passing rate"),
            Missing::CannotBeMade(why) => write!(f, "cannot be made here: {why}"),
            Missing::NotCounted => write!(f, "not measured: the host does not count it"),
            Missing::NotChecked { why } => write!(f, "not checked: {why}"),
        }
    }
}
