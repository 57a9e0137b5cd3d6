//! The zones outside the user's zone: the zones of reverse names, `ipv4only.arpa`, and the root.
//!
//! A server that forwards all queries also sends queries for these zones. The PTR record of `4.3.2.1.in-addr.arpa` is
//! `ptr-1-2-3-4.ZONE`. For some values of the last octet of the address, the reply is special: NXDOMAIN for 250, NODATA
//! for 251, SERVFAIL for 252, and no reply for 253. There are no names below `ip6.arpa`.

use std::net::Ipv4Addr;

use domain::base::iana::Rtype;
use domain::base::name::{Label, ToLabelIter};

use super::node::Node;
use crate::label::{self, Behaviour, Fate, Scope, TTL};
use crate::message::{Name, Record, name as literal, rcode};

/// The addresses of `ipv4only.arpa` (RFC 7050 §8.2).
const IPV4ONLY: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];

/// Returns the records and the behaviour of the name `name`, which lies outside the user's zone, `zone`. They apply to
/// queries of type `qtype`. `ns` is the name of the name server that is responsible for all zones. DS records belong to
/// the parent zone, which is always the root here.
pub(super) fn node(name: &Name, qtype: Rtype, zone: &Name, ns: &Name) -> Node {
    let [ipv4only, v4, v6, root] = ["ipv4only.arpa", "in-addr.arpa", "ip6.arpa", "."].map(literal);
    if qtype == Rtype::DS && [&ipv4only, &v4, &v6].contains(&name) {
        return Node::empty(root);
    }
    if *name == ipv4only {
        let behaviour = Behaviour { v4: IPV4ONLY.to_vec(), ..Behaviour::default() };
        return Node::apex(name, ns, behaviour);
    }
    if [&v4, &v6, &root].contains(&name) {
        return Node::apex(name, ns, Behaviour::default());
    }
    if name.ends_with(&v4) {
        return reverse(name, v4, zone);
    }
    // The ancestors of the zones exist (RFC 8020), and a resolver that starts at the root queries them.
    if [zone, &v4].iter().any(|below| below.ends_with(name)) {
        return Node::empty(root);
    }
    let apex = [ipv4only, v6].into_iter().find(|apex| name.ends_with(apex)).unwrap_or(root);
    fated(apex, Fate::Rcode(rcode::NXDOMAIN))
}

fn fated(apex: Name, fate: Fate) -> Node {
    let behaviour = Behaviour { fates: vec![(Scope::All, fate)], ..Behaviour::default() };
    Node { behaviour, ..Node::empty(apex) }
}

fn reverse(name: &Name, apex: Name, zone: &Name) -> Node {
    let below = name.label_count() - apex.label_count();
    let octets: Option<Vec<u8>> = name.iter_labels().take(below).map(octet).collect();
    match octets.as_deref() {
        Some([250, _, _, _]) => fated(apex, Fate::Rcode(rcode::NXDOMAIN)),
        Some([251, _, _, _]) => Node::empty(apex),
        Some([252, _, _, _]) => fated(apex, Fate::Rcode(rcode::SERVFAIL)),
        Some([253, _, _, _]) => fated(apex, Fate::Silent),
        Some([d, c, b, a]) => {
            let host = label::prepend(&format!("ptr-{a}-{b}-{c}-{d}"), zone);
            let mut node = Node::empty(apex);
            node.records.push(Record::pointing(name.clone(), Rtype::PTR, TTL, &host));
            node
        }
        Some(octets) if octets.len() < 4 => Node::empty(apex),
        _ => fated(apex, Fate::Rcode(rcode::NXDOMAIN)),
    }
}

/// Parses an octet as written in reverse names, which have no leading zeros.
fn octet(label: &Label) -> Option<u8> {
    let text = str::from_utf8(label.as_slice()).ok()?;
    text.parse().ok().filter(|octet: &u8| octet.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, qtype: Rtype) -> Node {
        let [zone, ns] = ["conform.example", "ns.conform.example"].map(literal);
        node(&literal(name), qtype, &zone, &ns)
    }

    fn at(name: &str) -> Node {
        of(name, Rtype::PTR)
    }

    #[test]
    fn addresses_have_names() {
        let found = at("4.3.2.1.in-addr.arpa");
        assert_eq!(found.apex, literal("in-addr.arpa"));
        assert_eq!(found.records[0].target(), Some(literal("ptr-1-2-3-4.conform.example")));
        assert_eq!(found.types(), [Rtype::PTR]);
    }

    #[test]
    fn fates_of_names() {
        let nxdomain = Some(Fate::Rcode(rcode::NXDOMAIN));
        for (name, fate, apex) in [
            ("250.3.2.1.in-addr.arpa", nxdomain, "in-addr.arpa"),
            ("251.3.2.1.in-addr.arpa", None, "in-addr.arpa"),
            ("252.3.2.1.in-addr.arpa", Some(Fate::Rcode(rcode::SERVFAIL)), "in-addr.arpa"),
            ("253.3.2.1.in-addr.arpa", Some(Fate::Silent), "in-addr.arpa"),
            ("3.2.1.in-addr.arpa", None, "in-addr.arpa"),
            ("5.4.3.2.1.in-addr.arpa", nxdomain, "in-addr.arpa"),
            ("04.3.2.1.in-addr.arpa", nxdomain, "in-addr.arpa"),
            ("256.3.2.1.in-addr.arpa", nxdomain, "in-addr.arpa"),
            ("1.0.ip6.arpa", nxdomain, "ip6.arpa"),
            ("x.ipv4only.arpa", nxdomain, "ipv4only.arpa"),
            ("example", None, "."),
            ("arpa", None, "."),
            ("other.example", nxdomain, "."),
        ] {
            let found = at(name);
            assert_eq!(found.behaviour.fate(Rtype::PTR), fate, "{name}");
            assert_eq!(found.apex, literal(apex), "{name}");
            assert_eq!(found.types(), [], "{name}");
        }
    }

    #[test]
    fn apexes() {
        assert_eq!(at("ipv4only.arpa").types(), [Rtype::A, Rtype::A, Rtype::NS, Rtype::SOA]);
        for apex in ["in-addr.arpa", "ip6.arpa"] {
            assert_eq!(at(apex).types(), [Rtype::NS, Rtype::SOA], "{apex}");
            assert_eq!(of(apex, Rtype::DS).apex, literal("."), "{apex}");
        }
    }
}
