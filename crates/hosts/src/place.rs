//! CPU placement of the DUT during a trial. It consists of:
//! - the CPUs on which the DUT's threads were allowed to run, as reported by the kernel in the
//!   middle of the trial
//! - the DUT's configured number of threads or processes
//! - the roles that share the DUT's CPUs
//!
//! A report contains "4 cores" only if the DUT was confined to four CPUs, was configured with four
//! threads, and had no lower CPU quota.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use units::counted;

use crate::cpu_list::cpu_ranges;
use crate::environment::quota::in_words;

/// CPU placement of a DUT, and its configured number of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CpuPlacement {
    /// CPUs to which the DUT was confined; empty if it was not confined.
    pub cpus: BTreeSet<usize>,
    /// Configured number of threads or processes that answer queries; absent if no number was
    /// configured.
    #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
    pub configured_threads: Option<usize>,
    /// Sets of CPUs on which threads of the DUT were allowed to run. CPUs that the host does not
    /// have are omitted.
    pub allowed: Vec<Allowed>,
    /// Roles (tester, AuthDNS) that were allowed to run on some of the DUT's CPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<Sharing>,
    /// CPU quota of the DUT's control groups, in thousandths of a CPU; absent if there is no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_millicpu: Option<u64>,
}

/// Group of threads that were allowed to run on the same set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Allowed {
    /// The CPUs that the threads may run on, as numbered by the kernel.
    pub cpus: BTreeSet<usize>,
    /// Number of threads, including those of a shell or another wrapper of the server.
    pub threads: usize,
}

/// A role (tester or AuthDNS) that was allowed to run on CPUs of the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Sharing {
    /// Role that shares CPUs with the DUT: the tester or AuthDNS.
    pub with: Neighbour,
    /// CPUs of the DUT on which this role was also allowed to run.
    pub cpus: BTreeSet<usize>,
}

/// A role other than the DUT that runs on the DUT's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    /// The Measurer.
    Tester,
    /// The AuthDNS server.
    Auth,
}

impl Neighbour {
    fn in_words(self) -> &'static str {
        match self {
            Neighbour::Tester => "the tester",
            Neighbour::Auth => "AuthDNS",
        }
    }
}

impl CpuPlacement {
    /// Returns the number of CPUs on which the DUT's threads could run. Returns `None` if the
    /// threads were not confined to the assigned CPUs, or were not observed.
    pub(crate) fn confined_to(&self) -> Option<usize> {
        let used = self.used();
        (!used.is_empty() && used.is_subset(&self.cpus)).then_some(used.len())
    }

    /// True if the threads could run on the same CPUs in both placements, and were confined to these CPUs either in
    /// both placements or in neither.
    pub fn is_on_the_cpus_of(&self, other: &CpuPlacement) -> bool {
        let used = self.used();
        !used.is_empty()
            && used == other.used()
            && self.confined_to().is_some() == other.confined_to().is_some()
    }

    /// True if both placements have the same CPUs and the same number of threads, and share the
    /// same CPUs with the same roles.
    pub fn is_like(&self, other: &CpuPlacement) -> bool {
        let shares = |a: &CpuPlacement, b: &CpuPlacement| {
            a.shared.iter().all(|with| b.shared.contains(with))
        };
        (self.used(), self.confined_to(), self.configured_threads)
            == (other.used(), other.confined_to(), other.configured_threads)
            && shares(self, other)
            && shares(other, self)
    }

    /// Returns the CPUs on which at least one thread of the DUT could run.
    fn used(&self) -> BTreeSet<usize> {
        self.allowed.iter().flat_map(|allowed| allowed.cpus.iter().copied()).collect()
    }

    /// True if the DUT was confined to `cores` CPUs, was configured with `cores` threads, and had no CPU quota below
    /// `cores` CPUs.
    pub fn is_cores(&self, cores: usize) -> bool {
        self.cores() == Ok(cores)
    }

    /// Returns the number of cores n for which [`CpuPlacement::is_cores`] with the argument n is true. If it is not
    /// true for any number, returns an error that contains a description of the placement.
    fn cores(&self) -> Result<usize, String> {
        let threads = |n: usize| counted(n as u64, "thread", "threads");
        let cpus = |n: usize| counted(n as u64, "CPU", "CPUs");
        let quota = self.limit().map_or(String::new(), |quota| format!(", quota of {quota}"));
        let words = match (self.confined_to(), self.configured_threads) {
            (Some(n), Some(configured_threads)) if n == configured_threads && quota.is_empty() => {
                return Ok(n);
            }
            (Some(n), Some(configured_threads)) => {
                format!("{} with {}", cpus(n), threads(configured_threads))
            }
            (Some(n), None) => format!("{}, threads chosen by the server", cpus(n)),
            (None, configured_threads) => {
                let how =
                    if self.allowed.is_empty() { "CPUs not observed" } else { "not confined" };
                format!(
                    "{}, {how}",
                    configured_threads.map_or("threads chosen by the server".into(), threads)
                )
            }
        };
        Err(words + &quota)
    }

