//! Functions that read the clocks. Durations are measured with the monotonic clock. The wall clock is used only for
//! labels, kernel timestamps, and a common start with other hosts.

use std::io;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use units::Nanos;

/// Reads a clock with a direct call of libc, because the clock is read for each query. The function of the crate `nix`
/// would be slower: it is inlined only with LTO.
#[inline]
fn read(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes during the call.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(status, 0, "Linux has these clocks");
    nanos(time.tv_sec, time.tv_nsec)
}

#[inline]
fn nanos(seconds: libc::time_t, nanoseconds: libc::c_long) -> Nanos {
    Nanos(seconds as u64 * Nanos::SECOND.0 + nanoseconds as u64)
}

/// File with the boot identifier, which differs between machines and between boots. All namespaces and containers of a
/// machine have the same identifier.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the kernel's boot identifier. Two processes that read the same identifier run on one machine and share a
/// clock. The result is empty if the kernel does not report an identifier.
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Returns the current time of the monotonic clock.
#[inline]
pub fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the current wall-clock time since 1970-01-01 UTC.
pub fn wall() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// Returns the CPU time used by the calling thread, including its time in the kernel.
pub fn thread_cpu_time() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time used by a process, including the time in the kernel and the time of threads that have ended.
/// The resolution is nanoseconds, while `/proc/PID/stat` counts hundredths of a second.
///
/// # Errors
/// Returns an error if there is no process with that id. A process that has ended still exists until its parent has
/// waited for it.
pub fn process_cpu_time(pid: u32) -> io::Result<Nanos> {
    let pid = pid.try_into().map_err(|_| io::Error::from_raw_os_error(Errno::ESRCH as i32))?;
    let clock = nix::time::ClockId::pid_cpu_clock_id(Pid::from_raw(pid))?;
    let used = nix::time::clock_gettime(clock)?;
    Ok(nanos(used.tv_sec(), used.tv_nsec()))
}

/// Sleeps until `moment` on the monotonic clock. Returns at once if `moment` has passed. Signals do not shorten the
/// sleep.
pub fn sleep_until(moment: Nanos) {
    let until =
        TimeSpec::new((moment.0 / Nanos::SECOND.0) as i64, (moment.0 % Nanos::SECOND.0) as i64);
    while let Err(nix::Error::EINTR) = clock_nanosleep(
        nix::time::ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &until,
    ) {}
}

/// Minimizes the timer slack of the calling thread's sleeps (50 µs by default). Returns true if the kernel accepted the
/// setting.
pub fn use_exact_timers() -> bool {
    nix::sys::prctl::set_timerslack(1).is_ok()
}

/// Error bounds of the wall clock, as reported to the kernel by the program that sets it, such as chrony (adjtimex(2)).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct ClockError {
    /// True if the clock is synchronized; otherwise the other fields are meaningless.
    pub synchronized: bool,
    /// Estimated error in microseconds, including the correction still pending in the kernel; `None` if the program
    /// that sets the clock does not estimate the error (systemd-timesyncd, phc2sys).
    pub estimated_us: Option<u64>,
    /// Maximum error of the clock in microseconds.
    pub largest_us: u64,
}

/// Estimated error in microseconds that the kernel reports until a program has set an estimate (`NTP_PHASE_LIMIT` of
/// kernel/time/ntp.c).
const INITIAL_ESTIMATE_US: u64 = 16_000_000;
/// Increase of the maximum error per second, in microseconds (the kernel's `MAXFREQ`: 500 ppm).
const MAX_ERROR_GROWS_BY: libc::c_long = 500;

impl ClockError {
    /// Reads the current error bounds.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report the error bounds.
    pub fn now() -> io::Result<ClockError> {
        // SAFETY: all-zero octets are a valid timex: it consists of integers.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes into this structure, which lives until the call has returned. Its `modes` are 0, so
        // nothing is set.
        let status = unsafe { libc::adjtimex(&raw mut state) };
        if status == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(ClockError::of(status, &state))
    }

