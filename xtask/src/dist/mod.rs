//! `dist`: packages, archives and images for users.
//!
//! ```text
//! release build ──► stage: programs, manual pages, completions, notices ──┬─► archives (.tar.gz, .tar.zst)
//!                                                                         └─► cargo-deb ─► .deb
//! static build ───► Containerfiles around nothing else ─► images                           all ─► SHA256SUMS
//! ```
//!
//! Everything is written to `target/dist`. Builds of the same commit, with the same toolchain and in the same folder,
//! have identical files. All timestamps in the files are the time of the commit, or `SOURCE_DATE_EPOCH`.

mod archive;
mod deb;
mod files;
mod images;
mod notices;
mod pages;
mod reference;
mod stage;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process::{Build, root};

pub(crate) use deb::{cargo_deb_is_installed, debs};
pub(crate) use images::{Builder, STATIC_PROGRAMS};
pub(crate) use stage::Stage;

/// Archives, Debian packages and container images, in target/dist.
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// Also build static programs and, if buildah is installed, container images that contain them
    #[arg(long)]
    images: bool,
}

impl Dist {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let programs = Build::Dist.dns64bench()?.with_file_name("");
        let to = root().join("target/dist");
        if to.exists() {
            fs::remove_dir_all(&to).with_context(|| format!("cannot empty {}", to.display()))?;
        }
        let stage = Stage::make(&programs)?;
        let mut made = archive::build(&stage, &to)?;
        made.extend(debs(&stage, &to, Build::Dist)?);
        if self.images {
            made.extend(images::build(&to)?);
        }
        made.sort();
        write_sums(&to, &made)?;
        for file in &made {
            println!("{:>11}  {}", fs::metadata(to.join(file))?.len(), to.join(file).display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the checksums of the files to SHA256SUMS, for use with `sha256sum -c`.
fn write_sums(folder: &Path, files: &[String]) -> Result<()> {
    let ran = Command::new("sha256sum")
        .arg("--")
        .args(files)
        .current_dir(folder)
        .output()
        .context("sha256sum")?;
    ensure!(ran.status.success(), "sha256sum: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(fs::write(folder.join("SHA256SUMS"), ran.stdout)?)
}
