//! Properties of network interfaces reported by their drivers: the SIOCETHTOOL requests of ethtool(8), in the calling
//! thread's network namespace. All numbers and layouts come from linux/ethtool.h.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Speed in Mbit/s that a driver reports if the speed is unknown.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// A network interface that is up. Properties that its driver does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, for example `eth0`.
    pub name: String,
    /// IP addresses of the interface, except link-local addresses.
    pub addresses: Vec<IpAddr>,
    /// Driver, with firmware version and bus address.
    pub driver: Option<Driver>,
    /// Link speed in Mbit/s.
    pub speed: Option<u32>,
    /// Number of receive queues and number of transmit queues in use.
    pub queues: Option<Queues>,
    /// Joining and splitting of packets by the device or the kernel.
    pub offloads: Offloads,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
}

/// Driver of a network interface (ETHTOOL_GDRVINFO).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Driver {
    /// Name of the driver, for example `virtio_net`.
    pub name: String,
    /// Firmware version; empty if there is none.
    pub firmware: String,
    /// Bus address of the device, for example a PCI address; empty if there is none.
    pub bus: String,
}

/// Number of queues in use for each direction (ETHTOOL_GCHANNELS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Number of receive queues.
    pub receive: u32,
    /// Number of transmit queues.
    pub transmit: u32,
}

/// Joining and splitting of packets by the kernel and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Generic receive offload: received packets are joined.
    pub gro: Option<bool>,
    /// Generic segmentation offload: sent packets are split late, by the kernel.
    pub gso: Option<bool>,
    /// TCP segmentation offload: TCP segments are split by the device.
    pub tso: Option<bool>,
}

/// Settings of interrupt coalescing for received and for sent packets (ETHTOOL_GCOALESCE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Maximum delay in µs between a received packet and the interrupt; 0 means immediately.
    pub receive_us: u32,
    /// Number of received packets after which an interrupt is raised; 0 means that no number is set.
    pub receive_packets: u32,
    /// Maximum delay in µs between a sent packet and the interrupt.
    pub transmit_us: u32,
    /// True if the driver adapts the receive delay to the packet rate.
    pub adaptive_receive: bool,
}

/// Returns the interfaces of this thread's network namespace that are up, in the kernel's order, without loopback.
///
/// # Errors
/// Returns an error if the kernel does not list the interfaces.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut all: Vec<Interface> = Vec::new();
    for entry in getifaddrs()? {
        let wanted = InterfaceFlags::IFF_UP;
        if !entry.flags.contains(wanted) || entry.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        let at = all.iter().position(|i| i.name == entry.interface_name).unwrap_or_else(|| {
            all.push(interface(&entry.interface_name));
            all.len() - 1
        });
        let Some(address) = entry.address else { continue };
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let v6 = address
            .as_sockaddr_in6()
            .map(|a| a.ip())
            .filter(|ip| !ip.is_unicast_link_local())
            .map(IpAddr::V6);
        all[at].addresses.extend(v4.or(v6));
    }
    Ok(all)
}

/// Selection of the receive queue for a UDP datagram. Settings that the driver does not report are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Fields of an IPv4 datagram that select the receive queue.
    pub over_ipv4: Option<HashedFields>,
    /// Fields of an IPv6 datagram that select the receive queue.
    pub over_ipv6: Option<HashedFields>,
    /// True if user-defined rules (ntuple filters) can select the receive queue.
    pub by_rules: Option<bool>,
}

/// Fields of a datagram from which an interface computes the number of the receive queue (ETHTOOL_GRXFH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashedFields {
    /// Neither addresses nor ports: all datagrams use one queue.
    Nothing,
    /// Only addresses: all datagrams from one client address to one server address use the same queue.
    Addresses,
    /// Addresses and ports: the datagrams from a client to a server are spread over the queues by source port.
    AddressesAndPorts,
}

/// Returns how an interface selects the receive queue for a UDP datagram.
pub fn steering(interface: &str) -> Steering {
    let device = Device::open(interface);
    let hashed = |flow| {
        let asked = FlowHash { command: 0, flow, fields: 0, rest: [0; 22] };
        let fields = device.as_ref()?.ask_with(ETHTOOL_GRXFH, asked)?.fields;
        Some(match fields {
            fields if fields & RXH_PORTS != 0 => HashedFields::AddressesAndPorts,
            fields if fields & RXH_ADDRESSES != 0 => HashedFields::Addresses,
            _ => HashedFields::Nothing,
        })
    };
    let flags = device.as_ref().and_then(|device| device.ask::<Value>(ETHTOOL_GFLAGS));
    Steering {
        over_ipv4: hashed(UDP_V4_FLOW),
        over_ipv6: hashed(UDP_V6_FLOW),
        by_rules: flags.map(|flags| flags.data & ETH_FLAG_NTUPLE != 0),
    }
}

