//! Measurement points of a plan. A point consists of the kind of measurement, the DUT, the DUT's
//! CPUs and the conditions. Points are measured one after another.
//!
//! ```text
//! {cores, or placement} × {acceptance, α, β} × {self-test, search, load, constant rate, closed loop, conform}
//! ```

use std::fmt;

use hosts::place::cores_in_words;
use hosts::servers::{Auth, Variant};
use serde::{Deserialize, Serialize};
use units::{Qps, Share, counted};

use crate::plan::family::Family;

/// Measurement point: a kind of measurement, a DUT, the CPUs of the DUT, and the conditions. In the
/// journal, the record of each trial contains its measurement point in full. The `Display` text of
/// a point is for messages only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// Self-test: the Measurer queries an AuthDNS directly.
    SelfTest(SelfTestTarget),
    /// Search for the highest rate of a DUT.
    Search(Conditions),
    /// Trials at a fraction of the DUT's worst-case rate on the same CPUs (median of its worst-case searches).
    Load(AtShare),
    /// Trials at a constant rate from the plan.
    ConstantRate(AtRate),
    /// Closed-loop trials: N threads, each with one query in flight.
    ClosedLoop(WithThreads),
    /// Conformance checks of a DUT's answers.
    Conform(AtPlace),
}

/// The AuthDNS that the Measurer queries in a self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestTarget {
    /// The server software that acts as AuthDNS and receives the queries of the Measurer.
    pub server: Auth,
    /// IP version of the queries; absent if the IP version of `[self-test]` is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Number of CPUs in `[cpus] auth` that the server may use; absent if the key `cores` of the AuthDNS applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    /// Name of the server in `[[authdns]]`; absent if the server is not listed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
}

/// CPU placement of a DUT, and the AuthDNS that it queries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cores {
    /// Number of CPU cores of the DUT. By default, the DUT also has this number of threads.
    pub cores: usize,
    /// Name of the placement in the plan; absent if the DUT runs on the first CPUs in `[cpus] dut`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Name of the AuthDNS; absent for the AuthDNS of `[auth]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authdns: Option<String>,
}

impl Cores {
    /// Returns the placement on the first `cores` CPUs of the DUT, with the AuthDNS of `[auth]`.
    pub fn first(cores: usize) -> Cores {
        Cores { cores, placement: None, authdns: None }
    }

    /// True if both placements have the same CPUs. Their AuthDNS servers may differ.
    pub(crate) fn has_same_cpus(&self, other: &Cores) -> bool {
        (self.cores, &self.placement) == (other.cores, &other.placement)
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.placement {
            Some(placement) => write!(f, "{} ({placement})", cores_in_words(self.cores)),
            None => f.write_str(&cores_in_words(self.cores)),
        }?;
        self.authdns.as_ref().map_or(Ok(()), |authdns| write!(f, " with {authdns}"))
    }
}

/// Conditions of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Conditions {
    /// Name of the DUT.
    pub dut: String,
    /// CPU placement of the DUT, and the AuthDNS that the DUT queries.
    #[serde(flatten)]
    pub place: Cores,
    /// Share of names with an AAAA record (α).
    pub aaaa: Share,
    /// Share of queries for cached names (β).
    pub cached: Share,
    /// Acceptance criterion: a trial passes if at least this fraction of its queries gets a valid reply. Above 0 and at
    /// most 1.
    pub accept: f64,
}

impl Conditions {
    /// Returns the conditions of the compulsory test of RFC 8219 §9.2, for a DUT at a CPU
    /// placement.
    pub fn worst_case(dut: &str, place: Cores) -> Conditions {
        Conditions { dut: dut.into(), place, aaaa: Share::ZERO, cached: Share::ZERO, accept: 1.0 }
    }

    /// True if these are the conditions of the compulsory test of RFC 8219 §9.2, with any CPU placement.
    pub fn is_worst_case(&self) -> bool {
        self.aaaa == Share::ZERO && self.cached == Share::ZERO && self.accept >= 1.0
    }
}

/// A DUT that is queried at a fraction of its worst-case rate (median of its worst-case searches).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AtShare {
    /// Name of the DUT.
    pub dut: String,
    /// CPU placement of the DUT, and the AuthDNS that the DUT queries.
    #[serde(flatten)]
    pub place: Cores,
    /// Offered rate, as a fraction of the DUT's worst-case rate (median of its worst-case searches).
    pub share: Share,
}

