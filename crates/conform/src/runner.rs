//! Runs the checks against one server.
//!
//! ```text
//! probe: prefixes ─► zone ─► validation
//!   ─► quiet checks, in parallel ─► second attempts
//!   ─► troubling checks, in parallel ─► checks that run alone ─► second attempts ─► report
//! ```
//!
//! Most checks run in parallel, so that timeouts do not add up. Then follow the troubling checks
//! ([`Phase::Troubling`]), in which the test authoritative server is silent or very slow. Checks that load the server
//! run alone at the end.
//!
//! A check that failed because of a missing reply or SERVFAIL is repeated alone, because the reply may have been lost
//! on the tester's side. Only the second attempt counts. A check that cannot be run gets an outcome with the reason.

mod derive;
mod error;
mod probe;

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;

use crate::ask;
use crate::authority::view::View;
use crate::check::{Check, Level, Need};
use crate::checks;
use crate::expected::Prefix;
use crate::message::Name;
use crate::outcome::{Outcome, Report, Verdict};
use crate::selection::chosen;
use crate::show;
use crate::trial::{Exchange, Fault, Judged, Subject, Trial};

pub use error::RunError;

/// Default number of checks that run in parallel.
pub const PARALLEL: usize = 16;

/// Id of the outcome that is reported if the server uses prefixes other than the expected ones.
pub const EXPECTED_PREFIX: &str = "rfc7050-3-expected-prefix";

/// Maximum number of exchanges (a query and its reply) in an outcome. Earlier exchanges are omitted.
const SHOWN: usize = 4;

/// Maximum number of checks that get a second attempt. If a server is silent in more checks, the cause is not packet
/// loss. The limit also bounds the total time, because each second attempt may take the full timeout of a stub
/// resolver.
const SECOND_TRIES: usize = 20;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the server.
    pub server: SocketAddr,
    /// Name of the server in reports.
    pub name: String,
    /// Version that the server reports; may be empty.
    pub version: String,
    /// Zone for which the server queries the test authoritative server.
    pub zone: Option<Name>,
    /// DNS64 prefixes that the user expects the server to use. If the list is empty, the server's prefixes are
    /// discovered as specified by RFC 7050, or derived from answers.
    pub expect: Vec<Prefix>,
    /// Range of IPv6 addresses that the server is configured to exclude in addition to its default ranges (RFC 6147
    /// §5.1.4). `None` if there is no such range. The length is /1 to /127.
    pub excluded: Option<Ipv6Net>,
    /// Ids, or beginnings of ids, of the checks to run. If the list is empty, all checks are run.
    pub only: Vec<String>,
    /// Timeout of a query. The default, [`ask::PATIENCE`], is the timeout of a stub resolver.
    pub patience: Duration,
    /// Number of checks that run in parallel; at least one.
    pub parallel: usize,
    /// True if the server performs DNSSEC validation with the keys of the test authoritative server as trust anchors.
    /// If `None`, a probe determines this.
    pub validation: Option<bool>,
    /// True if the server forwards all queries to the test authoritative server, including those for reverse names.
    pub everything: bool,
    /// Flag that ends the run early, for example after an interruption. While the flag is set, no check is started.
    pub until: Arc<AtomicBool>,
}

impl Settings {
    /// Creates settings for all checks against the server at this address, without a test zone.
    pub fn new(server: SocketAddr) -> Settings {
        Settings {
            server,
            name: server.to_string(),
            version: String::new(),
            zone: None,
            expect: Vec::new(),
            excluded: None,
            only: Vec::new(),
            patience: ask::PATIENCE,
            parallel: PARALLEL,
            validation: None,
            everything: false,
            until: Arc::default(),
        }
    }
}

/// Returns the number of checks selected by the list `only` (see [`Settings::only`]). Returns 0 if an entry of the list
/// matches no check.
pub fn selected(only: &[String]) -> usize {
    let all: Vec<&Check> = checks::all().collect();
    chosen(&all, only).map_or(0, |checks| checks.len())
}

/// Runs the selected checks. `progress` receives each outcome as soon as it is final.
///
/// # Errors
/// Returns a [`RunError`] if nothing can be checked. A failed check is not an error.
pub fn run(
    settings: &Settings,
    view: Option<&dyn View>,
    progress: &dyn Fn(&Outcome),
) -> Result<Report, RunError> {
    let all: Vec<&Check> = checks::all().collect();
    run_these(&all, settings, view, progress)
}

