//! The validators: dns64d, Unbound and delv, and the authoritative server for them.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dnssec_fuzz::Status;
use wire::rcode::Rcode;
use wire::view::Message;

use super::super::harness::{A, Bench, wait_for};
use super::proxy::{Edit, query, run};
use super::zones::{CHILD, Zones};
use crate::process::{Server, at_the_same_time, free_port};
use crate::validators::AnchoredZone;

/// Names and types of the queries.
pub(super) const QUERIES: &[(&str, &str, u16)] = &[
    ("www.signed.test", "A", 1),
    ("www.signed.test", "AAAA", 28),
    ("www.signed.test", "DS", 43),
    ("both.signed.test", "AAAA", 28),
    ("x.w.signed.test", "A", 1),
    ("x.y.w.signed.test", "A", 1),
    ("x.e.w.signed.test", "A", 1),
    ("x.w.signed.test", "MX", 15),
    ("ent.signed.test", "A", 1),
    ("missing.signed.test", "A", 1),
    ("a.missing.signed.test", "A", 1),
    ("alias.signed.test", "A", 1),
    ("alias.signed.test", "MX", 15),
    ("alias-wild.signed.test", "A", 1),
    ("alias-child.signed.test", "A", 1),
    ("alias-plain.signed.test", "A", 1),
    ("alias-none.signed.test", "A", 1),
    ("www.dname.signed.test", "A", 1),
    ("mail.signed.test", "MX", 15),
    ("signed.test", "NS", 2),
    ("signed.test", "DNSKEY", 48),
    ("child.signed.test", "DS", 43),
    ("plain.signed.test", "DS", 43),
    ("www.child.signed.test", "A", 1),
    ("www.child.signed.test", "AAAA", 28),
    ("missing.child.signed.test", "A", 1),
    ("child.signed.test", "SOA", 6),
    ("www.plain.signed.test", "A", 1),
    ("www.plain.signed.test", "AAAA", 28),
    ("missing.plain.signed.test", "A", 1),
];

/// Time to wait for replies.
const PATIENCE: Duration = Duration::from_secs(10);

/// Number of delv processes at the same time. delv repeats queries for missing signatures, and then mostly waits.
const DELV_AT_ONCE: usize = 6;

/// Verdicts on one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdicts {
    pub(super) dns64d: Status,
    pub(super) unbound: Status,
    pub(super) delv: Status,
}

/// A verdict that is not the same for all validators.
pub(super) struct Difference {
    pub(super) damage: &'static str,
    pub(super) query: String,
    pub(super) verdicts: Verdicts,
}

impl Difference {
    /// True if dns64d agrees neither with delv nor with Unbound.
    pub(super) fn is_alone(&self) -> bool {
        let Verdicts { dns64d, unbound, delv } = self.verdicts;
        dns64d != unbound && dns64d != delv
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdicts { dns64d, unbound, delv } = self.verdicts;
        write!(
            f,
            "{}: {}: dns64d {dns64d:?}, Unbound {unbound:?}, delv {delv:?}",
            self.damage, self.query
        )
    }
}

/// Returns the verdicts of the three validators on each query. `folder` is a subfolder of the test's folder, and `ds` is
/// the data of the DS record that is the trust anchor.
pub(super) fn validate(
    bench: &Bench,
    folder: &str,
    zones: &Zones,
    edit: Option<Edit>,
    ds: &str,
) -> Result<Vec<Verdicts>> {
    let (_named, server) = authoritative(bench, folder, zones)?;
    let Some(edit) = edit else { return by_all(bench, folder, server, ds) };
    let socket = UdpSocket::bind(("127.0.0.1", free_port()?))?;
    let proxy = socket.local_addr()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&socket, server, edit, &is_over));
        let verdicts = by_all(bench, folder, proxy, ds);
        is_over.store(true, Ordering::Relaxed);
        running.join().map_err(|_| anyhow::anyhow!("the proxy panicked"))??;
        verdicts
    })
}

