//! Cells of the table. There is a cell for each server in each Debian release that packages it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hosts::servers::Dut;
use tempfile::TempDir;

use crate::chroot::{Chroot, Recipe};
use crate::process::{self, find};

/// A release of Debian.
struct Debian {
    name: &'static str,
    /// Name of the release on the package servers.
    suite: &'static str,
}

const RELEASES: [Debian; 3] = [
    Debian { name: "Debian 12", suite: "bookworm" },
    Debian { name: "Debian 13", suite: "trixie" },
    Debian { name: "sid", suite: "sid" },
];

/// A server under test.
pub(crate) struct Server {
    pub(crate) dut: Dut,
    /// Package of the server in each of [`RELEASES`]; `None` if the release has no such package.
    packages: [Option<&'static str>; RELEASES.len()],
}

/// All servers. Debian packages neither dns64d nor CoreDNS. dns64d is built from this checkout, and CoreDNS is
/// installed by `cargo xtask packages`.
const SERVERS: [Server; 6] = [
    Server { dut: Dut::Dns64d, packages: [None; 3] },
    Server { dut: Dut::Bind, packages: [Some("bind9"); 3] },
    Server { dut: Dut::Unbound, packages: [Some("unbound"); 3] },
    Server { dut: Dut::Powerdns, packages: [Some("pdns-recursor"); 3] },
    Server {
        dut: Dut::KnotResolver,
        packages: [Some("knot-resolver"), Some("knot-resolver"), Some("knot-resolver6")],
    },
    Server { dut: Dut::Coredns, packages: [None; 3] },
];

/// Plan of a campaign: all checks, and one trial at a rate so low that even a busy machine can run it.
const PLAN: &str = "topology = 'loopback'\n[trial]\nduration = '1s'\ntimeout = '3s'\npause = '0s'\n\
    max-burst = '500us'\nwindow-limit = 10000\nlateness-limit = '5s'\nauth-limit = '5s'\n\
    [search]\nmin = 100\nmax = 100\nresolution = 100\nrepeat = 1\ninvalid-retries = 3\n\
    [measure]\nconform = true\n";
/// Rate of the trial, in queries per second.
pub(crate) const RATE: f64 = 100.0;

/// Number of campaigns that run in parallel. Campaigns mostly wait.
pub(crate) const AT_ONCE: usize = 4;
/// Time limit of a campaign.
const LIMIT: Duration = Duration::from_secs(900);
/// Maximum number of attempts if the machine invalidates a campaign.
const ATTEMPTS: usize = 2;
/// Status of a campaign in which results are missing, and of this command if it cannot run.
pub(crate) const NOT_MEASURED: i32 = 3;

/// Programs of a run, and a folder that is visible in all chroots.
pub(crate) struct Site {
    /// Path of dns64bench; dns64d is in the same folder.
    program: PathBuf,
    // This field is declared before the folder, so that the chroots, which use the folder, are dropped first.
    chroots: [Result<Chroot>; RELEASES.len()],
    work: TempDir,
}

impl Site {
    /// Creates missing chroots, or all chroots if `fresh` is true.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created. If a chroot cannot be created, the error is reported for its
    /// cells.
    pub(crate) fn new(program: PathBuf, fresh: bool) -> Result<Site> {
        // The folder must be accessible to other users, because servers may change to another user.
        let mode = fs::Permissions::from_mode(0o711);
        let work = tempfile::Builder::new().permissions(mode).tempdir()?;
        let chroots = std::array::from_fn(|release| {
            let (suite, packages) = (RELEASES[release].suite, packages(release));
            let recipe = Recipe { name: suite, suite, packages: &packages, hook: "" };
            Chroot::of(&recipe, work.path(), fresh)
        });
        Ok(Site { program, chroots, work })
    }

    /// Returns the path of dns64bench.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns a folder that is removed at the end.
    pub(crate) fn work(&self) -> &Path {
        self.work.path()
    }
}

/// Returns the packages in the chroot of a release.
fn packages(release: usize) -> Vec<&'static str> {
    SERVERS.iter().filter_map(|server| server.packages[release]).collect()
}

/// A server at a place. `server` is an index into [`SERVERS`]. The place is an index into [`RELEASES`], or `None` for
/// this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    server: usize,
    release: Option<usize>,
}

