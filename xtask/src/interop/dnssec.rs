//! DNSSEC validation by dns64d, compared with delv and Unbound. Zones that `dnssec-signzone` has signed are damaged in
//! one way after another. Where delv and Unbound agree, dns64d must agree with them.
//!
//! ```text
//! dnssec-signzone ─► zone files ─► damage ─► named ◄─┬─ dns64d
//!                                                    ├─ Unbound     the same queries: secure, insecure or bogus
//!                                                    └─ delv
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::harness::{A, Bench, LIMIT, wait_for};
use super::test::Test;
use crate::process::{self, Server, free_port, output};

pub(super) static TESTS: &[Test] = &[
    Test::new(
        "dnssec: damaged zones with NSEC records, compared with delv and Unbound",
        NEEDS,
        |bench| compare(bench, &[]),
    ),
    Test::new(
        "dnssec: damaged zones with NSEC3 records, compared with delv and Unbound",
        NEEDS,
        |bench| compare(bench, &["-3", "AABB", "-H", "1"]),
    ),
    Test::new(
        "dnssec: damaged zones with NSEC3 and opt-out, compared with delv and Unbound",
        NEEDS,
        |bench| compare(bench, &["-3", "-", "-H", "0", "-A"]),
    ),
];

const NEEDS: &[&str] = &["dnssec-signzone", "dnssec-keygen", "named", "delv", "unbound", "dig"];

/// A signed zone with a signed child and an unsigned child.
const PARENT: &str = "\
$ORIGIN signed.test.
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.1
both A 192.0.2.2
both AAAA 2001:db8::2
*.w A 192.0.2.3
a.ent A 192.0.2.4
alias CNAME www
alias-wild CNAME x.w
alias-child CNAME www.child
alias-plain CNAME www.plain
alias-none CNAME missing
dname DNAME child
mail MX 10 www
child NS ns.child
ns.child A 127.0.0.1
plain NS ns.plain
ns.plain A 127.0.0.1
";
const CHILD: &str = "\
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 60
@ NS ns
ns A 127.0.0.1
www A 192.0.2.5
";

const QUERIES: &[&str] = &[
    "www.signed.test A",
    "www.signed.test AAAA",
    "www.signed.test DS",
    "both.signed.test AAAA",
    "x.w.signed.test A",
    "x.y.w.signed.test A",
    "x.w.signed.test MX",
    "ent.signed.test A",
    "missing.signed.test A",
    "a.missing.signed.test A",
    "alias.signed.test A",
    "alias.signed.test MX",
    "alias-wild.signed.test A",
    "alias-child.signed.test A",
    "alias-plain.signed.test A",
    "alias-none.signed.test A",
    "www.dname.signed.test A",
    "mail.signed.test MX",
    "signed.test NS",
    "signed.test DNSKEY",
    "child.signed.test DS",
    "plain.signed.test DS",
    "www.child.signed.test A",
    "www.child.signed.test AAAA",
    "missing.child.signed.test A",
    "child.signed.test SOA",
    "www.plain.signed.test A",
    "www.plain.signed.test AAAA",
    "missing.plain.signed.test A",
];

/// Lines of the two signed zone files, in full form: owner, TTL, class, type, data.
#[derive(Clone, Default)]
struct Zones {
    parent: Vec<String>,
    child: Vec<String>,
}

/// A damage of the zones. The names of owners are relative to `signed.test`.
type Damage = fn(&mut Zones);

