//! One interop test: its requirements, the resources that it holds, and its retry.

use anyhow::Result;

use super::harness::Bench;
use crate::packages::is_root;
use crate::process::{self, find};

/// Requirement of root privileges.
pub(super) const ROOT: &str = "root";

/// A resource that a test holds while it runs. Only one test at a time can hold a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// All CPUs. The test compares rates, so no other test runs meanwhile.
    Cpus,
    /// The folder in which the packages are staged.
    Stage,
}

/// A test against real servers or clients.
pub(super) struct Test {
    /// Name in required-tests.txt.
    pub(super) name: &'static str,
    /// Required programs, and [`ROOT`]. The test is skipped if one of these is missing.
    pub(super) needs: &'static [&'static str],
    /// Runs the test.
    pub(super) run: fn(&Bench) -> Result<()>,
    /// Resource that the test holds exclusively, if any.
    pub(super) holds: Option<Resource>,
    /// Reason to run the test a second time if it does not pass; `None` if there is no second run.
    pub(super) retry: Option<&'static str>,
    /// True if the test downloads files. It then runs in the host's network namespace.
    pub(super) downloads: bool,
}

impl Test {
    /// Creates a test that holds nothing, has no retry and downloads nothing.
    pub(super) const fn new(
        name: &'static str,
        needs: &'static [&'static str],
        run: fn(&Bench) -> Result<()>,
    ) -> Test {
        Test { name, needs, run, holds: None, retry: None, downloads: false }
    }

    /// Adds a resource that the test holds.
    pub(super) const fn holding(mut self, resource: Resource) -> Test {
        self.holds = Some(resource);
        self
    }

    /// Allows a second run of the test, for this reason.
    pub(super) const fn retried(mut self, reason: &'static str) -> Test {
        self.retry = Some(reason);
        self
    }

    /// Runs the test in the host's network namespace.
    pub(super) const fn downloading(mut self) -> Test {
        self.downloads = true;
        self
    }

    /// True if the two tests must not run at the same time.
    pub(super) fn conflicts_with(&self, other: &Test) -> bool {
        let is_alone = |test: &Test| test.holds == Some(Resource::Cpus);
        is_alone(self) || is_alone(other) || (self.holds.is_some() && self.holds == other.holds)
    }

    /// Returns the reason why this machine cannot run the test, or `None` if it can.
    pub(super) fn missing(&self) -> Option<String> {
        let is_absent = |need: &&&str| **need != ROOT && find(need).is_none();
        let absent: Vec<_> = self.needs.iter().filter(is_absent).copied().collect();
        let mut why = Vec::new();
        if !absent.is_empty() {
            why.push(format!("not found: {}", absent.join(", ")));
        }
        if self.needs.contains(&ROOT) && !is_root() {
            why.push("needs root".into());
        }
        // Tests that need the program ip create a lab, which needs root or user namespaces.
        if self.needs.contains(&"ip") && !is_root() && !has_user_namespaces() {
            why.push("needs root or user namespaces".into());
        }
        (!why.is_empty()).then(|| why.join("; "))
    }
}

fn has_user_namespaces() -> bool {
    process::run("unshare", &["-U", "-n", "true"], super::harness::LIMIT)
        .is_ok_and(|ran| ran.status == Some(0))
}
