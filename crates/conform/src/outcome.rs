//! What came of the checks: the object that is written as JSON, and that every table is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Level;

/// What a check came to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The server does something else than the sentence wants.
    Failed,
    /// The check could not be tried.
    NotTried,
    /// The server does not have what the check is about.
    NotOffered,
    /// The server does what the sentence wants.
    Passed,
}

/// What was sent and what came, in words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// The command that repeats what was sent: a line of `dig`, or of `nc` for octets that `dig`
    /// cannot send.
    pub dig: String,
    /// What came, as lines; "no reply" for silence.
    pub reply: String,
    /// How long it took, in milliseconds.
    pub milliseconds: f64,
}

/// One check's outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The check's name.
    pub id: String,
    /// What the server must do.
    pub title: String,
    /// Where that stands: "RFC 6147 §5.1.2", or "hardening".
    pub source: String,
    /// The sentence of the RFC.
    pub sentence: String,
    /// How strict the sentence is.
    pub level: Level,
    /// What came of it.
    pub verdict: Verdict,
    /// Why: what the server did, or what was missing; empty where it passed.
    pub reason: String,
    /// The name of the check that wants the opposite, if there is one.
    pub contradicts: Option<String>,
    /// What was sent and what came, the last few exchanges; empty where it passed.
    pub exchanges: Vec<Shown>,
}

/// One server's outcomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// The server's name, for the scoreboard.
    pub server: String,
    /// What it says of its version; empty if nobody asked.
    pub version: String,
    /// Its prefixes, as the checks believe.
    pub prefixes: Vec<String>,
    /// Each check's outcome, in the order of the list of checks.
    pub outcomes: Vec<Outcome>,
    /// How long all took, in seconds.
    pub seconds: f64,
}

/// What came of checking a server, as `dns64bench conform --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Checked {
    /// The outcomes.
    Report(Report),
    /// The server shows nothing that could be checked.
    Unchecked {
        /// Why, in words.
        unchecked: String,
    },
}

/// How many checks of a level came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Not tried.
    pub not_tried: usize,
    /// Not offered.
    pub not_offered: usize,
}

impl Report {
    /// The counts of one level. MUST and SHOULD stand apart; [`Level::Says`] is counted with SHOULD.
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

    /// The outcome of the check that wants the opposite of this one, if that one passes: a server
    /// can pass one of them only.
    pub fn passed_opposite(&self, outcome: &Outcome) -> Option<&Outcome> {
        let opposite = outcome.contradicts.as_ref()?;
        self.outcomes.iter().find(|o| o.id == *opposite && o.verdict == Verdict::Passed)
    }

    /// Whether a MUST is not met.
    pub fn fails_a_must(&self) -> bool {
        self.count(&[Level::Must]).failed > 0
    }
}
