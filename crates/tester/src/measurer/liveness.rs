//! Liveness check: up to three probe queries, which are sent before the first trial and after a trial without a valid
//! reply. An absent or misconfigured server is thus not mistaken for a slow server.
//!
//! ```text
//! probe 1 ─► a correct reply: answers
//!      │
//!      └─► a wrong reply or none: probes 2 and 3 ─► three replies, wrong in the same way: wrong
//!                                                ─► other replies: answers
//!                                                ─► no reply: silent, refused or unreachable
//! ```

pub(super) mod outcome;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use method::records::{Counts, Wrong};
use net::socket::bound_to;
use wire::name::{Domain, NameRange};
use wire::template::QueryTemplate;
use wire::view::Message;

use self::outcome::LAST_WAITS;
pub(crate) use self::outcome::PROBES;
pub use self::outcome::{Liveness, WAIT};
use super::error::TrialError;
use super::expect::{Expectation, answers_at, first_aaaa};
use super::plan::TrialPlan;
use super::plan::sources::SourceAddresses;
use super::recorder::Recorder;
use super::wrong_replies::WrongReplies;
use crate::authdns::status;

/// Maximum number of names from which the names of the probes are chosen at random. These names are just before the
/// trial's first name. A random choice avoids answers that the server cached in an earlier check.
const CHOICE: u64 = 256;

/// Checks before the first trial that the server answers, and that not all replies are wrong in the same way.
///
/// The probes query names from the plan's block that none of the trials uses. The trials use the first `used` names. If
/// the block has too few other names, any reply counts as correct. Any reply also counts as correct if AuthDNS serves a
/// zone that differs from the plan's zone. The trial is then invalid anyway.
///
/// If queries are sent from many addresses, the probes use the first address. A server without a route back to this
/// address does not answer. The check takes up to 6 s.
///
/// # Errors
/// Returns an error if the server does not answer or answers incorrectly, or if no socket towards it can be opened. An
/// invalid plan is rejected before a probe is sent.
pub fn require_right(plan: &TrialPlan, used: u64) -> Result<(), TrialError> {
    let spare = spare_names(plan, used).filter(|_| !auth_serves_another_zone(plan));
    let expectation = spare.is_some().then(|| plan.expectation());
    let names = spare.unwrap_or_else(unused_names);
    require_for(plan, &Probes { domain: &plan.domain, names, expectation })
}

/// Returns true if AuthDNS's status shows a zone that differs from the plan's zone.
fn auth_serves_another_zone(plan: &TrialPlan) -> bool {
    let counters = plan.auth_status.as_deref().and_then(|path| status::read(path).ok());
    counters.is_some_and(|counters| counters.zones.iter().any(|zone| *zone != plan.zone()))
}

/// Checks after a trial that the server answers. Any reply counts.
///
/// # Errors
/// Returns an error if the server does not answer, or if no socket towards it can be opened.
pub fn require_reply(plan: &TrialPlan) -> Result<(), TrialError> {
    require_for(plan, &Probes::of_no_trial(&plan.domain))
}

/// Returns advice if no reply in the first trial was valid and at least 99 % of the replies had the same fault. To find
/// an example of such a reply, the server is probed as in [`require_right`].
pub fn misconfigured(plan: &TrialPlan, used: u64, counts: &Counts) -> Option<WrongReplies> {
    let wrong = counts.wrong_in_one_way()?;
    Some(match require_right(plan, used) {
        Err(TrialError::WrongReplies { replies, .. }) if replies.wrong == wrong => *replies,
        _ => WrongReplies::of(plan, wrong, None),
    })
}

fn require_for(plan: &TrialPlan, questions: &Probes<'_>) -> Result<(), TrialError> {
    plan.check()?;
    plan.check_sources()?;
    plan.records.as_deref().map_or(Ok(()), Recorder::check_name)?;
    let from = plan.source_addresses;
    let local = from.map(|sources| sources.first());
    let asked = ask(local, plan.canonical_server(), questions, WAIT);
    if let Ok(Liveness::Wrong(wrong, example)) = asked {
        let replies = Box::new(WrongReplies::of(plan, wrong, example));
        return Err(TrialError::WrongReplies { server: plan.server, replies });
    }
    judge(plan.server, from, asked)
}

