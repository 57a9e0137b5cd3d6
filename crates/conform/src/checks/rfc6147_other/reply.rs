//! Scripts for RFC 6147 §5.3.2 to §5.4: the additional section, types other than AAAA, and the assembly of a reply.

use std::net::Ipv4Addr;

use domain::base::iana::{Class, Rtype};

use crate::message::{Message, Name, PAYLOAD, Question, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect};

const SYNTHESIS_SOURCE: &str = "1.2.3.4";
const V4: Ipv4Addr = Ipv4Addr::new(1, 2, 3, 4);

/// Returns the host name in the data of an MX, NS or SRV record of the test zone: `NONCE.host.v4-1-2-3-4.ZONE`.
fn host(record: &Record) -> Option<Name> {
    let before = match record.rtype {
        Rtype::MX => 2,
        Rtype::SRV => 6,
        _ => 0,
    };
    Name::from_octets(record.data.get(before..)?.to_vec()).ok()
}

/// Inserts the label `second` after the first label of the name `name`, and returns the new name as text. Other labels
/// between the first label and the ending `rest` are removed.
fn with_second(name: &Name, second: &str, rest: &str) -> String {
    let text = name.to_string();
    let nonce = text.split('.').next().unwrap_or_default();
    let at = text.find(rest).unwrap_or_default();
    format!("{nonce}.{second}.{}", &text[at..])
}

/// Requires that the additional section contains no AAAA record with an address from one of the server's DNS64
/// prefixes.
fn has_nothing_synthesized(t: &Trial<'_>, reply: &Message) -> Judged {
    let prefixes = t.subject().prefixes;
    let made = reply.additional.iter().find(|record| {
        let address = record.ipv6();
        address.is_some_and(|v6| prefixes.iter().any(|prefix| prefix.embedded(v6).is_some()))
    });
    made.map_or(Ok(()), |record| {
        Err(Fault::Wrong(format!(
            "the additional section has a synthesized record of {}",
            record.owner
        )))
    })
}

pub(super) fn additional_not_made(t: &mut Trial<'_>) -> Judged {
    for (labels, qtype) in [
        ("v4-1-2-3-4", Rtype::AAAA),
        ("mx.v4-1-2-3-4", Rtype::MX),
        ("ns.v4-1-2-3-4", Rtype::NS),
        ("srv.v4-1-2-3-4", Rtype::SRV),
    ] {
        let (_, reply) = t.look_up(labels, qtype)?;
        has_nothing_synthesized(t, &reply)?;
    }
    Ok(())
}

pub(super) fn additional_unchanged(t: &mut Trial<'_>) -> Judged {
    let mut has_any = false;
    for (labels, qtype) in
        [("mx.v4-1-2-3-4", Rtype::MX), ("ns.v4-1-2-3-4", Rtype::NS), ("srv.v4-1-2-3-4", Rtype::SRV)]
    {
        let (_, reply) = t.look_up(labels, qtype)?;
        let hosts: Vec<Name> = reply.answers(qtype).filter_map(host).collect();
        for record in reply.additional.iter().filter(|record| hosts.contains(&record.owner)) {
            has_any = true;
            expect(record.ipv4() == Some(V4), || {
                format!("{} has another {} record than its A record", record.owner, record.rtype)
            })?;
        }
    }
    if has_any {
        Ok(())
    } else {
        Err(Fault::NotOffered("its replies have no additional records".into()))
    }
}

pub(super) fn host_is_made(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.look_up("mx.v4-1-2-3-4", Rtype::MX)?;
    let host = reply.answers(Rtype::MX).find_map(host);
    let host = host.ok_or_else(|| Fault::Wrong("there is no MX record".into()))?;
    let reply = t.ask(&Message::query(&host, Rtype::AAAA))?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))
}

/// Requires NOERROR, and a single record of this type that is owned by the queried name. Returns the record.
fn only(t: &mut Trial<'_>, labels: &str, qtype: Rtype) -> Judged<Record> {
    let (name, reply) = t.look_up(labels, qtype)?;
    reply.has_rcode(rcode::NOERROR)?;
    match reply.answer.as_slice() {
        [record] if record.rtype == qtype && record.owner == name => Ok(record.clone()),
        records => {
            let types: Vec<String> = records.iter().map(|r| r.rtype.to_string()).collect();
            Err(Fault::Wrong(format!("the answer is not one {qtype} record, but {types:?}")))
        }
    }
}

pub(super) fn text(t: &mut Trial<'_>) -> Judged {
    let record = only(t, "txt.v4-1-2-3-4", Rtype::TXT)?;
    expect(record.data == b"\x07conform", || "the text is not \"conform\" any more".into())
}

