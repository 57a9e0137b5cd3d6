//! The alias chain that begins at the question's name. The chain determines which answer records
//! are kept, and their order (RFC 6147 §5.1.5).

use std::collections::HashSet;
use std::ops::Range;

use wire::rcode::Rcode;
use wire::view::{Malformed, Message, NameReader, Record, rtype};

use super::asked::{MAX_ALIASES, Unusable, UpstreamQuestion};
use super::survey::{Facts, Survey, is_of_transport, lower, type_covered};
use crate::name::{ancestors, is_at_or_below};
use crate::resolver::scope::Scope;

/// Maximum length of a name with its root label, in octets (RFC 1035 §2.3.4).
const LONGEST: usize = 255;

/// One resource record of the answer section, after unrelated records have been removed.
pub(super) enum Item {
    /// The record with this index in the original answer section.
    Record(usize),
    /// A CNAME that a DNAME implies (RFC 6672 §3.1). The upstream omitted it, or sent one with a different target.
    Cname(Box<Cname>),
}

/// A CNAME record synthesized from a DNAME. Its names are uncompressed and in lower case.
pub(super) struct Cname {
    pub(super) owner: Vec<u8>,
    pub(super) target: Vec<u8>,
    /// TTL of the DNAME, in seconds (RFC 6672 §3.1).
    pub(super) ttl: u32,
}

/// The alias chain of an answer.
pub(super) struct Aliases<'a> {
    records: Vec<Listed<'a>>,
    /// Concatenated owner names. `Listed::owner` is a range in this buffer.
    arena: Vec<u8>,
    /// Answer section without unrelated records. For each alias, in the order of the chain: its CNAME and DNAME records
    /// without duplicates, and their signatures. Then the data at the end of the chain.
    pub(super) items: Vec<Item>,
    pub(super) facts: Facts,
    /// The names that are aliases, beginning with the question's name.
    aliases: Vec<Vec<u8>>,
    /// The name at the end of the alias chain.
    end: Vec<u8>,
    /// True if the name at the end of the alias chain has other upstreams than the question's name, or if the upstream
    /// followed a CNAME that its DNAME contradicts. Only the alias chain is then kept, and all other records of the
    /// message are removed.
    pub(super) is_cut: bool,
    /// For each authority record, true if the record is kept. Empty if all records are kept.
    authority: Vec<bool>,
    /// For each additional record, true if the record is kept.
    pub(super) additional: Vec<bool>,
    /// True if authority or additional records are removed.
    pub(super) leaves_out: bool,
    /// True if DNAME substitution makes the name too long, and the upstream reports this with
    /// YXDOMAIN (RFC 6672 §2.2).
    pub(super) is_too_long: bool,
}

struct Listed<'a> {
    record: Record<'a>,
    owner: Range<usize>,
    taken: bool,
}

/// Summary of the records of one name: the target if the name is an alias, and a flag that is true
/// if the name has data.
struct NextAlias {
    alias: Option<Vec<u8>>,
    has_data: bool,
}

