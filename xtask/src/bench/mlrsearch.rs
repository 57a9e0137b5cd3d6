//! `bench mlrsearch`: how long MLRsearch (RFC 9971) takes beside halving the range (RFC 8219 §9.2), and
//! whether it finds the same.
//!
//! ```text
//! reference DUT, capacity, chance that a trial fails ─┬─► search, halving ───┐
//!   (all of them at the same time)                    └─► search, MLRsearch ─┴─► times, bounds
//! ```
//!
//! Rates are low, so that what this machine can do decides nothing and many servers can be searched at
//! the same time: a search mostly waits for its trials to end. Both searches have the same range, full
//! length of trials and width, and are told nothing about the truth.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use method::stats::Summary;
use serde_json::{Value, json};

use crate::claims::{Claims, Keeping, Wanted};
use crate::process::{self, Server, free_port};
use crate::servers::wait_until_listens;

/// Queries per second; none is round for a binary search.
const CAPACITIES: [u64; 10] = [401, 469, 547, 641, 751, 877, 1_027, 1_201, 1_403, 1_642];
/// Chances that a trial fails.
const FAILING: [f64; 3] = [0.0, 0.002, 0.01];
/// How many of the ten servers must be found alike: all, or most where a single search of ten trials
/// is held against another one, and one in a hundred trials fails.
const ALL: f64 = CAPACITIES.len() as f64;
const MOST: f64 = 7.0;
/// So many searches show how far they scatter.
const MANY: u64 = 20;
/// Full length from which on times are compared, in seconds: what RFC 8219 asks for.
const LONG: u64 = 60;
/// The range of all searches, in queries per second.
const RANGE: [u64; 2] = [200, 2_000];
/// How near to each other the bounds of a search must be, in relation to the upper one.
const WIDTH: f64 = 0.005;
/// Trials of a search at the most, spoiled ones included.
const MOST_TRIALS: u64 = 60;

#[derive(Debug, Args)]
pub(crate) struct Mlrsearch {
    /// Full length of a trial in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    length: u64,
    /// Searches of either kind for each server
    #[arg(long, value_name = "N", default_value_t = 1)]
    searches: u64,
    #[command(flatten)]
    keeping: Keeping,
}

/// A server that is searched.
#[derive(Clone, Copy, Debug)]
struct Searched {
    capacity: u64,
    /// Chance that a trial fails.
    failing: f64,
    port: u16,
}

/// What searches of one kind found of a server.
#[derive(Clone, Debug)]
struct Found {
    /// The highest rates that passed, in queries per second.
    rates: Summary,
    /// Of one search, on average.
    seconds: f64,
    raw: Value,
}

impl Mlrsearch {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = process::dns64bench()?;
        let program = program.to_string_lossy();
        let (mut servers, mut searched) = (Vec::new(), Vec::new());
        for failing in FAILING {
            for capacity in CAPACITIES {
                let server = Searched { capacity, failing, port: free_port()? };
                servers.push(server.start(&program, searched.len() as u64)?);
                searched.push(server);
            }
        }
        let rows = thread::scope(|scope| {
            let both = |server: Searched| -> Result<[Found; 2]> {
                let resolution = server.resolution().to_string();
                let halving = self.search(&program, server, &["--resolution", &resolution])?;
                let mlrsearch = self.search(&program, server, &["--method", "mlrsearch"])?;
                Ok([halving, mlrsearch])
            };
            let threads: Vec<_> =
                searched.iter().map(|&server| scope.spawn(move || both(server))).collect();
            let rows = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            rows.collect::<Result<Vec<_>>>()
        })?;
        drop(servers);
        let mut claims = Claims::default();
        self.judge(&searched, &rows, &mut claims);
        claims.conclude(&self.keeping)
    }

    /// Searches a server so many times as is wanted, in one way or the other.
    fn search(&self, program: &str, server: Searched, way: &[&str]) -> Result<Found> {
        let address = format!("[::1]:{}", server.port);
        let [min, max] = RANGE.map(|rate| rate.to_string());
        let (length, repeat) = (format!("{}s", self.length), self.searches.to_string());
        let folder = tempfile::tempdir()?;
        let journal = folder.path().join("journal").to_string_lossy().into_owned();
        let words = [
            &["search", "--server", &address, "--min", &min, "--max", &max][..],
            &["--duration", &length, "--timeout", "1s", "--pause", "0s", "--repeat", &repeat],
            // Many testers share the CPUs. What they are late by costs the server nothing, which
            // saves up as much, unless one of them stalls for so long that it begins anew.
            &["--lateness-limit", "20ms", "--window-limit", "50", "--invalid-retries", "20"],
            &["--expect-prefix", "64:ff9b::/96", "--json", "--quiet"],
            &["--journal", &journal],
            way,
        ]
        .concat();
        let longest = (self.length + 3) * MOST_TRIALS * self.searches;
        let start = Instant::now();
        let printed = process::output(program, &words, Duration::from_secs(longest))
            .with_context(|| format!("{server:?}"))?;
        let seconds = start.elapsed().as_secs_f64() / self.searches as f64;
        Found::read(&serde_json::from_str(&printed)?, seconds)
    }

    /// Prints what was found of each server and holds it against what is wanted.
    fn judge(&self, searched: &[Searched], rows: &[[Found; 2]], claims: &mut Claims) {
        println!(
            "{:>8} {:>8} {:>26} {:>7} {:>26} {:>7} {:>6}",
            "capacity", "failing", "halving", "s", "MLRsearch", "s", "times"
        );
        for (server, [halving, mlrsearch]) in searched.iter().zip(rows) {
            let rates = |found: &Found| {
                let Summary { median, min, max, .. } = found.rates;
                format!("{median} ({min} to {max})")
            };
            println!(
                "{:>8} {:>8} {:>26} {:>7.0} {:>26} {:>7.0} {:>6.3}",
                server.capacity,
                server.failing,
                rates(halving),
                halving.seconds,
                rates(mlrsearch),
                mlrsearch.seconds,
                mlrsearch.seconds / halving.seconds,
            );
        }
        for failing in FAILING {
            let of = || searched.iter().zip(rows).filter(|(server, _)| server.failing == failing);
            let times = of().map(|(_, [halving, mlrsearch])| mlrsearch.seconds / halving.seconds);
            // Of short trials the pauses, which no method shortens, are a large part.
            if self.length >= LONG {
                claims.hold(
                    &format!("time of MLRsearch by that of halving, {failing} of the trials fail"),
                    Wanted::AtMost(0.25),
                    Summary::of(&times.collect::<Vec<_>>())
                        .map(|times| times.median)
                        .ok_or_else(none),
                );
            }
            let same = of().map(|(server, both)| f64::from(u8::from(are_the_same(server, both))));
            claims.hold(
                &format!("servers of which both find the same, {failing} of the trials fail"),
                Wanted::AtLeast(if failing == 0.0 || self.searches >= MANY { ALL } else { MOST }),
                Ok(same.sum()),
            );
        }
        let all = searched.iter().zip(rows).map(|(server, [halving, mlrsearch])| {
            let raw = |found: &Found| json!({ "seconds": found.seconds, "searches": found.raw });
            json!({ "capacity": server.capacity, "failing": server.failing, "halving": raw(halving), "mlrsearch": raw(mlrsearch) })
        });
        claims.keep("servers", all.collect());
        claims.keep("full length of a trial, s", json!(self.length));
    }
}

