//! Comparison of servers by their conformance checks, as GitHub-flavoured Markdown. It contains the counts of checks by
//! verdict, the checks that at least one server does not pass, and the reasons for the failures.

use std::fmt::Write;

use super::board::{Board, Row};
use super::{GROUPS, is_hidden, numbers, origin, verdict_word};
use crate::outcome::{Report, Verdict};

/// Writes the tables, with one column for each server. MUST and SHOULD have separate tables, and failing checks come
/// first.
pub fn scoreboard(reports: &[Report]) -> String {
    let board = Board::from_reports(reports);
    let mut out = counts(reports);
    for (title, levels) in GROUPS {
        let rows = board.group(levels);
        if !rows.is_empty() {
            group(&mut out, title, &rows, reports);
        }
    }
    let conflicts = board.conflicts();
    if !conflicts.is_empty() {
        out.push_str("\n### Checks that contradict each other\n\n");
        head(&mut out, "Check", reports);
        for (first, second) in conflicts {
            row(&mut out, first);
            row(&mut out, second);
        }
    }
    reasons(&mut out, &board, reports);
    out
}

fn counts(reports: &[Report]) -> String {
    let mut out = String::new();
    head(&mut out, "passed / failed / not offered / not tried", reports);
    for (title, levels) in GROUPS {
        let cells = reports.iter().map(|report| {
            numbers(report.count(levels)).map(|number| number.to_string()).join(" / ")
        });
        line(&mut out, title, cells);
    }
    out
}

fn group(out: &mut String, title: &str, rows: &[&Row<'_>], reports: &[Report]) {
    let _ = writeln!(out, "\n### {title}\n");
    let passed = rows.iter().filter(|row| row.is_passed_by_all()).count();
    if passed < rows.len() {
        head(out, "Check", reports);
        for of_one in rows.iter().filter(|row| !row.is_passed_by_all()) {
            row(out, of_one);
        }
    }
    let all = if passed == rows.len() { "all" } else { "the other" };
    if passed > 0 {
        let gap = if passed < rows.len() { "\n" } else { "" };
        let _ = writeln!(out, "{gap}Every server passes {all} {passed}.");
    }
}

fn head(out: &mut String, first: &str, reports: &[Report]) {
    let names = reports
        .iter()
        .map(|report| escape([report.server.as_str(), report.version.as_str()].join(" ").trim()));
    line(out, first, names);
    line(out, "---", reports.iter().map(|_| "---".to_owned()));
}

fn row(out: &mut String, row: &Row<'_>) {
    let cells = row.cells.iter().map(|cell| match cell {
        None => "not run".to_owned(),
        Some(outcome) => {
            let word = verdict_word(outcome.verdict, outcome.level);
            if outcome.verdict == Verdict::Failed { format!("**{word}**") } else { word.to_owned() }
        }
    });
    let check = row.check;
    let name =
        format!("{} ({}, `{}`)", escape(&check.title), escape(&origin(check)), code(&check.id));
    line(out, &name, cells);
}

fn line(out: &mut String, first: &str, cells: impl Iterator<Item = String>) {
    let _ = write!(out, "| {first} |");
    for cell in cells {
        let _ = write!(out, " {cell} |");
    }
    out.push('\n');
}

/// Writes the reason for each failure.
fn reasons(out: &mut String, board: &Board<'_>, reports: &[Report]) {
    let mut explanation = String::new();
    for (_, levels) in GROUPS {
        for row in board.group(levels) {
            for (report, cell) in reports.iter().zip(&row.cells) {
                let Some(outcome) = cell.filter(|cell| cell.verdict == Verdict::Failed) else {
                    continue;
                };
                let (server, reason) = (escape(&report.server), escape(&outcome.explanation()));
                let _ = writeln!(explanation, "- `{}`, {server}: {reason}", code(&outcome.id));
            }
        }
    }
    if !explanation.is_empty() {
        let _ = write!(out, "\n### Actual behaviour of the servers\n\n{explanation}");
    }
}

/// Prepares text for a code span in a table. Backticks, vertical bars and hidden characters are removed, and no other
/// character is special.
fn code(text: &str) -> String {
    text.chars().filter(|c| !is_hidden(*c) && !matches!(c, '`' | '|')).collect()
}

/// Escapes text for Markdown. Line breaks become spaces, so that the text stays on one line.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c if is_hidden(c) => {}
            c => out.push(c),
        }
    }
    out
}
