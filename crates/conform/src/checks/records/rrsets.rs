//! Checks of RRsets, names and aliases, and of records that are not translated.

use domain::base::iana::Rtype;

use super::common::{UNEQUAL, unique};
use crate::message::{Message, Name, Record, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, rcode_name};

/// Sends queries whose replies are answers, aliases, and both kinds of negative answer (NXDOMAIN and NODATA). Requires
/// that no record occurs twice, because the test authoritative server sends no record twice.
pub(super) fn no_duplicates(t: &mut Trial<'_>) -> Judged {
    for (labels, qtype) in [
        ("v4-1-2-3-4.v4-8-8-4-4", Rtype::AAAA),
        ("cname.v4-1-2-3-4", Rtype::AAAA),
        ("dname.v4-1-2-3-4", Rtype::AAAA),
        ("txt", Rtype::AAAA),
        ("cname.txt", Rtype::AAAA),
        ("all-rcode-3", Rtype::AAAA),
        ("v4-1-2-3-4", Rtype::A),
        ("v4-1-2-3-4", Rtype::MX),
        ("mx.v4-1-2-3-4", Rtype::MX),
    ] {
        let (_, reply) = t.look_up(labels, qtype)?;
        for section in [&reply.answer, &reply.authority, &reply.additional] {
            has_no_duplicate(section)?;
        }
    }
    Ok(())
}

/// Requires that no record occurs twice in a section. Two records that differ only in the TTL count as the same record.
fn has_no_duplicate(section: &[Record]) -> Judged {
    let is_repeated = |(n, record): &(usize, &Record)| {
        section[..*n]
            .iter()
            .any(|earlier| Record { ttl: record.ttl, ..earlier.clone() } == **record)
    };
    section.iter().enumerate().find(is_repeated).map_or(Ok(()), |(_, record)| {
        Err(Fault::Wrong(format!("the {} record of {} occurs twice", record.rtype, record.owner)))
    })
}

pub(super) fn lowest_ttl_counts(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::A, Rtype::AAAA] {
        let (_, reply) = t.look_up(UNEQUAL, qtype)?;
        let highest = reply.answers(qtype).map(|record| record.ttl).max();
        let highest = highest.ok_or_else(|| Fault::Wrong(format!("there is no {qtype} record")))?;
        expect(highest <= 150, || {
            format!(
                "the A records had TTLs of 300 s and 150 s, but {qtype} is returned with \
                {highest} s"
            )
        })?;
    }
    Ok(())
}

/// A server is also correct if it treats a reply with unrelated records as an error, as BIND does.
pub(super) fn unrelated_records_are_omitted(t: &mut Trial<'_>) -> Judged {
    let made = t.embedded("1.2.3.4");
    for qtype in [Rtype::AAAA, Rtype::A] {
        let (name, reply) = t.look_up("oob.v4-1-2-3-4", qtype)?;
        belongs_to(&reply, &name)?;
        match qtype {
            _ if reply.rcode == rcode::SERVFAIL => {}
            Rtype::A => reply.has_a(&[[1, 2, 3, 4].into()])?,
            _ => reply.has_aaaa(&made)?,
        }
    }
    Ok(())
}

/// Requires that all records of the answer have this owner.
fn belongs_to(reply: &Message, name: &Name) -> Judged {
    let stranger = reply.answer.iter().find(|record| record.owner != *name);
    stranger.map_or(Ok(()), |record| {
        Err(Fault::Wrong(format!("there is a record of {} in the answer for {name}", record.owner)))
    })
}

pub(super) fn additional_data_is_no_answer(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.look_up("mx.v4-1-2-3-4", Rtype::MX)?;
    // RDATA of MX is the preference and the host (RFC 1035 §3.3.9).
    let host =
        reply.answers(Rtype::MX).find_map(|mx| Name::from_octets(mx.data.get(2..)?.to_vec()).ok());
    let host = host.ok_or_else(|| Fault::Wrong("there is no MX record".into()))?;
    t.ask(&Message::query(&host, Rtype::A))?.has_a(&[[1, 2, 3, 4].into()])?;
    let asked = t.asked(&host)?;
    expect(asked.iter().any(|asked| asked.qtype == Rtype::A.to_int()), || {
        format!("A of {host} was answered, but no query for it was sent upstream")
    })
}

pub(super) fn partial_answers_say_so(t: &mut Trial<'_>) -> Judged {
    let whole = 60 * t.subject().prefixes.len();
    let (_, reply) = t.aaaa("many-60")?;
    reply.has_rcode(rcode::NOERROR)?;
    let found = reply.answers(Rtype::AAAA).count();
    expect(found == whole || reply.flags.tc, || {
        format!("there are {found} of {whole} records, but TC is not set")
    })
}

