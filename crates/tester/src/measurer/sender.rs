//! The sending half of a pair: every query at its time, and the proof of it.

use std::io;
use std::sync::Arc;

use method::pacing::PacingRecorder;
use method::reason::{Half, Reason};
use method::schedule::Part;
use method::units::{CpuId, Nanos, counted};
use net::affinity::{be_favoured, be_real_time, pin_to};
use net::clock;
use wire::template::QueryTemplate;

use super::ids::IdPlan;
use super::ledger::Ledger;
use super::names::NameSequence;
use super::outlet::{Block, Left, Outlet};
use super::pair::Progress;
use super::result::Priority;

/// Below this interval a core cannot send queries one by one: a `send` takes about a microsecond,
/// with reserve.
const SEND_COST: Nanos = Nanos(2_000);
/// Linux takes no more segments than this in one call (`UDP_MAX_SEGMENTS` before 6.9).
pub(super) const MAX_RUN: u64 = 64;
/// A send that the kernel refuses for want of memory is tried again so often.
const SEND_TRIES: u32 = 5;
/// A device that reads queries itself has sent the last of them so long after it was handed them.
const LEAVES: Nanos = Nanos::from_millis(50);

/// How a pair's sender keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Burn CPU from query to query, or sleep.
    pub(super) spinning: bool,
    /// Queries that leave together, at the time of the last of them.
    pub(super) run: u16,
    /// Of these, queries that leave from one port in one call.
    pub(super) block: u16,
}

impl Pace {
    /// For a pair whose queries are `interval` apart. Queries leave one by one while there is time
    /// for it. They leave together, but none more than `max_burst` from its time, when the interval
    /// is shorter than a send takes, or when the sender sleeps: waking up for each would cost more
    /// than sending it.
    pub(super) fn choose(spinning: bool, offload: bool, interval: Nanos, max_burst: Nanos) -> Pace {
        let together = (max_burst.0 / interval.0.max(1)).clamp(1, MAX_RUN) as u16;
        let run = if spinning && interval >= SEND_COST { 1 } else { together };
        Pace { spinning, run, block: if offload { run } else { 1 } }
    }
}

/// What the sender hands over at the end.
pub(super) struct Sent {
    pub(super) queries: u64,
    pub(super) refused: u64,
    /// Queries that were refused at first and taken when they were tried again.
    pub(super) again: u64,
    pub(super) pacing: PacingRecorder,
    pub(super) priority: Priority,
    pub(super) faults: Vec<Reason>,
}

/// The sender of one pair: owns the pair's half of the schedule.
pub(super) struct Sender {
    /// What is the pair's of the schedule.
    pub(super) part: Part,
    pub(super) pace: Pace,
    pub(super) names: NameSequence,
    pub(super) template: QueryTemplate,
    pub(super) ids: Arc<IdPlan>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) outlet: Outlet,
    pub(super) cpu: Option<CpuId>,
    /// Whether it may take real-time priority: nobody of ours needs its CPU.
    pub(super) owns_cpu: bool,
    pub(super) start: Nanos,
    pub(super) progress: Arc<Progress>,
}

impl Sender {
    /// Sends the pair's queries; returns when the last has left.
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
        let unsent = self.outlet.unsent(LEAVES.into());
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

    /// The end of the run that begins with query `next`. Where queries leave in one call, a run is
    /// a block.
    fn run_end(&self, next: u64) -> u64 {
        match self.pace.block {
            1 => next + u64::from(self.pace.run),
            _ => self.ids.block_end(next),
        }
    }

    /// Takes the priority that it may have. One that spins takes none: it would starve its CPU.
    fn priority(&self) -> Priority {
        match (self.pace.spinning, self.owns_cpu) {
            (true, _) => Priority::Ordinary,
            (false, true) if be_real_time() => Priority::RealTime,
            (false, _) if be_favoured() => Priority::Favoured,
            (false, _) => Priority::Ordinary,
        }
    }

    /// How long before a deadline to stop sleeping and spin: as long as this machine's sleeps run
    /// over, measured. A sender that sleeps spins for an eighth of a run's time at most, and not at
    /// all on a CPU that others need: it rather is late by the rest.
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

