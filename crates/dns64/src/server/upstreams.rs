//! The servers that we ask: their sockets, how fast they are, and whether they answer at all (items 32, 43).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use method::units::Nanos;
use net::poller::Poller;
use net::queue::{Flushed, SendQueue};
use net::socket::Endpoint;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use rustc_hash::FxHashMap;

use super::fetches::FetchId;
use crate::config::Upstream;
use crate::metrics::{Metrics, UpstreamMetrics};

/// Questions that a source port is used for before another takes its place.
const USES: u32 = 10_000;
/// Ids of a source port that may be in use: half of them, so that a free one is found by guessing.
pub(super) const MOST_IDS: usize = 32_768;
/// How long an upstream is taken to need before it has answered once.
const FIRST_RTO: Nanos = Nanos::from_millis(400);
/// Not shorter, however fast the upstream is: one that is merely busy for a moment must not be asked everything twice.
pub(super) const LEAST_RTO: Nanos = Nanos::from_millis(200);
const MOST_RTO: Nanos = Nanos::from_millis(800);
/// Timeouts in a row after which an upstream is left alone, and for how long: doubled each time.
const FAILURES: u32 = 3;
const FIRST_BACKOFF: Nanos = Nanos::SECOND;
const MOST_BACKOFF: Nanos = Nanos::from_millis(30_000);
/// The log says at most once in this time that an upstream does not answer.
const TELL_AGAIN: Nanos = Nanos::from_millis(10_000);
/// Upstreams that are slower than the best by no more than this share its load.
const LIKE_SPEED: Nanos = Nanos::from_millis(20);
/// One question in so many goes to any upstream that is up, so that one that has become fast again is noticed.
const EXPLORE: u32 = 64;
/// Questions that are asked once more of the same upstream: so many at once,
const AGAIN: u64 = 1_000;
/// then one in this time,
const AGAIN_EACH: Nanos = Nanos::from_millis(10);
/// and one for so many answers besides. An upstream that only has too much to do gets no more to do because of that.
const ANSWERS_FOR_AGAIN: u64 = 8;
/// How long an upstream that has been found not to speak EDNS is asked without.
const PLAIN: Nanos = Nanos::from_millis(600_000);

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
    /// The source ports, and beyond `ports` those of an older configuration until what they expect has come.
    sockets: Vec<Option<Socket>>,
    /// How many source ports may be used; none if the server is no longer in the configuration.
    ports: usize,
    queue: SendQueue,
    /// The socket of this turn: its questions leave together, with ids of their own.
    turn: Option<usize>,
    health: Health,
    metrics: Arc<UpstreamMetrics>,
    /// When it may be asked [`AGAIN`] questions again at once.
    again_whole_at: Nanos,
    /// It answers questions without EDNS that it does not answer with EDNS, and is asked without until then.
    plain_until: Nanos,
}

