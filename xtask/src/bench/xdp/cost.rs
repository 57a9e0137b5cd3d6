//! User-space instructions and system calls per answer of dns64d, over sockets and over AF_XDP.
//!
//! Each count is the difference between a short and a long load, so start-up and shutdown cancel out. Unlike rates, the
//! counts do not contain the work of the other end's network stack, which the sender's core does over veth. The number
//! of datagrams per system call depends on the queries that arrive meanwhile, so the number in flight is fixed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use method::stats::Summary;
use net::xdp::Mode;
use serde_json::{Value, json};

use super::transport::{TRANSPORTS, Transport};
use crate::bench::instructions::paths::{callgrind, of_worker};
use crate::bench::lab::{LIMIT, Lab};
use crate::bench_dns64::{answers, start_dns64d};
use crate::claims::Claims;
use crate::process::{find, wait_until};
use crate::servers::DUT;

/// Number of queries in flight.
const IN_FLIGHT: &str = "50";
/// Number of rounds, of which the median counts.
const ROUNDS: usize = 5;

/// A program that counts events of dns64d.
struct Counter {
    events: &'static str,
    /// Program, and the name of its Debian package.
    program: &'static str,
    /// Numbers of queries in the short and in the long load.
    loads: [u32; 2],
    /// Function that returns the beginning of the command that runs dns64d. The counts are written into `folder`.
    command: fn(folder: &Path) -> Result<Vec<String>>,
    /// Function that reads the number of events.
    read: fn(folder: &Path) -> Result<u64>,
}

const COUNTERS: [Counter; 2] = [
    Counter {
        events: "instructions",
        program: "valgrind",
        loads: [500, 3_500],
        command: callgrind,
        read: of_worker,
    },
    Counter {
        events: "system calls",
        program: "strace",
        loads: [5_000, 35_000],
        command: strace,
        read: system_calls,
    },
];

/// Counts the events per answer over sockets and over AF_XDP with a native filter. There is no claim about the counts.
pub(super) fn measure(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\ndns64d, different names, {IN_FLIGHT} queries in flight: cost of an answer");
    let mut all = Vec::new();
    for transport in TRANSPORTS.iter().filter(|transport| transport.mode != Some(Mode::Generic)) {
        lab.set_send_offload(transport.together)?;
        for counter in &COUNTERS {
            let rounds = counter.rounds(lab, transport);
            println!("{:<22} {}", transport.name, counter.words(&rounds));
            all.push(json!({
                "transport": transport.name,
                "events": counter.events,
                "per_answer": rounds.as_ref().ok(),
                "not_measured": rounds.as_ref().err(),
            }));
        }
    }
    claims.keep("cost of an answer of dns64d", Value::Array(all));
    Ok(())
}

impl Counter {
    /// Returns the number of events per answer in each round, or the reason why they were not counted.
    fn rounds(&self, lab: &Lab, transport: &Transport) -> Result<Vec<f64>, String> {
        if find(self.program).is_none() {
            return Err(format!("{} is not installed", self.program));
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let counted = self.per_answer(lab, transport).or_else(|error| {
                println!("{}: counted again after an error: {error:#}", transport.name);
                self.per_answer(lab, transport)
            });
            rounds.push(counted.map_err(|error| format!("{error:#}"))?);
        }
        Ok(rounds)
    }

    fn words(&self, rounds: &Result<Vec<f64>, String>) -> String {
        match rounds.as_ref().map(|rounds| Summary::of(rounds)) {
            Ok(Some(Summary { median, min, max, .. })) => {
                format!("{:<13} {median:>9.3} ({min:.3} to {max:.3})", self.events)
            }
            Ok(None) => format!("{:<13} not measured", self.events),
            Err(reason) => format!("{:<13} not measured: {reason}", self.events),
        }
    }

    fn per_answer(&self, lab: &Lab, transport: &Transport) -> Result<f64> {
        let [short, long] = self.loads.map(|queries| self.count(lab, transport, queries));
        let ([short, few], [long, many]) = (short?, long?);
        Ok((long - short) / (many - few))
    }

    /// Returns the number of events from the start of dns64d to its end, and the number of answers.
    fn count(&self, lab: &Lab, transport: &Transport, queries: u32) -> Result<[f64; 2]> {
        let folder = tempfile::tempdir_in(lab.folder.path())?;
        let within = (self.command)(folder.path())?;
        let [server, _auth] = start_dns64d(lab, &transport.operator(), &within)?;
        let (queries, offload) = (queries.to_string(), transport.together.to_string());
        let load = ["--server", DUT, "--outstanding", IN_FLIGHT, "--count", &queries];
        let names = ["--names", "13.0.0.0/8", "--expect-prefix", "64:ff9b::/96"];
        let result = answers(lab, &[&load[..], &names, &["--offload", &offload]].concat())?;
        server.end()?;
        // strace writes its table after the end of dns64d.
        wait_until("no counts were written", LIMIT, || Ok((self.read)(folder.path()).is_ok()))?;
        let valid = result["valid"].as_f64().context("no number of answers")?;
        Ok([(self.read)(folder.path())? as f64, valid])
    }
}

/// Returns the beginning of a command that counts the system calls of a program. With `-D`, the program has the process
/// ID of the command, so that it can be ended.
fn strace(folder: &Path) -> Result<Vec<String>> {
    let table = folder.join(TABLE).to_string_lossy().into_owned();
    Ok(["strace", "-D", "-f", "-c", "-o", &table].map(str::to_owned).to_vec())
}

/// Name of strace's file.
const TABLE: &str = "table";

/// Reads the number of system calls from the last line of strace's table, such as `100.00 0.2 87 2590 147 total`.
fn system_calls(folder: &Path) -> Result<u64> {
    let text = fs::read_to_string(folder.join(TABLE))?;
    let total = text.lines().find(|line| line.ends_with(" total")).context("no total")?;
    Ok(total.split_whitespace().nth(3).context("no number of calls")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_read_from_the_total() {
        let folder = tempfile::tempdir().unwrap();
        assert!(system_calls(folder.path()).is_err(), "there is no table");
        let table = "% time seconds usecs/call calls errors syscall\n 42.06 0.094835 5268 18 4 futex\n\
                     100.00 0.225449 87 2590 147 total\n";
        fs::write(folder.path().join(TABLE), table).unwrap();
        assert_eq!(system_calls(folder.path()).unwrap(), 2_590);
    }

    #[test]
    fn events_that_were_not_counted_have_a_reason() {
        let counter = &COUNTERS[1];
        let words = counter.words(&Err("strace is not installed".into()));
        assert_eq!(words, "system calls  not measured: strace is not installed");
        assert_eq!(
            counter.words(&Ok(vec![1.0, 3.0, 2.0])),
            "system calls      2.000 (1.000 to 3.000)"
        );
    }
}
