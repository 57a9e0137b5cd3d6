//! Tests of dns64d as a systemd service, without a running systemd. They cover socket activation, and compare the
//! restrictions of the unit with the needs of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use net::ports;

use super::dns64d::NAME;
use super::harness::{A, AAAA, Bench, LIMIT, Lab, two_cpus, wait_for};
use super::test::{ROOT, Test};
use super::xdp::xdp_config;
use crate::process::{self, Server, free_port, output, root, wait_until};
use crate::servers::{AUTH, DUT_HOST, wait_until_answers};

pub(super) static TESTS: &[Test] = &[
    Test::new("systemd's socket activation", &["systemd-socket-activate"], socket_activation),
    Test::new(
        "the systemd unit allows all operations of dns64d",
        &["systemd-analyze", "strace", "setpriv", ROOT],
        unit_allows,
    ),
    Test::new(
        "the systemd drop-in allows all operations of dns64d with AF_XDP",
        &["systemd-analyze", "strace", "setpriv", "ip", ROOT],
        drop_in_allows,
    ),
];

fn auth(bench: &Bench) -> Result<(Server, u16)> {
    let port = free_port()?;
    let listen = format!("127.0.0.1:{port}");
    let server =
        Server::start(bench.program(), &["auth", "--listen", &listen, "--aaaa-share", "0"])?;
    wait_for(&listen, NAME, A)?;
    Ok((server, port))
}

fn socket_activation(bench: &Bench) -> Result<()> {
    let (_auth, upstream) = auth(bench)?;
    let (port, unused) = (free_port()?, free_port()?);
    let config = bench.dns64d_config(unused, upstream)?;
    let listen = format!("127.0.0.1:{port}");
    let program = bench.dns64d_program();
    let args = ["--datagram", "--listen", &listen, &program, "--config", &config];
    let _server = Server::start("systemd-socket-activate", &args)?;
    // The first query starts the server, and must be answered too.
    wait_for(&listen, NAME, AAAA)?;
    ensure!(
        ports::is_free(SocketAddr::from((Ipv4Addr::LOCALHOST, unused))).is_ok(),
        "it serves `listen` in addition to systemd's socket"
    );
    Ok(())
}

/// Operations of dns64d that a unit may forbid.
#[derive(Default)]
struct Needs {
    /// System calls.
    calls: BTreeSet<String>,
    /// Address families of sockets, such as `AF_INET`.
    families: BTreeSet<String>,
}

impl Needs {
    /// Parses the output of strace.
    fn read(trace: &str) -> Needs {
        let mut needs = Needs::default();
        for line in trace.lines() {
            // A line for a call looks like "1234 epoll_wait(3, …". The text after the number begins with "<..." for the
            // rest of an interrupted call, with "---" for a signal, and with "+++" for an exit.
            let Some((_, line)) = line.split_once(' ') else { continue };
            let Some((call, arguments)) = line.trim().split_once('(') else { continue };
            let is_name =
                call.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_name {
                needs.calls.insert(call.to_owned());
            }
            if call == "socket" {
                needs.families.extend(arguments.split(',').next().map(str::to_owned));
            }
        }
        needs
    }

    /// Returns an error if units do not allow some of these needs. `who` is the name of the program in the error.
    fn are_met_by(&self, allowed: &Needs, who: &str) -> Result<()> {
        let denied: Vec<&String> = self
            .calls
            .difference(&allowed.calls)
            .chain(self.families.difference(&allowed.families))
            .collect();
        ensure!(denied.is_empty(), "{who} is denied {denied:?}");
        Ok(())
    }
}

