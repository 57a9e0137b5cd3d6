//! Handling of panics in a thread. A panic affects only the query being processed. After too many
//! panics the process exits, so that a supervisor restarts it.

use units::Nanos;

use crate::guard::{Allowance, Panic};
use crate::metrics::{Count, WorkerMetrics};

/// Maximum length of the description of the lost work in a log line, in octets. The description
/// contains a question.
const LONGEST: usize = 300;

/// Limit on the panics of one thread.
#[derive(Default)]
pub(super) struct PanicBudget {
    allowance: Allowance,
}

impl PanicBudget {
    /// Records a panic that left the query with this question unanswered.
    ///
    /// # Panics
    /// Panics if the thread has had too many panics.
    pub(super) fn record_query(
        &mut self,
        panic: &Panic,
        question: &str,
        now: Nanos,
        metrics: &WorkerMetrics,
    ) {
        let noted = self.record(panic, &cost_of(question), now, metrics);
        noted.unwrap_or_else(|too_many| panic!("{too_many}"));
    }

    /// Records a panic. `cost` describes the lost work.
    ///
    /// # Errors
    /// Returns an error if the thread has had too many panics. Ten panics in a burst, and then one
    /// per minute, are allowed. If the limit is exceeded, the thread must be terminated by an
    /// uncaught panic.
    pub(super) fn record(
        &mut self,
        panic: &Panic,
        cost: &str,
        now: Nanos,
        metrics: &WorkerMetrics,
    ) -> Result<(), TooMany> {
        metrics.count(Count::Defect);
        tracing::error!(
            "internal error, lost {}: {panic}",
            &cost[..cost.floor_char_boundary(LONGEST)]
        );
        if self.allowance.take(now) { Ok(()) } else { Err(TooMany(panic.clone())) }
    }
}

/// Returns the description of the work that is lost if a panic occurs while a question is
/// processed.
pub(super) fn cost_of(question: &str) -> String {
    format!("the answer to a query for {question}")
}

/// Error after too many panics of a thread. It contains the last panic.
#[derive(Clone, Debug, thiserror::Error)]
#[error("too many internal errors; the last one: {0}")]
pub(super) struct TooMany(Panic);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream, UdpSocket};
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::config::Settings;
    use crate::server::{Activated, RunningServer, bind};

    const SOON: Duration = Duration::from_secs(30);

    /// A server with an upstream that answers NODATA, with two exceptions. The upstream does not
    /// answer queries for names that begin with "defect-timer". It truncates answers for names that
    /// begin with "defect-upstream".
    fn server(threads: usize) -> RunningServer {
        let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = upstream.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = upstream.recv_from(&mut bytes) {
                let (question_end, timer) = (len - 11, b"\x0cdefect-timer");
                bytes[2..4].copy_from_slice(&[0x81, 0x80]);
                bytes[11] = 0;
                if bytes[12..len].starts_with(b"\x0fdefect-upstream") {
                    bytes[2] |= 2;
                }
                if !bytes[12..len].starts_with(timer) {
                    upstream.send_to(&bytes[..question_end], from).unwrap();
                }
            }
        });
        let text = format!(
            "listen = ['127.0.0.1:0']\nthreads = {threads}\n[[upstream]]\naddress = '127.0.0.1'\nport = {port}\n"
        );
        let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
        bind(settings, Activated::default()).unwrap().start().unwrap()
    }

    /// A query for an A record.
    fn query(name: &str) -> Vec<u8> {
        let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        query.extend(name.parse::<crate::name::LowerName>().unwrap().wire());
        query.extend([0, 1, 0, 1]);
        query
    }

    /// The RCODE of the reply to a query for an A record.
    fn ask(server: SocketAddr, name: &str) -> Option<u8> {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client.send_to(&query(name), server).unwrap();
        let mut reply = [0; 512];
        client.recv(&mut reply).ok().map(|_| reply[3] & 15)
    }

    /// The RCODE of the reply to a query for an A record over TCP.
    fn query_over_tcp(server: SocketAddr, name: &str) -> Option<u8> {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let query = query(name);
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat()).unwrap();
        let mut reply = [0; 6];
        stream.read_exact(&mut reply).ok().map(|()| reply[5] & 15)
    }

    #[test]
    fn a_panic_costs_one_query_a_servfail_and_is_counted() {
        [1, 2].into_iter().for_each(each_panic_costs_one_query);
    }

    fn each_panic_costs_one_query(threads: usize) {
        let server = server(threads);
        let address = server.addresses()[0];
        let mut panics = 0;
        for (name, over_tcp) in [
            ("defect-query", false),
            ("defect-begin", false),
            ("defect-answer", false),
            ("defect-timer", false),
            ("defect-reply", false),
            ("defect-land", false),
            ("defect-client", true),
            ("defect-upstream", false),
        ] {
            let ask = if over_tcp { query_over_tcp } else { ask };
            assert_eq!(ask(address, &format!("{name}.test")), Some(2), "{name}");
            panics += 1;
            assert_eq!(server.metrics().total(Count::Defect), panics, "{name}");
            assert_eq!(ask(address, &format!("after-{name}.test")), Some(0));
        }
        let give_up = Instant::now() + SOON;
        while server.metrics().in_flight() > 0 {
            assert!(Instant::now() < give_up, "a query waits for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_for_tcp_that_panics_again_and_again_ends() {
        let server = server(1);
        let address = server.addresses()[0];
        for n in 0..10 {
            assert_eq!(query_over_tcp(address, &format!("defect-client{n}.test")), Some(2));
        }
        assert!(server.is_whole());
        let _ = query_over_tcp(address, "defect-client.test");
        let give_up = Instant::now() + SOON;
        while server.is_whole() {
            assert!(Instant::now() < give_up, "the thread goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_worker_that_panics_again_and_again_ends() {
        let server = server(1);
        let address = server.addresses()[0];
        for n in 0..10 {
            assert_eq!(ask(address, &format!("defect-query{n}.test")), Some(2));
        }
        assert!(server.is_whole());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x0cdefect-query\0\0\x01\0\x01", address)
            .unwrap();
        let give_up = Instant::now() + SOON;
        while server.is_whole() {
            assert!(Instant::now() < give_up, "the worker goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
