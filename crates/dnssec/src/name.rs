//! Domain names.

/// A domain name in lower case, in wire format.
pub type Name = domain::base::Name<bytes::Bytes>;
