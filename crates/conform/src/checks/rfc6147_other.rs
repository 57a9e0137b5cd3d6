//! RFC 6147 §5.3 and §5.4: names of addresses, the additional section, all other types, and how a
//! reply is put together. The scripts are in `reverse` (§5.3.1) and `reply` (the rest).
//!
//! Section 6 has no checks: it speaks to operators, hosts and validators behind a DNS64, not to the
//! server.

mod reply;
mod reverse;

use std::net::Ipv6Addr;

use domain::base::iana::Rtype;

use super::File;
use crate::check::{Check, Level, Need};
use crate::message::{Message, Record, name, rcode};
use crate::mutants::{Mutant, NO_HOOKS, hook, rule};
use crate::reference::rules::Hooks;
use crate::trial::Fault;

pub(super) const FILE: File = File { checks: CHECKS, mutants: MUTANTS };

/// What the checks of this file have in common; each fills in the rest.
const RFC6147: Check = Check {
    id: "",
    title: "",
    rfc: 6147,
    section: "",
    sentence: "",
    level: Level::Says,
    needs: &[Need::Zone],
    contradicts: None,
    script: |_| Err(Fault::NotTried("the check has no script".into())),
};

/// … and those of reverse names.
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

const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.3.1-ptr",
        title: "A PTR query below the prefix gets a pointer, or an alias with one behind it",
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
        title: "PTR queries are answered below each prefix with which records are made",
        section: "5",
        sentence: "DNS64 also responds to PTR queries involving addresses containing any of the \
             IPv6 prefixes it uses for synthesis of AAAA RRs.",
        script: reverse::below_all_prefixes,
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
        title: "No alias leads to an in-addr.arpa name that does not exist",
        sentence: ENSURE,
        level: Level::Should,
        script: |t| reverse::leads_nowhere(t, "9.9.9.250"),
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-nodata-behind",
        title: "No alias leads to an in-addr.arpa name without PTR",
        sentence: ENSURE,
        level: Level::Should,
        script: |t| reverse::leads_nowhere(t, "9.9.9.251"),
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
        title: "A name with 31 or 33 nibbles is no address: no alias",
        sentence: EXAMINE,
        level: Level::Must,
        script: reverse::wrong_in_number,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-no-nibbles",
        title: "A name with a label that is no nibble is no address: no alias",
        sentence: EXAMINE,
        level: Level::Must,
        script: reverse::no_nibbles,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-suffix",
        title: "An address below the prefix with a suffix that is not zero is answered somehow",
        sentence: EXAMINE,
        script: reverse::with_suffix,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.1-other-addresses",
        title: "PTR queries for addresses outside the prefixes are passed on",
        sentence: "If the address prefix does not match any Pref64::/n, then the DNS64 server MUST \
             process the query as though it were any other query; i.e., a recursive name server \
             MUST attempt to resolve the query …",
        level: Level::Must,
        script: reverse::outside,
        ..REVERSE
    },
    Check {
        id: "rfc6147-5.3.2-nothing-made",
        title: "No AAAA record of the additional section is made",
        section: "5.3.2",
        sentence: "DNS64 synthesis MUST NOT be performed on any records in the additional section \
             of synthesized answers.",
        level: Level::Must,
        script: reply::additional_not_made,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.2-unchanged",
        title: "A records of the additional section are passed on as they are",
        section: "5.3.2",
        sentence: "The DNS64 MUST pass the additional section unchanged.",
        level: Level::Must,
        script: reply::additional_unchanged,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.2-asked-for-later",
        title: "The host of an MX record is translated when it is asked for",
        section: "5.3.2",
        sentence: "An IPv6-only client that needs a AAAA record, therefore, will send a query for \
             the necessary AAAA record if it is unable to find such a record in the additional \
             section …",
        script: reply::host_is_made,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-txt",
        title: "A TXT record is returned, and nothing with it",
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
        title: "Nothing is made for ANY, however it is answered (RFC 8482 section 4)",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::any,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-cname",
        title: "A query for CNAME gets the CNAME record, and nothing is made of what it leads to",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::cname,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.3.3-denial",
        title: "A denial of any other type is a denial, known type or not",
        section: "5.3.3",
        sentence: UNCHANGED,
        level: Level::Must,
        script: reply::denials,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-question",
        title: "The question is the client's, letter for letter",
        section: "5.4",
        sentence: "The question section is copied from the original (initiator's) query.",
        script: reply::question,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-header",
        title: "A made answer has RA and RD, no AA, no TC, NOERROR",
        section: "5.4",
        sentence: HEADER,
        script: reply::header,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-authority",
        title: "The denial of AAAA does not stand beside a made answer",
        section: "5.4",
        sentence: "The authority and additional sections are copied from the response to the final \
             query that the DNS64 performed, and used as the basis for synthesis.",
        script: reply::authority,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-empty",
        title: "Where there is no A record either, the client gets the denial of AAAA with its SOA",
        section: "5.4",
        sentence: "If there is an empty answer, then the DNS64 responds to the original querying \
             client with the answer the DNS64 received to the original (initiator's) query.",
        script: reply::empty,
        ..RFC6147
    },
    Check {
        id: "rfc1034-4.3.1-aliases-first",
        title: "Aliases stand in their order before what was made",
        rfc: 1034,
        section: "4.3.1",
        sentence: "The answer to the query, possibly preface by one or more CNAME RRs that specify \
             aliases encountered on the way to an answer.",
        script: reply::aliases_first,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.4-truncation",
        title: "An answer that grew too long is truncated, with TC, to what the client takes",
        section: "5.4",
        sentence: "The final response from the DNS64 is subject to all the standard DNS rules, \
             including truncation [RFC1035] and EDNS0 handling [RFC2671].",
        script: reply::truncation,
        ..RFC6147
    },
];

