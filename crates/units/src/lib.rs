//! Newtypes for the quantities of a measurement, so that public signatures have no bare numbers.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

/// A rate in queries per second. It is a whole number, like the results in RFC 8219.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Qps(pub u64);

/// Deserialization from a number, or from a text in the format that [`Qps::from_str`] parses.
impl<'de> Deserialize<'de> for Qps {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Qps, D::Error> {
        struct Rate;

        impl Visitor<'_> for Rate {
            type Value = Qps;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate in queries per second; write for example 12000 or \"12k\"")
            }

            fn visit_u64<E: de::Error>(self, rate: u64) -> Result<Qps, E> {
                Ok(Qps(rate))
            }

            fn visit_i64<E: de::Error>(self, rate: i64) -> Result<Qps, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(rate), &self);
                u64::try_from(rate).map(Qps).map_err(wrong)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Qps, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_any(Rate)
    }
}

impl JsonSchema for Qps {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Qps".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        if generator.contract().is_deserialize() {
            json_schema!({
                "type": ["integer", "string"],
                "minimum": 0,
                "pattern": "^[0-9_]+(\\.[0-9]+)?[kKM]?$"
            })
        } else {
            json_schema!({ "type": "integer", "format": "uint64", "minimum": 0 })
        }
    }
}

impl fmt::Display for Qps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Qps {
    type Err = UnitError;

    /// Parses a whole number from 1 to 100 million, such as `20000`, `20_000`, `20k` or `1.5M`.
    fn from_str(s: &str) -> Result<Self, UnitError> {
        match whole_number(s) {
            Some(n @ 1..=100_000_000) => Ok(Qps(n)),
            _ => Err(UnitError::Rate { given: s.into() }),
        }
    }
}

/// Parses digits, optionally with underscores between them. With the suffix `k` or `M`, the number may have a fraction
/// if the result is a whole number.
fn whole_number(text: &str) -> Option<u64> {
    let (number, zeros) = match (text.strip_suffix(['k', 'K']), text.strip_suffix('M')) {
        (Some(thousands), _) => (thousands, 3),
        (_, Some(millions)) => (millions, 6),
        _ => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !whole.split('_').all(is_digits) || !is_digits(fraction) || (zeros == 0 && number != whole) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let left = zeros - u32::try_from(fraction.len()).ok().filter(|&len| len <= zeros)?;
    let part = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<u64>().ok()?.checked_mul(10u64.pow(left))?
    };
    whole.replace('_', "").parse::<u64>().ok()?.checked_mul(10u64.pow(zeros))?.checked_add(part)
}

/// Formats a number with its digits in groups of three, separated by a narrow no-break space (U+202F): `1 234 567`.
pub fn grouped(n: u64) -> String {
    in_groups(&n.to_string())
}

