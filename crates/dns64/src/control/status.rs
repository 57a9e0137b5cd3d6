//! Status of a running server.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use net::address::ServiceAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the JSON format of [`Status`]. It increases when a key is removed or changes its meaning.
pub const STATUS_VERSION: u32 = 1;

/// Status of a running server.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the format of this JSON object.
    pub schema_version: u32,
    /// Version of the program.
    pub version: String,
    /// Process ID, in the process's PID namespace.
    pub pid: u32,
    /// Start time of the server, in seconds since 1970.
    pub started_unix_s: u64,
    /// Time since the start of the server, in seconds.
    pub uptime_s: u64,
    /// Configuration in effect.
    pub configuration: ConfigurationStatus,
    /// Listen addresses for DNS clients.
    pub addresses: Vec<SocketAddr>,
    /// Listen addresses of encrypted transports.
    #[serde(default)]
    pub encrypted_addresses: Vec<EncryptedAddress>,
    /// Network interfaces used in AF_XDP mode (kernel bypass), each described in words: mode, number of queues, client
    /// addresses, and upstream source addresses.
    #[serde(default)]
    #[serde(rename = "past_stack")]
    pub xdp: Vec<String>,
    /// Address of the metrics listener.
    pub metrics_address: Option<SocketAddr>,
    /// Configured and discovered prefixes.
    pub prefixes: Vec<PrefixStatus>,
    /// True if prefixes must be discovered and none is known. Queries that need a prefix then get
    /// SERVFAIL.
    pub awaits_prefix: bool,
    /// True if answers are validated (DNSSEC). With `validate = "if-possible"`, validation begins when an upstream has
    /// returned signatures.
    #[serde(default)]
    pub validates: bool,
    /// Upstream servers.
    pub upstreams: Vec<UpstreamStatus>,
    /// Contents of the cache.
    pub cache: CacheStatus,
    /// Number of client queries that wait for upstreams.
    pub in_flight: u64,
    /// Counters since the start of the server, by metric family and label value. They are the same as in the
    /// Prometheus metrics.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Listen address of an encrypted transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncryptedAddress {
    /// Name of the transport: TLS, HTTPS or QUIC.
    pub transport: String,
    /// Address and port.
    pub address: SocketAddr,
}

/// Configuration in effect.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationStatus {
    /// Path of the configuration file.
    pub file: String,
    /// Time at which the configuration was last loaded, in seconds since 1970.
    pub loaded_unix_s: u64,
    /// Number of reloads since the start of the server.
    pub reloads: u64,
}

/// State of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixStatus {
    /// Prefix in text form.
    pub prefix: String,
    /// Name of the prefix in the configuration; `null` if it has no name.
    pub name: Option<String>,
    /// Sources that announced the prefix: `upstreams`, or addresses of routers such as `fe80::1%eth0`. Empty for a
    /// configured prefix.
    pub announced_by: Vec<String>,
    /// Remaining lifetime of the prefix, in seconds; `null` for a configured prefix.
    pub expires_in_s: Option<u64>,
    /// True if the prefix is not used for new answers.
    pub draining: bool,
    /// Result of the probes: `healthy`, `unhealthy` or `unknown`; `null` if the prefix is not
    /// probed.
    pub health: Option<String>,
    /// Time since the health last changed, in seconds.
    pub health_for_s: Option<u64>,
}

/// State of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamState {
    /// No worker has marked the upstream down.
    #[default]
    Up,
    /// At least one worker has marked the upstream down, and sends only probes to it.
    MarkedDown,
    /// The upstream returns no DNSSEC signatures, and answers are validated. It is queried only if all others are marked
    /// down.
    WithoutSignatures,
}

/// State and counters of an upstream, summed over all workers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Address and port of the upstream.
    #[schemars(with = "String")]
    pub address: ServiceAddr,
    /// Name of the upstream in the configuration; `null` if it has no name.
    #[serde(default)]
    pub name: Option<String>,
    /// State of the upstream.
    #[serde(default)]
    pub state: UpstreamState,
    /// Time since the first worker marked the upstream down, in seconds; `null` if the upstream is
    /// up.
    #[serde(default)]
    pub down_for_s: Option<u64>,
    /// Reason for the last failure of the upstream, as recorded by the worker that marked it down first; `null` if the
    /// upstream is up.
    #[serde(default)]
    pub down_reason: Option<String>,
    /// Number of UDP queries sent to the upstream.
    pub queries: u64,
    /// Number of UDP answers from the upstream, including error responses.
    pub answers: u64,
    /// Number of queries that timed out or could not be sent.
    pub failures: u64,
    /// Number of queries that timed out. These queries are also counted in `failures`.
    #[serde(default)]
    pub timeouts: u64,
    /// Number of workers that have marked the upstream down.
    pub down: u64,
}

/// Contents of the cache.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Number of cached answers and failures.
    pub entries: u64,
    /// Estimated memory of all cache entries, in octets.
    pub bytes: u64,
}
