//! What the threads tell each other: workers get mail from the thread for TCP and from other workers, and hand that thread
//! the questions that upstreams are to be asked over TCP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use net::poller::Alarm;
use tokio::sync::mpsc::UnboundedSender;

use super::fetches::FetchId;
use crate::name::Key;
use crate::resolver::outcome::Outcome;

/// What a worker is told by others.
pub(super) enum Mail {
    /// A query that came over TCP.
    TcpQuery { bytes: Vec<u8>, from: IpAddr, reply: UnboundedSender<Vec<u8>> },
    /// What came of a question to an upstream over TCP.
    TcpAnswer { fetch: FetchId, message: Result<Vec<u8>, TcpFailure> },
    /// What came of a question that another worker asked.
    Landed(Key, Outcome),
}

/// Where a worker is told.
pub(super) struct Mailbox {
    pub(super) sender: Sender<Mail>,
    pub(super) alarm: Arc<Alarm>,
}

impl Mailbox {
    /// Tells the worker, and wakes it.
    pub(super) fn post(&self, mail: Mail) {
        // The worker has ended: so does everything.
        if self.sender.send(mail).is_ok() {
            self.alarm.ring();
        }
    }
}

/// A question that an upstream is to be asked over TCP.
pub(super) struct TcpQuestion {
    pub(super) worker: usize,
    pub(super) fetch: FetchId,
    pub(super) address: SocketAddr,
    pub(super) query: Vec<u8>,
    pub(super) timeout: Duration,
}

/// Why a question to an upstream got no answer over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TcpFailure {
    /// The upstream did not answer.
    NoAnswer,
    /// It was not asked: too many questions were under way.
    NoRoom,
}
