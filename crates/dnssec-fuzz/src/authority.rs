//! The authoritative server, over UDP and TCP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::Duration;

use domain::base::Message;
use domain::base::iana::Rtype;
use domain::base::name::{ToLabelIter, ToName};
use testbed::signed::TestName;

use crate::fuzz::Fuzz;
use crate::names::ADDRESS;

/// Number of threads that answer over UDP.
const THREADS: usize = 2;
/// Interval at which the threads check whether they must end.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum time for which a TCP connection waits for a query.
const IDLE: Duration = Duration::from_secs(2);
/// Number of responses after which the stored responses are dropped. Two validators query the same names at about the
/// same time.
const MOST_STORED: usize = 20_000;

/// Messages by name and type.
type Stored = HashMap<(TestName, Rtype), Arc<Vec<u8>>>;

/// The server. It answers until [`Authority::stop`] is called.
#[derive(Debug)]
pub struct Authority<'a> {
    fuzz: &'a Fuzz,
    stored: Mutex<Stored>,
    is_over: AtomicBool,
}

impl<'a> Authority<'a> {
    /// Returns a server that has not been started.
    pub fn new(fuzz: &'a Fuzz) -> Authority<'a> {
        Authority { fuzz, stored: Mutex::default(), is_over: AtomicBool::new(false) }
    }

    /// Starts the threads of the server at [`ADDRESS`].
    ///
    /// # Errors
    /// Returns an error if the address is in use, or if this process may not use port 53.
    pub fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        let (udp, tcp) = (UdpSocket::bind(ADDRESS)?, TcpListener::bind(ADDRESS)?);
        udp.set_read_timeout(Some(LOOK))?;
        tcp.set_nonblocking(true)?;
        for _ in 0..THREADS {
            let udp = udp.try_clone()?;
            scope.spawn(move || self.serve_udp(&udp));
        }
        scope.spawn(move || {
            while !self.is_over.load(Ordering::Relaxed) {
                match tcp.accept() {
                    Ok((stream, _)) => {
                        scope.spawn(move || self.serve_tcp(stream));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        Ok(())
    }

    /// Ends the threads of the server.
    pub fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn serve_udp(&self, socket: &UdpSocket) {
        let mut query = [0; 4096];
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((length, peer)) = socket.recv_from(&mut query) else { continue };
            if let Some(reply) = self.reply(&query[..length], true) {
                let _ = socket.send_to(&reply, peer);
            }
        }
    }

    fn serve_tcp(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(IDLE)).ok()?;
        stream.set_write_timeout(Some(IDLE)).ok()?;
        while !self.is_over.load(Ordering::Relaxed) {
            let mut length = [0; 2];
            stream.read_exact(&mut length).ok()?;
            let mut query = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut query).ok()?;
            let reply = self.reply(&query, false)?;
            let length = u16::try_from(reply.len()).ok()?.to_be_bytes();
            stream.write_all(&[&length[..], &reply].concat()).ok()?;
        }
        Some(())
    }

    /// Returns the reply to a query. Over UDP, a reply that is too long is truncated.
    fn reply(&self, query: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let query = Message::from_octets(query).ok()?;
        let question = query.sole_question().ok()?;
        let name: TestName = question.qname().to_canonical_name();
        let response = self.response(name, question.qtype());
        let mut reply = response.to_vec();
        let size = query.opt().map_or(512, |opt| opt.udp_payload_size());
        if is_udp && reply.len() > size.into() {
            // Header and question without records.
            let end = 12 + usize::from(question.qname().compose_len()) + 4;
            reply.truncate(end);
            reply[6..12].fill(0);
            reply[2] |= 2;
        }
        reply[..2].copy_from_slice(&query.as_slice()[..2]);
        // RD and CD are copied from the query.
        reply[2] |= query.as_slice()[2] & 0x01;
        reply[3] |= query.as_slice()[3] & 0x10;
        // The question is repeated with the case of its letters.
        let name = 12..12 + usize::from(question.qname().compose_len());
        reply[name.clone()].copy_from_slice(&query.as_slice()[name]);
        Some(reply)
    }

    fn response(&self, name: TestName, rtype: Rtype) -> Arc<Vec<u8>> {
        let key = (name, rtype);
        let stored = || self.stored.lock().expect("no thread panics while it holds the lock");
        if let Some(known) = stored().get(&key) {
            return Arc::clone(known);
        }
        let made = Arc::new(self.fuzz.response(&key.0, rtype).message);
        let mut stored = stored();
        if stored.len() >= MOST_STORED {
            stored.clear();
        }
        Arc::clone(stored.entry(key).or_insert(made))
    }
}
