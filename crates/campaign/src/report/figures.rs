//! From results to figures: which there are, and what is in them.

use method::pacing::Windows;

use super::chart::{Dot, Figure, Panel, Row, Series, Shape, number};
use super::{Run, percent};
use crate::point::Conditions;
use crate::results::{DutResult, LoadResult, PacedTrial, PointResult};

/// All figures that the runs have data for.
pub(super) fn figures(runs: &[Run]) -> Vec<Figure> {
    let mut all = Vec::new();
    all.extend(worst_case(runs));
    all.extend(curve(runs, "scale-up", "Scale-up: worst case over cores", "cores", Cores::All, |c| {
        c.is_worst_case().then_some(c.cores as f64)
    }));
    all.extend(curve(
        runs,
        "aaaa",
        "Worst case with a share of names that have AAAA records",
        "AAAA share α, %",
        Cores::First,
        |c| (c.cached.per_hundred() == 0 && c.accept >= 1.0).then(|| f64::from(c.aaaa.per_hundred())),
    ));
    all.extend(curve(
        runs,
        "cached",
        "Worst case with a share of cached names",
        "cached share β, %",
        Cores::First,
        |c| (c.aaaa.per_hundred() == 0 && c.accept >= 1.0).then(|| f64::from(c.cached.per_hundred())),
    ));
    all.extend(curve(
        runs,
        "acceptance",
        "Worst case by acceptance ratio (not RFC 8219 compliant below 1)",
        "accepted, %",
        Cores::First,
        |c| (c.aaaa.per_hundred() == 0 && c.cached.per_hundred() == 0).then_some(c.accept * 100.0),
    ));
    let highest = highest_cell(runs);
    for (run, dut) in each_dut(runs) {
        all.extend(heat(run, dut, runs.len() > 1, highest));
    }
    all.extend(load_bars(
        runs,
        "cprdp",
        "Valid replies per second for each core in use (CPRDP)",
        "replies/s per core",
        |load| {
            let cprdp = load.cprdp.as_ref()?;
            Some((cprdp.median, (cprdp.min, cprdp.max)))
        },
    ));
    all.extend(load_bars(runs, "cpu", "CPU use of the DUT", "cores in use", |load| {
        load.cpu.as_ref().map(|cpu| (cpu.median, (cpu.min, cpu.max)))
    }));
    all.extend(transient(runs));
    for (file, title, i) in [("latency-p50", "Median", 0), ("latency-p99", "99th percentile", 1)] {
        let title = format!("{title} of the round-trip time against load");
        all.extend(latency(runs, file, &title, i));
    }
    all.extend(pacing(runs));
    all
}

fn each_dut(runs: &[Run]) -> impl Iterator<Item = (&Run, &DutResult)> {
    runs.iter().flat_map(|run| run.results.duts.iter().map(move |dut| (run, dut)))
}

/// The name of a DUT in a legend: with its run where there are several.
fn legend(run: &Run, dut: &str, many: bool) -> String {
    if many { format!("{dut} ({})", run.name) } else { dut.into() }
}

/// A point of a diagram; none for what was not measured.
fn dot(x: f64, point: &PointResult) -> Option<Dot> {
    let f = &point.figures;
    let y = f.median?;
    let range = (f.interval.from.unwrap_or(0.0), f.interval.to.unwrap_or(y).max(y));
    Some(Dot { x, y, range, at_least: !point.lower_bound_reasons.is_empty(), failed: false })
}

fn worst_case(runs: &[Run]) -> Option<Figure> {
    let mut groups: Vec<String> = Vec::new();
    let mut series: Vec<Series> = runs.iter().map(|run| Series { name: run.name.clone(), dots: Vec::new() }).collect();
    for (r, run) in runs.iter().enumerate() {
        for dut in &run.results.duts {
            let Some(point) = worst_point(run, dut) else { continue };
            let group = groups.iter().position(|g| *g == dut.name).unwrap_or_else(|| {
                groups.push(dut.name.clone());
                groups.len() - 1
            });
            series[r].dots.extend(dot(group as f64, point));
        }
    }
    (!groups.is_empty()).then(|| Figure {
        file: "worst-case".into(),
        title: "Worst case: 0 % AAAA, 0 % cached".into(),
        x_label: "DUT".into(),
        y_label: "queries/s".into(),
        shape: Shape::Bars { groups, series },
    })
}

fn worst_point<'a>(run: &Run, dut: &'a DutResult) -> Option<&'a PointResult> {
    let cores = run.results.plan.cores()[0];
    dut.points.iter().find(|p| p.conditions.is_worst_case() && p.conditions.cores == cores)
}

/// Of which points a curve is.
#[derive(Clone, Copy, PartialEq)]
enum Cores {
    /// Those on the plan's first number of cores.
    First,
    /// Those on every number of cores.
    All,
}