pub(super) fn hosts(t: &mut Trial<'_>) -> Judged {
    for (labels, qtype) in
        [("mx.v4-1-2-3-4", Rtype::MX), ("ns.v4-1-2-3-4", Rtype::NS), ("srv.v4-1-2-3-4", Rtype::SRV)]
    {
        let record = only(t, labels, qtype)?;
        let wanted = with_second(&record.owner, "host", "v4-1-2-3-4");
        let found = host(&record).map(|found| found.to_string()).unwrap_or_default();
        expect(found.eq_ignore_ascii_case(&wanted), || {
            format!("the {qtype} record names {found}, not {wanted}")
        })?;
    }
    Ok(())
}

pub(super) fn hint(t: &mut Trial<'_>, labels: &str, qtype: Rtype) -> Judged {
    let record = only(t, labels, qtype)?;
    let found = parameters(&record.data);
    // RFC 9460 §14.3.2: key 1 is alpn, key 4 is ipv4hint.
    let wanted = vec![(1, b"\x02h2".to_vec()), (4, vec![1, 2, 3, 4])];
    expect(found.as_ref() == Some(&wanted), || {
        format!("the keys and values of {qtype} have changed: {found:?}")
    })
}

/// Returns the keys and values of an HTTPS or SVCB record (RFC 9460 §2.2), or `None` if its RDATA is too
/// short.
fn parameters(data: &[u8]) -> Option<Vec<(u16, Vec<u8>)>> {
    let mut rest = data.get(2..)?;
    loop {
        let (len, after) = rest.split_first()?;
        rest = after.get(usize::from(*len)..)?;
        if *len == 0 {
            break;
        }
    }
    let mut all = Vec::new();
    while let [k0, k1, l0, l1, after @ ..] = rest {
        let (value, next) = after.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))?;
        all.push((u16::from_be_bytes([*k0, *k1]), value.to_vec()));
        rest = next;
    }
    rest.is_empty().then_some(all)
}

pub(super) fn any(t: &mut Trial<'_>) -> Judged {
    for labels in ["v4-1-2-3-4", "txt", "txt.v4-1-2-3-4"] {
        let (_, reply) = t.look_up(labels, Rtype::ANY)?;
        has_no_aaaa(&reply)?;
    }
    Ok(())
}

/// Sends an AAAA query and then ANY queries for each name, and repeats these queries once. The first AAAA query makes
/// the server synthesize records. The answer to the second AAAA query may come from a cache.
pub(super) fn any_after_aaaa(t: &mut Trial<'_>) -> Judged {
    for labels in ["v4-1-2-3-4", "txt.v4-1-2-3-4", "cname.v4-1-2-3-4"] {
        let name = t.name(labels);
        for _ in 0..2 {
            let reply = t.ask(&Message::query(&name, Rtype::AAAA))?;
            let Some(record) = reply.answers(Rtype::AAAA).next() else {
                return Err(Fault::NotOffered(format!("it synthesizes no AAAA record for {name}")));
            };
            // Both the alias and its target are queried.
            for name in [&name, &record.owner] {
                has_no_aaaa(&t.ask_whole(&Message::query(name, Rtype::ANY))?)?;
            }
        }
    }
    Ok(())
}

/// Requires that the reply to a query for ANY contains no synthesized AAAA records. Any other content is correct: RFC
/// 8482 §4 allows one RRset, several RRsets, or an HINFO record, and the server may refuse.
fn has_no_aaaa(reply: &Message) -> Judged {
    let made = reply.answers(Rtype::AAAA).count();
    expect(made == 0, || format!("the reply to ANY contains {made} synthesized AAAA records"))
}

pub(super) fn cname(t: &mut Trial<'_>) -> Judged {
    let record = only(t, "cname.v4-1-2-3-4", Rtype::CNAME)?;
    let text = record.owner.to_string();
    let wanted = text.replacen(".cname.", ".", 1);
    let found = record.target().map(|target| target.to_string()).unwrap_or_default();
    expect(found.eq_ignore_ascii_case(&wanted), || {
        format!("the alias leads to {found}, not to {wanted}")
    })
}

pub(super) fn denials(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::MX, Rtype::HTTPS, Rtype::from_int(65_280)] {
        let (_, reply) = t.look_up("v4-1-2-3-4", qtype)?;
        reply.has_rcode(rcode::NOERROR)?;
        expect(reply.answer.is_empty(), || {
            format!("there is an answer to a query for {qtype}, although there are no such records")
        })?;
        expect(reply.soa()?.is_some(), || format!("the denial of {qtype} has no SOA record"))?;
    }
    Ok(())
}

