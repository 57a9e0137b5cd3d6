//! Domain names in wire format, tables that assign values to domains, and cache keys of questions.

pub(crate) mod compressor;

use std::borrow::Borrow;
use std::str::FromStr;

use domain::base::Name;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wire::view::rtype;

/// Maximum length of a name that is stored without heap allocation, in octets. Longer names are
/// rare.
pub(crate) const USUAL_NAME: usize = 64;
/// Maximum length of a key that is stored without heap allocation, in octets.
const USUAL_KEY: usize = 96;

/// A name in wire format: uncompressed, lower case, with its root label.
#[derive(PartialEq, Eq)]
pub(crate) struct LowerName(SmallVec<[u8; USUAL_NAME]>);

impl Clone for LowerName {
    #[inline]
    fn clone(&self) -> LowerName {
        // `from_slice` copies all octets at once, whereas the `clone` of SmallVec copies octet by octet.
        LowerName(SmallVec::from_slice(&self.0))
    }
}

impl LowerName {
    /// Returns the lower-case form of a valid name in wire format.
    #[inline]
    pub(crate) fn from_wire(wire: &[u8]) -> LowerName {
        let mut octets: SmallVec<[u8; USUAL_NAME]> = SmallVec::from_slice(wire);
        // Length octets are below 64. They are therefore not letters, and only labels change.
        octets.make_ascii_lowercase();
        LowerName(octets)
    }

    /// Returns the name in wire format with its root label, 1 to 255 octets.
    #[inline]
    pub(crate) fn wire(&self) -> &[u8] {
        &self.0
    }

    /// True if the name is `ancestor` or a name below `ancestor`.
    #[inline]
    pub(crate) fn ends_with(&self, ancestor: &[u8]) -> bool {
        // The last octets can be equal although the labels are not.
        self.wire().ends_with(ancestor) && ancestors(self.wire()).any(|suffix| suffix == ancestor)
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
        Ok(LowerName::from_wire(name.as_slice()))
    }
}

/// Returns the name in presentation format, for logs.
pub(crate) fn text(wire: &[u8]) -> String {
    match Name::from_slice(wire) {
        Ok(name) if name.is_root() => ".".into(),
        Ok(name) => format!("{name}."),
        Err(_) => "?".into(),
    }
}

/// Returns the name and all its ancestors, from the name itself up to the root.
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

/// True if `name` is `ancestor` or a name below `ancestor`. Letter case is ignored.
pub(crate) fn is_at_or_below(name: &[u8], ancestor: &[u8]) -> bool {
    ancestors(name).any(|suffix| suffix.eq_ignore_ascii_case(ancestor))
}

/// True if two question sections are equal. The letter case of names is ignored.
#[inline]
pub(crate) fn is_question(said: &[u8], asked: &[u8]) -> bool {
    let Some(at) = asked.len().checked_sub(4).filter(|_| said.len() == asked.len()) else {
        return false;
    };
    // Most names are in lower case, and equal octets are found faster.
    said == asked || said[at..] == asked[at..] && said[..at].eq_ignore_ascii_case(&asked[..at])
}

/// Returns the labels of a name without the root label.
pub(crate) fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    ancestors(wire)
        .filter_map(|name| name.split_first())
        .filter(|(len, _)| **len > 0)
        .filter_map(|(len, rest)| rest.get(..usize::from(*len)))
}

/// Table of values by domain. A lookup of a name returns the value of the longest domain that contains the name.
#[derive(Clone, Debug)]
pub(crate) struct DomainTable<T>(FxHashMap<Box<[u8]>, T>);

impl<T> Default for DomainTable<T> {
    fn default() -> DomainTable<T> {
        DomainTable(FxHashMap::default())
    }
}

impl<T> DomainTable<T> {
    /// Returns the value of the longest domain that contains `name` (wire format, lower case).
    #[inline]
    pub(crate) fn get(&self, name: &[u8]) -> Option<&T> {
        if self.0.is_empty() {
            return None;
        }
        ancestors(name).find_map(|domain| self.0.get(domain))
    }

    /// True if the table contains no domain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this domain itself is in the table. Domains above it are ignored.
    pub(crate) fn has(&self, domain: &LowerName) -> bool {
        self.0.contains_key(domain.wire())
    }

    /// Sets the value of a domain.
    pub(crate) fn insert(&mut self, domain: &LowerName, value: T) {
        self.0.insert(domain.wire().into(), value);
    }

    /// Returns all values in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }
}

/// Identifier of an upstream query: name (lower case), type, class, DO and CD. DO and CD are part of the key because
/// they change the answer: DO adds signatures, and CD permits unvalidated data. A probe is a query with CD that is
/// sent to explain a failure. It has a separate key, because its answer is used for no other purpose.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(Box<[u8]>);

/// Key of an upstream query (see [`Key`]), for lookups. For names of usual length, the key is stored on the stack.
#[derive(Clone)]
pub struct KeyBuf(SmallVec<[u8; USUAL_KEY]>);

