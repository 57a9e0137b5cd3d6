//! The servers that a campaign drives: DUTs, and what plays AuthDNS. A file for each program says
//! how it is configured, started, checked and asked for its version; a program that can be both has
//! two drivers in its file.
//!
//! ```text
//! plan ─► Dut, Auth (which) ─► Driver (how) ─┬─ configuration ─► file ─┐
//!                                ▲            ├─ command ───────────────┼─► site, or xtask: starts it
//!                   Setting (where, for whom, └─ version, check ────────┘
//!                   how many threads)
//! ```
//!
//! A driver is data: names, and functions from a [`Setting`] to a text or to words. Nothing here
//! reads a file or starts a process but [`find`]; starting, watching and stopping is the same for
//! all servers.

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

/// The name of the zone file that AuthDNS's names are in, beside the configuration of the server
/// that reads it.
pub(crate) const ZONE_FILE: &str = "dns64perf.test.zone";

/// The zone whose names `conform` asks for.
pub(crate) const CHECKED_ZONE: &str = "conform.example";

/// What a DUT is to do: translate, and ask AuthDNS.
#[derive(Clone, Debug, PartialEq)]
pub struct Translate {
    /// AuthDNS, to which all questions below `dns64perf.test` are forwarded: one server at least, and
    /// of several any.
    pub upstreams: Vec<SocketAddr>,
    /// The DNS64 prefixes of the addresses that it synthesizes (RFC 6052 §2.1), one at least. Who can
    /// be told one only is told the first.
    pub prefixes: Vec<Prefix>,
    /// How its answers are checked; none: rates are measured.
    pub checked: Option<Checked>,
}

impl Translate {
    /// What a configuration says of each AuthDNS, one after the other.
    fn each_upstream(&self, said: impl Fn(IpAddr, u16) -> String) -> String {
        self.upstreams.iter().map(|at| said(at.ip(), at.port())).collect()
    }

    /// The first of its prefixes.
    ///
    /// # Panics
    /// If there is none.
    fn prefix(&self) -> Prefix {
        self.prefixes[0]
    }
}

/// What a DUT is told for the checks of `conform` besides: it forwards all questions to AuthDNS,
/// and where it can validate it does, with these trust anchors and no others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// DNSKEY and DS records of the signed zones, as lines of a zone file; none: it does not
    /// validate.
    pub anchors: Vec<String>,
    /// A range of IPv6 addresses that it excludes besides ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
}

impl Checked {
    /// What a DUT is told for one of its variants, where the signed zones have these anchors.
    pub fn of(variant: &Variant, anchors: &[String]) -> Checked {
        let validates = *variant != Variant::NoValidation;
        Checked {
            anchors: if validates { anchors.to_vec() } else { Vec::new() },
            excluded: variant.excluded(),
        }
    }

    /// Whether it is to validate, if it can.
    fn validates(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// The anchors of a type, such as `DS`: owner and record data.
    fn of_type<'a>(&'a self, rtype: &'a str) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
        self.anchors.iter().filter_map(move |line| {
            let mut words = line.split_whitespace();
            let owner = words.next()?;
            words.by_ref().find(|word| *word == rtype)?;
            Some((owner, words.collect()))
        })
    }
}

/// What plays AuthDNS is to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// The zone file; a relative path begins in the server's folder. Our own AuthDNS reads none.
    pub zone: PathBuf,
    /// Share of names with an AAAA record. It stands in the zone file too.
    pub aaaa: Share,
    /// The socket on which our own AuthDNS tells its counters; the others count nothing.
    pub status: Option<PathBuf>,
    /// Where our own AuthDNS writes trust anchors, if it is to serve the names of `conform` in place
    /// of those of the zone.
    pub anchors: Option<PathBuf>,
}

/// Where and with how many threads a server runs, and what it is to do: a [`Translate`] or a
/// [`Serve`].
#[derive(Clone, Debug)]
pub struct Setting<'a, T> {
    /// The folder of its files on its host, its configuration among them.
    pub folder: &'a Path,
    /// Address and port that it listens on, UDP and TCP.
    pub listen: SocketAddr,
    /// CPUs that it has; for the word `{cores}` only.
    pub cores: usize,
    /// Threads, or processes, that it is told to answer with.
    pub threads: usize,
    /// What the operator gives besides: lines, a configuration of their own, commands.
    pub operator: &'a Operator,
    /// What it is to do.
    pub task: T,
}

