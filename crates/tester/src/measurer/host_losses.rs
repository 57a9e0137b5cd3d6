//! Losses and delays of packets on the Measurer's host during a trial, outside the Measurer's sockets.
//!
//! ```text
//! sender ─► sockets ─► queueing discipline ─► neighbour's queue ─► interface ─► DUT
//!              (UDP's SndbufErrors, RTM_GETQDISC: drops, waits)  (state, discards)  (/proc/net/dev)
//! receiver ◄─ sockets ◄─ netfilter, UDP ◄─────── tap ◄────────────── interface ◄─ DUT
//!              (drops)    (what is missing between)                   (/proc/net/dev)
//! ```
//!
//! AF_XDP bypasses everything between the interface and the rings. The rings count the replies that they drop, and the
//! interface counts the queries that it drops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use method::reason::HostLoss;
use method::records::Counts;
use method::verdict::{Acceptance, Missed, evaluate_missed};
use method::warning::Warning;
use net::batch::{BATCH, OFFLOAD_LEN, ReceiveBatch, Wait};
use net::clock;
use net::drops::PacketPath;
use net::neighbour::{NextHop, Reachability, ResolvedHop, Unresolved, Watch};
use net::path_counters::PathCounters;
use net::queueing::{Disciplines, Queueing};
use net::socket::Endpoint;
use net::tap::Tap;
use units::Nanos;

use super::error::TrialError;
use super::plan::TrialPlan;
use super::result::TesterDrops;
use super::thread_pair::Ports;
use crate::interface_drops::{InterfaceDrops, beyond_disciplines};
use crate::waits::WaitWatch;

/// Maximum wait for the next hop's link-layer address.
const RESOLVE: Duration = Duration::from_secs(10);
/// Interval between reads of the next hop's state.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which packets that arrived at the interface have reached their sockets.
const IN_FLIGHT: Duration = Duration::from_millis(2);
/// Maximum number of receive calls on one socket at the end of a trial, so that the trial ends even during a flood.
const LAST_RECEIVES: usize = 1_000;

/// Returns the next hop towards `server` after resolving its link-layer address. If this address were unknown, this
/// host would drop the first queries. No query is sent to the server.
pub(super) fn reach(server: SocketAddr) -> Result<ResolvedHop, TrialError> {
    ResolvedHop::new(server, RESOLVE).map_err(|error| match error {
        Unresolved::NoRoute(source) => TrialError::Interface { server, source },
        Unresolved::Silent { hop, source } => {
            TrialError::Neighbour { address: hop.address, interface: hop.interface, source }
        }
    })
}

/// Readers of the host's packet counters and queues during a trial.
pub(super) struct HostLosses {
    hop: NextHop,
    path: PacketPath,
    before: PathCounters,
    /// Reader of the next hop's state. It is `None` if the next hop needs no link-layer address, or if the kernel does
    /// not report the state.
    watch: Option<Watch>,
    /// Reader of the interface's queueing discipline; `None` if no packet can wait in the discipline.
    queue: Option<Disciplines>,
    waits: WaitWatch,
    /// Maximum waiting time of a packet in the queueing discipline. A packet that waits longer is reported as a loss.
    longest_wait: Nanos,
    looked: Nanos,
    unresolved: Option<Nanos>,
    /// Counter of arriving datagrams; `None` if the process lacks the required privilege.
    tap: Option<Tap>,
}

/// Packets that the host lost during a trial.
pub(super) struct Losses {
    /// Number of lost packets for each point of loss.
    pub(super) drops: TesterDrops,
    /// Losses during the trial, with one entry for each point of loss.
    pub(super) places: Vec<HostLoss>,
    /// Name of the interface if the drops in its queueing discipline are unknown; otherwise `None`.
    unknown_queueing: Option<String>,
}

impl Losses {
    /// Returns observations that did not affect the verdict but should be reported.
    pub(super) fn warnings(&self, counts: &Counts, acceptance: Acceptance) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Some(interface) = self.unknown_queueing.clone() {
            warnings.push(Warning::UnknownQueueing { interface });
        }
        let missed = self.drops.missed.unwrap_or(0);
        if evaluate_missed(counts, missed, acceptance) == Missed::NotDecisive {
            warnings.push(Warning::Missed { datagrams: missed, lost: counts.lost });
        }
        if counts.sent_again > 0 {
            warnings.push(Warning::SentAgain { queries: counts.sent_again });
        }
        warnings
    }
}

