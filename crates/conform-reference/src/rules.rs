//! Behaviour of the reference server as data. Each field is one rule, and a mutant may break a rule.

use std::net::Ipv6Addr;
use std::time::Duration;

use conform::message::Message;

/// Rules of the reference server. A boolean field is true if the reference follows the rule. [`Rules::default`] follows
/// the RFCs, and any other value of a field is a defect. Section numbers without an RFC number refer to RFC 6147.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate rule")]
pub struct Rules {
    /// AAAA records are synthesized from A records (RFC 6147 §5.1).
    pub synthesize: bool,
    /// If a usable native AAAA record exists, it is returned, and nothing is synthesized (§5.1.1).
    pub native_wins: bool,
    /// NXDOMAIN is returned unchanged (§5.1.2).
    pub nxdomain_ends: bool,
    /// An RCODE other than NOERROR and NXDOMAIN counts as an empty answer (§5.1.2).
    pub errors_are_empty: bool,
    /// An upstream AAAA query without a reply counts as SERVFAIL, and therefore as an empty answer (§5.1.3).
    pub silence_is_servfail: bool,
    /// Timeout of an upstream query. The default is 1.5 s.
    pub upstream_patience: Duration,
    /// A query for A records is sent only if the AAAA response is not sufficient (§5.1.8).
    pub waits_for_aaaa: bool,
    /// AAAA records in these ranges count as missing (§5.1.4). The default is `::ffff:0:0/96`.
    pub excluded: Vec<(Ipv6Addr, u8)>,
    /// Aliases are followed to their end if the upstream did not follow them (§5.1.5).
    pub follows_aliases: bool,
    /// Alias records precede the synthesized records (§5.1.5).
    pub shows_aliases: bool,
    /// Maximum length of a chain of aliases. If the chain of the queried name is longer, the reply is SERVFAIL. The
    /// default is 16.
    pub longest_chain: usize,
    /// If an alias points to a name that is already in the chain, the reply is SERVFAIL (RFC 1034
    /// §3.6.2).
    pub notices_loops: bool,
    /// The TTL of a synthesized record is at most the TTL of the A record (§5.1.7).
    pub ttl_of_a: bool,
    /// The TTL of a synthesized record is at most the TTL of the SOA record in the negative answer for AAAA records
    /// (§5.1.7).
    pub ttl_of_soa: bool,
    /// The TTL of a synthesized record is at most the MINIMUM of the SOA record in the negative answer for AAAA records
    /// (RFC 2308 §5).
    pub minimum_of_soa: bool,
    /// Maximum TTL, in seconds, of a synthesized record if the negative answer for AAAA records contains no SOA record.
    /// The default is 600 (§5.1.7).
    pub ttl_without_soa: u32,
    /// Maximum TTL, in seconds, of a synthesized record if the AAAA query failed. Such a failure counts as a negative
    /// answer without a SOA record (§5.1.2). The default is 600 (§5.1.7).
    pub ttl_after_error: u32,
    /// With the Well-Known Prefix, only global IPv4 addresses are embedded (RFC 6052 §3.1).
    pub leaves_non_global: bool,
    /// Names in ip6.arpa below a prefix are aliases of names in in-addr.arpa (§5.3.1).
    pub reverse: bool,
    /// Queries for ipv4only.arpa are answered locally (RFC 8880 §7.1), and so are queries for the ip6.arpa names of its
    /// addresses (RFC 8880 §7.2.1). The in-addr.arpa names of these addresses are resolved like any other name (RFC
    /// 8880 §7.2, item 4).
    pub ipv4only: bool,
    /// Nothing is synthesized for queries that have both CD and DO set (§5.5, item 3).
    pub leaves_cd_do: bool,
    /// The DO bit of the client query is copied to upstream queries.
    pub passes_do: bool,
    /// The CD bit of the client query is copied to upstream queries.
    pub passes_cd: bool,
    /// Without validation, the AD bit of upstream replies is not copied to the replies to clients (§5.5).
    pub drops_ad: bool,
    /// The reference server simulates validation, based on the labels of zones. If a query does not have CD set, the
    /// reply for names in `bogus` and `expired` is SERVFAIL. If a query has AD or DO set, the reply for names in
    /// `secure` and `nsec3` has AD set. The default is false.
    pub validates: bool,
    /// Replies over UDP that are longer than the client accepts are truncated, and TC is set (RFC 2181 §9).
    pub truncates: bool,
    /// If a reply of the upstream is truncated, the query is retried over TCP (RFC 7766 §5).
    pub asks_over_tcp: bool,
    /// If the upstream replies FORMERR to a query with OPT, the query is retried without OPT (RFC
    /// 6891 §6.2.2).
    pub retries_without_edns: bool,
    /// Upstream replies are dropped if they have a wrong ID (RFC 5452 §9.1).
    pub checks_id: bool,
    /// Upstream replies are dropped if they come from a wrong address.
    pub checks_source: bool,
    /// Upstream replies are dropped if their question differs from that of the query.
    pub checks_question: bool,
    /// Answer records that belong neither to the queried name nor to its alias chain are dropped (RFC 2181 §5.4.1).
    pub drops_unrelated_records: bool,
    /// Answers and negative answers are cached for their TTL (RFC 2308 §5).
    pub caches: bool,
    /// TTLs of cached records decrease with time (RFC 1035 §3.2.1).
    pub ages: bool,
    /// Several identical client queries that arrive at the same time cause only one upstream query.
    pub asks_once: bool,
    /// Each upstream query has an unpredictable ID and source port (RFC 5452 §9.2).
    pub random_source: bool,
    /// Length of the time slots of a simulated busy server. Upstream queries wait for the end of the current time slot,
    /// and are then all sent from one source port. If `None` (the default), queries do not wait.
    pub turn: Option<Duration>,
    /// All records of an RRset get the smallest TTL of the RRset (RFC 2181 §5.2).
    pub equal_ttls: bool,
    /// True if a message over TCP is accepted in several segments (RFC 7766 §8). If false, the connection is closed
    /// when the first read returns an incomplete message.
    pub joins_segments: bool,
    /// Maximum number of simultaneous TCP connections. Further connections wait. The default is 256.
    pub connections: usize,
    /// Number of times that an upstream query is sent over UDP within `upstream_patience`. RFC 9520 §3.1 allows at most
    /// 3. The default is 2.
    pub tries: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            synthesize: true,
            native_wins: true,
            nxdomain_ends: true,
            errors_are_empty: true,
            silence_is_servfail: true,
            upstream_patience: Duration::from_millis(1500),
            waits_for_aaaa: true,
            excluded: vec![(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)],
            follows_aliases: true,
            shows_aliases: true,
            longest_chain: 16,
            notices_loops: true,
            ttl_of_a: true,
            ttl_of_soa: true,
            minimum_of_soa: true,
            ttl_without_soa: 600,
            ttl_after_error: 600,
            leaves_non_global: true,
            reverse: true,
            ipv4only: true,
            leaves_cd_do: true,
            passes_do: true,
            passes_cd: true,
            drops_ad: true,
            validates: false,
            truncates: true,
            asks_over_tcp: true,
            retries_without_edns: true,
            checks_id: true,
            checks_source: true,
            checks_question: true,
            drops_unrelated_records: true,
            caches: true,
            ages: true,
            asks_once: true,
            random_source: true,
            turn: None,
            equal_ttls: true,
            joins_segments: true,
            connections: 256,
            tries: 2,
        }
    }
}

/// Functions of a mutant that change messages while the mutant processes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooks {
    /// Changes the octets of a client query before they are parsed. If the octets are empty
    /// afterwards, the query is dropped.
    pub arrives: Option<fn(&mut Vec<u8>)>,
    /// Simulates a crash: after the first message for which the function returns true, the server
    /// replies to no message.
    pub dies: Option<fn(&[u8]) -> bool>,
    /// Changes a parsed client query.
    pub query: Option<fn(&mut Message)>,
    /// Changes an upstream query.
    pub asks: Option<fn(&mut Message)>,
    /// Changes an upstream reply.
    pub hears: Option<fn(&mut Message)>,
    /// Changes the reply to a client query, before the reply is truncated.
    pub reply: Option<fn(&Message, &mut Message)>,
    /// Changes the octets of a reply. If the octets are empty afterwards, the reply is dropped.
    pub leaves: Option<fn(&mut Vec<u8>)>,
    /// Changes the octets of a reply over TCP.
    pub leaves_tcp: Option<fn(&mut Vec<u8>)>,
}
