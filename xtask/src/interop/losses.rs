//! Tests with packet losses below the sockets. Losses on a host of the tester make a trial invalid, and losses on the
//! DUT's host make it fail.

use std::cell::Cell;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ::campaign::archive;
use ::campaign::record::Entry;
use anyhow::{Context, Result, ensure};
use method::verdict::Verdict;
use serde_json::Value;

use super::harness::{Bench, LIGHT, LIGHT_QUERIES, LIMIT, Lab};
use super::tally::Skipped;
use super::test::{Resource, Test};
use crate::process::{self, Server, output, wait_until};
use crate::servers::DUT;

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "losses: a queueing discipline of the tester, and of the DUT",
        &["ip", "tc"],
        queueing_disciplines,
    ),
    Test::new(
        "losses: a queueing discipline of AuthDNS's host",
        &["ip", "tc"],
        queueing_of_authdns,
    ),
    Test::new("losses: three trials right after lab up", &["ip"], straight_after_lab_up),
    Test::new("losses: a neighbour that answers late", &["ip", "nft"], late_neighbour),
    Test::new(
        "losses: one packet in 100, by a packet filter of tester or DUT",
        &["ip", "nft"],
        packet_filters,
    ),
    Test::new("losses: replies to many source addresses", &["ip", "nft"], many_source_addresses),
    Test::new("losses: a slow DUT fails, with and without other programs", &["ip"], slow_dut)
        .holding(Resource::Cpus),
];

/// Plan with searches at a single rate, which is twice the capacity of the DUT. Ten searches need an idle machine.
const SLOW_DUT: &str = "name = 'slow'\n\
    [trial]\nduration = '1s'\ntimeout = '250ms'\npause = '0s'\nmax-burst = '500us'\nwindow-limit = 10000\n\
    lateness-limit = '100ms'\nauth-limit = '200ms'\n\
    [search]\nmin = 1000\nmax = 1000\nresolution = 1000\nrepeat = 30\ninvalid-retries = 10\n\
    [[dut]]\ndriver = 'custom'\nname = 'reference'\n[dut.custom]\n\
    start = ['PROGRAM', 'reference-dut', '--listen', '[{listen}]:{port}', \
    '--ask', '{upstream}:{upstream-port}', '--capacity', '500']\n";
/// Limit for the CPU use of other programs on the DUT's CPUs, in per cent.
const OTHERS_PCT: f64 = 5.0;
/// Time limit of the campaign. A trial is repeated if other programs disturbed it.
const SLOW_LIMIT: Duration = Duration::from_secs(600);

/// If other programs used little CPU time, a failed trial remains failed and does not become invalid.
fn slow_dut(bench: &Bench) -> Result<()> {
    let plan = bench.file("slow.toml", &SLOW_DUT.replace("PROGRAM", bench.program()))?;
    let run = bench.path("slow-run");
    let args = ["campaign", "run", &plan, "--dir", &run, "--quiet"];
    let ran = process::run(bench.program(), &args, SLOW_LIMIT)?;
    let (_, _, entries) = archive::read(Path::new(&run)).with_context(|| ran.stderr)?;
    let trials = entries.iter().filter_map(|entry| match entry {
        Entry::Finished(trial) => Some((trial.verdict(), trial.cpu.others?.total_pct())),
        _ => None,
    });
    let (quiet, busy): (Vec<_>, Vec<_>) = trials.partition(|(_, others)| *others <= OTHERS_PCT);
    println!("        other programs up to {OTHERS_PCT} %: {quiet:?}; more: {busy:?}");
    ensure!(quiet.iter().all(|(verdict, _)| *verdict == Verdict::Failed), "{quiet:?}");
    if quiet.len() < 10 {
        return Err(Skipped(format!("{} trials on an idle machine", quiet.len())).into());
    }
    Ok(())
}

/// Command that makes the kernel pass about 100 of the 300 queries per second (about 110 octets each) and drop the
/// others.
const NARROW: &str = "tc qdisc replace dev DEVICE root tbf rate 100kbit burst 2kb limit 2kb";

fn queueing_disciplines(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    bench.shell("tester", &NARROW.replace("DEVICE", "to-dut"))?;
    let own = bench.measure_dut()?;
    show("tbf of the tester", &own);
    ensure!(own["verdict"] == "invalid", "{own}");
    let loss = cause(&own, "place", "queueing_discipline");
    ensure!(
        loss.is_some_and(|loss| loss["discipline"] == "tbf" && loss["interface"] == "to-dut"),
        "{own}"
    );
    bench.shell("tester", "tc qdisc del dev to-dut root")?;
    bench.shell("dut", &NARROW.replace("DEVICE", "to-tester"))?;
    expect("tbf of the DUT", &["failed"], || bench.measure_dut()).map(drop)
}

