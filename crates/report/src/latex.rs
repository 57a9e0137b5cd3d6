//! Tables and figures as LaTeX: `tables.tex` and `figures.tex` for papers, `report.tex` as a complete
//! document.
//!
//! If a table is wider than a line, its widest columns are wrapped. If it is still too wide, its columns are divided
//! among several tables, each of which repeats the key columns. Long tables continue on the next page.

use std::fmt::Write;
use std::ops::Range;

use hosts::text::is_hidden;

use crate::chart::Figure;
use crate::table::Table;

/// LaTeX document that includes `tables.tex` and `figures.tex`.
pub(crate) const DOCUMENT: &str = "\\documentclass{article}\n\\usepackage[margin=1in]{geometry}\n\
    \\usepackage{array,booktabs,graphicx}\n\\extrafloats{500}\\maxdeadcycles=1000\n\\begin{document}\n\\input{tables.tex}\n\
    \\clearpage\n\\input{figures.tex}\n\\end{document}\n";
const TABLES: &str = "% Packages: array, booktabs. Widths suit a text width of 6.2 in or more.\n";
const FIGURES: &str = "% Package: graphicx. The files are in the folder figures.\n";
/// Width of a line in characters of `\footnotesize`, for a text width of 6.2 inches.
const LINE: usize = 98;
/// Width of the gap between two columns, in characters.
const GAP: usize = 2;
/// Maximum number of lines of a table on one page.
const PAGE: usize = 46;
/// Maximum length of an unbroken word. Longer words may be broken at their punctuation.
const WORD: usize = 18;

/// Returns all tables. The LaTeX label of a table consists of `tab:` and the words of the title. If titles are equal, a
/// number distinguishes the labels.
pub(crate) fn tables<'a>(all: impl Iterator<Item = &'a Table>) -> String {
    let mut labels: Vec<String> = Vec::new();
    let mut out = TABLES.to_owned();
    for table in all {
        let name = slug(&table.title);
        let taken = labels.iter().filter(|known| **known == name).count();
        let label = if taken == 0 { name.clone() } else { format!("{name}-{}", taken + 1) };
        labels.push(name);
        out += &of_table(table, &label);
    }
    out
}

/// Returns all figures. The label of a figure consists of `fig:` and the name of its file.
pub(crate) fn figures(all: &[Figure]) -> String {
    let mut out = FIGURES.to_owned();
    for Figure { file, title, .. } in all {
        let title = text(title);
        let _ = write!(
            out,
            "\\begin{{figure}}[htbp]\n\\centering\n\\includegraphics[width=\\linewidth]{{figures/{file}.pdf}}\n\
             \\caption{{{title}}}\n\\label{{fig:{file}}}\n\\end{{figure}}\n\n"
        );
    }
    out
}

/// Returns the words of a title in lower case, joined by hyphens. Words consist of ASCII letters
/// and digits.
fn slug(title: &str) -> String {
    let lower = title.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

fn of_table(table: &Table, label: &str) -> String {
    let mut out = String::new();
    for columns in parts(table) {
        let widths = widths(table, &columns);
        for rows in pages(table, &columns, &widths) {
            let label = if out.is_empty() { Some(label) } else { None };
            out += &float(table, &columns, &widths, rows, label);
        }
    }
    out
}

/// Returns a LaTeX float with the given columns and rows of a table.
fn float(
    table: &Table,
    columns: &[usize],
    widths: &[Width],
    rows: Range<usize>,
    label: Option<&str>,
) -> String {
    let mut out = String::from("\\begin{table}[htbp]\n\\centering\\footnotesize\n");
    let continued = if label.is_some() { "" } else { " (continued)" };
    let _ = writeln!(out, "\\caption{{{}{continued}}}", text(&table.title));
    if let Some(label) = label {
        let _ = writeln!(out, "\\label{{tab:{label}}}");
    }
    let specification: String = columns
        .iter()
        .zip(widths)
        .map(|(&column, width)| width.specification(table.is_words(column)))
        .collect();
    let line = |cells: &[String]| {
        let cell = |&column: &usize| cells.get(column).map_or(String::new(), |words| text(words));
        columns.iter().map(cell).collect::<Vec<_>>().join(" & ") + " \\\\\n"
    };
    let _ = write!(
        out,
        "\\setlength{{\\tabcolsep}}{{4pt}}\n\\begin{{tabular}}{{@{{}}{specification}@{{}}}}\n\\toprule\n{}\\midrule\n",
        line(&table.header)
    );
    for row in table.rows.get(rows).unwrap_or_default() {
        out += &line(row);
    }
    out += "\\bottomrule\n\\end{tabular}\n";
    if label.is_some() && !table.note.is_empty() {
        let _ = write!(out, "\n\\smallskip\n\\parbox{{\\linewidth}}{{{}}}\n", text(&table.note));
    }
    out + "\\end{table}\n\n"
}

/// Width of a column in a LaTeX table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Width {
    /// Width of the longest cell, in characters.
    Natural(usize),
    /// Maximum number of characters per line; longer cells are wrapped.
    Wrapped(usize),
}

