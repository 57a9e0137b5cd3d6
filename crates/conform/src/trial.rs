//! Environment in which the script of a check runs. It provides names that no cache contains, sends queries, and reads
//! the query log of the test authoritative server. It records the queries and replies, so that a report can show them.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use domain::base::iana::Rtype;
use domain::utils::base16;
use ipnet::Ipv6Net;

use crate::ask::{self, Connection};
use crate::authority::view::{Asked, View};
use crate::expected::Prefix;
use crate::label;
use crate::message::{Message, Name, Record, rcode};

/// Facts about the server under test.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Address of the server under test.
    pub server: SocketAddr,
    /// Timeout of a query; always [`ask::PATIENCE`] except in tests.
    pub patience: Duration,
    /// Zone for which the server queries the test authoritative server.
    pub zone: Option<&'a Name>,
    /// Prefixes of the server; at least one. They are discovered as specified by RFC 7050, or given by the user.
    pub prefixes: &'a [Prefix],
    /// Range of IPv6 addresses that the server is configured to exclude; `None` if there is no such range.
    pub excluded: Option<Ipv6Net>,
    /// Query log of the test authoritative server.
    pub view: Option<&'a dyn View>,
}

/// Reasons why a check does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server violates the sentence of the RFC; the text describes the server's behaviour.
    Wrong(String),
    /// A required reply is missing; the text names the missing reply. The check is run a second time, because the reply
    /// may have been lost on the network.
    Silent(String),
    /// The check could not be run; the text is the reason.
    NotTried(String),
    /// The server does not support an optional feature; the text describes the feature.
    NotOffered(String),
}

/// Result of a check's script, or of a step of the script. It is a fault if the check does not pass.
pub(crate) type Judged<T = ()> = Result<T, Fault>;

/// Requires that `condition` is true.
///
/// # Errors
/// Returns [`Fault::Wrong`] with the text of `what` if `condition` is false.
pub fn expect(condition: bool, what: impl FnOnce() -> String) -> Judged {
    if condition { Ok(()) } else { Err(Fault::Wrong(what())) }
}

/// Data that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A query to which a reply is expected.
    Query(Message),
    /// Octets that need not form a DNS message. A missing reply may be correct.
    Octets(Vec<u8>),
}

/// Maximum number of exchanges (a query and its reply) that are recorded in one run of a script. Older exchanges are
/// dropped, because a load check has a thousand exchanges.
const KEPT: usize = 8;

/// Data that was sent to the server, and the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Data that was sent.
    pub sent: Sent,
    /// True if the data was sent over TCP.
    pub tcp: bool,
    /// The reply. `None` if no reply arrived, or if the received data is not a DNS message.
    pub reply: Option<Message>,
    /// Error text if the received data is not a DNS message.
    pub unreadable: Option<String>,
    /// Time until the reply, or until the timeout.
    pub took: Duration,
}

/// One run of a check's script.
pub struct Trial<'a> {
    subject: Subject<'a>,
    exchanges: VecDeque<Exchange>,
    doubts: bool,
    names: u64,
    nonce: u64,
}

/// Counter that makes nonces unique within a process. A random number distinguishes the nonces of different processes.
static RUNS: AtomicU64 = AtomicU64::new(0);

impl<'a> Trial<'a> {
    /// Creates the environment for one run of a check's script.
    pub fn new(subject: Subject<'a>) -> Trial<'a> {
        let nonce = u64::from(rand::random::<u32>()) << 20 | RUNS.fetch_add(1, Ordering::Relaxed);
        Trial { subject, exchanges: VecDeque::new(), doubts: false, names: 0, nonce }
    }

    /// Returns the most recent queries and their replies.
    pub fn into_exchanges(self) -> Vec<Exchange> {
        self.exchanges.into()
    }

    /// True if at least one query got SERVFAIL or no reply. The cause may be a lost datagram, or the server may have
    /// stopped querying its upstream for a while.
    pub(crate) fn has_doubts(&self) -> bool {
        self.doubts
    }

    /// Returns the server under test.
    pub fn subject(&self) -> Subject<'a> {
        self.subject
    }

