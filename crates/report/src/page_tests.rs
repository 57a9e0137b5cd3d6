//! Tests of the page: the contents of its first screen, the targets of its links, and its width in
//! a window.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use campaign::plan::Plan;
use campaign::results::Results;
use campaign::runner::simulated::journal_of;
use hosts::environment::Environment;
use hosts::place::{Allowed, CpuPlacement};

use crate::chart::read::{elements, marks};
use crate::chart::{Figure, Shape};
use crate::run::Run;
use crate::sections::{figures, tables};
use crate::table::COLUMNS;
use crate::write::{markdown, write};
use crate::{page, servers, valid_replies};

/// Plan that results in wide tables: many numbers of cores, many AAAA record rates and cache hit
/// rates, long names.
const WIDE: &str = "name = 'wide'\ntopology = 'lab'\n[cpus]\ndut = [0, 1, 2, 3, 4, 5, 6, 7]\n[trial]\nduration = '1s'\npause = '0s'\n\
    [search]\nmin = 1000\nmax = 9000\nresolution = 4000\nrepeat = 2\n[measure]\ncores = [1, 2, 4, 8]\n\
    aaaa-shares = [0.2, 0.4, 0.6, 0.8, 1]\ncached-shares = [0.2, 0.4, 0.6, 0.8, 1]\ntable = true\nshares-at = [1]\n\
    [measure.loads]\nshares = [0.25, 0.5, 0.75, 1]\nduration = '6s'\ntransient = '2s'\nrepeat = 1\n\
    [measure.closed-loop]\nthreads = [1, 2, 4, 8, 16, 32, 64, 128, 256]\nblocks = 1\n\
    [[dut]]\ndriver = 'unbound'\nname = 'Unbound 1.17.1 as the distribution builds it'\n[[dut]]\ndriver = 'dns64d'\n";

fn wide() -> Run {
    static RESULTS: OnceLock<Results> = OnceLock::new();
    let results = RESULTS.get_or_init(|| {
        let plan = Plan::parse(WIDE, Path::new("wide.toml")).unwrap();
        Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 3_000, &[]))
    });
    Run { name: "wide".into(), results: results.clone(), notes: Vec::new() }
}

/// Returns a run in which two servers were measured and checked for conformance.
fn checked() -> Run {
    let text = "name = 'checked'\n[trial]\nduration = '1s'\npause = '0s'\n[search]\nmin = 1000\nmax = 9000\n\
                resolution = 4000\nrepeat = 2\n[measure]\nconform = true\n[[dut]]\ndriver = 'unbound'\n\
                [[dut]]\ndriver = 'dns64d'\n";
    let plan = Plan::parse(text, Path::new("checked.toml")).unwrap();
    let results = Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 3_000, &[]));
    Run { name: "checked".into(), results, notes: Vec::new() }
}

/// If servers were checked for conformance, the report shows the outcomes, and the page names each server that fails a
/// check of level MUST. Otherwise the report has no section on conformance.
#[test]
fn answers_that_were_checked_have_a_section_with_the_scoreboard() {
    let mut run = checked();
    let right = run.results.duts[1].conform.as_mut().unwrap();
    right.report.as_mut().unwrap().outcomes[1].verdict = conform::outcome::Verdict::Passed;
    let counts = right.counts.as_mut().unwrap();
    (counts.must.passed, counts.must.failed) = (2, 0);
    let runs = [run];
    let page = page::html(&runs, None);
    let (_, section) = page.split_once("<h2 id=\"conformance\">").unwrap();
    let (section, _) = section.split_once("<h2 ").unwrap();
    for what in [
        "<td>dns64d</td><td>2 / 0 / 0 / 0</td><td>0 / 0 / 0 / 1</td>",
        "<td>Unbound</td><td>1 / 1 / 0 / 0</td>",
        "<th scope=\"col\">dns64d<small>dns64d 1.0</small>",
        "<h3>MUST</h3>",
        "a-2 &amp; what it wants",
        "it does &lt;not&gt;",
    ] {
        assert!(section.contains(what), "{what} is not in\n{section}");
    }
    assert!(page.contains(conform::show::html::STYLE));
    assert!(page.contains("<li>Unbound fails a check of level MUST, see Conformance.</li>"));
    assert!(!page.contains("dns64d fails"));
    let markdown = markdown(&runs, None, &[]);
    assert!(markdown.contains("### Conformance by requirement level"));
    let (_, board) = markdown.split_once("## Conformance, check by check").unwrap();
    assert!(board.contains("**failed**"), "{board}");
    for page in [page::html(&[wide()], None), crate::write::markdown(&[wide()], None, &[])] {
        assert!(!page.contains("Conformance"), "no section without checks");
    }
}

