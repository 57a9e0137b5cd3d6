//! Settings of a plan that apply to a DUT or a measurement point: keys, placements, CPUs, search
//! range and self-test.

use std::time::Duration;

use method::search::SearchRange;
use units::counted;

use crate::plan::keys::{Keys, Placement, SearchSettings};
use crate::plan::point::{Cores, Point, SelfTestTarget};
use crate::plan::{AuthPlan, DutPlan, Plan};

impl Plan {
    /// Returns the keys of `[measure]` for a DUT. A key in the DUT's own tables replaces the key in
    /// `[measure]`.
    pub fn keys_of(&self, dut: &DutPlan) -> Keys {
        let all = &self.measure;
        let own = dut.measure.clone().unwrap_or_default();
        let wanted =
            |p: &&Placement| dut.placements.as_ref().is_none_or(|names| names.contains(&p.name));
        Keys {
            cores: dut.cores.clone().unwrap_or_else(|| all.cores.clone()),
            authdns: own.authdns.unwrap_or_else(|| all.authdns.clone()),
            placements: all.placements.iter().filter(wanted).cloned().collect(),
            acceptance: own.acceptance.unwrap_or_else(|| all.acceptance.clone()),
            acceptance_at: own.acceptance_at.or_else(|| all.acceptance_at.clone()),
            aaaa_shares: own.aaaa_shares.unwrap_or_else(|| all.aaaa_shares.clone()),
            cached_shares: own.cached_shares.unwrap_or_else(|| all.cached_shares.clone()),
            table: own.table.unwrap_or(all.table),
            shares_at: own.shares_at.or_else(|| all.shares_at.clone()),
            loads: own.loads.or_else(|| all.loads.clone()),
            constant_rates: own.constant_rates.unwrap_or_else(|| all.constant_rates.clone()),
            closed_loop: own.closed_loop.or_else(|| all.closed_loop.clone()),
            conform: own.conform.unwrap_or(all.conform),
        }
    }

    /// Returns the core counts with which a DUT is measured. By default, searches with various
    /// shares of AAAA records and of cached names use only the first core count.
    pub(crate) fn cores_of(&self, dut: &DutPlan) -> Vec<usize> {
        self.keys_of(dut).cores()
    }
}

/// Checks the cores, the placements and the AuthDNS servers of a plan's DUTs, and returns the first
/// error.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    let mut names = std::collections::BTreeSet::new();
    for placement in &plan.measure.placements {
        if placement.cpus.is_empty() || !names.insert(&placement.name) {
            return Err(format!(
                "[[measure.placements]] {}: needs CPUs and a unique name",
                placement.name
            ));
        }
    }
    for dut in &plan.duts {
        let (keys, name) = (plan.keys_of(dut), dut.name());
        let key = if dut.cores.is_some() {
            format!("[[dut]] {name}: cores")
        } else {
            "[measure] cores".into()
        };
        let cores = keys.cores();
        let most = cores.iter().copied().max().unwrap_or(1);
        if cores.contains(&0) || !plan.cpus.dut.is_empty() && most > plan.cpus.dut.len() {
            let has = counted(plan.cpus.dut.len() as u64, "CPU", "CPUs");
            return Err(format!("{key}: {most}, but [cpus] dut has {has}"));
        }
        if let Some(unknown) =
            dut.placements.iter().flatten().find(|wanted| !names.contains(wanted))
        {
            return Err(format!(
                "[[dut]] {name}: placements: no [[measure.placements]] has the name {unknown}"
            ));
        }
        if let Some(unknown) =
            keys.authdns.iter().find(|wanted| plan.auths().all(|auth| auth.name() != **wanted))
        {
            let known: Vec<&str> = plan.auths().map(|auth| auth.name()).collect();
            return Err(format!("authdns of {name}: {unknown} is not one of {}", known.join(", ")));
        }
        if let Some(twice) =
            (1..keys.authdns.len()).find(|&i| keys.authdns[..i].contains(&keys.authdns[i]))
        {
            return Err(format!("authdns of {name}: {} is listed twice", keys.authdns[twice]));
        }
        let lists = [("acceptance-at", &keys.acceptance_at), ("shares-at", &keys.shares_at)];
        for (list, at) in lists {
            if let Some(stray) = keys.unknown_placement(at.as_deref()) {
                return Err(format!(
                    "{list}: {stray} is not one of the cores and placements of {name}"
                ));
            }
        }
    }
    Ok(())
}

impl Plan {
    /// Returns the self-test that validates trials with the AuthDNS of `[auth]`, or `None` if the
    /// plan has no self-tests.
    pub fn own_self_test(&self) -> Option<Point> {
        self.self_test_with(&self.auth)
    }

    /// Returns the self-test that validates the trials of a measurement point: the self-test with
    /// the same AuthDNS.
    pub(crate) fn self_test_for(&self, point: &Point) -> Option<Point> {
        self.self_test_with(self.auth_named(point.authdns()))
    }

    /// Returns the self-test with the server `auth`, or `None` if the plan has no self-tests.
    pub(crate) fn self_test_with(&self, auth: &AuthPlan) -> Option<Point> {
        let named = (auth.name() != self.auth.name()).then(|| auth.name().to_owned());
        let looped = SelfTestTarget { server: auth.driver, family: None, cores: None, named };
        self.self_test.as_ref().map(|_| Point::SelfTest(looped))
    }

    /// Returns the DUT with this name, or `None` if the plan has no such DUT.
    pub fn dut(&self, name: &str) -> Option<&DutPlan> {
        self.duts.iter().find(|dut| dut.name() == name)
    }

    /// Returns the CPUs of a placement; empty if the DUT may use any CPU.
    pub(crate) fn cpus_at(&self, place: &Cores) -> &[usize] {
        let placed =
            self.measure.placements.iter().find(|p| Some(&p.name) == place.placement.as_ref());
        placed.map_or(&self.cpus.dut[..place.cores.min(self.cpus.dut.len())], |placement| {
            &placement.cpus
        })
    }

    /// Returns the range and resolution of searches for a DUT.
    pub fn range(&self, dut: &DutPlan) -> SearchRange {
        let SearchSettings { min, max, resolution, invalid_retries, .. } = self.search;
        let (max, resolution) = (dut.max.unwrap_or(max), dut.resolution.unwrap_or(resolution));
        SearchRange { min, max, resolution, invalid_retries }
    }

    /// Returns the total duration of a trial that sends queries for the time `length`. The timeout
    /// and the pause after the trial are included.
    pub(crate) fn takes(&self, length: Duration) -> Duration {
        length + self.trial.timeout(length) + self.trial.pause
    }
}
