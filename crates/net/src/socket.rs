//! UDP sockets of the tester and of its servers.

use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use units::Share;

use crate::control::{CONTROL_LEN, Control, write_address, write_control};
use crate::neighbour::first_not_local;
use crate::peer::Peer;

/// Requested size of socket buffers in octets. If `net.core.rmem_max` is lower and the process is not root, the kernel
/// grants less.
pub const REQUESTED_BUFFER: usize = 32 << 20;

/// Reasons why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Error returned by the system for the UDP sockets.
    #[error("over UDP: {0}")]
    Udp(io::Error),
    /// Error returned by the system for the TCP socket.
    #[error("over TCP: {0}")]
    Tcp(io::Error),
}

impl ListenError {
    /// Returns the underlying system error.
    pub fn cause(&self) -> &io::Error {
        match self {
            ListenError::Udp(cause) | ListenError::Tcp(cause) => cause,
        }
    }
}

impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> io::Error {
        io::Error::new(error.cause().kind(), error)
    }
}

/// Opens a DNS server's UDP and TCP sockets on one port of `address` (RFC 7766 §5). [`Endpoint::listen`] opens `count`
/// endpoints, and [`listen_tcp`] opens a listening socket. Port 0 selects a port that is free for UDP and TCP.
///
/// # Errors
/// Returns an error if the address does not belong to this host, or is in use.
pub fn listen_udp_and_tcp(
    address: SocketAddr,
    count: usize,
) -> Result<(Vec<Endpoint>, TcpListener), ListenError> {
    // The kernel selects a port that is free for UDP. If the port is in use for TCP, its UDP sockets stay open until
    // the end, so that the kernel does not select the same port again.
    let mut taken = Vec::new();
    loop {
        let endpoints = Endpoint::listen(address, count).map_err(ListenError::Udp)?;
        let bound = endpoints[0].local_address().map_err(ListenError::Udp)?;
        match listen_tcp(bound) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() == 0
                    && taken.len() < PORT_TRIES =>
            {
                taken.push(endpoints);
            }
            listener => return Ok((endpoints, listener.map_err(ListenError::Tcp)?)),
        }
    }
}

/// Maximum number of UDP ports that are tried until the same port is also free for TCP.
const PORT_TRIES: usize = 64;

/// Opens a listening TCP socket. As with UDP, the address `[::]` accepts only IPv6.
///
/// # Errors
/// Returns an error if the address does not belong to this host, or is in use.
pub fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier server on this address may still linger.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(TCP_BACKLOG)?;
    Ok(socket.into())
}

/// Maximum number of connections that wait to be accepted.
const TCP_BACKLOG: i32 = 1024;

/// Binds a UDP socket of the standard library to `local`. The address may also lie in a prefix with a route of type
/// `local`. Port 0 stands for any port.
///
/// # Errors
/// Returns an error if `local` is in use, or is not an address of this host.
pub fn bound_to(local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    bind_local(&socket, local)?;
    Ok(socket.into())
}

/// Binds a socket to an address of this host. The address either belongs to an interface, or is in a prefix that a
/// route of type `local` makes local. For an IPv6 address in such a prefix, the kernel requires `IPV6_FREEBIND`. With
/// that option the kernel accepts any address. This function therefore checks the routes first.
fn bind_local(socket: &Socket, local: SocketAddr) -> io::Result<()> {
    match socket.bind(&SockAddr::from(local)) {
        Err(error)
            if error.kind() == io::ErrorKind::AddrNotAvailable
                && local.is_ipv6()
                && first_not_local([local.ip()])?.is_none() =>
        {
            socket.set_freebind_v6(true)?;
            socket.bind(&SockAddr::from(local))
        }
        bound => bound,
    }
}

/// Binds a UDP socket of the standard library on which a server receives. An IPv6 address does not include IPv4 addresses.
///
/// # Errors
/// Returns an error if the address is in use, or is not an address of this host.
pub fn listen_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket.into())
}

