//! Conventions that people and shells rely on: closed pipes, full disks, Ctrl-C.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use common::{LENIENT, PROGRAM, Server, run, show};
use serde_json::Value;

/// Runs the program with a standard output that no process reads.
fn unread(args: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Command::new(PROGRAM).args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_broken_pipe_ends_quietly() {
    for args in [
        &["campaign", "plan", "paper"][..],
        &["campaign", "show", "paper"],
        &["check"],
        &["check", "--json"],
        &["zone", "--names", "10.0.0.0/24"],
        &["send-cost"],
    ] {
        let output = unread(args);
        assert_eq!(
            (output.status.code(), &output.stderr[..]),
            (Some(141), &b""[..]),
            "{}",
            show(args, &output)
        );
    }
}

#[test]
fn full_disk_gives_a_clear_error() {
    for args in [&["campaign", "show", "paper"][..], &["check", "--json"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(PROGRAM).args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let text = show(args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("No space left") && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn trial_continues_with_closed_standard_error() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let args = [
        "measure",
        "--server",
        &dut.address,
        "--rate",
        "200",
        "--duration",
        "2s",
        "--timeout",
        "1s",
        "--json",
    ];
    let output =
        Command::new(PROGRAM).args(args).stdout(Stdio::piped()).stderr(writer).output().unwrap();
    let trial: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(&args, &output)));
    assert_eq!(trial["sent"], 400);
}

/// Starts the program in `folder`. Sends `signal` after the program has written a line that contains `until` to
/// standard error, and waits until the program ends. Progress lines of trials that have sent nothing do not count.
fn interrupted(folder: &Path, signal: &str, until: &str, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args);
    interrupted_command(command, folder, signal, until)
}

/// Same as [`interrupted`], but for a given command.
fn interrupted_command(mut command: Command, folder: &Path, signal: &str, until: &str) -> Output {
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut before = String::new();
    while !before.lines().any(|line| line.contains(until) && !line.contains(": 0 of ")) {
        assert!(stderr.read_line(&mut before).unwrap() > 0, "{command:?} said only {before}");
    }
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
    let rest = thread::spawn(move || {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut rest).map(|_| rest)
    });
    let mut output = child.wait_with_output().unwrap();
    output.stderr = format!("{before}{}", rest.join().unwrap().unwrap()).into_bytes();
    output
}

fn files(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn interrupted_trial_shows_result_leaves_no_file() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    for signal in ["-INT", "-TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let args = [
            "measure",
            "--server",
            &dut.address,
            "--rate",
            "500",
            "--records",
            "r.csv",
            "--json-lines",
            "l",
            "--json",
        ];
        let output = interrupted(folder.path(), signal, " sent, ", &args);
        let text = show(&args, &output);
        assert_eq!(output.status.code(), Some(130), "{text}");
        let trial: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
        let sent = trial["sent"].as_u64().unwrap();
        assert!((1..30_000).contains(&sent), "{text}");
        assert_eq!(
            (&trial["verdict"], &trial["causes"][0]["kind"]),
            (&"invalid".into(), &"interrupted".into()),
            "{text}"
        );
        // The trial sends 500 queries per second.
        assert_eq!((trial["duration_s"].as_f64().unwrap() * 500.0).round(), sent as f64, "{text}");
        assert_eq!(files(folder.path()), [""; 0], "{text}");
    }
}

#[test]
fn interrupted_search_reports_rates_and_resume() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let folder = tempfile::tempdir().unwrap();
    let range =
        ["search", "--server", &dut.address, "--min", "100", "--max", "9000", "--journal", "j"];
    let trials =
        ["--duration", "1s", "--timeout", "5s", "--pause", "60s", "--invalid-retries", "0"];
    let args = [&range[..], &trials, &LENIENT, &["--json"]].concat();
    // After the verdict of the first trial, the search prints that it pauses for a minute.
    let output = interrupted(folder.path(), "-INT", "Pause of 1m, then trial 2 of about ", &args);
    let text = show(&args, &output);
    assert!(text.contains("trial 1 of about ") && text.contains(" to go, until "), "{text}");
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(
        text.contains("dns64bench search --resume j") && text.contains("interrupted; "),
        "{text}"
    );
    assert_eq!(files(folder.path()), ["j"], "{text}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let trials = result["trials"].as_array().map(Vec::len);
    assert_eq!((&result["interrupted"], &result["n"], trials), (&true.into(), &0.into(), Some(1)));
    assert_eq!(result["repeats"].as_array().map(Vec::len), Some(0), "{result}");
}

