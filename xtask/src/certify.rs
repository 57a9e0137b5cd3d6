//! `certify`: checks the accuracy of the tester by searching for the rates of reference DUTs with known capacities.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::claims::{Bound, Claims, ResultOptions};
use crate::process::{self, Server};
use crate::servers::{held_up, wait_until_listens};

/// Capacities from 1 k to 100 k queries/s. None of them is a rate that a binary search tests exactly.
const CAPACITIES: [u64; 10] =
    [1_000, 2_154, 3_700, 7_001, 12_345, 20_000, 34_567, 50_000, 70_711, 100_000];

/// Resolution of all searches. It is less than half of the allowed error of 0.5 % at the smallest capacity.
const RESOLUTION: u64 = 2;

/// Maximum error of a result in per cent.
const MOST_OFF_PCT: f64 = 0.5;
/// Maximum share of invalid trials.
const MOST_INVALID: f64 = 0.5;

/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(crate) struct Certify {
    /// Number of searches for each capacity
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Length of each trial in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Test only these capacities
    #[arg(long, value_delimiter = ',')]
    capacities: Option<Vec<u64>>,
    #[command(flatten)]
    keeping: ResultOptions,
}

impl Certify {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = self.keeping.build().dns64bench()?;
        let program = program.to_string_lossy();
        println!(
            "{:>9} {:>9} {:>8} {:>7} {:>8} {:>12}",
            "true", "found", "off", "trials", "invalid", "passed above"
        );
        let mut claims = Claims::default();
        for &capacity in self.capacities.as_deref().unwrap_or(&CAPACITIES) {
            let searched = self.search(&program, capacity);
            let Searched { found, counters } =
                searched.with_context(|| format!("at {capacity} queries/s"))?;
            let row = Row::read(&found, capacity)?;
            println!(
                "{capacity:>9} {:>9} {:>7.3}% {:>7} {:>8} {:>12}",
                row.found, row.off_pct, row.trials, row.invalid, row.passed_above
            );
            row.hold(capacity, held_up(&counters, TIMEOUT)?.as_deref(), &mut claims);
            claims
                .keep(&capacity.to_string(), json!({ "search": found, "reference_dut": counters }));
        }
        claims.conclude(&self.keeping)
    }

    fn search(&self, program: &str, capacity: u64) -> Result<Searched> {
        let port = process::free_port()?;
        let address = format!("[::1]:{port}");
        let server = Server::start(
            program,
            &["reference-dut", "--listen", &address, "--capacity", &capacity.to_string(), "--json"],
        )?;
        wait_until_listens(&[], port)?;
        let folder = tempfile::tempdir()?;
        let journal = folder.path().join("journal").to_string_lossy().into_owned();
        // All searches have the same range, so that the tester has no information about the correct result.
        let (duration, repeat) = (format!("{}s", self.seconds), self.repeat.to_string());
        let (resolution, timeout) = (RESOLUTION.to_string(), format!("{}ms", TIMEOUT.as_millis()));
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
            &timeout,
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
        Ok(Searched {
            found: serde_json::from_str(&printed)?,
            counters: serde_json::from_str(&server.end()?)?,
        })
    }
}

/// Result of a search, and the counters of the server at the end of the search.
struct Searched {
    found: Value,
    counters: Value,
}

/// Result of a search with a server of known capacity.
struct Row {
    found: f64,
    off_pct: f64,
    trials: usize,
    invalid: usize,
    passed_above: usize,
    /// Descriptions of the trials that failed although their rate was below the capacity of the server.
    failed_below: Vec<String>,
}

