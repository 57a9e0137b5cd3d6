//! Whether anybody answers at an address at all: what is asked before a first trial, and after one
//! without a valid reply, so that a server that is not there is not taken for a slow one.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use net::socket::bound_to;
use wire::name::Domain;
use wire::template::{HEADER_LEN, QueryTemplate};

use super::TrialError;
use super::plan::TrialPlan;
use super::recorder::Recorder;
use super::sources::SourceAddresses;

/// How many questions are asked before nobody is there.
pub const QUESTIONS: u8 = 3;
/// The time from one to the next, also after a refusal, for a server that is just being started.
pub const WAIT: Duration = Duration::from_secs(1);
/// How many times as long a reply to any of them is waited for after the last one. A resolver whose
/// upstream is silent says so after seconds, and is there.
const LAST_WAITS: u32 = 4;

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A DNS response came, whatever it says.
    Answers,
    /// No reply to any question.
    Silent,
    /// The host said that nobody listens there (ICMP or ICMPv6 port unreachable).
    Refused,
    /// There is no way there: the system, or a router, says so.
    Unreachable(io::ErrorKind),
}

impl Liveness {
    /// Whether what was found is of the way to the server, and says nothing of the server.
    pub(super) fn is_on_the_way(self) -> bool {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable};
        matches!(self, Liveness::Unreachable(HostUnreachable | NetworkUnreachable))
    }
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Liveness::Answers => write!(f, "it answers"),
            Liveness::Silent => {
                let all = WAIT * (u32::from(QUESTIONS) - 1 + LAST_WAITS);
                write!(f, "no reply to {QUESTIONS} questions within {} s", all.as_secs())
            }
            Liveness::Refused => write!(f, "connection refused"),
            Liveness::Unreachable(kind) => write!(f, "{kind}"),
        }
    }
}

/// Asks `server` up to [`QUESTIONS`] questions over UDP, one after the other, for AAAA records of
/// names below `domain` that no trial asks for (of 9.0.0.0/24). Any DNS response with the id of one
/// of them is an answer, whatever its RCODE. It takes up to 6 s.
///
/// # Errors
/// If this host has no socket for it.
pub fn ask(server: SocketAddr, domain: &Domain) -> io::Result<Liveness> {
    ask_for(None, server, domain, WAIT)
}

/// As [`require`], for a trial. A plan that cannot be carried out is an error before anybody is
/// asked. Where queries leave from many addresses, the first of them asks: a server that has no
/// route back to it does not answer.
///
/// # Errors
/// As [`require`], or if the plan is the reason why there can be no trial.
pub fn require_for(plan: &TrialPlan) -> Result<(), TrialError> {
    plan.check()?;
    plan.check_sources()?;
    plan.records.as_deref().map_or(Ok(()), Recorder::check_name)?;
    let from = plan.source_addresses;
    let local = from.map(|sources| sources.first());
    judge(plan.server, from, ask_for(local, plan.canonical_server(), &plan.domain, WAIT))
}

/// As [`ask`], but a server that does not answer is an error.
///
/// # Errors
/// If the server does not answer, or this host has no socket towards it.
pub fn require(server: SocketAddr, domain: &Domain) -> Result<(), TrialError> {
    judge(server, None, ask(server, domain))
}

/// What came of asking a server from these addresses, as an error if it does not answer.
fn judge(
    server: SocketAddr,
    from: Option<SourceAddresses>,
    asked: io::Result<Liveness>,
) -> Result<(), TrialError> {
    match (asked, from) {
        (Ok(Liveness::Answers), _) => Ok(()),
        // Whoever refuses has a way back.
        (Ok(found @ Liveness::Silent), Some(from)) => {
            Err(TrialError::NobodyAnswersThere { server, found, from })
        }
        (Ok(found), _) => Err(TrialError::NobodyAnswers { server, found }),
        (Err(source), _) => Err(TrialError::Socket { server, source }),
    }
}

/// Asks from `local`, or from the address that the kernel chooses.
fn ask_for(
    local: Option<IpAddr>,
    server: SocketAddr,
    domain: &Domain,
    wait: Duration,
) -> io::Result<Liveness> {
    let any: IpAddr =
        if server.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = bound_to(SocketAddr::new(local.unwrap_or(any), 0))?;
    let (mut last, mut ids) = (Liveness::Silent, Vec::new());
    for number in 0..QUESTIONS {
        let is_last = number + 1 == QUESTIONS;
        let patience = if is_last { wait * LAST_WAITS } else { wait };
        let mut ask = || {
            socket.connect(server)?;
            ids.push(send(&socket, domain, number)?);
            answers(&socket, &ids, patience)
        };
        match ask() {
            Ok(true) => return Ok(Liveness::Answers),
            Ok(false) => last = Liveness::Silent,
            Err(error) => {
                last = match error.kind() {
                    io::ErrorKind::ConnectionRefused => Liveness::Refused,
                    kind => Liveness::Unreachable(kind),
                };
                if !is_last {
                    std::thread::sleep(wait);
                }
            }
        }
    }
    Ok(last)
}

