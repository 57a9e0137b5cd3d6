//! Where a campaign's processes run: its three hosts, and the addresses under which they meet.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use crate::archive::{Archive, ArchiveError};
use crate::host::{HostError, Machine, agent_here, over_ssh};
use crate::lab::{self, Host, LabError};
use crate::plan::{Plan, SshHost, Topology};

/// Why there are no hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// No lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A host cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// No free port.
    #[error("no free port on loopback: {0}")]
    Port(io::Error),
}

/// The hosts of a campaign.
pub struct World {
    /// Where the Measurer runs.
    pub tester: Machine,
    /// Where the DUT runs.
    pub dut: Machine,
    /// Where AuthDNS runs.
    pub auth: Machine,
    /// Where the DUT is asked.
    pub dut_address: SocketAddr,
    /// Where the DUT asks AuthDNS.
    pub auth_address: SocketAddr,
    /// Where the Measurer asks AuthDNS in self-tests.
    pub self_test_address: SocketAddr,
    /// Takes the lab down when the hosts are gone, if it was not up before.
    _lab: Option<PutUp>,
}

/// A lab that is ours to take down.
struct PutUp;

impl Drop for PutUp {
    fn drop(&mut self) {
        let _ = lab::down();
    }
}

impl World {
    /// Makes the hosts of a plan ready.
    ///
    /// # Errors
    /// If the lab cannot be put up, a host cannot be reached, or there is no free port.
    pub fn make(plan: &Plan, archive: &Archive) -> Result<World, WorldError> {
        let run_folder = archive.folder();
        let here = |host, in_lab| agent_here(host, in_lab, run_folder);
        let (mut put_up, in_lab) = (None, plan.topology == Topology::Lab);
        if in_lab {
            let was_up = lab::is_up();
            lab::up()?;
            // Lazily: a value that is not needed would take the lab down when it is dropped.
            put_up = if was_up { None } else { Some(PutUp) };
        }
        let addresses = addresses(plan)?;
        let [tester, dut, auth] = match (&plan.ssh, plan.topology) {
            (Some(ssh), Topology::Ssh) => {
                let config = ssh.config.as_deref();
                let far = Path::new(".cache/dns64bench").join(archive.far_name()?);
                let machine = |host, at: &Option<SshHost>| match at {
                    None => here(host, false),
                    Some(at) => over_ssh(at, config, &far, run_folder),
                };
                [machine(Host::Tester, &ssh.tester)?, machine(Host::Dut, &ssh.dut)?, machine(Host::Auth, &ssh.auth)?]
            }
            _ => [here(Host::Tester, in_lab)?, here(Host::Dut, in_lab)?, here(Host::Auth, in_lab)?],
        };
        let [dut_address, auth_address, self_test_address] = addresses;
        Ok(World { tester, dut, auth, dut_address, auth_address, self_test_address, _lab: put_up })
    }
}

/// Where the DUT is asked, where it asks AuthDNS, and where the Measurer asks AuthDNS in self-tests.
fn addresses(plan: &Plan) -> Result<[SocketAddr; 3], WorldError> {
    let address = |text: &str| text.parse().expect("a constant");
    Ok(match (&plan.ssh, plan.topology) {
        (Some(ssh), Topology::Ssh) => {
            let a = &ssh.addresses;
            [a.dut, a.auth, a.self_test.unwrap_or(a.auth)]
        }
        (_, Topology::Lab) => ["[2001:2::1]:53", "198.18.0.2:53", "198.18.1.2:53"].map(address),
        _ => {
            let auth = free("127.0.0.1:0").map_err(WorldError::Port)?;
            [free("[::1]:0").map_err(WorldError::Port)?, auth, auth]
        }
    })
}

/// A UDP address that was free a moment ago.
fn free(any: &str) -> io::Result<SocketAddr> {
    UdpSocket::bind(any)?.local_addr()
}
