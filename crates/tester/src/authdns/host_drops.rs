//! Packets that AuthDNS's host lost or delayed outside AuthDNS's sockets, since AuthDNS started.
//!
//! ```text
//! DUT ─► interface ─► tap ─► netfilter, UDP ─► sockets ─► AuthDNS
//!       (/proc/net/dev)     (`arrivals`: missing between)
//! DUT ◄─ interface ◄─ neighbour's queue ◄─ queueing discipline ◄─ sockets ◄─ AuthDNS
//!       (/proc/net/dev)  (`state_samples`: state)  (RTM_GETQDISC, UDP's SndbufErrors; `state_samples`: waits)
//! ```
//!
//! The counters cover all traffic of the interface, and any increase makes a trial invalid, as on the Measurer's host
//! (`measurer::host_losses`). The counters are read whenever the status is read. The state of queues and neighbours is
//! sampled every 20 ms. Threads that answer queries neither read counters nor take samples.
//!
//! The watched interfaces are those with an address that AuthDNS listens on. Queries to the wildcard address, or to an
//! address that no interface has, may arrive on any interface. In this case all interfaces that are up and have an IP
//! address are watched, including loopback. To exclude drops of a management interface, let AuthDNS listen on specific
//! addresses.
//!
//! If AuthDNS and the Measurer use the same interface, for instance loopback, both count the drops of that interface.
//! The sum is then twice the actual number, but the verdict does not change. Drops in the ports of a bridge, or in the
//! device below a VLAN, are not watched.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use method::reason::HostLoss;
use net::drops::{InterfaceCounters, PacketPath, UdpErrors, interface_counters, udp_errors};
use net::interfaces::{LocalAddress, held};
use net::queueing::{Queueing, disciplines};
use net::xdp::AttachMode;
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::arrivals::{Taps, is_of};
use super::state_samples::StateSamples;
use crate::interface_drops::beyond_disciplines;
use crate::xdp::XdpInterface;

pub use super::arrivals::Arrived;
pub use super::state_samples::UnresolvedNeighbour;
pub use crate::interface_drops::InterfaceDrops;
pub use crate::waits::Waits;

/// Packets that AuthDNS's host lost below AuthDNS's sockets, including packets of other programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostDrops {
    /// Dropped packets of each watched interface, by interface name; for several AuthDNS instances, the sum for each
    /// name.
    pub interfaces: BTreeMap<String, InterfaceDrops>,
    /// UDP packets that could not be sent because a buffer or queue was full (SndbufErrors). These packets include
    /// packets rejected by a queueing discipline. The kernel's counter covers the whole host. This value is 0 if only
    /// loopback is watched, because loopback has no queue.
    pub no_room_to_send: u64,
    /// For each watched interface, the waiting times of packets in its queueing discipline. Absent if no packet waited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<String, Waits>,
    /// On the watched interfaces, the neighbours for which packets waited because the link-layer address was unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<UnresolvedNeighbour>,
    /// Packets dropped from the queues of unresolved neighbours; absent if the kernel's counter cannot be read.
    #[serde(default)]
    pub neighbour_drops: Option<u64>,
    /// Datagrams for AuthDNS at its interfaces and sockets; absent if the process lacks the privilege to count them.
    #[serde(default)]
    pub arrived: Option<Arrived>,
}

impl HostDrops {
    /// Adds the packets lost on the host of one more AuthDNS.
    pub(super) fn merge(&mut self, other: &HostDrops) {
        for (name, more) in &other.interfaces {
            let sum = self.interfaces.entry(name.clone()).or_default();
            sum.receive += more.receive;
            sum.send += more.send;
            sum.queueing_discipline += more.queueing_discipline;
            sum.discipline = sum.discipline.take().or_else(|| more.discipline.clone());
        }
        self.no_room_to_send += other.no_room_to_send;
        for (name, waits) in &other.waits {
            self.waits.entry(name.clone()).or_default().merge(waits);
        }
        for theirs in &other.neighbours {
            match self.neighbours.iter_mut().find(|ours| ours.is(theirs)) {
                Some(ours) => ours.unresolved = ours.unresolved + theirs.unresolved,
                None => self.neighbours.push(theirs.clone()),
            }
        }
        let drops = self.neighbour_drops.zip(other.neighbour_drops);
        self.neighbour_drops = drops.map(|(ours, theirs)| ours + theirs);
        self.arrived = self.arrived.zip(other.arrived).map(|(ours, theirs)| ours.plus(&theirs));
    }

