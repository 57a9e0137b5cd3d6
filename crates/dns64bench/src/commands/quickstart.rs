//! `quickstart`: self-test and a short search on this host. Until dns64d exists, the reference DUT stands in for it.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use net::socket::Endpoint;
use serde::Serialize;

use super::self_test::SelfTestResult;
use crate::args::{self, Arguments, Quickstart};
use crate::output::{Failure, Outcome, print_json, print_points, word};
use campaign::search::SearchResult;

/// What the reference DUT is told to do; a search that is right finds it again.
const CAPACITY: u64 = 12_000;
/// The rate that the self-test is to vouch for.
const FOR_RATE: u64 = 15_000;
const TRIAL: &str = "1s";

#[derive(Serialize)]
struct QuickstartResult {
    note: &'static str,
    reference_capacity: u64,
    self_test: SelfTestResult,
    search: SearchResult,
}

const NOTE: &str = "dns64d is not built yet: the DUT here is reference-dut, a DNS64 imitation of known capacity";

pub(crate) fn run(args: &Quickstart) -> Outcome {
    let quiet = args.display.quiet || args.display.json;
    let say = |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    say("1/3  AuthDNS and the reference DUT start on loopback");
    let (auth, dut) = (free_port()?, free_port()?);
    let _auth = Server::start(&["auth", "--listen", &auth.to_string(), "--aaaa-share", "1", "--threads", "1"], auth)?;
    let capacity = CAPACITY.to_string();
    let _dut = Server::start(&["reference-dut", "--listen", &dut.to_string(), "--capacity", &capacity], dut)?;

    say(&format!("2/3  Self-test: can this machine measure up to {FOR_RATE} queries/s?"));
    let for_rate = FOR_RATE.to_string();
    let Arguments { command: args::Command::SelfTest(self_test) } =
        parse(&["self-test", "--server", &auth.to_string(), "--for-rate", &for_rate, "--duration", TRIAL, "--quiet"])?
    else {
        unreachable!("that is what was typed")
    };
    let self_test = super::self_test::self_test(&self_test)?;

    say("3/3  Search: three times, for the highest rate at which every query gets a valid reply");
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let search = search(&dut.to_string(), &self_test, folder.path(), quiet)?;
    let result = QuickstartResult { note: NOTE, reference_capacity: CAPACITY, self_test, search };
    if args.display.json {
        print_json(&result)?;
    } else {
        print(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn search(dut: &str, self_test: &SelfTestResult, folder: &Path, quiet: bool) -> Result<SearchResult, Failure> {
    let journal = folder.join("journal.jsonl").to_string_lossy().into_owned();
    let passed = self_test.passed_rate.map(|rate| rate.to_string());
    let mut typed = vec![
        "search",
        "--server",
        dut,
        "--min",
        "1000",
        "--max",
        "20000",
        "--resolution",
        "50",
        "--repeat",
        "3",
        "--pause",
        "150ms",
        "--duration",
        TRIAL,
        "--timeout",
        "250ms",
        "--expect-prefix",
        "64:ff9b::/96",
        "--journal",
        &journal,
    ];
    if let Some(passed) = &passed {
        typed.extend(["--self-test-passed", passed]);
    }
    let Arguments { command: args::Command::Search(search) } = parse(&typed)? else {
        unreachable!("that is what was typed")
    };
    let plan = search.new.resolve(&search.traffic)?;
    let mut journal =
        campaign::journal::Journal::create(Path::new(&journal), &plan).map_err(campaign::search::SearchError::from)?;
    let found = campaign::search::run(&plan, &mut journal, Vec::new(), &mut super::search::Terminal { quiet })?;
    found.ok_or_else(|| Failure::environment(anyhow::anyhow!("the search found nothing")))
}

/// What a user would have to type for the same thing.
fn parse(typed: &[&str]) -> Result<Arguments, Failure> {
    Arguments::try_parse_from(["dns64bench"].iter().chain(typed)).map_err(Failure::usage)
}

fn print(result: &QuickstartResult) {
    let (test, found) = (&result.self_test, &result.search.summary);
    let allowed = test.allowed_rate.map_or("nothing".to_owned(), |rate| format!("up to {rate} queries/s"));
    println!();
    println!("{:<34} {:>12}   what it says", "", "queries/s");
    println!(
        "{:<34} {:>12}   {}: this machine can measure {allowed}",
        "self-test of the tester",
        test.required_rate,
        word(test.verdict)
    );
    println!("{:<34} {:>12}   what the DUT can really do", "the DUT's true capacity", result.reference_capacity);
    println!("{:<34} {:>12.0}   median of {} searches", "measured, worst case", found.median, found.n);
    println!("{:<34} {:>12.0}   lowest of them", "", found.min);
    println!("{:<34} {:>12.0}   highest of them", "", found.max);
    println!();
    println!("{}", result.note);
    print_points("Lower bound", &result.search.lower_bound_reasons);
    print_points("Not RFC 8219 compliant", &result.search.noncompliance);
    println!("Next: README.md, \"A first real measurement\"");
}

/// A server that was started from this same program, and ends with this value.
struct Server {
    child: Child,
}

impl Server {
    fn start(typed: &[&str], address: SocketAddr) -> Result<Server, Failure> {
        let program = std::env::current_exe().context("cannot find this program").map_err(Failure::environment)?;
        let started = Command::new(program).args(typed).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = started.with_context(|| format!("cannot start {}", typed[0])).map_err(Failure::environment)?;
        let mut server = Server { child };
        server
            .wait_until_ready(address)
            .with_context(|| format!("{} does not serve", typed[0]))
            .map_err(Failure::environment)?;
        Ok(server)
    }

    /// Ready when the address is taken: it was free before.
    fn wait_until_ready(&mut self, address: SocketAddr) -> io::Result<()> {
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}")));
            }
            if Endpoint::listen(address, 1).is_err() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<SocketAddr, Failure> {
    let loopback = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let free = Endpoint::listen(loopback, 1).and_then(|endpoints| endpoints[0].local_address());
    free.context("cannot listen on [::1]").map_err(Failure::environment)
}
