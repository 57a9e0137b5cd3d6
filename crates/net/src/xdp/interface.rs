//! Interfaces that are opened for AF_XDP, with the filter attached and a socket for each queue.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use super::bpf::{Attached, Hook, Program, SocketMap};
use super::error::{XdpError, refused};
use super::exchange::Exchange;
use super::filter::{self, Claim, MatchAction};
use super::frame::HostAddresses;
use super::mode::{AttachMode, Mode};
use super::queue::{self, Capacity, Queue};
use super::server::Server;
use crate::ethtool;
use crate::interfaces::{address_of, held};
use crate::neighbour::link_address;
use crate::socket::scope_of;

/// An interface that is open for AF_XDP: datagrams that match one of its [`Claim`]s are received by AF_XDP.
pub struct Interface {
    pub(super) attach_mode: AttachMode,
    pub(super) queues: Vec<Queue>,
    pub(super) own: HostAddresses,
}

impl Interface {
    /// Opens all queues of an interface, to receive the datagrams that match `claims` and to reply to them.
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open(name: &str, claims: &[Claim], mode: Mode) -> Result<Interface, XdpError> {
        Interface::open_own(name, claims, mode, |_| Capacity::SERVER)
    }

    /// Opens an interface for threads that send both queries and replies on its queues ([`Interface::into_exchanges`]).
    ///
    /// # Errors
    /// See [`XdpError`].
    pub fn open_both(name: &str, claims: &[Claim], mode: Mode) -> Result<Interface, XdpError> {
        Interface::open_own(name, claims, mode, |_| Capacity::BOTH)
    }

    fn open_own(
        name: &str,
        claims: &[Claim],
        mode: Mode,
        room: fn(u32) -> Capacity,
    ) -> Result<Interface, XdpError> {
        let found = find(name)?;
        let its: Vec<IpAddr> =
            addresses().filter(|(of, _)| of == name).map(|(_, address)| address.ip()).collect();
        let mut wanted = claims.iter().filter_map(Claim::only_address);
        if let Some(address) = wanted.find(|address| !its.contains(address)) {
            return Err(XdpError::ForeignAddress { interface: name.to_owned(), address });
        }
        let opened = Interface::open_found(&found, claims, mode, room)?;
        // A server may be started before its network is up.
        let _ = await_link(name, LINK);
        Ok(opened)
    }

    /// Opens the queues of an interface. This function does not check whether the interface has the addresses in
    /// `claims`. The function `room` computes the capacity of each queue from the number of queues.
    pub(super) fn open_found(
        found: &Found,
        claims: &[Claim],
        mode: Mode,
        room: fn(u32) -> Capacity,
    ) -> Result<Interface, XdpError> {
        let count = count_queues(&found.facts)?;
        let name = &found.facts.name;
        let mut tried = Vec::new();
        for &attach_mode in mode.attach_modes() {
            match open_in_mode(found, count, claims, attach_mode, room(count))? {
                Ok(queues) => {
                    let is_card = is_card(found.facts.driver.as_ref());
                    let own = own_addresses(name).with_partial_checksums(!is_card);
                    return Ok(Interface { attach_mode, queues, own });
                }
                Err(error) if is_busy(&error) => {
                    let hook = attach_mode.hook().word();
                    tried.push(format!(
                        "{attach_mode}: {error}; another program uses the interface, or has left its filter on it: \
                         ip link set dev {name} {hook} off"
                    ));
                }
                Err(error) => tried.push(format!("{attach_mode}: {error}")),
            }
        }
        Err(XdpError::NoAttachMode { interface: name.clone(), tried })
    }

    /// Returns the attach mode in use.
    pub fn attach_mode(&self) -> AttachMode {
        self.attach_mode
    }

    /// Returns the sender and receiver of each queue. The interface must have been opened by [`Interface::open_both`].
    pub fn into_exchanges(self) -> Vec<Exchange> {
        let Interface { attach_mode, queues, own } = self;
        queues.into_iter().map(|queue| Exchange::new(queue, attach_mode, own.clone())).collect()
    }

