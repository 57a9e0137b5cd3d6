//! Starts of servers. Each server is started once before the first trial, to check that it works,
//! and again for each search.

use hosts::servers::Variant;
use method::records::Counts;

use crate::plan::{DutPlan, Plan, Point};
use crate::record::{Configuration, Entry, Step};
use crate::runner::error::CampaignError;
use crate::runner::hosts::Hosts;
use crate::runner::running_servers::ServerError;
use crate::runner::{Campaign, Testbed, is_right};

impl<H: Hosts> Campaign<'_, H> {
    /// Checks that the incomplete measurement points can be measured: programs and CPUs exist, and
    /// each DUT starts and answers as in a trial. A DUT that does not start is skipped, and the
    /// other DUTs are measured.
    ///
    /// # Errors
    /// Returns an error if a program or a CPU is missing, AuthDNS does not start, or no DUT starts.
    /// The campaign then ends without a trial.
    pub(super) fn rehearse(&mut self) -> Result<(), CampaignError> {
        let points = self.plan.points();
        let open: Vec<Point> =
            points.into_iter().filter(|point| !self.recorded().is_complete(point)).collect();
        let missing = self.hosts.missing(&open)?;
        if !missing.is_empty() {
            return Err(CampaignError::Impossible(missing));
        }
        let (plan, firsts) = (self.plan, self.first_points(&open));
        let Some(any) = firsts.first().or(open.first()) else { return Ok(()) };
        // All DUTs are checked with the same running AuthDNS, because loading its zone may take a
        // long time.
        let mut site = Some(self.start_auth(any)?);
        let mut failed = Vec::new();
        for point in &firsts {
            let Some(dut) = point.dut().and_then(|name| plan.dut(name)) else { continue };
            if self.is_given_up(point) {
                continue;
            }
            match self.start_with_auth(site.take(), point, dut) {
                Ok(ready) => site = Some(Testbed { dut: None, ..ready }),
                Err(CampaignError::Testbed(error)) => {
                    self.give_up(point, &error)?;
                    failed.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        let has_started = firsts.iter().any(|point| !self.is_given_up(point));
        if firsts.is_empty() || has_started { Ok(()) } else { Err(CampaignError::NotReady(failed)) }
    }

    /// Selects measurement points from `open`, the list of incomplete points. For each DUT, these are the first point
    /// with trials and the first point with conformance checks. For each AuthDNS that DUTs query, the first point with
    /// this AuthDNS is also selected. Points with conformance checks come last in the result.
    fn first_points(&self, open: &[Point]) -> Vec<Point> {
        let auth_of = |point: &Point| self.plan.auth_at(point).name().to_owned();
        let start = |point: &Point| (point.dut().map(str::to_owned), point.is_checked());
        let mut firsts: Vec<Point> = Vec::new();
        for point in open.iter().filter(|point| point.dut().is_some()) {
            let is_new_dut = firsts.iter().all(|first| start(first) != start(point));
            if is_new_dut || firsts.iter().all(|first| auth_of(first) != auth_of(point)) {
                firsts.push(point.clone());
            }
        }
        firsts.sort_by_key(Point::is_checked);
        firsts
    }

    /// Records the version of a DUT, and starts the DUT. The running AuthDNS is used if it is
    /// suitable for the measurement point; otherwise a different AuthDNS is started. If the DUT
    /// does not start, it is started a second time.
    fn start_with_auth(
        &mut self,
        site: Option<Testbed<H>>,
        point: &Point,
        dut: &DutPlan,
    ) -> Result<Testbed<H>, CampaignError> {
        let version = self.hosts.dut_version(dut)?;
        self.record_version(dut.name().into(), version)?;
        let fits = |site: &Testbed<H>| {
            site.of == self.plan.auth_at(point).name() && self.hosts.serves(&site.auth, point)
        };
        let started = match site.filter(fits) {
            Some(mut site) => self.start_dut(&mut site, point, dut).map(|()| site),
            None => self.start_once(point),
        };
        started.or_else(|error| self.start_again(point, error))
    }

    /// Starts AuthDNS. If `step` belongs to a measurement of a DUT, also starts the DUT with an empty cache. If the DUT
    /// does not start, both are started a second time.
    ///
    /// # Errors
    /// Returns an error if AuthDNS does not start, or the DUT does not start the second time.
    pub(super) fn start(&mut self, step: &Step) -> Result<Testbed<H>, CampaignError> {
        let started =
            self.start_once(&step.point).or_else(|error| self.start_again(&step.point, error));
        let repeat = step.point.measure().restarts_servers().then_some(step.repeat);
        started.map(|site| Testbed { repeat, ..site })
    }

    /// Starts the servers again after a DUT did not start. Another program may have used the DUT's
    /// port, so different ports are chosen if the topology is loopback. All servers must have
    /// stopped before the call.
    fn start_again(
        &mut self,
        point: &Point,
        error: CampaignError,
    ) -> Result<Testbed<H>, CampaignError> {
        let CampaignError::Testbed(error @ ServerError::NotStarted { .. }) = error else {
            return Err(error);
        };
        self.incident(point, &format!("{error}; it is started again"), error.log().to_owned())?;
        self.hosts.change_ports()?;
        self.start_once(point)
    }

    fn start_once(&mut self, point: &Point) -> Result<Testbed<H>, CampaignError> {
        let mut site = self.start_auth(point)?;
        if let Some(dut) = point.dut().and_then(|name| self.plan.dut(name)) {
            self.start_dut(&mut site, point, dut)?;
        }
        // The configuration of an AuthDNS is recorded only if a DUT queries it. Servers that only
        // further self-tests use have a default configuration.
        let asked =
            self.plan.auths_of_duts().into_iter().map(|auth| self.plan.self_test_with(auth));
        if point.dut().is_some() || asked.flatten().any(|test| test == *point) {
            let role = self.plan.auth_at(point).role();
            self.record_configuration(&role, self.hosts.auth_configuration(&site.auth))?;
        }
        if let (Some(name), Some(dut)) = (point.dut(), &site.dut) {
            // The DUT has a different configuration for conformance checks.
            let name = match point.variant() {
                None => name.into(),
                Some(Variant::Usual) => format!("{name} for conform"),
                Some(variant) => format!("{name} for conform, {variant}"),
            };
            self.record_configuration(&name, self.hosts.dut_configuration(dut))?;
        }
        Ok(site)
    }

    /// Records the configuration of a server, unless the journal already contains it.
    fn record_configuration(
        &mut self,
        name: &str,
        configuration: Configuration,
    ) -> Result<(), CampaignError> {
        let known =
            |entry: &Entry| matches!(entry, Entry::Configuration { server, .. } if server == name);
        if self.entries.iter().any(known) {
            return Ok(());
        }
        self.append(Entry::Configuration { server: name.into(), configuration })
    }

    fn start_auth(&self, point: &Point) -> Result<Testbed<H>, CampaignError> {
        let auth =
            self.hosts.start_auth(&self.archive, &self.with_auth_of(point), point, point.aaaa());
        let auth = auth.map_err(|error| match error.into() {
            // The DUT is not involved in this error, so the error ends the campaign.
            CampaignError::Testbed(error) => CampaignError::Auth(error.with_log()),
            other => other,
        })?;
        let of = self.plan.auth_at(point).name().to_owned();
        Ok(Testbed {
            auth,
            of,
            dut: None,
            next_name: self.names(point).1,
            repeat: None,
            is_new: true,
        })
    }

    /// Returns a copy of the plan in which the AuthDNS of a measurement point, with its CPUs,
    /// replaces the AuthDNS in `[auth]`.
    fn with_auth_of(&self, point: &Point) -> Plan {
        let mut plan = self.plan.clone();
        plan.auth = self.plan.auth_at(point).into_owned();
        plan.cpus.auth = self.plan.auth_cpus(point).to_vec();
        plan
    }

    fn start_dut(
        &self,
        site: &mut Testbed<H>,
        point: &Point,
        dut: &DutPlan,
    ) -> Result<(), CampaignError> {
        site.dut = Some(self.hosts.start_dut(&self.archive, dut, point, &site.auth)?);
        let ready: &Testbed<H> = site;
        let Some(started) = &ready.dut else { return Ok(()) };
        let mut last = Counts::default();
        let waited = self.hosts.wait_until(started, dut.name(), &mut || {
            last = self.replies(ready, point)?;
            Ok(is_right(&last, point))
        });
        waited.map_err(|error| match (error, self.misconfigured(point, &last)) {
            (CampaignError::Testbed(error), Some(advice)) => error.because(&advice).into(),
            (error, _) => error,
        })
    }
}
