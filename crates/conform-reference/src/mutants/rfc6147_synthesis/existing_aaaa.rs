//! Mutants for the checks in `existing_aaaa`, which cover queries that DNS64 must not change, and names with existing
//! AAAA records.

use std::time::Duration;

use conform::message::Message;
use domain::base::iana::{Class, Rtype};

use super::common::add_aaaa;
use crate::mutant::{Mutant, asks, reads, replies, rule};
use crate::mutants::common::{SYNTHETIC, wants};

pub(super) const MUTANTS: &[Mutant] = &[
    asks("aaaa-never-asked", "rfc6147-5.1-asks-for-aaaa", ask_for_a_instead),
    reads("all-classes-are-in", "rfc6147-5.1-other-classes", |query| {
        query.questions.iter_mut().for_each(|question| question.class = Class::IN);
    }),
    replies("made-for-other-types", "rfc6147-5.1-only-aaaa", |query, reply| {
        if !wants(query, Rtype::AAAA) {
            add_aaaa(query, reply, SYNTHETIC);
        }
    }),
    replies("real-records-for-a-minute", "rfc6147-5.1.1-own-address", |_, reply| {
        reply.answer.iter_mut().for_each(|record| record.ttl = record.ttl.min(60));
    }),
    replies("first-real-record-only", "rfc6147-5.1.1-several-own", |_, reply| {
        reply.answer.truncate(1);
    }),
    rule("real-records-lose", "rfc6147-5.1.1-real-wins", |rules| rules.native_wins = false),
    replies("real-and-made", "rfc6147-5.1.1-not-both", add_made_to_real),
    rule("impatient-for-aaaa", "hardening-late-real", |rules| {
        rules.upstream_patience = Duration::from_millis(100);
        rules.asks_over_tcp = false;
    }),
    asks("only-a-counts", "rfc6147-5.1.1-a-fails", ask_for_a_instead),
    replies("real-inside-prefix-and-made", "rfc6147-5.1.1-inside-prefix", add_made_to_real),
];

fn ask_for_a_instead(asked: &mut Message) {
    for question in asked.questions.iter_mut().filter(|one| one.qtype == Rtype::AAAA) {
        question.qtype = Rtype::A;
    }
}

fn add_made_to_real(query: &Message, reply: &mut Message) {
    if wants(query, Rtype::AAAA) && reply.answers(Rtype::AAAA).count() > 0 {
        add_aaaa(query, reply, SYNTHETIC);
    }
}
