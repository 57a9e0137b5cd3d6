//! Response of a single resolver to a query, composed of the entries of a scenario. In most scenarios, the entries
//! belong to several authoritative servers, which Unbound queries one after another. dns64d forwards its queries to one
//! upstream, so the entries of all servers are candidates for each query.
//!
//! ```text
//! query ─► entries of this step that match it ─► best: data or NXDOMAIN, then NODATA ─► target of an alias
//!    │              │ none                          ▲
//!    │              └─► RRset in another response ──┤
//!    └─ DS ─► no entry for DS ─► referral, NSEC or ─┘
//!                                NSEC3 for the name
//! ```

use domain::base::iana::{Rcode, Rtype};
use domain::base::name::ToName;
use domain::rdata::Cname;

use super::reader::{Data, Entry, Header, Name, Record, Scenario};
use super::rehash::{Place, place_in};

/// Maximum number of aliases whose targets are added to a response.
const MOST_ALIASES: usize = 8;

/// Response to a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) header: Header,
    pub(super) answer: Vec<Record>,
    pub(super) authority: Vec<Record>,
}

/// A query of dns64d.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) name: Name,
    pub(super) rtype: Rtype,
    pub(super) is_tcp: bool,
}

/// Preference of an entry. The lowest is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Data, or an RCODE that denies the name.
    Data,
    /// No data of this type.
    NoData,
    Referral,
    /// REFUSED or SERVFAIL.
    Error,
}

impl Scenario {
    /// Returns the response to a query during a step, or `None` if the scenario has none.
    pub(super) fn reply(&self, step: u32, query: &Query) -> Option<Reply> {
        let current = self.ranges.iter().filter(|range| (range.first..=range.last).contains(&step));
        let entries = Entries(current.flat_map(|range| &range.entries).collect());
        if query.rtype == Rtype::DS {
            return entries.delegation_signer(query);
        }
        let reply = entries.stored(query)?;
        Some(entries.completed(reply, query))
    }
}

/// The entries of one step.
struct Entries<'a>(Vec<&'a Entry>);

