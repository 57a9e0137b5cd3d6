//! The additional section of queries: EDNS (RFC 6891) with its options, and a signature (RFC 8945).

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use wire::edns::{put_opt, put_option_header};
use wire::rcode::Rcode;
use wire::tsig::{Key, Mac};

/// Codes of EDNS options in the IANA registry.
const NSID: u16 = 3;
const CLIENT_SUBNET: u16 = 8;

/// EDNS parameters of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edns {
    /// Maximum size of a UDP response in octets.
    pub size: u16,
    /// True if DNSSEC records are requested (DO).
    pub dnssec_ok: bool,
    /// Options of the OPT record, in the order of sending.
    pub options: Vec<EdnsOption>,
}

/// An EDNS option: its code and the octets of its value (RFC 6891 §6.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdnsOption {
    code: u16,
    value: Vec<u8>,
}

/// Text that is not an EDNS option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an EDNS option; write its code and its value in hexadecimal, for example 10:0102030405060708"
)]
pub struct OptionError(String);

impl EdnsOption {
    /// Creates the option that requests the server identifier (RFC 5001).
    pub fn nsid() -> EdnsOption {
        EdnsOption { code: NSID, value: Vec::new() }
    }

    /// Creates the option with a client subnet (RFC 7871 §6).
    pub fn client_subnet(network: IpNet) -> EdnsOption {
        let (family, address) = match network.network() {
            IpAddr::V4(address) => (1u16, address.octets().to_vec()),
            IpAddr::V6(address) => (2, address.octets().to_vec()),
        };
        let mut value = family.to_be_bytes().to_vec();
        value.extend([network.prefix_len(), 0]);
        value.extend(&address[..usize::from(network.prefix_len()).div_ceil(8)]);
        EdnsOption { code: CLIENT_SUBNET, value }
    }
}

impl FromStr for EdnsOption {
    type Err = OptionError;

    /// Parses an EDNS option in dnsperf's format `code:value`.
    fn from_str(s: &str) -> Result<EdnsOption, OptionError> {
        let bad = || OptionError(s.into());
        let (code, value) = s.split_once(':').unwrap_or((s, ""));
        let digits = value.as_bytes().chunks(2);
        let octet = |pair: &[u8]| {
            let whole = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
            let text = whole.then(|| str::from_utf8(pair).ok()).flatten().ok_or_else(bad)?;
            u8::from_str_radix(text, 16).map_err(|_| bad())
        };
        let value = digits.map(octet).collect::<Result<Vec<_>, _>>()?;
        Ok(EdnsOption { code: code.parse().map_err(|_| bad())?, value })
    }
}

/// The additional section of each query: the OPT record if EDNS is enabled, and a TSIG record if there is a key.
#[derive(Clone, Debug, Default)]
pub struct Additional {
    /// OPT record in wire format; empty without EDNS.
    opt: Vec<u8>,
    key: Option<Key>,
    /// Offset in seconds that is added to the time in signatures.
    skew: i64,
}

impl Additional {
    /// Creates the additional section with an OPT record if `edns` is given, and a signature if `key` is given. `skew`
    /// is a number of seconds that is added to the time in the signature, for tests.
    pub fn new(edns: Option<&Edns>, key: Option<Key>, skew: i64) -> Additional {
        let mut opt = Vec::new();
        if let Some(edns) = edns {
            let mut options = Vec::new();
            for option in &edns.options {
                put_option_header(&mut options, option.code, option.value.len());
                options.extend(&option.value);
            }
            put_opt(&mut opt, edns.size, Rcode::NOERROR, edns.dnssec_ok, &options);
        }
        Additional { opt, key, skew }
    }

    /// Returns the key with which replies must be signed; `None` if queries are not signed.
    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Completes the query that begins at offset `start` of `out`: sets its id, and adds the OPT record and the
    /// signature. Returns the MAC of the signature.
    #[inline]
    pub(super) fn complete(
        &self,
        out: &mut Vec<u8>,
        start: usize,
        id: u16,
        unix_seconds: u64,
    ) -> Mac {
        out[start..start + 2].copy_from_slice(&id.to_be_bytes());
        if !self.opt.is_empty() {
            out[start + 11] += 1;
            out.extend_from_slice(&self.opt);
        }
        match &self.key {
            Some(key) => key.sign(out, start, unix_seconds.saturating_add_signed(self.skew)),
            None => Mac::EMPTY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::base::Message;
    use domain::base::opt::{ClientSubnet, Nsid};

    #[test]
    fn domain_reads_the_options() {
        let options = vec![
            EdnsOption::nsid(),
            EdnsOption::client_subnet("192.0.2.77/20".parse().unwrap()),
            "65001:00fF".parse().unwrap(),
        ];
        let additional =
            Additional::new(Some(&Edns { size: 1232, dnssec_ok: true, options }), None, 0);
        let mut query = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
        additional.complete(&mut query, 0, 0x1234, 0);
        let message = Message::from_octets(&query[..]).unwrap();
        assert_eq!(message.header().id(), 0x1234);
        let opt = message.opt().unwrap();
        assert_eq!((opt.udp_payload_size(), opt.dnssec_ok()), (1232, true));
        assert!(opt.opt().iter::<Nsid<_>>().next().unwrap().is_ok());
        let subnet = opt.opt().iter::<ClientSubnet>().next().unwrap().unwrap();
        assert_eq!((subnet.source_prefix_len(), subnet.addr()), (20, "192.0.0.0".parse().unwrap()));
        assert!(query.ends_with(&[0xfd, 0xe9, 0, 2, 0, 0xff]));
    }

    #[test]
    fn bad_options_are_rejected() {
        for bad in ["x:00", "1:0", "1:0g", "70000:00", ":", "1:+1"] {
            assert!(bad.parse::<EdnsOption>().is_err(), "{bad} was accepted");
        }
        assert_eq!("12:".parse::<EdnsOption>().unwrap(), "12".parse().unwrap());
    }
}
