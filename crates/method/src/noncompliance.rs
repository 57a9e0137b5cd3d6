//! Deviations of a result from RFC 8219 §9.2. [`crate::compliance`] finds the deviations and returns them as data.
//! `Display` converts them to text.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::selftest::MIN_DELTA;
use units::{Nanos, Qps, counted};

/// Minimum number of repetitions required by RFC 8219 §9.2.
pub(crate) const COMPLIANT_REPEATS: u32 = 20;

/// The server that the Measurer queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// The DUT, in a measurement.
    Dut,
    /// AuthDNS, in a self-test.
    Auth,
}

/// A definite or possible deviation of a result from RFC 8219.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Noncompliance {
    /// The Measurer and the server that it queries run on the same host.
    SharesHost {
        /// The server on the Measurer's host.
        server: Server,
    },
    /// It is unknown whether the Measurer and the server that it queries run on the same host.
    HostNotKnown {
        /// The server (DUT or AuthDNS) that may run on the Measurer's host.
        server: Server,
    },
    /// At least two of the roles (Measurer, AuthDNS, DUT) use the same CPUs.
    SharesCpus,
    /// It is unknown whether any two of the roles (Measurer, AuthDNS, DUT) use the same CPUs.
    CpusNotKnown,
    /// The Measurer queries the DUT over IPv4.
    OverIpv4,
    /// Trials are shorter than a minute.
    ShortTrials {
        /// Time for which a trial sends queries.
        duration: Nanos,
    },
    /// The timeout for replies is longer than RFC 8219 permits.
    LongTimeout {
        /// Timeout that was used for replies.
        timeout: Nanos,
        /// Maximum timeout that RFC 8219 permits.
        most: Nanos,
    },
    /// Trials are so short that rates may be overstated, because replies that arrive after the end of sending also
    /// count.
    Overstated {
        /// Maximum factor by which rates may be too high.
        factor: f64,
    },
    /// A trial can pass although some queries get no valid reply.
    LossAccepted {
        /// Fraction of queries with a valid reply that is sufficient for a trial to pass; at least 0 and less than 1.
        share: f64,
    },
    /// The prefix of synthesized addresses is not checked.
    PrefixNotChecked,
    /// The addresses in native AAAA records are not checked.
    OwnAaaaNotChecked,
    /// The tolerance for the rate in each 100 ms window is larger than the default. RFC 8219 gives no limit.
    LooseWindow {
        /// Tolerance that was used for the rate, in per cent of the rate.
        limit_pct: f64,
        /// Default tolerance for the rate, in per cent of the rate.
        usual_pct: f64,
    },
    /// The limit for the 99.9th percentile of lateness is higher than the default. RFC 8219 gives no limit.
    LooseLateness {
        /// Limit that was used for the lateness of queries.
        limit: Nanos,
        /// Default limit for the lateness of queries.
        usual: Nanos,
    },
    /// AuthDNS's processing time and the queries dropped at AuthDNS were not checked.
    AuthNotSeen,
    /// The limit for AuthDNS's processing time is higher than the default.
    LooseAuth {
        /// Limit that was used for AuthDNS's processing time.
        limit: Nanos,
        /// Default limit for AuthDNS's processing time.
        usual: Nanos,
    },
    /// There are fewer searches at each measurement point than RFC 8219 requires.
    FewSearches {
        /// Number of searches at each measurement point.
        searches: u32,
    },
    /// Searches end although the passed and the failed rate differ by more than one query per second.
    Coarse {
        /// Resolution: difference between the passed and the failed rate at the end of a search. If this difference
        /// varies between the searches, this is the largest difference.
        resolution: Qps,
    },
    /// Names may have repeated: after all available names had been used, queries for uncached names may have used them
    /// again.
    NamesRepeat,
    /// There is no self-test of the tester.
    Unproven,
    /// The send settings of the self-test are unknown or differ from those of the trials.
    ProvenOtherwise,
    /// The tester's self-test does not itself comply with RFC 8219.
    ProvenWeakly,
    /// The self-test's rate is too low to validate the tester for the trial.
    ProvenBelow {
        /// Rate up to which the self-test validates the tester.
        allowed: Qps,
    },
    /// The self-test's reserve δ is less than RFC 8219 §9.2.1 requires.
    SmallReserve {
        /// The self-test's reserve δ, as a fraction.
        delta: f64,
    },
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Server::Dut => "the DUT",
            Server::Auth => "AuthDNS",
        })
    }
}

