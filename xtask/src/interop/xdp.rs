//! Tests of dns64d with AF_XDP, as operators run it: together with other programs that use the same interfaces.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::harness::{Bench, LIGHT, LIGHT_QUERIES, LIMIT, Lab};
use super::hosts::Sshds;
use super::test::{ROOT, Test};
use crate::process::{self, Server, output, wait_until};
use crate::servers::{AUTH, DUT, DUT_HOST, wait_until_answers, wait_until_listens};

pub(super) static TESTS: &[Test] = &[Test::new(
    "dns64d with AF_XDP, together with a resolver and an sshd",
    &["unbound", "dig", "sshd", "ssh", "ssh-keygen", "ip", ROOT],
    beside_others,
)
.retried("the trial shares two CPUs with a resolver, ssh and dig, so replies may be late")];

/// Port of a resolver that listens on the same address as dns64d.
const RESOLVER_PORT: u16 = 5301;

fn beside_others(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let sshds = Sshds::start(bench)?;
    let _auth = bench.in_lab("auth", &["auth", "--listen", AUTH, "--threads", "1"])?;
    let _resolver = resolver(bench)?;
    for mode in ["copy", "generic"] {
        let dns64d = dns64d(bench, mode)?;
        ensure!(programs(bench)? == ["to-auth", "to-tester"], "{mode}: {:?}", programs(bench)?);
        // The three tests run in parallel.
        std::thread::scope(|scope| -> Result<()> {
            let resolver = scope.spawn(|| resolver_answers(bench));
            let ssh = scope.spawn(|| ssh_carries(bench, &sshds));
            let asked = ["--server", DUT, "--names", "11.0.0.0/8"];
            let prefix = ["--expect-prefix", "64:ff9b::/96"];
            let trial = bench.measure_in_lab(&[&asked[..], &prefix, &LIGHT].concat());
            for other in [resolver, ssh] {
                other.join().map_err(|_| anyhow::anyhow!("a panic"))?.context(mode)?;
            }
            let trial = trial?;
            let is_whole = trial["verdict"] == "passed" && trial["valid"] == LIGHT_QUERIES;
            ensure!(is_whole, "{mode}: {trial}");
            Ok(())
        })?;
        over_tcp(bench)?;
        // If dns64d is killed, it cannot clean up. Even then, no XDP program may remain on the interfaces.
        let pid = i32::try_from(dns64d.pid()?)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)?;
        let is_gone = || Ok(programs(bench)?.is_empty());
        wait_until(&format!("{mode}: an XDP program is left"), Duration::from_secs(5), is_gone)?;
    }
    refused(bench)
}

/// Returns the configuration of a dns64d in the lab that listens on `listen` and queries AuthDNS, with additional
/// lines.
pub(super) fn xdp_config(listen: &str, mode: &str, lines: &str) -> Result<String> {
    let (upstream, port) = AUTH.rsplit_once(':').context("a constant")?;
    Ok(format!(
        "listen = [{{ address = '{listen}', xdp = true }}]\nxdp-mode = '{mode}'\nthreads = 1\n{lines}\
         [dns64]\nprefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
         [access]\nallow = ['2001:2::/64']\n\
         [[upstream]]\naddress = '{upstream}'\nport = {port}\nxdp = true\n"
    ))
}

/// Starts dns64d in the lab as root. dns64d then changes to another user.
fn dns64d(bench: &Bench, mode: &str) -> Result<Server> {
    let config = xdp_config(DUT, mode, "user = 'nobody'\n")?;
    let file = readable(bench, "past-stack.toml", &config)?;
    let args = ["lab", "exec", "dut", "--", &bench.dns64d_program(), "--config", &file];
    let server = Server::start(bench.program(), &args)?;
    wait_until_answers(
        bench.program(),
        DUT,
        &["--names", "9.0.0.0/24", "--expect-prefix", "64:ff9b::/96"],
    )?;
    Ok(server)
}

