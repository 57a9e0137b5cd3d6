//! Answers of the reference server: RFC 6147 §5 for AAAA and PTR, RFC 8880 for ipv4only.arpa, and the upstream's
//! answers to all other queries.

use std::time::Instant;

use conform::message::{Message, Name, Question, Record, name, rcode};
use domain::base::ToName;
use domain::base::iana::Rtype;

use crate::cache::{Cache, Key};
use crate::rules::Rules;
use crate::translate::{self, Pref64};
use crate::upstream::Upstream;
use crate::walk::{Failure, Found, covers, ede, tidied};

/// TTL of ipv4only.arpa in seconds. RFC 7050 §8.2 requires at least one hour.
const IPV4ONLY_TTL: u32 = 3600;

/// TTL of the SOA record in NODATA answers for the ip6.arpa zones of the prefixes, in seconds.
const REVERSE_TTL: u32 = 300;

/// Resolver of the reference server.
pub(super) struct Resolver {
    pub(super) zone: Name,
    pub(super) prefixes: Vec<Pref64>,
    pub(super) rules: Rules,
    pub(super) cache: Cache,
    pub(super) upstream: Upstream,
}

/// DNSSEC bits of the client query, and the time limit for the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryBits {
    pub(super) dnssec_ok: bool,
    pub(super) cd: bool,
    pub(super) ad: bool,
    /// Time by which the answer must be sent.
    pub(super) by: Instant,
}

/// Answer to a client query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) rcode: u16,
    pub(super) aa: bool,
    pub(super) ad: bool,
    pub(super) answer: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) additional: Vec<Record>,
    /// Extended errors (RFC 8914) of the answer.
    pub(super) errors: Vec<(u16, Vec<u8>)>,
}

impl Resolver {
    /// Returns the answer to a question of class IN.
    pub(super) fn answer(&self, question: &Question, wants: QueryBits) -> Outcome {
        let untouched = wants.cd && wants.dnssec_ok && self.rules.leaves_cd_do;
        if let Some(outcome) = self.ipv4only(question, untouched) {
            return outcome;
        }
        if let Some(outcome) = self.reverse_node(question).filter(|_| !untouched) {
            return outcome;
        }
        let mut outcome = match question.qtype {
            Rtype::AAAA if self.rules.synthesize && !untouched => self.aaaa(question, wants),
            Rtype::PTR if self.rules.reverse && !untouched => {
                self.ptr(question, wants).unwrap_or_else(|| self.plain(question, wants))
            }
            _ => self.plain(question, wants),
        };
        if !wants.dnssec_ok {
            // If DO is not set, DNSSEC records are returned only if their type was queried (RFC 4035 §3.2.1).
            let is_asked_for = |record: &Record| {
                ![Rtype::RRSIG, Rtype::NSEC, Rtype::NSEC3].contains(&record.rtype)
                    || record.rtype == question.qtype
            };
            outcome.answer.retain(is_asked_for);
            outcome.authority.retain(is_asked_for);
            outcome.additional.retain(is_asked_for);
        }
        outcome
    }

    fn plain(&self, question: &Question, wants: QueryBits) -> Outcome {
        let mut found = self.walk(question.name.clone(), question.qtype, wants);
        if question.qtype == Rtype::ANY {
            // The reply to an ANY query may contain a single RRset (RFC 8482 §4.1).
            let first = found.records.iter().map(covers).next();
            found.records.retain(|record| Some(covers(record)) == first);
        }
        let ad = self.is_authentic(&found, wants);
        Outcome { ad, ..whole(found) }
    }

