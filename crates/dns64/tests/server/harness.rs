//! A scripted upstream, a server under test, and a client: all on loopback.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dns64::config::Settings;
use dns64::server::{Activated, RunningServer, bind};
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message_builder::{AnswerBuilder, TreeCompressor};
use domain::base::name::{Name, ToName};
use domain::base::record::ComposeRecord;
use domain::base::{Message, MessageBuilder, Record, Serial, Ttl};
use domain::rdata::{A, Aaaa, AllRecordData, Cname, Dname, Ns, Ptr, Rrsig, Soa};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};

/// Time limit for an expected event. The test fails if the event has not occurred by then.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Time for which a test waits to check that no message arrives.
pub(crate) const NOTHING: Duration = Duration::from_millis(300);

pub(crate) fn name(text: &str) -> Name<Vec<u8>> {
    Name::from_str(text).unwrap()
}

/// Returns an address with a port that is free for UDP and TCP, and that no client of another test
/// gets as its ephemeral port.
pub(crate) fn free_address() -> SocketAddr {
    net::ports::free(Ipv4Addr::LOCALHOST.into()).unwrap()
}

pub(crate) fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub(crate) fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

// ---- answers of upstreams ----

/// A query received by the scripted upstream.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) message: Message<Vec<u8>>,
    /// Lower case, no final dot.
    pub(crate) name: String,
    pub(crate) qtype: Rtype,
    pub(crate) tcp: bool,
    pub(crate) from: SocketAddr,
}

impl Asked {
    pub(crate) fn new(bytes: &[u8], tcp: bool, from: SocketAddr) -> Option<Asked> {
        let message = Message::from_octets(bytes.to_vec()).ok()?;
        let question = message.sole_question().ok()?;
        let name = question.qname().to_string().to_ascii_lowercase();
        Some(Asked { name, qtype: question.qtype(), message, tcp, from })
    }

    /// An empty answer to this query.
    pub(crate) fn answer(&self) -> Reply {
        self.rcode(Rcode::NOERROR)
    }

    pub(crate) fn rcode(&self, rcode: Rcode) -> Reply {
        let builder = MessageBuilder::from_target(TreeCompressor::new(Vec::new())).unwrap();
        let mut answer = builder.start_answer(&self.message, rcode).unwrap();
        answer.header_mut().set_ra(true);
        let (authority, additional) = (Vec::new(), Vec::new());
        Reply {
            answer,
            authority,
            additional,
            truncated: false,
            authentic: false,
            edns: true,
            ede: None,
        }
    }

    /// NODATA, with an SOA that has the given TTL and MINIMUM.
    pub(crate) fn nodata(&self, ttl: u32, minimum: u32) -> Reply {
        self.answer().soa("test", ttl, minimum)
    }

    pub(crate) fn dnssec_ok(&self) -> bool {
        self.message.opt().is_some_and(|opt| opt.dnssec_ok())
    }
}

type Any = Record<Name<Vec<u8>>, AllRecordData<Vec<u8>, Name<Vec<u8>>>>;

pub(crate) struct Reply {
    answer: AnswerBuilder<TreeCompressor<Vec<u8>>>,
    authority: Vec<Any>,
    additional: Vec<Any>,
    truncated: bool,
    authentic: bool,
    edns: bool,
    ede: Option<u16>,
}

impl Reply {
    fn push(mut self, record: impl ComposeRecord) -> Reply {
        self.answer.push(record).unwrap();
        self
    }

    pub(crate) fn a(self, owner: &str, ttl: u32, address: &str) -> Reply {
        self.push(record(owner, ttl, A::new(v4(address))))
    }

    pub(crate) fn ptr(self, owner: &str, ttl: u32, target: &str) -> Reply {
        self.push(record(owner, ttl, Ptr::new(name(target))))
    }

    pub(crate) fn aaaa(self, owner: &str, ttl: u32, address: &str) -> Reply {
        self.push(record(owner, ttl, Aaaa::new(v6(address))))
    }

    pub(crate) fn cname(self, owner: &str, ttl: u32, target: &str) -> Reply {
        self.push(record(owner, ttl, Cname::new(name(target))))
    }

    pub(crate) fn dname(self, owner: &str, ttl: u32, target: &str) -> Reply {
        self.push(record(owner, ttl, Dname::new(name(target))))
    }

    pub(crate) fn any(
        self,
        owner: &str,
        ttl: u32,
        data: AllRecordData<Vec<u8>, Name<Vec<u8>>>,
    ) -> Reply {
        self.push(record(owner, ttl, data))
    }

