//! A row of a campaign may claim "N cores" only if that is true. This test reads the CPU affinity of each DUT's threads
//! from /proc while the campaign runs, and compares the affinity with the results.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use hosts::cpu_list::cpu_list;
use hosts::place::CpuPlacement;
use hosts::servers::{Dut, find};
use serde_json::Value;

use common::{LENIENT_TRIAL, dns64bench, output_text, run_in};

/// Maximum time of a campaign.
const PATIENCE: Duration = Duration::from_secs(600);

/// The first lines of all plans here.
fn short() -> String {
    format!(
        "name = 'test'\ntopology = 'loopback'\n[trial]\nduration = '300ms'\n{LENIENT_TRIAL}\
         [search]\nmin = 50\nmax = 50\nresolution = 50\nrepeat = 1\ninvalid-retries = 20\n"
    )
}

/// An observed process of a DUT.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    /// Name of the folder that belongs to this start of the server.
    start: String,
    process: u32,
    /// CPUs on which one of the process's threads may run.
    cpus: Vec<usize>,
}

/// Programs that have a server's folder in their arguments and are not the server: `taskset`, until it has set the
/// affinity and becomes the server, and those that remove the folder afterwards.
const HELPERS: [&str; 3] = ["taskset", "timeout", "rm"];

/// Adds the threads of all processes that have a server's folder of this run in their command lines.
fn look(run: &Path, seen: &mut BTreeSet<Seen>) {
    let marker = format!("{}/servers/", run.display());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let words = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let Some((_, rest)) = words.split_once(&marker) else { continue };
        let program = words.split('\0').next().unwrap_or_default();
        if program.rsplit('/').next().is_some_and(|name| HELPERS.contains(&name)) {
            continue;
        }
        let start = rest.split(['/', '\0']).next().unwrap_or_default().to_owned();
        for task in fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let Some(list) =
                status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            else {
                continue;
            };
            seen.insert(Seen {
                start: start.clone(),
                process,
                cpus: cpu_list(list).into_iter().collect(),
            });
        }
    }
}

