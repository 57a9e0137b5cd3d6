//! Borrowed parsing of DNS messages (RFC 1035 §4.1) for the hot path: no copies, no allocation, and
//! no input causes a panic or an endless loop.

use std::cell::Cell;
use std::ops::Range;

use crate::rcode::Rcode;
use crate::template::HEADER_LEN;

/// Record types that occur in a DNS64 benchmark.
pub mod rtype {
    #![allow(missing_docs)]
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const AAAA: u16 = 28;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const NSEC3: u16 = 50;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const TSIG: u16 = 250;
    pub const ANY: u16 = 255;
}

/// Class IN.
pub const CLASS_IN: u16 = 1;

/// The message violates the format of RFC 1035.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed DNS message")]
pub struct Malformed;

/// A DNS message in wire format, which contains at least a complete header.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Interprets `bytes` as a message. Returns `None` if the header is incomplete.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Option<Message<'a>> {
        (bytes.len() >= HEADER_LEN).then_some(Message { bytes })
    }

    fn field(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns the message id, which links a reply to its query.
    #[inline]
    pub fn id(&self) -> u16 {
        self.field(0)
    }
    /// True if the message is a response (QR bit).
    #[inline]
    pub fn is_response(&self) -> bool {
        self.bytes[2] & 0x80 != 0
    }
    /// Returns the opcode, 0 to 15; 0 is a query (RFC 1035 §4.1.1).
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.bytes[2] >> 3 & 0xf
    }
    /// True if the message was truncated (TC bit, RFC 1035 §4.1.1).
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.bytes[2] & 0x02 != 0
    }
    /// Returns the RCODE in the header. If the RCODE is extended, these are its lower four bits.
    #[inline]
    pub fn rcode(&self) -> Rcode {
        Rcode::new(u16::from(self.bytes[3] & 0xf))
    }
    /// Returns the number of questions according to the header.
    #[inline]
    pub fn qdcount(&self) -> u16 {
        self.field(4)
    }
    /// Returns the number of answer records according to the header.
    #[inline]
    pub fn ancount(&self) -> u16 {
        self.field(6)
    }
    /// Returns the number of authority records according to the header.
    #[inline]
    pub fn nscount(&self) -> u16 {
        self.field(8)
    }
    /// Returns the number of additional records according to the header.
    #[inline]
    pub fn arcount(&self) -> u16 {
        self.field(10)
    }

    /// Returns the length of the message in octets.
    #[inline]
    pub fn octets(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `count` records, starting at `offset`.
    pub fn records(&self, offset: usize, count: u16) -> Records<'a> {
        Records { bytes: self.bytes, at: offset, left: count }
    }

    /// Returns the records of all sections, starting at `offset`. At most 65 535 records are returned,
    /// which is more than fit into a message.
    pub fn all_records(&self, offset: usize) -> Records<'a> {
        let count = self.ancount().saturating_add(self.nscount()).saturating_add(self.arcount());
        self.records(offset, count)
    }

    /// Returns the offset after the last record of the message, or `None` if the message is
    /// incomplete or malformed.
    pub fn end(&self) -> Option<usize> {
        let questions = (0..self.qdcount())
            .try_fold(HEADER_LEN, |at, _| self.skip_name(at).ok().map(|end| end + 4))?;
        let mut records = self.all_records(questions);
        records.by_ref().try_for_each(|record| record.map(drop)).ok()?;
        Some(records.offset()).filter(|end| *end <= self.bytes.len())
    }

    /// Returns the offset after the name at `offset`.
    ///
    /// # Errors
    /// Returns an error if the name does not end within the message.
    pub fn skip_name(&self, offset: usize) -> Result<usize, Malformed> {
        skip_name(self.bytes, offset)
    }

    /// Returns the offset after the character string at `offset`, which must end at or before `end`
    /// (RFC 1035 §3.3).
    pub(crate) fn skip_string(&self, offset: usize, end: usize) -> Result<usize, Malformed> {
        let len = usize::from(*self.bytes.get(offset).filter(|_| offset < end).ok_or(Malformed)?);
        Some(offset + 1 + len).filter(|after| *after <= end).ok_or(Malformed)
    }

    /// True only if the name at `offset` has no compression pointer. The result is also false if the last label ends in
    /// an octet above 0xbf, because that octet could begin a pointer.
    fn is_plain_name(&self, offset: usize) -> bool {
        let Ok(end) = skip_name(self.bytes, offset) else { return false };
        self.bytes[end - 1] == 0 && (end - offset == 1 || self.bytes[end - 2] < 0xc0)
    }

    /// True if there is a compression pointer to `target` at offset `at`. A pointer contains a 14-bit offset, so it can
    /// lead only to the first 16 384 octets.
    #[inline]
    fn is_pointer_to(&self, at: usize, target: usize) -> bool {
        target <= MAX_TARGET
            && self.bytes.get(at..at + 2) == Some(&(0xc000 | target as u16).to_be_bytes())
    }

    /// Returns a reader of names that bounds the total work for all names of this message.
    pub fn names(&self) -> NameReader<'a> {
        NameReader { message: *self, hops: Cell::new(self.bytes.len() as u32) }
    }

    /// Copies the name at `offset` into `out`, uncompressed and with its root label. Returns the
    /// name's length.
    ///
    /// # Errors
    /// Returns an error if the name is malformed or longer than 255 octets.
    pub fn copy_name(&self, offset: usize, out: &mut [u8; 255]) -> Result<usize, Malformed> {
        copy_name(Labels::new(self.bytes, offset, &Cell::new(MAX_HOPS)), out)
    }

    /// Compares the names at two offsets, ignoring letter case.
    ///
    /// # Errors
    /// Returns an error if either name is malformed.
    #[inline]
    pub fn same_name(&self, a: usize, b: usize) -> Result<bool, Malformed> {
        self.same_name_within(a, b, &Cell::new(2 * MAX_HOPS))
    }

    fn same_name_within(&self, a: usize, b: usize, hops: &Cell<u32>) -> Result<bool, Malformed> {
        // Most owner names are a pointer to the name in the question, and most comparisons are between
        // such an owner name and the name in the question.
        if b < a && self.is_pointer_to(a, b) && self.is_plain_name(b) {
            return Ok(true);
        }
        let (mut a, mut b) = (Labels::new(self.bytes, a, hops), Labels::new(self.bytes, b, hops));
        loop {
            match (a.next_label()?, b.next_label()?) {
                (None, None) => return Ok(true),
                (Some(x), Some(y)) if x.eq_ignore_ascii_case(y) => {}
                _ => return Ok(false),
            }
        }
    }
}