    pub(crate) fn rrsig(self, owner: &str, covered: Rtype) -> Reply {
        self.push(record(owner, 300, signature(covered)))
    }

    pub(crate) fn soa(mut self, zone: &str, ttl: u32, minimum: u32) -> Reply {
        let seconds = Ttl::from_secs;
        let data = Soa::new(
            name("ns.test"),
            name("hostmaster.test"),
            Serial(1),
            seconds(1),
            seconds(1),
            seconds(1),
            seconds(minimum),
        );
        self.authority.push(record(zone, ttl, AllRecordData::Soa(data)));
        self
    }

    pub(crate) fn ns(mut self, zone: &str, ttl: u32, server: &str) -> Reply {
        self.authority.push(record(zone, ttl, AllRecordData::Ns(Ns::new(name(server)))));
        self
    }

    pub(crate) fn signed_authority(mut self) -> Reply {
        self.authority.push(record("test", 300, AllRecordData::Rrsig(signature(Rtype::SOA))));
        self
    }

    pub(crate) fn additional_a(mut self, owner: &str, ttl: u32, address: &str) -> Reply {
        self.additional.push(record(owner, ttl, AllRecordData::A(A::new(v4(address)))));
        self
    }

    pub(crate) fn truncated(mut self) -> Reply {
        self.truncated = true;
        self
    }

    /// Removes the EDNS part, as in responses of old servers.
    pub(crate) fn without_edns(mut self) -> Reply {
        self.edns = false;
        self
    }

    pub(crate) fn authentic(mut self) -> Reply {
        self.authentic = true;
        self
    }

    /// Adds an extended error (RFC 8914).
    pub(crate) fn ede(mut self, code: u16) -> Reply {
        self.ede = Some(code);
        self
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.answer.header_mut().set_tc(self.truncated);
        self.answer.header_mut().set_ad(self.authentic);
        let mut authority = self.answer.authority();
        for record in self.authority {
            authority.push(record).unwrap();
        }
        let mut additional = authority.additional();
        // OPT comes first, so that the following data move when it is removed.
        if self.edns {
            additional
                .opt(|opt| {
                    opt.set_udp_payload_size(4096);
                    if let Some(code) = self.ede {
                        let data =
                            domain::base::opt::UnknownOptData::new(15.into(), code.to_be_bytes())
                                .unwrap();
                        opt.push(&data)?;
                    }
                    Ok(())
                })
                .unwrap();
        }
        for record in self.additional {
            additional.push(record).unwrap();
        }
        additional.finish().into_target()
    }

    pub(crate) fn send(self) -> Vec<Act> {
        vec![Act::Send(self.bytes())]
    }
}

fn record<D>(owner: &str, ttl: u32, data: D) -> Record<Name<Vec<u8>>, D> {
    Record::new(name(owner), Class::IN, Ttl::from_secs(ttl), data)
}

fn signature(covered: Rtype) -> Rrsig<Vec<u8>, Name<Vec<u8>>> {
    let (now, algorithm) =
        (domain::rdata::dnssec::Timestamp::from(1), domain::base::iana::SecurityAlgorithm::ED25519);
    Rrsig::new(covered, algorithm, 2, Ttl::from_secs(300), now, now, 1, name("test"), vec![0; 64])
        .unwrap()
}

/// Action of the upstream for a query.
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Send from a port that was not queried.
    SendFromElsewhere(Vec<u8>),
    /// Send two messages of equal length with one system call. The kernel splits them into two
    /// datagrams (`UDP_SEGMENT`).
    SendJoined([Vec<u8>; 2]),
    Wait(Duration),
    /// Wait until the test sets the flag.
    Until(Arc<AtomicBool>),
}

/// A scripted upstream, with UDP and TCP on one port.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// The actions of an upstream for each query.
type Script = Arc<dyn Fn(&Asked) -> Vec<Act> + Send + Sync>;

