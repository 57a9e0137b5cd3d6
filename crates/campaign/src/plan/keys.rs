//! The keys of a plan that choose points: `[search]`, `[self-test]`, `[measure]` and `[dut.measure]`.

use std::fmt;
use std::time::Duration;

use hosts::servers::Auth;
use method::selftest::MIN_DELTA;
use method::verdict::Acceptance;
use serde::{Deserialize, Serialize};
use units::{Qps, Share};

use crate::plan::family::Family;
use crate::plan::goal::TypedGoal;
use crate::plan::point::Cores;
use crate::plan::search_plan::Method;

/// `[measure]`: measurements of each DUT. The worst case, 0 % AAAA and 0 % cached with every reply
/// required, is always measured, at every placement of a DUT: its numbers of cores and its
/// placements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Keys {
    /// Numbers of cores (and DUT threads). Default: one core.
    pub cores: Vec<usize>,
    /// Names of the servers that play AuthDNS; every point is measured with each of them. Default:
    /// that of `[auth]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authdns: Vec<String>,
    /// Further sets of CPUs, such as cores of one socket against cores of two.
    pub placements: Vec<Placement>,
    /// Acceptance ratios above 0 and below 1; not RFC 8219 compliant.
    pub acceptance: Vec<f64>,
    /// Placements at which acceptance ratios are measured; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<PlacementRef>>,
    /// AAAA shares (α) at 0 % cached.
    pub aaaa_shares: Vec<Share>,
    /// Cached shares (β) at 0 % AAAA.
    pub cached_shares: Vec<Share>,
    /// Also measures every combination of both lists.
    pub table: bool,
    /// Placements at which both shares are measured; default: the first number of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<PlacementRef>>,
    /// CPU use and latency at shares of the worst-case median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// CPU use, latency and memory of the DUT at rates from the plan.
    pub constant_rates: Vec<ConstantRates>,
    /// Closed loop: each query waits for the answer to the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// Correctness of its answers, by the checks of `conform`.
    pub conform: bool,
}

/// A set of CPUs for the DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Name of the placement in the report.
    pub name: String,
    /// The CPUs; the DUT has as many threads.
    pub cpus: Vec<usize>,
}

/// An entry in a list of placements: a number of cores, or the name of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum PlacementRef {
    /// The first N of the DUT's CPUs.
    Cores(usize),
    /// The CPUs of that placement.
    Placement(String),
}

impl fmt::Display for PlacementRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementRef::Cores(cores) => cores.fmt(f),
            PlacementRef::Placement(name) => write!(f, "{name:?}"),
        }
    }
}

/// `[dut.measure]`: keys of a DUT that replace those of `[measure]`. A missing key is that of
/// `[measure]`; an empty list removes the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DutKeys {
    /// Names of the servers that play AuthDNS for this DUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authdns: Option<Vec<String>>,
    /// Acceptance ratios below 1 for this DUT, fractions; not RFC 8219 compliant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<f64>>,
    /// Placements of this DUT at which acceptance ratios below 1 are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<PlacementRef>>,
    /// AAAA shares (α) for this DUT, fractions from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aaaa_shares: Option<Vec<Share>>,
    /// Cached shares (β) for this DUT, fractions from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_shares: Option<Vec<Share>>,
    /// True if this DUT is measured with every AAAA share at every cached share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<bool>,
    /// Placements of this DUT at which shares are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<PlacementRef>>,
    /// Trials of this DUT at shares of its worst-case median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// Trials of this DUT at constant rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constant_rates: Option<Vec<ConstantRates>>,
    /// Trials of this DUT in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// True if this DUT's answers are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conform: Option<bool>,
}

impl Keys {
    pub(crate) fn cores(&self) -> Vec<usize> {
        if self.cores.is_empty() { vec![1] } else { self.cores.clone() }
    }

