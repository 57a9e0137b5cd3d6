//! What AuthDNS's host loses below AuthDNS's sockets, since AuthDNS began.
//!
//! ```text
//! DUT ─► interface ─► sockets ─► AuthDNS ─► sockets ─► queueing discipline ─► interface ─► DUT
//!       (/proc/net/dev)                        (UDP's SndbufErrors, RTM_GETQDISC)  (/proc/net/dev)
//! ```
//!
//! The rule is that of the Measurer's own host (`measurer::host_losses`): the counters are those of
//! the whole interface, what other traffic loses counts as well, and any growth makes a trial
//! invalid. The kernel is asked when somebody reads the status, and never by a worker.
//!
//! Looked at are the interfaces that have the addresses which AuthDNS listens on. On the wildcard
//! address, and for an address that no interface has, queries may come by any interface: then all
//! that are up and have an IP address are looked at, loopback among them. Who does not want drops of
//! a management interface to count has AuthDNS listen on addresses instead. Where AuthDNS and the
//! Measurer are reached by the same interface, loopback for instance, both count what it drops: a
//! sum of both holds it twice, a verdict does not change by it. What the ports of a bridge or the
//! device under a VLAN drop is not looked at.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use method::reason::HostLoss;
use net::drops::{InterfaceCounters, Outward, interface_counters, udp_errors};
use net::interfaces::{Held, held};
use net::queueing::{Queueing, disciplines};
use net::socket::scope_of;
use net::xdp::Way;
use serde::{Deserialize, Serialize};

use crate::interface_drops::beyond_disciplines;
use crate::past_stack::PastStack;

pub use crate::interface_drops::InterfaceDrops;

/// Packets that AuthDNS's host lost below AuthDNS's sockets, those of other programs included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostDrops {
    /// Of each interface that is looked at, by its name; of several AuthDNS the sum for each name.
    pub interfaces: BTreeMap<String, InterfaceDrops>,
    /// Sends over UDP that found no room (SndbufErrors), among them those whose packets a queueing
    /// discipline refused. They are those of the whole host; 0 where only loopback is looked at,
    /// which has no queue.
    pub no_room_to_send: u64,
}

impl HostDrops {
    /// Counts what the host of another AuthDNS has lost.
    pub(super) fn merge(&mut self, other: &HostDrops) {
        for (name, more) in &other.interfaces {
            let sum = self.interfaces.entry(name.clone()).or_default();
            sum.receive += more.receive;
            sum.send += more.send;
            sum.queueing_discipline += more.queueing_discipline;
            sum.discipline = sum.discipline.take().or_else(|| more.discipline.clone());
        }
        self.no_room_to_send += other.no_room_to_send;
    }

    /// What came after `before` was read.
    pub(super) fn since(&self, before: &HostDrops) -> HostDrops {
        let none = InterfaceDrops::default();
        let interfaces = self.interfaces.iter().map(|(name, after)| {
            let before = before.interfaces.get(name).unwrap_or(&none);
            let less = InterfaceDrops {
                receive: after.receive.saturating_sub(before.receive),
                send: after.send.saturating_sub(before.send),
                queueing_discipline: after
                    .queueing_discipline
                    .saturating_sub(before.queueing_discipline),
                discipline: after.discipline.clone(),
            };
            (name.clone(), less)
        });
        HostDrops {
            interfaces: interfaces.collect(),
            no_room_to_send: self.no_room_to_send.saturating_sub(before.no_room_to_send),
        }
    }

    /// Whether no interface was looked at: by an AuthDNS that does not count, or by nobody.
    pub(super) fn is_unwatched(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// One entry for each place that lost something. What UDP counts beyond the disciplines is that
    /// of the only interface, or of one of several.
    pub fn losses(&self) -> Vec<HostLoss> {
        let queued = self.interfaces.values().map(|drops| drops.queueing_discipline).sum();
        let beyond = beyond_disciplines(self.no_room_to_send, queued);
        let mut all = self.interfaces.clone();
        if all.len() == 1 {
            all.values_mut().for_each(|only| only.queueing_discipline += beyond);
        } else {
            let names: Vec<&str> = self.interfaces.keys().map(String::as_str).collect();
            let of_some =
                InterfaceDrops { queueing_discipline: beyond, ..InterfaceDrops::default() };
            all.insert(names.join(", "), of_some);
        }
        all.iter().flat_map(|(name, drops)| drops.losses(name)).collect()
    }
}

/// Adds up what the host loses, look by look.
pub(super) struct HostWatch {
    /// What was lost so far; its keys are the interfaces that are looked at.
    drops: HostDrops,
    last: Reading,
    scope: Scope,
    /// The interface by which replies leave past the stack.
    past_stack: Option<String>,
    /// The interface whose received packets are counted where its rings are read.
    counted_by_rings: Option<String>,
}

/// What the addresses that are served say of the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scope {
    /// Whether queries may come by any interface: then one that is gone had perhaps nothing to do
    /// with AuthDNS.
    everywhere: bool,
    /// Whether an interface other than loopback is looked at.
    beyond_loopback: bool,
}

