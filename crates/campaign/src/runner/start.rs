//! Servers are started: once each before anything is measured, and anew for each search.

use std::borrow::Cow;

use super::hosts::Hosts;
use super::{CampaignError, Run, Site};
use crate::archive::{Configuration, Entry, Step};
use crate::plan::{AuthPlan, DutPlan, Plan};
use crate::point::{Cores, Point};
use crate::site::SiteError;

impl<H: Hosts> Run<'_, H> {
    /// Sees that what is still to do can be done: programs and CPUs are there, and every server starts and answers.
    ///
    /// # Errors
    /// If not. Nothing is measured yet then.
    pub(super) fn rehearse(&mut self) -> Result<(), CampaignError> {
        let points = self.plan.points();
        let open: Vec<Point> = points.into_iter().filter(|point| !self.recorded().is_complete(point)).collect();
        let missing = self.hosts.missing(&open)?;
        if !missing.is_empty() {
            return Err(CampaignError::Impossible(missing));
        }
        let firsts = self.plan.duts.iter().filter_map(|dut| open.iter().find(|p| p.dut() == Some(dut.name())));
        let firsts: Vec<Point> = firsts.cloned().collect();
        let Some(any) = firsts.first().or(open.first()) else { return Ok(()) };
        // One AuthDNS for all of them: its zone may take long to load.
        let mut site = Some(self.start_auth(any)?);
        for point in &firsts {
            let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) else { continue };
            if site.as_ref().is_some_and(|site| !self.hosts.serves(&site.auth, point)) {
                site = None;
            }
            let started = match &mut site {
                Some(site) => self.start_dut(site, point, dut),
                None => self.start_once(point).map(|ready| site = Some(ready)),
            };
            if let Err(error) = started {
                drop(site.take());
                site = Some(self.start_again(point, error).map_err(|error| match error {
                    CampaignError::Site(error) => CampaignError::NotReady(error),
                    other => other,
                })?);
            }
            if let Some(site) = &mut site {
                site.dut = None;
            }
        }
        Ok(())
    }

    /// Starts AuthDNS and, for points of a DUT, the DUT with a cold cache. One that does not start is given a second chance.
    ///
    /// # Errors
    /// If one of them does not start.
    pub(super) fn start(&mut self, step: &Step) -> Result<Site<H>, CampaignError> {
        let started = self.start_once(&step.point).or_else(|error| self.start_again(&step.point, error));
        let repeat = step.point.measure().starts_anew().then_some(step.repeat);
        started.map(|site| Site { repeat, ..site })
    }

    /// After a DUT did not start, for whatever reason: something may have taken its port. Nothing runs.
    fn start_again(&mut self, point: &Point, error: CampaignError) -> Result<Site<H>, CampaignError> {
        let CampaignError::Site(error @ SiteError::NotStarted { .. }) = error else { return Err(error) };
        self.mishap(point, &format!("{error}; it is started once more"), error.log().to_owned())?;
        self.hosts.change_ports()?;
        self.start_once(point)
    }

    fn start_once(&mut self, point: &Point) -> Result<Site<H>, CampaignError> {
        let mut site = self.start_auth(point)?;
        if let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) {
            self.start_dut(&mut site, point, dut)?;
        }
        // The servers that self-tests compare are told the same but for their own words.
        if point.dut().is_some() || self.plan.own_self_test().as_ref() == Some(point) {
            self.note_configuration(self.plan.auth.driver.name(), self.hosts.auth_configuration(&site.auth))?;
        }
        if let (Some(name), Some(dut)) = (point.dut(), &site.dut) {
            self.note_configuration(name, self.hosts.dut_configuration(dut))?;
        }
        Ok(site)
    }

    /// Notes what a server is told, once.
    fn note_configuration(&mut self, name: &str, told: Configuration) -> Result<(), CampaignError> {
        let known = |entry: &Entry| matches!(entry, Entry::Configuration { server, .. } if server == name);
        if self.entries.iter().any(known) {
            return Ok(());
        }
        self.append(Entry::Configuration { server: name.into(), told })
    }

    fn start_auth(&self, point: &Point) -> Result<Site<H>, CampaignError> {
        let auth = self.hosts.start_auth(&self.archive, &self.with_auth_of(point), point, point.aaaa());
        let auth = auth.map_err(|error| match error.into() {
            // That is no fault of the DUT's.
            CampaignError::Site(error) => CampaignError::Auth(error.with_log()),
            other => other,
        })?;
        Ok(Site { auth, dut: None, next_name: self.names(point).1, repeat: None })
    }

    /// The plan, with the AuthDNS that a self-test compares in place of its own.
    fn with_auth_of(&self, point: &Point) -> Cow<'_, Plan> {
        let Point::SelfTest(at) = point else { return Cow::Borrowed(self.plan) };
        let mut plan = self.plan.clone();
        if at.server != plan.auth.driver {
            // Program, threads and lines of the plan are those of its own server.
            plan.auth = AuthPlan { driver: at.server, names: plan.auth.names, ..AuthPlan::default() };
        }
        plan.cpus.auth.truncate(at.cores.unwrap_or(usize::MAX));
        Cow::Owned(plan)
    }

    fn start_dut(&self, site: &mut Site<H>, point: &Point, dut: &DutPlan) -> Result<(), CampaignError> {
        let place = point.place().cloned().unwrap_or(Cores::first(1));
        site.dut = Some(self.hosts.start_dut(&self.archive, dut, &place)?);
        let ready: &Site<H> = site;
        match &ready.dut {
            Some(started) => self.hosts.wait_until(started, dut.name(), &mut || self.answers(ready, point)),
            None => Ok(()),
        }
    }
}