/// Runs dns64d under strace in the same way as the unit: as the user nobody, with exactly these capabilities. Ends
/// dns64d once it has answered at `address`, has reloaded its configuration, and, if probes are configured, has sent
/// probes.
fn traced(
    bench: &Bench,
    within: &[&str],
    config: &str,
    capabilities: &[String],
    look: impl FnOnce() -> Result<()>,
) -> Result<Needs> {
    let folder = folder_of_nobody(bench)?;
    let [trace, log] = ["trace", "log"].map(|name| format!("{folder}/{name}"));
    let each = |sign: &str| -> String {
        capabilities.iter().map(|name| format!(",{sign}{name}")).collect()
    };
    let kept = each("+");
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
    let sets =
        ["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}=-all{kept}"));
    let sets = sets.each_ref().map(String::as_str);
    let program = bench.dns64d_for_everybody()?;
    let strace = ["strace", "-f", "-qq", "-o", &trace, &program, "--config", config];
    let words = [within, &user, &sets, &strace].concat();
    let server = Server::start_logged(words[0], &words[1..], Path::new(&log))?;
    look().with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
    // The server is the last process in a chain of child processes.
    let child = last_child(server.pid()?)?.to_string();
    output("kill", &["-HUP", &child], LIMIT)?;
    let is_replaced = || Ok(fs::read_to_string(&log)?.contains("configuration reloaded"));
    wait_until("dns64d does not reload its configuration", LIMIT, is_replaced)?;
    output("kill", &["-TERM", &child], LIMIT)?;
    let is_gone = || Ok(!Path::new("/proc").join(&child).exists());
    wait_until("dns64d does not end", LIMIT, is_gone)?;
    server.end()?;
    Ok(Needs::read(&fs::read_to_string(&trace)?))
}

/// Returns the ID of the last process in the chain of child processes that begins with `pid`.
fn last_child(mut pid: u32) -> Result<u32> {
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        match children.split_whitespace().next() {
            Some(child) => pid = child.parse()?,
            None => return Ok(pid),
        }
    }
}

/// Creates a folder that belongs to the user nobody, and returns its path.
fn folder_of_nobody(bench: &Bench) -> Result<String> {
    use std::os::unix::fs::chown;
    let folder = bench.path("nobody");
    fs::create_dir_all(&folder)?;
    chown(&folder, Some(65534), Some(65534))?;
    Ok(folder)
}

/// Returns the needs of a dns64d that serves clients through sockets.
fn needs_of_sockets(bench: &Bench) -> Result<Needs> {
    let (_auth, upstream) = auth(bench)?;
    let (port, folder) = (free_port()?, folder_of_nobody(bench)?);
    let config = fs::read_to_string(bench.dns64d_config(port, upstream)?)?;
    let [cpu, _] = two_cpus();
    // The configuration enables all features that need additional system calls. No process reads from the dnstap
    // socket.
    let config = format!(
        "cpus = [{cpu}]\n{config}[control]\nsocket = '{folder}/control.sock'\n\
         [query-log]\nto = '{folder}/queries.log'\n[dnstap]\nsocket = '{folder}/tap.sock'\n"
    );
    let config = bench.file("dns64d-pinned.toml", &config)?;
    let address = format!("127.0.0.1:{port}");
    traced(bench, &[], &config, &[], || wait_for(&address, NAME, AAAA).map(drop))
}

/// Returns the needs of a dns64d with AF_XDP and the capabilities of the drop-in.
fn needs_past_the_stack(bench: &Bench, capabilities: &[String]) -> Result<Needs> {
    let _lab = Lab::up(bench)?;
    let _auth = bench.in_lab("auth", &["auth", "--listen", AUTH, "--threads", "1"])?;
    // Port 53 would need another capability, or a socket that systemd passes on.
    let listen = format!("[{DUT_HOST}]:5300");
    let config = xdp_config(&listen, "copy", "")?;
    let config = bench.file("dns64d-xdp.toml", &config)?;
    let within = [bench.program(), "lab", "exec", "dut", "--"];
    let asked = ["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"];
    traced(bench, &within, &config, capabilities, || {
        wait_until_answers(bench.program(), &listen, &asked)
    })
}

