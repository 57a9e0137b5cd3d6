//! Hosts that changed while a campaign was interrupted: a different kernel, dns64bench build or set
//! of CPUs. The campaign continues, and the report marks the affected results.

use std::fmt;

use hosts::environment::Environment;
use serde::{Deserialize, Serialize};
use units::counted;

use crate::plan::Point;
use crate::record::Entry;

/// Role of the single machine that runs all servers in the topology "loopback".
pub(crate) const ALL_ROLES: &str = "all";

/// Hosts that changed in the same way at the same moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostChange {
    /// Roles of the hosts: "tester", "dut" or "auth". "tester N" and "auth N" are further hosts of
    /// a role. "all" is the single machine of a campaign on loopback.
    pub roles: Vec<String>,
    /// The changed facts about the hosts.
    pub facts: Vec<FactChange>,
    /// Number of trials that had ended before the change.
    pub trials_before: usize,
    /// Descriptions of the measurement points that have trials from both before and after the
    /// change.
    pub points: Vec<String>,
}

/// Change of one fact about a host, which happened while the campaign was interrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FactChange {
    /// Name of the fact: kernel, CPU or dns64bench.
    pub what: String,
    /// Value before the change.
    pub before: String,
    /// Value after the change.
    pub after: String,
}

/// Returns those facts about a host that affect results and differ between `before` and `after`.
pub(crate) fn changed_facts(before: &Environment, after: &Environment) -> Vec<FactChange> {
    let cpus = |e: &Environment| format!("{} × {}", e.cpus, e.cpu);
    let facts = [
        ("kernel", before.kernel.clone(), after.kernel.clone()),
        ("CPU", cpus(before), cpus(after)),
        ("dns64bench", before.dns64bench.clone(), after.dns64bench.clone()),
    ];
    let changed = facts.into_iter().filter(|(_, before, after)| before != after);
    changed.map(|(what, before, after)| FactChange { what: what.into(), before, after }).collect()
}

/// Returns the last recorded facts about the host with this role, or `None` if no facts were
/// recorded.
pub(crate) fn last_recorded<'a>(entries: &'a [Entry], role: &str) -> Option<&'a Environment> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Host { role: of, environment } | Entry::HostChanged { role: of, environment }
            if of == role =>
        {
            Some(environment)
        }
        _ => None,
    })
}

/// Returns the host changes that a journal records. `begun` contains the facts about the machine on
/// which the campaign was started.
pub(super) fn host_changes(begun: &Environment, entries: &[Entry]) -> Vec<HostChange> {
    let mut all: Vec<HostChange> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let Entry::HostChanged { role, environment } = entry else { continue };
        let (before, after) = entries.split_at(at);
        let facts = changed_facts(last_recorded(before, role).unwrap_or(begun), environment);
        let (trials, points) = (points_of(before), mixed(before, after));
        match all.last_mut() {
            Some(last) if (last.trials_before, &last.facts) == (trials.len(), &facts) => {
                last.roles.push(role.clone());
            }
            _ => all.push(HostChange {
                roles: vec![role.clone()],
                facts,
                trials_before: trials.len(),
                points,
            }),
        }
    }
    all
}

/// Returns the measurement point of each finished trial.
fn points_of(entries: &[Entry]) -> Vec<&Point> {
    let of_trials = entries.iter().filter_map(|entry| match entry {
        Entry::Finished(measured) => Some(&measured.step.point),
        _ => None,
    });
    of_trials.collect()
}

/// Returns the measurement points that have trials both before and after a change of the host,
/// without duplicates.
fn mixed(before: &[Entry], after: &[Entry]) -> Vec<String> {
    let after = points_of(after);
    let mut both: Vec<&Point> = Vec::new();
    for point in points_of(before) {
        if after.contains(&point) && !both.contains(&point) {
            both.push(point);
        }
    }
    both.into_iter().map(ToString::to_string).collect()
}

impl HostChange {
    /// Returns the subject of the sentence about this change, such as "The host of dut".
    fn whose(&self) -> String {
        match &self.roles[..] {
            [role] if role == ALL_ROLES => "The machine".into(),
            [role] => format!("The host of {role}"),
            roles => format!("The hosts of {}", roles.join(", ")),
        }
    }

    /// Returns the time of the change as a text such as `after 34 trials`.
    pub fn when(&self) -> String {
        format!("after {}", counted(self.trials_before as u64, "trial", "trials"))
    }
}

/// Formats the change as a complete sentence.
impl fmt::Display for HostChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed {} of this run:", self.whose(), self.when())?;
        for (n, FactChange { what, before, after }) in self.facts.iter().enumerate() {
            let end = if n == 0 { "" } else { ";" };
            write!(f, "{end} {what} was {before}, now {after}")?;
        }
        match &self.points[..] {
            [] => write!(f, ". No point has trials from both before and after the change."),
            points => write!(
                f,
                ". Points with trials from before and after the change: {}.",
                points.join("; ")
            ),
        }
    }
}
