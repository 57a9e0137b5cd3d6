//! Check of the load offered to the DUT: AuthDNS's counters are compared with the trial's AAAA record rate and cache
//! hit rate.
//!
//! ```text
//! Measurer: `valid` replies, `preloaded` names ─┐
//!                                               ├─► Real: α, β, questions per query ─► Deviation, if further than 2 points off
//! AuthDNS: questions, repeated questions ───────┘
//! ```
//!
//! If AuthDNS receives a query for the same name again within the trial's timeout, this query is a *retry* of the DUT.
//! If it arrives later, it is no retry: the Measurer has queried the name again, at the earliest 1.5 timeouts after its
//! first query, and the name was missing in the DUT's cache.

use serde::{Deserialize, Serialize};

use units::Share;

/// Maximum tolerated difference between a requested and an observed fraction, such as α.
pub const TOLERANCE: f64 = 0.02;

/// Counts of the queries that AuthDNS received for a trial, including queries for names that were resolved before the
/// trial.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct UpstreamQueries {
    /// Number of AAAA queries that AuthDNS received, including retries.
    pub aaaa: u64,
    /// Number of A queries that AuthDNS received, including retries.
    pub a: u64,
    /// Number of queries of types other than A and AAAA.
    pub other: u64,
    /// Number of AAAA queries for names that had an AAAA record.
    pub aaaa_present: u64,
    /// Number of AAAA queries that repeat an AAAA query for the same name within the trial's timeout.
    pub aaaa_retries: u64,
    /// Number of A queries that repeat an A query for the same name within the trial's timeout.
    pub a_retries: u64,
    /// Number of AAAA queries that repeat any earlier AAAA query for the same name, including retries.
    #[serde(default)]
    pub aaaa_repeats: u64,
}

/// Additional tolerance for the fraction of names with AAAA records, as a number of names. The fraction is exact only
/// for multiples of 100 names, because names with AAAA records recur in a pattern of 100 names. A trial may end within
/// the pattern.
pub const PATTERN: f64 = 2.0;

/// Additional tolerance, in standard deviations, for the fraction of names with AAAA records in a failed trial.
const TOLERANCE_SIGMAS: f64 = 4.0;

/// Load that the Measurer offered to the DUT in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedLoad {
    /// Number of queries that the Measurer sent.
    pub sent: u64,
    /// Number of valid replies received by the Measurer.
    pub valid: u64,
    /// Number of names that the DUT resolved before the trial, so that queries for them in the trial are cache hits.
    pub preloaded: u64,
    /// Fraction of names with an AAAA record (α).
    pub aaaa: Share,
    /// Fraction of the trial's queries that are for cached names. It equals β, the requested fraction, if the number of
    /// queries is a multiple of 100, because queries for cached names recur in a pattern of 100 queries. Otherwise it
    /// differs slightly from β.
    pub cached: f64,
}

/// Observed load of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Real {
    /// Fraction of the queried names that have an AAAA record; absent if no name was queried.
    pub aaaa_share: Option<f64>,
    /// Observed cache hit rate: fraction of valid replies for which the DUT sent no AAAA query to AuthDNS. The value is
    /// negative if the number of names for which the DUT queried AuthDNS exceeds the number of valid replies.
    pub cached_share: f64,
    /// Number of upstream queries of types A and AAAA per valid reply, including retries.
    pub questions_per_query: f64,
    /// Number of upstream retries divided by the number of upstream queries that are not retries.
    pub retries_per_question: f64,
}

/// A difference between the observed load and the requested load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deviation {
    /// The observed fraction of names with an AAAA record (α) differs from the requested one.
    AaaaShare {
        /// Requested fraction of names with an AAAA record.
        wanted: f64,
        /// Observed fraction of names with an AAAA record.
        real: f64,
    },
    /// The observed cache hit rate (β) differs from the requested one.
    CachedShare {
        /// Requested cache hit rate, as a fraction.
        wanted: f64,
        /// Observed cache hit rate, as a fraction.
        real: f64,
    },
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = |share: &f64| format!("{:.1} %", share * 100.0);
        match self {
            Deviation::AaaaShare { wanted, real } => write!(
                f,
                "{} of the names queried at AuthDNS had an AAAA record, not {} as planned",
                percent(real),
                percent(wanted)
            ),
            Deviation::CachedShare { wanted, real } => write!(
                f,
                "the DUT answered {} of the queries from its cache, not {} as planned",
                percent(real),
                percent(wanted)
            ),
        }
    }
}

