//! Failures of upstream queries.

use std::fmt;
use std::io;

/// Reason why an upstream did not answer a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamFailure {
    /// The upstream sent no answer over UDP within the time limit.
    Timeout,
    /// The upstream sent no answer over TCP within the time limit.
    TcpTimeout,
    /// The TCP connection was refused, or closed without an answer.
    TcpClosed,
    /// The upstream sent a malformed response, and no other response within the time limit.
    Malformed,
    /// A system error with its errno, such as ENETUNREACH. For an error without an errno, the number is 0.
    System(i32),
}

impl UpstreamFailure {
    /// Classifies a socket error.
    pub(crate) fn of(error: &io::Error) -> UpstreamFailure {
        let by_kind = || match error.kind() {
            io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
            io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
            io::ErrorKind::NetworkUnreachable => libc::ENETUNREACH,
            io::ErrorKind::NotFound => libc::ENODEV,
            _ => 0,
        };
        UpstreamFailure::System(error.raw_os_error().unwrap_or_else(by_kind))
    }

    /// True if the failure is a timeout.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, UpstreamFailure::Timeout | UpstreamFailure::TcpTimeout)
    }

    /// Returns the number that represents the failure in storage: a negative number, or the errno
    /// of the system error.
    pub(super) fn to_number(self) -> i32 {
        match self {
            UpstreamFailure::Timeout => -1,
            UpstreamFailure::TcpTimeout => -2,
            UpstreamFailure::TcpClosed => -3,
            UpstreamFailure::Malformed => -4,
            UpstreamFailure::System(number) => number.max(0),
        }
    }

    pub(super) fn of_number(number: i32) -> UpstreamFailure {
        match number {
            -1 => UpstreamFailure::Timeout,
            -2 => UpstreamFailure::TcpTimeout,
            -3 => UpstreamFailure::TcpClosed,
            -4 => UpstreamFailure::Malformed,
            number => UpstreamFailure::System(number),
        }
    }
}

impl fmt::Display for UpstreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpstreamFailure::Timeout => f.write_str("timeout"),
            UpstreamFailure::TcpTimeout => f.write_str("timeout over TCP"),
            UpstreamFailure::TcpClosed => f.write_str("no answer over TCP"),
            UpstreamFailure::Malformed => f.write_str("malformed response"),
            UpstreamFailure::System(0) => f.write_str("cannot send"),
            UpstreamFailure::System(number) => io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_number_and_words() {
        for (trouble, words) in [
            (UpstreamFailure::Timeout, "timeout"),
            (UpstreamFailure::TcpTimeout, "timeout over TCP"),
            (UpstreamFailure::TcpClosed, "no answer over TCP"),
            (UpstreamFailure::Malformed, "malformed response"),
            (UpstreamFailure::of(&io::ErrorKind::QuotaExceeded.into()), "cannot send"),
            (
                UpstreamFailure::of(&io::Error::from_raw_os_error(101)),
                "Network is unreachable (os error 101)",
            ),
        ] {
            assert_eq!(UpstreamFailure::of_number(trouble.to_number()), trouble);
            assert_eq!(trouble.to_string(), words);
        }
    }
}
