//! Conversion of a query into the messages that are sent in reply, with their send times. The module uses neither
//! sockets nor a clock, so that table-driven tests can cover it.
//!
//! The aliases of the queried name are followed to the last name. The reply is built from the records of all these
//! names, and from the labels that apply to the reply as a whole. A label can define a special treatment ([`Fate`]) of
//! the query, such as a delay of the reply. A label for an RCODE or NODATA ends the chain of aliases. Other treatments
//! determine how the reply is sent; only the first of them in the chain of aliases applies.

use std::time::Duration;

use domain::base::ToName;
use domain::base::iana::Rtype;
use domain::base::name::{Label, ToLabelIter};

use super::denial::{Chain, Denial};
use super::node::{Node, alias_records};
use super::zones::Zones;
use crate::label::{Alias, Behaviour, EVIL4, EVIL6, Fate, Forgery, TTL};
use crate::message::{Message, Name, PAYLOAD, Question, Record, rcode};

/// Time between a forged reply and the correct reply that follows it.
const AFTER_FORGERY: Duration = Duration::from_millis(100);
/// Maximum delay of a reply. Longer delays are reduced to this value.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// Maximum length of a UDP message, in octets, for a client that sends no OPT record (RFC 1035 §2.3.4).
const PLAIN_PAYLOAD: u16 = 512;
/// EDNS option code of an extended DNS error (RFC 8914 §2).
const EDE: u16 = 15;

/// One message that is sent in reply to a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sending {
    /// Delay between the query and this message.
    pub(super) after: Duration,
    /// The message in wire format. Its length is within the limit of the transport.
    pub(super) octets: Vec<u8>,
    /// True if the message is sent from a port other than the one that received the query.
    pub(super) other_port: bool,
}

/// Returns the messages that are sent in reply to a query. The list is empty if there is no reply.
pub(super) fn answer(zones: &Zones, query: &Message, tcp: bool) -> Vec<Sending> {
    let limit = match &query.edns {
        _ if tcp => u16::MAX,
        Some(edns) => edns.payload.clamp(PLAIN_PAYLOAD, PAYLOAD),
        None => PLAIN_PAYLOAD,
    };
    let send = |after, octets| vec![Sending { after, octets, other_port: false }];
    let refuse = |rcode| send(Duration::ZERO, Message { rcode, ..query.response() }.octets());
    let question = match question(query) {
        Ok(question) => question,
        Err(rcode) => return refuse(rcode),
    };
    let walk = Walk::of(zones, query, question);
    let octets = fit(&walk.reply, walk.odd_case, limit);
    match walk.fate {
        Some(Fate::Silent) => Vec::new(),
        Some(Fate::TcpOnly) if !tcp => Vec::new(),
        Some(Fate::Truncated) if !tcp => send(Duration::ZERO, truncated(&walk.reply).octets()),
        Some(Fate::NoEdns) if query.edns.is_some() => {
            let reply = Message { rcode: rcode::FORMERR, edns: None, ..query.response() };
            send(Duration::ZERO, reply.octets())
        }
        Some(Fate::Delay(after)) => send(after.min(LONGEST_DELAY), octets),
        Some(Fate::Forged(forgery)) if !tcp => vec![
            Sending {
                after: Duration::ZERO,
                octets: forged(zones, query, question, forgery).octets(),
                other_port: forgery == Forgery::Port,
            },
            Sending { after: AFTER_FORGERY, octets, other_port: false },
        ],
        _ => send(Duration::ZERO, octets),
    }
}

/// Returns the question of a query, or an error RCODE if the query cannot be answered.
fn question(query: &Message) -> Result<&Question, u16> {
    match query.question() {
        _ if query.opcode != 0 => Err(rcode::NOTIMP),
        _ if query.edns.as_ref().is_some_and(|edns| edns.version > 0) => Err(rcode::BADVERS),
        _ if query.opt_records > 1 => Err(rcode::FORMERR),
        None => Err(rcode::FORMERR),
        Some(question) if question.class != domain::base::iana::Class::IN => Err(rcode::REFUSED),
        Some(question) => Ok(question),
    }
}

