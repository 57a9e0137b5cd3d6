//! Chroots that contain the servers of a Debian release. They are created with mmdebstrap, and kept for a week in
//! `dns64bench/chroots` in `$XDG_CACHE_HOME` or `~/.cache`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::run;
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

/// Runs the program $3 in the chroot $1, in which the folder $2 is visible at the same path. The program replaces this
/// process and has the same process ID. The mounts disappear when it ends.
const START: &str = "mount --bind \"$2\" \"$1$2\" && mount --rbind /proc \"$1/proc\" || exit 1; \
                     root=$1; program=$3; shift 3; exec chroot \"$root\" \"$program\" \"$@\"";

/// A chroot, and a folder of this host that is visible in the chroot.
pub(super) struct Chroot {
    root: PathBuf,
    shared: PathBuf,
}

impl Chroot {
    /// Returns the chroot of a release with these packages. The chroot is created if there is none that was created
    /// this week, or if `fresh` is true.
    ///
    /// # Errors
    /// Returns an error if the chroot cannot be created.
    pub(super) fn of(suite: &str, packages: &[&str], shared: &Path, fresh: bool) -> Result<Chroot> {
        let all = tools::cache()?.join("chroots");
        let (root, list) = (all.join(suite), all.join(format!("{suite}.packages")));
        if fresh || !is_recent(&list, packages) {
            println!("Creating a chroot of {suite} in {}", root.display());
            fs::create_dir_all(&all)?;
            let new = all.join(format!("{suite}.new"));
            remove(&new)?;
            make(suite, packages, &new)?;
            remove(&root)?;
            fs::rename(&new, &root)?;
            fs::write(&list, packages.join(" "))?;
        }
        let chroot = Chroot { root, shared: shared.into() };
        fs::create_dir_all(chroot.inside())?;
        Ok(chroot)
    }

    /// Returns the path of the shared folder on this host.
    fn inside(&self) -> PathBuf {
        self.root.join(self.shared.strip_prefix("/").unwrap_or(&self.shared))
    }

    /// Writes a script to `path` that runs a program in the chroot and passes its arguments on to the program.
    ///
    /// # Errors
    /// Returns an error if the chroot has no such program.
    pub(super) fn start_script(&self, program: &str, path: &Path) -> Result<PathBuf> {
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

/// True if the file with the list of packages was written this week and contains these packages.
fn is_recent(list: &Path, packages: &[&str]) -> bool {
    let age = || fs::metadata(list).ok()?.modified().ok()?.elapsed().ok();
    fs::read_to_string(list).is_ok_and(|text| text == packages.join(" "))
        && age().is_some_and(|age| age < WEEK)
}

fn make(suite: &str, packages: &[&str], root: &Path) -> Result<()> {
    let mut words = vec!["--quiet".to_owned(), "--mode=root".into(), "--variant=minbase".into()];
    words.extend(OPTIONS.map(str::to_owned));
    words.extend(settings()?.iter().map(|file| format!("--aptopt={}", file.display())));
    if Path::new(MERGED_USR).is_dir() {
        words.push(format!("--hook-dir={MERGED_USR}"));
    }
    words.push(format!("--include={}", packages.join(",")));
    words.extend([suite.to_owned(), root.to_string_lossy().into_owned()]);
    let ran = run("mmdebstrap", &words, LIMIT)?;
    let errors = || ran.stderr.lines().filter(|line| line.starts_with("E:")).collect::<Vec<_>>();
    ensure!(ran.status == Some(0), "mmdebstrap {suite}: {}", errors().join("; "));
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
    fn recent_chroot_with_the_same_packages_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("sid.packages");
        assert!(!is_recent(&list, &["bind9"]), "there is none");
        fs::write(&list, "bind9 unbound").unwrap();
        assert!(is_recent(&list, &["bind9", "unbound"]) && !is_recent(&list, &["bind9"]));
        let file = fs::File::options().write(true).open(&list).unwrap();
        file.set_modified(SystemTime::now() - WEEK).unwrap();
        assert!(!is_recent(&list, &["bind9", "unbound"]));
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let ran = run("sh", &["-c", &format!("printf %s {}", quoted("a'b \"$c"))], LIMIT).unwrap();
        assert_eq!(ran.stdout, "a'b \"$c");
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
