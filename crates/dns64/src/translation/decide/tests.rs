//! The decision, case by case, in the order of RFC 6147's sections.

use wire::view::rtype::{A, AAAA, ANY};

use super::*;
use crate::name::text;
use crate::testing::{TestAnswer, said};

/// A case: the answers known for `a.test`, and the query.
struct Case {
    name: &'static str,
    policy: Policy,
    mode: Mode,
    question: Question,
    known: Vec<Outcome>,
    may_ask_again: bool,
}

/// An AAAA query for `a.test` in the default configuration.
fn case(name: &'static str) -> Case {
    let question = Question {
        name: "a.test".parse().unwrap(),
        qtype: AAAA,
        qclass: CLASS_IN,
        dnssec_ok: false,
        checking_disabled: false,
        recursion_desired: true,
    };
    Case {
        name,
        policy: Policy::default(),
        mode: Mode::Strict,
        question,
        known: Vec::new(),
        may_ask_again: true,
    }
}

impl Case {
    fn asked(mut self, change: impl Fn(&mut Question)) -> Case {
        change(&mut self.question);
        self
    }
    fn policy(mut self, change: impl Fn(&mut Policy)) -> Case {
        change(&mut self.policy);
        self
    }
    fn mode(mut self, mode: Mode) -> Case {
        self.mode = mode;
        self
    }
    fn known(mut self, said: &TestAnswer) -> Case {
        self.known.push(said.kept());
        self
    }
    fn aged(mut self, said: &TestAnswer, age: u32) -> Case {
        self.known.push(said.aged(age));
        self
    }
    fn failed(mut self, failure: Failure) -> Case {
        self.known.push(Outcome::Failed(failure));
        self
    }

    /// Asserts the next step in a short notation. Numbers stand for the answers.
    fn becomes(&self, expected: &str) {
        let number = |kept: &CachedAnswer| {
            let same =
                |outcome: &Outcome| outcome.kept().is_some_and(|other| std::ptr::eq(kept, other));
            self.known.iter().position(same).expect("an answer that is known")
        };
        let withheld = |withheld: Option<WithheldReason>| {
            withheld.map(|why| format!(", {why:?}")).unwrap_or_default()
        };
        let next = next(&self.question, &self.policy, self.mode, &self.known, self.may_ask_again);
        let counted = if let Next::Reply(reply) = &next { reply.withheld() } else { None };
        let shown = match next {
            Next::Ask(name, qtype) => format!("ask {} {qtype}", text(name)),
            Next::Probe(name) => format!("probe {}", text(name)),
            Next::Repeat(name) => format!("again {}", text(name)),
            Next::Reply(Reply::Pass { aliases, last, strip, withheld: why }) => {
                let strip = match strip {
                    Strip::Nothing => "",
                    Strip::Excluded => " stripped",
                    Strip::Mapped => " without mapped ones",
                };
                format!("pass {}{strip} after {}{}", number(last), aliases.len(), withheld(why))
            }
            Next::Reply(Reply::Synthesize { aliases, a, ttl_limit, reason }) => {
                format!(
                    "synthesize {} after {}, {reason:?}, {ttl_limit} s",
                    number(a),
                    aliases.len()
                )
            }
            Next::Reply(Reply::Empty { aliases, last, synthesized, withheld: why }) => {
                let synthesized = if synthesized { ", made" } else { "" };
                let (after, why) = (aliases.len(), withheld(why));
                format!("empty after {after}, like {}{synthesized}{why}", number(last))
            }
            Next::Reply(Reply::Error { rcode, cause, extended_error }) => {
                let failure = if let Cause::Failed(failure) = cause { Some(failure) } else { None };
                let extended =
                    extended_error.map(|code| format!(", EDE {code}")).unwrap_or_default();
                format!("error {rcode:?} {failure:?}{extended}")
            }
            Next::Reply(Reply::Local(_)) => "local".into(),
        };
        assert_eq!(shown, expected, "{}", self.name);
        let said = [WithheldReason::Unmapped, WithheldReason::Signed, WithheldReason::Filtered]
            .into_iter()
            .find(|why| shown.ends_with(&format!("{why:?}")));
        assert_eq!(counted, said, "{}: what metrics count", self.name);
    }
}

