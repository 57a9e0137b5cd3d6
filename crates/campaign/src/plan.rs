//! Campaign plan (TOML): servers, measurements, durations and repetitions.

pub(crate) mod duts;
mod family;
mod goal;
mod keys;
pub mod plan_diff;
mod point;
pub mod quantity;
mod search_plan;
pub mod servers;
mod testers;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hosts::host::SshHost;
use hosts::servers::{
    Auth, Custom, Dut, Operator, OperatorFile, unknown_placeholder, unknown_placeholder_error,
};
use method::compliance::DEFAULT_AUTH_LIMIT;
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use serde::{Deserialize, Serialize};
use tester::measurer::burst::Burst;
use tester::measurer::expect::Prefix;
use tester::measurer::names::working_set;
use tester::measurer::plan::sources::SourceAddresses;
use units::{Qps, Share, counted};
use wire::name::NameRange;

use crate::plan::keys::{DutKeys, SearchSettings, SelfTest};

pub use family::Family;
pub use goal::TypedGoal;
pub(crate) use goal::distance;
pub(crate) use keys::{ClosedLoops, ConstantRates, FurtherSelfTest, Loads, WIDTH};
pub use keys::{FIXED, Keys, SearchMethod};
pub use point::{AtPlace, AtRate, AtShare, Conditions, Cores, Point, SelfTestTarget, WithThreads};
pub use search_plan::{Method, PassedSelfTest, SearchPlan, SelfTestSending};

/// Names and texts of the plans that are built into dns64bench.
pub const READY: [(&str, &str); 4] = [
    ("smoke", include_str!("../plans/smoke.toml")),
    ("compulsory", include_str!("../plans/compulsory.toml")),
    ("paper", include_str!("../plans/paper.toml")),
    ("paper-small", include_str!("../plans/paper-small.toml")),
];

/// A campaign plan: the DUTs, the measurements, and the hosts and settings that they use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Name of the campaign in the report.
    pub name: String,
    /// Hosts or namespaces on which tester, DUT and AuthDNS run.
    #[serde(default)]
    pub topology: Topology,
    /// Hosts used by topology `ssh`.
    #[serde(default)]
    pub ssh: Option<Ssh>,
    /// The server that acts as AuthDNS.
    #[serde(default)]
    pub auth: AuthPlan,
    /// Further servers that can act as AuthDNS. `[measure] authdns` selects the servers to use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authdns: Vec<AuthPlan>,
    /// CPUs on which Measurer, AuthDNS and DUT run.
    #[serde(default)]
    pub cpus: Cpus,
    /// Settings for all trials.
    #[serde(default)]
    pub trial: Trial,
    /// Settings for the search for the highest rate.
    #[serde(default)]
    pub search: SearchSettings,
    /// The self-test. Without a self-test, every result is at best a lower bound.
    #[serde(default)]
    pub self_test: Option<SelfTest>,
    /// Measurements to run on each DUT.
    #[serde(default)]
    pub measure: Keys,
    /// The DUTs, in the order in which they are measured.
    #[serde(rename = "dut")]
    pub duts: Vec<DutPlan>,
}

/// Hosts or namespaces on which tester, DUT and AuthDNS run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Three network namespaces on this machine: one each for tester, DUT and AuthDNS.
    #[default]
    Lab,
    /// Tester, DUT and AuthDNS on the loopback interface, on free ports.
    Loopback,
    /// Several hosts, reached over ssh.
    Ssh,
}

/// Format of the per-query records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Records {
    /// The format of dns64perf++.
    Csv,
    /// Parquet files with typed columns.
    Parquet,
}

impl Records {
    /// Returns the file name extension of this format.
    pub fn extension(self) -> &'static str {
        match self {
            Records::Csv => "csv",
            Records::Parquet => "parquet",
        }
    }
}

/// Hosts used by topology `ssh`. A tester, DUT or AuthDNS for which no host is given runs on this
/// machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ssh {
    /// Configuration file for ssh; default: the user's own file.
    #[serde(default)]
    pub config: Option<PathBuf>,
    /// Host of the Measurer.
    #[serde(default)]
    pub tester: Option<SshHost>,
    /// Several hosts for the Measurer, instead of the single host `tester`. Each trial is
    /// distributed among these hosts. Closed loops and conformance checks run on the first host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub testers: Vec<SshHost>,
    /// Host of the DUT.
    #[serde(default)]
    pub dut: Option<SshHost>,
    /// Host of AuthDNS.
    #[serde(default)]
    pub auth: Option<SshHost>,
    /// Several hosts for AuthDNS, instead of the single host `auth`. Each DUT is configured with
    /// the addresses of all these hosts. In a self-test, each search queries a single host, and
    /// successive searches query different hosts in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub auths: Vec<SshHost>,
    /// Addresses of the servers.
    pub addresses: Addresses,
}

