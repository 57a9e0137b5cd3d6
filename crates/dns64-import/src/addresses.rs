//! Sets of IP addresses, used to evaluate and intersect access lists that contain exceptions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net, Ipv6Subnets};

/// First and last address of a range, as numbers.
type Range = (u128, u128);

/// A set of IPv4 and IPv6 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Sorted ranges, separated by gaps of at least one address.
    ipv4: Vec<Range>,
    ipv6: Vec<Range>,
}

impl From<IpNet> for Addresses {
    fn from(network: IpNet) -> Addresses {
        let mut addresses = Addresses::default();
        match network {
            IpNet::V4(net) => {
                let ends = (net.network(), net.broadcast());
                addresses.ipv4.push((u32::from(ends.0).into(), u32::from(ends.1).into()));
            }
            IpNet::V6(net) => addresses.ipv6.push((net.network().into(), net.broadcast().into())),
        }
        addresses
    }
}

impl From<IpAddr> for Addresses {
    fn from(address: IpAddr) -> Addresses {
        IpNet::from(address).into()
    }
}

impl FromIterator<Addresses> for Addresses {
    fn from_iter<I: IntoIterator<Item = Addresses>>(sets: I) -> Addresses {
        sets.into_iter().fold(Addresses::default(), |all, set| all.or(&set))
    }
}

impl Addresses {
    /// Returns the set of all addresses.
    pub(super) fn all() -> Addresses {
        Addresses::all_ipv4().or(&IpNet::from(Ipv6Net::default()).into())
    }

    /// Returns the set of all IPv4 addresses.
    pub(super) fn all_ipv4() -> Addresses {
        IpNet::from(Ipv4Net::default()).into()
    }

    /// Returns the loopback addresses.
    pub(super) fn loopback() -> Addresses {
        let ipv4 = Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 8).trunc();
        Addresses::from(IpNet::from(ipv4)).or(&IpAddr::from(Ipv6Addr::LOCALHOST).into())
    }

    /// True if the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.ipv4.is_empty() && self.ipv6.is_empty()
    }

    /// Returns the union of this set and `other`.
    pub(super) fn or(&self, other: &Addresses) -> Addresses {
        self.with(other, union)
    }

    /// Returns the intersection of this set and `other`.
    pub(super) fn and(&self, other: &Addresses) -> Addresses {
        self.with(other, intersection)
    }

    /// Returns the addresses of this set that are not in `other`.
    pub(super) fn without(&self, other: &Addresses) -> Addresses {
        self.with(other, difference)
    }

    fn with(&self, other: &Addresses, both: fn(&[Range], &[Range]) -> Vec<Range>) -> Addresses {
        let ipv4 = both(&self.ipv4, &other.ipv4);
        Addresses { ipv4, ipv6: both(&self.ipv6, &other.ipv6) }
    }

    /// Returns the smallest list of networks that covers exactly this set.
    pub(super) fn networks(&self) -> Vec<IpNet> {
        // The number comes from an IPv4 address, so it fits in 32 bits.
        let ipv4 = |number: u128| Ipv4Addr::from(number as u32);
        let of_ipv4 =
            |&(first, last): &Range| Ipv4Subnets::new(ipv4(first), ipv4(last), 0).map(IpNet::from);
        let of_ipv6 = |&(first, last): &Range| {
            Ipv6Subnets::new(first.into(), last.into(), 0).map(IpNet::from)
        };
        self.ipv4.iter().flat_map(of_ipv4).chain(self.ipv6.iter().flat_map(of_ipv6)).collect()
    }

    /// Returns a lower bound, in octets, for the length of the text that [`Addresses::written`] produces. For each gap
    /// between two ranges, the text contains at least one network with its separator. The shortest possible form is
    /// `"::", `.
    pub(super) fn least_len(&self) -> usize {
        let gaps = [&self.ipv4, &self.ipv6].map(|ranges| ranges.len().saturating_sub(1));
        6 * gaps.iter().sum::<usize>()
    }

    /// Returns the shortest list that describes this set in dns64d's syntax. The list consists of
    /// networks and exceptions (marked with `!`). An exception precedes the network that contains
    /// it.
    pub(super) fn written(&self) -> Vec<String> {
        let ipv4 = Trie { ranges: &self.ipv4, bits: 32 }.written(&|first, len| {
            // The number comes from an IPv4 address, so it fits in 32 bits.
            IpNet::new(IpAddr::V4((first as u32).into()), len)
        });
        let ipv6 = Trie { ranges: &self.ipv6, bits: 128 }
            .written(&|first, len| IpNet::new(IpAddr::V6(first.into()), len));
        [ipv4, ipv6].concat()
    }
}

