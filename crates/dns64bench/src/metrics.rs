//! Metrics of a running measurement for Prometheus (`--metrics`).
//!
//! ```text
//! tester's threads ─► atomic counters ─► Board ◄─ a separate thread, off the tester's CPUs ◄─ HTTP ◄─ Prometheus
//! command ──────────► test case ──────────┘
//! ```
//!
//! A scrape reads the same counters as the progress bar. No thread of the tester waits for a scrape.

use std::fmt::{self, Debug};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use method::verdict::Verdict;
use net::affinity::run_in_background;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tester::client::progress::Progress as ClientProgress;
use tester::measurer::Progress;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use units::{CpuId, Qps};

use crate::output::Failure;

/// Published state of this process; empty if the metrics are not served.
static BOARD: OnceLock<Arc<Board>> = OnceLock::new();

/// Published state of the measurement. The command locks the state between trials, and each scrape locks it. Sending
/// threads never lock the state.
#[derive(Default)]
struct Board {
    shown: Mutex<State>,
}

#[derive(Default)]
struct State {
    command: &'static str,
    running: Option<Running>,
    /// Number of finished trials with each verdict: passed, failed, invalid.
    trials: [u64; 3],
    /// Number of queries with each outcome in finished trials: valid, late, lost, wrong.
    queries: [u64; 4],
    search: Option<SearchState>,
    campaign: Option<CampaignState>,
}

/// The trial or closed loop that is running.
struct Running {
    /// Rate at which this process sends queries, per second; `None` for a closed loop.
    rate: Option<f64>,
    /// Number of queries that this process will send; `None` if unknown.
    planned: Option<u64>,
    counters: Counters,
}

impl Running {
    /// Describes a trial. If the trial is distributed over several testers, describes only the part that this tester
    /// sends.
    fn trial(plan: &TrialPlan, progress: &Arc<Progress>) -> Running {
        Running {
            rate: Some(plan.own_rate()),
            planned: Some(plan.own_part().count()),
            counters: Counters::Trial(Arc::clone(progress)),
        }
    }
}

/// Counters written by the threads of the tester.
enum Counters {
    Trial(Arc<Progress>),
    Client(Arc<ClientProgress>),
    /// A different process sends the load. The counters of that process are not read.
    Elsewhere,
}

impl Counters {
    /// Returns three counts: queries sent, valid replies, and queries with a known outcome. Returns `None` if a
    /// different process sends the queries.
    fn read(&self) -> Option<[u64; 3]> {
        match self {
            Counters::Trial(p) => Some([p.sent(), p.valid(), p.decided()]),
            Counters::Client(p) => Some([p.sent(), p.valid(), p.decided()]),
            Counters::Elsewhere => None,
        }
    }
}

/// State of a search.
#[derive(Clone, Copy)]
pub(crate) struct SearchState {
    /// Number of the current search. The first search is number 1.
    pub(crate) number: u32,
    /// Highest rate that has passed in this search.
    pub(crate) passed: Option<Qps>,
    /// Lowest rate that has failed in this search.
    pub(crate) failed: Option<Qps>,
}

/// State of a campaign.
#[derive(Clone, Copy, Default)]
pub(crate) struct CampaignState {
    pub(crate) points: usize,
    pub(crate) complete: usize,
    /// Estimated remaining time in seconds.
    pub(crate) left_s: f64,
    pub(crate) incidents: u64,
}

