//! Scripts of the checks for DO, CD and AD.

use std::net::Ipv6Addr;

use domain::base::iana::Rtype;

use crate::message::{Message, Name, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

/// Native IPv6 address of a host, and the label that defines an AAAA record with this address.
const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2600, 1, 0, 0, 0, 0, 0, 0x53);
const NATIVE_LABEL: &str = "v6-26000001000000000000000000000053";
/// IPv4 address that the label `v4-1-2-3-4` defines. AAAA records are synthesized from this address.
const SYNTHESIS_SOURCE: &str = "1.2.3.4";

/// The DNSSEC bits of a query: DO, CD and AD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    dnssec_ok: bool,
    cd: bool,
    ad: bool,
}

const PLAIN: Bits = Bits { dnssec_ok: false, cd: false, ad: false };
const AD: Bits = Bits { ad: true, ..PLAIN };
const CD: Bits = Bits { cd: true, ..PLAIN };
const DO: Bits = Bits { dnssec_ok: true, ..PLAIN };
const AD_CD: Bits = Bits { cd: true, ..AD };
const AD_DO: Bits = Bits { dnssec_ok: true, ..AD };
const CD_DO: Bits = Bits { dnssec_ok: true, ..CD };
const ALL: [Bits; 8] = [PLAIN, AD, CD, DO, AD_CD, AD_DO, CD_DO, Bits { dnssec_ok: true, ..AD_CD }];

impl Bits {
    /// Returns the bits as text for a report, such as "with DO+CD".
    fn in_words(self) -> String {
        let set = [(self.dnssec_ok, "DO"), (self.cd, "CD"), (self.ad, "AD")];
        let set: Vec<&str> = set.iter().filter(|(on, _)| *on).map(|(_, bit)| *bit).collect();
        if set.is_empty() {
            "without DO, CD and AD".into()
        } else {
            format!("with {}", set.join("+"))
        }
    }
}

/// Queries the given name, which may have been queried before.
fn again(t: &mut Trial<'_>, name: &Name, qtype: Rtype, bits: Bits) -> Judged<Message> {
    let mut query = Message::query(name, qtype);
    query.flags.cd = bits.cd;
    query.flags.ad = bits.ad;
    if let Some(edns) = &mut query.edns {
        edns.dnssec_ok = bits.dnssec_ok;
    }
    t.ask(&query)
}

/// Queries a new name with the given labels.
fn ask(t: &mut Trial<'_>, labels: &str, qtype: Rtype, bits: Bits) -> Judged<Message> {
    let name = t.name(labels);
    again(t, &name, qtype, bits)
}

/// Adds the labels of the queried name and the DNSSEC bits of the query to the text of a fault.
fn about(judged: Judged, labels: &str, bits: Bits) -> Judged {
    judged.map_err(|fault| match fault {
        Fault::Wrong(why) => Fault::Wrong(format!("{labels} {}: {why}", bits.in_words())),
        fault => fault,
    })
}

/// Returns the labels of a host with a native address in the zone `zone`.
fn native(zone: &str) -> String {
    format!("{NATIVE_LABEL}.{zone}")
}

/// Requires that AD has the value `wanted` in a reply.
fn has_ad(reply: &Message, wanted: bool) -> Judged {
    expect(reply.flags.ad == wanted, || format!("AD is {}", if wanted { "not set" } else { "set" }))
}

/// True if a section has a signature over records of this type.
fn is_signed(section: &[Record], covered: Rtype) -> bool {
    section.iter().any(|record| covers(record) == Some(covered))
}

/// Returns the type that a signature covers (RFC 4034 §3.1.1).
fn covers(record: &Record) -> Option<Rtype> {
    let octets = record.data.first_chunk::<2>().filter(|_| record.rtype == Rtype::RRSIG)?;
    Some(Rtype::from_int(u16::from_be_bytes(*octets)))
}

/// True if the answer has AAAA records.
fn has_aaaa_records(reply: &Message) -> bool {
    reply.answers(Rtype::AAAA).next().is_some()
}

