//! JUnit XML for CI pipelines.

use std::fmt::Write;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Document, TestCase, TestCaseStatus, TestSuite};

use super::{is_hidden, level_word, quoted, verdict_word};
use crate::check::Level;
use crate::outcome::{Outcome, Report, Verdict};

/// Writes a suite for each server and a test case for each check. A test case fails if the server violates a MUST, a
/// SHOULD, or a sentence without a BCP 14 keyword. The test case is skipped, with the reason, in these cases:
///
/// - The check was not run, or the server does not support the feature.
/// - The server fails the check, but the check tests a MAY, or advice that is not from an RFC.
/// - The server fails this check, but passes another check that requires the opposite behaviour.
pub fn junit(reports: &[Report]) -> String {
    let mut document = Document::new("conform");
    for report in reports {
        let mut suite = TestSuite::new(report.server.as_str());
        suite.set_time(Duration::try_from_secs_f64(report.duration_s).unwrap_or_default());
        suite.add_property(("version", report.version.as_str()));
        suite.add_property(("prefixes", report.prefixes.join(" ").as_str()));
        suite.add_test_cases(report.outcomes.iter().map(|outcome| case(report, outcome)));
        document.add_test_suite(suite);
    }
    // Writing fails only for an invalid timestamp, and there are no timestamps.
    let mut text = document.to_string().unwrap_or_default();
    text.retain(|c| c == '\n' || !is_hidden(c));
    text
}

fn case(report: &Report, outcome: &Outcome) -> TestCase {
    let word = verdict_word(outcome.verdict, outcome.level);
    let is_failed = outcome.verdict == Verdict::Failed;
    let opposite = report.passed_opposite(outcome).filter(|_| is_failed);
    let mut status = match (outcome.verdict, outcome.level) {
        (Verdict::Passed, _) => TestCaseStatus::success(),
        (Verdict::Failed, Level::Must | Level::Should | Level::Says) if opposite.is_none() => {
            TestCaseStatus::non_success(NonSuccessKind::Failure)
        }
        _ => TestCaseStatus::skipped(),
    };
    if outcome.verdict != Verdict::Passed {
        status.set_type(level_word(outcome.level));
        let mut message = format!("{word}: {}", outcome.explanation());
        if let Some(opposite) = opposite {
            let _ = write!(message, "; {} requires the opposite: passed", opposite.id);
        }
        status.set_message(message);
        status.set_description(description(outcome));
    }
    let mut case = TestCase::new(outcome.id.as_str(), status);
    case.set_classname(outcome.source.as_str());
    if outcome.verdict == Verdict::Passed && !outcome.explanation().is_empty() {
        case.set_system_out(outcome.explanation());
    }
    case
}

/// Returns the description of a test case: the requirement, the queries and the replies.
fn description(outcome: &Outcome) -> String {
    let mut text = format!("{}\n{}", outcome.title, quoted(&outcome.source, &outcome.sentence));
    for shown in &outcome.exchanges {
        let _ = write!(text, "\n\n$ {}\n{}", shown.dig, shown.reply);
    }
    text
}
