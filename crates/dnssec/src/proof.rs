//! Results of proofs with NSEC and NSEC3 records.

use bytes::Bytes;
use domain::base::iana::Rtype;
use domain::base::name::{Label, NameBuilder};
use domain::rdata::dnssec::RtypeBitmap;

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

/// The type NXNAME, which marks a name that does not exist (RFC 9824 §2).
const NXNAME: Rtype = Rtype::from_int(128);

/// True if a name with this type bitmap has no records of a type, and no alias. For the type ANY, it must have no records
/// other than those of the proof.
pub(crate) fn lacks(types: &RtypeBitmap<Bytes>, rtype: Rtype) -> bool {
    let of_proof =
        |one: Rtype| matches!(one, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3) || one == NXNAME;
    match rtype {
        Rtype::ANY => types.iter().all(of_proof),
        _ => !types.contains(rtype) && !types.contains(Rtype::CNAME),
    }
}