/// Returns all cells of the table: each server in each release that packages it, or on this host if no release does.
pub(crate) fn cells() -> Vec<Cell> {
    let of = |server: usize| {
        let is_packaged = SERVERS[server].packages.iter().any(Option::is_some);
        let host = (!is_packaged).then_some(None);
        let releases = (0..RELEASES.len()).filter(move |_| is_packaged).map(Some);
        host.into_iter().chain(releases).map(move |release| Cell { server, release })
    };
    (0..SERVERS.len()).flat_map(of).collect()
}

impl Cell {
    #[cfg(test)]
    pub(super) fn of(server: usize, release: Option<usize>) -> Cell {
        Cell { server, release }
    }

    pub(crate) fn server(self) -> &'static Server {
        &SERVERS[self.server]
    }

    pub(crate) fn place(self) -> &'static str {
        self.release.map_or("this host", |at| RELEASES[at].name)
    }

    /// True if the server is installed on this host.
    pub(crate) fn is_host(self) -> bool {
        self.release.is_none()
    }

    /// True for servers on this host, and in all releases except the oldest.
    pub(crate) fn is_current(self) -> bool {
        self.release.is_none_or(|at| at > 0)
    }

    /// Returns the name of the server's program.
    fn program(self) -> Result<&'static str> {
        self.server().dut.driver().program_name().context("a driver without a program")
    }

    /// Returns the name of the files of this cell.
    fn name(self) -> String {
        let place = self.release.map_or("host", |at| RELEASES[at].suite);
        format!("{}-{place}", self.program().unwrap_or_default())
    }

    /// Returns the path of the program, or of a script that starts the program in its chroot. Returns `None` if the
    /// release does not package the server.
    pub(crate) fn start(self, site: &Site) -> Option<Result<PathBuf>> {
        match self.release {
            Some(at) => {
                self.server().packages[at]?;
                let chroot = site.chroots[at].as_ref();
                Some(chroot.map_err(|error| anyhow!("no chroot: {error:#}")).and_then(|chroot| {
                    chroot.start_script(self.program()?, &site.work().join(self.name() + ".sh"))
                }))
            }
            None if self.server().dut == Dut::Dns64d => {
                Some(Ok(site.program.with_file_name("dns64d")))
            }
            None => Some(self.program().and_then(|name| find(name).context("not installed"))),
        }
    }

    /// Returns the server's entry in a plan.
    ///
    /// # Errors
    /// Returns an error if the driver of the server has no name.
    pub(crate) fn plan(self, name: &str, start: &Path) -> Result<String> {
        let driver = serde_json::to_value(self.server().dut)?;
        let driver = driver.as_str().context("a driver without a name")?;
        let start = start.display();
        Ok(format!("[[dut]]\ndriver = '{driver}'\nname = '{name}'\nprogram = '{start}'\n"))
    }

    /// Runs a campaign with one trial and all checks, and returns its folder. If the machine invalidates the campaign,
    /// it is repeated.
    ///
    /// # Errors
    /// Returns an error if the campaign has no result.
    pub(crate) fn check(self, site: &Site, start: &Path) -> Result<PathBuf> {
        let plan = site.work().join(format!("{}.toml", self.name()));
        let dut = self.plan(self.server().dut.name(), start)?;
        fs::write(&plan, format!("name = '{}'\n{PLAN}{dut}", self.name()))?;
        let mut attempt = 1;
        loop {
            let folder = site.work().join(format!("{}-{attempt}", self.name()));
            let [plan, dir] = [&plan, &folder].map(|path| path.to_string_lossy().into_owned());
            let words = ["campaign", "run", &plan, "--dir", &dir, "--quiet"];
            let ran = process::run(&site.program, &words, LIMIT)?;
            if ran.status == Some(NOT_MEASURED) && attempt < ATTEMPTS {
                attempt += 1;
                continue;
            }
            ensure!(ran.status == Some(0), "status {:?}: {}", ran.status, ran.stderr.trim());
            return Ok(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_tried_somewhere() {
        let cells = cells();
        assert!(cells.is_sorted() && cells.len() == 4 * RELEASES.len() + 2);
        for (at, server) in SERVERS.iter().enumerate() {
            let is_tried = |cell: &&Cell| {
                cell.server == at && cell.release.is_none_or(|at| server.packages[at].is_some())
            };
            assert!(cells.iter().filter(is_tried).count() > 0, "{}", server.dut.name());
        }
        for (at, release) in RELEASES.iter().enumerate() {
            assert_eq!(packages(at).len(), 4, "{}", release.name);
        }
    }
}