pub(super) fn extra_data_sets_no_tc(t: &mut Trial<'_>) -> Judged {
    let name = t.name("mx.many-60");
    let mut query = Message::query(&name, Rtype::MX);
    query.edns.iter_mut().for_each(|edns| edns.payload = 512);
    let reply = t.ask(&query)?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(!reply.flags.tc, || "TC is set, although the MX record fits".into())?;
    expect(reply.answers(Rtype::MX).count() == 1, || "there is no MX record".into())
}

pub(super) fn big_sets_come_over_tcp(t: &mut Trial<'_>) -> Judged {
    // By default, BIND accepts at most 100 records of an RRset (max-records-per-type).
    for count in [60, 100] {
        let name = t.name(&format!("many-{count}"));
        let reply = t.ask_tcp(&Message::query(&name, Rtype::AAAA))?;
        expect(!reply.flags.tc, || format!("TC is set over TCP, with {count} records"))?;
        let all: Vec<_> = (1..=count).flat_map(|n| t.embedded(&format!("1.1.0.{n}"))).collect();
        reply.has_aaaa(&all)?;
    }
    Ok(())
}

pub(super) fn aliases_stand_alone(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.aaaa("cname.v4-1-2-3-4")?;
    let made = t.embedded("1.2.3.4");
    reply.has_aaaa(&made)?;
    for alias in reply.answers(Rtype::CNAME) {
        let other = reply.answers(Rtype::AAAA).any(|record| record.owner == alias.owner);
        expect(!other, || format!("{} has a CNAME record and AAAA records", alias.owner))?;
    }
    Ok(())
}

pub(super) fn rcode_is_of_the_end(t: &mut Trial<'_>) -> Judged {
    for qtype in [Rtype::TXT, Rtype::AAAA] {
        let (_, reply) = t.look_up("cname.all-rcode-3", qtype)?;
        reply.has_rcode(rcode::NXDOMAIN)?;
    }
    t.look_up("cname.v4-1-2-3-4", Rtype::TXT)?.1.lacks(Rtype::TXT)
}

pub(super) fn synthesized_cname_has_the_ttl(t: &mut Trial<'_>) -> Judged {
    let unique = unique(t);
    let (_, reply) = t.aaaa(&format!("dname.v4-1-2-3-4.{unique}"))?;
    let made = t.embedded("1.2.3.4");
    reply.has_aaaa(&made)?;
    let cname = reply.ttl(Rtype::CNAME)?;
    // Even if the server omits the DNAME record, it has received that record from the test authoritative server.
    let dname = reply.answers(Rtype::DNAME).next().map_or(300, |record| record.ttl);
    expect(cname.abs_diff(dname) <= 2, || {
        format!("the TTL of the DNAME record is {dname} s, that of the CNAME record {cname} s")
    })
}

/// Returns the name with every other octet in upper case. Length octets of labels stay unchanged, because their values
/// are below the codes of letters.
fn odd_case(name: &Name, odd: usize) -> Name {
    let upper = |(at, octet): (usize, &u8)| match at % 2 == odd {
        true => octet.to_ascii_uppercase(),
        false => *octet,
    };
    with_octets(name, |octets| octets.iter().enumerate().map(upper).collect())
}

pub(super) fn letter_case_is_kept(t: &mut Trial<'_>) -> Judged {
    let name = t.name("v4-1-2-3-4");
    for qtype in [Rtype::A, Rtype::AAAA] {
        for name in [odd_case(&name, 0), odd_case(&name, 1), name.clone()] {
            let reply = t.ask(&Message::query(&name, qtype))?;
            reply.has_rcode(rcode::NOERROR)?;
            let echo = reply.question().map(|question| &question.name);
            let echo = echo.ok_or_else(|| Fault::Wrong("the reply has no question".into()))?;
            expect(echo.as_slice() == name.as_slice(), || {
                format!("the question was {name}, and was returned as {echo}")
            })?;
        }
    }
    Ok(())
}

/// Returns the parameters (keys and values) of an HTTPS or SVCB record. In the RDATA, they follow the priority and the
/// target (RFC 9460 §2.2).
fn parameters(data: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut rest = data.get(2..)?;
    loop {
        let (&len, behind) = rest.split_first()?;
        rest = behind.get(usize::from(len)..)?;
        if len == 0 {
            break;
        }
    }
    let mut all = Vec::new();
    while let [k0, k1, l0, l1, behind @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let (value, after) = behind.split_at_checked(len)?;
        all.push((u16::from_be_bytes([*k0, *k1]), value));
        rest = after;
    }
    Some(all)
}