    /// Returns a new name with these labels (see [`label`]) in the test zone: `name("v4-1-2-3-4")` is
    /// `x….v4-1-2-3-4.ZONE`.
    ///
    /// # Panics
    /// Panics if there is no test zone. A check that uses names must declare [`crate::check::Need::Zone`].
    pub fn name(&mut self, labels: &str) -> Name {
        let zone = self.subject.zone.expect(
            "a check that uses names needs a zone, which its needs \
            contain",
        );
        self.names += 1;
        let nonce = format!("x{:x}-{}", self.nonce, self.names);
        let labels = labels.split('.').filter(|label| !label.is_empty());
        let name = labels.rev().fold(zone.clone(), |name, text| label::prepend(text, &name));
        label::prepend(&nonce, &name)
    }

    /// Returns the range of IPv6 addresses that the server is configured to exclude.
    ///
    /// # Panics
    /// Panics if there is no such range. A check that uses this range must declare
    /// [`crate::check::Need::ExcludedRange`].
    pub fn excluded(&self) -> Ipv6Net {
        self.subject.excluded.expect(
            "a check that uses the excluded range needs one, which its \
            needs contain",
        )
    }

    /// Returns the first prefix of the server.
    pub fn prefix(&self) -> Prefix {
        self.subject.prefixes[0]
    }

    /// Returns the addresses in which `v4` is embedded, one for each prefix of the server.
    pub fn embedded(&self, v4: &str) -> Vec<Ipv6Addr> {
        let v4: Ipv4Addr = v4.parse().expect("addresses of checks are literals");
        self.subject.prefixes.iter().map(|prefix| prefix.with(v4)).collect()
    }

    /// Sends a query over UDP and returns the reply, even if truncated. There is no retry.
    ///
    /// # Errors
    /// Returns [`Fault::Silent`] if there is no reply in time. Returns [`Fault::Wrong`] if the received data is not a
    /// message or does not answer this query.
    pub fn ask(&mut self, query: &Message) -> Judged<Message> {
        let reply = self.ask_or_silence(query)?;
        let patience = self.subject.patience.as_secs_f64();
        reply.ok_or_else(|| Fault::Silent(format!("no reply within {patience} s")))
    }

    /// Sends a query over UDP and returns the reply, or `None` if there is no reply. This function is for checks in
    /// which a missing reply is not a fault.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] if the received data is not a message or does not answer this query.
    pub(crate) fn ask_or_silence(&mut self, query: &Message) -> Judged<Option<Message>> {
        let begin = Instant::now();
        let octets = ask::datagram(self.subject.server, &query.octets(), self.subject.patience)
            .map_err(|error| no_socket(&error))?;
        self.note(query, false, octets.as_deref(), begin.elapsed())
    }

    /// Sends a query over a new TCP connection.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::ask`], and [`Fault::Wrong`] if the connection is refused.
    pub(crate) fn ask_tcp(&mut self, query: &Message) -> Judged<Message> {
        let begin = Instant::now();
        let mut connection = self.connect()?;
        connection.send(&query.octets()).map_err(|e| Fault::Wrong(format!("TCP: {e}")))?;
        self.receive(&mut connection, query, begin)
    }

    /// Opens a TCP connection to the server.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] if the connection is refused, and [`Fault::Silent`] if it is not established in time.
    pub fn connect(&self) -> Judged<Connection> {
        Connection::open(self.subject.server, self.subject.patience).map_err(|error| {
            let what = format!("no TCP connection: {error}");
            match error.kind() {
                io::ErrorKind::TimedOut => Fault::Silent(what),
                _ => Fault::Wrong(what),
            }
        })
    }

    /// Reads the next message from a TCP connection, and returns it as the reply to `query`.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::ask`].
    pub fn receive(
        &mut self,
        connection: &mut Connection,
        query: &Message,
        begin: Instant,
    ) -> Judged<Message> {
        let octets = connection
            .receive(self.subject.patience)
            .map_err(|error| Fault::NotTried(format!("TCP: {error}")))?;
        self.note(query, true, octets.as_deref(), begin.elapsed())?
            .ok_or_else(|| Fault::Silent("no reply over TCP, or the connection was closed".into()))
    }

