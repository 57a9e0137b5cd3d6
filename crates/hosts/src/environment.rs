//! Facts about a machine, including settings that can distort measurements.

mod cpus;
mod finding;
mod machine;
mod network;
mod nic;
pub(crate) mod quota;
pub(crate) mod tree;
mod xdp;

use std::time::Duration;

use net::affinity::allowed_cpus;
use net::cpu_time::{self, CpuTimes};
use net::ethtool::interfaces;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::environment::finding::{Concern, finding};

pub use finding::Finding;
pub(crate) use tree::Tree;

/// Time for which the load of the CPUs is observed.
const BUSY: Duration = Duration::from_millis(200);
/// File name under which the output of [`Environment::script`] contains the second sample of CPU times.
const LATER: &str = "/proc/stat.later";

/// Facts about a machine that are published with every result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Environment {
    /// Version of dns64bench.
    pub dns64bench: String,
    /// Name of the host, from /proc/sys/kernel/hostname.
    pub host: String,
    /// Kernel name, release and version.
    pub kernel: String,
    /// Model of the CPUs, from /proc/cpuinfo.
    pub cpu: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Memory of the host in octets.
    pub memory: u64,
    /// Findings of all checks of the machine.
    pub findings: Vec<Finding>,
}

impl Environment {
    /// Returns facts about this machine. The call needs 0.2 s, because it observes the CPU load during this time.
    pub fn observe() -> Environment {
        let tree = Tree::here();
        let before = CpuTimes::now().ok();
        std::thread::sleep(BUSY);
        let times = before.zip(CpuTimes::now().ok());
        let seen = LiveFacts { usable: allowed_cpus().len(), is_root: geteuid().is_root(), times };
        let mut environment = Environment::of(&tree, crate::BUILD, &seen);
        environment.findings.extend(network::findings());
        environment.findings.extend(match interfaces() {
            Ok(interfaces) => nic::findings(&tree, &interfaces),
            Err(error) => vec![finding("interfaces", format!("unknown: {error}"))],
        });
        environment
    }

    /// Returns facts about this machine. The facts are observed only once, and all tests share them.
    #[cfg(any(test, feature = "simulated"))]
    pub fn for_tests() -> &'static Environment {
        static OBSERVED: std::sync::LazyLock<Environment> =
            std::sync::LazyLock::new(Environment::observe);
        &OBSERVED
    }

    /// Returns the facts of [`Environment::observe`], with additional findings about AF_XDP on an interface. The test
    /// of AF_XDP uses a filter that accepts no packets. However, it may make the interface's driver restart the queues.
    /// If `looped` names a second interface, datagrams are sent from the first to the second interface at full speed
    /// for the given time. A cable must connect the two interfaces.
    pub fn observe_with_xdp(interface: &str, looped: Option<(&str, Duration)>) -> Environment {
        let mut environment = Environment::observe();
        environment.findings.extend(xdp::findings(interface));
        let looped = looped.map(|(to, time)| xdp::looped(interface, to, time));
        environment.findings.extend(looped);
        environment
    }

    /// Returns facts about a host without dns64bench, from the output of [`Environment::script`].
    /// `usable` is the number of CPUs that a process may use on that host. Facts that cannot be
    /// read from files are missing, and a finding reports this.
    pub(crate) fn printed(text: &str, usable: usize, is_root: bool) -> Environment {
        let tree = Tree::printed(text);
        let times = tree.read(LATER).and_then(|later| {
            CpuTimes::parse(&tree.read(cpu_time::FILE)?).zip(CpuTimes::parse(&later))
        });
        let mut environment = Environment::of(&tree, "none", &LiveFacts { usable, is_root, times });
        environment.findings.extend(nic::findings(&tree, &nic::from_files(&tree)));
        let not = "packet filter, queueing disciplines, offloads, coalescing";
        environment.findings.push(finding(not, "not checked: no dns64bench there"));
        environment
    }

    /// Returns a POSIX shell script. The output of this script is the input of [`Environment::printed`].
    pub fn script() -> String {
        format!(
            "{}; sleep {}; {}",
            Tree::script(),
            BUSY.as_secs_f64(),
            Tree::script_of(cpu_time::FILE, LATER)
        )
    }

    fn of(tree: &Tree, dns64bench: &str, seen: &LiveFacts) -> Environment {
        Environment {
            dns64bench: dns64bench.into(),
            host: tree.read("/proc/sys/kernel/hostname").unwrap_or_default(),
            kernel: tree.read("/proc/version").unwrap_or_default(),
            cpu: cpu_model(tree).unwrap_or_else(|| "unknown".into()),
            cpus: seen.usable,
            memory: memory(tree).unwrap_or(0),
            findings: findings(tree, seen),
        }
    }

    /// Returns the findings about settings that can distort measurements, each with a description
    /// of the effect.
    pub fn concerns(&self) -> impl Iterator<Item = (&Finding, &Concern)> {
        self.findings.iter().filter_map(|f| f.concern.as_ref().map(|c| (f, c)))
    }
}