/// A set of addresses of one address family, as a binary tree: the children of a network are its two halves.
struct Trie<'a> {
    ranges: &'a [Range],
    bits: u8,
}

/// An entry of a list: the first address and the prefix length of a network, and true if this
/// network is included in the set.
type Entry = (u128, u8, bool);

impl Trie<'_> {
    fn written(
        &self,
        network: &dyn Fn(u128, u8) -> Result<IpNet, ipnet::PrefixLenError>,
    ) -> Vec<String> {
        let [outside, _] = self.entries(self.ranges, 0, 0);
        let text = |(first, len, is_in): Entry| {
            let network = network(first, len).ok()?;
            let address = network.addr();
            let text = if len == self.bits { address.to_string() } else { network.to_string() };
            Some(if is_in { text } else { format!("!{text}") })
        };
        outside.into_iter().filter_map(text).collect()
    }

    /// Returns two lists that describe the set within a network. Each list is as short as possible. In the first list,
    /// addresses without an entry are excluded; in the second list, they are included. The algorithm is that of Draves,
    /// King, Venkatachary and Zill, "Constructing optimal IP routing tables", 1999, DOI 10.1109/INFCOM.1999.749256.
    /// Instead of two next hops, this function uses "included" and "excluded".
    fn entries(&self, ranges: &[Range], first: u128, len: u8) -> [Vec<Entry>; 2] {
        let last = first | u128::MAX.checked_shr((128 - self.bits + len).into()).unwrap_or(0);
        // Ranges that overlap this network.
        let from = ranges.partition_point(|range| range.1 < first);
        let to = ranges.partition_point(|range| range.0 <= last);
        let ranges = &ranges[from..to];
        let is_covered = matches!(ranges, [range] if range.0 <= first && last <= range.1);
        if is_covered || ranges.is_empty() {
            let one = |is_in: bool| vec![(first, len, is_in)];
            return if is_covered { [one(true), Vec::new()] } else { [Vec::new(), one(false)] };
        }
        let half = 1_u128 << (self.bits - len - 1);
        let [left_out, left_in] = self.entries(ranges, first, len + 1);
        let [right_out, right_in] = self.entries(ranges, first + half, len + 1);
        // Each result is either the list for the same default, or the list for the opposite default
        // with one more entry for the whole network. This entry is last, because more specific
        // entries come first.
        let (out, within) = ([left_out, right_out].concat(), [left_in, right_in].concat());
        let turned = |entries: &[Entry], is_in| [entries, &[(first, len, is_in)]].concat();
        let if_out = if within.len() + 1 < out.len() { turned(&within, true) } else { out.clone() };
        let if_in = if out.len() + 1 < within.len() { turned(&out, false) } else { within };
        [if_out, if_in]
    }
}

fn union(one: &[Range], other: &[Range]) -> Vec<Range> {
    let mut ranges = [one, other].concat();
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn intersection(one: &[Range], other: &[Range]) -> Vec<Range> {
    let meet = |a: &Range, b: &Range| (a.0.max(b.0), a.1.min(b.1));
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| meet(a, b)));
    pairs.filter(|(first, last)| first <= last).collect()
}

fn difference(one: &[Range], other: &[Range]) -> Vec<Range> {
    let mut rest = one.to_vec();
    for &(first, last) in other {
        let around = |range: Range| {
            let before = (range.0 < first).then(|| (range.0, range.1.min(first.wrapping_sub(1))));
            let after = (range.1 > last).then(|| (range.0.max(last.wrapping_add(1)), range.1));
            [before, after].into_iter().flatten()
        };
        rest = rest.into_iter().flat_map(around).collect();
    }
    rest
}

/// An access list in which the first entry that covers an address decides.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstMatch {
    allowed: Addresses,
    decided: Addresses,
}

impl FirstMatch {
    /// Adds the next entry of the access list. The entry decides only for addresses that no earlier entry covers.
    pub(super) fn then(&mut self, addresses: &Addresses, is_allowed: bool) {
        if is_allowed {
            self.allowed = self.allowed.or(&addresses.without(&self.decided));
        }
        self.decided = self.decided.or(addresses);
    }

    /// Returns the addresses that the access list allows.
    pub(super) fn allowed(self) -> Addresses {
        self.allowed
    }
}

/// Evaluates an access list in which the most specific matching network decides. If a network
/// occurs several times, its last entry decides.
pub(super) fn most_specific(mut networks: Vec<(IpNet, bool)>) -> Addresses {
    networks.sort_by_key(|(network, _)| network.prefix_len());
    networks.into_iter().fold(Addresses::default(), |allowed, (network, is_allowed)| {
        let network = Addresses::from(network);
        if is_allowed { allowed.or(&network) } else { allowed.without(&network) }
    })
}