/// Constants for kinds of flows and for fields of datagrams, from linux/ethtool.h.
const UDP_V4_FLOW: u32 = 0x02;
const UDP_V6_FLOW: u32 = 0x06;
const RXH_ADDRESSES: u64 = 1 << 4 | 1 << 5;
const RXH_PORTS: u64 = 1 << 6 | 1 << 7;
const ETH_FLAG_NTUPLE: u32 = 1 << 27;

/// Returns the interface's driver, if it reports one.
pub fn driver(interface: &str) -> Option<Driver> {
    driver_info(&Device::open(interface)?)
}

/// Returns true if the interface has a link at this moment, or `None` if its driver does not report the link state
/// (ETHTOOL_GLINK). The kernel updates the flag `IFF_RUNNING` with a delay of up to one second.
pub fn has_link(interface: &str) -> Option<bool> {
    flag(&Device::open(interface)?, ETHTOOL_GLINK)
}

fn interface(name: &str) -> Interface {
    let Some(device) = Device::open(name) else {
        return Interface { name: name.into(), ..Interface::default() };
    };
    Interface {
        name: name.into(),
        addresses: Vec::new(),
        driver: driver_info(&device),
        speed: speed(&device),
        queues: queues(&device),
        offloads: Offloads {
            gro: flag(&device, ETHTOOL_GGRO),
            gso: flag(&device, ETHTOOL_GGSO),
            tso: flag(&device, ETHTOOL_GTSO),
        },
        coalescing: coalescing(&device),
    }
}

/// An interface that is ready for SIOCETHTOOL requests.
struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// Layout of the answer to a SIOCETHTOOL request.
///
/// # Safety
/// The type must be `repr(C)` plain data for which all bit patterns are valid. It must begin with the request's number
/// as a `u32`, and have the length of the kernel's answers to the requests in [`Answer::REQUESTS`].
unsafe trait Answer {
    /// Command numbers of the requests that the kernel answers with this structure.
    const REQUESTS: &'static [u32];
}

impl Device {
    /// Opens a socket for requests about the interface. Returns `None` if this fails, or if the name is too long for an
    /// interface.
    fn open(interface: &str) -> Option<Device> {
        let socket =
            socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return None;
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        Some(Device { socket, name })
    }

    /// Sends a request to the kernel and returns the answer. Returns `None` if the interface does not exist or its
    /// driver does not answer.
    fn ask<T: Answer>(&self, request: u32) -> Option<T> {
        // SAFETY: an `Answer` is plain data for which all zeros is a valid value.
        self.ask_with(request, unsafe { std::mem::zeroed() })
    }

    /// Sends the request with the parameters that are already set in `answer`, and returns the structure as filled in by
    /// the kernel.
    fn ask_with<T: Answer>(&self, request: u32, mut answer: T) -> Option<T> {
        assert!(T::REQUESTS.contains(&request), "each caller names a request of its answer's type");
        // SAFETY: an `Answer` begins with a u32, and is aligned for it.
        unsafe { (&raw mut answer).cast::<u32>().write(request) };
        // SAFETY: ifreq is plain data for which all zeros is a valid value.
        let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
        ifreq.ifr_name = self.name;
        ifreq.ifr_ifru.ifru_data = (&raw mut answer).cast();
        // SAFETY: for SIOCETHTOOL the kernel writes the answer to ifru_data. It points to a value that outlives the
        // call and is, as `Answer` requires, as long as the kernel's answer to this request.
        let status =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut ifreq) };
        (status == 0).then_some(answer)
    }
}

/// The kernel's `struct ethtool_drvinfo`: information about a driver.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rest: [u8; 64],
}

// SAFETY: repr(C), integers only, the command first, 196 octets like the kernel's structure.
unsafe impl Answer for DriverInfo {
    const REQUESTS: &'static [u32] = &[ETHTOOL_GDRVINFO];
}

/// The kernel's `struct ethtool_value`: a command and a number.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

// SAFETY: repr(C), integers only, the command first, 8 octets like the kernel's structure.
unsafe impl Answer for Value {
    const REQUESTS: &'static [u32] =
        &[ETHTOOL_GTSO, ETHTOOL_GGSO, ETHTOOL_GGRO, ETHTOOL_GFLAGS, ETHTOOL_GLINK];
}

