//! `dnssec-fuzz`: compares dns64d's verdicts on mutated signed responses with those of Unbound and delv.
//!
//! ```text
//! cases ─► client ─┬─► dns64d ──┬─► authority: signs and mutates the responses of each case
//!                  └─► Unbound ─┤
//!                               │
//! different verdicts, a sample ─► delv ─► classes: dns64d, Unbound, delv ─► fault?
//! ```
//!
//! dns64d must not differ where Unbound and delv agree.

mod classes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::process::ExitCode;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;
use dnssec_fuzz::{ADDRESS, Authority, Fuzz, Progress, ROOT, Status, ask, ask_all};

use self::classes::{Classes, Judged};
use crate::process::{self, Build, Server};
use crate::validators::AnchoredZone;

/// Number of cases that delv judges in addition to those with different verdicts.
const SAMPLE: usize = 1_000;
/// Maximum number of cases that delv judges because the verdicts differ.
const MOST_JUDGED: usize = 20_000;
/// Number of cases without a verdict that are tolerated in addition to 1 %.
const MOST_UNKNOWN: usize = 10;
/// Required programs.
const NEEDS: [&str; 2] = ["unbound", "delv"];
/// Exit status if a program is missing, or if this process may not use port 53.
const NOT_RUN: u8 = 3;

#[derive(Debug, Args)]
pub(crate) struct DnssecFuzz {
    /// Number of cases
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Number of the first case
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Seed of the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat only this case, and print its responses and the verdicts
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["cases", "first"])]
    case: Option<u64>,
    /// Start the authoritative server and both validators for other tools, until the standard input ends
    #[arg(long)]
    serve: bool,
}

/// Verdicts of dns64d and Unbound on a case.
#[derive(Clone, Copy)]
struct Verdicts {
    number: u64,
    ours: Status,
    unbound: Status,
}

/// Servers and validators.
struct Arena<'a> {
    fuzz: &'a Fuzz,
    zone: &'a AnchoredZone<'a>,
    dns64d: SocketAddr,
    unbound: SocketAddr,
    /// The validators, which end when they are dropped.
    _servers: [Server; 2],
}

impl DnssecFuzz {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let missing: Vec<&str> =
            NEEDS.into_iter().filter(|name| process::find(name).is_none()).collect();
        if !missing.is_empty() {
            println!("not found: {}", missing.join(", "));
            return Ok(ExitCode::from(NOT_RUN));
        }
        let program = Build::Dev.dns64bench()?.with_file_name("dns64d");
        let program = program.to_string_lossy();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let fuzz = Fuzz::new(self.seed, u32::try_from(now)?);
        let folder = tempfile::tempdir()?;
        let ds = fuzz.anchor();
        let folder = folder.path().to_string_lossy();
        let zone = AnchoredZone { folder: &folder, name: ROOT, ds: &ds, upstream: ADDRESS };
        let authority = Authority::new(&fuzz);
        thread::scope(|scope| {
            if let Err(error) = authority.start(scope) {
                println!("no authoritative server at {ADDRESS}: {error}");
                authority.stop();
                return Ok(ExitCode::from(NOT_RUN));
            }
            let result = self.run_validators(&program, &fuzz, &zone);
            authority.stop();
            result
        })
    }

    fn run_validators(
        &self,
        program: &str,
        fuzz: &Fuzz,
        zone: &AnchoredZone<'_>,
    ) -> Result<ExitCode> {
        zone.delv_anchors()?;
        let ((dns64d, port), (unbound, unbound_port)) = (zone.dns64d(program)?, zone.unbound()?);
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (ours, theirs) = (at(port), at(unbound_port));
        let servers = [dns64d, unbound];
        let arena = Arena { fuzz, zone, dns64d: ours, unbound: theirs, _servers: servers };
        if self.serve {
            println!(
                "dns64d {ours}, Unbound {theirs}, authority {ADDRESS}, files in {}",
                zone.folder
            );
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            return Ok(ExitCode::SUCCESS);
        }
        match self.case {
            Some(number) => arena.repeat(number),
            None => arena.compare(self.first..self.first + self.cases, self.seed),
        }
    }
}