impl Ssh {
    /// Returns the hosts of the Measurer in plan order; `None` stands for this machine.
    pub(crate) fn tester_hosts(&self) -> Vec<Option<&SshHost>> {
        match &self.testers[..] {
            [] => vec![self.tester.as_ref()],
            several => several.iter().map(Some).collect(),
        }
    }

    /// Returns the hosts of AuthDNS in plan order; `None` stands for this machine.
    pub(crate) fn auth_hosts(&self) -> Vec<Option<&SshHost>> {
        match &self.auths[..] {
            [] => vec![self.auth.as_ref()],
            several => several.iter().map(Some).collect(),
        }
    }

    /// Returns the addresses at which the DUT queries each AuthDNS host, in plan order.
    pub(crate) fn auth_addresses(&self) -> &[SocketAddr] {
        self.addresses.auth.as_slice()
    }

    /// Returns the addresses at which the Measurer queries each AuthDNS host in self-tests, in plan order.
    pub(crate) fn self_test_addresses(&self) -> &[SocketAddr] {
        self.addresses.self_test.as_ref().unwrap_or(&self.addresses.auth).as_slice()
    }
}

/// Listen addresses of the servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Addresses {
    /// Address at which the Measurer queries the DUT.
    pub dut: SocketAddr,
    /// Address at which the DUT queries AuthDNS: a single address, or one address for each host in
    /// `auths`.
    pub auth: OneOrSeveral,
    /// Address at which the Measurer queries AuthDNS in self-tests; default: the address in `auth`.
    #[serde(default)]
    pub self_test: Option<OneOrSeveral>,
}

/// An address, or a list of addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "an address and a port, as in \"[2001:2::1]:53\", or a list of such")]
pub enum OneOrSeveral {
    /// The address of a single host.
    One(SocketAddr),
    /// The addresses of several hosts, in the order in which the plan lists the hosts.
    Several(Vec<SocketAddr>),
}

impl OneOrSeveral {
    /// Returns the addresses as a slice.
    pub(crate) fn as_slice(&self) -> &[SocketAddr] {
        match self {
            OneOrSeveral::One(address) => std::slice::from_ref(address),
            OneOrSeveral::Several(addresses) => addresses,
        }
    }
}

/// A server that acts as AuthDNS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuthPlan {
    /// The server program that acts as AuthDNS.
    pub driver: Auth,
    /// Name of the server in the report and in the list `authdns` of `[measure]`. The default is
    /// the name of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of CPUs in `[cpus] auth` that the server may use; default: all of these CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// Path of the program. By default, the program is looked up by its name in the `PATH`.
    pub program: Option<PathBuf>,
    /// Number of threads or processes that answer queries; default: the number of CPUs of the
    /// server.
    pub threads: Option<usize>,
    /// Lines to add to the main section of the server's configuration.
    pub extra: Vec<String>,
    /// Configuration file written by the operator, used instead of the generated file. Its
    /// placeholders are `{listen}`, `{port}`, `{threads}`, `{folder}` and `{zone}`.
    pub config: Option<OperatorFile>,
    /// AF_XDP (kernel bypass) for AuthDNS, on the interface with the server's address; default:
    /// sockets. Supported by dns64bench's AuthDNS only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp: Option<net::xdp::Mode>,
    /// Range of names in the zone file, for servers that need a zone file. If too few unused names
    /// are left for the next trial of a search, the DUT and AuthDNS are restarted.
    pub names: NameRange,
}

impl Default for AuthPlan {
    fn default() -> AuthPlan {
        AuthPlan {
            driver: Auth::default(),
            name: None,
            cores: None,
            program: None,
            threads: None,
            extra: Vec::new(),
            config: None,
            xdp: None,
            names: "10.0.0.0/13".parse().expect("a constant"),
        }
    }
}

/// CPUs on which Measurer, AuthDNS and DUT run. An empty list means any CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cpus {
    /// CPUs of the Measurer, as numbered by the kernel.
    pub tester: Vec<usize>,
    /// CPUs of AuthDNS, as numbered by the kernel.
    pub auth: Vec<usize>,
    /// CPUs of the DUT, as numbered by the kernel. A measurement with N cores uses the first N CPUs
    /// of this list.
    pub dut: Vec<usize>,
}

