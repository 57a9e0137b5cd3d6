//! What the tester's hosts lose below their sockets makes a trial invalid; what the DUT's host loses
//! makes it failed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Bench, LIMIT, Lab, Test};
use crate::process::{self, Server, output};
use crate::servers::DUT;

pub(super) const TESTS: [Test; 6] = [
    (
        "losses: a queueing discipline of the tester, and of the DUT",
        &["ip", "tc"],
        queueing_disciplines,
    ),
    ("losses: a queueing discipline of AuthDNS's host", &["ip", "tc"], queueing_of_authdns),
    ("losses: three trials straight after lab up", &["ip"], straight_after_lab_up),
    ("losses: a neighbour that answers late", &["ip", "nft"], late_neighbour),
    (
        "losses: one packet in 1000, by a packet filter of tester or DUT",
        &["ip", "nft"],
        packet_filters,
    ),
    ("losses: replies to many source addresses", &["ip", "nft"], many_source_addresses),
];

/// Drops 4 000 queries a second (some 100 octets each) down to a few hundred.
const NARROW: &str = "tc qdisc replace dev DEVICE root tbf rate 1mbit burst 4kb limit 8kb";

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
    expect(bench, "tbf of the DUT", "failed", || bench.measure_dut())
}

/// AuthDNS in the DUT's place: what its host loses is not its own failure.
fn queueing_of_authdns(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let status = bench.path("auth.sock");
    let served = ["auth", "--listen", DUT, "--aaaa-share", "1", "--status", &status];
    let _auth = bench.in_lab("dut", &served)?;
    let measure = || bench.measure_dut_with(&["--aaaa-share", "1", "--auth-status", &status]);
    expect(bench, "AuthDNS alone", "passed", measure)?;
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
        // The server listens before the first query; nothing else is waited for.
        let _dut = reference_dut(bench)?;
        expect(bench, "straight after lab up", "passed", || bench.measure_dut())?;
    }
    Ok(())
}

/// Before the trial the tester waits for its neighbour; in the middle of it the loss is the
/// tester's own.
fn late_neighbour(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    bench.shell("dut", BLOCK)?;
    bench.shell("tester", FORGET)?;
    let mend = bench.shell_later("dut", "sleep 1.2; nft delete table inet losses")?;
    let trial = bench.measure_dut()?;
    show("solicitations blocked for 1.2 s before the trial", &trial);
    ensure!(trial["verdict"] != "failed", "{trial}");
    drop(mend);

    bench.shell("dut", BLOCK)?;
    let _forget = bench.shell_later("tester", &format!("sleep 0.8; {FORGET}"))?;
    let _mend = bench.shell_later("dut", "sleep 1.3; nft delete table inet losses")?;
    let trial = bench.measure_dut()?;
    show("neighbour forgotten in the middle of the trial", &trial);
    ensure!(trial["verdict"] == "invalid", "{trial}");
    let loss = cause(&trial, "place", "neighbour");
    ensure!(
        loss.is_some_and(|loss| loss["address"] == "2001:2::1" && loss["interface"] == "to-dut"),
        "{trial}"
    );
    Ok(())
}

/// The DUT does not tell its link-layer address any more.
const BLOCK: &str = "nft add table inet losses && \
                     nft 'add chain inet losses c { type filter hook input priority 0; }' && \
                     nft add rule inet losses c icmpv6 type nd-neighbor-solicit drop";
/// The tester asks for its neighbours' link-layer addresses anew.
const FORGET: &str = "ip -6 neigh flush dev to-dut";

fn packet_filters(bench: &Bench) -> Result<()> {
    // Host, hook, what it matches, what may come of it.
    let cases = [
        ("tester", "input", "udp sport 53", &["invalid"][..]),
        ("tester", "output", "udp dport 53", &["passed", "invalid"]),
        ("dut", "input", "udp dport 53", &["failed"]),
        ("dut", "output", "udp sport 53", &["failed"]),
    ];
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    for (host, hook, ports, verdicts) in cases {
        bench.shell(
            host,
            &format!(
                "nft add table inet losses && \
                 nft 'add chain inet losses c {{ type filter hook {hook} priority 0; }}' && \
                 nft add rule inet losses c {ports} numgen random mod 1000 == 0 counter drop"
            ),
        )?;
        let mut trial = bench.measure_dut()?;
        // A machine that is busy spoils a trial in other ways too.
        while !verdicts.iter().any(|verdict| trial["verdict"] == *verdict)
            && trial["verdict"] == "invalid"
        {
            bench.note_spoiled(&trial.to_string())?;
            trial = bench.measure_dut()?;
        }
        show(&format!("1 in 1000 dropped in the {host}'s {hook}"), &trial);
        ensure!(
            verdicts.iter().any(|verdict| trial["verdict"] == *verdict),
            "{host} {hook}: {trial}"
        );
        if (host, hook) == ("tester", "input") {
            ensure!(cause(&trial, "kind", "missed").is_some(), "{trial}");
        }
        bench.shell(host, "nft delete table inet losses")?;
    }
    Ok(())
}