impl Upstream {
    pub(crate) fn new(script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Upstream {
        Upstream::at("127.0.0.1:0".parse().unwrap(), script)
    }

    pub(crate) fn at(
        address: SocketAddr,
        script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static,
    ) -> Upstream {
        // The TCP port of the same number may be in use: try again.
        let (udp, tcp) = (0..50)
            .find_map(|_| {
                let udp = UdpSocket::bind(address).ok()?;
                let tcp = TcpListener::bind(udp.local_addr().ok()?).ok()?;
                Some((udp, tcp))
            })
            .expect("a free port");
        let address = udp.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let script: Script = Arc::new(script);
        let threads = vec![
            thread::spawn({
                let (script, asked, stop) =
                    (Arc::clone(&script), Arc::clone(&asked), Arc::clone(&stop));
                move || serve_udp(&udp, &script, &asked, &stop)
            }),
            thread::spawn({
                let (asked, stop) = (Arc::clone(&asked), Arc::clone(&stop));
                move || serve_tcp(&tcp, &script, &asked, &stop)
            }),
        ];
        Upstream { address, asked, stop, threads }
    }

    /// The received queries, as "name TYPE", "name TYPE tcp".
    pub(crate) fn asked(&self) -> Vec<String> {
        let line = |a: &Asked| format!("{} {}{}", a.name, a.qtype, if a.tcp { " tcp" } else { "" });
        self.asked.lock().unwrap().iter().map(line).collect()
    }

    pub(crate) fn queries(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Waits until the test sets the flag.
fn wait_until(is_time: &AtomicBool) {
    while !is_time.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn serve_udp(socket: &UdpSocket, script: &Script, log: &Mutex<Vec<Asked>>, stop: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut bytes = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
        let Some(asked) = Asked::new(&bytes[..len], false, from) else { continue };
        log.lock().unwrap().push(asked.clone());
        // The script must run exactly once for each query, because scripts count queries and use
        // random numbers.
        let acts = script(&asked);
        let waits = acts.iter().any(|act| matches!(act, Act::Wait(_) | Act::Until(_)));
        let reply = socket.try_clone().unwrap();
        let act = move || {
            for act in acts {
                match act {
                    Act::Send(bytes) => drop(reply.send_to(&bytes, from)),
                    Act::SendFromElsewhere(bytes) => {
                        let own = (reply.local_addr().unwrap().ip(), 0);
                        drop(UdpSocket::bind(own).unwrap().send_to(&bytes, from));
                    }
                    Act::SendJoined(all) => {
                        let length = all[0].len() as u16;
                        let octets = all.concat();
                        let to = SockaddrStorage::from(from);
                        let how = [ControlMessage::UdpGsoSegments(&length)];
                        let parts = [std::io::IoSlice::new(&octets)];
                        let flags = MsgFlags::empty();
                        sendmsg(reply.as_raw_fd(), &parts, &how, flags, Some(&to)).unwrap();
                    }
                    Act::Wait(time) => thread::sleep(time),
                    Act::Until(is_time) => wait_until(&is_time),
                }
            }
        };
        // Waiting actions must not delay other queries.
        if waits { drop(thread::spawn(act)) } else { act() }
    }
}

fn serve_tcp(
    listener: &TcpListener,
    script: &Script,
    log: &Arc<Mutex<Vec<Asked>>>,
    stop: &AtomicBool,
) {
    listener.set_nonblocking(true).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, from)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let (script, log) = (Arc::clone(script), Arc::clone(log));
        thread::spawn(move || {
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            while let Some(bytes) = read_tcp(&mut stream) {
                let Some(asked) = Asked::new(&bytes, true, from) else { return };
                log.lock().unwrap().push(asked.clone());
                for act in script(&asked) {
                    match act {
                        Act::Send(bytes) | Act::SendFromElsewhere(bytes) => {
                            write_tcp(&mut stream, &bytes);
                        }
                        Act::SendJoined(all) => {
                            all.iter().for_each(|bytes| write_tcp(&mut stream, bytes));
                        }
                        Act::Wait(time) => thread::sleep(time),
                        Act::Until(is_time) => wait_until(&is_time),
                    }
                }
            }
        });
    }
}

/// A TCP connection from the address `from` to `to`.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    if !to.is_ipv4() || !from.is_ipv4() {
        return TcpStream::connect(to).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

pub(crate) fn read_tcp(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

pub(crate) fn write_tcp(stream: &mut TcpStream, bytes: &[u8]) {
    let framed = [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let _ = stream.write_all(&framed);
}

// ---- the server under test ----

pub(crate) struct Server {
    pub(crate) running: RunningServer,
    pub(crate) address: SocketAddr,
}

/// A server with these upstreams and this additional configuration. In `configuration`, top-level
/// keys must come before the first table.
pub(crate) fn server(upstreams: &[SocketAddr], configuration: &str) -> Server {
    server_with(upstreams, configuration, |_| {})
}

/// A server whose upstream queries do not time out while a test holds back the response.
pub(crate) fn patient_server(upstreams: &[SocketAddr], configuration: &str) -> Server {
    server_with(upstreams, configuration, |settings| {
        settings.config.forwarding.timeout = Duration::from_secs(4);
    })
}

/// A server whose settings are modified by `change`, for example to values that a configuration
/// file may not have.
pub(crate) fn server_with(
    upstreams: &[SocketAddr],
    configuration: &str,
    change: impl Fn(&mut Settings),
) -> Server {
    let settings = || {
        let mut settings = settings(upstreams, configuration);
        change(&mut settings);
        settings
    };
    // The kernel assigns a free UDP port, but the TCP port of that number may be in use.
    let bound = (0..50).find_map(|_| bind(settings(), Activated::default()).ok());
    let running = bound.expect("a port that is free for UDP and TCP").start().unwrap();
    let address = running.addresses()[0];
    Server { running, address }
}

pub(crate) fn settings(upstreams: &[SocketAddr], configuration: &str) -> Settings {
    let threads = if configuration.contains("threads") { "" } else { "threads = 1\n" };
    let upstreams: String = upstreams
        .iter()
        .map(|a| format!("[[upstream]]\naddress = '{}'\nport = {}\n", a.ip(), a.port()))
        .collect();
    // Upstreams without signatures get no queries that a test does not expect.
    let dnssec =
        if configuration.contains("[dnssec]") { "" } else { "[dnssec]\nvalidate = false\n" };
    let text = format!("listen = ['127.0.0.1:0']\n{threads}{configuration}\n{dnssec}{upstreams}");
    Settings::from_text(&text, Path::new("test.toml")).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Configuration of the prefix that most tests use. The prefix embeds all IPv4 addresses.
pub(crate) const PREFIX: &str = "[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96' }]\n";

pub(crate) fn mapped(address: &str) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(v6("2001:db8:64::")) | u128::from(u32::from(v4(address))))
}

// ---- the client ----

/// A query to be sent.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) name: String,
    pub(crate) qtype: Rtype,
    pub(crate) class: Class,
    pub(crate) id: u16,
    pub(crate) recursion_desired: bool,
    pub(crate) checking_disabled: bool,
    pub(crate) authentic_data: bool,
    pub(crate) edns: Option<u16>,
    pub(crate) dnssec_ok: bool,
    pub(crate) options: Vec<(u16, Vec<u8>)>,
    pub(crate) from: IpAddr,
}

pub(crate) fn ask(name: &str, qtype: Rtype) -> Ask {
    Ask {
        name: name.into(),
        qtype,
        class: Class::IN,
        id: rand::random(),
        recursion_desired: true,
        checking_disabled: false,
        authentic_data: false,
        edns: None,
        dnssec_ok: false,
        options: Vec::new(),
        from: "127.0.0.1".parse().unwrap(),
    }
}

impl Ask {
    pub(crate) fn edns(mut self, size: u16) -> Ask {
        self.edns = Some(size);
        self
    }
    pub(crate) fn dnssec_ok(mut self) -> Ask {
        (self.edns, self.dnssec_ok) = (Some(self.edns.unwrap_or(1232)), true);
        self
    }
    pub(crate) fn checking_disabled(mut self) -> Ask {
        self.checking_disabled = true;
        self
    }
    pub(crate) fn authentic_data(mut self) -> Ask {
        self.authentic_data = true;
        self
    }
    pub(crate) fn option(mut self, code: u16, data: &[u8]) -> Ask {
        self.edns = Some(self.edns.unwrap_or(1232));
        self.options.push((code, data.to_vec()));
        self
    }
    pub(crate) fn from(mut self, address: &str) -> Ask {
        self.from = address.parse().unwrap();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(self.id);
        builder.header_mut().set_rd(self.recursion_desired);
        builder.header_mut().set_cd(self.checking_disabled);
        builder.header_mut().set_ad(self.authentic_data);
        let mut question = builder.question();
        question.push((name(&self.name), self.qtype, self.class)).unwrap();
        let mut additional = question.additional();
        if let Some(size) = self.edns {
            additional
                .opt(|opt| {
                    opt.set_udp_payload_size(size);
                    opt.set_dnssec_ok(self.dnssec_ok);
                    for (code, data) in &self.options {
                        let data =
                            domain::base::opt::UnknownOptData::new((*code).into(), data.clone())
                                .unwrap();
                        opt.push(&data)?;
                    }
                    Ok(())
                })
                .unwrap();
        }
        additional.finish()
    }

