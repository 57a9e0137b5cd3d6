//! Instruction counts by code path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Instruction counts by code path.
pub(super) type Paths = BTreeMap<String, Count>;

/// Instruction count of one code path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Count {
    /// Instructions per query, as the median of the rounds.
    pub(super) instructions: u64,
    /// Standard deviation of the rounds, in percent of their mean.
    pub(super) scatter_percent: f64,
}
