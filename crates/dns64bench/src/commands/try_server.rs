//! `try`: runs AuthDNS on this host, prints the lines that make an existing server forward queries to AuthDNS, and runs
//! a short search.
//!
//! ```text
//! AuthDNS ─► version ─► lines ─► wait: names resolve ─► closed loop ─► MLRsearch ─► summary
//! ```

mod lines;
mod probe;
mod recognize;
mod state;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use campaign::plan::{Method, SearchPlan};
use campaign::search::{Runner, SearchError, SearchProgress, SearchResult};
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use method::search::SearchRange;
use method::verdict::{Acceptance, Verdict};
use net::affinity::allowed_cpus;
use net::status::StatusSocket;
use report::wording;
use serde::Serialize;
use tester::authdns::answer::Zone;
use tester::authdns::counters::AuthCounters;
use tester::authdns::{AuthConfig, RunningAuth, start, status};
use tester::client::closed_loop::ClosedLoopResult;
use tester::delay_line::Delay;
use tester::measurer::TrialError;
use tester::measurer::expect::Prefix;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{Nanos, Qps, Share, grouped};
use wire::name::{Domain, NameRange};

use self::lines::Forward;
use self::probe::Probe;
use self::state::{Next, State};
use super::search::{Terminal, UsedNames};
use super::{end_with_any_thread, measured_send_cost, short_run};
use crate::args::Try;
use crate::output::{
    DUT_FAILED, Failure, INTERRUPTED, INVALID, Outcome, Versioned, print_json, rounded,
};
use crate::resolve::with_names;
use crate::{interruption, metrics};

/// Default port of AuthDNS. Listening on it needs no privileges. The port is fixed, so that the configuration lines are
/// the same in every run.
const AUTH_PORT: u16 = 5300;
/// TTL of the records of AuthDNS.
const TTL: Duration = Duration::from_secs(60);
/// Interval between two probes while the command waits for the server to be configured.
const PAUSE_OF_WAIT: Duration = Duration::from_secs(1);
/// Duration of a full-length trial, pause between trials, and number of searches. All searches together take about two
/// minutes.
const TRIAL: Nanos = Nanos(5 * Nanos::SECOND.0);
const PAUSE: Duration = Duration::from_millis(150);
const SEARCHES: u32 = 3;
/// Latest time at which a search may begin, measured from the start of the first search. On a busy machine a search
/// takes longer than planned.
const ENOUGH: Duration = Duration::from_secs(100);
/// Maximum width of the interval that a search finds, relative to the upper end of the interval.
const WIDTH: f64 = 0.05;
/// Limit for the pacing deviation in windows of 100 ms, in per cent. The limit is equal to the maximum width of a
/// search's interval.
const WINDOW_LIMIT: f64 = 5.0;
/// Maximum number of retries of an invalid trial.
const INVALID_RETRIES: u32 = 1;
/// Limits of the searches' rate range, relative to the rate of the closed loop. The closed loop's rate is usually close
/// to the result of the searches.
const HIGHEST: f64 = 2.0;
const LOWEST: f64 = 0.05;

/// Index of the first name in the range that all runs of the command share, and the number of names in this range. The
/// names are generated from the global addresses 11.0.0.0 to 90.255.255.255. Some servers do not synthesize from
/// private addresses (RFC 6052 §3.1), and others remove private addresses from answers.
const FIRST_NAMES: u64 = 11 << 24;
const NAMES: u64 = 80 << 24;
/// Distance between the first names of two runs: this number of names for each second between the starts of the runs. A
/// run uses fewer names per second, so a later run does not query names that the server has cached from an earlier run.
const NAMES_PER_SECOND: u64 = 400_000;

/// JSON output of `try`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TryResult {
    /// Address and port of the server under test.
    server: String,
    /// Version that the server reports for `version.bind`; absent if it reports none.
    version: Option<String>,
    /// Address and port of AuthDNS.
    auth: String,
    /// Domain that the server must forward to AuthDNS.
    domain: Domain,
    /// DNS64 prefixes that synthesized addresses may have.
    prefixes: Vec<Prefix>,
    /// Result of the closed loop before the search.
    closed_loop: ClosedLoopResult,
    /// Result of the completed searches; absent if no search was completed.
    search: Option<SearchResult>,
    /// Highest rate that passed in a full-length trial, in queries per second.
    passed: Option<Qps>,
    /// Lowest rate above the highest passed rate (`passed`) that failed in a full-length trial, in queries per second.
    failed: Option<Qps>,
    /// True if the user interrupted the command.
    interrupted: bool,
}

