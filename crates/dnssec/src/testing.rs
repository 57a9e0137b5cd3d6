//! Validation of responses of the signed zones of `testbed`.

use bytes::Bytes;
use testbed::signed::{NOW, World, name};

use crate::{Limits, Progress, TrustAnchors, Validation, Validator, Verdict};

pub(crate) fn anchors(world: &World) -> TrustAnchors {
    TrustAnchors::from_lines(&world.anchor()).unwrap()
}

pub(crate) fn validator(world: &World) -> Validator {
    Validator::new(anchors(world), Limits::default(), 1 << 20)
}

/// Validates a response, and returns the verdict and the number of queries.
pub(crate) fn validate(world: &World, validator: &Validator, response: &Bytes) -> (Verdict, usize) {
    validate_to(world, validator, response, None, NOW)
}

/// Validates a response up to the alias target `end`, at the time `now`.
pub(crate) fn validate_to(
    world: &World,
    validator: &Validator,
    response: &Bytes,
    end: Option<&str>,
    now: u32,
) -> (Verdict, usize) {
    let end = end.map(|end| crate::Name::bytes_from_str(end).unwrap());
    let mut validation = Validation::new(response.clone(), end.as_ref());
    let mut queries = 0;
    loop {
        match validation.step(validator, now.into(), &|| false) {
            Progress::Ended(verdict) => return (verdict, queries),
            Progress::Query(query) => {
                let response = world.response(&name(&query.name.to_string()), query.rtype);
                validation.add(query, response);
                queries += 1;
            }
        }
    }
}