pub(super) fn hints_are_left_alone(t: &mut Trial<'_>) -> Judged {
    for (labels, qtype) in [("https-1-2-3-4", Rtype::HTTPS), ("svcb-1-2-3-4", Rtype::SVCB)] {
        let (_, reply) = t.look_up(&format!("{labels}.v4-1-2-3-4"), qtype)?;
        reply.has_rcode(rcode::NOERROR)?;
        let parameters = reply.answers(qtype).next().and_then(|record| parameters(&record.data));
        let parameters =
            parameters.ok_or_else(|| Fault::Wrong(format!("there is no {qtype} record")))?;
        has_no_ipv6_hint(qtype, &parameters)?;
    }
    Ok(())
}

/// Requires that an HTTPS or SVCB record has no parameter with IPv6 addresses (`ipv6hint`), because the test
/// authoritative server sends none. A server that removes the parameter with IPv4 addresses (`ipv4hint`) passes,
/// because it synthesizes nothing. Other checks report altered records.
fn has_no_ipv6_hint(qtype: Rtype, parameters: &[(u16, &[u8])]) -> Judged {
    // RFC 9460 §14.3.2.
    const IPV6HINT: u16 = 6;
    let hint = parameters.iter().find(|(key, _)| *key == IPV6HINT);
    expect(hint.is_none(), || format!("{qtype} has an ipv6hint: {parameters:02x?}"))
}

pub(super) fn https_does_not_need_addresses(t: &mut Trial<'_>) -> Judged {
    let (_, reply) = t.look_up("https-1-2-3-4.a-rcode-2.aaaa-rcode-2", Rtype::HTTPS)?;
    reply.has_rcode(rcode::NOERROR)?;
    let found = reply.answers(Rtype::HTTPS).count();
    expect(found == 1, || format!("there are {found} HTTPS records, not one"))
}

pub(super) fn any_is_answered(t: &mut Trial<'_>) -> Judged {
    let (name, reply) = t.look_up("txt.v4-1-2-3-4", Rtype::ANY)?;
    let declined = [rcode::NOERROR, rcode::NOTIMP, rcode::REFUSED].contains(&reply.rcode);
    expect(declined, || format!("the RCODE is {}", rcode_name(reply.rcode)))?;
    belongs_to(&reply, &name)
}

/// Returns the name that consists of the octets returned by `change`. If these octets are not a valid name, returns
/// `name` unchanged.
fn with_octets(name: &Name, change: impl Fn(&[u8]) -> Vec<u8>) -> Name {
    Name::from_octets(change(name.as_slice())).unwrap_or_else(|_| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::name;

    #[test]
    fn rfc_9460_2_2_parameters() {
        let target = [0, 1, 1, b'x', 0];
        let of = |rest: &[u8]| {
            let data = [&target, rest].concat();
            parameters(&data).map(|all| all.iter().map(|(key, v)| (*key, v.to_vec())).collect())
        };
        assert_eq!(of(&[]), Some(vec![]));
        assert_eq!(of(&[0, 1, 0, 2, 7, 8, 0, 4, 0, 0]), Some(vec![(1, vec![7, 8]), (4, vec![])]));
        assert_eq!(of(&[0, 1, 0, 9, 7]), None, "a value that is cut");
        assert_eq!(parameters(&[0, 1, 5, b'x']), None, "a target that is cut");
    }

    /// RFC 9460 §4.2.1 forbids synthesis, but does not forbid removing a hint.
    #[test]
    fn hints_may_be_stripped_but_not_synthesized() {
        let alpn: (u16, &[u8]) = (1, b"\x02h2");
        let ipv4: (u16, &[u8]) = (4, &[1, 2, 3, 4]);
        let judge = |parameters: &[(u16, &[u8])]| has_no_ipv6_hint(Rtype::HTTPS, parameters);
        assert_eq!(judge(&[alpn, ipv4]), Ok(()));
        assert_eq!(judge(&[alpn]), Ok(()), "stripped");
        assert!(judge(&[alpn, ipv4, (6, &[0; 16])]).is_err());
        assert!(judge(&[alpn, (6, &[0; 16])]).is_err());
    }

    #[test]
    fn letters_change_and_names_do_not() {
        let lower = name("x1.abc.example");
        for (odd, text) in [(0, "x1.AbC.ExAmPlE"), (1, "X1.aBc.eXaMpLe")] {
            let changed = odd_case(&lower, odd);
            assert_eq!(changed.to_string(), text);
            assert_eq!(changed, lower);
        }
    }
}
