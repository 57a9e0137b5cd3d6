//! One thread of a client: sends queries as its load model allows, receives responses, and times out queries.
//!
//! ```text
//!   ┌─► load model: number of free slots (closed loop), or queries due now (ramp)
//!   │      └─► ask: the next query from the next port with room, sent in groups
//!   │   take: reads the ports' sockets and connections; each response is matched to its query
//!   │      └─► truncated: the same query over TCP
//!   └── give up: queries older than the timeout are lost
//! ```
//!
//! Each thread has its own ports, and each port has its own ids. The threads share only a stop flag. The first thread
//! to stop sets this flag, so that the others stop too. A thread without further queries receives until none of its
//! queries is in flight.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use method::records::{Outcome, Wrong};
use net::affinity::{allowed_cpus, pin_to};
use net::batch::{BATCH, OFFLOAD_LEN, ReceiveBatch, Wait};
use net::clock::{self, ClockPair};
use net::poller::Poller;
use units::{CpuId, Nanos, Qps};
use wire::rcode::Rcode;
use wire::view::Message;

use super::port::{Flight, Flights, Port, port_of};
use super::schedule::{Ending, Ramp, Status};
use super::source::Cursor;
use super::stream::Stream;
use super::tally::Tally;
use super::{Check, ClientSettings, Transport, progress};
use crate::intervals::note;
use crate::measurer::expect::{judge_form, wrong_rcode};

/// Maximum sleep of a thread that only waits for responses.
const IDLE: Duration = Duration::from_millis(10);
/// Maximum sleep of a rate-limited thread while there are more queries to send.
const UNTIL_DUE: Duration = Duration::from_millis(1);
/// Minimum sleep of the threads of a ramp on a host with fewer CPUs than [`BUSY_WAIT_CPUS`].
const PAUSE: Nanos = Nanos::from_micros(50);
/// Minimum number of CPUs with which the threads of a ramp busy-wait. With fewer CPUs, they sleep for at least
/// [`PAUSE`].
const BUSY_WAIT_CPUS: usize = 4;
/// Number of queries that are sent after each reading of the clock.
const GROUP: u64 = 64;
/// Number of queries after which responses are read again.
const BURST: u64 = 256;

/// Load model: rule that determines when queries may be sent.
pub(super) enum LoadModel<'a> {
    /// Sends a query whenever fewer queries than allowed are in flight, at a rate of up to `most` queries per second.
    /// The thread sends until the time `end`, or until the source has no more queries. If the flag `stop` is set, the
    /// thread ends at once.
    Closed {
        end: Option<Nanos>,
        most: Option<Qps>,
        stop: &'a AtomicBool,
        progress: Option<&'a progress::ThreadSums>,
    },
    /// Sends queries when they are due.
    Ramp(Box<RampShare<'a>>),
}

/// State of one thread of a ramp, which sends a part of the ramp's queries.
pub(super) struct RampShare<'a> {
    pub(super) ramp: Ramp,
    /// Time to wait for responses after the end of the ramp.
    pub(super) wait: Nanos,
    pub(super) client_thread: u64,
    pub(super) of: u64,
    /// Number of queries in flight at which the ramp ends.
    pub(super) outstanding: usize,
    /// Maximum number of queries that are due but have not been sent; 0 means unlimited.
    pub(super) behind: u64,
    /// Stop flag shared by all threads. The first thread to end sets this flag, so that all threads end.
    pub(super) over: &'a AtomicBool,
    /// Stop flag, which is set when the user requests a stop.
    pub(super) until: &'a AtomicBool,
    pub(super) asked: u64,
    pub(super) ending: Option<Ending>,
    /// Time at which the thread stopped sending, measured from the start of the ramp.
    pub(super) ended: Nanos,
    pub(super) lateness: Histogram<u64>,
    pub(super) burns: bool,
    pub(super) watch: &'a (dyn Fn(Status) + Sync),
    /// True if it has been reported that the rate has reached its maximum, or if no such report is needed.
    pub(super) on_plateau: bool,
}

