//! Ethernet frames that contain a UDP datagram: parsing, validation, in-place replies, writing.
//!
//! ```text
//! 0         14              34            42
//! ┌─────────┬───────────────┬─────────────┬─────────┐
//! │ Ethernet│ IPv4 (20)     │ UDP (8)     │ payload │
//! └─────────┴───────────────┴─────────────┴─────────┘
//! 0         14              54            62
//! ┌─────────┬───────────────┬─────────────┬─────────┐
//! │ Ethernet│ IPv6 (40)     │ UDP (8)     │ payload │
//! └─────────┴───────────────┴─────────────┴─────────┘
//! ```
//!
//! Other frames go to the kernel, for example those with VLAN tags, IPv4 options, IPv6 extension headers or fragments
//! (see [`super::filter`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

/// Length of an Ethernet header in octets.
const ETHERNET: usize = 14;
/// Length of an IPv4 header without options, in octets.
const IPV4: usize = 20;
/// Length of an IPv6 header in octets.
const IPV6: usize = 40;
/// Length of a UDP header in octets.
const UDP: usize = 8;
/// The protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;
/// Hop limit of sent packets: the default value of the kernel.
const HOPS: u8 = 64;

/// A UDP datagram in an Ethernet frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    /// Source address and port of the datagram.
    pub(super) source: SocketAddr,
    /// Destination address and port of the datagram.
    pub(super) destination: SocketAddr,
    /// Position of the payload in the frame.
    pub(super) payload: Range<usize>,
    /// True if the sender left the completion of the checksum to a network card.
    pub(super) has_partial_checksum: bool,
}

/// Addresses that this host had when an interface was opened, for the validation of packets on this interface. No other
/// host on the link may use these addresses as a source.
#[derive(Clone, Debug)]
pub(super) struct HostAddresses {
    addresses: Arc<[IpAddr]>,
    /// True if datagrams may arrive with an incomplete checksum. Senders on the same machine leave the completion of
    /// the checksum to a network card. Datagrams that arrive over a cable must have a complete checksum.
    leaves_checksums: bool,
}

impl FromIterator<IpAddr> for HostAddresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> HostAddresses {
        let mut all: Vec<IpAddr> = addresses.into_iter().collect();
        all.sort_unstable();
        HostAddresses { addresses: all.into(), leaves_checksums: true }
    }
}

impl Default for HostAddresses {
    /// Returns a value that contains no addresses. Datagrams may arrive with an incomplete checksum.
    fn default() -> HostAddresses {
        [].into_iter().collect()
    }
}

impl HostAddresses {
    /// Sets whether datagrams may arrive with an incomplete checksum.
    pub(super) fn with_partial_checksums(self, leaves_checksums: bool) -> HostAddresses {
        HostAddresses { leaves_checksums, ..self }
    }

    #[inline]
    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }
}

/// Parses the datagram in a frame. Returns `None` if there is no datagram, its lengths are inconsistent, its checksum
/// is wrong, or one of its addresses cannot belong to a host on a link. The kernel's network stack rejects such packets
/// as well.
///
/// Also returns `None` if the source is one of this host's addresses (`own`), because such a source is forged and could
/// give a client privileges. The kernel's network stack rejects such packets only over IPv4.
pub(super) fn read(frame: &[u8], own: &HostAddresses) -> Option<Datagram> {
    let (source, destination, udp) = match frame.get(12..ETHERNET)? {
        [0x08, 0x00] => read_ipv4(frame)?,
        [0x86, 0xdd] => read_ipv6(frame)?,
        _ => return None,
    };
    if !is_host_address(source) || !is_host_address(destination) || own.has(source) {
        return None;
    }
    let header = frame.get(udp.clone()).filter(|udp| udp.len() >= UDP)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    // Octets after the datagram's end are ignored, even if the IP header counts them (RFC 768).
    let length = usize::from(word(4));
    if !(UDP..=header.len()).contains(&length) {
        return None;
    }
    let may_be_left = own.leaves_checksums;
    let has_partial_checksum = match checksum(source, destination, header, length, may_be_left) {
        Checksum::Right => false,
        Checksum::Left => true,
        Checksum::Wrong => return None,
    };
    Some(Datagram {
        source: SocketAddr::new(source, word(0)),
        destination: SocketAddr::new(destination, word(2)),
        payload: udp.start + UDP..udp.start + length,
        has_partial_checksum,
    })
}

