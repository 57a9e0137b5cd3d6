//! The keys of a plan that determine its measurement points: `[search]`, `[self-test]`, `[measure]`
//! and `[dut.measure]`.

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

/// `[measure]`: measurements of each DUT. The worst case is always measured, with every core count
/// and at every placement of a DUT. In the worst case, no name is cached, no name has an AAAA
/// record, and a trial passes only if every query gets a valid reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Keys {
    /// Core counts to measure. The DUT runs one thread per core. Default: one core.
    pub cores: Vec<usize>,
    /// Names of the servers that act as AuthDNS. All measurements of a DUT are repeated with each
    /// of these servers. Default: the server of `[auth]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authdns: Vec<String>,
    /// Further sets of CPUs on which the DUT is measured, for example to compare the cores of one
    /// socket with cores of two sockets.
    pub placements: Vec<Placement>,
    /// Acceptance criteria in addition to that of RFC 8219. Each criterion, above 0 and below 1, is
    /// the minimum share of valid replies with which a trial passes. Results for these criteria do
    /// not comply with RFC 8219.
    pub acceptance: Vec<f64>,
    /// Core counts and placements at which the DUT is measured with the acceptance criteria in `acceptance`; default:
    /// all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<PlacementRef>>,
    /// Shares of names with an AAAA record (α). Trials at these shares query no cached names.
    pub aaaa_shares: Vec<Share>,
    /// Shares of queries for cached names (β). In trials at these shares, no name has an AAAA
    /// record.
    pub cached_shares: Vec<Share>,
    /// True if the DUT is also measured with every combination of an AAAA share (`aaaa-shares`) and a cached share
    /// (`cached-shares`).
    pub table: bool,
    /// Core counts and placements for the searches with AAAA shares (`aaaa-shares`) and cached shares
    /// (`cached-shares`); default: the first core count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<PlacementRef>>,
    /// Trials at fractions of the DUT's worst-case rate (median of its worst-case searches). The results are the DUT's
    /// CPU use and latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// Trials at constant rates. The results are the DUT's CPU use, latency and memory.
    pub constant_rates: Vec<ConstantRates>,
    /// Closed-loop trials, in which each thread waits for an answer before it sends its next query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// True if the answers of the DUT are checked against the RFCs (`dns64bench conform`).
    pub conform: bool,
}

/// A named set of CPUs for the DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Name of the placement in the report.
    pub name: String,
    /// CPUs of the DUT. The DUT runs one thread per CPU.
    pub cpus: Vec<usize>,
}

/// An entry in a list of placements: a core count, or the name of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum PlacementRef {
    /// The first N of the DUT's CPUs.
    Cores(usize),
    /// The CPUs of the placement with this name.
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

/// `[dut.measure]`: measurements of one DUT. A key in this table replaces the key of the same name
/// in `[measure]`. A key that is missing here has its value from `[measure]`. If a list of
/// criteria, shares or rates is empty, the corresponding measurement is not done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DutKeys {
    /// Names of the servers that act as AuthDNS for this DUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authdns: Option<Vec<String>>,
    /// Acceptance criteria for this DUT, in addition to that of RFC 8219. Each criterion, above 0
    /// and below 1, is the minimum share of valid replies with which a trial passes. Results for
    /// these criteria do not comply with RFC 8219.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<f64>>,
    /// Core counts and placements at which this DUT is measured with the acceptance criteria in `acceptance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<PlacementRef>>,
    /// Shares of names with an AAAA record (α) for this DUT, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aaaa_shares: Option<Vec<Share>>,
    /// Shares of queries for cached names (β) for this DUT, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_shares: Option<Vec<Share>>,
    /// True if this DUT is also measured with every combination of an AAAA share (`aaaa-shares`) and a cached share
    /// (`cached-shares`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<bool>,
    /// Core counts and placements for the searches of this DUT with AAAA shares (`aaaa-shares`) and cached shares
    /// (`cached-shares`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<PlacementRef>>,
    /// Trials of this DUT at fractions of its worst-case rate (median of its worst-case searches).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// Trials of this DUT at constant rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constant_rates: Option<Vec<ConstantRates>>,
    /// Closed-loop trials of this DUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// True if the answers of this DUT are checked against the RFCs (`dns64bench conform`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conform: Option<bool>,
}