/// Runs a plan under continuous observation; returns the observations and the results.
fn watched(folder: &Path, plan: &str) -> (BTreeSet<Seen>, Value) {
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let mut command = dns64bench(folder, &["campaign", "run", "plan.toml", "--quiet"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut seen, give_up) = (BTreeSet::new(), Instant::now() + PATIENCE);
    let run = folder.canonicalize().unwrap().join("plan-run");
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > give_up {
            let _ = child.kill();
            panic!("it does not end: {}", output_text(&child.wait_with_output().unwrap()));
        }
        look(&run, &mut seen);
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{plan}\n{}", output_text(&output));
    (seen, serde_json::from_slice(&fs::read(run.join("results.json")).unwrap()).unwrap())
}

/// Returns the installed programs that this test starts as DUTs. mtd64-ng is omitted, because it needs the lab. DUTs
/// whose commands are defined by the plan are also omitted.
fn installed() -> Vec<(Dut, &'static str)> {
    let is_there = |dut: &Dut| {
        *dut == Dut::Dns64d || dut.driver().program_name().is_some_and(|name| find(name).is_some())
    };
    let here =
        Dut::ALL.iter().filter(|dut| is_there(dut) && !matches!(dut, Dut::Mtd64Ng | Dut::Custom));
    here.map(|dut| (*dut, dut.name())).collect()
}

fn word(dut: Dut) -> String {
    serde_json::to_value(dut).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn every_dut_runs_on_the_cpus_that_its_row_claims() {
    let most = net::affinity::allowed_cpus().len().min(2);
    let cores: Vec<usize> = (1..=most).collect();
    let mut plan = short() + &format!("[measure]\ncores = {cores:?}\n");
    for (dut, _) in installed() {
        plan += &format!("[[dut]]\ndriver = '{}'\n", word(dut));
    }
    let folder = tempfile::tempdir().unwrap();
    let (seen, results) = watched(folder.path(), &plan);
    for (dut, name) in installed() {
        let result = results["duts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|result| result["name"] == name)
            .unwrap();
        let points = result["points"].as_array().unwrap();
        assert_eq!(points.len(), cores.len(), "{name}: {result:#}");
        for (point, &cores) in points.iter().zip(&cores) {
            let place: CpuPlacement = serde_json::from_value(point["place"].clone()).unwrap();
            assert!(
                place.is_cores(cores),
                "{name}: {cores} cores were asked for, and it ran on: {}",
                place.in_words()
            );
            // The affinity that the test observed must be the same.
            let prefix = format!("{}-", name.to_lowercase().replace(' ', "-"));
            let own = || seen.iter().filter(|seen| seen.start.starts_with(&prefix));
            let starts: BTreeSet<&str> = own().map(|seen| seen.start.as_str()).collect();
            let of = |start: &str| -> BTreeSet<usize> {
                own()
                    .filter(|seen| seen.start == start)
                    .flat_map(|seen| seen.cpus.iter().copied())
                    .collect()
            };
            // For the points with other numbers of cores, the server was started on other CPUs.
            let same: Vec<&str> =
                starts.into_iter().filter(|start| of(start) == place.cpus).collect();
            assert!(
                !same.is_empty(),
                "{name} was never seen on {:?} only: {:?}",
                place.cpus,
                own().collect::<Vec<_>>()
            );
            if dut == Dut::KnotResolver {
                let processes: BTreeSet<u32> = own()
                    .filter(|seen| same.contains(&seen.start.as_str()))
                    .map(|seen| seen.process)
                    .collect();
                assert!(processes.len() >= cores, "{name}: {processes:?}");
            }
        }
    }
    let tables = fs::read_to_string(folder.path().join("plan-run/tables.md")).unwrap();
    assert!(
        tables.contains("| dns64d | 1, shares CPU"),
        "tester and AuthDNS may run anywhere, which the row says: {tables}"
    );
    let shared = results["noncompliance"]
        .as_array()
        .unwrap()
        .iter()
        .any(|point| point.to_string().contains("share CPUs"));
    assert!(shared, "{}", results["noncompliance"]);
}

/// A row with a number of cores exists only for a DUT that runs on exactly these CPUs.
#[test]
fn rows_show_the_actual_placement() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_dns64bench");
    let own = "listen = ['[{listen}]:{port}']\nthreads = THREADS\n[dns64]\nprefixes = [{ prefix = '{prefix}', allow-non-global = true }]\n\
               [dnssec]\nvalidate = false\n[[upstream]]\naddress = '{upstream}'\nport = {upstream-port}\n";
    let text = |threads: &str| own.replace("THREADS", threads);
    fs::write(folder.path().join("fixed.toml"), text("1")).unwrap();
    fs::write(folder.path().join("told.toml"), text("{threads}")).unwrap();
    let plan = short()
        + &format!(
            "[[dut]]\ndriver = 'dns64d'\nname = 'more threads'\nthreads = 3\n\
         [[dut]]\ndriver = 'dns64d'\nname = 'own file'\nconfig = 'fixed.toml'\n\
         [[dut]]\ndriver = 'dns64d'\nname = 'own file, told'\nconfig = 'told.toml'\nfamily = 'ipv6'\n\
         [[dut]]\ndriver = 'dns64d'\nname = 'lines'\nextra = ['[limits]', 'in-flight = 1000']\n\
         [[dut]]\ndriver = 'custom'\nname = 'command'\n\
         custom = {{ start = ['taskset', '-c', '{others}', '{program}', 'dns64d', '--config', '{{folder}}/server.conf'] }}\n\
         config = 'fixed.toml'\n",
            others = if net::affinity::allowed_cpus().len() > 1 { "0,1" } else { "0" },
        );
    let (_, results) = watched(folder.path(), &plan);
    let rows = fs::read_to_string(folder.path().join("plan-run/tables.md")).unwrap();
    let starts = |name: &str, row: &str| {
        let start = format!("| {name} | {row}");
        assert!(rows.lines().any(|line| line.starts_with(&start)), "{start}\n{rows}");
    };
    starts("more threads", "1 CPU with 3 threads");
    starts("own file", "1 CPU, threads chosen by the server");
    starts("own file, told", "1, shares CPU");
    starts("lines", "1, shares CPU");
    if net::affinity::allowed_cpus().len() > 1 {
        starts("command", "threads chosen by the server, not confined");
    }
    let configurations = results["configurations"].as_array().unwrap();
    let of = |name: &str| {
        configurations.iter().find(|one| one["server"] == name).unwrap()["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(of("lines").contains("in-flight = 1000") && of("more threads").contains("threads = 3"));
    assert!(
        of("own file, told").contains("address = '::1'")
            && of("own file").contains("address = '127.0.0.1'")
    );
    let page = fs::read_to_string(folder.path().join("plan-run/report.html")).unwrap();
    assert!(
        page.contains("Configuration of own file, told") && page.contains("in-flight = 1000"),
        "the report prints it"
    );
}

#[test]
fn missing_cpus_are_rejected_all_points_printed() {
    let folder = tempfile::tempdir().unwrap();
    let has = net::affinity::allowed_cpus().len();
    let plan = short()
        + &format!(
            "[measure]\ncores = [1, {}]\n[[dut]]\ndriver = 'dns64d'\n\
             [[dut]]\ndriver = 'dns64d'\nname = 'second'\n",
            has + 1
        );
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    let printed = output_text(&run_in(folder.path(), &["campaign", "plan", "plan.toml"]));
    let of = |word: &str| printed.lines().filter(|line| line.contains(word)).count();
    let [first, second] = ["dns64d", "second"].map(|dut| format!("{dut}, {} cores", has + 1));
    assert_eq!((of("dns64d, 1 core"), of(&first), of(&second)), (1, 1, 1), "{printed}");
    let once = format!("Not on this machine: {} cores (2 points)", has + 1);
    assert_eq!((of("Not on this machine"), of(&once)), (1, 1), "{printed}");
    let refused = run_in(folder.path(), &["campaign", "run", "plan.toml"]);
    let said = output_text(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("host dut has") && said.contains(&format!("{has} CPU")), "{said}");
    assert!(!folder.path().join("plan-run").exists(), "nothing is begun");
}
