//! CPU time of a host by kind of use, read from `/proc/stat` (proc_stat(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// File in which Linux reports CPU times.
pub const FILE: &str = "/proc/stat";

/// CPU time since the host started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    all: Ticks,
    /// CPU time of each CPU, by CPU number.
    each: BTreeMap<usize, Ticks>,
}

/// CPU time in ticks, of one CPU or of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    /// CPU time of programs: user, nice and system.
    programs: u64,
    /// CPU time of interrupt handlers, including soft interrupts.
    interrupts: u64,
    stolen: u64,
    total: u64,
}

/// CPU time of a set of CPUs between two moments, by kind of use. The values are in seconds and summed over the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// Time used by programs, including kernel threads.
    pub programs: f64,
    /// Time used by interrupt handlers, including soft interrupts.
    pub interrupts: f64,
    /// Time during which a hypervisor withheld the CPU.
    pub stolen: f64,
    /// Total time, including idle time.
    pub total: f64,
}

/// Ticks per second in [`FILE`]: USER_HZ, which is 100 on all architectures that Rust supports.
const TICKS: f64 = 100.0;

/// Steal time: percentage of CPU time that a hypervisor gave to other guests while this host had work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stolen {
    /// Percentage of steal time, averaged over all CPUs.
    pub all_pct: f64,
    /// Percentage of steal time on the CPU with the highest percentage.
    pub worst_cpu_pct: f64,
    /// Number of the CPU with the highest percentage of steal time.
    pub worst_cpu: usize,
}

impl CpuTimes {
    /// Reads the current times of this host.
    ///
    /// # Errors
    /// Returns an error if /proc is not mounted, or is not that of Linux.
    pub fn now() -> io::Result<CpuTimes> {
        CpuTimes::parse(&fs::read_to_string(FILE)?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{FILE} contains no CPU times"))
        })
    }

    /// Parses the text of [`FILE`]. Returns `None` if the text does not begin with the time of all CPUs.
    pub fn parse(text: &str) -> Option<CpuTimes> {
        let mut lines = text.lines();
        let all = Ticks::parse(lines.next()?.strip_prefix("cpu ")?)?;
        let one = |line: &str| {
            let (number, ticks) = line.strip_prefix("cpu")?.split_once(' ')?;
            Some((number.parse().ok()?, Ticks::parse(ticks)?))
        };
        Some(CpuTimes { all, each: lines.map_while(one).collect() })
    }

    /// Returns the steal time since `before`. CPUs that did not exist at that time are omitted.
    pub fn stolen_since(&self, before: &CpuTimes) -> Stolen {
        let of = |(cpu, now): (&usize, &Ticks)| {
            Some((*cpu, now.since(before.each.get(cpu)?).stolen_pct()))
        };
        let worst = self.each.iter().filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1));
        let all_pct = self.all.since(&before.all).stolen_pct();
        let (worst_cpu, worst_cpu_pct) = worst.unwrap_or((0, all_pct));
        Stolen { all_pct, worst_cpu_pct, worst_cpu }
    }

    /// Returns the CPU time that `cpus` have spent since the reading `before`, by kind of use. Returns `None` if one of
    /// the CPUs is missing in either reading.
    pub fn used_since(&self, before: &CpuTimes, cpus: &BTreeSet<usize>) -> Option<CpuUse> {
        let mut used = CpuUse::default();
        for cpu in cpus {
            let ticks = self.each.get(cpu)?.since(before.each.get(cpu)?);
            used.programs += ticks.programs as f64 / TICKS;
            used.interrupts += ticks.interrupts as f64 / TICKS;
            used.stolen += ticks.stolen as f64 / TICKS;
            used.total += ticks.total as f64 / TICKS;
        }
        Some(used)
    }

    /// Returns the steal time since the host started.
    pub fn stolen_ever(&self) -> Stolen {
        let none = CpuTimes {
            each: self.each.keys().map(|cpu| (*cpu, Ticks::default())).collect(),
            ..CpuTimes::default()
        };
        self.stolen_since(&none)
    }

    /// Returns the busy share of the time of all CPUs since `before`, in per cent. Idle time, and time spent waiting
    /// for a disk, do not count as busy.
    pub fn busy_since(&self, before: &CpuTimes) -> f64 {
        let ticks = self.all.since(&before.all);
        share(ticks.total - ticks.idle.min(ticks.total), ticks.total)
    }
}

