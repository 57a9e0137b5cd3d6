//! CPUs of a host, their cores and NUMA nodes, and the choice of CPUs for a DUT if the plan names
//! none.

use std::collections::{BTreeMap, BTreeSet};

use units::counted;

use crate::cpu_list::{cpu_list, cpu_ranges};

/// Command that produces the input of [`CpuTopology::parse`]: lines of the form `FILE:CONTENT`. The command needs
/// only a shell and grep.
pub const LIST_CPUS: [&str; 3] = [
    "sh",
    "-c",
    "grep -sH '' /sys/devices/system/cpu/online /sys/devices/system/node/node*/cpulist \
     /sys/devices/system/cpu/cpu*/topology/thread_siblings_list; grep -sH Cpus_allowed_list /proc/self/status; :",
];

/// The CPUs of a host that are online and usable by the campaign's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    cpus: BTreeMap<usize, Cpu>,
}

/// Core and NUMA node of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    /// Identifier of the core: the lowest number among its CPUs.
    core: usize,
    /// NUMA node of the CPU; 0 if the kernel reports none.
    node: usize,
}

impl CpuTopology {
    /// Parses the output of [`LIST_CPUS`]. The result is empty if the output has no line that lists
    /// the online CPUs.
    pub fn parse(text: &str) -> CpuTopology {
        let (mut online, mut allowed) = (BTreeSet::new(), None);
        let (mut cores, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (file, content) in text.lines().filter_map(|line| line.split_once(':')) {
            let numbered = |before: &str, after: &str| {
                file.strip_prefix("/sys/devices/system/")?
                    .strip_prefix(before)?
                    .strip_suffix(after)?
                    .parse()
                    .ok()
            };
            if file == "/sys/devices/system/cpu/online" {
                online = cpu_list(content);
            } else if let Some(node) = numbered("node/node", "/cpulist") {
                nodes.extend(cpu_list(content).into_iter().map(|cpu| (cpu, node)));
            } else if let Some(cpu) = numbered("cpu/cpu", "/topology/thread_siblings_list") {
                cores.insert(cpu, cpu_list(content).first().copied().unwrap_or(cpu));
            } else if let Some(list) = content.strip_prefix("Cpus_allowed_list:") {
                allowed = Some(cpu_list(list));
            }
        }
        let usable = online
            .into_iter()
            .filter(|cpu| allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu)));
        let place = |cpu: usize| Cpu {
            core: cores.get(&cpu).copied().unwrap_or(cpu),
            node: nodes.get(&cpu).copied().unwrap_or(0),
        };
        CpuTopology { cpus: usable.map(|cpu| (cpu, place(cpu))).collect() }
    }

    /// Returns the numbers of all CPUs in ascending order.
    pub fn cpus(&self) -> BTreeSet<usize> {
        self.cpus.keys().copied().collect()
    }

    /// True if the host's CPUs are unknown.
    pub fn is_unknown(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Returns `count` CPUs in ascending order, or `None` if the host has fewer CPUs. The CPUs are chosen in this
    /// order:
    /// - first threads of cores that have no CPU in `taken`
    /// - other threads of these cores
    /// - CPUs outside `taken` whose core has a CPU in `taken`
    /// - CPUs in `taken`
    ///
    /// If several CPUs have the same rank in this list, all CPUs of one NUMA node are chosen before those of the next
    /// node. The first node is the one with the most CPUs of the highest rank.
    pub fn pick(&self, count: usize, taken: &BTreeSet<usize>) -> Option<Vec<usize>> {
        let rank = |(&cpu, place): (&usize, &Cpu)| {
            let same_core = |other: &Cpu| other.core == place.core;
            let before = self
                .cpus
                .range(..cpu)
                .any(|(other, p)| same_core(p) && taken.contains(other) == taken.contains(&cpu));
            let beside_taken =
                self.cpus.iter().any(|(other, p)| same_core(p) && taken.contains(other));
            let is_taken = taken.contains(&cpu);
            (is_taken, if beside_taken && !is_taken { 2 } else { u8::from(before) })
        };
        let ranks: BTreeMap<usize, (bool, u8)> =
            self.cpus.iter().map(|entry| (*entry.0, rank(entry))).collect();
        let best = ranks.values().min()?;
        let most = |node: usize| {
            self.cpus.iter().filter(|(cpu, p)| p.node == node && ranks[cpu] == *best).count()
        };
        let mut order: Vec<usize> = self.cpus.keys().copied().collect();
        order.sort_by_key(|cpu| {
            let node = self.cpus[cpu].node;
            (ranks[cpu], std::cmp::Reverse(most(node)), node, *cpu)
        });
        let mut picked = order.get(..count)?.to_vec();
        picked.sort_unstable();
        Some(picked)
    }

    /// Returns the number and the list of CPUs as text, such as `2 CPUs (0-1)`.
    pub fn counted(&self) -> String {
        format!("{} ({})", counted(self.cpus.len() as u64, "CPU", "CPUs"), cpu_ranges(&self.cpus()))
    }
}

#[cfg(test)]
mod tests;
