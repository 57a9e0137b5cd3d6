//! Tasks of the TCP thread that discover prefixes and probe NAT64s.
//!
//! ```text
//! asking: upstreams ◄─ ipv4only.arpa, shortly before the last answer expires ─┐
//! routers ──► advertisements ─────────────────────────────────────────────────┼─► State ─► publish: settings with
//!    ▲  └──── Solicitations: while no prefix of a router is known             │             the current prefixes
//! probing: NAT64s ◄─── periodic connections through the prefix ───────────────┘
//! ```
//!
//! Expired prefixes are removed and changes are published five times a second. A flood of
//! advertisements therefore causes at most five updates a second.

mod discovery;
mod probes;
mod probing;
mod solicitations;
mod state;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::clock;
use net::router::{Advertisement, RouterSocket};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::sleep;

use self::solicitations::Solicitations;
use self::state::{SharedState, TICK};
use super::shared::Shared;
use crate::config::{PrefixKeys, Settings};
use crate::guard::Tasks;
use crate::prefixes::known::Announcer;
use crate::prefixes::{LivePrefixes, advertisement};
use crate::translation::prefix::Prefix;

/// Maximum size of an advertisement, in octets (the MTU of Ethernet).
const LONGEST_ADVERTISEMENT: usize = 1_500;

/// Starts the tasks that discover prefixes and probe NAT64s. `routers` contains one socket for router advertisements
/// per configured interface.
///
/// # Errors
/// Returns an error if a socket cannot be polled.
pub(super) fn watch(
    tasks: &Tasks,
    shared: &Arc<Shared>,
    routers: Vec<RouterSocket>,
) -> io::Result<()> {
    let state = SharedState::default();
    let routers = routers.into_iter().map(|socket| Router::new(socket).map(Rc::new));
    let routers: Rc<[Rc<Router>]> = routers.collect::<io::Result<_>>()?;
    for router in &*routers {
        let (router, state) = (Rc::clone(router), Rc::clone(&state));
        tasks.keep("a router advertisement", move || listen(Rc::clone(&router), Rc::clone(&state)));
    }
    {
        let (shared, state) = (Arc::clone(shared), Rc::clone(&state));
        tasks.keep("a query for ipv4only.arpa", move || {
            discovery::query_periodically(Arc::clone(&shared), Rc::clone(&state))
        });
    }
    let (tasks, shared) = (tasks.clone(), Arc::clone(shared));
    tasks.clone().keep("the update of prefixes", move || {
        tick(tasks.clone(), Arc::clone(&shared), Rc::clone(&state), Rc::clone(&routers))
    });
    Ok(())
}

/// Periodically starts the probes that are due, publishes changes, and sends router solicitations.
async fn tick(tasks: Tasks, shared: Arc<Shared>, state: SharedState, routers: Rc<[Rc<Router>]>) {
    let mut solicitations = vec![Solicitations::default(); routers.len()];
    loop {
        let settings = shared.settings.load_full();
        probing::probe_when_due(&tasks, &settings, &state);
        publish(&shared, &settings, &state);
        for (router, solicitations) in routers.iter().zip(&mut solicitations) {
            router.solicit_when_due(solicitations, &settings, &state);
        }
        // The task wakes at the next expiry, so that an expired prefix is not used.
        let left = state
            .borrow()
            .known
            .next_end()
            .map_or(TICK, |end| Duration::from_nanos(end.since(clock::now()).0));
        sleep(TICK.min(left)).await;
    }
}

/// Updates the state of the prefixes, and rebuilds the settings if the state has changed.
fn publish(shared: &Shared, settings: &Settings, state: &SharedState) {
    let now = clock::now();
    let (live, prefixes) = {
        let mut state = state.borrow_mut();
        state.known.expire(now);
        state.known.listen_on(&settings.config.discovery.interfaces);
        (state.live(now), state.in_use(settings, now))
    };
    if *shared.prefixes.load_full() != prefixes {
        shared.prefixes.store(Arc::new(prefixes));
    }
    if shared.live.load().is_outdated_by(&live, now) {
        log_changes(&shared.live.load(), &live, settings);
        shared.publish(live);
    }
}

