//! Plan keys of the DUTs and AuthDNS servers: threads, IP version, source addresses, AF_XDP, and
//! configuration files written by the operator.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;

use hosts::servers::{Driver, Dut, Operator};
use tester::measurer::plan::sources::SourceAddresses;
use units::counted;

use crate::plan::family::Family;
use crate::plan::point::{Cores, Point};
use crate::plan::{AuthPlan, Plan, Topology};

/// Name of the AuthDNS that answers for the names of the conformance checks.
pub const CHECKS: &str = "conform";

impl Plan {
    /// Reads the configuration files that the operator wrote. Relative paths are resolved against
    /// `folder`.
    pub(crate) fn read_files(&mut self, folder: &Path) -> Result<(), String> {
        let duts = self
            .duts
            .iter_mut()
            .map(|dut| (format!("[[dut]] {}", dut.name()), dut.config.as_mut()));
        let further = self
            .authdns
            .iter_mut()
            .map(|auth| (format!("[[authdns]] {}", auth.name()), auth.config.as_mut()));
        let all = duts.chain([("[auth]".to_owned(), self.auth.config.as_mut())]).chain(further);
        for (whose, config) in all {
            if let Some(config) = config {
                config.read(folder).map_err(|why| format!("{whose} config: {why}"))?;
            }
        }
        Ok(())
    }

    /// Checks the keys that DUTs and AuthDNS have in common.
    pub(crate) fn check_servers(&self) -> Result<(), String> {
        for dut in &self.duts {
            let (whose, driver) = (format!("[[dut]] {}", dut.name()), dut.driver.driver());
            check_server(&whose, driver, dut.threads, &dut.operator())?;
            if dut.driver == Dut::Custom && !dut.extra.is_empty() {
                return Err(format!(
                    "{whose} extra: driver custom has no generated configuration; give a file with config"
                ));
            }
            if dut.family == Some(Family::Ipv6) && !driver.supports_ipv6 {
                return Err(format!("{whose} family: {} queries over IPv4 only", driver.name));
            }
            let asked = self.ssh.as_ref().map(|ssh| ssh.auth_addresses()[0]);
            self.check_family(&whose, dut.family, asked)?;
        }
        self.check_auth("[auth]", &self.auth)?;
        for (i, auth) in self.authdns.iter().enumerate() {
            if self.auths().take(i + 1).any(|other| other.name() == auth.name()) {
                return Err(format!(
                    "two AuthDNS servers have the name {}; give one another name",
                    auth.name()
                ));
            }
            self.check_auth(&format!("[[authdns]] {}", auth.name()), auth)?;
        }
        let asked = self.ssh.as_ref().map(|ssh| ssh.self_test_addresses()[0]);
        self.check_family(
            "[self-test]",
            self.self_test.as_ref().and_then(|test| test.family),
            asked,
        )
    }

