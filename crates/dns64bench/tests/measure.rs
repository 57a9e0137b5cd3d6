//! The real program with real sockets on loopback.

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use method::compliance::TesterProof;
use method::verdict::Verdict;
use serde_json::{Value, json};
use tester::measurer::burst::SendCost;
use tester::measurer::plan::{Spin, Subject, TrialPlan};
use tester::measurer::result::TrialResult;
use units::{Nanos, Qps, Share};

use common::{LENIENT, PROGRAM, Server, count, holds, measure, measure_once, run, run_valid, show};

#[test]
fn every_name_of_authdns_is_valid_and_counted() {
    let auth = Server::start(&["auth", "--aaaa-share", "1", "--threads", "2"]);
    let load = ["--rate", "2000", "--duration", "1s", "--aaaa-share", "1"];
    let Some((trial, status)) = measure(&auth.address, &load) else { return };
    assert_eq!(
        (status, count(&trial, "/sent"), count(&trial, "/valid")),
        (0, 2000, 2000),
        "{trial}"
    );
    assert_eq!(trial["compliant"], false);
    assert!(trial["environment"]["kernel"].is_string());
    let counters = auth.end();
    // Invalid trials are counted as well.
    assert_eq!(count(&counters, "/queries/aaaa") % 2000, 0);
    assert_eq!(counters["queries"]["aaaa"], counters["replies"]["noerror"]);
}

#[test]
fn aaaa_share_agrees_between_measurer_and_authdns() {
    let auth = Server::start(&["auth", "--aaaa-share", "0.2"]);
    let load = ["--rate", "1000", "--duration", "1s", "--aaaa-share", "0.2"];
    let Some((trial, status)) = measure(&auth.address, &load) else { return };
    assert_eq!(
        (status, count(&trial, "/valid"), count(&trial, "/wrong/no_aaaa")),
        (1, 200, 800),
        "{trial}"
    );
}

#[test]
fn the_reference_duts_faults_are_counted_exactly() {
    let shares =
        ["--loss", "0.1", "--late-share", "0.05", "--late-by", "3s", "--wrong-share", "0.02"];
    let dut = Server::start(&[&["reference-dut", "--capacity", "100000"], &shares[..]].concat());
    let more = [
        "--rate",
        "1000",
        "--duration",
        "1s",
        "--timeout",
        "2s",
        "--expect-prefix",
        "64:ff9b::/96",
        "--accept",
        "0.83",
    ];
    let Some((trial, status)) = measure(&dut.address, &more) else { return };
    let counts =
        ["/sent", "/valid", "/lost", "/late", "/wrong/address"].map(|of| count(&trial, of));
    assert_eq!((counts, status), ([1000, 830, 100, 50, 20], 0), "{trial}");
    assert!(trial["noncompliance"].to_string().contains("83"));
}

/// The reference DUT's counters distinguish a stalled process from a lack of capacity.
#[test]
fn reference_dut_reports_time_stalled() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let signal = |name: &str| {
        let pid = dut.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    };
    signal("STOP");
    let tasks = format!("/proc/{}/task", dut.id());
    testbed::wait_until("all threads are stopped", || {
        std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.contains(") T ")
        })
    });
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0; 12], &dut.address).unwrap();
    thread::sleep(Duration::from_millis(300));
    signal("CONT");
    // The server reads datagrams in the order of arrival, so once it has answered this query it has read the first
    // datagram.
    let one = ["--rate", "1", "--duration", "1s"];
    let Some((_, status)) = measure(&dut.address, &one) else { return };
    assert_eq!(status, 0);
    let counters = dut.end();
    let waited = count(&counters, "/longest_wait_us");
    assert!(waited >= 300_000, "{counters}");
    assert!(count(&counters, "/received") >= 2, "{counters}");
    assert_eq!(count(&counters, "/over_capacity"), 0, "{counters}");
}

#[test]
fn cached_share_repeats_names_that_were_resolved() {
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let more = [
        "--rate",
        "1000",
        "--duration",
        "1s",
        "--aaaa-share",
        "1",
        "--cached-share",
        "0.8",
        "--timeout",
        "1500ms",
    ];
    let Some((trial, status)) = measure(&auth.address, &more) else { return };
    assert_eq!((status, count(&trial, "/valid")), (0, 1000), "{trial}");
    // 200 new names, and twice 500 that were resolved before.
    assert_eq!(count(&trial, "/names/count"), 1200);
}

