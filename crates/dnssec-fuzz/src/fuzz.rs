//! Responses to all questions of all cases.

use domain::base::{Message, ToName};
use domain::base::iana::Rtype;
use testbed::signed::{TestName, name};

use crate::case::{Case, Use, rng};
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
        let case = number(name).map(|number| self.case(number));
        let (tree, mutations) = match &case {
            Some(case) => {
                let mut rng = rng(self.seed, case.number, Use::Tree);
                let tree = self.forest.tree(&case.base, &case.end, case.is_zone, &mut rng);
                let this = |(of, kind): &&(TestName, Rtype)| of == name && *kind == rtype;
                (tree, case.mutated.iter().filter(this).count())
            }
            None => {
                let base = testbed::signed::name(ROOT);
                (Tree { zones: vec![self.forest.anchor_zone(base.clone())], base }, 0)
            }
        };
        let name: TestName = name.to_canonical_name();
        let signer = Signer { tree: &tree, pool: &self.forest.pool, now: self.now };
        let mut draft = signer.draft(&name, rtype);
        let number = case.map_or(0, |case| case.number);
        let mut rng = rng(self.seed, number, Use::Response(rtype, name.label_count()));
        let (draft_ref, rng) = (&mut draft, &mut rng);
        let mut scene = Scene { draft: draft_ref, rng, signer, name: &name, rtype };
        let mutations = mutate(&mut scene, mutations);
        Response { message: draft.message(&name, rtype), mutations }
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
