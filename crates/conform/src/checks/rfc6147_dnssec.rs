//! RFC 6147 §3 and §5.5: treatment of DO, CD and AD by a DNS64, and the requirements for these bits in RFC 4035 and RFC
//! 6840 that concern DNS64. The scripts are in `scripts`.
//!
//! | zone | query without CD | query with CD |
//! |---|---|---|
//! | unsigned | synthesis; the reply never has AD | with DO: no synthesis |
//! | `secure`, `nsec3` | synthesis; with DO, synthesis is optional, and the answer has AD | with DO: a denial with proof |
//! | `bogus`, `expired` | SERVFAIL | the unchanged data |
//!
//! A server without validation treats all zones alike, as described in §3. RFC 6147 §5.5, item 1, forbids AD in the
//! reply to a query without DO, but RFC 6840 §5.7 lets a client request AD by setting AD in the query. In reply to a
//! query with AD and without DO, the checks therefore accept both values of AD.

mod scripts;

use domain::base::iana::Rtype;

use crate::check::{Check, Level, Need};

/// Values of the fields that all checks for DNSSEC-validating servers share. Each check sets the remaining fields.
const VALIDATING: Check = Check {
    rfc: 6147,
    section: "5.5",
    level: Level::Must,
    needs: &[Need::Zone, Need::Validation],
    ..Check::BASE
};

/// Values of the fields shared by all checks that apply only to servers without DNSSEC validation.
const TRUSTING: Check = Check {
    section: "3",
    level: Level::Says,
    needs: &[Need::Zone, Need::NoValidation],
    ..VALIDATING
};

/// Values of the fields shared by all checks that apply to servers both with and without DNSSEC validation.
const BOTH: Check = Check { needs: &[Need::Zone], ..VALIDATING };

const CD_AND_DO: &str = "If the CD bit is set and DO is set, then vDNS64 MAY perform validation, \
     but MUST NOT perform synthesis.";
const RETURN_DATA: &str = "It MUST return the data to the query initiator, just like a regular \
     recursive resolver, and depend on the client to do the validation and the synthesis itself.";
const NEGATIVE: &str = "Whenever vDNS64 performs validation, it MUST validate the negative answer \
     for AAAA queries before proceeding to query for A records for the same name, in order to be \
     sure that there is not a legitimate AAAA record on the Internet.";
const INVALID: &str = "If the data does not validate, the vDNS64 MUST respond with RCODE=2 (Server \
     failure).";
const NEITHER: &str = "If CD is not set and DO is not set, vDNS64 SHOULD perform validation and do \
     synthesis as needed.";
const VALID: &str = "If the negative response validates, and the response to the A query \
     validates, then the vDNS64 MAY perform synthesis and SHOULD set the AD bit in the answer to \
     the client.";
const AUTHENTIC: &str = "The name server side of a security-aware recursive name server MUST NOT \
     set the AD bit in a response unless the name server considers all RRsets in the Answer and \
     Authority sections of the response to be authentic.";
const BAD_CACHE: &str = "If the CD bit is set, the name server side SHOULD return the data from \
     the BAD cache; if the CD bit is not set, the name server side MUST return RCODE 2 (server \
     failure).";
