//! Tables, figures and rows of load trials.

use campaign::plan::{AtShare, Cores, Point};
use campaign::results::{self, DutResult, LoadResult, Sustained, by_key};
use campaign::sequence::{LoadMeasure, loads_for};
use hosts::place::CpuPlacement;
use units::Share;

use crate::chart::{Curve, Dot, Figure, Series, Shape, along, curves};
use crate::csv::row::Row;
use crate::format::{almost, number, percent};
use crate::places::on_cores;
use crate::run::{Run, each_dut, legend, ranked};
use crate::section::Section;
use crate::sections::sustained::{cprdp_cell, each_place, rows, second_by_second, transients};
use crate::table::Table;

impl Section for LoadMeasure {
    fn title(&self) -> &'static str {
        "Loads: CPU use and latency"
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
            let mut rows = rows(&load.found, &Point::Load(at));
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

/// Note above the efficiency tables.
const EFFICIENCY: &str = "CPRDP: valid replies/s for each core in use, without the initial transient. Full rate: the worst-case median. \
                          A CPU use of 100 % is one core. Failed: the trials at that rate did not pass.";

/// Returns a table of a DUT's efficiency, with a column for each CPU placement. The rows are those of the table of
/// computing power relative performance (CPRDP) in Lencse and Kadobayashi 2018 (docs/src/method.md).
fn efficiency(dut: &DutResult) -> Table {
    let title = format!("Computing power relative performance (CPRDP): {}", dut.name);
    let columns: Vec<(String, &DutResult, &Cores)> = by_key(&dut.loads, |load| &load.place)
        .into_iter()
        .map(|(place, loads)| (column_of(place, &loads), dut, place))
        .collect();
    efficiency_table(&title, "CPU cores", &columns)
}

/// Returns a table of efficiency with a column for each DUT. Each of these DUTs was measured under load at a single CPU
/// placement, which may differ between DUTs.
fn efficiency_by_server(duts: &[&DutResult]) -> Table {
    let title = "Computing power relative performance (CPRDP) by server";
    let columns: Vec<(String, &DutResult, &Cores)> = duts
        .iter()
        .flat_map(|dut| {
            by_key(&dut.loads, |load| &load.place).into_iter().map(move |at| (*dut, at))
        })
        .map(|(dut, (place, loads))| {
            let seen =
                CpuPlacement::merge_all(loads.iter().filter_map(|load| load.found.place.as_ref()));
            (format!("{}, {}", dut.name, on_cores(place, seen.as_ref())), dut, place)
        })
        .collect();
    efficiency_table(title, "Server", &columns)
}

/// Returns the column heading of a CPU placement.
fn column_of(place: &Cores, loads: &[&LoadResult]) -> String {
    let seen = CpuPlacement::merge_all(loads.iter().filter_map(|load| load.found.place.as_ref()));
    let missing = loads.iter().find_map(|load| load.found.missing.as_ref());
    crate::places::column(place, seen.as_ref(), missing)
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
        let cell = |dut: &DutResult, place: &Cores| at_load(dut, place, share, cprdp_cell);
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

/// Returns the text of the table cell for a DUT's worst-case result at a CPU placement.
fn full_rate(dut: &DutResult, place: &Cores) -> String {
    let point =
        dut.points.iter().find(|p| p.conditions.is_worst_case() && p.conditions.place == *place);
    point.map_or("not measured".into(), crate::sections::search::found_in_words)
}

/// Returns the text of a table cell, for a quantity that was measured at the load `share`.
fn at_load(
    dut: &DutResult,
    place: &Cores,
    share: Share,
    cell: impl Fn(&Sustained) -> String,
) -> String {
    let load = dut.loads.iter().find(|load| load.place == *place && load.share == share);
    load.map_or("not in the plan".into(), |load| cell(&load.found))
}

/// Returns the results of all loads of a run, in ascending order of the load. Among results at the same load, passed
/// ones come before all others. Within both groups, the results are in ascending order of `key`.
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

/// Returns the first cells of a row: the DUT, its cores, the load and the rate.
fn names(dut: &DutResult, load: &LoadResult) -> Vec<String> {
    let cores =
        crate::places::column(&load.place, load.found.place.as_ref(), load.found.missing.as_ref());
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
        let rtt = |get: fn(&results::Latency) -> f64| ms(found.rtt_us.as_ref().map(get));
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

/// Axis label for loads. A load is a fraction of the DUT's worst-case rate (median of its worst-case searches).
const LOAD: &str = "load (share of the worst-case median)";

/// Returns a curve for each DUT and CPU placement; `dot` creates the mark for a load.
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

/// Returns a figure of the CPU use in each second of a trial. For each DUT and CPU placement, the figure shows the
/// trial at the lowest load.
pub(super) fn transient(runs: &[Run]) -> Option<Figure> {
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
        // In a failed trial, the received replies do not represent all queries, so there is a mark
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
