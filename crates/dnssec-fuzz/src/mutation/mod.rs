//! Mutations of responses.
//!
//! ```text
//! correct response ─► lies: records, proofs, plans of signatures ─► sign ─► damage: records, signatures, sections
//! ```
//!
//! A lie is signed, so that it tests the rules on proofs and on signatures. A damage is not.

mod damage;
mod data;
mod lies;
mod plans;
mod proofs;
mod scene;

use rand::RngExt;

pub(crate) use self::scene::{Mutation, Scene};

/// Number of attempts to find a mutation that applies to the response.
const ATTEMPTS: usize = 12;

/// Mutates a response `count` times and signs it. Returns the names of the mutations.
pub(crate) fn mutate(scene: &mut Scene<'_>, count: usize) -> Vec<&'static str> {
    let (mut done, mut damages) = (Vec::new(), 0);
    for _ in 0..count {
        if scene.rng.random_bool(0.5) {
            done.extend(apply_one(scene, &LIES.concat()));
        } else {
            damages += 1;
        }
    }
    scene.draft.sign(scene.signer.pool);
    for _ in 0..damages {
        done.extend(apply_one(scene, damage::ALL));
    }
    done
}

/// Returns all mutations.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutation> {
    LIES.iter().copied().flatten().chain(damage::ALL).copied()
}

const LIES: &[&[&Mutation]] = &[lies::ALL, proofs::ALL, plans::ALL];

fn apply_one(scene: &mut Scene<'_>, all: &[&'static Mutation]) -> Option<&'static str> {
    (0..ATTEMPTS).find_map(|_| {
        let one = scene.pick(all)?;
        (one.apply)(scene).then_some(one.name)
    })
}