pub(crate) fn run(args: &Try) -> Outcome {
    interruption::install_handlers()?;
    end_with_any_thread();
    let quiet = args.display.quiet;
    let server = args.server.resolve()?;
    metrics::serve(args.display.metrics, "try", &[], quiet)?;
    let probe = Probe::open(server, &args.domain)
        .with_context(|| format!("no route to {server}"))
        .map_err(Failure::environment)?;
    let here = probe.local_ip().map_err(Failure::environment)?;
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let auth_status = folder.path().join("auth.status");
    let socket = StatusSocket::bind(&auth_status).map_err(Failure::environment)?;
    let (auth, auth_address) = start_auth(args, here, &socket)?;
    let version = probe.version();
    let setup = Setup { args, server, version: version.as_deref(), auth: auth_address };
    setup.wait(&probe, &auth)?;
    let trial = trial(args, server, &auth_status);
    let (result, trials) = setup.measure(trial, folder.path())?;
    if args.display.json {
        print_json(&result)?;
    } else {
        print!("{}", summary(&result, &trials));
    }
    Ok(exit_status(&result))
}

/// Starts AuthDNS in this process, and serves its status socket. Returns the address to which the server must forward
/// queries. A wildcard address is replaced with an address of this host.
fn start_auth(
    args: &Try,
    here: IpAddr,
    socket: &StatusSocket,
) -> Result<(RunningAuth, SocketAddr), Failure> {
    let listen = args.auth_listen.unwrap_or(SocketAddr::new(here, AUTH_PORT));
    let config = AuthConfig {
        listen: vec![listen],
        zone: Zone::new(args.domain.clone(), Share::ZERO, TTL, [198, 18, 0, 2].into()),
        threads: allowed_cpus().len().max(1),
        cpus: Vec::new(),
        delay: Delay::NONE,
        loss: 0.0,
        seed: 1,
        xdp: None,
    };
    let auth = start(&config).map_err(|error| {
        let elsewhere = format!("--auth-listen {}", SocketAddr::new(listen.ip(), AUTH_PORT + 1));
        Failure::environment(error)
            .with_advice(&format!("choose another address for AuthDNS, such as {elsewhere}"))
    })?;
    let counters = auth.counter_reader().map_err(Failure::environment)?;
    let serving = status::serve(socket, move |other_trials| {
        Versioned::new(AuthCounters { other_trials, ..counters() })
    });
    serving.map_err(Failure::environment)?;
    let bound = auth.addresses().first().copied().unwrap_or(listen);
    let ip = if bound.ip().is_unspecified() { here } else { bound.ip() };
    Ok((auth, SocketAddr::new(ip, bound.port())))
}

/// Returns the plan of a trial of the search, without the rate.
fn trial(args: &Try, server: SocketAddr, auth_status: &Path) -> TrialPlan {
    let defaults = TrialPlan::new(server, Qps(1));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TrialPlan {
        duration: TRIAL,
        timeout: default_timeout(TRIAL),
        domain: args.domain.clone(),
        names: NameRange::ALL,
        first_name: first_name(now),
        prefixes: args.expect_prefix.clone(),
        limits: PacingLimits { window_100ms_pct: WINDOW_LIMIT, ..defaults.limits },
        auth_status: Some(auth_status.into()),
        ..defaults
    }
}

/// Returns the index of the first name for a run that begins at `now`, the time since 1970.
fn first_name(now: Duration) -> u64 {
    FIRST_NAMES + now.as_secs().wrapping_mul(NAMES_PER_SECOND) % NAMES
}

/// Plans the searches, with a rate range around the rate of the closed loop.
fn search_plan(trial: TrialPlan, closed_loop: f64) -> SearchPlan {
    let rate = |factor: f64| Qps(((closed_loop * factor) as u64).max(1));
    let (min, max) = (rate(LOWEST), rate(HIGHEST));
    SearchPlan {
        trial: TrialPlan { rate: min, ..trial },
        range: SearchRange { min, max, resolution: Qps(1), invalid_retries: INVALID_RETRIES },
        repeat: SEARCHES,
        pause: PAUSE,
        reuse_names: false,
        self_test: None,
        method: Method::mlrsearch(TRIAL.into(), Acceptance::ALL, WIDTH, &[]),
    }
}

/// The server under test, and the AuthDNS to which the server must forward queries.
struct Setup<'a> {
    args: &'a Try,
    server: SocketAddr,
    version: Option<&'a str>,
    auth: SocketAddr,
}

