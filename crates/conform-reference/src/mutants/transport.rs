//! Mutants for the checks in `transport`, which cover TCP, message sizes and truncation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use conform::message::{Edns, Message, rcode};

use crate::mutant::{Mutant, NO_HOOKS, leaves, leaves_tcp, reads, rule};
use crate::rules::Hooks;

pub(super) const MUTANTS: &[Mutant] = &[
    leaves_tcp("tcp-silent", "rfc7766-5-tcp", |octets| octets.clear()),
    leaves_tcp("tcp-truncated", "rfc7766-5-large", cut),
    leaves_tcp(
        "tcp-replies-on-the-other-connection",
        "rfc7766-5-same-connection",
        swap_with_the_last,
    ),
    leaves_tcp("tcp-one-query-a-connection", "rfc7766-6.2.1-reuse", lose_every::<2, 0>),
    leaves_tcp("tcp-pipelined-lost", "rfc7766-6.2.1.1-pipelined", lose_every::<2, 1>),
    leaves_tcp("tcp-tenth-lost", "rfc7766-6.2.1.1-all-answered", lose_every::<10, 4>),
    leaves_tcp("tcp-idle-one-second", "rfc7766-6.2.3-idle", lose_after_a_pause),
    reads("tcp-in-order", "rfc7766-7-out-of-order", one_after_the_other),
    reads("udp-one-at-a-time", "rfc7766-7-parallel-udp", one_after_the_other),
    rule("tcp-one-read-a-message", "rfc7766-8-split", |rules| rules.joins_segments = false),
    leaves_tcp("tcp-second-message-lost", "rfc1035-4.2.2-length", lose_every::<2, 2>),
    rule("tcp-two-connections", "rfc1035-4.2.2-half-message", |rules| rules.connections = 2),
    leaves_tcp("tcp-second-connection-lost", "rfc1035-4.2.2-connections", lose_every::<2, 3>),
    reads("no-opt-is-4096", "rfc1035-4.2.1-truncated", offer_4096),
    leaves("payload-100-is-100", "rfc6891-6.2.3-below-512", cut_above_300),
    rule("payload-ignored", "rfc6891-6.2.3-payload", |rules| rules.truncates = false),
    rule("fragments", "rfc9715-3.1-fragments", |rules| rules.truncates = false),
    rule("a-tc-final", "rfc2181-9-a-truncated", |rules| rules.asks_over_tcp = false),
    rule("aaaa-tc-final", "rfc2181-9-aaaa-truncated", |rules| rules.asks_over_tcp = false),
    Mutant { name: "tcp-only-unsaid", caught_by: "hardening-upstream-tcp-only", ..FAILURES_UNSAID },
    Mutant { name: "slow-unsaid", caught_by: "hardening-upstream-slow", ..FAILURES_UNSAID },
    Mutant {
        name: "silence-is-catching",
        caught_by: "hardening-upstream-silent",
        ..FAILURES_UNSAID
    },
];

/// Mutant that drops SERVFAIL replies, and does not retry over TCP.
const FAILURES_UNSAID: Mutant = Mutant {
    name: "",
    caught_by: "",
    rules: |rules| rules.asks_over_tcp = false,
    hooks: Hooks { leaves: Some(clear_servfail), ..NO_HOOKS },
};

/// Drops every `NTH`-th message. Mutants run in parallel, so each mutant uses a different counter, `COUNTER`.
fn lose_every<const NTH: usize, const COUNTER: usize>(octets: &mut Vec<u8>) {
    static COUNTS: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];
    if COUNTS[COUNTER].fetch_add(1, Ordering::Relaxed) % NTH == NTH - 1 {
        octets.clear();
    }
}

fn swap_with_the_last(octets: &mut Vec<u8>) {
    static LAST: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    std::mem::swap(octets, &mut LAST.lock().unwrap_or_else(PoisonError::into_inner));
}

fn lose_after_a_pause(octets: &mut Vec<u8>) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.replace(Instant::now()).is_some_and(|last| last.elapsed() > Duration::from_secs(1)) {
        octets.clear();
    }
}

/// Blocks other queries for 2.5 s after a query with `-delay-` in its name. The authoritative server delays its reply
/// to such a query.
fn one_after_the_other(query: &mut Message) {
    static BUSY: Mutex<Option<Instant>> = Mutex::new(None);
    let slow = query.question().is_some_and(|asked| asked.name.to_string().contains("-delay-"));
    let mut busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    if slow {
        *busy = Some(Instant::now() + Duration::from_millis(2500));
        return;
    }
    let until = *busy;
    drop(busy);
    if let Some(until) = until {
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

fn offer_4096(query: &mut Message) {
    if query.edns.is_none() {
        query.edns = Some(Edns { payload: 4096, ..Edns::default() });
        query.opt_records = 1;
    }
}

/// Empties the message, and sets TC.
fn cut(octets: &mut Vec<u8>) {
    if let Ok(message) = Message::parse(octets) {
        let mut short = message.response();
        short.flags = message.flags;
        short.flags.tc = true;
        short.rcode = message.rcode;
        *octets = short.octets();
    }
}

fn cut_above_300(octets: &mut Vec<u8>) {
    if octets.len() > 300 {
        cut(octets);
    }
}

fn clear_servfail(octets: &mut Vec<u8>) {
    if octets.get(3).is_some_and(|flags| u16::from(flags & 0x0f) == rcode::SERVFAIL) {
        octets.clear();
    }
}