impl fmt::Display for Noncompliance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Noncompliance as N;
        match *self {
            N::SharesHost { server } => write!(f, "{server} shares this host with the Measurer"),
            N::HostNotKnown { server } => {
                write!(
                    f,
                    "unknown if {server} has a separate host (--separate-hosts states that it does)"
                )
            }
            N::SharesCpus => f.write_str("Measurer, AuthDNS and DUT share CPUs"),
            N::CpusNotKnown => f.write_str("unknown if Measurer, AuthDNS and DUT share CPUs"),
            N::OverIpv4 => f.write_str("the Measurer queries the DUT over IPv4, not IPv6"),
            N::FewSearches { searches: 0 } => {
                write!(
                    f,
                    "no search has a result (RFC 8219: at least {COMPLIANT_REPEATS} per point)"
                )
            }
            N::FewSearches { searches } => {
                let searches = counted(searches.into(), "search", "searches");
                write!(f, "only {searches} per point (RFC 8219: at least {COMPLIANT_REPEATS})")
            }
            N::Coarse { resolution } => {
                write!(f, "searches end at a resolution of up to {resolution} queries/s, not 1")
            }
            N::NamesRepeat => f.write_str("names may have repeated"),
            N::Unproven => f.write_str("tester not validated: there is no self-test"),
            N::ProvenWeakly => f.write_str("the tester's self-test is itself not compliant"),
            N::ProvenOtherwise => f.write_str(
                "tester not validated: its self-test is not known to have these send settings",
            ),
            N::ProvenBelow { allowed } => {
                write!(
                    f,
                    "tester not validated: its self-test is valid only up to {allowed} queries/s"
                )
            }
            N::SmallReserve { delta } => {
                write!(f, "the self-test's reserve δ is {delta}, less than {MIN_DELTA}")
            }
            _ => self.of_trial(f),
        }
    }
}

impl Noncompliance {
    /// Writes the text of a deviation that concerns single trials.
    fn of_trial(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Noncompliance as N;
        match *self {
            N::ShortTrials { duration } => {
                write!(f, "trials last {} s, not at least 60 s", duration.as_secs_f64())
            }
            N::LongTimeout { timeout, most } => {
                write!(
                    f,
                    "the timeout is {} s, more than {} s",
                    timeout.as_secs_f64(),
                    most.as_secs_f64()
                )
            }
            N::Overstated { factor } => write!(
                f,
                "replies after the end of such short trials count: rates may be overstated by a factor of up to {factor:.3}"
            ),
            N::LossAccepted { share } => {
                write!(f, "{} % of valid replies are sufficient, not only 100 %", share * 100.0)
            }
            N::PrefixNotChecked => {
                f.write_str("the prefix of synthesized addresses is not checked (--expect-prefix)")
            }
            N::OwnAaaaNotChecked => {
                f.write_str("addresses of native AAAA records are not checked (--any-aaaa)")
            }
            N::LooseWindow { limit_pct, usual_pct } => {
                write!(
                    f,
                    "pacing tolerance relaxed to {limit_pct} % per 100 ms window (default {usual_pct} %)"
                )
            }
            N::LooseLateness { limit, usual } => {
                write!(
                    f,
                    "one query in a thousand may be {} ms late, not only {} ms",
                    limit.as_millis_f64(),
                    usual.as_millis_f64()
                )
            }
            N::AuthNotSeen => {
                f.write_str("AuthDNS's processing time and drops were not checked (--auth-status)")
            }
            N::LooseAuth { limit, usual } => {
                write!(
                    f,
                    "AuthDNS may take {} ms, not only {} ms",
                    limit.as_millis_f64(),
                    usual.as_millis_f64()
                )
            }
            _ => Ok(()),
        }
    }
}