impl HostLosses {
    /// Starts counting the packets that this host loses between the sockets in `ports` and the next hop. Arriving
    /// packets are counted if their destination is one of the source addresses of `plan` or, by default, the address
    /// that the kernel selects.
    pub(super) fn begin(
        hop: ResolvedHop,
        ports: &[Arc<Ports>],
        plan: &TrialPlan,
    ) -> io::Result<HostLosses> {
        let hop = hop.into_inner();
        let addresses = ports.iter().flat_map(|ports| &ports.asking).map(Endpoint::local_address);
        let addresses = addresses.collect::<io::Result<Vec<_>>>()?;
        let numbers: Vec<u16> = addresses.iter().map(SocketAddr::port).collect();
        let chosen = addresses.first().map(|ours| ours.ip().to_canonical().into());
        let tap = plan
            .source_addresses
            .map(|sources| sources.prefix())
            .or(chosen)
            .and_then(|ours| Tap::new(&hop.interface, ours, &numbers).ok());
        let path = if plan.xdp.is_some() { PacketPath::Xdp } else { PacketPath::Sockets };
        // With AF_XDP no packet waits for a neighbour.
        let is_watched = hop.needs_address && path == PacketPath::Sockets;
        let watch = if is_watched { Watch::new(hop.clone()).ok() } else { None };
        let before = PathCounters::new(&hop, path)?;
        let holds = before.queueing.as_ref().is_some_and(Queueing::can_hold);
        let is_held = holds && path == PacketPath::Sockets;
        let queue = if is_held { Disciplines::open().ok() } else { None };
        let looked = clock::now();
        Ok(HostLosses {
            hop,
            path,
            before,
            watch,
            queue,
            waits: WaitWatch::default(),
            longest_wait: plan.limits.lateness_p999,
            looked,
            unresolved: None,
            tap,
        })
    }

    /// Samples the next hop's state and the queueing discipline while `running` returns true. Returns at once if
    /// neither needs to be sampled.
    pub(super) fn watch_while(&mut self, running: impl Fn() -> bool) {
        while (self.watch.is_some() || self.queue.is_some()) && running() {
            self.sample();
            thread::sleep(SAMPLE_INTERVAL);
        }
    }

    fn sample(&mut self) {
        let now = clock::now();
        if let Some(all) = self.queue.as_mut().and_then(|queue| queue.sample().ok())
            && let Some(ours) = all.iter().find(|queue| queue.interface == self.hop.interface)
        {
            self.waits.sample(now, ours);
        }
        let Some(watch) = &mut self.watch else { return };
        // An absent entry holds no packets; the next packet creates one.
        if matches!(watch.sample(), Ok(Reachability::Unresolved)) {
            let so_far = self.unresolved.unwrap_or_default();
            self.unresolved = Some(so_far + now.since(self.looked));
        }
        self.looked = now;
    }

    /// Sums the losses after the pairs of threads have ended. `datagrams` is the number of datagrams that these threads
    /// read from their sockets; this function reads the rest. `rings` is the number of packets that their AF_XDP rings
    /// dropped.
    pub(super) fn conclude(
        mut self,
        ports: &[Arc<Ports>],
        datagrams: u64,
        rings: u64,
    ) -> io::Result<Losses> {
        self.sample();
        let tapped = self.tap.as_ref().and_then(|tap| tap.count().ok());
        thread::sleep(IN_FLIGHT);
        let endpoints: Vec<&Endpoint> =
            ports.iter().flat_map(|ports| ports.asking.iter().chain(&ports.unmatched)).collect();
        let datagrams = datagrams + take_the_rest(&endpoints);
        let sockets = endpoints.iter().map(|endpoint| endpoint.drops()).sum();
        let after = PathCounters::new(&self.hop, self.path)?;
        let wrong_checksum =
            after.udp.wrong_checksum.saturating_sub(self.before.udp.wrong_checksum);
        let drops = TesterDrops {
            sockets,
            rings,
            interface_receive: after
                .interface
                .receive_drops
                .saturating_sub(self.before.interface.receive_drops),
            interface_send: after
                .interface
                .send_drops
                .saturating_sub(self.before.interface.send_drops),
            queueing_discipline: self.dropped_by_queueing(&after),
            neighbour: self.discarded(&after).unwrap_or(0),
            missed: tapped
                .map(|tapped| tapped.saturating_sub(datagrams + sockets + wrong_checksum)),
        };
        let known = self.before.queueing.is_some() && after.queueing.is_some();
        let unknown_queueing = (!known).then(|| self.hop.interface.clone());
        Ok(Losses { drops, places: self.places(&drops, &after), unknown_queueing })
    }

