//! Output of dnstap (<https://dnstap.info>): copies in wire format of the messages to and from clients, and of the
//! messages to and from upstreams. The copies are sent to the reader, a program that listens on a Unix socket.
//!
//! ```text
//! Tap ─► queue ─► Writer ─► protobuf: a message with its times and addresses
//!                   │   └─► frames: Frame Streams, with the handshake of both sides ─► socket
//!                   └ no reader, or a stopped one: dropped and counted; connection retried later
//! ```

mod frames;
mod message;
mod protobuf;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::gethostname;

use self::frames::FrameWriter;
pub(crate) use self::message::{End, Ends, Message, MessageKind};
use super::queue::{QueueReceiver, QueueSender, Received, queue};
use crate::config::DnstapKeys;
use crate::metrics::{Count, WorkerMetrics};

/// Maximum number of messages in the queue.
const PLACES: usize = 16_384;
/// Maximum total size of the messages in the queue, in octets.
const OCTETS: usize = 16 << 20;
/// Number of buffered octets at which the buffer is written to the reader.
const BUFFER: usize = 64 << 10;
/// Time limit for the reader to accept data, and to answer in a handshake.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum interval between checks that determine whether a connection attempt is due.
const TICK: Duration = Duration::from_millis(200);
/// Shortest pause before a new connection attempt after a failed or lost connection. The pause doubles after each
/// failure.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause before a new connection attempt after a failed or lost connection.
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// Handle that one thread uses to pass copies of messages to the writer.
#[derive(Clone)]
pub(crate) struct Tap {
    inlet: QueueSender<Message>,
    clients: bool,
    upstreams: bool,
}

impl Tap {
    /// True if messages to and from clients are copied.
    #[inline]
    pub(super) fn takes_clients(&self) -> bool {
        self.clients
    }

    /// True if messages to and from upstreams are copied.
    pub(super) fn takes_upstreams(&self) -> bool {
        self.upstreams
    }

    /// Queues a message. If the queue is full, the message is dropped and counted.
    pub(crate) fn put(&self, message: Message, metrics: &WorkerMetrics) {
        if !self.inlet.put(message) {
            metrics.count(Count::TapDropped);
        }
    }
}

/// State of the thread that writes messages to the reader.
pub(super) struct Writer {
    outlet: QueueReceiver<Message>,
    socket: PathBuf,
    identity: Vec<u8>,
    reader: Reader,
}

/// State of the connection to the reader.
enum Reader {
    /// Connected. The values are the writer of the frames, and the number of messages in its buffer.
    There(FrameWriter<UnixStream>, u64),
    /// Not connected. The values are the time of the next connection attempt, and the pause that follows if this
    /// attempt fails.
    Gone(Instant, Duration),
}

/// Returns the server's identity: the configured identity, or the host name. The result is empty if
/// neither exists.
pub(super) fn identity(keys: &DnstapKeys) -> String {
    let host = || gethostname().unwrap_or_default().to_string_lossy().into_owned();
    keys.identity.clone().unwrap_or_else(host)
}

/// Creates a handle that accepts copies of messages, and the writer that sends these copies to the reader at `socket`.
pub(super) fn tap(keys: &DnstapKeys, socket: &Path, identity: &str) -> (Tap, Writer) {
    let (inlet, outlet) = queue(PLACES, OCTETS);
    let writer = Writer {
        outlet,
        socket: socket.into(),
        identity: identity.into(),
        reader: Reader::Gone(Instant::now(), LEAST_PAUSE),
    };
    (Tap { inlet, clients: keys.clients, upstreams: keys.upstreams }, writer)
}

impl Writer {
    /// Writes messages until all handles that supply messages have been dropped.
    pub(super) fn run(mut self, metrics: &WorkerMetrics) {
        loop {
            self.connect_when_due();
            let next = match self.outlet.next(Duration::ZERO) {
                Received::Nothing => {
                    self.flush(metrics);
                    self.outlet.next(TICK)
                }
                next => next,
            };
            match next {
                Received::One(message) => self.write(&message, metrics),
                Received::Nothing => {}
                Received::Over => break,
            }
        }
        self.flush(metrics);
        if let Reader::There(frames, _) = self.reader {
            // Everything is written, so an error in the final handshake does not matter.
            let _ = frames.finish();
        }
    }

