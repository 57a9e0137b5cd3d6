//! The servers that a campaign controls: DUTs and AuthDNS servers. A file for each program
//! describes its configuration, start, check and version. A program that can play both roles has
//! two drivers in its file.
//!
//! ```text
//! plan ─► Dut, Auth (which) ─► Driver (how) ─┬─ configuration ─► file ─┐
//!                                ▲            ├─ command ───────────────┼─► site, or xtask's compat
//!                   Setting (where, for whom, └─ version, check ────────┘
//!                   how many threads)
//! ```
//!
//! A driver is data: names, and functions that turn a [`Setting`] into a text or arguments. Only
//! [`find`] reads files here, and no process is started; starting, observing and stopping are the
//! same for all servers.

mod bind;
mod coredns;
mod custom;
mod dns64bench;
mod dns64d;
mod knot;
mod knot_resolver;
mod mtd64_ng;
mod nsd;
mod operator;
mod powerdns;
mod release;
mod unbound;
mod variant;
mod yadifa;
mod zone_file;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use method::units::Share;
use serde::{Deserialize, Serialize};
use tester::measurer::expect::Prefix;

pub use custom::Custom;
pub use operator::{Operator, OwnFile};
pub(crate) use operator::{stands_for_nothing, unknown_in_braces};
pub use release::Release;
pub use variant::{EXCLUDED, Variant};

/// Name of the zone file with AuthDNS's names, in the folder of the server's configuration.
pub(crate) const ZONE_FILE: &str = "dns64perf.test.zone";

/// The zone with the names of `conform`.
pub(crate) const CHECKED_ZONE: &str = "conform.example";

/// Task of a DUT: synthesize AAAA records, with AuthDNS as the upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Translate {
    /// The AuthDNS servers, to which all queries below `dns64perf.test` are forwarded: at least
    /// one; with several, the server chooses.
    pub upstreams: Vec<SocketAddr>,
    /// The DNS64 prefixes (RFC 6052 §2.1), at least one. Servers that support only one are
    /// configured with the first.
    pub prefixes: Vec<Prefix>,
    /// Configuration for conformance checks; `None`: rates are measured.
    pub checked: Option<Checked>,
}

impl Translate {
    /// Returns the text of `said` for each AuthDNS, concatenated.
    fn each_upstream(&self, said: impl Fn(IpAddr, u16) -> String) -> String {
        self.upstreams.iter().map(|at| said(at.ip(), at.port())).collect()
    }

    /// Returns the first prefix.
    ///
    /// # Panics
    /// If there is none.
    fn prefix(&self) -> Prefix {
        self.prefixes[0]
    }
}

/// Additional configuration of a DUT for the checks of `conform`: it forwards all queries to
/// AuthDNS and, if it can validate, validates with these trust anchors only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// DNSKEY and DS records of the signed zones, as lines of a zone file; empty: it does not
    /// validate.
    pub anchors: Vec<String>,
    /// A range of IPv6 addresses that it excludes in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
}

impl Checked {
    /// Returns the configuration for a variant; the signed zones have these anchors.
    pub fn of(variant: &Variant, anchors: &[String]) -> Checked {
        let validates = *variant != Variant::NoValidation;
        Checked {
            anchors: if validates { anchors.to_vec() } else { Vec::new() },
            excluded: variant.excluded(),
        }
    }

    /// True if it is configured to validate, if it can.
    fn validates(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Returns the anchors of a type, such as `DS`: owner and record data.
    fn of_type<'a>(&'a self, rtype: &'a str) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
        self.anchors.iter().filter_map(move |line| {
            let mut words = line.split_whitespace();
            let owner = words.next()?;
            words.by_ref().find(|word| *word == rtype)?;
            Some((owner, words.collect()))
        })
    }
}

/// Task of an AuthDNS: serve the names.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// The zone file; a relative path starts in the server's folder. dns64bench's AuthDNS needs
    /// none.
    pub zone: PathBuf,
    /// Share of names with an AAAA record, also contained in the zone file.
    pub aaaa: Share,
    /// Status socket for the counters of dns64bench's AuthDNS; other servers do not count queries.
    pub status: Option<PathBuf>,
    /// File for the trust anchors, if dns64bench's AuthDNS serves the names of `conform` instead of
    /// those of trials.
    pub anchors: Option<PathBuf>,
}

/// Environment of a server: folder, addresses, threads, and its task, a [`Translate`] or a
/// [`Serve`].
#[derive(Clone, Debug)]
pub struct Setting<'a, T> {
    /// The folder of its files on its host, including its configuration.
    pub folder: &'a Path,
    /// Listen address and port, UDP and TCP.
    pub listen: SocketAddr,
    /// Number of its CPUs; for the placeholder `{cores}` only.
    pub cores: usize,
    /// Configured number of answering threads or processes.
    pub threads: usize,
    /// Settings of the operator: lines, a configuration file, commands.
    pub operator: &'a Operator,
    /// The task.
    pub task: T,
}

