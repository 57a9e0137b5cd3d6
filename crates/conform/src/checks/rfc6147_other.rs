//! RFC 6147 §5.3 and §5.4: reverse names, the additional section, all other types, and the assembly of a reply. The
//! scripts are in `reverse` (§5.3.1) and `reply` (the rest).
//!
//! There are no checks for section 6, because it applies to operators, hosts and validators behind a DNS64, and not to
//! the server.

mod reply;
mod reverse;

use domain::base::iana::Rtype;

use crate::check::{Check, Level, Need};

/// Field values that all checks in this file have in common. The remaining fields are set in each check.
const RFC6147: Check = Check { rfc: 6147, ..Check::BASE };

/// Field values that all checks of reverse names have in common.
const REVERSE: Check =
    Check { section: "5.3.1", needs: &[Need::Zone, Need::Everything], ..RFC6147 };

const EITHER: &str = "There are two alternatives for a DNS64 server to respond to such PTR \
     queries. A DNS64 server MUST provide one of these …";
const EXAMINE: &str = "If a DNS64 server receives a PTR query for a record in the IP6.ARPA domain, \
     it MUST strip the IP6.ARPA labels from the QNAME, reverse the address portion of the QNAME \
     according to the encoding scheme outlined in Section 2.5 of [RFC3596], and examine the \
     resulting address …";
const ENSURE: &str = "In this case, the DNS64 name server SHOULD ensure that there is RDATA at the \
     PTR of the corresponding IN-ADDR.ARPA name …";