/// Maximum target offset of a compression pointer.
const MAX_TARGET: usize = 0x3fff;

/// Maximum number of compression pointers in one name. It equals the maximum number of labels
/// (RFC 1035 §2.3.4), because every useful pointer leads to a label.
const MAX_HOPS: u32 = 127;

fn copy_name(mut labels: Labels<'_, '_>, out: &mut [u8; 255]) -> Result<usize, Malformed> {
    let mut len = 0;
    while let Some(label) = labels.next_label()? {
        // `Labels` rejects names that are too long, so `out` has room for all labels and the root label.
        out[len] = label.len() as u8;
        out[len + 1..=len + label.len()].copy_from_slice(label);
        len += 1 + label.len();
    }
    out[len] = 0;
    Ok(len + 1)
}

/// Reads the names of one message. The total number of followed compression pointers is limited to
/// the message length in octets.
///
/// A pointer takes two octets and can lead to any earlier offset. A message of 64 KiB can therefore
/// contain a chain of thousands of pointers, and thousands of names that each lead through this
/// whole chain.
/// With a limit per name only, the work for such a message would be the product of both numbers.
pub struct NameReader<'a> {
    message: Message<'a>,
    hops: Cell<u32>,
}

impl<'a> NameReader<'a> {
    /// Copies a name in the same way as [`Message::copy_name`]. The followed compression pointers count against the
    /// pointer limit of the message.
    ///
    /// # Errors
    /// Returns an error if the name is malformed, or the pointer limit of the message is exceeded.
    pub fn copy_name(&self, offset: usize, out: &mut [u8; 255]) -> Result<usize, Malformed> {
        copy_name(self.labels(offset), out)
    }

    /// Compares two names in the same way as [`Message::same_name`]. The followed compression pointers count against
    /// the pointer limit of the message.
    ///
    /// # Errors
    /// Returns an error if either name is malformed, or the pointer limit of the message is
    /// exceeded.
    #[inline]
    pub fn same_name(&self, a: usize, b: usize) -> Result<bool, Malformed> {
        self.message.same_name_within(a, b, &self.hops)
    }

    /// True if `places` accepts all octets of the name at `name`, including those reached by compression pointers.
    /// `places` is called once per contiguous octet range of the name. A range begins at the start of the name or at a
    /// pointer's target. It ends after the next pointer or root label.
    ///
    /// # Errors
    /// Returns an error if the name is malformed, or the pointer limit of the message is exceeded.
    pub fn octets_lie_in(
        &self,
        name: usize,
        places: impl Fn(&Range<usize>) -> bool,
    ) -> Result<bool, Malformed> {
        let mut labels = self.labels(name);
        let mut lies = true;
        loop {
            let from = labels.at;
            let (end, is_end) = loop {
                match labels.step()? {
                    NamePart::Label(_) => {}
                    NamePart::Pointer(octets) => break (octets.end, false),
                    NamePart::Root(octets) => break (octets.end, true),
                }
            };
            lies &= places(&(from..end));
            if is_end {
                return Ok(lies);
            }
        }
    }

    fn labels(&self, at: usize) -> Labels<'a, '_> {
        Labels::new(self.message.bytes, at, &self.hops)
    }
}

