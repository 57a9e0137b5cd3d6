//! `versions`: a short campaign with `conform` against each server as the releases of Debian package
//! it.
//!
//! ```text
//! mmdebstrap ─► chroot of a release ─► start script of a server ─► campaign ─► row of the table
//! ```
//!
//! Each server of each release has its own campaign, so a new version that does not work fails in its
//! own row only.

mod chroot;

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use campaign::servers::Dut;
use clap::Args;
use serde_json::Value;

use self::chroot::Chroot;
use crate::packages::is_root;
use crate::process::{self, Build, at_the_same_time, find};

/// A release of Debian.
struct Debian {
    name: &'static str,
    /// Its name on the package servers.
    suite: &'static str,
}

const RELEASES: [Debian; 3] = [
    Debian { name: "Debian 12", suite: "bookworm" },
    Debian { name: "Debian 13", suite: "trixie" },
    Debian { name: "sid", suite: "sid" },
];

/// A server under test.
struct Server {
    dut: Dut,
    /// Its package in each of [`RELEASES`]; `None` where Debian has no package of it.
    packages: [Option<&'static str>; RELEASES.len()],
}

/// CoreDNS is no package of Debian's: it is tried as `cargo xtask packages` installs it.
const SERVERS: [Server; 5] = [
    Server { dut: Dut::Bind, packages: [Some("bind9"); 3] },
    Server { dut: Dut::Unbound, packages: [Some("unbound"); 3] },
    Server { dut: Dut::Powerdns, packages: [Some("pdns-recursor"); 3] },
    Server {
        dut: Dut::KnotResolver,
        packages: [Some("knot-resolver"), Some("knot-resolver"), Some("knot-resolver6")],
    },
    Server { dut: Dut::Coredns, packages: [None; 3] },
];

/// Plan of a campaign: one trial at a low rate, which also a busy machine can carry out, and all
/// checks.
const PLAN: &str = "topology = 'loopback'\n[trial]\nduration = '1s'\ntimeout = '3s'\npause = '0s'\n\
    max-burst = '500us'\nwindow-limit = 10000\nlateness-limit = '5s'\nauth-limit = '5s'\n\
    [search]\nmin = 100\nmax = 100\nresolution = 100\nrepeat = 1\ninvalid-retries = 3\n\
    [measure]\nconform = true\n";
/// Rate of the trial, in queries per second.
const RATE: f64 = 100.0;

/// Campaigns that run at the same time: most of the time they wait.
const AT_ONCE: usize = 4;
/// Time limit of a campaign.
const LIMIT: Duration = Duration::from_secs(900);
/// Attempts of a campaign that the machine spoils.
const ATTEMPTS: usize = 2;
/// Status of a campaign without some of its results, and of this command where it cannot run.
const NOT_MEASURED: i32 = 3;

#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Make the chroots again, also those of this week
    #[arg(long)]
    fresh: bool,
}

impl Versions {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if let Some(reason) = not_run_because() {
            println!("versions: {reason}");
            return Ok(ExitCode::from(NOT_MEASURED as u8));
        }
        let program = Build::Dev.dns64bench()?;
        // Servers may change to users of their own.
        let mode = fs::Permissions::from_mode(0o711);
        let work = tempfile::Builder::new().permissions(mode).tempdir()?;
        let chroots: Vec<Result<Chroot>> = (0..RELEASES.len())
            .map(|at| Chroot::of(RELEASES[at].suite, &packages(at), work.path(), self.fresh))
            .collect();
        let mut rows = at_the_same_time(AT_ONCE, cells().into_iter(), |cell| {
            let found = cell.measure(&program, work.path(), &chroots);
            println!("{}, {}: {}", cell.server().dut.name(), cell.place(), Outcome(&found));
            Row { cell, found }
        });
        rows.sort_by_key(|row| row.cell);
        println!("\n{}", table(&rows));
        let is_empty = |row: &Row| matches!(row.found, Found::Nothing(_));
        Ok(if rows.iter().any(is_empty) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Reason why this machine cannot run the command, or `None` if it can.
fn not_run_because() -> Option<&'static str> {
    match (is_root(), find("mmdebstrap")) {
        (false, _) => Some("chroots take root"),
        (true, None) => Some("not found: mmdebstrap (cargo xtask packages --install)"),
        (true, Some(_)) => None,
    }
}

/// Packages that the chroot of a release has.
fn packages(release: usize) -> Vec<&'static str> {
    SERVERS.iter().filter_map(|server| server.packages[release]).collect()
}

/// A server at a place: a position in [`SERVERS`], and one in [`RELEASES`] or `None` for this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    server: usize,
    release: Option<usize>,
}

/// All cells of the table: each server in each release, and on this host where no release has it.
fn cells() -> Vec<Cell> {
    let of = |server: usize| {
        let is_packaged = SERVERS[server].packages.iter().any(Option::is_some);
        let host = (!is_packaged).then_some(None);
        host.into_iter()
            .chain((0..RELEASES.len()).map(Some))
            .map(move |release| Cell { server, release })
    };
    (0..SERVERS.len()).flat_map(of).collect()
}