impl Entries<'_> {
    /// Returns the best entry for a query.
    fn best(&self, query: &Query) -> Option<&Entry> {
        let matching = self.0.iter().filter(|entry| entry.matches(query));
        // Entries for exactly this type precede those for all types.
        matching.min_by_key(|entry| (entry.rank(), !entry.matches.rtype)).copied()
    }

    /// Returns the response that an entry contains.
    fn stored(&self, query: &Query) -> Option<Reply> {
        match self.best(query) {
            Some(best) if best.rank() < Rank::Referral => Some(best.reply()),
            best => self
                .lone_set(query)
                .or_else(|| self.substituted(query))
                .or_else(|| best.map(Entry::reply)),
        }
    }

    /// Returns the response to a DS query: an entry for it, or the DS records or their denial in another response.
    fn delegation_signer(&self, query: &Query) -> Option<Reply> {
        let exact = self.best(query);
        exact
            .filter(|entry| entry.matches.rtype && entry.rank() < Rank::Referral)
            .map(Entry::reply)
            .or_else(|| self.delegation(&query.name))
            .or_else(|| self.denial(&query.name))
            .or_else(|| self.denial_below(&query.name))
            .or_else(|| self.denial_above(&query.name))
            .or_else(|| exact.map(Entry::reply))
    }

    /// Returns the response to a DS query from a referral to the name that has DS records or their denial.
    fn delegation(&self, name: &Name) -> Option<Reply> {
        let is_to = |entry: &&&Entry| {
            let mut authority = entry.authority.iter();
            entry.rank() == Rank::Referral
                && authority.any(|record| record.owner() == name && is_cut(record.rtype()))
        };
        let replies = self.0.iter().filter(is_to).map(|entry| {
            let records = entry.reply().authority;
            let answer = of_types(&records, &[Rtype::DS]);
            let denial = of_types(&records, &[Rtype::NSEC, Rtype::NSEC3]);
            let authority = if answer.is_empty() { denial } else { Vec::new() };
            Reply { answer, authority, ..Reply::default() }
        });
        let is_proof = |reply: &Reply| !reply.answer.is_empty() || !reply.authority.is_empty();
        replies.into_iter().find(is_proof)
    }

    /// Returns the response to a DS query from the NSEC or NSEC3 record of this name, wherever it is.
    fn denial(&self, name: &Name) -> Option<Reply> {
        let authority = self.0.iter().find_map(|entry| {
            let records = entry.reply().authority;
            let is_proof = |record: &Record| match record.data() {
                Data::Nsec(_) => record.owner() == name,
                Data::Nsec3(nsec3) => {
                    let place = place_in(record, nsec3, name);
                    place == Some(Place::Owner) || place == Some(Place::Span) && nsec3.opt_out()
                }
                _ => false,
            };
            let all = of_types(&records, &[Rtype::NSEC, Rtype::NSEC3]);
            records.iter().any(is_proof).then_some(all)
        })?;
        Some(Reply { authority, ..Reply::default() })
    }

    /// Returns the response to a DS query from the denial of this name, or of a name below it.
    fn denial_below(&self, name: &Name) -> Option<Reply> {
        let is_below = |entry: &&&Entry| {
            entry.question.as_ref().is_some_and(|(below, _)| below.ends_with(name))
        };
        let denials = self
            .0
            .iter()
            .filter(is_below)
            .map(|entry| of_types(&entry.reply().authority, &[Rtype::NSEC, Rtype::NSEC3]));
        let authority = denials.into_iter().find(|records| !records.is_empty())?;
        Some(Reply { authority, ..Reply::default() })
    }

    /// Returns the response to a DS query for a name above this one that does not exist.
    fn denial_above(&self, name: &Name) -> Option<Reply> {
        let is_above = |entry: &&&Entry| {
            let mut question = entry.question.iter();
            entry.header.rcode == Rcode::NXDOMAIN
                && question.any(|(above, rtype)| name.ends_with(above) && *rtype == Rtype::DS)
        };
        self.0.iter().find(is_above).map(|entry| entry.reply())
    }

    /// Returns a response with an RRset of the queried name from another response, as Unbound takes it from its cache.
    fn lone_set(&self, query: &Query) -> Option<Reply> {
        let sets = self.0.iter().map(|entry| {
            let reply = entry.reply();
            let all = of_types(&[reply.answer, reply.authority].concat(), &[query.rtype]);
            all.into_iter().filter(|record| *record.owner() == query.name).collect::<Vec<_>>()
        });
        // A set with signatures is longer than one without.
        let answer = sets.max_by_key(Vec::len).filter(|set| !set.is_empty())?;
        Some(Reply { answer, ..Reply::default() })
    }

    /// Returns a response with an alias that a DNAME record of another response makes (RFC 6672 §3.2).
    fn substituted(&self, query: &Query) -> Option<Reply> {
        let is_above = |record: &&Record| {
            query.name.ends_with(record.owner()) && query.name != *record.owner()
        };
        self.0.iter().find_map(|entry| {
            let records = of_types(&entry.reply().answer, &[Rtype::DNAME]);
            let mut answer: Vec<Record> = records.iter().filter(is_above).cloned().collect();
            let Data::Dname(dname) = answer.first()?.data() else { return None };
            let prefix = query.name.clone().strip_suffix(answer.first()?.owner()).ok()?;
            let target = prefix.chain(dname.dname()).ok()?.to_bytes();
            let (ttl, class) = (answer.first()?.ttl(), answer.first()?.class());
            answer.push(Record::new(
                query.name.clone(),
                class,
                ttl,
                Data::Cname(Cname::new(target)),
            ));
            Some(Reply { answer, ..Reply::default() })
        })
    }

    /// Adds the targets of aliases to a response, as a resolver does. dns64d looks up the targets of aliases itself if
    /// the query is for addresses. With an RCODE other than NOERROR, it takes the response as complete (RFC 6604 §2.1).
    fn completed(&self, mut reply: Reply, query: &Query) -> Reply {
        let is_followed = matches!(query.rtype, Rtype::A | Rtype::AAAA);
        for _ in 0..MOST_ALIASES {
            if reply.header.rcode == Rcode::NOERROR && is_followed || !reply.authority.is_empty() {
                break;
            }
            let Some(target) = reply.lacking_target(query) else { break };
            let next = self.stored(&Query { name: target, ..query.clone() });
            let Some(next) = next.filter(|next| !is_error(next.header.rcode)) else { break };
            reply.header.rcode = next.header.rcode;
            reply.answer.extend(next.answer);
            reply.authority.extend(next.authority);
        }
        reply
    }
}

