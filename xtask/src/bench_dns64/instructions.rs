//! User-space instructions per answer of a server, counted with callgrind.
//!
//! ```text
//! start under callgrind ─► cache the names ─► dump ─► load ─► dump ─► next load ─► dump ─► …
//! ```
//!
//! A dump resets the counts, so the counts of a load contain neither the start nor the other loads. All threads of the
//! process are counted. A server from a chroot runs under a copy of this host's valgrind that is visible in the chroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use hosts::servers::Operator;

use super::dut::{Dut, serve_auth};
use super::load::{answers, write_names};
use crate::bench::lab::{LIMIT, Lab};
use crate::process::{Server, find, output};
use crate::servers::{DUT, wait_until_listens};

/// Folder of valgrind's tools in Debian, and the first parts of the names of the files that callgrind needs.
const TOOLS: &str = "/usr/libexec/valgrind";
const NEEDED: [&str; 5] = ["callgrind-", "vgpreload_core-", "default.supp", "64bit-", "amd64-"];
/// Number of cached names. They are cached before the counted loads begin.
const NAMES: u32 = 50;
/// Number of queries in a load of cached names, and in a load of different names.
const CACHED: u32 = 5_000;
const DIFFERENT: u32 = 2_000;
/// Address of the first cached name, and block of the different names.
const FIRST: u32 = u32::from_be_bytes([11, 0, 0, 0]);
const BLOCK: &str = "13.0.0.0/8";
/// Time after which all timers for the queries of the cached names have expired.
const TIMERS_EXPIRED: Duration = Duration::from_secs(2);

/// A load under which instructions are counted.
pub(super) struct CountedLoad {
    pub(super) name: &'static str,
    in_flight: &'static str,
    is_cached: bool,
}

pub(super) const LOADS: [CountedLoad; 4] = [
    CountedLoad { name: "cached names, 1 in flight", in_flight: "1", is_cached: true },
    CountedLoad { name: "cached names, 50 in flight", in_flight: "50", is_cached: true },
    CountedLoad { name: "different names, 1 in flight", in_flight: "1", is_cached: false },
    CountedLoad { name: "different names, 50 in flight", in_flight: "50", is_cached: false },
];

/// Instructions per answer in each of [`LOADS`].
pub(super) type Counts = [f64; LOADS.len()];

/// A copy of valgrind in a folder that is visible in the chroots.
pub(super) struct Valgrind {
    folder: PathBuf,
}