/// Requires NODATA with a SOA record, NSEC or NSEC3 records, and the signatures of these records.
fn has_proof(reply: &Message) -> Judged {
    reply.lacks(Rtype::AAAA)?;
    let has = |rtype| reply.authority.iter().any(|record| record.rtype == rtype);
    expect(has(Rtype::SOA), || "the denial has no SOA record".into())?;
    expect(is_signed(&reply.authority, Rtype::SOA), || "the SOA record has no signature".into())?;
    let proof = [Rtype::NSEC, Rtype::NSEC3].into_iter().find(|rtype| has(*rtype));
    let proof =
        proof.ok_or_else(|| Fault::Wrong("the denial has neither NSEC nor NSEC3".into()))?;
    expect(is_signed(&reply.authority, proof), || format!("the {proof} record has no signature"))
}

/// Returns [`Fault::NotOffered`] if the server does not support DNSSEC. The lack of DNSSEC support is not a violation
/// (RFC 6147 §3, item 2).
fn supports_dnssec(t: &mut Trial<'_>) -> Judged {
    let reply = ask(t, &native("secure"), Rtype::AAAA, DO)?;
    if is_signed(&reply.answer, Rtype::AAAA) {
        return Ok(());
    }
    Err(Fault::NotOffered("it returns no signatures: it does not support DNSSEC".into()))
}

pub(super) fn native_with_any_bits(t: &mut Trial<'_>) -> Judged {
    ALL.into_iter().try_for_each(|bits| {
        let labels = format!("v4-1-2-3-4.{NATIVE_LABEL}");
        let reply = ask(t, &labels, Rtype::AAAA, bits)?;
        about(reply.has_aaaa(&[NATIVE]), &labels, bits)
    })
}

pub(super) fn made_with_ad(t: &mut Trial<'_>) -> Judged {
    let reply = ask(t, "v4-1-2-3-4", Rtype::AAAA, AD)?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
}

pub(super) fn cd_alone(t: &mut Trial<'_>) -> Judged {
    for bits in [CD, AD_CD] {
        let reply = ask(t, "v4-1-2-3-4", Rtype::AAAA, bits)?;
        let judged = if has_aaaa_records(&reply) {
            reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
        } else {
            reply.lacks(Rtype::AAAA)
        };
        about(judged, "v4-1-2-3-4", bits)?;
    }
    Ok(())
}

pub(super) fn trusting_with_do(t: &mut Trial<'_>) -> Judged {
    let reply = ask(t, "v4-1-2-3-4", Rtype::AAAA, DO)?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
}

pub(super) fn trusting_with_cd_do(t: &mut Trial<'_>) -> Judged {
    supports_dnssec(t)?;
    not_made(t, &["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", "v4-1-2-3-4"])
}

pub(super) fn ad_not_copied(t: &mut Trial<'_>) -> Judged {
    for bits in [PLAIN, AD, DO, AD_DO] {
        let reply = ask(t, "ad.v4-1-2-3-4", Rtype::AAAA, bits)?;
        if has_aaaa_records(&reply) {
            about(has_ad(&reply, false), "ad.v4-1-2-3-4", bits)?;
        }
    }
    Ok(())
}

pub(super) fn ad_not_echoed(t: &mut Trial<'_>) -> Judged {
    for bits in ALL.into_iter().filter(|bits| bits.ad) {
        for labels in ["v4-1-2-3-4", NATIVE_LABEL] {
            let reply = ask(t, labels, Rtype::AAAA, bits)?;
            about(has_ad(&reply, false), labels, bits)?;
        }
    }
    Ok(())
}

pub(super) fn no_signatures(t: &mut Trial<'_>) -> Judged {
    let authenticating = [Rtype::RRSIG, Rtype::NSEC, Rtype::NSEC3];
    for labels in
        ["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", &native("secure"), "txt.secure", "txt.nsec3"]
    {
        let reply = ask(t, labels, Rtype::AAAA, PLAIN)?;
        let all = reply.answer.iter().chain(&reply.authority).chain(&reply.additional);
        let found = all.into_iter().find(|record| authenticating.contains(&record.rtype));
        about(
            found.map_or(Ok(()), |record| {
                Err(Fault::Wrong(format!("there is an {} record", record.rtype)))
            }),
            labels,
            PLAIN,
        )?;
    }
    Ok(())
}

