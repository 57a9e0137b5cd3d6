//! The hosts and addresses of a campaign's testers, DUT and AuthDNS servers.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use hosts::host::{HostError, Machine, SshHost, local_agent, over_ssh};
use hosts::interruption::Interruption;
use hosts::lab::{self, Host, LabError};
use hosts::new_file::write_whole;
use hosts::place::{Neighbour, Sharing};
use hosts::topology::CpuTopology;
use net::ports;

use crate::archive::{Archive, ArchiveError};
use crate::plan::{self, Cores, Family, Plan};

/// Error that can occur while the hosts of a campaign are prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeploymentError {
    /// The lab (network namespaces on this machine) could not be created or entered.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A host cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// No free port was found for a server.
    #[error("no free port on loopback: {0}")]
    Port(io::Error),
}

/// The hosts and addresses of a campaign.
pub(super) struct Deployment {
    /// Hosts of the Measurer: one machine, or several machines among which each trial is
    /// distributed.
    pub testers: Vec<Machine>,
    /// Host of the DUT.
    pub dut: Machine,
    /// Hosts of AuthDNS: one machine, or several machines that a DUT may query.
    pub auths: Vec<Machine>,
    /// Address at which the Measurer queries the DUT.
    pub dut_address: SocketAddr,
    /// Addresses of each AuthDNS; never empty.
    auth_addresses: Vec<AuthAddresses>,
    /// CPUs of the DUT's host; empty if unknown.
    pub topology: CpuTopology,
    /// True if the topology of the plan is loopback. In this case, free ports are chosen for the DUT and AuthDNS.
    loopback: bool,
    /// Guard that removes the lab if this run created it. This is the last field, because Rust
    /// drops fields in order: the hosts must be dropped before the guard.
    _lab: Option<LabGuard>,
}

/// Guard of a lab that this run created. Dropping the guard removes the lab. While the lab exists,
/// the file `lab` in the run folder contains its identity. If this run is killed, a resumed run
/// uses this file to recognize the lab and remove it.
struct LabGuard {
    note: PathBuf,
}

impl LabGuard {
    /// Creates the lab, or takes over a lab that an earlier process of this run created. Returns
    /// `None` if there is a lab that this run did not create.
    fn up(run_folder: &Path) -> Result<Option<LabGuard>, DeploymentError> {
        let note = run_folder.join("lab");
        let noted = std::fs::read_to_string(&note).ok();
        if !is_ours(lab::identity().as_deref(), noted.as_deref()) {
            let _ = std::fs::remove_file(&note);
            return Ok(None);
        }
        write_whole(&note, b"").map_err(ArchiveError::from)?;
        // From now on, dropping this guard removes the lab, even after an error.
        let put_up = LabGuard { note };
        lab::up()?;
        write_whole(&put_up.note, lab::identity().unwrap_or_default().as_bytes())
            .map_err(ArchiveError::from)?;
        Ok(Some(put_up))
    }
}

impl Drop for LabGuard {
    fn drop(&mut self) {
        if lab::down().is_ok() {
            let _ = std::fs::remove_file(&self.note);
        }
    }
}

/// True if this run may create and remove the lab. The argument `up` is the identity of the
/// existing lab, or `None` if there is no lab. The argument `noted` is the identity of the lab that
/// this run recorded, or `None` if it recorded none. The recorded identity is empty if the run was
/// killed while it created the lab.
fn is_ours(up: Option<&str>, noted: Option<&str>) -> bool {
    match (up, noted) {
        (None, _) | (Some(_), Some("")) => true,
        (Some(up), Some(noted)) => up == noted,
        (Some(_), None) => false,
    }
}

