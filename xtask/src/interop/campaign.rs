//! A campaign with real servers, compared with closed loops of dnsperf against the same servers in the same lab.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{Bench, two_cpus};
use super::test::{Resource, Test};
use crate::bench_dns64::{self, ClosedLoops};
use crate::process::{self, find};

pub(super) static TESTS: &[Test] = &[Test::new(
    "campaign with BIND, Unbound, PowerDNS and dns64d, compared with dnsperf",
    &["named", "unbound", "pdns_recursor", "dnsperf", "ip"],
    campaign_and_dnsperf,
)
.holding(Resource::Cpus)];

/// Programs that read reports.
pub(super) static READERS: &[Test] = &[
    Test::new("the report in Chromium", &["chromium"], report_in_chromium),
    Test::new("the report in pdfLaTeX", &["pdflatex", "thumbpdf"], |bench| {
        report_in_latex(bench, "pdflatex")
    }),
    Test::new("the report in LuaLaTeX", &["lualatex", "thumbpdf"], |bench| {
        report_in_latex(bench, "lualatex")
    }),
];

/// A plan for a report with every kind of figure, without limits on pacing.
const SMALL: &str = "name = 'small'\ntopology = 'loopback'\n[trial]\nduration = '200ms'\ntimeout = '1s'\npause = '0s'\n\
    window-limit = 10000\nlateness-limit = '5s'\nauth-limit = '5s'\n\
    [search]\nmin = 100\nmax = 200\nresolution = 100\nrepeat = 1\ninvalid-retries = 1\n[measure]\naaaa-shares = [1]\ncached-shares = [0.5]\n\
    table = true\nacceptance = [0.99]\n[measure.loads]\nshares = [0.5, 1]\nduration = '2s'\ntransient = '1s'\nrepeat = 1\n\
    [[dut]]\ndriver = 'dns64d'\n";

/// Plan with short trials of the worst case, in which every server is overloaded.
const PLAN: &str = "name = 'interop'\n[cpus]\ntester = [FIRST]\nauth = [FIRST]\ndut = [LAST]\n\
    [trial]\nduration = '1s'\ntimeout = '250ms'\npause = '100ms'\nmax-burst = '200us'\n\
    [search]\nmin = 500\nmax = 120500\nresolution = 1500\nrepeat = 1\nprobe = '300ms'\ninvalid-retries = 10\n\
    [[dut]]\ndriver = 'bind'\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'powerdns'\n[[dut]]\ndriver = 'dns64d'\n";

/// If dnsperf finds that one server is faster than another by this factor, the campaign must find the same order.
const CLEAR: f64 = 2.0;
/// Minimum ratio of a search's rate to that of dnsperf's closed loop: a search requires every answer in time, whereas a
/// closed loop waits.
const LEAST: f64 = 0.2;
/// Maximum ratio of a search's rate to that of the faster of two closed loops. dnsperf alone cannot show the capacity
/// of dns64d, because dnsperf shares its CPU with AuthDNS. In addition, dnsperf's single packets cost dns64d twice as
/// much CPU time as the batches of the tester and of our closed loop.
const MOST: f64 = 2.0;

