//! Goals of an MLRsearch, as written on the command line and in plans.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use method::mlr::goal::Goal;
use serde::{Deserialize, Serialize};
use units::{Nanos, Qps};

use crate::plan::quantity::{nonzero_time, share};

/// Returns the maximum distance between the two bounds of an MLRsearch at a given rate. `width` is this distance as a
/// fraction of the rate.
pub(crate) fn distance(width: f64, rate: Qps) -> Qps {
    Qps((width * rate.0 as f64).ceil() as u64)
}

/// A goal of an MLRsearch, for the option `--goal` and the plan key `goals`. The format is
/// `LOSS[,exceed=SHARE][,final=TIME][,sum=TIME]`. Omitted fields have the values of the RFC 8219
/// goal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypedGoal {
    loss: f64,
    exceed: f64,
    last: Option<Duration>,
    sum: Option<Duration>,
}

impl TypedGoal {
    /// Returns the goal, with default values for omitted fields. `width` is the maximum distance between the bounds, as
    /// a fraction of the upper bound. `duration` is the trial length if the goal does not set one.
    pub fn goal(&self, duration: Duration, width: f64) -> Goal {
        let last = self.last.unwrap_or(self.sum.map_or(duration, |sum| duration.min(sum)));
        let goal = Goal::rfc8219(Nanos::from(last), width);
        Goal {
            loss_ratio: self.loss,
            exceed_ratio: self.exceed,
            duration_sum: self.sum.unwrap_or(last).into(),
            ..goal
        }
    }
}

impl schemars::JsonSchema for TypedGoal {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TypedGoal".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "LOSS[,exceed=SHARE][,final=TIME][,sum=TIME], such as 0.5%,exceed=50%,final=1s,sum=21s"
        })
    }
}

impl fmt::Display for TypedGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.loss)?;
        if self.exceed > 0.0 {
            write!(f, ",exceed={}", self.exceed)?;
        }
        for (name, time) in [("final", self.last), ("sum", self.sum)] {
            if let Some(time) = time {
                write!(
                    f,
                    ",{name}={}",
                    humantime::format_duration(time).to_string().replace(' ', "")
                )?;
            }
        }
        Ok(())
    }
}

impl From<TypedGoal> for String {
    fn from(goal: TypedGoal) -> String {
        goal.to_string()
    }
}

impl TryFrom<String> for TypedGoal {
    type Error = String;

    fn try_from(text: String) -> Result<TypedGoal, String> {
        TypedGoal::parse(&text)
    }
}

/// On the command line, a loss of this value or more must have a percent sign. The sign prevents a
/// mistake: an operator may type 0.5 for 0.5 %, although 0.5 means half of the queries.
const HIGH_LOSS: f64 = 0.1;

impl FromStr for TypedGoal {
    type Err = String;

    /// Parses a goal from the command line. The format is that of plans, but a loss of `HIGH_LOSS` or more without a
    /// percent sign is rejected. Plans may contain such a loss, because the plans in journals contain losses without a
    /// percent sign.
    fn from_str(text: &str) -> Result<TypedGoal, String> {
        let goal = TypedGoal::parse(text)?;
        let loss = text.split(',').next().unwrap_or_default();
        if goal.loss >= HIGH_LOSS && !loss.ends_with('%') {
            let percent = (goal.loss * 1e6).round() / 1e4;
            return Err(format!(
                "'{loss}' would be a loss of {percent} %: write {loss}% or {percent}%"
            ));
        }
        Ok(goal)
    }
}

impl TypedGoal {
    fn parse(text: &str) -> Result<TypedGoal, String> {
        let mut parts = text.split(',');
        let loss = share(parts.next().unwrap_or_default())?;
        let mut goal = TypedGoal { loss, exceed: 0.0, last: None, sum: None };
        for part in parts {
            match part.split_once('=') {
                Some(("exceed", exceed)) => goal.exceed = share(exceed)?,
                Some(("final", time)) => goal.last = Some(nonzero_time(time)?),
                Some(("sum", time)) => goal.sum = Some(nonzero_time(time)?),
                _ => {
                    return Err(format!(
                        "'{part}' is not part of a goal; write for example 0.5%,exceed=50%,final=1s,sum=21s"
                    ));
                }
            }
        }
        Ok(goal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TypedGoal, String> {
        text.parse()
    }

    #[test]
    fn goals_are_read_as_people_write_them() {
        let minute = Duration::from_secs(60);
        let strict = parse("0").unwrap().goal(minute, 0.01);
        assert_eq!(strict, Goal::rfc8219(minute.into(), 0.01));
        let half = parse("0.5%,exceed=50%,final=1s,sum=21").unwrap().goal(minute, 0.01);
        assert_eq!((half.loss_ratio, half.exceed_ratio), (0.005, 0.5));
        assert_eq!(
            (half.final_duration, half.duration_sum),
            (Nanos::SECOND, Nanos(21_000_000_000))
        );
        // A `sum` below the trial length shortens the trials. A `sum` above the trial length
        // increases the number of trials.
        let sum = |text: &str| parse(text).unwrap().goal(minute, 0.01);
        assert_eq!(sum("0.001,sum=20s").final_duration, Nanos(20_000_000_000));
        assert_eq!(sum("0.001,sum=2m").final_duration, Nanos(60_000_000_000));
        assert!([strict, half].iter().all(|goal| goal.validate().is_ok()));
    }

    #[test]
    fn goals_are_written_as_they_are_read() {
        for text in ["0", "0.005,exceed=0.5,final=1s,sum=21s", "0.001,sum=1m30s"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["0.5%,exceed=50%", "1%,final=250ms,sum=1h2m3s4ms", "0.1 %,final=0.5,sum=90"] {
            let goal = parse(text).unwrap();
            assert_eq!(parse(&goal.to_string()), Ok(goal), "{text}");
        }
    }

    #[test]
    fn invalid_goals_are_rejected_with_the_correct_form() {
        for (text, says) in [
            ("", "share"),
            ("101%", "share"),
            ("0,exceeds=1%", "exceed=50%"),
            ("0,final=0s", "above 0"),
            ("0.5,final=1s", "'0.5' would be a loss of 50 %: write 0.5% or 50%"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let stored: TypedGoal = serde_json::from_str("\"0.5,final=1s\"").unwrap();
        assert_eq!(Ok(stored), parse("50%,final=1s"));
    }
}