    /// Answers an AAAA query (RFC 6147 §5.1 and §5.4).
    fn aaaa(&self, question: &Question, wants: QueryBits) -> Outcome {
        let rules = &self.rules;
        if !rules.waits_for_aaaa {
            self.walk(question.name.clone(), Rtype::A, wants);
        }
        let mut first = self.walk(question.name.clone(), Rtype::AAAA, wants);
        let ends = match first.trouble {
            None => first.rcode == rcode::NXDOMAIN && rules.nxdomain_ends,
            Some(Failure::Silence) => !rules.silence_is_servfail,
            Some(Failure::Error) => !rules.errors_are_empty,
            Some(Failure::Endless | Failure::Bogus(_)) => true,
        };
        let before = first.records.len();
        let is_excluded = |v6| translate::is_in(v6, &rules.excluded);
        first.records.retain(|record| !record.ipv6().is_some_and(is_excluded));
        let intact = first.records.len() == before;
        if !intact {
            // A signature over the whole RRset is not valid for a part of it.
            first.records.retain(|record| record.rtype != Rtype::RRSIG);
        }
        let has_own = first.records.iter().any(|record| record.ipv6().is_some());
        if ends || has_own && rules.native_wins {
            let ad = intact && self.is_authentic(&first, wants);
            return Outcome { ad, ..whole(first) };
        }
        let second = self.walk(first.end().clone(), Rtype::A, wants);
        let made = self.made(&first, &second);
        if !made.is_empty() {
            return self.synthesized(first, second, made, wants);
        }
        if second.trouble.is_none()
            && second.rcode == rcode::NOERROR
            && first.trouble.is_none()
            && intact
        {
            let ad = self.is_authentic(&first, wants);
            return Outcome { ad, ..whole(first) };
        }
        let aliases = [first.aliases, second.aliases].concat();
        whole(Found { aliases, records: Vec::new(), ..second })
    }

    /// Synthesizes AAAA records from A records with each prefix (RFC 6147 §5.1.7).
    fn made(&self, first: &Found, second: &Found) -> Vec<Record> {
        let has_failed = first.trouble.is_some();
        let soa = first.soa().filter(|_| !has_failed);
        let without_soa =
            if has_failed { self.rules.ttl_after_error } else { self.rules.ttl_without_soa };
        let mut made = Vec::new();
        for record in &second.records {
            let Some(v4) = record.ipv4() else { continue };
            let ttl = ttl_of_made(record.ttl, soa, without_soa, &self.rules);
            let is_usable = |prefix: &&Pref64| {
                !prefix.is_well_known() || translate::is_global(v4) || !self.rules.leaves_non_global
            };
            let addresses = self.prefixes.iter().filter(is_usable).map(|prefix| prefix.embed(v4));
            made.extend(addresses.map(|v6| Record::aaaa(record.owner.clone(), ttl, v6)));
        }
        made
    }

    fn synthesized(
        &self,
        first: Found,
        second: Found,
        made: Vec<Record>,
        wants: QueryBits,
    ) -> Outcome {
        let ad = match self.rules.validates {
            // AD requires that both answers are authentic, and that the client's query has DO (RFC 6147 §5.5, items 1
            // and 2).
            true => {
                let both = self.is_authentic(&first, wants) && self.is_authentic(&second, wants);
                both && wants.dnssec_ok
            }
            false => second.upstream_ad && !self.rules.drops_ad,
        };
        let mut aliases = [first.aliases, second.aliases].concat();
        if !self.rules.shows_aliases {
            aliases.clear();
        }
        Outcome { ad, ..whole(Found { aliases, records: made, ..second }) }
    }

    /// Answers a PTR query for an address below a prefix. The answer is an alias for the name in in-addr.arpa, if that
    /// name has records (RFC 6147 §5.3.1).
    fn ptr(&self, question: &Question, wants: QueryBits) -> Option<Outcome> {
        let v6 = translate::address_of(&question.name)?;
        let (prefix, v4) =
            self.prefixes.iter().find_map(|prefix| Some((prefix, prefix.extract(v6)?)))?;
        if self.rules.ipv4only && translate::WELL_KNOWN_V4.contains(&v4) {
            // RFC 8880 §7.2.1: no upstream query is sent.
            let (owner, target) = (question.name.clone(), name("ipv4only.arpa"));
            let answer = vec![Record::pointing(owner, Rtype::PTR, IPV4ONLY_TTL, &target)];
            return Some(Outcome { answer, ..Outcome::default() });
        }
        let mut found = self.walk(translate::reverse_of(v4), Rtype::PTR, wants);
        if found.records.is_empty() {
            // The denied name lies below the prefix, so the SOA record must be that of the prefix's zone.
            found.authority = Vec::from_iter(
                found.soa().map(|soa| Record::soa(&prefix.zone(), soa.ttl, soa.ttl)),
            );
            return Some(whole(Found { aliases: Vec::new(), ..found }));
        }
        let ttls = found.aliases.iter().chain(&found.records).map(|record| record.ttl);
        let ttl = ttls.min().unwrap_or(0);
        let (owner, target) = (question.name.clone(), &found.names[0]);
        found.aliases.insert(0, Record::pointing(owner, Rtype::CNAME, ttl, target));
        Some(whole(found))
    }

