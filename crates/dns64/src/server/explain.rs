//! Explanation of a query. The explained query takes the same path as every other query, and each
//! step is recorded in a trace.
//!
//! ```text
//! control ─► mail ─► Frontend ─► advance … resume … ─► Reply ─► Explanation ─► control
//!                                  └── Trace: questions and their outcomes
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::Message;
use domain::base::iana::Rtype;
use domain::base::name::ToName;
use domain::base::opt::UnknownOptData;
use domain::rdata::AllRecordData;
use net::clock;
use tokio::sync::oneshot;
use units::Nanos;
use wire::edns::option;
use wire::rcode::Rcode;
use wire::view::rtype;

use crate::client::inquiry::Inquiry;
use crate::client::query::Query;
use crate::client::reply::synthetic_ttl;
use crate::config::{PrefixKeys, Settings};
use crate::control::{
    AnswerRecord, EXPLANATION_VERSION, Explanation, PrefixRule, QuestionAsked, RulesApplied,
    Source, TtlBounds, ZoneInChain,
};
use crate::name::{KeyBuf, LowerName, text};
use crate::prefixes::LivePrefixes;
use crate::resolver::answer::{Answer, AnswerKind};
use crate::resolver::outcome::{Failure, Outcome};
use crate::translation::decide::Reply;
use crate::translation::decision::Decision;
use crate::translation::policy::{Mapping, Rules};
use crate::translation::prefix::Prefix;

/// Channel for the explanation, or for an error message if there is no explanation.
pub(super) type ExplanationSender = oneshot::Sender<Result<Explanation, String>>;

/// Events recorded while a query is processed.
pub(super) struct Trace {
    tell: ExplanationSender,
    questions: Vec<QuestionAsked>,
    /// Pending upstream query, and its start time.
    waiting: Option<(KeyBuf, Nanos)>,
}

impl Trace {
    /// Creates an empty trace.
    pub(super) fn new(tell: ExplanationSender) -> Trace {
        Trace { tell, questions: Vec::new(), waiting: None }
    }

    /// Records a question that was answered from the cache.
    pub(super) fn known(&mut self, key: &KeyBuf, outcome: &Outcome) {
        self.record(key, Source::Cache, Nanos(0), outcome);
    }

    /// Records a question that was answered locally, without an upstream query.
    pub(super) fn local(&mut self, key: &KeyBuf, outcome: &Outcome) {
        self.record(key, Source::Local, Nanos(0), outcome);
    }

    /// Records a question that was rejected without an upstream query.
    pub(super) fn denied(&mut self, key: &KeyBuf) {
        self.record(key, Source::Nobody, Nanos(0), &Outcome::Failed(Failure::Overload));
    }

    /// Records the start of a wait for an upstream answer.
    pub(super) fn waits(&mut self, key: &KeyBuf, now: Nanos) {
        self.waiting = Some((key.clone(), now));
    }

    /// Records the outcome of the pending upstream query.
    pub(super) fn completed(&mut self, outcome: &Outcome, now: Nanos) {
        if let Some((key, since)) = self.waiting.take() {
            self.record(&key, Source::Upstream, now.since(since), outcome);
        }
    }

    fn record(&mut self, key: &KeyBuf, source: Source, took: Nanos, outcome: &Outcome) {
        let kept = outcome.kept();
        let answer = kept.map(|kept| &*kept.answer);
        self.questions.push(QuestionAsked {
            name: text(key.name()),
            rtype: type_name(key.qtype()),
            probe: key.is_probe(),
            source,
            took_us: took.0 / 1_000,
            found: found(outcome).to_owned(),
            rcode: answer.map(|answer| format!("{:?}", answer.rcode())),
            extended_error: answer.and_then(Answer::extended_error),
            age_s: kept.map(|kept| kept.age),
            ttl_s: kept.map(|kept| kept.left(kept.answer.ttl())),
            stale: kept.is_some_and(|kept| kept.stale),
            signed: answer.is_some_and(Answer::is_signed),
            authentic: answer.is_some_and(Answer::is_authentic),
            security: outcome.security().map(|security| security.to_string()),
            alias_of: answer
                .filter(|answer| answer.has_aliases())
                .map(|answer| text(answer.target())),
            addresses: answer.map(addresses).unwrap_or_default(),
        });
    }

