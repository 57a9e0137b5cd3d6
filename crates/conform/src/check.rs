//! What a check is: data about a sentence of an RFC, and a script that tries it.

use crate::trial::{Fault, Judged, Trial};

/// How strictly the sentence speaks (BCP 14: RFC 2119, RFC 8174).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// MUST, MUST NOT, REQUIRED, SHALL.
    Must,
    /// SHOULD, SHOULD NOT, RECOMMENDED.
    Should,
    /// The RFC says so without a word of BCP 14; counted with SHOULD.
    Says,
    /// MAY, OPTIONAL: not doing it is no fault; it is shown.
    May,
    /// Our own advice, in no RFC.
    Hardening,
}

/// What must be there for a check to be tried.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// A zone that the server under test asks the far side for.
    Zone,
    /// The far side's own view of what it was asked.
    View,
    /// The server asks the far side for reverse names and all else too (it forwards everything).
    Everything,
    /// The server validates, with the far side's keys as trust anchors.
    Validation,
    /// The server does not validate.
    NoValidation,
    /// The prefix is 64:ff9b::/96 (RFC 6052 §2.1).
    WellKnownPrefix,
    /// The prefix is not 64:ff9b::/96.
    OwnPrefix,
    /// The server is told to exclude a range of IPv6 addresses besides those that it excludes by
    /// default (RFC 6147 §5.1.4).
    ExcludedRange,
}

/// What a server can be configured with in more ways than one, so that one configuration cannot
/// show all that it offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Its prefix, or prefixes: which, and how long.
    Prefix,
    /// That it does not validate.
    NoValidation,
    /// The range of IPv6 addresses that it is told to exclude.
    ExcludedRange,
}

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name: the RFC, the section, and a word or two: `rfc6147-5.1.2-nxdomain`.
    pub id: &'static str,
    /// What the server must do, in one sentence.
    pub title: &'static str,
    /// The RFC's number; 0 for our own advice.
    pub rfc: u16,
    /// The section with the sentence, without "§"; empty for our own advice.
    pub section: &'static str,
    /// The sentence, cut short where it is long.
    pub sentence: &'static str,
    /// How strict it is.
    pub level: Level,
    /// What it needs.
    pub needs: &'static [Need],
    /// The check that wants the opposite, if there is one: a sentence of an RFC against our advice.
    pub contradicts: Option<&'static str>,
    /// The script: asks, and judges what comes.
    pub script: fn(&mut Trial<'_>) -> Judged,
}

impl Check {
    /// Fields that most checks share; each file, and then each check, fills in the rest.
    pub(crate) const BASE: Check = Check {
        id: "",
        title: "",
        rfc: 0,
        section: "",
        sentence: "",
        level: Level::Says,
        needs: &[Need::Zone],
        contradicts: None,
        script: |_| Err(Fault::NotTried("the check has no script".into())),
    };
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// How the ids of checks begin whose names or answers are made with the prefix: where the octets of
/// an address go, which prefixes are shown, what is below them in ip6.arpa.
const OF_PREFIXES: &[&str] = &[
    "rfc6052-2",
    "hardening-reverse-suffix",
    "rfc6147-5-ptr-all-prefixes",
    "rfc6147-5.1.1-inside-prefix",
    "rfc6147-5.1.6-all-a-records",
    "rfc6147-5.3.1",
    "rfc7050",
    "rfc8880-7.1-aaaa",
    "rfc8880-7.2.1",
];

impl Check {
    /// Where the sentence stands, as text: "RFC 6147 §5.1.2", or "hardening".
    pub fn source(&self) -> String {
        match self.rfc {
            0 => "hardening".into(),
            rfc => format!("RFC {rfc} §{}", self.section),
        }
    }

    /// Whether another configuration in this respect may change what the check comes to.
    pub fn depends_on(&self, aspect: Aspect) -> bool {
        let needs = |need: Need| self.needs.contains(&need);
        match aspect {
            Aspect::Prefix => {
                needs(Need::WellKnownPrefix)
                    || needs(Need::OwnPrefix)
                    || OF_PREFIXES.iter().any(|begin| self.id.starts_with(begin))
            }
            Aspect::NoValidation => needs(Need::NoValidation),
            Aspect::ExcludedRange => needs(Need::ExcludedRange),
        }
    }
}