    /// Returns all placements: the numbers of cores, then the named placements, each with every
    /// AuthDNS.
    pub fn places(&self) -> Vec<Cores> {
        let auths: Vec<Option<String>> = match self.authdns.is_empty() {
            true => vec![None],
            false => self.authdns.iter().cloned().map(Some).collect(),
        };
        let placed =
            |p: &Placement| Cores { placement: Some(p.name.clone()), ..Cores::first(p.cpus.len()) };
        let places =
            self.cores().into_iter().map(Cores::first).chain(self.placements.iter().map(placed));
        let with_each = |place: Cores| {
            auths
                .iter()
                .map(move |authdns| Cores { authdns: authdns.clone(), ..place.clone() })
                .collect::<Vec<_>>()
        };
        places.flat_map(with_each).collect()
    }

    /// Returns the placements in a list; without a list, all placements.
    pub(crate) fn places_at(&self, at: Option<&[PlacementRef]>) -> Vec<Cores> {
        let is_meant = |place: &Cores| {
            at.is_none_or(|list| {
                list.iter().any(|at| match (at, &place.placement) {
                    (PlacementRef::Cores(cores), None) => place.cores == *cores,
                    (PlacementRef::Placement(name), Some(placement)) => name == placement,
                    _ => false,
                })
            })
        };
        self.places().into_iter().filter(is_meant).collect()
    }

    /// Returns the placements in a list; without a list the first number of cores.
    pub(crate) fn places_or_first(&self, at: Option<&[PlacementRef]>) -> Vec<Cores> {
        match at {
            Some(_) => self.places_at(at),
            None => {
                let first = Cores::first(self.cores()[0]);
                self.places().into_iter().filter(|place| place.has_same_cpus(&first)).collect()
            }
        }
    }

    /// Returns the placements at which AAAA shares and cached shares are measured.
    pub fn share_places(&self) -> Vec<Cores> {
        self.places_or_first(self.shares_at.as_deref())
    }

    /// Returns the first entry of a list that is not a placement of this DUT.
    pub(crate) fn unknown_placement<'a>(
        &self,
        at: Option<&'a [PlacementRef]>,
    ) -> Option<&'a PlacementRef> {
        at?.iter().find(|at| self.places_at(Some(std::slice::from_ref(at))).is_empty())
    }
}

/// The governor that keeps CPUs at their highest frequency, as CPUs without frequency scaling do
/// anyway.
pub const FIXED: &str = "performance";

/// `[measure.closed-loop]`: experiments in which every thread of the tester waits for an answer
/// before it sends the next query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClosedLoops {
    /// Numbers of threads of the tester, powers of 2 up to 256.
    pub threads: Vec<usize>,
    /// Frequency governors of the DUT's CPUs, named as in Linux; everything is measured with each
    /// of them. Empty: unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub governors: Vec<String>,
    /// Numbers of cores and placements; default: the first number of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Blocks of 256 experiments in a trial, 1 to 10. Names are never repeated.
    pub blocks: u8,
    /// Timeout of a query; whole seconds.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub timeout: Duration,
    /// Number of trials with each number of threads, at least 1.
    pub repeat: u32,
}

impl Default for ClosedLoops {
    /// Values of the paper, except for `threads`.
    fn default() -> ClosedLoops {
        ClosedLoops {
            threads: Vec::new(),
            governors: Vec::new(),
            at: None,
            blocks: 10,
            timeout: Duration::from_secs(1),
            repeat: 1,
        }
    }
}

/// `[[measure.constant-rates]]`: trials at rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConstantRates {
    /// The rates, queries per second.
    pub rates: Vec<Qps>,
    /// Numbers of cores and placements; default: the first number of cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Sending time of each trial, such as `"60s"`.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub duration: Duration,
    /// The initial transient, excluded from the CPU figures.
    #[serde(default, with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub transient: Duration,
    /// Number of trials at each rate, at least 1.
    pub repeat: u32,
}

/// `[measure.loads]`: trials at shares of the worst-case median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Loads {
    /// Shares of the worst-case median that are sent, fractions from 0 to 1.
    pub shares: Vec<Share>,
    /// Numbers of cores and placements; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Sending time of each trial, such as `"60s"`.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub duration: Duration,
    /// The initial transient, excluded from the CPU figures.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub transient: Duration,
    /// Number of trials at each share, at least 1.
    pub repeat: u32,
}

impl Default for Loads {
    /// Durations of the paper.
    fn default() -> Loads {
        let (duration, transient) = (Duration::from_secs(180), Duration::from_secs(60));
        Loads { shares: Vec::new(), at: None, duration, transient, repeat: 1 }
    }
}

