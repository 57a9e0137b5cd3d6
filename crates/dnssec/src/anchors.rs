//! Trust anchors, and negative trust anchors (RFC 7646).

use std::collections::HashSet;

use bytes::Bytes;
use domain::base::iana::{DigestAlgorithm, SecurityAlgorithm};
use domain::base::name::ToName;
use domain::rdata::{Dnskey, Ds};
use domain::utils::{base16, base64};

use crate::name::Name;

/// DS records of the keys of the root zone that IANA publishes: those of 2017 and 2024
/// (<https://data.iana.org/root-anchors/root-anchors.xml>).
const ROOT: &str = "\
. IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D
. IN DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16
";

/// Names from which validation begins, and names below which it ends.
#[derive(Clone, Debug)]
pub struct TrustAnchors {
    anchors: Vec<Anchor>,
    negative: HashSet<Name>,
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

/// Form of a line, for error messages.
const FORM: &str =
    "expected a line such as '. IN DS 20326 8 2 E06D44B8…' or '. IN DNSKEY 257 3 8 AwEAAa…'";

impl TrustAnchors {
    /// Returns the trust anchors of the root zone.
    pub fn root() -> TrustAnchors {
        TrustAnchors::from_lines(ROOT)
            .unwrap_or_else(|_| TrustAnchors { anchors: Vec::new(), negative: HashSet::new() })
    }

    /// Reads trust anchors from lines of a zone file with DS and DNSKEY records. Each record is on one line. A comment
    /// begins with a semicolon. The TTL and the class can be omitted.
    ///
    /// # Errors
    /// Returns an error if a line is not such a record, or if there is none.
    pub fn from_lines(text: &str) -> Result<TrustAnchors, AnchorError> {
        let mut anchors = TrustAnchors { anchors: Vec::new(), negative: HashSet::new() };
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

    /// Adds negative trust anchors. No name at or below one of them is validated, unless a trust anchor is between them.
    pub fn with_negative(mut self, names: impl IntoIterator<Item = Name>) -> TrustAnchors {
        self.negative.extend(names.into_iter().map(|name| name.to_canonical_name()));
        self
    }

    /// Returns the trust anchor that is closest to a name: at the name itself, or at its lowest ancestor.
    pub(crate) fn closest(&self, name: &Name) -> Option<&Anchor> {
        let above = self.anchors.iter().filter(|anchor| name.ends_with(&anchor.name));
        above.max_by_key(|anchor| anchor.name.label_count())
    }

    /// True if the name is a negative trust anchor.
    pub(crate) fn is_negative(&self, name: &Name) -> bool {
        self.negative.contains(name)
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
        let byte = |text: &str| text.parse::<u8>().map_err(|_| FORM);
        let number = fields[0].parse::<u16>().map_err(|_| FORM)?;
        match kind.as_str() {
            "DS" => {
                let digest: Vec<u8> = base16::decode_vec(&rest).map_err(|_| FORM)?;
                let kind = DigestAlgorithm::from_int(byte(fields[2])?);
                let length = match kind {
                    DigestAlgorithm::SHA1 => 20,
                    DigestAlgorithm::SHA256 => 32,
                    DigestAlgorithm::SHA384 => 48,
                    _ => return Err("digest types are 1 (SHA-1), 2 (SHA-256) and 4 (SHA-384)"),
                };
                if digest.len() != length {
                    return Err("the digest has another length than its type requires");
                }
                let algorithm = SecurityAlgorithm::from_int(byte(fields[1])?);
                let ds = Ds::new(number, algorithm, kind, digest.into()).map_err(|_| FORM)?;
                anchor.ds.push(ds);
            }
            "DNSKEY" => {
                let key: Vec<u8> = base64::decode(&rest).map_err(|_| FORM)?;
                let algorithm = SecurityAlgorithm::from_int(byte(fields[2])?);
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