const DAMAGES: &[(&str, Damage)] = &[
    ("nothing", |_| {}),
    ("www without signature", |zones| unsign(&mut zones.parent, "www.", "A")),
    ("www with another address", |zones| {
        edit(&mut zones.parent, "www.", "A", "192.0.2.1", "192.0.2.9");
    }),
    ("www with one more address", |zones| {
        zones.parent.push("www.signed.test. 300 IN A 192.0.2.77".into());
    }),
    ("one of two keys missing", |zones| remove(&mut zones.parent, "", "DNSKEY", "256 3")),
    ("no keys", |zones| remove(&mut zones.parent, "", "DNSKEY", "")),
    ("keys without signature", |zones| unsign(&mut zones.parent, "", "DNSKEY")),
    ("SOA without signature", |zones| unsign(&mut zones.parent, "", "SOA")),
    ("SOA with another serial", |zones| edit(&mut zones.parent, "", "SOA", " 604800 ", " 604801 ")),
    ("wildcard without signature", |zones| unsign(&mut zones.parent, "*.w.", "A")),
    ("alias without signature", |zones| unsign(&mut zones.parent, "alias.", "CNAME")),
    ("alias with another target", |zones| {
        edit(&mut zones.parent, "alias.", "CNAME", "www.", "both.");
    }),
    ("DNAME without signature", |zones| unsign(&mut zones.parent, "dname.", "DNAME")),
    ("denials without signatures", |zones| {
        zones
            .parent
            .retain(|line| !(is(line, "RRSIG") && (covers(line, "NSEC") || covers(line, "NSEC3"))));
    }),
    ("denials with wrong types", |zones| {
        for line in &mut zones.parent {
            if is(line, "NSEC") || is(line, "NSEC3") {
                *line = line.replacen(" RRSIG", " TXT RRSIG", 1);
            }
        }
    }),
    ("no DS records", |zones| remove(&mut zones.parent, "child.", "DS", "")),
    ("DS without signature", |zones| unsign(&mut zones.parent, "child.", "DS")),
    ("DS with another digest", |zones| {
        for line in zones.parent.iter_mut().filter(|line| is(line, "DS")) {
            let last = line.pop();
            line.push(if last == Some('0') { '1' } else { '0' });
        }
    }),
    ("child without signatures", |zones| {
        zones.child.retain(|line| {
            !["RRSIG", "NSEC", "NSEC3", "DNSKEY"].iter().any(|rtype| is(line, rtype))
        });
    }),
    ("child without keys", |zones| zones.child.retain(|line| !is(line, "DNSKEY"))),
    ("child with unsigned keys", |zones| {
        zones.child.retain(|line| !(is(line, "RRSIG") && covers(line, "DNSKEY")));
    }),
    ("child's www without signature", |zones| unsign(&mut zones.child, "www.child.", "A")),
    ("child's www with another address", |zones| {
        edit(&mut zones.child, "www.child.", "A", "192.0.2.5", "192.0.2.6");
    }),
    ("upper-case names", |zones| {
        for line in zones.parent.iter_mut().filter(|line| line.starts_with("www.")) {
            *line = line.replacen("www.", "WwW.", 1);
        }
    }),
    ("TTL above the original one", |zones| {
        for line in zones.parent.iter_mut().filter(|line| line.starts_with("www.")) {
            *line = line.replacen("300", "900", 1);
        }
    }),
    ("signature with a smaller label count", |zones| {
        for line in &mut zones.parent {
            if line.starts_with("www.") && is(line, "RRSIG") && covers(line, "A") {
                *line = line.replacen(" 3 300 ", " 2 300 ", 1);
            }
        }
    }),
];

/// True if the record has this type.
fn is(line: &str, rtype: &str) -> bool {
    line.split_whitespace().nth(3) == Some(rtype)
}

/// True if the signature covers this type.
fn covers(line: &str, rtype: &str) -> bool {
    line.split_whitespace().nth(4) == Some(rtype)
}

fn has_owner(line: &str, owner: &str) -> bool {
    line.split_whitespace().next() == Some(&format!("{owner}signed.test."))
}

/// Removes the signatures of an RRset.
fn unsign(lines: &mut Vec<String>, owner: &str, rtype: &str) {
    lines.retain(|line| !(has_owner(line, owner) && is(line, "RRSIG") && covers(line, rtype)));
}

/// Removes the records of an RRset that contain a text.
fn remove(lines: &mut Vec<String>, owner: &str, rtype: &str, text: &str) {
    lines.retain(|line| !(has_owner(line, owner) && is(line, rtype) && line.contains(text)));
}

/// Replaces a text in the records of an RRset.
fn edit(lines: &mut [String], owner: &str, rtype: &str, from: &str, to: &str) {
    for line in lines.iter_mut().filter(|line| has_owner(line, owner) && is(line, rtype)) {
        *line = line.replacen(from, to, 1);
    }
}

