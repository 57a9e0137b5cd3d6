//! Several testers that share a trial, as processes on this host, and one verdict on the whole trial.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::file::reader::FileReader;
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor;
use serde_json::Value;

use common::{INVALID, LENIENT, Server, count, dns64bench, holds, output_text, run_in, show};

/// Time for the testers of a trial to start.
const AHEAD: Duration = Duration::from_secs(4);

/// Returns the start time of a trial in the format of `--start-at`.
fn soon() -> String {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + AHEAD;
    format!("{}.{:09}", at.as_secs(), at.subsec_nanos())
}

/// Number of queries of a trial. The receive buffer of a socket holds all of them, so that a delayed reader loses none.
const QUERIES: u64 = 180;

/// Options of all testers of a trial at `server`.
fn common_part<'a>(server: &'a str, start: &'a str) -> Vec<&'a str> {
    let trial = ["measure", "--server", server, "--rate", "90", "--duration", "2s"];
    let rest = ["--start-at", start, "--json", "--quiet", "--liveness=false"];
    [&trial[..], &rest, &LENIENT].concat()
}

/// Starts the tester of shard `shard`, such as `1/3`, whose result goes into `folder`.
fn tester(folder: &Path, server: &str, start: &str, shard: &str, more: &[&str]) -> Child {
    let records = records_of(shard);
    let own = ["--shard", shard, "--records", &records];
    // A stall of this host must not make replies late.
    let timeout: &[&str] = if more.contains(&"--timeout") { &[] } else { &["--timeout", "5s"] };
    let args = [&common_part(server, start)[..], &own, timeout, more].concat();
    let file = fs::File::create(folder.join(file_of(shard))).unwrap();
    dns64bench(folder, &args).stdout(file).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the name of the file with the result of shard `1/3`: `1-3.json`.
fn file_of(shard: &str) -> String {
    format!("{}.json", shard.replace('/', "-"))
}

/// Returns the name of the file with the records of shard `1/3`: `1-3.parquet`.
fn records_of(shard: &str) -> String {
    format!("{}.parquet", shard.replace('/', "-"))
}

/// Returns number and name of each query in the records of these testers, with its scheduled time in nanoseconds since
/// the start of the trial.
fn schedule_of(folder: &Path, shards: &[&str]) -> BTreeSet<(i64, String, i64)> {
    let mut all = BTreeSet::new();
    for shard in shards {
        let file = fs::File::open(folder.join(records_of(shard))).unwrap();
        for row in SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let columns: Vec<&str> = row.get_column_iter().map(|(name, _)| name.as_str()).collect();
            let at = |name| columns.iter().position(|column| *column == name).unwrap();
            let (index, due) = (row.get_long(at("index")), row.get_long(at("scheduled")));
            let name = row.get_string(at("name")).unwrap().clone();
            assert!(all.insert((index.unwrap(), name, due.unwrap())), "{shard} has a query again");
        }
    }
    all
}

const THREE: [&str; 3] = ["0/3", "1/3", "2/3"];

/// Starts three testers that share a trial.
fn three(folder: &Path, server: &str, more: &[&str]) -> [Child; 3] {
    let start = soon();
    THREE.map(|shard| tester(folder, server, &start, shard, more))
}

/// Merges the results of three testers.
fn merged(folder: &Path, more: &[&str]) -> (Value, Output) {
    let files = THREE.map(file_of);
    let files = files.each_ref().map(String::as_str);
    // The order of the files differs from that of the shards.
    let args = [&["merge", files[2], files[0], files[1], "--json"], more].concat();
    let output = run_in(folder, &args);
    let result = serde_json::from_slice(&output.stdout);
    let result = result.unwrap_or_else(|error| panic!("{error}: {}", show(&args, &output)));
    holds("merge", &result);
    (result, output)
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
    assert!(done.unwrap().success());
}