/// Facts about a host that cannot be read from its files.
struct LiveFacts {
    /// Number of CPUs that a process may use.
    usable: usize,
    /// True if the process runs as root.
    is_root: bool,
    /// Two samples of the CPU times, the earlier one first.
    times: Option<(CpuTimes, CpuTimes)>,
}

fn cpu_model(tree: &Tree) -> Option<String> {
    let info = tree.read("/proc/cpuinfo")?;
    let line = info.lines().find(|l| l.starts_with("model name") || l.starts_with("Model"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory(tree: &Tree) -> Option<u64> {
    let info = tree.read("/proc/meminfo")?;
    let kib: u64 = info
        .lines()
        .find(|l| l.starts_with("MemTotal"))?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()?;
    Some(kib * 1024)
}

fn findings(tree: &Tree, seen: &LiveFacts) -> Vec<Finding> {
    let mut all = machine::product(tree);
    all.extend(machine::virtualized(tree));
    all.extend(cpus::findings(tree, seen.usable));
    all.extend(quota::own(tree));
    all.extend(seen.times.iter().flat_map(|(before, after)| machine::load(before, after)));
    all.push(clock_source(tree));
    let receive = "replies that arrive in bursts are dropped, which makes trials invalid";
    all.extend(buffer_limit(tree, seen.is_root, "rmem_max", receive));
    all.extend(buffer_limit(tree, seen.is_root, "wmem_max", "queries sent in bursts are delayed"));
    all.extend(backlog(tree));
    all
}

fn buffer_limit(tree: &Tree, is_root: bool, which: &str, why: &str) -> Option<Finding> {
    let limit: usize = tree.read(format!("/proc/sys/net/core/{which}"))?.parse().ok()?;
    let wanted = net::socket::REQUESTED_BUFFER;
    let fix = format!("sysctl -w net.core.{which}={wanted}");
    // Root can exceed the limit (SO_RCVBUFFORCE).
    let bad = limit < wanted && !is_root;
    Some(finding(&format!("net.core.{which}"), limit.to_string()).concern_if(bad, why, Some(&fix)))
}

fn backlog(tree: &Tree) -> Option<Finding> {
    let limit: usize = tree.read("/proc/sys/net/core/netdev_max_backlog")?.parse().ok()?;
    let why = "loopback and veth drop packets if more than this wait for a CPU";
    let fix = "sysctl -w net.core.netdev_max_backlog=10000";
    Some(finding("net.core.netdev_max_backlog", limit.to_string()).concern_if(
        limit < 10_000,
        why,
        Some(fix),
    ))
}

fn clock_source(tree: &Tree) -> Finding {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = tree.read(path).unwrap_or_default();
    let fast = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
        .contains(&source.as_str());
    let why = "reading the clock takes a system call for every query";
    finding("clock source", source).concern_if(!fast, why, Some(&format!("echo tsc > {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: [&str; 8] = [
        "CPUs for this process",
        "SMT",
        "NUMA nodes",
        "CPU time taken by a hypervisor",
        "clock source",
        "net.core.rmem_max",
        "irqbalance",
        "machine",
    ];

    #[test]
    fn facts_are_found_and_concerns_are_explained() {
        let environment = Environment::observe();
        assert!(environment.kernel.starts_with("Linux"), "{}", environment.kernel);
        assert!(environment.cpus >= 1 && environment.memory > 0);
        for subject in EVERYWHERE.iter().chain(&["packet filter", "queueing on lo"]) {
            // Some kernels report no NUMA nodes or no CPU flags.
            let may_lack = ["NUMA nodes", "machine"].contains(subject);
            assert!(
                may_lack || environment.findings.iter().any(|f| f.subject == *subject),
                "{subject} is missing"
            );
        }
        assert!(environment.concerns().all(|(_, concern)| !concern.why.is_empty()));
    }

    #[test]
    fn a_shell_finds_the_same_facts_as_this_program() {
        let output =
            std::process::Command::new("sh").arg("-c").arg(Environment::script()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let (here, shell) = (Environment::observe(), Environment::printed(&text, 1, false));
        assert_eq!(
            (&shell.host, &shell.kernel, &shell.cpu, shell.memory),
            (&here.host, &here.kernel, &here.cpu, here.memory)
        );
        for subject in EVERYWHERE {
            let value = |e: &Environment| {
                e.findings.iter().find(|f| f.subject == subject).map(|f| f.value.clone())
            };
            let (theirs, ours) = (value(&shell), value(&here));
            assert_eq!(theirs.is_some(), ours.is_some(), "{subject}");
            if !["CPUs for this process", "CPU time taken by a hypervisor"].contains(&subject) {
                assert_eq!(theirs, ours, "{subject}");
            }
        }
        assert!(shell.findings.last().unwrap().value.contains("no dns64bench there"));
    }
}