/// The program that a driver starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program with this name, on the `PATH` or at the plan's path.
    Named(&'static str),
    /// dns64bench with these arguments, unless the plan names a program.
    Own {
        /// Name of the program, if the plan names one.
        name: &'static str,
        /// Arguments that select the role.
        words: &'static [&'static str],
    },
    /// The first word of the plan's commands.
    OfThePlan,
}

/// Method to find a server's version, which is the first line of output that contains a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The program is run with this argument.
    Argument(&'static str),
    /// A script for `sh`, with the program as `$1`.
    Script(&'static str),
    /// The plan's command, if there is one.
    OfThePlan,
}

/// The place where a server's number of threads or processes is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// On the command line, even if the operator gives a configuration file.
    ByCommand,
    /// In the configuration file. That of the operator must contain `{threads}` or `{cores}`.
    ByConfiguration,
}

/// Sign that a server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It answers a query on its address.
    Answers,
    /// Its status socket reports counters.
    Status,
}

/// Description of a server program for a task, [`Translate`] or [`Serve`].
pub struct Driver<T: 'static> {
    /// Name in reports.
    pub name: &'static str,
    /// The program.
    pub program: Program,
    /// Method to find its version.
    pub version: Version,
    /// Name of its configuration file, below its folder; empty without one.
    pub file: &'static str,
    /// Returns the text of that file. [`Setting::extra`] adds the operator's lines to its main
    /// section.
    configuration: fn(&Setting<'_, T>) -> String,
    /// Returns the command that starts it; `program` is the first part.
    command: fn(&Setting<'_, T>, &[String]) -> Vec<String>,
    /// Returns the command that checks a configuration file; `None` if there is no checker.
    check: Option<fn(&str) -> Vec<String>>,
    /// The place where its threads are configured.
    told: Told,
    /// Sign that it is ready.
    pub ready: Ready,
    /// True if it supports IPv6 for its queries or answers.
    pub speaks_ipv6: bool,
    /// True if it supports AF_XDP.
    pub speaks_xdp: bool,
    /// Drivers of later releases with another configuration format, each with its first release, in
    /// ascending order.
    later: &'static [(Release, Driver<T>)],
}

impl<T> Driver<T> {
    /// Returns the driver of a release: this one, or that of a later release.
    pub fn for_release(&self, release: Release) -> &Driver<T> {
        let later = self.later.iter().rev().find(|(first, _)| release >= *first);
        later.map_or(self, |(_, driver)| driver)
    }

    /// True if the driver depends on the release.
    pub fn depends_on_release(&self) -> bool {
        !self.later.is_empty()
    }

    /// Returns the name of its program; `None` if the plan's commands name it.
    pub fn program_name(&self) -> Option<&'static str> {
        match self.program {
            Program::Named(name) | Program::Own { name, .. } => Some(name),
            Program::OfThePlan => None,
        }
    }

    /// Returns the text of its configuration file: the operator's file with its placeholders
    /// replaced, otherwise the driver's.
    pub fn configuration(&self, setting: &Setting<'_, T>) -> String
    where
        T: Task,
    {
        match &setting.operator.config {
            Some(own) => setting.fill(&own.text),
            None => (self.configuration)(setting),
        }
    }

    /// Returns the command that starts it; `program` is empty for commands of the plan, which
    /// contain it.
    pub fn command(&self, setting: &Setting<'_, T>, program: &[String]) -> Vec<String> {
        (self.command)(setting, program)
    }

    /// Returns the command with which the server checks a configuration file, if it has a checker.
    pub fn checker(&self, file: &str) -> Option<Vec<String>> {
        self.check.map(|check| check(file))
    }

    /// Returns the command that prints the version of the server; empty if there is none.
    pub fn version_command(&self, operator: &Operator, program: &[String]) -> Vec<String> {
        match self.version {
            Version::Argument(argument) => with(program, &[argument]),
            Version::Script(script) => [&words(&["sh", "-c", script, "sh"]), program].concat(),
            Version::OfThePlan => {
                operator.custom.as_ref().map(|custom| custom.version.clone()).unwrap_or_default()
            }
        }
    }

    /// True if the number of threads or processes is configured.
    pub(crate) fn tells_threads(&self, operator: &Operator) -> bool {
        let asks = |text: &String| text.contains("{threads}") || text.contains("{cores}");
        match (self.told, &operator.custom, &operator.config) {
            (_, Some(custom), _) => custom.start.iter().any(asks),
            (Told::ByConfiguration, _, Some(own)) => asks(&own.text),
            _ => true,
        }
    }
}

/// Placeholders of a task.
pub trait Task {
    /// Returns the values of `{upstream}` and `{upstream-port}` (the first AuthDNS), `{prefix}` and
    /// `{zone}`; `None` if they do not apply to the task.
    fn values(&self) -> [Option<String>; 4];
}

impl Task for Translate {
    fn values(&self) -> [Option<String>; 4] {
        let upstream = self.upstreams[0];
        [
            Some(upstream.ip().to_string()),
            Some(upstream.port().to_string()),
            Some(self.prefix().to_string()),
            None,
        ]
    }
}

impl Task for Serve {
    fn values(&self) -> [Option<String>; 4] {
        [None, None, None, Some(self.zone.to_string_lossy().into_owned())]
    }
}

impl<T> Setting<'_, T> {
    /// Returns the path of a file in the server's folder.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// Returns the server's folder as text.
    fn place(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// Returns the operator's lines, each with `indent` and a line end.
    fn extra(&self, indent: &str) -> String {
        self.operator.extra.iter().map(|line| format!("{indent}{line}\n")).collect()
    }
}

/// Converts words to owned text.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Appends arguments to a program.
fn with(program: &[String], arguments: &[&str]) -> Vec<String> {
    [program, &words(arguments)].concat()
}

/// Defines the servers for a task: the plan's name for each, and its driver.
macro_rules! kinds {
    ($(#[$about:meta])* $name:ident for $task:ty { $($(#[$of:meta])* $kind:ident => $driver:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of])* $kind,)*
        }

        impl $name {
            /// All servers.
            pub const ALL: &'static [$name] = &[$($name::$kind),*];

            /// Returns the driver.
            pub fn driver(self) -> &'static Driver<$task> {
                match self {
                    $($name::$kind => &$driver,)*
                }
            }

            /// Returns the name in reports.
            pub fn name(self) -> &'static str {
                self.driver().name
            }
        }
    };
}

