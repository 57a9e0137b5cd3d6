//! Tests of the clients that correspond to older tools. They are compared with these tools, and run against common
//! servers.

use std::fmt::Write;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::thread;

use anyhow::{Context, Result, ensure};
use hosts::servers::{Auth, Dut};
use method::stats::Summary;
use serde_json::Value;

use super::harness::{AAAA, Bench, FIRST_NAME, LIMIT, Lab, two_cpus, wait_for};
use super::test::{Resource, Test};
use crate::process::{self, Server, find, free_port, output};
use crate::servers::{authoritative, wait_until_answers, wait_until_listens};

/// Minimum number of turns before two programs are compared.
const TURNS: usize = 3;

/// Number of turns after which two programs whose results do not agree count as different.
const MOST_TURNS: usize = 20;

/// Command that makes the kernel pass about 20 000 of NSD's replies per second, with a short queue.
const REPLY_LIMIT: &str =
    "tc qdisc replace dev to-tester root tbf rate 24mbit burst 8kb limit 16kb";

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "TSIG with NSD and Knot DNS: right, wrong, unknown, expired",
        &["nsd", "knotd"],
        tsig,
    ),
    Test::new(
        "TCP with NSD and Unbound: idle timeouts, closes in mid-stream",
        &["nsd", "unbound"],
        tcp,
    ),
    Test::new("a server that truncates everything", &[], truncated),
    Test::new("dns64perf2: the table of the MTD64 paper for dns64d", &[], dns64perf2),
    Test::new("the papers' binary search over dns64perf++", &["bash", "awk"], papers_search),
];

/// Tests that compare two rates.
pub(super) static RATES: &[Test] = &[
    Test::new(
        "resperf compared with Debian's, on NSD and Unbound in the lab",
        &["resperf", "nsd", "unbound", "ip"],
        both_resperfs,
    )
    .holding(Resource::Cpus),
    Test::new("resperf compared with Debian's, on a known capacity", &["resperf"], known_capacity)
        .holding(Resource::Cpus),
];

/// Writes a file with the first names of our zone.
fn queries(bench: &Bench, count: u32) -> Result<String> {
    let mut text = String::new();
    for n in 0..count {
        let [_, b, c, d] = n.to_be_bytes();
        writeln!(text, "010-{b:03}-{c:03}-{d:03}.dns64perf.test AAAA")?;
    }
    bench.file(&format!("queries-{count}"), &text)
}

/// Creates a link with this name to our program.
fn linked(bench: &Bench, name: &str) -> Result<String> {
    let path = bench.path(name);
    if fs::symlink_metadata(&path).is_err() {
        symlink(bench.program(), &path)?;
    }
    Ok(path)
}

/// Reads the maximum throughput from resperf's output, as scripts do.
fn maximum(printed: &str) -> Result<f64> {
    let line = printed
        .lines()
        .find_map(|line| line.trim().strip_prefix("Maximum throughput:"))
        .context("no maximum")?;
    line.trim().trim_end_matches(" qps").parse().context("no number")
}

/// Maxima found by both versions of resperf: ours, then Debian's.
#[derive(Default)]
struct Maxima([Vec<f64>; 2]);

impl Maxima {
    /// Runs both versions alternately with the same arguments, `times` times each.
    fn in_turns(
        run: &dyn Fn(&str) -> Result<String>,
        ours: &str,
        times: usize,
    ) -> Result<[Summary; 2]> {
        let mut maxima = Maxima::default();
        maxima.add(run, ours, times)?;
        maxima.summaries()
    }

    /// Runs both versions alternately until `holds` returns true, for at most [`MOST_TURNS`] turns. Returns the last
    /// result of `holds`. All turns count, so that a single lucky turn cannot decide, and later turns outweigh a busy
    /// moment of the machine.
    fn until(
        holds: fn(&[Summary; 2]) -> bool,
        run: &dyn Fn(&str) -> Result<String>,
        ours: &str,
    ) -> Result<([Summary; 2], bool)> {
        let mut maxima = Maxima::default();
        loop {
            maxima.add(run, ours, TURNS)?;
            let found = maxima.summaries()?;
            let held = holds(&found);
            if held || maxima.0[0].len() >= MOST_TURNS {
                return Ok((found, held));
            }
        }
    }

