//! The control socket: explanations of one name of each kind, status, reload, flush, and malformed
//! requests.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dns64::control::{Explanation, Source, Status, TtlBounds, UpstreamState};
use domain::base::iana::Rtype;
use serde_json::{Value, json};

use crate::harness::*;
use crate::operations::{Daemon, get};

/// The answer of a server at its control socket.
fn request(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(2 * SOON)).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    stream.write_all(b"\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with('\n') && answer.lines().count() == 1, "{answer:?}");
    serde_json::from_str(&answer).unwrap()
}

pub(crate) fn explained(socket: &Path, client: &str, name: &str, rtype: Rtype) -> Explanation {
    let subject =
        json!({ "request": "explain", "name": name, "type": rtype.to_string(), "client": client });
    let answer = request(socket, &subject.to_string());
    serde_json::from_value(answer["explanation"].clone()).unwrap_or_else(|e| panic!("{answer} {e}"))
}

fn status(socket: &Path) -> Status {
    let answer = request(socket, "{\"request\":\"status\"}");
    serde_json::from_value(answer["status"].clone()).unwrap_or_else(|e| panic!("{answer} {e}"))
}

/// A folder, the path of a control socket in this folder, and the configuration lines for the
/// socket.
pub(crate) fn control() -> (tempfile::TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let lines = format!("[control]\nsocket = '{}'\n", socket.display());
    (folder, socket, lines)
}

/// Names of all kinds, distinguished by their first letters.
fn zone() -> Upstream {
    Upstream::new(|q| {
        let begins = |kind: &str| q.name.starts_with(kind);
        match q.qtype {
            Rtype::PTR => q.answer().ptr(&q.name, 60, "host.test").send(),
            _ if begins("nobody") => {
                q.rcode(domain::base::iana::Rcode::NXDOMAIN).soa("test", 60, 60).send()
            }
            _ if begins("broken") => q.rcode(domain::base::iana::Rcode::SERVFAIL).ede(22).send(),
            Rtype::AAAA if begins("native") => q.answer().aaaa(&q.name, 60, "2001:db8:a::1").send(),
            Rtype::AAAA if begins("mapped") => {
                q.answer().aaaa(&q.name, 60, "::ffff:192.0.2.1").send()
            }
            Rtype::A if !begins("native") => q.answer().a(&q.name, 300, "192.0.2.1").send(),
            _ => q.nodata(120, 60).send(),
        }
    })
}

/// The prefixes that an explanation reports as used.
fn used(explained: &Explanation) -> Vec<&str> {
    let used = explained.rules.prefixes.iter().filter(|rule| rule.used);
    used.map(|rule| rule.prefix.as_str()).collect()
}

/// Each line has the client, name and type of a query. The expected decision, group, domain of the
/// group, domain, used prefix and number of upstream queries follow.
const OF_EACH_KIND: [&str; 14] = [
    "127.0.0.1 four.test AAAA translated-no-data - - - 64 2",
    "127.0.0.1 native.test AAAA native - - - - 1",
    "127.0.0.1 mapped.test AAAA translated-excluded - - - 64 2",
    "127.0.0.1 nobody.test AAAA no-name - - - - 1",
    "127.0.0.1 broken.test AAAA upstream-error - - - - 2",
    "127.0.0.1 ipv4only.arpa AAAA local - - - 64 0",
    "127.0.0.1 POINTER PTR pointer - - - - 1",
    "127.0.0.1 four.test A passed-on - - - - 1",
    "127.0.0.1 four.off.test AAAA off - - off.test - 1",
    "127.0.0.1 four.own.test AAAA translated-no-data - - own.test 77 2",
    "127.0.0.2 four.test AAAA off 1 - - - 1",
    "127.0.0.2 four.own.test AAAA off 1 - own.test - 1",
    "127.0.0.3 four.test AAAA translated-no-data 2 - - 64 2",
    "127.0.0.3 four.own.test AAAA translated-no-data 2 four.own.test own.test 77 2",
];
/// The reverse name of 2001:db8:64::192.0.2.1.
const POINTER: &str = "1.0.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa";

