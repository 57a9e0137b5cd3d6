//! Mutants: variants of the reference server, each with one defect. Each mutant names the check that must fail because
//! of its defect.

use conform::message::Message;

use crate::rules::{Hooks, Rules};

/// Reference server with one defect.
#[derive(Clone, Copy)]
pub struct Mutant {
    /// Name, which consists of a few words joined by hyphens, such as `ttl-cap-ignored`.
    pub name: &'static str,
    /// Id of the check that must fail for this mutant.
    pub caught_by: &'static str,
    /// Function that changes the rules of the reference server.
    pub rules: fn(&mut Rules),
    /// Functions that change messages while the reference server processes them.
    pub hooks: Hooks,
}

impl std::fmt::Debug for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns a mutant that breaks a rule.
pub(crate) const fn rule(
    name: &'static str,
    caught_by: &'static str,
    rules: fn(&mut Rules),
) -> Mutant {
    Mutant { name, caught_by, rules, hooks: NO_HOOKS }
}

/// Returns a mutant that changes messages with the given functions.
pub(crate) const fn hook(name: &'static str, caught_by: &'static str, hooks: Hooks) -> Mutant {
    Mutant { name, caught_by, rules: |_| {}, hooks }
}

/// Returns a mutant that changes the octets of a client's query.
pub(crate) const fn arrives(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Vec<u8>),
) -> Mutant {
    hook(name, caught_by, Hooks { arrives: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that stops answering after the first message for which `deadly` returns true.
pub(crate) const fn dies(
    name: &'static str,
    caught_by: &'static str,
    deadly: fn(&[u8]) -> bool,
) -> Mutant {
    hook(name, caught_by, Hooks { dies: Some(deadly), ..NO_HOOKS })
}

/// Returns a mutant that changes a client's query.
pub(crate) const fn reads(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Message),
) -> Mutant {
    hook(name, caught_by, Hooks { query: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that changes its upstream queries.
pub(crate) const fn asks(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Message),
) -> Mutant {
    hook(name, caught_by, Hooks { asks: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that changes the replies of its upstream.
pub(crate) const fn hears(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Message),
) -> Mutant {
    hook(name, caught_by, Hooks { hears: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that changes its replies.
pub(crate) const fn replies(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&Message, &mut Message),
) -> Mutant {
    hook(name, caught_by, Hooks { reply: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that changes the octets of its replies.
pub(crate) const fn leaves(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Vec<u8>),
) -> Mutant {
    hook(name, caught_by, Hooks { leaves: Some(change), ..NO_HOOKS })
}

/// Returns a mutant that changes the octets of its replies over TCP.
pub(crate) const fn leaves_tcp(
    name: &'static str,
    caught_by: &'static str,
    change: fn(&mut Vec<u8>),
) -> Mutant {
    hook(name, caught_by, Hooks { leaves_tcp: Some(change), ..NO_HOOKS })
}

/// Hooks that change nothing. A mutant sets only the hooks that it needs: `Hooks { reply: Some(…), ..NO_HOOKS }`.
pub const NO_HOOKS: Hooks = Hooks {
    arrives: None,
    dies: None,
    query: None,
    asks: None,
    hears: None,
    reply: None,
    leaves: None,
    leaves_tcp: None,
};
