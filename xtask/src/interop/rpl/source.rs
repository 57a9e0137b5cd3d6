//! Folder with Unbound's scenarios: one given by the user, or the files of Debian's source package, which are kept
//! outside `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::harness::last_lines;
use super::super::tally::Skipped;
use crate::process::{find, output};
use crate::tools;

/// Environment variable with the path of a folder that contains the files `val_*.rpl`.
pub(super) const VARIABLE: &str = "UNBOUND_TESTDATA";
/// Keys of the archive, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Time limit of apt-get and tar.
const LIMIT: Duration = Duration::from_secs(300);

/// A file with a scenario.
pub(super) struct File {
    /// Name without the ending.
    pub(super) name: String,
    pub(super) text: String,
}

/// Returns all scenarios of the validator, sorted by name.
///
/// # Errors
/// Returns [`Skipped`] if there is no folder of the user, and if Debian's source package cannot be downloaded.
pub(super) fn files() -> Result<Vec<File>> {
    let folder = match std::env::var_os(VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => downloaded()?,
    };
    let found = read(&folder).with_context(|| folder.display().to_string())?;
    ensure!(!found.is_empty(), "{}: no files val_*.rpl", folder.display());
    Ok(found)
}

fn read(folder: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Unbound supports the features of files that end in crpl only if it was built with them.
        let stem = name.strip_suffix(".rpl").or_else(|| name.strip_suffix(".crpl"));
        if let Some(stem) = stem.filter(|stem| stem.starts_with("val_")) {
            found.push(File { name: stem.to_owned(), text: fs::read_to_string(&path)? });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns the folder with the files of Debian's source package, which is downloaded if it is missing.
fn downloaded() -> Result<PathBuf> {
    let suite = suite().unwrap_or_default();
    let missing = ["apt-get", "tar"].into_iter().find(|program| find(program).is_none());
    if suite.is_empty() || missing.is_some() || !Path::new(KEYRING).exists() {
        let reason = format!(
            "{VARIABLE} is not set, and this system cannot download Debian's source packages"
        );
        return Err(Skipped(reason).into());
    }
    let cache = tools::cache()?;
    let folder = cache.join(format!("unbound-{suite}"));
    if !folder.exists() {
        fs::create_dir_all(&cache)?;
        let part = tempfile::Builder::new().prefix("unbound-").tempdir_in(&cache)?;
        download(&suite, part.path()).map_err(|error| {
            let error = last_lines(&format!("{error:#}"));
            Skipped(format!("{VARIABLE} is not set, and no source package of Unbound: {error}"))
        })?;
        fs::rename(part.path().join("testdata"), &folder)?;
    }
    Ok(folder)
}

/// Returns the code name of this Debian release.
fn suite() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    value("ID").filter(|id| id == "debian")?;
    value("VERSION_CODENAME")
}

/// Downloads the source package with package lists of its own, because most systems have no lists of source packages.
fn download(suite: &str, folder: &Path) -> Result<()> {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let line = format!("deb-src [signed-by={KEYRING}] http://deb.debian.org/debian {suite} main\n");
    fs::write(folder.join("sources.list"), line)?;
    fs::create_dir_all(folder.join("lists/partial"))?;
    let script = "cd \"$1\" && shift && apt-get -q \"$@\" update && \
                  apt-get -q \"$@\" source --download-only unbound && \
                  tar -x -f unbound_*.orig.tar.?z --strip-components=1 --wildcards '*/testdata/val_*'";
    let options = [
        format!("-oDir::Etc::SourceList={}", path("sources.list")),
        "-oDir::Etc::SourceParts=/dev/null".to_owned(),
        format!("-oDir::State::Lists={}", path("lists")),
        "-oAPT::Sandbox::User=root".to_owned(),
        "-oAcquire::http::Timeout=20".to_owned(),
    ];
    let (script, folder) = (script.to_owned(), folder.to_string_lossy().into_owned());
    let args = [vec!["-c".to_owned(), script, "sh".to_owned(), folder], options.to_vec()].concat();
    output("sh", &args, LIMIT)?;
    Ok(())
}
