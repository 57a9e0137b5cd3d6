//! Domain names in wire format, what belongs to domains, and the key under which a question is
//! cached.

pub(crate) mod compressor;

use std::borrow::Borrow;
use std::str::FromStr;

use domain::base::Name;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wire::view::rtype;

/// Octets of a name, and of a question, that are kept in place. Few names are longer; they are kept
/// on the heap.
pub(crate) const USUAL_NAME: usize = 64;
const USUAL_KEY: usize = 96;

/// A name in wire format: uncompressed, lower case, with its root label.
#[derive(PartialEq, Eq)]
pub(crate) struct LowerName(SmallVec<[u8; USUAL_NAME]>);

impl Clone for LowerName {
    #[inline]
    fn clone(&self) -> LowerName {
        // All at once, where SmallVec's own way is octet by octet.
        LowerName(SmallVec::from_slice(&self.0))
    }
}

impl LowerName {
    /// The lower-case form of a name that is in wire format and has been checked.
    #[inline]
    pub(crate) fn of_wire(wire: &[u8]) -> LowerName {
        let mut octets: SmallVec<[u8; USUAL_NAME]> = SmallVec::from_slice(wire);
        // Length octets are below 64, so this changes letters of labels only.
        octets.make_ascii_lowercase();
        LowerName(octets)
    }

    /// The name in wire format with its root label, 1 to 255 octets.
    #[inline]
    pub(crate) fn wire(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is `ancestor` or below it.
    pub(crate) fn ends_with(&self, ancestor: &[u8]) -> bool {
        ancestors(self.wire()).any(|suffix| suffix == ancestor)
    }
}

impl std::fmt::Debug for LowerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text(self.wire()))
    }
}

impl FromStr for LowerName {
    type Err = domain::base::name::FromStrError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let name = Name::<Vec<u8>>::from_str(s)?;
        Ok(LowerName::of_wire(name.as_slice()))
    }
}

/// The name in wire format as text, for logs.
pub(crate) fn text(wire: &[u8]) -> String {
    match Name::from_slice(wire) {
        Ok(name) if name.is_root() => ".".into(),
        Ok(name) => format!("{name}."),
        Err(_) => "?".into(),
    }
}

/// The name and all names above it, the root last.
pub(crate) fn ancestors(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(wire);
    std::iter::from_fn(move || {
        let name = rest?;
        rest = match name.first() {
            Some(&len) if len > 0 => name.get(1 + usize::from(len)..),
            _ => None,
        };
        Some(name)
    })
}

/// Whether `name` is `ancestor` or below it, letter case aside.
pub(crate) fn is_at_or_below(name: &[u8], ancestor: &[u8]) -> bool {
    ancestors(name).any(|suffix| suffix.eq_ignore_ascii_case(ancestor))
}

/// Whether two question sections ask the same. Letter case matters in no name; type and class are
/// numbers, and have no letters.
#[inline]
pub(crate) fn is_question(said: &[u8], asked: &[u8]) -> bool {
    let Some(at) = asked.len().checked_sub(4).filter(|_| said.len() == asked.len()) else {
        return false;
    };
    said[at..] == asked[at..] && said[..at].eq_ignore_ascii_case(&asked[..at])
}

/// The labels of a name, without the root's.
pub(crate) fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    ancestors(wire)
        .filter_map(|name| name.split_first())
        .filter(|(len, _)| **len > 0)
        .filter_map(|(len, rest)| rest.get(..usize::from(*len)))
}

/// What belongs to domains: of those that a name is in, the longest counts.
#[derive(Clone, Debug)]
pub(crate) struct DomainTable<T>(FxHashMap<Box<[u8]>, T>);

impl<T> Default for DomainTable<T> {
    fn default() -> DomainTable<T> {
        DomainTable(FxHashMap::default())
    }
}

impl<T> DomainTable<T> {
    /// What belongs to the longest domain that `name` (wire format, lower case) is or is below.
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&T> {
        if self.0.is_empty() {
            return None;
        }
        ancestors(name).find_map(|domain| self.0.get(domain))
    }

