//! Checks every table and figure of the papers. Code that is independent of the report recomputes
//! each cell from the journal's valid trials.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use testbed::golden;

use campaign::plan::{Conditions, Cores, DutPlan, Family, Plan, Point, SelfTestTarget};
use campaign::record::{Entry, Measured, TaskResult};
use campaign::results::Results;
use campaign::runner::simulated::journal_of;
use hosts::environment::Environment;
use hosts::servers::Auth;
use method::narrow::Length;
use method::pacing::Windows;
use method::verdict::Verdict;
use tester::measurer::names::working_set;
use tester::measurer::result::Rtt;
use units::{Qps, Share};

use crate::format::number;
use crate::run::Run;
use crate::sections::{comparisons, tables};
use crate::table::Table;

/// The command that creates all tables and figures from a run folder.
const COMMAND: &str = "dns64bench report";

/// Contents of a paper's table.
#[derive(Clone, Copy, Debug)]
enum Cells {
    /// Statistics of searches. The rows are those of the paper's table, and each measurement point has a column.
    Searches(fn(&Point) -> bool, fn(&Point) -> String),
    /// Results of searches by AAAA record rate and cache hit rate.
    Shares,
    /// Efficiency at fractions of the full rate, and CPU use at the full rate.
    Efficiency,
    /// Page allocations by NUMA node.
    Memory,
    /// Duration of an experiment with 256 names, by number of threads.
    ClosedLoop,
}

/// Tables of one kind in a paper, one for each server in the plan.
struct Wanted {
    /// Description of the tables in messages, usually their numbers in the paper, such as `V-VII`.
    what: &'static str,
    /// Start of the table's title in the report; `{}` stands for the server's name.
    title: &'static str,
    /// Names of the rows of each table.
    rows: &'static [&'static str],
    /// Quantity that distinguishes the columns. Its name is the first cell of the header.
    axis: &'static str,
    /// Quantities in the cells of the tables.
    cells: Cells,
}

const STATISTICS: &[&str] = &[
    "Median (queries/s)",
    "Minimum (queries/s)",
    "Maximum (queries/s)",
    "Dispersion (%)",
    "[passed, failed)",
    "Searches",
];
const EFFICIENCY: &[&str] = &["Full rate (queries/s)", "CPRDP @25 %", "CPU utilization @100 %"];
const MEMORY: &[&str] = &["2", "2", "2", "1+1", "1+1", "1+1"];
const CLOSED_LOOP: &[&str] = &[
    "Exec. time of 256 queries (ms), average",
    "Exec. time of 256 queries (ms), std. dev.",
    "Number of queries per second",
    "DNS64 server CPU utilization (%), average",
    "DNS64 server CPU utilization (%), std. dev.",
    "CPU of the server's processes (%), average",
    "CPU of the server's processes (%), std. dev.",
];

fn conditions(point: &Point) -> Option<&Conditions> {
    if let Point::Search(c) = point { Some(c) } else { None }
}

fn is(point: &Point, placed: bool, accept: f64, shares: Option<(Share, Share)>) -> bool {
    conditions(point).is_some_and(|c| {
        c.place.placement.is_some() == placed
            && c.accept == accept
            && shares.is_none_or(|s| s == (c.aaaa, c.cached))
    })
}

const NONE: Option<(Share, Share)> = Some((Share::ZERO, Share::ZERO));

fn place(point: &Point) -> String {
    let place = point.place().expect("a point of a DUT");
    let name = place.placement.clone().unwrap_or_else(|| place.cores.to_string());
    place.authdns.as_ref().map_or(name.clone(), |authdns| format!("{name} with {authdns}"))
}

fn percent(share: Share) -> String {
    format!("{} %", share.per_hundred())
}

