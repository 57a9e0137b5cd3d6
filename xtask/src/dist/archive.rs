//! Archives for any Linux system. Users unpack them below a prefix such as `~/.local` or `/usr/local`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::files::{LIMIT, PROGRAMS, SCHEMA, VERSION, example};
use super::stage::Stage;
use crate::process::{host, output, root};

/// Files of the stage and of the repository, and their paths in an archive.
const CONTENTS: [(&str, &str); 7] = [
    ("man1", "share/man/man1"),
    ("man5", "share/man/man5"),
    ("completions/bash", "share/bash-completion/completions"),
    ("completions/zsh", "share/zsh/site-functions"),
    ("completions/fish", "share/fish/vendor_completions.d"),
    ("bin", "bin"),
    ("THIRD-PARTY", "share/doc/dns64bench/THIRD-PARTY"),
];
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Packs the stage into archives in the folder `to`, and returns the file names of the archives.
pub(super) fn build(stage: &Stage, to: &Path) -> Result<Vec<String>> {
    let name = format!("dns64bench-{VERSION}-{}", target(&stage.folder)?);
    let parent = to.join("archive");
    let tree = parent.join(&name);
    for (from, place) in CONTENTS {
        copy(&stage.folder.join(from), &tree.join(place))?;
    }
    for document in DOCUMENTS {
        copy(&root().join(document), &tree.join("share/doc/dns64bench").join(document))?;
    }
    let beside = tree.join("share/doc/dns64d");
    copy(&root().join(SCHEMA), &beside.join("dns64d.schema.json"))?;
    fs::write(beside.join("dns64d.toml"), example(Some("dns64d.schema.json"))?)?;
    copy(&root().join("dist/systemd"), &tree.join("share/doc/dns64d/systemd"))?;
    let mut made = Vec::new();
    for (suffix, compressor) in [("tar.gz", "gzip -9n"), ("tar.zst", "zstd -19 -q")] {
        let file = format!("{name}.{suffix}");
        let [parent, path] =
            [parent.clone(), to.join(&file)].map(|path| path.to_string_lossy().into_owned());
        let time = format!("--mtime=@{}", stage.epoch);
        let same = [
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u+rw,go=rX",
            "--format=gnu",
        ];
        let args =
            [&same[..], &[time.as_str(), "-C", &parent, "-I", compressor, "-cf", &path, &name]]
                .concat();
        output("tar", &args, LIMIT)?;
        made.push(file);
    }
    fs::remove_dir_all(parent)?;
    Ok(made)
}

/// Returns the platform that the programs need: the compiler's target, and the minimum version of glibc.
fn target(stage: &Path) -> Result<String> {
    let host = host()?;
    let mut newest = (0, 0);
    for program in PROGRAMS {
        let path = stage.join("bin").join(program).to_string_lossy().into_owned();
        let symbols = output("objdump", &["-T", &path], LIMIT)?;
        newest = newest.max(newest_glibc(&symbols));
    }
    Ok(format!("{host}-{}.{}", newest.0, newest.1))
}

/// Returns the highest version of glibc to which a program's symbols refer.
fn newest_glibc(symbols: &str) -> (u32, u32) {
    let version = |word: &str| {
        let (major, minor) =
            word.trim_matches(['(', ')']).strip_prefix("GLIBC_")?.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    };
    symbols.split_whitespace().filter_map(version).max().unwrap_or_default()
}

/// Copies a file or the files of a folder.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().context("it has a parent folder")?)?;
        return fs::copy(from, to)
            .map(drop)
            .with_context(|| format!("cannot copy {}", from.display()));
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let symbols = "0 DF *UND* 0 (GLIBC_2.2.5) memcpy\n0 DF *UND* 0 (GLIBC_2.34) pthread_create\n0 DF (GLIBC_2.9) x (GCC_4.2) y";
        assert_eq!(newest_glibc(symbols), (2, 34));
        assert_eq!(newest_glibc("nothing"), (0, 0));
    }
}
