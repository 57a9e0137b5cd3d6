//! Start-up time and memory of a server.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hosts::servers::Operator;
use serde_json::{Value, json};

use super::dut::{Dut, TESTER_CPU, serve_auth, wait_until_ready};
use super::load::{MILLION, OUTSTANDING, replies};
use crate::bench::lab::{LIMIT, Lab};
use crate::process::{Server, memory};
use crate::servers::{DUT, wait_until_listens};

/// Number of starts, of which the median time counts.
const STARTS: usize = 5;
/// Time after which a server has finished its start, although no query has arrived.
const STARTED: Duration = Duration::from_secs(2);
/// Source port of the client that waits for the first answer. Its socket shows that the client is running.
const CLIENT_PORT: u16 = 40_053;
/// Number of names that are queried again to check that they are still cached, and the number of queries in flight. More
/// queries in flight would overflow the socket buffer of a server that has no other work.
const CHECKED: &str = "1000";
const CHECKED_IN_FLIGHT: &str = "20";
/// Minimum share of valid answers to the queries for the million names, and to the repeated queries.
const VALID_SHARE: f64 = 0.99;

/// Start-up time and memory of a server.
pub(super) struct Footprint {
    /// Time from the start of the program to its first answer, in milliseconds, for each start.
    pub(super) start_ms: Vec<f64>,
    /// Resident memory before the first query, in MiB.
    pub(super) idle_mib: f64,
    /// Additional resident memory for each of a million cached names, in bytes, or the reason why it is not known.
    pub(super) bytes_per_name: Result<f64, String>,
}

impl Footprint {
    /// Measures a server.
    pub(super) fn measure(lab: &Lab, dut: &Dut) -> Result<Footprint> {
        let auth = serve_auth(lab)?;
        let starts = (0..STARTS).map(|_| first_answer(lab, dut));
        let start_ms = starts.collect::<Result<Vec<_>>>()?;
        let server = dut.launch(lab, DUT, &Operator::default(), &[])?;
        wait_until_listens(&[&[lab.program.as_str()], &lab.exec("dut", &[])[..]].concat(), 53)?;
        thread::sleep(STARTED);
        let idle_mib = memory(server.pid()?)?;
        let bytes_per_name = bytes_per_name(lab, &server, idle_mib, auth);
        Ok(Footprint {
            start_ms,
            idle_mib,
            bytes_per_name: bytes_per_name.map_err(|error| format!("{error:#}")),
        })
    }

    /// Returns the results as raw data for the results file.
    pub(super) fn raw(&self) -> Value {
        json!({
            "start_ms": self.start_ms,
            "idle_mebibytes": self.idle_mib,
            "bytes_per_cached_name": self.bytes_per_name.as_ref().ok(),
        })
    }
}

/// Starts a server, and returns the time until its first answer in milliseconds. The time begins when the process
/// executes the program of the server, so it does not contain the preparation of a chroot.
fn first_answer(lab: &Lab, dut: &Dut) -> Result<f64> {
    let port = CLIENT_PORT.to_string();
    let client = ["taskset", "-c", TESTER_CPU, &lab.ours, "first-answer", DUT, &port];
    let client = Server::start(&lab.program, &lab.exec("tester", &client))?;
    let tester = [&[lab.program.as_str()], &lab.exec("tester", &[])[..]].concat();
    wait_until_listens(&tester, CLIENT_PORT)?;
    let server = dut.launch(lab, DUT, &Operator::default(), &[])?;
    let launched = Instant::now();
    while !dut.is_run_by(server.pid()?) {
        ensure!(launched.elapsed() < LIMIT, "the program was not executed");
        thread::sleep(Duration::from_micros(100));
    }
    let started = Instant::now();
    ensure!(client.wait()?.trim() == "answered", "the server does not answer");
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Queries a million names, and returns the additional memory in bytes for each of them. Then AuthDNS ends, and only
/// cached names are answered, so that evicted names are detected.
fn bytes_per_name(lab: &Lab, server: &Server, idle_mib: f64, auth: Server) -> Result<f64> {
    wait_until_ready(lab, DUT)?;
    let names = ["--server", DUT, "--names", "10.0.0.0/8", "--expect-prefix", "64:ff9b::/96"];
    let million = ["--count", &MILLION.to_string(), "--outstanding", OUTSTANDING];
    let million = replies(lab, &[&names[..], &million].concat())?;
    let taken = (memory(server.pid()?)? - idle_mib) * f64::from(1 << 20);
    drop(auth);
    let few = ["--count", CHECKED, "--outstanding", CHECKED_IN_FLIGHT];
    let few = [&few[..], &["--timeout", "1s", "--liveness", "false"]].concat();
    let again = replies(lab, &[&names[..], &few].concat())?;
    valid(&again, "cached")?;
    Ok(taken / valid(&million, "answered")?)
}

/// Returns the number of valid answers.
///
/// # Errors
/// Returns an error if too many answers are missing; `what` describes the names with a valid answer.
fn valid(result: &Value, what: &str) -> Result<f64> {
    let [sent, valid] = ["sent", "valid"].map(|key| result[key].as_f64().unwrap_or(0.0));
    ensure!(valid > sent * VALID_SHARE, "only {valid} of the first {sent} names were {what}");
    Ok(valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_names_leave_no_result() {
        let result = |valid: u32| json!({ "sent": 1000, "valid": valid });
        assert_eq!(valid(&result(999), "cached").unwrap(), 999.0);
        let error = valid(&result(12), "cached").unwrap_err().to_string();
        assert_eq!(error, "only 12 of the first 1000 names were cached");
        assert!(valid(&json!({}), "cached").is_err(), "no query was sent");
    }
}
