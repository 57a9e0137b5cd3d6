//! Helpers of the interop tests: the programs, trials, campaigns, and a lab.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ::hosts::servers::{Auth, Dut, Operator};
use anyhow::{Context, Result, ensure};
use net::affinity::allowed_cpus;
use serde_json::Value;

use super::tally::Skipped;
use crate::process::{self, Server, find, free_port, output};
use crate::servers::{DUT, authoritative, dut_of_operator, wait_until_answers, wait_until_listens};

/// First name of each zone that the tests use.
pub(super) const FIRST_NAME: &str = "010-000-000-000.dns64perf.test";

/// Time limit of a program that a test runs.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Options of a trial with 300 queries in one second. The outcome does not depend on the load of this machine, because
/// late queries do not make the trial invalid, and because the timeout is longer than any stall.
pub(super) const LIGHT: [&str; 12] = [
    "--rate",
    "300",
    "--duration",
    "1s",
    "--timeout",
    "3s",
    "--window-limit",
    "10000",
    "--lateness-limit",
    "5s",
    "--auth-limit",
    "5s",
];

/// The options of [`LIGHT`] that follow the rate, the duration and the timeout. Because of them, late queries do not
/// make a trial invalid.
pub(super) const TOLERANT: &[&str] = LIGHT.split_at(6).1;

/// Number of queries in a [`LIGHT`] trial.
pub(super) const LIGHT_QUERIES: u64 = 300;

/// Part of a plan with trials at a single low rate, so that the outcome does not depend on the load of this machine. An
/// invalid trial is repeated once.
pub(super) const SHORT_TRIALS: &str = "[trial]\nduration = '300ms'\ntimeout = '1s'\npause = '0s'\n\
    max-burst = '500us'\nwindow-limit = 10000\nlateness-limit = '5s'\nauth-limit = '5s'\n\
    [search]\nmin = 100\nmax = 100\nresolution = 100\nrepeat = 1\ninvalid-retries = 1\n";

/// Returns the lowest and the highest CPU that this process may use, in the format of taskset.
pub(super) fn two_cpus() -> [String; 2] {
    let cpus = allowed_cpus();
    [cpus.first(), cpus.last()].map(|cpu| cpu.map_or(0, |cpu| cpu.0).to_string())
}

/// The program under test, and a folder for one test.
pub(super) struct Bench {
    pub(super) program: PathBuf,
    /// Folder that is empty when the test begins, and removed when the test has ended.
    pub(super) folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(program: &Path) -> Result<Bench> {
        Ok(Bench { program: program.to_owned(), folder: traversable_folder()? })
    }

    pub(super) fn program(&self) -> &str {
        self.program.to_str().unwrap_or_default()
    }