/// Logs each prefix that was discovered or withdrawn, and each change of a prefix's health.
fn log_changes(before: &LivePrefixes, now: &LivePrefixes, settings: &Settings) {
    let has = |live: &LivePrefixes, prefix: &Prefix| {
        live.announced.iter().any(|(known, _)| known == prefix)
    };
    for (prefix, _) in now.announced.iter().filter(|(prefix, _)| !has(before, prefix)) {
        tracing::info!("prefix {prefix} discovered; it is used");
    }
    for (prefix, _) in before.announced.iter().filter(|(prefix, _)| !has(now, prefix)) {
        tracing::warn!("prefix {prefix} withdrawn or expired; it is no longer used");
    }
    let name = |prefix: &Prefix| name_of(prefix, settings);
    for (prefix, _) in &now.unhealthy {
        if before.unhealthy_since(prefix).is_none() {
            tracing::warn!(
                "prefix {} marked unhealthy: its NAT64 does not answer probes",
                name(prefix)
            );
        }
    }
    for (prefix, _) in &before.unhealthy {
        if now.unhealthy_since(prefix).is_none() {
            tracing::info!(
                "prefix {} marked healthy again: its NAT64 answers probes",
                name(prefix)
            );
        }
    }
}

/// Returns the name of a prefix for log messages.
fn name_of(prefix: &Prefix, settings: &Settings) -> String {
    let is_it = |keys: &&PrefixKeys| {
        keys.prefixes(&LivePrefixes::default()).iter().any(|(p, _)| p == prefix)
    };
    let name = settings.config.written_prefixes().find(is_it).and_then(PrefixKeys::name);
    name.map_or(prefix.to_string(), |name| format!("'{name}' ({prefix})"))
}

/// Socket for Router Advertisements on one interface, and a tokio handle that waits for messages on
/// the socket.
struct Router {
    socket: RouterSocket,
    readiness: UdpSocket,
}

impl Router {
    fn new(socket: RouterSocket) -> io::Result<Router> {
        let readiness = UdpSocket::from_std(socket.to_wait_for()?)?;
        Ok(Router { socket, readiness })
    }

    /// Sends a Router Solicitation if one is due.
    fn solicit_when_due(
        &self,
        solicitations: &mut Solicitations,
        settings: &Settings,
        state: &SharedState,
    ) {
        let (now, interface) = (clock::now(), self.socket.interface());
        let is_wanted = settings.config.discovery.interfaces.iter().any(|name| name == interface)
            && settings.config.written_prefixes().any(PrefixKeys::is_discovered)
            && !state.borrow().known.has_router_on(interface, now);
        if !solicitations.is_due(is_wanted, now) {
            return;
        }
        match self.socket.solicit() {
            Ok(()) => solicitations.sent(now),
            Err(error) => {
                if solicitations.failed(now) {
                    tracing::warn!("cannot send router solicitations on {interface}: {error}");
                }
            }
        }
    }

    /// Waits for the next Router Advertisement, and returns it.
    async fn next(&self, buffer: &mut [u8]) -> io::Result<Advertisement> {
        loop {
            self.readiness.readable().await?;
            let none = || io::ErrorKind::WouldBlock.into();
            let read = || self.socket.receive(buffer)?.ok_or_else(none);
            match self.readiness.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                received => return received,
            }
        }
    }
}

/// Records the prefixes that routers announce.
async fn listen(router: Rc<Router>, state: SharedState) {
    let mut buffer = [0; LONGEST_ADVERTISEMENT];
    loop {
        match router.next(&mut buffer).await {
            Ok(message) => {
                let octets = &buffer[..message.len];
                let read = advertisement::read(octets, message.source, message.hop_limit);
                if let Ok(announced) = read {
                    let interface = router.socket.interface().to_owned();
                    let by = Announcer::Router { interface, address: message.source };
                    state.borrow_mut().known.announced(&by, &announced, clock::now());
                }
                // Other tasks get a chance to run, even if a router sends messages without pause.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::warn!(
                    "cannot receive router advertisements on {}: {error}",
                    router.socket.interface()
                );
                sleep(TICK).await;
            }
        }
    }
}
