//! Printed output and exit statuses.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use campaign::search::{SearchError, SearchResult};
use hosts::environment::Environment;
use hosts::new_file::NewFile;
use hosts::text::{MESSAGE, plain};
use humantime::{FormattedDuration, format_duration};
use method::reason::Reason;
use method::records::WrongCounts;
use method::search::Shortfall;
use method::verdict::Verdict;
use report::format::number;
use report::wording;
use serde::Serialize;
use tester::authdns::auth_delta::AuthDelta;
use tester::measurer::TrialError;
use tester::measurer::result::{Priority, Rtt, Sending, TrialResult};
use tester::xdp::XdpInterface;
pub(crate) use units::{counted, grouped};

use crate::args::DNS_PORT;
use crate::colour;
use crate::lines::wrapped_for;

/// Maximum length of a printed error, in characters. The length is limited, because an error may quote the end of a
/// log.
const ERROR: usize = 2 * MESSAGE;

/// Formats a rounded duration. Durations below ten minutes are rounded to seconds, durations below a day to minutes,
/// and longer durations to hours.
pub(crate) fn rounded(time: Duration) -> FormattedDuration {
    let step: u64 = match time.as_secs() {
        0..600 => 1,
        600..86_400 => 60,
        _ => 3_600,
    };
    format_duration(Duration::from_secs((time.as_secs_f64() / step as f64).round() as u64 * step))
}

/// Formats a remaining time like [`rounded`]. Times below 1 s are shown as 1 s.
pub(crate) fn remaining(time: Duration) -> FormattedDuration {
    rounded(time.max(Duration::from_secs(1)))
}

/// Result of a command.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Exit statuses; docs/src/contract.md documents them.
pub(crate) const DUT_FAILED: u8 = 1;
const USAGE: u8 = 2;
pub(crate) const INVALID: u8 = 3;
pub(crate) const ENVIRONMENT: u8 = 4;
pub(crate) const INTERRUPTED: u8 = 130;

/// Reason why a command failed, and its exit status.
pub(crate) struct Failure {
    status: u8,
    error: anyhow::Error,
}

impl Failure {
    /// Creates the failure for a command line that is invalid or cannot be executed.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { status: USAGE, error: error.into() }
    }

    /// Creates the failure for an error that this machine, or a process on it, caused.
    pub(crate) fn environment(error: impl Into<anyhow::Error>) -> Failure {
        Failure { status: ENVIRONMENT, error: error.into() }
    }

    /// Creates the failure for a tester that is not reliable.
    pub(crate) fn invalid(error: impl Into<anyhow::Error>) -> Failure {
        Failure { status: INVALID, error: error.into() }
    }

    /// Creates the failure for an interruption by the user.
    pub(crate) fn interrupted(error: impl Into<anyhow::Error>) -> Failure {
        Failure { status: INTERRUPTED, error: error.into() }
    }

    /// Appends advice to the error message, after a semicolon.
    pub(crate) fn with_advice(self, advice: &str) -> Failure {
        Failure { status: self.status, error: anyhow::anyhow!("{self}; {advice}") }
    }

    /// Returns true if the command failed because of this machine or a process on it.
    pub(crate) fn is_of_environment(&self) -> bool {
        self.status == ENVIRONMENT
    }

    pub(crate) fn report(self) -> ExitCode {
        // The text may quote the output of a server or a host, so control characters are removed.
        let text = plain(&self.to_string(), ERROR);
        // If the disk that holds the log is full, this message is lost, and only the exit status reports the failure.
        eprintln!("{}", wrapped_for(&format!("dns64bench: {text}"), &std::io::stderr()));
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cli::error_with_causes(self.error.as_ref()))
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Failure {
        match error {
            TrialError::Plan(_)
            | TrialError::TooLate { .. }
            | TrialError::Records(tester::measurer::recorder::RecordError::Extension { .. }) => {
                Failure::usage(error)
            }
            TrialError::Interrupted => Failure::interrupted(error),
            TrialError::NoAnswer { server, .. } => match with_last_group_as_port(server) {
                Some(meant) => {
                    Failure::environment(error).with_advice(&format!("did you mean {meant}?"))
                }
                None => Failure::environment(error),
            },
            _ => Failure::environment(error),
        }
    }
}

/// Returns the address and port that the user may have meant by an IPv6 address without brackets, such as `::1:9`.
/// Returns `None` if a port was given, or if the last group of the address is not a port number.
fn with_last_group_as_port(server: SocketAddr) -> Option<SocketAddr> {
    let text = server.ip().to_string();
    let (address, port) = text.rsplit_once(':').filter(|_| server.port() == DNS_PORT)?;
    Some(SocketAddr::new(IpAddr::V6(address.parse().ok()?), port.parse().ok()?))
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Failure {
        match error {
            SearchError::Trial(error) => error.into(),
            SearchError::NamesUsedUp { .. } | SearchError::Replay { .. } => Failure::usage(error),
            _ => Failure::environment(error),
        }
    }
}

