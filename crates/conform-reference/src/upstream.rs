//! Upstream queries of the reference server. By default, each query has a separate socket.
//!
//! ```text
//! UDP ─► no reply after 2/3 of the time: retransmission ─► no reply: TCP, for 300 ms ─► no reply
//!   ├─► TC: TCP (RFC 7766 §5)
//!   └─► FORMERR to OPT: the same without OPT (RFC 6891 §6.2.2)
//! ```

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conform::message::{Message, rcode};

use crate::cache::Key;
use crate::rules::{Hooks, Rules};

/// Timeout of a TCP query that is sent if the UDP queries got no reply.
const LAST_TRY: Duration = Duration::from_millis(300);

/// Server to which the reference server forwards queries.
pub(super) struct Upstream {
    address: SocketAddr,
    rules: Rules,
    hooks: Hooks,
    begin: Instant,
    /// Socket for all queries of the current time slot, and the number of this time slot (see [`Rules::turn`]).
    shared: Mutex<Option<(u128, Arc<Mutex<UdpSocket>>)>>,
    next_id: AtomicU16,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, rules: Rules, hooks: Hooks) -> Upstream {
        let (shared, next_id) = (Mutex::default(), AtomicU16::new(1));
        Upstream { address, rules, hooks, begin: Instant::now(), shared, next_id }
    }

    /// Sends an upstream query and returns the reply. Over UDP, waits until the timeout `upstream_patience` or the time
    /// `give_up`, whichever is earlier. Without a reply, retries over TCP. Returns `None` if TCP yields no reply
    /// either.
    pub(super) fn ask(&self, key: &Key, give_up: Instant) -> Option<Message> {
        let end = give_up.min(Instant::now() + self.rules.upstream_patience);
        let mut query = Message::query(&key.name, key.qtype);
        query.flags.cd = key.cd;
        if let Some(edns) = &mut query.edns {
            edns.dnssec_ok = key.dnssec_ok;
        }
        let mut reply = self.exchange(&query, end)?;
        if reply.rcode == rcode::FORMERR && self.rules.retries_without_edns {
            query.edns = None;
            reply = self.exchange(&query, end)?;
        }
        if let Some(hook) = self.hooks.hears {
            hook(&mut reply);
        }
        Some(reply)
    }

    fn exchange(&self, query: &Message, end: Instant) -> Option<Message> {
        let id = match self.rules.random_source {
            true => rand::random(),
            false => self.next_id.fetch_add(1, Ordering::Relaxed),
        };
        let mut query = Message { id, ..query.clone() };
        if let Some(hook) = self.hooks.asks {
            hook(&mut query);
        }
        match self.over_udp(&query, end) {
            Some(reply) if reply.flags.tc && self.rules.asks_over_tcp => {
                self.over_tcp(&query, end.max(Instant::now() + LAST_TRY))
            }
            Some(reply) => Some(reply),
            None if self.rules.asks_over_tcp => self.over_tcp(&query, Instant::now() + LAST_TRY),
            None => None,
        }
    }

    fn over_udp(&self, query: &Message, end: Instant) -> Option<Message> {
        let turn = match self.rules.turn {
            _ if !self.rules.random_source => 0,
            Some(length) => self.wait_for_turn(length),
            None => return self.wait_for_reply(&self.socket(end)?, query, end),
        };
        let socket = self.socket_of_turn(turn, end)?;
        let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.wait_for_reply(&socket, query, end)
    }

    /// Waits until the current time slot ends, and returns the number of the next time slot. Each slot has the length
    /// `length`.
    fn wait_for_turn(&self, length: Duration) -> u128 {
        let (elapsed, length) = (self.begin.elapsed().as_nanos(), length.as_nanos());
        thread::sleep(Duration::from_nanos((length - elapsed % length) as u64));
        elapsed / length + 1
    }

    /// Returns the socket for all queries that are sent in the time slot with the number `turn`.
    fn socket_of_turn(&self, turn: u128, end: Instant) -> Option<Arc<Mutex<UdpSocket>>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_none_or(|(of, _)| *of != turn) {
            *shared = Some((turn, Arc::new(Mutex::new(self.socket(end)?))));
        }
        shared.as_ref().map(|(_, socket)| Arc::clone(socket))
    }

    /// Opens a socket on a random port. If all file descriptors are in use, waits for a free one.
    fn socket(&self, end: Instant) -> Option<UdpSocket> {
        let any = SocketAddr::new(unspecified(self.address), 0);
        while Instant::now() < end {
            match UdpSocket::bind(any) {
                Ok(socket) => return Some(socket),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        None
    }

    fn wait_for_reply(&self, socket: &UdpSocket, query: &Message, end: Instant) -> Option<Message> {
        let octets = query.octets();
        let begin = Instant::now();
        // The wait after the first transmission is the longest. If there are two transmissions, the second is sent
        // after 2/3 of the time.
        let tries = self.rules.tries as u32;
        let tick = end.saturating_duration_since(begin) / (tries + 1);
        let mut buffer = vec![0; usize::from(u16::MAX)];
        for until in (2..tries + 2).map(|ticks| begin + tick * ticks) {
            socket.send_to(&octets, self.address).ok()?;
            while let Some(left) = left_until(until) {
                socket.set_read_timeout(Some(left)).ok()?;
                let Ok((len, source)) = socket.recv_from(&mut buffer) else { continue };
                let is_theirs = source == self.address || !self.rules.checks_source;
                let reply = Message::parse(&buffer[..len]).ok().filter(|_| is_theirs);
                if let Some(reply) = reply.filter(|reply| fits(query, reply, &self.rules)) {
                    return Some(reply);
                }
            }
        }
        None
    }

    fn over_tcp(&self, query: &Message, end: Instant) -> Option<Message> {
        let mut stream = TcpStream::connect_timeout(&self.address, left_until(end)?).ok()?;
        stream.set_nodelay(true).ok()?;
        send_framed(&mut stream, &query.octets()).ok()?;
        loop {
            stream.set_read_timeout(Some(left_until(end)?)).ok()?;
            let octets = read_framed(&mut stream).ok()?;
            let reply = Message::parse(&octets).ok();
            if let Some(reply) = reply.filter(|reply| fits(query, reply, &self.rules)) {
                return Some(reply);
            }
        }
    }
}

fn left_until(end: Instant) -> Option<Duration> {
    Some(end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// Returns true if `reply` is a reply to `query` (RFC 5452 §9.1). A FORMERR reply need not contain the question.
fn fits(query: &Message, reply: &Message, rules: &Rules) -> bool {
    let same_question = reply.questions == query.questions
        || reply.questions.is_empty() && reply.rcode == rcode::FORMERR;
    reply.flags.qr
        && reply.opcode == query.opcode
        && (reply.id == query.id || !rules.checks_id)
        && (same_question || !rules.checks_question)
}

/// Returns the unspecified address (0.0.0.0 or ::) of the address family of `address`.
pub(super) fn unspecified(address: SocketAddr) -> IpAddr {
    match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Sends a message, preceded by its length, in one segment (RFC 7766 §8).
pub(super) fn send_framed(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let len = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&len.to_be_bytes(), message].concat())
}

/// Reads a message that is preceded by its length.
pub(super) fn read_framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut message)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use domain::base::iana::Rtype;

    use super::*;
    use conform::message::name;

    #[test]
    fn rfc_5452_9_1_matching_replies() {
        let rules = Rules::default();
        let query = Message::query(&name("x.example"), Rtype::A);
        let right = query.response();
        assert!(fits(&query, &right, &rules));
        let with_id = Message { id: query.id ^ 1, ..right.clone() };
        assert!(!fits(&query, &with_id, &rules));
        assert!(fits(&query, &with_id, &Rules { checks_id: false, ..rules.clone() }));
        let other = Message::query(&name("y.example"), Rtype::A).questions;
        let other = Message { questions: other, ..right.clone() };
        assert!(!fits(&query, &other, &rules));
        assert!(fits(&query, &other, &Rules { checks_question: false, ..rules.clone() }));
        let bare = Message { questions: Vec::new(), ..right };
        assert!(!fits(&query, &bare, &rules));
        assert!(fits(&query, &Message { rcode: rcode::FORMERR, ..bare }, &rules));
        assert!(!fits(&query, &query.clone(), &rules));
    }
}
