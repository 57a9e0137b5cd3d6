//! Multiple Loss Ratio search (MLRsearch, RFC 9971): several goals in one search, short trials
//! first.
//!
//! A [`Goal`](goal::Goal) says how much loss a trial may have, what share of the trials' time may
//! have more, how long trials are in the end, and how narrowly the rate is wanted. [`tally`]
//! classifies one load for one goal from all trials at it; [`search`] chooses which load is tried
//! next, and for how long:
//!
//! ```text
//! goal ─► targets: coarse and short ─► finer and longer ─► final (the goal itself)
//!                     │
//! trial at a load ─► tally for every target ─► lower bound | upper bound | undecided
//!                     │
//!         relevant upper bound = lowest load that is an upper bound
//!         relevant lower bound = highest load below it that is a lower bound
//!                     │
//!         wider than the target: next load between them;  narrow: next target;  last target: result
//! ```
//!
//! What a load *is* follows RFC 9971 to the letter; in which order loads are tried is ours, as the
//! RFC leaves it open.

pub mod goal;
pub mod search;
pub mod set;
pub mod tally;
