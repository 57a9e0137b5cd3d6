//! Servers are started: once each before anything is measured, and anew for each search.

use method::records::Counts;

use super::hosts::Hosts;
use super::{Campaign, CampaignError, Site, is_right};
use crate::archive::{Configuration, Entry, Step};
use crate::plan::{DutPlan, Plan};
use crate::point::Point;
use crate::servers::Variant;
use crate::site::SiteError;

impl<H: Hosts> Campaign<'_, H> {
    /// Sees that what is still to do can be done: programs and CPUs are there, and every server
    /// starts and answers.
    ///
    /// # Errors
    /// If not. Nothing is measured yet then.
    pub(super) fn rehearse(&mut self) -> Result<(), CampaignError> {
        let points = self.plan.points();
        let open: Vec<Point> =
            points.into_iter().filter(|point| !self.recorded().is_complete(point)).collect();
        let missing = self.hosts.missing(&open)?;
        if !missing.is_empty() {
            return Err(CampaignError::Impossible(missing));
        }
        // Each DUT once for rates and once for checks, and each AuthDNS that DUTs ask.
        let auth_of = |point: &Point| self.plan.auth_at(point).name().to_owned();
        let mut firsts: Vec<Point> = Vec::new();
        for point in open.iter().filter(|point| point.dut().is_some()) {
            let told = |point: &Point| (point.dut().map(str::to_owned), point.is_checked());
            let is_new_dut = firsts.iter().all(|first| told(first) != told(point));
            if is_new_dut || firsts.iter().all(|first| auth_of(first) != auth_of(point)) {
                firsts.push(point.clone());
            }
        }
        firsts.sort_by_key(Point::is_checked);
        let Some(any) = firsts.first().or(open.first()) else { return Ok(()) };
        // One AuthDNS for all that ask it: its zone may take long to load.
        let mut site = Some(self.start_auth(any)?);
        for point in &firsts {
            let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) else { continue };
            let fits = |site: &Site<H>| {
                site.of == self.plan.auth_at(point).name() && self.hosts.serves(&site.auth, point)
            };
            if !site.as_ref().is_some_and(fits) {
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

    /// Starts AuthDNS and, for points of a DUT, the DUT with a cold cache. One that does not start
    /// is given a second chance.
    ///
    /// # Errors
    /// If one of them does not start.
    pub(super) fn start(&mut self, step: &Step) -> Result<Site<H>, CampaignError> {
        let started =
            self.start_once(&step.point).or_else(|error| self.start_again(&step.point, error));
        let repeat = step.point.measure().starts_anew().then_some(step.repeat);
        started.map(|site| Site { repeat, ..site })
    }

    /// After a DUT did not start, for whatever reason: something may have taken its port. Nothing
    /// runs.
    fn start_again(
        &mut self,
        point: &Point,
        error: CampaignError,
    ) -> Result<Site<H>, CampaignError> {
        let CampaignError::Site(error @ SiteError::NotStarted { .. }) = error else {
            return Err(error);
        };
        self.mishap(point, &format!("{error}; it is started once more"), error.log().to_owned())?;
        self.hosts.change_ports()?;
        self.start_once(point)
    }

    fn start_once(&mut self, point: &Point) -> Result<Site<H>, CampaignError> {
        let mut site = self.start_auth(point)?;
        if let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) {
            self.start_dut(&mut site, point, dut)?;
        }
        // The servers that self-tests only compare are told the same but for their own words.
        let asked =
            self.plan.auths_of_duts().into_iter().map(|auth| self.plan.self_test_with(auth));
        if point.dut().is_some() || asked.flatten().any(|test| test == *point) {
            let role = self.plan.auth_at(point).role();
            self.note_configuration(&role, self.hosts.auth_configuration(&site.auth))?;
        }
        if let (Some(name), Some(dut)) = (point.dut(), &site.dut) {
            // What it is told for checks is something else.
            let name = match point.variant() {
                None => name.into(),
                Some(Variant::Usual) => format!("{name} for conform"),
                Some(variant) => format!("{name} for conform, {variant}"),
            };
            self.note_configuration(&name, self.hosts.dut_configuration(dut))?;
        }
        Ok(site)
    }

    /// Notes what a server is told, once.
    fn note_configuration(&mut self, name: &str, told: Configuration) -> Result<(), CampaignError> {
        let known =
            |entry: &Entry| matches!(entry, Entry::Configuration { server, .. } if server == name);
        if self.entries.iter().any(known) {
            return Ok(());
        }
        self.append(Entry::Configuration { server: name.into(), told })
    }

    fn start_auth(&self, point: &Point) -> Result<Site<H>, CampaignError> {
        let auth =
            self.hosts.start_auth(&self.archive, &self.with_auth_of(point), point, point.aaaa());
        let auth = auth.map_err(|error| match error.into() {
            // That is no fault of the DUT's.
            CampaignError::Site(error) => CampaignError::Auth(error.with_log()),
            other => other,
        })?;
        let of = self.plan.auth_at(point).name().to_owned();
        Ok(Site { auth, of, dut: None, next_name: self.names(point).1, repeat: None, is_new: true })
    }

    /// The plan, with the AuthDNS of a point in place of that of `[auth]`, on its own CPUs.
    fn with_auth_of(&self, point: &Point) -> Plan {
        let mut plan = self.plan.clone();
        plan.auth = self.plan.auth_at(point).into_owned();
        plan.cpus.auth = self.plan.auth_cpus(point).to_vec();
        plan
    }

    fn start_dut(
        &self,
        site: &mut Site<H>,
        point: &Point,
        dut: &DutPlan,
    ) -> Result<(), CampaignError> {
        site.dut = Some(self.hosts.start_dut(&self.archive, dut, point, &site.auth)?);
        let ready: &Site<H> = site;
        let Some(started) = &ready.dut else { return Ok(()) };
        let mut last = Counts::default();
        let waited = self.hosts.wait_until(started, dut.name(), &mut || {
            last = self.replies(ready, point)?;
            Ok(is_right(&last, point))
        });
        waited.map_err(|error| match (error, self.misconfigured(point, &last)) {
            (CampaignError::Site(error), Some(advice)) => error.because(&advice).into(),
            (error, _) => error,
        })
    }
}
