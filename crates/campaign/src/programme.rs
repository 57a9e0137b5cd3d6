//! Parsing and checking of plans. This module also lists the measurement points of a plan in the
//! order of measurement, with the number and duration of their trials.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tester::measurer::plan::MAX_WINDOW_LIMIT_PCT;

use crate::plan::{Plan, PlanError, Point, READY, Ssh, check_dut};
use crate::sequence;

impl Plan {
    /// Reads a plan from the file `path`, or returns the built-in plan with this name.
    ///
    /// # Errors
    /// Returns an error if there is no such plan, or if it is invalid or contradicts itself.
    pub fn load(path: &Path) -> Result<Plan, PlanError> {
        let ready = READY.iter().find(|(name, _)| path.as_os_str() == *name && !path.exists());
        match ready {
            Some((_, text)) => Plan::parse(text, path),
            None => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| PlanError::Read { path: path.into(), source })?;
                Plan::parse(&text, path)
            }
        }
    }

    /// Parses a plan. The file `path` contains the plan. Error messages name this file, and
    /// relative paths in the plan are resolved against the folder of the file.
    ///
    /// # Errors
    /// The same errors as those of [`Plan::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Plan, PlanError> {
        let mut plan: Plan = toml::from_str(text).map_err(|error| {
            let schema = serde_json::to_value(schemars::schema_for!(Plan)).unwrap_or_default();
            match toml_faults::fault(text, &schema) {
                Some(toml_faults::Fault { line, reason }) => {
                    PlanError::Value { path: path.into(), line, reason }
                }
                None => PlanError::Syntax { path: path.into(), why: error.to_string() },
            }
        })?;
        let content = |why: String| match toml_faults::line_of_message(text, &why) {
            Some(line) => PlanError::Value { path: path.into(), line, reason: why },
            None => PlanError::Content { path: path.into(), why },
        };
        plan.read_files(path.parent().unwrap_or(Path::new(""))).map_err(content)?;
        plan.check().map_err(content)?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        if self.duts.is_empty() {
            return Err(
                "there is no [[dut]]; write for example [[dut]] with driver = \"unbound\"".into()
            );
        }
        let mut names = BTreeSet::new();
        for dut in &self.duts {
            if !names.insert(dut.name()) {
                return Err(format!(
                    "two DUTs have the name {}; give one another name",
                    dut.name()
                ));
            }
            check_dut(dut)?;
        }
        let window_limit = self.trial.window_limit;
        if !(window_limit > 0.0 && window_limit <= MAX_WINDOW_LIMIT_PCT) {
            return Err(format!(
                "[trial] window-limit = {window_limit} is not a percentage above 0, at most {MAX_WINDOW_LIMIT_PCT}"
            ));
        }
        if self.trial.lateness_limit.is_zero() {
            return Err(
                "[trial] lateness-limit must be above 0, because no query leaves exactly on time; write for example 10ms"
                    .into(),
            );
        }
        let is_far = |ssh: &Ssh| ssh.tester_hosts().iter().any(Option::is_some);
        if self.trial.records.is_some() && self.ssh.as_ref().is_some_and(is_far) {
            return Err("[trial] records: only with the tester on this host, because records are not copied over ssh".into());
        }
        if self.trial.duration.is_zero()
            || self.trial.timeout.is_some_and(|timeout| timeout.is_zero())
            || self.trial.threads == 0
        {
            return Err("[trial]: duration, timeout and threads must be above 0".into());
        }
        self.check_hosts()?;
        self.check_servers()?;
        self.check_sources()?;
        self.check_xdp()?;
        sequence::check(self)?;
        self.check_testers()
    }
}

impl Plan {
    /// Returns all measurement points in the order of measurement: the self-tests, then the points of each DUT. A
    /// worst-case measurement point comes before the points that depend on its result.
    pub fn points(&self) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        let duts = std::iter::once(None).chain(self.duts.iter().map(Some));
        for point in duts
            .flat_map(|dut| sequence::ALL.iter().flat_map(move |measure| measure.points(self, dut)))
        {
            // An AAAA share or a cached share of 0 is the worst case, which is already in the list.
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }

    /// Returns the maximum number of trials of a measurement point, and their total duration.
    /// Repetitions of invalid trials are not included.
    pub fn effort(&self, point: &Point) -> (u32, Duration) {
        point.measure().effort(self, point)
    }
}
