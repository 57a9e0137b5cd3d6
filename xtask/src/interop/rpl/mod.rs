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
mod known;
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

/// Result of a scenario.
enum Verdict {
    Passed,
    /// The difference is one that dns64d must have, for this reason.
    Differs(&'static str),
    Failed(String),
}

/// Runs all scenarios that apply, and prints those that do not.
fn scenarios(bench: &Bench) -> Result<()> {
    let files = source::files()?;
    let library = output("faketime", &["-f", "+0", "printenv", "LD_PRELOAD"], LIMIT)?;
    let is_applicable = |file: &File| known::inapplicable(&file.name).is_none();
    let (applicable, inapplicable): (Vec<File>, Vec<File>) =
        files.into_iter().partition(is_applicable);
    let run = applicable.len();
    let one = |file: File| (verdict(&file.name, run_file(bench, library.trim(), &file)), file.name);
    let mut verdicts = at_the_same_time(AT_ONCE, applicable.into_iter(), one);
    verdicts.sort_by(|(_, one), (_, other)| one.cmp(other));
    let count = |is_so: fn(&Verdict) -> bool| verdicts.iter().filter(|(v, _)| is_so(v)).count();
    println!(
        "        {run} scenarios run: {} passed, {} differ for a reason, {} failed; {} not applicable",
        count(|verdict| matches!(verdict, Verdict::Passed)),
        count(|verdict| matches!(verdict, Verdict::Differs(_))),
        count(|verdict| matches!(verdict, Verdict::Failed(_))),
        inapplicable.len()
    );
    let mut failed = Vec::new();
    for (verdict, name) in &verdicts {
        match verdict {
            Verdict::Passed => {}
            Verdict::Differs(reason) => println!("            {name} differs: {reason}"),
            Verdict::Failed(error) => failed.push(format!("{name}: {error}")),
        }
    }
    for File { name, .. } in &inapplicable {
        let reason = known::inapplicable(name).unwrap_or_default();
        println!("            {name} is not applicable: {reason}");
    }
    ensure!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
    ensure!(run >= FEWEST, "only {run} scenarios run, and {FEWEST} are required");
    Ok(())
}

/// Returns the verdict on a scenario that has been run.
fn verdict(name: &str, outcome: Result<()>) -> Verdict {
    let Err(error) = outcome else { return Verdict::Passed };
    match known::difference(name).filter(|known| error.to_string().contains(known.text)) {
        Some(known) => Verdict::Differs(known.reason),
        None => Verdict::Failed(format!("{error:#}")),
    }
}

/// Runs a scenario, and compares all responses.
fn run_file(bench: &Bench, library: &str, file: &File) -> Result<()> {
    let mut scenario = Scenario::read(&file.text)?;
    if !scenario.config.limits_iterations {
        rehash::rehash(&mut scenario)?;
    }
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