/// Sets the medians of two servers. All other values of the run stay unchanged.
fn with_rates(mut run: Run, rates: [f64; 2]) -> Run {
    for (dut, rate) in run.results.duts.iter_mut().zip(rates) {
        dut.points.iter_mut().for_each(|point| point.figures.median = Some(rate));
    }
    run
}

#[test]
fn the_first_screen_has_the_answer_a_figure_and_the_caveats() {
    let page = page::html(&[wide()], None);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what} is not there"));
    let order = [
        "<p class=\"answer\">Worst case, ",
        "<p class=\"when\">Measured from ",
        "the trials alone took ",
        "<div class=\"first\"><div><h3 id=\"servers\">Comparison of the servers",
        "<figure id=\"figure-valid-replies\">",
        "<h2 id=\"caveats\">",
        "Not RFC 8219 compliant:",
        "<nav id=\"contents\">",
        "<h2 id=\"highest-passing-rates\">",
        "<h2 id=\"the-tester-itself\">",
    ];
    let places = order.map(at);
    assert!(places.is_sorted(), "{:?}", order.iter().zip(places).collect::<Vec<_>>());
    assert!((1..=3).contains(&page.matches("<p class=\"answer\">").count()));
    for file in ["worst-case", "valid-replies"] {
        assert_eq!(page.matches(&format!("id=\"figure-{file}\"")).count(), 1, "{file}");
    }
}

/// Returns a run of two servers with a self-test that found no passing rate.
fn with_failed_self_test() -> Run {
    let text = "name = 'failed'\n[trial]\nduration = '1s'\npause = '0s'\n[search]\nmin = 1000\nmax = 9000\n\
                resolution = 4000\nrepeat = 2\n[self-test]\nmin = 1000\nmax = 2000\nresolution = 1000\nrepeat = 1\n\
                [[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'dns64d'\n";
    let plan = Plan::parse(text, Path::new("failed.toml")).unwrap();
    let mut results =
        Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 3_000, &[]));
    (results.self_tests[0].passed, results.self_tests[0].allows) = (None, None);
    Run { name: "failed".into(), results, notes: Vec::new() }
}

#[test]
fn a_failed_self_test_is_one_line_without_ranking() {
    let run = with_rates(with_failed_self_test(), [3e3, 5e3]);
    let page = page::html(std::slice::from_ref(&run), None);
    assert_eq!(page.matches("<p class=\"fail\">").count(), 1);
    let (first, _) = page.split_once("<h2 id=\"caveats\">").unwrap();
    for ranking in ["Fastest", "'s rate is"] {
        assert!(!first.contains(ranking), "{ranking} in {first}");
    }
    let table = servers::table(std::slice::from_ref(&run)).unwrap();
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["Unbound", "dns64d"], "the plan's order");
    let passed = with_rates(checked(), [3e3, 5e3]);
    let page = page::html(std::slice::from_ref(&passed), None);
    assert!(!page.contains("<p class=\"fail\">") && page.contains("Fastest"));
}