/// Starts a thread that serves the metrics of `command` at `address`. The thread does not run on the CPUs `busy`. Does
/// nothing if `address` is `None`.
///
/// # Errors
/// Returns an error if this process cannot listen on the address.
pub(crate) fn serve(
    address: Option<SocketAddr>,
    command: &'static str,
    busy: &[CpuId],
    quiet: bool,
) -> Result<(), Failure> {
    let Some(address) = address else { return Ok(()) };
    let cannot = |error| {
        Failure::environment(anyhow::anyhow!("cannot serve the metrics at {address}: {error}"))
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    let board = Arc::clone(BOARD.get_or_init(Arc::default));
    board.lock(|shown| shown.command = command);
    if !quiet {
        eprintln!("Metrics: http://{}/metrics", listener.local_addr().map_err(cannot)?);
    }
    let busy = busy.to_vec();
    let serving = thread::Builder::new().name("metrics".into()).spawn(move || {
        run_in_background(&busy);
        // The thread ends with the process, or earlier if no file descriptor is left. In that case the measurement
        // continues.
        let _ = dns64::metrics::http::serve_alone(listener, move || board.text());
    });
    serving.map(drop).map_err(cannot)
}

/// Publishes the start of a trial.
pub(crate) fn trial_begins(plan: &TrialPlan, progress: &Arc<Progress>) {
    on_board(|shown| shown.running = Some(Running::trial(plan, progress)));
}

/// Publishes the start of a trial that a different process runs.
pub(crate) fn trial_begins_elsewhere(rate: Qps) {
    let rate = Some(rate.0 as f64);
    on_board(|shown| {
        shown.running = Some(Running { rate, planned: None, counters: Counters::Elsewhere });
    });
}

/// Publishes the start of a closed loop.
pub(crate) fn loop_begins(progress: &Arc<ClientProgress>) {
    let running =
        || Running { rate: None, planned: None, counters: Counters::Client(Arc::clone(progress)) };
    on_board(|shown| shown.running = Some(running()));
}

/// Publishes the end of a trial, and adds its counts to the totals.
pub(crate) fn trial_ended(trial: &TrialResult) {
    let c = &trial.counts;
    ended(Some(trial.verdict), [c.valid, c.late, c.lost, c.wrong.total()]);
}

/// Publishes the end of a trial or closed loop. Adds the number of queries with each outcome (valid, late, lost, wrong)
/// to the totals. If there is a verdict, also increments the number of trials with this verdict.
pub(crate) fn ended(verdict: Option<Verdict>, queries: [u64; 4]) {
    on_board(|shown| {
        shown.running = None;
        if let Some(verdict) = verdict {
            shown.trials[VERDICTS.iter().position(|(of, _)| *of == verdict).unwrap_or(0)] += 1;
        }
        shown.queries.iter_mut().zip(queries).for_each(|(sum, n)| *sum += n);
    });
}

/// Publishes the state of a search.
pub(crate) fn search(search: SearchState) {
    on_board(|shown| shown.search = Some(search));
}

/// Publishes the state of a campaign.
pub(crate) fn campaign(change: impl FnOnce(&mut CampaignState)) {
    on_board(|shown| change(shown.campaign.get_or_insert_default()));
}

fn on_board(change: impl FnOnce(&mut State)) {
    if let Some(board) = BOARD.get() {
        board.lock(change);
    }
}

const VERDICTS: [(Verdict, &str); 3] =
    [(Verdict::Passed, "passed"), (Verdict::Failed, "failed"), (Verdict::Invalid, "invalid")];
const OUTCOMES: [&str; 4] = ["valid", "late", "lost", "wrong"];

impl Board {
    fn lock<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        with(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns all metrics in the OpenMetrics text format.
    fn text(self: &Arc<Board>) -> String {
        let mut registry = Registry::with_prefix("dns64bench");
        registry.register_collector(Box::new(Snapshot(Arc::clone(self))));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

struct Snapshot(Arc<Board>);

impl Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.lock(|shown| shown.encode(&mut encoder))
    }
}

impl State {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut described = encoder.encode_descriptor(
            "info",
            "Command and version of this program",
            None,
            MetricType::Gauge,
        )?;
        let labels = [("command", self.command), ("version", hosts::BUILD)];
        ConstGauge::new(1i64).encode(described.encode_family(&labels)?)?;
        let trials = VERDICTS.iter().map(|(_, verdict)| *verdict).zip(self.trials);
        counter(encoder, "trials", "Finished trials by verdict", "verdict", trials)?;
        let queries = OUTCOMES.into_iter().zip(self.queries);
        counter(encoder, "queries", "Queries of finished trials by outcome", "outcome", queries)?;
        for (name, help, value) in self.gauges() {
            let described = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            // A gauge without a current value is not exported.
            if let Some(value) = value {
                ConstGauge::new(value).encode(described)?;
            }
        }
        if let Some(campaign) = &self.campaign {
            let help = "Servers that crashed, hung or could not be started";
            let described =
                encoder.encode_descriptor("campaign_mishaps", help, None, MetricType::Counter)?;
            ConstCounter::new(campaign.incidents).encode(described)?;
        }
        Ok(())
    }

    /// Returns the gauges, each with its name, help text, and current value. The value is `None` if the gauge currently
    /// has no value.
    fn gauges(&self) -> [(&'static str, &'static str, Option<f64>); 12] {
        let rate = |rate: Option<Qps>| rate.map(|rate| rate.0 as f64);
        let running = self.running.as_ref();
        let counters = running.and_then(|running| running.counters.read());
        let count = |i: usize| counters.map(|counters| counters[i] as f64);
        let (search, campaign) = (self.search, self.campaign);
        [
            (
                "trial_running",
                "1 while queries are being sent",
                Some(f64::from(u8::from(running.is_some()))),
            ),
            (
                "trial_rate",
                "Offered queries per second of the running trial",
                running.and_then(|r| r.rate),
            ),
            (
                "trial_planned",
                "Queries that the running trial will send",
                running.and_then(|r| r.planned).map(|n| n as f64),
            ),
            ("trial_sent", "Queries sent by the running trial", count(0)),
            ("trial_valid", "Valid replies to the running trial", count(1)),
            ("trial_decided", "Queries of the running trial with a known outcome", count(2)),
            (
                "search_number",
                "Number of the running search, from 1",
                search.map(|s| f64::from(s.number)),
            ),
            (
                "search_passed_rate",
                "Highest rate that passed in this search",
                rate(search.and_then(|s| s.passed)),
            ),
            (
                "search_failed_rate",
                "Lowest rate that failed in this search",
                rate(search.and_then(|s| s.failed)),
            ),
            ("campaign_points", "Points of the plan", campaign.map(|c| c.points as f64)),
            ("campaign_points_complete", "Complete points", campaign.map(|c| c.complete as f64)),
            ("campaign_left_seconds", "Estimated remaining time", campaign.map(|c| c.left_s)),
        ]
    }
}

fn counter<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'a str,
    values: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut described = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, n) in values {
        ConstCounter::new(n).encode(described.encode_family(&[(label, value)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tester::measurer::plan::shard::{Moment, ShardPlan};

    use super::*;

    /// Returns a board on which every metric has a value.
    fn full() -> Arc<Board> {
        let board = Arc::new(Board::default());
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000));
        board.lock(|shown| {
            shown.command = "search";
            shown.trials = [4, 3, 2];
            shown.queries = [10, 0, 1, 2];
            shown.running = Some(Running::trial(&plan, &Progress::new(&plan)));
            shown.search =
                Some(SearchState { number: 2, passed: Some(Qps(500)), failed: Some(Qps(2_000)) });
            shown.campaign =
                Some(CampaignState { points: 9, complete: 3, left_s: 12.5, incidents: 1 });
        });
        board
    }

    #[test]
    fn everything_on_the_board_is_a_sample() {
        let text = full().text();
        for line in [
            "dns64bench_trials_total{verdict=\"passed\"} 4",
            "dns64bench_trials_total{verdict=\"invalid\"} 2",
            "dns64bench_queries_total{outcome=\"wrong\"} 2",
            "dns64bench_trial_running 1.0",
            "dns64bench_trial_rate 1000.0",
            "dns64bench_trial_planned 60000.0",
            "dns64bench_trial_sent 0.0",
            "dns64bench_search_number 2.0",
            "dns64bench_search_failed_rate 2000.0",
            "dns64bench_campaign_points_complete 3.0",
            "dns64bench_campaign_left_seconds 12.5",
            "dns64bench_campaign_mishaps_total 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn metrics_of_several_testers_add_up() {
        let whole = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000));
        let parts = (0..7).map(|index| {
            let start = Moment(units::Nanos(0));
            let shard = Some(ShardPlan { index, of: 7, seed: 0, start });
            let plan = TrialPlan { shard, ..whole.clone() };
            let Running { rate, planned, .. } = Running::trial(&plan, &Progress::new(&plan));
            (rate.unwrap(), planned.unwrap())
        });
        let (rates, planned): (Vec<f64>, Vec<u64>) = parts.unzip();
        assert_eq!(planned.iter().sum::<u64>(), whole.schedule().count());
        assert!((rates.iter().sum::<f64>() - 1_000.0).abs() < 1e-6, "{rates:?}");
    }

    #[test]
    fn unknown_values_have_no_sample() {
        let text = Arc::new(Board::default()).text();
        assert!(text.contains("dns64bench_trial_running 0.0"), "{text}");
        for name in [
            "dns64bench_trial_rate ",
            "dns64bench_trial_sent ",
            "dns64bench_search_number ",
            "mishaps_total",
        ] {
            assert!(
                !text.lines().any(|l| l.contains(name) && !l.starts_with('#')),
                "{name} is in\n{text}"
            );
        }
    }

    /// If a dashboard queries a metric that no program exports, its panel is empty.
    #[test]
    fn dashboard_uses_exported_metrics_only() {
        let text = full().text();
        let dashboard: serde_json::Value =
            serde_json::from_str(include_str!("../../../dist/grafana/dns64bench.json")).unwrap();
        let asked = asked_for(&dashboard.to_string(), "dns64bench_");
        assert!(asked.len() >= 10, "{asked:?}");
        for name in asked {
            let is_it = |line: &str| line.split(['{', ' ']).next() == Some(name.as_str());
            assert!(text.lines().any(is_it), "{name} is not exported:\n{text}");
        }
    }

    /// Returns the names that begin with `prefix`.
    fn asked_for(text: &str, prefix: &str) -> std::collections::BTreeSet<String> {
        let name = |(at, _): (usize, &str)| -> String {
            text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        text.match_indices(prefix).map(name).collect()
    }
}
