//! What did not decide over a trial and a reader should know all the same, as data; whoever prints
//! a warning puts it into words with its `Display`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reason::OtherUse;
use crate::units::{Nanos, Qps, counted, grouped};

/// A warning of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// How much the tester's queueing discipline dropped is not known.
    UnknownQueueing {
        /// The interface that it belongs to.
        interface: String,
    },
    /// The tester's interface got datagrams that its sockets did not, too few to decide.
    Missed {
        /// Datagrams that no socket of the tester got.
        datagrams: u64,
        /// Queries that count as lost.
        lost: u64,
    },
    /// The interface of AuthDNS's host got datagrams for AuthDNS that its sockets did not, too few to
    /// decide.
    AuthMissed {
        /// Datagrams that no socket of AuthDNS got.
        datagrams: u64,
    },
    /// The kernel refused queries at first.
    SentAgain {
        /// How many queries it refused.
        queries: u64,
    },
    /// The tester's receive buffers hold few replies.
    SmallReceiveBuffer {
        /// The size of one.
        octets: usize,
        /// They hold less than what comes in this time.
        holds: Nanos,
        /// The size that would do.
        wanted: usize,
    },
    /// Few source ports have their ids back soon, after which replies are not known as late ones.
    ShortMemory {
        /// From how many UDP source ports the Measurer asks.
        source_ports: u16,
        /// Replies that come later than this count as lost, and as stray.
        retention: Nanos,
    },
    /// A hypervisor took CPU time of the tester's host.
    Stolen {
        /// Of the CPU that lost most, in per cent.
        worst_cpu_pct: f64,
    },
    /// AuthDNS may be what limited the DUT.
    AuthBusy {
        /// So much of its CPUs it used, 1 being one of them.
        used: f64,
        /// So many it had.
        cores: usize,
    },
    /// The trial failed while others than the DUT and the tester used the DUT's CPUs, or may have.
    OtherPrograms {
        /// The use of the CPUs on which the DUT may run.
        used: OtherUse,
    },
    /// The rate is beyond what the self-test vouches for.
    BeyondSelfTest {
        /// Up to which rate it does.
        allowed: Qps,
    },
}

impl Warning {
    /// Whether both say the same of their trials, be it with other numbers.
    pub fn is_like(&self, other: &Warning) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownQueueing { interface } => {
                write!(f, "the drops of {interface}'s queueing discipline are not known")
            }
            Warning::Missed { datagrams, lost } => write!(
                f,
                "the interface got {} for the tester that its sockets did not, and {} as lost: look for a packet filter \
                 (dns64bench check)",
                counted(*datagrams, "datagram", "datagrams"),
                counted(*lost, "query counts", "queries count")
            ),
            Warning::AuthMissed { datagrams } => write!(
                f,
                "the interface of AuthDNS's host got {} for AuthDNS that its sockets did not: look for a packet filter \
                 there (dns64bench check)",
                counted(*datagrams, "datagram", "datagrams")
            ),
            Warning::SentAgain { queries } => write!(
                f,
                "the kernel refused to send {} at first, as a packet filter makes it do; {} sent again",
                counted(*queries, "query", "queries"),
                if *queries == 1 { "it was" } else { "they were" }
            ),
            Warning::SmallReceiveBuffer { octets, holds, wanted } => write!(
                f,
                "the receive buffer of {} octets holds less than {} ms of replies; allow more: sysctl -w \
                 net.core.rmem_max={wanted}",
                grouped(*octets as u64),
                holds.0 / 1_000_000
            ),
            Warning::ShortMemory { source_ports, retention } => write!(
                f,
                "with {}, replies later than {:.2} s count as lost and stray instead of late",
                counted((*source_ports).into(), "source port", "source ports"),
                retention.as_secs_f64()
            ),
            Warning::Stolen { worst_cpu_pct } => write!(
                f,
                "a hypervisor took {worst_cpu_pct:.1} % of a CPU's time on the tester's host: lateness and losses may be its doing"
            ),
            Warning::AuthBusy { used, cores } => {
                write!(
                    f,
                    "AuthDNS used {used:.2} of its {}",
                    counted(*cores as u64, "core", "cores")
                )
            }
            Warning::OtherPrograms { used } => {
                write!(f, "the trial failed, and of the CPU time that the DUT may use, {used}")
            }
            Warning::BeyondSelfTest { allowed } => {
                write!(f, "the self-test vouches for the tester up to {allowed} queries/s only")
            }
        }
    }
}

crate::in_words::in_words!(Warning: "warnings", "warning_causes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_one_kind_are_alike_whatever_their_numbers_are() {
        let busy = |used| Warning::AuthBusy { used, cores: 1 };
        assert!(busy(0.91).is_like(&busy(0.97)) && busy(0.91) != busy(0.97));
        assert!(!busy(0.91).is_like(&Warning::SentAgain { queries: 1 }));
    }

    #[test]
    fn what_is_one_is_in_the_singular() {
        let retention = Nanos::SECOND;
        let words = |n: u16| {
            [
                Warning::AuthBusy { used: 0.914, cores: n.into() },
                Warning::Missed { datagrams: n.into(), lost: n.into() },
                Warning::SentAgain { queries: n.into() },
                Warning::ShortMemory { source_ports: n, retention },
            ]
            .map(|warning| warning.to_string())
        };
        let one = words(1);
        assert_eq!(one[0], "AuthDNS used 0.91 of its 1 core");
        assert!(
            one[1].contains("got 1 datagram for") && one[1].contains("1 query counts as lost"),
            "{}",
            one[1]
        );
        assert!(
            one[2].contains("send 1 query at first") && one[2].ends_with("it was sent again"),
            "{}",
            one[2]
        );
        assert!(one[3].starts_with("with 1 source port, "), "{}", one[3]);
        let two = words(2);
        assert_eq!(two[0], "AuthDNS used 0.91 of its 2 cores");
        assert!(
            two[1].contains("got 2 datagrams for") && two[1].contains("2 queries count as lost"),
            "{}",
            two[1]
        );
        assert!(
            two[2].contains("send 2 queries at first") && two[2].ends_with("they were sent again"),
            "{}",
            two[2]
        );
        assert!(two[3].starts_with("with 2 source ports, "), "{}", two[3]);
    }
}