const UNCHANGED: &str = "All other RRs MUST be returned unchanged.";
const HEADER: &str = "The header fields are set according to the usual rules for recursive or \
     authoritative servers, depending on the role that the DNS64 is serving.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.3.1-ptr",
        title: "A PTR query below the prefix gets a PTR record, or an alias of a name with one",
        sentence: EITHER,
        level: Level::Must,
        script: reverse::is_answered,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-not-both",
        title: "All PTR queries below the prefix are answered in the same of the two ways",
        sentence: "A DNS64 server MUST provide one of these, and SHOULD NOT provide both at the \
             same time unless different IP6.ARPA zones require answers of different sorts",
        level: Level::Should,
        script: reverse::in_one_way,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-alias-target",
        title: "The alias leads to the in-addr.arpa name of the embedded address",
        sentence: "The second option is for the DNS64 name server to synthesize a CNAME mapping \
             the IP6.ARPA namespace to the corresponding IN-ADDR.ARPA name.",
        script: reverse::leads_to_the_address,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5-ptr-all-prefixes",
        title: "PTR queries are answered below each prefix that is used for synthesis",
        section: "5",
        sentence: "DNS64 also responds to PTR queries involving addresses containing any of the \
             IPv6 prefixes it uses for synthesis of AAAA RRs.",
        script: reverse::below_all_prefixes,
        ..REVERSE
    },
    Check {
        id: "rfc8020-2-reverse-nodes",
        title: "The nodes of ip6.arpa between a prefix and its PTR records are NODATA, not NXDOMAIN",
        rfc: 8020,
        section: "2",
        sentence: "When an iterative caching DNS resolver receives an NXDOMAIN response, it SHOULD \
             store it in its cache and then all names and resource record sets (RRsets) at or below \
             that node SHOULD be considered unreachable.",
        level: Level::Should,
        script: reverse::nodes_are_empty,
        ..REVERSE
    },
    Check {
        id: "rfc1034-3.1-ptr-letter-case",
        title: "Nibbles are read in either letter case",
        rfc: 1034,
        section: "3.1",
        sentence: "By convention, domain names can be stored with arbitrary case, but domain name \
             comparisons for all present domain functions are done in a case-insensitive manner",
        script: reverse::in_capitals,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-nxdomain-behind",
        title: "No alias leads to a nonexistent in-addr.arpa name",
        sentence: ENSURE,
        level: Level::Should,
        script: |t| reverse::target_has_no_record(t, "9.9.9.250"),
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-nodata-behind",
        title: "No alias leads to an in-addr.arpa name without PTR",
        sentence: ENSURE,
        level: Level::Should,
        script: |t| reverse::target_has_no_record(t, "9.9.9.251"),
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-servfail-behind",
        title: "A failure of in-addr.arpa is a failure, not a denial",
        sentence: "The rest of the response would be the normal DNS processing.",
        script: reverse::fails_behind,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-nibble-count",
        title: "A name with 31 or 33 nibbles is no address and gets no alias",
        sentence: EXAMINE,
        level: Level::Must,
        script: reverse::wrong_in_number,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-no-nibbles",
        title: "A name with a label that is no nibble is no address and gets no alias",
        sentence: EXAMINE,
        level: Level::Must,
        script: reverse::no_nibbles,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-suffix",
        title: "An address below the prefix with a non-zero suffix gets a reply",
        sentence: EXAMINE,
        script: reverse::with_suffix,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-other-addresses",
        title: "PTR queries for addresses outside the prefixes are resolved normally",
        sentence: "If the address prefix does not match any Pref64::/n, then the DNS64 server MUST \
             process the query as though it were any other query; i.e., a recursive name server \
             MUST attempt to resolve the query …",
        level: Level::Must,
        script: reverse::outside,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.2-nothing-made",
        title: "No AAAA record of the additional section is synthesized",
        section: "5.3.2",
        sentence: "DNS64 synthesis MUST NOT be performed on any records in the additional section \
             of synthesized answers.",
        level: Level::Must,
        script: reply::additional_not_made,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.2-unchanged",
        title: "A records of the additional section are returned unchanged",
        section: "5.3.2",
        sentence: "The DNS64 MUST pass the additional section unchanged.",
        level: Level::Must,
        script: reply::additional_unchanged,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.2-asked-for-later",
        title: "The address of an MX record's host is synthesized when it is queried",
        section: "5.3.2",
        sentence: "An IPv6-only client that needs a AAAA record, therefore, will send a query for \
             the necessary AAAA record if it is unable to find such a record in the additional \
             section …",
        script: reply::host_is_made,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-txt",
        title: "A TXT record is returned alone",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::text,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-hosts",
        title: "MX, NS and SRV records are returned unchanged",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::hosts,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-https",
        title: "An HTTPS record keeps its ipv4hint, and gets no ipv6hint",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: |t| reply::hint(t, "https-1-2-3-4.v4-1-2-3-4", Rtype::HTTPS),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-svcb",
        title: "An SVCB record keeps its ipv4hint, and gets no ipv6hint",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: |t| reply::hint(t, "svcb-1-2-3-4.v4-1-2-3-4", Rtype::SVCB),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-any",
        title: "The reply to ANY contains no synthesized record (RFC 8482 §4 allows several replies)",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::any,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-any-after-aaaa",
        title: "The reply to ANY contains no synthesized record after an AAAA query of the name, \
            even if the synthesized records are cached",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::any_after_aaaa,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-cname",
        title: "A query for CNAME gets the CNAME record, and nothing is synthesized from its target",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::cname,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-denial",
        title: "A denial of any other type remains a denial, for known and unknown types",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::denials,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-question",
        title: "The question has exactly the letter case of the client's",
        section: "5.4",
        sentence: "The question section is copied from the original (initiator's) query.",
        script: reply::question,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-header",
        title: "A synthesized answer has RA, RD and NOERROR, and neither AA nor TC",
        section: "5.4",
        sentence: HEADER,
        script: reply::header,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-authority",
        title: "A synthesized answer does not contain the denial of AAAA",
        section: "5.4",
        sentence: "The authority and additional sections are copied from the response to the final \
             query that the DNS64 performed, and used as the basis for synthesis.",
        script: reply::authority,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-empty",
        title: "If there is no A record either, the client gets the denial of AAAA with its SOA",
        section: "5.4",
        sentence: "If there is an empty answer, then the DNS64 responds to the original querying \
             client with the answer the DNS64 received to the original (initiator's) query.",
        script: reply::empty,
        ..RFC6147
    },
    Check {
        id: "rfc1034-4.3.1-aliases-first",
        title: "CNAME and DNAME records precede the synthesized records, CNAME records in the order \
             of the chain",
        rfc: 1034,
        section: "4.3.1",
        sentence: "The answer to the query, possibly preface by one or more CNAME RRs that specify \
             aliases encountered on the way to an answer.",
        script: reply::aliases_first,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-truncation",
        title: "A synthesized answer that exceeds the client's limit is truncated, with TC",
        section: "5.4",
        sentence: "The final response from the DNS64 is subject to all the standard DNS rules, \
             including truncation [RFC1035] and EDNS0 handling [RFC2671].",
        script: reply::truncation,
        ..RFC6147
    },
];
