//! Forged data in upstream replies, which the server must not accept, and protection of upstream queries against
//! guessing (RFC 5452).

use std::collections::{HashMap, HashSet};
use std::net::Ipv6Addr;
use std::thread;
use std::time::{Duration, Instant};

use domain::base::iana::Rtype;

use crate::ask;
use crate::authority::view::Asked;
use crate::label::{self, EVIL4, EVIL6};
use crate::message::{Message, Name, Record, name};
use crate::trial::{Fault, Judge, Judged, Subject, Trial, expect, no_socket};

/// Label that defines an AAAA record with the address [`NATIVE`].
const NATIVE_LABEL: &str = "v6-20010db8000000000000000000000001";
const NATIVE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// True if the reply contains a forged address, or an address synthesized from a forged address.
fn is_poisoned(t: &Trial<'_>, reply: &Message) -> bool {
    let mut evil = t.embedded(&EVIL4.to_string());
    evil.push(EVIL6);
    let Message { answer, authority, additional, .. } = reply;
    let is_evil = |record: &Record| {
        record.ipv4() == Some(EVIL4) || record.ipv6().is_some_and(|v6| evil.contains(&v6))
    };
    answer.iter().chain(authority).chain(additional).any(is_evil)
}

/// Requires that the reply contains no forged address. Replies without any address are accepted here. They mean that
/// the server did not wait for the correct upstream reply, and a different check reports this fault.
fn is_clean(t: &Trial<'_>, reply: &Message) -> Judged {
    expect(!is_poisoned(t, reply), || "a forged address was accepted".into())
}

// Forged replies.

/// Sends two AAAA queries for each of two names whose upstream replies are forged. A server that accepts a forged
/// record may return it only in the second reply, from its cache.
fn is_not_believed(t: &mut Trial<'_>, forgery: &str) -> Judged {
    for labels in [format!("v4-1-2-3-4.a-{forgery}"), format!("{NATIVE_LABEL}.aaaa-{forgery}")] {
        let query = Message::query(&t.name(&labels), Rtype::AAAA);
        for _ in 0..2 {
            let reply = t.ask(&query)?;
            is_clean(t, &reply)?;
        }
    }
    Ok(())
}

pub(super) fn forged_ids(t: &mut Trial<'_>) -> Judged {
    is_not_believed(t, "badid")
}

pub(super) fn forged_ports(t: &mut Trial<'_>) -> Judged {
    is_not_believed(t, "badport")
}

pub(super) fn forged_questions(t: &mut Trial<'_>) -> Judged {
    is_not_believed(t, "badquestion")
}

pub(super) fn forgery_is_not_the_last_word(t: &mut Trial<'_>) -> Judged {
    for forgery in ["badid", "badport", "badquestion"] {
        let (_, reply) = t.aaaa(&format!("v4-1-2-3-4.a-{forgery}"))?;
        reply.has_aaaa(&t.embedded("1.2.3.4"))?;
    }
    Ok(())
}

// Values that an attacker must guess.

/// Returns the UDP queries for `names` that the test authoritative server received, in the order of arrival.
fn questions(t: &Trial<'_>, names: &[Name]) -> Judged<Vec<Asked>> {
    let mut questions = Vec::new();
    for name in names {
        questions.extend(t.asked(name)?.into_iter().filter(|asked| !asked.tcp));
    }
    questions.sort_by_key(|asked| asked.at);
    if questions.len() < names.len() / 2 {
        return Err(Fault::NotOffered("the server does not query over UDP".into()));
    }
    Ok(questions)
}

/// Queries new names one after the other. Returns the IDs of the client queries, and all upstream queries. Client
/// queries without a reply are included.
///
/// # Errors
/// Returns [`Fault::NotTried`] if more than an eighth of the replies are missing.
fn one_after_the_other(t: &mut Trial<'_>, count: usize) -> Judged<(Vec<u16>, Vec<Asked>)> {
    let (mut ids, mut names, mut lost) = (Vec::new(), Vec::new(), 0);
    for _ in 0..count {
        let name = t.name("v4-1-2-3-4");
        let query = Message::query(&name, Rtype::AAAA);
        lost += usize::from(t.ask_or_silence(&query)?.is_none());
        if lost > count / 8 {
            let asked = names.len() + 1;
            return Err(Fault::NotTried(format!("{lost} of {asked} queries got no reply")));
        }
        ids.push(query.id);
        names.push(name);
    }
    Ok((ids, questions(t, &names)?))
}

