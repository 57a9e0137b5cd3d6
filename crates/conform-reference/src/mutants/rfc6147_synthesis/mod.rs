//! Mutants for the checks in `rfc6147_synthesis`, in files of the same names.

mod addresses;
mod aliases;
mod common;
mod excluded;
mod failures;
mod made;
mod native;

use crate::mutant::Mutant;

pub(super) const MUTANTS: &[&[Mutant]] = &[
    native::MUTANTS,
    failures::MUTANTS,
    excluded::MUTANTS,
    aliases::MUTANTS,
    made::MUTANTS,
    addresses::MUTANTS,
];
