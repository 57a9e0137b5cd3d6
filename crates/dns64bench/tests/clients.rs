//! Clients with the interfaces of older tools, with the real program: closed loop, resperf, dns64perf++.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

use common::{INVALID, PROGRAM, Server, run, show};

fn auth() -> Server {
    Server::start(&["auth", "--aaaa-share", "1", "--threads", "1"])
}

fn port(server: &Server) -> &str {
    server.address.rsplit(':').next().unwrap()
}

fn queries(folder: &Path, count: u32) -> String {
    let lines =
        (0..count).map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n >> 8, n & 255));
    let path = folder.join("queries");
    fs::write(&path, lines.collect::<String>()).unwrap();
    path.to_string_lossy().into_owned()
}

/// Runs the program under the name of another tool, in a folder.
fn run_as(name: &str, folder: &Path, args: &[&str]) -> Output {
    let link = folder.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    }
    Command::new(link).args(args).current_dir(folder).output().unwrap()
}

fn printed(args: &[&str], output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", show(args, output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn resperf_link_prints_the_original_lines() {
    let (server, folder) = (auth(), tempfile::tempdir().unwrap());
    let queries = queries(folder.path(), 2_000);
    let args = [
        "-s",
        "127.0.0.1",
        "-p",
        port(&server),
        "-d",
        &queries,
        "-m",
        "2000",
        "-r",
        "1",
        "-c",
        "0.5",
        "-t",
        "1",
        "-i",
        "0.3",
        "-v",
        "--report",
        "--hdr-log",
        "log.hdr",
        "--json-lines",
        "lines.json",
    ];
    let text = printed(&args, &run_as("resperf", folder.path(), &args));
    for line in [
        "DNS Resolution Performance Testing Tool\n",
        "[Status] Command line: ",
        "[Status] Sending\n",
        "[Status] Ramp-up done, sending constant traffic\n",
        "[Status] Waiting for more responses\n",
        "[Status] Testing complete\n",
        "\nStatistics:\n\n  Queries sent:         2000\n  Queries completed:    2000\n  Queries lost:         0\n  Response codes:       NOERROR 2000 (100.00%)\n\n  Run time (s):         ",
        "  Maximum throughput:   ",
        "  Lost at that point:   0.00%\n",
        "  Lateness (us):",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let plot = fs::read_to_string(folder.path().join("resperf.gnuplot")).unwrap();
    let rows: Vec<Vec<f64>> = plot
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
        .collect();
    // The load takes 1.5 s, or longer if this machine stalled at the end. In floating point, 0.3 s divides 1.5 s only
    // after rounding, so the number of intervals is computed from the printed time.
    let ended = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Sending ended after:")?.strip_suffix(" s"));
    let ended: f64 = ended.unwrap().trim().parse().unwrap();
    assert!(ended >= 1.49, "{ended}");
    // A last interval that is shorter than a tenth of the width belongs to the interval before it.
    let count = (ended / 0.3 + 0.9).floor() as usize;
    assert_eq!((rows.len(), rows[0].len()), (count, 8), "{plot}");
    let last_width = ended - 0.3 * (count - 1) as f64;
    let sent: f64 =
        rows.iter().map(|row| row[2] * 0.3).sum::<f64>() + rows[count - 1][2] * (last_width - 0.3);
    assert!((sent - 2_000.0).abs() < 1.0, "{sent} queries in the plot");
    assert!(
        rows.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] <= pair[1][1] + 0.01),
        "{plot}"
    );

    let names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    for end in [".html", ".output", ".gnuplot", ".rate.svg", ".latency.svg"] {
        assert!(
            names.iter().any(|name| name.starts_with("20") && name.ends_with(end)),
            "no {end} in {names:?}"
        );
    }
    let log = fs::read(folder.path().join("log.hdr")).unwrap();
    let mut count = 0;
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let text = interval.encoded_histogram();
            let bytes = base64_decode(text);
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            count += histogram.len();
        }
    }
    assert_eq!(count, 2_000, "all round-trip times are in the log");
    let lines = fs::read_to_string(folder.path().join("lines.json")).unwrap();
    let objects: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().all(|o| o["runid"] == objects[0]["runid"]));
    assert_eq!(
        (&objects[0]["type"], &objects.last().unwrap()["type"]),
        (&"header".into(), &"stats_sum".into())
    );
    let sent: u64 =
        objects[1..objects.len() - 1].iter().map(|o| o["sent"]["queries"].as_u64().unwrap()).sum();
    assert_eq!((sent, &objects.last().unwrap()["received"]["responses"]), (2_000, &2_000.into()));
}

