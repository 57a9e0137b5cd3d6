//! Lab for the benchmarks. AuthDNS runs in a separate namespace of the lab.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use method::search::{Found, Search, SearchRange};
use method::verdict::Verdict;
use serde::Deserialize;
use serde_json::Value;
use units::Qps;

use crate::claims::NotDecided;
use crate::process::{self, Build, Server, output};
use crate::servers::wait_until_listens;

pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// AuthDNS's address on the self-test link of the lab.
pub(super) const AUTH: &str = "198.18.1.2";

/// The lab and the processes in it.
pub(crate) struct Lab {
    pub(crate) program: String,
    pub(crate) ours: String,
    pub(crate) folder: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn up(build: Build) -> Result<Lab> {
        let program = build.dns64bench()?;
        process::cargo(&["build", "--release", "--quiet", "-p", "xtask"])?;
        Lab::up_with(&program, &process::target().join("release/xtask"))
    }

    /// Sets up the lab with existing builds of dns64bench and xtask.
    pub(crate) fn up_with(program: &Path, ours: &Path) -> Result<Lab> {
        let [program, ours] = [program, ours].map(|path| path.to_string_lossy().into_owned());
        output(&program, &["lab", "up"], LIMIT)?;
        Ok(Lab { program, ours, folder: tempfile::tempdir()? })
    }

    pub(crate) fn exec<'a>(&'a self, host: &'a str, command: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "exec", host, "--"], command].concat()
    }

    pub(crate) fn serve(&self, command: &[&str]) -> Result<Server> {
        let server = Server::start(&self.program, &self.exec("auth", command))?;
        wait_until_listens(&[&[self.program.as_str()], &self.exec("auth", &[])[..]].concat(), 53)?;
        Ok(server)
    }

    /// Starts the AuthDNS of the build `program` with one thread. All names have AAAA records.
    pub(crate) fn serve_authdns(&self, program: &str, more: &[&str]) -> Result<Server> {
        let listen = format!("{AUTH}:53");
        let words = [program, "auth", "--listen", &listen, "--aaaa-share", "1", "--threads", "1"];
        self.serve(&[&words[..], more].concat())
    }

    /// Runs the Measurer in `tester` directly against an AuthDNS with AAAA records for all names. Returns the result of
    /// the trial, whatever the verdict.
    pub(crate) fn measure(&self, more: &[&str]) -> Result<Value> {
        self.measure_with(&[&["--aaaa-share", "1"], more].concat())
    }

    /// Runs the Measurer against a DNS64 server, with names that have no AAAA records.
    pub(crate) fn measure_names_without_aaaa(&self, more: &[&str]) -> Result<Value> {
        self.measure_with(&[&["--expect-prefix", "64:ff9b::/96"], more].concat())
    }

    pub(crate) fn measure_with(&self, more: &[&str]) -> Result<Value> {
        let common = [&self.program, "measure", "--json", "--quiet"];
        // The default timeout is one second, however short the trial is.
        let patience: &[&str] =
            if more.contains(&"--timeout") { &[] } else { &["--timeout", "1s"] };
        let args = self.exec("tester", &[&common[..], more, patience].concat());
        let ran = process::run(&self.program, &args, LIMIT)?;
        serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = output(&self.program, &["lab", "down"], LIMIT);
    }
}

