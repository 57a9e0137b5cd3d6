//! Router advertisements of a link: a raw ICMPv6 socket that gets nothing else.

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
/// All routers of a link.
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The hop limit of neighbour discovery (RFC 4861 §6.1).
const HOP_LIMIT: u32 = 255;
/// The socket option for which types come through (RFC 3542 §3.2), as Linux numbers it.
const ICMP6_FILTER: libc::c_int = 1;

/// The socket. Opening it takes CAP_NET_RAW; using it does not.
pub struct RouterSocket {
    socket: Socket,
    interface: String,
    index: u32,
}

/// An advertisement, its octets in the buffer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Its octets.
    pub len: usize,
    /// The router.
    pub source: Ipv6Addr,
    /// The hop limit that it came with.
    pub hop_limit: u8,
}

impl RouterSocket {
    /// Gets the advertisements of the routers on an interface from now on.
    ///
    /// # Errors
    /// If there is no such interface, or the process may not have the socket.
    pub fn open(interface: &str) -> io::Result<RouterSocket> {
        let index = if_nametoindex(interface)?;
        let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
        // Before anything else can come in.
        pass_only(&socket, ADVERTISEMENT)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_recv_hoplimit_v6(true)?;
        socket.set_multicast_hops_v6(HOP_LIMIT)?;
        socket.set_nonblocking(true)?;
        Ok(RouterSocket { socket, interface: interface.to_owned(), index })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Asks the routers for an advertisement now (RFC 4861 §6.3.7).
    ///
    /// # Errors
    /// If the interface has no address, or is down.
    pub fn solicit(&self) -> io::Result<()> {
        // The kernel writes the checksum.
        let message = [SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
        let to = SockAddr::from(SocketAddrV6::new(ALL_ROUTERS, 0, 0, self.index));
        self.socket.send_to(&message, &to).map(drop)
    }

    /// The next advertisement; `None` if there is none now. The kernel has checked its checksum.
    ///
    /// # Errors
    /// If the socket has failed.
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
            if let (Some(source), Some(hop_limit)) = (received.address, hop_limit) {
                let (len, source) = (received.bytes, source.ip());
                return Ok(Some(Advertisement { len, source, hop_limit }));
            }
        }
    }

    /// The same socket, for an event loop that waits for datagram sockets.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn to_wait_for(&self) -> io::Result<UdpSocket> {
        self.socket.try_clone().map(UdpSocket::from)
    }
}

/// Lets messages of one type through, and no others.
fn pass_only(socket: &Socket, kind: u8) -> io::Result<()> {
    // A bit that is set stops its type.
    let mut filter = [u32::MAX; 8];
    filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    // SAFETY: `filter` is the 32 octets of an icmp6_filter, outlives the call, and its size is
    // passed.
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
