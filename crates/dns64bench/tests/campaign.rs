//! Campaigns on loopback with the real program: run, killed, resumed, reported.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use common::{LENIENT_TRIAL, dns64bench, holds, journal, output_text, run_in, signal_in_a_trial};

/// The plan, without its first lines.
const PLAN: &str = r#"
duration = "300ms"
records = "csv"
[search]
min = 100
max = 400
resolution = 100
repeat = 2
probe = "100ms"
invalid-retries = 20
[self-test]
min = 200
max = 1000
resolution = 800
repeat = 1
[measure]
aaaa-shares = [1]
cached-shares = [1]
[measure.loads]
shares = [0.5]
duration = "2s"
transient = "1s"
repeat = 1
[[dut]]
driver = "dns64d"
"#;

/// Returns the number of finished valid trials by point, repetition, rate and length.
fn finished(folder: &Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for entry in journal(folder).iter().filter_map(|entry| entry.get("finished")) {
        if entry["trial"]["verdict"] != "invalid" {
            let key = format!(
                "{} {} {} {}",
                entry["point"], entry["repeat"], entry["rate"], entry["length"]
            );
            *counts.entry(key).or_default() += 1;
        }
    }
    counts
}

#[test]
fn a_campaign_is_killed_resumed_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let begin = "name = 'test'\ntopology = 'loopback'\n[trial]\n";
    fs::write(folder.join("plan.toml"), format!("{begin}{LENIENT_TRIAL}{PLAN}")).unwrap();

    let plan = run_in(folder, &["campaign", "plan", "plan.toml"]);
    let printed = output_text(&plan);
    assert!(
        plan.status.success() && printed.contains("self-test") && printed.contains("load 0.5"),
        "{printed}"
    );
    assert!(!folder.join("plan-run").exists(), "`plan` does nothing");

    // The campaign is killed at several moments, and then run to the end.
    let mut first =
        dns64bench(folder, &["campaign", "run", "plan.toml", "--quiet"]).spawn().unwrap();
    testbed::wait_until("the first trials", || {
        folder.join("plan-run/journal.jsonl").exists() && journal(folder).len() >= 6
    });
    first.kill().unwrap();
    first.wait().unwrap();
    for _ in 0..2 {
        let before = journal(folder).len();
        let mut next =
            dns64bench(folder, &["campaign", "resume", "plan.toml", "--quiet"]).spawn().unwrap();
        testbed::wait_until("the resumed campaign's trials", || {
            journal(folder).len() >= before + 3
        });
        next.kill().unwrap();
        next.wait().unwrap();
    }
    let status = run_in(folder, &["campaign", "status", "plan.toml"]);
    assert!(output_text(&status).contains("to go"), "{}", output_text(&status));
    let twice = run_in(folder, &["report", "plan-run", "./plan-run", "--output", "both"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(output_text(&twice).contains("is named twice"), "{}", output_text(&twice));
    let last = run_in(folder, &["campaign", "resume", "plan-run"]);
    assert!(last.status.success(), "{}", output_text(&last));

    for (trial, times) in finished(folder) {
        assert_eq!(times, 1, "{trial} was done {times} times");
    }
    let mut files = std::collections::BTreeSet::new();
    for finished in journal(folder).iter().filter_map(|entry| entry.get("finished")) {
        let file = finished["records"].as_str().unwrap();
        assert!(files.insert(file.to_owned()), "{file} is of two trials");
        let lines = fs::read_to_string(folder.join("plan-run").join(file)).unwrap().lines().count();
        assert_eq!(lines as u64, 9 + finished["trial"]["sent"].as_u64().unwrap(), "{finished}");
    }
    let there = fs::read_dir(folder.join("plan-run/records")).unwrap().count();
    assert_eq!(there, files.len(), "nothing else is left in the folder");
    // No process is recorded as running, so servers that a kill left running have been ended.
    assert_eq!(fs::read_dir(folder.join("plan-run/running")).unwrap().count(), 0);
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("plan-run/results.json")).unwrap()).unwrap();
    holds("results", &results);
    journal(folder).iter().for_each(|line| holds("journal", line));
    let points = results["duts"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 3, "worst case, AAAA 1, cached 1: {results:#}");
    assert!(points.iter().all(|p| p["complete"] == true && p["figures"]["n"] == 2), "{results:#}");
    assert_eq!(results["duts"][0]["loads"].as_array().unwrap().len(), 1);
    assert_eq!(results["complete"], true);
    for file in [
        "report.html",
        "tables.md",
        "tables.tex",
        "report.tex",
        "results.csv",
        "figures/worst-case.svg",
        "figures/worst-case.png",
    ] {
        assert!(
            fs::metadata(folder.join("plan-run").join(file)).is_ok_and(|m| m.len() > 100),
            "{file}"
        );
    }
    let page = fs::read_to_string(folder.join("plan-run/report.html")).unwrap();
    // Links refer to parts of the page only.
    let page = page.replace("href=\"#", "");
    for outside in ["src=", "href=", "@import", "<script"] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    assert!(page.contains("Not RFC 8219 compliant"));

    let copied = Command::new("cp").args(["-r", "plan-run", "copy"]).current_dir(folder).status();
    assert!(copied.unwrap().success());
    let again = run_in(folder, &["report", "plan-run", "copy", "--output", "both"]);
    assert!(
        again.status.success() && folder.join("both/report.html").exists(),
        "{}",
        output_text(&again)
    );
}