/// A DUT queried at a constant rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AtRate {
    /// Name of the DUT.
    pub dut: String,
    /// CPU placement of the DUT, and the AuthDNS that the DUT queries.
    #[serde(flatten)]
    pub place: Cores,
    /// Offered rate, queries per second.
    pub rate: Qps,
}

/// A DUT queried in a closed loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct WithThreads {
    /// Name of the DUT.
    pub dut: String,
    /// CPU placement of the DUT, and the AuthDNS that the DUT queries.
    #[serde(flatten)]
    pub place: Cores,
    /// Number of threads of the tester, each with one query in flight.
    pub threads: usize,
    /// Frequency governor of the DUT's CPUs; absent if the governor is not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
}

/// A DUT that undergoes conformance checks. AuthDNS answers for the names of the checks, and some
/// of the checks need a special configuration of the DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AtPlace {
    /// Name of the DUT.
    pub dut: String,
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// Configuration of the DUT; absent for the usual configuration.
    #[serde(default, skip_serializing_if = "Variant::is_usual")]
    pub variant: Variant,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::SelfTest(SelfTestTarget {
                server: Auth::Dns64bench,
                family: None,
                cores: None,
                named: None,
            }) => {
                write!(f, "self-test")
            }
            Point::SelfTest(SelfTestTarget { server, family, cores, named }) => {
                write!(f, "self-test with {}", named.as_deref().unwrap_or(server.name()))?;
                if let Some(family) = family {
                    write!(f, " over {family}")?;
                }
                cores.map_or(Ok(()), |cores| write!(f, ", {}", cores_in_words(cores)))
            }
            Point::Search(c) => {
                write!(
                    f,
                    "{}, {}, AAAA {}, cached {}, accept {}",
                    c.dut, c.place, c.aaaa, c.cached, c.accept
                )
            }
            Point::Load(at) => write!(f, "{}, {}, load {}", at.dut, at.place, at.share),
            Point::ConstantRate(at) => {
                write!(f, "{}, {}, constant rate {}", at.dut, at.place, at.rate)
            }
            Point::ClosedLoop(with) => {
                let threads = counted(with.threads as u64, "thread", "threads");
                write!(f, "{}, {}, closed loop with {threads}", with.dut, with.place)?;
                with.governor.as_ref().map_or(Ok(()), |governor| write!(f, ", governor {governor}"))
            }
            Point::Conform(at) => {
                write!(f, "{}, {}, conform", at.dut, at.place)?;
                if at.variant.is_usual() { Ok(()) } else { write!(f, " {}", at.variant) }
            }
        }
    }
}

impl Point {
    /// Returns the DUT's name; `None` for a self-test, which has no DUT.
    pub fn dut(&self) -> Option<&str> {
        Some(match self {
            Point::SelfTest(_) => return None,
            Point::Search(conditions) => &conditions.dut,
            Point::Load(at) => &at.dut,
            Point::ConstantRate(at) => &at.dut,
            Point::ClosedLoop(with) => &with.dut,
            Point::Conform(at) => &at.dut,
        })
    }

    /// Returns the CPU placement of the DUT; `None` for a self-test.
    pub fn place(&self) -> Option<&Cores> {
        Some(match self {
            Point::SelfTest(_) => return None,
            Point::Search(conditions) => &conditions.place,
            Point::Load(at) => &at.place,
            Point::ConstantRate(at) => &at.place,
            Point::ClosedLoop(with) => &with.place,
            Point::Conform(at) => &at.place,
        })
    }

    /// Returns the CPU placement of the DUT, or a placeholder with one core for a self-test, which
    /// has no DUT.
    pub(crate) fn dut_place(&self) -> Cores {
        self.place().cloned().unwrap_or(Cores::first(1))
    }

    /// Returns the variant of the DUT's configuration if the measurement point consists of
    /// conformance checks, otherwise `None`.
    pub fn variant(&self) -> Option<&Variant> {
        if let Point::Conform(at) = self { Some(&at.variant) } else { None }
    }