/// Returns the sets of system calls that systemd defines, with nested sets resolved.
fn call_sets() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let text = output("systemd-analyze", &["--no-pager", "syscall-filter"], LIMIT)?;
    let mut raw: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'))
    {
        if line.starts_with('@') {
            current = line.trim().to_owned();
        } else {
            raw.entry(current.clone()).or_default().push(line.trim().to_owned());
        }
    }
    let resolve = |name: &str| {
        let (mut open, mut calls) = (vec![name.to_owned()], BTreeSet::new());
        while let Some(member) = open.pop() {
            match raw.get(&member) {
                Some(members) => open.extend(members.iter().cloned()),
                None => drop(calls.insert(member)),
            }
        }
        calls
    };
    Ok(raw.keys().map(|name| (name.clone(), resolve(name))).collect())
}

/// Returns the operations that a unit with its drop-ins allows. `files` contains the unit first.
fn allowed_by(files: &[&Path]) -> Result<Needs> {
    let sets = call_sets()?;
    let mut allowed = Needs::default();
    for line in lines_of(files)? {
        if let Some(families) = line.strip_prefix("RestrictAddressFamilies=") {
            allowed.families.extend(families.split_whitespace().map(str::to_owned));
        }
        let Some(filter) = line.strip_prefix("SystemCallFilter=") else { continue };
        let (denies, words) =
            filter.strip_prefix('~').map_or((false, filter), |words| (true, words));
        for word in words.split_whitespace() {
            let calls =
                sets.get(word).cloned().unwrap_or_else(|| BTreeSet::from([word.to_owned()]));
            let before = &allowed.calls;
            allowed.calls = if denies { before - &calls } else { before | &calls };
        }
    }
    Ok(allowed)
}

/// Returns the lines of units, one after the other.
fn lines_of(files: &[&Path]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        lines.extend(text.lines().map(str::to_owned));
    }
    Ok(lines)
}

fn unit_allows(bench: &Bench) -> Result<()> {
    let unit = root().join("dist/systemd/dns64d.service");
    let needs = needs_of_sockets(bench)?;
    for call in ["recvmmsg", "sched_setaffinity", "seccomp"] {
        ensure!(needs.calls.contains(call), "the trace lacks {call}: {:?}", needs.calls);
    }
    ensure!(needs.families.contains("AF_INET"), "{:?}", needs.families);
    needs.are_met_by(&allowed_by(&[&unit])?, "dns64d")?;
    verify(&unit)
}

fn drop_in_allows(bench: &Bench) -> Result<()> {
    let [unit, drop_in] =
        ["dns64d.service", "dns64d-xdp.conf"].map(|name| root().join("dist/systemd").join(name));
    let given = |key: &str| -> Result<Vec<String>> {
        let lines = lines_of(&[&drop_in])?;
        let words = lines.iter().find_map(|line| line.strip_prefix(key)).context(key.to_owned())?;
        let name = |word: &str| word.trim_start_matches("CAP_").to_lowercase();
        Ok(words.split_whitespace().map(name).collect())
    };
    let capabilities = given("AmbientCapabilities=")?;
    ensure!(capabilities == given("CapabilityBoundingSet=")?, "{capabilities:?}");
    let needs = needs_past_the_stack(bench, &capabilities)?;
    for (all, what) in
        [(&needs.calls, "bpf"), (&needs.calls, "capset"), (&needs.families, "AF_XDP")]
    {
        ensure!(all.contains(what), "the trace lacks {what}: {all:?}");
    }
    needs.are_met_by(&allowed_by(&[&unit, &drop_in])?, "dns64d with AF_XDP")?;
    // Both are combined in one file, in the order in which systemd reads them.
    let both = bench.file("dns64d.service", &lines_of(&[&unit, &drop_in])?.join("\n"))?;
    verify(Path::new(&both))
}

/// Checks a unit with systemd. Syntax errors are failures, and a missing program is ignored.
fn verify(unit: &Path) -> Result<()> {
    let verified = process::run("systemd-analyze", &["verify", &unit.to_string_lossy()], LIMIT)?;
    let complaints =
        verified.stderr.lines().find(|line| line.contains("arse") || line.contains("nknown"));
    ensure!(complaints.is_none(), "{}", complaints.context("a complaint")?);
    Ok(())
}
