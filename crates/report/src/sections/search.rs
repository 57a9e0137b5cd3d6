//! Tables and figures of searches.

use crate::places::PointWords;
pub(crate) mod rows;

use campaign::plan::{Conditions, Cores, SearchMethod};
use campaign::results::{DutResult, PointResult};
use campaign::sequence::SearchMeasure;
use hosts::place::CpuPlacement;
use method::precision::Figures;
use method::search::{Found, Shortfall};
use units::{Qps, Share};

use crate::chart::{Curve, Dot, Figure, HeatMap, HeatRow, Series, Shape, along, curves};
use crate::csv::row::Row;
use crate::format::{number, percent};
use crate::run::{Run, each_dut, legend, ranked, with_proof, worst_point};
use crate::section::Section;
use crate::sections::search::rows::rows;
use crate::table::Table;
use crate::wording;

/// Returns the table cell for the result of a measurement point.
pub(crate) fn found_in_words(point: &PointResult) -> String {
    match &point.missing {
        Some(why) => why.to_string(),
        None => wording::found(&point.figures),
    }
}

fn tables(run: &Run) -> Vec<Table> {
    let mut all = vec![worst_case(run)];
    all.extend(goals(run));
    all.extend(by_server(run));
    for dut in ranked(&run.results) {
        all.extend(by_cores(run, dut));
        all.extend(by_placement(run, dut));
        for place in share_places(run, dut) {
            let which = |c: &Conditions| c.place == place && c.accept >= 1.0;
            let aaaa: Vec<&PointResult> = points(dut, |c| which(c) && c.cached == Share::ZERO);
            let cached: Vec<&PointResult> = points(dut, |c| which(c) && c.aaaa == Share::ZERO);
            let note = working_sets(run, &cached);
            all.extend(sweep(run, dut, &place, ("AAAA record rate", ""), aaaa, |c| c.aaaa));
            all.extend(sweep(run, dut, &place, ("cache hit rate", &note), cached, |c| c.cached));
            all.extend(both_shares(run, dut, &place));
        }
    }
    all
}

fn points(dut: &DutResult, is_meant: impl Fn(&Conditions) -> bool) -> Vec<&PointResult> {
    dut.points.iter().filter(|p| is_meant(&p.conditions)).collect()
}

/// Returns the CPU placements at which a DUT was measured with several AAAA record rates or cache hit rates.
fn share_places(run: &Run, dut: &DutResult) -> Vec<Cores> {
    let plan = &run.results.plan;
    plan.dut(&dut.name).map(|dut| plan.keys_of(dut).share_places()).unwrap_or_default()
}

/// Returns the lowest rate that failed in any search at the measurement point, and the number of queries without a
/// valid reply at this rate.
fn failed_by(point: &PointResult) -> String {
    Shortfall::lowest(&point.failed_by).map_or("–".into(), |s| {
        let [rate, missing, of] = [s.rate.0, s.missing, s.of].map(|n| number(n as f64));
        format!("{rate} ({missing} of {of})")
    })
}

