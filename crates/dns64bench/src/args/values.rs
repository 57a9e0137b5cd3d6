//! Parsers for addresses, times and lists as users write them. Error messages show the correct form.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

pub(crate) use campaign::plan::quantity::{
    nonzero_time as parse_some_time, share as parse_share, time as parse_time,
};
use tester::measurer::plan::MAX_WINDOW_LIMIT_PCT;
use units::{CpuId, fraction};
use wire::tsig::{Key, KeyError};

/// Default port of DNS servers (RFC 1035 §4.2).
pub(crate) const DNS_PORT: u16 = 53;

/// Address or name of the server to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// IP address and port of the server.
    Address(SocketAddr),
    /// Host name and port; the name is not resolved yet.
    Name(String, u16),
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Server, String> {
        if let Some(address) = address(text) {
            return Ok(Server::Address(address));
        }
        let (name, port) = text
            .rsplit_once(':')
            .map_or((text, Some(DNS_PORT)), |(name, port)| (name, port.parse().ok()));
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        let labels = || name.strip_suffix('.').unwrap_or(name).split('.');
        // A name whose last label consists of digits is a mistyped IPv4 address.
        let is_number =
            labels().next_back().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit()));
        match port {
            Some(port) if labels().all(is_label) && !is_number => {
                Ok(Server::Name(name.to_owned(), port))
            }
            _ => Err(format!(
                "'{text}' is not a valid server address or name; write for example 2001:2::1, [2001:2::1]:5353, 198.18.0.1:53 or localhost"
            )),
        }
    }
}

/// Parses an address with or without a port. An IPv6 address with a port must be in brackets.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let without_port = bare.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv6() || bare == text);
    text.parse().ok().or_else(|| without_port.map(|ip| SocketAddr::new(ip, DNS_PORT)))
}

/// Parses an IP address with or without a port. Host names are not accepted.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    address(text).ok_or_else(|| {
        format!("'{text}' is not a valid address; write for example 2001:2::1, [::1]:5353 or 198.18.0.1:53")
    })
}

/// Parses a value with the `FromStr` implementation of its type. An error message contains an example of a correct
/// value.
pub(crate) fn like<T: FromStr>(
    what: &'static str,
    example: &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        text.parse()
            .map_err(|_| format!("'{text}' is not a valid {what}; write for example {example}"))
    }
}

/// Parses the listen address of a metrics server. The port is required, because there is no default port for metrics.
pub(crate) fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    like("address with a port", "127.0.0.1:9100 or [::1]:9100")(text)
}

/// Parses a TSIG key. An argument of the form `@FILE` names a file that contains the key. This form keeps the key
/// secret, because other users of the host can read the arguments of a process.
pub(crate) fn parse_tsig_key(text: &str) -> Result<Key, String> {
    let Some(path) = text.strip_prefix('@') else {
        return text.parse().map_err(|error: KeyError| error.to_string());
    };
    let key =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    // The message does not quote the file, because any part of it may be the secret.
    key.trim().parse().map_err(|error: KeyError| {
        format!("{path}: not a TSIG key as [algorithm:]name:secret: {}", error.reason())
    })
}

/// Index of this tester's shard, and the total number of shards, such as `1/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardNumber {
    /// Index of the shard, counted from 0.
    pub(crate) index: u16,
    pub(crate) of: u16,
}

impl FromStr for ShardNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<ShardNumber, String> {
        let parsed = text.split_once('/').and_then(|(index, of)| {
            let (index, of) = (index.parse().ok()?, of.parse().ok()?);
            (index < of).then_some(ShardNumber { index, of })
        });
        parsed.ok_or_else(|| {
            format!("'{text}' is not a valid shard number; write for example 0/3, 1/3 and 2/3")
        })
    }
}

/// Parses the index of a shard and the clock offset of its tester, such as `1=250us` or `2=-1ms`. The offset is
/// positive if the tester's clock was ahead of true time. Returns the offset in nanoseconds.
pub(crate) fn parse_offset(text: &str) -> Result<(u16, i64), String> {
    let wrong =
        || format!("'{text}' is not a valid shard offset; write for example 1=250us or 2=-1ms");
    let (index, time) = text.split_once('=').ok_or_else(wrong)?;
    let (sign, time) = time.strip_prefix('-').map_or((1, time), |time| (-1, time));
    let nanos = parse_time(time).map_err(|_| wrong())?.as_nanos();
    let nanos = i64::try_from(nanos).map_err(|_| wrong())?;
    Ok((index.parse().map_err(|_| wrong())?, sign * nanos))
}

