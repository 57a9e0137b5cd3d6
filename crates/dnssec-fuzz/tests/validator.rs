//! Validation of the responses by our validator, without servers.

use bytes::Bytes;
use dnssec::{Limits, Name, Progress, Security, TrustAnchors, Validation, Validator};
use dnssec_fuzz::{Case, Fuzz, ROOT};
use domain::base::iana::Rtype;

const NOW: u32 = 1_800_000_000;

fn name(text: &str) -> domain::base::Name<Vec<u8>> {
    text.parse().expect("a name")
}

/// Returns the security of the response to the question of a case.
fn validate(fuzz: &Fuzz, validator: &Validator, case: &Case) -> Security {
    let response =
        |owner: &str, rtype: Rtype| Bytes::from(fuzz.response(&name(owner), rtype).message);
    let mut validation =
        Validation::new(response(&case.name.to_string(), case.rtype), None::<&Name>);
    loop {
        match validation.step(validator, NOW.into(), &|| false) {
            Progress::Ended(verdict) => return verdict.security,
            Progress::Query(query) => {
                let response = response(&query.name.to_string(), query.rtype);
                validation.add(query, Some(response));
            }
        }
    }
}

#[test]
fn responses_without_mutation_are_not_bogus() {
    let fuzz = Fuzz::new(1, NOW);
    let anchors =
        TrustAnchors::from_lines(&format!("{ROOT}. IN DS {}", fuzz.anchor())).expect("an anchor");
    let validator = Validator::new(anchors, Limits::default(), 10_000);
    let (mut secure, mut insecure) = (0, 0);
    for case in (0..2_000).map(|number| fuzz.case(number)).filter(Case::is_unchanged) {
        match validate(&fuzz, &validator, &case) {
            Security::Secure => secure += 1,
            Security::Insecure => insecure += 1,
            other => panic!("{other:?}: {}", fuzz.describe(&case)),
        }
    }
    assert!(secure > 200 && insecure > 10, "{secure} secure, {insecure} insecure");
}

#[test]
fn mutations_apply_and_make_most_responses_bogus() {
    let fuzz = Fuzz::new(1, NOW);
    let anchors =
        TrustAnchors::from_lines(&format!("{ROOT}. IN DS {}", fuzz.anchor())).expect("an anchor");
    let validator = Validator::new(anchors, Limits::default(), 10_000);
    let mut names = std::collections::BTreeSet::new();
    let mut bogus = 0;
    for case in (0..4_000).map(|number| fuzz.case(number)) {
        for (owner, rtype) in case.mutated_responses() {
            names.extend(fuzz.response(owner, rtype).mutations);
        }
        bogus += usize::from(validate(&fuzz, &validator, &case) == Security::Bogus);
    }
    assert!(bogus > 1_000, "{bogus} bogus");
    let never: Vec<_> = Fuzz::mutations().filter(|name| !names.contains(name)).collect();
    assert!(never.is_empty(), "{never:?}");
}
