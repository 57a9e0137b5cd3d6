//! What workers are told by the thread for TCP and by each other.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use net::poller::Alarm;

use crate::ids::FetchId;
use crate::name::Key;
use crate::resolver::outcome::Outcome;
use crate::resolver::outside::TcpFailure;
use crate::transport::client::Client;

/// What a worker is told by others.
pub(super) enum Mail {
    /// A query that came over a connection.
    Query { bytes: Vec<u8>, client: Client },
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