    pub(super) fn file(&self, name: &str, content: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        fs::write(&path, content)?;
        Ok(path.to_string_lossy().into_owned())
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Measures an authoritative server with our zone file of 10.0.0.0/16, in which every name has an AAAA record.
    /// Every answer must be correct.
    pub(super) fn measure_zone(&self, port: u16) -> Result<()> {
        let server = format!("127.0.0.1:{port}");
        let zone = ["--server", &server, "--aaaa-share", "1", "--names", "10.0.0.0/16"];
        let trial = self.measure(&[&zone[..], &LIGHT].concat())?;
        ensure!(trial["verdict"] == "passed" && trial["valid"] == LIGHT_QUERIES, "{trial}");
        Ok(())
    }

    /// Runs `dns64bench measure` on this host and returns the trial, which must not be invalid.
    pub(super) fn measure(&self, args: &[&str]) -> Result<Value> {
        self.measure_within(&[], args)
    }

    /// Runs `dns64bench measure` in the lab's tester and returns the trial, which must not be invalid.
    pub(super) fn measure_in_lab(&self, args: &[&str]) -> Result<Value> {
        self.measure_within(&["lab", "exec", "tester", "--", self.program()], args)
    }

    /// Runs `dns64bench measure`, preceded by the arguments `within`, and returns the trial, which must not be invalid.
    pub(super) fn measure_within(&self, within: &[&str], args: &[&str]) -> Result<Value> {
        let args = [within, &["measure", "--json", "--quiet"], args].concat();
        self.valid(|| {
            let ran = process::run(self.program(), &args, LIMIT)?;
            serde_json::from_str(&ran.stdout)
                .with_context(|| format!("status {:?}: {}", ran.status, ran.stderr))
        })
    }

    /// Runs a trial. If the tester invalidates the trial, runs it once more.
    ///
    /// # Errors
    /// Returns [`Skipped`] with the reasons if the trial is invalid again.
    pub(super) fn valid(&self, mut trial: impl FnMut() -> Result<Value>) -> Result<Value> {
        let first = trial()?;
        if first["verdict"] != "invalid" {
            return Ok(first);
        }
        println!("        invalid trial, repeated: {}", first["reasons"]);
        let second = trial()?;
        if second["verdict"] == "invalid" {
            return Err(Skipped(format!("two invalid trials: {}", second["reasons"])).into());
        }
        Ok(second)
    }

    /// Runs a campaign in a new folder `name` and returns the folder and the results.
    pub(super) fn campaign(&self, name: &str, plan: &str) -> Result<(String, Value)> {
        self.campaign_within(&[], name, plan)
    }

    /// Runs a campaign. The arguments `within` precede the subcommand.
    ///
    /// # Errors
    /// Returns [`Skipped`] if the tester invalidated a trial as often as the plan allows.
    pub(super) fn campaign_within(
        &self,
        within: &[&str],
        name: &str,
        plan: &str,
    ) -> Result<(String, Value)> {
        let plan = self.file(&format!("{name}.toml"), plan)?;
        let folder = self.path(name);
        let words = [within, &["campaign", "run", &plan, "--dir", &folder, "--quiet"]].concat();
        let ran = process::run(self.program(), &words, 5 * LIMIT)?;
        if ran.status == Some(3) {
            let why = format!("campaign {name} has invalid trials: {}", last_lines(&ran.stderr));
            return Err(Skipped(why).into());
        }
        ensure!(ran.status == Some(0), "campaign {name}: {:?}, {}", ran.status, ran.stderr);
        let results = results(&folder)?;
        Ok((folder, results))
    }

    /// Returns our zone file of 10.0.0.0/16, with AAAA records for a share of the names.
    pub(super) fn zone_file(&self, aaaa_share: &str) -> Result<String> {
        let path = self.path("zone");
        output(
            self.program(),
            &["zone", "--names", "10.0.0.0/16", "--aaaa-share", aaaa_share, "--output", &path],
            LIMIT,
        )?;
        Ok(path)
    }

    /// Starts an authoritative server on a loopback port, with our zone file and the configuration lines `extra`.
    pub(super) fn authoritative(
        &self,
        auth: Auth,
        zone: &str,
        extra: &[&str],
    ) -> Result<(Server, u16)> {
        let port = free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let words = authoritative(
            auth,
            &self.folder.path().join(auth.name()),
            listen.parse()?,
            zone,
            extra,
        )?;
        let server = Server::start(&words[0], &words[1..])?;
        wait_for(&listen, FIRST_NAME, A)?;
        Ok((server, port))
    }

    pub(super) fn auth(&self, port: u16) -> Result<Server> {
        let listen = format!("127.0.0.1:{port}");
        let server = Server::start(
            self.program(),
            &["auth", "--listen", &listen, "--aaaa-share", "1", "--json"],
        )?;
        wait_until_listens(&[], port)?;
        Ok(server)
    }
}

/// Reads the results from a campaign's run folder, which must be complete.
pub(super) fn results(run: &str) -> Result<Value> {
    let results: Value = serde_json::from_slice(&fs::read(format!("{run}/results.json"))?)?;
    ensure!(results["complete"] == true, "not complete: {}", results["mishaps"]);
    Ok(results)
}

/// Returns the last messages of a program as one line.
pub(super) fn last_lines(said: &str) -> String {
    let lines: Vec<_> = said.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Returns a folder through which users other than root can reach the files that they may read.
pub(super) fn traversable_folder() -> Result<tempfile::TempDir> {
    let mode = fs::Permissions::from_mode(0o711);
    Ok(tempfile::Builder::new().permissions(mode).tempdir()?)
}

/// Returns the number of queries that dnsperf sent, according to its output.
///
/// # Errors
/// Returns an error if a query got no reply, or an RCODE other than NOERROR.
pub(super) fn all_noerror(printed: &str) -> Result<u64> {
    let number = |title: &str| -> Result<u64> {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(title));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.with_context(|| format!("no {title} in {printed}"))?.parse()?)
    };
    let (sent, completed) = (number("Queries sent:")?, number("Queries completed:")?);
    ensure!(completed == sent, "{printed}");
    // The line is "Response codes:       NOERROR 4000 (100.00%)", without further codes.
    ensure!(printed.contains(&format!("NOERROR {sent} (100.00%)\n")), "{printed}");
    Ok(sent)
}

/// Record types (IANA).
pub(super) const A: u8 = 1;

pub(super) const AAAA: u8 = 28;

