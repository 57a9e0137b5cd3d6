//! Replies of the server to the commands `dns64d reload` and `dns64d flush`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the JSON format of [`ReloadReport`]. It increases when a key is removed or changes its meaning.
pub const RELOAD_VERSION: u32 = 1;
/// Version of the JSON format of [`FlushReport`]. It increases when a key is removed or changes its meaning.
pub const FLUSH_VERSION: u32 = 1;

/// Result of a reload of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadReport {
    /// Version of the format of this JSON object.
    pub schema_version: u32,
    /// Path of the configuration file.
    pub file: String,
    /// Result of the reload: the file is in effect, partly in effect, or rejected.
    pub outcome: ReloadOutcome,
    /// Changed configuration keys that are in effect, such as `dns64.prefixes`.
    pub changed: Vec<String>,
    /// Changed configuration keys that take effect after a restart.
    pub waiting: Vec<String>,
    /// Warnings about the new configuration, with file and line if known.
    pub warnings: Vec<String>,
    /// Reason why the file was rejected, with file and line; `null` if it was not rejected.
    pub error: Option<String>,
}

/// State of the configuration file after a reload: in effect, partly in effect, or rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadOutcome {
    /// The whole configuration file is in effect.
    InEffect,
    /// Part of the configuration file is in effect. The rest takes effect after a restart.
    NeedsRestart,
    /// The file was rejected. The old configuration stays in effect.
    Refused,
}

/// Result of the removal of answers from the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlushReport {
    /// Version of the format of this JSON object.
    pub schema_version: u32,
    /// Name that was removed together with all names below it; `null` if all names were removed.
    pub name: Option<String>,
    /// Number of answers and failures that were removed from the cache.
    pub removed: u64,
}
