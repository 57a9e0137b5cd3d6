//! Any server, by commands of the plan.

use serde::{Deserialize, Serialize};

use super::{Driver, Program, Ready, Told, Translate, Version};

/// Commands of the driver `custom`, run on the DUT's host. Words in braces are replaced
/// ([`super::PLACEHOLDERS`]), but for `version`, which is asked when nothing runs yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Custom {
    /// Program and arguments. It stays in the foreground and ends on SIGTERM, unless there is
    /// `stop`.
    pub start: Vec<String>,
    /// Succeeds when the server is ready; asked again and again. The tester asks the server itself
    /// in any case.
    pub ready: Vec<String>,
    /// Ends the server; then `start` may return at once, as `systemctl start` does.
    pub stop: Vec<String>,
    /// Prints the ids of the processes whose CPU time and CPUs are the server's; none: what `start`
    /// started.
    pub cpu_pids: Vec<String>,
    /// The command that prints its version: program and arguments.
    pub version: Vec<String>,
}

/// The operator's file, if there is one, is `server.conf` in the server's folder.
pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "custom",
    program: Program::OfThePlan,
    version: Version::OfThePlan,
    file: "server.conf",
    configuration: |_| String::new(),
    command: |setting, _| {
        let custom = setting.operator.custom.as_ref();
        custom.map(|custom| setting.fill_all(&custom.start)).unwrap_or_default()
    },
    check: None,
    told: Told::ByCommand,
    ready: Ready::Answers,
    speaks_ipv6: true,
    speaks_xdp: false,
    later: &[],
};
