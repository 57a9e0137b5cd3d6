//! Debian packages, by cargo-deb. What they contain stands in `[package.metadata.deb]` of the
//! crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::process::{Build, root};
use crate::tools;

/// The program that builds packages, as the list of tools has it.
const CARGO_DEB: &str = "cargo-deb";
/// Crates that have a Debian package.
const CRATES: [&str; 2] = ["dns64bench", "dns64"];

/// Builds both packages from the programs of a build into `to`; returns their names.
pub(super) fn build(stage: &Stage, to: &Path, build: Build) -> Result<Vec<String>> {
    let cargo_deb = cargo_deb()?;
    let mut made = Vec::new();
    for name in CRATES {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let mut command = Command::new(&cargo_deb);
        // Packages of the dev build are only tested, and compressing takes longest.
        command.args((build == Build::Dev).then_some("--fast"));
        command.args([
            "--no-build",
            "--profile",
            build.profile(),
            "--strip",
            "--quiet",
            "--maintainer",
            &maintainer(),
            "--output",
        ]);
        command.arg(to).arg("--manifest-path").arg(manifest).current_dir(root());
        let ran = command
            .env("SOURCE_DATE_EPOCH", stage.epoch.to_string())
            .output()
            .context("cannot run cargo-deb")?;
        let said = String::from_utf8_lossy(&ran.stderr);
        ensure!(ran.status.success(), "cargo-deb: {said}");
        eprint!("{said}");
        let path = PathBuf::from(String::from_utf8_lossy(&ran.stdout).trim());
        let file = path.file_name().with_context(|| format!("cargo-deb names no file: {said}"))?;
        made.push(file.to_string_lossy().into_owned());
    }
    Ok(made)
}

/// Who is responsible for the packages: `DEBFULLNAME` and `DEBEMAIL`, as Debian's tools have it, or
/// nobody in particular.
pub(super) fn maintainer() -> String {
    let variable =
        |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let name = variable("DEBFULLNAME", "dns64bench maintainers");
    format!("{name} <{}>", variable("DEBEMAIL", "maintainers@dns64bench.invalid"))
}

/// Whether [`Stage::debs`] needs to install nothing.
pub(crate) fn cargo_deb_is_installed() -> bool {
    tools::locate(CARGO_DEB).is_some()
}

/// cargo-deb, which is installed if it is missing.
fn cargo_deb() -> Result<PathBuf> {
    tools::locate(CARGO_DEB).map_or_else(|| tools::get(CARGO_DEB), Ok)
}
