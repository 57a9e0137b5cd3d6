//! `bench xdp`: what AF_XDP gains over sockets, on one core, side by side in one run.
//!
//! The server runs alone on CPU 1, and is asked for more than it can do from CPU 0, so what it
//! answers is what it can do. The ways take turns, in an order that changes, because this machine's
//! speed drifts.

use std::process::ExitCode;

use anyhow::{Context, Result};
use method::stats::Summary;
use serde_json::{Value, json};

use super::{AUTH, LIMIT, Lab};
use crate::claims::{Claims, Keeping, Wanted};
use crate::process::{self, find};

/// How often each way is measured with each client.
const ROUNDS: usize = 5;

/// A way for queries to get to AuthDNS: its name, and the arguments of `auth`.
const WAYS: [(&str, &[&str]); 3] = [
    ("sockets", &[]),
    ("AF_XDP, native", &["--xdp", "to-tester", "--xdp-mode", "copy"]),
    ("AF_XDP, generic", &["--xdp", "to-tester", "--xdp-mode", "generic"]),
];

/// Queries per second that a client is to send: more than it can, and than any server answers here.
const OFFERED: &str = "1400000";
/// The generic filter takes datagrams that leave together for one.
const OFFER: [&str; 2] = ["--offload", "false"];

pub(crate) fn run(keeping: &Keeping) -> Result<ExitCode> {
    let (lab, mut claims) = (Lab::up()?, Claims::default());
    println!("AuthDNS on one core, asked for more than it can do: replies in 3 s");
    let file = lab.queries()?;
    for client in ["Measurer", "kxdpgun"] {
        if client == "kxdpgun" && find(client).is_none() {
            let what = format!("AuthDNS's replies over AF_XDP by those over sockets, {client}");
            claims.hold(&what, Wanted::AtLeast(1.5), Err(format!("{client} was not found")));
            continue;
        }
        let mut replies: [Vec<f64>; 3] = Default::default();
        for round in 0..ROUNDS {
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                let answered = lab.saturated_authdns(client, &file, &OFFER, WAYS[way].1)?;
                println!("{client:<9} {:<16} {answered:>9}", WAYS[way].0);
                replies[way].push(answered as f64);
            }
        }
        for (way, (name, _)) in WAYS.iter().enumerate().skip(1) {
            let ratios: Vec<f64> = replies[way]
                .iter()
                .zip(&replies[0])
                .map(|(ours, sockets)| ours / sockets)
                .collect();
            let summary = Summary::of(&ratios).context("there are rounds")?;
            println!(
                "{client:<9} {name} by sockets: {:.2} (median; {:.2} to {:.2})",
                summary.median, summary.min, summary.max
            );
            if way == 1 {
                let what = format!("AuthDNS's replies over {name} by those over sockets, {client}");
                claims.hold(&what, Wanted::AtLeast(1.5), Ok(summary.median));
            }
        }
        claims.keep(
            &format!("replies to {client}"),
            json!(
                WAYS.iter()
                    .zip(&replies)
                    .map(|((name, _), replies)| (*name, replies))
                    .collect::<std::collections::BTreeMap<_, _>>()
            ),
        );
    }
    claims.conclude(keeping)
}

impl Lab {
    /// A file of queries for kxdpgun.
    pub(super) fn queries(&self) -> Result<String> {
        let queries: String = (0..10_000)
            .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
            .collect();
        let file = self.folder.path().join("queries");
        std::fs::write(&file, queries)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// Asks what serves AuthDNS's address for more than a core can answer, for 3 s; `more` is for the
    /// Measurer.
    pub(super) fn saturate(&self, client: &str, queries: &str, more: &[&str]) -> Result<()> {
        let address = format!("{AUTH}:53");
        if client == "Measurer" {
            let offer = [
                &["--server", &address, "--rate", OFFERED, "--duration", "3s"][..],
                &["--timeout", "100ms", "--names", "0.0.0.0/0", "--cpus", "0"],
            ];
            self.measure(&[&offer.concat()[..], more].concat()).map(drop)
        } else {
            let args =
                ["taskset", "-c", "0", "kxdpgun", "-t", "3", "-Q", OFFERED, "-i", queries, AUTH];
            process::run(&self.program, &self.exec("tester", &args), LIMIT).map(drop)
        }
    }

    /// How many replies AuthDNS, alone on CPU 1, gives to a client that saturates it; `offer` is for
    /// the client, `more` for AuthDNS.
    pub(super) fn saturated_authdns(
        &self,
        client: &str,
        queries: &str,
        offer: &[&str],
        more: &[&str],
    ) -> Result<u64> {
        let arguments = [&["--cpus", "1", "--json"], more].concat();
        let auth = self.serve_authdns(&self.program, &arguments)?;
        self.saturate(client, queries, offer)?;
        let counters: Value = serde_json::from_str(&auth.end()?)?;
        Ok(counters["replies"]["noerror"].as_u64().unwrap_or(0))
    }
}
