//! A client that keeps a fixed number of queries in flight. It sends the next query when a reply arrives, so the load
//! does not depend on the clock.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use wire::name::Domain;
use wire::rcode::Rcode;
use wire::template::QueryTemplate;
use wire::view::Message;

/// Time after which a missing reply ends the run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Address of the first name.
const FIRST: u32 = u32::from_be_bytes([10, 0, 0, 0]);

/// Queries to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Number of queries; at most 65 536, so that each has a different ID.
    pub(super) queries: u32,
    /// Number of queries in flight.
    pub(super) in_flight: u32,
    /// Number of different names, which are used in a cycle.
    pub(super) names: u32,
}

impl Load {
    /// Sends the queries to `server` and waits for every reply.
    ///
    /// # Errors
    /// Returns an error if a reply is missing, arrives twice, or contains no answer.
    pub(super) fn send(self, server: SocketAddr) -> Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut query = QueryTemplate::aaaa(&Domain::dns64perf()).bytes().to_vec();
        let mut send = |number: u32| {
            let name = Ipv4Addr::from(FIRST + number % self.names);
            QueryTemplate::patch(&mut query, number as u16, name);
            socket.send(&query)
        };
        let mut next = self.in_flight.min(self.queries);
        for number in 0..next {
            send(number)?;
        }
        let mut is_answered = vec![false; self.queries as usize];
        let mut buffer = [0; 1500];
        for _ in 0..self.queries {
            let length = socket.recv(&mut buffer).context("a reply is missing")?;
            let reply = Message::new(&buffer[..length]).context("a reply is too short")?;
            let number = usize::from(reply.id());
            ensure!(
                reply.rcode() == Rcode::NOERROR && reply.ancount() > 0,
                "query {number} has no answer: {:?}",
                reply.rcode()
            );
            let is_answered = is_answered.get_mut(number).context("a reply has an unknown id")?;
            ensure!(!std::mem::replace(is_answered, true), "query {number} has two replies");
            if next < self.queries {
                send(next)?;
                next += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Answers queries in batches of `in_flight`, the latest query of a batch first. Returns the number of queries.
    fn serve(socket: &UdpSocket, in_flight: usize, batches: usize) -> usize {
        let mut served = 0;
        for _ in 0..batches {
            let mut batch = Vec::new();
            while batch.len() < in_flight {
                let mut query = [0; 1500];
                let (length, from) = socket.recv_from(&mut query).unwrap();
                // QR bit and one record in the answer section.
                query[2] |= 0x80;
                query[7] = 1;
                batch.push((query, length, from));
            }
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 1500]).is_err(), "more than {in_flight} in flight");
            socket.set_nonblocking(false).unwrap();
            for (reply, length, from) in batch.iter().rev() {
                socket.send_to(&reply[..*length], from).unwrap();
            }
            served += in_flight;
        }
        served
    }

    #[test]
    fn queries_in_flight_never_exceed_the_limit() {
        for in_flight in [1, 50] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let server = socket.local_addr().unwrap();
            let served = thread::spawn(move || serve(&socket, in_flight, 4));
            let queries = 4 * in_flight as u32;
            Load { queries, in_flight: in_flight as u32, names: 7 }.send(server).unwrap();
            assert_eq!(served.join().unwrap(), queries as usize);
        }
    }

    #[test]
    fn a_repeated_reply_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap();
        let server_socket = socket.try_clone().unwrap();
        let repeating = thread::spawn(move || {
            let mut query = [0; 1500];
            let (length, from) = server_socket.recv_from(&mut query).unwrap();
            query[2] |= 0x80;
            query[7] = 1;
            for _ in 0..2 {
                server_socket.send_to(&query[..length], from).unwrap();
            }
        });
        let error = Load { queries: 2, in_flight: 1, names: 1 }.send(server).unwrap_err();
        assert_eq!(error.to_string(), "query 0 has two replies");
        repeating.join().unwrap();
    }
}
