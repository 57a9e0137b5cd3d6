//! One trial and one campaign point against each DNS64 server.

use anyhow::{Context, Result, ensure};
use hosts::servers::Dut;
use serde_json::Value;

use super::harness::{Bench, LIGHT, LIGHT_QUERIES, Lab, SHORT_TRIALS};
use super::test::Test;
use crate::servers::{AUTH, DUT};

pub(super) static TESTS: &[Test] = &[
    Test::new("one trial and one campaign point: dns64d", &["ip"], |bench| {
        point(bench, Dut::Dns64d, "dns64d")
    }),
    Test::new("one trial and one campaign point: BIND", &["named", "ip"], |bench| {
        point(bench, Dut::Bind, "bind")
    }),
    Test::new("one trial and one campaign point: Unbound", &["unbound", "ip"], |bench| {
        point(bench, Dut::Unbound, "unbound")
    }),
    Test::new("one trial and one campaign point: PowerDNS", &["pdns_recursor", "ip"], |bench| {
        point(bench, Dut::Powerdns, "powerdns")
    }),
    Test::new("one trial and one campaign point: Knot Resolver", &["kresd", "ip"], |bench| {
        point(bench, Dut::KnotResolver, "knot-resolver")
    }),
];

fn point(bench: &Bench, dut: Dut, driver: &str) -> Result<()> {
    let _lab = Lab::up(bench)?;
    let auth = bench.in_lab("auth", &["auth", "--listen", AUTH, "--threads", "1", "--json"])?;
    let server = bench.dut_in_lab(dut, None, &[])?;
    let to_dut = ["--server", DUT, "--expect-prefix", "64:ff9b::/96"];
    let trial = bench.measure_in_lab(&[&to_dut[..], &LIGHT].concat())?;
    ensure!(trial["verdict"] == "passed" && trial["valid"] == LIGHT_QUERIES, "{trial}");
    drop(server);
    // Each name needs an upstream query for AAAA and one for A, and a server may retransmit.
    let counters: Value = serde_json::from_str(&auth.end()?)?;
    for rtype in ["aaaa", "a"] {
        let asked = counters["queries"][rtype].as_u64();
        ensure!(asked >= Some(LIGHT_QUERIES), "{rtype}: {counters}");
    }

    let plan = format!("name = 'point'\n{SHORT_TRIALS}[[dut]]\ndriver = '{driver}'\n");
    let (_, results) = bench.campaign("point", &plan)?;
    let point = &results["duts"][0]["points"][0];
    ensure!(point["figures"]["median"] == 100.0, "{point}");
    let per_query = point["real"]["questions_per_query"].as_f64().context(point.to_string())?;
    ensure!(per_query >= 2.0, "{point}");
    Ok(())
}
