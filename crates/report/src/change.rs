//! Output formats of a comparison with a baseline: a table, Markdown for the page of a CI pipeline,
//! and JUnit XML.

use std::fmt::Write;

use hosts::text::visible;
use method::change::ChangeOutcome;
use method::precision::Ratio;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::comparison::{Comparison, Row};
use crate::format::number;
use crate::table::{Table, markdown_text};

/// Placeholder for a missing number.
const NONE: &str = "–";

/// Returns a table with the change at every measurement point.
pub(crate) fn table(comparison: &Comparison) -> Table {
    let title = format!("Change against {}", comparison.baseline);
    let note = format!(
        "Medians of the rates that passed, queries/s. Change: ratio of the medians and its 95 % interval, bootstrapped over the \
         searches. A decrease of more than {} % is a regression.",
        number(comparison.max_regression_pct)
    );
    let mut table = Table::new(
        &title,
        &note,
        &["Point", "Run", "Baseline", "Median", "Change", "Searches", "Outcome"],
    );
    for row in &comparison.rows {
        let rate = |rate: Option<f64>| rate.map_or(NONE.into(), number);
        table.rows.push(vec![
            row.point(),
            row.run.clone(),
            rate(row.baseline_median),
            rate(row.median),
            change(row),
            row.change
                .map_or(NONE.into(), |c| format!("{} against {}", c.searches, c.baseline_searches)),
            row.in_words(),
        ]);
    }
    table
}

/// Formats a change, for example `−3.1 % [−4.0, −2.2]`.
fn change(row: &Row) -> String {
    let Some(change) = &row.change else { return NONE.into() };
    // Adding 0 turns a negative zero into a positive one.
    let percent = |ratio: f64| {
        format!("{:+.1}", ((ratio - 1.0) * 1000.0).round() / 10.0 + 0.0).replace('-', "−")
    };
    let middle = change.ratio.map_or(NONE.into(), |ratio| format!("{} %", percent(ratio)));
    match change.interval {
        Ratio { from: None, to: None } => middle,
        Ratio { from, to } => {
            let [from, to] = [from, to].map(|end| end.map_or("?".into(), percent));
            format!("{middle} [{from}, {to}]")
        }
    }
}

impl Row {
    /// Returns the numbers of the row, for example
    /// `9 690 against 10 000 queries/s, −3.1 % [−4.0, −2.2]`.
    pub fn numbers(&self) -> String {
        let rate = |rate: Option<f64>| rate.map_or(NONE.into(), number);
        format!(
            "{} against {} queries/s, {}",
            rate(self.median),
            rate(self.baseline_median),
            change(self)
        )
    }
}

impl Comparison {
    /// Returns the number of measurement points for each outcome, as a sentence without a full stop.
    pub fn headline(&self) -> String {
        let count = |outcome| self.rows.iter().filter(|row| row.outcome() == outcome).count();
        let of = |outcome| count(Some(outcome));
        let mut parts = Vec::new();
        for (n, what) in [
            (of(ChangeOutcome::Regressed), "regressed"),
            (of(ChangeOutcome::Undecided), "undecided"),
            (count(None), "not comparable"),
            (of(ChangeOutcome::Improved), "improved"),
            (of(ChangeOutcome::NoRegression), "without a regression"),
        ] {
            if n > 0 {
                parts.push(format!("{n} {what}"));
            }
        }
        let what = if parts.is_empty() { "nothing to compare".into() } else { parts.join(", ") };
        format!(
            "Compared with {}, tolerated decrease {} %: {what}",
            self.baseline,
            number(self.max_regression_pct)
        )
    }

    /// Returns a summary in GitHub's Markdown, for example for `$GITHUB_STEP_SUMMARY`.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "## DNS64 benchmark\n\n{}.\n", markdown_text(&self.headline()));
        out + &table(self).markdown()
    }

    /// Returns JUnit XML with one test per measurement point. A test fails if the comparison shows a regression, and is
    /// skipped if the comparison is undecided.
    pub fn junit(&self) -> String {
        let mut report = Report::new("dns64bench");
        let mut suites: Vec<TestSuite> = Vec::new();
        for row in &self.rows {
            let name = format!("{} against {}", row.run, self.baseline);
            if suites.last().is_none_or(|suite| suite.name.as_str() != name) {
                suites.push(TestSuite::new(name));
            }
            if let Some(suite) = suites.last_mut() {
                suite.add_test_case(case(row));
            }
        }
        report.add_test_suites(suites);
        // The conversion can fail only for timestamps and properties, which the report does not
        // contain.
        visible(&report.to_string().unwrap_or_default()).into_owned()
    }
}