/// Returns the reasons why a trial did not pass.
pub(crate) fn reasons(trial: &Value) -> String {
    let words = trial["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join("; ")
}

/// Returns the verdict of a trial.
pub(crate) fn verdict(trial: &Value) -> Result<Verdict> {
    Verdict::deserialize(&trial["verdict"]).with_context(|| trial.to_string())
}

/// Maximum number of repetitions of invalid trials at a rate. This is the default of `dns64bench search`.
const INVALID_RETRIES: u32 = 3;
/// Number of valid trials at a rate. The number is odd, because the majority decides.
const TRIES: u32 = 5;
/// Range and resolution of [`highest`]. [`majority`] repeats invalid trials, so the search does not.
const RANGE: SearchRange =
    SearchRange { min: Qps(2_000), max: Qps(600_000), resolution: Qps(5_000), invalid_retries: 0 };

/// Runs a trial, and repeats it while the tester invalidates it. The argument of `trial` is the number of the attempt,
/// from 0.
///
/// # Errors
/// Returns [`NotDecided`] if all attempts are invalid.
pub(crate) fn valid_trial(mut trial: impl FnMut(u32) -> Result<Value>) -> Result<Value> {
    let mut reason = String::new();
    for attempt in 0..=INVALID_RETRIES {
        let trial = trial(attempt)?;
        if verdict(&trial)? != Verdict::Invalid {
            return Ok(trial);
        }
        reason = reasons(&trial);
        println!("INVALID trial: {reason}");
    }
    bail!(NotDecided(format!("{} trials were invalid: {reason}", INVALID_RETRIES + 1)))
}

/// Searches for the highest rate that passes in most of [`TRIES`] valid trials, as `dns64bench search` does. If too many
/// trials at a rate are invalid, the search continues below this rate, and the result is a lower bound.
pub(super) fn highest(mut trial: impl FnMut(u64) -> Result<Verdict>) -> Result<Found> {
    let mut search = Search::new(RANGE);
    loop {
        if let Some(found) = search.result() {
            return Ok(found);
        }
        let rate = search.next().context("a search without a result has a next rate")?;
        search.report(majority(|| trial(rate.0))?);
    }
}

/// Returns the verdict of most of [`TRIES`] valid trials. This machine is noisy, and a rate that passes once in five
/// trials is not sustained. Returns [`Verdict::Invalid`] after more than [`INVALID_RETRIES`] invalid trials.
fn majority(mut trial: impl FnMut() -> Result<Verdict>) -> Result<Verdict> {
    let (mut passed, mut failed, mut invalid) = (0, 0, 0);
    loop {
        let verdict = trial()?;
        let (count, most) = match verdict {
            Verdict::Passed => (&mut passed, TRIES / 2),
            Verdict::Failed => (&mut failed, TRIES / 2),
            Verdict::Invalid => (&mut invalid, INVALID_RETRIES),
        };
        *count += 1;
        if *count > most {
            return Ok(verdict);
        }
    }
}

/// Returns the ratio of two highest rates, if it decides whether the ratio is `at_least`. If a rate is a lower bound, it
/// proves no low ratio as the dividend, and no high ratio as the divisor.
pub(super) fn ratio(ours: &Found, theirs: &Found, at_least: f64) -> Result<f64, String> {
    let divisor = theirs.highest.ok_or_else(|| {
        NotDecided("no rate of the program to compare with passed".into()).to_string()
    })?;
    let ratio = ours.highest.map_or(0.0, |highest| highest.0 as f64 / divisor.0 as f64);
    let decisive = if ratio < at_least { ours } else { theirs };
    if decisive.lower_bound {
        return Err(NotDecided(format!("ratio {ratio:.2} with {}", words(decisive))).to_string());
    }
    Ok(ratio)
}

/// Returns the result of [`highest`] in words.
pub(super) fn words(found: &Found) -> String {
    let rate = found.highest.unwrap_or(Qps(0));
    match found.unmeasurable {
        None if found.lower_bound => format!("at least {rate}"),
        None => rate.to_string(),
        Some(limit) => format!("at least {rate} (too many trials at {limit} were invalid)"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Searches with a tester that measures rates up to `limit` in three of four trials, and no rate above it. The
    /// server answers all queries up to the rate `capacity`.
    fn search(capacity: u64, limit: u64) -> Found {
        let mut trials = 0;
        highest(|rate| {
            trials += 1;
            Ok(match rate {
                _ if rate > limit || trials % 4 == 0 => Verdict::Invalid,
                _ if rate > capacity => Verdict::Failed,
                _ => Verdict::Passed,
            })
        })
        .unwrap()
    }

    #[test]
    fn the_highest_rate_is_one_that_passes_mostly() {
        let search = |of_five: u64| {
            let mut tries = 0;
            let found = highest(|rate| {
                tries += 1;
                let passed = rate <= 100_000 || (rate <= 200_000 && tries % 5 < of_five);
                Ok(if passed { Verdict::Passed } else { Verdict::Failed })
            });
            found.unwrap().highest.unwrap().0
        };
        assert!((90_000..=100_000).contains(&search(1)), "{}", search(1));
        assert!((185_000..=200_000).contains(&search(5)), "{}", search(5));
    }

    #[test]
    fn invalid_trials_do_not_lower_the_highest_rate() {
        let found = search(100_000, u64::MAX);
        assert!((95_000..=100_000).contains(&found.highest.unwrap().0), "{found:?}");
        assert_eq!(found.unmeasurable, None);
        let nothing = search(100_000, 0);
        assert_eq!((nothing.highest, nothing.unmeasurable), (None, Some(Qps(2_000))));
    }

    #[test]
    fn a_rate_limited_by_invalid_trials_proves_no_low_ratio() {
        let (theirs, limited) = (search(60_000, u64::MAX), search(300_000, 8_000));
        let refused = ratio(&limited, &theirs, 3.0).unwrap_err();
        assert!(refused.starts_with("not decided: "), "{refused}");
        assert!(words(&limited).starts_with("at least "), "{}", words(&limited));
        for (ours, theirs) in [(&search(0, 0), &theirs), (&theirs, &search(0, u64::MAX))] {
            assert!(ratio(ours, theirs, 3.0).is_err());
        }
        // A lower bound is enough for a high ratio, and a failed rate decides any ratio.
        assert!(ratio(&search(300_000, 250_000), &theirs, 3.0).unwrap() > 3.0);
        assert!(ratio(&search(8_000, u64::MAX), &theirs, 3.0).unwrap() < 1.0);
        assert!(ratio(&search(300_000, u64::MAX), &limited, 3.0).is_err());
    }

    #[test]
    fn invalid_trials_are_repeated_then_not_decided() {
        let run = |invalid: u32| {
            let mut trials = 0;
            let trial = valid_trial(|attempt| {
                assert_eq!(attempt, trials);
                trials += 1;
                let verdict = if trials > invalid { "failed" } else { "invalid" };
                Ok(json!({ "verdict": verdict, "reasons": ["late"] }))
            });
            (trial, trials)
        };
        let (trial, trials) = run(3);
        assert_eq!((trial.unwrap()["verdict"].as_str(), trials), (Some("failed"), 4));
        let (trial, trials) = run(9);
        let error = trial.unwrap_err();
        assert!(error.is::<NotDecided>() && trials == 4, "{error}");
        assert_eq!(error.to_string(), "not decided: 4 trials were invalid: late");
    }
}
