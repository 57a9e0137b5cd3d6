//! Memory limits of the process, and the cache size that fits them.
//!
//! ```text
//! control groups, RLIMIT_AS, RLIMIT_DATA ─► MemoryLimit ─┬─► fit ─► cache.mebibytes, a warning
//! Settings ─► base: program, workers, threads ───────────┘    └───► InsufficientMemory: the server cannot start
//!          └► others: queries in flight, TCP replies
//! ```
//!
//! The program, its workers and its threads always need some memory (`base`). Under the worst load, queries in flight
//! and TCP replies need further memory (`others`). The cache gets the rest of the limit, but at least half of the
//! memory above `base`. With a small limit, a full cache therefore fits only under a usual load. With a large limit, it
//! also fits under the worst load that `[limits]` allows.

use std::path::{Component, Path, PathBuf};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use crate::config::{ListenKeys, ListenTransport, Settings, VALIDATOR_OCTETS};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Resident memory of the program with its fixed tables under load, in octets.
const PROGRAM: u64 = 12 * MIB;
/// Resident memory of a worker under load, in octets.
const WORKER: u64 = 6 * MIB;
/// Resident memory of a validation thread under load, in octets.
const VALIDATION_THREAD: u64 = 2 * MIB;
/// Address space, in octets, that the program's file and libraries occupy beyond their resident memory.
const MAPPED: u64 = 24 * MIB;
/// Address space, in octets, that a thread's stack occupies beyond the thread's resident memory.
const STACK: u64 = 2 * MIB + 4 * KIB;
/// Number of threads other than workers: main, TCP, log, query log and dnstap.
const OTHER_THREADS: u64 = 5;
/// Memory of a query in flight, in octets.
const QUERY: u64 = KIB;
/// Memory of a TCP connection with a stalled client, in octets.
const CONNECTION: u64 = 320 * KIB;
/// Memory of a TLS, HTTPS or QUIC connection with a stalled client, in octets: buffers, and incomplete queries.
const ENCRYPTED_CONNECTION: u64 = 512 * KIB;
/// Memory for waiting replies on all TCP connections together, in octets. The memory of each TCP connection is counted
/// separately.
const REPLIES: u64 = 64 * MIB;
/// Smallest size, in octets, to which a limit may reduce the cache.
const LEAST_CACHE: u64 = 4 * MIB;
/// Control groups version 1 represent "no limit" by a number above this value.
const UNLIMITED: u64 = 1 << 60;

/// A system limit on the memory of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    /// Value of the limit, in octets.
    pub(super) octets: u64,
    pub(super) counts: MemoryKind,
    /// Name of the limit in messages.
    pub(super) name: String,
}

/// Kind of memory that a limit covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    /// Resident memory.
    Resident,
    /// Address space, including the parts that are not in use.
    AddressSpace,
}

/// Error for a memory limit that is too low for the server, even with the smallest cache.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name} limits memory to {} MiB; dns64d with {workers} workers needs {} MiB or more; raise the limit or lower `threads`",
    .allowed / MIB, .needed.div_ceil(MIB)
)]
pub(super) struct InsufficientMemory {
    name: String,
    workers: usize,
    /// Value of the limit, in octets.
    allowed: u64,
    needed: u64,
}

/// Returns the memory limits of this process. Limits that cannot be read are ignored.
pub(super) fn limits() -> Vec<MemoryLimit> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let [groups, mounts] = ["/proc/self/cgroup", "/proc/self/mountinfo"]
        .map(|path| read(Path::new(path)).unwrap_or_default());
    let mut limits = of_groups(&groups, &mounts, read);
    let resources = [
        (Resource::RLIMIT_AS, "RLIMIT_AS (ulimit -v)"),
        (Resource::RLIMIT_DATA, "RLIMIT_DATA (ulimit -d)"),
    ];
    for (resource, name) in resources {
        if let Ok((octets, _)) = getrlimit(resource)
            && octets != RLIM_INFINITY
        {
            limits.push(MemoryLimit {
                octets,
                counts: MemoryKind::AddressSpace,
                name: name.into(),
            });
        }
    }
    limits
}