    /// Returns the CPU quota as text if the quota limits the DUT. Otherwise returns `None`. A quota limits a DUT that
    /// was not confined to CPUs, or was confined to more CPUs than the quota permits.
    fn limit(&self) -> Option<String> {
        let quota = self.quota_millicpu?;
        let is_less = |cpus: usize| quota < cpus as u64 * 1_000;
        self.confined_to().is_none_or(is_less).then(|| in_words(quota))
    }

    /// Returns the placement as text for the legend of a chart. If [`CpuPlacement::is_cores`] is true for a number of
    /// cores, the text is this number, such as `2 cores`. Otherwise the text is a description of the placement. Roles
    /// that share CPUs are omitted.
    pub fn cores_in_words(&self) -> String {
        self.cores().map_or_else(|other| other, cores_in_words)
    }

    /// Returns the placement as text for a table cell. If [`CpuPlacement::is_cores`] is true for a number of cores, the
    /// text begins with this number. Otherwise the text begins with a description of the placement. The roles that
    /// share the DUT's CPUs follow.
    pub fn in_words(&self) -> String {
        let cores = self.cores().map_or_else(|other| other, |n| n.to_string());
        std::iter::once(cores).chain(self.sharing()).collect::<Vec<_>>().join(", ")
    }

    /// Returns descriptions of the differences between this placement and `cores` exclusive CPUs with one thread each.
    /// The list is empty if there are no differences.
    pub fn deviations_from(&self, cores: usize) -> Vec<String> {
        let other = match self.cores() {
            Ok(n) if n == cores => None,
            Ok(n) => Some(cores_in_words(n)),
            Err(other) => Some(other),
        };
        other.into_iter().chain(self.sharing()).collect()
    }

    /// Returns descriptions of the roles that share the DUT's CPUs.
    fn sharing(&self) -> Vec<String> {
        let of = |group: &[Sharing]| {
            let cpus = &group[0].cpus;
            let noun = if cpus.len() == 1 { "CPU" } else { "CPUs" };
            let with: Vec<&str> = group.iter().map(|sharing| sharing.with.in_words()).collect();
            format!("shares {noun} {} with {}", cpu_ranges(cpus), with.join(" and "))
        };
        self.shared.chunk_by(|a, b| a.cpus == b.cpus).map(of).collect()
    }

    /// Merges the placements of one DUT in several trials or measurement points. Returns `None` if
    /// the DUT was never observed.
    pub fn merge_all<'a>(all: impl Iterator<Item = &'a CpuPlacement>) -> Option<CpuPlacement> {
        all.cloned().reduce(|a, b| a.and(&b))
    }

    /// Merges this placement with the placement in a different trial. The result contains the
    /// allowed CPU sets of both trials.
    pub fn and(mut self, other: &CpuPlacement) -> CpuPlacement {
        for more in &other.allowed {
            match self.allowed.iter_mut().find(|allowed| allowed.cpus == more.cpus) {
                Some(known) => known.threads = known.threads.max(more.threads),
                None => self.allowed.push(more.clone()),
            }
        }
        self.quota_millicpu =
            [self.quota_millicpu, other.quota_millicpu].into_iter().flatten().min();
        // Only CPUs common to both trials remain. The number of threads is removed if it differs.
        self.cpus = self.cpus.intersection(&other.cpus).copied().collect();
        self.configured_threads = self
            .configured_threads
            .filter(|configured_threads| Some(*configured_threads) == other.configured_threads);
        for sharing in &other.shared {
            if !self.shared.contains(sharing) {
                self.shared.push(sharing.clone());
            }
        }
        self
    }
}

