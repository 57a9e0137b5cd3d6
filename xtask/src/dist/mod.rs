//! `dist`: packages, archives and images for users.
//!
//! ```text
//! release build ──► stage: programs, manual pages, completions, notices ──┬─► archives (.tar.gz, .tar.zst)
//!                                                                         └─► cargo-deb ─► .deb
//! static build ───► Containerfiles around nothing else ─► images                           all ─► SHA256SUMS
//! ```
//!
//! Everything is written to `target/dist`. The same commit, toolchain and folder give the same files: times are those
//! of the commit, or of `SOURCE_DATE_EPOCH`.

mod archive;
mod deb;
mod images;
mod notices;
mod pages;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process::{Build, git, output, root};

pub(crate) use deb::cargo_deb_is_installed;
pub(crate) use images::{Builder, STATIC_PROGRAMS};

/// Archives, Debian packages and container images, in target/dist.
#[derive(Debug, Args)]
pub(crate) struct Dist {
    /// Also build the programs statically, and with buildah the container images around them
    #[arg(long)]
    images: bool,
}

/// The version of the workspace, which xtask shares.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Programs, in the order of all lists.
const PROGRAMS: [&str; 2] = ["dns64bench", "dns64d"];
/// Time limit of all tools that run here, except compilers.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

impl Dist {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let programs = Build::Dist.dns64bench()?.with_file_name("");
        let to = root().join("target/dist");
        if to.exists() {
            fs::remove_dir_all(&to).with_context(|| format!("cannot empty {}", to.display()))?;
        }
        let stage = Stage::make(&programs)?;
        let mut made = archive::build(&stage, &to)?;
        made.extend(stage.debs(&to, Build::Dist)?);
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

/// Contents of the packages, in a separate folder.
pub(crate) struct Stage {
    /// Folder in which the crates' `[package.metadata.deb]` expect it.
    folder: PathBuf,
    /// Timestamp of all files, in seconds since 1970.
    epoch: u64,
}

impl Stage {
    /// Creates the contents of all packages. `programs` is the folder of the build that is packed.
    pub(crate) fn make(programs: &Path) -> Result<Stage> {
        let folder = root().join("target/dist/stage");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let epoch = epoch()?;
        let stage = Stage { folder, epoch };
        for program in PROGRAMS {
            let stripped = stage.folder.join("bin").join(program);
            strip(&programs.join(program), &stripped)?;
            pages::write(&stripped, program, &stage.folder, &stage.date()?)?;
        }
        let page = reference::page(&example(None)?, VERSION, &stage.date()?);
        stage.write("man5/dns64d.toml.5", &page)?;
        stage.write("dns64d.toml", &example(Some(INSTALLED_SCHEMA))?)?;
        stage.write("THIRD-PARTY", &notices::third_party()?)?;
        stage.write("copyright", &notices::copyright()?)?;
        for program in PROGRAMS {
            stage.write(&format!("changelog.{program}"), &stage.debian_changelog(program)?)?;
        }
        Ok(stage)
    }

    /// Builds the Debian packages from the programs of a build into the folder `to`; returns their
    /// names.
    pub(crate) fn debs(&self, to: &Path, build: Build) -> Result<Vec<String>> {
        deb::build(self, to, build)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().context("it is in the stage")?)?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the date for the footers of manual pages.
    fn date(&self) -> Result<String> {
        Ok(output("date", &["-u", "-d", &format!("@{}", self.epoch), "+%Y-%m-%d"], LIMIT)?
            .trim()
            .to_owned())
    }

    /// Returns Debian's changelog of a package: an entry for the version, which refers to ours.
    fn debian_changelog(&self, package: &str) -> Result<String> {
        let time = output("date", &["-u", "-R", "-d", &format!("@{}", self.epoch)], LIMIT)?;
        let maintainer = deb::maintainer();
        Ok(format!(
            "{package} ({VERSION}-1) unstable; urgency=medium\n\n  * Version {VERSION}; what is new stands in CHANGELOG.md.\n\n \
             -- {maintainer}  {}\n",
            time.trim()
        ))
    }
}

/// The shipped configuration of dns64d.
const EXAMPLE: &str = "dist/dns64d.example.toml";
/// Schema for completion in editors, in the repository.
const SCHEMA: &str = "schemas/dns64d.schema.json";
/// Path of the schema in dns64d's Debian package.
const INSTALLED_SCHEMA: &str = "/usr/share/dns64d/dns64d.schema.json";

/// Returns the shipped configuration. Its first line refers to the schema at its installed path, if there is one,
/// instead of the path in the repository.
fn example(schema: Option<&str>) -> Result<String> {
    let text = fs::read_to_string(root().join(EXAMPLE))?;
    let (first, rest) = text.split_once('\n').context("the example is empty")?;
    ensure!(first.starts_with("#:schema "), "{EXAMPLE} does not begin with its schema");
    Ok(schema.map(|schema| format!("#:schema {schema}\n")).unwrap_or_default() + rest)
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => git(&["log", "-1", "--format=%ct"])
            .context("set SOURCE_DATE_EPOCH where there is no git")?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("'{}' is no number of seconds since 1970", text.trim()))
}

/// Copies a program without its symbols.
fn strip(program: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("it is in the stage")?)?;
    let [from, to] = [program, to].map(|path| path.to_string_lossy().into_owned());
    output("strip", &["--strip-all", "-o", &to, &from], LIMIT)
        .context("strip is of Debian's package binutils")?;
    println!(
        "{:>11}  {from}\n{:>11}  stripped",
        fs::metadata(&from)?.len(),
        fs::metadata(&to)?.len()
    );
    Ok(())
}

/// Writes the checksums of the files into SHA256SUMS, for `sha256sum -c`.
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
