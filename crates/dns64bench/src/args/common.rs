//! Options that several commands share.

use std::net::SocketAddr;

use clap::Args;

use super::help::{FILES, SERVER};
use super::values::parse_metrics_address;

/// Options for the liveness check, which tests whether the server responds.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LivenessOptions {
    /// Probe the server before the first trial, and after a trial with no valid reply. The command ends with status 4
    /// if no reply arrives within 6 s, or if all replies to the probes have the same fault
    #[arg(long, value_name = "YES", default_value_t = true, action = clap::ArgAction::Set, help_heading = SERVER)]
    pub(crate) liveness: bool,
}

/// Options for displaying results.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Display {
    /// Print the result as one JSON object
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
    /// Print results only, without progress
    #[arg(long, short, help_heading = FILES)]
    pub(crate) quiet: bool,
    /// Serve Prometheus metrics of the running measurement at http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_metrics_address, help_heading = FILES)]
    pub(crate) metrics: Option<SocketAddr>,
}
