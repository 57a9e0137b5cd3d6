//! Tests with faults of AuthDNS's host. AuthDNS is part of the tester, so each fault makes a trial invalid instead of
//! failed. If the DUT's host has the same fault, the trial remains failed.

use std::cell::Cell;
use std::thread;

use anyhow::{Result, ensure};
use hosts::servers::Dut;
use serde_json::Value;

use super::harness::{Bench, LIMIT, Lab};
use super::losses::{cause, expect, show};
use super::test::Test;
use crate::process::{Server, wait_until};
use crate::servers::AUTH;

pub(super) static TESTS: &[Test] = &[
    Test::new("losses: a packet filter of AuthDNS's host, and of the DUT", &["ip", "nft"], filters),
    Test::new(
        "losses: a silent neighbour of AuthDNS's host, and of the DUT",
        &["ip", "nft"],
        silence,
    ),
    Test::new(
        "losses: a slow queue of AuthDNS, of the tester, and of the DUT",
        &["ip", "tc"],
        queues,
    ),
    Test::new("losses: an AuthDNS with another zone", &["ip"], other_zones),
    Test::new("losses: two testers at one AuthDNS", &["ip"], two_testers),
    Test::new(
        "losses: faults of the tester's hosts in two rounds, controls between them",
        &["ip", "nft", "tc"],
        two_rounds,
    ),
];

/// Options of a trial whose outcome does not depend on the load of this machine.
const LOAD: [&str; 10] = [
    "--rate",
    "300",
    "--timeout",
    "3s",
    "--window-limit",
    "10000",
    "--lateness-limit",
    "500ms",
    "--auth-limit",
    "5s",
];
/// Distance between the first names of two trials. It is larger than the number of names in any trial.
const NAMES: u64 = 10_000;
/// Options of a trial of one second. The liveness check is disabled, because it would prevent a trial in which all
/// replies are wrong.
const SECOND: [&str; 4] = ["--duration", "1s", "--liveness", "false"];

/// The lab, and an AuthDNS in it.
struct Site<'a> {
    bench: &'a Bench,
    status: String,
    next_name: Cell<u64>,
    auth: Option<Server>,
    _lab: Lab<'a>,
}

