//! `tools`: the programs from crates.io that checks and packages need, at fixed versions.
//!
//! They are compiled once, into a folder outside `target`, so that `cargo clean` and fresh clones
//! keep them: `$DNS64BENCH_TOOLS`, or `dns64bench/tools` in `$XDG_CACHE_HOME` or `~/.cache`. Speed
//! of compiling counts more than their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::process::{find, root, target};

/// A program of crates.io.
struct Tool {
    /// The package's and the program's name.
    name: &'static str,
    /// The version that was tried, and that is installed.
    version: &'static str,
    /// What it is needed for.
    purpose: &'static str,
    /// Whether a check of CI needs it.
    is_for_ci: bool,
}

/// All of them. To move to another version, write it here.
const TOOLS: [Tool; 4] = [
    Tool {
        name: "cargo-deny",
        version: "0.20.2",
        purpose: "licenses and sources of dependencies",
        is_for_ci: true,
    },
    Tool { name: "mdbook", version: "0.5.4", purpose: "the book", is_for_ci: true },
    Tool { name: "cargo-deb", version: "3.8.0", purpose: "Debian packages", is_for_ci: true },
    Tool { name: "cargo-mutants", version: "27.1.0", purpose: "mutation tests", is_for_ci: false },
];

/// Compiles in less time than the release profile of these packages would take.
const FAST: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// Only these
    #[arg(value_parser = TOOLS.map(|tool| tool.name))]
    names: Vec<String>,
    /// Only those that CI needs
    #[arg(long, conflicts_with = "names")]
    ci: bool,
}

impl Tools {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let wanted = |tool: &&Tool| match self.ci {
            true => tool.is_for_ci,
            false => self.names.is_empty() || self.names.iter().any(|name| name == tool.name),
        };
        for tool in TOOLS.iter().filter(wanted) {
            install(tool)?;
        }
        println!("In {}", folder()?.join("bin").display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Where a tool is: as `cargo xtask tools` installed it at its fixed version, or else on the path,
/// in whatever version.
pub(crate) fn locate(name: &str) -> Option<PathBuf> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    let ours =
        folder().ok().map(|folder| folder.join("bin").join(name)).filter(|_| is_installed(tool));
    ours.or_else(|| find(name))
}

/// Installs one tool if it is not there, and returns where it is.
///
/// # Errors
/// If there is no such tool in the list, or cargo cannot install it.
pub(crate) fn get(name: &str) -> Result<PathBuf> {
    let tool = TOOLS
        .iter()
        .find(|tool| tool.name == name)
        .with_context(|| format!("{name} is not in the list"))?;
    install(tool)?;
    Ok(folder()?.join("bin").join(name))
}

fn folder() -> Result<PathBuf> {
    let path = |variable: &str| {
        std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
    };
    if let Some(folder) = path("DNS64BENCH_TOOLS") {
        return Ok(folder);
    }
    let cache = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    Ok(cache
        .context("neither DNS64BENCH_TOOLS, XDG_CACHE_HOME nor HOME is set")?
        .join("dns64bench/tools"))
}

/// Whether cargo's own list of what it installed there has this version.
fn is_installed(tool: &Tool) -> bool {
    let Ok(folder) = folder() else { return false };
    let listed = fs::read_to_string(folder.join(".crates.toml")).unwrap_or_default();
    is_listed(&listed, tool) && folder.join("bin").join(tool.name).is_file()
}

fn is_listed(listed: &str, tool: &Tool) -> bool {
    let entry = format!("\"{} {} (", tool.name, tool.version);
    listed.lines().any(|line| line.starts_with(&entry))
}

fn install(tool: &Tool) -> Result<()> {
    let Tool { name, version, purpose, .. } = tool;
    if is_installed(tool) {
        println!("{name} {version} ({purpose}): there already");
        return Ok(());
    }
    println!("{name} {version} ({purpose}): compiling");
    let (start, folder) = (Instant::now(), folder()?);
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["install", "--quiet", "--locked", name, "--version", version, "--root"])
        .arg(&folder);
    // One folder for all: the packages that several of them need are compiled once.
    command.env("CARGO_TARGET_DIR", target().join("tools")).envs(FAST).current_dir(root());
    // A package that names a toolchain of its own is compiled by this one all the same.
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    command.env("RUSTC", if rustc.is_file() { rustc } else { "rustc".into() });
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo install {name} failed");
    if !is_installed(tool) {
        bail!("cargo installed {name}, and yet it is not in {}", folder.display());
    }
    println!("{name} {version}: {} s", start.elapsed().as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_another_name_is_not_the_tool() {
        let tool = Tool { name: "mdbook", version: "0.5.4", purpose: "", is_for_ci: true };
        let registry = "registry+https://github.com/rust-lang/crates.io-index";
        let list = |name_and_version: &str| {
            format!("[v1]\n\"{name_and_version} ({registry})\" = [\"mdbook\"]\n")
        };
        assert!(is_listed(&list("mdbook 0.5.4"), &tool));
        for other in ["mdbook 0.5.40", "mdbook 0.5.3", "mdbook-toc 0.5.4", "amdbook 0.5.4"] {
            assert!(!is_listed(&list(other), &tool), "{other}");
        }
        assert!(!is_listed("", &tool));
    }
}
