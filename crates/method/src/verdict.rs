//! The verdict on a trial, computed from its totals.

use serde::{Deserialize, Serialize};

use crate::pacing::{Pacing, PacingLimits};
use crate::reason::{HostLoss, Reason};
use crate::records::Counts;

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Enough queries got a valid reply, and the tester worked correctly.
    Passed,
    /// Too few queries got a valid reply, although the tester worked correctly.
    Failed,
    /// A fault of the tester made the trial invalid, so the trial gives no information about the DUT.
    Invalid,
}

/// Minimum fraction of queries that must get a valid reply for a trial to pass, from 0 to 1. RFC 8219 §9.2 requires
/// 1.0. Reports mark a lower value as a deviation from the RFC.
#[derive(
    Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Acceptance(pub f64);

impl Acceptance {
    /// Every query must get a valid reply.
    pub const ALL: Acceptance = Acceptance(1.0);

    /// True if there are enough valid replies.
    pub fn is_met(self, counts: &Counts) -> bool {
        if self.0 >= 1.0 {
            counts.valid == counts.sent
        } else {
            counts.valid as f64 >= counts.sent as f64 * self.0
        }
    }
}

/// All data that determines the verdict on a trial.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Number of planned queries.
    pub planned: u64,
    /// Number of queries with each outcome.
    pub counts: &'a Counts,
    /// Result of the check that the queries were sent on schedule.
    pub pacing: &'a Pacing,
    /// Losses on the tester's host, with one entry for each cause of loss.
    pub host_losses: &'a [HostLoss],
    /// Number of datagrams that the tester's interface received but that did not reach the tester's sockets. Losses in
    /// `host_losses` are not included. The number is 0 if such datagrams were not counted.
    pub missed: u64,
    /// Other faults of the tester that make the trial invalid, such as lost records of queries.
    pub faults: &'a [Reason],
}

/// Effect of missed datagrams on the verdict. Missed datagrams were received by the tester's interface but did not
/// reach the tester's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// No datagram was missed.
    Nothing,
    /// The missed datagrams could not have changed the verdict, so a warning is sufficient.
    NotDecisive,
    /// The trial failed, but it would have passed if all missed datagrams were valid replies. The loss may therefore be the tester's
    /// fault.
    Decides,
}

/// Determines whether `missed` datagrams could have changed the verdict. Each of these datagrams may have been a valid
/// reply to one of the lost queries. Queries with a late or wrong reply do not count as lost, because their reply was
/// received.
pub fn evaluate_missed(counts: &Counts, missed: u64, acceptance: Acceptance) -> Missed {
    let found = missed.min(counts.lost);
    let with_them =
        Counts { valid: counts.valid + found, lost: counts.lost - found, ..counts.clone() };
    match missed {
        0 => Missed::Nothing,
        _ if !acceptance.is_met(counts) && acceptance.is_met(&with_them) => Missed::Decides,
        _ => Missed::NotDecisive,
    }
}