fn nodata() -> TestAnswer {
    said("a.test", AAAA).nodata(120)
}

fn real() -> TestAnswer {
    said("a.test", AAAA).aaaa("a.test", 60, "2001:db8::1")
}

fn mapped() -> TestAnswer {
    said("a.test", AAAA).aaaa("a.test", 60, "::ffff:192.0.2.1")
}

fn address() -> TestAnswer {
    said("a.test", A).a("a.test", 60, "8.8.8.8")
}

/// Returns a failure with an extended error: no reachable authority.
fn servfail(qtype: u16) -> TestAnswer {
    said("a.test", qtype).rcode(2).ede(22)
}

/// Returns a failure without an extended error.
fn unexplained() -> TestAnswer {
    said("a.test", AAAA).rcode(2)
}

#[test]
fn rfc6147_5_only_aaaa_of_class_in_without_cd() {
    case("AAAA").becomes("ask a.test. 28");
    for (name, change) in [
        ("A", (|q| q.qtype = A) as fn(&mut Question)),
        ("ANY", |q| q.qtype = ANY),
        ("class CH", |q| q.qclass = 3),
        ("CD", |q| q.checking_disabled = true),
    ] {
        let asked = case(name).asked(change);
        let first = format!("ask a.test. {}", asked.question.qtype);
        asked.becomes(&first);
        case(name).asked(change).known(&nodata()).becomes("pass 0 after 0");
        case(name).asked(change).known(&servfail(AAAA)).becomes("error SERVFAIL None, EDE 22");
        case(name).asked(change).failed(Failure::Timeout).becomes("error SERVFAIL Some(Timeout)");
    }
    case("no prefix").policy(|p| p.mappings.clear()).known(&nodata()).becomes("pass 0 after 0");
    let only_recursive =
        case("RD=0").policy(|p| p.recursive_only = true).asked(|q| q.recursion_desired = false);
    only_recursive.known(&nodata()).becomes("pass 0 after 0");
    case("RD=1").policy(|p| p.recursive_only = true).known(&nodata()).becomes("ask a.test. 1");
    case("RD=0, all")
        .asked(|q| q.recursion_desired = false)
        .known(&nodata())
        .becomes("ask a.test. 1");
}

#[test]
fn rfc6147_5_1_1_real_aaaa_records_are_passed_on() {
    case("AAAA").known(&real()).becomes("pass 0 after 0");
}

#[test]
fn rfc6147_5_1_2_errors_are_nodata_nxdomain_is_final() {
    case("NXDOMAIN").known(&nodata().rcode(3)).becomes("pass 0 after 0");
    case("SERVFAIL").known(&servfail(AAAA)).becomes("ask a.test. 1");
    for code in [1, 4, 5] {
        case("error").known(&said("a.test", AAAA).rcode(code)).becomes("ask a.test. 1");
    }
    let both = case("SERVFAIL, then A").known(&servfail(AAAA)).known(&address());
    both.becomes("synthesize 1 after 1, Rcode, 600 s");
    case("nodata-only")
        .mode(Mode::NodataOnly)
        .known(&servfail(AAAA))
        .becomes("error SERVFAIL None, EDE 22");
}

#[test]
fn rfc6147_5_1_3_timeout_is_nodata() {
    case("timeout").failed(Failure::Timeout).becomes("ask a.test. 1");
    case("timeout, A")
        .failed(Failure::Timeout)
        .known(&address())
        .becomes("synthesize 1 after 1, Timeout, 600 s");
    case("nodata-only")
        .mode(Mode::NodataOnly)
        .failed(Failure::Timeout)
        .becomes("error SERVFAIL Some(Timeout)");
    for failure in [Failure::Overload, Failure::Unreachable, Failure::AliasLoop] {
        case("ours").failed(failure).becomes(&format!("error SERVFAIL Some({failure:?})"));
    }
}