    fn dropped_by_queueing(&self, after: &PathCounters) -> u64 {
        let own = match (&self.before.queueing, &after.queueing) {
            (Some(before), Some(after)) => after.drops.saturating_sub(before.drops),
            _ => 0,
        };
        let udp = after.udp.no_room_to_send.saturating_sub(self.before.udp.no_room_to_send);
        // Loopback has no queue. On loopback, a failed send therefore means that a program's receive buffer was full,
        // perhaps that of the server.
        let own = u64::from(own);
        own + if self.hop.loopback { 0 } else { beyond_disciplines(udp, own) }
    }

    /// Returns the number of packets dropped from the queues of unresolved neighbours. The kernel's counter covers all
    /// neighbours. If the next hop was resolved in every sample, all dropped packets were for other neighbours, and the
    /// result is `None`.
    fn discarded(&self, after: &PathCounters) -> Option<u64> {
        self.unresolved?;
        Some(after.discards?.saturating_sub(self.before.discards?))
    }

    fn places(&self, drops: &TesterDrops, after: &PathCounters) -> Vec<HostLoss> {
        let interface = || self.hop.interface.clone();
        let mut places = Vec::new();
        if drops.sockets > 0 {
            places.push(HostLoss::Sockets { packets: drops.sockets });
        }
        if drops.rings > 0 {
            places.push(HostLoss::Rings { packets: drops.rings, interface: interface() });
        }
        let of_interface = InterfaceDrops {
            receive: drops.interface_receive,
            send: drops.interface_send,
            queueing_discipline: drops.queueing_discipline,
            discipline: after.queueing.as_ref().map(|queueing| queueing.kind.clone()),
        };
        places.extend(of_interface.losses(&self.hop.interface));
        let (waits, discipline) = (self.waits.waits(), of_interface.discipline.as_deref());
        places.extend(waits.beyond(self.longest_wait, &self.hop.interface, discipline));
        if let Some(unresolved) = self.unresolved {
            let (packets, address) = (self.discarded(after), self.hop.address);
            places.push(HostLoss::Neighbour {
                packets,
                address,
                interface: interface(),
                unresolved,
            });
        }
        places
    }
}

/// Reads the remaining datagrams from the sockets and returns their number.
fn take_the_rest(endpoints: &[&Endpoint]) -> u64 {
    let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
    let mut datagrams = 0;
    for endpoint in endpoints {
        for _ in 0..LAST_RECEIVES {
            // An error is a pending ICMP error, which is now cleared. There may be datagrams after it.
            let Ok(received) = batch.receive(endpoint, Wait::NonBlocking) else { continue };
            datagrams +=
                batch.iter().map(|datagram| datagram.segments().count() as u64).sum::<u64>();
            if received < BATCH {
                break;
            }
        }
    }
    datagrams
}

#[cfg(test)]
mod tests {
    use net::drops::{InterfaceCounters, UdpErrors};

    use super::*;
    use crate::interface_drops::IN_TWO_COUNTERS;

    fn reading(queueing_drops: u32, no_room_to_send: u64, discards: Option<u64>) -> PathCounters {
        let queueing = Queueing {
            interface: "to-dut".into(),
            kind: "tbf".into(),
            drops: queueing_drops,
            ..Queueing::default()
        };
        PathCounters {
            interface: InterfaceCounters::default(),
            udp: UdpErrors { no_room_to_send, wrong_checksum: 0 },
            queueing: Some(queueing),
            discards,
        }
    }

