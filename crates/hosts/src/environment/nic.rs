//! Network interfaces of a host, and the CPUs of their interrupts.

use std::collections::BTreeSet;

use net::ethtool::{Driver, Interface, Queues};
use units::counted;

use crate::cpu_list::{cpu_list, cpu_ranges};
use crate::environment::finding::{Finding, finding};
use crate::environment::tree::Tree;

const CLASS: &str = "/sys/class/net";
/// Minimum link speed for measurements, in Mbit/s.
const SLOW: u32 = 1_000;
/// Maximum acceptable interrupt coalescing time in µs. Coalescing can delay every reply by this
/// time.
const LONG: u32 = 100;
/// Message about the effect of irqbalance(1).
const MOVED: &str = "it moves interrupts between CPUs during trials; stop it, and assign a separate CPU to each queue \
                     (/proc/irq/*/smp_affinity_list)";

/// Returns all findings about interfaces and their interrupts.
pub(super) fn findings(tree: &Tree, interfaces: &[Interface]) -> Vec<Finding> {
    let mut all = Vec::new();
    for interface in interfaces {
        all.push(described(tree, interface));
        all.extend(interrupts(tree, interface));
    }
    all.push(irqbalance(tree));
    all
}

/// Returns the interfaces of a host that are up. The facts about them are read from the host's files, so facts that
/// only the driver can report are missing.
pub(super) fn from_files(tree: &Tree) -> Vec<Interface> {
    let up = |name: &String| {
        tree.read(format!("{CLASS}/{name}/operstate")).is_some_and(|state| state == "up")
    };
    let of = |name: String| {
        let queues = tree.names(format!("{CLASS}/{name}/queues"));
        let count =
            |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count() as u32;
        let driver = tree.end_of(format!("{CLASS}/{name}/device/driver"));
        let bus = tree.end_of(format!("{CLASS}/{name}/device")).unwrap_or_default();
        Interface {
            driver: driver.map(|name| Driver { name, firmware: String::new(), bus }),
            speed: tree
                .read(format!("{CLASS}/{name}/speed"))
                .and_then(|speed| speed.parse().ok())
                .filter(|&s| s > 0),
            queues: (!queues.is_empty())
                .then(|| Queues { receive: count("rx"), transmit: count("tx") }),
            name,
            ..Interface::default()
        }
    };
    tree.names(CLASS).into_iter().filter(|name| name != "lo").filter(up).map(of).collect()
}

fn described(tree: &Tree, nic: &Interface) -> Finding {
    let mut facts = Vec::new();
    match &nic.driver {
        None => facts.push("no driver".to_owned()),
        Some(Driver { name, firmware, bus }) => {
            let at = if bus.is_empty() { String::new() } else { format!(" at {bus}") };
            let with =
                if firmware.is_empty() { String::new() } else { format!(", firmware {firmware}") };
            facts.push(format!("{name}{at}{with}"));
        }
    }
    // The node is looked up by bus address first. The lookup by name is less reliable, because in a
    // different network namespace /sys may show other interfaces with the same names.
    let bus = nic.driver.as_ref().map_or("", |driver| driver.bus.as_str());
    let node = tree.read(format!("/sys/bus/pci/devices/{bus}/numa_node"));
    let node = node.or_else(|| tree.read(format!("{CLASS}/{}/device/numa_node", nic.name)));
    // A value of −1 means that the node is unknown.
    facts
        .extend(node.filter(|node| !node.starts_with('-')).map(|node| format!("NUMA node {node}")));
    facts.push(nic.speed.map_or("speed unknown".into(), |speed| format!("{speed} Mbit/s")));
    let transmit = |queues: u32| counted(queues.into(), "transmit queue", "transmit queues");
    facts.extend(nic.queues.map(|q| format!("{} receive and {}", q.receive, transmit(q.transmit))));
    let offloads =
        [("GRO", nic.offloads.gro), ("GSO", nic.offloads.gso), ("TSO", nic.offloads.tso)];
    let word = |on| if on { "on" } else { "off" };
    let known =
        offloads.iter().filter_map(|(name, on)| on.map(|on| format!("{name} {}", word(on))));
    facts.extend(known);
    if let Some(c) = nic.coalescing {
        let adaptive = if c.adaptive_receive { ", adaptive" } else { "" };
        facts.push(format!(
            "interrupts after {} µs or {} received{adaptive}, {} µs sent",
            c.receive_us,
            counted(c.receive_packets.into(), "packet", "packets"),
            c.transmit_us
        ));
    }
    facts.extend((!nic.addresses.is_empty()).then(|| {
        let addresses: Vec<String> = nic.addresses.iter().map(ToString::to_string).collect();
        format!("addresses {}", addresses.join(" "))
    }));
    let (why, fix) = concern(nic).unzip();
    finding(&format!("interface {}", nic.name), facts.join(", ")).concern_if(
        why.is_some(),
        &why.unwrap_or_default(),
        fix.as_deref(),
    )
}

