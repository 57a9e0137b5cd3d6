//! Mutants for the checks in `rfc6147_synthesis`. The files have the same names as those of the checks.

mod addresses;
mod aliases;
mod common;
mod excluded;
mod existing_aaaa;
mod failures;
mod synthesis;

use crate::mutant::Mutant;

pub(super) const MUTANTS: &[&[Mutant]] = &[
    existing_aaaa::MUTANTS,
    failures::MUTANTS,
    excluded::MUTANTS,
    aliases::MUTANTS,
    synthesis::MUTANTS,
    addresses::MUTANTS,
];
