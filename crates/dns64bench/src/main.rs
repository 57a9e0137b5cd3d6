//! dns64bench: the RFC 8219 benchmark for DNS64 servers.
//!
//! `args` (what was typed) ─► `resolve` (what it means) ─► `commands` (one file each) ─► `output` (what is printed).
#![forbid(unsafe_code)]

mod args;
mod commands;
mod intervals;
mod output;
mod progress;
mod resolve;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, Dns64perf, Resperf};
use output::Failure;

fn main() -> ExitCode {
    let command = command();
    let filter = tracing_subscriber::EnvFilter::try_from_env("DNS64BENCH_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let outcome = match command {
        Command::Quickstart(a) => commands::quickstart::run(&a),
        Command::Measure(a) => commands::measure::run(&a),
        Command::Search(a) => commands::search::run(*a),
        Command::SelfTest(a) => commands::self_test::run(&a),
        Command::ClosedLoop(a) => commands::closed_loop::run(&a),
        Command::Resperf(a) => commands::resperf::run(&a),
        Command::Dns64perf(a) => commands::dns64perf::run(&a),
        Command::Campaign(a) => commands::campaign::run(&a),
        Command::Report(a) => commands::report::run(&a),
        Command::Auth(a) => commands::auth::run(&a),
        Command::ReferenceDut(a) => commands::reference_dut::run(&a),
        Command::Zone(a) => commands::zone::run(&a),
        Command::Lab(a) => commands::lab::run(&a),
        Command::Check(a) => commands::check::run(&a),
        Command::SendCost(a) => commands::send_cost::run(&a),
        Command::Agent(a) => commands::agent::run(&a),
        Command::Dns64d { arguments } => {
            Ok(dns64::process::daemon::main(std::iter::once("dns64d".into()).chain(arguments)))
        }
    };
    outcome.unwrap_or_else(Failure::report)
}

/// What was asked for. Under the name of an older tool (a link to this program) its arguments are understood as they are.
fn command() -> Command {
    let called = std::env::args_os().next().map(std::path::PathBuf::from);
    match called.as_deref().and_then(|path| path.file_name()?.to_str()) {
        Some("resperf") => Command::Resperf(Box::new(Resperf::parse())),
        Some("dns64perf++") => Command::Dns64perf(Dns64perf::parse()),
        _ => Arguments::parse().command,
    }
}
