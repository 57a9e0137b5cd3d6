//! What a journal holds of each point: the point's trials are walked through again with the noted
//! verdicts. Who measures and who computes results walk in the same way, so they agree on which
//! trial belongs where.

use std::fmt;

use method::evidence::Deviation;
use method::narrow::Length;
use method::precision::Figures;
use method::selftest::allowed_rate;
use method::set::{Due, smallest_pass};
use method::units::{Qps, Share};

use crate::archive::{Entry, Measured};
use crate::governor::CannotBeMade;
use crate::measures::{Course, search, self_test};
use crate::plan::Plan;
use crate::point::{Conditions, Cores, Point};
use crate::search::SearchCourse;

/// A plan and the journal of its run.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The journal's lines.
    pub entries: &'a [Entry],
}

/// A self-test that passed at no rate.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedSelfTest {
    /// The self-test.
    pub point: Point,
    /// The rate of its last trial, queries per second.
    pub rate: Qps,
    /// The reason why that did not pass.
    pub reason: String,
}

impl fmt::Display for FailedSelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailedSelfTest { point, rate, reason } = self;
        write!(
            f,
            "the {point} failed: no rate passed, the last trial was at {rate} queries/s ({reason})"
        )
    }
}

/// How far a point has come.
pub struct Walk<'a> {
    /// The course of the point after the trials below.
    pub course: Course,
    /// The trials that belong to it, in their order; others of the same point in the journal do
    /// not.
    pub trials: Vec<&'a Measured>,
    /// Why the point can have no number: the DUT was not asked what it is about.
    pub void: Option<Deviation>,
    /// Why the DUT's host cannot make it.
    pub cannot: Option<&'a CannotBeMade>,
}

impl Walk<'_> {
    /// The trial to carry out next; none if the point is complete or can have no number.
    pub fn due(&self) -> Option<Due> {
        // More trials would not change what the DUT is asked.
        if self.void.is_some() || self.cannot.is_some() { None } else { self.course.next() }
    }
}

impl<'a> Recorded<'a> {
    /// What the journal holds.
    pub fn new(plan: &'a Plan, entries: &'a [Entry]) -> Recorded<'a> {
        Recorded { plan, entries }
    }

    /// All finished trials of a point, whether they belong to its course or not.
    pub fn measured(&self, point: &'a Point) -> impl Iterator<Item = &'a Measured> + use<'a> {
        self.finished().filter(move |measured| measured.step.point == *point)
    }

    /// Trials of a point in which the DUT died or hung and which were repeated.
    pub(crate) fn repeated<'p>(
        &self,
        point: &'p Point,
    ) -> impl Iterator<Item = &'a Measured> + use<'a, 'p> {
        self.entries.iter().filter_map(move |entry| match entry {
            Entry::Repeated(measured) if measured.step.point == *point => Some(&**measured),
            _ => None,
        })
    }

    /// All finished trials of the journal that count, in their order.
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

    /// The first self-test that is to validate the tester and passed at no rate, with the reason of its
    /// last trial; `None` while none has failed.
    pub fn failed_self_test(&self) -> Option<FailedSelfTest> {
        self.plan.points().into_iter().find_map(|point| {
            let result = self_test::result(self, &point)?;
            if !result.vouches || !result.complete || result.passed.is_some() {
                return None;
            }
            let walk = self.walk(&point)?;
            let (rate, reason) = walk
                .trials
                .last()
                .map(|last| (last.step.rate, last.reasons().first().map(ToString::to_string)))?;
            Some(FailedSelfTest { point, rate, reason: reason.unwrap_or_default() })
        })
    }

    /// Walks through a point; `None` where it has nothing to begin with.
    pub fn walk(&self, point: &Point) -> Option<Walk<'a>> {
        let mut course = point.measure().course(self, point)?;
        let mut left: Vec<&Measured> =
            self.finished().filter(|measured| measured.step.point == *point).collect();
        let (mut trials, mut void) = (Vec::new(), None);
        while let Some(due) = course.next() {
            let is_due = |m: &&Measured| {
                let step = &m.step;
                (step.repeat, step.rate, step.length) == (due.repeat, due.rate, due.length)
            };
            let Some(at) = left.iter().position(is_due) else { break };
            let measured = left.remove(at);
            trials.push(measured);
            void = why_void(measured, course.searches());
            if void.is_some() {
                break;
            }
            let weighed = course.searches().zip(measured.at_rate()).map(|(s, t)| s.verdict_of(t));
            course.report(weighed.unwrap_or(measured.verdict()), measured.counts());
        }
        Some(Walk { course, trials, void, cannot: self.cannot(point) })
    }

    /// Why the DUT's host cannot make a point, if that was found.
    pub fn cannot(&self, point: &Point) -> Option<&'a CannotBeMade> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::CannotBeMade { point: of, why } if of == point => Some(why),
            _ => None,
        })
    }

    /// Whether all that the plan wants of a point is in the journal. A point that can have no
    /// number is complete when that is known.
    pub fn is_complete(&self, point: &Point) -> bool {
        match self.walk(point) {
            Some(walk) => walk.due().is_none(),
            None => point.measure().is_hopeless(self, point),
        }
    }

    /// Whether there is a result for a point: a number, or that the lowest rate failed.
    pub fn has_result(&self, point: &Point) -> bool {
        let complete = self
            .walk(point)
            .is_some_and(|walk| walk.void.is_none() && walk.course.next().is_none());
        complete && point.measure().has_result(self, point)
    }

    /// The median of a DUT's worst case at a place, of the searches that are done; `None` if they
    /// have no median, or the point is void.
    pub(crate) fn median_at(&self, dut: &str, place: &Cores) -> Option<f64> {
        let point = Point::Search(Conditions::worst_case(dut, place.clone()));
        let walk = self.walk(&point).filter(|walk| walk.void.is_none())?;
        let resolution = search::resolution(self, &point)?;
        Figures::of(&walk.course.searches()?.found(), 1.0, resolution).median
    }

    /// The rate up to which the self-test validates the tester at a point: by its smallest result,
    /// 0 if a search of it found no passing rate. `None` if the plan has no self-test, or none of
    /// its searches is over.
    pub fn allowed(&self, point: &Point) -> Option<Qps> {
        let test = self.plan.self_test.as_ref()?;
        let walk = self.walk(&self.plan.self_test_for(point)?)?;
        let found = walk.course.searches()?.found();
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

    /// What a server says that it is.
    pub fn version(&self, name: &str) -> Option<String> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Version { dut, text } if dut == name => Some(text.clone()),
            _ => None,
        })
    }
}

/// Why the point of a trial can have no number: the DUT was not asked what the point is about.
/// `searches` are those that the trial is of, if it is of any.
pub(crate) fn why_void(measured: &Measured, searches: Option<&SearchCourse>) -> Option<Deviation> {
    // A probe is too short to say so; of an MLRsearch even short trials decide.
    if measured.step.length == Length::Probe {
        return None;
    }
    let of_search = searches.zip(measured.at_rate()).map(|(s, trial)| s.deviation_of(trial));
    of_search.unwrap_or_else(|| measured.deviation())
}
