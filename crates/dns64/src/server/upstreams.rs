//! The servers that we ask: their sockets, how fast they are, and whether they answer at all (items 32, 43).

use std::io;
use std::net::SocketAddr;

use method::units::Nanos;
use net::poller::Poller;
use net::queue::{Flushed, SendQueue};
use net::socket::Endpoint;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rustc_hash::FxHashMap;

use super::fetches::FetchId;
use crate::config::Upstream;

/// Questions that a source port is used for before another takes its place.
const USES: u32 = 10_000;
/// Ids of a source port that may be in use: half of them, so that a free one is found by guessing.
const MOST_IDS: usize = 32_768;
/// How long an upstream is taken to need before it has answered once.
const FIRST_RTO: Nanos = Nanos::from_millis(400);
/// Not shorter, however fast the upstream is: one that is merely busy for a moment must not be asked everything twice.
const LEAST_RTO: Nanos = Nanos::from_millis(200);
const MOST_RTO: Nanos = Nanos::from_millis(800);
/// Timeouts in a row after which an upstream is left alone, and for how long: doubled each time.
const FAILURES: u32 = 3;
const FIRST_BACKOFF: Nanos = Nanos::SECOND;
const MOST_BACKOFF: Nanos = Nanos::from_millis(30_000);
/// The log says at most once in this time that an upstream does not answer.
const TELL_AGAIN: Nanos = Nanos::from_millis(10_000);
/// Upstreams that are slower than the best by no more than this share its load.
const LIKE_SPEED: Nanos = Nanos::from_millis(20);

/// Names a socket: the number of its server and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketId {
    pub(super) server: usize,
    pub(super) socket: usize,
}

/// Poller tokens below this are not upstream sockets.
pub(super) const FIRST_TOKEN: usize = 1 << 16;

impl SocketId {
    fn token(self) -> usize {
        FIRST_TOKEN + (self.server << 16 | self.socket)
    }

    pub(super) fn of_token(token: usize) -> Option<SocketId> {
        let bits = token.checked_sub(FIRST_TOKEN)?;
        Some(SocketId { server: bits >> 16, socket: bits & 0xffff })
    }
}

/// A source port.
struct Socket {
    endpoint: Endpoint,
    /// The questions that it waits for.
    ids: FxHashMap<u16, FetchId>,
    used: u32,
}

/// An upstream as one worker knows it.
pub(super) struct Server {
    address: SocketAddr,
    sockets: Vec<Option<Socket>>,
    queue: SendQueue,
    /// The socket of this turn: its questions leave together, with ids of their own.
    turn: Option<usize>,
    health: Health,
    /// It answered a question with EDNS with FORMERR or NOTIMP.
    pub(super) plain: bool,
}

/// How an upstream does (RFC 6298 for the round-trip time).
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    smoothed: Option<(Nanos, Nanos)>,
    failures: u32,
    backoff: Nanos,
    down_until: Nanos,
    /// When the log last said that it is left alone, and whether it has said since that it is back.
    told: Option<Nanos>,
    told_back: bool,
}

/// All upstreams. Numbers stay when the configuration is read again; servers that are no longer in it are not asked.
#[derive(Default)]
pub(super) struct Upstreams {
    servers: Vec<Server>,
    /// Number of the server for each upstream of the settings.
    of_settings: Vec<usize>,
}

impl Upstreams {
    /// Takes over a new configuration; what is known of servers that stay stays.
    pub(super) fn configure(&mut self, upstreams: &[Upstream], ports: u16) {
        self.of_settings.clear();
        for upstream in upstreams {
            let known = self.servers.iter().position(|server| server.address == upstream.address);
            let number = known.unwrap_or_else(|| {
                self.servers.push(Server::new(upstream.address));
                self.servers.len() - 1
            });
            self.servers[number].sockets.resize_with(usize::from(ports), || None);
            self.of_settings.push(number);
        }
    }

