//! Zones of the test authoritative server, and the lookup of queried names in these zones.

use std::net::Ipv4Addr;

use domain::base::iana::Rtype;

use super::config::{AuthorityError, LONGEST_ZONE};
use super::node::{Node, alias_records};
use super::reverse;
use super::signed::Keys;
use crate::label::{self, Alias, Behaviour, TTL, Tree};
use crate::message::{Name, Record};

/// Maximum length, in octets, of a queried name whose labels are evaluated. The host name in an MX, NS or SRV record of
/// this name may be two octets longer.
const LONGEST_NAME: usize = 253;

/// Zones of the test authoritative server.
pub(super) struct Zones {
    /// Zone given by the user.
    pub(super) zone: Name,
    /// Keys of the signed zones.
    pub(super) keys: Keys,
    ns: (Name, Ipv4Addr),
}

impl Zones {
    /// Creates `zone` and the zones below it, with new keys. `ns` is the address of their name server.
    pub(super) fn new(zone: &Name, ns: Ipv4Addr) -> Result<Zones, AuthorityError> {
        if zone.len() > LONGEST_ZONE {
            return Err(AuthorityError::LongZone { zone: zone.clone() });
        }
        let mut zone = zone.clone();
        zone.make_canonical();
        let ns = (label::prepend("ns", &zone), ns);
        Ok(Zones { keys: Keys::make(&zone)?, zone, ns })
    }

    /// Returns the records and the behaviour of `name`, which must be in lower case, for queries of type `qtype`. A
    /// query for DS gets NODATA from the parent zone (RFC 4035 §3.1.4.1), because there are no DS records.
    pub(super) fn node(&self, name: &Name, qtype: Rtype) -> Node {
        if !name.ends_with(&self.zone) {
            return reverse::node(name, qtype, &self.zone, &self.ns.0);
        }
        let place = Some(name)
            .filter(|name| name.len() <= LONGEST_NAME)
            .and_then(|name| label::read(name, &self.zone));
        let Some(label::ParsedName { tree, mut behaviour }) = place else {
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
        // The name has no nonce, so its labels apply only to names below it. It exists and may have a DNAME record,
        // because a DNAME record redirects only names below its owner (RFC 6672 §2.3).
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
            // SHA-1, no flags, no additional iterations, no salt (RFC 9276 §3.1).
            let data = vec![1, 0, 0, 0, 0];
            node.records.push(Record::new(apex.clone(), Rtype::NSEC3PARAM, TTL, data));
        }
        node
    }
}
