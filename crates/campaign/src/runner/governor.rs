//! CPU frequency governor of the DUT's host. A plan may specify a governor for trials, such as
//! `ondemand`, to measure the effect of dynamic frequency scaling. The governor is set for a
//! measurement point, and the previous governors are restored afterwards. A file in the run folder
//! contains the previous governors. If this run is killed, a resumed run restores them.
//!
//! ```text
//! Scaling::parse ─► requested? ─┬─ no scaling, no such governor ─► CannotBeMade ─► journal, table
//!                              └─ record, set ─► trials ─► restore
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hosts::host::{HostError, Machine};
use hosts::new_file::write_json;

use crate::archive::ArchiveError;
use crate::plan::FIXED;
use crate::record::{CPUS, CannotBeMade};

/// Name of the file in a run folder that records the CPU frequency governors before the campaign.
const NOTE: &str = "governors";
/// Time limit for reading or setting the governors.
const LIMIT: Duration = Duration::from_secs(20);
/// Path and contents of a file that sets the governor of a CPU.
type SavedFile = (String, String);

/// State of the CPU frequency scaling of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scaling {
    /// For each CPU, the path of the file that sets its governor, and the current governor.
    set: Vec<SavedFile>,
    /// The frequency governors that the host supports.
    known: BTreeSet<String>,
}

impl Scaling {
    /// Returns the command that prints the current and the available governors of each CPU. Its output is the input of
    /// [`Scaling::parse`]. `cpus` is the sysfs folder that describes the CPUs.
    fn query_command(cpus: &str) -> Vec<String> {
        let files = ["scaling_governor", "scaling_available_governors"]
            .map(|file| format!("{cpus}/cpu*/cpufreq/{file}"));
        ["sh".into(), "-c".into(), format!("grep -sH '' {}; :", files.join(" "))].into()
    }

    /// Parses the frequency governors in the output of the command that [`Scaling::query_command`] returns.
    fn parse(printed: &str) -> Scaling {
        let mut scaling = Scaling::default();
        for (file, content) in printed.lines().filter_map(|line| line.split_once(':')) {
            if file.ends_with("/scaling_governor") {
                scaling.set.push((file.into(), content.trim().into()));
            } else if file.ends_with("/scaling_available_governors") {
                scaling.known.extend(content.split_whitespace().map(str::to_owned));
            }
        }
        scaling
    }

    /// Returns the command that sets a governor for every CPU.
    fn with(&self, governor: &str) -> Vec<String> {
        restore(
            &self
                .set
                .iter()
                .map(|(file, _)| (file.clone(), governor.to_owned()))
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the reason why a governor cannot be set, or `None` if it can be set.
    fn obstacle(&self, wanted: &str) -> Option<CannotBeMade> {
        match (self.set.is_empty(), self.known.contains(wanted)) {
            (true, _) => Some(CannotBeMade::NoScaling),
            (false, true) => None,
            (false, false) => {
                let (wanted, known) = (wanted.to_owned(), self.known.iter().cloned().collect());
                Some(CannotBeMade::NoSuchGovernor { wanted, known })
            }
        }
    }
}

/// Returns the command that writes each saved governor in `settings` to its file.
fn restore(settings: &[SavedFile]) -> Vec<String> {
    let script = "while [ $# -gt 1 ]; do echo \"$2\" > \"$1\" || exit 1; shift 2; done";
    let head = ["sh", "-c", script, "sh"].map(str::to_owned);
    head.into_iter()
        .chain(settings.iter().flat_map(|(file, content)| [file.clone(), content.clone()]))
        .collect()
}

/// Guard that restores the previous governors when it is dropped.
pub(super) struct GovernorGuard {
    machine: Machine,
    before: Vec<SavedFile>,
    note: PathBuf,
}

impl GovernorGuard {
    /// Sets a governor for all CPUs of a host. `folder` is the run folder. On CPUs without frequency scaling, the
    /// governor for the highest frequency ([`FIXED`]) needs no change.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable, or the file with the previous governors cannot
    /// be written. The inner result is an error if the host cannot set the governor.
    pub(super) fn set(
        machine: &Machine,
        folder: &Path,
        governor: &str,
    ) -> Result<Result<GovernorGuard, CannotBeMade>, GovernorError> {
        let scaling = Scaling::parse(&machine.run(&Scaling::query_command(CPUS), LIMIT)?.1);
        let mut governed =
            GovernorGuard { machine: machine.clone(), before: Vec::new(), note: folder.join(NOTE) };
        match scaling.obstacle(governor) {
            Some(CannotBeMade::NoScaling) if governor == FIXED => return Ok(Ok(governed)),
            Some(why) => return Ok(Err(why)),
            None => {}
        }
        write_json(&governed.note, &scaling.set).map_err(ArchiveError::from)?;
        governed.before.clone_from(&scaling.set);
        let (is_set, said) = machine.run(&scaling.with(governor), LIMIT)?;
        if is_set {
            Ok(Ok(governed))
        } else {
            Ok(Err(CannotBeMade::Refused { why: said.trim().to_owned() }))
        }
    }

    /// Restores the governors that a killed run of this folder changed. Does nothing if the run
    /// folder has no file with previous governors.
    ///
    /// # Errors
    /// Returns an error if the host is unreachable.
    pub(crate) fn restore_left_over(machine: &Machine, folder: &Path) -> Result<(), HostError> {
        let note = folder.join(NOTE);
        let before = std::fs::read_to_string(&note)
            .ok()
            .and_then(|text| serde_json::from_str::<Vec<SavedFile>>(&text).ok());
        match before {
            Some(before) => put_back(machine, &before, &note),
            None => Ok(()),
        }
    }
}

/// Restores the previous governors and removes the file that contains them. If restoring fails, the
/// file remains.
fn put_back(machine: &Machine, before: &[SavedFile], note: &Path) -> Result<(), HostError> {
    if machine.run(&restore(before), LIMIT)?.0 {
        let _ = std::fs::remove_file(note);
    }
    Ok(())
}

impl Drop for GovernorGuard {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            // If the host is unreachable, a resumed run restores the governors.
            let _ = put_back(&self.machine, &self.before, &self.note);
        }
    }
}