pub(super) fn made_not_signed(t: &mut Trial<'_>) -> Judged {
    let mut has_any = false;
    for labels in ["v4-1-2-3-4", "v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", "cname.v4-1-2-3-4.secure"]
    {
        let reply = ask(t, labels, Rtype::AAAA, DO)?;
        has_any |= has_aaaa_records(&reply);
        for covered in [Rtype::AAAA, Rtype::A] {
            let signed = has_aaaa_records(&reply) && is_signed(&reply.answer, covered);
            let judged = expect(!signed, || format!("there is a signature over {covered}"));
            about(judged, labels, DO)?;
        }
    }
    if has_any { Ok(()) } else { leaves_signed() }
}

/// Returns the result for a server that synthesizes nothing for signed names if the query has DO. RFC 6147 §5.5, item
/// 2, allows this.
fn leaves_signed() -> Judged {
    Err(Fault::NotOffered("it synthesizes nothing for signed names and clients with DO".into()))
}

/// Sends a query with CD=1 and DO=1 for each element of `all`, which contains the labels of one name. Requires that no
/// reply contains AAAA records.
pub(super) fn not_made(t: &mut Trial<'_>, all: &[&str]) -> Judged {
    for labels in all {
        let reply = ask(t, labels, Rtype::AAAA, CD_DO)?;
        about(reply.lacks(Rtype::AAAA), labels, CD_DO)?;
    }
    Ok(())
}

pub(super) fn bits_and_cache(t: &mut Trial<'_>) -> Judged {
    let labels = "v4-1-2-3-4.secure";
    for order in [[PLAIN, CD_DO, PLAIN], [CD_DO, PLAIN, CD_DO]] {
        let name = t.name(labels);
        for bits in order {
            let reply = again(t, &name, Rtype::AAAA, bits)?;
            let judged = if bits == PLAIN {
                reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
            } else {
                reply.lacks(Rtype::AAAA)
            };
            about(judged, labels, bits)?;
        }
    }
    Ok(())
}

pub(super) fn cd_do_proof(t: &mut Trial<'_>) -> Judged {
    for labels in ["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", "txt.secure", "txt.nsec3"] {
        let reply = ask(t, labels, Rtype::AAAA, CD_DO)?;
        about(has_proof(&reply), labels, CD_DO)?;
    }
    Ok(())
}

pub(super) fn cd_do_bogus(t: &mut Trial<'_>) -> Judged {
    for zone in ["bogus", "expired"] {
        let reply = ask(t, &native(zone), Rtype::AAAA, CD_DO)?;
        about(reply.has_aaaa(&[NATIVE]), zone, CD_DO)?;
        let signed = is_signed(&reply.answer, Rtype::AAAA);
        about(expect(signed, || "the signature is missing".into()), zone, CD_DO)?;
    }
    Ok(())
}

/// Sends queries with CD=0 for each element of `all`, which contains the labels of one name. One query is sent for each
/// combination of DO and AD. Requires SERVFAIL and an empty answer section in each reply.
pub(super) fn fails(t: &mut Trial<'_>, all: &[&str], qtype: Rtype) -> Judged {
    for labels in all {
        for bits in [PLAIN, DO, AD, AD_DO] {
            let reply = ask(t, labels, qtype, bits)?;
            about(reply.has_rcode(rcode::SERVFAIL), labels, bits)?;
            let empty = expect(reply.answer.is_empty(), || "there are records".into());
            about(empty, labels, bits)?;
        }
    }
    Ok(())
}

/// Sends a query with CD=0 and DO=0 for each element of `all`, which contains the labels of one name. Requires that
/// each reply contains the address synthesized from 1.2.3.4.
pub(super) fn made(t: &mut Trial<'_>, all: &[&str]) -> Judged {
    for labels in all {
        let reply = ask(t, labels, Rtype::AAAA, PLAIN)?;
        about(reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE)), labels, PLAIN)?;
    }
    Ok(())
}

pub(super) fn no_ad_without_do(t: &mut Trial<'_>) -> Judged {
    for labels in [
        "v4-1-2-3-4",
        "v4-1-2-3-4.secure",
        "v4-1-2-3-4.nsec3",
        &native("secure"),
        "txt.secure",
        "all-rcode-3.nsec3",
    ] {
        let reply = ask(t, labels, Rtype::AAAA, PLAIN)?;
        about(has_ad(&reply, false), labels, PLAIN)?;
    }
    Ok(())
}

