//! `results`: measures dns64d and five other DNS64 servers, and writes the results to a page of the book.
//!
//! ```text
//! servers of Debian 13 and sid, dns64d, CoreDNS
//!        ├─► one campaign with searches of all ────► speed ────┐
//!        └─► a campaign with `conform` for each ───► verdicts ─┴─► docs/src/results.md, results/*
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use report::Run;

use crate::chroot;
use crate::process::{self, Build, at_the_same_time, root, target};
use crate::versions::cell::{AT_ONCE, Cell, NOT_MEASURED, Site, cells};

/// Plan of the searches. The DUT has a separate CPU, and the tester and AuthDNS share another CPU. Trials are short and
/// allow large pacing deviations, because on a virtual machine the other guests of the host disturb every longer trial.
const PLAN: &str = "\
name = 'results'
topology = 'lab'
[cpus]
tester = [0]
auth = [0]
dut = [1]
[trial]
duration = '2s'
pause = '200ms'
window-limit = 5
[search]
method = 'mlrsearch'
min = 1000
max = 100000
width = 0.05
repeat = 3
invalid-retries = 6
[self-test]
min = 25000
max = 225000
resolution = 25000
repeat = 1
[measure.loads]
shares = [0.5]
duration = '5s'
transient = '2s'
";

/// Time limit for copying a run folder.
const COPY_LIMIT: Duration = Duration::from_secs(60);

/// Files to which the page links: path below the run folder, and path below [`Page::FOLDER`].
const FILES: [[&str; 2]; 2] =
    [["figures/valid-replies.svg", "valid-replies.svg"], ["trials.csv", "trials.csv"]];

const INTRODUCTION: &str = "\
# Results

This page compares the speed and conformance of dns64d with five other DNS64 servers, as packaged in Debian 13 and sid. The
command `cargo xtask results` measures all of them in one run and writes this page. It takes 20 minutes after the build,
and needs root and two CPUs.

**The machine has two virtual CPUs that it shares with other machines. Use the ratios of this page, not its rates.** A
server on other hardware has other rates. Each DUT ran on one CPU; the tester and AuthDNS shared the other one. Other pages
describe [the method](method.md) and [the tables](report.md).
";

const LINKS: &str = "\
![Valid replies by offered rate](results/valid-replies.svg)

All trials of the run: [trials.csv](results/trials.csv), with the [columns of tidy tables](formats.md#tidy-tables).";

#[derive(Debug, Args)]
pub(crate) struct Results {
    /// Write the page from the results of an earlier measurement in this folder
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
}

impl Results {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let folder = match &self.from {
            Some(folder) => folder.clone(),
            None => match chroot::not_run_because() {
                Some(reason) => {
                    println!("results: {reason}");
                    return Ok(ExitCode::from(NOT_MEASURED as u8));
                }
                None => measure()?,
            },
        };
        let page = Page::read(&folder)?;
        page.write(&root().join("docs/src"))?;
        println!("docs/src/results.md, from {}", folder.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs all campaigns. Returns the folder that contains their run folders.
fn measure() -> Result<PathBuf> {
    let site = Site::new(Build::Dist.dns64bench()?, false)?;
    let folder = target().join("results");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("conform"))?;
    let servers = servers(&site)?;
    search(&servers, &site, &folder.join("speed"))?;
    println!("Conformance of {} servers", servers.len());
    let checked = at_the_same_time(AT_ONCE, servers.iter(), |server| check(server, &site, &folder));
    checked.into_iter().collect::<Result<()>>()?;
    Ok(folder)
}

/// A server whose results are on the page.
struct Server {
    cell: Cell,
    name: String,
    /// Program or script that starts the server.
    start: PathBuf,
}

/// Returns the servers that are installed on this host, and the servers for which the current Debian releases have a
/// package.
///
/// # Errors
/// Returns an error if a server is not installed.
fn servers(site: &Site) -> Result<Vec<Server>> {
    let server = |cell: Cell| {
        let name = name(cell);
        let start = cell.start(site)?;
        Some(start.context(name.clone()).map(|start| Server { cell, name, start }))
    };
    cells().into_iter().filter(|cell| cell.is_current()).filter_map(server).collect()
}

/// Returns the name of a server. For a server from a Debian release, the name contains the release.
fn name(cell: Cell) -> String {
    let name = cell.server().dut.name();
    if cell.is_host() { name.into() } else { format!("{name}, {}", cell.place()) }
}

/// Runs the checks of one server.
fn check(server: &Server, site: &Site, folder: &Path) -> Result<()> {
    let run = server.cell.check(site, &server.start).with_context(|| server.name.clone())?;
    println!("{}: checked", server.name);
    keep(&run, &folder.join("conform").join(&server.name))
}

/// Copies a run folder, because the original is removed when this program ends.
fn keep(run: &Path, to: &Path) -> Result<()> {
    let [run, to] = [run, to].map(|path| path.to_string_lossy().into_owned());
    process::output("cp", &["-r", &run, &to], COPY_LIMIT).map(drop)
}

/// Runs the campaign with the searches of all servers.
fn search(servers: &[Server], site: &Site, folder: &Path) -> Result<()> {
    let duts = servers.iter().map(|server| server.cell.plan(&server.name, &server.start));
    let plan = PLAN.to_owned() + &duts.collect::<Result<String>>()?;
    let (file, run) = (site.work().join("results.toml"), site.work().join("results-run"));
    fs::write(&file, plan)?;
    let mut command = Command::new(site.program());
    command.args(["campaign", "run"]).arg(&file).arg("--dir").arg(&run);
    let status = command.status().context("cannot start the campaign")?;
    keep(&run, folder)?;
    // The page also has rows for servers without a result.
    ensure!([Some(0), Some(NOT_MEASURED)].contains(&status.code()), "the campaign: {status}");
    Ok(())
}

/// The page and its files.
struct Page {
    text: String,
    /// Run folder of the searches.
    speed: PathBuf,
}

impl Page {
    /// Folder, next to the page, that contains the files to which the page links.
    const FOLDER: &str = "results";

    /// Reads the folders that [`measure`] wrote.
    ///
    /// # Errors
    /// Returns an error if one of these folders is not a run folder.
    fn read(folder: &Path) -> Result<Page> {
        let speed = folder.join("speed");
        let mut run = Run::read(&speed)?;
        for dut in &mut run.results.duts {
            let checked = Run::read(&folder.join("conform").join(&dut.name))?;
            dut.conform = checked.results.duts.into_iter().next().and_then(|dut| dut.conform);
        }
        let text = format!("{INTRODUCTION}\n{}", report::publication(&run, LINKS));
        Ok(Page { text: text.trim_end().to_owned() + "\n", speed })
    }

    fn write(&self, docs: &Path) -> Result<()> {
        let files = docs.join(Page::FOLDER);
        fs::create_dir_all(&files)?;
        for [from, to] in FILES {
            fs::copy(self.speed.join(from), files.join(to)).with_context(|| from.to_owned())?;
        }
        fs::write(docs.join("results.md"), &self.text).context("cannot write the page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_current_releases_and_this_host() {
        let names: Vec<String> =
            cells().into_iter().filter(|cell| cell.is_current()).map(name).collect();
        for wanted in ["dns64d", "BIND, Debian 13", "BIND, sid", "Knot Resolver, sid", "CoreDNS"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted} in {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("Debian 12")), "{names:?}");
    }
}
