//! Other servers for benchmarks and tests, started by the drivers that campaigns use (`hosts::servers`).

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hosts::servers::{Auth, Driver, Dut, Operator, Release, Serve, Setting, Task, Translate};
use serde_json::Value;
use units::Share;

use crate::process::{find, output, run, wait_until};

/// Address of the DUT in the lab, to which the Measurer sends queries.
pub(crate) const DUT: &str = "[2001:2::1]:53";
/// Address of the DUT in the lab, without the port.
pub(crate) const DUT_HOST: &str = "2001:2::1";
/// Address of AuthDNS in the lab, to which the DUT sends queries.
pub(crate) const AUTH: &str = "198.18.0.2:53";
/// Maximum time until a server answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the reason why a reference DUT did not reach its capacity, or `None` if the DUT lost no more than the
/// configured share of queries. The reason is derived from `counters`, which the DUT printed when it ended. `timeout`
/// is the timeout of a query.
///
/// # Errors
/// Returns an error if `counters` were not printed by a reference DUT.
pub(crate) fn held_up(counters: &Value, timeout: Duration) -> Result<Option<String>> {
    let count = |key: &str| counters[key].as_u64().with_context(|| format!("no {key}: {counters}"));
    let [drops, refused, wait] =
        [count("socket_drops")?, count("refused")?, count("longest_wait_us")?];
    let is_held_up = drops > 0 || refused > 0 || u128::from(wait) >= timeout.as_micros();
    Ok(is_held_up.then(|| {
        format!(
            "the kernel dropped {drops} queries before the reference DUT read them and refused \
             {refused} of its replies, and one query waited {} ms before it was read",
            wait / 1_000
        )
    }))
}

/// Returns the names of the installed servers, including dns64d, separated by commas.
pub(crate) fn installed() -> String {
    let is_there = |program: Option<&str>| {
        program.is_some_and(|program| program == "dns64d" || find(program).is_some())
    };
    let duts = Dut::ALL.iter().map(|dut| (dut.name(), dut.driver().program_name()));
    let all = duts.chain(Auth::ALL.iter().map(|auth| (auth.name(), auth.driver().program_name())));
    let names: Vec<&str> =
        all.filter(|(_, program)| is_there(*program)).map(|(name, _)| name).collect();
    names.join(",")
}

/// Returns the command that starts a DUT in the lab with this number of threads. `folder` contains the configuration of
/// the DUT, and `program` is the path of its program.
pub(crate) fn dut_in_lab(
    dut: Dut,
    folder: &Path,
    program: &Path,
    threads: usize,
) -> Result<Vec<String>> {
    dut_of_operator(dut, folder, program, threads, DUT, &Operator::default())
}

/// Same as [`dut_in_lab`], but the DUT listens on `listen` and has additional configuration lines.
pub(crate) fn dut_of_operator(
    dut: Dut,
    folder: &Path,
    program: &Path,
    threads: usize,
    listen: &str,
    operator: &Operator,
) -> Result<Vec<String>> {
    let task = Translate {
        upstreams: vec![AUTH.parse()?],
        prefixes: vec!["64:ff9b::/96".parse().map_err(anyhow::Error::msg)?],
        checked: None,
    };
    prepared(
        dut.driver(),
        &Setting { folder, listen: listen.parse()?, cores: threads, threads, operator, task },
        program,
    )
}

/// Returns the command that starts an authoritative server with one thread, which serves our zone file `zone`. `folder`
/// contains the configuration of the server, including the lines `extra`.
pub(crate) fn authoritative(
    auth: Auth,
    folder: &Path,
    listen: SocketAddr,
    zone: &str,
    extra: &[&str],
) -> Result<Vec<String>> {
    let driver = auth.driver();
    let name = driver.program_name().context("it has no program")?;
    let program = find(name).with_context(|| format!("{name} not found"))?;
    let task = Serve { zone: zone.into(), aaaa: Share::ZERO, status: None, anchors: None };
    let operator = Operator {
        extra: extra.iter().map(|&line| line.to_owned()).collect(),
        ..Operator::default()
    };
    prepared(
        driver,
        &Setting { folder, listen, cores: 1, threads: 1, operator: &operator, task },
        &program,
    )
}

/// Writes a server's configuration and returns its command.
fn prepared<T: Task>(
    driver: &Driver<T>,
    setting: &Setting<'_, T>,
    program: &Path,
) -> Result<Vec<String>> {
    let program = [program.to_string_lossy().into_owned()];
    let driver = driver.for_release(release(driver, setting.operator, &program)?);
    let file = setting.folder.join(driver.file);
    fs::create_dir_all(file.parent().unwrap_or(setting.folder))?;
    fs::write(file, driver.configuration(setting))?;
    Ok(driver.command(setting, &program))
}