/// A program that a driver starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// One with this name, on the path or where the plan says.
    Named(&'static str),
    /// This program itself with these words, unless the plan names one of that name.
    Own {
        /// Its name, where the plan gives a program of its own.
        name: &'static str,
        /// What makes this program be it.
        words: &'static [&'static str],
    },
    /// The first word of the plan's own commands.
    OfThePlan,
}

/// How a server is asked for its version, which is the first printed line that has a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The program is given this argument.
    Argument(&'static str),
    /// A script for `sh`, with the program as `$1`, finds it out.
    Script(&'static str),
    /// The plan's own command tells it, if there is one.
    OfThePlan,
}

/// What tells a server how many threads or processes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Its command, also where the operator gives a configuration.
    ByCommand,
    /// Its configuration. One of the operator's does if it has `{threads}` or `{cores}` in it.
    ByConfiguration,
}

/// How it is seen that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It answers a question on its address.
    Answers,
    /// Its status socket tells counters.
    Status,
}

/// How to run a server for a task, [`Translate`] or [`Serve`].
pub struct Driver<T: 'static> {
    /// What a report calls it.
    pub name: &'static str,
    /// The program that is started, and how it is found.
    pub program: Program,
    /// How it tells its version.
    pub version: Version,
    /// Name of its configuration file, below its folder; empty where it has none.
    pub file: &'static str,
    /// The text of that file. [`Setting::extra`] puts the operator's lines into its main section.
    configuration: fn(&Setting<'_, T>) -> String,
    /// The words that start it, `program` among them.
    command: fn(&Setting<'_, T>, &[String]) -> Vec<String>,
    /// The program with which its configuration file can be checked, and the arguments for a file;
    /// none: there is no such thing.
    check: Option<fn(&str) -> Vec<String>>,
    /// What tells it its threads.
    told: Told,
    /// How it is seen that it serves.
    pub ready: Ready,
    /// Whether it can ask, or serve, over IPv6.
    pub speaks_ipv6: bool,
    /// Whether it can be told to go past the kernel's network stack.
    pub speaks_xdp: bool,
    /// Drivers of later releases with another configuration, each with its first release, in order.
    later: &'static [(Release, Driver<T>)],
}

impl<T> Driver<T> {
    /// The driver of a release: this one, or that of a later release.
    pub fn for_release(&self, release: Release) -> &Driver<T> {
        let later = self.later.iter().rev().find(|(first, _)| release >= *first);
        later.map_or(self, |(_, driver)| driver)
    }

    /// True if the driver depends on the release.
    pub fn depends_on_release(&self) -> bool {
        !self.later.is_empty()
    }

    /// The name of its program; `None` where the plan's commands name it.
    pub fn program_name(&self) -> Option<&'static str> {
        match self.program {
            Program::Named(name) | Program::Own { name, .. } => Some(name),
            Program::OfThePlan => None,
        }
    }

    /// The text of its configuration file: the operator's own with its words in braces replaced, or
    /// else the driver's.
    pub fn configuration(&self, setting: &Setting<'_, T>) -> String
    where
        T: Task,
    {
        match &setting.operator.config {
            Some(own) => setting.fill(&own.text),
            None => (self.configuration)(setting),
        }
    }

    /// The words that start it; `program` is none for commands of the plan, which name it.
    pub fn command(&self, setting: &Setting<'_, T>, program: &[String]) -> Vec<String> {
        (self.command)(setting, program)
    }

    /// Program and arguments with which the server's own checker reads a configuration file, where
    /// there is such a thing.
    pub fn checker(&self, file: &str) -> Option<Vec<String>> {
        self.check.map(|check| check(file))
    }

    /// Command that prints the version of the server; empty if there is none.
    pub fn version_command(&self, operator: &Operator, program: &[String]) -> Vec<String> {
        match self.version {
            Version::Argument(argument) => with(program, &[argument]),
            Version::Script(script) => [&words(&["sh", "-c", script, "sh"]), program].concat(),
            Version::OfThePlan => {
                operator.custom.as_ref().map(|custom| custom.version.clone()).unwrap_or_default()
            }
        }
    }

    /// Whether the server is told how many threads or processes it has.
    pub(crate) fn tells_threads(&self, operator: &Operator) -> bool {
        let asks = |text: &String| text.contains("{threads}") || text.contains("{cores}");
        match (self.told, &operator.custom, &operator.config) {
            (_, Some(custom), _) => custom.start.iter().any(asks),
            (Told::ByConfiguration, _, Some(own)) => asks(&own.text),
            _ => true,
        }
    }
}

/// A task's words in braces.
pub trait Task {
    /// The values of `{upstream}` and `{upstream-port}` (the first AuthDNS), `{prefix}` and `{zone}`;
    /// none where the task has no such thing.
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
    /// A file in the server's folder.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// The server's folder as a word.
    fn place(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// The operator's lines, each behind `indent` and with its end.
    fn extra(&self, indent: &str) -> String {
        self.operator.extra.iter().map(|line| format!("{indent}{line}\n")).collect()
    }
}

/// Words as owned text.
fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A program with arguments.
fn with(program: &[String], arguments: &[&str]) -> Vec<String> {
    [program, &words(arguments)].concat()
}

/// Which servers there are for a task: the plan's word for each, and its driver.
macro_rules! kinds {
    ($(#[$about:meta])* $name:ident for $task:ty { $($(#[$of:meta])* $kind:ident => $driver:expr,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of])* $kind,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$kind),*];

            /// How it is run.
            pub fn driver(self) -> &'static Driver<$task> {
                match self {
                    $($name::$kind => &$driver,)*
                }
            }

            /// What a report calls it.
            pub fn name(self) -> &'static str {
                self.driver().name
            }
        }
    };
}

