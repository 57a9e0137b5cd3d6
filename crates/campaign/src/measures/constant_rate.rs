//! A DUT at rates from the plan: efficiency by rate, the transient of its CPU use, and page
//! allocations by NUMA node (Lencse and Kadobayashi 2018, §VI and §VII).

use std::time::Duration;

use method::set::Repeats;
use method::stats::Summary;
use method::units::Qps;
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;

use super::keys::At;
use super::search::on_cores;
use super::sustained::{self, NodeResult, Sustained, each_place, second_by_second};
use super::{Course, Filled, Measure, Paper, Task};
use crate::archive::Step;
use crate::contradictions::almost;
use crate::missing::Missing;
use crate::plan::{DutPlan, Plan};
use crate::point::{AtRate, Cores, Point};
use crate::recorded::Recorded;
use crate::report::chart::{Dot, Figure, Multiple, Series, Shape, curves, number};
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::report::{Run, each_dut, legend, ranked};
use crate::results::DutResult;

/// `[[measure.constant-rates]]`: trials at rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConstantRates {
    /// The rates, queries per second.
    pub rates: Vec<Qps>,
    /// Numbers of cores and placements; default: the first number of cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<At>>,
    /// Sending time of each trial, such as `"60s"`.
    #[serde(with = "crate::written::plan_time")]
    #[schemars(with = "crate::written::Time")]
    pub duration: Duration,
    /// The initial transient, excluded from the CPU figures.
    #[serde(default, with = "crate::written::plan_time")]
    #[schemars(with = "crate::written::Time")]
    pub transient: Duration,
    /// Number of trials at each rate, at least 1.
    pub repeat: u32,
}

/// Result at a rate.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConstantRateResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// The rate that was sent, queries per second.
    pub rate: Qps,
    /// Result at that rate.
    #[serde(flatten)]
    pub found: Sustained,
}

/// The measurement of `[[measure.constant-rates]]`: trials at rates from the plan.
pub struct ConstantRateMeasure;

impl Measure for ConstantRateMeasure {
    fn title(&self) -> &'static str {
        "Constant rates: efficiency, transients and memory"
    }

    fn name(&self) -> &'static str {
        "constant rate"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let mut points = Vec::new();
        for block in &keys.constant_rates {
            for place in keys.places_or_first(block.at.as_deref()) {
                let at = |&rate| {
                    Point::ConstantRate(AtRate {
                        dut: dut.name().into(),
                        place: place.clone(),
                        rate,
                    })
                };
                points.extend(block.rates.iter().map(at));
            }
        }
        points
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            for block in &keys.constant_rates {
                if block.transient >= block.duration
                    || block.repeat == 0
                    || block.rates.contains(&Qps(0))
                {
                    return Err(
                        "[[measure.constant-rates]]: transient must be shorter than duration, and rates and repeat at \
                                least 1"
                            .into(),
                    );
                }
                if let Some(stray) = keys.stray(block.at.as_deref()) {
                    let name = dut.name();
                    let why =
                        format!("at: {stray} is not one of the cores and placements of {name}");
                    return Err(format!("[[measure.constant-rates]] {why}"));
                }
            }
            let mut points = self.points(plan, Some(dut));
            while let Some(point) = points.pop() {
                if points.contains(&point) {
                    return Err(format!(
                        "[[measure.constant-rates]]: two of them have the point {point}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        block_of(plan, point)
            .map_or((0, Duration::ZERO), |b| (b.repeat, plan.takes(b.duration) * b.repeat))
    }

    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course> {
        let (Point::ConstantRate(at), block) = (point, block_of(recorded.plan, point)?) else {
            return None;
        };
        Some(Course::Repeats(Repeats::new(
            at.rate,
            block.repeat,
            recorded.plan.search.invalid_retries,
        )))
    }

    fn starts_anew(&self) -> bool {
        false
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        if let Some(block) = block_of(plan, &step.point) {
            (base.duration, base.timeout) =
                (block.duration.into(), plan.trial.timeout(block.duration).into());
        }
        Task::Trial(Box::new(base))
    }

    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let walk = recorded.walk(point);
        walk.is_some_and(|walk| {
            walk.trials.iter().any(|m| m.verdict() != method::verdict::Verdict::Invalid)
        })
    }

    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
        result(recorded, point)?.found.missing
    }

    /// A single trial has no minimum and maximum number of pages. A curve over seconds needs two
    /// trials, and one over rates needs two rates at the same placement.
    fn fills(&self, plan: &Plan, point: &Point) -> Vec<Filled> {
        let (Some(block), Point::ConstantRate(at)) = (block_of(plan, point), point) else {
            return Vec::new();
        };
        let is_beside = |other: &Point| matches!(other, Point::ConstantRate(o) if (&o.dut, &o.place) == (&at.dut, &at.place) && o.rate != at.rate);
        let has_others =
            plan.dut(&at.dut).is_some_and(|dut| self.points(plan, Some(dut)).iter().any(is_beside));
        let all = [
            (block.repeat > 1, "Tables XXII-XXIII"),
            (block.duration >= Duration::from_secs(2), "Fig. 3"),
            (has_others, "Fig. 4"),
        ];
        all.into_iter()
            .filter(|(fills, _)| *fills)
            .map(|(_, what)| Paper::Benchmarking.has(what))
            .collect()
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let mut all = Vec::new();
        for dut in ranked(&run.results) {
            // A single trial has no minimum and maximum.
            let is_repeated =
                |at: &&ConstantRateResult| at.found.numa.first().is_none_or(|node| node.hit.n > 1);
            let mut rates: Vec<Qps> =
                dut.constant_rates.iter().filter(is_repeated).map(|at| at.rate).collect();
            rates.sort_unstable();
            rates.dedup();
            all.extend((!dut.constant_rates.is_empty()).then(|| efficiency(dut)));
            all.extend(rates.iter().filter_map(|&rate| memory(dut, rate)));
        }
        all
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        let hit = pages(
            runs,
            "numa-hit",
            "Pages allocated on the intended NUMA node during a trial",
            |node| &node.hit,
        );
        let miss = pages(
            runs,
            "numa-miss",
            "Pages allocated on another NUMA node than intended",
            |node| &node.miss,
        );
        [transients(runs), against_rate(runs), hit, miss].into_iter().flatten().collect()
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let of = |dut: &DutResult, at: &ConstantRateResult| {
            let point = AtRate { dut: dut.name.clone(), place: at.place.clone(), rate: at.rate };
            at.found.rows(&Point::ConstantRate(point))
        };
        run.results
            .duts
            .iter()
            .flat_map(|dut| dut.constant_rates.iter().flat_map(move |at| of(dut, at)))
            .collect()
    }
}

