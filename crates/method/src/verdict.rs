//! From the sums of a trial to its verdict.

use serde::{Deserialize, Serialize};

use crate::pacing::{Pacing, PacingLimits};
use crate::records::Counts;

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
    /// Packets that the tester's host dropped: sockets, interfaces.
    pub tester_drops: u64,
    /// Anything else with which the tester spoiled the trial, in words (records lost, ledger overrun …).
    pub faults: &'a [String],
}

/// Decides. A trial that the tester spoiled is invalid, never failed; the reasons say what decided.
pub fn decide(evidence: &Evidence<'_>, acceptance: Acceptance, limits: &PacingLimits) -> (Verdict, Vec<String>) {
    let counts = evidence.counts;
    let mut reasons = evidence.faults.to_vec();
    reasons.extend(evidence.pacing.violations(limits, evidence.planned, counts.sent));
    if evidence.tester_drops > 0 {
        reasons.push(format!("the tester's host dropped {} packets", evidence.tester_drops));
    }
    if !counts.is_balanced() {
        reasons.push(format!("internal error: outcomes do not add up to {} queries sent", counts.sent));
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

    fn verdict(counts: &Counts, drops: u64, faults: &[String], accept: f64) -> Verdict {
        let pacing = Pacing::default();
        let evidence = Evidence { planned: 1000, counts, pacing: &pacing, tester_drops: drops, faults };
        decide(&evidence, Acceptance(accept), &PacingLimits::default()).0
    }

    #[test]
    fn one_lost_query_fails_the_trial_and_acceptance_mends_it() {
        let all = Counts { sent: 1000, valid: 1000, ..Counts::default() };
        assert_eq!(verdict(&all, 0, &[], 1.0), Verdict::Passed);
        let one = Counts { sent: 1000, valid: 999, lost: 1, ..Counts::default() };
        assert_eq!(verdict(&one, 0, &[], 1.0), Verdict::Failed);
        assert_eq!(verdict(&one, 0, &[], 0.999), Verdict::Passed);
        assert_eq!(verdict(&one, 0, &[], 0.9991), Verdict::Failed);
    }

    #[test]
    fn the_testers_faults_never_become_the_duts() {
        let none_valid = Counts { sent: 1000, lost: 1000, ..Counts::default() };
        assert_eq!(verdict(&none_valid, 1, &[], 1.0), Verdict::Invalid);
        assert_eq!(verdict(&none_valid, 0, &["records lost".into()], 1.0), Verdict::Invalid);
        let short = Counts { sent: 900, valid: 900, ..Counts::default() };
        assert_eq!(verdict(&short, 0, &[], 1.0), Verdict::Invalid);
        let unbalanced = Counts { sent: 1000, valid: 999, ..Counts::default() };
        assert_eq!(verdict(&unbalanced, 0, &[], 0.5), Verdict::Invalid);
    }
}
