//! `bench`: benchmarks whose results are ratios of rates from the same run. A single rate is never a result.

pub(crate) mod against;
pub(crate) mod instructions;
pub(crate) mod lab;
mod mlrsearch;
mod xdp;

use std::process::ExitCode;

use anyhow::{Context, Result};
use hosts::servers::Auth;
use method::stats::Summary;
use method::verdict::Verdict;
use serde_json::{Value, json};

use self::lab::{AUTH, LIMIT, Lab, highest, ratio, reasons, verdict, words};
use crate::claims::{Bound, Claims, ResultOptions};
use crate::process::{find, output};
use crate::servers::{authoritative, wait_until_answers};

pub(crate) use instructions::Instructions;
pub(crate) use mlrsearch::Mlrsearch;
pub(crate) use xdp::run as xdp;

pub(crate) fn run(keeping: &ResultOptions) -> Result<ExitCode> {
    let (lab, mut claims) = (Lab::up(keeping.build())?, Claims::default());
    pacing(&lab, &mut claims)?;
    auth_against_reflector(&lab, &mut claims)?;
    self_test_against_classic(&lab, &mut claims)?;
    claims.conclude(keeping)
}

/// Number of valid trials to evaluate at a rate, and maximum number of attempts. A comparison of several trials reveals
/// the effect of a single stall.
const SOUND: usize = 3;
const TRIED: usize = 6;

fn pacing(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let address = format!("{AUTH}:53");
    let _auth = lab.serve_authdns(&lab.program, &[])?;
    println!("Pacing against AuthDNS over veth");
    println!(
        "{:>9} {:>14} {:>14} {:>9} {:>9}",
        "queries/s", "100 ms window", "p99.9 late", "valid", "verdict"
    );
    let mut all = Vec::new();
    for rate in ["50000", "100000", "200000"] {
        let mut sound: Vec<[f64; 2]> = Vec::new();
        let mut reason = String::new();
        for _ in 0..TRIED {
            let length = ["--duration", "10s", "--timeout", "250ms"];
            let trial =
                lab.measure(&[&["--server", &address, "--rate", rate], &length[..]].concat())?;
            let number =
                |pointer: &str| trial.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN);
            let (window, late) =
                (number("/pacing/window_100ms_worst_pct"), number("/pacing/p999_us"));
            let words = trial["verdict"].as_str().unwrap_or("?");
            let valid = number("/valid") / number("/sent") * 100.0;
            println!("{rate:>9} {window:>12.3} % {late:>11.0} µs {valid:>8.3}% {words:>9}");
            if verdict(&trial)? == Verdict::Invalid {
                reason = reasons(&trial);
                println!("          {reason}");
            } else {
                sound.push([window, late]);
            }
            all.push(trial);
            if sound.len() == SOUND {
                break;
            }
        }
        let median =
            |of: usize| match Summary::of(&sound.iter().map(|trial| trial[of]).collect::<Vec<_>>())
            {
                Some(summary) if sound.len() == SOUND => Ok(summary.median),
                _ => Err(format!(
                    "not decided: {} of {TRIED} trials were valid: {reason}",
                    sound.len()
                )),
            };
        let what = |of: &str| format!("pacing at {rate} queries/s: {of}");
        claims.hold(&what("worst window of 100 ms, %"), Bound::AtMost(0.5), median(0));
        claims.hold(&what("p99.9 of lateness, µs"), Bound::AtMost(1_000.0), median(1));
    }
    claims.keep("pacing", Value::Array(all));
    Ok(())
}

/// Measures how many replies per second AuthDNS and a null reflector send under overload. Each of the two runs alone on
/// CPU 1.
fn auth_against_reflector(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\nSaturated server on one core: replies in 3 s, AuthDNS against a null reflector");
    let file = lab.queries()?;
    let address = format!("{AUTH}:53");
    for client in ["Measurer", "kxdpgun"] {
        let what = format!("AuthDNS's replies divided by a null reflector's, client {client}");
        if client == "kxdpgun" && find(client).is_none() {
            claims.hold(&what, Bound::AtLeast(0.9), Err("kxdpgun not found".into()));
            continue;
        }
        let ours = lab.saturated_authdns(client, &file, &[], &[])?;
        let reflector = lab.serve(&[&lab.ours, "reflect", &address, "1"])?;
        lab.saturate(client, &file, &[])?;
        let null: u64 =
            reflector.end()?.trim().parse().context("the reflector printed no number")?;
        let ratio = ours as f64 / null as f64;
        println!("{client:<9} AuthDNS {ours:>9}, reflector {null:>9}: {:.1} %", ratio * 100.0);
        claims.hold(&what, Bound::AtLeast(0.9), Ok(ratio));
        claims.keep(&format!("replies to {client}"), json!({ "authdns": ours, "reflector": null }));
    }
    Ok(())
}

/// Measures the highest rate at which the self-test passes. Compares our Measurer and AuthDNS with a dns64perf++-style
/// sender and NSD on one core.
fn self_test_against_classic(lab: &Lab, claims: &mut Claims) -> Result<()> {
    println!("\nSelf-test on this machine's cores");
    let what = "highest rate of the self-test divided by that of a dns64perf++-style sender";
    let wanted = 3.0;
    if find("nsd").is_none() {
        claims.hold(what, Bound::AtLeast(wanted), Err("nsd not found".into()));
        return Ok(());
    }
    let address = format!("{AUTH}:53");
    let auth = lab.serve_authdns(&lab.program, &[])?;
    let ours = highest(|rate| {
        let rate = rate.to_string();
        verdict(&lab.measure(&[
            "--server",
            &address,
            "--rate",
            &rate,
            "--duration",
            "2s",
            "--timeout",
            "250ms",
            "--offload",
            "false",
            "--names",
            "0.0.0.0/0",
        ])?)
    })?;
    drop(auth);

    let zone = lab.folder.path().join("zone");
    let zone = zone.to_string_lossy();
    output(
        &lab.program,
        &["zone", "--names", "10.0.0.0/16", "--aaaa-share", "1", "--output", &zone],
        LIMIT,
    )?;
    let nsd =
        authoritative(Auth::Nsd, &lab.folder.path().join("nsd"), address.parse()?, &zone, &[])?;
    let _nsd = lab.serve(&nsd.iter().map(String::as_str).collect::<Vec<_>>())?;
    wait_until_answers(&lab.program, &address, &["--names", "10.0.255.0/24", "--aaaa-share", "1"])?;
    let theirs = highest(|rate| {
        let rate = rate.to_string();
        let answered = output(
            &lab.program,
            &lab.exec("tester", &[&lab.ours, "classic", &address, &rate, "2"]),
            LIMIT,
        )?;
        // This sender does not detect its own delays, so none of its trials is invalid.
        Ok(if answered.trim() == "1" { Verdict::Passed } else { Verdict::Failed })
    })?;
    println!("ours {}, dns64perf++-style {}", words(&ours), words(&theirs));
    claims.hold(what, Bound::AtLeast(wanted), ratio(&ours, &theirs, wanted));
    claims.keep("self-test", json!({ "ours": ours, "classic": theirs }));
    Ok(())
}
