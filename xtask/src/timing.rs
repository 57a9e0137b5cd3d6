//! `bench timing`: the tables and figures of G. Lencse and A. Pivoda, "Checking and Increasing the Accuracy of the
//! Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018, DOI 10.11601/ijates.v7i1.255), reproduced on
//! this machine with the Measurer for comparison.
//!
//! ```text
//! classic --timing original ─┐ send times ─► windows ─► figures 2, 4, 5, table I
//! classic --timing corrected ┼─► AuthDNS (self-test) ─► searches ─► table III
//! dns64bench measure ────────┘─► dns64d ─► AuthDNS ───► searches ─► table II
//! ```

mod paper;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use net::affinity::allowed_cpus;
use net::cpu_time::CpuTimes;
use serde_json::Value;

use crate::bench::lab::Lab;
use crate::process::{self, Build, Server};
use crate::servers::{AUTH, DUT, dut_in_lab, wait_until_answers};
use paper::{Found, Searched, Sender, Sending, csv, figures, table_1, table_of_searches};

/// AuthDNS's address on the self-test link.
const SELF_TEST: &str = "198.18.1.2:53";
/// Duration of the trials for tables II and III, in seconds. A search runs many trials, and with the 60 s of the paper
/// they would take days.
const TRIAL: u64 = 1;
/// Initial ranges of searches, in queries per second.
const RANGES: [(u64, u64); 2] = [(0, 131_072), (0, 524_288)];
/// Maximum number of attempts if this machine invalidates a trial.
const INVALID: u32 = 3;
/// Number of names in 10.0.0.0/8. A search must not reuse names.
const NAMES: u64 = 1 << 24;
/// Status if something could not be measured.
const INCOMPLETE: u8 = 3;

/// The original timing of dns64perf++ compared with the corrected timing and with the Measurer
#[derive(Debug, Args)]
pub(crate) struct Timing {
    /// Rates for the figures and for table I, in queries per second
    #[arg(long, value_delimiter = ',', default_values_t = [50_000, 100_000, 150_000, 200_000, 250_000],
          value_parser = clap::value_parser!(u64).range(10..))]
    rates: Vec<u64>,
    /// Duration at each rate, in seconds; the paper uses 60
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Number of searches with each sender, for tables II and III; the paper uses 20
    #[arg(long, default_value_t = 5)]
    repeat: u32,
    /// Resolution of searches in queries per second
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    resolution: u64,
    /// Time in minutes after which no further trial begins; missing results are reported
    #[arg(long, default_value_t = 20)]
    limit: u64,
    /// Folder for the tables, the figures and the counts per window
    #[arg(long, default_value = "bench-timing")]
    output: PathBuf,
    /// Path of a dns64bench to use instead of the workspace's release build; dns64d must be in the same folder
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

/// A run of the comparison.
struct Run<'a> {
    plan: &'a Timing,
    lab: Lab,
    end: Instant,
    /// Measurements that are missing, with the reasons.
    missing: Vec<String>,
}

/// Server that the senders query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// dns64d, which queries AuthDNS: table II.
    Dut,
    /// AuthDNS directly: table III.
    Auth,
}

