//! Deviations of a result from RFC 8219 §9.2. The same function computes them for trials, searches, self-tests and
//! campaigns, from facts about the measurement.
//!
//! A fact is true, false, or unknown. An unknown fact is listed as a deviation and makes the result noncompliant until
//! the user states the fact. Facts stated by the user are marked as such.

use serde::{Deserialize, Serialize};

use crate::noncompliance::{COMPLIANT_REPEATS, Noncompliance, Server};
use crate::pacing::PacingLimits;
use crate::precision::overstatement;
use crate::selftest::MIN_DELTA;
use crate::verdict::Acceptance;
use units::{Nanos, Qps};

/// Default limit for the 99.9th percentile of AuthDNS's processing time. A trial above this limit is invalid.
pub const DEFAULT_AUTH_LIMIT: Nanos = Nanos::from_millis(10);
/// Minimum trial duration of RFC 8219 §9.2.
const SHORTEST: Nanos = Nanos(60 * Nanos::SECOND.0);

/// True, false or unknown: the value of a fact that affects compliance, such as [`Facts::shares_host`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The fact is true.
    Yes,
    /// The fact is false.
    No,
    /// The fact is unknown, because the program cannot determine it.
    NotKnown,
    /// The fact is false according to the user. The program cannot determine it.
    StatedNo,
}

/// Self-test that validates the tester, or the reason why the tester is not validated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TesterProof {
    /// A self-test was run with the same send settings as the trials.
    SelfTest {
        /// The self-test's reserve δ, as a fraction (RFC 8219 §9.2).
        delta: f64,
    },
    /// The send settings of the self-test are unknown or differ from those of the trials. Send settings are burst,
    /// offload, CPUs, threads, ports and priority.
    OtherSettings {
        /// The self-test's reserve δ, as a fraction (RFC 8219 §9.2).
        delta: f64,
    },
    /// The self-test and the trials have the same send settings, but the self-test does not comply with RFC 8219
    /// §9.2.1.
    NotCompliant {
        /// The self-test's reserve δ, as a fraction (RFC 8219 §9.2).
        delta: f64,
    },
    /// The self-test and the trials have the same send settings, but the self-test's rate is too low to validate the
    /// tester for the trials.
    BelowRate {
        /// The self-test's reserve δ, as a fraction (RFC 8219 §9.2).
        delta: f64,
        /// Rate up to which the self-test validates the tester.
        allowed: Qps,
    },
    /// There is no self-test.
    None,
    /// The result is itself a self-test.
    IsSelfTest {
        /// The self-test's reserve δ, as a fraction (RFC 8219 §9.2).
        delta: f64,
    },
}

/// All facts that affect the compliance of a result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Facts {
    /// True if the Measurer and the queried server run on the same host. The queried server is the DUT, or AuthDNS in a
    /// self-test.
    pub shares_host: Fact,
    /// True if at least two of the roles (Measurer, AuthDNS, DUT) use the same CPUs.
    pub shares_cpus: Fact,
    /// True if the Measurer queries the DUT over IPv6. A compliant self-test may use IPv4 or IPv6.
    pub over_ipv6: bool,
    /// Time for which a trial sends queries.
    pub duration: Nanos,
    /// Time after which a reply is late.
    pub timeout: Nanos,
    /// Minimum fraction of queries with a valid reply for a trial to pass.
    pub accept: Acceptance,
    /// True if the prefix of synthesized addresses is checked.
    pub checks_prefix: bool,
    /// True if the addresses of native AAAA records are checked.
    pub checks_own_aaaa: bool,
    /// Limits that the send timing must meet.
    pub limits: PacingLimits,
    /// Limit for AuthDNS's processing time; absent if the processing time is not checked.
    pub auth_limit: Option<Nanos>,
    /// Number of searches at each measurement point; absent for a single trial.
    pub repeats: Option<u32>,
    /// Difference between the passed and the failed rate at the end of a search; absent for a single trial.
    pub resolution: Option<Qps>,
    /// True if queries for uncached names may have used names again, after all available names had been used.
    pub reuses_names: bool,
    /// Self-test that validates the tester, or the reason why the tester is not validated.
    pub proof: TesterProof,
}

impl Facts {
    /// Returns the definite and the possible deviations of the result from RFC 8219. The list is empty if the result is
    /// compliant.
    pub fn noncompliance(&self) -> Vec<Noncompliance> {
        let mut points = Vec::new();
        self.topology(&mut points);
        self.trial(&mut points);
        self.limits(&mut points);
        self.repetition(&mut points);
        self.proof(&mut points);
        points
    }

    /// Returns the facts that the program could not determine and for which it relies on the user's statement. A report
    /// shows these facts beside a compliant result.
    pub fn statements(&self) -> Vec<String> {
        let stated = [
            (self.shares_host, "the roles have separate hosts"),
            (self.shares_cpus, "no CPU is shared"),
        ];
        let in_words = |what: &str| format!("stated by the user: {what}");
        stated
            .into_iter()
            .filter(|(fact, _)| *fact == Fact::StatedNo)
            .map(|(_, what)| in_words(what))
            .collect()
    }