impl Ticks {
    fn parse(text: &str) -> Option<Ticks> {
        // user nice system idle iowait irq softirq steal; the user time includes guest times.
        let ticks: Vec<u64> =
            text.split_whitespace().map_while(|ticks| ticks.parse().ok()).take(8).collect();
        let [user, nice, system, idle, wait, irq, soft, stolen] =
            <[u64; 8]>::try_from(&ticks[..]).ok()?;
        Some(Ticks {
            idle: idle + wait,
            programs: user + nice + system,
            interrupts: irq + soft,
            stolen,
            total: ticks.iter().sum(),
        })
    }

    /// Returns the ticks counted since `before`. A counter that has decreased yields 0. Counters may decrease slightly
    /// when a CPU goes offline and online again.
    fn since(&self, before: &Ticks) -> Ticks {
        Ticks {
            idle: self.idle.saturating_sub(before.idle),
            programs: self.programs.saturating_sub(before.programs),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            stolen: self.stolen.saturating_sub(before.stolen),
            total: self.total.saturating_sub(before.total),
        }
    }

    fn stolen_pct(&self) -> f64 {
        share(self.stolen, self.total)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 300 100 0 0 0 0 0\nintr 1\n";
    const AFTER: &str = "cpu  150 0 110 810 110 5 5 10 40 0\ncpu0 100 0 50 450 0 0 0 0 40 0\ncpu1 50 0 60 360 110 5 5 10 0 0\nintr 2\n";

    #[test]
    fn stolen_time_is_given_for_all_and_for_the_worst_cpu() {
        let (before, after) = (CpuTimes::parse(BEFORE).unwrap(), CpuTimes::parse(AFTER).unwrap());
        let stolen = after.stolen_since(&before);
        assert_eq!(stolen, Stolen { all_pct: 5.0, worst_cpu_pct: 10.0, worst_cpu: 1 });
        // 200 ticks passed, 120 of them idle or waiting for a disk; guest time is counted once.
        assert_eq!(after.busy_since(&before), 40.0);
        assert!((after.stolen_ever().all_pct - 100.0 * 10.0 / 1200.0).abs() < 1e-9);
    }

    #[test]
    fn the_use_of_some_cpus_is_split_by_kind() {
        let (before, after) = (CpuTimes::parse(BEFORE).unwrap(), CpuTimes::parse(AFTER).unwrap());
        let of = |cpus: &[usize]| after.used_since(&before, &cpus.iter().copied().collect());
        let second = CpuUse { programs: 0.1, interrupts: 0.1, stolen: 0.1, total: 1.0 };
        assert_eq!(of(&[1]), Some(second));
        assert_eq!(of(&[0, 1]).map(|both| (both.programs, both.total)), Some((0.6, 2.0)));
        assert_eq!((of(&[2]), of(&[])), (None, Some(CpuUse::default())));
    }

    #[test]
    fn bad_or_unchanged_proc_stat_does_not_panic() {
        assert_eq!(CpuTimes::parse(""), None);
        assert_eq!(CpuTimes::parse("intr 1\n"), None);
        assert_eq!(CpuTimes::parse("cpu  1 2 3\n"), None);
        let same = CpuTimes::parse(AFTER).unwrap();
        assert_eq!(same.stolen_since(&same).all_pct, 0.0);
        let newer =
            CpuTimes::parse(&format!("{}cpu2 1 1 1 1 1 1 1 90\n", AFTER.replace("intr 2\n", "")))
                .unwrap();
        assert_eq!(newer.stolen_since(&same).worst_cpu_pct, 0.0, "a CPU that came on is left out");
        CpuTimes::now().unwrap();
    }
}
