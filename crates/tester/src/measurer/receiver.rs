//! Receiving thread of a pair: matches replies to queries, and determines the outcome of every query.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use method::reason::{Half, Reason};
use method::records::{Counts, Outcome, Record, Wrong};
use method::schedule::Part;
use net::affinity::{pin_to, use_short_time_slices};
use net::batch::{BATCH, OFFLOAD_LEN, ReceiveBatch, Wait};
use net::clock::{self, ClockPair};
use net::poller::Poller;
use net::socket::Endpoint;
use units::{CpuId, Nanos, counted};
use wire::template::QueryTemplate;
use wire::view::Message;

use super::expect::{Expectation, answers_at};
use super::histogram::rtt_histogram;
use super::ids::IdPlan;
use super::ledger::Ledger;
use super::names::NameSequence;
use super::recorder::PairRecorder;
use super::sources::SourcePlan;
use super::thread_pair::{Ports, Progress};
use super::tx_rx_path::{XdpRxPath, ends_of};
use crate::intervals::Intervals;
use crate::xdp::joined_behind;

/// Pause between reads. The kernel timestamps replies, so reading them later does not change the result.
const NAP: Duration = Duration::from_micros(500);
/// Time after the last outcome during which the receiver still listens for duplicates and unmatched responses.
const QUIET: Nanos = Nanos::from_millis(100);

/// Totals, round-trip times and faults that one receiver has recorded.
pub(super) struct Received {
    pub(super) counts: Counts,
    /// Round-trip times of valid replies, in nanoseconds.
    pub(super) rtt: Histogram<u64>,
    pub(super) intervals: Option<Intervals>,
    /// Number of datagrams read from the sockets, whether valid or not.
    pub(super) datagrams: u64,
    /// Number of received packets that were dropped because no frame or ring entry of an AF_XDP queue was free.
    pub(super) ring_drops: u64,
    pub(super) faults: Vec<Reason>,
}

/// State of a sent query until its slot in the table of send times is freed.
#[derive(Clone, Copy)]
struct Slot {
    received: Nanos,
    decided: Option<(Outcome, u8)>,
}

const OUTSTANDING: Slot = Slot { received: Nanos(0), decided: None };

/// The receiver of one pair of threads (sender and receiver).
pub(super) struct Receiver {
    /// Index of the pair of threads in this process.
    pub(super) number: u16,
    /// The part of the schedule that this pair of threads handles.
    pub(super) part: Part,
    pub(super) timeout: Nanos,
    pub(super) retention: Nanos,
    pub(super) spinning: bool,
    pub(super) names: NameSequence,
    pub(super) template: QueryTemplate,
    pub(super) expectation: Expectation,
    pub(super) ids: Arc<IdPlan>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) ports: Arc<Ports>,
    /// Receive path by AF_XDP, if used.
    pub(super) rx_path: Option<XdpRxPath>,
    /// Source address of each query, if the trial has several source addresses.
    pub(super) sources: Option<Arc<SourcePlan>>,
    pub(super) cpu: Option<CpuId>,
    pub(super) start: Nanos,
    pub(super) recorder: Option<PairRecorder>,
    pub(super) intervals: Option<Intervals>,
    pub(super) progress: Arc<Progress>,
}

impl Receiver {
    /// Receives until every query has its outcome.
    pub(super) fn run(mut self) -> Received {
        let mut state = State::new(&self.ledger, self.intervals.take(), self.recorder.take());
        if let Some(cpu) = self.cpu
            && let Err(error) = pin_to(cpu)
        {
            let error = error.to_string();
            state.received.faults.push(Reason::NotPinned { half: Half::Receiver, cpu, error });
        }
        use_short_time_slices();
        let mut rx_path = self.rx_path.take();
        let received = self.receive_all(&mut rx_path, &mut state);
        if let Some(rx_path) = rx_path {
            match rx_path.receiver.drops() {
                Ok(drops) => state.received.ring_drops = drops,
                Err(error) => {
                    let error = format!("the drops of AF_XDP's rings are unknown: {error}");
                    state.received.faults.push(Reason::CannotReceive { error });
                }
            }
            state.received.counts.stray += rx_path.receiver.unreadable();
        }
        if state.joined > 0 {
            let error = format!(
                "{} arrived joined by their sender; use --xdp-mode copy, where they arrive one by one",
                counted(state.joined, "datagram", "datagrams")
            );
            state.received.faults.push(Reason::CannotReceive { error });
        }
        if let Err(error) = received {
            state.received.faults.push(Reason::CannotReceive { error: error.to_string() });
            // Old entries of the ledger must still be removed, because the sender would otherwise wait for a free
            // entry.
            while !self.ledger.is_finished() {
                state.sweep_all(&self);
                std::thread::sleep(NAP);
            }
        }
        state.sweep_all(&self);
        state.received
    }

