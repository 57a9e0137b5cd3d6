//! The client side: what a datagram asks, who may ask how often, and the reply as octets.

pub mod cookies;
pub mod inquiry;
pub(crate) mod limiter;
pub mod query;
pub mod reply;