impl Timing {
    /// Runs the comparison. The status is 3 if something could not be measured. Otherwise it is 0 if, at the highest
    /// rate, the Measurer's windows are closer to the schedule than those of the original timing, and 1 if they are
    /// not.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = match &self.program {
            Some(program) => Lab::up_with(program, &process::this_program()?)?,
            None => Lab::up(Build::Release)?,
        };
        fs::create_dir_all(&self.output)
            .with_context(|| format!("cannot create {}", self.output.display()))?;
        let end = Instant::now() + Duration::from_secs(self.limit * 60);
        let mut run = Run { plan: self, lab, end, missing: Vec::new() };
        let before = CpuTimes::now()?;
        let sendings = run.sendings()?;
        let mut tables = vec![run.heading(), table_1(&sendings, self.seconds)];
        for (target, title) in [
            (Target::Dut, "Table II: DNS64 performance of dns64d by sender, queries/s"),
            (Target::Auth, "Table III: self-test against AuthDNS by sender, queries/s"),
        ] {
            let searched = run.searches(target)?;
            tables.push(table_of_searches(title, &searched));
        }
        let stolen = CpuTimes::now()?.stolen_since(&before);
        tables.push(format!(
            "A hypervisor took {:.1} % of this machine's CPU time meanwhile, {:.1} % of CPU {}.\n",
            stolen.all_pct, stolen.worst_cpu_pct, stolen.worst_cpu
        ));
        tables.push(run.left_out());
        self.write(&tables.join("\n"), &sendings)?;
        Ok(run.status(&sendings))
    }

    fn write(&self, tables: &str, sendings: &[Sending]) -> Result<()> {
        println!("{tables}");
        fs::write(self.output.join("tables.md"), tables)?;
        fs::write(self.output.join("windows.csv"), csv(sendings))?;
        for figure in figures(sendings) {
            fs::write(self.output.join(format!("{}.svg", figure.file)), figure.svg(true))?;
        }
        let environment = hosts::environment::Environment::observe();
        fs::write(
            self.output.join("environment.json"),
            serde_json::to_string_pretty(&environment)?,
        )?;
        println!(
            "Tables, figures, windows and the facts of this machine are in {}",
            self.output.display()
        );
        Ok(())
    }
}