    /// Returns the losses after `before` was read.
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
        let none = Waits::default();
        let waits = self.waits.iter().map(|(name, after)| {
            (name.clone(), after.since(before.waits.get(name).unwrap_or(&none)))
        });
        HostDrops {
            interfaces: interfaces.collect(),
            no_room_to_send: self.no_room_to_send.saturating_sub(before.no_room_to_send),
            waits: waits.filter(|(_, waits)| !waits.is_empty()).collect(),
            neighbours: self.neighbours.iter().filter_map(|one| longer(one, before)).collect(),
            neighbour_drops: self
                .neighbour_drops
                .map(|after| after.saturating_sub(before.neighbour_drops.unwrap_or(0))),
            arrived: self.arrived.zip(before.arrived).map(|(after, before)| Arrived {
                interfaces: after.interfaces.saturating_sub(before.interfaces),
                sockets: after.sockets.saturating_sub(before.sockets),
            }),
        }
    }

    /// Returns the number of datagrams that arrived at the interfaces but not at the sockets; `None` if they were not
    /// counted.
    pub(super) fn missed(&self) -> Option<u64> {
        self.arrived.map(|arrived| arrived.missed_since(&Arrived::default()))
    }

    /// Returns one entry for each queueing discipline in which packets waited longer than `limit`.
    pub(super) fn waits_beyond(&self, limit: Nanos) -> Vec<HostLoss> {
        let beyond = |(name, waits): (&String, &Waits)| {
            let discipline = self.interfaces.get(name).and_then(|one| one.discipline.as_deref());
            waits.beyond(limit, name, discipline)
        };
        self.waits.iter().filter_map(beyond).collect()
    }

    /// Returns true if no interface was watched.
    pub(super) fn is_unwatched(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// Returns one entry for each point of loss.
    ///
    /// UDP packets that could not be sent, and that no queueing discipline dropped, are attributed to the watched
    /// interface. If several interfaces are watched, these packets have one entry with the names of all interfaces.
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
        let of_interfaces = all.iter().flat_map(|(name, drops)| drops.losses(name));
        of_interfaces.chain(self.unresolved()).collect()
    }

    /// Returns one entry for each unresolved neighbour. If there are several such neighbours, the number of packets
    /// dropped for each neighbour is unknown.
    fn unresolved(&self) -> impl Iterator<Item = HostLoss> {
        let packets = self.neighbour_drops.filter(|_| self.neighbours.len() == 1);
        self.neighbours.iter().map(move |one| HostLoss::Neighbour {
            packets,
            address: one.address,
            interface: one.interface.clone(),
            unresolved: one.unresolved,
        })
    }
}

/// Returns the neighbour `one` with the time for which its link-layer address was unknown after `before` was read.
/// Returns `None` if this time is 0.
fn longer(one: &UnresolvedNeighbour, before: &HostDrops) -> Option<UnresolvedNeighbour> {
    let known = before.neighbours.iter().find(|other| other.is(one));
    let before = known.map_or(Nanos(0), |other| other.unresolved);
    let unresolved = one.unresolved.since(before);
    (unresolved > Nanos(0)).then(|| UnresolvedNeighbour { unresolved, ..one.clone() })
}

