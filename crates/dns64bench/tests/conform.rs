//! Tests of `conform` and `auth --conform` as programs. dns64d forwards to `auth --conform`, and must pass every MUST
//! and SHOULD. Checks that cannot be run are reported.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use common::{PROGRAM, holds, run, run_in, show};

/// A running server. Dropping this value ends the server.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the test authoritative server. Returns the server and its address.
fn authority(folder: &Path) -> (Running, String) {
    let mut child = Command::new(PROGRAM)
        .args(["auth", "--conform", "--listen", "127.0.0.1:0", "--status", "far.socket"])
        .args(["--anchors", "anchors.txt"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    (Running(child), address)
}

/// Returns a free port for UDP and TCP that no client is assigned meanwhile.
fn free_port() -> u16 {
    net::ports::free(Ipv4Addr::LOCALHOST.into()).unwrap().port()
}

/// Starts dns64d in front of the test authoritative server. Returns dns64d and its address as soon as it answers
/// queries.
fn dns64d(folder: &Path, far: &str) -> (Running, String) {
    let server = format!("127.0.0.1:{}", free_port());
    let upstream_port = far.rsplit(':').next().unwrap();
    let text = format!(
        "listen = ['{server}']\n[dns64]\nprefixes = [{{ prefix = '64:ff9b::/96' }}]\n\
         [dnssec]\nvalidate = false\n[[upstream]]\naddress = '127.0.0.1'\nport = {upstream_port}\n"
    );
    fs::write(folder.join("dns64d.toml"), text).unwrap();
    let child = Command::new(PROGRAM)
        .args(["dns64d", "--config", "dns64d.toml"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(fs::File::create(folder.join("dns64d.log")).unwrap())
        .spawn()
        .unwrap();
    let running = Running(child);
    let asked = ["conform", "--server", &server, "--only", "rfc7050", "--quiet"];
    testbed::wait_until("dns64d serves", || run(&asked).status.code() != Some(4));
    (running, server)
}

#[test]
fn dns64d_passes_every_must_and_should() {
    let folder = tempfile::tempdir().unwrap();
    let (_far, far) = authority(folder.path());
    let (_dns64d, server) = dns64d(folder.path(), &far);
    let args = [
        "conform",
        "--server",
        &server,
        "--name",
        "dns64d",
        "--zone",
        "conform.example",
        "--auth-status",
        "far.socket",
        "--forwards-all",
        "--json",
        "--junit",
        "junit.xml",
        "--html",
        "board.html",
        "--quiet",
    ];
    let output = run_in(folder.path(), &args);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(&args, &output)));
    holds("conform", &report);
    let outcomes = report["outcomes"].as_array().unwrap();
    let of = |verdict: &str| -> Vec<&Value> {
        outcomes.iter().filter(|outcome| outcome["verdict"] == verdict).collect()
    };
    let passes = |id: &Value| of("passed").iter().any(|outcome| outcome["id"] == *id);
    // If our advice contradicts a sentence of an RFC, dns64d passes only one of the two checks.
    let counts = |outcome: &&&Value| {
        outcome["level"] != "may"
            && outcome["level"] != "hardening"
            && !passes(&outcome["contradicts"])
    };
    let failed = of("failed");
    assert_eq!(failed.iter().filter(counts).collect::<Vec<_>>(), Vec::<&&Value>::new());
    assert_eq!(of("not-tried"), Vec::<&Value>::new());
    assert!(of("passed").len() > outcomes.len() / 2, "{:?}", of("not-offered"));
    assert_eq!(output.status.code(), Some(0), "{failed:?}");
    assert!(fs::read_to_string(folder.path().join("junit.xml")).unwrap().contains("<testsuite"));

    // A scoreboard of two servers.
    fs::write(folder.path().join("other.json"), &output.stdout).unwrap();
    let beside = ["conform", "--beside", "other.json", "--html", "two.html"];
    assert!(run_in(folder.path(), &beside).status.success());
    assert!(fs::read_to_string(folder.path().join("two.html")).unwrap().contains("dns64d"));
}

#[test]
fn checks_that_cannot_run_are_reported() {
    let silent = format!("127.0.0.1:{}", free_port());
    let output = run(&["conform", "--server", &silent, "--quiet"]);
    assert_eq!(output.status.code(), Some(4), "{}", show(&[], &output));
    // With `--json`, a server that cannot be checked is also reported as a JSON object.
    let output = run(&["conform", "--server", &silent, "--quiet", "--json"]);
    assert_eq!(output.status.code(), Some(4), "{}", show(&[], &output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        found["unchecked"].as_str().unwrap().contains("does not reply to any query"),
        "{found}"
    );
    let output = run(&["conform", "--server", &silent, "--only", "rfc6147-5.9"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&[], &output));
    let output = run(&["conform"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&[], &output));
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "conform",
        "--server",
        &silent,
        "--zone",
        "conform.example",
        "--auth-status",
        "none.socket",
    ];
    let output = run_in(folder.path(), &[&args[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(4), "{}", show(&args, &output));
    assert!(output.stdout.is_empty(), "what is our own fault is no result");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.socket"));
}

#[test]
fn the_list_needs_no_server() {
    let output = run(&["conform", "--list"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() > 100, "{text}");
    assert!(text.contains("rfc6147-5.1.2"), "{text}");
    let output = run(&["conform", "--list", "--only", "rfc7050"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() > 1, "{text}");
    assert!(text.lines().all(|line| line.starts_with("rfc7050")), "{text}");
    let output = run(&["conform", "--list", "--only", "rfc6147-5.9"]);
    assert_eq!(output.status.code(), Some(2), "{}", show(&[], &output));
}

/// JSON and JUnit XML describe the checked server, so both would be empty without a server.
#[test]
fn json_and_junit_need_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let beside = ["conform", "--beside", "other.json", "--html", "board.html"];
    for of_a_server in [&["--json"][..], &["--junit", "junit.xml"]] {
        let args = [&beside[..], of_a_server].concat();
        let output = run_in(folder.path(), &args);
        assert_eq!(output.status.code(), Some(2), "{}", show(&args, &output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("--server"));
    }
}
