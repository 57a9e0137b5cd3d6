//! Quantities as people write them, on command lines and in plans.

use std::time::Duration;

use method::units::fraction;

/// A length of time: with a unit, or a number of seconds.
///
/// # Errors
/// With the right form, if it is none.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("'{text}' is no time; write for example 10s, 250ms or 1m, or a number of seconds")
    };
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong()),
        Err(_) => humantime::parse_duration(text).map_err(|_| wrong()),
    }
}

/// A length of time that is longer than nothing.
///
/// # Errors
/// With the right form, if it is none.
pub fn some_time(text: &str) -> Result<Duration, String> {
    let found = time(text)?;
    if found.is_zero() {
        Err("it must be more than nothing, such as 10ms".into())
    } else {
        Ok(found)
    }
}

/// A share from 0 to below 1, also in per cent.
///
/// # Errors
/// With the right form, if it is none.
pub fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is no share below 1; write for example 0.005 or 0.5%");
    fraction(text).filter(|share| (0.0..1.0).contains(share)).ok_or_else(wrong)
}