/// Probes a server for names of `domain`; any DNS response counts.
///
/// # Errors
/// Returns an error if the server does not answer, or if no socket towards it can be opened.
pub fn require(server: SocketAddr, domain: &Domain) -> Result<(), TrialError> {
    judge(server, None, ask(None, server, &Probes::of_no_trial(domain), WAIT))
}

/// Returns an error if the probes show that the server does not answer. `from` contains the source addresses of the
/// trial.
fn judge(
    server: SocketAddr,
    from: Option<SourceAddresses>,
    asked: io::Result<Liveness>,
) -> Result<(), TrialError> {
    match (asked, from) {
        (Ok(Liveness::Answers | Liveness::Wrong(..)), _) => Ok(()),
        // Only a silent server may lack a route back. A refusal shows that there is a route.
        (Ok(found @ Liveness::Silent), Some(from)) => {
            Err(TrialError::NoAnswerToSource { server, found, from })
        }
        (Ok(found), _) => Err(TrialError::NoAnswer { server, found }),
        (Err(source), _) => Err(TrialError::Socket { server, source }),
    }
}

/// Returns names of the plan's block that no trial uses. The trials use the first `used` names, counted from the plan's
/// first name. Returns `None` if there are fewer unused names than probes.
fn spare_names(plan: &TrialPlan, used: u64) -> Option<[Ipv4Addr; PROBES as usize]> {
    let spare = plan.names.count().checked_sub(used)?;
    if spare < PROBES.into() {
        return None;
    }
    let choice = spare.min(CHOICE);
    let any = rand::random::<u64>() % choice;
    // The probes query the names just before the trial's first name, because trials use these names last.
    let end = plan.first_name + plan.names.count();
    Some(std::array::from_fn(|n| plan.names.address(end - 1 - (any + n as u64) % choice)))
}

/// Returns names for addresses in 9.0.0.0/24. No trial uses these names, and no zone file contains them.
fn unused_names() -> [Ipv4Addr; PROBES as usize] {
    let block: NameRange = "9.0.0.0/24".parse().expect("a constant");
    let any = rand::random::<u8>();
    std::array::from_fn(|n| block.address(u64::from(any) + n as u64))
}

/// Names and expected replies of the probes, which are queries that test whether the server answers.
struct Probes<'a> {
    domain: &'a Domain,
    /// Names in the probes. All names are different, because a resolver may delay a query for a name that it is already
    /// resolving.
    names: [Ipv4Addr; PROBES as usize],
    /// Requirements for a correct reply; if `None`, any reply is correct.
    expectation: Option<Expectation>,
}

impl Probes<'_> {
    fn of_no_trial(domain: &Domain) -> Probes<'_> {
        Probes { domain, names: unused_names(), expectation: None }
    }
}

