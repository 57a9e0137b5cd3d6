//! The scoreboard as a self-contained HTML page. Servers are columns, and failing checks come first. MUST and SHOULD
//! have separate tables. Verdicts are written as words, and colours only repeat the words.

use std::fmt::Write;

use super::board::{Board, Row};
use super::{COLUMNS, GROUPS, is_hidden, numbers, origin, quoted, verdict_word};
use crate::outcome::{Outcome, Report, Verdict};

/// CSS rules for the scoreboard ([`scoreboard`]). All rules apply only inside elements of the class `conform`.
pub const STYLE: &str = "\
.conform{--line:#d8d8d8;--soft:#f4f4f2;--bad:#a3180e;--dim:#5f5f5a;--good:#1c6b35}\
@media(prefers-color-scheme:dark){.conform{--line:#3a3c40;--soft:#222427;\
--bad:#ff8a7a;--dim:#a9a9a4;--good:#7fd197}}\
.conform .wide{overflow-x:auto;margin:.4rem 0}\
.conform table{border-collapse:collapse;font-size:.9rem}\
.conform caption{text-align:left;font-weight:600;padding:.3rem 0}\
.conform th,.conform td{padding:.3rem .6rem;text-align:left;\
vertical-align:top;border-bottom:1px solid var(--line)}\
.conform thead th{border-bottom:2px solid var(--line)}\
.conform tbody th{font-weight:400;min-width:16rem;max-width:26rem}\
.conform td{font-variant-numeric:tabular-nums;min-width:6rem}\
.conform small{display:block;color:var(--dim);overflow-wrap:anywhere}\
.conform .failed{color:var(--bad);font-weight:600}.conform .passed{color:var(--good)}\
.conform .dim{color:var(--dim)}\
.conform summary{cursor:pointer}\
.conform details>div{color:CanvasText;font-weight:400;min-width:18rem;max-width:40rem}\
.conform pre{background:var(--soft);padding:.5rem;white-space:pre-wrap;\
overflow-wrap:anywhere;font-size:.85rem;margin:.3rem 0}\
.conform .pair>tr:first-child>*{border-bottom:0}\
.conform .pair{border-bottom:2px solid var(--line)}";

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;color:CanvasText;background:Canvas;\
max-width:90rem;margin:0 auto;padding:1rem}\
p,ul{max-width:60rem}h1,h2{line-height:1.2}h2{margin-top:2rem}";

/// Returns a complete HTML page that contains the scoreboard.
pub fn page(reports: &[Report]) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>DNS64 conformance</title>\
         <style>{PAGE_STYLE}{STYLE}</style></head>\n<body><main><h1>DNS64 conformance</h1>\n{}\
         </main></body></html>\n",
        scoreboard(reports)
    )
}

/// Returns the scoreboard for inclusion in another page. The head of that page needs [`STYLE`].
pub fn scoreboard(reports: &[Report]) -> String {
    let board = Board::from_reports(reports);
    let mut out = String::from("<div class=\"conform\">\n");
    out.push_str(
        "<p>A check of a feature that the server does not support is <em>not offered</em>; a check \
         that could not be run is <em>not tried</em>. Neither counts as passed. Select a verdict \
         to see the query, the reply, and the requirement.</p>\n",
    );
    counts(&mut out, reports);
    for (title, levels) in GROUPS {
        let rows = board.group(levels);
        if !rows.is_empty() {
            group(&mut out, title, &rows, reports);
        }
    }
    conflicts(&mut out, &board, reports);
    out + "</div>\n"
}