impl Deployment {
    /// Prepares the hosts of a plan.
    ///
    /// # Errors
    /// Returns an error if the lab cannot be created, a host cannot be reached, or there is no free
    /// port.
    pub(super) fn make(
        plan: &Plan,
        archive: &Archive,
        interruption: &Interruption,
    ) -> Result<Deployment, DeploymentError> {
        let run_folder = archive.folder();
        let here = |host, in_lab| local_agent(host, in_lab, run_folder, interruption);
        let in_lab = plan.topology == plan::Topology::Lab;
        let put_up = if in_lab { LabGuard::up(run_folder)? } else { None };
        let addresses = addresses(plan)?;
        let (testers, dut, auths) = match (&plan.ssh, plan.topology) {
            (Some(ssh), plan::Topology::Ssh) => {
                let config = ssh.config.as_deref();
                let (cache, name) = (Path::new(".cache/dns64bench"), archive.far_name()?);
                let far = cache.join(&name);
                let machine = |host, at: Option<&SshHost>, far: &Path| match at {
                    None => here(host, false),
                    Some(at) => over_ssh(at, config, far, run_folder, interruption),
                };
                // Several testers or AuthDNS servers may be on one host, so each agent has a
                // separate folder.
                let machines = |role, hosts: &[Option<&SshHost>], word| {
                    let folder = |number| match hosts.len() {
                        1 => far.clone(),
                        _ => cache.join(format!("{name}-{word}-{number}")),
                    };
                    let each = hosts.iter().enumerate();
                    each.map(|(number, at)| machine(role, *at, &folder(number))).collect()
                };
                let testers: Result<Vec<_>, _> =
                    machines(Host::Tester, &ssh.tester_hosts(), "tester");
                let dut = machine(Host::Dut, ssh.dut.as_ref(), &far)?;
                let auths: Result<Vec<_>, _> = machines(Host::Auth, &ssh.auth_hosts(), "auth");
                (testers?, dut, auths?)
            }
            _ => (
                vec![here(Host::Tester, in_lab)?],
                here(Host::Dut, in_lab)?,
                vec![here(Host::Auth, in_lab)?],
            ),
        };
        let (dut_address, auth_addresses) = addresses;
        let loopback = plan.topology == plan::Topology::Loopback;
        let topology = dut.topology()?;
        let _lab = put_up;
        Ok(Deployment {
            testers,
            dut,
            auths,
            dut_address,
            auth_addresses,
            topology,
            loopback,
            _lab,
        })
    }

    /// Returns the host of the Measurer; with several hosts, the first host.
    pub(super) fn tester(&self) -> &Machine {
        &self.testers[0]
    }

    /// Returns the CPUs of the DUT at a placement. If the plan names no CPUs, one CPU of the DUT's
    /// host is chosen for each core of the placement. The list is empty if the plan names no CPUs
    /// and the CPUs of that host are unknown.
    pub(crate) fn dut_cpus(&self, plan: &Plan, place: &Cores) -> Vec<usize> {
        let given = plan.cpus_at(place);
        if !given.is_empty() {
            return given.to_vec();
        }
        let taken = self.neighbours(plan).into_iter().flat_map(|(_, cpus)| cpus).collect();
        self.topology.pick(place.cores, &taken).unwrap_or_default()
    }

    /// Returns the roles (tester, AuthDNS) that may use some of the CPUs `cpus` of the DUT's host.
    pub(crate) fn sharing(&self, plan: &Plan, cpus: &[usize]) -> Vec<Sharing> {
        let common = self.neighbours(plan).into_iter().map(|(with, theirs)| Sharing {
            with,
            cpus: cpus.iter().copied().filter(|cpu| theirs.contains(cpu)).collect(),
        });
        common.filter(|sharing| !sharing.cpus.is_empty()).collect()
    }

    /// Returns the roles (tester, AuthDNS) that run on the DUT's machine, and their CPUs. A role
    /// for which the plan names no CPUs may use all CPUs.
    fn neighbours(&self, plan: &Plan) -> Vec<(Neighbour, BTreeSet<usize>)> {
        let here = &self.dut.greeting().boot_id;
        let is_near = |machine: &Machine| !here.is_empty() && machine.greeting().boot_id == *here;
        // All testers on this machine have the same CPUs.
        let tester =
            self.testers.iter().any(is_near).then_some((Neighbour::Tester, &plan.cpus.tester));
        let auth = self.auths.iter().any(is_near).then_some((Neighbour::Auth, &plan.cpus.auth));
        let near = tester.into_iter().chain(auth);
        near.map(|(who, cpus)| {
            (
                who,
                if cpus.is_empty() { self.topology.cpus() } else { cpus.iter().copied().collect() },
            )
        })
        .collect()
    }

    /// Returns, for each AuthDNS, the address at which a DUT queries it. If the IP version `family` is given, the
    /// addresses have this version.
    pub(crate) fn auth_addresses(&self, family: Option<Family>) -> Vec<SocketAddr> {
        self.auth_addresses.iter().map(|at| of_family(&at.by_dut, family)).collect()
    }