/// Sends the probes from `local`, or from the address that the kernel selects.
fn ask(
    local: Option<IpAddr>,
    server: SocketAddr,
    questions: &Probes<'_>,
    wait: Duration,
) -> io::Result<Liveness> {
    let any: IpAddr =
        if server.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = bound_to(SocketAddr::new(local.unwrap_or(any), 0))?;
    let template = QueryTemplate::aaaa(questions.domain);
    let expectation = questions.expectation.as_ref();
    let mut asking =
        ProbeState { socket, template, expectation, open: Vec::new(), wrong: Vec::new() };
    let mut last = Liveness::Silent;
    for (number, name) in (1..).zip(questions.names) {
        let is_last = number == PROBES;
        let patience = if is_last { wait * LAST_WAITS } else { wait };
        let mut ask = || {
            asking.socket.connect(server)?;
            asking.send(name)?;
            asking.take(Instant::now() + patience, is_last)
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
    Ok(match &asking.wrong[..] {
        [] => last,
        [(first, example), others @ ..]
            if asking.wrong.len() == questions.names.len()
                && others.iter().all(|(wrong, _)| wrong == first) =>
        {
            Liveness::Wrong(*first, *example)
        }
        _ => Liveness::Answers,
    })
}

/// Probes that have been sent, and the wrong replies so far.
struct ProbeState<'a> {
    socket: UdpSocket,
    template: QueryTemplate,
    expectation: Option<&'a Expectation>,
    open: Vec<(u16, Ipv4Addr)>,
    wrong: Vec<(Wrong, Option<Ipv6Addr>)>,
}

impl ProbeState<'_> {
    /// Sends a query with a random id.
    fn send(&mut self, name: Ipv4Addr) -> io::Result<()> {
        let mut query = self.template.bytes().to_vec();
        let id = rand::random::<u16>();
        QueryTemplate::patch(&mut query, id, name);
        self.socket.send(&query)?;
        self.open.push((id, name));
        Ok(())
    }

    /// Receives replies until `until`. Returns true if a correct reply arrives.
    ///
    /// If `all` is false, returns false as soon as a wrong reply arrives. In any case, returns false once each probe
    /// has a wrong reply. Returns an error if the network reports that a probe was not delivered.
    fn take(&mut self, until: Instant, all: bool) -> io::Result<bool> {
        let mut reply = [0; 4096];
        while !self.open.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.socket.set_read_timeout(Some(left))?;
            let judged = match self.socket.recv(&mut reply) {
                Ok(len) => self.judge(&reply[..len]),
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
                Err(e) => return Err(e),
            };
            match judged {
                None => {}
                Some(Ok(())) => return Ok(true),
                Some(Err(wrong)) => {
                    self.wrong.push(wrong);
                    if !all {
                        break;
                    }
                }
            }
        }
        Ok(false)
    }

    /// Returns the result of checking a received message: `Ok` for a correct reply, otherwise the fault and the address
    /// in the reply. Returns `None` if the message is not a response to a probe that still waits for its reply.
    fn judge(&mut self, bytes: &[u8]) -> Option<Result<(), (Wrong, Option<Ipv6Addr>)>> {
        let message = Message::new(bytes).filter(Message::is_response)?;
        let at = self.open.iter().position(|(id, _)| *id == message.id())?;
        let (_, name) = self.open.remove(at);
        let Some(expectation) = self.expectation else { return Some(Ok(())) };
        let Some(answers) = answers_at(&message, bytes, &self.template, name) else {
            return Some(Err((Wrong::Malformed, None)));
        };
        let judged = expectation.judge(&message, answers, name);
        Some(judged.map_err(|wrong| (wrong, first_aaaa(&message, answers))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use units::Qps;

    /// Timeout for servers that do not answer.
    const SHORT: Duration = Duration::from_millis(200);
    /// Timeout for servers that answer.
    const LONG: Duration = Duration::from_secs(2);

    fn asked(server: SocketAddr, wait: Duration) -> Liveness {
        let domain = Domain::dns64perf();
        ask(None, server, &Probes::of_no_trial(&domain), wait).unwrap()
    }

    /// Starts a server that modifies each query with `reply` and returns it.
    fn server(reply: fn(&mut [u8])) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 512];
            for _ in 0..PROBES {
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

    /// Probes a simulated server and returns the result. The function `reply` modifies the server's replies. The names
    /// are those of a trial with a DNS64 prefix.
    fn asked_for_right_answers(reply: fn(&mut Vec<u8>, usize)) -> Liveness {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let plan = TrialPlan {
            prefixes: vec!["64:ff9b::/96".parse().unwrap()],
            ..TrialPlan::new(socket.local_addr().unwrap(), Qps(10))
        };
        thread::spawn(move || {
            for number in 0..usize::from(PROBES) {
                let mut bytes = vec![0; 512];
                let Ok((len, peer)) = socket.recv_from(&mut bytes) else { return };
                bytes.truncate(len);
                bytes[2] |= 0x80;
                reply(&mut bytes, number);
                let _ = socket.send_to(&bytes, peer);
            }
        });
        let names = spare_names(&plan, plan.names_needed()).unwrap();
        let expectation = Some(plan.expectation());
        ask(None, plan.server, &Probes { domain: &plan.domain, names, expectation }, LONG).unwrap()
    }

    /// Adds a synthesized AAAA record for the name in the question. The address has the prefix `prefix`.
    fn synthesize(message: &mut Vec<u8>, prefix: [u8; 12]) {
        let address = wire::name::parse_label(&message[13..28]).unwrap().octets();
        message[7] = 1;
        message.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 1, 0, 16]);
        message.extend(prefix);
        message.extend(address);
    }

    const WELL_KNOWN: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
    const OTHER: [u8; 12] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn replies_with_one_common_fault_are_detected() {
        assert_eq!(asked_for_right_answers(|m, _| synthesize(m, WELL_KNOWN)), Liveness::Answers);
        assert_eq!(
            asked_for_right_answers(|m, _| m[3] = 3),
            Liveness::Wrong(Wrong::Rcode(3), None)
        );
        assert_eq!(asked_for_right_answers(|_, _| ()), Liveness::Wrong(Wrong::NoAaaa, None));
        let other = asked_for_right_answers(|m, _| synthesize(m, OTHER));
        let Liveness::Wrong(Wrong::Address, Some(example)) = other else { panic!("{other:?}") };
        assert!(example.to_string().starts_with("2001:db8::aff:ff"), "{example}");
        // If replies differ, or a correct reply follows wrong replies, the check passes and the trial decides.
        assert_eq!(asked_for_right_answers(|m, n| m[3] = n as u8), Liveness::Answers);
        let last =
            asked_for_right_answers(
                |m, n| if n < 2 { m[3] = 2 } else { synthesize(m, WELL_KNOWN) },
            );
        assert_eq!(last, Liveness::Answers);
    }

    #[test]
    fn spare_names_are_in_the_block_and_unused() {
        let plan = TrialPlan {
            names: "10.0.0.0/22".parse().unwrap(),
            first_name: 700,
            ..TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1))
        };
        for used in [0, 500, 900, 1_021] {
            let names = spare_names(&plan, used).unwrap();
            for (n, name) in names.iter().enumerate() {
                let is_used =
                    (700..700 + used).any(|position| plan.names.address(position) == *name);
                assert!(plan.names.contains(*name) && !is_used, "{name} with {used} used");
                assert!(!names[..n].contains(name), "{names:?}");
            }
        }
        for used in [1_022, 1_024, 5_000] {
            assert_eq!(spare_names(&plan, used), None, "{used}");
        }
    }

    #[test]
    fn silence_and_refusal_are_distinguished() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let begun = Instant::now();
        assert_eq!(asked(address, SHORT), Liveness::Silent);
        assert!(begun.elapsed() >= SHORT * (u32::from(PROBES) - 1 + LAST_WAITS));
        drop(silent);
        assert_eq!(asked(address, SHORT), Liveness::Refused);
        assert_eq!(Liveness::Silent.to_string(), "no reply to 3 queries within 6 s");
    }

    /// A resolver with a silent upstream may answer only after seconds.
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
    fn probes_use_the_configured_source_address() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let local = IpAddr::from([127, 1, 0, 77]);
        let domain = Domain::dns64perf();
        ask(Some(local), address, &Probes::of_no_trial(&domain), SHORT).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 512]).unwrap().1.ip(), local);
    }

    #[test]
    fn a_missing_route_back_is_reported() {
        let server = "[2001:2::1]:53".parse().unwrap();
        let from = "2001:2:0:ff::/64".parse().unwrap();
        let message = judge(server, Some(from), Ok(Liveness::Silent)).unwrap_err().to_string();
        assert!(message.contains("ip -6 route add 2001:2:0:ff::/64 via"), "{message}");
        for (from, found) in [(None, Liveness::Silent), (Some(from), Liveness::Refused)] {
            let message = judge(server, from, Ok(found)).unwrap_err().to_string();
            assert!(
                message.starts_with("no answer from") && !message.contains("route"),
                "{message}"
            );
        }
        let unreachable = Liveness::Unreachable(io::ErrorKind::NetworkUnreachable);
        let message = judge(server, None, Ok(unreachable)).unwrap_err().to_string();
        assert_eq!(message, "there is no route to [2001:2::1]:53: network unreachable");
    }

    #[test]
    fn probe_names_are_not_used_by_trials() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        asked(address, SHORT);
        let mut bytes = [0; 512];
        let mut ids = Vec::new();
        for _ in 0..PROBES {
            let len = socket.recv(&mut bytes).unwrap();
            assert!(bytes[..len].windows(12).any(|w| w == b"009-000-000-"), "{:?}", &bytes[..len]);
            ids.push([bytes[0], bytes[1]]);
        }
        ids.dedup();
        assert!(ids.len() > 1, "every question has an id of its own");
    }
}
