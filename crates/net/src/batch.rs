//! Receiving and sending of many datagrams per system call (`recvmmsg`, `sendmmsg`).

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use libc::{c_void, iovec, mmsghdr, msghdr, sockaddr_storage, socklen_t};
use units::Nanos;

pub use crate::peer::Peer;
use crate::socket::Endpoint;

/// Maximum number of datagrams per system call.
pub const BATCH: usize = 64;
/// Size, in octets, of the memory for one received message if receive offload is enabled. The largest datagram fits
/// into it. The size is an odd number of cache lines. The beginnings of consecutive messages are therefore stored in
/// different sets of the CPU cache. Most messages use only the beginning of their memory.
pub const OFFLOAD_LEN: usize = 1027 * 64;
/// Size, in octets, of the buffer for ancillary data. A timestamp, a segment size and a destination address need 104
/// octets.
const CONTROL_LEN: usize = 128;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

/// Blocking behaviour of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Blocks until the first datagram arrives or the socket's timeout expires, then reads all datagrams that have
    /// arrived.
    ForFirst,
    /// Reads the datagrams that have arrived, without blocking.
    NonBlocking,
}

/// A batch of received datagrams; its memory is reused for each batch.
pub struct ReceiveBatch {
    slot_len: usize,
    bytes: Box<[u8]>,
    sources: Box<[sockaddr_storage]>,
    controls: Box<[Control]>,
    iovecs: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
    count: usize,
    /// Number of message headers (`mmsghdr`) that must be written before the next receive. These are the headers that
    /// the kernel has filled, and one more that it may have begun to fill. Initially, all headers must be written.
    used: usize,
}

// SAFETY: the raw pointers in `iovecs` and `headers` point into boxes that the same value owns and never replaces, so
// the value may move to another thread.
unsafe impl Send for ReceiveBatch {}

/// A received datagram, borrowed from its batch. If the kernel has joined several datagrams, the value contains all of
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Payload. With receive offload, the concatenated payloads of several datagrams.
    pub bytes: &'a [u8],
    /// Length of each datagram if `bytes` contains several datagrams, otherwise `None`. The last datagram may be
    /// shorter.
    pub segment: Option<usize>,
    /// Wall-clock time at which the kernel received the datagram; `None` if timestamps are not enabled on the socket.
    pub received: Option<Nanos>,
    /// True if the datagram was received by AF_XDP, and the sender left the computation of the checksum to a network
    /// card. This is always the case if several datagrams are sent as one large packet (`UDP_SEGMENT`).
    pub has_partial_checksum: bool,
}

impl<'a> Datagram<'a> {
    /// Iterates over the individual datagrams.
    #[inline]
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // chunks() would yield nothing for an empty datagram, but the caller must count it although it is not a DNS
        // message.
        let (bytes, size) = (self.bytes, self.segment.unwrap_or(self.bytes.len()).max(1));
        let empty = bytes.is_empty().then_some(bytes);
        empty.into_iter().chain(bytes.chunks(size))
    }
}

impl ReceiveBatch {
    /// Allocates a batch of [`BATCH`] datagrams of up to `slot_len` octets. Longer datagrams are truncated on receipt.
    pub fn new(slot_len: usize) -> ReceiveBatch {
        // SAFETY: sockaddr_storage, iovec and mmsghdr are plain data for which all zeros is a valid
        // value.
        let (source, iov, header) = unsafe { (zeroed(), zeroed::<iovec>(), zeroed::<mmsghdr>()) };
        ReceiveBatch {
            slot_len,
            bytes: vec![0; slot_len * BATCH].into(),
            sources: vec![source; BATCH].into(),
            controls: vec![Control([0; CONTROL_LEN]); BATCH].into(),
            iovecs: vec![iov; BATCH].into(),
            headers: vec![header; BATCH].into(),
            count: 0,
            used: BATCH,
        }
    }

    /// Receives up to [`BATCH`] datagrams and returns their number.
    ///
    /// # Errors
    /// Returns any error from recvmmsg(2), including an ICMP error for an earlier datagram, which the kernel reports
    /// once. If no datagram arrives in time, the result is 0 without an error.
    pub fn receive(&mut self, endpoint: &Endpoint, wait: Wait) -> io::Result<usize> {
        self.receive_up_to(BATCH, endpoint, wait)
    }