/// Returns the ID and the name of each query of a valid trial. The testers of `shards` share the trial. The server does
/// not answer.
fn queries_of(folder: &Path, shards: &[&str], more: &[&str]) -> Option<BTreeSet<(u16, String)>> {
    testbed::valid_trial(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, start) = (socket.local_addr().unwrap().to_string(), soon());
        // No reply is expected.
        let more = [more, &["--timeout", "100ms"]].concat();
        let testers = shards.iter().map(|shard| tester(folder, &address, &start, shard, &more));
        let testers: Vec<Child> = testers.collect();
        let ended = testers.into_iter().map(|tester| tester.wait_with_output().unwrap());
        let ended: Vec<Output> = ended.collect();
        if let Some(invalid) = ended.iter().find(|ended| ended.status.code() == Some(INVALID)) {
            return Err(output_text(invalid));
        }
        socket.set_nonblocking(true).unwrap();
        let mut packet = [0; 512];
        let queries = std::iter::from_fn(|| {
            let len = socket.recv(&mut packet).ok()?;
            assert!(len > 40, "{len} octets");
            let id = u16::from_be_bytes([packet[0], packet[1]]);
            // Names differ in the first label only.
            let label = &packet[13..13 + usize::from(packet[12])];
            Some((id, String::from_utf8(label.to_vec()).unwrap()))
        });
        Ok(queries.collect())
    })
}

#[test]
fn three_testers_send_the_queries_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let seed = ["--seed", "7"];
    let Some(by_three) = queries_of(folder, &THREE, &seed) else { return };
    let Some(by_one) = queries_of(folder, &["0/1"], &seed) else { return };
    assert_eq!(by_one.len() as u64, QUERIES);
    assert_eq!(by_three, by_one);
    let scheduled = schedule_of(folder, &["0/1"]);
    assert_eq!(scheduled.len() as u64, QUERIES);
    assert_eq!(schedule_of(folder, &THREE), scheduled);
    let other = ["--seed", "8", "--threads", "3", "--source-ports", "5"];
    let Some(by_another_seed) = queries_of(folder, &["0/1"], &other) else { return };
    let names = |of: &BTreeSet<(u16, String)>| {
        of.iter().map(|(_, name)| name.clone()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names(&by_another_seed), names(&by_one));
    assert_ne!(by_another_seed, by_one);
}