/// Returns a number of cores as text: `1 core` or `2 cores`.
pub fn cores_in_words(n: usize) -> String {
    counted(n as u64, "core", "cores")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> BTreeSet<usize> {
        cpus.iter().copied().collect()
    }

    fn place(
        cpus: &[usize],
        configured_threads: Option<usize>,
        allowed: &[&[usize]],
    ) -> CpuPlacement {
        let allowed = allowed.iter().map(|cpus| Allowed { cpus: set(cpus), threads: 3 }).collect();
        CpuPlacement { cpus: set(cpus), configured_threads, allowed, ..CpuPlacement::default() }
    }

    #[test]
    fn cores_are_stated_only_if_all_facts_agree() {
        for (place, words, cores) in [
            (place(&[0, 1], Some(2), &[&[0, 1]]), "2", Some(2)),
            (place(&[3], Some(1), &[&[3]]), "1", Some(1)),
            // A server that pins each of its threads to one of its CPUs is confined too.
            (place(&[0, 1], Some(2), &[&[0], &[1]]), "2", Some(2)),
            // A server that pinned itself to one of its two CPUs uses only that CPU.
            (place(&[0, 1], Some(2), &[&[1]]), "1 CPU with 2 threads", None),
            (
                place(&[0, 1, 2, 3, 4, 5, 6, 7], Some(14), &[&[0, 1, 2, 3, 4, 5, 6, 7]]),
                "8 CPUs with 14 threads",
                None,
            ),
            (place(&[0, 1], Some(1), &[&[0, 1]]), "2 CPUs with 1 thread", None),
            (place(&[0, 1], None, &[&[0, 1]]), "2 CPUs, threads chosen by the server", None),
            // The server is not confined if even a single thread may run on a CPU outside the
            // assigned CPUs.
            (place(&[0, 1], Some(2), &[&[0, 1], &[0, 1, 2]]), "2 threads, not confined", None),
            (place(&[], Some(16), &[&[0, 1]]), "16 threads, not confined", None),
            (place(&[], None, &[&[0, 1]]), "threads chosen by the server, not confined", None),
            (place(&[0, 1], Some(2), &[]), "2 threads, CPUs not observed", None),
        ] {
            assert_eq!(place.in_words(), words);
            let legend = cores.map_or_else(|| words.to_owned(), cores_in_words);
            assert_eq!(place.cores_in_words(), legend);
            for n in 1..20 {
                assert_eq!(place.is_cores(n), cores == Some(n), "{words}: {n}");
            }
        }
    }

    /// A server with a quota of a twentieth of a CPU must not be shown as "1 CPU".
    #[test]
    fn a_quota_below_its_cpus_is_named() {
        let with =
            |quota, place: CpuPlacement| CpuPlacement { quota_millicpu: Some(quota), ..place };
        let one = || place(&[3], Some(1), &[&[3]]);
        let limited = with(50, one());
        assert_eq!(limited.in_words(), "1 CPU with 1 thread, quota of 0.05 CPUs");
        assert!(!limited.is_cores(1) && with(1_000, one()).is_cores(1));
        let free = with(2_500, place(&[], None, &[&[0, 1]]));
        assert_eq!(
            free.in_words(),
            "threads chosen by the server, not confined, quota of 2.5 CPUs"
        );
        assert_eq!(one().and(&limited), limited);
    }

    #[test]
    fn roles_that_share_cpus_are_named() {
        let mut place = place(&[0, 1], Some(2), &[&[0, 1]]);
        place.shared.push(Sharing { with: Neighbour::Tester, cpus: set(&[0]) });
        assert_eq!(place.in_words(), "2, shares CPU 0 with the tester");
        assert_eq!(place.cores_in_words(), "2 cores");
        place.shared.push(Sharing { with: Neighbour::Auth, cpus: set(&[0, 1]) });
        assert_eq!(
            place.in_words(),
            "2, shares CPU 0 with the tester, shares CPUs 0-1 with AuthDNS"
        );
        place.shared[0].cpus = set(&[0, 1]);
        assert_eq!(place.in_words(), "2, shares CPUs 0-1 with the tester and AuthDNS");
    }

    #[test]
    fn places_are_compared_as_data() {
        let by_own_choice = place(&[1], None, &[&[1]]);
        let one = place(&[1], Some(1), &[&[1]]);
        assert!(one.is_on_the_cpus_of(&by_own_choice) && by_own_choice.is_on_the_cpus_of(&one));
        assert!(!one.is_like(&by_own_choice) && one.is_like(&one));
        for elsewhere in [
            place(&[2], Some(1), &[&[2]]),
            place(&[1, 2], Some(1), &[&[1, 2]]),
            place(&[], Some(1), &[&[1]]),
            place(&[1], Some(1), &[]),
        ] {
            assert!(!one.is_on_the_cpus_of(&elsewhere), "{elsewhere:?}");
            assert!(!elsewhere.is_on_the_cpus_of(&one) && !one.is_like(&elsewhere));
        }
        let mut shared = one.clone();
        shared.shared.push(Sharing { with: Neighbour::Tester, cpus: set(&[1]) });
        assert!(one.is_on_the_cpus_of(&shared));
        assert!(!one.is_like(&shared) && !shared.is_like(&one));
        assert_eq!(one.deviations_from(1), [""; 0]);
        assert_eq!(shared.deviations_from(1), ["shares CPU 1 with the tester"]);
        assert_eq!(one.deviations_from(2), ["1 core"]);
        assert_eq!(by_own_choice.deviations_from(1), ["1 CPU, threads chosen by the server"]);
    }

    #[test]
    fn one_deviating_trial_removes_the_core_count() {
        let good = place(&[0, 1], Some(2), &[&[0, 1]]);
        assert_eq!(good.clone().and(&good), good);
        assert!(good.clone().and(&good).is_cores(2));
        for bad in [
            place(&[], Some(2), &[&[0, 1, 2]]),
            place(&[0, 1], Some(1), &[&[0, 1]]),
            place(&[1], Some(2), &[&[1]]),
        ] {
            assert!(!good.clone().and(&bad).is_cores(2), "{bad:?}");
            assert!(!bad.clone().and(&good).is_cores(2), "{bad:?}");
        }
        let unseen = place(&[0, 1], Some(2), &[]);
        assert!(
            good.and(&unseen).is_cores(2),
            "a trial that ended before it was observed has no placement"
        );
    }
}