impl UpstreamQueries {
    /// Adds the counts of a second trial, or of a second AuthDNS server, to these counts. Returns the sums.
    pub fn plus(&self, other: &UpstreamQueries) -> UpstreamQueries {
        UpstreamQueries {
            aaaa: self.aaaa + other.aaaa,
            a: self.a + other.a,
            other: self.other + other.other,
            aaaa_present: self.aaaa_present + other.aaaa_present,
            aaaa_retries: self.aaaa_retries + other.aaaa_retries,
            a_retries: self.a_retries + other.a_retries,
            aaaa_repeats: self.aaaa_repeats + other.aaaa_repeats,
        }
    }

    /// Returns the number of different names for which AuthDNS received AAAA queries.
    pub fn names(&self) -> u64 {
        self.aaaa.saturating_sub(self.aaaa_repeats)
    }

    /// Returns the observed load of the trial; `None` if there was no valid reply.
    pub fn real(&self, wanted: &OfferedLoad) -> Option<Real> {
        if wanted.valid == 0 {
            return None;
        }
        let valid = wanted.valid as f64;
        let first = self.aaaa.saturating_sub(self.aaaa_retries) as f64;
        let first_a = self.a.saturating_sub(self.a_retries) as f64;
        let misses = first - wanted.preloaded as f64;
        // Assumes that the numbers of A queries and retries per name are the same for names resolved before the trial
        // and for names of the trial.
        let of_trial = if first > 0.0 { (misses / first).max(0.0) } else { 1.0 };
        Some(Real {
            aaaa_share: self.aaaa_share(),
            cached_share: 1.0 - misses / valid,
            questions_per_query: (self.aaaa + self.a) as f64 * of_trial / valid,
            retries_per_question: (self.aaaa_retries + self.a_retries) as f64
                / (first + first_a).max(1.0),
        })
    }

    /// Returns the deviation from the requested load, for a trial whose loss is within the limit. For a failed trial,
    /// use [`UpstreamQueries::other_aaaa_share`], because an overloaded DUT sends fewer upstream queries.
    ///
    /// If a query got no valid reply, it is unknown whether the DUT queried AuthDNS for its name. The cache hit rate is
    /// therefore between two values: one is computed from the valid replies, and the other from all queries. The cache
    /// hit rate is clamped to 0 if the DUT queries AuthDNS for more names than the Measurer queried. This happens, for
    /// example, if the DUT repeats queries to a second AuthDNS.
    pub fn deviation(&self, wanted: &OfferedLoad) -> Option<Deviation> {
        let real = self.real(wanted)?;
        let (aaaa, cached) = (wanted.aaaa.fraction(), wanted.cached);
        let misses = (1.0 - real.cached_share) * wanted.valid as f64;
        // The number of misses would be negative for a DUT that did not resolve all names before the trial.
        let [of_valid, of_all] = [wanted.valid, wanted.sent.max(wanted.valid)]
            .map(|queries| (1.0 - misses / queries as f64).max(0.0));
        let real_share = cached.clamp(of_valid.min(of_all), of_valid.max(of_all));
        if (real_share - cached).abs() > TOLERANCE {
            return Some(Deviation::CachedShare { wanted: cached, real: real_share });
        }
        self.beyond(aaaa, TOLERANCE)
    }

    /// For a failed trial, returns the deviation from the requested fraction of names with AAAA records. An overloaded
    /// DUT resolves only a random sample of the names, and the fraction in this sample varies. The tolerance is
    /// therefore increased by [`TOLERANCE_SIGMAS`] standard deviations of the fraction in the sample.
    pub fn other_aaaa_share(&self, wanted: Share) -> Option<Deviation> {
        let wanted = wanted.fraction();
        let variance = wanted * (1.0 - wanted) / self.aaaa.max(1) as f64;
        self.beyond(wanted, TOLERANCE + TOLERANCE_SIGMAS * variance.sqrt())
    }

    /// Returns a deviation if the observed fraction of names with AAAA records differs from `wanted` by more than
    /// `tolerance` plus [`PATTERN`]. Otherwise returns `None`.
    fn beyond(&self, wanted: f64, tolerance: f64) -> Option<Deviation> {
        let tolerance = tolerance + PATTERN / self.aaaa.max(1) as f64;
        let real = self.aaaa_share().filter(|real| (real - wanted).abs() > tolerance)?;
        Some(Deviation::AaaaShare { wanted, real })
    }

