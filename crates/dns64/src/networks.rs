//! Lists of networks with exceptions. The first entry that contains an address decides whether the
//! address is in the list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A network. Depending on its type, it contains IPv4 addresses, IPv6 addresses, or addresses of either family.
pub(crate) trait Network {
    /// Type of the addresses in the network.
    type Address;
    /// True if the network contains an address.
    fn covers(&self, address: &Self::Address) -> bool;
    /// Returns the first address of the network.
    fn first(&self) -> Self::Address;
    /// Returns the first address after the network, or `None` if the network ends at the end of the
    /// address space.
    fn after(&self) -> Option<Self::Address>;
}

impl Network for IpNet {
    type Address = IpAddr;
    #[inline]
    fn covers(&self, address: &IpAddr) -> bool {
        self.contains(address)
    }
    fn first(&self) -> IpAddr {
        self.network()
    }
    fn after(&self) -> Option<IpAddr> {
        match self {
            IpNet::V4(net) => net.after().map(IpAddr::V4),
            IpNet::V6(net) => net.after().map(IpAddr::V6),
        }
    }
}

impl Network for Ipv4Net {
    type Address = Ipv4Addr;
    #[inline]
    fn covers(&self, address: &Ipv4Addr) -> bool {
        self.contains(address)
    }
    fn first(&self) -> Ipv4Addr {
        self.network()
    }
    fn after(&self) -> Option<Ipv4Addr> {
        u32::from(self.broadcast()).checked_add(1).map(Ipv4Addr::from)
    }
}

impl Network for Ipv6Net {
    type Address = Ipv6Addr;
    #[inline]
    fn covers(&self, address: &Ipv6Addr) -> bool {
        self.contains(address)
    }
    fn first(&self) -> Ipv6Addr {
        self.network()
    }
    fn after(&self) -> Option<Ipv6Addr> {
        u128::from(self.broadcast()).checked_add(1).map(Ipv6Addr::from)
    }
}

/// A list of networks. Each network is either included or, as an exception, excluded. For an
/// address, the first network that contains the address decides. An address that is in none of the
/// networks is not in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks<N>(Vec<Element<N>>);

/// One element of a list of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element<N> {
    /// True if the element includes its addresses in the list, false if it is an exception.
    pub includes: bool,
    /// Addresses to which the element applies.
    pub what: ElementKind<N>,
}

/// Addresses to which an element of a list applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ElementKind<N> {
    /// All addresses in a network.
    Network(N),
    /// All addresses in a nested list, without its exceptions. For an address in one of these exceptions, the later
    /// elements of the outer list decide.
    List(Networks<N>),
}

impl<N> Networks<N> {
    /// Returns a list with the given elements, in the same order.
    pub(crate) fn new(elements: Vec<Element<N>>) -> Networks<N> {
        Networks(elements)
    }

    /// True if an address is in the list.
    #[inline]
    pub(crate) fn contains(&self, address: &N::Address) -> bool
    where
        N: Network,
    {
        let covers = |element: &&Element<N>| match &element.what {
            ElementKind::Network(network) => network.covers(address),
            ElementKind::List(list) => list.contains_nested(address),
        };
        self.0.iter().find(covers).is_some_and(|element| element.includes)
    }

    /// True if an address is in a nested list. This function is separate from [`Networks::contains`], because the
    /// compiler cannot inline a function that calls itself.
    fn contains_nested(&self, address: &N::Address) -> bool
    where
        N: Network,
    {
        self.contains(address)
    }

    /// Returns the edges of the list: the first address of each network, and the first address after each network. A
    /// property that depends only on lists of networks can change only at the edges of these lists. To find out
    /// whether any address has the property, it is enough to test the edges.
    pub(crate) fn edges(&self) -> Vec<N::Address>
    where
        N: Network,
    {
        let of = |element: &Element<N>| match &element.what {
            ElementKind::Network(network) => {
                std::iter::once(network.first()).chain(network.after()).collect()
            }
            ElementKind::List(list) => list.edges(),
        };
        self.0.iter().flat_map(of).collect()
    }

    /// True if the list contains no address: it is empty, or has only exceptions.
    pub(crate) fn is_void(&self) -> bool {
        !self.0.iter().any(|element| element.includes)
    }

    /// True if the list or a nested list has exceptions.
    fn has_exceptions(&self) -> bool {
        let has = |element: &Element<N>| {
            !element.includes
                || matches!(&element.what, ElementKind::List(list) if list.has_exceptions())
        };
        self.0.iter().any(has)
    }

    /// Returns the included networks of the list and of nested lists. Exceptions are left out.
    pub(crate) fn included(&self) -> Vec<N>
    where
        N: Clone,
    {
        let of = |element: &Element<N>| match &element.what {
            ElementKind::Network(network) => vec![network.clone()],
            ElementKind::List(list) => list.included(),
        };
        self.0.iter().filter(|element| element.includes).flat_map(of).collect()
    }
}

/// Several lists of networks. For an address, the first list that contains the address applies.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    lists: Vec<Networks<IpNet>>,
    /// The networks of all lists in order, for a faster search. `None` if a list has exceptions.
    ranges: Option<Ranges>,
}

/// Networks of several lists. Each entry has the first address of the network, its last address, and the position of
/// the list that contains it.
#[derive(Clone, Debug, Default)]
struct Ranges {
    ipv4: Vec<(u32, u32, usize)>,
    ipv6: Vec<(u128, u128, usize)>,
}

