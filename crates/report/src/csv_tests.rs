//! Checks that `results.csv` contains every number of a run. The test looks up each number of `results.json` in
//! `results.csv`.

use std::path::Path;
use std::sync::LazyLock;

use campaign::plan::Plan;
use campaign::record::Entry;
use campaign::results::Results;
use campaign::runner::simulated::{Event, journal_of};
use hosts::environment::Environment;
use serde_json::Value;

use crate::run::Run;
use crate::{csv, tidy};

/// Objects in `results.json` whose numbers need not be in the CSV file: plan keys, CPU numbers of a placement,
/// explanations, and conformance reports. The column `ran_on` describes the placement. An explanation is in the column
/// `mark`, or follows from other numbers. The CSV file contains only the counts of checks from a conformance report.
const NOT_FOUND: [&str; 7] =
    ["conditions", "place", "void", "missing", "lower_bound_reasons", "warnings", "report"];

/// Adds all numbers in a JSON value to `all`, with their paths.
fn numbers(value: &Value, at: &str, all: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => all.push((at.to_owned(), number.as_f64().unwrap())),
        Value::Array(values) => {
            values
                .iter()
                .enumerate()
                .for_each(|(i, value)| numbers(value, &format!("{at}[{i}]"), all));
        }
        Value::Object(fields) => {
            for (name, value) in
                fields.iter().filter(|(name, _)| !NOT_FOUND.contains(&name.as_str()))
            {
                numbers(value, &format!("{at}.{name}"), all);
            }
        }
        _ => {}
    }
}

/// Returns the cells of a line (RFC 4180 §2) without their quotes. The texts in these tests contain
/// no quotes.
pub(crate) fn cells(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let ends_cell = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    line.split(ends_cell).map(|cell| cell.trim_matches('"')).collect()
}

/// Keys of `results.json` that distinguish the measurement points of a DUT, and the corresponding columns of
/// `results.csv`.
const APART: [(&str, &str); 10] = [
    ("cores", "cores"),
    ("placement", "placement"),
    ("authdns", "authdns"),
    ("family", "family"),
    ("aaaa", "aaaa_share"),
    ("cached", "cached_share"),
    ("accept", "acceptance"),
    ("share", "load"),
    ("threads", "threads"),
    ("governor", "governor"),
];
/// Kind of measurement whose rates are set in the plan. For this kind, measurement points are distinguished by their
/// rates. For all other kinds, the rate is a result.
const AT_RATES: &str = "constant rate";
/// Identification of a measurement point: the measurement, the DUT and the values of its key columns.
type Key = (String, String, Vec<String>);

/// Returns the numbers of `results.csv` by measurement point, in the order of the lines.
fn by_point(text: &str) -> Vec<(Key, Vec<f64>)> {
    let header = cells(text.lines().next().unwrap());
    let at = |column: &str| header.iter().position(|name| *name == column).unwrap();
    let mut all: Vec<(Key, Vec<f64>)> = Vec::new();
    for line in text.lines().skip(1) {
        let cells = cells(line);
        let cell = |column: &str| cells[at(column)].to_owned();
        let measure = cell("measure");
        let rate = (measure == AT_RATES).then(|| cell("rate"));
        let key = (
            measure,
            cell("dut"),
            APART.iter().map(|(_, column)| cell(column)).chain(rate).collect(),
        );
        let numbers = cells[3..].iter().filter_map(|cell| cell.parse::<f64>().ok());
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => known.extend(numbers),
            None => all.push((key, numbers.collect())),
        }
    }
    all
}

/// Returns the key of an object in `results.json`. If the object does not name an AuthDNS, the name `auth` is used.
fn key_of(value: &Value, measure: &str, dut: &str, auth: &str) -> Key {
    let point = value.get("conditions").unwrap_or(value);
    let text = |key: &str| match &point[key] {
        Value::Number(number) => number.as_f64().unwrap().to_string(),
        Value::String(text) => text.clone(),
        _ if key == "authdns" && !point["cores"].is_null() => auth.to_owned(),
        _ => String::new(),
    };
    let rate = (measure == AT_RATES).then(|| text("rate"));
    (measure.into(), dut.into(), APART.iter().map(|(key, _)| text(key)).chain(rate).collect())
}