    fn add(
        &mut self,
        run: &dyn Fn(&str) -> Result<String>,
        ours: &str,
        times: usize,
    ) -> Result<()> {
        let theirs = find("resperf").context("resperf")?;
        for _ in 0..times {
            self.0[0].push(maximum(&run(ours)?)?);
            self.0[1].push(maximum(&run(&theirs.to_string_lossy())?)?);
        }
        Ok(())
    }

    fn summaries(&self) -> Result<[Summary; 2]> {
        let [ours, theirs] = self.0.each_ref().map(|found| Summary::of(found).context("no run"));
        Ok([ours?, theirs?])
    }
}

/// Returns the arguments of resperf.
fn resperf_arguments<'a>(
    [server, port]: [&'a str; 2],
    queries: &'a str,
    plot: &'a str,
    more: &'a str,
) -> Vec<&'a str> {
    let mut args = vec!["-s", server, "-p", port, "-d", queries, "-P", plot];
    args.extend(more.split_whitespace());
    args
}

/// Prints the results of both versions of resperf, ours first.
fn print_maxima(server: &str, [ours, theirs]: &[Summary; 2]) {
    let text =
        |found: &Summary| format!("{:.0} qps ({:.0} to {:.0})", found.median, found.min, found.max);
    println!("        {server}: ours {}, Debian's {}", text(ours), text(theirs));
}

/// Returns true if the medians differ by at most the scatter of one program. The scatter excludes outliers, because
/// otherwise one bad run would make any two medians agree. All runs may have the same result, because the programs
/// round to whole queries per plot interval. Medians that differ by at most 3 % therefore always agree. Medians that
/// differ by more than 20 % never agree.
fn agree([ours, theirs]: &[Summary; 2]) -> bool {
    let width = |found: &Summary| (found.max - found.median).min(found.median - found.min) * 2.0;
    let near = width(ours).max(width(theirs)).clamp(theirs.median * 0.03, theirs.median * 0.2);
    (ours.median - theirs.median).abs() <= near
}

/// The server and the programs that it needs share CPU 1, and the client runs alone on CPU 0. The original resperf
/// busy-waits, so on a shared CPU it would slow down the server.
fn both_resperfs(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let queries = queries(bench, 60_000)?;
    let ours = linked(bench, "resperf")?;
    let (plot, folder) = (bench.path("plot"), bench.folder.path());
    let zone = bench.zone_file("1")?;
    let [first, last] = two_cpus();
    let _auth = bench.in_lab(
        "auth",
        &["auth", "--listen", "198.18.0.2:53", "--threads", "1", "--cpus", &last],
    )?;
    let nsd = || -> Result<Server> {
        let listen = "[2001:2::1]:5353";
        let words = authoritative(Auth::Nsd, &folder.join("lab NSD"), listen.parse()?, &zone, &[])?;
        let mut args = vec!["lab", "exec", "dut", "--", "taskset", "-c", &last];
        args.extend(words.iter().map(String::as_str));
        let server = Server::start(bench.program(), &args)?;
        wait_until_answers(
            bench.program(),
            listen,
            &["--names", "10.0.255.0/24", "--aaaa-share", "1"],
        )?;
        Ok(server)
    };
    let run = |port: &str, max: &str, program: &str| {
        let limits = format!("-m {max} -r 5 -t 2 -i 0.1 -L 5 -R");
        let args = resperf_arguments(["2001:2::1", port], &queries, &plot, &limits);
        let words = [&["lab", "exec", "tester", "--", "taskset", "-c", &first, program], &args[..]]
            .concat();
        output(bench.program(), &words, LIMIT)
    };
    {
        let _nsd = nsd()?;
        // The original resperf ends with "Fell behind" if NSD is faster than resperf can send.
        let fast = |program: &str| run("5353", "250000", program);
        let not_slower = |[ours, theirs]: &[Summary; 2]| ours.median >= theirs.median * 0.97;
        let (found, held) = Maxima::until(not_slower, &fast, &ours)?;
        print_maxima("NSD, faster than the original can send", &found);
        ensure!(held, "NSD: ours sends more slowly than the original");
        // In this comparison the kernel is the bottleneck. A busy program on NSD's CPU could be used instead, but NSD
        // would then get a different share of the CPU in each turn, and the comparison would show momentary effects.
        bench.shell("dut", REPLY_LIMIT)?;
        let limited = |program: &str| run("5353", "60000", program);
        let (found, agreed) = Maxima::until(agree, &limited, &ours)?;
        print_maxima("NSD, its replies limited by the kernel", &found);
        ensure!(agreed, "NSD: the two do not agree");
    }
    // This comparison uses answers that a resolver must look up, so the cache must be empty at the start of every ramp.
    let fresh = |program: &str| {
        let _unbound = bench.dut_in_lab(Dut::Unbound, Some(&two_cpus()[1]), &[])?;
        run("53", "20000", program)
    };
    let (found, agreed) = Maxima::until(agree, &fresh, &ours)?;
    print_maxima("Unbound", &found);
    ensure!(agreed, "Unbound: the two do not agree");
    Ok(())
}

