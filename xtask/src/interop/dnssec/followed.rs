//! The cases in which delv and Unbound differ, each with the validator that dns64d follows and the reason.

use dnssec_fuzz::Status;

use super::validators::{Difference, Verdicts};
use super::zones::Denial;

/// Validator that dns64d follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Delv,
    Unbound,
}

/// A case in which the verdicts differ.
struct Case {
    whom: Whom,
    /// Name of the damage, or empty for all.
    damage: &'static str,
    /// True if the case is one of zones with Opt-Out only.
    is_of_opt_out: bool,
    /// Query, or empty for all.
    query: &'static str,
    /// RFC section, and the reason.
    #[expect(dead_code, reason = "for readers of this file")]
    because: &'static str,
}

const fn case(
    whom: Whom,
    damage: &'static str,
    query: &'static str,
    because: &'static str,
) -> Case {
    Case { whom, damage, is_of_opt_out: false, query, because }
}

const CASES: &[Case] = &[
    Case {
        whom: Whom::Unbound,
        damage: "",
        is_of_opt_out: true,
        query: "",
        because: "RFC 5155 §9.2: the AD bit must not be set if the NSEC3 record that covers the next closer name has the \
                  flag Opt-Out. delv finds such denials secure.",
    },
    case(
        Whom::Unbound,
        "51 iterations",
        "",
        "RFC 9276 §3.2: validators may treat NSEC3 records with iterations as insecure. The limit of delv 9.18 is 150, \
         and that of dns64d, BIND 9.20 and Unbound (configured here) is 50.",
    ),
    case(Whom::Unbound, "150 iterations", "", "RFC 9276 §3.2, as for 51 iterations."),
    case(
        Whom::Unbound,
        "an expired and a valid signature",
        "",
        "RFC 4035 §5.3.3: local policy decides whether further signatures are checked. dns64d accepts an RRset with one \
         valid signature; delv stops after one failure (KeyTrap).",
    ),
    case(
        Whom::Unbound,
        "a wrong and a valid signature",
        "",
        "RFC 4035 §5.3.3, as for the expired signature.",
    ),
    case(
        Whom::Delv,
        "DS with a wrong digest, and one with SHA-1",
        "",
        "RFC 4509 §3: validators should ignore DS records with SHA-1 if there are some with SHA-256.",
    ),
    case(
        Whom::Delv,
        "denials of types as denials of names",
        "",
        "RFC 4035 §3.1.3.2: a name error needs a record that covers the name. Unbound corrects the RCODE.",
    ),
    case(
        Whom::Delv,
        "denial of a name as denial of a type",
        "",
        "RFC 4035 §3.1.3.1: the proof must match the response. Unbound corrects the RCODE.",
    ),
    case(
        Whom::Unbound,
        "wildcards without proof",
        "alias-wild.signed.test A",
        "The proof is missing only in replies to queries for the wildcard. delv queries for the target of the alias; \
         dns64d and Unbound validate the records that the reply contains.",
    ),
    case(
        Whom::Delv,
        "SOA without signature",
        "alias-none.signed.test A",
        "RFC 4035 §4.3: the record must be signed and has no signature, so the reply is bogus.",
    ),
];

impl Case {
    fn covers(&self, difference: &Difference, denial: Denial) -> bool {
        let Verdicts { dns64d, unbound, delv } = difference.verdicts;
        let is_followed = match self.whom {
            Whom::Delv => dns64d == delv,
            Whom::Unbound => dns64d == unbound,
        };
        let is_opt_out = matches!(denial, Denial::OptOut { .. })
            && dns64d == Status::Insecure
            && delv == Status::Secure;
        is_followed
            && (!self.is_of_opt_out || is_opt_out)
            && (self.damage.is_empty() || self.damage == difference.damage)
            && (self.query.is_empty() || self.query == difference.query)
    }
}

/// True if one of the cases covers a difference.
pub(super) fn is_expected(difference: &Difference, denial: Denial) -> bool {
    CASES.iter().any(|case| case.covers(difference, denial))
}