/// Returns the numbers of `results.json` that are missing in `results.csv`, or that appear there at a wrong measurement
/// point.
fn lacking(run: &Run, text: &str) -> Vec<String> {
    let (json, file) = (serde_json::to_value(&run.results).unwrap(), by_point(text));
    let mut lacking = Vec::new();
    let mut look = |value: &Value, at: &str, has: &[f64]| {
        let mut all = Vec::new();
        numbers(value, at, &mut all);
        lacking.extend(
            all.into_iter().filter(|(_, n)| !has.contains(n)).map(|(at, n)| format!("{at}: {n}")),
        );
    };
    let at = |key: &Key| {
        file.iter().find(|(known, _)| known == key).map_or(&[][..], |(_, numbers)| numbers)
    };
    // A self-test without an IP version in the plan still reports the IP version that it used. The
    // self-tests are in plan order.
    let mut tests = file
        .iter()
        .filter(|((measure, ..), _)| measure == "self-test")
        .map(|(_, numbers)| &numbers[..]);
    for test in json["self_tests"].as_array().unwrap() {
        look(test, "self-test", tests.next().unwrap_or_default());
    }
    for part in ["health", "period_unix_s"] {
        look(&json[part], part, at(&key_of(&Value::Null, "tester", "", "")));
    }
    for dut in json["duts"].as_array().unwrap() {
        let name = dut["name"].as_str().unwrap();
        let measures = [
            ("points", "search"),
            ("loads", "load"),
            ("constant_rates", AT_RATES),
            ("closed_loops", "closed loop"),
        ];
        for (list, measure) in measures {
            for point in dut[list].as_array().unwrap() {
                let key = key_of(point, measure, name, run.results.plan.auth.name());
                look(point, &format!("{key:?}"), at(&key));
            }
        }
        let key = key_of(&dut["conform"], "conform", name, campaign::plan::servers::CHECKS);
        look(&dut["conform"], &format!("{key:?}"), at(&key));
        look(
            &dut["paced"],
            &format!("{name} paced"),
            at(&key_of(&Value::Null, "pacing", name, "")),
        );
    }
    lacking
}

/// Returns a run. The run is created only once, because its creation takes longer than the tests.
fn run() -> &'static Run {
    static RUN: LazyLock<Run> = LazyLock::new(make_run);
    &RUN
}

fn make_run() -> Run {
    let mut plan = Plan::load(Path::new("paper-small")).unwrap();
    plan.measure.conform = true;
    let mut entries = journal_of(&plan, 15_000, &[(5, Event::Invalid), (40, Event::Invalid)]);
    // The simulated tester has no pacing data and no stolen time.
    for (i, entry) in entries.iter_mut().enumerate() {
        let Entry::Finished(m) = entry else { continue };
        let stolen = net::cpu_time::Stolen {
            all_pct: i as f64 / 7.0,
            worst_cpu_pct: i as f64 / 3.0,
            worst_cpu: 0,
        };
        m.stolen.dut = Some(stolen);
        match &mut m.found {
            campaign::record::TaskResult::Trial(trial) => {
                let off = |n: i32| vec![n - i as i32, n + 3];
                trial.windows = Some(method::pacing::Windows {
                    stretch_ms: 700,
                    least_100ms: off(-901),
                    most_100ms: off(901),
                    least_10ms: off(-301),
                    most_10ms: off(301),
                });
            }
            // The duration of a simulated closed loop does not depend on the number of threads, so
            // it is changed here.
            campaign::record::TaskResult::ClosedLoop(trial) => {
                trial.experiments.experiments_ms.iter_mut().for_each(|ms| *ms += i as f64);
            }
            campaign::record::TaskResult::Conform(_) => {}
        }
    }
    let results = Results::compute(&plan, Environment::for_tests(), &entries);
    assert!(
        results.complete
            && results.health.stolen.len() == 1
            && results.duts.iter().all(|dut| dut.paced.is_some())
    );
    Run { name: "here".into(), results, notes: Vec::new() }
}

#[test]
fn every_number_of_the_results_is_in_the_csv() {
    let run = run();
    let text = csv::csv(std::slice::from_ref(run));
    let width = cells(text.lines().next().unwrap()).len();
    assert!(text.lines().all(|line| cells(line).len() == width));
    let lacking = lacking(run, &text);
    assert!(lacking.is_empty(), "{} numbers are missing:\n{}", lacking.len(), lacking.join("\n"));
}

/// Numbers that are missing in the CSV file are found: the comparison with `results.json` reports each of them.
#[test]
fn a_line_that_is_missing_is_noticed() {
    let run = run();
    let text = csv::csv(std::slice::from_ref(run));
    for quantity in
        ["rtt_p999", "numa_hit_all", "time_of_256", "allows", "most_10ms_2", "stolen_dut", "took"]
    {
        let without: Vec<&str> =
            text.lines().filter(|line| !line.contains(&format!("{quantity}\""))).collect();
        assert!(without.len() < text.lines().count(), "{quantity} is not in it at all");
        assert!(!lacking(run, &without.join("\n")).is_empty(), "{quantity}");
    }
}