impl Valgrind {
    /// Copies the valgrind of this host into a new folder.
    ///
    /// # Errors
    /// Returns an error if valgrind is not installed as in Debian.
    pub(super) fn copy(folder: PathBuf) -> Result<Valgrind> {
        let launcher = find("valgrind.bin").filter(|_| find("vgdb").is_some());
        let launcher = launcher.context("valgrind is not installed (Debian package valgrind)")?;
        fs::create_dir_all(&folder)?;
        fs::copy(launcher, folder.join("valgrind.bin"))?;
        for tool in fs::read_dir(TOOLS).context(TOOLS)? {
            let tool = tool?;
            if NEEDED.iter().any(|start| tool.file_name().to_string_lossy().starts_with(start)) {
                fs::copy(tool.path(), folder.join(tool.file_name()))?;
            }
        }
        Ok(Valgrind { folder })
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// Returns the beginning of a command that runs a program under callgrind, with an empty environment and the batch
    /// policy. With this policy, a process that wakes up does not preempt its client.
    fn command(&self, counts: &Path) -> Result<Vec<String>> {
        let chrt = find("chrt").context("chrt not found (Debian package util-linux)")?;
        Ok(vec![
            "env".to_owned(),
            "--ignore-environment".to_owned(),
            format!("VALGRIND_LIB={}", self.folder.display()),
            chrt.to_string_lossy().into_owned(),
            "--batch".to_owned(),
            "0".to_owned(),
            self.file("valgrind.bin"),
            "--tool=callgrind".to_owned(),
            format!("--vgdb-prefix={}", self.file("vgdb")),
            format!("--callgrind-out-file={}", counts.display()),
        ])
    }

    /// Makes callgrind write its counts into a new file, and reset them. The environment must be as empty as that of the
    /// program, because it is part of the names of valgrind's pipes.
    fn dump(&self, server: &Server) -> Result<()> {
        let vgdb = find("vgdb").context("vgdb not found (Debian package valgrind)")?;
        let vgdb = vgdb.to_string_lossy();
        let (prefix, pid) = (self.file("vgdb"), server.pid()?);
        let [prefix, pid] = [format!("--vgdb-prefix={prefix}"), format!("--pid={pid}")];
        let words = ["--ignore-environment", &vgdb, &prefix, &pid, "dump"];
        output("env", &words, LIMIT).map(drop)
    }

    /// Counts the instructions per answer of a server in each load, a second time after an error.
    pub(super) fn count(&self, lab: &Lab, dut: &Dut) -> Result<Counts> {
        self.count_once(lab, dut).or_else(|error| {
            println!("{}: counted again after an error: {error:#}", dut.name());
            self.count_once(lab, dut)
        })
    }

    fn count_once(&self, lab: &Lab, dut: &Dut) -> Result<Counts> {
        let counts = dut.folder.join("counts");
        let _auth = serve_auth(lab)?;
        let server = dut.launch(lab, DUT, &Operator::default(), &self.command(&counts)?)?;
        wait_until_listens(&[&[lab.program.as_str()], &lab.exec("dut", &[])[..]].concat(), 53)?;
        let names = |queries: u32| (0..queries).map(|number| FIRST + number % NAMES);
        let once = write_names(&lab.folder.path().join("once"), names(NAMES))?;
        let cached = write_names(&lab.folder.path().join("repeated"), names(CACHED))?;
        let load = |in_flight: &str, of: &[&str]| {
            let common = ["--server", DUT, "--outstanding", in_flight, "--timeout", "30s"];
            let fixed = ["--liveness", "false", "--offload", "false"];
            answers(lab, &[&common[..], &fixed, of].concat())?["valid"]
                .as_f64()
                .context("no number of answers")
        };
        load("1", &["--queries", &once])?;
        thread::sleep(TIMERS_EXPIRED);
        self.dump(&server)?;
        let (different, mut per_answer) = (DIFFERENT.to_string(), [0.0; LOADS.len()]);
        for (number, counted) in LOADS.iter().enumerate() {
            let first = (number as u32 * DIFFERENT).to_string();
            let new = ["--names", BLOCK, "--count", &different, "--first-name", &first];
            let of = if counted.is_cached { &["--queries", &cached][..] } else { &new };
            let valid = load(counted.in_flight, of)?;
            self.dump(&server)?;
            // The first dump has the number 1, and was written before the first load.
            per_answer[number] = total(&counts, number + 2)? / valid;
        }
        Ok(per_answer)
    }
}

/// Returns the number of instructions in callgrind's file of a dump.
fn total(counts: &Path, dump: usize) -> Result<f64> {
    let file = format!("{}.{dump}", counts.display());
    let text = fs::read_to_string(&file).with_context(|| file.clone())?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|total| total.trim().parse().ok()).context(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_read_from_the_file_of_its_dump() {
        let folder = tempfile::tempdir().unwrap();
        let counts = folder.path().join("counts");
        assert!(total(&counts, 2).is_err(), "there is no dump");
        for (dump, instructions) in [(1, 7), (2, 138)] {
            let text = format!("part: {dump}\nevents: Ir\nfn=(1) main\n\ntotals: {instructions}\n");
            fs::write(format!("{}.{dump}", counts.display()), text).unwrap();
        }
        assert_eq!(total(&counts, 2).unwrap(), 138.0);
    }

    #[test]
    fn callgrind_uses_the_copy_of_valgrind() {
        let valgrind = Valgrind { folder: "/copy".into() };
        let command = valgrind.command(Path::new("/named/counts")).unwrap().join(" ");
        assert!(command.contains(" VALGRIND_LIB=/copy "), "{command}");
        assert!(command.ends_with("--callgrind-out-file=/named/counts"), "{command}");
    }
}