/// Returns the verdict and its reasons. If the tester had a fault, the verdict is "invalid", even if the DUT also lost
/// queries.
pub fn decide(
    evidence: &Evidence<'_>,
    acceptance: Acceptance,
    limits: &PacingLimits,
) -> (Verdict, Vec<Reason>) {
    let counts = evidence.counts;
    let mut reasons = evidence.faults.to_vec();
    reasons.extend(evidence.pacing.violations(limits, evidence.planned, counts.sent));
    reasons.extend(evidence.host_losses.iter().cloned().map(Reason::HostLoss));
    if !counts.is_balanced() {
        reasons.push(Reason::Unbalanced { sent: counts.sent });
    }
    if evaluate_missed(counts, evidence.missed, acceptance) == Missed::Decides {
        reasons.push(Reason::Missed { datagrams: evidence.missed, lost: counts.lost });
    }
    if !reasons.is_empty() {
        return (Verdict::Invalid, reasons);
    }
    if acceptance.is_met(counts) {
        return (Verdict::Passed, reasons);
    }
    (Verdict::Failed, vec![Reason::too_few_valid(counts)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence<'a>(counts: &'a Counts, pacing: &'a Pacing) -> Evidence<'a> {
        Evidence { planned: 1000, counts, pacing, host_losses: &[], missed: 0, faults: &[] }
    }

    fn verdict(counts: &Counts, accept: f64) -> Verdict {
        decide(&evidence(counts, &Pacing::default()), Acceptance(accept), &PacingLimits::default())
            .0
    }

    #[test]
    fn one_lost_query_fails_unless_loss_is_accepted() {
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
        let faults = [Reason::RecordsLost { records: 1 }];
        let faulty = Evidence { faults: &faults, ..evidence(&none_valid, &pacing) };
        assert_eq!(decide(&faulty, Acceptance::ALL, &limits).0, Verdict::Invalid);
        let short = Counts { sent: 900, valid: 900, ..Counts::default() };
        assert_eq!(verdict(&short, 1.0), Verdict::Invalid);
        let unbalanced = Counts { sent: 1000, valid: 999, ..Counts::default() };
        assert_eq!(verdict(&unbalanced, 0.5), Verdict::Invalid);
    }

    #[test]
    fn each_loss_of_the_host_is_a_reason() {
        let interface = "to-dut".to_owned();
        let losses =
            [HostLoss::Sockets { packets: 3 }, HostLoss::InterfaceSend { packets: 5, interface }];
        let (pacing, lost) =
            (Pacing::default(), Counts { sent: 1000, lost: 1000, ..Counts::default() });
        let evidence = Evidence { host_losses: &losses, ..evidence(&lost, &pacing) };
        let decided = decide(&evidence, Acceptance::ALL, &PacingLimits::default());
        assert_eq!(decided, (Verdict::Invalid, losses.map(Reason::HostLoss).to_vec()));
    }

    #[test]
    fn a_failed_trial_lists_the_outcomes() {
        let counts = Counts { sent: 1000, valid: 990, lost: 7, late: 3, ..Counts::default() };
        let decided = decide(
            &evidence(&counts, &Pacing::default()),
            Acceptance::ALL,
            &PacingLimits::default(),
        );
        let reason = Reason::TooFewValid { sent: 1000, valid: 990, lost: 7, late: 3, wrong: 0 };
        assert_eq!(decided, (Verdict::Failed, vec![reason]));
    }

    #[test]
    fn missed_datagrams_invalidate_only_if_decisive() {
        let counts =
            |valid, lost, late| Counts { sent: 1000, valid, lost, late, ..Counts::default() };
        let cases = [
            (counts(1000, 0, 0), 0, 1.0, Missed::Nothing, Verdict::Passed),
            (counts(1000, 0, 0), 5, 1.0, Missed::NotDecisive, Verdict::Passed),
            (counts(992, 8, 0), 0, 1.0, Missed::Nothing, Verdict::Failed),
            (counts(992, 8, 0), 7, 1.0, Missed::NotDecisive, Verdict::Failed),
            (counts(992, 8, 0), 8, 1.0, Missed::Decides, Verdict::Invalid),
            (counts(992, 8, 0), 100, 1.0, Missed::Decides, Verdict::Invalid),
            // A late reply was received, so it cannot be one of the missed datagrams.
            (counts(992, 7, 1), 8, 1.0, Missed::NotDecisive, Verdict::Failed),
            (counts(992, 7, 1), 8, 0.999, Missed::Decides, Verdict::Invalid),
            (counts(992, 8, 0), 8, 0.99, Missed::NotDecisive, Verdict::Passed),
            (counts(900, 100, 0), 89, 0.99, Missed::NotDecisive, Verdict::Failed),
            (counts(900, 100, 0), 90, 0.99, Missed::Decides, Verdict::Invalid),
        ];
        for (counts, missed, accept, weight, verdict) in cases {
            let accept = Acceptance(accept);
            assert_eq!(evaluate_missed(&counts, missed, accept), weight, "{counts:?} {missed}");
            let pacing = Pacing::default();
            let evidence = Evidence { missed, ..evidence(&counts, &pacing) };
            assert_eq!(
                decide(&evidence, accept, &PacingLimits::default()).0,
                verdict,
                "{counts:?} {missed}"
            );
        }
    }
}
