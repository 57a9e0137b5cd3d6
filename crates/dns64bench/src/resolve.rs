//! From what was typed to a plan.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use campaign::search::{PassedSelfTest, SearchPlan};
use method::pacing::PacingLimits;
use method::search::SearchRange;
use method::units::{Nanos, Qps};
use method::verdict::Acceptance;
use tester::authdns::answer;
use tester::closed_loop::ClosedLoopPlan;
use tester::delay_line::Delay;
use tester::measurer::expect::Expectation;
use tester::measurer::plan::{Spin, TrialPlan};
use wire::name::NameRange;

use crate::args::{ClosedLoop, DelayRange, Measure, NewSearch, SelfTest, SpinChoice, Traffic, ZoneContent};
use crate::output::Failure;

impl Traffic {
    fn plan(&self, server: SocketAddr, rate: Qps) -> TrialPlan {
        let defaults = TrialPlan::new(server, rate);
        TrialPlan {
            duration: self.duration.into(),
            timeout: self.timeout.into(),
            domain: self.domain.clone(),
            names: self.names.unwrap_or(defaults.names),
            first_name: self.first_name,
            aaaa_share: self.aaaa_share,
            cached_share: self.cached_share,
            prefixes: self.expect_prefix.clone(),
            check_own_aaaa: !self.any_aaaa,
            accept: Acceptance(self.accept),
            threads: self.threads,
            source_ports: self.source_ports,
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            spin: match self.spin {
                SpinChoice::Auto => Spin::Auto,
                SpinChoice::Always => Spin::Always,
                SpinChoice::Never => Spin::Never,
            },
            max_burst: self.max_burst.into(),
            offload: self.offload.unwrap_or(true),
            limits: PacingLimits::default(),
            records: self.records.clone(),
            ..defaults
        }
    }
}

impl Measure {
    pub(crate) fn resolve(&self) -> TrialPlan {
        self.traffic.plan(self.server, self.rate)
    }
}

impl NewSearch {
    /// # Errors
    /// If the range is empty, or the names do not suffice.
    pub(crate) fn resolve(&self, traffic: &Traffic) -> Result<SearchPlan, Failure> {
        let (Some(server), Some(min), Some(max)) = (self.server, self.min, self.max) else {
            return Err(Failure::usage(anyhow::anyhow!("--server, --min and --max are needed, or --resume")));
        };
        if min > max {
            return Err(Failure::usage(anyhow::anyhow!("--min {min} is above --max {max}")));
        }
        if self.repeat == 0 {
            return Err(Failure::usage(anyhow::anyhow!("--repeat 0: there must be a search")));
        }
        if traffic.records.is_some() {
            return Err(Failure::usage(anyhow::anyhow!(
                "--records is for single trials: repeat the one of interest with measure"
            )));
        }
        let mut plan = SearchPlan {
            trial: traffic.plan(server, min),
            range: SearchRange { min, max, resolution: self.resolution, invalid_retries: self.invalid_retries },
            repeat: self.repeat,
            pause: self.pause,
            reuse_names: self.reuse_names,
            self_test: self.self_test_passed.map(|passed| PassedSelfTest { passed, delta: self.delta }),
        };
        if traffic.names.is_none() && plan.most_names() + plan.trial.first_name > plan.trial.names.count() {
            widen(&mut plan);
        }
        for rate in [min, max] {
            plan.trial_at(rate, traffic.first_name).check().map_err(Failure::usage)?;
        }
        Ok(plan)
    }
}

/// Takes all 2³² names, still beginning at 10.0.0.0.
fn widen(plan: &mut SearchPlan) {
    plan.trial.first_name += u64::from(u32::from(plan.trial.names.first()));
    plan.trial.names = NameRange::ALL;
}

impl SelfTest {
    /// The self-test's trial: AuthDNS itself answers, with an AAAA record for every name, in a quarter of the time; one question
    /// per packet from changing ports, as a DUT asks (methodology.md).
    pub(crate) fn resolve(&self, rate: Qps) -> TrialPlan {
        let mut plan = self.traffic.plan(self.server, rate);
        plan.timeout = method::selftest::timeout(self.traffic.timeout.into());
        plan.aaaa_share = method::units::Share::ONE;
        plan.cached_share = method::units::Share::ZERO;
        plan.offload = self.traffic.offload.unwrap_or(false);
        if self.traffic.names.is_none() && plan.names_needed() > plan.names.count() {
            plan.names = NameRange::ALL;
        }
        plan
    }
}

impl ClosedLoop {
    pub(crate) fn resolve(&self) -> ClosedLoopPlan {
        ClosedLoopPlan {
            server: self.server,
            outstanding: self.outstanding,
            threads: self.threads,
            source_ports: self.source_ports.unwrap_or(self.threads),
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            domain: self.domain.clone(),
            names: self.names,
            first_name: self.first_name,
            count: self.count,
            duration: self.duration.map(Nanos::from),
            timeout: self.timeout.into(),
            expectation: Expectation {
                aaaa_share: self.aaaa_share,
                check_own_aaaa: !self.any_aaaa,
                prefixes: self.expect_prefix.clone(),
            },
            offload: self.offload,
        }
    }
}

impl ZoneContent {
    pub(crate) fn resolve(&self) -> answer::Zone {
        let ttl = Duration::from_secs(self.ttl.into());
        answer::Zone::new(self.domain.clone(), self.aaaa_share, ttl, self.ns_address)
    }
}

impl DelayRange {
    pub(crate) fn resolve(self) -> Delay {
        Delay { min: Nanos::from(self.min), max: Nanos::from(self.max) }
    }
}

/// Seconds since 1970, for file names.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
