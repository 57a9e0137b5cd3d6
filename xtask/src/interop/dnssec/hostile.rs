//! Zones that are built to exhaust validators: KeyTrap (CVE-2023-50387) and closest encloser proofs with NSEC3 records
//! (CVE-2023-50868). The CPU time for each query is compared with those of BIND and Unbound.
//!
//! ```text
//! hostile client: unique names ─┐
//!                               ├─► dns64d, BIND or Unbound ─► named: test. with four hostile children
//! honest client ──► dns64d ─────┴─► a second named: the unsigned child of test.
//! ```

use std::fmt::Write;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::RngExt;
use wire::rcode::Rcode;
use wire::view::Message;

use super::super::harness::{A, Bench, wait_for};
use super::proxy::query;
use super::zones::{Denial, Job, Signer, ds, key_pair};
use crate::process::{Server, cpu_seconds, free_port};

/// Hostile queries of each comparison.
const HOSTILE: usize = 100;
/// Hostile queries in flight during a comparison.
const WINDOW: usize = 20;
/// Hostile queries in flight while the honest client is served. dns64d lets 256 validations wait for each thread.
const FLOOD: usize = 300;
/// Least number of honest queries: half of them for names that are not cached.
const HONEST: usize = 2_000;
/// Time after which a query counts as unanswered.
const SILENCE: Duration = Duration::from_secs(10);
/// Time limit of the hostile queries of one comparison.
const MOST: Duration = Duration::from_secs(40);

/// Algorithm RSA/SHA-256.
const RSA: u8 = 8;

/// A hostile zone below `test.`.
struct Zone {
    name: &'static str,
    what: &'static str,
    kind: Kind,
}

enum Kind {
    /// Keys with one tag, and signatures with this tag.
    KeyTrap { keys: usize, signatures: usize, octets: usize },
    /// NSEC3 records.
    Nsec3 { iterations: u16 },
}

const ZONES: &[Zone] = &[
    Zone {
        name: "many-keys.test",
        what: "KeyTrap, 40 keys and 40 signatures",
        kind: Kind::KeyTrap { keys: 40, signatures: 40, octets: 256 },
    },
    Zone {
        name: "few-keys.test",
        what: "KeyTrap, 4 keys and 40 signatures",
        kind: Kind::KeyTrap { keys: 4, signatures: 40, octets: 512 },
    },
    Zone {
        name: "deep-150.test",
        what: "NSEC3, 150 iterations, 100 labels",
        kind: Kind::Nsec3 { iterations: 150 },
    },
    Zone {
        name: "deep-50.test",
        what: "NSEC3, 50 iterations, 100 labels",
        kind: Kind::Nsec3 { iterations: 50 },
    },
];

impl Zone {
    /// Returns the name of hostile query `n`.
    fn query_name(&self, n: usize) -> String {
        match self.kind {
            Kind::KeyTrap { .. } => format!("u{n}.{}", self.name),
            // The whole name has less than 255 octets.
            Kind::Nsec3 { .. } => format!("{}u{n}.{}", "a.".repeat(100), self.name),
        }
    }

    /// Returns the signed zone, and the DS record of its key.
    fn sign(&self, folder: &Path) -> Result<(String, String)> {
        let keys = key_pair(folder, self.name, "ECDSAP256SHA256")?;
        let text = "$TTL 300\n@ SOA ns hostmaster 1 3600 900 604800 60\n@ NS ns\nns A 127.0.0.1\n";
        let (mut text, denial, trap) = match self.kind {
            Kind::Nsec3 { iterations } => (text.to_owned(), Denial::LongSalt { iterations }, None),
            Kind::KeyTrap { keys, signatures, octets } => {
                let trap = Trap::new(keys, signatures, octets);
                (format!("{text}* A 192.0.2.66\n"), Denial::Nsec, Some(trap))
            }
        };
        if let Some(trap) = &trap {
            text += &trap.key_lines();
        }
        let job = Job { name: self.name, text: &text, keys: &keys, folder };
        let mut lines = job.sign(Signer::Bind, denial, super::zones::Validity::Now)?;
        if let Some(trap) = &trap {
            let wildcard = format!("*.{}.", self.name);
            let is_genuine =
                |line: &String| line.starts_with(&wildcard) && line.contains(" RRSIG A ");
            lines.retain(|line| !is_genuine(line));
            lines.extend(trap.signature_lines(self.name));
        }
        Ok((lines.join("\n") + "\n", ds(&keys[0], "-2")?))
    }
}

/// Keys with one tag, and signatures with this tag.
struct Trap {
    keys: Vec<Vec<u8>>,
    tag: u16,
    signatures: usize,
    octets: usize,
}