/// Counter of the packets that AuthDNS's host lost, summed over all samples.
pub(super) struct HostWatch {
    /// Losses so far, with an entry for each watched interface.
    drops: HostDrops,
    last: CounterReading,
    scope: WatchedInterfaces,
    state_samples: StateSamples,
    listen: Vec<SocketAddr>,
    /// Packet sockets that count arriving datagrams. The outer option is empty before the first sample. The inner
    /// option is empty if the sockets cannot be opened.
    taps: Option<Option<Taps>>,
    /// Number of datagrams with a wrong checksum since AuthDNS started, from the kernel's UDP counter.
    wrong_checksum: u64,
    /// Interface on which replies are sent by AF_XDP.
    xdp: Option<String>,
    /// Network interface used by AF_XDP in zero-copy mode. In this mode, the AF_XDP rings count the received packets.
    counted_by_rings: Option<String>,
}

/// Properties of the watched interfaces. The addresses that AuthDNS serves determine which interfaces are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WatchedInterfaces {
    /// True if queries may arrive on any interface. In this case, an interface that disappears does not count as a
    /// loss, because it may be unrelated to AuthDNS.
    everywhere: bool,
    /// True if an interface other than loopback is watched.
    beyond_loopback: bool,
}

/// The kernel's counters at one moment.
#[derive(Clone, Default)]
struct CounterReading {
    interfaces: BTreeMap<String, InterfaceCounters>,
    queueing: BTreeMap<String, Queueing>,
    udp: Option<UdpErrors>,
}

impl CounterReading {
    /// Reads the counters in this thread's network namespace. `xdp` is the interface used by AF_XDP; `None` if AF_XDP
    /// is not used.
    fn now<'a>(names: impl Iterator<Item = &'a String>, xdp: Option<&str>) -> CounterReading {
        let counted = names.filter_map(|name| {
            let is_past = xdp == Some(name.as_str());
            let path = if is_past { PacketPath::Xdp } else { PacketPath::Sockets };
            Some((name.clone(), interface_counters(name, path).ok()?))
        });
        let queueing = disciplines().into_iter().flatten();
        CounterReading {
            interfaces: counted.collect(),
            queueing: queueing.map(|one| (one.interface.clone(), one)).collect(),
            udp: udp_errors().ok(),
        }
    }
}

impl HostWatch {
    /// Starts counting the host's losses for a server with these addresses.
    ///
    /// # Errors
    /// Returns an error if the system does not list its interfaces.
    pub(super) fn begin(
        listen: &[SocketAddr],
        xdp: Option<&XdpInterface>,
    ) -> io::Result<HostWatch> {
        let held = held()?;
        let (names, scope) = interfaces_of(listen, &held);
        let zero_copy = xdp.filter(|xdp| xdp.attach_mode == AttachMode::ZeroCopy);
        let counted_by_rings = zero_copy.map(|xdp| xdp.interface.clone());
        let xdp = xdp.map(|xdp| xdp.interface.clone());
        let last = CounterReading::now(names.iter(), xdp.as_deref());
        let watch = HostWatch::new(names, scope, counted_by_rings, last);
        Ok(HostWatch { xdp, listen: listen.to_vec(), ..watch })
    }

    fn new(
        names: Vec<String>,
        scope: WatchedInterfaces,
        counted_by_rings: Option<String>,
        last: CounterReading,
    ) -> HostWatch {
        let none = |name| (name, InterfaceDrops::default());
        let interfaces = names.into_iter().map(none).collect();
        HostWatch {
            drops: HostDrops { interfaces, ..HostDrops::default() },
            last,
            scope,
            state_samples: StateSamples::default(),
            listen: Vec::new(),
            taps: None,
            wrong_checksum: 0,
            xdp: None,
            counted_by_rings,
        }
    }