impl<'a> Site<'a> {
    fn up(bench: &'a Bench) -> Result<Site<'a>> {
        let (lab, status) = (Lab::up(bench)?, bench.path("auth.sock"));
        let auth = Some(auth(bench, &status, &[])?);
        Ok(Site { bench, status, next_name: Cell::new(0), auth, _lab: lab })
    }

    /// Replaces AuthDNS with an AuthDNS that has these options.
    fn restart_auth(&mut self, options: &[&str]) -> Result<()> {
        drop(self.auth.take());
        self.auth = Some(auth(self.bench, &self.status, options)?);
        Ok(())
    }

    /// Starts a new dns64d as the DUT, so that AuthDNS is not marked down.
    fn dut(&self) -> Result<Server> {
        self.bench.dut_in_lab(Dut::Dns64d, None, &[])
    }

    /// Returns the index of the first name for a trial, so that no other trial uses the same names.
    fn names(&self) -> u64 {
        self.next_name.replace(self.next_name.get() + NAMES)
    }

    /// Runs a trial that reads AuthDNS's status.
    fn measure(&self, more: &[&str]) -> Result<Value> {
        let status = ["--auth-status", &self.status];
        measure(self.bench, self.names(), &[&status[..], more].concat())
    }

    /// Runs a trial of one second, which must pass.
    fn control(&self) -> Result<()> {
        expect("control", &["passed"], || self.measure(&SECOND)).map(drop)
    }

    /// Runs a trial of one second, which must be invalid for this reason.
    fn is_invalid(&self, what: &str, reason: [&str; 2]) -> Result<()> {
        is_invalid(what, &self.measure(&SECOND)?, reason)
    }

    /// Runs a trial of one second, which must fail.
    fn fails(&self, what: &str) -> Result<()> {
        expect(what, &["failed"], || self.measure(&SECOND)).map(drop)
    }

    /// Runs a trial of three seconds. Calls `disturb` once some of the queries have reached the DUT.
    fn measure_and(&self, disturb: impl FnOnce() -> Result<()>) -> Result<Value> {
        let (bench, first) = (self.bench, self.names());
        let more = ["--auth-status", &self.status, "--duration", "3s"];
        let before = queries(bench)?;
        thread::scope(|scope| {
            let trial = scope.spawn(move || measure(bench, first, &more));
            wait_until("no query arrives", LIMIT, || Ok(queries(bench)? > before + 150))?;
            disturb()?;
            trial.join().expect("measuring does not panic")
        })
    }
}

fn auth(bench: &Bench, status: &str, options: &[&str]) -> Result<Server> {
    let served = ["auth", "--listen", AUTH, "--status", status];
    bench.in_lab("auth", &[&served[..], options].concat())
}

/// Runs a trial of dns64d, which may have any verdict.
fn measure(bench: &Bench, first_name: u64, more: &[&str]) -> Result<Value> {
    let first = first_name.to_string();
    bench.trial_of_dut(&[&["--first-name", first.as_str()][..], &LOAD, more].concat())
}

/// Returns the number of packets that the DUT's link to the tester has received.
fn queries(bench: &Bench) -> Result<u64> {
    let table = bench.shell("dut", "cat /proc/net/dev")?;
    Ok(table.lines().find_map(super::losses::received_packets).unwrap_or(0))
}

/// Checks that a trial is invalid, and that the field `key` of one of its causes has the value `value`.
fn is_invalid(what: &str, trial: &Value, [key, value]: [&str; 2]) -> Result<()> {
    show(what, trial);
    ensure!(trial["verdict"] == "invalid", "{what}: {trial}");
    ensure!(cause(trial, key, value).is_some(), "{what}: no {value}: {trial}");
    Ok(())
}

fn filters(bench: &Bench) -> Result<()> {
    let mut site = Site::up(bench)?;
    for fault in [Fault::Prerouting, Fault::Input] {
        let dut = site.dut()?;
        site.control()?;
        drop(dut);
        fault.is_invalid(&mut site)?;
    }
    for hook in ["prerouting", "input"] {
        let _dut = site.dut()?;
        bench.filter("dut", hook, "iifname to-auth udp sport 53")?;
        site.fails(&format!("the DUT's {hook}, from AuthDNS"))?;
        bench.shell("dut", "nft delete table inet losses")?;
    }
    Ok(())
}

/// Makes a host drop answers to its neighbour solicitations, and deletes the link-layer address of its neighbour.
fn deafen(bench: &Bench, host: &str, interface: &str) -> Result<()> {
    let line = "nft add table arp losses && \
                nft 'add chain arp losses c { type filter hook input priority 0; }' && \
                nft add rule arp losses c drop && ip -4 neigh flush dev INTERFACE";
    bench.shell(host, &line.replace("INTERFACE", interface)).map(drop)
}

fn silence(bench: &Bench) -> Result<()> {
    let mut site = Site::up(bench)?;
    let dut = site.dut()?;
    site.control()?;
    drop(dut);
    Fault::Neighbour.is_invalid(&mut site)?;
    let _dut = site.dut()?;
    let failing = || {
        let trial = site.measure_and(|| deafen(bench, "dut", "to-auth"));
        bench.shell("dut", "nft delete table arp losses")?;
        trial
    };
    expect("the DUT's neighbour", &["failed"], failing).map(drop)
}

/// Command that makes the kernel delay packets above a rate, without dropping any.
const SLOW: &str = "tc qdisc replace dev DEVICE root tbf rate 30kbit burst 2kb limit 10mb";

fn queues(bench: &Bench) -> Result<()> {
    let mut site = Site::up(bench)?;
    let dut = site.dut()?;
    site.control()?;
    drop(dut);
    Fault::AuthQueue.is_invalid(&mut site)?;
    Fault::TesterQueue.is_invalid(&mut site)?;
    let _dut = site.dut()?;
    site.control()?;
    bench.shell("dut", &SLOW.replace("DEVICE", "to-tester"))?;
    site.fails("the DUT's queue")
}

fn other_zones(bench: &Bench) -> Result<()> {
    let mut site = Site::up(bench)?;
    let dut = site.dut()?;
    site.control()?;
    let prefix = [&SECOND[..], &["--expect-prefix", "2001:db8::/96"]].concat();
    expect("another prefix of the DUT", &["failed"], || site.measure(&prefix))?;
    drop(dut);
    Fault::OtherShare.is_invalid(&mut site)?;
    Fault::OtherDomain.is_invalid(&mut site)
}

/// A fault of the host of AuthDNS or of the Measurer.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Prerouting,
    Input,
    Neighbour,
    AuthQueue,
    TesterQueue,
    OtherShare,
    OtherDomain,
}

