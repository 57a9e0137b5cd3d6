//! What tests with network namespaces of their own share.

use std::io;
use std::process::Command;
use std::time::Duration;

use nix::unistd::geteuid;

/// Whether a test that needs root can run; says loudly if not, and fails where it must be able to
/// run: `cargo xtask test` sets `DNS64BENCH_MUST_RUN` in CI.
pub(crate) fn is_root(test: &str) -> bool {
    let root = geteuid().is_root() && Command::new("ip").arg("-V").output().is_ok();
    if !root {
        assert!(
            std::env::var_os("DNS64BENCH_MUST_RUN").is_none(),
            "{test} must run here: it needs root and ip(8)"
        );
        eprintln!("SKIPPED {test}: needs root and ip(8)");
    }
    root
}

/// Runs `ip` with the words of a line in the calling thread's namespace.
pub(crate) fn ip(line: &str) {
    let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What `open` opens, on an address that the test has used before: a socket that it has closed
/// lives on for a moment in a child that another test is just starting.
pub(crate) fn once_free<T, E: Into<io::Error>>(mut open: impl FnMut() -> Result<T, E>) -> T {
    for _ in 0..500 {
        match open().map_err(Into::into) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("the address does not become free");
}
