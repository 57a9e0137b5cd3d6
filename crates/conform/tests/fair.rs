//! Servers and network paths without faults: the named check passes on each.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use common::Server;
use conform::message::{Message, Record};
use conform::outcome::Verdict;
use conform_reference::mutant::NO_HOOKS;
use conform_reference::rules::{Hooks, Rules};
use domain::base::iana::Rtype;

/// A difference from the reference server that no RFC forbids, and the check that must still pass.
struct Allowed {
    name: &'static str,
    check: &'static str,
    rules: fn(&mut Rules),
    hooks: Hooks,
}

const fn lossy(name: &'static str, check: &'static str, lose: fn(&mut Vec<u8>)) -> Allowed {
    Allowed { name, check, rules: |_| {}, hooks: Hooks { leaves: Some(lose), ..NO_HOOKS } }
}

const ALLOWED: [Allowed; 5] = [
    Allowed {
        name: "queries that are sent together share a port",
        check: "hardening-many-ports",
        rules: |rules| rules.turn = Some(Duration::from_millis(20)),
        hooks: NO_HOOKS,
    },
    Allowed {
        name: "ipv4hint stripped",
        check: "rfc9460-4.2.1-hints",
        rules: |_| {},
        hooks: Hooks { reply: Some(strip_hints), ..NO_HOOKS },
    },
    lossy("a lost reply", "rfc5452-9.2-ids-unpredictable", lose_tenth::<0>),
    lossy("a lost reply", "rfc5452-9.2-ports-unpredictable", lose_tenth::<1>),
    lossy("a lost reply", "rfc5452-9.2-ids-own", lose_tenth::<2>),
];

/// Removes `ipv4hint` from the records of the test zone, if it is the last parameter.
fn strip_hints(_: &Message, reply: &mut Message) {
    let has_hint = |record: &&mut Record| [Rtype::HTTPS, Rtype::SVCB].contains(&record.rtype);
    for record in reply.answer.iter_mut().filter(has_hint) {
        // Key, length and one IPv4 address (RFC 9460 §7.3).
        record.data.truncate(record.data.len() - 8);
    }
}

/// Drops the tenth reply, as a network may. Servers run in parallel, so each server has a separate counter.
fn lose_tenth<const SERVER: usize>(octets: &mut Vec<u8>) {
    static COUNTS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    if COUNTS[SERVER].fetch_add(1, Ordering::Relaxed) == 9 {
        octets.clear();
    }
}

#[test]
fn allowed_behaviour_fails_no_check() {
    let far = common::authority();
    let server = Server { prefixes: "3fff:64::/96", validates: false };
    thread::scope(|scope| {
        for Allowed { name, check, rules, hooks } in &ALLOWED {
            let far = &far;
            scope.spawn(move || {
                let only = common::check(check).expect("its id is a literal");
                let report = server.run(far, true, &[only], rules, *hooks);
                let outcome = report.outcomes.iter().find(|outcome| outcome.id == *check);
                let verdict = outcome.map(|outcome| (outcome.verdict, outcome.reason.as_str()));
                assert_eq!(verdict, Some((Verdict::Passed, "")), "{name}: {check}");
            });
        }
    });
}
