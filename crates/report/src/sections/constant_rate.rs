//! Tables, figures and rows of trials at constant rates.

use campaign::plan::{AtRate, Point};
use campaign::results::{ConstantRateResult, DutResult, NodeResult};
use campaign::sequence::{ConstantRateMeasure, block_of};
use method::stats::Summary;
use units::Qps;

use crate::chart::{Dot, Figure, Multiple, Series, Shape, curves};
use crate::csv::row::Row;
use crate::format::{almost, number};
use crate::places::on_cores;
use crate::run::{Run, each_dut, legend, ranked};
use crate::section::Section;
use crate::sections::sustained::{self, cprdp_cell, each_place, rows, second_by_second};
use crate::table::Table;

impl Section for ConstantRateMeasure {
    fn title(&self) -> &'static str {
        "Constant rates: efficiency, transients and memory"
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
            rows(&at.found, &Point::ConstantRate(point))
        };
        run.results
            .duts
            .iter()
            .flat_map(|dut| dut.constant_rates.iter().flat_map(move |at| of(dut, at)))
            .collect()
    }
}

/// Returns a table of CPU use and efficiency, with a row for each rate.
fn efficiency(dut: &DutResult) -> Table {
    let note = "CPU in cores, without the initial transient; CPRDP: valid replies/s for each core in use. Failed: the trials at \
                that rate did not pass.";
    let header = ["Cores", "Queries/s", "Trials", "Valid", "CPU", "CPRDP"];
    let mut table = Table::new(&format!("At constant rates: {}", dut.name), note, &header);
    for at in &dut.constant_rates {
        let found = &at.found;
        table.rows.push(vec![
            crate::places::column(&at.place, found.place.as_ref(), found.missing.as_ref()),
            number(at.rate.0 as f64),
            found.state(),
            found.valid.map_or("–".into(), almost),
            found.cell(found.cpu.as_ref().map(|cpu| format!("{:.2}", cpu.median))),
            cprdp_cell(found),
        ]);
    }
    table
}

/// A statistic over trials: its name, and the function that reads it from a summary.
type Statistic = (&'static str, fn(&Summary) -> f64);
const STATISTICS: [Statistic; 3] =
    [("median", |s| s.median), ("minimum", |s| s.min), ("maximum", |s| s.max)];

/// Returns a table of page allocations by NUMA node. Each CPU placement has three rows, as in the paper by Lencse and
/// Kadobayashi (2018): median, minimum, maximum.
fn memory(dut: &DutResult, rate: Qps) -> Option<Table> {
    let all: Vec<&ConstantRateResult> =
        dut.constant_rates.iter().filter(|at| at.rate == rate).collect();
    // The columns are in the order of the paper: hits before misses, and each of these by node, followed by the sum.
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
            let cores = crate::places::column(
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

/// Returns the cores to which the DUT was confined in a trial, as text for legends.
fn cores(at: &ConstantRateResult) -> String {
    on_cores(&at.place, at.found.place.as_ref())
}

/// Returns a figure of the CPU use in each second of a trial, with a small diagram for each DUT, CPU placement and
/// rate. If the plan defines an initial transient for some of the rates, only those rates are shown.
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

/// Returns a figure of efficiency by rate, with a curve for each DUT and CPU placement.
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
    // In a failed trial the DUT did not do the requested work, so there is a mark instead of a value.
    let (y, range) = value.or(failed.then_some((0.0, (0.0, 0.0))))?;
    Some(Dot { x: at.rate.0 as f64, y, range, failed, ..Dot::default() })
}

/// Returns a figure of page allocations by NUMA node in repeated trials, with a group of bars for each DUT, CPU
/// placement and rate.
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
