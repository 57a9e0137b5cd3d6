//! Structure of the record data of each type, used to check its length and to find the domain names
//! in it.
//!
//! Data of unknown types is opaque (RFC 3597 §3): it contains no compressed names, and any length
//! is valid.

use std::ops::Range;

use crate::view::{CLASS_IN, Malformed, Message, Record, rtype};

/// Structure of the record data of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DataForm {
    /// Number of octets before the first domain name in the record data.
    before: usize,
    /// Number of character strings before the first domain name in the record data (RFC 1035 §3.3).
    strings: usize,
    names: usize,
    after: Trailing,
}

/// Structure of the part of the record data that follows the domain names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trailing {
    /// Data of exactly this number of octets.
    Octets(usize),
    /// Data of any length.
    Any,
    /// Character strings up to the end of the data.
    Strings,
}

/// Returns the structure of a record's data, as defined by the RFC for its type.
#[inline]
fn form(record: &Record<'_>) -> DataForm {
    let form = |before, names, after| DataForm { before, strings: 0, names, after };
    match record.rtype {
        rtype::A if record.class == CLASS_IN => form(4, 0, Trailing::Octets(0)),
        rtype::AAAA if record.class == CLASS_IN => form(16, 0, Trailing::Octets(0)),
        // NS, MD, MF, CNAME, MB, MG, MR, PTR (RFC 1035 §3.3); DNAME (RFC 6672 §2.1).
        2..=5 | 7..=9 | rtype::PTR | rtype::DNAME => form(0, 1, Trailing::Octets(0)),
        rtype::SOA => form(0, 2, Trailing::Octets(20)),
        // HINFO, TXT (RFC 1035 §3.3), SPF (RFC 7208 §3.1).
        13 => DataForm { before: 0, strings: 2, names: 0, after: Trailing::Octets(0) },
        16 | 99 => DataForm { before: 0, strings: 1, names: 0, after: Trailing::Strings },
        // MINFO (RFC 1035 §3.3.7), RP (RFC 1183 §2.2).
        14 | 17 => form(0, 2, Trailing::Octets(0)),
        // MX (RFC 1035 §3.3.9), AFSDB, RT (RFC 1183 §1, §3.3), KX (RFC 2230 §3).
        15 | 18 | 21 | 36 => form(2, 1, Trailing::Octets(0)),
        // PX (RFC 2163 §4).
        26 => form(2, 2, Trailing::Octets(0)),
        // SRV (RFC 2782).
        33 => form(6, 1, Trailing::Octets(0)),
        // NAPTR (RFC 3403 §4.1).
        35 => DataForm { before: 4, strings: 3, names: 1, after: Trailing::Octets(0) },
        // SIG (RFC 2931 §3), RRSIG (RFC 4034 §3.1).
        24 | rtype::RRSIG => form(18, 1, Trailing::Any),
        // NXT (RFC 2535 §5.2), NSEC (RFC 4034 §4.1).
        30 | 47 => form(0, 1, Trailing::Any),
        // DS, DNSKEY, CDS, CDNSKEY (RFC 4034 §2.1, §5.1; RFC 7344 §3).
        rtype::DS | 48 | 59 | 60 => form(4, 0, Trailing::Any),
        // SVCB, HTTPS (RFC 9460 §2.2).
        64 | 65 => form(2, 1, Trailing::Any),
        _ => form(0, 0, Trailing::Any),
    }
}

