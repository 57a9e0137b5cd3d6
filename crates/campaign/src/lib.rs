//! Campaigns and searches: the plan, the trials of each measurement point, the run folder, and the
//! results. [`search`] runs a single search, without a run folder.
//!
//! ```text
//! plan ─► record ─► sequence, programme ─► journal, archive ─┬─► results ─► crate report
//!                                                          └─► runner (on crate hosts)
//! ```
//!
//! In the diagram above, each module uses only modules to its left.
#![forbid(unsafe_code)]

pub mod archive;
pub mod journal;
pub mod plan;
mod programme;
pub mod record;
pub mod results;
pub mod runner;
pub mod search;
pub mod sequence;