    /// Waits for `due` (since the trial's start).
    #[inline]
    fn wait_until(&self, due: Nanos, stretch: Nanos) {
        let moment = self.start + due;
        loop {
            let now = clock::now();
            if now >= moment {
                return;
            }
            let left = moment.since(now);
            // A spinning sender sleeps too when nothing is due for long.
            let sleep_above = if self.pace.spinning { Nanos::from_millis(2) } else { stretch };
            if left > sleep_above {
                clock::sleep_until(Nanos(moment.0 - stretch.0));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Waits until the receiver has room for the queries below `end`; false if it has none for two
    /// timeouts' time.
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

    /// Sends queries `from..to`, which are a block: together if that is possible, else one by one.
    fn send_block(&mut self, from: u64, to: u64, block: Block<'_>, sent: &mut Sent) {
        let (mut next, mut refused) = (from, false);
        if self.outlet.joins(to - from) {
            self.stamp(from, to);
            match self.outlet.send_together(block) {
                Left::First(n) => {
                    self.book(from, from + n, sent);
                    next = from + n;
                    refused = true;
                }
                // The packets have not left, so they are sent (and stamped again) one by one.
                Left::None(why) => refused = why.is_some(),
                Left::Unknown(error) => {
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

    /// Sends query `k`; `refused` says whether it was refused before, together with others.
    fn send_one(&mut self, k: u64, query: Block<'_>, refused: bool, sent: &mut Sent) {
        let tried = until_it_leaves(|| {
            self.stamp(k, k + 1);
            self.outlet.send(query)
        });
        match tried {
            Ok(was_refused) => {
                sent.again += u64::from(refused || was_refused);
                self.book(k, k + 1, sent);
            }
            Err(why) => self.withdraw(k, why.as_ref(), sent),
        }
    }

    /// Gives up query `k`, which was refused.
    fn withdraw(&self, k: u64, why: Option<&io::Error>, sent: &mut Sent) {
        self.ledger.withdraw(k);
        sent.refused += 1;
        if sent.refused == 1 {
            let error = why.map(ToString::to_string);
            sent.faults.push(Reason::SendRefused { query: k, error });
        }
    }

    /// Enters queries into the ledger with this moment. Before the packet leaves: a reply is never
    /// faster than it looks, and always finds its query.
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

/// Sends a query, again where it is certain that it has not left, with pauses that grow; whether it
/// was refused at first, or why it was given up, as far as anybody told.
fn until_it_leaves(mut send: impl FnMut() -> Left) -> Result<bool, Option<io::Error>> {
    let mut refusal = None;
    for attempt in 0..SEND_TRIES {
        match send() {
            Left::First(_) => return Ok(refusal.is_some()),
            // An ICMP error of an earlier query is reported once, and this query has not been sent
            // yet.
            Left::None(None) => {}
            Left::None(Some(error)) => {
                refusal = Some(error);
                std::thread::sleep(Nanos::from_micros(50 << attempt).into());
            }
            Left::Unknown(error) => return Err(Some(error)),
        }
    }
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a query that fares so in the first attempts, and how many attempts there are.
    fn fares(attempts: Vec<Left>) -> (Result<bool, Option<io::ErrorKind>>, u32) {
        let (mut attempts, mut count) = (attempts.into_iter(), 0);
        let tried = until_it_leaves(|| {
            count += 1;
            attempts.next().unwrap_or(Left::None(Some(io::ErrorKind::PermissionDenied.into())))
        });
        (tried.map_err(|why| why.map(|error| error.kind())), count)
    }

    #[test]
    fn a_query_that_may_have_left_is_not_sent_again() {
        let timed_out = || Left::Unknown(io::ErrorKind::TimedOut.into());
        assert_eq!(fares(vec![timed_out()]), (Err(Some(io::ErrorKind::TimedOut)), 1));
        let no_room = || Left::None(Some(io::ErrorKind::WouldBlock.into()));
        let after_waiting = fares(vec![no_room(), timed_out()]);
        assert_eq!(after_waiting, (Err(Some(io::ErrorKind::TimedOut)), 2));
    }

    #[test]
    fn a_query_that_has_not_left_is_sent_again_for_a_while() {
        let refused = || Left::None(Some(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(fares(vec![Left::First(1)]), (Ok(false), 1));
        assert_eq!(fares(vec![Left::None(None), Left::First(1)]), (Ok(false), 2));
        assert_eq!(fares(vec![refused(), Left::First(1)]), (Ok(true), 2));
        let always = fares(Vec::new());
        assert_eq!(always, (Err(Some(io::ErrorKind::PermissionDenied)), SEND_TRIES));
    }

    #[test]
    fn queries_leave_together_only_where_they_must() {
        let burst = Nanos::from_micros(50);
        let pace = |spinning, offload, ns| Pace::choose(spinning, offload, Nanos(ns), burst);
        assert_eq!(pace(true, true, 10_000), Pace { spinning: true, run: 1, block: 1 });
        assert_eq!(pace(true, true, 1_000), Pace { spinning: true, run: 50, block: 50 });
        assert_eq!(pace(false, true, 10_000), Pace { spinning: false, run: 5, block: 5 });
        assert_eq!(pace(false, false, 10_000), Pace { spinning: false, run: 5, block: 1 });
        assert_eq!(pace(false, true, 1_000_000), Pace { spinning: false, run: 1, block: 1 });
        assert_eq!(pace(true, true, 100).run, 64);
    }
}
