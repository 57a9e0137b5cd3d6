//! Correct responses to questions, from the zones of a case.

use domain::base::iana::{Rcode, Rtype};
use domain::rdata::{Cname, ZoneRecordData};
use testbed::signed::{TestData, TestName};

use crate::denial::Claim;
use crate::draft::{Draft, Plan, Section, Set};
use crate::keys::Pool;
use crate::names::{below, parent, rebase};
use crate::tree::{Rrset, Tree, Zone};

/// Maximum number of aliases in a response.
const MOST_ALIASES: usize = 8;

/// Makes signed RRsets of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Signer<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) pool: &'a Pool,
    /// Current time, in seconds since 1970.
    pub(crate) now: u32,
}

impl Signer<'_> {
    /// Returns the response to a question, without the signatures.
    pub(crate) fn draft(&self, name: &TestName, rtype: Rtype) -> Draft {
        self.draft_and_names(name, rtype).0
    }

    /// Returns the response to a question, and the names from the queried one to the end of the aliases.
    pub(crate) fn draft_and_names(&self, name: &TestName, rtype: Rtype) -> (Draft, Vec<TestName>) {
        let mut draft = Draft { rcode: Rcode::NOERROR, sets: Vec::new() };
        let mut names = vec![name.clone()];
        while names.len() <= MOST_ALIASES {
            match self.add(&mut draft, &names[names.len() - 1], rtype) {
                Some(target) => names.push(target),
                None => break,
            }
        }
        (draft, names)
    }

    /// Adds what the zones have at a name. Returns the target if this is an alias.
    fn add(&self, draft: &mut Draft, name: &TestName, rtype: Rtype) -> Option<TestName> {
        let zone = &self.tree.zones[self.tree.zone_of(name, rtype)?];
        if let Some(dname) = dname_above(zone, name) {
            return self.add_dname(draft, zone, dname, name, rtype);
        }
        if zone.exists(name) {
            let found = zone.set(name, rtype);
            let alias = zone.set(name, Rtype::CNAME).filter(|_| found.is_none());
            match found.or(alias) {
                Some(set) => draft.sets.push(self.signed(zone, Section::Answer, set)),
                None => self.deny(draft, zone, name, Claim::NoData),
            }
            return alias.and_then(target);
        }
        let wildcard = below("*", &zone.closest_encloser(name));
        if !zone.has(&wildcard) {
            draft.rcode = Rcode::NXDOMAIN;
            self.deny(draft, zone, name, Claim::NoName);
            return None;
        }
        let found = zone.set(&wildcard, rtype);
        let alias = zone.set(&wildcard, Rtype::CNAME).filter(|_| found.is_none());
        match found.or(alias) {
            Some(set) => {
                draft.sets.push(self.expanded(zone, set, name));
                self.prove(draft, zone, name, Claim::Wildcard);
            }
            None => self.deny(draft, zone, name, Claim::NoData),
        }
        alias.and_then(target)
    }

    /// Adds a DNAME record and the alias that follows from it.
    fn add_dname(
        &self,
        draft: &mut Draft,
        zone: &Zone,
        dname: &Rrset,
        name: &TestName,
        rtype: Rtype,
    ) -> Option<TestName> {
        draft.sets.push(self.signed(zone, Section::Answer, dname));
        let target = rebase(name, &dname.owner, &target(dname)?)?;
        let data = vec![ZoneRecordData::Cname(Cname::new(target.clone()))];
        let cname = Rrset { owner: name.clone(), data, ttl: dname.ttl };
        draft.sets.push(Set::unsigned(Section::Answer, &cname));
        (rtype != Rtype::CNAME).then_some(target)
    }

    /// Adds the SOA record and the proof of a denial.
    pub(crate) fn deny(&self, draft: &mut Draft, zone: &Zone, name: &TestName, claim: Claim) {
        if let Some(soa) = zone.set(&zone.apex, Rtype::SOA) {
            draft.sets.push(self.signed(zone, Section::Authority, soa));
        }
        self.prove(draft, zone, name, claim);
    }

    /// Adds the proof of a claim.
    pub(crate) fn prove(&self, draft: &mut Draft, zone: &Zone, name: &TestName, claim: Claim) {
        let proof = zone.proof(name, claim);
        draft.sets.extend(proof.iter().map(|set| self.signed(zone, Section::Authority, set)));
    }

    /// Returns an RRset of a zone. It has no signature if it is at a delegation and not of type DS or NSEC, or if the
    /// zone is unsigned.
    pub(crate) fn signed(&self, zone: &Zone, section: Section, set: &Rrset) -> Set {
        let is_authoritative =
            !zone.is_cut(&set.owner) || matches!(set.rtype(), Rtype::DS | Rtype::NSEC);
        let key = match set.rtype() {
            Rtype::DNSKEY => zone.keys.first(),
            _ => zone.keys.last(),
        };
        let key = key.filter(|_| is_authoritative);
        let plan = key.map(|key| Plan::new(self.pool, zone, *key, set, self.now));
        Set { plans: plan.into_iter().collect(), ..Set::unsigned(section, set) }
    }

    /// Returns an RRset of a wildcard, expanded to a name.
    pub(crate) fn expanded(&self, zone: &Zone, set: &Rrset, name: &TestName) -> Set {
        let mut expanded = self.signed(zone, Section::Answer, set);
        expanded.set_owner(name);
        expanded
    }
}

/// Returns the DNAME record that applies to a name.
fn dname_above<'a>(zone: &'a Zone, name: &TestName) -> Option<&'a Rrset> {
    let mut above = parent(name);
    while let Some(one) = above.filter(|one| one.ends_with(&zone.apex)) {
        if let Some(dname) = zone.set(&one, Rtype::DNAME) {
            return Some(dname);
        }
        above = parent(&one);
    }
    None
}

/// Returns the target of an alias.
fn target(set: &Rrset) -> Option<TestName> {
    match &set.data[0] {
        TestData::Cname(cname) => Some(cname.cname().clone()),
        TestData::Dname(dname) => Some(dname.dname().clone()),
        _ => None,
    }
}
