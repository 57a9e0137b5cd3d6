//! The monotonic clock to measure, the wall clock only to label, to read kernel timestamps, and to
//! begin at the same moment as other hosts.

use std::io;

use method::units::Nanos;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

fn read(clock: ClockId) -> Nanos {
    nanos(clock_gettime(clock).expect("Linux has these clocks"))
}

fn nanos(time: TimeSpec) -> Nanos {
    Nanos(time.tv_sec() as u64 * Nanos::SECOND.0 + time.tv_nsec() as u64)
}

/// Differs from machine to machine and from boot to boot, and is the same in all namespaces and
/// containers of a machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's name of this run of it: two processes with the same one are on one machine, and have
/// the same clock. Empty where the kernel does not tell.
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// This moment on the monotonic clock.
#[inline]
pub fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// This moment on the wall clock, since 1970-01-01 UTC.
pub fn wall() -> Nanos {
    read(ClockId::CLOCK_REALTIME)
}

/// CPU time that the calling thread has used, in the kernel for it included.
pub fn thread_cpu_time() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that a process has used, in the kernel for it included, by all its threads, those that
/// have ended too. It is in nanoseconds, where `/proc/PID/stat` counts hundredths of a second.
///
/// # Errors
/// If no process has that id any more; one that has ended is there until its parent has waited for
/// it.
pub fn process_cpu_time(pid: u32) -> io::Result<Nanos> {
    let pid = pid.try_into().map_err(|_| io::Error::from_raw_os_error(Errno::ESRCH as i32))?;
    let used = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).and_then(clock_gettime)?;
    Ok(nanos(used))
}

/// Sleeps until `moment` of the monotonic clock; returns at once if that has passed. Signals do not
/// shorten it.
pub fn sleep_until(moment: Nanos) {
    let until =
        TimeSpec::new((moment.0 / Nanos::SECOND.0) as i64, (moment.0 % Nanos::SECOND.0) as i64);
    while let Err(nix::Error::EINTR) =
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
    {}
}

/// Lets the calling thread's sleeps end as exactly as the kernel's timers can (the default slack is
/// 50 µs). Returns whether the kernel agreed.
pub fn use_exact_timers() -> bool {
    nix::sys::prctl::set_timerslack(1).is_ok()
}

/// How far the wall clock may be from the true time, as the kernel was told by what sets it, such as
/// chrony or PTP (adjtimex(2)).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ClockError {
    /// Whether anything keeps it at the true time; the other two say nothing if not.
    pub synchronized: bool,
    /// The error that is estimated, in microseconds.
    pub estimated_us: u64,
    /// The largest error that is possible, in microseconds.
    pub largest_us: u64,
}

impl ClockError {
    /// As it is now.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn now() -> io::Result<ClockError> {
        // SAFETY: all-zero octets are a valid timex: it has integers only.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes into this structure, which lives until the call has returned. Its
        // `modes` are 0, so nothing is set.
        let status = unsafe { libc::adjtimex(&raw mut state) };
        if status == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(ClockError {
            synchronized: status != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
            estimated_us: state.esterror.unsigned_abs(),
            largest_us: state.maxerror.unsigned_abs(),
        })
    }
}

/// Both clocks at one moment, to convert kernel timestamps (wall clock) to the monotonic clock.
/// Taken anew for every batch, so that a step of the wall clock spoils one batch at the most.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    monotonic: Nanos,
    wall: Nanos,
}

impl ClockPair {
    /// Reads both clocks, again where something came between the two readings. The monotonic one is
    /// read last: what still came between makes a kernel timestamp later and a reply slower, never
    /// faster, than it was.
    #[inline]
    pub fn sample() -> ClockPair {
        let mut best = (Nanos(u64::MAX), ClockPair { monotonic: Nanos(0), wall: Nanos(0) });
        for _ in 0..5 {
            let before = now();
            let wall = wall();
            let monotonic = now();
            let between = monotonic.since(before);
            if between < best.0 {
                best = (between, ClockPair { monotonic, wall });
            }
            if between < Nanos(1_000) {
                break;
            }
        }
        best.1
    }

    /// The monotonic moment of this sample.
    pub fn monotonic(&self) -> Nanos {
        self.monotonic
    }

    /// The wall-clock moment of this sample.
    pub fn wall(&self) -> Nanos {
        self.wall
    }

    /// The wall-clock moment of one of the monotonic clock.
    #[inline]
    pub fn to_wall(self, monotonic: Nanos) -> Nanos {
        Nanos(self.wall.0.saturating_sub(self.monotonic.0.saturating_sub(monotonic.0)))
    }

    /// The monotonic moment of one of the wall clock, also of a later one than this sample.
    pub fn monotonic_at(self, wall: Nanos) -> Nanos {
        let later = Nanos(self.monotonic.0.saturating_add(wall.since(self.wall).0));
        if wall >= self.wall { later } else { self.to_monotonic(wall) }
    }

    /// The monotonic moment of a kernel timestamp. A timestamp from after this sample (the wall
    /// clock was set back) counts as this sample's moment.
    #[inline]
    pub fn to_monotonic(self, kernel: Nanos) -> Nanos {
        Nanos(self.monotonic.0.saturating_sub(self.wall.0.saturating_sub(kernel.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_timestamps_convert_to_the_same_distance() {
        let pair = ClockPair { monotonic: Nanos(5_000), wall: Nanos(1_000_000) };
        assert_eq!(pair.to_monotonic(Nanos(999_000)), Nanos(4_000));
        assert_eq!(pair.to_monotonic(Nanos(1_000_500)), Nanos(5_000));
    }

    #[test]
    fn cpu_time_of_a_process_is_exact_until_it_was_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(Pid::from_raw(child.id() as i32)),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        )
        .unwrap();
        let used = process_cpu_time(child.id()).unwrap();
        assert!(used > Nanos(0) && !used.0.is_multiple_of(10_000_000), "{used:?}");
        child.wait().unwrap();
        assert!(process_cpu_time(child.id()).is_err());
    }

    #[test]
    fn moments_to_come_are_as_far_away_on_both_clocks() {
        let pair = ClockPair { monotonic: Nanos(5_000), wall: Nanos(1_000_000) };
        assert_eq!(pair.monotonic_at(Nanos(1_700_000)), Nanos(705_000));
        assert_eq!(pair.monotonic_at(Nanos(999_000)), Nanos(4_000));
    }

    #[test]
    fn the_kernel_tells_how_far_its_clock_is_off() {
        let error = ClockError::now().unwrap();
        assert!(!error.synchronized || error.estimated_us <= error.largest_us, "{error:?}");
    }

    #[test]
    fn sleeping_does_not_end_early() {
        let until = now() + Nanos::from_millis(3);
        sleep_until(until);
        assert!(now() >= until);
        sleep_until(Nanos(1));
    }
}
