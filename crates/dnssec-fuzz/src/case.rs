//! A case: a question, and the responses that are mutated.

use std::fmt;

use domain::base::iana::Rtype;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use testbed::signed::{TestName, name};

use crate::names::{ROOT, below, label};
use crate::tree::QUESTIONS;

/// Share of the cases that have their own zone.
const OWN_ZONE: f64 = 0.75;
/// Share of the cases without mutation.
const UNCHANGED: f64 = 0.2;
/// Share of the mutations that change the response to the question. The others change responses with DS or DNSKEY
/// records.
const AT_QUESTION: f64 = 0.65;

/// Use of random numbers. Each use has its own generator, so that a response does not depend on the order of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Question,
    Tree,
    /// Mutation of the response to a query of this type, for the name with this number of labels.
    Response(Rtype, usize),
}

/// Returns the random numbers of a case for one use.
pub(crate) fn rng(seed: u64, number: u64, of: Use) -> StdRng {
    let of = match of {
        Use::Question => 0,
        Use::Tree => 1,
        Use::Response(rtype, labels) => 2 + u64::from(rtype.to_int()) * 256 + labels as u64,
    };
    // Odd factors, so that different inputs give different seeds.
    let mixed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(number)
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(of);
    StdRng::seed_from_u64(mixed.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number of the case.
    pub number: u64,
    /// Name of the question.
    pub name: TestName,
    /// Type of the question.
    pub rtype: Rtype,
    /// Name below which all names of the case are.
    pub(crate) base: TestName,
    /// Next name after all names of the case.
    pub(crate) end: TestName,
    /// True if the base is the apex of a zone.
    pub(crate) is_zone: bool,
    /// Responses that are mutated, as often as they are listed.
    pub(crate) mutated: Vec<(TestName, Rtype)>,
}

impl Case {
    /// Returns the case with this number.
    pub(crate) fn new(seed: u64, number: u64) -> Case {
        let mut rng = rng(seed, number, Use::Question);
        let root = name(ROOT);
        let is_zone = rng.random_bool(OWN_ZONE);
        let label = label(if is_zone { 'z' } else { 'c' }, number);
        let (base, end) = (below(&label, &root), below(&format!("{label}-"), &root));
        let (relative, rtype) = QUESTIONS[rng.random_range(..QUESTIONS.len())];
        let name = below(relative, &base);
        let mut chain = Vec::new();
        if is_zone {
            chain.extend([(base.clone(), Rtype::DS), (base.clone(), Rtype::DNSKEY)]);
        }
        if ["sec", "aliass", "d2"].iter().any(|part| relative.ends_with(part)) {
            let sec = below("sec", &base);
            chain.extend([(sec.clone(), Rtype::DS), (sec, Rtype::DNSKEY)]);
        }
        if ["plain", "aliasp"].iter().any(|part| relative.ends_with(part)) {
            chain.push((below("plain", &base), Rtype::DS));
        }
        let count = match rng.random_bool(UNCHANGED) {
            true => 0,
            false => [1, 1, 1, 1, 2, 2, 3][rng.random_range(..7_usize)],
        };
        let mutated = (0..count).map(|_| match chain.len() {
            0 => (name.clone(), rtype),
            _ if rng.random_bool(AT_QUESTION) => (name.clone(), rtype),
            length => chain[rng.random_range(..length)].clone(),
        });
        let mutated = mutated.collect();
        Case { number, name, rtype, base, end, is_zone, mutated }
    }
}

impl Case {
    /// True if no response is mutated.
    pub fn is_unchanged(&self) -> bool {
        self.mutated.is_empty()
    }

    /// Returns the names and types of the mutated responses. A response that is mutated twice is listed twice.
    pub fn mutated_responses(&self) -> impl Iterator<Item = (&TestName, Rtype)> {
        self.mutated.iter().map(|(name, rtype)| (name, *rtype))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.number, self.name, self.rtype)
    }
}
