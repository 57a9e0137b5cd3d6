//! `try` with dns64d and the printed lines, and with servers that are not configured.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};

use common::{PROGRAM, Server, holds, run, show};
use serde_json::Value;

/// Option that selects a free port for AuthDNS, because tests run in parallel.
const AUTH: [&str; 2] = ["--auth-listen", "127.0.0.1:0"];

/// A server of this program that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn unconfigured_servers_get_advice_and_status_4() {
    let auth = Server::start(&["auth", "--threads", "1"]);
    let dut =
        Server::start(&["reference-dut", "--capacity", "100000", "--prefix", "2001:db8:64::"]);
    let closed = net::ports::free(Ipv4Addr::LOCALHOST.into()).unwrap().to_string();
    for (server, more, words) in [
        (&auth.address, &[][..], &["no synthesized AAAA record", "enable DNS64"][..]),
        (&auth.address, &["--domain", "other.test"], &["REFUSED", "access list"]),
        (&dut.address, &[], &["--expect-prefix 2001:db8:64::/96"]),
        (&closed, &[], &["connection refused", "listens at this address"]),
    ] {
        let args = [&["try", "--server", server, "--wait", "0s"], &AUTH[..], more].concat();
        let output = run(&args);
        let text = show(&args, &output);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(output.stdout.is_empty(), "{text}");
        for word in words {
            assert!(text.contains(word), "{word} is not in {text}");
        }
    }
}

#[test]
fn a_port_that_is_taken_names_the_option() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let args = ["try", "--server", "127.0.0.1:9", "--wait", "0s", "--auth-listen", &address];
    let output = run(&args);
    let text = show(&args, &output);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("another address for AuthDNS, such as --auth-listen"), "{text}");
}

/// dns64d with the printed lines, and an address as the only addition, can be measured by `try`; an interruption leaves
/// one object with the results so far.
#[test]
fn dns64d_with_the_printed_lines_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let address = net::ports::free(Ipv4Addr::LOCALHOST.into()).unwrap().to_string();
    let args = ["try", "--server", &address, "--json", AUTH[0], AUTH[1]];
    let mut command = Command::new(PROGRAM);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut measured = Killed(command.spawn().unwrap());
    let mut stderr = BufReader::new(measured.0.stderr.take().unwrap());
    let mut until = |end: &str| {
        let mut text = String::new();
        while !text.contains(end) {
            assert!(stderr.read_line(&mut text).unwrap() > 0, "ended before {end:?}: {text}");
        }
        text
    };
    let text = until("Waiting for up to 5m");
    let (_, lines) = text.split_once("--- dns64d ---\n").expect("the lines of all servers");
    let (lines, _) = lines.split_once("Then run: ").expect("a command after them");
    let (_, lines) = lines.split_once(":\n\n").expect("their place before them");
    let config = folder.path().join("dns64d.toml");
    fs::write(&config, format!("listen = ['{address}']\n{lines}\n")).unwrap();
    let mut dns64d = Command::new(PROGRAM);
    dns64d.args(["dns64d", "--config"]).arg(&config).stderr(Stdio::null());
    let _dns64d = Killed(dns64d.spawn().unwrap());
    until("names resolve correctly");
    until(" q/s");
    let id = measured.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut printed = String::new();
    measured.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let mut rest = String::new();
    let _ = stderr.read_to_string(&mut rest);
    assert_eq!(measured.0.wait().unwrap().code(), Some(130), "{printed}\n{rest}");
    let found: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    holds("try", &found);
    assert_eq!((&found["interrupted"], &found["search"]), (&true.into(), &Value::Null));
    assert!(found["closed_loop"]["valid"].as_u64() > Some(0), "{printed}");
    assert_eq!(found["closed_loop"]["wrong"]["address"], 0, "{printed}");
}