    /// Returns the error bounds, derived from the return value and the structure of adjtimex(2).
    fn of(status: libc::c_int, state: &libc::timex) -> ClockError {
        let has = |bit| state.status & bit != 0;
        // Programs without an estimate write 0 for both errors, and the kernel then increases the maximum error in
        // fixed steps. A program with an estimate below a microsecond also writes 0 as estimate. Its maximum error,
        // however, is a sum of delays and dispersions, and hardly ever a multiple of the step.
        let is_zero = state.esterror == 0 && state.maxerror % MAX_ERROR_GROWS_BY == 0;
        let is_told = |us: &u64| *us < INITIAL_ESTIMATE_US && !is_zero;
        let units = if has(libc::STA_NANO) { 1_000 } else { 1 };
        let to_set_right = state.offset.unsigned_abs().div_ceil(units);
        let estimated = Some(state.esterror.unsigned_abs()).filter(is_told);
        ClockError {
            synchronized: status != libc::TIME_ERROR && !has(libc::STA_UNSYNC),
            estimated_us: estimated.map(|us| us + to_set_right),
            largest_us: state.maxerror.unsigned_abs(),
        }
    }

    /// Combines two readings of the error bounds of one clock. Each field of the result is the worse of the two values.
    pub fn or_worse(self, other: ClockError) -> ClockError {
        ClockError {
            synchronized: self.synchronized && other.synchronized,
            estimated_us: self.estimated_us.zip(other.estimated_us).map(|(a, b)| a.max(b)),
            largest_us: self.largest_us.max(other.largest_us),
        }
    }
}

/// Readings of the monotonic clock and of a second clock, taken in quick succession.
struct Reading {
    monotonic: Nanos,
    other: Nanos,
    /// Upper bound for the time between the readings of the two clocks.
    between: Nanos,
}

impl Reading {
    /// Reads `clock`, and directly afterwards the monotonic clock. If more than 1 µs passed between the two, for
    /// example because the thread was interrupted, both clocks are read again, up to five times in total. Returns the
    /// pair with the shortest time between its two readings.
    #[inline]
    fn of(clock: libc::clockid_t) -> Reading {
        let once = || {
            let before = now();
            let other = read(clock);
            let monotonic = now();
            Reading { monotonic, other, between: monotonic.since(before) }
        };
        let mut best = once();
        for _ in 1..5 {
            if best.between < Nanos(1_000) {
                break;
            }
            best = Some(once()).filter(|again| again.between < best.between).unwrap_or(best);
        }
        best
    }
}

/// Readings of the monotonic clock and of the unadjusted hardware clock (`CLOCK_MONOTONIC_RAW`). The monotonic clock
/// runs faster or slower (by up to 8 % with chrony) while the wall clock is being corrected.
#[derive(Clone, Copy, Debug)]
pub struct ClockRate {
    monotonic: Nanos,
    raw: Nanos,
    /// Upper bound for the time between the readings of the two clocks.
    error: Nanos,
}

impl ClockRate {
    /// Reads the monotonic clock and the hardware clock, `CLOCK_MONOTONIC_RAW`.
    pub fn sample() -> ClockRate {
        let Reading { monotonic, other, between } = Reading::of(libc::CLOCK_MONOTONIC_RAW);
        ClockRate { monotonic, raw: other, error: between }
    }

    /// Returns how much faster than the hardware clock the monotonic clock ran between this reading and `later`, in
    /// parts per million. The result is negative if it ran slower. The magnitude is a lower bound: the two clocks are
    /// read one after the other, and the largest error that this can cause is deducted.
    pub fn ppm_until(self, later: ClockRate) -> f64 {
        let took = later.raw.since(self.raw).0 as f64;
        let faster = later.monotonic.since(self.monotonic).0 as f64 - took;
        let sure = (faster.abs() - (self.error.0 + later.error.0) as f64).max(0.0);
        if took > 0.0 { (sure / took * 1e6).copysign(faster) } else { 0.0 }
    }
}

