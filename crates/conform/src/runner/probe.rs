//! Probes before the first check. They determine the prefixes of the server, whether it resolves the test zone, and
//! whether it validates.

use std::net::{Ipv4Addr, Ipv6Addr};

use domain::base::iana::Rtype;

use super::derive;
use super::error::RunError;
use crate::expected::Prefix;
use crate::message::{Message, Name, Question, Record, name, rcode};
use crate::trial::{Exchange, Fault, Judged, Subject, Trial, rcode_name};

/// The addresses of ipv4only.arpa (RFC 7050 §2.2, RFC 8880 §4).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Result of prefix discovery as specified by RFC 7050.
pub(super) struct Discovery {
    /// Prefixes of the server, in the order of the AAAA records of ipv4only.arpa.
    pub(super) prefixes: Vec<Prefix>,
    /// Addresses in the AAAA records of ipv4only.arpa.
    addresses: Vec<Ipv6Addr>,
    /// Replies to the discovery queries, as text.
    pub(super) reply_text: String,
    /// Discovery queries and their replies.
    pub(super) exchanges: Vec<Exchange>,
}

/// Result of a query.
enum QueryResult {
    Silence,
    /// The received message does not answer the query. The text is the reason.
    Nonsense(String),
    Reply(Message),
}

impl QueryResult {
    fn of(judged: Judged<Option<Message>>, subject: Subject<'_>) -> Result<QueryResult, RunError> {
        match judged {
            Ok(None) => Ok(QueryResult::Silence),
            Ok(Some(reply)) => Ok(QueryResult::Reply(reply)),
            Err(Fault::Silent(_)) => Ok(QueryResult::Silence),
            Err(Fault::Wrong(why)) => Ok(QueryResult::Nonsense(why)),
            Err(Fault::NotTried(reason) | Fault::NotOffered(reason)) => {
                Err(RunError::Unreachable { server: subject.server, reason })
            }
        }
    }

    fn in_words(&self) -> String {
        match self {
            QueryResult::Silence => "no reply".into(),
            QueryResult::Nonsense(why) => why.clone(),
            QueryResult::Reply(reply) => {
                let addresses = addresses(reply);
                if addresses.is_empty() {
                    format!("{} without an address", rcode_name(reply.rcode))
                } else {
                    let all: Vec<String> = addresses.iter().map(Ipv6Addr::to_string).collect();
                    format!("the addresses are {}", all.join(", "))
                }
            }
        }
    }
}

/// Queries the AAAA records of ipv4only.arpa over UDP (RFC 7050 §3). If there is no reply, the query is repeated over
/// UDP and then sent over TCP. If the reply is truncated, the query is also sent over TCP.
///
/// # Errors
/// Returns [`RunError::Silent`] if neither this query nor queries for other names and types get a reply.
pub(super) fn prefixes(subject: Subject<'_>) -> Result<Discovery, RunError> {
    let mut trial = Trial::new(subject);
    let query = || Message::query(&name("ipv4only.arpa"), Rtype::AAAA);
    let mut heard = QueryResult::of(trial.ask_or_silence(&query()), subject)?;
    if matches!(heard, QueryResult::Silence) {
        heard = QueryResult::of(trial.ask_or_silence(&query()), subject)?;
    }
    let wants_tcp = match &heard {
        QueryResult::Silence => true,
        QueryResult::Reply(reply) => reply.flags.tc,
        QueryResult::Nonsense(_) => false,
    };
    if wants_tcp && let Ok(reply) = trial.ask_tcp(&query()) {
        heard = QueryResult::Reply(reply);
    }
    let mut reply_text = heard.in_words();
    if matches!(heard, QueryResult::Silence) {
        let others = other_replies(&mut trial, &query(), subject)?;
        reply_text = format!("no reply over UDP and TCP, while {others}");
    }
    let addresses = match &heard {
        QueryResult::Reply(reply) => addresses(reply),
        _ => Vec::new(),
    };
    let prefixes = prefixes_in(&addresses);
    Ok(Discovery { prefixes, addresses, reply_text, exchanges: trial.into_exchanges() })
}

/// IPv4 addresses of the names that are queried to derive a prefix. All octets are different and non-zero.
const ASYMMETRIC: [Ipv4Addr; 2] = [Ipv4Addr::new(9, 38, 71, 150), Ipv4Addr::new(203, 14, 5, 90)];

/// Derives the prefixes of a server for which discovery by RFC 7050 §3 finds none. The prefixes are derived from the
/// AAAA records of ipv4only.arpa, or from those of two names in the test zone.
pub(super) fn derived(subject: Subject<'_>, found: &Discovery) -> Vec<Prefix> {
    let [first, second] = WELL_KNOWN.map(|v4| (v4, found.addresses.as_slice()));
    let prefixes = derive::nearest(&[first, second]);
    if !prefixes.is_empty() || subject.zone.is_none() {
        return prefixes;
    }
    let mut trial = Trial::new(subject);
    let [first, second] = ASYMMETRIC.map(|v4| {
        let reply = trial.aaaa(&format!("v4-{}", v4.to_string().replace('.', "-")));
        (v4, reply.map(|(_, reply)| addresses(&reply)).unwrap_or_default())
    });
    derive::nearest(&[(first.0, &first.1), (second.0, &second.1)])
}

