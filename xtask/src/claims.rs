//! Claims of the documentation, and their comparison with measurements. The results are saved with all data needed to
//! verify them.
//!
//! ```text
//! measured ─► Claim: at least / at most ─► kept │ missed │ invalidated (by this machine) ─► status 0 │ 1 │ 3
//!         └─► raw data, command, host ────────────────────────────────────────────────► --save FILE
//! ```

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Args;
use hosts::environment::Environment;
use hosts::new_file::write_json;
use serde_json::{Map, Value, json};

use crate::process::{self, Build};

/// Exit status if the tester or this machine prevented a measurement.
const NOT_MEASURED: u8 = 3;

/// Options for reporting and saving results.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResultOptions {
    /// Only print the results; the status is 0 for any result
    #[arg(long)]
    report: bool,
    /// Write the raw data, the command, the host and the claims to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

impl ResultOptions {
    /// Returns the build to measure. Results that are saved must be measured with the build profile of the packages.
    pub(crate) fn build(&self) -> Build {
        if self.save.is_some() { Build::Dist } else { Build::Release }
    }
}

/// Error of a measurement that the tester or this machine prevented; contains the reason. It is not a result of the
/// measured program.
#[derive(Debug)]
pub(crate) struct NotDecided(pub(crate) String);

impl fmt::Display for NotDecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not decided: {}", self.0)
    }
}

impl Error for NotDecided {}

/// Returns the exit status of a benchmark. The status is 3 if the benchmark ended with [`NotDecided`].
pub(crate) fn status_of(ended: Result<ExitCode>) -> Result<ExitCode> {
    match ended {
        Err(error) if error.is::<NotDecided>() => {
            println!("{error:#}");
            Ok(ExitCode::from(NOT_MEASURED))
        }
        ended => ended,
    }
}

/// Claim about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// The figure must be at least this value.
    AtLeast(f64),
    /// The figure must be at most this value.
    AtMost(f64),
}

impl Bound {
    fn is_met(self, found: f64) -> bool {
        match self {
            Bound::AtLeast(least) => found >= least,
            Bound::AtMost(most) => found <= most,
        }
    }

    fn words(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("at least {least}"),
            Bound::AtMost(most) => format!("at most {most}"),
        }
    }
}

/// Outcome of a claim.
#[derive(Clone, Debug, PartialEq)]
enum ClaimOutcome {
    Kept(f64),
    Missed(f64),
    /// The tester or this machine prevented the measurement; contains the reason.
    Invalid(String),
}

/// Claims and raw data of one benchmark.
#[derive(Default)]
pub(crate) struct Claims {
    all: Vec<(String, Bound, ClaimOutcome)>,
    raw: Map<String, Value>,
}

impl Claims {
    /// Compares a figure with its claim. `Err` contains the reason why there is no figure.
    pub(crate) fn hold(&mut self, what: &str, wanted: Bound, found: Result<f64, String>) {
        let outcome = match found {
            Ok(found) if wanted.is_met(found) => ClaimOutcome::Kept(found),
            Ok(found) => ClaimOutcome::Missed(found),
            Err(why) => ClaimOutcome::Invalid(why),
        };
        self.all.push((what.to_owned(), wanted, outcome));
    }

    /// Adds raw data with a name.
    pub(crate) fn keep(&mut self, name: &str, data: Value) {
        self.raw.insert(name.to_owned(), data);
    }

