//! Multiple Loss Ratio search (MLRsearch, RFC 9971): several goals in one search, short trials first.
//!
//! A [`Goal`](goal::Goal) defines the tolerated loss of a trial. Trials with a higher loss may make up at most a given
//! fraction of the total trial time. The goal also defines the final trial duration and the maximum width of the rate
//! interval. Each goal is preceded by *targets*, which are easier goals with wider intervals and shorter trials.
//! [`tally`] classifies a load for one target from all trials at that load. [`search`] chooses the next load and its
//! duration:
//!
//! ```text
//! goal ─► targets: coarse and short ─► finer and longer ─► final (the goal itself)
//!                     │
//! trial at a load ─► class for every target ─► lower bound | upper bound | undecided
//!                     │
//!         relevant upper bound = lowest load that is an upper bound
//!         relevant lower bound = highest load below it that is a lower bound
//!                     │
//!         wider than the target: next load between them;  narrow: next target;  last target: result
//! ```
//!
//! The classification of a load follows RFC 9971 exactly. The RFC does not specify the order in which loads are tried,
//! so the order is a choice of this implementation.

pub mod goal;
pub mod search;
pub mod set;
pub mod tally;
