//! The client side: parsing of queries, rate limits, and replies as octets.

pub(crate) mod cookies;
mod hinted;
pub(crate) mod inquiry;
pub(crate) mod limiter;
pub(crate) mod query;
pub(crate) mod reply;
