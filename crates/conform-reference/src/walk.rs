//! Evaluation of upstream replies: aliases, the records at the end of the alias chain, and unrelated records.

use std::collections::HashMap;

use conform::label::{self, Tree};
use conform::message::{Message, Name, Record, rcode};
use domain::base::ToName;
use domain::base::iana::Rtype;

use crate::cache::all_records;
use crate::rules::Rules;

/// Maximum TTLs in seconds. The maximum is a week in general (RFC 8767 §4), and three hours for negative answers (RFC
/// 2308 §5).
const LONGEST: u32 = 604_800;
const LONGEST_DENIAL: u32 = 10_800;

/// The RCODE YXDOMAIN: the name synthesized from a DNAME record is too long (RFC 6672 §2.2).
const YXDOMAIN: u16 = 6;

/// Extended errors (RFC 8914 §4) that the reference server sends.
pub(super) mod ede {
    /// EDNS option code of an extended error.
    pub(crate) const OPTION: u16 = 15;
    pub(crate) const BOGUS: u16 = 6;
    pub(crate) const EXPIRED: u16 = 7;
    pub(crate) const NOBODY_ANSWERS: u16 = 22;
}

/// Reasons why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The upstream did not answer.
    Silence,
    /// The upstream answered with an error.
    Error,
    /// The aliases form a loop, or the alias chain is too long.
    Endless,
    /// A signature is not valid. The number is the code of the extended error.
    Bogus(u16),
}

/// Records for a name and a type, and the chain of aliases that leads to these records.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Names of the chain of aliases, from the queried name to the last target.
    pub(super) names: Vec<Name>,
    /// Alias records of the chain, with their signatures.
    pub(super) aliases: Vec<Record>,
    /// Records of the queried type, with their signatures.
    pub(super) records: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) additional: Vec<Record>,
    /// RCODE of the answer: NOERROR, NXDOMAIN or YXDOMAIN. After an error, it is SERVFAIL.
    pub(super) rcode: u16,
    pub(super) trouble: Option<Failure>,
    /// AD bit of the upstream reply.
    pub(super) upstream_ad: bool,
    /// Extended errors of the upstream.
    pub(super) errors: Vec<(u16, Vec<u8>)>,
}

impl Found {
    /// Creates an alias chain that consists of the queried name only.
    pub(super) fn new(name: Name) -> Found {
        Found {
            names: vec![name],
            aliases: Vec::new(),
            records: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            rcode: rcode::NOERROR,
            trouble: None,
            upstream_ad: false,
            errors: Vec::new(),
        }
    }

    /// Returns the last name of the alias chain.
    pub(super) fn end(&self) -> &Name {
        &self.names[self.names.len() - 1]
    }

    /// Returns the SOA record of a negative answer (RFC 2308 §2).
    pub(super) fn soa(&self) -> Option<&Record> {
        self.authority.iter().find(|record| record.rtype == Rtype::SOA)
    }

    pub(super) fn fails(&mut self, trouble: Failure) {
        self.trouble = Some(trouble);
        self.rcode = rcode::SERVFAIL;
    }

    /// Adds the records of `reply`, which answers a query for the last name of the alias chain. Returns false if the
    /// reply has the RCODE NOERROR and contains aliases, but neither records at the end of the alias chain nor a SOA
    /// record.
    pub(super) fn take_in(&mut self, reply: Message, qtype: Rtype, rules: &Rules) -> bool {
        let is_extended_error = |option: &(u16, Vec<u8>)| option.0 == ede::OPTION;
        self.errors = reply.edns.map_or_else(Vec::new, |edns| edns.options);
        self.errors.retain(is_extended_error);
        if !matches!(reply.rcode, rcode::NOERROR | rcode::NXDOMAIN | YXDOMAIN) {
            self.fails(Failure::Error);
            return true;
        }
        let (passed, mut answer) = (self.names.len(), reply.answer);
        while let Some(target) = self.take_alias(&mut answer, qtype) {
            let is_loop = rules.notices_loops && self.names.contains(&target);
            let endless = is_loop || self.names.len() > rules.longest_chain;
            self.names.push(target);
            if endless {
                self.fails(Failure::Endless);
                return true;
            }
        }
        let end = self.end().clone();
        self.records = extract(&mut answer, |record| {
            record.owner == end && (covers(record) == qtype || qtype == Rtype::ANY)
        });
        if !rules.drops_unrelated_records {
            self.records.append(&mut answer);
        }
        (self.authority, self.additional) = (reply.authority, reply.additional);
        (self.rcode, self.upstream_ad) = (reply.rcode, reply.flags.ad);
        self.names.len() == passed
            || !self.records.is_empty()
            || self.rcode != rcode::NOERROR
            || self.soa().is_some()
    }

