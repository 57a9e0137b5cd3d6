//! Test of the regression gate for CI pipelines, with servers of known capacity. The test measures rates, so unlike in
//! `cargo test`, nothing may run in parallel.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::harness::Bench;
use super::test::{Resource, Test};
use crate::process;

pub(super) static TESTS: &[Test] =
    &[Test::new("a capacity 3 % lower is found over ten searches each", &[], three_per_cent)
        .holding(Resource::Cpus)];

/// Maximum number of attempts. A comparison is repeated if other programs disturbed it.
const ATTEMPTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(240);

/// Returns a plan with ten searches for the rate of a reference DUT of known capacity, with trials of 0.4 s.
fn plan(program: &str, capacity: u64) -> String {
    format!(
        "name = 'gate'\ntopology = 'loopback'\n[trial]\nduration = '400ms'\npause = '0s'\n\
         max-burst = '500us'\nwindow-limit = 30\nlateness-limit = '100ms'\nauth-limit = '200ms'\n\
         [search]\nmin = 1900\nmax = 2060\nresolution = 6\nrepeat = 10\ninvalid-retries = 10\n\
         [[dut]]\ndriver = 'custom'\nname = 'reference'\n[dut.custom]\n\
         start = ['{program}', 'reference-dut', '--listen', '[{{listen}}]:{{port}}', \
         '--ask', '{{upstream}}:{{upstream-port}}', '--burst', '5ms', '--capacity', '{capacity}']\n"
    )
}

fn three_per_cent(bench: &Bench) -> Result<()> {
    let mut last = Value::Null;
    for attempt in 0..ATTEMPTS {
        let run_of = |name: &str, capacity: u64| -> Result<String> {
            let name = format!("{name}-{attempt}");
            let plan = bench.file(&format!("{name}.toml"), &plan(bench.program(), capacity))?;
            let run = bench.path(&name);
            let args = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
            let ran = process::run(bench.program(), &args, PATIENCE)?;
            ensure!(ran.status == Some(0), "{}\n{}", ran.stdout, ran.stderr);
            Ok(run)
        };
        let (old, new) = (run_of("old", 2_000)?, run_of("new", 1_940)?);
        let compared = |args: &[&str]| -> Result<(Value, Option<i32>)> {
            let args = [&["report", "--json", &old, &new][..], args].concat();
            let ran = process::run(bench.program(), &args, PATIENCE)?;
            let comparison = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr)?;
            Ok((comparison, ran.status))
        };
        let outcome = |comparison: &Value| comparison["rows"][0]["change"]["outcome"].clone();
        let [junit, summary, both] =
            ["junit.xml", "summary.md", "both"].map(|file| bench.path(file));
        let files = ["--junit", &junit, "--summary", &summary, "--output", &both];
        let strict = [&["--baseline", &old, "--max-regression", "1%"][..], &files].concat();
        let (regressed, status) = compared(&strict)?;
        let (tolerated, _) = compared(&["--baseline", &old, "--max-regression", "50%"])?;
        // If other programs disturbed a search, one of the two comparisons is undecided.
        if let Some(open) = [&regressed, &tolerated].into_iter().find(|c| outcome(c) == "undecided")
        {
            last = open.clone();
            continue;
        }
        ensure!(outcome(&regressed) == "regressed" && status == Some(1), "{regressed:#}");
        ensure!(outcome(&tolerated) == "no_regression", "{tolerated:#}");
        ensure!(fs::read_to_string(&junit)?.contains("<failure"), "{junit}: no failure");
        ensure!(
            fs::read_to_string(&summary)?.contains("1 regressed"),
            "{summary}: the regression \
            is missing"
        );
        let page = fs::read_to_string(format!("{both}/report.html"))?;
        ensure!(page.contains("Change against old"), "the change is not in the report");
        // If the baseline and the run are exchanged, the run is faster than the baseline.
        let (improved, status) = compared(&["--baseline", &new, "--max-regression", "1%"])?;
        ensure!(status == Some(0), "an improvement ends with {status:?}: {improved:#}");
        return Ok(());
    }
    bail!("undecided {ATTEMPTS} times: {last:#}")
}