#[test]
fn rfc6147_5_1_4_excluded_records_are_none() {
    case("all").known(&mapped()).becomes("ask a.test. 1");
    let mixed = mapped().aaaa("a.test", 60, "2001:db8::1");
    case("mixed").known(&mixed).becomes("pass 0 stripped after 0");
    case("A").known(&mapped()).known(&address()).becomes("synthesize 1 after 1, Excluded, 600 s");
    let empty = case("no A").known(&mapped()).known(&said("a.test", A).nodata(60));
    empty.becomes("empty after 1, like 1");
}

#[test]
fn rfc6147_5_1_5_aliases_are_followed_to_their_end() {
    let alias = said("a.test", AAAA).cname("a.test", 60, "b.test");
    case("open end").known(&alias).becomes("ask b.test. 28");
    let end = said("b.test", AAAA).nodata(60);
    case("A of the end").known(&alias).known(&end).becomes("ask b.test. 1");
    let a = said("b.test", A).a("b.test", 60, "8.8.8.8");
    case("made").known(&alias).known(&end).known(&a).becomes("synthesize 2 after 2, NoData, 60 s");
    case("real")
        .known(&alias)
        .known(&said("b.test", AAAA).aaaa("b.test", 1, "2001:db8::1"))
        .becomes("pass 1 after 1");
    let back = said("b.test", AAAA).cname("b.test", 60, "a.test");
    case("loop").known(&alias).known(&back).becomes("error SERVFAIL Some(AliasLoop)");
    let other = said("a.test", A).cname("a.test", 60, "c.test");
    case("A has aliases of its own").known(&nodata()).known(&other).becomes("ask c.test. 1");
    let known = case("and their end").known(&nodata()).known(&other);
    known
        .known(&said("c.test", A).a("c.test", 60, "8.8.8.8"))
        .becomes("synthesize 2 after 2, NoData, 120 s");
}

#[test]
fn rfc6147_5_1_5_endless_aliases_end() {
    let chain = |length| {
        (0..length).fold(case("chain"), |chain, n| {
            let owner = if n == 0 { "a.test".into() } else { format!("a{n}.test") };
            chain.known(&said(&owner, AAAA).cname(&owner, 60, &format!("a{}.test", n + 1)))
        })
    };
    chain(MAX_ALIASES).becomes(&format!("ask a{MAX_ALIASES}.test. 28"));
    chain(MAX_ALIASES + 1).becomes("error SERVFAIL Some(AliasLoop)");
}

#[test]
fn rfc6147_5_1_6_the_reply_is_based_on_the_a_answer() {
    case("no data").known(&nodata()).becomes("ask a.test. 1");
    case("no data, no A")
        .known(&nodata())
        .known(&said("a.test", A).nodata(9))
        .becomes("pass 0 after 0");
    case("no data, A fails")
        .known(&nodata())
        .known(&servfail(A))
        .becomes("error SERVFAIL None, EDE 22");
    case("no data, A silent")
        .known(&nodata())
        .failed(Failure::Timeout)
        .becomes("error SERVFAIL Some(Timeout)");
    let gone = said("a.test", A).nodata(9).rcode(3);
    case("no data, then NXDOMAIN").known(&nodata()).known(&gone).becomes("pass 1 after 1");
    case("SERVFAIL, no A")
        .known(&servfail(AAAA))
        .known(&said("a.test", A).nodata(9))
        .becomes("error SERVFAIL None, EDE 22");
    case("refused, no A")
        .known(&said("a.test", AAAA).rcode(5))
        .known(&said("a.test", A).nodata(9))
        .becomes("error REFUSED None");
    case("silence, no A")
        .failed(Failure::Timeout)
        .known(&said("a.test", A).nodata(9))
        .becomes("error SERVFAIL Some(Timeout)");
    case("silence, NXDOMAIN").failed(Failure::Timeout).known(&gone).becomes("pass 1 after 1");
}

