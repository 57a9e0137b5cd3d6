//! A host of a plan that is reached over ssh.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A host reached over ssh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SshHost {
    /// Destination for ssh: `[user@]name`, or a name from the user's configuration.
    pub host: String,
    /// Path of dns64bench on that host; default: the one on its `PATH`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// True if dns64bench is installed on that host. A DUT's host without it is driven through its
    /// shell and supports the driver `custom` only.
    #[serde(default = "yes")]
    pub agent: bool,
}

fn yes() -> bool {
    true
}
