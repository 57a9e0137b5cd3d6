//! Searches with their journal, whole campaigns with their run folder and report, and the lab.
//!
//! ```text
//! SearchPlan ─► search::run ─► trial ─► journal ─► SearchResult                        (one DUT that the user runs)
//!
//! plan ─► point ─► runner ──► site: AuthDNS, DUT ──► host ──► agent ──► processes      archive ─► results ─► report
//!                    │  ▲      servers: how each       world: lab, loopback, ssh         journal
//!                    ▼  │      is run
//!             `dns64bench measure`
//! ```
//!
//! `results` and `report` only read the run folder, and never measure.
#![forbid(unsafe_code)]

/// The version of this program, and the commit that it was built from, as in `0.2.0
/// (486a6f3a1b2c)`; with a `+` if the sources had been changed. Without the commit if it was not
/// built in a checkout.
pub const BUILD: &str = env!("BUILD_VERSION");

pub mod archive;
pub mod begun;
pub mod comparison;
mod contradictions;
pub mod cpu_list;
mod difference;
pub mod environment;
pub mod goal;
#[cfg(test)]
mod golden;
mod governor;
pub mod host;
pub mod host_change;
pub mod interruption;
pub mod journal;
pub mod lab;
pub mod measures;
mod missing;
pub mod new_file;
mod numa;
pub mod place;
pub mod plan;
mod plausible;
pub mod point;
pub mod ports;
pub mod preflight;
pub mod process;
pub mod recorded;
pub mod report;
pub mod results;
mod roles;
pub mod runner;
pub mod search;
pub mod search_plan;
pub mod servers;
mod site;
pub mod state;
pub mod text;
mod topology;
pub mod trials;
pub mod wording;
mod world;
pub mod written;
