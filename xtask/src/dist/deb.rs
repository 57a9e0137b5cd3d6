//! Debian packages, built by cargo-deb. The table `[package.metadata.deb]` in the `Cargo.toml` of a crate defines the
//! contents of its package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::files::maintainer;
use super::stage::Stage;
use crate::process::{Build, root};
use crate::tools;

/// Name in the list of tools of the program that builds packages.
const CARGO_DEB: &str = "cargo-deb";
/// Crates that have a Debian package.
const CRATES: [&str; 2] = ["dns64bench", "dns64"];

/// Builds both packages in the folder `to`, from the programs of a build. Returns the file names of the packages.
pub(crate) fn debs(stage: &Stage, to: &Path, build: Build) -> Result<Vec<String>> {
    let cargo_deb = cargo_deb()?;
    let mut made = Vec::new();
    for name in CRATES {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let mut command = Command::new(&cargo_deb);
        // Packages of the dev build are used only in tests, so they are compressed less: compression takes most of the
        // time.
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

/// True if cargo-deb is installed, so that [`Stage::debs`] need not install it.
pub(crate) fn cargo_deb_is_installed() -> bool {
    tools::locate(CARGO_DEB).is_some()
}

/// Returns the path of cargo-deb, after installing it if it is missing.
fn cargo_deb() -> Result<PathBuf> {
    tools::locate(CARGO_DEB).map_or_else(|| tools::get(CARGO_DEB), Ok)
}
