//! Sending of multiple datagrams. One `sendmmsg` sends all of them, and datagrams of equal length to the same peer pass
//! the network stack as one packet (`UDP_SEGMENT`).

use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;

use libc::{c_void, iovec, mmsghdr, sockaddr_storage};

use crate::control::{CONTROL_LEN, Control, write_address, write_control};
use crate::peer::Peer;
use crate::socket::Endpoint;

/// Maximum number of datagrams in a queue.
const ROOM: usize = 64;
/// Limits on the datagrams that are sent as one large packet. The kernel accepts at most 64 datagrams (UDP_MAX_SEGMENTS
/// of older kernels) and 65 535 octets including headers.
const MAX_SEGMENTS: usize = 64;
const MAX_SEGMENTED: usize = 65_000;

#[derive(Clone, Copy)]
struct Queued {
    /// Destination of the datagram; `None` for the connected peer.
    peer: Option<Peer>,
    start: usize,
    len: usize,
}

/// Result of sending the queued datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Number of datagrams accepted by the kernel.
    pub sent: usize,
    /// Number of datagrams rejected by the kernel.
    pub refused: usize,
    /// The last error with which the kernel rejected a datagram because of an ICMP message or the routing table. `None`
    /// if there was no such error.
    pub unreachable: Option<io::ErrorKind>,
}

/// Datagrams waiting to be sent on one socket.
pub struct SendQueue {
    bytes: Vec<u8>,
    queued: Vec<Queued>,
    iovecs: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
    addresses: Box<[sockaddr_storage]>,
    controls: Box<[Control]>,
    /// For each message passed to `sendmmsg`, the number of datagrams in it.
    carried: [usize; ROOM],
    /// True if several datagrams are sent as one large packet, which the kernel or the interface then segments. It
    /// becomes false when a send attempt shows that segmentation is not supported.
    segments: bool,
}

// SAFETY: the raw pointers in `iovecs` and `headers` are rewritten in `flush` before each use and point into buffers
// that the same value owns, so the value may move to another thread.
unsafe impl Send for SendQueue {}

impl Default for SendQueue {
    fn default() -> Self {
        SendQueue::new()
    }
}

impl SendQueue {
    /// Creates an empty queue.
    pub fn new() -> SendQueue {
        // SAFETY: iovec, mmsghdr and sockaddr_storage are plain data for which all zeros is a valid
        // value.
        let (iov, header, address) = unsafe { (zeroed::<iovec>(), zeroed::<mmsghdr>(), zeroed()) };
        SendQueue {
            bytes: Vec::with_capacity(ROOM * 256),
            queued: Vec::with_capacity(ROOM),
            iovecs: vec![iov; ROOM].into(),
            headers: vec![header; ROOM].into(),
            addresses: vec![address; ROOM].into(),
            controls: vec![Control([0; CONTROL_LEN]); ROOM].into(),
            carried: [0; ROOM],
            segments: true,
        }
    }

    /// Creates an empty queue that never sends several datagrams as one large packet.
    pub fn without_offload() -> SendQueue {
        SendQueue { segments: false, ..SendQueue::new() }
    }

    /// True if no datagrams are waiting to be sent.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// True if the queue must be flushed before another datagram is added.
    pub fn is_full(&self) -> bool {
        self.queued.len() >= ROOM
    }

    /// Queues one datagram for `peer`, or for the connected peer if `peer` is `None`. `write` appends the payload of
    /// the datagram to a buffer. If `write` appends nothing, no datagram is queued.
    ///
    /// # Panics
    /// Panics if the queue is full.
    #[inline]
    pub fn push(&mut self, peer: Option<Peer>, write: impl FnOnce(&mut Vec<u8>)) {
        assert!(!self.is_full(), "flush a full queue first");
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        if len > 0 {
            self.queued.push(Queued { peer, start, len });
        }
    }