fn base64_decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn resperf_ends_on_its_limits() {
    let (server, folder) = (auth(), tempfile::tempdir().unwrap());
    let queries = queries(folder.path(), 100);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port().to_string();
    let common = [
        "-s",
        "127.0.0.1",
        "-d",
        &queries,
        "-m",
        "1000",
        "-r",
        "1",
        "-t",
        "0.5",
        "-P",
        "/dev/null",
    ];
    let outstanding = [&common[..], &["-p", &silent_port, "-q", "30"]].concat();
    let text = printed(&outstanding, &run_as("resperf", folder.path(), &outstanding));
    assert!(
        text.contains("[Status] Reached 30 outstanding queries\n")
            && text.contains("Queries lost:         30\n"),
        "{text}"
    );
    let end = [&common[..], &["-p", port(&server)]].concat();
    let text = printed(&end, &run_as("resperf", folder.path(), &end));
    assert!(
        text.contains("[Status] Ran out of query data, ending test at ")
            && text.contains("sent:         100\n"),
        "{text}"
    );
    let repeat = [&end[..], &["-R"]].concat();
    let text = printed(&repeat, &run_as("resperf-report", folder.path(), &repeat));
    let is_html = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().path().extension().is_some_and(|end| end == "html")
    };
    assert!(text.contains("Queries sent:         500\n"), "{text}");
    assert!(fs::read_dir(&folder).unwrap().any(is_html), "{text}");
    let unreachable = [&common[..], &["-p", "1", "-M", "tcp"]].concat();
    let output = run_as("resperf", folder.path(), &unreachable);
    assert_eq!(output.status.code(), Some(4), "{}", show(&unreachable, &output));
}

#[test]
fn malformed_lines_of_a_query_file_are_skipped() {
    let (server, folder) = (auth(), tempfile::tempdir().unwrap());
    let queries = folder.path().join("queries");
    let names =
        ["010-000-000-000.dns64perf.test", "invalid\\0quote", "010-000-000-001.dns64perf.test"];
    fs::write(&queries, names.map(|name| format!("{name} AAAA\n")).concat()).unwrap();
    let queries = queries.to_str().unwrap();
    let warning = |start: &str| format!("{start}: {queries}, line 2 is skipped: ");
    let ramp = ["-m", "4", "-r", "1", "-c", "1", "-t", "1"];
    let args = [&["-s", "127.0.0.1", "-p", port(&server), "-d", queries], &ramp[..]].concat();
    let output = run_as("resperf", folder.path(), &args);
    let text = printed(&args, &output);
    assert!(text.contains("Queries sent:         2\n"), "{text}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains(&warning("Warning")), "{err}");
    let args = [&args[..], &["-W"]].concat();
    let text = printed(&args, &run_as("resperf", folder.path(), &args));
    assert!(text.contains(&warning("Warning")), "{text}");
    let args = ["closed-loop", "--server", &server.address, "--queries", queries, "--json", "-q"];
    let output = run(&args);
    let result: Value = serde_json::from_str(&printed(&args, &output)).unwrap();
    assert_eq!(result["sent"], 2, "{result}");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains(&warning("dns64bench")), "{err}");
}

