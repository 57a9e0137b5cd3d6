//! Fair division of a limited resource among the networks of clients. A unit of the resource is called a slot, for
//! example a slot for a query in progress.
//!
//! A client belongs to nested networks ([`client`]). The same rule applies at every level of nesting. Inside a network
//! that may use `r` further slots, a smaller network that holds `n` slots gets a further slot if the inequality below
//! is true.
//!
//! ```text
//! n × s × w² < r²      s = max(1, all slots of the surrounding network ÷ 4 096)
//!                      w = weight of the client, at most 1
//! ```
//!
//! A client gets a slot if the rule admits the client and each network that contains it. The fewer slots are free, the
//! fewer slots a network may use. The rule is a form of dynamic thresholds (Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", 1998, DOI 10.1109/90.664262). In the paper, however, the threshold is
//! proportional to the free capacity.
//!
//! ```text
//! all: 8 192 slots, s = 2, r = 127
//!   2001:db8::/32    n = 8 065    8 065 × 2 < 127²: admitted, r = 0.5 inside
//!     2001:db8::/40  n = 8 065    8 065 × 2 > 0.5²: denied
//!   2001:db9::/32    n = 0        admitted, and all networks inside as well
//! ```
//!
//! Networks with equal demand inside the same network get equal numbers of slots, regardless of how many clients they
//! contain (max-min fairness). If `k` networks inside one network with `c` slots take as many slots as they can, each
//! holds about `c ÷ k` slots. The number of slots that stay free is the square root of `s × c ÷ k`. It is at least 1
//! while `k < c`.
//!
//! The weight ([`Weight`]) reserves the free slots for clients that hold few slots. The weight is 1 if the client, and
//! each network that contains it, holds at least as many slots as its neighbours hold on average. Fewer slots reduce
//! the weight: to 1/4 if only the client itself holds no slots, and to 1/64 if even the widest network that contains it
//! holds none. A client with few slots is therefore admitted even if hostile neighbours hold as many slots as the rule
//! allows.

pub(crate) mod client;
pub(crate) mod counts;
pub(crate) mod fair_queue;

use self::client::{ClientId, LEVELS};

/// Number of slots above which the factor `s` in the rule for the division of slots exceeds 1. Above this number, about
/// 1/64 of the slots stay free even if one network takes as many slots as the rule allows.
const MANY: f64 = 4_096.0;

/// Number of slots in use, and total number of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) taken: usize,
    pub(crate) most: usize,
}

impl Slots {
    /// Returns the number of free slots.
    #[inline]
    pub(crate) fn free(self) -> usize {
        self.most.saturating_sub(self.taken)
    }

    /// True if at least an eighth of the slots are in use. With fewer slots in use, the rule for the division of slots
    /// limits no client and no network.
    #[inline]
    pub(crate) fn are_scarce(self) -> bool {
        self.taken * 8 >= self.most
    }

    /// Returns a new slot for the client.
    #[inline]
    pub(crate) fn next(self, client: ClientId) -> Slot {
        Slot { client, counted: self.are_scarce() }
    }

    fn headroom(self) -> Headroom {
        Headroom { left: self.free() as f64, most: self.most as f64 }
    }
}

/// A slot in use by a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) client: ClientId,
    /// True if the slot is included in the counts of the networks that contain the client.
    pub(crate) counted: bool,
}

/// Number of further slots that a network may take, and the total number of slots that it would then hold.
#[derive(Clone, Copy, Debug)]
struct Headroom {
    /// Number of further slots that the network may take.
    left: f64,
    /// Total number of slots that the network would hold after taking `left` further slots.
    most: f64,
}

impl Headroom {
    /// Returns the factor `s × w²` of the rule that the module documentation describes.
    fn scale(self, Weight(weight): Weight) -> f64 {
        (self.most / MANY).max(1.0) * weight * weight
    }

    /// True if a network that is inside this network and holds `held` slots may take a further slot.
    fn admits(self, held: usize, weight: Weight) -> bool {
        self.left > 0.0 && held as f64 * self.scale(weight) < self.left * self.left
    }

