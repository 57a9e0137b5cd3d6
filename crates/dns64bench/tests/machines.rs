//! Interfaces for other programs: comparisons with a baseline, metrics of a running measurement.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::Value;

use common::{
    LENIENT, LENIENT_TRIAL, PROGRAM, Server, dns64bench, holds, output_text, run, run_in, show,
};

/// Runs one search of a reference DUT that answers one of the two rates. The test is about neither pacing nor lateness.
fn one_search() -> String {
    format!(
        "name = 'gate'\ntopology = 'loopback'\n[trial]\nduration = '400ms'\n{LENIENT_TRIAL}\
         [search]\nmin = 100\nmax = 300\nresolution = 200\nrepeat = 1\n\
         invalid-retries = 10\n[[dut]]\ndriver = 'custom'\nname = 'reference'\n[dut.custom]\n\
         start = ['{PROGRAM}', 'reference-dut', '--listen', '[{{listen}}]:{{port}}', \
         '--ask', '{{upstream}}:{{upstream-port}}', '--burst', '50ms', '--capacity', '200']\n"
    )
}

/// Returns the object that a command prints, after a check against its schema.
fn printed(schema: &'static str, args: &[&str]) -> Value {
    let output = run(args);
    let object = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(args, &output)));
    holds(schema, &object);
    object
}

#[test]
fn printed_objects_match_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("j.jsonl");
    let journal = journal.to_str().unwrap();
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let short = [&["--duration", "300ms", "--timeout", "200ms", "--json", "--quiet"][..], &LENIENT]
        .concat();
    let with = |args: &[&'static str], server: &str| -> Vec<String> {
        let all = args.iter().chain(&short).map(|word| (*word).to_owned());
        all.chain(["--server".to_owned(), server.to_owned()]).collect()
    };
    for (schema, args) in [
        ("trial", with(&["measure", "--rate", "300"], &dut.address)),
        // There is no listener at this address, so most fields of a trial are absent.
        ("trial", with(&["measure", "--rate", "300", "--liveness", "false"], "127.0.0.1:9")),
        ("trial", with(&["measure", "--rate", "300", "--environment", "false"], &dut.address)),
        (
            "self-test",
            with(&["self-test", "--for-rate", "100", "--aaaa-share", "1"], &auth.address),
        ),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let object = printed(schema, &args);
        assert_eq!(object["schema_version"], 2);
        assert_eq!(
            object.get("environment").is_none(),
            args.contains(&"--environment"),
            "{args:?}"
        );
    }
    let mut search = with(
        &["search", "--min", "100", "--max", "200", "--repeat", "1", "--pause", "0s"],
        &dut.address,
    );
    search.extend(["--resolution", "50", "--journal", journal].map(str::to_owned));
    printed("search", &search.iter().map(String::as_str).collect::<Vec<_>>());
    for line in fs::read_to_string(journal).unwrap().lines() {
        holds("search-journal", &serde_json::from_str(line).unwrap());
    }
    printed(
        "closed-loop",
        &["closed-loop", "--server", &dut.address, "--duration", "300ms", "--json", "--quiet"],
    );
    let (ip, port) = dut.address.rsplit_once(':').unwrap();
    printed(
        "dns64perf2",
        &["closed-loop", "--dns64perf2", "0", "1", "2", "1", ip, port, "--json", "--quiet"],
    );
    printed("check", &["check", "--json"]);
    for (schema, object) in [("auth", auth.end()), ("reference-dut", dut.end())] {
        holds(schema, &object);
        assert_eq!(object["schema_version"], 2, "{schema}");
    }
    printed("send-cost", &["send-cost"]);
    let names = run(&["schema"]);
    for name in String::from_utf8(names.stdout).unwrap().lines() {
        let output = run(&["schema", name]);
        let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(schema["$id"].as_str().unwrap().starts_with("urn:dns64bench:schema:"), "{name}");
    }
    assert_eq!(run(&["schema", "trail"]).status.code(), Some(2));
}