    /// Receives up to `most` datagrams (1 to [`BATCH`]) and returns their number.
    ///
    /// # Errors
    /// Returns the same errors as [`ReceiveBatch::receive`].
    pub fn receive_up_to(
        &mut self,
        most: usize,
        endpoint: &Endpoint,
        wait: Wait,
    ) -> io::Result<usize> {
        let flags = match wait {
            Wait::ForFirst => libc::MSG_WAITFORONE,
            Wait::NonBlocking => libc::MSG_DONTWAIT,
        };
        self.count = 0;
        // The kernel changes only the headers that it fills, usually one per call. The other headers are still valid.
        for i in 0..std::mem::replace(&mut self.used, 1) {
            self.iovecs[i] = iovec {
                iov_base: (&raw mut self.bytes[i * self.slot_len]).cast::<c_void>(),
                iov_len: self.slot_len,
            };
            self.headers[i].msg_hdr = msghdr {
                msg_name: (&raw mut self.sources[i]).cast(),
                msg_namelen: size_of::<sockaddr_storage>() as socklen_t,
                msg_iov: &raw mut self.iovecs[i],
                msg_iovlen: 1,
                msg_control: (&raw mut self.controls[i]).cast(),
                msg_controllen: CONTROL_LEN as _,
                msg_flags: 0,
            };
        }
        // SAFETY: each header points to a slot of `bytes`, an address and a control buffer, all of the stated lengths
        // and all owned by `self`, which is borrowed exclusively until the call has returned.
        let received = unsafe {
            libc::recvmmsg(
                endpoint.socket().as_raw_fd(),
                self.headers.as_mut_ptr(),
                most.clamp(1, BATCH) as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        self.count = received as usize;
        self.used = (self.count + 1).min(BATCH);
        Ok(self.count)
    }

    /// Iterates over the datagrams of the last receive.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        (0..self.count).map(|i| self.datagram(i))
    }

    fn bytes_of(&self, i: usize) -> &[u8] {
        let len = (self.headers[i].msg_len as usize).min(self.slot_len);
        &self.bytes[i * self.slot_len..][..len]
    }

    fn datagram(&self, i: usize) -> Datagram<'_> {
        let mut datagram = Datagram {
            bytes: self.bytes_of(i),
            segment: None,
            received: None,
            has_partial_checksum: false,
        };
        let message = &raw const self.headers[i].msg_hdr;
        // SAFETY: `message` was filled by recvmmsg: msg_control points into `self.controls`, and msg_controllen is the
        // valid length, so the CMSG macros stay within the control data. The data of each type has the size that the
        // kernel defines for the type, and is read without an assumption about alignment.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(message);
            while !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let t = data.cast::<libc::timespec>().read_unaligned();
                        datagram.received =
                            Some(Nanos(t.tv_sec as u64 * Nanos::SECOND.0 + t.tv_nsec as u64));
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        datagram.segment =
                            Some(data.cast::<libc::c_int>().read_unaligned() as usize);
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        datagram
    }

    /// Returns the source of datagram `i` of the last receive, and its destination if the socket is bound to a wildcard
    /// address. Returns `None` if the kernel reports no IP address.
    #[inline]
    pub fn peer(&self, i: usize) -> Option<Peer> {
        Some(Peer { address: self.source(i)?, local: self.destination(i) })
    }

