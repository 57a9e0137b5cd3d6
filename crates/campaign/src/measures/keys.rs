//! Plan keys that select points: `[measure]` for all DUTs, and the keys that a `[[dut]]` replaces.

use std::fmt;

use method::units::{Share, counted};
use serde::{Deserialize, Serialize};

use super::closed_loop::ClosedLoops;
use super::constant_rate::ConstantRates;
use super::load::Loads;
use crate::plan::{DutPlan, Plan};
use crate::point::Cores;

/// `[measure]`: measurements of each DUT. The worst case, 0 % AAAA and 0 % cached with every reply
/// required, is always measured, at every placement of a DUT: its numbers of cores and its
/// placements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Keys {
    /// Numbers of cores (and DUT threads). Default: one core.
    pub cores: Vec<usize>,
    /// Names of the servers that play AuthDNS; every point is measured with each of them. Default:
    /// that of `[auth]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub authdns: Vec<String>,
    /// Further sets of CPUs, such as cores of one socket against cores of two.
    pub placements: Vec<Placement>,
    /// Acceptance ratios above 0 and below 1; not RFC 8219 compliant.
    pub acceptance: Vec<f64>,
    /// Placements at which acceptance ratios are measured; default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<At>>,
    /// AAAA shares (α) at 0 % cached.
    pub aaaa_shares: Vec<Share>,
    /// Cached shares (β) at 0 % AAAA.
    pub cached_shares: Vec<Share>,
    /// Also measures every combination of both lists.
    pub table: bool,
    /// Placements at which both shares are measured; default: the first number of cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<At>>,
    /// CPU use and latency at shares of the worst-case median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// CPU use, latency and memory of the DUT at rates from the plan.
    pub constant_rates: Vec<ConstantRates>,
    /// Closed loop: each query waits for the answer to the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// Correctness of its answers, by the checks of `conform`.
    pub conform: bool,
}

/// A set of CPUs for the DUT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// Name of the placement in the report.
    pub name: String,
    /// The CPUs; the DUT has as many threads.
    pub cpus: Vec<usize>,
}

/// An entry in a list of placements: a number of cores, or the name of a placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum At {
    /// The first N of the DUT's CPUs.
    Cores(usize),
    /// The CPUs of that placement.
    Placement(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Cores(cores) => cores.fmt(f),
            At::Placement(name) => write!(f, "{name:?}"),
        }
    }
}

/// `[dut.measure]`: keys of a DUT that replace those of `[measure]`. A missing key is that of
/// `[measure]`; an empty list removes the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct DutKeys {
    /// Names of the servers that play AuthDNS for this DUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authdns: Option<Vec<String>>,
    /// Acceptance ratios below 1 for this DUT, fractions; not RFC 8219 compliant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Vec<f64>>,
    /// Placements of this DUT at which acceptance ratios below 1 are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acceptance_at: Option<Vec<At>>,
    /// AAAA shares (α) for this DUT, fractions from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aaaa_shares: Option<Vec<Share>>,
    /// Cached shares (β) for this DUT, fractions from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_shares: Option<Vec<Share>>,
    /// True if this DUT is measured with every AAAA share at every cached share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<bool>,
    /// Placements of this DUT at which shares are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares_at: Option<Vec<At>>,
    /// Trials of this DUT at shares of its worst-case median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// Trials of this DUT at constant rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constant_rates: Option<Vec<ConstantRates>>,
    /// Trials of this DUT in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<ClosedLoops>,
    /// True if this DUT's answers are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conform: Option<bool>,
}

impl Plan {
    /// Returns the keys of a DUT: `[measure]`, with the keys that the DUT replaces.
    pub(crate) fn keys_of(&self, dut: &DutPlan) -> Keys {
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

    /// Returns the numbers of cores of a DUT. Shares are measured at the first one by default.
    pub(crate) fn cores_of(&self, dut: &DutPlan) -> Vec<usize> {
        self.keys_of(dut).cores()
    }
}

impl Keys {
    fn cores(&self) -> Vec<usize> {
        if self.cores.is_empty() { vec![1] } else { self.cores.clone() }
    }

    /// Returns all placements: the numbers of cores, then the named placements, each with every
    /// AuthDNS.
    pub(crate) fn places(&self) -> Vec<Cores> {
        let auths: Vec<Option<String>> = match self.authdns.is_empty() {
            true => vec![None],
            false => self.authdns.iter().cloned().map(Some).collect(),
        };
        let placed =
            |p: &Placement| Cores { placement: Some(p.name.clone()), ..Cores::first(p.cpus.len()) };
        let places =
            self.cores().into_iter().map(Cores::first).chain(self.placements.iter().map(placed));
        let with_each = |place: Cores| {
            auths
                .iter()
                .map(move |authdns| Cores { authdns: authdns.clone(), ..place.clone() })
                .collect::<Vec<_>>()
        };
        places.flat_map(with_each).collect()
    }

    /// Returns the placements in a list; without a list all of them.
    pub(crate) fn places_at(&self, at: Option<&[At]>) -> Vec<Cores> {
        let is_meant = |place: &Cores| {
            at.is_none_or(|list| {
                list.iter().any(|at| match (at, &place.placement) {
                    (At::Cores(cores), None) => place.cores == *cores,
                    (At::Placement(name), Some(placement)) => name == placement,
                    _ => false,
                })
            })
        };
        self.places().into_iter().filter(is_meant).collect()
    }

    /// Returns the placements in a list; without a list the first number of cores.
    pub(crate) fn places_or_first(&self, at: Option<&[At]>) -> Vec<Cores> {
        match at {
            Some(_) => self.places_at(at),
            None => {
                let first = Cores::first(self.cores()[0]);
                self.places().into_iter().filter(|place| place.is_where(&first)).collect()
            }
        }
    }

    /// Returns the placements at which AAAA shares and cached shares are measured.
    pub(crate) fn share_places(&self) -> Vec<Cores> {
        self.places_or_first(self.shares_at.as_deref())
    }

    /// Returns the first entry of a list that is not a placement of this DUT.
    pub(crate) fn stray<'a>(&self, at: Option<&'a [At]>) -> Option<&'a At> {
        at?.iter().find(|at| self.places_at(Some(std::slice::from_ref(at))).is_empty())
    }
}

/// Checks the placements of a plan's DUTs; returns the first error.
pub(super) fn check(plan: &Plan) -> Result<(), String> {
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
            if let Some(stray) = keys.stray(at.as_deref()) {
                return Err(format!(
                    "{list}: {stray} is not one of the cores and placements of {name}"
                ));
            }
        }
    }
    Ok(())
}