/// All counters at one moment, as far as the kernel told them.
#[derive(Clone, Default)]
struct Reading {
    interfaces: BTreeMap<String, InterfaceCounters>,
    queueing: BTreeMap<String, Queueing>,
    no_room_to_send: Option<u64>,
}

impl Reading {
    /// In this thread's network namespace, where replies may leave past the stack by one interface.
    fn now<'a>(names: impl Iterator<Item = &'a String>, past_stack: Option<&str>) -> Reading {
        let counted = names.filter_map(|name| {
            let is_past = past_stack == Some(name.as_str());
            let outward = if is_past { Outward::PastStack } else { Outward::ThroughStack };
            Some((name.clone(), interface_counters(name, outward).ok()?))
        });
        let queueing = disciplines().into_iter().flatten();
        Reading {
            interfaces: counted.collect(),
            queueing: queueing.map(|one| (one.interface.clone(), one)).collect(),
            no_room_to_send: udp_errors().ok().map(|errors| errors.no_room_to_send),
        }
    }
}

impl HostWatch {
    /// Counts from now on what the host loses of the traffic of a server with these addresses.
    ///
    /// # Errors
    /// If the system does not tell its interfaces.
    pub(super) fn begin(
        listen: &[SocketAddr],
        past_stack: Option<&PastStack>,
    ) -> io::Result<HostWatch> {
        let held = held()?;
        let (names, scope) = interfaces_of(listen, &held);
        let zero_copy = past_stack.filter(|past_stack| past_stack.way == Way::ZeroCopy);
        let counted_by_rings = zero_copy.map(|past_stack| past_stack.interface.clone());
        let past_stack = past_stack.map(|past_stack| past_stack.interface.clone());
        let last = Reading::now(names.iter(), past_stack.as_deref());
        let watch = HostWatch::new(names, scope, counted_by_rings, last);
        Ok(HostWatch { past_stack, ..watch })
    }

    fn new(
        names: Vec<String>,
        scope: Scope,
        counted_by_rings: Option<String>,
        last: Reading,
    ) -> HostWatch {
        let none = |name| (name, InterfaceDrops::default());
        let interfaces = names.into_iter().map(none).collect();
        let drops = HostDrops { interfaces, no_room_to_send: 0 };
        HostWatch { drops, last, scope, past_stack: None, counted_by_rings }
    }

    /// What was lost until now. Asks the kernel, which takes up to some milliseconds.
    pub(super) fn look(&mut self) -> HostDrops {
        self.add(Reading::now(self.drops.interfaces.keys(), self.past_stack.as_deref()));
        self.drops.clone()
    }

    fn add(&mut self, now: Reading) {
        for (name, drops) in &mut self.drops.interfaces {
            let by_rings = self.counted_by_rings.as_ref() == Some(name);
            match (self.last.interfaces.get(name), now.interfaces.get(name)) {
                (Some(last), Some(now)) => {
                    if !by_rings {
                        drops.receive += now.receive_drops.saturating_sub(last.receive_drops);
                    }
                    drops.send += now.send_drops.saturating_sub(last.send_drops);
                }
                // A trial in which that happens must not pass.
                _ => drops.receive += u64::from(!by_rings && !self.scope.everywhere),
            }
            if let Some(now) = now.queueing.get(name) {
                if let Some(last) = self.last.queueing.get(name) {
                    drops.queueing_discipline += u64::from(now.drops.saturating_sub(last.drops));
                }
                drops.discipline = Some(now.kind.clone());
            }
        }
        // Loopback has no queue: there it is the full buffer of a program of this host, perhaps of
        // the DUT.
        if self.scope.beyond_loopback
            && let Some((now, last)) = now.no_room_to_send.zip(self.last.no_room_to_send)
        {
            self.drops.no_room_to_send += now.saturating_sub(last);
        }
        self.last = now;
    }
}

