//! Source of facts about a host: its files in /proc and /sys, or the contents of these files as
//! printed by a shell on the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Shell patterns of the files that are read on a host without dns64bench ([`Tree::printed`]). Symbolic links are
/// followed.
const FILES: &str = "/proc/self/cgroup /proc/sys/kernel/hostname /proc/version /proc/cpuinfo /proc/meminfo /proc/stat /proc/net/dev /proc/interrupts \
    /proc/sys/net/core/rmem_max /proc/sys/net/core/wmem_max /proc/sys/net/core/netdev_max_backlog /proc/sys/kernel/sched_autogroup_enabled \
    /proc/sys/net/netfilter/nf_conntrack_count /proc/sys/net/netfilter/nf_conntrack_max /proc/irq/*/smp_affinity_list \
    /sys/devices/system/cpu/smt/active /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor \
    /sys/devices/system/cpu/intel_pstate/no_turbo /sys/devices/system/cpu/cpufreq/boost \
    /sys/devices/system/clocksource/clocksource0/current_clocksource /sys/devices/system/node/node*/cpulist \
    /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/class/dmi/id/board_name /sys/class/dmi/id/bios_vendor \
    /sys/class/dmi/id/bios_version /sys/class/dmi/id/bios_date /sys/class/net/*/operstate /sys/class/net/*/speed \
    /sys/class/net/*/queues/*/byte_queue_limits/limit /sys/class/net/*/queues/*/rps_cpus /sys/class/net/*/device/numa_node";
/// Symbolic links. The path of the target is used as a fact.
const LINKS: &str = "/sys/class/net/*/device /sys/class/net/*/device/driver";
/// Folders with files that are not read. The names of the files are used as facts.
const FOLDERS: &str = "/sys/class/net/*/device/msi_irqs";
/// First word of the line that precedes each file in the output of [`Tree::script`].
const MARK: &str = "dns64bench-file ";

/// The files of /proc and /sys that describe a host.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// Files below a folder: the root folder of this host, or a folder with recorded files of a different host.
    Disk(PathBuf),
    /// Contents of files, by absolute path. For a symbolic link, the stored text is the path of its target.
    Printed(BTreeMap<PathBuf, String>),
}

impl Tree {
    /// Returns the files of this host.
    pub(crate) fn here() -> Tree {
        Tree::Disk("/".into())
    }

    /// Returns a POSIX shell script that prints all files. The output of this script is the input of [`Tree::printed`].
    /// The script never fails, because it omits missing files.
    pub(crate) fn script() -> String {
        format!(
            "{}; for f in {LINKS}; do [ -e \"$f\" ] && echo \"{MARK}$f\" && readlink -f \"$f\"; done; \
             for f in {FOLDERS}; do [ -d \"$f\" ] && for g in \"$f\"/*; do echo \"{MARK}$g\"; done; done; \
             for f in /proc/[0-9]*/comm; do read -r c 2>/dev/null <\"$f\" && [ \"$c\" = irqbalance ] && echo \"{MARK}$f\" && echo \"$c\"; done; {}",
            Tree::script_for(FILES),
            quota_script()
        )
    }

    /// Returns a script like that of [`Tree::script`], but for the files that match the shell patterns `files`. The
    /// output of this script is the input of [`Tree::printed`].
    pub(crate) fn script_for(files: &str) -> String {
        format!(
            "for f in {files}; do [ -r \"$f\" ] && echo \"{MARK}$f\" && cat \"$f\" 2>/dev/null; done; :"
        )
    }

    /// Returns a POSIX shell script that prints the contents of the file `path`. In the output, the path of the file is
    /// `name`.
    pub(crate) fn script_of(path: &str, name: &str) -> String {
        format!("echo '{MARK}{name}'; cat {path}")
    }

    /// Parses the output of the script that [`Tree::script`] returns.
    pub(crate) fn printed(text: &str) -> Tree {
        let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut path = PathBuf::new();
        for line in text.lines() {
            if let Some(begins) = line.strip_prefix(MARK) {
                path = PathBuf::from(begins);
                files.insert(path.clone(), String::new());
            } else if let Some(text) = files.get_mut(&path) {
                text.push_str(line);
                text.push('\n');
            }
        }
        Tree::Printed(files)
    }

