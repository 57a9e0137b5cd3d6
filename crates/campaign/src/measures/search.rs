//! Searches for the highest rate at which a DUT passes (RFC 8219 §9.2): at every placement, with
//! lower acceptance ratios, and with shares of names that have AAAA records or are cached.

mod shown;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use method::evidence::{Deviation, OfferedLoad, Real, UpstreamQueries};
use method::mlr::goal::Goal;
use method::narrow::Length;
use method::precision::{Figures, lower_end, overstatement};
use method::records::Wrong;
use method::search::{Found, SearchRange, Shortfall};
use method::set::{LowerBound, SetPlan, lower_bounds};
use method::units::{Nanos, Qps, Share, counted};
use method::verdict::{Acceptance, Verdict};
use serde::{Deserialize, Serialize};
use tester::measurer::plan::TrialPlan;

use super::{Course, Filled, Measure, Paper, Task};
use crate::archive::{DutEnd, Measured, Step};
use crate::goal::{TypedGoal, distance};
use crate::measures::load::place_name;
use crate::missing::Missing;
use crate::place::{Place, cores_in_words};
use crate::plan::{DutPlan, Plan};
use crate::point::{Conditions, Cores, Point};
use crate::recorded::{Recorded, why_void};
use crate::report::Run;
use crate::report::chart::Figure;
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::search::{GoalFigures, SearchCourse};
use crate::search_plan::Method;
use crate::wording;

pub(crate) use shown::{dot_of, found_in_words, worst_point};

/// `[search]`: settings of the searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Searching {
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
    #[serde(with = "crate::written::plan_time")]
    #[schemars(with = "Option<crate::written::Time>")]
    pub probe: Option<Duration>,
}

/// Default width of an MLRsearch's bounds, relative to the upper one.
pub const WIDTH: f64 = 0.005;

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

