//! Closed loop, as in dns64perf2 (G. Lencse: Performance Analysis of MTD64, our Tiny Multi-Threaded
//! DNS64 Server Implementation: Proof of Concept): n threads with one query in flight each, and the
//! duration of experiments with 256 names.

use std::net::SocketAddr;
use std::time::Duration;

use method::evidence::{Deviation, OfferedLoad};
use method::reason::{HostLoss, Reason, ReasonKind};
use method::set::Repeats;
use method::stats::MeanAndDeviation;
use method::units::{Nanos, Qps, Share};
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use tester::authdns::auth_delta::AuthDelta;
use tester::client::experiments::{Experiments, NAMES};
use tester::measurer::expect::Prefix;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::unanswered;

use super::keys::At;
use super::search::on_cores;
use super::sustained::Unspoiled;
use super::{Course, Filled, Measure, Paper, Task};
use crate::archive::{DutEnd, Measured, Step};
use crate::governor::FIXED;
use crate::missing::Missing;
use crate::place::Place;
use crate::plan::{DutPlan, Plan};
use crate::point::{Cores, Point, WithThreads};
use crate::recorded::Recorded;
use crate::report::chart::{Curve, Dot, Figure, curves, number};
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::report::{Run, by_key, each_dut, legend, ranked};
use crate::results::DutResult;

/// Experiments per block.
const BLOCK: u32 = 256;
/// Placeholder for the rate, which a closed loop does not have.
const NO_RATE: Qps = Qps(1);
/// Assumed rate of a DUT with one thread, for time estimates; queries per second.
const ASSUMED: u64 = 4_000;

/// `[measure.closed-loop]`: experiments in which every thread of the tester waits for an answer
/// before it sends the next query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClosedLoops {
    /// Numbers of threads of the tester, powers of 2 up to 256.
    pub threads: Vec<usize>,
    /// Frequency governors of the DUT's CPUs, named as in Linux; everything is measured with each
    /// of them. Empty: unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub governors: Vec<String>,
    /// Numbers of cores and placements; default: the first number of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<At>>,
    /// Blocks of 256 experiments in a trial, 1 to 10. Names are never repeated.
    pub blocks: u8,
    /// Timeout of a query; whole seconds.
    #[serde(with = "crate::written::plan_time")]
    #[schemars(with = "crate::written::Time")]
    pub timeout: Duration,
    /// Number of trials with each number of threads, at least 1.
    pub repeat: u32,
}

impl Default for ClosedLoops {
    /// Values of the paper, except for `threads`.
    fn default() -> ClosedLoops {
        ClosedLoops {
            threads: Vec::new(),
            governors: Vec::new(),
            at: None,
            blocks: 10,
            timeout: Duration::from_secs(1),
            repeat: 1,
        }
    }
}

/// Settings of a closed-loop trial.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Threads, each with one query in flight.
    pub threads: usize,
    /// Blocks of 256 experiments.
    pub blocks: u8,
    /// Timeout of a query.
    pub timeout: Duration,
    /// First octet of all names.
    pub space: u8,
    /// DNS64 prefix that the addresses must have.
    pub prefix: Prefix,
    /// CPUs of the tester; empty: any.
    pub cpus: Vec<usize>,
}

impl LoopPlan {
    /// Returns the number of names in a trial.
    pub fn names(&self) -> u64 {
        u64::from(BLOCK) * u64::from(self.blocks) * NAMES
    }

    /// Returns the arguments of `dns64bench closed-loop`.
    pub fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> =
            ["closed-loop", "--json", "--quiet", "--liveness", "false", "--expect-prefix"]
                .map(str::to_owned)
                .into();
        words.push(self.prefix.to_string());
        if !self.cpus.is_empty() {
            let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
            words.extend(["--cpus".into(), cpus.join(",")]);
        }
        let timeout = self.timeout.as_secs_f64().to_string();
        words.push("--dns64perf2".into());
        words.extend([
            self.space.to_string(),
            self.blocks.to_string(),
            self.threads.to_string(),
            timeout,
        ]);
        words.extend([self.server.ip().to_string(), self.server.port().to_string()]);
        words
    }
}

impl LoopPlan {
    /// Returns the number of experiments in a trial.
    pub(crate) fn experiments(&self) -> usize {
        BLOCK as usize * usize::from(self.blocks)
    }
}

