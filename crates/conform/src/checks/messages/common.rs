//! Queries that any server answers. They are used by several files of this folder.

use std::time::Duration;

use domain::base::iana::Rtype;

use crate::message::{Message, Name, name, rcode};
use crate::trial::{Judge, Judged, Trial, expect};

/// Waiting time for a reply that the server need not send.
pub(super) const SILENCE: Duration = Duration::from_millis(600);

/// Opcodes (IANA, DNS OpCodes).
pub(super) const STATUS: u8 = 2;
pub(super) const NOTIFY: u8 = 4;
pub(super) const UPDATE: u8 = 5;

/// Returns a name with AAAA records: a new name if there is a test zone, otherwise `ipv4only.arpa`.
pub(super) fn known(t: &mut Trial<'_>) -> Name {
    match t.subject().zone {
        Some(_) => t.name("v4-1-2-3-4"),
        None => name("ipv4only.arpa"),
    }
}

/// Returns an AAAA query for a name that has AAAA records (see [`known`]).
pub(super) fn query(t: &mut Trial<'_>) -> Message {
    Message::query(&known(t), Rtype::AAAA)
}

/// Requires that a reply has NOERROR and at least one AAAA record.
pub(super) fn is_answered(reply: &Message) -> Judged {
    reply.has_rcode(rcode::NOERROR)?;
    let found = reply.answers(Rtype::AAAA).next();
    expect(found.is_some(), || "there is no AAAA record in the answer".into())
}
