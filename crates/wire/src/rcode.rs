//! RCODEs (RFC 1035 §4.1.1, RFC 6891 §6.1.3).

use std::fmt;

/// Response code: 12 bits, of which the lower four are in the header and the upper eight in OPT.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rcode(u16);

impl Rcode {
    /// No error. The answer may contain no records of the requested type.
    pub const NOERROR: Rcode = Rcode(0);
    /// The query is malformed.
    pub const FORMERR: Rcode = Rcode(1);
    /// The server failed.
    pub const SERVFAIL: Rcode = Rcode(2);
    /// The name does not exist.
    pub const NXDOMAIN: Rcode = Rcode(3);
    /// The kind of query is not implemented.
    pub const NOTIMP: Rcode = Rcode(4);
    /// The server refuses to answer.
    pub const REFUSED: Rcode = Rcode(5);
    /// A name exists that should not exist, or the substitution of a DNAME is too long (RFC 6672 §2.2).
    pub const YXDOMAIN: Rcode = Rcode(6);
    /// The EDNS version is not supported (RFC 6891 §9).
    pub const BADVERS: Rcode = Rcode(16);
    /// The server cookie is missing or invalid (RFC 7873 §8).
    pub const BADCOOKIE: Rcode = Rcode(23);

    /// Returns the RCODE with this number; only the lower 12 bits are used.
    #[inline]
    pub const fn new(code: u16) -> Rcode {
        Rcode(code & 0xfff)
    }

    /// Returns the number, 0 to 4 095.
    #[inline]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// Returns an extended RCODE: the lower four bits of this RCODE, and the upper eight bits from the OPT record (RFC
    /// 6891 §6.1.3).
    #[inline]
    pub const fn extended(self, in_opt: u8) -> Rcode {
        Rcode((in_opt as u16) << 4 | self.0 & 0xf)
    }

    /// Returns the RCODE number in one octet. The highest assigned RCODE is 23; numbers above 255 become 255.
    #[inline]
    pub const fn in_octet(self) -> u8 {
        if self.0 > 0xff { 0xff } else { self.0 as u8 }
    }

    /// Returns the lower four bits of the RCODE, which are sent in the message header.
    #[inline]
    pub const fn in_header(self) -> u8 {
        (self.0 & 0xf) as u8
    }

    /// Returns the upper eight bits of the RCODE, which are sent in the OPT record (RFC 6891 §6.1.3). They are zero for
    /// RCODEs that fit into the header.
    #[inline]
    pub(crate) const fn in_opt(self) -> u8 {
        (self.0 >> 4) as u8
    }
}

impl fmt::Debug for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rcode::NOERROR => f.write_str("NOERROR"),
            Rcode::FORMERR => f.write_str("FORMERR"),
            Rcode::SERVFAIL => f.write_str("SERVFAIL"),
            Rcode::NXDOMAIN => f.write_str("NXDOMAIN"),
            Rcode::NOTIMP => f.write_str("NOTIMP"),
            Rcode::REFUSED => f.write_str("REFUSED"),
            Rcode::YXDOMAIN => f.write_str("YXDOMAIN"),
            Rcode::BADVERS => f.write_str("BADVERS"),
            Rcode::BADCOOKIE => f.write_str("BADCOOKIE"),
            Rcode(other) => write!(f, "RCODE{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rcodes_are_shown_by_their_names() {
        let shown = [0, 1, 2, 3, 4, 5, 16, 23, 9].map(|code| format!("{:?}", Rcode::new(code)));
        let names = [
            "NOERROR",
            "FORMERR",
            "SERVFAIL",
            "NXDOMAIN",
            "NOTIMP",
            "REFUSED",
            "BADVERS",
            "BADCOOKIE",
            "RCODE9",
        ];
        assert_eq!(shown, names);
    }

    #[test]
    fn header_and_opt_share_the_bits() {
        assert_eq!((Rcode::BADVERS.in_header(), Rcode::BADVERS.in_opt()), (0, 1));
        for code in 0..0x1fff {
            let rcode = Rcode::new(code);
            assert_eq!(u16::from(rcode.in_opt()) << 4 | u16::from(rcode.in_header()), rcode.code());
            assert_eq!(rcode.code(), code & 0xfff);
            let header = Rcode::new(u16::from(rcode.in_header()));
            assert_eq!(header.extended(rcode.in_opt()), rcode);
            assert_eq!(u16::from(rcode.in_octet()), rcode.code().min(255));
        }
    }
}
