//! Configuration, reload, metrics and signals, with the real program where needed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dns64::server::{Activated, RunningServer, bind};
use domain::base::iana::{Rcode, Rtype};
use net::socket::Endpoint;
use nix::sys::socket::{setsockopt, sockopt};

use crate::harness::*;

fn plain(q: &Asked) -> Vec<Act> {
    match q.qtype {
        Rtype::A => q.answer().a(&q.name, 300, "192.0.2.1").send(),
        _ => q.nodata(300, 300).send(),
    }
}

#[test]
fn metrics_have_the_counters_of_all_events() {
    let upstream = Upstream::new(plain);
    let server =
        server(&[upstream.address], &format!("{PREFIX}[metrics]\nlisten = '127.0.0.1:0'\n"));
    ask("www.test", Rtype::AAAA).of(&server);
    ask("www.test", Rtype::AAAA).over_tcp(&server);
    let metrics = server.running.metrics_address().unwrap();
    let text = get(metrics, "/metrics");
    assert!(text.starts_with("HTTP/1.1 200 OK"));
    for line in [
        "dns64d_queries_total{kind=\"udp_aaaa\"} 1",
        "dns64d_queries_total{kind=\"tcp_aaaa\"} 1",
        "dns64d_synthesized_total{reason=\"nodata\"} 2",
        "dns64d_cache_lookups_total{result=\"hit\"} 2",
        "dns64d_upstream_queries_total{transport=\"udp\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    assert!(get(metrics, "/").starts_with("HTTP/1.1 404"));
}

/// Returns the response of the metrics listener.
pub(crate) fn get(metrics: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(metrics).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn item_42_drops_of_the_kernel_are_counted() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let metrics = free_address();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[metrics]\nlisten = '{metrics}'\n")).unwrap();
    let daemon = Daemon::start(&config);
    daemon.signal("STOP");
    // More queries than the receive buffer of 16 MiB holds. The kernel counts 768 octets per query.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(daemon.address).unwrap();
    for _ in 0..60_000 {
        let _ = socket.send(b"no query");
    }
    daemon.signal("CONT");
    eventually("the drops are counted", || {
        let text = get(metrics, "/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("dns64d_queries_dropped_by_kernel_total "));
        line.is_some_and(|count| count.parse::<u64>().unwrap() > 0)
    });
}

/// A server stopped by a signal simulates a server without CPU time.
#[test]
fn item_42_queries_older_than_a_second_are_dropped() {
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    if setsockopt(&probe, sockopt::RcvBufForce, &(32 << 20)).is_err() {
        return testbed::skip("queries older than a second", "the kernel grants no large buffer");
    }
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let metrics = free_address();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[metrics]\nlisten = '{metrics}'\n")).unwrap();
    let daemon = Daemon::start(&config);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(daemon.address).unwrap();
    let query = ask("www.test", Rtype::A).bytes();
    eventually("old queries are dropped", || {
        // During the first stop, the queue stays full for longer than 100 ms (`BEHIND`). The worker
        // then begins to check the age of datagrams. This works only for datagrams that arrive from
        // then on, so the server is stopped a second time.
        for stop in [150, 150, 1] {
            daemon.signal("STOP");
            for _ in 0..40_000 {
                let _ = socket.send(&query);
            }
            std::thread::sleep(Duration::from_millis(stop));
            daemon.signal("CONT");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon.signal("STOP");
        std::thread::sleep(Duration::from_millis(1_100));
        daemon.signal("CONT");
        // A query can be lost in the full queue, or wait there for a second.
        eventually("young queries are answered", || {
            let got = ask("www.test", Rtype::A).try_of(daemon.address, Duration::from_secs(1));
            got.is_some_and(|got| got.answers().len() == 1)
        });
        let text = get(metrics, "/metrics");
        let late = |line: &str| {
            let count = line.strip_prefix("dns64d_queries_dropped_late_total ")?;
            count.parse::<u64>().ok()
        };
        text.lines().find_map(late).unwrap() > 0
    });
}

/// Sends `queries` queries to a stopped server, and continues the server until its first upstream
/// query, an AAAA query, arrives. Stops the server again, answers this AAAA query, and continues
/// the server. Returns the number of upstream queries for other names that precede the A query for
/// the first name.
///
/// Returns an error if the server had sent most of its upstream queries before it was stopped
/// again.
fn asked_before_the_first_answer_is_heard(queries: usize) -> Result<usize, String> {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _ = setsockopt(&upstream, sockopt::RcvBuf, &(4 << 20));
    let _ = setsockopt(&upstream, sockopt::RcvBufForce, &(4 << 20));
    upstream.set_read_timeout(Some(SOON)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), upstream.local_addr().unwrap(), "2001:db8:1::/96");
    let daemon = Daemon::start(&config);
    let client = Endpoint::connect(daemon.address).unwrap();
    daemon.signal("STOP");
    let query = |n: usize| ask(&format!("n{n:04}.test"), Rtype::AAAA).bytes();
    let all: Vec<Vec<u8>> = (0..queries).map(query).collect();
    for together in all.chunks(64) {
        client.send_segmented(&together.concat(), together[0].len() as u16).unwrap();
    }
    daemon.signal("CONT");
    let mut bytes = [0; 512];
    let mut next = || {
        let (len, from) = upstream.recv_from(&mut bytes).ok()?;
        Asked::new(&bytes[..len], false, from)
    };
    let first = next().expect("the first name's AAAA question");
    daemon.signal("STOP");
    assert_eq!((&*first.name, first.qtype), ("n0000.test", Rtype::AAAA));
    upstream.set_nonblocking(true).unwrap();
    let mut others = std::iter::from_fn(&mut next).count();
    // The server may have been stopped in the middle of a pass of its event loop. In that case it
    // sends several hundred further queries in this pass.
    if others > queries / 2 {
        return Err(format!("{others} of {queries} questions were asked before the answer"));
    }
    upstream.send_to(&first.nodata(60, 60).bytes(), first.from).unwrap();
    daemon.signal("CONT");
    upstream.set_nonblocking(false).unwrap();
    loop {
        let question = next().expect("the first name's A question");
        match (&*question.name, question.qtype) {
            ("n0000.test", Rtype::A) => return Ok(others),
            // A retransmission of the first AAAA query, whose timer expired while the server was
            // stopped.
            ("n0000.test", _) => {}
            _ => others += 1,
        }
    }
}

/// The kernel joins datagrams that a client sends together. If the server read all of them in one
/// pass of its event loop, the answer to the first query would wait until the last one has been
/// sent upstream.
#[test]
fn an_overloaded_worker_reads_answers_in_between() {
    let queries = 4_096;
    let asked = testbed::valid_trial(|| asked_before_the_first_answer_is_heard(queries));
    let Some(asked) = asked else { return };
    assert!(asked < queries - 1, "{asked} of {queries}");
}

#[test]
fn a_reload_replaces_all_settings_and_keeps_the_cache() {
    let (first, second) = (Upstream::new(plain), Upstream::new(plain));
    let server = server(&[first.address], PREFIX);
    ask("old.test", Rtype::AAAA).of(&server);
    let other = "[dns64]\nprefixes = [{ prefix = '2001:db8:99::/96' }]\n";
    server.running.reload(&settings(&[second.address], other)).unwrap();
    eventually("the new prefix", || {
        ask("old.test", Rtype::AAAA).of(&server).addresses() == [v6("2001:db8:99::c000:201")]
    });
    ask("new.test", Rtype::AAAA).of(&server);
    assert_eq!(first.asked().len(), 2);
    assert_eq!(second.asked(), ["new.test AAAA", "new.test A"]);
}

/// The real program.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    lines: Receiver<String>,
    /// All log lines so far.
    said: RefCell<Vec<String>>,
}

impl Daemon {
    pub(crate) fn start(config: &Path) -> Daemon {
        Daemon::run(
            Command::new(env!("CARGO_BIN_EXE_dns64d"))
                .args(["--config".as_ref(), config.as_os_str()]),
        )
    }

    /// Starts the program with an additional environment variable.
    pub(crate) fn start_with(config: &Path, variable: &str, value: &Path) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dns64d"));
        command.args(["--config".as_ref(), config.as_os_str()]).env(variable, value);
        Daemon::run(&mut command)
    }

    fn run(command: &mut Command) -> Daemon {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut daemon =
            Daemon { child, address: ([127, 0, 0, 1], 0).into(), lines, said: RefCell::default() };
        let line = daemon.line_with("serving ");
        daemon.address =
            line.rsplit(' ').next().unwrap().trim_end_matches("\u{1b}[0m").parse().unwrap();
        daemon
    }

    pub(crate) fn line_with(&self, text: &str) -> String {
        let give_up = Instant::now() + SOON;
        while let Ok(line) =
            self.lines.recv_timeout(give_up.saturating_duration_since(Instant::now()))
        {
            self.said.borrow_mut().push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
        panic!("no line with '{text}' among {:#?}", self.said);
    }

    /// Waits for the end of the program. Returns true if the exit status is 0.
    pub(crate) fn wait(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn file(folder: &Path, upstream: SocketAddr, prefix: &str) -> PathBuf {
    let path = folder.join("dns64d.toml");
    let (ip, port) = (upstream.ip(), upstream.port());
    let text = format!(
        "listen = ['127.0.0.1:0']\nthreads = 1\n[dns64]\nprefixes = [{{ prefix = '{prefix}' }}]\n\
         [dnssec]\nvalidate = false\n[[upstream]]\naddress = '{ip}'\nport = {port}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Starts a server with `stderr` as standard error, and queries it until it answers. The server
/// cannot report its port here, so it gets a port that was free a moment ago.
fn with_stderr(path: &Path, stderr: impl Fn() -> Stdio) -> Daemon {
    let text = std::fs::read_to_string(path).unwrap();
    for _ in 0..20 {
        let address = free_address();
        std::fs::write(path, text.replace("127.0.0.1:0", &address.to_string())).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dns64d"));
        command.args(["--config".as_ref(), path.as_os_str()]).stderr(stderr());
        let child = command.spawn().unwrap();
        let mut daemon = Daemon { child, address, lines: channel().1, said: RefCell::default() };
        let (mut is_there, mut has_ended) = (false, false);
        eventually("it answers, or has ended", || {
            let question = ask("www.test", Rtype::AAAA);
            is_there = question.try_of(address, Duration::from_millis(100)).is_some();
            has_ended = daemon.child.try_wait().unwrap().is_some();
            is_there || has_ended
        });
        // Another test may have taken the port.
        if !has_ended {
            return daemon;
        }
    }
    panic!("no port is free");
}

/// Asserts that SIGTERM ends the program in time, with exit status 0.
fn ends_well(mut daemon: Daemon) {
    daemon.signal("TERM");
    assert!(daemon.wait());
}

#[test]
fn a_full_log_loses_only_its_lines() {
    let upstream = Upstream::new(|q| if q.name == "www.test" { plain(q) } else { Vec::new() });
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let daemon = with_stderr(&path, full);
    // The server logs a reload, and an upstream that does not answer.
    daemon.signal("HUP");
    let silent = |i: u32| ask(&format!("{i}.test"), Rtype::AAAA);
    (0..9).for_each(|i| drop(silent(i).try_of(daemon.address, Duration::from_millis(1))));
    assert_eq!(silent(9).try_of(daemon.address, SOON).unwrap().rcode(), Rcode::SERVFAIL);
    assert!(ask("www.test", Rtype::AAAA).try_of(daemon.address, SOON).is_some());
    ends_well(daemon);
    // An error in the arguments does not cause a panic either.
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_dns64d")).arg("--nonsense").stderr(full()).status();
    assert_eq!(wrong.unwrap().code(), Some(2));
}

#[test]
fn a_stalled_log_reader_does_not_stop_the_server() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let text = std::fs::read_to_string(&path).unwrap() + "[query-log]\nto = 'stderr'\n";
    std::fs::write(&path, text).unwrap();
    let daemon = with_stderr(&path, Stdio::piped);
    // Causes more log lines than the buffer of a pipe holds.
    for i in 0..3_000 {
        let got = ask("www.test", Rtype::AAAA).try_of(daemon.address, SOON);
        assert!(got.is_some(), "query {i} has no reply");
    }
    daemon.signal("HUP");
    assert!(ask("www.test", Rtype::AAAA).try_of(daemon.address, SOON).is_some());
    ends_well(daemon);
}

#[test]
fn the_first_log_lines_describe_the_server() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let daemon = Daemon::start(&path);
    let said = daemon.said.borrow().join("\n");
    let (version, address) = (dns64::BUILD, upstream.address);
    for words in [
        format!("dns64d {version}, configuration {}", path.display()),
        "prefixes: 2001:db8:1::/96".into(),
        format!("upstreams of the configuration: {address}"),
        "serving 127.0.0.1:".into(),
    ] {
        assert!(said.contains(&words), "no {words} in {said}");
    }
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn the_log_names_configured_and_discovered_prefixes() {
    let upstream = Upstream::new(|q| q.nodata(60, 60).send());
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "discover");
    let text = std::fs::read_to_string(&path).unwrap();
    let off = text.replace("{ prefix = 'discover' }", "");
    let both = text.replace("[{ prefix", "[{ prefix = '2001:db8:1::/96' }, { prefix");
    for (text, words) in [
        (text, "prefixes: discovery in progress"),
        (both, "prefixes: 2001:db8:1::/96, discovery in progress"),
        (off, "prefixes: none, translation is off"),
    ] {
        std::fs::write(&path, text).unwrap();
        let daemon = Daemon::start(&path);
        let said = daemon.said.borrow().join("\n");
        assert!(said.contains(words), "no {words} in {said}");
    }
}

#[test]
fn check_reports_wrong_values_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    let upstream = "[[upstream]]\naddress = '127.0.0.1'\nport = 9\n";
    let said = |text: &str, command: &[&str]| {
        std::fs::write(&path, format!("{text}\n{upstream}")).unwrap();
        let output = run(&[&["--config", path.to_str().unwrap()], command].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (text, status, words) in [
        ("listen = ['127.0.0.1:5399', '127.0.0.1:5399']", 2, ":1: 127.0.0.1:5399 is listed twice"),
        ("listen = []", 0, "only sockets passed by systemd are served"),
        ("[dns64]\nprefixes = ['64:ff9b::/96']", 2, "{ prefix = \"64:ff9b::/96\" }"),
        ("[metrics]\nlisten = 'localhost'", 2, "write for example \"[::1]:9153\""),
        (
            "[[upstream]]\naddress = '192.0.2.1:5300'",
            2,
            "write address = \"192.0.2.1\" and port = 5300",
        ),
        ("[[upstream]]\naddress = 'dns.example'", 2, "write for example \"192.0.2.1\""),
        ("[forwarding]\ntimeout = 1", 2, "write for example \"2s\""),
        ("[forwarding]\ntimeout = 'soon'", 2, "write for example \"2s\""),
    ] {
        let (found, error) = said(text, &["check"]);
        assert_eq!(found, Some(status), "{text}: {error}");
        assert!(error.contains(words), "{text}: {error}");
    }
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (status, error) = said(&format!("listen = ['{}']", taken.local_addr().unwrap()), &[]);
    assert_eq!((status, error.matches("Address already in use").count()), (Some(4), 1), "{error}");
}

/// Runs `check` on a text. Returns exit status, standard output and standard error.
fn checked(path: &Path, text: &str, options: &[&str]) -> (Option<i32>, String, String) {
    std::fs::write(path, text).unwrap();
    let output = run(&[&["--config", path.to_str().unwrap(), "check"], options].concat());
    let words = |octets| String::from_utf8(octets).unwrap();
    (output.status.code(), words(output.stdout), words(output.stderr))
}

#[test]
fn check_compares_the_configuration_with_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    let other = folder.path().join("file");
    std::fs::write(&other, "").unwrap();
    let (here, file) = (folder.path().display(), other.display());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    // The UDP port with this number must be free, because `check` tries UDP first.
    let tcp = TcpListener::bind(free_address()).unwrap();
    let (udp, tcp) = ((udp.local_addr().unwrap(), udp), (tcp.local_addr().unwrap(), tcp));
    let taken = |transport: &str, port: u16| {
        format!(":2: {transport} port {port} of 127.0.0.1 is in use by another program")
    };
    for (text, status, words) in [
        (
            "listen = [\n'192.0.2.7:53']".to_owned(),
            0,
            ":2: this host does not have the address 192.0.2.7".to_owned(),
        ),
        ("[metrics]\nlisten = '192.0.2.7:9153'".into(), 0, ":2: this host does not have".into()),
        (format!("listen = [\n'{}']", udp.0), 0, taken("UDP", udp.0.port())),
        (format!("listen = [\n'{}']", tcp.0), 0, taken("TCP", tcp.0.port())),
        (format!("[metrics]\nlisten = '{}'", tcp.0), 0, taken("TCP", tcp.0.port())),
        (
            format!("[control]\nsocket = '{here}/none/c.sock'"),
            0,
            format!(":2: folder {here}/none does not exist"),
        ),
        (format!("[control]\nsocket = '{file}'"), 0, format!(":2: {file} is not a socket")),
        (
            format!("[query-log]\n\nto = '{here}/none/q.log'"),
            0,
            format!(":3: folder {here}/none does not exist"),
        ),
        (format!("[query-log]\nto = '{here}'"), 0, format!(":2: {here} is a folder")),
        (format!("[dnstap]\nsocket = '{file}'"), 0, format!(":2: {file} is not a socket")),
        (
            format!("[dnstap]\nsocket = '{here}/none/t.sock'"),
            0,
            format!(":2: folder {here}/none does not exist"),
        ),
        (
            "listen = [\n{ address = '127.0.0.1:5300', xdp = true }]".into(),
            0,
            ":2: no interface that is up has the address 127.0.0.1".into(),
        ),
        ("cpus = [0,\n4000]".into(), 2, ":2: CPU 4000 is not available".into()),
        ("\nuser = 'no-such-user'".into(), 2, ":2: user no-such-user does not exist".into()),
        (
            "[control]\nsocket = '/run/c.sock'\ngroup = 'no-such-group'".into(),
            2,
            ":3: group no-such-group does not exist".into(),
        ),
    ] {
        let upstream = "\n[[upstream]]\naddress = '127.0.0.1'\nport = 9\n";
        let (found, _, error) = checked(&path, &format!("{text}{upstream}"), &[]);
        assert_eq!(found, Some(status), "{text}: {error}");
        assert!(error.contains(&format!("dns64d.toml{words}")), "{text}: {error}");
    }
}

#[test]
fn check_recognizes_the_running_server() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let socket = format!("[control]\nsocket = '{}'\n", folder.path().join("c.sock").display());
    let text = std::fs::read_to_string(&path).unwrap() + &socket;
    std::fs::write(&path, &text).unwrap();
    let daemon = Daemon::start(&path);
    let text = text.replace("127.0.0.1:0", &daemon.address.to_string());
    let (status, _, error) = checked(&path, &text, &[]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    drop(daemon);
}

#[test]
fn check_warns_of_an_upstream_without_a_route() {
    if !testbed::is_root("check_warns_of_an_upstream_without_a_route") {
        return;
    }
    let namespace = testbed::Namespace::new("no-route");
    let (status, error) = namespace.run(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "192.0.2.53:53".parse().unwrap(), "2001:db8:1::/96");
        let text = std::fs::read_to_string(&path).unwrap();
        let (status, _, error) = checked(&path, &text, &[]);
        (status, error)
    });
    assert_eq!(status, Some(0), "{error}");
    let expected = "dns64d.toml:8: no route to the upstream 192.0.2.53:53: Network is unreachable";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn check_probe_queries_each_upstream() {
    let good = Upstream::new(plain);
    let refusing = Upstream::new(|q| q.rcode(Rcode::REFUSED).send());
    let silent = Upstream::new(|_| Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    let upstream = |upstream: &Upstream, name: &str| {
        let (ip, port) = (upstream.address.ip(), upstream.address.port());
        format!("[[upstream]]\naddress = '{ip}'\nport = {port}\nname = '{name}'\n")
    };
    let text = format!(
        "listen = ['127.0.0.1:0']\n{}[[forward]]\ndomain = 'corp.test'\nupstreams = ['main']\nvalidate = false\n",
        upstream(&good, "main")
    );
    let (status, out, error) = checked(&path, &text, &["--probe"]);
    assert_eq!((status, error.as_str()), (Some(0), ""));
    let line = format!("# upstream {} 'main': NOERROR after ", good.address);
    assert!(out.lines().any(|shown| shown.starts_with(&line) && shown.ends_with(" ms")), "{out}");
    let _: toml::Table = toml::from_str(&out).unwrap();
    assert_eq!(good.asked(), [" SOA"], "the root");

    let both = format!("{text}{}{}", upstream(&refusing, "no"), upstream(&silent, "off"));
    let (status, out, error) = checked(&path, &both, &["--probe"]);
    assert_eq!(status, Some(4), "{error}");
    assert!(out.contains("'main': NOERROR") && !error.contains("'main'"), "{out} {error}");
    for (upstream, result) in
        [(&refusing, "'no': REFUSED after "), (&silent, "'off': no answer within 2 s")]
    {
        let line = format!("upstream {} {result}", upstream.address);
        assert!(out.contains(&line) && error.contains(&line), "{line}: {out} {error}");
    }
}

#[test]
fn sighup_takes_a_good_file_and_refuses_a_bad_one() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let daemon = Daemon::start(&path);
    let addresses =
        || ask("www.test", Rtype::AAAA).try_of(daemon.address, SOON).unwrap().addresses();
    assert_eq!(addresses(), [v6("2001:db8:1::c000:201")]);

    file(folder.path(), upstream.address, "2001:db8:2::/72");
    daemon.signal("HUP");
    let line = daemon.line_with("the old configuration stays");
    assert!(line.contains("dns64d.toml"), "{line}");
    assert_eq!(addresses(), [v6("2001:db8:1::c000:201")]);

    file(folder.path(), upstream.address, "2001:db8:2::/96");
    daemon.signal("HUP");
    daemon.line_with("configuration reloaded; changed: dns64.prefixes");
    assert_eq!(addresses(), [v6("2001:db8:2::c000:201")]);

    let text = std::fs::read_to_string(&path).unwrap();
    let more = "[metrics]\nlisten = '127.0.0.1:0'\n[log]\nlevel = 'warn'\n[cache]\nmax-ttl = 9\n";
    std::fs::write(&path, format!("{}{more}", text.replace("threads = 1", "threads = 2"))).unwrap();
    daemon.signal("HUP");
    daemon.line_with("configuration reloaded; changed: cache.max-ttl");
    let line = daemon.line_with("need a restart");
    assert!(line.contains(": log.level, metrics.listen, threads"), "{line}");
}

#[test]
fn sigterm_answers_queries_in_flight_and_ends() {
    let upstream = hesitant();
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(&file(folder.path(), upstream.address, "2001:db8:1::/96"));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&ask("www.test", Rtype::AAAA).bytes(), daemon.address).unwrap();
    eventually("the query is in flight", || !upstream.asked().is_empty());
    daemon.signal("TERM");
    assert_eq!(receive(&socket, SOON).unwrap().addresses(), [v6("2001:db8:1::c000:201")]);
    assert!(daemon.child.wait().unwrap().success());
}

/// An upstream that answers everything after a short delay.
pub(crate) fn hesitant() -> Upstream {
    Upstream::new(|q| {
        let [Act::Send(bytes)] = &plain(q)[..] else { unreachable!("one act") };
        vec![Act::Wait(Duration::from_millis(300)), Act::Send(bytes.clone())]
    })
}

#[test]
fn a_stop_answers_tcp_clients_and_closes_idle_ones() {
    let upstream = hesitant();
    let server = server(&[upstream.address], PREFIX);
    let mut idle = TcpStream::connect(server.address).unwrap();
    let mut asking = TcpStream::connect(server.address).unwrap();
    write_tcp(&mut asking, &ask("www.test", Rtype::AAAA).bytes());
    eventually("the query is in flight", || !upstream.asked().is_empty());
    server.running.stop();
    assert_eq!(Got::new(&read_tcp(&mut asking).unwrap()).addresses(), [mapped("192.0.2.1")]);
    assert_eq!(idle.read(&mut [0; 1]).unwrap_or(0), 0);
}

#[test]
fn a_stop_leaves_unread_queries_in_passed_sockets() {
    let upstream = hesitant();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, next) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let activated = Activated { udp: vec![socket], tcp: Vec::new() };
    let running = bind(settings(&[upstream.address], PREFIX), activated).unwrap().start().unwrap();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stops_for_the_next_one(running, address, &upstream, &client, &next);
}

