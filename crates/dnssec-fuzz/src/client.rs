//! The client: sends the question of each case to a validator, and reads the verdict.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use domain::base::iana::Rcode;
use domain::base::opt::ExtendedError;
use domain::base::{Message, MessageBuilder};

use crate::case::Case;
use crate::fuzz::Fuzz;

/// Maximum number of queries in flight.
const WINDOW: usize = 64;
/// Time after which a query is sent again.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of times that a query is sent.
const ATTEMPTS: u32 = 3;
/// Interval at which the client checks for timeouts.
const LOOK: Duration = Duration::from_millis(20);
/// Number of cases by which one client may be ahead of another one.
const MOST_AHEAD: usize = 2_000;
/// Extended error of dns64d if too many validations waited, so that the answer was not validated.
const INDETERMINATE: u16 = 5;

/// Result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The response has the AD flag.
    Secure,
    /// The response has no AD flag.
    Insecure,
    /// The RCODE is SERVFAIL.
    Bogus,
    /// There was no reply, or a reply with another RCODE.
    Unknown,
}

/// Progress of two clients, which wait for each other.
#[derive(Debug, Default)]
pub struct Progress([AtomicUsize; 2]);

/// A query in flight.
#[derive(Clone, Copy)]
struct Flight {
    /// Index of the case.
    index: usize,
    number: u64,
    sent: Instant,
    attempts: u32,
}

/// Sends the questions of some cases to a validator, and returns the statuses in the order of the cases. `which` is the
/// index of this client in `progress`.
///
/// # Errors
/// Returns an error if the socket fails.
pub fn ask_all(
    fuzz: &Fuzz,
    server: SocketAddr,
    cases: &[u64],
    progress: &Progress,
    which: usize,
) -> io::Result<Vec<Status>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LOOK))?;
    let mut statuses = vec![Status::Unknown; cases.len()];
    let mut flights: Vec<Option<Flight>> = vec![None; WINDOW];
    let (mut next, mut buffer) = (0, [0; 8192]);
    loop {
        let oldest = flights.iter().flatten().map(|flight| flight.index).min().unwrap_or(next);
        progress.0[which].store(oldest, Ordering::Relaxed);
        if oldest == cases.len() {
            // The other client waits for this one no longer.
            progress.0[which].store(usize::MAX / 2, Ordering::Relaxed);
            return Ok(statuses);
        }
        let other = progress.0[1 - which].load(Ordering::Relaxed);
        for (slot, flight) in flights.iter_mut().enumerate().filter(|(_, flight)| flight.is_none())
        {
            if next < cases.len() && next <= other + MOST_AHEAD {
                let (index, number, sent) = (next, cases[next], Instant::now());
                send(&socket, slot, &fuzz.case(number))?;
                *flight = Some(Flight { index, number, sent, attempts: 1 });
                next += 1;
            }
        }
        if flights.iter().all(Option::is_none) {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        if let Ok(length) = socket.recv(&mut buffer)
            && let Some((slot, flight, status)) = read(&buffer[..length], &flights)
        {
            if status != Status::Unknown || flight.attempts >= ATTEMPTS {
                let case = fuzz.case(flight.number);
                let is_truncated = buffer[2] & 2 != 0;
                let status =
                    if is_truncated { ask_tcp(server, &case).unwrap_or(status) } else { status };
                statuses[flight.index] = status;
                flights[slot] = None;
            } else {
                resend(&socket, fuzz, slot, &mut flights)?;
            }
        }
        for slot in 0..WINDOW {
            let Some(flight) = flights[slot] else { continue };
            if flight.sent.elapsed() < TIMEOUT {
                continue;
            }
            if flight.attempts >= ATTEMPTS {
                flights[slot] = None;
            } else {
                resend(&socket, fuzz, slot, &mut flights)?;
            }
        }
    }
}

/// Sends the question of a case, and returns the verdict of the validator.
///
/// # Errors
/// Returns an error if the socket fails.
pub fn ask(fuzz: &Fuzz, server: SocketAddr, number: u64) -> io::Result<Status> {
    let statuses = ask_all(fuzz, server, &[number], &Progress::default(), 0)?;
    Ok(statuses.first().copied().unwrap_or(Status::Unknown))
}

fn resend(
    socket: &UdpSocket,
    fuzz: &Fuzz,
    slot: usize,
    flights: &mut [Option<Flight>],
) -> io::Result<()> {
    if let Some(flight) = &mut flights[slot] {
        flight.attempts += 1;
        flight.sent = Instant::now();
        send(socket, slot, &fuzz.case(flight.number))?;
    }
    Ok(())
}

fn send(socket: &UdpSocket, slot: usize, case: &Case) -> io::Result<()> {
    socket.send(&query(slot as u16, case)).map(|_| ())
}

/// Returns a query with the flags DO and AD.
fn query(id: u16, case: &Case) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    let header = builder.header_mut();
    header.set_id(id);
    header.set_rd(true);
    header.set_ad(true);
    let mut question = builder.question();
    question.push((&case.name, case.rtype)).expect("a short question");
    let mut additional = question.additional();
    let opt = additional.opt(|opt| {
        opt.set_udp_payload_size(4096);
        opt.set_dnssec_ok(true);
        Ok(())
    });
    opt.expect("a short message");
    additional.finish()
}

/// Reads a reply. Returns the slot and the query to which it belongs, and its status.
fn read(reply: &[u8], flights: &[Option<Flight>]) -> Option<(usize, Flight, Status)> {
    let message = Message::from_octets(reply).ok()?;
    let slot = usize::from(message.header().id());
    let flight = (*flights.get(slot)?)?;
    // A late reply to an earlier query of this slot has another name.
    let name = message.sole_question().ok()?.qname().to_string();
    let label = format!("{:08x}", flight.number);
    name.contains(&label).then(|| (slot, flight, status(&message)))
}

fn status(message: &Message<&[u8]>) -> Status {
    match message.header().rcode() {
        Rcode::SERVFAIL if extended_error(message) == Some(INDETERMINATE) => Status::Unknown,
        Rcode::SERVFAIL => Status::Bogus,
        Rcode::NOERROR | Rcode::NXDOMAIN | Rcode::YXDOMAIN if message.header().ad() => {
            Status::Secure
        }
        Rcode::NOERROR | Rcode::NXDOMAIN | Rcode::YXDOMAIN => Status::Insecure,
        _ => Status::Unknown,
    }
}

fn extended_error(message: &Message<&[u8]>) -> Option<u16> {
    let opt = message.opt()?;
    let error = opt.opt().iter::<ExtendedError<_>>().next()?.ok()?;
    Some(error.code().to_int())
}

/// Sends a question over TCP.
fn ask_tcp(server: SocketAddr, case: &Case) -> Option<Status> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(TIMEOUT)).ok()?;
    let query = query(0, case);
    let length = (query.len() as u16).to_be_bytes();
    stream.write_all(&[&length[..], &query].concat()).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut reply = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut reply).ok()?;
    Some(status(&Message::from_octets(&reply[..]).ok()?))
}