#[test]
fn a_gate_that_cannot_decide_is_not_green() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("one.toml"), one_search()).unwrap();
    let output = run_in(folder, &["campaign", "run", "one.toml", "--dir", "a", "--quiet"]);
    assert!(output.status.success(), "{}", output_text(&output));
    fs::create_dir(folder.join("b")).unwrap();
    for file in ["journal.jsonl", "plan.toml", "environment.json"] {
        fs::copy(folder.join("a").join(file), folder.join("b").join(file)).unwrap();
    }
    // Run folders of older versions have no version in this file.
    let file = folder.join("b/environment.json");
    let mut environment: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    holds("check", &environment);
    environment.as_object_mut().unwrap().remove("schema_version").unwrap();
    fs::write(&file, environment.to_string()).unwrap();
    let output = run_in(folder, &["report", "b", "--baseline", "a"]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("accept 1: undecided: "), "{text}");
    let output = run_in(folder, &["report", "b", "--baseline", "a", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    holds("comparison", &serde_json::from_slice(&output.stdout).unwrap());
    for (args, hint) in [
        (&["report", "a", "--baseline", "a"][..], "only the baseline is given"),
        (&["report", "a", "--junit", "x"], "--baseline"),
        (&["report", "b", "--baseline", "a", "--max-regression", "5"], "5% or 0.05"),
    ] {
        let output = run_in(folder, args);
        assert!(
            output.status.code() == Some(2) && output_text(&output).contains(hint),
            "{args:?}: {}",
            output_text(&output)
        );
    }
}

/// A measurement that serves its metrics, and the address of the metrics. Dropping this value ends the measurement.
struct Shown {
    child: Child,
    address: String,
}

impl Shown {
    fn start(args: &[&str]) -> Shown {
        let mut command = dns64bench(Path::new("."), args);
        command
            .args(["--metrics", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines
            .find_map(|line| line.ok().filter(|line| line.starts_with("Metrics: ")))
            .expect("an address");
        // The rest of the output must be read, because otherwise a full pipe would block the measurement.
        thread::spawn(move || lines.for_each(drop));
        let address =
            line.trim_start_matches("Metrics: http://").trim_end_matches("/metrics").to_owned();
        Shown { child, address }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("# EOF\n"), "{text}");
        text
    }

    /// Returns the value of the sample `name` in the metrics `text`.
    fn value(text: &str, name: &str) -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    /// Scrapes the metrics until the sample `name` is above 0. Returns the metrics.
    fn wait_for(&self, name: &str) -> String {
        let mut text = String::new();
        testbed::wait_until(name, || {
            text = self.scrape();
            Shown::value(&text, name).is_some_and(|value| value > 0.0)
        });
        text
    }

    /// Returns the JSON object that the measurement prints at its end.
    fn end(mut self) -> Value {
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.child.wait().unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_trial_is_seen_while_it_runs() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let trial = [
        "measure",
        "--server",
        &dut.address,
        "--rate",
        "500",
        "--duration",
        "4s",
        "--timeout",
        "1s",
    ];
    let shown = Shown::start(&trial);
    let text = shown.wait_for("dns64bench_trial_sent");
    let value = |name| Shown::value(&text, name);
    assert_eq!(value("dns64bench_trial_running"), Some(1.0), "{text}");
    assert_eq!(value("dns64bench_trial_rate"), Some(500.0), "{text}");
    assert_eq!(value("dns64bench_trial_planned"), Some(2_000.0), "{text}");
    let sent = value("dns64bench_trial_sent").unwrap();
    assert!(sent < 2_000.0, "the trial was over already: {text}");
    assert!(text.contains("dns64bench_info{command=\"measure\""), "{text}");
    assert_eq!(shown.end()["sent"], 2_000, "nothing was left out for it");
}

#[test]
fn a_closed_loop_is_seen_while_it_runs() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let shown = Shown::start(&[
        "closed-loop",
        "--server",
        &dut.address,
        "--duration",
        "4s",
        "--outstanding",
        "2",
    ]);
    let text = shown.wait_for("dns64bench_trial_valid");
    assert_eq!(Shown::value(&text, "dns64bench_trial_running"), Some(1.0), "{text}");
    let seen = Shown::value(&text, "dns64bench_trial_sent").unwrap();
    let result = shown.end();
    assert!(seen <= result["sent"].as_f64().unwrap(), "{seen}: {result}");
}

/// The metrics of a running search contain the number of finished trials and the rate of the current trial.
#[test]
fn a_search_is_seen_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("j.jsonl");
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let range =
        ["search", "--server", &dut.address, "--min", "100", "--max", "400", "--resolution", "100"];
    let trials = ["--repeat", "3", "--duration", "500ms", "--timeout", "5s", "--pause", "200ms"];
    let journal = ["--journal", journal.to_str().unwrap()];
    let shown = Shown::start(&[&range[..], &trials, &journal, &LENIENT].concat());
    let text = shown.wait_for("dns64bench_trials_total{verdict=\"passed\"}");
    assert!(Shown::value(&text, "dns64bench_search_number").is_some_and(|n| n >= 1.0), "{text}");
    assert!(
        Shown::value(&text, "dns64bench_queries_total{outcome=\"valid\"}")
            .is_some_and(|n| n >= 50.0),
        "{text}"
    );
    assert_eq!(shown.end()["n"], 3);
}
