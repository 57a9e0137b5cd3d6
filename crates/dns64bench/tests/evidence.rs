//! AuthDNS is part of the tester. Faults of AuthDNS never count against the DUT, and its counters are compared with the
//! trial.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testbed::wait_until;

use common::{Server, count, measure, measure_once};

/// AuthDNS, and a reference DUT that queries this AuthDNS.
struct Site {
    auth: Server,
    dut: Server,
    status: PathBuf,
    _folder: TempDir,
}

fn site(capacity: &str, asking: &[&str]) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let auth = Server::start(&["auth", "--threads", "1", "--status", status.to_str().unwrap()]);
    let dut = [&["reference-dut", "--capacity", capacity, "--ask", &auth.address], asking].concat();
    let dut = Server::start(&dut);
    Site { auth, dut, status, _folder: folder }
}

const LOAD: [&str; 4] = ["--rate", "500", "--duration", "2s"];

impl Site {
    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        // Stalls of this host must not make the trial invalid, unless a test sets a limit.
        let limit: &[&str] =
            if more.contains(&"--auth-limit") { &[] } else { &["--auth-limit", "30s"] };
        [&LOAD[..], limit, &["--auth-status", self.status.to_str().unwrap()], more].concat()
    }

    fn measure(&self, more: &[&str]) -> Option<(Value, i32)> {
        measure(&self.dut.address, &self.arguments(more))
    }

    fn measure_once(&self, more: &[&str]) -> (Value, i32) {
        measure_once(&self.dut.address, &self.arguments(more))
    }
}

/// Returns the text of the reason of this kind. A reason's text and data have the same position in their lists.
fn words<'a>(trial: &'a Value, kind: &str) -> Option<&'a str> {
    let at = trial["causes"].as_array()?.iter().position(|cause| cause["kind"] == kind)?;
    trial["reasons"][at].as_str()
}

#[test]
fn dut_with_four_upstream_queries_per_name_passes() {
    let site = site("100000", &["--ask-times", "2"]);
    let Some((trial, status)) = site.measure(&[]) else { return };
    assert_eq!((status, count(&trial, "/valid")), (0, 1000), "{trial}");
    let asked = ["aaaa", "a", "aaaa_retries", "a_retries"]
        .map(|of| count(&trial, &format!("/auth/asked/{of}")));
    assert_eq!(asked, [2000, 2000, 1000, 1000], "{trial}");
    assert!(trial["auth"]["own_time_us"]["p999"].as_f64() > Some(0.0), "{trial}");
}

#[test]
fn cached_answers_to_new_names_are_rejected() {
    let site = site("100000", &["--ask-share", "0.5"]);
    let (trial, status) = site.measure_once(&[]);
    assert_eq!(status, 3, "{trial}");
    let real = trial["deviation"]["cached_share"]["real"].as_f64().unwrap();
    assert!(
        (real - 0.5).abs() < 0.01 && words(&trial, "deviation").unwrap().contains("from its cache"),
        "{trial}"
    );
}

#[test]
fn a_dut_that_caches_nothing_has_no_cached_share() {
    let forgetful = site("100000", &[]);
    let cached = ["--cached-share", "0.6", "--timeout", "1s"];
    let (trial, status) = forgetful.measure_once(&cached);
    assert_eq!(
        (status, trial["deviation"]["cached_share"]["wanted"].as_f64()),
        (3, Some(0.6)),
        "{trial}"
    );
    // This DUT drops queries above its capacity of 5000 queries/s. The queries that fill the DUT's cache before the trial
    // must therefore be sent more slowly.
    let remembering = site("5000", &["--remember"]);
    let Some((trial, status)) = remembering.measure(&cached) else { return };
    assert_eq!((status, &trial["deviation"]), (0, &Value::Null), "{trial}");
}

#[test]
fn dut_dropping_half_the_load_fails() {
    let site = site("250", &[]);
    let Some((trial, status)) = site.measure(&[]) else { return };
    assert_eq!((status, trial["verdict"].as_str()), (1, Some("failed")), "{trial}");
    assert_eq!(trial["deviation"], Value::Null, "a failed trial has no deviation: {trial}");
}

#[test]
fn stalled_authdns_makes_the_trial_invalid() {
    let site = site("100000", &[]);
    let over = AtomicBool::new(false);
    let (trial, status) = thread::scope(|scope| {
        scope.spawn(|| {
            let kill = |signal: &str| {
                Command::new("kill").args([signal, &site.auth.id().to_string()]).status()
            };
            while !over.load(Ordering::Relaxed) {
                kill("-STOP").unwrap();
                // The stall is longer than the limit of 100 ms, so that more than one query in a thousand exceeds the
                // limit.
                thread::sleep(Duration::from_millis(300));
                kill("-CONT").unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        });
        let result = site.measure_once(&["--auth-limit", "100ms"]);
        over.store(true, Ordering::Relaxed);
        result
    });
    assert_eq!(status, 3, "{trial}");
    assert!(words(&trial, "auth_slow").unwrap().contains("AuthDNS took"), "{trial}");
}

#[test]
fn counts_are_kept_if_authdns_ends_in_the_trial() {
    let site = site("100000", &[]);
    let asked = || {
        let mut line = String::new();
        let stream = UnixStream::connect(&site.status).unwrap();
        BufReader::new(stream).read_line(&mut line).unwrap();
        count(&serde_json::from_str(&line).unwrap(), "/queries/aaaa")
    };
    let (trial, status) = thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("queries at AuthDNS", || asked() >= 200);
            Command::new("kill").args(["-KILL", &site.auth.id().to_string()]).status().unwrap();
        });
        site.measure_once(&["--timeout", "1s"])
    });
    assert_eq!((status, trial["verdict"].as_str()), (4, Some("invalid")), "{trial}");
    assert!(words(&trial, "auth_lost").unwrap().contains("counters"), "{trial}");
    let [sent, valid] = ["/sent", "/valid"].map(|of| count(&trial, of));
    assert!(0 < valid && valid <= sent, "{trial}");
}

#[test]
fn unserved_status_socket_is_an_environment_error() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let args = [
        "measure",
        "--server",
        &dut.address,
        "--rate",
        "100",
        "--duration",
        "1s",
        "--auth-status",
        "/nonexistent/s",
    ];
    let output = common::run(&args);
    let text = common::show(&args, &output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("/nonexistent/s") && text.contains("--status"), "{text}");
}

#[test]
fn auth_makes_its_status_socket_before_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("status");
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let args = ["auth", "--listen", &address, "--status", status.to_str().unwrap()];
    let fails = |what: &str| {
        let output = common::run(&args);
        let text = common::show(&args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains(what), "{text}");
    };
    fails(&address);
    assert!(!status.exists(), "a start that fails leaves no socket");
    std::fs::write(&status, "").unwrap();
    fails("status socket");
    assert!(status.exists(), "the file of another program stays");
}