impl Reply {
    /// Returns the name to which the aliases lead, unless the response has data of this name.
    fn lacking_target(&self, query: &Query) -> Option<Name> {
        let mut name = query.name.clone();
        for _ in 0..MOST_ALIASES {
            let mut records = self.answer.iter().filter(|record| *record.owner() == name);
            if records.clone().any(|record| record.rtype() == query.rtype) {
                return None;
            }
            let target = records.find_map(|record| match record.data() {
                Data::Cname(cname) => Some(cname.cname().clone()),
                _ => None,
            });
            let Some(target) = target else { break };
            name = target;
        }
        (name != query.name).then_some(name)
    }
}

impl Entry {
    fn matches(&self, query: &Query) -> bool {
        let Some((name, rtype)) = &self.question else { return false };
        let parts = self.matches;
        (!parts.name || query.name == *name)
            && (!parts.subdomain || query.name.ends_with(name))
            && (!parts.rtype || query.rtype == *rtype)
            && (!parts.tcp_only || query.is_tcp)
    }

    /// True for a referral to another server.
    pub(super) fn is_referral(&self) -> bool {
        self.rank() == Rank::Referral
    }

    fn rank(&self) -> Rank {
        let has = |rtype| self.authority.iter().any(|record| record.rtype() == rtype);
        match self.header.rcode {
            Rcode::NOERROR if !self.answer.is_empty() || self.header.truncated => Rank::Data,
            Rcode::NOERROR if has(Rtype::NS) && !has(Rtype::SOA) => Rank::Referral,
            Rcode::NOERROR => Rank::NoData,
            Rcode::NXDOMAIN | Rcode::YXDOMAIN => Rank::Data,
            _ => Rank::Error,
        }
    }

    /// Returns the entry as the response of a resolver. A resolver returns no referral, so a response without data has
    /// no NS records. Some entries have signatures in another section than their RRsets. Unbound accepts that, but no
    /// server sends such responses, so the signatures are moved.
    fn reply(&self) -> Reply {
        let (answer, authority) = (Vec::new(), Vec::new());
        let mut reply = Reply { header: self.header, answer, authority };
        let sections = [&self.answer, &self.authority, &self.additional];
        for (own, section) in sections.into_iter().enumerate() {
            for record in section {
                let mut places = [own, 0, 1].into_iter();
                let place = places.find(|place| has_set(sections[*place], record));
                match place.unwrap_or(own) {
                    0 => reply.answer.push(record.clone()),
                    1 => reply.authority.push(record.clone()),
                    // Records of the additional section are not validated.
                    _ => {}
                }
            }
        }
        if self.is_referral() {
            reply.authority.retain(|record| record.rtype() != Rtype::NS);
        }
        reply
    }
}

fn is_error(rcode: Rcode) -> bool {
    !matches!(rcode, Rcode::NOERROR | Rcode::NXDOMAIN | Rcode::YXDOMAIN)
}

fn is_cut(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::NS | Rtype::DS)
}