/// Waits until `server` answers a query for `name` and `rtype`.
pub(super) fn wait_for(server: &str, name: &str, rtype: u8) -> Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, rtype, 0, 1]);
    for _ in 0..100 {
        let _ = socket.send_to(&query, server);
        let mut reply = [0; 512];
        // Accepts a reply with NOERROR and at least one answer record.
        if matches!(socket.recv(&mut reply), Ok(n) if n > 12 && reply[3] & 15 == 0 && reply[7] > 0)
        {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("{server} does not answer queries for {name}")
}

/// Guard that removes a lab at the end if this program created the lab.
pub(super) struct Lab<'a>(&'a Bench);

impl<'a> Lab<'a> {
    pub(super) fn up(bench: &'a Bench) -> Result<Lab<'a>> {
        output(bench.program(), &["lab", "up"], LIMIT)?;
        Ok(Lab(bench))
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = output(self.0.program(), &["lab", "down"], LIMIT);
    }
}

impl Bench {
    /// Starts one of our servers in a host of the lab. Returns once the server listens on the port given by `--listen`.
    pub(super) fn in_lab(&self, host: &str, args: &[&str]) -> Result<Server> {
        let listen = args
            .iter()
            .skip_while(|word| **word != "--listen")
            .nth(1)
            .context("it has no --listen")?;
        self.in_lab_at(host, args, listen.parse::<SocketAddr>()?.port())
    }

    /// Same as [`Bench::in_lab`], for a server that listens on `port`.
    pub(super) fn in_lab_at(&self, host: &str, args: &[&str], port: u16) -> Result<Server> {
        let within = ["lab", "exec", host, "--"];
        let server =
            Server::start(self.program(), &[&within[..], &[self.program()], args].concat())?;
        wait_until_listens(&[&[self.program()], &within[..]].concat(), port)?;
        Ok(server)
    }

    /// Starts the lab's DUT with additional configuration lines, on one CPU if `cpu` is given. Returns once the DUT
    /// answers.
    pub(super) fn dut_in_lab(&self, dut: Dut, cpu: Option<&str>, extra: &[&str]) -> Result<Server> {
        let name = dut.driver().program_name().context("it has no program")?;
        let program = match name {
            "dns64d" => self.dns64d_program().into(),
            name => find(name).with_context(|| format!("{name} not found"))?,
        };
        let extra = extra.iter().map(|&line| line.to_owned()).collect();
        let operator = Operator { extra, ..Operator::default() };
        let folder = self.folder.path().join(dut.name());
        let words = dut_of_operator(dut, &folder, &program, 1, DUT, &operator)?;
        let mut args = vec!["lab", "exec", "dut", "--"];
        args.extend(cpu.into_iter().flat_map(|cpu| ["taskset", "-c", cpu]));
        args.extend(words.iter().map(String::as_str));
        let server = Server::start(self.program(), &args)?;
        wait_until_answers(
            self.program(),
            DUT,
            &["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"],
        )?;
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_repeated_once_if_it_is_invalid() {
        let bench = Bench::new(Path::new("")).unwrap();
        let verdicts = |all: &[&str]| {
            let mut all = all.iter();
            let trial = || Ok(serde_json::json!({ "verdict": all.next().context("another")? }));
            let valid = bench.valid(trial).map(|trial| trial["verdict"].to_string());
            (valid.map_err(|error| error.is::<Skipped>()), all.len())
        };
        assert_eq!(verdicts(&["failed", "passed"]), (Ok("\"failed\"".into()), 1));
        assert_eq!(verdicts(&["invalid", "passed"]), (Ok("\"passed\"".into()), 0));
        assert_eq!(verdicts(&["invalid", "invalid", "passed"]), (Err(true), 1));
    }

    #[test]
    fn others_get_through_our_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = super::traversable_folder().unwrap();
        let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o711);
    }

    #[test]
    fn dnsperf_counts_only_if_all_replies_are_noerror() {
        let said = |completed: &str, codes: &str| {
            super::all_noerror(&format!(
                "Statistics:\n\n  Queries sent:         4000\n  Queries completed:    {completed}\n  \
                 Queries lost:         0 (0.00%)\n\n  Response codes:       {codes}\n  Average packet size:  request 48, response 76\n"
            ))
        };
        assert_eq!(said("4000 (100.00%)", "NOERROR 4000 (100.00%)").unwrap(), 4_000);
        assert!(said("4000 (100.00%)", "NOERROR 2000 (50.00%), SERVFAIL 2000 (50.00%)").is_err());
        assert!(said("3999 (99.98%)", "NOERROR 3999 (100.00%)").is_err());
        assert!(said("4000 (100.00%)", "SERVFAIL 4000 (100.00%)").is_err());
    }
}