crate::in_words::in_words!(Noncompliance: "noncompliance", "noncompliance_causes");

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holder {
        compliant: bool,
        #[serde(flatten, with = "in_words")]
        points: Vec<Noncompliance>,
    }

    #[test]
    fn each_point_has_its_sentence() {
        use Noncompliance as N;
        let (server, usual) = (Server::Dut, Nanos::from_millis(10));
        let limit = Nanos::from_millis(50);
        let all = [
            (N::SharesHost { server }, "the DUT shares this host with the Measurer"),
            (
                N::HostNotKnown { server },
                "unknown if the DUT has a separate host (--separate-hosts states that it does)",
            ),
            (N::SharesCpus, "Measurer, AuthDNS and DUT share CPUs"),
            (N::CpusNotKnown, "unknown if Measurer, AuthDNS and DUT share CPUs"),
            (N::OverIpv4, "the Measurer queries the DUT over IPv4, not IPv6"),
            (N::ShortTrials { duration: Nanos::SECOND }, "trials last 1 s, not at least 60 s"),
            (
                N::LongTimeout { timeout: Nanos(2 * Nanos::SECOND.0), most: Nanos::SECOND },
                "the timeout is 2 s, more than 1 s",
            ),
            (
                N::Overstated { factor: 1.5 },
                "replies after the end of such short trials count: rates may be overstated by a factor of up to 1.500",
            ),
            (
                N::LossAccepted { share: 0.99 },
                "99 % of valid replies are sufficient, not only 100 %",
            ),
            (
                N::PrefixNotChecked,
                "the prefix of synthesized addresses is not checked (--expect-prefix)",
            ),
            (N::OwnAaaaNotChecked, "addresses of native AAAA records are not checked (--any-aaaa)"),
            (
                N::LooseWindow { limit_pct: 5.0, usual_pct: 1.0 },
                "pacing tolerance relaxed to 5 % per 100 ms window (default 1 %)",
            ),
            (
                N::LooseLateness { limit, usual },
                "one query in a thousand may be 50 ms late, not only 10 ms",
            ),
            (
                N::AuthNotSeen,
                "AuthDNS's processing time and drops were not checked (--auth-status)",
            ),
            (N::LooseAuth { limit, usual }, "AuthDNS may take 50 ms, not only 10 ms"),
            (
                N::FewSearches { searches: 0 },
                "no search has a result (RFC 8219: at least 20 per point)",
            ),
            (N::FewSearches { searches: 1 }, "only 1 search per point (RFC 8219: at least 20)"),
            (
                N::Coarse { resolution: Qps(5) },
                "searches end at a resolution of up to 5 queries/s, not 1",
            ),
            (N::NamesRepeat, "names may have repeated"),
            (N::Unproven, "tester not validated: there is no self-test"),
            (N::ProvenWeakly, "the tester's self-test is itself not compliant"),
            (
                N::ProvenOtherwise,
                "tester not validated: its self-test is not known to have these send settings",
            ),
            (
                N::ProvenBelow { allowed: Qps(100) },
                "tester not validated: its self-test is valid only up to 100 queries/s",
            ),
            (N::SmallReserve { delta: 0.05 }, "the self-test's reserve δ is 0.05, less than 0.1"),
        ];
        for (point, sentence) in all {
            assert_eq!(point.to_string(), sentence);
        }
    }

    #[test]
    fn json_has_text_and_data_and_the_data_is_read() {
        let holder = Holder {
            compliant: false,
            points: vec![
                Noncompliance::SharesHost { server: Server::Auth },
                Noncompliance::ShortTrials { duration: Nanos::SECOND },
                Noncompliance::Unproven,
            ],
        };
        let json = serde_json::to_value(&holder).unwrap();
        assert_eq!(json["noncompliance"][0], "AuthDNS shares this host with the Measurer");
        assert_eq!(json["noncompliance"][1], "trials last 1 s, not at least 60 s");
        assert_eq!(json["noncompliance_causes"][1]["kind"], "short_trials");
        assert_eq!(json["noncompliance_causes"][1]["duration"], Nanos::SECOND.0);
        let mut other_words = json.clone();
        other_words["noncompliance"] = serde_json::json!(["changed"]);
        assert_eq!(serde_json::from_value::<Holder>(other_words).unwrap(), holder);
        let mut words_only = json;
        words_only.as_object_mut().unwrap().remove("noncompliance_causes");
        assert!(serde_json::from_value::<Holder>(words_only).is_err());
    }
}