fn known_capacity(bench: &Bench) -> Result<()> {
    let port = free_port()?.to_string();
    let truth = 20_000.0;
    let dut = [
        "reference-dut",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--capacity",
        "20000",
        "--burst",
        "2ms",
    ];
    let _dut = Server::start(bench.program(), &dut)?;
    wait_until_listens(&[], port.parse()?)?;
    let (queries, plot, ours) =
        (queries(bench, 65_000)?, bench.path("plot"), linked(bench, "resperf")?);
    // The duration is not a multiple of the interval.
    let args =
        resperf_arguments(["127.0.0.1", &port], &queries, &plot, "-m 40000 -r 3 -t 1 -i 0.7");
    let maxima = Maxima::in_turns(&|program| output(program, &args, LIMIT), &ours, 3)?;
    let [off, theirs] = maxima.each_ref().map(|found| (found.median / truth - 1.0) * 100.0);
    print_maxima(&format!("capacity {truth}, errors {off:+.2} % and {theirs:+.2} %"), &maxima);
    ensure!(off.abs() <= theirs.abs() + 0.5, "the original is closer to the capacity");
    // Users typically evaluate the plot file in this way.
    let awk = "!/^#/ { if (NF != 8) exit 1; if ($4 > max) max = $4; n++ } END { if (!n) exit 1; print max }";
    output(
        &ours,
        &resperf_arguments(["127.0.0.1", &port], &queries, &plot, "-m 1000 -r 1 -t 1"),
        LIMIT,
    )?;
    let most: f64 = output("awk", &[awk, &plot], LIMIT)?.trim().parse()?;
    ensure!((700.0..=1_000.0).contains(&most), "awk finds {most}");
    Ok(())
}

/// Returns the result of a closed loop, whatever its exit status.
fn closed_loop(bench: &Bench, port: u16, more: &[&str]) -> Result<Value> {
    let server = format!("127.0.0.1:{port}");
    let args = [&["closed-loop", "--json", "--server", &server, "--timeout", "5s"], more].concat();
    let ran = process::run(bench.program(), &args, LIMIT)?;
    serde_json::from_str(&ran.stdout).with_context(|| ran.stderr.clone())
}

