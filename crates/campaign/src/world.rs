//! Where a campaign's processes run: which command starts them there, and under which addresses they meet.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;

use crate::lab::{self, Host, LabError};
use crate::plan::{Plan, Topology};

/// The hosts of a campaign.
pub struct World {
    topology: Topology,
    /// This program: it runs itself for everything that is not the DUT.
    program: PathBuf,
    /// Whether the lab is ours to take down.
    put_up: bool,
    /// Where the DUT is asked.
    pub dut: SocketAddr,
    /// Where the DUT asks AuthDNS.
    pub auth: SocketAddr,
    /// Where the Measurer asks AuthDNS in self-tests.
    pub self_test: SocketAddr,
}

impl World {
    /// Makes the hosts of a plan ready.
    ///
    /// # Errors
    /// If the lab cannot be put up, or there is no free port.
    pub fn make(plan: &Plan) -> Result<World, LabError> {
        let io = |source| LabError::Io { doing: "prepare the hosts".into(), source };
        let program = std::env::current_exe().map_err(io)?;
        let address = |text: &str| text.parse().expect("a constant");
        match plan.topology {
            Topology::Lab => {
                let put_up = !lab::is_up();
                lab::up()?;
                let [dut, auth, self_test] = ["[2001:2::1]:53", "198.18.0.2:53", "198.18.1.2:53"].map(address);
                Ok(World { topology: plan.topology, program, put_up, dut, auth, self_test })
            }
            Topology::Loopback => {
                let dut = free("[::1]:0").map_err(io)?;
                let auth = free("127.0.0.1:0").map_err(io)?;
                Ok(World { topology: plan.topology, program, put_up: false, dut, auth, self_test: auth })
            }
        }
    }

    /// The command that runs `words` on a host, on the given CPUs (none: any). Its process is that of the program itself: what
    /// stands before it replaces itself.
    pub fn command(&self, host: Host, cpus: &[usize], words: &[String]) -> Command {
        let mut all: Vec<String> = Vec::new();
        if self.topology == Topology::Lab {
            let program = self.program.to_string_lossy().into_owned();
            all.extend([program, "lab".into(), "exec".into(), host.word().into(), "--".into()]);
        }
        if !cpus.is_empty() {
            let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            all.extend(["taskset".into(), "-c".into(), list.join(",")]);
        }
        all.extend_from_slice(words);
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        command
    }

    /// The command that runs this program on a host.
    pub fn ours(&self, host: Host, cpus: &[usize], arguments: &[String]) -> Command {
        let program = self.program.to_string_lossy().into_owned();
        self.command(host, cpus, &[&[program], arguments].concat())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.put_up {
            let _ = lab::down();
        }
    }
}

/// A UDP address that was free a moment ago.
fn free(any: &str) -> io::Result<SocketAddr> {
    UdpSocket::bind(any)?.local_addr()
}
