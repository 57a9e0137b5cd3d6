//! The initial RAM disk of the guest: busybox and kernel modules from the chroot, programs of this host with their shared
//! libraries, and `guest.sh` as first process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::output;

/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(60);
/// First process of the guest.
const INIT: &str = include_str!("guest.sh");
/// Writes the files of the folder $1 into the archive $3 with the busybox $2.
const PACK: &str = "cd \"$1\" && find . | \"$2\" cpio -o -H newc >\"$3\"";

/// Creates the RAM disk in the folder `work`, and returns its path. `chroot` is the folder of the chroot.
///
/// # Errors
/// Returns an error if a file cannot be copied.
pub(super) fn create(chroot: &Path, programs: &[PathBuf], work: &Path) -> Result<PathBuf> {
    let (tree, disk) = (work.join("guest"), work.join("ramdisk"));
    output("cp", &[Path::new("-a"), &chroot.join("guest"), &tree], LIMIT)?;
    for program in programs {
        let name = program.file_name().context("a program without a name")?;
        copy(program, &tree.join("bin").join(name))?;
        for library in libraries(&output("ldd", &[program], LIMIT)?) {
            copy(Path::new(library), &tree.join(library.trim_start_matches('/')))?;
        }
    }
    let init = tree.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let busybox = tree.join("bin/busybox");
    let words = [Path::new("-c"), Path::new(PACK), Path::new("sh"), &tree, &busybox, &disk];
    output("sh", &words, LIMIT)?;
    Ok(disk)
}

/// Copies a file that does not exist yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        return Ok(());
    }
    fs::create_dir_all(to.parent().context("a file without a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Returns the paths of the shared libraries and of the loader in the output of ldd(1).
fn libraries(printed: &str) -> impl Iterator<Item = &str> {
    printed.split_whitespace().filter(|word| word.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_all_absolute_paths_of_ldd() {
        let printed = "\tlinux-vdso.so.1 (0x00007efd13888000)\n\
            \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007efd1370c000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007efd1388a000)\n";
        let expected = ["/lib/x86_64-linux-gnu/libelf.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert!(libraries(printed).eq(expected));
        assert_eq!(libraries("\tnot a dynamic executable\n").count(), 0);
    }
}
