//! AF_XDP client: a sender and a receiver, which can run in separate threads.
//!
//! ```text
//! Sender ─► frame of its own ─► transmit ring of queue 0 ─► interface ─► next hop
//!    ▲           └─── completion ring ◄──────────────────────────┘            │
//! Receiver ◄─ receive rings of all queues ◄─ filter (to our addresses and ports) ◄─ server
//! ```
//!
//! The device selects the queue on which a reply arrives, and this queue may differ from the queue of the query. A
//! [`Client`] therefore reads all queues. A program that also answers queries, with one thread per queue, uses an
//! [`Exchange`](super::Exchange) per queue.

use super::error::XdpError;
use super::exchange::{Receiver, Sender};
use super::filter::Claim;
use super::frame::Link;
use super::interface::{Interface, LINK, await_link, find};
use super::mode::{AttachMode, Mode};
use super::queue::Capacity;
use crate::neighbour::NextHop;

/// A client that sends queries and receives replies by AF_XDP. It can be split into a sender and a receiver.
pub struct Client {
    attach_mode: AttachMode,
    link: Link,
    sender: Sender,
    receiver: Receiver,
}

impl Client {
    /// Opens the interface that leads to the next hop `hop`. The client sends on this interface, and receives the
    /// datagrams with a destination address and port in `claims`. The next hop's link-layer address must be resolved
    /// ([`NextHop::resolve`]).
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(hop: &NextHop, claims: &[Claim], mode: Mode) -> Result<Client, XdpError> {
        let Some(link) = hop.link().ok().flatten() else {
            let (interface, address) = (hop.interface.clone(), hop.address);
            return Err(XdpError::NoEthernet { interface, address });
        };
        let opened = Interface::open_found(&find(&hop.interface)?, claims, mode, Capacity::client)?;
        await_link(&hop.interface, LINK)?;
        let (attach_mode, own) = (opened.attach_mode, opened.own);
        let (mut first, mut incomings) = (None, Vec::new());
        for queue in opened.queues {
            let (sender, incoming) = Sender::split(queue, attach_mode);
            first.get_or_insert(sender);
            incomings.push(incoming);
        }
        let sender = first.expect("an interface has a queue");
        let receiver = Receiver { queues: incomings, own, unreadable: 0 };
        Ok(Client { attach_mode, link, sender, receiver })
    }

    /// Returns the two Ethernet addresses of sent frames: the address that the next hop had when the client was opened,
    /// and the address of the interface.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Returns the attach mode in use.
    pub fn attach_mode(&self) -> AttachMode {
        self.attach_mode
    }

    /// Returns the number of receive queues of this client.
    pub fn queues(&self) -> usize {
        self.receiver.queues.len()
    }

    /// Splits the client into sender and receiver.
    pub fn into_halves(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}