    /// Reads the kernel's counters and returns the losses until now.
    ///
    /// `received` returns the number of datagrams that the sockets received or dropped. A call of `sample` takes up to
    /// a few milliseconds, or longer if datagrams are missing.
    pub(super) fn sample(&mut self, received: impl Fn() -> u64) -> HostDrops {
        self.add(CounterReading::now(self.drops.interfaces.keys(), self.xdp.as_deref()));
        self.state_samples.note_discards();
        self.sample_state();
        let (listen, names) = (&self.listen, &self.drops.interfaces);
        let taps = self.taps.get_or_insert_with(|| {
            let names: Vec<String> = names.keys().cloned().collect();
            Taps::on(listen, &names, &held().ok()?)
        });
        let at_sockets = || received() + self.wrong_checksum;
        self.drops.arrived = taps.as_mut().and_then(|taps| taps.compare(at_sockets));
        let waits = names.keys().map(|name| (name.clone(), self.state_samples.waits(name)));
        self.drops.waits = waits.filter(|(_, waits)| !waits.is_empty()).collect();
        self.drops.neighbours = self.state_samples.unresolved();
        self.drops.neighbour_drops = self.state_samples.neighbour_drops();
        self.drops.clone()
    }

    /// Samples only the state of queues and neighbours. The kernel has no counters for this state, so it must be
    /// sampled.
    pub(super) fn sample_state(&mut self) {
        if self.scope.beyond_loopback {
            let names = self.drops.interfaces.keys();
            let looked_at =
                |queue: &&Queueing| self.drops.interfaces.contains_key(&queue.interface);
            self.state_samples.sample(self.last.queueing.values().filter(looked_at), names);
        }
    }

    fn add(&mut self, now: CounterReading) {
        for (name, drops) in &mut self.drops.interfaces {
            let by_rings = self.counted_by_rings.as_ref() == Some(name);
            match (self.last.interfaces.get(name), now.interfaces.get(name)) {
                (Some(last), Some(now)) => {
                    if !by_rings {
                        drops.receive += now.receive_drops.saturating_sub(last.receive_drops);
                    }
                    drops.send += now.send_drops.saturating_sub(last.send_drops);
                }
                // If the counters cannot be read, one loss is counted, so that the trial does not pass.
                _ => drops.receive += u64::from(!by_rings && !self.scope.everywhere),
            }
            if let Some(now) = now.queueing.get(name) {
                if let Some(last) = self.last.queueing.get(name) {
                    drops.queueing_discipline += u64::from(now.drops.saturating_sub(last.drops));
                }
                drops.discipline = Some(now.kind.clone());
            }
        }
        // Loopback has no queue. On loopback, a failed send therefore means that a program's receive buffer was full,
        // perhaps that of the DUT.
        if let Some((now, last)) = now.udp.zip(self.last.udp) {
            self.wrong_checksum += now.wrong_checksum.saturating_sub(last.wrong_checksum);
            if self.scope.beyond_loopback {
                let no_room = now.no_room_to_send.saturating_sub(last.no_room_to_send);
                self.drops.no_room_to_send += no_room;
            }
        }
        self.last = now;
    }
}