const WITHOUT_DO: &str = "A DNS64 (DNSSEC-aware or DNSSEC-oblivious) receives a query with the DO \
     bit clear. In this case, DNSSEC is not a concern, because the querying agent does not \
     understand DNSSEC responses.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1.1-any-bits",
        title: "Native AAAA records are returned alone for any DO, CD and AD",
        section: "5.1.1",
        sentence: "By default, DNS64 implementations MUST NOT synthesize AAAA RRs when real AAAA \
             RRs exist.",
        script: scripts::native_with_any_bits,
        ..BOTH
    },
    Check {
        id: "rfc6147-3-ad-query",
        title: "AD in the query alone has no effect: records are synthesized",
        section: "3",
        sentence: WITHOUT_DO,
        level: Level::Says,
        script: scripts::made_with_ad,
        ..BOTH
    },
    Check {
        id: "rfc6147-3-cd-alone",
        title: "CD without DO gets the synthesized answer or the original data, and no error",
        section: "3",
        sentence: WITHOUT_DO,
        level: Level::Says,
        script: scripts::cd_alone,
        ..BOTH
    },
    Check {
        id: "rfc6147-3-do-alone",
        title: "A non-validating server synthesizes for unsigned names and clients with DO",
        sentence: "A security-aware and non-validating DNS64 receives a query with the DO bit set \
             and the CD bit clear. … this case amounts to the same as the previous case, and no \
             validation happens.",
        script: scripts::trusting_with_do,
        ..TRUSTING
    },
    Check {
        id: "rfc6147-3-cd-do",
        title: "A non-validating server with DNSSEC support synthesizes nothing with CD and DO",
        sentence: "A security-aware and non-validating DNS64 receives a query with the DO bit set \
             and the CD bit set. In this case, the DNS64 is supposed to pass on all the data it \
             gets to the query initiator",
        script: scripts::trusting_with_cd_do,
        ..TRUSTING
    },
    Check {
        id: "rfc4035-3.2.3-ad-not-copied",
        title: "Without validation, AD of the upstream is not copied to synthesized answers",
        rfc: 4035,
        section: "3.2.3",
        sentence: AUTHENTIC,
        level: Level::Must,
        script: scripts::ad_not_copied,
        ..TRUSTING
    },
    Check {
        id: "rfc4035-3.2.3-ad-not-echoed",
        title: "AD of the query is not copied to replies about unsigned names",
        rfc: 4035,
        section: "3.2.3",
        sentence: AUTHENTIC,
        script: scripts::ad_not_echoed,
        ..BOTH
    },
    Check {
        id: "rfc4035-3.2.1-no-signatures",
        title: "Clients without DO get no RRSIG, NSEC or NSEC3",
        rfc: 4035,
        section: "3.2.1",
        sentence: "If the DO bit in an initiating query is not set, the name server side MUST \
             strip any authenticating DNSSEC RRs from the response",
        script: scripts::no_signatures,
        ..BOTH
    },
    Check {
        id: "hardening-signed-made",
        title: "Neither the synthesized records nor the removed A records have an RRSIG",
        rfc: 0,
        section: "",
        sentence: "A signature that cannot match makes validators behind the DNS64 fail, and is \
            useless to others.",
        level: Level::Hardening,
        script: scripts::made_not_signed,
        ..BOTH
    },
    Check {
        id: "rfc6147-5.5-cd-do",
        title: "With CD and DO nothing is synthesized for signed names",
        sentence: CD_AND_DO,
        script: |t| {
            let signed = ["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", "v4-1-2-3-4.bogus"];
            scripts::not_made(t, &signed)?;
            scripts::not_made(t, &["cname.v4-1-2-3-4.secure", "wild.v4-1-2-3-4.nsec3"])
        },
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-cd-do-unsigned",
        title: "With CD and DO nothing is synthesized for unsigned names either",
        sentence: CD_AND_DO,
        script: |t| scripts::not_made(t, &["v4-1-2-3-4", "v4-1-2-3-4.b", "hop.v4-1-2-3-4"]),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-cd-do-cached",
        title: "The bits of one client's query do not affect cached answers to the next client",
        sentence: CD_AND_DO,
        script: scripts::bits_and_cache,
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-cd-do-proof",
        title: "With CD and DO the denial has its SOA, NSEC or NSEC3, and their signatures",
        sentence: RETURN_DATA,
        script: scripts::cd_do_proof,
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-cd-do-bogus",
        title: "With CD and DO, data that does not validate is returned",
        sentence: RETURN_DATA,
        script: scripts::cd_do_bogus,
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-bogus-denial",
        title: "A denial of AAAA that does not validate gives SERVFAIL, and nothing is synthesized",
        sentence: NEGATIVE,
        script: |t| scripts::fails(t, &["v4-1-2-3-4.bogus", "v4-1-2-3-4.expired"], Rtype::AAAA),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-bogus-native",
        title: "AAAA records that do not validate give SERVFAIL, and A is not used",
        sentence: INVALID,
        script: |t| {
            let both = "v4-1-2-3-4.v6-26000001000000000000000000000053";
            scripts::fails(t, &[&format!("{both}.bogus"), &format!("{both}.expired")], Rtype::AAAA)
        },
        ..VALIDATING
    },
    Check {
        id: "rfc4035-5.5-bogus-nxdomain",
        title: "A name error that does not validate gives SERVFAIL",
        rfc: 4035,
        section: "5.5",
        sentence: "If the validation was being done to service a recursive query, the name server \
             MUST return RCODE 2 to the originating client.",
        script: |t| scripts::fails(t, &["all-rcode-3.bogus", "all-rcode-3.expired"], Rtype::AAAA),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-plain",
        title: "Without DO and CD, AAAA records are also synthesized for signed names",
        sentence: NEITHER,
        level: Level::Should,
        script: |t| scripts::made(t, &["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3"]),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-plain-insecure",
        title: "A validating server synthesizes AAAA records for names of unsigned zones",
        sentence: NEITHER,
        level: Level::Should,
        script: |t| scripts::made(t, &["v4-1-2-3-4", "v4-1-2-3-4.b", "hop.v4-1-2-3-4.secure"]),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-plain-aliases",
        title: "Without DO and CD, signed aliases are followed to synthesized records",
        sentence: NEITHER,
        level: Level::Should,
        script: |t| scripts::made(t, &["cname.v4-1-2-3-4.secure", "dname.v4-1-2-3-4.nsec3"]),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-plain-wildcard",
        title: "Without DO and CD, AAAA records are synthesized for names from a signed wildcard",
        sentence: NEITHER,
        level: Level::Should,
        script: |t| scripts::made(t, &["wild.v4-1-2-3-4.secure", "wild.v4-1-2-3-4.nsec3"]),
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-plain-no-ad",
        title: "Without DO and CD, AD is never set",
        sentence: "In this case, however, vDNS64 MUST NOT set the AD bit in any response.",
        script: scripts::no_ad_without_do,
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-do",
        title: "With DO alone, AAAA records of a signed name are synthesized, or denied with proof",
        sentence: VALID,
        level: Level::May,
        script: scripts::made_or_denied,
        ..VALIDATING
    },
    Check {
        id: "rfc6147-5.5-do-ad",
        title: "Answers synthesized from validated data for a client with DO have AD",
        sentence: VALID,
        level: Level::Should,
        script: scripts::made_has_ad,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.3-ad",
        title: "Native records and denials that validate have AD for clients with DO",
        rfc: 4035,
        section: "3.2.3",
        sentence: "The name server side SHOULD set the AD bit if and only if the resolver side \
             considers all RRsets in the Answer section and any relevant negative response RRs in \
             the Authority section to be authentic.",
        level: Level::Should,
        script: scripts::native_has_ad,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.3-ad-insecure",
        title: "Unsigned data has no AD, native or synthesized, even if the upstream set it",
        rfc: 4035,
        section: "3.2.3",
        sentence: AUTHENTIC,
        script: scripts::insecure_has_no_ad,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.3-ad-mixed",
        title: "A signed alias of an unsigned name gives no AD",
        rfc: 4035,
        section: "3.2.3",
        sentence: AUTHENTIC,
        script: scripts::mixed_chain_has_no_ad,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.1.1-signatures",
        title: "Native records have their signatures for clients with DO",
        rfc: 4035,
        section: "3.1.1",
        sentence: "When placing a signed RRset in the Answer section, the name server MUST also \
             place its RRSIG RRs in the Answer section.",
        script: scripts::native_has_signatures,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.1.3.3-wildcard",
        title: "Native records from a wildcard have the proof that there is no closer name",
        rfc: 4035,
        section: "3.1.3.3",
        sentence: "the name server … MUST include in the Authority section an NSEC RR and \
             associated RRSIG RR(s) proving that the zone does not contain a closer match",
        script: scripts::wildcard_has_proof,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.1-do-upstream",
        title: "Upstream queries have DO",
        rfc: 4035,
        section: "3.2.1",
        sentence: "The resolver side of a security-aware recursive name server MUST set the DO bit \
             when sending requests, regardless of the state of the DO bit in the initiating \
             request …",
        needs: &[Need::Zone, Need::Validation, Need::View],
        script: scripts::do_upstream,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.2-cd-copied",
        title: "CD of the query is copied to the reply",
        rfc: 4035,
        section: "3.2.2",
        sentence: "The name server side MUST copy the setting of the CD bit from a query to the \
             corresponding response.",
        script: scripts::cd_copied,
        ..VALIDATING
    },
    Check {
        id: "rfc3225-3-do-copied",
        title: "The reply has the DO bit of the query",
        rfc: 3225,
        section: "3",
        sentence: "The DO bit of the query MUST be copied in the response.",
        script: scripts::do_copied,
        ..BOTH
    },
    Check {
        id: "rfc4035-3.2.2-bad-cache-cd",
        title: "After a cached failure, a query with CD still gets the data",
        rfc: 4035,
        section: "3.2.2",
        sentence: BAD_CACHE,
        level: Level::Should,
        script: scripts::cd_after_failure,
        ..VALIDATING
    },
    Check {
        id: "rfc4035-3.2.2-bad-cache",
        title: "After a client with CD received bogus data, one without CD gets SERVFAIL",
        rfc: 4035,
        section: "3.2.2",
        sentence: BAD_CACHE,
        script: scripts::failure_after_cd,
        ..VALIDATING
    },
    Check {
        id: "rfc6840-5.7-ad-query",
        title: "AD in the query requests AD in the reply, without signatures",
        rfc: 6840,
        section: "5.7",
        sentence: "This allows a requester to indicate that it understands the AD bit without also \
             requesting DNSSEC data via the DO bit.",
        level: Level::Says,
        script: scripts::ad_asked_for,
        ..VALIDATING
    },
    Check {
        id: "rfc6840-5.8-ad-unasked",
        title: "CD alone does not request AD",
        rfc: 6840,
        section: "5.8",
        sentence: "validating resolvers SHOULD only set the AD bit when a response both meets the \
             conditions listed in Section 3.2.3 of [RFC4035], and the request contained either a \
             set DO bit or a set AD bit.",
        level: Level::Should,
        script: scripts::cd_has_no_ad,
        ..VALIDATING
    },
    Check {
        id: "rfc6840-5.9-cd-bogus",
        title: "CD without DO gets data that does not validate",
        rfc: 6840,
        section: "5.9",
        sentence: "When processing a request with the Checking Disabled (CD) bit set, a resolver \
             SHOULD attempt to return all response data, even data that has failed DNSSEC \
             validation.",
        level: Level::Should,
        script: scripts::cd_bogus,
        ..VALIDATING
    },
    Check {
        id: "rfc6840-5.9-cd-upstream",
        title: "A forwarder copies CD to upstream queries",
        rfc: 6840,
        section: "5.9",
        sentence: "Section 3.2.2 of [RFC4035] requires a resolver processing a request with the CD \
             bit set to set the CD bit on its upstream queries.",
        level: Level::Says,
        needs: &[Need::Zone, Need::Validation, Need::View],
        script: scripts::cd_upstream,
        ..VALIDATING
    },
];
