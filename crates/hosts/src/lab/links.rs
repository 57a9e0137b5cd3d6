//! Hosts, links and errors of the lab.

use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One of the three hosts of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    /// Host of the Measurer.
    Tester,
    /// Host of the server under test.
    Dut,
    /// Host of AuthDNS.
    Auth,
}

impl Host {
    pub(crate) const ALL: [Host; 3] = [Host::Tester, Host::Dut, Host::Auth];

    /// Returns the name by which the command line refers to the host.
    pub fn as_str(self) -> &'static str {
        match self {
            Host::Tester => "tester",
            Host::Dut => "dut",
            Host::Auth => "auth",
        }
    }

    /// Returns the name of the host's network namespace, which exists only if root created the lab.
    pub(crate) fn namespace(self) -> String {
        format!("dns64bench-{}", self.as_str())
    }
}

impl FromStr for Host {
    type Err = String;
    fn from_str(s: &str) -> Result<Host, String> {
        let found = Host::ALL.into_iter().find(|host| host.as_str() == s);
        found.ok_or_else(|| format!("'{s}' is not a host of the lab; use tester, dut or auth"))
    }
}

/// Error that occurred while the lab was created, entered or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A command that creates or removes a part of the lab failed.
    #[error("'{command}' failed: {why}")]
    Command {
        /// The command with its arguments.
        command: String,
        /// Standard error of the command.
        why: String,
    },
    /// The program does not run as root, and the kernel does not allow user namespaces.
    #[error(
        "without root the lab needs user namespaces, which this kernel does not allow: {why}; run as root, or: sysctl -w \
         kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    NoUserNamespaces {
        /// Error returned by the kernel.
        why: String,
    },
    /// The lab is not up.
    #[error("the lab is not up: run dns64bench lab up")]
    NotUp,
    /// A host does not answer over a link of the lab.
    #[error("the link from {from} to {to} does not answer: {why}")]
    Link {
        /// Host and interface that sent the query.
        from: String,
        /// Host and interface that should have answered.
        to: String,
        /// Reason why no answer was received.
        why: String,
    },
    /// An input or output operation failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// Description of the operation, which follows the word "cannot" in the message.
        doing: String,
        /// Error returned by the system.
        source: io::Error,
    },
}

pub(super) fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let doing = doing.into();
    move |source| LabError::Io { doing, source }
}

/// A link between two hosts, with the interface name and the addresses at each end.
pub(super) struct Link {
    pub(crate) ends: [End; 2],
}

pub(super) struct End {
    pub(crate) host: Host,
    pub(crate) interface: &'static str,
    pub(crate) addresses: &'static [&'static str],
}

pub(super) const LINKS: [Link; 3] = [
    Link {
        ends: [
            End { host: Host::Tester, interface: "to-dut", addresses: &["2001:2::2/64"] },
            End { host: Host::Dut, interface: "to-tester", addresses: &["2001:2::1/64"] },
        ],
    },
    Link {
        ends: [
            End {
                host: Host::Dut,
                interface: "to-auth",
                addresses: &["198.18.0.1/24", "2001:2:0:2::1/64"],
            },
            End {
                host: Host::Auth,
                interface: "to-dut",
                addresses: &["198.18.0.2/24", "2001:2:0:2::2/64"],
            },
        ],
    },
    Link {
        ends: [
            End {
                host: Host::Tester,
                interface: "to-auth",
                addresses: &["198.18.1.1/24", "2001:2:1::1/64"],
            },
            End {
                host: Host::Auth,
                interface: "to-tester",
                addresses: &["198.18.1.2/24", "2001:2:1::2/64"],
            },
        ],
    },
];
