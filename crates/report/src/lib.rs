//! Reports, computed from run folders without new measurements. A report is one page that can be
//! read offline. Its tables and figures are also written as files.
//!
//! ```text
//! run folder ─► Run ─► sections, one per measure ─┬─► tables ──► report.html, tables.md, tables.tex
//!                                                 ├─► rows ────► results.csv, points.csv, searches.csv, trials.csv
//!                                                 └─► figures ─► report.html, figures/*.{svg,png,pdf}, figures.tex
//! ```
//!
//! This crate does not depend on `tester`, so it cannot send a query.
#![forbid(unsafe_code)]

mod caveats;
mod change;
pub mod chart;
pub mod comparison;
mod csv;
pub mod format;
mod latex;
mod pacing;
mod page;
mod places;
mod run;
mod section;
mod sections;
mod servers;
mod summary;
mod table;
mod tables;
mod tidy;
mod valid_replies;
pub mod wording;
mod write;

pub use page::page;
pub use run::Run;
pub use write::{publication, write, write_compared};

#[cfg(test)]
mod csv_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod papers_tests;
#[cfg(test)]
mod runs_tests;
#[cfg(test)]
mod values_tests;