    /// Returns the fraction of AAAA queries, including retries, that are for names with an AAAA record. Returns `None`
    /// if there are no AAAA queries.
    fn aaaa_share(&self) -> Option<f64> {
        (self.aaaa > 0).then(|| self.aaaa_present as f64 / self.aaaa as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(cached: u8) -> OfferedLoad {
        let cached = f64::from(cached) / 100.0;
        OfferedLoad { sent: 10_000, valid: 10_000, preloaded: 0, aaaa: Share::ZERO, cached }
    }

    #[test]
    fn two_queries_per_new_name_are_the_worst_case() {
        let asked = UpstreamQueries { aaaa: 10_000, a: 10_000, ..UpstreamQueries::default() };
        let real = asked.real(&wanted(0)).unwrap();
        assert_eq!(
            (real.cached_share, real.questions_per_query, real.aaaa_share),
            (0.0, 2.0, Some(0.0))
        );
        assert_eq!(asked.deviation(&wanted(0)), None);
    }

    #[test]
    fn counters_of_several_authdns_are_added() {
        let of = |n: u64| UpstreamQueries {
            aaaa: n,
            a: 2 * n,
            other: 3 * n,
            aaaa_present: 4 * n,
            aaaa_retries: 5 * n,
            a_retries: 6 * n,
            aaaa_repeats: 7 * n,
        };
        assert_eq!(of(7).plus(&of(10)), of(17));
    }

    #[test]
    fn retries_leave_the_aaaa_share_as_it_is() {
        let half = OfferedLoad { aaaa: Share::percent(50), ..wanted(0) };
        let asked = UpstreamQueries {
            aaaa: 15_000,
            a: 7_500,
            aaaa_present: 7_500,
            aaaa_retries: 5_000,
            aaaa_repeats: 5_000,
            ..UpstreamQueries::default()
        };
        assert_eq!(asked.real(&half).unwrap().aaaa_share, Some(0.5));
        assert_eq!((asked.deviation(&half), asked.names()), (None, 10_000));
    }

    #[test]
    fn a_failed_trial_is_judged_by_its_aaaa_share_alone() {
        let of = |aaaa, aaaa_present| UpstreamQueries {
            aaaa,
            aaaa_present,
            ..UpstreamQueries::default()
        };
        // AuthDNS has an AAAA record for half of the names, and the trial expects none.
        let other = Some(Deviation::AaaaShare { wanted: 0.0, real: 0.5 });
        assert_eq!(of(10_000, 5_000).other_aaaa_share(Share::ZERO), other);
        assert_eq!(of(10, 5).other_aaaa_share(Share::ZERO), other);
        // A DUT that sheds load, and a DUT that sends no queries.
        assert_eq!(of(300, 0).other_aaaa_share(Share::ZERO), None);
        assert_eq!(of(0, 0).other_aaaa_share(Share::ONE), None);
        // The remaining names are a random sample.
        let half = Share::percent(50);
        assert_eq!(of(100, 70).other_aaaa_share(half), None);
        assert!(of(10_000, 5_500).other_aaaa_share(half).is_some());
    }

    #[test]
    fn a_dut_that_queries_a_only_is_counted() {
        let real =
            UpstreamQueries { a: 10_000, ..UpstreamQueries::default() }.real(&wanted(0)).unwrap();
        assert_eq!((real.aaaa_share, real.questions_per_query), (None, 1.0));
    }

    #[test]
    fn doubled_queries_are_no_deviation() {
        let asked = UpstreamQueries {
            aaaa: 20_000,
            a: 20_000,
            aaaa_retries: 10_000,
            a_retries: 10_000,
            ..UpstreamQueries::default()
        };
        let real = asked.real(&wanted(0)).unwrap();
        assert_eq!(
            (real.cached_share, real.questions_per_query, real.retries_per_question),
            (0.0, 4.0, 1.0)
        );
        assert_eq!(asked.deviation(&wanted(0)), None);
    }

    /// A repeated query has the same name as the first query. Either both find an AAAA record, or neither does.
    #[test]
    fn retries_do_not_change_the_aaaa_share() {
        let asked = UpstreamQueries {
            aaaa: 20_000,
            a: 10_000,
            aaaa_present: 10_000,
            aaaa_retries: 10_000,
            a_retries: 5_000,
            ..UpstreamQueries::default()
        };
        let half = OfferedLoad { aaaa: Share::percent(50), ..wanted(0) };
        assert_eq!(asked.real(&half).unwrap().aaaa_share, Some(0.5));
        assert_eq!(asked.deviation(&half), None);
    }

    #[test]
    fn too_much_and_too_little_caching_deviate() {
        let half = UpstreamQueries { aaaa: 5_000, a: 5_000, ..UpstreamQueries::default() };
        assert_eq!(
            half.deviation(&wanted(0)),
            Some(Deviation::CachedShare { wanted: 0.0, real: 0.5 })
        );
        let none = UpstreamQueries { aaaa: 10_000, a: 10_000, ..UpstreamQueries::default() };
        assert_eq!(
            none.deviation(&wanted(60)),
            Some(Deviation::CachedShare { wanted: 0.6, real: 0.0 })
        );
        let right = UpstreamQueries { aaaa: 4_100, a: 4_100, ..UpstreamQueries::default() };
        assert_eq!(right.deviation(&wanted(60)), None);
    }

    #[test]
    fn preloaded_names_do_not_count_in_the_trial() {
        let asked = UpstreamQueries { aaaa: 1_000, a: 1_000, ..UpstreamQueries::default() };
        let all = OfferedLoad { preloaded: 1_000, ..wanted(100) };
        assert_eq!(asked.deviation(&all), None);
        assert_eq!(asked.real(&all).unwrap().questions_per_query, 0.0);
    }

    #[test]
    fn another_aaaa_share_at_authdns_deviates() {
        let asked = UpstreamQueries {
            aaaa: 10_000,
            a: 5_000,
            aaaa_present: 5_000,
            ..UpstreamQueries::default()
        };
        assert_eq!(
            asked.deviation(&wanted(0)),
            Some(Deviation::AaaaShare { wanted: 0.0, real: 0.5 })
        );
        assert_eq!(asked.deviation(&OfferedLoad { aaaa: Share::percent(50), ..wanted(0) }), None);
        // A DUT that sends queries for both types at once does not deviate.
        let both = UpstreamQueries { a: 10_000, ..asked };
        assert_eq!(both.deviation(&OfferedLoad { aaaa: Share::percent(50), ..wanted(0) }), None);
    }

    #[test]
    fn two_per_cent_and_two_names_are_no_deviation() {
        let of_hundred = |cached| OfferedLoad { sent: 100, valid: 100, ..wanted(cached) };
        let all = UpstreamQueries { aaaa: 100, a: 100, ..UpstreamQueries::default() };
        assert_eq!(all.deviation(&of_hundred(2)), None);
        assert!(all.deviation(&of_hundred(3)).is_some());
        let with = |aaaa_present| UpstreamQueries { aaaa_present, ..all };
        assert_eq!(with(4).deviation(&of_hundred(0)), None);
        assert!(with(5).deviation(&of_hundred(0)).is_some());
    }

    #[test]
    fn queries_without_a_valid_reply_give_a_range() {
        // A twentieth of the queries was lost. AuthDNS was queried for all names.
        let lossy = |cached| OfferedLoad { valid: 9_500, ..wanted(cached) };
        let all = UpstreamQueries { aaaa: 10_000, a: 10_000, ..UpstreamQueries::default() };
        assert_eq!(all.deviation(&lossy(0)), None);
        // AuthDNS was queried only for the names with valid replies.
        let some = UpstreamQueries { aaaa: 9_500, a: 9_500, ..UpstreamQueries::default() };
        assert_eq!(some.deviation(&lossy(0)), None);
        // Half of the replies came from the cache, while the trial requested none or three fifths.
        let half = UpstreamQueries { aaaa: 4_750, a: 4_750, ..UpstreamQueries::default() };
        let deviates =
            |cached, real| Some(Deviation::CachedShare { wanted: f64::from(cached) / 100.0, real });
        assert_eq!(half.deviation(&lossy(0)), deviates(0_u8, 0.5));
        assert_eq!(half.deviation(&lossy(60)), deviates(60_u8, 0.525));
        assert_eq!(half.deviation(&lossy(54)), None);
        // AuthDNS received fewer queries than names that should have been resolved before the trial.
        let preloaded = OfferedLoad { preloaded: 9_750, ..lossy(100) };
        assert!(matches!(
            half.deviation(&preloaded),
            Some(Deviation::CachedShare { wanted, real }) if wanted == 1.0 && real > 1.4
        ));
    }

    #[test]
    fn more_upstream_queries_than_queries_do_not_deviate() {
        // Every name was queried at two AuthDNS instances, which do not share their counters.
        let twice = UpstreamQueries { aaaa: 20_000, a: 20_000, ..UpstreamQueries::default() };
        assert_eq!(twice.deviation(&wanted(0)), None);
        assert!(twice.deviation(&wanted(10)).is_some());
    }

    #[test]
    fn without_a_valid_reply_nothing_is_judged() {
        assert_eq!(
            UpstreamQueries::default().deviation(&OfferedLoad { valid: 0, ..wanted(0) }),
            None
        );
    }
}
