//! Scripts for RFC 6147 §5.3.1: names in ip6.arpa, below a prefix and elsewhere.
//!
//! The RFC allows the server two kinds of answer: PTR records of the name, or an alias that points to the name in
//! in-addr.arpa. The checks accept both kinds. If a fault is possible only with an alias, the verdict for servers that
//! answer with PTR records is `NotOffered` (feature not supported).

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::iana::Rtype;

use crate::expected::Prefix;
use crate::label;
use crate::message::{Message, Name, Record, name, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, rcode_name};

/// Form of the answer to a PTR query: a PTR record, an alias, or neither.
#[derive(PartialEq, Eq)]
enum ReverseAnswer {
    /// A PTR record that is owned by the queried name.
    Own,
    /// The queried name is an alias (CNAME). The value is its target.
    Alias(Name),
    /// Neither a PTR record nor an alias.
    None,
}

impl ReverseAnswer {
    fn of(reply: &Message, asked: &Name) -> ReverseAnswer {
        let mut own = reply.answer.iter().filter(|record| record.owner == *asked);
        if let Some(target) = own.clone().find(|r| r.rtype == Rtype::CNAME).and_then(Record::target)
        {
            return ReverseAnswer::Alias(target);
        }
        if own.any(|record| record.rtype == Rtype::PTR) {
            ReverseAnswer::Own
        } else {
            ReverseAnswer::None
        }
    }
}

/// Returns the result of a check that concerns aliases, for a server that does not use aliases.
fn not_offered<T>() -> Judged<T> {
    Err(Fault::NotOffered("it answers PTR queries with PTR records, not with aliases".into()))
}

/// Returns the ip6.arpa name of an address (RFC 3596 §2.5). The name consists of the nibbles of the address, from the
/// last to the first.
fn reverse(address: Ipv6Addr) -> String {
    let digits = format!("{:032x}", u128::from(address));
    let nibbles: Vec<String> = digits.chars().rev().map(String::from).collect();
    format!("{}.ip6.arpa", nibbles.join("."))
}

/// Returns the ip6.arpa name of the address in which `v4` is embedded.
fn below(prefix: Prefix, v4: &str) -> String {
    reverse(prefix.with(address(v4)))
}

fn address(v4: &str) -> Ipv4Addr {
    v4.parse().expect("addresses of checks are literals")
}

