//! What is at a name, before anybody asks: its zone, its records, and its behaviour.

use std::net::Ipv4Addr;

use domain::base::iana::Rtype;

use super::signed::Keys;
use super::{FarError, reverse};
use crate::label::{self, Alias, Behaviour, Fate, TTL, Tree};
use crate::message::{Name, Record};

/// The longest name in octets that is read: a host that a label points to may be longer by two.
const LONGEST_NAME: usize = 253;

/// One name of the far side.
pub(super) struct Node {
    /// How its zone is signed; [`Tree::Plain`] also for the zones outside the user's.
    pub(super) tree: Tree,
    /// The apex of its zone.
    pub(super) apex: Name,
    /// What becomes of questions for it.
    pub(super) behaviour: Behaviour,
    /// Its records, without those of an alias.
    pub(super) records: Vec<Record>,
}

impl Node {
    /// A name with the records that the behaviour says.
    pub(super) fn new(name: &Name, tree: Tree, apex: Name, behaviour: Behaviour) -> Node {
        Node { tree, apex, records: records(name, &behaviour), behaviour }
    }

    /// A name that is there and has no records.
    pub(super) fn empty(apex: Name) -> Node {
        Node { tree: Tree::Plain, apex, behaviour: Behaviour::default(), records: Vec::new() }
    }

    /// The apex of a zone that is not signed, with its SOA and NS records.
    pub(super) fn apex(apex: &Name, ns: &Name, behaviour: Behaviour) -> Node {
        let behaviour = Behaviour { host: Some((Rtype::NS, ns.clone())), ..behaviour };
        let mut node = Node::new(apex, Tree::Plain, apex.clone(), behaviour);
        node.records.push(Record::soa(apex, TTL, TTL));
        node
    }

    /// The types of its records that are given to those who ask.
    pub(super) fn types(&self) -> Vec<Rtype> {
        let types = self.records.iter().map(|record| record.rtype);
        types.filter(|rtype| self.behaviour.fate(*rtype) != Some(Fate::NoData)).collect()
    }
}

/// All zones of the far side.
pub(super) struct Zones {
    /// The zone that the user gave.
    pub(super) zone: Name,
    /// Keys of the signed zones.
    pub(super) keys: Keys,
    ns: (Name, Ipv4Addr),
}

impl Zones {
    /// The zones below `zone`, with new keys; `ns` is the address of their name server.
    pub(super) fn new(zone: &Name, ns: Ipv4Addr) -> Result<Zones, FarError> {
        if zone.len() > super::LONGEST_ZONE {
            return Err(FarError::LongZone { zone: zone.clone() });
        }
        let mut zone = zone.clone();
        zone.make_canonical();
        let ns = (label::prepend("ns", &zone), ns);
        Ok(Zones { keys: Keys::make(&zone)?, zone, ns })
    }

    /// What is at `name`, in lower case, for those who ask for `qtype`: DS records are the parent
    /// zone's (RFC 4035 §3.1.4.1), and there are none.
    pub(super) fn node(&self, name: &Name, qtype: Rtype) -> Node {
        if !name.ends_with(&self.zone) {
            return reverse::node(name, qtype, &self.zone, &self.ns.0);
        }
        let place = Some(name)
            .filter(|name| name.len() <= LONGEST_NAME)
            .and_then(|name| label::read(name, &self.zone));
        let Some(label::Place { tree, mut behaviour }) = place else {
            return Node::empty(self.zone.clone());
        };
        let apex = tree.apex(&self.zone);
        if *name == apex && qtype == Rtype::DS {
            let is_below = tree != Tree::Plain;
            return Node::empty(if is_below { self.zone.clone() } else { Name::root_vec() });
        }
        if *name == apex {
            return self.apex(tree, &apex);
        }
        if *name == self.ns.0 {
            let behaviour = Behaviour { v4: vec![self.ns.1], ..Behaviour::default() };
            return Node::new(name, tree, apex, behaviour);
        }
        if !label::is_directive(name.first()) {
            return Node::new(name, tree, apex, behaviour);
        }
        // A name on the way to others is there whatever its labels say of those. Of records it has
        // a DNAME at most: that leads the names below it elsewhere, not itself (RFC 6672 §2.3).
        let dname = behaviour
            .alias
            .take()
            .filter(|alias| matches!(alias, Alias::Dname { owner, .. } if owner == name));
        let mut node = Node { tree, ..Node::empty(apex) };
        node.records.extend(dname.into_iter().flat_map(|alias| alias_records(name, &alias, TTL).0));
        node
    }

    fn apex(&self, tree: Tree, apex: &Name) -> Node {
        let mut node = Node { tree, ..Node::apex(apex, &self.ns.0, Behaviour::default()) };
        node.records.extend(self.keys.dnskey(tree));
        if tree == Tree::Nsec3 {
            // SHA-1, no flags, no further iterations, no salt (RFC 9276 §3.1).
            let data = vec![1, 0, 0, 0, 0];
            node.records.push(Record::new(apex.clone(), Rtype::NSEC3PARAM, TTL, data));
        }
        node
    }
}

/// The records of an alias: those of the zone, and the CNAME record that follows from a DNAME
/// record and is never signed (RFC 6672 §5.3.1). `ttl` is that of a DNAME record.
pub(super) fn alias_records(name: &Name, alias: &Alias, ttl: u32) -> (Vec<Record>, Vec<Record>) {
    match alias {
        Alias::Cname { target, ttl } => {
            (vec![Record::pointing(name.clone(), Rtype::CNAME, *ttl, target)], Vec::new())
        }
        Alias::Dname { owner, replacement, target } => (
            vec![Record::pointing(owner.clone(), Rtype::DNAME, ttl, replacement)],
            vec![Record::pointing(name.clone(), Rtype::CNAME, ttl, target)],
        ),
    }
}

/// The records that the labels of `name` say, those of a type side by side.
fn records(name: &Name, behaviour: &Behaviour) -> Vec<Record> {
    let ttl = behaviour.ttl;
    let ttl_of = |n: usize| if behaviour.unequal && n > 0 { ttl / 2 } else { ttl };
    let v4 = behaviour.v4.iter().enumerate();
    let v6 = behaviour.v6.iter().enumerate();
    let mut records: Vec<Record> = Vec::new();
    records.extend(v4.map(|(n, address)| Record::a(name.clone(), ttl_of(n), *address)));
    records.extend(v6.map(|(n, address)| Record::aaaa(name.clone(), ttl_of(n), *address)));
    let mut push = |rtype, data| records.push(Record::new(name.clone(), rtype, ttl, data));
    if let Some((rtype, host)) = &behaviour.host {
        let before: &[u8] = match *rtype {
            // Preference (RFC 1035 §3.3.9).
            Rtype::MX => &[0, 10],
            // Priority, weight, port 443 (RFC 2782).
            Rtype::SRV => &[0, 0, 0, 0, 1, 187],
            _ => &[],
        };
        push(*rtype, [before, host.as_slice()].concat());
    }
    if behaviour.txt {
        push(Rtype::TXT, b"\x07conform".to_vec());
    }
    if let Some((rtype, hint)) = behaviour.hint {
        // Priority 1, the owner itself as target, alpn=h2, ipv4hint (RFC 9460 §2.2, §7).
        let before = b"\x00\x01\x00\x00\x01\x00\x03\x02h2\x00\x04\x00\x04";
        push(rtype, [before.as_slice(), &hint.octets()].concat());
    }
    records
}
