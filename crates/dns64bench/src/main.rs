//! dns64bench: the RFC 8219 benchmark for DNS64 servers.
//!
//! `args` (what was typed) ─► `resolve` (what it means) ─► `commands` (one file each) ─► `output` (what is printed).
#![forbid(unsafe_code)]

mod args;
mod commands;
mod output;
mod progress;
mod resolve;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};
use output::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("DNS64BENCH_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let outcome = match arguments.command {
        Command::Quickstart(a) => commands::quickstart::run(&a),
        Command::Measure(a) => commands::measure::run(&a),
        Command::Search(a) => commands::search::run(*a),
        Command::SelfTest(a) => commands::self_test::run(&a),
        Command::ClosedLoop(a) => commands::closed_loop::run(&a),
        Command::Campaign(a) => commands::campaign::run(&a),
        Command::Report(a) => commands::report::run(&a),
        Command::Auth(a) => commands::auth::run(&a),
        Command::ReferenceDut(a) => commands::reference_dut::run(&a),
        Command::Zone(a) => commands::zone::run(&a),
        Command::Lab(a) => commands::lab::run(&a),
        Command::Check(a) => commands::check::run(&a),
        Command::Dns64d { arguments } => Ok(dns64::daemon::main(std::iter::once("dns64d".into()).chain(arguments))),
    };
    outcome.unwrap_or_else(Failure::report)
}