impl Message<'_> {
    /// Checks the structure of a record's data. Passes the octet range of each name in the data to `on_name`. The range
    /// of a name includes its compression pointer.
    ///
    /// # Errors
    /// Returns an error if the length of the data is invalid for its type, or if a name extends beyond
    /// the data.
    #[inline]
    pub fn check_data(
        &self,
        record: &Record<'_>,
        mut on_name: impl FnMut(Range<usize>),
    ) -> Result<(), Malformed> {
        let form = form(record);
        let end = record.data_at + record.data.len();
        let mut at = record.data_at + form.before;
        for _ in 0..form.strings {
            at = self.skip_string(at, end)?;
        }
        for _ in 0..form.names {
            if at >= end {
                return Err(Malformed);
            }
            let start = at;
            at = self.skip_name(start)?;
            on_name(start..at);
        }
        match form.after {
            Trailing::Octets(octets) => at += octets,
            Trailing::Any if at <= end => at = end,
            Trailing::Any => {}
            Trailing::Strings => {
                while at < end {
                    at = self.skip_string(at, end)?;
                }
            }
        }
        if at == end { Ok(()) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::HEADER_LEN;

    /// Returns a message with one record of this type and data. The root is both the record's owner name
    /// and the name in the question.
    fn message(rtype: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0];
        bytes.extend(rtype.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn names(rtype: u16, data: &[u8]) -> Result<Vec<usize>, Malformed> {
        names_in(&message(rtype, data))
    }

    fn names_in(bytes: &[u8]) -> Result<Vec<usize>, Malformed> {
        let message = Message::new(bytes).unwrap();
        let record = message.all_records(HEADER_LEN + 5).next().unwrap()?;
        let mut names = Vec::new();
        message.check_data(&record, |name| names.push(name.start - record.data_at))?;
        Ok(names)
    }

    #[test]
    fn data_has_the_form_of_its_type() {
        let soa = [&b"\x01a\0\xc0\x0c"[..], &[0; 20]].concat();
        let rrsig = [&[0; 18][..], b"\x01a\0", b"signature"].concat();
        let good: &[(u16, &[u8], &[usize])] = &[
            (rtype::A, &[1, 2, 3, 4], &[]),
            (rtype::AAAA, &[0; 16], &[]),
            (rtype::NS, b"\x01a\0", &[0]),
            (rtype::CNAME, &[0xc0, 12], &[0]),
            (rtype::DNAME, b"\0", &[0]),
            (rtype::SOA, &soa, &[0, 3]),
            (14, b"\x01a\0\xc0\x0c", &[0, 3]),
            (17, b"\0\0", &[0, 1]),
            (15, b"\0\x0a\x01a\xc0\x0c", &[2]),
            (26, b"\0\x0a\x01a\0\xc0\x0c", &[2, 5]),
            (16, b"\x03abc\0", &[]),
            (13, b"\x01a\x01b", &[]),
            (33, b"\0\0\0\0\0\x35\x01a\0", &[6]),
            (35, b"\0\0\0\0\x01u\0\0\0", &[8]),
            (rtype::RRSIG, &rrsig, &[18]),
            (30, b"\x01a\0bits", &[0]),
            (47, b"\x01a\0bits", &[0]),
            (65, b"\0\x01\0\0\x01\0\x02h2", &[2]),
            (65_280, b"anything", &[]),
        ];
        for (rtype, data, places) in good {
            assert_eq!(names(*rtype, data).as_deref(), Ok(*places), "type {rtype}");
            if *rtype == 65_280 {
                continue;
            }
            let longer = [data, &[0xee][..]].concat();
            let takes_more = matches!(*rtype, rtype::RRSIG | 30 | 47 | 65);
            assert_eq!(names(*rtype, &longer).is_ok(), takes_more, "type {rtype}, an octet more");
            let shorter = &data[..data.len() - 1];
            let takes_less = matches!(*rtype, rtype::RRSIG | 30 | 47 | 65 | 16);
            assert_eq!(names(*rtype, shorter).is_ok(), takes_less, "type {rtype}, an octet less");
        }
        for rtype in [rtype::DS, 48, 59, 60] {
            assert_eq!(names(rtype, &[0, 1, 8, 2]).as_deref(), Ok(&[][..]), "type {rtype}");
            assert_eq!(names(rtype, b"\0\x01\x08\x02digest").as_deref(), Ok(&[][..]));
            assert_eq!(names(rtype, &[0, 1, 8]), Err(Malformed), "type {rtype}, cut off");
        }
        assert_eq!(names(rtype::A, &[1, 2, 3, 4, 5]), Err(Malformed), "an address of five octets");
        assert_eq!(names(rtype::CNAME, b""), Err(Malformed), "no name");
        assert_eq!(names(16, b""), Err(Malformed), "no string");
    }

    /// A and AAAA data is checked only in class IN, because these types have different meanings in other classes.
    #[test]
    fn addresses_of_other_classes_are_opaque() {
        for (rtype, data) in [(rtype::A, &b"\x01a\0\0\x07"[..]), (rtype::AAAA, b"anything")] {
            let mut chaos = message(rtype, data);
            let class = HEADER_LEN + 5 + 1 + 2;
            chaos[class..class + 2].copy_from_slice(&[0, 3]);
            assert_eq!(names_in(&chaos).as_deref(), Ok(&[][..]));
            assert_eq!(names(rtype, data), Err(Malformed));
        }
    }
}
