//! `weight`: compares the sizes of the checkout and of both programs of the release build with the sizes in [`KEPT`].
//!
//! The check fails if a size grows by more than [`MOST_GROWTH`]. To accept the growth, a commit must update the file
//! and give the reason in its message.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::process::{Build, output, root};

/// Sizes in bytes, one `NAME BYTES` on each line.
const KEPT: &str = "bench/weight.txt";
/// Maximum growth, as a share of the recorded size.
const MOST_GROWTH: f64 = 0.10;
const HEADER: &str = "# Sizes in bytes: programs of the release build, and all tracked files. cargo xtask weight compares \
                      with them;\n# cargo xtask weight --bless writes them.\n";

#[derive(Debug, Args)]
pub(crate) struct Weight {
    /// Replace the recorded sizes with the measured sizes
    #[arg(long)]
    bless: bool,
}

type Sizes = BTreeMap<String, u64>;

impl Weight {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let measured = measure()?;
        let path = root().join(KEPT);
        if self.bless {
            let lines: String =
                measured.iter().map(|(name, bytes)| format!("{name} {bytes}\n")).collect();
            fs::write(&path, format!("{HEADER}{lines}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let kept = parse(&text).with_context(|| path.display().to_string())?;
        let comparisons = compare(&kept, &measured);
        comparisons.iter().for_each(|comparison| println!("{}", comparison.row()));
        Ok(if comparisons.iter().all(Comparison::is_within_limit) {
            ExitCode::SUCCESS
        } else {
            println!(
                "If the growth is intended: cargo xtask weight --bless, and give the reason in the \
                 commit that changes {KEPT}"
            );
            ExitCode::FAILURE
        })
    }
}

/// Measures all sizes.
fn measure() -> Result<Sizes> {
    let program = Build::Release.dns64bench()?;
    let mut sizes = Sizes::new();
    for path in [&program, &program.with_file_name("dns64d")] {
        let bytes = fs::metadata(path).with_context(|| path.display().to_string())?.len();
        let name = path.file_name().context("a program has a name")?;
        sizes.insert(name.to_string_lossy().into_owned(), bytes);
    }
    let folder = root();
    let folder = folder.to_string_lossy();
    let files = output("git", &["-C", &folder, "ls-files", "-z"], Duration::from_secs(60))?;
    let bytes = |file: &str| fs::symlink_metadata(root().join(file)).map_or(0, |file| file.len());
    sizes.insert("checkout".into(), files.split_terminator('\0').map(bytes).sum());
    Ok(sizes)
}

/// Parses recorded sizes.
fn parse(text: &str) -> Result<Sizes> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let (name, bytes) = line.split_once(' ').unwrap_or_default();
            let bytes = bytes.parse().ok().filter(|_| !name.is_empty());
            Ok((
                name.to_owned(),
                bytes.with_context(|| format!("line {}: not NAME BYTES", number + 1))?,
            ))
        })
        .collect()
}

/// Recorded and measured size of one item; `None` if a size is missing.
struct Comparison<'a> {
    name: &'a str,
    kept: Option<u64>,
    measured: Option<u64>,
}

/// Returns the pairs of recorded and measured sizes with the same name.
fn compare<'a>(kept: &'a Sizes, measured: &'a Sizes) -> Vec<Comparison<'a>> {
    let mut names: Vec<&str> = kept.keys().chain(measured.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let size = |of: &Sizes, name: &str| of.get(name).copied();
    names
        .into_iter()
        .map(|name| Comparison { name, kept: size(kept, name), measured: size(measured, name) })
        .collect()
}

impl Comparison<'_> {
    /// False if the size has grown by more than the limit, or if the recorded or the measured size is missing.
    fn is_within_limit(&self) -> bool {
        match (self.kept, self.measured) {
            (Some(kept), Some(measured)) => measured as f64 <= kept as f64 * (1.0 + MOST_GROWTH),
            _ => false,
        }
    }

    fn row(&self) -> String {
        let size = |bytes: Option<u64>| {
            bytes.map_or_else(|| "missing".into(), |bytes| format!("{:.2} MB", bytes as f64 / 1e6))
        };
        let (kept, measured) = (size(self.kept), size(self.measured));
        let verdict = if self.is_within_limit() { "" } else { "  GREW by more than 10 %" };
        format!("{:<12} {kept:>10} recorded {measured:>10} now{verdict}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(pairs: &[(&str, u64)]) -> Sizes {
        pairs.iter().map(|&(name, bytes)| (name.to_owned(), bytes)).collect()
    }

    #[test]
    fn growth_above_ten_per_cent_is_found() {
        let kept = sizes(&[("a", 1_000), ("b", 1_000), ("c", 1_000), ("gone", 1)]);
        let measured = sizes(&[("a", 1_100), ("b", 1_101), ("c", 1), ("new", 1)]);
        let within: Vec<_> = compare(&kept, &measured)
            .iter()
            .map(|comparison| (comparison.name.to_owned(), comparison.is_within_limit()))
            .collect();
        let expected = [("a", true), ("b", false), ("c", true), ("gone", false), ("new", false)];
        assert_eq!(within, expected.map(|(name, within)| (name.to_owned(), within)));
    }

    #[test]
    fn kept_file_is_read_with_line_numbers_in_errors() {
        assert_eq!(parse("# x\na 12\n").unwrap(), sizes(&[("a", 12)]));
        for (bad, line) in [("a\n", 1), ("# x\na b\n", 2), ("\n", 1), (" 5\n", 1)] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("line {line}:")), "{bad:?}: {error}");
        }
    }
}