/// Returns the results of MLRsearches for each goal. The goal of RFC 8219 is first. Returns `None`
/// for bisections.
fn goals(run: &Run) -> Option<Table> {
    let note = "Queries/s, from the smallest lower bound of the searches to the largest upper one. Replies/s: \
                valid replies/s at the lower bound, in the search with the fewest. The other tables show the goal of \
                RFC 8219.";
    let header =
        ["DUT", "Cores", "AAAA", "Cached", "Goal", "Median in [lower, upper)", "Replies/s"];
    let title = "Several goals in the same searches (MLRsearch, RFC 9971)";
    let mut table = Table::new(title, note, &header);
    for dut in ranked(&run.results) {
        for point in &dut.points {
            let c = &point.conditions;
            for (at, found) in point.goals.iter().enumerate() {
                let label = match (at, c.accept >= 1.0) {
                    (0, true) => "RFC 8219: ",
                    (0, false) => "RFC 8219 except for the loss: ",
                    _ => "RFC 9971: ",
                };
                let overstated = match found.overstatement > 1.0 {
                    true => format!(", overstated by up to {:.3}", found.overstatement),
                    false => String::new(),
                };
                table.rows.push(vec![
                    dut.name.clone(),
                    ran_on(point),
                    percent(c.aaaa.per_hundred()),
                    percent(c.cached.per_hundred()),
                    format!("{label}{}", wording::goal_terms(found)),
                    format!("{}{overstated}", wording::goal_found(found)),
                    wording::conditional_throughput(found).unwrap_or_else(|| "–".into()),
                ]);
            }
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn worst_case(run: &Run) -> Table {
    let by_mlrsearch =
        "Rates were chosen by MLRsearch (RFC 9971); the results are for its goal of RFC 8219. ";
    let chosen = match run.results.plan.search.method {
        SearchMethod::Mlrsearch => by_mlrsearch,
        SearchMethod::Bisection => "",
    };
    let note = "Queries/s. Every name is new and has no AAAA record: each AAAA query causes 2 upstream queries to AuthDNS. [passed, failed): \
                from the smallest rate that passed to the largest that failed. p1 and p99 need 20 searches, dispersion needs 2. \
                ≥: a proven lower end without an upper one.";
    let header = [
        "DUT",
        "Cores",
        "Median in [passed, failed)",
        "Searches",
        "p1",
        "p99",
        "Dispersion",
        "Lowest failed rate (missing)",
        "Upstream queries",
    ];
    let title = "Worst case: 0 % AAAA, 0 % cached";
    let mut table = Table::new(title, &format!("{chosen}{note}"), &header);
    for (name, p) in by_result(run) {
        let f = &p.figures;
        let rate = |rate: Option<f64>| rate.map_or("–".into(), number);
        let asked =
            p.real.as_ref().map(|real| format!("{:.2} per query", real.questions_per_query));
        table.rows.push(vec![
            name.into(),
            ran_on(p),
            found_in_words(p),
            format!("{} of {}", f.n, run.results.plan.search.repeat),
            rate(f.p1),
            rate(f.p99),
            f.dispersion_pct.map_or("–".into(), |d| format!("{d:.2} %")),
            failed_by(p),
            asked.unwrap_or_else(|| "0 % cached unproven".into()),
        ]);
    }
    table
}

/// Returns the worst-case results of every DUT and CPU placement. The highest median is first, and placements without a
/// result are last.
fn by_result(run: &Run) -> Vec<(&str, &PointResult)> {
    let of =
        |dut| points(dut, Conditions::is_worst_case).into_iter().map(|p| (dut.name.as_str(), p));
    let mut all: Vec<(&str, &PointResult)> = run.results.duts.iter().flat_map(of).collect();
    all.sort_by(|a, b| a.1.by_result(b.1));
    all
}

/// Describes the CPU cores of measurement points that have the same CPU placement, for legends and captions.
fn cores_of<'a>(place: &Cores, points: impl Iterator<Item = &'a PointResult>) -> String {
    let seen = CpuPlacement::merge_all(points.filter_map(|p| p.place.as_ref()));
    crate::places::on_cores(place, seen.as_ref())
}

/// Returns the CPU placement of a DUT for a row. If the placement or AuthDNS has a name, the text includes that name.
fn ran_on(p: &PointResult) -> String {
    let place = &p.conditions.place;
    let placement =
        place.placement.as_ref().map_or(String::new(), |placement| format!(" ({placement})"));
    let authdns =
        place.authdns.as_ref().map_or(String::new(), |authdns| format!(", AuthDNS: {authdns}"));
    format!("{}{placement}{authdns}", p.ran_on())
}

/// Returns a table in the form used in the papers, with rows of statistics and a column for each measurement point.
fn statistics(
    run: &Run,
    title: &str,
    note: &str,
    corner: &str,
    columns: &[(String, &PointResult)],
) -> Option<Table> {
    if columns.is_empty() {
        return None;
    }
    let mut table = Table::new(title, &with_proof(run, note), &[corner]);
    table.rows = wording::STATISTICS.map(|name| vec![name.to_owned()]).into();
    for (name, point) in columns {
        table.header.push(name.clone());
        let cells = cells(point);
        table.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
    Some(table)
}

/// Returns the table cells of a measurement point, one for each row in [`wording::STATISTICS`].
fn cells(point: &PointResult) -> [String; wording::STATISTICS.len()] {
    match &point.missing {
        Some(why) => std::array::from_fn(|_| why.to_string()),
        None => wording::statistics(&point.figures),
    }
}

/// Returns the acceptance criterion as the end of a title; empty for the criterion of RFC 8219. Papers about DNS64
/// benchmarks mark other criteria as not compliant with RFC 8219, and the title does the same.
fn criterion_suffix(accept: f64) -> String {
    if accept >= 1.0 {
        return String::new();
    }
    format!(", acceptance criterion: {} %, not RFC 8219 compliant", number(accept * 100.0))
}

/// Returns the acceptance ratios of a DUT's measurement points, the strictest first.
fn ratios(dut: &DutResult) -> Vec<f64> {
    let mut ratios: Vec<f64> = dut.points.iter().map(|p| p.conditions.accept).collect();
    ratios.sort_by(|a, b| b.total_cmp(a));
    ratios.dedup();
    ratios
}

fn is_plain(c: &Conditions, accept: f64) -> bool {
    (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO) && c.accept == accept
}

/// Returns a DUT's worst-case measurement points for an acceptance ratio. Points with a named CPU placement are
/// excluded.
fn at_cores(dut: &DutResult, accept: f64) -> Vec<&PointResult> {
    points(dut, |c| is_plain(c, accept) && c.place.placement.is_none())
}

/// Returns tables that compare servers by performance, one table for each acceptance ratio. A table contains each
/// server that has exactly one worst-case measurement point at the acceptance ratio. Points for which the plan names a
/// placement of the CPU cores do not count. Servers that were measured with several numbers of cores are in the tables of [`by_cores`] instead.
fn by_server(run: &Run) -> Vec<Table> {
    let duts = ranked(&run.results);
    let mut all: Vec<f64> = duts.iter().flat_map(|dut| ratios(dut)).collect();
    all.sort_by(|a, b| b.total_cmp(a));
    all.dedup();
    let table = |accept: f64| {
        let columns: Vec<_> = duts
            .iter()
            .filter_map(|dut| match at_cores(dut, accept)[..] {
                [point] => Some((format!("{}, {}", dut.name, point.on_cores()), point)),
                _ => None,
            })
            .collect();
        let title = format!("DNS64 performance by server{}", criterion_suffix(accept));
        statistics(run, &title, "Worst case: 0 % AAAA, 0 % cached.", "Server", &columns)
    };
    all.into_iter().filter_map(table).collect()
}

/// Returns tables of a DUT's performance by number of cores, one for each acceptance ratio. A DUT that was measured
/// with only one number of cores is in the tables of [`by_server`] instead.
fn by_cores(run: &Run, dut: &DutResult) -> Vec<Table> {
    let table = |accept: f64| {
        let all = at_cores(dut, accept);
        if all.len() < 2 {
            return None;
        }
        let columns: Vec<_> = all.into_iter().map(|p| (p.column(), p)).collect();
        let title = format!(
            "DNS64 performance by the number of CPU cores and threads: {}{}",
            dut.name,
            criterion_suffix(accept)
        );
        statistics(run, &title, "Worst case: 0 % AAAA, 0 % cached.", "CPU cores", &columns)
    };
    ratios(dut).into_iter().filter_map(table).collect()
}

/// Returns tables of the performance at named CPU placements, one for each acceptance ratio.
fn by_placement(run: &Run, dut: &DutResult) -> Vec<Table> {
    let table = |accept: f64| {
        let all = points(dut, |c| is_plain(c, accept) && c.place.placement.is_some());
        let columns: Vec<_> = all.into_iter().map(|p| (p.column(), p)).collect();
        let title = format!(
            "DNS64 performance by the placement of the cores: {}{}",
            dut.name,
            criterion_suffix(accept)
        );
        statistics(run, &title, "Worst case: 0 % AAAA, 0 % cached.", "Placement", &columns)
    };
    ratios(dut).into_iter().filter_map(table).collect()
}

/// Returns a table of the performance by AAAA record rate or by cache hit rate.
fn sweep(
    run: &Run,
    dut: &DutResult,
    place: &Cores,
    (what, note): (&str, &str),
    mut all: Vec<&PointResult>,
    share: fn(&Conditions) -> Share,
) -> Option<Table> {
    // The worst case alone is not a series.
    if all.len() < 2 {
        return None;
    }
    all.sort_by_key(|p| share(&p.conditions));
    let columns: Vec<_> =
        all.into_iter().map(|p| (percent(share(&p.conditions).per_hundred()), p)).collect();
    let cores = cores_of(place, columns.iter().map(|(_, p)| *p));
    let title = format!("DNS64 performance by {what}: {}, {cores}", dut.name);
    statistics(run, &title, note, what, &columns)
}

/// Returns a note for a table. For each measurement point, the note gives the number of different cached names that are
/// queried at the median rate.
fn working_sets(run: &Run, all: &[&PointResult]) -> String {
    let trial = &run.results.plan.trial;
    let size = |point: &&PointResult| {
        let (cached, median) = (point.conditions.cached, point.figures.median?);
        let names = trial.working_set(cached, Qps(median as u64));
        let share = percent(cached.per_hundred());
        (names > 0).then(|| format!("{share}: {}", number(names as f64)))
    };
    let sizes: Vec<String> = all.iter().filter_map(size).collect();
    if sizes.is_empty() {
        return String::new();
    }
    format!("Working set of cached names at the median rate: {}.", sizes.join(", "))
}

/// Returns the AAAA record rates (α) and the cache hit rates (β) in the α×β table of a DUT. Both
/// lists include 0.
fn axes(run: &Run, dut: &DutResult) -> (Vec<Share>, Vec<Share>) {
    let plan = &run.results.plan;
    let keys = plan.dut(&dut.name).map(|dut| plan.keys_of(dut)).unwrap_or_default();
    let with_zero = |shares: &[Share]| {
        let mut all = vec![Share::ZERO];
        all.extend(shares);
        all.sort_unstable();
        all.dedup();
        all
    };
    // If the plan sets no AAAA record rates and no cache hit rates, there is only the worst case.
    let has_shares = !(keys.aaaa_shares.is_empty() && keys.cached_shares.is_empty());
    if keys.table && has_shares {
        (with_zero(&keys.aaaa_shares), with_zero(&keys.cached_shares))
    } else {
        (Vec::new(), Vec::new())
    }
}

/// Returns the result of a DUT at the given CPU placement, AAAA record rate and cache hit rate, or `None` if this point
/// was not measured.
fn cell<'a>(
    dut: &'a DutResult,
    place: &Cores,
    aaaa: Share,
    cached: Share,
) -> Option<&'a PointResult> {
    let is_it = |p: &&PointResult| {
        let c = &p.conditions;
        c.place == *place && c.accept >= 1.0 && (c.aaaa, c.cached) == (aaaa, cached)
    };
    dut.points.iter().find(is_it)
}

/// Returns a table of medians by AAAA record rate and cache hit rate.
fn both_shares(run: &Run, dut: &DutResult, place: &Cores) -> Option<Table> {
    let (aaaa, cached) = axes(run, dut);
    let note = "Queries/s: median in [passed, failed). Rows: share of names with an AAAA record (α); columns: share of queries for cached \
                names (β).";
    let here = points(dut, |c| c.place == *place && c.accept >= 1.0);
    let title = format!(
        "{} by AAAA share and cached share, {}",
        dut.name,
        cores_of(place, here.into_iter())
    );
    let mut table = Table::new(&title, &with_proof(run, note), &["α \\ β"]);
    table.header.extend(cached.iter().map(|b| percent(b.per_hundred())));
    for &a in &aaaa {
        let mut row = vec![percent(a.per_hundred())];
        let of = |&b: &Share| cell(dut, place, a, b).map_or("–".into(), found_in_words);
        row.extend(cached.iter().map(of));
        table.rows.push(row);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns tables of the worst case of each DUT and CPU placement, with a column for each run. The tables show how the
/// results differ between test systems.
fn comparisons(runs: &[Run]) -> Vec<Table> {
    if runs.len() < 2 {
        return Vec::new();
    }
    let mut kinds: Vec<(String, Conditions)> = Vec::new();
    for (_, dut) in each_dut(runs) {
        for p in points(dut, |c| (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO)) {
            let kind = (dut.name.clone(), p.conditions.clone());
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds.iter().map(|(name, conditions)| comparison(runs, name, conditions)).collect()
}

fn point_of<'a>(run: &'a Run, name: &str, conditions: &Conditions) -> Option<&'a PointResult> {
    let dut = run.results.duts.iter().find(|dut| dut.name == name)?;
    dut.points.iter().find(|p| p.conditions == *conditions)
}

fn comparison(runs: &[Run], name: &str, conditions: &Conditions) -> Table {
    let cores =
        cores_of(&conditions.place, runs.iter().filter_map(|run| point_of(run, name, conditions)));
    let title = format!(
        "DNS64 performance of {name} on {cores}{}, by run",
        criterion_suffix(conditions.accept)
    );
    let mut table = Table::new(&title, "Worst case: 0 % AAAA, 0 % cached.", &["Run"]);
    table.rows = wording::STATISTICS.map(|name| vec![name.to_owned()]).into();
    for run in runs {
        table.header.push(run.name.clone());
        let cells = match point_of(run, name, conditions) {
            Some(point) => cells(point),
            None => std::array::from_fn(|_| "not in this run's plan".into()),
        };
        table.rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
    }
    table
}

fn figures(runs: &[Run]) -> Vec<Figure> {
    let mut all: Vec<Figure> = worst_case_bars(runs).into_iter().collect();
    let plain = |c: &Conditions| (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO);
    all.extend(curve(
        runs,
        CurveAxis::Places,
        ["scale-up", "Scale-up: worst case by cores", "cores", ""],
        |_, c| (c.is_worst_case() && c.place.placement.is_none()).then_some(c.place.cores as f64),
    ));
    let title = "Worst case with a share of names that have AAAA records";
    all.extend(curve(
        runs,
        CurveAxis::Conditions,
        ["aaaa", title, "AAAA share α", " %"],
        |shares, c| {
            let is_in = shares.contains(&c.place) && c.cached == Share::ZERO && c.accept >= 1.0;
            is_in.then(|| f64::from(c.aaaa.per_hundred()))
        },
    ));
    let title = "Worst case with a share of cached names";
    all.extend(curve(
        runs,
        CurveAxis::Conditions,
        ["cached", title, "cached share β", " %"],
        |shares, c| {
            let is_in = shares.contains(&c.place) && c.aaaa == Share::ZERO && c.accept >= 1.0;
            is_in.then(|| f64::from(c.cached.per_hundred()))
        },
    ));
    let title = "Worst case by acceptance ratio (not RFC 8219 compliant below 100 %)";
    all.extend(curve(
        runs,
        CurveAxis::Conditions,
        ["acceptance", title, "accepted", " %"],
        |shares, c| (plain(c) && shares.contains(&c.place)).then_some(c.accept * 100.0),
    ));
    all.extend(placement_bars(runs));
    all.extend(heat(runs));
    all
}

/// Returns the mark in a figure for the result of a measurement point, or `None` if there is no result. A result
/// without a median has the mark of a failure.
fn dot(x: f64, point: &PointResult) -> Option<Dot> {
    point.missing.is_none().then(|| dot_of(x, &point.figures, &point.found))
}

/// Returns the mark in a figure for the searches at a measurement point. The error bar is the interval of the searches.
pub(super) fn dot_of(x: f64, figures: &Figures, found: &[Found]) -> Dot {
    let y = figures.median.unwrap_or(0.0);
    let from = figures.interval.from.unwrap_or(0.0);
    let range = (from, figures.interval.to.unwrap_or(from).max(y));
    // A search without a passing rate has no value.
    let each = found.iter().filter_map(|search| search.highest).map(|rate| rate.0 as f64).collect();
    let (at_least, failed) = (figures.is_at_least(), figures.median.is_none());
    Dot { x, y, range, at_least, failed, each }
}

/// Returns a figure with a bar for the worst case of each DUT at its first CPU placement, fastest first.
fn worst_case_bars(runs: &[Run]) -> Option<Figure> {
    let measured = |(run, dut)| Some((run, dut, worst_point(dut).filter(|p| p.missing.is_none())?));
    let all: Vec<(&Run, &DutResult, &PointResult)> = each_dut(runs).filter_map(measured).collect();
    let same = all.windows(2).all(|two| two[0].2.on_cores() == two[1].2.on_cores());
    let cores = all
        .first()
        .filter(|_| same)
        .map_or(String::new(), |(_, _, p)| format!(", {}", p.on_cores()));
    let mut groups: Vec<String> = Vec::new();
    let mut series: Vec<Series> =
        runs.iter().map(|run| Series { name: run.name.clone(), dots: Vec::new() }).collect();
    for (run, dut, point) in all {
        let name =
            if same { dut.name.clone() } else { format!("{}, {}", dut.name, point.on_cores()) };
        let group = groups.iter().position(|g| *g == name).unwrap_or_else(|| {
            groups.push(name);
            groups.len() - 1
        });
        let of = runs.iter().position(|other| std::ptr::eq(other, run)).unwrap_or_default();
        series[of].dots.extend(dot(group as f64, point));
    }
    (!groups.is_empty()).then(|| Figure {
        file: "worst-case".into(),
        title: format!("Worst case: 0 % AAAA, 0 % cached{cores}"),
        x_label: String::new(),
        y_label: "queries/s".into(),
        shape: Shape::Bars { groups, series },
    })
}

/// Returns bars for the worst case at each named CPU placement. Beside each of these bars is the bar for the same
/// number of cores without a named placement.
fn placement_bars(runs: &[Run]) -> Option<Figure> {
    let mut groups: Vec<String> = Vec::new();
    let mut series: Vec<Series> = Vec::new();
    for (run, dut) in each_dut(runs) {
        let placed: Vec<&PointResult> =
            points(dut, |c| c.is_worst_case() && c.place.placement.is_some());
        let cores: Vec<usize> = placed.iter().map(|p| p.conditions.place.cores).collect();
        let beside = |c: &Conditions| c.place.placement.is_none() && cores.contains(&c.place.cores);
        let all = points(dut, |c| c.is_worst_case() && (c.place.placement.is_some() || beside(c)));
        if placed.is_empty() {
            continue;
        }
        let group = groups.len() as f64;
        groups.push(legend(run, &dut.name, runs.len() > 1));
        for point in all {
            let name = point.on_cores();
            let Some(dot) = dot(group, point) else { continue };
            match series.iter_mut().find(|known| known.name == name) {
                Some(known) => known.dots.push(dot),
                None => series.push(Series { name, dots: vec![dot] }),
            }
        }
    }
    (!series.is_empty()).then(|| Figure {
        file: "placements".into(),
        title: "Worst case by the placement of the cores".into(),
        x_label: String::new(),
        y_label: "queries/s".into(),
        shape: Shape::Bars { groups, series },
    })
}

/// Quantity on the horizontal axis of a curve.
#[derive(Clone, Copy)]
enum CurveAxis {
    /// Number of cores. Each point of the curve has a different CPU placement of the DUT.
    Places,
    /// AAAA record rate, cache hit rate or acceptance ratio. All points of the curve have the same CPU placement.
    Conditions,
}

/// The measurement points that form one curve.
#[derive(Clone, Copy)]
enum CurveGroup<'a> {
    /// All measurement points with the same AuthDNS, at any CPU placement of the DUT.
    With(Option<&'a str>),
    /// The measurement points at one CPU placement of the DUT.
    PlacementRef(&'a Cores),
}

impl CurveGroup<'_> {
    fn has(self, p: &PointResult) -> bool {
        match self {
            // On an axis of core counts, only points whose DUT ran on the requested number of cores
            // are shown.
            CurveGroup::With(authdns) => {
                p.has_its_cores() && p.conditions.place.authdns.as_deref() == authdns
            }
            CurveGroup::PlacementRef(place) => p.conditions.place == *place,
        }
    }

    /// Returns the name that distinguishes the curve from others of the same DUT.
    fn name(self, points: &[&PointResult]) -> String {
        match self {
            CurveGroup::With(None) => String::new(),
            CurveGroup::With(Some(authdns)) => format!("with {authdns}"),
            CurveGroup::PlacementRef(place) => cores_of(place, points.iter().copied()),
        }
    }
}

/// Returns the names of the AuthDNS servers with which a DUT was measured.
fn auths(dut: &DutResult) -> Vec<Option<&str>> {
    let mut all: Vec<Option<&str>> =
        dut.points.iter().map(|p| p.conditions.place.authdns.as_deref()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns a figure with the curves of all DUTs. `over` selects the measurement points that form a curve. A curve with
/// fewer than two points is omitted. Returns `None` if no curve is left. `x` computes the horizontal position of a
/// measurement point from its conditions and the result of [`share_places`]. The array of four texts contains the file
/// name, the title, and the label and unit of the horizontal axis.
fn curve(
    runs: &[Run],
    over: CurveAxis,
    [file, title, x_label, unit]: [&str; 4],
    x: impl Fn(&[Cores], &Conditions) -> Option<f64>,
) -> Option<Figure> {
    let mut all = Vec::new();
    for (run, dut) in each_dut(runs) {
        let places = share_places(run, dut);
        let groups = match over {
            CurveAxis::Places => auths(dut).into_iter().map(CurveGroup::With).collect(),
            CurveAxis::Conditions => {
                places.iter().map(CurveGroup::PlacementRef).collect::<Vec<_>>()
            }
        };
        for group in groups {
            let here = dut.points.iter().filter(|p| group.has(p));
            let with_dots = here.filter_map(|p| Some((dot(x(&places, &p.conditions)?, p)?, p)));
            let (mut dots, of): (Vec<Dot>, Vec<&PointResult>) = with_dots.unzip();
            dots.sort_by(|a, b| a.x.total_cmp(&b.x));
            if dots.len() > 1 {
                all.push(Curve {
                    of: legend(run, &dut.name, runs.len() > 1),
                    what: group.name(&of),
                    dots,
                });
            }
        }
    }
    (!all.is_empty()).then(|| {
        let shape = curves(all, unit);
        let x_label = along(&shape, x_label, unit);
        Figure {
            file: file.into(),
            title: title.into(),
            x_label,
            y_label: "queries/s".into(),
            shape,
        }
    })
}

/// Returns heat maps of the medians by AAAA record rate and cache hit rate, one for each DUT and CPU placement. In all
/// maps, the darkest shade stands for the largest value of all maps.
fn heat(runs: &[Run]) -> Option<Figure> {
    let mut maps: Vec<HeatMap> = Vec::new();
    for (run, dut) in each_dut(runs) {
        maps.extend(
            share_places(run, dut)
                .iter()
                .filter_map(|place| heat_map(run, dut, place, runs.len() > 1)),
        );
    }
    let values = maps.iter().flat_map(|map| &map.rows).flat_map(|(_, values)| values).flatten();
    let highest = values.map(|(value, _)| *value).fold(0.0, f64::max);
    (!maps.is_empty()).then(|| Figure {
        file: "shares".into(),
        title: "Queries/s by AAAA share and cached share".into(),
        x_label: "cached share β".into(),
        y_label: "AAAA share α".into(),
        shape: Shape::Heat { maps, highest },
    })
}

fn heat_map(run: &Run, dut: &DutResult, place: &Cores, many: bool) -> Option<HeatMap> {
    let (aaaa, cached) = axes(run, dut);
    let point = |a: Share, b: Share| cell(dut, place, a, b).filter(|p| p.missing.is_none());
    let value = |a: Share, b: Share| {
        let point = point(a, b)?;
        Some((point.figures.median?, point.figures.is_at_least()))
    };
    let row =
        |&a: &Share| (percent(a.per_hundred()), cached.iter().map(|&b| value(a, b)).collect());
    let rows: Vec<HeatRow> = aaaa.iter().map(row).collect();
    let shown = aaaa.iter().flat_map(|&a| cached.iter().filter_map(move |&b| point(a, b)));
    let name = format!("{}, {}", legend(run, &dut.name, many), cores_of(place, shown));
    let is_filled = rows.iter().flat_map(|(_, values)| values).any(Option::is_some);
    let columns = cached.iter().map(|b| percent(b.per_hundred())).collect();
    is_filled.then_some(HeatMap { name, columns, rows })
}

impl Section for SearchMeasure {
    fn title(&self) -> &'static str {
        "Highest passing rates"
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        tables(run)
    }

    fn comparisons(&self, runs: &[Run]) -> Vec<Table> {
        comparisons(runs)
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        figures(runs)
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let points = run.results.duts.iter().flat_map(|dut| &dut.points);
        points.flat_map(rows).collect()
    }
}

#[cfg(test)]
mod tests;
