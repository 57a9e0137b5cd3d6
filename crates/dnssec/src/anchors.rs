//! Trust anchors, and negative trust anchors (RFC 7646).

use std::collections::HashMap;

use bytes::Bytes;
use domain::base::iana::{DigestAlgorithm, SecurityAlgorithm};
use domain::base::name::ToName;
use domain::rdata::{Dnskey, Ds};
use domain::utils::{base16, base64};

use crate::name::Name;
use crate::signature::Key;
use crate::verdict::is_supported;

/// DS records of the keys of the root zone that IANA publishes: those of 2017 and 2024
/// (<https://data.iana.org/root-anchors/root-anchors.xml>).
const ROOT: &str = "\
. IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D
. IN DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16
";
/// DS record of the first key of the root zone, which was used until 2018.
const FIRST_ROOT: &str = "\
. IN DS 19036 8 2 49AAC11D7B6F6446702E54A1607371607A1A41855200FD2CE1CDDE32F24E8FB5
";

/// Names from which validation begins, and names below which it ends.
#[derive(Clone, Debug)]
pub struct TrustAnchors {
    anchors: Vec<Anchor>,
    /// Negative trust anchors, in wire format and lower case, with the time at which they expire, in seconds since 1970.
    negative: HashMap<Bytes, Option<u64>>,
}

/// The trust anchor of one zone.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    pub(crate) name: Name,
    pub(crate) ds: Vec<Ds<Bytes>>,
    pub(crate) keys: Vec<Dnskey<Bytes>>,
}

/// A line that is not a trust anchor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct AnchorError {
    /// Number of the line. The first line has the number 1.
    pub line: usize,
    /// Reason, in words.
    pub reason: &'static str,
}

/// Error message for an algorithm that is not supported.
const ALGORITHMS: &str = "the algorithm must be 8, 10, 13, 14 or 15";
/// Form of a file in XML, for error messages.
const NOT_XML: &str = "expected an XML file with a TrustAnchor, as in RFC 9718";
/// Error message for a wrong `validFrom` or `validUntil`.
const NOT_A_TIME: &str =
    "expected times such as 2017-02-02T00:00:00+00:00 in validFrom and validUntil";
/// Form of a line, for error messages.
const FORM: &str =
    "expected a line such as '. IN DS 20326 8 2 E06D44B8…' or '. IN DNSKEY 257 3 8 AwEAAa…'";

impl TrustAnchors {
    /// Returns the trust anchors of the root zone.
    pub fn root() -> TrustAnchors {
        TrustAnchors::from_lines(ROOT)
            .unwrap_or_else(|_| TrustAnchors { anchors: Vec::new(), negative: HashMap::new() })
    }

    /// Reads trust anchors from lines of a zone file with DS and DNSKEY records. Each record is on one line. A comment
    /// begins with a semicolon. The TTL and the class can be omitted.
    ///
    /// # Errors
    /// Returns an error if a line is not such a record, or if there is none.
    pub fn from_lines(text: &str) -> Result<TrustAnchors, AnchorError> {
        let mut anchors = TrustAnchors { anchors: Vec::new(), negative: HashMap::new() };
        for (index, line) in text.lines().enumerate() {
            let line = line.split(';').next().unwrap_or_default().trim();
            if !line.is_empty() {
                let fault = |reason| AnchorError { line: index + 1, reason };
                anchors.add_line(line).map_err(fault)?;
            }
        }
        let is_empty = anchors.anchors.is_empty();
        if is_empty { Err(AnchorError { line: 1, reason: FORM }) } else { Ok(anchors) }
    }

