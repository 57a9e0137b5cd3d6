//! `mutants`: would the unit tests notice if the code did something else? cargo-mutants changes a
//! function or an operator at a time and runs them.
//!
//! ```text
//! working tree ─► target/mutants/tree ─► cargo mutants, a few at a time ─► bench/mutants/GROUP.tsv
//!                                             ▲                                 │
//!                                             └──── those without an outcome ◄──┘
//! ```
//!
//! An outcome belongs to a mutant's file, line and change. What has one is not run again, so that a
//! run goes on where the last one stopped; mutants of lines that have moved since count as new
//! ones. Each of the mutants that no test noticed ("missed") needs a reason in the third column,
//! written by hand: that nothing else can be seen from it, or which other test sees it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::process::{root, target};
use crate::tools;

/// Code whose rules tests must hold: a name, the package, and its files.
struct Group {
    name: &'static str,
    package: &'static str,
    files: &'static str,
    /// Words in the names of unit tests that only those mutants get that all others miss, because
    /// they take long.
    slow: &'static [&'static str],
    /// What these tests are about: files with one of these in their path; without any, all files.
    slow_of: &'static [&'static str],
}

const GROUPS: [Group; 4] = [
    Group {
        name: "translation",
        package: "dns64",
        files: "crates/dns64/src/translation/**/*.rs",
        slow: SLOW_OF_DNS64,
        slow_of: &[],
    },
    Group {
        name: "method",
        package: "method",
        files: "crates/method/src/**/*.rs",
        slow: SLOW_OF_METHOD,
        slow_of: &["src/change", "src/mlr"],
    },
    Group {
        name: "reply-check",
        package: "tester",
        files: "crates/tester/src/measurer/expect.rs",
        slow: SLOW_OF_TESTER,
        slow_of: &[],
    },
    Group {
        name: "wire",
        package: "wire",
        files: "crates/wire/src/**/*.rs",
        slow: &[],
        slow_of: &[],
    },
];

/// Simulations of thousands of comparisons and searches: all others together take a few seconds.
const SLOW_OF_METHOD: &[&str] = &[
    "equal_servers_give_few_alarms",
    "a_slowdown_is_rarely_called_none",
    "the_last_searches_that_may_be_asked_for",
    "it_ends_and_its_bounds_are_bounds",
];

/// What waits, or counts for seconds, in other parts of dns64d: all others together take a second.
const SLOW_OF_DNS64: &[&str] = &[
    "import::",
    "r3_",
    "budget::",
    "choice::",
    "ports::tests::",
    "asking::tests::",
    "known::tests::nobody_can_fill",
    "no_name_leans_on",
    "dnstap::tests::",
    "daemon::tests::",
];
/// The same for the tester.
const SLOW_OF_TESTER: &[&str] = &[
    "measurer::ids::",
    "measurer::names::",
    "measurer::merge::",
    "parquet_has",
    "client::closed_loop::",
    "measurer::liveness::",
    "measurer::sources::",
];

/// Mutants, all of one file, that one run of cargo-mutants gets: outcomes are written after each.
const AT_ONCE: usize = 24;
/// Seconds that the unit tests of a mutant may take; those of the code as it is take a few without
/// the slow ones, and a minute and a half with them.
const SLOWEST: &str = "60";
const SLOWEST_OF_ALL: &str = "300";

#[derive(Debug, Args)]
pub(crate) struct Mutants {
    /// Only these groups
    #[arg(value_parser = GROUPS.map(|group| group.name))]
    groups: Vec<String>,
    /// Begins nothing new after so many minutes
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=30))]
    minutes: u64,
    /// Runs those again that no test noticed
    #[arg(long)]
    missed: bool,
    /// Only those in files whose path contains one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    files: Vec<String>,
}

