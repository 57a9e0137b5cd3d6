//! Counts by path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts by path.
pub(super) type Paths = BTreeMap<String, Count>;

/// Count of one path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Count {
    /// Instructions per query; the median of the rounds.
    pub(super) instructions: u64,
    /// Standard deviation of a round, in percent.
    pub(super) scatter_percent: f64,
}
