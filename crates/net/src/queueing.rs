//! Counters of the queueing disciplines between the sockets and each interface. They show which packets are dropped,
//! and how long packets wait.

use std::collections::VecDeque;
use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use units::Nanos;

use crate::netlink::Routing;

/// The root queueing discipline of an interface (tc(8)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queueing {
    /// Name of the interface, for example `eth0`.
    pub interface: String,
    /// Kind of queueing discipline, as shown by tc(8): `noqueue`, `fq_codel`, `tbf` …
    pub kind: String,
    /// Number of packets dropped by the queueing discipline and its child disciplines since it was installed. The
    /// kernel's counter has 32 bits. Several datagrams that are sent as one large packet (`UDP_SEGMENT`) count as one
    /// packet here.
    pub drops: u32,
    /// Number of octets that have left the queueing discipline since it was installed.
    pub left: u64,
    /// Number of packets that have left the queueing discipline since it was installed. Each datagram counts as one
    /// packet, even if several datagrams are sent as one large packet. The kernel's counter has 32 bits.
    pub packets: u32,
    /// Number of octets that wait in the queueing discipline.
    pub backlog: u32,
    /// Number of packets that wait in the queueing discipline. Several datagrams that are sent as one large packet
    /// count as one packet here.
    pub waiting: u32,
}

impl Queueing {
    /// True if packets can wait in the queueing discipline, which is the case for every kind except `noqueue`.
    pub fn can_hold(&self) -> bool {
        self.kind != "noqueue"
    }
}

/// Repeated readings of the queueing disciplines of one network namespace, over one netlink socket.
pub struct Disciplines(Routing);

impl Disciplines {
    /// Opens the netlink socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a netlink socket.
    pub fn open() -> io::Result<Disciplines> {
        Routing::open().map(Disciplines)
    }

    /// Returns the root queueing disciplines of all interfaces that are up.
    ///
    /// # Errors
    /// Returns an error if the kernel does not list interfaces or disciplines.
    pub fn sample(&mut self) -> io::Result<Vec<Queueing>> {
        let mut names = Vec::new();
        for interface in
            getifaddrs()?.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
        {
            // Each interface has one entry with its link-layer address. This entry contains the index that netlink
            // uses.
            if let Some(index) =
                interface.address.as_ref().and_then(|a| a.as_link_addr()).map(|link| link.ifindex())
            {
                names.push((index, interface.interface_name));
            }
        }
        let answers = self.0.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
        let root = |answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(message)
                if message.header.parent == TcHandle::ROOT =>
            {
                let (_, name) =
                    names.iter().find(|(index, _)| *index as i32 == message.header.index)?;
                read(name, &message.attributes)
            }
            _ => None,
        };
        Ok(answers.into_iter().filter_map(root).collect())
    }
}

/// Returns the root queueing disciplines of all interfaces that are up in the calling thread's network namespace.
///
/// # Errors
/// See [`Disciplines::open`] and [`Disciplines::sample`].
pub fn disciplines() -> io::Result<Vec<Queueing>> {
    Disciplines::open()?.sample()
}

/// Returns the root queueing discipline of `interface` in the calling thread's network namespace.
///
/// # Errors
/// Returns `NotFound` if there is no such interface, if it is down, or if the kernel does not report its discipline.
pub fn discipline(interface: &str) -> io::Result<Queueing> {
    let found = disciplines()?.into_iter().find(|queueing| queueing.interface == interface);
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("the queueing discipline of {interface} is unknown"),
        )
    })
}

