//! Unbound's own scenarios for its validator (`testdata/val_*.rpl` in its source), run against dns64d. The scenarios
//! are an oracle that is independent of dns64d: their authors wrote down which responses are secure, insecure or bogus.
//!
//! ```text
//! source ─► reader ─► resign (SHA-1 becomes SHA-2) ─► upstream (flatten) ◄── dns64d, at the time of the scenario
//!                                                                               ▲
//!                                       expected response ─► compared ◄─ check ─┘
//! ```

mod check;
mod flatten;
mod inapplicable;
mod reader;
mod rehash;
mod resign;
mod source;
mod upstream;

use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use self::check::{Outcome, ask};
use self::reader::{Config, Entry, Event, Scenario};
use self::source::File;
use self::upstream::Upstream;
use super::harness::{Bench, LIMIT};
use super::test::Test;
use crate::process::{Server, at_the_same_time, free_port, output, wait_until};

pub(super) static TESTS: &[Test] = &[Test::new(
    "dnssec: Unbound's scenarios of its validator",
    &["faketime", "printenv"],
    scenarios,
)
.downloading()];

/// Number of scenarios that run in parallel. They mostly wait.
const AT_ONCE: usize = 4;
/// Minimum number of scenarios that must run.
const FEWEST: usize = 80;
/// Maximum time that can pass in a scenario, in seconds. It does not pass for dns64d, so no record may expire meanwhile.
const LONGEST: f64 = 10.0;

/// Runs all scenarios that apply, and prints the result of each.
fn scenarios(bench: &Bench) -> Result<()> {
    let files = source::files()?;
    let library = output("faketime", &["-f", "+0", "printenv", "LD_PRELOAD"], LIMIT)?;
    let (mut inapplicable, mut applicable) = (Vec::new(), Vec::new());
    for file in files {
        match inapplicable::reason(&file.name) {
            Some(reason) => inapplicable.push((file.name, reason)),
            None => applicable.push(file),
        }
    }
    let run = applicable.len();
    let one = |file: File| {
        let outcome = run_file(bench, library.trim(), &file);
        outcome.err().map(|error| format!("{}: {error:#}", file.name))
    };
    let outcomes = at_the_same_time(AT_ONCE, applicable.into_iter(), one);
    let mut failed: Vec<String> = outcomes.into_iter().flatten().collect();
    failed.sort();
    println!(
        "        {run} scenarios run, {} passed, {} failed, {} not applicable:",
        run - failed.len(),
        failed.len(),
        inapplicable.len()
    );
    inapplicable.iter().for_each(|(name, reason)| println!("            {name}: {reason}"));
    ensure!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
    ensure!(run >= FEWEST, "only {run} scenarios run, and {FEWEST} are required");
    Ok(())
}

/// Runs a scenario, and compares all responses.
fn run_file(bench: &Bench, library: &str, file: &File) -> Result<()> {
    let mut scenario = Scenario::read(&file.text)?;
    rehash::rehash(&mut scenario)?;
    resign::resign(&mut scenario)?;
    let (config, steps) = (scenario.config.clone(), scenario.steps.clone());
    let upstream = Upstream::start(scenario)?;
    let port = free_port()?;
    let dns64d = start(bench, library, &file.name, &config, upstream.port, port)?;
    let mut pending: Option<(&Entry, Outcome)> = None;
    for step in &steps {
        upstream.set_step(step.number);
        match &step.event {
            Event::Query(query) => {
                let outcome = ask(port, query).with_context(|| format!("line {}", query.line))?;
                pending = Some((query, outcome));
            }
            Event::CheckAnswer(response) => {
                let (query, outcome) = pending.take().context("a check without a query")?;
                if !query.header.recursion_desired && response.is_referral() {
                    // Only Unbound answers such queries with referrals from its cache.
                    continue;
                }
                let expected = Outcome::expected(query, response)?;
                if let Some(difference) = outcome.difference(&expected) {
                    bail!("line {}: {difference}", response.line);
                }
            }
            Event::Elapse(seconds) => ensure!(*seconds <= LONGEST, "the scenario lasts too long"),
            Event::Nothing => {}
        }
    }
    dns64d.end()?;
    Ok(())
}

/// Starts dns64d with the settings of a scenario, at its time.
fn start(
    bench: &Bench,
    library: &str,
    name: &str,
    config: &Config,
    upstream: u16,
    port: u16,
) -> Result<Server> {
    let anchors: String = config
        .anchors
        .iter()
        .map(|anchor| {
            format!("{} {} {}\n", anchor.owner().fmt_with_dot(), anchor.rtype(), anchor.data())
        })
        .collect();
    let anchors = bench.file(&format!("{name}.anchors"), &anchors)?;
    let text = format!(
        "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dns64]\nprefixes = []\n[dnssec]\nvalidate = true\n\
         trust-anchors = '{anchors}'\nnegative-trust-anchors = {:?}\n[[upstream]]\naddress = '127.0.0.1'\n\
         port = {upstream}\n",
        config.insecure
    );
    let file = bench.file(&format!("{name}.toml"), &text)?;
    let mut args = Vec::new();
    if let Some(date) = config.date {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let offset = i64::from(date.into_int()) - i64::try_from(now)?;
        args.extend([
            format!("LD_PRELOAD={library}"),
            format!("FAKETIME={offset:+}"),
            // Timeouts are those of the real clock.
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ]);
    }
    args.extend([bench.dns64d_program().to_owned(), "--config".to_owned(), file]);
    let log = bench.path(&format!("{name}.log"));
    let server = Server::start_logged("env", &args, log.as_ref())?;
    let listens = || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    wait_until("dns64d does not listen", Duration::from_secs(10), listens)?;
    Ok(server)
}
