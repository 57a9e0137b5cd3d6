//! AF_XDP configuration and state, shared by AuthDNS and the Measurer.

use std::net::SocketAddr;

use net::xdp::{self, Claim, XdpError};
use serde::{Deserialize, Serialize};
use wire::joined;

/// An interface to be used by AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XdpConfig {
    /// Name of the interface. If `None`, the Measurer uses the interface towards the queried server, and AuthDNS uses
    /// the interface that has its listen addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Requested attach mode of AF_XDP.
    #[serde(default)]
    pub mode: xdp::Mode,
}

/// An interface in use by AF_XDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct XdpInterface {
    /// The interface's name.
    pub interface: String,
    /// Attach mode that AF_XDP uses on the interface.
    #[serde(rename = "way")]
    pub attach_mode: xdp::AttachMode,
    /// Number of receive queues, all of which are read.
    pub queues: usize,
}

impl XdpInterface {
    /// Returns true if datagrams may be joined before they reach the XDP filter ([`xdp::may_join`]).
    pub(crate) fn may_join(&self) -> bool {
        xdp::may_join(&self.interface, self.attach_mode)
    }

    /// Opens the queues of an interface for queries to these addresses. Sockets receive the remaining packets.
    ///
    /// # Errors
    /// Returns [`XdpError`] if AF_XDP does not work on the interface.
    pub(crate) fn serve(
        wanted: &XdpConfig,
        addresses: &[SocketAddr],
    ) -> Result<(XdpInterface, Vec<xdp::Server>), XdpError> {
        let claim = |address: &SocketAddr| {
            let port = address.port();
            Claim::to_address(address.ip(), port..=port)
        };
        let claims: Vec<Claim> = addresses.iter().map(claim).collect();
        let interface = match (&wanted.interface, addresses.first()) {
            (None, Some(address)) => xdp::interface_of(*address)?,
            (named, _) => named.clone().unwrap_or_default(),
        };
        let opened = xdp::Interface::open(&interface, &claims, wanted.mode)?;
        let attach_mode = opened.attach_mode();
        let servers = opened.into_servers();
        Ok((XdpInterface { interface, attach_mode, queues: servers.len() }, servers))
    }
}

/// Returns the number of messages that follow the first message in a datagram that the kernel joined from several
/// datagrams.
///
/// The kernel leaves the checksum of a joined datagram to the network card, so this checksum is partial. A datagram
/// with a complete checksum is not joined. In this case the result is 0, even if data follows the first message.
pub(crate) fn joined_behind(bytes: &[u8], has_partial_checksum: bool) -> u64 {
    let length = joined::segment(bytes).filter(|_| has_partial_checksum);
    length.map_or(0, |length| (bytes.len().div_ceil(length) - 1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_may_have_joined_counts() {
        let mut reply = vec![0, 7, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        reply.extend(b"\x01a\0\0\x1c\0\x01\xc0\x0c\0\x1c\0\x01\0\0\0\x3c\0\x10");
        reply.extend([0x20; 16]);
        let three = [&reply[..], &reply, &reply].concat();
        assert_eq!(joined_behind(&three, true), 2);
        // Datagrams that are not joined: with a complete checksum, with trailing data, and with a single message.
        assert_eq!(joined_behind(&three, false), 0);
        assert_eq!(joined_behind(&[&reply[..], b"x"].concat(), true), 0);
        assert_eq!(joined_behind(&reply, true), 0);
    }
}