    fn receive_all(&self, rx_path: &mut Option<XdpRxPath>, state: &mut State) -> io::Result<()> {
        let endpoints: Vec<&Endpoint> =
            self.ports.asking.iter().chain(&self.ports.unmatched).collect();
        let queues = rx_path.as_ref().map_or(0, |rx_path| rx_path.receiver.sockets().len());
        let mut poller = Poller::new(endpoints.len() + queues)?;
        for (token, endpoint) in endpoints.iter().enumerate() {
            poller.add(endpoint, token)?;
        }
        for (queue, socket) in rx_path.iter().flat_map(|i| i.receiver.sockets()).enumerate() {
            poller.add(&socket, endpoints.len() + queue)?;
        }
        let mut batch = ReceiveBatch::new(OFFLOAD_LEN);
        // At high rates, pauses make each read return several replies.
        let naps = !self.spinning && self.part.rate() > 2_000.0;
        let mut last_news = clock::now();
        let mut finished_since = None;
        let mut read = ReadUpTo(self.start);
        loop {
            let finished = self.ledger.is_finished();
            // The receiver decides which queries have timed out by this time, but only after it has read all packets
            // that arrived before this time.
            let before = clock::now();
            let mut all_read = true;
            for token in poller.wait(Duration::from_millis(1))? {
                all_read &= match endpoints.get(token) {
                    Some(endpoint) => self.drain(endpoint, token, &mut batch, state),
                    None => self.drain_queue(rx_path, token - endpoints.len(), state)?,
                };
            }
            let now = clock::now();
            if state.take_activity() {
                last_news = now;
            }
            let head = self.give_up(state, &mut read, before, all_read);
            if finished && state.swept == head {
                return Ok(());
            }
            if finished {
                let since = *finished_since.get_or_insert(now);
                // After an interruption, the receiver does not wait for late replies.
                if self.progress.is_stopped() && now.since(since) >= self.timeout {
                    return Ok(());
                }
            }
            self.progress.set_received(self.number, state.received.counts.valid, state.decided);
            if finished && state.decided == head && now.since(last_news) > QUIET {
                return Ok(());
            }
            if naps {
                std::thread::sleep(NAP);
            }
        }
    }

    /// Gives up the overdue queries whose replies cannot be among the unread datagrams. This function is called after a
    /// pass over the ports that began at `began`. `all_read` is true if the pass read all datagrams. Returns the number
    /// of queries sent so far.
    fn give_up(&self, state: &mut State, read: &mut ReadUpTo, began: Nanos, all_read: bool) -> u64 {
        let head = self.ledger.head();
        state.sweep(self, head, read.after(began, all_read).since(self.start));
        head
    }

    /// Reads the datagrams of one port. Returns true if none are left.
    fn drain(
        &self,
        endpoint: &Endpoint,
        token: usize,
        batch: &mut ReceiveBatch,
        state: &mut State,
    ) -> bool {
        // The number of reads is limited, so that a flood on one port does not delay the other ports.
        for _ in 0..64 {
            let n = match batch.receive(endpoint, Wait::NonBlocking) {
                Ok(n) => n,
                // An ICMP error means that a query did not reach the server. The query will time out and count as lost.
                Err(_) => continue,
            };
            match &self.sources {
                // The kernel has checked the source and destination of datagrams on a connected socket.
                None => {
                    let is_asking = token < self.ports.asking.len();
                    self.book(batch, token, state, |_| is_asking, |_, _| true);
                }
                Some(sources) => {
                    let is_servers = |i| sources.is_servers(batch.peer(i));
                    let is_back = |i, k| sources.is_back(k, batch.peer(i));
                    self.book(batch, token, state, is_servers, is_back);
                }
            }
            if n < BATCH {
                return true;
            }
        }
        false
    }

