//! `quickstart`: AuthDNS, dns64d and the Measurer on this host; self-test, then three short
//! measurements.

use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use campaign::journal::Journal;
use campaign::report::chart::number;
use campaign::search::{SearchError, SearchResult};
use campaign::search_plan::{Method, SearchPlan};
use campaign::wording;
use method::noncompliance::Noncompliance;
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use method::search::SearchRange;
use method::selftest::{MIN_DELTA, allowed_rate};
use method::units::{Nanos, Qps, Share};
use net::socket::Endpoint;
use serde::Serialize;
use tester::measurer::plan::TrialPlan;

use super::measured_send_cost;
use super::search::{Terminal, UsedNames};
use super::self_test::{SelfTestPlan, SelfTestResult};
use crate::args::Quickstart;
use crate::output::{Failure, Outcome, grouped, print_json, print_points};
use crate::resolve::{as_self_test, with_names};
use crate::{colour, interruption, metrics};

/// The least rate that the self-test is to vouch for, and where it ends looking for more.
const FOR_RATE: Qps = Qps(2_000);
const SELF_TEST_TO: Qps = Qps(600_000);
/// Where the searches begin and end.
const LOWEST: Qps = Qps(1_000);
const HIGHEST: Qps = Qps(400_000);
const RESOLUTION: Qps = Qps(4_000);
const TRIAL: Nanos = Nanos::SECOND;
const PAUSE: Duration = Duration::from_millis(150);
/// All share one host, and steps of the search are wider than this, in per cent.
const WINDOW_LIMIT: f64 = 5.0;
/// A host that is too busy for a rate is so the next time too.
const INVALID_RETRIES: u32 = 1;
/// The DNS64 prefix that dns64d is started with.
const PREFIX: &str = "64:ff9b::/96";

/// One of the things that are measured.
struct Stage {
    /// What the table and the JSON call it.
    name: &'static str,
    meaning: &'static str,
    aaaa_share: Share,
    cached_share: Share,
    repeat: u32,
}

const STAGES: [Stage; 3] = [
    Stage {
        name: "worst_case",
        meaning: "no AAAA records, nothing cached: two questions to AuthDNS for each query",
        aaaa_share: Share::ZERO,
        cached_share: Share::ZERO,
        repeat: 3,
    },
    Stage {
        name: "all_aaaa",
        meaning: "all names have AAAA records: one question, no translation",
        aaaa_share: Share::ONE,
        cached_share: Share::ZERO,
        repeat: 1,
    },
    Stage {
        name: "all_cached",
        meaning: "all names resolved before: no question, translation from the cache",
        aaaa_share: Share::ZERO,
        cached_share: Share::ONE,
        repeat: 1,
    },
];

#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct QuickstartResult {
    dut: String,
    self_test: SelfTestResult,
    worst_case: SearchResult,
    all_aaaa: SearchResult,
    all_cached: SearchResult,
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    noncompliance: Vec<Noncompliance>,
}