    /// Returns one [`Server`] for each queue of the interface. A [`Server`] receives queries and sends replies.
    pub fn into_servers(self) -> Vec<Server> {
        let Interface { queues, own, .. } = self;
        queues.into_iter().map(|queue| Server::new(queue, own.clone())).collect()
    }
}

/// Waits until the link of an interface is up. Some drivers reset their queues when a filter is attached, and lose the
/// link for a moment.
///
/// # Errors
/// Returns [`XdpError::NoLink`] if the link is still down after the time `limit`.
pub(super) fn await_link(name: &str, limit: Duration) -> Result<(), XdpError> {
    let give_up = Instant::now() + limit;
    // If the driver does not report the link state, this function does not wait.
    while ethtool::has_link(name) == Some(false) {
        if Instant::now() > give_up {
            return Err(XdpError::NoLink { interface: name.to_owned(), waited: limit });
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Maximum time that an interface may be without a link after the filter has been attached.
pub(super) const LINK: Duration = Duration::from_secs(10);

/// Time after which a busy queue is considered to belong to another program. A shorter time does not suffice, because
/// the kernel releases a queue only a moment after its program has ended.
const RETURNED: Duration = Duration::from_secs(1);

/// Returns the name of the interface that has the address `address` and is up. Several interfaces may have the same
/// link-local address. In this case, the scope of `address` selects the interface.
///
/// # Errors
/// Returns [`XdpError::UnknownAddress`] if there is no such interface.
pub fn interface_of(address: SocketAddr) -> Result<String, XdpError> {
    let is_it = |has: &SocketAddr| {
        has.ip() == address.ip() && [0, scope_of(has)].contains(&scope_of(&address))
    };
    let found = addresses().find(|(_, has)| is_it(has));
    found.map(|(name, _)| name).ok_or(XdpError::UnknownAddress { address: address.ip() })
}

/// True if AF_XDP may receive several datagrams on this interface joined into one large packet. This occurs only in
/// generic mode, in two cases:
/// - The sender joined the datagrams (`UDP_SEGMENT`), and runs on this machine or on the host of this virtual machine.
/// - The interface is a bridge, bond or VLAN, and the kernel joined the datagrams at an underlying interface.
///
/// On a network card with an XDP filter, the kernel does not join datagrams.
pub fn may_join(interface: &str, attach_mode: AttachMode) -> bool {
    attach_mode == AttachMode::Generic && !is_card(ethtool::driver(interface).as_ref())
}

/// True if the driver is that of a physical network card, on which packets arrive over a cable. The driver is that of
/// the interface in this thread's network namespace. By contrast, /sys/class/net may show an interface of the same name
/// in a different namespace. An interface without driver information is not considered a network card.
fn is_card(driver: Option<&ethtool::Driver>) -> bool {
    // Devices, unlike interfaces, are the same in every network namespace.
    let is_device = |path: &str| fs::read_link(path).is_ok();
    driver.is_some_and(|driver| is_on_card_bus(driver, is_device))
}

/// Names, in sysfs, of the buses to which physical network cards are attached. Interfaces that exist only in the kernel
/// have no bus, and interfaces of virtual machines use other buses.
const CARD_BUSES: [&str; 6] = ["pci", "usb", "platform", "auxiliary", "sdio", "mdio_bus"];

/// True if the driver's device is attached to a bus in [`CARD_BUSES`]. The field `driver.bus` contains the name of the
/// device, only the name of the bus, or the path to a USB port. `is_device` returns true if sysfs has a device at a
/// path.
fn is_on_card_bus(driver: &ethtool::Driver, is_device: impl Fn(&str) -> bool) -> bool {
    let place = driver.bus.as_str();
    let is_on = |bus: &str| place == bus || is_device(&format!("/sys/bus/{bus}/devices/{place}"));
    // A virtio device belongs to a device on a different bus, and its driver reports that bus.
    let tells_its_own = !place.is_empty() && driver.name != "virtio_net";
    tells_its_own && (place.starts_with("usb-") || CARD_BUSES.into_iter().any(is_on))
}

/// Returns all addresses of the interfaces that are up, except loopback, each with the interface's name. Ports are 0.
fn addresses() -> impl Iterator<Item = (String, SocketAddr)> {
    let held = held().into_iter().flatten().filter(|held| !held.loopback);
    held.map(|held| (held.interface, held.address))
}

/// Returns the addresses of this host, which no sender on the interface's link can have. The addresses of loopback and
/// of interfaces that are down are included. Link-local addresses are included only if they belong to `interface`.
fn own_addresses(interface: &str) -> HostAddresses {
    let all = getifaddrs().into_iter().flatten();
    let own = all.filter_map(|entry| {
        let address = address_of(&entry)?;
        let is_its = !is_link_scoped(address.ip()) || entry.interface_name == interface;
        is_its.then_some(address.ip())
    });
    own.collect()
}

/// True if the address is link-local, so that a host on a different link may have the same address (RFC 3927 §1.3, RFC
/// 4291 §2.5.6).
fn is_link_scoped(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// AF_XDP support of an interface.
#[derive(Debug)]
pub struct Probed {
    /// Number of receive queues in use.
    pub queues: u32,
    /// The tested attach modes, each with the result of the test. The result is a system error if the mode does not
    /// work on the interface.
    pub attach_modes: Vec<(AttachMode, io::Result<()>)>,
}

/// Tries all attach modes on an interface, with a filter that selects no packets.
///
/// # Errors
/// Returns an [`XdpError`] if there is no such interface, or privileges are missing.
pub fn probe(name: &str) -> Result<Probed, XdpError> {
    let found = find(name)?;
    let queues = count_queues(&found.facts)?;
    let mut attach_modes = Vec::new();
    for &attach_mode in Mode::Auto.attach_modes() {
        attach_modes.push((
            attach_mode,
            open_in_mode(&found, queues, &[], attach_mode, Capacity::SERVER)?.map(drop),
        ));
    }
    Ok(Probed { queues, attach_modes })
}

/// Checks those AF_XDP requirements of an interface that can be checked without privileges.
///
/// # Errors
/// Returns an [`XdpError`] if there is no such interface, or it lacks an Ethernet address or queues.
pub fn check(name: &str) -> Result<(), XdpError> {
    count_queues(&find(name)?.facts).map(drop)
}

/// An interface that is up, with the properties that AF_XDP needs.
pub(super) struct Found {
    pub(super) index: u32,
    pub(super) facts: ethtool::Interface,
    /// Ethernet address of the interface.
    pub(super) mac: [u8; 6],
}

/// Finds the interface with this name.
pub(super) fn find(name: &str) -> Result<Found, XdpError> {
    let lacking = || XdpError::NoInterface { interface: name.to_owned() };
    let all = ethtool::interfaces().unwrap_or_default();
    let facts = all.into_iter().find(|candidate| candidate.name == name).ok_or_else(lacking)?;
    let index = if_nametoindex(name).map_err(|_| lacking())?;
    let mac = link_address(name).ok().flatten();
    let mac = mac.ok_or_else(|| XdpError::NoMac { interface: name.to_owned() })?;
    Ok(Found { index, facts, mac })
}

/// Returns the number of queues of an interface, or 1 if the driver does not report a number.
fn count_queues(facts: &ethtool::Interface) -> Result<u32, XdpError> {
    let Some(ethtool::Queues { receive, transmit }) = facts.queues else { return Ok(1) };
    if transmit < receive {
        return Err(XdpError::Queues { interface: facts.name.clone(), receive, transmit });
    }
    Ok(receive.max(1))
}

/// Attaches the filter to an interface in one mode, and opens a socket for each queue. If the interface is busy,
/// retries for up to one second. The inner `Result` is an error if the interface or its driver does not support the
/// mode, or if the interface is still busy.
fn open_in_mode(
    found: &Found,
    count: u32,
    claims: &[Claim],
    attach_mode: AttachMode,
    room: Capacity,
) -> Result<Result<Vec<Queue>, io::Error>, XdpError> {
    let give_up = Instant::now() + RETURNED;
    loop {
        match try_in_mode(found, count, claims, attach_mode, room)? {
            Err(error) if is_busy(&error) && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(10));
            }
            tried => return Ok(tried),
        }
    }
}

/// Same as [`open_in_mode`], but makes only one attempt if the interface is busy.
fn try_in_mode(
    found: &Found,
    count: u32,
    claims: &[Claim],
    attach_mode: AttachMode,
    room: Capacity,
) -> Result<Result<Vec<Queue>, io::Error>, XdpError> {
    if attach_mode.hook() == Hook::Driver && found.facts.driver.as_ref().is_some_and(is_bond) {
        let error = "the kernel runs the filter of a bond on its members, and does not deliver their packets to \
                     sockets of the bond";
        return Ok(Err(io::Error::new(io::ErrorKind::Unsupported, error)));
    }
    // The sockets are opened before the map. A kernel without AF_XDP rejects sockets and map, but reports the reason
    // only for sockets.
    let opened: io::Result<Vec<_>> = (0..count).map(|_| queue::socket()).collect();
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => return of_this_mode(Step::Open, error, &release()).map(Err),
    };
    let sockets = SocketMap::new(count).map_err(refused)?;
    let program = filter::program(claims, found.mac, MatchAction::Redirected(sockets.number()));
    let program = Program::load(&program).map_err(refused)?;
    let link = match program.attach(found.index, attach_mode.hook()) {
        Ok(link) => link,
        Err(error) => return of_this_mode(Step::Attach, error, &release()).map(Err),
    };
    let attached = Arc::new(Attached { _link: link, sockets });
    let mut queues = Vec::new();
    for (number, socket) in (0..count).zip(opened) {
        let zero_copy = attach_mode == AttachMode::ZeroCopy;
        match Queue::open(socket, (found.index, number), zero_copy, room, &attached) {
            Ok(queue) => queues.push(queue),
            Err(error) => return of_this_mode(Step::Open, error, &release()).map(Err),
        }
    }
    // Packets are redirected from here on.
    for (number, queue) in queues.iter().enumerate() {
        if let Err(source) = attached.sockets.insert(number as u32, queue.number()) {
            return Err(XdpError::Filter { source });
        }
    }
    Ok(Ok(queues))
}

/// A step of opening an interface in one attach mode. The meaning of a system error depends on the step in which it
/// occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Attachment of the filter to the interface.
    Attach,
    /// Opening of an AF_XDP socket for a queue.
    Open,
}