impl Searching {
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

impl Default for Searching {
    fn default() -> Searching {
        Searching {
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

/// Result of a set of searches.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PointResult {
    /// The conditions of the searches.
    pub conditions: Conditions,
    /// Median, percentiles, relative range and interval, queries per second; empty for a void
    /// point.
    pub figures: Figures,
    /// Reason for a missing result.
    pub missing: Option<Missing>,
    /// Factor by which short trials may overstate the rates; the interval is widened by it.
    pub overstatement: f64,
    /// Result of each search, in order; rates in queries per second.
    pub found: Vec<Found>,
    /// Shortfall at the lowest failed rate, search by search; absent if none failed.
    pub failed_by: Vec<Option<Shortfall>>,
    /// True if all repetitions are done.
    pub complete: bool,
    /// Deviation because of which there can be no result: the DUT was not queried under the
    /// conditions of the point.
    pub void: Option<Deviation>,
    /// Reasons why the DUT's limit may be higher.
    pub lower_bound_reasons: Vec<LowerBound>,
    /// Rate up to which a self-test with the point's AuthDNS validates the tester; absent without
    /// one.
    #[serde(default)]
    pub vouched: Option<Qps>,
    /// Observed α and β of the trials that passed at full length. Absent if AuthDNS does not count
    /// queries; then nothing proves that new names were not answered from a cache.
    pub real: Option<Real>,
    /// CPU placement of the DUT in all its trials, which gives the number of cores its meaning.
    /// Absent if it was not observed.
    pub place: Option<Place>,
    /// Numbers of probes, full trials, and invalid trials.
    pub trials: Trials,
    /// Numbers of trials in which the DUT died or hung.
    #[serde(default)]
    pub ends: Ends,
    /// Requested distance of passed and failed rates or, for an MLRsearch, the actual one; a median
    /// of two rates is rounded to it.
    pub resolution: Qps,
    /// Results of an MLRsearch for each goal, that of RFC 8219 first; the other fields refer to the
    /// first goal. Empty for a bisection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalFigures>,
}

impl PointResult {
    /// True if the DUT had the number of cores that the point asks for.
    pub(crate) fn has_its_cores(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_cores(self.conditions.place.cores))
    }

    /// Includes a failure of the DUT at `rate` in a later trial under the same conditions. Passes
    /// at that rate or above were not reproducible: the interval is extended down to the next lower
    /// rate that passed, and a median at or above it is refuted.
    pub(crate) fn take_in_failure(&mut self, recorded: &Recorded<'_>, rate: Qps) {
        let point = Point::Search(self.conditions.clone());
        let trials = recorded.walk(&point).map(|walk| walk.trials).unwrap_or_default();
        let passed = |m: &&&Measured| {
            m.step.length == Length::Full && m.verdict() == Verdict::Passed && m.step.rate < rate
        };
        let below = trials.iter().filter(passed).map(|m| m.step.rate).max();
        self.figures.refute(rate, below.map(|below| lower_end(below, self.overstatement)));
        // The first goal has the same result.
        if let Some(first) = self.goals.first_mut() {
            first.figures = self.figures;
        }
    }

    /// Returns objections to the result, or the reason for its absence; empty if there is neither.
    pub(crate) fn mark(&self) -> String {
        if let Some(why) = &self.missing {
            return why.to_string();
        }
        let validated = self.lower_bound_reasons.iter().filter_map(|reason| match reason {
            LowerBound::SelfTest { .. } => Some(wording::lower_bound(reason)),
            _ => None,
        });
        let objection = Some(wording::objection(&self.figures)).filter(|words| !words.is_empty());
        objection.into_iter().chain(validated).collect::<Vec<_>>().join("; ")
    }

    /// Compares results for sorting, the highest first: by the median, otherwise by the proven
    /// lower end; a point without either comes last.
    pub(crate) fn by_result(&self, other: &PointResult) -> Ordering {
        let rate = |point: &PointResult| {
            point.figures.median.or(point.figures.interval.from).unwrap_or(-1.0)
        };
        rate(other).total_cmp(&rate(self))
    }

    /// True if both were observed on the same CPUs.
    pub(crate) fn is_on_the_cpus_of(&self, other: &PointResult) -> bool {
        self.place.as_ref().zip(other.place.as_ref()).is_some_and(|(a, b)| a.is_on_the_cpus_of(b))
    }

    /// Returns the DUT's number of cores, or a description of its actual placement.
    pub(crate) fn ran_on(&self) -> String {
        ran_on(&self.conditions.place, self.place.as_ref())
    }

    /// Same as [`PointResult::ran_on`], for a column that is named after the requested cores or
    /// placement.
    pub(crate) fn column(&self) -> String {
        column(&self.conditions.place, self.place.as_ref(), self.missing.as_ref())
    }

    /// Returns the cores that it was confined to, for legends and captions.
    pub(crate) fn on_cores(&self) -> String {
        on_cores(&self.conditions.place, self.place.as_ref())
    }
}

/// Returns the CPU placement of a DUT in all trials of a point, as far as it was observed.
pub(crate) fn place_of<'a>(trials: impl Iterator<Item = &'a Measured>) -> Option<Place> {
    Place::of_all(trials.filter_map(|m| m.cpu.place.as_ref()))
}

/// Returns the number of cores of a DUT for which `asked` was requested.
pub(crate) fn ran_on(asked: &Cores, seen: Option<&Place>) -> String {
    seen.map_or_else(|| format!("{} requested, not observed", asked.cores), Place::in_words)
}

/// Returns the heading of a column or row: the requested cores or placement, and deviations from
/// it.
pub(crate) fn column(asked: &Cores, seen: Option<&Place>, missing: Option<&Missing>) -> String {
    let name = place_name(asked);
    let deviations = match seen {
        Some(place) => place.deviations_from(asked.cores),
        None if missing.is_some() => Vec::new(),
        None => vec![ran_on(asked, None)],
    };
    if deviations.is_empty() { name } else { format!("{name} ({})", deviations.join(", ")) }
}

/// Returns the placement of a DUT for legends and captions: the cores that it was confined to, not
/// those requested, with the names of the placement and of AuthDNS, if any.
pub(crate) fn on_cores(asked: &Cores, seen: Option<&Place>) -> String {
    let not_seen = || format!("{} requested, not observed", cores_in_words(asked.cores));
    let cores = seen.map_or_else(not_seen, Place::cores_in_words);
    let placement = asked.placement.as_ref().map_or(String::new(), |name| format!("{name}: "));
    let authdns =
        asked.authdns.as_ref().map_or(String::new(), |authdns| format!(" with {authdns}"));
    format!("{placement}{cores}{authdns}")
}

/// Numbers of trials.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Trials {
    /// Trials of other lengths: short ones that precede those of full length.
    pub probes: usize,
    /// Trials of full length that count.
    pub full: usize,
    /// Invalid trials among these, and among the other lengths that decide in an MLRsearch.
    pub invalid: usize,
    /// Full trials that were skipped because their probes failed.
    pub saved: usize,
}

