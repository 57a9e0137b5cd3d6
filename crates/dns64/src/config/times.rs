//! Durations in the configuration file, with errors that show the correct form.

use std::fmt;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a duration with its unit.
pub(super) fn one<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    struct Time;

    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with its unit; write for example \"2s\" or \"1700ms\"")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text).map_err(|e| {
                E::custom(format!(
                    "{text:?} is not a duration: {e}; write for example \"2s\" or \"1700ms\""
                ))
            })
        }
    }

    input.deserialize_str(Time)
}