/// Decides whether a different XDP attach mode may work after the system error `source`, which occurred in the step
/// `step`. If its cause affects only the current mode, returns `source` as the `Ok` value. `release` is the version of
/// the running kernel.
///
/// # Errors
/// Returns an error if the cause affects all modes: a missing capability, the limit on locked memory, or a kernel that
/// is too old or was built without AF_XDP.
fn of_this_mode(step: Step, source: io::Error, release: &str) -> Result<io::Error, XdpError> {
    match (step, source.raw_os_error()) {
        (_, Some(libc::EPERM)) => Err(XdpError::NotAllowed { source }),
        // XDP_UMEM_REG fails because RLIMIT_MEMLOCK is too small.
        (Step::Open, Some(libc::ENOBUFS)) => Err(XdpError::NotLocked { source }),
        (Step::Open, Some(libc::EAFNOSUPPORT)) => Err(XdpError::NotBuilt { source }),
        // Drivers also return `EINVAL`, so the release is checked. Linux 5.9 added links of XDP programs and the
        // statistics that this module reads.
        (Step::Attach, Some(libc::EINVAL)) if is_before_links(release) => {
            Err(XdpError::TooOld { release: release.to_owned(), source })
        }
        _ => Ok(source),
    }
}

/// True if a kernel version, such as `5.4.0-42-generic`, is older than Linux 5.9. False if the version cannot be
/// parsed.
fn is_before_links(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (5, 9),
        _ => false,
    }
}

/// Returns the version of the running kernel.
fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// True if the interface is a bond, which aggregates other interfaces. With a filter in the driver, packets for AF_XDP
/// would arrive at the aggregated interfaces and would be lost (`xsk_rcv_check` of net/xdp/xsk.c).
fn is_bond(driver: &ethtool::Driver) -> bool {
    driver.name == "bonding"
}

/// True if the error means that another program uses the interface or one of its queues.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

#[cfg(test)]
mod tests;
