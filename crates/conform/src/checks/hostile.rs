//! Hostile input from upstreams and from clients. Upstreams send forged, out-of-zone or odd replies (RFC 5452). Clients
//! flood the server, query names for which the upstream does not reply, or send malformed messages.

mod forgery;
mod load;

use crate::check::{Check, Level, Need};
use forgery::{
    forged_ids, forged_ports, forged_questions, forgery_is_not_the_last_word,
    ids_are_not_the_clients, ids_are_unpredictable, letter_case_does_not_matter,
    mixed_types_are_dropped, out_of_zone_records_are_dropped, ports_are_many, ports_are_several,
    ports_are_unpredictable,
};
use load::{
    chains_end, crowds_are_answered, crowds_are_asked_for_once, dead_names_harm_no_others,
    failures_are_of_a_type, loops_are_bounded, malformed_queries_end_nothing, noise_ends_nothing,
    questions_are_asked_three_times_at_most, stray_tcp_octets_end_nothing,
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc5452-9.1-id",
        title: "A forged reply with another ID is not accepted",
        rfc: 5452,
        section: "9.1",
        sentence: "A resolver implementation MUST match responses to all of the following \
             attributes of the query: … Query ID …. A mismatch and the response MUST be considered \
             invalid.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: forged_ids,
    },
    Check {
        id: "hardening-forged-port",
        title: "A forged reply from another port of the upstream is not accepted",
        rfc: 0,
        section: "",
        sentence: "A reply should come from the port to which the query was sent, not only from \
            its address, which is all that RFC 5452 §9.1 requires of the source.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: forged_ports,
    },
    Check {
        id: "rfc5452-9.1-question",
        title: "A forged reply for another question is not accepted",
        rfc: 5452,
        section: "9.1",
        sentence: "A resolver implementation MUST match responses to all of the following \
             attributes of the query: … Query name …. A mismatch and the \
             response MUST be considered invalid.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: forged_questions,
    },
    Check {
        id: "hardening-forged-then-true",
        title: "After a forged reply, the server still waits for the genuine one",
        rfc: 0,
        section: "",
        sentence: "A reply that does not match the query should be dropped and should not end the \
            query: otherwise, guessing a port is enough to make a name unavailable.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: forgery_is_not_the_last_word,
    },
    Check {
        id: "rfc5452-9.2-several-ports",
        title: "Queries for 64 names at the same time use several source ports",
        rfc: 5452,
        section: "9.2",
        sentence: "Resolver implementations MUST: … Use multiple different source ports \
             simultaneously in case of multiple outstanding queries …",
        level: Level::Must,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: ports_are_several,
    },
    Check {
        id: "hardening-many-ports",
        title: "32 upstream queries that are in flight at the same time, but were not sent \
            together, use at least 16 source ports",
        rfc: 0,
        section: "",
        sentence: "Most of the queries that are in flight at the same time should have different \
            source ports: a forger that finds the port of one query should not have those of the \
            others. Queries that are sent together may share a port.",
        level: Level::Hardening,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: ports_are_many,
    },
    Check {
        id: "rfc5452-9.2-ports-unpredictable",
        title: "Source ports of consecutive queries are unpredictable",
        rfc: 5452,
        section: "9.2",
        sentence: "Resolver implementations MUST: … Use an unpredictable source port for outgoing \
             queries from the range of available ports (53, or 1024 and above) that is as large as \
             possible and practicable …",
        level: Level::Must,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: ports_are_unpredictable,
    },
    Check {
        id: "rfc5452-9.2-ids-unpredictable",
        title: "IDs of consecutive queries are unpredictable",
        rfc: 5452,
        section: "9.2",
        sentence: "Resolver implementations MUST: … Use an unpredictable query ID for outgoing \
             queries, utilizing the full range available (0-65535).",
        level: Level::Must,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: ids_are_unpredictable,
    },
    Check {
        id: "rfc5452-9.2-ids-own",
        title: "IDs of upstream queries are not those of the client's queries",
        rfc: 5452,
        section: "9.2",
        sentence: "Resolver implementations MUST: … Use an unpredictable query ID for outgoing \
             queries, utilizing the full range available (0-65535).",
        level: Level::Must,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: ids_are_not_the_clients,
    },
    Check {
        id: "hardening-out-of-zone",
        title: "Addresses for a name of the parent zone are neither returned nor cached",
        rfc: 0,
        section: "",
        sentence: "A server should accept only data of the domain for which it sent the query (RFC \
            5452 §6), also from a forwarder, which may itself receive forged data.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: out_of_zone_records_are_dropped,
    },
    Check {
        id: "hardening-mixed-types",
        title: "A records in an answer for AAAA, and AAAA records in one for A, are not returned",
        rfc: 0,
        section: "",
        sentence: "An answer should have records of the queried type. A reply that also has others \
            should be treated as one without them, or as no reply.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: mixed_types_are_dropped,
    },
    Check {
        id: "rfc4343-3-letter-case",
        title: "Names are equal in any letter case, from the upstream and from the client",
        rfc: 4343,
        section: "3",
        sentence: "That is to say, a lookup string octet with a value in the inclusive range from \
             0x41 to 0x5A, the uppercase ASCII letters, MUST match the identical value and also \
             match the corresponding value in the inclusive range from 0x61 to 0x7A, the lowercase \
             ASCII letters.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: letter_case_does_not_matter,
    },
    Check {
        id: "rfc1034-3.6.2-long-chain",
        title: "A chain of 25 aliases ends in its addresses or in SERVFAIL",
        rfc: 1034,
        section: "3.6.2",
        sentence: "… by the robustness principle, domain software should not fail when presented \
             with CNAME chains or loops; CNAME chains should be followed ….",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: chains_end,
    },
    Check {
        id: "rfc1034-5.3.3-bounded",
        title: "One query for an alias of itself causes at most 32 upstream queries",
        rfc: 1034,
        section: "5.3.3",
        sentence: "Bound the amount of work (packets sent, parallel processes started) so that a \
             request can't get into an infinite loop or start off a chain reaction of requests or \
             queries with other implementations EVEN IF SOMEONE HAS INCORRECTLY CONFIGURED SOME \
             DATA.",
        level: Level::Says,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: loops_are_bounded,
    },
    Check {
        id: "rfc9520-3.1-tries",
        title: "An unanswered upstream query is sent at most three times over each transport",
        rfc: 9520,
        section: "3.1",
        sentence: "A resolver MUST NOT retry a given query to a server address over a given DNS \
             transport more than twice (i.e., three queries in total) before considering the \
             server address unresponsive over that DNS transport for that query.",
        level: Level::Must,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: questions_are_asked_three_times_at_most,
    },
    Check {
        id: "rfc2308-7.1-tuple",
        title: "Failures of AAAA and A of a name do not affect its other types",
        rfc: 2308,
        section: "7.1",
        sentence: "In either case a resolver MAY cache a server failure response. If it does so … \
             it MUST be cached against the specific query tuple <query name, type, class, server \
             IP address>.",
        level: Level::Must,
        needs: &[Need::Zone],
        contradicts: None,
        script: failures_are_of_a_type,
    },
    Check {
        id: "hardening-overload-answered",
        title: "1000 clients, 250 at a time, that query one new name get answers",
        rfc: 0,
        section: "",
        sentence: "If many clients query a name at once, at least 95 of 100 should get the answer.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: crowds_are_answered,
    },
    Check {
        id: "hardening-overload-asked-once",
        title: "200 clients that query one new name at the same time cause few upstream queries",
        rfc: 0,
        section: "",
        sentence: "Equal upstream queries at the same time should be merged: each additional one \
            is another chance for a forger (RFC 5452 §5).",
        level: Level::Hardening,
        needs: &[Need::Zone, Need::View],
        contradicts: None,
        script: crowds_are_asked_for_once,
    },
    Check {
        id: "hardening-overload-dead-names",
        title: "Other names are answered while 100 clients wait for names of unresponsive servers",
        rfc: 0,
        section: "",
        sentence: "Names of unresponsive servers should not use up the resources that other names \
            need for answers in time.",
        level: Level::Hardening,
        needs: &[Need::Zone],
        contradicts: None,
        script: dead_names_harm_no_others,
    },
    Check {
        id: "hardening-malformed",
        title: "Malformed queries do not crash the server",
        rfc: 0,
        section: "",
        sentence: "Input from a client should never end the service for others: compression loops, \
            wrong lengths, counts above the number of records.",
        level: Level::Hardening,
        needs: &[],
        contradicts: None,
        script: malformed_queries_end_nothing,
    },
    Check {
        id: "hardening-noise",
        title: "200 datagrams of random octets do not crash the server",
        rfc: 0,
        section: "",
        sentence: "Input from a client should never end the service for others: random octets, and \
            a query truncated at each of its octets.",
        level: Level::Hardening,
        needs: &[],
        contradicts: None,
        script: noise_ends_nothing,
    },
    Check {
        id: "hardening-tcp-noise",
        title: "Empty, short and malformed messages over TCP do not crash the server",
        rfc: 0,
        section: "",
        sentence: "Input from a client should never end the service for others: a length of zero, \
            a length without a message, a message of random octets.",
        level: Level::Hardening,
        needs: &[],
        contradicts: None,
        script: stray_tcp_octets_end_nothing,
    },
];
