//! Whether the lab's links answer: each end has to know the link-layer address of the other.
//!
//! A new link drops the first question for a link-layer address, and the kernel asks again only
//! after a second; what is sent meanwhile is lost. So the lab is up when both ends of each link
//! have asked and been answered.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use net::neighbour::NextHop;

use super::{End, LINKS, LabError, io_error};

/// All links answer within this time, or do not at all.
const LIMIT: Duration = Duration::from_secs(10);

/// Why an address of the lab cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("no neighbour answers for {address}: {source}")]
pub struct Unreached {
    /// The address that was asked.
    pub address: IpAddr,
    /// What the system says.
    pub source: io::Error,
}

/// Waits until the link-layer addresses of all `addresses` are known to this host, for ten seconds
/// at most. Nothing is asked of the hosts but their link-layer addresses.
///
/// # Errors
/// The first address that nobody answers for.
pub fn reach(addresses: &[IpAddr]) -> Result<(), Unreached> {
    let give_up = Instant::now() + LIMIT;
    for &address in addresses {
        let target = SocketAddr::new(address, 0);
        let resolve =
            |hop: NextHop| hop.resolve(target, give_up.saturating_duration_since(Instant::now()));
        NextHop::towards(target)
            .and_then(resolve)
            .map_err(|source| Unreached { address, source })?;
    }
    Ok(())
}

/// Waits until both ends of all links reach each other. Each end asks by a process of this program,
/// which can be inside of the host; all of them at the same time.
pub(super) fn all_links() -> Result<(), LabError> {
    let ends = LINKS
        .iter()
        .flat_map(|link| [(&link.ends[0], &link.ends[1]), (&link.ends[1], &link.ends[0])]);
    let asking = ends
        .map(|(near, far)| Ok((near, far, ask(near, far)?)))
        .collect::<Result<Vec<_>, LabError>>()?;
    // Each is waited for, whatever the others found.
    let answers: Vec<_> =
        asking.into_iter().map(|(near, far, child)| answer(near, far, child)).collect();
    answers.into_iter().collect()
}

fn ask(near: &End, far: &End) -> Result<Child, LabError> {
    let program = std::env::current_exe().map_err(io_error("find this program"))?;
    let mut command = Command::new(&program);
    command.args(["lab", "exec", near.host.word(), "--"]).arg(&program).args(["lab", "reach"]);
    // Without the length of the prefix.
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
        from: format!("{} ({})", near.host.word(), near.interface),
        to: format!("{} ({})", far.host.word(), far.interface),
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
