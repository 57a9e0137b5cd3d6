//! Drivers, which describe how a server is configured, started and checked, and how its version is
//! queried.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use tester::measurer::expect::Prefix;
use units::Share;

use crate::servers::operator::{Operator, PLACEHOLDERS};
use crate::servers::release::Release;
use crate::servers::variant::Variant;

/// Name of the zone file in the AuthDNS server's folder. The zone contains the names that trials query.
pub const ZONE_FILE: &str = "dns64perf.test.zone";
/// Name of the zone that contains the names for conformance checks.
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
    /// Panics if there are no prefixes.
    pub(crate) fn prefix(&self) -> Prefix {
        self.prefixes[0]
    }
}

/// Name of the file with the trust anchors for conformance checks, in the folder of the DUT.
pub(crate) const ANCHORS: &str = "anchors";

/// Additional configuration of a DUT for conformance checks. The DUT forwards all queries to
/// AuthDNS. If the DUT supports validation, it validates only with the trust anchors in `anchors`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// DNSKEY and DS records of the signed zones, as lines of a zone file. If there are none, the DUT does not
    /// validate.
    pub anchors: Vec<String>,
    /// Range of IPv6 addresses. The DUT ignores AAAA records in this range, in addition to ::ffff:0:0/96 (RFC 6147
    /// §5.1.4).
    pub excluded: Option<&'static str>,
}

impl Checked {
    /// Returns the additional settings of a DUT for the conformance checks that need the configuration `variant`.
    /// `anchors` contains the trust anchors of the signed zones.
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

    /// Returns all trust anchors that have the record type `rtype`, such as `DS`. Each trust anchor consists of its
    /// owner name and the words of its record data.
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
    /// Path of the status socket, which reports the counters of dns64bench's AuthDNS. Other servers do not count
    /// queries.
    pub status: Option<PathBuf>,
    /// File into which dns64bench's AuthDNS writes its trust anchors. If the file is given, AuthDNS serves the names of
    /// conformance checks. Otherwise it serves the names of trials.
    pub anchors: Option<PathBuf>,
}

/// Settings of a server: folder, listen address, threads and task. The task is a [`Translate`] or a
/// [`Serve`].
#[derive(Clone, Debug)]
pub struct Setting<'a, T> {
    /// Folder of the server's files on its host, including the configuration.
    pub folder: &'a Path,
    /// Listen address and port, for both UDP and TCP.
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
        /// Arguments that make dns64bench act as this program.
        words: &'static [&'static str],
    },
    /// The program is the first word of the plan's commands.
    OfThePlan,
}

/// Method to find the version of a server. The version is the first line of the output that
/// contains a digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version is printed if the program is run with this argument.
    Argument(&'static str),
    /// The version is printed by this script, which `sh` runs. The script's first argument (`$1`) is the program.
    Script(&'static str),
    /// The version is printed by the command `version` of the plan, if the plan contains this command.
    OfThePlan,
}

/// Method to set a server's number of threads or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadOption {
    /// The number of threads or processes is set on the command line, even if the operator provides a configuration
    /// file.
    ByCommand,
    /// The number of threads or processes is set in the configuration file. If the operator provides this file, it must
    /// contain `{threads}` or `{cores}` to set the number.
    ByConfiguration,
}

/// Condition under which a server counts as ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The server is ready when it answers a query that is sent to its listen address.
    Answers,
    /// The server is ready when its status socket returns counters.
    Status,
}

/// Description of a server program in one role. The parameter `T` is the task of this role, [`Translate`] or [`Serve`].
pub struct Driver<T: 'static> {
    /// Name of the server in reports.
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
    /// Function that returns the command that starts the server. The second argument of the function contains the first
    /// words of this command: the program, and its fixed arguments if it has any.
    pub(crate) command: fn(&Setting<'_, T>, &[String]) -> Vec<String>,
    /// Function that returns the command for checking a configuration file; `None` if the server has no such command.
    pub(crate) check: Option<fn(&str) -> Vec<String>>,
    /// Method to set the number of threads or processes.
    pub(crate) thread_option: ThreadOption,
    /// Condition under which the server counts as ready.
    pub ready: Ready,
    /// True if the server supports IPv6, for the upstream queries of a DUT or for the answers of an
    /// AuthDNS server.
    pub supports_ipv6: bool,
    /// True if the server supports AF_XDP.
    pub supports_xdp: bool,
    /// Drivers for later releases that have a different configuration format. They are in ascending order of releases,
    /// each with the first release to which it applies.
    pub(crate) later: &'static [(Release, Driver<T>)],
}

impl<T> Driver<T> {
    /// Returns the driver for the server version `release`. If several drivers in `later` apply to this version, the
    /// last of them is returned. If none applies, this driver is returned.
    pub fn for_release(&self, release: Release) -> &Driver<T> {
        let later = self.later.iter().rev().find(|(first, _)| release >= *first);
        later.map_or(self, |(_, driver)| driver)
    }

    /// True if some versions of the server need a different driver than others.
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

    /// Returns the command that checks the configuration file `file`, or `None` if the server has no such command.
    pub fn checker(&self, file: &str) -> Option<Vec<String>> {
        self.check.map(|check| check(file))
    }

    /// Returns the command that prints the version of the server. If the plan's commands control the server, this
    /// command is part of the plan. The result is empty if the plan does not contain it.
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
        match (self.thread_option, &operator.custom, &operator.config) {
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

    /// Returns the operator's configuration lines, each indented by `indent` and ended by a newline.
    pub(crate) fn extra(&self, indent: &str) -> String {
        self.operator.extra.iter().map(|line| format!("{indent}{line}\n")).collect()
    }
}

/// Converts a list of string slices to a list of owned strings.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Returns the words of `program`, followed by the arguments.
pub(super) fn with(program: &[String], arguments: &[&str]) -> Vec<String> {
    [program, &words(arguments)].concat()
}

impl<T: Task> Setting<'_, T> {
    /// Replaces the placeholders in a text. Placeholders that have no value for the task stay in the text.
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
