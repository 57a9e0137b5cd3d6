//! Correctness of a DUT's answers: the checks of `dns64bench conform`, by RFC section. The rate of
//! a server means little if its answers are wrong.
//!
//! ```text
//! AuthDNS with the names of checks ─► trust anchors ─► the DUT's configuration, in each Variant
//!      └─► status socket ─► dns64bench conform ─► Report ─► journal ─┐
//!                                    scoreboard of all DUTs ◄── one Report for each DUT
//! ```
//!
//! With the usual configuration all checks are executed; with each other variant those that depend
//! on the difference. Each variant is a point, so that an interrupted run resumes at the next one.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conform::check::Level;
use conform::outcome::{Count, Report};
use conform::show;
use method::set::Repeats;
use method::units::Qps;
use method::verdict::Verdict;
use serde::{Deserialize, Serialize};
use tester::measurer::expect::Prefix;
use tester::measurer::plan::TrialPlan;

use super::{Course, Filled, Measure, Task};
use crate::archive::{DutEnd, Measured, Step};
use crate::missing::Missing;
use crate::place::Place;
use crate::plan::{CHECKS, DutPlan, Plan};
use crate::point::{AtPlace, Cores, Point};
use crate::recorded::Recorded;
use crate::report::csv::Row;
use crate::report::table::Table;
use crate::report::{Run, chart::Figure, legend};
use crate::results::DutResult;
use crate::servers::{CHECKED_ZONE, Variant};

/// Placeholder for the rate, which checks do not have.
const NO_RATE: Qps = Qps(1);
/// Assumed duration of all checks of a server; many of them wait for a timeout.
const ASSUMED: Duration = Duration::from_secs(90);
/// Assumed duration of the checks of a variant, mostly the start of the server.
const ASSUMED_OF_VARIANT: Duration = Duration::from_secs(5);

/// Settings of the conformance checks.
#[derive(Clone, Debug, PartialEq)]
pub struct ConformPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Name of the DUT in the plan.
    pub name: String,
    /// The configured DNS64 prefixes.
    pub prefixes: Vec<Prefix>,
    /// True if configured to validate; `None` if unknown, in which case it is detected.
    pub validates: Option<bool>,
    /// The configured range of excluded IPv6 addresses, in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
    /// Ids of the checks to execute; empty: all.
    pub only: Vec<&'static str>,
}

/// Access of the tester to the queries that AuthDNS received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarView {
    /// AuthDNS's status socket: a path, or `ssh:HOST:PATH`.
    pub status: String,
    /// Configuration file for ssh, if it is not the user's.
    pub ssh_config: Option<PathBuf>,
}

impl ConformPlan {
    /// Returns the arguments of `dns64bench conform`. Without a view, checks that depend on the
    /// DUT's upstream queries are skipped.
    pub fn arguments(&self, view: Option<FarView>) -> Vec<String> {
        // Option and value in one argument, because a name may begin with a hyphen.
        let mut words = vec!["conform".to_owned()];
        words.push(format!("--server={}", self.server));
        words.push(format!("--name={}", self.name));
        words.extend(self.prefixes.iter().map(|prefix| format!("--expect-prefix={prefix}")));
        words.push(format!("--zone={CHECKED_ZONE}"));
        words.extend(self.validates.map(|validates| format!("--validates={validates}")));
        words.extend(self.excluded.map(|range| format!("--excludes={range}")));
        if let Some(FarView { status, ssh_config }) = view {
            words.push(format!("--auth-status={status}"));
            words.extend(ssh_config.map(|file| format!("--ssh-config={}", file.display())));
        }
        if !self.only.is_empty() {
            words.push(format!("--only={}", self.only.join(",")));
        }
        words.extend(["--forwards-all", "--json", "--quiet"].map(str::to_owned));
        words
    }
}

/// Result of the checks of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConformTrial {
    /// Start of the checks, seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Duration of the checks, in seconds.
    #[serde(alias = "seconds")]
    pub duration_s: f64,
    /// Result of each check; absent if none could be executed.
    pub report: Option<Report>,
    /// Reason for a missing report; empty if there is one.
    pub why: String,
}

impl ConformTrial {
    /// Returns checks that began at `begun` and completed.
    pub fn of(begun: SystemTime, report: Report) -> ConformTrial {
        let started_unix_s = unix_s(begun);
        let duration_s = report.duration_s;
        ConformTrial { started_unix_s, duration_s, report: Some(report), why: String::new() }
    }

