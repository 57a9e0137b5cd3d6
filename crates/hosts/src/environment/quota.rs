//! CPU quotas of control groups (cgroup v2, `cpu.max`), as used for containers and services. A
//! process that has used up its quota does not run again until the next period.

use std::path::{Path, PathBuf};

use crate::environment::finding::{Finding, finding};
use crate::environment::tree::{MOUNTS, OWN, Tree};

/// A CPU quota of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// Quota in thousandths of a CPU.
    pub(crate) millicpu: u64,
    /// The file that sets the quota.
    file: PathBuf,
}

/// Returns the smallest quota of a control group and its ancestor groups. `membership` is the text of
/// `/proc/PID/cgroup`.
pub(crate) fn smallest(tree: &Tree, membership: &str) -> Option<Quota> {
    let files = files(membership);
    let quotas = files.into_iter().filter_map(|file| {
        let millicpu = parse(&tree.read(&file)?)?;
        Some(Quota { millicpu, file })
    });
    quotas.min_by_key(|quota| quota.millicpu)
}

/// Returns the paths of files that may set a quota for a process. `membership` is the text of `/proc/PID/cgroup`.
pub(crate) fn files(membership: &str) -> Vec<PathBuf> {
    let Some(group) = membership.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Vec::new();
    };
    let groups: Vec<&Path> = Path::new(group).ancestors().collect();
    let of = |mount: &str| {
        let at = |group: &&Path| Path::new(mount).join(group).join("cpu.max");
        groups.iter().map(at).collect::<Vec<_>>()
    };
    MOUNTS.into_iter().flat_map(of).collect()
}

/// Parses the text of `cpu.max`, which is a quota and a period in µs. Returns the quota in
/// thousandths of a CPU, or `None` for `max`.
fn parse(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (quota * 1_000).checked_div(period)
}

/// Returns the finding about the CPU quota of this process, or `None` if the kernel has no control
/// groups.
pub(super) fn own(tree: &Tree) -> Option<Finding> {
    let membership = tree.read(OWN)?;
    let subject = "CPU quota of control groups";
    let Some(quota) = smallest(tree, &membership) else { return Some(finding(subject, "none")) };
    let why = "a process that has used its quota waits for the next period: queries are sent late, and replies are lost";
    let (value, file) = (in_words(quota.millicpu), quota.file.display());
    let fix = format!("echo max > {file}");
    Some(finding(subject, format!("{value} ({file})")).concern_if(true, why, Some(&fix)))
}

/// Formats a quota, such as `0.05 CPUs`.
pub(crate) fn in_words(millicpu: u64) -> String {
    format!("{} {}", millicpu as f64 / 1e3, if millicpu == 1_000 { "CPU" } else { "CPUs" })
}

#[cfg(test)]
mod tests {
    use crate::environment::tree::tests::recorded;

    use super::*;

    const MEMBERSHIP: &str = "9:name=systemd:/\n0::/a.slice/b.service\n";

    #[test]
    fn the_smallest_quota_up_to_the_root_counts() {
        let of =
            |files: &[(&str, &str)]| smallest(&recorded(files), MEMBERSHIP).map(|q| q.millicpu);
        let (own, above, root) = (
            "/sys/fs/cgroup/a.slice/b.service/cpu.max",
            "/sys/fs/cgroup/a.slice/cpu.max",
            "/sys/fs/cgroup/cpu.max",
        );
        for (files, millicpu) in [
            (&[(own, "5000 100000\n")][..], Some(50)),
            (&[(own, "max 100000\n"), (above, "150000 100000\n")], Some(1_500)),
            (
                &[(own, "200000 100000\n"), (above, "50000 100000\n"), (root, "max 100000\n")],
                Some(500),
            ),
            (&[(root, "200000 100000\n")], Some(2_000)),
            (&[("/sys/fs/cgroup/unified/a.slice/cpu.max", "1000 100000\n")], Some(10)),
            (&[(own, "max 100000\n")], None),
            (&[("/sys/fs/cgroup/other/cpu.max", "5000 100000\n")], None),
            (&[(own, "nonsense\n"), (above, "1 0\n")], None),
            (&[], None),
        ] {
            assert_eq!(of(files), millicpu, "{files:?}");
        }
        assert_eq!(
            smallest(&recorded(&[(own, "5000 100000\n")]), "3:cpu:/a.slice/b.service\n"),
            None
        );
    }

    #[test]
    fn a_quota_of_this_process_is_a_concern() {
        let tree = recorded(&[(OWN, "0::/x\n"), ("/sys/fs/cgroup/x/cpu.max", "5000 100000\n")]);
        let found = own(&tree).unwrap();
        assert_eq!(found.value, "0.05 CPUs (/sys/fs/cgroup/x/cpu.max)");
        assert_eq!(found.concern.unwrap().fix.unwrap(), "echo max > /sys/fs/cgroup/x/cpu.max");
        let free = own(&recorded(&[(OWN, "0::/x\n")])).unwrap();
        assert_eq!((free.value.as_str(), free.concern), ("none", None));
        assert_eq!(own(&recorded(&[])), None);
    }

    #[test]
    fn a_shell_prints_the_same_quotas() {
        let output =
            std::process::Command::new("sh").arg("-c").arg(Tree::script()).output().unwrap();
        let printed = Tree::printed(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(own(&printed), own(&Tree::here()));
    }
}