impl Width {
    fn characters(self) -> usize {
        match self {
            Width::Natural(width) | Width::Wrapped(width) => width,
        }
    }

    fn specification(self, is_words: bool) -> String {
        match (self, is_words) {
            (Width::Natural(_), true) => "l".into(),
            (Width::Natural(_), false) => "r".into(),
            (Width::Wrapped(width), _) => {
                let side = if is_words { "right" } else { "left" };
                let share = width as f64 / LINE as f64;
                format!(">{{\\ragged{side}\\arraybackslash}}p{{{share:.3}\\linewidth}}")
            }
        }
    }
}

fn cells(table: &Table, column: usize) -> impl Iterator<Item = &str> {
    let rows = table.rows.iter().map(move |row| row.get(column));
    std::iter::once(table.header.get(column)).chain(rows).flatten().map(String::as_str)
}

/// Returns the length of the longest cell of a column, in characters.
fn natural(table: &Table, column: usize) -> usize {
    cells(table, column).map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// Returns the length of the longest unbreakable piece of a column, in characters.
fn least(table: &Table, column: usize) -> usize {
    let pieces = cells(table, column).flat_map(|cell| cell.split(' ')).flat_map(pieces);
    // One character is added, because a piece keeps its punctuation, and capitals are wider than
    // the average character.
    pieces.map(|piece| piece.chars().count() + 1).max().unwrap_or(1)
}

/// Returns the pieces of a word between which a line may break.
fn pieces(word: &str) -> Vec<&str> {
    if word.chars().count() <= WORD {
        return vec![word];
    }
    word.split_inclusive(['/', '=', ':', ',', '.', '-', '_', ';', '+', ')']).collect()
}

/// Returns the total width of the gaps between the columns, in characters. This width is not available for text.
fn gaps(columns: usize) -> usize {
    GAP * columns.saturating_sub(1)
}

/// Splits a table that is too wide into several parts, and returns the columns of each part. A part begins with the key
/// columns, followed by as many other columns as fit on a line.
fn parts(table: &Table) -> Vec<Vec<usize>> {
    let keys: Vec<usize> = (0..table.keys.min(table.header.len())).collect();
    let mut parts = vec![keys.clone()];
    for column in keys.len()..table.header.len() {
        let last = parts.last_mut().expect("there is a first part");
        let width: usize = last.iter().chain([&column]).map(|&c| least(table, c)).sum();
        if width + gaps(last.len() + 1) > LINE && last.len() > keys.len() {
            parts.push([&keys[..], &[column]].concat());
        } else {
            last.push(column);
        }
    }
    parts
}

/// Returns the widths of the given columns of a table. If the natural widths do not fit on a line, the longest columns
/// are wrapped.
fn widths(table: &Table, columns: &[usize]) -> Vec<Width> {
    let natural: Vec<usize> = columns.iter().map(|&c| natural(table, c)).collect();
    let room = LINE.saturating_sub(gaps(columns.len()));
    if natural.iter().sum::<usize>() <= room {
        return natural.into_iter().map(Width::Natural).collect();
    }
    let least: Vec<usize> =
        columns.iter().zip(&natural).map(|(&c, &n)| least(table, c).min(n + 1)).collect();
    let spare = room.saturating_sub(least.iter().sum());
    let wanted: Vec<usize> =
        natural.iter().zip(&least).map(|(natural, least)| natural.saturating_sub(*least)).collect();
    // The square root prevents a single very long column from taking all the space.
    let weight = |wanted: usize| (wanted as f64).sqrt();
    let sum: f64 = wanted.iter().map(|&wanted| weight(wanted)).sum::<f64>().max(1.0);
    let share = |wanted: usize| (spare as f64 * weight(wanted) / sum) as usize;
    least.iter().zip(wanted).map(|(&least, wanted)| Width::Wrapped(least + share(wanted))).collect()
}

/// Divides the rows of a table among pages. Returns the range of rows for each page.
fn pages(table: &Table, columns: &[usize], widths: &[Width]) -> Vec<Range<usize>> {
    let lines = |row: &Vec<String>| {
        let of = |(&column, width): (&usize, &Width)| {
            let length = row.get(column).map_or(0, |cell| cell.chars().count());
            length.div_ceil(width.characters().max(1))
        };
        columns.iter().zip(widths).map(of).max().unwrap_or_default().max(1)
    };
    let (mut pages, mut from, mut used) = (Vec::new(), 0, 0);
    for (n, row) in table.rows.iter().enumerate() {
        let lines = lines(row);
        if used + lines > PAGE && n > from {
            pages.push(from..n);
            (from, used) = (n, 0);
        }
        used += lines;
    }
    pages.push(from..table.rows.len());
    pages
}

/// Escapes text for LaTeX. Puts braces around brackets and stars, because they would otherwise be arguments of the `\\`
/// at the end of the previous row.
fn text(words: &str) -> String {
    let word = |word: &str| {
        pieces(word).into_iter().map(escaped).collect::<Vec<_>>().join("\\allowbreak{}")
    };
    words.replace('\n', " ").split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn escaped(words: &str) -> String {
    let mut out = String::new();
    for c in words.chars() {
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '[' | ']' | '*' => {
                let _ = write!(out, "{{{c}}}");
            }
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '\\' => out += "\\textbackslash{}",
            '<' => out += "\\textless{}",
            '>' => out += "\\textgreater{}",
            '|' => out += "\\textbar{}",
            '"' => out += "''",
            '\u{202f}' => out += "\\,",
            'µ' => out += "$\\mu$",
            'α' => out += "$\\alpha$",
            'β' => out += "$\\beta$",
            'δ' => out += "$\\delta$",
            '×' => out += "$\\times$",
            '÷' => out += "$\\div$",
            '±' => out += "$\\pm$",
            '≈' => out += "$\\approx$",
            '≥' => out += "$\\geq$",
            '≤' => out += "$\\leq$",
            '∞' => out += "$\\infty$",
            '−' => out += "$-$",
            '–' => out += "--",
            '…' => out += "\\ldots{}",
            '→' => out += "$\\rightarrow$",
            '§' => out += "\\S{}",
            c if is_hidden(c) => {}
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(header: &[&str], rows: &[&[&str]]) -> Table {
        let mut table = Table::new("50 % of a_b", "see §9.2", header);
        table.rows = rows.iter().map(|row| row.iter().map(|&cell| cell.into()).collect()).collect();
        table
    }

    fn one(table: &Table) -> String {
        tables([table].into_iter())
    }

    #[test]
    fn special_characters_are_escaped() {
        let latex = one(&table(&["x|y", "<b>"], &[&["a & b", "1\u{202f}000"]]));
        assert!(latex.contains("a \\& b & 1\\,000 \\\\\n"), "{latex}");
        assert!(latex.contains("\\caption{50 \\% of a\\_b}\n\\label{tab:50-of-a-b}\n"), "{latex}");
        assert_eq!(text("≥ [1\u{202f}200, ∞)"), "$\\geq$ {[}1\\,200, $\\infty$)");
    }

    /// A bracket at the start of a line would be an argument of the `\\` or booktabs rule before it.
    /// A star would be an argument of `\\`.
    #[test]
    fn no_line_begins_with_an_argument() {
        let latex =
            one(&table(&["[a]", "b"], &[&["[passed, failed)", "1"], &["*", "2"], &["(c)", "3"]]));
        let bad = latex.lines().find(|line| line.starts_with(['[', '*']));
        assert_eq!(bad, None, "{latex}");
    }

    #[test]
    fn equal_titles_get_labels_of_their_own() {
        let both = [table(&["a"], &[&["1"]]), table(&["a"], &[&["2"]])];
        let latex = tables(both.iter());
        assert_eq!(latex.matches("\\label{tab:50-of-a-b}").count(), 1, "{latex}");
        assert_eq!(latex.matches("\\label{tab:50-of-a-b-2}").count(), 1, "{latex}");
    }

    #[test]
    fn a_wide_table_fits_the_line() {
        let long = "an explanation of more words than a line of the table has room for, twice";
        let header: Vec<String> = (0..30).map(|n| format!("column {n}")).collect();
        let words: Vec<String> = (0..30).map(|n| format!("{n}\u{202f}000\u{202f}000")).collect();
        let many = Table { keys: 2, header, rows: vec![words], ..Table::new("many", "", &[]) };
        for table in [table(&["what", "why"], &[&["a", long], &[long, "b"]]), many] {
            for part in parts(&table) {
                let widths = widths(&table, &part);
                let used: usize = widths.iter().map(|width| width.characters()).sum();
                assert!(used + gaps(part.len()) <= LINE, "{widths:?}");
                assert!(part.starts_with(&(0..table.keys).collect::<Vec<_>>()), "{part:?}");
            }
        }
    }

    #[test]
    fn a_long_table_continues_on_the_next_page() {
        let rows: Vec<[&str; 1]> = vec![["row"]; 2 * PAGE + 1];
        let rows: Vec<&[&str]> = rows.iter().map(|row| &row[..]).collect();
        let latex = one(&table(&["a"], &rows));
        let floats: Vec<&str> = latex.split("\\begin{table}").skip(1).collect();
        assert_eq!(floats.len(), 3);
        assert_eq!(latex.matches("row \\\\").count(), 2 * PAGE + 1, "no row is lost");
        assert_eq!(latex.matches("(continued)").count(), 2);
        assert_eq!(latex.matches("\\label").count(), 1);
    }
}