    /// For a network that is inside this network and holds `held` slots, returns the number of further slots that it
    /// may take, and its resulting total number of slots.
    fn inside(self, held: usize, weight: Weight) -> Headroom {
        if held == 0 {
            return self;
        }
        // If the inner network takes all slots that the rule allows, `kept` slots stay free. The equation for `kept`
        // is (held + left − kept) × s × w² = kept².
        let (held, scale) = (held as f64, self.scale(weight));
        let kept = ((scale * (scale + 4.0 * (held + self.left))).sqrt() - scale) / 2.0;
        let left = self.left - kept;
        Headroom { left, most: held + left }
    }
}

/// Weight of a client in the rule for the division of slots. The weight is below 1 if the client, or a network that
/// contains it, holds fewer slots than its neighbours on average.
#[derive(Clone, Copy, Debug)]
struct Weight(f64);

impl Weight {
    const FULL: Weight = Weight(1.0);
    /// Weight of a network that holds no slot, for each level of nesting. The widest networks come first.
    const LEAST: [f64; LEVELS] = [1.0 / 64.0, 1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0];

    /// Returns this weight or the weight of a network, whichever is smaller. The network is at nesting level `level`
    /// and holds `held` slots. The surrounding network contains `networks` networks, which together hold `all` slots.
    fn and(self, level: usize, held: usize, all: usize, networks: usize) -> Weight {
        let least = Weight::LEAST[level];
        let of_mean = if held == 0 { 0.0 } else { (held * networks) as f64 / all as f64 };
        Weight(self.0.min(least + (1.0 - least) * of_mean.min(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_inside_ends_where_the_rule_denies() {
        for most in [10, 100, 1_000, 8_192, 100_000] {
            for taken in (0..most).step_by(most / 10) {
                let headroom = Slots { taken, most }.headroom();
                for held in (0..=taken).step_by(1 + taken / 10) {
                    let inside = headroom.inside(held, Weight::FULL);
                    let admits = headroom.admits(held, Weight::FULL);
                    assert_eq!(inside.left > 0.0, admits, "{held} of {taken}/{most}");
                    assert!(inside.left <= headroom.left && inside.most <= headroom.most);
                }
            }
        }
    }

    #[test]
    fn one_more_place_inside_takes_one_place_of_the_room() {
        let headroom =
            |taken, held| Slots { taken, most: 8_192 }.headroom().inside(held, Weight::FULL);
        let (before, after) = (headroom(6_000, 5_000), headroom(6_001, 5_001));
        assert!((before.left - after.left - 1.0).abs() < 1e-6, "{before:?} {after:?}");
        assert!((before.most - after.most).abs() < 1e-6, "{before:?} {after:?}");
    }

    #[test]
    fn weights_depend_on_what_neighbours_hold() {
        let weight = |level, held| Weight::FULL.and(level, held, 100, 10).0;
        assert_eq!([weight(4, 0), weight(3, 0), weight(0, 0)], [0.25, 0.125, 1.0 / 64.0]);
        assert_eq!([weight(4, 10), weight(4, 50), weight(0, 10)], [1.0; 3]);
        assert_eq!(weight(4, 5), 0.625);
        assert_eq!(Weight(0.25).and(4, 5, 100, 10).0, 0.25, "the smallest one counts");
    }

    #[test]
    fn many_networks_leave_room_for_one_more() {
        for (most, networks) in [(100, 99), (1_000, 900), (8_192, 20), (8_192, 8_000)] {
            let mut held = vec![0; networks];
            let mut taken = 0;
            for n in 0..20 * most {
                let n = n % networks;
                if (Slots { taken, most }).headroom().admits(held[n], Weight::FULL) {
                    held[n] += 1;
                    taken += 1;
                }
            }
            assert!(taken < most, "{networks} networks took all {most} places");
            let fewest = held.iter().min().unwrap();
            assert!(held.iter().all(|held| held - fewest <= 1), "{networks} of {most}");
            assert!(taken * 10 >= most * 8, "{taken} of {most} used by {networks}");
        }
    }
}
