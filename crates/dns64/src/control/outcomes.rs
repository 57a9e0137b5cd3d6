//! Reports of `dns64d reload` and `dns64d flush`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of [`ReloadReport`]: raised when a key goes or changes its meaning.
pub const RELOAD_VERSION: u32 = 1;
/// The version of [`FlushReport`]: raised when a key goes or changes its meaning.
pub const FLUSH_VERSION: u32 = 1;

/// The outcome of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadReport {
    /// The version of this object.
    pub schema_version: u32,
    /// The configuration file.
    pub file: String,
    /// Extent to which the file is in effect.
    pub outcome: ReloadOutcome,
    /// Keys with a new value that is in effect, such as `dns64.prefixes`.
    pub changed: Vec<String>,
    /// Keys with a new value that is in effect after a restart.
    pub waiting: Vec<String>,
    /// Warnings about the new configuration, with file and line where there is one.
    pub warnings: Vec<String>,
    /// Reason of the refusal, with file and line; `null`: not refused.
    pub error: Option<String>,
}

/// The extent to which a configuration file is in effect after a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadOutcome {
    /// All of it is in effect.
    InEffect,
    /// Part of it waits for a restart.
    NeedsRestart,
    /// None of it is: the old configuration stays.
    Refused,
}

/// The outcome of a flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlushReport {
    /// The version of this object.
    pub schema_version: u32,
    /// The name that was removed with the names below it; `null`: everything was.
    pub name: Option<String>,
    /// Number of cached answers and failures that were removed.
    pub removed: u64,
}