impl Mutants {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = tools::get("cargo-mutants")?;
        let until = Instant::now() + Duration::from_secs(60 * self.minutes);
        let is_wanted = |group: &&Group| {
            self.groups.is_empty() || self.groups.iter().any(|name| name == group.name)
        };
        let tree = Tree::of_the_working_tree()?;
        let mut is_good = true;
        for group in GROUPS.iter().filter(is_wanted) {
            let mut list = List::read(group, &tree.mutants(&program, group)?)?;
            if self.missed {
                list.forget_missed();
            }
            let wanted = |list: &List| -> Vec<String> {
                let mut pending = list.pending().filter(|name| is_in(name, &self.files)).peekable();
                let file = pending.peek().map(|first| file_of(first));
                let of_one_file = pending.take_while(|name| Some(file_of(name)) == file);
                of_one_file.take(AT_ONCE).map(str::to_owned).collect()
            };
            if !wanted(&list).is_empty() && Instant::now() < until {
                tree.test(group)?;
            }
            while Instant::now() < until {
                let batch = wanted(&list);
                if batch.is_empty() {
                    break;
                }
                let mut found = tree.outcomes(&program, group, &batch, Tests::Quick)?;
                let has_slow = |name: &&str| is_in(name, group.slow_of);
                let missed: Vec<String> =
                    missed(&found).filter(has_slow).map(str::to_owned).collect();
                if !(group.slow.is_empty() || missed.is_empty()) {
                    found.extend(tree.outcomes(&program, group, &missed, Tests::All)?);
                }
                list.add(found);
                list.write()?;
                println!("{}", list.summary());
            }
            list.write()?;
            println!("{}", list.summary());
            is_good &= list.complain();
        }
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The path of a mutant's file, which its name begins with.
fn file_of(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

/// Whether a mutant is in a file whose path contains one of `parts`; without any, all are.
fn is_in(name: &str, parts: &[impl AsRef<str>]) -> bool {
    let file = file_of(name);
    parts.is_empty() || parts.iter().any(|part| file.contains(part.as_ref()))
}

/// Which unit tests a mutant gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tests {
    /// Without the group's slow ones.
    Quick,
    All,
}

/// Those that no test has noticed.
fn missed(outcomes: &[(String, String)]) -> impl Iterator<Item = &str> {
    outcomes.iter().filter(|(_, outcome)| outcome == "missed").map(|(name, _)| name.as_str())
}

/// A copy of the working tree, whose files are changed and put back.
struct Tree(PathBuf);

impl Tree {
    /// Copies what is new or different, and removes what is gone. Files that are the same keep
    /// their time, so that cargo compiles no more than it must.
    fn of_the_working_tree() -> Result<Tree> {
        let to = target().join("mutants/tree");
        let files = |of: &[&str]| -> Result<Vec<String>> {
            let listed = Command::new("git")
                .arg("-C")
                .arg(root())
                .args(["ls-files", "-z"])
                .args(of)
                .output()?;
            ensure!(listed.status.success(), "git ls-files failed");
            Ok(String::from_utf8(listed.stdout)?
                .split_terminator('\0')
                .map(str::to_owned)
                .collect())
        };
        for name in files(&["--cached", "--others", "--exclude-standard"])? {
            let (from, to) = (root().join(&name), to.join(&name));
            match fs::read(&from) {
                Ok(content) if fs::read(&to).is_ok_and(|before| before == content) => {}
                Ok(content) => {
                    fs::create_dir_all(to.parent().context("no folder")?)?;
                    fs::write(&to, content)?;
                }
                Err(_) => drop(fs::remove_file(&to)),
            }
        }
        Ok(Tree(to))
    }

    /// Runs the group's unit tests without a mutant: they must pass, or every mutant would count as
    /// noticed.
    fn test(&self, group: &Group) -> Result<()> {
        let mut command = self.command(Path::new(env!("CARGO")));
        let status = command
            .args(["test", "--quiet", "--lib", "-p", group.package])
            .status()
            .context("cargo test")?;
        ensure!(status.success(), "the unit tests of {} fail as it is", group.package);
        Ok(())
    }

    /// The names of all mutants of a group, in the order of their lines.
    fn mutants(&self, program: &Path, group: &Group) -> Result<Vec<String>> {
        let mut command = self.command(program);
        command.args([
            "mutants",
            "--list",
            "--json",
            "--package",
            group.package,
            "--file",
            group.files,
        ]);
        let listed = command.output().context("cannot run cargo-mutants")?;
        ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let listed: Value =
            serde_json::from_slice(&listed.stdout).context("the list of cargo-mutants")?;
        let names = listed.as_array().context("the list of cargo-mutants is none")?.iter();
        names
            .map(|mutant| {
                Ok(mutant["name"].as_str().context("a mutant without a name")?.to_owned())
            })
            .collect()
    }

