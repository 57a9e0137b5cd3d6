//! Properties of the machine on which a host runs: product and BIOS, virtualization, load, and
//! stolen CPU time.

use net::cpu_time::{CpuTimes, Stolen};

use crate::environment::finding::{Finding, finding};
use crate::environment::tree::Tree;

/// Folder with the manufacturer's data about the machine.
const DMI: &str = "/sys/class/dmi/id";
/// Limit for the stolen time of a CPU, in per cent. Above this limit, queries may be sent late.
const STOLEN_LIMIT: f64 = 1.0;
/// Limit for the busy time of all CPUs, in per cent. Above this limit, other programs affect
/// measurements.
const BUSY_LIMIT: f64 = 15.0;

/// Returns product, board and BIOS, as far as the kernel reports them. The list may be empty on
/// virtual machines and on boards without a BIOS.
pub(super) fn product(tree: &Tree) -> Vec<Finding> {
    let facts = |names: &[&str]| {
        let read = |name: &&str| tree.read(format!("{DMI}/{name}")).filter(|text| !text.is_empty());
        names.iter().filter_map(read).collect::<Vec<_>>().join(" ")
    };
    let all = [
        ("product", facts(&["sys_vendor", "product_name"])),
        ("board", facts(&["board_name"])),
        ("BIOS", facts(&["bios_vendor", "bios_version", "bios_date"])),
    ];
    all.into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(subject, text)| finding(subject, text))
        .collect()
}

/// Reports whether the machine is virtual.
pub(super) fn virtualized(tree: &Tree) -> Option<Finding> {
    let flags = tree.read("/proc/cpuinfo")?;
    let virtual_machine = flags
        .lines()
        .any(|l| l.starts_with("flags") && l.split_whitespace().any(|f| f == "hypervisor"));
    let why = "the hypervisor may take CPUs away at any time; check the pacing of each trial";
    Some(finding("machine", if virtual_machine { "virtual" } else { "physical" }).concern_if(
        virtual_machine,
        why,
        None,
    ))
}

/// Returns the findings about busy and stolen CPU time between two samples.
pub(super) fn load(before: &CpuTimes, after: &CpuTimes) -> [Finding; 2] {
    let busy = after.busy_since(before);
    let busy = finding("CPUs busy now", format!("{busy:.0} %")).concern_if(
        busy > BUSY_LIMIT,
        "other programs are running; top(1) shows them",
        None,
    );
    [busy, stolen(&after.stolen_since(before), &after.stolen_ever())]
}

fn stolen(now: &Stolen, ever: &Stolen) -> Finding {
    let value = format!(
        "{:.1} % now (CPU {}: {:.1} %), {:.1} % since it started",
        now.all_pct, now.worst_cpu, now.worst_cpu_pct, ever.all_pct
    );
    let why = "a hypervisor gives this host's CPUs to other machines while they are needed here: queries are sent late, servers answer late";
    let bad = now.worst_cpu_pct > STOLEN_LIMIT || ever.all_pct > STOLEN_LIMIT;
    finding("CPU time taken by a hypervisor", value).concern_if(bad, why, None)
}

#[cfg(test)]
mod tests {
    use crate::environment::tree::tests::recorded;

    use super::*;

    #[test]
    fn manufacturer_data_is_a_fact() {
        let tree = recorded(&[
            ("/sys/class/dmi/id/sys_vendor", "Dell Inc.\n"),
            ("/sys/class/dmi/id/product_name", "PowerEdge C6220\n"),
            ("/sys/class/dmi/id/bios_vendor", "Dell Inc.\n"),
            ("/sys/class/dmi/id/bios_version", "1.2.1\n"),
            ("/sys/class/dmi/id/bios_date", "08/22/2012\n"),
        ]);
        let found = product(&tree);
        let texts: Vec<_> = found.iter().map(|f| (f.subject.as_str(), f.value.as_str())).collect();
        assert_eq!(
            texts,
            [("product", "Dell Inc. PowerEdge C6220"), ("BIOS", "Dell Inc. 1.2.1 08/22/2012")]
        );
        assert!(product(&recorded(&[])).is_empty());
    }

    #[test]
    fn a_hypervisor_that_takes_cpus_is_a_concern() {
        let at = |text: &str| CpuTimes::parse(text).unwrap();
        let before = at("cpu  100 0 0 900 0 0 0 0\ncpu0 100 0 0 900 0 0 0 0\n");
        let quiet = at("cpu  101 0 0 999 0 0 0 0\ncpu0 101 0 0 999 0 0 0 0\n");
        let robbed = at("cpu  150 0 0 940 0 0 0 10\ncpu0 150 0 0 940 0 0 0 10\n");
        assert!(load(&before, &quiet).iter().all(|f| f.concern.is_none()));
        let [busy, stolen] = load(&before, &robbed);
        assert!(busy.concern.is_some() && stolen.concern.is_some());
        assert_eq!(stolen.value, "10.0 % now (CPU 0: 10.0 %), 0.9 % since it started");
        let [_, later] =
            load(&robbed, &at("cpu  150 0 0 940 0 0 0 10\ncpu0 150 0 0 940 0 0 0 10\n"));
        assert!(later.concern.is_none(), "less than a hundredth since the start, nothing now");
    }
}