    /// Prints all claims, saves the data if requested, and returns the status. The status is 1 if a claim is missed.
    /// Otherwise it is 3 if a claim could not be measured, and 0 if all claims are kept.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn conclude(&self, keeping: &ResultOptions) -> Result<ExitCode> {
        println!("\nClaims");
        for (what, wanted, outcome) in &self.all {
            let (word, found) = match outcome {
                ClaimOutcome::Kept(found) => ("kept", format!("{found:.3}")),
                ClaimOutcome::Missed(found) => ("MISSED", format!("{found:.3}")),
                ClaimOutcome::Invalid(why) => ("INVALID", why.clone()),
            };
            println!("  {word:<8} {what}: {found} ({} wanted)", wanted.words());
        }
        if let Some(path) = &keeping.save {
            self.save(path)?;
        }
        Ok(if keeping.report { ExitCode::SUCCESS } else { ExitCode::from(self.status()) })
    }

    pub(crate) fn status(&self) -> u8 {
        let any = |is: fn(&ClaimOutcome) -> bool| self.all.iter().any(|(.., outcome)| is(outcome));
        match (
            any(|o| matches!(o, ClaimOutcome::Missed(_))),
            any(|o| matches!(o, ClaimOutcome::Invalid(_))),
        ) {
            (true, _) => 1,
            (false, true) => NOT_MEASURED,
            (false, false) => 0,
        }
    }

    fn save(&self, path: &Path) -> Result<()> {
        let claims = self.all.iter().map(|(what, wanted, outcome)| {
            let (word, found, why) = match outcome {
                ClaimOutcome::Kept(found) => ("kept", Some(*found), None),
                ClaimOutcome::Missed(found) => ("missed", Some(*found), None),
                ClaimOutcome::Invalid(why) => ("spoiled", None, Some(why)),
            };
            json!({ "claim": what, "wanted": wanted.words(), "found": found, "outcome": word, "why": why })
        });
        let saved = json!({
            "command": std::env::args().collect::<Vec<_>>(),
            "date_unix_s": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            "source": source(),
            "host": Environment::observe(),
            "claims": claims.collect::<Vec<_>>(),
            "raw": self.raw,
        });
        write_json(path, &saved)
            .with_context(|| format!("cannot save the figures in {}", path.display()))?;
        println!("Saved in {}", path.display());
        Ok(())
    }
}

/// Time limit of a git command.
const GIT_LIMIT: Duration = Duration::from_secs(30);

/// Returns the measured commit, and whether the working tree was modified.
fn source() -> Value {
    let root = process::root().to_string_lossy().into_owned();
    let git = |args: &[&str]| {
        let args = [&["-C", &root][..], args].concat();
        process::output("git", &args, GIT_LIMIT).ok().map(|said| said.trim().to_owned())
    };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).map(|said| !said.is_empty());
    json!({ "commit": git(&["rev-parse", "HEAD"]), "changed": changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_and_unmeasured_claims_are_no_success() {
        let hold = |found: &[Result<f64, String>]| {
            let mut claims = Claims::default();
            found.iter().for_each(|found| claims.hold("ratio", Bound::AtLeast(5.0), found.clone()));
            claims.status()
        };
        assert_eq!(hold(&[Ok(5.0), Ok(7.5)]), 0);
        assert_eq!(hold(&[Ok(5.0), Ok(4.99)]), 1);
        assert_eq!(hold(&[Ok(5.0), Err("stolen".into())]), 3);
        assert_eq!(hold(&[Ok(4.0), Err("stolen".into())]), 1);
        assert!(Bound::AtMost(1.0).is_met(1.0) && !Bound::AtMost(1.0).is_met(1.01));
        assert!(!Bound::AtLeast(1.0).is_met(f64::NAN) && !Bound::AtMost(1.0).is_met(f64::NAN));
    }

    #[test]
    fn saved_file_has_command_host_and_raw_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("saved.json");
        let mut claims = Claims::default();
        claims.hold("p99", Bound::AtMost(1.0), Ok(2.0));
        claims.keep("rounds", json!([1, 2, 3]));
        let keeping = |report| ResultOptions { report, save: Some(path.clone()) };
        let status = |code: ExitCode| format!("{code:?}");
        assert_eq!(status(claims.conclude(&keeping(false)).unwrap()), status(ExitCode::FAILURE));
        assert_eq!(status(claims.conclude(&keeping(true)).unwrap()), status(ExitCode::SUCCESS));
        let saved: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(
            (&saved["raw"]["rounds"][2], &saved["claims"][0]["outcome"]),
            (&3.into(), &"missed".into())
        );
        assert!(
            saved["host"]["cpus"].as_u64() > Some(0)
                && !saved["command"].as_array().unwrap().is_empty()
        );
    }
}
