//! Upstream that answers queries of dns64d from the entries of a scenario, over UDP and TCP on loopback.
//!
//! ```text
//! dns64d ─► UDP thread ──────────────┐
//!    └────► TCP thread ─► connection ┴► Scenario::reply ─► message
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use domain::base::iana::Rcode;
use domain::base::name::ToName;
use domain::base::{Message, MessageBuilder};

use super::flatten::{Query, Reply};
use super::reader::Scenario;
use crate::process::free_port;

/// Interval at which threads check whether the upstream has ended.
const POLL: Duration = Duration::from_millis(20);
/// Size of responses over UDP, in octets, if the query does not give one.
const WITHOUT_EDNS: u16 = 512;

/// A running upstream. Its threads end when this value is dropped.
pub(super) struct Upstream {
    pub(super) port: u16,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    scenario: Scenario,
    step: AtomicU32,
    has_ended: AtomicBool,
}

impl Upstream {
    /// Starts an upstream on a free port of loopback.
    pub(super) fn start(scenario: Scenario) -> Result<Upstream> {
        let port = free_port()?;
        let udp =
            UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).context("UDP port of the upstream")?;
        udp.set_read_timeout(Some(POLL))?;
        let tcp =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("TCP port of the upstream")?;
        tcp.set_nonblocking(true)?;
        let (step, has_ended) = (AtomicU32::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { scenario, step, has_ended });
        let [of_udp, of_tcp] = [Arc::clone(&shared), Arc::clone(&shared)];
        let threads = vec![
            thread::spawn(move || of_udp.serve_udp(&udp)),
            thread::spawn(move || of_tcp.serve_tcp(&tcp)),
        ];
        Ok(Upstream { port, shared, threads })
    }

    /// Sets the current step, which determines the entries that are used.
    pub(super) fn set_step(&self, step: u32) {
        self.shared.step.store(step, Ordering::Relaxed);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut buffer = [0; 4096];
        while !self.has_ended() {
            let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
            if let Some(response) = self.response(&buffer[..length], false) {
                let _ = socket.send_to(&response, client);
            }
        }
    }

    fn serve_tcp(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            while !self.has_ended() {
                match listener.accept() {
                    Ok((stream, _)) => {
                        scope.spawn(move || self.serve_connection(stream));
                    }
                    Err(_) => thread::sleep(POLL),
                }
            }
        });
    }

    /// Answers the queries of a connection until the client closes it.
    fn serve_connection(&self, mut stream: TcpStream) {
        if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(Some(POLL)).is_err() {
            return;
        }
        let mut received = Vec::new();
        let mut buffer = [0; 4096];
        while !self.has_ended() {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => received.extend_from_slice(&buffer[..length]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
            while let Some(query) = take_message(&mut received) {
                let Some(response) = self.response(&query, true) else { return };
                let length = (response.len() as u16).to_be_bytes();
                if stream.write_all(&[&length[..], &response].concat()).is_err() {
                    return;
                }
            }
        }
    }

    /// Returns the response to a query, or `None` if the query is malformed.
    fn response(&self, query: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let query = Message::from_octets(Bytes::copy_from_slice(query)).ok()?;
        let question = query.sole_question().ok()?;
        let asked = Query { name: question.qname().to_name(), rtype: question.qtype(), is_tcp };
        let reply = self.scenario.reply(self.step.load(Ordering::Relaxed), &asked);
        let mut refusal = Reply::default();
        refusal.header.rcode = Rcode::REFUSED;
        let reply = reply.unwrap_or(refusal);
        let response = message(&query, &reply)?;
        let size = query.opt().map_or(WITHOUT_EDNS, |opt| opt.udp_payload_size().max(WITHOUT_EDNS));
        if is_tcp || response.len() <= usize::from(size) {
            return Some(response);
        }
        let mut truncated = Reply { header: reply.header, ..Reply::default() };
        truncated.header.truncated = true;
        message(&query, &truncated)
    }
}

/// Removes a message with its length from the octets that a connection has received.
fn take_message(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes([*received.first()?, *received.get(1)?]));
    if received.len() < 2 + length {
        return None;
    }
    Some(received.drain(..2 + length).skip(2).collect())
}

/// Returns a response to a query.
fn message(query: &Message<Bytes>, reply: &Reply) -> Option<Vec<u8>> {
    let builder = MessageBuilder::new_vec();
    let mut answer = builder.start_answer(query, reply.header.rcode).ok()?;
    let header = answer.header_mut();
    header.set_aa(reply.header.authoritative);
    header.set_tc(reply.header.truncated);
    header.set_ra(true);
    for record in &reply.answer {
        answer.push(record.clone()).ok()?;
    }
    let mut authority = answer.authority();
    for record in &reply.authority {
        authority.push(record.clone()).ok()?;
    }
    let mut additional = authority.additional();
    if query.opt().is_some() {
        let with_do = |opt: &mut domain::base::message_builder::OptBuilder<'_, Vec<u8>>| {
            opt.set_udp_payload_size(4096);
            opt.set_dnssec_ok(true);
            Ok(())
        };
        additional.opt(with_do).ok()?;
    }
    Some(additional.finish())
}