/// How an upstream does (RFC 6298 for the round-trip time).
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    smoothed: Option<(Nanos, Nanos)>,
    failures: u32,
    backoff: Nanos,
    down_until: Nanos,
    /// It was down, and one question is under way that finds out whether it still is.
    probed: bool,
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
    pub(super) fn configure(&mut self, upstreams: &[Upstream], ports: u16, metrics: &Metrics) {
        self.of_settings.clear();
        for server in &mut self.servers {
            server.ports = 0;
        }
        for upstream in upstreams {
            let known = self.servers.iter().position(|server| server.address == upstream.address);
            let number = known.unwrap_or_else(|| {
                self.servers.push(Server::new(upstream.address, metrics.add_upstream(upstream.address)));
                self.servers.len() - 1
            });
            let server = &mut self.servers[number];
            server.ports = usize::from(ports);
            let sockets = server.sockets.len().max(server.ports);
            server.sockets.resize_with(sockets, || None);
            self.of_settings.push(number);
        }
        for server in &mut self.servers {
            for at in server.ports..server.sockets.len() {
                server.close_if_done(at);
            }
            server.tell_metrics();
        }
    }

    pub(super) fn server(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    pub(super) fn address(&self, number: usize) -> SocketAddr {
        self.servers[number].address
    }

    /// The server to ask next: among those of `route` that are up and not in `tried`, a fast one by weight; if there is none,
    /// any that has not been tried; or one that may be asked again, that is up if there is one, or has been left alone longest.
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
        let speed = |number: usize| self.servers[number].health.speed();
        let best = candidates.iter().map(|(number, _)| speed(*number)).min();
        let Some(best) = best else {
            let rest: Vec<usize> = route.iter().map(number).filter(fresh).collect();
            let rest = if rest.is_empty() { route.iter().map(number).collect() } else { rest };
            let longest = rest.into_iter().min_by_key(|&number| {
                let server = &self.servers[number];
                (server.health.down_until.max(now), server.next_again(now).is_none())
            });
            return longest.expect("a route has an upstream");
        };
        let any = rng.random_ratio(1, EXPLORE);
        let like: Vec<(usize, u32)> =
            candidates.into_iter().filter(|(number, _)| any || speed(*number) <= best + LIKE_SPEED).collect();
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
        if health.is_down() {
            // It was down: one question finds out whether it is back, the others go elsewhere meanwhile.
            health.down_until = now + Nanos::SECOND;
            health.probed = true;
        }
        chosen
    }

    /// Whether the route has a server that has not been tried and is not left alone.
    pub(super) fn has_another(&self, route: &[usize], tried: &[usize], now: Nanos) -> bool {
        let is_up = |number: usize| !self.servers[number].is_left_alone(now);
        route.iter().map(|upstream| self.of_settings[*upstream]).any(|number| !tried.contains(&number) && is_up(number))
    }

    /// Sends the questions of this turn. Returns the sockets on which the kernel refused some: an ICMP message has come for
    /// what was sent there before.
    pub(super) fn flush(&mut self) -> Vec<SocketId> {
        let mut refused = Vec::new();
        for (number, server) in self.servers.iter_mut().enumerate() {
            let flushed = server.flush();
            let Some(socket) = server.turn.take() else { continue };
            server.close_if_done(socket);
            if flushed.unreachable {
                refused.push(SocketId { server: number, socket });
            }
        }
        refused
    }
}

impl Socket {
    fn has_room(&self) -> bool {
        self.ids.len() < MOST_IDS
    }

    /// Whether nothing is expected on it.
    fn is_done(&self) -> bool {
        self.ids.is_empty()
    }
}

impl Health {
    /// Whether it is taken for dead.
    fn is_down(&self) -> bool {
        self.failures >= FAILURES
    }

    /// The round-trip time by which it is chosen. One that was never asked is taken for fast, so that it is.
    fn speed(&self) -> Nanos {
        match self.smoothed {
            Some((srtt, _)) => srtt,
            None if self.failures > 0 => FIRST_RTO,
            None => Nanos(0),
        }
    }
}

/// Whether a question could not be sent for a reason that is no fault of the server or of the way to it.
pub(super) fn is_ours(error: &io::Error) -> bool {
    let out_of_room = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.kind() == io::ErrorKind::QuotaExceeded || error.raw_os_error().is_some_and(|code| out_of_room.contains(&code))
}

impl Server {
    fn new(address: SocketAddr, metrics: Arc<UpstreamMetrics>) -> Server {
        Server {
            address,
            sockets: Vec::new(),
            ports: 0,
            queue: SendQueue::new(),
            turn: None,
            health: Health::default(),
            metrics,
            again_whole_at: Nanos(0),
            plain_until: Nanos(0),
        }
    }

