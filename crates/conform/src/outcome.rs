//! Outcomes of the checks. They are written as JSON, and every table is generated from them.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Level;

/// Verdict of a check.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The server does not do what the check requires.
    Failed,
    /// The check could not be run.
    NotTried,
    /// The server does not support the feature that the check tests.
    NotOffered,
    /// The server does what the check requires.
    Passed,
}

impl Verdict {
    /// Returns the weight of the verdict. If a server is checked with several configurations, the verdict with the
    /// largest weight counts.
    fn weight(self) -> u8 {
        match self {
            Verdict::NotOffered => 0,
            Verdict::NotTried => 1,
            Verdict::Passed => 2,
            Verdict::Failed => 3,
        }
    }
}

/// A query and its reply, as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Shell command that repeats the query: `dig`, or `nc` for octets that `dig` cannot send.
    pub dig: String,
    /// Reply as lines of text, or "no reply".
    pub reply: String,
    /// Time until the reply, in milliseconds.
    #[serde(alias = "milliseconds")]
    pub took_ms: f64,
}

/// Outcome of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Id of the check.
    pub id: String,
    /// Requirement on the server, in one sentence.
    pub title: String,
    /// Source of the requirement: "RFC 6147 §5.1.2", or "hardening".
    pub source: String,
    /// The sentence of the RFC that the check tests.
    pub sentence: String,
    /// Requirement level of the RFC's sentence.
    pub level: Level,
    /// Verdict of the check.
    pub verdict: Verdict,
    /// Reason for the verdict: the server's behaviour, or a missing precondition; empty if the check passed.
    pub reason: String,
    /// Configuration of the server during this check, if it was a special configuration: "with the prefix
    /// 3fff:64::/32".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// Id of the check with the opposite requirement, if there is one.
    pub contradicts: Option<String>,
    /// Last few queries and replies; empty if the check passed.
    pub exchanges: Vec<Shown>,
}

impl Outcome {
    /// Returns the reason for the verdict. If the server had a special configuration, the text begins with a
    /// description of that configuration.
    pub fn explanation(&self) -> Cow<'_, str> {
        match &self.setting {
            None => Cow::Borrowed(&self.reason),
            Some(setting) if self.reason.is_empty() => Cow::Borrowed(setting),
            Some(setting) => Cow::Owned(format!("{setting}: {}", self.reason)),
        }
    }
}

/// Outcomes of the checks of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Name of the server, as shown in the tables of results.
    pub server: String,
    /// Version that the server reports; empty if the version was not queried.
    pub version: String,
    /// Prefixes of the server that the checks use.
    pub prefixes: Vec<String>,
    /// Outcome of each check, in the order of the list of checks.
    pub outcomes: Vec<Outcome>,
    /// Duration of the run, in seconds.
    #[serde(alias = "seconds")]
    pub duration_s: f64,
}

/// Result of checking a server, as printed by `dns64bench conform --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Checked {
    /// The server was checked. The report contains the outcomes.
    Report(Report),
    /// The server could not be checked.
    Unchecked {
        /// Reason why the server could not be checked, as text.
        unchecked: String,
    },
}

/// How many checks have each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Number of checks that passed.
    pub passed: usize,
    /// Number of checks that failed.
    pub failed: usize,
    /// Number of checks that could not be run because a precondition is missing.
    pub not_tried: usize,
    /// Number of checks of an optional feature that the server does not support.
    pub not_offered: usize,
}

impl Report {
    /// Returns how many checks of the given levels have each verdict.
    pub fn count(&self, levels: &[Level]) -> Count {
        let mut count = Count::default();
        for outcome in self.outcomes.iter().filter(|outcome| levels.contains(&outcome.level)) {
            *match outcome.verdict {
                Verdict::Passed => &mut count.passed,
                Verdict::Failed => &mut count.failed,
                Verdict::NotTried => &mut count.not_tried,
                Verdict::NotOffered => &mut count.not_offered,
            } += 1;
        }
        count
    }

    /// Adds the outcomes of the same server with a different configuration, which `setting` describes. A check counts
    /// as failed if it failed with any configuration. Otherwise it counts as passed if it passed with any
    /// configuration. If two outcomes have the same verdict, the earlier outcome is kept.
    pub fn add(&mut self, setting: &str, other: Report) {
        self.duration_s += other.duration_s;
        for outcome in other.outcomes {
            let outcome = Outcome { setting: Some(setting.into()), ..outcome };
            match self.outcomes.iter_mut().find(|known| known.id == outcome.id) {
                Some(known) if outcome.verdict.weight() > known.verdict.weight() => {
                    *known = outcome;
                }
                Some(_) => {}
                None => self.outcomes.push(outcome),
            }
        }
    }

    /// If the check of `outcome` has an opposite check, and the server passed that opposite check, returns the outcome
    /// of the opposite check. A server can pass only one of two checks with opposite requirements.
    pub fn passed_opposite(&self, outcome: &Outcome) -> Option<&Outcome> {
        let opposite = outcome.contradicts.as_ref()?;
        self.outcomes.iter().find(|o| o.id == *opposite && o.verdict == Verdict::Passed)
    }

    /// True if at least one check of level MUST failed.
    pub fn fails_a_must(&self) -> bool {
        self.count(&[Level::Must]).failed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[(&str, Verdict)]) -> Report {
        let outcome = |&(id, verdict): &(&str, Verdict)| Outcome {
            id: id.into(),
            title: String::new(),
            source: String::new(),
            sentence: String::new(),
            level: Level::Must,
            verdict,
            reason: format!("{verdict:?}"),
            setting: None,
            contradicts: None,
            exchanges: Vec::new(),
        };
        Report {
            server: "x".into(),
            version: String::new(),
            prefixes: vec!["64:ff9b::/96".into()],
            outcomes: outcomes.iter().map(outcome).collect(),
            duration_s: 1.5,
        }
    }

    #[test]
    fn worst_verdict_of_several_configurations_counts() {
        use Verdict::{Failed, NotOffered, NotTried, Passed};
        let all = [Failed, NotTried, NotOffered, Passed];
        for usual in all {
            for other in all {
                let mut sum = report(&[("a", usual)]);
                sum.add("with x", report(&[("a", other), ("b", Passed)]));
                let found = sum.outcomes[0].verdict;
                let wanted = [Failed, Passed, NotTried, NotOffered]
                    .into_iter()
                    .find(|verdict| [usual, other].contains(verdict));
                assert_eq!(Some(found), wanted, "{usual:?}, {other:?}");
                let is_new = found != usual;
                assert_eq!(sum.outcomes[0].setting.is_some(), is_new, "{usual:?}, {other:?}");
                assert_eq!(
                    sum.outcomes[1].explanation(),
                    "with x: Passed",
                    "a check that exists only \
                    there is added"
                );
                assert_eq!((sum.outcomes.len(), sum.duration_s), (2, 3.0));
            }
        }
    }
}
