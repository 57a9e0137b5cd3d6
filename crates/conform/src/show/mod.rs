//! Output of check results as text, as JUnit XML, and as a table of all servers (the scoreboard) in HTML and Markdown.
//!
//! Checks that were not run, and checks of features that the server does not support, are always shown with the reason.
//! Otherwise untested behaviour would look like correct behaviour.

mod board;
pub mod html;
pub mod junit;
pub mod markdown;
mod reply;
pub mod terminal;

use std::fmt::Write;

use crate::check::{Check, Level};
use crate::checks;
use crate::outcome::{Count, Outcome, Verdict};
use crate::selection::{NoCheck, chosen};

pub(crate) use reply::exchange;

/// Groups of requirement levels that are counted together, each with its heading. MUST and SHOULD are in separate
/// groups.
pub(crate) const GROUPS: [(&str, &[Level]); 4] = [
    ("MUST", &[Level::Must]),
    ("SHOULD, RFC says", &[Level::Should, Level::Says]),
    ("MAY", &[Level::May]),
    ("hardening", &[Level::Hardening]),
];

/// True for control characters and characters that change the writing direction. Data from servers may contain them.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Lists the checks selected by `only`, or all checks if `only` is empty. Each line contains the id, level, section and
/// title of a check.
///
/// # Errors
/// Returns [`NoCheck`] if a name in `only` matches no check.
pub fn list(only: &[String]) -> Result<String, NoCheck> {
    let all: Vec<&Check> = checks::all().collect();
    Ok(list_of(&chosen(&all, only)?))
}

fn list_of(checks: &[&Check]) -> String {
    let width = |text: fn(&Check) -> usize| checks.iter().map(|c| text(c)).max().unwrap_or(0);
    let id = width(|check| check.id.chars().count());
    let source = width(|check| check.source().chars().count());
    let mut out = String::new();
    for check in checks {
        let _ = writeln!(
            out,
            "{:id$}  {:9}  {:source$}  {}",
            check.id,
            level_word(check.level),
            check.source(),
            check.title
        );
    }
    out
}

/// Returns a requirement level as text, such as "MUST".
pub(crate) fn level_word(level: Level) -> &'static str {
    match level {
        Level::Must => "MUST",
        Level::Should => "SHOULD",
        Level::Says => "RFC says",
        Level::May => "MAY",
        Level::Hardening => "hardening",
    }
}

/// Returns a verdict as text. A missing optional feature (MAY) is not a fault, so its text is "not done" instead of
/// "failed".
pub(crate) fn verdict_word(verdict: Verdict, level: Level) -> &'static str {
    match (verdict, level) {
        (Verdict::Failed, Level::May) => "not done",
        (Verdict::Failed, _) => "failed",
        (Verdict::NotTried, _) => "not tried",
        (Verdict::NotOffered, _) => "not offered",
        (Verdict::Passed, _) => "passed",
    }
}

/// Column headings of every table that shows the number of checks per verdict.
pub(crate) const COLUMNS: [&str; 4] = ["passed", "failed", "not offered", "not tried"];

/// Returns the number of checks with each verdict, in the order of the table columns ([`COLUMNS`]).
pub(crate) fn numbers(count: Count) -> [usize; 4] {
    [count.passed, count.failed, count.not_offered, count.not_tried]
}

/// Returns the level and the source of a check: "MUST, RFC 6147 §5.1.2", or "hardening".
pub(crate) fn origin(outcome: &Outcome) -> String {
    let level = level_word(outcome.level);
    if outcome.source == level { level.into() } else { format!("{level}, {}", outcome.source) }
}

/// Returns a text with the source of a check and the sentence that the check tests. The sentence is in quotation marks
/// only if it comes from an RFC.
pub(crate) fn quoted(source: &str, sentence: &str) -> String {
    match (source, sentence) {
        (source, "") => source.into(),
        ("hardening", sentence) => format!("hardening: {sentence}"),
        (source, sentence) => format!("{source}: “{sentence}”"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Judged;

    #[test]
    fn the_list_has_one_check_a_line() {
        fn script(_: &mut crate::trial::Trial<'_>) -> Judged {
            Ok(())
        }
        let check = Check {
            id: "rfc6147-5.1.2-nxdomain",
            title: "NXDOMAIN is final",
            rfc: 6147,
            section: "5.1.2",
            sentence: "…",
            level: Level::Says,
            needs: &[],
            contradicts: None,
            script,
        };
        let ours =
            Check { id: "hardening-x", rfc: 0, section: "", level: Level::Hardening, ..check };
        assert_eq!(
            list_of(&[&check, &ours]),
            "rfc6147-5.1.2-nxdomain  RFC says   RFC 6147 §5.1.2  NXDOMAIN is final\n\
             hardening-x             hardening  hardening        NXDOMAIN is final\n"
        );
        assert_eq!(list(&[]).unwrap().lines().count(), checks::all().count());
    }
}
