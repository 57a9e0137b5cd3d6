//! The Measurer: offers queries at a constant rate and judges every reply.

mod error;
pub mod expect;
pub mod ids;
pub mod ledger;
pub mod liveness;
pub mod names;
pub mod plan;
mod preload;
mod receiver;
pub mod recorder;
pub mod result;
mod sender;
mod shard;
mod trial;

pub use error::TrialError;
pub use shard::Progress;
pub use trial::run;