impl Dut {
    /// Files in its folder that are large or keep state, and are written at every start.
    pub(crate) fn bulk(self) -> &'static [&'static str] {
        match self {
            // The cache, which has its full size from the start; then files of version 6.
            Dut::KnotResolver => {
                &["data.mdb", "lock.mdb", "ruledb/data.mdb", "ruledb/lock.mdb", "top", "defer"]
            }
            _ => &[],
        }
    }

    /// Whether it validates in checks, as its driver configures it; `None` where that is left to
    /// others.
    pub fn validates(self) -> Option<bool> {
        match self {
            Dut::Bind | Dut::Unbound | Dut::Powerdns | Dut::KnotResolver => Some(true),
            Dut::Coredns | Dut::Mtd64Ng | Dut::Dns64d => Some(false),
            Dut::Custom => None,
        }
    }

    /// The file in its folder that has the trust anchors of checks: its name, and what is in it.
    pub fn anchors(self, checked: &Checked) -> (&'static str, String) {
        match self {
            Dut::Powerdns => (powerdns::ANCHORS, powerdns::anchors(checked)),
            // Drivers have them in their configuration; an operator's may name the file.
            _ => ("anchors", checked.anchors.iter().map(|line| format!("{line}\n")).collect()),
        }
    }
}

impl Auth {
    /// As [`Dut::bulk`].
    pub(crate) fn bulk(self) -> &'static [&'static str] {
        if self.is_ours() { &[] } else { &[ZONE_FILE] }
    }
}

kinds! {
    /// Which server is the DUT.
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
        /// Our own.
        Dns64d => dns64d::DRIVER,
        /// Whatever the plan's commands start.
        Custom => custom::DRIVER,
    }
}

kinds! {
    /// Which server plays AuthDNS.
    #[derive(Default)]
    Auth for Serve {
        /// Our own, which counts what it is asked.
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
    /// Whether it is our own, which has all names without a zone file and counts what it is asked.
    pub fn is_ours(self) -> bool {
        self == Auth::Dns64bench
    }
}

/// Where a program is: as given, beside this program, on the path, or among the system's own.
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
