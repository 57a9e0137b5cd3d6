//! A plan, taken apart into the points that are measured one after the other.

use std::fmt;
use std::time::Duration;

use method::units::{Qps, Share};
use serde::{Deserialize, Serialize};

use crate::plan::{DutPlan, Plan};

/// One point: what is measured, of whom, under which conditions. Its text names it in the journal.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub enum Point {
    /// The tester against its own AuthDNS.
    SelfTest,
    /// The highest rate of a DUT.
    Search(Conditions),
    /// A DUT at a share of the worst case's median: CPU use and latency.
    Load {
        /// Whose.
        dut: String,
        /// Which share.
        share: Share,
    },
}

/// Under which conditions a rate is searched for.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct Conditions {
    /// Name of the DUT.
    pub dut: String,
    /// Cores, and DUT threads.
    pub cores: usize,
    /// The plan's name for the CPUs; none: the first ones of the DUT's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
    /// Share of names with an AAAA record (α).
    pub aaaa: Share,
    /// Share of queries for cached names (β).
    pub cached: Share,
    /// Share of valid replies at which a trial passes.
    pub accept: f64,
}

impl Conditions {
    /// The compulsory point of RFC 8219 §9.2 on so many cores.
    pub fn worst_case(dut: &str, cores: usize) -> Conditions {
        Conditions { dut: dut.into(), cores, placement: None, aaaa: Share::ZERO, cached: Share::ZERO, accept: 1.0 }
    }

    /// Whether this is the compulsory point, on however many of the DUT's first cores.
    pub fn is_worst_case(&self) -> bool {
        self.placement.is_none() && self.aaaa == Share::ZERO && self.cached == Share::ZERO && self.accept >= 1.0
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::SelfTest => write!(f, "self-test"),
            Point::Search(c) => {
                write!(f, "{}, {} cores", c.dut, c.cores)?;
                if let Some(placement) = &c.placement {
                    write!(f, " ({placement})")?;
                }
                write!(f, ", AAAA {}, cached {}, accept {}", c.aaaa, c.cached, c.accept)
            }
            Point::Load { dut, share } => write!(f, "{dut}, load {share}"),
        }
    }
}

impl Point {
    /// The DUT's name.
    pub fn dut(&self) -> Option<&str> {
        match self {
            Point::SelfTest => None,
            Point::Search(conditions) => Some(&conditions.dut),
            Point::Load { dut, .. } => Some(dut),
        }
    }
}

impl Plan {
    /// All points in their order: the self-test, then DUT by DUT, the worst case before what builds on it.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        if self.self_test.is_some() {
            points.push(Point::SelfTest);
        }
        for dut in &self.duts {
            points.extend(self.points_of(dut));
        }
        points
    }

    fn points_of(&self, dut: &DutPlan) -> Vec<Point> {
        let cores = self.cores();
        let worst = Conditions::worst_case(dut.name(), cores[0]);
        let mut all: Vec<Conditions> = cores.iter().map(|&cores| Conditions { cores, ..worst.clone() }).collect();
        let m = &self.measure;
        all.extend(m.placements.iter().map(|p| Conditions {
            cores: p.cpus.len(),
            placement: Some(p.name.clone()),
            ..worst.clone()
        }));
        all.extend(m.acceptance.iter().map(|&accept| Conditions { accept, ..worst.clone() }));
        all.extend(m.aaaa_shares.iter().map(|&aaaa| Conditions { aaaa, ..worst.clone() }));
        all.extend(m.cached_shares.iter().map(|&cached| Conditions { cached, ..worst.clone() }));
        if m.table {
            for &aaaa in &m.aaaa_shares {
                all.extend(m.cached_shares.iter().map(|&cached| Conditions { aaaa, cached, ..worst.clone() }));
            }
        }
        let mut points: Vec<Point> = Vec::new();
        for point in all.into_iter().map(Point::Search) {
            // A share of 0 in a list is the worst case again.
            if !points.contains(&point) {
                points.push(point);
            }
        }
        let shares = m.loads.iter().flat_map(|loads| &loads.shares);
        points.extend(shares.map(|&share| Point::Load { dut: dut.name().into(), share }));
        points
    }

    /// The DUT of that name.
    pub fn dut(&self, name: &str) -> Option<&DutPlan> {
        self.duts.iter().find(|dut| dut.name() == name)
    }

    /// The CPUs that the DUT of a point runs on; none: any.
    pub fn cpus_of(&self, conditions: &Conditions) -> &[usize] {
        let placed = self.measure.placements.iter().find(|p| Some(&p.name) == conditions.placement.as_ref());
        placed.map_or(&self.cpus.dut[..conditions.cores.min(self.cpus.dut.len())], |placement| &placement.cpus)
    }

    /// The range that is searched for a DUT.
    pub fn range(&self, dut: &DutPlan) -> (Qps, Qps) {
        (self.search.min, dut.max.unwrap_or(self.search.max))
    }

    /// Trials of a point, at the most, and how long they take if none is repeated.
    pub fn effort(&self, point: &Point) -> (u32, Duration) {
        let each = |length: Duration| length + self.trial.timeout(length) + self.trial.pause;
        let steps = |min: Qps, max: Qps, resolution: Qps| ((max.0 - min.0) / resolution.0.max(1)).max(1).ilog2() + 3;
        match point {
            Point::SelfTest => {
                let test = self.self_test.clone().unwrap_or_default();
                let trials = steps(test.min, test.max, test.resolution) * test.repeat;
                (trials, each(self.trial.duration) * trials)
            }
            Point::Search(conditions) => {
                let (min, max) = self.dut(&conditions.dut).map_or((Qps(1), Qps(1)), |dut| self.range(dut));
                let steps = steps(min, max, self.search.resolution);
                let full = each(self.trial.duration);
                // With probes about half of the steps, those that fail, end with the probe.
                let one = match self.search.probe {
                    Some(probe) => each(probe) * steps + full * (steps / 2 + 1),
                    None => full * steps,
                };
                let trials = if self.search.probe.is_some() { steps * 3 / 2 + 1 } else { steps };
                (trials * self.search.repeat, one * self.search.repeat)
            }
            Point::Load { .. } => {
                let loads = self.measure.loads.as_ref();
                let (length, repeat) = loads.map_or((Duration::ZERO, 0), |loads| (loads.duration, loads.repeat));
                (repeat, each(length) * repeat)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_papers_programme_has_all_its_points_once() {
        let plan = Plan::load(Path::new("paper")).unwrap();
        let points = plan.points();
        let of = |dut: &str| points.iter().filter(|p| p.dut() == Some(dut)).count();
        // 5 core counts, 2 ratios, 5 α, 5 β, 5 · 5 combinations, 4 loads.
        assert_eq!(of("Unbound"), 5 + 2 + 5 + 5 + 25 + 4);
        assert_eq!(points.len(), 1 + 4 * 46);
        assert_eq!(points[1], Point::Search(Conditions::worst_case("BIND", 1)));
        let names: std::collections::BTreeSet<_> = points.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), points.len());
    }

    #[test]
    fn the_compulsory_point_takes_twenty_times_a_search() {
        let plan = Plan::load(Path::new("compulsory")).unwrap();
        let (trials, time) = plan.effort(&plan.points()[1]);
        assert_eq!(trials, 20 * 19);
        assert_eq!(time, Duration::from_secs(71) * 380);
    }
}
