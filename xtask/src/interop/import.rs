//! `dns64d import`: sends the same queries to another server and to dns64d with the imported configuration. The
//! configuration of the other server is that of Debian, with DNS64 and a forwarder added. Debian does not package
//! CoreDNS, so CoreDNS has a Corefile written for this test.
//!
//! ```text
//! NSD, a zone of all kinds ◄─┬─ the other server ◄── its configuration ─── import ─► dns64d.toml, notes
//!                            └─ dns64d ◄────────────────────────────────────────────┘
//!                                    dig queries both: RCODEs and answers are equal, or the difference is
//!                                    explained by a note of the import or by a documented rule of dns64d
//! ```

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use hosts::servers::Auth;

use super::harness::{A, Bench, FIRST_NAME, LIMIT, wait_for};
use super::test::Test;
use crate::process::{self, Server, find, free_port, output};

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "import: BIND with Debian's configuration, compared with dns64d",
        &["named", "nsd", "dig"],
        bind,
    ),
    Test::new(
        "import: Unbound with Debian's configuration, compared with dns64d",
        &["unbound", "nsd", "dig"],
        unbound,
    ),
    Test::new(
        "import: PowerDNS Recursor with Debian's configuration, compared with dns64d",
        &["pdns_recursor", "nsd", "dig"],
        powerdns,
    ),
    Test::new(
        "import: Knot Resolver with Debian's configuration, compared with dns64d",
        &["kresd", "nsd", "dig"],
        knot_resolver,
    ),
    Test::new(
        "import: CoreDNS with a Corefile, compared with dns64d",
        &["coredns", "nsd", "dig"],
        coredns,
    ),
];

/// Number of names of each kind.
const OF_EACH: usize = 12;
/// Contents of the names, with `%` for the number of the name: records, or aliases of other kinds.
const KINDS: [(&str, &[&str]); 18] = [
    ("global", &["A 198.51.100.%"]),
    ("private", &["A 10.0.0.%"]),
    ("several", &["A 198.51.100.%", "A 203.0.113.%", "A 192.0.2.%"]),
    ("native", &["AAAA 2001:db8::%"]),
    ("both", &["A 198.51.100.%", "AAAA 2001:db8::%"]),
    ("mapped", &["A 198.51.100.%", "AAAA ::ffff:198.51.100.%"]),
    ("translated", &["A 198.51.100.%", "AAAA 64:ff9b::198.51.100.%"]),
    ("alias", &["CNAME global-%"]),
    ("alias6", &["CNAME native-%"]),
    ("aliases", &["CNAME alias-%"]),
    ("dangling", &["CNAME nobody-%"]),
    ("text", &["TXT \"%\""]),
    ("mail", &["MX 10 global-%"]),
    ("service", &["SRV 0 0 443 global-%"]),
    ("https", &["TYPE65 \\# 3 000100"]),
    ("nobody", &[]),
    ("parent", &[]),
    ("wild", &[]),
];

/// Number of names of each kind that are also queried with each of the [`FLAGS`].
const WITH_FLAGS: usize = 2;
const FLAGS: [&str; 3] = ["+dnssec", "+cdflag", "+dnssec +cdflag"];

/// Queries for names outside the zone: special-use names, reverse names, and `ipv4only.arpa`.
const OUTSIDE: &str = "\
localhost A
localhost AAAA
www.localhost AAAA
name.invalid AAAA
name.onion A
1.0.0.127.in-addr.arpa PTR
1.113.0.203.in-addr.arpa PTR
1.2.0.10.in-addr.arpa PTR
ipv4only.arpa A
ipv4only.arpa AAAA
1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa PTR
1.0.2.0.0.0.a.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.b.9.f.f.4.6.0.0.ip6.arpa PTR
";

/// Domains that dns64d answers locally with any imported configuration, as documented: `ipv4only.arpa` (RFC 8880), the
/// reverse tree of the prefix, and special-use names (RFC 6761, RFC 7686).
const DOCUMENTED: [&str; 6] = [
    "ipv4only.arpa",
    "b.9.f.f.4.6.0.0.ip6.arpa",
    "localhost",
    "invalid",
    "onion",
    // Some servers answer that there is no PTR record for 127.0.0.1 (RFC 6303 §3), and others query it upstream.
    "127.in-addr.arpa",
];