/// Version of the printed JSON objects; incremented when a key is removed or changes its meaning.
pub(crate) const SCHEMA_VERSION: u32 = 2;

/// A JSON object with the version of its schema.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Versioned<T> {
    /// Version of the schema of this object.
    schema_version: u32,
    #[serde(flatten)]
    object: T,
}

impl<T> Versioned<T> {
    /// Creates a JSON object with the current version of its schema.
    pub(crate) fn new(object: T) -> Versioned<T> {
        Versioned { schema_version: SCHEMA_VERSION, object }
    }
}

/// A result with a description of the host on which it was measured.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct WithEnvironment<T, H = HostDescription> {
    #[serde(flatten)]
    result: T,
    #[serde(flatten)]
    here: H,
}

/// Description of the host on which a result was measured.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct HostDescription {
    /// The host, and the settings of the host that may distort measurements.
    environment: Environment,
}

impl HostDescription {
    fn observe() -> HostDescription {
        HostDescription { environment: Environment::observe() }
    }
}

/// A result, with a description of its host. The description is omitted with `--environment false`.
pub(crate) type MaybeWithEnvironment<T> = WithEnvironment<T, Option<HostDescription>>;

/// Prints exactly one JSON object on standard output, with a description of this host.
pub(crate) fn print_json<T: Serialize>(result: &T) -> Result<(), Failure> {
    print_versioned(&WithEnvironment { result, here: HostDescription::observe() })
}

/// Prints exactly one JSON object on standard output. If `wanted`, the object includes a description of this host.
pub(crate) fn print_json_if<T: Serialize>(wanted: bool, result: &T) -> Result<(), Failure> {
    let here = wanted.then(HostDescription::observe);
    print_versioned(&MaybeWithEnvironment { result, here })
}

/// Prints exactly one JSON object on standard output.
pub(crate) fn print_versioned<T: Serialize>(object: &T) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(&Versioned::new(object)).map_err(Failure::environment)?;
    println!("{text}");
    Ok(())
}

/// Returns true if the user interrupted the trial.
pub(crate) fn is_interrupted(trial: &TrialResult) -> bool {
    trial.reasons.iter().any(|reason| matches!(reason, Reason::Interrupted { .. }))
}

/// Returns the exit status of a verdict.
pub(crate) fn status_of(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Failed => DUT_FAILED.into(),
        Verdict::Invalid => INVALID.into(),
    }
}

/// Prints the result of a trial as text.
pub(crate) fn print_trial(trial: &TrialResult) {
    let c = &trial.counts;
    let verdict = colour::verdict(trial.verdict, &std::io::stdout());
    println!(
        "Verdict     {verdict} at {} queries/s for {} s",
        grouped(trial.rate.0),
        trial.duration_s
    );
    for reason in &trial.reasons {
        println!("            {reason}");
    }
    if let Some(shard) = trial.shard.as_ref().and_then(|shard| shard.plan.shard) {
        println!(
            "Shard       {} of {}, from {} on; only all shards together are a trial (dns64bench merge)",
            shard.index, shard.of, shard.start
        );
    }
    let [sent, valid, late, lost, wrong] =
        [c.sent, c.valid, c.late, c.lost, c.wrong.total()].map(grouped);
    println!("Queries     {sent} sent, {valid} valid, {late} late, {lost} lost, {wrong} wrong");
    print_wrong(&c.wrong);
    let duplicates = counted(c.duplicates, "duplicate", "duplicates");
    let [stray, refused, dropped] = [c.stray, c.refused, trial.tester_drops].map(grouped);
    println!(
        "Other       {duplicates}, {stray} unmatched replies, {refused} send errors, {dropped} dropped on this host"
    );
    println!("Throughput  {} valid replies/s", grouped(trial.throughput.round() as u64));
    print_rtt(trial.rtt_us.as_ref());
    let p = &trial.pacing;
    let [median, p999, max] = [p.p50_us, p.p999_us, p.max_us].map(whole);
    println!(
        "Pacing      lateness {median} µs median, {p999} p99.9, {max} max; worst 100 ms window off by {:.2} %, 10 ms {:.2} %",
        p.window_100ms_worst_pct, p.window_10ms_worst_pct
    );
    print_sending(&trial.sending);
    if let Some(s) = &trial.stolen {
        println!(
            "Hypervisor  took {:.1} % of this host's CPU time, {:.1} % of CPU {}",
            s.all_pct, s.worst_cpu_pct, s.worst_cpu
        );
    }
    if let Some(auth) = &trial.auth {
        print_auth(auth);
    }
    print_points("Warning", &trial.warnings);
    print_points("Not RFC 8219 compliant", &trial.noncompliance);
}