impl Keys {
    pub(crate) fn cores(&self) -> Vec<usize> {
        if self.cores.is_empty() { vec![1] } else { self.cores.clone() }
    }

    /// Returns all placements: first the core counts, then the named placements. Each placement is
    /// combined with every AuthDNS.
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

    /// Returns the placements in the list `at`, or all placements if there is no list.
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

    /// Returns the placements in the list `at`, or only the first core count if there is no list.
    pub(crate) fn places_or_first(&self, at: Option<&[PlacementRef]>) -> Vec<Cores> {
        match at {
            Some(_) => self.places_at(at),
            None => {
                let first = Cores::first(self.cores()[0]);
                self.places().into_iter().filter(|place| place.has_same_cpus(&first)).collect()
            }
        }
    }

    /// Returns the CPU placements for the searches with AAAA shares (`aaaa-shares`) and cached shares
    /// (`cached-shares`).
    pub fn share_places(&self) -> Vec<Cores> {
        self.places_or_first(self.shares_at.as_deref())
    }

    /// Returns the first entry of the list `at` that is not a placement of this DUT.
    pub(crate) fn unknown_placement<'a>(
        &self,
        at: Option<&'a [PlacementRef]>,
    ) -> Option<&'a PlacementRef> {
        at?.iter().find(|at| self.places_at(Some(std::slice::from_ref(at))).is_empty())
    }
}

/// The governor that keeps CPUs at their highest frequency. CPUs without frequency scaling always
/// run at that frequency.
pub const FIXED: &str = "performance";

/// `[measure.closed-loop]`: experiments in which each thread of the tester waits for an answer
/// before it sends the next query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClosedLoops {
    /// Thread counts with which the tester measures the DUT. Each count is a power of 2, at most 256.
    pub threads: Vec<usize>,
    /// Frequency governors for the DUT's CPUs, named as in Linux. Each thread count is measured
    /// with each governor. If the list is empty, the governor is not changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub governors: Vec<String>,
    /// Core counts and placements at which the DUT is measured; default: the first core count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Number of blocks in a trial, 1 to 10. A block has 256 experiments, each with 256 names. Names are never repeated
    /// within a trial.
    pub blocks: u8,
    /// Timeout for the answer to a query, in whole seconds.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub timeout: Duration,
    /// Number of trials with each thread count, at least 1.
    pub repeat: u32,
}

impl Default for ClosedLoops {
    /// Returns the settings of the experiments in G. Lencse's paper on MTD64, but with an empty list of thread counts.
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

/// `[[measure.constant-rates]]`: trials at constant rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConstantRates {
    /// Rates of the trials, queries per second.
    pub rates: Vec<Qps>,
    /// Core counts and placements at which the DUT is measured; default: the first core count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Duration of sending in each trial, such as `"60s"`.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub duration: Duration,
    /// Initial part of each trial, in which the CPU use is not yet steady. This part is excluded
    /// from the computed CPU use.
    #[serde(default, with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub transient: Duration,
    /// Number of trials at each rate, at least 1.
    pub repeat: u32,
}

/// `[measure.loads]`: trials at fractions of the DUT's worst-case rate (median of its worst-case searches).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Loads {
    /// Offered rates, as fractions of the DUT's worst-case rate (median of its worst-case searches). Each fraction is
    /// from 0 to 1.
    pub shares: Vec<Share>,
    /// Core counts and placements at which the DUT is measured; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<PlacementRef>>,
    /// Duration of sending in each trial, such as `"60s"`.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub duration: Duration,
    /// Initial part of each trial, in which the CPU use is not yet steady. This part is excluded
    /// from the computed CPU use.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "crate::plan::quantity::Time")]
    pub transient: Duration,
    /// Number of trials at each offered rate, at least 1.
    pub repeat: u32,
}