    /// Queues a question, written by `write` with the id that it is given.
    ///
    /// # Errors
    /// If there is no route to the server, no file descriptor left, or no id free on any source port ([`is_ours`]).
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
        // Half of the ids are free: `draw_socket` sees to it, and the end of this function.
        let id = loop {
            let id = rng.next_u32() as u16;
            if !socket.ids.contains_key(&id) {
                break id;
            }
        };
        socket.ids.insert(id, fetch);
        socket.used += 1;
        self.metrics.asked();
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
        let ports = self.ports.max(1).min(self.sockets.len());
        let mut at = rng.random_range(0..ports);
        for _ in 0..8 {
            if self.sockets[at]
                .as_ref()
                .is_none_or(|socket| socket.used < USES && socket.has_room() || socket.is_done())
            {
                break;
            }
            at = rng.random_range(0..ports);
        }
        if self.sockets[at].as_ref().is_none_or(|socket| socket.used >= USES && socket.is_done()) {
            match self.open(number, at, poller) {
                Ok(()) => return Ok(at),
                // Out of file descriptors, perhaps: one that is open will do.
                Err(error) if self.sockets.iter().all(Option::is_none) => return Err(error),
                Err(_) => {}
            }
        }
        let has_room = |at: usize| self.sockets[at].as_ref().is_some_and(Socket::has_room);
        if has_room(at) {
            return Ok(at);
        }
        (0..ports).find(|&at| has_room(at)).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// Puts a new socket in the place of an old one, which is closed, and with that forgotten by the poller.
    fn open(&mut self, number: usize, at: usize, poller: &Poller) -> io::Result<()> {
        let endpoint = Endpoint::connect(self.address)?;
        endpoint.use_receive_offload();
        poller.add(&endpoint, SocketId { server: number, socket: at }.token())?;
        self.sockets[at] = Some(Socket { endpoint, ids: FxHashMap::default(), used: 0 });
        Ok(())
    }

    /// Closes a source port that the configuration no longer has, once nothing is expected on it.
    fn close_if_done(&mut self, at: usize) {
        if at >= self.ports && self.turn != Some(at) && self.sockets[at].as_ref().is_some_and(Socket::is_done) {
            self.sockets[at] = None;
        }
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
    pub(super) fn forget(&mut self, at: usize, id: u16) {
        if let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) {
            socket.ids.remove(&id);
            self.close_if_done(at);
        }
    }

    /// Whether it has failed so often that it is not asked for a while.
    pub(super) fn is_left_alone(&self, now: Nanos) -> bool {
        now < self.health.down_until
    }

    /// Whether it is to be asked without EDNS.
    pub(super) fn is_plain(&self, now: Nanos) -> bool {
        now < self.plain_until
    }

    /// It has answered without EDNS what it did not answer with EDNS.
    pub(super) fn found_plain(&mut self, now: Nanos) {
        self.plain_until = now + PLAIN;
    }

    /// How long to wait for an answer before asking again: longer than RFC 6298 has it, as the round-trip time of an upstream
    /// that gets more than it can answer grows from question to question.
    pub(super) fn patience(&self) -> Nanos {
        let Some((srtt, var)) = self.health.smoothed else { return FIRST_RTO };
        Nanos((2 * srtt.0 + 4 * var.0).clamp(LEAST_RTO.0, MOST_RTO.0))
    }

    /// Whether one more question may be asked again, which is counted as done. Where most time out, asking everything twice
    /// only makes it worse, and would go on when the reason is gone.
    pub(super) fn may_ask_again(&mut self, now: Nanos) -> bool {
        let next = self.next_again(now);
        self.again_whole_at = next.unwrap_or(self.again_whole_at);
        next.is_some()
    }

    /// What [`Server::again_whole_at`] will be when one more question has been asked again; `None` if none may be.
    fn next_again(&self, now: Nanos) -> Option<Nanos> {
        let next = self.again_whole_at.max(now) + AGAIN_EACH;
        (next <= now + Nanos(AGAIN * AGAIN_EACH.0)).then_some(next)
    }

    /// It answered after `rtt`, be it an error, which is no reason to prefer it.
    pub(super) fn answered(&mut self, rtt: Nanos, is_error: bool) {
        self.again_whole_at = Nanos(self.again_whole_at.0.saturating_sub(AGAIN_EACH.0 / ANSWERS_FOR_AGAIN));
        self.metrics.answered(rtt);
        let rtt = if is_error { rtt.max(FIRST_RTO) } else { rtt };
        let (srtt, var) = match self.health.smoothed {
            None => (rtt.0, rtt.0 / 2),
            Some((srtt, var)) => ((7 * srtt.0 + rtt.0) / 8, (3 * var.0 + srtt.0.abs_diff(rtt.0)) / 4),
        };
        let Health { told, mut told_back, .. } = self.health;
        if self.health.is_down() && !told_back {
            tracing::info!("upstream {} answers again", self.address);
            told_back = true;
        }
        self.health = Health { smoothed: Some((Nanos(srtt), Nanos(var))), told, told_back, ..Health::default() };
        self.tell_metrics();
    }