/// Returns a zone below the domain that campaigns use, and the queries: every name for A, AAAA and TXT, some
/// for AAAA with other flags, and [`OUTSIDE`].
fn zone_and_questions() -> (String, String) {
    let mut zone = String::from(
        "$ORIGIN dns64perf.test.\n$TTL 300\n@ SOA ns hostmaster 1 3600 900 604800 300\n@ NS ns\nns A 192.0.2.1\n\
         010-000-000-000 A 10.0.0.0\n*.wild A 198.51.100.200\n",
    );
    let mut questions = String::new();
    for n in 1..=OF_EACH {
        for (kind, records) in KINDS {
            let name = if kind == "wild" { format!("{n}.wild") } else { format!("{kind}-{n}") };
            for record in records {
                zone += &format!("{name} {}\n", record.replace('%', &n.to_string()));
            }
            if kind == "parent" {
                zone += &format!("child.{name} A 198.51.100.{n}\n");
            }
            for rtype in ["A", "AAAA", "TXT"] {
                questions += &format!("{name}.dns64perf.test {rtype}\n");
            }
            for flags in FLAGS.iter().filter(|_| n <= WITH_FLAGS) {
                questions += &format!("{name}.dns64perf.test AAAA {flags}\n");
            }
        }
    }
    (zone, questions + OUTSIDE)
}

/// RCODE of an answer, and its records without TTLs.
type Answer = (String, Vec<String>);

/// Returns dig's result for each query.
fn answers(port: u16, questions: &str) -> Result<Vec<Answer>> {
    let port = port.to_string();
    let options = ["+noall", "+comments", "+answer", "+time=3", "+tries=2"];
    let args = [&["@127.0.0.1", "-p", &port], &options[..], &["-f", questions]].concat();
    let printed = output("dig", &args, LIMIT)?;
    let answers = printed.split("->>HEADER<<-").skip(1).map(|reply| {
        let status = reply.split_once("status: ").map_or("", |(_, rest)| rest);
        // NSD refuses names outside its zone. dns64d returns that RCODE, and the other servers return SERVFAIL.
        let status = match status.split(',').next().unwrap_or_default() {
            "REFUSED" => "SERVFAIL".to_owned(),
            status => status.to_owned(),
        };
        let records =
            reply.lines().skip(1).filter(|line| !line.starts_with(';') && !line.is_empty());
        let mut records: Vec<String> = records
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let without_ttl = words.iter().enumerate().filter(|(place, _)| *place != 1);
                without_ttl.map(|(_, word)| word.to_ascii_lowercase()).collect::<Vec<_>>().join(" ")
            })
            .collect();
        records.sort();
        (status, records)
    });
    Ok(answers.collect())
}

/// A query to which the two servers gave different answers.
struct Difference<'a> {
    question: &'a str,
    theirs: Answer,
    ours: Answer,
}

/// Sends the queries to the other server and to dns64d, which listen on `ports`, and returns the differences.
fn differences<'a>(
    bench: &Bench,
    questions: &[&'a str],
    ports: [u16; 2],
) -> Result<Vec<Difference<'a>>> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    let list = bench.file("questions", &(questions.join("\n") + "\n"))?;
    let [theirs, ours] = ports.map(|port| answers(port, &list));
    let (theirs, ours) = (theirs?, ours?);
    ensure!(
        theirs.len() == questions.len() && ours.len() == questions.len(),
        "of {} questions {} and {} were answered",
        questions.len(),
        theirs.len(),
        ours.len()
    );
    let all = questions.iter().zip(theirs.into_iter().zip(ours));
    let differ = all.filter(|(_, (theirs, ours))| theirs != ours);
    Ok(differ.map(|(question, (theirs, ours))| Difference { question, theirs, ours }).collect())
}

