//! Outcome of each query, and the totals of a trial.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use units::{Nanos, QueryIndex};

/// Fault of a reply that belongs to a query and arrived in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wrong {
    /// An RCODE other than NOERROR.
    Rcode(u8),
    /// The TC bit of the reply is set (RFC 1035 §4.1.1).
    Truncated,
    /// The reply could not be parsed, or its opcode is not QUERY.
    Malformed,
    /// No AAAA record at the end of the alias chain.
    NoAaaa,
    /// An AAAA record with an address other than the one that belongs to the name.
    Address,
    /// The query was signed, but the reply's signature is missing or invalid (RFC 8945).
    Signature,
    /// The reply arrived at an address of the tester that is not the query's source address (RFC 5452 §9.1).
    Destination,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Rcode(1) => "FORMERR",
            Wrong::Rcode(2) => "SERVFAIL",
            Wrong::Rcode(3) => "NXDOMAIN",
            Wrong::Rcode(4) => "NOTIMP",
            Wrong::Rcode(5) => "REFUSED",
            Wrong::Rcode(code) => return write!(f, "RCODE {code}"),
            Wrong::Truncated => "truncated",
            Wrong::Malformed => "malformed",
            Wrong::NoAaaa => "no AAAA record",
            Wrong::Address => "wrong address",
            Wrong::Signature => "wrong signature",
            Wrong::Destination => "sent to another address of the tester",
        })
    }
}

/// Outcome of a query, decided by the first reply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Correct answer within the timeout.
    Valid,
    /// A reply at or after the timeout.
    Late,
    /// No reply arrived before the tester stopped receiving.
    Lost,
    /// A reply within the timeout that is not a correct answer.
    Wrong(Wrong),
}

impl Outcome {
    /// Returns the word that stands for this outcome in record files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Valid => "valid",
            Outcome::Late => "late",
            Outcome::Lost => "lost",
            Outcome::Wrong(Wrong::Rcode(_)) => "wrong_rcode",
            Outcome::Wrong(Wrong::Truncated) => "wrong_truncated",
            Outcome::Wrong(Wrong::Malformed) => "wrong_malformed",
            Outcome::Wrong(Wrong::NoAaaa) => "wrong_no_aaaa",
            Outcome::Wrong(Wrong::Address) => "wrong_address",
            Outcome::Wrong(Wrong::Signature) => "wrong_signature",
            Outcome::Wrong(Wrong::Destination) => "wrong_destination",
        }
    }
}

/// Send times, arrival time and outcome of one query. Times are in nanoseconds since the trial's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of the query in the trial.
    pub index: QueryIndex,
    /// Index of the thread pair that sent the query.
    pub pair: u16,
    /// Scheduled send time.
    pub scheduled: Nanos,
    /// Time at which the query was handed to the kernel.
    pub sent: Nanos,
    /// Arrival time of the first reply, if there was one.
    pub received: Option<Nanos>,
    /// Outcome of the query.
    pub outcome: Outcome,
    /// RCODE of the first reply; absent if there was no reply.
    pub rcode: Option<u8>,
}

/// For each fault, the number of replies that arrived in time but had this fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WrongCounts {
    /// Number of replies with RCODE NOERROR but without an AAAA record at the end of the alias chain.
    pub no_aaaa: u64,
    /// For each RCODE other than NOERROR, the number of replies with this RCODE.
    #[serde(with = "by_number")]
    #[schemars(with = "std::collections::BTreeMap<String, u64>")]
    pub rcode: BTreeMap<u8, u64>,
    /// Number of replies with the TC bit set (RFC 1035 §4.1.1).
    pub truncated: u64,
    /// Number of replies in which the address of an AAAA record does not belong to the queried name.
    pub address: u64,
    /// Number of replies that cannot be parsed as an answer.
    pub malformed: u64,
    /// Number of replies that lack a valid signature although the query was signed.
    #[serde(default)]
    pub signature: u64,
    /// Number of replies that arrived at an address of the tester other than the query's source address. Such replies
    /// are counted only in trials with many source addresses. In other trials, each socket receives only packets for
    /// its own address.
    #[serde(default)]
    pub destination: u64,
}

/// Serialization of counts by RCODE number, for `#[serde(with = "…")]`. JSON keys are strings. serde_json converts such
/// keys to numbers, except in a flattened structure such as [`Counts`].
pub mod by_number {
    use std::collections::BTreeMap;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Serializes the counts with the RCODE numbers as keys.
    ///
    /// # Errors
    /// Returns any error from the serializer.
    pub fn serialize<S: Serializer>(
        map: &BTreeMap<u8, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        map.serialize(serializer)
    }

    /// Reads the RCODE numbers from the keys.
    ///
    /// # Errors
    /// Returns an error if a key is not a number up to 255.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u8, u64>, D::Error> {
        let map = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let entry =
            |(key, n): (String, u64)| key.parse().map(|key| (key, n)).map_err(D::Error::custom);
        map.into_iter().map(entry).collect()
    }
}

