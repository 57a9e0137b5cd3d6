//! The tester's task in a trial, and the names that the trial queries.

use method::compliance::{Fact, Facts};
use method::narrow::Length;
use tester::measurer::plan::TrialPlan;
use tester::measurer::result::TrialResult;
use tester::xdp::XdpConfig;
use units::{CpuId, Nanos, Qps, Share, counted, grouped};
use wire::name::NameRange;

use crate::plan::Point;
use crate::record::Step;
use crate::runner::colocation::{Role, shared};
use crate::runner::error::CampaignError;
use crate::runner::hosts::{Hosts, Machines};
use crate::runner::{Campaign, Testbed};
use crate::sequence::Task;

/// Position of the first name that trials query. Each search starts at this name again, because the
/// DUT is restarted for each search.
const FIRST_NAME: u64 = 10 << 24;
/// Number of names at the start of a zone file that are reserved for readiness checks.
const READINESS_NAMES: u64 = 256;

impl<H: Hosts> Campaign<'_, H> {
    /// Returns the tester's task, and the number of names that the task uses.
    pub(super) fn task(&self, step: &Step, first_name: u64) -> (Task, u64) {
        let task = step.point.measure().task(self.plan, step, self.base(step, first_name));
        let used = match &task {
            Task::Trial(plan) => plan.names_needed(),
            Task::ClosedLoop(plan) => plan.names(),
            // Checks do not use the names of trials.
            Task::Conform(_) => 0,
        };
        (task, used)
    }

    /// Returns the settings of a trial that do not depend on the kind of measurement.
    pub(super) fn base(&self, step: &Step, first_name: u64) -> TrialPlan {
        let t = &self.plan.trial;
        let mut plan = TrialPlan::new(self.hosts.server_of(step), step.rate);
        plan.duration = t.duration.into();
        plan.timeout = t.timeout(t.duration).into();
        plan.names = self.names(&step.point).0;
        plan.first_name = first_name;
        plan.prefixes = vec![t.prefix];
        plan.threads = t.threads;
        plan.source_ports = t.source_ports;
        plan.source_addresses = t.sources_for(plan.server);
        plan.xdp = t.xdp.map(|mode| XdpConfig { interface: None, mode });
        plan.max_burst = t.max_burst;
        plan.send_cost = self.send_cost();
        plan.real_time = !self.shares_tester_cpus();
        plan.limits = t.pacing_limits();
        plan.auth_limit = t.auth_limit.into();
        plan.cpus = self.plan.cpus.tester.iter().map(|&cpu| CpuId(cpu)).collect();
        plan
    }

    /// Returns the block of names for a measurement point's trials, and the position of the first
    /// name that the trials query.
    pub(super) fn names(&self, point: &Point) -> (NameRange, u64) {
        let auth = self.plan.auth_at(point);
        if auth.driver.is_ours() {
            (NameRange::ALL, FIRST_NAME)
        } else {
            (auth.names, READINESS_NAMES)
        }
    }

    /// Stops the DUT and AuthDNS if the zone file has too few unused names for one more trial. Both are then started
    /// again. The restarted DUT has an empty cache, so the names can be used again.
    pub(super) fn ensure_names(
        &self,
        site: &mut Option<Testbed<H>>,
        step: &Step,
    ) -> Result<(), CampaignError> {
        let (names, first) = self.names(&step.point);
        let next = site.as_ref().map_or(first, |site| site.next_name);
        let (_, used) = self.task(step, next);
        if next + used <= names.count() {
            return Ok(());
        }
        *site = None;
        if first + used <= names.count() {
            return Ok(());
        }
        let (used, has) =
            (counted(used, "name", "names"), grouped(names.count().saturating_sub(first)));
        let why = format!(
            "it needs {used}, but [auth] names = \"{names}\" has {has} for a search; use a larger block"
        );
        Err(CampaignError::Trial { rate: Some(step.rate), why, is_usage: true })
    }

    /// Returns the step of a readiness check: its measurement point, rate and length.
    pub(super) fn readiness_step(&self, point: &Point) -> Step {
        Step { point: point.clone(), repeat: 0, rate: Qps(50), length: Length::Probe }
    }

    /// Returns the trial of a readiness check. It queries a few names that no other trial uses. The
    /// share of names with an AAAA record is the same as at the measurement point.
    pub(super) fn readiness_task(&self, point: &Point) -> Task {
        let mut plan = self.base(&self.readiness_step(point), 0);
        if self.plan.auth_at(point).driver.is_ours() {
            plan.names = "9.0.0.0/24".parse().expect("a constant");
        }
        plan.aaaa_share = point.aaaa();
        plan.cached_share = Share::ZERO;
        (plan.duration, plan.timeout) = (Nanos::from_millis(100), Nanos::from_millis(500));
        Task::Trial(Box::new(plan))
    }

    /// Returns the facts that determine whether a trial complies with RFC 8219. They are the facts that the Measurer
    /// observed, and whether tester, DUT and AuthDNS share a host or CPUs. `auth` contains the CPUs of AuthDNS. `dut`
    /// contains the CPUs of the DUT, and is `None` in a self-test.
    pub(super) fn facts_of(
        &self,
        trial: &TrialResult,
        auth: &[usize],
        dut: Option<&[usize]>,
    ) -> Facts {
        let machines = self.hosts.machines();
        let dut = dut.map(|cpus| Role { machine: &machines.dut, cpus });
        let auths = machines.auths.iter().map(|machine| Role { machine, cpus: auth });
        let testers = self.testers(&machines);
        let roles: Vec<Role<'_>> = testers.chain(auths).chain(dut).collect();
        let (shares_host, shares_cpus) = shared(&roles);
        Facts { shares_host, shares_cpus, ..trial.facts }
    }

    /// True if AuthDNS or a DUT may run on the CPUs of the Measurer.
    fn shares_tester_cpus(&self) -> bool {
        let machines = self.hosts.machines();
        let points = self.plan.points();
        let places: Vec<Vec<usize>> =
            points.iter().filter_map(|p| p.place()).map(|p| self.hosts.cpus_at(p)).collect();
        let duts = places.iter().map(|cpus| Role { machine: &machines.dut, cpus });
        // A machine with an unknown id may be the tester's machine, so it counts as shared.
        let auths =
            machines.auths.iter().map(|machine| Role { machine, cpus: &self.plan.cpus.auth });
        let others: Vec<Role<'_>> = duts.chain(auths).collect();
        self.testers(&machines)
            .any(|tester| others.iter().any(|other| shared(&[tester, *other]).1 != Fact::No))
    }

    /// Returns the machine and the CPUs of each tester. Several testers on the same machine share one entry.
    fn testers<'r>(&'r self, machines: &'r Machines) -> impl Iterator<Item = Role<'r>> {
        machines.testers.iter().map(|machine| Role { machine, cpus: &self.plan.cpus.tester })
    }
}
