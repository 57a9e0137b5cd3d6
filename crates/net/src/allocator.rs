//! Settings of the C library's memory allocator.

/// Makes all threads allocate from one arena. Otherwise glibc reserves 64 MiB of address space for each thread
/// (malloc(3), M_ARENA_MAX). With one arena, threads that allocate at the same time wait for each other.
///
/// Only threads started later are affected. Other C libraries have no arenas of that size, so nothing is done there.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallopt takes two numbers and changes a setting of the allocator under its lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    /// Returns the address space of this process in KiB.
    fn address_space() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn threads_share_one_arena() {
        super::share_one_arena();
        let before = address_space();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let stopped = std::sync::Mutex::new(stopped);
        let barrier = std::sync::Barrier::new(5);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let allocated = vec![1_u8; 10_000];
                    barrier.wait();
                    // The thread ends when the sender is dropped.
                    let _ = stopped.lock().unwrap().recv();
                    assert_eq!(allocated.len(), 10_000);
                });
            }
            barrier.wait();
            let grown = address_space() - before;
            drop(stop);
            if cfg!(target_env = "gnu") {
                assert!(grown < 4 * 40 * 1_024, "{grown} KiB for four threads");
            }
        });
    }
}
