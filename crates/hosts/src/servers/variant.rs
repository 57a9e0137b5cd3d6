//! Configurations of a DUT for conformance checks. A single configuration cannot exercise
//! everything that a server supports. Checks that depend on the prefix, on validation or on
//! excluded ranges are therefore repeated with other configurations.

use std::fmt;

use conform::check::Aspect;
use serde::{Deserialize, Serialize};
use tester::measurer::expect::Prefix;

/// A range of IPv6 addresses that a DUT is configured to exclude (RFC 6147 §5.1.4) in addition to
/// ::ffff:0:0/96. All other addresses of the tests are outside this range.
pub(super) const EXCLUDED: &str = "3fff:bad::/32";

/// A configuration of a DUT for conformance checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The plan's prefix, and DNSSEC validation if the server supports it. All checks are executed with this
    /// configuration.
    #[default]
    Usual,
    /// Prefixes that differ from the prefix in the plan.
    Prefixes(Vec<Prefix>),
    /// Validation is off, although the server supports it.
    NoValidation,
    /// The DUT ignores AAAA records with addresses in the range [`EXCLUDED`] (RFC 6147 §5.1.4).
    Excluding,
}

impl Variant {
    /// True for the usual configuration, which is omitted from JSON.
    pub fn is_usual(&self) -> bool {
        *self == Variant::Usual
    }

    /// Returns the aspect in which this configuration differs from the usual one, or `None` for the usual
    /// configuration. Checks that depend on the aspect are repeated with this configuration.
    pub fn aspect(&self) -> Option<Aspect> {
        match self {
            Variant::Usual => None,
            Variant::Prefixes(_) => Some(Aspect::Prefix),
            Variant::NoValidation => Some(Aspect::NoValidation),
            Variant::Excluding => Some(Aspect::ExcludedRange),
        }
    }

    /// Returns the DNS64 prefixes of this configuration. `usual` is the prefix in the plan.
    pub fn prefixes(&self, usual: Prefix) -> Vec<Prefix> {
        match self {
            Variant::Prefixes(own) => own.clone(),
            Variant::Usual | Variant::NoValidation | Variant::Excluding => vec![usual],
        }
    }

    /// Returns the range of IPv6 addresses that the DUT excludes in addition to ::ffff:0:0/96, or `None` if there is no
    /// such range.
    pub fn excluded(&self) -> Option<&'static str> {
        (*self == Variant::Excluding).then_some(EXCLUDED)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Usual => f.write_str("as usual"),
            Variant::Prefixes(own) => {
                let list: Vec<String> = own.iter().map(Prefix::to_string).collect();
                let word = if list.len() == 1 { "prefix" } else { "prefixes" };
                write!(f, "with the {word} {}", list.join(" and "))
            }
            Variant::NoValidation => f.write_str("without validation"),
            Variant::Excluding => write!(f, "with {EXCLUDED} excluded"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::servers::{Dut, OWN_PREFIXES, SEVERAL, WELL_KNOWN};

    use super::*;

    fn lines(dut: Dut, usual: &str) -> Vec<String> {
        dut.variants(usual.parse().unwrap()).iter().map(Variant::to_string).collect()
    }

    #[test]
    fn each_server_has_all_its_variants() {
        let powerdns =
            ["as usual", "with the prefix 3fff:64:64:64:0:64::/96", "without validation"];
        assert_eq!(lines(Dut::Powerdns, WELL_KNOWN), powerdns);
        let bind = lines(Dut::Bind, WELL_KNOWN);
        assert_eq!(bind.len(), 1 + OWN_PREFIXES.len() + 3, "{bind:?}");
        assert_eq!(lines(Dut::Custom, WELL_KNOWN), ["as usual"]);
        let own = lines(Dut::Unbound, "2001:db8:64::/48");
        assert_eq!(own[1], "with the prefix 64:ff9b::/96");
        assert!(!own.iter().any(|text| text.contains("/48")), "the plan has that length: {own:?}");
    }

    #[test]
    fn prefixes_are_valid_and_outside_excluded_ranges() {
        for text in OWN_PREFIXES.into_iter().chain(SEVERAL) {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), text);
            assert!(!text.starts_with("3fff:bad:"), "{text}");
        }
        let lengths = OWN_PREFIXES.map(|text| text.parse::<Prefix>().unwrap().length());
        assert_eq!(lengths, [32, 40, 48, 56, 64, 96]);
    }

    #[test]
    fn some_checks_depend_on_each_variant_and_fewer_than_all() {
        let all = conform::checks::all().count();
        for variant in Dut::Bind.variants(WELL_KNOWN.parse().unwrap()) {
            let Some(aspect) = variant.aspect() else { continue };
            let some = conform::checks::all().filter(|check| check.depends_on(aspect)).count();
            assert!(some > 0 && some < all / 3, "{variant}: {some} of {all}");
        }
    }
}