#[test]
fn three_testers_have_one_verdict() {
    let dut = Server::start(&["reference-dut", "--capacity", "20k"]);
    let folder = tempfile::tempdir().unwrap();
    let valid = testbed::valid_trial(|| {
        for child in three(folder.path(), &dut.address, &["--expect-prefix", "64:ff9b::/96"]) {
            let ended = child.wait_with_output().unwrap();
            assert!(matches!(ended.status.code(), Some(0 | INVALID)), "{}", output_text(&ended));
        }
        match merged(folder.path(), &[]) {
            (result, _) if result["verdict"] == "invalid" => Err(result["reasons"].to_string()),
            valid => Ok(valid),
        }
    });
    let Some((result, output)) = valid else { return };
    assert_eq!(
        (output.status.code(), &result["verdict"]),
        (Some(0), &"passed".into()),
        "{result:#}"
    );
    let shards: Vec<Value> = THREE
        .map(|shard| {
            serde_json::from_slice(&fs::read(folder.path().join(file_of(shard))).unwrap()).unwrap()
        })
        .into();
    shards.iter().for_each(|shard| holds("trial", shard));
    for of in ["/sent", "/valid", "/late", "/lost"] {
        let sum: u64 = shards.iter().map(|shard| count(shard, of)).sum();
        assert_eq!(count(&result, of), sum, "{of}");
        assert_eq!(count(&result["shards"][1], &format!("/counts{of}")), count(&shards[1], of));
    }
    assert_eq!(count(&result, "/valid"), QUERIES);
    let us = |of: &Value, name: &str| of["rtt_us"][name].as_f64().unwrap();
    let of_all = |name: &str| shards.iter().map(|shard| us(shard, name)).collect::<Vec<_>>();
    let [least, most] = [f64::min, f64::max].map(|f| of_all("p50").into_iter().reduce(f).unwrap());
    assert!((least..=most).contains(&us(&result, "p50")), "{result:#}");
    assert_eq!(us(&result, "max"), of_all("max").into_iter().reduce(f64::max).unwrap());

    // The clock of one tester is wrong.
    let (off, output) = merged(folder.path(), &["--offset", "1=40s", "--offset", "2=-3us"]);
    assert_eq!(output.status.code(), Some(3), "{off:#}");
    let causes = off["causes"].as_array().unwrap();
    assert_eq!((causes.len(), &causes[0]["shard"]), (1, &1.into()), "{causes:?}");
    assert_eq!(causes[0]["reason"]["kind"], "clock_off");

    // The printed text.
    let files = THREE.map(file_of);
    let words = run_in(folder.path(), &["merge", &files[0], &files[1], &files[2]]);
    let text = String::from_utf8_lossy(&words.stdout).into_owned();
    for expected in ["Verdict     passed", "Shard 0", "Shard 2     passed", "2-3.json"] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    // The file of one tester is missing.
    let lacking = run_in(folder.path(), &["merge", &files[0], &files[2]]);
    assert_eq!(lacking.status.code(), Some(2));
    assert!(output_text(&lacking).contains("shard 1 of 3 is missing"), "{}", output_text(&lacking));
    // The file of a tester that ended before it could write.
    fs::write(folder.path().join("x.json"), "").unwrap();
    let ended = run_in(folder.path(), &["merge", &files[0], "x.json", &files[2]]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        output_text(&ended).contains("x.json is empty: its tester ended"),
        "{}",
        output_text(&ended)
    );
    // A file that contains no result.
    fs::write(folder.path().join("x.json"), "{}").unwrap();
    let nothing = run_in(folder.path(), &["merge", "x.json"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(output_text(&nothing).contains("x.json"), "{}", output_text(&nothing));
}

#[test]
fn early_end_or_stall_invalidates_the_trial() {
    let folder = tempfile::tempdir().unwrap();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(testbed::LAST_RESORT)).unwrap();
    let address = server.local_addr().unwrap().to_string();
    // The trial is long, so that both signals arrive while queries are sent, and the stall is longer than the limit.
    let trial = ["measure", "--server", &address, "--rate", "30", "--duration", "6s"];
    let limits = ["--timeout", "100ms", "--window-limit", "100", "--lateness-limit", "1s"];
    let start = soon();
    let rest = ["--start-at", &start, "--json", "--quiet", "--liveness=false"];
    let [first, second, third] = THREE.map(|shard| {
        let args = [&trial[..], &limits, &rest, &["--shard", shard]].concat();
        let file = fs::File::create(folder.path().join(file_of(shard))).unwrap();
        let mut command = dns64bench(folder.path(), &args);
        command.stdout(file).stderr(Stdio::piped()).spawn().unwrap()
    });
    for _ in 0..3 {
        server.recv(&mut [0; 512]).unwrap();
    }
    signal(&second, "TERM");
    signal(&third, "STOP");
    first.wait_with_output().unwrap();
    signal(&third, "CONT");
    for child in [second, third] {
        child.wait_with_output().unwrap();
    }
    let (result, output) = merged(folder.path(), &[]);
    assert_eq!((output.status.code(), &result["verdict"]), (Some(INVALID), &"invalid".into()));
    let named = |shard: u16, kind: &str| {
        let causes = result["causes"].as_array().unwrap();
        causes.iter().any(|cause| cause["shard"] == shard && cause["reason"]["kind"] == kind)
    };
    assert!(named(1, "interrupted"), "{}", result["reasons"]);
    assert!(named(2, "late"), "{}", result["reasons"]);
    assert_eq!(count(&result["shards"][2], "/counts/sent"), 60, "a late tester sends all queries");
}

/// Status 1 of the job for Slurm means only that a DUT failed.
#[test]
fn a_slurm_job_without_a_verdict_ends_with_status_4() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dns64bench-7")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/shards/dns64bench.sbatch");
    // Neither Slurm nor dns64bench is started: the folder of the first job exists already, the second would start a
    // missing program, and the third has no id.
    for (job, words) in
        [(Some("7"), "dns64bench-7"), (Some("8"), "ended with status 127"), (None, "SLURM_JOB_ID")]
    {
        let mut bash = Command::new("bash");
        bash.arg(&script).current_dir(folder.path()).env_remove("SLURM_JOB_ID");
        bash.envs(job.map(|job| ("SLURM_JOB_ID", job))).env("DNS64BENCH", "./nothing");
        let ended = bash.output().unwrap();
        assert_eq!(ended.status.code(), Some(4), "{job:?}: {}", output_text(&ended));
        assert!(output_text(&ended).contains(words), "{job:?}: {}", output_text(&ended));
        assert!(
            output_text(&ended).contains("there is no verdict"),
            "{job:?}: {}",
            output_text(&ended)
        );
    }
}

#[test]
fn late_or_impossible_shard_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (shard, start, words) in [
        ("0/2", "2020-01-01T00:00:00Z", "that is past"),
        ("0/2", "soon", "2026-11-25T13:00:00Z"),
        ("2/2", "2099-01-01T00:00:00Z", "0/3, 1/3 and 2/3"),
    ] {
        let child = tester(folder.path(), "127.0.0.1:9", start, shard, &[]);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{}", output_text(&ended));
        assert!(output_text(&ended).contains(words), "{}", output_text(&ended));
        assert_eq!(fs::read_to_string(folder.path().join(file_of(shard))).unwrap(), "");
    }
}
