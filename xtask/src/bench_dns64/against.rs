//! `bench dns64 --against`: this checkout's dns64d and another build of it, in turn.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use campaign::servers::{Dut as Kind, Operator};

use super::{
    CACHED_NAMES, DUTS, Dut, Names, closed_loop_for, dnsperf, program, serve_auth, start,
    start_with,
};
use crate::bench::Lab;
use crate::builds::{Build, Wanted, compare};
use crate::process::{Server, memory};

/// Short looks at each build in a round, each of a server that has just been started.
const LOOKS: usize = 4;
const LOOK: Duration = Duration::from_secs(1);
/// In which all cached names are asked for at least once.
const FILL: Duration = Duration::from_millis(500);

/// A million names may take this much more memory than with the other build.
const MEMORY: f64 = 1.03;

/// Measures different and cached names by closed loops, and the memory of a million names once. What
/// counts is answers per second of the server's CPU time: what the client and AuthDNS can do on the
/// other CPU, and how they get along there, is not the server's.
/// With `policies` ours has those of [`policies`] beside what both have.
pub(crate) fn run(other: &Path, wanted: Wanted, with_policies: bool) -> Result<ExitCode> {
    let other = other
        .canonicalize()
        .with_context(|| format!("no dns64d to measure against: {}", other.display()))?;
    let lab = Lab::up()?;
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let dut = DUTS.iter().find(|dut| dut.kind == Kind::Dns64d).context("no dns64d")?;
    let ours = program(&lab, dut).context("no dns64d of ours")?;
    let of = |build: Build| if build == Build::Ours { ours.as_path() } else { other.as_path() };
    let policies = Operator {
        extra: if with_policies { policies() } else { Vec::new() },
        ..Operator::default()
    };
    let plain = Operator::default();
    let figures = ["different names per CPU second", "cached names per CPU second"];
    let code = compare(figures, wanted, LOOKS, |build, round| {
        let operator = if build == Build::Ours { &policies } else { &plain };
        both(&lab, &start_with(&lab, dut, of(build), operator)?, round)
    })?;
    let [ours, theirs] =
        [Build::Ours, Build::Theirs].map(|build| million(&lab, dut, of(build), &names));
    let ratio = ours? / theirs?;
    println!("memory of a million names: ours / theirs {ratio:.3} (allowed {MEMORY})");
    Ok(if ratio > MEMORY { ExitCode::FAILURE } else { code })
}

/// A thousand domains and twenty groups, the last of which is the tester's; its domain's policy is
/// what is the default without all that.
fn policies() -> Vec<String> {
    let domain = |n: usize| format!("[[domain]]\ndomain = 'd{n}.example'\noff = true");
    let group = |n: usize| {
        let clients = if n == 20 { "2001:2::/48".into() } else { format!("2001:db8:{n}::/48") };
        format!(
            "[[group]]\nclients = ['{clients}']\n[[group.domain]]\ndomain = 'dns64perf.test'\nmode = 'strict'"
        )
    };
    (1..=1_000).map(domain).chain((1..=20).map(group)).collect()
}

/// Answers per second of CPU time: different names, then cached ones.
fn both(lab: &Lab, server: &Server, round: usize) -> Result<[f64; 2]> {
    // Other names in each round; the server is a new one, AuthDNS is not.
    let different = format!("{}.0.0.0/8", 16 + round);
    let translated = ["--expect-prefix", "64:ff9b::/96"];
    let few = CACHED_NAMES.to_string();
    let asked = |time, names: &[&str]| {
        closed_loop_for(time, lab, server, &[names, &translated].concat(), "true")
    };
    let cached = ["--names", "11.0.0.0/8", "--count", &few];
    let new = asked(LOOK, &["--names", &different])?;
    asked(FILL, &cached)?;
    let known = asked(LOOK, &cached)?;
    Ok([new.per_cpu_second(), known.per_cpu_second()])
}

fn million(lab: &Lab, dut: &Dut, program: &Path, names: &Names) -> Result<f64> {
    let server = start(lab, dut, program)?;
    let before = memory(server.pid()?)?;
    dnsperf(lab, &server, &names.different, &["-n", "1", "-l", "300"])?;
    let taken = memory(server.pid()?)? - before;
    ensure!(taken > 0.0, "a million names took no memory");
    Ok(taken)
}
