//! Transport of the queries of a check: single datagrams over UDP, or a TCP connection. There are no retries, and the
//! timeout is that of a stub resolver.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Default timeout of a stub resolver (`timeout:5` in resolv.conf(5)).
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Sends one datagram from a new socket. Returns the first datagram from the server, or `None` if none arrives within
/// `patience`.
///
/// # Errors
/// Returns an error if no socket can be opened. A closed port counts as a missing reply.
pub fn datagram(to: SocketAddr, query: &[u8], patience: Duration) -> io::Result<Option<Vec<u8>>> {
    exchange(&client(to)?, query, patience)
}

/// Returns a new socket, with a new port, for queries to a server.
///
/// # Errors
/// Returns an error if no more sockets can be opened.
pub fn client(to: SocketAddr) -> io::Result<UdpSocket> {
    let own: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a query and returns the reply, or `None` if no reply arrives within `patience`.
///
/// # Errors
/// Returns an error if no timeout can be set on the socket.
pub fn exchange(
    socket: &UdpSocket,
    query: &[u8],
    patience: Duration,
) -> io::Result<Option<Vec<u8>>> {
    let give_up = Instant::now() + patience;
    if socket.send(query).is_err() {
        return Ok(None);
    }
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(len) => return Ok(Some(buffer[..len].to_vec())),
            // ICMP reports a stopped server at once, so there is no need to wait for the timeout.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(_) => {}
        }
    }
}

/// A connection to the server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Connects to the server.
    ///
    /// # Errors
    /// Returns the error of the system call, or a timeout error after `patience`.
    pub fn open(to: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream })
    }

    /// Sends octets unchanged. The caller must add the length prefix (RFC 1035 §4.2.2).
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn send_raw(&mut self, octets: &[u8]) -> io::Result<()> {
        self.stream.write_all(octets)
    }

    /// Sends a message, preceded by its length prefix.
    ///
    /// # Errors
    /// Returns an error if the system call fails.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        self.stream.write_all(&[&len.to_be_bytes(), message].concat())
    }

    /// Returns the next message. Returns `None` if the server has closed the connection, or if the message is not
    /// complete within `patience`.
    ///
    /// # Errors
    /// Returns an error if no timeout can be set.
    pub fn receive(&mut self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let give_up = Instant::now() + patience;
        let mut len = [0; 2];
        if !self.fill(&mut len, give_up)? {
            return Ok(None);
        }
        let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
        Ok(self.fill(&mut message, give_up)?.then_some(message))
    }

    /// Reads until the buffer is full, or until the time `give_up`. Returns true if the buffer is full. A server that
    /// sends single octets does not extend this time limit.
    fn fill(&mut self, buffer: &mut [u8], give_up: Instant) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(false),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn timeout_covers_a_reply_sent_octet_by_octet() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let dripping = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Each octet arrives within the timeout, but the whole message does not. The client closes the connection
            // first.
            for octet in [16, 0].into_iter().chain(std::iter::repeat_n(0, 400)) {
                if stream.write_all(&[octet]).is_err() {
                    return true;
                }
                thread::sleep(Duration::from_millis(25));
            }
            false
        });
        let mut connection = Connection::open(address, Duration::from_secs(5)).unwrap();
        assert_eq!(connection.receive(Duration::from_millis(200)).unwrap(), None);
        drop(connection);
        assert!(dripping.join().unwrap(), "all octets could be sent");
    }
}
