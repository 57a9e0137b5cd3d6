//! Several MLRsearch searches, one after the other. [`crate::set::Set`] is the counterpart for binary searches.

use super::goal::{Goal, GoalError};
use super::search::{GoalResult, Limits, MlrDue, MlrSearch};
use crate::records::Counts;
use crate::search::{Found, Shortfall};
use crate::verdict::Verdict;
use units::Qps;

/// Several searches, one after the other. Run the trial that [`due`](MlrSet::due) returns, and pass its verdict and
/// counts to [`report`](MlrSet::report). Repeat this until no trial is left.
#[derive(Clone, Debug)]
pub struct MlrSet {
    limits: Limits,
    goals: Vec<Goal>,
    repeat: u32,
    search: MlrSearch,
    results: Vec<Vec<GoalResult>>,
    failed_by: Vec<Option<Shortfall>>,
}

impl MlrSet {
    /// Creates a set of `repeat` searches.
    ///
    /// # Errors
    /// See [`MlrSearch::new`].
    pub fn new(limits: Limits, goals: Vec<Goal>, repeat: u32) -> Result<MlrSet, GoalError> {
        let search = MlrSearch::new(limits, &goals)?;
        Ok(MlrSet { limits, goals, repeat, search, results: Vec::new(), failed_by: Vec::new() })
    }

    /// Returns the index of the current search and its next trial, or `None` once all searches are over.
    pub fn due(&self) -> Option<(u32, MlrDue)> {
        let at = self.results.len() as u32;
        if at < self.repeat { self.search.due().map(|due| (at, due)) } else { None }
    }

    /// Records the verdict and the counts of the trial returned by [`due`](MlrSet::due).
    pub fn report(&mut self, verdict: Verdict, counts: &Counts) {
        if self.due().is_none() {
            return;
        }
        self.search.report(verdict, counts);
        let Some(results) = self.search.result() else { return };
        self.failed_by.push(results.first().and_then(|first| self.shortfall(first)));
        self.results.push(results);
        self.search = MlrSearch::new(self.limits, &self.goals).expect("the same as before");
    }

    /// Returns the search goals.
    pub fn goals(&self) -> &[Goal] {
        &self.goals
    }

    /// Returns the results of each finished search, one per goal, in the order of the goals.
    pub fn results(&self) -> &[Vec<GoalResult>] {
        &self.results
    }

    /// For each search, returns the result for the goal at index `place`, in the form of a binary search's result.
    pub fn found(&self, place: usize) -> Vec<Found> {
        self.results
            .iter()
            .filter_map(|results| results.get(place))
            .map(GoalResult::found)
            .collect()
    }

    /// For each search, returns the number of missing replies in one trial. This trial is the one with the highest loss
    /// among the trials at the first goal's upper bound.
    pub fn failed_by(&self) -> &[Option<Shortfall>] {
        &self.failed_by
    }

    fn shortfall(&self, result: &GoalResult) -> Option<Shortfall> {
        let upper: Qps = result.relevant_upper_bound?;
        let worst = self
            .search
            .loads()
            .get(&upper)?
            .iter()
            .max_by(|a, b| a.loss_ratio().total_cmp(&b.loss_ratio()))?;
        Some(Shortfall { rate: upper, missing: worst.missing, of: worst.of })
    }
}

impl GoalResult {
    /// Converts this result to the form of a binary search's result: the passed rate, the failed rate, and whether the
    /// DUT may be faster.
    pub fn found(&self) -> Found {
        let open = self.relevant_lower_bound.is_some() && self.relevant_upper_bound.is_none();
        Found {
            highest: self.relevant_lower_bound,
            failed: self.relevant_upper_bound,
            lower_bound: open || self.unmeasurable.is_some(),
            unmeasurable: self.unmeasurable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    #[test]
    fn searches_run_in_sequence_with_their_results() {
        let limits = Limits { min: Qps(100), max: Qps(10_000), invalid_retries: 0 };
        let goals = vec![Goal::rfc8219(Nanos(4 * Nanos::SECOND.0), 0.02); 2];
        let mut set = MlrSet::new(limits, goals, 3).unwrap();
        let mut of = Vec::new();
        while let Some((repeat, due)) = set.due() {
            of.push(repeat);
            let lost = u64::from(due.rate.0 > 5_000);
            let counts = Counts { sent: 100, valid: 100 - lost, lost, ..Counts::default() };
            set.report(if lost == 0 { Verdict::Passed } else { Verdict::Failed }, &counts);
            assert!(of.len() < 300, "the set does not end");
        }
        assert!(of.is_sorted() && of.last() == Some(&2));
        assert_eq!((set.results().len(), set.results()[0].len()), (3, 2));
        for found in set.found(0) {
            let (passed, failed) = (found.highest.unwrap(), found.failed.unwrap());
            assert!(passed.0 <= 5_000 && failed.0 > 5_000 && !found.lower_bound, "{found:?}");
        }
        let shortfall = set.failed_by()[0].unwrap();
        assert_eq!(
            (Some(shortfall.rate), shortfall.missing, shortfall.of),
            (set.found(0)[0].failed, 1, 100)
        );
        set.report(Verdict::Passed, &Counts::default());
        assert_eq!(set.results().len(), 3, "nothing was due");
    }

    #[test]
    fn an_open_result_is_a_lower_bound() {
        let limits = Limits { min: Qps(100), max: Qps(10_000), invalid_retries: 0 };
        let mut set = MlrSet::new(limits, vec![Goal::rfc8219(Nanos::SECOND, 0.02)], 1).unwrap();
        while set.due().is_some() {
            set.report(Verdict::Passed, &Counts { sent: 10, valid: 10, ..Counts::default() });
        }
        let found = Found {
            highest: Some(Qps(10_000)),
            failed: None,
            lower_bound: true,
            unmeasurable: None,
        };
        assert_eq!((set.found(0), set.failed_by()), (vec![found], &[None][..]));
    }

    /// Results are in the order of the goals.
    #[test]
    fn the_goals_are_those_that_were_given() {
        let limits = Limits { min: Qps(100), max: Qps(10_000), invalid_retries: 0 };
        let goals = [0.02, 0.01].map(|width| Goal::rfc8219(Nanos::SECOND, width));
        let set = MlrSet::new(limits, goals.to_vec(), 1).unwrap();
        assert_eq!(set.goals(), goals);
    }
}