fn read(interface: &str, attributes: &[TcAttribute]) -> Option<Queueing> {
    let mut found = Queueing { interface: interface.to_owned(), ..Queueing::default() };
    let mut has_drops = false;
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(kind) => found.kind.clone_from(kind),
            // `TcAttribute::Stats` contains the same counters in an older form.
            TcAttribute::Stats2(all) => {
                for stats in all {
                    match stats {
                        TcStats2::Basic(basic) => {
                            (found.left, found.packets) = (basic.bytes, basic.packets);
                        }
                        TcStats2::Queue(queue) => {
                            has_drops = true;
                            found.drops = queue.drops;
                            (found.backlog, found.waiting) = (queue.backlog, queue.qlen);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (has_drops && !found.kind.is_empty()).then_some(found)
}

/// Lower bounds for the time that packets wait in a queueing discipline, computed from repeated samples of its
/// counters. Packets are assumed to leave in the order in which they arrived.
///
/// ```text
/// octets in the order of their arrival:
///     0 ──────────── left ─────────── left + backlog = arrived
///         have left           wait
/// ```
///
/// Suppose that an octet had arrived when one sample was taken, and had not left when a later sample was taken. The
/// octet has then waited at least for the time between the two samples.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The last sample: its time, and the numbers of octets and packets that had left the queueing discipline by that
    /// time.
    last: Option<(Nanos, u64, u32)>,
    /// Earlier samples, each with the total number of octets that had arrived and the time. Some of these octets still
    /// wait in the queueing discipline.
    samples: VecDeque<(u64, Nanos)>,
}

impl Waiting {
    /// Adds a sample of the counters at the time `now`. The packets that have left since the last sample are divided
    /// into groups: the packets of one group arrived between the same two samples. Calls `waited` for each group if the
    /// lower bound for its waiting time is above zero. The arguments of `waited` are this lower bound, and the number
    /// of packets in the group. The number of packets is estimated from the octets (see `share_of`).
    pub fn sample(&mut self, now: Nanos, queue: &Queueing, mut waited: impl FnMut(Nanos, u64)) {
        let last = self.last.replace((now, queue.left, queue.packets));
        let arrived = queue.left + u64::from(queue.backlog);
        match last {
            Some((looked, left, packets)) if queue.left >= left => {
                let (octets, packets) =
                    (queue.left - left, queue.packets.wrapping_sub(packets).into());
                let mut from = left;
                while let Some(&(upto, at)) = self.samples.front() {
                    let end = upto.min(queue.left);
                    if end > from && looked > at {
                        waited(looked.since(at), share_of(packets, end - from, octets));
                    }
                    from = from.max(end);
                    if upto > queue.left {
                        break;
                    }
                    self.samples.pop_front();
                }
            }
            // A smaller counter means that the discipline was replaced: a new one starts counting at 0.
            _ => self.samples.clear(),
        }
        if queue.backlog == 0 {
            self.samples.clear();
        } else {
            self.samples.push_back((arrived, now));
        }
    }

    /// Returns a lower bound for the time that the first packet in the queue had waited when the last sample was taken.
    /// Returns zero if the queue was empty at that time.
    pub fn oldest(&self) -> Nanos {
        let first = self.samples.front().zip(self.last);
        first.map_or(Nanos(0), |(&(_, at), (looked, ..))| looked.since(at))
    }
}

/// Estimates the number of packets in the first `part` octets of a sequence. The sequence has `octets` octets and
/// `packets` packets, which are assumed to be of equal size. The result is rounded up.
fn share_of(packets: u64, part: u64, octets: u64) -> u64 {
    (u128::from(packets) * u128::from(part)).div_ceil(octets.max(1).into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_a_discipline() {
        let lo = discipline("lo").unwrap();
        assert!(!lo.kind.is_empty());
        assert!(discipline("no-such-interface").is_err());
        let is_it =
            |one: &Queueing| one.interface == "lo" && one.kind == lo.kind && one.drops >= lo.drops;
        assert!(disciplines().unwrap().iter().any(is_it));
    }

    /// Returns the waiting times computed from samples taken every 20 ms. Each sample contains the octets that had left
    /// and the octets that were waiting. All packets are 100 octets long.
    fn waits(samples: &[(u64, u32)]) -> (Vec<(u64, u64)>, u64) {
        let (mut waiting, mut found) = (Waiting::default(), Vec::new());
        for (number, &(left, backlog)) in (1..).zip(samples) {
            let packets = (left / 100) as u32;
            let queue = Queueing { left, packets, backlog, ..Queueing::default() };
            let ms = |time: Nanos| time.0 / 1_000_000;
            waiting.sample(Nanos::from_millis(20 * number), &queue, |time, packets| {
                found.push((ms(time), packets));
            });
        }
        (found, waiting.oldest().0 / 1_000_000)
    }

    #[test]
    fn a_packet_waits_from_sample_to_sample() {
        // The queue is empty, or its packets are gone at the next sample.
        assert_eq!(waits(&[(0, 0), (900, 0), (2_000, 0)]), (vec![], 0));
        assert_eq!(waits(&[(0, 300), (1_000, 200), (2_000, 0)]), (vec![], 0));
        // Ten packets wait at one sample and at the next. Five of them leave before each of the following two samples.
        assert_eq!(waits(&[(0, 1_000), (0, 1_000)]), (vec![], 20));
        let found = waits(&[(0, 1_000), (0, 1_000), (500, 500), (1_000, 0)]);
        assert_eq!(found, (vec![(20, 5), (40, 5)], 0));
    }

    #[test]
    fn each_packet_counts_once_by_its_own_wait() {
        // Between two samples, 300 octets leave the growing queue and 500 octets arrive.
        let samples: Vec<(u64, u32)> = (0..6).map(|n| (300 * n, 500 + 200 * n as u32)).collect();
        // Four of the 15 packets that left had been in only one sample.
        assert_eq!(waits(&samples), (vec![(20, 2), (20, 3), (40, 1), (20, 2), (40, 3)], 40));
    }

    #[test]
    fn a_new_discipline_starts_at_zero() {
        let (found, oldest) = waits(&[(5_000, 1_000), (5_000, 1_000), (0, 0), (400, 0)]);
        assert_eq!((found, oldest), (vec![], 0));
    }
}
