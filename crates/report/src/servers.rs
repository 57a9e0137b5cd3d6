//! Comparison of all servers in one table: the rate in the worst case, the factor by which the fastest server is
//! faster, and latency and CPU use at about half load.

use crate::places::PointWords;
use campaign::results::{DutResult, LoadResult, PointResult};

use crate::run::{Run, has_failed_self_test, ranked, worst_point};
use crate::sections::search::found_in_words;
use crate::summary::are_comparable;
use crate::table::Table;
use crate::wording;

/// Title of the table, from which the table's label in LaTeX is derived.
const TITLE: &str = "Comparison of the servers";
/// Preferred load for the columns with latency and CPU use, in per cent of the median rate.
const HALF: u8 = 50;

/// Returns a table with a row for each server that has searches, fastest first. Returns `None` if
/// no server has searches.
pub(crate) fn table(runs: &[Run]) -> Option<Table> {
    let columns = Columns {
        run: runs.len() > 1,
        cores: common_cores(runs).map_or(Cores::Differ, Cores::Same),
        ratio: runs.iter().any(|run| !has_failed_self_test(&run.results)),
        load: load(runs),
    };
    let mut table = Table::new(TITLE, &columns.note(), &[]);
    table.header = columns.header();
    for run in runs {
        let all: Vec<(&DutResult, &PointResult)> = ranked(&run.results)
            .into_iter()
            .filter_map(|dut| Some((dut, worst_point(dut)?)))
            .collect();
        let best = all.first().map(|(_, point)| *point);
        let row = |(dut, point): &(&DutResult, &PointResult)| columns.row(run, dut, point, best);
        table.rows.extend(all.iter().map(row));
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Cores on which the servers in the table ran.
enum Cores {
    /// All servers ran on the same cores. The note above the table states these cores.
    Same(String),
    /// The servers ran on different cores. A column of the table shows the cores.
    Differ,
}

/// Returns the cores on which all servers ran, or `None` if the servers ran on different cores.
fn common_cores(runs: &[Run]) -> Option<String> {
    let points = runs.iter().flat_map(|run| &run.results.duts).filter_map(worst_point);
    let cores: Vec<String> = points.map(PointResult::on_cores).collect();
    let first = cores.first()?;
    cores.iter().all(|other| other == first).then(|| first.clone())
}

/// Optional columns of the table. A column is present if the runs have values for it.
struct Columns {
    run: bool,
    cores: Cores,
    ratio: bool,
    /// Load at which latency and CPU use are shown, in per cent of the median rate.
    load: Option<u8>,
}

impl Columns {
    fn header(&self) -> Vec<String> {
        let mut header = vec!["Server".to_owned()];
        header.extend(self.run.then(|| "Run".to_owned()));
        header.extend(matches!(self.cores, Cores::Differ).then(|| "Cores".to_owned()));
        header.extend(["Median in [passed, failed)", "n"].map(str::to_owned));
        header.extend(self.ratio.then(|| "Fastest ÷ this".to_owned()));
        if let Some(load) = self.load {
            header.push(format!("p99 at {load} %, ms"));
            header.push("CPU per answer, µs".into());
        }
        header
    }

    fn note(&self) -> String {
        let on = match &self.cores {
            Cores::Same(cores) => format!(" on {cores}"),
            Cores::Differ => String::new(),
        };
        let mut note = format!(
            "Queries/s in the worst case (0 % AAAA, 0 % cached){on}. n: number of searches."
        );
        if self.ratio {
            note += " Fastest ÷ this: interval of the ratio to the fastest server of the run.";
        }
        if let Some(load) = self.load {
            note += &format!(
                " p99: 99th percentile of the round-trip time at {load} % of the server's median; CPU per answer: CPU time of \
                 the server per valid reply there."
            );
        }
        note
    }

    fn row(
        &self,
        run: &Run,
        dut: &DutResult,
        point: &PointResult,
        best: Option<&PointResult>,
    ) -> Vec<String> {
        let mut row = vec![dut.name.clone()];
        row.extend(self.run.then(|| run.name.clone()));
        let repeat = run.results.plan.search.repeat;
        row.extend(matches!(self.cores, Cores::Differ).then(|| point.on_cores()));
        row.extend([found_in_words(point), searches(point.figures.n, repeat as usize)]);
        row.extend(self.ratio.then(|| ratio(run, point, best)));
        if let Some(load) = self.load {
            row.extend(at_load(dut, load).map_or(["–".into(), "–".into()], cost));
        }
        row
    }
}

/// Returns the number of searches: `20`, or `3 of 20` if some have no result.
fn searches(n: usize, of: usize) -> String {
    if n == of { n.to_string() } else { format!("{n} of {of}") }
}

/// Returns the factor, as an interval, by which the fastest server is faster than this server.
fn ratio(run: &Run, point: &PointResult, best: Option<&PointResult>) -> String {
    let Some(best) =
        best.filter(|_| point.missing.is_none() && !has_failed_self_test(&run.results))
    else {
        return "–".into();
    };
    if std::ptr::eq(best, point) {
        return "1".into();
    }
    if !are_comparable(&run.results, best, point) {
        return "not comparable".into();
    }
    let ratio = best.figures.interval.ratio_to(&point.figures.interval);
    wording::ratio(&ratio).unwrap_or_else(|| "undecided".into())
}

/// Returns the load, in per cent, that is nearest to [`HALF`]. Only loads at the first CPU placement of each server are
/// considered, and full load is excluded.
fn load(runs: &[Run]) -> Option<u8> {
    let duts = runs.iter().flat_map(|run| &run.results.duts);
    let loads = duts.flat_map(|dut| {
        let place = worst_point(dut).map(|point| &point.conditions.place);
        dut.loads.iter().filter(move |load| Some(&load.place) == place)
    });
    let shares = loads.map(|load| load.share.per_hundred()).filter(|&share| share < 100);
    shares.min_by_key(|&share| share.abs_diff(HALF))
}

/// Returns the result of a server at the given load and at the server's first CPU placement.
fn at_load(dut: &DutResult, share: u8) -> Option<&LoadResult> {
    let place = &worst_point(dut)?.conditions.place;
    dut.loads.iter().find(|load| load.share.per_hundred() == share && load.place == *place)
}

/// Returns the cells for latency and for CPU time per valid reply.
fn cost(load: &LoadResult) -> [String; 2] {
    let found = &load.found;
    let p99 = found.rtt_us.map(|rtt| format!("{:.2}", rtt.p99 / 1e3));
    let cpu = found.cprdp.as_ref().filter(|cprdp| cprdp.median > 0.0);
    let each = cpu.map(|cprdp| format!("{:.1}", 1e6 / cprdp.median));
    [found.cell(p99), found.cell(each)]
}
