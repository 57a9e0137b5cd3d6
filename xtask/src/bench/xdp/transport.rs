//! Transports over which dns64d is measured.

use hosts::servers::Operator;
use net::xdp::Mode;

/// Method by which dns64d receives and sends datagrams.
pub(super) struct Transport {
    pub(super) name: &'static str,
    /// Mode of AF_XDP, or `None` for sockets.
    pub(super) mode: Option<Mode>,
    /// True if several datagrams are sent as one (`UDP_SEGMENT`).
    pub(super) together: bool,
}

/// All transports of dns64d. Without batching, client and dns64d send datagrams one by one. A generic filter loses
/// joined datagrams that are longer than a frame, so these are not sent with a generic filter either.
pub(super) const TRANSPORTS: [Transport; 4] = [
    Transport { name: "sockets, one by one", mode: None, together: false },
    Transport { name: "sockets, UDP_SEGMENT", mode: None, together: true },
    Transport { name: "AF_XDP, native", mode: Some(Mode::Copy), together: true },
    Transport { name: "AF_XDP, generic", mode: Some(Mode::Generic), together: false },
];

impl Transport {
    /// Returns additional configuration of dns64d.
    pub(super) fn operator(&self) -> Operator {
        Operator { xdp: self.mode, ..Operator::default() }
    }
}