    fn connect_when_due(&mut self) {
        let Reader::Gone(at, pause) = self.reader else { return };
        if Instant::now() < at {
            return;
        }
        match connect_to(&self.socket).and_then(FrameWriter::start) {
            Ok(frames) => {
                tracing::info!("dnstap: connected to {}", self.socket.display());
                self.reader = Reader::There(frames, 0);
            }
            Err(error) => {
                if pause == LEAST_PAUSE {
                    tracing::warn!(
                        "dnstap: cannot connect to {}, retrying: {error}",
                        self.socket.display()
                    );
                }
                self.reader = Reader::Gone(Instant::now() + pause, (pause * 2).min(MOST_PAUSE));
            }
        }
    }

    fn write(&mut self, message: &Message, metrics: &WorkerMetrics) {
        let Reader::There(frames, buffered) = &mut self.reader else {
            return metrics.count(Count::TapDropped);
        };
        frames.put(&protobuf::encode(message, &self.identity));
        *buffered += 1;
        if frames.waiting() >= BUFFER {
            self.flush(metrics);
        }
    }

    /// Writes the buffer to the reader. If the reader does not accept the data, the messages are dropped and the
    /// connection is closed. A partly written message would make the next message unreadable.
    fn flush(&mut self, metrics: &WorkerMetrics) {
        let Reader::There(frames, buffered) = &mut self.reader else { return };
        let messages = std::mem::take(buffered);
        match frames.flush() {
            Ok(()) => metrics.add(Count::TapSent, messages),
            Err(error) => {
                metrics.add(Count::TapDropped, messages);
                tracing::warn!("dnstap: lost the connection to {}: {error}", self.socket.display());
                self.reader = Reader::Gone(Instant::now() + LEAST_PAUSE, LEAST_PAUSE * 2);
            }
        }
    }
}

/// Connects to a Unix socket. Does not wait if the listening program does not accept connections.
///
/// # Errors
/// Returns an error if no program listens at the path, or if the connection cannot be made immediately.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::transport::Transport;

    const SOON: Duration = Duration::from_secs(20);

    fn message(octets: &[u8]) -> Message {
        let kind = MessageKind::ClientQuery;
        Message::now(kind, Transport::Udp, Ends::default(), None, octets)
    }

    fn eventually(what: &str, condition: impl Fn() -> bool) {
        let give_up = Instant::now() + SOON;
        while !condition() {
            assert!(Instant::now() < give_up, "{what}: never");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_missing_or_stalled_reader_never_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap.sock");
        let (tap, writer) = tap(&DnstapKeys::default(), &path, "ns1");
        let (metrics, sender) = (WorkerMetrics::default(), WorkerMetrics::default());
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&metrics));
            // There is no reader.
            tap.put(message(b"one"), &sender);
            eventually("it is lost", || metrics.get(Count::TapDropped) == 1);
            // The reader stops reading after the handshake.
            let listener = UnixListener::bind(&path).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut ready = vec![0; 42];
            stream.read_exact(&mut ready).unwrap();
            assert!(ready.ends_with(b"protobuf:dnstap.Dnstap"));
            // An ACCEPT frame differs from a READY frame only in its type number.
            ready[11] = 1;
            stream.write_all(&ready).unwrap();
            let mut put = 0;
            while metrics.get(Count::TapDropped) + sender.get(Count::TapDropped) == 1 {
                tap.put(message(&[7; 60_000]), &sender);
                put += 1;
                assert!(put < 1_000_000, "the queue never fills");
            }
            drop((tap, stream, listener));
        });
    }

    #[test]
    fn a_reader_that_returns_gets_messages_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tap.sock");
        let (tap, writer) = tap(&DnstapKeys::default(), &path, "ns1");
        let (metrics, sender) = (WorkerMetrics::default(), WorkerMetrics::default());
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&metrics));
            for _ in 0..2 {
                let _ = std::fs::remove_file(&path);
                let listener = UnixListener::bind(&path).unwrap();
                let (stream, _) = listener.accept().unwrap();
                let mut reader = frames::tests::FrameReader::accept(stream);
                let sent = metrics.get(Count::TapSent);
                eventually("a message is taken", || {
                    tap.put(message(b"two"), &sender);
                    metrics.get(Count::TapSent) > sent
                });
                let is_it = |frame: Vec<u8>| {
                    let read = protobuf::tests::decode(&frame).message.unwrap();
                    read.query_message.as_deref() == Some(&b"two"[..])
                };
                assert!(std::iter::from_fn(|| reader.next()).any(is_it));
                drop((reader, listener));
                // The closed connection is detected by the next write.
                let dropped = metrics.get(Count::TapDropped);
                eventually("it is gone", || {
                    tap.put(message(b"three"), &sender);
                    metrics.get(Count::TapDropped) > dropped
                });
            }
            drop(tap);
        });
    }
}
