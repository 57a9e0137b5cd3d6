//! Reports: read from run folders, without measuring. A report is one page that needs no network,
//! with its tables and figures also as files.
//!
//! ```text
//! run folder ─► archive::read ─► Results ─► measures ─┬─► tables ──► report.html, tables.md, tables.tex
//!                                                     ├─► rows ────► results.csv, points.csv, searches.csv, trials.csv
//!                                                     └─► figures ─► report.html, figures/*.{svg,png,pdf}, figures.tex
//! ```

mod caveats;
mod change;
pub mod chart;
pub(crate) mod csv;
mod latex;
mod pacing;
mod page;
mod response;
mod servers;
mod summary;
pub(crate) mod table;
mod tables;
mod tidy;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::archive::{self, ArchiveError, write_json, write_whole};
use crate::begun;
use crate::comparison::Comparison;
use crate::measures::search::worst_point;
use crate::measures::self_test::SelfTestResult;
use crate::measures::{self, Measure};
use crate::missing::Missing;
use crate::results::{DutResult, Results};
use chart::{Figure, files};
use summary::{RunSummary, summary};

pub use page::page;
use table::{Table, markdown_text};

/// A run and its name in a comparison.
pub struct Run {
    /// Name of its folder.
    pub name: String,
    /// Its results, computed from its journal.
    pub results: Results,
    /// Notes that precede everything else.
    pub notes: Vec<String>,
}

impl Run {
    /// Returns the name in the plan, and the folder if its name differs.
    pub fn title(&self) -> String {
        let plan = &self.results.plan.name;
        if *plan == self.name { plan.clone() } else { format!("{plan} ({})", self.name) }
    }

    /// Returns the summary: results, precision and objections as sentences, the answer first.
    pub fn summary(&self) -> Vec<String> {
        summary(self).all()
    }

    /// Reads a run folder of a complete or incomplete run.
    ///
    /// # Errors
    /// If it is not a run folder, or its journal is empty.
    pub fn read(folder: &Path) -> Result<Run, ArchiveError> {
        let (plan, environment, entries) = archive::read(folder)?;
        if entries.is_empty() {
            return Err(ArchiveError::Empty { folder: folder.into() });
        }
        let name = folder
            .file_name()
            .map_or_else(|| plan.name.clone(), |name| name.to_string_lossy().into_owned());
        let notes = begun::difference_of(&plan, folder).into_iter().collect();
        Ok(Run { name, results: Results::compute(&plan, &environment, &entries), notes })
    }
}

/// Writes the report of one run, or the comparison of several, into `folder`; returns the page's
/// path.
///
/// # Errors
/// If a file cannot be written.
pub fn write(runs: &[Run], folder: &Path) -> Result<PathBuf, ArchiveError> {
    write_compared(runs, None, folder)
}

/// Same as [`write()`], with the change of each point against a baseline.
///
/// # Errors
/// Same as [`write()`].
pub fn write_compared(
    runs: &[Run],
    comparison: Option<&Comparison>,
    folder: &Path,
) -> Result<PathBuf, ArchiveError> {
    let change = comparison.map(change::table);
    let figures_folder = folder.join("figures");
    fs::create_dir_all(&figures_folder).map_err(|source| ArchiveError::Io {
        doing: "create",
        path: figures_folder.clone(),
        source,
    })?;
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
fn markdown(runs: &[Run], change: Option<&Table>, figures: &[Figure]) -> String {
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
    measures::ALL.iter().for_each(|measure| out += &measure.markdown(runs));
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
    let RunSummary { answer, when, caveats } = summary(run);
    let speed = servers::table(std::slice::from_ref(run));
    let conform = measures::conform::ConformMeasure.markdown(std::slice::from_ref(run));
    format!(
        "## Speed\n\n{}\n\n{}{links}\n\n{conform}\n## Caveats\n\n{}\n{}",
        paragraphs(answer.into_iter().chain(when)),
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

pub(crate) fn percent(share: u8) -> String {
    format!("{share} %")
}

/// True if the self-test of the tester has ended without a passing rate: its results are lower
/// bounds, and the servers are not ranked.
pub(crate) fn has_failed_self_test(results: &Results) -> bool {
    let is_over = |test: &SelfTestResult| {
        !matches!(test.missing, Some(Missing::NotBegun { .. } | Missing::Unfinished))
    };
    results.own_self_test().is_some_and(|test| is_over(test) && test.allows.is_none())
}

/// Returns the DUTs of a run: the fastest in the worst case first, those without a result last; in
/// plan order if the self-test failed.
pub(crate) fn ranked(results: &Results) -> Vec<&DutResult> {
    let mut all: Vec<&DutResult> = results.duts.iter().collect();
    if !has_failed_self_test(results) {
        all.sort_by(|a, b| match (worst_point(a), worst_point(b)) {
            (Some(a), Some(b)) => a.by_result(b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
    }
    all
}

/// Returns all DUTs of all runs, the fastest of each run first.
pub(crate) fn each_dut(runs: &[Run]) -> impl Iterator<Item = (&Run, &DutResult)> {
    runs.iter().flat_map(|run| ranked(&run.results).into_iter().map(move |dut| (run, dut)))
}

/// Groups items by key, for example all results at one placement, in plan order.
pub(crate) fn by_key<'a, T, K: PartialEq>(
    all: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> Vec<(K, Vec<&'a T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for one in all {
        let of = key(one);
        match groups.iter_mut().find(|(known, _)| *known == of) {
            Some((_, known)) => known.push(one),
            None => groups.push((of, vec![one])),
        }
    }
    groups
}

/// Returns the name of a DUT in a legend, with its run if there are several.
pub(crate) fn legend(run: &Run, dut: &str, many: bool) -> String {
    if many { format!("{dut} ({})", run.name) } else { dut.into() }
}

/// Returns a note with a caveat for each AuthDNS that does not count queries.
pub(crate) fn with_proof(run: &Run, note: &str) -> String {
    run.results.silent().iter().fold(note.to_owned(), |note, auth| {
        format!("{note} Cached shares are unproven with {auth} as AuthDNS, because it does not count queries.")
    })
}

/// Returns all figures that the runs have data for.
pub(crate) fn figures(runs: &[Run]) -> Vec<Figure> {
    let measured = measures::ALL.iter().flat_map(|measure| measure.figures(runs));
    response::figures(runs).into_iter().chain(measured).chain(pacing::pacing(runs)).collect()
}

/// Returns the tables of one run.
pub(crate) fn tables(run: &Run) -> Vec<Table> {
    let measured = measures::ALL.iter().flat_map(|measure| measure.tables(run));
    measured.chain([tables::cross_check(run), tables::trials(run), tables::health(run)]).collect()
}

/// Returns the tables of all runs together: first the comparison of the servers.
pub(crate) fn comparisons(runs: &[Run]) -> Vec<Table> {
    let measured = measures::ALL.iter().flat_map(|measure| measure.comparisons(runs));
    servers::table(runs).into_iter().chain(measured).collect()
}

#[cfg(test)]
mod csv_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod papers_tests;
#[cfg(test)]
mod values_tests;
