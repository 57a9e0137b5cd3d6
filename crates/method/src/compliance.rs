//! In which points a result is not what RFC 8219 §9.2 wants: one function of facts, for trials, searches, self-tests and
//! campaigns alike.
//!
//! A fact is yes, no, or not known. What is not known stands on the list and keeps a result from being compliant until the
//! user states it; what the user states is said to be so.

use serde::{Deserialize, Serialize};

use crate::pacing::PacingLimits;
use crate::precision::overstatement;
use crate::selftest::MIN_DELTA;
use crate::units::{Nanos, Qps};
use crate::verdict::Acceptance;

/// Repetitions that RFC 8219 §9.2 asks for at least.
pub const COMPLIANT_REPEATS: u32 = 20;
/// AuthDNS's own time, 99.9th percentile, beyond which a trial is invalid unless the user allows more.
pub const DEFAULT_AUTH_LIMIT: Nanos = Nanos::from_millis(10);
/// The shortest trial of RFC 8219 §9.2.
const SHORTEST: Nanos = Nanos(60 * Nanos::SECOND.0);

/// What is known of something that decides over compliance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// It is so.
    Yes,
    /// It is not so.
    No,
    /// It cannot be seen from here.
    NotKnown,
    /// The user says that it is not so.
    StatedNo,
}

/// What vouches for the tester.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// A self-test that was carried out with the settings of the trials, and its reserve δ.
    SelfTest {
        /// The reserve.
        delta: f64,
    },
    /// A self-test that sent otherwise than the trials do (burst, offload, CPUs, threads, ports, priority), or of which that is
    /// not known.
    OtherSettings {
        /// The reserve.
        delta: f64,
    },
    /// A self-test that was carried out with the settings of the trial, at a rate that does not suffice for it.
    BelowRate {
        /// The reserve.
        delta: f64,
        /// Up to which rate it vouches for the tester.
        allowed: Qps,
    },
    /// None.
    None,
    /// The result is itself a self-test, with this reserve.
    IsSelfTest {
        /// The reserve.
        delta: f64,
    },
}

/// Everything that decides whether a result is compliant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Facts {
    /// Whether DUT, or in a self-test AuthDNS, and Measurer are on one host.
    pub shares_host: Fact,
    /// Whether roles share CPUs.
    pub shares_cpus: Fact,
    /// Whether the Measurer asks the DUT over IPv6; self-tests may do either.
    pub over_ipv6: bool,
    /// How long a trial sends.
    pub duration: Nanos,
    /// When a reply is late.
    pub timeout: Nanos,
    /// Share of valid replies at which a trial passes.
    pub accept: Acceptance,
    /// Whether the prefix of synthesized addresses is checked.
    pub checks_prefix: bool,
    /// Whether the addresses of names with AAAA records of their own are checked.
    pub checks_own_aaaa: bool,
    /// How exact the sending must be.
    pub limits: PacingLimits,
    /// How long AuthDNS may take; absent where its own time is not looked at.
    pub auth_limit: Option<Nanos>,
    /// Searches of a point; absent for a single trial.
    pub repeats: Option<u32>,
    /// Distance of the rates that passed and failed; absent for a single trial.
    pub resolution: Option<Qps>,
    /// Whether names may have been asked for twice though they were to be new.
    pub reuses_names: bool,
    /// What vouches for the tester.
    pub proof: Proof,
}

impl Facts {
    /// In which points the result is not compliant, or not known to be. None: it is.
    pub fn noncompliance(&self) -> Vec<String> {
        let mut points = Vec::new();
        self.topology(&mut points);
        self.trial(&mut points);
        self.repetition(&mut points);
        self.proof(&mut points);
        points
    }

    /// What the user stated and nobody could see; to be told beside a compliant result.
    pub fn statements(&self) -> Vec<String> {
        let stated = [(self.shares_host, "the roles have hosts of their own"), (self.shares_cpus, "no CPU is shared")];
        let told = |what: &str| format!("stated by the user: {what}");
        stated.into_iter().filter(|(fact, _)| *fact == Fact::StatedNo).map(|(_, what)| told(what)).collect()
    }

    fn is_self_test(&self) -> bool {
        matches!(self.proof, Proof::IsSelfTest { .. })
    }

    fn topology(&self, points: &mut Vec<String>) {
        let server = if self.is_self_test() { "AuthDNS" } else { "the DUT" };
        match self.shares_host {
            Fact::Yes => points.push(format!("{server} shares this host with the Measurer")),
            Fact::NotKnown => points.push(format!(
                "not known whether {server} has a host of its own (--separate-hosts states that it does)"
            )),
            Fact::No | Fact::StatedNo => {}
        }
        if self.shares_cpus == Fact::Yes {
            points.push("Measurer, AuthDNS and DUT share CPUs".into());
        }
        if self.shares_cpus == Fact::NotKnown && self.shares_host != Fact::NotKnown {
            points.push("not known whether Measurer, AuthDNS and DUT share CPUs".into());
        }
        if !self.over_ipv6 && !self.is_self_test() {
            points.push("the Measurer asks the DUT over IPv4, not IPv6".into());
        }
    }