/// A closed-loop trial with its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoopTrial {
    /// The tester's result.
    #[serde(flatten)]
    pub experiments: Experiments,
    /// Change of AuthDNS's counters during the trial, if it counts.
    #[serde(default)]
    pub auth: Option<AuthDelta>,
    /// Deviation from the plan's conditions; only for a trial that would have passed.
    #[serde(default)]
    pub deviation: Option<Deviation>,
    /// Passed if every name got a valid answer; invalid if the tester lost any.
    pub verdict: Verdict,
    /// Reasons of the verdict; empty if the trial passed.
    pub reasons: Vec<Reason>,
}

impl LoopTrial {
    /// Judges the tester's result: a trial is invalid if the tester's own host dropped or refused
    /// to send anything, and fails if a name has no valid answer.
    pub fn judge(experiments: Experiments) -> LoopTrial {
        let (drops, c) = (experiments.client_drops, &experiments.counts);
        let too_few = Reason::TooFewValid {
            sent: c.sent,
            valid: c.valid,
            lost: c.lost,
            late: c.late,
            wrong: c.wrong.total(),
        };
        let (verdict, reasons) = match c.sent - c.valid {
            _ if drops > 0 => {
                (Verdict::Invalid, vec![Reason::HostLoss(HostLoss::Sockets { packets: drops })])
            }
            // Each query was waited for, so no other name of its experiment was faster.
            _ if c.refused > 0 => {
                (Verdict::Invalid, vec![Reason::QueriesRefused { queries: c.refused }])
            }
            0 => (Verdict::Passed, Vec::new()),
            _ => (Verdict::Failed, vec![too_few]),
        };
        LoopTrial { experiments, auth: None, deviation: None, verdict, reasons }
    }

    /// Compares the trial with the change of AuthDNS's counters, as for trials at a rate. Faults of
    /// AuthDNS make it invalid, and so do slow answers to as many upstream queries as names without
    /// an answer. A DUT that passed without an upstream query for each name makes it invalid too.
    pub fn apply_auth(&mut self, part: AuthDelta, limit: Nanos) {
        let mut faults = part.faults(limit, limit);
        let counts = &self.experiments.counts;
        let unanswered = unanswered(counts);
        let decides = counts.valid + unanswered.min(part.doubtful()) >= counts.sent;
        if faults.is_empty() && self.verdict == Verdict::Failed && decides {
            faults.extend(part.doubts(limit, unanswered));
        }
        if !faults.is_empty() {
            self.verdict = Verdict::Invalid;
            // The DUT's result is now meaningless.
            self.reasons.retain(|reason| reason.kind() != ReasonKind::TooFewValid);
            self.reasons.extend(faults);
        }
        let wanted = OfferedLoad {
            sent: self.experiments.counts.sent,
            valid: self.experiments.counts.valid,
            preloaded: 0,
            aaaa: Share::ZERO,
            cached: 0.0,
        };
        if self.verdict == Verdict::Passed
            && let Some(deviation) = part.asked.deviation(&wanted)
        {
            self.verdict = Verdict::Invalid;
            self.reasons.push(Reason::Deviation { deviation });
            self.deviation = Some(deviation);
        }
        self.auth = Some(part);
    }
}

/// Result of the closed loop with one number of threads.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClosedLoopResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// Threads of the tester.
    pub threads: usize,
    /// Requested frequency governor of the DUT's CPUs; absent: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Number of trials that count: all that the tester did not invalidate.
    pub trials: usize,
    /// Number of trials that the tester invalidated.
    pub spoiled: usize,
    /// True if all trials of the plan are done.
    pub complete: bool,
    /// Reason for a missing result.
    pub missing: Option<Missing>,
    /// True if every name got a valid answer in the trials that count; absent if none counts.
    pub passed: Option<bool>,
    /// Ends of the DUT in these trials.
    pub ended: Vec<DutEnd>,
    /// CPU placement of the DUT in all its trials; absent if it was not observed.
    #[serde(rename = "place")]
    pub seen: Option<Place>,
    /// Duration of an experiment with 256 names in ms.
    pub time_ms: Option<MeanAndDeviation>,
    /// 256 divided by that duration: answered queries per second.
    pub qps: Option<f64>,
    /// CPU use of the DUT's host, 100 % minus idle, in per cent of all its CPUs, over the seconds.
    pub host_cpu_pct: Option<MeanAndDeviation>,
    /// CPU use of the DUT's processes in per cent of one CPU, over the seconds.
    pub dut_cpu_pct: Option<MeanAndDeviation>,
}

