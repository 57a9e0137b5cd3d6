//! How many questions may be in flight, how many may wait for them, and whose.
//!
//! In all there may be as many as upstreams answer in time (`rate`). What is left of that is shared
//! out as it gets less: a client may begin a question while it has caused fewer than eight times as
//! many as are still free, a dead branch of the tree (`branches`) takes one while it has fewer than
//! an eighth of that. So one client alone can use eight ninths, one dead branch a ninth; two
//! hundred greedy clients, or a thousand dead branches, still leave some free, which those get who
//! have caused few (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length thresholds for
//! shared-memory packet switches", 1998, DOI 10.1109/90.664262). Clients are counted without a
//! memory of each (`shares`).
//!
//! Places to wait in are shared out alike, as who waits for a question that somebody else has begun
//! takes one as well: a client gets one while it has fewer than eight times as many as are still
//! free, and beside a question of a dead branch no more than an eighth of what is free may wait.
//!
//! ```text
//! in flight:  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░   ░ free
//!             client with ≥ 8 ░: denied · dead branch with ≥ ░/8: denied · all others: welcome
//! ```

mod branches;
mod rate;
pub(super) mod shares;

use method::units::Nanos;
use rand::Rng;

use self::branches::{BranchId, Branches};
use self::rate::Rate;
use self::shares::{Clients, Counters, Shares};
use super::waiter::Denial;

/// How many times as much as is free one client may have.
const CLIENT: usize = 8;
/// Of what is free, the part that one dead branch may have.
const BRANCH: usize = 8;

/// The budget of one worker.
pub(super) struct Budget {
    rate: Rate,
    clients: Clients,
    /// Questions in flight, by the clients that have caused them.
    questions: Shares,
    /// Places in which queries wait, by their clients.
    places: Shares,
    /// How many of these are taken.
    waiting: usize,
    branches: Branches,
}

/// Whose a question in flight is. It is given back when the question is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    client: Counters,
    branch: Option<BranchId>,
}

impl Budget {
    /// Nothing is in flight yet.
    pub(super) fn new(rng: &mut impl Rng) -> Budget {
        Budget {
            rate: Rate::default(),
            clients: Clients::new(rng),
            questions: Shares::default(),
            places: Shares::default(),
            waiting: 0,
            branches: Branches::default(),
        }
    }

    /// The counters of a client ([`network`](crate::client::limiter::network)).
    #[inline]
    pub(super) fn client(&self, client: u64) -> Counters {
        self.clients.counters(client)
    }

    /// Whether one more query of `client` may wait where `most` may in all. `first`: nothing has
    /// been asked for it yet; else it may while there is room at all, as what has been asked were
    /// for nothing.
    ///
    /// # Errors
    /// If not, with whose share is used up.
    #[inline]
    pub(super) fn admit_waiter(
        &self,
        client: Counters,
        most: usize,
        first: bool,
    ) -> Result<(), Denial> {
        let free = most.saturating_sub(self.waiting);
        if free == 0 {
            return Err(Denial::NoRoom);
        }
        if first && self.places.of(client) >= CLIENT * free {
            return Err(Denial::ClientShare);
        }
        Ok(())
    }

    /// Whether one more query may wait for a question for `name` (wire format, lower case) that is
    /// in flight, for which `others` wait, where `most` may in all.
    ///
    /// # Errors
    /// If it belongs to a dead branch, and enough wait for it.
    pub(super) fn admit_beside(
        &self,
        others: usize,
        name: &[u8],
        most: usize,
        now: Nanos,
    ) -> Result<(), Denial> {
        let many = others * BRANCH >= most.saturating_sub(self.waiting);
        if many && self.branches.dead(name, now).is_some() {
            Err(Denial::DeadBranch)
        } else {
            Ok(())
        }
    }

    /// A query of a client waits.
    #[inline]
    pub(super) fn enter_waiter(&mut self, client: Counters) {
        self.waiting += 1;
        self.places.enter(client);
    }

    /// A query of a client waits no more.
    #[inline]
    pub(super) fn leave_waiter(&mut self, client: Counters) {
        self.waiting -= 1;
        self.places.leave(client);
    }

    /// How many questions may be in flight, if each may take `timeout`.
    #[inline]
    pub(super) fn questions(&self, timeout: Nanos) -> usize {
        self.rate.questions(timeout)
    }

    /// Whose a question for `name` (wire format, lower case) by `client` would be.
    #[inline]
    pub(super) fn whose(&self, client: Counters, name: &[u8], now: Nanos) -> Charge {
        Charge { client, branch: self.branches.dead(name, now) }
    }