    /// Sends the explanation of a reply.
    pub(super) fn tell(
        mut self,
        inquiry: &Inquiry,
        reply: &Reply<'_>,
        rules: &Rules<'_>,
        settings: &Settings,
        now: Nanos,
    ) {
        let mut octets = Vec::new();
        let source = inquiry.source();
        source.write(&mut octets, reply, rules);
        let decision = source.decision(reply, rules.policy);
        let applied = applied(rules, inquiry.name(), settings, now);
        let (asked, qtype) = source.asked();
        let mut explanation = Explanation {
            questions: std::mem::take(&mut self.questions),
            stale: source.is_stale(),
            ttl: ttl_bounds(reply, rules),
            chain: chain(settings, &asked),
            ..explanation(&asked, qtype, decision, reply.rcode(), applied, rules.client)
        };
        if let Some((answer, errors)) = read(&octets) {
            mark_used(&mut explanation.rules.prefixes, &answer, reply);
            (explanation.answer, explanation.extended_errors) = (answer, errors);
        }
        // Sending fails if the client of the control socket has closed its connection.
        let _ = self.tell.send(Ok(explanation));
    }

    /// Explains to the user of `dns64d explain` that `[access]` does not allow the client.
    pub(super) fn refuse(
        self,
        query: &Query<'_>,
        rules: &Rules<'_>,
        settings: &Settings,
        now: Nanos,
    ) {
        let applied = applied(rules, &query.name, settings, now);
        let (name, qtype) = (&query.name, query.qtype);
        let refused = Decision::Refused;
        let reply = explanation(name, qtype, refused, Rcode::REFUSED, applied, rules.client);
        let _ = self.tell.send(Ok(reply));
    }

    /// Sends an error message in place of an explanation.
    pub(super) fn fail(self, why: &str) {
        let _ = self.tell.send(Err(why.to_owned()));
    }
}

/// Returns an explanation in which only the fields common to all explanations are set.
fn explanation(
    name: &LowerName,
    qtype: u16,
    decision: Decision,
    rcode: Rcode,
    rules: RulesApplied,
    client: IpAddr,
) -> Explanation {
    Explanation {
        schema_version: EXPLANATION_VERSION,
        name: text(name.wire()),
        rtype: type_name(qtype),
        client,
        decision,
        decided_by: decision.source().to_owned(),
        rules,
        questions: Vec::new(),
        rcode: format!("{rcode:?}"),
        extended_errors: Vec::new(),
        stale: false,
        answer: Vec::new(),
        ttl: None,
        chain: Vec::new(),
    }
}

/// Returns the zones from the trust anchor down to the name, as far as they are stored.
fn chain(settings: &Settings, name: &LowerName) -> Vec<ZoneInChain> {
    let Some(validator) = settings.active_validator() else { return Vec::new() };
    let Ok(name) = dnssec::Name::from_octets(name.wire().to_vec().into()) else {
        return Vec::new();
    };
    let now = clock::wall().0 / Nanos::SECOND.0;
    let zones = validator.chain(&name, now).into_iter().map(|status| ZoneInChain {
        zone: text(status.zone.as_slice()),
        security: status.security.to_string(),
        key_tags: status.key_tags,
        extended_error: status.extended_error.map(|code| code.to_int()),
    });
    zones.collect()
}

/// Returns the mnemonic of a type, as in zone files.
fn type_name(qtype: u16) -> String {
    Rtype::from_int(qtype).to_string()
}

/// Returns one word for the outcome of a question, for example `data` or `timeout`.
fn found(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered(kept) => match kept.answer.kind() {
            AnswerKind::Data => "data",
            AnswerKind::NoData => "no-data",
            AnswerKind::NxDomain => "no-name",
            AnswerKind::Unfinished => "alias",
            AnswerKind::Failed => "error",
        },
        Outcome::Failed(Failure::Timeout) => "timeout",
        Outcome::Failed(Failure::Malformed) => "malformed",
        Outcome::Failed(Failure::AliasLoop) => "alias-loop",
        Outcome::Failed(Failure::Overload) => "overload",
        Outcome::Failed(Failure::Unreachable) => "unreachable",
        Outcome::Failed(Failure::NoUpstream) => "no-upstream",
        Outcome::Failed(Failure::Bogus(_)) => "bogus",
        Outcome::Failed(Failure::NotValidated(_)) => "not-validated",
    }
}

/// Returns the addresses in an answer.
fn addresses(answer: &Answer) -> Vec<IpAddr> {
    let address = |rtype, data: &[u8]| match rtype {
        rtype::A => <[u8; 4]>::try_from(data).ok().map(|data| Ipv4Addr::from(data).into()),
        rtype::AAAA => <[u8; 16]>::try_from(data).ok().map(|data| Ipv6Addr::from(data).into()),
        _ => None,
    };
    answer.answers().filter_map(|record| address(record.rtype, record.data)).collect()
}

