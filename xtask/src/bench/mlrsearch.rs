//! `bench mlrsearch`: duration of MLRsearch (RFC 9971) compared with binary search (RFC 8219 §9.2), and agreement of
//! their results.
//!
//! ```text
//! reference DUT, capacity, chance that a trial fails ─┬─► one search of each kind ──► times, MLRsearch's bound
//!   (all of them in parallel)                         └─► many of each kind, short ─► medians, spreads
//! ```
//!
//! Rates are low, so that the speed of this machine does not matter. Many searches can run in parallel, because a
//! search mostly waits for its trials to end. Two slow CPUs are just sufficient. If a server gets too little CPU time,
//! the comparison ends with an error. Both kinds of search have the same range, full trial length and width, and no
//! information about the correct result.
//!
//! Only the duration of a single binary search is reliable. One stall of this machine during a trial makes the results
//! of all parallel searches too low. The median of twenty searches is reliable. With full trials of one second, twenty
//! searches take as long as the single search.

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use method::stats::Summary;
use serde_json::{Value, json};

use crate::claims::{Bound, Claims, NotDecided, ResultOptions};
use crate::process::{self, Server, free_port};
use crate::servers::{held_up, wait_until_listens};

/// Capacities of the servers, in queries per second. None of them is a rate that a binary search tests exactly.
const CAPACITIES: [u64; 10] = [201, 235, 273, 321, 375, 439, 513, 601, 701, 821];
/// Probabilities that a trial fails.
const FAILING: [f64; 3] = [0.0, 0.002, 0.01];
/// Numbers of servers for which the results must agree. The medians of many searches must agree for all ten servers.
/// The results of single searches may differ for one server, because this machine may stall during a long trial.
const ALL: f64 = CAPACITIES.len() as f64;
const ALL_BUT_ONE: f64 = ALL - 1.0;
/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Range of all searches, in queries per second.
const RANGE: [u64; 2] = [100, 1_000];
/// Width of the final interval of a search, relative to its upper end.
const WIDTH: f64 = 0.005;
/// Maximum number of trials of a search, including invalid ones.
const MOST_TRIALS: u64 = 60;

#[derive(Debug, Args)]
pub(crate) struct Mlrsearch {
    /// Duration of a full trial in the single search of each kind, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    length: u64,
    /// Number of searches of each kind that show the scatter
    #[arg(long, value_name = "N", default_value_t = 20)]
    searches: u64,
    /// Duration of a full trial in these searches, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    short: u64,
    #[command(flatten)]
    keeping: ResultOptions,
}

/// A server whose capacity is searched.
#[derive(Clone, Copy, Debug)]
struct Searched {
    capacity: u64,
    /// Probability that a trial fails.
    failing: f64,
    port: u16,
}

/// Results for one server.
struct Row {
    /// Results of one search of each kind: binary search, MLRsearch.
    one: [Found; 2],
    /// Results of many searches of each kind.
    many: [Found; 2],
}

/// Results of the searches of one kind for a server.
#[derive(Clone, Debug)]
struct Found {
    /// Highest rates that passed, in queries per second.
    rates: Summary,
    /// Range of the results, without the lowest tenth and the highest tenth.
    middle: RangeInclusive<f64>,
    /// Average duration of a search.
    seconds: f64,
    raw: Value,
}

