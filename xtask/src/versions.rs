//! `versions`: runs a short campaign with `conform` for each server, in the version that each Debian release packages.
//!
//! ```text
//! mmdebstrap ─► chroot of a release ─► start script of a server ─► campaign ─► row of the table
//! ```
//!
//! There is a separate campaign for each server of each release, so that a new version that does not work affects only
//! one row of the table.

pub(crate) mod cell;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use self::cell::{AT_ONCE, Cell, NOT_MEASURED, RATE, Site};
use crate::chroot;
use crate::process::{Build, at_the_same_time};

#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Recreate all chroots, even those that were created this week
    #[arg(long)]
    fresh: bool,
}

impl Versions {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if let Some(reason) = chroot::not_run_because() {
            println!("versions: {reason}");
            return Ok(ExitCode::from(NOT_MEASURED as u8));
        }
        let site = Site::new(Build::Dev.dns64bench()?, self.fresh)?;
        let mut rows = at_the_same_time(AT_ONCE, cell::cells().into_iter(), |cell| {
            let found = measure(cell, &site);
            println!("{}, {}: {}", cell.server().dut.name(), cell.place(), Outcome(&found));
            Row { cell, found }
        });
        rows.sort_by_key(|row| row.cell);
        println!("\n{}", table(&rows));
        let is_empty = |row: &Row| matches!(row.found, Found::Nothing(_));
        Ok(if rows.iter().any(is_empty) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Runs the campaign of a cell.
fn measure(cell: Cell, site: &Site) -> Found {
    let Some(start) = cell.start(site) else { return Found::NotPackaged };
    let measured = start.and_then(|start| read(&cell.check(site, &start)?));
    measured.unwrap_or_else(|error| Found::Nothing(format!("{error:#}")))
}

/// Reads the results of a campaign's folder.
fn read(folder: &Path) -> Result<Found> {
    found(&serde_json::from_slice(&std::fs::read(folder.join("results.json"))?)?)
}

/// Content of a cell of the table.
#[derive(Debug, PartialEq)]
enum Found {
    /// The server is not packaged in the release.
    NotPackaged,
    /// No result, with the reason.
    Nothing(String),
    /// The trial passed and the checks were run.
    Measured {
        /// Version that the server reports.
        version: String,
        conform: Checks,
    },
}

/// Numbers of checks with the level MUST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checks {
    passed: usize,
    failed: usize,
    not_offered: usize,
}

/// Reads the results of a campaign with one DUT.
///
/// # Errors
/// Returns an error if the trial did not pass, or if any check could not be run.
fn found(results: &Value) -> Result<Found> {
    let dut = &results["duts"][0];
    let median = &dut["points"][0]["figures"]["median"];
    ensure!(*median == RATE, "the trial at {RATE} queries/s did not pass: {median}");
    let report = &dut["conform"]["report"];
    let outcomes = report["outcomes"].as_array().context("no checks were run")?;
    let verdicts: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome["level"] == "must")
        .filter_map(|outcome| outcome["verdict"].as_str())
        .collect();
    let count = |verdict: &str| verdicts.iter().filter(|other| **other == verdict).count();
    let not_tried = count("not-tried");
    ensure!(!verdicts.is_empty() && not_tried == 0, "{not_tried} checks were not tried");
    let conform = Checks {
        passed: count("passed"),
        failed: count("failed"),
        not_offered: count("not-offered"),
    };
    // The text in parentheses is not part of the version.
    let version = dut["version"].as_str().context("no version")?;
    let version = version.split(" (").next().unwrap_or(version).to_owned();
    Ok(Found::Measured { version, conform })
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    cell: Cell,
    found: Found,
}

/// Result of a cell in one line.
struct Outcome<'a>(&'a Found);

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Found::NotPackaged => f.write_str("not packaged"),
            Found::Nothing(reason) => write!(f, "FAILED: {reason}"),
            Found::Measured { version, conform } => {
                let Checks { passed, failed, not_offered } = conform;
                let all = passed + failed + not_offered;
                write!(
                    f,
                    "{version:<32}  {passed:>3} of {all} MUST, {failed:>2} failed  smoke passed"
                )
            }
        }
    }
}

/// Returns the table, which has a line for each cell.
fn table(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let (name, place) = (row.cell.server().dut.name(), row.cell.place());
        format!("{name:<14} {place:<10} {}\n", Outcome(&row.found))
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results(median: Option<f64>, verdicts: &[&str]) -> Value {
        let outcome = |verdict: &&str| json!({ "level": "must", "verdict": verdict });
        let mut outcomes: Vec<Value> = verdicts.iter().map(outcome).collect();
        outcomes.push(json!({ "level": "should", "verdict": "failed" }));
        json!({ "duts": [{
            "version": "BIND 9.20.30 (Stable Release) <id:>",
            "points": [{ "figures": { "median": median } }],
            "conform": { "report": { "outcomes": outcomes } },
        }] })
    }

    #[test]
    fn a_cell_has_a_passed_trial_and_all_checks() {
        let all = ["passed", "passed", "failed", "not-offered"];
        let conform = Checks { passed: 2, failed: 1, not_offered: 1 };
        let expected = Found::Measured { version: "BIND 9.20.30".into(), conform };
        assert_eq!(found(&results(Some(100.0), &all)).unwrap(), expected);
        for (results, reason) in [
            (results(None, &all), "did not pass"),
            (results(Some(100.0), &["passed", "not-tried"]), "1 checks were not tried"),
            (results(Some(100.0), &[]), "not tried"),
            (json!({ "duts": [{ "points": [{ "figures": { "median": 100.0 } }] }] }), "no checks"),
        ] {
            let why = found(&results).unwrap_err().to_string();
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_cell() {
        let conform = Checks { passed: 86, failed: 4, not_offered: 5 };
        let version = "BIND 9.20.30-1~deb13u1-Debian".into();
        let rows = [
            (1, Some(1), Found::Measured { version, conform }),
            (3, Some(2), Found::Nothing("no chroot: no network".into())),
            (5, None, Found::NotPackaged),
        ]
        .map(|(server, release, found)| Row { cell: Cell::of(server, release), found });
        assert_eq!(
            table(&rows),
            "BIND           Debian 13  BIND 9.20.30-1~deb13u1-Debian      86 of 95 MUST,  4 failed  smoke passed\n\
             PowerDNS       sid        FAILED: no chroot: no network\n\
             CoreDNS        this host  not packaged\n"
        );
    }
}
