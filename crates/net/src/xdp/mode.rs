//! Modes of AF_XDP.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bpf::Hook;

/// Requested attach mode of AF_XDP.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The fastest AF_XDP mode that both the interface and its driver support.
    #[default]
    Auto,
    /// The device writes packets directly into this process's memory. This mode needs driver support.
    ZeroCopy,
    /// The filter runs in the driver, and the kernel copies the packets that the filter selects.
    Copy,
    /// The filter runs after the driver, and the kernel copies the packets that the filter selects. This mode works
    /// with every driver.
    Generic,
}

/// Attach mode that AF_XDP uses on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttachMode {
    /// [`Mode::ZeroCopy`]: the device writes packets directly into this process's memory.
    ZeroCopy,
    /// [`Mode::Copy`]: the filter runs in the driver, and the kernel copies the selected packets.
    Copy,
    /// [`Mode::Generic`]: the filter runs after the driver, and the kernel copies the selected packets.
    Generic,
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachMode::ZeroCopy => "native, zero-copy",
            AttachMode::Copy => "native, copied",
            AttachMode::Generic => "generic, copied",
        })
    }
}

impl Mode {
    /// Returns the mode's name as used in options and plans.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::ZeroCopy => "zero-copy",
            Mode::Copy => "copy",
            Mode::Generic => "generic",
        }
    }

    /// Returns the attach modes to try for the requested mode, in order of decreasing speed.
    pub(super) fn attach_modes(self) -> &'static [AttachMode] {
        match self {
            Mode::Auto => &[AttachMode::ZeroCopy, AttachMode::Copy, AttachMode::Generic],
            Mode::ZeroCopy => &[AttachMode::ZeroCopy],
            Mode::Copy => &[AttachMode::Copy],
            Mode::Generic => &[AttachMode::Generic],
        }
    }
}

impl AttachMode {
    pub(super) fn hook(self) -> Hook {
        match self {
            AttachMode::ZeroCopy | AttachMode::Copy => Hook::Driver,
            AttachMode::Generic => Hook::Generic,
        }
    }
}
