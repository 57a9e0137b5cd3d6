//! What DNS64 makes of answers (RFC 6147, RFC 6052, RFC 8880): pure, without sockets and clock.

pub mod decide;
pub mod local;
pub mod policy;
pub mod prefix;
