//! Queries received by the test authoritative server. They are the upstream queries of the server under test.

use std::io;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(test)]
use domain::base::iana::Rtype;
use serde::{Deserialize, Serialize};

use crate::message::Name;

/// One query that reached the test authoritative server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Queried type, as a number.
    pub qtype: u16,
    /// Queried class, as a number.
    pub class: u16,
    /// True if the query arrived over TCP.
    pub tcp: bool,
    /// Address and source port of the sender.
    pub source: SocketAddr,
    /// Message ID of the query.
    pub id: u16,
    /// Queried name in its original letter case.
    pub name: String,
    /// RD bit of the query.
    pub rd: bool,
    /// CD bit of the query.
    pub cd: bool,
    /// AD bit of the query.
    pub ad: bool,
    /// UDP payload size in the OPT record. `None` if the query has no OPT record.
    pub payload: Option<u16>,
    /// DO bit of the query.
    pub dnssec_ok: bool,
    /// Codes of the EDNS options in the query.
    pub options: Vec<u16>,
    /// Time of arrival, relative to the start of the test authoritative server.
    pub at: Duration,
}

#[cfg(test)]
impl Asked {
    /// Creates a UDP query for `name`, with RD and without EDNS. Its source is the port `port` of 127.0.0.1.
    pub(crate) fn from_port(port: u16, name: impl Into<String>, qtype: Rtype) -> Asked {
        Asked {
            qtype: qtype.to_int(),
            class: 1,
            tcp: false,
            source: (Ipv4Addr::LOCALHOST, port).into(),
            id: 7,
            name: name.into(),
            rd: true,
            cd: false,
            ad: false,
            payload: None,
            dnssec_ok: false,
            options: Vec::new(),
            at: Duration::ZERO,
        }
    }
}

/// Access to the queries that the test authoritative server received.
pub trait View: Sync {
    /// Returns the queries for `name`, in any letter case and of any type, in the order of arrival.
    ///
    /// # Errors
    /// Returns an error if the test authoritative server cannot be reached.
    fn asked(&self, name: &Name) -> io::Result<Vec<Asked>>;
}