impl Trap {
    fn new(keys: usize, signatures: usize, octets: usize) -> Trap {
        let tag = 12_345;
        Trap { keys: (0..keys).map(|_| rsa_key(octets, tag)).collect(), tag, signatures, octets }
    }

    fn key_lines(&self) -> String {
        self.keys.iter().fold(String::new(), |mut text, key| {
            let _ = writeln!(text, "@ DNSKEY \\# {} {}", key.len(), hex(key));
            text
        })
    }

    /// Returns the lines of the signatures of the wildcard in a zone.
    fn signature_lines(&self, zone: &str) -> Vec<String> {
        let labels = zone.split('.').count() as u8;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs() as u32);
        let one = |_| {
            let mut data = vec![0, A, RSA, labels];
            for field in [300, now + 86_400, now - 3_600] {
                data.extend(u32::to_be_bytes(field));
            }
            data.extend(self.tag.to_be_bytes());
            data.extend(super::proxy::wire_name(zone));
            // A signature is a number below the modulus.
            data.push(1);
            data.extend((1..self.octets).map(|_| rand::rng().random::<u8>()));
            format!("*.{zone}. 300 IN RRSIG \\# {} {}", data.len(), hex(&data))
        };
        (0..self.signatures).map(one).collect()
    }
}

/// Returns the data of a DNSKEY record with an RSA key of this size and this tag. The modulus is a random odd number:
/// checks of signatures take as long as with a genuine key. The exponent is the largest that all validators accept.
fn rsa_key(octets: usize, tag: u16) -> Vec<u8> {
    let mut data = vec![1, 0, 3, RSA, 5, 1, 0xff, 0xff, 0xff, 0xff];
    let modulus = data.len();
    data.extend((0..octets).map(|_| rand::rng().random::<u8>()));
    data[modulus] |= 0xc0;
    let last = data.len() - 1;
    data[last] |= 1;
    // These two octets give the key its tag.
    let at = modulus + 2;
    for word in 0..=u16::MAX {
        data[at..at + 2].copy_from_slice(&word.to_be_bytes());
        if key_tag(&data) == tag {
            break;
        }
    }
    data
}

