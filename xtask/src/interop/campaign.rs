//! A campaign against the real servers, beside dnsperf's closed loop over the same ones in the same
//! lab.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Bench, Test};
use crate::bench_dns64;
use crate::process::{self, find, output};

pub(super) const TESTS: [Test; 2] = [
    (
        "campaign against BIND, Unbound, PowerDNS and dns64d, and dnsperf beside it",
        &["named", "unbound", "pdns_recursor", "dnsperf", "ip"],
        campaign_and_dnsperf,
    ),
    ("the report in Chromium", &["chromium"], report_in_chromium),
];

/// The least that has every kind of figure.
const SMALL: &str = "name = 'small'\ntopology = 'loopback'\n[trial]\nduration = '200ms'\ntimeout = '500ms'\npause = '0s'\n\
    [search]\nmin = 100\nmax = 200\nresolution = 100\nrepeat = 1\ninvalid-retries = 20\n[measure]\naaaa-shares = [1]\ncached-shares = [0.5]\n\
    table = true\nacceptance = [0.99]\n[measure.loads]\nshares = [0.5, 1]\nduration = '3s'\ntransient = '1s'\nrepeat = 1\n\
    [[dut]]\ndriver = 'dns64d'\n";

/// Short trials of the worst case; every server is asked more than it can answer.
const PLAN: &str = "name = 'interop'\n[cpus]\ntester = [0]\nauth = [0]\ndut = [1]\n\
    [trial]\nduration = '1s'\ntimeout = '250ms'\npause = '100ms'\nmax-burst = '200us'\n\
    [search]\nmin = 500\nmax = 120500\nresolution = 1500\nrepeat = 1\nprobe = '300ms'\ninvalid-retries = 10\n\
    [[dut]]\ndriver = 'bind'\n[[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'powerdns'\n[[dut]]\ndriver = 'dns64d'\n";

/// Where dnsperf sees one server so many times as fast as another, the campaign must see the same
/// order.
const CLEAR: f64 = 2.0;
/// What a search may find by what a closed loop sees of the same server. A search wants every query
/// answered in time, where a closed loop takes its time, so it finds less; more it cannot find, but
/// for what the client in the closed loop costs.
const NEAR: std::ops::RangeInclusive<f64> = 0.05..=2.0;

fn campaign_and_dnsperf(bench: &Bench) -> Result<()> {
    let (plan, run) = (bench.file("interop.toml", PLAN)?, bench.path("interop-run"));
    let args = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
    let ran = process::run(bench.program(), &args, Duration::from_secs(600))?;
    ensure!(ran.status == Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let results: Value = serde_json::from_slice(&fs::read(format!("{run}/results.json"))?)?;
    ensure!(results["complete"] == true, "not complete: {}", results["mishaps"]);
    let mut rates: Vec<(String, f64, f64)> = Vec::new();
    for (name, closed_loop) in bench_dns64::different_names()? {
        let duts = results["duts"].as_array().context("no DUTs")?;
        let dut = duts
            .iter()
            .find(|dut| dut["name"] == name)
            .with_context(|| format!("{name} is not in the results"))?;
        let median = dut["points"][0]["figures"]["median"].as_f64().context("no median")?;
        println!(
            "        {name}: {median:.0} queries/s by search, {closed_loop:.0} by dnsperf's closed loop"
        );
        rates.push((name.to_owned(), median, closed_loop));
    }
    ensure!(rates.len() == 4, "not all servers ran");
    for (name, by_search, by_dnsperf) in &rates {
        let share = by_search / by_dnsperf;
        ensure!(
            NEAR.contains(&share),
            "{name}: a search finds {share:.2} of what dnsperf's closed loop sees"
        );
    }
    for (fast, by_search, by_dnsperf) in &rates {
        for (slow, other_search, other_dnsperf) in &rates {
            let clear = *by_dnsperf > CLEAR * other_dnsperf;
            ensure!(
                !clear || by_search > other_search,
                "the campaign sees {slow} before {fast}, dnsperf does not"
            );
        }
    }
    Ok(())
}

/// Put before the end of a page: its window's width, its own, and its figures that take up room.
const LAID_OUT: &str = "<script>addEventListener('load', () => {
  const figures = [...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect());
  const shown = figures.filter(box => box.width > 50 && box.height > 50).length;
  const told = document.createElement('p');
  told.textContent = ['LAID OUT', innerWidth, document.documentElement.scrollWidth, shown].join(' ');
  document.body.append(told);
});</script></body>";

fn report_in_chromium(bench: &Bench) -> Result<()> {
    let (plan, run) = (bench.file("small.toml", SMALL)?, bench.path("small-run"));
    output(
        bench.program(),
        &["campaign", "run", &plan, "--dir", &run, "--quiet"],
        Duration::from_secs(120),
    )?;
    let page = format!("{run}/report.html");
    let drawn = fs::read_to_string(&page)?.matches("<svg").count();
    ensure!(drawn >= 8, "only {drawn} figures");
    let chromium = find("chromium").context("chromium")?;
    let (profile, page) =
        (format!("--user-data-dir={}", bench.path("chromium")), format!("file://{page}"));
    // The page itself has no script. Its copy tells what was laid out: how wide the page became,
    // and how many figures have a size.
    let copy = fs::read_to_string(format!("{run}/report.html"))?.replace("</body>", LAID_OUT);
    let copy = format!("file://{}", bench.file("laid-out.html", &copy)?);
    for width in ["1280", "400"] {
        let size = format!("--window-size={width},2000");
        // Nothing can be resolved: a page that asked for anything would say so on its console.
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
        ];
        let more = ["--host-resolver-rules=MAP * ~NOTFOUND", &profile, &size];
        let show = |page: &str| {
            process::run(&chromium, &[&args[..], &more, &[page]].concat(), Duration::from_secs(60))
        };
        let said = show(&page)?.stderr;
        ensure!(!said.contains("CONSOLE"), "{width}: {said}");
        let ran = show(&copy)?;
        let told = ran.stdout.rsplit_once("LAID OUT ").and_then(|(_, rest)| rest.split('<').next());
        let told =
            told.context("the page's copy tells nothing")?.split_whitespace().map(str::parse);
        let [inner, wide, shown]: [usize; 3] = told
            .collect::<Result<Vec<_>, _>>()?
            .try_into()
            .map_err(|told| anyhow::anyhow!("{told:?}"))?;
        ensure!(wide <= inner, "{width}: the page is {wide} px wide in a window of {inner}");
        ensure!(shown == drawn, "{width}: {shown} of {drawn} figures have a size");
    }
    Ok(())
}
