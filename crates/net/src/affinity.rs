//! Which thread runs where, and how it is scheduled.

use std::io;

use method::units::CpuId;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The CPUs that this process may use, in order.
pub fn allowed_cpus() -> Vec<CpuId> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![CpuId(0)] };
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).map(CpuId).collect()
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If the machine has no such CPU, or this process may not use it.
pub fn pin_to(cpu: CpuId) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu.0).map_err(io::Error::from)?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(io::Error::from)
}

/// How the kernel schedules a thread that must be on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Real time (SCHED_FIFO, priority 1): nothing ordinary delays it.
    RealTime,
    /// As other threads: the process may not ask for more.
    Ordinary,
}

/// Asks for real-time scheduling of the calling thread, which takes root, CAP_SYS_NICE or an rtprio limit. Only for threads
/// that sleep: one that spins would starve its CPU.
pub fn be_urgent() -> Urgency {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` is a valid sched_param that outlives the call; pid 0 names the calling thread.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    if status == 0 { Urgency::RealTime } else { Urgency::Ordinary }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_leaves_one_cpu() {
        std::thread::spawn(|| {
            let last = *allowed_cpus().last().unwrap();
            pin_to(last).unwrap();
            assert_eq!(allowed_cpus(), [last]);
            assert!(pin_to(CpuId(100_000)).is_err());
        })
        .join()
        .unwrap();
    }
}