/// A curve for each DUT over what `x` makes of the conditions; none where no DUT has two points.
fn curve(
    runs: &[Run],
    file: &str,
    title: &str,
    x_label: &str,
    cores: Cores,
    x: impl Fn(&Conditions) -> Option<f64>,
) -> Option<Figure> {
    let mut series = Vec::new();
    for (run, dut) in each_dut(runs) {
        let first = run.results.plan.cores()[0];
        let mut dots: Vec<Dot> = dut
            .points
            .iter()
            .filter(|p| p.conditions.placement.is_none())
            // Only what had its cores stands over a number of cores.
            .filter(|p| if cores == Cores::All { p.has_its_cores() } else { p.conditions.cores == first })
            .filter_map(|p| dot(x(&p.conditions)?, p))
            .collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        if dots.len() > 1 {
            series.push(Series { name: legend(run, &dut.name, runs.len() > 1), dots });
        }
    }
    (!series.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: x_label.into(),
        y_label: "queries/s".into(),
        shape: Shape::Lines(series),
    })
}

/// The largest value of all heat maps, by which all are shaded.
fn highest_cell(runs: &[Run]) -> f64 {
    let of = |(run, dut): (&Run, &DutResult)| {
        let (aaaa, cached) = axes(run);
        let cells = aaaa.iter().flat_map(|&a| cached.iter().map(move |&b| (a, b)));
        cells.filter_map(|(a, b)| cell(run, dut, a, b)?.figures.median).fold(0.0, f64::max)
    };
    each_dut(runs).map(of).fold(0.0, f64::max)
}

fn heat(run: &Run, dut: &DutResult, many: bool, highest: f64) -> Option<Figure> {
    let (aaaa, cached) = axes(run);
    let rows: Vec<Row> = aaaa
        .iter()
        .map(|&a| {
            let value = |b: &u8| {
                let point = cell(run, dut, a, *b)?;
                Some((point.figures.median?, !point.lower_bound_reasons.is_empty()))
            };
            (percent(a), cached.iter().map(value).collect())
        })
        .collect();
    let filled = rows.iter().flat_map(|(_, values)| values).flatten().count();
    (run.results.plan.measure.table && filled > 0).then(|| Figure {
        file: format!(
            "table-{}",
            legend(run, &dut.name, many).to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
        ),
        title: format!("{}: queries/s by AAAA share and cached share", legend(run, &dut.name, many)),
        x_label: "cached share β".into(),
        y_label: "AAAA share α".into(),
        shape: Shape::Heat { columns: cached.iter().map(|&b| percent(b)).collect(), rows, highest },
    })
}

/// The shares of the α×β table, 0 included.
pub(super) fn axes(run: &Run) -> (Vec<u8>, Vec<u8>) {
    let m = &run.results.plan.measure;
    let with_zero = |shares: &[method::units::Share]| {
        let mut all: Vec<u8> = std::iter::once(0).chain(shares.iter().map(|s| s.per_hundred())).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    (with_zero(&m.aaaa_shares), with_zero(&m.cached_shares))
}

/// The point at an AAAA share and a cached share, if it was measured.
pub(super) fn cell<'a>(run: &Run, dut: &'a DutResult, aaaa: u8, cached: u8) -> Option<&'a PointResult> {
    let cores = run.results.plan.cores()[0];
    dut.points.iter().find(|p| {
        let c = &p.conditions;
        c.placement.is_none()
            && c.cores == cores
            && c.accept >= 1.0
            && c.aaaa.per_hundred() == aaaa
            && c.cached.per_hundred() == cached
    })
}

/// A series for each DUT with what `dot` makes of its loads.
fn over_loads(runs: &[Run], dot: impl Fn(&LoadResult) -> Option<Dot>) -> Vec<Series> {
    let of = |(run, dut): (&Run, &DutResult)| {
        let dots: Vec<Dot> = dut.loads.iter().filter_map(&dot).collect();
        (!dots.is_empty()).then(|| Series { name: legend(run, &dut.name, runs.len() > 1), dots })
    };
    each_dut(runs).filter_map(of).collect()
}

type Value = (f64, (f64, f64));

fn load_bars(
    runs: &[Run],
    file: &str,
    title: &str,
    y_label: &str,
    value: fn(&LoadResult) -> Option<Value>,
) -> Option<Figure> {
    let mut shares: Vec<u8> = each_dut(runs).flat_map(|(_, d)| d.loads.iter().map(|l| l.share.per_hundred())).collect();
    shares.sort_unstable();
    shares.dedup();
    let series = over_loads(runs, |load| {
        let (y, range) = value(load)?;
        let x = shares.iter().position(|&s| s == load.share.per_hundred())?;
        Some(Dot { x: x as f64, y, range, at_least: false, failed: !load.is_sound() })
    });
    (!series.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: "share of the DUT's worst-case maximum".into(),
        y_label: y_label.into(),
        shape: Shape::Bars { groups: shares.iter().map(|&s| percent(s)).collect(), series },
    })
}

