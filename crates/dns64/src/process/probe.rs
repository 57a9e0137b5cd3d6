//! Implementation of `dns64d check --probe`, which sends one query to each upstream.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name};

use super::host_check::connect;
use crate::config::{Settings, Validate};
use crate::signatures::{self, Signatures};

/// Maximum time to wait for an answer from an upstream.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of an answer from an upstream, in octets.
const LONGEST: usize = 4_096;

/// Result of the query to one upstream.
#[derive(Debug)]
pub(super) struct Probed {
    /// Address and name of the upstream.
    pub(super) upstream: String,
    /// The answer, or the reason why there is none.
    answer: Result<Answer, String>,
}

/// Answer of an upstream.
#[derive(Debug)]
struct Answer {
    rcode: Rcode,
    /// Response time.
    took: Duration,
    /// True if the answer has DNSSEC signatures. `None` if it does not need them.
    signatures: Option<bool>,
}

impl Probed {
    /// True if the upstream answered with NOERROR or NXDOMAIN, and if its answer can be validated where this is required.
    pub(super) fn is_good(&self, validate: Validate) -> bool {
        let good = [Rcode::NOERROR, Rcode::NXDOMAIN];
        self.answer.as_ref().is_ok_and(|answer| {
            let lacks_signatures = validate == Validate::Yes && answer.signatures == Some(false);
            good.contains(&answer.rcode) && !lacks_signatures
        })
    }
}

impl std::fmt::Display for Probed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.answer {
            Ok(Answer { rcode, took, signatures }) => {
                let ms = took.as_secs_f64() * 1_000.0;
                let signatures = match signatures {
                    Some(true) => ", with DNSSEC signatures",
                    Some(false) => ", without DNSSEC signatures",
                    None => "",
                };
                write!(f, "upstream {}: {rcode} after {ms:.1} ms{signatures}", self.upstream)
            }
            Err(reason) => write!(f, "upstream {}: {reason}", self.upstream),
        }
    }
}

/// Queries all upstreams over UDP in parallel.
pub(super) fn probe(settings: &Settings) -> Vec<Probed> {
    std::thread::scope(|scope| {
        let begin = |number: usize| {
            let answer = scope.spawn(move || ask(settings, number));
            let upstream = settings.upstream_name(number);
            (upstream, answer)
        };
        let begun: Vec<_> = (0..settings.upstreams.len()).map(begin).collect();
        let end = |(upstream, answer): (String, std::thread::ScopedJoinHandle<'_, _>)| {
            let answer = answer.join().unwrap_or_else(|_| Err("the query failed".to_owned()));
            Probed { upstream, answer }
        };
        begun.into_iter().map(end).collect()
    })
}

/// Queries an upstream for an SOA record. The query is for the first domain whose queries are sent to this upstream,
/// because the upstream might not answer queries for other domains. With validation, a query for a signed zone is
/// preferred.
fn ask(settings: &Settings, number: usize) -> Result<Answer, String> {
    // The last route contains all upstreams, but is unused if there is a forward for ".".
    let route = settings.routes.iter().enumerate().rev().find(|(index, route)| {
        settings.route(route.domain.wire()).0 == *index && route.upstreams.contains(&number)
    });
    let domain = route.map_or(&b"\0"[..], |(_, route)| route.domain.wire());
    let signed =
        settings.validator.as_ref().and_then(|validator| validator.top_zone()).filter(|zone| {
            settings.routes[settings.route(zone.as_slice()).0].upstreams.contains(&number)
        });
    let query = match signed {
        Some(zone) => signatures::query(zone),
        None => query(rand::random(), domain).ok_or("the query cannot be built")?,
    };
    let exchange = || -> io::Result<(Vec<u8>, Duration)> {
        let socket = connect(settings.upstreams[number].address)?;
        let sent = Instant::now();
        socket.send(&query)?;
        let mut answer = vec![0; LONGEST];
        loop {
            let left = TIMEOUT.saturating_sub(sent.elapsed());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left))?;
            let len = socket.recv(&mut answer)?;
            if is_answer(&answer[..len], &query) {
                answer.truncate(len);
                return Ok((answer, sent.elapsed()));
            }
        }
    };
    let (answer, took) = exchange().map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!("no answer within {} s", TIMEOUT.as_secs())
        }
        _ => error.to_string(),
    })?;
    let signatures = signed.and_then(|_| Signatures::of(&answer)).map(|found| found.are_found());
    let answer = Message::from_slice(&answer).map_err(|error| error.to_string())?;
    Ok(Answer { rcode: answer.header().rcode(), took, signatures })
}

/// Builds the SOA query for a domain (wire format), with the RD bit set.
fn query(id: u16, domain: &[u8]) -> Option<Vec<u8>> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(id);
    message.header_mut().set_rd(true);
    let mut question = message.question();
    question.push((Name::from_slice(domain).ok()?, Rtype::SOA)).ok()?;
    Some(question.finish())
}

/// True if a message is a response to `query`.
fn is_answer(message: &[u8], query: &[u8]) -> bool {
    match (Message::from_slice(message), Message::from_slice(query)) {
        (Ok(message), Ok(query)) => message.is_answer(query),
        _ => false,
    }
}