#[test]
fn records_say_the_same_as_the_result() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000", "--loss", "0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.csv");
    let file = file.to_str().unwrap();
    let lines = folder.path().join("lines.json");
    let files = ["--records", file, "--interval", "250ms", "--json-lines", lines.to_str().unwrap()];
    let load = ["--rate", "1000", "--duration", "1s", "--timeout", "1s"];
    let Some((trial, _)) = measure(&dut.address, &[&load[..], &files].concat()) else { return };
    let lines = std::fs::read_to_string(lines).unwrap();
    let intervals: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sums = |of: &str| {
        intervals
            .iter()
            .filter(|o| o["type"] == "stats_periodic")
            .map(|o| count(o, of))
            .sum::<u64>()
    };
    assert_eq!(sums("/sent/queries"), count(&trial, "/sent"), "{lines}");
    assert_eq!(
        sums("/received/responses"),
        count(&trial, "/sent") - count(&trial, "/lost"),
        "{lines}"
    );
    let text = std::fs::read_to_string(file).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(9).map(|l| l.split(';').collect()).collect();
    assert_eq!(rows.len() as u64, count(&trial, "/sent"));
    assert_eq!(rows.iter().filter(|r| r[5] == "1").count() as u64, count(&trial, "/valid"));
    assert_eq!(
        rows.iter().filter(|r| r[3] == "0" && r[6] == "-1").count() as u64,
        count(&trial, "/lost")
    );
    // The maximum lateness computed from the send times equals that of the result, to the three digits of the
    // histogram.
    let sent: Vec<i64> = rows.iter().map(|r| r[2].parse().unwrap()).collect();
    let spread =
        sent.iter().enumerate().map(|(i, t)| t - sent[0] - i as i64 * 1_000_000).max().unwrap()
            as f64
            / 1000.0;
    let max = trial["pacing"]["max_us"].as_f64().unwrap();
    assert!(spread <= max * 1.01, "{spread} {max}");
}

#[test]
fn queries_leave_from_many_addresses() {
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let load = ["--rate", "1000", "--duration", "1s", "--source-addresses", "127.1.0.0/24"];
    for (server, more) in [
        (&auth, &["--aaaa-share", "1", "--cached-share", "0.5"][..]),
        (&dut, &["--threads", "2", "--expect-prefix", "64:ff9b::/96"]),
    ] {
        let args = [&load[..], more].concat();
        let Some((trial, status)) = measure(&server.address, &args) else { return };
        assert_eq!((status, count(&trial, "/valid")), (0, 1000), "{trial}");
        assert_eq!(trial["sending"]["source_addresses"]["prefix"], "127.1.0.0/24");
        let blocks = 1000 / count(&trial, "/sending/threads") / count(&trial, "/sending/block");
        let used = count(&trial, "/sending/source_addresses/count");
        assert!(used == blocks.min(256) || used == (blocks + 1).min(256), "{trial}");
        assert_eq!(count(&trial, "/settings/source_addresses"), 256);
        assert_eq!(count(&trial, "/wrong/destination"), 0);
    }
    // The terminal output also contains the number of addresses.
    let args = [&["measure", "--quiet", "--server", &dut.address], &load[..]].concat();
    let output = run(&args);
    assert!(show(&args, &output).contains("addresses of 127.1.0.0/24"), "{}", show(&args, &output));
}

#[test]
fn non_local_source_addresses_send_nothing() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let begin = ["--server", &address, "--source-addresses", "192.0.2.0/24"];
    for command in [
        &["measure", "--rate", "10"][..],
        &["search", "--min", "10", "--max", "20", "--journal", "/dev/null"],
        &["self-test", "--for-rate", "10"],
    ] {
        let args = [command, &begin].concat();
        let output = run(&args);
        let text = show(&args, &output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("ip route add local 192.0.2.0/24 dev lo"), "{text}");
    }
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0; 512]).is_err(), "somebody asked");
}