/// Settings for all trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Trial {
    /// Time for which a trial sends queries; RFC 8219 §9.2 requires at least 60 s.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub duration: Duration,
    /// Timeout for a reply; RFC 8219 §9.2 allows at most 1 s. The default is 1 s, or a twentieth of
    /// `duration` if `duration` is below 20 s.
    #[serde(with = "crate::plan::quantity::plan_time", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<crate::plan::quantity::Time>")]
    pub timeout: Option<Duration>,
    /// Pause between two trials, such as `"10s"`.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub pause: Duration,
    /// DNS64 prefix that the DUTs are configured with. Synthesized addresses must have this prefix.
    pub prefix: Prefix,
    /// Number of thread pairs in the Measurer. Each pair consists of a sending and a receiving
    /// thread.
    pub threads: u16,
    /// Number of UDP source ports that the Measurer sends from.
    pub source_ports: u16,
    /// Source addresses of the Measurer: one prefix, such as `"2001:2:0:ff::/64"`, for each IP
    /// version that the Measurer uses. Default: the address that the kernel chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source_addresses: Vec<SourceAddresses>,
    /// AF_XDP (kernel bypass) for the Measurer, on the interface that leads to the queried server;
    /// default: sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp: Option<net::xdp::Mode>,
    /// Maximum time by which a query may be sent early or late, so that it can be sent in one batch with other queries.
    /// `auto` chooses this time so that sending uses at most a third of a CPU that the Measurer shares with other
    /// programs.
    pub max_burst: Burst,
    /// Pacing tolerance in per cent. A trial is invalid if the number of queries in any 100 ms
    /// window deviates from the schedule by more than this tolerance.
    pub window_limit: f64,
    /// Limit for the lateness of queries. A trial is invalid if more than one query in a thousand
    /// is late by more than this limit.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub lateness_limit: Duration,
    /// Limit for AuthDNS's response time. A trial is invalid if AuthDNS exceeds this limit for more
    /// than one query in a thousand.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub auth_limit: Duration,
    /// Format of the record files. Each trial has one file, which records every query. Default: no
    /// record files.
    pub records: Option<Records>,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial {
            duration: Duration::from_secs(60),
            timeout: None,
            pause: Duration::from_secs(10),
            prefix: "64:ff9b::/96".parse().expect("a constant"),
            threads: 1,
            source_ports: tester::measurer::plan::DEFAULT_SOURCE_PORTS,
            source_addresses: Vec::new(),
            xdp: None,
            max_burst: Burst::Auto,
            window_limit: PacingLimits::default().window_100ms_pct,
            lateness_limit: Duration::from_nanos(PacingLimits::default().lateness_p999.0),
            auth_limit: DEFAULT_AUTH_LIMIT.into(),
            records: None,
        }
    }
}

impl Trial {
    /// Queries for cached names repeat the names of a small set. Returns the size of this set in a
    /// trial at the rate `rate`. The size is 0 if the share `cached` is 0.
    pub fn working_set(&self, cached: Share, rate: Qps) -> u64 {
        working_set(cached, rate, self.timeout(self.duration).into())
    }

    /// Returns the timeout of trials that send queries for the time `duration`: the configured
    /// timeout, or the default.
    pub fn timeout(&self, duration: Duration) -> Duration {
        self.timeout.unwrap_or_else(|| default_timeout(duration.into()).into())
    }

    /// Returns the source addresses from which the Measurer queries `server`, or `None` if the
    /// kernel chooses the address.
    pub(crate) fn sources_for(&self, server: SocketAddr) -> Option<SourceAddresses> {
        self.source_addresses.iter().copied().find(|sources| sources.check(server).is_ok())
    }

    /// Returns the limits for the deviation of queries from the schedule.
    pub(crate) fn pacing_limits(&self) -> PacingLimits {
        let lateness_p999 = self.lateness_limit.into();
        PacingLimits {
            window_100ms_pct: self.window_limit,
            lateness_p999,
            ..PacingLimits::default()
        }
    }
}

