//! Build script of the crates whose programs print their origin. It sets `BUILD_VERSION`, such as
//! `0.2.0 (486a6f3a1b2c)`: the version, and the commit, with a `+` if the sources differ from it. A
//! build for tests has `0.2.0 (dev)`, so that commits and edits elsewhere do not compile these crates
//! again. Outside a checkout of the repository it is the version alone.

use std::env;
use std::path::Path;
use std::process::Command;

/// What programs are built from, seen from a package.
const SOURCES: [&str; 3] = ["../../crates", "../../Cargo.toml", "../../Cargo.lock"];

/// What git prints, if it succeeds.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> Option<String> {
    // Sources that were unpacked within another repository are not of its commit.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // One that is not there would be taken as changed each time.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let same = git(&[&["diff", "--quiet", "HEAD", "--"][..], &SOURCES].concat()).is_some();
    Some(format!("{commit}{}", if same { "" } else { "+" }))
}

fn main() {
    println!("cargo::rerun-if-changed=../../build-version.rs");
    let version = env!("CARGO_PKG_VERSION");
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-env=BUILD_VERSION={version} (dev)");
        return;
    }
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let version = commit().map_or_else(|| version.to_owned(), |c| format!("{version} ({c})"));
    println!("cargo::rustc-env=BUILD_VERSION={version}");
}
