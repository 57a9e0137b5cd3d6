//! The Measurer: offers queries at a constant rate and judges every reply.

pub mod expect;
pub mod ids;
pub mod ledger;
pub mod names;
pub mod plan;
mod preload;
mod receiver;
pub mod recorder;
pub mod result;
mod sender;
mod trial;

pub use trial::{Progress, TrialError, run};
