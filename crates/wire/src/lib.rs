//! DNS messages of a DNS64 benchmark, without I/O.
//!
//! ```text
//! query index ─► name::NameSpace ─► IPv4 address ─► template::QueryTemplate ─► bytes on the wire
//! bytes from the wire ─► view::Message ─► records, names compared in place, rdata checked
//! several messages in one datagram ─► joined::segment ─► the length of each
//! EDNS ─► edns ─► OPT records, read and written; rcode::Rcode
//! ```
//!
//! The Measurer, AuthDNS and the zone file writer share this crate, so they use the same names with
//! the same records. This crate neither generates nor evaluates answers.
#![forbid(unsafe_code)]

pub mod edns;
pub mod joined;
pub mod name;
pub mod rcode;
mod rdata;
pub mod template;
pub mod tsig;
pub mod view;