    /// Returns checks that began at `begun` and end now without a report, because of `why`.
    pub(crate) fn without_report(begun: SystemTime, why: String) -> ConformTrial {
        let duration_s = begun.elapsed().unwrap_or_default().as_secs_f64();
        ConformTrial { started_unix_s: unix_s(begun), duration_s, report: None, why }
    }

    /// Passed if no check of level MUST failed. The tester cannot invalidate checks.
    pub fn verdict(&self) -> Verdict {
        match &self.report {
            Some(report) if !report.fails_a_must() => Verdict::Passed,
            _ => Verdict::Failed,
        }
    }
}

fn unix_s(moment: SystemTime) -> f64 {
    moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Numbers of checks by level and outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Counts {
    /// Requirements with MUST (BCP 14).
    pub must: Count,
    /// Requirements with SHOULD, and statements of RFCs without a keyword.
    pub should: Count,
    /// Requirements with MAY. A failed one is an unsupported option, not a fault.
    pub may: Count,
    /// Advice that is not in any RFC.
    pub hardening: Count,
}

impl Counts {
    fn of(report: &Report) -> Counts {
        Counts {
            must: report.count(&[Level::Must]),
            should: report.count(&[Level::Should, Level::Says]),
            may: report.count(&[Level::May]),
            hardening: report.count(&[Level::Hardening]),
        }
    }

    /// Returns the levels with their names in `results.csv` and as text.
    fn by_level(&self) -> [(&'static str, &'static str, Count); 4] {
        [
            ("must", "MUST", self.must),
            ("should", "SHOULD, RFC says", self.should),
            ("may", "MAY", self.may),
            ("hardening", "hardening", self.hardening),
        ]
    }
}

/// Correctness of a DUT's answers.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ConformResult {
    /// CPU placement of the DUT.
    #[serde(flatten)]
    pub place: Cores,
    /// True if the checks are done.
    pub complete: bool,
    /// Reason for missing verdicts.
    pub missing: Option<Missing>,
    /// The way in which the DUT ended during the checks, if it did.
    pub ended: Option<DutEnd>,
    /// The configuration in which it ended, if not the usual one.
    pub ended_in: Option<String>,
    /// CPU placement of the DUT; absent if it was not observed.
    #[serde(rename = "place")]
    pub seen: Option<Place>,
    /// Duration of the checks with all variants, in seconds; absent if none were executed.
    pub duration_s: Option<f64>,
    /// Numbers of checks by outcome.
    pub counts: Option<Counts>,
    /// Result of each check, with the server's version.
    pub report: Option<Report>,
}

impl ConformResult {
    /// Merges the result of a further variant. A server without a report for its usual
    /// configuration has none: the few checks of a variant are not enough.
    fn with(self, variant: &Variant, found: ConformResult) -> ConformResult {
        let mut report = self.report;
        if let (Some(report), Some(further)) = (&mut report, found.report) {
            report.add(&variant.to_string(), further);
        }
        // A variant that is still to come is indicated by `complete`.
        let missing = found.missing.and_then(|missing| match missing {
            Missing::NotChecked { why } => {
                Some(Missing::NotChecked { why: format!("{variant}: {why}") })
            }
            _ => None,
        });
        let ended_in = match (&self.ended, &found.ended) {
            (None, Some(_)) => Some(variant.to_string()),
            _ => self.ended_in,
        };
        ConformResult {
            complete: self.complete && found.complete,
            missing: self.missing.or(missing),
            ended: self.ended.or(found.ended),
            ended_in,
            duration_s: self.duration_s.map(|time| time + found.duration_s.unwrap_or_default()),
            counts: report.as_ref().map(Counts::of),
            report,
            ..self
        }
    }

    /// Returns a label if the verdicts are not those of a server that ran to the end.
    fn state(&self) -> String {
        let state = match (&self.ended, &self.missing) {
            (Some(DutEnd::Died(how)), _) => format!("DIED: {how}"),
            (Some(DutEnd::Hung), _) => "HUNG".into(),
            (None, Some(why)) => why.to_string(),
            (None, None) => String::new(),
        };
        match &self.ended_in {
            Some(variant) => format!("{state} ({variant})"),
            None => state,
        }
    }