    /// Reads the packets of an AF_XDP queue. Returns true if none are left.
    fn drain_queue(
        &self,
        rx_path: &mut Option<XdpRxPath>,
        queue: usize,
        state: &mut State,
    ) -> io::Result<bool> {
        let Some(XdpRxPath { receiver, ends, may_be_joined }) = rx_path else { return Ok(true) };
        // The number of reads is limited, as for a port.
        for _ in 0..64 {
            let packets = receiver.receive(queue, BATCH, |arrived| {
                state.seen += 1;
                let port = ends.port(arrived);
                if *may_be_joined && port.is_some() {
                    let behind = joined_behind(arrived.bytes, arrived.has_partial_checksum);
                    state.joined += u64::from(behind > 0);
                }
                let is_back = |k| {
                    self.sources.as_ref().is_none_or(|sources| sources.is_back(k, ends_of(arrived)))
                };
                let moment = arrived.received.since(self.start);
                let is_reply = port
                    .is_some_and(|port| self.reply(arrived.bytes, port, moment, state, is_back));
                state.received.counts.stray += u64::from(!is_reply);
            })?;
            if packets < BATCH {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Processes the datagrams of a batch just received on one port. `is_servers(i)` returns true if datagram `i` of
    /// the batch came from the server. `is_back(i, k)` returns true if the destination address of datagram `i` is the
    /// source address of query `k`.
    #[inline]
    fn book(
        &self,
        batch: &ReceiveBatch,
        port: usize,
        state: &mut State,
        is_servers: impl Fn(usize) -> bool,
        is_back: impl Fn(usize, u64) -> bool,
    ) {
        let clocks = ClockPair::sample();
        for (i, datagram) in batch.iter().enumerate() {
            let arrived = clocks.arrival(datagram.received);
            for reply in datagram.segments() {
                state.seen += 1;
                state.received.datagrams += 1;
                if !is_servers(i)
                    || !self.reply(reply, port, arrived.since(self.start), state, |k| is_back(i, k))
                {
                    state.received.counts.stray += 1;
                }
            }
        }
    }

    /// Processes a packet that arrived on `port`; returns false if it answers no query.
    #[inline]
    fn reply(
        &self,
        bytes: &[u8],
        port: usize,
        arrived: Nanos,
        state: &mut State,
        is_back: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(message) = Message::new(bytes) else { return false };
        if !message.is_response() {
            return false;
        }
        let head = self.ledger.head();
        let Some(k) = self.ids.find(port, message.id(), head).filter(|&k| k >= state.swept) else {
            return false;
        };
        let name = self.names.address(self.part.index(k));
        let Some(answers_at) = answers_at(&message, bytes, &self.template, name) else {
            return false;
        };
        let Some(sent) = self.ledger.sent(k) else { return false };
        let slot = &mut state.slots[(k & (self.ledger.capacity() - 1)) as usize];
        if slot.decided.is_some() {
            state.received.counts.duplicates += 1;
            return true;
        }
        let rtt = arrived.since(sent);
        let outcome = match self.expectation.judge(&message, answers_at, name) {
            _ if rtt >= self.timeout => Outcome::Late,
            _ if !is_back(k) => Outcome::Wrong(Wrong::Destination),
            Ok(()) => Outcome::Valid,
            Err(wrong) => Outcome::Wrong(wrong),
        };
        if outcome == Outcome::Valid {
            state.received.rtt.saturating_record(rtt.0.max(1));
        }
        *slot = Slot { received: arrived, decided: Some((outcome, message.rcode().in_header())) };
        state.received.counts.add(outcome);
        state.decided += 1;
        true
    }
}

/// Progress of reading: packets that arrived before this time count as read. Queries that have timed out by this time
/// are given up. The current time cannot be used, because a pass over the ports reads a limited number of packets and
/// may leave replies unread.
struct ReadUpTo(Nanos);

/// Maximum delay with which a query that has timed out is given up while unread packets remain. The table of send times
/// is large enough for a longer delay.
const MOST_UNREAD: Nanos = Nanos::from_millis(100);

impl ReadUpTo {
    /// Updates and returns the time before which all packets count as read. The last pass over the ports began at
    /// `began`. `all_read` is true if this pass read all packets. The result is never earlier than `began` minus
    /// [`MOST_UNREAD`].
    fn after(&mut self, began: Nanos, all_read: bool) -> Nanos {
        if all_read {
            self.0 = began;
        }
        // During an endless flood, queries are given up after this delay.
        self.0 = self.0.max(began.since(MOST_UNREAD));
        self.0
    }
}

struct State {
    slots: Box<[Slot]>,
    swept: u64,
    received: Received,
    recorder: Option<PairRecorder>,
    /// Number of queries that have a final outcome, including queries with send errors.
    decided: u64,
    /// Number of packets received since the last call of [`State::take_activity`].
    seen: u64,
    /// Number of datagrams from the server that contain several joined replies. Only the first reply in each datagram
    /// is read.
    joined: u64,
}

impl State {
    fn new(ledger: &Ledger, intervals: Option<Intervals>, recorder: Option<PairRecorder>) -> State {
        State {
            slots: vec![OUTSTANDING; ledger.capacity() as usize].into(),
            swept: 0,
            received: Received {
                counts: Counts::default(),
                rtt: rtt_histogram(),
                intervals,
                datagrams: 0,
                ring_drops: 0,
                faults: Vec::new(),
            },
            recorder,
            decided: 0,
            seen: 0,
            joined: 0,
        }
    }

    /// Returns true if packets arrived since the last call.
    fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.seen) > 0
    }

    /// Records the final outcomes of the queries with an index below `head`, in order. Stops at the first query for
    /// which replies are still awaited at the time `now`. This time is measured from the start of the trial.
    fn sweep(&mut self, receiver: &Receiver, head: u64, now: Nanos) {
        let first = self.swept;
        while self.swept < head {
            match receiver.ledger.sent(self.swept) {
                Some(sent) if now.since(sent) <= receiver.retention => break,
                sent => self.settle(receiver, self.swept, sent),
            }
            self.swept += 1;
        }
        if self.swept != first {
            receiver.ledger.sweep_to(self.swept);
        }
    }

    fn sweep_all(&mut self, receiver: &Receiver) {
        let head = receiver.ledger.head();
        while self.swept < head {
            self.settle(receiver, self.swept, receiver.ledger.sent(self.swept));
            self.swept += 1;
        }
        receiver.ledger.sweep_to(self.swept);
    }

    /// Records the final outcome of query `k` in the totals and in the per-query records.
    #[inline]
    fn settle(&mut self, receiver: &Receiver, k: u64, sent: Option<Nanos>) {
        let slot = &mut self.slots[(k & (receiver.ledger.capacity() - 1)) as usize];
        let Slot { received, decided } = std::mem::replace(slot, OUTSTANDING);
        self.decided += u64::from(decided.is_none());
        let Some(sent) = sent else { return };
        if decided.is_none() {
            self.received.counts.add(Outcome::Lost);
        }
        if let Some(intervals) = &mut self.received.intervals {
            let interval = intervals.at(sent);
            interval.sent += 1;
            if let Some((_, rcode)) = decided {
                interval.answer(received.since(sent), rcode);
            }
        }
        if let Some(recorder) = &mut self.recorder {
            let index = receiver.part.index(k);
            recorder.push(Record {
                index,
                pair: receiver.number,
                scheduled: receiver.part.schedule().deadline(index),
                sent,
                received: decided.map(|_| received),
                outcome: decided.map_or(Outcome::Lost, |(outcome, _)| outcome),
                rcode: decided.map(|(outcome, rcode)| match outcome {
                    Outcome::Wrong(Wrong::Rcode(whole)) => whole,
                    _ => rcode,
                }),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::{Qps, Share};
    use wire::view::CLASS_IN;

    use super::super::ids::{Blocks, Ids};
    use super::super::plan::TrialPlan;
    use super::*;

    const TIMEOUT: Nanos = Nanos::from_millis(100);

    /// Returns a receiver without sockets for a trial that began 10 s ago. Query `k` was sent k ms after the beginning.
    fn receiver(queries: u64) -> Receiver {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000));
        (plan.timeout, plan.source_ports) = (TIMEOUT, 1);
        let ledger = Arc::new(Ledger::new(queries));
        (0..queries).for_each(|k| ledger.stamp(k, Nanos::from_millis(k)));
        ledger.publish(queries);
        let ids = Arc::new(Ids::new(&mut rand::rng()));
        Receiver {
            number: 0,
            part: plan.part_of(0),
            timeout: plan.timeout,
            retention: plan.retention(),
            spinning: false,
            names: plan.name_sequence(),
            template: QueryTemplate::aaaa(&plan.domain),
            expectation: Expectation {
                aaaa_share: Share::ZERO,
                check_own_aaaa: true,
                prefixes: Vec::new(),
            },
            ids: Arc::new(IdPlan::new(ids, plan.part_of(0), 1, Blocks::new(1))),
            ledger,
            ports: Arc::new(Ports { asking: Vec::new(), unmatched: Vec::new() }),
            rx_path: None,
            sources: None,
            cpu: None,
            start: clock::now().since(Nanos(10 * Nanos::SECOND.0)),
            recorder: None,
            intervals: None,
            progress: Progress::new(&plan),
        }
    }

    /// Returns a correct reply to query `k`.
    fn reply_to(receiver: &Receiver, k: u64) -> Vec<u8> {
        let mut reply = receiver.template.bytes().to_vec();
        let name = receiver.names.address(receiver.part.index(k));
        QueryTemplate::patch(&mut reply, receiver.ids.place(k).1, name);
        (reply[2], reply[7]) = (0x81, 1);
        reply.extend([0xc0, 12, 0, 28]);
        reply.extend(CLASS_IN.to_be_bytes());
        reply.extend([0, 0, 0, 60, 0, 16, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
        reply.extend(name.octets());
        reply
    }

    proptest! {
        #[test]
        fn a_reply_at_the_timeout_is_late(k in 0u64..50, before in 1u64..TIMEOUT.0, after in 0u64..TIMEOUT.0) {
            for (rtt, outcome) in [(TIMEOUT.0 - before, "valid"), (TIMEOUT.0, "late"), (TIMEOUT.0 + after, "late")] {
                let receiver = receiver(50);
                let mut state = State::new(&receiver.ledger, None, None);
                let arrived = Nanos::from_millis(k) + Nanos(rtt);
                prop_assert!(receiver.reply(&reply_to(&receiver, k), 0, arrived, &mut state, |_| true));
                let counts = &state.received.counts;
                let found = if counts.valid == 1 { "valid" } else if counts.late == 1 { "late" } else { "other" };
                prop_assert_eq!(found, outcome, "{} ns", rtt);
            }
        }

        #[test]
        fn a_reply_in_time_that_waits_unread_counts(queries in 1u64..60, read_upto in 0u64..150) {
            // The previous pass over the ports read everything up to this time. The next pass lasts until now and
            // leaves replies unread.
            let receiver = receiver(queries);
            let mut state = State::new(&receiver.ledger, None, None);
            let began = receiver.start + Nanos::from_millis(read_upto);
            let mut read = ReadUpTo(receiver.start);
            receiver.give_up(&mut state, &mut read, began, true);
            receiver.give_up(&mut state, &mut read, began + Nanos::from_millis(90), false);
            prop_assert_eq!(state.swept, 0, "replies may come up to {:?}", receiver.retention);
            for k in 0..queries {
                let arrived = Nanos::from_millis(k) + Nanos(TIMEOUT.0 - 1);
                prop_assert!(receiver.reply(&reply_to(&receiver, k), 0, arrived, &mut state, |_| true));
            }
            state.sweep_all(&receiver);
            prop_assert_eq!(state.received.counts.valid, queries);
        }
    }

    #[test]
    fn queries_are_given_up_as_of_what_has_been_read() {
        let ms = Nanos::from_millis;
        let mut read = ReadUpTo(ms(1_000));
        assert_eq!(read.after(ms(1_001), true), ms(1_001));
        // Each of these passes leaves thousands of replies unread, and one pass began late.
        assert_eq!(read.after(ms(1_050), false), ms(1_001));
        assert_eq!(read.after(ms(1_180), false), ms(1_080));
        assert_eq!(read.after(ms(1_181), true), ms(1_181));
        // A flood does not end.
        assert_eq!(read.after(ms(9_000), false), ms(8_900));
    }
}