/// Tables of the papers, except those that compare several runs.
static WANTED: [Wanted; 10] = [
    Wanted {
        what: "V-VII",
        title: "DNS64 performance by the number of CPU cores and threads: {}",
        rows: STATISTICS,
        axis: "CPU cores",
        cells: Cells::Searches(|p| is(p, false, 1.0, NONE), place),
    },
    Wanted {
        what: "VIII-X",
        title: "DNS64 performance by the number of CPU cores and threads: {}, acceptance criterion: 99 %, not RFC 8219 compliant",
        rows: STATISTICS,
        axis: "CPU cores",
        cells: Cells::Searches(|p| is(p, false, 0.99, NONE), place),
    },
    Wanted {
        what: "XI",
        title: "DNS64 performance by the placement of the cores: {}",
        rows: STATISTICS,
        axis: "Placement",
        cells: Cells::Searches(|p| is(p, true, 1.0, NONE), place),
    },
    Wanted {
        what: "XII",
        title: "DNS64 performance by the placement of the cores: {}, acceptance criterion: 99 %, not RFC 8219 compliant",
        rows: STATISTICS,
        axis: "Placement",
        cells: Cells::Searches(|p| is(p, true, 0.99, NONE), place),
    },
    Wanted {
        what: "XIII-XV",
        title: "DNS64 performance by AAAA record rate: {}, 1 core",
        rows: STATISTICS,
        axis: "AAAA record rate",
        cells: Cells::Searches(
            |p| {
                is(p, false, 1.0, None)
                    && conditions(p).is_some_and(|c| c.cached == Share::ZERO && c.place.cores == 1)
            },
            |p| conditions(p).map_or(String::new(), |c| percent(c.aaaa)),
        ),
    },
    Wanted {
        what: "XVI-XVIII",
        title: "DNS64 performance by cache hit rate: {}, 1 core",
        rows: STATISTICS,
        axis: "cache hit rate",
        cells: Cells::Searches(
            |p| {
                is(p, false, 1.0, None)
                    && conditions(p).is_some_and(|c| c.aaaa == Share::ZERO && c.place.cores == 1)
            },
            |p| conditions(p).map_or(String::new(), |c| percent(c.cached)),
        ),
    },
    Wanted {
        what: "α and β together",
        title: "{} by AAAA share and cached share, 1 core",
        rows: &["0 %", "100 %"],
        axis: "α \\ β",
        cells: Cells::Shares,
    },
    Wanted {
        what: "XIX-XXI",
        title: "Computing power relative performance (CPRDP): {}",
        rows: EFFICIENCY,
        axis: "CPU cores",
        cells: Cells::Efficiency,
    },
    Wanted {
        what: "XXII-XXIII",
        title: "Numastat results of {}, test rate: 1\u{202f}500 queries/s",
        rows: MEMORY,
        axis: "Cores",
        cells: Cells::Memory,
    },
    Wanted {
        what: "Performance Analysis of MTD64, I-II",
        title: "Closed loop: {}, 2 cores, frequency governor: performance",
        rows: CLOSED_LOOP,
        axis: "Number of threads",
        cells: Cells::ClosedLoop,
    },
];

fn plan() -> Plan {
    let mut plan = Plan::load(Path::new("paper-small")).unwrap();
    // The α×β table, which is not in any paper.
    plan.measure.table = true;
    plan
}

/// Capacity of a simulated DUT in queries per second and core. The value is small enough for the plan: even the rates
/// of two cores plus 1 % are within the plan's search range.
const CAPACITY: u64 = 15_000;

/// Returns a journal in which all trials differ. The journal is created only once, because its
/// creation takes longer than the tests.
fn entries() -> Vec<Entry> {
    static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(make_entries);
    ENTRIES.clone()
}

fn make_entries() -> Vec<Entry> {
    let mut entries = journal_of(&plan(), CAPACITY, &[]);
    for (i, entry) in entries.iter_mut().enumerate() {
        let Entry::Finished(m) = entry else { continue };
        let one = i as f64;
        m.cpu
            .dut
            .iter_mut()
            .zip(1..)
            .for_each(|(share, second)| *share += one / f64::from(second) / 1e3);
        match &mut m.found {
            TaskResult::Trial(trial) => {
                trial.rtt_us = trial.rtt_us.map(|rtt| Rtt {
                    p50: rtt.p50 + one,
                    p99: rtt.p99 + 2.0 * one,
                    ..rtt
                });
                let off = |n: i32| vec![n - i as i32, n, n + i as i32 % 7];
                let [least_100ms, most_100ms, least_10ms, most_10ms] =
                    [off(-3), off(4), off(-5), off(6)];
                trial.windows = Some(Windows {
                    stretch_ms: 100,
                    least_100ms,
                    most_100ms,
                    least_10ms,
                    most_10ms,
                });
            }
            TaskResult::ClosedLoop(trial) => {
                trial.experiments.experiments_ms.iter_mut().for_each(|ms| *ms += one / 100.0);
            }
            TaskResult::Conform(_) => {}
        }
    }
    entries
}

