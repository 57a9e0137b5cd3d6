//! Zones that a resolver should answer locally instead of querying the servers of the root and of
//! AS112.

/// Names for private use: RFC 6761 §6.2, RFC 6762 §22.1, RFC 8375, RFC 9665.
const PRIVATE: [&str; 4] = ["test", "local", "home.arpa", "service.arpa"];
/// Networks of RFC 6303 §4.1 and §4.2, as labels below `in-addr.arpa`; those of 172.16.0.0/12 and
/// 100.64.0.0/10 are missing.
const IPV4: [&str; 9] = [
    "0",
    "10",
    "127",
    "254.169",
    "168.192",
    "2.0.192",
    "100.51.198",
    "113.0.203",
    "255.255.255.255",
];
/// Networks of RFC 6303 §4.4 to §4.6, as labels below `ip6.arpa`; the single addresses of §4.3 are
/// missing.
const IPV6: [&str; 6] = ["d.f", "8.e.f", "9.e.f", "a.e.f", "b.e.f", "8.b.d.0.1.0.0.2"];

/// Returns the zones of `local-zones = true`, in lower case without final dots: `test`, `local`,
/// `home.arpa`, `service.arpa`, and the reverse zones of RFC 6303 and RFC 7793.
pub fn standard_local_zones() -> impl Iterator<Item = String> {
    let private = PRIVATE.into_iter().map(str::to_owned);
    let of_172 = (16..=31).map(|octet| format!("{octet}.172"));
    let of_100 = (64..=127).map(|octet| format!("{octet}.100"));
    let ipv4 = IPV4.into_iter().map(str::to_owned).chain(of_172).chain(of_100);
    let single = ["0", "1"].map(|last| format!("{last}{}", ".0".repeat(31)));
    let ipv6 = IPV6.into_iter().map(str::to_owned).chain(single);
    private
        .chain(ipv4.map(|network| format!("{network}.in-addr.arpa")))
        .chain(ipv6.map(|network| format!("{network}.ip6.arpa")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rfc6303_and_rfc7793_zones_are_complete() {
        let all: Vec<String> = standard_local_zones().collect();
        let once: BTreeSet<&String> = all.iter().collect();
        // 4 names; 9 + 16 + 64 IPv4 networks; 6 IPv6 networks and 2 addresses.
        assert_eq!((all.len(), once.len()), (101, 101));
        let loopback = format!("1{}.ip6.arpa", ".0".repeat(31));
        for zone in [
            "test",
            "10.in-addr.arpa",
            "16.172.in-addr.arpa",
            "31.172.in-addr.arpa",
            "168.192.in-addr.arpa",
            "64.100.in-addr.arpa",
            "127.100.in-addr.arpa",
            "255.255.255.255.in-addr.arpa",
            "d.f.ip6.arpa",
            "8.b.d.0.1.0.0.2.ip6.arpa",
            &loopback,
        ] {
            assert!(once.contains(&zone.to_owned()), "{zone}");
        }
        for other in ["172.in-addr.arpa", "15.172.in-addr.arpa", "128.100.in-addr.arpa"] {
            assert!(!once.contains(&other.to_owned()), "{other}");
        }
    }
}