    /// Sends the queued datagrams on `endpoint`.
    pub fn flush(&mut self, endpoint: &Endpoint) -> Flushed {
        let mut flushed = Flushed::default();
        if self.queued.is_empty() {
            return flushed;
        }
        // After sorting, datagrams that can pass the stack together are adjacent. The order between peers is
        // irrelevant.
        if self.queued.len() > 1 && self.queued.iter().any(|q| q.peer.is_some()) {
            self.queued.sort_unstable_by_key(|q| (q.peer, q.len, q.start));
        }
        let messages = self.prepare();
        let (mut message, mut datagram) = (0, 0);
        while message < messages {
            // SAFETY: headers `message..messages` were written by `prepare`; they point into buffers of `self` that do
            // not change before the call has returned.
            let sent = unsafe {
                libc::sendmmsg(
                    endpoint.socket().as_raw_fd(),
                    self.headers[message..].as_mut_ptr(),
                    (messages - message) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                for &carried in &self.carried[message..message + sent as usize] {
                    flushed.sent += carried;
                    datagram += carried;
                }
                message += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            // Only the first message was rejected. EIO and EINVAL may mean that this interface does not segment.
            // EMSGSIZE may mean that the path MTU is too small for segmentation. Segmentation is the cause if the
            // datagrams can be sent one by one.
            let carried = self.carried[message];
            let unreachable = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH];
            if error.raw_os_error().is_some_and(|code| unreachable.contains(&code)) {
                flushed.unreachable = Some(error.kind());
            }
            if carried > 1
                && matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
            {
                let one_by_one = (datagram..datagram + carried)
                    .filter(|&at| self.send_one(endpoint, at))
                    .count();
                flushed.sent += one_by_one;
                flushed.refused += carried - one_by_one;
                self.segments &= one_by_one == 0 || error.raw_os_error() == Some(libc::EMSGSIZE);
            } else {
                flushed.refused += carried;
            }
            datagram += carried;
            message += 1;
        }
        self.queued.clear();
        self.bytes.clear();
        flushed
    }

    /// Writes the message headers for the queued datagrams, and returns the number of headers.
    fn prepare(&mut self) -> usize {
        let (mut messages, mut at) = (0, 0);
        while at < self.queued.len() {
            let first = self.queued[at];
            let most =
                if self.segments { MAX_SEGMENTS.min(MAX_SEGMENTED / first.len).max(1) } else { 1 };
            let same = |q: &&Queued| q.peer == first.peer && q.len == first.len;
            let carried = self.queued[at..].iter().take(most).take_while(same).count();
            for (iov, q) in self.iovecs[at..].iter_mut().zip(&self.queued[at..at + carried]) {
                *iov = iovec {
                    iov_base: self.bytes[q.start..].as_mut_ptr().cast::<c_void>(),
                    iov_len: q.len,
                };
            }
            let segment = (carried > 1).then_some(first.len as u16);
            self.write_header(messages, first.peer, at, carried, segment);
            self.carried[messages] = carried;
            messages += 1;
            at += carried;
        }
        messages
    }

    fn write_header(
        &mut self,
        message: usize,
        peer: Option<Peer>,
        iov: usize,
        iovs: usize,
        segment: Option<u16>,
    ) {
        // SAFETY: msghdr is plain data; all zeros is a valid value with null pointers and zero
        // lengths.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = &raw mut self.iovecs[iov];
        header.msg_iovlen = iovs as _;
        if let Some(peer) = peer {
            header.msg_namelen = write_address(&mut self.addresses[message], peer.address);
            header.msg_name = (&raw mut self.addresses[message]).cast();
        }
        let local = peer.and_then(|peer| peer.local);
        let control = &mut self.controls[message];
        let used = write_control(control, segment, local);
        if used > 0 {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = used as _;
        }
        self.headers[message].msg_hdr = header;
    }

    fn send_one(&self, endpoint: &Endpoint, at: usize) -> bool {
        let q = self.queued[at];
        let bytes = &self.bytes[q.start..q.start + q.len];
        match q.peer {
            // On this path, the kernel selects the source address, even for a reply from a wildcard socket. The path is
            // rare enough for this to be acceptable.
            Some(peer) => endpoint.send_to(bytes, peer.address).is_ok(),
            None => endpoint.send(bytes).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{ReceiveBatch, Wait};
    use std::net::{IpAddr, SocketAddr, UdpSocket};

    fn received(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        socket.set_read_timeout(Some(testbed::LAST_RESORT)).unwrap();
        let mut bytes = [0; 100];
        let (len, from) = socket.recv_from(&mut bytes).unwrap();
        (bytes[..len].to_vec(), from)
    }

    #[test]
    fn replies_reach_their_peers_from_the_address_they_asked() {
        for (listen, asked) in
            [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1"), ("127.0.0.1:0", "127.0.0.1")]
        {
            let server = Endpoint::listen(listen.parse().unwrap(), 1).unwrap().remove(0);
            server.set_receive_timeout(testbed::LAST_RESORT).unwrap();
            let asked: IpAddr = asked.parse().unwrap();
            let port = server.local_address().unwrap().port();
            let clients: Vec<UdpSocket> =
                (0..2).map(|_| UdpSocket::bind((asked, 0)).unwrap()).collect();
            let mut batch = ReceiveBatch::new(100);
            let mut queue = SendQueue::new();
            for client in &clients {
                client.send_to(b"ask", (asked, port)).unwrap();
            }
            while queue.queued.len() < 8 {
                for i in 0..batch.receive(&server, Wait::ForFirst).unwrap() {
                    let peer = batch.peer(i);
                    for text in [&b"one"[..], b"two", b"three", b"six"] {
                        queue.push(peer, |out| out.extend(text));
                    }
                }
            }
            assert_eq!(queue.flush(&server), Flushed { sent: 8, ..Flushed::default() });
            assert!(queue.is_empty());
            for client in &clients {
                let mut texts = Vec::new();
                for _ in 0..4 {
                    let (text, from) = received(client);
                    assert_eq!(from, SocketAddr::new(asked, port), "{listen}");
                    texts.push(text);
                }
                texts.sort();
                assert_eq!(texts, [&b"one"[..], b"six", b"three", b"two"], "{listen}");
            }
        }
    }

    #[test]
    fn a_connected_queue_keeps_its_order() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = Endpoint::connect(server.local_addr().unwrap()).unwrap();
        let mut queue = SendQueue::new();
        for text in [&b"aa"[..], b"bb", b"c", b"dd"] {
            queue.push(None, |out| out.extend(text));
        }
        queue.push(None, |_| {});
        assert_eq!(queue.flush(&client), Flushed { sent: 4, ..Flushed::default() });
        for text in [&b"aa"[..], b"bb", b"c", b"dd"] {
            assert_eq!(received(&server).0, text);
        }
    }

    #[test]
    fn send_errors_are_counted() {
        let closed = crate::ports::free(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        let client = Endpoint::connect(closed).unwrap();
        client.send(b"provoke an ICMP error").unwrap();
        let mut queue = SendQueue::new();
        queue.push(None, |out| out.extend(b"x"));
        queue.push(None, |out| out.extend(b"yy"));
        let flushed = queue.flush(&client);
        assert_eq!(flushed.sent + flushed.refused, 2);
        assert!(flushed.refused >= 1, "{flushed:?}");
        assert_eq!(flushed.unreachable, Some(io::ErrorKind::ConnectionRefused));
    }
}