/// Returns the name in alternating letter case.
fn mixed(name: &Name) -> Name {
    let mut capital = false;
    let text = name.to_string();
    let letters = text.chars().map(|letter| {
        capital = !capital;
        if capital { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
    });
    crate::message::name(&letters.collect::<String>())
}

pub(super) fn question(t: &mut Trial<'_>) -> Judged {
    for labels in ["v4-1-2-3-4", "cname.v4-1-2-3-4", "txt"] {
        let name = mixed(&t.name(labels));
        let reply = t.ask(&Message::query(&name, Rtype::AAAA))?;
        let as_asked = |found: &Question| {
            found.name.as_slice() == name.as_slice()
                && (found.qtype, found.class) == (Rtype::AAAA, Class::IN)
        };
        expect(reply.question().is_some_and(as_asked), || {
            format!("the question in the reply is not {name} AAAA IN")
        })?;
    }
    Ok(())
}

pub(super) fn header(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))?;
    let flags = reply.flags;
    expect(reply.opcode == 0, || format!("the opcode is {}", reply.opcode))?;
    expect(flags.rd, || "RD is not copied (RFC 1035 section 4.1.1)".into())?;
    expect(flags.ra, || "RA is not set, although the server resolves".into())?;
    expect(!flags.aa, || "AA is set for a zone of another server".into())?;
    expect(!flags.tc, || "TC is set on a short answer".into())
}

pub(super) fn authority(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))?;
    let denying = [Rtype::SOA, Rtype::NSEC, Rtype::NSEC3];
    let found = reply.authority.iter().find(|record| denying.contains(&record.rtype));
    found.map_or(Ok(()), |record| {
        Err(Fault::Wrong(format!("the authority section has the {} of the denial", record.rtype)))
    })
}

pub(super) fn empty(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("txt.soa-77-33")?;
    reply.has_nodata(Rtype::AAAA)?;
    let soa = reply.soa()?.ok_or_else(|| Fault::Wrong("the denial has no SOA record".into()))?;
    expect(soa.minimum() == Some(33), || format!("MINIMUM is {:?}, not 33", soa.minimum()))?;
    expect(soa.ttl <= 77, || format!("the SOA record's TTL has grown from 77 s to {} s", soa.ttl))
}

pub(super) fn aliases_first(t: &mut Trial<'_>) -> Judged {
    cnames_first(t)?;
    let (_, reply) = t.aaaa("dname.v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))?;
    let first = |rtype| reply.answer.iter().position(|record| record.rtype == rtype);
    let last = |rtype| reply.answer.iter().rposition(|record| record.rtype == rtype);
    expect(last(Rtype::DNAME) < first(Rtype::AAAA), || {
        "a DNAME record follows the synthesized records".into()
    })
}

fn cnames_first(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.aaaa("cname.cname.v4-1-2-3-4")?;
    reply.has_aaaa(&t.embedded(SYNTHESIS_SOURCE))?;
    let mut at = name;
    let mut behind = false;
    for record in &reply.answer {
        match record.rtype {
            Rtype::CNAME => {
                expect(!behind, || "a CNAME record follows the synthesized records".into())?;
                expect(record.owner == at, || {
                    format!("the alias of {} is in the place of that of {at}", record.owner)
                })?;
                at = record.target().unwrap_or(at);
            }
            Rtype::AAAA => {
                behind = true;
                expect(record.owner == at, || {
                    format!("{} is not the end of the chain", record.owner)
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Requires that a reply is truncated if it is longer than the client accepts. The records are chosen so that the A
/// records fit into a reply, and the synthesized AAAA records do not. With EDNS, 60 A records (960 octets) become 60
/// AAAA records (1 680 octets). Without EDNS, 20 A records (320 octets) become 20 AAAA records (560 octets).
pub(super) fn truncation(t: &mut Trial<'_>) -> Judged {
    let prefixes = t.subject().prefixes.len();
    for (labels, records, edns, takes) in
        [("many-60", 60, true, usize::from(PAYLOAD)), ("many-20", 20, false, 512)]
    {
        let mut query = Message::query(&t.name(labels), Rtype::AAAA);
        query.edns = query.edns.filter(|_| edns);
        let octets = t.reply_to_octets(&query.octets(), "a query")?;
        expect(octets.len() <= takes, || {
            format!("the reply has {} octets, but the client accepts {takes}", octets.len())
        })?;
        let reply = Message::parse(&octets)
            .map_err(|error| Fault::Wrong(format!("the reply is no DNS message: {error}")))?;
        let found = reply.answers(Rtype::AAAA).count();
        let all = records * prefixes;
        expect(reply.flags.tc || found == all, || {
            format!("{found} of {all} records were sent, but TC is not set")
        })?;
    }
    Ok(())
}
