//! Response of a single resolver to a query, composed of the entries of a scenario. In most scenarios, the entries
//! belong to several authoritative servers, which Unbound queries one after another. dns64d forwards its queries to one
//! upstream, so the entries of all servers are candidates for each query.
//!
//! ```text
//! query ─► entries of this step that match it ─► best: data or NXDOMAIN, then NODATA, then a referral
//!    │                                                   ▲
//!    └─ DS ─► no entry for DS ─► referral to this name ──┘ its DS records, or its NSEC and NSEC3 records
//! ```

use domain::base::iana::{Rcode, Rtype};

use super::reader::{Data, Entry, Header, Name, Record, Scenario};

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
        let current: Vec<&Entry> = current.flat_map(|range| &range.entries).collect();
        let matching = || current.iter().copied().filter(|entry| entry.matches(query));
        if query.rtype == Rtype::DS {
            let exact = matching().filter(|entry| entry.matches.rtype);
            let exact = exact.filter(|entry| entry.rank() < Rank::Referral);
            let exact = exact.min_by_key(|entry| entry.rank()).map(Entry::reply);
            return exact.or_else(|| delegation(&current, &query.name));
        }
        // Entries for exactly this type precede those for all types.
        let best = matching().min_by_key(|entry| (entry.rank(), !entry.matches.rtype))?;
        Some(best.reply())
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

    /// Returns the entry as a response. Some entries have signatures in another section than their RRsets. Unbound
    /// accepts that, but no server sends such responses, so the signatures are moved.
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
        reply
    }
}

/// True if the section has the RRset that a signature covers.
fn has_set(section: &[Record], signature: &Record) -> bool {
    let Some(covered) = covered(signature) else { return false };
    section.iter().any(|record| record.owner() == signature.owner() && record.rtype() == covered)
}

/// Returns the type that a signature covers.
pub(super) fn covered(signature: &Record) -> Option<Rtype> {
    match signature.data() {
        Data::Rrsig(signature) => Some(signature.type_covered()),
        _ => None,
    }
}

/// Returns the response to a DS query from a referral to the name: its DS records, or the proof that there are none.
fn delegation(entries: &[&Entry], name: &Name) -> Option<Reply> {
    let is_to = |entry: &&&Entry| {
        let mut authority = entry.authority.iter();
        authority
            .any(|record| record.owner() == name && matches!(record.rtype(), Rtype::NS | Rtype::DS))
    };
    let referrals = entries.iter().filter(|entry| entry.rank() == Rank::Referral).filter(is_to);
    let replies = referrals.map(|entry| {
        let of_type = |rtypes: &[Rtype]| -> Vec<Record> {
            let is_one =
                |record: &&Record| rtypes.contains(&covered(record).unwrap_or(record.rtype()));
            entry.reply().authority.iter().filter(is_one).cloned().collect()
        };
        let (answer, authority) = (of_type(&[Rtype::DS]), of_type(&[Rtype::NSEC, Rtype::NSEC3]));
        let authority = if answer.is_empty() { authority } else { Vec::new() };
        Reply { header: Header::default(), answer, authority }
    });
    replies.min_by_key(|reply| (reply.answer.is_empty(), reply.authority.is_empty()))
}