#[test]
fn explain_matches_the_replies_to_clients() {
    let upstream = zone();
    let (_folder, socket, lines) = control();
    let server = server(
        &[upstream.address],
        &format!(
            "{PREFIX}{lines}\
             [[domain]]\ndomain = 'off.test'\noff = true\n\
             [[domain]]\ndomain = 'own.test'\nprefixes = [{{ prefix = '2001:db8:77::/96' }}]\n\
             [[group]]\nclients = ['127.0.0.2']\ndns64.prefixes = []\n\
             [[group]]\nclients = ['127.0.0.3']\n\
             [[group.domain]]\ndomain = 'four.own.test'\nignore-aaaa = true\n"
        ),
    );
    for row in OF_EACH_KIND {
        let words: Vec<&str> = row.split(' ').collect();
        let (client, name, rtype) = (words[0], words[1].replace("POINTER", POINTER), words[2]);
        let rtype: Rtype = rtype.parse().unwrap();
        let found = explained(&socket, client, &name, rtype);
        let rules = &found.rules;
        let or_none = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let said = [
            serde_json::to_value(found.decision).unwrap().as_str().unwrap().to_owned(),
            or_none(rules.group.map(|number| number.to_string()).as_deref()),
            or_none(rules.group_domain.as_deref()),
            or_none(rules.domain.as_deref()),
            or_none(used(&found).first().and_then(|prefix| prefix.split(':').nth(2))),
            found.questions.len().to_string(),
        ];
        assert_eq!(said, words[3..], "{row}: {found:#?}");
        assert!(!found.decided_by.is_empty() && rules.allowed);
        // The explanation matches the client's reply.
        let got = ask(&name, rtype).from(client).edns(1232).of(&server);
        assert_eq!(found.rcode, got.rcode().to_string(), "{row}");
        assert_eq!(found.extended_errors, got.edes(), "{row}");
        let addresses: Vec<Ipv6Addr> =
            found.answer.iter().filter_map(|record| record.data.parse().ok()).collect();
        assert_eq!(addresses, got.addresses(), "{row}");
        assert_eq!(found.answer.len(), got.answers().len(), "{row}");
    }
}

#[test]
fn explain_has_questions_sources_and_ttl_bounds() {
    let upstream = zone();
    let (_folder, socket, lines) = control();
    let _server = server(&[upstream.address], &format!("{PREFIX}{lines}"));
    for source in [Source::Upstream, Source::Cache] {
        let found = explained(&socket, "127.0.0.1", "Four.Test", Rtype::AAAA);
        assert_eq!((found.name.as_str(), found.rtype.as_str()), ("four.test.", "AAAA"));
        let [aaaa, a] = &found.questions[..] else { panic!("{found:#?}") };
        assert_eq!((aaaa.rtype.as_str(), aaaa.found.as_str()), ("AAAA", "no-data"));
        assert_eq!((a.rtype.as_str(), a.found.as_str()), ("A", "data"));
        assert_eq!(a.addresses, [std::net::IpAddr::from([192, 0, 2, 1])]);
        assert_eq!((aaaa.source, a.source), (source, source));
        assert!(a.rcode.as_deref() == Some("NOERROR") && a.ttl_s.is_some_and(|left| left <= 300));
        let Some(TtlBounds { a_s, denial_s, prefix_s }) = found.ttl else { panic!("{found:#?}") };
        assert!(a_s <= 300 && denial_s <= 60 && prefix_s.is_none(), "{:?}", found.ttl);
        assert_eq!(found.answer[0].ttl, denial_s.min(a_s));
        assert_eq!(found.rules.upstreams, [upstream.address.into()]);
    }
    // An explanation queries the upstream, but is not counted as a client query.
    assert_eq!(upstream.asked(), ["four.test AAAA", "four.test A"]);
    let queries = &status(&socket).counters["queries"];
    assert!(queries.values().all(|&count| count == 0), "{queries:?}");
}