#[test]
fn rfc6147_5_1_7_the_ttl_is_bound_by_the_soa() {
    case("SOA").known(&nodata()).known(&address()).becomes("synthesize 1 after 1, NoData, 120 s");
    case("MINIMUM")
        .known(&said("a.test", AAAA).nodata(9_000))
        .known(&address())
        .becomes("synthesize 1 after 1, NoData, 300 s");
    case("no SOA")
        .known(&said("a.test", AAAA))
        .known(&address())
        .becomes("synthesize 1 after 1, NoData, 600 s");
    case("aged")
        .aged(&nodata(), 50)
        .known(&address())
        .becomes("synthesize 1 after 1, NoData, 70 s");
}

#[test]
fn rfc6147_5_5_signed_answers_unchanged_with_do() {
    let signed = address().rrsig("a.test", A);
    let who_checks = |name| case(name).asked(|q| q.dnssec_ok = true);
    who_checks("signed A").known(&nodata()).known(&signed).becomes("pass 0 after 0, Signed");
    let denial = nodata().rrsig("a.test", AAAA);
    who_checks("signed denial").known(&denial).known(&address()).becomes("pass 0 after 0, Signed");
    who_checks("unsigned")
        .known(&nodata())
        .known(&address())
        .becomes("synthesize 1 after 1, NoData, 120 s");
    who_checks("break-dnssec")
        .policy(|p| p.break_dnssec = true)
        .known(&nodata())
        .known(&signed)
        .becomes("synthesize 1 after 1, NoData, 120 s");
    case("DO=0").known(&nodata()).known(&signed).becomes("synthesize 1 after 1, NoData, 120 s");
}

#[test]
fn rfc6052_3_1_addresses_without_a_prefix_are_not_mapped() {
    let private = said("a.test", A).a("a.test", 60, "10.0.0.1");
    case("private").known(&nodata()).known(&private).becomes("pass 0 after 0, Unmapped");
    case("one of two")
        .known(&nodata())
        .known(&private.a("a.test", 60, "8.8.8.8"))
        .becomes("synthesize 1 after 1, NoData, 120 s");
    let excluded =
        case("excluded").known(&mapped()).known(&said("a.test", A).a("a.test", 60, "10.0.0.1"));
    excluded.becomes("empty after 1, like 1, Unmapped");
}

/// RFC 8914 §4: a validation failure is not replaced by another answer.
#[test]
fn rfc6147_5_1_2_bogus_records_are_not_replaced() {
    for code in [1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 25, 27] {
        let said = said("a.test", AAAA).rcode(2).ede(code);
        case("rejected").known(&said).becomes(&format!("error SERVFAIL None, EDE {code}"));
    }
    for code in [0, 3, 4, 13, 22, 23, 24, 26] {
        case("failed").known(&said("a.test", AAAA).rcode(2).ede(code)).becomes("ask a.test. 1");
    }
}

#[test]
fn rfc6147_5_1_2_unexplained_failures_are_probed() {
    case("SERVFAIL").known(&unexplained()).becomes("probe a.test.");
    for there in [
        real(),
        nodata(),
        said("a.test", AAAA),
        nodata().rcode(3),
        said("a.test", AAAA).cname("a.test", 1, "b.test"),
    ] {
        case("bogus").known(&unexplained()).known(&there).becomes("error SERVFAIL None, EDE 6");
    }
    case("dead").known(&unexplained()).known(&unexplained()).becomes("ask a.test. 1");
    case("dead")
        .known(&unexplained())
        .known(&said("a.test", AAAA).rcode(5))
        .becomes("ask a.test. 1");
    case("silent").known(&unexplained()).failed(Failure::Timeout).becomes("ask a.test. 1");
    let synthesized = case("made").known(&unexplained()).failed(Failure::Timeout).known(&address());
    synthesized.becomes("synthesize 2 after 1, Rcode, 600 s");
    case("nodata-only").mode(Mode::NodataOnly).known(&unexplained()).becomes("error SERVFAIL None");
    let alias = said("a.test", AAAA).cname("a.test", 60, "b.test");
    let end = said("b.test", AAAA).rcode(2);
    case("behind an alias").known(&alias).known(&end).becomes("probe b.test.");
    let synthesized = case("behind an alias").known(&alias).known(&end).known(&end);
    synthesized.becomes("ask b.test. 1");
}

