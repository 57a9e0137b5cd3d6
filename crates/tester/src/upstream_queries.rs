//! Upstream queries that a reference DUT sends to AuthDNS. The number of these queries is known, so AuthDNS's counters
//! and the conclusions from them can be checked. The reference DUT does not wait for answers, because it computes its
//! replies from the names.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use net::socket::Endpoint;
use units::Share;
use wire::name::{Domain, has_aaaa};
use wire::template::QueryTemplate;
use wire::view::rtype;

/// Size of the socket's receive buffer in octets. The buffer is small because AuthDNS's answers are not read.
const UNREAD: usize = 4096;

/// Query behaviour of a reference DUT towards AuthDNS.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamQueryConfig {
    /// Address and port of AuthDNS.
    pub upstream: SocketAddr,
    /// Number of times that each query is sent. The value 2 simulates a DUT that retries at once.
    pub times: u8,
    /// Share of new names for which an upstream query is sent. A share below 100 % simulates a DUT that answers queries
    /// for some new names without an upstream query.
    pub new_names: Share,
    /// True if the reference DUT queries each name only once, like a DUT with a cache.
    pub remembers: bool,
}

/// Sender of the upstream queries that a DNS64 server would have to send.
pub(crate) struct UpstreamQuerier {
    asking: UpstreamQueryConfig,
    aaaa_share: Share,
    endpoint: Endpoint,
    query: Vec<u8>,
    seen: HashSet<Ipv4Addr>,
    /// Number of names seen for the first time.
    new: u64,
    next_id: u16,
}

impl UpstreamQuerier {
    /// Creates a sender of queries for names of `domain`. `aaaa_share` is the share of these names that have an AAAA
    /// record.
    ///
    /// # Errors
    /// Returns an error if there is no route to AuthDNS.
    pub(crate) fn new(
        asking: UpstreamQueryConfig,
        domain: &Domain,
        aaaa_share: Share,
    ) -> io::Result<UpstreamQuerier> {
        let endpoint = Endpoint::connect(asking.upstream)?;
        endpoint.limit_buffers(UNREAD)?;
        let query = QueryTemplate::aaaa(domain).bytes().to_vec();
        Ok(UpstreamQuerier {
            asking,
            aaaa_share,
            endpoint,
            query,
            seen: HashSet::new(),
            new: 0,
            next_id: 0,
        })
    }

    /// Sends a query for the AAAA record of `name`. If the name has no AAAA record, also sends a query for its A
    /// record.
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
        // The query ends with type and class.
        let at = self.query.len() - 4;
        self.query[at..at + 2].copy_from_slice(&qtype.to_be_bytes());
        // The first send may fail with an ICMP error caused by an earlier query. The query is then sent again.
        if self.endpoint.send(&self.query).is_err() {
            let _ = self.endpoint.send(&self.query);
        }
    }
}