/// Returns the rules that apply to queries of a client for a name.
fn applied(rules: &Rules<'_>, name: &LowerName, settings: &Settings, now: Nanos) -> RulesApplied {
    let (policy, config) = (rules.policy, &settings.config);
    let whose = settings.policy_source(rules.client, name);
    let group = whose.group.and_then(|index| config.groups.get(index));
    let own = group.zip(whose.group_domain).and_then(|(group, index)| group.domains.get(index));
    let common = whose.domain.and_then(|index| config.domains.get(index));
    let route = &settings.routes[settings.route(name.wire()).0];
    let is_root = route.domain.wire().len() == 1;
    let upstreams = route.upstreams.iter().filter_map(|&index| settings.upstreams.get(index));
    RulesApplied {
        allowed: settings.allows(rules.client),
        group: whose.group.map(|index| index + 1),
        group_domain: own.map(|keys| keys.domain.get_ref().clone()),
        domain: common.map(|keys| keys.domain.get_ref().clone()),
        forward: (!is_root).then(|| text(route.domain.wire())),
        upstreams: upstreams.map(|upstream| upstream.address).collect(),
        prefixes: policy.mappings.iter().map(|one| prefix_rule(one, settings, now)).collect(),
        select: policy.select,
        mode: rules.mode,
        ignore_aaaa: policy.ignore_aaaa,
        fallback_native: policy.fallback_native,
        break_dnssec: policy.break_dnssec,
        recursive_only: policy.recursive_only,
        filter_a: policy.filter_a,
        https_hints: policy.hints,
    }
}

fn prefix_rule(mapping: &Mapping, settings: &Settings, now: Nanos) -> PrefixRule {
    let (prefix, standing) = (mapping.prefix(), mapping.state());
    // A discovered prefix has the name of the entry `discover`.
    let announced = standing.until.map(|until| (*prefix, until));
    let live =
        LivePrefixes { announced: announced.into_iter().collect(), ..LivePrefixes::default() };
    let is_it =
        |keys: &&PrefixKeys| keys.prefixes(&live).iter().any(|(written, _)| written == prefix);
    let written = settings.config.written_prefixes().find(is_it);
    PrefixRule {
        prefix: prefix.to_string(),
        name: written.and_then(PrefixKeys::name).map(str::to_owned),
        draining: standing.draining,
        unhealthy: standing.unhealthy_since.is_some(),
        expires_in_s: standing.until.map(|until| until.since(now).0 / Nanos::SECOND.0),
        used: false,
    }
}

/// Marks the prefixes with which records of an answer were synthesized.
fn mark_used(prefixes: &mut [PrefixRule], answer: &[AnswerRecord], reply: &Reply<'_>) {
    let is_made = matches!(reply, Reply::Synthesize { .. } | Reply::Local(_));
    let made: Vec<Ipv6Addr> = answer
        .iter()
        .filter(|record| is_made && record.rtype == "AAAA")
        .filter_map(|record| record.data.parse().ok())
        .collect();
    for rule in prefixes {
        let prefix = rule.prefix.parse::<Prefix>();
        rule.used = prefix.is_ok_and(|prefix| made.iter().any(|&address| prefix.covers(address)));
    }
}

/// Returns the bounds on the TTL of synthesized records.
fn ttl_bounds(reply: &Reply<'_>, rules: &Rules<'_>) -> Option<TtlBounds> {
    let Reply::Synthesize { a, ttl_limit, .. } = *reply else { return None };
    Some(TtlBounds {
        a_s: synthetic_ttl(a, u32::MAX),
        denial_s: ttl_limit,
        prefix_s: Some(rules.lifetime()).filter(|&left| left != u32::MAX),
    })
}

/// Parses the answer section and the extended errors of the reply with an independent library.
fn read(octets: &[u8]) -> Option<(Vec<AnswerRecord>, Vec<u16>)> {
    let message = Message::from_octets(octets).ok()?;
    let records = message.answer().ok()?.limit_to::<AllRecordData<_, _>>();
    let records = records.filter_map(Result::ok).map(|record| AnswerRecord {
        name: text(record.owner().to_name::<Vec<u8>>().as_slice()),
        ttl: record.ttl().as_secs(),
        rtype: record.rtype().to_string(),
        data: record.data().to_string(),
    });
    let records: Vec<AnswerRecord> = records.collect();
    let errors = message.opt().map_or(Vec::new(), |opt| {
        let options = opt.opt().iter::<UnknownOptData<_>>().filter_map(Result::ok);
        let errors = options.filter(|one| one.code().to_int() == option::EXTENDED_ERROR);
        let codes = errors.filter_map(|one| one.data().first_chunk::<2>().copied());
        codes.map(u16::from_be_bytes).collect()
    });
    Some((records, errors))
}