#[test]
fn rfc8767_4_stale_does_not_replace_bogus() {
    let stale = |doubtful: bool| match real().aged(100) {
        Outcome::Answered(kept) => {
            Outcome::Answered(CachedAnswer { stale: true, doubted: doubtful.then_some(0), ..kept })
        }
        failed @ Outcome::Failed(_) => failed,
    };
    let known = |outcomes: &[Outcome]| {
        let mut case = case("stale");
        case.known = outcomes.to_vec();
        case
    };
    known(&[stale(false)]).becomes("pass 0 after 0");
    known(&[stale(true)]).becomes("probe a.test.");
    known(&[stale(true), real().kept()]).becomes("error SERVFAIL None, EDE 6");
    known(&[stale(true), Outcome::Failed(Failure::Timeout)]).becomes("pass 0 after 0");
    let mut lenient = known(&[stale(true)]);
    lenient.mode = Mode::NodataOnly;
    lenient.becomes("probe a.test.");
}

#[test]
fn failure_older_than_its_probe_is_asked_again() {
    case("both 3 s old")
        .aged(&unexplained(), 3)
        .aged(&real(), 3)
        .becomes("error SERVFAIL None, EDE 6");
    case("3 s old").aged(&unexplained(), 3).known(&real()).becomes("again a.test.");
    let old = |may_ask_again| {
        let Outcome::Answered(kept) = real().aged(100) else { panic!("an answer") };
        let stale = CachedAnswer { stale: true, doubted: Some(25), ..kept };
        let mut case = case("stale, doubted for 25 s");
        case.may_ask_again = may_ask_again;
        case.known = vec![Outcome::Answered(stale), real().kept()];
        case
    };
    old(true).becomes("again a.test.");
    old(false).becomes("pass 0 after 0");
}

#[test]
fn rfc6147_5_1_3_mode_timeout_follows_timeouts_only() {
    let timeout = |name| case(name).mode(Mode::Timeout);
    timeout("silence").failed(Failure::Timeout).becomes("ask a.test. 1");
    timeout("no data").known(&nodata()).becomes("ask a.test. 1");
    timeout("error").known(&servfail(AAAA)).becomes("error SERVFAIL None, EDE 22");
    timeout("unexplained").known(&unexplained()).becomes("error SERVFAIL None");
}

/// RFC 6147 §5.1.4 if all IPv6 addresses are excluded, and the replies that clients get instead of
/// excluded records.
#[test]
fn ignored_and_excluded_aaaa_records_may_come_back() {
    let no_a = || said("a.test", A).nodata(60);
    let ignored = |name| case(name).policy(|p| p.ignore_aaaa = true);
    ignored("real").known(&real()).becomes("ask a.test. 1");
    ignored("made")
        .known(&real())
        .known(&address())
        .becomes("synthesize 1 after 1, Excluded, 600 s");
    ignored("no A").known(&real()).known(&no_a()).becomes("empty after 1, like 1");
    let back = |name| ignored(name).policy(|p| p.fallback_native = true).known(&real());
    back("A").known(&address()).becomes("synthesize 1 after 1, Excluded, 600 s");
    back("no A").known(&no_a()).becomes("pass 0 after 0");
    back("A does not exist").known(&no_a().rcode(3)).becomes("pass 0 after 0");
    back("no prefix carries it")
        .known(&said("a.test", A).a("a.test", 60, "10.0.0.1"))
        .becomes("pass 0 after 0");
    back("signed")
        .asked(|q| q.dnssec_ok = true)
        .known(&address().rrsig("a.test", A))
        .becomes("pass 0 after 0");
    // The state of the name's A records is then unknown.
    back("A fails").known(&servfail(A)).becomes("error SERVFAIL None, EDE 22");
    let excluded = |name| {
        let all = |p: &mut Policy| {
            p.exclude = vec!["::/0".parse().unwrap()].into();
            p.fallback_native = true;
        };
        case(name).policy(all)
    };
    let mixed = mapped().aaaa("a.test", 60, "2001:db8::1");
    excluded("mixed").known(&mixed).known(&no_a()).becomes("pass 0 without mapped ones after 0");
    excluded("mapped").known(&mapped()).known(&no_a()).becomes("empty after 1, like 1");
}