/// Trials of a point in which a DUT died or hung. Most of them were repeated, which biases a rate
/// upwards.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Ends {
    /// Trials in which its process ended.
    pub died: usize,
    /// Trials after which it did not reply any more.
    pub hung: usize,
    /// All trials, including repeated ones.
    pub of: usize,
}

impl Ends {
    fn count<'a>(all: impl Iterator<Item = &'a Measured>) -> Ends {
        let mut ends = Ends::default();
        for measured in all {
            ends.of += 1;
            match measured.dut_end {
                Some(DutEnd::Died(_)) => ends.died += 1,
                Some(DutEnd::Hung) => ends.hung += 1,
                None => {}
            }
        }
        ends
    }

    /// Returns the sum over several points.
    pub(crate) fn plus(self, other: Ends) -> Ends {
        Ends { died: self.died + other.died, hung: self.hung + other.hung, of: self.of + other.of }
    }

    /// Returns text like `died in 2 of 5 trials`; `None` if it never did.
    pub(crate) fn in_words(&self) -> Option<String> {
        let how = match (self.died, self.hung) {
            (0, 0) => return None,
            (died, 0) => format!("died in {died}"),
            (0, hung) => format!("hung in {hung}"),
            (died, hung) => format!("died in {died} and hung in {hung}"),
        };
        Some(format!("{how} of {}", counted(self.of as u64, "trial", "trials")))
    }
}

/// The basic measurement of every DUT: searches for the highest rate that passes (RFC 8219 §9.2).
pub struct SearchMeasure;

