//! Tests of prefix changes while dns64d runs under load in the lab. An upstream (RFC 7050) or a router (RFC 8781)
//! announces prefixes. Other tests cover probes and a real NAT64 behind dns64d.
//!
//! ```text
//! tester: watch queries 100 names a second ─► dut: dns64d ─► auth: upstream, announces the contents of a file
//!         advertise ── router advertisements ──►
//!         targets of probes ◄────── probes ─────
//! ```
//!
//! Each test makes a change, waits until the answers reflect the change, and prints how long that took. No answer may
//! contain a prefix that was not valid at some time.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{Bench, LIMIT, Lab};
use super::test::{ROOT, Test};
use crate::process::{Server, output, wait_until};

pub(super) static TESTS: &[Test] = &[
    Test::new("prefixes: an upstream announces others under load", &["ip", "python3"], upstream),
    Test::new("prefixes: a router advertises others under load", &["ip", "python3", ROOT], router),
    Test::new("prefixes: a NAT64 fails and recovers under load", &["ip", "python3", ROOT], nat64),
    Test::new(
        "prefixes: a TCP connection through TAYGA to a synthesized address",
        &["ip", "python3", "tayga", ROOT],
        tayga,
    ),
];

const SCRIPT: &str = include_str!("prefixes.py");
/// Reply to a client if no prefix is available yet: SERVFAIL and "not ready".
const NOT_READY: &str = "rcode 2 error 14";
/// Reply to a client before the upstream listens.
const UNREACHABLE: &str = "rcode 2 error 22";
const ONE: &str = "2001:db8:1::";
const TWO: &str = "2001:db8:2::";

fn upstream(bench: &Bench) -> Result<()> {
    let hosts = Hosts::up(bench, "prefixes = [{ prefix = 'discover' }]\n", "")?;
    let watch = hosts.watch()?;
    watch.follows("nothing is announced", NOT_READY, || Ok(()))?;
    for (what, announced, wanted) in [
        ("a prefix is announced for 2 s", "2 2001:db8:1::", ONE),
        ("another one takes its place", "2 2001:db8:2::", TWO),
        ("the upstream is silent", "silent", NOT_READY),
        ("the first one is back", "2 2001:db8:1::", ONE),
        ("there is no DNS64", "none", NOT_READY),
    ] {
        watch.follows(what, wanted, || hosts.announce(announced))?;
    }
    watch.saw_only(&[ONE, TWO, NOT_READY])
}

fn router(bench: &Bench) -> Result<()> {
    let discovery = "[discovery]\nupstreams = false\ninterfaces = ['to-tester']\n";
    let hosts = Hosts::up(bench, "prefixes = [{ prefix = 'discover' }]\n", discovery)?;
    let watch = hosts.watch()?;
    watch.follows("nothing is advertised", NOT_READY, || Ok(()))?;
    let advertise = |hops: &str, prefix: &str, seconds: &str| {
        hosts.script("tester", &["advertise", "to-dut", hops, prefix, seconds])
    };
    watch.follows("a prefix is advertised", ONE, || advertise("255", ONE, "1800"))?;
    // With a hop limit below 255, the sender may not be on the link, so the advertisement must be ignored.
    advertise("64", "2001:db8:bad::", "1800")?;
    watch.follows("another one is, and this one withdrawn", TWO, || {
        advertise("255", TWO, "8")?;
        advertise("255", ONE, "0")
    })?;
    watch.follows("its lifetime of 8 s is over", NOT_READY, || Ok(()))?;
    // During the change from one prefix to the other, both prefixes are valid.
    watch.saw_only(&[ONE, TWO, &format!("{ONE} {TWO}"), NOT_READY])
}

