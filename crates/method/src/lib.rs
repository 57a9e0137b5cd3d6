//! The rules of RFC 8219 for benchmarking DNS64 servers, as pure functions: no sockets, no clock, no threads.
//!
//! ```text
//! units ─► schedule ─► (a trial runs elsewhere) ─► records ─► pacing ─► verdict ─► search ─► stats
//!          t₁+i·T                                  outcomes   audit     passed/    highest   median …
//!                                                                       failed/    passing
//!                                                                       invalid    rate
//! ```
//!
//! - [`narrow`]: binary search with short probes before full trials; [`mlr`]: search according to RFC 9971; [`set`]:
//!   all searches at one measurement point.
//! - [`selftest`]: formulas for the required rate of the tester.
//! - [`reason`]: reasons why a trial did not pass; [`warning`]: observations that did not affect the verdict.
//! - [`stats`]: summary of the results of several searches; [`precision`]: precision of rates; [`change`]: detection of
//!   slowdowns.
//! - [`evidence`]: check of the load that the DUT actually received.
//! - [`compliance`]: search for deviations from RFC 8219; [`noncompliance`]: list of these deviations.
#![forbid(unsafe_code)]

pub mod change;
pub mod compliance;
pub mod evidence;
mod in_words;
pub mod mlr;
pub mod narrow;
pub mod noncompliance;
pub mod pacing;
pub mod precision;
pub mod reason;
pub mod records;
pub mod schedule;
pub mod search;
pub mod selftest;
pub mod set;
pub mod stats;
pub mod verdict;
pub mod warning;