    pub(super) fn server(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    pub(super) fn address(&self, number: usize) -> SocketAddr {
        self.servers[number].address
    }

    /// The server to ask next: among those of `route` that are up and not in `tried`, a fast one by weight; if there is none,
    /// any that has not been tried, or the one that has been left alone longest. `None` if all have been tried and
    /// `again` is false.
    pub(super) fn choose(
        &mut self,
        route: &[usize],
        upstreams: &[Upstream],
        tried: &[usize],
        now: Nanos,
        rng: &mut StdRng,
    ) -> usize {
        let number = |upstream: &usize| self.of_settings[*upstream];
        if let [only] = route {
            return number(only);
        }
        let fresh = |number: &usize| !tried.contains(number);
        let candidates: Vec<(usize, u32)> = route
            .iter()
            .map(|upstream| (number(upstream), upstreams[*upstream].weight))
            .filter(|(number, _)| fresh(number) && self.servers[*number].health.down_until <= now)
            .collect();
        let speed = |number: usize| self.servers[number].health.smoothed.map_or(Nanos(0), |(srtt, _)| srtt);
        let best = candidates.iter().map(|(number, _)| speed(*number)).min();
        let Some(best) = best else {
            let rest: Vec<usize> = route.iter().map(number).filter(fresh).collect();
            let rest = if rest.is_empty() { route.iter().map(number).collect() } else { rest };
            let longest = rest.into_iter().min_by_key(|&number| self.servers[number].health.down_until);
            return longest.expect("a route has an upstream");
        };
        let like: Vec<(usize, u32)> =
            candidates.into_iter().filter(|(number, _)| speed(*number) <= best + LIKE_SPEED).collect();
        let mut ticket = rng.random_range(0..like.iter().map(|(_, weight)| u64::from(*weight)).sum::<u64>());
        let mut chosen = like[0].0;
        for (number, weight) in like {
            chosen = number;
            match ticket.checked_sub(u64::from(weight)) {
                Some(left) => ticket = left,
                None => break,
            }
        }
        let health = &mut self.servers[chosen].health;
        if health.failures >= FAILURES {
            // It was down: one question finds out whether it is back, the others go elsewhere meanwhile.
            health.down_until = now + Nanos::SECOND;
        }
        chosen
    }

    /// Whether the route has a server that has not been tried.
    pub(super) fn has_another(&self, route: &[usize], tried: &[usize]) -> bool {
        route.iter().any(|upstream| !tried.contains(&self.of_settings[*upstream]))
    }

    /// Sends the questions of this turn. Those of a server that refuses them are found by their sockets.
    pub(super) fn flush(&mut self) -> Flushed {
        let mut all = Flushed::default();
        for server in &mut self.servers {
            let flushed = server.flush();
            all.sent += flushed.sent;
            all.refused += flushed.refused;
            server.turn = None;
        }
        all
    }
}

impl Server {
    fn new(address: SocketAddr) -> Server {
        Server {
            address,
            sockets: Vec::new(),
            queue: SendQueue::new(),
            turn: None,
            health: Health::default(),
            plain: false,
        }
    }

    /// Queues a question, written by `write` with the id that it is given.
    ///
    /// # Errors
    /// If there is no route to the server, or no file descriptor left.
    pub(super) fn ask(
        &mut self,
        number: usize,
        fetch: FetchId,
        poller: &Poller,
        rng: &mut StdRng,
        write: impl FnOnce(u16, &mut Vec<u8>),
    ) -> io::Result<(usize, u16)> {
        if self.queue.is_full() {
            self.flush();
        }
        let at = match self.turn {
            Some(at) => at,
            None => self.draw_socket(number, poller, rng)?,
        };
        self.turn = Some(at);
        let socket = self.sockets[at].as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let id = loop {
            let id = rng.next_u32() as u16;
            if !socket.ids.contains_key(&id) {
                break id;
            }
        };
        socket.ids.insert(id, fetch);
        socket.used += 1;
        let full = socket.ids.len() >= MOST_IDS;
        self.queue.push(None, |out| write(id, out));
        if full {
            self.flush();
            self.turn = None;
        }
        Ok((at, id))
    }