/// The names of the interfaces by which queries to these addresses come.
fn interfaces_of(listen: &[SocketAddr], held: &[Held]) -> (Vec<String>, Scope) {
    let mut everywhere = false;
    let mut found: Vec<&Held> = Vec::new();
    for address in listen {
        let before = found.len();
        found.extend(held.iter().filter(|held| is_of(*address, held)));
        if found.len() == before && address.ip().to_canonical().is_loopback() {
            // All of 127.0.0.0/8 is loopback's.
            found.extend(held.iter().filter(|held| held.loopback));
        }
        if found.len() == before {
            everywhere = true;
            found.extend(held);
        }
    }
    let beyond_loopback = found.iter().any(|held| !held.loopback);
    let mut names: Vec<String> = found.iter().map(|held| held.interface.clone()).collect();
    names.sort_unstable();
    names.dedup();
    (names, Scope { everywhere, beyond_loopback })
}

/// Whether a server on `address` listens on the one that an interface has. Several interfaces may
/// have the same link-local address, of which the scope says one.
fn is_of(address: SocketAddr, held: &Held) -> bool {
    address.ip().to_canonical() == held.address.ip()
        && [0, scope_of(&held.address)].contains(&scope_of(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface_drops::IN_TWO_COUNTERS;

    const BEYOND: Scope = Scope { everywhere: false, beyond_loopback: true };

    /// The counters of `to-dut`: packets dropped that were received and that were to be sent, by the
    /// discipline, and sends that found no room.
    fn reading(receive_drops: u64, send_drops: u64, queued: u32, no_room: u64) -> Reading {
        let name = || "to-dut".to_owned();
        let counters = InterfaceCounters { received: 0, receive_drops, send_drops };
        let queueing = Queueing {
            interface: name(),
            kind: "tbf".into(),
            drops: queued,
            ..Queueing::default()
        };
        Reading {
            interfaces: [(name(), counters)].into(),
            queueing: [(name(), queueing)].into(),
            no_room_to_send: Some(no_room),
        }
    }

    fn watch(scope: Scope) -> HostWatch {
        HostWatch::new(vec!["to-dut".into()], scope, None, reading(10, 20, 30, 40))
    }

    fn after(mut watch: HostWatch, now: Reading) -> InterfaceDrops {
        watch.add(now);
        watch.drops.interfaces["to-dut"].clone()
    }

    fn on(interface: &str, address: &str) -> Held {
        let address = address.parse().unwrap();
        Held { interface: interface.into(), address, loopback: interface == "lo" }
    }

    #[test]
    fn what_an_interface_drops_counts_from_the_beginning() {
        let mut watch = watch(BEYOND);
        watch.add(reading(10, 20, 30, 40));
        assert_eq!(watch.drops.losses(), []);
        watch.add(reading(13, 20, 30, 40));
        let before = watch.drops.clone();
        let interface = || "to-dut".to_owned();
        let received = HostLoss::InterfaceReceive { packets: 3, interface: interface() };
        assert_eq!(before.losses(), [received]);
        watch.add(reading(17, 25, 36, 40));
        let later = [
            HostLoss::InterfaceReceive { packets: 4, interface: interface() },
            HostLoss::InterfaceSend { packets: 5, interface: interface() },
            HostLoss::QueueingDiscipline {
                packets: 6,
                discipline: Some("tbf".into()),
                interface: interface(),
            },
        ];
        assert_eq!(watch.drops.since(&before).losses(), later);
        assert_eq!(watch.drops.interfaces["to-dut"].receive, 7);
        // An interface or a discipline that was made anew counts from the start again.
        watch.add(reading(0, 0, 0, 0));
        watch.add(reading(1, 0, 0, 0));
        assert_eq!(watch.drops.interfaces["to-dut"].receive, 8);
    }

    #[test]
    fn a_packet_in_two_counters_is_dropped_once() {
        for (loopback, queued, no_room, dropped) in IN_TWO_COUNTERS {
            let mut watch = watch(Scope { beyond_loopback: !loopback, ..BEYOND });
            watch.add(reading(10, 20, 30 + queued, 40 + no_room));
            let packets = match watch.drops.losses()[..] {
                [HostLoss::QueueingDiscipline { packets, .. }] => packets,
                _ => 0,
            };
            assert_eq!(packets, dropped, "{loopback} {queued} {no_room}");
        }
    }

    #[test]
    fn what_udp_counts_beyond_several_disciplines_is_of_one_of_them() {
        let queued = InterfaceDrops { queueing_discipline: 2, ..InterfaceDrops::default() };
        let interfaces = [("eth0".into(), queued), ("eth1".into(), InterfaceDrops::default())];
        let drops = HostDrops { interfaces: interfaces.into(), no_room_to_send: 5 };
        let of = |packets, interface: &str| HostLoss::QueueingDiscipline {
            packets,
            discipline: None,
            interface: interface.into(),
        };
        assert_eq!(drops.losses(), [of(2, "eth0"), of(3, "eth0, eth1")]);
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_a_loss_where_the_interface_is_known() {
        assert_eq!(after(watch(BEYOND), Reading::default()).receive, 1);
        let everywhere = Scope { everywhere: true, ..BEYOND };
        assert_eq!(after(watch(everywhere), Reading::default()).receive, 0);
        let mut watch = watch(BEYOND);
        watch.add(Reading::default());
        watch.add(reading(99, 0, 0, 0));
        watch.add(reading(100, 0, 0, 0));
        assert_eq!(watch.drops.interfaces["to-dut"].receive, 3, "it came back with other counters");
    }

    #[test]
    fn what_the_rings_count_counts_once() {
        let by_rings = HostWatch { counted_by_rings: Some("to-dut".into()), ..watch(BEYOND) };
        let drops = after(by_rings, reading(99, 21, 31, 40));
        assert_eq!((drops.receive, drops.send, drops.queueing_discipline), (0, 1, 1));
        let by_rings = HostWatch { counted_by_rings: Some("to-dut".into()), ..watch(BEYOND) };
        assert_eq!(after(by_rings, Reading::default()).receive, 0);
    }

    #[test]
    fn interfaces_are_those_of_the_addresses() {
        let held = [
            on("lo", "127.0.0.1:0"),
            on("lo", "[::1]:0"),
            on("eth0", "192.0.2.1:0"),
            on("eth0", "[fe80::1%2]:0"),
            on("eth1", "198.18.0.2:0"),
            on("eth1", "[fe80::1%3]:0"),
        ];
        let of = |listen: &[&str]| {
            let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
            let (names, scope) = interfaces_of(&listen, &held);
            (names.join(" "), scope.everywhere, scope.beyond_loopback)
        };
        for (listen, names, everywhere, beyond_loopback) in [
            (&["198.18.0.2:53"][..], "eth1", false, true),
            (&["[::ffff:198.18.0.2]:53"], "eth1", false, true),
            (&["198.18.0.2:53", "127.0.0.1:53"], "eth1 lo", false, true),
            (&["127.0.0.7:53"], "lo", false, false),
            (&["[::1]:53"], "lo", false, false),
            (&["[fe80::1%3]:53"], "eth1", false, true),
            (&["0.0.0.0:53"], "eth0 eth1 lo", true, true),
            (&["[::]:53"], "eth0 eth1 lo", true, true),
            // Queries for it come by a route.
            (&["203.0.113.9:53"], "eth0 eth1 lo", true, true),
        ] {
            assert_eq!(of(listen), (names.to_owned(), everywhere, beyond_loopback), "{listen:?}");
        }
    }

    #[test]
    fn the_kernel_tells_the_counters_of_loopback() {
        let mut watch = HostWatch::begin(&["127.0.0.1:53".parse().unwrap()], None).unwrap();
        assert!(watch.last.interfaces.contains_key("lo") && watch.last.no_room_to_send.is_some());
        let drops = watch.look();
        assert_eq!(drops.interfaces.keys().collect::<Vec<_>>(), ["lo"]);
        assert!(drops.interfaces["lo"].discipline.is_some());
    }

    #[test]
    fn hosts_of_several_servers_lose_together() {
        let drops = |receive| {
            let one = InterfaceDrops { receive, send: 1, ..InterfaceDrops::default() };
            HostDrops { interfaces: [("to-dut".into(), one)].into(), no_room_to_send: receive }
        };
        let mut all = drops(2);
        all.merge(&drops(3));
        let sum = &all.interfaces["to-dut"];
        assert_eq!((sum.receive, sum.send, all.no_room_to_send), (5, 2, 5));
        assert_eq!(all.since(&drops(2)).interfaces["to-dut"].receive, 3);
        assert!(HostDrops::default().is_unwatched() && !all.is_unwatched());
    }
}