/// Writes a file that users other than root can also read.
fn readable(bench: &Bench, name: &str, text: &str) -> Result<String> {
    let file = bench.file(name, text)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

/// Starts Unbound on the same address as dns64d, but on another port. Both query the same AuthDNS from the same
/// address.
fn resolver(bench: &Bench) -> Result<Server> {
    let config = format!(
        "server:\n interface: {DUT_HOST}@{RESOLVER_PORT}\n access-control: ::/0 allow\n do-daemonize: no\n username: ''\n chroot: ''\n \
         pidfile: ''\n use-syslog: no\n module-config: 'iterator'\n do-not-query-localhost: no\n local-zone: \"test.\" nodefault\n\
         forward-zone:\n name: '.'\n forward-addr: {}\n",
        AUTH.replace(':', "@")
    );
    let file = bench.file("beside.conf", &config)?;
    let within = ["lab", "exec", "dut", "--"];
    let server =
        Server::start(bench.program(), &[&within[..], &["unbound", "-d", "-c", &file]].concat())?;
    wait_until_listens(&[&[bench.program()], &within[..]].concat(), RESOLVER_PORT)?;
    Ok(server)
}

/// Tests that the resolver on dns64d's host still answers queries for A records.
fn resolver_answers(bench: &Bench) -> Result<()> {
    let server = format!("@{DUT_HOST}");
    let port = RESOLVER_PORT.to_string();
    for n in 0..20 {
        let name = format!("012-000-000-{n:03}.dns64perf.test");
        let dig = ["dig", &server, "-p", &port, "+short", "+tries=1", "+time=5", &name, "A"];
        let words = [&["lab", "exec", "tester", "--"], &dig[..]].concat();
        let printed = output(bench.program(), &words, LIMIT)?;
        ensure!(printed.trim() == format!("12.0.0.{n}"), "{name}: {printed}");
    }
    Ok(())
}

/// Tests that ssh can transfer a mebibyte in each direction.
fn ssh_carries(bench: &Bench, sshds: &Sshds) -> Result<()> {
    let command = "head -c 1048576 /dev/zero | wc -c; head -c 1048576 /dev/zero | tr '\\0' x";
    let ssh = ["ssh", "-F", &sshds.config, "-o", "BatchMode=yes", "far-dut", command];
    let words = [&["lab", "exec", "tester", "--"], &ssh[..]].concat();
    let printed = output(bench.program(), &words, LIMIT)?;
    let Some(("1048576", rest)) = printed.split_once('\n') else {
        bail!("unexpected output over ssh")
    };
    ensure!(rest.len() == 1 << 20, "{} octets were received over ssh", rest.len());
    Ok(())
}

/// Tests that dns64d still answers over TCP, which uses the kernel's stack.
fn over_tcp(bench: &Bench) -> Result<()> {
    let server = format!("@{DUT_HOST}");
    let dig = ["dig", &server, "+tcp", "+short", "013-000-000-001.dns64perf.test", "AAAA"];
    let words = [&["lab", "exec", "tester", "--"], &dig[..]].concat();
    let printed = output(bench.program(), &words, LIMIT)?;
    ensure!(printed.trim() == "64:ff9b::d00:1", "{printed}");
    Ok(())
}

/// Returns the interfaces of the lab's DUT that have an XDP program, in order.
fn programs(bench: &Bench) -> Result<Vec<String>> {
    let words = ["lab", "exec", "dut", "--", "ip", "-json", "link", "show"];
    let printed = output(bench.program(), &words, LIMIT)?;
    let links: Vec<Value> = serde_json::from_str(&printed)?;
    let with_filter = links.iter().filter(|link| !link["xdp"].is_null());
    let mut names: Vec<String> =
        with_filter.filter_map(|link| Some(link["ifname"].as_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Tests that dns64d without the privileges for AF_XDP ends at start-up and prints the reason.
fn refused(bench: &Bench) -> Result<()> {
    let file = bench.path("past-stack.toml");
    let within = ["lab", "exec", "dut", "--", "setpriv", "--reuid", "65534", "--clear-groups"];
    let kept = ["--inh-caps=+net_bind_service", "--ambient-caps=+net_bind_service"];
    let program = bench.dns64d_for_everybody()?;
    let words = [&within[..], &kept, &["--", &program, "--config", &file]].concat();
    let ran = process::run(bench.program(), &words, LIMIT)?;
    let says = "cannot use AF_XDP (xdp = true): AF_XDP needs CAP_NET_RAW";
    ensure!(ran.status == Some(4) && ran.stderr.contains(says), "{:?}: {}", ran.status, ran.stderr);

    // With the mode "auto", dns64d must fall back to sockets.
    let config = xdp_config(DUT, "auto", "")?;
    let file = readable(bench, "past-stack-auto.toml", &config)?;
    let log = bench.path("past-stack-auto.log");
    let into_log = format!("exec \"$0\" \"$@\" 2> {log}");
    let words =
        [&within[..], &kept, &["--", "sh", "-c", &into_log, &program, "--config", &file]].concat();
    fs::write(&log, "")?;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666))?;
    let _dns64d = Server::start(bench.program(), &words)?;
    let asked = ["--names", "9.0.1.0/24", "--expect-prefix", "64:ff9b::/96"];
    wait_until_answers(bench.program(), DUT, &asked)?;
    let text = fs::read_to_string(&log)?;
    ensure!(text.contains(says) && text.contains("sockets are used instead"), "{text}");
    ensure!(programs(bench)?.is_empty(), "{:?}", programs(bench)?);
    Ok(())
}
