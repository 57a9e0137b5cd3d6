//! DNS over TCP for the tester's servers (RFC 7766): pipelined queries, an idle timeout, a bounded
//! number of connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::authdns::answer::MAX_REPLY;

/// Connections at once; further ones are closed.
const MAX_CONNECTIONS: usize = 128;
/// How long a client may keep a connection without a whole query.
const IDLE: Duration = Duration::from_secs(10);
/// How often the listener looks whether it should stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Serves the connections of `listener`; `answer` writes the reply to a query into a buffer of [`MAX_REPLY`]
/// octets and returns its length.
///
/// # Errors
/// If the listener cannot be used, or there is no thread left.
pub(crate) fn serve(
    listener: TcpListener,
    answer: impl Fn(&[u8], &mut [u8]) -> usize + Send + Sync + 'static,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let answer = Arc::new(answer);
    let open = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("tcp".into()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(STOP_CHECK);
                continue;
            };
            if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (answer, count) = (Arc::clone(&answer), Arc::clone(&open));
            let serving = thread::Builder::new().spawn(move || {
                // The client has gone, or was slow: the end of the connection in any case.
                let _ = serve_connection(stream, &*answer);
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if serving.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
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
