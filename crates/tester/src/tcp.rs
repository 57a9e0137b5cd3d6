//! DNS over TCP for the tester's servers (RFC 7766), with pipelined queries, an idle timeout, and a maximum number of
//! connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::poller::{Alarm, Poller};

use crate::authdns::answer::MAX_REPLY;

/// Maximum number of open connections; further connections are closed.
const MAX_CONNECTIONS: usize = 128;
/// Maximum time that a client may keep a connection open without sending a complete query.
const IDLE: Duration = Duration::from_secs(10);
/// Pause after a failed accept(2). If the process has no file descriptor left, the listener stays readable. Without the
/// pause, the loop would then be a busy loop.
const NO_DESCRIPTOR: Duration = Duration::from_millis(50);
/// Maximum duration of one wait for a new connection. After this time, the listener waits again.
const WAIT: Duration = Duration::from_secs(60);

/// Tokens by which the poller identifies the listener and the stop signal.
const LISTENER: usize = 0;
const STOP: usize = 1;

/// A running server. Dropping it closes the listener; open connections end after [`IDLE`] or earlier.
pub(crate) struct TcpServer {
    stop: Alarm,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves the connections of `listener`.
///
/// `answer` writes the reply to a query into a buffer of [`MAX_REPLY`] octets and returns the length of the reply.
///
/// # Errors
/// Returns an error if the listener cannot be used, or if no thread or file descriptor is left.
pub(crate) fn serve(
    listener: TcpListener,
    answer: impl Fn(&[u8], &mut [u8]) -> usize + Send + Sync + 'static,
) -> io::Result<TcpServer> {
    // accept(2) must not block if a client has closed its connection in the meantime.
    listener.set_nonblocking(true)?;
    let stop = Alarm::new()?;
    let mut poller = Poller::new(2)?;
    poller.add(&listener, LISTENER)?;
    poller.add(&stop, STOP)?;
    let answer = Arc::new(answer);
    let open = Arc::new(AtomicUsize::new(0));
    let accepting = move || {
        while poller.wait(WAIT).is_ok_and(|mut ready| ready.all(|token| token == LISTENER)) {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => {
                    thread::sleep(NO_DESCRIPTOR);
                    continue;
                }
            };
            if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&open));
            let serving = thread::Builder::new().spawn(move || {
                // An error means that the client has closed the connection or was too slow.
                let _ = serve_connection(stream, &*answer);
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if serving.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    };
    let thread = thread::Builder::new().name("tcp".into()).spawn(accepting)?;
    Ok(TcpServer { stop, thread: Some(thread) })
}

fn serve_connection(
    mut stream: TcpStream,
    answer: &dyn Fn(&[u8], &mut [u8]) -> usize,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut query = vec![0; usize::from(u16::MAX)];
    let mut reply = vec![0; 2 + MAX_REPLY];
    loop {
        let mut len = [0; 2];
        stream.read_exact(&mut len)?;
        let query = &mut query[..usize::from(u16::from_be_bytes(len))];
        stream.read_exact(query)?;
        match answer(query, &mut reply[2..]) {
            0 => return Err(ErrorKind::InvalidData.into()),
            n => {
                reply[..2].copy_from_slice(&(n as u16).to_be_bytes());
                stream.write_all(&reply[..2 + n])?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_answered_until_the_server_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = serve(listener, |query, reply| {
            reply[..query.len()].copy_from_slice(query);
            query.len()
        })
        .unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(&[0, 2, 7, 8]).unwrap();
        let mut reply = [0; 4];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [0, 2, 7, 8]);
        drop(server);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
