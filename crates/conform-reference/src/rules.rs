//! Behaviour of the reference as data: each field is one rule, and a mutant breaks one of them.

use std::net::Ipv6Addr;
use std::time::Duration;

use conform::message::Message;

/// The rules of the reference server. [`Rules::default`] is right; every other value of a field is a
/// defect for a mutant.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct Rules {
    /// AAAA records are made of A records at all (RFC 6147 §5.1).
    pub synthesize: bool,
    /// A usable AAAA record of the name's own is returned, and nothing is made (§5.1.1).
    pub native_wins: bool,
    /// NXDOMAIN is returned as it is (§5.1.2).
    pub nxdomain_ends: bool,
    /// Any other RCODE but NOERROR counts as an empty answer (§5.1.2).
    pub errors_are_empty: bool,
    /// A question for AAAA that nobody answers counts as SERVFAIL, hence as empty (§5.1.3).
    pub silence_is_servfail: bool,
    /// How long a question to the upstream may take before it counts as unanswered; 1.5 s.
    pub upstream_patience: Duration,
    /// A is queried only if the AAAA response is not enough (§5.1.8).
    pub waits_for_aaaa: bool,
    /// AAAA records in these ranges count as missing (§5.1.4); `::ffff:0:0/96`.
    pub excluded: Vec<(Ipv6Addr, u8)>,
    /// Aliases are followed to their end, also where the upstream did not (§5.1.5).
    pub follows_aliases: bool,
    /// Records of the aliases stand before the records that were made (§5.1.5).
    pub shows_aliases: bool,
    /// How many aliases are followed before it is SERVFAIL; 16.
    pub longest_chain: usize,
    /// An alias of a name that was passed already is SERVFAIL (RFC 1034 §3.6.2).
    pub notices_loops: bool,
    /// The TTL of what is made is at most the TTL of the A record (§5.1.7).
    pub ttl_of_a: bool,
    /// The TTL of what is made is at most the SOA record's TTL (§5.1.7).
    pub ttl_of_soa: bool,
    /// … and at most its MINIMUM (RFC 2308 §5).
    pub minimum_of_soa: bool,
    /// TTL in seconds where the denial has no SOA record; 600 (§5.1.7).
    pub ttl_without_soa: u32,
    /// Well-known prefix: no address is made of an IPv4 address that is not global (RFC 6052 §3.1).
    pub leaves_non_global: bool,
    /// Names of ip6.arpa below a prefix become aliases of names in in-addr.arpa (§5.3.1).
    pub reverse: bool,
    /// ipv4only.arpa is answered here (RFC 8880 §7.1), and the ip6.arpa names of its addresses
    /// (§7.2.1); those in in-addr.arpa are asked for as any other (§7.2, item 4).
    pub ipv4only: bool,
    /// With CD and DO nothing is made (§5.5, item 3).
    pub leaves_cd_do: bool,
    /// DO is passed on to the upstream.
    pub passes_do: bool,
    /// CD is passed on to the upstream.
    pub passes_cd: bool,
    /// What was made never has AD from a server that does not validate (§5.5).
    pub drops_ad: bool,
    /// The reference validates: it believes the label of the zone (`bogus`, `expired` are SERVFAIL
    /// without CD, `secure` and `nsec3` have AD if asked with AD or DO). False unless asked for.
    pub validates: bool,
    /// Replies over UDP are no longer than the client takes, and say TC then (RFC 2181 §9).
    pub truncates: bool,
    /// A truncated reply of the upstream is asked for again over TCP (RFC 7766 §5).
    pub asks_over_tcp: bool,
    /// FORMERR to a question with OPT is asked again without (RFC 6891 §6.2.2).
    pub retries_without_edns: bool,
    /// Replies of the upstream with a wrong id are dropped (RFC 5452 §9.1).
    pub checks_id: bool,
    /// Replies from elsewhere than where the question went are dropped.
    pub checks_source: bool,
    /// Replies for another question are dropped.
    pub checks_question: bool,
    /// Records of the answer that do not belong to the question or its aliases are dropped (RFC 2181
    /// §5.4.1).
    pub drops_strangers: bool,
    /// Answers are kept for their TTL, denials too (RFC 2308 §5).
    pub caches: bool,
    /// TTLs of what is kept count down (RFC 1035 §3.2.1).
    pub ages: bool,
    /// One question upstream for all who ask the same at the same time.
    pub asks_once: bool,
    /// Each question upstream has an id and a source port that nobody can guess (RFC 5452 §9.2).
    pub random_source: bool,
    /// Records of one RRset have one TTL, the smallest (RFC 2181 §5.2).
    pub equal_ttls: bool,
    /// A message over TCP may come in several segments; if this is false, the connection is closed when
    /// the first read does not have all of it (RFC 7766 §8).
    pub joins_segments: bool,
    /// TCP connections served at the same time; further connections wait. 256.
    pub connections: usize,
    /// How often a question is sent to the upstream over UDP before it counts as unanswered, all within
    /// `upstream_patience`; at most 3 is right (RFC 9520 §3.1).
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
            drops_strangers: true,
            caches: true,
            ages: true,
            asks_once: true,
            random_source: true,
            equal_ttls: true,
            joins_segments: true,
            connections: 256,
            tries: 2,
        }
    }
}

/// What a mutant does beside its rules: each is called with what passes by, and may change it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hooks {
    /// The client's octets, before they are parsed; an empty vector is silence.
    pub arrives: Option<fn(&mut Vec<u8>)>,
    /// The client's query, before anything is done with it.
    pub query: Option<fn(&mut Message)>,
    /// A question to the upstream.
    pub asks: Option<fn(&mut Message)>,
    /// The upstream's reply.
    pub hears: Option<fn(&mut Message)>,
    /// The reply, with the query that it is for, before it is cut to size.
    pub reply: Option<fn(&Message, &mut Message)>,
    /// The reply's octets, as they leave; an empty vector is silence.
    pub leaves: Option<fn(&mut Vec<u8>)>,
    /// The octets as they leave over TCP only.
    pub leaves_tcp: Option<fn(&mut Vec<u8>)>,
}
