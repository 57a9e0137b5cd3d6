//! Decisions that led to replies, such as the decision to synthesize AAAA records. Each decision has a keyword for logs
//! and programs, and a sentence for users.

use std::net::Ipv6Addr;

use wire::edns::ede;
use wire::rcode::Rcode;
use wire::view::{CLASS_IN, rtype};

use crate::resolver::answer::{Answer, AnswerKind};
use crate::resolver::outcome::{CachedAnswer, Failure};
use crate::translation::decide::{Cause, Question, Reason, Reply, Strip, WithheldReason};
use crate::translation::policy::Policy;

/// Defines the enum [`Decision`], with a keyword, a sentence and a source for each variant.
macro_rules! decisions {
    ($($name:ident $word:literal $sentence:literal $source:literal,)+) => {
        /// Decision that led to a reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum Decision {
            $(
                #[doc = $sentence]
                $name,
            )+
        }

        impl Decision {
            /// All decisions.
            #[cfg(test)]
            const ALL: &[Decision] = &[$(Decision::$name,)+];

            /// Returns the keyword, the sentence and the source of the decision.
            const fn row(self) -> [&'static str; 3] {
                match self {
                    $(Decision::$name => [$word, $sentence, $source],)+
                }
            }
        }
    };
}

decisions! {
    TranslatedNoData "translated-no-data"
        "The name has no AAAA records; they are synthesized from its A records."
        "RFC 6147 §5.1.6",
    TranslatedError "translated-error"
        "The AAAA query was answered with an error; AAAA records are synthesized from the A records."
        "RFC 6147 §5.1.2",
    TranslatedTimeout "translated-timeout"
        "The AAAA query timed out; AAAA records are synthesized from the A records."
        "RFC 6147 §5.1.3",
    TranslatedExcluded "translated-excluded"
        "All AAAA records of the name are excluded; others are synthesized from its A records."
        "RFC 6147 §5.1.4",
    Native "native"
        "The name has AAAA records, which are passed on."
        "RFC 6147 §5.1.1",
    NativeInPart "native-in-part"
        "The name has AAAA records; the excluded ones are removed."
        "RFC 6147 §5.1.4",
    NativeAfterAll "native-after-all"
        "All AAAA records of the name are excluded; they are passed on because no A record is usable."
        "fallback-native",
    Excluded "excluded"
        "All AAAA records of the name are excluded, and no A record is usable."
        "RFC 6147 §5.1.4",
    Signed "signed"
        "A records exist but are not used for synthesis: the answer is signed, and the client requested signatures (DO)."
        "RFC 6147 §5.5",
    Unmapped "unmapped"
        "A records exist, but no prefix carries their addresses."
        "prefixes: ranges, allow-non-global",
    NoPrefixKnown "no-prefix-known"
        "Synthesis needs a prefix, but no discovered prefix is available."
        "[discovery]",
    Off "off"
        "Synthesis is disabled for this client and this name."
        "prefixes, off",
    CheckingDisabled "checking-disabled"
        "No synthesis, because the client validates answers (CD)."
        "RFC 6147 §5.5",
    NotRecursive "not-recursive"
        "No synthesis, because the query is without RD."
        "recursive-only",
    FilteredA "filtered-a"
        "The A records are withheld, because the client gets AAAA records of the name."
        "filter-a",
    NoData "no-data"
        "The name has no usable records."
        "RFC 6147 §5.1.6",
    NoName "no-name"
        "The name does not exist."
        "RFC 6147 §5.1.2",
    PassedOn "passed-on"
        "The upstream's answer is passed on."
        "RFC 6147 §5.3.3",
    Pointer "pointer"
        "The name is in the reverse zone of a prefix; it is an alias of the embedded IPv4 address's reverse name."
        "RFC 6147 §5.3.1",
    Local "local"
        "The query is answered locally, without an upstream."
        "RFC 8880 §7, RFC 6147 §5.3.1, RFC 6761, local-zones",
    UpstreamError "upstream-error"
        "The upstream's error is passed on."
        "RFC 6147 §5.1.2",
    Rejected "rejected"
        "The data failed DNSSEC validation."
        "RFC 6147 §5.5",
    Timeout "timeout"
        "No upstream answered in time."
        "RFC 6147 §5.1.3",
    AliasLoop "alias-loop"
        "The aliases of the name form a loop, or there are too many."
        "RFC 6147 §5.1.5",
    Overload "overload"
        "Too many queries are in flight; no upstream was queried."
        "[limits]",
    NoUpstream "no-upstream"
        "No upstream is configured, neither in the configuration file nor in resolv.conf."
        "[[upstream]]",
    Refused "refused"
        "The client is not permitted to send queries."
        "[access]",
    RateLimited "rate-limited"
        "The client exceeds its query rate and has to use TCP."
        "[limits] client-rate",
    Unreadable "unreadable"
        "The query is malformed or of an unsupported kind."
        "RFC 1035 §4.1.1",
    Defect "defect"
        "The query caused an internal error of dns64d."
        "dns64d_defects_total",
}