#[test]
fn interrupted_self_test_reports_passed_rate() {
    let auth = Server::start(&["auth", "--aaaa-share", "1"]);
    let folder = tempfile::tempdir().unwrap();
    let args = ["self-test", "--server", &auth.address, "--for-rate", "300"];
    let output = interrupted(folder.path(), "-INT", " sent, ", &args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("no trial has passed"), "{text}");
}

#[test]
fn self_test_without_aaaa_records_gives_reason() {
    let auth = Server::start(&["auth"]);
    let args = ["self-test", "--server", &auth.address, "--for-rate", "100", "--duration", "1s"];
    let output = run(&args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("no AAAA record") && text.contains("--aaaa-share 1"), "{text}");
}

#[test]
fn interrupted_closed_loop_shows_result() {
    let dut = Server::start(&["reference-dut", "--capacity", "1000000"]);
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    let args = [
        "closed-loop",
        "--server",
        &dut.address,
        "--outstanding",
        "4",
        "--duration",
        "300s",
        "--timeout",
        "1s",
        "--json",
        "--json-lines",
        lines.to_str().unwrap(),
    ];
    let output = interrupted(folder.path(), "-INT", "4 queries in flight for 5m: ", &args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(result["interrupted"] == true && result["valid"].as_u64() > Some(0), "{text}");
    assert!(
        result["duration_s"].as_f64() < Some(300.0) && result["qps"].as_f64() > Some(0.0),
        "{text}"
    );
    assert!(!lines.exists());
}

#[test]
fn interrupted_older_tools_show_partial_results() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let (address, port) = dut.address.rsplit_once(':').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let args = ["dns64perf++", address, port, "10.0.0.0/8", "60000", "1", "1", "1000000", "1"];
    let output = interrupted(folder.path(), "-INT", " sent, ", &args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Sent queries: "), "{text}");
    assert_eq!(files(folder.path()), [""; 0], "{text}");

    fs::write(folder.path().join("queries"), "0-0-0-1.dns64perf.test AAAA\n").unwrap();
    let args = ["resperf", "-s", address, "-p", port, "-d", "queries", "-m", "1000", "-R"];
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&2", PROGRAM]).args(args);
    let output = interrupted_command(command, folder.path(), "-TERM", "[Status] Sending");
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Testing complete (interruption)"), "{text}");
    assert!(text.contains("Maximum throughput"), "{text}");
}

#[test]
fn common_forms_of_addresses_rates_times_parse() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let port = dut.address.rsplit(':').next().unwrap();
    let server = format!("localhost:{port}");
    // localhost may be ::1 here, without a listener; the test is that the name is accepted.
    for server in [dut.address.as_str(), &server] {
        let args = [
            "measure",
            "--server",
            server,
            "--rate",
            "0.2k",
            "--duration",
            "0.5",
            "--timeout",
            "1",
            "--json",
            "-q",
        ];
        let output = Command::new(PROGRAM).args(args).output().unwrap();
        let text = show(&args, &output);
        assert_ne!(output.status.code(), Some(2), "{text}");
        if output.status.code() != Some(4) {
            let trial: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(
                (&trial["rate"], &trial["duration_s"], &trial["timeout_s"]),
                (&200.into(), &0.5.into(), &1.0.into())
            );
        }
    }
}

#[test]
fn logs_have_no_colours_where_no_terminal_reads_them() {
    let queries = tempfile::NamedTempFile::new().unwrap();
    fs::write(queries.path(), "a.example AAAA\n").unwrap();
    let args = [
        "closed-loop",
        "--server",
        "127.0.0.1:9",
        "--queries",
        queries.path().to_str().unwrap(),
        "--timeout",
        "100ms",
    ];
    let output = Command::new(PROGRAM).args(args).env("DNS64BENCH_LOG", "info").output().unwrap();
    let text = show(&args, &output);
    assert!(text.contains("INFO") && !text.contains('\u{1b}'), "{text}");
}