/// Sends queries for other names and types to a server that did not reply to the query `first`. Returns the replies as
/// text.
///
/// # Errors
/// Returns [`RunError::Silent`] if these queries get no reply either.
fn other_replies(
    trial: &mut Trial<'_>,
    first: &Message,
    subject: Subject<'_>,
) -> Result<String, RunError> {
    let root = Message::query(&Name::root_vec(), Rtype::NS);
    let plain = Message { edns: None, opt_records: 0, ..root.clone() };
    let mut queries = vec![root, plain];
    if subject.zone.is_some() {
        queries.push(Message::query(&trial.name("v4-1-2-3-4"), Rtype::A));
    }
    let replies = trial.ask_all(&queries).or_else(|fault| {
        // If no socket can be opened, the run ends. Any other fault counts as a missing reply.
        QueryResult::of(Err(fault), subject).map(|_| Vec::new())
    })?;
    let mut reply_text = Vec::new();
    for (query, reply) in queries.iter().zip(replies) {
        let rcode = reply.map(|reply| rcode_name(reply.rcode));
        reply_text.extend(rcode.map(|rcode| format!("{} over UDP is {rcode}", described(query))));
    }
    if let Ok(reply) = trial.ask_tcp(&queries[0]) {
        let rcode = rcode_name(reply.rcode);
        reply_text.push(format!("{} over TCP is {rcode}", described(&queries[0])));
    }
    if reply_text.is_empty() {
        let queries: Vec<String> = [first].into_iter().chain(&queries).map(described).collect();
        return Err(RunError::Silent { server: subject.server, queries: queries.join(", ") });
    }
    Ok(reply_text.join(", "))
}

/// Returns a query as text: its name and type, and "without EDNS" if it has no OPT record.
fn described(query: &Message) -> String {
    let question = query.question().map(|question| format!("{} {}", question.name, question.qtype));
    let without = if query.edns.is_none() { " without EDNS" } else { "" };
    format!("{}{without}", question.unwrap_or_default())
}

fn addresses(reply: &Message) -> Vec<Ipv6Addr> {
    reply.answer.iter().filter_map(Record::ipv6).collect()
}

/// Returns the prefixes of addresses that contain 192.0.0.170 or 192.0.0.171 at one of the six positions of RFC 6052
/// §2.2. If an address contains one of these IPv4 addresses at several positions, several prefixes are possible. In
/// this case, a prefix is returned only if both IPv4 addresses were synthesized with it (RFC 7050 §3).
fn prefixes_in(addresses: &[Ipv6Addr]) -> Vec<Prefix> {
    let has_both =
        |prefix: &Prefix| WELL_KNOWN.iter().all(|v4| addresses.contains(&prefix.with(*v4)));
    let mut found: Vec<Prefix> = Vec::new();
    for address in addresses {
        let mut candidate_prefixes = candidate_prefixes(*address);
        if candidate_prefixes.iter().any(has_both) {
            candidate_prefixes.retain(has_both);
        } else if candidate_prefixes.len() > 1 {
            candidate_prefixes.clear();
        }
        for prefix in candidate_prefixes {
            if !found.contains(&prefix) {
                found.push(prefix);
            }
        }
    }
    found
}

/// Returns all prefixes with which this address may have been synthesized from an address of ipv4only.arpa.
fn candidate_prefixes(address: Ipv6Addr) -> Vec<Prefix> {
    let below = |len: u8| {
        WELL_KNOWN.into_iter().find_map(|v4| {
            // The prefix and the suffix together contain all bits of the address except those of the IPv4 address.
            let zero = Prefix::new(Ipv6Addr::UNSPECIFIED, len).ok()?;
            let mask = !u128::from(zero.with(Ipv4Addr::BROADCAST));
            let prefix = Prefix::new((u128::from(address) & mask).into(), len).ok()?;
            (prefix.with(v4) == address).then_some(prefix)
        })
    };
    [32, 40, 48, 56, 64, 96].into_iter().filter_map(below).collect()
}

/// Requires that the server resolves the test zone, with or without EDNS. A missing reply is a failure, and so is a
/// reply without records that has NOERROR, SERVFAIL, NXDOMAIN or REFUSED. All other errors are left to the checks.
///
/// # Errors
/// Returns [`RunError::NoZone`] if the server does not resolve the zone.
pub(super) fn zone(subject: Subject<'_>, zone: &Name) -> Result<(), RunError> {
    const NO_SUCH_ZONE: [u16; 4] =
        [rcode::NOERROR, rcode::SERVFAIL, rcode::NXDOMAIN, rcode::REFUSED];
    let mut trial = Trial::new(subject);
    let mut reply_text = String::new();
    for (qtype, edns) in [(Rtype::A, true), (Rtype::AAAA, true), (Rtype::A, false)] {
        let mut query = Message::query(&trial.name("v4-1-2-3-4"), qtype);
        query.edns = query.edns.filter(|_| edns);
        match QueryResult::of(trial.ask_or_silence(&query), subject)? {
            QueryResult::Reply(reply)
                if reply.flags.tc
                    || reply.answers(qtype).next().is_some()
                    || !NO_SUCH_ZONE.contains(&reply.rcode) =>
            {
                return check_view(subject, query.question());
            }
            QueryResult::Nonsense(_) => return check_view(subject, query.question()),
            heard => reply_text = heard.in_words(),
        }
    }
    Err(RunError::NoZone { server: subject.server, zone: zone.clone(), came: reply_text })
}