/// The measurement of `[measure.closed-loop]`: experiments with as many queries in flight as
/// threads.
pub struct ClosedLoopMeasure;

impl Measure for ClosedLoopMeasure {
    fn title(&self) -> &'static str {
        "Closed loop"
    }

    fn name(&self) -> &'static str {
        "closed loop"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let Some(loops) = &keys.closed_loop else { return Vec::new() };
        let governors: Vec<Option<String>> = match loops.governors.is_empty() {
            true => vec![None],
            false => loops.governors.iter().cloned().map(Some).collect(),
        };
        let mut points = Vec::new();
        for place in keys.places_or_first(loops.at.as_deref()) {
            for governor in &governors {
                let (place, governor) = (&place, governor.clone());
                let with = move |&threads| {
                    let (place, governor) = (place.clone(), governor.clone());
                    Point::ClosedLoop(WithThreads {
                        dut: dut.name().into(),
                        place,
                        threads,
                        governor,
                    })
                };
                points.extend(loops.threads.iter().map(with));
            }
        }
        points
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            let Some(loops) = &keys.closed_loop else { continue };
            let bad =
                loops.threads.iter().find(|threads| !threads.is_power_of_two() || **threads > 256);
            if let Some(threads) = bad {
                return Err(format!(
                    "[measure.closed-loop] threads: {threads} is not one of 1, 2, 4 … 256"
                ));
            }
            let is_word = |name: &String| {
                !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            };
            if let Some(odd) = loops.governors.iter().find(|name| !is_word(name)) {
                return Err(format!(
                    "[measure.closed-loop] governors: {odd:?} is not the name of a frequency governor"
                ));
            }
            if !(1..=10).contains(&loops.blocks) || loops.repeat == 0 || loops.timeout.is_zero() {
                return Err(
                    "[measure.closed-loop]: blocks must be 1 to 10, and repeat and timeout above 0"
                        .into(),
                );
            }
            if let Some(stray) = keys.stray(loops.at.as_deref()) {
                let name = dut.name();
                return Err(format!(
                    "[measure.closed-loop] at: {stray} is not one of the cores and placements of {name}"
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        let (Some(loops), Point::ClosedLoop(with)) = (loops_of(plan, point), point) else {
            return (0, Duration::ZERO);
        };
        let names = u64::from(BLOCK) * u64::from(loops.blocks) * NAMES;
        let each =
            Duration::from_secs(names / (ASSUMED * with.threads.min(8) as u64)) + plan.trial.pause;
        (loops.repeat, each * loops.repeat)
    }

    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course> {
        let loops = loops_of(recorded.plan, point)?;
        Some(Course::Repeats(Repeats::new(
            NO_RATE,
            loops.repeat,
            recorded.plan.search.invalid_retries,
        )))
    }

    fn starts_anew(&self) -> bool {
        true
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task {
        let loops = loops_of(plan, &step.point).unwrap_or_default();
        let threads = if let Point::ClosedLoop(with) = &step.point { with.threads } else { 1 };
        Task::ClosedLoop(LoopPlan {
            server: base.server,
            threads,
            blocks: loops.blocks,
            timeout: loops.timeout,
            space: base.names.address(base.first_name).octets()[0],
            prefix: plan.trial.prefix,
            cpus: plan.cpus.tester.clone(),
        })
    }

    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let walk = recorded.walk(point);
        walk.is_some_and(|walk| walk.trials.iter().any(|m| m.verdict() != Verdict::Invalid))
    }

    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
        result(recorded, point)?.missing
    }

    /// The paper has these results without and with dynamic frequency scaling.
    fn fills(&self, _: &Plan, point: &Point) -> Vec<Filled> {
        let what: &[&str] = match point.governor() {
            None | Some(FIXED) => &["Tables I-II", "Fig. 2"],
            Some(_) => &["Tables III-IV"],
        };
        what.iter().map(|what| Paper::Mtd64.has(what)).collect()
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let mut all = Vec::new();
        for dut in ranked(&run.results) {
            let groups = by_key(&dut.closed_loops, ClosedLoopResult::circumstances);
            all.extend(groups.into_iter().map(|(of, here)| table(dut, of, &here)));
        }
        all
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        figure(runs).into_iter().collect()
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        run.results
            .duts
            .iter()
            .flat_map(|dut| dut.closed_loops.iter().flat_map(|at| rows(dut, at)))
            .collect()
    }
}

