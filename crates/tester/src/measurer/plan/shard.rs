//! Index of one tester in a trial of several testers, and the common start time.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use units::Nanos;

/// A wall-clock time in nanoseconds since 1970-01-01 UTC, written in the format of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Moment(pub Nanos);

impl schemars::JsonSchema for Moment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from(self.0)).fmt(f)
    }
}

impl FromStr for Moment {
    type Err = String;

    /// Parses a time: RFC 3339, the output of `date --iso-8601=ns` (with a comma), or seconds since 1970.
    fn from_str(text: &str) -> Result<Moment, String> {
        unix_seconds(text).or_else(|| rfc3339(text)).map(Moment).ok_or_else(|| {
            format!(
                "'{text}' is not a time with a time zone; write for example 2026-11-25T13:00:00Z, \
                 2026-11-25T14:00:00.5+01:00, the output of `date --iso-8601=ns --date='10 seconds'`, or seconds since 1970"
            )
        })
    }
}

/// Parses a number of seconds since 1970, with or without a fraction: `1764075600` or `1764075600.25`.
fn unix_seconds(text: &str) -> Option<Nanos> {
    let (seconds, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) {
        return None;
    }
    // Digits after the ninth are less than a nanosecond.
    let nanos = format!("{fraction:0<9}").get(..9)?.parse::<u64>().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(Nanos::SECOND.0)?.checked_add(nanos).map(Nanos)
}

/// Parses a time in the format of RFC 3339: a date, a time of day, and `Z` or an offset from UTC.
fn rfc3339(text: &str) -> Option<Nanos> {
    let (local, east) = match text.strip_suffix(['Z', 'z']) {
        Some(local) => (local, 0),
        None => {
            let (local, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let minutes = hours.parse::<u64>().ok().filter(|&hours| hours < 24)? * 60
                + minutes.parse::<u64>().ok().filter(|&minutes| minutes < 60)?;
            match zone.as_bytes()[0] {
                b'+' => (local, i128::from(minutes * 60 * Nanos::SECOND.0)),
                b'-' => (local, -i128::from(minutes * 60 * Nanos::SECOND.0)),
                _ => return None,
            }
        }
    };
    let moment = humantime::parse_rfc3339(&format!("{}Z", local.replace(',', "."))).ok()?;
    let nanos = moment.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_nanos();
    let utc = i128::try_from(nanos).ok()? - east;
    u64::try_from(utc).ok().map(Nanos)
}

impl TryFrom<String> for Moment {
    type Error = String;

    fn try_from(text: String) -> Result<Moment, String> {
        text.parse()
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> String {
        moment.to_string()
    }
}

/// Index and settings of one tester in a trial of several testers, and the common start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ShardPlan {
    /// Index of the tester. The tester sends every query whose index modulo `of` equals this value.
    pub index: u16,
    /// Number of testers, at least 1.
    pub of: u16,
    /// Seed from which the message ids of the queries are generated; the same for all testers.
    pub seed: u64,
    /// Scheduled time of query 0.
    pub start: Moment,
}