    /// It did not answer, or could not be reached.
    pub(super) fn failed(&mut self, now: Nanos, why: &str) {
        let health = &mut self.health;
        self.metrics.failed();
        health.failures = health.failures.saturating_add(1);
        if health.is_down() && (health.down_until <= now || std::mem::take(&mut health.probed)) {
            if health.failures == FAILURES && health.told.is_none_or(|told| now.since(told) > TELL_AGAIN) {
                (health.told, health.told_back) = (Some(now), false);
                tracing::warn!("upstream {} is left alone for a while: {why}", self.address);
            }
            health.backoff = Nanos((health.backoff.0 * 2).clamp(FIRST_BACKOFF.0, MOST_BACKOFF.0));
            health.down_until = now + health.backoff;
        }
        self.tell_metrics();
    }

    /// Shows whether it is taken for dead; one that is no longer in the configuration is not.
    fn tell_metrics(&self) {
        self.metrics.set_down(self.ports > 0 && self.health.is_down());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolver::cache::Cache;
    use rand::SeedableRng;
    use slab::Slab;

    /// Ids of fetches are all alike here.
    fn fetch() -> FetchId {
        super::super::fetches::tests::any_id()
    }

    #[test]
    fn item_42_a_server_whose_ids_are_all_in_use_refuses() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let poller = Poller::new(8).unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        let mut upstreams = Upstreams::default();
        upstreams.configure(&[Upstream { address: silent.local_addr().unwrap(), weight: 1 }], 2, &Metrics::new(1));
        let mut asked: Slab<(usize, u16)> = Slab::new();
        let mut ask = |upstreams: &mut Upstreams| {
            let asked = upstreams.server(0).ask(0, fetch(), &poller, &mut rng, |_, out| out.push(0));
            upstreams.flush();
            asked
        };
        for _ in 0..2 * MOST_IDS {
            asked.insert(ask(&mut upstreams).unwrap());
        }
        let error = ask(&mut upstreams).unwrap_err();
        assert!(is_ours(&error), "{error}");
        // What is no longer expected makes room again.
        let (socket, id) = asked.remove(0);
        upstreams.server(0).forget(socket, id);
        assert!(ask(&mut upstreams).is_ok());
    }

    #[test]
    fn item_43_questions_are_asked_again_as_far_as_answers_come() {
        let address = "127.0.0.1:1".parse().unwrap();
        let mut server = Server::new(address, Metrics::new(1).add_upstream(address));
        let again = |server: &mut Server, ms| {
            let now = Nanos::SECOND + Nanos::from_millis(ms);
            (0..100_000).filter(|_| server.may_ask_again(now)).count() as u64
        };
        assert_eq!(again(&mut server, 0), AGAIN);
        assert_eq!(again(&mut server, 1_000), 100);
        for _ in 0..800 {
            server.answered(Nanos::from_millis(1), false);
        }
        assert_eq!(again(&mut server, 1_000), 800 / ANSWERS_FOR_AGAIN);
        // What is not used is not kept for later.
        for _ in 0..100_000 {
            server.answered(Nanos::from_millis(1), false);
        }
        assert_eq!(again(&mut server, 100_000), AGAIN);
    }

