//! Folder with all files that go into the packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files::{LIMIT, PROGRAMS, VERSION, example, maintainer, strip};
use super::{notices, pages, reference};
use crate::process::{git, output, root};

/// Contents of the packages, in a separate folder.
pub(crate) struct Stage {
    /// Folder to which `[package.metadata.deb]` in each crate refers.
    pub(super) folder: PathBuf,
    /// Timestamp of all files, in seconds since 1970.
    pub(super) epoch: u64,
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

    pub(super) fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().context("it is in the stage")?)?;
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the date for the footers of manual pages.
    pub(super) fn date(&self) -> Result<String> {
        Ok(output("date", &["-u", "-d", &format!("@{}", self.epoch), "+%Y-%m-%d"], LIMIT)?
            .trim()
            .to_owned())
    }

    /// Returns the Debian changelog of a package. Its only entry refers to our changelog.
    fn debian_changelog(&self, package: &str) -> Result<String> {
        let time = output("date", &["-u", "-R", "-d", &format!("@{}", self.epoch)], LIMIT)?;
        let maintainer = maintainer();
        Ok(format!(
            "{package} ({VERSION}-1) unstable; urgency=medium\n\n  * Version {VERSION}; see \
             CHANGELOG.md for the changes.\n\n -- {maintainer}  {}\n",
            time.trim()
        ))
    }
}

/// Path of the schema in dns64d's Debian package.
const INSTALLED_SCHEMA: &str = "/usr/share/dns64d/dns64d.schema.json";

/// Returns `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => git(&["log", "-1", "--format=%ct"])
            .context("set SOURCE_DATE_EPOCH if there is no git")?,
    };
    text.trim()
        .parse()
        .with_context(|| format!("'{}' is not a number of seconds since 1970", text.trim()))
}
