//! `[dnssec]`: DNSSEC validation.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use toml::Spanned;
use toml::value::Datetime;

/// `[dnssec]`: DNSSEC validation.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct DnssecKeys {
    /// Validate the upstreams' answers, and answer with SERVFAIL if an answer is bogus. With `"if-possible"`, validation
    /// begins when an upstream returns DNSSEC signatures.
    pub(crate) validate: Validate,
    /// File with trust anchors: DS and DNSKEY records, one per line, or the XML format of IANA (RFC 9718). They replace
    /// the built-in trust anchors of the root zone. A reload reads the file again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) trust_anchors: Option<Spanned<PathBuf>>,
    /// Domains whose names are not validated (negative trust anchors, RFC 7646): a name, or `{ domain = "…", until = … }`
    /// with a time.
    #[schemars(with = "Vec<NegativeTrustAnchor>")]
    pub(crate) negative_trust_anchors: Vec<Spanned<NegativeTrustAnchor>>,
}

/// Value of the key `validate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Validate {
    /// Answers are not validated.
    No,
    /// Answers are validated.
    Yes,
    /// Answers are validated as soon as an upstream has returned signatures.
    #[default]
    IfPossible,
}

const IF_POSSIBLE: &str = "if-possible";

impl schemars::JsonSchema for Validate {
    fn schema_name() -> Cow<'static, str> {
        "Validate".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [true, false, IF_POSSIBLE] })
    }
}

impl Serialize for Validate {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        match self {
            Validate::No => into.serialize_bool(false),
            Validate::Yes => into.serialize_bool(true),
            Validate::IfPossible => into.serialize_str(IF_POSSIBLE),
        }
    }
}

impl<'de> Deserialize<'de> for Validate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Validate, D::Error> {
        from.deserialize_any(ValidateVisitor)
    }
}

struct ValidateVisitor;

impl Visitor<'_> for ValidateVisitor {
    type Value = Validate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or \"if-possible\"")
    }

    fn visit_bool<E: Error>(self, validate: bool) -> Result<Validate, E> {
        Ok(if validate { Validate::Yes } else { Validate::No })
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Validate, E> {
        match word {
            IF_POSSIBLE => Ok(Validate::IfPossible),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
        }
    }
}

/// A domain whose names are not validated.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(
    untagged,
    expecting = "write a name such as \"broken.example\", or { domain = \"broken.example\", until = 2026-12-31T00:00:00Z }"
)]
pub(crate) enum NegativeTrustAnchor {
    /// The domain is never validated.
    Unlimited(String),
    /// The domain is not validated until a point in time.
    Limited {
        /// Name of the domain.
        domain: String,
        /// Time at which validation begins again, in UTC, such as `2026-12-31T00:00:00Z`.
        #[schemars(with = "String")]
        until: Datetime,
    },
}

impl NegativeTrustAnchor {
    /// Returns the name of the domain.
    pub(super) fn domain(&self) -> &str {
        match self {
            NegativeTrustAnchor::Unlimited(domain)
            | NegativeTrustAnchor::Limited { domain, .. } => domain,
        }
    }

    /// Returns the time at which validation begins again, in seconds since 1970, or `None` if there is no such time.
    ///
    /// # Errors
    /// Returns an error if the time is not in UTC, or is before 1970.
    pub(super) fn until(&self) -> Result<Option<u64>, String> {
        let NegativeTrustAnchor::Limited { until, .. } = self else { return Ok(None) };
        let time = humantime::parse_rfc3339(&until.to_string()).ok();
        let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        match since {
            Some(since) => Ok(Some(since.as_secs())),
            None => Err("until takes a time in UTC, such as 2026-12-31T00:00:00Z".to_owned()),
        }
    }
}
