//! Single queries to the server under test: for its version, and for test names.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use wire::name::Domain;
use wire::rcode::Rcode;
use wire::template::{HEADER_LEN, QueryTemplate};
use wire::view::{CLASS_IN, Message, rtype};

use super::state::{NameReplies, Reply};
use crate::interruption;

/// Time to wait for a response. It is several seconds, because resolvers send SERVFAIL only after some seconds if their
/// upstream does not respond.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to wait for a response to the version query. It is short, because some servers do not answer queries of class
/// CH.
const VERSION_PATIENCE: Duration = Duration::from_secs(1);
/// Interval between two checks of the interruption flag.
const LOOK: Duration = Duration::from_millis(100);

/// Query for TXT records of `version.bind` in class CH, with ID 0.
const VERSION: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x07version\x04bind\0\0\x10\0\x03";
const TXT: u16 = 16;
const CLASS_CH: u16 = 3;

/// UDP socket that is connected to the server.
pub(super) struct Probe {
    socket: UdpSocket,
    template: QueryTemplate,
}

impl Probe {
    /// Opens a socket to `server`, for queries for names in `domain`.
    ///
    /// # Errors
    /// Returns an error if there is no route to the server.
    pub(super) fn open(server: SocketAddr, domain: &Domain) -> io::Result<Probe> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(server)?;
        Ok(Probe { socket, template: QueryTemplate::aaaa(domain) })
    }

    /// Returns the local address from which queries are sent to the server.
    pub(super) fn local_ip(&self) -> io::Result<IpAddr> {
        Ok(self.socket.local_addr()?.ip())
    }

    /// Returns the version that the server reports, or `None` if it reports none.
    pub(super) fn version(&self) -> Option<String> {
        let reply = self.ask(VERSION.to_vec(), VERSION_PATIENCE).ok()??;
        let message = Message::new(&reply)?;
        let text = message
            .records(VERSION.len(), message.ancount())
            .flatten()
            .find(|record| record.rtype == TXT && record.class == CLASS_CH)?;
        // A character-string consists of a length octet and the text (RFC 1035 §3.3).
        let (&len, rest) = text.data.split_first()?;
        Some(String::from_utf8_lossy(rest.get(..usize::from(len))?).into_owned())
    }

    /// Queries a name that is generated from a random address in 9.0.0.0/8. Trials use no names from this address
    /// block. `auth_queries` returns the number of queries that AuthDNS has received so far.
    pub(super) fn query_name(&self, auth_queries: impl Fn() -> u64) -> NameReplies {
        let [_, b, c, d] = random().to_be_bytes();
        let name = Ipv4Addr::new(9, b, c, d);
        let before = auth_queries();
        let aaaa = self.addresses(name, rtype::AAAA);
        let is_nodata = aaaa == Reply::Addresses(Vec::new());
        let a = is_nodata.then(|| self.addresses(name, rtype::A));
        NameReplies { name, aaaa, a, auth_asked: auth_queries() > before }
    }

    /// Queries the records of type `wanted` (A or AAAA) of a name.
    fn addresses(&self, name: Ipv4Addr, wanted: u16) -> Reply {
        let mut query = self.template.bytes().to_vec();
        QueryTemplate::patch(&mut query, 0, name);
        // The query ends with type and class, of two octets each.
        let at = query.len() - 4;
        query[at..at + 2].copy_from_slice(&wanted.to_be_bytes());
        match self.ask(query, PATIENCE) {
            Ok(Some(reply)) => addresses_in(&reply, self.template.len(), wanted),
            Ok(None) => Reply::Silent,
            Err(error) => Reply::Unreachable(error.kind()),
        }
    }

    /// Sends a query with a new ID, and returns the response with that ID. Returns `None` if there is no response
    /// within `patience`, or if the user interrupts the program.
    fn ask(&self, mut query: Vec<u8>, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let [a, b, ..] = random().to_be_bytes();
        let id = [a, b];
        query[..2].copy_from_slice(&id);
        self.socket.send(&query)?;
        let give_up = Instant::now() + patience;
        self.socket.set_read_timeout(Some(LOOK))?;
        let mut reply = vec![0; 4096];
        while Instant::now() < give_up && !interruption::is_asked() {
            match self.socket.recv(&mut reply) {
                Ok(len) if len >= HEADER_LEN && reply[..2] == id && reply[2] & 0x80 != 0 => {
                    reply.truncate(len);
                    return Ok(Some(reply));
                }
                Ok(_) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(None)
    }
}

/// Returns a random number for message IDs and names.
fn random() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// Returns the addresses in those records of a response that have the type `wanted`. The answer section of the response
/// begins at octet `at`.
fn addresses_in(reply: &[u8], at: usize, wanted: u16) -> Reply {
    let Some(message) = Message::new(reply) else { return Reply::Silent };
    if message.rcode() != Rcode::NOERROR {
        return Reply::Error(message.rcode());
    }
    let records = message.records(at, message.ancount()).flatten();
    let address = |data: &[u8]| -> Option<IpAddr> {
        let v4 = <[u8; 4]>::try_from(data).map(IpAddr::from).ok();
        v4.or_else(|| <[u8; 16]>::try_from(data).map(IpAddr::from).ok())
    };
    let of_type = records.filter(|record| record.rtype == wanted && record.class == CLASS_IN);
    Reply::Addresses(of_type.filter_map(|record| address(record.data)).collect())
}
