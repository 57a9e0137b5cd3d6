//! How a check asks: one datagram or one connection, a stub's patience, and no second try.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long a stub resolver waits for an answer by default: `timeout:5` of resolv.conf(5).
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Sends one datagram from a socket of its own, and returns the first one that comes back from the
/// server; `None` after `patience`.
///
/// # Errors
/// If there is no socket. That nobody listens is silence, not an error.
pub fn datagram(to: SocketAddr, query: &[u8], patience: Duration) -> io::Result<Option<Vec<u8>>> {
    exchange(&client(to)?, query, patience)
}

/// A socket of its own port for queries to a server.
///
/// # Errors
/// If there can be no more sockets.
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
/// If the socket takes no time limit.
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
            // A server that is gone says so at once (ICMP); a stub goes on to its patience's end,
            // a check need not.
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
    /// What the system says; a timeout after `patience`.
    pub fn open(to: SocketAddr, patience: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&to, patience)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream })
    }

    /// Sends octets as they are: a length of its own is the caller's (RFC 1035 §4.2.2).
    ///
    /// # Errors
    /// What the system says.
    pub fn send_raw(&mut self, octets: &[u8]) -> io::Result<()> {
        self.stream.write_all(octets)
    }

    /// Sends a message behind its length.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        self.stream.write_all(&[&len.to_be_bytes(), message].concat())
    }

    /// The next message; `None` if the server has closed the connection, or the message was not
    /// there whole within `patience`.
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

    /// Reads until the buffer is full; whether it is. A server that sends octet by octet has as
    /// much time as one that is silent.
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
    fn a_server_that_sends_octet_by_octet_has_no_more_time_than_a_silent_one() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let dripping = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Each octet comes within the patience, all of them do not. The client closes first.
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
        assert!(dripping.join().unwrap(), "it could send to the end");
    }
}
