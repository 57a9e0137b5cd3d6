//! `certify`: is what the tester finds the truth? Searches against reference DUTs of known
//! capacity.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::process::{self, Server};
use crate::servers::wait_until_listens;

/// Capacities from 1 k to 100 k queries/s, none of them round for a binary search.
const CAPACITIES: [u64; 10] =
    [1_000, 2_154, 3_700, 7_001, 12_345, 20_000, 34_567, 50_000, 70_711, 100_000];

/// The same for all capacities, and half of what the smallest result may be off: 0.5 % of it.
const RESOLUTION: u64 = 2;

#[derive(Debug, Args)]
pub(crate) struct Certify {
    /// Searches for each capacity
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Length of each trial in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Only these capacities
    #[arg(long, value_delimiter = ',')]
    capacities: Option<Vec<u64>>,
}

impl Certify {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = process::dns64bench()?;
        let program = program.to_string_lossy();
        println!(
            "{:>9} {:>9} {:>8} {:>7} {:>8} {:>12}",
            "true", "found", "off", "trials", "invalid", "passed above"
        );
        let mut good = true;
        for &capacity in self.capacities.as_deref().unwrap_or(&CAPACITIES) {
            let row = self
                .certify_one(&program, capacity)
                .with_context(|| format!("at {capacity} queries/s"))?;
            println!(
                "{capacity:>9} {:>9} {:>7.3}% {:>7} {:>8} {:>12}",
                row.found, row.off_pct, row.trials, row.invalid, row.passed_above
            );
            good &= row.is_good();
        }
        println!(
            "{}",
            if good {
                "every result within 0.5 % of the truth, no trial above it passed"
            } else {
                "NOT CERTIFIED"
            }
        );
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn certify_one(&self, program: &str, capacity: u64) -> Result<Row> {
        let port = process::free_port()?;
        let address = format!("[::1]:{port}");
        let server = Server::start(
            program,
            &["reference-dut", "--listen", &address, "--capacity", &capacity.to_string()],
        )?;
        wait_until_listens(&[], port)?;
        let folder = tempfile::tempdir()?;
        let journal = folder.path().join("journal").to_string_lossy().into_owned();
        // The range is the same for all: the tester is told nothing about the truth.
        let (duration, repeat) = (format!("{}s", self.seconds), self.repeat.to_string());
        let resolution = RESOLUTION.to_string();
        let search = [
            "search",
            "--server",
            &address,
            "--min",
            "500",
            "--max",
            "131072",
            "--resolution",
            &resolution,
            "--repeat",
            &repeat,
            "--duration",
            &duration,
            "--timeout",
            "250ms",
            "--pause",
            "150ms",
            "--expect-prefix",
            "64:ff9b::/96",
            "--invalid-retries",
            "8",
            "--journal",
            &journal,
            "--json",
            "--quiet",
        ];
        let printed = process::output(program, &search, Duration::from_secs(600))?;
        server.end()?;
        Row::read(&serde_json::from_str(&printed)?, capacity)
    }
}

struct Row {
    found: f64,
    off_pct: f64,
    trials: usize,
    invalid: usize,
    passed_above: usize,
}

impl Row {
    /// Whether the tester found the truth, by trials most of which it did not spoil itself.
    fn is_good(&self) -> bool {
        self.off_pct.abs() <= 0.5 && self.passed_above == 0 && self.invalid * 2 <= self.trials
    }

    fn read(search: &Value, capacity: u64) -> Result<Row> {
        let found = search["median"].as_f64().context("the search printed no median")?;
        let trials = search["trials"].as_array().context("the search printed no trials")?;
        let is = |trial: &&Value, verdict: &str| trial["verdict"] == verdict;
        let above = |trial: &&Value| trial["rate"].as_u64() > Some(capacity);
        Ok(Row {
            found,
            off_pct: (found - capacity as f64) / capacity as f64 * 100.0,
            trials: trials.len(),
            invalid: trials.iter().filter(|t| is(t, "invalid")).count(),
            passed_above: trials.iter().filter(|t| is(t, "passed") && above(t)).count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_near_the_truth_and_never_passed_above_it_is_certified() {
        let row = |median: f64, trials: &[(u64, &str)]| {
            let trial = |(rate, verdict): &(u64, &str)| json!({ "rate": rate, "verdict": verdict });
            let trials: Vec<Value> = trials.iter().map(trial).collect();
            Row::read(&json!({ "median": median, "trials": trials }), 10_000).unwrap().is_good()
        };
        let fine = [(9_000, "passed"), (10_001, "failed")];
        assert!(row(9_960.0, &fine) && row(10_040.0, &fine));
        assert!(!row(9_940.0, &fine) && !row(10_060.0, &fine));
        assert!(!row(9_960.0, &[(10_001, "passed")]));
        let spoiled = [(9_000, "passed"), (9_500, "invalid"), (9_500, "invalid")];
        assert!(!row(9_960.0, &spoiled) && row(9_960.0, &spoiled[..2]));
        assert!(Row::read(&json!({}), 10_000).is_err());
    }
}
