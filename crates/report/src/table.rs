//! Tables as Markdown and HTML. The module `latex` writes tables as LaTeX.

use std::fmt::Write;

use hosts::text::visible;

use crate::chart::escape;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Heading of the table.
    pub(crate) title: String,
    /// Note above the table.
    pub(crate) note: String,
    /// Number of leading columns that name a row.
    pub(crate) keys: usize,
    /// Column names.
    pub(crate) header: Vec<String>,
    /// Cells of each row.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Returns a text as one line of Markdown that cannot contain tags, links, images or ends of table
/// cells.
pub(crate) fn markdown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = visible(text);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '|' => out += "\\|",
            // An unescaped backslash would escape the next character, or the first character after
            // this text.
            '\\' if chars.peek().is_none_or(char::is_ascii_punctuation) => out += "\\\\",
            // Start of a link target or link definition. Brackets of intervals are not escaped.
            ']' if matches!(chars.peek(), Some('(' | '[' | ':')) => out += "\\]",
            '\n' | '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(title: &str, note: &str, header: &[&str]) -> Table {
        Table {
            title: title.into(),
            note: note.into(),
            keys: 1,
            header: header.iter().map(|&h| h.into()).collect(),
            rows: Vec::new(),
        }
    }

    /// Returns the table in GitHub's Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n", markdown_text(&self.title));
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|c| markdown_text(c)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        out += &line(&self.header);
        let rule: Vec<&str> =
            (0..self.header.len()).map(|i| if self.is_words(i) { "---" } else { "---:" }).collect();
        let _ = writeln!(out, "| {} |", rule.join(" | "));
        for row in &self.rows {
            out += &line(row);
        }
        if !self.note.is_empty() {
            let _ = write!(out, "\n{}\n", markdown_text(&self.note));
        }
        out + "\n"
    }

    /// True if a column is treated as text: most of its cells begin with a letter. The first
    /// column, with the names of the rows, is always text.
    pub(super) fn is_words(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let filled: Vec<&String> = cells.filter(|cell| !cell.is_empty()).collect();
        let words = filled.iter().filter(|cell| cell.starts_with(char::is_alphabetic)).count();
        column == 0 || words * 2 > filled.len()
    }

    /// Splits the table into tables with at most [`COLUMNS`] columns. Each of them contains the columns that name the
    /// rows.
    fn parts(&self) -> Vec<Vec<usize>> {
        let keys = self.keys.min(self.header.len());
        let rest: Vec<usize> = (keys..self.header.len()).collect();
        let part = |rest: &[usize]| (0..keys).chain(rest.iter().copied()).collect();
        match rest.is_empty() {
            true => vec![(0..keys).collect()],
            false => rest.chunks(COLUMNS.saturating_sub(keys).max(1)).map(part).collect(),
        }
    }

    /// Returns HTML tables below a heading with the link target `id`. If there are too many columns
    /// for the page, they are split into several tables.
    pub(crate) fn html(&self, id: &str, run: &str) -> String {
        let cells = |tag: &str, cells: &[String], part: &[usize]| -> String {
            let cell = |&c: &usize| {
                let class = if c > 0 && self.is_words(c) { " class=\"w\"" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", cells.get(c).map_or("".into(), |c| escape(c)))
            };
            part.iter().map(cell).collect()
        };
        let table = |part: &Vec<usize>| {
            let rows: String = self
                .rows
                .iter()
                .map(|row| format!("<tr>{}</tr>", cells("td", row, part)))
                .collect();
            let head = cells("th", &self.header, part);
            format!(
                "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
            )
        };
        let tables: String = self.parts().iter().map(table).collect();
        let note = if self.note.is_empty() {
            String::new()
        } else {
            format!("<p class=\"note\">{}</p>", escape(&self.note))
        };
        let run = if run.is_empty() { String::new() } else { format!("{}: ", escape(run)) };
        format!("<h3 id=\"{id}\">{run}{}</h3>{tables}{note}", escape(&self.title))
    }
}

/// Maximum number of columns in an HTML table. A table with this number of columns fits a window of
/// 1280 pixels.
pub(crate) const COLUMNS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_no_markup_of_a_name() {
        for (name, text) in [
            ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
            ("[x](javascript:alert(1))", "[x\\](javascript:alert(1))"),
            ("![x][y] [y]: http://x", "![x\\][y] [y\\]: http://x"),
            ("a\\|b\nc", "a\\\\\\|b c"),
            ("&lt;svg onload=x>", "&amp;lt;svg onload=x>"),
            ("\u{202e}abc\u{1b}[31m\u{9b}m\u{7f}", "abc[31mm"),
            ("BIND [1 000, 2 000] (2 searches)", "BIND [1 000, 2 000] (2 searches)"),
        ] {
            assert_eq!(markdown_text(name), text, "{name:?}");
            let mut table = Table::new(name, name, &[name]);
            table.rows.push(vec![name.into()]);
            assert_eq!(table.markdown().matches(text).count(), 4, "{name:?}");
        }
    }

    #[test]
    fn special_characters_do_no_harm() {
        let mut table = Table::new("50 % of a_b", "see §9.2", &["x|y", "<b>"]);
        table.rows.push(vec!["a & b".into(), "1\u{202f}000".into()]);
        let markdown = table.markdown();
        assert!(markdown.contains("x\\|y") && markdown.contains("&lt;b>"), "{markdown}");
        assert!(table.html("t", "").contains("&lt;b&gt;"));
    }

    #[test]
    fn words_are_aligned_left_and_numbers_right() {
        let mut table = Table::new("t", "", &["DUT", "Rate", "State"]);
        for (rate, state) in [("1\u{202f}000", "passed"), ("not measured", "died"), ("–", "")] {
            table.rows.push(vec!["a".into(), rate.into(), state.into()]);
        }
        assert!(table.markdown().contains("| --- | ---: | --- |"), "{}", table.markdown());
        let html = table.html("t", "");
        assert!(
            html.contains("<td>–</td>") && html.contains("<td class=\"w\">died</td>"),
            "{html}"
        );
    }

    #[test]
    fn a_wide_table_is_split_with_repeated_row_names() {
        let header: Vec<String> = (0..30).map(|i| format!("column {i}")).collect();
        let row: Vec<String> = (0..30).map(|i| format!("cell {i}")).collect();
        let table = Table { keys: 2, header, rows: vec![row], ..Table::new("wide", "", &[]) };
        let html = table.html("wide", "run");
        let parts: Vec<&str> = html.split("<table>").skip(1).collect();
        assert_eq!(parts.len(), 3, "28 columns and two key columns, ten each");
        for part in &parts {
            assert!(
                part.matches("<th").count() <= COLUMNS + 1
                    && part.contains("<td>cell 0</td><td class=\"w\">cell 1</td>"),
                "{part}"
            );
        }
        for i in 2..30 {
            assert_eq!(html.matches(&format!(">cell {i}</td>")).count(), 1, "{i}");
        }
        assert!(html.starts_with("<h3 id=\"wide\">run: wide</h3>"));
    }
}