fn nat64(bench: &Bench) -> Result<()> {
    let probe = "probe = { address = '192.0.2.1', port = 8080, interval = '1s', timeout = '300ms', threshold = 2 }";
    let prefixes = format!(
        "select = 'first'\nprefixes = [{{ prefix = '{ONE}/96', {probe} }}, {{ prefix = '{TWO}/96', {probe} }}]\n"
    );
    let hosts = Hosts::up(bench, &prefixes, "")?;
    let far_side = |prefix: &str| format!("{prefix}c000:201");
    let change = |verb: &str, prefix: &str| {
        let address = far_side(prefix);
        bench.shell("tester", &format!("ip -6 addr {verb} {address}/128 dev lo")).map(drop)
    };
    for prefix in [ONE, TWO] {
        bench.shell("dut", &format!("ip -6 route add {prefix}/96 via 2001:2::2"))?;
        change("add", prefix)?;
    }
    let _behind = hosts.start("tester", &["listen", "8080", &far_side(ONE), &far_side(TWO)])?;
    let watch = hosts.watch()?;
    watch.follows("both work", ONE, || Ok(()))?;
    watch.follows("the first one dies", TWO, || change("del", ONE))?;
    watch.follows("it returns", ONE, || change("add", ONE))?;
    watch.follows("it dies again", TWO, || change("del", ONE))?;
    // If no prefix works, the last working prefix remains in use.
    change("del", TWO)?;
    watch.follows("both are dead, and the first one returns", ONE, || change("add", ONE))?;
    watch.saw_only(&[ONE, TWO])
}

/// Runs a NAT64 for 2001:db8:64::/96 on the DUT's host. The NAT64 maps its clients to addresses in 192.168.255.0/24.
fn tayga(bench: &Bench) -> Result<()> {
    let prefixes = "prefixes = [{ prefix = '2001:db8:64::/96' }]\n";
    let hosts = Hosts::up(bench, prefixes, "")?;
    let config = bench.file(
        "tayga.conf",
        &format!(
            "tun-device nat64\nipv4-addr 192.168.255.1\nipv6-addr 2001:db8:63::1\n\
             prefix 2001:db8:64::/96\ndynamic-pool 192.168.255.0/24\ndata-dir {}\n",
            bench.folder.path().display()
        ),
    )?;
    bench.shell(
        "dut",
        &format!(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 && \
             tayga --mktun -c {config} && ip link set nat64 up && \
             ip route add 192.168.255.0/24 dev nat64 && ip -6 route add 2001:db8:64::/96 dev nat64"
        ),
    )?;
    bench.shell("auth", "ip route add 192.168.255.0/24 via 198.18.0.1")?;
    bench.shell("tester", "ip -6 route add 2001:db8:64::/96 via 2001:2::1")?;
    let within = ["lab", "exec", "dut", "--"];
    let _nat64 = Server::start(
        bench.program(),
        &[&within[..], &["tayga", "--nodetach", "-c", &config]].concat(),
    )?;
    let _behind = hosts.start("auth", &["listen", "8080", "198.18.0.2"])?;
    let words = ["connect", "2001:2::1", "host.lab.test", "8080"];
    let mut last = String::new();
    let connected = wait_until("no connection through TAYGA", LIMIT / 4, || {
        match hosts.script_output("tester", &words) {
            Ok(printed) => last = printed,
            Err(error) => last = error.to_string(),
        }
        Ok(last.contains("hello"))
    });
    connected.context(last.clone())?;
    println!("        through TAYGA: {}", last.trim());
    ensure!(last.contains("2001:db8:64::c612:2"), "{last}");
    Ok(())
}

/// The lab, with dns64d on the DUT's host and its upstream on AuthDNS's host.
struct Hosts<'a> {
    bench: &'a Bench,
    script: String,
    announced: String,
    _upstream: Server,
    _server: Server,
    _lab: Lab<'a>,
}