impl Measure for SearchMeasure {
    fn title(&self) -> &'static str {
        "Highest passing rates"
    }

    fn name(&self) -> &'static str {
        "search"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut else { return Vec::new() };
        let keys = plan.keys_of(dut);
        let worst = |place| Conditions::worst_case(dut.name(), place);
        let mut all: Vec<Conditions> = keys.places().into_iter().map(worst).collect();
        for &accept in &keys.acceptance {
            let places = keys.places_at(keys.acceptance_at.as_deref());
            all.extend(places.into_iter().map(|place| Conditions { accept, ..worst(place) }));
        }
        for place in keys.share_places() {
            let with =
                |aaaa: Share, cached: Share| Conditions { aaaa, cached, ..worst(place.clone()) };
            all.extend(keys.aaaa_shares.iter().map(|&aaaa| with(aaaa, Share::ZERO)));
            all.extend(keys.cached_shares.iter().map(|&cached| with(Share::ZERO, cached)));
            for &aaaa in keys.aaaa_shares.iter().filter(|_| keys.table) {
                all.extend(keys.cached_shares.iter().map(|&cached| with(aaaa, cached)));
            }
        }
        all.into_iter().map(Point::Search).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let search = &plan.search;
        if search.min > search.max || search.resolution.0 == 0 || search.repeat == 0 {
            return Err(
                "[search]: min must not be above max, and resolution and repeat must be at least 1"
                    .into(),
            );
        }
        check_method(plan)?;
        for dut in &plan.duts {
            if dut.max.is_some_and(|max| max < search.min) {
                return Err(format!("[[dut]] {}: max is below min in [search]", dut.name()));
            }
            if dut.resolution == Some(Qps(0)) {
                return Err(format!("[[dut]] {}: resolution must be at least 1", dut.name()));
            }
            let keys = plan.keys_of(dut);
            if let Some(ratio) =
                keys.acceptance.iter().find(|&&ratio| !(ratio > 0.0 && ratio < 1.0))
            {
                return Err(format!(
                    "[measure] acceptance: {ratio} is not between 0 and 1; 1 is always measured"
                ));
            }
        }
        Ok(())
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        let set = set_of(plan, point);
        if let (Some(set), Some(Method::MlrSearch(goals))) = (&set, method_of(plan, point)) {
            return mlr_effort(plan, set, &goals);
        }
        let probe = plan.search.probe.map(|probe| plan.takes(probe));
        set.map_or((0, Duration::ZERO), |set| effort(&set, plan.takes(plan.trial.duration), probe))
    }

    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course> {
        let plan = recorded.plan;
        let (set, method) = (set_of(plan, point)?, method_of(plan, point)?);
        // Invalid goals were rejected when the plan was read (`check_method`).
        SearchCourse::new(set, &method, plan.trial.duration.into()).ok().map(Course::Searches)
    }

    fn starts_anew(&self) -> bool {
        true
    }

    fn task(&self, plan: &Plan, step: &Step, mut base: TrialPlan) -> Task {
        match (step.length, plan.search.probe) {
            (Length::Of(duration), _) => base.duration = duration,
            (Length::Probe, Some(probe)) => base.duration = probe.into(),
            _ => {}
        }
        if let Point::Search(c) = &step.point {
            (base.aaaa_share, base.cached_share, base.accept) =
                (c.aaaa, c.cached, Acceptance(c.accept));
        }
        Task::Trial(Box::new(base))
    }

    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        result(recorded, point).is_some_and(|point| point.missing.is_none())
    }

    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
        result(recorded, point)?.missing
    }

    fn fills(&self, plan: &Plan, point: &Point) -> Vec<Filled> {
        let Point::Search(c) = point else { return Vec::new() };
        let is_mtd64 =
            plan.dut(&c.dut).is_some_and(|dut| dut.driver == crate::servers::Dut::Mtd64Ng);
        let shares =
            plan.dut(&c.dut).map(|dut| plan.keys_of(dut).share_places()).unwrap_or_default();
        let paper = |what| Paper::Benchmarking.has(what);
        let mut all = Vec::new();
        let plain = (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO);
        match (&c.place.placement, plain, c.accept >= 1.0) {
            (None, true, true) if is_mtd64 => all.push(paper("Table III")),
            (None, true, true) => all.push(paper("Tables V-VII")),
            (None, true, false) => all.push(paper("Tables VIII-X")),
            (Some(_), true, true) => all.push(paper("Table XI")),
            (Some(_), true, false) => all.push(paper("Table XII")),
            _ => {}
        }
        let keys = plan.dut(&c.dut).map(|dut| plan.keys_of(dut)).unwrap_or_default();
        let swept = c.accept >= 1.0 && shares.contains(&c.place) && !is_mtd64;
        if swept && c.cached == Share::ZERO && !keys.aaaa_shares.is_empty() {
            all.push(paper("Tables XIII-XV"));
        }
        if swept && c.aaaa == Share::ZERO && !keys.cached_shares.is_empty() {
            all.push(paper("Tables XVI-XVIII"));
        }
        // Their first row is the full rate.
        let loads = keys.loads.as_ref().filter(|loads| !loads.shares.is_empty());
        if c.is_worst_case()
            && loads.is_some_and(|loads| keys.places_at(loads.at.as_deref()).contains(&c.place))
        {
            all.push(paper("Tables XIX-XXI"));
        }
        all
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        shown::tables(run)
    }

    fn comparisons(&self, runs: &[Run]) -> Vec<Table> {
        shown::comparisons(runs)
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        shown::figures(runs)
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let points = run.results.duts.iter().flat_map(|dut| &dut.points);
        points.flat_map(rows).collect()
    }
}