/// A list of CPUs.
#[derive(Clone, Debug)]
pub(crate) struct CpuList(pub(crate) Vec<CpuId>);

pub(crate) fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let number = |s: &str| {
        s.trim()
            .parse::<usize>()
            .map_err(|_| format!("'{s}' is not a CPU number; write for example 0,1 or 0-3"))
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(from)?, number(to)?);
        if from > to || to > 4095 {
            return Err(format!("'{part}' is not a valid range of CPUs; write for example 0-3"));
        }
        cpus.extend((from..=to).map(CpuId));
    }
    Ok(CpuList(cpus))
}

/// A delay or a range of delays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayRange {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

pub(crate) fn parse_delay(text: &str) -> Result<DelayRange, String> {
    // [`parse_time`] would parse a plain number as seconds, but a delay without a unit is probably meant in
    // milliseconds.
    let time = |s: &str| {
        humantime::parse_duration(s).map_err(|e| format!("'{s}': {e}; write 20ms or 10ms-50ms"))
    };
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let range = DelayRange { min: time(min)?, max: time(max)? };
    if range.min > range.max { Err("the shorter delay comes first".into()) } else { Ok(range) }
}

/// Parses a percentage above 0, up to [`MAX_WINDOW_LIMIT_PCT`]: `1`, `0.5%`.
pub(crate) fn parse_percentage(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim_end().parse() {
        Ok(percentage) if percentage > 0.0 && percentage <= MAX_WINDOW_LIMIT_PCT => Ok(percentage),
        _ => Err(format!(
            "'{text}' is not a percentage above 0 and at most {MAX_WINDOW_LIMIT_PCT}; write for example 1% or 0.5"
        )),
    }
}

/// Parses a decrease, such as `5%` or `0.05`, and returns it as a fraction.
pub(crate) fn parse_decrease(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a valid decrease; write for example 5% or 0.05");
    fraction(text).filter(|decrease| (0.0..1.0).contains(decrease)).ok_or_else(wrong)
}

/// Parses the reserve δ of a self-test: a number from 0 to 10, or a percentage.
pub(crate) fn parse_reserve(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a valid reserve; write for example 0.1 or 10%");
    fraction(text).filter(|reserve| (0.0..=10.0).contains(reserve)).ok_or_else(wrong)
}

