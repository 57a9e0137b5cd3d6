//! Mutants for the checks in `hostile`, which cover forged answers, loops, overload and malformed packets.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conform::label::EVIL4;
use conform::message::{Message, Name, Record, rcode};
use domain::base::iana::Rtype;

use crate::mutant::{Mutant, NO_HOOKS, asks, dies, hears, hook, leaves, reads, replies, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    rule("any-id-will-do", "rfc5452-9.1-id", |rules| rules.checks_id = false),
    rule("any-port-will-do", "hardening-forged-port", |rules| rules.checks_source = false),
    rule("any-question-will-do", "rfc5452-9.1-question", |rules| rules.checks_question = false),
    replies("first-forgery-ends-it", "hardening-forged-then-true", fail_where_forged),
    rule("one-port-upstream", "rfc5452-9.2-several-ports", |rules| rules.random_source = false),
    rule("few-ports-upstream", "hardening-many-ports", |rules| rules.random_source = false),
    rule("known-port-upstream", "rfc5452-9.2-ports-unpredictable", |rules| {
        rules.random_source = false;
    }),
    asks("ids-counted", "rfc5452-9.2-ids-unpredictable", count_the_id),
    hook(
        "ids-copied",
        "rfc5452-9.2-ids-own",
        Hooks {
            query: Some(|query| CLIENT_ID.store(query.id, Ordering::Relaxed)),
            asks: Some(|question| question.id = CLIENT_ID.load(Ordering::Relaxed)),
            ..NO_HOOKS
        },
    ),
    rule("aliens-believed", "hardening-out-of-zone", |rules| rules.drops_unrelated_records = false),
    replies("types-mixed", "hardening-mixed-types", add_an_a_record),
    hears("letter-case-compared", "rfc4343-3-letter-case", drop_other_letter_case),
    Mutant {
        name: "chain-cut-short",
        caught_by: "rfc1034-3.6.2-long-chain",
        rules: |rules| rules.longest_chain = 4,
        hooks: Hooks { reply: Some(servfail_is_empty), ..NO_HOOKS },
    },
    rule("loops-chased", "rfc1034-5.3.3-bounded", |rules| {
        rules.notices_loops = false;
        rules.longest_chain = 64;
        rules.caches = false;
    }),
    rule("asks-on-and-on", "rfc9520-3.1-tries", |rules| rules.tries = 8),
    replies("failures-kept-by-name", "rfc2308-7.1-tuple", fail_by_name),
    leaves("crowds-lost", "hardening-overload-answered", lose_all_but_ten_a_moment),
    rule("each-asks", "hardening-overload-asked-once", |rules| rules.asks_once = false),
    reads("dead-names-first", "hardening-overload-dead-names", wait_for_the_dead),
    dies("ends-of-malformed", "hardening-malformed", |octets| Message::parse(octets).is_err()),
    dies("ends-of-length", "hardening-noise", |octets| octets.len() > 512),
    dies("ends-of-tcp-noise", "hardening-tcp-noise", |octets| octets.get(12) == Some(&0xc0)),
];

static CLIENT_ID: AtomicU16 = AtomicU16::new(0);

/// Changes the reply to SERVFAIL if the first upstream reply was forged, as if that reply had ended the upstream query.
fn fail_where_forged(query: &Message, reply: &mut Message) {
    if query.question().is_some_and(|asked| asked.name.to_string().contains(".a-bad")) {
        reply.rcode = rcode::SERVFAIL;
        reply.answer.clear();
    }
}

fn count_the_id(question: &mut Message) {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    question.id = NEXT.fetch_add(1, Ordering::Relaxed);
}

fn add_an_a_record(query: &Message, reply: &mut Message) {
    if let Some(asked) = query.question().filter(|asked| asked.qtype == Rtype::AAAA) {
        reply.answer.push(Record::a(asked.name.clone(), 60, EVIL4));
    }
}

fn drop_other_letter_case(reply: &mut Message) {
    if let Some(asked) = reply.question().map(|asked| asked.name.clone()) {
        reply.answer.retain(|record| record.owner.as_slice() == asked.as_slice());
    }
}

fn servfail_is_empty(_: &Message, reply: &mut Message) {
    if reply.rcode == rcode::SERVFAIL {
        reply.rcode = rcode::NOERROR;
    }
}

fn fail_by_name(query: &Message, reply: &mut Message) {
    static FAILED: Mutex<Option<HashSet<Name>>> = Mutex::new(None);
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = failed.get_or_insert_default();
    let Some(asked) = query.question() else { return };
    if reply.rcode == rcode::SERVFAIL {
        failed.insert(asked.name.clone());
    } else if failed.contains(&asked.name) {
        reply.rcode = rcode::SERVFAIL;
        reply.answer.clear();
    }
}

/// Sends at most ten replies per tenth of a second, and drops all further replies.
fn lose_all_but_ten_a_moment(octets: &mut Vec<u8>) {
    static MOMENT: Mutex<Option<(Instant, usize)>> = Mutex::new(None);
    let mut moment = MOMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let (since, count) = moment.get_or_insert_with(|| (Instant::now(), 0));
    if since.elapsed() > Duration::from_millis(100) {
        (*since, *count) = (Instant::now(), 0);
    }
    *count += 1;
    if *count > 10 {
        octets.clear();
    }
}

/// Blocks all other queries for 2.5 s after a query to which the authoritative server sends no reply.
fn wait_for_the_dead(query: &mut Message) {
    static BUSY: Mutex<Option<Instant>> = Mutex::new(None);
    let dead = query.question().is_some_and(|asked| asked.name.to_string().contains("-silent"));
    let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    if dead {
        *busy = Some(Instant::now() + Duration::from_millis(2500));
        return;
    }
    let until = *busy;
    drop(busy);
    if let Some(until) = until {
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}
