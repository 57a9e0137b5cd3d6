//! Outcome of a liveness check.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::time::Duration;

use method::records::Wrong;

/// Maximum number of probes. If none of them gets a reply, the server counts as silent.
pub(crate) const PROBES: u8 = 3;

/// Interval between probes. The next probe is sent after this interval even if the host refuses a probe, because the
/// server may just be starting.
pub const WAIT: Duration = Duration::from_secs(1);

/// Time after the last probe during which a reply to any probe is still accepted, as a multiple of [`WAIT`]. If the
/// upstream of a resolver does not answer, the resolver may wait several seconds before it sends SERVFAIL.
pub(super) const LAST_WAITS: u32 = 4;

/// Result of the probes that test whether the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The server answers: at least one probe got a reply, and the case [`Liveness::Wrong`] does not apply.
    Answers,
    /// Every probe got a reply, and all replies have this fault. The address is an example from one of the replies;
    /// `None` if no reply contains an address.
    Wrong(Wrong, Option<Ipv6Addr>),
    /// No probe got a reply.
    Silent,
    /// The host reported that the port is closed (ICMP or ICMPv6 port unreachable).
    Refused,
    /// The server cannot be reached, as reported by the system or a router.
    Unreachable(io::ErrorKind),
}

impl Liveness {
    /// Returns true if the error concerns the path to the server rather than the server.
    pub(crate) fn is_path_error(self) -> bool {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
        matches!(self, Liveness::Unreachable(HostUnreachable | NetworkUnreachable))
    }
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Liveness::Answers => write!(f, "it answers"),
            Liveness::Wrong(..) => write!(f, "its answers are wrong"),
            Liveness::Silent => {
                let all = WAIT * (u32::from(PROBES) - 1 + LAST_WAITS);
                write!(f, "no reply to {PROBES} queries within {} s", all.as_secs())
            }
            Liveness::Refused => write!(f, "connection refused"),
            Liveness::Unreachable(kind) => write!(f, "{kind}"),
        }
    }
}