/// Returns the tag of a key (RFC 4034 appendix B).
fn key_tag(data: &[u8]) -> u16 {
    let sum = data.chunks(2).fold(0_u32, |sum, pair| {
        sum + u32::from(pair[0]) * 256 + pair.get(1).copied().map_or(0, u32::from)
    });
    (sum + (sum >> 16)) as u16
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

pub(super) fn hostile_zones(bench: &Bench) -> Result<()> {
    let (_named, upstreams, anchor) = authoritative(bench)?;
    println!(
        "        CPU time per hostile query in ms: dns64d (a build without optimization), BIND, Unbound"
    );
    for (number, zone) in ZONES.iter().enumerate() {
        let mut line = String::new();
        for kind in [Validator::Dns64d, Validator::Bind, Validator::Unbound] {
            let folder = format!("{}-{number}", kind.name());
            let (server, port) = kind.start(bench, &folder, upstreams, &anchor)?;
            let (spent, answered) = spent(&server, port, zone)?;
            let _ = write!(line, "  {spent:.2} ({answered} of {HOSTILE} answered)");
        }
        println!("        {}: {line}", zone.what);
    }
    for (number, zone) in ZONES.iter().enumerate() {
        let (_server, port) =
            Validator::Dns64d.start(bench, &format!("flood-{number}"), upstreams, &anchor)?;
        let Flooded { honest, served, hostile } = while_flooded(port, zone)?;
        println!(
            "        {}: {served} of {honest} honest queries were served, during {hostile} replies to hostile ones",
            zone.what
        );
        ensure!(
            served * 1_000 >= honest * 999,
            "{}: {served} of {honest} honest queries",
            zone.what
        );
    }
    Ok(())
}

/// Starts two processes of named with all zones: one for the hostile names, and one for the honest names, because the
/// hostile names cost named CPU time too. Returns their ports, and the DS record of `test.`
fn authoritative(bench: &Bench) -> Result<([Server; 2], [u16; 2], String)> {
    let folder = bench.folder.path().to_owned();
    let mut parent =
        "$TTL 300\n@ SOA ns hostmaster 1 3600 900 604800 60\n@ NS ns\nns A 127.0.0.1\nplain NS ns\n".to_owned();
    let mut conf = format!(
        "options {{ directory \"{}\"; listen-on port PORT {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; \
         pid-file none; session-keyfile none; check-names primary ignore; minimal-responses yes; \
         rate-limit {{ responses-per-second 0; }}; }};\ncontrols {{ }};\n",
        folder.display()
    );
    let mut add = |name: &str, text: &str| -> Result<()> {
        let file = bench.file(&format!("{name}.db"), text)?;
        writeln!(conf, "zone \"{name}\" {{ type primary; file \"{file}\"; }};")?;
        Ok(())
    };
    for zone in ZONES {
        let sub = folder.join(zone.name);
        fs::create_dir(&sub)?;
        let (text, ds) = zone.sign(&sub)?;
        add(zone.name, &text)?;
        let label = zone.name.split('.').next().unwrap_or_default();
        parent += &format!("{label} NS ns\n{ds}");
    }
    add(
        "plain.test",
        "$TTL 300\n@ SOA ns.test. hostmaster.test. 1 3600 900 604800 60\n@ NS ns.test.\n* A 192.0.2.1\n",
    )?;
    let sub = folder.join("test");
    fs::create_dir(&sub)?;
    let keys = key_pair(&sub, "test", "ECDSAP256SHA256")?;
    let job = Job { name: "test", text: &parent, keys: &keys, folder: &sub };
    let lines = job.sign(Signer::Bind, Denial::Nsec, super::zones::Validity::Now)?;
    add("test", &(lines.join("\n") + "\n"))?;
    let start = |name: &str| -> Result<(Server, u16)> {
        let port = free_port()?;
        let conf = bench.file(name, &conf.replace("PORT", &port.to_string()))?;
        let named = Server::start("named", &["-f", "-n", "1", "-c", &conf])?;
        for zone in ZONES {
            let name = format!("ns.{}", zone.name);
            wait_for(&format!("127.0.0.1:{port}"), &name, A).context(zone.what)?;
        }
        Ok((named, port))
    };
    let ((hostile, hostile_port), (honest, honest_port)) =
        (start("hostile.conf")?, start("honest.conf")?);
    Ok(([hostile, honest], [hostile_port, honest_port], ds(&keys[0], "-2")?))
}

#[derive(Clone, Copy, Debug)]
enum Validator {
    Dns64d,
    Bind,
    Unbound,
}

impl Validator {
    const fn name(self) -> &'static str {
        match self {
            Validator::Dns64d => "dns64d",
            Validator::Bind => "bind",
            Validator::Unbound => "unbound",
        }
    }

    /// Starts the validator, and fills its cache with the keys of `test.`
    fn start(
        self,
        bench: &Bench,
        folder: &str,
        [upstream, honest]: [u16; 2],
        anchor: &str,
    ) -> Result<(Server, u16)> {
        let (port, path) = (free_port()?, bench.path(folder));
        fs::create_dir(&path)?;
        let anchors = bench.file(&format!("{folder}/anchors"), anchor)?;
        let words: Vec<&str> = anchor.split_whitespace().collect();
        let [_, _, _, tag, algorithm, digest_type, digest @ ..] = words.as_slice() else {
            anyhow::bail!("dnssec-dsfromkey: {anchor}")
        };
        let digest = digest.concat();
        let conf = match self {
            Validator::Dns64d => format!(
                "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dnssec]\nvalidate = true\ntrust-anchors = '{anchors}'\n\
                 [[upstream]]\nname = 'hostile'\naddress = '127.0.0.1'\nport = {upstream}\n\
                 [[upstream]]\nname = 'honest'\naddress = '127.0.0.1'\nport = {honest}\n\
                 [[forward]]\ndomain = '.'\nupstreams = ['hostile']\n\
                 [[forward]]\ndomain = 'plain.test'\nupstreams = ['honest']\n"
            ),
            Validator::Bind => format!(
                "options {{ directory \"{path}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
                 recursion yes; allow-query {{ any; }}; pid-file none; session-keyfile none; dnssec-validation yes; \
                 empty-zones-enable no; }};\ncontrols {{ }};\n\
                 trust-anchors {{ test. static-ds {tag} {algorithm} {digest_type} \"{digest}\"; }};\n\
                 zone \"test\" {{ type forward; forward only; forwarders {{ 127.0.0.1 port {upstream}; }}; }};\n"
            ),
            Validator::Unbound => format!(
                "server:\n  interface: 127.0.0.1\n  port: {port}\n  module-config: \"validator iterator\"\n  \
                 username: \"\"\n  chroot: \"\"\n  directory: \"{path}\"\n  pidfile: \"{path}/unbound.pid\"\n  \
                 use-syslog: no\n  num-threads: 1\n  do-not-query-localhost: no\n  local-zone: \"test.\" nodefault\n  \
                 trust-anchor-file: \"{anchors}\"\nremote-control:\n  control-enable: no\n\
                 stub-zone:\n  name: \"test\"\n  stub-addr: 127.0.0.1@{upstream}\n"
            ),
        };
        let conf = bench.file(&format!("{folder}/conf"), &conf)?;
        let server = match self {
            Validator::Dns64d => Server::start(bench.dns64d_program(), &["--config", &conf])?,
            Validator::Bind => Server::start("named", &["-f", "-n", "1", "-c", &conf])?,
            Validator::Unbound => Server::start("unbound", &["-d", "-c", &conf])?,
        };
        wait_for(&format!("127.0.0.1:{port}"), "cached.plain.test", A).context(self.name())?;
        Ok((server, port))
    }
}

