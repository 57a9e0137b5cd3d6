//! Self-test: the tester against an AuthDNS, without a DUT (RFC 8219 §9.2.1). It shows the rate up
//! to which the tester is reliable, and compares authoritative servers in that role.

use std::net::SocketAddr;
use std::time::Duration;

use method::precision::Figures;
use method::search::{Found, SearchRange};
use method::selftest::{self, MIN_DELTA, allowed_rate, factor};
use method::set::{SetPlan, smallest_pass};
use method::units::{Qps, Share, counted};
use serde::{Deserialize, Serialize};
use tester::measurer::plan::{Subject, TrialPlan};

use super::search::{Trials, count, dot_of, each_search, effort, trial_counts, without_pass};
use super::{Course, Filled, Measure, Paper, Task};
use crate::archive::Step;
use crate::missing::Missing;
use crate::place::cores_in_words;
use crate::plan::{DutPlan, Family, Plan};
use crate::point::{Loop, Point};
use crate::recorded::Recorded;
use crate::report::Run;
use crate::report::chart::{Dot, Figure, Series, Shape, number};
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::search::SearchCourse;
use crate::servers::Auth;
use crate::wording;

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
    pub also: Vec<Also>,
}

/// A further self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Also {
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

/// Result of a self-test.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SelfTestResult {
    /// Name of the server that played AuthDNS.
    pub server: String,
    /// IP version of the queries; absent without a trial.
    pub family: Option<Family>,
    /// Number of CPUs that it was confined to; absent: not confined.
    pub cores: Option<usize>,
    /// True if it validates the tester for the plan's trials.
    pub vouches: bool,
    /// The smallest of the highest rates that passed; absent if a search found no passing rate.
    pub passed: Option<Qps>,
    /// Validated rate for tests at 0 % AAAA and 0 % cached.
    pub allows: Option<Qps>,
    /// Statistics of all searches, queries per second.
    pub figures: Figures,
    /// Result of each search, in order; rates in queries per second.
    pub found: Vec<Found>,
    /// True if all repetitions are done.
    pub complete: bool,
    /// Reason for a missing result.
    pub missing: Option<Missing>,
    /// Numbers of trials by kind.
    pub trials: Trials,
}

/// The measurement of `[self-test]`: searches with AuthDNS in the DUT's place.
pub struct SelfTestMeasure;

