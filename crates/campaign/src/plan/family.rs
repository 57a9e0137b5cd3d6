//! IP versions in plans.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Returns the IP version of an address.
    pub fn from_address(address: SocketAddr) -> Family {
        if address.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// Returns the name of this IP version in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}