fn tsig(bench: &Bench) -> Result<()> {
    const KEYS: [(&str, &str); 3] =
        [("hmac-md5", "md5"), ("hmac-sha256", "sha256"), ("hmac-sha512", "sha512")];
    let (zone, queries, folder) =
        (bench.zone_file("1")?, queries(bench, 200)?, bench.folder.path().display());
    let (nsd_port, knot_port) = (free_port()?, free_port()?);
    let nsd_keys: String = KEYS
        .iter()
        .map(|(algorithm, name)| {
            format!("key:\n  name: {name}.example\n  algorithm: {algorithm}\n  secret: \"c2VjcmV0c2VjcmV0\"\n")
        })
        .collect();
    let nsd = bench.file(
        "tsig-nsd.conf",
        &format!(
            "server:\n  ip-address: 127.0.0.1@{nsd_port}\n  username: \"\"\n  zonesdir: \"{folder}\"\n  database: \"\"\n  rrl-ratelimit: 0\n  \
             pidfile: \"{folder}/t.pid\"\n  xfrdfile: \"{folder}/t-xfrd\"\n  zonelistfile: \"{folder}/t-zl\"\n\
             remote-control:\n  control-enable: no\n{nsd_keys}zone:\n  name: dns64perf.test\n  zonefile: \"{zone}\"\n"
        ),
    )?;
    let knot_keys: String = KEYS
        .iter()
        .map(|(algorithm, name)| {
            format!(
                "  - id: {name}.example\n    algorithm: {algorithm}\n    secret: c2VjcmV0c2VjcmV0\n"
            )
        })
        .collect();
    fs::create_dir_all(bench.path("tsig-knot"))?;
    let knot = bench.file(
        "tsig-knot.conf",
        &format!(
            "server:\n  rundir: \"{folder}/tsig-knot\"\n  listen: 127.0.0.1@{knot_port}\nkey:\n{knot_keys}acl:\n  - id: signed\n    key: [md5.example, sha256.example, sha512.example]\n    \
             action: query\ndatabase:\n  storage: \"{folder}/tsig-knot\"\n\
             zone:\n  - domain: dns64perf.test\n    file: \"{zone}\"\n    acl: signed\n    zonefile-load: whole\n    journal-content: none\n"
        ),
    )?;
    let _nsd = Server::start(find("nsd").context("nsd")?, &["-d", "-c", &nsd])?;
    let _knot = Server::start(find("knotd").context("knotd")?, &["-c", &knot])?;
    for (server, port) in [("NSD", nsd_port), ("Knot DNS", knot_port)] {
        wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, AAAA)?;
        let asked =
            |more: &[&str]| closed_loop(bench, port, &[&["--queries", &queries], more].concat());
        for (algorithm, name) in KEYS {
            let key = format!("{algorithm}:{name}.example:c2VjcmV0c2VjcmV0");
            for transport in ["udp", "tcp"] {
                let right = asked(&["--tsig", &key, "--transport", transport])?;
                ensure!(right["valid"] == 200, "{server}, {key}, {transport}: {right}");
            }
        }
        // For plain queries, Knot DNS ignores the signing time of the signature, and NSD does not answer. Neither
        // result may count as valid.
        for (what, more) in [
            ("wrong", &["--tsig", "hmac-sha256:sha256.example:d3Jvbmd3cm9uZw=="][..]),
            ("unknown", &["--tsig", "hmac-sha256:none.example:c2VjcmV0c2VjcmV0"]),
            (
                "expired",
                &["--tsig", "hmac-sha256:sha256.example:c2VjcmV0c2VjcmV0", "--tsig-skew", "-4000"],
            ),
        ] {
            let refused = asked(more)?;
            ensure!(
                refused["valid"] == 0 && refused["lost"] == 0,
                "{server}, {what} key: {refused}"
            );
            let (rcodes, unsigned) =
                (refused["wrong"]["rcode"]["9"].as_u64(), refused["wrong"]["signature"].as_u64());
            ensure!(
                rcodes.unwrap_or(0) + unsigned.unwrap_or(0) == 200,
                "{server}, {what} key: {refused}"
            );
        }
    }
    Ok(())
}

fn tcp(bench: &Bench) -> Result<()> {
    let (zone, queries, folder) =
        (bench.zone_file("1")?, queries(bench, 1_000)?, bench.folder.path().display());
    // NSD closes each connection after 100 queries, in the middle of the stream.
    let (_nsd, nsd_port) =
        bench.authoritative(Auth::Nsd, &zone, &["tcp-query-count: 100", "tcp-timeout: 1"])?;
    let unbound_port = free_port()?;
    let unbound = bench.file(
        "tcp-unbound.conf",
        &format!(
            "server:\n  interface: 127.0.0.1@{unbound_port}\n  access-control: 127.0.0.0/8 allow\n  module-config: iterator\n  \
             local-zone: \"test.\" nodefault\n  do-not-query-localhost: no\n  username: \"\"\n  chroot: \"\"\n  directory: \"{folder}\"\n  \
             pidfile: \"{folder}/tcp-unbound.pid\"\n  use-syslog: no\n  tcp-idle-timeout: 200\nremote-control:\n  control-enable: no\n\
             forward-zone:\n  name: \"dns64perf.test.\"\n  forward-addr: 127.0.0.1@{nsd_port}\n"
        ),
    )?;
    let _unbound = Server::start(find("unbound").context("unbound")?, &["-d", "-c", &unbound])?;
    wait_for(&format!("127.0.0.1:{unbound_port}"), FIRST_NAME, AAAA)?;
    let one = ["--queries", &queries, "--transport", "tcp"];
    // With one query in flight, no query is lost if the connection is closed, and a new connection is opened after
    // every 100 queries.
    let closed = closed_loop(bench, nsd_port, &[&one[..], &["--outstanding", "1"]].concat())?;
    let made = closed["connections"]["made"].as_u64().unwrap_or(0);
    ensure!(
        closed["valid"].as_u64() >= Some(990) && (8..=12).contains(&made),
        "NSD, one at once: {closed}"
    );
    // With many queries in flight, exactly the queries on the closed connection are lost.
    let closed = closed_loop(bench, nsd_port, &[&one[..], &["--outstanding", "20"]].concat())?;
    let (valid, lost) =
        (closed["valid"].as_u64().unwrap_or(0), closed["lost"].as_u64().unwrap_or(0));
    ensure!(
        valid + lost == 1_000 && closed["connections"]["lost_with"] == lost && valid > 600,
        "NSD, 20 at once: {closed}"
    );
    let kept = closed_loop(
        bench,
        unbound_port,
        &[&one[..], &["--outstanding", "20", "--source-ports", "2"]].concat(),
    )?;
    ensure!(
        kept["valid"] == 1_000 && kept["connections"]["made"].as_u64() <= Some(10),
        "Unbound: {kept}"
    );
    ensure!(kept["connecting_us"]["p50"].as_f64() > Some(0.0), "no connection latency: {kept}");
    // The ramp is so slow that connections time out between queries.
    let (ours, plot, port) =
        (linked(bench, "resperf")?, bench.path("plot"), unbound_port.to_string());
    let args =
        resperf_arguments(["127.0.0.1", &port], &queries, &plot, "-M tcp -m 4 -r 2 -c 1 -t 1 -v");
    let printed = output(&ours, &args, LIMIT)?;
    ensure!(
        printed.contains("Queries lost:         0")
            && printed.contains("Ramp-up done, sending constant traffic"),
        "{printed}"
    );
    ensure!(printed.contains("Connections:"), "{printed}");
    Ok(())
}