/// Returns the names of the interfaces on which queries to these addresses arrive.
fn interfaces_of(listen: &[SocketAddr], held: &[LocalAddress]) -> (Vec<String>, WatchedInterfaces) {
    let mut everywhere = false;
    let mut found: Vec<&LocalAddress> = Vec::new();
    for address in listen {
        let before = found.len();
        found.extend(held.iter().filter(|held| is_of(*address, held)));
        if found.len() == before && address.ip().to_canonical().is_loopback() {
            // All of 127.0.0.0/8 belongs to loopback.
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
    (names, WatchedInterfaces { everywhere, beyond_loopback })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface_drops::IN_TWO_COUNTERS;

    const BEYOND: WatchedInterfaces =
        WatchedInterfaces { everywhere: false, beyond_loopback: true };

    /// Returns the counters of `to-dut`: packets dropped on receive and on send, drops of the discipline, and sends
    /// that failed because a buffer was full.
    fn reading(receive_drops: u64, send_drops: u64, queued: u32, no_room: u64) -> CounterReading {
        let name = || "to-dut".to_owned();
        let counters = InterfaceCounters { received: 0, receive_drops, send_drops };
        let queueing = Queueing {
            interface: name(),
            kind: "tbf".into(),
            drops: queued,
            ..Queueing::default()
        };
        CounterReading {
            interfaces: [(name(), counters)].into(),
            queueing: [(name(), queueing)].into(),
            udp: Some(UdpErrors { no_room_to_send: no_room, wrong_checksum: 0 }),
        }
    }

    fn watch(scope: WatchedInterfaces) -> HostWatch {
        HostWatch::new(vec!["to-dut".into()], scope, None, reading(10, 20, 30, 40))
    }

    fn after(mut watch: HostWatch, now: CounterReading) -> InterfaceDrops {
        watch.add(now);
        watch.drops.interfaces["to-dut"].clone()
    }

    fn on(interface: &str, address: &str) -> LocalAddress {
        let address = address.parse().unwrap();
        LocalAddress { interface: interface.into(), address, loopback: interface == "lo" }
    }

    #[test]
    fn interface_drops_count_from_the_start() {
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
        // A new interface or discipline counts from 0.
        watch.add(reading(0, 0, 0, 0));
        watch.add(reading(1, 0, 0, 0));
        assert_eq!(watch.drops.interfaces["to-dut"].receive, 8);
    }

    #[test]
    fn a_packet_in_two_counters_is_dropped_once() {
        for (loopback, queued, no_room, dropped) in IN_TWO_COUNTERS {
            let mut watch = watch(WatchedInterfaces { beyond_loopback: !loopback, ..BEYOND });
            watch.add(reading(10, 20, 30 + queued, 40 + no_room));
            let packets = match watch.drops.losses()[..] {
                [HostLoss::QueueingDiscipline { packets, .. }] => packets,
                _ => 0,
            };
            assert_eq!(packets, dropped, "{loopback} {queued} {no_room}");
        }
    }

    #[test]
    fn udp_drops_beyond_disciplines_go_to_one_interface() {
        let queued = InterfaceDrops { queueing_discipline: 2, ..InterfaceDrops::default() };
        let interfaces = [("eth0".into(), queued), ("eth1".into(), InterfaceDrops::default())];
        let drops =
            HostDrops { interfaces: interfaces.into(), no_room_to_send: 5, ..HostDrops::default() };
        let of = |packets, interface: &str| HostLoss::QueueingDiscipline {
            packets,
            discipline: None,
            interface: interface.into(),
        };
        assert_eq!(drops.losses(), [of(2, "eth0"), of(3, "eth0, eth1")]);
    }

    #[test]
    fn unreadable_counters_of_known_interfaces_are_losses() {
        assert_eq!(after(watch(BEYOND), CounterReading::default()).receive, 1);
        let everywhere = WatchedInterfaces { everywhere: true, ..BEYOND };
        assert_eq!(after(watch(everywhere), CounterReading::default()).receive, 0);
        let mut watch = watch(BEYOND);
        watch.add(CounterReading::default());
        watch.add(reading(99, 0, 0, 0));
        watch.add(reading(100, 0, 0, 0));
        assert_eq!(watch.drops.interfaces["to-dut"].receive, 3, "it came back with other counters");
    }

    #[test]
    fn drops_in_rings_are_counted_once() {
        let by_rings = HostWatch { counted_by_rings: Some("to-dut".into()), ..watch(BEYOND) };
        let drops = after(by_rings, reading(99, 21, 31, 40));
        assert_eq!((drops.receive, drops.send, drops.queueing_discipline), (0, 1, 1));
        let by_rings = HostWatch { counted_by_rings: Some("to-dut".into()), ..watch(BEYOND) };
        assert_eq!(after(by_rings, CounterReading::default()).receive, 0);
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
            // No interface has this address, so queries to it arrive by a route.
            (&["203.0.113.9:53"], "eth0 eth1 lo", true, true),
        ] {
            assert_eq!(of(listen), (names.to_owned(), everywhere, beyond_loopback), "{listen:?}");
        }
    }

    #[test]
    fn counters_of_loopback_are_readable() {
        let mut watch = HostWatch::begin(&["127.0.0.1:53".parse().unwrap()], None).unwrap();
        assert!(watch.last.interfaces.contains_key("lo") && watch.last.udp.is_some());
        let drops = watch.sample(|| 0);
        assert_eq!(drops.interfaces.keys().collect::<Vec<_>>(), ["lo"]);
        assert!(drops.interfaces["lo"].discipline.is_some());
    }

    #[test]
    fn waits_and_neighbours_count_from_the_beginning() {
        let limit = Nanos::from_millis(10);
        let neighbour = |ms| UnresolvedNeighbour {
            interface: "to-dut".into(),
            address: [198, 18, 0, 1].into(),
            unresolved: Nanos::from_millis(ms),
        };
        let of = |waited: &[u64], unresolved| {
            let mut waits = Waits::default();
            waited.iter().for_each(|&ms| waits.left.add(Nanos::from_millis(ms)));
            HostDrops {
                waits: [("to-dut".into(), waits)].into(),
                neighbours: vec![neighbour(unresolved)],
                neighbour_drops: Some(unresolved),
                ..HostDrops::default()
            }
        };
        let before = of(&[40, 60], 100);
        assert_eq!(before.waits_beyond(limit).len(), 1);
        let same = before.since(&before);
        assert_eq!((same.waits_beyond(limit), same.losses()), (vec![], vec![]));
        let later = of(&[40, 60, 5, 80], 340).since(&before);
        let [HostLoss::Waited { packets: 1, longest, .. }] = &later.waits_beyond(limit)[..] else {
            panic!("{later:?}")
        };
        assert!(longest.0.abs_diff(80_000_000) < 1_000_000, "{longest:?}");
        let unresolved = Nanos::from_millis(240);
        assert!(
            matches!(
                later.losses()[..],
                [HostLoss::Neighbour { packets: Some(240), unresolved: found, .. }]
                    if found == unresolved
            ),
            "{later:?}"
        );
        assert_eq!(of(&[5], 1).since(&of(&[], 1)).waits_beyond(limit), []);
    }

    #[test]
    fn counters_of_older_versions_are_read() {
        let json = r#"{"interfaces": {"lo": {"receive": 1, "send": 0, "queueing_discipline": 0,
                       "discipline": null}}, "no_room_to_send": 0}"#;
        let read: HostDrops = serde_json::from_str(json).unwrap();
        assert_eq!((read.missed(), read.interfaces["lo"].receive), (None, 1));
    }

    #[test]
    fn losses_of_several_hosts_are_added() {
        let drops = |receive| {
            let one = InterfaceDrops { receive, send: 1, ..InterfaceDrops::default() };
            let neighbour = UnresolvedNeighbour {
                interface: "to-dut".into(),
                address: [198, 18, 0, receive as u8].into(),
                unresolved: Nanos::from_millis(20),
            };
            HostDrops {
                interfaces: [("to-dut".into(), one)].into(),
                no_room_to_send: receive,
                waits: [("to-dut".into(), Waits { waiting: receive, ..Waits::default() })].into(),
                neighbours: vec![neighbour],
                neighbour_drops: Some(receive),
                arrived: Some(Arrived { interfaces: 10 * receive, sockets: 9 * receive }),
            }
        };
        let mut all = drops(2);
        all.merge(&drops(3));
        let sum = &all.interfaces["to-dut"];
        assert_eq!((sum.receive, sum.send, all.no_room_to_send), (5, 2, 5));
        assert_eq!(
            (all.waits["to-dut"].waiting, all.neighbours.len(), all.neighbour_drops, all.missed()),
            (5, 2, Some(5), Some(5))
        );
        all.merge(&drops(3));
        assert_eq!(
            (all.neighbours.len(), all.neighbours[1].unresolved),
            (2, Nanos::from_millis(40))
        );
        let mut all = drops(2);
        all.merge(&drops(3));
        let second = all.since(&drops(2));
        assert_eq!((second.interfaces["to-dut"].receive, second.missed()), (3, Some(3)));
        assert_eq!((&second.neighbours, second.neighbour_drops), (&drops(3).neighbours, Some(3)));
        assert!(HostDrops::default().is_unwatched() && !all.is_unwatched());
    }
}