/// Signs a zone with new keys, and returns the lines of the signed zone.
fn sign(
    bench: &Bench,
    zone: &str,
    text: &str,
    algorithm: &str,
    options: &[&str],
) -> Result<Vec<String>> {
    let folder = bench.path("");
    for flags in [&["-f", "KSK"][..], &[]] {
        let args = [&["-q", "-a", algorithm, "-K", &folder], flags, &[zone]].concat();
        output("dnssec-keygen", &args, LIMIT)?;
    }
    let (file, signed) =
        (bench.file(&format!("{zone}.zone"), text)?, bench.path(&format!("{zone}.signed")));
    let fixed = ["-S", "-g", "-O", "full", "-K", &folder, "-d", &folder, "-o", zone, "-f", &signed];
    output("dnssec-signzone", &[&fixed[..], options, &[&file]].concat(), LIMIT)?;
    Ok(fs::read_to_string(&signed)?
        .lines()
        .filter(|line| !line.starts_with(';'))
        .map(one_space)
        .collect())
}

fn one_space(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Secure,
    Insecure,
    Bogus,
}

/// Returns dig's result for each query: SERVFAIL is bogus, and an answer with AD is secure. Without a reply in time, the
/// result is `None`: Unbound queries bogus zones again for up to a minute.
fn by_dig(port: u16) -> Result<Vec<Option<Status>>> {
    let port = port.to_string();
    let one = |query: &&str| {
        let fixed =
            ["@127.0.0.1", "-p", &port, "+noall", "+comments", "+dnssec", "+time=2", "+tries=1"];
        let args: Vec<&str> = fixed.into_iter().chain(query.split(' ')).collect();
        let printed = process::run("dig", &args, LIMIT)?.stdout;
        let Some((_, flags)) = printed.split_once("flags: ") else { return Ok(None) };
        let flags = flags.split(';').next().unwrap_or_default();
        Ok(Some(match flags.split(' ').any(|flag| flag == "ad") {
            _ if printed.contains("status: SERVFAIL") => Status::Bogus,
            true => Status::Secure,
            false => Status::Insecure,
        }))
    };
    QUERIES.iter().map(one).collect()
}

/// Returns delv's result for a query.
fn by_delv(port: u16, anchors: &str, query: &str) -> Result<Status> {
    let port = port.to_string();
    let args = ["@127.0.0.1", "-p", &port, "-a", anchors, "+root=signed.test"];
    let args: Vec<&str> = args.into_iter().chain(query.split(' ')).collect();
    let ran = process::run("delv", &args, LIMIT)?;
    let text = ran.stdout + &ran.stderr;
    // A denial is printed as a failed resolution, followed by its verdict.
    let text = text.replace("resolution failed: ncache", "");
    // After an alias, delv prints the verdict on each part.
    Ok(match (text.contains("resolution failed"), text.contains("unsigned answer")) {
        (true, _) => Status::Bogus,
        (false, true) => Status::Insecure,
        (false, false) if text.contains("fully validated") => Status::Secure,
        (false, false) => Status::Bogus,
    })
}

fn compare(bench: &Bench, options: &[&str]) -> Result<()> {
    let child = sign(bench, "child.signed.test", CHILD, "ED25519", options)?;
    let parent = sign(bench, "signed.test", PARENT, "ECDSAP256SHA256", options)?;
    let undamaged = Zones { parent, child };
    let key = fs::read_dir(bench.path(""))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| is_secure_entry_point(path))
        .context("no key of signed.test")?;
    let ds = output("dnssec-dsfromkey", &["-2", &key.to_string_lossy()], LIMIT)?;
    let words: Vec<&str> = ds.split_whitespace().collect();
    let [_, _, _, tag, algorithm, digest_type, digest @ ..] = words.as_slice() else {
        anyhow::bail!("dnssec-dsfromkey: {ds}")
    };
    let anchors = bench.file("anchors", &ds)?;
    let for_delv = format!(
        "trust-anchors {{ signed.test. static-ds {tag} {algorithm} {digest_type} \"{}\"; }};\n",
        digest.concat()
    );
    let for_delv = bench.file("delv.anchors", &for_delv)?;
    let mut differences = BTreeMap::new();
    for (name, damage) in DAMAGES {
        let mut zones = undamaged.clone();
        damage(&mut zones);
        let (ours, unbound, delv) =
            validate(bench, &zones, &anchors, &for_delv).with_context(|| (*name).to_owned())?;
        let all = QUERIES.iter().zip(ours.into_iter().zip(unbound).zip(delv));
        for (query, ((ours, unbound), delv)) in all {
            let ours = ours.with_context(|| format!("{name}: {query}: no reply of dns64d"))?;
            // Unbound gives no reply in time only for zones that it finds bogus.
            let unbound = unbound.unwrap_or(Status::Bogus);
            if ours != unbound || ours != delv {
                // delv finds denials with Opt-Out secure, so all three can differ.
                let is_alone = ours != unbound && unbound == delv;
                differences.insert(
                    format!("{name}: {query}: dns64d {ours:?}, Unbound {unbound:?}, delv {delv:?}"),
                    is_alone,
                );
            }
        }
    }
    println!(
        "        {} damages, {} queries each, {} verdicts differ",
        DAMAGES.len(),
        QUERIES.len(),
        differences.len()
    );
    differences.keys().for_each(|line| println!("            {line}"));
    let alone: Vec<&String> =
        differences.iter().filter(|(_, alone)| **alone).map(|(line, _)| line).collect();
    ensure!(alone.is_empty(), "delv and Unbound agree, and dns64d differs: {alone:#?}");
    Ok(())
}