impl Lists {
    /// Combines the given lists, in the same order.
    pub(crate) fn new(lists: Vec<Networks<IpNet>>) -> Lists {
        let has_exceptions = lists.iter().any(Networks::has_exceptions);
        let ranges = (!has_exceptions).then(|| Ranges::of(&lists));
        Lists { lists, ranges }
    }

    /// Returns the position of the first list that contains the given address.
    #[inline]
    pub(crate) fn index(&self, address: IpAddr) -> Option<usize> {
        match &self.ranges {
            Some(ranges) => ranges.index(address),
            None => self.lists.iter().position(|list| list.contains(&address)),
        }
    }

    /// Returns all lists, in order.
    pub(crate) fn all(&self) -> &[Networks<IpNet>] {
        &self.lists
    }
}

impl Ranges {
    fn of(lists: &[Networks<IpNet>]) -> Ranges {
        let mut ranges = Ranges::default();
        for (index, list) in lists.iter().enumerate() {
            for network in list.included() {
                match network {
                    IpNet::V4(v4) => {
                        ranges.ipv4.push((v4.network().into(), v4.broadcast().into(), index));
                    }
                    IpNet::V6(v6) => {
                        ranges.ipv6.push((v6.network().into(), v6.broadcast().into(), index));
                    }
                }
            }
        }
        ranges
    }

    #[inline]
    fn index(&self, address: IpAddr) -> Option<usize> {
        match address {
            IpAddr::V4(v4) => first_with(&self.ipv4, u32::from(v4)),
            IpAddr::V6(v6) => first_with(&self.ipv6, u128::from(v6)),
        }
    }
}

#[inline]
fn first_with<A: Copy + PartialOrd>(ranges: &[(A, A, usize)], address: A) -> Option<usize> {
    let has = |(first, last, _): &&(A, A, usize)| *first <= address && address <= *last;
    ranges.iter().find(has).map(|(_, _, index)| *index)
}

impl<N> From<Vec<N>> for Networks<N> {
    /// Returns a list without exceptions.
    fn from(networks: Vec<N>) -> Networks<N> {
        let element = |network| Element { includes: true, what: ElementKind::Network(network) };
        Networks(networks.into_iter().map(element).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> ElementKind<Ipv4Net> {
        ElementKind::Network(text.parse().unwrap())
    }

    fn list<const N: usize>(elements: [(bool, ElementKind<Ipv4Net>); N]) -> Networks<Ipv4Net> {
        Networks::new(elements.map(|(includes, what)| Element { includes, what }).into())
    }

    fn has(list: &Networks<Ipv4Net>, address: &str) -> bool {
        list.contains(&address.parse::<std::net::Ipv4Addr>().unwrap())
    }

    #[test]
    fn the_first_network_that_covers_an_address_decides() {
        let all = list([(false, net("10.0.0.0/8")), (true, net("0.0.0.0/0"))]);
        assert!(has(&all, "192.0.2.1") && !has(&all, "10.1.2.3"));
        let later = list([(true, net("0.0.0.0/0")), (false, net("10.0.0.0/8"))]);
        assert!(has(&later, "10.1.2.3"));
        assert!(!has(&list([]), "10.1.2.3"));
    }

    #[test]
    fn the_first_list_counts_with_and_without_exceptions() {
        let of = |text: &[&str]| {
            Networks::from(text.iter().map(|net| net.parse::<IpNet>().unwrap()).collect::<Vec<_>>())
        };
        let plain = vec![
            of(&["10.1.0.0/16", "2001:db8:1::/48"]),
            of(&["10.0.0.0/8"]),
            of(&["2001:db8::/32"]),
        ];
        let exception = Element {
            includes: false,
            what: ElementKind::Network("192.0.2.0/24".parse().unwrap()),
        };
        let mut crooked = plain.clone();
        crooked[2].0.insert(0, exception);
        let (plain, crooked) = (Lists::new(plain), Lists::new(crooked));
        assert!(plain.ranges.is_some() && crooked.ranges.is_none());
        for (address, index) in [
            ("10.1.255.255", Some(0)),
            ("10.2.0.0", Some(1)),
            ("10.255.255.255", Some(1)),
            ("11.0.0.0", None),
            ("192.0.2.1", None),
            ("2001:db8:1::", Some(0)),
            ("2001:db8:1:ffff:ffff:ffff:ffff:ffff", Some(0)),
            ("2001:db8:2::", Some(2)),
            ("2001:db9::", None),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(plain.index(address), index, "{address}");
            assert_eq!(crooked.index(address), index, "{address}");
        }
    }

    #[test]
    fn exceptions_of_a_list_in_a_list_are_not_covered_by_it() {
        let office =
            || ElementKind::List(list([(false, net("10.1.0.0/16")), (true, net("10.0.0.0/8"))]));
        let also = list([(true, office()), (true, net("10.1.1.0/24"))]);
        assert!(has(&also, "10.2.0.1") && has(&also, "10.1.1.1") && !has(&also, "10.1.2.1"));
        let without = list([(false, office()), (true, net("0.0.0.0/0"))]);
        assert!(has(&without, "10.1.2.1") && !has(&without, "10.2.0.1"));
        assert_eq!(also.included().len(), 2);
        let edges = ["10.1.0.0", "10.2.0.0", "10.0.0.0", "11.0.0.0", "10.1.1.0", "10.1.2.0"];
        assert_eq!(also.edges(), edges.map(|edge| edge.parse::<Ipv4Addr>().unwrap()));
        assert_eq!(list([(true, net("0.0.0.0/0"))]).edges(), [Ipv4Addr::UNSPECIFIED]);
        assert!(list([(false, net("10.0.0.0/8"))]).is_void() && !also.is_void());
    }
}