impl Arena<'_> {
    /// Prints a case, its responses and the verdicts.
    fn repeat(&self, number: u64) -> Result<ExitCode> {
        let case = self.fuzz.case(number);
        println!("{}", self.fuzz.describe(&case));
        let mut responses: Vec<_> = case.mutated_responses().collect();
        responses.push((&case.name, case.rtype));
        responses.dedup();
        for (name, rtype) in responses {
            println!("\n{}", self.fuzz.response(name, rtype).text());
        }
        let (ours, theirs) =
            (ask(self.fuzz, self.dns64d, number)?, ask(self.fuzz, self.unbound, number)?);
        let delv = self.delv(number)?;
        println!("dns64d {ours:?}, Unbound {theirs:?}, delv {delv:?}");
        Ok(ExitCode::SUCCESS)
    }

    fn delv(&self, number: u64) -> Result<Status> {
        let case = self.fuzz.case(number);
        self.zone.delv(&format!("{}.", case.name), &case.rtype.to_string())
    }

    fn compare(&self, cases: Range<u64>, seed: u64) -> Result<ExitCode> {
        let (start, cases) = (Instant::now(), cases.collect::<Vec<u64>>());
        let verdicts = self.verdicts(&cases)?;
        println!("{} cases, seed {seed}: {} s", verdicts.len(), start.elapsed().as_secs());
        println!("dns64d: {}", counts(verdicts.iter().map(|verdicts| verdicts.ours)));
        println!("Unbound: {}", counts(verdicts.iter().map(|verdicts| verdicts.unbound)));
        let (differ, same): (Vec<Verdicts>, Vec<Verdicts>) =
            verdicts.into_iter().partition(|verdicts| verdicts.ours != verdicts.unbound);
        let mut differ = self.confirmed(&differ)?;
        // Those that dns64d finds secure are judged first.
        differ.sort_by_key(|verdicts| verdicts.ours);
        if differ.len() > MOST_JUDGED {
            println!("{} verdicts differ, of which delv judges {MOST_JUDGED}", differ.len());
        }
        let step = (same.len() / SAMPLE).max(1);
        let chosen = differ.into_iter().take(MOST_JUDGED).chain(same.into_iter().step_by(step));
        let judged = self.judge(&chosen.collect::<Vec<_>>())?;
        println!("{} cases judged by delv: {} s", judged.len(), start.elapsed().as_secs());
        let classes = Classes::of(judged);
        classes.print(|number| self.fuzz.describe(&self.fuzz.case(number)));
        println!("cargo xtask dnssec-fuzz --seed {seed} --case NUMBER repeats a case");
        Ok(if classes.has_fault() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Returns the verdicts of dns64d and of Unbound on these cases.
    fn verdicts(&self, cases: &[u64]) -> Result<Vec<Verdicts>> {
        let progress = Progress::default();
        let one = |server, which| ask_all(self.fuzz, server, cases, &progress, which);
        let (ours, theirs) = thread::scope(|scope| {
            let theirs = scope.spawn(|| one(self.unbound, 1));
            let ours = one(self.dns64d, 0);
            (ours, theirs.join().expect("the client returns its errors"))
        });
        let (ours, theirs) = (ours.context("dns64d")?, theirs.context("Unbound")?);
        for (name, statuses) in [("dns64d", &ours), ("Unbound", &theirs)] {
            let is_unknown = |status: &&Status| **status == Status::Unknown;
            let unknown = statuses.iter().filter(is_unknown).count();
            // A server that answers nothing has failed.
            ensure!(
                unknown <= MOST_UNKNOWN + statuses.len() / 100,
                "{name}: no verdict on {unknown} cases"
            );
        }
        let all = cases.iter().zip(ours.into_iter().zip(theirs));
        Ok(all.map(|(&number, (ours, unbound))| Verdicts { number, ours, unbound }).collect())
    }

    /// Repeats the cases whose verdicts differ, and returns those whose verdicts differ again. On a busy machine, a validator
    /// can fail without a fault of the response.
    fn confirmed(&self, differ: &[Verdicts]) -> Result<Vec<Verdicts>> {
        let numbers: Vec<u64> = differ.iter().map(|verdicts| verdicts.number).collect();
        let again = self.verdicts(&numbers)?;
        Ok(again.into_iter().filter(|verdicts| verdicts.ours != verdicts.unbound).collect())
    }

    /// Adds delv's verdicts.
    fn judge(&self, chosen: &[Verdicts]) -> Result<Vec<Judged>> {
        let jobs = thread::available_parallelism().map_or(1, usize::from) * 2;
        let one = |&Verdicts { number, ours, unbound }: &Verdicts| {
            let delv = self.delv(number)?;
            let may_be_insecure =
                unbound != ours && self.fuzz.may_be_insecure(&self.fuzz.case(number));
            Ok(Judged { number, ours, unbound, delv, may_be_insecure })
        };
        process::at_the_same_time(jobs, chosen.iter(), one).into_iter().collect()
    }
}

/// Returns the number of cases with each status.
fn counts(statuses: impl Iterator<Item = Status>) -> String {
    let mut counts = BTreeMap::new();
    for status in statuses {
        *counts.entry(status).or_insert(0_u64) += 1;
    }
    let counts: Vec<_> =
        counts.iter().map(|(status, count)| format!("{count} {status:?}")).collect();
    counts.join(", ")
}