/// Settings of a DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DutPlan {
    /// Driver that configures and starts this kind of server.
    pub driver: Dut,
    /// Name of the DUT in the report; default: the driver's name.
    #[serde(default)]
    pub name: Option<String>,
    /// Path of the program. By default, the program is looked up by its name in the `PATH`.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Highest rate of a search for this DUT. The default is the key `max` in `[search]`.
    #[serde(default)]
    pub max: Option<Qps>,
    /// A search ends when the distance between the highest passed and the lowest failed rate is at
    /// most this value, in queries per second. The default is the key `resolution` in `[search]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Qps>,
    /// Number of threads or processes that answer queries. The default is the core count at which
    /// the DUT is measured.
    #[serde(default)]
    pub threads: Option<usize>,
    /// IP version over which the DUT queries AuthDNS. Default: the IP version of AuthDNS's address
    /// in the topology, or IPv4 if AuthDNS has addresses of both versions.
    #[serde(default)]
    pub family: Option<Family>,
    /// Lines to add to the main section of the server's configuration.
    #[serde(default)]
    pub extra: Vec<String>,
    /// Configuration file written by the operator, used instead of the generated file. It may
    /// contain `{listen}` and other placeholders.
    #[serde(default)]
    pub config: Option<OperatorFile>,
    /// AF_XDP (kernel bypass) for client queries and upstream queries of the DUT; default: sockets.
    /// AF_XDP is used on the interface with the DUT's address and on the interface that leads to
    /// AuthDNS. Supported by dns64d only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xdp: Option<net::xdp::Mode>,
    /// Core counts to measure. The default is the key `cores` in `[measure]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Vec<usize>>,
    /// Names of the placements to measure, from `[[measure.placements]]`; default: all placements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placements: Option<Vec<String>>,
    /// Measurements of this DUT. A key in this table replaces the key of the same name in
    /// `[measure]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<DutKeys>,
    /// Commands for the driver `custom`.
    #[serde(default)]
    pub custom: Option<Custom>,
}

impl DutPlan {
    /// Returns the name of the server in the report.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.driver.name())
    }

    /// Returns the settings that the operator chose for this server.
    pub fn operator(&self) -> Operator {
        Operator {
            extra: self.extra.clone(),
            config: self.config.clone(),
            custom: self.custom.clone(),
            xdp: self.xdp,
        }
    }
}

impl AuthPlan {
    /// Returns the name of the server in the report.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.driver.name())
    }

    /// Returns the name of this server in the journal. The name differs from that of every DUT.
    pub fn role(&self) -> String {
        let (role, name) = (Auth::Dns64bench.name(), self.name());
        if name == role { role.into() } else { format!("{role} {name}") }
    }

    /// Returns the settings that the operator chose for this server.
    pub(crate) fn operator(&self) -> Operator {
        let (extra, config) = (self.extra.clone(), self.config.clone());
        Operator { extra, config, custom: None, xdp: self.xdp }
    }
}

/// Error from reading or checking a plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The plan cannot be read.
    #[error(
        "not a ready plan (smoke, compulsory, paper, paper-small), and cannot read the file {path}: {source}"
    )]
    Read {
        /// Path of the plan.
        path: PathBuf,
        /// Error returned by the system.
        source: std::io::Error,
    },
    /// The text is not valid TOML, or is not a plan.
    #[error("{path}: {why}")]
    Syntax {
        /// Path of the plan.
        path: PathBuf,
        /// Line, column and description of the error.
        why: String,
    },
    /// A key or a value is not valid in a plan.
    #[error("{path}:{line}: {reason}")]
    Value {
        /// Path of the plan.
        path: PathBuf,
        /// Line number of the error. The first line has number 1.
        line: usize,
        /// Description of the error, and the correct form of the value.
        reason: String,
    },
    /// The keys are valid, but contradict each other.
    #[error("{path}: {why}")]
    Content {
        /// Path of the plan.
        path: PathBuf,
        /// The error, and how to correct it.
        why: String,
    },
}

