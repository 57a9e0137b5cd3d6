//! Drivers, which describe how a server is configured, started and checked, and how its version is
//! queried.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tester::measurer::expect::Prefix;
use units::Share;

use crate::servers::operator::{Operator, PLACEHOLDERS};
use crate::servers::release::Release;
use crate::servers::variant::Variant;

/// Name of the zone file with the names of trials, in the AuthDNS server's folder.
pub const ZONE_FILE: &str = "dns64perf.test.zone";
/// Zone with the names of conformance checks.
pub const CHECKED_ZONE: &str = "conform.example";

/// Task of a DUT: synthesize AAAA records, with AuthDNS as the upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Translate {
    /// The AuthDNS servers, at least one, to which all queries for names below `dns64perf.test` are
    /// forwarded. With several servers, the DUT chooses a server for each query.
    pub upstreams: Vec<SocketAddr>,
    /// The DNS64 prefixes (RFC 6052 §2.1). There is at least one prefix. A server that supports
    /// only one prefix is configured with the first prefix.
    pub prefixes: Vec<Prefix>,
    /// Additional configuration for conformance checks, or `None` for rate measurements.
    pub checked: Option<Checked>,
}

impl Translate {
    /// Calls `said` for each AuthDNS server, and concatenates the returned texts.
    pub(crate) fn each_upstream(&self, said: impl Fn(IpAddr, u16) -> String) -> String {
        self.upstreams.iter().map(|at| said(at.ip(), at.port())).collect()
    }

    /// Returns the first prefix.
    ///
    /// # Panics
    /// If there are no prefixes.
    pub(crate) fn prefix(&self) -> Prefix {
        self.prefixes[0]
    }
}

/// Additional configuration of a DUT for conformance checks. The DUT forwards all queries to
/// AuthDNS. If the DUT supports validation, it validates only with the trust anchors in `anchors`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// DNSKEY and DS records of the signed zones, as lines of a zone file. If empty, the DUT does
    /// not validate.
    pub anchors: Vec<String>,
    /// A range of IPv6 addresses that the DUT excludes in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
}

impl Checked {
    /// Returns the configuration for a variant. `anchors` are the trust anchors of the signed
    /// zones.
    pub fn for_variant(variant: &Variant, anchors: &[String]) -> Checked {
        let validates = *variant != Variant::NoValidation;
        Checked {
            anchors: if validates { anchors.to_vec() } else { Vec::new() },
            excluded: variant.excluded(),
        }
    }

    /// True if there are trust anchors. In this case the DUT validates, if it supports validation.
    pub(crate) fn validates(&self) -> bool {
        !self.anchors.is_empty()
    }

    /// Returns the owner and the record data of each trust anchor of a type, such as `DS`.
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

/// Task of an AuthDNS server: serve the names of trials or of conformance checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// Path of the zone file, relative to the server's folder. dns64bench's AuthDNS needs no zone
    /// file.
    pub zone: PathBuf,
    /// Fraction of names with an AAAA record, from 0 to 1. The zone file has the same fraction.
    pub aaaa: Share,
    /// Status socket for the counters of dns64bench's AuthDNS; other servers do not count queries.
    pub status: Option<PathBuf>,
    /// File for the trust anchors. If present, dns64bench's AuthDNS serves the names of conformance
    /// checks, otherwise the names of trials.
    pub anchors: Option<PathBuf>,
}

/// Settings of a server: folder, listen address, threads and task. The task is a [`Translate`] or a
/// [`Serve`].
#[derive(Clone, Debug)]
pub struct Setting<'a, T> {
    /// Folder of the server's files on its host, including the configuration.
    pub folder: &'a Path,
    /// Listen address and port, UDP and TCP.
    pub listen: SocketAddr,
    /// Number of CPUs of the server. This number is used only for the placeholder `{cores}`.
    pub cores: usize,
    /// Configured number of answering threads or processes.
    pub threads: usize,
    /// Settings from the operator: configuration lines, a configuration file, or commands.
    pub operator: &'a Operator,
    /// Task of the server.
    pub task: T,
}

/// The program that a driver starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program with this name, found on the `PATH` or at the path given in the plan.
    Named(&'static str),
    /// The program at the path given in the plan. If the plan gives no path, dns64bench itself is
    /// started with the arguments `words`.
    Own {
        /// Name of the program.
        name: &'static str,
        /// Arguments with which dns64bench acts as this program.
        words: &'static [&'static str],
    },
    /// The first word of the plan's commands.
    OfThePlan,
}

/// Method to find the version of a server. The version is the first line of the output that
/// contains a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The program is run with this argument.
    Argument(&'static str),
    /// A script for `sh`, with the program as `$1`.
    Script(&'static str),
    /// The command `version` of the plan is run, if there is one.
    OfThePlan,
}

/// Location of the setting for a server's number of threads or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadOption {
    /// On the command line, even if the operator provides a configuration file.
    ByCommand,
    /// In the configuration file. The operator's configuration file must contain `{threads}` or
    /// `{cores}` to set the number.
    ByConfiguration,
}