/// Returns the interface index in the zone identifier of an IPv6 address (RFC 4007 §6). Returns 0 if the address has no
/// zone identifier.
pub fn scope_of(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Returns the wildcard address in the address family of `server`, with the port `port`. Port 0 stands for any port.
fn port_of_any(server: SocketAddr, port: u16) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => SocketAddr::from(([0; 4], port)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], port)),
    }
}

/// A bound UDP socket. It either is connected to one peer, or accepts datagrams from all sources.
pub struct Endpoint {
    socket: Socket,
    /// True if the kernel reports the destination address of each received datagram.
    reports_destination: bool,
}

impl Endpoint {
    /// Opens `count` sockets for a server on `address`. The kernel distributes the clients over these sockets
    /// (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// Returns an error if the address does not belong to this host, or if another server uses the address. This
    /// includes a server of the same user that has set `SO_REUSEPORT`.
    pub fn listen(address: SocketAddr, count: usize) -> io::Result<Vec<Endpoint>> {
        // Binding without SO_REUSEPORT keeps out other programs. The option is set afterwards for our other sockets.
        let new = || -> io::Result<Endpoint> {
            let endpoint = Endpoint::new(address)?;
            // [::] means IPv6 only; IPv4 needs a separate address.
            if address.is_ipv6() {
                endpoint.socket.set_only_v6(true)?;
            }
            Ok(endpoint)
        };
        let first = new()?;
        first.socket.bind(&SockAddr::from(address))?;
        first.socket.set_reuse_port(true)?;
        let bound = first.local_address()?;
        let mut endpoints = vec![first];
        for _ in 1..count {
            let next = new()?;
            next.socket.set_reuse_port(true)?;
            next.socket.bind(&SockAddr::from(bound))?;
            endpoints.push(next);
        }
        if address.ip().is_unspecified() {
            endpoints.iter_mut().try_for_each(|endpoint| endpoint.report_destination(address))?;
        }
        Ok(endpoints)
    }

    /// Opens two sockets on the same source port, for a client that queries `server`. The first socket is connected and
    /// receives datagrams from the server. The second socket receives datagrams from all other sources. Because the
    /// kernel separates the datagrams in this way, those from other sources can be counted without a check of each
    /// source address.
    ///
    /// # Errors
    /// Returns an error if there is no route to the server, no port is free, or a nonzero `port` is in use.
    pub fn client_pair(server: SocketAddr, port: u16) -> io::Result<(Endpoint, Endpoint)> {
        let ours = port_of_any(server, port);
        let connected = Endpoint::new(ours)?;
        // The port is first bound exclusively and then opened to our second socket, as in `listen`.
        connected.socket.bind(&SockAddr::from(ours))?;
        connected.socket.set_reuse_port(true)?;
        let unmatched = Endpoint::new(ours)?;
        unmatched.socket.set_reuse_port(true)?;
        unmatched.socket.bind(&SockAddr::from(connected.local_address()?))?;
        connected.socket.connect(&SockAddr::from(server))?;
        // No other socket may share the port. Otherwise a server of the same user on this host could draw the same port
        // at random, and its answers would arrive at our socket.
        connected.socket.set_reuse_port(false)?;
        unmatched.socket.set_reuse_port(false)?;
        Ok((connected, unmatched))
    }

    /// Opens a socket for a client that queries `server`. The socket is bound to one source port, on all addresses of
    /// this host in the address family of `server`. [`Endpoint::send_from`] sends from any of these addresses,
    /// including addresses in prefixes that a route makes local.
    /// [`ReceiveBatch::peer`](crate::batch::ReceiveBatch::peer) returns the source and destination of received
    /// datagrams. The socket accepts datagrams from any source.
    ///
    /// # Errors
    /// Returns an error if no port is free, a nonzero `port` is in use, or the kernel lacks `IPV6_FREEBIND` (before
    /// Linux 4.15).
    pub fn client_on_any_address(server: SocketAddr, port: u16) -> io::Result<Endpoint> {
        let any = port_of_any(server, port);
        let mut endpoint = Endpoint::new(any)?;
        if any.is_ipv6() {
            endpoint.socket.set_only_v6(true)?;
            // Without this option the kernel accepts only IPv6 addresses of its interfaces. IPv4 addresses need only a
            // route of type local.
            endpoint.socket.set_freebind_v6(true)?;
        }
        endpoint.socket.bind(&SockAddr::from(any))?;
        endpoint.report_destination(any)?;
        Ok(endpoint)
    }