    /// Moves the alias records that apply to the chain's last name from `answer` to the alias records of the chain.
    /// Returns the target of the alias. Returns `None` if there is no alias, or if `qtype` is CNAME or ANY.
    fn take_alias(&mut self, answer: &mut Vec<Record>, qtype: Rtype) -> Option<Name> {
        if [Rtype::CNAME, Rtype::ANY].contains(&qtype) {
            return None;
        }
        let end = self.end().clone();
        let dname = extract(answer, |record| {
            covers(record) == Rtype::DNAME && end.ends_with(&record.owner) && end != record.owner
        });
        let cname = extract(answer, |record| covers(record) == Rtype::CNAME && record.owner == end);
        let target = |records: &[Record]| records.iter().find_map(Record::target);
        let leads = target(&cname).or_else(|| {
            let made = dname.iter().find_map(|record| cname_of(&end, record))?;
            self.aliases.extend(dname.iter().cloned());
            self.aliases.push(made.clone());
            made.target()
        })?;
        if !cname.is_empty() {
            self.aliases.extend(dname);
            self.aliases.extend(cname);
        }
        Some(leads)
    }

    /// Simulates DNSSEC validation. The labels of the test zones state which zones are signed or bogus. Returns true if
    /// all names of the alias chain are in signed zones.
    pub(super) fn trust(&self, zone: &Name) -> Result<bool, Failure> {
        let mut secure = true;
        for name in &self.names {
            match label::read(name, zone).map(|place| place.tree) {
                Some(Tree::Bogus) => return Err(Failure::Bogus(ede::BOGUS)),
                Some(Tree::Expired) => return Err(Failure::Bogus(ede::EXPIRED)),
                Some(Tree::Secure | Tree::Nsec3) => {}
                _ => secure = false,
            }
        }
        Ok(secure)
    }
}

/// Returns the CNAME record of `name` that is synthesized from a DNAME record (RFC 6672 §3.1).
fn cname_of(name: &Name, dname: &Record) -> Option<Record> {
    let kept = name.as_slice().len() - dname.owner.as_slice().len();
    let target = [&name.as_slice()[..kept], dname.target()?.as_slice()].concat();
    let target = Name::from_octets(target).ok()?;
    Some(Record::pointing(name.clone(), Rtype::CNAME, dname.ttl, &target))
}

/// Returns the type of a record. For a signature, returns the type that the signature covers (RFC 4034 §3.1.1).
pub(super) fn covers(record: &Record) -> Rtype {
    match record.data.as_slice() {
        [high, low, ..] if record.rtype == Rtype::RRSIG => {
            Rtype::from_int(u16::from_be_bytes([*high, *low]))
        }
        _ => record.rtype,
    }
}

fn extract(records: &mut Vec<Record>, wanted: impl Fn(&Record) -> bool) -> Vec<Record> {
    let (taken, left) = std::mem::take(records).into_iter().partition(wanted);
    *records = left;
    taken
}