    #[test]
    fn item_43_of_servers_that_have_been_asked_one_that_may_be_asked_again_is() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|a| Upstream { address: a.parse().unwrap(), weight: 1 });
        let mut upstreams = Upstreams::default();
        upstreams.configure(&addresses, 1, &Metrics::new(1));
        let mut rng = StdRng::seed_from_u64(1);
        let mut choose =
            |upstreams: &mut Upstreams| upstreams.choose(&[0, 1], &addresses, &[0, 1], Nanos::SECOND, &mut rng);
        while upstreams.server(0).may_ask_again(Nanos::SECOND) {}
        assert_eq!(choose(&mut upstreams), 1);
        // One that is left alone is not.
        for _ in 0..FAILURES {
            upstreams.server(1).failed(Nanos::SECOND, "silent");
        }
        assert_eq!(choose(&mut upstreams), 0);
    }

    #[test]
    fn like_servers_share_the_load_by_weight_and_slow_ones_are_only_explored() {
        let upstream = |address: &str, weight| Upstream { address: address.parse().unwrap(), weight };
        let all = [upstream("127.0.0.1:1", 1), upstream("127.0.0.1:2", 3), upstream("127.0.0.1:3", 1000)];
        let mut upstreams = Upstreams::default();
        upstreams.configure(&all, 1, &Metrics::new(1));
        for (number, ms) in [(0, 1), (1, 15), (2, 100)] {
            upstreams.server(number).answered(Nanos::from_millis(ms), false);
        }
        let mut rng = StdRng::seed_from_u64(1);
        let mut chosen = [0_u32; 3];
        for _ in 0..64_000 {
            chosen[upstreams.choose(&[0, 1, 2], &all, &[], Nanos::SECOND, &mut rng)] += 1;
        }
        let [light, heavy, slow] = chosen;
        assert!((2.8..3.2).contains(&(f64::from(heavy) / f64::from(light))), "{chosen:?}");
        // One in 64 goes by weight alone.
        assert!((900..1100).contains(&slow), "{chosen:?}");
    }

    #[test]
    fn item_43_a_dead_server_is_probed_less_and_less_often() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|a| Upstream { address: a.parse().unwrap(), weight: 1 });
        let mut upstreams = Upstreams::default();
        upstreams.configure(&addresses, 1, &Metrics::new(1));
        let mut rng = StdRng::seed_from_u64(1);
        upstreams.server(0).answered(Nanos::from_millis(1), false);
        let mut probes = 0;
        for ms in (0..60_000).step_by(10) {
            let now = Nanos::SECOND + Nanos::from_millis(ms);
            if upstreams.choose(&[0, 1], &addresses, &[], now, &mut rng) == 1 {
                probes += 1;
                upstreams.server(1).failed(now + Nanos::from_millis(400), "silent");
            }
        }
        // Three to find out, then after 1, 2, 4, 8, 16 and 30 s (by chance a little later each).
        assert!((4..=10).contains(&probes), "{probes}");
    }

    #[test]
    fn item_43_metrics_show_a_dead_server_as_long_as_it_is_configured() {
        let address = "127.0.0.1:1".parse().unwrap();
        let metrics = Metrics::new(1);
        let mut upstreams = Upstreams::default();
        upstreams.configure(&[Upstream { address, weight: 1 }], 1, &metrics);
        let shown = |down: u8| {
            let text = crate::metrics::to_text(&metrics, &Arc::new(Cache::new(1)));
            let line = format!("dns64d_upstream_server_down{{upstream=\"127.0.0.1:1\"}} {down}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        };
        shown(0);
        (0..FAILURES).for_each(|_| upstreams.server(0).failed(Nanos::SECOND, "silent"));
        shown(1);
        upstreams.configure(&[Upstream { address, weight: 2 }], 1, &metrics);
        shown(1);
        upstreams.configure(&[], 1, &metrics);
        shown(0);
        upstreams.configure(&[Upstream { address, weight: 1 }], 1, &metrics);
        shown(1);
        upstreams.server(0).answered(Nanos::from_millis(1), false);
        shown(0);
    }

    #[test]
    fn ports_that_a_configuration_no_longer_has_are_closed_when_they_are_done() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let of = |weight| [Upstream { address: silent.local_addr().unwrap(), weight }];
        let poller = Poller::new(8).unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        let mut upstreams = Upstreams::default();
        upstreams.configure(&of(1), 16, &Metrics::new(1));
        let mut asked = Vec::new();
        for _ in 0..200 {
            asked.push(upstreams.server(0).ask(0, fetch(), &poller, &mut rng, |_, out| out.push(0)).unwrap());
            upstreams.flush();
        }
        let open = |upstreams: &mut Upstreams| upstreams.server(0).sockets.iter().flatten().count();
        upstreams.configure(&of(1), 1, &Metrics::new(1));
        assert_eq!(open(&mut upstreams), 16, "answers are still expected");
        for (socket, id) in asked {
            assert!(upstreams.server(0).expects(socket, id).is_some());
            upstreams.server(0).forget(socket, id);
        }
        assert_eq!(open(&mut upstreams), 1);
    }
}
