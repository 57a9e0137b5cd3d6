//! Tests of dns64d with other clients, with other upstreams, and with the tester.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hosts::servers::Auth;
use serde_json::Value;

use super::harness::{A, AAAA, Bench, LIGHT, LIGHT_QUERIES, LIMIT, all_noerror, wait_for};
use super::test::Test;
use crate::process::{Server, find, free_port, output};

pub(super) static TESTS: &[Test] = &[
    Test::new("dig against dns64d, UDP and TCP", &["dig"], dig_against_dns64d),
    Test::new("kdig against dns64d, UDP and TCP", &["kdig"], kdig_against_dns64d),
    Test::new("dnsperf against dns64d, UDP and TCP", &["dnsperf"], dnsperf_against_dns64d),
    Test::new("dns64d in front of NSD", &["nsd"], dns64d_before_nsd),
    Test::new("dns64d in front of Knot DNS", &["knotd"], dns64d_before_knot),
    Test::new("dns64d in front of Unbound", &["unbound"], dns64d_before_unbound),
    Test::new(
        "the tester around dns64d: two upstream queries each, none when cached",
        &[],
        two_upstream_queries,
    ),
];

pub(super) const NAME: &str = "010-000-000-001.dns64perf.test";
const SYNTHESIZED: &str = "64:ff9b::a00:1";

impl Bench {
    pub(super) fn dns64d_program(&self) -> String {
        Path::new(self.program()).with_file_name("dns64d").to_string_lossy().into_owned()
    }

