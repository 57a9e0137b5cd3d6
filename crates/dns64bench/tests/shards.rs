//! Several testers that share a trial, as processes on this host, and one verdict on all of it.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parquet::file::reader::FileReader;
use parquet::file::reader::SerializedFileReader;
use parquet::record::RowAccessor;
use serde_json::Value;

use common::{LENIENT, Server, count, dns64bench, holds, note_spoiled, run_in, show, told};

/// Time for processes to start on a busy machine.
const AHEAD: Duration = Duration::from_millis(2_500);

/// A moment that is soon, as `--start-at` takes it.
fn soon() -> String {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + AHEAD;
    format!("{}.{:09}", at.as_secs(), at.subsec_nanos())
}

/// What all testers of a trial at `server` are told.
fn common_part<'a>(server: &'a str, start: &'a str) -> Vec<&'a str> {
    let trial = ["measure", "--server", server, "--rate", "3000", "--duration", "1s"];
    let rest = ["--timeout", "500ms", "--start-at", start, "--json", "--quiet", "--liveness=false"];
    [&trial[..], &rest].concat()
}

/// A tester that is shard `shard`, such as `1/3`, whose result goes into `folder`; its own lateness
/// counts for nothing, unless `more` gives limits.
fn tester(folder: &Path, server: &str, start: &str, shard: &str, more: &[&str]) -> Child {
    let records = records_of(shard);
    let own = ["--shard", shard, "--records", &records];
    let limits: &[&str] = if more.contains(&LENIENT[0]) { &[] } else { &LENIENT };
    let args = [&common_part(server, start)[..], &own, limits, more].concat();
    let file = fs::File::create(folder.join(file_of(shard))).unwrap();
    dns64bench(folder, &args).stdout(file).stderr(Stdio::piped()).spawn().unwrap()
}

/// The name of the file with the result of shard `1/3`: `1-3.json`.
fn file_of(shard: &str) -> String {
    format!("{}.json", shard.replace('/', "-"))
}

/// The name of the file with its records: `1-3.parquet`.
fn records_of(shard: &str) -> String {
    format!("{}.parquet", shard.replace('/', "-"))
}

/// Which queries (number, name) were to leave when, in nanoseconds since the trial's start, by the
/// records of these testers.
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

/// Three testers that share a trial, all of which are there when it begins.
fn three(folder: &Path, server: &str, more: &[&str]) -> [Child; 3] {
    let start = soon();
    THREE.map(|shard| tester(folder, server, &start, shard, more))
}

/// Merges what three testers have left.
fn merged(folder: &Path, more: &[&str]) -> (Value, Output) {
    let files = THREE.map(file_of);
    let files = files.each_ref().map(String::as_str);
    // In another order than theirs.
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

/// Sees which (id, name) queries have that come to a socket while `during` runs.
fn seen_while(during: impl FnOnce(&str)) -> BTreeSet<(u16, String)> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (address, over) = (socket.local_addr().unwrap().to_string(), AtomicBool::new(false));
    thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let (mut seen, mut packet) = (BTreeSet::new(), [0; 512]);
            while !over.load(Ordering::Relaxed) {
                let Ok(len) = socket.recv(&mut packet) else { continue };
                let id = u16::from_be_bytes([packet[0], packet[1]]);
                // The first label has all that differs between names.
                let label = &packet[13..13 + usize::from(packet[12])];
                assert!(len > 40, "{len} octets");
                seen.insert((id, String::from_utf8(label.to_vec()).unwrap()));
            }
            seen
        });
        during(&address);
        over.store(true, Ordering::Relaxed);
        seen.join().unwrap()
    })
}

