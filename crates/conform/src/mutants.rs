//! The reference with one defect each. A check that cannot tell a mutant from the reference is no
//! check; every check of level MUST is named by a mutant at least.

use crate::checks;
use crate::reference::rules::{Hooks, Rules};

/// The reference server with one defect.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Its name, in a few words joined by hyphens: `ttl-cap-ignored`.
    pub name: &'static str,
    /// The check that must fail.
    pub caught_by: &'static str,
    /// How the rules are broken.
    pub rules: fn(&mut Rules),
    /// What is changed on the way.
    pub hooks: Hooks,
}

impl std::fmt::Debug for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A mutant with a broken rule.
pub const fn rule(name: &'static str, caught_by: &'static str, rules: fn(&mut Rules)) -> Mutant {
    Mutant { name, caught_by, rules, hooks: NO_HOOKS }
}

/// A mutant that changes what passes by.
pub const fn hook(name: &'static str, caught_by: &'static str, hooks: Hooks) -> Mutant {
    Mutant { name, caught_by, rules: |_| {}, hooks }
}

/// Hooks that do nothing; `Hooks { reply: Some(…), ..NO_HOOKS }` is one that does.
pub const NO_HOOKS: Hooks = Hooks {
    arrives: None,
    query: None,
    asks: None,
    hears: None,
    reply: None,
    leaves: None,
    leaves_tcp: None,
};

/// All mutants, in the order of the checks' files.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    checks::FILES.iter().flat_map(|file| file.mutants)
}
