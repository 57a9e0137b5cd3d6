//! Container images, each of which contains only a static program and its configuration.
//!
//! The programs are linked with musl if its target is installed, and otherwise with a static glibc. A static glibc
//! looks up users and hosts in files and DNS, which is sufficient in an image. On other systems, a static glibc might
//! load modules of a different version, so it is used only for images.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::files::{LIMIT, PROGRAMS, example, strip};
use crate::process::{self, Build, find, host, output, root};

/// Folder of the static programs, below the workspace.
pub(crate) const STATIC_PROGRAMS: &str = "target/dist/static";

/// Builds static programs and, if buildah is installed, images that contain the programs. Returns the file names of the
/// archives.
pub(super) fn build(to: &Path) -> Result<Vec<String>> {
    let (target, flags) = target()?;
    println!("Static programs for {target}");
    let words: Vec<&str> = Build::Dist.words().split(' ').chain(["--target", &target]).collect();
    process::in_workspace(env!("CARGO"), &words, &[("RUSTFLAGS", flags.to_owned())])?;
    let built = process::target();
    let context = root().join(STATIC_PROGRAMS);
    for program in PROGRAMS {
        strip(&built.join(&target).join("dist").join(program), &context.join(program))?;
    }
    fs::write(context.join("dns64d.toml"), example(None)?)?;
    let Some(builder) = Builder::find(&context)? else {
        println!("No images: buildah is not installed");
        return Ok(Vec::new());
    };
    let mut made = Vec::new();
    for program in PROGRAMS {
        let file = format!("{program}-image.tar");
        builder.build(program, &context)?;
        let archive = format!("docker-archive:{}:{program}:latest", to.join(&file).display());
        builder.run(&["push", &format!("localhost/{program}"), &archive])?;
        made.push(file);
    }
    Ok(made)
}

/// Returns the target of the static build, and the flags of the compiler.
fn target() -> Result<(String, &'static str)> {
    let host = host()?;
    let musl = host.replace("-gnu", "-musl");
    let libraries = output("rustc", &["--print", "target-libdir", "--target", &musl], LIMIT)?;
    if Path::new(libraries.trim()).is_dir() {
        Ok((musl, ""))
    } else {
        Ok((host, "-Ctarget-feature=+crt-static"))
    }
}

/// An installed buildah, and options that make it use separate storage.
pub(crate) struct Builder {
    program: PathBuf,
    storage: Vec<String>,
}

impl Builder {
    /// Finds an installed buildah. `folder` will contain its storage.
    pub(crate) fn find(folder: &Path) -> Result<Option<Builder>> {
        let Some(program) = find("buildah") else { return Ok(None) };
        let mut storage: Vec<String> = vec!["--storage-driver".into(), "vfs".into()];
        for (option, name) in [("--root", "storage"), ("--runroot", "run")] {
            let path = folder.join(".images").join(name);
            fs::create_dir_all(&path)?;
            storage.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        }
        Ok(Some(Builder { program, storage }))
    }

    /// Returns the path of buildah.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Builds the image of a program from its Containerfile; nothing is downloaded.
    pub(crate) fn build(&self, program: &str, context: &Path) -> Result<()> {
        let file = root().join("dist/containers").join(format!("Containerfile.{program}"));
        let [file, context] = [&*file, context].map(|path| path.to_string_lossy().into_owned());
        let args = [
            "build",
            "--isolation",
            "chroot",
            "--pull-never",
            "--timestamp",
            "0",
            "-t",
            program,
            "-f",
            &file,
        ];
        self.run(&[&args[..], &[context.as_str()]].concat()).map(drop)
    }

    /// Runs buildah with this storage, and returns its standard output.
    pub(crate) fn run(&self, args: &[&str]) -> Result<String> {
        output(&self.program, &self.words(args), LIMIT)
    }

    /// Returns the arguments of buildah for a command with this storage.
    pub(crate) fn words<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        self.storage.iter().map(String::as_str).chain(args.iter().copied()).collect()
    }
}
