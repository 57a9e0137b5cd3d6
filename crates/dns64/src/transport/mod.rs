//! How messages travel.

pub(crate) mod framing;