    fn is_self_test(&self) -> bool {
        matches!(self.proof, TesterProof::IsSelfTest { .. })
    }

    fn topology(&self, points: &mut Vec<Noncompliance>) {
        let server = if self.is_self_test() { Server::Auth } else { Server::Dut };
        match self.shares_host {
            Fact::Yes => points.push(Noncompliance::SharesHost { server }),
            Fact::NotKnown => points.push(Noncompliance::HostNotKnown { server }),
            Fact::No | Fact::StatedNo => {}
        }
        if self.shares_cpus == Fact::Yes {
            points.push(Noncompliance::SharesCpus);
        }
        if self.shares_cpus == Fact::NotKnown && self.shares_host != Fact::NotKnown {
            points.push(Noncompliance::CpusNotKnown);
        }
        if !self.over_ipv6 && !self.is_self_test() {
            points.push(Noncompliance::OverIpv4);
        }
    }

    fn trial(&self, points: &mut Vec<Noncompliance>) {
        let (duration, timeout) = (self.duration, self.timeout);
        if duration < SHORTEST {
            points.push(Noncompliance::ShortTrials { duration });
        }
        let most = if self.is_self_test() {
            crate::selftest::timeout(Nanos::SECOND)
        } else {
            Nanos::SECOND
        };
        if timeout > most {
            points.push(Noncompliance::LongTimeout { timeout, most });
        }
        let factor = overstatement(duration, timeout);
        if factor > 1.0 {
            points.push(Noncompliance::Overstated { factor });
        }
        if self.accept.0 < 1.0 {
            points.push(Noncompliance::LossAccepted { share: self.accept.0 });
        }
        if !self.checks_prefix && !self.is_self_test() {
            points.push(Noncompliance::PrefixNotChecked);
        }
        if !self.checks_own_aaaa && !self.is_self_test() {
            points.push(Noncompliance::OwnAaaaNotChecked);
        }
    }

    /// Adds a deviation for each limit that is less strict than the default. RFC 8219 §9.2 requires a constant rate but
    /// gives no limits.
    fn limits(&self, points: &mut Vec<Noncompliance>) {
        let usual = PacingLimits::default();
        let [limit_pct, usual_pct] = [self.limits, usual].map(|limits| limits.window_100ms_pct);
        if limit_pct > usual_pct {
            points.push(Noncompliance::LooseWindow { limit_pct, usual_pct });
        }
        let [limit, usual] = [self.limits, usual].map(|limits| limits.lateness_p999);
        if limit > usual {
            points.push(Noncompliance::LooseLateness { limit, usual });
        }
        match self.auth_limit {
            None => points.push(Noncompliance::AuthNotSeen),
            Some(limit) if limit > DEFAULT_AUTH_LIMIT => {
                points.push(Noncompliance::LooseAuth { limit, usual: DEFAULT_AUTH_LIMIT });
            }
            Some(_) => {}
        }
    }

    fn repetition(&self, points: &mut Vec<Noncompliance>) {
        if let Some(searches) = self.repeats.filter(|&repeats| repeats < COMPLIANT_REPEATS) {
            points.push(Noncompliance::FewSearches { searches });
        }
        if let Some(resolution) = self.resolution.filter(|&resolution| resolution > Qps(1)) {
            points.push(Noncompliance::Coarse { resolution });
        }
        if self.reuses_names {
            points.push(Noncompliance::NamesRepeat);
        }
    }

    fn proof(&self, points: &mut Vec<Noncompliance>) {
        let delta = match self.proof {
            TesterProof::None => return points.push(Noncompliance::Unproven),
            TesterProof::OtherSettings { delta } => {
                points.push(Noncompliance::ProvenOtherwise);
                delta
            }
            TesterProof::NotCompliant { delta } => {
                points.push(Noncompliance::ProvenWeakly);
                delta
            }
            TesterProof::BelowRate { delta, allowed } => {
                points.push(Noncompliance::ProvenBelow { allowed });
                delta
            }
            TesterProof::SelfTest { delta } | TesterProof::IsSelfTest { delta } => delta,
        };
        if delta < MIN_DELTA {
            points.push(Noncompliance::SmallReserve { delta });
        }
    }
}