    /// Opens a socket that is connected to `server`. The kernel selects its source port at random.
    ///
    /// # Errors
    /// Returns an error if there is no route to the server, or no port is free.
    pub fn connect(server: SocketAddr) -> io::Result<Endpoint> {
        let endpoint = Endpoint::new(server)?;
        endpoint.socket.connect(&SockAddr::from(server))?;
        Ok(endpoint)
    }

    /// Opens a socket connected to `server`. If `local` is given, the socket is bound to this address. Port 0 stands
    /// for any port.
    ///
    /// # Errors
    /// Returns an error if there is no route to the server, or `local` does not belong to this host or is in use.
    pub fn connect_from(local: Option<SocketAddr>, server: SocketAddr) -> io::Result<Endpoint> {
        let endpoint = Endpoint::new(server)?;
        if let Some(local) = local {
            bind_local(&endpoint.socket, local)?;
        }
        endpoint.socket.connect(&SockAddr::from(server))?;
        Ok(endpoint)
    }

    /// Sets the sizes of the receive buffer and the send buffer to `octets`. Without this call, the maximum size is
    /// requested for both.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn limit_buffers(&self, octets: usize) -> io::Result<()> {
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, octets)?;
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, octets)
    }

    /// Makes the kernel drop arriving datagrams at random, with the probability `share`, before they enter the receive
    /// buffer. The kernel counts these datagrams together with datagrams that it drops because the buffer is full.
    /// [`Share::ZERO`] restores normal reception.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the filter.
    pub fn drop_arrivals(&self, share: Share) -> io::Result<()> {
        if share == Share::ZERO {
            return self.socket.detach_filter();
        }
        let bound = (share.fraction() * f64::from(u32::MAX)) as u32;
        let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
        // A filter returns the number of octets to keep of a datagram; 0 drops it.
        self.socket.attach_filter(&[
            SockFilter::new((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, random),
            SockFilter::new((libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16, 1, 0, bound),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, 0),
            SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, u32::MAX),
        ])
    }

    /// Creates `count` endpoints that share a socket bound by another program (systemd's socket activation). The buffer
    /// sizes of the socket are left unchanged.
    ///
    /// # Errors
    /// Returns an error if `socket` is not an IP socket, or the process has no file descriptor left.
    pub fn adopt(socket: UdpSocket, count: usize) -> io::Result<Vec<Endpoint>> {
        let address = socket.local_addr()?;
        socket.set_nonblocking(false)?;
        let mut sockets = (1..count).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
        sockets.push(socket);
        let adopt = |socket: UdpSocket| {
            let mut endpoint = Endpoint { socket: socket.into(), reports_destination: false };
            // A previous process may have ended during an overload. The call fails if there is no filter.
            let _ = endpoint.drop_arrivals(Share::ZERO);
            if address.ip().is_unspecified() {
                endpoint.report_destination(address)?;
            }
            Ok(endpoint)
        };
        sockets.into_iter().map(adopt).collect()
    }

    fn new(address: SocketAddr) -> io::Result<Endpoint> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        let endpoint = Endpoint { socket, reports_destination: false };
        endpoint.enlarge_buffers();
        Ok(endpoint)
    }

    fn enlarge_buffers(&self) {
        // A smaller buffer is not an error here: the caller checks `receive_buffer`.
        let _ = self.limit_buffers(REQUESTED_BUFFER);
    }

    /// Sets the size of a socket buffer. Only root may exceed the system's limit on this size. For other users, the
    /// kernel reduces the size to the limit.
    fn set_buffer(&self, forced: i32, ordinary: i32, octets: usize) -> io::Result<()> {
        let octets = libc::c_int::try_from(octets).unwrap_or(libc::c_int::MAX);
        self.set_option(libc::SOL_SOCKET, forced, octets)
            .or_else(|_| self.set_option(libc::SOL_SOCKET, ordinary, octets))
    }

    /// Returns the size of the receive buffer that the kernel granted. In this buffer, a packet counts as more octets
    /// than it contains: a small packet counts as about 768 octets.
    pub fn receive_buffer(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(0)
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Returns any error from getsockname(2). None is expected for a bound socket.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("not an IP socket"))
    }

    /// Sets the timeout of blocking receives.
    ///
    /// # Errors
    /// Returns an error if `timeout` is zero.
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// Enables kernel timestamps of received packets.
    ///
    /// # Errors
    /// Returns an error if the kernel lacks `SO_TIMESTAMPNS`.
    pub fn use_kernel_timestamps(&self) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Disables kernel timestamps enabled by [`use_kernel_timestamps`](Endpoint::use_kernel_timestamps).
    ///
    /// # Errors
    /// Returns an error if the kernel lacks `SO_TIMESTAMPNS`.
    pub fn stop_kernel_timestamps(&self) -> io::Result<()> {
        self.set_option(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)
    }

    /// Lets the kernel deliver several datagrams of one flow at once (`UDP_GRO`). Returns false if the kernel does not
    /// support this.
    pub fn use_receive_offload(&self) -> bool {
        self.set_option(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok()
    }

    fn report_destination(&mut self, address: SocketAddr) -> io::Result<()> {
        self.reports_destination = true;
        match address {
            SocketAddr::V4(_) => self.set_option(libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            SocketAddr::V6(_) => self.set_option(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        }
    }

    /// Returns the number of packets that the kernel dropped because this socket's buffer was full. This is the counter
    /// that `SO_RXQ_OVFL` attaches to received packets. It is read directly, so that drops after the last packet are
    /// included. Returns 0 if the kernel does not report the counter.
    pub fn drops(&self) -> u64 {
        self.drop_counter().map_or(0, u64::from)
    }

    /// Returns the counter that [`drops`](Endpoint::drops) reads. The counter wraps to 0 after its maximum.
    ///
    /// # Errors
    /// Returns any error from getsockopt(2). The number of drops is then unknown.
    pub fn drop_counter(&self) -> io::Result<u32> {
        // linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of SK_MEMINFO_VARS values.
        const SO_MEMINFO: libc::c_int = 55;
        const DROPS: usize = 8;
        let mut values = [0u32; 9];
        let mut len = size_of::<[u32; 9]>() as libc::socklen_t;
        // SAFETY: `values` has `len` writable octets, and both outlive the call.
        let status = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        if status == 0 { Ok(values[DROPS]) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one datagram to the connected peer.
    ///
    /// # Errors
    /// Returns any error from send(2). In that case the datagram was not sent.
    #[inline]
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send(datagram).map(drop)
    }

    /// Sends one datagram to `peer`.
    ///
    /// # Errors
    /// Returns any error from sendto(2). In that case the datagram was not sent.
    pub fn send_to(&self, datagram: &[u8], peer: SocketAddr) -> io::Result<()> {
        self.socket.send_to(datagram, &SockAddr::from(peer)).map(drop)
    }

    /// Sends several datagrams to the connected peer with one system call (`UDP_SEGMENT`). They are contiguous in
    /// `datagrams`, and each is `segment` octets long.
    ///
    /// # Errors
    /// Returns any error from sendmsg(2), which then applies to all datagrams. The error is EIO or EINVAL if the kernel
    /// or the interface does not support segmentation.
    #[inline]
    pub fn send_segmented(&self, datagrams: &[u8], segment: u16) -> io::Result<()> {
        #[repr(C, align(8))]
        struct Control([u8; 24]);
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute lengths.
        let (space, len) = unsafe { (libc::CMSG_SPACE(2) as usize, libc::CMSG_LEN(2) as usize) };
        let mut control = Control([0; 24]);
        debug_assert!(space <= 24);
        let mut iov = libc::iovec {
            iov_base: datagrams.as_ptr().cast_mut().cast::<libc::c_void>(),
            iov_len: datagrams.len(),
        };
        // SAFETY: msghdr is plain data; all zeros is a valid value with null pointers and zero
        // lengths.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = space as _;
        // SAFETY: msg_control points to 24 aligned octets, of which msg_controllen covers `space` ≤ 24, so
        // CMSG_FIRSTHDR returns a header inside, and CMSG_DATA the two octets after it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
        }
        // SAFETY: `message` points to `iov` and `control`, which live until the call has returned; the kernel only
        // reads them.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends one or more datagrams to `peer` with one system call, from the local address in `peer`. If `segment` is
    /// given, `datagrams` contains contiguous datagrams of that length (`UDP_SEGMENT`). Otherwise it is a single
    /// datagram.
    ///
    /// # Errors
    /// Returns any error from sendmsg(2), which then applies to all datagrams. The error is EIO or EINVAL if the kernel
    /// or the interface does not support segmentation. It is EINVAL if the local address does not belong to this host.
    #[inline]
    pub fn send_from(&self, datagrams: &[u8], segment: Option<u16>, peer: Peer) -> io::Result<()> {
        let mut control = Control([0; CONTROL_LEN]);
        let used = write_control(&mut control, segment, peer.local);
        // SAFETY: sockaddr_storage and msghdr are plain data; all zeros is a valid value, with null
        // pointers and zero lengths.
        let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        message.msg_namelen = write_address(&mut name, peer.address);
        message.msg_name = (&raw mut name).cast();
        let mut iov = libc::iovec {
            iov_base: datagrams.as_ptr().cast_mut().cast::<libc::c_void>(),
            iov_len: datagrams.len(),
        };
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        if used > 0 {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = used as _;
        }
        // SAFETY: `message` points to `name`, `iov`, `control` and `datagrams`, which live until the call has returned;
        // the kernel only reads them.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(crate) fn reports_destination(&self) -> bool {
        self.reports_destination
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    fn set_option(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        value: libc::c_int,
    ) -> io::Result<()> {
        // SAFETY: `value` is a c_int that outlives the call, and its size is passed.
        let status = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{ReceiveBatch, Wait};
    use crate::testing::retry_until_free;
    use nix::sched::{CloneFlags, unshare};
    use std::net::IpAddr;
    use testbed::{ip, is_root};

    #[test]
    fn a_client_of_many_addresses_reports_both_ends() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(testbed::LAST_RESORT)).unwrap();
        let address = server.local_addr().unwrap();
        let client = Endpoint::client_on_any_address(address, 0).unwrap();
        client.set_receive_timeout(testbed::LAST_RESORT).unwrap();
        let port = client.local_address().unwrap().port();
        let from = |text: &str| -> IpAddr { text.parse().unwrap() };
        let ask = |source: &str, datagrams: &[u8], segment| {
            let peer = Peer { address, local: Some(from(source)) };
            client.send_from(datagrams, segment, peer).unwrap();
        };
        ask("127.1.2.3", b"onetwo", Some(3));
        ask("127.77.0.255", b"three", None);
        let mut received = [0; 10];
        let mut batch = ReceiveBatch::new(100);
        for (source, text) in
            [("127.1.2.3", &b"one"[..]), ("127.1.2.3", b"two"), ("127.77.0.255", b"three")]
        {
            let (len, peer) = server.recv_from(&mut received).unwrap();
            assert_eq!((&received[..len], peer), (text, SocketAddr::new(from(source), port)));
            // The reply is sent to a different address of this host.
            let elsewhere = from("127.9.9.9");
            server.send_to(b"reply", (elsewhere, port)).unwrap();
            assert_eq!(batch.receive(&client, Wait::ForFirst).unwrap(), 1, "timeout");
            assert_eq!(batch.peer(0), Some(Peer { address, local: Some(elsewhere) }));
        }
        let foreign = Peer { address, local: Some(from("192.0.2.1")) };
        assert!(client.send_from(b"x", None, foreign).is_err(), "192.0.2.1 is not of this host");
    }

    #[test]
    fn a_local_route_makes_an_ipv6_prefix_bindable() {
        if !is_root("a_local_route_makes_an_ipv6_prefix_bindable") {
            return;
        }
        let in_namespace = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            let local: SocketAddr = "[2001:2:0:ff::9]:0".parse().unwrap();
            assert!(bound_to(local).is_err() && first_not_local([local.ip()]).unwrap().is_some());
            ip("-6 route add local 2001:2:0:ff::/64 dev lo");
            assert_eq!(bound_to(local).unwrap().local_addr().unwrap().ip(), local.ip());
            let server = UdpSocket::bind("[::1]:0").unwrap();
            server.set_read_timeout(Some(testbed::LAST_RESORT)).unwrap();
            let address = server.local_addr().unwrap();
            assert!(Endpoint::connect_from(Some(local), address).is_ok());
            let client = Endpoint::client_on_any_address(address, 0).unwrap();
            client.set_receive_timeout(testbed::LAST_RESORT).unwrap();
            let (mut received, mut batch) = ([0; 10], ReceiveBatch::new(100));
            for source in ["2001:2:0:ff::1", "2001:2:0:ff:ffff::"] {
                let source: IpAddr = source.parse().unwrap();
                let ends = Peer { address, local: Some(source) };
                client.send_from(b"onetwo", Some(3), ends).unwrap();
                for text in [b"one", b"two"] {
                    let (len, peer) = server.recv_from(&mut received).unwrap();
                    assert_eq!((&received[..len], peer.ip()), (&text[..], source));
                    server.send_to(b"reply", peer).unwrap();
                    assert_eq!(batch.receive(&client, Wait::ForFirst).unwrap(), 1, "timeout");
                    assert_eq!(batch.peer(0), Some(ends));
                }
            }
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }

    #[test]
    fn any_port_for_both_is_also_free_for_tcp() {
        if !is_root("any_port_for_both_is_also_free_for_tcp") {
            return;
        }
        let in_namespace = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            let range = "/proc/sys/net/ipv4/ip_local_port_range";
            std::fs::write(range, "40000 40003").unwrap();
            let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
            let others = [40_000, 40_001, 40_003].map(|port| listen_tcp(local(port)).unwrap());
            let error = listen_udp_and_tcp(local(40_000), 1).map(|_| ()).unwrap_err();
            assert!(matches!(error, ListenError::Tcp(_)), "that port was asked for: {error}");
            for count in [1, 3] {
                let (endpoints, listener) =
                    retry_until_free(|| listen_udp_and_tcp(local(0), count));
                assert_eq!(endpoints.len(), count);
                assert_eq!(listener.local_addr().unwrap(), local(40_002));
                for endpoint in endpoints {
                    assert_eq!(endpoint.local_address().unwrap(), local(40_002));
                }
            }
            let last = retry_until_free(|| listen_udp_and_tcp(local(0), 1));
            let error = listen_udp_and_tcp(local(0), 1).map(|_| ()).unwrap_err();
            assert_eq!(error.cause().kind(), io::ErrorKind::AddrInUse, "{error}");
            drop((others, last));
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }

    #[test]
    fn foreign_addresses_are_rejected_despite_freebind() {
        for local in ["[2001:db8::1]:0", "192.0.2.1:0"] {
            let local: SocketAddr = local.parse().unwrap();
            let error = bound_to(local).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable, "{local}");
        }
        assert_eq!(
            bound_to("127.3.2.1:0".parse().unwrap()).unwrap().local_addr().unwrap().ip(),
            IpAddr::from([127, 3, 2, 1])
        );
    }

    #[test]
    fn no_other_socket_joins_a_port_of_the_tester() {
        let server: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let (connected, _strays) = Endpoint::client_pair(server, 0).unwrap();
        let port = connected.local_address().unwrap().port();
        for address in [SocketAddr::from(([0, 0, 0, 0], port)), ([127, 0, 0, 1], port).into()] {
            let other = Endpoint::new(address).unwrap();
            other.socket.set_reuse_address(true).unwrap();
            other.socket.set_reuse_port(true).unwrap();
            let error = other.socket.bind(&SockAddr::from(address)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{address}");
        }
    }
}