/// Readings of the wall clock and of the monotonic clock at one moment. They are used to convert kernel timestamps,
/// which are wall-clock times, to monotonic time. A new pair is read for every batch, so that a step of the wall clock
/// affects at most one batch.
#[derive(Clone, Copy, Debug)]
pub struct ClockPair {
    monotonic: Nanos,
    wall: Nanos,
}

impl ClockPair {
    /// Reads the wall clock and the monotonic clock. A delay between the readings can make converted timestamps too
    /// late, but never too early. A reply can therefore seem slower than it was, but never faster.
    #[inline]
    pub fn sample() -> ClockPair {
        let Reading { monotonic, other, .. } = Reading::of(libc::CLOCK_REALTIME);
        ClockPair { monotonic, wall: other }
    }

    /// Returns the monotonic time of this sample.
    pub fn monotonic(&self) -> Nanos {
        self.monotonic
    }

    /// Returns the wall-clock time of this sample.
    pub fn wall(&self) -> Nanos {
        self.wall
    }

    /// Converts a monotonic time to wall-clock time.
    #[inline]
    pub fn to_wall(self, monotonic: Nanos) -> Nanos {
        Nanos(self.wall.0.saturating_sub(self.monotonic.0.saturating_sub(monotonic.0)))
    }

    /// Returns by how many nanoseconds the wall clock was stepped between this sample and `later`. The result is
    /// negative for a step back. Slewing changes the speed of both clocks equally, so only a step changes the
    /// difference between the clocks.
    pub fn step_until(self, later: ClockPair) -> i64 {
        let ahead = |pair: ClockPair| pair.wall.0.wrapping_sub(pair.monotonic.0);
        ahead(later).wrapping_sub(ahead(self)) as i64
    }

    /// Converts a wall-clock time to monotonic time. The time may be later than this sample.
    pub fn monotonic_at(self, wall: Nanos) -> Nanos {
        let later = Nanos(self.monotonic.0.saturating_add(wall.since(self.wall).0));
        if wall >= self.wall { later } else { self.to_monotonic(wall) }
    }

    /// Returns the monotonic time of a kernel timestamp. A timestamp later than this sample is clamped to the sample's
    /// time, because it means that the wall clock was set back.
    #[inline]
    pub fn to_monotonic(self, kernel: Nanos) -> Nanos {
        Nanos(self.monotonic.0.saturating_sub(self.wall.0.saturating_sub(kernel.0)))
    }

    /// Returns the monotonic arrival time of a packet that was read before this sample. If the packet has a kernel
    /// timestamp, the result is the time of this timestamp. Otherwise, the result is the time of this sample.
    #[inline]
    pub fn arrival(self, kernel: Option<Nanos>) -> Nanos {
        kernel.map_or(self.monotonic, |kernel| self.to_monotonic(kernel))
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
        assert_eq!(pair.arrival(Some(Nanos(999_000))), Nanos(4_000));
        assert_eq!(pair.arrival(None), Nanos(5_000));
    }

