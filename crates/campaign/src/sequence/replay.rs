//! Replay of a journal: the recorded verdicts are applied to the sequence of trials of each
//! measurement point. The runner and the computation of results use the same replay. Both therefore
//! use the same trials for a point.

use method::evidence::Deviation;
use method::narrow::Length;
use method::precision::Figures;
use method::search::SearchRange;
use method::selftest::allowed_rate;
use method::set::{Due, smallest_pass};
use units::{Qps, Share};

use crate::plan::{Conditions, Cores, Plan, Point, SearchMethod, distance};
use crate::record::{CannotBeMade, Entry, Measured};
use crate::sequence::steps::{SearchSequence, TrialSequence};

/// A plan and the journal of its run.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The journal's entries.
    pub entries: &'a [Entry],
}

/// Progress of a measurement point, after the replay of its trials.
pub struct Replay<'a> {
    /// The sequence of trials of the measurement point. The next trial that it returns is the one after the last trial
    /// in `trials`.
    pub sequence: TrialSequence,
    /// The trials in the journal that match the sequence of the measurement point, in order. Other
    /// trials of the point are not included.
    pub trials: Vec<&'a Measured>,
    /// Present if the measurement point is void: AuthDNS's counters show that the DUT was not
    /// measured under the conditions of this point. The point then has no result.
    pub void: Option<Deviation>,
    /// Reason why the DUT's host cannot set the CPU frequency governor that the measurement point requires.
    pub cannot: Option<&'a CannotBeMade>,
}

impl Replay<'_> {
    /// Returns the next trial, or `None` if the measurement point is complete or can have no
    /// result.
    pub fn due(&self) -> Option<Due> {
        // The point is void: further trials would have the same deviation.
        if self.void.is_some() || self.cannot.is_some() { None } else { self.sequence.next() }
    }
}

impl<'a> Recorded<'a> {
    /// Combines a plan with the entries of its journal.
    pub fn new(plan: &'a Plan, entries: &'a [Entry]) -> Recorded<'a> {
        Recorded { plan, entries }
    }

    /// Returns all finished trials of a measurement point, including those that the point's
    /// expected sequence of trials does not contain.
    pub fn measured(&self, point: &'a Point) -> impl Iterator<Item = &'a Measured> + use<'a> {
        self.finished().filter(move |measured| measured.step.point == *point)
    }

    /// Returns those trials of a measurement point that were repeated because the DUT died or hung.
    pub(crate) fn repeated<'p>(
        &self,
        point: &'p Point,
    ) -> impl Iterator<Item = &'a Measured> + use<'a, 'p> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Repeated(measured) if measured.step.point == *point => Some(&**measured),
            _ => None,
        })
    }

    /// Returns all finished trials in the journal, in order, except trials of measurement points
    /// that were measured again later.
    pub fn finished(&self) -> impl Iterator<Item = &'a Measured> + use<'a> {
        let redone = self.entries.iter().enumerate().rev().find_map(|(at, entry)| match entry {
            Entry::Redone(redo) => Some((at, *redo)),
            _ => None,
        });
        let is_redone = move |at: usize, point: &Point| {
            redone.is_some_and(|(line, redo)| at < line && redo.covers(point))
        };
        self.entries.iter().enumerate().filter_map(move |(at, entry)| match entry {
            Entry::Finished(measured) if !is_redone(at, &measured.step.point) => Some(&**measured),
            _ => None,
        })
    }

    /// Replays the trials of a measurement point. Returns `None` if the rate of these trials depends on the result of a
    /// different point, and that point has no result yet.
    pub fn replay(&self, point: &Point) -> Option<Replay<'a>> {
        let mut sequence = point.measure().sequence(self, point)?;
        let mut left: Vec<&Measured> =
            self.finished().filter(|measured| measured.step.point == *point).collect();
        let (mut trials, mut void) = (Vec::new(), None);
        while let Some(due) = sequence.next() {
            let is_due = |m: &&Measured| {
                let step = &m.step;
                (step.repeat, step.rate, step.length) == (due.repeat, due.rate, due.length)
            };
            let Some(at) = left.iter().position(is_due) else { break };
            let measured = left.remove(at);
            trials.push(measured);
            void = void_deviation(measured, sequence.searches());
            if void.is_some() {
                break;
            }
            let weighed = sequence.searches().zip(measured.at_rate()).map(|(s, t)| s.verdict_of(t));
            sequence.report(weighed.unwrap_or(measured.verdict()), measured.counts());
        }
        Some(Replay { sequence, trials, void, cannot: self.cannot(point) })
    }

    /// Returns the recorded reason why the DUT's host cannot set the CPU frequency governor that a measurement point
    /// requires.
    pub fn cannot(&self, point: &Point) -> Option<&'a CannotBeMade> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::CannotBeMade { point: of, why } if of == point => Some(why),
            _ => None,
        })
    }

    /// True if the journal contains all trials that the plan requires for a measurement point, or
    /// shows that the point can have no result.
    pub fn is_complete(&self, point: &Point) -> bool {
        match self.replay(point) {
            Some(replay) => replay.due().is_none(),
            None => point.measure().can_never_run(self, point),
        }
    }

    /// Returns the median result of the finished worst-case searches of a DUT at a CPU placement.
    /// Returns `None` if there is no median, or if the DUT was not measured under the requested
    /// conditions.
    pub(crate) fn median_at(&self, dut: &str, place: &Cores) -> Option<f64> {
        let point = Point::Search(Conditions::worst_case(dut, place.clone()));
        let replay = self.replay(&point).filter(|replay| replay.void.is_none())?;
        let resolution = resolution(self, &point)?;
        Figures::of(&replay.sequence.searches()?.found(), 1.0, resolution).median
    }

    /// Returns the rate up to which the self-test validates the tester at a measurement point. The
    /// rate is computed from the smallest result of the self-test's searches, and is 0 if one of
    /// the searches found no passing rate. Returns `None` if the plan has no self-test, or none of
    /// its searches has ended.
    pub fn allowed(&self, point: &Point) -> Option<Qps> {
        let test = self.plan.self_test.as_ref()?;
        let replay = self.replay(&self.plan.self_test_for(point)?)?;
        let found = replay.sequence.searches()?.found();
        if found.is_empty() {
            return None;
        }
        let passed = smallest_pass(&found).unwrap_or(Qps(0));
        let (aaaa, cached) = match point {
            Point::Search(conditions) => (conditions.aaaa, conditions.cached),
            _ => (Share::ZERO, Share::ZERO),
        };
        Some(allowed_rate(passed, aaaa, cached, test.delta))
    }

    /// Returns the recorded version of the server with this name, which is a DUT or an AuthDNS.
    pub fn version(&self, name: &str) -> Option<String> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Version { dut, text } if dut == name => Some(text.clone()),
            _ => None,
        })
    }
}