/// A mutant that changes its replies.
const fn replies(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&Message, &mut Message),
) -> Mutant {
    hook(name, caught_by, Hooks { reply: Some(change), ..NO_HOOKS })
}

const MUTANTS: &[Mutant] = &[
    rule("ptr-passed-on", "rfc6147-5.3.1-ptr", |rules| rules.reverse = false),
    replies("ptr-answered-both-ways", "rfc6147-5.3.1-not-both", |query, reply| {
        // Only some addresses: those with an odd last nibble.
        if asked(query).starts_with(['1', '3', '5', '7', '9']) && is_aliased(reply) {
            let record = pointer(query, "dns64.example");
            reply.answer = vec![record];
        }
    }),
    replies("ptr-octets-swapped", "rfc6147-5.3.1-alias-target", |query, reply| {
        if is_aliased(reply) && wants(query, Rtype::PTR) {
            alias(query, reply, "7.6.9.8.in-addr.arpa");
        }
    }),
    replies("ptr-below-one-prefix-only", "rfc6147-5-ptr-all-prefixes", |query, reply| {
        // Shown by a reference with two prefixes, this one the second: 3fff:65:65::/48.
        if asked(query).ends_with("5.6.0.0.5.6.0.0.f.f.f.3.ip6.arpa") {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("nibbles-in-capitals-unknown", "rfc1034-3.1-ptr-letter-case", |query, reply| {
        if asked(query).contains(|c: char| c.is_ascii_uppercase()) {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("alias-to-nxdomain", "rfc6147-5.3.1-nxdomain-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::NXDOMAIN {
            alias(query, reply, "250.9.9.9.in-addr.arpa");
        }
    }),
    replies("alias-to-nodata", "rfc6147-5.3.1-nodata-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.answer.is_empty() {
            alias(query, reply, "251.9.9.9.in-addr.arpa");
        }
    }),
    replies("failure-behind-denied", "rfc6147-5.3.1-servfail-behind", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::SERVFAIL {
            deny(reply, rcode::NXDOMAIN);
        }
    }),
    replies("nibbles-not-counted", "rfc6147-5.3.1-nibble-count", |query, reply| {
        let nibbles = query.question().map_or(0, |question| question.name.label_count());
        if wants(query, Rtype::PTR) && nibbles == 33 + 3 {
            alias(query, reply, "4.3.2.1.in-addr.arpa");
        }
    }),
    replies("letters-taken-for-nibbles", "rfc6147-5.3.1-no-nibbles", |query, reply| {
        if wants(query, Rtype::PTR) && asked(query).contains('z') {
            alias(query, reply, "4.3.2.0.in-addr.arpa");
        }
    }),
    replies("suffix-fails", "rfc6147-5.3.1-suffix", |query, reply| {
        if wants(query, Rtype::PTR) && asked(query).starts_with("1.0.0.0.0.0.") {
            deny(reply, rcode::SERVFAIL);
        }
    }),
    replies("all-addresses-aliased", "rfc6147-5.3.1-other-addresses", |query, reply| {
        if wants(query, Rtype::PTR) && reply.rcode == rcode::NXDOMAIN {
            alias(query, reply, "4.3.2.1.in-addr.arpa");
            reply.rcode = rcode::NOERROR;
        }
    }),
    replies("additional-made", "rfc6147-5.3.2-nothing-made", |_, reply| {
        let made = |record: &Record| {
            let v4 = record.ipv4()?;
            let address = u128::from(MADE) & !0xffff_ffff | u128::from(u32::from(v4));
            Some(Record::aaaa(record.owner.clone(), record.ttl, address.into()))
        };
        let made: Vec<Record> = reply.additional.iter().filter_map(made).collect();
        reply.additional.extend(made);
    }),
    replies("additional-a-changed", "rfc6147-5.3.2-unchanged", |_, reply| {
        for record in reply.additional.iter_mut().filter(|record| record.rtype == Rtype::A) {
            record.data.reverse();
        }
    }),
    replies("host-names-not-made", "rfc6147-5.3.2-asked-for-later", |query, reply| {
        if asked(query).contains(".host.") {
            deny(reply, rcode::NOERROR);
        }
    }),
    replies("made-beside-txt", "rfc6147-5.3.3-txt", |q, r| add_made(q, r, Rtype::TXT)),
    replies("mx-replaced-by-its-host", "rfc6147-5.3.3-hosts", |_, reply| {
        for record in reply.answer.iter_mut().filter(|record| record.rtype == Rtype::MX) {
            *record = Record::aaaa(record.owner.clone(), record.ttl, MADE);
        }
    }),
    replies("https-hint-made", "rfc6147-5.3.3-https", |_, reply| add_hint(reply, Rtype::HTTPS)),
    replies("svcb-hint-made", "rfc6147-5.3.3-svcb", |_, reply| add_hint(reply, Rtype::SVCB)),
    replies("made-for-any", "rfc6147-5.3.3-any", |q, r| add_made(q, r, Rtype::ANY)),
    replies("made-beside-cname", "rfc6147-5.3.3-cname", |q, r| add_made(q, r, Rtype::CNAME)),
    replies("other-types-made", "rfc6147-5.3.3-denial", |query, reply| {
        if !wants(query, Rtype::AAAA) && reply.answer.is_empty() && reply.rcode == rcode::NOERROR {
            reply.answer.push(made(query));
        }
    }),
    replies("question-in-small-letters", "rfc6147-5.4-question", |_, reply| {
        for question in &mut reply.questions {
            question.name = name(&question.name.to_string().to_ascii_lowercase());
        }
    }),
    replies("aa-copied", "rfc6147-5.4-header", |_, reply| reply.flags.aa = true),
    replies("denial-beside-the-made", "rfc6147-5.4-authority", |query, reply| {
        if wants(query, Rtype::AAAA) && !reply.answer.is_empty() {
            reply.authority.push(Record::soa(&name("example"), 300, 300));
        }
    }),
    replies("denial-without-soa", "rfc6147-5.4-empty", |query, reply| {
        if wants(query, Rtype::AAAA) && reply.answer.is_empty() {
            reply.authority.clear();
        }
    }),
    replies("aliases-last", "rfc1034-4.3.1-aliases-first", |_, reply| reply.answer.reverse()),
    rule("made-answer-too-long", "rfc6147-5.4-truncation", |rules| rules.truncates = false),
];

/// What mutants put where nothing is to be made: 1.2.3.4 below the Well-Known Prefix.
const MADE: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x102, 0x304);

