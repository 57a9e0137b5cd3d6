//! Warnings: observations that did not affect the verdict of a trial but should be reported. A warning is stored as
//! data, and `Display` converts it to text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reason::OtherUse;
use units::{Nanos, Qps, counted, grouped};

/// A warning about one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// It is unknown how many packets the tester's queueing discipline dropped.
    UnknownQueueing {
        /// Interface to which the queueing discipline is attached.
        interface: String,
    },
    /// The tester's interface received datagrams that did not reach the tester's sockets. There were too few of them to
    /// affect the verdict.
    Missed {
        /// Number of datagrams that did not reach a socket of the tester.
        datagrams: u64,
        /// Number of queries that count as lost.
        lost: u64,
    },
    /// The interface of AuthDNS's host received datagrams for AuthDNS that did not reach AuthDNS's sockets. There were
    /// too few of them to affect the verdict.
    AuthMissed {
        /// Number of datagrams that did not reach a socket of AuthDNS.
        datagrams: u64,
    },
    /// The kernel rejected some queries at the first attempt and accepted them later.
    SentAgain {
        /// Number of queries that were rejected at the first attempt.
        queries: u64,
    },
    /// The tester's receive buffers are too small.
    SmallReceiveBuffer {
        /// Size of a receive buffer in octets.
        octets: usize,
        /// Time for which a receive buffer should be able to hold the arriving replies.
        holds: Nanos,
        /// Size of a receive buffer that would be sufficient, in octets.
        wanted: usize,
    },
    /// There are few source ports, so query ids are soon reused. A late reply is not recognized after its query id was
    /// reused.
    ShortMemory {
        /// Number of UDP source ports of the Measurer.
        source_ports: u16,
        /// Time after sending for which a query is remembered. If a reply arrives after this time, the query counts as
        /// lost and the reply as an unmatched response.
        retention: Nanos,
    },
    /// A hypervisor took CPU time of the tester's host.
    Stolen {
        /// CPU time that the hypervisor took from the most affected CPU, in per cent.
        worst_cpu_pct: f64,
    },
    /// AuthDNS was so busy that it may have limited the DUT's rate.
    AuthBusy {
        /// Average number of CPUs that AuthDNS used. The value 1 means one fully used CPU.
        used: f64,
        /// Number of CPUs assigned to AuthDNS.
        cores: usize,
    },
    /// The trial failed while other programs used, or may have used, the DUT's CPUs.
    OtherPrograms {
        /// Use of the DUT's CPUs by other programs, a hypervisor and interrupts.
        used: OtherUse,
    },
    /// The trial's rate is above the rate up to which the self-test validates the tester.
    BeyondSelfTest {
        /// Rate up to which the self-test validates the tester.
        allowed: Qps,
    },
}

impl Warning {
    /// True if both warnings have the same meaning, possibly with different numbers.
    pub fn is_like(&self, other: &Warning) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownQueueing { interface } => {
                write!(f, "the drops of {interface}'s queueing discipline are unknown")
            }
            Warning::Missed { datagrams, lost } => write!(
                f,
                "the interface received {} for the tester that its sockets did not, and {} as lost: check for a \
                 packet filter (dns64bench check)",
                counted(*datagrams, "datagram", "datagrams"),
                counted(*lost, "query counts", "queries count")
            ),
            Warning::AuthMissed { datagrams } => write!(
                f,
                "the interface of AuthDNS's host received {} for AuthDNS that its sockets did not: check for a packet \
                 filter there (dns64bench check)",
                counted(*datagrams, "datagram", "datagrams")
            ),
            Warning::SentAgain { queries } => write!(
                f,
                "{} had a send error at first, for instance because of a packet filter; {} sent again",
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
                "with {}, replies later than {:.2} s count as lost and unmatched instead of late",
                counted((*source_ports).into(), "source port", "source ports"),
                retention.as_secs_f64()
            ),
            Warning::Stolen { worst_cpu_pct } => write!(
                f,
                "a hypervisor took {worst_cpu_pct:.1} % of a CPU's time on the tester's host: it may have caused \
                 lateness and losses"
            ),
            Warning::AuthBusy { used, cores } => {
                write!(
                    f,
                    "AuthDNS used {used:.2} of its {}",
                    counted(*cores as u64, "core", "cores")
                )
            }
            Warning::OtherPrograms { used } => {
                write!(f, "the trial failed, and on the DUT's CPUs {used}")
            }
            Warning::BeyondSelfTest { allowed } => {
                write!(f, "the self-test validates the tester only up to {allowed} queries/s")
            }
        }
    }
}

crate::in_words::in_words!(Warning: "warnings", "warning_causes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_one_kind_are_alike() {
        let busy = |used| Warning::AuthBusy { used, cores: 1 };
        assert!(busy(0.91).is_like(&busy(0.97)) && busy(0.91) != busy(0.97));
        assert!(!busy(0.91).is_like(&Warning::SentAgain { queries: 1 }));
    }

    #[test]
    fn single_items_are_in_the_singular() {
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
            one[1].contains("received 1 datagram for") && one[1].contains("1 query counts as lost"),
            "{}",
            one[1]
        );
        assert!(
            one[2].contains("1 query had a send error at first")
                && one[2].ends_with("it was sent again"),
            "{}",
            one[2]
        );
        assert!(one[3].starts_with("with 1 source port, "), "{}", one[3]);
        let two = words(2);
        assert_eq!(two[0], "AuthDNS used 0.91 of its 2 cores");
        assert!(
            two[1].contains("received 2 datagrams for")
                && two[1].contains("2 queries count as lost"),
            "{}",
            two[1]
        );
        assert!(
            two[2].contains("2 queries had a send error at first")
                && two[2].ends_with("they were sent again"),
            "{}",
            two[2]
        );
        assert!(two[3].starts_with("with 2 source ports, "), "{}", two[3]);
    }
}