/// True if this address can be the source or destination of a packet that arrives on a link. Loopback addresses (RFC
/// 1122 §3.2.1.3; RFC 4291 §2.5.3) and IPv4-mapped addresses (RFC 4291 §2.5.5.2) are not accepted. A server could
/// otherwise grant privileges to a client with such a source address.
fn is_host_address(address: IpAddr) -> bool {
    let is_nobodys = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !is_nobodys
        && match address {
            IpAddr::V4(address) => !address.is_broadcast() && address.octets()[0] != 0,
            IpAddr::V6(address) => address.to_ipv4_mapped().is_none(),
        }
}

/// Source address, destination address, and range of octets that contains the UDP header and its payload.
type Addressed = (IpAddr, IpAddr, Range<usize>);

fn read_ipv4(frame: &[u8]) -> Option<Addressed> {
    let header = frame.get(ETHERNET..ETHERNET + IPV4)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_whole = word(6) & 0x3fff == 0;
    if header[0] != 0x45 || header[9] != PROTOCOL_UDP || !is_whole || fold(sum(header)) != 0xffff {
        return None;
    }
    let address = |at: usize| {
        Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
    };
    let end = ETHERNET + usize::from(word(2));
    (ETHERNET + IPV4..=frame.len())
        .contains(&end)
        .then(|| (address(12), address(16), ETHERNET + IPV4..end))
}

fn read_ipv6(frame: &[u8]) -> Option<Addressed> {
    let header = frame.get(ETHERNET..ETHERNET + IPV6)?;
    if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header[at..at + 16].try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    let start = ETHERNET + IPV6;
    let end = start + usize::from(u16::from_be_bytes([header[4], header[5]]));
    (end <= frame.len()).then_some(())?;
    Some((address(8)?, address(24)?, start..end))
}

/// State of a datagram's checksum (RFC 768; RFC 8200 §8.1).
enum Checksum {
    /// The checksum is correct, or it is omitted in a datagram over IPv4.
    Right,
    /// The checksum is incomplete but allowed. The field contains only the sum of the pseudo-header, because a sender
    /// on the same machine left the completion to a network card.
    Left,
    /// The checksum is wrong.
    Wrong,
}

fn checksum(from: IpAddr, to: IpAddr, udp: &[u8], length: usize, may_be_left: bool) -> Checksum {
    let given = u16::from_be_bytes([udp[6], udp[7]]);
    if given == 0 {
        // IPv4 allows an omitted checksum, IPv6 does not.
        return if from.is_ipv4() { Checksum::Right } else { Checksum::Wrong };
    }
    let pseudo = pseudo_header(from, to, length);
    // The case of an incomplete checksum is checked first. Otherwise several joined datagrams could be mistaken for a
    // single datagram by chance. For one in 65 535 datagrams received over a cable, the sum of the pseudo-header equals
    // the correct checksum.
    if may_be_left && fold(pseudo) == given {
        Checksum::Left
    } else if fold(pseudo + sum(&udp[..length])) == 0xffff {
        Checksum::Right
    } else {
        Checksum::Wrong
    }
}

/// Turns a frame into the frame of its reply and returns the length of the whole frame. The reply's payload of `length`
/// octets must already be in the frame.
///
/// # Panics
/// Panics if the frame is shorter than the reply's frame.
pub(super) fn turn_into_reply(frame: &mut [u8], datagram: &Datagram, length: usize) -> usize {
    let (macs, _) = frame.split_at_mut(12);
    let (to, from) = macs.split_at_mut(6);
    to.swap_with_slice(from);
    let udp = datagram.payload.start - UDP;
    let end = datagram.payload.start + length;
    let header = &mut frame[ETHERNET..udp];
    match datagram.source {
        SocketAddr::V4(_) => {
            swap(header, 12, 16, 4);
            complete_ipv4(header, end - ETHERNET);
        }
        SocketAddr::V6(_) => {
            swap(header, 8, 24, 16);
            complete_ipv6(header, UDP + length);
        }
    }
    let message = &mut frame[udp..end];
    swap(message, 0, 2, 2);
    complete_udp(message, datagram.destination.ip(), datagram.source.ip());
    end
}

