//! Which CPUs a host has, which of them are threads of one core or belong to one NUMA node, and
//! which of them a DUT gets when the plan names none.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use method::units::counted;

use crate::cpu_list::{cpu_list, cpu_ranges};

/// The command that prints all that [`CpuTopology::parse`] reads, a line `FILE:CONTENT` each. It runs
/// wherever there is a shell.
pub(crate) const LOOK: [&str; 3] = [
    "sh",
    "-c",
    "grep -sH '' /sys/devices/system/cpu/online /sys/devices/system/node/node*/cpulist \
     /sys/devices/system/cpu/cpu*/topology/thread_siblings_list; grep -sH Cpus_allowed_list /proc/self/status; :",
];

/// The CPUs of a host that are online and that our processes there may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    cpus: BTreeMap<usize, Cpu>,
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpu {
    /// The lowest number of the threads of its core, itself among them.
    core: usize,
    /// Its NUMA node; 0 where the kernel knows none.
    node: usize,
}

impl CpuTopology {
    /// Reads what [`LOOK`] printed. Without a line of the CPUs that are online there are none: the
    /// host does not say.
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

    /// All CPUs, in order.
    pub fn cpus(&self) -> BTreeSet<usize> {
        self.cpus.keys().copied().collect()
    }

    /// Whether nothing is known of the host.
    pub(crate) fn is_unknown(&self) -> bool {
        self.cpus.is_empty()
    }

    /// So many CPUs, in order; `None` where the host has fewer. First those that are not `taken`;
    /// of these first one thread of each core, then the other threads, and last those of cores of
    /// which a thread is taken; of these first those of one NUMA node, the one that has most of the
    /// best.
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

    /// How many CPUs there are, and which: `2 CPUs (0-1)`.
    pub fn counted(&self) -> String {
        format!("{} ({})", counted(self.cpus.len() as u64, "CPU", "CPUs"), cpu_ranges(&self.cpus()))
    }
}