    /// Answers a query for a name in ip6.arpa that is an ancestor of the reverse names below a prefix. The answer is
    /// NODATA, because names exist below the queried name (RFC 8020 §2).
    fn reverse_node(&self, question: &Question) -> Option<Outcome> {
        let holds = |prefix: &&Pref64| prefix.has_node(&question.name);
        let prefix = self.prefixes.iter().filter(|_| self.rules.reverse).find(holds)?;
        let soa = Record::soa(&prefix.zone(), REVERSE_TTL, REVERSE_TTL);
        Some(Outcome { authority: vec![soa], ..Outcome::default() })
    }

    /// Answers queries for names in the zone ipv4only.arpa, except queries for the zone's DS record. Names below
    /// ipv4only.arpa do not exist (RFC 8880 §7.1).
    fn ipv4only(&self, question: &Question, untouched: bool) -> Option<Outcome> {
        let apex = name("ipv4only.arpa");
        let is_apex = question.name == apex;
        let is_theirs = is_apex && question.qtype == Rtype::DS;
        if !self.rules.ipv4only || !question.name.ends_with(&apex) || is_theirs {
            return None;
        }
        let v4 = |v4| Record::a(apex.clone(), IPV4ONLY_TTL, v4);
        let v6 = |v6| Record::aaaa(apex.clone(), IPV4ONLY_TTL, v6);
        let made = |prefix: &Pref64| translate::WELL_KNOWN_V4.map(|v4| prefix.embed(v4));
        let mut outcome = Outcome { aa: true, ..Outcome::default() };
        outcome.answer = match question.qtype {
            _ if !is_apex => Vec::new(),
            Rtype::A | Rtype::ANY => translate::WELL_KNOWN_V4.map(v4).into(),
            Rtype::AAAA if self.rules.synthesize && !untouched => {
                self.prefixes.iter().flat_map(made).map(v6).collect()
            }
            _ => Vec::new(),
        };
        if outcome.answer.is_empty() {
            outcome.rcode = if is_apex { rcode::NOERROR } else { rcode::NXDOMAIN };
            outcome.authority.push(Record::soa(&apex, IPV4ONLY_TTL, IPV4ONLY_TTL));
        }
        Some(outcome)
    }

    /// Queries the upstream, and follows the aliases that the upstream did not follow.
    fn walk(&self, name: Name, qtype: Rtype, wants: QueryBits) -> Found {
        let mut found = Found::new(name);
        loop {
            let Some(reply) = self.look_up(found.end().clone(), qtype, wants) else {
                found.fails(Failure::Silence);
                break;
            };
            if found.take_in(reply, qtype, &self.rules) || !self.rules.follows_aliases {
                break;
            }
        }
        if self.rules.validates
            && !wants.cd
            && let Err(trouble) = found.trust(&self.zone)
        {
            found.fails(trouble);
        }
        found
    }

    fn look_up(&self, name: Name, qtype: Rtype, wants: QueryBits) -> Option<Message> {
        let rules = &self.rules;
        // A validating server sets DO to get signatures (RFC 4035 §3.2.1), and CD so that it also gets bogus data (RFC
        // 6840 §5.9).
        let dnssec_ok = (wants.dnssec_ok || rules.validates) && rules.passes_do;
        let cd = (wants.cd || rules.validates) && rules.passes_cd;
        let key = Key { name, qtype, dnssec_ok, cd };
        self.cache.get(&key, || {
            let reply = self.upstream.ask(&key, wants.by)?;
            if !rules.drops_unrelated_records {
                self.cache_unrelated_records(&key, &reply);
            }
            Some(tidied(reply, rules))
        })
    }