fn case(row: &Row) -> TestCase {
    let message = format!("{}: {}", row.in_words(), change(row));
    let mut status = match row.outcome() {
        Some(ChangeOutcome::NoRegression | ChangeOutcome::Improved) => TestCaseStatus::success(),
        Some(ChangeOutcome::Regressed) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Some(ChangeOutcome::Undecided) | None => TestCaseStatus::skipped(),
    };
    status.set_message(message.clone());
    let mut case = TestCase::new(row.point(), status);
    case.set_classname(row.conditions.dut.clone());
    case.set_system_out(message);
    case
}

#[cfg(test)]
mod tests {
    use campaign::plan::{Conditions, Cores};
    use method::change::{Change, WouldDecide};

    use crate::comparison::{Incomparable, VERSION};

    use super::*;

    fn row(outcome: Option<ChangeOutcome>) -> Row {
        let change = outcome.map(|outcome| Change {
            baseline_searches: 10,
            searches: 9,
            ratio: Some(0.969),
            interval: Ratio { from: Some(0.96), to: Some(0.978) },
            outcome,
            wanted: (outcome == ChangeOutcome::Undecided).then_some(WouldDecide::Searches(7)),
        });
        Row {
            run: "new".into(),
            conditions: Conditions::worst_case("BIND <9>", Cores::first(1)),
            baseline_median: Some(10_000.0),
            median: Some(9_690.0),
            change,
            goal: None,
            incomparable: outcome.is_none().then_some(Incomparable::NotInBaseline),
        }
    }

    fn comparison() -> Comparison {
        let outcomes = [
            ChangeOutcome::Regressed,
            ChangeOutcome::NoRegression,
            ChangeOutcome::Improved,
            ChangeOutcome::Undecided,
        ];
        let rows = outcomes.into_iter().map(Some).chain([None]).map(row).collect();
        Comparison {
            schema_version: VERSION,
            baseline: "old".into(),
            max_regression_pct: 1.0,
            rows,
        }
    }

    #[test]
    fn the_table_has_change_interval_and_outcome() {
        let table = table(&comparison());
        assert_eq!(
            table.rows[0],
            [
                "BIND <9>, 1 core, AAAA 0, cached 0, accept 1",
                "new",
                "10\u{202f}000",
                "9\u{202f}690",
                "−3.1 % [−4.0, −2.2]",
                "9 against 10",
                "regressed"
            ]
        );
        assert_eq!(table.rows[3][6], "undecided: about 7 more searches of each are needed");
        assert_eq!(table.rows[4][4..], [NONE, NONE, "not comparable: not in the baseline"]);
    }

    #[test]
    fn no_change_has_no_minus_sign() {
        let mut row = row(Some(ChangeOutcome::NoRegression));
        let change = row.change.as_mut().unwrap();
        (change.ratio, change.interval.from) = (Some(0.999_9), Some(0.99));
        assert_eq!(row.numbers().split_once(", ").unwrap().1, "+0.0 % [−1.0, −2.2]");
    }

    #[test]
    fn the_summary_begins_with_the_answer() {
        let text = comparison().markdown();
        let message = "Compared with old, tolerated decrease 1 %: 1 regressed, 1 undecided, 1 not comparable, 1 improved, 1 without a regression.";
        assert!(text.contains(message), "{text}");
        assert!(text.contains("| BIND &lt;9>, 1 core"), "{text}");
    }

    #[test]
    fn junit_fails_regressions_and_skips_undecided_rows() {
        let xml = comparison().junit();
        let suite = xml.lines().find(|line| line.contains("<testsuite ")).unwrap();
        for part in [
            "name=\"new against old\"",
            "tests=\"5\"",
            "skipped=\"2\"",
            "failures=\"1\"",
            "errors=\"0\"",
        ] {
            assert!(xml.starts_with("<?xml") && suite.contains(part), "{part} is not in {xml}");
        }
        assert_eq!(xml.matches("<failure").count(), 1, "{xml}");
        assert_eq!(xml.matches("<skipped").count(), 2, "{xml}");
        assert!(xml.contains("BIND &lt;9&gt;"), "{xml}");
    }
}