fn rows(result: &PointResult) -> Vec<Row> {
    let point = Point::Search(result.conditions.clone());
    let mut rows = vec![Row {
        mark: result.mark(),
        real: result.real,
        ..Row::of_figures(point.clone(), "rate", "queries/s", &result.figures)
    }];
    rows.push(Row::of_value(
        point.clone(),
        "overstatement",
        "factor",
        1,
        Some(result.overstatement),
    ));
    let resolution = Some(result.resolution.0 as f64);
    rows.push(Row::of_value(point.clone(), "resolution", "queries/s", 1, resolution));
    if let Some(vouched) = result.vouched {
        let vouched = Some(vouched.0 as f64);
        rows.push(Row::of_value(point.clone(), "vouched", "queries/s", 1, vouched));
    }
    rows.extend(each_search(&point, &result.found));
    rows.push(without_pass(&point, &result.figures));
    for (at, goal) in result.goals.iter().enumerate() {
        let name = format!("goal_{}", at + 1);
        rows.push(Row {
            mark: wording::objection(&goal.figures),
            ..Row::of_figures(point.clone(), &name, "queries/s", &goal.figures)
        });
    }
    for (i, shortfall) in result.failed_by.iter().enumerate() {
        let Some(Shortfall { rate, missing, of }) = *shortfall else { continue };
        let row = |what: &str, n: u64| Row {
            rate: Some(rate),
            ..Row::of_value(
                point.clone(),
                &format!("search_{}_{what}", i + 1),
                "queries",
                1,
                Some(n as f64),
            )
        };
        rows.extend([row("missing", missing), row("sent", of)]);
    }
    rows.extend(trial_counts(&point, &result.trials));
    let ends = [("died", result.ends.died), ("hung", result.ends.hung), ("tried", result.ends.of)];
    let row = |(what, n)| Row::of_value(point.clone(), what, "trials", 1, Some(n as f64));
    rows.extend(ends.map(row));
    rows.iter_mut().for_each(|row| row.ran_on.clone_from(&result.place));
    rows
}

/// Returns the result of each search of a point.
pub(super) fn each_search(point: &Point, found: &[Found]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, search) in found.iter().enumerate() {
        let rates = [
            ("passed", search.highest),
            ("failed", search.failed),
            ("unmeasurable", search.unmeasurable),
        ];
        for (what, rate) in rates.into_iter().filter_map(|(what, rate)| Some((what, rate?))) {
            let quantity = format!("search_{}_{what}", i + 1);
            rows.push(Row::of_value(point.clone(), &quantity, "queries/s", 1, Some(rate.0 as f64)));
        }
    }
    rows
}

/// Returns the number of searches that found no passing rate.
pub(super) fn without_pass(point: &Point, figures: &Figures) -> Row {
    let searches = Some(figures.without_pass as f64);
    Row::of_value(point.clone(), "without_pass", "searches", figures.n, searches)
}

/// Returns the numbers of trials of a point.
pub(super) fn trial_counts(point: &Point, trials: &Trials) -> Vec<Row> {
    let all = [
        ("probes", trials.probes),
        ("trials", trials.full),
        ("spoiled", trials.invalid),
        ("saved", trials.saved),
    ];
    all.map(|(what, n)| Row::of_value(point.clone(), what, "trials", 1, Some(n as f64))).into()
}

/// Returns the set of searches of a point.
fn set_of(plan: &Plan, point: &Point) -> Option<SetPlan> {
    let Point::Search(conditions) = point else { return None };
    let range = plan.range(plan.dut(&conditions.dut)?);
    let s = &plan.search;
    Some(SetPlan { range, repeat: s.repeat, probes: s.probe.is_some() })
}

/// Returns the search method of a point; `None` if it does not consist of searches.
fn method_of(plan: &Plan, point: &Point) -> Option<Method> {
    let Point::Search(conditions) = point else { return None };
    Some(plan.search.method_for(plan.trial.duration, conditions.accept))
}