/// Returns all deviations from RFC 8219 that occur in one or more of the trials, each deviation once. If several
/// searches end at too coarse a resolution, the returned deviation contains the coarsest one.
pub fn noncompliance_of<'a>(trials: impl IntoIterator<Item = &'a Facts>) -> Vec<Noncompliance> {
    use Noncompliance::Coarse;
    let mut points: Vec<Noncompliance> = Vec::new();
    for point in trials.into_iter().flat_map(Facts::noncompliance) {
        let known = points.iter_mut().find(|known| match (known, &point) {
            (Coarse { .. }, Coarse { .. }) => true,
            (known, point) => *known == point,
        });
        match (known, &point) {
            (Some(Coarse { resolution: most }), Coarse { resolution }) => {
                *most = (*most).max(*resolution);
            }
            (Some(_), _) => {}
            (None, _) => points.push(point),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compliant() -> Facts {
        Facts {
            shares_host: Fact::No,
            shares_cpus: Fact::No,
            over_ipv6: true,
            duration: SHORTEST,
            timeout: Nanos::SECOND,
            accept: Acceptance::ALL,
            checks_prefix: true,
            checks_own_aaaa: true,
            limits: PacingLimits::default(),
            auth_limit: Some(DEFAULT_AUTH_LIMIT),
            repeats: Some(20),
            resolution: Some(Qps(1)),
            reuses_names: false,
            proof: TesterProof::SelfTest { delta: 0.1 },
        }
    }

    #[test]
    fn points_of_several_trials_are_listed_once() {
        let shared = Facts { shares_host: Fact::Yes, ..compliant() };
        let shared_and_ipv4 = Facts { over_ipv6: false, ..shared };
        assert_eq!(
            noncompliance_of(&[shared, compliant(), shared_and_ipv4]),
            [Noncompliance::SharesHost { server: Server::Dut }, Noncompliance::OverIpv4]
        );
        assert_eq!(noncompliance_of(&[compliant()]), []);
    }

    #[test]
    fn resolutions_are_one_point_with_the_largest() {
        let of = |resolution| Facts { resolution: Some(Qps(resolution)), ..compliant() };
        assert_eq!(
            noncompliance_of(&[of(191), of(5_000), of(1), of(260)]),
            [Noncompliance::Coarse { resolution: Qps(5_000) }]
        );
    }

    #[test]
    fn every_fact_counts_and_nothing_else() {
        assert_eq!(compliant().noncompliance(), []);
        let wide = PacingLimits { window_100ms_pct: 2.0, ..PacingLimits::default() };
        let late =
            PacingLimits { lateness_p999: Nanos::from_millis(11), ..PacingLimits::default() };
        let each = [
            Facts { shares_host: Fact::Yes, ..compliant() },
            Facts { shares_host: Fact::NotKnown, ..compliant() },
            Facts { shares_cpus: Fact::Yes, ..compliant() },
            Facts { shares_cpus: Fact::NotKnown, ..compliant() },
            Facts { over_ipv6: false, ..compliant() },
            Facts { duration: Nanos(59 * Nanos::SECOND.0), ..compliant() },
            Facts { accept: Acceptance(0.99), ..compliant() },
            Facts { checks_prefix: false, ..compliant() },
            Facts { checks_own_aaaa: false, ..compliant() },
            Facts { limits: wide, ..compliant() },
            Facts { limits: late, ..compliant() },
            Facts { auth_limit: None, ..compliant() },
            Facts { auth_limit: Some(Nanos::SECOND), ..compliant() },
            Facts { repeats: Some(19), ..compliant() },
            Facts { resolution: Some(Qps(2)), ..compliant() },
            Facts { reuses_names: true, ..compliant() },
            Facts { proof: TesterProof::None, ..compliant() },
            Facts { proof: TesterProof::OtherSettings { delta: 0.1 }, ..compliant() },
            Facts { proof: TesterProof::SelfTest { delta: 0.05 }, ..compliant() },
            Facts {
                proof: TesterProof::BelowRate { delta: 0.1, allowed: Qps(100) },
                ..compliant()
            },
        ];
        for facts in each {
            assert_eq!(facts.noncompliance().len(), 1, "{facts:?}: {:?}", facts.noncompliance());
        }
    }

    #[test]
    fn narrower_limits_are_compliant() {
        let lateness_p999 = Nanos::from_millis(1);
        let narrow =
            PacingLimits { window_100ms_pct: 0.5, lateness_p999, ..PacingLimits::default() };
        let facts = Facts { limits: narrow, auth_limit: Some(lateness_p999), ..compliant() };
        assert_eq!(facts.noncompliance(), []);
    }

    #[test]
    fn a_single_trial_has_no_repetitions_to_miss() {
        let single = Facts { repeats: None, resolution: None, ..compliant() };
        assert_eq!(single.noncompliance(), []);
    }

    #[test]
    fn statements_of_the_user_are_compliant_and_listed() {
        let stated =
            Facts { shares_host: Fact::StatedNo, shares_cpus: Fact::StatedNo, ..compliant() };
        assert_eq!(stated.noncompliance(), []);
        assert_eq!(stated.statements().len(), 2);
        assert!(stated.statements()[0].contains("stated by the user"));
    }

    #[test]
    fn a_self_test_is_judged_as_one() {
        let test = Facts {
            proof: TesterProof::IsSelfTest { delta: 0.1 },
            over_ipv6: false,
            checks_prefix: false,
            timeout: Nanos::from_millis(250),
            ..compliant()
        };
        assert_eq!(test.noncompliance(), []);
        let slow = Facts { timeout: Nanos::SECOND, ..test };
        assert_eq!(slow.noncompliance().len(), 1);
    }

    #[test]
    fn short_trials_with_long_timeouts_overstate() {
        let short = Facts { duration: Nanos(2 * Nanos::SECOND.0), ..compliant() };
        let points = short.noncompliance();
        assert!(points.contains(&Noncompliance::Overstated { factor: 1.5 }), "{points:?}");
    }
}