fn run(name: &str, entries: &[Entry]) -> Run {
    run_of(name, &plan(), Environment::for_tests(), entries)
}

fn run_of(name: &str, plan: &Plan, environment: &Environment, entries: &[Entry]) -> Run {
    Run {
        name: name.into(),
        results: Results::compute(plan, environment, entries),
        notes: Vec::new(),
    }
}

fn trials<'a>(entries: &'a [Entry], point: &'a Point) -> Vec<&'a Measured> {
    let of = |entry: &'a Entry| match entry {
        Entry::Finished(m) if m.step.point == *point && m.verdict() != Verdict::Invalid => {
            Some(&**m)
        }
        _ => None,
    };
    entries.iter().filter_map(of).collect()
}

/// Result of the searches at a measurement point.
struct Searched {
    median: f64,
    min: f64,
    max: f64,
    /// Largest of the searches' lowest failed rates. Absent if one of the searches has no failed rate.
    failed: Option<u64>,
}

/// Returns the statistics of the searches at a measurement point. They are computed from the full trials, which are
/// grouped by search. A search is complete if a full trial passed at the highest rate of the range. It is also complete
/// if a full trial failed at a rate that exceeds the highest passed rate by at most the resolution.
fn searches(
    plan: &Plan,
    entries: &[Entry],
    point: &Point,
    (repeat, resolution): (u32, Qps),
) -> Result<Searched, String> {
    let mut by_search: BTreeMap<u32, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for m in trials(entries, point).iter().filter(|m| m.step.length == Length::Full) {
        let (passed, failed) = by_search.entry(m.step.repeat).or_default();
        match m.verdict() {
            Verdict::Passed => *passed = (*passed).max(Some(m.step.rate.0)),
            _ => *failed = Some(failed.map_or(m.step.rate.0, |f| f.min(m.step.rate.0))),
        }
    }
    let searches: Vec<(u64, Option<u64>)> =
        by_search.values().filter_map(|(passed, failed)| Some(((*passed)?, *failed))).collect();
    let top = match point {
        Point::SelfTest(_) => plan.self_test.as_ref().map(|t| t.max.0),
        _ => Some(plan.search.max.0),
    };
    let whole = |(passed, failed): &&(u64, Option<u64>)| {
        failed.is_some_and(|failed| failed - passed <= resolution.0) || Some(*passed) == top
    };
    let whole: Vec<_> = searches.iter().filter(whole).collect();
    if whole.len() != repeat as usize {
        return Err(format!("{point}: {} of {repeat} searches are whole", whole.len()));
    }
    let mut rates: Vec<f64> = whole.iter().map(|(passed, _)| *passed as f64).collect();
    rates.sort_by(f64::total_cmp);
    let (lower, upper) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
    // A rate that was actually offered is not rounded.
    let step = 10f64.powi(resolution.0.ilog10() as i32);
    let mean = ((lower + upper) / 2.0 / step).floor() * step;
    let median = if lower == upper { lower } else { mean.max(lower) };
    let failed: Option<Vec<u64>> = whole.iter().map(|(_, failed)| *failed).collect();
    Ok(Searched {
        median,
        min: rates[0],
        max: rates[rates.len() - 1],
        failed: failed.and_then(|all| all.into_iter().max()),
    })
}