/// Returns the in-addr.arpa name of `v4` (RFC 1035 §3.5).
fn in_addr(v4: &str) -> Name {
    let [a, b, c, d] = address(v4).octets();
    name(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"))
}

fn ask(t: &mut Trial<'_>, text: &str) -> Judged<(Name, Message)> {
    let asked = name(text);
    let reply = t.ask(&Message::query(&asked, Rtype::PTR))?;
    Ok((asked, reply))
}

fn neither(reply: &Message) -> Fault {
    let what = rcode_name(reply.rcode);
    Fault::Wrong(format!("there is neither an alias nor a PTR record of the name: {what}"))
}

/// Requires a PTR record or an alias. An alias must point to the in-addr.arpa name of `v4`, and the answer must then
/// also contain the PTR record of that name.
fn points_to(t: &Trial<'_>, asked: &Name, reply: &Message, v4: &str) -> Judged<ReverseAnswer> {
    let way = ReverseAnswer::of(reply, asked);
    match &way {
        ReverseAnswer::None => return Err(neither(reply)),
        ReverseAnswer::Own => reply.has_rcode(rcode::NOERROR)?,
        ReverseAnswer::Alias(target) => {
            reply.has_rcode(rcode::NOERROR)?;
            let wanted = in_addr(v4);
            expect(*target == wanted, || format!("the alias leads to {target}, not to {wanted}"))?;
            let zone = t.subject().zone.ok_or_else(|| Fault::NotTried("needs a zone".into()))?;
            let host = label::prepend(&format!("ptr-{}", v4.replace('.', "-")), zone);
            let found = reply.answers(Rtype::PTR).any(|record| {
                record.owner == wanted && record.target().is_some_and(|found| found == host)
            });
            expect(found, || format!("the PTR record of {wanted} to {host} is missing"))?;
        }
    }
    Ok(way)
}

/// Requires that the server answers PTR queries for names below its prefix. If the server does not answer these
/// queries, it fails only the check `rfc6147-5.3.1-ptr`. For all other checks, the verdict is then `NotOffered`
/// (feature not supported).
fn is_there(t: &mut Trial<'_>) -> Judged {
    let (asked, reply) = ask(t, &below(t.prefix(), "1.2.3.4"))?;
    if ReverseAnswer::of(&reply, &asked) == ReverseAnswer::None {
        return Err(Fault::NotOffered("it answers no PTR queries below its prefix".into()));
    }
    Ok(())
}

pub(super) fn is_answered(t: &mut Trial<'_>) -> Judged {
    let (asked, reply) = ask(t, &below(t.prefix(), "1.2.3.4"))?;
    match ReverseAnswer::of(&reply, &asked) {
        ReverseAnswer::None => Err(neither(&reply)),
        ReverseAnswer::Own => reply.has_rcode(rcode::NOERROR),
        ReverseAnswer::Alias(target) => {
            let behind = reply.answers(Rtype::PTR).any(|record| record.owner == target);
            expect(behind, || "there is an alias, but no PTR record of its target".into())
        }
    }
}

pub(super) fn in_one_way(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    let mut ways = Vec::new();
    for v4 in ["1.2.3.4", "1.2.3.5", "8.8.4.4", "8.8.4.5"] {
        let (asked, reply) = ask(t, &below(t.prefix(), v4))?;
        let both = reply.answers(Rtype::CNAME).any(|record| record.owner == asked)
            && reply.answers(Rtype::PTR).any(|record| record.owner == asked);
        expect(!both, || format!("{asked} has both an alias and a PTR record"))?;
        ways.push(match ReverseAnswer::of(&reply, &asked) {
            ReverseAnswer::None => return Err(neither(&reply)),
            ReverseAnswer::Own => "PTR records",
            ReverseAnswer::Alias(_) => "aliases",
        });
    }
    ways.dedup();
    expect(ways.len() == 1, || "some addresses have aliases, others PTR records".into())
}

pub(super) fn leads_to_the_address(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    // All octets of each address differ, and one octet has two letters as its hexadecimal digits.
    for v4 in ["9.8.7.6", "205.171.18.52"] {
        let (asked, reply) = ask(t, &below(t.prefix(), v4))?;
        if points_to(t, &asked, &reply, v4)? == ReverseAnswer::Own {
            return not_offered();
        }
    }
    Ok(())
}

pub(super) fn below_all_prefixes(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    for prefix in t.subject().prefixes.iter().take(6) {
        let (asked, reply) = ask(t, &below(*prefix, "9.9.8.7"))?;
        points_to(t, &asked, &reply, "9.9.8.7").map_err(|fault| match fault {
            Fault::Wrong(why) => Fault::Wrong(format!("below {prefix}: {why}")),
            fault => fault,
        })?;
    }
    Ok(())
}

/// Queries each name in ip6.arpa between the name of a prefix and a name that has a PTR record or an alias. Requires
/// NOERROR, because NXDOMAIN would also deny the names below the queried name.
pub(super) fn nodes_are_empty(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    for prefix in t.subject().prefixes.iter().take(6) {
        let (asked, reply) = ask(t, &below(*prefix, "1.2.3.4"))?;
        if ReverseAnswer::of(&reply, &asked) == ReverseAnswer::None {
            // A different check reports this fault.
            continue;
        }
        let labels = asked.to_string();
        for missing in 1..=32 - usize::from(prefix.length() / 4) {
            let node: Vec<&str> = labels.split('.').skip(missing).collect();
            let (node, reply) = ask(t, &node.join("."))?;
            expect(reply.rcode == rcode::NOERROR && reply.answer.is_empty(), || {
                let (rcode, records) = (rcode_name(reply.rcode), reply.answer.len());
                format!("{node}, above {asked}, is {rcode} with {records} records, not NODATA")
            })?;
        }
    }
    Ok(())
}

pub(super) fn in_capitals(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    let v4 = "171.205.171.205";
    let (asked, reply) = ask(t, &below(t.prefix(), v4).to_uppercase())?;
    points_to(t, &asked, &reply, v4).map(drop)
}

/// Requires a negative answer if in-addr.arpa contains no record to which an alias could point. An alias and an error
/// reply are faults.
pub(super) fn target_has_no_record(t: &mut Trial<'_>, v4: &str) -> Judged {
    is_there(t)?;
    let (asked, reply) = ask(t, &below(t.prefix(), v4))?;
    match ReverseAnswer::of(&reply, &asked) {
        ReverseAnswer::Own => not_offered(),
        ReverseAnswer::Alias(target) => {
            Err(Fault::Wrong(format!("an alias leads to {target}, which has no PTR record")))
        }
        ReverseAnswer::None => is_denied(&reply),
    }
}

/// Requires NOERROR or NXDOMAIN, and an empty answer section.
fn is_denied(reply: &Message) -> Judged {
    expect([rcode::NOERROR, rcode::NXDOMAIN].contains(&reply.rcode), || {
        format!("the RCODE is {}, not that of a denial", rcode_name(reply.rcode))
    })?;
    expect(reply.answer.is_empty(), || "there are records in the answer".into())
}

pub(super) fn fails_behind(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    let (asked, reply) = ask(t, &below(t.prefix(), "9.9.9.252"))?;
    match ReverseAnswer::of(&reply, &asked) {
        ReverseAnswer::Own => not_offered(),
        ReverseAnswer::Alias(_) | ReverseAnswer::None => reply.has_rcode(rcode::SERVFAIL),
    }
}

/// Requires a negative answer for a name that does not represent an address. A server that returns PTR records may also
/// return them for such a name.
fn is_no_address(t: &mut Trial<'_>, text: &str) -> Judged {
    let (asked, reply) = ask(t, text)?;
    match ReverseAnswer::of(&reply, &asked) {
        ReverseAnswer::Own => Ok(()),
        ReverseAnswer::Alias(target) => {
            Err(Fault::Wrong(format!("{asked} names no address, but is an alias for {target}")))
        }
        ReverseAnswer::None => is_denied(&reply),
    }
}

pub(super) fn wrong_in_number(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    let whole = below(t.prefix(), "1.2.3.4");
    is_no_address(t, &format!("0.{whole}"))?;
    // The last nibble is missing, so that the name ends in the middle of an octet.
    let (_, short) = whole.split_once('.').unwrap_or_default();
    is_no_address(t, short)?;
    is_no_address(t, &format!("0.0.0.0.{whole}"))
}

pub(super) fn no_nibbles(t: &mut Trial<'_>) -> Judged {
    is_there(t)?;
    let whole = below(t.prefix(), "1.2.3.4");
    let (_, rest) = whole.split_once('.').unwrap_or_default();
    for wrong in ["z", "g", "40", "04", "-"] {
        is_no_address(t, &format!("{wrong}.{rest}"))?;
    }
    Ok(())
}

pub(super) fn with_suffix(t: &mut Trial<'_>) -> Judged {
    let Some(prefix) = t.subject().prefixes.iter().find(|prefix| prefix.length() < 96) else {
        return Err(Fault::NotOffered("its prefix has 96 bits, which leave no suffix".into()));
    };
    is_there(t)?;
    let v4 = "1.2.3.4";
    let suffixed = u128::from(prefix.with(address(v4))) | 1;
    let (asked, reply) = ask(t, &reverse(suffixed.into()))?;
    match ReverseAnswer::of(&reply, &asked) {
        ReverseAnswer::None => is_denied(&reply),
        ReverseAnswer::Own | ReverseAnswer::Alias(_) => points_to(t, &asked, &reply, v4).map(drop),
    }
}

pub(super) fn outside(t: &mut Trial<'_>) -> Judged {
    let prefixes = t.subject().prefixes;
    // An address outside all prefixes, and one whose prefix differs in the last bit only.
    let first = t.prefix();
    let last_bit = 1 << (128 - u32::from(first.length()));
    let beside = Ipv6Addr::from(u128::from(first.with(address("1.2.3.4"))) ^ last_bit);
    for address in [Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 0x1111), beside] {
        if prefixes.iter().any(|prefix| prefix.embedded(address).is_some()) {
            continue;
        }
        let (_, reply) = ask(t, &reverse(address))?;
        reply.has_rcode(rcode::NXDOMAIN)?;
        expect(reply.answer.is_empty(), || format!("there is an answer for {address}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3596 §2.5.
    #[test]
    fn names_of_addresses() {
        assert_eq!(
            reverse("4321:0:1:2:3:4:567:89ab".parse().unwrap()),
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.0.0.0.0.1.2.3.4.ip6.arpa"
        );
        assert_eq!(in_addr("192.0.2.33"), name("33.2.0.192.in-addr.arpa"));
    }
}