#[test]
fn servers_are_compared_in_one_table() {
    let table = servers::table(&[wide()]).unwrap();
    let header: Vec<&str> = table.header.iter().map(String::as_str).collect();
    let wanted = [
        "Server",
        "Median in [passed, failed)",
        "n",
        "Fastest ÷ this",
        "p99 at 50 %, ms",
        "CPU per answer, µs",
    ];
    assert_eq!(header, wanted);
    assert_eq!(table.rows.len(), 2, "{:?}", table.rows);
    assert_eq!(table.rows[0][3], "1");
    assert!(table.note.contains(" on 1 core."), "{}", table.note);
    let load = wide().results.duts[0].loads.iter().find(|l| l.share.per_hundred() == 50).cloned();
    let cprdp = load.unwrap().found.cprdp.unwrap().median;
    assert_eq!(table.rows[0][5], format!("{:.1}", 1e6 / cprdp));
}

/// Servers that were measured with only one number of cores are in one common table. Otherwise the
/// table of each such server would have a single column.
#[test]
fn no_server_has_a_table_of_one_column() {
    let text = "name = 'x'\n[trial]\nduration = '1s'\npause = '0s'\n[search]\nmin = 1000\nmax = 9000\nresolution = 4000\n\
                repeat = 2\n[measure]\nacceptance = [0.99]\n[measure.loads]\nshares = [0.5, 1]\nduration = '3s'\n\
                transient = '1s'\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\n[[dut]]\ndriver = 'dns64d'\n";
    let plan = Plan::parse(text, Path::new("x.toml")).unwrap();
    let results = Results::compute(&plan, Environment::for_tests(), &journal_of(&plan, 3_000, &[]));
    let all = tables(&Run { name: "x".into(), results, notes: Vec::new() });
    let titles: Vec<&str> = all.iter().map(|table| table.title.as_str()).collect();
    for table in &all {
        assert!(table.header.len() > 2 || table.title == "The tester itself", "{}", table.title);
        let is_of_one = ["Unbound", "BIND", "dns64d"].iter().any(|name| table.title.contains(name));
        assert!(!is_of_one, "{}", table.title);
    }
    for title in
        ["DNS64 performance by server", "Computing power relative performance (CPRDP) by server"]
    {
        let table = all.iter().find(|table| table.title == title);
        let columns = table.unwrap_or_else(|| panic!("no {title}: {titles:?}")).header.len();
        assert_eq!(columns, 4, "{title}");
    }
}

#[test]
fn valid_replies_are_drawn_from_all_trials() {
    let runs = [wide()];
    let svg = valid_replies::figures(&runs)[0].svg(true);
    let drawn = marks(&svg);
    for dut in &runs[0].results.duts {
        let of_dut: Vec<_> = drawn.iter().filter(|mark| mark.of == dut.name).collect();
        assert!(of_dut.len() >= 3, "{of_dut:?}");
        for mark in of_dut {
            let rate: u64 = mark.at.parse().unwrap();
            // The simulated servers answer up to their capacity of 3 000 queries/s per core.
            assert_eq!(mark.y[0] >= 100.0, rate <= 3_000, "{mark:?}");
        }
    }
}

#[test]
fn links_lead_to_parts_of_the_page() {
    let runs = [Run { name: "a & b".into(), ..wide() }, wide()];
    for page in [page::html(&runs[1..], None), page::html(&runs, None)] {
        let all: Vec<String> =
            elements(&page).iter().filter_map(|element| element.get("id")).collect();
        let ids: BTreeSet<&String> = all.iter().collect();
        assert_eq!(ids.len(), all.len(), "each once: {all:?}");
        let links: Vec<String> =
            elements(&page).iter().filter_map(|element| element.get("href")).collect();
        assert!(links.len() > 30, "{links:?}");
        for link in links {
            let id =
                link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads out of the page"));
            assert!(ids.contains(&id.to_owned()), "{link} leads nowhere");
        }
    }
}

#[test]
fn tables_do_not_exceed_the_width_of_a_window() {
    let page = page::html(&[wide()], None);
    let heads: Vec<usize> = page
        .split("<thead>")
        .skip(1)
        .map(|t| t.split("</thead>").next().unwrap().matches("<th").count())
        .collect();
    assert!(heads.len() > 10 && heads.iter().all(|columns| *columns <= COLUMNS), "{heads:?}");
}

