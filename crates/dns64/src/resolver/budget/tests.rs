use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::name::LowerName;

const TIMEOUT: Nanos = Nanos::from_millis(1_700);

fn client(address: impl Into<std::net::IpAddr>) -> ClientId {
    ClientId::from_address(address.into())
}

/// A zone that answers after a millisecond and a zone that never answers.
struct World {
    budget: Budget,
    now: Nanos,
    /// Fetches in flight, each with its end time, ticket and name. Fetches in the first queue fail.
    flights: [VecDeque<(Nanos, AdmissionTicket, Vec<u8>)>; 2],
    denied: [usize; 2],
    asked: [usize; 2],
    /// Fetches that count as failing from the given time on, because they are not answered.
    doubts: VecDeque<(Nanos, Vec<u8>)>,
}

impl World {
    fn new() -> World {
        let budget = Budget::new();
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

    fn ask(&mut self, client: ClientId, name: &str, living: bool) {
        let name = name.parse::<LowerName>().unwrap().wire().to_vec();
        let taken = self.flights.iter().map(VecDeque::len).sum();
        let slots = Slots { taken, most: self.budget.questions(TIMEOUT) };
        let ticket = self.budget.ticket(client, &name, slots, self.now);
        let kind = usize::from(living);
        self.asked[kind] += 1;
        if self.budget.admit(ticket, slots).is_err() {
            self.denied[kind] += 1;
            return;
        }
        self.budget.enter(ticket);
        let takes = if living { Nanos::from_millis(1) } else { TIMEOUT };
        if !living {
            self.doubts.push_back((self.now + Nanos::from_millis(400), name.clone()));
        }
        self.flights[kind].push_back((self.now + takes, ticket, name));
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
                let (_, ticket, name) = flights.pop_front().unwrap();
                budget.leave(ticket);
                if kind == 1 {
                    budget.count_answer(now);
                    budget.answered(&name, false, now);
                } else {
                    budget.failed(&name, now);
                }
            }
        }
    }

    /// Simulates five seconds in which `attackers` clients together send queries for 12 000 dead
    /// names a second, and other clients send queries for 1 000 living names a second.
    fn torture(&mut self, attackers: u64, dead: impl Fn(u64) -> String) {
        for n in 0..60_000 {
            self.ask(client([10, 0, 0, (n % attackers) as u8]), &dead(n), false);
            if n % 12 == 0 {
                self.ask(client([192, 0, 2, (n % 97) as u8]), &format!("n{n}.living.test"), true);
            }
            self.pass(Nanos(Nanos::SECOND.0 / 12_000));
        }
    }
}

#[test]
fn r3_dead_zone_flood_by_one_client_spares_others() {
    let mut world = World::new();
    world.torture(1, |n| format!("n{n}.dead.test"));
    assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
    assert!(world.denied[0] > 40_000);
}

#[test]
fn r3_dead_zone_flood_by_200_clients_spares_others() {
    let mut world = World::new();
    world.torture(200, |n| format!("n{n}.dead.test"));
    assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
    // The dead zone gets only its share.
    let share = world.budget.questions(TIMEOUT) / (SUBTREE_DIVISOR + 1);
    let in_flight = world.flights[0].len();
    assert!((share / 2..=share + 1).contains(&in_flight), "{in_flight} of {share}");
}

#[test]
fn r3_many_failing_subtrees_spare_others() {
    let mut world = World::new();
    world.torture(200, |n| format!("n{n}.b{}.dead.test", n % 2_000));
    assert_eq!((world.asked[1], world.denied[1]), (5_000, 0));
}

#[test]
fn single_client_can_use_nearly_all_places() {
    let mut world = World::new();
    for n in 0..20_000 {
        world.ask(client([192, 0, 2, 7]), &format!("n{n}.slow.test"), false);
    }
    let all = world.budget.questions(TIMEOUT);
    let used = world.flights[0].len();
    assert!((all * 9 / 10..all).contains(&used), "{used} of {all}");
    world.ask(client([192, 0, 2, 8]), "a.slow.test", false);
    assert_eq!(world.flights[0].len(), used + 1, "another one still finds some");
}

#[test]
fn a_dead_zone_that_answers_again_is_not_held_back() {
    let mut world = World::new();
    world.torture(1, |n| format!("n{n}.dead.test"));
    world.pass(TIMEOUT);
    let denied = world.denied[1];
    for n in 0..20_000 {
        world.ask(client([192, 0, 2, 7]), &format!("again{n}.dead.test"), true);
        world.pass(Nanos::from_micros(100));
    }
    assert_eq!(world.denied[1], denied);
}

#[test]
fn places_to_wait_in_are_shared_out_as_they_get_less() {
    const MOST: usize = 900;
    let mut budget = Budget::new();
    let (greedy, modest) = (client([192, 0, 2, 7]), client([192, 0, 2, 8]));
    let mut taken = Vec::new();
    while let Ok(slot) = budget.admit_waiter(greedy, MOST, true) {
        budget.enter_waiter(slot);
        taken.push(slot);
    }
    assert!((MOST * 8 / 10..MOST).contains(&budget.waiting), "{}", budget.waiting);
    let denial = |budget: &Budget, client, first| budget.admit_waiter(client, MOST, first).err();
    assert_eq!(denial(&budget, greedy, true), Some(Rejection::ClientShare));
    assert_eq!(denial(&budget, modest, true), None, "another one still finds some");
    assert_eq!(denial(&budget, greedy, false), None, "a query in progress continues");
    while let Ok(slot) = budget.admit_waiter(modest, MOST, false) {
        budget.enter_waiter(slot);
        taken.push(slot);
    }
    assert_eq!((budget.waiting, denial(&budget, modest, false)), (MOST, Some(Rejection::NoRoom)));
    taken.into_iter().for_each(|slot| budget.leave_waiter(slot));
    assert_eq!((budget.waiting, budget.slots.is_empty()), (0, true));
}

