//! Queueing disciplines: what stands between the sockets and each interface, and what it dropped.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use crate::netlink::Routing;

/// The root queueing discipline of an interface (tc(8)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// Name of the interface, for example `eth0`.
    pub interface: String,
    /// What tc(8) calls its kind: `noqueue`, `fq_codel`, `tbf` …
    pub kind: String,
    /// Packets that it and the disciplines below it dropped since it was installed; the kernel's
    /// counter has 32 bits. A datagram with segments (`UDP_SEGMENT`) is one packet here.
    pub drops: u32,
}

/// The root queueing disciplines of all interfaces of the calling thread's network namespace that
/// are up.
///
/// # Errors
/// If the kernel does not tell them.
pub fn disciplines() -> io::Result<Vec<Queueing>> {
    let mut names = Vec::new();
    for interface in
        getifaddrs()?.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP))
    {
        // Each interface has one entry with its link-layer address, and with it the index by which
        // netlink knows it.
        if let Some(index) =
            interface.address.as_ref().and_then(|a| a.as_link_addr()).map(|link| link.ifindex())
        {
            names.push((index, interface.interface_name));
        }
    }
    let answers =
        Routing::open()?.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()))?;
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

/// The root queueing discipline of `interface` in the calling thread's network namespace.
///
/// # Errors
/// `NotFound` if there is no such interface, if it is down, or if the kernel does not tell its
/// discipline.
pub fn discipline(interface: &str) -> io::Result<Queueing> {
    let found = disciplines()?.into_iter().find(|queueing| queueing.interface == interface);
    found.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no queueing discipline of {interface} is known"),
        )
    })
}

fn read(interface: &str, attributes: &[TcAttribute]) -> Option<Queueing> {
    let kind = attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    })?;
    let drops = attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Stats2(all) => all.iter().find_map(|stats| match stats {
            TcStats2::Queue(queue) => Some(queue.drops),
            _ => None,
        }),
        TcAttribute::Stats(stats) => Some(stats.drops),
        _ => None,
    })?;
    Some(Queueing { interface: interface.to_owned(), kind, drops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_a_discipline() {
        let lo = discipline("lo").unwrap();
        assert!(!lo.kind.is_empty());
        assert!(discipline("no-such-interface").is_err());
        assert!(disciplines().unwrap().contains(&Queueing { drops: lo.drops, ..lo.clone() }));
    }
}