    /// Caches records of names that were not queried. Only a mutant (a deliberately faulty variant of the
    /// server) uses this function.
    fn cache_unrelated_records(&self, key: &Key, reply: &Message) {
        for record in reply.answer.iter().filter(|record| record.owner != key.name) {
            let key = Key { name: record.owner.to_name(), qtype: record.rtype, ..key.clone() };
            let answer = vec![record.clone()];
            self.cache.put(key, Message { answer, authority: Vec::new(), ..reply.clone() });
        }
    }

    fn is_authentic(&self, found: &Found, wants: QueryBits) -> bool {
        let believes = self.rules.validates && !wants.cd && found.trouble.is_none();
        match believes {
            // AD is set only if the client's query has DO or AD (RFC 6840 §5.8).
            true => found.trust(&self.zone) == Ok(true) && (wants.dnssec_ok || wants.ad),
            false => !self.rules.validates && !self.rules.drops_ad && found.upstream_ad,
        }
    }
}

/// Converts the result of the upstream queries to the answer for the client. After an error, the answer has no records.
fn whole(found: Found) -> Outcome {
    let code = match found.trouble {
        None => {
            let answer = [found.aliases, found.records].concat();
            return Outcome {
                rcode: found.rcode,
                answer,
                authority: found.authority,
                additional: found.additional,
                errors: found.errors,
                ..Outcome::default()
            };
        }
        Some(Failure::Bogus(code)) => Some(code),
        Some(Failure::Silence) => Some(ede::NOBODY_ANSWERS),
        Some(Failure::Error | Failure::Endless) => None,
    };
    let own = code.map(|code| (ede::OPTION, code.to_be_bytes().to_vec()));
    let errors = found.errors.into_iter().chain(own).collect();
    Outcome { rcode: found.rcode, errors, ..Outcome::default() }
}

/// Returns the TTL, in seconds, of a synthesized record (RFC 6147 §5.1.7, RFC 2308 §5). It is the smallest of the TTL
/// of the A record, the TTL of the SOA record, and the MINIMUM of the SOA record. If there is no SOA record,
/// `without_soa` is used instead of the two values from the SOA record.
fn ttl_of_made(a: u32, soa: Option<&Record>, without_soa: u32, rules: &Rules) -> u32 {
    let of_soa = soa.map(|soa| soa.ttl).filter(|_| rules.ttl_of_soa);
    let minimum = soa.and_then(Record::minimum).filter(|_| rules.minimum_of_soa);
    let missing = soa.is_none().then_some(without_soa);
    let of_a = Some(a).filter(|_| rules.ttl_of_a);
    [of_a, of_soa, minimum, missing].into_iter().flatten().min().unwrap_or(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_6147_5_1_7_ttl() {
        let soa = Record::soa(&name("example"), 90, 60);
        let rules = Rules::default();
        assert_eq!(ttl_of_made(300, Some(&soa), 600, &rules), 60);
        assert_eq!(ttl_of_made(30, Some(&soa), 600, &rules), 30);
        assert_eq!(ttl_of_made(3600, None, 600, &rules), 600);
        assert_eq!(ttl_of_made(300, None, 600, &rules), 300);
        let lax = Rules { minimum_of_soa: false, ..rules.clone() };
        assert_eq!(ttl_of_made(300, Some(&soa), 600, &lax), 90);
        let lax = Rules { ttl_of_soa: false, minimum_of_soa: false, ..rules.clone() };
        assert_eq!(ttl_of_made(300, Some(&soa), 600, &lax), 300);
        let lax = Rules { ttl_of_a: false, ..rules };
        assert_eq!(ttl_of_made(30, Some(&soa), 600, &lax), 60);
    }

    #[test]
    fn trouble_is_servfail_without_records() {
        let mut found = Found::new(name("x.example"));
        found.aliases.push(Record::pointing(
            name("x.example"),
            Rtype::CNAME,
            1,
            &name("y.example"),
        ));
        found.fails(Failure::Bogus(ede::BOGUS));
        let outcome = whole(found);
        assert_eq!((outcome.rcode, outcome.answer.len()), (rcode::SERVFAIL, 0));
        assert_eq!(outcome.errors, [(ede::OPTION, vec![0, 6])]);
    }
}