#[test]
fn errors_are_reported_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bad.toml"), "name = 'x'\n[[dut]]\ndriver = 'unbuond'\n").unwrap();
    fs::create_dir(folder.join("there")).unwrap();
    for (args, hint) in [
        (&["campaign", "run", "bad.toml"][..], "unbuond"),
        (&["campaign", "run", "nothing.toml"], "smoke"),
        (&["campaign", "run", "smoke", "--dir", "there"], "resume"),
        (&["campaign", "status", "nothing.toml"], "nothing-run"),
        (&["report", "there"], "there is not a run folder"),
    ] {
        let output = run_in(folder, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(hint), "{args:?}: {}", output_text(&output));
    }
}

/// Returns the results of a campaign with dns64d as the only DUT, which gets `signal` in the first trial.
fn with_signal(folder: &Path, signal: &str) -> Value {
    let (script, program) = (folder.join("server"), env!("CARGO_BIN_EXE_dns64bench"));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || exec {program} dns64d \"$@\"\n\
         echo $$ > {pid}\nexec {program} dns64d \"$@\"\n",
        pid = folder.join("pid").display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Trials are long enough for the signal to arrive during one.
    let plan = format!(
        "name = 'test'\ntopology = 'loopback'\n[trial]\nduration = '3s'\n{LENIENT_TRIAL}\
         [search]\nmin = 100\nmax = 400\nresolution = 300\nrepeat = 2\ninvalid-retries = 20\n\
         [[dut]]\ndriver = 'dns64d'\nprogram = '{}'\n",
        script.display()
    );
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let output = signal_in_a_trial(folder, "search", signal);
    assert!(output.status.success(), "{}", output_text(&output));
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("plan-run/results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], true, "{results:#}");
    assert_eq!(results["duts"][0]["points"][0]["figures"]["median"], 400.0, "{results:#}");
    let page = fs::read_to_string(folder.join("plan-run/report.html")).unwrap();
    let caveats = page.split("id=\"caveats\"").nth(1).expect("caveats");
    let ends = &results["duts"][0]["points"][0]["ends"];
    let number = ends["died"].as_u64().unwrap() + ends["hung"].as_u64().unwrap();
    assert_eq!(number, 1, "{ends:#}");
    let said = format!("in 1 of {} trials of its searches", ends["of"]);
    assert!(caveats.contains(&said), "{:#}\n{caveats}", results["mishaps"]);
    results
}

#[test]
fn crashed_dut_is_restarted_and_trial_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let results = with_signal(folder.path(), "-KILL");
    let what = results["mishaps"][0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("the DUT ended with"), "{results:#}");
}

#[test]
fn hanging_dut_is_restarted_and_trial_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let results = with_signal(folder.path(), "-STOP");
    let what = results["mishaps"][0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("the DUT hangs"), "{results:#}");
}

/// Returns the results of a server that forks into the background, as under an init system. The plan contains all
/// commands for this server.
fn custom(folder: &Path, starter: &str, cpu_pids: &str) -> Value {
    let program = env!("CARGO_BIN_EXE_dns64bench");
    let script = format!(
        "cat > $1/c.toml <<EOF\nlisten = ['[$2]:$3']\n[dns64]\nprefixes = [{{ prefix = '$6', allow-non-global = true }}]\n\
         [dnssec]\nvalidate = false\n[[upstream]]\naddress = '$4'\nport = $5\nEOF\n\
         {starter} {program} dns64d --config $1/c.toml > $1/out 2>&1 &\necho $! > $1/pid\n"
    );
    fs::write(folder.join("start.sh"), script).unwrap();
    let start = folder.join("start.sh");
    let plan = format!(
        "name = 'test'\ntopology = 'loopback'\n[trial]\nduration = '500ms'\n{LENIENT_TRIAL}\
         [search]\nmin = 100\nmax = 200\nresolution = 100\nrepeat = 1\ninvalid-retries = 20\n[measure.loads]\nshares = [1]\nduration = '4s'\n\
         transient = '0s'\nrepeat = 1\n[[dut]]\ndriver = 'custom'\nname = 'daemon'\n[dut.custom]\n\
         start = ['sh', '{}', '{{folder}}', '{{listen}}', '{{port}}', '{{upstream}}', '{{upstream-port}}', '{{prefix}}']\n\
         ready = ['test', '-s', '{{folder}}/pid']\nstop = ['sh', '-c', 'kill $(cat {{folder}}/pid); echo stopped > {{folder}}/stopped']\n\
         {cpu_pids}version = ['{program}', 'dns64d', '--version']\n",
        start.display()
    );
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let output = run_in(folder, &["campaign", "run", "plan.toml"]);
    assert!(output.status.success(), "{}", output_text(&output));
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("plan-run/results.json")).unwrap()).unwrap();
    assert_eq!(results["complete"], true, "{results:#}");
    let dut = &results["duts"][0];
    assert_eq!(dut["points"][0]["figures"]["median"], 200.0, "{dut:#}");
    assert!(dut["version"].as_str().unwrap().contains("dns64d"), "{dut:#}");
    assert!(folder.join("plan-run/servers/daemon-1/stopped").exists(), "its stop command was run");
    dut["loads"][0].clone()
}

#[test]
fn custom_server_runs_by_its_commands() {
    let folder = tempfile::tempdir().unwrap();
    let load = custom(folder.path(), "", "cpu-pids = ['cat', '{folder}/pid']\n");
    assert!(
        load["cpu"]["median"].as_f64().unwrap() > 0.0,
        "its CPU time is that of cpu-pids: {load:#}"
    );
}

/// The process that started the server has ended, so the server's processes are unknown.
#[test]
fn unknown_processes_give_no_cpu_use() {
    let folder = tempfile::tempdir().unwrap();
    let load = custom(folder.path(), "setsid", "");
    assert!(load["cpu"].is_null() && load["cprdp"].is_null(), "{load:#}");
}
