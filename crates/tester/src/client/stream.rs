//! A non-blocking TCP connection with many queries in flight (RFC 7766).
//!
//! ```text
//! connect ─► Connecting ── writable ─► Open ── closed by the server, or an error ─► dropped (the next query
//! reconnects)
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use net::clock;
use net::poller::Poller;
use socket2::{Domain, Protocol, Socket, Type};
use units::Nanos;

/// Maximum number of consecutive reads from one connection before other connections are read.
const READS: u32 = 16;
/// Octets per read.
const READ: usize = 64 << 10;

/// A TCP connection, with the data still to be written and the part of a response read so far.
pub(super) struct Stream {
    socket: TcpStream,
    begun: Nanos,
    is_open: bool,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    /// True if the connection has delivered a message.
    brought: bool,
}

/// Result of processing a connection.
#[derive(Default)]
pub(super) struct StreamEvent {
    /// Setup time of the connection, if it has just been established.
    pub(super) connected: Option<Nanos>,
    /// True if the connection is closed.
    pub(super) closed: bool,
    /// True if there may be more to read. The caller must read again, because the poller reports new octets only once.
    pub(super) more: bool,
}

impl Stream {
    /// Starts a TCP connection. `poller` reports the events of the connection, and identifies the connection by
    /// `token`.
    pub(super) fn begin(
        server: SocketAddr,
        local: Option<SocketAddr>,
        buffer: Option<usize>,
        poller: &Poller,
        token: usize,
    ) -> io::Result<Stream> {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(octets) = buffer {
            socket.set_recv_buffer_size(octets)?;
            socket.set_send_buffer_size(octets)?;
        }
        if let Some(local) = local {
            socket.set_reuse_address(true)?;
            socket.bind(&local.into())?;
        }
        let begun = clock::now();
        match socket.connect(&server.into()) {
            Err(e) if e.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => {
                return Err(e);
            }
            _ => {}
        }
        let socket = TcpStream::from(socket);
        poller.add_stream(&socket, token)?;
        Ok(Stream {
            socket,
            begun,
            is_open: false,
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
            brought: false,
        })
    }

    /// Returns true if the connection is established.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Appends a message with its length prefix to the output.
    pub(super) fn push<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.output.len();
        self.output.extend([0, 0]);
        let result = write(&mut self.output);
        let len = (self.output.len() - start - 2) as u16;
        self.output[start..start + 2].copy_from_slice(&len.to_be_bytes());
        result
    }

    /// Writes and reads until the socket would block. Passes every complete message to `on_message`.
    pub(super) fn work(&mut self, mut on_message: impl FnMut(&[u8])) -> StreamEvent {
        let mut news = StreamEvent::default();
        if !self.is_open {
            match self.socket.take_error() {
                Ok(None) if self.socket.peer_addr().is_ok() => {
                    self.is_open = true;
                    news.connected = Some(clock::now().since(self.begun));
                }
                Ok(None) => return news,
                _ => return StreamEvent { closed: true, ..news },
            }
        }
        news.closed = self.write().is_err();
        for _ in 0..READS {
            let filled = self.input.len();
            self.input.resize(filled + READ, 0);
            let read = self.socket.read(&mut self.input[filled..]);
            self.input.truncate(filled + read.as_ref().map_or(0, |&n| n));
            match read {
                Ok(0) => news.closed = true,
                Ok(_) => {
                    self.take_messages(&mut on_message);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => news.closed = true,
            }
            return news;
        }
        news.more = true;
        news
    }

    /// Returns true if the connection has delivered a message.
    pub(super) fn has_brought(&self) -> bool {
        self.brought
    }

    /// Writes pending output until the socket would block.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.is_open && self.written < self.output.len() {
            match self.socket.write(&self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        Ok(())
    }

    fn take_messages(&mut self, on_message: &mut impl FnMut(&[u8])) {
        let mut at = 0;
        while let Some(head) = self.input[at..].first_chunk::<2>() {
            let len = usize::from(u16::from_be_bytes(*head));
            let Some(message) = self.input.get(at + 2..at + 2 + len) else { break };
            self.brought = true;
            on_message(message);
            at += 2 + len;
        }
        self.input.drain(..at);
    }
}
