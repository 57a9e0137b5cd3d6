//! A mutation, and the response to which it is applied.

use domain::base::iana::Rtype;
use rand::RngExt;
use rand::rngs::StdRng;
use testbed::signed::TestName;

use crate::draft::{Draft, Set};
use crate::lookup::Signer;
use crate::names::below;
use crate::tree::Zone;

/// A mutation. The function returns false if it does not apply to the response.
pub(crate) struct Mutation {
    pub(crate) name: &'static str,
    pub(super) apply: fn(&mut Scene<'_>) -> bool,
}

impl Mutation {
    pub(super) const fn new(name: &'static str, apply: fn(&mut Scene<'_>) -> bool) -> Mutation {
        Mutation { name, apply }
    }
}

/// A response that is being mutated.
pub(crate) struct Scene<'a> {
    pub(crate) draft: &'a mut Draft,
    pub(crate) rng: &'a mut StdRng,
    pub(crate) signer: Signer<'a>,
    pub(crate) name: &'a TestName,
    pub(crate) rtype: Rtype,
}

impl<'a> Scene<'a> {
    /// Returns one of some values.
    pub(super) fn pick<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        pick(self.rng, all)
    }

    /// Returns the index of an RRset that meets a condition.
    pub(super) fn find(&mut self, is_wanted: impl Fn(&Set) -> bool) -> Option<usize> {
        let sets = self.draft.sets.iter().enumerate();
        let found: Vec<usize> =
            sets.filter(|(_, set)| is_wanted(set)).map(|(index, _)| index).collect();
        self.pick(&found)
    }

    /// Returns an RRset that meets a condition, for changes.
    pub(super) fn set(&mut self, is_wanted: impl Fn(&Set) -> bool) -> Option<&mut Set> {
        let index = self.find(is_wanted)?;
        self.draft.sets.get_mut(index)
    }

    /// Returns the zone that answers the question.
    pub(super) fn zone(&self) -> Option<&'a Zone> {
        let tree = self.signer.tree;
        tree.zone_of(self.name, self.rtype).map(|index| &tree.zones[index])
    }

    /// Returns a name of the case: one that exists, the queried one, or one close to one of both.
    pub(super) fn some_name(&mut self) -> TestName {
        let tree = self.signer.tree;
        let zone = self.rng.random_range(..tree.zones.len());
        let sets = &tree.zones[zone].sets;
        let owner = sets[self.rng.random_range(..sets.len())].owner.clone();
        let name = match self.rng.random_range(..6_usize) {
            0 => self.name.clone(),
            1 => below("0", self.name),
            2 => below("*", &owner),
            3 => below("missing", &owner),
            _ => owner,
        };
        // Names of other cases are not affected by a signed lie.
        if name.ends_with(&tree.base) { name } else { tree.base.clone() }
    }
}

/// Returns one of some values.
pub(super) fn pick<T: Clone>(rng: &mut StdRng, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.random_range(..all.len())].clone())
}
