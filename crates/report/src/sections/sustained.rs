//! Curves, diagrams and rows that are common to load trials and trials at constant rates.

use campaign::plan::{Cores, Point};
use campaign::results::{DutResult, Latency, Sustained, by_key};
use hosts::place::CpuPlacement;
use method::stats::Summary;

use crate::chart::{Curve, Dot, Figure, Multiple, Series, Shape};
use crate::csv::row::Row;
use crate::format::number;
use crate::places::on_cores;
use crate::run::{Run, each_dut, legend};

/// Returns the table cell with the median CPRDP (computing power relative DNS64 performance). It is the number of valid
/// replies per second, divided by the number of cores in use.
pub(crate) fn cprdp_cell(found: &Sustained) -> String {
    found.cell(found.cprdp.as_ref().map(|cprdp| number(cprdp.median)))
}

/// Returns all rows of a measurement point for `results.csv`.
pub(crate) fn rows(found: &Sustained, point: &Point) -> Vec<Row> {
    let mark = if found.is_sound() { String::new() } else { found.state() };
    let of = |quantity: &str, unit, summary: Option<&Summary>| Row {
        ran_on: found.place.clone(),
        mark: mark.clone(),
        ..Row::from_summary(point.clone(), quantity, unit, summary)
    };
    let one = |quantity: &str, unit, value: Option<f64>| Row {
        ran_on: found.place.clone(),
        mark: mark.clone(),
        ..Row::from_value(point.clone(), quantity, unit, found.trials, value)
    };
    let latency = |get: fn(&Latency) -> f64| found.rtt_us.as_ref().map(get);
    let mut rows = vec![
        one("valid", "share", found.valid),
        of("cpu", "cores", found.cpu.as_ref()),
        of("cprdp", "replies/s per core", found.cprdp.as_ref()),
        one("rtt_p50", "us", latency(|rtt| rtt.p50)),
        one("rtt_p99", "us", latency(|rtt| rtt.p99)),
        one("rtt_p999", "us", latency(|rtt| rtt.p999)),
        one("auth_p999", "us", found.auth_p999_us),
    ];
    rows.push(one("trials", "trials", Some(found.trials as f64)));
    rows.push(one("spoiled", "trials", Some(found.invalid as f64)));
    let second =
        |(i, &cpu): (usize, &f64)| one(&format!("cpu_second_{}", i + 1), "cores", Some(cpu));
    rows.extend(found.cpu_by_second.iter().enumerate().map(second));
    for node in &found.numa {
        let name = node.node.map_or("all".to_owned(), |node| format!("node{node}"));
        rows.push(of(&format!("numa_hit_{name}"), "pages", Some(&node.hit)));
        rows.push(of(&format!("numa_miss_{name}"), "pages", Some(&node.miss)));
    }
    rows
}

/// Returns a curve for each DUT and CPU placement. The points of a curve are sorted from left to right. `dot` creates a
/// point from its trials.
pub(super) fn each_place<T>(
    runs: &[Run],
    all: fn(&DutResult) -> &[T],
    of: fn(&T) -> (&Cores, &Sustained),
    dot: impl Fn(&T) -> Option<Dot>,
) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (run, dut) in each_dut(runs) {
        for (place, here) in by_key(all(dut), |at| of(at).0) {
            let mut dots: Vec<Dot> = here.iter().copied().filter_map(&dot).collect();
            dots.sort_by(|a, b| a.x.total_cmp(&b.x));
            let seen =
                CpuPlacement::merge_all(here.iter().filter_map(|at| of(at).1.place.as_ref()));
            let (of, what) =
                (legend(run, &dut.name, runs.len() > 1), on_cores(place, seen.as_ref()));
            curves.extend((!dots.is_empty()).then_some(Curve { of, what, dots }));
        }
    }
    curves
}

/// Returns a diagram of the CPU use in each second of a trial. `transient` is the duration of the trial's initial
/// transient in seconds, or `None` if there is none. A vertical line shows the end of the transient.
pub(super) fn second_by_second(
    name: String,
    found: &Sustained,
    transient: Option<f64>,
) -> Multiple {
    let dot = |(i, &y): (usize, &f64)| Dot::at((i + 1) as f64, y);
    let dots = found.cpu_by_second.iter().enumerate().map(dot).collect();
    let series = vec![Series { name: String::new(), dots }];
    Multiple { name, series, mark: transient.map(|transient| transient + 0.5) }
}

/// Returns a figure with diagrams of the CPU use by second (see [`second_by_second`]) side by side, or `None` if there
/// are no diagrams.
pub(super) fn transients(file: &str, title: &str, panels: Vec<Multiple>) -> Option<Figure> {
    (!panels.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: "seconds; left of the dashed line: the transient, excluded from CPU figures"
            .into(),
        y_label: "cores in use; each diagram has its own axis".into(),
        shape: Shape::Grid { panels, shared: false },
    })
}