#[test]
fn filter_a_withholds_a_if_aaaa_exist() {
    let who = |name| case(name).policy(|p| p.filter_a = true).asked(|q| q.qtype = A);
    case("AAAA as ever").policy(|p| p.filter_a = true).known(&real()).becomes("pass 0 after 0");
    who("nothing known").becomes("ask a.test. 28");
    who("real").known(&real()).becomes("empty after 0, like 0, Filtered");
    who("none yet").known(&nodata()).becomes("ask a.test. 1");
    who("made").known(&nodata()).known(&address()).becomes("empty after 1, like 1, made, Filtered");
    who("silence")
        .failed(Failure::Timeout)
        .known(&address())
        .becomes("empty after 1, like 1, made, Filtered");
    let alias = said("a.test", AAAA).cname("a.test", 60, "b.test");
    let end = said("b.test", AAAA).aaaa("b.test", 60, "2001:db8::1");
    who("alias").known(&alias).known(&end).becomes("empty after 1, like 1, Filtered");
    let mixed = mapped().aaaa("a.test", 60, "2001:db8::1");
    who("mixed").known(&mixed).becomes("empty after 0, like 0, Filtered");
}

#[test]
fn filter_a_keeps_a_without_aaaa() {
    let who = |name| case(name).policy(|p| p.filter_a = true).asked(|q| q.qtype = A);
    let private = said("a.test", A).a("a.test", 60, "10.0.0.1");
    who("no prefix carries it").known(&nodata()).known(&private).becomes("pass 1 after 1");
    let no_a = said("a.test", A).nodata(60);
    who("no A either").known(&nodata()).known(&no_a).becomes("pass 1 after 1");
    who("A fails").known(&nodata()).known(&servfail(A)).becomes("error SERVFAIL None, EDE 22");
    // If the AAAA answer requires no A query for synthesis, the client's own A query is sent next.
    let gone = nodata().rcode(3);
    who("NXDOMAIN").known(&gone).becomes("ask a.test. 1");
    who("NXDOMAIN, A").known(&gone).known(&address()).becomes("pass 1 after 0");
    let strict = who("errors are passed on").mode(Mode::NodataOnly);
    strict.known(&servfail(AAAA)).known(&address()).becomes("pass 1 after 0");
    let alias = |from: &str, to, qtype| said(from, qtype).cname(from, 60, to);
    let [to, back] = [("a.test", "b.test"), ("b.test", "a.test")];
    let endless =
        who("AAAA loop").known(&alias(to.0, to.1, AAAA)).known(&alias(back.0, back.1, AAAA));
    endless.becomes("ask a.test. 1");
    endless.known(&address()).becomes("pass 2 after 0");
    let endless = who("A loop").known(&nodata()).known(&alias(to.0, to.1, A));
    endless.known(&alias(back.0, back.1, A)).becomes("error SERVFAIL Some(AliasLoop)");
    who("bogus").known(&unexplained()).known(&real()).becomes("ask a.test. 1");
    who("bogus, A")
        .known(&unexplained())
        .known(&real())
        .known(&address())
        .becomes("pass 2 after 0");
    let off = |name| who(name).policy(|p| p.mappings.clear());
    off("no prefix").known(&nodata()).becomes("ask a.test. 1");
    off("no prefix, A").known(&nodata()).known(&address()).becomes("pass 1 after 0");
    off("no prefix, real").known(&real()).becomes("empty after 0, like 0, Filtered");
    // Only the AAAA answer has the alias.
    let alias = said("a.test", AAAA).cname("a.test", 60, "b.test");
    let end = said("b.test", AAAA).nodata(60);
    let astray = who("other aliases").known(&alias).known(&end);
    astray.known(&said("b.test", A).nodata(60)).becomes("ask a.test. 1");
    let found = who("other aliases, A").known(&alias).known(&end).known(&servfail(A));
    found.known(&address()).becomes("pass 3 after 0");
    who("shed").failed(Failure::Overload).becomes("error SERVFAIL Some(Overload)");
    off("shed").failed(Failure::Overload).becomes("error SERVFAIL Some(Overload)");
    who("CD").asked(|q| q.checking_disabled = true).known(&nodata()).becomes("ask a.test. 1");
    who("class CH").asked(|q| q.qclass = 3).becomes("ask a.test. 1");
    // A validating client would treat NODATA without a proof as forged.
    let signed = real().rrsig("a.test", AAAA);
    let checks = |name| who(name).asked(|q| q.dnssec_ok = true).known(&signed);
    checks("signed").becomes("ask a.test. 1");
    checks("signed, A").known(&address()).becomes("pass 1 after 0");
    checks("break-dnssec")
        .policy(|p| p.break_dnssec = true)
        .becomes("empty after 0, like 0, Filtered");
}