    /// True if nothing belongs to any domain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something belongs to this very domain.
    pub(crate) fn has(&self, domain: &LowerName) -> bool {
        self.0.contains_key(domain.wire())
    }

    /// Lets `value` belong to `domain`, in place of what did.
    pub(crate) fn insert(&mut self, domain: &LowerName, value: T) {
        self.0.insert(domain.wire().into(), value);
    }

    /// What belongs to each domain, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

/// What distinguishes one question to upstreams from another: name (lower case), type, class, DO
/// and CD. Questions with DO get signatures, those with CD unvalidated data, so neither may stand
/// for the other. Nor may a probe, which is asked with CD as well, but only to learn what is behind
/// a failure: its answer is of use for that failure alone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Box<[u8]>);

/// A [`Key`] to look with, which for usual names is on the stack.
#[derive(Clone)]
pub struct KeyBuf(SmallVec<[u8; USUAL_KEY]>);

/// Octets of a key behind its name: type (2), class (2), flags (1).
const TAIL: usize = 5;
const DO: u8 = 1;
const CD: u8 = 2;
const PROBE: u8 = 4;

impl std::fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_key().fmt(f)
    }
}

impl KeyBuf {
    /// The key of a question, as tests write it.
    #[cfg(test)]
    pub(crate) fn new(
        name: &LowerName,
        qtype: u16,
        qclass: u16,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> KeyBuf {
        KeyBuf::of_wire(name.wire(), qtype, qclass, dnssec_ok, checking_disabled)
    }

    /// The key of a question for `name`, which is in wire format and lower case; `dnssec_ok` and
    /// `checking_disabled` are the query's DO and CD bits.
    #[inline]
    pub(crate) fn of_wire(
        name: &[u8],
        qtype: u16,
        qclass: u16,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> KeyBuf {
        let ([t0, t1], [c0, c1]) = (qtype.to_be_bytes(), qclass.to_be_bytes());
        let flags = (u8::from(dnssec_ok) * DO) | (u8::from(checking_disabled) * CD);
        let mut octets: SmallVec<[u8; USUAL_KEY]> = SmallVec::from_elem(0, name.len() + TAIL);
        octets[..name.len()].copy_from_slice(name);
        octets[name.len()..].copy_from_slice(&[t0, t1, c0, c1, flags]);
        KeyBuf(octets)
    }

    /// The key of a probe: the question for the AAAA records of a name (wire format, lower case),
    /// with CD, that looks behind a failure.
    pub(crate) fn probe(name: &[u8], qclass: u16, dnssec_ok: bool) -> KeyBuf {
        let mut key = KeyBuf::of_wire(name, rtype::AAAA, qclass, dnssec_ok, true);
        if let Some(flags) = key.0.last_mut() {
            *flags |= PROBE;
        }
        key
    }

    /// As [`Key::of_any_type`], of a key's octets: the same with type 0, which is no type of records
    /// (RFC 6895 §3.1). No other question has it, because clients that ask for it get an error.
    pub(crate) fn of_any_type(octets: &[u8]) -> Option<KeyBuf> {
        let at = octets.len().checked_sub(TAIL)?;
        if octets[octets.len() - 1] & PROBE != 0 {
            return None;
        }
        let mut key = KeyBuf(SmallVec::from_slice(octets));
        key.0[at..at + 2].fill(0);
        Some(key)
    }

    /// The octets, as [`Key`] borrows them.
    #[inline]
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }

    /// The name in wire format, lower case.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - TAIL]
    }

    /// Whether it is a probe.
    #[inline]
    pub(crate) fn is_probe(&self) -> bool {
        self.0[self.0.len() - 1] & PROBE != 0
    }

