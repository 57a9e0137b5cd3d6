//! Servers under test, and how they are started in the lab.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hosts::servers::{Dut as Kind, Operator};

use crate::bench::lab::Lab;
use crate::chroot;
use crate::process::{Server, find};
use crate::servers::{AUTH, DUT, dut_of_operator, version, wait_until_answers};
use crate::versions::cell::{Cell, Site, cells};

/// CPU of the DUT, and the CPU that the tester and AuthDNS share.
pub(super) const DUT_CPU: &str = "1";
pub(super) const TESTER_CPU: &str = "0";

/// Servers of the comparison, and the places from which their programs come.
const COMPARED: [(Kind, &str); 5] = [
    (Kind::Dns64d, "this host"),
    (Kind::Unbound, "Debian 13"),
    (Kind::Bind, "Debian 13"),
    (Kind::Powerdns, "sid"),
    (Kind::KnotResolver, "sid"),
];

/// Returns the names of all servers of the comparison.
pub(super) fn compared_names() -> impl Iterator<Item = &'static str> {
    COMPARED.iter().map(|(kind, _)| kind.name())
}

/// Returns the servers of the comparison, each with the reason if it is not available here.
pub(super) fn compared(site: &Site) -> Vec<(&'static str, Result<Dut>)> {
    COMPARED.iter().map(|&(kind, place)| (kind.name(), Dut::of_cell(site, kind, place))).collect()
}

/// A server under test.
pub(super) struct Dut {
    kind: Kind,
    /// Program, or script that starts the program in its chroot.
    program: PathBuf,
    /// Folder of the server's files. It is visible in the chroot, and its path contains no space.
    pub(super) folder: PathBuf,
    /// True if `program` is a script that starts the program in a chroot.
    is_in_chroot: bool,
}

impl Dut {
    /// Returns the dns64d of the lab's build.
    pub(super) fn dns64d(lab: &Lab) -> Dut {
        Dut::of_build(lab, Path::new(&lab.program).with_file_name("dns64d"))
    }

    /// Returns the dns64d of another build.
    pub(super) fn of_build(lab: &Lab, program: PathBuf) -> Dut {
        let folder = lab.folder.path().join("dns64d");
        Dut { kind: Kind::Dns64d, program, folder, is_in_chroot: false }
    }

    /// Returns a server that is installed on this host, or `None` if its program is not found.
    pub(super) fn of_host(lab: &Lab, kind: Kind) -> Option<Dut> {
        let name = kind.driver().program_name()?;
        let (program, folder) = (find(name)?, lab.folder.path().join(name));
        Some(Dut { kind, program, folder, is_in_chroot: false })
    }

    fn of_cell(site: &Site, kind: Kind, place: &str) -> Result<Dut> {
        let is_wanted = |cell: &Cell| cell.server().dut == kind && cell.place() == place;
        let cell = cells().into_iter().find(is_wanted).context("not in the table of servers")?;
        let is_in_chroot = !cell.is_host();
        if let Some(reason) = chroot::not_run_because().filter(|_| is_in_chroot) {
            bail!(reason);
        }
        let program = cell.start(site).context("not packaged")??;
        let name = kind.driver().program_name().context("a driver without a program")?;
        Ok(Dut { kind, program, folder: site.work().join(name), is_in_chroot })
    }

    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the version number that the server's program prints.
    pub(super) fn version(&self) -> Result<String> {
        version(self.kind, &self.program)
    }

    /// True if the process runs the server's program, and not the commands that start the program.
    pub(super) fn is_run_by(&self, pid: u32) -> bool {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        program.file_name().and_then(|name| name.to_str()) == self.kind.driver().program_name()
    }

    /// Starts the server with one thread on the DUT's CPU, and waits until it answers, which takes some servers several
    /// seconds.
    pub(super) fn start(&self, lab: &Lab) -> Result<Server> {
        self.start_with(lab, DUT, &Operator::default())
    }

    /// Starts the server at an address of the DUT, with additional configuration lines.
    pub(super) fn start_with(
        &self,
        lab: &Lab,
        address: &str,
        operator: &Operator,
    ) -> Result<Server> {
        let server = self.launch(lab, address, operator, &[])?;
        wait_until_ready(lab, address)?;
        Ok(server)
    }

    /// Starts the server without waiting for it. `within` is the beginning of a command that runs the program, or is
    /// empty.
    pub(super) fn launch(
        &self,
        lab: &Lab,
        address: &str,
        operator: &Operator,
        within: &[String],
    ) -> Result<Server> {
        for state in self.kind.bulk() {
            // Without these files, the server has no cached names. At the first start there are none.
            let _ = fs::remove_file(self.folder.join(state));
        }
        let words = dut_of_operator(self.kind, &self.folder, &self.program, 1, address, operator)?;
        let within = if self.is_in_chroot { chroot::within(within) } else { within.to_vec() };
        let mut command = vec!["taskset", "-c", DUT_CPU];
        command.extend(within.iter().chain(&words).map(String::as_str));
        Server::start(&lab.program, &lab.exec("dut", &command))
    }
}

/// Waits until the server at an address of the DUT answers.
pub(super) fn wait_until_ready(lab: &Lab, address: &str) -> Result<()> {
    let names = ["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"];
    wait_until_answers(&lab.program, address, &names)
}

/// Starts an AuthDNS that the DUT queries.
pub(super) fn serve_auth(lab: &Lab) -> Result<Server> {
    let auth = [&lab.program, "auth", "--listen", AUTH, "--threads", "1"];
    lab.serve(&[&["taskset", "-c", TESTER_CPU], &auth[..]].concat())
}