/// Parses a fraction from 0 to 1, or a percentage.
pub(crate) fn parse_fraction(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a share from 0 to 1; write for example 0.05 or 5%");
    fraction(text).filter(|share| (0.0..=1.0).contains(share)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "hmac-sha256:key.example:c2VjcmV0\n").unwrap();
        let from_file = parse_tsig_key(&format!("@{}", file.display())).unwrap();
        let mut signed = [vec![0; 12], vec![0; 12]];
        from_file.sign(&mut signed[0], 0, 1);
        parse_tsig_key("hmac-sha256:key.example:c2VjcmV0").unwrap().sign(&mut signed[1], 0, 1);
        assert_eq!(signed[0], signed[1]);
        for wrong in [
            "TOPSECRET==",
            "key \"k\" { algorithm hmac-sha256; secret \"TOPSECRET==\"; };",
            "hmac-sha256:a:TOPSECRET==\nhmac-sha256:b:TOPSECRET==",
            "hmac-sha256:a:TOPSECRET==\n# made: today",
            "hmac-none:a:TOPSECRET==",
        ] {
            std::fs::write(&file, wrong).unwrap();
            let of_file = parse_tsig_key(&format!("@{}", file.display())).err().unwrap();
            assert!(of_file.starts_with(&file.display().to_string()), "{of_file}");
            let of_text = parse_tsig_key(wrong).err().unwrap();
            assert!(![of_file, of_text].concat().contains("TOPSECRET"), "{wrong}");
        }
    }

    #[test]
    fn decreases_are_per_cents_or_fractions() {
        for (text, fraction) in
            [("5%", 0.05), ("2.5 %", 0.025), ("0.05", 0.05), ("0", 0.0), ("0%", 0.0)]
        {
            assert_eq!(parse_decrease(text), Ok(fraction), "{text}");
        }
        for text in ["5", "100%", "-1%", "%", "NaN", "a"] {
            assert!(parse_decrease(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_numbers_or_per_cents() {
        for (text, share) in [("5%", 0.05), ("0.01", 0.01), ("0", 0.0)] {
            assert_eq!(parse_share(text), Ok(share), "{text}");
            assert_eq!(parse_fraction(text), Ok(share), "{text}");
        }
        assert_eq!(parse_fraction("100%"), Ok(1.0));
        assert!(parse_share("100%").unwrap_err().contains("below 1"));
        assert_eq!(["10%", "0.1", "1", "150%"].map(parse_reserve), [0.1, 0.1, 1.0, 1.5].map(Ok));
        assert!(parse_reserve("-10%").unwrap_err().contains("0.1 or 10%"));
        for text in ["5", "-1%", "%", "NaN", "a", ""] {
            assert!(parse_share(text).unwrap_err().contains("0.5%"), "{text}");
            assert!(parse_fraction(text).unwrap_err().contains("5%"), "{text}");
        }
    }

    #[test]
    fn percentages_may_have_their_sign() {
        for (text, percentage) in [("1", 1.0), ("0.5%", 0.5), ("50 %", 50.0), ("10000", 10_000.0)] {
            assert_eq!(parse_percentage(text), Ok(percentage), "{text}");
        }
        for text in ["0", "0%", "10001%", "-1", "%", "1%%", "NaN", ""] {
            assert!(parse_percentage(text).unwrap_err().contains("1% or 0.5"), "{text}");
        }
    }

    #[test]
    fn servers_as_people_write_them() {
        for (text, address) in [
            ("2001:2::1", "[2001:2::1]:53"),
            ("[2001:2::1]", "[2001:2::1]:53"),
            ("[2001:2::1]:5353", "[2001:2::1]:5353"),
            ("::1", "[::1]:53"),
            ("198.18.0.1", "198.18.0.1:53"),
            ("198.18.0.1:5353", "198.18.0.1:5353"),
        ] {
            assert_eq!(text.parse(), Ok(Server::Address(address.parse().unwrap())), "{text}");
            assert_eq!(parse_address(text).unwrap().to_string(), address);
        }
        for (text, name, port) in [
            ("localhost", "localhost", 53),
            ("localhost:5353", "localhost", 5353),
            ("ns1.example.org.", "ns1.example.org.", 53),
        ] {
            assert_eq!(text.parse(), Ok(Server::Name(name.into(), port)), "{text}");
            assert!(parse_address(text).unwrap_err().contains("[::1]:5353"));
        }
        for wrong in [
            "",
            ":53",
            ":99999",
            "localhost:99999",
            "localhost:",
            "256.1.1.1",
            "1.2.3",
            "[198.18.0.1]",
            "::g",
            "a b",
            "[::1",
        ] {
            assert!(
                wrong.parse::<Server>().unwrap_err().contains("[2001:2::1]:5353"),
                "{wrong} was accepted"
            );
        }
    }

    #[test]
    fn times_as_people_write_them() {
        for (text, ms) in [
            ("10s", 10_000),
            ("10", 10_000),
            ("0.25", 250),
            ("250ms", 250),
            ("1m 5s", 65_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for wrong in ["", "-1", "ten", "10 parsecs", "NaN", "inf", "1e40"] {
            assert!(parse_time(wrong).unwrap_err().contains("10s, 250ms"), "{wrong}");
        }
        assert!(parse_some_time("0").is_err() && parse_some_time("10ms").is_ok());
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse_cpus("0,2-4").unwrap().0, [0, 2, 3, 4].map(CpuId));
        assert!(parse_cpus("4-2").is_err() && parse_cpus("a").is_err() && parse_cpus("").is_err());
        assert_eq!(parse_delay("10ms-50ms").unwrap().max, Duration::from_millis(50));
        assert!(parse_delay("50ms-10ms").is_err() && parse_delay("10").is_err());
    }
}
