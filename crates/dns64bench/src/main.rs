//! dns64bench: the benchmark of RFC 8219 for DNS64 servers.
//!
//! `args` (command line) ─► `resolve` (plans) ─► `commands` (one file each) ─► `output` (printing).
#![forbid(unsafe_code)]

/// Same as `print!` of the standard library, but ends the program cleanly if standard output cannot be written (see the
/// module `streams`).
macro_rules! print {
    ($($words:tt)*) => { $crate::streams::print(format_args!($($words)*)) };
}

/// Same as `println!` of the standard library, but ends the program cleanly if standard output cannot be written (see
/// the module `streams`).
macro_rules! println {
    () => { $crate::streams::print(format_args!("\n")) };
    ($($words:tt)*) => { $crate::streams::print(format_args!("{}\n", format_args!($($words)*))) };
}

/// Same as `eprintln!` of the standard library, but continues if standard error cannot be written (see the module
/// `streams`).
macro_rules! eprintln {
    ($($words:tt)*) => { $crate::streams::print_error(format_args!("{}\n", format_args!($($words)*))) };
}

mod args;
mod colour;
mod commands;
mod interruption;
mod intervals;
mod lines;
mod metrics;
mod output;
mod progress;
mod resolve;
mod streams;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::panic;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use args::{Arguments, Command};
use colour::may_colour;
use net::descriptors::raise_limit;
use output::Failure;
use streams::Unwritable;

fn main() -> ExitCode {
    streams::begin();
    match panic::catch_unwind(run) {
        Ok(status) => status,
        Err(payload) => match payload.downcast::<Unwritable>() {
            Ok(unwritable) => unwritable.report(),
            Err(defect) => panic::resume_unwind(defect),
        },
    }
}

/// Starts the log on standard error. The environment variable `DNS64BENCH_LOG` contains a level, or levels by module
/// (`warn,tester=debug`). If the variable is missing or invalid, warnings and errors are logged.
fn start_log() {
    let filter = std::env::var("DNS64BENCH_LOG").ok().and_then(|levels| levels.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(may_colour(&std::io::stderr()))
        // The logging library reports its own errors on standard error, and panics if standard error is closed.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
}

fn run() -> ExitCode {
    let command = command();
    // `campaign` and `lab` start servers, which must run with the file limit of their user, not with a raised limit.
    if !matches!(command, Command::Campaign(_) | Command::Lab(_)) {
        raise_limit();
    }
    start_log();
    let outcome = match command {
        Command::Quickstart(a) => commands::quickstart::run(&a),
        Command::Try(a) => commands::try_server::run(&a),
        Command::Measure(a) => commands::measure::run(&a),
        Command::Merge(a) => commands::merge::run(&a),
        Command::Search(a) => commands::search::run(*a),
        Command::SelfTest(a) => commands::self_test::run(&a),
        Command::ClosedLoop(a) => commands::closed_loop::run(&a),
        Command::Resperf(a) => commands::resperf::run(&a),
        Command::Dns64perf(a) => commands::dns64perf::run(&a),
        Command::Campaign(a) => commands::campaign::run(&a),
        Command::Report(a) => commands::report::run(&a),
        Command::Conform(a) => commands::conform::run(&a),
        Command::Auth(a) => commands::auth::run(&a),
        Command::ReferenceDut(a) => commands::reference_dut::run(&a),
        Command::Zone(a) => commands::zone::run(&a),
        Command::Queryfile(a) => commands::queryfile::run(&a),
        Command::Lab(a) => commands::lab::run(&a),
        Command::Check(a) => commands::check::run(&a),
        Command::Completions { shell } => commands::pages::completions(shell),
        Command::Manual(a) => commands::pages::manual(&a),
        Command::Schema(a) => commands::schema::run(&a),
        Command::SendCost(a) => commands::send_cost::run(&a),
        Command::Agent(a) => commands::agent::run(&a),
        Command::Dns64d { arguments } => {
            Ok(dns64::process::daemon::main(std::iter::once("dns64d".into()).chain(arguments)))
        }
    };
    outcome.unwrap_or_else(Failure::report)
}

/// Returns the parsed command line. If this program is called through a link with the name of an older tool, it accepts
/// the arguments of that tool.
fn command() -> Command {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().and_then(|path| Path::new(path).file_name()).map(OsStr::to_owned);
    match name.as_deref().and_then(OsStr::to_str) {
        Some("resperf") => Command::Resperf(Box::new(parsed(words))),
        Some("resperf-report") => {
            words.insert(1, "--report".into());
            Command::Resperf(Box::new(parsed(words)))
        }
        Some("dns64perf++") => Command::Dns64perf(parsed(words)),
        Some("dns64perf2") => {
            words.splice(1..1, ["closed-loop", "--dns64perf2"].map(OsString::from));
            parsed::<Arguments>(words).command
        }
        _ => parsed::<Arguments>(words).command,
    }
}

/// Parses the words of the command line. For invalid arguments, prints a message in the same form as other errors, and
/// ends the program.
fn parsed<T: Parser>(words: Vec<OsString>) -> T {
    T::try_parse_from(words).unwrap_or_else(|error| {
        if !error.use_stderr() {
            // clap returns the text of `--help` and `--version` as an error.
            let written = error.print().and_then(|()| std::io::stdout().flush());
            written.map_or_else(streams::give_up, |()| {});
            std::process::exit(error.exit_code())
        }
        eprintln!("dns64bench: {}", cli::wrong_arguments(&error));
        std::process::exit(error.exit_code())
    })
}