/// Imports `file`, the configuration of the server on `port`, and sends the same queries to that server and to dns64d.
fn compare(bench: &Bench, file: &str, port: u16, questions: &str) -> Result<()> {
    let dns64d = bench.dns64d_program();
    let ran = process::run(&dns64d, &["import", file], LIMIT)?;
    ensure!(ran.status == Some(0) || ran.status == Some(1), "{}", ran.stderr);
    // The listen addresses are replaced, because two servers cannot listen on the same address.
    let (before, rest) = ran.stdout.split_once("listen = [").context("no listen")?;
    let (_, after) = rest.split_once("]\n").context("no end of listen")?;
    let ours = free_port()?;
    let config =
        bench.file("imported.toml", &format!("{before}listen = ['127.0.0.1:{ours}']\n{after}"))?;
    output(&dns64d, &["--config", &config, "check"], LIMIT)?;
    let _server = Server::start(&dns64d, &["--config", &config])?;
    wait_for(&format!("127.0.0.1:{ours}"), FIRST_NAME, A)?;

    let all: Vec<&str> = questions.lines().collect();
    let first = differences(bench, &all, [port, ours])?;
    // Occasionally, BIND gives an empty answer for an alias that is also queried by others at the same time. Therefore,
    // only differences that occur again count.
    let again: Vec<&str> = first.iter().map(|difference| difference.question).collect();
    let differ = differences(bench, &again, [port, ours])?;
    let notes: Vec<&str> = ran.stderr.lines().filter(|note| note.contains("may differ")).collect();
    let mut explained: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for Difference { question, theirs, ours } in &differ {
        let line = format!("{question}: {theirs:?}, dns64d {ours:?}");
        match explanation(question, &notes) {
            Some(reason) => explained.entry(reason).or_default().push(line),
            None => unexplained.push(line),
        }
    }
    println!(
        "        {} queries; {} answers differ for an explained reason, {} only at first, {} notes",
        all.len(),
        differ.len() - unexplained.len(),
        first.len() - differ.len(),
        ran.stderr.lines().count()
    );
    for (reason, lines) in explained {
        println!("        {reason}");
        lines.iter().for_each(|line| println!("            {line}"));
    }
    ensure!(
        unexplained.is_empty(),
        "{} answers differ:\n{}\nnotes:\n{}",
        unexplained.len(),
        unexplained.join("\n"),
        ran.stderr
    );
    Ok(())
}

/// Returns the note of the import, or the documented rule of dns64d, that explains a different answer.
fn explanation(question: &str, notes: &[&str]) -> Option<String> {
    let name = question.split(' ').next().unwrap_or_default();
    let labels: Vec<&str> = name.split('.').collect();
    // Candidates are the name, and its parent domains with at least three labels.
    let mut domains = labels.windows(3).enumerate().map(|(at, _)| labels[at..].join("."));
    let of_name = domains.find_map(|domain| notes.iter().find(|note| note.contains(&domain)));
    let of_cd = || notes.iter().find(|note| question.contains("+cdflag") && note.contains("CD=1"));
    let note = of_name.or_else(of_cd).map(|note| (*note).to_owned());
    let documented = || DOCUMENTED.into_iter().find(|domain| name.ends_with(*domain));
    note.or_else(|| documented().map(|domain| format!("{domain}: answered locally, see the book")))
}

/// Starts NSD with the zone. Returns the server, its port, and the queries.
fn upstream(bench: &Bench) -> Result<(Server, u16, String)> {
    let (zone, questions) = zone_and_questions();
    let zone = bench.file("kinds.zone", &zone)?;
    let (server, port) = bench.authoritative(Auth::Nsd, &zone, &[])?;
    Ok((server, port, questions))
}

fn debian(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("{file} of Debian's package"))
}

fn bind(bench: &Bench) -> Result<()> {
    let (_nsd, upstream, questions) = upstream(bench)?;
    let port = free_port()?;
    let ours = format!(
        "listen-on port {port} {{ 127.0.0.1; }};\n\tlisten-on-v6 {{ none; }};\n\tpid-file none;\n\tsession-keyfile none;\n\t\
         forward only;\n\tforwarders {{ 127.0.0.1 port {upstream}; }};\n\tallow-recursion {{ 127.0.0.0/8; }};\n\t\
         dns64 64:ff9b::/96 {{ clients {{ any; }}; }};\n"
    );
    // Our zone is not signed.
    let options = debian("/etc/bind/named.conf.options")?
        .replace("listen-on-v6 { any; };", &ours)
        .replace("dnssec-validation auto;", "dnssec-validation no;");
    ensure!(options.contains(&ours), "Debian's named.conf.options has changed: {options}");
    let options = bench.file("named.conf.options", &options)?;
    let file = bench.file(
        "named.conf",
        &format!(
            "include \"{options}\";\ninclude \"/etc/bind/named.conf.local\";\n\
             include \"/etc/bind/named.conf.default-zones\";\ncontrols {{ }};\n"
        ),
    )?;
    let _server = Server::start("named", &["-f", "-n", "1", "-c", &file])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, A)?;
    compare(bench, &file, port, &questions)
}

