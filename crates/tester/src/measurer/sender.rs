//! Sending thread of a pair of threads (sender and receiver). It sends every query on schedule and records its send
//! time.

use std::io;
use std::sync::Arc;

use method::pacing::PacingRecorder;
use method::reason::{Half, Reason};
use method::schedule::Part;
use net::affinity::{pin_to, set_high_priority, set_real_time_priority};
use net::clock;
use units::{CpuId, Nanos, counted};
use wire::template::QueryTemplate;

use super::ids::IdPlan;
use super::ledger::Ledger;
use super::names::NameSequence;
use super::result::Priority;
use super::thread_pair::Progress;
use super::tx_rx_path::{Block, SendOutcome, TxPath};

/// Minimum interval between queries at which a busy-waiting sender sends queries one by one instead of in batches. A
/// `send` takes about a microsecond; the rest of the interval is a reserve.
const SEND_COST: Nanos = Nanos(2_000);
/// Maximum number of segments that Linux accepts in one call (`UDP_MAX_SEGMENTS` before 6.9).
pub(super) const MAX_RUN: u64 = 64;
/// Maximum number of attempts to send a query while the kernel has no memory for it.
const SEND_TRIES: u32 = 5;
/// Maximum wait until a zero-copy device has sent the last queries.
const DRAIN_TIMEOUT: Nanos = Nanos::from_millis(50);

/// Timing of a sending thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendTiming {
    /// True if the sender busy-waits until the next query is due; false if it sleeps.
    pub(super) spinning: bool,
    /// Number of queries in a group. The queries of a group are sent together when the last of them is due.
    pub(super) run: u16,
    /// Number of queries sent from one port in one system call.
    pub(super) block: u16,
}

impl SendTiming {
    /// Selects the timing of a sender with `interval` between its queries.
    ///
    /// A busy-waiting sender sends queries one by one if the interval is long enough. In all other cases, as many
    /// queries are sent together as the maximum deviation from the schedule (`max_burst`) allows. A sleeping sender
    /// thus wakes up less often. A wake-up costs more than sending a query.
    pub(super) fn choose(
        spinning: bool,
        offload: bool,
        interval: Nanos,
        max_burst: Nanos,
    ) -> SendTiming {
        let together = (max_burst.0 / interval.0.max(1)).clamp(1, MAX_RUN) as u16;
        let run = if spinning && interval >= SEND_COST { 1 } else { together };
        SendTiming { spinning, run, block: if offload { run } else { 1 } }
    }
}

/// Totals of one sender, and the faults that affect the verdict of the trial.
pub(super) struct Sent {
    pub(super) queries: u64,
    pub(super) refused: u64,
    /// Queries rejected at the first attempt and accepted at a later attempt.
    pub(super) again: u64,
    pub(super) pacing: PacingRecorder,
    pub(super) priority: Priority,
    pub(super) faults: Vec<Reason>,
}

/// Sending thread of one pair of threads (a sender and a receiver).
pub(super) struct Sender {
    /// The part of the schedule that this pair of threads handles.
    pub(super) part: Part,
    pub(super) pace: SendTiming,
    pub(super) names: NameSequence,
    pub(super) template: QueryTemplate,
    pub(super) ids: Arc<IdPlan>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tx_path: TxPath,
    pub(super) cpu: Option<CpuId>,
    /// True if the sender may use real-time priority, because no other thread of dns64bench or dns64d uses this CPU.
    pub(super) owns_cpu: bool,
    pub(super) start: Nanos,
    pub(super) progress: Arc<Progress>,
}

impl Sender {
    /// Sends the queries of this pair of threads. Returns when the last query has been sent.
    pub(super) fn run(mut self) -> Sent {
        let mut sent = Sent {
            queries: 0,
            refused: 0,
            again: 0,
            pacing: PacingRecorder::new(self.part.end()),
            priority: Priority::Ordinary,
            faults: Vec::new(),
        };
        if let Some(cpu) = self.cpu
            && let Err(error) = pin_to(cpu)
        {
            sent.faults.push(Reason::NotPinned {
                half: Half::Sender,
                cpu,
                error: error.to_string(),
            });
        }
        clock::use_exact_timers();
        sent.priority = self.priority();
        let stretch = self.spin_stretch();
        let mut packets = vec![0; self.template.len() * usize::from(self.pace.run)];
        for packet in packets.chunks_mut(self.template.len()) {
            packet.copy_from_slice(self.template.bytes());
        }

        let total = self.part.count();
        let mut next = 0;
        while next < total {
            let end = self.run_end(next).min(total);
            self.wait_until(self.due(end - 1), stretch);
            if self.progress.is_stopped() {
                break;
            }
            if !self.await_room(end) {
                sent.faults.push(Reason::LedgerFull);
                break;
            }
            self.send_run(next, end, &mut packets, &mut sent);
            next = end;
        }
        self.ledger.finish();
        let unsent = self.tx_path.unsent(DRAIN_TIMEOUT.into());
        if unsent > 0 {
            let error =
                format!("the device has not sent {}", counted(unsent as u64, "query", "queries"));
            sent.faults
                .push(Reason::SendRefused { query: next.saturating_sub(1), error: Some(error) });
        }
        sent
    }