/// Starts a server that answers every UDP query with TC set, and every TCP query with NOERROR.
fn truncating_server() -> Result<u16> {
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let port = udp.local_addr()?.port();
    let tcp = TcpListener::bind(("127.0.0.1", port))?;
    thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((n, client)) = udp.recv_from(&mut bytes) {
            bytes[2] |= 0x82;
            let _ = udp.send_to(&bytes[..n], client);
        }
    });
    thread::spawn(move || {
        for stream in tcp.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let mut len = [0; 2];
                while stream.read_exact(&mut len).is_ok() {
                    let mut message = vec![0; u16::from_be_bytes(len).into()];
                    if stream.read_exact(&mut message).is_err() {
                        return;
                    }
                    message[2] |= 0x80;
                    let _ = stream.write_all(&[&len[..], &message].concat());
                }
            });
        }
    });
    Ok(port)
}

fn truncated(bench: &Bench) -> Result<()> {
    let (port, queries) = (truncating_server()?, queries(bench, 1_000)?);
    let udp = closed_loop(bench, port, &["--queries", &queries])?;
    ensure!(udp["truncated"] == 1_000 && udp["valid"] == 1_000, "counted like resperf: {udp}");
    let names = closed_loop(bench, port, &["--count", "1000"])?;
    ensure!(names["wrong"]["truncated"] == 1_000, "no address in it: {names}");
    let retried =
        closed_loop(bench, port, &["--queries", &queries, "--transport", "udp-then-tcp"])?;
    ensure!(
        retried["retried"] == 1_000
            && retried["valid"] == 1_000
            && retried["connections"]["made"] == 1,
        "{retried}"
    );
    Ok(())
}

/// Numbers of threads, one for each row of the table.
const THREADS: [u64; 2] = [1, 16];