/// A resource record within a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of the owner name in the message.
    pub owner: usize,
    /// Record type ([`rtype`]).
    pub rtype: u16,
    /// Class; for OPT the sender's UDP payload size.
    pub class: u16,
    /// TTL in seconds; for OPT the extended rcode, version and flags.
    pub ttl: u32,
    /// Offset of the data in the message, needed to read names in the data.
    pub data_at: usize,
    /// Record data; names in it may be compressed.
    pub data: &'a [u8],
}

impl Record<'_> {
    /// Returns the octet range of the owner name, including a compression pointer at its end.
    #[inline]
    pub fn owner_octets(&self) -> Range<usize> {
        self.owner..self.data_at - FIXED_LEN
    }

    /// Returns the offset of the TTL's four octets in the message.
    #[inline]
    pub fn ttl_at(&self) -> usize {
        self.data_at - 6
    }
}

/// Iterator over records; ends after the first malformed one.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u16,
}

impl Records<'_> {
    /// Returns the offset of the next record.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let record = parse_record(self.bytes, self.at);
        match record {
            Ok(record) => self.at = record.data_at + record.data.len(),
            Err(Malformed) => self.left = 0,
        }
        Some(record)
    }
}

/// Number of octets between the owner and the data of a record: type, class, TTL, data length.
const FIXED_LEN: usize = 10;

#[inline]
fn parse_record(bytes: &[u8], owner: usize) -> Result<Record<'_>, Malformed> {
    let fixed = skip_name(bytes, owner)?;
    let f: &[u8; FIXED_LEN] =
        bytes.get(fixed..).and_then(|rest| rest.first_chunk()).ok_or(Malformed)?;
    let data_at = fixed + FIXED_LEN;
    let len = usize::from(u16::from_be_bytes([f[8], f[9]]));
    Ok(Record {
        owner,
        rtype: u16::from_be_bytes([f[0], f[1]]),
        class: u16::from_be_bytes([f[2], f[3]]),
        ttl: u32::from_be_bytes([f[4], f[5], f[6], f[7]]),
        data_at,
        data: bytes.get(data_at..data_at + len).ok_or(Malformed)?,
    })
}

#[inline]
fn skip_name(bytes: &[u8], mut offset: usize) -> Result<usize, Malformed> {
    let start = offset;
    loop {
        let len = *bytes.get(offset).ok_or(Malformed)?;
        match len {
            0 => return Ok(offset + 1),
            1..=63 => offset += 1 + usize::from(len),
            0xc0..=0xff if offset + 1 < bytes.len() => return Ok(offset + 2),
            _ => return Err(Malformed),
        }
        if offset - start > 254 {
            return Err(Malformed);
        }
    }
}

/// Iterator that returns the labels of a name and follows compression pointers. Every pointer must lead to an offset
/// before the current part of the name, so that every chain of pointers ends. The offset must also be past the header,
/// which contains no names (RFC 1035 §4.1.4). `hops` is the number of pointers that may still be followed.
struct Labels<'a, 'h> {
    bytes: &'a [u8],
    at: usize,
    part: usize,
    len: usize,
    hops: &'h Cell<u32>,
}

impl<'a, 'h> Labels<'a, 'h> {
    fn new(bytes: &'a [u8], at: usize, hops: &'h Cell<u32>) -> Self {
        Labels { bytes, at, part: at, len: 0, hops }
    }

    /// Returns the next label, or `None` at the root.
    #[inline]
    fn next_label(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        loop {
            match self.step()? {
                NamePart::Label(octets) => return Ok(self.bytes.get(octets.start + 1..octets.end)),
                NamePart::Pointer(_) => {}
                NamePart::Root(_) => return Ok(None),
            }
        }
    }

    /// Returns the next part of the name with its octet range.
    #[inline]
    fn step(&mut self) -> Result<NamePart, Malformed> {
        let at = self.at;
        let len = *self.bytes.get(at).ok_or(Malformed)?;
        match len {
            0 => Ok(NamePart::Root(at..at + 1)),
            1..=63 => {
                self.at = at + 1 + usize::from(len);
                self.len += 1 + usize::from(len);
                if self.len > 254 || self.at > self.bytes.len() {
                    return Err(Malformed);
                }
                Ok(NamePart::Label(at..self.at))
            }
            0xc0..=0xff => {
                let low = *self.bytes.get(at + 1).ok_or(Malformed)?;
                let target = usize::from(u16::from_be_bytes([len & 0x3f, low]));
                if target >= self.part || target < HEADER_LEN {
                    return Err(Malformed);
                }
                self.hops.set(self.hops.get().checked_sub(1).ok_or(Malformed)?);
                (self.at, self.part) = (target, target);
                Ok(NamePart::Pointer(at..at + 2))
            }
            _ => Err(Malformed),
        }
    }
}

/// A part of a name with its octet range.
enum NamePart {
    /// A label with its length.
    Label(Range<usize>),
    /// A compression pointer, two octets (RFC 1035 §4.1.4).
    Pointer(Range<usize>),
    /// The root label at the end of a name.
    Root(Range<usize>),
}

#[cfg(test)]
mod tests;
