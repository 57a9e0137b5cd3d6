//! What AuthDNS and the Measurer say alike of AF_XDP: what is wanted, and what there is.

use std::net::SocketAddr;

use net::xdp::{self, Claim, XdpError};
use serde::{Deserialize, Serialize};
use wire::joined;

/// An interface whose packets are to come and go past the kernel's network stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct XdpConfig {
    /// Its name; none: the one that is the way to the server that is asked, or that has the
    /// addresses that are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// How packets are to get from there to us.
    #[serde(default)]
    pub mode: xdp::Mode,
}

/// How packets of an interface come and go past the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PastStack {
    /// The interface's name.
    pub interface: String,
    /// How they get from there to us.
    pub way: xdp::Way,
    /// How many queues for packets that come it has, all of which are read.
    pub queues: usize,
}

impl PastStack {
    /// Whether datagrams may have been joined when the filter sees them ([`xdp::may_join`]).
    pub(crate) fn may_join(&self) -> bool {
        xdp::may_join(&self.interface, self.way)
    }

    /// The queues of an interface, from which queries for these addresses come past the stack.
    /// Sockets get what does not come that way.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub(crate) fn serve(
        wanted: &XdpConfig,
        addresses: &[SocketAddr],
    ) -> Result<(PastStack, Vec<xdp::Server>), XdpError> {
        let claim = |address: &SocketAddr| {
            let port = address.port();
            Claim::of(address.ip(), port..=port)
        };
        let claims: Vec<Claim> = addresses.iter().map(claim).collect();
        let interface = match (&wanted.interface, addresses.first()) {
            (None, Some(address)) => xdp::interface_of(*address)?,
            (named, _) => named.clone().unwrap_or_default(),
        };
        let opened = xdp::Interface::open(&interface, &claims, wanted.mode)?;
        let way = opened.way();
        let servers = opened.into_servers();
        Ok((PastStack { interface, way, queues: servers.len() }, servers))
    }
}

/// How many messages a datagram has behind its first, if its sender joined them. A stranger's datagram
/// with something behind its message is not meant: the kernel leaves the checksum of what it joins to a
/// network card.
pub(crate) fn joined_behind(bytes: &[u8], checksum_left: bool) -> u64 {
    let length = joined::segment(bytes).filter(|_| checksum_left);
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
        // A stranger's: with a checksum of its own, or with anything behind its message.
        assert_eq!(joined_behind(&three, false), 0);
        assert_eq!(joined_behind(&[&reply[..], b"x"].concat(), true), 0);
        assert_eq!(joined_behind(&reply, true), 0);
    }
}