/// For mutants: the name asked for, as it was written.
fn asked(query: &Message) -> String {
    query.question().map(|question| question.name.to_string()).unwrap_or_default()
}

/// For mutants: whether this type is asked for.
fn wants(query: &Message, qtype: Rtype) -> bool {
    query.question().is_some_and(|question| question.qtype == qtype)
}

/// For mutants: whether the answer begins with an alias.
fn is_aliased(reply: &Message) -> bool {
    reply.answer.first().is_some_and(|record| record.rtype == Rtype::CNAME)
}

/// For mutants: the reply has nothing left but its RCODE.
fn deny(reply: &mut Message, code: u16) {
    reply.rcode = code;
    reply.answer.clear();
}

/// For mutants: a PTR record for the name asked for.
fn pointer(query: &Message, target: &str) -> Record {
    Record::pointing(name(&asked(query)), Rtype::PTR, 300, &name(target))
}

/// For mutants: the answer is an alias with this target.
fn alias(query: &Message, reply: &mut Message, target: &str) {
    let record = Record::pointing(name(&asked(query)), Rtype::CNAME, 300, &name(target));
    reply.answer.retain(|record| record.rtype != Rtype::CNAME);
    reply.answer.insert(0, record);
}

/// For mutants: a made record for the name asked for.
fn made(query: &Message) -> Record {
    Record::aaaa(name(&asked(query)), 300, MADE)
}

/// For mutants: adds a made record to answers to queries for this type.
fn add_made(query: &Message, reply: &mut Message, qtype: Rtype) {
    if wants(query, qtype) {
        reply.answer.push(made(query));
    }
}

/// For mutants: adds `ipv6hint` (RFC 9460 §14.3.2: key 6) to records of this type.
fn add_hint(reply: &mut Message, rtype: Rtype) {
    for record in reply.answer.iter_mut().filter(|record| record.rtype == rtype) {
        record.data.extend([0, 6, 0, 16]);
        record.data.extend(MADE.octets());
    }
}
