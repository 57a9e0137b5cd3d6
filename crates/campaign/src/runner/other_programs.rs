//! Effect of other programs that run on the DUT's host. If other programs used the DUT's CPUs, they
//! may have made a trial fail.

use method::reason::{OtherUse, Reason, ReasonKind};
use method::verdict::Verdict;
use method::warning::Warning;
use tester::measurer::result::TrialResult;

use crate::record::{Measured, Step, TaskResult};
use crate::runner::Campaign;
use crate::runner::hosts::Hosts;

/// Limit for the use of the DUT's CPUs by other programs, in per cent of the total time of these CPUs. The CPU time
/// that a hypervisor stole is included.
const LIMIT_PCT: f64 = 5.0;
/// Maximum number of times that a trial is repeated because of other programs. The last repetition
/// is used for the result, with a warning.
const REPEATED: u32 = 2;

/// Facts that decide whether a trial is invalid because other programs used the DUT's CPUs.
#[derive(Clone, Copy, Debug)]
struct Circumstances {
    verdict: Verdict,
    /// Use of the DUT's CPUs by other programs; `None` if unknown.
    used: Option<OtherUse>,
    /// True if the DUT runs on the tester's host. On a different host, the user of the tester may be unable to stop
    /// other programs. They then only add a warning to a failed trial, and the trial is not repeated.
    is_testers_host: bool,
    /// Number of earlier trials that other programs made invalid. Only trials of the same
    /// measurement point, search, rate and length are counted.
    earlier: u32,
    /// Maximum number of repetitions of an invalid trial.
    retries: u32,
}

/// Effect of other programs on a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Consequence {
    None,
    /// The trial is used for the result, with a warning.
    Note(OtherUse),
    Invalid(OtherUse),
}

fn judge(trial: Circumstances) -> Consequence {
    let Circumstances { verdict: Verdict::Failed, used: Some(used), .. } = trial else {
        return Consequence::None;
    };
    let is_over = used.total_pct() > LIMIT_PCT;
    let may_repeat = trial.earlier < trial.retries.min(REPEATED);
    if is_over && trial.is_testers_host && may_repeat {
        Consequence::Invalid(used)
    } else if is_over || used.programs_pct.is_none() {
        Consequence::Note(used)
    } else {
        Consequence::None
    }
}

impl<H: Hosts> Campaign<'_, H> {
    /// Checks whether other programs used too much time on the DUT's CPUs during a failed trial. If
    /// they did, makes the trial invalid or adds a warning. If their time is unknown, adds a
    /// warning.
    pub(super) fn weigh_others(&self, measured: &mut Measured) {
        let used = measured.cpu.others;
        let (earlier, retries) =
            (self.spoiled_by_others(&measured.step), self.plan.search.invalid_retries);
        let machines = self.hosts.machines();
        let is_testers_host = !machines.dut.is_empty() && machines.testers.contains(&machines.dut);
        let (TaskResult::Trial(trial), None) = (&mut measured.found, &measured.dut_end) else {
            return;
        };
        let verdict = trial.verdict;
        match judge(Circumstances { verdict, used, is_testers_host, earlier, retries }) {
            Consequence::None => {}
            Consequence::Note(used) => measured.warnings.push(Warning::OtherPrograms { used }),
            Consequence::Invalid(used) => spoil(trial, used),
        }
    }

    fn spoiled_by_others(&self, step: &Step) -> u32 {
        let is_one = |measured: &&Measured| {
            let mut reasons = measured.reasons().iter();
            measured.step == *step
                && reasons.any(|reason| reason.kind() == ReasonKind::OtherPrograms)
        };
        self.recorded().finished().filter(is_one).count() as u32
    }
}

fn spoil(trial: &mut TrialResult, used: OtherUse) {
    trial.verdict = Verdict::Invalid;
    trial.reasons.insert(0, Reason::OtherPrograms { used, limit_pct: LIMIT_PCT });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_invalidate_failed_trials_twice() {
        let used = |programs, stolen_pct| OtherUse {
            programs_pct: programs,
            stolen_pct,
            interrupts_pct: 90.0,
        };
        let (idle, busy) = (used(Some(4.0), 0.9), used(Some(4.0), 1.1));
        let hidden = used(None, 0.0);
        let (passed, failed) = (Verdict::Passed, Verdict::Failed);
        use Consequence::{Invalid, None as Nothing, Note};
        let cases = [
            // verdict, CPU use, DUT on the tester's host, earlier invalid trials, maximum retries,
            // expected effect
            (failed, Some(busy), true, 0, 3, Invalid(busy)),
            (failed, Some(busy), true, 1, 3, Invalid(busy)),
            (failed, Some(busy), true, 2, 3, Note(busy)),
            (failed, Some(busy), true, 1, 1, Note(busy)),
            (failed, Some(busy), true, 0, 0, Note(busy)),
            (failed, Some(busy), false, 0, 3, Note(busy)),
            (failed, Some(idle), true, 0, 3, Nothing),
            (failed, Some(hidden), true, 0, 3, Note(hidden)),
            (failed, Some(used(None, 6.0)), true, 0, 3, Invalid(used(None, 6.0))),
            (failed, None, true, 0, 3, Nothing),
            (passed, Some(busy), true, 0, 3, Nothing),
            (Verdict::Invalid, Some(busy), true, 0, 3, Nothing),
        ];
        for (verdict, used, is_testers_host, earlier, retries, expected) in cases {
            let trial = Circumstances { verdict, used, is_testers_host, earlier, retries };
            assert_eq!(judge(trial), expected, "{trial:?}");
        }
    }
}
