//! What authoritative servers of others have in common: they are programs on the path that are told
//! everything by one file, read our zone file, and count nothing. A server's file says what
//! differs: its name, its program, and the form of its configuration.

use super::{Driver, Program, Ready, Serve, Setting, Told, Version};

/// What such a server is told.
pub(super) struct Given {
    /// The folder of its files.
    pub(super) folder: String,
    /// Where it listens.
    pub(super) ip: String,
    /// On which port.
    pub(super) port: u16,
    /// Threads or processes that it answers with.
    pub(super) threads: usize,
    /// The zone file.
    pub(super) zone: String,
    /// The operator's lines for its main section, with their ends.
    pub(super) extra: String,
}

impl Given {
    /// By the plan; the operator's lines are behind `indent`.
    pub(super) fn by(setting: &Setting<'_, Serve>, indent: &str) -> Given {
        Given {
            folder: setting.place(),
            ip: setting.listen.ip().to_string(),
            port: setting.listen.port(),
            threads: setting.threads,
            zone: setting.task.zone.display().to_string(),
            extra: setting.extra(indent),
        }
    }
}

/// The driver of a server that is told everything by its configuration `file`.
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
        told: Told::ByConfiguration,
        ready: Ready::Answers,
        speaks_ipv6: true,
        speaks_xdp: false,
        later: &[],
    }
}
