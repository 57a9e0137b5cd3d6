//! Definitions that several files of this folder use: addresses, functions, and the fields that most checks have in
//! common.

use std::iter;
use std::net::Ipv6Addr;

use domain::base::iana::Rtype;

use crate::check::Check;
use crate::label::{self, Behaviour};
use crate::message::{Message, Name, Record};
use crate::trial::{Judge, Judged, Trial, expect};

/// Base value of most checks in this folder: 6147 as the number of the RFC, and the default values of the other fields.
/// Each check replaces some of these values.
pub(super) const RFC6147: Check = Check { rfc: 6147, ..Check::BASE };

/// Label that defines an AAAA record with the address [`NATIVE`].
pub(super) const NATIVE_LABEL: &str = "v6-26000001000000000000000000000053";
/// Native address of a host. The address is global, and lies neither in an exclusion range nor below a DNS64 prefix.
pub(super) const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2600, 1, 0, 0, 0, 0, 0, 0x53);

/// Queries the AAAA records of a new name with these labels. Requires exactly the addresses synthesized from `v4`: one
/// for each combination of IPv4 address and prefix.
pub(super) fn synthesized(t: &mut Trial<'_>, labels: &str, v4: &[&str]) -> Judged<(Name, Message)> {
    let (name, reply) = t.aaaa(labels)?;
    reply.has_aaaa(&all_embedded(t, v4))?;
    Ok((name, reply))
}

/// Returns the addresses synthesized from these IPv4 addresses with each prefix of the server.
pub(super) fn all_embedded(t: &Trial<'_>, v4: &[&str]) -> Vec<Ipv6Addr> {
    v4.iter().flat_map(|v4| t.embedded(v4)).collect()
}

/// Returns the addresses of the AAAA records in the answer section.
pub(super) fn ipv6(reply: &Message) -> Vec<Ipv6Addr> {
    reply.answer.iter().filter_map(Record::ipv6).collect()
}

/// Requires a TTL of `wanted` seconds, or up to 2 s less, because time has passed since the upstream's reply.
pub(super) fn is_near(ttl: u32, wanted: u32) -> Judged {
    expect((wanted.saturating_sub(2)..=wanted).contains(&ttl), || {
        format!("the TTL is {ttl} s, not {wanted} s")
    })
}

/// Returns the behaviour that the labels of a name define for the test authoritative server.
pub(super) fn behaviour(t: &Trial<'_>, name: &Name) -> Behaviour {
    let zone = t.subject().zone.expect("all checks of this folder that use names need a zone");
    label::read(name, zone).map(|place| place.behaviour).unwrap_or_default()
}

/// Returns the names of an alias chain, from `name` to the last target.
pub(super) fn way(t: &Trial<'_>, name: &Name) -> Vec<Name> {
    let target = |name: &Name| Some(behaviour(t, name).alias?.target().clone());
    // The limit ends a loop; no name of a check has this many aliases.
    iter::successors(Some(name.clone()), target).take(20).collect()
}

/// Returns the last target of the alias chain that begins at `name`, or `name` if it is not an alias.
pub(super) fn end(t: &Trial<'_>, name: &Name) -> Name {
    way(t, name).pop().unwrap_or_else(|| name.clone())
}

/// Requires that all records of type `rtype` in the answer section have the owner name `owner`.
pub(super) fn belong_to(reply: &Message, rtype: Rtype, owner: &Name) -> Judged {
    reply.answers(rtype).try_for_each(|record| {
        expect(record.owner == *owner, || {
            format!("{} is the owner of an {rtype} record, not {owner}", record.owner)
        })
    })
}