/// Why a claim has no figure.
fn none() -> String {
    "nothing was measured".into()
}

/// Whether the median of MLRsearch's bounds is that of the halving searches, up to the width, or lies
/// among what they found.
fn are_the_same(server: &Searched, [halving, mlrsearch]: &[Found; 2]) -> bool {
    let width = (WIDTH * halving.rates.median).max(server.resolution() as f64);
    let (found, halving) = (mlrsearch.rates.median, halving.rates);
    (halving.min.min(halving.median - width)..=halving.max.max(halving.median + width))
        .contains(&found)
}

impl Searched {
    /// The width in queries per second, at its capacity.
    fn resolution(self) -> u64 {
        (self.capacity as f64 * WIDTH).round().max(1.0) as u64
    }

    /// The server itself. It saves up what a tester that is late will want.
    fn start(self, program: &str, seed: u64) -> Result<Server> {
        let listen = format!("[::1]:{}", self.port);
        let [capacity, failing, seed] =
            [self.capacity.to_string(), self.failing.to_string(), seed.to_string()];
        let words =
            [
                &[
                    "reference-dut",
                    "--listen",
                    &listen,
                    "--capacity",
                    &capacity,
                    "--burst",
                    "100ms",
                ][..],
                &["--failing-trials", &failing, "--seed", &seed],
            ]
            .concat();
        let server = Server::start(program, &words)?;
        wait_until_listens(&[], self.port)?;
        Ok(server)
    }
}

impl Found {
    /// Reads what `search --json` printed.
    fn read(printed: &Value, seconds: f64) -> Result<Found> {
        let repeats = printed["repeats"].as_array().context("the search printed no searches")?;
        let rates: Vec<f64> = repeats
            .iter()
            // Even the lowest rate failed.
            .map(|search| search["highest"].as_f64().unwrap_or(0.0))
            .collect();
        let trials = printed["trials"].as_array().context("the search printed no trials")?;
        ensure!(!trials.is_empty(), "the search made no trials");
        let short = |trial: &Value| json!([trial["rate"], trial["duration_s"], trial["verdict"]]);
        let raw =
            json!({ "highest": rates, "trials": trials.iter().map(short).collect::<Vec<_>>() });
        Ok(Found { rates: Summary::of(&rates).with_context(none)?, seconds, raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rates: &[u64]) -> Found {
        let repeats: Vec<Value> = rates.iter().map(|rate| json!({ "highest": rate })).collect();
        let trial = json!({ "rate": 5, "duration_s": 1.0, "verdict": "passed", "sent": 5 });
        Found::read(&json!({ "repeats": repeats, "trials": [trial] }), 60.0).unwrap()
    }

    #[test]
    fn the_same_is_what_lies_within_the_width_or_the_spread() {
        let server = Searched { capacity: 1_027, failing: 0.0, port: 0 };
        let same = |halving: &[u64], mlrsearch: &[u64]| {
            are_the_same(&server, &[found(halving), found(mlrsearch)])
        };
        assert!(same(&[1_020], &[1_025]) && same(&[1_020], &[1_015]));
        assert!(!same(&[1_020], &[1_026]) && !same(&[1_020], &[1_014]));
        assert!(same(&[900, 1_020, 1_025], &[950]) && !same(&[900, 1_020, 1_025], &[899]));
    }

    #[test]
    fn a_search_that_found_nothing_counts_as_nothing() {
        let nothing = json!({ "repeats": [{ "highest": null }], "trials": [{ "rate": 1 }] });
        assert_eq!(Found::read(&nothing, 1.0).unwrap().rates.median, 0.0);
        assert!(Found::read(&json!({ "repeats": [], "trials": [{}] }), 1.0).is_err());
        assert!(Found::read(&json!({}), 1.0).is_err());
    }
}