    /// The reply over UDP. Panics if no reply arrives in time.
    pub(crate) fn of(&self, server: &Server) -> Got {
        self.try_of(server.address, SOON)
            .unwrap_or_else(|| panic!("no reply to {} {}", self.name, self.qtype))
    }

    /// The reply over UDP, or `None` if no reply arrives within `patience`.
    pub(crate) fn try_of(&self, server: SocketAddr, patience: Duration) -> Option<Got> {
        let socket = UdpSocket::bind((self.from, 0)).unwrap();
        socket.send_to(&self.bytes(), server).unwrap();
        receive(&socket, patience)
    }

    pub(crate) fn over_tcp(&self, server: &Server) -> Got {
        self.try_over_tcp(server).expect("a reply over TCP")
    }

    /// The reply over TCP, or `None` if the server closes the connection without a reply.
    pub(crate) fn try_over_tcp(&self, server: &Server) -> Option<Got> {
        let mut stream = connect(self.from, server.address);
        stream.set_read_timeout(Some(SOON)).unwrap();
        write_tcp(&mut stream, &self.bytes());
        read_tcp(&mut stream).map(|bytes| Got::new(&bytes))
    }
}

pub(crate) fn receive(socket: &UdpSocket, patience: Duration) -> Option<Got> {
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut bytes = vec![0; 65_535];
    let (len, _) = socket.recv_from(&mut bytes).ok()?;
    Some(Got::new(&bytes[..len]))
}

/// A reply, parsed by an independent library.
pub(crate) struct Got {
    pub(crate) message: Message<Vec<u8>>,
}

impl Got {
    pub(crate) fn new(bytes: &[u8]) -> Got {
        Got { message: Message::from_octets(bytes.to_vec()).expect("a DNS message") }
    }