    /// Returns datagram `i` of the last receive.
    ///
    /// # Panics
    /// Panics if the last receive returned fewer datagrams.
    #[inline]
    pub fn get(&self, i: usize) -> Datagram<'_> {
        assert!(i < self.count, "datagram {i} of {}", self.count);
        self.datagram(i)
    }

    fn destination(&self, i: usize) -> Option<IpAddr> {
        let message = &raw const self.headers[i].msg_hdr;
        // SAFETY: as in `datagram`: the kernel wrote the control data and its length, and each type has the size read
        // here.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(message);
            while !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                        return Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                        let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                        return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        None
    }

    /// Returns the position and length of the ancillary data that contains the destination address of datagram `i`. If
    /// this data is sent with the reply, it sets the reply's source address. The kernel would reject other ancillary
    /// data, such as timestamps.
    fn return_address(&self, i: usize) -> (*mut c_void, usize) {
        let message = &raw const self.headers[i].msg_hdr;
        // SAFETY: as in `datagram`: the kernel wrote the control data and its length, so the CMSG macros stay inside
        // it.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(message);
            while !header.is_null() {
                if let (libc::IPPROTO_IP, libc::IP_PKTINFO)
                | (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) =
                    ((*header).cmsg_level, (*header).cmsg_type)
                {
                    return (header.cast(), (*header).cmsg_len as usize);
                }
                header = libc::CMSG_NXTHDR(message, header);
            }
        }
        (std::ptr::null_mut(), 0)
    }

    fn source(&self, i: usize) -> Option<SocketAddr> {
        let storage = &raw const self.sources[i];
        match libc::c_int::from(self.sources[i].ss_family) {
            libc::AF_INET => {
                // SAFETY: the family shows that the kernel wrote a sockaddr_in, for which sockaddr_storage has
                // sufficient size and alignment.
                let a = unsafe { *storage.cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(a.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above, with sockaddr_in6.
                let a = unsafe { *storage.cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(a.sin6_addr.s6_addr);
                Some(
                    SocketAddrV6::new(
                        ip,
                        u16::from_be(a.sin6_port),
                        a.sin6_flowinfo,
                        a.sin6_scope_id,
                    )
                    .into(),
                )
            }
            _ => None,
        }
    }
}

/// Result of receiving one batch of queries and sending the replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Number of datagrams received.
    pub received: usize,
    /// Number of replies accepted by the kernel.
    pub sent: usize,
    /// Number of replies rejected by the kernel.
    pub refused: usize,
}

/// Memory for receiving a batch of queries and sending a batch of replies.
pub struct ServerBatch {
    queries: ReceiveBatch,
    reply_len: usize,
    replies: Box<[u8]>,
    iovecs: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
}

// SAFETY: as for `ReceiveBatch`: the pointers are rewritten before each use and point into boxes of the same value.
unsafe impl Send for ServerBatch {}

impl ServerBatch {
    /// Allocates memory for [`BATCH`] queries and their replies. A query has up to `query_len` octets, and a reply up
    /// to `reply_len` octets.
    pub fn new(query_len: usize, reply_len: usize) -> ServerBatch {
        // SAFETY: plain data, for which all zeros is a valid value.
        let (iov, header) = unsafe { (zeroed::<iovec>(), zeroed::<mmsghdr>()) };
        ServerBatch {
            queries: ReceiveBatch::new(query_len),
            reply_len,
            replies: vec![0; reply_len * BATCH].into(),
            iovecs: vec![iov; BATCH].into(),
            headers: vec![header; BATCH].into(),
        }
    }

    /// Receives a batch of queries and sends the replies. Each reply is sent from the destination address of its query.
    /// `answer` writes the reply to a query and returns the reply's length, or 0 for no reply.
    ///
    /// # Panics
    /// Panics if `answer` returns more than the length of its slice.
    ///
    /// # Errors
    /// Returns any error from recvmmsg(2). A reply that cannot be sent is counted but is not an error, because clients
    /// may disappear at any time.
    #[inline]
    pub fn turn(
        &mut self,
        endpoint: &Endpoint,
        wait: Wait,
        mut answer: impl FnMut(&Datagram<'_>, Source<'_>, &mut [u8]) -> usize,
    ) -> io::Result<Turn> {
        let received = self.queries.receive(endpoint, wait)?;
        let mut count = 0;
        for i in 0..received {
            let slot = &mut self.replies[count * self.reply_len..][..self.reply_len];
            let len = answer(&self.queries.datagram(i), Source(Origin::Of(&self.queries, i)), slot);
            if len == 0 {
                continue;
            }
            // A longer length would let the kernel read beyond the slot.
            let reply = &mut slot[..len];
            self.iovecs[count] =
                iovec { iov_base: reply.as_mut_ptr().cast::<c_void>(), iov_len: reply.len() };
            // The query's source is the reply's destination.
            let query = &self.queries.headers[i].msg_hdr;
            let (control, control_len) = if endpoint.reports_destination() {
                self.queries.return_address(i)
            } else {
                (std::ptr::null_mut(), 0)
            };
            self.headers[count].msg_hdr = msghdr {
                msg_iov: &raw mut self.iovecs[count],
                msg_iovlen: 1,
                msg_flags: 0,
                msg_name: query.msg_name,
                msg_namelen: query.msg_namelen,
                msg_control: control,
                msg_controllen: control_len as _,
            };
            count += 1;
        }
        let mut turn = Turn { received, ..Turn::default() };
        while turn.sent + turn.refused < count {
            let done = turn.sent + turn.refused;
            // SAFETY: headers `done..count` were written above; they point into `self.replies`,
            // `self.iovecs` and `self.queries`, none of which changes before the call is over.
            let sent = unsafe {
                libc::sendmmsg(
                    endpoint.socket().as_raw_fd(),
                    self.headers[done..].as_mut_ptr(),
                    (count - done) as libc::c_uint,
                    0,
                )
            };
            match sent {
                n if n > 0 => turn.sent += n as usize,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                // The kernel rejected only the first of the remaining replies.
                _ => turn.refused += 1,
            }
        }
        Ok(turn)
    }
}

/// Source address and port of a query. [`Source::address`] decodes the address structure of the kernel.
#[derive(Clone, Copy)]
pub struct Source<'a>(Origin<'a>);

