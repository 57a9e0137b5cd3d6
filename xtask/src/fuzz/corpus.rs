//! Corpus of a fuzz target in the repository. It contains hand-written seeds with descriptive names, and found inputs
//! that are named by their hash. Of the found inputs, only the shortest that are needed to reach the same code are
//! kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::root;

/// Maximum total size in octets, and maximum number, of the found inputs of a target in the repository.
const MOST_OCTETS: u64 = 64 << 10;
const MOST_FILES: usize = 400;

/// Replaces the found inputs of a target in the repository. The new inputs are selected from the old inputs and from
/// those in the folder `found`.
pub(super) fn keep(program: &Path, target: &str, found: &Path) -> Result<()> {
    let kept = root().join("fuzz/corpus").join(target);
    let merged = tempfile::tempdir()?;
    for seed in files(&kept)?.iter().filter(|file| !is_found(file)) {
        fs::copy(seed, merged.path().join(seed.file_name().unwrap_or_default()))?;
    }
    // An input is kept if it reaches code that neither seeds nor shorter inputs reach. Execution counts are ignored.
    let mut command = Command::new(program);
    command.args(["-merge=1", "-use_counters=0"]).args(options(target)?);
    command.arg(merged.path()).arg(&kept).arg(found).env("ASAN_OPTIONS", SANITIZER);
    let status = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run the target")?;
    ensure!(status.success(), "libFuzzer cannot merge the corpus of {target}");
    let new: Vec<PathBuf> =
        files(merged.path())?.into_iter().filter(|file| is_found(file)).collect();
    let all = new.len();
    let chosen = within(new, MOST_OCTETS, MOST_FILES)?;
    if chosen.len() < all {
        println!("{target}: the shortest {} of {all} inputs are kept", chosen.len());
    }
    for old in files(&kept)?.iter().filter(|file| is_found(file)) {
        fs::remove_file(old)?;
    }
    for input in chosen {
        fs::copy(&input, kept.join(input.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Returns true if libFuzzer named the file. The name is then the SHA-1 hash of the content.
fn is_found(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 40 && name.bytes().all(|octet| octet.is_ascii_hexdigit())
}

/// Returns the shortest of these files, up to the total size `octets` and the number `number`.
fn within(inputs: Vec<PathBuf>, octets: u64, number: usize) -> Result<Vec<PathBuf>> {
    let mut sized = Vec::new();
    for input in inputs {
        sized.push((fs::metadata(&input)?.len(), input));
    }
    sized.sort();
    let mut room = octets;
    let fits =
        |(len, _): &(u64, PathBuf)| room.checked_sub(*len).inspect(|left| room = *left).is_some();
    Ok(sized.into_iter().take_while(fits).take(number).map(|(_, input)| input).collect())
}

/// Sanitizer options that halve the run time of a target: less quarantined memory, and fewer recorded frames per
/// allocation. Detection of stack use after return is off, because it cannot occur in safe code. `--input` uses the
/// default options.
pub(super) const SANITIZER: &str =
    "quarantine_size_mb=16:malloc_context_size=2:detect_stack_use_after_return=0";

/// Returns libFuzzer's options for a target, one from each line of `fuzz/TARGET.options`.
pub(super) fn options(target: &str) -> Result<Vec<String>> {
    let file = root().join("fuzz").join(format!("{target}.options"));
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(|line| line.replace("{fuzz}", &root().join("fuzz").to_string_lossy())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_inputs_are_kept_as_many_as_fit() {
        let folder = tempfile::tempdir().unwrap();
        let inputs: Vec<PathBuf> = [5, 1, 3, 9]
            .map(|len| {
                let path = folder.path().join(format!("{len}"));
                fs::write(&path, vec![0; len]).unwrap();
                path
            })
            .into();
        let lens = |octets, number| {
            let kept = within(inputs.clone(), octets, number).unwrap();
            kept.iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lens(9, 10), ["1", "3", "5"]);
        assert_eq!(lens(8, 10), ["1", "3"]);
        assert_eq!(lens(100, 2), ["1", "3"]);
    }

    #[test]
    fn seeds_and_findings_differ_by_name() {
        assert!(is_found(Path::new("x/df588fc0dc7e20f6be1cd5f88735ae363140630f")));
        assert!(!is_found(Path::new("x/alias-long-ttl")) && !is_found(Path::new("x/df588fc0")));
    }
}