/// The two Ethernet addresses of a frame in wire order: that of the next hop, then that of the interface.
pub type Link = [u8; 12];

/// Returns the Ethernet addresses for a reply frame to the sender of `frame`.
pub(super) fn link_back(frame: &[u8]) -> Link {
    let mut link = [0; 12];
    link[..6].copy_from_slice(&frame[6..12]);
    link[6..].copy_from_slice(&frame[..6]);
    link
}

/// Writes a frame with a datagram between two addresses of the same family and returns the length of the whole
/// frame.
///
/// # Panics
/// Panics if `frame` is shorter than the written frame.
pub(super) fn write(
    frame: &mut [u8],
    link: &Link,
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
) -> usize {
    frame[..12].copy_from_slice(link);
    let udp = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
            let header = &mut frame[ETHERNET..ETHERNET + IPV4];
            header[0] = 0x45;
            header[9] = PROTOCOL_UDP;
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            complete_ipv4(header, IPV4 + UDP + payload.len());
            ETHERNET + IPV4
        }
        (source, destination) => {
            frame[12..ETHERNET].copy_from_slice(&[0x86, 0xdd]);
            let header = &mut frame[ETHERNET..ETHERNET + IPV6];
            header[6] = PROTOCOL_UDP;
            header[8..24].copy_from_slice(&octets(source));
            header[24..40].copy_from_slice(&octets(destination));
            complete_ipv6(header, UDP + payload.len());
            ETHERNET + IPV6
        }
    };
    let end = udp + UDP + payload.len();
    let message = &mut frame[udp..end];
    message[0..2].copy_from_slice(&from.port().to_be_bytes());
    message[2..4].copy_from_slice(&to.port().to_be_bytes());
    message[UDP..].copy_from_slice(payload);
    complete_udp(message, from.ip(), to.ip());
    end
}