    /// The type that is asked for (QTYPE).
    pub(crate) fn qtype(&self) -> u16 {
        let at = self.0.len() - TAIL;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Name, type and class as in a question section.
    pub fn question(&self) -> &[u8] {
        let octets = self.octets();
        &octets[..octets.len() - 1]
    }

    /// The key to keep.
    pub(crate) fn to_key(&self) -> Key {
        Key(self.octets().into())
    }
}

impl Key {
    /// The octets, as [`KeyBuf::octets`].
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
    /// The name in wire format, lower case.
    pub(crate) fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - TAIL]
    }
    /// Name, type and class as in a question section.
    pub(crate) fn question(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }
    /// The type that is asked for (QTYPE).
    pub(crate) fn qtype(&self) -> u16 {
        let at = self.0.len() - TAIL;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    /// Whether it is asked with DO, for signatures.
    pub(crate) fn dnssec_ok(&self) -> bool {
        self.0[self.0.len() - 1] & DO != 0
    }
    /// Whether it is asked with CD, for data that nobody has validated.
    pub(crate) fn checking_disabled(&self) -> bool {
        self.0[self.0.len() - 1] & CD != 0
    }
    /// Whether it is a probe.
    #[inline]
    pub(crate) fn is_probe(&self) -> bool {
        self.0[self.0.len() - 1] & PROBE != 0
    }
    /// The key under which it is kept that the name does not exist, whatever type is asked for;
    /// `None` of a probe.
    pub(crate) fn of_any_type(&self) -> Option<KeyBuf> {
        KeyBuf::of_any_type(&self.0)
    }
    /// The memory that it takes on the heap, octets.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags = [(self.dnssec_ok(), " DO"), (self.checking_disabled(), " CD")];
        write!(f, "{} type {}", text(self.name()), self.qtype())?;
        flags.iter().filter(|(is_set, _)| *is_set).try_for_each(|(_, flag)| f.write_str(flag))
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_walked_label_by_label() {
        let name: LowerName = "Www.Example.ORG".parse().unwrap();
        assert_eq!(labels(name.wire()).collect::<Vec<_>>(), [&b"www"[..], b"example", b"org"]);
        assert!(name.ends_with(b"\x07example\x03org\0") && name.ends_with(b"\0"));
        assert!(!name.ends_with(b"\x06xample\x03org\0"));
        assert_eq!(text(name.wire()), "www.example.org.");
    }

    #[test]
    fn the_longest_domain_counts() {
        let name = |text: &str| text.parse::<LowerName>().unwrap();
        let mut table = DomainTable::default();
        assert_eq!(table.get(name("example.org").wire()), None);
        for (domain, value) in [("example.org", 1), ("sub.example.org", 2), ("net", 3)] {
            table.insert(&name(domain), value);
        }
        for (asked, value) in [
            ("example.org", Some(1)),
            ("a.b.Example.org", Some(1)),
            ("sub.example.org", Some(2)),
            ("a.sub.example.org", Some(2)),
            ("notexample.org", None),
            ("org", None),
            ("a.net", Some(3)),
        ] {
            assert_eq!(table.get(name(asked).wire()).copied(), value, "{asked}");
        }
        table.insert(&name("."), 0);
        assert_eq!(table.get(name("org").wire()), Some(&0));
    }

    #[test]
    fn keys_tell_questions_apart() {
        let name: LowerName = "a.test".parse().unwrap();
        let keys = [(28, false, false), (1, false, false), (28, true, false), (28, false, true)]
            .map(|(qtype, d, c)| KeyBuf::new(&name, qtype, 1, d, c));
        let probe = KeyBuf::probe(name.wire(), 1, false);
        assert!(probe.is_probe() && !keys.iter().any(KeyBuf::is_probe));
        let keys: Vec<Key> = keys.iter().chain([&probe]).map(KeyBuf::to_key).collect();
        assert!(
            keys[4].checking_disabled()
                && keys[4].is_probe()
                && keys[4].question() == keys[3].question()
        );
        for (i, a) in keys.iter().enumerate() {
            assert!(keys.iter().enumerate().all(|(j, b)| (i == j) == (a == b)));
        }
        assert_eq!(keys[2].name(), name.wire());
        assert!(keys[2].dnssec_ok() && keys[3].checking_disabled());
        assert_eq!((keys[1].qtype(), keys[1].question().len()), (1, name.wire().len() + 4));
    }
}