/// Error from reading or setting governors.
#[derive(Debug, thiserror::Error)]
pub(super) enum GovernorError {
    /// The host is unreachable.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The run folder cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// Creates a folder that describes CPUs with frequency scaling, as Linux does.
    fn tree(governors: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (n, governor) in governors.iter().enumerate() {
            let place = folder.path().join(format!("cpu{n}/cpufreq"));
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("scaling_governor"), format!("{governor}\n")).unwrap();
            fs::write(place.join("scaling_available_governors"), "ondemand performance \n")
                .unwrap();
        }
        folder
    }

    fn run(words: &[String]) -> (bool, String) {
        let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    fn now(folder: &Path) -> Vec<String> {
        let scaling = Scaling::parse(&run(&Scaling::query_command(&folder.to_string_lossy())).1);
        scaling.set.into_iter().map(|(_, governor)| governor).collect()
    }

    #[test]
    fn a_governor_is_set_for_all_cpus_and_restored() {
        let folder = tree(&["performance", "ondemand", "ondemand"]);
        let scaling =
            Scaling::parse(&run(&Scaling::query_command(&folder.path().to_string_lossy())).1);
        assert_eq!((scaling.set.len(), scaling.obstacle("ondemand")), (3, None));
        assert!(run(&scaling.with("ondemand")).0);
        assert_eq!(now(folder.path()), ["ondemand"; 3]);
        assert!(run(&restore(&scaling.set)).0);
        assert_eq!(now(folder.path()), ["performance", "ondemand", "ondemand"]);
        let gone = [("/no/such/folder/file".to_owned(), "ondemand".to_owned())];
        assert!(!run(&restore(&gone)).0, "an unwritable governor is not set");
    }

    #[test]
    fn missing_host_features_are_described() {
        let none = tempfile::tempdir().unwrap();
        let scaling =
            Scaling::parse(&run(&Scaling::query_command(&none.path().to_string_lossy())).1);
        let why = scaling.obstacle("ondemand").unwrap();
        assert!(
            why == CannotBeMade::NoScaling
                && why.to_string().contains("no dynamic frequency scaling")
        );
        let folder = tree(&["performance"]);
        let scaling =
            Scaling::parse(&run(&Scaling::query_command(&folder.path().to_string_lossy())).1);
        let why = scaling.obstacle("schedutil").unwrap();
        assert!(
            why.to_string()
                .ends_with("no frequency governor schedutil, only ondemand, performance"),
            "{why}"
        );
        assert!(
            why.is_final() && !CannotBeMade::Refused { why: "Permission denied".into() }.is_final()
        );
    }
}
