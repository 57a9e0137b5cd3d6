//! `results.csv` has every number that a run found: those of `results.json` are looked for one by one.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Run, csv};
use crate::archive::Entry;
use crate::environment::Environment;
use crate::plan::Plan;
use crate::results::Results;
use crate::runner::simulated::{Event, journal_of};

/// What is no number that was found: what the plan says, which CPUs a place has (they are in `ran_on`, in words), and what is told
/// in words in `mark` or follows from other numbers.
const NOT_FOUND: [&str; 6] = ["conditions", "place", "void", "missing", "lower_bound_reasons", "warnings"];

/// Adds the numbers of a value with where they stand.
fn numbers(value: &Value, at: &str, all: &mut Vec<(String, f64)>) {
    match value {
        Value::Number(number) => all.push((at.to_owned(), number.as_f64().unwrap())),
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(i, value)| numbers(value, &format!("{at}[{i}]"), all));
        }
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !NOT_FOUND.contains(&name.as_str())) {
                numbers(value, &format!("{at}.{name}"), all);
            }
        }
        _ => {}
    }
}

/// The cells of a line (RFC 4180 §2), without their quotes; no text here has a quote in it.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let ends_cell = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    line.split(ends_cell).map(|cell| cell.trim_matches('"')).collect()
}

/// The numbers of the file by measure and DUT.
fn by_measure(text: &str) -> BTreeMap<(String, String), Vec<f64>> {
    let mut all: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells = cells(line);
        let of = all.entry((cells[1].to_owned(), cells[2].to_owned())).or_default();
        of.extend(cells[3..].iter().filter_map(|cell| cell.parse::<f64>().ok()));
    }
    all
}

/// The numbers of `results.json` that the file has not.
fn lacking(run: &Run, text: &str) -> Vec<String> {
    let (json, file) = (serde_json::to_value(&run.results).unwrap(), by_measure(text));
    let mut lacking = Vec::new();
    let mut look = |value: &Value, measure: &str, dut: &str| {
        let mut all = Vec::new();
        numbers(value, measure, &mut all);
        let has = file.get(&(measure.to_owned(), dut.to_owned())).map_or(&[][..], Vec::as_slice);
        lacking.extend(all.into_iter().filter(|(_, n)| !has.contains(n)).map(|(at, n)| format!("{dut} {at}: {n}")));
    };
    look(&json["self_tests"], "self-test", "");
    look(&json["health"], "tester", "");
    look(&json["period_unix_s"], "tester", "");
    for dut in json["duts"].as_array().unwrap() {
        let name = dut["name"].as_str().unwrap();
        let measures = [
            ("points", "search"),
            ("loads", "load"),
            ("constant_rates", "constant rate"),
            ("closed_loops", "closed loop"),
            ("paced", "pacing"),
        ];
        for (key, measure) in measures {
            look(&dut[key], measure, name);
        }
    }
    lacking
}

fn run() -> Run {
    let plan = Plan::load(Path::new("paper-small")).unwrap();
    let mut entries = journal_of(&plan, 15_000, &[(5, Event::Spoiled), (40, Event::Spoiled)]);
    // The simulated tester neither paces nor is robbed.
    for (i, entry) in entries.iter_mut().enumerate() {
        let Entry::Finished(m) = entry else { continue };
        let stolen = net::cpu_time::Stolen { all_pct: i as f64 / 7.0, worst_cpu_pct: i as f64 / 3.0, worst_cpu: 0 };
        m.stolen.dut = Some(stolen);
        if let crate::archive::Found::Trial(trial) = &mut m.found {
            let off = |n: i32| vec![n - i as i32, n + 3];
            trial.windows = Some(method::pacing::Windows {
                stretch_ms: 700,
                least_100ms: off(-901),
                most_100ms: off(901),
                least_10ms: off(-301),
                most_10ms: off(301),
            });
        }
    }
    let results = Results::compute(&plan, &Environment::observe(), &entries);
    assert!(results.complete && results.health.stolen.len() == 1 && results.duts.iter().all(|dut| dut.paced.is_some()));
    Run { name: "here".into(), results, notes: Vec::new() }
}

#[test]
fn every_number_of_the_results_is_in_the_csv() {
    let run = run();
    let text = csv::csv(std::slice::from_ref(&run));
    let width = cells(text.lines().next().unwrap()).len();
    assert!(text.lines().all(|line| cells(line).len() == width));
    let lacking = lacking(&run, &text);
    assert!(lacking.is_empty(), "{} numbers are missing:\n{}", lacking.len(), lacking.join("\n"));
}

/// The test above sees it when a line is missing.
#[test]
fn a_line_that_is_missing_is_noticed() {
    let run = run();
    let text = csv::csv(std::slice::from_ref(&run));
    for quantity in ["rtt_p999", "numa_hit_all", "time_of_256", "allows", "most_10ms_2", "stolen_dut"] {
        let without: Vec<&str> = text.lines().filter(|line| !line.contains(&format!("{quantity}\""))).collect();
        assert!(without.len() < text.lines().count(), "{quantity} is not in it at all");
        assert!(!lacking(&run, &without.join("\n")).is_empty(), "{quantity}");
    }
}