    /// Whether one more may be in flight where `free` more may.
    ///
    /// # Errors
    /// If not, with whose share is used up.
    #[inline]
    pub(super) fn admit(&self, charge: Charge, free: usize) -> Result<(), Denial> {
        if free == 0 {
            return Err(Denial::NoRoom);
        }
        if self.questions.of(charge.client) >= CLIENT * free {
            return Err(Denial::ClientShare);
        }
        if charge.branch.is_some_and(|branch| self.branches.questions(branch) * BRANCH >= free) {
            return Err(Denial::DeadBranch);
        }
        Ok(())
    }

    /// It is in flight.
    #[inline]
    pub(super) fn enter(&mut self, charge: Charge) {
        self.questions.enter(charge.client);
        if let Some(branch) = charge.branch {
            self.branches.enter(branch);
        }
    }

    /// It is in flight no more.
    #[inline]
    pub(super) fn leave(&mut self, charge: Charge) {
        self.questions.leave(charge.client);
        if let Some(branch) = charge.branch {
            self.branches.leave(branch);
        }
    }

    /// An upstream has said something in time.
    #[inline]
    pub(super) fn heard(&mut self, now: Nanos) {
        self.rate.answered(now);
    }

    /// A question for `name` has failed, or is not answered in time.
    pub(super) fn failed(&mut self, name: &[u8], now: Nanos) {
        self.branches.failed(name, now);
    }

    /// Whether anything has failed of late, so that answers are of interest.
    #[inline]
    pub(super) fn has_failures(&self, now: Nanos) -> bool {
        !self.branches.are_quiet(now)
    }

