//! Parsers for addresses with ports, sizes and times in the syntax of other servers.

use net::address::{HostAddr, ServiceAddr};

/// Parses an address with an optional port: `192.0.2.53`, `192.0.2.53@5353`, `192.0.2.53:5353`, `[2001:db8::53]:5353`
/// or `2001:db8::53#5353`. The default port is `port`. A link-local address may have a zone identifier, as in
/// `fe80::53%eth0@5353`.
pub(super) fn socket(text: &str, port: u16) -> Option<ServiceAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Some((host, port)) = text.split_once(['@', '#']) {
        return Some(ServiceAddr::new(host.parse::<HostAddr>().ok()?, port.parse().ok()?));
    }
    let host = text.trim_start_matches('[').trim_end_matches(']');
    Some(ServiceAddr::new(host.parse::<HostAddr>().ok()?, port))
}

/// True for the words that mean "no" in the configuration of BIND.
pub(super) fn is_no(word: &str) -> bool {
    matches!(word, "no" | "false" | "0" | "none" | "off")
}

/// True if a DNSSEC algorithm, given by its mnemonic or number, is one that dns64d validates: 8, 10, 13, 14 or 15.
pub(super) fn is_validated_algorithm(word: &str) -> bool {
    const NAMES: [&str; 5] =
        ["RSASHA256", "RSASHA512", "ECDSAP256SHA256", "ECDSAP384SHA384", "ED25519"];
    matches!(word, "8" | "10" | "13" | "14" | "15")
        || NAMES.iter().any(|name| name.eq_ignore_ascii_case(word))
}

/// Parses a size in octets, such as `64m`, `1G` or `4096`. Returns MiB, rounded up.
pub(super) fn mebibytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match lower[digits.len()..].trim_end_matches('b') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    Some(digits.parse::<u64>().ok()?.checked_mul(unit)?.div_ceil(1 << 20))
}

/// Parses a time such as `3600` (seconds), `60m`, `1h`, `1d`, `1w`, or a sequence of these. Returns
/// seconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (mut sum, mut number) = (0_u64, String::new());
    for c in text.trim().to_ascii_lowercase().chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    if number.is_empty() { Some(sum) } else { sum.checked_add(number.parse().ok()?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_other_servers_write_them() {
        let address = |text| socket(text, 53).map(|address| address.to_string());
        assert_eq!(address("192.0.2.53").unwrap(), "192.0.2.53:53");
        assert_eq!(address("192.0.2.53@5353").unwrap(), "192.0.2.53:5353");
        assert_eq!(address("192.0.2.53:5353").unwrap(), "192.0.2.53:5353");
        assert_eq!(address("2001:db8::53#5353").unwrap(), "[2001:db8::53]:5353");
        assert_eq!(address("[2001:db8::53]:5353").unwrap(), "[2001:db8::53]:5353");
        assert_eq!(address("[2001:db8::53]").unwrap(), "[2001:db8::53]:53");
        for text in ["fe80::1%eth0", "fe80::1%eth0@53", "[fe80::1%eth0]:53", "fe80::1%eth0#53"] {
            assert_eq!(address(text).unwrap(), "[fe80::1%eth0]:53");
        }
        assert_eq!(address("fe80::1%3@5353").unwrap(), "[fe80::1%3]:5353");
        assert_eq!(address("2001:db8::1%eth0"), None);
        assert!(
            ["eth0", "192.0.2.53@", "192.0.2.53@853#name", ""]
                .map(address)
                .iter()
                .all(Option::is_none)
        );
        assert_eq!(
            ["64m", "1G", "1", "1500 K", "5x", "m"].map(mebibytes),
            [Some(64), Some(1_024), Some(1), None, None, None]
        );
        assert_eq!(
            ["1h", "1h30m", "90", "1w", "h", "-1"].map(seconds),
            [Some(3_600), Some(5_400), Some(90), Some(604_800), None, None]
        );
    }
}