/// Returns the server's CPU time for each hostile query in milliseconds, and the number of replies.
fn spent(server: &Server, port: u16, zone: &Zone) -> Result<(f64, usize)> {
    let pid = server.pid()?;
    let before = cpu_seconds(pid)?;
    let mut client = Client::new("127.0.0.2", port)?;
    let give_up = Instant::now() + MOST;
    let mut sent = 0;
    while (sent < HOSTILE || client.outstanding > 0) && Instant::now() < give_up {
        while sent < HOSTILE && client.outstanding < WINDOW {
            client.send(&zone.query_name(sent))?;
            sent += 1;
        }
        client.receive();
    }
    Ok((1_000.0 * (cpu_seconds(pid)? - before) / sent as f64, client.replies))
}

/// Numbers of queries and replies while hostile queries are in flight.
struct Flooded {
    honest: usize,
    served: usize,
    /// Replies to hostile queries.
    hostile: usize,
}

/// Sends honest queries while hostile ones are in flight.
fn while_flooded(port: u16, zone: &Zone) -> Result<Flooded> {
    let (is_over, replies) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let flood = scope.spawn(|| -> Result<()> {
            let mut client = Client::new("127.0.0.2", port)?;
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                while client.outstanding < FLOOD {
                    client.send(&zone.query_name(sent))?;
                    sent += 1;
                }
                client.receive();
                replies.store(client.replies, Ordering::Relaxed);
            }
            Ok(())
        });
        let served = honest(port, &replies);
        is_over.store(true, Ordering::Relaxed);
        flood.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
        let (honest, served) = served?;
        Ok(Flooded { honest, served, hostile: replies.load(Ordering::Relaxed) })
    })
}

/// Sends honest queries, one after the other, until some hostile queries have replies. Returns the number of queries, and
/// of those with an answer.
fn honest(port: u16, hostile: &AtomicUsize) -> Result<(usize, usize)> {
    let mut client = Client::new("127.0.1.3", port)?;
    let give_up = Instant::now() + MOST;
    let mut sent = 0;
    while sent < HONEST || hostile.load(Ordering::Relaxed) < HOSTILE && Instant::now() < give_up {
        match sent % 2 {
            0 => client.send("cached.plain.test")?,
            _ => client.send(&format!("h{sent}.plain.test"))?,
        }
        client.receive();
        sent += 1;
    }
    Ok((sent, client.answers))
}

/// A client that counts replies.
struct Client {
    socket: UdpSocket,
    next: u16,
    outstanding: usize,
    replies: usize,
    /// Replies with NOERROR and answer records.
    answers: usize,
}

impl Client {
    fn new(from: &str, port: u16) -> Result<Client> {
        let socket = UdpSocket::bind((from, 0))?;
        socket.connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
        socket.set_read_timeout(Some(SILENCE))?;
        Ok(Client { socket, next: 0, outstanding: 0, replies: 0, answers: 0 })
    }

    fn send(&mut self, name: &str) -> Result<()> {
        self.next = self.next.wrapping_add(1);
        self.socket.send(&query(self.next, name, u16::from(A)))?;
        self.outstanding += 1;
        Ok(())
    }

    /// Waits for a reply. Without one, all queries in flight count as unanswered.
    fn receive(&mut self) {
        let mut reply = [0; 4_096];
        let Ok(len) = self.socket.recv(&mut reply) else {
            self.outstanding = 0;
            return;
        };
        let Some(message) = Message::new(&reply[..len]) else { return };
        self.outstanding = self.outstanding.saturating_sub(1);
        self.replies += 1;
        self.answers += usize::from(message.rcode() == Rcode::NOERROR && message.ancount() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_get_the_wanted_tag() {
        for _ in 0..4 {
            assert_eq!(key_tag(&rsa_key(256, 12_345)), 12_345);
        }
        // The tag of RFC 4034 appendix B is a sum of octet pairs with its carry.
        assert_eq!(key_tag(&[0xff, 0xff, 0, 2]), 2);
    }
}
