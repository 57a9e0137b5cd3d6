//! `bench dns64 --against`: compares this checkout's dns64d with another build. The two builds are measured
//! alternately.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hosts::servers::Operator;

use super::dut::{Dut, serve_auth};
use super::load::{CACHED_NAMES, Names, closed_loop_at, dnsperf};
use crate::bench::lab::Lab;
use crate::builds::{Build, Wanted, compare};
use crate::process::{self, Server, memory};
use crate::servers::DUT;

/// Number of short measurements of each build in a round.
const LOOKS: usize = 12;
const LOOK: Duration = Duration::from_millis(300);
/// Maximum number of different names in a measurement.
const NAMES_OF_A_LOOK: u32 = 1_000_000;
/// Time in which all cached names are queried at least once.
const FILL: Duration = Duration::from_millis(500);
/// Addresses of the two builds, which are exchanged after each round. Both builds run all the time, but only one is
/// queried at a time.
const ADDRESSES: [&str; 2] = [DUT, "[2001:2::1]:5353"];

/// Maximum ratio of the memory for a million names to that of the other build.
const MEMORY: f64 = 1.03;

/// Measures rates for different and cached names by closed loops, and once the memory for a million names. A rate is
/// the number of answers per second of the server's CPU time, which does not depend on the speed of the client and
/// AuthDNS on the other CPU. If `with_policies` is true, the configuration of our build also contains the lines of
/// [`policies`].
pub(crate) fn run(other: &Path, wanted: Wanted, with_policies: bool) -> Result<ExitCode> {
    let other = other
        .canonicalize()
        .with_context(|| format!("no dns64d to compare with: {}", other.display()))?;
    let lab = Lab::up(process::Build::Release)?;
    let names = Names::write(lab.folder.path())?;
    let _auth = serve_auth(&lab)?;
    let (ours, theirs) = (Dut::dns64d(&lab), Dut::of_build(&lab, other));
    let of = |build: Build| if build == Build::Ours { &ours } else { &theirs };
    let policies = Operator {
        extra: if with_policies { policies() } else { Vec::new() },
        ..Operator::default()
    };
    let plain = Operator::default();
    let figures = ["different names per CPU second", "cached names per CPU second"];
    let begin = |round| {
        Pair::start(round, |build, address| {
            let operator = if build == Build::Ours { &policies } else { &plain };
            of(build).start_with(&lab, address, operator)
        })
    };
    let code = compare(figures, wanted, LOOKS, begin, |pair, build| pair.look(&lab, build))?;
    let [ours, theirs] = [Build::Ours, Build::Theirs].map(|build| million(&lab, of(build), &names));
    let ratio = ours? / theirs?;
    println!("memory of a million names: ours / theirs {ratio:.3} (allowed {MEMORY})");
    Ok(if ratio > MEMORY { ExitCode::FAILURE } else { code })
}

/// Returns configuration lines for a thousand domains and twenty groups. The last group contains the tester, and the
/// policy for the group's domain is equal to the default.
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

/// Servers of both builds, which are started for one round.
struct Pair {
    /// Servers, indexed by build.
    servers: [Server; 2],
    round: usize,
    /// Number of measurements of each build so far.
    looks: [u32; 2],
}

impl Pair {
    fn start(round: usize, start: impl Fn(Build, &str) -> Result<Server>) -> Result<Pair> {
        let started = |build| start(build, Pair::address(round, build));
        let servers = [started(Build::Ours)?, started(Build::Theirs)?];
        Ok(Pair { servers, round, looks: [0; 2] })
    }

    /// Returns the address of a build in a round.
    fn address(round: usize, build: Build) -> &'static str {
        ADDRESSES[(round + build as usize) % 2]
    }

    /// Measures the answers per second of CPU time, first for different names, then for cached names.
    fn look(&mut self, lab: &Lab, build: Build) -> Result<[f64; 2]> {
        let number = build as usize;
        let asked = |time, names: &[&str]| {
            let names = [names, &["--expect-prefix", "64:ff9b::/96"]].concat();
            closed_loop_at(
                Pair::address(self.round, build),
                time,
                lab,
                &self.servers[number],
                &names,
                "true",
            )
        };
        // Each measurement uses different names, because AuthDNS runs through all rounds, unlike the servers.
        let first = (self.looks[number] * NAMES_OF_A_LOOK).to_string();
        let different = format!("{}.0.0.0/8", 16 + self.round % 200);
        let few = CACHED_NAMES.to_string();
        let cached = ["--names", "11.0.0.0/8", "--count", &few];
        if self.looks[number] == 0 {
            asked(FILL, &cached)?;
        }
        let new = asked(LOOK, &["--names", &different, "--first-name", &first])?;
        let known = asked(LOOK, &cached)?;
        self.looks[number] += 1;
        Ok([new.per_cpu_second(), known.per_cpu_second()])
    }
}

fn million(lab: &Lab, dut: &Dut, names: &Names) -> Result<f64> {
    let server = dut.start(lab)?;
    let before = memory(server.pid()?)?;
    dnsperf(lab, &server, &names.different, &["-n", "1", "-l", "300"])?;
    let taken = memory(server.pid()?)? - before;
    ensure!(taken > 0.0, "a million names took no memory");
    Ok(taken)
}