impl Decision {
    /// Returns the keyword that represents the decision in logs and JSON.
    pub(crate) fn word(self) -> &'static str {
        self.row()[0]
    }

    /// Returns a sentence that describes the decision to users.
    pub(crate) fn sentence(self) -> &'static str {
        self.row()[1]
    }

    /// Returns the basis of the decision: a section of an RFC, or a part of the configuration.
    pub(crate) fn source(self) -> &'static str {
        self.row()[2]
    }

    /// Returns the decision that led to a reply. `policy` is the policy that applies to the question.
    pub(crate) fn from_reply(question: &Question, policy: &Policy, reply: &Reply<'_>) -> Decision {
        match *reply {
            // A missing prefix is the only reason for a local answer with SERVFAIL.
            Reply::Local(answer) if answer.rcode == Rcode::SERVFAIL => Decision::NoPrefixKnown,
            Reply::Local(_) => Decision::Local,
            Reply::Synthesize { reason, .. } => match reason {
                Reason::NoData => Decision::TranslatedNoData,
                Reason::Rcode => Decision::TranslatedError,
                Reason::Timeout => Decision::TranslatedTimeout,
                Reason::Excluded => Decision::TranslatedExcluded,
            },
            Reply::Pass { withheld: Some(why), .. } | Reply::Empty { withheld: Some(why), .. } => {
                match why {
                    WithheldReason::Unmapped => Decision::Unmapped,
                    WithheldReason::Signed => Decision::Signed,
                    WithheldReason::Filtered => Decision::FilteredA,
                }
            }
            Reply::Empty { withheld: None, .. } => Decision::Excluded,
            Reply::Pass { last, strip, .. } => passed(question, policy, last, strip),
            Reply::Error { cause, extended_error, .. } => match cause {
                Cause::Upstream if extended_error.is_some_and(ede::is_validation_failure) => {
                    Decision::Rejected
                }
                Cause::Upstream | Cause::Failed(Failure::Malformed) => Decision::UpstreamError,
                Cause::Bogus | Cause::Failed(Failure::Bogus(_)) => Decision::Rejected,
                Cause::NoPrefix => Decision::NoPrefixKnown,
                Cause::Failed(Failure::Timeout | Failure::Unreachable) => Decision::Timeout,
                Cause::Failed(Failure::AliasLoop) => Decision::AliasLoop,
                Cause::Failed(Failure::Overload | Failure::NotValidated(_)) => Decision::Overload,
                Cause::Failed(Failure::NoUpstream) => Decision::NoUpstream,
            },
        }
    }
}

/// For a reply that forwards an upstream answer, returns the decision that led to this reply.
fn passed(question: &Question, policy: &Policy, last: &CachedAnswer, strip: Strip) -> Decision {
    let is_aaaa = question.qtype == rtype::AAAA && question.qclass == CLASS_IN;
    match (last.answer.kind(), strip) {
        (AnswerKind::NxDomain, _) => Decision::NoName,
        (AnswerKind::Failed, _) => Decision::UpstreamError,
        (_, Strip::Excluded) => Decision::NativeInPart,
        (_, Strip::Mapped) => Decision::NativeAfterAll,
        (AnswerKind::Data, Strip::Nothing) if is_aaaa => {
            let after_all = policy.fallback_native && question.may_synthesize(policy);
            if after_all && aaaa_addresses(&last.answer).all(|address| policy.excludes(address)) {
                Decision::NativeAfterAll
            } else {
                Decision::Native
            }
        }
        (AnswerKind::Data, Strip::Nothing) => Decision::PassedOn,
        (AnswerKind::NoData | AnswerKind::Unfinished, Strip::Nothing) => {
            if !is_aaaa || question.may_synthesize(policy) {
                Decision::NoData
            } else if !policy.synthesizes() {
                Decision::Off
            } else if question.checking_disabled {
                Decision::CheckingDisabled
            } else {
                Decision::NotRecursive
            }
        }
    }
}

