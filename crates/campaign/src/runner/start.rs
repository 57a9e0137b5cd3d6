//! Servers are started: once each before anything is measured, and anew for each search.

use std::net::SocketAddr;

use crate::archive::{Configuration, Entry};
use crate::plan::DutPlan;
use crate::point::{Conditions, Point};
use crate::preflight;
use crate::results::is_complete;
use crate::site::{Auth, Dut, SiteError};

use method::units::Share;

use super::{CampaignError, Run, Site};

impl Run<'_> {
    /// Sees that what is still to do can be done: programs and CPUs are there, and every server starts and answers.
    ///
    /// # Errors
    /// If not. Nothing is measured yet then.
    pub(super) fn rehearse(&mut self) -> Result<(), CampaignError> {
        let points = self.plan.points();
        let open: Vec<Point> = points.into_iter().filter(|p| !is_complete(self.plan, &self.entries, p)).collect();
        let missing = preflight::on_hosts(self.plan, &self.world, &open)?;
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
            if site.as_ref().is_some_and(|site| site.auth.listens_on() != self.auth_address(point)) {
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
    pub(super) fn start(&mut self, point: &Point) -> Result<Site, CampaignError> {
        self.start_once(point).or_else(|error| self.start_again(point, error))
    }

    /// After a DUT did not start, for whatever reason: something may have taken its port. Nothing runs.
    fn start_again(&mut self, point: &Point, error: CampaignError) -> Result<Site, CampaignError> {
        let CampaignError::Site(error @ SiteError::NotStarted { .. }) = error else { return Err(error) };
        self.mishap(point, &format!("{error}; it is started once more"), error.log().to_owned())?;
        self.world.change_ports()?;
        self.start_once(point)
    }

    fn start_once(&mut self, point: &Point) -> Result<Site, CampaignError> {
        let mut site = self.start_auth(point)?;
        if let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) {
            self.start_dut(&mut site, point, dut)?;
        }
        self.note_configuration(self.plan.auth.driver.name(), site.auth.configuration())?;
        if let (Some(name), Some(dut)) = (point.dut(), &site.dut) {
            self.note_configuration(name, dut.configuration())?;
        }
        Ok(site)
    }

    /// Notes what a server is told, once.
    fn note_configuration(&mut self, name: &str, told: &Configuration) -> Result<(), CampaignError> {
        let known = |entry: &Entry| matches!(entry, Entry::Configuration { server, .. } if server == name);
        if self.entries.iter().any(known) {
            return Ok(());
        }
        self.append(Entry::Configuration { server: name.into(), told: told.clone() })
    }

    /// Where AuthDNS listens at a point.
    fn auth_address(&self, point: &Point) -> SocketAddr {
        match point.dut() {
            Some(name) => self.world.auth_address(self.plan.dut(name).and_then(|dut| dut.family)),
            None => self.world.self_test_address(self.plan.self_test.as_ref().and_then(|test| test.family)),
        }
    }

    fn start_auth(&self, point: &Point) -> Result<Site, CampaignError> {
        let aaaa = match point {
            Point::SelfTest => Share::ONE,
            Point::Search(conditions) => conditions.aaaa,
            Point::Load { .. } => Share::ZERO,
        };
        let listen = self.auth_address(point);
        let auth = Auth::start(&self.world, self.plan, &self.archive, listen, aaaa);
        let auth = auth.map_err(|error| match error.into() {
            // That is no fault of the DUT's.
            CampaignError::Site(error) => CampaignError::Auth(error.with_log()),
            other => other,
        })?;
        Ok(Site { auth, dut: None, next_name: self.names().1 })
    }

    fn start_dut(&self, site: &mut Site, point: &Point, dut: &DutPlan) -> Result<(), CampaignError> {
        let worst = Conditions::worst_case(dut.name(), self.plan.cores()[0]);
        let conditions = if let Point::Search(conditions) = point { conditions } else { &worst };
        let cpus = self.world.dut_cpus(self.plan, conditions);
        site.dut = Some(Dut::start(&self.world, self.plan, &self.archive, dut, conditions.cores, &cpus)?);
        let ready: &Site = site;
        match &ready.dut {
            Some(started) => started.wait_until(dut.name(), &mut || self.answers(ready, point)),
            None => Ok(()),
        }
    }
}