/// Beginnings of the ids of checks that run alone after all others, in this order.
///
/// - Some load the server so heavily that other checks would fail (tests of overload, and of random IDs and ports).
/// - Some may crash the server (malformed messages).
/// - Some would be disturbed by the TCP connections of other checks.
/// - The last one may make a server assume that its upstream does not support EDNS.
const ALONE: [&str; 7] = [
    "hardening-overload",
    "rfc5452",
    "hardening-malformed",
    "hardening-noise",
    "hardening-tcp-noise",
    "rfc7766-6.2.3-idle",
    "rfc6891-6.2.2-fallback",
];

/// Phase in which a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// First phase, in which checks run in parallel.
    Quiet,
    /// Second phase, in which checks run in parallel. These checks query names for which the test authoritative server
    /// replies very late or not at all. A server may therefore stop querying its upstream for a while.
    Troubling,
    /// Last phase, in which checks run one at a time.
    Alone,
}

impl Phase {
    /// Returns the phase in which the check with this id runs.
    pub fn from_id(id: &str) -> Phase {
        match alone_order(id) {
            Some(_) => Phase::Alone,
            None if TROUBLING.contains(&id) => Phase::Troubling,
            None => Phase::Quiet,
        }
    }
}

/// Returns the position of a check among those that run alone.
fn alone_order(id: &str) -> Option<usize> {
    ALONE.iter().position(|begin| id.starts_with(begin))
}

/// Ids of the checks in [`Phase::Troubling`]. A test compares this list with the names that the checks query.
const TROUBLING: &[&str] = &[
    "hardening-silent-aaaa-in-time",
    "hardening-upstream-silent",
    "hardening-upstream-slow",
    "hardening-upstream-tcp-only",
    "rfc6147-5.1.3-all-silent",
    "rfc6147-5.1.3-silent-aaaa",
    "rfc6147-5.1.6-a-silent",
    "rfc6147-5.1.7-ttl-after-silence",
    "rfc9520-3.1-tries",
];

fn run_these(
    all: &[&Check],
    settings: &Settings,
    view: Option<&dyn View>,
    progress: &dyn Fn(&Outcome),
) -> Result<Report, RunError> {
    let begin = Instant::now();
    let checks = chosen(all, &settings.only).map_err(RunError::NoCheck)?;
    let needs = |need: Need| checks.iter().any(|check| check.needs.contains(&need));
    let bare = Subject {
        server: settings.server,
        patience: settings.patience,
        zone: settings.zone.as_ref(),
        prefixes: &[],
        excluded: settings.excluded,
        view,
    };
    let found = probe::prefixes(bare)?;
    let mut prefixes =
        if settings.expect.is_empty() { &found.prefixes } else { &settings.expect }.clone();
    if prefixes.is_empty() {
        prefixes = probe::derived(bare, &found);
    }
    if prefixes.is_empty() {
        return Err(RunError::NoPrefix { server: settings.server, came: found.reply_text });
    }
    let validation = settings.zone.as_ref().filter(|_| needs(Need::Zone)).map(|zone| {
        probe::zone(bare, zone)?;
        let asks = needs(Need::Validation) || needs(Need::NoValidation);
        Ok(if asks && settings.validation.is_none() { probe::validation(bare) } else { None })
    });
    let validates = settings.validation.or(validation.transpose()?.flatten());
    let mut outcomes = Vec::new();
    if differ(&found.prefixes, &prefixes) {
        let outcome = other_prefixes(&found, &prefixes, settings.server);
        progress(&outcome);
        outcomes.push(outcome);
    }
    let facts = Facts {
        subject: Subject { prefixes: &prefixes, ..bare },
        validates,
        everything: settings.everything,
        until: &settings.until,
    };
    outcomes.extend(Session::new(&checks, facts, progress).run(settings.parallel.max(1)));
    Ok(Report {
        server: settings.name.clone(),
        version: settings.version.clone(),
        prefixes: prefixes.iter().map(Prefix::to_string).collect(),
        outcomes,
        duration_s: begin.elapsed().as_secs_f64(),
    })
}

/// True if the prefixes that were found differ from those that the checks use. The order of the prefixes is ignored.
/// The result is false if no prefixes were found.
fn differ(found: &[Prefix], believed: &[Prefix]) -> bool {
    let lacks = |of: &[Prefix], all: &[Prefix]| all.iter().any(|prefix| !of.contains(prefix));
    !found.is_empty() && (lacks(found, believed) || lacks(believed, found))
}

