//! Hosts that are not what they were when a campaign was interrupted: another kernel, another build
//! of this program, other CPUs. The campaign goes on, and says which numbers are of both.

use std::fmt;

use method::units::counted;
use serde::{Deserialize, Serialize};

use crate::archive::Entry;
use crate::environment::Environment;
use crate::point::Point;

/// The role of the machine on which all servers run where the topology is loopback.
pub(crate) const ALL_ROLES: &str = "all";

/// Hosts that changed in the same way at the same moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostChange {
    /// What they are: tester, dut or auth; "tester N" is a further one of several. "all" is the one
    /// machine of a campaign on loopback.
    pub roles: Vec<String>,
    /// The facts that are other ones.
    pub facts: Vec<FactChange>,
    /// How many trials had ended before.
    pub trials_before: usize,
    /// The points that have trials from before and from after it, in words.
    pub points: Vec<String>,
}

/// A fact of a host that is another one than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FactChange {
    /// What it is: kernel, CPU or dns64bench.
    pub what: String,
    /// What it was.
    pub before: String,
    /// What it is from then on.
    pub after: String,
}

/// The facts of a host that numbers depend on and that are other ones than before.
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

/// What was noted last of the host with this role, if something was.
pub(crate) fn noted<'a>(entries: &'a [Entry], role: &str) -> Option<&'a Environment> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Host { role: of, environment } | Entry::HostChanged { role: of, environment }
            if of == role =>
        {
            Some(environment)
        }
        _ => None,
    })
}

/// The changes that a journal tells of; `begun` is the machine on which the campaign was begun.
pub(crate) fn host_changes(begun: &Environment, entries: &[Entry]) -> Vec<HostChange> {
    let mut all: Vec<HostChange> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let Entry::HostChanged { role, environment } = entry else { continue };
        let (before, after) = entries.split_at(at);
        let facts = changed_facts(noted(before, role).unwrap_or(begun), environment);
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

/// The point of each trial that ended.
fn points_of(entries: &[Entry]) -> Vec<&Point> {
    let of_trials = entries.iter().filter_map(|entry| match entry {
        Entry::Finished(measured) => Some(&measured.step.point),
        _ => None,
    });
    of_trials.collect()
}

/// The points that have trials on both sides, each once.
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
    /// Whose host it is, at the beginning of a sentence.
    fn whose(&self) -> String {
        match &self.roles[..] {
            [role] if role == ALL_ROLES => "The machine".into(),
            [role] => format!("The host of {role}"),
            roles => format!("The hosts of {}", roles.join(", ")),
        }
    }

    /// When it changed: `after 34 trials`.
    pub(crate) fn when(&self) -> String {
        format!("after {}", counted(self.trials_before as u64, "trial", "trials"))
    }
}

/// A sentence, with its end.
impl fmt::Display for HostChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed {} of this run:", self.whose(), self.when())?;
        for (n, FactChange { what, before, after }) in self.facts.iter().enumerate() {
            let end = if n == 0 { "" } else { ";" };
            write!(f, "{end} {what} was {before}, and is {after} since")?;
        }
        match &self.points[..] {
            [] => write!(f, ". No point has trials from before and after it."),
            points => write!(f, ". The numbers are of both for: {}.", points.join("; ")),
        }
    }
}