/// Returns the release of a server, or [`Release::UNKNOWN`] if the driver does not depend on the release.
fn release<T>(driver: &Driver<T>, operator: &Operator, program: &[String]) -> Result<Release> {
    if !driver.depends_on_release() {
        return Ok(Release::UNKNOWN);
    }
    Ok(Release::parse(&printed_version(driver, operator, program)?))
}

/// Returns the version number of a DUT's program, such as `1.26.2`.
///
/// # Errors
/// Returns an error if the program prints no version number.
pub(crate) fn version(dut: Dut, program: &Path) -> Result<String> {
    let program = [program.to_string_lossy().into_owned()];
    let printed = printed_version(dut.driver(), &Operator::default(), &program)?;
    Ok(version_number(&printed)
        .with_context(|| format!("no version number: {printed}"))?
        .to_owned())
}

fn printed_version<T>(
    driver: &Driver<T>,
    operator: &Operator,
    program: &[String],
) -> Result<String> {
    let words = driver.version_command(operator, program);
    let (first, rest) = words.split_first().context("no command prints the version")?;
    let ran = run(first, rest, PATIENCE)?;
    Ok(ran.stdout + &ran.stderr)
}

/// Returns the first number with a dot, without a suffix such as the revision of a package.
fn version_number(printed: &str) -> Option<&str> {
    printed.split_whitespace().find_map(|word| {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let number = word[..end].trim_end_matches('.');
        number.contains('.').then_some(number)
    })
}

/// Waits until a server returns a valid answer to the Measurer in the lab's tester. The options `more` (names, shares
/// and prefix) define valid answers.
pub(crate) fn wait_until_answers(dns64bench: &str, server: &str, more: &[&str]) -> Result<()> {
    let measure = [
        "lab", "exec", "tester", "--", dns64bench, "measure", "--json", "--quiet", "--server",
        server,
    ];
    let few = ["--rate", "20", "--duration", "100ms", "--timeout", "500ms", "--liveness", "false"];
    let args = [&measure[..], &few, more].concat();
    let give_up = Instant::now() + PATIENCE;
    loop {
        let ran = run(dns64bench, &args, PATIENCE)?;
        let trial: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        if trial["valid"].as_u64() > Some(0) {
            return Ok(());
        }
        if Instant::now() > give_up {
            bail!("{server} does not answer: {}{}", ran.stdout, ran.stderr);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until a process listens on a UDP port, without sending any query. `within` is the beginning of a command that
/// runs a program in a host of the lab, or is empty for this host.
pub(crate) fn wait_until_listens(within: &[&str], port: u16) -> Result<()> {
    let words = [within, &["cat", "/proc/net/udp", "/proc/net/udp6"]].concat();
    let is_there = || Ok(listens(&output(words[0], &words[1..], PATIENCE)?, port));
    wait_until(&format!("no process listens on UDP port {port}"), PATIENCE, is_there)
}

/// True if `table`, a kernel table of UDP sockets, contains an unconnected socket that is bound to `port`.
fn listens(table: &str, port: u16) -> bool {
    let (local, anybody) = (format!(":{port:04X}"), ":0000");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|field| field.ends_with(&local))
            && fields.next().is_some_and(|field| field.ends_with(anybody))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slow_reference_dut_reports_its_reason() {
        let of = |drops: u64, refused: u64, wait: u64| {
            let counters =
                json!({ "socket_drops": drops, "refused": refused, "longest_wait_us": wait });
            held_up(&counters, Duration::from_millis(250)).unwrap()
        };
        assert_eq!(of(0, 0, 249_999), None);
        for (drops, refused, wait) in [(1, 0, 0), (0, 1, 0), (0, 0, 250_000)] {
            let why = of(drops, refused, wait).unwrap();
            assert!(why.contains(&format!("dropped {drops} ")), "{why}");
            assert!(why.contains(&format!("refused {refused} ")), "{why}");
            assert!(why.contains(&format!("waited {} ms", wait / 1_000)), "{why}");
        }
        assert!(held_up(&json!({ "socket_drops": 0, "refused": 0 }), Duration::ZERO).is_err());
    }

    #[test]
    fn version_number_has_no_suffix() {
        for (printed, expected) in [
            ("BIND 9.20.30-1~deb13u1-Debian (Stable Release) <id:>", Some("9.20.30")),
            ("Nov 22 14:25:00 PowerDNS Recursor 5.4.9 (C) PowerDNS.COM BV", Some("5.4.9")),
            ("Version 1.26.2\n\nConfigure line: --build=x86_64", Some("1.26.2")),
            ("unknown.", None),
        ] {
            assert_eq!(version_number(printed), expected, "{printed}");
        }
    }

    #[test]
    fn listening_sockets_are_detected() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let table = || output("cat", &["/proc/net/udp", "/proc/net/udp6"], PATIENCE).unwrap();
        assert!(listens(&table(), port));
        socket.connect("127.0.0.1:9").unwrap();
        assert!(!listens(&table(), port), "it is a connected client");
        drop(socket);
        assert!(!listens(&table(), port));
    }
}