fn other_prefixes(found: &probe::Discovery, expected: &[Prefix], server: SocketAddr) -> Outcome {
    let list =
        |prefixes: &[Prefix]| prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ");
    Outcome {
        id: EXPECTED_PREFIX.into(),
        title: "Hosts discover the prefixes that the server is expected to have".into(),
        source: "RFC 7050 §3".into(),
        sentence:
            "A node MUST look through all of the received AAAA resource records to collect one \
                   or more Pref64::/n."
                .into(),
        level: Level::Must,
        verdict: Verdict::Failed,
        reason: format!(
            "hosts discover {}, but --expect-prefix is {}, which the checks use",
            list(&found.prefixes),
            list(expected)
        ),
        setting: None,
        contradicts: None,
        exchanges: last_of(&found.exchanges, server),
    }
}

/// Facts about the server at the start of the checks.
#[derive(Clone, Copy)]
struct Facts<'a> {
    subject: Subject<'a>,
    /// True if the server performs DNSSEC validation; `None` if this is unknown.
    validates: Option<bool>,
    everything: bool,
    until: &'a AtomicBool,
}

impl Facts<'_> {
    /// Runs a check. If the user has interrupted the run, the check is not started and its verdict is `NotTried`.
    fn attempt(&self, check: &Check) -> Attempt {
        if self.until.load(Ordering::Relaxed) {
            Attempt::not_run(Fault::NotTried("interrupted before it started".into()))
        } else {
            Attempt::of(check, self.subject)
        }
    }

    /// Returns the reason why a check cannot be run or does not apply to the server. Returns `None` if the check can be
    /// run.
    fn unmet(&self, check: &Check) -> Option<Fault> {
        check.needs.iter().find_map(|need| self.lacks(*need))
    }

    fn lacks(&self, need: Need) -> Option<Fault> {
        let not_tried = |why: &str| Fault::NotTried(why.into());
        let not_offered = |why: &str| Fault::NotOffered(why.into());
        let validates = |wanted: bool, otherwise: &str| match self.validates {
            None => Some(not_tried("validation by the server could not be detected")),
            Some(is) => (is != wanted).then(|| not_offered(otherwise)),
        };
        let prefixes = self.subject.prefixes;
        match need {
            Need::Zone => self.subject.zone.is_none().then(|| {
                not_tried(
                    "needs a test zone that the server forwards to the test authoritative \
                    server (--zone)",
                )
            }),
            Need::View => self.subject.view.is_none().then(|| {
                not_tried(
                    "needs the queries received by the test authoritative server \
                    (--auth-status)",
                )
            }),
            Need::Everything => (!self.everything).then(|| {
                not_tried(
                    "needs a server that forwards reverse names and all others to the test \
                    authoritative server",
                )
            }),
            Need::Validation => validates(true, "the server does not validate"),
            Need::NoValidation => validates(false, "the server validates"),
            Need::WellKnownPrefix => (!prefixes.iter().all(|prefix| prefix.is_well_known()))
                .then(|| not_offered("the server has a prefix other than 64:ff9b::/96")),
            Need::OwnPrefix => prefixes
                .iter()
                .any(|prefix| prefix.is_well_known())
                .then(|| not_offered("the server has the prefix 64:ff9b::/96")),
            Need::ExcludedRange => self.subject.excluded.is_none().then(|| {
                not_offered(
                    "the server is configured with no range to exclude \
                    (--excludes)",
                )
            }),
        }
    }
}

/// Result of running a check once.
struct Attempt {
    judged: Judged,
    exchanges: Vec<Exchange>,
    /// True if the attempt failed in a way that a lost reply can explain.
    is_doubtful: bool,
}

impl Attempt {
    /// Runs the script. A panic in the script is a defect of the check, not of the server.
    fn of(check: &Check, subject: Subject<'_>) -> Attempt {
        let mut trial = Trial::new(subject);
        let judged = catch_unwind(AssertUnwindSafe(|| (check.script)(&mut trial)));
        let judged = judged.unwrap_or_else(|panic| {
            Err(Fault::NotTried(format!("the check's script panicked: {}", message(&*panic))))
        });
        let is_doubtful = match judged {
            Err(Fault::Silent(_)) => true,
            Err(Fault::Wrong(_)) => trial.has_doubts(),
            _ => false,
        };
        Attempt { judged, exchanges: trial.into_exchanges(), is_doubtful }
    }

    /// Creates the outcome of a check that is not run.
    fn not_run(fault: Fault) -> Attempt {
        Attempt { judged: Err(fault), exchanges: Vec::new(), is_doubtful: false }
    }

