//! What the far side was asked: how a check sees the server under test from behind.

use std::io;
#[cfg(test)]
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(test)]
use domain::base::iana::Rtype;
use serde::{Deserialize, Serialize};

use crate::message::Name;

/// One question that reached the far side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The type's number.
    pub qtype: u16,
    /// The class's number.
    pub class: u16,
    /// Whether over TCP.
    pub tcp: bool,
    /// Who asked: address and source port.
    pub source: SocketAddr,
    /// The message id.
    pub id: u16,
    /// The name as it was written, letter case and all.
    pub name: String,
    /// RD.
    pub rd: bool,
    /// CD.
    pub cd: bool,
    /// AD.
    pub ad: bool,
    /// The UDP payload that the OPT record offers; `None` without OPT.
    pub payload: Option<u16>,
    /// DO.
    pub dnssec_ok: bool,
    /// Codes of the EDNS options.
    pub options: Vec<u16>,
    /// When it came, since the far side began.
    pub at: Duration,
}

#[cfg(test)]
impl Asked {
    /// A plain question for `name` from this port of this host: over UDP, with RD, without EDNS.
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

/// Somebody who knows what the far side was asked.
pub trait View: Sync {
    /// The questions for `name`, in any letter case and of any type, in the order of arrival.
    ///
    /// # Errors
    /// If the far side cannot be reached.
    fn asked(&self, name: &Name) -> io::Result<Vec<Asked>>;
}