impl Plan {
    pub(crate) fn check_hosts(&self) -> Result<(), String> {
        let Some(ssh) = &self.ssh else {
            return match self.topology {
                Topology::Ssh => {
                    Err("topology ssh needs [ssh] with its hosts and [ssh.addresses]".into())
                }
                _ => Ok(()),
            };
        };
        if self.topology != Topology::Ssh {
            return Err("[ssh] is for topology = \"ssh\" only".into());
        }
        let groups = [
            ("tester", ssh.tester.is_some(), "testers", &ssh.testers),
            ("auth", ssh.auth.is_some(), "auths", &ssh.auths),
        ];
        for (one, has_one, several, hosts) in groups {
            if has_one && !hosts.is_empty() {
                return Err(format!(
                    "[ssh] has {one} and {several}; a single host is `{one}`, more of them are `{several}`"
                ));
            }
            if let Some(twice) = repeated(hosts) {
                return Err(format!("[ssh] {several}: {} is listed twice", twice.host));
            }
        }
        check_addresses(ssh)?;
        let testers = ssh.testers.iter().map(|host| ("testers", host));
        let auths = ssh.auths.iter().map(|host| ("auths", host));
        let single = [("tester", &ssh.tester), ("auth", &ssh.auth)];
        let single = single.into_iter().filter_map(|(name, host)| Some((name, host.as_ref()?)));
        for (name, host) in single.chain(testers).chain(auths) {
            if !host.agent {
                return Err(format!("[ssh] {name}: agent = false is for the DUT's host only"));
            }
        }
        let driven = self.duts.iter().find(|dut| dut.driver != Dut::Custom);
        match (&ssh.dut, driven) {
            (Some(host), Some(dut)) if !host.agent => Err(format!(
                "[[dut]] {}: a host without dns64bench (agent = false) supports driver = \"custom\" only",
                dut.name()
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the first element of a list that also occurs earlier in the list.
fn repeated<T: PartialEq>(all: &[T]) -> Option<&T> {
    all.iter().enumerate().find_map(|(n, one)| all[..n].contains(one).then_some(one))
}

/// Checks the two lists of addresses at which the DUT and the Measurer query AuthDNS. A list must contain a separate
/// address for each AuthDNS host, and all its addresses must have the same IP version.
fn check_addresses(ssh: &Ssh) -> Result<(), String> {
    let hosts = ssh.auth_hosts().len();
    for (key, all) in [("auth", ssh.auth_addresses()), ("self-test", ssh.self_test_addresses())] {
        if all.len() != hosts {
            return Err(format!(
                "[ssh.addresses] {key} has {}, and [ssh] {} for AuthDNS; give one for each",
                counted(all.len() as u64, "address", "addresses"),
                counted(hosts as u64, "host", "hosts"),
            ));
        }
        if let Some(twice) = repeated(all) {
            return Err(format!("[ssh.addresses] {key}: {twice} is listed twice"));
        }
        if let Some(other) = all.iter().find(|at| at.is_ipv6() != all[0].is_ipv6()) {
            return Err(format!(
                "[ssh.addresses] {key}: {} and {other} have different IP versions",
                all[0]
            ));
        }
    }
    Ok(())
}

/// Checks the name of a DUT and the placeholders of its commands.
pub(crate) fn check_dut(dut: &DutPlan) -> Result<(), String> {
    let name = dut.name();
    if name.trim().is_empty() || name.contains(['/', '\\']) || name.chars().any(char::is_control) {
        return Err(format!(
            "[[dut]] name = {name:?}: a name must not contain path separators or control characters"
        ));
    }
    let reason = match (dut.driver, &dut.custom) {
        (Dut::Custom, None) => Some("driver custom needs [dut.custom]"),
        (Dut::Custom, Some(_)) if dut.program.is_some() => {
            Some("driver custom takes its program from [dut.custom] start")
        }
        (Dut::Custom, Some(_)) | (_, None) => None,
        (_, Some(_)) => Some("[dut.custom] is for driver custom only"),
    };
    if let Some(reason) = reason {
        return Err(format!("[[dut]] {name}: {reason}"));
    }
    let Some(custom) = &dut.custom else { return Ok(()) };
    let commands = [
        ("start", &custom.start),
        ("ready", &custom.ready),
        ("stop", &custom.stop),
        ("cpu-pids", &custom.cpu_pids),
    ];
    for (key, words) in commands {
        if let Some(unknown) = words.iter().find_map(|word| unknown_placeholder(word)) {
            return Err(format!(
                "[[dut]] {name}: [dut.custom] {key} has {}",
                unknown_placeholder_error(unknown)
            ));
        }
    }
    if custom.start.is_empty() {
        return Err(format!("[[dut]] {name}: [dut.custom] needs start"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::plan::keys::SearchMethod;

    use super::*;

    #[test]
    fn the_method_of_rfc_8219_has_two_names() {
        for name in ["bisection", "rfc8219"] {
            let text =
                format!("name = 'x'\n[search]\nmethod = '{name}'\n[[dut]]\ndriver = 'unbound'\n");
            let plan = Plan::parse(&text, Path::new("p.toml")).unwrap();
            assert_eq!(plan.search.method, SearchMethod::Bisection, "{name}");
            assert!(toml::to_string(&plan.search).unwrap().contains("method = \"bisection\""));
        }
    }

    #[test]
    fn ready_plans_are_plans() {
        for (name, _) in READY {
            Plan::load(Path::new(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let compulsory = Plan::load(Path::new("compulsory")).unwrap();
        assert_eq!((compulsory.trial.clone(), compulsory.search.repeat), (Trial::default(), 20));
    }

    #[test]
    fn rates_and_times_are_written_as_on_the_command_line() {
        let plan = |search: &str, trial: &str| {
            let text = format!(
                "name = 'x'\n[search]\n{search}\n[trial]\n{trial}\n[[dut]]\ndriver = 'unbound'\nmax = '1.5M'\n"
            );
            Plan::parse(&text, Path::new("p.toml"))
        };
        for (min, max, duration) in [
            ("1000", "12_000", "'60s'"),
            ("'1k'", "'12k'", "60"),
            ("'1_000'", "'12000'", "60.0"),
            ("1000", "12000", "'60'"),
        ] {
            let found = plan(
                &format!("min = {min}\nmax = {max}\nprobe = 0.5"),
                &format!("duration = {duration}"),
            )
            .unwrap();
            assert_eq!(
                (found.search.min, found.search.max),
                (Qps(1_000), Qps(12_000)),
                "{min} {max}"
            );
            assert_eq!(found.trial.duration, Duration::from_secs(60), "{duration}");
            assert_eq!(found.search.probe, Some(Duration::from_millis(500)));
            assert_eq!(found.duts[0].max, Some(Qps(1_500_000)));
            let again: Plan = toml::from_str(&toml::to_string(&found).unwrap()).unwrap();
            assert_eq!(again, found);
            let again: Plan =
                serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
            assert_eq!(again, found);
        }
        for (search, trial, words) in [
            ("max = '12x'", "", "such as 20000 or 20k"),
            ("max = -1", "", "a rate in queries per second; write for example 12000"),
            ("max = 1.5", "", "a rate in queries per second; write for example 12000"),
            ("", "duration = 'long'", "write for example 10s"),
            ("", "duration = -1", "write for example 10s"),
            ("", "duration = true", "a time; write for example"),
        ] {
            let error = plan(search, trial).unwrap_err().to_string();
            assert!(
                error.starts_with("p.toml") && error.contains(words),
                "{search} {trial}: {error}"
            );
        }
    }

    #[test]
    fn wrong_values_have_their_line_and_correct_form() {
        for (text, message) in [
            (
                "name = 'x'\n[dut]\ndriver = 'unbound'\n",
                "p.toml:2: write [[dut]]: there can be several",
            ),
            (
                "name = 'x'\n[[dut]]\ndriver = 'unbound'\nextra = 'x'\n",
                "p.toml:4: \"extra\" takes a list; write extra = [ … ]",
            ),
            (
                "name = 'x'\n[trial]\nthreads = 'two'\n[[dut]]\ndriver = 'unbound'\n",
                "p.toml:3: \"threads\" takes a number from 0 to 65535",
            ),
            (
                "name = 'x'\n[trial]\ntopology = 'lab'\n[[dut]]\ndriver = 'unbound'\n",
                "p.toml:3: [trial] has no key \"topology\"; keys of the top level stand before the first [table]",
            ),
            ("[[dut]]\ndriver = 'unbound'\n", "p.toml:1: the top level needs the key \"name\""),
            ("name = 'x'\n[[dut]]\ndriver = 'unbind'\n", "p.toml:3: \"driver\" takes "),
        ] {
            let error = Plan::parse(text, Path::new("p.toml")).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let bad = |text: &str, hint: &str| {
            let error = Plan::parse(text, Path::new("p.toml")).unwrap_err().to_string();
            assert!(error.contains("p.toml") && error.contains(hint), "{error}");
        };
        bad("name = 'x'\n", "dut");
        bad("name = 'x'\ndut = []\n", "[[dut]]");
        bad("name = 'x'\nspeed = 1\n[[dut]]\ndriver = 'unbound'\n", "speed");
        bad("name = 'x'\n[[dut]]\ndriver = 'powerdms'\n", "powerdms");
        bad("name = 'x'\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'unbound'\n", "two DUTs");
        bad("name = 'x'\n[[dut]]\ndriver = 'custom'\n", "[dut.custom]");
        bad("name = 'x'\n[[dut]]\ndriver = 'unbound'\nresolution = 0\n", "Unbound: resolution");
        for (keys, hint) in [
            ("min = 9\nmax = 3", "min: 9 is above max, which is 3"),
            ("resolution = 0", "resolution must be at least 1"),
            ("repeat = 0", "repeat must be at least 1"),
        ] {
            for table in ["search", "self-test"] {
                let text = format!("name = 'x'\n[{table}]\n{keys}\n[[dut]]\ndriver = 'unbound'\n");
                bad(&text, &format!("[{table}] {hint}"));
            }
        }
        bad("name = 'x'\n[measure]\nacceptance = [1.5]\n[[dut]]\ndriver = 'unbound'\n", "1.5");
        bad("name = 'x'\n[measure]\naaaa-shares = [0.123]\n[[dut]]\ndriver = 'unbound'\n", "0.123");
        bad("name = 'x'\ntopology = 'ssh'\n[[dut]]\ndriver = 'unbound'\n", "[ssh]");
        let ssh = "[ssh]\ndut = { host = 'a', agent = false }\naddresses = { dut = '[::1]:53', auth = '127.0.0.1:53' }\n";
        bad(&format!("name = 'x'\n{ssh}[[dut]]\ndriver = 'unbound'\n"), "topology");
        let testers = |keys: &str| {
            let addresses = "addresses = { dut = '[::1]:53', auth = '127.0.0.1:53' }\n";
            format!(
                "name = 'x'\ntopology = 'ssh'\n[ssh]\n{keys}\n{addresses}[[dut]]\ndriver = 'unbound'\n"
            )
        };
        bad(&testers("tester = { host = 'a' }\ntesters = [{ host = 'b' }]"), "tester and testers");
        bad(&testers("testers = [{ host = 'a' }, { host = 'a' }]"), "a is listed twice");
        bad(&testers("testers = [{ host = 'a', agent = false }]"), "testers: agent");
        let records =
            testers("testers = [{ host = 'a' }, { host = 'b' }]") + "[trial]\nrecords = 'csv'\n";
        bad(&records, "records");
        let auths = |keys: &str, addresses: &str| {
            format!(
                "name = 'x'\ntopology = 'ssh'\n[self-test]\nrepeat = 2\n[ssh]\n{keys}\n\
                 addresses = {{ dut = '[::1]:53', {addresses} }}\n[[dut]]\ndriver = 'unbound'\n"
            )
        };
        let (both, two) =
            ("auths = [{ host = 'a' }, { host = 'b' }]", "['1.0.0.1:53', '1.0.0.2:53']");
        Plan::parse(&auths(both, &format!("auth = {two}")), Path::new("p.toml")).unwrap();
        let more = format!("{both}\nauth = {{ host = 'c' }}");
        bad(&auths(&more, &format!("auth = {two}")), "auth and auths");
        bad(&auths(both, "auth = '1.0.0.1:53'"), "1 address, and [ssh] 2 hosts");
        bad(&auths("", "auth = []"), "0 addresses, and [ssh] 1 host");
        bad(&auths("", &format!("auth = {two}")), "2 addresses, and [ssh] 1 host");
        bad(
            &auths(both, &format!("auth = {two}, self-test = '1.0.0.3:53'")),
            "self-test has 1 address",
        );
        bad(&auths(both, "auth = ['1.0.0.1:53', '1.0.0.1:53']"), "1.0.0.1:53 is listed twice");
        bad(&auths(both, "auth = ['1.0.0.1:53', '[::2]:53']"), "different IP versions");
        bad(&auths(both, "auth = ['1.0.0.1:53', 'b']"), "an address and a port");
        let once = auths(both, &format!("auth = {two}")).replace("repeat = 2", "repeat = 1");
        bad(&once, "[self-test] repeat: 1 search for 2 AuthDNS");
        bad(&format!("name = 'x'\ntopology = 'ssh'\n{ssh}[[dut]]\ndriver = 'unbound'\n"), "custom");
        bad("name = 'x'\n[[dut]]\ndriver = 'unbound'\nmax = 10\n", "below min");
        bad("name = 'x'\n[auth]\nprogram = '/x'\n[[dut]]\ndriver = 'unbound'\n", "[auth] program");
        bad(
            "name = 'x'\n[[measure.placements]]\nname = 'a'\ncpus = []\n[[dut]]\ndriver = 'unbound'\n",
            "CPUs",
        );
        let custom = "name = 'x'\n[[dut]]\ndriver = 'custom'\n";
        bad(&format!("{custom}custom = {{ start = ['x', '-p{{prot}}'] }}\n"), "{prot}");
        bad(
            &format!("{custom}custom = {{ start = ['x'], ready = ['{{Listen}}'] }}\n"),
            "ready has the unknown placeholder {Listen}",
        );
        bad(&format!("{custom}custom = {{ stop = ['x'] }}\n"), "needs start");
        bad(
            &format!("{custom}name = '../evil'\ncustom = {{ start = ['x'] }}\n"),
            "path separators",
        );
        bad("name = 'x'\n[[dut]]\ndriver = 'unbound'\nname = ''\n", "name");
        bad("name = 'x'\n[auth]\ndriver = 'nds'\n[[dut]]\ndriver = 'unbound'\n", "nds");
        let dut = "name = 'x'\n[[dut]]\ndriver = 'unbound'\n";
        bad(&format!("{dut}threads = 0\n"), "threads");
        bad(&format!("{dut}family = 'ipv5'\n"), "ipv5");
        bad(&format!("{dut}config = 'no-such-file'\n"), "no-such-file");
        bad(&format!("{dut}extra = ['a']\nconfig = {{ path = 'x', text = 'y' }}\n"), "extra");
        bad(
            &format!("{dut}threads = 2\nconfig = {{ path = 'x', text = 'num-threads: 4' }}\n"),
            "{threads}",
        );
        bad(&format!("{dut}config = {{ path = 'x', text = 'port: {{prt}}' }}\n"), "{prt}");
        bad("name = 'x'\n[[dut]]\ndriver = 'mtd64-ng'\nfamily = 'ipv6'\n", "IPv4 only");
        bad("name = 'x'\n[auth]\nextra = ['x']\n[[dut]]\ndriver = 'unbound'\n", "[auth]");
        bad(&format!("{custom}extra = ['x']\ncustom = {{ start = ['x'] }}\n"), "config");
        bad(&format!("{custom}threads = 2\ncustom = {{ start = ['x'] }}\n"), "{threads}");
        let from = |prefixes: &str, more: &str| {
            let dut = "[[dut]]\ndriver = 'unbound'\n";
            format!("name = 'x'\n[trial]\nsource-addresses = [{prefixes}]\n{more}{dut}")
        };
        bad(&from("'198.19.0.0/33'", ""), "ip route add local 198.19.0.0/24 dev lo");
        bad(&from("'198.19.0.0/24'", ""), "the DUTs are queried over IPv6");
        bad(&from("'2001:2::/64', '2001:2:0:ff::/64'", ""), "two prefixes");
        bad(&from("'2001:2::/64'", "[self-test]\n"), "AuthDNS is queried over IPv4");
        let also = "[self-test]\nfamily = 'ipv6'\nalso = [{ server = 'nsd', family = 'ipv4' }]\n";
        bad(&from("'2001:2::/64'", also), "AuthDNS is queried over IPv4");
        bad(&from("'2001:2::/64', '198.19.0.0/25'", "[self-test]\n"), "128 and 256");
        for (prefixes, more) in [
            ("'2001:2::/64'", ""),
            ("'2001:2::/64'", "[self-test]\nfamily = 'ipv6'\n"),
            ("'2001:2::/64', '198.19.0.0/24'", "[self-test]\n"),
            ("'198.19.0.0/25', '2001:2::/64,128'", "[self-test]\n"),
        ] {
            Plan::parse(&from(prefixes, more), Path::new("p.toml"))
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let far =
            "topology = 'ssh'\n[ssh]\naddresses = { dut = '[::1]:53', auth = '127.0.0.1:53' }\n";
        bad(
            &format!("name = 'x'\n{far}[[dut]]\ndriver = 'unbound'\nfamily = 'ipv6'\n"),
            "127.0.0.1:53",
        );
        bad(
            &format!(
                "name = 'x'\n{far}[self-test]\nfamily = 'ipv6'\n[[dut]]\ndriver = 'unbound'\n"
            ),
            "[self-test]",
        );
        let auths = "name = 'x'\n[cpus]\nauth = [0]\n[[authdns]]\ndriver = 'nsd'\n";
        bad(
            &format!("{auths}[[authdns]]\ndriver = 'nsd'\n[[dut]]\ndriver = 'unbound'\n"),
            "two AuthDNS servers",
        );
        bad(
            &format!("{auths}cores = 2\n[[dut]]\ndriver = 'unbound'\n"),
            "[[authdns]] NSD cores: 2, but [cpus] auth has 1 CPU",
        );
        bad(
            &format!("{auths}threads = 0\n[[dut]]\ndriver = 'unbound'\n"),
            "[[authdns]] NSD threads",
        );
        bad(
            &format!("{auths}[measure]\nauthdns = ['YADIFA']\n[[dut]]\ndriver = 'unbound'\n"),
            "AuthDNS, NSD",
        );
        bad(
            &format!("{auths}[measure]\nauthdns = ['NSD', 'NSD']\n[[dut]]\ndriver = 'unbound'\n"),
            "twice",
        );
        bad(
            "name = 'x'\n[measure]\ncores = [1, 2]\n[cpus]\ndut = [1]\n[[dut]]\ndriver = 'unbound'\n",
            "cores",
        );
    }
}