impl Dut {
    /// Returns the files in its folder that are large or keep state, and are rewritten at every
    /// start.
    pub(crate) fn bulk(self) -> &'static [&'static str] {
        match self {
            // The cache, which has its full size from the start, followed by files of version 6.
            Dut::KnotResolver => {
                &["data.mdb", "lock.mdb", "ruledb/data.mdb", "ruledb/lock.mdb", "top", "defer"]
            }
            _ => &[],
        }
    }

    /// True if its driver configures validation in checks; `None` if the plan's commands decide.
    pub fn validates(self) -> Option<bool> {
        match self {
            Dut::Bind | Dut::Unbound | Dut::Powerdns | Dut::KnotResolver => Some(true),
            Dut::Coredns | Dut::Mtd64Ng | Dut::Dns64d => Some(false),
            Dut::Custom => None,
        }
    }

    /// Returns the file in its folder with the trust anchors of checks: name and contents.
    pub fn anchors(self, checked: &Checked) -> (&'static str, String) {
        match self {
            Dut::Powerdns => (powerdns::ANCHORS, powerdns::anchors(checked)),
            // Drivers have them in their configuration; the operator's configuration may refer to
            // the file.
            _ => ("anchors", checked.anchors.iter().map(|line| format!("{line}\n")).collect()),
        }
    }
}

impl Auth {
    /// Same as [`Dut::bulk`].
    pub(crate) fn bulk(self) -> &'static [&'static str] {
        if self.is_ours() { &[] } else { &[ZONE_FILE] }
    }
}

kinds! {
    /// Server program of a DUT.
    Dut for Translate {
        /// ISC BIND 9.
        Bind => bind::DNS64,
        /// NLnet Labs Unbound.
        Unbound => unbound::DRIVER,
        /// PowerDNS Recursor.
        Powerdns => powerdns::DRIVER,
        /// CZ.NIC Knot Resolver (kresd, version 5 or 6).
        KnotResolver => knot_resolver::DRIVER,
        /// CoreDNS with its plugins `dns64`, `forward` and `cache`.
        Coredns => coredns::DRIVER,
        /// mtd64-ng; its program must be given.
        Mtd64Ng => mtd64_ng::DRIVER,
        /// dns64d.
        Dns64d => dns64d::DRIVER,
        /// Any server that the plan's commands start.
        Custom => custom::DRIVER,
    }
}

kinds! {
    /// Server program that plays AuthDNS.
    #[derive(Default)]
    Auth for Serve {
        /// dns64bench, which counts queries.
        #[default]
        Dns64bench => dns64bench::DRIVER,
        /// NLnet Labs NSD.
        Nsd => nsd::DRIVER,
        /// CZ.NIC Knot DNS.
        Knot => knot::DRIVER,
        /// ISC BIND 9.
        Bind => bind::AUTHORITATIVE,
        /// EURid YADIFA.
        Yadifa => yadifa::DRIVER,
    }
}

impl Auth {
    /// True for dns64bench, which serves all names without a zone file and counts queries.
    pub fn is_ours(self) -> bool {
        self == Auth::Dns64bench
    }
}

/// Finds a program: at the given path, in the folder of this program, on the `PATH`, or in the
/// system's folders.
pub fn find(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return program.is_file().then(|| program.into());
    }
    let ours = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = ours
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests;