    /// Returns the sort key of a server: missing verdicts last, then the numbers of failures, MUST
    /// first.
    fn faults(&self) -> (bool, usize, usize, Reverse<usize>) {
        let failed = |of: fn(&Counts) -> usize| self.counts.as_ref().map_or(0, of);
        (
            self.counts.is_none(),
            failed(|counts| counts.must.failed),
            failed(|counts| counts.should.failed),
            Reverse(failed(|counts| counts.must.passed + counts.should.passed)),
        )
    }
}

/// The measurement of `[measure] conform`.
pub struct ConformMeasure;

impl Measure for ConformMeasure {
    fn title(&self) -> &'static str {
        "Conformance"
    }

    fn name(&self) -> &'static str {
        "conform"
    }

    fn points(&self, plan: &Plan, dut: Option<&DutPlan>) -> Vec<Point> {
        let Some(dut) = dut.filter(|dut| plan.keys_of(dut).conform) else { return Vec::new() };
        // Correct answers do not depend on the number of cores.
        let place = Cores::first(plan.cores_of(dut)[0]);
        // The operator's own configuration file is not changed.
        let variants = match dut.config {
            Some(_) => vec![Variant::Usual],
            None => dut.driver.variants(plan.trial.prefix),
        };
        let at = |variant| AtPlace { dut: dut.name().into(), place: place.clone(), variant };
        variants.into_iter().map(|variant| Point::Conform(at(variant))).collect()
    }

    fn check(&self, plan: &Plan) -> Result<(), String> {
        let is_checked = plan.duts.iter().any(|dut| plan.keys_of(dut).conform);
        if is_checked && plan.auths().any(|auth| auth.name() == CHECKS) {
            return Err(format!(
                "[measure] conform: the AuthDNS name {CHECKS} is reserved for the checks; use another name"
            ));
        }
        Ok(())
    }

    fn effort(&self, _: &Plan, point: &Point) -> (u32, Duration) {
        let is_usual = point.variant().is_none_or(Variant::is_usual);
        (1, if is_usual { ASSUMED } else { ASSUMED_OF_VARIANT })
    }

    fn course(&self, _: &Recorded<'_>, _: &Point) -> Option<Course> {
        Some(Course::Repeats(Repeats::new(NO_RATE, 1, 0)))
    }

    fn starts_anew(&self) -> bool {
        true
    }

    fn repeats_deaths(&self) -> bool {
        false
    }

    fn task(&self, plan: &Plan, step: &Step, base: TrialPlan) -> Task {
        let name = step.point.dut().unwrap_or_default();
        // The contents of the operator's own configuration file are unknown.
        let ours = plan.dut(name).filter(|dut| dut.config.is_none());
        let can_validate = ours.and_then(|dut| dut.driver.validates());
        let usual = Variant::Usual;
        let variant = step.point.variant().unwrap_or(&usual);
        let depends = |aspect| {
            conform::checks::all().filter(move |check| check.depends_on(aspect)).map(|c| c.id)
        };
        Task::Conform(ConformPlan {
            server: base.server,
            name: name.to_owned(),
            prefixes: variant.prefixes(plan.trial.prefix),
            validates: can_validate.map(|can| can && *variant != Variant::NoValidation),
            excluded: variant.excluded(),
            only: variant.aspect().map(|aspect| depends(aspect).collect()).unwrap_or_default(),
        })
    }

    /// A DUT that ended during the checks is a result.
    fn has_result(&self, recorded: &Recorded<'_>, point: &Point) -> bool {
        let has =
            |m: &Measured| m.dut_end.is_some() || m.checked().is_some_and(|t| t.report.is_some());
        recorded.walk(point).is_some_and(|walk| walk.trials.into_iter().any(has))
    }

    fn missing(&self, recorded: &Recorded<'_>, point: &Point) -> Option<Missing> {
        of_variant(recorded, point)?.missing
    }

    fn fills(&self, _: &Plan, _: &Point) -> Vec<Filled> {
        Vec::new()
    }

    fn tables(&self, run: &Run) -> Vec<Table> {
        let all = of_runs(std::slice::from_ref(run));
        if all.is_empty() { Vec::new() } else { vec![table(&all)] }
    }

    fn figures(&self, _: &[Run]) -> Vec<Figure> {
        Vec::new()
    }

    /// Returns the scoreboard of all DUTs, as a part of the section.
    fn html(&self, runs: &[Run]) -> String {
        match reports(runs).as_slice() {
            [] => String::new(),
            // Text does not contain `<` there.
            all => show::html::scoreboard(all).replace("<h2>", "<h3>").replace("</h2>", "</h3>"),
        }
    }

    fn markdown(&self, runs: &[Run]) -> String {
        match reports(runs).as_slice() {
            [] => String::new(),
            all => {
                format!("## Conformance, check by check\n\n{}\n", show::markdown::scoreboard(all))
            }
        }
    }

    fn rows(&self, run: &Run) -> Vec<Row> {
        let duts = run.results.duts.iter();
        duts.filter_map(|dut| Some(rows(dut, dut.conform.as_ref()?))).flatten().collect()
    }
}