impl Cell {
    fn server(self) -> &'static Server {
        &SERVERS[self.server]
    }

    fn place(self) -> &'static str {
        self.release.map_or("this host", |at| RELEASES[at].name)
    }

    /// Runs the campaign of a cell.
    fn measure(self, program: &Path, work: &Path, chroots: &[Result<Chroot>]) -> Found {
        let start = match self.release {
            Some(at) if self.server().packages[at].is_none() => return Found::NotPackaged,
            Some(at) => self.start_script(&chroots[at], work),
            None => self.program().and_then(|name| find(name).context("not installed")),
        };
        let measured = start.and_then(|start| self.campaign(program, work, &start));
        measured.unwrap_or_else(|error| Found::Nothing(format!("{error:#}")))
    }

    /// Name of the server's program.
    fn program(self) -> Result<&'static str> {
        self.server().dut.driver().program_name().context("a driver without a program")
    }

    /// Name of its plan and run folder.
    fn name(self) -> String {
        let place = self.release.map_or("host", |at| RELEASES[at].suite);
        format!("{}-{place}", self.program().unwrap_or_default())
    }

    fn start_script(self, chroot: &Result<Chroot>, work: &Path) -> Result<PathBuf> {
        let chroot = chroot.as_ref().map_err(|error| anyhow::anyhow!("no chroot: {error:#}"))?;
        chroot.start_script(self.program()?, &work.join(format!("{}.sh", self.name())))
    }

    /// Runs a campaign, again if the machine spoils it.
    fn campaign(self, program: &Path, work: &Path, start: &Path) -> Result<Found> {
        let plan = work.join(format!("{}.toml", self.name()));
        let driver = serde_json::to_value(self.server().dut)?;
        let driver = driver.as_str().context("a driver without a name")?;
        let dut = format!("[[dut]]\ndriver = '{driver}'\nprogram = '{}'\n", start.display());
        fs::write(&plan, format!("name = '{}'\n{PLAN}{dut}", self.name()))?;
        let mut attempt = 1;
        loop {
            let folder = work.join(format!("{}-{attempt}", self.name()));
            let [plan, dir] = [&plan, &folder].map(|path| path.to_string_lossy().into_owned());
            let words = ["campaign", "run", &plan, "--dir", &dir, "--quiet"];
            let ran = process::run(program, &words, LIMIT)?;
            if ran.status == Some(NOT_MEASURED) && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            ensure!(ran.status == Some(0), "status {:?}: {}", ran.status, ran.stderr.trim());
            let results = fs::read(folder.join("results.json"))?;
            return found(&serde_json::from_slice(&results)?);
        }
    }
}

/// Content of a cell of the table.
#[derive(Debug, PartialEq)]
enum Found {
    /// The server is not packaged in the release.
    NotPackaged,
    /// No result, with the reason.
    Nothing(String),
    /// A trial that passed, and checks.
    Measured {
        /// Version that the server prints.
        version: String,
        conform: Checks,
    },
}

/// Numbers of checks of level MUST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checks {
    passed: usize,
    failed: usize,
    not_offered: usize,
}

/// Reads what a campaign with one DUT found.
///
/// # Errors
/// If the trial did not pass, or some checks could not be made.
fn found(results: &Value) -> Result<Found> {
    let dut = &results["duts"][0];
    let median = &dut["points"][0]["figures"]["median"];
    ensure!(*median == RATE, "the trial at {RATE} queries/s did not pass: {median}");
    let report = &dut["conform"]["report"];
    let outcomes = report["outcomes"].as_array().context("no checks were made")?;
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
    // What follows in parentheses is no part of the version.
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

/// The table, a line for each cell.
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
    fn every_server_is_tried_somewhere() {
        let cells = cells();
        assert!(cells.is_sorted() && cells.len() == SERVERS.len() * RELEASES.len() + 1);
        for (at, server) in SERVERS.iter().enumerate() {
            let is_tried = |cell: &&Cell| {
                cell.server == at && cell.release.is_none_or(|at| server.packages[at].is_some())
            };
            assert!(cells.iter().filter(is_tried).count() > 0, "{}", server.dut.name());
        }
        for (at, release) in RELEASES.iter().enumerate() {
            assert_eq!(packages(at).len(), 4, "{}", release.name);
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_cell() {
        let conform = Checks { passed: 86, failed: 4, not_offered: 5 };
        let version = "BIND 9.20.30-1~deb13u1-Debian".into();
        let rows = [
            (0, Some(1), Found::Measured { version, conform }),
            (2, Some(2), Found::Nothing("no chroot: no network".into())),
            (4, None, Found::NotPackaged),
        ]
        .map(|(server, release, found)| Row { cell: Cell { server, release }, found });
        assert_eq!(
            table(&rows),
            "BIND           Debian 13  BIND 9.20.30-1~deb13u1-Debian      86 of 95 MUST,  4 failed  smoke passed\n\
             PowerDNS       sid        FAILED: no chroot: no network\n\
             CoreDNS        this host  not packaged\n"
        );
    }
}
