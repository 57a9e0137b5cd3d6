//! Comparison of the CPU affinity of a server's threads, read from /proc during a measurement, with the placement that
//! a campaign reports.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hosts::cpu_list::cpu_list;
use serde_json::Value;

/// Interval between two scans of all processes.
const LOOK: Duration = Duration::from_millis(20);

/// Function that recognizes a server's processes by the words of their command lines.
pub(super) type ProcessMatch<'a> = dyn Fn(&[&str]) -> bool + Sync + 'a;

/// Calls `run`. Returns its result, and the CPUs on which threads of the server were allowed to run meanwhile. `is_it`
/// recognizes the server's processes.
pub(super) fn watched<T>(
    is_it: &ProcessMatch<'_>,
    run: impl FnOnce() -> Result<T>,
) -> Result<(T, BTreeSet<usize>)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            loop {
                // The last scan takes place after the end of `run`, so that leftover processes are certain to be
                // included.
                let is_last = over.load(Ordering::Relaxed);
                look(is_it, &mut seen);
                if is_last {
                    return seen;
                }
                thread::sleep(LOOK);
            }
        });
        let done = run();
        over.store(true, Ordering::Relaxed);
        let seen = watcher.join().ok().context("the watcher panicked")?;
        Ok((done?, seen))
    })
}

/// Scans all processes once. Processes that end during the scan are omitted.
fn look(is_it: &ProcessMatch<'_>, seen: &mut BTreeSet<usize>) {
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split_terminator('\0').collect();
        if words.is_empty() || !is_it(&words) {
            continue;
        }
        for task in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            seen.extend(list.into_iter().flat_map(cpu_list));
        }
    }
}

/// Requires that the reported placement of a point is equal to the observed placement: threads must have been allowed
/// to run on exactly the reported CPUs.
pub(super) fn agree(point: &Value, seen: &BTreeSet<usize>) -> Result<()> {
    let claimed = point["place"]["cpus"].as_array().context("no place")?;
    let claimed: BTreeSet<usize> =
        claimed.iter().filter_map(|cpu| Some(cpu.as_u64()? as usize)).collect();
    ensure!(
        !claimed.is_empty() && claimed == *seen,
        "the row claims CPUs {claimed:?}, but its threads ran on {seen:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::wait_until;

    #[test]
    fn observed_cpus_must_equal_claimed_cpus() {
        let one = net::affinity::allowed_cpus()[0].0;
        let sleep = "97.314";
        let is_it =
            |words: &[&str]| words.first() == Some(&"sleep") && words.get(1) == Some(&sleep);
        let run = || {
            let child =
                Command::new("taskset").args(["-c", &one.to_string(), "sleep", sleep]).spawn()?;
            // taskset replaces itself with the program that it starts.
            let command_line = format!("/proc/{}/cmdline", child.id());
            let is_there = || Ok(fs::read_to_string(&command_line)?.starts_with("sleep\0"));
            wait_until("taskset starts nothing", Duration::from_secs(60), is_there)?;
            Ok(child)
        };
        let (mut child, seen) = watched(&is_it, run).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(seen, BTreeSet::from([one]));
        let point = |cpus: &[usize]| serde_json::json!({ "place": { "cpus": cpus } });
        assert!(agree(&point(&[one]), &seen).is_ok());
        assert!(
            agree(&point(&[one, one + 1]), &seen).is_err() && agree(&point(&[]), &seen).is_err()
        );
    }
}