impl Mlrsearch {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = self.keeping.build().dns64bench()?;
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
            let program = &program;
            let of = |server: Searched| -> Result<Row> {
                let resolution = server.resolution().to_string();
                let width = WIDTH.to_string();
                let ways: [&[&str]; 2] =
                    [&["--resolution", &resolution], &["--method", "mlrsearch", "--width", &width]];
                let both = |length: u64, searches: u64| -> Result<[Found; 2]> {
                    let [halving, mlrsearch] =
                        ways.map(|way| server.search(program, length, searches, way));
                    Ok([halving?, mlrsearch?])
                };
                Ok(Row { one: both(self.length, 1)?, many: both(self.short, self.searches)? })
            };
            let threads: Vec<_> =
                searched.iter().map(|&server| scope.spawn(move || of(server))).collect();
            let rows = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            rows.collect::<Vec<_>>()
        });
        let rows = rows.into_iter().zip(servers).map(|(row, server)| {
            let counters = server.end()?;
            let row = row.with_context(|| format!("the server ended with {counters}"))?;
            ensure_was_served(&counters)?;
            Ok(row)
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let mut claims = Claims::default();
        self.judge(&searched, &rows, &mut claims);
        claims.conclude(&self.keeping)
    }

    /// Prints the results for each server, and compares them with the claims.
    fn judge(&self, searched: &[Searched], rows: &[Row], claims: &mut Claims) {
        println!(
            "{:>8} {:>8} {:>18} {:>20} {:>6} {:>24} {:>24}",
            "capacity",
            "failing",
            "halving, s",
            "MLRsearch, s",
            "times",
            "halving, many",
            "MLRsearch, many"
        );
        for (server, Row { one: [halving, mlrsearch], many }) in searched.iter().zip(rows) {
            let single = |found: &Found| format!("{}, {:.0}", found.rates.median, found.seconds);
            let [many_halving, many_mlrsearch] = many.each_ref().map(|found| {
                let Summary { median, min, max, .. } = found.rates;
                format!("{median} ({min} to {max})")
            });
            println!(
                "{:>8} {:>8} {:>18} {:>20} {:>6.3} {many_halving:>24} {many_mlrsearch:>24}",
                server.capacity,
                server.failing,
                single(halving),
                single(mlrsearch),
                mlrsearch.seconds / halving.seconds,
            );
        }
        for failing in FAILING {
            let of = || searched.iter().zip(rows).filter(|(server, _)| server.failing == failing);
            let times = of().map(|(_, Row { one, .. })| one[1].seconds / one[0].seconds);
            claims.hold(
                &format!(
                    "time of MLRsearch divided by that of binary search, {failing} of the \
                    trials fail"
                ),
                Bound::AtMost(0.25),
                Summary::of(&times.collect::<Vec<_>>()).map(|times| times.median).ok_or_else(none),
            );
            let count = |is_same: fn(&Searched, &Row) -> bool| {
                of().filter(|(server, row)| is_same(server, row)).count() as f64
            };
            claims.hold(
                &format!(
                    "servers for which one MLRsearch agrees with many binary searches, {failing} \
                     of the trials fail"
                ),
                Bound::AtLeast(ALL_BUT_ONE),
                Ok(count(|server, row| is_found(server, &row.many[0], &row.one[1]))),
            );
            claims.hold(
                &format!(
                    "servers for which the median of many MLRsearches agrees with many binary \
                     searches, {failing} of the trials fail"
                ),
                Bound::AtLeast(ALL),
                Ok(count(|server, row| is_found(server, &row.many[0], &row.many[1]))),
            );
        }
        let steady = searched.iter().zip(rows).filter(|(server, _)| server.failing == 0.0);
        claims.hold(
            "servers without failing trials for which many binary searches find the capacity",
            Bound::AtLeast(ALL),
            Ok(steady.filter(|(server, row)| is_true(server, &row.many[0])).count() as f64),
        );
        let all = searched.iter().zip(rows).map(|(server, row)| {
            let raw = |[halving, mlrsearch]: &[Found; 2]| {
                let raw = |found: &Found| json!({ "seconds": found.seconds, "searches": found.raw });
                json!({ "halving": raw(halving), "mlrsearch": raw(mlrsearch) })
            };
            json!({ "capacity": server.capacity, "failing": server.failing, "one": raw(&row.one), "many": raw(&row.many) })
        });
        claims.keep("servers", all.collect());
        claims.keep("full length of a trial of the single search, s", json!(self.length));
        claims.keep("full length of a trial of the many searches, s", json!(self.short));
    }
}

/// Checks that a server got enough CPU time: its counters must not show more losses than configured.
fn ensure_was_served(counters: &str) -> Result<()> {
    let counters = serde_json::from_str(counters).context("the server printed no counters")?;
    if let Some(why) = held_up(&counters, TIMEOUT)? {
        let searches = CAPACITIES.len() * FAILING.len();
        bail!(NotDecided(format!(
            "this machine is too slow for {searches} parallel searches: {why}"
        )));
    }
    Ok(())
}

/// Returns the text for a claim without a figure.
fn none() -> String {
    "nothing was measured".into()
}

/// Returns true if the results agree with those of the binary searches. The medians must not differ by more than the
/// width. If trials fail by chance, it is sufficient that the median lies between the lowest tenth and the highest
/// tenth of the binary searches.
fn is_found(server: &Searched, halving: &Found, found: &Found) -> bool {
    let (median, found_rate) = (halving.rates.median, found.rates.median);
    let width = (WIDTH * median).max(server.resolution() as f64);
    let is_near = (found_rate - median).abs() <= width;
    is_near || server.failing > 0.0 && halving.middle.contains(&found_rate)
}

/// Returns true if the median of the results equals the capacity or is at most two widths below it. One width is the
/// precision of the search. The other width allows for queries that are sent slightly early.
fn is_true(server: &Searched, found: &Found) -> bool {
    let (capacity, width) = (server.capacity as f64, server.resolution() as f64);
    (capacity - 2.0 * width..=capacity).contains(&found.rates.median)
}

impl Searched {
    /// Runs the given number of searches with one method.
    fn search(self, program: &str, length: u64, searches: u64, way: &[&str]) -> Result<Found> {
        let address = format!("[::1]:{}", self.port);
        let [min, max] = RANGE.map(|rate| rate.to_string());
        let (duration, repeat) = (format!("{length}s"), searches.to_string());
        let timeout = format!("{}s", TIMEOUT.as_secs());
        let folder = tempfile::tempdir()?;
        let journal = folder.path().join("journal").to_string_lossy().into_owned();
        let words = [
            &["search", "--server", &address, "--min", &min, "--max", &max][..],
            &["--duration", &duration, "--timeout", &timeout, "--pause", "0s", "--repeat", &repeat],
            // Many testers share the CPUs, so queries may be late. The server saves unused capacity for late queries.
            // Only a long stall of a tester exceeds the saved capacity.
            &["--lateness-limit", "20ms", "--window-limit", "50", "--invalid-retries", "20"],
            &["--expect-prefix", "64:ff9b::/96", "--json", "--quiet"],
            &["--journal", &journal],
            way,
        ]
        .concat();
        let longest = (length + 3) * MOST_TRIALS * searches;
        let start = Instant::now();
        let printed = process::output(program, &words, Duration::from_secs(longest))
            .with_context(|| format!("{self:?}"))?;
        let seconds = start.elapsed().as_secs_f64() / searches as f64;
        Found::read(&serde_json::from_str(&printed)?, seconds)
    }

