//! Any server, controlled by commands in the plan.

use serde::{Deserialize, Serialize};

use super::{Driver, Program, Ready, Told, Translate, Version};

/// Commands of the driver `custom`, run on the DUT's host. Placeholders such as `{listen}` are
/// replaced, except in `version`, which runs before any server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Custom {
    /// Program and arguments. The process stays in the foreground and ends on SIGTERM, unless
    /// `stop` is set.
    pub start: Vec<String>,
    /// Exits with status 0 when the server is ready; repeated until then. The tester also queries
    /// the server.
    pub ready: Vec<String>,
    /// Ends the server. With this command `start` may return immediately, as `systemctl start`
    /// does.
    pub stop: Vec<String>,
    /// Prints the ids of the server's processes, for CPU time and CPUs; default: the process that
    /// `start` started.
    pub cpu_pids: Vec<String>,
    /// Prints the version of the server.
    pub version: Vec<String>,
}

/// The operator's configuration, if there is one, is `server.conf` in the server's folder.
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
