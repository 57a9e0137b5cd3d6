//! Campaigns with several hosts (an sshd in each namespace of the lab), with other servers as AuthDNS, and on a full
//! disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::harness::{Bench, LIMIT, Lab, SHORT_TRIALS, results};
use super::placement::{agree, watched};
use super::tally::Skipped;
use super::test::{ROOT, Test};
use crate::process::{self, Server, find, output, wait_until};

/// Programs that a campaign over ssh needs.
pub(super) const SSH: &[&str] = &["sshd", "ssh", "ssh-keygen", "ip", ROOT];

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "campaign over ssh between namespaces, same as the local one",
        SSH,
        campaign_over_ssh,
    )
    .retried("CPU use is not reported where a busy machine delays its readings"),
    Test::new("campaign whose ssh connections are lost", SSH, lost_connections),
    Test::new("campaign with two testers over ssh", SSH, two_testers),
    Test::new("campaign with two AuthDNS over ssh", SSH, two_auths),
    Test::new(
        "campaign with NSD, Knot DNS, BIND and YADIFA as AuthDNS",
        &["nsd", "knotd", "named", "yadifad"],
        several_auths,
    ),
    Test::new("campaign with NSD as AuthDNS", &["nsd"], |bench| with_auth(bench, "nsd")),
    Test::new("campaign with Knot DNS as AuthDNS", &["knotd"], |bench| with_auth(bench, "knot")),
    Test::new("campaign with BIND as AuthDNS", &["named"], |bench| with_auth(bench, "bind")),
    Test::new("campaign with YADIFA as AuthDNS", &["yadifad"], |bench| with_auth(bench, "yadifa")),
    Test::new("campaign on a full disk", &["mount", "umount", ROOT], full_disk),
    Test::new("campaign with Knot Resolver over IPv6", &["kresd"], |bench| {
        one_driver(bench, "loopback", "driver = 'knot-resolver'\nfamily = 'ipv6'").map(drop)
    }),
    Test::new("campaign with CoreDNS", &["coredns"], |bench| {
        one_driver(bench, "loopback", "driver = 'coredns'").map(drop)
    }),
    Test::new(
        "campaign with a server that forks into the background like mtd64-ng",
        &["ip", "unshare"],
        like_mtd64_ng,
    ),
    Test::new(
        "campaign with mtd64-ng itself (MTD64_NG=path) and 1, 14 and 30 threads",
        &["ip", "unshare"],
        mtd64_ng,
    ),
];

/// A self-test and a load in addition to [`SHORT_TRIALS`].
const SELF_TEST: &str = "[self-test]\nmin = 500\nmax = 500\nresolution = 500\nrepeat = 1\n";
const LOAD: &str = "[measure.loads]\nshares = [1]\nduration = '4s'\ntransient = '0s'\nrepeat = 1\n";

/// An sshd in each host of the lab, and the settings by which ssh reaches them.
pub(super) struct Sshds {
    _sshds: Vec<Server>,
    /// The configuration file for ssh.
    pub(super) config: String,
}

