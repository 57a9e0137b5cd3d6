//! Comparison of counts, and the table that shows the comparison.

use std::process::ExitCode;

use super::baseline::Setting;
use super::count::{Count, Paths};

/// Smallest growth that is an error, in percent.
const LIMIT_PERCENT: f64 = 1.0;
/// Smallest growth that is an error, in standard deviations of the old count.
const LIMIT_DEVIATIONS: f64 = 4.0;

/// Source of the old counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    File,
    /// The parent commit, counted on this machine.
    Parent,
}

/// Selects the source of the old counts. If the user specified other programs, the source is always the file, because
/// the user may want to compare profiles or compilers.
pub(super) fn source(kept: &Setting, here: &Setting, is_other_build: bool) -> Source {
    if kept == here || is_other_build { Source::File } else { Source::Parent }
}

/// Comparison of one path.
#[derive(Debug, PartialEq)]
pub(super) struct Row<'a> {
    path: &'a str,
    old: Option<u64>,
    new: Option<u64>,
    /// Largest change that is still treated as unchanged, in percent.
    limit_percent: f64,
    finding: Finding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// The count has grown by more than the limit.
    Grown,
    /// The count has fallen by more than the limit.
    Fallen,
    Unchanged,
    /// There is no old count.
    New,
    /// There is no new count.
    NotCounted,
}

/// Compares new counts with old ones, path by path.
pub(super) fn decide<'a>(old: &'a Paths, new: &'a Paths) -> Vec<Row<'a>> {
    let added = new.keys().filter(|path| !old.contains_key(*path));
    old.keys().chain(added).map(|path| row(path, old.get(path), new.get(path))).collect()
}

fn row<'a>(path: &'a str, old: Option<&Count>, new: Option<&Count>) -> Row<'a> {
    let scatter = old.map_or(0.0, |old| old.scatter_percent);
    let limit_percent = LIMIT_PERCENT.max(LIMIT_DEVIATIONS * scatter);
    let [old, new] = [old, new].map(|count| count.map(|count| count.instructions));
    let finding = match (old, new) {
        (None, _) => Finding::New,
        (_, None) => Finding::NotCounted,
        (Some(old), Some(new)) => match change_percent(old, new) {
            change if change > limit_percent => Finding::Grown,
            change if change < -limit_percent => Finding::Fallen,
            _ => Finding::Unchanged,
        },
    };
    Row { path, old, new, limit_percent, finding }
}

fn change_percent(old: u64, new: u64) -> f64 {
    (new as f64 - old as f64) / old as f64 * 100.0
}