/// Separates the digits of a number into groups of three, in the same way as [`grouped`].
pub fn in_groups(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun, such as `1 packet` or `2 packets`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// Nanoseconds: a duration, or a time of the monotonic or real-time clock.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// Creates a duration of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// Creates a duration of `us` microseconds.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    /// Returns the time that has passed since `earlier`, or zero if `earlier` is the later of the
    /// two times.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the number of seconds, for display and JSON.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the number of milliseconds, for display.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl std::ops::Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl From<Duration> for Nanos {
    fn from(d: Duration) -> Self {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Self {
        Duration::from_nanos(n.0)
    }
}

/// The index of a query in its trial, from 0.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct QueryIndex(pub u64);

/// The number of a logical CPU, as assigned by the kernel.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct CpuId(pub usize);

/// A share of a sequence, for example of the names in a trial, in whole per cent from 0 to 100.
///
/// The unit is one per cent, because the shares in a trial must be exact in every window of 100
/// consecutive names. RFC 8219 §9.2 requires only 0, 20, 40, 60, 80 and 100 %.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(try_from = "f64", into = "f64")]
pub struct Share(u8);

impl Share {
    /// 0 %.
    pub const ZERO: Share = Share(0);
    /// 100 %.
    pub const ONE: Share = Share(100);

    /// Creates a share from a percentage. A value above 100 counts as 100.
    pub const fn percent(percent: u8) -> Share {
        Share(if percent > 100 { 100 } else { percent })
    }

    /// Returns the share in per cent.
    pub const fn per_hundred(self) -> u8 {
        self.0
    }

    /// Returns the share as a fraction from 0 to 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// True if member `n` of a sequence belongs to the share. Among any 100 consecutive members, exactly
    /// [`Share::per_hundred`] belong to the share, and they are spread evenly.
    pub const fn selects(self, n: u64) -> bool {
        // 37 has no factor in common with 100, so n ↦ 37·n mod 100 visits every residue once in any
        // 100 steps.
        (n % 100) * 37 % 100 < self.0 as u64
    }

    /// Returns how many of the first `n` members of a sequence belong to the share.
    pub fn count_below(self, n: u64) -> u64 {
        let whole = n / 100 * u64::from(self.0);
        whole + (n / 100 * 100..n).filter(|&k| self.selects(k)).count() as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fraction().fmt(f)
    }
}

impl TryFrom<f64> for Share {
    type Error = UnitError;

    fn try_from(fraction: f64) -> Result<Self, UnitError> {
        let percent = fraction * 100.0;
        if !(0.0..=100.0).contains(&percent) || (percent - percent.round()).abs() > 1e-9 {
            return Err(UnitError::Share { given: fraction.to_string() });
        }
        Ok(Share(percent.round() as u8))
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.fraction()
    }
}

impl FromStr for Share {
    type Err = UnitError;

    /// Parses a fraction from 0 to 1 in steps of 0.01, or the same value in per cent, such as `0.2`
    /// or `20%`.
    fn from_str(s: &str) -> Result<Self, UnitError> {
        fraction(s)
            .and_then(|fraction| fraction.try_into().ok())
            .ok_or_else(|| UnitError::Share { given: s.into() })
    }
}

/// Parses a plain number (`0.05`) or a percentage (`5%`, `5 %`). Returns `None` for any other text.
pub fn fraction(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0),
        None => text.parse().ok(),
    }
}

