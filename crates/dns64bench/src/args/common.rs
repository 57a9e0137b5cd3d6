//! Options that several commands share.

use std::net::SocketAddr;

use clap::Args;

use super::help::{FILES, SERVER};
use super::values::parse_address;

/// Options of the liveness check.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Asking {
    /// Probe the server before the first trial, and after a trial with no valid reply: no reply within
    /// 6 s, or replies that are all wrong in the same way, end the command with status 4
    #[arg(long, value_name = "YES", default_value_t = true, action = clap::ArgAction::Set, help_heading = SERVER)]
    pub(crate) liveness: bool,
}

/// Options for displaying results.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Display {
    /// Print one JSON object
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
    /// No progress, and results only
    #[arg(long, short, help_heading = FILES)]
    pub(crate) quiet: bool,
    /// Show the running measurement to Prometheus at this address, under /metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = FILES)]
    pub(crate) metrics: Option<SocketAddr>,
}
