//! Type of a check. A check consists of data about a sentence of an RFC, and of a script that tests whether the server
//! complies with this sentence.

use crate::trial::{Fault, Judged, Trial};

/// Requirement level of a sentence of an RFC (BCP 14: RFC 2119, RFC 8174).
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
    /// A sentence of an RFC without a BCP 14 keyword. Reports count such sentences together with SHOULD.
    Says,
    /// MAY, OPTIONAL. A missing feature is shown, but is not a fault.
    May,
    /// Our own advice, not in an RFC.
    Hardening,
}

/// Requirements for running a check.
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
    /// A zone for which the server under test queries the test authoritative server.
    Zone,
    /// The query log of the test authoritative server.
    View,
    /// The server forwards all queries to the test authoritative server, including those for reverse names.
    Everything,
    /// The server validates, with the keys of the test authoritative server as trust anchors.
    Validation,
    /// The server does not validate.
    NoValidation,
    /// The DNS64 prefix is 64:ff9b::/96 (RFC 6052 §2.1).
    WellKnownPrefix,
    /// The DNS64 prefix is not 64:ff9b::/96.
    OwnPrefix,
    /// The server is configured to exclude a range of IPv6 addresses in addition to its default ranges (RFC 6147
    /// §5.1.4).
    ExcludedRange,
}

/// Settings of the server that must be tested with more than one value, because a single configuration cannot show all
/// supported features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The DNS64 prefixes and their lengths.
    Prefix,
    /// DNSSEC validation. It must be off for the checks that need a server without validation ([`Need::NoValidation`]).
    NoValidation,
    /// Range of IPv6 addresses that the server is configured to exclude.
    ExcludedRange,
}

/// A check of one sentence of an RFC, or of our own advice.
#[derive(Clone, Copy)]
pub struct Check {
    /// Id, which consists of the RFC, the section, and one or more words: `rfc6147-5.1.2-nxdomain`.
    pub id: &'static str,
    /// Requirement on the server, in one sentence.
    pub title: &'static str,
    /// The RFC's number; 0 for our own advice.
    pub rfc: u16,
    /// Section of the RFC, without "§"; empty for our own advice.
    pub section: &'static str,
    /// The sentence of the RFC that the check tests, shortened if it is long.
    pub sentence: &'static str,
    /// Requirement level of the RFC's sentence.
    pub level: Level,
    /// Requirements for running the check.
    pub needs: &'static [Need],
    /// Id of the check that requires the opposite, if there is one. Two checks contradict each other if our advice
    /// contradicts a sentence of an RFC.
    pub contradicts: Option<&'static str>,
    /// Script that sends the queries and evaluates the replies.
    pub script: fn(&mut Trial<'_>) -> Judged,
}

impl Check {
    /// Default values of the fields of a check. Each file of checks, and each check, overrides some of them.
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

/// Beginnings of the ids of checks whose queries or expected answers depend on the DNS64 prefix. These checks concern
/// the positions of the address octets, the advertised prefixes, and the names below the prefixes in ip6.arpa.
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
    /// Returns the source of the requirement as text: "RFC 6147 §5.1.2", or "hardening".
    pub fn source(&self) -> String {
        match self.rfc {
            0 => "hardening".into(),
            rfc => format!("RFC {rfc} §{}", self.section),
        }
    }

    /// True if the outcome of the check may depend on this setting of the server.
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
