//! Packet losses on an interface of the tester's host. The Measurer and AuthDNS share this code.

use method::reason::HostLoss;
use serde::{Deserialize, Serialize};

/// Packets that one interface of a host lost, including packets of other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceDrops {
    /// Number of received packets that were dropped, for instance in the backlog or in the network card's ring. Each
    /// failed read of the kernel's counter adds 1. If the interface is used by AF_XDP in zero-copy mode, this count is
    /// 0, and the drops are counted in `socket_drops`.
    pub receive: u64,
    /// Number of packets that were dropped before they were sent.
    pub send: u64,
    /// Number of packets that the interface's queueing discipline dropped; 0 if not reported by the kernel.
    pub queueing_discipline: u64,
    /// Kind of the queueing discipline as shown by tc(8); `None` if unknown.
    pub discipline: Option<String>,
}

impl InterfaceDrops {
    /// Returns one entry for each kind of loss that occurred on `interface`.
    pub(crate) fn losses(&self, interface: &str) -> Vec<HostLoss> {
        let interface = || interface.to_owned();
        let (receive, send) = (self.receive, self.send);
        let (queued, discipline) = (self.queueing_discipline, self.discipline.clone());
        let places = [
            (receive, HostLoss::InterfaceReceive { packets: receive, interface: interface() }),
            (send, HostLoss::InterfaceSend { packets: send, interface: interface() }),
            (
                queued,
                HostLoss::QueueingDiscipline {
                    packets: queued,
                    discipline,
                    interface: interface(),
                },
            ),
        ];
        let lost = places.into_iter().filter(|(packets, _)| *packets > 0);
        lost.map(|(_, place)| place).collect()
    }
}

/// Returns the number of failed UDP sends (`no_room_to_send`) minus the number of packets that queueing disciplines
/// dropped (`queued`). If the second number is higher, the result is 0.
///
/// If a discipline rejects a packet at once, the sender is informed, so both the discipline and UDP count the packet. A
/// packet that was dropped later, or sent by another program, is in only one of the two counters.
pub(crate) fn beyond_disciplines(no_room_to_send: u64, queued: u64) -> u64 {
    no_room_to_send.saturating_sub(queued)
}

/// Test cases. The four values of a case are:
/// - true if loopback is the only watched interface
/// - number of packets that the queueing discipline dropped
/// - number of failed UDP sends
/// - expected number of lost packets
#[cfg(test)]
pub(crate) const IN_TWO_COUNTERS: [(bool, u32, u64, u64); 6] = [
    (false, 0, 0, 0),
    (false, 7, 7, 7),
    (false, 7, 3, 7),
    (false, 0, 3, 3),
    (true, 0, 3, 0),
    (true, 2, 3, 2),
];