/// Returns the cells of a table column with the statistics that [`searches`] returns.
fn searched(
    plan: &Plan,
    entries: &[Entry],
    point: &Point,
    repeat: u32,
    resolution: Qps,
) -> Result<[String; 6], String> {
    let Searched { median, min, max, failed } =
        searches(plan, entries, point, (repeat, resolution))?;
    let interval = match failed {
        Some(to) => format!("[{}, {})", number(min), number(to as f64)),
        None => format!("at least {}", number(min)),
    };
    let at_least = if failed.is_none() && median == min { "≥ " } else { "" };
    let dispersion = format!("{:.2}", (max - min) / median * 100.0);
    let median = format!("{at_least}{}", number(median));
    Ok([median, number(min), number(max), dispersion, interval, repeat.to_string()])
}

/// Returns the cells of a table by row and column, computed from the journal. The error names a
/// cell without a trial.
fn expected(
    plan: &Plan,
    entries: &[Entry],
    wanted: &Wanted,
    dut: &str,
) -> Result<Vec<(String, Vec<String>)>, String> {
    let points: Vec<Point> = plan.points().into_iter().filter(|p| p.dut() == Some(dut)).collect();
    let mut columns = Vec::new();
    match wanted.cells {
        Cells::Searches(is_meant, name) => {
            for point in points.iter().filter(|p| is_meant(p)) {
                let cells =
                    searched(plan, entries, point, plan.search.repeat, plan.search.resolution)?;
                columns.push((name(point), cells.to_vec()));
            }
        }
        Cells::Efficiency => {
            for cores in [1, 2] {
                columns.push((
                    cores.to_string(),
                    efficiency(plan, entries, &points, &Cores::first(cores))?,
                ));
            }
        }
        Cells::Shares => {
            for cached in [Share::ZERO, Share::ONE] {
                let mut cells = Vec::new();
                for aaaa in [Share::ZERO, Share::ONE] {
                    let at = Point::Search(Conditions {
                        aaaa,
                        cached,
                        ..Conditions::worst_case(dut, Cores::first(1))
                    });
                    let [median, .., interval, _] =
                        searched(plan, entries, &at, plan.search.repeat, plan.search.resolution)?;
                    cells.push(format!("{median} in {interval}"));
                }
                columns.push((percent(cached), cells));
            }
        }
        Cells::Memory => return memory(entries, &points),
        Cells::ClosedLoop => {
            for point in &points {
                let Point::ClosedLoop(with) = point else { continue };
                if with.governor.as_deref() != Some("performance") {
                    continue;
                }
                columns.push((with.threads.to_string(), closed_loop(entries, point)?));
            }
        }
    }
    Ok(columns)
}

/// Returns the expected efficiency, computed from the load trials. The CPU use is the mean over the
/// third to sixth second of a trial.
fn efficiency(
    plan: &Plan,
    entries: &[Entry],
    points: &[Point],
    place: &Cores,
) -> Result<Vec<String>, String> {
    let worst =
        Point::Search(Conditions::worst_case(points[0].dut().unwrap_or_default(), place.clone()));
    let [median, .., interval, _] =
        searched(plan, entries, &worst, plan.search.repeat, plan.search.resolution)?;
    let mut cells = vec![format!("{median} in {interval}")];
    for share in [Share::percent(25), Share::ONE] {
        let at = points
            .iter()
            .find(|p| matches!(p, Point::Load(at) if at.place == *place && at.share == share));
        let at = at.ok_or("no such load")?;
        let all = trials(entries, at);
        let trial = all.first().and_then(|m| m.at_rate()).ok_or(format!("{at}: no trial"))?;
        let steady = &all[0].cpu.dut[2..6];
        let cpu = steady.iter().sum::<f64>() / steady.len() as f64;
        cells.push(match share {
            Share::ONE => format!("{:.1} %", cpu * 100.0),
            _ => number(four_digits(trial.counts.valid as f64 / trial.duration_s / cpu)),
        });
    }
    Ok(cells)
}

/// Rounds to four significant digits by formatting and parsing.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number")
}