/// Returns the plan's block with the placement and rate of a point.
fn block_of(plan: &Plan, point: &Point) -> Option<ConstantRates> {
    let Point::ConstantRate(at) = point else { return None };
    let keys = plan.keys_of(plan.dut(&at.dut)?);
    let has = |block: &&ConstantRates| {
        block.rates.contains(&at.rate)
            && keys.places_or_first(block.at.as_deref()).contains(&at.place)
    };
    keys.constant_rates.iter().find(has).cloned()
}

/// Returns the result at a rate.
pub(crate) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<ConstantRateResult> {
    let Point::ConstantRate(at) = point else { return None };
    let block = block_of(recorded.plan, point)?;
    let walk = recorded.walk(point);
    let lengths = (block.transient.as_secs_f64(), block.duration.as_secs_f64());
    Some(ConstantRateResult {
        place: at.place.clone(),
        rate: at.rate,
        found: sustained::result(recorded, point, walk.as_ref(), lengths),
    })
}

/// CPU use and efficiency, one row for each rate.
fn efficiency(dut: &DutResult) -> Table {
    let note = "CPU in cores, without the initial transient; CPRDP: valid replies/s for each core in use. Failed: the trials at \
                that rate did not pass.";
    let header = ["Cores", "Queries/s", "Trials", "Valid", "CPU", "CPRDP"];
    let mut table = Table::new(&format!("At constant rates: {}", dut.name), note, &header);
    for at in &dut.constant_rates {
        let found = &at.found;
        table.rows.push(vec![
            super::search::column(&at.place, found.place.as_ref(), found.missing.as_ref()),
            number(at.rate.0 as f64),
            found.state(),
            found.valid.map_or("–".into(), almost),
            found.cell(found.cpu.as_ref().map(|cpu| format!("{:.2}", cpu.median))),
            found.cprdp_cell(),
        ]);
    }
    table
}