    /// What became of each of these mutants, which are of one file.
    fn outcomes(
        &self,
        program: &Path,
        group: &Group,
        names: &[String],
        tests: Tests,
    ) -> Result<Vec<(String, String)>> {
        let slowest = if tests == Tests::All { SLOWEST_OF_ALL } else { SLOWEST };
        let folder = tempfile::tempdir()?;
        let mut command = self.command(program);
        command.args([
            "mutants",
            "--in-place",
            "--no-shuffle",
            "--baseline=skip",
            "--timeout",
            slowest,
        ]);
        // Behind "--" it would count when tests run, but not when they are built.
        command.arg("--cargo-arg=--lib");
        // Fields left out of structs are tried whatever the names: no more than those of one file.
        let file = names.first().map_or(group.files, |name| file_of(name));
        command.args(["--package", group.package, "--file", file, "--output"]).arg(folder.path());
        for name in names {
            command.args(["--re", &format!("^{}$", escaped(name))]);
        }
        if tests == Tests::Quick {
            // For cargo, and from there on for the tests.
            command.args(["--", "--"]);
            command.args(group.slow.iter().flat_map(|word| ["--skip", word]));
        }
        // Its status tells apart what the outcomes tell as well.
        command.stdout(Stdio::null()).status().context("cannot run cargo-mutants")?;
        let file = folder.path().join("mutants.out/outcomes.json");
        let text = fs::read(&file).context("cargo-mutants wrote no outcomes")?;
        outcomes(&serde_json::from_slice(&text)?, names)
    }

    /// A command in the tree. Packages from the registry are those that the workspace's own tests
    /// use.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.0).stdin(Stdio::null());
        command.env("CARGO_TARGET_DIR", target());
        // Compiling is most of the time, not running.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }
}

/// Outcomes in cargo-mutants' file of them, with the mutants' names; only of those in `names`.
fn outcomes(file: &Value, names: &[String]) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for outcome in file["outcomes"].as_array().context("no outcomes")? {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { continue };
        if !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let word = match outcome["summary"].as_str().context("an outcome without a summary")? {
            "CaughtMutant" => "caught",
            "MissedMutant" => "missed",
            "Timeout" => "timeout",
            "Unviable" => "unviable",
            // Something else went wrong: it is still to be run.
            _ => continue,
        };
        all.push((name.to_owned(), word.to_owned()));
    }
    ensure!(!all.is_empty(), "cargo-mutants ran none of the mutants that it was told to run");
    Ok(all)
}