/// Returns the checked DUTs of all runs with their names, the best one first.
fn of_runs(runs: &[Run]) -> Vec<(String, &ConformResult)> {
    let each = runs.iter().flat_map(|run| run.results.duts.iter().map(move |dut| (run, dut)));
    let mut all: Vec<_> = each
        .filter_map(|(run, dut)| {
            Some((legend(run, &dut.name, runs.len() > 1), dut.conform.as_ref()?))
        })
        .collect();
    all.sort_by_key(|(_, result)| result.faults());
    all
}

/// Returns the reports of all runs, for the scoreboard.
fn reports(runs: &[Run]) -> Vec<Report> {
    let named = |(name, result): (String, &ConformResult)| {
        Some(Report { server: name, ..result.report.clone()? })
    };
    of_runs(runs).into_iter().filter_map(named).collect()
}

/// One row for each DUT.
fn table(all: &[(String, &ConformResult)]) -> Table {
    let note = "Numbers of checks: passed / failed / not offered / not tried. It is no fault if a server does not \
                support an optional feature (MAY). Checks that were not tried do not count as passed.";
    let mut table = Table::new("Conformance by requirement level", note, &["DUT"]);
    table
        .header
        .extend(["MUST", "SHOULD, RFC says", "MAY", "hardening", "State"].map(str::to_owned));
    for (name, result) in all {
        let cell = |(_, _, count): (_, _, Count)| {
            let Count { passed, failed, not_offered, not_tried } = count;
            format!("{passed} / {failed} / {not_offered} / {not_tried}")
        };
        let cells = match &result.counts {
            Some(counts) => counts.by_level().map(cell),
            None => std::array::from_fn(|_| "–".to_owned()),
        };
        let first = std::iter::once(name.clone());
        table.rows.push(first.chain(cells).chain([result.state()]).collect());
    }
    table
}

fn rows(dut: &DutResult, result: &ConformResult) -> Vec<Row> {
    let point = Point::Conform(AtPlace {
        dut: dut.name.clone(),
        place: result.place.clone(),
        variant: Variant::Usual,
    });
    let row = |quantity: &str, unit, value: Option<f64>| Row {
        ran_on: result.seen.clone(),
        mark: result.state(),
        ..Row::of_value(point.clone(), quantity, unit, usize::from(value.is_some()), value)
    };
    let mut rows = vec![row("took", "s", result.duration_s)];
    for (level, _, count) in result.counts.iter().flat_map(Counts::by_level) {
        let Count { passed, failed, not_offered, not_tried } = count;
        for (verdict, number) in [
            ("passed", passed),
            ("failed", failed),
            ("not_offered", not_offered),
            ("not_tried", not_tried),
        ] {
            rows.push(row(&format!("{level}_{verdict}"), "checks", Some(number as f64)));
        }
    }
    rows
}

/// Returns the caveat about a server with wrong answers, for the summary.
pub(crate) fn caveat(dut: &DutResult) -> Option<String> {
    let result = dut.conform.as_ref()?;
    if let Some(Missing::NotChecked { why }) = &result.missing {
        return Some(format!("{}: its answers could not be checked: {why}", dut.name));
    }
    let failed = result.counts.map_or(0, |counts| counts.must.failed);
    match (&result.ended, failed) {
        (Some(end), _) => {
            let setting =
                result.ended_in.as_ref().map_or(String::new(), |variant| format!(" {variant}"));
            Some(format!("{}: {end} during the conformance checks{setting}.", dut.name))
        }
        (None, 0) => None,
        (None, 1) => Some(format!("{} fails a check of level MUST, see Conformance.", dut.name)),
        (None, n) => Some(format!("{} fails {n} checks of level MUST, see Conformance.", dut.name)),
    }
}

