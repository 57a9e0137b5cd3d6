//! Facts about the CPUs of a host: their number, cores, NUMA nodes and frequency scaling.

use std::collections::{BTreeMap, BTreeSet};

use crate::cpu_list::cpu_ranges;
use crate::environment::finding::{Finding, finding};
use crate::environment::tree::Tree;

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

/// Returns all findings about CPUs. `usable` is the number of CPUs that a process may use.
pub(super) fn findings(tree: &Tree, usable: usize) -> Vec<Finding> {
    let mut all = vec![cores(usable)];
    all.extend(autogroup(tree, usable));
    all.push(smt(tree));
    all.extend(nodes(tree));
    all.extend(governors(tree));
    all.extend(turbo(tree));
    all
}

/// Minimum number of CPUs that lets Measurer, DUT and AuthDNS run on separate CPUs. The Measurer
/// needs two.
const ENOUGH: usize = 4;

fn cores(n: usize) -> Finding {
    let why =
        "Measurer, DUT and AuthDNS share CPUs: results reflect all three roles, not the DUT alone";
    finding("CPUs for this process", n.to_string()).concern_if(n < ENOUGH, why, None)
}

/// Checks whether the kernel schedules sessions as groups. In that case, nice values apply only
/// within a session (sched(7), "The autogroup feature"). Returns `None` if the kernel does not
/// support such groups.
fn autogroup(tree: &Tree, usable: usize) -> Option<Finding> {
    let enabled = tree.read("/proc/sys/kernel/sched_autogroup_enabled")?;
    let bad = enabled == "1" && usable < ENOUGH;
    let why = "on shared CPUs the tester relies on nice values, which then apply only within a session (sched(7))";
    let fix = Some("sysctl -w kernel.sched_autogroup_enabled=0");
    Some(finding("kernel.sched_autogroup_enabled", enabled).concern_if(bad, why, fix))
}

fn smt(tree: &Tree) -> Finding {
    let active = tree.read(format!("{CPU}/smt/active")).as_deref() == Some("1");
    let why =
        "two threads on one core slow each other down; switch it off for repeatable measurements";
    let fix = "echo off > /sys/devices/system/cpu/smt/control";
    finding("SMT", if active { "on" } else { "off" }).concern_if(active, why, Some(fix))
}

/// Returns the NUMA nodes with their CPUs, or `None` if the kernel reports no nodes.
fn nodes(tree: &Tree) -> Option<Finding> {
    let of = |name: &String| {
        let number: usize = name.strip_prefix("node")?.parse().ok()?;
        let cpus = tree.read(format!("{NODE}/{name}/cpulist"))?;
        Some(format!(
            "node {number}: {}",
            if cpus.is_empty() { "no CPUs".into() } else { format!("CPUs {cpus}") }
        ))
    };
    let all: Vec<String> = tree.names(NODE).iter().filter_map(of).collect();
    let why = "memory of another node is slower, so a server's speed depends on its CPUs and memory; confine it to the CPUs of \
               one node ([cpus] in a plan), or compare placements";
    (!all.is_empty())
        .then(|| finding("NUMA nodes", all.join("; ")).concern_if(all.len() > 1, why, None))
}

/// Returns the frequency governors with their CPUs, or `None` if there is no frequency scaling.
fn governors(tree: &Tree) -> Option<Finding> {
    let mut by_name: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for name in tree.names(CPU) {
        let Some(cpu) = name.strip_prefix("cpu").and_then(|n| n.parse().ok()) else { continue };
        if let Some(governor) = tree.read(format!("{CPU}/{name}/cpufreq/scaling_governor")) {
            by_name.entry(governor).or_default().insert(cpu);
        }
    }
    let bad = by_name.keys().any(|governor| governor != "performance");
    let each =
        by_name.iter().map(|(governor, cpus)| format!("{governor} (CPUs {})", cpu_ranges(cpus)));
    let why = "CPUs change their frequency during trials; fix it for repeatable results";
    let fix = Some("cpupower frequency-set -g performance");
    (!by_name.is_empty()).then(|| {
        finding("frequency governor", each.collect::<Vec<_>>().join("; ")).concern_if(bad, why, fix)
    })
}

