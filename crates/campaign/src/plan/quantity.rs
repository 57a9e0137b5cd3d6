//! Parsers for quantities on command lines and in plans.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;
use units::fraction;

/// Parses a duration with a unit, or a number of seconds.
///
/// # Errors
/// Returns an error if the text is not a duration; the message gives the correct form.
pub fn time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "'{text}' is not a duration; write for example 10s, 250ms or 1m, or a number of seconds"
        )
    };
    match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wrong()),
        Err(_) => humantime::parse_duration(text).map_err(|_| wrong()),
    }
}

/// Parses a duration above zero.
///
/// # Errors
/// Returns an error if the text is not a duration, or if it is zero; the message gives the correct
/// form.
pub fn nonzero_time(text: &str) -> Result<Duration, String> {
    let found = time(text)?;
    if found.is_zero() { Err("it must be above 0, such as 10ms".into()) } else { Ok(found) }
}

/// Parses a share of at least 0 and below 1. The text is a decimal fraction (0.005) or a percentage (0.5%).
///
/// # Errors
/// Returns an error if the text is not such a share; the message gives the correct form.
pub fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' is not a share below 1; write for example 0.005 or 0.5%");
    fraction(text).filter(|share| (0.0..1.0).contains(share)).ok_or_else(wrong)
}

/// Description of the correct form of a duration, for error messages.
const FORM: &str = "a time; write for example \"10s\", \"250ms\" or a number of seconds";

/// Conversion of an optional duration to the type of a plan field. For the type [`Duration`], the plan must contain a
/// value. For the type `Option<Duration>`, the value may be absent.
pub(crate) trait FromTime: Sized {
    fn from_time(time: Option<Duration>) -> Option<Self>;
}

impl FromTime for Duration {
    fn from_time(time: Option<Duration>) -> Option<Duration> {
        time
    }
}

impl FromTime for Option<Duration> {
    fn from_time(time: Option<Duration>) -> Option<Option<Duration>> {
        Some(time)
    }
}

/// Serde visitor for durations, which also provides the JSON Schema of a duration.
pub(super) struct Time;

impl Visitor<'_> for Time {
    type Value = Option<Duration>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Duration>, E> {
        time(text).map(Some).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Option<Duration>, E> {
        time(&seconds.to_string()).map(Some).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Option<Duration>, E> {
        self.visit_f64(seconds as f64)
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Option<Duration>, E> {
        self.visit_f64(seconds as f64)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Duration>, E> {
        Ok(None)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"], "minimum": 0 })
    }
}

/// Serde module for durations in a plan, for use as `with = "quantity::plan_time"`. A duration is
/// either a text that [`time`] parses or a number of seconds.
pub(crate) mod plan_time {
    use crate::plan::quantity::*;

    /// Writes a duration with its units.
    pub(crate) fn serialize<T, S>(time: &T, to: S) -> Result<S::Ok, S::Error>
    where
        T: Copy + Into<Option<Duration>>,
        S: Serializer,
    {
        match (*time).into() {
            Some(time) => to.collect_str(&humantime::format_duration(time)),
            None => to.serialize_none(),
        }
    }

    /// Reads a duration.
    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromTime,
        D: Deserializer<'de>,
    {
        T::from_time(from.deserialize_any(Time)?).ok_or_else(|| D::Error::custom(FORM))
    }
}