impl RampShare<'_> {
    /// Returns true if a ramp's threads should busy-wait.
    pub(super) fn can_busy_wait() -> bool {
        allowed_cpus().len() >= BUSY_WAIT_CPUS
    }

    /// Returns the number of this thread's queries that are due by `moment`, which is measured from the start of the
    /// ramp.
    fn count(&self, moment: Nanos) -> u64 {
        (self.ramp.due(moment) + self.of - 1 - self.client_thread) / self.of
    }

    /// Returns the reason for which the thread must stop; `None` if the thread continues. `passed` is the time since
    /// the start of the ramp.
    fn ending_after(&self, passed: Nanos) -> Option<Ending> {
        let rate = self.ramp.rate(passed);
        let behind = self.count(passed).saturating_sub(self.asked);
        if self.behind > 0 && behind > self.behind {
            return Some(Ending::Behind { queries: behind * self.of, rate });
        }
        if self.until.load(Ordering::Relaxed) {
            return Some(Ending::Interrupted);
        }
        let left = self.count(self.ramp.length()).saturating_sub(self.asked);
        if passed >= self.ramp.length() && left == 0 {
            return Some(Ending::Time);
        }
        // A thread that still has queries to send one second after the end of the ramp was too slow.
        let is_over = passed >= self.ramp.length() + Nanos::SECOND;
        is_over.then_some(Ending::Behind { queries: left * self.of, rate })
    }

    /// Returns true if sending has ended and the time for responses is over. `passed` is the time after the start.
    fn is_over(&self, passed: Nanos) -> bool {
        self.ending.is_some() && passed >= self.ramp.length() + self.wait
    }

    /// Returns the send time of the thread's next query.
    fn next(&self) -> Nanos {
        self.ramp.deadline(self.asked * self.of + self.client_thread)
    }
}

/// Result of an attempt to send a query.
enum SendAttempt {
    SentQuestion,
    NoRoom,
    NoMore,
}

/// Result of sending a query that is due.
enum Step {
    SentQuestion,
    /// The query must wait for a connection.
    Waits,
    Ends(Ending),
}

/// Classification of a received packet.
enum Reply {
    /// The response to a query in flight.
    Matched,
    /// A response that matches no query in flight.
    Unmatched,
    /// A truncated response. The query with this id must be retried over TCP.
    Truncated(u16),
}

/// State of one client thread.
pub(super) struct ClientThread<'a> {
    settings: &'a ClientSettings,
    cpu: Option<CpuId>,
    poller: Poller,
    ports: Vec<Port>,
    next_port: usize,
    cursor: Cursor,
    start: Nanos,
    /// True if the last call of `send_all` sent all allowed queries; false if it stopped after a burst so that
    /// responses are read.
    is_filled: bool,
    pub(super) tally: Tally,
}

