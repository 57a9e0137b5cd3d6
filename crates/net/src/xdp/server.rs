//! AF_XDP server on one queue: a reply is sent in the frame of its query.

use std::io;
use std::mem;
use std::time::Duration;

use units::Nanos;

use super::frame::{self, HostAddresses};
use super::outbox::LONGEST;
use super::queue::Queue;
use crate::batch::{BATCH, Datagram, Source, Turn};
use crate::clock::ClockPair;

/// Maximum delay until replies that the device did not accept are submitted to it again.
const RESEND_INTERVAL: Duration = Duration::from_millis(1);

/// Receives queries and sends replies by AF_XDP. [`crate::batch::ServerBatch`] does the same on an ordinary socket.
pub struct Server {
    queue: Queue,
    own: HostAddresses,
    reply: Box<[u8]>,
    /// Number of packets that matched the filter but were invalid. A packet is invalid if its checksum is wrong, its
    /// lengths are inconsistent, or one of its addresses is not allowed, such as this host's own address as the source.
    unreadable: u64,
}

impl Server {
    pub(super) fn new(queue: Queue, own: HostAddresses) -> Server {
        // Size of the largest payload that fits into a frame after the longest headers.
        Server { queue, own, reply: vec![0; LONGEST].into(), unreadable: 0 }
    }

    /// Receives up to [`BATCH`] queries, waiting up to `limit` for the first. `answer` writes the reply to a query and
    /// returns the reply's length, or 0 for no reply. The replies are then sent. The receive time of a query is
    /// recorded by the filter and converted to wall-clock time.
    ///
    /// # Errors
    /// Returns an error if the interface is gone.
    #[inline]
    pub fn turn(
        &mut self,
        limit: Duration,
        mut answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
    ) -> io::Result<Turn> {
        // Replies that the device did not accept are soon submitted again.
        let limit = if self.queue.is_held() { limit.min(RESEND_INTERVAL) } else { limit };
        let incoming = self.queue.incoming();
        if !incoming.has_received() {
            incoming.wait(limit)?;
        } else if incoming.wants_frames() {
            incoming.wait(Duration::ZERO)?;
        }
        let (mut turn, clocks) = (Turn::default(), ClockPair::sample());
        let dropped = self.queue.dropped();
        while turn.received < BATCH {
            let Some(packet) = self.queue.incoming().receive() else { break };
            turn.received += 1;
            let length = match self.queue.incoming().frame(packet) {
                Some((stamp, frame)) => {
                    let moment = clocks.to_wall(Nanos(u64::from_ne_bytes(stamp)));
                    let (length, own) = (packet.length(), &self.own);
                    respond(frame, length, own, moment, &mut self.reply, &mut answer)
                }
                None => Response::Unreadable,
            };
            match length {
                Response::Reply(length) if self.queue.send(packet, length) => turn.sent += 1,
                Response::Reply(_) => turn.refused += 1,
                Response::None => self.queue.incoming().release(packet),
                Response::Unreadable => {
                    self.unreadable += 1;
                    self.queue.incoming().release(packet);
                }
            }
        }
        if self.queue.flush().is_err() {
            // It is unknown which of the replies have left.
            turn.refused += mem::take(&mut turn.sent);
        } else {
            refuse(&mut turn, (self.queue.dropped() - dropped) as usize);
        }
        Ok(turn)
    }

    /// Returns how many of the packets received since the queue was opened were lost before this server could answer
    /// them. These packets were dropped because no frame or ring entry was free, or discarded because they were
    /// invalid.
    ///
    /// # Errors
    /// Returns any error from getsockopt(2). The number of drops is then unknown.
    pub fn drops(&self) -> io::Result<u64> {
        Ok(self.queue.drops()? + self.unreadable)
    }
}

/// Subtracts `dropped` from the number of sent replies, and adds it to the number of refused replies. `dropped` counts
/// the replies that the interface dropped while sending. Some of them may have been counted as sent in an earlier call
/// of [`Server::turn`].
fn refuse(turn: &mut Turn, dropped: usize) {
    turn.refused += dropped;
    turn.sent = turn.sent.saturating_sub(dropped);
}

