//! Conversion of the octets of a client query to the octets of the reply. This module handles malformed queries, EDNS,
//! flags, letter case, and message size.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use conform::message::{Flags, Message, PAYLOAD, rcode};
use domain::base::iana::{Class, Rtype};

use crate::cache::all_records;
use crate::cookies::{self, BADCOOKIE, Cookies};
use crate::resolver::{Outcome, QueryBits, Resolver};
use crate::rules::Hooks;

/// Time limit for an answer. The limit is below the 5 s for which a stub resolver waits.
const TOTAL: Duration = Duration::from_millis(4300);
/// Maximum length of a message in octets (RFC 1035 §4.2.2).
const LARGEST: usize = 65_535;
/// Length of a DNS header, in octets.
const HEADER: usize = 12;

/// Component that parses client queries and composes the replies.
pub(super) struct Front {
    pub(super) resolver: Resolver,
    pub(super) hooks: Hooks,
    pub(super) cookies: Cookies,
    /// True after a simulated crash.
    pub(super) is_dead: AtomicBool,
}

impl Front {
    /// Returns the octets of the reply to a client query, or `None` if the client gets no reply.
    pub(super) fn respond(
        &self,
        mut octets: Vec<u8>,
        client: IpAddr,
        tcp: bool,
    ) -> Option<Vec<u8>> {
        let by = Instant::now() + TOTAL;
        if let Some(hook) = self.hooks.arrives {
            hook(&mut octets);
        }
        if self.hooks.dies.is_some_and(|deadly| deadly(&octets)) {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        if self.is_dead.load(Ordering::Relaxed) {
            return None;
        }
        let (mut query, is_malformed) = read(&octets)?;
        if let Some(hook) = self.hooks.query {
            hook(&mut query);
        }
        let mut reply = match refusal(&query, is_malformed) {
            // NOERROR means that the query has no question, and only requests a server cookie (RFC 7873 §5.4).
            Some(rcode::NOERROR) if self.cookies.has_invalid(&query, client) => {
                refused(&query, BADCOOKIE)
            }
            Some(code) => refused(&query, code),
            None => self.answered(&query, by),
        };
        if let Some(edns) = &mut reply.edns {
            edns.options.extend(self.cookies.answer(&query, client));
        }
        if let Some(hook) = self.hooks.reply {
            hook(&query, &mut reply);
        }
        let limit = if tcp || !self.resolver.rules.truncates { LARGEST } else { room(&query) };
        let mut octets = cut_to(reply, limit);
        if let Some(hook) = self.hooks.leaves {
            hook(&mut octets);
        }
        if let Some(hook) = self.hooks.leaves_tcp.filter(|_| tcp) {
            hook(&mut octets);
        }
        (!octets.is_empty()).then_some(octets)
    }

    fn answered(&self, query: &Message, by: Instant) -> Message {
        let mut reply = query.response();
        let Some(question) = query.question() else { return reply };
        let dnssec_ok = query.edns.as_ref().is_some_and(|edns| edns.dnssec_ok);
        let Flags { cd, ad, .. } = query.flags;
        let outcome = self.resolver.answer(question, QueryBits { dnssec_ok, cd, ad, by });
        let Outcome { rcode, aa, ad, answer, authority, additional, errors } = outcome;
        reply.flags = Flags { aa, ad, ra: true, ..reply.flags };
        (reply.rcode, reply.answer) = (rcode, answer);
        (reply.authority, reply.additional) = (authority, additional);
        for record in all_records(&mut reply).filter(|record| record.owner == question.name) {
            record.owner = question.name.clone();
        }
        if let Some(edns) = &mut reply.edns {
            edns.options = errors;
        }
        reply
    }
}

/// Returns the query, and true if the query is malformed. If the query is malformed, the returned message may consist
/// of the header only. Returns `None` for responses and for messages that are shorter than a header, because both are
/// ignored.
fn read(octets: &[u8]) -> Option<(Message, bool)> {
    if octets.len() < HEADER {
        return None;
    }
    let header = || {
        let mut alone = octets[..HEADER].to_vec();
        // The counts are zero, because no records follow.
        alone[4..].fill(0);
        Message::parse(&alone).ok().map(|query| (query, true))
    };
    let read = Message::parse(octets).map(|query| {
        let opt = domain::base::Message::from_octets(octets).ok().and_then(|m| m.opt().map(drop));
        let is_malformed = query.opt_records == 1 && opt.is_none();
        (query, is_malformed)
    });
    read.ok().or_else(header).filter(|(query, _)| !query.flags.qr)
}

/// Returns the RCODE of the reply if the query gets a reply without records. The RCODE is an error, or NOERROR if the
/// client only requests a server cookie (RFC 7873 §5.4).
fn refusal(query: &Message, is_malformed: bool) -> Option<u16> {
    if query.opcode != 0 {
        return Some(rcode::NOTIMP);
    }
    // RFC 6891 §6.1.1: one OPT record at most. RFC 9619: one question.
    if is_malformed || query.opt_records > 1 || cookies::is_malformed(query) {
        return Some(rcode::FORMERR);
    }
    if query.edns.as_ref().is_some_and(|edns| edns.version > 0) {
        return Some(rcode::BADVERS);
    }
    let Some(question) = query.question() else {
        let asks_for_cookie = query.questions.is_empty() && cookies::parts(query).is_some();
        return Some(if asks_for_cookie { rcode::NOERROR } else { rcode::FORMERR });
    };
    match question.qtype {
        _ if question.class != Class::IN => Some(rcode::REFUSED),
        // Without RD there is no recursion, and the contents of the cache are not revealed (RFC 1034 §4.3.1).
        _ if !query.flags.rd && question.name != conform::message::name("ipv4only.arpa") => {
            Some(rcode::REFUSED)
        }
        Rtype::OPT => Some(rcode::FORMERR),
        Rtype::AXFR | Rtype::IXFR => Some(rcode::REFUSED),
        Rtype::ANY => None,
        // RFC 6895 §3.1: 128 to 255 are meta-types.
        other => (128..=255).contains(&other.to_int()).then_some(rcode::NOTIMP),
    }
}

fn refused(query: &Message, code: u16) -> Message {
    let mut reply = query.response();
    reply.rcode = code;
    reply.flags.ra = true;
    if query.questions.len() > 1 {
        reply.questions.clear();
    }
    reply
}

/// Returns the maximum size of a reply over UDP in octets (RFC 6891 §6.2.3), which is at most [`PAYLOAD`].
fn room(query: &Message) -> usize {
    usize::from(query.edns.as_ref().map_or(512, |edns| edns.payload.clamp(512, PAYLOAD)))
}

/// Composes the reply in at most `limit` octets. RRsets that do not fit are omitted completely. TC is set if any
/// omitted RRset was a required part of the reply (RFC 2181 §9).
fn cut_to(mut reply: Message, limit: usize) -> Vec<u8> {
    let mut octets = reply.octets();
    if octets.len() > limit && !reply.additional.is_empty() {
        reply.additional.clear();
        octets = reply.octets();
    }
    while octets.len() > limit {
        let dnssec_ok = reply.edns.as_ref().is_some_and(|edns| edns.dnssec_ok);
        if !reply.authority.is_empty() {
            // The authority section is required if the answer section is empty, or if the client set DO.
            reply.flags.tc = reply.answer.is_empty() || dnssec_ok;
            reply.authority.clear();
        } else if let Some(last) = reply.answer.pop() {
            reply.flags.tc = true;
            let same = |record: &conform::message::Record| {
                record.owner == last.owner && record.rtype == last.rtype
            };
            while reply.answer.pop_if(|record| same(record)).is_some() {}
        } else {
            break;
        }
        octets = reply.octets();
    }
    octets
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use conform::message::{Edns, Question, Record, name};

    fn query() -> Message {
        Message::query(&name("x.example"), Rtype::AAAA)
    }

    fn refuses(change: impl Fn(&mut Message)) -> Option<u16> {
        let mut query = query();
        change(&mut query);
        let (query, is_malformed) = read(&query.octets()).unwrap();
        refusal(&query, is_malformed)
    }

    #[test]
    fn queries_without_an_answer() {
        let asks = |qtype| refuses(|query| query.questions[0].qtype = qtype);
        assert_eq!(refuses(|_| {}), None);
        assert_eq!(asks(Rtype::ANY), None);
        assert_eq!(asks(Rtype::from_int(65_280)), None);
        assert_eq!(asks(Rtype::TSIG), Some(rcode::NOTIMP));
        assert_eq!(asks(Rtype::AXFR), Some(rcode::REFUSED));
        assert_eq!(asks(Rtype::OPT), Some(rcode::FORMERR));
        assert_eq!(refuses(|query| query.opcode = 5), Some(rcode::NOTIMP));
        assert_eq!(refuses(|query| query.questions.clear()), Some(rcode::FORMERR));
        assert_eq!(refuses(|query| query.questions[0].class = Class::CH), Some(rcode::REFUSED));
        assert_eq!(refuses(|query| query.flags.rd = false), Some(rcode::REFUSED));
        let version =
            |query: &mut Message| query.edns = Some(Edns { version: 1, ..Edns::default() });
        assert_eq!(refuses(version), Some(rcode::BADVERS));
        let twice = |query: &mut Message| {
            let again = Question { qtype: Rtype::A, ..query.questions[0].clone() };
            query.questions.push(again);
        };
        assert_eq!(refuses(twice), Some(rcode::FORMERR));
    }

    #[test]
    fn malformed_and_ignored_messages() {
        let whole = query().octets();
        assert_eq!(read(&whole[..11]), None);
        assert_eq!(read(&query().response().octets()), None);
        let (header, is_malformed) = read(&whole[..whole.len() - 1]).unwrap();
        assert!(is_malformed && header.questions.is_empty() && header.flags.rd);
        // An option that is longer than the OPT record.
        let mut option = query();
        option.edns.as_mut().unwrap().options.push((65_001, vec![0; 4]));
        let mut octets = option.octets();
        let at = octets.len() - 5;
        octets[at] = 9;
        assert!(read(&octets).unwrap().1);
        // Two OPT records.
        let mut octets = whole.clone();
        octets.extend_from_slice(&whole[whole.len() - 11..]);
        octets[11] = 2;
        let (query, is_malformed) = read(&octets).unwrap();
        assert_eq!(refusal(&query, is_malformed), Some(rcode::FORMERR));
        assert!(refused(&query, rcode::FORMERR).edns.is_some());
    }

    #[test]
    fn rfc_6891_6_2_3_room() {
        for (payload, expected) in [(0, 512), (511, 512), (600, 600), (1232, 1232), (4096, 1232)] {
            let edns = Some(Edns { payload, ..Edns::default() });
            assert_eq!(room(&Message { edns, ..query() }), expected);
        }
        assert_eq!(room(&Message { edns: None, ..query() }), 512);
    }

    #[test]
    fn rfc_2181_9_whole_rrsets_are_left_out() {
        let mut reply = query().response();
        let owner = || name("y.example");
        reply.answer.push(Record::pointing(name("x.example"), Rtype::CNAME, 1, &owner()));
        let address = |n| Record::a(owner(), 1, Ipv4Addr::from(n));
        reply.answer.extend((0..50).map(address));
        let cut = Message::parse(&cut_to(reply.clone(), 512)).unwrap();
        assert!(cut.flags.tc);
        assert_eq!(cut.answer, reply.answer[..1]);
        assert_eq!(cut_to(reply.clone(), LARGEST), reply.octets());
        // Records of the additional section may be missing without TC.
        let mut reply = query().response();
        reply.answer.push(address(1));
        reply.additional.extend((0..50).map(address));
        let cut = Message::parse(&cut_to(reply.clone(), 512)).unwrap();
        assert!(!cut.flags.tc && cut.additional.is_empty());
        assert_eq!(cut.answer, reply.answer);
    }
}
