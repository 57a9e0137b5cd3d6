//! What tests of this crate share.

use std::io;
use std::time::Duration;

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