    fn into_outcome(self, check: &Check, server: SocketAddr) -> Outcome {
        let (verdict, reason) = match self.judged {
            Ok(()) => (Verdict::Passed, String::new()),
            Err(Fault::Wrong(what) | Fault::Silent(what)) => (Verdict::Failed, what),
            Err(Fault::NotTried(why)) => (Verdict::NotTried, why),
            Err(Fault::NotOffered(what)) => (Verdict::NotOffered, what),
        };
        let is_shown = verdict != Verdict::Passed;
        Outcome {
            id: check.id.into(),
            title: check.title.into(),
            source: check.source(),
            sentence: check.sentence.into(),
            level: check.level,
            verdict,
            reason,
            setting: None,
            contradicts: check.contradicts.map(Into::into),
            exchanges: if is_shown { last_of(&self.exchanges, server) } else { Vec::new() },
        }
    }
}

fn last_of(exchanges: &[Exchange], server: SocketAddr) -> Vec<crate::outcome::Shown> {
    let from = exchanges.len().saturating_sub(SHOWN);
    exchanges[from..].iter().map(|exchange| show::exchange(server, exchange)).collect()
}

/// Returns the message of a panic. Nearly all panics have a message.
fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Outcomes of one run, collected as they arrive.
struct Session<'a> {
    checks: &'a [&'a Check],
    facts: Facts<'a>,
    progress: &'a dyn Fn(&Outcome),
    outcomes: Vec<Option<Outcome>>,
    /// Failed checks that must be repeated, each with the reason for the first failure.
    again: Vec<(usize, String)>,
}

impl<'a> Session<'a> {
    fn new(
        checks: &'a [&'a Check],
        facts: Facts<'a>,
        progress: &'a dyn Fn(&Outcome),
    ) -> Session<'a> {
        let outcomes = vec![None; checks.len()];
        Session { checks, facts, progress, outcomes, again: Vec::new() }
    }

    fn run(mut self, parallel: usize) -> Vec<Outcome> {
        let mut phases: [Vec<usize>; 3] = Default::default();
        for (n, check) in self.checks.iter().enumerate() {
            match self.facts.unmet(check) {
                Some(fault) => self.stands(n, Attempt::not_run(fault)),
                None => phases[Phase::from_id(check.id) as usize].push(n),
            }
        }
        let [quiet, troubling, mut alone] = phases;
        self.run_at_once(&quiet, parallel);
        self.second_tries();
        self.run_at_once(&troubling, parallel);
        alone.sort_by_key(|&n| alone_order(self.checks[n].id));
        self.run_at_once(&alone, 1);
        self.second_tries();
        self.outcomes.into_iter().flatten().collect()
    }

    /// Runs checks in `parallel` threads, and collects the outcomes in the caller's thread.
    fn run_at_once(&mut self, jobs: &[usize], parallel: usize) {
        let (checks, facts) = (self.checks, self.facts);
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (done, attempts) = mpsc::channel();
            for _ in 0..parallel.min(jobs.len()) {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || {
                    while let Some(&n) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // The receiver lives until all senders are gone.
                        let _ = done.send((n, facts.attempt(checks[n])));
                    }
                });
            }
            drop(done);
            for (n, attempt) in attempts {
                match &attempt.judged {
                    Err(Fault::Wrong(what) | Fault::Silent(what))
                        if attempt.is_doubtful && self.again.len() < SECOND_TRIES =>
                    {
                        self.again.push((n, what.clone()));
                    }
                    _ => self.stands(n, attempt),
                }
            }
        });
    }

    fn second_tries(&mut self) {
        for (n, first) in std::mem::take(&mut self.again) {
            self.try_again(n, &first);
        }
    }

    /// Runs a check a second time. Only the second attempt counts. If that attempt passes, the outcome mentions the
    /// first failure.
    fn try_again(&mut self, n: usize, first: &str) {
        let attempt = self.facts.attempt(self.checks[n]);
        let mut outcome = attempt.into_outcome(self.checks[n], self.facts.subject.server);
        if outcome.verdict == Verdict::Passed {
            outcome.reason = format!("passed on the second attempt only; first attempt: {first}");
        }
        self.note(n, outcome);
    }

    fn stands(&mut self, n: usize, attempt: Attempt) {
        self.note(n, attempt.into_outcome(self.checks[n], self.facts.subject.server));
    }

    fn note(&mut self, n: usize, outcome: Outcome) {
        (self.progress)(&outcome);
        self.outcomes[n] = Some(outcome);
    }
}

#[cfg(test)]
mod tests;
