//! Responses to all questions of all cases.

use domain::base::iana::Rtype;
use domain::base::{Message, ToName};
use testbed::signed::{TestName, name};

use crate::case::{Case, Use, rng};
use crate::draft::Draft;
use crate::keys::ds;
use crate::lookup::Signer;
use crate::mutation::{Scene, all, mutate};
use crate::names::{ROOT, number};
use crate::tree::{Forest, Tree};

/// A response, and the names of its mutations.
#[derive(Clone, Debug)]
pub struct Response {
    /// The message, with ID 0.
    pub message: Vec<u8>,
    /// Names of the mutations.
    pub mutations: Vec<&'static str>,
    /// True if an NSEC3 record has the flag Opt-Out, or too many iterations.
    pub has_weak_proof: bool,
}

impl Response {
    /// Returns the message in the form of dig.
    pub fn text(&self) -> String {
        let message = Message::from_octets(&self.message[..]).expect("the message has a header");
        message.display_dig_style().to_string()
    }
}

/// Cases of one seed. The keys are new each time; everything else is the same for the same seed.
#[derive(Debug)]
pub struct Fuzz {
    seed: u64,
    now: u32,
    forest: Forest,
}

impl Fuzz {
    /// Returns the cases of a seed. `now` is the current time, in seconds since 1970.
    pub fn new(seed: u64, now: u32) -> Fuzz {
        Fuzz { seed, now, forest: Forest::new() }
    }

    /// Returns the trust anchor: the data of a DS record in presentation format.
    pub fn anchor(&self) -> String {
        let key = self.forest.anchor_key();
        ds(&name(ROOT), &self.forest.pool.dnskey(key.id, key.flags), false).to_string()
    }

    /// Returns the case with this number.
    pub fn case(&self, number: u64) -> Case {
        Case::new(self.seed, number)
    }

    /// Returns the response to a query for a name and type.
    pub fn response(&self, name: &TestName, rtype: Rtype) -> Response {
        let name: TestName = name.to_canonical_name();
        let Some(case) = number(&name).map(|number| self.case(number)) else {
            let base = testbed::signed::name(ROOT);
            let tree = Tree { zones: vec![self.forest.anchor_zone(base.clone())], base };
            let mut draft = self.signer(&tree).draft(&name, rtype);
            draft.sign(&self.forest.pool);
            let message = draft.message(&name, rtype);
            return Response { message, mutations: Vec::new(), has_weak_proof: false };
        };
        let mut rng = rng(self.seed, case.number, Use::Tree);
        let tree = self.forest.tree(&case.base, &case.end, case.is_zone, &mut rng);
        let signer = self.signer(&tree);
        // Some validators query the target of an alias again. The target has the mutated records of the first response.
        let (_, names) = signer.draft_and_names(&case.name, case.rtype);
        let before = match names.iter().position(|one| *one == name && rtype == case.rtype) {
            Some(index) => &names[..index],
            None => &[],
        };
        let queried = before.first().unwrap_or(&name);
        let (mut draft, mutations) = self.mutated(&case, signer, queried, rtype);
        draft.remove_aliases(before);
        let has_weak_proof = draft.has_weak_proof();
        Response { message: draft.message(&name, rtype), mutations, has_weak_proof }
    }

    fn signer<'a>(&'a self, tree: &'a Tree) -> Signer<'a> {
        Signer { tree, pool: &self.forest.pool, now: self.now }
    }

    /// Returns the signed response to a query of a case, and the names of its mutations.
    fn mutated(
        &self,
        case: &Case,
        signer: Signer<'_>,
        name: &TestName,
        rtype: Rtype,
    ) -> (Draft, Vec<&'static str>) {
        let this = |(of, kind): &&(TestName, Rtype)| of == name && *kind == rtype;
        let count = case.mutated.iter().filter(this).count();
        let mut draft = signer.draft(name, rtype);
        let mut rng = rng(self.seed, case.number, Use::Response(rtype, name.label_count()));
        let mut scene = Scene { draft: &mut draft, rng: &mut rng, signer, name, rtype };
        let mutations = mutate(&mut scene, count);
        (draft, mutations)
    }

    /// True if the response to the question may be insecure: it is from an unsigned zone, a response with DS records is
    /// mutated, or NSEC3 records have Opt-Out or too many iterations.
    pub fn may_be_insecure(&self, case: &Case) -> bool {
        let mut rng = rng(self.seed, case.number, Use::Tree);
        let tree = self.forest.tree(&case.base, &case.end, case.is_zone, &mut rng);
        let (_, names) = self.signer(&tree).draft_and_names(&case.name, case.rtype);
        let is_unsigned = |name: &TestName| {
            tree.zone_of(name, case.rtype).is_some_and(|index| !tree.zones[index].is_signed())
        };
        let has_mutated_ds = case.mutated.iter().any(|(_, rtype)| *rtype == Rtype::DS);
        names.iter().any(is_unsigned) || has_mutated_ds || self.has_weak_proof(case, &names)
    }

    /// True if NSEC3 records of the response, or of the responses with DS records of these names, have Opt-Out or too many
    /// iterations.
    fn has_weak_proof(&self, case: &Case, names: &[TestName]) -> bool {
        let above = names.iter().flat_map(|name| name.iter_suffixes());
        let above =
            above.map(|name| name.to_name()).filter(|name: &TestName| name.ends_with(&case.base));
        let ds = above.map(|name| (name, Rtype::DS));
        let mut all = ds.chain([(case.name.clone(), case.rtype)]);
        all.any(|(name, rtype)| self.response(&name, rtype).has_weak_proof)
    }

    /// Returns the names of all mutations.
    pub fn mutations() -> impl Iterator<Item = &'static str> {
        all().map(|mutation| mutation.name)
    }

    /// Describes a case: its question, and the mutations of each response.
    pub fn describe(&self, case: &Case) -> String {
        let mut text = case.to_string();
        let mut mutated = case.mutated.clone();
        mutated.dedup();
        mutated.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.cmp(&other.1)));
        mutated.dedup();
        for (name, rtype) in mutated {
            let mutations = self.response(&name, rtype).mutations;
            text += &format!("; {name} {rtype}: {}", mutations.join(", "));
        }
        text
    }
}