    /// Sends octets in one datagram, requires a reply, and returns it. The octets need not form a valid DNS message.
    ///
    /// # Errors
    /// Returns [`Fault::Silent`] if there is no reply. The text of the fault contains `what`, a description of the
    /// octets.
    pub(crate) fn reply_to_octets(&mut self, octets: &[u8], what: &str) -> Judged<Vec<u8>> {
        let reply = self.send_octets(octets, self.subject.patience)?;
        reply.ok_or_else(|| Fault::Silent(format!("no reply to {what}")))
    }

    /// Sends octets in one datagram. Returns the octets of the reply, or `None` if there is no reply. The octets need
    /// not form a valid DNS message.
    ///
    /// # Errors
    /// Returns [`Fault::NotTried`] if no socket can be opened.
    pub(crate) fn send_octets(
        &mut self,
        octets: &[u8],
        patience: Duration,
    ) -> Judged<Option<Vec<u8>>> {
        let begin = Instant::now();
        let came = ask::datagram(self.subject.server, octets, patience)
            .map_err(|error| no_socket(&error))?;
        let parsed = came.as_deref().map(Message::parse).transpose();
        self.keep(Exchange {
            sent: Sent::Octets(octets.to_vec()),
            tcp: false,
            unreadable: parsed.as_ref().err().map(ToString::to_string),
            reply: parsed.ok().flatten(),
            took: begin.elapsed(),
        });
        Ok(came)
    }