    #[test]
    fn cpu_time_of_a_process_is_exact_until_reaped() {
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
    fn future_times_keep_their_distance_on_both_clocks() {
        let pair = ClockPair { monotonic: Nanos(5_000), wall: Nanos(1_000_000) };
        assert_eq!(pair.monotonic_at(Nanos(1_700_000)), Nanos(705_000));
        assert_eq!(pair.monotonic_at(Nanos(999_000)), Nanos(4_000));
    }

    #[test]
    fn the_kernel_reports_its_clock_error() {
        let error = ClockError::now().unwrap();
        assert!(error.estimated_us.is_none_or(|us| us < 60_000_000), "{error:?}");
    }

    /// Returns a timex with this status, and esterror, maxerror and offset.
    fn timex(status: libc::c_int, [esterror, maxerror, offset]: [libc::c_long; 3]) -> libc::timex {
        // SAFETY: all-zero octets are a valid timex: it consists of integers.
        let empty: libc::timex = unsafe { std::mem::zeroed() };
        libc::timex { status, esterror, maxerror, offset, ..empty }
    }

    #[test]
    fn an_unestimated_clock_error_is_unknown() {
        let of = |status, numbers| ClockError::of(libc::TIME_OK, &timex(status, numbers));
        let known = |status, numbers| of(status, numbers).estimated_us;
        // chrony reports its estimate, which may be less than a microsecond.
        assert_eq!(known(0, [35, 900, 0]), Some(35));
        assert_eq!(known(0, [0, 901, 0]), Some(0));
        // ntpd leaves the remaining correction to the kernel's loop, in nanoseconds or microseconds.
        assert_eq!(known(libc::STA_PLL | libc::STA_NANO, [35, 900, -2_000_001]), Some(35 + 2_001));
        assert_eq!(known(libc::STA_PLL, [35, 900, 2_000]), Some(35 + 2_000));
        // systemd-timesyncd reports 0 while 400 ms are still to be corrected, and after a step.
        assert_eq!(known(libc::STA_PLL | libc::STA_NANO, [0, 0, 400_000_000]), None);
        assert_eq!(known(libc::STA_NANO, [0, 0, 0]), None);
        assert_eq!(known(libc::STA_NANO, [0, 17_500, 0]), None);
        // phc2sys reports a synchronized clock, and leaves the kernel's initial estimate in place.
        assert_eq!(known(0, [16_000_000, 0, 0]), None);
        assert!(
            of(0, [35, 900, 0]).synchronized && !of(libc::STA_UNSYNC, [35, 900, 0]).synchronized
        );
        assert!(!ClockError::of(libc::TIME_ERROR, &timex(0, [35, 900, 0])).synchronized);
    }

    #[test]
    fn the_worse_of_two_clock_readings_counts() {
        let read = |synchronized, estimated_us, largest_us| ClockError {
            synchronized,
            estimated_us,
            largest_us,
        };
        let (good, bad) = (read(true, Some(3), 9), read(true, Some(5), 7));
        assert_eq!(good.or_worse(bad), read(true, Some(5), 9));
        let unknown = read(false, None, 1);
        assert_eq!([good.or_worse(unknown), unknown.or_worse(good)], [read(false, None, 9); 2]);
    }

    #[test]
    fn a_slewed_clock_runs_faster_or_slower() {
        let at = |monotonic, raw| ClockRate {
            monotonic: Nanos(monotonic),
            raw: Nanos(raw),
            error: Nanos(500),
        };
        let begin = at(7_000_000_000, 5_000_000_000);
        let ppm = |monotonic, raw| begin.ppm_until(at(monotonic, raw)).round();
        assert_eq!(ppm(8_000_000_000, 6_000_000_000), 0.0);
        assert_eq!(ppm(8_083_000_000, 6_000_000_000), 82_999.0);
        assert_eq!(ppm(7_917_000_000, 6_000_000_000), -82_999.0);
        // Delays between the readings do not count as clock error.
        assert_eq!(ppm(8_000_001_000, 6_000_000_000), 0.0);
        assert_eq!(ppm(7_000_000_000, 5_000_000_000), 0.0);
        let real = ClockRate::sample();
        sleep_until(now() + Nanos::from_millis(20));
        assert!(real.ppm_until(ClockRate::sample()).abs() < 200_000.0);
    }

    #[test]
    fn only_a_step_sets_the_clocks_apart() {
        let at = |monotonic, wall| ClockPair { monotonic: Nanos(monotonic), wall: Nanos(wall) };
        let before = at(5_000, 1_000_000);
        assert_eq!(before.step_until(at(7_000, 1_002_000)), 0);
        assert_eq!(before.step_until(at(7_000, 1_002_500)), 500);
        assert_eq!(before.step_until(at(7_000, 400)), -1_001_600);
    }

    #[test]
    fn sleeping_does_not_end_early() {
        let until = now() + Nanos::from_millis(3);
        sleep_until(until);
        assert!(now() >= until);
        sleep_until(Nanos(1));
    }
}