/// Reduces the cache size to fit all limits. Returns a message if the size was reduced.
///
/// # Errors
/// Returns an error if a limit leaves too little memory for the smallest permitted cache: 4 MiB, or the configured size
/// if that is smaller.
pub(super) fn fit(
    settings: &mut Settings,
    limits: &[MemoryLimit],
) -> Result<Option<String>, InsufficientMemory> {
    let mut smallest: Option<(u64, &MemoryLimit)> = None;
    for limit in limits {
        let most = most_cache(settings, limit)?;
        if smallest.is_none_or(|(octets, _)| most < octets) {
            smallest = Some((most, limit));
        }
    }
    let wanted = settings.config.cache.mebibytes;
    let Some((most, limit)) = smallest.filter(|(most, _)| most / MIB < wanted) else {
        return Ok(None);
    };
    settings.config.cache.mebibytes = most / MIB;
    Ok(Some(format!(
        "the cache is reduced from {wanted} MiB to {} MiB: {} limits memory to {} MiB; raise the limit or lower cache.mebibytes",
        most / MIB,
        limit.name,
        limit.octets / MIB
    )))
}

/// Returns the size, in octets, of the largest cache that a memory limit permits.
fn most_cache(settings: &Settings, limit: &MemoryLimit) -> Result<u64, InsufficientMemory> {
    let config = &settings.config;
    let workers = config.threads as u64;
    // Each worker has a validation thread.
    let validates = settings.validator.is_some();
    let (validators, validation) = match validates {
        true => (workers, VALIDATOR_OCTETS as u64 + workers * VALIDATION_THREAD),
        false => (0, 0),
    };
    let resident = PROGRAM + workers * WORKER + validation;
    let base = match limit.counts {
        MemoryKind::Resident => resident,
        MemoryKind::AddressSpace => {
            resident + MAPPED + (workers + validators + OTHER_THREADS) * STACK
        }
    };
    let in_flight = workers * config.limits.in_flight as u64 * QUERY;
    let is_plain = |keys: &ListenKeys| keys.transport == ListenTransport::Udp;
    let connection = match config.listen.iter().all(is_plain) {
        true => CONNECTION,
        false => CONNECTION + ENCRYPTED_CONNECTION,
    };
    let others = in_flight + config.limits.tcp_connections as u64 * connection + REPLIES;
    let least = LEAST_CACHE.min(config.cache.mebibytes.saturating_mul(MIB));
    let room = limit.octets.saturating_sub(base);
    if room < 2 * least || limit.octets < base {
        return Err(InsufficientMemory {
            name: limit.name.clone(),
            workers: config.threads,
            allowed: limit.octets,
            needed: base + 2 * least,
        });
    }
    Ok(room - others.min(room / 2))
}

/// A hierarchy of control groups that may limit memory.
struct Hierarchy<'a> {
    /// Mount point of the hierarchy.
    mount: PathBuf,
    /// Path of the control group that is visible at the mount point.
    root: &'a str,
    /// Names of the files that contain the memory limits.
    files: &'static [&'static str],
    is_v2: bool,
}