/// `[search]`: settings of the searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SearchSettings {
    /// The lowest rate, queries per second.
    pub min: Qps,
    /// Highest rate, unless the DUT sets another one.
    pub max: Qps,
    /// The method that chooses the rates.
    pub method: SearchMethod,
    /// Maximum distance between the highest passed and the lowest failed rate of a bisection.
    pub resolution: Qps,
    /// Maximum width of an MLRsearch's bounds, relative to the upper one; above 0 and below 1.
    pub width: f64,
    /// Goals of an MLRsearch in addition to that of RFC 8219, as in `search --goal`.
    pub goals: Vec<TypedGoal>,
    /// Searches of each point; RFC 8219 §9.2 requires at least 20.
    pub repeat: u32,
    /// Maximum number of repetitions of an invalid trial.
    pub invalid_retries: u32,
    /// Length of the short trial before each full one; default: full trials only.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "Option<crate::plan::quantity::Time>")]
    pub probe: Option<Duration>,
}

/// Default width of an MLRsearch's bounds, relative to the upper one.
pub(crate) const WIDTH: f64 = 0.005;

/// Method that chooses the rates of searches.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = with_other_name)]
pub enum SearchMethod {
    /// Bisection of the range with full trials (RFC 8219 §9.2).
    #[default]
    #[serde(alias = "rfc8219")]
    Bisection,
    /// Search for several goals at once, with short trials first (MLRsearch, RFC 9971).
    Mlrsearch,
}

/// Adds the other name of a bisection to the schema, because schemars ignores serde's aliases.
fn with_other_name(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(names)) = schema.get_mut("oneOf") {
        let description = "Another name of bisection, in a plan only.";
        names.push(
            serde_json::json!({ "description": description, "type": "string", "const": "rfc8219" }),
        );
    }
}

impl SearchSettings {
    /// Returns the method for a point with trials of `duration` and the acceptance ratio `accept`,
    /// which form the first goal of an MLRsearch.
    pub(crate) fn method_for(&self, duration: Duration, accept: f64) -> Method {
        match self.method {
            SearchMethod::Bisection => Method::Bisection,
            SearchMethod::Mlrsearch => {
                Method::mlrsearch(duration, Acceptance(accept), self.width, &self.goals)
            }
        }
    }
}

impl Default for SearchSettings {
    fn default() -> SearchSettings {
        SearchSettings {
            min: Qps(100),
            max: Qps(131_072),
            method: SearchMethod::Bisection,
            resolution: Qps(1),
            width: WIDTH,
            goals: Vec::new(),
            repeat: 20,
            invalid_retries: 3,
            probe: None,
        }
    }
}

/// `[self-test]`: searches with AuthDNS in the DUT's place, which find the rate up to which the
/// tester is reliable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SelfTest {
    /// The lowest rate, queries per second.
    pub min: Qps,
    /// The highest rate, queries per second.
    pub max: Qps,
    /// The distance of passed and failed rates at which a search ends, queries per second.
    pub resolution: Qps,
    /// Number of searches; the smallest result counts.
    pub repeat: u32,
    /// The reserve δ of RFC 8219 §9.2, a fraction; 0.1 or more is compliant.
    pub delta: f64,
    /// IP version over which AuthDNS is queried; default: the one that the topology has, or IPv4 if
    /// it has both.
    pub family: Option<Family>,
    /// Further self-tests, with other servers or over another IP version. They are for comparison
    /// and do not validate trials.
    pub also: Vec<FurtherSelfTest>,
}

/// A further self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FurtherSelfTest {
    /// The server that plays AuthDNS and receives the queries.
    pub server: Auth,
    /// IP version of the queries; default: that of the plan's trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Number of AuthDNS's CPUs that it is confined to; default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
}

impl Default for SelfTest {
    fn default() -> SelfTest {
        let (min, max) = (Qps(1_000), Qps(500_000));
        SelfTest {
            min,
            max,
            resolution: Qps(1_000),
            repeat: 3,
            delta: MIN_DELTA,
            family: None,
            also: Vec::new(),
        }
    }
}