pub(crate) fn run(args: &Quickstart) -> Outcome {
    interruption::heed()?;
    let quiet = args.display.quiet || args.display.json;
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    metrics::serve(args.display.metrics, "quickstart", &[], quiet)?;
    say("1/4  Self-test: how fast are Measurer and AuthDNS on this machine?");
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let self_test = self_test(folder.path(), quiet)?;
    let mut found = Vec::new();
    for (i, stage) in STAGES.iter().enumerate() {
        say(&format!("{}/4  dns64d: {}", i + 2, stage.meaning));
        let measured = measure(stage, &self_test, quiet);
        let so_far = |failure: Failure| failure.with_advice(&so_far(&self_test, &found));
        found.push(measured.map_err(so_far)?);
    }
    let [worst_case, all_aaaa, all_cached] = found
        .try_into()
        .map_err(|_| Failure::environment(anyhow::anyhow!("not every stage was measured")))?;
    let noncompliance = worst_case.noncompliance.clone();
    let dut = format!("dns64d {}", dns64::BUILD);
    let result =
        QuickstartResult { dut, self_test, worst_case, all_aaaa, all_cached, noncompliance };
    if args.display.json {
        print_json(&result)?;
    } else {
        print(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn self_test(folder: &Path, quiet: bool) -> Result<SelfTestResult, Failure> {
    let status = status_in(folder, "self-test");
    let (mut auth, address) = auth(Share::ONE, folder, &status)?;
    let found = super::self_test::self_test(&self_test_plan(address, &status), quiet, true);
    found.map_err(|failure| with_what_servers_say(failure, [&mut auth]))
}

/// A self-test for the worst case, which is the first stage: AuthDNS is asked as the DUT will be.
fn self_test_plan(auth: SocketAddr, status: &str) -> SelfTestPlan {
    let Stage { aaaa_share, cached_share, .. } = STAGES[0];
    // AuthDNS has no prefix: its addresses are those of the names.
    let asked = TrialPlan { prefixes: Vec::new(), ..trial(&STAGES[0], auth, status) };
    SelfTestPlan {
        trial: as_self_test(asked, MIN_DELTA),
        for_rate: FOR_RATE,
        aaaa_share,
        cached_share,
        delta: MIN_DELTA,
        repeat: 1,
        search_to: Some(SELF_TEST_TO),
    }
}

/// Starts servers that nothing has been asked of, and searches.
fn measure(
    stage: &Stage,
    self_test: &SelfTestResult,
    quiet: bool,
) -> Result<SearchResult, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let status = status_in(folder.path(), "auth");
    let (mut auth, auth_address) = auth(stage.aaaa_share, folder.path(), &status)?;
    let (mut dut, dut_address) = dns64d(auth_address, folder.path())?;
    // A trial that passed beyond what the tester can vouch for would say nothing more.
    let allowed =
        |passed| allowed_rate(passed, stage.aaaa_share, stage.cached_share, self_test.delta);
    let max = self_test.passed_rate.map_or(LOWEST, allowed).clamp(LOWEST, HIGHEST);
    let mut plan = SearchPlan {
        trial: trial(stage, dut_address, &status),
        range: SearchRange {
            min: LOWEST,
            max,
            resolution: RESOLUTION,
            invalid_retries: INVALID_RETRIES,
        },
        repeat: stage.repeat,
        pause: PAUSE,
        reuse_names: false,
        self_test: self_test.vouches(),
        method: Method::Bisection,
    };
    plan.trial.send_cost = measured_send_cost(&plan.trial)?;
    let plan = with_names(plan, false)?;
    let mut journal =
        Journal::create(&folder.path().join("journal.jsonl"), &plan).map_err(SearchError::from)?;
    let used = UsedNames { first: plan.trial.first_name, count: plan.most_names() };
    let mut terminal = Terminal::new(quiet, Some(used));
    let found = campaign::search::run(&plan, &mut journal, Vec::new(), &mut terminal);
    let found =
        found.map_err(|error| with_what_servers_say(error.into(), [&mut auth, &mut dut]))?;
    found.ok_or_else(|| Failure::environment(anyhow::anyhow!("the search found nothing")))
}

/// The trials of a stage, but for their rates.
fn trial(stage: &Stage, dut: SocketAddr, auth_status: &str) -> TrialPlan {
    let defaults = TrialPlan::new(dut, LOWEST);
    TrialPlan {
        duration: TRIAL,
        timeout: default_timeout(TRIAL),
        aaaa_share: stage.aaaa_share,
        cached_share: stage.cached_share,
        prefixes: vec![PREFIX.parse().expect("a constant")],
        limits: PacingLimits { window_100ms_pct: WINDOW_LIMIT, ..defaults.limits },
        auth_status: Some(auth_status.into()),
        ..defaults
    }
}

/// Where an AuthDNS says how it is.
fn status_in(folder: &Path, name: &str) -> String {
    folder.join(format!("{name}.status")).to_string_lossy().into_owned()
}

fn auth(
    aaaa_share: Share,
    folder: &Path,
    status: &str,
) -> Result<(ServerProcess, SocketAddr), Failure> {
    let address = free_port()?;
    let listen = address.to_string();
    let share = aaaa_share.to_string();
    let typed =
        ["auth", "--listen", &listen, "--aaaa-share", &share, "--threads", "1", "--status", status];
    Ok((ServerProcess::start(&this_program(&typed)?, address, folder)?, address))
}

/// dns64d from inside this program, so that there is one to measure wherever dns64bench is.
fn dns64d(upstream: SocketAddr, folder: &Path) -> Result<(ServerProcess, SocketAddr), Failure> {
    let address = free_port()?;
    // The names of the tester stand for 10.0.0.0/8, which the well-known prefix carries only if
    // told.
    let config = format!(
        "listen = [\"{address}\"]\nthreads = 1\n\
         [dns64]\nprefixes = [{{ prefix = \"{PREFIX}\", allow-non-global = true }}]\n\
         [[upstream]]\naddress = \"{}\"\nport = {}\n",
        upstream.ip(),
        upstream.port()
    );
    let file = folder.join("dns64d.toml");
    std::fs::write(&file, config)
        .with_context(|| file.display().to_string())
        .map_err(Failure::environment)?;
    let file = file.to_string_lossy();
    let typed = this_program(&["dns64d", "--config", &file])?;
    Ok((ServerProcess::start(&typed, address, folder)?, address))
}

/// This program, with such a command.
fn this_program(typed: &[&str]) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe()
        .context("cannot find this program")
        .map_err(Failure::environment)?;
    let program = program.to_string_lossy().into_owned();
    Ok([program].into_iter().chain(typed.iter().map(|word| (*word).to_owned())).collect())
}

fn print(result: &QuickstartResult) {
    let test = &result.self_test;
    let passed = test.passed_rate.map_or("-".to_owned(), |rate| number(rate.0 as f64));
    println!();
    println!("{:<24} {:>18}   what it says", "", "queries/s");
    let verdict = colour::verdict(test.verdict, &io::stdout());
    println!(
        "{:<24} {passed:>18}   {verdict}: Measurer and AuthDNS alone",
        "self-test of the tester"
    );
    for (stage, search) in
        STAGES.iter().zip([&result.worst_case, &result.all_aaaa, &result.all_cached])
    {
        let (rate, how) = rate(search);
        println!("{:<24} {rate:>18}   {how}{}", stage.name.replace('_', " "), stage.meaning);
    }
    println!();
    println!("DUT: {}, one worker, on this host", result.dut);
    for (stage, search) in
        STAGES.iter().zip([&result.worst_case, &result.all_aaaa, &result.all_cached])
    {
        let reasons = wording::lower_bounds(&search.lower_bound_reasons);
        print_points(&format!("Lower bound ({})", stage.name.replace('_', " ")), &reasons);
    }
    print_points("Not RFC 8219 compliant", &result.noncompliance);
    println!("Next: README.md, \"A first real measurement\"");
}

/// The rate that was found, and how.
fn rate(search: &SearchResult) -> (String, String) {
    let found = &search.figures;
    let interval = wording::interval(&found.interval);
    match (found.n, found.median) {
        (0, _) => ("not measured".to_owned(), String::new()),
        (1, _) => (interval, "single search; ".into()),
        (n, Some(_)) => {
            (wording::median(found), format!("median of {n} searches, all {interval}; "))
        }
        (_, None) => (interval, format!("{}; ", wording::median(found))),
    }
}

/// What is known where a later stage could not be measured, or the user did not wait for it.
fn so_far(self_test: &SelfTestResult, found: &[SearchResult]) -> String {
    let passed = self_test.passed_rate.map_or("nothing".to_owned(), |rate| grouped(rate.0));
    let stages = STAGES.iter().zip(found).map(|(stage, search)| {
        let (rate, _) = rate(search);
        format!(", {} {rate}", stage.name.replace('_', " "))
    });
    format!("so far (queries/s): self-test passed {passed}{}", stages.collect::<String>())
}

/// What keeps a measurement from being made, with what has become of the servers.
fn with_what_servers_say<const N: usize>(
    failure: Failure,
    servers: [&mut ServerProcess; N],
) -> Failure {
    if !failure.is_of_environment() {
        return failure;
    }
    let said = servers.map(ServerProcess::how_it_is);
    failure.with_advice(&said.join("; "))
}

/// A server that was started from this same program, and ends with this value.
struct ServerProcess {
    name: String,
    child: Child,
    /// What it writes to standard error.
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a program that is to serve at an address.
    fn start(
        typed: &[String],
        address: SocketAddr,
        folder: &Path,
    ) -> Result<ServerProcess, Failure> {
        let [program, name, ..] = typed else { unreachable!("a program and a command") };
        let log = folder.join(format!("{name}.log"));
        let started = File::create(&log).and_then(|file| {
            Command::new(program).args(&typed[1..]).stdout(Stdio::null()).stderr(file).spawn()
        });
        let child = started
            .with_context(|| format!("cannot start {name}"))
            .map_err(Failure::environment)?;
        let mut server = ServerProcess { name: name.clone(), child, log };
        if let Err(error) = server.wait_until_ready(address) {
            let failure = anyhow::anyhow!("{name} does not serve: {error}");
            return Err(with_what_servers_say(Failure::environment(failure), [&mut server]));
        }
        Ok(server)
    }

    /// Whether it runs, and the last thing that it said.
    fn how_it_is(&mut self) -> String {
        let name = &self.name;
        let state = match self.child.try_wait() {
            Ok(None) => format!("{name} runs"),
            Ok(Some(status)) => format!("{name} has ended with {status}"),
            Err(error) => format!("nobody knows whether {name} runs: {error}"),
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        match log.trim().lines().last() {
            Some(last) => format!("{state}, and said last: {last}"),
            None => state,
        }
    }

    /// Ready when the address is taken: it was free before.
    fn wait_until_ready(&mut self, address: SocketAddr) -> io::Result<()> {
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up {
            if self.child.try_wait()?.is_some() {
                return Err(io::Error::other("it has ended"));
            }
            if Endpoint::listen(address, 1).is_err() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<SocketAddr, Failure> {
    campaign::ports::free(Ipv6Addr::LOCALHOST.into())
        .context("cannot listen on [::1]")
        .map_err(Failure::environment)
}

#[cfg(test)]
mod tests {
    use method::verdict::Acceptance;
    use tester::measurer::plan::Subject;

    use super::*;

    #[test]
    fn what_has_become_of_a_server_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let start = |script: &str, address| {
            let typed = ["/bin/sh", "-c", script].map(str::to_owned);
            ServerProcess::start(&typed, address, folder.path())
        };
        let Err(failure) =
            start("echo one >&2; echo no such thing >&2; exit 3", free_port().ok().unwrap())
        else {
            panic!("it serves")
        };
        assert_eq!(
            failure.to_string(),
            "-c does not serve: it has ended; -c has ended with exit status: 3, and said last: no such thing"
        );
        // One that is there, and does not answer.
        let taken = free_port().ok().unwrap();
        let _held = Endpoint::listen(taken, 1).unwrap();
        let mut runs = start("exec sleep 60", taken).ok().unwrap();
        assert_eq!(runs.how_it_is(), "-c runs");
    }

    #[test]
    fn the_self_test_sends_as_the_trials_that_it_vouches_for() {
        let address = "[::1]:5353".parse().unwrap();
        let plan = self_test_plan(address, "/run/status");
        for stage in &STAGES {
            let trial = trial(stage, address, "/run/status");
            assert_eq!(plan.trial.sender_settings(), trial.sender_settings(), "{}", stage.name);
            assert_eq!(
                (plan.trial.duration, plan.trial.auth_limit),
                (trial.duration, trial.auth_limit)
            );
            assert_eq!(plan.trial.timeout.0, trial.timeout.0 / 4, "RFC 8219 §9.2.1");
        }
        assert_eq!(
            plan.trial.subject,
            Subject::Tester { factor: 2.0 * (1.0 + MIN_DELTA), delta: MIN_DELTA }
        );
        assert_eq!((plan.trial.aaaa_share, plan.trial.accept), (Share::ONE, Acceptance::ALL));
        assert_eq!(plan.trial.auth_status.as_deref(), Some(Path::new("/run/status")));
    }
}