/// Checks that the query log belongs to the test authoritative server that the server under test queries. The log must
/// contain the name for which the server has just sent an answer. With a different log, many faults would go unnoticed.
///
/// # Errors
/// Returns [`RunError::OtherView`] if the log lacks the name.
fn check_view(subject: Subject<'_>, question: Option<&Question>) -> Result<(), RunError> {
    let (Some(view), Some(question)) = (subject.view, question) else { return Ok(()) };
    let name = question.name.clone();
    match view.asked(&name) {
        Ok(asked) if asked.is_empty() => Err(RunError::OtherView { name }),
        Ok(_) => Ok(()),
        Err(error) => Err(RunError::NoView { reason: error.to_string() }),
    }
}

/// Returns true if the server validates with the keys of the test authoritative server as trust anchors.
///
/// A validating server replies with SERVFAIL if signatures do not verify and the query lacks CD. It sets AD if
/// signatures are correct (RFC 4035 §3.2). Returns `None` if the replies are neither those of a validating server nor
/// those of a server that does not validate, or if there is no reply.
pub(super) fn validation(subject: Subject<'_>) -> Option<bool> {
    let mut trial = Trial::new(subject);
    let bogus = "v6-20010db8000000000000000000000001.bogus";
    let checked = query_with_retry(&mut trial, bogus, Rtype::AAAA, |_| {})?;
    let unchecked =
        query_with_retry(&mut trial, bogus, Rtype::AAAA, |query| query.flags.cd = true)?;
    // A client requests AD in the reply by setting AD or DO in the query (RFC 6840 §5.8). Older servers support DO only
    // (RFC 4035 §3.2.3).
    let secure = query_with_retry(&mut trial, "v4-1-2-3-4.secure", Rtype::A, |query| {
        query.flags.ad = true;
        query.edns.iter_mut().for_each(|edns| edns.dnssec_ok = true);
    })?;
    let refuses = checked.rcode == rcode::SERVFAIL;
    match (refuses, unchecked.rcode == rcode::SERVFAIL, secure.flags.ad) {
        (true, false, true) => Some(true),
        (false, _, false) => Some(false),
        _ => None,
    }
}

/// Sends a query for a new name. If there is no reply, sends a query for a second new name.
fn query_with_retry(
    trial: &mut Trial<'_>,
    labels: &str,
    qtype: Rtype,
    change: fn(&mut Message),
) -> Option<Message> {
    (0..2).find_map(|_| {
        let mut query = Message::query(&trial.name(labels), qtype);
        change(&mut query);
        trial.ask(&query).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the prefixes that RFC 7050 §3 finds in these addresses.
    fn found(addresses: &[&str]) -> Vec<String> {
        let addresses: Vec<Ipv6Addr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        prefixes_in(&addresses).iter().map(Prefix::to_string).collect()
    }

    #[test]
    fn all_lengths_are_found() {
        for text in [
            "3fff:64::/32",
            "3fff:64:6400::/40",
            "3fff:64:64::/48",
            "3fff:64:64:6400::/56",
            "3fff:64:64:64::/64",
            "3fff:64:64:64:64::/96",
            "64:ff9b::/96",
        ] {
            let prefix: Prefix = text.parse().unwrap();
            let both = WELL_KNOWN.map(|v4| prefix.with(v4).to_string());
            assert_eq!(found(&[&both[0], &both[1]]), [text]);
            assert_eq!(found(&[&both[1]]), [text], "one address is enough");
        }
        assert!(found(&["2001:db8::1", "64:ff9b::192.0.0.172"]).is_empty());
        assert!(found(&[]).is_empty());
    }

    #[test]
    fn several_prefixes_keep_the_order_of_the_records() {
        let addresses =
            ["3fff::192.0.0.171", "64:ff9b::c000:ab", "3fff::192.0.0.170", "64:ff9b::c000:aa"];
        assert_eq!(found(&addresses), ["3fff::/96", "64:ff9b::/96"]);
    }

    #[test]
    fn ambiguous_prefix_is_resolved_by_both_addresses() {
        let holds = ["2001:db8:c000:aa::192.0.0.170", "2001:db8:c000:aa::192.0.0.171"];
        assert_eq!(found(&holds), ["2001:db8:c000:aa::/96"]);
        assert!(found(&holds[..1]).is_empty(), "alone it may be either");
    }
}