/// Formats microseconds, rounded to a whole number.
fn whole(us: f64) -> String {
    grouped(us.round() as u64)
}

/// Prints, for each kind of wrong reply, the number of these replies. Prints nothing if there were no wrong replies.
pub(crate) fn print_wrong(w: &WrongCounts) {
    if let Some(line) = wrong_line(w) {
        println!("Wrong       {line}");
    }
}

/// Formats, for each kind of wrong reply, the number of these replies. Returns `None` if there were no wrong replies.
pub(crate) fn wrong_line(w: &WrongCounts) -> Option<String> {
    let rcodes = w.rcode.iter().map(|(rcode, n)| format!("{} {}", grouped(*n), rcode_name(*rcode)));
    let others = [
        (w.no_aaaa, "no AAAA"),
        (w.truncated, "truncated"),
        (w.address, "other address"),
        (w.malformed, "malformed"),
        (w.signature, "without a correct signature"),
        (w.destination, "to another address of this host"),
    ];
    let others = others
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", grouped(n)));
    let all: Vec<String> = others.chain(rcodes).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Prints percentiles of the round-trip time. Prints nothing if there was no valid reply.
pub(crate) fn print_rtt(rtt: Option<&Rtt>) {
    if let Some(rtt) = rtt {
        let [min, median, p99, p999, max] =
            [rtt.min, rtt.p50, rtt.p99, rtt.p999, rtt.max].map(whole);
        println!("RTT         {min} µs min, {median} median, {p99} p99, {p999} p99.9, {max} max");
    }
}

/// Prints the statistics of AuthDNS for a trial.
fn print_auth(auth: &AuthDelta) {
    let asked = &auth.asked;
    let [aaaa, a, other, again, dropped] =
        [asked.aaaa, asked.a, asked.other, asked.aaaa_retries + asked.a_retries, auth.socket_drops]
            .map(grouped);
    println!(
        "AuthDNS     received {aaaa} AAAA, {a} A, {other} other queries ({again} retries); {dropped} dropped"
    );
    if let Some(own) = &auth.own_time_us {
        let [median, p99, p999, max] = [own.p50, own.p99, own.p999, own.max].map(whole);
        println!(
            "            response time {median} µs median, {p99} p99, {p999} p99.9, {max} max"
        );
    }
}

/// Prints the settings with which the queries were sent.
fn print_sending(sending: &Sending) {
    let priority = match sending.priority {
        Priority::RealTime => "real-time priority",
        Priority::Favoured => "nice -20",
        Priority::Ordinary => "default priority",
    };
    let chosen = if sending.auto_burst { "auto" } else { "fixed" };
    println!(
        "Sending     {priority}, burst size {}, burst window {:.0} µs ({chosen})",
        sending.run, sending.max_burst_us
    );
    if let Some(from) = &sending.source_addresses {
        let addresses = counted(from.count.into(), "address", "addresses");
        println!("            from {addresses} of {}", from.prefix);
    }
    if let Some(XdpInterface { interface, attach_mode, queues }) = &sending.xdp {
        let queues = counted(*queues as u64, "queue", "queues");
        println!("            AF_XDP on {interface} ({attach_mode}, {queues})");
    }
}

/// Prints the result of a set of searches as text.
pub(crate) fn print_search(result: &SearchResult) {
    let f = &result.figures;
    let interval = wording::interval(&f.interval);
    match (f.n, f.median) {
        (0, _) => println!("Result      not measured: no rate could be measured"),
        (1, _) => println!("1 search    {interval} queries/s (a single search is not a result)"),
        (n, Some(_)) => {
            println!("Median      {} queries/s over {n} searches", wording::median(f));
            println!("Interval    {interval} queries/s");
        }
        (_, None) => {
            println!("Median      none: {}", wording::median(f));
            println!("Interval    {interval} queries/s");
        }
    }
    if let Some(first) = result.goals.first() {
        println!("MLRsearch   {}", wording::goal_terms(first));
    }
    for goal in result.goals.iter().skip(1) {
        println!("Goal        {}", wording::goal_line(goal));
    }
    if let (Some(p1), Some(p99)) = (f.p1, f.p99) {
        println!("Percentiles {} p1, {} p99", number(p1), number(p99));
    }
    if let Some(dispersion) = f.dispersion_pct {
        println!("Dispersion  {dispersion:.2} %");
    }
    if let Some(shortfall) = Shortfall::lowest(&result.failed_by) {
        println!("Failed      {}", wording::shortfall(&shortfall));
    }
    let (trials, invalid) =
        (grouped(result.trials.len() as u64), grouped(result.invalid_trials as u64));
    println!("Trials      {trials}, of which {invalid} were invalid");
    if let Some(allowed) = result.self_test_allows {
        println!("Self-test   validates the tester up to {} queries/s", grouped(allowed.0));
    }
    for trial in result.trials.iter().filter(|t| t.verdict == Verdict::Invalid) {
        let reasons: Vec<String> = trial.reasons.iter().map(ToString::to_string).collect();
        println!("Invalid     trial at {}: {}", grouped(trial.rate.0), reasons.join("; "));
    }
    if result.overstatement > 1.0 {
        println!(
            "Short       trials may overstate the rate by a factor of up to {:.3}; the interval is widened by it",
            result.overstatement
        );
    }
    print_points("Lower bound", &wording::lower_bounds(&result.lower_bound_reasons));
    print_points("Not RFC 8219 compliant", &result.noncompliance);
    print_points("Stated", &result.statements);
}

pub(crate) fn print_points(title: &str, points: &[impl std::fmt::Display]) {
    for point in points {
        println!("{}", wrapped_for(&format!("{title}: {point}"), &std::io::stdout()));
    }
}

/// Opens the result file if `path` is given. Commands open the file before the measurement, so that errors are reported
/// early.
pub(crate) fn open(path: Option<&Path>) -> Result<Option<NewFile>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = NewFile::open(path).with_context(|| format!("cannot write {}", path.display()));
    file.map(Some).map_err(Failure::environment)
}

