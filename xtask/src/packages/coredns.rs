//! Installation of CoreDNS, for which Debian has no package. Go's module proxy provides fixed versions of CoreDNS's
//! modules, and a compiler if Debian's compiler is too old. Go verifies all downloads with its checksum database.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{self, find};

/// Go module and version to install.
const COREDNS: &str = "github.com/coredns/coredns@v1.12.4";
/// Folder for the installed program.
const BIN: &str = "/usr/local/bin";
/// Oldest Go version that compiles CoreDNS.
const OLDEST: [u32; 2] = [1, 24];
const COMPILER: &str = "go1.24.4";
/// Time limit of Go, which downloads several hundred megabytes.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Program of the compiler, and its Debian package. The package counts as installed if the program is found.
pub(super) const GO: (&str, &str) = ("go", "golang-go");

/// True if CoreDNS is missing. An existing CoreDNS is not replaced, even if it is not on the search path.
pub(super) fn is_missing() -> bool {
    find("coredns").is_none() && !Path::new(BIN).join("coredns").exists()
}

/// Compiles CoreDNS and installs it.
///
/// # Errors
/// Returns an error if Go fails.
pub(super) fn install() -> Result<()> {
    let go = find("go").context("there is no go (Debian package golang-go)")?;
    let folder = tempfile::tempdir()?;
    let version = process::output(&go, &["env", "GOVERSION"], PATIENCE)?;
    let mut command = if is_new_enough(&version) {
        Command::new(go)
    } else {
        let root = compiler(&go, folder.path())?;
        let mut command = Command::new(root.join("bin/go"));
        command.env("GOROOT", &root).env("GOTOOLCHAIN", "local");
        // Downloads and build results are removed with the folder, because they take gigabytes.
        command.env("GOCACHE", folder.path().join("cache")).envs(modules_in(folder.path()));
        command
    };
    let ran = command.args(["install", COREDNS]).env("GOBIN", BIN).output();
    let ran = ran.context("cannot run go")?;
    ensure!(ran.status.success(), "go install: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(())
}

/// True if the version printed by `go env GOVERSION`, such as go1.19.8, is at least [`OLDEST`].
fn is_new_enough(version: &str) -> bool {
    let numbers = version.trim().strip_prefix("go").unwrap_or_default().split('.');
    let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    numbers.len() >= OLDEST.len() && numbers[..] >= OLDEST[..]
}

/// Downloads a compiler, as a Go module, into a folder and returns its GOROOT. Go 1.21 and later could download a newer
/// compiler by themselves, but earlier versions cannot.
fn compiler(go: &Path, folder: &Path) -> Result<PathBuf> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let module = format!("golang.org/toolchain@v0.0.1-{COMPILER}.linux-{machine}");
    fs::write(folder.join("go.mod"), "module nothing\n")?;
    let ran = Command::new(go)
        .args(["mod", "download", "-json", &module])
        .current_dir(folder)
        .envs(modules_in(folder))
        .output()
        .context("cannot run go")?;
    ensure!(ran.status.success(), "{module}: {}", String::from_utf8_lossy(&ran.stderr));
    let told: Value = serde_json::from_slice(&ran.stdout).context("output of go about a module")?;
    let root = PathBuf::from(told["Dir"].as_str().context("go reports no folder of a module")?);
    // Go modules do not record file modes, so programs are recognized by their folders.
    make_executable(&root.join("bin"))?;
    make_executable(&root.join("pkg/tool"))?;
    Ok(root)
}

/// Returns environment variables that make Go store its modules in a folder, from which they can be removed.
fn modules_in(folder: &Path) -> [(&'static str, PathBuf); 2] {
    [("GOPATH", folder.join("modules")), ("GOFLAGS", "-modcacherw".into())]
}

/// Makes all files of a folder and its subfolders executable.
fn make_executable(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            make_executable(&path)?;
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_old_or_new_by_number() {
        for new in ["go1.24.0\n", "go1.24", "go1.100.1", "go2.0.1", "go1.26.8"] {
            assert!(is_new_enough(new), "{new}");
        }
        for old in ["go1.19.8", "go1.23.9", "go1.3", "go1", "", "devel +b7a85e0"] {
            assert!(!is_new_enough(old), "{old}");
        }
    }

    #[test]
    fn all_files_below_a_folder_become_programs() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("linux_amd64");
        fs::create_dir(&below).unwrap();
        for file in [folder.path().join("go"), below.join("compile")] {
            fs::write(&file, "#!/bin/sh\n").unwrap();
        }
        make_executable(folder.path()).unwrap();
        assert!(Command::new(folder.path().join("go")).status().unwrap().success());
        assert!(Command::new(below.join("compile")).status().unwrap().success());
        assert!(make_executable(&folder.path().join("none")).is_err());
    }
}
