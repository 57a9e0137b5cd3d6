//! The questions of a reference DUT: how often it asks AuthDNS is known, so that AuthDNS's
//! counters, and what is concluded from them, can be held against the truth. It waits for no
//! answer; what it replies it knows by itself.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use method::units::Share;
use net::socket::Endpoint;
use wire::name::{Domain, has_aaaa};
use wire::template::QueryTemplate;
use wire::view::rtype;

/// Octets of the socket's receive buffer: answers of AuthDNS are not read, and wait there until
/// they are dropped.
const UNREAD: usize = 4096;

/// How a reference DUT asks AuthDNS.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Address and port of AuthDNS.
    pub upstream: SocketAddr,
    /// How many times each question is asked; 2 is a DUT that retries at once.
    pub times: u8,
    /// The share of new names that it asks for; less than all is a DUT that answers new names
    /// without asking.
    pub new_names: Share,
    /// Whether it asks for a name once only, as a cache does.
    pub remembers: bool,
}

/// Asks what a DNS64 server would have to ask.
pub(crate) struct Asker {
    asking: Asking,
    aaaa_share: Share,
    endpoint: Endpoint,
    query: Vec<u8>,
    seen: HashSet<Ipv4Addr>,
    /// Names so far that it had not seen.
    new: u64,
    next_id: u16,
}

impl Asker {
    /// For names of `domain`, of which `aaaa_share` have an AAAA record.
    ///
    /// # Errors
    /// If there is no route to AuthDNS.
    pub(crate) fn new(asking: Asking, domain: &Domain, aaaa_share: Share) -> io::Result<Asker> {
        let endpoint = Endpoint::connect(asking.upstream)?;
        endpoint.limit_buffers(UNREAD)?;
        let query = QueryTemplate::aaaa(domain).bytes().to_vec();
        Ok(Asker { asking, aaaa_share, endpoint, query, seen: HashSet::new(), new: 0, next_id: 0 })
    }

    /// Asks for the AAAA record of `name` and, where it has none, for its A record.
    pub(crate) fn ask_for(&mut self, name: Ipv4Addr) {
        if self.asking.remembers && !self.seen.insert(name) {
            return;
        }
        self.new += 1;
        if !self.asking.new_names.selects(self.new) {
            return;
        }
        for _ in 0..self.asking.times {
            self.send(name, rtype::AAAA);
            if !has_aaaa(name, self.aaaa_share) {
                self.send(name, rtype::A);
            }
        }
    }

    fn send(&mut self, name: Ipv4Addr, qtype: u16) {
        self.next_id = self.next_id.wrapping_add(1);
        QueryTemplate::patch(&mut self.query, self.next_id, name);
        // The type stands before the class, which ends the query.
        let at = self.query.len() - 4;
        self.query[at..at + 2].copy_from_slice(&qtype.to_be_bytes());
        // An ICMP error of an earlier question is reported once; then it is sent again.
        if self.endpoint.send(&self.query).is_err() {
            let _ = self.endpoint.send(&self.query);
        }
    }
}