#[test]
fn explain_reports_missing_prefixes_access_and_errors() {
    let upstream = Upstream::new(|q| match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => q.nodata(300, 300).send(),
    });
    let (_folder, socket, lines) = control();
    let configuration = format!(
        "[dns64]\nprefixes = [{{ prefix = 'discover' }}]\n{lines}[access]\nallow = ['127.0.0.0/8']\n"
    );
    let _server = server(&[upstream.address], &configuration);
    for name in ["four.test", "ipv4only.arpa"] {
        let found = explained(&socket, "127.0.0.1", name, Rtype::AAAA);
        let decision = serde_json::to_value(found.decision).unwrap();
        assert_eq!((decision, found.rcode.as_str()), (json!("no-prefix-known"), "SERVFAIL"));
        assert_eq!(found.extended_errors, [14]);
    }
    assert!(status(&socket).awaits_prefix);
    let found = explained(&socket, "192.0.2.9", "four.test", Rtype::AAAA);
    assert_eq!((found.rules.allowed, found.rcode.as_str()), (false, "REFUSED"));
    assert_eq!(serde_json::to_value(found.decision).unwrap(), "refused");
    for (subject, words) in [
        (json!({ "request": "explain", "name": "a..b" }), "the name a..b"),
        (json!({ "request": "explain", "name": "a", "type": "AAAAA" }), "unknown type AAAAA"),
        (json!({ "request": "explain", "name": "a", "type": "AXFR" }), "answered with NOTIMP"),
        (json!({ "request": "stop" }), "invalid request"),
        (json!([]), "invalid request"),
    ] {
        let answer = request(&socket, &subject.to_string());
        assert!(answer["error"].as_str().is_some_and(|why| why.contains(words)), "{answer}");
    }
}

#[test]
fn status_shows_the_state_of_the_server() {
    let (upstream, second) = (zone(), zone());
    let (_folder, socket, lines) = control();
    let prefixes = "[dns64]\nprefixes = [{ prefix = '2001:db8:1::/96', name = 'north', draining = true }, { prefix = '2001:db8:2::/96' }]\n";
    let server = server(&[upstream.address], &format!("{prefixes}{lines}"));
    ask("four.test", Rtype::AAAA).of(&server);
    let first = status(&socket);
    assert_eq!((first.pid, first.addresses.clone()), (std::process::id(), vec![server.address]));
    assert_eq!((first.configuration.file.as_str(), first.configuration.reloads), ("test.toml", 0));
    let shown: Vec<_> = first
        .prefixes
        .iter()
        .map(|one| (one.prefix.as_str(), one.name.as_deref(), one.draining, one.health.as_deref()))
        .collect();
    let expected =
        [("2001:db8:1::/96", Some("north"), true, None), ("2001:db8:2::/96", None, false, None)];
    assert_eq!(shown, expected);
    assert!(!first.awaits_prefix && first.prefixes.iter().all(|one| one.announced_by.is_empty()));
    assert_eq!(first.upstreams[0].address, upstream.address.into());
    assert_eq!((first.upstreams[0].queries, first.upstreams[0].answers), (2, 2));
    assert_eq!(first.counters["queries"]["udp_aaaa"], 1);
    assert_eq!(first.counters["synthesized"]["nodata"], 1);
    assert_eq!(first.cache.entries, 2);
    server.running.reload(&settings(&[second.address], PREFIX)).unwrap();
    eventually("the other prefix", || {
        let after = status(&socket);
        let prefixes: Vec<_> = after.prefixes.iter().map(|one| one.prefix.as_str()).collect();
        prefixes == ["2001:db8:64::/96"]
            && after.configuration.reloads == 1
            && after.upstreams[0].address == second.address.into()
    });
}