/// Stops the server at `address`, which has a [`hesitant`] upstream, while `client` sends queries.
/// Asserts that each query is either answered or still waits in `next`, a duplicate of the server's
/// socket.
pub(crate) fn stops_for_the_next_one(
    running: RunningServer,
    address: SocketAddr,
    upstream: &Upstream,
    client: &UdpSocket,
    next: &UdpSocket,
) {
    // A slow stop leaves more queries than the default buffer holds: a datagram that AF_XDP passes
    // to the stack takes 4 KiB.
    for socket in [client, next] {
        let _ = setsockopt(socket, sockopt::RcvBuf, &(1 << 20));
        let _ = setsockopt(socket, sockopt::RcvBufForce, &(16 << 20));
    }
    let mut sent = vec![ask("www.test", Rtype::AAAA).bytes()];
    client.send_to(&sent[0], address).unwrap();
    eventually("the query is in flight", || !upstream.asked().is_empty());
    let stopping = std::thread::spawn(|| running.stop());
    let mut send_late = || {
        let late = ask(&format!("late-{}.test", sent.len()), Rtype::AAAA).bytes();
        client.send_to(&late, address).unwrap();
        sent.push(late);
        sent.len()
    };
    while !stopping.is_finished() && send_late() < 1_000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    stopping.join().unwrap();
    // This query is sent after the stop, so it stays in the socket.
    send_late();
    let (answered, left) = (arrived(client), arrived(next));
    assert!(
        !answered.is_empty() && !left.is_empty(),
        "{} answered, {} left",
        answered.len(),
        left.len()
    );
    assert_eq!(answered.len() + left.len(), sent.len());
    assert!(answered.iter().all(|bytes| Got::new(bytes).addresses() == [mapped("192.0.2.1")]));
    assert!(left.iter().all(|bytes| sent.contains(bytes)));
}