#[test]
fn few_may_wait_in_a_failing_subtree() {
    let mut budget = Budget::new();
    let name = "n1.dead.test".parse::<LowerName>().unwrap();
    let admit =
        |budget: &Budget, others| budget.admit_beside(others, name.wire(), 800, Nanos::SECOND);
    assert_eq!(admit(&budget, 700), Ok(()), "the subtree is not failing yet");
    budget.failed(name.wire(), Nanos::SECOND);
    assert_eq!((admit(&budget, 99), admit(&budget, 100)), (Ok(()), Err(Rejection::FailingSubtree)));
}

/// Function that selects an attacking client.
type Attacker<'a> = &'a dyn Fn(u64) -> ClientId;

/// Simulates three seconds: an attack sends queries for 12 000 unanswered names a second, each in a
/// different top-level domain, and one client queries a living name every 20 ms.
fn flood(seed: u64, attacker: Attacker<'_>, honest: ClientId) -> World {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new();
    for n in 0..36_000 {
        world.ask(attacker(rng.random()), &format!("n{n}.t{n}"), false);
        if n % 240 == 239 {
            world.ask(honest, &format!("n{n}.living.test"), true);
        }
        world.pass(Nanos(Nanos::SECOND.0 / 12_000));
    }
    world
}

/// Returns one of `clients` clients in 2001:db8::/32.
fn in_ipv6(clients: u64) -> impl Fn(u64) -> ClientId {
    move |n| ClientId((0x2001_0db8 << 32) | (n % clients))
}

/// Returns a client in 10.16.0.0/12.
fn in_ipv4(n: u64) -> ClientId {
    client(std::net::Ipv4Addr::from_bits(0x0a10_0000 | (n % (1 << 20)) as u32))
}

#[test]
fn item_50_attack_from_any_network_leaves_room() {
    let of_48 = ["2001:db8:1::1", "2001:db8:100::1", "192.0.2.1"];
    let of_40 = ["2001:db8:100::1", "2001:db9::1", "192.0.2.1"];
    let of_12 = ["10.1.0.1", "192.0.2.1", "2001:db8::1"];
    // Hostile hosts among honest ones: every second address of a /22, every 130th of a /16.
    let hosts = |n: u64| in_ipv4(n % 500 * 2);
    let spread = |n: u64| in_ipv4(n % 500 * 130);
    let sites = |n: u64| ClientId(0x2001_0db8 << 32 | (n % 2_000) << 16);
    let both = |n: u64| if n >> 40 & 1 == 0 { in_ipv4(n) } else { in_ipv6(1 << 20)(n) };
    let attacks: [(&str, Attacker<'_>, &[&str]); 10] = [
        ("one client", &in_ipv6(1), &["2001:db8:0:1::1", "2001:db8:1::1", "192.0.2.1"]),
        ("20 /64s of a /48", &in_ipv6(20), &of_48),
        ("2 000 /64s of a /48", &in_ipv6(2_000), &of_48),
        ("65 536 /64s of a /48", &in_ipv6(65_536), &of_48),
        ("10^6 /64s of a /40", &in_ipv6(1 << 20), &of_40),
        ("10^6 addresses of a /12", &in_ipv4, &of_12),
        ("500 hosts of a /22", &hosts, &["10.16.1.1", "10.16.255.1"]),
        ("500 hosts of a /16", &spread, &["10.16.1.1", "10.17.0.1"]),
        ("2 000 sites of a /32", &sites, &["2001:db9::1"]),
        ("a /12 and a /40", &both, &["2001:db8:100::1", "10.1.0.1"]),
    ];
    for (attack, attacker, honest) in attacks {
        for (seed, address) in (1..).zip(honest) {
            let honest = client(address.parse::<std::net::IpAddr>().unwrap());
            let World { asked, denied, .. } = flood(seed, attacker, honest);
            assert!(denied[0] > 0, "{attack}: not felt");
            assert!(
                denied[1] * 100 <= asked[1],
                "{attack}: {address} denied {} of {}",
                denied[1],
                asked[1]
            );
        }
    }
}

#[test]
fn item_50_first_fetch_in_attacked_subtree_admitted() {
    let cases: [(u64, [u8; 4]); 3] =
        [(1, [10, 0, 0, 2]), (200, [10, 0, 1, 1]), (200, [192, 0, 2, 1])];
    for (attackers, honest) in cases {
        let mut world = World::new();
        world.torture(attackers, |n| format!("n{n}.zone.test"));
        assert!(world.denied[0] > 40_000, "{attackers} clients: not felt");
        for n in 0..20 {
            world.ask(client(honest), &format!("w{n}.zone.test"), true);
            world.pass(Nanos::from_millis(1));
        }
        assert_eq!(world.denied[1], 0, "beside {attackers} clients");
    }
}