/// Numbers at a wrong measurement point in the CSV file are found: the comparison with `results.json` reports each of
/// them.
#[test]
fn numbers_at_the_wrong_point_are_noticed() {
    let run = run();
    let text = csv::csv(std::slice::from_ref(run));
    let header = cells(text.lines().next().unwrap());
    for (measure, column) in [
        ("search", "aaaa_share"),
        ("load", "load"),
        (AT_RATES, "rate"),
        ("closed loop", "threads"),
        ("search", "cores"),
    ] {
        let at = header.iter().position(|name| *name == column).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(cells).collect();
        let of = |line: &&Vec<&str>| line[1] == measure;
        let first = lines.iter().find(of).unwrap();
        let other =
            lines.iter().find(|line| of(line) && line[2] == first[2] && line[at] != first[at]);
        let (a, b) =
            (first[at], other.unwrap_or_else(|| panic!("one {column} only in {measure}"))[at]);
        let swapped = |line: &Vec<&str>| {
            let mut line = line.clone();
            if line[1] == measure {
                line[at] = if line[at] == a {
                    b
                } else if line[at] == b {
                    a
                } else {
                    line[at]
                };
            }
            line.iter().map(|cell| format!("\"{cell}\"")).collect::<Vec<_>>().join(",")
        };
        let text = lines.iter().map(swapped).collect::<Vec<_>>().join("\n");
        assert!(!lacking(run, &text).is_empty(), "{measure} with its {column} exchanged");
    }
}

/// Returns the lines of a file, each as a map from column to cell.
fn lines(text: &str) -> Vec<std::collections::BTreeMap<&str, &str>> {
    let header = cells(text.lines().next().unwrap());
    let of = |line| {
        let cells = cells(line);
        assert_eq!(cells.len(), header.len(), "{line}");
        header.iter().copied().zip(cells).collect()
    };
    text.lines().skip(1).map(of).collect()
}

#[test]
fn points_have_a_line_each() {
    let run = run();
    let text = tidy::points(std::slice::from_ref(run));
    let lines = lines(&text);
    let points = run.results.plan.points();
    let measured = lines.iter().filter(|line| line["measure"] != "conform").count();
    assert_eq!(measured, points.iter().filter(|point| !point.is_checked()).count());
    let first = &run.results.duts[0].points[0];
    let line = lines.iter().find(|line| line["measure"] == "search").unwrap();
    assert_eq!(line["dut"], run.results.duts[0].name);
    assert_eq!(line["median"].parse().ok(), first.figures.median);
    assert_eq!(line["interval_to"].parse().ok(), first.figures.interval.to);
    assert_eq!(line["trials"].parse().ok(), Some(first.trials.full));
    let load = &run.results.duts[0].loads[0].found;
    let line = lines.iter().find(|line| line["measure"] == "load").unwrap();
    assert_eq!(line["rtt_p99_us"].parse().ok(), load.rtt_us.map(|rtt| rtt.p99));
    assert_eq!(line["cprdp"].parse().ok(), load.cprdp.as_ref().map(|cprdp| cprdp.median));
}

#[test]
fn searches_have_a_line_each() {
    let run = run();
    let text = tidy::searches(std::slice::from_ref(run));
    let lines = lines(&text);
    let found = run.results.duts.iter().flat_map(|dut| &dut.points).map(|point| point.found.len());
    let tests = run.results.self_tests.iter().map(|test| test.found.len());
    assert_eq!(lines.len(), found.chain(tests).sum::<usize>());
    let point = &run.results.duts[0].points[0];
    let of_first: Vec<_> = lines.iter().filter(|line| line["measure"] == "search").collect();
    for (search, line) in point.found.iter().zip(of_first) {
        assert_eq!(line["passed"].parse().ok(), search.highest.map(|rate| rate.0));
        assert_eq!(line["failed"].parse().ok(), search.failed.map(|rate| rate.0));
    }
}

#[test]
fn trials_have_a_line_each_and_add_up() {
    let run = run();
    let text = tidy::trials(std::slice::from_ref(run));
    let lines = lines(&text);
    assert_eq!(lines.len(), run.results.trials.len());
    let mut verdicts = std::collections::BTreeSet::new();
    for line in &lines {
        let count = |column: &str| line[column].parse::<u64>().unwrap();
        let parts = ["valid", "lost", "late", "wrong"].map(count);
        assert_eq!(count("sent"), parts.iter().sum::<u64>(), "{line:?}");
        assert_eq!(line["verdict"] == "passed", line["reason"].is_empty(), "{line:?}");
        assert_eq!(line["rate"].is_empty(), line["measure"] == "closed loop", "{line:?}");
        verdicts.insert(line["verdict"]);
    }
    assert_eq!(verdicts.into_iter().collect::<Vec<_>>(), ["failed", "invalid", "passed"]);
}