/// Returns a row for each CPU placement and statistic. The first two cells of a row contain the placement and the name
/// of the statistic.
fn memory(entries: &[Entry], points: &[Point]) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut rows = Vec::new();
    for point in
        points.iter().filter(|p| matches!(p, Point::ConstantRate(at) if at.rate == Qps(1500)))
    {
        let all = trials(entries, point);
        if all.len() != 3 {
            return Err(format!("{point}: {} of 3 trials", all.len()));
        }
        let mut columns: Vec<Vec<u64>> = Vec::new();
        for get in [|n: &hosts::numa::NodePages| n.hit, |n: &hosts::numa::NodePages| n.miss] {
            let of = |m: &&Measured| {
                m.numa.as_ref().map_or(Vec::new(), |numa| numa.nodes.iter().map(get).collect())
            };
            let each: Vec<Vec<u64>> = all.iter().map(of).collect();
            columns.extend((0..2).map(|node| each.iter().map(|nodes| nodes[node]).collect()));
            columns.push(each.iter().map(|nodes| nodes.iter().sum()).collect());
        }
        columns.iter_mut().for_each(|column| column.sort_unstable());
        for (statistic, at) in [("median", 1), ("minimum", 0), ("maximum", 2)] {
            let mut row = vec![statistic.to_owned()];
            row.extend(columns.iter().map(|column| number(column[at] as f64)));
            rows.push((place(point), row));
        }
    }
    Ok(rows)
}

fn closed_loop(entries: &[Entry], point: &Point) -> Result<Vec<String>, String> {
    let all = trials(entries, point);
    let measured = all.first().ok_or(format!("{point}: no trial"))?;
    let times = &measured.in_loop().ok_or("no closed loop")?.experiments.experiments_ms;
    let spread = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        (mean, (squares / (values.len() as f64 - 1.0)).sqrt())
    };
    let percent = |values: &[f64]| spread(&values.iter().map(|v| v * 100.0).collect::<Vec<_>>());
    let (time, host, dut) =
        (spread(times), percent(&measured.cpu.host), percent(&measured.cpu.dut));
    let two = |value: f64| format!("{value:.2}");
    let rate = number((256e3 / time.0).round());
    Ok(vec![two(time.0), two(time.1), rate, two(host.0), two(host.1), two(dut.0), two(dut.1)])
}

/// Compares a table of the report with the expected contents.
fn compare(
    table: &Table,
    wanted: &Wanted,
    columns: &[(String, Vec<String>)],
) -> Result<(), String> {
    let at = |what: &str| format!("{} ({}): {what}", table.title, wanted.what);
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    if names != wanted.rows || table.header[0] != wanted.axis {
        return Err(at(&format!("rows {names:?}, columns by {}", table.header[0])));
    }
    if let Cells::Memory = wanted.cells {
        let rows: Vec<(String, Vec<String>)> =
            table.rows.iter().map(|row| (row[0].clone(), row[1..].to_vec())).collect();
        let header = ["node0 hit", "node1 hit", "all hit", "node0 miss", "node1 miss", "all miss"];
        let same = rows == columns && table.header[2..] == header;
        return if same { Ok(()) } else { Err(at(&format!("{rows:?} is not {columns:?}"))) };
    }
    let found: Vec<(String, Vec<String>)> = (1..table.header.len())
        .map(|c| (table.header[c].clone(), table.rows.iter().map(|row| row[c].clone()).collect()))
        .collect();
    if found == columns { Ok(()) } else { Err(at(&format!("{found:?} is not {columns:?}"))) }
}

/// Returns the expected tables of a DUT. For the DUT `calibration`, this is only the first table in [`WANTED`]. This
/// DUT is measured only in the worst case, at one measurement point for each AuthDNS.
fn wanted_of(dut: &DutPlan) -> &'static [Wanted] {
    if dut.measure.is_some() { &WANTED[..1] } else { &WANTED }
}

/// Tables and figures of a report, which are compared with the expected contents in [`WANTED`].
struct Shown {
    tables: Vec<Table>,
    /// The only run in the report. Its figures are drawn when a test requests them.
    runs: [Run; 1],
}

impl Shown {
    fn of(plan: &Plan, run: Run) -> Shown {
        let runs = [run];
        let titles: Vec<String> = (plan.duts.iter())
            .flat_map(|dut| {
                wanted_of(dut).iter().map(|wanted| wanted.title.replace("{}", dut.name()))
            })
            .chain(SELF_TESTS.iter().map(|(title, ..)| (*title).to_owned()))
            .collect();
        let mut all: Vec<Table> = comparisons(&runs);
        all.extend(tables(&runs[0]));
        all.retain(|table| titles.contains(&table.title));
        Shown { tables: all, runs }
    }

