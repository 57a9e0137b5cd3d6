//! Tests of `dns64bench try` with servers that have Debian's configuration and the lines that `try` prints.
//!
//! ```text
//! server starts ─► try prints lines ─► files ─► reload ─► names resolve ─► trials ─► SIGTERM, JSON
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::harness::{Bench, LIMIT};
use super::test::Test;
use crate::process::{Server, find, free_port, wait_until};

pub(super) static TESTS: &[Test] = &[
    Test::new("try: Unbound with the printed lines", &["unbound"], unbound),
    Test::new("try: BIND with the printed lines", &["named"], bind),
];

/// Debian's trust anchor of the root, in the package dns-root-data.
const ROOT_KEY: &str = "/usr/share/dns/root.key";

/// Tests Unbound, which validates DNSSEC and includes a folder, as in Debian.
fn unbound(bench: &Bench) -> Result<()> {
    let (port, folder) = (free_port()?, bench.path("unbound"));
    let included = format!("{folder}/unbound.conf.d");
    fs::create_dir_all(&included)?;
    let key = format!("{folder}/root.key");
    fs::copy(ROOT_KEY, &key).with_context(|| ROOT_KEY.to_owned())?;
    let config = format!(
        "server:\n  interface: 127.0.0.1@{port}\n  auto-trust-anchor-file: \"{key}\"\n  username: \"\"\n  chroot: \"\"\n  \
         pidfile: \"\"\n  directory: \"{folder}\"\ninclude-toplevel: \"{included}/*.conf\"\n"
    );
    let config = bench.file("unbound.conf", &config)?;
    let program = find("unbound").context("unbound not found")?;
    let server = Server::start(program, &["-d", "-c", &config])?;
    measured(bench, port, &server, &[PathBuf::from(format!("{included}/dns64bench.conf"))])
}

/// Tests BIND, which validates DNSSEC, as in Debian. The first part of the printed lines is inserted into the options
/// of BIND.
fn bind(bench: &Bench) -> Result<()> {
    let (port, folder) = (free_port()?, bench.path("bind"));
    fs::create_dir_all(&folder)?;
    let [options, local] = ["options", "local"].map(|name| format!("{folder}/{name}"));
    for empty in [&options, &local] {
        fs::write(empty, "")?;
    }
    let config = format!(
        "options {{\n  directory \"{folder}\";\n  dnssec-validation auto;\n  listen-on port {port} {{ 127.0.0.1; }};\n  \
         listen-on-v6 {{ none; }};\n  pid-file none;\n  session-keyfile none;\n  include \"{options}\";\n}};\ncontrols {{ }};\n\
         include \"{local}\";\n"
    );
    let config = bench.file("named.conf", &config)?;
    let program = find("named").context("named not found")?;
    let server = Server::start(program, &["-f", "-n", "1", "-c", &config])?;
    measured(bench, port, &server, &[options, local].map(PathBuf::from))
}

/// Starts `try`, writes the parts of the printed lines to the files, reloads the server, and checks the result after
/// the first trial.
fn measured(bench: &Bench, port: u16, server: &Server, files: &[PathBuf]) -> Result<()> {
    let log = PathBuf::from(bench.path("try.log"));
    let address = format!("127.0.0.1:{port}");
    wait_until_answers(bench, &address)?;
    let args = ["try", "--server", &address, "--json", "--wait", "60s"];
    let measured = Server::start_logged(bench.program(), &args, &log)?;
    let parts = printed_parts(&wait_for(&log, "Then run: ")?);
    ensure!(parts.len() == files.len(), "{} parts for {} files", parts.len(), files.len());
    for (part, file) in parts.iter().zip(files) {
        fs::write(file, part)?;
    }
    let reload = ["-HUP", &server.pid()?.to_string()];
    ensure!(Command::new("kill").args(reload).status()?.success(), "the server cannot be reloaded");
    wait_for(&log, "names resolve correctly")?;
    wait_for(&log, " q/s")?;
    let result: Value = serde_json::from_str(&measured.end()?)?;
    let count = |pointer: &str| result.pointer(pointer).and_then(Value::as_u64);
    println!("        closed loop: {} valid answers per second", result["closed_loop"]["qps"]);
    ensure!(count("/closed_loop/valid") > Some(0), "{result}");
    ensure!(count("/closed_loop/wrong/address") == Some(0), "{result}");
    ensure!(result["interrupted"] == true && result["version"].is_string(), "{result}");
    Ok(())
}

/// Waits until the server answers, so that `try --wait 0s` reports a state of the test names.
fn wait_until_answers(bench: &Bench, address: &str) -> Result<()> {
    let args = ["try", "--server", address, "--wait", "0s", "--quiet"];
    wait_until(&format!("{address} does not answer"), LIMIT, || {
        let ran = crate::process::run(bench.program(), &args, LIMIT)?;
        Ok(!ran.stderr.contains("no reply"))
    })
}

/// Waits until the log contains `words`, and returns the text of the log.
fn wait_for(log: &Path, words: &str) -> Result<String> {
    let mut text = String::new();
    let found = wait_until(&format!("{words:?} does not appear"), LIMIT, || {
        text = fs::read_to_string(log)?;
        Ok(text.contains(words))
    });
    found.with_context(|| text.clone())?;
    Ok(text)
}

/// Returns the parts of the printed lines. Each part follows a line `In PLACE:`.
fn printed_parts(log: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for line in log.lines().skip_while(|line| !line.starts_with("--- ")).skip(1) {
        if line.starts_with("Then run: ") {
            break;
        } else if line.starts_with("In ") && line.ends_with(':') {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            *part += &format!("{line}\n");
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_lines_are_read_part_by_part() {
        let log = "Server  ::1\n--- BIND ---\nIn one place:\n\na;\nb;\n\nIn another:\n\nc;\n\nThen run: reload\nd;\n";
        assert_eq!(printed_parts(log), ["\na;\nb;\n\n", "\nc;\n\n"]);
        assert!(printed_parts("no lines").is_empty());
    }
}
