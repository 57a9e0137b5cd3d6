//! Handling of client messages: query parsing, rate limits, and encoding of replies.

pub(crate) mod cookies;
mod hinted;
pub(crate) mod inquiry;
pub(crate) mod limiter;
pub(crate) mod query;
pub(crate) mod reply;