fn dns64perf2(bench: &Bench) -> Result<()> {
    let (auth_port, port) = (free_port()?, free_port()?);
    let listen = format!("127.0.0.1:{auth_port}");
    let auth =
        Server::start(bench.program(), &["auth", "--listen", &listen, "--threads", "1", "--json"])?;
    let config = format!(
        "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dns64]\nprefixes = [{{ prefix = '64:ff9b::/96', allow-non-global = true }}]\n\
         [[upstream]]\naddress = '127.0.0.1'\nport = {auth_port}\n"
    );
    let config = bench.file("dns64perf2.toml", &config)?;
    let dut = Server::start(bench.program(), &["dns64d", "--config", &config])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, AAAA)?;
    println!("        threads  ms for 256 names    qps   DUT CPU %");
    for (space, threads) in THREADS.into_iter().enumerate() {
        let words = [
            space.to_string(),
            "1".into(),
            threads.to_string(),
            "1".into(),
            "127.0.0.1".into(),
            port.to_string(),
        ];
        let cpu_of = dut.pid()?.to_string();
        let mut args = vec![
            "closed-loop",
            "--json",
            "--cpu-of",
            &cpu_of,
            "--expect-prefix",
            "64:ff9b::/96",
            "--dns64perf2",
        ];
        args.extend(words.iter().map(String::as_str));
        let result: Value = serde_json::from_str(&output(bench.program(), &args, LIMIT)?)?;
        ensure!(
            result["failed"] == 0
                && result["experiments_ms"].as_array().is_some_and(|all| all.len() == 256),
            "{result}"
        );
        let number = |name: &str| result[name].as_f64().unwrap_or(0.0);
        // All figures in a table must come from the same experiments, which consist of 256 queries each.
        let by_time = 256.0 * 1e3 / number("average_ms");
        ensure!(
            (number("qps") / by_time - 1.0).abs() < 0.001,
            "{by_time} queries/s by the time: {result}"
        );
        ensure!(
            result["cpu_pct"]["mean"].as_f64().is_none_or(|cpu| (0.1..=110.0).contains(&cpu)),
            "{result}"
        );
        let cpu =
            result["cpu_pct"]["mean"].as_f64().map_or("–".into(), |cpu| format!("{cpu:.0}"));
        println!(
            "        {threads:>7}  {:>8.2} ± {:<6.2} {:>7.0}   {cpu}",
            number("average_ms"),
            number("standard_deviation_ms"),
            number("qps")
        );
    }
    // Each name was new to the server, which therefore sent an AAAA query and an A query. Waiting for the server to
    // start added one more query.
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    let names = THREADS.len() as u64 * 256 * 256;
    for asked in [&counters["queries"]["aaaa"], &counters["queries"]["a"]] {
        let asked = asked.as_u64().unwrap_or(0);
        ensure!((names..=names + names / 1_000).contains(&asked), "{names} names: {counters}");
    }
    Ok(())
}

/// A script written from the description by G. Lencse and Y. Kadobayashi (DOI 10.1016/j.comcom.2018.05.005): it
/// searches for the highest rate at which every answer is valid. The script sets the rate only by the delay in ns, and
/// reads only the printed output.
const SEARCH: &str = r#"#!/bin/bash
dns64perf=$1; server=$2; port=$3; low=0; high=$4
while [ $((high - low)) -gt 100 ]; do
  rate=$(((low + high) / 2))
  delay=$((1000000000 / rate))
  "$dns64perf" "$server" "$port" 10.0.0.0/8 "$rate" 1 1 "$delay" 1 > result.txt || continue
  valid=$(grep '^Valid answers' result.txt | awk '{print $4}' | tr -d '()%')
  if [ "$valid" = "100.00" ]; then low=$rate; else high=$rate; fi
done
lines=$(grep -c '^0[01][0-9]-' dns64perf.csv)
echo "$low $lines"
"#;

fn papers_search(bench: &Bench) -> Result<()> {
    let port = free_port()?;
    let dut = ["reference-dut", "--listen", &format!("[::1]:{port}"), "--capacity", "3000"];
    let _dut = Server::start(bench.program(), &dut)?;
    wait_until_listens(&[], port)?;
    let (script, program) = (bench.file("search.sh", SEARCH)?, linked(bench, "dns64perf++")?);
    let line = format!(
        "cd '{}' && bash '{script}' '{program}' ::1 {port} 10000",
        bench.folder.path().display()
    );
    let printed = output("bash", &["-c", &line], LIMIT)?;
    let numbers: Vec<f64> =
        printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [found, lines] = numbers[..] else { anyhow::bail!("{printed}") };
    // A trial of one second can exceed the capacity by 2 %, because the server saves capacity for 20 ms.
    println!("        capacity 3000: the script finds {found:.0}");
    ensure!((2_800.0..=3_100.0).contains(&found) && lines > 2_000.0, "{printed}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_does_not_make_two_programs_agree() {
        let of = |values: [f64; 5]| Summary::of(&values).unwrap();
        let steady = of([100.0, 101.0, 102.0, 103.0, 104.0]);
        assert!(agree(&[steady, of([101.0, 102.0, 103.0, 104.0, 105.0])]));
        assert!(!agree(&[steady, of([10.0, 88.0, 90.0, 91.0, 92.0])]), "one bad run of theirs");
        assert!(!agree(&[of([60.0, 69.0, 70.0, 71.0, 200.0]), steady]), "one good run of ours");
        assert!(agree(&[of([99.0; 5]), of([101.0; 5])]), "3 %");
    }
}
