//! Output of dns64d in dnstap format, read with Debian's dnstap tools.
//!
//! ```text
//! wait_for, dig ─► dns64d ─► AuthDNS
//!                    └─ frame streams ─► fstrm_capture ─► file ─► dnstap-read ─► text
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::dns64d::NAME;
use super::harness::{A, AAAA, Bench, LIMIT, wait_for};
use super::test::Test;
use crate::process::{Server, free_port, output, wait_until};

pub(super) static TESTS: &[Test] = &[Test::new(
    "dnstap of dns64d, taken by fstrm_capture and read by dnstap-read",
    &["fstrm_capture", "dnstap-read", "dig"],
    captured_and_read,
)];

fn captured_and_read(bench: &Bench) -> Result<()> {
    let (tap, control, file) =
        (bench.path("tap.sock"), bench.path("control.sock"), bench.path("tap"));
    let capture =
        Server::start("fstrm_capture", &["-t", "protobuf:dnstap.Dnstap", "-u", &tap, "-w", &file])?;
    wait_until("fstrm_capture creates no socket", LIMIT, || Ok(Path::new(&tap).exists()))?;

    let (upstream, port) = (free_port()?, free_port()?);
    let listen = format!("127.0.0.1:{upstream}");
    let _auth =
        Server::start(bench.program(), &["auth", "--listen", &listen, "--aaaa-share", "0"])?;
    wait_for(&listen, NAME, A)?;
    let plain = std::fs::read_to_string(bench.dns64d_config(port, upstream)?)?;
    let config = bench.file(
        "dns64d-tapped.toml",
        &format!(
            "{plain}[dnstap]\nsocket = '{tap}'\nidentity = 'ns1'\nupstreams = true\n[control]\nsocket = '{control}'\n"
        ),
    )?;
    let dns64d = bench.dns64d_program();
    let server = Server::start(&dns64d, &["--config", &config])?;
    wait_for(&format!("127.0.0.1:{port}"), NAME, AAAA)?;
    let messages = || -> Result<u64> {
        let status = output(&dns64d, &["status", "--socket", &control, "--json"], LIMIT)?;
        let status: Value = serde_json::from_str(&status)?;
        status["counters"]["dnstap_messages"]["sent"].as_u64().context("no count")
    };
    // Messages that dns64d sent before the capture connected are lost. Each of these names causes an upstream query.
    let mut number = 0;
    wait_until("fstrm_capture receives nothing", LIMIT, || {
        number += 1;
        ensure!(number < 200, "no message was captured after 200 queries");
        let name = NAME.replace("001", &format!("{number:03}"));
        let port = port.to_string();
        for transport in ["+notcp", "+tcp"] {
            output("dig", &["@127.0.0.1", "-p", &port, transport, &name, "AAAA"], LIMIT)?;
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(messages()? >= 8)
    })?;
    let sent = messages()?;
    server.end()?;
    capture.end()?;
    are_read(&file, sent)
}

/// Requires that `dnstap-read` reads at least this number of messages of all kinds from a file.
fn are_read(file: &str, sent: u64) -> Result<()> {
    let short = output("dnstap-read", &[file], LIMIT)?;
    for kind in [" CQ ", " CR ", " FQ ", " FR "] {
        ensure!(short.contains(kind), "no {kind} among\n{short}");
    }
    for part in [" UDP ", " TCP ", "dns64perf.test/IN/AAAA", "dns64perf.test/IN/A"] {
        ensure!(short.contains(part), "no {part} among\n{short}");
    }
    ensure!(
        short.lines().count() as u64 >= sent,
        "{sent} messages were sent, but these were read:\n{short}"
    );
    let long = output("dnstap-read", &["-p", file], LIMIT)?;
    ensure!(long.contains("64:ff9b::"), "no synthesized address in\n{long}");
    let yaml = output("dnstap-read", &["-y", file], LIMIT)?;
    for part in ["identity: ns1", "version: dns64d ", "CLIENT_RESPONSE", "FORWARDER_QUERY"] {
        ensure!(yaml.contains(part), "no {part} in\n{yaml}");
    }
    println!("        {sent} messages, {} of them read", short.lines().count());
    Ok(())
}