    /// Checks `[trial] source-addresses`. If present, the key must contain exactly one prefix for each IP version over
    /// which the Measurer sends queries. All prefixes must have the same number of addresses. Otherwise self-tests and
    /// trials of a DUT could have different send settings, and a self-test validates only trials with its own send
    /// settings.
    pub fn check_sources(&self) -> Result<(), String> {
        let all = &self.trial.source_addresses;
        if all.is_empty() {
            return Ok(());
        }
        let over_ssh = self.ssh.as_ref();
        let dut = over_ssh.map_or(Family::Ipv6, |ssh| Family::from_address(ssh.addresses.dut));
        let asked = |family: Option<Family>| {
            let usual = over_ssh
                .map_or(Family::Ipv4, |ssh| Family::from_address(ssh.self_test_addresses()[0]));
            ("AuthDNS is", family.unwrap_or(usual))
        };
        let tests = self.self_test.iter().flat_map(|test| {
            let also = test.also.iter().map(|also| also.family);
            also.chain([test.family]).map(asked)
        });
        for (whose, family) in std::iter::once(("the DUTs are", dut)).chain(tests) {
            let of = all.iter().filter(|from| from.is_ipv6() == (family == Family::Ipv6));
            match of.count() {
                1 => {}
                0 => {
                    return Err(format!(
                        "[trial] source-addresses: {whose} queried over {family}; add a prefix of that version"
                    ));
                }
                _ => {
                    return Err(format!(
                        "[trial] source-addresses: two prefixes of {family}, but only one can be used"
                    ));
                }
            }
        }
        let (least, most) = all
            .iter()
            .map(SourceAddresses::count)
            .fold((u32::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
        if least != most {
            return Err(format!(
                "[trial] source-addresses: {least} and {most} addresses; use the same number for each prefix, such as PREFIX,{least}"
            ));
        }
        Ok(())
    }

    /// Checks the keys `xdp`. AF_XDP needs an Ethernet interface, which topology `loopback` does
    /// not have. A Measurer that uses AF_XDP has only one pair of threads.
    pub fn check_xdp(&self) -> Result<(), String> {
        let of_duts = self.duts.iter().filter(|dut| dut.xdp.is_some());
        let of_auths = self.auths().filter(|auth| auth.xdp.is_some());
        let mut all = of_duts
            .map(|dut| format!("[[dut]] {}", dut.name()))
            .chain(of_auths.map(|auth| format!("[auth] {}", auth.name())))
            .chain(self.trial.xdp.map(|_| "[trial]".to_owned()));
        if self.topology == Topology::Loopback
            && let Some(whose) = all.next()
        {
            return Err(format!(
                "{whose} xdp: AF_XDP is not available on loopback; use topology lab or ssh"
            ));
        }
        if self.trial.xdp.is_some() && self.trial.threads > 1 {
            let threads = self.trial.threads;
            return Err(format!(
                "[trial] xdp: a single pair of threads reads all queues of an interface; threads = {threads} must be 1"
            ));
        }
        Ok(())
    }

    fn check_auth(&self, whose: &str, auth: &AuthPlan) -> Result<(), String> {
        check_server(whose, auth.driver.driver(), auth.threads, &auth.operator())?;
        if auth.program.is_some() && auth.driver.is_ours() {
            return Err(format!(
                "{whose} program: driver dns64bench always runs this program; choose another driver"
            ));
        }
        if auth.driver.is_ours() && (auth.config.is_some() || !auth.extra.is_empty()) {
            return Err(format!(
                "{whose}: dns64bench's AuthDNS has no configuration file; extra and config are for other servers"
            ));
        }
        let most = self.cpus.auth.len();
        match auth.cores.filter(|&cores| cores == 0 || cores > most) {
            Some(cores) => {
                let has = counted(most as u64, "CPU", "CPUs");
                Err(format!("{whose} cores: {cores}, but [cpus] auth has {has}"))
            }
            None => Ok(()),
        }
    }

    /// Returns all servers that can act as AuthDNS, starting with the server in `[auth]`.
    pub fn auths(&self) -> impl Iterator<Item = &AuthPlan> {
        std::iter::once(&self.auth).chain(&self.authdns)
    }

    /// Returns the AuthDNS with this name, or the AuthDNS in `[auth]` if there is no name.
    pub fn auth_named(&self, name: Option<&str>) -> &AuthPlan {
        let called = |auth: &&AuthPlan| name.is_some_and(|name| auth.name() == name);
        self.auths().find(called).unwrap_or(&self.auth)
    }

    /// Returns the server that acts as AuthDNS at a measurement point.
    pub fn auth_at(&self, point: &Point) -> Cow<'_, AuthPlan> {
        let at = match point {
            Point::SelfTest(at) => at,
            // Only dns64bench's AuthDNS can answer for the names of the checks.
            Point::Conform(_) => {
                let name = Some(CHECKS.into());
                return Cow::Owned(AuthPlan { name, ..AuthPlan::default() });
            }
            _ => return Cow::Borrowed(self.auth_named(point.authdns())),
        };
        let called = self.auth_named(at.named.as_deref());
        if at.server == called.driver {
            let cores = at.cores.or(called.cores);
            return Cow::Owned(AuthPlan { cores, ..called.clone() });
        }
        // The program, threads and extra lines in `[auth]` apply to a different server, so they are
        // not used here.
        Cow::Owned(AuthPlan {
            driver: at.server,
            cores: at.cores,
            names: self.auth.names,
            ..AuthPlan::default()
        })
    }

    /// Returns the CPUs of AuthDNS at a measurement point; empty if AuthDNS may use any CPU.
    pub fn auth_cpus(&self, point: &Point) -> &[usize] {
        let all = &self.cpus.auth;
        &all[..self.auth_at(point).cores.unwrap_or(all.len()).min(all.len())]
    }

    /// Returns the AuthDNS servers that a DUT queries, in the order of [`Plan::auths`].
    pub(crate) fn auths_of_duts(&self) -> Vec<&AuthPlan> {
        let places: Vec<Cores> =
            self.duts.iter().flat_map(|dut| self.keys_of(dut).places()).collect();
        let is_asked = |auth: &&AuthPlan| {
            places
                .iter()
                .any(|place| self.auth_named(place.authdns.as_deref()).name() == auth.name())
        };
        self.auths().filter(is_asked).collect()
    }

    /// Checks that AuthDNS has an address of the requested IP version. In topologies other than ssh, AuthDNS has
    /// addresses of both IP versions, and `address` is `None`.
    fn check_family(
        &self,
        whose: &str,
        wanted: Option<Family>,
        address: Option<SocketAddr>,
    ) -> Result<(), String> {
        match (wanted, address) {
            (Some(wanted), Some(address)) if Family::from_address(address) != wanted => {
                Err(format!(
                    "{whose} family = \"{}\": AuthDNS is at {address} in [ssh.addresses]",
                    wanted.as_str()
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Rejects keys that the driver of a server does not support.
fn check_server<T>(
    whose: &str,
    driver: &Driver<T>,
    threads: Option<usize>,
    operator: &Operator,
) -> Result<(), String> {
    if threads == Some(0) {
        return Err(format!("{whose} threads must be at least 1"));
    }
    if threads.is_some() && !driver.configures_threads(operator) {
        return Err(format!(
            "{whose} threads: the configuration does not use it; write {{threads}} at its place"
        ));
    }
    if operator.xdp.is_some() && !driver.supports_xdp {
        return Err(format!(
            "{whose} xdp: {} does not support AF_XDP; dns64d and AuthDNS do",
            driver.name
        ));
    }
    if operator.xdp.is_some() && operator.config.is_some() {
        return Err(format!(
            "{whose} xdp applies to the generated configuration only; set it in the file of config"
        ));
    }
    if operator.config.is_some() && !operator.extra.is_empty() {
        return Err(format!(
            "{whose}: extra applies to the generated configuration only; write the lines into the file of config"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_needs_a_capable_server_and_an_interface() {
        let check = |text: &str| {
            let text = format!("name = 'x'\n{text}");
            Plan::parse(&text, Path::new("p.toml")).map_err(|error| error.to_string())
        };
        let all = "[trial]\nxdp = 'auto'\n[auth]\nxdp = 'copy'\n[[dut]]\ndriver = 'dns64d'\nxdp = 'generic'\n";
        let plan = check(all).unwrap();
        let written = toml::to_string(&plan).unwrap();
        assert_eq!(Plan::parse(&written, Path::new("p.toml")).unwrap(), plan);
        for (text, says) in [
            ("[[dut]]\ndriver = 'unbound'\nxdp = 'auto'\n", "unbound xdp: Unbound does not"),
            ("[auth]\ndriver = 'nsd'\nxdp = 'auto'\n[[dut]]\ndriver = 'dns64d'\n", "NSD does not"),
            ("[trial]\nxdp = 'auto'\nthreads = 2\n[[dut]]\ndriver = 'dns64d'\n", "must be 1"),
            ("[trial]\nxdp = 'fast'\n[[dut]]\ndriver = 'dns64d'\n", "zero-copy"),
            (
                &format!("topology = 'loopback'\n{all}"),
                "dns64d xdp: AF_XDP is not available on loopback",
            ),
            (
                "topology = 'loopback'\n[auth]\nxdp = 'auto'\n[[dut]]\ndriver = 'dns64d'\n",
                "[auth] AuthDNS xdp: AF_XDP is not available on loopback",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.to_lowercase().contains(&says.to_lowercase()), "{text}{error}");
        }
    }

    #[test]
    fn operator_files_are_stored_in_the_plan() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("own.conf"),
            "interface: {listen}\nnum-threads: {threads}\n",
        )
        .unwrap();
        let text = "name = 'x'\n[auth]\ndriver = 'nsd'\nthreads = 3\nextra = ['tcp-count: 10']\n\
                    [self-test]\nfamily = 'ipv6'\n\
                    [[dut]]\ndriver = 'unbound'\nconfig = 'own.conf'\nthreads = 14\nfamily = 'ipv6'\n";
        let plan = Plan::parse(text, &folder.path().join("p.toml")).unwrap();
        std::fs::remove_file(folder.path().join("own.conf")).unwrap();
        let kept = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("elsewhere/plan.toml"))
            .unwrap();
        assert_eq!(kept, plan, "the file is not needed any more");
        let journal: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(journal, plan);
        let dut = &kept.duts[0];
        assert!(dut.config.as_ref().unwrap().text.contains("{threads}"));
        assert_eq!(
            (dut.threads, dut.family, kept.auth.threads),
            (Some(14), Some(Family::Ipv6), Some(3))
        );
    }
}
