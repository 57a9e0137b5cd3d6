//! From the sums of a trial to its verdict.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::pacing::{Pacing, PacingLimits};
use crate::records::Counts;
use crate::units::Nanos;

/// What a trial proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Enough queries got a valid reply, and the tester did its part.
    Passed,
    /// The tester did its part and the DUT did not.
    Failed,
    /// The tester spoiled the trial: it says nothing about the DUT.
    Invalid,
}

/// The share of valid replies at which a trial passes: 1.0 by RFC 8219 §9.2, less only as a labelled exception.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Acceptance(pub f64);

impl Acceptance {
    /// Every query must get a valid reply.
    pub const ALL: Acceptance = Acceptance(1.0);

    /// Whether so many valid replies are enough.
    pub fn is_met(self, counts: &Counts) -> bool {
        if self.0 >= 1.0 { counts.valid == counts.sent } else { counts.valid as f64 >= counts.sent as f64 * self.0 }
    }
}

/// All that decides over a trial.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Queries that the schedule holds.
    pub planned: u64,
    /// What became of them.
    pub counts: &'a Counts,
    /// The audit of the sending.
    pub pacing: &'a Pacing,
    /// What the tester's host lost, one entry for each place that lost something.
    pub host_losses: &'a [HostLoss],
    /// Datagrams that the interface got for the tester and that its sockets never had, besides those in `host_losses`; 0
    /// where nobody watched.
    pub missed: u64,
    /// Anything else with which the tester spoiled the trial, in words (records lost, ledger overrun …).
    pub faults: &'a [String],
}

/// A loss on the tester's host: in its sending or receiving, so that it says nothing about the DUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostLoss {
    /// The Measurer's socket buffers were full.
    Sockets {
        /// Packets.
        packets: u64,
    },
    /// An interface dropped what it received.
    InterfaceReceive {
        /// Packets.
        packets: u64,
        /// Its name.
        interface: String,
    },
    /// An interface dropped what it had to send.
    InterfaceSend {
        /// Packets.
        packets: u64,
        /// Its name.
        interface: String,
    },
    /// A queueing discipline dropped what the Measurer had sent.
    QueueingDiscipline {
        /// Packets; several queries that left in one call (`UDP_SEGMENT`) are one packet here.
        packets: u64,
        /// Its kind as tc(8) calls it; `None` where it is not known.
        kind: Option<String>,
        /// The interface that it belongs to.
        interface: String,
    },
    /// The next hop's link-layer address was not known: packets waited in a short queue, which drops what it cannot hold.
    Neighbour {
        /// Packets dropped; `None` where the kernel's counter is not to be seen.
        packets: Option<u64>,
        /// The next hop.
        address: IpAddr,
        /// The interface that it is reached by.
        interface: String,
        /// For how long the address was not known, to the accuracy of the looks at it.
        unresolved: Nanos,
    },
}

impl fmt::Display for HostLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostLoss::Sockets { packets } => {
                write!(f, "the tester's sockets had no room for {packets} packets, which were dropped")
            }
            HostLoss::InterfaceReceive { packets, interface } => {
                write!(f, "the tester's interface {interface} dropped {packets} received packets")
            }
            HostLoss::InterfaceSend { packets, interface } => {
                write!(f, "the tester's interface {interface} dropped {packets} packets to be sent")
            }
            HostLoss::QueueingDiscipline { packets, kind, interface } => {
                let kind = kind.as_deref().unwrap_or("of unknown kind");
                write!(f, "the tester's own queueing discipline ({kind} on {interface}) dropped {packets} packets")
            }
            HostLoss::Neighbour { packets, address, interface, unresolved } => {
                let ms = unresolved.0 / 1_000_000;
                write!(f, "the tester's neighbour {address} on {interface} was not resolved for {ms} ms; ")?;
                match packets {
                    Some(packets) => write!(f, "its queue dropped {packets} packets"),
                    None => write!(f, "how many packets its queue dropped is not known"),
                }
            }
        }
    }
}

