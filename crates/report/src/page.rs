//! The HTML page of a report. The first screen contains the main results. A table of contents and a
//! section for each measurement follow.

use std::fmt::Write;

use crate::chart::{self, Figure, escape};
use crate::run::{Run, has_failed_self_test};
use crate::sections::{self};
use crate::summary::{RunSummary, summary};
use crate::table::Table;
use crate::{pacing, section, servers, tables, valid_replies};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1b1b;--paper:#fff;--line:#d8d8d8;--soft:#f4f4f2;--warn:#8a4b00;--bad:#b3001b;--shade:rgba(0,0,0,.35)}\
@media(prefers-color-scheme:dark){:root{--ink:#e8e8e6;--paper:#17181a;--line:#3a3c40;--soft:#222427;--warn:#ffb454;--bad:#ff8a80;--shade:rgba(255,255,255,.45)}\
.fig .c0,.fig .cell{fill:#4aa8ff}.fig .s0{stroke:#4aa8ff}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:76rem;margin:0 auto;padding:1rem}\
p,ul{max-width:60rem}h1,h2,h3{line-height:1.2}h1{margin:.3rem 0}\
h2{border-bottom:1px solid var(--line);padding-bottom:.2rem;margin-top:2.5rem}a{color:inherit}\
.wide,.scroll{overflow-x:auto;background:\
linear-gradient(90deg,var(--paper) 40%,transparent) 0 0/3rem 100% no-repeat local,\
linear-gradient(270deg,var(--paper) 40%,transparent) 100% 0/3rem 100% no-repeat local,\
linear-gradient(90deg,var(--shade),transparent) 0 0/1rem 100% no-repeat scroll,\
linear-gradient(270deg,var(--shade),transparent) 100% 0/1rem 100% no-repeat scroll}\
.wide{margin:.4rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{padding:.25rem .6rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child,.w{text-align:left}.words td,.words th{text-align:left;overflow-wrap:anywhere}\
.note{opacity:.75;font-size:.9rem}.mark{color:var(--warn);font-weight:600}\
figure{margin:1.2rem 0;max-width:60rem}figcaption{font-weight:600;margin-bottom:.3rem}\
svg{width:100%;min-width:32rem;height:auto;display:block}pre{background:var(--soft);padding:.7rem;overflow-x:auto;font-size:.85rem}\
.summary{background:var(--soft);padding:.2rem 1rem;border-radius:.5rem}.summary p{margin:.4rem 0}.answer{font-size:1.05rem}\
.summary p{max-width:none}.fail{color:var(--bad);font-weight:600;font-size:1.1rem;margin:.4rem 0}\
.first h3{margin:.6rem 0 0;font-size:1rem}.first figure{margin:.6rem 0}.first td,.first th{padding:.25rem .4rem}\
.first td:nth-child(2){white-space:nowrap}.first{display:grid;gap:0 1.5rem}.first>*{min-width:0}\
@media(min-width:70rem){.first{grid-template-columns:minmax(0,1fr) 37rem;align-items:start}}\
@media(max-width:36rem){figcaption::after{content:\" (scroll to the right \\2192)\";font-weight:400;color:var(--warn)}}\
nav ul{max-width:none;columns:20rem;list-style:none;padding-left:0}nav li li{margin-left:1rem;font-size:.9rem}nav ul ul{columns:auto}\
nav>ul>li{break-inside:avoid}";

/// Returns the start of a page with the style sheet, up to its heading.
fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{title}</title><style>{STYLE}{}{}</style></head><body><h1>{title}</h1>\n",
        chart::STYLE,
        conform::show::html::STYLE
    )
}

/// Returns a page with figures and the output of a program.
pub fn page(title: &str, figures: &[Figure], printed: &str) -> String {
    let mut out = head(title);
    for figure in figures {
        out += &drawn(figure, "");
    }
    let _ = writeln!(out, "<pre>{}</pre></body></html>", escape(printed));
    out
}

/// Returns a figure with its caption. `id` is the link target of the figure; empty if the figure
/// has no link target.
fn drawn(figure: &Figure, id: &str) -> String {
    let id = if id.is_empty() { String::new() } else { format!(" id=\"{id}\"") };
    format!(
        "<figure{id}><figcaption>{}</figcaption><div class=\"scroll\">{}</div></figure>\n",
        escape(&figure.title),
        figure.svg(false)
    )
}

/// A section of the page below its first screen.
#[derive(Default)]
struct Section {
    title: String,
    /// Note that applies to the whole section.
    note: String,
    figures: Vec<Figure>,
    /// Tables, each with the name of its run if there are several runs.
    tables: Vec<(String, Table)>,
    /// HTML below the figures and tables.
    rest: String,
}

impl Section {
    fn is_empty(&self) -> bool {
        self.figures.is_empty() && self.tables.is_empty() && self.rest.is_empty()
    }

    /// Returns the link target of a table in the section, or of the section itself.
    fn id(&self, table: Option<usize>) -> String {
        let word: String = self
            .title
            .to_lowercase()
            .chars()
            .map(|c| if c.is_alphanumeric() { c } else { '-' })
            .collect();
        table.map_or(word.clone(), |n| format!("{word}-{}", n + 1))
    }

    fn html(&self) -> String {
        let mut out = format!("<h2 id=\"{}\">{}</h2>\n", self.id(None), escape(&self.title));
        if !self.note.is_empty() {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&self.note));
        }
        for figure in &self.figures {
            out += &drawn(figure, &figure_id(figure));
        }
        for (n, (run, table)) in self.tables.iter().enumerate() {
            let _ = writeln!(out, "{}", table.html(&self.id(Some(n)), run));
        }
        out + &self.rest
    }

    /// Returns the section's entries for the table of contents.
    fn contents(&self) -> String {
        let mut entries = String::new();
        for figure in &self.figures {
            let _ = write!(
                entries,
                "<li><a href=\"#{}\">Figure: {}</a></li>",
                figure_id(figure),
                escape(&figure.title)
            );
        }
        for (n, (run, table)) in self.tables.iter().enumerate() {
            let run = if run.is_empty() { String::new() } else { format!("{}: ", escape(run)) };
            let _ = write!(
                entries,
                "<li><a href=\"#{}\">{run}{}</a></li>",
                self.id(Some(n)),
                escape(&table.title)
            );
        }
        format!(
            "<li><a href=\"#{}\">{}</a><ul>{entries}</ul></li>\n",
            self.id(None),
            escape(&self.title)
        )
    }
}

fn figure_id(figure: &Figure) -> String {
    format!("figure-{}", figure.file)
}

/// Returns the whole page; `change` is the table of changes against a baseline.
pub(crate) fn html(runs: &[Run], change: Option<Table>) -> String {
    let names: Vec<String> = runs.iter().map(Run::title).collect();
    let mut sections = sections(runs);
    if let Some(table) = change {
        let title = "Change against the baseline".into();
        sections.insert(
            0,
            Section { title, tables: vec![(String::new(), table)], ..Section::default() },
        );
    }
    let mut out = head(&format!("DNS64 benchmark: {}", names.join(" and ")));
    out += &first_screen(runs);
    out += "<nav id=\"contents\"><h2>Contents</h2><ul>\n";
    sections.iter().for_each(|section| out += &section.contents());
    out += "</ul></nav>\n";
    sections.iter().for_each(|section| out += &section.html());
    out + "</body></html>\n"
}

/// Returns the first screen: the main results, the time of the measurement, the comparison of the servers (a table and
/// a figure), and the caveats.
fn first_screen(runs: &[Run]) -> String {
    let (mut out, mut all_caveats) = (String::new(), String::new());
    for run in runs {
        let name = if runs.len() > 1 { format!("{}: ", escape(&run.name)) } else { String::new() };
        let RunSummary { answer, when, caveats } = summary(run);
        if has_failed_self_test(&run.results) {
            let _ = writeln!(out, "<p class=\"fail\">{name}{FAILED_SELF_TEST}</p>");
        }
        let _ = write!(out, "<div class=\"summary\">");
        for (class, line) in
            answer.iter().map(|line| ("answer", line)).chain(when.iter().map(|line| ("when", line)))
        {
            let _ = write!(out, "<p class=\"{class}\">{name}{}</p>", escape(line));
        }
        out += "</div>\n";
        for point in &run.results.noncompliance {
            let mark = "<span class=\"mark\">Not RFC 8219 compliant:</span>";
            let _ = writeln!(all_caveats, "<li>{name}{mark} {}.</li>", escape(&point.to_string()));
        }
        for caveat in caveats {
            let _ = writeln!(all_caveats, "<li>{name}{}</li>", escape(&caveat));
        }
    }
    out += &compared(runs);
    if !all_caveats.is_empty() {
        let _ = writeln!(out, "<h2 id=\"caveats\">Caveats</h2><ul>{all_caveats}</ul>");
    }
    out
}

const FAILED_SELF_TEST: &str =
    "The tester failed its self-test. All rates are lower bounds, and the servers are not ranked.";

/// Returns the table that compares the servers, with the figure of valid replies beside it.
fn compared(runs: &[Run]) -> String {
    let table = servers::table(runs).map_or(String::new(), |table| table.html("servers", ""));
    let figures: String = valid_replies::figures(runs)
        .iter()
        .map(|figure| drawn(figure, &figure_id(figure)))
        .collect();
    if table.is_empty() && figures.is_empty() {
        return String::new();
    }
    format!("<div class=\"first\"><div>{table}</div><div>{figures}</div></div>\n")
}

/// Returns all sections that are not empty: the measurements, then the supporting information.
fn sections(runs: &[Run]) -> Vec<Section> {
    let of = |run: &Run| if runs.len() > 1 { run.name.clone() } else { String::new() };
    let named = |run: &Run, tables: Vec<Table>| {
        tables.into_iter().map(|table| (of(run), table)).collect::<Vec<_>>()
    };
    let is_compliant = runs.iter().all(|run| run.results.noncompliance.is_empty());
    let mut note = "Medians of the rates that passed, with a small dot for each search. Error bars reach from the smallest rate that \
                    passed to the largest that failed. ≥ and triangles mark lower bounds; the reasons are in the caveats. Points \
                    that were not measured are not drawn."
        .to_owned();
    if !is_compliant {
        note += " Not RFC 8219 compliant, see the caveats.";
    }
    let of_measure = |measure: &&dyn section::Section| Section {
        title: measure.title().into(),
        figures: measure.figures(runs),
        tables: (measure.comparisons(runs).into_iter().map(|table| (String::new(), table)))
            .chain(runs.iter().flat_map(|run| named(run, measure.tables(run))))
            .collect(),
        rest: measure.html(runs),
        ..Section::default()
    };
    let mut all: Vec<Section> = sections::ALL.iter().map(of_measure).collect();
    // The self-test is measured first and shown last, because it validates the other results.
    all.rotate_left(1);
    all[0].note = note;
    all.push(Section {
        title: "The tester itself".into(),
        figures: pacing::pacing(runs),
        tables: (runs.iter())
            .flat_map(|run| {
                named(run, vec![tables::health(run), tables::cross_check(run), tables::trials(run)])
            })
            .collect(),
        rest: runs.iter().map(|run| warnings(run) + &incidents(run)).collect(),
        ..Section::default()
    });
    let environment = |run: &Run| {
        let table = tables::environment(run);
        let id = format!(
            "environment-of-{}",
            runs.iter().position(|other| std::ptr::eq(other, run)).unwrap_or_default()
        );
        format!("<div class=\"words\">{}</div>\n{}", table.html(&id, &of(run)), configurations(run))
    };
    all.push(Section {
        title: "Environment and configurations".into(),
        rest: runs.iter().map(environment).collect(),
        ..Section::default()
    });
    all.push(Section {
        title: "How to reproduce".into(),
        rest: runs.iter().map(plan).collect(),
        ..Section::default()
    });
    all.retain(|section| !section.is_empty());
    all
}

fn warnings(run: &Run) -> String {
    let mut out = String::new();
    for (i, warning) in run.results.health.warnings.iter().enumerate() {
        let head = if i == 0 { "<h3>Warnings</h3>" } else { "" };
        let text = escape(&warning.warning.to_string());
        let _ = writeln!(out, "{head}<p class=\"note\">{} × {text}</p>", warning.trials);
    }
    out
}

fn incidents(run: &Run) -> String {
    let mut out = String::new();
    for (i, incident) in run.results.incidents.iter().enumerate() {
        let head = if i == 0 { "<h3>Incidents</h3>" } else { "" };
        let _ =
            writeln!(out, "{head}<p>{}: {}</p>", escape(&incident.point), escape(&incident.what));
        if !incident.log.trim().is_empty() {
            let _ = writeln!(out, "<pre>{}</pre>", escape(incident.log.trim()));
        }
    }
    out
}

/// Returns the configuration of each server, so that others can repeat the measurement.
fn configurations(run: &Run) -> String {
    let mut out = String::new();
    for recorded in &run.results.configurations {
        let c = &recorded.configuration;
        let _ = write!(
            out,
            "<h3>Configuration of {}</h3><pre>{}",
            escape(&recorded.server),
            escape(&c.command.join(" "))
        );
        if !c.text.is_empty() {
            let _ = write!(out, "\n\n{}:\n{}", escape(&c.file), escape(&c.text));
        }
        out += "</pre>\n";
    }
    out
}

fn plan(run: &Run) -> String {
    let plan = toml::to_string(&run.results.plan).unwrap_or_default();
    format!(
        "<p>Save the plan of {} as plan.toml, then:</p><pre>dns64bench campaign run plan.toml\n\
         dns64bench report plan-run</pre><pre>{}</pre>\n",
        escape(&run.name),
        escape(&plan)
    )
}
