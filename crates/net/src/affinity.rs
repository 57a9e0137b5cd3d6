//! CPU affinity and scheduling of threads.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use units::CpuId;

/// Returns the numbers of the CPUs that this process may use, in ascending order.
pub fn allowed_cpus() -> Vec<CpuId> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![CpuId(0)] };
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).map(CpuId).collect()
}

/// Gives the calling thread the lowest priority, and moves it off the CPUs that a measurement uses (`busy`) if this
/// process may use other CPUs. This function is for background work during the measurement. Failures are ignored.
pub fn run_in_background(busy: &[CpuId]) {
    let mut set = CpuSet::new();
    let others: Vec<CpuId> = allowed_cpus().into_iter().filter(|cpu| !busy.contains(cpu)).collect();
    let is_set = others.iter().all(|cpu| set.set(cpu.0).is_ok());
    if is_set && !others.is_empty() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
    set_time_slice(BACKGROUND_NICE);
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// Returns an error if the machine has no such CPU, or this process may not use it.
pub fn pin_to(cpu: CpuId) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu.0).map_err(io::Error::from)?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(io::Error::from)
}

/// The shortest time slice that Linux grants an ordinary thread on request (kernel/sched/syscalls.c), in nanoseconds.
const SHORT_TIME_SLICE: u64 = 100_000;
/// Nice value of a thread that must run soon after waking up. It is the lowest possible value.
const HIGH_PRIORITY_NICE: i32 = -20;
/// Nice value of a background thread. It is the highest possible value.
const BACKGROUND_NICE: i32 = 19;

/// Requests real-time scheduling (SCHED_FIFO, priority 1) for the calling thread. Returns true if the request was
/// granted, which requires root, CAP_SYS_NICE or an rtprio limit. The thread must sleep often and run on a CPU that no
/// other thread needs, because other threads on that CPU wait as long as this thread runs.
pub fn set_real_time_priority() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` is a valid sched_param that outlives the call; pid 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// Requests short time slices and the minimum nice value for the calling thread, so that it runs soon after waking up.
/// Returns true if the nice value was granted, which requires root or CAP_SYS_NICE. The time slices are shortened in
/// any case.
pub fn set_high_priority() -> bool {
    set_time_slice(HIGH_PRIORITY_NICE) || {
        use_short_time_slices();
        false
    }
}

/// Limits the calling thread's time slice to 0.1 ms, after which waiting threads get the CPU. Linux before 6.12 ignores
/// the limit. Without the limit, threads that share a CPU wait for each other for the default time slice of several
/// milliseconds.
pub fn use_short_time_slices() {
    // SAFETY: only reads the calling thread's nice value, which is not changed.
    set_time_slice(unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) });
}

/// Uses sched_setattr(2) to set SCHED_OTHER, a nice value and the shortest time slice.
fn set_time_slice(nice: i32) -> bool {
    /// First version of `struct sched_attr` (linux/sched/types.h).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime: SHORT_TIME_SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` octets of a sched_attr that outlives the call; pid 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_change_neither_policy_nor_priority() {
        // SAFETY: both calls only read the calling thread's scheduling.
        let scheduling =
            || unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
        std::thread::spawn(move || {
            let before = scheduling();
            use_short_time_slices();
            assert_eq!(scheduling(), before);
        })
        .join()
        .unwrap();
    }

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