fn distinct(values: &[u16]) -> usize {
    values.iter().collect::<HashSet<_>>().len()
}

/// Returns the most frequent difference between consecutive values, and how often this difference occurs.
fn commonest_step(values: &[u16]) -> (u16, usize) {
    let mut steps: HashMap<u16, usize> = HashMap::new();
    for pair in values.windows(2) {
        *steps.entry(pair[1].wrapping_sub(pair[0])).or_default() += 1;
    }
    steps.into_iter().max_by_key(|(_, count)| *count).unwrap_or((0, 0))
}

/// Requires that no single difference accounts for more than a quarter of all differences between consecutive values.
/// Also requires that at least `least` per cent of the values are distinct.
fn has_no_pattern(what: &str, values: &[u16], least: usize) -> Judged {
    let (distinct, (step, times)) = (distinct(values), commonest_step(values));
    expect(distinct * 100 >= values.len() * least, || {
        format!("{} queries have {distinct} different {what}s", values.len())
    })?;
    expect(times * 4 <= values.len(), || {
        format!("the next {what} is {step} more in {times} of {} queries", values.len())
    })
}

/// Returns the value of `what` for each query, in the order of arrival. `what` returns the source port or the ID of a
/// query. If several upstream queries for the same domain name have the same value, the value is returned once: a
/// server may use one port or ID for all upstream queries of a client query.
fn of_names(questions: &[Asked], what: impl Fn(&Asked) -> u16) -> Vec<u16> {
    let mut seen = HashSet::new();
    let is_new = |asked: &&Asked| seen.insert((asked.name.to_lowercase(), what(asked)));
    questions.iter().filter(is_new).map(&what).collect()
}

/// Requires that the source ports of consecutive queries cannot be guessed. Only a few ports need to be distinct,
/// because a server may choose from ports that are already open.
fn cannot_be_guessed(ports: &[u16]) -> Judged {
    has_no_pattern("port", ports, 25)?;
    let (low, high) = (ports.iter().min().copied(), ports.iter().max().copied());
    let range = high.zip(low).map_or(0, |(high, low)| high - low);
    expect(range >= 4096, || format!("all ports are in a range of {range}"))
}

/// Returns the source ports of the upstream queries for 64 names that are queried at the same time.
fn ports_of_a_crowd(t: &mut Trial<'_>) -> Judged<Vec<u16>> {
    let names: Vec<Name> = (0..64).map(|_| t.name("v4-1-2-3-4.all-delay-100")).collect();
    let queries: Vec<_> = names.iter().map(|name| Message::query(name, Rtype::AAAA)).collect();
    t.ask_all(&queries)?;
    Ok(questions(t, &names)?.iter().map(|asked| asked.source.port()).collect())
}

/// Requires that `ports`, the source ports of queries, contains at least `least` different ports.
fn differ(ports: &[u16], least: usize) -> Judged {
    let distinct = distinct(ports);
    expect(distinct >= least, || format!("{} queries used only {distinct} ports", ports.len()))
}

pub(super) fn ports_are_several(t: &mut Trial<'_>) -> Judged {
    // "Multiple" means two or more.
    differ(&ports_of_a_crowd(t)?, 2)
}

pub(super) fn ports_are_many(t: &mut Trial<'_>) -> Judged {
    let ports = ports_of_a_queue(t)?;
    differ(&ports, ports.len().div_ceil(2))
}

