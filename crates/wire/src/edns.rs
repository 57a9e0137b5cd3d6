//! The OPT record (RFC 6891 §6.1): reading and writing.

use crate::rcode::Rcode;
use crate::view::{Malformed, Record, rtype};

/// UDP payload size in octets that is announced in OPT records, and maximum size of sent messages.
/// Almost no path fragments datagrams of this size (RFC 9715 §3.1, DNS flag day 2020).
pub const UDP_PAYLOAD: usize = 1232;
/// UDP payload size in octets that every receiver supports (RFC 1035 §2.3.4).
pub const LEAST_PAYLOAD: usize = 512;
/// Length of an OPT record without options, in octets.
pub const OPT_LEN: usize = 11;

/// The DO bit among the flags in the TTL field (RFC 3225 §3).
const DO: u32 = 0x8000;

/// Codes of the EDNS options used in this project (RFC 6891 §6.1.2 and its registry).
pub mod option {
    /// Cookie (RFC 7873).
    pub const COOKIE: u16 = 10;
    /// Keepalive of connections (RFC 7828).
    pub const TCP_KEEPALIVE: u16 = 11;
    /// Padding (RFC 7830).
    pub const PADDING: u16 = 12;
    /// Extended error (RFC 8914).
    pub const EXTENDED_ERROR: u16 = 15;
}

/// Codes of extended errors (RFC 8914 §4 and its registry).
pub mod ede {
    /// Stale Answer.
    pub const STALE_ANSWER: u16 = 3;
    /// DNSSEC Indeterminate: validation was not completed.
    pub const DNSSEC_INDETERMINATE: u16 = 5;
    /// DNSSEC Bogus: validation failed.
    pub const DNSSEC_BOGUS: u16 = 6;
    /// Not Ready: the server is not yet able to answer.
    pub const NOT_READY: u16 = 14;
    /// Filtered: a part of the answer is withheld as requested by the client.
    pub const FILTERED: u16 = 17;
    /// Stale NXDOMAIN Answer.
    pub const STALE_NXDOMAIN_ANSWER: u16 = 19;
    /// Prohibited: the client is not authorized.
    pub const PROHIBITED: u16 = 18;
    /// No Reachable Authority.
    pub const NO_REACHABLE_AUTHORITY: u16 = 22;
    /// Network Error: no queried server has answered.
    pub const NETWORK_ERROR: u16 = 23;
    /// Invalid Data: the upstream's data is malformed or contradicts itself.
    pub const INVALID_DATA: u16 = 24;
    /// Synthesized: the answer was synthesized from other records.
    pub const SYNTHESIZED: u16 = 29;

    /// True for the codes that a server sends if it rejected an answer because signatures were invalid or
    /// missing. The codes are 1 and 2 (unsupported algorithm), 5 (indeterminate), 6 (bogus), 7 (signature
    /// expired), 8 (signature not yet valid), 9 to 12 (missing DNSKEY, RRSIG, zone key bit or NSEC),
    /// 25 (signature expired before valid), and 27 (unsupported NSEC3 iterations).
    pub const fn is_validation_failure(code: u16) -> bool {
        matches!(code, 1 | 2 | 5..=12 | 25 | 27)
    }
}

/// Returns the fixed part of an OPT record, including the upper eight bits of `rcode`. `payload` is the sender's UDP
/// payload size in octets. The caller must append `options_len` octets of options.
#[inline]
pub const fn opt_header(
    payload: u16,
    rcode: Rcode,
    dnssec_ok: bool,
    options_len: u16,
) -> [u8; OPT_LEN] {
    let [p0, p1] = payload.to_be_bytes();
    let [l0, l1] = options_len.to_be_bytes();
    let flags = if dnssec_ok { (DO >> 8) as u8 } else { 0 };
    [0, 0, rtype::OPT as u8, p0, p1, rcode.in_opt(), 0, flags, 0, l0, l1]
}

/// Appends an OPT record. `options` is at most 65 535 octets long. The caller increments the
/// header's count of additional records.
pub fn put_opt(out: &mut Vec<u8>, payload: u16, rcode: Rcode, dnssec_ok: bool, options: &[u8]) {
    out.extend(opt_header(payload, rcode, dnssec_ok, options.len() as u16));
    out.extend(options);
}

/// Returns the code and length fields of an option. The caller must append `len` octets of data.
#[inline]
pub const fn option_header(code: u16, len: u16) -> [u8; 4] {
    let ([c0, c1], [l0, l1]) = (code.to_be_bytes(), len.to_be_bytes());
    [c0, c1, l0, l1]
}