/// Returns the effect of an interface's settings on measurements, and how to correct the settings. Returns `None` if
/// the settings are suitable.
fn concern(nic: &Interface) -> Option<(String, String)> {
    let name = &nic.name;
    if let Some(speed) = nic.speed.filter(|&speed| speed < SLOW) {
        let why = format!("a link of {speed} Mbit/s may be saturated before the server is");
        return Some((why, format!("ethtool -s {name} speed 1000 autoneg on")));
    }
    let coalescing = nic.coalescing?;
    if coalescing.adaptive_receive {
        let why =
            "the driver adapts the interrupt delay to the rate, so latency changes with the rate in steps".to_owned();
        return Some((why, format!("ethtool -C {name} adaptive-rx off rx-usecs 10")));
    }
    (coalescing.receive_us > LONG).then(|| {
        let why = format!(
            "packets may wait {} µs for an interrupt, which adds to every latency",
            coalescing.receive_us
        );
        (why, format!("ethtool -C {name} rx-usecs 10"))
    })
}

/// Returns the finding about the CPUs that handle an interface's interrupts, or `None` if no interrupts belong to the
/// interface.
fn interrupts(tree: &Tree, nic: &Interface) -> Option<Finding> {
    let numbers = interrupt_numbers(tree, nic);
    let of = |irq: &u32| {
        tree.read(format!("/proc/irq/{irq}/smp_affinity_list")).map(|list| cpu_list(&list))
    };
    let sets: Vec<BTreeSet<usize>> = numbers.iter().filter_map(of).collect();
    if sets.is_empty() {
        return None;
    }
    let mut groups: Vec<(String, usize)> = Vec::new();
    for set in &sets {
        let cpus = cpu_ranges(set);
        match groups.iter_mut().find(|(known, _)| *known == cpus) {
            Some((_, n)) => *n += 1,
            None => groups.push((cpus, 1)),
        }
    }
    let value: Vec<String> = groups.iter().map(|(cpus, n)| format!("{n} to CPUs {cpus}")).collect();
    let all: BTreeSet<usize> = sets.iter().flatten().copied().collect();
    let several = nic.queues.is_some_and(|queues| queues.receive > 1);
    let why = "all queues interrupt one CPU, which limits this host's receive rate";
    Some(finding(&format!("interrupts of {}", nic.name), value.join("; ")).concern_if(
        several && all.len() == 1,
        why,
        Some("echo CPU > /proc/irq/NUMBER/smp_affinity_list, another CPU for each queue"),
    ))
}

/// Returns the MSI interrupts of an interface's device. If there are none, returns the interrupts
/// that are named after the interface or its device.
fn interrupt_numbers(tree: &Tree, nic: &Interface) -> Vec<u32> {
    let bus = nic.driver.as_ref().map(|driver| driver.bus.as_str()).filter(|bus| !bus.is_empty());
    let folders = bus.map(|bus| format!("/sys/bus/pci/devices/{bus}/msi_irqs"));
    let folders = folders.into_iter().chain([format!("{CLASS}/{}/device/msi_irqs", nic.name)]);
    for folder in folders {
        let numbers: Vec<u32> =
            tree.names(folder).iter().filter_map(|name| name.parse().ok()).collect();
        if !numbers.is_empty() {
            return numbers;
        }
    }
    let device = tree.end_of(format!("{CLASS}/{}/device", nic.name)).or(bus.map(str::to_owned));
    let is_its = |action: &str| {
        let of = |name: &str| {
            action.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        of(&nic.name) || device.as_deref().is_some_and(of)
    };
    let text = tree.read("/proc/interrupts").unwrap_or_default();
    let of_line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        // The names of the actions that share an interrupt are separated by commas, at the end of
        // the line.
        rest.split([' ', ',']).any(is_its).then(|| number.trim().parse().ok())?
    };
    text.lines().filter_map(of_line).collect()
}

/// Checks whether irqbalance(1) is running.
fn irqbalance(tree: &Tree) -> Finding {
    let mut processes =
        tree.names("/proc").into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let runs = processes
        .any(|id| tree.read(format!("/proc/{id}/comm")).is_some_and(|name| name == "irqbalance"));
    let value = if runs { "running" } else { "not running" };
    finding("irqbalance", value).concern_if(runs, MOVED, Some("systemctl stop irqbalance"))
}

#[cfg(test)]
mod tests {
    use net::ethtool::{Coalescing, Offloads};

    use crate::environment::tree::tests::recorded;

    use super::*;

    fn ixgbe() -> Interface {
        Interface {
            name: "enp1s0".into(),
            addresses: vec!["2001:2::2".parse().unwrap()],
            driver: Some(Driver {
                name: "ixgbe".into(),
                firmware: "0x61bd".into(),
                bus: "0000:01:00.0".into(),
            }),
            speed: Some(10_000),
            queues: Some(Queues { receive: 2, transmit: 2 }),
            offloads: Offloads { gro: Some(true), gso: Some(true), tso: Some(false) },
            coalescing: Some(Coalescing {
                receive_us: 1,
                receive_packets: 0,
                transmit_us: 5,
                adaptive_receive: false,
            }),
        }
    }