/// Returns the source ports of the first AAAA queries for 32 names. A server that receives several queries at once may
/// use one port for all of their upstream queries. Each name is therefore queried after the upstream query for the
/// previous name has arrived, so that the result does not depend on the load of the host.
fn ports_of_a_queue(t: &mut Trial<'_>) -> Judged<Vec<u16>> {
    let names: Vec<Name> = (0..32).map(|_| t.name("v4-1-2-3-4.aaaa-delay-400")).collect();
    let Subject { server, patience, .. } = t.subject();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for name in &names {
            let octets = Message::query(name, Rtype::AAAA).octets();
            clients.push(scope.spawn(move || ask::datagram(server, &octets, patience)));
            wait_for_question(t, name)?;
        }
        clients.into_iter().try_for_each(|client| {
            let answered = client.join().expect("query threads do not panic");
            answered.map(drop).map_err(|error| no_socket(&error))
        })
    })?;
    let mut seen = HashSet::new();
    let is_first = |asked: &Asked| {
        asked.qtype == Rtype::AAAA.to_int() && seen.insert(asked.name.to_lowercase())
    };
    let mut first = questions(t, &names)?;
    first.retain(is_first);
    Ok(first.iter().map(|asked| asked.source.port()).collect())
}

/// Waits until the test authoritative server has received a query for `name`, but at most one second. After one second,
/// the query is considered lost.
fn wait_for_question(t: &Trial<'_>, name: &Name) -> Judged {
    const LOST: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    while t.asked(name)?.is_empty() && begin.elapsed() < LOST {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

pub(super) fn ports_are_unpredictable(t: &mut Trial<'_>) -> Judged {
    let (_, questions) = one_after_the_other(t, 32)?;
    cannot_be_guessed(&of_names(&questions, |asked| asked.source.port()))
}

pub(super) fn ids_are_unpredictable(t: &mut Trial<'_>) -> Judged {
    let (_, questions) = one_after_the_other(t, 32)?;
    let ids = of_names(&questions, |asked| asked.id);
    has_no_pattern("id", &ids, 75)?;
    // Each half of the range contains at least one of 32 random IDs, except in one of two billion runs.
    let halves = [false, true].map(|upper| ids.iter().any(|id| (*id >= 0x8000) == upper));
    expect(halves == [true, true], || "all IDs are in one half of the range".into())
}

pub(super) fn ids_are_not_the_clients(t: &mut Trial<'_>) -> Judged {
    let (clients, questions) = one_after_the_other(t, 16)?;
    let copied = questions.iter().filter(|asked| clients.contains(&asked.id)).count();
    // One ID may be the same by chance.
    expect(copied <= 1, || {
        format!("{copied} of {} upstream queries have the ID of a client's query", questions.len())
    })
}

// Records that were not queried.

/// Returns a new name, and a second name that is not queried. Replies to queries for the new name also contain a forged
/// address for the second name.
fn with_victim(t: &mut Trial<'_>, labels: &str) -> Judged<(Name, Name)> {
    let name = t.name(labels);
    let zone = t.subject().zone.ok_or_else(|| Fault::NotTried("there is no zone".into()))?;
    let victim = label::read(&name, zone).and_then(|place| place.behaviour.victim);
    let victim = victim.ok_or_else(|| Fault::NotTried(format!("{labels} has no victim")))?;
    Ok((name, victim))
}

/// Replies of the test authoritative server for names in its zone `b` contain an address for a name in the parent zone.
pub(super) fn out_of_zone_records_are_dropped(t: &mut Trial<'_>) -> Judged {
    let made = t.embedded("1.2.3.4");
    for (record, wanted) in [("v4-1-2-3-4", made), (NATIVE_LABEL, vec![NATIVE])] {
        let (name, victim) = with_victim(t, &format!("alien.{record}.b"))?;
        for qtype in [Rtype::AAAA, Rtype::A] {
            let reply = t.ask(&Message::query(&name, qtype))?;
            is_clean(t, &reply)?;
        }
        let reply = t.ask(&Message::query(&victim, Rtype::AAAA))?;
        expect(!is_poisoned(t, &reply), || format!("the forged address of {victim} was cached"))?;
        reply.has_aaaa(&wanted)?;
        let reply = t.ask(&Message::query(&victim, Rtype::A))?;
        expect(!is_poisoned(t, &reply), || format!("the forged address of {victim} was cached"))?;
    }
    Ok(())
}

pub(super) fn mixed_types_are_dropped(t: &mut Trial<'_>) -> Judged {
    let made = t.embedded("1.2.3.4");
    let only_a = t.name("mixed.v4-1-2-3-4");
    let both = t.name(&format!("mixed.v4-1-2-3-4.{NATIVE_LABEL}"));
    for (name, wanted) in [(only_a, made), (both, vec![NATIVE])] {
        for (qtype, other) in [(Rtype::AAAA, Rtype::A), (Rtype::A, Rtype::AAAA)] {
            let reply = t.ask(&Message::query(&name, qtype))?;
            let found = reply.answers(other).count();
            expect(found == 0, || format!("the answer for {qtype} has {found} {other} records"))?;
            // The server may ignore the upstream's reply.
            if reply.answers(Rtype::AAAA).count() > 0 {
                reply.has_aaaa(&wanted)?;
            }
        }
    }
    Ok(())
}

pub(super) fn letter_case_does_not_matter(t: &mut Trial<'_>) -> Judged {
    let asked = t.name("case.v4-1-2-3-4");
    let wanted = t.embedded("1.2.3.4");
    t.ask(&Message::query(&asked, Rtype::AAAA))?.has_aaaa(&wanted)?;
    let capitals = name(&asked.to_string().to_ascii_uppercase());
    t.ask(&Message::query(&capitals, Rtype::AAAA))?.has_aaaa(&wanted)
}

#[cfg(test)]
mod tests {

    use super::*;

    /// Returns `count` values without a pattern.
    fn random(count: u32) -> Vec<u16> {
        (0..count).map(|n| ((n * n * 40_503) >> 3) as u16).collect()
    }

    /// Returns an AAAA and an A query for each name, with these source ports. The names follow one after the other.
    fn asked_from(ports: &[[u16; 2]]) -> Vec<Asked> {
        let both = |(name, ports): (usize, &[u16; 2])| {
            // The letter case is random for each query.
            [(Rtype::AAAA, 'X', ports[0]), (Rtype::A, 'x', ports[1])].map(
                |(qtype, letter, port)| {
                    Asked::from_port(port, format!("{letter}{name}.example"), qtype)
                },
            )
        };
        ports.iter().enumerate().flat_map(both).collect()
    }

    #[test]
    fn one_random_port_per_client_query_is_accepted() {
        let judge = |ports: &[[u16; 2]]| {
            cannot_be_guessed(&of_names(&asked_from(ports), |asked| asked.source.port()))
        };
        let drawn = random(64);
        let one_each: Vec<[u16; 2]> = drawn[..32].iter().map(|port| [*port; 2]).collect();
        assert_eq!(judge(&one_each), Ok(()));
        let two_each: Vec<[u16; 2]> = drawn.chunks_exact(2).map(|two| [two[0], two[1]]).collect();
        assert_eq!(judge(&two_each), Ok(()));
        // One port for all queries, two alternating ports, and ports that increase by name and by query.
        assert!(judge(&[[4242; 2]; 32]).is_err());
        assert!(judge(&[[4242, 51_000]; 32]).is_err());
        let counted: Vec<[u16; 2]> = (0..32).map(|n| [2000 + 500 * n; 2]).collect();
        assert!(judge(&counted).is_err());
        let counted: Vec<[u16; 2]> = (0..32).map(|n| [2000 + 500 * n, 2250 + 500 * n]).collect();
        assert!(judge(&counted).is_err());
    }

    #[test]
    fn several_ports_are_two_and_many_are_half() {
        assert!(differ(&[4242; 128], 2).is_err());
        let mut ports = [4242; 128];
        ports[64] = 4243;
        assert_eq!(differ(&ports, 2), Ok(()));
        assert!(differ(&ports, 64).is_err());
    }

    #[test]
    fn patterns_are_found() {
        let random = random(64);
        assert_eq!(has_no_pattern("id", &random, 75), Ok(()));
        let counted: Vec<u16> = (0..64).collect();
        assert!(has_no_pattern("id", &counted, 75).is_err());
        assert!(has_no_pattern("id", &[7; 64], 75).is_err());
        assert_eq!(commonest_step(&[1, 4, 7, 65_535]), (3, 2));
    }
}
