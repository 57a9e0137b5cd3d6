//! Tests against the servers and clients that people use. What cannot run is named, and never
//! counted as passed.

mod campaign;
mod clients;
mod conform;
mod dns64d;
mod dnstap;
mod gate;
mod hosts;
mod import;
mod losses;
mod mlrsearch;
mod packages;
mod past_stack;
mod places;
mod prefixes;
mod shards;
mod systemd;
mod tally;
mod tester;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::campaign::servers::{Auth, Dut};
use anyhow::{Context, Result, ensure};
use net::affinity::{allowed_cpus, stand_back};
use serde_json::Value;

use self::tally::{Skipped, Tally};
use crate::packages::{Consent, can_install, install, is_root};

use crate::process::{self, Server, find, free_port, output};
use crate::servers::{DUT, authoritative, dut_in_lab, wait_until_answers, wait_until_listens};
use crate::standstill::watched;

/// A name that all our zones have.
const FIRST_NAME: &str = "010-000-000-000.dns64perf.test";

const LIMIT: Duration = Duration::from_secs(120);

type Test = (&'static str, &'static [&'static str], fn(&Bench) -> Result<()>);

/// Two CPUs that this process may use, as taskset takes them; where there is only one, that one.
fn two_cpus() -> [String; 2] {
    let cpus = allowed_cpus();
    [cpus.first(), cpus.last()].map(|cpu| cpu.map_or(0, |cpu| cpu.0).to_string())
}

/// What every test needs.
struct Bench {
    program: PathBuf,
    /// Empty when the test begins, and gone when it has ended.
    folder: tempfile::TempDir,
    /// Trials of all tests that were to be sound and that the tester spoiled, and tests that failed
    /// while this machine stood still.
    spoiled: Arc<AtomicU32>,
}

/// What a trial is told that lasts for seconds: by itself its timeout would be 100 ms, which one stall
/// of this machine uses up.
const PATIENT: [&str; 2] = ["--timeout", "1s"];

/// How many trials and tests may be spoiled in all tests together: more than a busy machine does,
/// fewer than a broken tester.
const MOST_SPOILED: u32 = 10;

/// A CPU that ran nothing of ours for so long is why a server has lost queries: of 2 500 in a second,
/// its socket has no room for more.
const STOOD_STILL: Duration = Duration::from_millis(100);

impl Bench {
    fn new(program: &Path, spoiled: &Arc<AtomicU32>) -> Result<Bench> {
        let folder = traversable_folder()?;
        Ok(Bench { program: program.to_owned(), folder, spoiled: Arc::clone(spoiled) })
    }

    fn program(&self) -> &str {
        self.program.to_str().unwrap_or_default()
    }

    fn file(&self, name: &str, content: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        fs::write(&path, content)?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Measures a server that serves our zone file of 10.0.0.0/16, all names with an AAAA record: it
    /// must answer each rightly. One whose CPU is away loses queries when its socket has no room for
    /// more (some 270 of them, as the kernel has it: half a second at this rate), which counts as a
    /// spoiled trial up to 1 %.
    fn measure_zone(&self, port: u16) -> Result<()> {
        let server = format!("127.0.0.1:{port}");
        // Every name has an AAAA record in this zone, or the trial could not pass.
        let args = [
            "measure",
            "--server",
            &server,
            "--rate",
            "500",
            "--duration",
            "10s",
            "--timeout",
            "500ms",
            "--aaaa-share",
            "1",
            "--names",
            "10.0.0.0/16",
            "--json",
            "--quiet",
        ];
        loop {
            let ran = self.sound(&args)?;
            let trial: Value = serde_json::from_str(&ran.stdout).with_context(|| ran.stderr)?;
            let count = |key: &str| trial[key].as_u64().context(trial.to_string());
            let (valid, missing) = (count("valid")?, count("late")? + count("lost")?);
            if valid == 5_000 {
                ensure!(trial["verdict"] == "passed", "{trial}");
                return Ok(());
            }
            ensure!(valid + missing == 5_000 && missing <= 50, "{trial}");
            self.note_spoiled(&trial.to_string())?;
        }
    }

    /// Runs a `measure` until the tester did not spoil the trial, which it says with status 3: a
    /// busy machine does that, which is not what is tested here. All tests together may have
    /// [`MOST_SPOILED`] of them.
    fn sound(&self, args: &[&str]) -> Result<process::Ran> {
        loop {
            let ran = process::run(self.program(), args, LIMIT)?;
            if ran.status != Some(3) {
                return Ok(ran);
            }
            self.note_spoiled(&ran.stdout)?;
        }
    }

    /// Does what says whether its trial was sound until it was.
    fn unspoiled(&self, mut trial: impl FnMut() -> Result<bool>) -> Result<()> {
        while !trial()? {
            self.note_spoiled("a merged one")?;
        }
        Ok(())
    }

    fn note_spoiled(&self, trial: &str) -> Result<()> {
        note_spoiled(&self.spoiled, trial)
    }

    /// Our zone file of 10.0.0.0/16, with AAAA records for a share of the names.
    fn zone_file(&self, aaaa_share: &str) -> Result<String> {
        let path = self.path("zone");
        output(
            self.program(),
            &["zone", "--names", "10.0.0.0/16", "--aaaa-share", aaaa_share, "--output", &path],
            LIMIT,
        )?;
        Ok(path)
    }

    /// An authoritative server with a zone file of ours and the lines `extra`, on a port of
    /// loopback.
    fn authoritative(&self, auth: Auth, zone: &str, extra: &[&str]) -> Result<(Server, u16)> {
        let port = free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let words = authoritative(
            auth,
            &self.folder.path().join(auth.name()),
            listen.parse()?,
            zone,
            extra,
        )?;
        let server = Server::start(&words[0], &words[1..])?;
        wait_for(&listen, FIRST_NAME, A)?;
        Ok((server, port))
    }

    fn auth(&self, port: u16) -> Result<Server> {
        let listen = format!("127.0.0.1:{port}");
        let server = Server::start(
            self.program(),
            &["auth", "--listen", &listen, "--aaaa-share", "1", "--json"],
        )?;
        wait_until_listens(&[], port)?;
        Ok(server)
    }
}

/// Counts a trial or a test that was spoiled.
///
/// # Errors
/// If it is one too many.
fn note_spoiled(spoiled: &AtomicU32, what: &str) -> Result<()> {
    let number = spoiled.fetch_add(1, Ordering::Relaxed) + 1;
    ensure!(number <= MOST_SPOILED, "{number} trials and tests were spoiled, this one so: {what}");
    Ok(())
}

/// A test that failed while a CPU stood still gets a second chance; `once` runs it and says for how
/// long one did.
fn with_second_chance(
    name: &str,
    spoiled: &AtomicU32,
    mut once: impl FnMut() -> Result<(Result<()>, Duration)>,
) -> Result<()> {
    let (outcome, pause) = once()?;
    match outcome {
        Err(error) if pause >= STOOD_STILL && !error.is::<Skipped>() => {
            let why = format!("a CPU ran nothing of ours for {} ms: {error:#}", pause.as_millis());
            note_spoiled(spoiled, &why)?;
            println!("again   {name}, for {why}");
            once()?.0
        }
        outcome => outcome,
    }
}

/// Tests that measure, or hold the lab or the CPUs. Each has the machine for itself.
fn alone() -> impl Iterator<Item = &'static Test> {
    let first = tester::TESTS.iter().chain(&dns64d::TESTS).chain(&dnstap::TESTS);
    let first = first.chain(&import::TESTS).chain(&prefixes::TESTS);
    let servers = first
        .chain(&clients::TESTS)
        .chain(&systemd::TESTS)
        .chain(&hosts::TESTS)
        .chain(&losses::TESTS)
        .chain(&campaign::TESTS);
    let servers = servers.chain(&past_stack::TESTS).chain(&shards::TESTS);
    servers.chain(&gate::TESTS)
}

/// Tests that mostly wait, and ask little of the CPUs while they do not: two of them run at the same
/// time. The longest come first, and only one of them holds the lab.
fn waiting() -> impl Iterator<Item = &'static Test> {
    let campaigns = hosts::WAITING.iter().chain(&campaign::WAITING);
    conform::WAITING.iter().chain(campaigns).chain(&systemd::WAITING)
}

/// Tests that may take their time: they run beside the others, with what these leave of the CPUs.
fn beside() -> impl Iterator<Item = &'static Test> {
    mlrsearch::TESTS.iter().chain(&packages::TESTS)
}