#[test]
fn the_best_result_stands_first() {
    for (rates, order) in [([3e3, 5e3], ["dns64d", "Unbound"]), ([5e3, 3e3], ["Unbound", "dns64d"])]
    {
        let run = with_rates(wide(), rates);
        let all = tables(&run);
        let worst = all.iter().find(|table| table.title.starts_with("Worst case")).unwrap();
        assert!(
            worst.rows[0][0].starts_with(order[0]) && worst.rows[7][0].starts_with(order[1]),
            "{:?}",
            worst.rows
        );
        let figures = figures(&[run]);
        let Shape::Bars { groups, .. } =
            &figures.iter().find(|f| f.file == "worst-case").unwrap().shape
        else {
            panic!("bars")
        };
        assert!(groups[0].starts_with(order[0]) && groups[1].starts_with(order[1]), "{groups:?}");
    }
}

/// Legends and captions name the cores that the kernel reported, not those that the plan requests.
#[test]
fn figures_and_captions_name_the_observed_cores() {
    let mut run = wide();
    let cpus: BTreeSet<usize> = [0, 1].into();
    let allowed = vec![Allowed { cpus: cpus.clone(), threads: 16 }];
    let seen = Some(CpuPlacement {
        cpus,
        configured_threads: Some(16),
        allowed,
        ..CpuPlacement::default()
    });
    for dut in &mut run.results.duts {
        dut.points.iter_mut().for_each(|p| p.place.clone_from(&seen));
        dut.loads.iter_mut().for_each(|load| load.found.place.clone_from(&seen));
        dut.closed_loops.iter_mut().for_each(|at| at.seen.clone_from(&seen));
    }
    let runs = [run];
    let mut drawn: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for figure in figures(&runs) {
        let names =
            marks(&figure.svg(false)).into_iter().flat_map(|mark| [mark.panel, mark.of, mark.at]);
        drawn.insert(figure.file, names.chain([figure.title]).collect());
    }
    for (file, names) in &drawn {
        assert!(
            !names.iter().any(|name| name.ends_with(" core") || name.ends_with(" cores")),
            "{file}: {names:?}"
        );
    }
    for file in [
        "worst-case",
        "aaaa",
        "cached",
        "shares",
        "cprdp",
        "cpu",
        "cpu-transient",
        "latency-p99",
        "closed-loop",
    ] {
        assert!(
            drawn[file].iter().any(|name| name.contains("2 CPUs with 16 threads")),
            "{file}: {:?}",
            drawn[file]
        );
    }
    assert!(!drawn.contains_key("scale-up"), "no server had the cores of its column");
    let captions: Vec<String> = tables(&runs[0]).into_iter().map(|table| table.title).collect();
    for of in
        ["DNS64 performance by AAAA record rate", "by AAAA share and cached share", "Closed loop"]
    {
        let caption = captions.iter().find(|caption| caption.contains(of)).unwrap();
        assert!(caption.ends_with("2 CPUs with 16 threads"), "{caption}");
    }
}

#[test]
fn every_figure_is_there_as_svg_png_and_pdf() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [wide()];
    write(&runs, folder.path()).unwrap();
    let all: Vec<Figure> = figures(&runs);
    assert!(all.len() >= 8);
    let mut files: BTreeSet<String> = BTreeSet::new();
    for figure in &all {
        for (end, begin) in [("svg", &b"<svg "[..]), ("png", b"\x89PNG\r\n"), ("pdf", b"%PDF-")] {
            let file = format!("{}.{end}", figure.file);
            assert!(
                fs::read(folder.path().join("figures").join(&file)).unwrap().starts_with(begin),
                "{file}"
            );
            files.insert(file);
        }
        crate::chart::tests::readable(&figure.svg(true))
            .unwrap_or_else(|why| panic!("{}: {why}", figure.file));
    }
    let there = fs::read_dir(folder.path().join("figures")).unwrap();
    let there: BTreeSet<String> =
        there.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, files, "and nothing else");
    let markdown = fs::read_to_string(folder.path().join("tables.md")).unwrap();
    assert!(
        all.iter().all(|figure| markdown.contains(&format!("(figures/{}.svg)", figure.file))),
        "{markdown}"
    );
}

