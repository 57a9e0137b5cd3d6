//! Loads: a DUT at shares of its worst-case median, on the same CPUs. Reports CPU use, efficiency
//! (CPRDP, Lencse and Kadobayashi 2018, §VI) and latency.

use std::time::Duration;

use method::set::Repeats;
use method::units::{Qps, Share};
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;

use super::keys::At;
use super::search::on_cores;
use super::sustained::{self, Sustained, each_place, second_by_second, transients};
use super::{Course, Filled, Measure, Paper, Task};
use crate::archive::Step;
use crate::contradictions::almost;
use crate::missing::Missing;
use crate::place::Place;
use crate::plan::{DutPlan, Plan};
use crate::point::{AtShare, Conditions, Cores, Point};
use crate::recorded::Recorded;
use crate::report::chart::{Curve, Dot, Figure, Series, Shape, along, curves, number};
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::report::{Run, by_key, each_dut, legend, percent, ranked};
use crate::results::DutResult;

/// `[measure.loads]`: trials at shares of the worst-case median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Loads {
    /// Shares of the worst-case median that are sent, fractions from 0 to 1.
    pub shares: Vec<Share>,
    /// Numbers of cores and placements; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<At>>,
    /// Sending time of each trial, such as `"60s"`.
    #[serde(with = "crate::written::plan_time")]
    #[schemars(with = "crate::written::Time")]
    pub duration: Duration,
    /// The initial transient, excluded from the CPU figures.
    #[serde(with = "crate::written::plan_time")]
    #[schemars(with = "crate::written::Time")]
    pub transient: Duration,
    /// Number of trials at each share, at least 1.
    pub repeat: u32,
}

impl Default for Loads {
    /// Durations of the paper.
    fn default() -> Loads {
        let (duration, transient) = (Duration::from_secs(180), Duration::from_secs(60));
        Loads { shares: Vec::new(), at: None, duration, transient, repeat: 1 }
    }
}

/// Result at a share of the worst-case median.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// The share of the worst-case median that was sent, a fraction.
    pub share: Share,
    /// The rate; absent if there was no median.
    pub rate: Option<Qps>,
    /// Result at that rate.
    #[serde(flatten)]
    pub found: Sustained,
}

/// The measurement of `[measure.loads]`: trials at shares of the worst-case median.
pub struct LoadMeasure;