fn rows(dut: &DutResult, at: &ClosedLoopResult) -> Vec<Row> {
    let (place, governor) = (at.place.clone(), at.governor.clone());
    let point = Point::ClosedLoop(WithThreads {
        dut: dut.name.clone(),
        place,
        threads: at.threads,
        governor,
    });
    let mark = at.state().unwrap_or_default();
    let spread = |quantity: &str, unit, spread: Option<MeanAndDeviation>| Row {
        ran_on: at.seen.clone(),
        mark: mark.clone(),
        n: spread.map_or(0, |s| s.n),
        mean: spread.map(|s| s.mean),
        stdev: spread.map(|s| s.stdev),
        ..Row::of_value(point.clone(), quantity, unit, 0, None)
    };
    let count = |quantity: &str, n: usize| Row {
        ran_on: at.seen.clone(),
        ..Row::of_value(point.clone(), quantity, "trials", 1, Some(n as f64))
    };
    vec![
        spread("time_of_256", "ms", at.time_ms),
        Row {
            ran_on: at.seen.clone(),
            mark: mark.clone(),
            ..Row::of_value(point.clone(), "rate", "queries/s", at.trials, at.qps)
        },
        spread("host_cpu", "% of all CPUs", at.host_cpu_pct),
        spread("dut_cpu", "% of one CPU", at.dut_cpu_pct),
        count("trials", at.trials),
        count("spoiled", at.spoiled),
    ]
}

fn loops_of(plan: &Plan, point: &Point) -> Option<ClosedLoops> {
    plan.keys_of(plan.dut(point.dut()?)?).closed_loop
}

/// Returns the result of the closed loop with one number of threads.
pub(crate) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<ClosedLoopResult> {
    let Point::ClosedLoop(with) = point else { return None };
    let walk = recorded.walk(point)?;
    let Unspoiled { counted, spoiled, ended, missing, passed } =
        Unspoiled::of(recorded, point, Some(&walk));
    let figured: &[&Measured] = if missing.is_none() { &counted } else { &[] };
    let times: Vec<f64> = figured
        .iter()
        .filter_map(|m| m.in_loop())
        .flat_map(|t| t.experiments.experiments_ms.iter().copied())
        .collect();
    let seconds = |get: fn(&Measured) -> &[f64]| -> Vec<f64> {
        figured.iter().flat_map(|m| get(m).iter().map(|share| share * 100.0)).collect()
    };
    let time_ms = MeanAndDeviation::of(&times);
    Some(ClosedLoopResult {
        place: with.place.clone(),
        threads: with.threads,
        governor: with.governor.clone(),
        trials: counted.len(),
        spoiled,
        complete: walk.due().is_none(),
        missing,
        passed,
        ended,
        seen: super::search::place_of(walk.trials.iter().copied()),
        time_ms,
        qps: time_ms.filter(|t| t.mean > 0.0).map(|t| NAMES as f64 * 1e3 / t.mean),
        host_cpu_pct: MeanAndDeviation::of(&seconds(|m| &m.cpu.host)),
        dut_cpu_pct: MeanAndDeviation::of(&seconds(|m| &m.cpu.dut)),
    })
}

/// Placement of the DUT and governor of its CPUs, common to the columns of a table.
type Circumstances<'a> = (&'a Cores, Option<&'a str>);

impl ClosedLoopResult {
    fn circumstances(&self) -> Circumstances<'_> {
        (&self.place, self.governor.as_deref())
    }

    /// Returns a label if the figures are not those of a server that answered everything.
    fn state(&self) -> Option<String> {
        match (&self.missing, self.passed) {
            (Some(why), _) => Some(why.to_string()),
            (None, Some(false)) => Some("failed: not every name got a valid answer".into()),
            _ => None,
        }
    }

    fn cell(&self, value: Option<f64>, digits: usize) -> String {
        let failed = if self.passed == Some(false) { " (failed)" } else { "" };
        match (value, &self.missing) {
            (Some(value), _) if digits == 0 => format!("{}{failed}", number(value.round())),
            (Some(value), _) => format!("{value:.digits$}{failed}"),
            (None, Some(why)) => why.to_string(),
            (None, None) => Missing::NotCounted.to_string(),
        }
    }
}

