//! Lines for terminals and logs: at most 80 columns, with plain spaces between groups of digits.

use std::io::IsTerminal;

use campaign::plan::Point;
use campaign::record::Measured;
use hosts::text::{MESSAGE, plain};
use method::narrow::Length;
use method::verdict::Verdict;
use units::grouped;

use crate::colour;

/// Maximum width of a line, in columns.
pub(crate) const COLUMNS: usize = 80;
/// Indentation of continuation lines, in columns.
const INDENT: usize = 4;

/// Replaces the narrow no-break spaces (U+202F) between groups of digits with plain spaces, so that `grep "10 000"`
/// finds numbers in a log. Reports keep the narrow spaces.
pub(crate) fn plain_spaces(text: &str) -> String {
    text.replace('\u{202f}', " ")
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Shortens the text to at most `columns` columns; the last column of a shortened text is an ellipsis.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.into();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Formats the text for a stream: wrapped to [`COLUMNS`] on a terminal, otherwise in one line.
pub(crate) fn wrapped_for(text: &str, stream: &impl IsTerminal) -> String {
    if stream.is_terminal() { wrapped(text) } else { text.into() }
}

/// Wraps the text to [`COLUMNS`] and indents continuation lines. A word longer than a line is not split.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.split('\n') {
        let mut used = 0;
        for word in plain_spaces(line).split(' ') {
            let is_first = used == 0;
            if !is_first && used + 1 + width(word) > COLUMNS {
                out.push('\n');
                out.push_str(&" ".repeat(INDENT));
                used = INDENT;
            } else if !is_first {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += width(word);
        }
        out.push('\n');
    }
    out.pop();
    out
}

/// Formats a trial of a campaign: `BIND, 1 core, α 0 β 0 | trial at 9 000 | failed: 4.3 % valid`. `verdict` is the word
/// for the verdict, which may be coloured. If the line is too long, the name of the measurement point (the first part)
/// is shortened. For an invalid trial, the line contains the reason instead of counts.
pub(crate) fn trial(measured: &Measured, verdict: &str) -> String {
    let step = &measured.step;
    let length = match step.length {
        Length::Probe => "probe",
        Length::Full => "trial",
        Length::Of(_) => "short trial",
    };
    let rate =
        measured.at_rate().map_or(String::new(), |_| format!(" at {}", grouped(step.rate.0)));
    let trial = format!("{length}{rate}");
    // Reasons may quote a message of a server, so control characters are removed.
    let details = plain(&details(measured), MESSAGE);
    let rest = format!(" | {trial} | {}{details}", colour::word(measured.verdict()));
    let name = cut_before(&plain(&point(&step.point), MESSAGE), &rest);
    format!("{name} | {trial} | {verdict}{details}")
}

/// Shortens the name of a measurement point so that the name and the text `rest` fit on one line. The shortened name
/// has at least [`NAME`] columns.
fn cut_before(point: &str, rest: &str) -> String {
    cut(point, COLUMNS.saturating_sub(width(rest)).max(NAME))
}

/// Minimum width of a measurement point's shortened name, in columns.
const NAME: usize = 20;

/// Returns details of a trial, to print after the verdict. For an invalid trial: the reason. For other trials: the
/// percentage of valid replies and the latency.
fn details(measured: &Measured) -> String {
    if measured.verdict() == Verdict::Invalid {
        let reason = measured.reasons().first();
        return reason.map_or(String::new(), |reason| format!(": {reason}"));
    }
    let counts = measured.counts();
    let valid = (measured.verdict() == Verdict::Failed && counts.sent > 0)
        .then(|| format!("{} valid", percent(counts.valid, counts.sent)));
    let p99 = measured.at_rate().and_then(|trial| trial.rtt_us);
    let p99 = p99.map(|rtt| format!("p99 {:.2} ms", rtt.p99 / 1e3));
    let both: Vec<String> = valid.into_iter().chain(p99).collect();
    if both.is_empty() { String::new() } else { format!(": {}", both.join(", ")) }
}

/// Formats `part` ÷ `of` in per cent with two decimals. The result is rounded down, so it is 100 % only if both numbers
/// are equal.
pub(crate) fn percent(part: u64, of: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(of.max(1));
    match (hundredths / 100, hundredths % 100) {
        (whole, 0) => format!("{whole} %"),
        (whole, rest) => format!("{whole}.{rest:02} %"),
    }
}

/// Returns a short name of a measurement point. For a search, the name contains α and β: `α 0 β 0` in the worst case.
pub(crate) fn point(point: &Point) -> String {
    let Point::Search(c) = point else { return point.to_string() };
    let accept = if c.accept < 1.0 { format!(", accept {}", c.accept) } else { String::new() };
    format!("{}, {}, α {} β {}{accept}", c.dut, c.place, c.aaaa, c.cached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_keep_their_words() {
        let text = "word \u{202f}".repeat(40) + "\nsecond 10\u{202f}000";
        let lines = wrapped(&text);
        assert!(lines.lines().all(|line| width(line) <= COLUMNS), "{lines}");
        assert!(lines.lines().nth(1).unwrap().starts_with("    word"), "{lines}");
        assert!(
            lines.ends_with("\nsecond 10 000") && lines.matches("word").count() == 40,
            "{lines}"
        );
        assert_eq!(wrapped("short"), "short");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(cut("0123456789", 10), "0123456789");
        assert_eq!(cut("0123456789", 6), "01234…");
    }

    #[test]
    fn the_line_of_a_trial_fits_80_columns() {
        let long = "Unbound 1.17.1 as the distribution builds it, 16 cores, α 0.2 β 0.4";
        for point in ["BIND, 1 core, α 0 β 0", long] {
            let rest = " | trial at 131 072 | failed: 99.99 % valid, p99 1000.00 ms";
            let name = cut_before(point, rest);
            assert!(width(&name) + width(rest) <= COLUMNS, "{name}");
            assert!(width(&name) >= NAME.min(width(point)), "{name}");
        }
        assert_eq!(
            cut_before(long, " | probe at 9 000 | passed: p99 1.20 ms"),
            format!("{}…", &long[..40])
        );
    }

    #[test]
    fn shares_are_never_rounded_up_to_all() {
        let shares = [(999_999, 1_000_000), (5, 5), (43, 1_000), (0, 0)];
        assert_eq!(shares.map(|(n, of)| percent(n, of)), ["99.99 %", "100 %", "4.30 %", "0 %"]);
    }
}
