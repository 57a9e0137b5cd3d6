//! Queries of the TCP thread to an upstream, outside of the resolvers of the workers.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use net::address::ServiceAddr;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use wire::view::Message;

use crate::transport::framing::{read_message, write_message};

/// Time limit for an upstream's answer, including a retry over TCP.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends a query to an upstream, and returns the response. If the response over UDP is truncated, the query is sent over
/// TCP.
///
/// # Errors
/// Returns an error if the upstream cannot be reached, or does not answer in time.
pub(super) async fn ask(upstream: ServiceAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let exchange = async {
        let upstream = upstream.resolve()?;
        let answer = ask_over_udp(upstream, query).await?;
        if Message::new(&answer).is_some_and(|message| message.is_truncated()) {
            return ask_over_tcp(upstream, query).await;
        }
        Ok(answer)
    };
    timeout(PATIENCE, exchange).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Returns the first datagram from the upstream that has the query's ID.
async fn ask_over_udp(upstream: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match upstream {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(query).await?;
    let mut buffer = vec![0; 4_096];
    loop {
        let len = socket.recv(&mut buffer).await?;
        // A forged answer with a wrong ID does not end the wait.
        if buffer[..len].starts_with(&query[..2]) {
            buffer.truncate(len);
            return Ok(buffer);
        }
    }
}

async fn ask_over_tcp(upstream: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(upstream).await?;
    write_message(&mut stream, query).await?;
    read_message(&mut stream, PATIENCE).await
}
