//! The Measurer: sends queries at a constant rate and checks every reply.

pub mod burst;
mod cpu_sharing;
mod error;
pub mod expect;
mod histogram;
mod host_losses;
mod ids;
mod ledger;
pub mod liveness;
pub mod merge;
pub mod names;
mod placement;
pub mod plan;
mod preload;
mod receiver;
pub mod recorder;
pub mod result;
mod sender;
pub mod shards;
pub mod sources;
mod thread_pair;
mod topology;
mod trial;
mod tx_rx_path;
pub mod wrong_replies;

pub use error::TrialError;
pub use placement::needs_send_cost;
pub use thread_pair::Progress;
pub use trial::{run, run_without_clock};
