//! Code shared by the drivers for third-party authoritative servers. These programs are installed in a folder of the
//! `PATH`, have a single configuration file, read a zone file, and do not count queries. The module of each server
//! contains the differences: name, program, and configuration format.

use crate::servers::driver::{Driver, Program, Ready, Serve, Setting, ThreadOption, Version};

/// Configuration values of a third-party authoritative server.
pub(super) struct ZoneServerConfig {
    /// Folder of the server's files.
    pub folder: String,
    /// Listen address.
    pub ip: String,
    /// Listen port.
    pub port: u16,
    /// Number of threads or processes that answer queries.
    pub threads: usize,
    /// Path of the zone file.
    pub zone: String,
    /// The operator's lines for the main section of the configuration, with line ends.
    pub extra: String,
}

impl ZoneServerConfig {
    /// Returns the configuration values for the settings of a server. The operator's lines are indented by `indent`.
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

/// Returns the driver for a server that is configured only by the file `file`.
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
        thread_option: ThreadOption::ByConfiguration,
        ready: Ready::Answers,
        supports_ipv6: true,
        supports_xdp: false,
        later: &[],
    }
}