    fn due(&self, k: u64) -> Nanos {
        self.part.schedule().deadline(self.part.index(k))
    }

    /// Returns the index of the first query after the group that begins with query `next`. The queries of a group are
    /// sent together. If one system call sends several queries, the group consists of the queries sent by one call.
    fn run_end(&self, next: u64) -> u64 {
        match self.pace.block {
            1 => next + u64::from(self.pace.run),
            _ => self.ids.block_end(next),
        }
    }

    /// Sets and returns the priority. A busy-waiting sender keeps the default priority, because otherwise the other
    /// threads on its CPU would starve.
    fn priority(&self) -> Priority {
        match (self.pace.spinning, self.owns_cpu) {
            (true, _) => Priority::Ordinary,
            (false, true) if set_real_time_priority() => Priority::RealTime,
            (false, _) if set_high_priority() => Priority::Favoured,
            (false, _) => Priority::Ordinary,
        }
    }

    /// Returns how long before a deadline the sender stops sleeping and starts to busy-wait.
    ///
    /// This time is the measured median delay with which sleeps end on this host. If `pace.spinning` is false, the time
    /// is at most an eighth of the time between two groups of queries. If the CPU is also shared with other threads,
    /// the time is 0, and the queries are late by the delay.
    fn spin_stretch(&self) -> Nanos {
        if !self.pace.spinning && !self.owns_cpu {
            return Nanos(0);
        }
        let mut over: Vec<u64> = (0..15)
            .map(|_| {
                let until = clock::now() + Nanos::from_micros(100);
                clock::sleep_until(until);
                clock::now().since(until).0
            })
            .collect();
        over.sort_unstable();
        let run_time = self.due(u64::from(self.pace.run)).0;
        Nanos(over[over.len() / 2].min(if self.pace.spinning { u64::MAX } else { run_time / 8 }))
    }

