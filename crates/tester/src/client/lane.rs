//! What one thread of a client does: asks as its drive allows, takes answers, gives up what waited
//! too long.
//!
//! ```text
//!   ┌─► drive: how many may be in flight (closed loop), or what is due now (ramp)
//!   │      └─► ask: the next question from the next port with room, handed over a group at a time
//!   │   take: what the ports' sockets and connections have; each answer is booked to its question
//!   │      └─► truncated: the same question again over TCP
//!   └── give up: questions that waited longer than the timeout are lost
//! ```
//!
//! A lane has ports of its own, each with ids of its own, and shares nothing with other lanes but
//! the end: the first one that ends tells the others. When no more is to be asked it goes on taking
//! until nothing is in flight.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use method::records::{Outcome, Wrong};
use method::units::{CpuId, Nanos, Qps};
use net::affinity::{allowed_cpus, pin_to};
use net::batch::{BATCH, OFFLOAD_LEN, ReceiveBatch, Wait};
use net::clock::{self, ClockPair};
use net::poller::Poller;
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

/// How long a lane that waits for answers only sleeps at the most.
const IDLE: Duration = Duration::from_millis(10);
/// How long a lane that asks no more than so many a second sleeps at the most while more is to be
/// asked.
const UNTIL_DUE: Duration = Duration::from_millis(1);
/// How long a lane on a schedule sleeps at the least, where CPUs are few.
const NAP: Nanos = Nanos::from_micros(50);
/// With so many CPUs, a lane on a schedule burns one of them instead.
const CPUS_TO_BURN: usize = 4;
/// So many queries share one look at the clock.
const GROUP: u64 = 64;
/// So many queries of a backlog leave before answers are looked at again.
const BURST: u64 = 256;

/// When questions may be asked.
pub(super) enum Drive<'a> {
    /// All that there is room for, until a moment or once through the questions, up to `most` of them
    /// a second. When `stop` is set, the lane ends at once.
    Closed {
        end: Option<Nanos>,
        most: Option<Qps>,
        stop: &'a AtomicBool,
        progress: Option<&'a progress::ThreadSums>,
    },
    /// When they are due.
    Ramp(Box<Due<'a>>),
}

/// A lane's share of a ramp.
pub(super) struct Due<'a> {
    pub(super) ramp: Ramp,
    /// Time for responses after the end of the ramp.
    pub(super) wait: Nanos,
    pub(super) lane: u64,
    pub(super) of: u64,
    /// Queries in flight at which it ends.
    pub(super) outstanding: usize,
    /// Queries by which it may be behind; 0: any.
    pub(super) behind: u64,
    /// Set by the first lane that ends.
    pub(super) over: &'a AtomicBool,
    /// Set when the user wants to stop.
    pub(super) until: &'a AtomicBool,
    pub(super) asked: u64,
    pub(super) ending: Option<Ending>,
    /// When the lane sent its last query, after the start.
    pub(super) ended: Nanos,
    pub(super) lateness: Histogram<u64>,
    pub(super) burns: bool,
    pub(super) watch: &'a (dyn Fn(Status) + Sync),
    /// Whether it has been told that the rate grows no more, or never will be.
    pub(super) on_plateau: bool,
}

impl Due<'_> {
    /// Whether lanes on a schedule should burn their CPUs.
    pub(super) fn can_burn() -> bool {
        allowed_cpus().len() >= CPUS_TO_BURN
    }

    /// How many of the lane's queries are due at a moment after the start.
    fn count(&self, moment: Nanos) -> u64 {
        (self.ramp.due(moment) + self.of - 1 - self.lane) / self.of
    }

    /// Why the lane ends when so much time has passed since the start; none while it goes on.
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
        // A second after the end of the ramp the lane still has queries to send: it could not keep
        // up.
        let is_over = passed >= self.ramp.length() + Nanos::SECOND;
        is_over.then_some(Ending::Behind { queries: left * self.of, rate })
    }

    /// True if sending has ended and no response is waited for any more at this moment after the
    /// start.
    fn is_over(&self, passed: Nanos) -> bool {
        self.ending.is_some() && passed >= self.ramp.length() + self.wait
    }

    /// When the lane's next query is due.
    fn next(&self) -> Nanos {
        self.ramp.deadline(self.asked * self.of + self.lane)
    }
}

