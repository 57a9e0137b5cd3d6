//! `quickstart`: runs AuthDNS, dns64d and the Measurer on this host: a self-test, a closed loop, then searches in three
//! test cases.

use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use campaign::plan::{Method, PassedSelfTest, SearchPlan};
use campaign::search::SearchResult;
use method::noncompliance::Noncompliance;
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use method::search::SearchRange;
use method::selftest::{MIN_DELTA, allowed_rate};
use method::verdict::Verdict;
use net::socket::Endpoint;
use report::format::number;
use report::wording;
use serde::Serialize;
use tester::client::closed_loop::ClosedLoopResult;
use tester::measurer::plan::TrialPlan;
use units::{Nanos, Qps, Share};

use super::search::{Terminal, UsedNames};
use super::self_test::{SelfTestPlan, SelfTestResult};
use super::{measured_send_cost, short_run};
use crate::args::Quickstart;
use crate::lines::{plain_spaces, wrapped_for};
use crate::output::{Failure, Outcome, grouped, print_json};
use crate::resolve::{as_self_test, with_names};
use crate::{colour, interruption, metrics};

/// Rates of the self-test: the lowest rate that it must validate, and the highest rate that it tests.
const FOR_RATE: Qps = Qps(2_000);
const SELF_TEST_TO: Qps = Qps(600_000);
/// Rate range and resolution of the searches.
const LOWEST: Qps = Qps(1_000);
const HIGHEST: Qps = Qps(400_000);
const RESOLUTION: Qps = Qps(4_000);
const TRIAL: Nanos = Nanos::SECOND;
const PAUSE: Duration = Duration::from_millis(150);
/// Limit for the pacing deviation, in per cent of the rate. It is higher than the default, because AuthDNS, dns64d and
/// the Measurer run on the same host. At rates below 80,000 queries per second, it is smaller than the resolution of
/// the searches.
const WINDOW_LIMIT: f64 = 5.0;
/// Maximum number of retries of an invalid trial. The limit is low: if the host is too busy for a trial, it is probably
/// also too busy for a retry.
const INVALID_RETRIES: u32 = 1;
/// The DNS64 prefix in the configuration of dns64d.
const PREFIX: &str = "64:ff9b::/96";

/// A test case: the conditions of a set of searches.
struct Stage {
    /// Key of the result in the JSON object.
    name: &'static str,
    meaning: &'static str,
    aaaa_share: Share,
    cached_share: Share,
    repeat: u32,
}

impl Stage {
    /// Returns the name of the test case in the summary.
    fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}

const STAGES: [Stage; 3] = [
    Stage {
        name: "worst_case",
        meaning: "no AAAA records, no cache hits",
        aaaa_share: Share::ZERO,
        cached_share: Share::ZERO,
        repeat: 3,
    },
    Stage {
        name: "all_aaaa",
        meaning: "AAAA records for all names",
        aaaa_share: Share::ONE,
        cached_share: Share::ZERO,
        repeat: 1,
    },
    Stage {
        name: "all_cached",
        meaning: "cache hits only",
        aaaa_share: Share::ZERO,
        cached_share: Share::ONE,
        repeat: 1,
    },
];

#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct QuickstartResult {
    dut: String,
    self_test: SelfTestResult,
    /// Result of a closed loop (a constant number of queries in flight) in the worst case. A closed loop has no send
    /// schedule, so it stays valid even if the machine is busy.
    closed_loop: ClosedLoopResult,
    worst_case: SearchResult,
    all_aaaa: SearchResult,
    all_cached: SearchResult,
    #[serde(flatten, with = "method::noncompliance::in_words")]
    #[schemars(with = "method::noncompliance::in_words::Written<'static>")]
    noncompliance: Vec<Noncompliance>,
}

