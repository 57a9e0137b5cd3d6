//! What the tests of the real program share.
#![allow(unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");

/// Options of trials in which the lateness of this machine counts for nothing.
pub const LENIENT: [&str; 4] = ["--window-limit", "100", "--lateness-limit", "1s"];

/// A server of the program under test; ends with the value.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    /// Starts `args` on a port that the kernel chooses, and reads it from what the server says.
    pub fn start(args: &[&str]) -> Server {
        let mut command = Command::new(PROGRAM);
        command
            .args(args)
            .args(["--listen", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{args:?} said: {line}");
        Server { child, address }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a user would and returns its counters.
    pub fn end(mut self) -> Value {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let mut text = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).output().expect("the program runs")
}

pub fn show(args: &[&str], output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{args:?}\nstatus {:?}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// One trial, whatever its verdict: the result, and the program's status. A second's patience,
/// unless the test says otherwise: this machine may stand still for a moment, which is not what is
/// tested.
pub fn measure_once(address: &str, more: &[&str]) -> (Value, i32) {
    // The counters are to show the trial and nothing else.
    let patience: &[&str] = if more.contains(&"--timeout") { &[] } else { &["--timeout", "1s"] };
    let args = [
        &["measure", "--server", address, "--json", "--quiet", "--liveness", "false"],
        more,
        patience,
    ]
    .concat();
    let output = run(&args);
    let trial = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(&args, &output)));
    holds("trial", &trial);
    (trial, output.status.code().unwrap())
}

/// How many trials of all tests of a program the tester may spoil. A busy machine does, but a
/// tester that spoils many of them is broken.
const MOST_SPOILED: usize = 20;
static SPOILED: AtomicUsize = AtomicUsize::new(0);

/// Notes that the tester spoiled a trial, which is to be done again; `why` is what it said. Ends
/// the test if that was one too many.
pub fn note_spoiled(why: &str) {
    let spoiled = SPOILED.fetch_add(1, Ordering::Relaxed) + 1;
    assert!(
        spoiled <= MOST_SPOILED,
        "{spoiled} trials of these tests were spoiled, this one by: {why}"
    );
}

/// Notes the trials that the tester spoiled in the campaign of `plan.toml` in `folder`, each of
/// which the campaign did again.
pub fn note_spoiled_of_campaign(folder: &Path) {
    for entry in journal(folder) {
        let trial = &entry["finished"]["trial"];
        if trial["verdict"] == "invalid" {
            note_spoiled(&format!("{}, of a campaign", trial["reasons"]));
        }
    }
}

/// Checks an output against the schema that `dns64bench schema NAME` prints.
pub fn holds(name: &'static str, value: &Value) {
    static SCHEMAS: Mutex<BTreeMap<&str, Validator>> = Mutex::new(BTreeMap::new());
    // A failed check of another test leaves the map as it was.
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = schemas.entry(name).or_insert_with(|| {
        let printed = Command::new(PROGRAM).args(["schema", name]).output().unwrap();
        assert!(printed.status.success(), "{}", told(&printed));
        jsonschema::validator_for(&serde_json::from_slice(&printed.stdout).unwrap()).unwrap()
    });
    if let Err(error) = schema.validate(value) {
        panic!("schema {name}: {error} at {} in {value:#}", error.instance_path);
    }
}

/// Measures until the tester did not spoil it: this machine may be busy, which is not what is
/// tested here.
pub fn measure(address: &str, more: &[&str]) -> (Value, i32) {
    loop {
        let (trial, status) = measure_once(address, more);
        if status != 3 {
            return (trial, status);
        }
        note_spoiled(&format!("{}, {more:?}", trial["reasons"]));
    }
}

pub fn count(trial: &Value, of: &str) -> u64 {
    trial.pointer(of).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {of} in {trial}"))
}

/// The program in a folder of its own.
pub fn dns64bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command
}

pub fn run_in(folder: &Path, args: &[&str]) -> Output {
    dns64bench(folder, args).output().unwrap()
}

pub fn told(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    format!("{:?}\n{}", output.status, String::from_utf8_lossy(&both))
}

/// The journal of the campaign of `plan.toml` in `folder`.
pub fn journal(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("plan-run/journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
