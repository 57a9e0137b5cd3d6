//! Mutants that behave like a faulty proxy in front of a correct server: they change or drop
//! replies, regardless of the query. The checks for these mutants are in several files.

use std::sync::atomic::{AtomicUsize, Ordering};

use conform::message::{Message, Record, rcode};
use domain::base::iana::Rtype;

use crate::mutant::{Mutant, leaves, leaves_tcp, reads, replies};

pub(super) const MUTANTS: &[Mutant] = &[
    replies("ttls-doubled", "rfc6147-5.1.7-ttl-of-a", |_, reply| each_ttl(reply, |ttl| 2 * ttl)),
    replies("ttls-one-hour", "rfc6147-5.1.7-ttl-of-a", |_, reply| each_ttl(reply, |_| 3600)),
    replies("ttls-one-more", "rfc6147-5.1.7-ttl-of-a", |_, reply| each_ttl(reply, |ttl| ttl + 1)),
    replies("ttls-zero", "rfc6147-5.1.7-ttl-of-a", |_, reply| each_ttl(reply, |_| 0)),
    replies("third-octet-wrong", "rfc6052-2.2-most-significant-first", |_, reply| {
        // Only addresses with an octet of 128 or more are changed.
        for record in reply.answer.iter_mut().filter(|record| record.ipv6().is_some()) {
            if record.data[12..].iter().any(|octet| *octet >= 128) {
                record.data[14] ^= 1;
            }
        }
    }),
    replies("aliases-reversed", "rfc1034-4.3.1-aliases-first", |_, reply| {
        let aliases = reply.answers(Rtype::CNAME).count();
        reply.answer[..aliases].reverse();
    }),
    replies("ad-always", "rfc4035-3.2.3-ad-not-echoed", |_, reply| reply.flags.ad = true),
    reads("cd-ignored", "rfc6147-3-cd-do", |query| query.flags.cd = false),
    replies("denial-lives-for-minimum", "rfc2308-3-negative-ttl", |_, reply| {
        for soa in &mut reply.authority {
            soa.ttl = soa.minimum().unwrap_or(soa.ttl);
        }
    }),
    replies("twenty-records-at-most", "rfc2181-9-whole-over-tcp", |_, reply| {
        reply.answer.truncate(20);
    }),
    leaves_tcp("tcp-replies-cut-off", "rfc7766-5-tcp", |octets| octets.truncate(octets.len() / 2)),
    replies("one-reply-in-twenty-servfail", "rfc8020-2-reverse-nodes", |_, reply| {
        if is_nth::<20, 0>() {
            reply.rcode = rcode::SERVFAIL;
        }
    }),
    leaves("one-reply-in-fifteen-lost", "hardening-overload-answered", |octets| {
        if is_nth::<15, 1>() {
            octets.clear();
        }
    }),
];

/// Changes the TTL of each record in the answer.
fn each_ttl(reply: &mut Message, change: fn(u32) -> u32) {
    let change = |record: &mut Record| record.ttl = change(record.ttl);
    reply.answer.iter_mut().for_each(change);
}

/// Returns true on every `NTH`-th call. Mutants run in parallel, so each mutant uses a different counter, `COUNTER`.
fn is_nth<const NTH: usize, const COUNTER: usize>() -> bool {
    static COUNTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    COUNTS[COUNTER].fetch_add(1, Ordering::Relaxed) % NTH == NTH - 1
}
