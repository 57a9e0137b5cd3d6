//! Lab for the benchmarks. AuthDNS runs in a separate namespace of the lab.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

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

/// True if the tester invalidated the trial, so that there is no result.
pub(crate) fn is_spoiled(trial: &Value) -> bool {
    trial["verdict"] == "invalid"
}

/// Returns the reasons why a trial did not pass.
pub(crate) fn reasons(trial: &Value) -> String {
    let words = trial["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    words.collect::<Vec<_>>().join("; ")
}

/// Number of attempts at a rate. The number is odd, because the majority decides.
const TRIES: u32 = 5;

/// Returns the highest rate up to 600 000, in steps of about 5 %, that passes in most of [`TRIES`] attempts. This
/// machine is noisy, and a rate that passes once in five attempts is not sustained.
pub(super) fn highest(mut passes: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut low, mut high) = (0, 600_000_u64);
    while high - low > (low / 20).max(2_000) {
        let rate = u64::midpoint(low, high);
        let (mut passed, mut failed) = (0, 0);
        while passed.max(failed) <= TRIES / 2 {
            *(if passes(rate)? { &mut passed } else { &mut failed }) += 1;
        }
        if passed > failed { low = rate } else { high = rate }
    }
    Ok(low)
}