/// Writes a table with the number of checks per verdict, for each server and requirement level.
fn counts(out: &mut String, reports: &[Report]) {
    open(out, &format!("Number of checks: {}", COLUMNS.join(" / ")));
    head(out, "Level", reports);
    out.push_str("<tbody>\n");
    for (title, levels) in GROUPS {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(title));
        for report in reports {
            let numbers = numbers(report.count(levels)).map(|number| number.to_string());
            let _ = write!(out, "<td>{}</td>", numbers.join(" / "));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>");
    close(out);
}

/// Writes the checks of a requirement level. Checks that all servers pass are in a collapsed section.
fn group(out: &mut String, title: &str, rows: &[&Row<'_>], reports: &[Report]) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(title));
    let passed = rows.partition_point(|row| !row.is_passed_by_all());
    let (open_rows, passed_rows) = rows.split_at(passed);
    if !open_rows.is_empty() {
        table(out, &format!("{title}: not passed by every server"), open_rows, reports);
    }
    if !passed_rows.is_empty() {
        let caption = format!("{title}: passed by every server");
        let _ = writeln!(
            out,
            "<details><summary>{} passed by every server</summary>",
            passed_rows.len()
        );
        table(out, &caption, passed_rows, reports);
        out.push_str("</details>\n");
    }
}

fn table(out: &mut String, caption: &str, rows: &[&Row<'_>], reports: &[Report]) {
    open(out, caption);
    head(out, "Check", reports);
    out.push_str("<tbody>\n");
    for of_one in rows {
        row(out, of_one);
    }
    out.push_str("</tbody>");
    close(out);
}

/// Writes the pairs of contradicting checks. A server can pass only one check of such a pair.
fn conflicts(out: &mut String, board: &Board<'_>, reports: &[Report]) {
    let pairs = board.conflicts();
    if pairs.is_empty() {
        return;
    }
    out.push_str("<h2>Checks that contradict each other</h2>\n");
    open(out, "A server can pass only one of each pair");
    head(out, "Check", reports);
    for (first, second) in pairs {
        out.push_str("<tbody class=\"pair\">\n");
        row(out, first);
        row(out, second);
        out.push_str("</tbody>");
    }
    close(out);
}

fn open(out: &mut String, caption: &str) {
    let caption = escape(caption);
    let _ = write!(
        out,
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{caption}\"><table>\
         <caption>{caption}</caption>"
    );
}

fn close(out: &mut String) {
    out.push_str("</table></div>\n");
}

fn head(out: &mut String, first: &str, reports: &[Report]) {
    let _ = write!(out, "<thead><tr><th scope=\"col\">{}</th>", escape(first));
    for report in reports {
        let _ = write!(
            out,
            "<th scope=\"col\">{}<small>{}</small><small>{}</small></th>",
            escape(&report.server),
            escape(&report.version),
            escape(&report.prefixes.join(", "))
        );
    }
    out.push_str("</tr></thead>\n");
}

fn row(out: &mut String, row: &Row<'_>) {
    let check = row.check;
    let _ = write!(
        out,
        "<tr><th scope=\"row\">{}<small>{}, {}</small></th>",
        escape(&check.title),
        escape(&origin(check)),
        escape(&check.id)
    );
    for outcome in &row.cells {
        match outcome {
            None => out.push_str("<td class=\"dim\">not run</td>"),
            Some(outcome) => cell(out, outcome),
        }
    }
    out.push_str("</tr>\n");
}

fn cell(out: &mut String, outcome: &Outcome) {
    let word = verdict_word(outcome.verdict, outcome.level);
    let class = match (outcome.verdict, word) {
        (Verdict::Failed, "failed") => "failed",
        (Verdict::Passed, _) => "passed",
        _ => "dim",
    };
    if outcome.explanation().is_empty() && outcome.exchanges.is_empty() {
        let _ = write!(out, "<td class=\"{class}\">{word}</td>");
        return;
    }
    let remark = if outcome.verdict == Verdict::Passed { ", with a remark" } else { "" };
    let _ = write!(
        out,
        "<td class=\"{class}\"><details><summary>{word}{remark}</summary><div><p>{}</p>",
        escape(&outcome.explanation())
    );
    if outcome.verdict == Verdict::Failed {
        let _ = write!(out, "<p>{}</p>", escape(&quoted(&outcome.source, &outcome.sentence)));
    }
    for shown in &outcome.exchanges {
        let _ = write!(
            out,
            "<pre>$ {}</pre><pre>{}</pre><small>{:.0} ms</small>",
            escape(&shown.dig),
            escape(&shown.reply),
            shown.took_ms
        );
    }
    out.push_str("</div></details></td>");
}

/// Escapes text for elements and attributes. Control characters, which HTML forbids, are removed.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if is_hidden(c) => {}
            c => out.push(c),
        }
    }
    out
}