/// Returns the records of these types, and their signatures.
fn of_types(records: &[Record], rtypes: &[Rtype]) -> Vec<Record> {
    let is_one = |record: &&Record| rtypes.contains(&covered(record).unwrap_or(record.rtype()));
    records.iter().filter(is_one).cloned().collect()
}

/// True if the section has the RRset that a signature covers.
fn has_set(section: &[Record], signature: &Record) -> bool {
    let Some(covered) = covered(signature) else { return false };
    section.iter().any(|record| record.owner() == signature.owner() && record.rtype() == covered)
}

/// Returns the type that a signature covers.
fn covered(signature: &Record) -> Option<Rtype> {
    match signature.data() {
        Data::Rrsig(signature) => Some(signature.type_covered()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::testing::scenario;
    use super::*;

    const REFERRAL: &str = "MATCH opcode subdomain\nREPLY QR NOERROR\nSECTION QUESTION\nsub.example. IN A\n\
        SECTION AUTHORITY\nsub.example. IN NS ns.sub.example.\nsub.example. IN DS 1 13 2 00112233\n";

    fn reply(entries: &[&str], name: &str, rtype: Rtype) -> Option<Reply> {
        let query = Query { name: name.parse().unwrap(), rtype, is_tcp: false };
        scenario(entries).reply(1, &query)
    }

    fn types(records: &[Record]) -> Vec<Rtype> {
        records.iter().map(Record::rtype).collect()
    }

    #[test]
    fn data_is_preferred_to_a_referral() {
        let data = "MATCH opcode qtype qname\nREPLY QR NOERROR\nSECTION QUESTION\nwww.sub.example. IN A\n\
            SECTION ANSWER\nwww.sub.example. IN A 192.0.2.1\n";
        let found = reply(&[REFERRAL, data], "www.sub.example.", Rtype::A).unwrap();
        assert_eq!(types(&found.answer), [Rtype::A]);
        let referred = reply(&[REFERRAL, data], "other.sub.example.", Rtype::A).unwrap();
        assert_eq!((referred.answer.len(), types(&referred.authority)), (0, vec![Rtype::DS]));
        assert!(reply(&[data], "other.example.", Rtype::A).is_none());
    }

    #[test]
    fn ds_records_are_found_in_a_referral() {
        let found = reply(&[REFERRAL], "sub.example.", Rtype::DS).unwrap();
        assert_eq!((types(&found.answer), found.authority.len()), (vec![Rtype::DS], 0));
    }

    #[test]
    fn signatures_move_to_their_rrset() {
        let misplaced = "MATCH opcode qtype qname\nREPLY QR NOERROR\nSECTION QUESTION\na.example. IN A\n\
            SECTION ANSWER\na.example. IN A 192.0.2.1\nSECTION ADDITIONAL\n\
            a.example. IN RRSIG A 13 2 60 20070926134150 20070829134150 1 example. AAAA\n";
        let found = reply(&[misplaced], "a.example.", Rtype::A).unwrap();
        assert_eq!(types(&found.answer), [Rtype::A, Rtype::RRSIG]);
    }

    #[test]
    fn an_alias_to_a_missing_name_gets_its_denial() {
        let alias = "MATCH opcode qtype qname\nREPLY QR NXDOMAIN\nSECTION QUESTION\na.example. IN A\n\
            SECTION ANSWER\na.example. IN CNAME b.example.\n";
        let denial = "MATCH opcode qtype qname\nREPLY QR NXDOMAIN\nSECTION QUESTION\nb.example. IN A\n\
            SECTION AUTHORITY\na.example. IN NSEC c.example. A\n";
        let found = reply(&[alias, denial], "a.example.", Rtype::A).unwrap();
        assert_eq!(types(&found.answer), [Rtype::CNAME]);
        assert_eq!(types(&found.authority), [Rtype::NSEC]);
        assert_eq!(found.header.rcode, Rcode::NXDOMAIN);
    }
}