/// Returns the deviation of a trial from the conditions of its measurement point, or `None` if
/// there is no deviation. A point with such a deviation is void and has no result. `searches` is
/// the point's sequence of searches, or `None` if the point does not consist of searches.
pub(crate) fn void_deviation(
    measured: &Measured,
    searches: Option<&SearchSequence>,
) -> Option<Deviation> {
    // A bisection's probe is too short to show a deviation. The short trials of an MLRsearch are
    // long enough.
    if measured.step.length == Length::Probe {
        return None;
    }
    let of_search = searches.zip(measured.at_rate()).map(|(s, trial)| s.deviation_of(trial));
    of_search.unwrap_or_else(|| measured.deviation())
}

/// Returns the requested distance between the highest passed and the lowest failed rate of a search. `range` contains
/// the lowest and the highest rate of the search. For an MLRsearch, the distance is proportional to the rate. The
/// result is then the distance at the highest rate.
pub(crate) fn wanted_resolution(plan: &Plan, range: &SearchRange) -> Qps {
    match plan.search.method {
        SearchMethod::Bisection => range.resolution,
        SearchMethod::Mlrsearch => distance(plan.search.width, range.max),
    }
}

/// Returns the distance between the highest passed and the lowest failed rate at a measurement point. For a bisection,
/// this is the requested distance. For an MLRsearch, it is the distance that was reached.
pub(crate) fn resolution(recorded: &Recorded<'_>, point: &Point) -> Option<Qps> {
    let plan = recorded.plan;
    let wanted = wanted_resolution(plan, &plan.range(plan.dut(point.dut()?)?));
    match plan.search.method {
        SearchMethod::Bisection => Some(wanted),
        SearchMethod::Mlrsearch => {
            Some(recorded.replay(point)?.sequence.searches()?.resolution(wanted))
        }
    }
}
