//! dns64d under systemd, as far as that can be tried where systemd does not run: socket activation,
//! and the unit against what the server does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::dns64d::NAME;
use super::{A, AAAA, Bench, LIMIT, ROOT, Test, wait_for};
use crate::process::{self, Server, free_port, output, root, wait_until};

pub(super) const TESTS: [Test; 2] = [
    ("systemd's socket activation", &["systemd-socket-activate"], socket_activation),
    ("the systemd unit allows what dns64d does", &["systemd-analyze", "strace", ROOT], unit_allows),
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
    // The first query starts the server, and is not lost.
    wait_for(&listen, NAME, AAAA)?;
    ensure!(
        wait_for(&format!("127.0.0.1:{unused}"), NAME, AAAA).is_err(),
        "it serves `listen` beside systemd's socket"
    );
    Ok(())
}

/// The system calls that dns64d makes when it starts, answers, reads its configuration again and
/// ends.
fn made_calls(bench: &Bench) -> Result<BTreeSet<String>> {
    let (_auth, upstream) = auth(bench)?;
    let (port, trace) = (free_port()?, bench.path("trace"));
    let config = bench.dns64d_config(port, upstream)?;
    // All that makes system calls of its own; nobody reads at dnstap's socket.
    let [socket, log, tap] =
        ["control.sock", "queries.log", "tap.sock"].map(|name| bench.path(name));
    let pinned = format!(
        "cpus = [0]\n{}[control]\nsocket = '{socket}'\n[query-log]\nto = '{log}'\n[dnstap]\nsocket = '{tap}'\n",
        fs::read_to_string(&config)?
    );
    let config = bench.file("dns64d-pinned.toml", &pinned)?;
    let program = bench.dns64d_program();
    let args = ["-f", "-qq", "-o", &trace, &program, "--config", &config];
    let (address, log) = (format!("127.0.0.1:{port}"), bench.path("strace.log"));
    let server = Server::start_logged("strace", &args, Path::new(&log))?;
    wait_for(&address, NAME, AAAA)?;
    // strace's child is the server.
    let children = format!("/proc/{0}/task/{0}/children", server.pid()?);
    let child = fs::read_to_string(children)?.trim().to_owned();
    output("kill", &["-HUP", &child], LIMIT)?;
    let is_replaced =
        || Ok(fs::read_to_string(&log)?.contains("the configuration has been replaced"));
    wait_until("dns64d does not read its configuration again", LIMIT, is_replaced)?;
    // Who answers now has the new configuration.
    wait_for(&address, NAME, AAAA)?;
    output("kill", &["-TERM", &child], LIMIT)?;
    let is_gone = || Ok(!Path::new("/proc").join(&child).exists());
    wait_until("dns64d does not end", LIMIT, is_gone)?;
    server.end()?;
    let text = fs::read_to_string(&trace)?;
    // "1234 epoll_wait(3, …": the rest of calls that were interrupted begins with "<...", signals
    // and ends with "---" and "+++".
    let call = |line: &str| Some(line.split_once(' ')?.1.trim().split_once('(')?.0.to_owned());
    let is_name = |name: &String| {
        name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    Ok(text.lines().filter_map(call).filter(is_name).collect())
}

/// Systemd's sets of system calls, sets in sets resolved.
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

fn unit_allows(bench: &Bench) -> Result<()> {
    let unit = root().join("dist/systemd/dns64d.service");
    let sets = call_sets()?;
    let mut allowed = BTreeSet::new();
    for filter in
        fs::read_to_string(&unit)?.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        let (denies, words) =
            filter.strip_prefix('~').map_or((false, filter), |words| (true, words));
        for word in words.split_whitespace() {
            let calls =
                sets.get(word).cloned().unwrap_or_else(|| BTreeSet::from([word.to_owned()]));
            allowed = if denies { &allowed - &calls } else { &allowed | &calls };
        }
    }
    let made = made_calls(bench)?;
    for call in ["recvmmsg", "sched_setaffinity", "seccomp"] {
        ensure!(made.contains(call), "the trace lacks {call}: {made:?}");
    }
    // Only root that stays root gives up its capabilities, as here; the unit has a user.
    let root_alone = BTreeSet::from(["capset".to_owned()]);
    ensure!(root_alone.is_subset(&made), "the trace lacks capset");
    let allowed = &allowed | &root_alone;
    let denied: Vec<&String> = made.difference(&allowed).collect();
    ensure!(denied.is_empty(), "the unit denies {denied:?}");
    // It complains that the program is not installed, and sees what it does not understand.
    let verified = process::run("systemd-analyze", &["verify", &unit.to_string_lossy()], LIMIT)?;
    let complaints =
        verified.stderr.lines().find(|line| line.contains("arse") || line.contains("nknown"));
    ensure!(complaints.is_none(), "{}", complaints.context("a complaint")?);
    Ok(())
}
