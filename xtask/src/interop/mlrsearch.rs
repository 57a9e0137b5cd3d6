//! Comparison of our MLRsearch with the implementation of its authors (MLRsearch 1.2.1 on PyPI), with 1 000 simulated
//! servers.
//!
//! The two implementations choose different sequences of trials. Given the same trials, both must classify each load in
//! the same way for each goal. The bounds that each of them finds must be correct bounds of the same server.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use method::mlr::goal::Goal;
use method::mlr::search::{Limits, MlrSearch};
use method::mlr::tally::{LoadClass, Trial, classify};
use method::records::Counts;
use method::verdict::Verdict;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use units::{Nanos, Qps};

use super::harness::{Bench, LIMIT};
use super::tally::Skipped;
use super::test::Test;
use crate::process;

pub(super) static TESTS: &[Test] = &[Test::new(
    "MLRsearch compared with its authors' implementation, 1 000 simulated servers",
    &["python3"],
    mlrsearch,
)
.downloading()];

const PACKAGE: &str = "MLRsearch==1.2.1";
const SCRIPT: &str = include_str!("mlrsearch.py");
const SERVERS: u64 = 1_000;
const LIMITS: Limits = Limits { min: Qps(100), max: Qps(131_072), invalid_retries: 0 };

/// A server that loses all queries above its capacity. Above a given rate, it also loses a fixed share of queries.
struct Simulated {
    capacity: f64,
    floor_from: f64,
    floor: f64,
}

impl Simulated {
    fn any(chance: &mut StdRng) -> Simulated {
        let [capacity, floor_from, floor]: [f64; 3] = chance.random();
        let capacity = 150.0 * 800f64.powf(capacity);
        Simulated { capacity, floor_from: capacity * (0.3 + floor_from), floor: 0.01 * floor }
    }

    fn loses(&self, rate: f64) -> f64 {
        let floor = if rate >= self.floor_from { self.floor } else { 0.0 };
        (1.0 - self.capacity / rate).max(floor)
    }
}

fn goals() -> [Goal; 3] {
    let seconds = |n: u64| Nanos(n * Nanos::SECOND.0);
    let strict = Goal::rfc8219(seconds(60), 0.005);
    let half = Goal { loss_ratio: 0.005, exceed_ratio: 0.5, duration_sum: seconds(120), ..strict };
    let short = Goal {
        loss_ratio: 0.001,
        exceed_ratio: 0.25,
        final_duration: seconds(1),
        duration_sum: seconds(21),
        ..strict
    };
    [strict, half, short]
}

/// Runs our search with a server. Every twentieth trial loses more queries than the server would, so that not all
/// classes are clear.
fn searched(server: &Simulated, chance: &mut StdRng) -> Result<(MlrSearch, Vec<Value>)> {
    let mut search = MlrSearch::new(LIMITS, &goals())?;
    let mut trials = Vec::new();
    while let Some(due) = search.due() {
        ensure!(trials.len() < 5_000, "the search does not end");
        let sent = (due.rate.0 as f64 * due.duration.as_secs_f64()).round() as u64;
        let flaky = if chance.random_bool(0.05) { 0.02 } else { 0.0 };
        let missing = (server.loses(due.rate.0 as f64).max(flaky) * sent as f64).ceil() as u64;
        trials.push(json!([due.rate.0, due.duration.as_secs_f64(), missing, sent]));
        search.report(
            Verdict::Passed,
            &Counts { sent, valid: sent - missing, lost: missing, ..Counts::default() },
        );
    }
    Ok((search, trials))
}

fn mlrsearch(bench: &Bench) -> Result<()> {
    let modules = bench.path("mlrsearch");
    let install = [
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--target",
        &modules,
        PACKAGE,
    ];
    if process::output("python3", &install, LIMIT).is_err() {
        return Err(Skipped(format!("pip cannot install {PACKAGE}")).into());
    }
    // The seed is fixed, so that each run uses the same servers.
    let mut chance = StdRng::seed_from_u64(9971);
    let mut ours = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        let server = Simulated::any(&mut chance);
        let (search, trials) = searched(&server, &mut chance)?;
        servers.push(json!({
            "goals": goals().iter().map(as_typed).collect::<Vec<_>>(),
            "min": LIMITS.min, "max": LIMITS.max,
            "capacity": server.capacity, "floor_from": server.floor_from, "floor": server.floor,
            "trials": trials,
        }));
        ours.push((server, search));
    }
    let script = bench.file("mlrsearch.py", SCRIPT)?;
    let theirs: Vec<Value> =
        serde_json::from_str(&asked(&script, &modules, &json!({ "servers": servers }))?)?;
    ensure!(theirs.len() == ours.len(), "{} answers for {} servers", theirs.len(), ours.len());
    for ((server, search), theirs) in ours.iter().zip(&theirs) {
        agree(search, &theirs["classes"])?;
        for (goal, bounds) in goals().iter().zip(theirs["bounds"].as_array().context("no bounds")?)
        {
            are_bounds(server, goal, bounds[0].as_f64(), bounds[1].as_f64())?;
        }
        steady(server)?;
    }
    Ok(())
}