/// AuthDNS is measured as the DUT. Losses on its host are not failures of AuthDNS.
fn queueing_of_authdns(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let status = bench.path("auth.sock");
    let served = ["auth", "--listen", DUT, "--aaaa-share", "1", "--status", &status];
    let _auth = bench.in_lab("dut", &served)?;
    // Each trial uses different names, because AuthDNS counts a repeated query for a name as cached.
    let first_name = Cell::new(0);
    let measure = || {
        let first = first_name.replace(first_name.get() + LIGHT_QUERIES).to_string();
        let names = ["--duration", "1s", "--aaaa-share", "1", "--first-name", &first];
        bench.measure_dut_with(&[&names[..], &["--auth-status", &status]].concat())
    };
    expect("AuthDNS alone", &["passed"], measure)?;
    bench.shell("dut", &NARROW.replace("DEVICE", "to-tester"))?;
    let trial = measure()?;
    show("tbf of AuthDNS's host", &trial);
    let loss = cause(&trial, "kind", "auth_host_loss");
    let is_its_own = |loss: &Value| {
        loss["place"] == "queueing_discipline"
            && loss["discipline"] == "tbf"
            && loss["interface"] == "to-tester"
    };
    ensure!(trial["verdict"] == "invalid" && loss.is_some_and(is_its_own), "{trial}");
    Ok(())
}

fn straight_after_lab_up(bench: &Bench) -> Result<()> {
    for _ in 0..3 {
        let _lab = Lab::up(bench)?;
        // The server listens before the first query, so no further wait is needed.
        let _dut = reference_dut(bench)?;
        expect("straight after lab up", &["passed"], || bench.measure_dut())?;
    }
    Ok(())
}

/// Before a trial, the tester waits until the neighbour's address is known. During the trial, an unknown neighbour
/// counts as a loss of the tester's host.
fn late_neighbour(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    bench.shell("dut", BLOCK)?;
    bench.shell("tester", FORGET)?;
    let mend = bench.shell_later("dut", "sleep 1.2; nft delete table inet losses")?;
    let trial = bench.measure_dut()?;
    show("solicitations blocked for 1.2 s before the trial", &trial);
    ensure!(trial["verdict"] != "failed", "{trial}");
    mend.wait()?;

    // The queue for the unknown neighbour is short, so that it is full at once.
    bench.shell("tester", "sysctl -qw net.ipv6.neigh.to-dut.unres_qlen_bytes=4096")?;
    let received = || -> Result<u64> {
        Ok(bench.shell("dut", "cat /proc/net/dev")?.lines().find_map(received_packets).unwrap_or(0))
    };
    let before = received()?;
    let trial = thread::scope(|scope| -> Result<Value> {
        let trial = scope.spawn(|| bench.measure_dut_with(&["--duration", "2s"]));
        // At this point, a quarter of the queries has arrived.
        wait_until("no query arrives", LIMIT, || Ok(received()? > before + 150))?;
        bench.shell("dut", BLOCK)?;
        bench.shell("tester", FORGET)?;
        trial.join().expect("measuring does not panic")
    })?;
    show("neighbour forgotten in the middle of the trial", &trial);
    ensure!(trial["verdict"] == "invalid", "{trial}");
    let loss = cause(&trial, "place", "neighbour");
    ensure!(
        loss.is_some_and(|loss| loss["address"] == "2001:2::1" && loss["interface"] == "to-dut"),
        "{trial}"
    );
    Ok(())
}

/// Returns the number of packets that the link to the tester has received, from the link's line of /proc/net/dev.
pub(super) fn received_packets(line: &str) -> Option<u64> {
    let counters = line.trim().strip_prefix("to-tester:")?;
    counters.split_whitespace().nth(1)?.parse().ok()
}

/// Commands with which the DUT's host stops answering neighbour solicitations for its address.
const BLOCK: &str = "nft add table inet losses && \
                     nft 'add chain inet losses c { type filter hook input priority 0; }' && \
                     nft add rule inet losses c icmpv6 type nd-neighbor-solicit drop";
/// Command with which the tester deletes the link-layer addresses of its neighbours.
const FORGET: &str = "ip -6 neigh flush dev to-dut";

fn packet_filters(bench: &Bench) -> Result<()> {
    // The columns are the host, the hook, the match, and the correct verdicts.
    let cases = [
        ("tester", "input", "udp sport 53", &["invalid"][..]),
        ("tester", "output", "udp dport 53", &["passed", "invalid"]),
        ("dut", "input", "udp dport 53", &["failed"]),
        ("dut", "output", "udp sport 53", &["failed"]),
    ];
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    for (host, hook, ports, verdicts) in cases {
        bench.filter(host, hook, &format!("{ports} numgen inc mod 100 == 50"))?;
        let trial = expect(&format!("1 in 100 dropped in the {host}'s {hook}"), verdicts, || {
            bench.measure_dut()
        })?;
        if (host, hook) == ("tester", "input") {
            ensure!(cause(&trial, "kind", "missed").is_some(), "{trial}");
        }
        bench.shell(host, "nft delete table inet losses")?;
    }
    Ok(())
}

