//! What a worker does about its own panics: each costs the query that was being worked on, and nothing else; too many end the
//! process, so that whoever watches over it starts it anew.

use method::units::Nanos;

use crate::guard::{Allowance, Panic};
use crate::metrics::{Count, WorkerMetrics};

/// The most octets of a question that the log repeats.
const LONGEST: usize = 300;

/// The panics of one worker.
#[derive(Default)]
pub(super) struct Defects {
    allowance: Allowance,
}

impl Defects {
    /// There has been one, at work on `question`.
    ///
    /// # Panics
    /// If there have been too many: ten at once, then one a minute.
    pub(super) fn note(&mut self, panic: &Panic, question: &str, now: Nanos, metrics: &WorkerMetrics) {
        metrics.count(Count::Defect);
        let question = &question[..question.floor_char_boundary(LONGEST)];
        tracing::error!("a defect of dns64d cost one query its answer: {panic}; the question was {question}");
        assert!(self.allowance.take(now), "too many defects, of which the last one was: {panic}");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::config::Settings;
    use crate::server::{Activated, RunningServer, bind};

    const SOON: Duration = Duration::from_secs(10);

    /// A server whose upstream says of all names that there is no such data, but of those that begin with "defect-timer" nothing.
    fn server() -> RunningServer {
        let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = upstream.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((len, from)) = upstream.recv_from(&mut bytes) {
                let (question_end, timer) = (len - 11, b"\x0cdefect-timer");
                bytes[2..4].copy_from_slice(&[0x81, 0x80]);
                bytes[11] = 0;
                if !bytes[12..len].starts_with(timer) {
                    upstream.send_to(&bytes[..question_end], from).unwrap();
                }
            }
        });
        let text =
            format!("listen = ['127.0.0.1:0']\nthreads = 1\n[[upstream]]\naddress = '127.0.0.1'\nport = {port}\n");
        let settings = Settings::from_text(&text, Path::new("test.toml")).unwrap();
        bind(settings, Activated::default()).unwrap().start().unwrap()
    }

    /// The RCODE of the reply to a question for an A record.
    fn ask(server: SocketAddr, name: &str) -> Option<u8> {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        let mut query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0".to_vec();
        query.extend(name.parse::<crate::name::LowerName>().unwrap().wire());
        query.extend([0, 1, 0, 1]);
        client.send_to(&query, server).unwrap();
        let mut reply = [0; 512];
        client.recv(&mut reply).ok().map(|_| reply[3] & 15)
    }

    #[test]
    fn a_panic_costs_one_query_a_servfail_and_is_counted() {
        let server = server();
        let address = server.addresses()[0];
        let mut panics = 0;
        for name in ["defect-query", "defect-answer", "defect-timer", "defect-reply"] {
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
    fn a_worker_that_panics_again_and_again_ends() {
        let server = server();
        let address = server.addresses()[0];
        for n in 0..10 {
            assert_eq!(ask(address, &format!("defect-query{n}.test")), Some(2));
        }
        assert!(server.is_whole());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x0cdefect-query\0\0\x01\0\x01", address).unwrap();
        let give_up = Instant::now() + SOON;
        while server.is_whole() {
            assert!(Instant::now() < give_up, "the worker goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
