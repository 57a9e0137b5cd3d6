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
            header: header.iter().map(|&h| h.into()).collect(),
            rows: Vec::new(),
        }
    }

    /// GitHub's Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut out = format!("### {}\n\n", self.title);
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|").replace('\n', " ")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        out += &line(&self.header);
        let rule: Vec<&str> = (0..self.header.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
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
        let line = |cells: &[String]| cells.iter().map(|c| tex(c)).collect::<Vec<_>>().join(" & ") + " \\\\\n";
        let mut out = format!("\\begin{{table}}[htbp]\n\\centering\n\\caption{{{}}}\n", tex(&self.title));
        let _ = write!(out, "\\begin{{tabular}}{{{columns}}}\n\\hline\n{}\\hline\n", line(&self.header));
        for row in &self.rows {
            out += &line(row);
        }
        out += "\\hline\n\\end{tabular}\n";
        if !self.note.is_empty() {
            let _ = write!(out, "\n\\smallskip\n{}\n", tex(&self.note));
        }
        out + "\\end{table}\n\n"
    }

    /// An HTML table in a box that scrolls by itself on narrow screens.
    pub(crate) fn html(&self) -> String {
        let cells = |tag: &str, cells: &[String]| {
            cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect::<String>()
        };
        let rows: String = self.rows.iter().map(|row| format!("<tr>{}</tr>", cells("td", row))).collect();
        let note =
            if self.note.is_empty() { String::new() } else { format!("<p class=\"note\">{}</p>", escape(&self.note)) };
        format!(
            "<h3>{}</h3><div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>{rows}</tbody></table></div>{note}",
            escape(&self.title),
            cells("th", &self.header)
        )
    }
}

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
        assert!(table.markdown().contains("x\\|y"));
        assert!(table.latex().contains("a \\& b & 1\\,000 \\\\") && table.latex().contains("50 \\% of a\\_b"));
        assert!(table.html().contains("&lt;b&gt;"));
    }
}
