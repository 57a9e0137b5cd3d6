//! Counters of interfaces and of UDP, which show packet loss within this host.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use crate::ethtool::driver;

/// Counters of one network interface since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Number of packets that the interface has received.
    pub received: u64,
    /// Number of packets that arrived but were lost in this host, because a backlog or a ring was full, or because
    /// memory was lacking.
    pub receive_drops: u64,
    /// Number of packets that were lost in this host before they were sent.
    pub send_drops: u64,
}

/// Path of packets from this host to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketPath {
    /// Packets are sent by ordinary sockets and pass through the kernel's network stack.
    Sockets,
    /// Packets are sent by AF_XDP and bypass the kernel's network stack.
    Xdp,
}

/// Returns the counters of `interface` in this thread's network namespace, for packets that take `path`.
///
/// # Errors
/// Returns an error if there is no such interface, or /proc is not mounted.
pub fn interface_counters(interface: &str, path: PacketPath) -> io::Result<InterfaceCounters> {
    let table = parse_proc_net_dev(&fs::read_to_string("/proc/thread-self/net/dev")?);
    let counters = *table.get(interface).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no interface {interface} in /proc/net/dev"),
        )
    })?;
    let is_veth = driver(interface).is_some_and(|driver| driver.name == "veth");
    Ok(counters.as_lost(is_veth, path))
}

impl InterfaceCounters {
    /// Corrects the interface's send drops, so that no loss is counted both there and in
    /// [`UdpErrors::no_room_to_send`]. A veth interface counts a "send drop" if the queue of its peer is full. If the
    /// packet is from an ordinary socket, the driver also reports the loss to the network stack, and the network stack
    /// counts it again. The send drops are then set to zero. If the packet is from AF_XDP, only the interface counts
    /// the loss, and nothing is changed.
    fn as_lost(self, is_veth: bool, path: PacketPath) -> InterfaceCounters {
        if is_veth && path == PacketPath::Sockets {
            InterfaceCounters { send_drops: 0, ..self }
        } else {
            self
        }
    }
}

fn parse_proc_net_dev(text: &str) -> BTreeMap<String, InterfaceCounters> {
    text.lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let n: Vec<u64> = numbers.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
            // Receive: bytes packets errs drop fifo frame compressed multicast; transmit: bytes
            // packets errs drop fifo …
            let counters = InterfaceCounters {
                received: *n.get(1)?,
                receive_drops: n.get(3)? + n.get(4)?,
                send_drops: n.get(11)? + n.get(12)?,
            };
            Some((name.trim().to_owned(), counters))
        })
        .collect()
}

/// UDP counters of a network namespace since its creation. Each counter is the total of all sockets, over IPv4 and
/// IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpErrors {
    /// Number of datagrams that were lost while sending because a buffer or queue was full (SndbufErrors in Linux). RFC
    /// 4113 has no such counter. The number includes packets dropped by a queueing discipline. The sending program is
    /// not informed of the loss.
    pub no_room_to_send: u64,
    /// Number of datagrams received with a wrong checksum (InCsumErrors).
    pub wrong_checksum: u64,
}

/// Returns the UDP counters of this thread's network namespace.
///
/// # Errors
/// Returns an error if /proc is not mounted.
pub fn udp_errors() -> io::Result<UdpErrors> {
    let v4 = parse_snmp(&fs::read_to_string("/proc/thread-self/net/snmp")?);
    // A kernel without IPv6 has no such file.
    let v6 = parse_snmp6(&fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default());
    Ok(UdpErrors {
        no_room_to_send: v4.no_room_to_send + v6.no_room_to_send,
        wrong_checksum: v4.wrong_checksum + v6.wrong_checksum,
    })
}

/// Parses `/proc/net/snmp`, in which each protocol has a line of names and a line of values.
fn parse_snmp(text: &str) -> UdpErrors {
    let mut udp = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let names = udp.next().unwrap_or_default().split_whitespace();
    let values = udp.next().unwrap_or_default().split_whitespace();
    let table: BTreeMap<_, _> = names.zip(values).collect();
    let value = |name| table.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    UdpErrors { no_room_to_send: value("SndbufErrors"), wrong_checksum: value("InCsumErrors") }
}

/// Parses `/proc/net/snmp6`, in which each line contains a name and a value.
fn parse_snmp6(text: &str) -> UdpErrors {
    let value = |name: &str| {
        let of_line = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
        text.lines().find_map(of_line).unwrap_or(0)
    };
    UdpErrors {
        no_room_to_send: value("Udp6SndbufErrors"),
        wrong_checksum: value("Udp6InCsumErrors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_net_dev_is_read_by_column() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
             lo: 100 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let lo = parse_proc_net_dev(text)["lo"];
        assert_eq!(lo, InterfaceCounters { received: 2, receive_drops: 9, send_drops: 25 });
    }

    #[test]
    fn udp_errors_are_read_by_name() {
        let v4 = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
                  Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti\n\
                  Udp: 1 2 3 4 5 6 7 8\nUdpLite: InDatagrams SndbufErrors\nUdpLite: 9 9\n";
        assert_eq!(parse_snmp(v4), UdpErrors { no_room_to_send: 6, wrong_checksum: 7 });
        let v6 = "Udp6InDatagrams                 \t1\nUdp6SndbufErrors                \t1691\nUdp6InCsumErrors  \t2\n";
        assert_eq!(parse_snmp6(v6), UdpErrors { no_room_to_send: 1691, wrong_checksum: 2 });
        assert_eq!((parse_snmp(""), parse_snmp6("")), Default::default());
        udp_errors().unwrap();
    }

    #[test]
    fn interfaces_are_counted_by_name() {
        for path in [PacketPath::Sockets, PacketPath::Xdp] {
            interface_counters("lo", path).unwrap();
            assert!(interface_counters("no-such-interface", path).is_err());
        }
    }

    #[test]
    fn veth_send_drops_count_only_with_xdp() {
        let counted = InterfaceCounters { received: 1, receive_drops: 2, send_drops: 4 };
        for (is_veth, path, send_drops) in [
            (true, PacketPath::Sockets, 0),
            (true, PacketPath::Xdp, 4),
            (false, PacketPath::Sockets, 4),
            (false, PacketPath::Xdp, 4),
        ] {
            let lost = InterfaceCounters { send_drops, ..counted };
            assert_eq!(counted.as_lost(is_veth, path), lost, "{is_veth} {path:?}");
        }
    }
}