impl Measure for SelfTestMeasure {
    fn title(&self) -> &'static str {
        "Self-test"
    }

    fn name(&self) -> &'static str {
        "self-test"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let (Some(test), None) = (&plan.self_test, dut) else { return Vec::new() };
        let also = |&Also { server, family, cores }: &Also| {
            Point::SelfTest(Loop { server, family, cores, named: None })
        };
        // One for each AuthDNS that DUTs query: each of them forms another tester together with the
        // Measurer.
        let asked = plan.auths_of_duts().into_iter().filter_map(|auth| plan.self_test_with(auth));
        plan.own_self_test().into_iter().chain(asked).chain(test.also.iter().map(also)).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let Some(test) = &plan.self_test else { return Ok(()) };
        if test.min > test.max || test.resolution.0 == 0 || test.repeat == 0 {
            return Err(
                "[self-test]: min must not be above max, and resolution and repeat must be at least 1"
                    .into(),
            );
        }
        let most = plan.cpus.auth.len();
        let hosts = plan.ssh.as_ref().map_or(1, |ssh| ssh.auth_hosts().len());
        if (test.repeat as usize) < hosts {
            return Err(format!(
                "[self-test] repeat: {} for {hosts} AuthDNS; each search queries one of them, and the smallest result counts",
                counted(test.repeat.into(), "search", "searches")
            ));
        }
        let over_ssh = plan.ssh.as_ref().map(|ssh| ssh.self_test_addresses()[0].is_ipv6());
        let other = |also: &Also| {
            also.family
                .is_some_and(|family| over_ssh.is_some_and(|v6| v6 != (family == Family::Ipv6)))
        };
        if test.also.iter().any(other) {
            return Err(
                "[[self-test.also]] family: [ssh.addresses] has no such address for self-tests"
                    .into(),
            );
        }
        match test
            .also
            .iter()
            .find_map(|also| also.cores.filter(|&cores| cores == 0 || cores > most))
        {
            Some(cores) => {
                Err(format!("[[self-test.also]] cores: {cores} of the {most} CPUs in [cpus] auth"))
            }
            None => Ok(()),
        }
    }

    fn effort(&self, plan: &Plan, point: &Point) -> (u32, Duration) {
        set_of(plan, point)
            .map_or((0, Duration::ZERO), |set| effort(&set, plan.takes(plan.trial.duration), None))
    }

    fn course(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Course> {
        set_of(recorded.plan, point).map(|set| Course::Searches(SearchCourse::bisection(set)))
    }

    fn starts_anew(&self) -> bool {
        true
    }

    fn task(&self, plan: &Plan, _: &Step, mut base: TrialPlan) -> Task {
        base.timeout = selftest::timeout(base.timeout);
        base.aaaa_share = Share::ONE;
        let delta = plan.self_test.as_ref().map_or(MIN_DELTA, |test| test.delta);
        base.subject = Subject::Tester { factor: factor(Share::ZERO, Share::ZERO, delta), delta };
        Task::Trial(Box::new(base))
    }

    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let walk = recorded.walk(point);
        walk.is_some_and(|walk| {
            walk.course
                .searches()
                .is_some_and(|set| set.found().iter().all(|f| f.highest.is_some()))
        })
    }

    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
        let test = result(recorded, point)?;
        test.missing.or(test.passed.is_none().then_some(Missing::NoPassingRate))
    }

    fn fills(&self, plan: &Plan, point: &Point) -> Vec<Filled> {
        let Point::SelfTest(at) = point else { return Vec::new() };
        vec![Paper::Benchmarking.has(match (plan.auth_at(point).cores, at.family) {
            (Some(1), _) => "Table IV",
            (_, Some(Family::Ipv6)) => "Table II",
            _ => "Table I",
        })]
    }

    fn tables(&self, _: &Run) -> Vec<Table> {
        Vec::new()
    }

    fn comparisons(&self, runs: &[Run]) -> Vec<Table> {
        let all = || runs.iter().flat_map(|run| &run.results.self_tests);
        let mut kinds: Vec<(String, Option<Family>, Option<usize>)> = Vec::new();
        for test in all() {
            let kind = (test.server.clone(), test.family, test.cores);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.iter().map(|kind| table(runs, kind)).collect()
    }

    fn figures(&self, runs: &[Run]) -> Vec<Figure> {
        figure(runs).into_iter().collect()
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let points = run.results.plan.points();
        let tests = points.into_iter().filter(|point| matches!(point, Point::SelfTest(_)));
        tests
            .zip(&run.results.self_tests)
            .flat_map(|(point, result)| rows(&point, result))
            .collect()
    }
}

fn rows(point: &Point, result: &SelfTestResult) -> Vec<Row> {
    let mut rows = vec![Row {
        mark: match &result.missing {
            Some(why) => why.to_string(),
            None => wording::objection(&result.figures),
        },
        ..Row::of_figures(point.clone(), "rate", "queries/s", &result.figures)
    }];
    for (quantity, rate) in [("passed", result.passed), ("allows", result.allows)] {
        let rate = rate.map(|rate| rate.0 as f64);
        rows.push(Row::of_value(point.clone(), quantity, "queries/s", result.figures.n, rate));
    }
    rows.extend(each_search(point, &result.found));
    rows.push(without_pass(point, &result.figures));
    rows.extend(trial_counts(point, &result.trials));
    rows
}

/// Returns the title of a self-test.
fn title(server: &str, family: Option<Family>, cores: Option<usize>) -> String {
    let family = family.map_or(String::new(), |family| format!(" over {family}"));
    let cores = match cores {
        None => String::new(),
        Some(1) => ", single CPU core".into(),
        Some(cores) => format!(", {cores} CPU cores"),
    };
    format!("Self-test: authoritative DNS performance of {server}{family}{cores}")
}