/// What became of an attempt to ask.
enum Ask {
    Asked,
    NoRoom,
    NoMore,
}

/// What became of a question that is due.
enum Step {
    Asked,
    /// There is no way for it at the moment.
    Waits,
    Ends(Ending),
}

/// What a packet was.
enum Reply {
    /// The answer to a query, or nothing that matters any more.
    Booked,
    /// Nothing that was asked.
    Stray,
    /// The truncated answer to the query with this id, which is to be asked over TCP.
    Truncated(u16),
}

/// What one thread does.
pub(super) struct Lane<'a> {
    settings: &'a ClientSettings,
    cpu: Option<CpuId>,
    poller: Poller,
    ports: Vec<Port>,
    next_port: usize,
    cursor: Cursor,
    start: Nanos,
    /// Whether all there was room for has been asked.
    is_filled: bool,
    pub(super) tally: Tally,
}

impl<'a> Lane<'a> {
    /// A lane with `ports` ports, of which the first is number `first_port` of all, and `room`
    /// queries in flight.
    pub(super) fn new(
        settings: &'a ClientSettings,
        cpu: Option<CpuId>,
        first_port: usize,
        ports: usize,
        room: usize,
        cursor: Cursor,
    ) -> io::Result<Lane<'a>> {
        let poller = Poller::new(ports * 2)?;
        let port =
            |i: usize| Port::new(settings, first_port + i, i, share(room, i, ports), &poller);
        let ports = (0..ports).map(port).collect::<io::Result<_>>()?;
        let tally = Tally::new(settings.interval);
        Ok(Lane {
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

    /// Asks as `drive` allows, from `start` on, until all queries are answered or given up.
    pub(super) fn run(mut self, start: Nanos, drive: &mut Drive<'_>) -> io::Result<Lane<'a>> {
        if let Some(cpu) = self.cpu {
            pin_to(cpu)?;
        }
        if matches!(drive, Drive::Ramp(_)) {
            clock::use_exact_timers();
        }
        self.start = start;
        self.tally.last_answer = start;
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        loop {
            let more = match drive {
                Drive::Closed { stop, .. } if stop.load(Ordering::Relaxed) => {
                    // Replies that are already here count.
                    self.take(Duration::ZERO, &mut batch)?;
                    self.tally.interrupt(self.in_flight() as u64);
                    self.conclude();
                    return Ok(self);
                }
                Drive::Closed { end, most, .. } => self.ask_all(*end, *most),
                Drive::Ramp(due) => self.ask_due(due, &mut batch)?,
            };
            if !more && self.in_flight() == 0 {
                self.conclude();
                return Ok(self);
            }
            let idle = match drive {
                Drive::Ramp(due) if more => {
                    self.nap(due);
                    Duration::ZERO
                }
                Drive::Closed { .. } if more && !self.is_filled => Duration::ZERO,
                Drive::Closed { most: Some(_), .. } if more => UNTIL_DUE,
                _ => IDLE,
            };
            // What arrived before this moment is read first.
            let now = clock::now();
            self.take(idle, &mut batch)?;
            self.give_up(now);
            if matches!(drive, Drive::Ramp(due) if due.is_over(now.since(start))) {
                self.give_up_sent_before(Nanos(u64::MAX), |_| true);
            }
            if let Drive::Closed { progress: Some(progress), .. } = drive {
                progress.set(&self.tally.counts);
            }
            if let Some(error) = self.is_unreachable(now) {
                return Err(error);
            }
        }
    }

    /// What only the sockets know.
    fn conclude(&mut self) {
        for port in &self.ports {
            self.tally.client_drops +=
                port.udp.as_ref().map_or(0, |(endpoint, _)| endpoint.drops());
            self.tally.connections.failed += port.refused.0;
        }
    }

    /// Why no connection could be made, if none could for as long as a query may take.
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
            io::Error::new(io::ErrorKind::TimedOut, "no TCP connection could be made")
        }))
    }

    fn in_flight(&self) -> usize {
        self.ports.iter().map(|port| port.flights.in_flight).sum()
    }

    /// Sleeps until the next query is due, or answers may have gathered.
    fn nap(&self, due: &Due<'_>) {
        let now = clock::now();
        let next = self.start + due.next();
        if due.burns && next < now + NAP {
            return;
        }
        clock::sleep_until(next.clamp(now + NAP, now + Nanos::from_millis(1)));
    }

    /// Asks as much as there is room for, and no more than `most` a second; false when no more is
    /// to be asked.
    fn ask_all(&mut self, end: Option<Nanos>, most: Option<Qps>) -> bool {
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
                // A time for each group that leaves together; and answers must not wait until a
                // large window is full.
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
                    Ask::Asked => {}
                    Ask::NoRoom => break,
                    Ask::NoMore => {
                        more = false;
                        break;
                    }
                }
            }
            self.flush(at);
        }
        more
    }

    /// Asks what is due; false when no more is to be asked.
    fn ask_due(&mut self, due: &mut Due<'_>, batch: &mut ReceiveBatch) -> io::Result<bool> {
        if due.ending.is_some() {
            return Ok(false);
        }
        let unix = unix_seconds();
        let mut ending = None;
        let until = due.count(clock::now().since(self.start));
        while due.asked < until && ending.is_none() {
            let now = clock::now();
            let late = now.since(self.start).since(due.next());
            // One group leaves together; looking at the clock for each would cost as much as
            // sending it.
            let group = (until - due.asked).min(16);
            let in_flight = self.in_flight();
            let mut waits = false;
            for more in 0..group as usize {
                let step = if in_flight + more >= due.outstanding {
                    Step::Ends(Ending::Outstanding { queries: due.outstanding * due.of as usize })
                } else {
                    self.ask_one(due, now, unix)
                };
                match step {
                    Step::Asked => {}
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
            if due.lane == 0 {
                (due.watch)(Status::Plateau);
            }
        }
        let ending = ending.or_else(|| due.ending_after(passed));
        if ending.is_some() || due.over.load(Ordering::Relaxed) {
            // All lanes end together: the first one knows the reason, the others end because it
            // did.
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

    /// Asks one question from the next port that has room.
    fn ask_one(&mut self, due: &Due<'_>, now: Nanos, unix: u64) -> Step {
        for _ in 0..self.ports.len() {
            let at = self.next_port;
            self.next_port = (at + 1) % self.ports.len();
            match self.ask(at, now, unix) {
                Ask::Asked => return Step::Asked,
                Ask::NoRoom => {}
                Ask::NoMore => {
                    return Step::Ends(Ending::NoMore {
                        rate: due.ramp.rate(now.since(self.start)),
                    });
                }
            }
        }
        // Connections that are being made leave a backlog, which has its own limit.
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
    fn ask(&mut self, at: usize, now: Nanos, unix: u64) -> Ask {
        let Lane { settings, poller, ports, cursor, tally, start, .. } = self;
        let port = &mut ports[at];
        if port.flights.in_flight >= port.most
            || settings.transport == Transport::Tcp
                && !port.stream(settings, poller, now).is_some_and(|stream| stream.is_open())
        {
            return Ask::NoRoom;
        }
        let Some(id) = port.flights.take_id() else { return Ask::NoRoom };
        let Some(asked) = cursor.next(&settings.source) else {
            port.flights.return_id(id);
            return Ask::NoMore;
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
        Ask::Asked
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
            // What is wrong with it is found when it is read.
            let _ = stream.write();
        }
    }

    /// Takes what has come, waiting for `idle` at the most.
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

    /// Reads what is there on a UDP port.
    fn drain(&mut self, at: usize, batch: &mut ReceiveBatch) {
        let Lane { settings, poller, ports, tally, start, .. } = self;
        let port = &mut ports[at];
        for _ in 0..16 {
            let Some((endpoint, _)) = &port.udp else { return };
            // ICMP errors say that a query reached nobody; it is given up in its time.
            let Ok(received) = batch.receive(endpoint, Wait::Dont) else { continue };
            let clocks = ClockPair::sample();
            for datagram in batch.iter() {
                let arrived = clocks.arrival(datagram.received);
                for bytes in datagram.segments() {
                    let news = Arrival { settings, start: *start, bytes, arrived, over_tcp: false };
                    match news.book(&mut port.flights, tally) {
                        Reply::Booked => {}
                        Reply::Stray => tally.counts.stray += 1,
                        Reply::Truncated(id) => {
                            ask_over_tcp(settings, poller, port, tally, id, arrived);
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

    /// Goes on with a port's connection.
    fn work(&mut self, at: usize) {
        let Lane { settings, ports, tally, start, .. } = self;
        let port = &mut ports[at];
        let Some(mut stream) = port.stream.take() else { return };
        let flights = &mut port.flights;
        let was_open = stream.is_open();
        let news = stream.work(|bytes| {
            let arrival =
                Arrival { settings, start: *start, bytes, arrived: clock::now(), over_tcp: true };
            if matches!(arrival.book(flights, tally), Reply::Stray) {
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
        // Nobody will answer what was asked on it.
        let gone = port.flights.drop_tcp();
        tally.connections.lost_with += gone;
        tally.counts.lost += gone;
    }

    /// Gives up the queries that have waited for the timeout.
    fn give_up(&mut self, now: Nanos) {
        let Some(moment) = now.0.checked_sub(self.settings.timeout.0) else { return };
        // Where there is more to read, the answer may be in it.
        self.give_up_sent_before(Nanos(moment), |port| !port.has_more);
    }

    /// Gives up the queries of these ports that were sent before a moment.
    fn give_up_sent_before(&mut self, moment: Nanos, of: impl Fn(&Port) -> bool) {
        for port in self.ports.iter_mut().filter(|port| of(port)) {
            while port.flights.give_up(moment).is_some() {
                self.tally.counts.add(Outcome::Lost);
            }
        }
    }
}

/// Asks a question again over the port's connection, because its answer came truncated.
fn ask_over_tcp(
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
    // Without a connection it waits for its timeout, as any resolver's question does.
    let mac = port.stream(settings, poller, now).map(|stream: &mut Stream| {
        tally.retried += 1;
        let mac = stream.push(write);
        let _ = stream.write();
        mac
    });
    port.flights.goes_on_over_tcp(id, mac.unwrap_or(wire::tsig::Mac::EMPTY));
}

/// A message that has come.
struct Arrival<'a> {
    settings: &'a ClientSettings,
    start: Nanos,
    bytes: &'a [u8],
    arrived: Nanos,
    over_tcp: bool,
}

impl Arrival<'_> {
    /// Books it as the answer that it is, if it is one.
    #[inline]
    fn book(&self, flights: &mut Flights, tally: &mut Tally) -> Reply {
        let Arrival { settings, start, bytes, arrived, over_tcp } = *self;
        let Some(message) = Message::new(bytes).filter(Message::is_response) else {
            return Reply::Stray;
        };
        let id = message.id();
        let Some(flight) = flights.get(id).filter(|flight| flight.over_tcp == over_tcp) else {
            return Reply::Stray;
        };
        let Some(answers_at) = settings.source.answers_at(&message, bytes, flight.asked) else {
            return Reply::Stray;
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
        Reply::Booked
    }
}

/// The time that signatures carry.
fn unix_seconds() -> u64 {
    clock::wall().0 / Nanos::SECOND.0
}

/// The `i`-th share of `total` things dealt out to `of`.
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