impl Setup<'_> {
    /// Waits until the server resolves the test names. Prints each change of the server's state. Prints the
    /// configuration lines if the first probe fails.
    fn wait(&self, probe: &Probe, auth: &RunningAuth) -> Result<(), Failure> {
        let Setup { args, server, .. } = self;
        let (began, mut shown) = (Instant::now(), None);
        loop {
            let seen = probe.query_name(|| auth.counters().queries.total());
            let state = seen.state(&args.expect_prefix);
            if interruption::is_asked() {
                return Err(Failure::interrupted(anyhow!("interrupted before the first trial")));
            }
            if shown != Some(state) && !args.display.quiet {
                self.show(state, shown.is_none());
            }
            shown = Some(state);
            match state.next(began.elapsed(), args.wait) {
                Next::Begin => return Ok(()),
                Next::AskAgain => interruption::sleep(PAUSE_OF_WAIT),
                Next::GiveUp => {
                    let domain = &args.domain;
                    let why = anyhow!("{server} does not resolve names of {domain}: {state}");
                    return Err(Failure::environment(why).with_advice(&state.advice()));
                }
            }
        }
    }

    /// Prints the state of the server on standard error. Before the first state, prints the addresses of the server and
    /// of AuthDNS and, if necessary, the configuration lines.
    fn show(&self, state: State, is_first: bool) {
        if is_first {
            let version = self.version.map_or(String::new(), |text| format!(" ({text})"));
            eprintln!("Server  {}{version}", self.server);
            eprintln!("AuthDNS {}, authoritative for {}", self.auth, self.args.domain);
            if !matches!(state, State::Ready | State::OtherPrefix(_)) {
                eprintln!("\n{}", self.instructions());
            }
        }
        eprintln!("{}: {state}", self.server);
    }

    /// Returns the configuration lines for the recognized server software, or for all supported software.
    fn instructions(&self) -> String {
        let Try { domain, expect_prefix, wait, .. } = self.args;
        let prefix = expect_prefix.first().copied().expect("the option has a default");
        let forward = Forward { domain: domain.clone(), auth: self.auth, prefix };
        let forms = recognize::forms(self.version);
        let lines: String =
            forms.iter().map(|form| format!("{}\n", form.lines(&forward))).collect();
        format!(
            "The server must forward {domain} to AuthDNS and synthesize with {prefix}. Add these \
             lines\nto its configuration:\n\n{lines}Waiting for up to {} (Ctrl-C ends it).",
            rounded(*wait)
        )
    }

    /// Runs the closed loop and the searches. Returns the result, and the trials of the searches.
    fn measure(
        &self,
        trial: TrialPlan,
        folder: &Path,
    ) -> Result<(TryResult, Vec<TrialResult>), Failure> {
        let quiet = self.args.display.quiet;
        let closed_loop = short_run::closed_loop(&trial, quiet)?;
        let (mut search, mut trials) = (None, Vec::new());
        if closed_loop.counts.valid > 0 && !closed_loop.interrupted {
            let first_name = trial.first_name + short_run::CLOSED_LOOP_NAMES;
            let trial = TrialPlan { first_name, ..trial };
            let plan = with_names(search_plan(trial, closed_loop.qps), true)?;
            let send_cost = measured_send_cost(&plan.trial)?;
            let plan = SearchPlan { trial: TrialPlan { send_cost, ..plan.trial }, ..plan };
            let used = UsedNames { first: plan.trial.first_name, count: plan.most_names() };
            let mut runner = RecordingRunner::new(Terminal::new(quiet, Some(used)));
            search = runner.search(&plan, folder)?;
            trials = runner.trials;
        }
        let (passed, failed) = bounds(&trials);
        let result = TryResult {
            server: self.server.to_string(),
            version: self.version.map(str::to_owned),
            auth: self.auth.to_string(),
            domain: self.args.domain.clone(),
            prefixes: self.args.expect_prefix.clone(),
            closed_loop,
            search,
            passed,
            failed,
            interrupted: interruption::is_asked(),
        };
        Ok((result, trials))
    }
}

/// Runner that runs trials in the same way as [`Terminal`]. It stores the results of the trials, so that they are
/// available after an interruption. It begins no search after the time limit [`ENOUGH`].
struct RecordingRunner {
    terminal: Terminal,
    trials: Vec<TrialResult>,
    began: Instant,
    /// Number of completed searches.
    completed: u32,
}

impl RecordingRunner {
    fn new(terminal: Terminal) -> RecordingRunner {
        RecordingRunner { terminal, trials: Vec::new(), began: Instant::now(), completed: 0 }
    }

    /// Runs the searches. After an interruption, or when the time is up, returns the result of the completed searches.
    fn search(
        &mut self,
        plan: &SearchPlan,
        folder: &Path,
    ) -> Result<Option<SearchResult>, Failure> {
        match short_run::search(plan, folder, self) {
            Err(SearchError::Trial(TrialError::Interrupted)) => {
                Ok(short_run::completed(plan, folder, self.completed, self)?)
            }
            Err(error) => {
                let so_far = bounds_words(bounds(&self.trials));
                Err(Failure::from(error).with_advice(&so_far))
            }
            Ok(found) => Ok(found),
        }
    }
}