impl Default for Loads {
    /// Returns the trial duration and the initial transient from the paper by Lencse and Kadobayashi (2018), with an
    /// empty list of offered rates.
    fn default() -> Loads {
        let (duration, transient) = (Duration::from_secs(180), Duration::from_secs(60));
        Loads { shares: Vec::new(), at: None, duration, transient, repeat: 1 }
    }
}

/// `[search]`: settings of the searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SearchSettings {
    /// Lowest rate, queries per second.
    pub min: Qps,
    /// Highest rate, queries per second. The key `max` of a DUT takes precedence.
    pub max: Qps,
    /// The method that chooses the rates.
    pub method: SearchMethod,
    /// For a bisection: a search ends when the distance between the highest passed and the lowest
    /// failed rate is at most this value, in queries per second.
    pub resolution: Qps,
    /// For an MLRsearch: maximum distance between the lower and the upper bound of the rate, as a fraction of the upper
    /// bound. The fraction is above 0 and below 1.
    pub width: f64,
    /// For an MLRsearch: goals in addition to the goal of RFC 8219, in the format of `search
    /// --goal`.
    pub goals: Vec<TypedGoal>,
    /// Number of searches at each measurement point; RFC 8219 §9.2 requires at least 20.
    pub repeat: u32,
    /// Maximum number of repetitions of an invalid trial.
    pub invalid_retries: u32,
    /// Length of the short trial that precedes each full trial; default: full trials only.
    #[serde(with = "crate::plan::quantity::plan_time")]
    #[schemars(with = "Option<crate::plan::quantity::Time>")]
    pub probe: Option<Duration>,
}

/// Default for the maximum distance between the lower and the upper bound of the rate in an MLRsearch, as a fraction of
/// the upper bound.
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

/// Adds `rfc8219`, the alias of the search method `bisection`, to the schema, because schemars ignores serde's aliases.
fn with_other_name(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(names)) = schema.get_mut("oneOf") {
        let description = "Another name of bisection, in a plan only.";
        names.push(
            serde_json::json!({ "description": description, "type": "string", "const": "rfc8219" }),
        );
    }
}

impl SearchSettings {
    /// Returns the search method for a measurement point. For an MLRsearch, the trial length
    /// `duration` and the acceptance ratio `accept` form the first goal.
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

/// `[self-test]`: searches in which the Measurer queries AuthDNS directly. The searches find the
/// rate up to which the tester is reliable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SelfTest {
    /// Lowest rate, queries per second.
    pub min: Qps,
    /// Highest rate, queries per second.
    pub max: Qps,
    /// A search ends when the distance between the highest passed and the lowest failed rate is at
    /// most this value, in queries per second.
    pub resolution: Qps,
    /// Number of searches. The smallest of their results is the result of the self-test.
    pub repeat: u32,
    /// The reserve δ of RFC 8219 §9.2, a fraction: the self-test must pass at a rate that exceeds
    /// the required rate by this fraction. Values of 0.1 and more comply with RFC 8219.
    pub delta: f64,
    /// IP version over which AuthDNS is queried. Default: the IP version of AuthDNS's address in
    /// the topology, or IPv4 if AuthDNS has addresses of both versions.
    pub family: Option<Family>,
    /// Further self-tests, with other servers or over a different IP version. These self-tests
    /// serve for comparison only and do not validate trials.
    pub also: Vec<FurtherSelfTest>,
}

/// A self-test in addition to the main self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FurtherSelfTest {
    /// The server software that acts as AuthDNS and receives the queries of the Measurer.
    pub server: Auth,
    /// IP version of the queries. The default is the IP version of the main self-test (key `family` in `[self-test]`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<Family>,
    /// Number of CPUs in `[cpus] auth` that the server may use; default: all of these CPUs.
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
