//! Replay of a journal: the trials of each point are replayed with the recorded verdicts. Measuring
//! and computing results use the same replay, so they agree on the point to which a trial belongs.

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

/// Progress of a point, after the replay of its trials.
pub struct Replay<'a> {
    /// The sequence of trials, positioned after the trials below.
    pub sequence: TrialSequence,
    /// The trials that belong to the point, in order. Other trials of the point in the journal are
    /// left out.
    pub trials: Vec<&'a Measured>,
    /// Deviation because of which the point can have no result: the DUT was not queried under the
    /// conditions of the point.
    pub void: Option<Deviation>,
    /// Reason why the DUT's host cannot provide the point.
    pub cannot: Option<&'a CannotBeMade>,
}

impl Replay<'_> {
    /// Returns the next trial, or `None` if the point is complete or can have no result.
    pub fn due(&self) -> Option<Due> {
        // More trials would not change the DUT's queries.
        if self.void.is_some() || self.cannot.is_some() { None } else { self.sequence.next() }
    }
}

impl<'a> Recorded<'a> {
    /// Creates the replay of a journal.
    pub fn new(plan: &'a Plan, entries: &'a [Entry]) -> Recorded<'a> {
        Recorded { plan, entries }
    }

    /// Returns all finished trials of a point, including those outside its sequence of trials.
    pub fn measured(&self, point: &'a Point) -> impl Iterator<Item = &'a Measured> + use<'a> {
        self.finished().filter(move |measured| measured.step.point == *point)
    }

    /// Returns the trials of a point in which the DUT died or hung and that were repeated.
    pub(crate) fn repeated<'p>(
        &self,
        point: &'p Point,
    ) -> impl Iterator<Item = &'a Measured> + use<'a, 'p> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Repeated(measured) if measured.step.point == *point => Some(&**measured),
            _ => None,
        })
    }

    /// Returns all finished trials of the journal that count, in order.
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

    /// Replays a point; `None` if it has no rate to start with.
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

    /// Returns the recorded reason why the DUT's host cannot provide a point.
    pub fn cannot(&self, point: &Point) -> Option<&'a CannotBeMade> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::CannotBeMade { point: of, why } if of == point => Some(why),
            _ => None,
        })
    }

    /// True if the journal contains all trials that the plan requires of a point. A point that can
    /// have no result is complete as soon as that is known.
    pub fn is_complete(&self, point: &Point) -> bool {
        match self.replay(point) {
            Some(replay) => replay.due().is_none(),
            None => point.measure().can_never_run(self, point),
        }
    }

    /// Returns the median of a DUT's worst case at a placement, over the finished searches, or
    /// `None` if they have no median, or if the point is void.
    pub(crate) fn median_at(&self, dut: &str, place: &Cores) -> Option<f64> {
        let point = Point::Search(Conditions::worst_case(dut, place.clone()));
        let replay = self.replay(&point).filter(|replay| replay.void.is_none())?;
        let resolution = resolution(self, &point)?;
        Figures::of(&replay.sequence.searches()?.found(), 1.0, resolution).median
    }

    /// Returns the rate up to which the self-test validates the tester at a point. It is the
    /// smallest result of the self-test, or 0 if one of its searches found no passing rate. `None`
    /// if the plan has no self-test, or no search of it has ended.
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

    /// Returns the recorded version of a server.
    pub fn version(&self, name: &str) -> Option<String> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Version { dut, text } if dut == name => Some(text.clone()),
            _ => None,
        })
    }
}

/// Returns the deviation that excludes a result for the point of a trial, because the DUT was not
/// queried under the conditions of that point. `searches` are those of the trial, if it belongs to
/// searches.
pub(crate) fn void_deviation(
    measured: &Measured,
    searches: Option<&SearchSequence>,
) -> Option<Deviation> {
    // A probe is too short to decide that. In an MLRsearch even short trials decide.
    if measured.step.length == Length::Probe {
        return None;
    }
    let of_search = searches.zip(measured.at_rate()).map(|(s, trial)| s.deviation_of(trial));
    of_search.unwrap_or_else(|| measured.deviation())
}

/// Returns the requested distance of passed and failed rates in this range; for an MLRsearch, that
/// at its upper end.
pub(crate) fn wanted_resolution(plan: &Plan, range: &SearchRange) -> Qps {
    match plan.search.method {
        SearchMethod::Bisection => range.resolution,
        SearchMethod::Mlrsearch => distance(plan.search.width, range.max),
    }
}

/// Returns the requested distance of passed and failed rates of a point or, for an MLRsearch, the
/// actual one.
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