/// Rejects keys of another search method than the selected one, and invalid goals.
fn check_method(plan: &Plan) -> Result<(), String> {
    let search = &plan.search;
    let Method::MlrSearch(goals) = search.method_for(plan.trial.duration, 1.0) else {
        return match search.goals.is_empty() && search.width == WIDTH {
            true => Ok(()),
            false => Err(
                "[search]: width and goals are for method = \"mlrsearch\"; a bisection has only \
                          the goal of RFC 8219, and resolution"
                    .into(),
            ),
        };
    };
    let duts = || plan.duts.iter();
    if search.resolution != Qps(1) || duts().any(|dut| dut.resolution.is_some()) {
        return Err(
            "[search]: resolution is for method = \"bisection\"; for mlrsearch use width, such as \
                    width = 0.005"
                .into(),
        );
    }
    if search.min.0 == 0 {
        return Err("[search]: min of an mlrsearch must be at least 1".into());
    }
    if search.probe.is_some() {
        return Err("[search]: probe is for method = \"bisection\"; an mlrsearch has its own \
                    short trials"
            .into());
    }
    goals
        .iter()
        .try_for_each(|goal| goal.validate().map_err(|why| format!("[search] goals: {why}")))
}

/// Estimates the number and the duration of the trials of an MLRsearch: for each goal those that
/// decide on two bounds, preceded by short ones, which halve the range until they are close.
fn mlr_effort(plan: &Plan, set: &SetPlan, goals: &[Goal]) -> (u32, Duration) {
    let span = set.range.max.0 / set.range.min.0.max(1);
    let short = u64::from(span.max(1).ilog2()) + 4;
    let timeout = plan.trial.timeout(plan.trial.duration);
    let of = |goal: &Goal| {
        let decisive = 2 * goal.duration_sum.0.div_ceil(goal.final_duration.0.max(1));
        let time = |trials: u64, length: Nanos| {
            // All of them wait for late replies as long as the full ones.
            let each = Duration::from(length) + timeout + plan.trial.pause;
            each.saturating_mul(u32::try_from(trials).unwrap_or(u32::MAX))
        };
        let took =
            time(short, goal.initial_duration).saturating_add(time(decisive, goal.final_duration));
        (u32::try_from(short + decisive).unwrap_or(u32::MAX), took)
    };
    let (trials, time) = goals.iter().map(of).fold((0_u32, Duration::ZERO), |sum, one| {
        (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
    });
    (trials.saturating_mul(set.repeat), time.saturating_mul(set.repeat))
}

/// Returns the maximum number of trials of a set, and their duration if a full one takes `full` and
/// a probe `probe`.
pub(super) fn effort(set: &SetPlan, full: Duration, probe: Option<Duration>) -> (u32, Duration) {
    let SearchRange { min, max, resolution, .. } = set.range;
    let steps = ((max.0 - min.0) / resolution.0.max(1)).max(1).ilog2() + 3;
    // With probes, about half of the steps fail and end with the probe.
    let (trials, one) = match probe {
        Some(probe) => (steps * 3 / 2 + 1, probe * steps + full * (steps / 2 + 1)),
        None => (steps, full * steps),
    };
    (trials * set.repeat, one * set.repeat)
}

/// Returns the requested distance of passed and failed rates in this range; for an MLRsearch, that
/// at its upper end.
fn wanted_resolution(plan: &Plan, range: &SearchRange) -> Qps {
    match plan.search.method {
        SearchMethod::Bisection => range.resolution,
        SearchMethod::Mlrsearch => distance(plan.search.width, range.max),
    }
}

/// Returns the requested distance of passed and failed rates of a point or, for an MLRsearch, the
/// actual one.
pub(crate) fn resolution(recorded: &Recorded<'_>, point: &Point) -> Option<Qps> {
    let plan = recorded.plan;
    let wanted = wanted_resolution(plan, &plan.range(plan.dut(point.dut()?)?));
    match plan.search.method {
        SearchMethod::Bisection => Some(wanted),
        SearchMethod::Mlrsearch => {
            Some(recorded.walk(point)?.course.searches()?.resolution(wanted))
        }
    }
}

/// Returns the result at a point of a DUT.
pub(crate) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<PointResult> {
    let Point::Search(conditions) = point else { return None };
    let walk = recorded.walk(point)?;
    let searches = walk.course.searches()?;
    let wrong = misconfigured(&walk.trials, searches);
    let is_void = walk.void.is_some() || wrong.is_some();
    let found = if is_void { Vec::new() } else { searches.found() };
    let plan = recorded.plan;
    let range = plan.range(plan.dut(&conditions.dut)?);
    let timeout = Nanos::from(plan.trial.timeout(plan.trial.duration));
    let overstatement = overstatement(plan.trial.duration.into(), timeout);
    let vouched = recorded.allowed(point);
    let resolution = searches.resolution(wanted_resolution(plan, &range));
    let figures = Figures::of(&found, overstatement, resolution).validated_to(vouched);
    let missing = match walk.void {
        Some(why) => Some(Missing::Void(why)),
        None if wrong.is_some() => wrong.map(Missing::WrongReplies),
        None if figures.n > 0 => None,
        None if walk.trials.is_empty() => Some(Missing::not_begun(recorded, point)),
        None if found.is_empty() => Some(Missing::Unfinished),
        None => Some(Missing::Spoiled),
    };
    Some(PointResult {
        conditions: conditions.clone(),
        complete: walk.due().is_none(),
        failed_by: if is_void { Vec::new() } else { searches.failed_by() },
        goals: if is_void { Vec::new() } else { searches.goals(timeout, range.max, vouched) },
        lower_bound_reasons: if is_void {
            Vec::new()
        } else {
            lower_bounds(&found, range.max, &figures, vouched)
        },
        missing,
        vouched,
        figures,
        overstatement,
        found,
        void: walk.void,
        real: real(&walk.trials, searches),
        place: place_of(walk.trials.iter().copied()),
        trials: count(walk.trials.iter().copied()),
        ends: Ends::count(walk.trials.iter().copied().chain(recorded.repeated(point))),
        resolution,
    })
}

/// Returns the way in which the replies of the first trial were wrong, if no rate passed because of
/// it.
fn misconfigured(trials: &[&Measured], searches: &SearchCourse) -> Option<Wrong> {
    let wrong = trials.first()?.counts().wrong_in_one_way()?;
    searches.found().iter().all(|found| found.highest.is_none()).then_some(wrong)
}

/// Returns the observed α and β over all trials that passed at full length or deviated from the
/// requested conditions.
fn real(trials: &[&Measured], searches: &SearchCourse) -> Option<Real> {
    let judged = |m: &&&Measured| {
        let passed = m.verdict() == Verdict::Passed && m.step.length == Length::Full;
        passed || why_void(m, Some(searches)).is_some()
    };
    let mut sum: Option<(UpstreamQueries, OfferedLoad)> = None;
    for trial in trials.iter().filter(judged).filter_map(|m| m.at_rate()) {
        // Only the counters of dns64bench's AuthDNS can be compared.
        let (asked, wanted) = (trial.auth.as_ref()?.asked, trial.wanted());
        sum = Some(match sum {
            None => (asked, wanted),
            Some((a, w)) => {
                let sum = OfferedLoad {
                    sent: w.sent + wanted.sent,
                    valid: w.valid + wanted.valid,
                    preloaded: w.preloaded + wanted.preloaded,
                    ..w
                };
                (a.plus(&asked), sum)
            }
        });
    }
    let (asked, wanted) = sum?;
    asked.real(&wanted)
}

/// Counts the trials of one point: a probe can be matched with the trial it saved within a point
/// only.
pub(crate) fn count<'a>(all: impl Iterator<Item = &'a Measured>) -> Trials {
    let mut trials = Trials::default();
    let mut probed_failed = 0;
    let mut confirmed = 0;
    let mut last_failed_probe: BTreeSet<(u32, Qps)> = BTreeSet::new();
    for m in all {
        let (repeat, rate) = (m.step.repeat, m.step.rate);
        match m.step.length {
            Length::Probe => {
                trials.probes += 1;
                if m.verdict() == Verdict::Failed {
                    probed_failed += 1;
                    last_failed_probe.insert((repeat, rate));
                }
            }
            Length::Of(_) => {
                trials.probes += 1;
                trials.invalid += usize::from(m.verdict() == Verdict::Invalid);
            }
            Length::Full => {
                trials.full += 1;
                trials.invalid += usize::from(m.verdict() == Verdict::Invalid);
                confirmed += usize::from(last_failed_probe.remove(&(repeat, rate)));
            }
        }
    }
    trials.saved = probed_failed - confirmed;
    trials
}

#[cfg(test)]
mod tests;