/// The datagrams waiting in the socket.
fn arrived(socket: &std::net::UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 512];
    std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|len| bytes[..len].to_vec())).collect()
}

#[test]
fn r4_few_descriptors_still_serve_tcp_and_metrics() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let metrics = free_address();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[metrics]\nlisten = '{metrics}'\n")).unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 64 && exec \"$0\" --config \"$1\"", env!("CARGO_BIN_EXE_dns64d")])
        .arg(&config);
    let daemon = Daemon::run(&mut command);
    let said =
        daemon.said.borrow().iter().any(|line| line.contains("64 file descriptors are allowed"));
    assert!(said, "{:#?}", daemon.said);
    for n in 0..300 {
        let got = ask(&format!("n{n}.test"), Rtype::A).try_of(daemon.address, SOON);
        assert_eq!(got.expect("a reply").rcode(), Rcode::NOERROR);
    }
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write_tcp(&mut stream, &ask("www.test", Rtype::A).bytes());
    assert_eq!(Got::new(&read_tcp(&mut stream).expect("a reply over TCP")).rcode(), Rcode::NOERROR);
    assert!(get(metrics, "/metrics").contains("dns64d_tcp_accepts_failed_total 0"));
}

#[test]
fn r6_pipes_are_not_waited_for_and_long_lines_are_cut() {
    let upstream = Upstream::new(plain);
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let mut daemon = Daemon::start(&path);
    let reload = |daemon: &Daemon| {
        daemon.signal("HUP");
        daemon.line_with("the old configuration stays")
    };
    std::fs::write(&path, format!("nonsense = '{}'\n", "x".repeat(500_000))).unwrap();
    let line = reload(&daemon);
    assert!(line.len() < 3_000, "{} octets", line.len());
    std::fs::write(&path, "# nothing\n".repeat(200_000)).unwrap();
    assert!(reload(&daemon).contains("longer than"));
    std::fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(reload(&daemon).contains("not a regular file"));
    daemon.signal("TERM");
    eventually("it ends", || daemon.child.try_wait().unwrap().is_some());
}