    /// Returns the text of a file, trimmed, or `None` if it does not exist or is not readable.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = path.as_ref();
        let text = match self {
            Tree::Disk(root) => fs::read_to_string(below(root, path)).ok()?,
            Tree::Printed(files) => files.get(path)?.clone(),
        };
        Some(text.trim().to_owned())
    }

    /// Returns the names in a folder, sorted by the number at the end of each name. The list is
    /// empty if the folder does not exist.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let folder = folder.as_ref();
        let mut names: Vec<String> = match self {
            Tree::Disk(root) => {
                let entries = fs::read_dir(below(root, folder)).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
            Tree::Printed(files) => {
                let first = |path: &PathBuf| {
                    let name = path.strip_prefix(folder).ok()?.components().next()?;
                    Some(name.as_os_str().to_string_lossy().into_owned())
                };
                files.keys().filter_map(first).collect()
            }
        };
        names.sort_by_key(|name| (number_in(name), name.clone()));
        names.dedup();
        names
    }

    /// Returns the file name of a symbolic link's target, or `None` if there is no link.
    pub(crate) fn end_of(&self, link: impl AsRef<Path>) -> Option<String> {
        let link = link.as_ref();
        let end = match self {
            Tree::Disk(root) => fs::read_link(below(root, link)).ok()?,
            Tree::Printed(files) => PathBuf::from(files.get(link)?.trim()),
        };
        Some(end.file_name()?.to_string_lossy().into_owned())
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the number at the end of a name such as `node10`, for sorting in numeric order.
fn number_in(name: &str) -> Option<u64> {
    name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

/// Possible mount points of cgroup v2. Hosts without cgroup v1 use the first. Hosts that also use cgroup v1 use the
/// second.
pub(super) const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// File that lists the control groups of the process that reads it.
pub(super) const OWN: &str = "/proc/self/cgroup";

/// Returns a POSIX shell script that prints the files with the CPU quotas of the shell that runs the script. The output
/// of this script is the input of [`Tree::printed`].
fn quota_script() -> String {
    let print = Tree::script_for("\"$m$g/cpu.max\"");
    format!(
        "g=$(sed -n 's/^0:://p' {OWN} 2>/dev/null); g=${{g%/}}; while :; do for m in {}; do {print}; done; \
         [ -n \"$g\" ] || break; g=${{g%/*}}; done; :",
        MOUNTS.join(" ")
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a simulated tree of files, with texts that were recorded on a real machine.
    pub(crate) fn recorded(files: &[(&str, &str)]) -> Tree {
        Tree::Printed(
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect(),
        )
    }

    /// Builds a tree from lines of the form `FILE:LINE`, as printed by grep.
    pub(crate) fn from_lines(text: &str) -> Tree {
        let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (path, line) in text.lines().filter_map(|line| line.split_once(':')) {
            *files.entry(path.into()).or_default() += &format!("{line}\n");
        }
        Tree::Printed(files)
    }

    #[test]
    fn a_shell_prints_the_same_files() {
        let output =
            std::process::Command::new("sh").arg("-c").arg(Tree::script()).output().unwrap();
        assert!(output.status.success());
        let (printed, here) =
            (Tree::printed(&String::from_utf8_lossy(&output.stdout)), Tree::here());
        for path in
            ["/proc/version", "/proc/sys/net/core/rmem_max", "/sys/devices/system/cpu/smt/active"]
        {
            assert_eq!(printed.read(path), here.read(path), "{path}");
        }
        let nodes = |tree: &Tree| {
            let names = tree.names("/sys/devices/system/node").into_iter();
            names
                .filter(|name| {
                    tree.read(format!("/sys/devices/system/node/{name}/cpulist")).is_some()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(nodes(&printed), nodes(&here));
    }

    #[test]
    fn names_are_sorted_by_their_numbers() {
        let tree = recorded(&[
            ("/n/node10/cpulist", "1"),
            ("/n/node9/cpulist", "0"),
            ("/n/node9/x", ""),
            ("/m/node1/x", ""),
        ]);
        assert_eq!(tree.names("/n"), ["node9", "node10"]);
        assert!(tree.names("/none").is_empty());
        assert_eq!(
            recorded(&[("/d/driver", "/sys/bus/pci/drivers/ixgbe\n")]).end_of("/d/driver").unwrap(),
            "ixgbe"
        );
    }
}
