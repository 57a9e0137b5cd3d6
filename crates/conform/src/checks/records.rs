//! Caching of answers, negative answers and failures (RFC 2308, 8767), and data that a DNS64 server must pass on
//! unchanged. These data are RRsets and their TTLs (RFC 2181), names (RFC 1034, 1035), aliases (RFC 6604, 6672), and
//! records that are not translated (RFC 9460, 8482).
//!
//! The checks detect caching on the upstream side: for a cached name, the test authoritative server receives no further
//! query. A TTL that must expire during a check is six seconds, because some servers (Knot Resolver, CoreDNS) cache
//! every answer for at least five seconds by default.

mod caching;
mod common;
mod rrsets;

use domain::base::iana::Rtype;

use self::common::UNEQUAL;
use crate::check::{Check, Level, Need};
use crate::trial::Judge;

/// Requirements for running checks that use the query log: a test zone, and the query log of the test authoritative
/// server.
const SEEN: &[Need] = &[Need::Zone, Need::View];

const NEVER_UNEQUAL: &str = "In no case may a server send an RRSet with TTLs not all equal.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc2308-3-negative-ttl",
        title: "The TTL of a denial does not exceed the negative TTL of the zone",
        rfc: 2308,
        section: "3",
        sentence: "The TTL of this record is set from the minimum of the MINIMUM field of the SOA \
             record and the TTL of the SOA itself, and indicates how long a resolver may cache the \
             negative answer.",
        script: caching::denials_are_not_prolonged,
        ..Check::BASE
    },
    Check {
        id: "hardening-minimum-expires",
        title: "A denial is not used after MINIMUM of its SOA record has expired, even if the \
            upstream sent a longer TTL, which RFC 2308 §3 forbids",
        sentence: "RFC 2308 §5 lets a cache count down the TTL of the SOA record only, because the \
            server that creates a denial sets it to MINIMUM if that is smaller. If an upstream \
            does not, the smaller of the two should be used, because MINIMUM is the choice of the \
            zone.",
        level: Level::Hardening,
        needs: SEEN,
        script: |t| caching::denials_expire(t, "soa-300-6"),
        ..Check::BASE
    },
    Check {
        id: "rfc2308-5-soa",
        title: "NODATA and NXDOMAIN contain the SOA record of the zone",
        rfc: 2308,
        section: "5",
        sentence: "As there is no record in the answer section to which this TTL can be applied, \
             the TTL must be carried by another method.  This is done by including the SOA record \
             from the zone in the authority section of the reply.",
        script: caching::denials_have_a_soa,
        ..Check::BASE
    },
    Check {
        id: "rfc2308-5-soa-ttl-expires",
        title: "A denial is not used after the TTL of the SOA record has expired",
        rfc: 2308,
        section: "5",
        sentence: "This TTL decrements in a similar manner to a normal cached answer and upon \
     reaching zero (0) indicates the cached negative answer MUST NOT be used again.",
        level: Level::Must,
        needs: SEEN,
        script: |t| caching::denials_expire(t, "soa-6-300"),
        ..Check::BASE
    },
    Check {
        id: "rfc2308-5-nodata-of-one-type",
        title: "NODATA for one type does not affect another type",
        rfc: 2308,
        section: "5",
        sentence: "A negative answer that resulted from a no data error (NODATA) should be cached \
             such that it can be retrieved and returned in response to another query for the same \
             <QNAME, QTYPE, QCLASS> that resulted in the cached negative response.",
        script: caching::nodata_is_of_one_type,
        ..Check::BASE
    },
    Check {
        id: "rfc2308-5-nxdomain-of-all-types",
        title: "A nonexistent name is not queried upstream again with another type",
        rfc: 2308,
        section: "5",
        sentence: "A negative answer that resulted from a name error (NXDOMAIN) should be cached \
             such that it can be retrieved and returned in response to another query for the same \
             <QNAME, QCLASS> that resulted in the cached negative response.",
        needs: SEEN,
        script: caching::nxdomain_is_of_all_types,
        ..Check::BASE
    },
    Check {
        id: "rfc2308-5-no-soa",
        title: "A denial without a SOA record is not cached",
        rfc: 2308,
        section: "5",
        sentence: "Negative responses without SOA records SHOULD NOT be cached as there is no way \
             to prevent the negative responses looping forever between a pair of servers even with \
             a short TTL.",
        level: Level::Should,
        needs: SEEN,
        script: caching::bare_denials_are_not_kept,
        ..Check::BASE
    },
    Check {
        id: "rfc2308-6-aged-soa",
        title: "A cached denial has the SOA record, with its TTL reduced by the time in the cache",
        rfc: 2308,
        section: "6",
        sentence: "When a server, in answering a query, encounters a cached negative response it \
             MUST add the cached SOA record to the authority section of the response with the TTL \
             decremented by the amount of time it was stored in the cache.",
        level: Level::Must,
        needs: SEEN,
        script: caching::denials_age,
        ..Check::BASE
    },
    Check {
        id: "rfc2308-8-kept",
        title: "Denials are cached if answers are cached",
        rfc: 2308,
        section: "8",
        sentence: "Negative caching in resolvers is no-longer optional, if a resolver caches \
             anything it must also cache negative answers.",
        needs: SEEN,
        script: caching::denials_are_kept,
        ..Check::BASE
    },
    Check {
        id: "rfc8767-4-expires",
        title: "An answer is queried upstream again after its TTL has expired, also a synthesized \
            one",
        rfc: 8767,
        section: "4",
        sentence: "… a 32-bit unsigned integer number of seconds that specifies the duration \
             that the resource record MAY be cached before the source of the information MUST \
             again be consulted.",
        level: Level::Must,
        needs: SEEN,
        script: caching::answers_expire,
        ..Check::BASE
    },
    Check {
        id: "rfc8767-4-cap",
        title: "A TTL of 68 years is reduced to weeks at most",
        rfc: 8767,
        section: "4",
        sentence: "Values SHOULD be capped on the order of days to weeks, with a recommended cap \
             of 604,800 seconds (7 days).",
        level: Level::Should,
        script: caching::long_ttls_are_capped,
        ..Check::BASE
    },
    Check {
        id: "rfc1035-3.2.1-zero",
        title: "An answer with a TTL of zero is not cached",
        rfc: 1035,
        section: "3.2.1",
        sentence: "Zero values are interpreted to mean that the RR can only be used for the \
             transaction in progress, and should not be cached.",
        needs: SEEN,
        script: caching::zero_is_not_kept,
        ..Check::BASE
    },
    Check {
        id: "rfc1035-6.1.3-count-down",
        title: "The TTL of a cached answer counts down, also of a synthesized one",
        rfc: 1035,
        section: "6.1.3",
        sentence: "Inside the database, refresh timers and TTLs for cached data conceptually \
             \"count down\" …",
        needs: SEEN,
        script: caching::answers_age,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-5-duplicates",
        title: "No section of a reply contains the same record twice",
        rfc: 2181,
        section: "5",
        sentence: "It is meaningless for two records to ever have label, class, type and data all \
             equal - servers should suppress such duplicates if encountered.",
        script: rrsets::no_duplicates,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-5.2-made-rrset",
        title: "Synthesized records have one TTL, although those of the A records differ",
        rfc: 2181,
        section: "5.2",
        sentence: NEVER_UNEQUAL,
        script: |t| t.aaaa(UNEQUAL)?.1.ttl(Rtype::AAAA).map(drop),
        ..Check::BASE
    },
    Check {
        id: "rfc2181-5.2-received-rrset",
        title: "A records with several TTLs are returned with one",
        rfc: 2181,
        section: "5.2",
        sentence: NEVER_UNEQUAL,
        script: |t| t.look_up(UNEQUAL, Rtype::A)?.1.ttl(Rtype::A).map(drop),
        ..Check::BASE
    },
    Check {
        id: "rfc2181-5.2-lowest",
        title: "If an RRset has several TTLs, the lowest is used",
        rfc: 2181,
        section: "5.2",
        sentence: "Should an authoritative source send such a malformed RRSet, the client should \
             treat the RRs for all purposes as if all TTLs in the RRSet had been set to the value \
             of the lowest TTL in the RRSet.",
        script: rrsets::lowest_ttl_counts,
        ..Check::BASE
    },
    Check {
        id: "rfc1035-4.1-only-answers",
        title: "A record of another name in the upstream's answer is neither returned nor used for \
            synthesis",
        rfc: 1035,
        section: "4.1",
        sentence: "The answer section contains RRs that answer the question …",
        script: rrsets::unrelated_records_are_omitted,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-5.4.1-additional",
        title: "An address from the additional section of MX is queried upstream when a client \
            queries it",
        rfc: 2181,
        section: "5.4.1",
        sentence: "Unauthenticated RRs received and cached from the least trustworthy of those \
             groupings, that is data from the additional data section, and data from the authority \
             section of a non-authoritative answer, should not be cached in such a way that they \
             would ever be returned as answers to a received query.",
        needs: SEEN,
        script: rrsets::additional_data_is_no_answer,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-9-partial",
        title: "A partial answer has TC",
        rfc: 2181,
        section: "9",
        sentence: "The TC bit should be set in responses only when an RRSet is required as a part \
             of the response, but could not be included in its entirety.",
        script: rrsets::partial_answers_say_so,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-9-extra",
        title: "TC is not set merely because addresses of an MX record's host do not fit",
        rfc: 2181,
        section: "9",
        sentence: "The TC bit should not be set merely because some extra information could have \
             been included, but there was insufficient room.",
        script: rrsets::extra_data_sets_no_tc,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-9-whole-over-tcp",
        title: "RRsets of 60 and of 100 synthesized records are complete over TCP",
        rfc: 2181,
        section: "9",
        sentence: "When a DNS client receives a reply with TC set, it should ignore that response, \
             and query again, using a mechanism, such as a TCP connection, that will permit larger \
             replies.",
        script: rrsets::big_sets_come_over_tcp,
        ..Check::BASE
    },
    Check {
        id: "rfc2181-10.1-alias-alone",
        title: "No record is synthesized for an alias itself",
        rfc: 2181,
        section: "10.1",
        sentence: "An alias name (label of a CNAME record) may, if DNSSEC is in use, have SIG, \
             NXT, and KEY RRs, but may have no other data.",
        script: rrsets::aliases_stand_alone,
        ..Check::BASE
    },
    Check {
        id: "rfc6604-3-rcode",
        title: "The RCODE is that of the name at the end of the aliases",
        rfc: 6604,
        section: "3",
        sentence: "The RCODE in the ultimate DNS response MUST BE set based on the final query \
             cycle leading to that response.",
        level: Level::Must,
        script: rrsets::rcode_is_of_the_end,
        ..Check::BASE
    },
    Check {
        id: "rfc6672-3.1-cname-ttl",
        title: "The CNAME record synthesized from a DNAME record has its TTL",
        rfc: 6672,
        section: "3.1",
        sentence: "A CNAME RR with Time to Live (TTL) equal to the corresponding DNAME RR is \
             synthesized and included in the answer section when the DNAME is employed as a \
             substitution instruction.",
        script: rrsets::synthesized_cname_has_the_ttl,
        ..Check::BASE
    },
    Check {
        id: "rfc1034-3.1-case-kept",
        title: "The question has the letter case of the query, even if the answer was cached",
        rfc: 1034,
        section: "3.1",
        sentence: "When you receive a domain name or label, you should preserve its case.",
        script: rrsets::letter_case_is_kept,
        ..Check::BASE
    },
    Check {
        id: "rfc9460-4.2.1-hints",
        title: "HTTPS and SVCB records get no ipv6hint from their ipv4hint",
        rfc: 9460,
        section: "4.2.1",
        sentence: "DNS64 resolvers MUST NOT extrapolate the AAAA synthesis logic to the IP hints \
             in the SvcParams (Section 7.3).",
        level: Level::Must,
        script: rrsets::hints_are_left_alone,
        ..Check::BASE
    },
    Check {
        id: "rfc9460-4.2-no-failure",
        title: "An HTTPS record is returned even if the addresses of its name fail",
        rfc: 9460,
        section: "4.2",
        sentence: "Errors or anomalies in obtaining additional records MAY cause this process to \
             terminate but MUST NOT themselves cause the resolver to send a failure response.",
        level: Level::Must,
        script: rrsets::https_does_not_need_addresses,
        ..Check::BASE
    },
    Check {
        id: "rfc8482-4.1-any",
        title: "ANY is refused, or answered with records of that name only",
        rfc: 8482,
        section: "4.1",
        sentence: "A DNS responder that receives an ANY query MAY decline to provide a \
             conventional ANY response or MAY instead send a response with a single RRset (or a \
             larger subset of available RRsets) in the answer section.",
        level: Level::May,
        script: rrsets::any_is_answered,
        ..Check::BASE
    },
];
