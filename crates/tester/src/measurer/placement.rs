//! On which CPU each thread of a trial runs, and whether the senders have theirs for themselves.
//!
//! The CPUs of a plan are given to sender, receiver, sender, receiver … in turn. A sender that has
//! its CPU for itself may take real-time priority, and nobody needs the time that it spends there;
//! only where that is not so must it be known what sending costs
//! ([`SendCost`](super::burst::SendCost)).

use method::units::CpuId;
use net::affinity::allowed_cpus;

use super::burst::Burst;
use super::company;
use super::plan::{Spin, TrialPlan};

/// The CPU of a pair's sender (0) or receiver (1); none: any.
pub(super) fn cpu_of(plan: &TrialPlan, pair: u16, half: usize) -> Option<CpuId> {
    let position = usize::from(pair) * 2 + half;
    plan.cpus.get(position % plan.cpus.len().max(1)).copied()
}

/// Whether no other thread of the trial has the CPU of this pair's sender, and the sender may keep
/// others from it.
fn is_alone(plan: &TrialPlan, pair: u16) -> bool {
    let all = || (0..plan.threads).flat_map(|pair| [0, 1].map(|half| cpu_of(plan, pair, half)));
    let own = cpu_of(plan, pair, 0);
    plan.real_time && own.is_some() && all().filter(|its| *its == own).count() == 1
}

/// Whether a pair's sender has its CPU for itself, as far as our own threads go: those of this
/// trial, and of whatever else of ours works on this host now.
pub(super) fn owns_cpu(plan: &TrialPlan, pair: u16) -> bool {
    is_alone(plan, pair)
        && cpu_of(plan, pair, 0).is_some_and(|cpu| company::sharers(cpu).is_empty())
}

/// Whether the senders spin from query to query on this host.
pub(super) fn spins(plan: &TrialPlan) -> bool {
    match plan.spin {
        Spin::Always => true,
        Spin::Never => false,
        Spin::Auto => allowed_cpus().len() >= 2 * usize::from(plan.threads) + 2,
    }
}

/// Whether a trial of `plan` chooses its burst by what sending costs on this host, and that is not
/// known yet: not where the burst is given, where senders spin, and where each has its CPU for
/// itself.
pub fn needs_send_cost(plan: &TrialPlan) -> bool {
    let is_open = plan.max_burst == Burst::Auto && plan.send_cost.is_none();
    is_open && !spins(plan) && !(0..plan.threads).all(|pair| owns_cpu(plan, pair))
}

impl TrialPlan {
    /// Whether each sender has a CPU for itself as far as the plan says; whether others of ours run
    /// there is not looked at.
    pub fn gives_senders_cpus(&self) -> bool {
        (0..self.threads).all(|pair| is_alone(self, pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurer::burst::SendCost;
    use method::units::{Nanos, Qps};

    /// A plan whose CPUs no host has, so that nobody shares them.
    fn plan(cpus: &[usize]) -> TrialPlan {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        plan.spin = Spin::Never;
        plan.cpus = cpus.iter().map(|cpu| CpuId(100_000 + cpu)).collect();
        plan
    }

    #[test]
    fn costs_are_needed_only_where_others_need_the_cpu() {
        assert!(!needs_send_cost(&plan(&[0, 1])), "sender and receiver have a CPU each");
        assert!(needs_send_cost(&plan(&[])), "any CPU");
        assert!(needs_send_cost(&plan(&[0])), "the receiver is there too");
        let two_pairs = TrialPlan { threads: 2, ..plan(&[0, 1, 2]) };
        assert!(needs_send_cost(&two_pairs), "the fourth thread is on the first CPU");
        assert!(
            needs_send_cost(&TrialPlan { real_time: false, ..plan(&[0, 1]) }),
            "others may run there"
        );
        assert!(!needs_send_cost(&TrialPlan { spin: Spin::Always, ..plan(&[]) }));
        assert!(!needs_send_cost(&TrialPlan { max_burst: Burst::Fixed(Nanos(0)), ..plan(&[]) }));
        let known = SendCost { wake_up: Nanos(1), query: Nanos(1) };
        assert!(!needs_send_cost(&TrialPlan { send_cost: Some(known), ..plan(&[]) }));
    }

    #[test]
    fn a_plan_gives_each_sender_a_cpu_or_not() {
        assert!(plan(&[0, 1]).gives_senders_cpus() && !plan(&[0]).gives_senders_cpus());
        assert!(!TrialPlan { real_time: false, ..plan(&[0, 1]) }.gives_senders_cpus());
    }
}
