//! Why a query is answered as it is.

use std::net::IpAddr;

use net::address::ServiceAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::translation::decision::Decision;
use crate::translation::policy::{Hints, Mode, Select};

/// The version of [`Explanation`]: raised when a key goes or changes its meaning.
pub const EXPLANATION_VERSION: u32 = 1;

/// Why a query is answered as it is: it was answered as a client's would be, and this was noted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The version of this object.
    pub schema_version: u32,
    /// The name that is asked for.
    pub name: String,
    /// The type that is asked for.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Who asks.
    pub client: IpAddr,
    /// What decided.
    pub decision: Decision,
    /// What says so: a paragraph of an RFC, or a part of the configuration.
    pub decided_by: String,
    /// What counts for this client and this name.
    pub rules: RulesApplied,
    /// The questions that were needed, in their order.
    pub questions: Vec<QuestionAsked>,
    /// What the client is told.
    pub rcode: String,
    /// The extended errors that it is told (RFC 8914).
    pub extended_errors: Vec<u16>,
    /// Whether an answer counts although its time is over (RFC 8767).
    pub stale: bool,
    /// The answer section.
    pub answer: Vec<AnswerRecord>,
    /// What bounds the TTL of records that are made here; the least of them is taken.
    pub ttl: Option<TtlBounds>,
}

/// What counts for a client and a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RulesApplied {
    /// Whether `[access]` lets the client ask.
    pub allowed: bool,
    /// The number of the client's `[[group]]`, from 1 on as they are written.
    pub group: Option<usize>,
    /// The `[[group.domain]]` in which the name is.
    pub group_domain: Option<String>,
    /// The `[[domain]]` in which the name is.
    pub domain: Option<String>,
    /// The `[[forward]]` in which the name is.
    pub forward: Option<String>,
    /// Who is asked for the name.
    #[schemars(with = "Vec<String>")]
    pub upstreams: Vec<ServiceAddr>,
    /// The prefixes, in the order of their records in answers.
    pub prefixes: Vec<PrefixRule>,
    /// Which of several prefixes the client is given.
    pub select: Select,
    /// When A records are asked for.
    pub mode: Mode,
    /// Whether native AAAA records count as none.
    pub ignore_aaaa: bool,
    /// Whether they are given after all where no A record is of use.
    pub fallback_native: bool,
    /// Whether signed answers are translated for who asks for signatures.
    pub break_dnssec: bool,
    /// Whether only queries with RD are translated.
    pub recursive_only: bool,
    /// Whether A records are withheld where there are AAAA records.
    pub filter_a: bool,
    /// Treatment of address hints in HTTPS and SVCB records.
    pub https_hints: Hints,
}

/// A prefix that counts for a client and a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PrefixRule {
    /// The prefix.
    pub prefix: String,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// Whether new answers do without it.
    pub draining: bool,
    /// Whether its NAT64 does not answer.
    pub unhealthy: bool,
    /// For how long it is known, seconds; `null`: it is configured.
    pub expires_in_s: Option<u64>,
    /// Whether an address in the answer was made with it.
    pub used: bool,
}

/// Where an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// In the cache, or among the failures that are remembered.
    Cache,
    /// The upstreams were asked, or had been asked already.
    Upstream,
    /// Answered locally: the target of an alias is a special-use name or in a local zone.
    Local,
    /// Nowhere: nobody was asked, because too much is under way.
    Nobody,
}

/// A question that was needed, and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuestionAsked {
    /// The name that was asked for.
    pub name: String,
    /// The type that was asked for.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Whether it was asked with CD only to learn what is behind an error.
    pub probe: bool,
    /// Where the answer was found.
    pub source: Source,
    /// How long that took, microseconds.
    pub took_us: u64,
    /// What was found: `data`, `no-data`, `no-name`, `alias` (without its end), `error`; or why
    /// nothing was: `timeout`, `malformed`, `alias-loop`, `overload`.
    pub found: String,
    /// What the upstream said; `null`: nothing.
    pub rcode: Option<String>,
    /// The extended error that it gave (RFC 8914).
    pub extended_error: Option<u16>,
    /// How old the answer is, seconds.
    pub age_s: Option<u32>,
    /// What is left of its time, seconds.
    pub ttl_s: Option<u32>,
    /// Whether its time is over.
    pub stale: bool,
    /// Whether it has signatures.
    pub signed: bool,
    /// Whether the upstream says that it has validated it.
    pub authentic: bool,
    /// The name at the end of its aliases, if there are any.
    pub alias_of: Option<String>,
    /// The addresses in it.
    pub addresses: Vec<IpAddr>,
}

/// A record of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerRecord {
    /// Its owner.
    pub name: String,
    /// Its TTL, seconds.
    pub ttl: u32,
    /// Its type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Its data, as zone files have it.
    pub data: String,
}

/// What bounds the TTL of AAAA records that are made from A records (RFC 6147 §5.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TtlBounds {
    /// What is left of the A records' TTL, seconds.
    pub a_s: u32,
    /// What is left of the denial of AAAA records; 600 where it has no SOA. Seconds.
    pub denial_s: u32,
    /// For how long the prefixes are known, seconds; `null`: they are configured.
    pub prefix_s: Option<u32>,
}
