//! Mutants for the checks in `failures`: errors and timeouts of the AAAA query.

use std::time::Duration;

use conform::message::rcode;

use super::common::recode;
use crate::mutant::{Mutant, NO_HOOKS, hook, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    hook(
        "nxdomain-becomes-nodata",
        "rfc6147-5.1.2-nxdomain",
        Hooks {
            reply: Some(|_, reply| recode(reply, rcode::NXDOMAIN, rcode::NOERROR)),
            ..NO_HOOKS
        },
    ),
    rule("nxdomain-translated", "rfc6147-5.1.2-nxdomain-despite-a", |rules| {
        rules.nxdomain_ends = false;
    }),
    hook(
        "formerr-taken-for-nxdomain",
        "rfc6147-5.1.2-formerr",
        Hooks { hears: Some(|reply| recode(reply, rcode::FORMERR, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    rule("errors-are-final", "rfc6147-5.1.2-servfail", |rules| rules.errors_are_empty = false),
    hook(
        "notimp-taken-for-nxdomain",
        "rfc6147-5.1.2-notimp",
        Hooks { hears: Some(|reply| recode(reply, rcode::NOTIMP, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    hook(
        "refused-taken-for-nxdomain",
        "rfc6147-5.1.2-refused",
        Hooks { hears: Some(|reply| recode(reply, rcode::REFUSED, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    hook(
        "yxdomain-taken-for-nxdomain",
        "rfc6147-5.1.2-yxdomain",
        Hooks { hears: Some(|reply| recode(reply, 6, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    hook(
        "unknown-rcode-taken-for-nxdomain",
        "rfc6147-5.1.2-rare-errors",
        Hooks { hears: Some(|reply| recode(reply, 11, rcode::NXDOMAIN)), ..NO_HOOKS },
    ),
    rule("errors-are-final-below-alias", "rfc6147-5.1.2-error-below-alias", |rules| {
        rules.errors_are_empty = false;
    }),
    rule("timeouts-are-final", "rfc6147-5.1.3-silent-aaaa", |rules| {
        rules.silence_is_servfail = false;
    }),
    hook(
        "silence-becomes-nodata",
        "rfc6147-5.1.3-all-silent",
        Hooks {
            reply: Some(|_, reply| recode(reply, rcode::SERVFAIL, rcode::NOERROR)),
            ..NO_HOOKS
        },
    ),
    rule("impatient-for-all", "rfc6147-5.1.3-late-answers", |rules| {
        rules.upstream_patience = Duration::from_millis(100);
        rules.asks_over_tcp = false;
    }),
    rule("no-answer-after-silence", "hardening-silent-aaaa-in-time", |rules| {
        rules.upstream_patience = Duration::from_secs(30);
        rules.silence_is_servfail = false;
    }),
];