/// Result of handling a packet.
enum Response {
    /// A reply has replaced the packet in its frame and must be sent. The value is the length of the new frame.
    Reply(usize),
    /// The server does not reply to this packet.
    None,
    /// The packet is not a valid UDP datagram.
    Unreadable,
}

/// Replaces the packet in the first `length` octets of a frame by its reply.
#[inline]
fn respond(
    frame: &mut [u8],
    length: usize,
    own: &HostAddresses,
    moment: Nanos,
    reply: &mut [u8],
    answer: &mut impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
) -> Response {
    let packet = frame.get(..length);
    let Some(found) = packet.and_then(|packet| frame::read(packet, own)) else {
        return Response::Unreadable;
    };
    let query = Datagram {
        bytes: &frame[found.payload.clone()],
        segment: None,
        received: Some(moment),
        has_partial_checksum: found.has_partial_checksum,
    };
    let written = answer(&query, Source::known(found.source), reply);
    let start = found.payload.start;
    match frame.get_mut(start..start + written) {
        Some(payload) if written > 0 => {
            payload.copy_from_slice(&reply[..written]);
            Response::Reply(frame::turn_into_reply(frame, &found, written))
        }
        _ => Response::None,
    }
}

/// Answers the packet in the first `length` octets of `frame` in the same way as a [`Server`], and overwrites it with
/// the frame of the reply. Returns the length of this new frame, or `None` if there is no reply. `by_cable` is true if
/// the packet is to be treated like one from a physical network card. This function is for fuzzers, which have no
/// interface.
#[doc(hidden)]
pub fn answer_frame(
    frame: &mut [u8],
    length: usize,
    by_cable: bool,
    mut answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
) -> Option<usize> {
    let own = HostAddresses::default().with_partial_checksums(!by_cable);
    match respond(frame, length, &own, Nanos(0), &mut [0; LONGEST], &mut answer) {
        Response::Reply(length) => Some(length),
        Response::None | Response::Unreadable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::tests::{ENDS, frame, none};
    use super::*;

    #[test]
    fn a_reply_is_written_over_its_query() {
        for (from, to) in ENDS {
            let mut memory = frame(from, to, b"a query that is longer");
            let length = memory.len();
            memory.resize(1792, 0);
            let mut reply = vec![0; LONGEST];
            let mut seen = None;
            let response = respond(
                &mut memory,
                length,
                &none(),
                Nanos(7),
                &mut reply,
                &mut |query, source, out| {
                    seen = Some((query.bytes.to_vec(), query.received, source.address()));
                    out[..5].copy_from_slice(b"reply");
                    5
                },
            );
            let source = from.parse().unwrap();
            assert_eq!(
                seen,
                Some((b"a query that is longer".to_vec(), Some(Nanos(7)), Some(source)))
            );
            let Response::Reply(length) = response else { panic!("no reply") };
            let turned = frame::read(&memory[..length], &none()).unwrap();
            assert_eq!((turned.destination, &memory[turned.payload]), (source, &b"reply"[..]));
        }
    }

    #[test]
    fn a_reply_dropped_by_the_interface_is_not_sent() {
        for (sent, dropped, left) in [(5, 0, 5), (5, 2, 3), (1, 3, 0)] {
            let mut turn = Turn { received: 7, sent, refused: 1 };
            refuse(&mut turn, dropped);
            assert_eq!(turn, Turn { received: 7, sent: left, refused: 1 + dropped });
        }
    }

    #[test]
    fn unanswered_and_unreadable_packets_send_nothing() {
        let (from, to) = ENDS[0];
        let mut memory = frame(from, to, b"query");
        let length = memory.len();
        let mut reply = vec![0; LONGEST];
        let silent = respond(&mut memory, length, &none(), Nanos(0), &mut reply, &mut |_, _, _| 0);
        assert!(matches!(silent, Response::None));
        memory[30] ^= 1;
        let broken = respond(&mut memory, length, &none(), Nanos(0), &mut reply, &mut |_, _, _| 5);
        assert!(matches!(broken, Response::Unreadable));
        let cut = respond(&mut memory, length + 1, &none(), Nanos(0), &mut reply, &mut |_, _, _| 5);
        assert!(matches!(cut, Response::Unreadable), "the kernel names more than there is");
    }
}
