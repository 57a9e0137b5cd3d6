//! `bench instructions`: user-space instructions per query, counted with callgrind and compared
//! with the counts in `bench/instructions.toml`.
//!
//! ```text
//! build ─► count each path: (long load − short load) ÷ queries, median ─► decide ─► table, status
//! ```
//!
//! Start-up and shutdown cancel out in the difference between two lengths of the same load. Counts depend on the
//! compiler, the libraries and the profile, so the file records these settings. If this machine has different settings,
//! the counts are compared with those of the parent commit on this machine, instead of the file.

mod baseline;
mod client;
mod count;
mod decide;
pub(super) mod paths;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::process::{find, root};
use baseline::{Counts, Setting};
use decide::{Source, decide, print, source, status};

/// Number of rounds for a comparison, which uses the median of the rounds.
const ROUNDS: usize = 3;
/// Number of rounds for the counts file, which also records the scatter of the rounds.
const BLESS_ROUNDS: usize = 5;
/// Exit status if the check cannot run on this machine.
const NOT_RUN: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct Instructions {
    /// Count the programs in this folder (dns64bench, dns64d, measurer-without-clock) instead of
    /// building the release profile
    #[arg(long, value_name = "FOLDER", conflicts_with = "bless")]
    programs: Option<PathBuf>,
    /// Write the counts to bench/instructions.toml. If a commit raises a count, its message must give the reason
    #[arg(long)]
    bless: bool,
}

/// Returns the reason why this machine cannot count instructions, if there is one.
pub(crate) fn not_run_because() -> Option<&'static str> {
    find("valgrind").is_none().then_some("valgrind is not installed (Debian package valgrind)")
}

impl Instructions {
    /// Counts the instructions and compares the counts. The status is 1 if a count grew by more than its limit, and 3
    /// if this machine cannot count instructions.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if let Some(reason) = not_run_because() {
            println!("NOT RUN: {reason}");
            return Ok(ExitCode::from(NOT_RUN));
        }
        let programs = match &self.programs {
            Some(folder) => folder.canonicalize()?,
            None => baseline::build(&root())?,
        };
        let here = Setting::of_this_machine()?;
        if self.bless {
            let counts = Counts { setting: here, paths: paths::count(&programs, BLESS_ROUNDS)? };
            return counts.write().map(|()| ExitCode::SUCCESS);
        }
        let kept = Counts::read()?;
        let old = match source(&kept.setting, &here, self.programs.is_some()) {
            Source::File => kept.paths,
            Source::Parent => {
                println!("bench/instructions.toml was counted with {}", kept.setting);
                println!("This machine has                        {here}");
                baseline::count_parent(ROUNDS)?
            }
        };
        let new = paths::count(&programs, ROUNDS)?;
        let rows = decide(&old, &new);
        print(&rows);
        Ok(status(&rows))
    }
}
