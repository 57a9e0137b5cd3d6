//! Outcomes of all checks of one server, as text. Failures come first, then counts by RFC and section. Then come the
//! checks that passed only at the second attempt, the checks of features that the server does not offer, and the checks
//! that were not run. Counts by level come last.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::{COLUMNS, GROUPS, is_hidden, level_word, numbers, quoted, verdict_word};
use crate::check::Level;
use crate::outcome::{Count, Outcome, Report, Verdict};

/// Returns the complete report as plain text, without colours.
pub fn text(report: &Report) -> String {
    let mut out = format!(
        "{}, prefix {}: {} checks in {:.1} s\n",
        [report.server.as_str(), report.version.as_str()].join(" ").trim(),
        report.prefixes.join(", "),
        report.outcomes.len(),
        report.duration_s
    );
    for (title, levels) in GROUPS {
        failures(&mut out, report, title, levels);
    }
    sections(&mut out, &report.outcomes);
    for (title, verdict) in [
        ("Passed on the second attempt only", Verdict::Passed),
        ("Not offered", Verdict::NotOffered),
        ("Not tried", Verdict::NotTried),
    ] {
        reasons(&mut out, report, title, verdict);
    }
    let rows = GROUPS.map(|(title, levels)| (title.to_owned(), report.count(levels)));
    counts(&mut out, "By level", &rows);
    out.push('\n');
    out.push_str(&conclusion(report));
    // Data from a server must not control the terminal.
    out.retain(|c| c == '\n' || !is_hidden(c));
    out
}

/// Writes the failing checks of a requirement level, by section.
fn failures(out: &mut String, report: &Report, title: &str, levels: &[Level]) {
    let fails =
        |outcome: &&Outcome| outcome.verdict == Verdict::Failed && levels.contains(&outcome.level);
    let failing: Vec<&Outcome> = report.outcomes.iter().filter(fails).collect();
    if failing.is_empty() {
        return;
    }
    let word = verdict_word(Verdict::Failed, levels[0]);
    let _ = writeln!(out, "\n{title}, {word}: {}", failing.len());
    let mut source = "";
    for outcome in failing {
        if outcome.source != source {
            source = &outcome.source;
            let _ = writeln!(out, "\n  {source}");
        }
        failure(out, report, outcome);
    }
}

fn failure(out: &mut String, report: &Report, outcome: &Outcome) {
    let _ = writeln!(out, "    {}  {}", level_word(outcome.level), outcome.id);
    let mut line = |head: &str, text: &str| {
        for (n, part) in text.lines().enumerate() {
            let _ = writeln!(out, "      {:8}{part}", if n == 0 { head } else { "" });
        }
    };
    line("expect", &outcome.title);
    line("reason", &outcome.explanation());
    line("source", &quoted(&outcome.source, &outcome.sentence));
    for shown in &outcome.exchanges {
        line("repeat", &shown.dig);
        line("reply", &format!("{} ({:.0} ms)", shown.reply, shown.took_ms));
    }
    if let Some(id) = &outcome.contradicts {
        let opposite = report.outcomes.iter().find(|other| other.id == *id);
        let word = opposite.map_or("not run", |o| verdict_word(o.verdict, o.level));
        line("against", &format!("{id} requires the opposite: {word}"));
    }
}

/// Writes the number of checks per verdict for each section of an RFC. The sections are in the order in which they
/// first occur in the outcomes.
fn sections(out: &mut String, outcomes: &[Outcome]) {
    let mut rows: Vec<(String, Count)> = Vec::new();
    for outcome in outcomes {
        let at = rows.iter().position(|(source, _)| *source == outcome.source);
        let at = at.unwrap_or_else(|| {
            rows.push((outcome.source.clone(), Count::default()));
            rows.len() - 1
        });
        let count = &mut rows[at].1;
        *match outcome.verdict {
            Verdict::Passed => &mut count.passed,
            Verdict::Failed => &mut count.failed,
            Verdict::NotTried => &mut count.not_tried,
            Verdict::NotOffered => &mut count.not_offered,
        } += 1;
    }
    counts(out, "By section", &rows);
}

fn counts(out: &mut String, title: &str, rows: &[(String, Count)]) {
    let names = rows.iter().map(|(name, _)| name.chars().count());
    let width = names.chain([title.len()]).max().unwrap_or(0);
    let _ = write!(out, "\n{title:width$}");
    for column in COLUMNS {
        let _ = write!(out, "  {column:>11}");
    }
    out.push('\n');
    for (name, count) in rows {
        let _ = write!(out, "{name:width$}");
        for number in numbers(*count) {
            let _ = write!(out, "  {number:>11}");
        }
        out.push('\n');
    }
}

/// Writes the checks with this verdict, grouped by the explanation of the outcome. Passed checks without an explanation
/// are omitted.
fn reasons(out: &mut String, report: &Report, title: &str, verdict: Verdict) {
    let mut by_reason: BTreeMap<Cow<'_, str>, Vec<&str>> = BTreeMap::new();
    let explanation = report.outcomes.iter().filter(|outcome| outcome.verdict == verdict);
    for outcome in explanation.filter(|o| verdict != Verdict::Passed || !o.explanation().is_empty())
    {
        by_reason.entry(outcome.explanation()).or_default().push(&outcome.id);
    }
    if by_reason.is_empty() {
        return;
    }
    let total: usize = by_reason.values().map(Vec::len).sum();
    let _ = writeln!(out, "\n{title}: {total}");
    for (reason, ids) in by_reason {
        let _ = writeln!(out, "  {reason}");
        for id in ids {
            let _ = writeln!(out, "    {id}");
        }
    }
}

/// Returns the last line, which states whether the server passed every MUST that was checked.
fn conclusion(report: &Report) -> String {
    let count = report.count(&[Level::Must]);
    let not_known = match (count.not_tried, count.not_offered) {
        (0, 0) => String::new(),
        (tried, 0) => format!("; {tried} not tried"),
        (0, offered) => format!("; {offered} not offered"),
        (tried, offered) => format!("; {tried} not tried, {offered} not offered"),
    };
    match (count.failed, count.passed) {
        (0, 0) => format!("No MUST was checked{not_known}.\n"),
        (0, passed) => format!("Of MUST, {passed} passed and none failed{not_known}.\n"),
        (failed, passed) => format!("Of MUST, {failed} failed and {passed} passed{not_known}.\n"),
    }
}