impl<'a> ClientThread<'a> {
    /// Creates a thread with `ports` ports. The thread has at most `room` queries in flight on all its ports together.
    /// `first_port` is the index of its first port among the ports of all threads.
    pub(super) fn new(
        settings: &'a ClientSettings,
        cpu: Option<CpuId>,
        first_port: usize,
        ports: usize,
        room: usize,
        cursor: Cursor,
    ) -> io::Result<ClientThread<'a>> {
        let poller = Poller::new(ports * 2)?;
        let port =
            |i: usize| Port::new(settings, first_port + i, i, share(room, i, ports), &poller);
        let ports = (0..ports).map(port).collect::<io::Result<_>>()?;
        let tally = Tally::new(settings.interval);
        Ok(ClientThread {
            settings,
            cpu,
            poller,
            ports,
            next_port: 0,
            cursor,
            start: Nanos(0),
            is_filled: true,
            tally,
        })
    }

    /// Sends queries from the time `start` on, whenever the load model `load_model` allows a query. Returns when all
    /// queries are answered or given up.
    pub(super) fn run(
        mut self,
        start: Nanos,
        load_model: &mut LoadModel<'_>,
    ) -> io::Result<ClientThread<'a>> {
        if let Some(cpu) = self.cpu {
            pin_to(cpu)?;
        }
        if matches!(load_model, LoadModel::Ramp(_)) {
            clock::use_exact_timers();
        }
        self.start = start;
        self.tally.last_answer = start;
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        loop {
            let more = match load_model {
                LoadModel::Closed { stop, .. } if stop.load(Ordering::Relaxed) => {
                    // Replies that have arrived before the interruption are still counted.
                    self.take(Duration::ZERO, &mut batch)?;
                    self.tally.interrupt(self.in_flight() as u64);
                    self.conclude();
                    return Ok(self);
                }
                LoadModel::Closed { end, most, .. } => self.send_all(*end, *most),
                LoadModel::Ramp(due) => self.send_due(due, &mut batch)?,
            };
            if !more && self.in_flight() == 0 {
                self.conclude();
                return Ok(self);
            }
            let idle = match load_model {
                LoadModel::Ramp(due) if more => {
                    self.pause(due);
                    Duration::ZERO
                }
                LoadModel::Closed { .. } if more && !self.is_filled => Duration::ZERO,
                LoadModel::Closed { most: Some(_), .. } if more => UNTIL_DUE,
                _ => IDLE,
            };
            // The clock is read before `take`, so that a query is given up only after all packets that arrived before
            // its timeout have been read.
            let now = clock::now();
            self.take(idle, &mut batch)?;
            self.give_up(now);
            if matches!(load_model, LoadModel::Ramp(due) if due.is_over(now.since(start))) {
                self.give_up_sent_before(Nanos(u64::MAX), |_| true);
            }
            if let LoadModel::Closed { progress: Some(progress), .. } = load_model {
                progress.set(&self.tally.counts);
            }
            if let Some(error) = self.is_unreachable(now) {
                return Err(error);
            }
        }
    }

    /// Adds the sockets' counters to the tally.
    fn conclude(&mut self) {
        for port in &self.ports {
            self.tally.client_drops +=
                port.udp.as_ref().map_or(0, |(endpoint, _)| endpoint.drops());
            self.tally.connections.failed += port.refused.0;
        }
    }

    /// Returns a connection error if none of the thread's attempts to connect has succeeded within the time limit. The
    /// limit is the query timeout, but at least 1 s, from the first attempt on.
    fn is_unreachable(&mut self, now: Nanos) -> Option<io::Error> {
        if self.settings.transport != Transport::Tcp || self.tally.connections.made > 0 {
            return None;
        }
        let first = self.ports.iter().filter_map(|port| port.first_try).min()?;
        if now.since(first) < self.settings.timeout.max(Nanos::SECOND) {
            return None;
        }
        let refused = self.ports.iter_mut().find_map(|port| port.refused.1.take());
        Some(refused.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::TimedOut, "no TCP connection could be established")
        }))
    }

    fn in_flight(&self) -> usize {
        self.ports.iter().map(|port| port.flights.in_flight).sum()
    }

    /// Sleeps until the next query is due, at most 1 ms.
    fn pause(&self, due: &RampShare<'_>) {
        let now = clock::now();
        let next = self.start + due.next();
        if due.burns && next < now + PAUSE {
            return;
        }
        clock::sleep_until(next.clamp(now + PAUSE, now + Nanos::from_millis(1)));
    }

    /// Sends queries from one port after another. Each port sends until no further query is allowed, or until its burst
    /// is complete. The average rate since the start is at most `most` queries per second. Returns false after the time
    /// `end`, or when there are no more queries.
    fn send_all(&mut self, end: Option<Nanos>, most: Option<Qps>) -> bool {
        let mut now = clock::now();
        if end.is_some_and(|end| now >= end) {
            return false;
        }
        let due = most.map_or(u64::MAX, |most| {
            1 + (now.since(self.start).as_secs_f64() * most.0 as f64) as u64
        });
        let unix = unix_seconds();
        let mut more = true;
        self.is_filled = true;
        for at in 0..self.ports.len() {
            for asked in 1u64.. {
                // Queries sent together share one timestamp. Responses are read after every burst, even if slots are
                // still free.
                if asked.is_multiple_of(GROUP) {
                    self.flush(at);
                    now = clock::now();
                    if asked.is_multiple_of(BURST) {
                        self.is_filled = false;
                        break;
                    }
                }
                if self.tally.counts.sent >= due {
                    break;
                }
                match self.ask(at, now, unix) {
                    SendAttempt::SentQuestion => {}
                    SendAttempt::NoRoom => break,
                    SendAttempt::NoMore => {
                        more = false;
                        break;
                    }
                }
            }
            self.flush(at);
        }
        more
    }

    /// Sends the queries that are due. Returns false when there are no more queries.
    fn send_due(&mut self, due: &mut RampShare<'_>, batch: &mut ReceiveBatch) -> io::Result<bool> {
        if due.ending.is_some() {
            return Ok(false);
        }
        let unix = unix_seconds();
        let mut ending = None;
        let until = due.count(clock::now().since(self.start));
        while due.asked < until && ending.is_none() {
            let now = clock::now();
            let late = now.since(self.start).since(due.next());
            // The clock is read once per group, because reading it costs as much as sending a query.
            let group = (until - due.asked).min(16);
            let in_flight = self.in_flight();
            let mut waits = false;
            for more in 0..group as usize {
                let step = if in_flight + more >= due.outstanding {
                    Step::Ends(Ending::Outstanding { queries: due.outstanding * due.of as usize })
                } else {
                    self.send_one(due, now, unix)
                };
                match step {
                    Step::SentQuestion => {}
                    Step::Waits => waits = true,
                    Step::Ends(why) => ending = Some(why),
                }
                if waits || ending.is_some() {
                    break;
                }
                note(&mut due.lateness, late);
                due.asked += 1;
            }
            for at in 0..self.ports.len() {
                self.flush(at);
            }
            if due.asked % BURST < group {
                self.take(Duration::ZERO, batch)?;
            }
            if waits {
                break;
            }
        }
        let passed = clock::now().since(self.start);
        if !due.on_plateau && passed >= due.ramp.growing {
            due.on_plateau = true;
            if due.client_thread == 0 {
                (due.watch)(Status::Plateau);
            }
        }
        let ending = ending.or_else(|| due.ending_after(passed));
        if ending.is_some() || due.over.load(Ordering::Relaxed) {
            // All threads end together. The first thread to end records the reason.
            let first = !due.over.swap(true, Ordering::Relaxed);
            due.ending = Some(if first { ending.unwrap_or(Ending::Time) } else { Ending::Other });
            if first {
                (due.watch)(Status::Ended(due.ending.unwrap_or(Ending::Other)));
            }
            due.ended = passed;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sends one query from the next port on which one more query may be in flight.
    fn send_one(&mut self, due: &RampShare<'_>, now: Nanos, unix: u64) -> Step {
        for _ in 0..self.ports.len() {
            let at = self.next_port;
            self.next_port = (at + 1) % self.ports.len();
            match self.ask(at, now, unix) {
                SendAttempt::SentQuestion => return Step::SentQuestion,
                SendAttempt::NoRoom => {}
                SendAttempt::NoMore => {
                    return Step::Ends(Ending::NoMore {
                        rate: due.ramp.rate(now.since(self.start)),
                    });
                }
            }
        }
        // Queries that wait for a connection are limited by the maximum backlog instead.
        let connecting = self.settings.transport == Transport::Tcp
            && self
                .ports
                .iter()
                .any(|port| port.stream.as_ref().is_none_or(|stream| !stream.is_open()));
        if connecting {
            Step::Waits
        } else {
            Step::Ends(Ending::Outstanding { queries: self.in_flight() })
        }
    }

    #[inline]
    fn ask(&mut self, at: usize, now: Nanos, unix: u64) -> SendAttempt {
        let ClientThread { settings, poller, ports, cursor, tally, start, .. } = self;
        let port = &mut ports[at];
        if port.flights.in_flight >= port.most
            || settings.transport == Transport::Tcp
                && !port.stream(settings, poller, now).is_some_and(|stream| stream.is_open())
        {
            return SendAttempt::NoRoom;
        }
        let Some(id) = port.flights.take_id() else { return SendAttempt::NoRoom };
        let Some(asked) = cursor.next(&settings.source) else {
            port.flights.return_id(id);
            return SendAttempt::NoMore;
        };
        let mut octets = 0;
        let mut write = |out: &mut Vec<u8>| {
            let from = out.len();
            settings.source.write(asked, out);
            let mac = settings.additional.complete(out, from, id, unix);
            octets = out.len() - from;
            mac
        };
        let mut mac = wire::tsig::Mac::EMPTY;
        let over_tcp = port.udp.is_none();
        match (&mut port.udp, &mut port.stream) {
            (Some((endpoint, queue)), _) => {
                if queue.is_full() {
                    tally.refused(now.since(*start), &queue.flush(endpoint));
                }
                queue.push(None, |out| mac = write(out));
            }
            (None, Some(stream)) => mac = stream.push(write),
            (None, None) => unreachable!("looked at above"),
        }
        port.flights.enter(id, Flight { asked, sent: now, over_tcp }, mac);
        tally.sent(now.since(*start), octets);
        tally.last_sent = now;
        SendAttempt::SentQuestion
    }

    fn flush(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if let Some((endpoint, queue)) = &mut port.udp {
            let flushed = queue.flush(endpoint);
            if flushed.refused > 0 {
                self.tally.refused(clock::now().since(self.start), &flushed);
            }
        }
        if let Some(stream) = &mut port.stream {
            // A write error is reported again by the next read.
            let _ = stream.write();
        }
    }

    /// Reads received packets, waiting up to `idle`.
    fn take(&mut self, idle: Duration, batch: &mut ReceiveBatch) -> io::Result<()> {
        let ready: Vec<usize> = self.poller.wait(idle)?.collect();
        for at in 0..self.ports.len() {
            if std::mem::take(&mut self.ports[at].has_more) && self.ports[at].stream.is_some() {
                self.work(at);
            }
        }
        for token in ready {
            match port_of(token) {
                (at, false) => self.drain(at, batch),
                (at, true) => self.work(at),
            }
        }
        Ok(())
    }

    /// Reads the packets of a UDP port.
    fn drain(&mut self, at: usize, batch: &mut ReceiveBatch) {
        let ClientThread { settings, poller, ports, tally, start, .. } = self;
        let port = &mut ports[at];
        for _ in 0..16 {
            let Some((endpoint, _)) = &port.udp else { return };
            // An ICMP error means that a query did not reach the server. The query will time out.
            let Ok(received) = batch.receive(endpoint, Wait::NonBlocking) else { continue };
            let clocks = ClockPair::sample();
            for datagram in batch.iter() {
                let arrived = clocks.arrival(datagram.received);
                for bytes in datagram.segments() {
                    let news = Arrival { settings, start: *start, bytes, arrived, over_tcp: false };
                    match news.book(&mut port.flights, tally) {
                        Reply::Matched => {}
                        Reply::Unmatched => tally.counts.stray += 1,
                        Reply::Truncated(id) => {
                            retry_over_tcp(settings, poller, port, tally, id, arrived);
                        }
                    }
                }
            }
            if received < BATCH {
                return;
            }
        }
        port.has_more = true;
    }

    /// Sends and receives on a port's TCP connection.
    fn work(&mut self, at: usize) {
        let ClientThread { settings, ports, tally, start, .. } = self;
        let port = &mut ports[at];
        let Some(mut stream) = port.stream.take() else { return };
        let flights = &mut port.flights;
        let was_open = stream.is_open();
        let news = stream.work(|bytes| {
            let arrival =
                Arrival { settings, start: *start, bytes, arrived: clock::now(), over_tcp: true };
            if matches!(arrival.book(flights, tally), Reply::Unmatched) {
                tally.counts.stray += 1;
            }
        });
        let now = clock::now();
        if let Some(took) = news.connected {
            tally.connected(now.since(*start), took);
        }
        if !news.closed {
            port.has_more |= news.more;
            port.stream = Some(stream);
            return;
        }
        if was_open || news.connected.is_some() {
            tally.connections.closed += 1;
        } else {
            tally.connections.failed += 1;
        }
        port.disconnect(now, stream.has_brought());
        // Queries sent on the closed connection will not be answered.
        let gone = port.flights.drop_tcp();
        tally.connections.lost_with += gone;
        tally.counts.lost += gone;
    }

    /// Gives up the queries older than the timeout.
    fn give_up(&mut self, now: Nanos) {
        let Some(moment) = now.0.checked_sub(self.settings.timeout.0) else { return };
        // The response may be among the packets that have not been read yet.
        self.give_up_sent_before(Nanos(moment), |port| !port.has_more);
    }

    /// On each port for which `of` returns true, gives up the queries that were sent at `moment` or earlier.
    fn give_up_sent_before(&mut self, moment: Nanos, of: impl Fn(&Port) -> bool) {
        for port in self.ports.iter_mut().filter(|port| of(port)) {
            while port.flights.give_up(moment).is_some() {
                self.tally.counts.add(Outcome::Lost);
            }
        }
    }
}

/// Repeats a query over TCP, because the response over UDP was truncated. The port of the query also has a TCP
/// connection.
fn retry_over_tcp(
    settings: &ClientSettings,
    poller: &Poller,
    port: &mut Port,
    tally: &mut Tally,
    id: u16,
    now: Nanos,
) {
    let Some(flight) = port.flights.get(id) else { return };
    let unix = unix_seconds();
    let write = |out: &mut Vec<u8>| {
        let from = out.len();
        settings.source.write(flight.asked, out);
        settings.additional.complete(out, from, id, unix)
    };
    // Without a connection the query times out, as it would in any resolver.
    let mac = port.stream(settings, poller, now).map(|stream: &mut Stream| {
        tally.retried += 1;
        let mac = stream.push(write);
        let _ = stream.write();
        mac
    });
    port.flights.goes_on_over_tcp(id, mac.unwrap_or(wire::tsig::Mac::EMPTY));
}

/// A received message.
struct Arrival<'a> {
    settings: &'a ClientSettings,
    start: Nanos,
    bytes: &'a [u8],
    arrived: Nanos,
    over_tcp: bool,
}