fn campaign_and_dnsperf(bench: &Bench) -> Result<()> {
    let [first, last] = two_cpus();
    let plan = PLAN.replace("FIRST", &first).replace("LAST", &last);
    let (plan, run) = (bench.file("interop.toml", &plan)?, bench.path("interop-run"));
    let args = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
    let ran = process::run(bench.program(), &args, Duration::from_secs(600))?;
    ensure!(ran.status == Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let results: Value = serde_json::from_slice(&fs::read(format!("{run}/results.json"))?)?;
    ensure!(results["complete"] == true, "not complete: {}", results["mishaps"]);
    let mut rates = Vec::new();
    for (name, seen) in bench_dns64::different_names()? {
        let duts = results["duts"].as_array().context("no DUTs")?;
        let dut = duts
            .iter()
            .find(|dut| dut["name"] == name)
            .with_context(|| format!("{name} is not in the results"))?;
        let found = dut["points"][0]["figures"]["median"].as_f64().context("no median")?;
        println!(
            "        {name}: {found:.0} queries/s by search, {:.0} by dnsperf's closed loop, {:.0} by ours",
            seen.dnsperf, seen.ours
        );
        rates.push((name, found, seen));
    }
    ensure!(rates.len() == 4, "not all servers were measured");
    agree(&rates)
}

/// Compares a campaign's result for each server with those of closed loops.
fn agree(rates: &[(&str, f64, ClosedLoops)]) -> Result<()> {
    for (name, found, seen) in rates {
        let share = found / seen.dnsperf;
        ensure!(
            share >= LEAST,
            "{name}: a search finds {share:.2} of the rate of dnsperf's closed loop"
        );
        let share = found / seen.dnsperf.max(seen.ours);
        ensure!(share <= MOST, "{name}: a search finds {share:.2} of the rate of a closed loop");
    }
    for (fast, found, seen) in rates {
        for (slow, other_found, other_seen) in rates {
            let clear = seen.dnsperf > CLEAR * other_seen.dnsperf;
            ensure!(
                !clear || found > other_found,
                "the campaign ranks {slow} before {fast}, unlike dnsperf"
            );
        }
    }
    Ok(())
}

/// Script that is inserted at the end of a page. It reports the width of the layout and the number of visible figures
/// to the surrounding page.
const TELLS: &str = "<script>addEventListener('load', () => {
  const figures = [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect());
  const shown = figures.filter(box => box.width > 50 && box.height > 50).length;
  parent.postMessage(['LAID OUT', innerWidth, document.documentElement.scrollWidth, shown].join(' '), '*');
});</script></body>";

/// Returns a page that shows `page` in a frame of this width, which may be less than the minimum width of a window.
fn framed(page: &str, width: usize) -> String {
    format!(
        "<body><script>addEventListener('message', message => document.body.append(message.data));</script>\
         <iframe src='{page}' style='width:{width}px;height:2000px;border:0'></iframe></body>"
    )
}

fn report_in_chromium(bench: &Bench) -> Result<()> {
    let (run, _) = bench.campaign("small", SMALL)?;
    let page = format!("{run}/report.html");
    let drawn = fs::read_to_string(&page)?.matches("<svg").count();
    ensure!(drawn >= 8, "only {drawn} figures");
    let chromium = find("chromium").context("chromium")?;
    let (profile, page) =
        (format!("--user-data-dir={}", bench.path("chromium")), format!("file://{page}"));
    // The page itself contains no script, so a copy with a script reports the layout.
    let copy = fs::read_to_string(format!("{run}/report.html"))?.replace("</body>", TELLS);
    bench.file("laid-out.html", &copy)?;
    for width in [1280, 400] {
        let size = format!("--window-size={width},2000");
        // The browser cannot resolve any name, so a page that loads anything would cause an error message on the
        // console.
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
            "--virtual-time-budget=5000",
        ];
        let more = ["--host-resolver-rules=MAP * ~NOTFOUND", &profile, &size];
        let show = |page: &str| {
            process::run(&chromium, &[&args[..], &more, &[page]].concat(), Duration::from_secs(60))
        };
        let said = show(&page)?.stderr;
        ensure!(!said.contains("CONSOLE"), "{width}: {said}");
        let frame = bench.file("frame.html", &framed("laid-out.html", width))?;
        let ran = show(&format!("file://{frame}"))?;
        let widths =
            ran.stdout.rsplit_once("LAID OUT ").and_then(|(_, rest)| rest.split('<').next());
        let widths = widths
            .context("the copy of the page reports nothing")?
            .split_whitespace()
            .map(str::parse);
        let [inner, wide, shown]: [usize; 3] = widths
            .collect::<Result<Vec<_>, _>>()?
            .try_into()
            .map_err(|widths| anyhow::anyhow!("{widths:?}"))?;
        ensure!(inner == width, "laid out {inner} px wide instead of {width}");
        ensure!(wide <= width, "{width}: the page is {wide} px wide");
        ensure!(shown == drawn, "{width}: {shown} of {drawn} figures have a size");
    }
    Ok(())
}

