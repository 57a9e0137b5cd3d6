//! Writes the files of a report.

use crate::section::Section;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use campaign::sequence;
use hosts::new_file::{FileError, write_json, write_whole};

use crate::chart::{Figure, files};
use crate::comparison::Comparison;
use crate::run::Run;
use crate::sections::{self, comparisons, figures, tables};
use crate::summary::{RunSummary, standing, summary};
use crate::table::{Table, markdown_text};
use crate::{change, csv, latex, page, servers, tables, tidy};

/// Writes the report of one run, or the comparison of several runs, into `folder`. Returns the path of the HTML page.
///
/// # Errors
/// Returns an error if a file cannot be written.
pub fn write(runs: &[Run], folder: &Path) -> Result<PathBuf, FileError> {
    write_compared(runs, None, folder)
}

/// Same as [`write`], but also shows the change against a baseline at each measurement point.
///
/// # Errors
/// Same as [`write`].
pub fn write_compared(
    runs: &[Run],
    comparison: Option<&Comparison>,
    folder: &Path,
) -> Result<PathBuf, FileError> {
    let change = comparison.map(change::table);
    let figures_folder = folder.join("figures");
    fs::create_dir_all(&figures_folder).map_err(FileError::of("create", &figures_folder))?;
    let figures = figures(runs);
    for figure in &figures {
        files::write(figure, &figures_folder)?;
    }
    for (file, text) in [
        ("tables.md", markdown(runs, change.as_ref(), &figures)),
        ("tables.tex", tables_as_latex(runs, change.as_ref())),
        ("figures.tex", latex::figures(&figures)),
        ("report.tex", latex::DOCUMENT.to_owned()),
        ("results.csv", csv::csv(runs)),
        ("points.csv", tidy::points(runs)),
        ("searches.csv", tidy::searches(runs)),
        ("trials.csv", tidy::trials(runs)),
    ] {
        write_whole(&folder.join(file), text.as_bytes())?;
    }
    if let [run] = runs {
        write_json(&folder.join("results.json"), &run.results)?;
    }
    let page = folder.join("report.html");
    write_whole(&page, page::html(runs, change).as_bytes())?;
    Ok(page)
}

/// Returns the summary, all tables, and links to the figures.
pub(crate) fn markdown(runs: &[Run], change: Option<&Table>, figures: &[Figure]) -> String {
    let mut out = String::new();
    for run in runs {
        let RunSummary { answer, when, caveats } = summary(run);
        let _ = writeln!(
            out,
            "## {}\n\n{}\n",
            markdown_text(&run.title()),
            paragraphs(answer.into_iter().chain(when))
        );
        out += &list_of_caveats(run, &caveats);
        out.push('\n');
    }
    for table in change.into_iter().chain(&comparisons(runs)) {
        out += &table.markdown();
    }
    for run in runs {
        let _ = writeln!(out, "## Tables of {}\n", markdown_text(&run.name));
        for table in tables(run).into_iter().chain([tables::environment(run)]) {
            out += &table.markdown();
        }
    }
    sections::ALL.iter().for_each(|measure| out += &measure.markdown(runs));
    out += "## Figures\n\n";
    for Figure { title, file, .. } in figures {
        let _ = writeln!(
            out,
            "![{}](figures/{file}.svg)\n",
            markdown_text(&title.replace(['[', ']'], ""))
        );
    }
    out
}

/// Formats sentences as paragraphs of Markdown.
fn paragraphs(sentences: impl Iterator<Item = String>) -> String {
    sentences.map(|sentence| markdown_text(&sentence)).collect::<Vec<_>>().join("\n\n")
}

/// Lists caveats and deviations from RFC 8219, one per line.
fn list_of_caveats(run: &Run, caveats: &[String]) -> String {
    let deviations = run.results.noncompliance.iter();
    let deviations = deviations.map(|point| format!("Not RFC 8219 compliant: {point}."));
    let line = |caveat: String| format!("- {}\n", markdown_text(&caveat));
    caveats.iter().cloned().chain(deviations).map(line).collect()
}

/// Returns the main results of a run as sections of a Markdown page: speed, conformance, caveats,
/// environment. The section about speed ends with `links`.
pub fn publication(run: &Run, links: &str) -> String {
    let RunSummary { when, caveats, .. } = summary(run);
    // The results and ratios of the servers are not repeated, because the table contains them.
    let standing = standing(&run.results);
    let speed = servers::table(std::slice::from_ref(run));
    let conform = sequence::ConformMeasure.markdown(std::slice::from_ref(run));
    format!(
        "## Speed\n\n{}\n\n{}{links}\n\n{conform}\n## Caveats\n\n{}\n{}",
        paragraphs([standing].into_iter().chain(when)),
        speed.map(|table| table.markdown()).unwrap_or_default(),
        list_of_caveats(run, &caveats),
        tables::environment(run).markdown().replacen("###", "##", 1),
    )
}

/// Returns all tables as LaTeX.
fn tables_as_latex(runs: &[Run], change: Option<&Table>) -> String {
    let of = |run| tables(run).into_iter().chain([tables::environment(run)]);
    let each: Vec<Table> = comparisons(runs).into_iter().chain(runs.iter().flat_map(of)).collect();
    latex::tables(change.into_iter().chain(&each))
}
