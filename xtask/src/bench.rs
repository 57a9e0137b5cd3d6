//! `bench`: ratios from one run, never single rates.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{self, Server};

/// Pacing of the Measurer at three rates, beside what design.md asks for.
pub(crate) fn run() -> Result<ExitCode> {
    let program = process::dns64bench()?;
    let program = program.to_string_lossy();
    let address = format!("[::1]:{}", process::free_port()?);
    let _auth = Server::start(&*program, &["auth", "--listen", &address, "--aaaa-share", "1", "--threads", "1"])?;
    thread::sleep(Duration::from_millis(300));
    println!("Pacing against AuthDNS over loopback (wanted: 100 ms window within 0.5 %, p99.9 lateness below 1000 µs)");
    println!("{:>9} {:>14} {:>14} {:>9} {:>9}", "queries/s", "100 ms window", "p99.9 late", "valid", "verdict");
    for rate in ["50000", "100000", "200000"] {
        let args = [
            "measure",
            "--server",
            &address,
            "--rate",
            rate,
            "--duration",
            "5s",
            "--aaaa-share",
            "1",
            "--json",
            "--quiet",
        ];
        let ran = process::run(&*program, &args, Duration::from_secs(60))?;
        let trial: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())?;
        let pacing = &trial["pacing"];
        let valid = trial["valid"].as_f64().unwrap_or(0.0) / trial["sent"].as_f64().unwrap_or(1.0) * 100.0;
        println!(
            "{rate:>9} {:>12.3} % {:>11.0} µs {valid:>8.3}% {:>9}",
            pacing["window_100ms_worst_pct"].as_f64().unwrap_or(f64::NAN),
            pacing["p999_us"].as_f64().unwrap_or(f64::NAN),
            trial["verdict"].as_str().unwrap_or("?")
        );
    }
    Ok(ExitCode::SUCCESS)
}