    pub(crate) fn rcode(&self) -> Rcode {
        self.message.header().rcode()
    }

    pub(crate) fn len(&self) -> usize {
        self.message.as_slice().len()
    }

    /// Answer records as "owner TTL TYPE data", lower case.
    pub(crate) fn answers(&self) -> Vec<String> {
        let section = self.message.answer().unwrap().limit_to::<AllRecordData<_, _>>();
        section
            .map(|record| {
                let record = record.unwrap();
                let (owner, ttl) = (record.owner().to_name::<Vec<u8>>(), record.ttl().as_secs());
                let line =
                    format!("{owner} {ttl} {} {}", record.rtype(), record.data()).to_lowercase();
                line.trim_end_matches('.').to_owned()
            })
            .collect()
    }

    pub(crate) fn addresses(&self) -> Vec<Ipv6Addr> {
        let section = self.message.answer().unwrap().limit_to::<Aaaa>();
        section.map(|record| record.unwrap().data().addr()).collect()
    }

    pub(crate) fn ttls(&self) -> Vec<u32> {
        self.message.answer().unwrap().map(|record| record.unwrap().ttl().as_secs()).collect()
    }

    pub(crate) fn has_soa(&self) -> bool {
        self.message.authority().unwrap().any(|record| record.unwrap().rtype() == Rtype::SOA)
    }

    /// EDNS options by code.
    pub(crate) fn options(&self) -> HashMap<u16, Vec<u8>> {
        let Some(opt) = self.message.opt() else { return HashMap::new() };
        opt.opt()
            .iter::<domain::base::opt::UnknownOptData<_>>()
            .map(|option| option.unwrap())
            .map(|option| (option.code().to_int(), option.data().to_vec()))
            .collect()
    }

    /// The extended errors, in order.
    pub(crate) fn edes(&self) -> Vec<u16> {
        let Some(opt) = self.message.opt() else { return Vec::new() };
        let options =
            opt.opt().iter::<domain::base::opt::UnknownOptData<_>>().map(|option| option.unwrap());
        let errors = options.filter(|option| option.code().to_int() == 15);
        errors.map(|option| u16::from_be_bytes([option.data()[0], option.data()[1]])).collect()
    }

    /// The extended error (RFC 8914).
    pub(crate) fn ede(&self) -> Option<u16> {
        self.options().get(&15).map(|data| u16::from_be_bytes([data[0], data[1]]))
    }
}

/// Waits until `condition` is true; a failure reports `what`.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < give_up, "{what}: never");
        thread::sleep(Duration::from_millis(10));
    }
}