/// Runs the program on a separate terminal (script(1)); returns the terminal output.
fn on_a_terminal(environment: &[(&str, &str)], args: &[&str]) -> String {
    let command = [&[PROGRAM], args].concat().join(" ");
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let output = script.stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn terminal_output_is_coloured_unless_disabled() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let measure = [
        "measure",
        "--server",
        &dut.address,
        "--rate",
        "100",
        "--duration",
        "200ms",
        "--timeout",
        "1s",
        "-q",
    ];
    let coloured = |text: &str, words: [&str; 3]| words.iter().any(|word| text.contains(word));
    let verdicts = [
        "\u{1b}[1;32mpassed\u{1b}[0m",
        "\u{1b}[1;31mfailed\u{1b}[0m",
        "\u{1b}[1;33mINVALID\u{1b}[0m",
    ];
    let marks = ["\u{1b}[1;32m✓\u{1b}[0m", "\u{1b}[1;33m!\u{1b}[0m", "\u{1b}[1;33m!\u{1b}[0m"];
    for (args, words) in [(&measure[..], verdicts), (&["check"], marks)] {
        let shown = on_a_terminal(&[], args);
        assert!(coloured(&shown, words), "{shown}");
        let plain = [
            on_a_terminal(&[("NO_COLOR", "1")], args),
            on_a_terminal(&[("TERM", "dumb")], args),
            show(args, &common::run(args)),
        ];
        assert!(plain.iter().all(|text| !text.contains('\u{1b}') && text.len() > 20), "{plain:?}");
    }
}

#[test]
fn progress_on_a_dumb_terminal_is_lines() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let measure = ["measure", "--server", &dut.address, "--rate", "100", "--duration", "2s"];
    let redraws = |term| {
        let shown = on_a_terminal(&[("TERM", term)], &measure);
        assert!(shown.contains("200 of 200 sent, ") || shown.contains("/200 sent, "), "{shown}");
        shown.contains("\u{1b}[2K") || shown.contains("\u{1b}[1A")
    };
    assert_eq!(["xterm", "dumb"].map(redraws), [true, false]);
}

#[test]
fn check_strict_returns_status_4() {
    let output = common::run(&["check", "--json"]);
    let environment: Value = serde_json::from_slice(&output.stdout).unwrap();
    let concerns = environment["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| !f["concern"].is_null())
        .count();
    let strict = common::run(&["check", "--json", "--strict"]);
    let status = if concerns > 0 { 4 } else { 0 };
    assert_eq!(
        (output.status.code(), strict.status.code()),
        (Some(0), Some(status)),
        "{concerns} concerns"
    );
}

#[test]
fn every_command_prints_its_version() {
    for command in ["measure", "search", "campaign", "auth", "queryfile"] {
        let output = common::run(&[command, "--version"]);
        assert!(output.status.success(), "{}", show(&[command], &output));
    }
}

/// Runs the program as a user other than root, with a runtime folder of the user.
fn as_a_user(runtime: &Path, args: &[&str]) -> Output {
    let mut command = match is_root() {
        true => {
            fs::set_permissions(runtime, fs::Permissions::from_mode(0o777)).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", PROGRAM]);
            command
        }
        false => Command::new(PROGRAM),
    };
    let places =
        ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME", "TMPDIR"].map(|name| (name, runtime));
    command.args(args).envs(places).stdin(Stdio::null()).output().unwrap()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Returns the ids of processes that hold a namespace of a lab.
fn holders() -> Vec<String> {
    let holds = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.ends_with(b"\0lab\0hold\0")
    };
    let all = fs::read_dir("/proc").unwrap().flatten().filter(holds);
    all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn unrecordable_lab_does_not_start() {
    if Command::new("ip").arg("-V").output().is_err() {
        return testbed::skip("labs that cannot be noted", "needs ip(8)");
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let down = as_a_user(&runtime, &["lab", "down"]);
    let text = show(&["lab", "down"], &down);
    assert!(down.status.success() && text.contains("The lab was not up"), "{text}");
    // Each possible path of the lab's folder is taken by a file of a different user.
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    for name in ["dns64bench", "dns64bench-65534", ".local"] {
        fs::write(taken.join(name), "").unwrap();
    }
    let before = holders();
    let up = as_a_user(&taken, &["lab", "up"]);
    let text = show(&["lab", "up"], &up);
    assert_eq!(up.status.code(), Some(4), "{text}");
    assert!(text.contains("XDG_RUNTIME_DIR"), "{text}");
    let left: Vec<String> = holders().into_iter().filter(|pid| !before.contains(pid)).collect();
    assert_eq!(left, [""; 0], "{text}");
}
