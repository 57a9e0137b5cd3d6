//! Helpers shared by the tests of this crate.

use std::io;
use std::time::Duration;

/// Calls `open` to open a socket, and repeats the call while the address of the socket is in use. A socket that the
/// test has closed may remain open for a moment in a child process that a different test is starting.
pub(crate) fn retry_until_free<T, E: Into<io::Error>>(mut open: impl FnMut() -> Result<T, E>) -> T {
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