    /// Sends all queries at the same time, each from a different port, and returns the replies in the same order. The
    /// recorded times are relative to the first query.
    ///
    /// # Errors
    /// Returns [`Fault::NotTried`], and sends nothing, if the socket for one of the queries cannot be opened.
    pub fn ask_all(&mut self, queries: &[Message]) -> Judged<Vec<Option<Message>>> {
        let Subject { server, patience, .. } = self.subject;
        // All sockets are opened before the first query, so that all clients send at the same time.
        let clients = queries.iter().map(|_| ask::client(server)).collect::<io::Result<Vec<_>>>();
        let clients = clients.map_err(|error| no_socket(&error))?;
        let begin = Instant::now();
        let answers: Vec<_> = thread::scope(|scope| {
            let asking: Vec<_> = queries
                .iter()
                .zip(&clients)
                .map(|(query, client)| {
                    let octets = query.octets();
                    scope.spawn(move || {
                        let answer = ask::exchange(client, &octets, patience);
                        answer.map(|octets| (octets, begin.elapsed()))
                    })
                })
                .collect();
            asking.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        let replies = queries.iter().zip(answers).map(|(query, answer)| {
            let (octets, took) =
                answer.expect("query threads do not panic").map_err(|error| no_socket(&error))?;
            Ok(self.note(query, false, octets.as_deref(), took).ok().flatten())
        });
        replies.collect()
    }

    /// Sends a query over UDP. If the reply is truncated, sends the query again over TCP.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::ask`] and [`Trial::ask_tcp`].
    pub(crate) fn ask_whole(&mut self, query: &Message) -> Judged<Message> {
        let reply = self.ask(query)?;
        if reply.flags.tc { self.ask_tcp(query) } else { Ok(reply) }
    }

    /// Queries the AAAA records of a new name with these labels, and returns the name and the reply.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::ask`].
    pub fn aaaa(&mut self, labels: &str) -> Judged<(Name, Message)> {
        self.look_up(labels, Rtype::AAAA)
    }

    /// Queries the records of type `qtype` of a new name with these labels, and returns the name and the reply.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::ask`].
    pub fn look_up(&mut self, labels: &str, qtype: Rtype) -> Judged<(Name, Message)> {
        let name = self.name(labels);
        let reply = self.ask(&Message::query(&name, qtype))?;
        Ok((name, reply))
    }

    /// Returns the queries that the test authoritative server has received for `name` so far, in the order of arrival.
    ///
    /// # Errors
    /// Returns [`Fault::NotTried`] if the query log is not available.
    pub fn asked(&self, name: &Name) -> Judged<Vec<Asked>> {
        let view = self.subject.view.ok_or_else(|| {
            Fault::NotTried(
                "needs the queries received by the test authoritative server \
                (--auth-status)"
                    .into(),
            )
        })?;
        view.asked(name).map_err(|error| {
            Fault::NotTried(format!(
                "the test authoritative server: \
            {error}"
            ))
        })
    }

    /// Requires that the test authoritative server received at least one query for `name`, and returns the queries.
    ///
    /// # Errors
    /// Returns the errors of [`Trial::asked`], and [`Fault::Wrong`] if there was no query.
    pub(crate) fn was_asked(&self, name: &Name) -> Judged<Vec<Asked>> {
        let asked = self.asked(name)?;
        expect(!asked.is_empty(), || format!("no query for {name} was sent upstream"))?;
        Ok(asked)
    }

    fn keep(&mut self, exchange: Exchange) {
        if self.exchanges.len() == KEPT {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(exchange);
    }

    fn note(
        &mut self,
        query: &Message,
        tcp: bool,
        octets: Option<&[u8]>,
        took: Duration,
    ) -> Judged<Option<Message>> {
        let reply = octets.map(Message::parse).transpose();
        let exchange = |reply, unreadable| Exchange {
            sent: Sent::Query(query.clone()),
            tcp,
            reply,
            unreadable,
            took,
        };
        match reply {
            Ok(reply) => {
                let is_doubtful = reply.as_ref().is_none_or(|reply| reply.rcode == rcode::SERVFAIL);
                self.doubts |= is_doubtful;
                self.keep(exchange(reply.clone(), None));
                if let Some(reply) = &reply {
                    expect(reply.id == query.id && reply.flags.qr, || {
                        "the reply has another ID, or is no response".into()
                    })?;
                }
                Ok(reply)
            }
            Err(error) => {
                self.keep(exchange(None, Some(error.to_string())));
                Err(Fault::Wrong(format!("the reply is no DNS message: {error}")))
            }
        }
    }
}

/// Returns a shell command that sends the same query or octets again. The command is `dig`, or `nc` for octets that
/// `dig` cannot send.
pub(crate) fn by_hand(server: SocketAddr, exchange: &Exchange) -> String {
    match &exchange.sent {
        Sent::Query(query) => dig(server, query, exchange.tcp),
        Sent::Octets(octets) => {
            let (octets, address, port) =
                (base16::encode_string(octets), server.ip(), server.port());
            format!("echo {octets} | xxd -r -p | nc -u -w 2 {address} {port} | xxd")
        }
    }
}

fn dig(server: SocketAddr, query: &Message, tcp: bool) -> String {
    let mut line = format!("dig @{} -p {}", server.ip(), server.port());
    if let Some(question) = query.question() {
        line.push_str(&format!(" {} {}", for_dig(&question.name.to_string()), question.qtype));
        if question.class != domain::base::iana::Class::IN {
            line.push_str(&format!(" -c {}", question.class));
        }
    }
    let mut option = |set: bool, text: &str| {
        if set {
            line.push_str(&format!(" {text}"));
        }
    };
    option(tcp, "+tcp");
    // dig uses TCP for ANY by default.
    let is_any = query.question().is_some_and(|question| question.qtype == Rtype::ANY);
    option(!tcp && is_any, "+notcp");
    option(!query.flags.rd, "+norecurse");
    option(query.flags.cd, "+cdflag");
    // dig sets AD by default.
    option(!query.flags.ad, "+noadflag");
    match &query.edns {
        None => option(true, "+noedns"),
        Some(edns) => {
            option(true, &format!("+nocookie +bufsize={}", edns.payload));
            option(edns.dnssec_ok, "+dnssec");
            option(edns.version > 0, &format!("+edns={} +noednsnegotiation", edns.version));
            for (code, data) in &edns.options {
                option(true, &format!("+ednsopt={code}:{}", base16::encode_string(data)));
            }
        }
    }
    option(query.opcode != 0, &format!("+opcode={}", query.opcode));
    // Like the check, dig must show a truncated reply as received, and must send only one query.
    option(!tcp, "+ignore +tries=1");
    line
}

/// Formats a name as an argument of dig in a shell. The result must be safe to paste, because names also come from the
/// server under test. For example, dig treats an argument that begins with `-`, `+` or `@` as an option, and a single
/// label as a type.
fn for_dig(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.contains('.') && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.into();
    }
    format!("-q '{}'", name.replace('\'', r"'\''")).into()
}

/// Requirements that many checks impose on a reply.
pub(crate) trait Judge {
    /// Requires this RCODE.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] with the actual RCODE.
    fn has_rcode(&self, wanted: u16) -> Judged;

    /// Requires NOERROR, and exactly these AAAA records in the answer, in any order.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] with the actual records.
    fn has_aaaa(&self, wanted: &[Ipv6Addr]) -> Judged;

    /// Requires NOERROR, and exactly these A records in the answer, in any order.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] with the actual records.
    fn has_a(&self, wanted: &[Ipv4Addr]) -> Judged;

    /// Requires NOERROR without records of this type in the answer.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] with the number of records.
    fn lacks(&self, rtype: Rtype) -> Judged;

    /// Requires NODATA (RFC 2308 §2.2), which is NOERROR, no answer record of this type, and at most one SOA record.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] with the number of records.
    fn has_nodata(&self, rtype: Rtype) -> Judged;

    /// Requires that all records of this type in the answer have the same TTL, and returns the TTL.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] if there are no such records, or if their TTLs differ.
    fn ttl(&self, rtype: Rtype) -> Judged<u32>;

    /// Returns the SOA record of the authority section, if there is one.
    ///
    /// # Errors
    /// Returns [`Fault::Wrong`] if there are several SOA records (RFC 2181 §5).
    fn soa(&self) -> Judged<Option<&Record>>;
}

/// Returns the fault for a client socket that cannot be opened. It is [`Fault::NotTried`], because the server is not
/// the cause.
pub(crate) fn no_socket(error: &io::Error) -> Fault {
    Fault::NotTried(format!("no socket: {error}"))
}

impl Judge for Message {
    fn has_rcode(&self, wanted: u16) -> Judged {
        expect(self.rcode == wanted, || {
            format!("the RCODE is {}, not {}", rcode_name(self.rcode), rcode_name(wanted))
        })
    }

    fn has_aaaa(&self, wanted: &[Ipv6Addr]) -> Judged {
        self.has_rcode(rcode::NOERROR)?;
        let found: Vec<Ipv6Addr> = self.answer.iter().filter_map(Record::ipv6).collect();
        same(found.into_iter().map(IpAddr::V6), wanted.iter().copied().map(IpAddr::V6))
    }

    fn has_a(&self, wanted: &[Ipv4Addr]) -> Judged {
        self.has_rcode(rcode::NOERROR)?;
        let found: Vec<Ipv4Addr> = self.answer.iter().filter_map(Record::ipv4).collect();
        same(found.into_iter().map(IpAddr::V4), wanted.iter().copied().map(IpAddr::V4))
    }

    fn lacks(&self, rtype: Rtype) -> Judged {
        self.has_rcode(rcode::NOERROR)?;
        let found = self.answers(rtype).count();
        expect(found == 0, || format!("there are {found} {rtype} records, not none"))
    }

    fn has_nodata(&self, rtype: Rtype) -> Judged {
        self.lacks(rtype)?;
        self.soa().map(drop)
    }

    fn ttl(&self, rtype: Rtype) -> Judged<u32> {
        let mut ttls: Vec<u32> = self.answers(rtype).map(|record| record.ttl).collect();
        ttls.dedup();
        match ttls.as_slice() {
            [ttl] => Ok(*ttl),
            [] => Err(Fault::Wrong(format!("there is no {rtype} record"))),
            _ => Err(Fault::Wrong(format!("one RRset has several TTLs: {ttls:?}"))),
        }
    }

    fn soa(&self) -> Judged<Option<&Record>> {
        let mut found = self.authority.iter().filter(|record| record.rtype == Rtype::SOA);
        let (first, others) = (found.next(), found.count());
        expect(others == 0, || {
            format!("the authority section has {} SOA records, not one", others + 1)
        })?;
        Ok(first)
    }
}

fn same(found: impl Iterator<Item = IpAddr>, wanted: impl Iterator<Item = IpAddr>) -> Judged {
    let list = |addresses: &[IpAddr]| match addresses {
        [] => "none".to_owned(),
        all => all.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
    };
    let (mut found, mut wanted): (Vec<_>, Vec<_>) = (found.collect(), wanted.collect());
    found.sort_unstable();
    wanted.sort_unstable();
    expect(found == wanted, || format!("the addresses are {}, not {}", list(&found), list(&wanted)))
}

/// Returns an RCODE as text.
pub fn rcode_name(code: u16) -> String {
    domain::base::iana::OptRcode::masked_from_int(code).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::name;

    const SERVER: &str = "192.0.2.1:53";

    #[test]
    fn the_line_repeats_all_of_the_query() {
        let mut query = Message::query(&name("x1.v4-1-2-3-4.example"), Rtype::AAAA);
        query.opcode = 4;
        if let Some(edns) = &mut query.edns {
            edns.options = vec![(65_001, vec![1, 0xab]), (10, vec![])];
        }
        let line = dig(SERVER.parse().unwrap(), &query, false);
        assert!(line.starts_with("dig @192.0.2.1 -p 53 x1.v4-1-2-3-4.example AAAA"), "{line}");
        for option in ["+ednsopt=65001:01AB", "+ednsopt=10:", "+opcode=4", "+ignore +tries=1"] {
            assert!(line.contains(option), "{line} has no {option}");
        }
    }

    #[test]
    fn any_is_repeated_over_its_transport() {
        let line = |tcp| {
            let query = Message::query(&name("x1.example"), Rtype::ANY);
            dig(SERVER.parse().unwrap(), &query, tcp)
        };
        assert!(line(false).contains(" ANY +notcp ") && line(true).contains(" ANY +tcp "));
    }

    #[test]
    fn names_from_the_server_are_quoted_for_the_shell() {
        for (evil, word) in [
            ("x;id>/tmp/p", "'x;id>/tmp/p.example'"),
            ("$(id)", "'$(id).example'"),
            ("it's", r"'it'\''s.example'"),
            ("-f", "'-f.example'"),
            ("+short", "'+short.example'"),
        ] {
            let query = Message::query(&label::prepend(evil, &name("example")), Rtype::MX);
            let line = dig(SERVER.parse().unwrap(), &query, true);
            assert!(line.contains(&format!(" -q {word} MX ")), "{line}");
        }
        let query = Message::query(&name("mx"), Rtype::AAAA);
        assert!(dig(SERVER.parse().unwrap(), &query, true).contains(" -q 'mx' AAAA "), "a type");
    }

    #[test]
    fn a_crowd_leaves_a_few_exchanges() {
        let zone = name("example");
        let mut trial = Trial::new(Subject {
            server: SERVER.parse().unwrap(),
            patience: Duration::ZERO,
            zone: Some(&zone),
            prefixes: &[],
            excluded: None,
            view: None,
        });
        let query = Message::query(&zone, Rtype::AAAA);
        for _ in 0..100 {
            let reply = query.response().octets();
            trial.note(&query, false, Some(&reply), Duration::ZERO).unwrap();
        }
        assert!(!trial.has_doubts());
        trial.note(&query, false, None, Duration::ZERO).unwrap();
        assert!(trial.has_doubts(), "a query without a reply");
        assert_eq!(trial.into_exchanges().len(), KEPT);
    }
}