/// Starts named with the zones.
fn authoritative(bench: &Bench, folder: &str, zones: &Zones) -> Result<(Server, SocketAddr)> {
    let port = free_port()?;
    let file = |name: &str, content: &str| bench.file(&format!("{folder}/{name}"), content);
    let zone =
        |name: &str, file: &str| format!("zone \"{name}\" {{ type primary; file \"{file}\"; }};\n");
    let parent = file("parent", &(zones.parent.join("\n") + "\n"))?;
    let child = file("child", &(zones.child.join("\n") + "\n"))?;
    let plain = file("plain", CHILD)?;
    // The proxy reads only names that are not compressed.
    let conf = format!(
        "options {{ directory \"{}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; recursion no; \
         pid-file none; session-keyfile none; check-names primary ignore; minimal-responses yes; \
         message-compression no; }};\ncontrols {{ }};\n{}{}{}",
        bench.path(folder),
        zone("signed.test", &parent),
        zone("child.signed.test", &child),
        zone("plain.signed.test", &plain)
    );
    let conf = file("named.conf", &conf)?;
    let named = Server::start("named", &["-f", "-n", "1", "-c", &conf])?;
    wait_for(&format!("127.0.0.1:{port}"), "ns.signed.test", A)?;
    Ok((named, SocketAddr::from(([127, 0, 0, 1], port))))
}

fn by_all(bench: &Bench, folder: &str, server: SocketAddr, ds: &str) -> Result<Vec<Verdicts>> {
    let path = bench.path(folder);
    let zone = AnchoredZone { folder: &path, name: "signed.test", ds, upstream: server };
    zone.delv_anchors()?;
    let ours = {
        let (_dns64d, port) = zone.dns64d(&bench.dns64d_program())?;
        by_queries(port)?
    };
    let theirs = {
        let (_unbound, port) = zone.unbound()?;
        by_queries(port)?
    };
    let delv = |(at, (name, rtype, _)): (usize, &(&str, &str, u16))| {
        zone.delv(name, rtype).map(|status| (at, status))
    };
    let delv = at_the_same_time(DELV_AT_ONCE, QUERIES.iter().enumerate(), delv);
    let mut delv: Vec<(usize, Status)> = delv.into_iter().collect::<Result<_>>()?;
    delv.sort_unstable_by_key(|(at, _)| *at);
    let all = QUERIES.iter().zip(ours).zip(theirs).zip(delv);
    all.map(|(((query, ours), unbound), (_, delv))| {
        let dns64d = ours.with_context(|| format!("{}: no reply of dns64d", query.0))?;
        // Unbound queries some bogus zones again for up to a minute. Without its reply, only delv counts.
        Ok(Verdicts { dns64d, unbound: unbound.unwrap_or(delv), delv })
    })
    .collect()
}

/// Sends all queries at once, and returns the result of each: SERVFAIL is bogus, and an answer with AD is secure. Without
/// a reply in time, the result is `None`.
fn by_queries(port: u16) -> Result<Vec<Option<Status>>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    for (id, (name, _, rtype)) in (0..).zip(QUERIES) {
        socket.send(&query(id, name, *rtype))?;
    }
    let mut results = vec![None; QUERIES.len()];
    let give_up = Instant::now() + PATIENCE;
    let mut reply = [0; 4_096];
    while results.contains(&None) && Instant::now() < give_up {
        let Ok(len) = socket.recv(&mut reply) else { continue };
        let Some(message) = Message::new(&reply[..len]) else { continue };
        let Some(result) = results.get_mut(usize::from(message.id())) else { continue };
        *result = Some(match reply[3] & 0x20 != 0 {
            _ if message.rcode() == Rcode::SERVFAIL => Status::Bogus,
            true => Status::Secure,
            false => Status::Insecure,
        });
    }
    Ok(results)
}