    /// Returns the horizontal axis label and the SVG source of each figure. The key is the file
    /// name.
    fn figures(&self) -> BTreeMap<String, (String, String)> {
        drawn::shown(&self.runs)
    }

    fn table(&self, title: &str) -> Result<&Table, String> {
        self.tables
            .iter()
            .find(|table| table.title == title)
            .ok_or(format!("{COMMAND}: no table {title}"))
    }
}

/// Checks all tables and figures against a journal.
fn check(plan: &Plan, entries: &[Entry], shown: &Shown) -> Result<(), String> {
    for dut in &plan.duts {
        for wanted in wanted_of(dut) {
            let table = shown.table(&wanted.title.replace("{}", dut.name()))?;
            compare(table, wanted, &expected(plan, entries, wanted, dut.name())?)?;
        }
    }
    check_self_tests(plan, entries, shown)?;
    drawn::check(plan, entries, &shown.figures())
}

/// Tables I, II and IV. Each has a title, the IP version if it differs from that in the plan, and the name of the
/// AuthDNS in the plan's `[[authdns]]` entries.
const SELF_TESTS: [(&str, Option<Family>, Option<&str>); 3] = [
    ("Self-test: authoritative DNS performance of AuthDNS over IPv4, single CPU core", None, None),
    (
        "Self-test: authoritative DNS performance of AuthDNS over IPv6, single CPU core",
        Some(Family::Ipv6),
        None,
    ),
    (
        "Self-test: authoritative DNS performance of two threads over IPv4, single CPU core",
        None,
        Some("two threads"),
    ),
];

/// Checks Tables I, II and IV, which have a column for each run.
fn check_self_tests(plan: &Plan, entries: &[Entry], shown: &Shown) -> Result<(), String> {
    let test = plan.self_test.as_ref().ok_or("no self-test")?;
    for (title, family, named) in SELF_TESTS {
        let named = named.map(str::to_owned);
        let point = Point::SelfTest(SelfTestTarget {
            server: Auth::Dns64bench,
            family,
            cores: None,
            named,
        });
        let cells = searched(plan, entries, &point, test.repeat, test.resolution)?;
        let table = shown.table(title)?;
        let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        if names != STATISTICS || table.header[1..] != ["here"] {
            return Err(format!("{title}: {names:?} by {:?}", table.header));
        }
        let found: Vec<&str> = table.rows.iter().map(|row| row[1].as_str()).collect();
        if found != cells {
            return Err(format!("{title}: {found:?} is not {cells:?}"));
        }
    }
    Ok(())
}

#[test]
fn every_paper_table_and_figure_matches_the_journal() {
    let (plan, entries) = (plan(), entries());
    check(&plan, &entries, &Shown::of(&plan, run("here", &entries))).unwrap();
}

/// Tables III and IV of the MTD64 paper require hosts with dynamic frequency scaling. The simulated
/// host does not have it.
#[test]
fn impossible_points_have_a_table_with_the_reason() {
    let run = run("here", &entries());
    for dut in ["Unbound", "dns64d"] {
        let title = format!(
            "Closed loop: {dut}, 2 cores requested, not observed, frequency governor: ondemand"
        );
        let all = tables(&run);
        let table =
            all.iter().find(|t| t.title == title).unwrap_or_else(|| panic!("no table {title}"));
        let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(
            (names, &table.header[1..]),
            (CLOSED_LOOP.to_vec(), &["1".to_owned(), "16".to_owned()][..])
        );
        for cell in table.rows.iter().flat_map(|row| &row[1..]) {
            assert!(
                cell.starts_with(
                    "not possible here: the DUT's host has no dynamic frequency scaling"
                ),
                "{cell}"
            );
        }
    }
}