impl Measure for LoadMeasure {
    fn title(&self) -> &'static str {
        "Loads: CPU use and latency"
    }

    fn name(&self) -> &'static str {
        "load"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let Some(loads) = &keys.loads else { return Vec::new() };
        let name = dut.name();
        let of = |place: Cores| {
            let at = move |&share| {
                Point::Load(AtShare { dut: name.into(), place: place.clone(), share })
            };
            loads.shares.iter().map(at)
        };
        keys.places_at(loads.at.as_deref()).into_iter().flat_map(of).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        for dut in &plan.duts {
            let keys = plan.keys_of(dut);
            let Some(loads) = keys.loads.as_ref().filter(|loads| !loads.shares.is_empty()) else {
                continue;
            };
            if loads.transient >= loads.duration || loads.repeat == 0 {
                return Err(
                    "[measure.loads]: transient must be shorter than duration, and repeat at least 1"
                        .into(),
                );
            }
            if let Some(stray) = keys.stray(loads.at.as_deref()) {
                return Err(format!(
                    "[measure.loads] at: {stray} is not one of the cores and placements of {}",
                    dut.name()
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        loads_of(plan, point)
            .map_or((0, Duration::ZERO), |l| (l.repeat, plan.takes(l.duration) * l.repeat))
    }

    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course> {
        let (Point::Load(at), loads) = (point, loads_of(recorded.plan, point)?) else {
            return None;
        };
        let rate = Qps((recorded.median_at(&at.dut, &at.place)? * at.share.fraction()) as u64);
        let retries = recorded.plan.search.invalid_retries;
        (rate.0 > 0).then(|| Course::Repeats(Repeats::new(rate, loads.repeat, retries)))
    }

    fn is_hopeless(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let Point::Load(at) = point else { return false };
        let worst = Point::Search(Conditions::worst_case(&at.dut, at.place.clone()));
        self.course(recorded, point).is_none() && recorded.is_complete(&worst)
    }

    fn starts_anew(&self) -> bool {
        false
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        if let Some(loads) = loads_of(plan, &step.point) {
            (base.duration, base.timeout) =
                (loads.duration.into(), plan.trial.timeout(loads.duration).into());
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

    fn fills(&self, _: &Plan, _: &Point) -> Vec<Filled> {
        vec![Paper::Benchmarking.has("Tables XIX-XXI")]
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let has_loads = |dut: &&DutResult| !dut.loads.is_empty();
        let ranked = ranked(&run.results).into_iter().filter(has_loads);
        let (one_place, several): (Vec<&DutResult>, Vec<&DutResult>) =
            ranked.partition(|dut| by_key(&dut.loads, |load| &load.place).len() == 1);
        let together = (!one_place.is_empty()).then(|| efficiency_by_server(&one_place));
        let by_dut = together.into_iter().chain(several.into_iter().map(efficiency));
        let both = run
            .results
            .duts
            .iter()
            .any(|dut| has_loads(&dut))
            .then(|| [use_table(run), latency_table(run)]);
        by_dut.chain(both.into_iter().flatten()).collect()
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        let cprdp =
            |load: &LoadResult| load.found.cprdp.as_ref().map(|c| (c.median, (c.min, c.max)));
        let cpu = |load: &LoadResult| load.found.cpu.as_ref().map(|c| (c.median, (c.min, c.max)));
        let title = "Valid replies per second for each core in use (CPRDP)";
        let mut all: Vec<Figure> = Vec::new();
        all.extend(bars(runs, "cprdp", title, "replies/s per core", cprdp));
        all.extend(bars(runs, "cpu", "CPU use of the DUT", "cores in use", cpu));
        all.extend(transient(runs));
        all.extend(latency(runs, "latency-p50", "Median", |load| {
            load.found.rtt_us.map(|rtt| rtt.p50)
        }));
        all.extend(latency(runs, "latency-p99", "99th percentile", |load| {
            load.found.rtt_us.map(|rtt| rtt.p99)
        }));
        all
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let of = |dut: &DutResult, load: &LoadResult| {
            let at =
                AtShare { dut: dut.name.clone(), place: load.place.clone(), share: load.share };
            let mut rows = load.found.rows(&Point::Load(at));
            rows.iter_mut().for_each(|row| row.rate = load.rate);
            rows
        };
        run.results
            .duts
            .iter()
            .flat_map(|dut| dut.loads.iter().flat_map(move |load| of(dut, load)))
            .collect()
    }
}

fn loads_of(plan: &Plan, point: &Point) -> Option<Loads> {
    loads_for(plan, point.dut()?)
}

fn loads_for(plan: &Plan, dut: &str) -> Option<Loads> {
    plan.keys_of(plan.dut(dut)?).loads
}

/// Returns the result of a load.
pub(crate) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<LoadResult> {
    let Point::Load(at) = point else { return None };
    let loads = loads_of(recorded.plan, point)?;
    let walk = recorded.walk(point);
    let lengths = (loads.transient.as_secs_f64(), loads.duration.as_secs_f64());
    Some(LoadResult {
        place: at.place.clone(),
        share: at.share,
        rate: walk.as_ref().and_then(|walk| Some(walk.trials.first()?.step.rate)),
        found: sustained::result(recorded, point, walk.as_ref(), lengths),
    })
}

/// Note of the efficiency tables.
const EFFICIENCY: &str = "CPRDP: valid replies/s for each core in use, without the initial transient. Full rate: the worst-case median. \
                          A CPU use of 100 % is one core. Failed: the trials at that rate did not pass.";

/// Efficiency of a DUT at every placement: rows as in the paper, a column for each placement.
fn efficiency(dut: &DutResult) -> Table {
    let title = format!("Computing power relative performance (CPRDP): {}", dut.name);
    let columns: Vec<(String, &DutResult, &Cores)> = by_key(&dut.loads, |load| &load.place)
        .into_iter()
        .map(|(place, loads)| (column_of(place, &loads), dut, place))
        .collect();
    efficiency_table(&title, "CPU cores", &columns)
}

/// Efficiency of DUTs with loads at one placement, a column for each DUT.
fn efficiency_by_server(duts: &[&DutResult]) -> Table {
    let title = "Computing power relative performance (CPRDP) by server";
    let columns: Vec<(String, &DutResult, &Cores)> = duts
        .iter()
        .flat_map(|dut| {
            by_key(&dut.loads, |load| &load.place).into_iter().map(move |at| (*dut, at))
        })
        .map(|(dut, (place, loads))| {
            let seen = Place::of_all(loads.iter().filter_map(|load| load.found.place.as_ref()));
            (format!("{}, {}", dut.name, on_cores(place, seen.as_ref())), dut, place)
        })
        .collect();
    efficiency_table(title, "Server", &columns)
}

/// Returns the column heading of a placement.
fn column_of(place: &Cores, loads: &[&LoadResult]) -> String {
    let seen = Place::of_all(loads.iter().filter_map(|load| load.found.place.as_ref()));
    let missing = loads.iter().find_map(|load| load.found.missing.as_ref());
    super::search::column(place, seen.as_ref(), missing)
}

fn efficiency_table(title: &str, corner: &str, columns: &[(String, &DutResult, &Cores)]) -> Table {
    let mut shares: Vec<Share> = Vec::new();
    for load in columns.iter().flat_map(|(_, dut, _)| &dut.loads) {
        if !shares.contains(&load.share) {
            shares.push(load.share);
        }
    }
    let mut table = Table::new(title, EFFICIENCY, &[corner]);
    table.header.extend(columns.iter().map(|(name, ..)| name.clone()));
    let row = |name: &str, cell: &dyn Fn(&DutResult, &Cores) -> String| -> Vec<String> {
        let cells = columns.iter().map(|(_, dut, place)| cell(dut, place));
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let mut rows = vec![row("Full rate (queries/s)", &full_rate)];
    for &share in shares.iter().filter(|&&share| share != Share::ONE) {
        let name = format!("CPRDP @{}", percent(share.per_hundred()));
        let cell =
            |dut: &DutResult, place: &Cores| at_load(dut, place, share, Sustained::cprdp_cell);
        rows.push(row(&name, &cell));
    }
    if shares.contains(&Share::ONE) {
        let cpu = |found: &Sustained| {
            found.cell(found.cpu.as_ref().map(|cpu| format!("{:.1} %", cpu.median * 100.0)))
        };
        let cell = |dut: &DutResult, place: &Cores| at_load(dut, place, Share::ONE, cpu);
        rows.push(row("CPU utilization @100 %", &cell));
    }
    table.rows = rows;
    table
}

/// Returns the cell for the worst case of a DUT at a placement.
fn full_rate(dut: &DutResult, place: &Cores) -> String {
    let point =
        dut.points.iter().find(|p| p.conditions.is_worst_case() && p.conditions.place == *place);
    point.map_or("not measured".into(), super::search::found_in_words)
}

/// Returns the cell for a figure of a load.
fn at_load(
    dut: &DutResult,
    place: &Cores,
    share: Share,
    cell: impl Fn(&Sustained) -> String,
) -> String {
    let load = dut.loads.iter().find(|load| load.place == *place && load.share == share);
    load.map_or("not in the plan".into(), |load| cell(&load.found))
}

/// Returns the name of a placement in column headings.
pub(crate) fn place_name(place: &Cores) -> String {
    let name = place.placement.clone().unwrap_or_else(|| place.cores.to_string());
    place.authdns.as_ref().map_or(name.clone(), |authdns| format!("{name} with {authdns}"))
}

/// Returns all loads of a run, the lowest first; within one load those that passed first, and among
/// these those with the smallest `key` first.
fn by_load(run: &Run, key: fn(&LoadResult) -> Option<f64>) -> Vec<(&DutResult, &LoadResult)> {
    let mut all: Vec<(&DutResult, &LoadResult)> = run
        .results
        .duts
        .iter()
        .flat_map(|dut| dut.loads.iter().map(move |load| (dut, load)))
        .collect();
    let rank = |load: &LoadResult| (!load.found.is_sound(), key(load).unwrap_or(f64::INFINITY));
    all.sort_by(|(_, a), (_, b)| {
        let (a_rank, b_rank) = (rank(a), rank(b));
        (a.share, a_rank.0).cmp(&(b.share, b_rank.0)).then(a_rank.1.total_cmp(&b_rank.1))
    });
    all
}

/// Returns the cells that name the DUT and the load of a row.
fn names(dut: &DutResult, load: &LoadResult) -> Vec<String> {
    let cores =
        super::search::column(&load.place, load.found.place.as_ref(), load.found.missing.as_ref());
    let rate = load.rate.map_or("–".into(), |rate| number(rate.0 as f64));
    vec![dut.name.clone(), cores, percent(load.share.per_hundred()), rate]
}

const NAMES: [&str; 4] = ["DUT", "Cores", "Load", "Queries/s"];

fn use_table(run: &Run) -> Table {
    let note = "Load: share of the worst-case median that was sent; the most efficient server of each load comes first. CPU in cores, without the \
                initial transient; CPRDP: valid replies/s for each core in use. Invalid trials are excluded.";
    let mut table = Table::new(
        "CPU use at loads",
        note,
        &[&NAMES[..], &["Trials", "Valid", "CPU", "CPRDP"]].concat(),
    );
    for (dut, load) in by_load(run, |load| load.found.cprdp.as_ref().map(|cprdp| -cprdp.median)) {
        let found = &load.found;
        let mut row = names(dut, load);
        row.extend([
            found.state(),
            found.valid.map_or("–".into(), almost),
            found.cpu.as_ref().map_or("–".into(), |cpu| format!("{:.2}", cpu.median)),
            found.cprdp.as_ref().map_or("–".into(), |cprdp| number(cprdp.median)),
        ]);
        table.rows.push(row);
    }
    table
}

fn latency_table(run: &Run) -> Table {
    let note = "Round-trip times of valid replies; the fastest server (p99) of each load comes first. AuthDNS: its response time, which is \
                included. For a failed load, only the received replies count.";
    let header = ["Trials", "RTT p50, ms", "p99, ms", "p99.9, ms", "AuthDNS p99.9, ms"];
    let mut table = Table::new("Latency at loads", note, &[&NAMES[..], &header].concat());
    let ms = |us: Option<f64>| us.map_or("–".into(), |us| format!("{:.2}", us / 1e3));
    for (dut, load) in by_load(run, |load| load.found.rtt_us.map(|rtt| rtt.p99)) {
        let found = &load.found;
        let rtt = |get: fn(&sustained::Latency) -> f64| ms(found.rtt_us.as_ref().map(get));
        let mut row = names(dut, load);
        row.extend([
            found.state(),
            rtt(|rtt| rtt.p50),
            rtt(|rtt| rtt.p99),
            rtt(|rtt| rtt.p999),
            ms(found.auth_p999_us),
        ]);
        table.rows.push(row);
    }
    table
}

/// Axis label for a share of the worst-case median.
const LOAD: &str = "load (share of the worst-case median)";

/// Returns a curve for each DUT and placement; `dot` makes the mark of a load.
fn over_loads(runs: &[Run], dot: impl Fn(&LoadResult) -> Option<Dot>) -> Vec<Curve> {
    each_place(runs, |dut| &dut.loads, |load| (&load.place, &load.found), dot)
}

type Value = (f64, (f64, f64));

fn bars(
    runs: &[Run],
    file: &str,
    title: &str,
    y_label: &str,
    value: fn(&LoadResult) -> Option<Value>,
) -> Option<Figure> {
    let mut shares: Vec<u8> =
        each_dut(runs).flat_map(|(_, d)| d.loads.iter().map(|l| l.share.per_hundred())).collect();
    shares.sort_unstable();
    shares.dedup();
    let all = over_loads(runs, |load| {
        let (y, range) = value(load)?;
        let x = shares.iter().position(|&s| s == load.share.per_hundred())?;
        Some(Dot { x: x as f64, y, range, failed: !load.found.is_sound(), ..Dot::default() })
    });
    let series = |Curve { of, what, dots }| Series { name: format!("{of}, {what}"), dots };
    (!all.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: LOAD.into(),
        y_label: y_label.into(),
        shape: Shape::Bars {
            groups: shares.iter().map(|&s| percent(s)).collect(),
            series: all.into_iter().map(series).collect(),
        },
    })
}

/// CPU use second by second at the lowest load of each DUT at each placement.
fn transient(runs: &[Run]) -> Option<Figure> {
    let mut panels = Vec::new();
    for (run, dut) in each_dut(runs) {
        let transient =
            loads_for(&run.results.plan, &dut.name).map(|loads| loads.transient.as_secs_f64());
        for (_, here) in by_key(&dut.loads, |load| &load.place) {
            let Some(load) = here.into_iter().find(|load| load.found.cpu_by_second.len() > 1)
            else {
                continue;
            };
            let (name, cores) = (
                legend(run, &dut.name, runs.len() > 1),
                on_cores(&load.place, load.found.place.as_ref()),
            );
            let name = format!("{name}, {cores}, {}", percent(load.share.per_hundred()));
            panels.push(second_by_second(name, &load.found, transient));
        }
    }
    transients(
        "cpu-transient",
        "CPU use of the DUT from the start of a trial, at the lowest load",
        panels,
    )
}

fn latency(
    runs: &[Run],
    file: &str,
    which: &str,
    us: fn(&LoadResult) -> Option<f64>,
) -> Option<Figure> {
    let all = over_loads(runs, |load| {
        // In a failed trial, the replies that came do not represent all queries: there is a mark
        // instead of a value.
        let failed = load.found.has_failed();
        let y = if failed { 0.0 } else { us(load)? / 1000.0 };
        Some(Dot { failed, ..Dot::at(f64::from(load.share.per_hundred()), y) })
    });
    (!all.is_empty()).then(|| {
        let (shape, title) = (curves(all, " %"), format!("{which} of the round-trip time by load"));
        let x_label = along(&shape, LOAD, " %");
        Figure { file: file.into(), title, x_label, y_label: "ms".into(), shape }
    })
}
