//! A proxy between the validators and the authoritative server. It changes replies.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use wire::view::rtype::{NSEC, NSEC3, RRSIG};

/// Time after which a query to the authoritative server counts as lost, and interval at which the proxy checks whether
/// it must end.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of times that a query is sent to the authoritative server.
const ATTEMPTS: u8 = 20;

/// A record. Its owner is in wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) owner: Vec<u8>,
    pub(super) rtype: u16,
    class_and_ttl: [u8; 6],
    pub(super) data: Vec<u8>,
}

impl Record {
    /// True for NSEC and NSEC3 records, and for their signatures.
    pub(super) fn is_denial(&self) -> bool {
        let covered = self.data.first_chunk().map(|type_covered| u16::from_be_bytes(*type_covered));
        let rtype = if self.rtype == RRSIG { covered.unwrap_or_default() } else { self.rtype };
        matches!(rtype, NSEC | NSEC3)
    }
}

/// A reply without compressed names.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Message id and flags.
    head: [u8; 4],
    /// Name in wire format.
    pub(super) name: Vec<u8>,
    pub(super) rtype: u16,
    /// Answer, authority and additional section.
    pub(super) sections: [Vec<Record>; 3],
}

impl Reply {
    fn parse(octets: &[u8]) -> Option<Reply> {
        let message = wire::view::Message::new(octets)?;
        let end = message.skip_name(12).ok()?;
        let rtype = u16::from_be_bytes(*octets.get(end..)?.first_chunk()?);
        let mut records = message.all_records(end + 4);
        let counts = [message.ancount(), message.nscount(), message.arcount()];
        let mut sections = [const { Vec::new() }; 3];
        for (section, count) in sections.iter_mut().zip(counts) {
            for _ in 0..count {
                let record = records.next()?.ok()?;
                let class_and_ttl = *octets.get(record.data_at - 8..)?.first_chunk()?;
                let owner = octets.get(record.owner_octets())?.to_vec();
                section.push(Record {
                    owner,
                    rtype: record.rtype,
                    class_and_ttl,
                    data: record.data.into(),
                });
            }
        }
        Some(Reply { head: *octets.first_chunk()?, name: octets[12..end].into(), rtype, sections })
    }

    fn compose(&self) -> Vec<u8> {
        let mut out = [&self.head[..], &[0, 1]].concat();
        for section in &self.sections {
            out.extend((section.len() as u16).to_be_bytes());
        }
        out.extend(&self.name);
        out.extend([self.rtype.to_be_bytes(), [0, 1]].concat());
        for record in self.sections.iter().flatten() {
            out.extend(&record.owner);
            out.extend(record.rtype.to_be_bytes());
            out.extend(record.class_and_ttl);
            out.extend((record.data.len() as u16).to_be_bytes());
            out.extend(&record.data);
        }
        out
    }

    /// True if the question is for this name and type.
    pub(super) fn is_for(&self, name: &str, rtype: u16) -> bool {
        self.name.eq_ignore_ascii_case(&wire_name(name)) && self.rtype == rtype
    }

    /// RCODE in the header.
    pub(super) fn rcode(&self) -> u8 {
        self.head[3] & 15
    }

    pub(super) fn set_rcode(&mut self, rcode: u8) {
        self.head[3] = self.head[3] & 0xf0 | rcode;
    }
}

/// The authoritative server.
pub(super) struct Upstream {
    socket: UdpSocket,
}

impl Upstream {
    fn new(server: SocketAddr) -> Result<Upstream> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PAUSE))?;
        Ok(Upstream { socket })
    }

    /// Returns the reply to a query with the DO bit.
    pub(super) fn query(&self, name: &str, rtype: u16) -> Result<Reply> {
        self.forward(&query(0, name, rtype))
    }

    fn forward(&self, query: &[u8]) -> Result<Reply> {
        let mut reply = [0; 4_096];
        for _ in 0..ATTEMPTS {
            self.socket.send(query)?;
            while let Ok(len) = self.socket.recv(&mut reply) {
                let found =
                    Reply::parse(&reply[..len]).filter(|reply| reply.head[..2] == query[..2]);
                // The reply to an earlier query can have the same id.
                if let Some(found) = found.filter(|reply| query[12..].starts_with(&reply.name)) {
                    return Ok(found);
                }
            }
        }
        anyhow::bail!("the authoritative server does not answer")
    }
}

/// A change of the reply to a query.
pub(super) type Edit = fn(&mut Reply, &Upstream) -> Result<()>;

/// Forwards queries to `server` and changes the replies, until `is_over` is true.
pub(super) fn run(
    socket: &UdpSocket,
    server: SocketAddr,
    edit: Edit,
    is_over: &AtomicBool,
) -> Result<()> {
    let upstream = Upstream::new(server)?;
    socket.set_read_timeout(Some(PAUSE))?;
    let mut query = [0; 4_096];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut query) else { continue };
        let Ok(mut reply) = upstream.forward(&query[..len]) else { continue };
        let head = reply.head;
        edit(&mut reply, &upstream).context("change of a reply")?;
        reply.head[..2].copy_from_slice(&head[..2]);
        socket.send_to(&reply.compose(), from)?;
    }
    Ok(())
}

/// Returns a query with the flags RD and AD and the DO bit.
pub(super) fn query(id: u16, name: &str, rtype: u16) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0x20, 0, 1, 0, 0, 0, 0, 0, 1]);
    out.extend(wire_name(name));
    out.extend([rtype.to_be_bytes(), [0, 1]].concat());
    out.extend([0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0]);
    out
}

/// Returns a name in wire format.
pub(super) fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.bytes());
    }
    out.push(0);
    out
}
