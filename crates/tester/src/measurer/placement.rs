//! CPU placement of a trial's threads, and detection of exclusive CPUs for the senders.
//!
//! The CPUs of a plan are assigned in turn: to the sender of the first pair of threads, to its receiver, to the sender
//! of the second pair, and so on. A sender with an exclusive CPU may use real-time priority, because no other thread
//! needs the CPU time. For a sender without an exclusive CPU, the cost of sending must be measured
//! ([`SendCost`](super::burst::SendCost)).

use net::affinity::allowed_cpus;
use units::CpuId;

use super::burst::Burst;
use super::cpu_sharing;
use super::plan::{Spin, TrialPlan};

/// Returns the CPU of the sender (`half` 0) or the receiver (`half` 1) in a pair of threads, or `None` if the thread
/// may use any CPU.
pub(super) fn cpu_of(plan: &TrialPlan, pair: u16, half: usize) -> Option<CpuId> {
    let position = usize::from(pair) * 2 + half;
    plan.cpus.get(position % plan.cpus.len().max(1)).copied()
}

/// Returns true if real-time priority is allowed, and no other thread of the trial uses the CPU of the sender in this
/// pair of threads.
fn is_alone(plan: &TrialPlan, pair: u16) -> bool {
    let all = || (0..plan.threads).flat_map(|pair| [0, 1].map(|half| cpu_of(plan, pair, half)));
    let own = cpu_of(plan, pair, 0);
    plan.real_time && own.is_some() && all().filter(|its| *its == own).count() == 1
}

/// Returns true if real-time priority is allowed, and the sender in this pair of threads has an exclusive CPU. A CPU is
/// exclusive if no other thread of dns64bench or dns64d that works during a trial can run on it. Threads of this
/// process and of others are considered.
pub(super) fn owns_cpu(plan: &TrialPlan, pair: u16) -> bool {
    is_alone(plan, pair)
        && cpu_of(plan, pair, 0).is_some_and(|cpu| cpu_sharing::sharing_threads(cpu).is_empty())
}

/// Returns true if the senders on this host busy-wait until the next query is due.
pub(super) fn spins(plan: &TrialPlan) -> bool {
    match plan.spin {
        Spin::Always => true,
        Spin::Never => false,
        Spin::Auto => allowed_cpus().len() >= 2 * usize::from(plan.threads) + 2,
    }
}

/// Returns true if the cost of sending on this host must be measured before a trial of `plan`. The cost is not needed
/// if the user gives the burst size, if senders busy-wait, or if each sender has an exclusive CPU.
pub fn needs_send_cost(plan: &TrialPlan) -> bool {
    let is_open = plan.max_burst == Burst::Auto && plan.send_cost.is_none();
    is_open && !spins(plan) && !(0..plan.threads).all(|pair| owns_cpu(plan, pair))
}

impl TrialPlan {
    /// Returns true if real-time priority is allowed, and the plan gives each sender a CPU that no other thread of the
    /// trial uses. Other processes may use these CPUs.
    pub fn gives_senders_cpus(&self) -> bool {
        (0..self.threads).all(|pair| is_alone(self, pair))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurer::burst::SendCost;
    use units::{Nanos, Qps};

    /// Returns a plan with CPU numbers that no host has, so that no other program uses these CPUs.
    fn plan(cpus: &[usize]) -> TrialPlan {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
        plan.spin = Spin::Never;
        plan.cpus = cpus.iter().map(|cpu| CpuId(100_000 + cpu)).collect();
        plan
    }

    #[test]
    fn costs_are_needed_only_on_shared_cpus() {
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