impl<'a> Aliases<'a> {
    /// Follows the aliases of a message to the last one that the message contains, or to the first name outside `scope`
    /// (the names with the same upstreams as the question).
    ///
    /// # Errors
    ///
    /// Returns an error if the aliases form a loop or are too numerous, or if they contradict each other or the data.
    pub(super) fn follow(
        view: &Message<'a>,
        survey: &Survey<'a>,
        asked: UpstreamQuestion<'_>,
        scope: Option<Scope<'_>>,
    ) -> Result<Aliases<'a>, Unusable> {
        let mut aliases = Aliases::list(view, survey, asked)?;
        while !aliases.is_cut {
            let found = aliases.look_at_end(&survey.names, asked, view.rcode())?;
            let Some(target) = found.alias else { break };
            if found.has_data {
                // The name has both data and an alias (RFC 1034 §3.6.2), which is a contradiction.
                return Err(Unusable::Malformed);
            }
            let alias = std::mem::replace(&mut aliases.end, target);
            aliases.aliases.push(alias);
            if aliases.aliases.contains(&aliases.end) || aliases.aliases.len() > MAX_ALIASES {
                return Err(Unusable::AliasLoop);
            }
            aliases.is_cut |= scope.is_some_and(|scope| !scope.covers(&aliases.end));
        }
        if aliases.is_cut {
            aliases.cut();
            aliases.leaves_out = view.nscount() > 0 || survey.arcount > 0;
            return Ok(aliases);
        }
        if let Some(scope) = scope {
            aliases.look_at_authority(view, survey, scope)?;
        }
        if survey.arcount > 0 {
            aliases.look_at_additional(view, survey, scope)?;
        }
        Ok(aliases)
    }

    /// Cuts the answer at the end of the alias chain.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
        // A DNAME that was followed does not count as data, even if DNAME records were queried.
        self.facts.has_data &= self.aliases.is_empty();
    }

    /// True if the authority record with this index is kept.
    pub(super) fn keeps_authority(&self, number: usize) -> bool {
        !self.is_cut && self.authority.get(number).is_none_or(|is_kept| *is_kept)
    }

    /// Returns the name at the end of the alias chain, in lower case, or `None` if there are no
    /// aliases.
    pub(super) fn target(&self) -> Option<&[u8]> {
        (!self.aliases.is_empty()).then_some(&self.end)
    }

    /// True if the message contains exactly the records of the chain, in the chain's order.
    pub(super) fn are_in_place(&self) -> bool {
        let in_order =
            |(i, item): (usize, &Item)| matches!(item, Item::Record(number) if *number == i);
        self.items.len() == self.records.len() && self.items.iter().enumerate().all(in_order)
    }

    /// Returns an alias chain that contains only the question's name. Also lists all answer records of the message,
    /// because any of them may belong to the chain.
    fn list(
        view: &Message<'a>,
        survey: &Survey<'a>,
        asked: UpstreamQuestion<'_>,
    ) -> Result<Aliases<'a>, Malformed> {
        let mut aliases = Aliases {
            records: Vec::with_capacity(usize::from(view.ancount()).min(survey.ttls.len())),
            arena: Vec::new(),
            items: Vec::new(),
            facts: Facts::NONE,
            aliases: Vec::new(),
            end: asked.question[..asked.question.len() - 4].to_vec(),
            is_cut: false,
            authority: Vec::new(),
            additional: Vec::new(),
            leaves_out: false,
            is_too_long: false,
        };
        for record in view.records(survey.records_at, view.ancount()) {
            let record = record?;
            let start = aliases.arena.len();
            aliases.arena.extend(lower(&survey.names, record.owner)?.wire());
            let owner = start..aliases.arena.len();
            aliases.records.push(Listed { record, owner, taken: false });
        }
        Ok(aliases)
    }

    /// Selects the records owned by the name at the end of the chain, and the DNAME record of a name above it. This DNAME
    /// determines the alias. A CNAME with a different target is replaced (RFC 6672 §5.3.1), and the answer is cut, because
    /// the rest of the message can belong to the wrong target.
    fn look_at_end(
        &mut self,
        names: &NameReader<'_>,
        asked: UpstreamQuestion<'_>,
        rcode: Rcode,
    ) -> Result<NextAlias, Unusable> {
        let UpstreamQuestion { qtype, qclass, .. } = asked;
        let may_be_too_long = rcode == Rcode::YXDOMAIN;
        let is_followed = may_be_too_long || qtype != rtype::CNAME && qtype != rtype::ANY;
        let first_item = self.items.len();
        let mut cname: Option<Vec<u8>> = None;
        let mut has_more_cnames = false;
        // Target and TTL of the DNAME.
        let mut dname: Option<(Vec<u8>, u32)> = None;
        let mut dname_owner_len = None;
        let mut has_data = false;
        // Lengths of the ancestors of the name at the end of the chain. A record owner of a
        // different length is skipped without a comparison of names, because there may be thousands
        // of records.
        let mut above = [false; LONGEST + 1];
        for name in ancestors(&self.end).skip(1) {
            above[name.len()] = true;
        }
        for (i, listed) in self.records.iter_mut().enumerate() {
            let record = listed.record;
            if listed.taken || record.class != qclass || is_of_transport(record.rtype) {
                continue;
            }
            let owner = &self.arena[listed.owner.clone()];
            let owns = *owner == *self.end;
            let is_above = || above[owner.len()] && self.end.ends_with(owner);
            let belongs = match record.rtype {
                rtype::DNAME if is_above() => {
                    // No DNAME exists below another one (RFC 6672 §2.4).
                    is_first(&mut dname_owner_len, owner.len(), |a, b| a == b)?;
                    let target = lower(names, record.data_at)?;
                    // A DNAME to a name below its owner applies to its own result again.
                    if target.ends_with(owner) {
                        return Err(Unusable::AliasLoop);
                    }
                    match substitute(&self.end, owner.len(), target.wire()) {
                        Some(target) => {
                            is_first(&mut dname, (target, record.ttl), |a, b| a.0 == b.0)?
                        }
                        None if may_be_too_long => {
                            self.is_too_long = true;
                            true
                        }
                        None => return Err(Unusable::Malformed),
                    }
                }
                rtype::RRSIG => {
                    let covered = type_covered(record.rtype, record.data);
                    owns || covered == Some(rtype::DNAME) && is_above()
                }
                rtype::CNAME if owns => {
                    let target = lower(names, record.data_at)?.wire().to_vec();
                    is_first(&mut cname, target, |a, b| a == b).unwrap_or_else(|_| {
                        has_more_cnames = true;
                        true
                    })
                }
                other => owns && (qtype == rtype::ANY || other == qtype),
            };
            if belongs {
                has_data |= owns && record.rtype == qtype;
                listed.taken = true;
                self.facts.note(record.rtype, record.ttl, asked);
                self.items.push(Item::Record(i));
            }
        }
        let alias = match dname {
            _ if self.is_too_long => {
                self.drop_cnames(first_item);
                None
            }
            Some((target, ttl)) => {
                if cname.is_some() && (has_more_cnames || cname.as_ref() != Some(&target)) {
                    self.drop_cnames(first_item);
                    self.is_cut = true;
                    cname = None;
                }
                if cname.is_none() {
                    self.add_cname(target.clone(), ttl, asked);
                }
                Some(target)
            }
            None if has_more_cnames && is_followed => return Err(Unusable::Malformed),
            None => cname,
        };
        Ok(NextAlias { alias: alias.filter(|_| is_followed), has_data })
    }

    /// Adds the CNAME that a DNAME implies for the name at the end of the chain.
    fn add_cname(&mut self, target: Vec<u8>, ttl: u32, asked: UpstreamQuestion<'_>) {
        self.facts.note(rtype::CNAME, ttl, asked);
        self.items.push(Item::Cname(Box::new(Cname { owner: self.end.clone(), target, ttl })));
    }

    /// Removes the CNAME records and their signatures from the items that begin at `first`.
    fn drop_cnames(&mut self, first: usize) {
        let items = self.items.split_off(first);
        let is_kept = |item: &Item| match item {
            Item::Record(number) => {
                let record = &self.records[*number].record;
                type_covered(record.rtype, record.data).unwrap_or(record.rtype) != rtype::CNAME
            }
            Item::Cname(_) => true,
        };
        self.items.extend(items.into_iter().filter(is_kept));
    }

    /// Removes the authority records with an owner outside `scope`, because this owner has other upstreams than the
    /// question's name. Records that prove the absence of data at the end of the chain are kept, although they are
    /// owned by other names in the same zone.
    fn look_at_authority(
        &mut self,
        view: &Message<'a>,
        survey: &Survey<'a>,
        scope: Scope<'_>,
    ) -> Result<(), Malformed> {
        let records = view.all_records(survey.records_at).skip(view.ancount().into());
        for record in records.take(view.nscount().into()) {
            let record = record?;
            let owner = lower(&survey.names, record.owner)?;
            let denies = match type_covered(record.rtype, record.data).unwrap_or(record.rtype) {
                rtype::SOA => is_at_or_below(&self.end, owner.wire()),
                rtype::NSEC | rtype::NSEC3 => true,
                _ => false,
            };
            let is_kept = denies || scope.covers(owner.wire());
            self.leaves_out |= !is_kept;
            self.authority.push(is_kept);
        }
        Ok(())
    }

    /// Selects the additional records to keep (RFC 6147 §5.3.2): their names occur in the other sections and are in
    /// `scope`. `scope` contains the names with the same upstreams as the question. Other additional records do not
    /// belong to the question (RFC 2181 §5.4.1).
    fn look_at_additional(
        &mut self,
        view: &Message<'a>,
        survey: &Survey<'a>,
        scope: Option<Scope<'_>>,
    ) -> Result<(), Unusable> {
        let names = &survey.names;
        let mut mentioned: HashSet<Vec<u8>> = HashSet::new();
        mentioned.insert(survey.question_name().to_ascii_lowercase());
        mentioned.extend(self.aliases.iter().cloned().chain([self.end.clone()]));
        let mut mention = |record: &Record<'a>| -> Result<(), Malformed> {
            let mut found = vec![record.owner];
            view.check_data(record, |name| found.push(name.start))?;
            for name in found {
                mentioned.insert(lower(names, name)?.wire().to_vec());
            }
            Ok(())
        };
        for item in &self.items {
            if let Item::Record(number) = item {
                mention(&self.records[*number].record)?;
            }
        }
        let mut rest = view.all_records(survey.records_at);
        for _ in 0..view.ancount() {
            rest.next().transpose()?;
        }
        for (number, record) in rest.by_ref().take(view.nscount().into()).enumerate() {
            if self.keeps_authority(number) {
                mention(&record?)?;
            }
        }
        for record in rest {
            let record = record?;
            let owner = lower(names, record.owner)?;
            let may_stay = !is_of_transport(record.rtype);
            let is_kept = may_stay
                && mentioned.contains(owner.wire())
                && scope.is_none_or(|scope| scope.covers(owner.wire()));
            self.leaves_out |= may_stay && !is_kept;
            self.additional.push(is_kept);
        }
        Ok(())
    }
}

/// Stores the target of an alias. Returns false if the same target has already been stored.
fn is_first<T>(
    known: &mut Option<T>,
    new: T,
    same: impl Fn(&T, &T) -> bool,
) -> Result<bool, Unusable> {
    match known {
        None => {
            *known = Some(new);
            Ok(true)
        }
        Some(old) if same(old, &new) => Ok(false),
        // The name has two different aliases, which is a contradiction.
        Some(_) => Err(Unusable::Malformed),
    }
}

/// Returns a name after the substitution by a DNAME (RFC 6672 §2.2): its last `owner_len` octets are replaced by
/// `target`. Returns `None` if the result is too long for a name.
fn substitute(name: &[u8], owner_len: usize, target: &[u8]) -> Option<Vec<u8>> {
    let above = name.len() - owner_len;
    (above + target.len() <= LONGEST).then(|| [&name[..above], target].concat())
}