/// True for the file of the key that signs the keys of `signed.test`.
fn is_secure_entry_point(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.starts_with("Ksigned.test.")
        && name.ends_with(".key")
        && fs::read_to_string(path).is_ok_and(|text| text.contains("DNSKEY 257"))
}

/// Verdicts of dns64d, Unbound and delv on each query.
type Verdicts = (Vec<Option<Status>>, Vec<Option<Status>>, Vec<Status>);

/// Returns the verdicts of dns64d, Unbound and delv on each query.
fn validate(bench: &Bench, zones: &Zones, anchors: &str, for_delv: &str) -> Result<Verdicts> {
    let (upstream, port, folder) = (free_port()?, free_port()?, bench.path(""));
    let zone =
        |name: &str, file: &str| format!("zone \"{name}\" {{ type primary; file \"{file}\"; }};\n");
    let parent = bench.file("parent", &(zones.parent.join("\n") + "\n"))?;
    let child = bench.file("child", &(zones.child.join("\n") + "\n"))?;
    let plain = bench.file("plain", CHILD)?;
    let conf = format!(
        "options {{ directory \"{folder}\"; listen-on port {upstream} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
         recursion no; pid-file none; session-keyfile none; check-names primary ignore; minimal-responses yes; }};\n\
         controls {{ }};\n{}{}{}",
        zone("signed.test", &parent),
        zone("child.signed.test", &child),
        zone("plain.signed.test", &plain)
    );
    let conf = bench.file("named.conf", &conf)?;
    let named = Server::start("named", &["-f", "-n", "1", "-c", &conf])?;
    wait_for(&format!("127.0.0.1:{upstream}"), "ns.signed.test", A)?;
    let conf = format!(
        "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dns64]\nprefixes = []\n[dnssec]\nvalidate = true\n\
         trust-anchors = '{anchors}'\n[[upstream]]\naddress = '127.0.0.1'\nport = {upstream}\n"
    );
    let conf = bench.file("dns64d.toml", &conf)?;
    let dns64d = Server::start(bench.dns64d_program(), &["--config", &conf])?;
    wait_for(&format!("127.0.0.1:{port}"), "ipv4only.arpa", A)?;
    let ours = by_dig(port)?;
    dns64d.end()?;
    let port = free_port()?;
    let conf = format!(
        "server:\n  interface: 127.0.0.1\n  port: {port}\n  module-config: \"validator iterator\"\n  username: \"\"\n  \
         chroot: \"\"\n  directory: \"{folder}\"\n  pidfile: \"{folder}/unbound.pid\"\n  use-syslog: no\n  \
         do-not-query-localhost: no\n  local-zone: \"test.\" nodefault\n  trust-anchor-file: \"{anchors}\"\n  \
         aggressive-nsec: no\n  harden-below-nxdomain: no\n  val-max-restart: 0\nremote-control:\n  control-enable: no\n\
         stub-zone:\n  name: \"signed.test\"\n  stub-addr: 127.0.0.1@{upstream}\n"
    );
    let conf = bench.file("unbound.conf", &conf)?;
    let unbound = Server::start("unbound", &["-d", "-c", &conf])?;
    wait_for(&format!("127.0.0.1:{port}"), "localhost", A)?;
    let theirs = by_dig(port)?;
    unbound.end()?;
    let delv: Result<Vec<Status>> =
        QUERIES.iter().map(|query| by_delv(upstream, for_delv, query)).collect();
    named.end()?;
    Ok((ours, theirs, delv?))
}
