//! A single fact about a host, with its effect on measurements.

use serde::{Deserialize, Serialize};

/// One fact about a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// Subject of the fact, such as `clock source`.
    pub subject: String,
    /// Value as text, with units.
    pub value: String,
    /// True if the finding is about an optional feature that the host does not support. No
    /// measurement needs the feature.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unavailable: bool,
    /// Effect on measurements; absent if the value cannot distort them.
    pub concern: Option<Concern>,
}

/// Effect of a finding on measurements, and a command that corrects the setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Concern {
    /// The effect on a measurement.
    pub why: String,
    /// Command that corrects the setting; absent if there is no such command.
    #[serde(rename = "mend")]
    pub fix: Option<String>,
}

pub(super) fn finding(subject: &str, value: impl Into<String>) -> Finding {
    Finding { subject: subject.into(), value: value.into(), unavailable: false, concern: None }
}

impl Finding {
    pub(crate) fn concern_if(mut self, bad: bool, why: &str, fix: Option<&str>) -> Finding {
        self.concern = bad.then(|| Concern { why: why.into(), fix: fix.map(Into::into) });
        self
    }
}