    /// Returns a host whose interrupts have the CPU affinities `affinity`.
    fn host(affinity: [&'static str; 2]) -> Tree {
        recorded(&[
            ("/sys/class/net/enp1s0/device/numa_node", "1\n"),
            ("/sys/bus/pci/devices/0000:01:00.0/msi_irqs/40", "msix\n"),
            ("/sys/bus/pci/devices/0000:01:00.0/msi_irqs/41", "msix\n"),
            ("/proc/irq/40/smp_affinity_list", affinity[0]),
            ("/proc/irq/41/smp_affinity_list", affinity[1]),
            ("/proc/irq/42/smp_affinity_list", "7\n"),
            ("/proc/1/comm", "systemd\n"),
        ])
    }

    #[test]
    fn an_interface_is_described_in_one_line() {
        let found = findings(&host(["0\n", "1\n"]), &[ixgbe()]);
        assert_eq!(
            found[0].value,
            "ixgbe at 0000:01:00.0, firmware 0x61bd, NUMA node 1, 10000 Mbit/s, 2 receive and 2 transmit queues, GRO on, GSO on, \
             TSO off, interrupts after 1 µs or 0 packets received, 5 µs sent, addresses 2001:2::2"
        );
        assert_eq!(
            (found[1].subject.as_str(), found[1].value.as_str()),
            ("interrupts of enp1s0", "1 to CPUs 0; 1 to CPUs 1")
        );
        assert_eq!(
            (found[2].subject.as_str(), found[2].value.as_str()),
            ("irqbalance", "not running")
        );
        assert!(found.iter().all(|f| f.concern.is_none()));
    }

    #[test]
    fn packet_delays_and_moving_interrupts_are_concerns() {
        let with = |change: fn(&mut Interface)| {
            let mut nic = ixgbe();
            change(&mut nic);
            described(&host(["0", "1"]), &nic)
                .concern
                .map(|c| c.why + &c.fix.unwrap())
                .unwrap_or_default()
        };
        assert!(with(|nic| nic.speed = Some(100)).contains("100 Mbit/s"));
        assert!(
            with(|nic| nic.coalescing.as_mut().unwrap().adaptive_receive = true)
                .contains("adaptive-rx off")
        );
        assert!(with(|nic| nic.coalescing.as_mut().unwrap().receive_us = 250).contains("250 µs"));
        assert_eq!(with(|nic| nic.coalescing = None), "");
        let one_cpu = interrupts(&host(["3\n", "3\n"]), &ixgbe()).unwrap();
        assert_eq!((one_cpu.value.as_str(), one_cpu.concern.is_some()), ("2 to CPUs 3", true));
        let balanced =
            recorded(&[("/proc/1/comm", "systemd\n"), ("/proc/812/comm", "irqbalance\n")]);
        assert!(irqbalance(&balanced).concern.is_some());
    }

    #[test]
    fn interrupts_without_msi_are_found_by_their_names() {
        let text = "           CPU0       CPU1\n 24:  1  2  PCI-MSI 1-edge  virtio0-config\n 25:  1  2  PCI-MSI 2-edge  virtio0-input.0\n \
                    26:  1  2  PCI-MSI 3-edge  virtio10-input.0\n 30:  0  9  GIC  eth1\nNMI:  0  0  Non-maskable interrupts\n";
        let tree = recorded(&[
            ("/proc/interrupts", text),
            ("/sys/class/net/eth0/device", "/sys/devices/pci0/virtio0\n"),
        ]);
        let of = |name: &str| {
            interrupt_numbers(&tree, &Interface { name: name.into(), ..Interface::default() })
        };
        assert_eq!(of("eth0"), [24, 25]);
        assert_eq!(of("eth1"), [30]);
        assert!(of("eth").is_empty());
    }

    #[test]
    fn driver_speed_and_queues_are_read_from_files() {
        let tree = recorded(&[
            ("/sys/class/net/eth0/operstate", "up\n"),
            ("/sys/class/net/eth0/speed", "1000\n"),
            ("/sys/class/net/eth0/device", "/sys/devices/pci0000:00/0000:00:03.0\n"),
            ("/sys/class/net/eth0/device/driver", "/sys/bus/pci/drivers/e1000e\n"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
            ("/sys/class/net/eth0/queues/tx-0/byte_queue_limits/limit", "0"),
            ("/sys/class/net/eth1/operstate", "down\n"),
            ("/sys/class/net/lo/operstate", "up\n"),
        ]);
        let found = from_files(&tree);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            described(&tree, &found[0]).value,
            "e1000e at 0000:00:03.0, 1000 Mbit/s, 1 receive and 1 transmit queue"
        );
    }
}