/// Rows as in the paper, a column for each number of threads.
fn table(
    dut: &DutResult,
    (place, governor): Circumstances<'_>,
    all: &[&ClosedLoopResult],
) -> Table {
    let note = "Each experiment resolves 256 names, with the given number of threads and one query in flight each. CPU utilization as in the \
                paper: 100 % minus the idle time of the DUT's host. CPU of the server's processes: 100 % is one CPU.";
    let seen = Place::of_all(all.iter().filter_map(|at| at.seen.as_ref()));
    let governor =
        governor.map_or(String::new(), |governor| format!(", frequency governor: {governor}"));
    let title = format!("Closed loop: {}, {}{governor}", dut.name, on_cores(place, seen.as_ref()));
    let mut table = Table::new(&title, note, &["Number of threads"]);
    table.header.extend(all.iter().map(|at| at.threads.to_string()));
    let mut row = |name: &str, cell: &dyn Fn(&ClosedLoopResult) -> String| {
        table
            .rows
            .push(std::iter::once(name.to_owned()).chain(all.iter().map(|at| cell(at))).collect());
    };
    row("Exec. time of 256 queries (ms), average", &|at| at.cell(at.time_ms.map(|t| t.mean), 2));
    row("Exec. time of 256 queries (ms), std. dev.", &|at| at.cell(at.time_ms.map(|t| t.stdev), 2));
    row("Number of queries per second", &|at| at.cell(at.qps, 0));
    row("DNS64 server CPU utilization (%), average", &|at| {
        at.cell(at.host_cpu_pct.map(|c| c.mean), 2)
    });
    row("DNS64 server CPU utilization (%), std. dev.", &|at| {
        at.cell(at.host_cpu_pct.map(|c| c.stdev), 2)
    });
    row("CPU of the server's processes (%), average", &|at| {
        at.cell(at.dut_cpu_pct.map(|c| c.mean), 2)
    });
    row("CPU of the server's processes (%), std. dev.", &|at| {
        at.cell(at.dut_cpu_pct.map(|c| c.stdev), 2)
    });
    table
}

fn figure(runs: &[Run]) -> Option<Figure> {
    let mut all: Vec<Curve> = Vec::new();
    for (run, dut) in each_dut(runs) {
        for ((place, governor), here) in by_key(&dut.closed_loops, ClosedLoopResult::circumstances)
        {
            let dot = |at: &ClosedLoopResult| {
                // Without an answer to every name there is a mark instead of a value.
                let failed = at.passed == Some(false);
                let y = if failed { 0.0 } else { at.qps? };
                Some(Dot { failed, ..Dot::at(at.threads as f64, y) })
            };
            let dots: Vec<Dot> = here.iter().copied().filter_map(dot).collect();
            let seen = Place::of_all(here.iter().filter_map(|at| at.seen.as_ref()));
            let governor = governor.map_or(String::new(), |governor| format!(", {governor}"));
            let what = on_cores(place, seen.as_ref()) + &governor;
            let of = legend(run, &dut.name, runs.len() > 1);
            all.extend((!dots.is_empty()).then_some(Curve { of, what, dots }));
        }
    }
    (!all.is_empty()).then(|| Figure {
        file: "closed-loop".into(),
        title: "Closed loop: queries per second by the tester's threads".into(),
        x_label: "threads, one query in flight each".into(),
        y_label: "queries/s".into(),
        shape: curves(all, ""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_error_is_not_a_slow_answer() {
        let judged = |valid, refused| {
            let mut found = Experiments::begin("[::1]:53".into(), 1, 0.0);
            found.counts.sent = 256 - refused;
            (found.counts.valid, found.counts.refused) = (valid, refused);
            LoopTrial::judge(found).verdict
        };
        assert_eq!(judged(256, 0), Verdict::Passed);
        assert_eq!(judged(255, 0), Verdict::Failed);
        assert_eq!(judged(255, 1), Verdict::Invalid);
    }

    #[test]
    fn unanswered_names_may_be_due_to_a_slow_authdns() {
        let judged = |lost, slow| {
            let mut found = Experiments::begin("[::1]:53".into(), 1, 0.0);
            found.counts.sent = 25_600;
            (found.counts.valid, found.counts.lost) = (25_600 - lost, lost);
            let mut trial = LoopTrial::judge(found);
            trial.apply_auth(AuthDelta { slow, ..AuthDelta::default() }, Nanos::from_millis(10));
            (trial.verdict, trial.reasons.iter().map(Reason::kind).collect::<Vec<_>>())
        };
        assert_eq!(judged(16, 15), (Verdict::Failed, vec![ReasonKind::TooFewValid]));
        assert_eq!(judged(16, 16), (Verdict::Invalid, vec![ReasonKind::AuthDecides]));
    }
}