impl Run<'_> {
    fn heading(&self) -> String {
        let cpus = allowed_cpus().len();
        let shared = if cpus < 4 {
            format!(
                " The {cpus} CPUs of this machine are shared by sender, receiver, server and AuthDNS, unlike those of the paper."
            )
        } else {
            String::new()
        };
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        format!(
            "## Timing of senders\n\n`xtask {}`, dns64bench {}. Trials of the figures and of table I have {} s, those of the searches {TRIAL} s.{shared}\n",
            arguments.join(" "),
            env!("CARGO_PKG_VERSION"),
            self.plan.seconds
        )
    }

    /// Runs all senders at all rates, against AuthDNS.
    fn sendings(&mut self) -> Result<Vec<Sending>> {
        let _auth = self.auth(Target::Auth)?;
        let mut all = Vec::new();
        for &rate in &self.plan.rates {
            for sender in Sender::ALL {
                if self.is_late(Duration::from_secs(self.plan.seconds)) {
                    self.miss(sender, &format!("at {rate} queries/s"), "time was up");
                    continue;
                }
                let sent = match sender {
                    Sender::Measurer => self.measured_windows(rate)?,
                    _ => Some(self.classic_windows(sender, rate)?),
                };
                match sent {
                    Some(sent) => all.push(sent),
                    None => self.miss(
                        sender,
                        &format!("at {rate} queries/s"),
                        "this machine invalidated every trial",
                    ),
                }
            }
        }
        Ok(all)
    }

    fn classic_windows(&self, sender: Sender, rate: u64) -> Result<Sending> {
        let times = self.lab.folder.path().join("times");
        let file = times.to_string_lossy().into_owned();
        let seconds = self.plan.seconds;
        self.classic(sender, Target::Auth, rate, seconds, &["--times", &file])?;
        let lines = BufReader::new(fs::File::open(&times)?).lines();
        let all: Vec<u64> = lines.map(|line| Ok(line?.parse()?)).collect::<Result<_>>()?;
        fs::remove_file(&times)?;
        Ok(Sending::of_times(sender, rate, seconds, all.into_iter()))
    }

    /// Returns `None` if all trials were invalidated.
    fn measured_windows(&self, rate: u64) -> Result<Option<Sending>> {
        let file = self.lab.folder.path().join("intervals");
        let path = file.to_string_lossy().into_owned();
        for _ in 0..INVALID {
            let intervals = ["--interval", "10ms", "--json-lines", &path];
            let trial = self.measure(Target::Auth, rate, self.plan.seconds, 0, &intervals)?;
            if trial["verdict"] != "invalid" {
                let windows = intervals_of(&fs::read_to_string(&file)?)?;
                return Ok(Some(Sending { sender: Sender::Measurer, rate, windows }));
            }
        }
        Ok(None)
    }

    /// Searches a target with all senders.
    fn searches(&mut self, target: Target) -> Result<Vec<Searched>> {
        let table = if target == Target::Dut { "table II" } else { "table III" };
        let mut all: Vec<Searched> =
            Sender::ALL.map(|sender| Searched { sender, found: Vec::new(), missing: None }).into();
        if target == Target::Dut && !self.dns64d().is_file() {
            let why = format!("there is no {}", self.dns64d().display());
            for searched in &mut all {
                searched.missing = Some(why.clone());
                self.miss(searched.sender, table, &why);
            }
            return Ok(all);
        }
        // The senders are measured alternately, so that a bad minute of this machine affects all of them.
        for _ in 0..self.plan.repeat {
            for searched in all.iter_mut().filter(|searched| searched.missing.is_none()) {
                match self.search(searched.sender, target)? {
                    Ok(found) => searched.found.push(found),
                    Err(why) => {
                        self.miss(searched.sender, table, &why);
                        searched.missing = Some(why);
                    }
                }
            }
        }
        Ok(all)
    }

    /// Finds the highest rate at which every query was answered, by a binary search. The rate is 0 if no rate passed.
    /// If the search did not end, returns the reason.
    fn search(&self, sender: Sender, target: Target) -> Result<Result<Found, String>> {
        let _auth = self.auth(target)?;
        let _dut = if target == Target::Dut { Some(self.dut()?) } else { None };
        let (mut low, mut high) = RANGES[usize::from(target == Target::Auth)];
        let (mut first_name, mut spoiled) = (0, 0);
        while high - low > self.plan.resolution {
            if self.is_late(Duration::from_secs(TRIAL)) {
                return Ok(Err("time was up".into()));
            }
            let rate = u64::midpoint(low, high);
            let passed = match sender {
                Sender::Measurer => self.measurer_passes(target, rate, first_name)?,
                _ => Some(self.classic_passes(sender, target, rate, first_name)?),
            };
            first_name = (first_name + rate * TRIAL * u64::from(INVALID)) % (NAMES / 2);
            match passed {
                Some(true) => low = rate,
                Some(false) => high = rate,
                // A rate at which the Measurer cannot send counts as failed, because the other senders fail at such a
                // rate without an error.
                None => (high, spoiled) = (rate, spoiled + 1),
            }
        }
        Ok(Ok(Found { rate: low, spoiled }))
    }

    fn classic_passes(
        &self,
        sender: Sender,
        target: Target,
        rate: u64,
        first_name: u64,
    ) -> Result<bool> {
        let first = first_name.to_string();
        let printed = self.classic(sender, target, rate, TRIAL, &["--first-name", &first])?;
        Ok(printed.trim() == "1")
    }

    /// Returns `None` if this machine invalidated all attempts.
    fn measurer_passes(&self, target: Target, rate: u64, first_name: u64) -> Result<Option<bool>> {
        for attempt in 0..u64::from(INVALID) {
            let trial =
                self.measure(target, rate, TRIAL, first_name + attempt * rate * TRIAL, &[])?;
            match trial["verdict"].as_str() {
                Some("passed") => return Ok(Some(true)),
                Some("failed") => return Ok(Some(false)),
                _ => {}
            }
        }
        Ok(None)
    }

    fn classic(
        &self,
        sender: Sender,
        target: Target,
        rate: u64,
        seconds: u64,
        more: &[&str],
    ) -> Result<String> {
        let timing = if sender == Sender::Original { "original" } else { "corrected" };
        let (rate, seconds_text, names) =
            (rate.to_string(), seconds.to_string(), NAMES.to_string());
        let mut words =
            vec![self.lab.ours.as_str(), "classic", server(target), &rate, &seconds_text];
        words.extend(["--timing", timing, "--names", &names, "--timeout-ms", timeout_ms(target)]);
        words.extend(more);
        let limit = Duration::from_secs(seconds * 4 + 30);
        process::output(&self.lab.program, &self.lab.exec("tester", &words), limit)
    }

    fn measure(
        &self,
        target: Target,
        rate: u64,
        seconds: u64,
        first_name: u64,
        more: &[&str],
    ) -> Result<Value> {
        let (rate, first) = (rate.to_string(), first_name.to_string());
        let (duration, timeout) = (format!("{seconds}s"), format!("{}ms", timeout_ms(target)));
        let asked: &[&str] = if target == Target::Dut {
            &["--expect-prefix", "64:ff9b::/96"]
        } else {
            &["--aaaa-share", "1"]
        };
        let mut words = vec![
            self.lab.program.as_str(),
            "measure",
            "--json",
            "--quiet",
            "--server",
            server(target),
        ];
        words.extend(["--rate", &rate, "--duration", &duration, "--timeout", &timeout]);
        words.extend(["--names", "10.0.0.0/8", "--first-name", &first]);
        words.extend(asked.iter().chain(more));
        let limit = Duration::from_secs(seconds * 4 + 30);
        let ran = process::run(&self.lab.program, &self.lab.exec("tester", &words), limit)?;
        serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
    }

    fn auth(&self, target: Target) -> Result<Server> {
        let (listen, share) = if target == Target::Dut { (AUTH, "0") } else { (SELF_TEST, "1") };
        self.lab.serve(&[
            &self.lab.program,
            "auth",
            "--listen",
            listen,
            "--aaaa-share",
            share,
            "--threads",
            "1",
        ])
    }

    /// Starts dns64d with one thread, on the last CPU.
    fn dut(&self) -> Result<Server> {
        let folder = self.lab.folder.path().join("dut");
        let words = dut_in_lab(hosts::servers::Dut::Dns64d, &folder, &self.dns64d(), 1)?;
        let cpu = allowed_cpus().last().map_or(0, |cpu| cpu.0).to_string();
        let mut command = vec!["taskset", "-c", &cpu];
        command.extend(words.iter().map(String::as_str));
        let server = Server::start(&self.lab.program, &self.lab.exec("dut", &command))?;
        wait_until_answers(
            &self.lab.program,
            DUT,
            &["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"],
        )?;
        Ok(server)
    }

    fn dns64d(&self) -> PathBuf {
        Path::new(&self.lab.program).with_file_name("dns64d")
    }

    /// Returns true if a trial of this length would end after the time limit.
    fn is_late(&self, length: Duration) -> bool {
        Instant::now() + length > self.end
    }

    fn miss(&mut self, sender: Sender, what: &str, why: &str) {
        self.missing.push(format!("{}, {what}: {why}", sender.name()));
    }

    fn left_out(&self) -> String {
        if self.missing.is_empty() {
            return "Everything was measured.\n".into();
        }
        format!("NOT MEASURED:\n- {}\n", self.missing.join("\n- "))
    }

    fn status(&self, sendings: &[Sending]) -> ExitCode {
        if !self.missing.is_empty() {
            return INCOMPLETE.into();
        }
        let highest = self.plan.rates.iter().max();
        let worst = |sender| {
            let of = sendings.iter().find(|s| s.sender == sender && Some(&s.rate) == highest);
            of.map(|s| s.worst_pct(self.plan.seconds))
        };
        match worst(Sender::Measurer).zip(worst(Sender::Original)) {
            Some((ours, original)) if ours < original => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }
}