impl Runner for RecordingRunner {
    fn trial(
        &mut self,
        plan: &TrialPlan,
        standing: SearchProgress,
    ) -> Result<TrialResult, TrialError> {
        let is_new = standing.repeat > self.completed;
        self.completed = standing.repeat;
        if is_new && self.began.elapsed() >= ENOUGH {
            return Err(TrialError::Interrupted);
        }
        self.terminal.trial(plan, standing)
    }

    fn first(&mut self, plan: &TrialPlan, trial: &TrialResult) -> Result<(), TrialError> {
        self.terminal.first(plan, trial)
    }

    fn finished(&mut self, trial: &TrialResult) {
        self.terminal.finished(trial);
        self.trials.push(trial.clone());
    }

    fn pause(&mut self, pause: Duration, next: SearchProgress) {
        self.terminal.pause(pause, next);
    }
}

/// Returns the full-length trials with the given verdict.
fn full(trials: &[TrialResult], verdict: Verdict) -> impl Iterator<Item = &TrialResult> {
    trials.iter().filter(move |trial| trial.verdict == verdict && trial.facts.duration >= TRIAL)
}

/// Returns the highest rate that passed in a full-length trial, and the lowest rate above it that failed in a
/// full-length trial.
fn bounds(trials: &[TrialResult]) -> (Option<Qps>, Option<Qps>) {
    let passed = full(trials, Verdict::Passed).map(|trial| trial.rate).max();
    let failed = full(trials, Verdict::Failed).map(|trial| trial.rate);
    (passed, failed.filter(|rate| passed.is_none_or(|passed| *rate > passed)).min())
}

fn bounds_words((passed, failed): (Option<Qps>, Option<Qps>)) -> String {
    let at = |rate: Option<Qps>| {
        rate.map_or("no rate".to_owned(), |rate| format!("{} queries/s", grouped(rate.0)))
    };
    format!("so far passed: {}; failed: {}", at(passed), at(failed))
}

fn exit_status(result: &TryResult) -> ExitCode {
    if result.interrupted {
        return INTERRUPTED.into();
    }
    let found = result.search.as_ref().map_or(&[][..], |search| &search.repeats);
    if found.iter().any(|found| found.highest.is_some()) {
        ExitCode::SUCCESS
    } else if result.search.is_none() || found.iter().any(|found| found.failed.is_some()) {
        DUT_FAILED.into()
    } else {
        INVALID.into()
    }
}

/// Formats the result as text.
fn summary(result: &TryResult, trials: &[TrialResult]) -> String {
    let version = result.version.as_deref().map_or(String::new(), |text| format!(", {text}"));
    let mut text = format!("Server      {}{version}\n", result.server);
    if result.interrupted {
        text += &format!("Interrupted {}\n", bounds_words((result.passed, result.failed)));
    }
    if let Some(search) = &result.search {
        text += &format!("Rate        {}\n", rate(search));
    } else if result.closed_loop.counts.valid == 0 {
        text += "Rate        not measured: the closed loop got no valid answer\n";
    }
    text += &format!("Closed loop {}\n", short_run::closed_loop_words(&result.closed_loop));
    if let Some(trial) = full(trials, Verdict::Passed).max_by_key(|trial| trial.rate)
        && let Some(rtt) = &trial.rtt_us
    {
        let [median, p99, rate] =
            [rtt.p50.round() as u64, rtt.p99.round() as u64, trial.rate.0].map(grouped);
        text += &format!("RTT         {median} µs median, {p99} p99 at {rate} queries/s\n");
    }
    if let Some(invalid) = short_run::invalid_trials(trials) {
        text += &format!("Invalid     {invalid}\n            {}\n", short_run::BUSY);
    }
    if let Some(search) = &result.search {
        for reason in wording::lower_bounds(&search.lower_bound_reasons) {
            text += &format!("Lower bound: {reason}\n");
        }
        for reason in &search.noncompliance {
            text += &format!("Not RFC 8219 compliant: {reason}\n");
        }
    }
    text + "Next: dns64bench search, for a result that can be published\n"
}

/// Formats the rate that the searches found: `12 300 queries/s median, [12 000, 12 600) in 3 searches`.
fn rate(search: &SearchResult) -> String {
    let found = &search.figures;
    let (median, interval) = (wording::median(found), wording::interval(&found.interval));
    match (found.n, found.median) {
        (0, _) => "not measured".into(),
        (1, _) => format!("{interval} queries/s in 1 search"),
        (n, Some(_)) => format!("{median} queries/s median, {interval} in {n} searches"),
        (_, None) => format!("{interval} queries/s; {median}"),
    }
}

#[cfg(test)]
mod tests;