/// Returns the result of a DUT's checks, with all its variants.
pub(crate) fn result(
    recorded: &Recorded<'_>,
    dut: &str,
    points: &[Point],
) -> Option<ConformResult> {
    let of_dut = points.iter().filter(|point| point.dut() == Some(dut));
    let mut each =
        of_dut.filter_map(|point| Some((point.variant()?, of_variant(recorded, point)?)));
    let (_, usual) = each.next()?;
    Some(each.fold(usual, |all, (variant, found)| all.with(variant, found)))
}

/// Returns the result with one variant.
fn of_variant(recorded: &Recorded<'_>, point: &Point) -> Option<ConformResult> {
    let Point::Conform(AtPlace { dut, place, .. }) = point else { return None };
    let walk = recorded.walk(point)?;
    let measured = walk.trials.first();
    let trial = measured.and_then(|m| m.checked());
    let ended = measured.and_then(|m| m.dut_end.clone());
    let report = trial
        .and_then(|trial| trial.report.clone())
        .map(|report| Report { version: recorded.version(dut).unwrap_or_default(), ..report });
    let missing = match (trial, &report, &ended) {
        (None, ..) => Some(Missing::not_begun(recorded, point)),
        (_, Some(_), _) => None,
        (_, None, Some(end)) => Some(Missing::Ended(end.clone())),
        (Some(trial), None, None) => Some(Missing::NotChecked { why: trial.why.clone() }),
    };
    Some(ConformResult {
        place: place.clone(),
        complete: walk.due().is_none(),
        missing,
        ended,
        ended_in: None,
        seen: super::search::place_of(walk.trials.iter().copied()),
        duration_s: trial.map(|trial| trial.duration_s),
        counts: report.as_ref().map(Counts::of),
        report,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_dut_is_checked_once_if_the_plan_asks_for_it() {
        let text = "name = 'x'\n[measure]\nconform = true\ncores = [2, 1]\n[[dut]]\ndriver = 'unbound'\n\
                    [[dut]]\ndriver = 'bind'\nmeasure = { conform = false }\n";
        let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
        let points: Vec<String> =
            plan.points().iter().filter(|p| p.is_checked()).map(ToString::to_string).collect();
        assert_eq!(
            (points[0].as_str(), points[1].as_str()),
            ("Unbound, 2 cores, conform", "Unbound, 2 cores, conform with the prefix 3fff:64::/32")
        );
        assert_eq!(points.len(), 8, "six lengths, and without validation: {points:?}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), "num-threads: {threads}").unwrap();
        let own = text.replacen("'unbound'", "'unbound'\nconfig = 'own.conf'", 1);
        let own = Plan::parse(&own, &folder.path().join("p.toml")).unwrap();
        let checked = own.points().iter().filter(|point| point.is_checked()).count();
        assert_eq!(checked, 1, "an operator's file has no variants");
        let clash = format!("{text}[[authdns]]\ndriver = 'nsd'\nname = 'conform'\n");
        let error = Plan::parse(&clash, Path::new("p.toml")).unwrap_err().to_string();
        assert!(error.contains("use another name"), "{error}");
    }

    #[test]
    fn the_tester_gets_the_path_of_the_status_socket() {
        let plan = ConformPlan {
            server: "[2001:2::1]:53".parse().unwrap(),
            name: "-x".into(),
            prefixes: ["2001:db8::/64", "64:ff9b::/96"].map(|text| text.parse().unwrap()).into(),
            validates: Some(false),
            excluded: Some("3fff:bad::/32"),
            only: vec!["a-1", "b"],
        };
        let view = FarView {
            status: "ssh:me@auth:/run/auth-1".into(),
            ssh_config: Some("/etc/own".into()),
        };
        let words = plan.arguments(Some(view)).join(" ");
        assert_eq!(
            words,
            "conform --server=[2001:2::1]:53 --name=-x --expect-prefix=2001:db8::/64 --expect-prefix=64:ff9b::/96 \
             --zone=conform.example --validates=false --excludes=3fff:bad::/32 --auth-status=ssh:me@auth:/run/auth-1 \
             --ssh-config=/etc/own \
             --only=a-1,b --forwards-all --json --quiet"
        );
        assert!(!plan.arguments(None).join(" ").contains("--auth-status"));
    }
}