/// CPU use second by second of the lowest load of each DUT.
fn transient(runs: &[Run]) -> Option<Figure> {
    let mut series = Vec::new();
    for (run, dut) in each_dut(runs) {
        let Some(load) = dut.loads.iter().find(|load| load.cpu_by_second.len() > 1) else { continue };
        let dots = load.cpu_by_second.iter().enumerate();
        let dots = dots.map(|(i, &y)| Dot::at((i + 1) as f64, y)).collect();
        let name = format!("{} at {}", legend(run, &dut.name, runs.len() > 1), percent(load.share.per_hundred()));
        series.push(Series { name, dots });
    }
    (!series.is_empty()).then(|| Figure {
        file: "cpu-transient".into(),
        title: "CPU use of the DUT from the start of a trial on".into(),
        x_label: "seconds".into(),
        y_label: "cores in use".into(),
        shape: Shape::Lines(series),
    })
}

fn latency(runs: &[Run], file: &str, title: &str, which: usize) -> Option<Figure> {
    let series = over_loads(runs, |load| {
        // In a trial that failed, those that came are not those that were asked: it has a mark and no value.
        let failed = load.passed.is_some() && !load.is_sound();
        let y = if failed { 0.0 } else { load.rtt_us?[which] / 1000.0 };
        Some(Dot { failed, ..Dot::at(f64::from(load.share.per_hundred()), y) })
    });
    (!series.is_empty()).then(|| Figure {
        file: file.into(),
        title: title.into(),
        x_label: "load, % of the DUT's worst-case maximum".into(),
        y_label: "ms".into(),
        shape: Shape::Lines(series),
    })
}

/// How the tester kept time: the windows of 100 ms and of 10 ms of one trial of each DUT, as G. Lencse and A. Pivoda draw them in
/// "Checking and Increasing the Accuracy of the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018,
/// DOI 10.11601/ijates.v7i1.255), here in per cent of what was due.
fn pacing(runs: &[Run]) -> Vec<Figure> {
    let paced: Vec<(String, &PacedTrial)> = each_dut(runs)
        .filter_map(|(run, dut)| Some((legend(run, &dut.name, runs.len() > 1), dut.paced.as_ref()?)))
        .collect();
    if paced.is_empty() {
        return Vec::new();
    }
    let windows: [(f64, &str, Band); 2] =
        [(0.1, "100", |w| (&w.least_100ms, &w.most_100ms)), (0.01, "10", |w| (&w.least_10ms, &w.most_10ms))];
    let figure = |(seconds, ms, band): (f64, &str, Band)| Figure {
        file: format!("pacing-{ms}ms"),
        title: format!("How the tester kept time: queries sent in windows of {ms} ms against what was due"),
        x_label: "time in the trial, s; the trial at the highest rate that passed".into(),
        y_label: "% off".into(),
        shape: Shape::Panels {
            panels: paced.iter().map(|(name, trial)| paced_panel(name, trial, seconds, band(&trial.windows))).collect(),
            shared: true,
        },
    };
    windows.into_iter().map(figure).collect()
}

/// The least and the most of the windows of one length.
type Band = fn(&Windows) -> (&Vec<i32>, &Vec<i32>);

fn paced_panel(name: &str, trial: &PacedTrial, window_s: f64, (least, most): (&Vec<i32>, &Vec<i32>)) -> Panel {
    let due = (trial.rate.0 as f64 * window_s).max(1.0);
    let percent = |off: i32| f64::from(off) / due * 100.0;
    let stretch_s = trial.windows.stretch_ms as f64 / 1000.0;
    let dots = least.iter().zip(most).enumerate().map(|(i, (&least, &most))| {
        let (least, most) = (percent(least), percent(most));
        // What was further off.
        let y = if least.abs() > most.abs() { least } else { most };
        Dot { range: (least, most), ..Dot::at((i as f64 + 0.5) * stretch_s, y) }
    });
    let name = format!("{name} at {} queries/s", number(trial.rate.0 as f64));
    Panel { series: Series { name, dots: dots.collect() }, wanted: 0.0 }
}

#[cfg(test)]
mod tests {
    use method::units::Qps;

    use super::*;

    #[test]
    fn a_stall_of_the_tester_stands_out_in_its_window() {
        let windows = Windows {
            stretch_ms: 200,
            least_100ms: vec![0, -20, 0],
            most_100ms: vec![0, 20, 0],
            least_10ms: vec![-1, -50, 0],
            most_10ms: vec![0, 49, 1],
        };
        let trial = PacedTrial { rate: Qps(10_000), windows };
        let panel = paced_panel("dns64d", &trial, 0.01, (&trial.windows.least_10ms, &trial.windows.most_10ms));
        assert_eq!(panel.series.name, "dns64d at 10\u{202f}000 queries/s");
        let dots = &panel.series.dots;
        assert_eq!((dots[1].range, dots[1].y), ((-50.0, 49.0), -50.0));
        assert!((dots[1].x - 0.3).abs() < 1e-9 && dots.len() == 3);
        let coarse = paced_panel("dns64d", &trial, 0.1, (&trial.windows.least_100ms, &trial.windows.most_100ms));
        assert_eq!(coarse.series.dots[1].range, (-2.0, 2.0));
    }
}