/// Asks one question; returns its id.
fn send(socket: &UdpSocket, domain: &Domain, number: u8) -> io::Result<u16> {
    let mut query = QueryTemplate::aaaa(domain).bytes().to_vec();
    let [low, high] = rand::random::<u16>().to_be_bytes();
    let id = u16::from_be_bytes([low, high]);
    // A name each, for a resolver may hold back what it is already asking for.
    QueryTemplate::patch(&mut query, id, Ipv4Addr::new(9, 0, 0, high.wrapping_add(number)));
    socket.send(&query)?;
    Ok(id)
}

/// Waits for the reply to one of these questions; an error if the network says that there will be none.
fn answers(socket: &UdpSocket, ids: &[u16], wait: Duration) -> io::Result<bool> {
    let give_up = Instant::now() + wait;
    let mut reply = [0; 4096];
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut reply) {
            Ok(len) if ids.iter().any(|id| is_response(&reply[..len], *id)) => return Ok(true),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether a message is a response (RFC 1035 §4.1.1, QR) with this id.
fn is_response(message: &[u8], id: u16) -> bool {
    message.len() >= HEADER_LEN && message[..2] == id.to_be_bytes() && message[2] & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// The wait for servers that do not answer.
    const SHORT: Duration = Duration::from_millis(200);
    /// The wait for servers that do.
    const LONG: Duration = Duration::from_secs(2);

    fn asked(server: SocketAddr, wait: Duration) -> Liveness {
        ask_for(None, server, &Domain::dns64perf(), wait).unwrap()
    }

    /// A server that makes of each query what `reply` says.
    fn server(reply: fn(&mut [u8])) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 512];
            for _ in 0..QUESTIONS {
                let Ok((len, peer)) = socket.recv_from(&mut bytes) else { return };
                reply(&mut bytes[..len]);
                let _ = socket.send_to(&bytes[..len], peer);
            }
        });
        address
    }

    #[test]
    fn any_response_with_the_right_id_is_an_answer() {
        assert_eq!(asked(server(|m| m[2] |= 0x80), LONG), Liveness::Answers);
        // SERVFAIL.
        assert_eq!(asked(server(|m| (m[2], m[3]) = (0x80, 2)), LONG), Liveness::Answers);
        let other_id = server(|m| (m[0], m[2]) = (!m[0], 0x80));
        assert_eq!(asked(other_id, SHORT), Liveness::Silent, "another id");
        assert_eq!(asked(server(|_| {}), SHORT), Liveness::Silent, "the query itself");
    }

    #[test]
    fn silence_and_refusal_are_told_apart() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let begun = Instant::now();
        assert_eq!(asked(address, SHORT), Liveness::Silent);
        assert!(begun.elapsed() >= SHORT * (u32::from(QUESTIONS) - 1 + LAST_WAITS));
        drop(silent);
        assert_eq!(asked(address, SHORT), Liveness::Refused);
        assert_eq!(Liveness::Silent.to_string(), "no reply to 3 questions within 6 s");
    }

    /// A resolver whose upstream is silent answers that late.
    #[test]
    fn a_server_that_answers_after_seconds_is_there() {
        let slow = server(|m| {
            thread::sleep(LONG + LONG / 2);
            (m[2], m[3]) = (0x80, 2);
        });
        assert_eq!(asked(slow, LONG), Liveness::Answers);
        let slower = server(|m| {
            thread::sleep(LONG * 7 / 2);
            (m[2], m[3]) = (0x80, 2);
        });
        assert_eq!(asked(slower, LONG), Liveness::Answers);
    }

    #[test]
    fn the_address_that_is_told_asks() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let local = IpAddr::from([127, 1, 0, 77]);
        ask_for(Some(local), address, &Domain::dns64perf(), SHORT).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 512]).unwrap().1.ip(), local);
    }

    #[test]
    fn who_has_no_way_back_is_told_of_it() {
        let server = "[2001:2::1]:53".parse().unwrap();
        let from = "2001:2:0:ff::/64".parse().unwrap();
        let told = judge(server, Some(from), Ok(Liveness::Silent)).unwrap_err().to_string();
        assert!(told.contains("ip -6 route add 2001:2:0:ff::/64 via"), "{told}");
        for (from, found) in [(None, Liveness::Silent), (Some(from), Liveness::Refused)] {
            let told = judge(server, from, Ok(found)).unwrap_err().to_string();
            assert!(told.starts_with("nobody answers at") && !told.contains("route"), "{told}");
        }
        let unreachable = Liveness::Unreachable(io::ErrorKind::NetworkUnreachable);
        let told = judge(server, None, Ok(unreachable)).unwrap_err().to_string();
        assert_eq!(told, "there is no way to [2001:2::1]:53: network unreachable");
    }

    #[test]
    fn names_are_those_that_no_trial_asks_for() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        asked(address, SHORT);
        let mut bytes = [0; 512];
        let mut ids = Vec::new();
        for _ in 0..QUESTIONS {
            let len = socket.recv(&mut bytes).unwrap();
            assert!(bytes[..len].windows(12).any(|w| w == b"009-000-000-"), "{:?}", &bytes[..len]);
            ids.push([bytes[0], bytes[1]]);
        }
        ids.dedup();
        assert!(ids.len() > 1, "every question has an id of its own");
    }
}
