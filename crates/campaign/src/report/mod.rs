//! The report: reads run folders, and never measures. One page that needs no network, and its tables and figures as files.
//!
//! ```text
//! run folder ─► archive::read ─► Results ─► measures ─┬─► tables ──► report.html, tables.md, tables.tex
//!                                                     ├─► rows ────► results.csv
//!                                                     └─► figures ─► report.html, figures/*.svg
//! ```

mod change;
pub mod chart;
pub(crate) mod csv;
mod pacing;
mod summary;
pub(crate) mod table;
mod tables;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::archive::{self, ArchiveError, write_json, write_whole};
use crate::begun;
use crate::comparison::Comparison;
use crate::measures;
use crate::results::{DutResult, Results};
use chart::{Figure, escape};
use summary::summary;
use table::Table;

/// A run and what a comparison calls it.
pub struct Run {
    /// Its folder's name.
    pub name: String,
    /// What it found.
    pub results: Results,
    /// What a reader must know before all else.
    pub notes: Vec<String>,
}

impl Run {
    /// What it found, how exactly, and what speaks against it: sentences, the answer first.
    pub fn summary(&self) -> Vec<String> {
        summary(self)
    }

    /// Reads a run folder, be the run complete or not.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(folder: &Path) -> Result<Run, ArchiveError> {
        let (plan, environment, entries) = archive::read(folder)?;
        let name = folder.file_name().map_or_else(|| plan.name.clone(), |name| name.to_string_lossy().into_owned());
        let notes = begun::difference_of(&plan, folder).into_iter().collect();
        Ok(Run { name, results: Results::compute(&plan, &environment, &entries), notes })
    }
}

/// Writes the report of one run, or the comparison of several, into `folder`; returns the page's path.
///
/// # Errors
/// If a file cannot be written.
pub fn write(runs: &[Run], folder: &Path) -> Result<PathBuf, ArchiveError> {
    write_compared(runs, None, folder)
}

/// As [`write`], with the change of each point against a baseline.
///
/// # Errors
/// As [`write`].
pub fn write_compared(runs: &[Run], comparison: Option<&Comparison>, folder: &Path) -> Result<PathBuf, ArchiveError> {
    let beside: Vec<Table> = comparison.map(change::table).into_iter().chain(comparisons(runs)).collect();
    let figures_folder = folder.join("figures");
    fs::create_dir_all(&figures_folder).map_err(|source| ArchiveError::Io {
        doing: "create",
        path: figures_folder.clone(),
        source,
    })?;
    let figures = figures(runs);
    for figure in &figures {
        write_whole(&figures_folder.join(format!("{}.svg", figure.file)), figure.svg(true).as_bytes())?;
    }
    let (mut markdown, mut latex) = (String::new(), String::new());
    latex += "\\documentclass{article}\n\\usepackage[margin=1in]{geometry}\n\\begin{document}\n\\footnotesize\n\n";
    for table in &beside {
        markdown += &table.markdown();
        latex += &table.latex();
    }
    for run in runs {
        let _ = writeln!(markdown, "## {}\n\n{}\n", run.name, summary(run).join("\n\n"));
        for point in &run.results.noncompliance {
            let _ = writeln!(markdown, "Not RFC 8219 compliant: {point}\n");
        }
        for table in tables(run).into_iter().chain([tables::environment(run)]) {
            markdown += &table.markdown();
            latex += &table.latex();
        }
    }
    latex += "\\end{document}\n";
    write_whole(&folder.join("tables.md"), markdown.as_bytes())?;
    write_whole(&folder.join("tables.tex"), latex.as_bytes())?;
    write_whole(&folder.join("results.csv"), csv::csv(runs).as_bytes())?;
    if let [run] = runs {
        write_json(&folder.join("results.json"), &run.results)?;
    }
    let page = folder.join("report.html");
    write_whole(&page, html(runs, &figures, &beside).as_bytes())?;
    Ok(page)
}

pub(crate) fn percent(share: u8) -> String {
    format!("{share} %")
}

/// All DUTs of all runs.
pub(crate) fn each_dut(runs: &[Run]) -> impl Iterator<Item = (&Run, &DutResult)> {
    runs.iter().flat_map(|run| run.results.duts.iter().map(move |dut| (run, dut)))
}

/// The name of a DUT in a legend: with its run where there are several.
pub(crate) fn legend(run: &Run, dut: &str, many: bool) -> String {
    if many { format!("{dut} ({})", run.name) } else { dut.into() }
}

/// A name as part of a file's name.
pub(crate) fn file_word(name: &str) -> String {
    name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// A note, with what is unproven where nobody counts what AuthDNS is asked.
pub(crate) fn with_proof(run: &Run, note: &str) -> String {
    run.results.silent().iter().fold(note.to_owned(), |note, auth| {
        format!("{note} Cached shares are unproven where {auth} is AuthDNS: it does not count what it is asked.")
    })
}

/// All figures that the runs have data for.
pub(crate) fn figures(runs: &[Run]) -> Vec<Figure> {
    measures::ALL.iter().flat_map(|measure| measure.figures(runs)).chain(pacing::pacing(runs)).collect()
}

/// The tables of one run.
pub(crate) fn tables(run: &Run) -> Vec<Table> {
    let measured = measures::ALL.iter().flat_map(|measure| measure.tables(run));
    measured.chain([tables::cross_check(run), tables::health(run)]).collect()
}

/// The tables that set runs beside each other.
pub(crate) fn comparisons(runs: &[Run]) -> Vec<Table> {
    measures::ALL.iter().flat_map(|measure| measure.comparisons(runs)).collect()
}

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--line:#d8d8d8;--soft:#f4f4f2;--warn:#8a4b00}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e6;--paper:#17181a;--line:#3a3c40;--soft:#222427;--warn:#ffb454}\
.fig .c0,.fig .cell{fill:#4aa8ff}.fig .s0{stroke:#4aa8ff}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:0 auto;padding:1rem}\
h1,h2,h3{line-height:1.2}h2{border-bottom:1px solid var(--line);padding-bottom:.2rem;margin-top:2.5rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}.words td{white-space:normal;text-align:left}.words th{text-align:left}\
.note{color:var(--ink);opacity:.75;font-size:.9rem}.mark{color:var(--warn);font-weight:600}\
figure{margin:1.5rem 0;overflow-x:auto}figcaption{font-weight:600;margin-bottom:.3rem}svg{width:100%;min-width:32rem;height:auto;display:block}\
pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem}\
.summary{background:var(--soft);padding:.6rem 1rem;border-radius:.5rem}";

/// The begin of a page in our style, up to its heading.
fn page_head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{PAGE_STYLE}{}</style></head><body><h1>{title}</h1>\n",
        chart::STYLE
    )
}

