//! Explanation of the reply to a query.

use std::net::IpAddr;

use net::address::ServiceAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::translation::decision::Decision;
use crate::translation::policy::{Hints, Mode, Select};

/// Version of the JSON format of [`Explanation`]. It increases when a key is removed or changes its meaning.
pub const EXPLANATION_VERSION: u32 = 1;

/// Explanation of the reply to a query. The query was processed like a client query, and each step
/// was recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Version of the format of this JSON object.
    pub schema_version: u32,
    /// Queried name.
    pub name: String,
    /// Queried type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Address of the client.
    pub client: IpAddr,
    /// Decision behind the reply, for example to synthesize AAAA records.
    pub decision: Decision,
    /// Source of the decision: an RFC section, or a part of the configuration.
    pub decided_by: String,
    /// Rules that apply to this client and this name.
    pub rules: RulesApplied,
    /// Questions resolved for the reply, in order.
    pub questions: Vec<QuestionAsked>,
    /// RCODE of the reply.
    pub rcode: String,
    /// Extended errors of the reply (RFC 8914).
    pub extended_errors: Vec<u16>,
    /// True if an expired answer was used (RFC 8767).
    pub stale: bool,
    /// Records in the answer section of the reply.
    pub answer: Vec<AnswerRecord>,
    /// Upper limits on the TTL of synthesized records. The lowest limit applies.
    pub ttl: Option<TtlBounds>,
    /// Zones from the trust anchor down to the zone of the name, as far as they are stored. Empty without DNSSEC
    /// validation.
    #[serde(default)]
    pub chain: Vec<ZoneInChain>,
}

/// DNSSEC status of a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZoneInChain {
    /// Apex of the zone.
    pub zone: String,
    /// Status: `secure`, `insecure` or `bogus`.
    pub security: String,
    /// Tags of the keys of a secure zone.
    pub key_tags: Vec<u16>,
    /// Extended error (RFC 8914) that explains a status other than secure.
    pub extended_error: Option<u16>,
}

/// Rules that apply to a client and a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RulesApplied {
    /// True if `[access]` allows the client.
    pub allowed: bool,
    /// Position of the client's `[[group]]` in the configuration file. The first group has position 1.
    pub group: Option<usize>,
    /// Domain of the `[[group.domain]]` entry that applies to the name.
    pub group_domain: Option<String>,
    /// Domain of the `[[domain]]` entry that applies to the name.
    pub domain: Option<String>,
    /// Domain of the `[[forward]]` entry that applies to the name.
    pub forward: Option<String>,
    /// Upstreams that are queried for the name.
    #[schemars(with = "Vec<String>")]
    pub upstreams: Vec<ServiceAddr>,
    /// Prefixes for synthesis, in the order in which their AAAA records appear in an answer.
    pub prefixes: Vec<PrefixRule>,
    /// Selection of prefixes if several prefixes can embed an IPv4 address.
    pub select: Select,
    /// Condition under which the server queries for A records.
    pub mode: Mode,
    /// True if native AAAA records are ignored.
    pub ignore_aaaa: bool,
    /// True if ignored AAAA records are returned when there is no usable A record.
    pub fallback_native: bool,
    /// True if AAAA records are synthesized from signed answers even for clients that set DO.
    pub break_dnssec: bool,
    /// True if AAAA records are synthesized only for queries with RD.
    pub recursive_only: bool,
    /// True if A records are withheld when there are AAAA records.
    pub filter_a: bool,
    /// Treatment of address hints in HTTPS and SVCB records.
    pub https_hints: Hints,
}

/// A prefix that applies to a client and a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PrefixRule {
    /// Prefix in text form.
    pub prefix: String,
    /// Name of the prefix in the configuration; `null` if it has no name.
    pub name: Option<String>,
    /// True if the prefix is not used for new answers.
    pub draining: bool,
    /// True if the NAT64 of the prefix does not answer probes.
    pub unhealthy: bool,
    /// Remaining lifetime of the prefix, in seconds; `null` for a configured prefix.
    pub expires_in_s: Option<u64>,
    /// True if at least one address in the answer was synthesized with this prefix.
    pub used: bool,
}

/// Source of the answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The cache of answers and failures.
    Cache,
    /// An upstream query, either sent for this question or already in flight.
    Upstream,
    /// The server itself. It answers a question for the target of an alias if this target is a special-use name or a
    /// name in a local zone.
    Local,
    /// No source, because the question was rejected: too many queries were in flight.
    Nobody,
}

/// One question that was resolved to produce the reply, and the outcome for this question.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuestionAsked {
    /// Queried name.
    pub name: String,
    /// Queried type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// True for a query with CD that was sent only to find the reason for an error.
    pub probe: bool,
    /// Source of the answer.
    pub source: Source,
    /// Time taken to obtain the answer, in microseconds.
    pub took_us: u64,
    /// Outcome of the question: `data`, `no-data`, `no-name`, `alias` (the answer contains an alias, but no records of
    /// its target) or `error`. If there is no usable answer, the value is the reason for the failure: `timeout`,
    /// `malformed`, `alias-loop`, `overload`, `unreachable` or `no-upstream`.
    pub found: String,
    /// RCODE of the answer; `null` if there is no answer.
    pub rcode: Option<String>,
    /// Extended error in the answer (RFC 8914).
    pub extended_error: Option<u16>,
    /// Age of the answer, in seconds.
    pub age_s: Option<u32>,
    /// Remaining TTL of the answer, in seconds.
    pub ttl_s: Option<u32>,
    /// True if the answer has expired.
    pub stale: bool,
    /// True if the answer contains signatures.
    pub signed: bool,
    /// True if the answer is marked as validated (AD bit), by this server or by the upstream.
    pub authentic: bool,
    /// Result of the DNSSEC validation by this server: `secure`, `insecure`, `indeterminate`, `unchecked` or `bogus`;
    /// `null` if the answer was not validated.
    #[serde(default)]
    pub security: Option<String>,
    /// Canonical name at the end of an alias chain.
    pub alias_of: Option<String>,
    /// Addresses in the answer.
    pub addresses: Vec<IpAddr>,
}

/// One resource record in the answer section of the reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerRecord {
    /// Owner name.
    pub name: String,
    /// TTL, in seconds.
    pub ttl: u32,
    /// Record type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Record data in zone file format.
    pub data: String,
}

/// Upper limits on the TTL of AAAA records that are synthesized from A records (RFC 6147 §5.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TtlBounds {
    /// Remaining TTL of the A records, in seconds.
    pub a_s: u32,
    /// Remaining TTL of the negative AAAA answer, in seconds; 600 if this answer has no SOA record.
    pub denial_s: u32,
    /// Remaining lifetime of the prefixes, in seconds; `null` for configured prefixes.
    pub prefix_s: Option<u32>,
}