impl Arrival<'_> {
    /// Matches a response to its query and records the outcome.
    #[inline]
    fn book(&self, flights: &mut Flights, tally: &mut Tally) -> Reply {
        let Arrival { settings, start, bytes, arrived, over_tcp } = *self;
        let Some(message) = Message::new(bytes).filter(Message::is_response) else {
            return Reply::Unmatched;
        };
        let id = message.id();
        let Some(flight) = flights.get(id).filter(|flight| flight.over_tcp == over_tcp) else {
            return Reply::Unmatched;
        };
        let Some(answers_at) = settings.source.answers_at(&message, bytes, flight.asked) else {
            return Reply::Unmatched;
        };
        if message.is_truncated() && !over_tcp {
            tally.truncated += 1;
            if settings.transport == Transport::UdpThenTcp {
                return Reply::Truncated(id);
            }
        }
        let rtt = arrived.since(flight.sent);
        let judged = match &settings.check {
            Check::Address(expectation) => {
                expectation.judge(&message, answers_at, flight.asked.address())
            }
            Check::Rcode => match message.rcode() {
                Rcode::NOERROR | Rcode::NXDOMAIN => judge_form(&message, answers_at),
                _ => Err(wrong_rcode(&message, answers_at)),
            },
        };
        let signed = |()| match settings.additional.key() {
            Some(key) => {
                key.verify(bytes, &flights.mac(id), unix_seconds()).map_err(|_| Wrong::Signature)
            }
            None => Ok(()),
        };
        let outcome = match judged.and_then(signed) {
            _ if rtt >= settings.timeout => Outcome::Late,
            Ok(()) => Outcome::Valid,
            Err(wrong) => Outcome::Wrong(wrong),
        };
        flights.leave(id);
        tally.answered(
            flight.sent.since(start),
            rtt,
            message.rcode().in_header(),
            bytes.len(),
            outcome,
        );
        tally.last_answer = tally.last_answer.max(arrived);
        Reply::Matched
    }
}

/// Returns the current time in seconds since 1970, for TSIG records.
fn unix_seconds() -> u64 {
    clock::wall().0 / Nanos::SECOND.0
}

/// Divides `total` into `of` numbers that differ by at most 1. Returns the number with the index `i` (from 0).
pub(super) fn share(total: usize, i: usize, of: usize) -> usize {
    total / of + usize::from(i < total % of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, of) in [(10, 3), (7, 7), (200, 1), (5, 2)] {
            assert_eq!((0..of).map(|i| share(total, i, of)).sum::<usize>(), total);
        }
    }
}
