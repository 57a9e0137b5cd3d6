//! Helpers for tests of the real program.
#![allow(unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::Value;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_dns64bench");

/// Options of trials in tests that are not about pacing.
pub const LENIENT: [&str; 4] = ["--window-limit", "100", "--lateness-limit", "30s"];

/// Keys of `[trial]` in campaigns of tests that are about neither pacing nor lateness.
pub const LENIENT_TRIAL: &str = "timeout = '3s'\npause = '0s'\nmax-burst = '500us'\n\
                                 window-limit = 100\nlateness-limit = '30s'\nauth-limit = '30s'\n";

/// A server that the program under test runs. Dropping this value ends the server.
pub struct Server {
    child: Child,
    pub address: String,
}

impl Server {
    /// Starts `args` on a port chosen by the kernel, and reads the port from the output.
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

    /// Returns the process id of the server.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server as a user would, and returns its counters.
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

/// Runs one trial; returns its result and the exit status. Pacing is not judged and the timeout is [`TIMEOUT`], unless
/// `more` has these options.
pub fn measure_once(address: &str, more: &[&str]) -> (Value, i32) {
    let unless = |option: &str, words: &'static [&'static str]| -> &[&str] {
        if more.contains(&option) { &[] } else { words }
    };
    // The liveness check would add to the counters.
    let args = [
        &["measure", "--server", address, "--json", "--quiet", "--liveness", "false"],
        more,
        unless("--timeout", &TIMEOUT),
        unless("--window-limit", &LENIENT),
    ]
    .concat();
    let output = run(&args);
    let trial = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", show(&args, &output)));
    holds("trial", &trial);
    (trial, output.status.code().unwrap())
}

/// Timeout that is longer than any stall of this machine, so that no reply is late. A trial without lost queries does
/// not take longer because of this timeout.
const TIMEOUT: [&str; 2] = ["--timeout", "5s"];

/// Status of a trial that was invalidated by the tester's host.
pub const INVALID: i32 = 3;

/// Same as [`measure_once`], but for a valid trial: see [`testbed::valid_trial`].
pub fn measure(address: &str, more: &[&str]) -> Option<(Value, i32)> {
    // A repeated trial has different names, because a name that is queried again within the timeout counts as a retry.
    let mut first_names = ["0", "1000000"].into_iter();
    testbed::valid_trial(|| {
        let names = ["--first-name", first_names.next().expect("there are two trials at most")];
        match measure_once(address, &[more, &names].concat()) {
            (trial, INVALID) => Err(trial["reasons"].to_string()),
            valid => Ok(valid),
        }
    })
}

/// Runs a command that measures. An invalid trial is repeated: see [`testbed::valid_trial`].
pub fn run_valid(args: &[&str]) -> Option<Output> {
    testbed::valid_trial(|| {
        let output = run(args);
        if output.status.code() == Some(INVALID) { Err(show(args, &output)) } else { Ok(output) }
    })
}

/// Checks an output against the schema that `dns64bench schema NAME` prints.
pub fn holds(name: &'static str, value: &Value) {
    static SCHEMAS: Mutex<BTreeMap<&str, Validator>> = Mutex::new(BTreeMap::new());
    // A test that panics leaves the map unchanged, so a poisoned lock is harmless.
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = schemas.entry(name).or_insert_with(|| {
        let printed = Command::new(PROGRAM).args(["schema", name]).output().unwrap();
        assert!(printed.status.success(), "{}", output_text(&printed));
        jsonschema::validator_for(&serde_json::from_slice(&printed.stdout).unwrap()).unwrap()
    });
    if let Err(error) = schema.validate(value) {
        panic!("schema {name}: {error} at {} in {value:#}", error.instance_path);
    }
}

pub fn count(trial: &Value, of: &str) -> u64 {
    trial.pointer(of).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {of} in {trial}"))
}

/// Returns the program with `folder` as its working folder.
pub fn dns64bench(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command
}

pub fn run_in(folder: &Path, args: &[&str]) -> Output {
    dns64bench(folder, args).output().unwrap()
}

pub fn output_text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    format!("{:?}\n{}", output.status, String::from_utf8_lossy(&both))
}

/// Returns the journal of the campaign of `plan.toml` in `folder`.
pub fn journal(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("plan-run/journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the campaign of `plan.toml` in `folder` and sends `signal` to its DUT during the first trial of a point of this
/// kind (`search`, `load`). At each start the DUT writes its process id into the file `pid`.
pub fn signal_in_a_trial(folder: &Path, kind: &str, signal: &str) -> Output {
    let scratch = folder.join("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut command = dns64bench(folder, &["campaign", "run", "plan.toml"]);
    command.env("TMPDIR", &scratch).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut wait_until = |what: &str, is_so: &dyn Fn() -> bool| {
        testbed::wait_until(what, || child.try_wait().unwrap().is_some() || is_so());
    };
    let begins = format!("{{\"started\":{{\"point\":{{\"{kind}\"");
    wait_until("the trial begins", &|| {
        let journal = fs::read_to_string(folder.join("plan-run/journal.jsonl"));
        journal.is_ok_and(|text| text.contains(&begins))
    });
    let process = fs::read_to_string(folder.join("pid")).unwrap_or_default();
    // Before its first query, the trial only resolves a few names.
    let before = asked_of_authdns(&scratch);
    wait_until("the trial's queries", &|| asked_of_authdns(&scratch) >= before + 40);
    let _ = Command::new("kill").args([signal, process.trim()]).status();
    child.wait_with_output().unwrap()
}

/// Returns the number of queries to the running AuthDNS of a campaign with this folder for temporary files.
fn asked_of_authdns(scratch: &Path) -> u64 {
    let files = fs::read_dir(scratch).unwrap().flatten();
    let sockets =
        files.flat_map(|agent| fs::read_dir(agent.path()).into_iter().flatten().flatten());
    let counters = sockets.filter_map(|socket| {
        let mut line = String::new();
        let stream = UnixStream::connect(socket.path()).ok()?;
        BufReader::new(stream).read_line(&mut line).ok()?;
        serde_json::from_str::<Value>(&line).ok()
    });
    counters.map(|all| count(&all, "/queries/aaaa") + count(&all, "/queries/a")).sum()
}
