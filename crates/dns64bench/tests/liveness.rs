//! Absent servers, which must not be mistaken for slow ones.

mod common;

use std::net::UdpSocket;
use std::process::{Command, Stdio};

use common::{LENIENT, PROGRAM, Server, run, run_valid, show};

/// Runs a command that must end with `status` and print all of `words`.
fn ends(args: &[&str], status: i32, words: &[&str]) {
    // An invalid trial of a test about valid ones is repeated.
    let Some(output) = run_valid(args) else { return };
    let text = show(args, &output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} missing in {text}");
    }
}

#[test]
fn nobody_at_an_address_is_said_at_once_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let said = format!("nobody answers at {address}: connection refused");
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
    // Errors of the command itself come first.
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
fn silence_is_told_from_refusal() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let args = ["measure", "--server", &address, "--rate", "100", "--duration", "60s"];
    ends(&args, 4, &["no reply to 3 questions within 6 s"]);
}

/// AuthDNS has no AAAA records here: no reply is valid, but there are replies.
#[test]
fn a_server_that_answers_nothing_right_has_failed_and_is_there() {
    let auth = Server::start(&["auth", "--threads", "1"]);
    let load = [&["--duration", "300ms", "--timeout", "5s"][..], &LENIENT].concat();
    let args = [&["measure", "--server", &auth.address, "--rate", "100"], &load[..]].concat();
    ends(&args, 1, &["0 valid"]);
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let range = [
        "--min",
        "100",
        "--max",
        "200",
        "--repeat",
        "1",
        "--pause",
        "0s",
        "--invalid-retries",
        "20",
    ];
    let args = [
        &["search", "--server", &auth.address, "--journal", journal.to_str().unwrap()],
        &range[..],
        &load,
    ]
    .concat();
    ends(&args, 1, &["Trials"]);
}

#[test]
fn a_server_that_dies_in_a_search_ends_it_and_the_search_goes_on_when_it_is_back() {
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
    for word in ["nobody answers at", "connection refused", "so far passed: ", &resume] {
        assert!(text.contains(word), "{word} missing in {text}");
    }
    assert!(!text.contains("Median"), "{text}");
    // Back on the same port. The journal still has all finished trials.
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
