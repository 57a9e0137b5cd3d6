//! Absent servers, which must not be mistaken for slow ones.

mod common;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{LENIENT, PROGRAM, Server, run, run_valid, show};

/// Runs a command that must end with `status` and print all of `words`.
fn ends(args: &[&str], status: i32, words: &[&str]) {
    // A test about valid trials repeats an invalid one.
    let Some(output) = run_valid(args) else { return };
    let text = show(args, &output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} missing in {text}");
    }
}

#[test]
fn every_command_reports_an_absent_server() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let address = net::ports::free(Ipv4Addr::LOCALHOST.into()).unwrap().to_string();
    let said = format!("no answer from {address}: connection refused");
    for args in [
        &["measure", "--server", &address, "--rate", "100", "--duration", "60s"][..],
        &["self-test", "--server", &address, "--for-rate", "100", "--duration", "60s"],
        &["closed-loop", "--server", &address, "--outstanding", "1"],
        &[
            "search",
            "--server",
            &address,
            "--min",
            "100",
            "--max",
            "200",
            "--journal",
            journal.to_str().unwrap(),
        ],
    ] {
        ends(args, 4, &[&said]);
    }
    // Errors in the arguments are reported before the server is probed.
    ends(
        &["measure", "--server", &address, "--rate", "100", "--records", "x.txt"],
        2,
        &[".parquet"],
    );
    ends(
        &["closed-loop", "--server", &address, "--outstanding", "1", "--threads", "2"],
        2,
        &["--threads 2"],
    );
}

#[test]
fn silence_and_refusal_are_distinguished() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let args = ["measure", "--server", &address, "--rate", "100", "--duration", "60s"];
    ends(&args, 4, &["no reply to 3 queries within 6 s"]);
}

/// Options of a short search with this journal.
fn search_options(journal: &Path) -> Vec<&str> {
    let path = journal.to_str().unwrap();
    let range = ["--min", "100", "--max", "200", "--repeat", "1", "--pause", "0s"];
    [&["--journal", path, "--invalid-retries", "20"][..], &range, &SHORT, &LENIENT].concat()
}

const SHORT: [&str; 4] = ["--duration", "300ms", "--timeout", "5s"];

/// AuthDNS has no AAAA records here: all replies are NODATA.
#[test]
fn replies_all_wrong_in_one_way_end_with_advice() {
    let auth = Server::start(&["auth", "--threads", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let load = [&SHORT[..], &LENIENT].concat();
    let search = search_options(&journal);
    let ways: [(&[&str], &str); 3] = [
        (&["measure", "--rate", "100"], "does not synthesize"),
        (&["self-test", "--for-rate", "100"], "--aaaa-share 1"),
        (&["search"], "does not synthesize"),
    ];
    for (command, advice) in ways {
        let options = if command[0] == "search" { &search } else { &load };
        let args = [command, &["--server", &auth.address], options].concat();
        ends(&args, 4, &["every reply from", "is wrong: no AAAA record", advice]);
    }
    assert!(!fs::read_to_string(&journal).unwrap().contains("\"finished\""), "no trial was made");
    let other_domain =
        ["measure", "--rate", "100", "--server", &auth.address, "--domain", "other.test"];
    ends(&[&other_domain[..], &load].concat(), 4, &["REFUSED", "does not forward other.test"]);
}

#[test]
fn without_the_check_wrong_replies_fail_the_trial() {
    let auth = Server::start(&["auth", "--threads", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let load = [&SHORT[..], &LENIENT].concat();
    let asks = ["--server", &auth.address, "--liveness", "false"];
    ends(&[&["measure", "--rate", "100"][..], &asks, &load].concat(), 1, &["0 valid", "no AAAA"]);
    ends(&[&["self-test", "--for-rate", "100"][..], &asks, &load].concat(), 1, &["--aaaa-share 1"]);
    ends(&[&["search"][..], &asks, &search_options(&journal)].concat(), 1, &["Trials"]);
    // The same search is resumed with the liveness check. The first trial in the journal has only wrong replies.
    let resume = ["search", "--resume", journal.to_str().unwrap()];
    ends(&resume, 4, &["is wrong: no AAAA record", "start a new search", "--liveness false"]);
}

#[test]
fn a_block_without_spare_names_takes_any_reply() {
    let auth = Server::start(&["auth", "--threads", "1"]);
    let load = [&SHORT[..], &LENIENT].concat();
    let rate = ["measure", "--rate", "100", "--names", "10.0.0.0/27", "--server", &auth.address];
    ends(&[&rate[..], &load].concat(), 1, &["0 valid", "does not synthesize"]);
    // A search detects in its first trial that the server does not synthesize.
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let few = ["search", "--names", "10.0.0.0/26", "--reuse-names", "--server", &auth.address];
    let args = [&few[..], &search_options(&journal)].concat();
    ends(&args, 4, &["is wrong: no AAAA record", "start a new search"]);
    assert!(fs::read_to_string(&journal).unwrap().contains("\"verdict\":\"failed\""));
}

#[test]
fn search_resumes_after_a_server_crash() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let address = dut.address.clone();
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let journal = journal.to_str().unwrap();
    let range = [
        "--min",
        "100",
        "--max",
        "1600",
        "--resolution",
        "100",
        "--repeat",
        "4",
        "--pause",
        "300ms",
    ];
    let load = [&["--duration", "300ms", "--timeout", "3s"][..], &LENIENT].concat();
    let args =
        [&["search", "--server", &address, "--journal", journal], &range[..], &load].concat();
    let search = Command::new(PROGRAM)
        .args(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let finished =
        || std::fs::read_to_string(journal).unwrap_or_default().matches("{\"finished\"").count();
    testbed::wait_until("three trials finish", || finished() >= 3);
    drop(dut);
    let output = search.wait_with_output().unwrap();
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    let resume = format!("dns64bench search --resume {journal}");
    for word in ["no answer from", "connection refused", "so far passed: ", &resume] {
        assert!(text.contains(word), "{word} missing in {text}");
    }
    assert!(!text.contains("Median"), "{text}");
    // The server is started again on the same port. The journal still contains all finished trials.
    let before = finished();
    let listen = ["reference-dut", "--capacity", "100000", "--listen", &address];
    let mut back = Command::new(PROGRAM)
        .args(listen)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = run(&["search", "--resume", journal, "--quiet"]);
    let _ = back.kill();
    let _ = back.wait();
    assert_eq!(output.status.code(), Some(0), "{}", show(&["resume"], &output));
    assert!(finished() > before);
}