    /// Copies dns64d to a folder where users other than root can run it, regardless of the location of the target
    /// folder.
    pub(super) fn dns64d_for_everybody(&self) -> Result<String> {
        let copy = self.path("dns64d");
        fs::copy(self.dns64d_program(), &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        Ok(copy)
    }

    /// Returns the configuration of a dns64d that listens on a loopback port, with one upstream on another loopback
    /// port.
    pub(super) fn dns64d_config(&self, port: u16, upstream: u16) -> Result<String> {
        // The tester's names have private addresses, for which dns64d uses the Well-Known Prefix only if configured.
        let config = format!(
            "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dns64]\n\
             prefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
             [[upstream]]\naddress = '127.0.0.1'\nport = {upstream}\n"
        );
        self.file("dns64d.toml", &config)
    }

    fn dns64d(&self, upstream: u16) -> Result<(Server, u16)> {
        let port = free_port()?;
        let config = self.dns64d_config(port, upstream)?;
        let server = Server::start(self.dns64d_program(), &["--config", &config])?;
        wait_for(&format!("127.0.0.1:{port}"), "ipv4only.arpa", AAAA)?;
        Ok((server, port))
    }

    /// Starts dns64d, and as its upstream an AuthDNS without AAAA records.
    fn dns64d_and_auth(&self) -> Result<(Server, u16, Server)> {
        let upstream = free_port()?;
        let auth = Server::start(
            self.program(),
            &["auth", "--listen", &format!("127.0.0.1:{upstream}"), "--aaaa-share", "0", "--json"],
        )?;
        wait_for(&format!("127.0.0.1:{upstream}"), NAME, A)?;
        let (server, port) = self.dns64d(upstream)?;
        Ok((server, port, auth))
    }

    /// Runs a trial through dns64d in which every answer must be correct.
    fn all_valid(&self, port: u16, more: &[&str]) -> Result<Value> {
        let server = format!("127.0.0.1:{port}");
        // There is no liveness check, so that AuthDNS counts only the queries of the trial.
        let asked = ["--server", &server, "--expect-prefix", "64:ff9b::/96", "--liveness", "false"];
        let trial = self.measure(&[&asked[..], &LIGHT, more].concat())?;
        ensure!(trial["verdict"] == "passed" && trial["valid"] == LIGHT_QUERIES, "{trial}");
        Ok(trial)
    }
}

fn dig_against_dns64d(bench: &Bench) -> Result<()> {
    let (_server, port, _auth) = bench.dns64d_and_auth()?;
    let port = port.to_string();
    let dig = |more: &[&str]| {
        output("dig", &[&["@127.0.0.1", "-p", &port, "+tries=1"], more].concat(), LIMIT)
    };
    for transport in ["+notcp", "+tcp"] {
        let printed = dig(&[transport, NAME, "AAAA", "+short"])?;
        ensure!(printed.trim() == SYNTHESIZED, "{printed}");
        let printed = dig(&[transport, NAME, "A", "+short"])?;
        ensure!(printed.trim() == "10.0.0.1", "{printed}");
    }
    let printed = dig(&["ipv4only.arpa", "AAAA", "+short"])?;
    ensure!(
        printed.contains("64:ff9b::c000:aa") && printed.contains("64:ff9b::c000:ab"),
        "{printed}"
    );
    let printed = dig(&["-x", "64:ff9b::192.0.0.170"])?;
    ensure!(printed.contains("status: NOERROR") && printed.contains("ipv4only.arpa."), "{printed}");
    let printed = dig(&[NAME, "AAAA", "+edns=1", "+noednsnegotiation"])?;
    ensure!(printed.contains("BADVERS"), "{printed}");
    // By default, dig sends a cookie, and reports whether the server's cookie is good.
    let printed = dig(&[NAME, "AAAA"])?;
    ensure!(printed.contains("COOKIE:") && printed.contains("(good)"), "{printed}");
    Ok(())
}

fn kdig_against_dns64d(bench: &Bench) -> Result<()> {
    let (_server, port, _auth) = bench.dns64d_and_auth()?;
    let port = port.to_string();
    for transport in ["+notcp", "+tcp"] {
        // There are two queries. Over TCP, they use the same connection.
        let args = ["@127.0.0.1", "-p", &port, "+keepopen", transport, NAME, "AAAA", NAME, "TXT"];
        let printed = output("kdig", &args, LIMIT)?;
        ensure!(
            printed.contains(SYNTHESIZED) && printed.matches("status: NOERROR").count() == 2,
            "{printed}"
        );
        ensure!(!printed.contains("WARNING"), "{printed}");
    }
    Ok(())
}

fn dnsperf_against_dns64d(bench: &Bench) -> Result<()> {
    let (_server, port, _auth) = bench.dns64d_and_auth()?;
    let queries: String = (0..1000)
        .map(|n| format!("010-000-{:03}-{:03}.dns64perf.test AAAA\n", n / 256, n % 256))
        .collect();
    let (queries, port) = (bench.file("queries", &queries)?, port.to_string());
    for transport in ["udp", "tcp"] {
        let args = [
            "-m",
            transport,
            "-s",
            "127.0.0.1",
            "-p",
            &port,
            "-d",
            &queries,
            "-l",
            "1",
            "-Q",
            "500",
        ];
        let printed = output("dnsperf", &args, LIMIT)?;
        let answered = all_noerror(&printed).context(transport)?;
        ensure!(answered > 100, "{transport}: {printed}");
    }
    Ok(())
}

fn dns64d_before_nsd(bench: &Bench) -> Result<()> {
    let (_nsd, upstream) = bench.authoritative(Auth::Nsd, &bench.zone_file("0")?, &[])?;
    let (_server, port) = bench.dns64d(upstream)?;
    bench.all_valid(port, &["--names", "10.0.0.0/16"]).map(drop)
}

fn dns64d_before_knot(bench: &Bench) -> Result<()> {
    let (_knot, upstream) = bench.authoritative(Auth::Knot, &bench.zone_file("0")?, &[])?;
    let (_server, port) = bench.dns64d(upstream)?;
    bench.all_valid(port, &["--names", "10.0.0.0/16"]).map(drop)
}

fn dns64d_before_unbound(bench: &Bench) -> Result<()> {
    let (auth_port, port) = (free_port()?, free_port()?);
    let listen = format!("127.0.0.1:{auth_port}");
    let _auth =
        Server::start(bench.program(), &["auth", "--listen", &listen, "--aaaa-share", "0"])?;
    let folder = bench.folder.path().display();
    let config = format!(
        "server:\n  interface: 127.0.0.1\n  port: {port}\n  module-config: \"iterator\"\n  local-zone: \"test.\" nodefault\n  \
         do-not-query-localhost: no\n  num-threads: 1\n  username: \"\"\n  chroot: \"\"\n  directory: \"{folder}\"\n  \
         pidfile: \"{folder}/upstream.pid\"\n  use-syslog: no\n  verbosity: 0\n\
         remote-control:\n  control-enable: no\n\
         stub-zone:\n  name: \"dns64perf.test.\"\n  stub-addr: 127.0.0.1@{auth_port}\n"
    );
    let config = bench.file("upstream.conf", &config)?;
    let _unbound = Server::start(find("unbound").context("unbound")?, &["-d", "-c", &config])?;
    wait_for(&format!("127.0.0.1:{port}"), NAME, A)?;
    let (_server, port) = bench.dns64d(port)?;
    bench.all_valid(port, &[]).map(drop)
}

fn two_upstream_queries(bench: &Bench) -> Result<()> {
    for cached in ["0", "1"] {
        let (_server, port, auth) = bench.dns64d_and_auth()?;
        let trial = bench.all_valid(port, &["--cached-share", cached])?;
        let counters: Value = serde_json::from_str(&auth.end()?)?;
        let count = |key: &str| counters["queries"][key].as_u64().unwrap_or(0);
        let (aaaa, a) = (count("aaaa"), count("a"));
        println!(
            "        cached share {cached}: {} queries; upstream {aaaa} AAAA and {a} A",
            trial["sent"]
        );
        // If the trial was repeated, it queried the same names, which were then in the cache. `wait_for` sent one query
        // for an A record.
        let names = trial["names"]["count"].as_u64().context("no count of names")?;
        ensure!(aaaa >= names && a > names, "each name needs one AAAA and one A query");
        // dns64d retransmits an upstream query if the response is late.
        let repeated = aaaa + a - (2 * names + 1);
        ensure!(repeated <= names / 20, "{repeated} upstream queries in addition to two per name");
    }
    Ok(())
}
