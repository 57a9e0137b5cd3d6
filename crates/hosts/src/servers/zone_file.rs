//! Common part of third-party authoritative servers: programs on the `PATH` that are configured by
//! a single file, read the zone file, and do not count queries. A server's file contains the
//! differences: its name, its program, and its configuration format.

use crate::servers::driver::{Driver, Program, Ready, Serve, Setting, ThreadOption, Version};

/// Configuration values of such a server.
pub(super) struct ZoneServerConfig {
    /// The folder of its files.
    pub folder: String,
    /// Listen address.
    pub ip: String,
    /// Listen port.
    pub port: u16,
    /// Number of answering threads or processes.
    pub threads: usize,
    /// The zone file.
    pub zone: String,
    /// The operator's lines for its main section, with line ends.
    pub extra: String,
}

impl ZoneServerConfig {
    /// Returns the values of a setting; the operator's lines are indented by `indent`.
    pub(super) fn by(setting: &Setting<'_, Serve>, indent: &str) -> ZoneServerConfig {
        ZoneServerConfig {
            folder: setting.place(),
            ip: setting.listen.ip().to_string(),
            port: setting.listen.port(),
            threads: setting.threads,
            zone: setting.task.zone.display().to_string(),
            extra: setting.extra(indent),
        }
    }
}

/// Returns the driver of a server that is configured by the file `file` only.
pub(super) const fn driver(
    (name, program): (&'static str, &'static str),
    version: &'static str,
    (file, configuration): (&'static str, fn(&Setting<'_, Serve>) -> String),
    command: fn(&Setting<'_, Serve>, &[String]) -> Vec<String>,
    check: Option<fn(&str) -> Vec<String>>,
) -> Driver<Serve> {
    Driver {
        name,
        program: Program::Named(program),
        version: Version::Argument(version),
        file,
        configuration,
        command,
        check,
        told: ThreadOption::ByConfiguration,
        ready: Ready::Answers,
        supports_ipv6: true,
        supports_xdp: false,
        later: &[],
    }
}
