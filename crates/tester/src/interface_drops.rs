//! Losses on an interface of the tester's host. The Measurer and AuthDNS share this code.

use method::reason::HostLoss;
use serde::{Deserialize, Serialize};

/// Packets that one interface of a host lost, including those of other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceDrops {
    /// Dropped received packets, for instance in the backlog or in the card's ring; incremented with each read that the
    /// kernel does not answer. 0 if it is served by AF_XDP with zero-copy, whose drops count as `socket_drops`.
    pub receive: u64,
    /// Dropped packets to be sent.
    pub send: u64,
    /// Packets that its queueing discipline dropped, if reported by the kernel.
    pub queueing_discipline: u64,
    /// Kind of the discipline as shown by tc(8); `None` if unknown.
    pub discipline: Option<String>,
}

impl InterfaceDrops {
    /// Returns one entry for each place of `interface` with losses.
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

/// Returns the UDP send losses beyond the `queued` packets that queueing disciplines dropped.
///
/// If a discipline rejects a packet at once, the sender is informed, so both the discipline and UDP count the packet. A
/// packet that was dropped later, or sent by another program, is in only one of the two counters.
pub(crate) fn beyond_disciplines(no_room_to_send: u64, queued: u64) -> u64 {
    no_room_to_send.saturating_sub(queued)
}

/// True if only loopback is watched; drops of its discipline; UDP sends without room; and expected total losses.
#[cfg(test)]
pub(crate) const IN_TWO_COUNTERS: [(bool, u32, u64, u64); 6] = [
    (false, 0, 0, 0),
    (false, 7, 7, 7),
    (false, 7, 3, 7),
    (false, 0, 3, 3),
    (true, 0, 3, 0),
    (true, 2, 3, 2),
];