impl<'a> Hosts<'a> {
    /// Starts the lab and both servers. `translation` contains keys of the table `[dns64]`, and `more` contains other
    /// tables.
    fn up(bench: &'a Bench, translation: &str, more: &str) -> Result<Hosts<'a>> {
        let lab = Lab::up(bench)?;
        let script = bench.file("prefixes.py", SCRIPT)?;
        let announced = bench.file("announced", "none")?;
        let config = bench.file(
            "prefixes.toml",
            &format!(
                "listen = ['[2001:2::1]:53']\nthreads = 1\n[dns64]\n{translation}\n{more}\n\
                 [access]\nallow = ['2001:2::/64']\n[[upstream]]\naddress = '198.18.0.2'\n"
            ),
        )?;
        let in_host = |host: &str, words: &[&str]| {
            Server::start(bench.program(), &[&["lab", "exec", host, "--"][..], words].concat())
        };
        let upstream =
            in_host("auth", &["python3", &script, "upstream", "198.18.0.2", &announced])?;
        let server = in_host("dut", &[&bench.dns64d_program(), "--config", &config])?;
        Ok(Hosts { bench, script, announced, _upstream: upstream, _server: server, _lab: lab })
    }

    /// Makes the upstream announce these prefixes from now on.
    fn announce(&self, words: &str) -> Result<()> {
        let new = format!("{}.new", self.announced);
        fs::write(&new, words)?;
        Ok(fs::rename(new, &self.announced)?)
    }

    fn words<'w>(&'w self, host: &'w str, args: &[&'w str]) -> Vec<&'w str> {
        [&["lab", "exec", host, "--", "python3", &self.script][..], args].concat()
    }

    fn start(&self, host: &str, args: &[&str]) -> Result<Server> {
        Server::start(self.bench.program(), &self.words(host, args))
    }

    fn script_output(&self, host: &str, args: &[&str]) -> Result<String> {
        output(self.bench.program(), &self.words(host, args), LIMIT)
    }

    fn script(&self, host: &str, args: &[&str]) -> Result<()> {
        self.script_output(host, args).map(drop)
    }

    fn watch(&self) -> Result<Watch> {
        let file = self.bench.path("watched.json");
        let _ = fs::remove_file(&file);
        let client = self.start("tester", &["watch", "2001:2::1", &file])?;
        Ok(Watch { file, client })
    }
}

/// A client that sends queries continuously.
struct Watch {
    file: String,
    client: Server,
}

impl Watch {
    fn state(&self) -> Result<Value> {
        // The file does not exist until there are answers.
        let Ok(text) = fs::read_to_string(&self.file) else { return Ok(Value::Null) };
        Ok(serde_json::from_str(&text)?)
    }

    /// Calls `change`, and waits until the answers match `wanted`.
    fn follows(&self, what: &str, wanted: &str, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = now()?;
        change()?;
        let never = format!("{what}: answers never match '{wanted}'");
        let is_so = || Ok(self.state()?["last"] == wanted);
        if let Err(error) = wait_until(&never, LIMIT / 2, is_so) {
            return Err(error).context(self.state()?.to_string());
        }
        println!("        {what}: answers follow after {:.1} s", now()? - begun);
        Ok(())
    }

    /// Ends the client. Each answer that it received must have been in `allowed`, or [`UNREACHABLE`].
    fn saw_only(self, allowed: &[&str]) -> Result<()> {
        let state = self.state()?;
        self.client.end()?;
        let seen = state["seen"].as_object().context("nothing was seen")?;
        println!(
            "        {} queries, {} answers: {}",
            state["asked"], state["answered"], state["seen"]
        );
        for word in seen.keys() {
            let is_allowed = word == UNREACHABLE || allowed.contains(&word.as_str());
            ensure!(is_allowed, "'{word}' was never valid: {state}");
        }
        let (asked, answered) = (state["asked"].as_u64(), state["answered"].as_u64());
        ensure!(
            answered.unwrap_or(0) * 2 > asked.unwrap_or(0),
            "half of the queries are lost: \
            {state}"
        );
        Ok(())
    }
}

/// Returns the number of seconds since 1970.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}