/// Writes a file that [`open`] returned, and renames it to its final name.
pub(crate) fn fill(
    file: Option<NewFile>,
    write: impl FnOnce(&mut NewFile) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    let Some(mut file) = file else { return Ok(()) };
    let shown = format!("cannot write {}", file.path().display());
    let written = write(&mut file).and_then(|()| Ok(file.finish()?));
    written.context(shown).map_err(Failure::environment)
}

/// Writes a text to a file that [`open`] returned, and renames the file to its final name.
pub(crate) fn fill_text(
    file: Option<NewFile>,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    fill(file, |out| Ok(out.write_all(text().as_bytes())?))
}

/// Returns the name of an RCODE, or "extended" for values above 15.
pub(crate) fn rcode_name(rcode: u8) -> &'static str {
    RCODES.get(usize::from(rcode)).copied().unwrap_or("extended")
}

/// Names of the RCODEs 0 to 15, which fit into a DNS header (IANA).
const RCODES: [&str; 16] = [
    "NOERROR",
    "FORMERR",
    "SERVFAIL",
    "NXDOMAIN",
    "NOTIMP",
    "REFUSED",
    "YXDOMAIN",
    "YXRRSET",
    "NXRRSET",
    "NOTAUTH",
    "NOTZONE",
    "DSOTYPENI",
    "RESERVED12",
    "RESERVED13",
    "RESERVED14",
    "RESERVED15",
];

/// Returns the names of the RCODEs that were received, with their counts.
pub(crate) fn rcodes(counts: &[u64; 16]) -> impl Iterator<Item = (&'static str, u64)> {
    RCODES.into_iter().zip(*counts).filter(|&(_, n)| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_been_meant_with_a_port() {
        for (server, meant) in [
            ("[::1:9]:53", Some("[::1]:9")),
            ("[2001:2::1:5353]:53", Some("[2001:2::1]:5353")),
            ("[::1:9]:5353", None),
            ("[2001:2::1]:53", None),
            ("[::ffff:192.0.2.1]:53", None),
            ("192.0.2.1:53", None),
        ] {
            let found = with_last_group_as_port(server.parse().unwrap());
            assert_eq!(found, meant.map(|meant| meant.parse::<SocketAddr>().unwrap()), "{server}");
        }
    }

    #[test]
    fn a_cause_inside_an_error_is_not_repeated() {
        let source = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = TrialError::AuthStatus { path: "auth.socket".into(), source: source() };
        let text = Failure::environment(error).to_string();
        assert_eq!(text.matches(&source().to_string()).count(), 1, "{text}");
        let text =
            Failure::environment(anyhow::Error::from(source()).context("no log")).to_string();
        assert_eq!(text, format!("no log: {}", source()));
    }

    #[test]
    fn times_have_no_needless_digits() {
        for (seconds, words) in
            [(0.2, "0s"), (555.4, "9m 15s"), (810.0, "14m"), (7_229.0, "2h"), (1.0e6, "11days 14h")]
        {
            assert_eq!(rounded(Duration::from_secs_f64(seconds)).to_string(), words);
        }
    }
}