/// The kernel's `struct ethtool_rxnfc`: fields of a flow that select a queue.
#[repr(C)]
struct FlowHash {
    command: u32,
    flow: u32,
    fields: u64,
    rest: [u64; 22],
}

// SAFETY: repr(C), integers only, the command first, 192 octets like the kernel's structure.
unsafe impl Answer for FlowHash {
    const REQUESTS: &'static [u32] = &[ETHTOOL_GRXFH];
}

/// The kernel's `struct ethtool_cmd`: settings of a link.
#[repr(C)]
struct Settings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    rest: [u8; 14],
    speed_high: u16,
    last: [u8; 14],
}

// SAFETY: repr(C), integers only, the command first, 44 octets like the kernel's structure.
unsafe impl Answer for Settings {
    const REQUESTS: &'static [u32] = &[ETHTOOL_GSET];
}

/// The kernel's `struct ethtool_coalesce`: interrupt coalescing.
#[repr(C)]
struct Coalesce {
    command: u32,
    receive_us: u32,
    receive_packets: u32,
    receive_us_irq: u32,
    receive_packets_irq: u32,
    transmit_us: u32,
    transmit_packets: u32,
    transmit_us_irq: u32,
    transmit_packets_irq: u32,
    statistics_us: u32,
    adaptive_receive: u32,
    rest: [u32; 12],
}

// SAFETY: repr(C), integers only, the command first, 92 octets like the kernel's structure.
unsafe impl Answer for Coalesce {
    const REQUESTS: &'static [u32] = &[ETHTOOL_GCOALESCE];
}

/// The kernel's `struct ethtool_channels`: number of queues of each kind.
#[repr(C)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

// SAFETY: repr(C), integers only, the command first, 36 octets like the kernel's structure.
unsafe impl Answer for Channels {
    const REQUESTS: &'static [u32] = &[ETHTOOL_GCHANNELS];
}

const _: () = assert!(
    size_of::<DriverInfo>() == 196 && size_of::<Value>() == 8 && size_of::<Settings>() == 44
);
const _: () = assert!(size_of::<Coalesce>() == 92 && size_of::<Channels>() == 36);
const _: () = assert!(size_of::<FlowHash>() == 192);

fn driver_info(device: &Device) -> Option<Driver> {
    let info: DriverInfo = device.ask(ETHTOOL_GDRVINFO)?;
    // Some drivers write N/A, or blanks, for missing values.
    let text = |bytes: &[u8]| {
        let text = CStr::from_bytes_until_nul(bytes)
            .unwrap_or_default()
            .to_string_lossy()
            .trim()
            .to_owned();
        if text == "N/A" { String::new() } else { text }
    };
    Some(Driver { name: text(&info.driver), firmware: text(&info.firmware), bus: text(&info.bus) })
}

fn speed(device: &Device) -> Option<u32> {
    let settings: Settings = device.ask(ETHTOOL_GSET)?;
    let speed = u32::from(settings.speed) | u32::from(settings.speed_high) << 16;
    // Some drivers return only the low half of "unknown".
    (speed != SPEED_UNKNOWN && speed != u32::from(u16::MAX) && speed > 0).then_some(speed)
}

fn queues(device: &Device) -> Option<Queues> {
    let channels: Channels = device.ask(ETHTOOL_GCHANNELS)?;
    let (receive, transmit) =
        (channels.receive + channels.combined, channels.transmit + channels.combined);
    Some(Queues { receive, transmit })
}

fn flag(device: &Device, request: u32) -> Option<bool> {
    device.ask::<Value>(request).map(|value| value.data != 0)
}

fn coalescing(device: &Device) -> Option<Coalescing> {
    let all: Coalesce = device.ask(ETHTOOL_GCOALESCE)?;
    Some(Coalescing {
        receive_us: all.receive_us,
        receive_packets: all.receive_packets,
        transmit_us: all.transmit_us,
        adaptive_receive: all.adaptive_receive != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_that_is_up_is_listed_once() {
        let names: Vec<String> = interfaces().unwrap().into_iter().map(|i| i.name).collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
        assert!(names.iter().all(|name| name != "lo"));
    }

    #[test]
    fn loopback_offloads_segmentation_and_has_no_speed() {
        // Linux's own loopback device segments late, and has no link that could have a speed.
        let lo = interface("lo");
        assert_eq!((lo.offloads.gso, lo.speed, lo.coalescing), (Some(true), None, None));
        assert_eq!(interface("no-such-if").offloads, Offloads::default());
        assert_eq!(driver("a-name-that-is-longer-than-one-can-be"), None);
    }
}