/// With the routes from the book's chapter on the method, a trial with many source addresses passes. If the tester's
/// host drops the replies to half of the addresses, the trial is invalid because of these losses. Without a return
/// route, the trial is rejected.
fn many_source_addresses(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    let measure =
        || bench.measure_dut_with(&["--duration", "1s", "--source-addresses", "2001:2:0:ff::/64"]);
    bench.shell("tester", "ip -6 route add local 2001:2:0:ff::/64 dev lo")?;
    let no_way_back = format!("{:#}", measure().err().context("no route back, and a trial")?);
    ensure!(no_way_back.contains("ip -6 route add 2001:2:0:ff::/64 via"), "{no_way_back}");
    bench.shell("dut", "ip -6 route add 2001:2:0:ff::/64 via 2001:2::2")?;
    expect("from 256 addresses", &["passed"], measure)?;
    bench.filter("tester", "input", "ip6 daddr 2001:2:0:ff:8000::/65 udp sport 53")?;
    // The liveness check would use an address whose replies are dropped, so it is disabled.
    let trial = bench.measure_dut_with(&[
        "--duration",
        "1s",
        "--source-addresses",
        "2001:2:0:ff::/64",
        "--liveness",
        "false",
    ])?;
    show("half of the addresses dropped", &trial);
    let missed = cause(&trial, "kind", "missed").context(trial.to_string())?;
    ensure!(missed["datagrams"].as_u64() > Some(100), "{trial}");
    ensure!(trial["verdict"] == "invalid" && trial["wrong"]["destination"] == 0, "{trial}");
    Ok(())
}

/// Returns the reason of a trial whose field `key` has the value `value`.
pub(super) fn cause<'a>(trial: &'a Value, key: &str, value: &str) -> Option<&'a Value> {
    trial["causes"].as_array()?.iter().find(|cause| cause[key] == value)
}

/// Runs a trial whose verdict must be one of `wanted`. If the trial is invalid instead, runs it once more.
///
/// # Errors
/// Returns [`Skipped`] if the trial is invalid again, and a different error for any other verdict.
pub(super) fn expect(
    what: &str,
    wanted: &[&str],
    measure: impl Fn() -> Result<Value>,
) -> Result<Value> {
    let is_wanted = |trial: &Value| wanted.iter().any(|verdict| trial["verdict"] == *verdict);
    for _ in 0..2 {
        let trial = measure()?;
        show(what, &trial);
        if is_wanted(&trial) {
            return Ok(trial);
        }
        ensure!(trial["verdict"] == "invalid", "{what}: {trial}");
        println!("        invalid trial: {}", trial["reasons"]);
    }
    Err(Skipped(format!("{what}: two invalid trials")).into())
}

pub(super) fn show(what: &str, trial: &Value) {
    println!(
        "        {what}: {} ({} of {} valid, {} lost); reasons {}, warnings {}, drops {}",
        trial["verdict"],
        trial["valid"],
        trial["sent"],
        trial["lost"],
        trial["reasons"],
        trial["warnings"],
        trial["tester_drops_at"]
    );
}

fn reference_dut(bench: &Bench) -> Result<Server> {
    bench.in_lab("dut", &["reference-dut", "--listen", DUT, "--capacity", "100000"])
}

impl Bench {
    /// Runs a shell command line in a host of the lab.
    pub(super) fn shell(&self, host: &str, line: &str) -> Result<String> {
        output(self.program(), &["lab", "exec", host, "--", "sh", "-c", line], LIMIT)
    }

    /// Makes a host drop packets that match an nft expression, until the table `inet losses` is deleted.
    pub(super) fn filter(&self, host: &str, hook: &str, packets: &str) -> Result<()> {
        let line = format!(
            "nft add table inet losses && \
             nft 'add chain inet losses c {{ type filter hook {hook} priority 0; }}' && \
             nft add rule inet losses c {packets} counter drop"
        );
        self.shell(host, &line).map(drop)
    }

    /// Starts a shell command line in a host of the lab.
    fn shell_later(&self, host: &str, line: &str) -> Result<Server> {
        Server::start(self.program(), &["lab", "exec", host, "--", "sh", "-c", line])
    }

    /// Runs one [`LIGHT`] trial of the DUT, and returns the trial for any verdict.
    fn measure_dut(&self) -> Result<Value> {
        self.measure_dut_with(&["--duration", "1s"])
    }

    /// Same as [`Bench::measure_dut`], with a duration and additional options.
    fn measure_dut_with(&self, more: &[&str]) -> Result<Value> {
        self.trial_of_dut(&[&LIGHT[..2], &LIGHT[4..], more].concat())
    }

    /// Runs a trial of the DUT from the tester's host with these options, and returns the trial for any verdict.
    pub(super) fn trial_of_dut(&self, options: &[&str]) -> Result<Value> {
        let ours = ["lab", "exec", "tester", "--", self.program(), "measure", "--json", "--quiet"];
        let args = [&ours[..], &["--server", DUT], options].concat();
        let ran = process::run(self.program(), &args, LIMIT)?;
        serde_json::from_str(&ran.stdout)
            .with_context(|| format!("status {:?}: {}", ran.status, ran.stderr))
    }
}