#[test]
fn three_testers_ask_what_one_would_ask() {
    let folder = tempfile::tempdir().unwrap();
    let seed = ["--seed", "7"];
    let by_three = seen_while(|server| {
        for mut child in three(folder.path(), server, &seed) {
            child.wait().unwrap();
        }
    });
    let by_one = seen_while(|server| {
        tester(folder.path(), server, &soon(), "0/1", &seed).wait().unwrap();
    });
    assert_eq!(by_one.len(), 3_000);
    assert_eq!(by_three, by_one);
    let scheduled = schedule_of(folder.path(), &["0/1"]);
    assert_eq!(scheduled.len(), 3_000);
    assert_eq!(schedule_of(folder.path(), &THREE), scheduled);
    let by_another_seed = seen_while(|server| {
        let other = ["--seed", "8", "--threads", "3", "--source-ports", "5"];
        tester(folder.path(), server, &soon(), "0/1", &other).wait().unwrap();
    });
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
    let (result, output) = loop {
        for child in three(folder.path(), &dut.address, &["--expect-prefix", "64:ff9b::/96"]) {
            let ended = child.wait_with_output().unwrap();
            assert!(matches!(ended.status.code(), Some(0 | 3)), "{}", told(&ended));
        }
        let (result, output) = merged(folder.path(), &[]);
        if result["verdict"] != "invalid" {
            break (result, output);
        }
        note_spoiled(&result["reasons"].to_string());
    };
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
    assert_eq!(count(&result, "/valid"), 3_000);
    let us = |of: &Value, name: &str| of["rtt_us"][name].as_f64().unwrap();
    let of_all = |name: &str| shards.iter().map(|shard| us(shard, name)).collect::<Vec<_>>();
    let [least, most] = [f64::min, f64::max].map(|f| of_all("p50").into_iter().reduce(f).unwrap());
    assert!((least..=most).contains(&us(&result, "p50")), "{result:#}");
    assert_eq!(us(&result, "max"), of_all("max").into_iter().reduce(f64::max).unwrap());

    // A clock that somebody found to be off.
    let (off, output) = merged(folder.path(), &["--offset", "1=1100ms", "--offset", "2=-3us"]);
    assert_eq!(output.status.code(), Some(3), "{off:#}");
    let causes = off["causes"].as_array().unwrap();
    assert_eq!((causes.len(), &causes[0]["shard"]), (1, &1.into()), "{causes:?}");
    assert_eq!(causes[0]["reason"]["kind"], "clock_off");

    // In words.
    let files = THREE.map(file_of);
    let words = run_in(folder.path(), &["merge", &files[0], &files[1], &files[2]]);
    let text = String::from_utf8_lossy(&words.stdout).into_owned();
    for expected in ["Verdict     passed", "Shard 0", "Shard 2     passed", "2-3.json"] {
        assert!(text.contains(expected), "no {expected} in {text}");
    }
    // Without one of them.
    let lacking = run_in(folder.path(), &["merge", &files[0], &files[2]]);
    assert_eq!(lacking.status.code(), Some(2));
    assert!(told(&lacking).contains("shard 1 of 3 is missing"), "{}", told(&lacking));
    // Of one that was ended before it could write.
    fs::write(folder.path().join("x.json"), "").unwrap();
    let ended = run_in(folder.path(), &["merge", &files[0], "x.json", &files[2]]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(told(&ended).contains("x.json is empty: its tester was ended"), "{}", told(&ended));
    // And what is no result at all.
    fs::write(folder.path().join("x.json"), "{}").unwrap();
    let nothing = run_in(folder.path(), &["merge", "x.json"]);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(told(&nothing).contains("x.json"), "{}", told(&nothing));
}

/// The quantile of this name of each trial, in microseconds, in ascending order.
fn quantiles(of: &[Value], name: &str) -> Vec<f64> {
    let mut all: Vec<f64> = of.iter().map(|t| t["rtt_us"][name].as_f64().unwrap()).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// How many trials of each kind there are at the most. Reply times are drawn by chance: were three
/// testers exactly as one, 2 of 100 such tests would fail with 6 trials, none of 20 000 with 12; and
/// replies 120 µs later are found with either (simulated).
const MOST_TRIALS: usize = 12;

/// Replies take 4 to 12 ms by chance, as many of each length, so that the quantiles are far apart
/// and a busy moment of this machine moves none of them to another.
#[test]
fn reply_times_of_three_testers_are_as_near_to_those_of_one_as_two_trials_of_one() {
    let auth = Server::start(&["auth", "--aaaa-share", "1", "--delay", "4ms-12ms"]);
    let folder = tempfile::tempdir().unwrap();
    let asked = ["--aaaa-share", "1"];
    let (mut ones, mut threes): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    // The more trials of one tester there are, the better is known how far two of them differ.
    for trials in 1..=MOST_TRIALS {
        while ones.len() < trials {
            let child = tester(folder.path(), &auth.address, &soon(), "0/1", &asked);
            child.wait_with_output().unwrap();
            let text = fs::read(folder.path().join(file_of("0/1"))).unwrap();
            let one: Value = serde_json::from_slice(&text).unwrap();
            match one["verdict"] == "invalid" {
                true => note_spoiled(&one["reasons"].to_string()),
                false => ones.push(one),
            }
        }
        while threes.len() < trials {
            for child in three(folder.path(), &auth.address, &asked) {
                child.wait_with_output().unwrap();
            }
            let (three, _) = merged(folder.path(), &[]);
            match three["verdict"] == "invalid" {
                true => note_spoiled(&three["reasons"].to_string()),
                false => threes.push(three),
            }
        }
        let is_as_near = |name| {
            let (one, three) = (quantiles(&ones, name), quantiles(&threes, name));
            let apart = (three[trials / 2] - one[trials / 2]).abs();
            apart <= one[trials - 1] - one[0]
        };
        if trials >= 3 && ["p50", "p90", "p99"].into_iter().all(is_as_near) {
            return;
        }
    }
    let told = |of: &[Value]| ["p50", "p90", "p99"].map(|name| quantiles(of, name));
    panic!("one tester: {:?}; three: {:?}", told(&ones), told(&threes));
}

#[test]
fn a_tester_that_is_ended_or_held_up_spoils_the_trial_and_is_named() {
    let dut = Server::start(&["reference-dut", "--capacity", "20k"]);
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = three(folder.path(), &dut.address, &[]);
    thread::sleep(AHEAD + Duration::from_millis(300));
    signal(&second, "TERM");
    signal(&third, "STOP");
    thread::sleep(Duration::from_millis(1_500));
    signal(&third, "CONT");
    for child in [first, second, third] {
        child.wait_with_output().unwrap();
    }
    let (result, output) = merged(folder.path(), &[]);
    assert_eq!((output.status.code(), &result["verdict"]), (Some(3), &"invalid".into()));
    let named = |shard: u16, kind: &str| {
        let causes = result["causes"].as_array().unwrap();
        causes.iter().any(|cause| cause["shard"] == shard && cause["reason"]["kind"] == kind)
    };
    assert!(named(1, "interrupted"), "{}", result["reasons"]);
    assert!(named(2, "late"), "{}", result["reasons"]);
}

/// A tester that gets a tenth of a CPU's time, in turns of 10 ms, sends all its queries, and late.
#[test]
fn a_tester_that_is_starved_spoils_the_trial_and_is_named() {
    let dut = Server::start(&["reference-dut", "--capacity", "20k"]);
    let folder = tempfile::tempdir().unwrap();
    let limits = [LENIENT[0], LENIENT[1], "--lateness-limit", "40ms"];
    // Until no other tester was held up by this machine.
    loop {
        let [first, mut second, third] = three(folder.path(), &dut.address, &limits);
        thread::sleep(AHEAD - Duration::from_millis(200));
        while second.try_wait().unwrap().is_none() {
            signal(&second, "STOP");
            thread::sleep(Duration::from_millis(90));
            signal(&second, "CONT");
            thread::sleep(Duration::from_millis(10));
        }
        for child in [first, second, third] {
            child.wait_with_output().unwrap();
        }
        let (result, output) = merged(folder.path(), &[]);
        assert_eq!((output.status.code(), &result["verdict"]), (Some(3), &"invalid".into()));
        assert_eq!(count(&result, "/sent"), 3_000, "{result:#}");
        let causes = result["causes"].as_array().unwrap();
        let named = |shard: u16| causes.iter().any(|cause| cause["shard"] == shard);
        let late = |cause: &Value| cause["shard"] == 1 && cause["reason"]["kind"] == "late";
        assert!(causes.iter().any(late), "{}", result["reasons"]);
        if !named(0) && !named(2) {
            return;
        }
        note_spoiled(&result["reasons"].to_string());
    }
}

/// Status 1 of the job for Slurm is a DUT that failed, and nothing else is.
#[test]
fn a_slurm_job_without_a_verdict_ends_with_status_4() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dns64bench-7")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/shards/dns64bench.sbatch");
    // Neither Slurm nor dns64bench comes into it: the folder of the first job is there already, what
    // the second would start is not, and the third has no id.
    for (job, words) in
        [(Some("7"), "dns64bench-7"), (Some("8"), "ended with status 127"), (None, "SLURM_JOB_ID")]
    {
        let mut bash = Command::new("bash");
        bash.arg(&script).current_dir(folder.path()).env_remove("SLURM_JOB_ID");
        bash.envs(job.map(|job| ("SLURM_JOB_ID", job))).env("DNS64BENCH", "./nothing");
        let ended = bash.output().unwrap();
        assert_eq!(ended.status.code(), Some(4), "{job:?}: {}", told(&ended));
        assert!(told(&ended).contains(words), "{job:?}: {}", told(&ended));
        assert!(told(&ended).contains("there is no verdict"), "{job:?}: {}", told(&ended));
    }
}

#[test]
fn who_comes_too_late_or_asks_for_what_cannot_be_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (shard, start, words) in [
        ("0/2", "2020-01-01T00:00:00Z", "that is past"),
        ("0/2", "soon", "2026-11-25T13:00:00Z"),
        ("2/2", "2099-01-01T00:00:00Z", "0/3, 1/3 and 2/3"),
    ] {
        let child = tester(folder.path(), "127.0.0.1:9", start, shard, &[]);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{}", told(&ended));
        assert!(told(&ended).contains(words), "{}", told(&ended));
        assert_eq!(fs::read_to_string(folder.path().join(file_of(shard))).unwrap(), "");
    }
}