fn turbo(tree: &Tree) -> Option<Finding> {
    let (on, fix) = match tree.read(format!("{CPU}/intel_pstate/no_turbo")) {
        Some(no) => (no == "0", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"),
        None => (
            tree.read(format!("{CPU}/cpufreq/boost"))? == "1",
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost",
        ),
    };
    let why = "speed depends on temperature and on the load of other cores";
    Some(finding("turbo", if on { "on" } else { "off" }).concern_if(on, why, Some(fix)))
}

#[cfg(test)]
mod tests {
    use crate::environment::tree::tests::{from_lines, recorded};

    use super::*;

    #[test]
    fn autogroup_is_a_concern_on_shared_cpus() {
        let found = |enabled, usable| {
            autogroup(&recorded(&[("/proc/sys/kernel/sched_autogroup_enabled", enabled)]), usable)
                .unwrap()
        };
        let concern = found("1\n", 3).concern.unwrap();
        assert!(
            concern.why.contains("nice values")
                && concern.fix.unwrap().ends_with("sched_autogroup_enabled=0")
        );
        assert_eq!((found("1\n", 4).concern, found("0\n", 1).concern), (None, None));
        assert_eq!(autogroup(&recorded(&[]), 1), None);
        let all = findings(&from_lines("/proc/sys/kernel/sched_autogroup_enabled:1"), 2);
        assert!(
            all.iter()
                .any(|f| f.subject == "kernel.sched_autogroup_enabled" && f.concern.is_some()),
            "{all:?}"
        );
    }

    fn with_nodes(lists: &[&str]) -> Finding {
        let paths: Vec<String> =
            (0..lists.len()).map(|n| format!("{NODE}/node{n}/cpulist")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().map(String::as_str).zip(lists.iter().copied()).collect();
        nodes(&recorded(&files)).unwrap()
    }

    #[test]
    fn nodes_have_cpus_and_several_nodes_are_a_concern() {
        let one = with_nodes(&["0-1\n"]);
        assert_eq!((one.value.as_str(), one.concern), ("node 0: CPUs 0-1", None));
        let two = with_nodes(&["0-7,16-23\n", "8-15,24-31\n"]);
        assert_eq!(two.value, "node 0: CPUs 0-7,16-23; node 1: CPUs 8-15,24-31");
        assert!(two.concern.is_some_and(|concern| concern.why.contains("one node")));
        let four = with_nodes(&["0-7", "8-15", "16-23", ""]);
        assert_eq!(
            four.value,
            "node 0: CPUs 0-7; node 1: CPUs 8-15; node 2: CPUs 16-23; node 3: no CPUs"
        );
        assert_eq!(nodes(&recorded(&[])), None);
    }

    /// The recordings are also used by the tests of `topology`.
    #[test]
    fn nodes_of_recorded_machines_are_found() {
        let of = |text: &str| nodes(&from_lines(text)).unwrap();
        let one = of(include_str!("../topology/one-node.txt"));
        assert_eq!((one.value.as_str(), one.concern), ("node 0: CPUs 0-1", None));
        let two = of(include_str!("../topology/two-nodes.txt"));
        assert_eq!(two.value, "node 0: CPUs 0-7,16-23; node 1: CPUs 8-15,24-31");
        let four = of(include_str!("../topology/four-nodes.txt"));
        assert!(
            four.value.ends_with("node 3: CPUs 3,7,11,15,19,23,27,31,35,39")
                && four.concern.is_some()
        );
    }

    #[test]
    fn governors_are_listed_by_group() {
        let paths: Vec<String> =
            (0..12).map(|n| format!("{CPU}/cpu{n}/cpufreq/scaling_governor")).collect();
        let of = |name: fn(usize) -> &'static str| {
            let files: Vec<(&str, &str)> =
                paths.iter().enumerate().map(|(n, path)| (path.as_str(), name(n))).collect();
            governors(&recorded(&files)).unwrap()
        };
        let mixed = of(|n| if n < 2 || n == 11 { "powersave\n" } else { "performance\n" });
        assert_eq!(mixed.value, "performance (CPUs 2-10); powersave (CPUs 0-1,11)");
        assert!(mixed.concern.is_some(), "CPU 0 alone would not tell");
        let tuned = of(|_| "performance\n");
        assert_eq!((tuned.value.as_str(), tuned.concern), ("performance (CPUs 0-11)", None));
        assert_eq!(governors(&recorded(&[])), None);
    }
}
