//! Chroots that contain packages of a Debian release. They are created with mmdebstrap, and kept for a week in
//! `dns64bench/chroots` in `$XDG_CACHE_HOME` or `~/.cache`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::packages::is_root;
use crate::process::{find, run};
use crate::tools;

/// Time limit for creating a chroot.
const LIMIT: Duration = Duration::from_secs(1_200);
/// Age from which a chroot is recreated, because there may be updates of its packages.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Settings of apt and dpkg. The validity period of package lists is ignored, because a snapshot of sid may be older
/// than a week, after which its lists expire. Signatures are still verified.
const OPTIONS: [&str; 4] = [
    "--aptopt=Acquire::Check-Valid-Until \"false\"",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
];
/// Folder of the hook that makes `/bin` a link. The mmdebstrap of Debian 12 needs this hook to create later releases.
const MERGED_USR: &str = "/usr/share/mmdebstrap/hooks/maybe-merged-usr";
/// Folder with the settings of apt on this host, such as a proxy.
const APT_SETTINGS: &str = "/etc/apt/apt.conf.d";

/// Environment variable with the beginning of the command that runs the program in the chroot; see [`within`].
const WITHIN: &str = "DNS64BENCH_WITHIN";

/// Runs the program $3 in the chroot $1, in which the folder $2 is visible at the same path. The program replaces this
/// process and has the same process ID. The mounts disappear when it ends.
const START: &str = "mount --bind \"$2\" \"$1$2\" && mount --rbind /proc \"$1/proc\" || exit 1; \
                     root=$1; program=$3; shift 3; exec chroot \"$root\" $DNS64BENCH_WITHIN \"$program\" \"$@\"";

/// Returns the reason why chroots cannot be created here, or `None` if they can.
pub(crate) fn not_run_because() -> Option<&'static str> {
    match (is_root(), find("mmdebstrap")) {
        (false, _) => Some("chroots need root"),
        (true, None) => Some("not found: mmdebstrap (cargo xtask packages --install)"),
        (true, Some(_)) => None,
    }
}

/// Returns the beginning of a command that runs a start script. It makes the program of the chroot the last argument of
/// the command `words`, which is in the chroot. No word may contain a space.
pub(crate) fn within(words: &[String]) -> Vec<String> {
    if words.is_empty() {
        return Vec::new();
    }
    vec!["env".to_owned(), format!("{WITHIN}={}", words.join(" "))]
}

/// Content of a chroot.
pub(crate) struct Recipe<'a> {
    /// Name of the chroot's folder.
    pub(crate) name: &'a str,
    /// Name of the release on the package servers.
    pub(crate) suite: &'a str,
    pub(crate) packages: &'a [&'a str],
    /// Shell script that mmdebstrap runs after the packages are installed; empty if there is none. Its first argument is
    /// the folder of the chroot.
    pub(crate) hook: &'a str,
}

impl Recipe<'_> {
    /// Returns the text of the file that is written when a chroot is complete.
    fn record(&self) -> String {
        self.packages.join(" ") + self.hook
    }
}

/// A chroot, and a folder of this host that is visible in the chroot.
pub(crate) struct Chroot {
    root: PathBuf,
    shared: PathBuf,
}

impl Chroot {
    /// Returns the chroot of a recipe. The chroot is created if there is none that was created this week, or if `fresh`
    /// is true.
    ///
    /// # Errors
    /// Returns an error if the chroot cannot be created.
    pub(crate) fn of(recipe: &Recipe<'_>, shared: &Path, fresh: bool) -> Result<Chroot> {
        let (all, name) = (tools::cache()?.join("chroots"), recipe.name);
        let (root, list) = (all.join(name), all.join(format!("{name}.packages")));
        if fresh || !is_recent(&list, &recipe.record()) {
            println!("Creating a chroot of {} in {}", recipe.suite, root.display());
            fs::create_dir_all(&all)?;
            let new = all.join(format!("{name}.new"));
            remove(&new)?;
            make(recipe, &new)?;
            remove(&root)?;
            fs::rename(&new, &root)?;
            fs::write(&list, recipe.record())?;
        }
        let chroot = Chroot { root, shared: shared.into() };
        fs::create_dir_all(chroot.inside())?;
        Ok(chroot)
    }

    /// Returns the folder of the chroot.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the shared folder on this host.
    fn inside(&self) -> PathBuf {
        self.root.join(self.shared.strip_prefix("/").unwrap_or(&self.shared))
    }

