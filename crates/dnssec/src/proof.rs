//! Results of proofs with NSEC and NSEC3 records.

use domain::base::name::{Label, NameBuilder};

use crate::name::Name;

/// Result of an attempt to prove that something does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The proof is complete.
    Given,
    /// The proof is complete except for delegations without a signature, which an NSEC3 record with Opt-Out permits.
    OptOut,
    /// The proof is missing or incomplete.
    Missing,
}

/// What a response without DS records proves about a delegation at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delegation {
    /// The name is delegated to an unsigned zone.
    Unsigned,
    /// The name is not delegated. It belongs to the zone of its parent, or does not exist.
    None,
    /// Nothing.
    Unproven,
}

/// Returns the wildcard below a name, or `None` if it would be too long.
pub(crate) fn wildcard_below(name: &Name) -> Option<Name> {
    let mut builder = NameBuilder::new_bytes();
    builder.append_label(Label::wildcard().as_slice()).ok()?;
    builder.append_origin(name).ok()
}