fn all() -> impl Iterator<Item = &'static Test> {
    waiting().chain(alone()).chain(beside())
}

/// Among what a test needs: to be root, for what users may not do.
const ROOT: &str = "root";

/// Why this machine cannot run a test that needs these programs, as far as it is known before;
/// `None` if it can.
fn missing(needs: &[&str]) -> Option<String> {
    let absent: Vec<_> =
        needs.iter().filter(|need| **need != ROOT && find(need).is_none()).copied().collect();
    let mut why = Vec::new();
    if !absent.is_empty() {
        why.push(format!("not found: {}", absent.join(", ")));
    }
    if needs.contains(&ROOT) && !is_root() {
        why.push("needs root".into());
    }
    // Tests that need ip make a lab, which takes root or user namespaces.
    if needs.contains(&"ip")
        && !is_root()
        && process::run("unshare", &["-U", "-n", "true"], LIMIT)
            .is_ok_and(|ran| ran.status != Some(0))
    {
        why.push("needs root or user namespaces".into());
    }
    (!why.is_empty()).then(|| why.join("; "))
}

/// Says of every test whose name contains `part` whether it would run here, and why not; runs none
/// and installs nothing.
pub(crate) fn list(part: &str) -> ExitCode {
    let (mut would, mut would_not) = (0, 0);
    for &(name, needs, _) in all().filter(|(name, ..)| name.contains(part)) {
        match missing(needs) {
            None => {
                would += 1;
                println!("runs     {name}");
            }
            Some(why) => {
                would_not += 1;
                println!("does not {name}: {why}");
            }
        }
    }
    println!("{would} tests would run here, {would_not} would not");
    ExitCode::SUCCESS
}

