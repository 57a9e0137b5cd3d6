//! What is in use in a running server.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use net::address::ServiceAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of [`Status`]: raised when a key goes or changes its meaning.
pub const STATUS_VERSION: u32 = 1;

/// What is in use.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of this object.
    pub schema_version: u32,
    /// The program's version.
    pub version: String,
    /// The id of the process, in its own namespace.
    pub pid: u32,
    /// When it was started, seconds since 1970.
    pub started_unix_s: u64,
    /// For how long it has been running, seconds.
    pub uptime_s: u64,
    /// The configuration that counts.
    pub configuration: ConfigurationStatus,
    /// The addresses that it serves.
    pub addresses: Vec<SocketAddr>,
    /// The interfaces by which it sends and receives past the network stack (AF_XDP), in words: in
    /// which way, over how many queues, whom it serves and asks there.
    #[serde(default)]
    pub past_stack: Vec<String>,
    /// Where Prometheus fetches its metrics.
    pub metrics_address: Option<SocketAddr>,
    /// The prefixes, as they are written and announced.
    pub prefixes: Vec<PrefixStatus>,
    /// Whether prefixes are looked for and none is announced: what needs one gets SERVFAIL.
    pub awaits_prefix: bool,
    /// The servers that are asked.
    pub upstreams: Vec<UpstreamStatus>,
    /// What is cached.
    pub cache: CacheStatus,
    /// Client queries that wait for upstreams.
    pub in_flight: u64,
    /// The counters since the start, by family and label, as the metrics have them.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The configuration that counts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationStatus {
    /// Its file.
    pub file: String,
    /// When it was read, seconds since 1970.
    pub loaded_unix_s: u64,
    /// How often it has been replaced since the start.
    pub reloads: u64,
}

/// A prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixStatus {
    /// The prefix.
    pub prefix: String,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// Who announces it: `upstreams`, or routers as `fe80::1%eth0`. None: it is configured.
    pub announced_by: Vec<String>,
    /// For how long it is known, seconds; `null`: it is configured.
    pub expires_in_s: Option<u64>,
    /// Whether new answers do without it.
    pub draining: bool,
    /// What probes say: `healthy`, `unhealthy` or `unknown`; `null`: there are none.
    pub health: Option<String>,
    /// For how long they have said so, seconds.
    pub health_for_s: Option<u64>,
}

/// State of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamState {
    /// It is queried.
    #[default]
    Up,
    /// At least one worker has marked it down, and only probes it.
    MarkedDown,
}

/// An upstream, all workers together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Address and port.
    #[schemars(with = "String")]
    pub address: ServiceAddr,
    /// Its name in the configuration.
    #[serde(default)]
    pub name: Option<String>,
    /// Its state.
    #[serde(default)]
    pub state: UpstreamState,
    /// Time since the first worker marked it down, seconds; `null`: it is up.
    #[serde(default)]
    pub down_for_s: Option<u64>,
    /// Reason of that worker's last failure; `null`: it is up.
    #[serde(default)]
    pub down_reason: Option<String>,
    /// Queries to it over UDP.
    pub queries: u64,
    /// Its answers to them, errors included.
    pub answers: u64,
    /// Queries that it did not answer in time, or that could not be sent.
    pub failures: u64,
    /// Failures that were timeouts.
    #[serde(default)]
    pub timeouts: u64,
    /// Workers that have marked it down.
    pub down: u64,
}

/// What is cached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Answers and failures.
    pub entries: u64,
    /// The memory that they take, estimated, octets.
    pub bytes: u64,
}