    /// Returns the width of the interval at the server's capacity, in queries per second.
    fn resolution(self) -> u64 {
        (self.capacity as f64 * WIDTH).round().max(1.0) as u64
    }

    /// Starts the server, which saves unused capacity for late queries.
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
                &["--failing-trials", &failing, "--seed", &seed, "--json"],
            ]
            .concat();
        let server = Server::start(program, &words)?;
        wait_until_listens(&[], self.port)?;
        Ok(server)
    }
}

impl Found {
    /// Reads the output of `search --json`.
    fn read(printed: &Value, seconds: f64) -> Result<Found> {
        let repeats = printed["repeats"].as_array().context("the search printed no searches")?;
        let mut limits = repeats.iter().filter_map(|search| search["unmeasurable"].as_u64());
        if let Some(rate) = limits.next() {
            bail!(NotDecided(format!("all trials at {rate} queries/s were invalid")));
        }
        let rates: Vec<f64> = repeats
            .iter()
            // If there is no such rate, even the lowest rate failed.
            .map(|search| search["highest"].as_f64().unwrap_or(0.0))
            .collect();
        let trials = printed["trials"].as_array().context("the search printed no trials")?;
        ensure!(!trials.is_empty(), "the search ran no trials");
        let short = |trial: &Value| json!([trial["rate"], trial["duration_s"], trial["verdict"]]);
        let raw =
            json!({ "highest": rates, "trials": trials.iter().map(short).collect::<Vec<_>>() });
        let mut sorted = rates.clone();
        sorted.sort_by(f64::total_cmp);
        let tenth = sorted.len() / 10;
        let middle = sorted.get(tenth).zip(sorted.get(sorted.len().saturating_sub(tenth + 1)));
        let (&lowest, &highest) = middle.with_context(none)?;
        let rates = Summary::of(&rates).with_context(none)?;
        Ok(Found { rates, middle: lowest..=highest, seconds, raw })
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
    fn results_agree_within_width_or_scatter() {
        let same = |failing: f64, halving: &[u64], mlrsearch: &[u64]| {
            let server = Searched { capacity: 1_027, failing, port: 0 };
            is_found(&server, &found(halving), &found(mlrsearch))
        };
        assert!(same(0.0, &[1_020], &[1_025]) && same(0.0, &[1_020], &[1_015]));
        assert!(!same(0.0, &[1_020], &[1_026]) && !same(0.0, &[1_020], &[1_014]));
        let scattered = [900, 1_020, 1_025];
        assert!(same(0.01, &scattered, &[950]) && !same(0.0, &scattered, &[950]));
        assert!(!same(0.01, &scattered, &[899]));
        // Of twenty results, the lowest two and the highest two do not count.
        let mut twenty = [1_020; 20];
        twenty[..3].copy_from_slice(&[0, 0, 900]);
        assert!(same(0.01, &twenty, &[900]) && !same(0.01, &twenty, &[899]));
        assert!(same(0.0, &[1_020], &[900, 1_021, 1_030]), "the median counts");
    }

    #[test]
    fn found_capacity_is_within_two_widths() {
        let server = Searched { capacity: 1_027, failing: 0.0, port: 0 };
        let is_true = |rate| is_true(&server, &found(&[rate]));
        assert!(is_true(1_017) && is_true(1_027), "the width is 5");
        assert!(!is_true(1_016) && !is_true(1_028));
    }

    #[test]
    fn lack_of_cpu_time_invalidates_the_comparison() {
        let of = |drops: u64| {
            let waited = json!({ "socket_drops": drops, "refused": 0, "longest_wait_us": 999_999 });
            ensure_was_served(&waited.to_string())
        };
        assert!(of(0).is_ok());
        assert!(of(1).unwrap_err().to_string().contains("too slow for 30 parallel searches"));
        assert!(ensure_was_served("{}").is_err() && ensure_was_served("").is_err());
    }

    #[test]
    fn a_search_that_found_nothing_counts_as_nothing() {
        let nothing = json!({ "repeats": [{ "highest": null }], "trials": [{ "rate": 1 }] });
        assert_eq!(Found::read(&nothing, 1.0).unwrap().rates.median, 0.0);
        let unmeasurable = json!({ "repeats": [{ "highest": null, "unmeasurable": 100 }] });
        assert!(Found::read(&unmeasurable, 1.0).unwrap_err().is::<NotDecided>());
        assert!(Found::read(&json!({ "repeats": [], "trials": [{}] }), 1.0).is_err());
        assert!(Found::read(&json!({}), 1.0).is_err());
    }
}