/// Number of octets after the name in a key: type (2), class (2), flags (1).
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
    /// Returns the key of a question, for tests.
    #[cfg(test)]
    pub(crate) fn new(
        name: &LowerName,
        qtype: u16,
        qclass: u16,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> KeyBuf {
        KeyBuf::from_wire(name.wire(), qtype, qclass, dnssec_ok, checking_disabled)
    }

    /// Returns the key of a question for `name` (wire format, lower case). `dnssec_ok` and
    /// `checking_disabled` are the DO and CD bits of the query.
    #[inline]
    pub(crate) fn from_wire(
        name: &[u8],
        qtype: u16,
        qclass: u16,
        dnssec_ok: bool,
        checking_disabled: bool,
    ) -> KeyBuf {
        let ([t0, t1], [c0, c1]) = (qtype.to_be_bytes(), qclass.to_be_bytes());
        let flags = (u8::from(dnssec_ok) * DO) | (u8::from(checking_disabled) * CD);
        let tail = [t0, t1, c0, c1, flags];
        let len = name.len() + TAIL;
        let octets = if len <= USUAL_KEY {
            let mut octets = [0; USUAL_KEY];
            octets[..name.len()].copy_from_slice(name);
            octets[name.len()..len].copy_from_slice(&tail);
            SmallVec::from_buf_and_len(octets, len)
        } else {
            SmallVec::from_vec([name, &tail].concat())
        };
        KeyBuf(octets)
    }

    /// Returns the key of a probe for a name (wire format, lower case). A probe is an AAAA query
    /// with CD. It is sent after a failure, and its answer explains the failure.
    pub(crate) fn probe(name: &[u8], qclass: u16, dnssec_ok: bool) -> KeyBuf {
        let mut key = KeyBuf::from_wire(name, rtype::AAAA, qclass, dnssec_ok, true);
        if let Some(flags) = key.0.last_mut() {
            *flags |= PROBE;
        }
        key
    }

    /// Returns a copy of the key in `octets` with type 0 (see [`Key::for_any_type`]). Type 0 is not a record type (RFC
    /// 6895 §3.1), and client queries for type 0 get an error. Therefore no question has this key.
    pub(crate) fn for_any_type(octets: &[u8]) -> Option<KeyBuf> {
        let at = octets.len().checked_sub(TAIL)?;
        if octets[octets.len() - 1] & PROBE != 0 {
            return None;
        }
        let mut key = KeyBuf(SmallVec::from_slice(octets));
        key.0[at..at + 2].fill(0);
        Some(key)
    }

    /// Returns the octets of the key. They can be used for lookups in tables with the key type [`Key`].
    #[inline]
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name in wire format, lower case.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - TAIL]
    }

    /// True if the key identifies a probe: a query with CD that is sent to explain a failure.
    #[inline]
    pub(crate) fn is_probe(&self) -> bool {
        self.0[self.0.len() - 1] & PROBE != 0
    }

    /// Returns the QTYPE.
    pub(crate) fn qtype(&self) -> u16 {
        let at = self.0.len() - TAIL;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Changes the QTYPE.
    #[inline]
    pub(crate) fn set_qtype(&mut self, qtype: u16) {
        let at = self.0.len() - TAIL;
        self.0[at..at + 2].copy_from_slice(&qtype.to_be_bytes());
    }

    /// Returns the name, type and class in the format of a question section.
    pub fn question(&self) -> &[u8] {
        let octets = self.octets();
        &octets[..octets.len() - 1]
    }

    /// Returns a copy of the key. The copy is stored on the heap.
    pub(crate) fn to_key(&self) -> Key {
        Key(self.octets().into())
    }
}

impl Key {
    /// Returns the octets of the key, as [`KeyBuf::octets`] does.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
    /// Returns the name in wire format, lower case.
    pub(crate) fn name(&self) -> &[u8] {
        &self.0[..self.0.len() - TAIL]
    }
    /// Returns the name, type and class in the format of a question section.
    pub(crate) fn question(&self) -> &[u8] {
        &self.0[..self.0.len() - 1]
    }
    /// Returns the QTYPE.
    pub(crate) fn qtype(&self) -> u16 {
        let at = self.0.len() - TAIL;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    /// Returns the QCLASS.
    pub(crate) fn qclass(&self) -> u16 {
        let at = self.0.len() - TAIL + 2;
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    /// True if the query is sent with DO, which requests signatures.
    pub(crate) fn dnssec_ok(&self) -> bool {
        self.0[self.0.len() - 1] & DO != 0
    }
    /// True if the query is sent with CD, which permits unvalidated data.
    pub(crate) fn checking_disabled(&self) -> bool {
        self.0[self.0.len() - 1] & CD != 0
    }
    /// True if the key identifies a probe: a query with CD that is sent to explain a failure.
    #[inline]
    pub(crate) fn is_probe(&self) -> bool {
        self.0[self.0.len() - 1] & PROBE != 0
    }
    /// Returns the key under which the cache records that the name does not exist. This record
    /// applies to all types. Returns `None` for a probe.
    pub(crate) fn for_any_type(&self) -> Option<KeyBuf> {
        KeyBuf::for_any_type(&self.0)
    }
    /// Returns the number of octets that the key uses on the heap.
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
    fn keys_differ_by_question_and_flags() {
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
