//! Scripts: DNS cookies (RFC 7873, RFC 9018). For a server that does not support cookies, the verdict is `NotOffered`
//! (feature not supported).

use std::ops::RangeInclusive;

use super::common::{is_answered, query};
use crate::message::{Message, rcode};
use crate::trial::{Fault, Judge, Judged, Trial, expect, rcode_name};

/// EDNS option code of the COOKIE option (RFC 7873 §4).
const COOKIE: u16 = 10;
/// RCODE for an invalid server cookie (RFC 7873 §8).
const BADCOOKIE: u16 = 23;
/// Allowed lengths of a server cookie, in octets (RFC 7873 §4).
const SERVER: RangeInclusive<usize> = 8..=32;

/// A client cookie, and the server cookie that the server returned for this client cookie.
struct Pair {
    client: [u8; 8],
    server: Vec<u8>,
}

impl Pair {
    /// Returns the content of the COOKIE option.
    fn content(&self) -> Vec<u8> {
        [&self.client[..], &self.server].concat()
    }
}

/// Adds a COOKIE option to a query.
fn with_cookie(query: Message, content: &[u8]) -> Message {
    let mut query = query;
    query.edns.iter_mut().for_each(|edns| edns.options.push((COOKIE, content.to_vec())));
    query
}

/// Returns the content of a reply's COOKIE option.
fn cookie(reply: &Message) -> Option<&[u8]> {
    let mut options = reply.edns.iter().flat_map(|edns| &edns.options);
    options.find(|(code, _)| *code == COOKIE).map(|(_, content)| content.as_slice())
}

/// Requires that the COOKIE option of a reply consists of the client cookie of the query and a server cookie. Returns
/// the server cookie.
fn server_cookie(reply: &Message, client: [u8; 8]) -> Judged<Vec<u8>> {
    let wrong = |what: &str| Fault::Wrong(what.into());
    let content = cookie(reply).ok_or_else(|| wrong("the reply has no COOKIE option"))?;
    let server = content
        .strip_prefix(&client)
        .ok_or_else(|| wrong("the COOKIE option does not begin with the query's client cookie"))?;
    expect(SERVER.contains(&server.len()), || {
        format!("the server cookie has {} octets, not 8 to 32", server.len())
    })?;
    Ok(server.to_vec())
}

/// Sends a query with a new client cookie and without a server cookie. Returns the client cookie, and the server cookie
/// of the reply.
fn obtain(t: &mut Trial<'_>) -> Judged<Pair> {
    let client: [u8; 8] = rand::random();
    let query = with_cookie(query(t), &client);
    let reply = t.ask(&query)?;
    if cookie(&reply).is_none() {
        return Err(Fault::NotOffered("the server does not implement DNS cookies".into()));
    }
    Ok(Pair { client, server: server_cookie(&reply, client)? })
}

pub(super) fn server_cookie_is_sent(t: &mut Trial<'_>) -> Judged {
    obtain(t).map(drop)
}

/// Requests a server cookie in the same way as [`obtain`]. If the reply has no server cookie, returns
/// [`Fault::NotOffered`] (feature not supported). The missing cookie counts as a fault only in the check
/// [`server_cookie_is_sent`].
fn obtained(t: &mut Trial<'_>) -> Judged<Pair> {
    obtain(t).map_err(|fault| match fault {
        Fault::Wrong(_) => Fault::NotOffered("the server sends no server cookies".into()),
        other => other,
    })
}

pub(super) fn valid_cookie_is_accepted(t: &mut Trial<'_>) -> Judged {
    let pair = obtained(t)?;
    let query = with_cookie(query(t), &pair.content());
    let reply = t.ask(&query)?;
    is_answered(&reply)?;
    server_cookie(&reply, pair.client).map(drop)
}

/// Returns invalid cookies, each with a description of the error. The version, timestamp or hash of the server cookie
/// is altered (RFC 9018 §4), or the server cookie belongs to a different client cookie.
fn invalid(pair: &Pair) -> Vec<(String, Pair)> {
    let last = pair.server.len() - 1;
    let mut all: Vec<(String, Pair)> = [0, 7, last]
        .map(|at| {
            let mut server = pair.server.clone();
            server[at] ^= 0x10;
            (format!("octet {at} changed"), Pair { server, ..*pair })
        })
        .into();
    let mut client = pair.client;
    client[0] ^= 1;
    all.push(("another client cookie".into(), Pair { client, server: pair.server.clone() }));
    all
}

/// Sends queries with an invalid server cookie. The server may send no reply, BADCOOKIE, or an answer. A reply must
/// contain a new server cookie.
pub(super) fn invalid_cookie_is_replaced(t: &mut Trial<'_>) -> Judged {
    let pair = obtained(t)?;
    for (what, wrong) in invalid(&pair) {
        let query = with_cookie(query(t), &wrong.content());
        let Some(reply) = t.ask_or_silence(&query)? else { continue };
        let server = server_cookie(&reply, wrong.client)?;
        expect(server != wrong.server, || {
            format!("the reply repeats an invalid server cookie ({what}) as if it were valid")
        })?;
    }
    Ok(())
}

/// Returns a query without a question, with a COOKIE option that has this content.
fn without_question(t: &mut Trial<'_>, content: &[u8]) -> Message {
    with_cookie(Message { questions: Vec::new(), ..query(t) }, content)
}

pub(super) fn cookie_is_sent_without_question(t: &mut Trial<'_>) -> Judged {
    obtained(t)?;
    let client: [u8; 8] = rand::random();
    let query = without_question(t, &client);
    let reply = t.ask(&query)?;
    reply.has_rcode(rcode::NOERROR)?;
    expect(reply.answer.is_empty(), || "there are records in the answer".into())?;
    server_cookie(&reply, client).map(drop)
}

pub(super) fn cookies_are_confirmed(t: &mut Trial<'_>) -> Judged {
    let pair = obtained(t)?;
    let query = without_question(t, &pair.content());
    t.ask(&query)?.has_rcode(rcode::NOERROR)?;
    for (what, wrong) in invalid(&pair) {
        let query = without_question(t, &wrong.content());
        let reply = t.ask(&query)?;
        expect(reply.rcode == BADCOOKIE, || {
            let rcode = rcode_name(reply.rcode);
            format!("an invalid server cookie ({what}) is {rcode}, not BADCOOKIE")
        })?;
    }
    Ok(())
}

pub(super) fn odd_lengths_are_format_errors(t: &mut Trial<'_>) -> Judged {
    obtained(t)?;
    for len in [0, 7, 9, 15, 41] {
        let query = with_cookie(query(t), &vec![7; len]);
        let reply = t.ask(&query)?;
        expect(reply.rcode == rcode::FORMERR, || {
            format!("a COOKIE option of {len} octets is {}", rcode_name(reply.rcode))
        })?;
    }
    Ok(())
}
