//! One name of the test authoritative server, with its zone, records and behaviour.

use domain::base::iana::Rtype;

use crate::label::{Alias, Behaviour, Fate, TTL, Tree};
use crate::message::{Name, Record};

/// One name of the test authoritative server.
pub(super) struct Node {
    /// Kind of the zone that contains the name. For zones outside the user's zone, it is [`Tree::Plain`].
    pub(super) tree: Tree,
    /// Apex of the zone that contains the name.
    pub(super) apex: Name,
    /// Behaviour of the test authoritative server for queries of this name.
    pub(super) behaviour: Behaviour,
    /// Records of the name, except its CNAME or DNAME record.
    pub(super) records: Vec<Record>,
}

impl Node {
    /// Creates a name with the records that `behaviour` defines.
    pub(super) fn new(name: &Name, tree: Tree, apex: Name, behaviour: Behaviour) -> Node {
        Node { tree, apex, records: records(name, &behaviour), behaviour }
    }

    /// Creates a name that exists and has no records.
    pub(super) fn empty(apex: Name) -> Node {
        Node { tree: Tree::Plain, apex, behaviour: Behaviour::default(), records: Vec::new() }
    }

    /// Creates the apex of an unsigned zone, with its SOA and NS records.
    pub(super) fn apex(apex: &Name, ns: &Name, behaviour: Behaviour) -> Node {
        let behaviour = Behaviour { host: Some((Rtype::NS, ns.clone())), ..behaviour };
        let mut node = Node::new(apex, Tree::Plain, apex.clone(), behaviour);
        node.records.push(Record::soa(apex, TTL, TTL));
        node
    }

    /// Returns the types of the records that the test authoritative server returns for this name.
    pub(super) fn types(&self) -> Vec<Rtype> {
        let types = self.records.iter().map(|record| record.rtype);
        types.filter(|rtype| self.behaviour.fate(*rtype) != Some(Fate::NoData)).collect()
    }
}

/// Returns the records of an alias as two lists. The first list contains the CNAME or DNAME record that is in the zone.
/// The second list contains the CNAME record that is synthesized from a DNAME record and is never signed (RFC 6672
/// §5.3.1). `ttl` is the TTL of a DNAME record.
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

/// Returns the records that the labels of `name` define. Records of the same type are adjacent.
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
