//! From a question to its answer: what upstreams say, what is kept of it, and for how long.

pub mod answer;
pub mod cache;
pub mod outcome;
pub mod ttl;
