//! `bench dns64 --against`: this checkout's dns64d and another build of it, in turn.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use campaign::servers::Dut as Kind;

use super::{CACHED_NAMES, DUTS, Dut, Names, closed_loop, dnsperf, program, serve_auth, start};
use crate::bench::Lab;
use crate::builds::{Build, compare};
use crate::process::memory;

/// A million names may take this much more memory than with the other build.
const MEMORY: f64 = 1.03;

/// Measures different and cached names by closed loops, and the memory of a million names once.
pub(crate) fn run(other: &Path, at_least: f64) -> Result<ExitCode> {
    let other = other
        .canonicalize()
        .with_context(|| format!("no dns64d to measure against: {}", other.display()))?;
    let lab = Lab::up()?;
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let dut = DUTS.iter().find(|dut| dut.kind == Kind::Dns64d).context("no dns64d")?;
    let ours = program(&lab, dut).context("no dns64d of ours")?;
    let of = |build: Build| if build == Build::Ours { ours.as_path() } else { other.as_path() };
    let code = compare(["different names", "cached names"], at_least, |build, round| {
        both(&lab, dut, of(build), round)
    })?;
    let [ours, theirs] =
        [Build::Ours, Build::Theirs].map(|build| million(&lab, dut, of(build), &names));
    let ratio = ours? / theirs?;
    println!("memory of a million names: ours / theirs {ratio:.3} (allowed {MEMORY})");
    Ok(if ratio > MEMORY { ExitCode::FAILURE } else { code })
}

/// Answers per second: different names, then cached ones.
fn both(lab: &Lab, dut: &Dut, program: &Path, round: usize) -> Result<[f64; 2]> {
    let server = start(lab, dut, program)?;
    // Other names in each round; the server is a new one, AuthDNS is not.
    let different = format!("{}.0.0.0/8", 16 + round);
    let translated = ["--expect-prefix", "64:ff9b::/96"];
    let new =
        closed_loop(lab, &server, &[&["--names", &different], &translated[..]].concat(), "true")?;
    let few = CACHED_NAMES.to_string();
    let cached = [&["--names", "11.0.0.0/8", "--count", &few], &translated[..]].concat();
    closed_loop(lab, &server, &cached, "true")?;
    let known = closed_loop(lab, &server, &cached, "true")?;
    Ok([new.rate, known.rate])
}

fn million(lab: &Lab, dut: &Dut, program: &Path, names: &Names) -> Result<f64> {
    let server = start(lab, dut, program)?;
    let before = memory(server.pid()?)?;
    dnsperf(lab, &server, &names.different, &["-n", "1", "-l", "300"])?;
    let taken = memory(server.pid()?)? - before;
    ensure!(taken > 0.0, "a million names took no memory");
    Ok(taken)
}