#[test]
fn r5_check_warns_of_an_open_resolver() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "127.0.0.1:9".parse().unwrap(), "2001:db8:1::/96");
    let text = std::fs::read_to_string(&path).unwrap().replace("127.0.0.1:0", "0.0.0.0:0");
    let warned = |more: &str| {
        std::fs::write(&path, format!("{text}[cache]\nmebibytes = 16\n{more}")).unwrap();
        let output = run(&["check", "--config", path.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(warned(""), "");
    let open = warned("[access]\nallow = ['0.0.0.0/0']\nopen-resolver = true\n");
    assert!(
        open.contains("open resolver") && open.contains("client-rate") && !open.contains("amplif"),
        "{open}"
    );
    let worse = warned(
        "[access]\nallow = ['::/0']\nopen-resolver = true\n[limits]\namplification-rate = 0\n",
    );
    assert!(worse.contains("amplification-rate"), "{worse}");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for args in [&["--help"][..], &["--version"], &["explain", "--help"], &["completions", "bash"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_dns64d")).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

/// Arguments and files with an escape sequence, and with a character that reverses the text.
#[test]
fn messages_show_hostile_text_escaped() {
    const HOSTILE: &str = "a\u{1b}[31m\u{202e}..b";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let socket = path("control.sock");
    let upstream = Upstream::new(plain);
    let _server = server(&[upstream.address], &format!("{PREFIX}[control]\nsocket = '{socket}'\n"));
    std::fs::write(path("bad.toml"), format!("[dns64]\n{HOSTILE} = 1\n")).unwrap();
    std::fs::write(path("value.toml"), "[[forward]]\ndomain = \"a\\u001b[31m\\u202e..b\"\n")
        .unwrap();
    std::fs::write(path("unbound.conf"), format!("server:\n  {HOSTILE}: {HOSTILE}\n")).unwrap();
    for args in [
        &["explain", HOSTILE, "--socket", &socket][..],
        &["explain", "a.test", "--type", HOSTILE, "--socket", &socket],
        &["explain", "a.test", "--client", HOSTILE],
        &["status", "--socket", &path(HOSTILE)],
        &[HOSTILE],
        &["--listen", HOSTILE],
        &["check", "--config", &path(HOSTILE)],
        &["check", "--config", &path("bad.toml")],
        &["check", "--config", &path("value.toml")],
        &["import", &path("unbound.conf")],
        &["import", &path(HOSTILE)],
        &["import", &path("unbound.conf"), "--from", HOSTILE],
        &["completions", HOSTILE],
        &["manual", &path("bad.toml"), "--date", HOSTILE],
    ] {
        let output = run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.is_empty(), "{args:?}");
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{args:?}: {said:?}");
    }
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dns64d")).args(args).output().unwrap()
}

#[test]
fn check_prints_the_effective_settings_or_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "192.0.2.1:53".parse().unwrap(), "2001:db8:1::/96");
    let path = path.to_str().unwrap();
    let good = run(&["check", "--config", path]);
    let text = String::from_utf8(good.stdout).unwrap();
    assert!(good.status.success());
    assert!(text.contains("2001:db8:1::/96") && text.contains("in-flight = 65536"), "{text}");
    assert!(text.starts_with("# upstreams of the configuration: 192.0.2.1:53\n"), "{text}");
    let _: toml::Table = toml::from_str(&text).unwrap();
    let fixed = "# local zones: ipv4only.arpa, localhost, invalid, onion, alt, resolver.arpa\n";
    assert!(text.contains(fixed) && text.contains("local-zones = false"), "{text}");

    let upstream = "[[upstream]]\naddress = '192.0.2.1'\n";
    let forward = "[[forward]]\ndomain = 'onion'\n[[forward]]\ndomain = 'local'\n";
    std::fs::write(path, format!("local-zones = true\n{upstream}{forward}")).unwrap();
    let text = String::from_utf8(run(&["check", "--config", path]).stdout).unwrap();
    let comments: String = text.lines().take_while(|line| line.starts_with('#')).collect();
    let (_, zones) = comments.split_once("local zones:").unwrap();
    let listed: Vec<&str> = zones.split([' ', ',', '#']).collect();
    for (zone, is_local) in [("127.100.in-addr.arpa", true), ("onion", false), ("local", false)] {
        assert_eq!(listed.contains(&zone), is_local, "{zone}: {zones}");
    }
    let is_short = |line: &str| line.len() <= 100 || !line.starts_with('#');
    assert!(text.lines().all(is_short), "{text}");

    std::fs::write(path, "[dns64]\nprefixs = []\n").unwrap();
    let bad = run(&["check", "--config", path]);
    let text = String::from_utf8(bad.stderr).unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(text.contains(&format!("{path}:2: [dns64] has no key \"prefixs\"")), "{text}");

    let missing = run(&["--config", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("/no/such/file"));
}

#[test]
fn check_prints_the_upstreams_of_other_domains() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dns64d.toml");
    let upstreams = "[[upstream]]\naddress = '192.0.2.1'\n[[upstream]]\naddress = '192.0.2.44'\n";
    let corp = "[[forward]]\ndomain = 'corp'\nupstreams = ['192.0.2.44']\n";
    let root = "[[forward]]\ndomain = '.'\nupstreams = ['192.0.2.1']\n";
    for (forwards, used) in
        [(corp, "192.0.2.1:53, 192.0.2.44:53"), (format!("{corp}{root}").as_str(), "192.0.2.1:53")]
    {
        std::fs::write(&path, format!("{upstreams}{forwards}")).unwrap();
        let output = run(&["check", "--config", path.to_str().unwrap()]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(&format!("\n# default upstreams: {used}\n")), "{text}");
    }
}

#[test]
fn the_example_configuration_has_the_defaults() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/dns64d.example.toml");
    let text = std::fs::read_to_string(&example).unwrap();
    // The example has no upstream, and the test must not depend on /etc/resolv.conf.
    let settings = dns64::config::Settings::from_text(
        &format!("{text}[[upstream]]\naddress = '192.0.2.53'\n"),
        &example,
    )
    .unwrap();
    assert!(
        !text.contains("\n[[upstream]]"),
        "the example would query a server that does not exist"
    );
    // The example documents each key.
    let uncommented: String =
        text.lines().map(|l| l.strip_prefix("#| ").unwrap_or(l)).collect::<Vec<_>>().join("\n");
    let folder = tempfile::tempdir().unwrap();
    let anchors = folder.path().join("trust-anchors");
    let anchor =
        "example. DS 1 8 2 0000000000000000000000000000000000000000000000000000000000000000";
    std::fs::write(&anchors, anchor).unwrap();
    let uncommented =
        uncommented.replace("/etc/dns64d/trust-anchors", &anchors.display().to_string());
    let full = dns64::config::Settings::from_text(&uncommented, &example)
        .unwrap_or_else(|e| panic!("{e}"));
    let keys = |text: &str| {
        let mut keys = BTreeSet::new();
        collect_keys("", &toml::Value::Table(toml::from_str(text).unwrap()), &mut keys);
        keys
    };
    let (known, explained) = (keys(&full.to_toml()), keys(&uncommented));
    let missing: Vec<_> = known.difference(&explained).collect();
    assert!(missing.is_empty(), "not explained: {missing:?}");
    let mut defaults = dns64::config::Config::default();
    defaults.upstreams.clone_from(&settings.config.upstreams);
    defaults.threads = settings.config.threads;
    let defaults =
        dns64::config::Settings::from_text(&toml::to_string(&defaults).unwrap(), &example).unwrap();
    assert_eq!(
        settings.to_toml(),
        defaults.to_toml(),
        "keys that are not commented out have their defaults"
    );
}

fn collect_keys(path: &str, value: &toml::Value, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = format!("{path}.{key}");
                collect_keys(&path, value, keys);
                keys.insert(path);
            }
        }
        toml::Value::Array(values) => {
            values.iter().for_each(|value| collect_keys(path, value, keys));
        }
        _ => {}
    }
}

#[test]
fn a_server_without_any_address_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "192.0.2.1:53".parse().unwrap(), "2001:db8:1::/96");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("'127.0.0.1:0'", "")).unwrap();
    let output = run(&["--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("`listen` has no address"), "{stderr}");
}

#[test]
fn an_address_in_use_is_named() {
    let upstream = Upstream::new(|q| q.rcode(Rcode::REFUSED).send());
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), upstream.address, "2001:db8:1::/96");
    let text = std::fs::read_to_string(&path).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(&path, text.replace("127.0.0.1:0", &address)).unwrap();
    let output = run(&["--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&address) && stderr.contains("UDP"), "{stderr}");
}
