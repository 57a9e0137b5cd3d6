//! Tests of fair shares in dns64d while clients in many networks attack it. At least 99 of 100 queries of another
//! client must be answered.
//!
//! ```text
//! flood: 12 000 names/s, addresses of 10.0.0.0/8 or fd00::/16 ─┐
//! hold: all TCP connections ───────────────────────────────────┼─► dns64d ─► upstream
//! ask: 50 other names/s ───────────────────────────────────────┘
//! ```

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{A, Bench, LIMIT, wait_for};
use super::tally::Skipped;
use super::test::{ROOT, Resource, Test};
use crate::process::{Server, free_port, output, wait_until};

pub(super) static TESTS: &[Test] = &[Test::new(
    "shares: floods and TCP connections from many networks",
    &["ip", "python3", ROOT],
    |bench| floods(bench).and_then(|()| connections(bench)),
)
.holding(Resource::Cpus)];

const SCRIPT: &str = include_str!("shares.py");
/// Number of names that another client queries during each attack, 50 per second.
const NAMES: &str = "250";

/// An attack, and the address of another client.
struct Attack {
    name: &'static str,
    sources: &'static str,
    rate: &'static str,
    kind: &'static str,
    other: &'static str,
    asks: &'static str,
}

const FLOODS: [Attack; 8] = [
    flood("20 /64s of a /48", "fd00:16::1/20", "fd00:16:1::9"),
    flood("2 000 /64s of a /48", "fd00:16::1/2000", "fd00:16:1::9"),
    flood("65 536 /64s of a /48", "fd00:16::1/65536", "fd00:16:1::9"),
    flood("10^6 /64s of a /40", "fd00:16::1/1048576", "fd00:16:100::9"),
    flood("10^6 addresses of a /12", "10.16.0.0/1048576", "10.200.0.9"),
    flood("65 536 addresses of a /16", "10.16.0.0/65536", "10.17.0.9"),
    truncated("truncated answers, one client", "10.16.0.1/1", "10.16.0.9"),
    truncated("truncated answers, 256 clients", "10.16.0.0/256", "10.16.1.9"),
];

/// Returns an attack with queries for names to which the upstream sends no answer.
const fn flood(name: &'static str, sources: &'static str, other: &'static str) -> Attack {
    Attack { name, sources, rate: "12000", kind: "dead", other, asks: "udp" }
}

/// Returns an attack with queries for names whose answers are truncated over UDP and missing over TCP.
const fn truncated(name: &'static str, sources: &'static str, other: &'static str) -> Attack {
    Attack { name, sources, rate: "500", kind: "dead-long", other, asks: "udp-long" }
}

fn floods(bench: &Bench) -> Result<()> {
    let host = Host::up(bench)?;
    for Attack { name, sources, rate, kind, other, asks } in FLOODS {
        let before = host.denied()?;
        let attack = host.start(&["flood", &host.port, sources, rate, kind])?;
        // Waits until the table of pending queries is nearly full.
        let denied = || Ok(host.denied()? > before || kind != "dead");
        wait_until(&format!("{name}: no query is denied"), LIMIT, denied)?;
        host.is_served(name, other, NAMES, asks)?;
        attack.end()?;
    }
    Ok(())
}

fn connections(bench: &Bench) -> Result<()> {
    for networks in ["20", "256", "2000"] {
        let host = Host::up(bench)?;
        let sources = format!("fd00:16::1/{networks}");
        let _attack = host.start(&["hold", &host.port, &sources, "1000"])?;
        let is_full = || Ok(host.counter("queries_total{kind=\"tcp_a\"}")? >= 950.0);
        wait_until("the table of pending queries does not fill up", LIMIT, is_full)?;
        host.is_served(
            &format!("{networks} networks hold all entries"),
            "10.200.0.9",
            "100",
            "tcp",
        )?;
    }
    Ok(())
}

/// dns64d and its upstream. All addresses in 10.0.0.0/8 and fd00::/16 are local to this host.
struct Host {
    script: String,
    port: String,
    metrics: String,
    _server: Server,
    _upstream: Server,
}

impl Host {
    fn up(bench: &Bench) -> Result<Host> {
        let routes = "ip route replace local 10.0.0.0/8 dev lo && ip -6 route replace local fd00::/16 dev lo && \
                      sysctl -qw net.ipv6.ip_nonlocal_bind=1 net.ipv4.ip_nonlocal_bind=1";
        output("sh", &["-c", routes], LIMIT)?;
        let script = bench.file("shares.py", SCRIPT)?;
        let (upstream_port, port, metrics) = (free_port()?, free_port()?, free_port()?);
        let upstream =
            Server::start("python3", &[&script, "upstream", &upstream_port.to_string()])?;
        wait_for(&format!("127.0.0.1:{upstream_port}"), "living.test", A)?;
        let config = bench.file(
            "shares.toml",
            &format!(
                "listen = ['127.0.0.1:{port}', '[::1]:{port}']\nthreads = 2\n\
                 [metrics]\nlisten = '127.0.0.1:{metrics}'\n\
                 [[upstream]]\naddress = '127.0.0.1'\nport = {upstream_port}\n"
            ),
        )?;
        let server = Server::start(bench.dns64d_program(), &["--config", &config])?;
        wait_for(&format!("127.0.0.1:{port}"), "living.test", A)?;
        let (port, metrics) = (port.to_string(), format!("http://127.0.0.1:{metrics}/metrics"));
        Ok(Host { script, port, metrics, _server: server, _upstream: upstream })
    }

    fn start(&self, words: &[&str]) -> Result<Server> {
        Server::start("python3", &[&[self.script.as_str()], words].concat())
    }

    /// Returns the sum of all counters whose names begin with `name` after the prefix `dns64d_`.
    fn counter(&self, name: &str) -> Result<f64> {
        let fetch = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())";
        let text = output("python3", &["-c", fetch, &self.metrics], LIMIT)?;
        let start = format!("dns64d_{name}");
        let values = text.lines().filter(|line| line.starts_with(&start));
        Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    fn denied(&self) -> Result<u64> {
        Ok(self.counter("denied_total")? as u64)
    }

    /// Sends queries from another client. At least 99 of 100 must be answered.
    ///
    /// # Errors
    /// Returns [`Skipped`] if replies over UDP were lost because this host was too busy.
    fn is_served(&self, attack: &str, from: &str, names: &str, kind: &str) -> Result<()> {
        let words = ["ask", &self.port, from, names, kind];
        let printed = output("python3", &[&[self.script.as_str()], &words[..]].concat(), LIMIT)?;
        let counts: Value = serde_json::from_str(&printed).context(printed)?;
        println!("        {attack}: {counts}; denied so far: {}", self.denied()?);
        let count = |key: &str| counts[key].as_u64().unwrap_or(0);
        if kind != "tcp" && count("failed") == 0 && count("lost") * 100 > count("asked") {
            return Err(Skipped(format!("{attack}: replies were lost: {counts}")).into());
        }
        ensure!(count("answered") * 100 >= count("asked") * 99, "{attack}: {counts}");
        Ok(())
    }
}
