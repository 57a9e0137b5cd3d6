//! Router advertisements of a link. They are received on a raw ICMPv6 socket that filters messages by type.

use std::io::{self, IoSliceMut};
use std::mem::size_of;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn6, recvmsg};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// ICMPv6 types (RFC 4861 §4.1, §4.2).
const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
/// Link-local multicast address of all routers.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Hop limit of neighbour discovery messages (RFC 4861 §6.1).
const HOP_LIMIT: u32 = 255;
/// Linux's number for the ICMPv6 type filter option (RFC 3542 §3.2).
const ICMP6_FILTER: libc::c_int = 1;

/// A socket for router advertisements. Opening the socket requires CAP_NET_RAW, but using it does not.
pub struct RouterSocket {
    socket: Socket,
    interface: String,
    index: u32,
}

/// A received router advertisement, whose octets are in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Length of the advertisement in octets.
    pub len: usize,
    /// Address of the router.
    pub source: Ipv6Addr,
    /// Hop limit of the received packet.
    pub hop_limit: u8,
}

impl RouterSocket {
    /// Opens a socket for the router advertisements on an interface.
    ///
    /// # Errors
    /// Returns an error if there is no such interface, or the process lacks CAP_NET_RAW.
    pub fn open(interface: &str) -> io::Result<RouterSocket> {
        let router = RouterSocket::open_on_all_links(interface)?;
        router.socket.bind_device(Some(interface.as_bytes()))?;
        Ok(router)
    }

    /// Opens the socket and sets its type filter. The socket is not bound to the interface yet. Messages that arrive
    /// before it is bound may come from any link; [`RouterSocket::receive`] discards those from other links. Messages
    /// that arrive before the filter is set may have any type. Users of [`RouterSocket::receive`] must therefore check
    /// the type.
    fn open_on_all_links(interface: &str) -> io::Result<RouterSocket> {
        let index = if_nametoindex(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        pass_only(&socket, ADVERTISEMENT)?;
        socket.set_recv_hoplimit_v6(true)?;
        socket.set_multicast_hops_v6(HOP_LIMIT)?;
        socket.set_nonblocking(true)?;
        Ok(RouterSocket { socket, interface: interface.to_owned(), index })
    }

    /// Returns the interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Sends a router solicitation (RFC 4861 §6.3.7). The caller is responsible for its timing.
    ///
    /// # Errors
    /// Returns an error if the interface has no address, or is down.
    pub fn solicit(&self) -> io::Result<()> {
        // The kernel writes the checksum.
        let message = [SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        let to = SockAddr::from(SocketAddrV6::new(ALL_ROUTERS, 0, 0, self.index));
        self.socket.send_to(&message, &to).map(drop)
    }

    /// Returns the next advertisement from a link-local address on the interface's link, or `None` if no advertisement
    /// has arrived. Advertisements from other addresses are ignored (RFC 4861 §6.1.2). The kernel has verified the
    /// checksum.
    ///
    /// # Errors
    /// Returns an error if the socket has failed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Advertisement>> {
        loop {
            let mut control = nix::cmsg_space!(libc::c_int);
            let mut slices = [IoSliceMut::new(buffer)];
            let received = recvmsg::<SockaddrIn6>(
                self.socket.as_raw_fd(),
                &mut slices,
                Some(&mut control),
                MsgFlags::empty(),
            );
            let received = match received {
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let hop_limit = received.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv6HopLimit(limit) => u8::try_from(limit).ok(),
                _ => None,
            });
            // The scope of a link-local address is the receiving interface; other addresses have no scope.
            let address = received.address.filter(|address| address.scope_id() == self.index);
            if let (Some(address), Some(hop_limit)) = (address, hop_limit) {
                let (len, source) = (received.bytes, address.ip());
                return Ok(Some(Advertisement { len, source, hop_limit }));
            }
        }
    }

    /// Returns a duplicate of the socket, for an event loop that accepts only values of the type [`UdpSocket`].
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub fn to_wait_for(&self) -> io::Result<UdpSocket> {
        self.socket.try_clone().map(UdpSocket::from)
    }
}

/// Sets the type filter of an ICMPv6 socket. The socket then receives only messages of the type `kind`.
fn pass_only(socket: &Socket, kind: u8) -> io::Result<()> {
    // A bit that is set blocks the message type with its number.
    let mut filter = [u32::MAX; 8];
    filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    // SAFETY: `filter` is the 32 octets of an icmp6_filter and outlives the call; its size is passed.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_ICMPV6,
            ICMP6_FILTER,
            filter.as_ptr().cast(),
            size_of::<[u32; 8]>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use testbed::{LAST_RESORT, ip, is_root};

    /// Sends an advertisement without options at the far end of a link.
    fn advertise(far_end: &str) {
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
        socket.set_multicast_hops_v6(HOP_LIMIT).unwrap();
        socket.set_multicast_loop_v6(false).unwrap();
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let to = SocketAddrV6::new(all_nodes, 0, 0, if_nametoindex(far_end).unwrap());
        let mut message = [0; 16];
        message[0] = ADVERTISEMENT;
        let give_up = Instant::now() + LAST_RESORT;
        // A link that has just been set up needs a moment before it can send.
        while let Err(error) = socket.send_to(&message, &SockAddr::from(to)) {
            assert!(Instant::now() < give_up, "{error}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the source of the next advertisement, if one arrives in time.
    fn next(router: &RouterSocket) -> Option<Ipv6Addr> {
        let give_up = Instant::now() + LAST_RESORT;
        while Instant::now() < give_up {
            if let Some(advertisement) = router.receive(&mut [0; 100]).unwrap() {
                assert_eq!((advertisement.len, advertisement.hop_limit), (16, 255));
                return Some(advertisement.source);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// A socket receives from all interfaces until it is bound to one.
    #[test]
    fn advertisements_of_other_links_are_left_out() {
        if !is_root("advertisements_of_other_links_are_left_out") {
            return;
        }
        let in_namespace = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            for link in ["a", "b"] {
                ip(&format!("link add {link}0 type veth peer name {link}1"));
                for end in ["0", "1"] {
                    ip(&format!("address add fe80::{link}{end}/64 dev {link}{end} nodad"));
                    ip(&format!("link set {link}{end} up"));
                }
            }
            let (early, late) =
                (RouterSocket::open_on_all_links("a0").unwrap(), RouterSocket::open("a0").unwrap());
            // The other link's advertisement is sent first. A socket for all links would receive it first.
            advertise("b1");
            advertise("a1");
            let router: Ipv6Addr = "fe80::a1".parse().unwrap();
            assert_eq!([next(&early), next(&late)], [Some(router); 2]);
            assert_eq!(early.receive(&mut [0; 100]).unwrap(), None);
        };
        thread::spawn(in_namespace).join().unwrap();
    }
}