/// Appends the code and length fields of an option. The caller then appends `len` octets of data.
pub fn put_option_header(options: &mut Vec<u8>, code: u16, len: usize) {
    options.extend(option_header(code, len as u16));
}

/// A parsed OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt<'a> {
    /// UDP payload size of the sender in octets, as received. The caller must treat values below
    /// 512 as 512 (RFC 6891 §6.2.3).
    pub payload: u16,
    /// The upper eight bits of the RCODE.
    pub rcode_bits: u8,
    /// EDNS version; only 0 is defined.
    pub version: u8,
    /// DO bit: the sender requests signatures.
    pub dnssec_ok: bool,
    options: &'a [u8],
}

impl<'a> Opt<'a> {
    /// Parses an OPT record. Returns `None` if the record has a different type.
    #[inline]
    pub fn from_record(record: &Record<'a>) -> Option<Opt<'a>> {
        let [rcode_bits, version, ..] = record.ttl.to_be_bytes();
        (record.rtype == rtype::OPT).then_some(Opt {
            payload: record.class,
            rcode_bits,
            version,
            dnssec_ok: record.ttl & DO != 0,
            options: record.data,
        })
    }

    /// Returns the code and data of each option. A truncated option yields an error and ends the
    /// iteration.
    pub fn options(&self) -> impl Iterator<Item = Result<(u16, &'a [u8]), Malformed>> + use<'a> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let option = match rest {
                [c0, c1, l0, l1, after @ ..] => after
                    .split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))
                    .map(|(data, after)| {
                        rest = after;
                        (u16::from_be_bytes([*c0, *c1]), data)
                    }),
                _ => None,
            };
            if option.is_none() {
                rest = &[];
            }
            Some(option.ok_or(Malformed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Message;
    use domain::base::Message as DomainMessage;
    use proptest::prelude::*;

    fn message(opt: &[u8]) -> Vec<u8> {
        [&[0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1], opt].concat()
    }

    /// Codes from RFC 8914 §4 and its registry.
    #[test]
    fn validation_failures_among_extended_errors() {
        let failures = [1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 25, 27];
        for code in 0..40 {
            assert_eq!(ede::is_validation_failure(code), failures.contains(&code), "{code}");
        }
    }

    #[test]
    fn an_option_begins_with_its_code_and_its_length() {
        let mut options = vec![7];
        put_option_header(&mut options, option::EXTENDED_ERROR, 0x0203);
        assert_eq!(options, [7, 0, 15, 2, 3]);
        assert_eq!(option_header(0x0a0b, 0x0c0d), [10, 11, 12, 13]);
    }

    proptest! {
        #[test]
        fn domain_reads_written_opt_records(payload: u16, code in 0u16..4096, dnssec_ok: bool, data: [u8; 5]) {
            let rcode = Rcode::new(code);
            let mut opt = Vec::new();
            put_opt(&mut opt, payload, rcode, dnssec_ok, &[&[0, 10, 0, 5][..], &data].concat());
            let mut bytes = message(&opt);
            bytes[3] |= rcode.in_header();
            let theirs = DomainMessage::from_octets(&bytes[..]).unwrap();
            let read = theirs.opt().unwrap();
            prop_assert_eq!((read.udp_payload_size(), read.dnssec_ok(), read.version()), (payload, dnssec_ok, 0));
            prop_assert_eq!(theirs.opt_rcode().to_int(), code);

            let view = Message::new(&bytes).unwrap();
            let record = view.all_records(12).next().unwrap().unwrap();
            let ours = Opt::from_record(&record).unwrap();
            prop_assert_eq!((ours.payload, ours.dnssec_ok, ours.version), (payload, dnssec_ok, 0));
            prop_assert_eq!(ours.rcode_bits, rcode.in_opt());
            prop_assert_eq!(ours.options().collect::<Vec<_>>(), vec![Ok((10, &data[..]))]);
        }

        #[test]
        fn options_that_are_cut_off_are_errors(data in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = message(&opt_header(512, Rcode::NOERROR, false, data.len() as u16));
            bytes.extend(&data);
            let record = Message::new(&bytes).unwrap().all_records(12).next().unwrap().unwrap();
            let read: Vec<_> = Opt::from_record(&record).unwrap().options().collect();
            let octets: usize = read.iter().flatten().map(|(_, data)| 4 + data.len()).sum();
            prop_assert_eq!(octets == data.len(), read.iter().all(Result::is_ok));
        }
    }
}