fn unbound(bench: &Bench) -> Result<()> {
    let (_nsd, upstream, questions) = upstream(bench)?;
    let (port, folder) = (free_port()?, bench.path(""));
    let text = debian("/etc/unbound/unbound.conf")?;
    let file = bench.file(
        "unbound.conf",
        &format!(
            "{text}\nserver:\n  interface: 127.0.0.1\n  port: {port}\n  module-config: \"dns64 iterator\"\n  \
             dns64-prefix: 64:ff9b::/96\n  local-zone: \"test.\" nodefault\n  do-not-query-localhost: no\n  \
             username: \"\"\n  chroot: \"\"\n  directory: \"{folder}\"\n  pidfile: \"{folder}/unbound.pid\"\n  \
             use-syslog: no\nremote-control:\n  control-enable: no\n\
             forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{upstream}\n"
        ),
    )?;
    let _server = Server::start("unbound", &["-d", "-c", &file])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, A)?;
    let local = "10.113.0.203.in-addr.arpa PTR\n1.0.0.10.in-addr.arpa PTR\nprinter.home.arpa AAAA\n\
         a.invalid A\na.onion AAAA\nlocalhost A\n";
    compare(bench, &file, port, &format!("{questions}{local}"))
}

fn powerdns(bench: &Bench) -> Result<()> {
    let (_nsd, upstream, questions) = upstream(bench)?;
    let (port, folder) = (free_port()?, bench.path(""));
    let text = debian("/etc/powerdns/recursor.conf")?;
    // The configured folder is removed, because the server is started with a different folder.
    let kept = text.lines().filter(|line| !line.starts_with("config-dir="));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    let file = bench.file(
        "recursor.conf",
        &format!(
            "{kept}local-port={port}\nallow-from=127.0.0.0/8\nsocket-dir={folder}\ndaemon=no\nwrite-pid=no\ndnssec=off\n\
             forward-zones-recurse=.=127.0.0.1:{upstream}\ndns64-prefix=64:ff9b::/96\ndont-query=\n"
        ),
    )?;
    let _server = Server::start("pdns_recursor", &[format!("--config-dir={folder}")])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, A)?;
    compare(bench, &file, port, &questions)
}

fn knot_resolver(bench: &Bench) -> Result<()> {
    let (_nsd, upstream, questions) = upstream(bench)?;
    let port = free_port()?;
    let text = debian("/etc/knot-resolver/kresd.conf")?;
    // Listen addresses are removed, because TLS needs keys, and because the addresses may be in use on this host.
    let kept = text.lines().filter(|line| !line.starts_with("net.listen"));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    let file = bench.file(
        "kresd.conf",
        &format!(
            "{kept}net.listen('127.0.0.1', {port}, {{ kind = 'dns' }})\ntrust_anchors.remove('.')\n\
             modules.load('dns64')\ndns64.config('64:ff9b::')\n\
             policy.add(policy.all(policy.FORWARD({{'127.0.0.1@{upstream}'}})))\n"
        ),
    )?;
    let cache = bench.path("kresd");
    fs::create_dir_all(&cache)?;
    let _server = Server::start("kresd", &["-n", "-q", "-c", &file, &cache])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, A)?;
    compare(bench, &file, port, &questions)
}

fn coredns(bench: &Bench) -> Result<()> {
    let (_nsd, upstream, questions) = upstream(bench)?;
    let port = free_port()?;
    let file = bench.file(
        "Corefile",
        &format!(
            ".:{port} {{\n  bind 127.0.0.1\n  errors\n  dns64 {{\n    prefix 64:ff9b::/96\n    allow_ipv4\n  }}\n  \
             cache 30\n  forward . 127.0.0.1:{upstream}\n}}\n"
        ),
    )?;
    let _server = Server::start(find("coredns").context("coredns")?, &["-conf", &file])?;
    wait_for(&format!("127.0.0.1:{port}"), FIRST_NAME, A)?;
    compare(bench, &file, port, &questions)
}