/// Each trial of the journal affects a table cell or a mark in a figure. If a trial is removed, the
/// report differs from the expected contents.
#[test]
fn no_trial_can_be_taken_out_of_the_journal() {
    let (plan, environment, mut entries) = (plan(), Environment::for_tests(), entries());
    let whole = Shown::of(&plan, run_of("here", &plan, environment, &entries));
    let drawn = whole.figures();
    let trials: Vec<usize> =
        (0..entries.len()).filter(|&i| matches!(entries[i], Entry::Finished(_))).collect();
    assert!(trials.len() > 150, "{}", trials.len());
    for i in trials {
        let Entry::Finished(taken) = entries.remove(i) else { panic!("only trials are taken out") };
        let shown = Shown::of(&plan, run_of("here", &plan, environment, &entries));
        let what = format!("without the trial at {} of {}", taken.step.rate, taken.step.point);
        let is_same = shown.tables == whole.tables && shown.figures() == drawn;
        assert!(!is_same, "{what} the report is the same");
        assert!(check(&plan, &entries, &shown).is_err(), "{what}");
        entries.insert(i, Entry::Finished(taken));
    }
}

#[test]
fn a_cell_without_a_trial_has_the_reason() {
    let plan = plan();
    let none = [Entry::begun(&plan)];
    let run = run("here", &none);
    for table in
        tables(&run).iter().filter(|t| WANTED.iter().any(|w| t.title.starts_with(&w.title[..12])))
    {
        for cell in table.rows.iter().flat_map(|row| &row[1..]) {
            let is_name = ["median", "minimum", "maximum"].contains(&cell.as_str());
            assert!(is_name || cell.contains("not measured"), "{}: {cell}", table.title);
        }
    }
}

#[test]
fn runs_stand_side_by_side() {
    let entries = entries();
    let runs = [run("A", &entries), run("B", &[Entry::begun(&plan())])];
    let all = comparisons(&runs);
    let title = "DNS64 performance of Unbound on 2 cores, by run";
    let table = all.iter().find(|t| t.title == title).unwrap_or_else(|| panic!("no table {title}"));
    assert_eq!(table.header, ["Run", "A", "B"]);
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, STATISTICS);
    assert!(
        table
            .rows
            .iter()
            .all(|row| row[2].starts_with("not measured") && !row[1].starts_with("not"))
    );
    assert!(all.iter().any(|t| t.title.starts_with("Self-test") && t.header.len() == 3));
}

#[test]
fn every_number_is_in_the_csv() {
    let csv = crate::csv::csv(&[run("here", &entries())]);
    let width = csv.lines().next().unwrap().split(',').count();
    let quantities = [
        "\"self-test\"",
        "\"search\"",
        "\"load\"",
        "\"constant rate\"",
        "\"closed loop\"",
        "\"cprdp\"",
        "\"rtt_p99\"",
        "\"numa_hit_node1\"",
        "\"time_of_256\"",
        "\"host_cpu\"",
    ];
    for quantity in quantities {
        assert!(csv.contains(quantity), "{quantity}");
    }
    for line in csv.lines() {
        assert_eq!(crate::csv_tests::cells(line).len(), width, "{line}");
    }
}

#[test]
fn working_sets_are_printed_with_cached_shares() {
    let run = run("here", &entries());
    let table = |what: &str| {
        let title = format!("DNS64 performance by {what}");
        tables(&run).into_iter().find(|t| t.title.starts_with(&title)).unwrap()
    };
    let mut points = run.results.duts[0].points.iter();
    let point = points.find(|point| point.conditions.cached == Share::ONE).unwrap();
    let rate = Qps(point.figures.median.unwrap() as u64);
    let timeout = run.results.plan.trial.timeout(run.results.plan.trial.duration).into();
    let names = number(working_set(Share::ONE, rate, timeout) as f64);
    let note = table("cache hit rate").note;
    assert!(note.contains(&format!("100 %: {names}")), "{note}");
    assert!(!table("AAAA record rate").note.contains("100 %"));
}

/// Swapped columns of a table are detected.
#[test]
fn tables_match_the_golden_file() {
    let tables = tables(&run("here", &entries()));
    let is_of_one_place = |table: &&Table| !table.title.starts_with("Environment");
    let text: String = tables.iter().filter(is_of_one_place).map(Table::markdown).collect();
    golden::check(env!("CARGO_MANIFEST_DIR"), "tables.md", &text);
}

mod drawn;