    /// Returns, for each AuthDNS, the address at which the Measurer queries it in self-tests. If the IP version
    /// `family` is given, the addresses have this version.
    pub(crate) fn self_test_addresses(&self, family: Option<Family>) -> Vec<SocketAddr> {
        self.auth_addresses.iter().map(|at| of_family(&at.by_tester, family)).collect()
    }

    /// If the topology of the plan is loopback, chooses new ports for the DUT and AuthDNS. All servers must have
    /// stopped before the call.
    ///
    /// # Errors
    /// Returns an error if there is no free port.
    pub(crate) fn change_ports(&mut self) -> Result<(), DeploymentError> {
        if self.loopback {
            let (dut, auth) = on_loopback()?;
            (self.dut_address, self.auth_addresses) = (dut, vec![auth]);
        }
        Ok(())
    }
}

/// Addresses at which an AuthDNS is queried: one list for the DUT, and one for the tester in self-tests. Each list
/// starts with the default address and is never empty.
struct AuthAddresses {
    by_dut: Vec<SocketAddr>,
    by_tester: Vec<SocketAddr>,
}

/// Returns the first address of the IP version `family`. If `family` is `None`, returns the first
/// of all addresses. A plan that requests an IP version without an address has already been
/// rejected.
fn of_family(addresses: &[SocketAddr], family: Option<Family>) -> SocketAddr {
    let of = addresses
        .iter()
        .find(|address| family.is_none_or(|family| Family::from_address(**address) == family));
    *of.unwrap_or(&addresses[0])
}

/// Returns the addresses of the DUT and of each AuthDNS.
fn addresses(plan: &Plan) -> Result<(SocketAddr, Vec<AuthAddresses>), DeploymentError> {
    let address = |text: &str| text.parse().expect("a constant");
    Ok(match (&plan.ssh, plan.topology) {
        (Some(ssh), plan::Topology::Ssh) => {
            let each = ssh.auth_addresses().iter().zip(ssh.self_test_addresses());
            let auths = each.map(|(&by_dut, &by_tester)| AuthAddresses {
                by_dut: vec![by_dut],
                by_tester: vec![by_tester],
            });
            (ssh.addresses.dut, auths.collect())
        }
        (_, plan::Topology::Lab) => {
            let by_dut = ["198.18.0.2:53", "[2001:2:0:2::2]:53"].map(address).into();
            let by_tester = ["198.18.1.2:53", "[2001:2:1::2]:53"].map(address).into();
            (address("[2001:2::1]:53"), vec![AuthAddresses { by_dut, by_tester }])
        }
        _ => {
            let (dut, auth) = on_loopback()?;
            (dut, vec![auth])
        }
    })
}

/// Returns the address of a DUT and the addresses of an AuthDNS, on loopback with free ports. The
/// result has the same form as that of [`addresses`].
fn on_loopback() -> Result<(SocketAddr, AuthAddresses), DeploymentError> {
    let free = |ip: IpAddr| ports::free(ip).map_err(DeploymentError::Port);
    let (ipv4, ipv6) = (free(Ipv4Addr::LOCALHOST.into())?, free(Ipv6Addr::LOCALHOST.into())?);
    let mut dut = free(Ipv6Addr::LOCALHOST.into())?;
    while dut == ipv6 {
        // No server uses the first port yet, so the same port may be found again.
        dut = free(Ipv6Addr::LOCALHOST.into())?;
    }
    Ok((dut, AuthAddresses { by_dut: vec![ipv4, ipv6], by_tester: vec![ipv4, ipv6] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_is_removed_by_the_run_that_created_it() {
        assert!(is_ours(None, None), "there is none: it will be put up");
        assert!(is_ours(None, Some("1 2 3")), "the lab has been removed since");
        assert!(!is_ours(Some("1 2 3"), None), "the lab was up before");
        assert!(is_ours(Some("1 2 3"), Some("1 2 3")), "the run before this one was killed");
        assert!(!is_ours(Some("4 5 6"), Some("1 2 3")), "the lab has been replaced since");
        assert!(is_ours(Some("1 2 3"), Some("")), "killed while the lab was put up");
    }
}