impl Row {
    fn read(search: &Value, capacity: u64) -> Result<Row> {
        // A search without a passing rate has no median, and its error is the whole capacity.
        let found = match search.get("median").context("the search printed no median")? {
            Value::Null => 0.0,
            median => median.as_f64().context("the median is no number")?,
        };
        let trials = search["trials"].as_array().context("the search printed no trials")?;
        let is = |trial: &&Value, verdict: &str| trial["verdict"] == verdict;
        let above = |trial: &&Value| trial["rate"].as_u64() > Some(capacity);
        let least = capacity as f64 * (1.0 - MOST_OFF_PCT / 100.0);
        let below = |trial: &&Value| trial["rate"].as_f64() < Some(least);
        let failed_below = trials.iter().filter(|trial| is(trial, "failed") && below(trial));
        Ok(Row {
            found,
            off_pct: (found - capacity as f64) / capacity as f64 * 100.0,
            trials: trials.len(),
            invalid: trials.iter().filter(|t| is(t, "invalid")).count(),
            passed_above: trials.iter().filter(|t| is(t, "passed") && above(t)).count(),
            failed_below: failed_below
                .map(|trial| format!("at {}: {}", trial["rate"], trial["reasons"]))
                .collect(),
        })
    }

    /// Compares the result with the capacity. `held_up` is the reason why the server did not reach its capacity, which
    /// may be a fault of the server or of this machine. Such a fault can explain a low result, but cannot explain a
    /// passed trial above the capacity.
    fn hold(&self, capacity: u64, held_up: Option<&str>, claims: &mut Claims) {
        for failed in &self.failed_below {
            println!("          failed {failed}");
        }
        let mut hold = |what: &str, wanted: f64, found: Result<f64, String>| {
            claims.hold(&format!("{capacity} queries/s: {what}"), Bound::AtMost(wanted), found);
        };
        let off = match held_up {
            Some(why) if self.off_pct < -MOST_OFF_PCT => Err(why.to_owned()),
            _ => Ok(self.off_pct.abs()),
        };
        hold("error of the result, %", MOST_OFF_PCT, off);
        hold("trials above the capacity that passed", 0.0, Ok(self.passed_above as f64));
        let invalid = self.invalid as f64 / self.trials as f64;
        hold("share of invalid trials", MOST_INVALID, Ok(invalid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status of `certify` after one search with a server of 10 000 queries/s.
    fn status(median: f64, trials: &[(u64, &str)], held_up: Option<&str>) -> u8 {
        let trial = |(rate, verdict): &(u64, &str)| json!({ "rate": rate, "verdict": verdict });
        let trials: Vec<Value> = trials.iter().map(trial).collect();
        let search = json!({ "median": median, "trials": trials });
        let mut claims = Claims::default();
        Row::read(&search, 10_000).unwrap().hold(10_000, held_up, &mut claims);
        claims.status()
    }

    const FINE: [(u64, &str); 2] = [(9_000, "passed"), (10_001, "failed")];
    const INVALID: [(u64, &str); 3] = [(9_000, "passed"), (9_500, "invalid"), (9_500, "invalid")];

    #[test]
    fn certification_requires_accurate_results() {
        let judge = |median, trials: &[_]| status(median, trials, None);
        assert_eq!((judge(9_960.0, &FINE), judge(10_040.0, &FINE)), (0, 0));
        assert_eq!((judge(9_940.0, &FINE), judge(10_060.0, &FINE)), (1, 1));
        assert_eq!(judge(9_960.0, &[(10_001, "passed")]), 1);
        assert_eq!((judge(9_960.0, &INVALID), judge(9_960.0, &INVALID[..2])), (1, 0));
        assert!(Row::read(&json!({}), 10_000).is_err());
    }

    #[test]
    fn trials_failing_below_capacity_are_reported() {
        let trial = |rate: u64| json!({ "rate": rate, "verdict": "failed", "reasons": ["2 lost"] });
        let trials = [trial(9_949), trial(9_951), trial(10_001)];
        let row = Row::read(&json!({ "median": 9_948.0, "trials": trials }), 10_000).unwrap();
        assert_eq!(row.failed_below, ["at 9949: [\"2 lost\"]"]);
    }

    #[test]
    fn stalled_server_excuses_only_low_results() {
        let judge = |median, trials: &[_]| status(median, trials, Some("its socket was full"));
        assert_eq!(judge(9_940.0, &FINE), 3);
        assert_eq!(judge(9_960.0, &FINE), 0, "a result close to the capacity counts");
        assert_eq!(judge(10_060.0, &FINE), 1);
        assert_eq!(judge(9_940.0, &[(10_001, "passed")]), 1);
        assert_eq!(judge(9_960.0, &INVALID), 1, "the tester is the reason");
    }
}