/// Returns an upstream reply with the TTLs that are used in the cache. An RRset and its signatures get the same TTL
/// (RFC 2181 §5.2). All TTLs are limited to a maximum. The TTL of a SOA record is also limited to the MINIMUM of that
/// record (RFC 2308 §5).
pub(super) fn tidied(mut reply: Message, rules: &Rules) -> Message {
    let mut shortest: HashMap<(Name, Rtype), u32> = HashMap::new();
    for record in all_records(&mut reply) {
        record.ttl = record.ttl.min(LONGEST);
        let ttl = shortest.entry((record.owner.to_name(), covers(record))).or_insert(record.ttl);
        *ttl = record.ttl.min(*ttl);
    }
    for record in all_records(&mut reply).filter(|_| rules.equal_ttls) {
        record.ttl = shortest[&(record.owner.to_name(), covers(record))];
    }
    for soa in reply.authority.iter_mut().filter(|record| record.rtype == Rtype::SOA) {
        let minimum = soa.minimum().filter(|_| rules.minimum_of_soa).unwrap_or(LONGEST_DENIAL);
        soa.ttl = soa.ttl.min(minimum).min(LONGEST_DENIAL);
    }
    reply
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use conform::message::name;

    fn cname(owner: &str, target: &str) -> Record {
        Record::pointing(name(owner), Rtype::CNAME, 60, &name(target))
    }

    fn a(owner: &str, ttl: u32) -> Record {
        Record::a(name(owner), ttl, Ipv4Addr::new(1, 2, 3, ttl as u8))
    }

    fn reply(answer: &[Record], authority: &[Record]) -> Message {
        let (answer, authority) = (answer.to_vec(), authority.to_vec());
        let query = Message::query(&name("x.example"), Rtype::A);
        Message { answer, authority, ..query.response() }
    }

    fn taken(reply: Message) -> (Found, bool) {
        let mut found = Found::new(name("x.example"));
        let ends = found.take_in(reply, Rtype::A, &Rules::default());
        (found, ends)
    }

    #[test]
    fn aliases_in_any_order_and_letter_case() {
        let answer =
            [cname("Y.example", "z.example"), a("z.example", 1), cname("X.example", "y.example")];
        let (found, ends) = taken(reply(&answer, &[]));
        assert!(ends);
        assert_eq!(found.aliases, [answer[2].clone(), answer[0].clone()]);
        assert_eq!(found.records, [a("z.example", 1)]);
        assert_eq!(*found.end(), name("z.example"));
    }

    #[test]
    fn alias_is_followed_unless_its_target_is_denied() {
        let soa = Record::soa(&name("example"), 60, 60);
        let alias = [cname("x.example", "y.example")];
        assert!(!taken(reply(&alias, &[])).1);
        assert!(taken(reply(&alias, &[soa])).1);
        assert!(taken(Message { rcode: rcode::NXDOMAIN, ..reply(&alias, &[]) }).1);
        assert!(taken(reply(&[], &[])).1);
    }

    #[test]
    fn circles_and_long_ways_end() {
        let (found, _) = taken(reply(&[cname("x.example", "X.example")], &[]));
        assert_eq!(found.trouble, Some(Failure::Endless));
        let owner = |n: usize| if n == 0 { "x.example".into() } else { format!("{n}.example") };
        let chain = |length: usize| -> Vec<Record> {
            (0..length).map(|n| cname(&owner(n), &owner(n + 1))).collect()
        };
        assert_eq!(taken(reply(&chain(16), &[])).0.trouble, None);
        assert_eq!(taken(reply(&chain(17), &[])).0.trouble, Some(Failure::Endless));
    }

    #[test]
    fn rfc_6672_3_1_a_dname_alone_makes_an_alias() {
        let dname = Record::pointing(name("example"), Rtype::DNAME, 9, &name("b.test"));
        let (found, ends) = taken(reply(std::slice::from_ref(&dname), &[]));
        assert!(!ends);
        let made = Record::pointing(name("x.example"), Rtype::CNAME, 9, &name("x.b.test"));
        assert_eq!(found.aliases, [dname, made]);
        assert_eq!(*found.end(), name("x.b.test"));
    }

    #[test]
    fn rfc_2181_5_4_1_strangers_are_left_out() {
        let aaaa = Record::aaaa(name("x.example"), 1, std::net::Ipv6Addr::LOCALHOST);
        let (found, _) = taken(reply(&[a("x.example", 1), a("victim.example", 2), aaaa], &[]));
        assert_eq!(found.records, [a("x.example", 1)]);
    }

    #[test]
    fn rfc_2181_5_2_and_rfc_2308_5_ttls() {
        let soa = Record::soa(&name("example"), 900, 60);
        let whole =
            reply(&[a("x.example", 9), a("X.example", 7), a("y.example", u32::MAX)], &[soa]);
        let ttls = |rules: &Rules| -> Vec<u32> {
            all_records(&mut tidied(whole.clone(), rules)).map(|record| record.ttl).collect()
        };
        assert_eq!(ttls(&Rules::default()), [7, 7, LONGEST, 60]);
        let lax = Rules { equal_ttls: false, minimum_of_soa: false, ..Rules::default() };
        assert_eq!(ttls(&lax), [9, 7, LONGEST, 900]);
    }

    #[test]
    fn labels_define_signed_zones() {
        let trust = |texts: &[&str]| {
            let names = texts.iter().map(|text| name(&format!("x.{text}example"))).collect();
            Found { names, ..Found::new(name("x.example")) }.trust(&name("example"))
        };
        assert_eq!(trust(&["secure.", "nsec3."]), Ok(true));
        assert_eq!(trust(&["secure.", ""]), Ok(false));
        assert_eq!(trust(&["", "bogus."]), Err(Failure::Bogus(ede::BOGUS)));
        assert_eq!(trust(&["expired."]), Err(Failure::Bogus(ede::EXPIRED)));
    }
}
