//! The client side: what a datagram asks, who may ask how often, and the reply as octets.

pub(crate) mod cookies;
pub(crate) mod limiter;
pub mod query;
pub mod reply;