/// A name as a regular expression that nothing else fits.
fn escaped(name: &str) -> String {
    // "\\<" and "\\>" would be edges of words.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_ <>".contains(c) || !c.is_ascii();
    name.chars().flat_map(|c| (!is_plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

/// The mutants of a group with their outcomes so far.
struct List {
    file: PathBuf,
    group: &'static str,
    /// All names in order.
    names: Vec<String>,
    /// By name: outcome and reason.
    done: BTreeMap<String, (String, String)>,
}

impl List {
    /// The outcomes of earlier runs for the mutants that there are now.
    fn read(group: &Group, names: &[String]) -> Result<List> {
        let file = root().join("bench/mutants").join(format!("{}.tsv", group.name));
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        Ok(List { file, group: group.name, names: names.to_vec(), done: List::parse(&text, names) })
    }

    fn parse(text: &str, names: &[String]) -> BTreeMap<String, (String, String)> {
        let entry = |line: &str| {
            let mut columns = line.split('\t');
            let (outcome, name) = (columns.next()?, columns.next()?);
            let is_there = outcome != "not run" && names.iter().any(|other| other == name);
            is_there.then(|| {
                (
                    name.to_owned(),
                    (outcome.to_owned(), columns.next().unwrap_or_default().to_owned()),
                )
            })
        };
        text.lines().filter_map(entry).collect()
    }

    fn pending(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| !self.done.contains_key(*name))
    }

    fn forget_missed(&mut self) {
        self.done.retain(|_, (outcome, reason)| outcome != "missed" || !reason.is_empty());
    }

    fn add(&mut self, outcomes: Vec<(String, String)>) {
        self.done
            .extend(outcomes.into_iter().map(|(name, outcome)| (name, (outcome, String::new()))));
    }

    fn text(&self) -> String {
        let line = |name: &String| match self.done.get(name) {
            Some((outcome, reason)) if reason.is_empty() => format!("{outcome}\t{name}\n"),
            Some((outcome, reason)) => format!("{outcome}\t{name}\t{reason}\n"),
            None => format!("not run\t{name}\n"),
        };
        self.names.iter().map(line).collect()
    }

    fn write(&self) -> Result<()> {
        fs::create_dir_all(self.file.parent().context("no folder")?)?;
        fs::write(&self.file, self.text())
            .with_context(|| format!("cannot write {}", self.file.display()))
    }

    fn count(&self, outcome: &str) -> usize {
        self.done.values().filter(|(other, _)| other == outcome).count()
    }

    fn summary(&self) -> String {
        let [caught, missed, timeout, unviable] =
            ["caught", "missed", "timeout", "unviable"].map(|outcome| self.count(outcome));
        let (all, rest) = (self.names.len(), self.pending().count());
        format!(
            "{}: {all} mutants: {caught} caught, {timeout} ran too long, {missed} missed, {unviable} do not compile, {rest} not run",
            self.group
        )
    }

    /// Prints the mutants that no test noticed and nobody explained; returns whether there are
    /// none.
    fn complain(&self) -> bool {
        let unexplained = |(_, (outcome, reason)): &(&String, &(String, String))| {
            outcome == "missed" && reason.is_empty()
        };
        let all: Vec<_> = self.done.iter().filter(unexplained).map(|(name, _)| name).collect();
        all.iter().for_each(|name| println!("missed: {name}"));
        all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_the_last_one_stopped() {
        let names = ["f.rs:1:2: replace a -> b", "f.rs:7:2: replace c", "f.rs:9:1: delete !"]
            .map(str::to_owned);
        let text = "caught\tf.rs:7:2: replace c\nmissed\tf.rs:9:1: delete !\tnothing can be seen\nmissed\tf.rs:5:5: gone\n\
                    not run\tf.rs:1:2: replace a -> b\n";
        let file = PathBuf::new();
        let mut list =
            List { file, group: "x", done: List::parse(text, &names), names: names.to_vec() };
        assert_eq!(list.pending().collect::<Vec<_>>(), ["f.rs:1:2: replace a -> b"]);
        assert!(list.complain(), "what is explained is no complaint");
        list.add(vec![(names[0].clone(), "missed".into())]);
        assert!(list.pending().next().is_none() && !list.complain());
        assert_eq!(
            list.text(),
            "missed\tf.rs:1:2: replace a -> b\ncaught\tf.rs:7:2: replace c\nmissed\tf.rs:9:1: delete !\tnothing can be seen\n"
        );
        list.forget_missed();
        assert_eq!(list.pending().count(), 1, "only what nobody explained is run again");
    }

    #[test]
    fn outcomes_are_read_and_unknown_ones_are_not_counted() {
        let mutant = |name: &str, summary: &str| serde_json::json!({ "scenario": { "Mutant": { "name": name } }, "summary": summary });
        let baseline = serde_json::json!({ "scenario": "Baseline", "summary": "Success" });
        let file = |list: Vec<Value>| serde_json::json!({ "outcomes": list });
        let told = file(vec![
            baseline.clone(),
            mutant("a", "MissedMutant"),
            mutant("b", "Failure"),
            mutant("c", "CaughtMutant"),
        ]);
        let names = ["a", "b"].map(str::to_owned);
        let read = outcomes(&told, &names).unwrap();
        // Nobody asked for c: what was found of it before stays.
        assert_eq!(read, [("a".to_owned(), "missed".to_owned())]);
        let none = outcomes(&file(vec![baseline]), &names);
        assert!(none.is_err(), "a run without mutants would never end");
    }

    #[test]
    fn files_are_chosen_by_a_part_of_their_path() {
        let is = |parts: &[&str]| {
            is_in(
                "src/mlr/goal.rs:1:2: search",
                &parts.iter().map(|&p| p.to_owned()).collect::<Vec<_>>(),
            )
        };
        assert!(is(&[]) && is(&["mlr/"]) && is(&["verdict", "goal"]));
        assert!(!is(&["search"]), "that is in its name, and not in its path");
    }

    #[test]
    fn names_are_taken_literally() {
        assert_eq!(
            escaped("a.rs:1:2: replace f -> (u8)"),
            "a\\.rs\\:1\\:2\\: replace f \\-> \\(u8\\)"
        );
    }
}
