//! Metrics: counters, their text format for Prometheus, and the HTTP listener.
//!
//! ```text
//! workers, TCP ─► counters ─► prometheus ─► http ─► Prometheus
//! ```

mod counters;
mod failure;
pub mod http;
mod prometheus;

pub use counters::{Count, Metrics};
pub(crate) use counters::{UpstreamMetrics, ValidationMetrics, WorkerMetrics};
pub(crate) use failure::UpstreamFailure;
pub(crate) use prometheus::{PrefixRow, to_text};