impl Sshds {
    pub(super) fn start(bench: &Bench) -> Result<Sshds> {
        let key = |name: &str| -> Result<String> {
            let path = bench.path(name);
            if fs::metadata(&path).is_err() {
                output("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path], LIMIT)?;
            }
            Ok(path)
        };
        let (host_key, user_key) = (key("host_key")?, key("user_key")?);
        let authorized =
            bench.file("authorized_keys", &fs::read_to_string(format!("{user_key}.pub"))?)?;
        // sshd separates privileges in this folder, which Debian creates at boot.
        fs::create_dir_all("/run/sshd")?;
        let sshd = find("sshd").context("sshd")?;
        let (mut sshds, mut config, mut known) = (Vec::new(), String::new(), String::new());
        let public = fs::read_to_string(format!("{host_key}.pub"))?;
        let hosts = [("tester", "2001:2::2"), ("dut", "2001:2::1"), ("auth", "198.18.1.2")];
        for (host, address) in hosts {
            let text = format!(
                "ListenAddress {}:2222\nHostKey {host_key}\nAuthorizedKeysFile {authorized}\nStrictModes no\nPidFile none\n\
                 UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
                if address.contains(':') { format!("[{address}]") } else { address.into() }
            );
            let file = bench.file(&format!("sshd-{host}"), &text)?;
            let args =
                ["lab", "exec", host, "--", &sshd.to_string_lossy(), "-D", "-e", "-f", &file];
            sshds.push(Server::start(bench.program(), &args)?);
            config.push_str(&format!(
                // Each host has two names, for tests that need two hosts.
                "Host far-{host} also-{host}\n  HostName {address}\n  Port 2222\n  User root\n  IdentityFile {user_key}\n  IdentitiesOnly yes\n  \
                 StrictHostKeyChecking yes\n  UserKnownHostsFile {}\n",
                bench.path("known_hosts")
            ));
            known.push_str(&format!("[{address}]:2222 {public}"));
        }
        bench.file("known_hosts", &known)?;
        let config = bench.file("ssh_config", &config)?;
        // The first successful connection shows that the sshd listens.
        for (host, _) in hosts {
            let host = format!("far-{host}");
            let args = [
                "lab",
                "exec",
                "tester",
                "--",
                "ssh",
                "-F",
                &config,
                "-o",
                "BatchMode=yes",
                &host,
                "true",
            ];
            let give_up = Instant::now() + Duration::from_secs(10);
            loop {
                let ran = process::run(bench.program(), &args, LIMIT)?;
                if ran.status == Some(0) {
                    break;
                }
                ensure!(Instant::now() < give_up, "{host}: {}", ran.stderr);
                thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(Sshds { _sshds: sshds, config })
    }

    /// Returns the arguments that run our program in the tester's namespace.
    fn in_tester<'a>(bench: &'a Bench, words: &[&'a str]) -> Vec<&'a str> {
        [&["lab", "exec", "tester", "--", bench.program()], words].concat()
    }

    /// Runs a campaign in the tester's namespace. Returns its run folder, which is named after the plan, and its
    /// results.
    pub(super) fn campaign(bench: &Bench, name: &str, plan: &str) -> Result<(String, Value)> {
        bench.campaign_within(&["lab", "exec", "tester", "--", bench.program()], name, plan)
    }

    /// Returns a plan for the tester's namespace.
    fn plan(&self, bench: &Bench) -> String {
        format!("name = 'far'\ntopology = 'ssh'\n{SHORT_TRIALS}{SELF_TEST}{}", self.hosts(bench))
    }

    /// Returns the hosts of a plan for the tester's namespace.
    pub(super) fn hosts(&self, bench: &Bench) -> String {
        let program = bench.program();
        format!(
            "[ssh]\nconfig = '{}'\ndut = {{ host = 'far-dut', program = '{program}' }}\n\
             auth = {{ host = 'far-auth', program = '{program}' }}\n[ssh.addresses]\ndut = '[2001:2::1]:53'\nauth = '198.18.0.2:53'\n\
             self-test = '198.18.1.2:53'\n",
            self.config
        )
    }
}

/// Returns the names of all measured DUTs, points and loads.
fn measured(results: &Value) -> Vec<String> {
    let duts = results["duts"].as_array().into_iter().flatten();
    duts.flat_map(|dut| {
        let points =
            dut["points"].as_array().into_iter().flatten().map(|p| p["conditions"].to_string());
        let loads = dut["loads"].as_array().into_iter().flatten().map(|l| l["share"].to_string());
        points.chain(loads).map(|what| format!("{} {what}", dut["name"])).collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the headings of a report's tables, without those that contain the name of the run.
fn headings(run: &str) -> Result<Vec<String>> {
    let tables = fs::read_to_string(format!("{run}/tables.md"))?;
    Ok(tables.lines().filter(|line| line.starts_with("### ")).map(str::to_owned).collect())
}

fn campaign_over_ssh(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let measure = format!("[measure]\ncached-shares = [0.5]\n{LOAD}");
    let far = format!("{}{measure}[[dut]]\ndriver = 'dns64d'\n", sshds.plan(bench));
    let (far_run, far) = Sshds::campaign(bench, "far", &far)?;
    let near = format!(
        "name = 'near'\ntopology = 'lab'\n{SHORT_TRIALS}{SELF_TEST}{measure}[[dut]]\ndriver = 'dns64d'\n"
    );
    let (near_run, near) = bench.campaign("near", &near)?;
    ensure!(
        measured(&far) == measured(&near),
        "not the same points: {:?} {:?}",
        measured(&far),
        measured(&near)
    );
    let (far_tables, near_tables) = (headings(&far_run)?, headings(&near_run)?);
    ensure!(far_tables == near_tables, "not the same tables: {far_tables:?} and {near_tables:?}");
    let roles: Vec<_> = far["hosts"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|host| host["role"].to_string())
        .collect();
    ensure!(roles == ["\"tester\"", "\"dut\"", "\"auth\""], "facts of {roles:?}");
    for results in [&far, &near] {
        let real = &results["duts"][0]["points"][0]["real"];
        ensure!(real["questions_per_query"] == 2.0, "{real}");
    }
    // The run folder on this host contains configurations and logs from the other hosts.
    ensure!(
        fs::read_to_string(format!("{far_run}/servers/dns64d-1/dns64d.toml"))?
            .contains("198.18.0.2")
    );

    // The host of this server needs only ssh and a shell.
    let config = "[access]\nallow = ['::/0']\nopen-resolver = true\n[dns64]\nprefixes = [{ prefix = '64:ff9b::/96', allow-non-global = true }]\n";
    let config = format!(
        "listen = ['[2001:2::1]:53']\n{config}[[upstream]]\naddress = '198.18.0.2'\nport = 53\n"
    );
    let config = bench.file("shell.toml", &config)?;
    let plan = sshds
        .plan(bench)
        .replace("dut = { host = 'far-dut',", "dut = { host = 'far-dut', agent = false,");
    let program = bench.program();
    let custom = format!(
        "{plan}{LOAD}[[dut]]\ndriver = 'custom'\nname = 'shell only'\n[dut.custom]\nstart = ['{program}', 'dns64d', '--config', '{config}']\n\
         ready = ['test', '-d', '/proc']\nversion = ['{program}', 'dns64d', '--version']\n"
    );
    let (_, shell) = Sshds::campaign(bench, "shell-only", &custom)?;
    ensure!(shell["duts"][0]["points"][0]["figures"]["median"] == 100.0, "{}", shell["duts"]);
    ensure!(
        shell["duts"][0]["version"].as_str().is_some_and(|v| v.contains("dns64d")),
        "{}",
        shell["duts"][0]["version"]
    );
    ensure!(
        shell["duts"][0]["loads"][0]["cpu"]["median"].as_f64().is_some_and(|cpu| cpu > 0.0),
        "no CPU use measured"
    );
    Ok(())
}

/// With two testers, a campaign finds the rate of the DUT, and every trial is complete.
fn two_testers(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let program = bench.program();
    let host = |name: &str| format!("{{ host = '{name}', program = '{program}' }}");
    let both = [host("far-tester"), host("also-tester")].join(", ");
    let plan = sshds.plan(bench).replace("[ssh]\n", &format!("[ssh]\ntesters = [{both}]\n"));
    let plan = format!("{plan}{LOAD}[[dut]]\ndriver = 'dns64d'\n");
    let (folder, two) = Sshds::campaign(bench, "two", &plan)?;
    let first = &two["duts"][0]["points"][0];
    ensure!(first["figures"]["median"] == 100.0, "{first}");
    ensure!(first["real"]["questions_per_query"] == 2.0, "{first}");

    let hosts = two["hosts"].as_array().into_iter().flatten();
    let roles: Vec<_> = hosts.filter_map(|host| host["role"].as_str()).collect();
    ensure!(roles == ["tester", "tester 1", "dut", "auth"], "facts of {roles:?}");
    let journal = fs::read_to_string(format!("{folder}/journal.jsonl"))?;
    let mut shared = 0;
    for line in journal.lines() {
        let entry: Value = serde_json::from_str(line)?;
        // Both testers take part in all trials of the self-test, of searches and of loads. A trial with a single tester
        // would use one thread.
        let Some(trial) = entry.pointer("/finished/trial") else { continue };
        shared += 1;
        ensure!(trial["settings"]["threads"] == 2, "{line}");
        let rate = trial["rate"].as_f64().unwrap_or(0.0);
        let planned = rate * trial["duration_s"].as_f64().unwrap_or(0.0);
        ensure!(trial["verdict"] == "invalid" || trial["sent"].as_f64() == Some(planned), "{line}");
    }
    ensure!(shared >= 3, "{shared} shared trials in {journal}");
    Ok(())
}

/// The DUT queries two instances of AuthDNS, and the counters of both are added. Each search of the self-test queries
/// one of them.
fn two_auths(bench: &Bench) -> Result<()> {
    const ASKED: [&str; 2] = ["198.18.1.2:53", "198.18.1.2:5353"];
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let program = bench.program();
    let host = |name: &str| format!("{{ host = '{name}', program = '{program}' }}");
    let (one, both) = (host("far-auth"), [host("far-auth"), host("also-auth")].join(", "));
    let plan = sshds
        .plan(bench)
        .replace(&format!("auth = {one}"), &format!("auths = [{both}]"))
        .replace("auth = '198.18.0.2:53'", "auth = ['198.18.0.2:53', '198.18.0.2:5353']")
        .replace("self-test = '198.18.1.2:53'", &format!("self-test = {ASKED:?}"))
        .replace("resolution = 500\nrepeat = 1", "resolution = 500\nrepeat = 2");
    let plan = format!("{plan}[[dut]]\ndriver = 'dns64d'\n");
    let (folder, found) = Sshds::campaign(bench, "auths", &plan)?;
    // Only the sum of both counters shows that there were two upstream queries for each name.
    let first = &found["duts"][0]["points"][0];
    ensure!(first["figures"]["median"] == 100.0, "{first}");
    ensure!(first["real"]["questions_per_query"] == 2.0, "{first}");
    let hosts = found["hosts"].as_array().into_iter().flatten();
    let roles: Vec<_> = hosts.filter_map(|host| host["role"].as_str()).collect();
    ensure!(roles == ["tester", "dut", "auth", "auth 1"], "facts of {roles:?}");
    let told = fs::read_to_string(format!("{folder}/servers/dns64d-1/dns64d.toml"))?;
    ensure!(told.contains("port = 53\n") && told.contains("port = 5353\n"), "{told}");
    let journal = fs::read_to_string(format!("{folder}/journal.jsonl"))?;
    let mut asked: Vec<String> = Vec::new();
    for line in journal.lines() {
        let entry: Value = serde_json::from_str(line)?;
        let finished = &entry["finished"];
        if finished["point"].get("self_test").is_some() {
            let server = finished["trial"]["server"].as_str().context("no server")?;
            let of = finished["repeat"].as_u64().context("no repeat")? as usize;
            ensure!(server == ASKED[of % 2], "search {of} used {server}");
            asked.push(server.to_owned());
        }
    }
    ensure!(ASKED.iter().all(|server| asked.iter().any(|other| other == server)), "{asked:?}");
    for log in ["auth.log", "auth-1.log"] {
        ensure!(fs::metadata(format!("{folder}/servers/{log}")).is_ok(), "no {log}");
    }
    Ok(())
}

/// Returns the IDs of the child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Waits until one of our programs ends, and returns its exit status.
fn status(mut child: Child, limit: Duration) -> Result<Option<i32>> {
    let give_up = Instant::now() + limit;
    while Instant::now() < give_up {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    bail!("it did not end");
}

/// Waits until the journal in a run folder has at least this number of lines.
fn wait_for_lines(run: &str, lines: usize) -> Result<()> {
    let journal = format!("{run}/journal.jsonl");
    let has_them =
        || Ok(fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() >= lines));
    wait_until("the journal does not grow", Duration::from_secs(60), has_them)
}

fn lost_connections(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    // The plan has enough trials for the connections to be lost during a trial.
    let plan = sshds.plan(bench).replace("max = 100\n", "max = 800\n");
    let plan = bench.file("lost.toml", &format!("{plan}[[dut]]\ndriver = 'dns64d'\n"))?;
    let run = bench.path("lost-run");
    let words = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
    let mut command = Command::new(bench.program());
    let child = command
        .args(Sshds::in_tester(bench, &words))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    wait_for_lines(&run, 12)?;
    let connections: Vec<u32> =
        children(child.id()).into_iter().filter(|&pid| name_of(pid) == "ssh").collect();
    ensure!(connections.len() == 2, "{connections:?}");
    for pid in connections {
        output("kill", &["-KILL", &pid.to_string()], LIMIT)?;
    }
    ensure!(
        status(child, Duration::from_secs(30))? == Some(4),
        "a lost connection does not count as an unusable environment"
    );
    // The agents detect the lost connection and end the programs that they started, so the port becomes free again.
    let args = ["lab", "exec", "dut", "--", "ss", "-Huln", "sport = :53"];
    let is_gone = || Ok(output(bench.program(), &args, LIMIT)?.trim().is_empty());
    wait_until("the DUT outlives its connection", Duration::from_secs(20), is_gone)?;
    let resumed = Sshds::in_tester(bench, &["campaign", "resume", &run, "--quiet"]);
    output(bench.program(), &resumed, LIMIT)?;
    results(&run).map(drop)
}

/// Runs a campaign with one other server as AuthDNS.
fn with_auth(bench: &Bench, driver: &str) -> Result<()> {
    // There are fewer names than the trials of one search need, so the servers are restarted during the search.
    let trials = SHORT_TRIALS.replace("max = 100\n", "max = 300\n").replace("300ms", "800ms");
    let plan = format!(
        "name = '{driver}'\ntopology = 'loopback'\n{trials}[auth]\ndriver = '{driver}'\nnames = '10.0.0.0/23'\n[[dut]]\ndriver = 'dns64d'\n"
    );
    let (run, results) = bench.campaign(&format!("auth-{driver}"), &plan)?;
    let dut = &results["duts"][0];
    ensure!(dut["points"][0]["figures"]["median"] == 300.0, "{}", results["duts"]);
    let version = &results["auth"];
    ensure!(version.as_str().is_some_and(|v| v.contains('.')), "version {version}");
    ensure!(dut["points"][0]["real"].is_null(), "its queries are counted");
    no_large_files(&run)
}

/// Runs a plan that uses AuthDNS and all other authoritative servers. Each of them must have a row and a self-test.
fn several_auths(bench: &Bench) -> Result<()> {
    let further: String = ["nsd", "knot", "bind", "yadifa"]
        .map(|driver| format!("[[authdns]]\ndriver = '{driver}'\nnames = '10.0.0.0/20'\n"))
        .concat();
    let names = ["AuthDNS", "NSD", "Knot DNS", "BIND", "YADIFA"];
    let plan = format!(
        "name = 'several'\ntopology = 'loopback'\n{SHORT_TRIALS}{SELF_TEST}{further}[[dut]]\ndriver = 'dns64d'\n\
         measure = {{ authdns = {names:?}, cached-shares = [] }}\n"
    );
    let (_, results) = bench.campaign("several-auths", &plan)?;
    let points = results["duts"][0]["points"].as_array().context("no points")?;
    for (point, name) in points.iter().zip(names) {
        ensure!(
            point["conditions"]["authdns"] == name && point["figures"]["median"] == 100.0,
            "{name}: {point}"
        );
        ensure!(point["real"].is_null() == (name != "AuthDNS"), "{name}: {point}");
    }
    let tests = results["self_tests"].as_array().context("no self-tests")?;
    ensure!(
        points.len() == names.len() && tests.iter().all(|test| test["vouches"] == true),
        "{tests:?}"
    );
    Ok(())
}

/// A separate, small file system that becomes full during the test.
struct SmallDisk(String);

impl SmallDisk {
    fn mount(path: String, size: &str) -> Result<SmallDisk> {
        fs::create_dir_all(&path)?;
        output("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", &path], LIMIT)?;
        Ok(SmallDisk(path))
    }

    fn resize(&self, size: &str) -> Result<()> {
        output("mount", &["-o", &format!("remount,size={size}"), &self.0], LIMIT).map(drop)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = output("umount", &["-l", &self.0], LIMIT);
    }
}

fn full_disk(bench: &Bench) -> Result<()> {
    let disk = match SmallDisk::mount(bench.path("small-disk"), "48k") {
        Ok(disk) => disk,
        Err(error) => {
            return Err(
                Skipped(format!("mounting a file system is not possible here: {error}")).into()
            );
        }
    };
    fs::set_permissions(&disk.0, fs::Permissions::from_mode(0o755))?;
    let plan = format!(
        "name = 'full'\ntopology = 'loopback'\n{SHORT_TRIALS}{SELF_TEST}[[dut]]\ndriver = 'dns64d'\n"
    );
    let (plan, run) = (bench.file("full.toml", &plan)?, format!("{}/run", disk.0));
    let ran = process::run(
        bench.program(),
        &["campaign", "run", &plan, "--dir", &run, "--quiet"],
        LIMIT,
    )?;
    ensure!(
        ran.status == Some(4) && ran.stderr.contains("No space left"),
        "{:?}: {}",
        ran.status,
        ran.stderr
    );
    let finished = |run: &str| {
        fs::read_to_string(format!("{run}/journal.jsonl"))
            .map_or(0, |t| t.matches("\"finished\"").count())
    };
    let before = finished(&run);
    disk.resize("10m")?;
    output(bench.program(), &["campaign", "resume", &run, "--quiet"], LIMIT)?;
    results(&run)?;
    ensure!(finished(&run) > before, "nothing was left to do: make the disk smaller");
    Ok(())
}

/// Size in octets that logs and configurations of three short trials do not reach.
const BULK: u64 = 4 << 20;

/// Requires that a campaign has removed caches and zone files at its end. A gigabyte for each point would fill any
/// disk.
fn no_large_files(run: &str) -> Result<()> {
    let found = output("find", &[run, "-type", "f", "-size", &format!("+{}k", BULK >> 10)], LIMIT)?;
    ensure!(found.trim().is_empty(), "large files are left: {found}");
    let zones = output("find", &[run, "-name", "*.zone"], LIMIT)?;
    ensure!(zones.trim().is_empty(), "zone files are left: {zones}");
    Ok(())
}

/// A script that imitates mtd64-ng. It reads `/etc/mtd64-ng.conf`, goes into the background, and listens on all
/// addresses.
const LIKE_MTD64_NG: &str = r#"#!/bin/sh
value() { sed -n "s/^$1 //p" /etc/mtd64-ng.conf; }
cat > FOLDER/like-mtd64-ng.toml <<END
listen = ["[::]:$(value port)"]
threads = $(value num-threads)
[dns64]
prefixes = [{ prefix = "$(value dns64-prefix)", allow-non-global = true }]
[access]
allow = ["2001:2::/64"]
[[upstream]]
address = "$(value nameserver)"
END
setsid PROGRAM dns64d --config FOLDER/like-mtd64-ng.toml > FOLDER/like-mtd64-ng.log 2>&1 < /dev/null &
"#;

fn like_mtd64_ng(bench: &Bench) -> Result<()> {
    let folder = bench.folder.path().display().to_string();
    let script = LIKE_MTD64_NG.replace("FOLDER", &folder).replace("PROGRAM", bench.program());
    let program = bench.file("like-mtd64-ng", &script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let before = running("like-mtd64-ng.toml")?;
    // These words distinguish the server from the programs that start it.
    let is_it = |words: &[&str]| {
        words.contains(&"dns64d") && words.iter().any(|word| word.ends_with("like-mtd64-ng.toml"))
    };
    let run = || one_driver(bench, "lab", &format!("driver = 'mtd64-ng'\nprogram = '{program}'"));
    let (results, seen) = watched(&is_it, run)?;
    agree(&results["duts"][0]["points"][0], &seen)?;
    ensure!(
        before == 0 && running("like-mtd64-ng.toml")? == 0,
        "the process in the background has not ended"
    );
    Ok(())
}

/// There is no package of mtd64-ng. The environment variable `MTD64_NG` contains the path of a program that the user
/// has built.
fn mtd64_ng(bench: &Bench) -> Result<()> {
    let Some(program) = std::env::var_os("MTD64_NG") else {
        return Err(Skipped(
            "MTD64_NG does not name the program, which is built from its repository".into(),
        )
        .into());
    };
    let program = program.to_string_lossy();
    for threads in [1, 14, 30] {
        // mtd64-ng has no cache, so a point with a cache hit rate has no result.
        let dut = format!(
            "driver = 'mtd64-ng'\nprogram = '{program}'\nthreads = {threads}\n[dut.measure]\ncached-shares = []"
        );
        let is_it = |words: &[&str]| words[0] == program;
        let (results, own) = watched(&is_it, || one_driver(bench, "lab", &dut))?;
        agree(&results["duts"][0]["points"][0], &own)?;
        let place = &results["duts"][0]["points"][0]["place"];
        ensure!(place["told"] == threads, "{place}");
        // The threads are the receiver, its workers, and the surrounding shell that ends the receiver.
        let seen = place["allowed"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|set| set["threads"].as_u64());
        ensure!(seen.sum::<u64>() > threads, "{place}");
        let version = results["duts"][0]["version"].as_str().unwrap_or_default();
        ensure!(version.contains("SHA-256"), "{version}");
    }
    Ok(())
}

/// Returns the number of processes with this word in their command lines.
fn running(word: &str) -> Result<usize> {
    let lines = output("ps", &["-eo", "args="], LIMIT)?;
    Ok(lines.lines().filter(|line| line.contains(word)).count())
}

/// Runs a campaign with one server, which must reach the rate of the plan. Returns the results of the campaign.
fn one_driver(bench: &Bench, topology: &str, dut: &str) -> Result<Value> {
    let plan = format!("name = 'one'\ntopology = '{topology}'\n{SHORT_TRIALS}[[dut]]\n{dut}\n");
    let folder = tempfile::tempdir_in(bench.folder.path())?;
    let name = folder.path().file_name().context("the folder has a name")?.to_string_lossy();
    let (run, results) = bench.campaign(&format!("{name}/run"), &plan)?;
    ensure!(results["duts"][0]["points"][0]["figures"]["median"] == 100.0, "{results}");
    no_large_files(&run)?;
    Ok(results)
}
