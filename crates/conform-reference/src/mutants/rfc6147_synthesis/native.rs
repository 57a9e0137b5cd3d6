//! Mutants for the checks in `native`: queries that DNS64 leaves alone, and AAAA records that exist.

use std::time::Duration;

use conform::message::Message;
use domain::base::iana::{Class, Rtype};

use super::common::{SYNTHETIC, add_aaaa, wants_aaaa};
use crate::mutant::{Mutant, NO_HOOKS, hook, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    hook(
        "aaaa-never-asked",
        "rfc6147-5.1-asks-for-aaaa",
        Hooks { asks: Some(ask_for_a_instead), ..NO_HOOKS },
    ),
    hook(
        "all-classes-are-in",
        "rfc6147-5.1-other-classes",
        Hooks {
            query: Some(|query| {
                query.questions.iter_mut().for_each(|question| question.class = Class::IN);
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "made-for-other-types",
        "rfc6147-5.1-only-aaaa",
        Hooks {
            reply: Some(|query, reply| {
                if !wants_aaaa(query) {
                    add_aaaa(query, reply, SYNTHETIC);
                }
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "real-records-for-a-minute",
        "rfc6147-5.1.1-own-address",
        Hooks {
            reply: Some(|_, reply| {
                reply.answer.iter_mut().for_each(|record| record.ttl = record.ttl.min(60));
            }),
            ..NO_HOOKS
        },
    ),
    hook(
        "first-real-record-only",
        "rfc6147-5.1.1-several-own",
        Hooks { reply: Some(|_, reply| reply.answer.truncate(1)), ..NO_HOOKS },
    ),
    rule("real-records-lose", "rfc6147-5.1.1-real-wins", |rules| rules.native_wins = false),
    hook(
        "real-and-made",
        "rfc6147-5.1.1-not-both",
        Hooks { reply: Some(add_made_to_real), ..NO_HOOKS },
    ),
    rule("impatient-for-aaaa", "hardening-late-real", |rules| {
        rules.upstream_patience = Duration::from_millis(100);
        rules.asks_over_tcp = false;
    }),
    hook(
        "only-a-counts",
        "rfc6147-5.1.1-a-fails",
        Hooks { asks: Some(ask_for_a_instead), ..NO_HOOKS },
    ),
    hook(
        "real-inside-prefix-and-made",
        "rfc6147-5.1.1-inside-prefix",
        Hooks { reply: Some(add_made_to_real), ..NO_HOOKS },
    ),
];

fn ask_for_a_instead(asked: &mut Message) {
    for question in asked.questions.iter_mut().filter(|one| one.qtype == Rtype::AAAA) {
        question.qtype = Rtype::A;
    }
}

fn add_made_to_real(query: &Message, reply: &mut Message) {
    if wants_aaaa(query) && reply.answers(Rtype::AAAA).count() > 0 {
        add_aaaa(query, reply, SYNTHETIC);
    }
}