/// Returns the exit status, which is 1 if a count has grown or is missing.
pub(super) fn status(rows: &[Row<'_>]) -> ExitCode {
    if rows.iter().any(Row::is_failure) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

impl Row<'_> {
    fn is_failure(&self) -> bool {
        matches!(self.finding, Finding::Grown | Finding::NotCounted)
    }

    fn text(&self) -> String {
        let number = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let change = self.old.zip(self.new).map(|(old, new)| change_percent(old, new));
        let change = change.map_or_else(|| "-".to_owned(), |change| format!("{change:+.2} %"));
        let finding = match self.finding {
            Finding::Grown => "GROWN",
            Finding::Fallen => "fallen",
            Finding::Unchanged => "",
            Finding::New => "new",
            Finding::NotCounted => "NOT COUNTED",
        };
        let (old, new) = (number(self.old), number(self.new));
        let text = format!(
            "{:<20} {old:>8} {new:>8} {change:>10} {:>6.2} %  {finding}",
            self.path, self.limit_percent
        );
        text.trim_end().to_owned()
    }
}

/// Prints the comparison, and the next step if there is one.
pub(super) fn print(rows: &[Row<'_>]) {
    println!(
        "{:<20} {:>8} {:>8} {:>10} {:>8}",
        "instructions/query", "old", "new", "change", "limit"
    );
    rows.iter().for_each(|row| println!("{}", row.text()));
    hints(rows).iter().for_each(|hint| println!("{hint}"));
}

fn hints(rows: &[Row<'_>]) -> Vec<&'static str> {
    let has = |finding| rows.iter().any(|row| row.finding == finding);
    let grown = "If the growth is intended, run `cargo xtask bench instructions --bless` and give the \
                 reason in the commit's body.";
    let lower = "`cargo xtask bench instructions --bless` records the new counts.";
    let hints = [(has(Finding::Grown), grown), (has(Finding::Fallen) || has(Finding::New), lower)];
    hints.into_iter().filter(|(applies, _)| *applies).map(|(_, hint)| hint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(counts: &[(&str, u64, f64)]) -> Paths {
        let count = |&(path, instructions, scatter_percent): &(&str, u64, f64)| {
            (path.to_owned(), Count { instructions, scatter_percent })
        };
        counts.iter().map(count).collect()
    }

    #[test]
    fn growth_above_the_limit_fails() {
        // Old count, its scatter in percent, new count, finding.
        let cases = [
            (10_000, 0.0, 10_000, Finding::Unchanged),
            (10_000, 0.0, 10_100, Finding::Unchanged),
            (10_000, 0.0, 10_101, Finding::Grown),
            (10_000, 0.25, 10_101, Finding::Grown),
            (10_000, 0.5, 10_200, Finding::Unchanged),
            (10_000, 0.5, 10_201, Finding::Grown),
            (10_000, 0.0, 9_900, Finding::Unchanged),
            (10_000, 0.0, 9_899, Finding::Fallen),
            (10_000, 0.5, 9_801, Finding::Unchanged),
        ];
        for (old, scatter, new, finding) in cases {
            let (old, new) = (paths(&[("a", old, scatter)]), paths(&[("a", new, 9.0)]));
            let rows = decide(&old, &new);
            assert_eq!(rows[0].finding, finding, "{rows:?}");
            assert_eq!(rows[0].is_failure(), finding == Finding::Grown, "{rows:?}");
        }
    }

    #[test]
    fn another_tool_version_takes_the_parents_counts() {
        let here = Setting {
            profile: "release".into(),
            rustc: "rustc 1.95.0".into(),
            glibc: "glibc 2.36".into(),
            valgrind: "valgrind-3.19.0".into(),
            cpu: "x86_64, AVX2".into(),
        };
        assert_eq!(source(&here, &here, false), Source::File);
        let others = [
            Setting { profile: "release CARGO_PROFILE_RELEASE_LTO=off".into(), ..here.clone() },
            Setting { rustc: "rustc 1.96.0".into(), ..here.clone() },
            Setting { glibc: "glibc 2.41".into(), ..here.clone() },
            Setting { valgrind: "valgrind-3.24.0".into(), ..here.clone() },
            Setting { cpu: "aarch64".into(), ..here.clone() },
        ];
        for kept in others {
            assert_eq!(source(&kept, &here, false), Source::Parent, "{kept}");
            assert_eq!(source(&kept, &here, true), Source::File, "{kept}");
        }
    }

    #[test]
    fn a_path_that_was_not_counted_fails() {
        let (old, new) =
            (paths(&[("a", 1, 0.0), ("b", 2, 0.0)]), paths(&[("b", 2, 0.0), ("c", 3, 0.0)]));
        let rows = decide(&old, &new);
        let found: Vec<_> =
            rows.iter().map(|row| (row.path, row.finding, row.is_failure())).collect();
        assert_eq!(
            found,
            [
                ("a", Finding::NotCounted, true),
                ("b", Finding::Unchanged, false),
                ("c", Finding::New, false)
            ]
        );
    }

    #[test]
    fn the_table_shows_old_and_new_counts_and_hints() {
        let old = paths(&[("grown", 6_600, 0.22), ("lower", 6_600, 0.22), ("same", 100, 0.0)]);
        let new = paths(&[("grown", 6_798, 0.1), ("lower", 6_500, 0.1), ("same", 100, 0.0)]);
        let rows = decide(&old, &new);
        assert_eq!(
            rows[0].text(),
            "grown                    6600     6798    +3.00 %   1.00 %  GROWN"
        );
        assert_eq!(
            rows[1].text(),
            "lower                    6600     6500    -1.52 %   1.00 %  fallen"
        );
        assert_eq!(rows[2].text(), "same                      100      100    +0.00 %   1.00 %");
        assert!(hints(&rows[..1])[0].contains("reason in the commit's body"));
        assert!(hints(&rows[1..2])[0].contains("--bless"));
        assert!(hints(&rows[2..]).is_empty());
    }
}
