//! The rules of RFC 8219 DNS64 benchmarking, as pure functions: no sockets, no clock, no threads.
//!
//! ```text
//! units ─► schedule ─► (a trial runs elsewhere) ─► records ─► pacing ─► verdict ─► search ─► stats
//!          t₁+i·T                                  outcomes   audit     passed/    highest   median …
//!                                                                       failed/    passing
//!                                                                       invalid    rate
//! ```
//!
//! [`narrow`] is the search with short probes in front, [`mlr`] the one of RFC 9971, [`set`] all
//! searches of a point. [`selftest`] holds the formulas that say how fast the tester itself must
//! be, [`reason`] why a trial did not pass, [`warning`] what did not decide and should be known,
//! [`stats`] what a set of searches amounts to, [`precision`] how exactly that is known, [`change`]
//! whether a server has become slower, [`evidence`] whether the DUT was asked what the plan wanted,
//! and [`compliance`] in which points ([`noncompliance`]) it all is not what RFC 8219 wants.
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
pub mod units;
pub mod verdict;
pub mod warning;