/// Rows as in the papers, a column for each run.
fn table(runs: &[Run], (server, family, cores): &(String, Option<Family>, Option<usize>)) -> Table {
    let note = "Queries/s of the tester against that server alone. The smallest result is the tester's own limit.";
    let mut table = Table::new(&title(server, *family, *cores), note, &["Run"]);
    table.rows = wording::STATISTICS.map(|name| vec![name.to_owned()]).into();
    for run in runs {
        let is_it = |test: &&SelfTestResult| {
            (&test.server, &test.family, &test.cores) == (server, family, cores)
        };
        table.header.push(run.name.clone());
        let test = run.results.self_tests.iter().find(is_it);
        let cells = match test {
            Some(SelfTestResult { missing: None, figures, .. }) => wording::statistics(figures),
            Some(SelfTestResult { missing: Some(why), .. }) => {
                std::array::from_fn(|_| why.to_string())
            }
            None => std::array::from_fn(|_| "not in this run's plan".into()),
        };
        for (row, cell) in table.rows.iter_mut().zip(cells) {
            row.push(cell);
        }
    }
    table
}

fn figure(runs: &[Run]) -> Option<Figure> {
    let mut groups: Vec<String> = Vec::new();
    let mut series: Vec<Series> =
        runs.iter().map(|run| Series { name: run.name.clone(), dots: Vec::new() }).collect();
    for (r, run) in runs.iter().enumerate() {
        for test in &run.results.self_tests {
            if test.missing.is_some() {
                continue;
            }
            let family = test.family.map_or(String::new(), |family| format!(" {family}"));
            let cores =
                test.cores.map_or(String::new(), |cores| format!(", {}", cores_in_words(cores)));
            let group = format!("{}{family}{cores}", test.server);
            let at = groups.iter().position(|g| *g == group).unwrap_or_else(|| {
                groups.push(group);
                groups.len() - 1
            });
            let dot = dot_of(at as f64, &test.figures, &test.found);
            let range = (test.figures.min.unwrap_or(0.0), test.figures.max.unwrap_or(0.0));
            series[r].dots.push(Dot { range, ..dot });
        }
    }
    (!groups.is_empty()).then(|| Figure {
        file: "self-test".into(),
        title: "Self-test: the tester against authoritative servers alone".into(),
        x_label: String::new(),
        y_label: "queries/s".into(),
        shape: Shape::Bars { groups, series },
    })
}

/// Returns the searches of a self-test.
fn set_of(plan: &Plan, point: &Point) -> Option<SetPlan> {
    let (Some(t), Point::SelfTest(_)) = (&plan.self_test, point) else { return None };
    let range = SearchRange {
        min: t.min,
        max: t.max,
        resolution: t.resolution,
        invalid_retries: plan.search.invalid_retries,
    };
    Some(SetPlan { range, repeat: t.repeat, probes: false })
}

/// Returns the result of a self-test.
pub(crate) fn result(recorded: &Recorded<'_>, point: &Point) -> Option<SelfTestResult> {
    let (Point::SelfTest(at), Some(test)) = (point, &recorded.plan.self_test) else { return None };
    let walk = recorded.walk(point)?;
    let found = walk.course.searches()?.found();
    let passed = smallest_pass(&found);
    let is_own = recorded.plan.own_self_test().as_ref() == Some(point);
    let figures = Figures::of(&found, 1.0, test.resolution);
    let asked = walk.trials.first().and_then(|m| m.at_rate()?.server.parse::<SocketAddr>().ok());
    let missing = match (figures.n, walk.trials.is_empty(), found.is_empty()) {
        (0, true, _) => Some(Missing::not_begun(recorded, point)),
        (0, _, true) => Some(Missing::Unfinished),
        (0, ..) => Some(Missing::Spoiled),
        _ => None,
    };
    Some(SelfTestResult {
        server: at.named.clone().unwrap_or_else(|| at.server.name().into()),
        family: asked.map(|a| if a.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }).or(at.family),
        cores: Some(recorded.plan.auth_cpus(point).len()).filter(|&cores| cores > 0),
        vouches: at.named.is_some() || is_own,
        passed,
        allows: passed.map(|p| allowed_rate(p, Share::ZERO, Share::ZERO, test.delta)),
        figures,
        found,
        complete: walk.due().is_none(),
        missing,
        trials: count(walk.trials.iter().copied()),
    })
}

/// Returns the result of the self-test as text.
pub(crate) fn in_words(test: &SelfTestResult) -> String {
    let rate = |rate: Qps| number(rate.0 as f64);
    match (&test.missing, test.passed, test.allows) {
        (Some(why), ..) => why.to_string(),
        (None, Some(passed), Some(allows)) => format!(
            "passed at up to {} queries/s, which validates tests up to {} in the worst case",
            rate(passed),
            rate(allows)
        ),
        _ => "no rate passed; results cannot be validated".into(),
    }
}
