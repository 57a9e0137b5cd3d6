//! Sends the queries of a check: one datagram or one connection, with a stub resolver's timeout and no retries.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Default time that a stub resolver waits for an answer: `timeout:5` of resolv.conf(5).
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Sends one datagram from a new socket and returns the first one that comes back from the server; `None` after
/// `patience`.
///
/// # Errors
/// If there is no socket. A closed port counts as silence, not as an error.
pub fn datagram(to: SocketAddr, query: &[u8], patience: Duration) -> io::Result<Option<Vec<u8>>> {
    exchange(&client(to)?, query, patience)
}

/// Returns a socket with a port of its own for queries to a server.
///
/// # Errors
/// If no more sockets can be opened.
pub fn client(to: SocketAddr) -> io::Result<UdpSocket> {
    let own: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a query and returns the reply; `None` if there is none within `patience`.
///
/// # Errors
/// If no timeout can be set on the socket.
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
            // A stopped server is reported at once by ICMP. A stub would wait until its timeout; a check need not.
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
    /// Connects.
    ///
    /// # Errors
    /// Errors of the operating system; a timeout after `patience`.
    pub fn open(to: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream })
    }

    /// Sends octets unchanged, so the caller adds the length prefix (RFC 1035 §4.2.2).
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn send_raw(&mut self, octets: &[u8]) -> io::Result<()> {
        self.stream.write_all(octets)
    }

    /// Sends a message after its length prefix.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        self.stream.write_all(&[&len.to_be_bytes(), message].concat())
    }

    /// Returns the next message, or `None` if the server has closed the connection, or if the message was not
    /// complete within `patience`.
    ///
    /// # Errors
    /// If no timeout can be set.
    pub fn receive(&mut self, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let give_up = Instant::now() + patience;
        let mut len = [0; 2];
        if !self.fill(&mut len, give_up)? {
            return Ok(None);
        }
        let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
        Ok(self.fill(&mut message, give_up)?.then_some(message))
    }

    /// Reads until the buffer is full; returns true if it is. A server that sends octet by octet has the same time as
    /// one that is silent.
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
            // Each octet arrives in time, but all of them together do not. The client closes first.
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