    /// Reads trust anchors from the XML format of IANA (RFC 9718 §2). Keys that are not valid at the time `now`, in seconds
    /// since 1970, are left out.
    ///
    /// # Errors
    /// Returns an error if the text is not in this format, or if no key is valid.
    pub fn from_xml(text: &str, now: u64) -> Result<TrustAnchors, AnchorError> {
        let fault = |line, reason| AnchorError { line, reason };
        let parsed = roxmltree::Document::parse(text);
        let document = parsed.map_err(|error| fault(error.pos().row as usize, NOT_XML))?;
        let line =
            |node: roxmltree::Node<'_, '_>| document.text_pos_at(node.range().start).row as usize;
        let root = document.root_element();
        let field = |node: roxmltree::Node<'_, '_>, name: &str| -> Option<String> {
            let child = node.children().find(|child| child.has_tag_name(name))?;
            child.text().map(|text| text.trim().to_owned())
        };
        let zone = field(root, "Zone").filter(|_| root.has_tag_name("TrustAnchor"));
        let zone = zone.and_then(|zone| Name::bytes_from_str(&zone).ok());
        let zone = zone.ok_or_else(|| fault(line(root), NOT_XML))?.to_canonical_name();
        let mut anchors = TrustAnchors { anchors: Vec::new(), negative: HashMap::new() };
        for node in root.children().filter(|node| node.has_tag_name("KeyDigest")) {
            if !is_valid(node, now).ok_or_else(|| fault(line(node), NOT_A_TIME))? {
                continue;
            }
            let fields = ["KeyTag", "Algorithm", "DigestType", "Digest"];
            let [tag, algorithm, digest_type, digest] =
                fields.map(|name| field(node, name).unwrap_or_default());
            anchors
                .entry(zone.clone())
                .add_ds([&tag, &algorithm, &digest_type], &digest)
                .map_err(|reason| fault(line(node), reason))?;
        }
        let is_empty = anchors.anchors.is_empty();
        if is_empty { Err(fault(line(root), "no key is valid at this time")) } else { Ok(anchors) }
    }

    /// True if all trust anchors are keys of the root zone that are built in, or the root zone's first key, which is no
    /// longer used.
    pub fn are_built_in(&self) -> bool {
        let known = TrustAnchors::from_lines(&format!("{ROOT}{FIRST_ROOT}")).ok();
        let known = known.and_then(|known| known.anchors.into_iter().next()).map(|root| root.ds);
        let known = known.unwrap_or_default();
        let is_known = |key: &Dnskey<Bytes>| {
            let key = Key::copy(key);
            known.iter().any(|ds| key.matches(ds, &Name::root_bytes()))
        };
        self.anchors.iter().all(|anchor| {
            anchor.name.is_root()
                && anchor.ds.iter().all(|ds| known.contains(ds))
                && anchor.keys.iter().all(is_known)
        })
    }

    /// True if the root zone has a trust anchor.
    pub fn has_root(&self) -> bool {
        self.anchors.iter().any(|anchor| anchor.name.is_root())
    }

    /// Adds negative trust anchors with the times at which they expire, in seconds since 1970. No name at or below one of
    /// them is validated, unless a trust anchor is between them.
    pub fn with_negative(
        mut self,
        names: impl IntoIterator<Item = (Name, Option<u64>)>,
    ) -> TrustAnchors {
        let canonical = |(name, until): (Name, _)| {
            let name: Name = name.to_canonical_name();
            (name.into_octets(), until)
        };
        self.negative.extend(names.into_iter().map(canonical));
        self
    }

    /// Returns the name of the zone with a trust anchor that has the fewest labels. Usually it is the root.
    pub(crate) fn top(&self) -> Option<&Name> {
        self.anchors.iter().map(|anchor| &anchor.name).min_by_key(|name| name.label_count())
    }

    /// Returns the trust anchor that is closest to a name: at the name itself, or at its lowest ancestor.
    pub(crate) fn closest(&self, name: &Name) -> Option<&Anchor> {
        let above = self.anchors.iter().filter(|anchor| name.ends_with(&anchor.name));
        above.max_by_key(|anchor| anchor.name.label_count())
    }

    /// Returns the closest trust anchor, and the names from the anchor down to this name.
    pub(crate) fn path_to(&self, name: &Name) -> Option<(&Anchor, Vec<Name>)> {
        let anchor = self.closest(name)?;
        let depth = anchor.name.label_count();
        let from_anchor = name.iter_suffixes().filter(|suffix| suffix.label_count() >= depth);
        let mut path: Vec<Name> = from_anchor.collect();
        path.reverse();
        Some((anchor, path))
    }