/// Returns the limits of the process's control group and of all ancestors of this group
/// (cgroups(7)). `groups` and `mounts` are the contents of /proc/self/cgroup and
/// /proc/self/mountinfo.
fn of_groups(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<MemoryLimit> {
    let mut limits = Vec::new();
    for hierarchy in mounts.lines().filter_map(hierarchy) {
        let Some(group) = groups.lines().find_map(|line| group_in(line, &hierarchy)) else {
            continue;
        };
        let mut folder = hierarchy.mount.clone();
        folder.extend(below(group, hierarchy.root));
        loop {
            for file in hierarchy.files {
                let path = folder.join(file);
                if let Some(octets) = read(&path).and_then(|text| text.trim().parse().ok())
                    && octets < UNLIMITED
                {
                    let name = format!("{file} of {}", folder.display());
                    limits.push(MemoryLimit { octets, counts: MemoryKind::Resident, name });
                }
            }
            if folder == hierarchy.mount || !folder.pop() {
                break;
            }
        }
    }
    limits
}

/// Parses a line of mountinfo (proc_pid_mountinfo(5)). Returns the control group hierarchy in this line if the
/// hierarchy may limit memory.
fn hierarchy(line: &str) -> Option<Hierarchy<'_>> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut filesystem = filesystem.split(' ');
    let (kind, options) = (filesystem.next()?, filesystem.nth(1)?);
    let is_v2 = match kind {
        "cgroup2" => true,
        "cgroup" if options.split(',').any(|option| option == "memory") => false,
        _ => return None,
    };
    let files: &[&str] =
        if is_v2 { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
    Some(Hierarchy { mount: unescaped(point).into(), root, files, is_v2 })
}

/// Decodes a path of mountinfo, in which spaces, tabs and backslashes are octal escapes.
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// If this line of /proc/self/cgroup names the control group of the process in the given hierarchy, returns this group.
/// The line has the form `4:memory:/group`, or `0::/group` in version 2.
fn group_in<'a>(line: &'a str, hierarchy: &Hierarchy<'_>) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match hierarchy.is_v2 {
        true => number == "0" && controllers.is_empty(),
        false => controllers.split(',').any(|controller| controller == "memory"),
    };
    is_it.then_some(group)
}