#[test]
fn status_shows_announcers_and_expiry_of_prefixes() {
    let upstream = Upstream::new(|q| match (q.name.as_str(), q.qtype) {
        ("ipv4only.arpa", Rtype::AAAA) => {
            q.answer().aaaa(&q.name, 600, "2001:db8:1::c000:aa").send()
        }
        (_, Rtype::A) => q.answer().a(&q.name, 300, "8.8.8.8").send(),
        _ => q.nodata(300, 300).send(),
    });
    let (_folder, socket, lines) = control();
    let configuration = format!("[dns64]\nprefixes = [{{ prefix = 'discover' }}]\n{lines}");
    let _server = server(&[upstream.address], &configuration);
    eventually("the prefix is announced", || !status(&socket).prefixes.is_empty());
    let shown = status(&socket);
    let [prefix] = &shown.prefixes[..] else { panic!("{shown:#?}") };
    assert_eq!(
        (prefix.prefix.as_str(), prefix.announced_by.concat()),
        ("2001:db8:1::/96", "upstreams".into())
    );
    assert!(prefix.expires_in_s.is_some_and(|left| left <= 600) && !shown.awaits_prefix);
    eventually("it is used", || {
        let found = explained(&socket, "127.0.0.1", "four.test", Rtype::AAAA);
        let left = found.ttl.and_then(|bounds| bounds.prefix_s);
        used(&found) == ["2001:db8:1::/96"] && left.is_some_and(|left| left <= 600)
    });
}