fn server(target: Target) -> &'static str {
    if target == Target::Dut { DUT } else { SELF_TEST }
}

/// Returns the timeout of RFC 8219 §9.2: one second for a DUT, and a quarter of a second for the tester itself.
fn timeout_ms(target: Target) -> &'static str {
    if target == Target::Dut { "1000" } else { "250" }
}

/// Returns the number of queries in each interval, from JSON lines in DNS-OARC's dns-metrics format.
fn intervals_of(lines: &str) -> Result<Vec<u64>> {
    let mut sent = Vec::new();
    for line in lines.lines() {
        let object: Value = serde_json::from_str(line)?;
        if object["type"] == "stats_periodic" {
            sent.push(
                object["sent"]["queries"].as_u64().context("an interval without its queries")?,
            );
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_in_their_order() {
        let lines = "{\"type\":\"header\"}\n{\"type\":\"stats_periodic\",\"sent\":{\"queries\":3}}\n\
                     {\"type\":\"stats_periodic\",\"sent\":{\"queries\":5}}\n{\"type\":\"stats_sum\",\"sent\":{\"queries\":8}}\n";
        assert_eq!(intervals_of(lines).unwrap(), [3, 5]);
        assert!(intervals_of("{\"type\":\"stats_periodic\"}\n").is_err());
    }
}