/// Markup and hidden characters in a name, a version or a folder must not reach any file of the
/// report.
#[test]
fn hostile_names_are_inert_in_every_file() {
    const HOSTILE: &str = "=<script>x</script> [y](javascript:z) \u{202e}\u{1b}[31m\u{7}\u{9b}";
    let mut run = checked();
    run.name = HOSTILE.into();
    run.results.plan.name = HOSTILE.into();
    run.notes = vec![HOSTILE.into()];
    for dut in &mut run.results.duts {
        dut.version = HOSTILE.into();
        let report = dut.conform.as_mut().and_then(|conform| conform.report.as_mut());
        if let Some(report) = report {
            report.server = HOSTILE.into();
            report.version = HOSTILE.into();
        }
    }
    run.results.auth = HOSTILE.into();
    run.results.authdns.iter_mut().for_each(|auth| auth.version = HOSTILE.into());
    let folder = tempfile::tempdir().unwrap();
    write(&[run], folder.path()).unwrap();
    let mut read = 0;
    let figures = fs::read_dir(folder.path().join("figures")).unwrap();
    for entry in fs::read_dir(folder.path()).unwrap().chain(figures) {
        let path = entry.unwrap().path();
        let Some(kind) = path.extension().and_then(|kind| kind.to_str()) else { continue };
        if matches!(kind, "png" | "pdf") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let shown = path.display();
        for hidden in ["\u{202e}", "\u{1b}", "\u{7}", "\u{9b}"] {
            assert!(!text.contains(hidden), "{shown} has {hidden:?}");
        }
        if matches!(kind, "md" | "html" | "svg") {
            assert!(!text.contains("<script>x"), "{shown}");
        }
        if kind == "md" {
            let unescaped = text.replace("\\](", "");
            assert!(!unescaped.contains("](javascript:"), "{shown}");
            assert!(text.contains("&lt;script>"), "{shown} has the name");
        }
        if kind == "csv" {
            assert!(!text.lines().any(|line| line.starts_with("\"=")), "{shown}");
            let has_rows = text.lines().count() > 1;
            assert_eq!(text.contains("\"'=<script>"), has_rows, "{shown}");
        }
        read += 1;
    }
    assert!(read >= 10, "{read}");
}

/// In a window of 1280 × 800 pixels, the whole first screen is visible. Neither the page nor a table is wider than its
/// container.
#[test]
fn the_first_screen_fits_1280_by_800_pixels() {
    const TABLE: &str = "for(const w of document.querySelectorAll('.wide'))if(w.scrollWidth>w.clientWidth)wide.push(w.parentNode.id+\
        ' '+w.previousElementSibling.textContent);";
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "<script>const wide=[];{TABLE}if(document.documentElement.scrollWidth>window.innerWidth)wide.push('the page');\
         const first=document.querySelector('.first').getBoundingClientRect();if(first.bottom>800)wide.push('first to '+first.bottom);\
         document.body.textContent='seen at '+window.innerWidth+': '+wide.join('; ')+'.'</script></body>"
    );
    let page = page::html(&[wide()], None).replace("</body>", &script);
    let path = folder.path().join("page.html");
    fs::write(&path, page).unwrap();
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let size =
        ["--window-size=1280,800", "--dump-dom", "--headless", "--no-sandbox", "--disable-gpu"];
    let child = Command::new("chromium")
        .args(size)
        .args([profile, format!("file://{}", path.display())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        // A different test limits the number of columns.
        return testbed::skip("how wide a report becomes", "there is no chromium");
    };
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(90) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let mut seen = String::new();
    child.stdout.take().unwrap().read_to_string(&mut seen).unwrap();
    let _ = child.wait();
    assert!(seen.contains("seen at 1280: ."), "{}", &seen[seen.len().saturating_sub(500)..]);
}
