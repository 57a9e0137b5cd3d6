//! The keys of a plan that tell servers how to be: threads, family of addresses, and what operators give of their own.

use std::net::SocketAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::servers::{Driver, Dut, Operator};

/// A version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// That of an address.
    pub fn of(address: SocketAddr) -> Family {
        if address.is_ipv6() { Family::Ipv6 } else { Family::Ipv4 }
    }

    /// As a plan calls it.
    pub fn word(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}

impl Plan {
    /// Reads the configurations that operators give, whose paths begin in `folder`.
    pub(super) fn read_files(&mut self, folder: &Path) -> Result<(), String> {
        let duts = self.duts.iter_mut().map(|dut| (format!("[[dut]] {}", dut.name()), dut.config.as_mut()));
        let all = duts.chain([("[auth]".to_owned(), self.auth.config.as_mut())]);
        for (whose, config) in all {
            if let Some(config) = config {
                config.read(folder).map_err(|why| format!("{whose} config: {why}"))?;
            }
        }
        Ok(())
    }

    /// The keys that servers have in common, of DUTs and of AuthDNS.
    pub(super) fn check_servers(&self) -> Result<(), String> {
        for dut in &self.duts {
            let (whose, driver) = (format!("[[dut]] {}", dut.name()), dut.driver.driver());
            check_server(&whose, driver, dut.threads, &dut.operator())?;
            if dut.driver == Dut::Custom && !dut.extra.is_empty() {
                return Err(format!("{whose} extra: driver custom has no configuration; give one: config"));
            }
            if dut.family == Some(Family::Ipv6) && !driver.speaks_ipv6 {
                return Err(format!("{whose} family: {} asks over IPv4 only", driver.name));
            }
            self.check_family(&whose, dut.family, self.ssh.as_ref().map(|ssh| ssh.addresses.auth))?;
        }
        check_server("[auth]", self.auth.driver.driver(), self.auth.threads, &self.auth.operator())?;
        if self.auth.driver.is_ours() && (self.auth.config.is_some() || !self.auth.extra.is_empty()) {
            return Err("[auth]: dns64bench's own AuthDNS has no configuration; extra and config are for others".into());
        }
        let asked = self.ssh.as_ref().map(|ssh| ssh.addresses.self_test.unwrap_or(ssh.addresses.auth));
        self.check_family("[self-test]", self.self_test.as_ref().and_then(|test| test.family), asked)
    }

    /// Whether AuthDNS has an address of the family that is asked for; the other topologies have both.
    fn check_family(&self, whose: &str, wanted: Option<Family>, address: Option<SocketAddr>) -> Result<(), String> {
        match (wanted, address) {
            (Some(wanted), Some(address)) if Family::of(address) != wanted => {
                Err(format!("{whose} family = \"{}\": AuthDNS is at {address} in [ssh.addresses]", wanted.word()))
            }
            _ => Ok(()),
        }
    }
}

/// The keys of a server that a driver can make no sense of.
fn check_server<T>(whose: &str, driver: &Driver<T>, threads: Option<usize>, operator: &Operator) -> Result<(), String> {
    if threads == Some(0) {
        return Err(format!("{whose} threads: at least one must answer"));
    }
    if threads.is_some() && !driver.tells_threads(operator) {
        return Err(format!("{whose} threads: nothing tells the server; write {{threads}} where it is to stand"));
    }
    if operator.config.is_some() && !operator.extra.is_empty() {
        return Err(format!("{whose}: extra is for the driver's configuration; write the lines into config itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operators_give_is_in_the_plan_itself() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), "interface: {listen}\nnum-threads: {threads}\n").unwrap();
        let text = "name = 'x'\n[auth]\ndriver = 'nsd'\nthreads = 3\nextra = ['tcp-count: 10']\n\
                    [self-test]\nfamily = 'ipv6'\n\
                    [[dut]]\ndriver = 'unbound'\nconfig = 'own.conf'\nthreads = 14\nfamily = 'ipv6'\n";
        let plan = Plan::parse(text, &folder.path().join("p.toml")).unwrap();
        std::fs::remove_file(folder.path().join("own.conf")).unwrap();
        let kept = Plan::parse(&toml::to_string(&plan).unwrap(), Path::new("elsewhere/plan.toml")).unwrap();
        assert_eq!(kept, plan, "the file is not needed any more");
        let journal: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(journal, plan);
        let dut = &kept.duts[0];
        assert!(dut.config.as_ref().unwrap().text.contains("{threads}"));
        assert_eq!((dut.threads, dut.family, kept.auth.threads), (Some(14), Some(Family::Ipv6), Some(3)));
    }
}
