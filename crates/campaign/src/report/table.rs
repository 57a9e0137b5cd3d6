//! Tables as Markdown, LaTeX and HTML.

use std::fmt::Write;

use super::chart::escape;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Heading.
    pub(crate) title: String,
    /// What a reader must know of it.
    pub(crate) note: String,
    /// How many of its first columns name a row.
    pub(crate) keys: usize,
    /// Column names.
    pub(crate) header: Vec<String>,
    /// Cells.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(title: &str, note: &str, header: &[&str]) -> Table {
        Table {
            title: title.into(),
            note: note.into(),
            keys: 1,
            header: header.iter().map(|&h| h.into()).collect(),
            rows: Vec::new(),
        }
    }

    /// GitHub's Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n", self.title);
        let line = |cells: &[String]| {
            let cells: Vec<String> =
                cells.iter().map(|c| c.replace('|', "\\|").replace('\n', " ")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        out += &line(&self.header);
        let rule: Vec<&str> =
            (0..self.header.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
        let _ = writeln!(out, "| {} |", rule.join(" | "));
        for row in &self.rows {
            out += &line(row);
        }
        if !self.note.is_empty() {
            let _ = write!(out, "\n{}\n", self.note);
        }
        out + "\n"
    }

    /// A LaTeX table for `article` without packages.
    pub(crate) fn latex(&self) -> String {
        let columns = format!("l{}", "r".repeat(self.header.len().saturating_sub(1)));
        let line = |cells: &[String]| {
            cells.iter().map(|c| tex(c)).collect::<Vec<_>>().join(" & ") + " \\\\\n"
        };
        let mut out =
            format!("\\begin{{table}}[htbp]\n\\centering\n\\caption{{{}}}\n", tex(&self.title));
        let _ = write!(
            out,
            "\\begin{{tabular}}{{{columns}}}\n\\hline\n{}\\hline\n",
            line(&self.header)
        );
        for row in &self.rows {
            out += &line(row);
        }
        out += "\\hline\n\\end{tabular}\n";
        if !self.note.is_empty() {
            let _ = write!(out, "\n\\smallskip\n{}\n", tex(&self.note));
        }
        out + "\\end{table}\n\n"
    }

    /// The same columns in tables of at most [`COLUMNS`], each with the columns that name the rows.
    fn parts(&self) -> Vec<Vec<usize>> {
        let keys = self.keys.min(self.header.len());
        let rest: Vec<usize> = (keys..self.header.len()).collect();
        let part = |rest: &[usize]| (0..keys).chain(rest.iter().copied()).collect();
        match rest.is_empty() {
            true => vec![(0..keys).collect()],
            false => rest.chunks(COLUMNS.saturating_sub(keys).max(1)).map(part).collect(),
        }
    }

    /// HTML tables below a heading that links find by `id`: more than one where it has more columns
    /// than a page has room for.
    pub(crate) fn html(&self, id: &str, run: &str) -> String {
        let cells = |tag: &str, cells: &[String], part: &[usize]| -> String {
            let cell = |&c: &usize| {
                format!("<{tag}>{}</{tag}>", cells.get(c).map_or(String::new(), |c| escape(c)))
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

/// Columns of an HTML table, at the most: it fits a window of 1280 pixels.
pub(crate) const COLUMNS: usize = 12;

/// Text for LaTeX.
fn tex(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '\\' => out += "\\textbackslash{}",
            '\u{202f}' => out += "\\,",
            'µ' => out += "$\\mu$",
            'α' => out += "$\\alpha$",
            'β' => out += "$\\beta$",
            'δ' => out += "$\\delta$",
            '×' => out += "$\\times$",
            '≥' => out += "$\\geq$",
            '∞' => out += "$\\infty$",
            '−' => out += "$-$",
            '–' => out += "--",
            '§' => out += "\\S{}",
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_do_no_harm() {
        let mut table = Table::new("50 % of a_b", "see §9.2", &["x|y", "<b>"]);
        table.rows.push(vec!["a & b".into(), "1\u{202f}000".into()]);
        assert_eq!(tex("≥ [1\u{202f}200, ∞)"), "$\\geq$ [1\\,200, $\\infty$)");
        assert!(table.markdown().contains("x\\|y"));
        assert!(
            table.latex().contains("a \\& b & 1\\,000 \\\\")
                && table.latex().contains("50 \\% of a\\_b")
        );
        assert!(table.html("t", "").contains("&lt;b&gt;"));
    }

    #[test]
    fn a_wide_table_goes_on_below_with_the_names_of_its_rows() {
        let header: Vec<String> = (0..30).map(|i| format!("column {i}")).collect();
        let row: Vec<String> = (0..30).map(|i| format!("cell {i}")).collect();
        let table = Table { keys: 2, header, rows: vec![row], ..Table::new("wide", "", &[]) };
        let html = table.html("wide", "run");
        let parts: Vec<&str> = html.split("<table>").skip(1).collect();
        assert_eq!(parts.len(), 3, "28 columns beside two, ten each");
        for part in &parts {
            assert!(
                part.matches("<th>").count() <= COLUMNS
                    && part.contains("<td>cell 0</td><td>cell 1</td>"),
                "{part}"
            );
        }
        for i in 2..30 {
            assert_eq!(html.matches(&format!("<td>cell {i}</td>")).count(), 1, "{i}");
        }
        assert!(html.starts_with("<h3 id=\"wide\">run: wide</h3>"));
    }
}
