//! Probes of NAT64s: periodic TCP connections through each prefix.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::rc::Rc;

use net::clock;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::state::SharedState;
use crate::config::{ProbeKeys, Settings};
use crate::guard::Tasks;
use crate::prefixes::health::Probe;
use crate::translation::prefix::Prefix;

/// Starts the probes that are due.
pub(super) fn probe_when_due(tasks: &Tasks, settings: &Settings, state: &SharedState) {
    let now = clock::now();
    let live = state.borrow().live(now);
    let mut due: Vec<(Prefix, ProbeKeys)> = Vec::new();
    for keys in settings.config.written_prefixes() {
        let Some(probe) = keys.probe() else { continue };
        due.extend(keys.prefixes(&live).into_iter().map(|(prefix, _)| (prefix, *probe)));
    }
    state.borrow_mut().probes.retain_due(&mut due, now);
    for (prefix, probe) in due {
        let state = Rc::clone(state);
        tasks.spawn(move || format!("a probe of {prefix}"), async move {
            let found = connect(&prefix, &probe).await;
            state.borrow_mut().probes.add(&prefix, found, clock::now());
        });
    }
}

/// Probes a prefix with a TCP connection.
async fn connect(prefix: &Prefix, probe: &ProbeKeys) -> Probe {
    let address = SocketAddr::new(prefix.embed(probe.address).into(), probe.port);
    // The route is checked first, because a missing route on a router causes the same error as a
    // missing route on this host.
    if !has_route(address) {
        return Probe::NotSent;
    }
    match timeout(probe.timeout, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Probe::Answered,
        Ok(Err(error)) => without_connection(&error),
        Err(_) => Probe::Failed,
    }
}

/// Classifies a connection error. EACCES may be caused by a router's ICMPv6 error (RFC 4443 §3.1,
/// codes 1, 5 and 6); EPERM is caused only by this host's packet filter.
fn without_connection(error: &io::Error) -> Probe {
    match error.raw_os_error() {
        // The NAT64 works, but the target refuses the connection.
        Some(libc::ECONNREFUSED | libc::ECONNRESET) => Probe::Answered,
        // This host has no free address, port, file descriptor or memory, or its packet filter
        // blocks the probe.
        Some(
            libc::EADDRNOTAVAIL
            | libc::EMFILE
            | libc::ENFILE
            | libc::ENOBUFS
            | libc::ENOMEM
            | libc::EPERM,
        ) => Probe::NotSent,
        _ => Probe::Failed,
    }
}

/// True if this host has a route to an address. The function tests this by connecting a UDP socket, which sends no
/// packet.
fn has_route(address: SocketAddr) -> bool {
    let socket = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
    socket.and_then(|socket| socket.connect(address)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_errors_do_not_affect_the_health() {
        let of = |number| without_connection(&io::Error::from_raw_os_error(number));
        for own in [libc::EADDRNOTAVAIL, libc::EPERM, libc::EMFILE, libc::ENFILE, libc::ENOBUFS] {
            assert_eq!(of(own), Probe::NotSent, "{own}");
        }
        for there in [libc::ECONNREFUSED, libc::ECONNRESET] {
            assert_eq!(of(there), Probe::Answered, "{there}");
        }
        for on_the_way in [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::EACCES, libc::ETIMEDOUT] {
            assert_eq!(of(on_the_way), Probe::Failed, "{on_the_way}");
        }
    }
}