pub(super) fn made_or_denied(t: &mut Trial<'_>) -> Judged {
    let mut has_any = false;
    for labels in ["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3"] {
        let reply = ask(t, labels, Rtype::AAAA, DO)?;
        has_any |= has_aaaa_records(&reply);
        let judged = if has_aaaa_records(&reply) {
            reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
        } else {
            has_proof(&reply)
        };
        about(judged, labels, DO)?;
    }
    if has_any { Ok(()) } else { leaves_signed() }
}

pub(super) fn made_has_ad(t: &mut Trial<'_>) -> Judged {
    let mut has_any = false;
    for labels in ["v4-1-2-3-4.secure", "v4-1-2-3-4.nsec3", "cname.v4-1-2-3-4.secure"] {
        let reply = ask(t, labels, Rtype::AAAA, DO)?;
        if has_aaaa_records(&reply) {
            has_any = true;
            about(has_ad(&reply, true), labels, DO)?;
        }
    }
    if has_any { Ok(()) } else { leaves_signed() }
}

pub(super) fn native_has_ad(t: &mut Trial<'_>) -> Judged {
    for labels in [
        &native("secure"),
        &native("nsec3"),
        "txt.secure",
        "txt.nsec3",
        "all-rcode-3.secure",
        "all-rcode-3.nsec3",
    ] {
        let reply = ask(t, labels, Rtype::AAAA, DO)?;
        about(has_ad(&reply, true), labels, DO)?;
    }
    Ok(())
}

pub(super) fn insecure_has_no_ad(t: &mut Trial<'_>) -> Judged {
    let native = native("ad.b");
    for labels in ["ad.v4-1-2-3-4", &native] {
        for bits in [AD, DO, AD_DO, CD_DO] {
            let reply = ask(t, labels, Rtype::AAAA, bits)?;
            about(has_ad(&reply, false), labels, bits)?;
        }
    }
    Ok(())
}

pub(super) fn mixed_chain_has_no_ad(t: &mut Trial<'_>) -> Judged {
    for labels in ["hop.v4-1-2-3-4.secure", &format!("hop.{NATIVE_LABEL}.secure")] {
        for bits in [DO, AD_DO] {
            let reply = ask(t, labels, Rtype::AAAA, bits)?;
            about(reply.has_rcode(rcode::NOERROR), labels, bits)?;
            about(has_ad(&reply, false), labels, bits)?;
        }
    }
    Ok(())
}

pub(super) fn native_has_signatures(t: &mut Trial<'_>) -> Judged {
    for (labels, qtype) in [
        (native("secure"), Rtype::AAAA),
        (native("nsec3"), Rtype::AAAA),
        ("v4-1-2-3-4.secure".into(), Rtype::A),
    ] {
        let reply = ask(t, &labels, qtype, DO)?;
        let signed = is_signed(&reply.answer, qtype);
        let judged = expect(signed, || format!("the {qtype} records have no signature"));
        about(judged, &labels, DO)?;
    }
    Ok(())
}

pub(super) fn wildcard_has_proof(t: &mut Trial<'_>) -> Judged {
    for (zone, proof) in [("secure", Rtype::NSEC), ("nsec3", Rtype::NSEC3)] {
        let labels = format!("wild.{NATIVE_LABEL}.{zone}");
        let reply = ask(t, &labels, Rtype::AAAA, DO)?;
        about(reply.has_aaaa(&[NATIVE]), &labels, DO)?;
        let signed = is_signed(&reply.answer, Rtype::AAAA);
        about(expect(signed, || "the signature is missing".into()), &labels, DO)?;
        let proved = is_signed(&reply.authority, proof)
            && reply.authority.iter().any(|record| record.rtype == proof);
        about(expect(proved, || format!("there is no signed {proof} record")), &labels, DO)?;
    }
    Ok(())
}

pub(super) fn do_upstream(t: &mut Trial<'_>) -> Judged {
    let name = t.name("v4-1-2-3-4.secure");
    again(t, &name, Rtype::AAAA, DO)?;
    let without = t.was_asked(&name)?.into_iter().find(|asked| !asked.dnssec_ok);
    without.map_or(Ok(()), |asked| {
        let qtype = Rtype::from_int(asked.qtype);
        Err(Fault::Wrong(format!("the query for {qtype} was sent upstream without DO")))
    })
}

