//! What an interface of the tester's own host loses, and how that is told: the same for the Measurer
//! and for AuthDNS.

use method::reason::HostLoss;
use serde::{Deserialize, Serialize};

/// Packets that one interface of a host lost, those of other programs included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct InterfaceDrops {
    /// Received packets that it dropped, for instance in the backlog or in the card's ring; it grows
    /// with each look that the kernel does not answer. 0 where it is served past the stack with
    /// zero-copy, whose drops count as `socket_drops`.
    pub receive: u64,
    /// Packets to be sent that it dropped.
    pub send: u64,
    /// Packets that its queueing discipline dropped, as far as the kernel tells.
    pub queueing_discipline: u64,
    /// What tc(8) calls the discipline; `None` where it is not known.
    pub discipline: Option<String>,
}

impl InterfaceDrops {
    /// One entry for each place of `interface` that lost something.
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

/// How many packets UDP found no room for that queueing disciplines, which dropped `queued`, do not
/// count themselves: one that a discipline refuses at once is in its own counter and, as the sender
/// is told, in UDP's; one that it drops later, or of another program, is in one of them only.
pub(crate) fn beyond_disciplines(no_room_to_send: u64, queued: u64) -> u64 {
    no_room_to_send.saturating_sub(queued)
}

/// Whether loopback alone is looked at, what its discipline dropped, how many packets UDP found no
/// room for, and how many of both were lost.
#[cfg(test)]
pub(crate) const IN_TWO_COUNTERS: [(bool, u32, u64, u64); 6] = [
    (false, 0, 0, 0),
    (false, 7, 7, 7),
    (false, 7, 3, 7),
    (false, 0, 3, 3),
    (true, 0, 3, 0),
    (true, 2, 3, 2),
];
