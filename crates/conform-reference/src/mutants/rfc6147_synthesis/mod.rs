//! Mutants for the checks in `rfc6147_synthesis`, in files of the same names.

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