/// A page of figures with the text of what a program printed.
pub fn page(title: &str, figures: &[chart::Figure], printed: &str) -> String {
    let mut out = page_head(title);
    for figure in figures {
        let caption = escape(&figure.title);
        let _ = writeln!(out, "<figure><figcaption>{caption}</figcaption>{}</figure>", figure.svg(false));
    }
    let _ = writeln!(out, "<pre>{}</pre></body></html>", escape(printed));
    out
}

fn html(runs: &[Run], figures: &[chart::Figure], beside: &[Table]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let mut out = page_head(&format!("DNS64 benchmark: {}", names.join(" and ")));
    for run in runs {
        let _ = write!(out, "<div class=\"summary\">");
        if runs.len() > 1 {
            let _ = write!(out, "<h2>{}</h2>", escape(&run.name));
        }
        for line in summary(run) {
            let _ = write!(out, "<p>{}</p>", escape(&line));
        }
        if !run.results.noncompliance.is_empty() {
            let points: Vec<String> = run.results.noncompliance.iter().map(|p| escape(&p.to_string())).collect();
            let _ = write!(out, "<p><span class=\"mark\">Not RFC 8219 compliant:</span> {}.</p>", points.join("; "));
        }
        out.push_str("</div>\n");
    }
    out.push_str("<h2>Figures</h2>\n<p class=\"note\">Medians of the rates that passed; error bars reach from the smallest rate that passed to the largest that failed; ≥ marks lower bounds, whose reasons stand above. What was not measured is not drawn.");
    if runs.iter().any(|run| !run.results.noncompliance.is_empty()) {
        out.push_str(" <span class=\"mark\">Not RFC 8219 compliant, see above.</span>");
    }
    out.push_str("</p>\n");
    for figure in figures {
        let caption = escape(&figure.title);
        let _ = writeln!(out, "<figure><figcaption>{caption}</figcaption>{}</figure>", figure.svg(false));
    }
    if !beside.is_empty() {
        out.push_str("<h2>Side by side</h2>\n");
    }
    for table in beside {
        let _ = writeln!(out, "{}", table.html());
    }
    for run in runs {
        let name = if runs.len() > 1 { format!(": {}", escape(&run.name)) } else { String::new() };
        let _ = writeln!(out, "<h2>Tables{name}</h2>");
        if !run.results.noncompliance.is_empty() {
            out.push_str("<p class=\"note mark\">Not RFC 8219 compliant, see above.</p>");
        }
        for table in tables(run) {
            let _ = writeln!(out, "{}", table.html());
        }
        for (i, warning) in run.results.health.warnings.iter().enumerate() {
            let head = if i == 0 { "<h3>Warnings</h3>" } else { "" };
            let text = escape(&warning.warning.to_string());
            let _ = writeln!(out, "{head}<p class=\"note\">{} × {text}</p>", warning.trials);
        }
        mishaps(&mut out, run);
        let _ = writeln!(out, "<div class=\"words\">{}</div>", tables::environment(run).html());
        configurations(&mut out, run);
        let plan = toml::to_string(&run.results.plan).unwrap_or_default();
        let _ = writeln!(
            out,
            "<h3>How to repeat it</h3><p>Save the plan as plan.toml, then:</p><pre>dns64bench campaign run plan.toml\n\
             dns64bench report plan-run</pre><pre>{}</pre>",
            escape(&plan)
        );
    }
    out.push_str("</body></html>\n");
    out
}

/// What each server was told, to be repeated by anybody.
fn configurations(out: &mut String, run: &Run) {
    for told in &run.results.configurations {
        let c = &told.configuration;
        let _ = write!(out, "<h3>Configuration of {}</h3><pre>{}", escape(&told.server), escape(&c.command.join(" ")));
        if !c.text.is_empty() {
            let _ = write!(out, "\n\n{}:\n{}", escape(&c.file), escape(&c.text));
        }
        out.push_str("</pre>\n");
    }
}

fn mishaps(out: &mut String, run: &Run) {
    if run.results.mishaps.is_empty() {
        return;
    }
    out.push_str("<h3>What happened besides</h3>");
    for mishap in &run.results.mishaps {
        let _ = writeln!(out, "<p>{}: {}</p>", escape(&mishap.point), escape(&mishap.what));
        if !mishap.log.trim().is_empty() {
            let _ = writeln!(out, "<pre>{}</pre>", escape(mishap.log.trim()));
        }
    }
}

#[cfg(test)]
mod csv_tests;
#[cfg(test)]
mod papers_tests;