/// Returns the path of a control group relative to the root of its mount. A group outside of the mount, which can
/// occur in a container, counts as the root.
fn below<'a>(group: &'a str, root: &str) -> &'a Path {
    let path = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    if is_below { path } else { Path::new("") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(text: &str) -> Settings {
        validating("false", text)
    }

    fn validating(validate: &str, text: &str) -> Settings {
        let text = format!(
            "threads = 2\n{text}[dnssec]\nvalidate = {validate}\n[[upstream]]\naddress = '192.0.2.1'\n"
        );
        Settings::from_text(&text, Path::new("test.toml")).unwrap()
    }

    #[test]
    fn validation_leaves_less_memory_for_the_cache() {
        for counts in [MemoryKind::Resident, MemoryKind::AddressSpace] {
            let [with, without] = ["'if-possible'", "false"].map(|validate| {
                let mut settings = validating(validate, "");
                fit(&mut settings, &[limit(128, counts)]).unwrap();
                settings.config.cache.mebibytes
            });
            assert!(with < without && with >= 10, "{with} {without}");
        }
    }

    fn limit(mebibytes: u64, counts: MemoryKind) -> MemoryLimit {
        MemoryLimit { octets: mebibytes * MIB, counts, name: format!("limit {mebibytes}") }
    }

    #[test]
    fn the_cache_fits_into_the_smallest_limit() {
        use MemoryKind::{AddressSpace, Resident};
        for (limits, least, most) in [
            (vec![limit(64, Resident)], 15, 32),
            (vec![limit(128, Resident)], 40, 64),
            (vec![limit(256, Resident)], 90, 128),
            (vec![limit(256, Resident), limit(128, Resident)], 40, 64),
            (vec![limit(128, AddressSpace), limit(4_000, Resident)], 10, 50),
            (vec![limit(300, AddressSpace)], 80, 140),
        ] {
            let mut settings = settings("");
            let said = fit(&mut settings, &limits).unwrap().expect("256 MiB do not fit");
            let smallest = limits.iter().map(|limit| limit.octets).min().unwrap() / MIB;
            assert!(said.contains(&format!("limit {smallest} ")), "{said}");
            assert!(said.contains(" from 256 MiB"), "{said}");
            let cache = settings.config.cache.mebibytes;
            assert!((least..=most).contains(&cache), "{limits:?}: {cache} MiB");
            assert!(fit(&mut settings, &limits).unwrap().is_none(), "it fits now");
        }
    }

    #[test]
    fn a_large_limit_leaves_the_cache_as_it_is() {
        let limits = [limit(1_024, MemoryKind::Resident), limit(1_024, MemoryKind::AddressSpace)];
        for text in ["", "[cache]\nmebibytes = 0\n", "[cache]\nmebibytes = 400\n"] {
            let mut settings = settings(text);
            let wanted = settings.config.cache.mebibytes;
            assert_eq!(fit(&mut settings, &limits).unwrap(), None, "{text}");
            assert_eq!(settings.config.cache.mebibytes, wanted);
        }
        // Memory beyond the worst load that [limits] allows is available to the cache.
        let mut settings = settings("[cache]\nmebibytes = 100000\n");
        fit(&mut settings, &[limit(8_192, MemoryKind::Resident)]).unwrap().unwrap();
        assert!(settings.config.cache.mebibytes > 7_500, "{}", settings.config.cache.mebibytes);
        assert!(fit(&mut settings, &[]).unwrap().is_none());
    }

    #[test]
    fn too_small_a_limit_reports_the_needed_size() {
        for counts in [MemoryKind::Resident, MemoryKind::AddressSpace] {
            let error = fit(&mut settings(""), &[limit(16, counts)]).unwrap_err();
            let words = error.to_string();
            assert!(words.starts_with("limit 16 limits memory to 16 MiB"), "{words}");
            let enough = limit(error.needed.div_ceil(MIB), counts);
            assert!(words.contains(&format!("{} MiB or more", enough.octets / MIB)), "{words}");
            assert!(fit(&mut settings(""), &[enough]).is_ok());
            let almost = limit(error.needed / MIB - 1, counts);
            assert!(fit(&mut settings(""), &[almost]).is_err());
        }
        // A server without a cache needs less.
        let without = "[cache]\nmebibytes = 0\n";
        let needed = fit(&mut settings(""), &[limit(16, MemoryKind::Resident)]).unwrap_err().needed;
        let less = limit(needed / MIB - 1, MemoryKind::Resident);
        assert!(fit(&mut settings(without), &[less]).is_ok());
    }

    /// Names and sizes of the limits found with these files.
    fn found(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Vec<(String, u64)> {
        let files: BTreeMap<&Path, &str> =
            files.iter().map(|&(path, text)| (Path::new(path), text)).collect();
        let read = |path: &Path| files.get(path).map(|text| (*text).to_owned());
        let limits = of_groups(groups, mounts, read);
        limits.into_iter().map(|limit| (limit.name, limit.octets)).collect()
    }

    #[test]
    fn limits_of_v2_groups_count_up_to_the_root() {
        let mounts = "25 23 0:22 / /proc rw - proc proc rw\n\
                      30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let files = [
            ("/sys/fs/cgroup/system.slice/memory.max", "268435456\n"),
            ("/sys/fs/cgroup/system.slice/memory.high", "max\n"),
            ("/sys/fs/cgroup/system.slice/dns64d.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/dns64d.service/memory.high", "134217728\n"),
            ("/sys/fs/cgroup/other/memory.max", "1\n"),
        ];
        let service = "memory.high of /sys/fs/cgroup/system.slice/dns64d.service".to_owned();
        let slice = "memory.max of /sys/fs/cgroup/system.slice".to_owned();
        assert_eq!(
            found("0::/system.slice/dns64d.service\n", mounts, &files),
            [(service, 128 * MIB), (slice, 256 * MIB)]
        );
    }

    #[test]
    fn limits_of_v1_groups_count_up_to_the_root() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n";
        let files = [
            ("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "67108864\n"),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let name = "memory.limit_in_bytes of /sys/fs/cgroup/memory/docker/abc".to_owned();
        assert_eq!(found(groups, mounts, &files), [(name, 64 * MIB)]);
    }

    #[test]
    fn in_a_container_the_root_of_the_mount_counts() {
        let file = [("/sys/fs/cgroup/memory.max", "67108864\n")];
        let limit = [("memory.max of /sys/fs/cgroup".to_owned(), 64 * MIB)];
        for (group, root) in [("/", "/"), ("/../other", "/"), ("/a/b", "/a/b"), ("/a/b", "/c")] {
            let mounts = format!("30 24 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
            assert_eq!(found(&format!("0::{group}\n"), &mounts, &file), limit, "{group} {root}");
        }
        assert!(found("", "", &file).is_empty());
    }
}