/// Runs the tests whose name contains `part`. All of them count as one run: what is required in CI
/// must have passed in it.
pub(crate) fn run(part: &str, consent: Consent) -> Result<ExitCode> {
    install(consent);
    let (program, spoiled) = (process::dns64bench()?, Arc::default());
    let mut tally = Tally::default();
    let one = |&(name, needs, test): &Test| {
        let start = Instant::now();
        let outcome = match missing(needs) {
            None => with_second_chance(name, &spoiled, || {
                let bench = Bench::new(&program, &spoiled)?;
                Ok(watched(&allowed_cpus(), || test(&bench)))
            }),
            Some(why) => Err(Skipped(why).into()),
        };
        (name, outcome, start.elapsed())
    };
    let is_wanted = |test: &&Test| test.0.contains(part);
    thread::scope(|scope| {
        let beside = scope.spawn(|| {
            stand_back(&[]);
            beside().filter(is_wanted).map(one).collect::<Vec<_>>()
        });
        for (name, outcome, took) in process::at_the_same_time(2, waiting().filter(is_wanted), one)
        {
            tally.add(name, &outcome, took);
        }
        for (name, outcome, took) in alone().filter(is_wanted).map(one) {
            tally.add(name, &outcome, took);
        }
        for (name, outcome, took) in beside.join().expect("a test fails, and does not panic") {
            tally.add(name, &outcome, took);
        }
    });
    println!(
        "{} trials and tests were spoiled by this machine and done again, of {MOST_SPOILED} allowed",
        spoiled.load(Ordering::Relaxed)
    );
    let required = part.is_empty() && Consent::in_ci() && can_install();
    Ok(if tally.conclude(required) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A folder of ours through which others than root get to what they may read in it.
fn traversable_folder() -> Result<tempfile::TempDir> {
    let mode = fs::Permissions::from_mode(0o711);
    Ok(tempfile::Builder::new().permissions(mode).tempdir()?)
}

/// How many queries dnsperf sent, by what it printed.
///
/// # Errors
/// If one of them got no reply, or another one than NOERROR.
fn all_noerror(printed: &str) -> Result<u64> {
    let number = |title: &str| -> Result<u64> {
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(title));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.with_context(|| format!("no {title} in {printed}"))?.parse()?)
    };
    let (sent, completed) = (number("Queries sent:")?, number("Queries completed:")?);
    ensure!(completed == sent, "{printed}");
    // "Response codes:       NOERROR 4000 (100.00%)", and no other behind it.
    ensure!(printed.contains(&format!("NOERROR {sent} (100.00%)\n")), "{printed}");
    Ok(sent)
}

/// Record types (IANA).
const A: u8 = 1;
const AAAA: u8 = 28;

/// Waits until `server` has an answer of type `rtype` for `name`.
fn wait_for(server: &str, name: &str, rtype: u8) -> Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, rtype, 0, 1]);
    for _ in 0..100 {
        let _ = socket.send_to(&query, server);
        let mut reply = [0; 512];
        // NOERROR with an answer.
        if matches!(socket.recv(&mut reply), Ok(n) if n > 12 && reply[3] & 15 == 0 && reply[7] > 0)
        {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    anyhow::bail!("{server} does not answer for {name}")
}

/// A lab that is taken down at the end, if we put it up.
struct Lab<'a>(&'a Bench);

impl<'a> Lab<'a> {
    fn up(bench: &'a Bench) -> Result<Lab<'a>> {
        output(bench.program(), &["lab", "up"], LIMIT)?;
        Ok(Lab(bench))
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = output(self.0.program(), &["lab", "down"], LIMIT);
    }
}

impl Bench {
    /// One of our own servers in a host of the lab, when it listens on the port of its `--listen`.
    fn in_lab(&self, host: &str, args: &[&str]) -> Result<Server> {
        let listen = args
            .iter()
            .skip_while(|word| **word != "--listen")
            .nth(1)
            .context("it has no --listen")?;
        self.in_lab_at(host, args, listen.parse::<SocketAddr>()?.port())
    }