/// Runs `measure --plan -` with this plan on standard input.
fn measure_plan(plan: &str, more: &[&str]) -> Output {
    let args =
        [&["measure", "--plan", "-", "--json", "--quiet", "--liveness", "false"], more].concat();
    let mut command = Command::new(PROGRAM);
    let child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    // A program that rejects its options does not read its input.
    let _ = child.stdin.take().unwrap().write_all(plan.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn a_plan_as_json_is_the_trial_that_is_carried_out() {
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let mut plan = TrialPlan::new(auth.address.parse().unwrap(), Qps(700));
    (plan.duration, plan.aaaa_share) = (Nanos::SECOND, Share::ONE);
    // A stall of this host must not make replies late.
    plan.timeout = Nanos(5 * Nanos::SECOND.0);
    // These fields have no option, or were once lost in the conversion to options.
    (plan.check_own_aaaa, plan.spin, plan.first_name) = (false, Spin::Never, 77);
    plan.send_cost = Some(SendCost { wake_up: Nanos(20_000), query: Nanos(1_000) });
    plan.subject = Subject::Tester { factor: 2.2, delta: 0.1 };
    let output = measure_plan(&serde_json::to_string(&plan).unwrap(), &[]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(printed["environment"]["cpu"].is_string(), "{printed:#}");
    let trial: TrialResult = serde_json::from_value(printed).unwrap();
    assert_eq!((trial.server.as_str(), trial.rate), (auth.address.as_str(), plan.rate));
    assert_eq!((trial.names.first, trial.settings.clone()), (77, plan.sender_settings()));
    assert!(
        !trial.facts.checks_own_aaaa && trial.facts.proof == TesterProof::IsSelfTest { delta: 0.1 },
        "{:?}",
        trial.facts
    );
    assert!(trial.verdict == Verdict::Invalid || trial.counts.valid == 700, "{trial:?}");
}

#[test]
fn a_plan_that_is_none_is_bad_usage() {
    let plan = TrialPlan::new("[::1]:1".parse().unwrap(), Qps(10));
    let good = serde_json::to_string(&plan).unwrap();
    let with = |change: fn(&mut TrialPlan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        serde_json::to_string(&plan).unwrap()
    };
    let cases = [
        (good.replace("\"rate\":10", "\"rate\":\"ten\""), &[][..], "rate: 'ten' is not a rate"),
        (good.replace("\"timeout\"", "\"patience\""), &[], "unknown field `patience`"),
        (with(|plan| plan.rate = Qps(0)), &[], "--rate 0"),
        (with(|plan| plan.interval = Some(Nanos::SECOND)), &[], "--json-lines"),
        (
            with(|plan| plan.source_addresses = "2001:db8::/64".parse().ok()),
            &[],
            "ip -6 route add local 2001:db8::/64 dev lo",
        ),
        (good.clone(), &["--rate", "10"], "cannot be used with"),
        (good, &["--threads", "2"], "cannot be used with"),
    ];
    for (plan, more, words) in cases {
        let output = measure_plan(&plan, more);
        let text = show(more, &output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{words} missing in {text}");
    }
}

#[test]
fn self_test_validates_a_single_trial() {
    let folder = tempfile::tempdir().unwrap();
    let [status, file] =
        ["status", "test.json"].map(|name| folder.path().join(name).to_string_lossy().into_owned());
    let auth = Server::start(&["auth", "--aaaa-share", "1", "--status", &status]);
    let of_both = ["--duration", "1s", "--timeout", "5s", "--auth-limit", "30s"];
    let of_both = [&of_both[..], &LENIENT, &["--auth-status", &status]].concat();
    let test = ["self-test", "--server", &auth.address, "--for-rate", "500", "--repeat", "1"];
    let args = [&test[..], &["--json", "--quiet"], &of_both].concat();
    let Some(output) = run_valid(&args) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", show(&args, &output));
    std::fs::write(&file, &output.stdout).unwrap();
    let proof = |rate: &str| {
        let more = ["--rate", rate, "--aaaa-share", "1", "--self-test", &file];
        // The verdict does not matter.
        let (trial, _) = measure_once(&auth.address, &[&more[..], &of_both].concat());
        trial["facts"]["proof"].clone()
    };
    // A self-test of one second on one host validates the tester, but is itself not compliant with RFC 8219.
    let below = proof("500");
    assert!(below["not_compliant"]["delta"].is_number(), "{below}");
    let above = proof("2000");
    assert!(above["below_rate"]["allowed"].is_number(), "{above}");
    let load = ["--rate", "500", "--duration", "1s", "--aaaa-share", "1"];
    let Some((alone, _)) = measure(&auth.address, &load) else { return };
    assert_eq!(alone["facts"]["proof"], "none");
    let mut failed: Value = serde_json::from_slice(&output.stdout).unwrap();
    failed["passed_rate"] = Value::Null;
    std::fs::write(&file, failed.to_string()).unwrap();
    let range = ["search", "--server", &auth.address, "--min", "1", "--max", "2"];
    let args = [&range[..], &["--self-test", &file]].concat();
    let output = run(&args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("did not pass") && text.contains("--search-to"), "{text}");
}

#[test]
fn printed_numbers_have_plain_spaces() {
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let load = ["--rate", "2000", "--duration", "500ms", "--aaaa-share", "1"];
    let args = [&["measure", "--server", &auth.address, "--quiet"][..], &load].concat();
    let output = run(&args);
    let text = show(&args, &output);
    // The verdict does not matter.
    assert!(text.contains(" at 2 000 queries/s for 0.5 s"), "{text}");
    assert!(!text.contains('\u{202f}'), "{text}");
}

/// Returns the counters of the AuthDNS with this status socket.
fn counters_at(status: &Path) -> Value {
    let mut line = String::new();
    BufReader::new(UnixStream::connect(status).unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn authdns_shows_its_counters_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("status");
    let auth = Server::start(&["auth", "--aaaa-share", "1", "--status", socket.to_str().unwrap()]);
    let load = ["--rate", "500", "--duration", "1s", "--aaaa-share", "1"];
    let Some((trial, _)) = measure(&auth.address, &load) else { return };
    let counters = counters_at(&socket);
    holds("auth", &counters);
    // An invalid trial is repeated once.
    let (asked, sent) = (count(&counters, "/queries/aaaa"), count(&trial, "/sent"));
    assert!([sent, 2 * sent].contains(&asked) && sent == 500, "{counters}");
    assert_eq!(counters["zones"], json!([{"domain": "dns64perf.test", "aaaa_share": 1.0}]));
}

#[test]
fn loss_is_the_same_for_the_same_seed() {
    const QUERIES: u8 = 100;
    let answered = |seed: &str| {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        let settings = ["auth", "--threads", "1", "--aaaa-share", "1", "--loss", "0.3"];
        let more = ["--seed", seed, "--status", status.to_str().unwrap()];
        let auth = Server::start(&[&settings[..], &more].concat());
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut query =
            b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x0f010-000-000-001\x09dns64perf\x04test\0\0\x1c\0\x01"
                .to_vec();
        for id in 0..QUERIES {
            query[1] = id;
            client.send_to(&query, &auth.address).unwrap();
        }
        // A query is counted after its reply has been sent.
        testbed::wait_until("all queries are counted", || {
            count(&counters_at(&status), "/queries/aaaa") == u64::from(QUERIES)
        });
        client.set_nonblocking(true).unwrap();
        let mut reply = [0; 512];
        std::iter::from_fn(|| client.recv(&mut reply).ok().map(|_| reply[1])).collect::<Vec<_>>()
    };
    let first = answered("7");
    assert!((1..usize::from(QUERIES)).contains(&first.len()), "{first:?}");
    assert_eq!(first, answered("7"));
    assert_ne!(first, answered("8"));
}

#[test]
fn usage_errors_show_the_correct_form() {
    for (args, words) in [
        (&["measure", "--server", "[::1]:1", "--rate", "0"][..], "1 to 100000000"),
        (
            &["measure", "--server", "::g", "--rate", "1"],
            "write for example 2001:2::1, [2001:2::1]:5353, 198.18.0.1:53 or localhost",
        ),
        (
            &["measure", "--server", "no-such-name.invalid", "--rate", "1"],
            "--server no-such-name.invalid: ",
        ),
        (&["measure", "--server", "::1", "--rate", "-5"], "such as 20000 or 20k"),
        (&["measure", "--server", "::1", "--rate", "5", "--duration", "ten"], "10s, 250ms or 1m"),
        (&["auth", "--listen", "localhost"], "[::1]:5353"),
        (&["auth", "--listen", "::1", "--ns-address", "foo"], "write for example 198.18.0.2"),
        (&["auth", "--listen", "::1", "--ttl", "1h"], "write for example 86400"),
        (
            &["reference-dut", "--listen", "::1", "--capacity", "1", "--prefix", "64:ff9b::/96"],
            "write for example 64:ff9b::, without its length",
        ),
        (&["closed-loop", "--server", "::1", "--client-subnet", "foo"], "192.0.2.0/24"),
        (&["resperf", "-s", "::1", "-a", "foo"], "write for example 2001:2::2"),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--aaaa-share", "0.123"],
            "steps of 0.01",
        ),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--expect-prefix", "64:ff9b::/72"],
            "32, 40, 48, 56, 64 and 96",
        ),
        (&["measure", "--server", "[::1]:1", "--rate", "300000"], "0.0.0.0/0"),
        (
            &["measure", "--server", "[::1]:1", "--rate", "200000", "--source-ports", "1"],
            "--source-ports",
        ),
        (
            &["measure", "--server", "::1", "--rate", "1", "--source-addresses", "2001:2::/129"],
            "ip -6 route add local 2001:2:0:ff::/64 dev lo",
        ),
        (
            &["measure", "--server", "::1", "--rate", "1", "--source-addresses", "127.1.0.0/24"],
            "ip -6 route add local 2001:2:0:ff::/64 dev lo",
        ),
        (
            &[
                "self-test",
                "--server",
                "127.0.0.1",
                "--for-rate",
                "1",
                "--source-addresses",
                "192.0.2.0/24",
            ],
            "ip route add local 192.0.2.0/24 dev lo",
        ),
        (&["measure", "--server", "[::1]:1", "--rate", "1", "--records", "x.txt"], ".parquet"),
        (&["measure", "--server", "[::1]:1", "--rate", "1", "--interval", "1s"], "--json-lines"),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--window-limit", "0"],
            "percentage above 0",
        ),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--lateness-limit", "0s"],
            "such as 10ms",
        ),
        (
            &["search", "--server", "[::1]:1", "--min", "5", "--max", "4"],
            "--min 5 is above --max 4",
        ),
        (&["search", "--resume", "x", "--repeat", "3"], "cannot be used with"),
        (
            &["search", "--server", "[::1]:1", "--min", "5", "--max", "9", "--goal", "1%"],
            "--method mlrsearch",
        ),
        (
            &[
                "search",
                "--server",
                "[::1]:1",
                "--min",
                "5",
                "--max",
                "9",
                "--method",
                "mlrsearch",
                "--goal",
                "2",
            ],
            "below 1",
        ),
        (
            &[
                "search",
                "--server",
                "[::1]:1",
                "--min",
                "5",
                "--max",
                "9",
                "--method",
                "mlrsearch",
                "--resolution",
                "9",
            ],
            "--width",
        ),
        (&["lab", "exec", "nowhere", "true"], "tester, dut or auth"),
        (
            &["measure", "--server", "127.0.0.1:1", "--rate", "1", "--xdp", "eth9"],
            "uses loopback, where AF_XDP does not work",
        ),
        (&["merge", "Cargo.toml"], "Cargo.toml: not a JSON object"),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--metrics", "9100"],
            "write for example 127.0.0.1:9100",
        ),
        (
            &["measure", "--server", "[::1]:1", "--rate", "1", "--first-name", "99999999999"],
            "16777216 names, counted from 0",
        ),
        (
            &["measure", "--server", "[::1]:1", "--rate", "100", "--duration", "1ns"],
            "less than one query",
        ),
        (
            &["measure", "--server", "[::1]:1", "--rate", "100", "--cpus", "4000,4001"],
            "--cpus 4000: there are ",
        ),
        (
            &["search", "--server", "[::1]:1", "--min", "1", "--max", "2", "--cpus", "4000"],
            "--cpus 4000",
        ),
        (&["closed-loop", "--server", "[::1]:1", "--cpus", "4000"], "--cpus 4000"),
        (
            &[
                "measure",
                "--server",
                "[::1]:1",
                "--rate",
                "100M",
                "--duration",
                "1m",
                "--source-ports",
                "2000",
            ],
            "a lower rate",
        ),
    ] {
        let output = run(args);
        let text = show(args, &output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{words} missing in {text}");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output_text.starts_with("dns64bench: ") && !output_text.contains("error:"),
            "one prefix for all errors: {text}"
        );
    }
}

