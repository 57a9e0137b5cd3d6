//! Files that commands write: opened before the measurement, complete or absent, with the mode of any other file.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{LENIENT, PROGRAM, Server, show};
use serde_json::Value;

/// Starts the program in `folder` from a shell that runs `before` first.
fn after(before: &str, folder: &Path, args: &[&str]) -> Output {
    let script = format!("{before}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, PROGRAM]).args(args).current_dir(folder).stdin(Stdio::null());
    command.output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Options of a trial in tests that are about neither pacing nor lateness.
fn trial<'a>(server: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = [
        "measure",
        "--server",
        server,
        "--rate",
        "1000",
        "--duration",
        "2s",
        "--timeout",
        "5s",
        "--json",
        "-q",
    ];
    [&args[..], &LENIENT, more].concat()
}

#[test]
fn unwritable_files_are_reported_before_any_query() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["measure", "--rate", "100", "--hdr-log", "/nonexistent/log"][..],
        &["measure", "--rate", "100", "--json-lines", "/nonexistent/lines"],
        &["measure", "--rate", "100", "--records", "/nonexistent/records.csv"],
        &["closed-loop", "--outstanding", "1", "--hdr-log", "/nonexistent/log"],
        &["closed-loop", "--outstanding", "1", "--json-lines", "."],
    ] {
        // If the file could be opened, the command would report that there is no server at this address.
        let args = [args, &["--server", "127.0.0.1:9"]].concat();
        let output = after("true", folder.path(), &args);
        let text = show(&args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("cannot write ") && !text.contains("no answer from"), "{text}");
        assert_eq!(names(folder.path()), [""; 0], "{text}");
    }
}

#[test]
fn modes_follow_the_umask() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let folder = tempfile::tempdir().unwrap();
    let files = ["--records", "r.csv", "--hdr-log", "log", "--json-lines", "lines"];
    let args = trial(&dut.address, &files);
    let output = after("umask 027", folder.path(), &args);
    let zone = ["zone", "--names", "10.0.0.0/30", "--output", "zone"];
    let others =
        [after("umask 027", folder.path(), &zone), after("umask 027", folder.path(), &["check"])];
    assert!(others.iter().all(|output| output.status.success()), "{others:?}");
    let text = show(&args, &output);
    assert_eq!(names(folder.path()), ["lines", "log", "r.csv", "zone"], "{text}");
    for name in names(folder.path()) {
        let mode = fs::metadata(folder.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{name}");
    }
}

#[test]
fn full_disk_for_records_keeps_the_verdict() {
    let dut = Server::start(&["reference-dut", "--capacity", "100000"]);
    let folder = tempfile::tempdir().unwrap();
    let args = trial(&dut.address, &["--records", "r.csv"]);
    let valid = testbed::valid_trial(|| {
        // No file may be larger than 8 KiB. The signal is ignored, so write(2) returns the error.
        let output = after("trap '' XFSZ; ulimit -f 8", folder.path(), &args);
        let text = show(&args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        let trial: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {text}"));
        if trial["verdict"] == "invalid" {
            return Err(trial["reasons"].to_string());
        }
        Ok((trial, text))
    });
    let Some((trial, text)) = valid else { return };
    assert_eq!((&trial["sent"], &trial["valid"]), (&2_000.into(), &2_000.into()), "{text}");
    assert_eq!(trial["verdict"], "passed", "{text}");
    assert!(text.contains("cannot write the records r.csv: File too large"), "{text}");
    assert_eq!(names(folder.path()), [""; 0], "{text}");
}

#[test]
fn a_device_is_written_and_stays_a_device() {
    for args in [&["zone", "--names", "10.0.0.0/30"][..], &["queryfile", "--names", "10.0.0.0/30"]]
    {
        let args = [args, &["--output", "/dev/null"]].concat();
        let output = common::run(&args);
        assert!(
            output.status.success() && !Path::new("/dev/null").is_file(),
            "{}",
            show(&args, &output)
        );
    }
}

#[test]
fn default_journal_is_in_the_state_folder() {
    let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let search = |more: &[&str]| {
        let args =
            [&["search", "--server", "127.0.0.1:9", "--min", "1", "--max", "2"], more].concat();
        let before = format!("export XDG_STATE_HOME='{}'", state.path().display());
        let output = after(&before, folder.path(), &args);
        (output.status.code(), show(&args, &output))
    };
    let (status, text) = search(&[]);
    assert_eq!((status, names(folder.path()).len()), (Some(4), 0), "{text}");
    let there = names(&state.path().join("dns64bench"));
    let [journal] = &there[..] else { panic!("{there:?}: {text}") };
    assert!(journal.starts_with("dns64bench-search-") && text.contains(journal.as_str()), "{text}");
    // A second search that begins in the same second has a different journal.
    let (_, text) = search(&[]);
    assert_eq!(names(&state.path().join("dns64bench")).len(), 2, "{text}");
    let (status, text) = search(&["--journal", "j"]);
    assert_eq!((status, names(folder.path())), (Some(4), vec!["j".into()]), "{text}");
    let (_, text) = search(&["--journal", "j"]);
    assert!(text.contains("File exists") && text.contains("search --resume j"), "{text}");
}

#[test]
fn query_file_is_readable_by_closed_loop() {
    let dut = Server::start(&["reference-dut", "--capacity", "1000000"]);
    let folder = tempfile::tempdir().unwrap();
    let make = [
        "queryfile",
        "--names",
        "10.0.0.0/24",
        "--first-name",
        "250",
        "--count",
        "3",
        "--qtype",
        "A",
    ];
    let output = after("true", folder.path(), &make);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let name = |n: u32| format!("010-000-000-{n}.dns64perf.test A\n");
    assert_eq!(lines, [250, 251, 252].map(name).concat(), "{}", show(&make, &output));
    let make = ["queryfile", "--names", "10.0.0.0/24", "--output", "queries"];
    assert!(after("true", folder.path(), &make).status.success());
    let ask = ["closed-loop", "--server", &dut.address, "--queries", "queries", "--json", "-q"];
    let output = after("true", folder.path(), &ask);
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(&ask, &output)));
    assert_eq!(
        (&result["sent"], &result["valid"]),
        (&256.into(), &256.into()),
        "{}",
        show(&ask, &output)
    );
    let many = ["queryfile", "--names", "10.0.0.0/24", "--first-name", "250", "--count", "7"];
    let output = after("true", folder.path(), &many);
    assert_eq!(output.status.code(), Some(2), "{}", show(&many, &output));
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for args in [&["--help"][..], &["--version"], &["measure", "--help"], &["dns64d", "--help"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(args).stdout(full).output().unwrap();
        let text = show(args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("cannot write to standard output"), "{text}");
    }
}
