//! Failures of upstream queries.

use std::fmt;
use std::io;

/// Reason why an upstream did not answer a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No UDP answer in time.
    Timeout,
    /// No TCP answer in time.
    TcpTimeout,
    /// The TCP connection was refused, or closed without an answer.
    TcpClosed,
    /// A system error with this number, such as ENETUNREACH; 0 for any other error.
    System(i32),
}

impl Trouble {
    /// Classifies a socket error.
    pub(crate) fn of(error: &io::Error) -> Trouble {
        let by_kind = || match error.kind() {
            io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
            io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
            io::ErrorKind::NotFound => libc::ENODEV,
            _ => 0,
        };
        Trouble::System(error.raw_os_error().unwrap_or_else(by_kind))
    }

    /// True for a timeout.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Trouble::Timeout | Trouble::TcpTimeout)
    }

    /// Returns the stored number: negative, or that of the system error.
    pub(super) fn to_number(self) -> i32 {
        match self {
            Trouble::Timeout => -1,
            Trouble::TcpTimeout => -2,
            Trouble::TcpClosed => -3,
            Trouble::System(number) => number.max(0),
        }
    }

    pub(super) fn of_number(number: i32) -> Trouble {
        match number {
            -1 => Trouble::Timeout,
            -2 => Trouble::TcpTimeout,
            -3 => Trouble::TcpClosed,
            number => Trouble::System(number),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Timeout => f.write_str("timeout"),
            Trouble::TcpTimeout => f.write_str("timeout over TCP"),
            Trouble::TcpClosed => f.write_str("no answer over TCP"),
            Trouble::System(0) => f.write_str("cannot send"),
            Trouble::System(number) => io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_words() {
        for (trouble, words) in [
            (Trouble::Timeout, "timeout"),
            (Trouble::TcpTimeout, "timeout over TCP"),
            (Trouble::TcpClosed, "no answer over TCP"),
            (Trouble::of(&io::ErrorKind::QuotaExceeded.into()), "cannot send"),
            (
                Trouble::of(&io::Error::from_raw_os_error(101)),
                "Network is unreachable (os error 101)",
            ),
        ] {
            assert_eq!(Trouble::of_number(trouble.to_number()), trouble);
            assert_eq!(trouble.to_string(), words);
        }
    }
}