/// Time limit of LaTeX for a report. It is long, because LuaLaTeX may have to build its font database first.
const LATEX_LIMIT: Duration = Duration::from_secs(300);

/// Compiles the report. Also compiles its first table separately, because the main table must not be wider than a line.
fn report_in_latex(bench: &Bench, engine: &str) -> Result<()> {
    let (run, _) = bench.campaign("latex", SMALL)?;
    let tables = fs::read_to_string(format!("{run}/tables.tex"))?;
    let (main, _) = tables.split_once("\\end{table}").context("no table")?;
    fs::write(format!("{run}/main-table.tex"), format!("{main}\\end{{table}}\n"))?;
    let report = fs::read_to_string(format!("{run}/report.tex"))?;
    let (head, _) = report.split_once("\\input").context("report.tex has no input")?;
    let alone = format!("{head}\\input{{main-table.tex}}\n\\end{{document}}\n");
    fs::write(format!("{run}/main.tex"), alone)?;
    let figures = fs::read_to_string(format!("{run}/figures.tex"))?;
    ensure!(figures.matches("\\includegraphics").count() >= 8, "{figures}");
    let main = overfull(&compiled(&run, engine, "main")?);
    ensure!(main.is_empty(), "the main table is wider than the line, by {main:?} pt");
    let printed = compiled(&run, engine, "report")?;
    let all = overfull(&printed);
    ensure!(all.iter().all(|&by| by < LONG_WORD), "tables are wider than the line, by {all:?} pt");
    ensure!(printed.contains("Output written on report.pdf"), "{printed}");
    Ok(())
}

/// Width, in points, by which a long word in a cell may exceed its column.
const LONG_WORD: f64 = 20.0;

/// Returns, in points, by how much each overfull box of a document is too wide.
fn overfull(printed: &str) -> Vec<f64> {
    let pieces = printed.split("Overfull \\hbox (").skip(1);
    pieces.filter_map(|rest| rest.split_once("pt too wide")?.0.parse().ok()).collect()
}

/// Compiles a document of a run folder and returns LaTeX's output.
fn compiled(folder: &str, engine: &str, name: &str) -> Result<String> {
    let program = find(engine).with_context(|| engine.to_owned())?;
    let (program, file) = (program.to_string_lossy().into_owned(), format!("{name}.tex"));
    let script = "cd \"$0\" && exec \"$@\"";
    let words =
        ["-c", script, folder, &program, "-interaction=nonstopmode", "-halt-on-error", &file];
    let ran = process::run("sh", &words, LATEX_LIMIT)?;
    ensure!(ran.status == Some(0), "{engine} {file}: {:?}\n{}", ran.status, ran.stdout);
    Ok(ran.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(dnsperf: f64, ours: f64) -> ClosedLoops {
        ClosedLoops { dnsperf, ours }
    }

    #[test]
    fn slow_client_is_no_bound_for_a_fast_server() {
        let rates = |found| {
            [
                ("dns64d", found, seen(39_039.0, 101_992.0)),
                ("BIND", 3_312.0, seen(7_211.0, 5_954.0)),
            ]
        };
        assert!(agree(&rates(89_562.0)).is_ok());
        // The result of a search is wrong if its rate is above that of every client, or far below, or if the order of
        // servers differs.
        let said = |found| agree(&rates(found)).unwrap_err().to_string();
        assert!(said(210_000.0).contains("finds 2.06 of the rate of a closed loop"));
        assert!(said(1_500.0).contains("finds 0.04 of the rate of dnsperf's"));
        let mut turned = rates(9_000.0);
        turned[1].1 = 9_500.0;
        assert!(agree(&turned).unwrap_err().to_string().contains("ranks BIND before dns64d"));
    }
}