    /// A random source port. One that has been used long enough is replaced as soon as nothing is expected on it.
    fn draw_socket(&mut self, number: usize, poller: &Poller, rng: &mut StdRng) -> io::Result<usize> {
        let worn = |socket: &Option<Socket>| socket.as_ref().is_some_and(|s| s.used >= USES || s.ids.len() >= MOST_IDS);
        let mut at = rng.random_range(0..self.sockets.len());
        for _ in 0..8 {
            match &self.sockets[at] {
                Some(socket) if worn(&self.sockets[at]) && !socket.ids.is_empty() => {
                    at = rng.random_range(0..self.sockets.len());
                }
                _ => break,
            }
        }
        let replace = self.sockets[at].as_ref().is_none_or(|socket| socket.used >= USES && socket.ids.is_empty());
        if replace {
            // Closed first: the poller forgets it with the close.
            self.sockets[at] = None;
            let endpoint = Endpoint::connect(self.address)?;
            endpoint.use_receive_offload();
            poller.add(&endpoint, SocketId { server: number, socket: at }.token())?;
            self.sockets[at] = Some(Socket { endpoint, ids: FxHashMap::default(), used: 0 });
        }
        Ok(at)
    }

    fn flush(&mut self) -> Flushed {
        match self.turn.and_then(|at| self.sockets[at].as_ref()) {
            Some(socket) => self.queue.flush(&socket.endpoint),
            None => Flushed::default(),
        }
    }

    pub(super) fn endpoint(&self, socket: usize) -> Option<&Endpoint> {
        self.sockets.get(socket)?.as_ref().map(|socket| &socket.endpoint)
    }

    /// The question that a reply with this id would be to.
    #[inline]
    pub(super) fn expects(&self, socket: usize, id: u16) -> Option<FetchId> {
        self.sockets.get(socket)?.as_ref()?.ids.get(&id).copied()
    }

    /// The questions that wait on a socket.
    pub(super) fn waiting_on(&self, socket: usize) -> Vec<FetchId> {
        let socket = self.sockets.get(socket).and_then(Option::as_ref);
        socket.map(|socket| socket.ids.values().copied().collect()).unwrap_or_default()
    }

    /// Nothing more is expected under this id.
    #[inline]
    pub(super) fn forget(&mut self, socket: usize, id: u16) {
        if let Some(socket) = self.sockets.get_mut(socket).and_then(Option::as_mut) {
            socket.ids.remove(&id);
        }
    }

    /// How long to wait for an answer before asking again.
    pub(super) fn patience(&self) -> Nanos {
        let Some((srtt, var)) = self.health.smoothed else { return FIRST_RTO };
        Nanos((srtt.0 + 4 * var.0).clamp(LEAST_RTO.0, MOST_RTO.0))
    }

    /// It answered after `rtt`.
    pub(super) fn answered(&mut self, rtt: Nanos) {
        let (srtt, var) = match self.health.smoothed {
            None => (rtt.0, rtt.0 / 2),
            Some((srtt, var)) => ((7 * srtt.0 + rtt.0) / 8, (3 * var.0 + srtt.0.abs_diff(rtt.0)) / 4),
        };
        let Health { failures, told, mut told_back, .. } = self.health;
        if failures >= FAILURES && !told_back {
            tracing::info!("upstream {} answers again", self.address);
            told_back = true;
        }
        self.health = Health { smoothed: Some((Nanos(srtt), Nanos(var))), told, told_back, ..Health::default() };
    }

    /// It did not answer, or could not be reached.
    pub(super) fn failed(&mut self, now: Nanos, why: &str) {
        let health = &mut self.health;
        health.failures = health.failures.saturating_add(1);
        if health.failures >= FAILURES && health.down_until <= now {
            if health.failures == FAILURES && health.told.is_none_or(|told| now.since(told) > TELL_AGAIN) {
                (health.told, health.told_back) = (Some(now), false);
                tracing::warn!("upstream {} is left alone for a while: {why}", self.address);
            }
            health.backoff = Nanos((health.backoff.0 * 2).clamp(FIRST_BACKOFF.0, MOST_BACKOFF.0));
            health.down_until = now + health.backoff;
        }
    }
}