#[test]
fn idle_and_oversized_requests_block_no_other_client() {
    let upstream = zone();
    let (_folder, socket, lines) = control();
    let server = server(&[upstream.address], &format!("{PREFIX}{lines}"));
    let mut long = UnixStream::connect(&socket).unwrap();
    let _ = long.write_all(&[b'x'; 100_000]);
    let mut answer = Vec::new();
    let _ = long.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(ask("four.test", Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
}

#[test]
fn item_42_idle_connections_give_way_to_requests() {
    let upstream = zone();
    let (_folder, socket, lines) = control();
    let metrics = "[metrics]\nlisten = '127.0.0.1:0'\n";
    let server = server(&[upstream.address], &format!("{PREFIX}{lines}{metrics}"));
    let metrics = server.running.metrics_address().unwrap();
    // Opens more connections than the limit permits, several times.
    for _ in 0..3 {
        let _silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        assert!(!status(&socket).version.is_empty());
        let _idle: Vec<_> = (0..40).map(|_| TcpStream::connect(metrics).unwrap()).collect();
        assert!(get(metrics, "/metrics").starts_with("HTTP/1.1 200 OK"));
    }
    // An idle connection is closed even if there are no new connections.
    let mut silent = UnixStream::connect(&socket).unwrap();
    silent.set_read_timeout(Some(SOON)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

/// Runs the program. Returns exit status, standard output and standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_dns64d")).args(args).output().unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A configuration file with a control socket.
struct Configured {
    folder: tempfile::TempDir,
    upstream: std::net::SocketAddr,
}

impl Configured {
    fn new(upstream: &Upstream) -> Configured {
        Configured { folder: tempfile::tempdir().unwrap(), upstream: upstream.address }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("dns64d.toml")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// Writes the configuration file. `lines` come before the first table, and `tables` after it.
    fn write(&self, lines: &str, tables: &str) {
        let (ip, port) = (self.upstream.ip(), self.upstream.port());
        let socket = self.socket();
        let text = format!(
            "listen = ['127.0.0.1:0']\nthreads = 1\n{lines}\n[control]\nsocket = '{}'\n{tables}\n\
             [[upstream]]\naddress = '{ip}'\nport = {port}\n",
            socket.display()
        );
        std::fs::write(self.path(), text).unwrap();
    }
}

#[test]
fn reload_exit_status_depends_on_the_outcome() {
    let upstream = zone();
    let file = Configured::new(&upstream);
    file.write("", PREFIX);
    let daemon = Daemon::start(&file.path());
    let (path, socket) = (file.path(), file.socket());
    let path = path.to_str().unwrap();
    let reload = || run(&["--config", path, "reload"]);
    let addresses =
        || ask("four.test", Rtype::AAAA).try_of(daemon.address, SOON).unwrap().addresses();
    assert_eq!(reload(), (Some(0), "Changed keys: none\n".into(), String::new()));

    let other = "[dns64]\nprefixes = [{ prefix = '2001:db8:2::/96' }]";
    file.write("", other);
    assert_eq!(reload(), (Some(0), "Changed keys: dns64.prefixes\n".into(), String::new()));
    assert_eq!(addresses(), ["2001:db8:2::c000:201".parse::<Ipv6Addr>().unwrap()]);

    let third = other.replace("db8:2", "db8:3");
    file.write("user = 'nobody'", &format!("{third}\n[metrics]\nlisten = '127.0.0.1:0'"));
    let expected =
        "Changed keys: dns64.prefixes\nWaiting for a restart: metrics.listen, user\n".to_owned();
    assert_eq!(reload(), (Some(1), expected, String::new()));
    assert_eq!(addresses(), ["2001:db8:3::c000:201".parse::<Ipv6Addr>().unwrap()]);
    daemon.line_with("need a restart: metrics.listen, user");

    // The server rejects the value, because it is outside the permitted range. The message names
    // the file and the line.
    file.write("", &format!("{other}\n[cache]\nfailure-ttl = 0"));
    let (status, out, error) = reload();
    assert_eq!((status, &*out), (Some(2), ""), "{error}");
    assert!(error.contains("the old configuration stays") && error.contains("dns64d.toml:"));
    assert!(error.contains("failure-ttl must be 1 to 300"), "{error}");
    assert_eq!(addresses(), ["2001:db8:3::c000:201".parse::<Ipv6Addr>().unwrap()]);
    let line = daemon.line_with("reload rejected");
    assert!(line.contains("failure-ttl must be 1 to 300"), "{line}");
    // The parser rejects the unknown key, both in the server and in the command `reload`.
    file.write("nonsense = 1", "");
    let (status, _, error) = reload();
    assert!(status == Some(2) && error.contains("nonsense"), "{error}");
    let (status, _, error) = run(&["reload", "--socket", socket.to_str().unwrap()]);
    assert!(status == Some(2) && error.contains("nonsense") && error.contains("stays"), "{error}");

    // The file now has a different `listen` address. The server still uses the first address.
    let (ip, port) = (daemon.address.ip(), daemon.address.port());
    file.write("", &format!("{PREFIX}\n[[upstream]]\naddress = '{ip}'\nport = {port}\n"));
    let text = std::fs::read_to_string(file.path()).unwrap();
    std::fs::write(file.path(), text.replace("127.0.0.1:0", "127.0.0.1:9")).unwrap();
    let (status, _, error) = run(&["reload", "--socket", socket.to_str().unwrap()]);
    assert!(status == Some(2) && error.contains("is dns64d itself"), "{error}");

    file.write("", PREFIX);
    let (status, json, _) = run(&["--config", path, "reload", "--json"]);
    let report: dns64::control::ReloadReport = serde_json::from_str(&json).unwrap();
    assert_eq!((status, report.outcome), (Some(0), dns64::control::ReloadOutcome::InEffect));
    assert_eq!((report.changed, report.file), (vec!["dns64.prefixes".to_owned()], path.into()));
    drop(daemon);
    let (status, _, error) = reload();
    assert!(status == Some(4) && error.contains("no dns64d"), "{error}");
}

#[test]
fn without_a_socket_it_is_in_the_units_runtime_folder() {
    let upstream = zone();
    let file = Configured::new(&upstream);
    file.write("", PREFIX);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let (before, rest) = text.split_once("[control]").unwrap();
    let (_, after) = rest.split_once("control.sock'\n").unwrap();
    std::fs::write(file.path(), format!("{before}{after}")).unwrap();
    let daemon = Daemon::start_with(&file.path(), "RUNTIME_DIRECTORY", file.folder.path());
    let socket = file.socket();
    assert_eq!(run(&["reload", "--socket", socket.to_str().unwrap()]).0, Some(0));
    drop(daemon);
}

#[test]
fn an_upstream_marked_down_is_in_log_and_status() {
    let answers = Arc::new(AtomicBool::new(false));
    let is_on = Arc::clone(&answers);
    let upstream = Upstream::new(move |q| match is_on.load(Ordering::Relaxed) {
        true => q.answer().a(&q.name, 60, "192.0.2.1").send(),
        false => Vec::new(),
    });
    let file = Configured::new(&upstream);
    file.write("", PREFIX);
    let text = std::fs::read_to_string(file.path()).unwrap() + "name = 'main'\n";
    std::fs::write(file.path(), text).unwrap();
    let daemon = Daemon::start(&file.path());
    let (mut number, moment) = (0, Duration::from_millis(50));
    let mut query = || {
        number += 1;
        ask(&format!("n{number}.test"), Rtype::A).try_of(daemon.address, moment)
    };
    let shown = || status(&file.socket()).upstreams.remove(0);
    assert_eq!((shown().name.as_deref(), shown().state), (Some("main"), UpstreamState::Up));
    eventually("it is marked down", || {
        query();
        shown().state == UpstreamState::MarkedDown
    });
    let down = shown();
    assert_eq!((down.down_reason.as_deref(), down.down), (Some("timeout"), 1));
    assert!(down.down_for_s.is_some() && down.timeouts >= 3, "{down:?}");
    daemon.line_with(&format!(
        "upstream {} marked down (timeout); it will be probed",
        upstream.address
    ));
    let (_, words, _) = run(&["status", "--socket", file.socket().to_str().unwrap()]);
    assert!(words.contains(&format!("{} 'main': marked down for ", upstream.address)), "{words}");
    answers.store(true, Ordering::Relaxed);
    eventually("it is marked up", || {
        query();
        shown().state == UpstreamState::Up
    });
    assert_eq!(shown().down_reason, None);
    daemon.line_with(&format!("upstream {} marked up again", upstream.address));
}

#[test]
fn flush_removes_names_from_the_cache_of_all_workers() {
    let upstream = zone();
    let (_folder, socket, lines) = control();
    let configuration = format!("threads = 2\n{PREFIX}{lines}");
    let server = server(&[upstream.address], &configuration);
    let socket = socket.to_str().unwrap();
    let asked = |name: &str| {
        let before = upstream.asked().len();
        assert_eq!(ask(name, Rtype::AAAA).of(&server).addresses(), [mapped("192.0.2.1")]);
        upstream.asked().len() - before
    };
    let names = ["four.test", "www.four.test", "other.test"];
    let all = || names.map(asked);
    assert_eq!((all(), all()), ([2, 2, 2], [0, 0, 0]));
    let flush = |args: &[&str]| run(&[&["flush", "--socket", socket], args].concat());
    let said =
        |name: &str, n: u32| format!("{name} and names below it: {n} cached answers removed\n");
    assert_eq!(flush(&["Four.Test"]), (Some(0), said("four.test.", 4), String::new()));
    assert_eq!(all(), [2, 2, 0]);
    assert_eq!(flush(&["www.four.test"]).1, said("www.four.test.", 2));
    assert_eq!(all(), [0, 2, 0]);
    assert_eq!(flush(&["none.test"]), (Some(0), said("none.test.", 0), String::new()));
    assert_eq!(flush(&["--all"]).1, "The cache: 6 cached answers removed\n");
    assert_eq!(all(), [2, 2, 2]);
    let (status, json, _) = flush(&[".", "--json"]);
    let report: dns64::control::FlushReport = serde_json::from_str(&json).unwrap();
    assert_eq!((status, report.removed, report.name.as_deref()), (Some(0), 6, Some(".")));
    for args in [&["a..b"][..], &[], &["a.test", "--all"]] {
        let (status, out, error) = flush(args);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}: {error}");
    }
    // This server has no configuration file.
    let (status, _, error) = run(&["reload", "--socket", socket]);
    assert!(status == Some(2) && error.contains("no configuration file"), "{error}");
    drop(server);
    assert_eq!(flush(&["--all"]).0, Some(4));
}

#[test]
fn commands_reach_the_program_and_its_socket_is_removed() {
    let upstream = zone();
    let (folder, socket, lines) = control();
    let log = folder.path().join("queries.log");
    let config = folder.path().join("dns64d.toml");
    let (ip, port) = (upstream.address.ip(), upstream.address.port());
    let text = format!(
        "listen = ['127.0.0.1:0']\nthreads = 1\n{PREFIX}{lines}[query-log]\nto = '{}'\n\
         [[upstream]]\naddress = '{ip}'\nport = {port}\n",
        log.display()
    );
    std::fs::write(&config, text).unwrap();
    // A killed server leaves its socket behind.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut daemon = Daemon::start(&config);
    let (config_path, socket_path) = (config.to_str().unwrap(), socket.to_str().unwrap());
    let (code, words, _) =
        run(&["--config", config_path, "explain", "four.test", "--client", "127.0.0.1"]);
    for part in
        ["four.test. AAAA for 127.0.0.1: NOERROR", "RFC 6147 §5.1.6", "2001:db8:64::c000:201"]
    {
        assert!(code == Some(0) && words.contains(part), "{part} is not in {words}");
    }
    let (code, json, _) =
        run(&["explain", "four.test", "--type", "A", "--socket", socket_path, "--json"]);
    let found: Explanation = serde_json::from_str(&json).unwrap();
    assert_eq!((code, found.rtype.as_str(), found.client), (Some(0), "A", "::1".parse().unwrap()));
    let (code, words, _) = run(&["status", "--config", config_path]);
    assert!(code == Some(0) && words.contains("2001:db8:64::/96"), "{words}");
    let (code, json, _) = run(&["status", "--socket", socket_path, "--json"]);
    let shown: Status = serde_json::from_str(&json).unwrap();
    assert_eq!((code, shown.configuration.file.as_str()), (Some(0), config_path));
    assert_eq!(run(&["explain", "a..b", "--socket", socket_path]).0, Some(2));

    // After log rotation, output continues in a new file, although the program is confined.
    let lines = |file: &Path| std::fs::read_to_string(file).map_or(0, |text| text.lines().count());
    let query = || ask("four.test", Rtype::AAAA).try_of(daemon.address, SOON).unwrap();
    assert_eq!(query().addresses(), [mapped("192.0.2.1")]);
    eventually("the line is written", || lines(&log) == 1);
    let old = folder.path().join("queries.log.1");
    std::fs::rename(&log, &old).unwrap();
    daemon.signal("HUP");
    daemon.line_with("configuration reloaded");
    eventually("a new file", || log.exists());
    query();
    eventually("the next line is written", || lines(&log) == 1);
    assert_eq!(lines(&old), 1);

    daemon.signal("TERM");
    assert!(daemon.wait());
    assert!(!socket.exists(), "its file is removed");
    let (code, _, error) = run(&["status", "--socket", socket_path]);
    assert!(code == Some(4) && error.contains(socket_path), "{error}");
    assert_eq!(error.matches("No such file").count(), 1, "printed once: {error}");
}
