//! The client side: what a datagram asks, who may ask how often, and the reply as octets.

pub(crate) mod cookies;
mod hinted;
pub(crate) mod inquiry;
pub(crate) mod limiter;
pub(crate) mod query;
pub(crate) mod reply;