/// Condition that shows that a server is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The server answers a query to its listen address.
    Answers,
    /// The server's status socket reports counters.
    Status,
}

/// Description of a server program for a task, [`Translate`] or [`Serve`].
pub struct Driver<T: 'static> {
    /// Name in reports.
    pub name: &'static str,
    /// Program that is started.
    pub program: Program,
    /// Method to find the version of the server.
    pub version: Version,
    /// Name of the configuration file in the server's folder. Empty if the server needs no
    /// configuration file.
    pub file: &'static str,
    /// Function that returns the text of the configuration file. The main section of the text
    /// contains the operator's lines ([`Setting::extra`]).
    pub(crate) configuration: fn(&Setting<'_, T>) -> String,
    /// Function that returns the command that starts the server. Its second argument is the
    /// program, which is the first part of the command.
    pub(crate) command: fn(&Setting<'_, T>, &[String]) -> Vec<String>,
    /// Function that returns the command that checks a configuration file, or `None` if there is no
    /// checker.
    pub(crate) check: Option<fn(&str) -> Vec<String>>,
    /// Location of the setting for the number of threads or processes.
    pub(crate) told: ThreadOption,
    /// Condition that shows that the server is ready.
    pub ready: Ready,
    /// True if the server supports IPv6, for the upstream queries of a DUT or for the answers of an
    /// AuthDNS server.
    pub supports_ipv6: bool,
    /// True if the server supports AF_XDP.
    pub supports_xdp: bool,
    /// Drivers of later releases with a different configuration format. The drivers are in
    /// ascending order of releases, each with the first release to which it applies.
    pub(crate) later: &'static [(Release, Driver<T>)],
}

impl<T> Driver<T> {
    /// Returns the driver for `release`: this driver, or the matching driver in the field `later`.
    pub fn for_release(&self, release: Release) -> &Driver<T> {
        let later = self.later.iter().rev().find(|(first, _)| release >= *first);
        later.map_or(self, |(_, driver)| driver)
    }

    /// True if releases of the server need different drivers.
    pub fn depends_on_release(&self) -> bool {
        !self.later.is_empty()
    }

    /// Returns the name of the server's program, or `None` if the program is part of the plan's
    /// commands.
    pub fn program_name(&self) -> Option<&'static str> {
        match self.program {
            Program::Named(name) | Program::Own { name, .. } => Some(name),
            Program::OfThePlan => None,
        }
    }

    /// Returns the text of the server's configuration file. If the operator provides a
    /// configuration file, returns its text with all placeholders replaced.
    pub fn configuration(&self, setting: &Setting<'_, T>) -> String
    where
        T: Task,
    {
        match &setting.operator.config {
            Some(own) => setting.fill(&own.text),
            None => (self.configuration)(setting),
        }
    }

    /// Returns the command that starts the server. `program` is empty if the commands come from the
    /// plan, because such commands contain the program.
    pub fn command(&self, setting: &Setting<'_, T>, program: &[String]) -> Vec<String> {
        (self.command)(setting, program)
    }

    /// Returns the command that checks the configuration file `file`, or `None` if the server has
    /// no checker.
    pub fn checker(&self, file: &str) -> Option<Vec<String>> {
        self.check.map(|check| check(file))
    }

    /// Returns the command that prints the version of the server. The command is empty if the
    /// version command comes from the plan but the plan contains no such command.
    pub fn version_command(&self, operator: &Operator, program: &[String]) -> Vec<String> {
        match self.version {
            Version::Argument(argument) => with(program, &[argument]),
            Version::Script(script) => [&words(&["sh", "-c", script, "sh"]), program].concat(),
            Version::OfThePlan => {
                operator.custom.as_ref().map(|custom| custom.version.clone()).unwrap_or_default()
            }
        }
    }

    /// True if the start command or the configuration file contains the number of threads or
    /// processes.
    pub fn configures_threads(&self, operator: &Operator) -> bool {
        let asks = |text: &String| text.contains("{threads}") || text.contains("{cores}");
        match (self.told, &operator.custom, &operator.config) {
            (_, Some(custom), _) => custom.start.iter().any(asks),
            (ThreadOption::ByConfiguration, _, Some(own)) => asks(&own.text),
            _ => true,
        }
    }
}

/// Values that a task provides for placeholders.
pub trait Task {
    /// Returns the values of `{upstream}` and `{upstream-port}` (of the first AuthDNS server),
    /// `{prefix}` and `{zone}`. A value is `None` if the placeholder does not apply to the task.
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

    /// Returns the operator's lines, each indented by `indent` and ended by a newline.
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
    /// Replaces the placeholders in a text. Placeholders that have no value for the task are kept.
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

    /// Replaces the placeholders in each word of a command.
    pub fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}