pub(crate) fn run(args: &Quickstart) -> Outcome {
    interruption::install_handlers()?;
    let quiet = args.display.quiet || args.display.json;
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    metrics::serve(args.display.metrics, "quickstart", &[], quiet)?;
    say("1/5  Self-test: Measurer and AuthDNS without a server");
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let self_test = self_test(folder.path(), quiet)?;
    say("2/5  dns64d in a closed loop");
    let closed_loop = closed_loop(quiet)?;
    let mut found = Vec::new();
    for (i, stage) in STAGES.iter().enumerate() {
        say(&format!("{}/5  dns64d: {}", i + 3, stage.meaning));
        let measured = measure(stage, &self_test, quiet);
        let so_far =
            |failure: Failure| failure.with_advice(&so_far(&self_test, &closed_loop, &found));
        found.push(measured.map_err(so_far)?);
    }
    let [worst_case, all_aaaa, all_cached] = found
        .try_into()
        .map_err(|_| Failure::environment(anyhow::anyhow!("not every stage was measured")))?;
    let searches = [&worst_case, &all_aaaa, &all_cached];
    let measured = searches.into_iter().find(|search| search.figures.n > 0);
    let noncompliance = measured.unwrap_or(&worst_case).noncompliance.clone();
    let dut = format!("dns64d {}", dns64::BUILD);
    let result = QuickstartResult {
        dut,
        self_test,
        closed_loop,
        worst_case,
        all_aaaa,
        all_cached,
        noncompliance,
    };
    if args.display.json {
        print_json(&result)?;
    } else {
        for line in summary(&result, &io::stdout()).lines() {
            println!("{}", wrapped_for(line, &io::stdout()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn self_test(folder: &Path, quiet: bool) -> Result<SelfTestResult, Failure> {
    let status = status_in(folder, "self-test");
    let (mut auth, address) = auth(Share::ONE, folder, &status)?;
    let found = super::self_test::self_test(&self_test_plan(address, &status), quiet, true);
    found.map_err(|failure| with_server_states(failure, [&mut auth]))
}

/// Plans a self-test for the worst case, which is the first test case. AuthDNS is queried as if it were the DUT.
fn self_test_plan(auth: SocketAddr, status: &str) -> SelfTestPlan {
    let Stage { aaaa_share, cached_share, .. } = STAGES[0];
    // AuthDNS does not synthesize addresses, so no prefix is expected.
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

/// Starts AuthDNS and dns64d for the worst case, and runs a closed loop.
fn closed_loop(quiet: bool) -> Result<ClosedLoopResult, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let status = status_in(folder.path(), "auth");
    let (mut auth, auth_address) = auth(STAGES[0].aaaa_share, folder.path(), &status)?;
    let (mut dut, dut_address) = dns64d(auth_address, folder.path())?;
    let found = short_run::closed_loop(&trial(&STAGES[0], dut_address, &status), quiet)?;
    if found.interrupted {
        let so_far = short_run::closed_loop_words(&found);
        let interrupted = anyhow::anyhow!("interrupted in the closed loop");
        return Err(Failure::interrupted(interrupted).with_advice(&so_far));
    }
    if found.counts.valid == 0 {
        let silent = Failure::environment(anyhow::anyhow!("dns64d gave no valid answer"));
        return Err(with_server_states(silent, [&mut auth, &mut dut]));
    }
    Ok(found)
}

/// Starts AuthDNS and dns64d for a test case, and runs its searches.
fn measure(
    stage: &Stage,
    self_test: &SelfTestResult,
    quiet: bool,
) -> Result<SearchResult, Failure> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let status = status_in(folder.path(), "auth");
    let (mut auth, auth_address) = auth(stage.aaaa_share, folder.path(), &status)?;
    let (mut dut, dut_address) = dns64d(auth_address, folder.path())?;
    let trial = trial(stage, dut_address, &status);
    let mut plan =
        search_plan(stage, trial, highest(stage, self_test), self_test.passed_self_test());
    plan.trial.send_cost = measured_send_cost(&plan.trial)?;
    let plan = with_names(plan, false)?;
    let used = UsedNames { first: plan.trial.first_name, count: plan.most_names() };
    let mut terminal = Terminal::new(quiet, Some(used));
    let found = short_run::search(&plan, folder.path(), &mut terminal);
    let found = found.map_err(|error| with_server_states(error.into(), [&mut auth, &mut dut]))?;
    found.ok_or_else(|| Failure::environment(anyhow::anyhow!("the search ended without a trial")))
}

/// Returns the upper end of the rate range of a test case: the highest rate that the self-test validates, within the
/// range of all searches.
fn highest(stage: &Stage, self_test: &SelfTestResult) -> Qps {
    let allowed =
        |passed| allowed_rate(passed, stage.aaaa_share, stage.cached_share, self_test.delta);
    self_test.passed_rate.map_or(LOWEST, allowed).clamp(LOWEST, HIGHEST)
}

/// Plans the searches of a test case up to the rate `max`.
fn search_plan(
    stage: &Stage,
    trial: TrialPlan,
    max: Qps,
    self_test: Option<PassedSelfTest>,
) -> SearchPlan {
    SearchPlan {
        trial,
        range: SearchRange {
            min: LOWEST,
            max,
            resolution: RESOLUTION,
            invalid_retries: INVALID_RETRIES,
        },
        repeat: stage.repeat,
        pause: PAUSE,
        reuse_names: false,
        self_test,
        method: Method::Bisection,
    }
}

/// Returns the settings of the trials of a test case. The search sets the rate of each trial.
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

/// Returns the path of the status socket of an AuthDNS in `folder`.
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

/// Starts the dns64d that is included in this program, so that there is always a server to measure.
fn dns64d(upstream: SocketAddr, folder: &Path) -> Result<(ServerProcess, SocketAddr), Failure> {
    let address = free_port()?;
    // The tester's names have IPv4 addresses in 10.0.0.0/8. dns64d embeds them in the Well-Known Prefix only if
    // `allow-non-global` is set.
    let config = format!(
        "listen = [\"{address}\"]\nthreads = 1\n\
         [dns64]\nprefixes = [{{ prefix = \"{PREFIX}\", allow-non-global = true }}]\n\
         [dnssec]\nvalidate = false\n\
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

/// Returns a command line that runs this program with the given arguments.
fn this_program(typed: &[&str]) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe()
        .context("cannot find this program")
        .map_err(Failure::environment)?;
    let program = program.to_string_lossy().into_owned();
    Ok([program].into_iter().chain(typed.iter().map(|word| (*word).to_owned())).collect())
}

/// Returns the text of the result: a table, the reasons for missing results, and the next command to run.
fn summary(result: &QuickstartResult, stream: &impl io::IsTerminal) -> String {
    let test = &result.self_test;
    let passed = test.passed_rate.map_or("-".to_owned(), |rate| number(rate.0 as f64));
    let row = |name: &str, rate: &str, meaning: &str| {
        plain_spaces(&format!("{name:<12} {rate:>22}  {meaning}\n"))
    };
    let searches = [&result.worst_case, &result.all_aaaa, &result.all_cached];
    let stages = || STAGES.iter().zip(searches);
    let verdict = colour::verdict(test.verdict, stream);
    let mut text = format!("\n{}", row("", "queries/s", "meaning"));
    text += &row("self-test", &passed, &format!("{verdict}: Measurer and AuthDNS alone"));
    let in_flight = result.closed_loop.outstanding;
    text += &row(
        "closed loop",
        &number(result.closed_loop.qps.round()),
        &format!("worst case, {in_flight} in flight; not RFC 8219"),
    );
    for (stage, search) in stages() {
        let (rate, how) = rate(search);
        text += &row(&stage.title(), &rate, &how);
        text += &row("", "", stage.meaning);
    }
    text += &format!("\nDUT: {}, one worker, on this host\n", result.dut);
    if let (None, Some(why)) = (test.passed_rate, short_run::invalid_trials(&test.trials)) {
        text += &format!("Not measured (self-test): {why}\n");
    }
    for (stage, search) in stages() {
        text += &unmeasured(stage, search);
        let reasons = if search.figures.n > 0 {
            wording::lower_bounds(&search.lower_bound_reasons)
        } else {
            Vec::new()
        };
        for reason in reasons {
            text += &format!("Lower bound ({}): {reason}\n", stage.title());
        }
    }
    let invalid = searches.iter().any(|search| search.invalid_trials > 0);
    if invalid || test.verdict == Verdict::Invalid {
        text += &format!("Advice: {}\n", short_run::BUSY);
    }
    if searches.iter().any(|search| search.figures.n > 0) {
        for reason in &result.noncompliance {
            text += &format!("Not RFC 8219 compliant: {reason}\n");
        }
    }
    text + NEXT
}

/// Last line of the result text: the command that measures the user's own server.
const NEXT: &str = "Next, your own server: dns64bench try --server ADDRESS\n";

/// Returns the reason for a missing rate or for invalid trials of a test case; empty if there is none.
fn unmeasured(stage: &Stage, search: &SearchResult) -> String {
    let invalid = short_run::invalid_trials(&search.trials);
    match (search.figures.n, invalid) {
        (0, why) => {
            let why = why.unwrap_or_else(|| "no rate was tested".into());
            format!("Not measured ({}): {why}\n", stage.title())
        }
        (_, Some(why)) => format!("Invalid ({}): {why}\n", stage.title()),
        (_, None) => String::new(),
    }
}

/// Returns the rate that the searches of a test case found, and a remark such as the number of searches.
fn rate(search: &SearchResult) -> (String, String) {
    let found = &search.figures;
    let interval = wording::interval(&found.interval);
    match (found.n, found.median) {
        (0, _) => ("not measured".to_owned(), "see below".to_owned()),
        (1, _) => (interval, "one search".to_owned()),
        (n, Some(_)) => (wording::median(found), format!("median of {n} searches, all {interval}")),
        (_, None) => (interval, wording::median(found)),
    }
}

/// Describes the results so far. The error message of a later test case contains this text.
fn so_far(
    self_test: &SelfTestResult,
    closed_loop: &ClosedLoopResult,
    found: &[SearchResult],
) -> String {
    let passed = self_test.passed_rate.map_or("nothing".to_owned(), |rate| grouped(rate.0));
    let stages = STAGES.iter().zip(found).map(|(stage, search)| {
        let (rate, _) = rate(search);
        format!(", {} {rate}", stage.title())
    });
    let closed_loop = grouped(closed_loop.qps.round() as u64);
    format!(
        "so far (queries/s): self-test passed {passed}, closed loop {closed_loop}{}",
        stages.collect::<String>()
    )
}

/// Appends the states of the server processes to the error message if this machine caused the error.
fn with_server_states<const N: usize>(
    failure: Failure,
    servers: [&mut ServerProcess; N],
) -> Failure {
    if !failure.is_of_environment() {
        return failure;
    }
    let said = servers.map(ServerProcess::process_state);
    failure.with_advice(&said.join("; "))
}

/// A server process that this program started. The process ends when this value is dropped.
struct ServerProcess {
    name: String,
    child: Child,
    /// File to which the server's standard error is written.
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a server program, and waits until it listens on `address`.
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
            return Err(with_server_states(Failure::environment(failure), [&mut server]));
        }
        Ok(server)
    }

    /// Describes the state of the process: whether it runs, and the last line of its log.
    fn process_state(&mut self) -> String {
        let name = &self.name;
        let state = match self.child.try_wait() {
            Ok(None) => format!("{name} is running"),
            Ok(Some(status)) => format!("{name} has ended with {status}"),
            Err(error) => format!("the state of {name} is unknown: {error}"),
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        match log.trim().lines().last() {
            Some(last) => format!("{state}; last message: {last}"),
            None => state,
        }
    }

    /// Waits until the server listens on `address`. No process used this address before the server started, so the
    /// server is ready as soon as the address is in use.
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
    net::ports::free(Ipv6Addr::LOCALHOST.into())
        .context("cannot listen on [::1]")
        .map_err(Failure::environment)
}

#[cfg(test)]
mod tests {
    use campaign::search::{Runner, SearchProgress};
    use method::reason::Reason;
    use method::records::Counts;
    use method::verdict::Acceptance;
    use tester::measurer::TrialError;
    use tester::measurer::plan::Subject;
    use tester::measurer::result::TrialResult;

    use super::*;

    #[test]
    fn server_state_is_part_of_the_error() {
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
            "-c does not serve: it has ended; -c has ended with exit status: 3; last message: no such thing"
        );
        // The process runs, but does not listen on the address: the test itself uses this address.
        let taken = free_port().ok().unwrap();
        let _held = Endpoint::listen(taken, 1).unwrap();
        let mut runs = start("exec sleep 60", taken).ok().unwrap();
        assert_eq!(runs.process_state(), "-c is running");
    }

    /// Runner whose trials all have the same outcome.
    struct Simulated {
        verdict: Verdict,
        reasons: Vec<Reason>,
    }

    impl Runner for Simulated {
        fn trial(
            &mut self,
            plan: &TrialPlan,
            _: SearchProgress,
        ) -> Result<TrialResult, TrialError> {
            let counts = Counts { sent: 9, valid: 9, ..Counts::default() };
            let trial = TrialResult::simulated(plan, counts);
            Ok(TrialResult { verdict: self.verdict, reasons: self.reasons.clone(), ..trial })
        }

        fn finished(&mut self, _: &TrialResult) {}

        fn pause(&mut self, _: Duration, _: SearchProgress) {}
    }

    /// Returns the search result of a test case in which all trials have this verdict and these reasons.
    fn searched(stage: &Stage, verdict: Verdict, reasons: Vec<Reason>) -> SearchResult {
        let folder = tempfile::tempdir().unwrap();
        let address = "[::1]:53".parse().unwrap();
        let plan = search_plan(stage, trial(stage, address, "status"), HIGHEST, None);
        let mut runner = Simulated { verdict, reasons };
        short_run::search(&plan, folder.path(), &mut runner).unwrap().unwrap()
    }

    #[test]
    fn a_busy_machine_gets_a_figure_reasons_and_advice() {
        let busy = || vec![Reason::Late { p999_us: 9e4, limit: Nanos::SECOND }];
        let invalid = |stage| searched(stage, Verdict::Invalid, busy());
        let result = QuickstartResult {
            dut: "dns64d 1".into(),
            self_test: SelfTestResult {
                for_rate: FOR_RATE,
                aaaa_share: Share::ZERO,
                cached_share: Share::ZERO,
                delta: MIN_DELTA,
                required_rate: FOR_RATE,
                passed_rate: None,
                allowed_rate: None,
                verdict: Verdict::Invalid,
                sent: None,
                compliant: false,
                noncompliance: Vec::new(),
                trials: invalid(&STAGES[0]).trials,
            },
            closed_loop: short_run::simulated(12_345.0),
            worst_case: invalid(&STAGES[0]),
            all_aaaa: searched(&STAGES[1], Verdict::Passed, Vec::new()),
            all_cached: invalid(&STAGES[2]),
            noncompliance: Vec::new(),
        };
        let text = summary(&result, &File::open("/dev/null").unwrap()).replace('\u{202f}', " ");
        for line in [
            "closed loop                  12 345  worst case, 100 in flight; not RFC 8219",
            "worst case             not measured  see below",
            "all aaaa           at least 400 000  one search",
            "Not measured (self-test): 6 of 6 trials invalid, most often: pacing: one query in a thousand was sent \
             late",
            "Not measured (worst case): 6 of 6 trials invalid, most often: pacing: one query in a thousand was sent \
             late",
            "Advice: this machine was busy: end other programs, then run dns64bench check",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in:\n{text}");
        }
        assert!(!text.contains("Not measured (all aaaa)") && !text.contains("Lower bound (worst"));
        let next = "\nNext, your own server: dns64bench try --server ADDRESS\n";
        assert!(text.ends_with(next), "{text}");
        let table = text.split("\n\n").next().unwrap();
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }

    #[test]
    fn self_test_has_the_send_settings_of_the_trials() {
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