impl WrongCounts {
    /// Returns each fault, with the number of replies that have this fault.
    fn each(&self) -> impl Iterator<Item = (Wrong, u64)> + '_ {
        let rcodes = self.rcode.iter().map(|(&rcode, &n)| (Wrong::Rcode(rcode), n));
        let others = [
            (Wrong::NoAaaa, self.no_aaaa),
            (Wrong::Truncated, self.truncated),
            (Wrong::Address, self.address),
            (Wrong::Malformed, self.malformed),
            (Wrong::Signature, self.signature),
            (Wrong::Destination, self.destination),
        ];
        rcodes.chain(others)
    }

    /// Returns the number of wrong replies.
    pub fn total(&self) -> u64 {
        self.each().map(|(_, n)| n).sum()
    }
}

/// Totals of a trial. Invariant: sent = valid + late + lost + Σ wrong ([`Counts::is_balanced`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Counts {
    /// Number of queries handed to the kernel.
    pub sent: u64,
    /// Number of queries with a first reply that was valid and arrived in time.
    pub valid: u64,
    /// Number of queries with a first reply at or after the timeout.
    pub late: u64,
    /// Number of queries without any reply.
    pub lost: u64,
    /// Number of queries with a first reply that arrived in time but was wrong, for each fault.
    pub wrong: WrongCounts,
    /// Number of further replies to queries that already had a reply.
    pub duplicates: u64,
    /// Number of unmatched responses: received packets that belong to no query.
    pub stray: u64,
    /// Number of queries that the kernel did not accept because of a send error. These queries are not included in
    /// `sent`.
    pub refused: u64,
    /// Number of queries that the kernel accepted only at a later attempt. These queries are included in `sent`.
    #[serde(default)]
    pub sent_again: u64,
}