/// Parses a network in the syntax of other servers. The length may be absent, and an IPv4 address
/// may have fewer than four octets (`10/8`). Bits beyond the length are ignored.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = match address.parse() {
        Ok(address) => address,
        Err(_) if len.is_some() && !address.is_empty() => short(address)?.into(),
        Err(_) => return None,
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    Some(IpNet::new(address, len.unwrap_or(longest)).ok()?.trunc())
}

/// Parses an IPv4 address that may have fewer than four octets, such as `10` or `192.168`; missing
/// octets are zero.
fn short(text: &str) -> Option<Ipv4Addr> {
    let text = text.trim_end_matches('.');
    let mut octets = [0; 4];
    for (location, octet) in text.split('.').enumerate() {
        *octets.get_mut(location)? = octet.parse().ok()?;
    }
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(networks: &[&str]) -> Addresses {
        networks.iter().map(|text| Addresses::from(network(text).unwrap())).collect()
    }

    fn written(addresses: &Addresses) -> Vec<String> {
        addresses.networks().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sets_are_joined_cut_and_subtracted() {
        let office = set(&["10.0.0.0/9", "10.128.0.0/9", "fd00::/8"]);
        assert_eq!(written(&office), ["10.0.0.0/8", "fd00::/8"]);
        assert_eq!(written(&office.and(&set(&["10.1.0.0/16", "2001:db8::/32"]))), ["10.1.0.0/16"]);
        let rest = office.without(&set(&["10.0.0.0/10", "10.192.0.0/10", "::/0"]));
        assert_eq!(written(&rest), ["10.64.0.0/10", "10.128.0.0/10"]);
        assert!(office.without(&Addresses::all()).is_empty());
        assert_eq!(written(&Addresses::all()), ["0.0.0.0/0", "::/0"]);
        assert_eq!(written(&Addresses::all().without(&Addresses::all_ipv4())), ["::/0"]);
        assert_eq!(written(&Addresses::loopback()), ["127.0.0.0/8", "::1/128"]);
        // Ranges at the ends of the address space.
        let most = Addresses::all().without(&set(&["0.0.0.0", "255.255.255.255", "::"]));
        assert_eq!(most.or(&set(&["0.0.0.0", "255.255.255.255", "::"])), Addresses::all());
    }

    #[test]
    fn a_set_is_written_as_a_short_list() {
        let office = set(&["10.0.0.0/8", "2001:db8::/32"]);
        let but = |out: &[&str]| office.without(&set(out)).written();
        assert_eq!(but(&[]), ["10.0.0.0/8", "2001:db8::/32"]);
        assert_eq!(but(&["10.9.9.9"]), ["!10.9.9.9", "10.0.0.0/8", "2001:db8::/32"]);
        assert_eq!(but(&["10.0.0.0/9", "::/0"]), ["10.128.0.0/9"]);
        assert_eq!(Addresses::all().written(), ["0.0.0.0/0", "::/0"]);
        assert_eq!(Addresses::default().written(), [""; 0]);
        let most = Addresses::all().without(&set(&["10/8", "::1", "fd00::/8"])).written();
        assert_eq!(most, ["!10.0.0.0/8", "0.0.0.0/0", "!::1", "!fd00::/8", "::/0"]);
        // An exception within an exception.
        let guests = office.without(&set(&["10.9/16"])).or(&set(&["10.9.1/24", "::7"])).written();
        assert_eq!(guests, ["10.9.1.0/24", "!10.9.0.0/16", "10.0.0.0/8", "::7", "2001:db8::/32"]);
    }

    #[test]
    fn the_first_entry_that_covers_an_address_decides() {
        let mut list = FirstMatch::default();
        list.then(&set(&["10.9.0.0/16"]), false);
        list.then(&set(&["10.8.0.0/15"]), true);
        list.then(&set(&["10.8.0.0/16"]), false);
        assert_eq!(written(&list.allowed()), ["10.8.0.0/16"]);
    }

    #[test]
    fn networks_are_read_as_other_servers_write_them() {
        let read = |text| network(text).map(|net| net.to_string());
        assert_eq!(read("10/8").unwrap(), "10.0.0.0/8");
        assert_eq!(read("192.168/16").unwrap(), "192.168.0.0/16");
        assert_eq!(read("192.0.2.7/24").unwrap(), "192.0.2.0/24");
        assert_eq!(read("2001:db8::1").unwrap(), "2001:db8::1/128");
        assert_eq!(read("::0/0").unwrap(), "::/0");
        for bad in ["10", "10.0.0.0/33", "/8", "10.0.0.0.0/8", "office", "::ffff/ab", ""] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }
}