    /// Waits until `due`, a time since the start of the trial.
    #[inline]
    fn wait_until(&self, due: Nanos, stretch: Nanos) {
        let moment = self.start + due;
        loop {
            let now = clock::now();
            if now >= moment {
                return;
            }
            let left = moment.since(now);
            // A busy-waiting sender also sleeps if nothing is due for a while.
            let sleep_above = if self.pace.spinning { Nanos::from_millis(2) } else { stretch };
            if left > sleep_above {
                clock::sleep_until(Nanos(moment.0 - stretch.0));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Waits until the buffer of send times has room for all queries with an index below `end`. Returns false if there
    /// is still no room after 10 s.
    fn await_room(&self, end: u64) -> bool {
        let give_up = clock::now() + Nanos(10 * Nanos::SECOND.0);
        while !self.ledger.has_room(end) {
            if clock::now() > give_up {
                return false;
            }
            std::thread::sleep(Nanos::from_micros(200).into());
        }
        true
    }

    fn send_run(&mut self, next: u64, end: u64, packets: &mut [u8], sent: &mut Sent) {
        let len = self.template.len();
        let mut from = next;
        while from < end {
            let to = self.ids.block_end(from).min(end);
            let mut port = 0;
            for (k, packet) in (from..to).zip(packets.chunks_mut(len)) {
                let (its_port, id) = self.ids.place(k);
                port = its_port;
                QueryTemplate::patch(packet, id, self.names.address(self.part.index(k)));
            }
            let packets = &packets[..len * (to - from) as usize];
            self.send_block(from, to, Block { packets, len, port, first: from }, sent);
            from = to;
        }
        self.progress.add_sent(end - next);
    }

    /// Sends the block of queries `from..to`, together if possible, otherwise one by one.
    fn send_block(&mut self, from: u64, to: u64, block: Block<'_>, sent: &mut Sent) {
        let (mut next, mut refused) = (from, false);
        if self.tx_path.joins(to - from) {
            self.stamp(from, to);
            match self.tx_path.send_together(block) {
                SendOutcome::First(n) => {
                    self.book(from, from + n, sent);
                    next = from + n;
                    refused = true;
                }
                // The packets have not been sent, so they are sent (and stamped again) one by one.
                SendOutcome::None(why) => refused = why.is_some(),
                SendOutcome::Unknown(error) => {
                    for k in from..to {
                        self.withdraw(k, Some(&error), sent);
                    }
                    return;
                }
            }
        }
        for (k, query) in block.singly(next) {
            self.send_one(k, query, refused, sent);
        }
    }

    /// Sends query `k`. `refused` is true if an attempt to send a group that contains this query has already failed.
    fn send_one(&mut self, k: u64, query: Block<'_>, refused: bool, sent: &mut Sent) {
        let tried = send_with_retries(|| {
            self.stamp(k, k + 1);
            self.tx_path.send(query)
        });
        match tried {
            Ok(was_refused) => {
                sent.again += u64::from(refused || was_refused);
                self.book(k, k + 1, sent);
            }
            Err(why) => self.withdraw(k, why.as_ref(), sent),
        }
    }

    /// Counts query `k` as not sent, after a send error.
    fn withdraw(&self, k: u64, why: Option<&io::Error>, sent: &mut Sent) {
        self.ledger.withdraw(k);
        sent.refused += 1;
        if sent.refused == 1 {
            let error = why.map(ToString::to_string);
            sent.faults.push(Reason::SendRefused { query: k, error });
        }
    }

    /// Records the current time as the send time of the queries `from..to`. This must be done before the packets are
    /// sent, so that the receiver finds the query of every reply and no round-trip time is too short.
    #[inline]
    fn stamp(&self, from: u64, to: u64) {
        let now = clock::now().since(self.start);
        for k in from..to {
            self.ledger.stamp(k, now);
        }
        self.ledger.publish(to);
    }

    #[inline]
    fn book(&self, from: u64, to: u64, sent: &mut Sent) {
        sent.queries += to - from;
        for k in from..to {
            let left = self.ledger.sent(k).unwrap_or_default();
            sent.pacing.record(self.due(k), left);
        }
    }
}

/// Sends a query. Retries with increasing pauses while it is certain that the query has not been sent.
///
/// Returns true if the query was sent after a failed attempt, and false if no attempt failed. An error that an earlier
/// query caused does not count as a failed attempt.
///
/// # Errors
/// Returns the last send error if the query was not sent, or if this is uncertain. The error is `None` if every
/// attempt only reported an error that an earlier query had caused.
fn send_with_retries(mut send: impl FnMut() -> SendOutcome) -> Result<bool, Option<io::Error>> {
    let mut refusal = None;
    for attempt in 0..SEND_TRIES {
        match send() {
            SendOutcome::First(_) => return Ok(refusal.is_some()),
            // An ICMP error caused by an earlier query is reported once. The current query has not been sent yet.
            SendOutcome::None(None) => {}
            SendOutcome::None(Some(error)) => {
                refusal = Some(error);
                std::thread::sleep(Nanos::from_micros(50 << attempt).into());
            }
            SendOutcome::Unknown(error) => return Err(Some(error)),
        }
    }
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a query with these first attempts, and the number of attempts.
    fn fares(attempts: Vec<SendOutcome>) -> (Result<bool, Option<io::ErrorKind>>, u32) {
        let (mut attempts, mut count) = (attempts.into_iter(), 0);
        let tried = send_with_retries(|| {
            count += 1;
            attempts
                .next()
                .unwrap_or(SendOutcome::None(Some(io::ErrorKind::PermissionDenied.into())))
        });
        (tried.map_err(|why| why.map(|error| error.kind())), count)
    }

    #[test]
    fn a_possibly_sent_query_is_not_retried() {
        let timed_out = || SendOutcome::Unknown(io::ErrorKind::TimedOut.into());
        assert_eq!(fares(vec![timed_out()]), (Err(Some(io::ErrorKind::TimedOut)), 1));
        let no_room = || SendOutcome::None(Some(io::ErrorKind::WouldBlock.into()));
        let after_waiting = fares(vec![no_room(), timed_out()]);
        assert_eq!(after_waiting, (Err(Some(io::ErrorKind::TimedOut)), 2));
    }

    #[test]
    fn an_unsent_query_is_retried_for_a_while() {
        let refused = || SendOutcome::None(Some(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(fares(vec![SendOutcome::First(1)]), (Ok(false), 1));
        assert_eq!(fares(vec![SendOutcome::None(None), SendOutcome::First(1)]), (Ok(false), 2));
        assert_eq!(fares(vec![refused(), SendOutcome::First(1)]), (Ok(true), 2));
        let always = fares(Vec::new());
        assert_eq!(always, (Err(Some(io::ErrorKind::PermissionDenied)), SEND_TRIES));
    }

    #[test]
    fn queries_are_batched_only_if_necessary() {
        let burst = Nanos::from_micros(50);
        let pace = |spinning, offload, ns| SendTiming::choose(spinning, offload, Nanos(ns), burst);
        assert_eq!(pace(true, true, 10_000), SendTiming { spinning: true, run: 1, block: 1 });
        assert_eq!(pace(true, true, 1_000), SendTiming { spinning: true, run: 50, block: 50 });
        assert_eq!(pace(false, true, 10_000), SendTiming { spinning: false, run: 5, block: 5 });
        assert_eq!(pace(false, false, 10_000), SendTiming { spinning: false, run: 5, block: 1 });
        assert_eq!(pace(false, true, 1_000_000), SendTiming { spinning: false, run: 1, block: 1 });
        assert_eq!(pace(true, true, 100).run, 64);
    }
}