impl Counts {
    /// Counts the outcome of one query.
    pub fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Valid => self.valid += 1,
            Outcome::Late => self.late += 1,
            Outcome::Lost => self.lost += 1,
            Outcome::Wrong(wrong) => match wrong {
                Wrong::Rcode(rcode) => *self.wrong.rcode.entry(rcode).or_default() += 1,
                Wrong::Truncated => self.wrong.truncated += 1,
                Wrong::Malformed => self.wrong.malformed += 1,
                Wrong::Signature => self.wrong.signature += 1,
                Wrong::NoAaaa => self.wrong.no_aaaa += 1,
                Wrong::Address => self.wrong.address += 1,
                Wrong::Destination => self.wrong.destination += 1,
            },
        }
    }

    /// Adds the totals of a second pair of threads (sender and receiver) to these totals.
    pub fn merge(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.valid += other.valid;
        self.late += other.late;
        self.lost += other.lost;
        self.wrong.no_aaaa += other.wrong.no_aaaa;
        self.wrong.truncated += other.wrong.truncated;
        self.wrong.address += other.wrong.address;
        self.wrong.malformed += other.wrong.malformed;
        self.wrong.signature += other.wrong.signature;
        self.wrong.destination += other.wrong.destination;
        for (&rcode, &n) in &other.wrong.rcode {
            *self.wrong.rcode.entry(rcode).or_default() += n;
        }
        self.duplicates += other.duplicates;
        self.stray += other.stray;
        self.refused += other.refused;
        self.sent_again += other.sent_again;
    }

    /// Returns the number of valid, late and wrong replies.
    pub fn replies(&self) -> u64 {
        self.valid + self.late + self.wrong.total()
    }

    /// If no reply was valid and at least 99 % of the replies have the same fault, returns this fault. Such a result
    /// shows that the server is misconfigured. It gives no information about the server's speed.
    pub fn wrong_in_one_way(&self) -> Option<Wrong> {
        let (way, n) = self.wrong.each().max_by_key(|(_, n)| *n)?;
        (self.valid == 0 && n > 0 && n * 100 >= self.replies() * 99).then_some(way)
    }

    /// True if every query that was sent has exactly one outcome.
    pub fn is_balanced(&self) -> bool {
        self.outcomes() == Some(self.sent)
    }

    /// Returns the number of queries that have an outcome; `None` on overflow.
    pub fn outcomes(&self) -> Option<u64> {
        let wrong = self.wrong.each().map(|(_, n)| n);
        let mut all = [self.valid, self.late, self.lost].into_iter().chain(wrong);
        all.try_fold(0, u64::checked_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each outcome, with its word.
    const ALL: [(Outcome, &str); 10] = [
        (Outcome::Valid, "valid"),
        (Outcome::Late, "late"),
        (Outcome::Lost, "lost"),
        (Outcome::Wrong(Wrong::Rcode(2)), "wrong_rcode"),
        (Outcome::Wrong(Wrong::Truncated), "wrong_truncated"),
        (Outcome::Wrong(Wrong::Malformed), "wrong_malformed"),
        (Outcome::Wrong(Wrong::NoAaaa), "wrong_no_aaaa"),
        (Outcome::Wrong(Wrong::Address), "wrong_address"),
        (Outcome::Wrong(Wrong::Signature), "wrong_signature"),
        (Outcome::Wrong(Wrong::Destination), "wrong_destination"),
    ];

    /// Returns totals that all differ: the first outcome occurs once, the second twice, and so on.
    fn all_different() -> Counts {
        let mut counts = Counts {
            sent: 55,
            duplicates: 11,
            stray: 12,
            refused: 13,
            sent_again: 14,
            ..Counts::default()
        };
        for ((outcome, _), times) in ALL.into_iter().zip(1..) {
            (0..times).for_each(|_| counts.add(outcome));
        }
        counts
    }

    #[test]
    fn each_outcome_has_its_word_and_total() {
        for (outcome, as_str) in ALL {
            assert_eq!(outcome.as_str(), as_str);
        }
        let counts = all_different();
        let wrong = &counts.wrong;
        assert_eq!((counts.valid, counts.late, counts.lost), (1, 2, 3));
        assert_eq!((wrong.rcode[&2], wrong.truncated, wrong.malformed), (4, 5, 6));
        assert_eq!(
            (wrong.no_aaaa, wrong.address, wrong.signature, wrong.destination),
            (7, 8, 9, 10)
        );
        assert_eq!(wrong.total(), 49);
        assert!(counts.is_balanced());
    }

    #[test]
    fn the_sums_of_pairs_add_up_one_by_one() {
        let one = serde_json::to_value(all_different()).unwrap();
        let mut sums = all_different();
        sums.merge(&all_different());
        sums.merge(&Counts::default());
        let sums = serde_json::to_value(sums).unwrap();
        fn is_double(one: &serde_json::Value, sum: &serde_json::Value) -> bool {
            match (one.as_object(), sum.as_object()) {
                (Some(one), Some(sum)) => {
                    one.len() == sum.len() && one.iter().all(|(key, one)| is_double(one, &sum[key]))
                }
                _ => sum.as_u64() == one.as_u64().map(|one| 2 * one) && one.as_u64() > Some(0),
            }
        }
        assert!(is_double(&one, &sums), "{one}: {sums}");
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Valid),
            Just(Outcome::Late),
            Just(Outcome::Lost),
            (1u8..16).prop_map(|r| Outcome::Wrong(Wrong::Rcode(r))),
            Just(Outcome::Wrong(Wrong::Truncated)),
            Just(Outcome::Wrong(Wrong::Malformed)),
            Just(Outcome::Wrong(Wrong::NoAaaa)),
            Just(Outcome::Wrong(Wrong::Address)),
            Just(Outcome::Wrong(Wrong::Signature)),
            Just(Outcome::Wrong(Wrong::Destination)),
        ]
    }

    #[test]
    fn counts_are_read_back_from_inside_of_another_object() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Trial {
            #[serde(flatten)]
            counts: Counts,
        }
        let mut counts = Counts { sent: 3, ..Counts::default() };
        for outcome in
            [Outcome::Valid, Outcome::Wrong(Wrong::Rcode(2)), Outcome::Wrong(Wrong::Rcode(15))]
        {
            counts.add(outcome);
        }
        let trial = Trial { counts };
        let text = serde_json::to_string(&trial).unwrap();
        assert!(text.contains("\"2\":1"), "{text}");
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), trial);
    }

    #[test]
    fn replies_with_one_common_fault_are_detected() {
        let of = |valid, late, lost, rcodes: &[(u8, u64)], address| {
            let wrong = WrongCounts {
                rcode: rcodes.iter().copied().collect(),
                address,
                ..WrongCounts::default()
            };
            let sent = valid + late + lost + wrong.total();
            Counts { sent, valid, late, lost, wrong, ..Counts::default() }.wrong_in_one_way()
        };
        assert_eq!(of(0, 0, 0, &[(3, 100)], 0), Some(Wrong::Rcode(3)));
        assert_eq!(of(0, 0, 900, &[(3, 1)], 99), Some(Wrong::Address));
        assert_eq!(of(0, 0, 0, &[(3, 2)], 99), None);
        assert_eq!(of(0, 2, 0, &[], 99), None);
        assert_eq!(of(1, 0, 0, &[(3, 999)], 0), None);
        assert_eq!(of(0, 0, 100, &[], 0), None);
        assert_eq!(of(0, 0, 0, &[(2, 50), (3, 50)], 0), None);
    }

    proptest! {
        #[test]
        fn sent_is_the_sum_of_outcomes_whatever_they_are(a in prop::collection::vec(outcome(), 0..200), b in prop::collection::vec(outcome(), 0..200)) {
            let mut sums = Counts::default();
            for part in [&a, &b] {
                let mut counts = Counts { sent: part.len() as u64, ..Counts::default() };
                part.iter().for_each(|&o| counts.add(o));
                prop_assert!(counts.is_balanced());
                sums.merge(&counts);
            }
            prop_assert!(sums.is_balanced());
            prop_assert_eq!(sums.sent, (a.len() + b.len()) as u64);
            sums.sent += 1;
            prop_assert!(!sums.is_balanced());
        }
    }
}