    /// Writes a script to `path` that runs a program in the chroot and passes its arguments on to the program.
    ///
    /// # Errors
    /// Returns an error if the chroot has no such program.
    pub(crate) fn start_script(&self, program: &str, path: &Path) -> Result<PathBuf> {
        let folders = ["/usr/sbin", "/usr/bin"];
        let places = folders.map(|folder| Path::new(folder).join(program));
        let is_there =
            |place: &&PathBuf| self.root.join(place.strip_prefix("/").unwrap_or(place)).is_file();
        let place =
            places.iter().find(is_there).context("the packages do not contain its program")?;
        let words = [START, "sh", &self.root.to_string_lossy(), &self.shared.to_string_lossy()]
            .map(quoted)
            .join(" ");
        let place = quoted(&place.to_string_lossy());
        let script = format!("#!/bin/sh\nexec unshare --mount sh -c {words} {place} \"$@\"\n");
        fs::write(path, script)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(path.into())
    }
}

impl Drop for Chroot {
    fn drop(&mut self) {
        // The mount point is empty in this namespace, because the folder was mounted there only in other namespaces.
        let _ = fs::remove_dir(self.inside());
    }
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// True if the file with the content of a chroot was written this week and contains this record.
fn is_recent(list: &Path, record: &str) -> bool {
    let age = || fs::metadata(list).ok()?.modified().ok()?.elapsed().ok();
    fs::read_to_string(list).is_ok_and(|text| text == record) && age().is_some_and(|age| age < WEEK)
}

fn make(recipe: &Recipe<'_>, root: &Path) -> Result<()> {
    let mut words = vec!["--quiet".to_owned(), "--mode=root".into(), "--variant=minbase".into()];
    words.extend(OPTIONS.map(str::to_owned));
    words.extend(settings()?.iter().map(|file| format!("--aptopt={}", file.display())));
    if Path::new(MERGED_USR).is_dir() {
        words.push(format!("--hook-dir={MERGED_USR}"));
    }
    words.push(format!("--include={}", recipe.packages.join(",")));
    if !recipe.hook.is_empty() {
        words.push(format!("--customize-hook={}", recipe.hook));
    }
    words.extend([recipe.suite.to_owned(), root.to_string_lossy().into_owned()]);
    let ran = run("mmdebstrap", &words, LIMIT)?;
    let errors = || ran.stderr.lines().filter(|line| line.starts_with("E:")).collect::<Vec<_>>();
    ensure!(ran.status == Some(0), "mmdebstrap {}: {}", recipe.suite, errors().join("; "));
    Ok(())
}

/// Returns the files that contain settings for apt's downloads on this host.
fn settings() -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(APT_SETTINGS) else { return Ok(Vec::new()) };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.lines().any(|line| line.starts_with("Acquire")) {
            files.push(path);
        }
    }
    Ok(files)
}

fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let words = ["-rf", "--one-file-system", "--", &folder.to_string_lossy()];
    let ran = run("rm", &words, LIMIT)?;
    ensure!(ran.status == Some(0), "{}", ran.stderr.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn recent_chroot_with_the_same_content_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("sid.packages");
        let record = |packages, hook| Recipe { name: "sid", suite: "sid", packages, hook }.record();
        let both = record(&["bind9", "unbound"], "");
        assert!(!is_recent(&list, &both), "there is none");
        fs::write(&list, &both).unwrap();
        assert!(is_recent(&list, &both));
        assert!(!is_recent(&list, &record(&["bind9"], "")), "other packages");
        assert!(!is_recent(&list, &record(&["bind9", "unbound"], "true")), "another hook");
        let file = fs::File::options().write(true).open(&list).unwrap();
        file.set_modified(SystemTime::now() - WEEK).unwrap();
        assert!(!is_recent(&list, &both));
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let ran = run("sh", &["-c", &format!("printf %s {}", quoted("a'b \"$c"))], LIMIT).unwrap();
        assert_eq!(ran.stdout, "a'b \"$c");
    }

    #[test]
    fn a_start_script_reads_the_words_before_its_program() {
        assert!(within(&[]).is_empty());
        let words = ["nice", "-n", "5"].map(str::to_owned);
        assert_eq!(within(&words), ["env", "DNS64BENCH_WITHIN=nice -n 5"]);
        assert!(START.contains(&format!("${WITHIN} \"$program\"")));
    }

    #[test]
    fn a_start_script_names_the_program_of_the_chroot() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a chroot");
        fs::create_dir_all(root.join("usr/sbin")).unwrap();
        fs::write(root.join("usr/sbin/named"), "").unwrap();
        let chroot = Chroot { root, shared: "/no/such/folder".into() };
        let script = chroot.start_script("named", &folder.path().join("script")).unwrap();
        let text = fs::read_to_string(&script).unwrap();
        assert!(text.contains("/a chroot' '/no/such/folder' '/usr/sbin/named' \"$@\""), "{text}");
        assert!(chroot.start_script("kresd", &folder.path().join("other")).is_err());
    }
}