    fn trial(&self, points: &mut Vec<String>) {
        if self.duration < SHORTEST {
            points.push(format!("trials last {} s, not at least 60 s", self.duration.as_secs_f64()));
        }
        let most = if self.is_self_test() { crate::selftest::timeout(Nanos::SECOND) } else { Nanos::SECOND };
        if self.timeout > most {
            let (timeout, most) = (self.timeout.as_secs_f64(), most.as_secs_f64());
            points.push(format!("the timeout is {timeout} s, more than {most} s"));
        }
        let factor = overstatement(self.duration, self.timeout);
        if factor > 1.0 {
            points.push(format!(
                "replies after the end of such short trials count: rates may be overstated by a factor of up to {factor:.3}"
            ));
        }
        if self.accept.0 < 1.0 {
            points.push(format!("{} % of valid replies are accepted, not only 100 %", self.accept.0 * 100.0));
        }
        if !self.is_self_test() {
            if !self.checks_prefix {
                points.push("the prefix of synthesized addresses is not checked (--expect-prefix)".into());
            }
            if !self.checks_own_aaaa {
                points.push("addresses of names with AAAA records of their own are not checked (--any-aaaa)".into());
            }
        }
        points.extend(self.limits.noncompliance());
        match self.auth_limit {
            None => points.push("AuthDNS's own time and drops were not looked at (--auth-status)".into()),
            Some(limit) if limit > DEFAULT_AUTH_LIMIT => {
                let [limit, usual] = [limit, DEFAULT_AUTH_LIMIT].map(|l| l.0 as f64 / 1e6);
                points.push(format!("AuthDNS may take {limit} ms, not only {usual} ms"));
            }
            Some(_) => {}
        }
    }

    fn repetition(&self, points: &mut Vec<String>) {
        if let Some(repeats) = self.repeats.filter(|&repeats| repeats < COMPLIANT_REPEATS) {
            let noun = if repeats == 1 { "search" } else { "searches" };
            points.push(format!("{repeats} {noun} of each point, not at least {COMPLIANT_REPEATS}"));
        }
        if let Some(resolution) = self.resolution.filter(|&resolution| resolution > Qps(1)) {
            points.push(format!("the resolution is {resolution} queries/s, not 1"));
        }
        if self.reuses_names {
            points.push("names may have repeated".into());
        }
    }

    fn proof(&self, points: &mut Vec<String>) {
        let delta = match self.proof {
            Proof::None => return points.push("tester unproven: no self-test vouches for it".into()),
            Proof::OtherSettings { delta } => {
                points.push("tester unproven: its self-test is not known to have sent as these trials do".into());
                delta
            }
            Proof::BelowRate { delta, allowed } => {
                points.push(format!("tester unproven: its self-test vouches for it up to {allowed} queries/s only"));
                delta
            }
            Proof::SelfTest { delta } | Proof::IsSelfTest { delta } => delta,
        };
        if delta < MIN_DELTA {
            points.push(format!("the self-test's reserve δ is {delta}, less than {MIN_DELTA}"));
        }
    }
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
            proof: Proof::SelfTest { delta: 0.1 },
        }
    }

    #[test]
    fn every_fact_counts_and_nothing_else() {
        assert_eq!(compliant().noncompliance(), [""; 0]);
        let wide = PacingLimits { window_100ms_pct: 2.0, ..PacingLimits::default() };
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
            Facts { auth_limit: None, ..compliant() },
            Facts { auth_limit: Some(Nanos::SECOND), ..compliant() },
            Facts { repeats: Some(19), ..compliant() },
            Facts { resolution: Some(Qps(2)), ..compliant() },
            Facts { reuses_names: true, ..compliant() },
            Facts { proof: Proof::None, ..compliant() },
            Facts { proof: Proof::OtherSettings { delta: 0.1 }, ..compliant() },
            Facts { proof: Proof::SelfTest { delta: 0.05 }, ..compliant() },
            Facts { proof: Proof::BelowRate { delta: 0.1, allowed: Qps(100) }, ..compliant() },
        ];
        for facts in each {
            assert_eq!(facts.noncompliance().len(), 1, "{facts:?}: {:?}", facts.noncompliance());
        }
    }

    #[test]
    fn a_single_trial_has_no_repetitions_to_miss() {
        let single = Facts { repeats: None, resolution: None, ..compliant() };
        assert_eq!(single.noncompliance(), [""; 0]);
    }

    #[test]
    fn what_the_user_states_is_compliant_and_said() {
        let stated = Facts { shares_host: Fact::StatedNo, shares_cpus: Fact::StatedNo, ..compliant() };
        assert_eq!(stated.noncompliance(), [""; 0]);
        assert_eq!(stated.statements().len(), 2);
        assert!(stated.statements()[0].contains("stated by the user"));
    }

    #[test]
    fn a_self_test_is_judged_as_one() {
        let test = Facts {
            proof: Proof::IsSelfTest { delta: 0.1 },
            over_ipv6: false,
            checks_prefix: false,
            timeout: Nanos::from_millis(250),
            ..compliant()
        };
        assert_eq!(test.noncompliance(), [""; 0]);
        let slow = Facts { timeout: Nanos::SECOND, ..test };
        assert_eq!(slow.noncompliance().len(), 1);
    }

    #[test]
    fn short_trials_with_long_timeouts_say_that_they_overstate() {
        let short = Facts { duration: Nanos(2 * Nanos::SECOND.0), ..compliant() };
        let points = short.noncompliance().join("; ");
        assert!(points.contains("1.5"), "{points}");
    }
}