/// With the routes of the method's chapter a trial from many addresses passes; replies to a half of
/// them that the tester's host drops are missed, and without the way back nobody answers.
fn many_source_addresses(bench: &Bench) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let _dut = reference_dut(bench)?;
    let measure = || bench.measure_dut_with(&["--source-addresses", "2001:2:0:ff::/64"]);
    bench.shell("tester", "ip -6 route add local 2001:2:0:ff::/64 dev lo")?;
    let no_way_back = format!("{:#}", measure().err().context("no way back, and a trial")?);
    ensure!(no_way_back.contains("ip -6 route add 2001:2:0:ff::/64 via"), "{no_way_back}");
    bench.shell("dut", "ip -6 route add 2001:2:0:ff::/64 via 2001:2::2")?;
    expect(bench, "from 256 addresses", "passed", measure)?;
    bench.shell(
        "tester",
        "nft add table inet losses && \
         nft 'add chain inet losses c { type filter hook input priority 0; }' && \
         nft add rule inet losses c ip6 daddr 2001:2:0:ff:8000::/65 udp sport 53 drop",
    )?;
    // Its first address, which asks whether anybody is there, is of that half.
    let trial = bench.measure_dut_with(&[
        "--source-addresses",
        "2001:2:0:ff::/64",
        "--liveness",
        "false",
    ])?;
    show("half of the addresses dropped", &trial);
    let missed = cause(&trial, "kind", "missed").context(trial.to_string())?;
    ensure!(missed["datagrams"].as_u64() > Some(3_000), "{trial}");
    ensure!(trial["verdict"] == "invalid" && trial["wrong"]["destination"] == 0, "{trial}");
    Ok(())
}

/// The reason of a trial whose `key` is `value`.
fn cause<'a>(trial: &'a Value, key: &str, value: &str) -> Option<&'a Value> {
    trial["causes"].as_array()?.iter().find(|cause| cause[key] == value)
}

/// Measures until the verdict is `wanted`; again only where the machine spoiled a trial.
fn expect(
    bench: &Bench,
    what: &str,
    wanted: &str,
    measure: impl Fn() -> Result<Value>,
) -> Result<()> {
    loop {
        let trial = measure()?;
        show(what, &trial);
        if trial["verdict"] == wanted {
            return Ok(());
        }
        ensure!(trial["verdict"] == "invalid", "{what}: {trial}");
        bench.note_spoiled(&trial.to_string())?;
    }
}

fn show(what: &str, trial: &Value) {
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
    /// Runs a line of shell in a host of the lab.
    pub(super) fn shell(&self, host: &str, line: &str) -> Result<String> {
        output(self.program(), &["lab", "exec", host, "--", "sh", "-c", line], LIMIT)
    }

    /// Starts a line of shell in a host of the lab.
    fn shell_later(&self, host: &str, line: &str) -> Result<Server> {
        Server::start(self.program(), &["lab", "exec", host, "--", "sh", "-c", line])
    }

    /// One trial of 2 s at 4 000 queries a second.
    fn measure_dut(&self) -> Result<Value> {
        self.measure_dut_with(&[])
    }

    /// As [`Bench::measure_dut`], with more options.
    fn measure_dut_with(&self, more: &[&str]) -> Result<Value> {
        let line = "measure --server [2001:2::1]:53 --rate 4000 --duration 2s --timeout 500ms --json --quiet";
        let args = [
            &["lab", "exec", "tester", "--", self.program()][..],
            &line.split(' ').collect::<Vec<_>>(),
            more,
        ]
        .concat();
        let ran = process::run(self.program(), &args, Duration::from_secs(60))?;
        serde_json::from_str(&ran.stdout)
            .with_context(|| format!("status {:?}: {}", ran.status, ran.stderr))
    }
}