    /// The same, where it listens on this port.
    fn in_lab_at(&self, host: &str, args: &[&str], port: u16) -> Result<Server> {
        let within = ["lab", "exec", host, "--"];
        let server =
            Server::start(self.program(), &[&within[..], &[self.program()], args].concat())?;
        wait_until_listens(&[&[self.program()], &within[..]].concat(), port)?;
        Ok(server)
    }

    /// A DUT of the lab, on one CPU if one is given, when it answers.
    fn dut_in_lab(&self, dut: Dut, cpu: Option<&str>) -> Result<Server> {
        let name = dut.driver().program_name().context("it has no program")?;
        let program = find(name).with_context(|| format!("{name} not found"))?;
        let words = dut_in_lab(dut, &self.folder.path().join(dut.name()), &program, 1)?;
        let mut args = vec!["lab", "exec", "dut", "--"];
        args.extend(cpu.into_iter().flat_map(|cpu| ["taskset", "-c", cpu]));
        args.extend(words.iter().map(String::as_str));
        let server = Server::start(self.program(), &args)?;
        wait_until_answers(
            self.program(),
            DUT,
            &["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"],
        )?;
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a test is run that ends like this one time after the other, after so many tests
    /// that were spoiled; and how it ended in the end.
    fn runs(spoiled: u32, ends: &[(Result<(), &'static str>, Duration)]) -> (usize, bool) {
        let (spoiled, mut ends) = (AtomicU32::new(spoiled), ends.iter());
        let ended = with_second_chance("a test", &spoiled, || {
            let (outcome, pause) = ends.next().expect("it is run again");
            let skipped = |why: &&'static str| anyhow::Error::from(Skipped((*why).to_owned()));
            let wrong = |why: &&'static str| anyhow::Error::msg(*why);
            let error = |why| if why == "skipped" { skipped(&why) } else { wrong(&why) };
            Ok((outcome.map_err(error), *pause))
        });
        (ends.len(), ended.is_ok())
    }

    #[test]
    fn a_test_has_a_second_chance_only_where_the_machine_stood_still() {
        let (short, long) = (STOOD_STILL / 2, STOOD_STILL);
        let (good, wrong, skipped) = (Ok(()), Err("wrong"), Err("skipped"));
        // So many runs are left over.
        assert_eq!(runs(0, &[(good, long), (wrong, long)]), (1, true));
        assert_eq!(runs(0, &[(wrong, short), (good, short)]), (1, false));
        assert_eq!(runs(0, &[(skipped, long), (good, short)]), (1, false));
        assert_eq!(runs(0, &[(wrong, long), (good, long), (good, short)]), (1, true));
        assert_eq!(runs(0, &[(wrong, long), (wrong, long), (good, short)]), (1, false));
        assert_eq!(runs(MOST_SPOILED, &[(wrong, long), (good, short)]), (1, false));
    }

    #[test]
    fn others_get_through_our_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = super::traversable_folder().unwrap();
        let mode = std::fs::metadata(folder.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o711);
    }

    #[test]
    fn dnsperf_is_believed_only_if_all_replies_are_noerror() {
        let said = |completed: &str, codes: &str| {
            super::all_noerror(&format!(
                "Statistics:\n\n  Queries sent:         4000\n  Queries completed:    {completed}\n  \
                 Queries lost:         0 (0.00%)\n\n  Response codes:       {codes}\n  Average packet size:  request 48, response 76\n"
            ))
        };
        assert_eq!(said("4000 (100.00%)", "NOERROR 4000 (100.00%)").unwrap(), 4_000);
        assert!(said("4000 (100.00%)", "NOERROR 2000 (50.00%), SERVFAIL 2000 (50.00%)").is_err());
        assert!(said("3999 (99.98%)", "NOERROR 3999 (100.00%)").is_err());
        assert!(said("4000 (100.00%)", "SERVFAIL 4000 (100.00%)").is_err());
    }

    #[test]
    fn every_test_is_in_the_list_and_every_one_of_the_list_exists() {
        let all: Vec<&str> = super::all().map(|(name, ..)| *name).collect();
        let listed: Vec<&str> = super::tally::required().chain(super::tally::optional()).collect();
        for name in &all {
            assert!(
                listed.contains(name),
                "{name} is not in required-tests.txt: CI would stay green without it"
            );
        }
        for name in &listed {
            assert!(all.contains(name), "{name} in required-tests.txt is no test");
        }
    }
}