/// Returns the addresses in the AAAA records of an answer.
pub(crate) fn aaaa_addresses(answer: &Answer) -> impl Iterator<Item = Ipv6Addr> + '_ {
    let records = answer.answers().filter(|record| record.rtype == rtype::AAAA);
    records.filter_map(|record| <[u8; 16]>::try_from(record.data).ok()).map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use wire::view::rtype::{A, AAAA};

    use super::*;
    use crate::resolver::outcome::Outcome;
    use crate::testing::{TestAnswer, said};
    use crate::translation::decide::{Next, next};
    use crate::translation::local::LocalAnswer;
    use crate::translation::policy::Mode;

    const TXT: u16 = 16;

    #[test]
    fn words_match_json_and_sentences_end_with_a_stop() {
        for &decision in Decision::ALL {
            let json = serde_json::to_string(&decision).unwrap();
            assert_eq!(json, format!("\"{}\"", decision.word()));
            let sentence = decision.sentence();
            assert!(sentence.ends_with('.') && sentence.starts_with(char::is_uppercase));
            assert!(!decision.source().is_empty(), "{decision:?}");
        }
        assert_eq!(Decision::Refused.source(), "[access]");
    }

    fn nodata() -> TestAnswer {
        said("a.test", AAAA).nodata(120)
    }

    fn native(address: &str) -> TestAnswer {
        said("a.test", AAAA).aaaa("a.test", 60, address)
    }

    fn address(address: &str) -> TestAnswer {
        said("a.test", A).a("a.test", 60, address)
    }

    struct Case {
        question: Question,
        policy: Policy,
        mode: Mode,
        known: Vec<Outcome>,
    }

    fn question(name: &str, qtype: u16) -> Question {
        Question {
            name: name.parse().unwrap(),
            qtype,
            qclass: CLASS_IN,
            dnssec_ok: false,
            checking_disabled: false,
            recursion_desired: true,
        }
    }

    /// Returns the decision about a query for `a.test` with these answers.
    fn decided(qtype: u16, known: &[TestAnswer], change: impl Fn(&mut Case)) -> &'static str {
        let mut case = Case {
            question: question("a.test", qtype),
            policy: Policy::default(),
            mode: Mode::Strict,
            known: known.iter().map(TestAnswer::kept).collect(),
        };
        change(&mut case);
        let Case { question, policy, mode, known } = &case;
        match next(question, policy, *mode, known, true) {
            Next::Reply(reply) => Decision::from_reply(question, policy, &reply).word(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_decision_about_aaaa_records_has_its_word() {
        let (good, private) = (address("8.8.8.8"), address("10.0.0.1"));
        let excluded = native("::ffff:192.0.2.1");
        let servfail = said("a.test", AAAA).rcode(2).ede(22);
        let none: fn(&mut Case) = |_| {};
        type Row<'a> = (&'a str, Vec<TestAnswer>, fn(&mut Case));
        let rows: [Row<'_>; 17] = [
            ("translated-no-data", vec![nodata(), good.clone()], none),
            ("translated-error", vec![servfail.clone(), good.clone()], none),
            ("translated-excluded", vec![excluded.clone(), good.clone()], none),
            ("native", vec![native("2001:db8::1")], none),
            (
                "native-in-part",
                vec![native("2001:db8::1").aaaa("a.test", 60, "::ffff:192.0.2.1")],
                none,
            ),
            ("native-after-all", vec![native("2001:db8::1"), private.clone()], |case| {
                (case.policy.ignore_aaaa, case.policy.fallback_native) = (true, true);
            }),
            ("excluded", vec![excluded.clone(), said("a.test", A).nodata(60)], none),
            ("unmapped", vec![nodata(), private.clone()], none),
            ("signed", vec![nodata(), good.clone().rrsig("a.test", A)], |case| {
                case.question.dnssec_ok = true;
            }),
            ("no-prefix-known", vec![nodata(), good.clone()], |case| {
                case.policy.mappings.clear();
                case.policy.awaits_prefix = true;
            }),
            ("off", vec![nodata()], |case| case.policy.mappings.clear()),
            ("checking-disabled", vec![nodata()], |case| case.question.checking_disabled = true),
            ("not-recursive", vec![nodata()], |case| {
                case.policy.recursive_only = true;
                case.question.recursion_desired = false;
            }),
            ("no-data", vec![nodata(), said("a.test", A).nodata(60)], none),
            ("no-name", vec![nodata().rcode(3)], none),
            ("upstream-error", vec![servfail], |case| case.mode = Mode::NodataOnly),
            ("rejected", vec![said("a.test", AAAA).rcode(2).ede(6)], none),
        ];
        for (word, known, change) in rows {
            assert_eq!(decided(AAAA, &known, change), word);
        }
    }

    /// AAAA records are "native after all" only if they were excluded first.
    #[test]
    fn records_not_excluded_are_native() {
        let fallback = |case: &mut Case| case.policy.fallback_native = true;
        assert_eq!(decided(AAAA, &[native("2001:db8::1")], fallback), "native");
        // Excluded records count as native too if the client requests unchanged answers.
        let excluded = [native("::ffff:192.0.2.1")];
        let off = |case: &mut Case| case.question.checking_disabled = true;
        assert_eq!(decided(AAAA, &excluded, off), "native");
        let both = |case: &mut Case| {
            fallback(case);
            off(case);
        };
        assert_eq!(decided(AAAA, &excluded, both), "native");
        assert_eq!(
            decided(AAAA, &[native("2001:db8::1")], |case| case.question.qclass = 3),
            "passed-on"
        );
    }

    #[test]
    fn each_failure_has_its_word() {
        let failed =
            |failure| decided(AAAA, &[nodata()], |case| case.known.push(Outcome::Failed(failure)));
        assert_eq!(failed(Failure::Timeout), "timeout");
        assert_eq!(failed(Failure::AliasLoop), "alias-loop");
        assert_eq!(failed(Failure::Overload), "overload");
        assert_eq!(failed(Failure::NoUpstream), "no-upstream");
        let silent = decided(AAAA, &[], |case| {
            case.known = vec![Outcome::Failed(Failure::Timeout), address("8.8.8.8").kept()];
        });
        assert_eq!(silent, "translated-timeout");
        // A probe that finds data.
        let probed = [said("a.test", AAAA).rcode(2), native("2001:db8::1")];
        assert_eq!(decided(AAAA, &probed, |_| {}), "rejected");
    }

    #[test]
    fn local_answers_are_local_unless_prefix_is_missing() {
        let decided = |rcode| {
            let answer = LocalAnswer::negative(rcode, b"\0");
            let question = question("ipv4only.arpa", AAAA);
            Decision::from_reply(&question, &Policy::default(), &Reply::Local(&answer))
        };
        assert_eq!(decided(Rcode::NOERROR), Decision::Local);
        assert_eq!(decided(Rcode::NXDOMAIN), Decision::Local);
        assert_eq!(decided(Rcode::SERVFAIL), Decision::NoPrefixKnown);
    }

    #[test]
    fn other_types_are_passed_on_or_filtered() {
        assert_eq!(decided(A, &[address("8.8.8.8")], |_| {}), "passed-on");
        assert_eq!(decided(TXT, &[said("a.test", TXT).nodata(60)], |_| {}), "no-data");
        assert_eq!(decided(A, &[said("a.test", A).nodata(60).rcode(3)], |_| {}), "no-name");
        let both = [nodata(), address("8.8.8.8")];
        assert_eq!(decided(A, &both, |case| case.policy.filter_a = true), "filtered-a");
    }
}
