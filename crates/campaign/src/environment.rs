//! What kind of machine this is, and what on it spoils measurements.

mod network;

use std::fs;
use std::path::Path;
use std::time::Duration;

use net::affinity::allowed_cpus;
use serde::{Deserialize, Serialize};

/// The facts that belong into every result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program.
    pub dns64bench: String,
    /// Host name.
    pub host: String,
    /// Kernel name, release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Octets of memory.
    pub memory: u64,
    /// Every check with its finding.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub subject: String,
    /// What was found.
    pub value: String,
    /// Whether it may spoil measurements.
    pub concern: Option<Concern>,
}

/// Why a finding is a concern, and what helps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concern {
    /// What it does to a measurement.
    pub why: String,
    /// The command that mends it, if one can.
    pub mend: Option<String>,
}

fn finding(subject: &str, value: impl Into<String>) -> Finding {
    Finding { subject: subject.into(), value: value.into(), concern: None }
}

impl Finding {
    fn concern_if(mut self, bad: bool, why: &str, mend: Option<&str>) -> Finding {
        self.concern = bad.then(|| Concern { why: why.into(), mend: mend.map(Into::into) });
        self
    }
}

impl Environment {
    /// Looks at this machine. Takes a fifth of a second, for the load of the CPUs.
    pub fn observe() -> Environment {
        Environment {
            dns64bench: env!("CARGO_PKG_VERSION").into(),
            host: read("/proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: read("/proc/version").unwrap_or_default(),
            cpu: cpu_model().unwrap_or_else(|| "unknown".into()),
            cpus: allowed_cpus().len(),
            memory: memory().unwrap_or(0),
            findings: findings(),
        }
    }

    /// What may spoil measurements, in one line each.
    pub fn concerns(&self) -> impl Iterator<Item = (&Finding, &Concern)> {
        self.findings.iter().filter_map(|f| f.concern.as_ref().map(|c| (f, c)))
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn cpu_model() -> Option<String> {
    let info = read("/proc/cpuinfo")?;
    let line = info.lines().find(|l| l.starts_with("model name") || l.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory() -> Option<u64> {
    let info = read("/proc/meminfo")?;
    let kib: u64 = info.lines().find(|l| l.starts_with("MemTotal"))?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn findings() -> Vec<Finding> {
    let mut all = vec![cores(), smt(), clock_source()];
    all.extend(governor());
    all.extend(turbo());
    all.extend(buffer_limit("rmem_max", "replies that arrive in a bunch are dropped and make trials invalid"));
    all.extend(buffer_limit("wmem_max", "queries that leave in a bunch have to wait"));
    all.extend(backlog());
    all.extend(network::findings());
    all.extend(virtualized());
    all.extend(busy());
    all
}

fn cores() -> Finding {
    let n = allowed_cpus().len();
    let why = "Measurer, DUT and AuthDNS share CPUs: results are those of the crowd, not of the DUT";
    finding("CPUs for this process", n.to_string()).concern_if(n < 4, why, None)
}

fn smt() -> Finding {
    let active = read("/sys/devices/system/cpu/smt/active");
    let why = "two threads on one core slow each other down (seed 001 switches it off)";
    finding("SMT", if active.as_deref() == Some("1") { "on" } else { "off" }).concern_if(
        active.as_deref() == Some("1"),
        why,
        Some("echo off > /sys/devices/system/cpu/smt/control"),
    )
}

fn governor() -> Option<Finding> {
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")?;
    let bad = governor != "performance";
    let why = "CPUs change their clock during trials (seed 000 fixes it)";
    Some(finding("frequency governor", governor).concern_if(bad, why, Some("cpupower frequency-set -g performance")))
}

fn turbo() -> Option<Finding> {
    let (on, mend) = match read("/sys/devices/system/cpu/intel_pstate/no_turbo") {
        Some(no) => (no == "0", "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"),
        None => {
            (read("/sys/devices/system/cpu/cpufreq/boost")? == "1", "echo 0 > /sys/devices/system/cpu/cpufreq/boost")
        }
    };
    let why = "speed depends on temperature and on what other cores do";
    Some(finding("turbo", if on { "on" } else { "off" }).concern_if(on, why, Some(mend)))
}

fn buffer_limit(which: &str, why: &str) -> Option<Finding> {
    let limit: usize = read(format!("/proc/sys/net/core/{which}"))?.parse().ok()?;
    let wanted = net::socket::WANTED_BUFFER;
    let mend = format!("sysctl -w net.core.{which}={wanted}");
    // Root goes beyond the limit (SO_RCVBUFFORCE).
    let bad = limit < wanted && !nix::unistd::geteuid().is_root();
    Some(finding(&format!("net.core.{which}"), limit.to_string()).concern_if(bad, why, Some(&mend)))
}

fn backlog() -> Option<Finding> {
    let limit: usize = read("/proc/sys/net/core/netdev_max_backlog")?.parse().ok()?;
    let why = "packets over loopback and veth are dropped when more than this wait for a CPU";
    let mend = "sysctl -w net.core.netdev_max_backlog=10000";
    Some(finding("net.core.netdev_max_backlog", limit.to_string()).concern_if(limit < 10_000, why, Some(mend)))
}

fn clock_source() -> Finding {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default();
    let fast = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"].contains(&source.as_str());
    let why = "reading the clock takes a system call, for every query";
    let mend = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
    finding("clock source", source).concern_if(!fast, why, Some(mend))
}

fn virtualized() -> Option<Finding> {
    let flags = read("/proc/cpuinfo")?;
    let virtual_machine =
        flags.lines().any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
    let why = "the host may take CPUs away at any time; look at the pacing of each trial";
    Some(finding("machine", if virtual_machine { "virtual" } else { "physical" }).concern_if(
        virtual_machine,
        why,
        None,
    ))
}

/// Share of all CPUs' time that was neither idle nor ours, over a fifth of a second.
fn busy() -> Option<Finding> {
    let before = cpu_times()?;
    std::thread::sleep(Duration::from_millis(200));
    let after = cpu_times()?;
    let (busy, total) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    let share = busy as f64 / total.max(1) as f64 * 100.0;
    let why = "something else is running";
    Some(finding("CPUs busy now", format!("{share:.0} %")).concern_if(share > 15.0, why, Some("top")))
}

/// Busy and total time of all CPUs in ticks.
fn cpu_times() -> Option<(u64, u64)> {
    let stat = read("/proc/stat")?;
    let times: Vec<u64> = stat.lines().next()?.split_whitespace().skip(1).map(|t| t.parse().unwrap_or(0)).collect();
    // user nice system idle iowait irq softirq steal; guest times are part of user's.
    let total: u64 = times.iter().take(8).sum();
    Some((total - times.get(3)? - times.get(4)?, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_and_concerns_are_explained() {
        let environment = Environment::observe();
        assert!(environment.kernel.starts_with("Linux"), "{}", environment.kernel);
        assert!(environment.cpus >= 1 && environment.memory > 0);
        for subject in
            ["CPUs for this process", "SMT", "clock source", "net.core.rmem_max", "packet filter", "queueing on lo"]
        {
            assert!(environment.findings.iter().any(|f| f.subject == subject), "{subject} is missing");
        }
        assert!(environment.concerns().all(|(_, concern)| !concern.why.is_empty()));
    }
}