/// Writes the constant fields of the IPv4 header, the total length, and the checksum.
fn complete_ipv4(header: &mut [u8], length: usize) {
    header[1] = 0;
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    // The packet must not be fragmented, so it needs no identification (RFC 6864 §4.1).
    header[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    header[8] = HOPS;
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the constant fields of the IPv6 header, and the datagram's length.
fn complete_ipv6(header: &mut [u8], length: usize) {
    // Traffic class and flow label are 0.
    header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[7] = HOPS;
}

/// Writes the UDP length and checksum into `message`, which consists of the UDP header and the payload.
fn complete_udp(message: &mut [u8], from: IpAddr, to: IpAddr) {
    let length = message.len();
    message[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    message[6..8].fill(0);
    let checksum = match !fold(pseudo_header(from, to, length) + sum(message)) {
        // Zero would mean that there is no checksum.
        0 => 0xffff,
        checksum => checksum,
    };
    message[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// Swaps `length` octets between two positions.
fn swap(bytes: &mut [u8], one: usize, other: usize, length: usize) {
    for i in 0..length {
        bytes.swap(one + i, other + i);
    }
}

/// Returns the sum of the pseudo-header (RFC 768; RFC 8200 §8.1) for a datagram of `length` octets, including the UDP
/// header.
fn pseudo_header(from: IpAddr, to: IpAddr, length: usize) -> u64 {
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum(&from.octets()) + sum(&to.octets()),
        (from, to) => sum(&octets(from)) + sum(&octets(to)),
    };
    addresses + length as u64 + u64::from(PROTOCOL_UDP)
}

/// Returns an address as 16 octets. An IPv4 address is mapped into IPv6.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the unfolded sum of the 16-bit words (RFC 1071). An odd octet at the end is padded with zero.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |&octet| u64::from(octet) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + last
}

/// Folds a sum to 16 bits by adding the carries.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a frame with a datagram and correct checksums.
    pub(in super::super) fn frame(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let udp_len = UDP + payload.len();
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = ((IPV4 + udp_len) as u16).to_be_bytes();
                frame.extend([8, 0, 0x45, 0, total[0], total[1], 0, 0, 0, 0, 9, 17, 0, 0]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
                let checksum = !fold(sum(&frame[ETHERNET..]));
                frame[ETHERNET + 10..][..2].copy_from_slice(&checksum.to_be_bytes());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = (udp_len as u16).to_be_bytes();
                frame.extend([0x86, 0xdd, 0x61, 2, 3, 4, length[0], length[1], 17, 9]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
            }
            _ => panic!("one address of each family"),
        }
        let mut udp = Vec::new();
        for word in [from.port(), to.port(), udp_len as u16, 0] {
            udp.extend(word.to_be_bytes());
        }
        udp.extend(payload);
        let checksum = !fold(pseudo_header(from.ip(), to.ip(), udp_len) + sum(&udp));
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(udp);
        frame
    }

    /// Returns [`HostAddresses`] that contain no addresses.
    pub(in super::super) fn none() -> HostAddresses {
        HostAddresses::default()
    }

    pub(in super::super) const ENDS: [(&str, &str); 2] =
        [("192.0.2.1:5353", "198.18.0.2:53"), ("[2001:db8::1]:5353", "[2001:2::2]:53")];

    #[test]
    fn a_datagram_is_found_with_its_ends() {
        for (from, to) in ENDS {
            for payload in [&b"query"[..], b"", b"even"] {
                let frame = frame(from, to, payload);
                let datagram = read(&frame, &none()).unwrap();
                assert_eq!(datagram.source, from.parse().unwrap());
                assert_eq!(datagram.destination, to.parse().unwrap());
                assert_eq!(&frame[datagram.payload], payload);
                // Ethernet pads short frames.
                let mut padded = frame.clone();
                padded.extend([0; 20]);
                assert_eq!(&padded[read(&padded, &none()).unwrap().payload], payload);
            }
        }
    }

    /// Servers grant permissions to clients by address. Frames with a forged source address, such as a loopback
    /// address, must therefore be rejected.
    #[test]
    fn loopback_and_mapped_sources_are_rejected() {
        for (from, is_good) in [
            ("127.0.0.1", false),
            ("127.255.0.9", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("10.0.0.1", true),
            ("::1", false),
            ("::", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", true),
            ("fd00::1", true),
        ] {
            let (address, other) = match from.contains(':') {
                true => (format!("[{from}]:1053"), ENDS[1].1),
                false => (format!("{from}:1053"), ENDS[0].1),
            };
            for (from, to) in [(&*address, other), (other, &*address)] {
                assert_eq!(
                    read(&frame(from, to, b"query"), &none()).is_some(),
                    is_good,
                    "{from} {to}"
                );
            }
        }
    }

    /// Packets from this host to itself never pass over a link. A frame that arrives on a link with a source address of
    /// this host is therefore forged.
    #[test]
    fn own_addresses_as_source_are_rejected() {
        for (from, to) in ENDS {
            let frame = frame(from, to, b"query");
            let [from, to] = [from, to].map(|end| end.parse::<SocketAddr>().unwrap().ip());
            let others: HostAddresses =
                ["192.0.2.2", "2001:db8::2"].map(|a| a.parse().unwrap()).into_iter().collect();
            assert!(read(&frame, &[to].into_iter().collect()).is_some());
            assert!(read(&frame, &others).is_some());
            assert_eq!(read(&frame, &[to, from].into_iter().collect()), None);
        }
    }

    #[test]
    fn a_reply_is_a_valid_frame_in_the_other_direction() {
        for (from, to) in ENDS {
            for reply in [&b"a longer reply"[..], b"x", b""] {
                let mut frame = frame(from, to, b"query");
                frame.resize(200, 0xee);
                let datagram = read(&frame[..frame.len()], &none()).unwrap();
                frame[datagram.payload.start..][..reply.len()].copy_from_slice(reply);
                let length = turn_into_reply(&mut frame, &datagram, reply.len());
                let turned =
                    read(&frame[..length], &none()).expect("it has right lengths and checksums");
                assert_eq!(
                    (turned.source, turned.destination),
                    (datagram.destination, datagram.source)
                );
                assert_eq!(&frame[turned.payload.clone()], reply);
                assert_eq!(turned.payload.end, length);
                assert_eq!(frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
            }
        }
    }

    #[test]
    fn a_written_frame_is_read_back() {
        let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (from, to) in ENDS {
            for payload in [&b"a query"[..], b"", b"even"] {
                // The frame's previous contents must not matter.
                let mut frame = vec![0xee; 200];
                let (source, destination) = (from.parse().unwrap(), to.parse().unwrap());
                let length = write(&mut frame, &link, source, destination, payload);
                let found =
                    read(&frame[..length], &none()).expect("it has right lengths and checksums");
                assert_eq!((found.source, found.destination), (source, destination));
                assert_eq!(&frame[found.payload.clone()], payload);
                assert_eq!((found.payload.end, &frame[..12]), (length, &link[..]));
                // Except for hop limit and flow label, the result equals the frame that the test helper builds.
                let other = self::frame(from, to, payload);
                assert_eq!(frame[12..ETHERNET], other[12..ETHERNET]);
                assert_eq!(
                    frame[found.payload.start - UDP..length],
                    other[found.payload.start - UDP..]
                );
            }
        }
    }

    /// If one bit of a frame is inverted, the parser returns the original datagram or rejects the frame. A truncated
    /// frame is always rejected.
    #[test]
    fn changed_and_cut_frames_do_no_harm() {
        for (from, to) in ENDS {
            let whole = frame(from, to, b"query");
            let original = read(&whole, &none()).unwrap();
            for at in 12..whole.len() {
                for bit in 0..8 {
                    let mut changed = whole.clone();
                    changed[at] ^= 1 << bit;
                    if let Some(datagram) = read(&changed, &none()) {
                        // Traffic class, flow label and hop limit are not covered by a checksum.
                        assert_eq!(datagram, original, "octet {at}, bit {bit}");
                    }
                }
                assert_eq!(read(&whole[..at], &none()), None);
            }
        }
    }

    #[test]
    fn partial_and_omitted_checksums_are_accepted() {
        for (from, to) in ENDS {
            let mut frame = frame(from, to, b"query");
            let at = frame.len() - b"query".len() - 2;
            let datagram = read(&frame, &none()).unwrap();
            let (from, to) = (datagram.source.ip(), datagram.destination.ip());
            let partial = fold(pseudo_header(from, to, UDP + 5));
            frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
            let is_left =
                |frame: &[u8]| read(frame, &none()).map(|datagram| datagram.has_partial_checksum);
            assert_eq!(is_left(&frame), Some(true));
            // Datagrams that arrive over a cable always have a complete checksum.
            let card = none().with_partial_checksums(false);
            assert_eq!(read(&frame, &card), None);
            frame[at..at + 2].fill(0);
            assert_eq!(is_left(&frame), from.is_ipv4().then_some(false));
        }
    }

    #[test]
    fn a_full_checksum_equal_to_a_partial_one_is_right() {
        for (from, to) in ENDS {
            let [source, destination] =
                [from, to].map(|end| end.parse::<SocketAddr>().unwrap().ip());
            let partial = fold(pseudo_header(source, destination, UDP + 2));
            let given = |frame: &[u8]| {
                u16::from_be_bytes(frame[frame.len() - 4..][..2].try_into().unwrap())
            };
            // Payload for which the complete checksum equals the partial one.
            let word = fold(u64::from(!partial) + u64::from(given(&frame(from, to, &[0, 0]))));
            let frame = frame(from, to, &word.to_be_bytes());
            assert_eq!(given(&frame), partial);
            let card = none().with_partial_checksums(false);
            let is_left = |own: &HostAddresses| {
                read(&frame, own).map(|datagram| datagram.has_partial_checksum)
            };
            assert_eq!((is_left(&card), is_left(&none())), (Some(false), Some(true)));
        }
    }
}