/// Error from parsing a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The text is not a rate.
    #[error(
        "'{given}' is not a rate: give a whole number of queries per second from 1 to 100000000, such as 20000 or 20k"
    )]
    Rate {
        /// The invalid text.
        given: String,
    },
    /// The text is neither a fraction from 0 to 1 nor a percentage.
    #[error(
        "'{given}' is not a share: give a fraction from 0 to 1 in steps of 0.01, such as 0.2 or 20%"
    )]
    Share {
        /// The invalid text.
        given: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_grouped_and_counted() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(grouped),
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [0, 1, 2].map(|n| counted(n, "packet", "packets")),
            ["0 packets", "1 packet", "2 packets"]
        );
    }

    proptest! {
        #[test]
        fn share_is_exact_in_every_window_of_100(percent in 0u8..=100, start in 0u64..u64::from(u32::MAX)) {
            let share = Share::percent(percent);
            let selected = (start..start + 100).filter(|&n| share.selects(n)).count();
            prop_assert_eq!(selected, usize::from(percent));
        }

        #[test]
        fn count_below_agrees_with_counting(percent in 0u8..=100, n in 0u64..1000) {
            let share = Share::percent(percent);
            prop_assert_eq!(share.count_below(n), (0..n).filter(|&k| share.selects(k)).count() as u64);
        }
    }

    #[test]
    fn shares_are_parsed_strictly() {
        assert_eq!("0.2".parse::<Share>().unwrap(), Share::percent(20));
        assert_eq!("1".parse::<Share>().unwrap(), Share::ONE);
        for percent in 0..=100 {
            assert_eq!(format!("{percent}%").parse::<Share>().unwrap(), Share::percent(percent));
        }
        for bad in ["1.01", "-0.1", "0.125", "20.5%", "101%", "%", "NaN", ""] {
            assert!(bad.parse::<Share>().is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn rates_are_parsed_strictly() {
        assert_eq!("131072".parse::<Qps>().unwrap(), Qps(131_072));
        for (text, rate) in [
            ("20k", 20_000),
            ("20_000", 20_000),
            ("1.5k", 1_500),
            ("0.25M", 250_000),
            ("1_0.50k", 10_500),
            ("100M", 100_000_000),
        ] {
            assert_eq!(text.parse::<Qps>().unwrap(), Qps(rate), "{text}");
        }
        for bad in [
            "0",
            "-1",
            "1e3",
            "100000001",
            "",
            "1.5",
            "1.0",
            "1.2345k",
            "k",
            ".5k",
            "1.k",
            "_1",
            "1__0",
            "20 k",
            "101M",
            "0.0k",
            "99999999999999999999k",
        ] {
            assert!(bad.parse::<Qps>().is_err(), "{bad} was accepted");
        }
    }

    #[test]
    fn lengths_of_time_are_converted() {
        assert_eq!(Nanos::SECOND, Nanos::from_millis(1_000));
        assert_eq!(Nanos::from_millis(1), Nanos::from_micros(1_000));
        assert_eq!(Nanos::from_micros(2), Nanos(2_000));
        assert_eq!(Nanos(2_500_000).as_millis_f64(), 2.5);
        assert_eq!(Nanos(2_500_000_000).as_secs_f64(), 2.5);
        assert_eq!(Nanos(5).since(Nanos(3)), Nanos(2));
        assert_eq!(Nanos(3).since(Nanos(5)), Nanos(0));
        assert_eq!(Nanos(3) + Nanos(5), Nanos(8));
        assert_eq!(Nanos::from(Duration::from_micros(7)), Nanos(7_000));
        assert_eq!(Nanos::from(Duration::MAX), Nanos(u64::MAX));
        assert_eq!(Duration::from(Nanos(7_000)), Duration::from_micros(7));
    }

    #[test]
    fn shares_are_converted() {
        assert_eq!(
            [0, 1, 99, 100, 101, 255].map(Share::percent).map(Share::per_hundred),
            [0, 1, 99, 100, 100, 100]
        );
        assert_eq!(Share::percent(20).fraction(), 0.2);
        assert_eq!(f64::from(Share::percent(20)), 0.2);
        assert_eq!(
            (Share::percent(20).to_string(), Qps(20).to_string()),
            ("0.2".into(), "20".into())
        );
        assert_eq!(Share::try_from(1.0), Ok(Share::ONE));
        assert_eq!(Share::try_from(0.0), Ok(Share::ZERO));
        assert!(Share::try_from(0.200_000_000_1).is_err());
        assert_eq!(
            (fraction("5 %"), fraction("0.05"), fraction("5 p")),
            (Some(0.05), Some(0.05), None)
        );
    }

    #[test]
    fn the_last_members_of_a_sequence_have_shares_too() {
        let half = Share::percent(50);
        assert_eq!(half.selects(u64::MAX), half.selects(u64::MAX % 100));
    }

    /// A share is as exact as possible even for few names, because its members are spread over each hundred.
    #[test]
    fn members_of_a_share_are_spread() {
        assert_eq!((0..10).filter(|&n| Share::percent(20).selects(n)).count(), 2);
        let of_ten =
            |first: u64| (first..first + 10).filter(|&n| Share::percent(50).selects(n)).count();
        assert!((0..100).map(of_ten).all(|n| (4..=6).contains(&n)));
        assert_eq!(
            (0..4).map(|n| Share::percent(37).selects(n)).collect::<Vec<_>>(),
            [true, false, false, true]
        );
    }

    #[test]
    fn invalid_quantities_are_quoted() {
        for (error, word) in [
            ("x".parse::<Qps>().unwrap_err(), "'x' is not a rate"),
            ("x".parse::<Share>().unwrap_err(), "'x' is not a share"),
        ] {
            assert!(error.to_string().starts_with(word), "{error}");
        }
    }
}
