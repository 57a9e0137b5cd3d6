//! Drivers: how a server is configured, started and checked, and how its version is queried.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tester::measurer::expect::Prefix;
use units::Share;

use crate::servers::operator::{Operator, PLACEHOLDERS};
use crate::servers::release::Release;
use crate::servers::variant::Variant;

/// Name of the zone file with AuthDNS's names, in the folder of the server's configuration.
pub const ZONE_FILE: &str = "dns64perf.test.zone";
/// The zone with the names of `conform`.
pub const CHECKED_ZONE: &str = "conform.example";

/// Task of a DUT: synthesize AAAA records, with AuthDNS as the upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Translate {
    /// The AuthDNS servers to which all queries below `dns64perf.test` are forwarded, at least one.
    /// If there are several, the server chooses among them.
    pub upstreams: Vec<SocketAddr>,
    /// The DNS64 prefixes (RFC 6052 §2.1), at least one. Servers that support only one are
    /// configured with the first.
    pub prefixes: Vec<Prefix>,
    /// Configuration for conformance checks; `None`: rates are measured.
    pub checked: Option<Checked>,
}

impl Translate {
    /// Returns the text of `said` for each AuthDNS, concatenated.
    pub(crate) fn each_upstream(&self, said: impl Fn(IpAddr, u16) -> String) -> String {
        self.upstreams.iter().map(|at| said(at.ip(), at.port())).collect()
    }

    /// Returns the first prefix.
    ///
    /// # Panics
    /// If there is no journal.
    pub(crate) fn prefix(&self) -> Prefix {
        self.prefixes[0]
    }
}

/// Additional configuration of a DUT for the checks of `conform`. The DUT forwards all queries to
/// AuthDNS. If it can validate, it validates with these trust anchors only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// DNSKEY and DS records of the signed zones, as lines of a zone file. If empty, the DUT does
    /// not validate.
    pub anchors: Vec<String>,
    /// A range of IPv6 addresses that it excludes in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
}

impl Checked {
    /// Returns the configuration for a variant; the signed zones have these anchors.
    pub fn for_variant(variant: &Variant, anchors: &[String]) -> Checked {
        let validates = *variant != Variant::NoValidation;
        Checked {
            anchors: if validates { anchors.to_vec() } else { Vec::new() },
            excluded: variant.excluded(),
        }
    }

    /// True if it is configured to validate, if it can.
    pub(crate) fn validates(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Returns the anchors of a type, such as `DS`: owner and record data.
    pub(crate) fn of_type<'a>(
        &'a self,
        rtype: &'a str,
    ) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
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
pub(crate) enum ThreadOption {
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
    pub(crate) configuration: fn(&Setting<'_, T>) -> String,
    /// Returns the command that starts it; `program` is the first part.
    pub(crate) command: fn(&Setting<'_, T>, &[String]) -> Vec<String>,
    /// Returns the command that checks a configuration file, or `None` if there is no checker.
    pub(crate) check: Option<fn(&str) -> Vec<String>>,
    /// The place where its threads are configured.
    pub(crate) told: ThreadOption,
    /// Sign that it is ready.
    pub ready: Ready,
    /// True if it supports IPv6 for its queries or answers.
    pub supports_ipv6: bool,
    /// True if it supports AF_XDP.
    pub supports_xdp: bool,
    /// Drivers of later releases with another configuration format, each with its first release, in
    /// ascending order.
    pub(crate) later: &'static [(Release, Driver<T>)],
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

    /// Returns the name of its program, or `None` if the plan's commands name it.
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
    pub fn configures_threads(&self, operator: &Operator) -> bool {
        let asks = |text: &String| text.contains("{threads}") || text.contains("{cores}");
        match (self.told, &operator.custom, &operator.config) {
            (_, Some(custom), _) => custom.start.iter().any(asks),
            (ThreadOption::ByConfiguration, _, Some(own)) => asks(&own.text),
            _ => true,
        }
    }
}

/// Placeholders of a task.
pub trait Task {
    /// Returns the values of `{upstream}` and `{upstream-port}` (the first AuthDNS), `{prefix}` and
    /// `{zone}`, or `None` if they do not apply to the task.
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
    pub(crate) fn place(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    /// Returns the operator's lines, each with `indent` and a line end.
    pub(crate) fn extra(&self, indent: &str) -> String {
        self.operator.extra.iter().map(|line| format!("{indent}{line}\n")).collect()
    }
}

/// Converts words to owned text.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Appends arguments to a program.
pub(super) fn with(program: &[String], arguments: &[&str]) -> Vec<String> {
    [program, &words(arguments)].concat()
}

impl<T: Task> Setting<'_, T> {
    /// Replaces the placeholders in a text. Those without a value for the task remain.
    pub fn fill(&self, text: &str) -> String {
        let [upstream, upstream_port, prefix, zone] = self.task.values();
        let values = [
            Some(self.listen.ip().to_string()),
            Some(self.listen.port().to_string()),
            upstream,
            upstream_port,
            prefix,
            Some(self.cores.to_string()),
            Some(self.threads.to_string()),
            Some(self.place()),
            zone,
        ];
        let known = PLACEHOLDERS
            .iter()
            .zip(values)
            .filter_map(|(name, value)| Some((format!("{{{name}}}"), value?)));
        known.fold(text.to_owned(), |text, (name, value)| text.replace(&name, &value))
    }

    /// Replaces the placeholders in words.
    pub fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}