    fn watched(loopback: bool, unresolved: Option<Nanos>) -> HostLosses {
        let mut hop = NextHop::towards("[::1]:53".parse().unwrap()).unwrap();
        hop.loopback = loopback;
        HostLosses {
            hop,
            path: PacketPath::Sockets,
            before: reading(10, 100, Some(1_000)),
            watch: None,
            queue: None,
            waits: WaitWatch::default(),
            longest_wait: Nanos::from_millis(10),
            looked: Nanos(0),
            unresolved,
            tap: None,
        }
    }

    #[test]
    fn a_packet_in_two_counters_is_dropped_once() {
        for (loopback, queueing, udp, dropped) in IN_TWO_COUNTERS {
            let after = reading(10 + queueing, 100 + udp, None);
            assert_eq!(
                watched(loopback, None).dropped_by_queueing(&after),
                dropped,
                "{loopback} {queueing} {udp}"
            );
        }
        // A new discipline starts counting at 0.
        assert_eq!(watched(false, None).dropped_by_queueing(&reading(0, 100, None)), 0);
    }

    #[test]
    fn discards_of_other_neighbours_are_not_ours() {
        let unresolved = Some(Nanos::from_millis(40));
        assert_eq!(watched(false, None).discarded(&reading(0, 0, Some(1_500))), None);
        assert_eq!(watched(false, unresolved).discarded(&reading(0, 0, Some(1_500))), Some(500));
        assert_eq!(watched(false, unresolved).discarded(&reading(0, 0, None)), None);
    }

    #[test]
    fn undecisive_losses_are_warnings() {
        let counts = |valid, sent_again| Counts {
            sent: 10,
            valid,
            lost: 10 - valid,
            sent_again,
            ..Counts::default()
        };
        let losses = |missed, unknown_queueing: Option<&str>| Losses {
            drops: TesterDrops { missed, ..TesterDrops::default() },
            places: Vec::new(),
            unknown_queueing: unknown_queueing.map(Into::into),
        };
        let warnings = |losses: Losses, counts: &Counts| losses.warnings(counts, Acceptance::ALL);
        assert_eq!(warnings(losses(None, None), &counts(10, 0)), []);
        assert_eq!(
            warnings(losses(Some(2), None), &counts(10, 0)),
            [Warning::Missed { datagrams: 2, lost: 0 }]
        );
        // These losses determine the verdict, so there is no warning.
        assert_eq!(warnings(losses(Some(2), None), &counts(8, 0)), []);
        let all = [
            Warning::UnknownQueueing { interface: "eth0".into() },
            Warning::Missed { datagrams: 2, lost: 3 },
            Warning::SentAgain { queries: 3 },
        ];
        assert_eq!(warnings(losses(Some(2), Some("eth0")), &counts(7, 3)), all);
    }

    #[test]
    fn a_wait_beyond_the_limit_is_a_loss() {
        let mut losses = watched(false, None);
        for (number, limit, is_loss) in [(1, 10, false), (2, 10, true), (3, 60, false)] {
            let waiting =
                Queueing { backlog: 300, waiting: 3, ..reading(10, 100, None).queueing.unwrap() };
            losses.waits.sample(Nanos::from_millis(20 * number), &waiting);
            losses.longest_wait = Nanos::from_millis(limit);
            let places = losses.places(&TesterDrops::default(), &reading(10, 100, None));
            let found = matches!(places[..], [HostLoss::Waited { packets: 3, .. }]);
            assert_eq!((found, places.is_empty()), (is_loss, !is_loss), "{places:?}");
        }
    }

    #[test]
    fn drops_in_rings_are_losses() {
        let drops = TesterDrops { rings: 7, ..TesterDrops::default() };
        let places = watched(false, None).places(&drops, &reading(10, 100, None));
        assert!(matches!(places[..], [HostLoss::Rings { packets: 7, .. }]), "{places:?}");
        assert_eq!(drops.total(), 7);
    }

    #[test]
    fn unresolved_neighbours_are_losses_if_uncounted() {
        let after = reading(10, 100, None);
        assert_eq!(watched(false, None).places(&TesterDrops::default(), &after), []);
        let places =
            watched(false, Some(Nanos::from_millis(40))).places(&TesterDrops::default(), &after);
        assert!(matches!(places[..], [HostLoss::Neighbour { packets: None, .. }]), "{places:?}");
    }
}
