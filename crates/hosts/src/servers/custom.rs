//! Driver for server software without a driver of its own. Commands in the plan control such a server.

use crate::servers::driver::{Driver, Program, Ready, ThreadOption, Translate, Version};

/// Driver for the commands of the plan. The operator's configuration file, if there is one, becomes
/// `server.conf` in the server's folder.
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
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};