/// What datagrams mean that the tester's interface got and its sockets did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// There were none.
    Nothing,
    /// They could not have changed the verdict, and belong into the warnings.
    Beside,
    /// The trial would have passed if they had been valid replies: the loss may be the tester's own.
    Decides,
}

/// Weighs `missed` datagrams. A missed datagram can stand for a lost query only: late and wrong replies were received.
pub fn weigh_missed(counts: &Counts, missed: u64, acceptance: Acceptance) -> Missed {
    let found = missed.min(counts.lost);
    let with_them = Counts { valid: counts.valid + found, lost: counts.lost - found, ..counts.clone() };
    match missed {
        0 => Missed::Nothing,
        _ if !acceptance.is_met(counts) && acceptance.is_met(&with_them) => Missed::Decides,
        _ => Missed::Beside,
    }
}

/// Decides. A trial that the tester spoiled is invalid, never failed; the reasons say what decided.
pub fn decide(evidence: &Evidence<'_>, acceptance: Acceptance, limits: &PacingLimits) -> (Verdict, Vec<String>) {
    let counts = evidence.counts;
    let mut reasons = evidence.faults.to_vec();
    reasons.extend(evidence.pacing.violations(limits, evidence.planned, counts.sent));
    reasons.extend(evidence.host_losses.iter().map(HostLoss::to_string));
    if !counts.is_balanced() {
        reasons.push(format!("internal error: outcomes do not add up to {} queries sent", counts.sent));
    }
    if weigh_missed(counts, evidence.missed, acceptance) == Missed::Decides {
        reasons.push(format!(
            "the interface got {} datagrams for the tester that its sockets did not; {} queries count as lost: look for a \
             packet filter (dns64bench check)",
            evidence.missed, counts.lost
        ));
    }
    if !reasons.is_empty() {
        return (Verdict::Invalid, reasons);
    }
    if acceptance.is_met(counts) {
        return (Verdict::Passed, reasons);
    }
    let share = counts.valid as f64 / counts.sent as f64 * 100.0;
    reasons.push(format!(
        "{} of {} queries got a valid reply ({share:.4} %): {} lost, {} late, {} wrong",
        counts.valid,
        counts.sent,
        counts.lost,
        counts.late,
        counts.wrong.total()
    ));
    (Verdict::Failed, reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence<'a>(counts: &'a Counts, pacing: &'a Pacing) -> Evidence<'a> {
        Evidence { planned: 1000, counts, pacing, host_losses: &[], missed: 0, faults: &[] }
    }

    fn verdict(counts: &Counts, accept: f64) -> Verdict {
        decide(&evidence(counts, &Pacing::default()), Acceptance(accept), &PacingLimits::default()).0
    }

    #[test]
    fn one_lost_query_fails_the_trial_and_acceptance_mends_it() {
        let all = Counts { sent: 1000, valid: 1000, ..Counts::default() };
        assert_eq!(verdict(&all, 1.0), Verdict::Passed);
        let one = Counts { sent: 1000, valid: 999, lost: 1, ..Counts::default() };
        assert_eq!(verdict(&one, 1.0), Verdict::Failed);
        assert_eq!(verdict(&one, 0.999), Verdict::Passed);
        assert_eq!(verdict(&one, 0.9991), Verdict::Failed);
    }

    #[test]
    fn the_testers_faults_never_become_the_duts() {
        let (pacing, limits) = (Pacing::default(), PacingLimits::default());
        let none_valid = Counts { sent: 1000, lost: 1000, ..Counts::default() };
        let faults = ["records lost".to_owned()];
        let faulty = Evidence { faults: &faults, ..evidence(&none_valid, &pacing) };
        assert_eq!(decide(&faulty, Acceptance::ALL, &limits).0, Verdict::Invalid);
        let short = Counts { sent: 900, valid: 900, ..Counts::default() };
        assert_eq!(verdict(&short, 1.0), Verdict::Invalid);
        let unbalanced = Counts { sent: 1000, valid: 999, ..Counts::default() };
        assert_eq!(verdict(&unbalanced, 0.5), Verdict::Invalid);
    }

    #[test]
    fn each_loss_of_the_host_is_a_reason_with_place_and_count() {
        let (interface, address) = ("to-dut".to_owned(), "2001:2::1".parse().unwrap());
        let kind = Some("tbf".to_owned());
        let unresolved = Nanos::from_millis(340);
        let neighbour = |packets| HostLoss::Neighbour { packets, address, interface: interface.clone(), unresolved };
        let cases = [
            (HostLoss::Sockets { packets: 3 }, "the tester's sockets had no room for 3 packets, which were dropped"),
            (
                HostLoss::InterfaceReceive { packets: 4, interface: interface.clone() },
                "the tester's interface to-dut dropped 4 received packets",
            ),
            (
                HostLoss::InterfaceSend { packets: 5, interface: interface.clone() },
                "the tester's interface to-dut dropped 5 packets to be sent",
            ),
            (
                HostLoss::QueueingDiscipline { packets: 1691, kind, interface: interface.clone() },
                "the tester's own queueing discipline (tbf on to-dut) dropped 1691 packets",
            ),
            (
                neighbour(Some(7)),
                "the tester's neighbour 2001:2::1 on to-dut was not resolved for 340 ms; its queue dropped 7 packets",
            ),
            (
                neighbour(None),
                "the tester's neighbour 2001:2::1 on to-dut was not resolved for 340 ms; how many packets its queue \
                 dropped is not known",
            ),
        ];
        let (pacing, lost) = (Pacing::default(), Counts { sent: 1000, lost: 1000, ..Counts::default() });
        for (loss, reason) in cases {
            let evidence = Evidence { host_losses: &[loss], ..evidence(&lost, &pacing) };
            let decided = decide(&evidence, Acceptance::ALL, &PacingLimits::default());
            assert_eq!(decided, (Verdict::Invalid, vec![reason.to_owned()]));
        }
    }

    #[test]
    fn missed_datagrams_spoil_a_trial_only_if_they_could_have_passed_it() {
        let counts = |valid, lost, late| Counts { sent: 1000, valid, lost, late, ..Counts::default() };
        let cases = [
            (counts(1000, 0, 0), 0, 1.0, Missed::Nothing, Verdict::Passed),
            (counts(1000, 0, 0), 5, 1.0, Missed::Beside, Verdict::Passed),
            (counts(992, 8, 0), 0, 1.0, Missed::Nothing, Verdict::Failed),
            (counts(992, 8, 0), 7, 1.0, Missed::Beside, Verdict::Failed),
            (counts(992, 8, 0), 8, 1.0, Missed::Decides, Verdict::Invalid),
            (counts(992, 8, 0), 100, 1.0, Missed::Decides, Verdict::Invalid),
            // A late reply was received: no missed datagram can have been it.
            (counts(992, 7, 1), 8, 1.0, Missed::Beside, Verdict::Failed),
            (counts(992, 7, 1), 8, 0.999, Missed::Decides, Verdict::Invalid),
            (counts(992, 8, 0), 8, 0.99, Missed::Beside, Verdict::Passed),
            (counts(900, 100, 0), 89, 0.99, Missed::Beside, Verdict::Failed),
            (counts(900, 100, 0), 90, 0.99, Missed::Decides, Verdict::Invalid),
        ];
        for (counts, missed, accept, weight, verdict) in cases {
            let accept = Acceptance(accept);
            assert_eq!(weigh_missed(&counts, missed, accept), weight, "{counts:?} {missed}");
            let pacing = Pacing::default();
            let evidence = Evidence { missed, ..evidence(&counts, &pacing) };
            assert_eq!(decide(&evidence, accept, &PacingLimits::default()).0, verdict, "{counts:?} {missed}");
        }
    }
}