#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad");
    fs::write(&bad, "; without a question\nbad.example\n").unwrap();
    let bad = bad.to_string_lossy().into_owned();
    let key = folder.path().join("key");
    fs::write(&key, "hmac-none:a:YQ==\n").unwrap();
    let in_file = format!("@{}", key.display());
    let closed = ["closed-loop", "--server", "127.0.0.1:53"];
    for (args, hint) in [
        (vec!["resperf", "-d", &bad], "line 2"),
        (vec!["resperf", "-d", "/nonexistent"], "/nonexistent"),
        (vec!["resperf", "-d", &bad, "-f", "inet6"], "family of -f"),
        (vec!["resperf", "-y", "key"], "[algorithm:]name:secret"),
        ([&closed[..], &["--queries", &bad]].concat(), "line 2"),
        ([&closed[..], &["--tsig", "hmac-none:a:YQ=="]].concat(), "hmac-sha256"),
        ([&closed[..], &["--tsig", "@/nonexistent"]].concat(), "cannot read /nonexistent"),
        (vec!["resperf", "-y", &in_file], "hmac-sha256"),
        ([&closed[..], &["--edns-option", "3:x"]].concat(), "hexadecimal"),
        ([&closed[..], &["--names", "10.0.0.0/24", "--count", "300"]].concat(), "fewer"),
        (vec!["closed-loop", "--dns64perf2", "0", "1", "3", "1", "::1"], "'3'"),
        (
            vec!["dns64perf++", "::1", "53", "10.0.0.0/24", "300", "1", "1", "1000", "1"],
            "256 names",
        ),
    ] {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{}", show(&args, &output));
        assert!(show(&args, &output).contains(hint), "{}", show(&args, &output));
    }
}

#[test]
fn dns64perf_link_writes_the_original_files() {
    let (server, folder) = (auth(), tempfile::tempdir().unwrap());
    // The last number is the timeout in seconds. Newer versions accept 50 ports per thread before the delay.
    for last in [&["500000", "5"][..], &["50", "500000", "5"]] {
        let first = ["127.0.0.1", port(&server), "10.0.0.0/16", "1000", "1", "1"];
        let args = [&first[..], last].concat();
        let output = testbed::valid_trial(|| {
            let output = run_as("dns64perf++", folder.path(), &args);
            match output.status.code() {
                Some(INVALID) => Err(show(&args, &output)),
                _ => Ok(output),
            }
        });
        let Some(output) = output else { return };
        check_dns64perf(folder.path(), &printed(&args, &output));
    }
}

/// Checks the printed text and the files of dns64perf++ in `folder` for 1 000 queries.
fn check_dns64perf(folder: &Path, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["Sent queries: 1000", "Received answers: 1000 (100.00%)", "Valid answers: 1000 (100.00%)"]
    );
    assert!(
        lines[3].starts_with("Average round-trip time: ") && lines[3].ends_with(" ms"),
        "{text}"
    );
    assert!(lines[4].starts_with("Standard deviation of the round-trip time: "), "{text}");
    let csv = fs::read_to_string(folder.join("dns64perf.csv")).unwrap();
    assert_eq!(
        csv.lines()
            .filter(|line| line.ends_with("dns64perf.test.") || line.contains(".dns64perf.test.;"))
            .count(),
        1_000
    );
    assert!(csv.contains("delay between bursts: 500000 ns\n"), "{csv:.300}");
}

#[test]
fn experiments_of_dns64perf2_print_a_time_each() {
    let experiments = ["7", "1", "4", "1", "127.0.0.1"];
    let options = ["--aaaa-share", "1", "--liveness", "false"];
    for by_name in [false, true] {
        let (server, folder) = (auth(), tempfile::tempdir().unwrap());
        let words = [&experiments[..], &[port(&server)], &options].concat();
        let text = if by_name {
            printed(&words, &run_as("dns64perf2", folder.path(), &words))
        } else {
            let args = [&["closed-loop", "--dns64perf2"][..], &words].concat();
            printed(&args, &run(&args))
        };
        let times: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(times.len() == 256 && times.iter().all(|&ms| ms > 0.0), "{text}");
        // Every name of 7.0.0.0 to 7.0.255.255 was queried once.
        assert_eq!(server.end()["queries"]["aaaa"], 65_536);
    }
}

#[test]
fn files_and_transports_in_the_closed_loop() {
    let (server, folder) = (auth(), tempfile::tempdir().unwrap());
    let queries = queries(folder.path(), 3_000);
    let base = ["closed-loop", "--json", "--server", &server.address, "--queries", &queries];
    for more in [
        &["--transport", "udp"][..],
        &["--transport", "tcp", "--threads", "2", "--source-ports", "3"],
        &["--edns-size", "1232", "--nsid"],
    ] {
        let args = [&base[..], more].concat();
        let output = run(&args);
        let result: Value = serde_json::from_str(&printed(&args, &output)).unwrap();
        assert_eq!(
            (&result["valid"], &result["rcodes"]["0"]),
            (&3_000.into(), &3_000.into()),
            "{}",
            show(&args, &output)
        );
    }
}