/// A statistic of the trials' counters.
type Statistic = (&'static str, fn(&Summary) -> f64);

const STATISTICS: [Statistic; 3] =
    [("median", |s| s.median), ("minimum", |s| s.min), ("maximum", |s| s.max)];

/// Page allocations by node: rows as in the paper, three for each placement.
fn memory(dut: &DutResult, rate: Qps) -> Option<Table> {
    let all: Vec<&ConstantRateResult> =
        dut.constant_rates.iter().filter(|at| at.rate == rate).collect();
    // In the order of the paper: the nodes, then their sum; first hits, then misses.
    let mut nodes: Vec<Option<usize>> = Vec::new();
    for node in all.iter().flat_map(|at| &at.found.numa) {
        if !nodes.contains(&node.node) {
            nodes.push(node.node);
        }
    }
    nodes.sort_by_key(|node| node.unwrap_or(usize::MAX));
    let note = "Pages allocated on each NUMA node of the DUT's host during a trial, by any program; miss: on this node \
                although another one was preferred.";
    let title =
        format!("Numastat results of {}, test rate: {} queries/s", dut.name, number(rate.0 as f64));
    let mut table = Table::new(&title, note, &["Cores", "Statistic"]);
    table.keys = 2;
    let name = |node: &Option<usize>| node.map_or("all".to_owned(), |node| format!("node{node}"));
    for what in ["hit", "miss"] {
        table.header.extend(nodes.iter().map(|node| format!("{} {what}", name(node))));
    }
    if nodes.is_empty() {
        table.header.push("hit and miss".into());
    }
    for at in all {
        for (statistic, get) in STATISTICS {
            let cores = super::search::column(
                &at.place,
                at.found.place.as_ref(),
                at.found.missing.as_ref(),
            );
            let mut row = vec![cores, statistic.to_owned()];
            let cell = |node: &Option<usize>, which: fn(&NodeResult) -> &Summary| {
                let of = at.found.numa.iter().find(|of| of.node == *node);
                at.found.cell(of.map(|of| number(get(which(of)))))
            };
            row.extend(nodes.iter().map(|node| cell(node, |of| &of.hit)));
            row.extend(nodes.iter().map(|node| cell(node, |of| &of.miss)));
            if nodes.is_empty() {
                row.push(at.found.cell(None));
            }
            table.rows.push(row);
        }
    }
    Some(table)
}

/// Returns the cores that the DUT of a trial was confined to, for legends.
fn cores(at: &ConstantRateResult) -> String {
    on_cores(&at.place, at.found.place.as_ref())
}

/// CPU use second by second, a small diagram for each DUT, placement and rate: those rates for
/// which the plan sets a transient, or all if it sets none.
fn transients(runs: &[Run]) -> Option<Figure> {
    let mut all: Vec<(f64, Multiple)> = Vec::new();
    for (run, dut) in each_dut(runs) {
        for at in dut.constant_rates.iter().filter(|at| at.found.cpu_by_second.len() > 1) {
            let point = AtRate { dut: dut.name.clone(), place: at.place.clone(), rate: at.rate };
            let block = block_of(&run.results.plan, &Point::ConstantRate(point));
            let transient = block.map_or(0.0, |block| block.transient.as_secs_f64());
            let name = legend(run, &dut.name, runs.len() > 1);
            let name = format!("{name}, {}, {}/s", cores(at), number(at.rate.0 as f64));
            let end = (transient > 0.0).then_some(transient);
            all.push((transient, second_by_second(name, &at.found, end)));
        }
    }
    let is_known = all.iter().any(|(transient, _)| *transient > 0.0);
    let panels: Vec<Multiple> = all
        .into_iter()
        .filter(|(transient, _)| !is_known || *transient > 0.0)
        .map(|(_, panel)| panel)
        .collect();
    sustained::transients(
        "transient",
        "Initial transient of the CPU use, by server, cores and rate",
        panels,
    )
}

/// Efficiency by rate, a curve for each DUT and placement.
fn against_rate(runs: &[Run]) -> Option<Figure> {
    let all =
        each_place(runs, |dut| &dut.constant_rates, |at| (&at.place, &at.found), efficiency_at);
    (!all.is_empty()).then(|| Figure {
        file: "cprdp-by-rate".into(),
        title: "Valid replies per second for each core in use (CPRDP) by query rate".into(),
        x_label: "queries/s".into(),
        y_label: "replies/s per core".into(),
        shape: curves(all, ""),
    })
}

fn efficiency_at(at: &ConstantRateResult) -> Option<Dot> {
    let failed = at.found.has_failed();
    let value = at.found.cprdp.as_ref().filter(|_| !failed).map(|c| (c.median, (c.min, c.max)));
    // In a failed trial the DUT did not do the requested work: there is a mark instead of a value.
    let (y, range) = value.or(failed.then_some((0.0, (0.0, 0.0))))?;
    Some(Dot { x: at.rate.0 as f64, y, range, failed, ..Dot::default() })
}

/// Page allocations by NUMA node in repeated trials, a group of bars for each DUT, placement and
/// rate.
fn pages(
    runs: &[Run],
    file: &str,
    title: &str,
    which: fn(&NodeResult) -> &Summary,
) -> Option<Figure> {
    let (mut groups, mut series): (Vec<String>, Vec<Series>) = (Vec::new(), Vec::new());
    for (run, dut) in each_dut(runs) {
        for at in &dut.constant_rates {
            let nodes: Vec<&NodeResult> =
                at.found.numa.iter().filter(|of| of.node.is_some() && which(of).n > 1).collect();
            if nodes.is_empty() {
                continue;
            }
            let (name, rate) = (legend(run, &dut.name, runs.len() > 1), number(at.rate.0 as f64));
            let failed = !at.found.is_sound();
            groups.push(format!("{name}, {}, {rate} queries/s", cores(at)));
            for node in nodes {
                let (name, pages) =
                    (node.node.map_or(String::new(), |node| format!("node {node}")), which(node));
                let (x, y, range) =
                    ((groups.len() - 1) as f64, pages.median, (pages.min, pages.max));
                let dot = Dot { x, y, range, failed, ..Dot::default() };
                match series.iter_mut().find(|known| known.name == name) {
                    Some(known) => known.dots.push(dot),
                    None => series.push(Series { name, dots: vec![dot] }),
                }
            }
        }
    }
    (!groups.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: String::new(),
        y_label: "pages in a trial: median, from the smallest to the largest".into(),
        shape: Shape::Bars { groups, series },
    })
}
