//! Mutants for the checks in `failures`, which cover errors and timeouts of the AAAA query.

use std::time::Duration;

use conform::message::rcode;

use super::common::recode;
use crate::mutant::{Mutant, hears, replies, rule};

pub(super) const MUTANTS: &[Mutant] = &[
    replies("nxdomain-becomes-nodata", "rfc6147-5.1.2-nxdomain", |_, reply| {
        recode(reply, rcode::NXDOMAIN, rcode::NOERROR);
    }),
    rule("nxdomain-translated", "rfc6147-5.1.2-nxdomain-despite-a", |rules| {
        rules.nxdomain_ends = false;
    }),
    hears("formerr-taken-for-nxdomain", "rfc6147-5.1.2-formerr", |reply| {
        recode(reply, rcode::FORMERR, rcode::NXDOMAIN);
    }),
    rule("errors-are-final", "rfc6147-5.1.2-servfail", |rules| rules.errors_are_empty = false),
    hears("notimp-taken-for-nxdomain", "rfc6147-5.1.2-notimp", |reply| {
        recode(reply, rcode::NOTIMP, rcode::NXDOMAIN);
    }),
    hears("refused-taken-for-nxdomain", "rfc6147-5.1.2-refused", |reply| {
        recode(reply, rcode::REFUSED, rcode::NXDOMAIN);
    }),
    hears("yxdomain-taken-for-nxdomain", "rfc6147-5.1.2-yxdomain", |reply| {
        recode(reply, 6, rcode::NXDOMAIN);
    }),
    hears("unknown-rcode-taken-for-nxdomain", "rfc6147-5.1.2-rare-errors", |reply| {
        recode(reply, 11, rcode::NXDOMAIN);
    }),
    rule("errors-are-final-below-alias", "rfc6147-5.1.2-error-below-alias", |rules| {
        rules.errors_are_empty = false;
    }),
    rule("timeouts-are-final", "rfc6147-5.1.3-silent-aaaa", |rules| {
        rules.silence_is_servfail = false;
    }),
    replies("silence-becomes-nodata", "rfc6147-5.1.3-all-silent", |_, reply| {
        recode(reply, rcode::SERVFAIL, rcode::NOERROR);
    }),
    rule("impatient-for-all", "rfc6147-5.1.3-late-answers", |rules| {
        rules.upstream_patience = Duration::from_millis(100);
        rules.asks_over_tcp = false;
    }),
    rule("no-answer-after-silence", "hardening-silent-aaaa-in-time", |rules| {
        rules.upstream_patience = Duration::from_secs(30);
        rules.silence_is_servfail = false;
    }),
];
