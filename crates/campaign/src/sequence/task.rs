//! Tasks of the tester in a trial.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hosts::servers::CHECKED_ZONE;
use tester::client::experiments::NAMES;
use tester::measurer::expect::Prefix;
use tester::measurer::plan::TrialPlan;

/// Settings of a closed-loop trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Queries at a rate.
    Trial(Box<TrialPlan>),
    /// Closed loop: each query follows the answer to the previous one.
    ClosedLoop(LoopPlan),
    /// Conformance checks.
    Conform(ConformPlan),
}

/// Experiments per block.
pub(super) const BLOCK: u32 = 256;

/// The tester's task in a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Threads, each with one query in flight.
    pub threads: usize,
    /// Blocks of 256 experiments.
    pub blocks: u8,
    /// Timeout of a query.
    pub timeout: Duration,
    /// First octet of all names.
    pub space: u8,
    /// DNS64 prefix that the addresses must have.
    pub prefix: Prefix,
    /// CPUs of the tester; empty: any.
    pub cpus: Vec<usize>,
}

impl LoopPlan {
    /// Returns the number of names in a trial.
    pub(crate) fn names(&self) -> u64 {
        u64::from(BLOCK) * u64::from(self.blocks) * NAMES
    }

    /// Returns the arguments of `dns64bench closed-loop`.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> =
            ["closed-loop", "--json", "--quiet", "--liveness", "false", "--expect-prefix"]
                .map(str::to_owned)
                .into();
        words.push(self.prefix.to_string());
        if !self.cpus.is_empty() {
            let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
            words.extend(["--cpus".into(), cpus.join(",")]);
        }
        let timeout = self.timeout.as_secs_f64().to_string();
        words.push("--dns64perf2".into());
        words.extend([
            self.space.to_string(),
            self.blocks.to_string(),
            self.threads.to_string(),
            timeout,
        ]);
        words.extend([self.server.ip().to_string(), self.server.port().to_string()]);
        words
    }
}

impl LoopPlan {
    /// Returns the number of experiments in a trial.
    pub(crate) fn experiments(&self) -> usize {
        BLOCK as usize * usize::from(self.blocks)
    }
}

/// Settings of the conformance checks.
#[derive(Clone, Debug, PartialEq)]
pub struct ConformPlan {
    /// Address and port of the DUT.
    pub server: SocketAddr,
    /// Name of the DUT in the plan.
    pub name: String,
    /// The configured DNS64 prefixes.
    pub prefixes: Vec<Prefix>,
    /// True if configured to validate; `None` if unknown, in which case it is detected.
    pub validates: Option<bool>,
    /// The configured range of excluded IPv6 addresses, in addition to ::ffff:0:0/96.
    pub excluded: Option<&'static str>,
    /// Ids of the checks to execute; empty: all.
    pub only: Vec<&'static str>,
}

/// Access of the tester to the queries that AuthDNS received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarView {
    /// AuthDNS's status socket: a path, or `ssh:HOST:PATH`.
    pub status: String,
    /// Configuration file for ssh, if it is not the user's.
    pub ssh_config: Option<PathBuf>,
}

impl ConformPlan {
    /// Returns the arguments of `dns64bench conform`. Without a view, checks that depend on the
    /// DUT's upstream queries are skipped.
    pub fn arguments(&self, view: Option<FarView>) -> Vec<String> {
        // Option and value in one argument, because a name may begin with a hyphen.
        let mut words = vec!["conform".to_owned()];
        words.push(format!("--server={}", self.server));
        words.push(format!("--name={}", self.name));
        words.extend(self.prefixes.iter().map(|prefix| format!("--expect-prefix={prefix}")));
        words.push(format!("--zone={CHECKED_ZONE}"));
        words.extend(self.validates.map(|validates| format!("--validates={validates}")));
        words.extend(self.excluded.map(|range| format!("--excludes={range}")));
        if let Some(FarView { status, ssh_config }) = view {
            words.push(format!("--auth-status={status}"));
            words.extend(ssh_config.map(|file| format!("--ssh-config={}", file.display())));
        }
        if !self.only.is_empty() {
            words.push(format!("--only={}", self.only.join(",")));
        }
        words.extend(["--forwards-all", "--json", "--quiet"].map(str::to_owned));
        words
    }
}
