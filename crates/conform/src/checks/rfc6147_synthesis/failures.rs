//! RFC 6147 §5.1.2 (errors in reply to the AAAA query) and §5.1.3 (no reply at all).

use domain::base::iana::Rtype;

use super::common::{RFC6147, ipv6, synthesized};
use crate::check::{Check, Level};
use crate::message::{Message, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

const NAME_ERROR: &str = "A result with RCODE=3 (Name Error) is handled according to normal DNS \
     operation (which is normally to return the error to the client).";
const OTHER_ERROR: &str = "Any other RCODE is treated as though the RCODE were 0 (see Sections \
     5.1.6 and 5.1.7) and the answer section were empty.";
const TIMEOUT: &str = "If the query receives no answer before the timeout …, it is treated as \
     RCODE=2 (Server failure).";

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rfc6147-5.1.2-nxdomain",
        title: "NXDOMAIN is returned for a nonexistent name",
        section: "5.1.2",
        sentence: NAME_ERROR,
        script: name_error_is_returned,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-nxdomain-despite-a",
        title: "NXDOMAIN in reply to AAAA is final, even if there is an A record",
        section: "5.1.2",
        sentence: NAME_ERROR,
        script: name_error_is_final,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-formerr",
        title: "FORMERR in reply to AAAA counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "aaaa-rcode-1.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-servfail",
        title: "SERVFAIL in reply to AAAA counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "aaaa-rcode-2.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-notimp",
        title: "NOTIMP in reply to AAAA counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "aaaa-rcode-4.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-refused",
        title: "REFUSED in reply to AAAA counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "aaaa-rcode-5.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-yxdomain",
        title: "YXDOMAIN in reply to AAAA counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "aaaa-rcode-6.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-rare-errors",
        title: "NXRRSET, NOTAUTH and an unassigned RCODE count as empty answers",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: rare_errors_are_empty,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.2-error-below-alias",
        title: "SERVFAIL in reply to AAAA at the end of an alias counts as an empty answer",
        section: "5.1.2",
        sentence: OTHER_ERROR,
        script: |t| synthesized(t, "cname.aaaa-rcode-2.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.3-silent-aaaa",
        title: "An unanswered AAAA query counts as SERVFAIL, and therefore as an empty answer",
        section: "5.1.3",
        sentence: TIMEOUT,
        script: silence_is_an_error,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.3-all-silent",
        title: "SERVFAIL is returned if neither AAAA nor A is ever answered",
        section: "5.1.3",
        sentence: TIMEOUT,
        script: silence_is_returned_as_an_error,
        ..RFC6147
    },
    Check {
        id: "rfc6147-5.1.3-late-answers",
        title: "The server waits for answers that take 0.3 s, as from a distant server",
        section: "5.1.3",
        sentence: TIMEOUT,
        script: |t| synthesized(t, "all-delay-300.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
    Check {
        id: "hardening-silent-aaaa-in-time",
        title: "If AAAA is silent, the synthesized answer arrives before a stub resolver gives up",
        rfc: 0,
        section: "",
        sentence: "A stub resolver waits 5 s by default; a later answer is useless.",
        level: Level::Hardening,
        script: |t| synthesized(t, "aaaa-silent.v4-1-2-3-4", &["1.2.3.4"]).map(drop),
        ..RFC6147
    },
];

fn name_error_is_returned(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("all-rcode-3")?;
    reply.has_rcode(rcode::NXDOMAIN)
}

fn name_error_is_final(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("aaaa-rcode-3.v4-1-2-3-4")?;
    reply.has_rcode(rcode::NXDOMAIN)?;
    expect(ipv6(&reply).is_empty(), || "there are AAAA records together with NXDOMAIN".into())
}

/// Requires synthesis if the AAAA query gets one of the RCODEs NXRRSET (8), NOTAUTH (9) and 11. Only DNS Stateful
/// Operations use RCODE 11 (RFC 8490).
fn rare_errors_are_empty(t: &mut Trial<'_>) -> Judged {
    for code in [8, 9, 11] {
        synthesized(t, &format!("aaaa-rcode-{code}.v4-1-2-3-4"), &["1.2.3.4"])?;
    }
    Ok(())
}

fn silence_is_an_error(t: &mut Trial<'_>) -> Judged {
    let reply = before_patience_ends(t, "aaaa-silent.v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded("1.2.3.4"))
}

fn silence_is_returned_as_an_error(t: &mut Trial<'_>) -> Judged {
    before_patience_ends(t, "all-silent.v4-1-2-3-4")?.has_rcode(rcode::SERVFAIL)
}

/// Returns the reply to a query for the AAAA records of a new name with these labels. The RFC does not limit the
/// timeout, so a late reply is no fault. If there is no reply in time, the check counts as not run.
pub(super) fn before_patience_ends(t: &mut Trial<'_>, labels: &str) -> Judged<Message> {
    let name = t.name(labels);
    let patience = t.subject().patience.as_secs_f64();
    t.ask_or_silence(&Message::query(&name, Rtype::AAAA))?.ok_or_else(|| {
        Fault::NotTried(format!(
            "no reply within {patience} s, and the RFC does not limit the timeout"
        ))
    })
}