impl Fault {
    /// Runs a trial with this fault. The trial must be invalid because of the fault, which is removed after the trial.
    fn is_invalid(self, site: &mut Site) -> Result<()> {
        let (bench, _dut) = (site.bench, site.dut()?);
        match self {
            Fault::Prerouting => site.filtered("prerouting", "numgen inc mod 40 == 20"),
            Fault::Input => site.filtered("input", ""),
            Fault::Neighbour => site.deafened(),
            Fault::AuthQueue => {
                bench.shell("auth", &SLOW.replace("DEVICE", "to-dut"))?;
                let trial = site.measure(&SECOND)?;
                bench.shell("auth", "tc qdisc del dev to-dut root")?;
                is_invalid("AuthDNS's queue", &trial, ["place", "waited"])?;
                let loss = cause(&trial, "place", "waited");
                ensure!(loss.is_some_and(|loss| loss["kind"] == "auth_host_loss"), "{trial}");
                Ok(())
            }
            Fault::TesterQueue => {
                bench.shell("tester", &SLOW.replace("DEVICE", "to-dut"))?;
                site.is_invalid("the tester's queue", ["place", "waited"])?;
                bench.shell("tester", "tc qdisc del dev to-dut root").map(drop)
            }
            Fault::OtherShare => site.other_zone(&["--aaaa-share", "0.5"]),
            Fault::OtherDomain => site.other_zone(&["--domain", "other.test"]),
        }
    }
}

impl Site<'_> {
    /// Runs a trial with a packet filter on AuthDNS's host, which must make the trial invalid.
    fn filtered(&self, hook: &str, share: &str) -> Result<()> {
        self.bench.filter("auth", hook, &format!("udp dport 53 {share}"))?;
        self.is_invalid(&format!("AuthDNS's {hook} {share}"), ["kind", "auth_missed"])?;
        self.bench.shell("auth", "nft delete table inet losses").map(drop)
    }

    /// Runs a trial, during which a neighbour of AuthDNS's host becomes unreachable.
    fn deafened(&self) -> Result<()> {
        let trial = self.measure_and(|| deafen(self.bench, "auth", "to-dut"))?;
        self.bench.shell("auth", "nft delete table arp losses")?;
        is_invalid("AuthDNS's neighbour", &trial, ["place", "neighbour"])?;
        let loss = cause(&trial, "place", "neighbour");
        let is_the_dut = |loss: &Value| {
            loss["kind"] == "auth_host_loss"
                && loss["address"] == "198.18.0.1"
                && loss["interface"] == "to-dut"
        };
        ensure!(loss.is_some_and(is_the_dut), "{trial}");
        Ok(())
    }

    /// Runs a trial with an AuthDNS whose options do not fit the trial, which must make the trial invalid.
    fn other_zone(&mut self, options: &[&str]) -> Result<()> {
        self.restart_auth(options)?;
        // The liveness check is enabled, but the trial itself must determine the verdict.
        let trial = self.measure(&SECOND[..2])?;
        is_invalid(&options.join(" "), &trial, ["kind", "auth_serves"])?;
        self.restart_auth(&[])
    }
}

/// Each fault must make the trial in which it occurs invalid, and no other trial.
fn two_rounds(bench: &Bench) -> Result<()> {
    let faults = [
        Fault::Prerouting,
        Fault::Neighbour,
        Fault::AuthQueue,
        Fault::TesterQueue,
        Fault::OtherShare,
        Fault::OtherDomain,
    ];
    let mut site = Site::up(bench)?;
    for _round in 0..2 {
        for (at, fault) in faults.iter().enumerate() {
            if at > 0 {
                let _dut = site.dut()?;
                site.control()?;
            }
            fault.is_invalid(&mut site)?;
        }
    }
    Ok(())
}

fn two_testers(bench: &Bench) -> Result<()> {
    let site = Site::up(bench)?;
    let _dut = site.dut()?;
    site.control()?;
    let (first, status) = (site.names(), site.status.as_str());
    let both = thread::scope(|scope| {
        let one = || measure(bench, first, &["--auth-status", status, "--duration", "4s"]);
        let both = [scope.spawn(one), scope.spawn(one)];
        both.map(|trial| trial.join().expect("measuring does not panic"))
    });
    for trial in both {
        is_invalid("two testers, the same names", &trial?, ["kind", "other_trials"])?;
    }
    // The second trial does not read AuthDNS's status.
    let (other, before) = (site.names(), queries(bench)?);
    let trial = thread::scope(|scope| {
        let other = scope.spawn(move || measure(bench, other, &["--duration", "6s"]));
        wait_until("no query arrives", LIMIT, || Ok(queries(bench)? > before + 150))?;
        let trial = site.measure(&SECOND);
        other.join().expect("measuring does not panic")?;
        trial
    })?;
    is_invalid("another tester, other names", &trial, ["kind", "other_names"])?;
    site.control()
}
