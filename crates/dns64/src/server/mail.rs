//! Messages to workers, from the thread for TCP and from each other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use net::poller::Alarm;

use super::explain::Trace;
use crate::ids::{FetchId, PortId};
use crate::name::Key;
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::TcpFailure;
use crate::transport::client::Client;

/// A message to a worker.
pub(super) enum Mail {
    /// A query that came over a connection.
    Query { bytes: Vec<u8>, client: Client },
    /// A query, as if a client with this address had sent it, that is to be explained.
    Explain { bytes: Vec<u8>, client: IpAddr, trace: Box<Trace> },
    /// What came of a question to an upstream over TCP.
    TcpAnswer { fetch: FetchId, message: Result<Vec<u8>, TcpFailure> },
    /// A datagram that came past the stack to the rings of another worker, and is for a port of
    /// this one.
    Answer { port: PortId, from: SocketAddr, to: SocketAddr, bytes: Vec<u8> },
    /// What came of a question that another worker asked.
    Landed(Key, Outcome),
}

/// The inbox of a worker, as others see it.
pub(super) struct Mailbox {
    pub(super) sender: Sender<Mail>,
    pub(super) alarm: Arc<Alarm>,
}

impl Mailbox {
    /// Puts a message into the inbox, and wakes the worker.
    pub(super) fn post(&self, mail: Mail) {
        // Sending fails only when the worker has ended, and then the process is about to end.
        if self.sender.send(mail).is_ok() {
            self.alarm.ring();
        }
    }
}