pub(super) fn cd_upstream(t: &mut Trial<'_>) -> Judged {
    let name = t.name(&native("secure"));
    again(t, &name, Rtype::AAAA, CD_DO)?;
    let asked = t.was_asked(&name)?;
    if asked.iter().all(|asked| !asked.rd) {
        return Err(Fault::NotOffered(
            "it queries authoritative servers, for which CD has no meaning".into(),
        ));
    }
    expect(asked.iter().all(|asked| asked.cd), || "the query was sent upstream without CD".into())
}

pub(super) fn cd_copied(t: &mut Trial<'_>) -> Judged {
    // To limit the number of queries, native records are queried only without AD.
    let native = ALL.into_iter().filter(|bits| !bits.ad).map(|bits| (NATIVE_LABEL, bits));
    for (labels, bits) in ALL.into_iter().map(|bits| ("v4-1-2-3-4", bits)).chain(native) {
        let reply = ask(t, labels, Rtype::AAAA, bits)?;
        let judged = expect(reply.flags.cd == bits.cd, || {
            format!("CD of the reply is {}", u8::from(reply.flags.cd))
        });
        about(judged, labels, bits)?;
    }
    Ok(())
}

pub(super) fn do_copied(t: &mut Trial<'_>) -> Judged {
    let native = native("secure");
    for labels in ["v4-1-2-3-4", &native, "txt.nsec3", "v4-1-2-3-4.bogus"] {
        for bits in [PLAIN, DO] {
            let reply = ask(t, labels, Rtype::AAAA, bits)?;
            let Some(edns) = reply.edns else {
                return Err(Fault::NotOffered("the server does not implement EDNS".into()));
            };
            let found = edns.dnssec_ok;
            let judged = expect(found == bits.dnssec_ok, || {
                format!("DO of the reply is {}", u8::from(found))
            });
            about(judged, labels, bits)?;
        }
    }
    Ok(())
}

pub(super) fn cd_after_failure(t: &mut Trial<'_>) -> Judged {
    for bits in [CD, CD_DO] {
        let name = t.name(&native("bogus"));
        again(t, &name, Rtype::AAAA, Bits { cd: false, ..bits })?;
        let reply = again(t, &name, Rtype::AAAA, bits)?;
        about(reply.has_aaaa(&[NATIVE]), "a name that failed before", bits)?;
    }
    Ok(())
}

pub(super) fn failure_after_cd(t: &mut Trial<'_>) -> Judged {
    for bits in [CD, CD_DO] {
        let name = t.name(&native("bogus"));
        again(t, &name, Rtype::AAAA, bits)?;
        let bits = Bits { cd: false, ..bits };
        let reply = again(t, &name, Rtype::AAAA, bits)?;
        about(reply.has_rcode(rcode::SERVFAIL), "a name that was returned with CD", bits)?;
    }
    Ok(())
}

pub(super) fn ad_asked_for(t: &mut Trial<'_>) -> Judged {
    let reply = ask(t, &native("secure"), Rtype::AAAA, AD)?;
    reply.has_aaaa(&[NATIVE])?;
    let all = reply.answer.iter().chain(&reply.authority).chain(&reply.additional);
    expect(all.into_iter().all(|record| record.rtype != Rtype::RRSIG), || {
        "there are signatures, although DO is not set".into()
    })?;
    if reply.flags.ad {
        return Ok(());
    }
    Err(Fault::NotOffered(
        "it sets AD only for clients with DO (RFC 6147 section 5.5, item 1)".into(),
    ))
}

pub(super) fn cd_has_no_ad(t: &mut Trial<'_>) -> Judged {
    for labels in [&native("secure"), "v4-1-2-3-4.nsec3", "txt.secure"] {
        let reply = ask(t, labels, Rtype::AAAA, CD)?;
        about(has_ad(&reply, false), labels, CD)?;
    }
    Ok(())
}

pub(super) fn cd_bogus(t: &mut Trial<'_>) -> Judged {
    for labels in [native("bogus"), native("expired")] {
        let reply = ask(t, &labels, Rtype::AAAA, CD)?;
        about(reply.has_aaaa(&[NATIVE]), &labels, CD)?;
    }
    Ok(())
}