    /// Returns the frequency governor that the DUT's CPUs must have, or `None` if the governor is
    /// not changed.
    pub fn governor(&self) -> Option<&str> {
        if let Point::ClosedLoop(with) = self { with.governor.as_deref() } else { None }
    }

    /// Returns the name of the DUT's AuthDNS; `None` for the AuthDNS in `[auth]`.
    pub fn authdns(&self) -> Option<&str> {
        self.place()?.authdns.as_deref()
    }

    /// Returns the share of names for which AuthDNS has an AAAA record (α).
    pub fn aaaa(&self) -> Share {
        match self {
            // The Measurer accepts only AAAA records, and in a self-test there is no DUT that
            // synthesizes them. All names therefore have an AAAA record.
            Point::SelfTest(_) => Share::ONE,
            Point::Search(conditions) => conditions.aaaa,
            Point::Load(_) | Point::ConstantRate(_) | Point::ClosedLoop(_) | Point::Conform(_) => {
                Share::ZERO
            }
        }
    }

    /// True if the measurement point consists of conformance checks.
    pub fn is_checked(&self) -> bool {
        matches!(self, Point::Conform(_))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Duration;

    use crate::plan::Plan;

    use super::*;

    #[test]
    fn the_compulsory_point_takes_twenty_times_a_search() {
        let plan = Plan::load(Path::new("compulsory")).unwrap();
        let (trials, time) = plan.effort(&plan.points()[1]);
        assert_eq!(trials, 20 * 19);
        assert_eq!(time, Duration::from_secs(71) * 380);
    }

    #[test]
    fn points_have_unique_texts_and_survive_the_journal() {
        for (name, _) in crate::plan::READY {
            let points = Plan::load(Path::new(name)).unwrap().points();
            let texts: BTreeSet<_> = points.iter().map(ToString::to_string).collect();
            assert_eq!(texts.len(), points.len(), "{name}");
            for point in &points {
                let line = serde_json::to_string(point).unwrap();
                assert_eq!(serde_json::from_str::<Point>(&line).unwrap(), *point, "{line}");
            }
        }
    }

    #[test]
    fn range_and_resolution_of_a_dut_override_the_plan() {
        let text = "name = 'x'\n[search]\nmin = 1000\nmax = 41000\nresolution = 5000\nrepeat = 1\n\
            [[dut]]\ndriver = 'bind'\n[[dut]]\ndriver = 'unbound'\nmax = 39000\nresolution = 9500\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        let of = |name: &str| plan.range(plan.dut(name).unwrap());
        assert_eq!((of("BIND").max, of("BIND").resolution), (Qps(41_000), Qps(5_000)));
        assert_eq!((of("Unbound").max, of("Unbound").resolution), (Qps(39_000), Qps(9_500)));
        let trials = |point: &Point| plan.effort(point).0;
        let points = plan.points();
        assert!(trials(&points[1]) < trials(&points[0]), "a coarser search has fewer trials");
    }

    fn of(text: &str) -> Vec<String> {
        let plan = Plan::parse(&format!("name = 'x'\n{text}"), Path::new("p.toml")).unwrap();
        plan.points().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_axis_is_chosen_by_server() {
        let both = "[measure]\ncores = [1, 2]\nacceptance = [0.99]\naaaa-shares = [1]\nshares-at = [2]\n\
            [[measure.placements]]\nname = '1+1'\ncpus = [0, 8]\n[measure.closed-loop]\nthreads = [4]\nat = ['1+1']\n\
            [[dut]]\ndriver = 'unbound'\n[[dut]]\ndriver = 'bind'\ncores = [4]\nplacements = []\n[dut.measure]\nshares-at = [4]\n\
            acceptance = []\nclosed-loop = { threads = [] }\nconstant-rates = [{ rates = [1500], duration = '9s', repeat = 3 }]\n";
        assert_eq!(
            of(both),
            [
                "Unbound, 1 core, AAAA 0, cached 0, accept 1",
                "Unbound, 2 cores, AAAA 0, cached 0, accept 1",
                "Unbound, 2 cores (1+1), AAAA 0, cached 0, accept 1",
                "Unbound, 1 core, AAAA 0, cached 0, accept 0.99",
                "Unbound, 2 cores, AAAA 0, cached 0, accept 0.99",
                "Unbound, 2 cores (1+1), AAAA 0, cached 0, accept 0.99",
                "Unbound, 2 cores, AAAA 1, cached 0, accept 1",
                "Unbound, 2 cores (1+1), closed loop with 4 threads",
                "BIND, 4 cores, AAAA 0, cached 0, accept 1",
                "BIND, 4 cores, AAAA 1, cached 0, accept 1",
                "BIND, 4 cores, constant rate 1500",
            ]
        );
    }

    #[test]
    fn a_dut_is_measured_with_each_authdns() {
        let text = "[cpus]\nauth = [0, 1]\n[self-test]\nmin = 100\nmax = 100\n[[authdns]]\ndriver = 'nsd'\ncores = 1\n\
            [[authdns]]\ndriver = 'yadifa'\nname = 'Y'\n[[authdns]]\ndriver = 'knot'\n[measure]\nshares-at = [2]\n\
            aaaa-shares = [1]\ncores = [1, 2]\nloads = { shares = [0.5], at = [1] }\n\
            [[dut]]\ndriver = 'unbound'\nmeasure = { authdns = ['AuthDNS', 'NSD'] }\n\
            [[dut]]\ndriver = 'bind'\ncores = [2]\nmeasure = { authdns = ['Y'], loads = { shares = [] } }\n";
        let expected = [
            "self-test",
            "self-test with NSD",
            "self-test with Y",
            "Unbound, 1 core with AuthDNS, AAAA 0, cached 0, accept 1",
            "Unbound, 1 core with NSD, AAAA 0, cached 0, accept 1",
            "Unbound, 2 cores with AuthDNS, AAAA 0, cached 0, accept 1",
            "Unbound, 2 cores with NSD, AAAA 0, cached 0, accept 1",
            "Unbound, 2 cores with AuthDNS, AAAA 1, cached 0, accept 1",
            "Unbound, 2 cores with NSD, AAAA 1, cached 0, accept 1",
            "Unbound, 1 core with AuthDNS, load 0.5",
            "Unbound, 1 core with NSD, load 0.5",
            "BIND, 2 cores with Y, AAAA 0, cached 0, accept 1",
            "BIND, 2 cores with Y, AAAA 1, cached 0, accept 1",
        ];
        assert_eq!(of(text), expected);
        let plan = Plan::parse(&format!("name = 'x'\n{text}"), Path::new("p.toml")).unwrap();
        let points = plan.points();
        let at = |n: usize| {
            (plan.auth_at(&points[n]).name().to_owned(), plan.auth_cpus(&points[n]).to_vec())
        };
        assert_eq!(at(3), ("AuthDNS".into(), vec![0, 1]));
        assert_eq!(
            (at(4), at(1)),
            (("NSD".into(), vec![0]), ("NSD".into(), vec![0])),
            "on its one core"
        );
        assert_eq!(plan.auth_at(&points[11]).driver, Auth::Yadifa);
        // The self-test with the same AuthDNS validates the trials of a point.
        let vouching = [(3, 0), (4, 1), (10, 1), (12, 2)];
        for (point, test) in vouching {
            assert_eq!(
                plan.self_test_for(&points[point]).as_ref(),
                Some(&points[test]),
                "{}",
                points[point]
            );
        }
        let kept = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("plan.toml")).unwrap();
        assert_eq!(kept, plan);
    }

    #[test]
    fn self_tests_with_other_servers_come_after_the_own() {
        let text = "[cpus]\nauth = [0]\n[self-test]\nmin = 100\nmax = 100\n[[self-test.also]]\nserver = 'yadifa'\nfamily = 'ipv6'\n\
            [[self-test.also]]\nserver = 'nsd'\ncores = 1\n[[dut]]\ndriver = 'unbound'\n";
        let points = of(text);
        assert_eq!(
            points[..3],
            ["self-test", "self-test with YADIFA over IPv6", "self-test with NSD, 1 core"]
        );
    }

    #[test]
    fn one_thread_is_in_the_singular() {
        let points = of("[measure.closed-loop]\nthreads = [1, 2]\n[[dut]]\ndriver = 'unbound'\n");
        assert_eq!(
            points[1..],
            [
                "Unbound, 1 core, closed loop with 1 thread",
                "Unbound, 1 core, closed loop with 2 threads"
            ]
        );
    }
}
