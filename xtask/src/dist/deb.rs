//! Debian packages, by cargo-deb. What they contain stands in `[package.metadata.deb]` of the crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::process::{find, root};

/// The version of cargo-deb that was tried.
const CARGO_DEB: &str = "3.8.0";
/// Crates with packages.
const CRATES: [&str; 2] = ["dns64bench", "dns64"];

/// Builds both packages from the release build into `to`; returns their names.
pub(super) fn build(stage: &Stage, to: &Path) -> Result<Vec<String>> {
    let cargo_deb = cargo_deb()?;
    let mut made = Vec::new();
    for name in CRATES {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let mut command = Command::new(&cargo_deb);
        command.args(["--no-build", "--strip", "--quiet", "--maintainer", &maintainer(), "--output"]);
        command.arg(to).arg("--manifest-path").arg(manifest).current_dir(root());
        let ran = command.env("SOURCE_DATE_EPOCH", stage.epoch.to_string()).output().context("cannot run cargo-deb")?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "cargo-deb: {said}");
        eprint!("{said}");
        let path = PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim());
        let file = path.file_name().with_context(|| format!("cargo-deb names no file: {said}"))?;
        made.push(file.to_string_lossy().into_owned());
    }
    Ok(made)
}

/// Who is responsible for the packages: `DEBFULLNAME` and `DEBEMAIL`, as Debian's tools have it, or nobody in particular.
pub(super) fn maintainer() -> String {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let name = variable("DEBFULLNAME", "dns64bench maintainers");
    format!("{name} <{}>", variable("DEBEMAIL", "maintainers@dns64bench.invalid"))
}

/// The folder of tools outside `target`.
fn tools() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let tools = variable("DNS64BENCH_TOOLS").or_else(|| Some(cache()?.join("dns64bench/tools")));
    tools.context("neither DNS64BENCH_TOOLS, XDG_CACHE_HOME nor HOME is set")
}

/// cargo-deb where it is there already: in the folder of tools, or on the path.
fn installed() -> Option<PathBuf> {
    let ours = tools().ok().map(|tools| tools.join("bin/cargo-deb")).filter(|program| program.is_file());
    ours.or_else(|| find("cargo-deb"))
}

/// Whether [`Stage::debs`] needs to install nothing.
pub(crate) fn cargo_deb_is_installed() -> bool {
    installed().is_some()
}

/// cargo-deb, which is installed if it is missing.
fn cargo_deb() -> Result<PathBuf> {
    if let Some(there) = installed() {
        return Ok(there);
    }
    let tools = tools()?;
    println!("Installing cargo-deb {CARGO_DEB} into {}", tools.display());
    let mut command = Command::new(env!("CARGO"));
    command.args(["install", "--quiet", "--locked", "cargo-deb", "--version", CARGO_DEB, "--root"]).arg(&tools);
    // The speed of compiling counts more than its own.
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_LTO", "off").current_dir(root());
    ensure!(command.status().context("cannot run cargo")?.success(), "cargo install cargo-deb failed");
    Ok(tools.join("bin/cargo-deb"))
}
