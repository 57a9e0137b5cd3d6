//! Counts with which the new counts are compared: those in the counts file, or those of the parent commit.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::count::Paths;
use super::paths;
use crate::process::{Build, build_command, git, is_committed, output, root, target};

/// The counts file, in the workspace.
const FILE: &str = "bench/instructions.toml";
const HEADER: &str =
    "# User-space instructions per query. Written by `cargo xtask bench instructions --bless`.\n";
/// Time limit of a command that prints its version.
const LIMIT: Duration = Duration::from_secs(60);

/// Settings that affect the counts even if the code is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// Cargo profile, and the environment variables that override it.
    pub(super) profile: String,
    pub(super) rustc: String,
    pub(super) glibc: String,
    pub(super) valgrind: String,
    /// Architecture and vector extension, on which the choice of functions in libraries depends.
    pub(super) cpu: String,
}

impl Setting {
    pub(super) fn of_this_machine() -> Result<Setting> {
        let version = |program: &str, word: &str| -> Result<String> {
            Ok(output(program, &[word], LIMIT)?.trim().to_owned())
        };
        let overrides = env::vars().filter(|(name, _)| name.starts_with("CARGO_PROFILE_RELEASE_"));
        let mut profile: Vec<String> =
            overrides.map(|(name, value)| format!("{name}={value}")).collect();
        profile.sort();
        profile.insert(0, "release".to_owned());
        Ok(Setting {
            profile: profile.join(" "),
            rustc: version(&env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()), "--version")?,
            glibc: version("getconf", "GNU_LIBC_VERSION")?,
            valgrind: version("valgrind", "--version")?,
            cpu: cpu(),
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { profile, rustc, glibc, valgrind, cpu } = self;
        write!(f, "{profile}, {rustc}, {glibc}, {valgrind}, {cpu}")
    }
}

fn cpu() -> String {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        return "x86_64, AVX2".to_owned();
    }
    env::consts::ARCH.to_owned()
}

/// Contents of the counts file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) setting: Setting,
    pub(super) paths: Paths,
}

impl Counts {
    pub(super) fn read() -> Result<Counts> {
        let text = fs::read_to_string(root().join(FILE)).context(FILE)?;
        toml::from_str(&text).context(FILE)
    }

    /// Writes the file and prints it.
    pub(super) fn write(&self) -> Result<()> {
        let text = HEADER.to_owned() + &toml::to_string(self)?;
        print!("{text}");
        fs::write(root().join(FILE), text).context(FILE)
    }
}

/// Builds the programs of the workspace in `tree` and returns their folder.
pub(super) fn build(tree: &Path) -> Result<PathBuf> {
    let folder = if tree == root() { target() } else { target().join("parent") };
    let status = build_command(env!("CARGO"))
        .args(Build::Release.words().split(' '))
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &folder)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the programs in {} cannot be built", tree.display());
    Ok(folder.join("release"))
}

/// Counts the instructions of the parent commit, or of `HEAD` if the working tree differs from `HEAD`.
pub(super) fn count_parent(rounds: usize) -> Result<Paths> {
    let commit = if is_committed()? { "HEAD^" } else { "HEAD" };
    println!("Counting {commit} to compare with");
    let folder = tempfile::tempdir()?;
    let tree = folder.path().join("tree");
    let path = tree.to_string_lossy();
    git(&["worktree", "add", "--quiet", "--detach", &path, commit]).context(
        "without the parent commit, --bless makes the counts of this commit the new ones",
    )?;
    let counted = build(&tree).and_then(|programs| paths::count(&programs, rounds));
    git(&["worktree", "remove", "--force", &path])?;
    counted
}
