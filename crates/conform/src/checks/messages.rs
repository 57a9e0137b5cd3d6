//! Messages: EDNS (RFC 6891, 8914), cookies (RFC 7873), the header and the question (RFC 1035, 8906, 9619), and
//! malformed messages.
//!
//! Some checks do not need a test zone. If there is one, these checks query a name in it. Otherwise they query
//! `ipv4only.arpa`, because every DNS64 server returns AAAA records for that name (RFC 7050).
//!
//! The RFCs allow a server not to reply to a malformed message. The checks therefore wait at most one second for a
//! reply, and accept that there is none. If there is a reply, it must be FORMERR.

mod common;
mod cookies;
mod edns;
mod header;
mod malformed;

use crate::check::{Check, Level, Need};

/// Values of the fields that are the same in most checks. Each check sets its other fields itself.
const BASE: Check = Check { rfc: 1035, section: "4.1.1", needs: &[], ..Check::BASE };

const RFC6891: Check = Check { rfc: 6891, level: Level::Must, ..BASE };

const RFC7873: Check = Check { rfc: 7873, level: Level::Must, ..BASE };

const FORMAT_ERROR: &str = "Format error - The name server was unable to interpret the query.";
const OPCODE: &str = "This value is set by the originator of a query and copied into the response.";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6891-6.1.1-opt-answered",
        title: "Answers, NXDOMAIN, SERVFAIL and truncated replies to a query with an OPT record \
             contain one",
        section: "6.1.1",
        sentence: "If an OPT record is present in a received request, compliant responders MUST \
             include an OPT record in their respective responses.",
        script: edns::replies_have_opt,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.1-opt-in-errors",
        title: "FORMERR, NOTIMP, BADVERS and REFUSED in reply to a query with an OPT record contain \
             one",
        section: "6.1.1",
        sentence: "If an OPT record is present in a received request, compliant responders MUST \
             include an OPT record in their respective responses.",
        script: edns::errors_have_opt,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.1-not-forwarded",
        title: "The client's OPT record is not forwarded to the upstream",
        section: "6.1.1",
        sentence: "OPT RRs MUST NOT be cached, forwarded, or stored in or loaded from master \
             files.",
        needs: &[Need::Zone, Need::View],
        script: edns::opt_goes_no_further,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.1-two",
        title: "A query with two OPT records gets FORMERR",
        section: "6.1.1",
        sentence: "If a query message with more than one OPT RR is received, a FORMERR (RCODE=1) \
             MUST be returned.",
        script: edns::two_are_a_format_error,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.2-unknown-option",
        title: "An unknown option is ignored and not returned",
        section: "6.1.2",
        sentence: "Any OPTION-CODE values not understood by a responder or requestor MUST be \
             ignored.",
        script: edns::unknown_option_is_ignored,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.3-badvers",
        title: "EDNS version 1 gets BADVERS",
        section: "6.1.3",
        sentence: "If a responder does not implement the VERSION level of the request, then it \
             MUST respond with RCODE=BADVERS.",
        script: edns::version_1_is_badvers,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.3-version",
        title: "Replies have EDNS version 0, even to a query with version 1",
        section: "6.1.3",
        sentence: "… the VERSION of each response SHOULD be the highest implementation level of \
             the responder.",
        level: Level::Should,
        script: edns::version_is_0,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.1.4-z",
        title: "Unknown EDNS flags are ignored, and zero in the reply",
        section: "6.1.4",
        sentence: "Set to zero by senders and ignored by receivers, unless modified in a \
             subsequent specification.",
        level: Level::Says,
        script: edns::unknown_flags_are_zero,
        ..RFC6891
    },
    Check {
        id: "rfc6891-6.2.2-fallback",
        title: "If an upstream returns FORMERR for OPT records, the query is retried without one",
        section: "6.2.2",
        sentence: "If a requestor detects that the remote end does not support EDNS(0), it MAY \
             issue queries without an OPT record.",
        level: Level::May,
        needs: &[Need::Zone],
        script: edns::falls_back,
        ..RFC6891
    },
    Check {
        id: "rfc6891-7-no-opt",
        title: "No reply to a query without an OPT record has one, not even an error",
        section: "7",
        sentence: "Lack of presence of an OPT record in a request MUST be taken as an indication \
             that the requestor does not implement any part of this specification and that the \
             responder MUST NOT include an OPT record in its response.",
        script: edns::replies_have_no_opt,
        ..RFC6891
    },
    Check {
        id: "rfc6891-7-option-format",
        title: "An option that is longer than its OPT record gets FORMERR, with an OPT record",
        section: "7",
        sentence: "If there is a problem with processing the OPT record itself, such as an option \
             value that is badly formatted or that includes out-of-range values, a FORMERR MUST be \
             returned.  If this occurs, the response MUST include an OPT record.",
        script: edns::long_option_is_a_format_error,
        ..RFC6891
    },
    Check {
        id: "rfc6891-7-minimal",
        title: "A truncated reply still has the question and an OPT record",
        section: "7",
        sentence: "The minimal response MUST be the DNS header, question section, and an OPT \
             record. This MUST also occur when a truncated response (using the DNS header's TC \
             bit) is returned.",
        needs: &[Need::Zone],
        script: edns::truncated_reply_has_opt,
        ..RFC6891
    },
    Check {
        id: "rfc7873-5.2.3-server-cookie",
        title: "The reply to a query with a client cookie has that cookie and a server cookie",
        section: "5.2.3",
        sentence: "If the server responds choosing (2) or (3) above, it SHALL generate its own \
             COOKIE option containing both the Client Cookie copied from the request and a Server \
             Cookie it has generated …",
        script: cookies::server_cookie_is_sent,
        ..RFC7873
    },
    Check {
        id: "rfc7873-5.2.5-valid",
        title: "A query with a valid server cookie is answered, with a COOKIE option",
        section: "5.2.5",
        sentence: "The server SHALL process the request and include a COOKIE option in the response \
             by (a) copying the complete COOKIE option from the request or (b) generating a new \
             COOKIE option containing both the Client Cookie copied from the request and a valid \
             Server Cookie it has generated.",
        script: cookies::valid_cookie_is_accepted,
        ..RFC7873
    },
    Check {
        id: "rfc7873-5.2.4-invalid",
        title: "The reply to a query with an invalid server cookie has another server cookie",
        section: "5.2.4",
        sentence: "The server SHALL process the request as if the invalid Server Cookie was not \
             present …",
        script: cookies::invalid_cookie_is_replaced,
        ..RFC7873
    },
    Check {
        id: "rfc7873-5.2.2-length",
        title: "A COOKIE option of 0, 7, 9, 15 or 41 octets gets FORMERR",
        section: "5.2.2",
        sentence: "If the COOKIE option is too short to contain a Client Cookie, then FORMERR is \
             generated. … If the COOKIE option is longer than the maximum valid COOKIE option (40 \
             bytes), then FORMERR is generated.",
        level: Level::Says,
        script: cookies::odd_lengths_are_format_errors,
        ..RFC7873
    },
    Check {
        id: "rfc7873-5.4-no-question",
        title: "A query without a question that has a client cookie gets NOERROR and a server cookie",
        section: "5.4",
        sentence: "Such servers will send a reply that has an empty Answer Section and has a COOKIE \
             option containing the Client Cookie and a valid Server Cookie.  If such a query \
             provided just a Client Cookie and no Server Cookie, the response SHALL have the RCODE \
             NOERROR.",
        script: cookies::cookie_is_sent_without_question,
        ..RFC7873
    },
    Check {
        id: "rfc7873-5.4-confirm",
        title: "A query without a question is NOERROR with a valid server cookie, and BADCOOKIE with \
             an invalid one",
        section: "5.4",
        sentence: "In this case, the response SHALL have the RCODE BADCOOKIE if the Server Cookie \
             sent with the query was invalid and the RCODE NOERROR if it was valid.",
        script: cookies::cookies_are_confirmed,
        ..RFC7873
    },
    Check {
        id: "rfc8914-2-format",
        title: "An extended error has an info code and text in UTF-8",
        rfc: 8914,
        section: "2",
        sentence: "OPTION-LENGTH: 2 octets / 16 bits (defined in [RFC6891]) contains the length of \
             the payload (everything after OPTION-LENGTH) in octets and should be 2 plus the \
             length of the EXTRA-TEXT field (which may be a zero-length string). … EXTRA-TEXT: a \
             variable-length, UTF-8-encoded [RFC5198] text field that may hold additional textual \
             information.",
        needs: &[Need::Zone],
        script: edns::extended_errors_are_well_formed,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-echo",
        title: "The reply has the ID and the question of the query",
        sentence: "This identifier is copied the corresponding reply and can be used by the \
             requester to match up replies to outstanding queries.",
        script: header::id_and_question_are_echoed,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-rd",
        title: "RD of the query is copied into the reply, set or not",
        sentence: "Recursion Desired - this bit may be set in a query and is copied into the \
             response.",
        script: header::rd_is_copied,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-ra",
        title: "RA is set",
        sentence: "Recursion Available - this be is set or cleared in a response, and denotes \
             whether recursive query support is available in the name server.",
        script: |t| header::flag(t, "RA is not set", |flags| flags.ra),
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-aa",
        title: "AA is not set, although the upstream is authoritative",
        sentence: "Authoritative Answer - this bit is valid in responses, and specifies that \
             the responding name server is an authority for the domain name in question section.",
        needs: &[Need::Zone],
        script: |t| header::flag(t, "AA is set", |flags| !flags.aa),
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-z",
        title: "The reserved bit is zero in the reply, even if the query has it",
        sentence: "Reserved for future use.  Must be zero in all queries and responses.",
        script: header::reserved_bit_is_zero,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-opcode",
        title: "The reply has the opcode of the query, even an unknown one",
        sentence: OPCODE,
        script: header::opcode_is_copied,
        ..BASE
    },
    Check {
        id: "rfc8906-3.1.4-opcode",
        title: "Unimplemented opcodes get NOTIMP",
        rfc: 8906,
        section: "3.1.4",
        sentence: "NOTIMP is the expected rcode to an unknown or unimplemented opcode.",
        script: header::unknown_opcode_is_notimp,
        ..BASE
    },
    Check {
        id: "hardening-opcode-notify-update",
        title: "NOTIFY and UPDATE from a client get an error or no reply",
        rfc: 0,
        section: "",
        sentence: "A recursive server has no zone that a client could update or announce.",
        level: Level::Hardening,
        script: header::notify_and_update_do_nothing,
        ..BASE
    },
    Check {
        id: "hardening-response-ignored",
        title: "A response gets no reply",
        rfc: 0,
        section: "",
        sentence: "Two servers that reply to responses send them to each other endlessly after one \
            datagram with a forged source address.",
        level: Level::Hardening,
        script: header::responses_are_not_answered,
        ..BASE
    },
    Check {
        id: "rfc3597-3-unknown-type",
        title: "Queries of unknown types are resolved like others",
        rfc: 3597,
        section: "3",
        sentence: "To enable new RR types to be deployed without server changes, name servers and \
             resolvers MUST handle RRs of unknown type transparently.",
        level: Level::Must,
        needs: &[Need::Zone],
        script: header::unknown_types_pass,
        ..BASE
    },
    Check {
        id: "hardening-classes",
        title: "Queries of class ANY, NONE and CHAOS get a reply without synthesized records",
        rfc: 0,
        section: "",
        sentence: "A refused query costs the client one round trip; a query without a reply costs \
            it the complete timeout.",
        level: Level::Hardening,
        script: header::classes_are_replied_to,
        ..BASE
    },
    Check {
        id: "rfc9619-4-two-questions",
        title: "A query with two questions gets FORMERR or no reply",
        rfc: 9619,
        section: "4",
        sentence: "A DNS message with OPCODE = 0 and QDCOUNT > 1 MUST be treated as an incorrectly \
             formatted message.  The value of the RCODE parameter in the response message MUST be \
             set to 1 (FORMERR).",
        level: Level::Must,
        script: malformed::two_questions,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-no-question",
        title: "A query without a question gets FORMERR or no reply",
        sentence: FORMAT_ERROR,
        script: malformed::no_question,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.1-cut-short",
        title: "A truncated query gets FORMERR or no reply",
        sentence: FORMAT_ERROR,
        script: malformed::cut_short,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1-no-header",
        title: "Fewer octets than a header get FORMERR or no reply",
        section: "4.1",
        sentence: "The header section is always present.",
        script: malformed::no_header,
        ..BASE
    },
    Check {
        id: "rfc1035-4.1.4-pointer",
        title: "A question whose name points to itself or forward gets FORMERR or no reply",
        section: "4.1.4",
        sentence: "… an entire domain name or a list of labels at the end of a domain name is \
             replaced with a pointer to a prior occurance of the same name.",
        script: malformed::pointers,
        ..BASE
    },
    Check {
        id: "rfc1035-3.1-label-length",
        title: "A question with a label of more than 63 octets gets FORMERR or no reply",
        section: "3.1",
        sentence: "The high order two bits of every length octet must be zero, and the remaining \
             six bits of the length field limit the label to 63 octets or less.",
        script: malformed::long_labels,
        ..BASE
    },
    Check {
        id: "rfc1035-3.1-name-length",
        title: "A question for a name of more than 255 octets gets FORMERR or no reply",
        section: "3.1",
        sentence: "To simplify implementations, the total length of a domain name (i.e., label \
             octets and label length octets) is restricted to 255 octets or less.",
        script: malformed::long_name,
        ..BASE
    },
    Check {
        id: "hardening-octets-behind",
        title: "A query with octets after its end gets an answer, FORMERR or no reply",
        rfc: 0,
        section: "",
        sentence: "Octets after the end of a message have no meaning. They may be ignored or \
            treated as an error, but they are no failure of the server.",
        level: Level::Hardening,
        script: malformed::octets_behind,
        ..BASE
    },
];