/// Rules may be replaced while a query waits. In this test, AAAA records were excluded under the old
/// rules, so the A records of the end of the aliases were queried. The reply must not use them.
#[test]
fn filter_a_ignores_answers_about_other_names() {
    let alias = said("a.test", AAAA).cname("a.test", 60, "longer.test");
    let end = said("longer.test", AAAA).aaaa("longer.test", 60, "2001:db8::1");
    let signed = end.rrsig("longer.test", AAAA);
    let of_end = said("longer.test", A).a("longer.test", 60, "8.8.8.8");
    let who = |name| {
        let who = case(name).policy(|p| p.filter_a = true).asked(|q| q.qtype = A);
        who.asked(|q| q.dnssec_ok = true).known(&alias).known(&signed).known(&of_end)
    };
    who("A of the end").becomes("ask a.test. 1");
    who("A of the name").known(&address()).becomes("pass 3 after 0");
    who("A fails").failed(Failure::Timeout).becomes("error SERVFAIL Some(Timeout)");
}

#[test]
fn plan_lists_the_upstream_queries() {
    let plan = |qtype: u16, change: fn(&mut Policy)| {
        let case = case("plan").asked(|q| q.qtype = qtype).policy(change);
        case.question.plan(&case.policy, case.mode)
    };
    assert_eq!(plan(AAAA, |_| {}), Plan::Translated(Mode::Strict));
    assert_eq!(plan(AAAA, |p| p.filter_a = true), Plan::Translated(Mode::Strict));
    assert_eq!(plan(AAAA, |p| p.mappings.clear()), Plan::Unchanged);
    assert_eq!(plan(A, |_| {}), Plan::Unchanged);
    assert_eq!(plan(A, |p| p.filter_a = true), Plan::Filtered(Some(Mode::Strict)));
    let native_only = |p: &mut Policy| {
        p.filter_a = true;
        p.mappings.clear();
    };
    assert_eq!(plan(A, native_only), Plan::Filtered(None));
}