#[derive(Clone, Copy)]
enum Origin<'a> {
    /// Address structure that the kernel wrote for the datagram with this index in the batch.
    Of(&'a ReceiveBatch, usize),
    Known(SocketAddr),
}

impl Source<'_> {
    /// Creates a source from a client's address and port.
    pub(crate) fn known(address: SocketAddr) -> Source<'static> {
        Source(Origin::Known(address))
    }

    /// Returns the client's address and port, or `None` if the kernel reports no IP address.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.0 {
            Origin::Of(batch, index) => batch.source(index),
            Origin::Known(address) => Some(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    use units::Share;

    use crate::clock::ClockPair;

    fn server(address: &str) -> (Endpoint, SocketAddr) {
        let endpoint = Endpoint::listen(address.parse().unwrap(), 1).unwrap().remove(0);
        endpoint.set_receive_timeout(testbed::LAST_RESORT).unwrap();
        let mut local = endpoint.local_address().unwrap();
        if local.ip().is_unspecified() {
            local.set_ip(if local.is_ipv4() {
                "127.0.0.2".parse().unwrap()
            } else {
                "::1".parse().unwrap()
            });
        }
        (endpoint, local)
    }

    fn echo_reaches(listen: &str) {
        let (server, address) = server(listen);
        // A server that receives timestamps must not send them back.
        server.use_kernel_timestamps().unwrap();
        let (client, unmatched) = Endpoint::client_pair(address, 0).unwrap();
        client.use_kernel_timestamps().unwrap();
        client.set_receive_timeout(testbed::LAST_RESORT).unwrap();
        client.send_segmented(b"onetwosix", 3).unwrap();

        let mut batch = ServerBatch::new(512, 512);
        let mut from = Vec::new();
        while from.len() < 3 {
            let turn = batch
                .turn(&server, Wait::ForFirst, |query, source, reply| {
                    from.push(source.address().unwrap().port());
                    reply[..query.bytes.len()].copy_from_slice(query.bytes);
                    query.bytes.len()
                })
                .unwrap();
            assert_eq!((turn.sent, turn.refused), (turn.received, 0));
            assert!(turn.received > 0, "timeout");
        }
        assert_eq!(from, [client.local_address().unwrap().port(); 3]);

        let mut received = Vec::new();
        let mut batch = ReceiveBatch::new(512);
        while received.len() < 3 {
            assert!(batch.receive(&client, Wait::ForFirst).unwrap() > 0, "timeout");
            let pair = ClockPair::sample();
            for datagram in batch.iter() {
                let arrived = pair.to_monotonic(datagram.received.unwrap());
                assert!(pair.monotonic().since(arrived) < Nanos(5 * Nanos::SECOND.0));
                received.extend(datagram.segments().map(<[u8]>::to_vec));
            }
        }
        assert_eq!(received, [b"one", b"two", b"six"]);
        assert_eq!(batch.receive(&unmatched, Wait::NonBlocking).unwrap(), 0);
    }

    #[test]
    fn segmented_queries_come_back_one_by_one() {
        echo_reaches("127.0.0.1:0");
        echo_reaches("[::1]:0");
    }

    #[test]
    fn wildcard_servers_answer_from_the_address_asked() {
        // The client is connected to 127.0.0.2: a reply from 127.0.0.1 would not reach it.
        let free = Endpoint::listen("127.0.0.1:0".parse().unwrap(), 1).unwrap()[0]
            .local_address()
            .unwrap()
            .port();
        echo_reaches(&format!("0.0.0.0:{free}"));
        echo_reaches(&format!("[::]:{free}"));
    }

    #[test]
    fn packets_of_other_sources_go_to_the_second_socket() {
        let (_server, address) = server("127.0.0.1:0");
        let (client, unmatched) = Endpoint::client_pair(address, 0).unwrap();
        unmatched.set_receive_timeout(testbed::LAST_RESORT).unwrap();
        let (stranger, _) = server("127.0.0.1:0");
        let mut to = client.local_address().unwrap();
        to.set_ip("127.0.0.1".parse().unwrap());
        stranger.send_to(b"boo", to).unwrap();
        let mut batch = ReceiveBatch::new(512);
        assert_eq!(batch.receive(&unmatched, Wait::ForFirst).unwrap(), 1);
        assert_eq!(batch.receive(&client, Wait::NonBlocking).unwrap(), 0);
    }

    #[test]
    fn receive_offload_keeps_datagrams_apart() {
        let (server, address) = server("127.0.0.1:0");
        assert!(server.use_receive_offload());
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        client.send_segmented(b"aaabbbcc", 3).unwrap();
        let mut batch = ReceiveBatch::new(65_535);
        let mut got = Vec::new();
        while got.len() < 3 {
            assert!(batch.receive(&server, Wait::ForFirst).unwrap() > 0, "timeout");
            got.extend(
                batch.iter().flat_map(|d| d.segments().map(<[u8]>::to_vec).collect::<Vec<_>>()),
            );
        }
        assert_eq!(got, [&b"aaa"[..], b"bbb", b"cc"]);
        assert_eq!(server.drops(), 0);
    }

    #[test]
    #[should_panic(expected = "out of range for slice of length 16")]
    fn replies_longer_than_their_slot_panic() {
        let (server, address) = server("127.0.0.1:0");
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        client.send(b"query").unwrap();
        let _ = ServerBatch::new(512, 16).turn(&server, Wait::ForFirst, |_, _, _| 17);
    }

    /// Datagrams that arrived before timestamps were switched on carry the time at which they are read.
    #[test]
    fn timestamps_can_be_switched_on_and_off() {
        let (server, address) = server("127.0.0.1:0");
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        let mut batch = ReceiveBatch::new(512);
        let mut is_stamped = || {
            assert_eq!(batch.receive(&server, Wait::ForFirst).unwrap(), 1, "timeout");
            batch.get(0).received.is_some()
        };
        client.send(b"one").unwrap();
        assert!(!is_stamped());
        client.send(b"two").unwrap();
        server.use_kernel_timestamps().unwrap();
        assert!(is_stamped());
        client.send(b"three").unwrap();
        server.stop_kernel_timestamps().unwrap();
        assert!(!is_stamped());
    }

    #[test]
    fn the_kernel_drops_a_share_of_arrivals() {
        let (server, address) = server("127.0.0.1:0");
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        let mut batch = ReceiveBatch::new(512);
        for (percent, least, most) in
            [(50, 700, 1_300), (0, 2_000, 2_000), (100, 0, 0), (10, 1_600, 1_999)]
        {
            server.drop_arrivals(Share::percent(percent)).unwrap();
            let mut received = 0;
            for _ in 0..2_000 {
                client.send(b"query").unwrap();
                // The loopback interface delivers a datagram before send(2) returns.
                received += batch.receive(&server, Wait::NonBlocking).unwrap_or(0);
            }
            assert!((least..=most).contains(&received), "{percent} %: {received}");
        }
        assert!(server.drops() > 2_000);
    }

    #[test]
    fn an_adopted_socket_drops_no_arrivals() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let adopt = || Endpoint::adopt(socket.try_clone().unwrap(), 1).unwrap().remove(0);
        adopt().drop_arrivals(Share::ONE).unwrap();
        let next = adopt();
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        client.send(b"query").unwrap();
        assert_eq!(ReceiveBatch::new(512).receive(&next, Wait::NonBlocking).unwrap(), 1);
    }

    #[test]
    fn an_address_is_shared_only_between_our_sockets() {
        let ours = Endpoint::listen("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let address = ours[0].local_address().unwrap();
        assert!(ours.iter().all(|endpoint| endpoint.local_address().unwrap() == address));
        assert!(Endpoint::listen(address, 3).is_err(), "a second server got hold of the address");
    }

    #[test]
    fn full_buffers_are_counted() {
        let (server, address) = server("127.0.0.1:0");
        server.socket().set_recv_buffer_size(4096).unwrap();
        let (client, _strays) = Endpoint::client_pair(address, 0).unwrap();
        for _ in 0..100 {
            client.send(&[0; 100]).unwrap();
        }
        assert!(server.drops() > 0);
    }
}