/// The reply under construction.
struct Walk<'a> {
    zones: &'a Zones,
    qtype: Rtype,
    dnssec_ok: bool,
    reply: Message,
    fate: Option<Fate>,
    odd_case: bool,
    victims: Vec<Name>,
}

impl<'a> Walk<'a> {
    fn of(zones: &'a Zones, query: &Message, question: &Question) -> Walk<'a> {
        let mut reply = query.response();
        (reply.flags.aa, reply.flags.ra) = (true, true);
        let mut walk = Walk {
            zones,
            qtype: question.qtype,
            dnssec_ok: query.edns.as_ref().is_some_and(|edns| edns.dnssec_ok),
            reply,
            fate: None,
            odd_case: false,
            victims: Vec::new(),
        };
        let mut name = question.name.clone();
        name.make_canonical();
        walk.follow(name);
        walk.add_unqueried_addresses();
        walk
    }

    /// Follows the aliases from name to name. Stops at a name that is no alias, or has a label for an RCODE or NODATA.
    /// Also stops at an alias if the queried type is CNAME or ANY, if the alias has the label `half`, or if its target
    /// is an earlier name.
    fn follow(&mut self, mut name: Name) {
        let mut seen = Vec::new();
        loop {
            let node = self.zones.node(&name, self.qtype);
            self.add_behaviour(&node.behaviour);
            match node.behaviour.fate(self.qtype) {
                Some(Fate::Rcode(code)) => return self.fail(code, &node, &name),
                Some(Fate::NoData) => {
                    return self.deny(&Denial::NoData(&node.types()), &node, &name);
                }
                fate => self.fate = self.fate.or(fate),
            }
            let Some(alias) = &node.behaviour.alias else { return self.end(&node, &name) };
            self.add_alias(alias, &node, &name);
            let target = alias.target().clone();
            seen.push(name);
            // If the query asks for the alias itself, the alias is not followed (RFC 1034 §3.6.2).
            let is_asked_for = [Rtype::CNAME, Rtype::ANY].contains(&self.qtype);
            if is_asked_for || node.behaviour.half || seen.contains(&target) {
                return;
            }
            name = target;
        }
    }

    /// Applies the labels of a name that concern the reply as a whole, such as those for the AD bit and the letter
    /// case.
    fn add_behaviour(&mut self, behaviour: &Behaviour) {
        self.reply.flags.ad |= behaviour.ad;
        self.odd_case |= behaviour.odd_case;
        self.victims.extend(behaviour.victim.clone());
        if let (Some(code), Some(edns)) = (behaviour.ede, &mut self.reply.edns) {
            edns.options.push((EDE, code.to_be_bytes().to_vec()));
        }
    }

    fn fail(&mut self, code: u16, node: &Node, name: &Name) {
        self.reply.rcode = code;
        if code == rcode::NXDOMAIN {
            self.deny(&Denial::NoName, node, name);
        } else {
            self.reply.answer.clear();
            self.reply.authority.clear();
        }
    }

    fn add_alias(&mut self, alias: &Alias, node: &Node, name: &Name) {
        let (own, follows) = alias_records(name, alias, node.behaviour.ttl);
        // The DNAME record has a different owner, so it does not come from the wildcard of this name.
        let wildcard = follows.is_empty().then_some(node.behaviour.wildcard.as_ref()).flatten();
        let own = self.with_signatures(own, node, wildcard);
        self.reply.answer.extend(own.into_iter().chain(follows));
        if wildcard.is_some() {
            self.prove(&Denial::Expanded, node, name);
        }
    }

    /// Adds the records of the last name in the alias chain, or a negative answer if that name has no records of the
    /// queried type.
    fn end(&mut self, node: &Node, name: &Name) {
        let other = match self.qtype {
            Rtype::A if node.behaviour.mixed => Some(Rtype::AAAA),
            Rtype::AAAA if node.behaviour.mixed => Some(Rtype::A),
            _ => None,
        };
        let of = |wanted: Option<Rtype>| {
            let is_wanted = move |rtype| wanted == Some(rtype) || wanted == Some(Rtype::ANY);
            node.records.iter().filter(move |record| is_wanted(record.rtype)).cloned()
        };
        let mut found: Vec<Record> = of(Some(self.qtype)).collect();
        if found.is_empty() {
            self.deny(&Denial::NoData(&node.types()), node, name);
        }
        found.extend(of(other));
        if !found.is_empty() && node.behaviour.wildcard.is_some() {
            self.prove(&Denial::Expanded, node, name);
        }
        let found = self.with_signatures(found, node, node.behaviour.wildcard.as_ref());
        self.reply.answer.extend(found);
        self.add_host(node);
    }

    /// Adds address records of the host that is named in the answer, for example in an MX record (RFC 1035 §3.3.9) or
    /// SRV record (RFC 2782).
    fn add_host(&mut self, node: &Node) {
        let Some((rtype, host)) = &node.behaviour.host else { return };
        if *rtype == self.qtype {
            let host = self.zones.node(host, Rtype::A);
            let addresses = host.records.iter().filter(|record| record.rtype == Rtype::A);
            let addresses = self.with_signatures(addresses.cloned().collect(), &host, None);
            self.reply.additional.extend(addresses);
        }
    }

    /// Adds the SOA record of a negative answer (RFC 2308 §2) and, if the zone is signed, the proof that the data does
    /// not exist.
    fn deny(&mut self, denial: &Denial<'_>, node: &Node, name: &Name) {
        let soa =
            node.behaviour.soa.map(|(ttl, min)| Record::soa(&owner_of_soa(name, node), ttl, min));
        let soa = self.with_signatures(soa.into_iter().collect(), node, None);
        self.reply.authority.extend(soa);
        self.prove(denial, node, name);
    }

    fn prove(&mut self, denial: &Denial<'_>, node: &Node, name: &Name) {
        if self.dnssec_ok && node.tree.is_signed() {
            let ttl = node.behaviour.soa.map_or(TTL, |(ttl, min)| ttl.min(min));
            let chain = Chain { tree: node.tree, apex: &node.apex, ttl };
            let records = chain.prove(denial, name, node.behaviour.wildcard.as_ref());
            let records = self.with_signatures(records, node, None);
            self.reply.authority.extend(records);
        }
    }

    /// Returns the records. If the zone is signed and DO is set, each RRset is followed by its signature (RFC 4035
    /// §3.1.1). The records of an RRset must be adjacent.
    fn with_signatures(
        &self,
        records: Vec<Record>,
        node: &Node,
        wildcard: Option<&Name>,
    ) -> Vec<Record> {
        if !self.dnssec_ok || !node.tree.is_signed() {
            return records;
        }
        let rrsets = records.chunk_by(|a, b| (a.rtype, &a.owner) == (b.rtype, &b.owner));
        let signed = rrsets.flat_map(|rrset| {
            rrset.iter().cloned().chain(self.zones.keys.sign(node.tree, rrset, wildcard))
        });
        signed.collect()
    }

    /// Adds forged address records, which are owned by names that were not queried.
    fn add_unqueried_addresses(&mut self) {
        if self.reply.rcode == rcode::NOERROR {
            let evil = self.victims.iter().filter_map(|victim| evil(victim, self.qtype));
            self.reply.answer.extend(evil);
        }
    }
}

/// Returns the forged record for a question of type A or AAAA.
fn evil(name: &Name, qtype: Rtype) -> Option<Record> {
    match qtype {
        Rtype::A => Some(Record::a(name.clone(), TTL, EVIL4)),
        Rtype::AAAA => Some(Record::aaaa(name.clone(), TTL, EVIL6)),
        _ => None,
    }
}

/// Returns a forged reply. Its records are always owned by the queried name. If the question is forged, the question is
/// therefore the only sign of the forgery.
fn forged(zones: &Zones, query: &Message, question: &Question, forgery: Forgery) -> Message {
    let mut reply = query.response();
    (reply.flags.aa, reply.flags.ra) = (true, true);
    reply.answer.extend(evil(&question.name, question.qtype));
    match forgery {
        Forgery::Id => reply.id = !reply.id,
        Forgery::Port => {}
        Forgery::Question => {
            reply.questions = vec![Question { name: zones.zone.clone(), ..question.clone() }];
        }
    }
    reply
}

/// Returns the owner of the SOA record in a negative answer for `name`. If the zone is unsigned and `name` contains a
/// `soa-` label, the owner is the part of `name` that begins with this label. Otherwise the owner is the apex. A server
/// that caches one SOA record per owner therefore caches the SOA records of different `soa-` labels separately.
fn owner_of_soa(name: &Name, node: &Node) -> Name {
    let is_label = |label: &Label| label.as_slice().to_ascii_lowercase().starts_with(b"soa-");
    let begins = |suffix: &Name| suffix.iter_labels().next().is_some_and(is_label);
    let mut suffixes = name.iter_suffixes().map(|suffix| suffix.to_name());
    let own = suffixes.find(begins).filter(|_| !node.tree.is_signed());
    own.unwrap_or_else(|| node.apex.clone())
}

/// Returns the reply with TC set and without records (RFC 2181 §9).
fn truncated(reply: &Message) -> Message {
    let mut truncated = bare(reply);
    truncated.flags.tc = true;
    truncated
}

fn bare(reply: &Message) -> Message {
    let (answer, authority, additional) = (Vec::new(), Vec::new(), Vec::new());
    Message { answer, authority, additional, ..reply.clone() }
}

/// Returns the reply in wire format, in at most `limit` octets. If the reply is too long, its additional section is
/// omitted without setting TC (RFC 2181 §9). If the reply is still too long, a reply with TC set and without records is
/// returned.
fn fit(reply: &Message, odd_case: bool, limit: u16) -> Vec<u8> {
    let wire = |reply: &Message| if odd_case { uncompressed(reply) } else { reply.octets() };
    let fits = |octets: &Vec<u8>| octets.len() <= usize::from(limit);
    let without_extra = || wire(&Message { additional: Vec::new(), ..reply.clone() });
    Some(wire(reply))
        .filter(fits)
        .or_else(|| Some(without_extra()).filter(fits))
        .unwrap_or_else(|| truncated(reply).octets())
}

/// Returns the uncompressed reply with every other letter of owner names in upper case. Compression would give the
/// names the letter case of the question.
fn uncompressed(reply: &Message) -> Vec<u8> {
    let head = Message { edns: None, ..bare(reply) }.octets();
    let opt = bare(reply).octets().split_off(head.len());
    let sections = [&reply.answer, &reply.authority, &reply.additional];
    let mut octets = head;
    for (n, section) in sections.into_iter().enumerate() {
        // The count cannot overflow, because a reply with that many records would be too long to send.
        let count = section.len() as u16 + u16::from(n == 2 && !opt.is_empty());
        octets[6 + 2 * n..8 + 2 * n].copy_from_slice(&count.to_be_bytes());
        for record in section {
            octets.extend(odd(&record.owner));
            octets.extend(record.rtype.to_int().to_be_bytes());
            octets.extend(record.class.to_int().to_be_bytes());
            octets.extend(record.ttl.to_be_bytes());
            octets.extend((record.data.len() as u16).to_be_bytes());
            octets.extend(&record.data);
        }
    }
    octets.extend(opt);
    octets
}

fn odd(name: &Name) -> Vec<u8> {
    // The length octets of labels are below 64, so they are never changed as if they were letters.
    let alternate = |(n, octet): (usize, &u8)| match n % 2 {
        0 => octet.to_ascii_lowercase(),
        _ => octet.to_ascii_uppercase(),
    };
    name.as_slice().iter().enumerate().map(alternate).collect()
}

#[cfg(test)]
mod tests;
