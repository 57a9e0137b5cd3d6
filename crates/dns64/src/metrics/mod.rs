//! Metrics: counters, their text format for Prometheus, and the HTTP listener.
//!
//! ```text
//! workers, TCP ─► counters ─► prometheus ─► http ─► Prometheus
//! ```

mod counters;
pub mod http;
mod prometheus;
mod trouble;

pub use counters::{Count, Metrics};
pub(crate) use counters::{UpstreamMetrics, WorkerMetrics};
pub(crate) use prometheus::{PrefixRow, to_text};
pub(crate) use trouble::Trouble;