/// Item 47: a NODATA reply would be cached, and would be wrong as soon as a prefix is available.
#[test]
fn missing_discovered_prefix_is_servfail() {
    let awaiting = |name| {
        case(name).policy(|policy| {
            policy.mappings.clear();
            policy.awaits_prefix = true;
        })
    };
    const NOT_READY: &str = "error SERVFAIL None, EDE 14";
    awaiting("made").known(&nodata()).known(&address()).becomes(NOT_READY);
    awaiting("excluded").known(&mapped()).known(&address()).becomes(NOT_READY);
    awaiting("native").known(&real()).becomes("pass 0 after 0");
    let none = said("a.test", A).nodata(120);
    awaiting("no A records").known(&nodata()).known(&none).becomes("pass 0 after 0");
    let gone = said("a.test", AAAA).rcode(3);
    awaiting("no such name").known(&gone).becomes("pass 0 after 0");
    awaiting("for who validates")
        .asked(|question| question.dnssec_ok = true)
        .known(&said("a.test", AAAA).nodata(120))
        .known(&address().rrsig("a.test", A))
        .becomes("pass 0 after 0, Signed");
    // A different prefix embeds the address.
    case("two prefixes")
        .policy(|policy| policy.awaits_prefix = true)
        .known(&nodata())
        .known(&address())
        .becomes("synthesize 1 after 1, NoData, 120 s");
}

/// The questions that are looked up in the cache at once are those that [`next`] returns one after another.
#[test]
fn usual_questions_are_those_of_single_steps() {
    let alias = || said("a.test", AAAA).cname("a.test", 60, "b.test");
    let Outcome::Answered(denial) = nodata().kept() else { panic!("an answer") };
    let stale = |doubted| CachedAnswer { stale: true, doubted, ..denial.clone() };
    let first = [
        nodata().kept(),
        nodata().aged(30),
        Outcome::Answered(stale(None)),
        Outcome::Answered(stale(Some(3))),
        real().kept(),
        mapped().kept(),
        alias().kept(),
        alias().nodata(60).kept(),
        alias().aaaa("b.test", 60, "2001:db8::1").kept(),
        said("a.test", AAAA).nodata(60).rcode(3).kept(),
        servfail(AAAA).kept(),
        unexplained().kept(),
        Outcome::Failed(Failure::Timeout),
        Outcome::Failed(Failure::Unreachable),
    ];
    let second = [Some(address().kept()), Some(servfail(A).kept()), None];
    let policies = [
        Policy::default(),
        Policy { filter_a: true, ..Policy::default() },
        Policy { ignore_aaaa: true, ..Policy::default() },
        Policy { mappings: Vec::new(), ..Policy::default() },
    ];
    for ((policy, mode), (qtype, checking_disabled)) in policies
        .iter()
        .flat_map(|policy| {
            [Mode::Strict, Mode::NodataOnly, Mode::Timeout].map(|mode| (policy, mode))
        })
        .flat_map(|rules| {
            [(AAAA, false), (AAAA, true), (A, false), (ANY, false)].map(|asked| (rules, asked))
        })
    {
        let question = Question { qtype, checking_disabled, ..case("").question };
        let client = Ipv4Addr::LOCALHOST.into();
        let rules = Rules { mode, ..Rules::for_all_names(policy, client) };
        for (first, second) in first.iter().flat_map(|one| second.iter().map(move |two| (one, two)))
        {
            let mut asked = Vec::new();
            let mut known = Outcomes::new();
            let missing = question.usual_answers(&rules, &mut known, |key| {
                asked.push((key.name().to_vec(), key.qtype()));
                if asked.len() == 1 { Some(first.clone()) } else { second.clone() }
            });
            let missing = missing.map(|key| (key.name().to_vec(), key.qtype()));
            assert_eq!(missing.as_ref(), asked.get(known.len()), "{question:?}");
            for (at, (name, qtype)) in asked.iter().enumerate() {
                match next(&question, policy, mode, &known[..at], true) {
                    Next::Ask(next, next_type) => assert_eq!((next, next_type), (&**name, *qtype)),
                    other => panic!("{question:?}: {other:?} after {at} of {known:?}"),
                }
            }
        }
    }
}