fn as_typed(goal: &Goal) -> Value {
    let [initial, last, sum] =
        [goal.initial_duration, goal.final_duration, goal.duration_sum].map(Nanos::as_secs_f64);
    json!({
        "loss_ratio": goal.loss_ratio, "exceed_ratio": goal.exceed_ratio, "width": goal.width,
        "initial_s": initial, "final_s": last, "sum_s": sum,
    })
}

/// Runs the Python script with the modules in `modules` and with `input` as standard input, and returns its output.
fn asked(script: &str, modules: &str, input: &Value) -> Result<String> {
    let mut python = Command::new("python3");
    python.arg(script).env("PYTHONPATH", modules).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = python.spawn().context("python3")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    // The script reads all input before it writes.
    stdin.write_all(input.to_string().as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "mlrsearch.py ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Requires that, for each load and each goal, the class is the same as the one that the authors' library computes from
/// the same trials.
fn agree(search: &MlrSearch, classes: &Value) -> Result<()> {
    for (load, trials) in search.loads() {
        let theirs = classes[load.to_string()]
            .as_array()
            .with_context(|| format!("nothing about {load}"))?;
        for (goal, theirs) in goals().iter().zip(theirs) {
            let ours = word(goal, trials);
            ensure!(
                theirs == ours,
                "{load} queries/s with {trials:?} is {ours} for us and {theirs} for them: {goal:?}"
            );
        }
    }
    Ok(())
}

fn word(goal: &Goal, trials: &[Trial]) -> &'static str {
    match classify(goal, trials) {
        LoadClass::Lower => "lower",
        LoadClass::Upper => "upper",
        LoadClass::Undecided => "undecided",
    }
}

/// Runs our search with the same server, without flaky trials. The search must find correct bounds of the server.
fn steady(server: &Simulated) -> Result<()> {
    let mut search = MlrSearch::new(LIMITS, &goals())?;
    while let Some(due) = search.due() {
        let sent = 1_000_000_000;
        let missing = (server.loses(due.rate.0 as f64) * sent as f64).round() as u64;
        search.report(
            Verdict::Passed,
            &Counts { sent, valid: sent - missing, lost: missing, ..Counts::default() },
        );
    }
    for found in search.result().context("the search is over")? {
        let [lower, upper] =
            [found.relevant_lower_bound, found.relevant_upper_bound].map(|b| b.map(|b| b.0 as f64));
        are_bounds(server, &found.goal, lower, upper)?;
    }
    Ok(())
}

/// Returns true if the server meets the goal at `lower` and not at `upper`.
fn are_bounds(
    server: &Simulated,
    goal: &Goal,
    lower: Option<f64>,
    upper: Option<f64>,
) -> Result<()> {
    // Loss is counted in billionths.
    let loses = |rate: f64| (server.loses(rate) * 1e9).round() / 1e9;
    let meets = |rate: f64| loses(rate) <= goal.loss_ratio;
    let [min, max] = [LIMITS.min, LIMITS.max].map(|rate| rate.0 as f64);
    match (lower, upper) {
        (Some(lower), Some(upper)) => ensure!(
            upper > lower && upper - lower <= goal.width * upper + 1.0,
            "{lower} and {upper} are further apart than {goal:?} allows"
        ),
        (Some(lower), None) => ensure!(
            meets(max) && lower == max,
            "{lower} has no upper bound, although {max} does not meet {goal:?}"
        ),
        (None, Some(upper)) => ensure!(
            !meets(min) && upper == min,
            "{upper} has no lower bound, although {min} meets {goal:?}"
        ),
        (None, None) => bail!("nothing found for {goal:?}"),
    }
    ensure!(
        lower.is_none_or(meets),
        "{lower:?} is no lower bound for {goal:?}, which loses {:?}",
        lower.map(loses)
    );
    ensure!(
        !upper.is_some_and(meets),
        "{upper:?} is no upper bound for {goal:?}, which loses {:?}",
        upper.map(loses)
    );
    Ok(())
}
