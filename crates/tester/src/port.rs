//! Source of a worker's queries, for AuthDNS and the reference DUT. The source is a socket of the network stack, or the
//! AF_XDP rings of an interface's queue.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::batch::{Datagram, ServerBatch, Source, Turn, Wait};
use net::drops::{InterfaceCounters, PacketPath, interface_counters};
use net::socket::Endpoint;
use net::xdp::{self, AttachMode};

use crate::authdns::answer::MAX_REPLY;
use crate::xdp::{XdpInterface, joined_behind};

/// Maximum length of a query that is read. Longer messages can only get an error reply.
const QUERY_LEN: usize = 1500;
/// Interval between reads of an interface's counters.
const EACH: Duration = Duration::from_millis(100);

/// Path on which a server receives queries and sends replies.
pub(crate) enum Port {
    /// A socket of the kernel's network stack.
    Socket(Arc<Endpoint>, Box<ServerBatch>),
    /// The AF_XDP rings of one queue. If `may_join` is true, the kernel may have joined several queries into one
    /// datagram. Only the first query of a datagram is read, and `joined` counts the remaining queries.
    Rings { server: Box<xdp::Server>, may_join: bool, joined: u64, losses: Losses },
}

impl Port {
    /// Creates a port on a socket. The socket's receive timeout limits the duration of each call of [`Port::turn`].
    pub(crate) fn socket(endpoint: Arc<Endpoint>) -> Port {
        Port::Socket(endpoint, Box::new(ServerBatch::new(QUERY_LEN, MAX_REPLY)))
    }

    /// Creates a port for each queue of this interface.
    pub(crate) fn rings(
        servers: Vec<xdp::Server>,
        interface: &XdpInterface,
    ) -> impl Iterator<Item = Port> {
        let may_join = interface.may_join();
        // In zero-copy mode, only the interface counts the packets dropped before the rings. The first queue's port
        // reads this counter for all queues.
        let mut device = (interface.attach_mode == AttachMode::ZeroCopy)
            .then(|| Device::of(&interface.interface));
        servers.into_iter().map(move |server| Port::Rings {
            server: Box::new(server),
            may_join,
            joined: 0,
            losses: Losses { device: device.take(), ..Losses::default() },
        })
    }

    /// Returns the socket, through which replies can be sent later.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match self {
            Port::Socket(endpoint, _) => Some(Arc::clone(endpoint)),
            Port::Rings { .. } => None,
        }
    }

    /// Receives queries and sends the replies. Waits up to `limit` for the first query; if `limit` is zero, does not
    /// wait.
    ///
    /// `answer` writes the reply to a query and returns the length of the reply, or 0 for no reply.
    ///
    /// # Errors
    /// Returns a pending ICMP error of a socket, or an error if the interface is gone.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        limit: Duration,
        mut answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
    ) -> io::Result<Turn> {
        match self {
            Port::Socket(endpoint, batch) => {
                let wait = if limit.is_zero() { Wait::NonBlocking } else { Wait::ForFirst };
                batch.turn(endpoint, wait, answer)
            }
            Port::Rings { server, may_join, joined, .. } => {
                let turn = server.turn(limit, |query, source, out| {
                    if *may_join {
                        *joined += joined_behind(query.bytes, query.has_partial_checksum);
                    }
                    answer(query, source, out)
                });
                // If the interface is gone, the server's `turn` returns at once. The sleep prevents a busy loop in the
                // worker.
                turn.inspect_err(|_| std::thread::sleep(limit))
            }
        }
    }

    /// Returns the number of queries that arrived but were not delivered to the worker. Either the worker was too slow,
    /// or the queries were joined to other queries in one datagram. Each call that cannot read a counter adds 1, so
    /// that a trial does not pass.
    pub(crate) fn drops(&mut self) -> u64 {
        match self {
            Port::Socket(endpoint, _) => endpoint.drops(),
            Port::Rings { server, joined, losses, .. } => losses.of(&server.drops()) + *joined,
        }
    }
}

/// Counter of packets that were lost before they could be read from a queue's rings.
#[derive(Default)]
pub(crate) struct Losses {
    /// Number of dropped packets, as reported by the last successful read from the kernel.
    known: u64,
    /// Number of failed reads. Each counts as a loss, so that the trial does not pass.
    unknown: u64,
    device: Option<Device>,
}

impl Losses {
    /// Returns the number of packets lost so far. `rings` is the number of packets dropped at the rings, as read from
    /// the kernel.
    fn of(&mut self, rings: &io::Result<u64>) -> u64 {
        match rings {
            Ok(drops) => self.known = *drops,
            Err(_) => self.unknown += 1,
        }
        self.known + self.unknown + self.device.as_mut().map_or(0, Device::drops)
    }
}

/// Received packets that an interface counted as dropped. The kernel is queried at most ten times a second.
pub(crate) struct Device {
    interface: String,
    /// Value of the interface's counter at the start; `None` if it was not reported.
    before: Option<u64>,
    drops: u64,
    due: Instant,
}

impl Device {
    /// Opens the counters of the interface with this name.
    fn of(interface: &str) -> Device {
        let before = counters(interface).map(|counted| counted.receive_drops);
        Device { interface: interface.to_owned(), before, drops: 0, due: Instant::now() }
    }

    /// Returns the number of packets dropped since the counters were opened. Each failed read adds 1.
    fn drops(&mut self) -> u64 {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + EACH;
            let counted = counters(&self.interface);
            self.drops = match counted.zip(self.before) {
                Some((counted, before)) => counted.receive_drops.saturating_sub(before),
                None => self.drops + 1,
            };
        }
        self.drops
    }
}

/// Returns the counters of an interface used by AF_XDP; `None` if the kernel does not report them.
fn counters(interface: &str) -> Option<InterfaceCounters> {
    interface_counters(interface, PacketPath::Xdp).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_counters_count_as_losses() {
        let mut losses = Losses::default();
        let broken = || Err(io::ErrorKind::InvalidData.into());
        assert_eq!(losses.of(&Ok(0)), 0);
        assert_eq!(losses.of(&broken()), 1);
        assert_eq!((losses.of(&Ok(5)), losses.of(&broken()), losses.of(&broken())), (6, 7, 8));
    }

    #[test]
    fn device_drops_and_unreadable_counters_are_losses() {
        let mut device = Device::of("lo");
        assert_eq!((device.before.is_some(), device.drops()), (true, 0));
        let mut none = Device::of("no-such-interface");
        assert_eq!((none.drops(), none.drops()), (1, 1), "asked once in a while");
        none.due = Instant::now();
        assert_eq!(none.drops(), 2);
        let mut losses = Losses { device: Some(none), ..Losses::default() };
        assert_eq!(losses.of(&Ok(3)), 5);
    }
}