/// A search that is killed when `trials` of its trials are in the journal, and then resumed.
struct Resumed {
    /// Journal lines of all finished trials.
    finished: Vec<String>,
    /// Result, and the complete output.
    found: Value,
    text: String,
}

/// Runs the search of `args`, to which the server and the journal are added.
fn killed_and_resumed(trials: usize, server: &str, args: &[&str]) -> Resumed {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.jsonl");
    let journal = journal.to_str().unwrap();
    let args = [&["search", "--server", server, "--journal", journal], args].concat();
    let mut killed = Command::new(PROGRAM).args(args).stderr(Stdio::null()).spawn().unwrap();
    let finished = || {
        let text = std::fs::read_to_string(journal).unwrap_or_default();
        text.lines()
            .filter(|l| l.starts_with("{\"finished\""))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    testbed::wait_until("the first trials finish", || finished().len() >= trials);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let before = finished();
    let args = ["search", "--resume", journal, "--json", "--quiet"];
    let output = run(&args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let after = finished();
    assert_eq!(after[..before.len()], before[..], "finished trials stay as they are");
    let found = serde_json::from_slice(&output.stdout).unwrap();
    Resumed { finished: after, found, text }
}

#[test]
fn a_search_killed_in_the_middle_is_resumed() {
    let dut = Server::start(&["reference-dut", "--capacity", "3000"]);
    let range = [
        "--min",
        "500",
        "--max",
        "20000",
        "--resolution",
        "1000",
        "--repeat",
        "1",
        "--pause",
        "150ms",
    ];
    let trials = ["--duration", "600ms", "--timeout", "2s", "--invalid-retries", "20"];
    let Resumed { finished, found, .. } =
        killed_and_resumed(3, &dut.address, &[&range[..], &trials, &LENIENT].concat());
    assert_eq!(found["trials"].as_array().unwrap().len(), finished.len());
    let rates = |verdict: &str| -> Vec<u64> {
        let trials = found["trials"].as_array().unwrap().iter();
        let decided = trials.filter(|trial| trial["verdict"] == verdict);
        decided.map(|trial| trial["rate"].as_u64().unwrap()).collect()
    };
    let (passed, failed) = (rates("passed"), rates("failed"));
    let decided = [&passed[..], &failed].concat();
    let unique: BTreeSet<u64> = decided.iter().copied().collect();
    assert_eq!(unique.len(), decided.len(), "no passed or failed trial is repeated: {decided:?}");
    let highest = passed.iter().max().map(|&rate| rate as f64);
    assert_eq!(found["median"].as_f64(), highest, "{passed:?} {failed:?}");
}

#[test]
fn an_mlrsearch_finds_each_goal_and_is_resumed() {
    let dut = Server::start(&["reference-dut", "--capacity", "3000"]);
    let goals = ["--method", "mlrsearch", "--goal", "20%,final=200ms", "--width", "20%"];
    let range = ["--min", "500", "--max", "20000", "--repeat", "1", "--pause", "150ms"];
    let trials = ["--duration", "1200ms", "--timeout", "1s", "--invalid-retries", "20"];
    let Resumed { found, text, .. } =
        killed_and_resumed(2, &dut.address, &[&goals[..], &range, &trials, &LENIENT].concat());
    let goals = found["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 2, "RFC 8219's goal and the other one: {text}");
    let strict = &found["repeats"][0];
    assert_eq!(goals[0]["searches"][0]["relevant_lower_bound"], strict["highest"]);
    let passed = strict["highest"].as_u64().unwrap();
    let is_the_proof = |t: &&Value| t["rate"] == passed && t["duration_s"] == 1.2;
    let proof = found["trials"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_the_proof)
        .any(|t| t["verdict"] == "passed");
    assert!(proof, "a trial of full length passed at the lower bound: {text}");
    let tolerant = goals[1]["searches"][0]["relevant_lower_bound"].as_u64().unwrap();
    assert!(tolerant >= passed, "a goal with 20 % loss is at least as high: {tolerant}");
}
