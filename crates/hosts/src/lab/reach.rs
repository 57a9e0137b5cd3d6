//! Test of the lab's links: each end of a link must be able to resolve the link-layer address of the other end.
//!
//! A new link drops the first query for a link-layer address, and the kernel repeats that query only after a second.
//! Packets sent during this second are lost. The lab therefore counts as ready only after both ends of each link have
//! received an answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use net::neighbour::NextHop;

use crate::lab::links::{End, LINKS, LabError, io_error};

/// Time limit within which all links must answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Error for an address that cannot be resolved to a link-layer address.
#[derive(Debug, thiserror::Error)]
#[error("no neighbour answers for {address}: {source}")]
pub struct UnreachableAddress {
    /// The unreachable address.
    pub address: IpAddr,
    /// Error returned by the system.
    pub source: io::Error,
}

/// Waits until this host has resolved the link-layer addresses of all `addresses`, for at most ten seconds.
///
/// # Errors
/// Returns the first address that did not answer.
pub fn reach(addresses: &[IpAddr]) -> Result<(), UnreachableAddress> {
    let give_up = Instant::now() + LIMIT;
    for &address in addresses {
        let target = SocketAddr::new(address, 0);
        let resolve =
            |hop: NextHop| hop.resolve(target, give_up.saturating_duration_since(Instant::now()));
        NextHop::towards(target)
            .and_then(resolve)
            .map_err(|source| UnreachableAddress { address, source })?;
    }
    Ok(())
}

/// Waits until the two ends of each link can reach each other. Each end is tested by a dns64bench process on its host,
/// and all these processes run at the same time.
pub(super) fn all_links() -> Result<(), LabError> {
    let ends = LINKS
        .iter()
        .flat_map(|link| [(&link.ends[0], &link.ends[1]), (&link.ends[1], &link.ends[0])]);
    let asking = ends
        .map(|(near, far)| Ok((near, far, ask(near, far)?)))
        .collect::<Result<Vec<_>, LabError>>()?;
    // This code waits for all processes, even if one of them reports an error.
    let answers: Vec<_> =
        asking.into_iter().map(|(near, far, child)| answer(near, far, child)).collect();
    answers.into_iter().collect()
}

fn ask(near: &End, far: &End) -> Result<Child, LabError> {
    let program = std::env::current_exe().map_err(io_error("find this program"))?;
    let mut command = Command::new(&program);
    command.args(["lab", "exec", near.host.as_str(), "--"]).arg(&program).args(["lab", "reach"]);
    // The addresses are passed without their prefix lengths.
    command.args(far.addresses.iter().map(|address| address.split('/').next().unwrap_or(address)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map_err(io_error(format!("run {}", program.display())))
}

fn answer(near: &End, far: &End, child: Child) -> Result<(), LabError> {
    let ended = child.wait_with_output().map_err(io_error("wait for 'lab reach'"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(LabError::Link {
        from: format!("{} ({})", near.host.as_str(), near.interface),
        to: format!("{} ({})", far.host.as_str(), far.interface),
        why: said.trim().trim_start_matches("dns64bench: ").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_are_reached_at_once() {
        reach(&["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]).unwrap();
    }

    #[test]
    fn the_addresses_of_all_ends_can_be_asked_for() {
        for end in LINKS.iter().flat_map(|link| &link.ends) {
            for address in end.addresses {
                address.split('/').next().unwrap().parse::<IpAddr>().unwrap();
            }
        }
    }
}
