//! Checks that each trial of a plan can be distributed among several testers. Each tester must send
//! at least one query.

use std::time::Duration;

use method::schedule::Schedule;
use units::{Nanos, Qps, counted, grouped};

use crate::plan::Plan;
use crate::plan::search_plan::Method;

/// The smallest trial that a group of plan keys permits: the trial with the fewest queries.
struct Smallest {
    /// Names of the plan keys that determine this trial.
    keys: &'static str,
    /// The lowest rate of a trial, at least 1 query per second.
    rate: Qps,
    /// The shortest time for which a trial sends queries.
    length: Duration,
}

impl Smallest {
    fn new(keys: &'static str, rate: Qps, length: Duration) -> Smallest {
        // A trial at a rate of 0 would have no queries.
        Smallest { keys, rate: rate.max(Qps(1)), length }
    }

    fn queries(&self) -> u64 {
        Schedule::new(self.rate, self.length.into()).count()
    }

    /// Returns the lowest rate at which a trial of this length has at least `queries` queries.
    fn rate_for(&self, queries: u64) -> u64 {
        (queries * Nanos::SECOND.0).div_ceil(Nanos::from(self.length).0.max(1))
    }
}

impl Plan {
    /// Checks that even the trial with the fewest queries has at least one query for each tester.
    pub(crate) fn check_testers(&self) -> Result<(), String> {
        let testers = self.ssh.as_ref().map_or(1, |ssh| ssh.tester_hosts().len()) as u64;
        let is_too_small = |trial: &Smallest| testers > 1 && trial.queries() < testers;
        let Some(trial) = self.smallest_trials().into_iter().find(is_too_small) else {
            return Ok(());
        };
        let Smallest { keys, rate, length } = trial;
        let length = humantime::format_duration(length);
        Err(format!(
            "{keys}: a trial of {length} at {} queries/s has {}, but each of the {} testers of [ssh] must send one; \
             use {} queries/s or more for that length, or longer trials",
            grouped(rate.0),
            counted(trial.queries(), "query", "queries"),
            grouped(testers),
            grouped(trial.rate_for(testers)),
        ))
    }

    /// Returns, for each kind of measurement, the trial with the fewest queries.
    fn smallest_trials(&self) -> Vec<Smallest> {
        let (search, full) = (&self.search, self.trial.duration);
        let shortest = match search.method_for(full, 1.0) {
            Method::Bisection => search.probe.unwrap_or(full).min(full),
            Method::MlrSearch(goals) => {
                let first = goals.iter().map(|goal| Duration::from(goal.initial_duration));
                first.min().unwrap_or(full)
            }
        };
        let mut all = vec![Smallest::new("[search] min", search.min, shortest)];
        all.extend(self.self_test.as_ref().map(|t| Smallest::new("[self-test] min", t.min, full)));
        for dut in &self.duts {
            let keys = self.keys_of(dut);
            if let Some(loads) = &keys.loads {
                let least = loads.shares.iter().map(|share| share.fraction());
                let least = least.filter(|&share| share > 0.0).min_by(f64::total_cmp);
                let rate = least.map(|share| Qps((search.min.0 as f64 * share) as u64));
                all.extend(rate.map(|rate| {
                    Smallest::new("[measure.loads] shares of [search] min", rate, loads.duration)
                }));
            }
            for block in &keys.constant_rates {
                let rate = block.rates.iter().min();
                all.extend(rate.map(|&rate| {
                    Smallest::new("[[measure.constant-rates]] rates", rate, block.duration)
                }));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Parses a plan with `testers` testers and the TOML tables `tables`.
    fn shared_by(testers: usize, tables: &str) -> Result<Plan, String> {
        let hosts: Vec<String> = (0..testers).map(|n| format!("{{ host = 'load{n}' }}")).collect();
        let text = format!(
            "name = 'x'\ntopology = 'ssh'\n[ssh]\ntesters = [{}]\naddresses = {{ dut = '[::1]:53', auth = '[::2]:53' }}\n\
             {tables}[[dut]]\ndriver = 'unbound'\n",
            hosts.join(", ")
        );
        Plan::parse(&text, Path::new("p.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn too_small_trials_for_all_testers_are_rejected() {
        let probes = "[search]\nmin = 100\nmax = 400\nprobe = '50ms'\n";
        let short = "[trial]\nduration = '1s'\n";
        let goals =
            "[trial]\nduration = '10s'\n[search]\nmin = 5\nmax = 400\nmethod = 'mlrsearch'\n";
        let loads = "[measure.loads]\nshares = [0.01, 0.5]\nduration = '5s'\ntransient = '0s'\n";
        let rates = "[[measure.constant-rates]]\nrates = [900, 2]\nduration = '2s'\ntransient = '0s'\nrepeat = 1\n";
        for (tables, most, key) in [
            (probes.to_owned(), 5, "[search] min"),
            (format!("{short}[search]\nmin = 3\n"), 3, "[search] min"),
            (goals.to_owned(), 5, "[search] min"),
            (format!("{short}[self-test]\nmin = 4\n"), 4, "[self-test] min"),
            (format!("{short}{loads}"), 5, "[measure.loads]"),
            (format!("{short}{rates}"), 4, "[[measure.constant-rates]]"),
        ] {
            shared_by(most, &tables).unwrap_or_else(|why| panic!("{tables}: {why}"));
            let why = shared_by(most + 1, &tables).unwrap_err();
            assert!(why.contains(key) && why.contains("testers of [ssh]"), "{why}");
        }
        let why = shared_by(6, probes).unwrap_err();
        assert!(why.contains("50ms at 100 queries/s has 5 queries"), "{why}");
        assert!(why.contains("use 120 queries/s or more"), "{why}");
    }

    /// A single tester sends every query, so the number of queries does not matter.
    #[test]
    fn a_single_tester_has_each_query() {
        shared_by(1, "[search]\nmin = 1\nmax = 400\nprobe = '1ms'\n").unwrap();
    }
}