    /// True if the zone with this name, in wire format and lower case, has a trust anchor.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.anchors.iter().any(|anchor| anchor.name.as_slice() == name)
    }

    /// Returns the time for which the name, in wire format and lower case, is still a negative trust anchor, in seconds, or `None` if it is none. `now` is
    /// the time in seconds since 1970. The result is `u32::MAX` for an anchor that does not expire.
    pub(crate) fn negative_for(&self, name: &[u8], now: u64) -> Option<u32> {
        let Some(until) = *self.negative.get(name)? else { return Some(u32::MAX) };
        let left = until.saturating_sub(now);
        (left > 0).then(|| u32::try_from(left).unwrap_or(u32::MAX))
    }

    fn add_line(&mut self, line: &str) -> Result<(), &'static str> {
        let mut words = line.split_whitespace();
        let name = words.next().and_then(|name| Name::bytes_from_str(name).ok()).ok_or(FORM)?;
        let is_skipped = |word: &&str| {
            word.eq_ignore_ascii_case("IN") || word.bytes().all(|octet| octet.is_ascii_digit())
        };
        let kind = words.find(|word| !is_skipped(word)).ok_or(FORM)?.to_ascii_uppercase();
        let fields: [&str; 3] =
            [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
        let rest: String = words.collect();
        let anchor = self.entry(name.to_canonical_name());
        match kind.as_str() {
            "DS" => anchor.add_ds(fields, &rest)?,
            "DNSKEY" => {
                let byte = |text: &str| text.parse::<u8>().map_err(|_| FORM);
                let number = fields[0].parse::<u16>().map_err(|_| FORM)?;
                let key: Vec<u8> = base64::decode(&rest).map_err(|_| FORM)?;
                let algorithm = SecurityAlgorithm::from_int(byte(fields[2])?);
                if !is_supported(algorithm, false) {
                    return Err(ALGORITHMS);
                }
                let key = Dnskey::new(number, byte(fields[1])?, algorithm, key.into());
                anchor.keys.push(key.map_err(|_| FORM)?);
            }
            _ => return Err(FORM),
        }
        Ok(())
    }

    fn entry(&mut self, name: Name) -> &mut Anchor {
        let found = self.anchors.iter().position(|anchor| anchor.name == name);
        let index = found.unwrap_or(self.anchors.len());
        if found.is_none() {
            self.anchors.push(Anchor { name, ds: Vec::new(), keys: Vec::new() });
        }
        &mut self.anchors[index]
    }
}

impl Anchor {
    /// Adds a DS record with these fields (key tag, algorithm, digest type) and this digest in hexadecimal form.
    fn add_ds(&mut self, fields: [&str; 3], digest: &str) -> Result<(), &'static str> {
        let byte = |text: &str| text.parse::<u8>().map_err(|_| FORM);
        let tag = fields[0].parse::<u16>().map_err(|_| FORM)?;
        let algorithm = SecurityAlgorithm::from_int(byte(fields[1])?);
        if !is_supported(algorithm, false) {
            return Err(ALGORITHMS);
        }
        let digest_type = DigestAlgorithm::from_int(byte(fields[2])?);
        let digest: Vec<u8> = base16::decode_vec(digest).map_err(|_| FORM)?;
        let length = match digest_type {
            DigestAlgorithm::SHA256 => 32,
            DigestAlgorithm::SHA384 => 48,
            _ => return Err("the digest type must be 2 (SHA-256) or 4 (SHA-384)"),
        };
        if digest.len() != length {
            return Err("the digest has another length than its type requires");
        }
        self.ds.push(Ds::new(tag, algorithm, digest_type, digest.into()).map_err(|_| FORM)?);
        Ok(())
    }
}

/// True if the time is within `validFrom` and `validUntil` of a key. Returns `None` if one of them is not a time.
fn is_valid(key: roxmltree::Node<'_, '_>, now: u64) -> Option<bool> {
    let time = |name: &str| match key.attribute(name) {
        Some(text) => text.parse::<jiff::Timestamp>().ok().map(|time| Some(time.as_second())),
        None => Some(None),
    };
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let (from, until) = (time("validFrom")?, time("validUntil")?);
    Some(from.is_none_or(|from| from <= now) && until.is_none_or(|until| now < until))
}