    /// A question for `name` has been answered by a server of that name's zone; or of one above, if
    /// `by_parent` says so.
    pub(super) fn answered(&mut self, name: &[u8], by_parent: bool, now: Nanos) {
        self.branches.answered(if by_parent { branches::parent(name) } else { name }, now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::name::LowerName;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const TIMEOUT: Nanos = Nanos::from_millis(1_700);

    /// A world of a zone that answers after a millisecond and one that never does.
    struct World {
        budget: Budget,
        now: Nanos,
        /// What is in flight: when it is over, whether it fails, whose, and its name.
        flights: [VecDeque<(Nanos, Charge, Vec<u8>)>; 2],
        denied: [usize; 2],
        asked: [usize; 2],
        /// What has not been answered for so long counts as failing.
        doubts: VecDeque<(Nanos, Vec<u8>)>,
    }

    impl World {
        fn new() -> World {
            let budget = Budget::new(&mut StdRng::seed_from_u64(1));
            let now = Nanos(1_000 * Nanos::SECOND.0);
            World {
                budget,
                now,
                flights: Default::default(),
                denied: [0; 2],
                asked: [0; 2],
                doubts: VecDeque::new(),
            }
        }

        fn ask(&mut self, client: u64, name: &str, living: bool) {
            let name = name.parse::<LowerName>().unwrap().wire().to_vec();
            let charge = self.budget.whose(self.budget.client(client), &name, self.now);
            let in_flight: usize = self.flights.iter().map(VecDeque::len).sum();
            let free = self.budget.questions(TIMEOUT).saturating_sub(in_flight);
            let kind = usize::from(living);
            self.asked[kind] += 1;
            if self.budget.admit(charge, free).is_err() {
                self.denied[kind] += 1;
                return;
            }
            self.budget.enter(charge);
            let takes = if living { Nanos::from_millis(1) } else { TIMEOUT };
            if !living {
                self.doubts.push_back((self.now + Nanos::from_millis(400), name.clone()));
            }
            self.flights[kind].push_back((self.now + takes, charge, name));
        }

        fn pass(&mut self, time: Nanos) {
            self.now = self.now + time;
            let (now, budget) = (self.now, &mut self.budget);
            while self.doubts.front().is_some_and(|(at, _)| *at <= now) {
                let (_, name) = self.doubts.pop_front().unwrap();
                budget.failed(&name, now);
            }
            for (kind, flights) in self.flights.iter_mut().enumerate() {
                while flights.front().is_some_and(|(at, ..)| *at <= now) {
                    let (_, charge, name) = flights.pop_front().unwrap();
                    budget.leave(charge);
                    if kind == 1 {
                        budget.heard(now);
                        budget.answered(&name, false, now);
                    } else {
                        budget.failed(&name, now);
                    }
                }
            }
        }

        /// Five seconds in which `attackers` clients ask 12 000 dead names a second together, and
        /// others 1 000 living ones.
        fn torture(&mut self, attackers: u64, dead: impl Fn(u64) -> String) {
            for n in 0..60_000 {
                self.ask(0x0a00_0000 + n % attackers, &dead(n), false);
                if n % 12 == 0 {
                    self.ask(0xc000_0200 + n % 97, &format!("n{n}.living.test"), true);
                }
                self.pass(Nanos(Nanos::SECOND.0 / 12_000));
            }
        }
    }

    #[test]
    fn r3_one_client_that_asks_for_a_dead_zone_takes_nothing_from_others() {
        let mut world = World::new();
        world.torture(1, |n| format!("n{n}.dead.test"));
        assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
        assert!(world.denied[0] > 40_000);
    }

    #[test]
    fn r3_two_hundred_clients_that_ask_for_a_dead_zone_take_nothing_from_others() {
        let mut world = World::new();
        world.torture(200, |n| format!("n{n}.dead.test"));
        assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
        // The dead zone gets its share, and no more.
        let share = world.budget.questions(TIMEOUT) / (BRANCH + 1);
        let in_flight = world.flights[0].len();
        assert!((share * 9 / 10..=share + 1).contains(&in_flight), "{in_flight} of {share}");
    }

    #[test]
    fn r3_names_in_many_dead_branches_take_nothing_from_others() {
        let mut world = World::new();
        world.torture(200, |n| format!("n{n}.b{}.dead.test", n % 2_000));
        assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
    }

    #[test]
    fn a_client_alone_can_use_nearly_all_of_it() {
        let mut world = World::new();
        for n in 0..20_000 {
            world.ask(7, &format!("n{n}.slow.test"), false);
        }
        let all = world.budget.questions(TIMEOUT);
        let used = world.flights[0].len();
        assert!((all * 8 / 9..=all * 8 / 9 + 1).contains(&used), "{used} of {all}");
        world.ask(8, "a.slow.test", false);
        assert_eq!(world.flights[0].len(), used + 1, "another one still finds some");
    }

    #[test]
    fn a_dead_zone_that_answers_again_is_not_held_back() {
        let mut world = World::new();
        world.torture(1, |n| format!("n{n}.dead.test"));
        world.pass(TIMEOUT);
        let denied = world.denied[1];
        for n in 0..20_000 {
            world.ask(7, &format!("again{n}.dead.test"), true);
            world.pass(Nanos::from_micros(100));
        }
        assert_eq!(world.denied[1], denied);
    }

    #[test]
    fn places_to_wait_in_are_shared_out_as_they_get_less() {
        const MOST: usize = 900;
        let mut budget = Budget::new(&mut StdRng::seed_from_u64(1));
        let (greedy, modest) = (budget.client(7), budget.client(8));
        while budget.admit_waiter(greedy, MOST, true).is_ok() {
            budget.enter_waiter(greedy);
        }
        assert_eq!(budget.admit_waiter(greedy, MOST, true), Err(Denial::ClientShare));
        assert!((MOST * 8 / 9..=MOST * 8 / 9 + 1).contains(&budget.waiting), "{}", budget.waiting);
        assert_eq!(budget.admit_waiter(modest, MOST, true), Ok(()), "another one still finds some");
        assert_eq!(
            budget.admit_waiter(greedy, MOST, false),
            Ok(()),
            "what has been begun is not given up"
        );
        let of_greedy = budget.waiting;
        while budget.waiting < MOST {
            budget.enter_waiter(modest);
        }
        assert_eq!(budget.admit_waiter(modest, MOST, false), Err(Denial::NoRoom));
        (0..of_greedy).for_each(|_| budget.leave_waiter(greedy));
        (of_greedy..MOST).for_each(|_| budget.leave_waiter(modest));
        assert_eq!((budget.waiting, budget.places.of(greedy), budget.places.of(modest)), (0, 0, 0));
    }

    #[test]
    fn few_wait_for_a_question_of_a_dead_branch() {
        let mut budget = Budget::new(&mut StdRng::seed_from_u64(1));
        let name = "n1.dead.test".parse::<LowerName>().unwrap();
        let admit =
            |budget: &Budget, others| budget.admit_beside(others, name.wire(), 800, Nanos::SECOND);
        assert_eq!(admit(&budget, 700), Ok(()), "it is not known to be dead");
        budget.failed(name.wire(), Nanos::SECOND);
        assert_eq!((admit(&budget, 99), admit(&budget, 100)), (Ok(()), Err(Denial::DeadBranch)));
    }
}
