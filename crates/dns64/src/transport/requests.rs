//! Listeners with one request and one reply per connection: the metrics listener and the control socket.
//!
//! ```text
//! accept ─► slot ─► read the request ─► answer ─► write the reply ─► close
//!             └─ no slot left: a connection of the peer with the most connections is closed
//! ```
//!
//! A new connection is always admitted. A peer that opens connections and sends no request therefore cannot block
//! other peers.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::client::limiter::network;
use crate::guard::Tasks;

/// Maximum number of concurrent connections to one listener.
const CONNECTIONS: usize = 16;
/// Maximum length of a request in octets.
const LONGEST_REQUEST: usize = 4_096;
/// Time limit for the arrival of a request.
const READING: Duration = Duration::from_secs(2);
/// Pause after a failed accept. The usual cause of the failure is a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener that identifies the peer of each connection.
pub(crate) trait Listener {
    /// Type of an accepted connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Accepts a connection. Returns it with an identifier of its peer: the client's network for TCP, the user id for
    /// a Unix socket.
    ///
    /// # Errors
    /// Returns the error of accept(2), or of the system call that queries the user id.
    async fn next(&self) -> io::Result<(Self::Stream, u64)>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, u64)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, network(peer.ip().to_canonical())))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, u64)> {
        let (stream, _) = self.accept().await?;
        let user = stream.peer_cred()?.uid();
        Ok((stream, user.into()))
    }
}

/// Parameters of a service with one request per connection.
#[derive(Clone, Copy)]
pub(crate) struct Service {
    /// Description of a request. It is used in the report of a panic.
    pub(crate) request: &'static str,
    /// Terminator of a request. The end of the stream also ends a request.
    pub(crate) end: &'static [u8],
    /// Time limit for the reply, measured from the end of the request.
    pub(crate) answering: Duration,
}

/// Replies to each request with the return value of `answer`. This function never returns.
pub(crate) async fn serve<L: Listener>(
    tasks: Tasks,
    listener: Rc<L>,
    service: Service,
    answer: impl AsyncFn(Vec<u8>) -> Vec<u8> + 'static,
) {
    let (answer, open) = (Rc::new(answer), Rc::new(Open::default()));
    loop {
        let Ok((mut stream, peer)) = listener.next().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let (slot, closed) = Open::enter(&open, peer);
        let answer = Rc::clone(&answer);
        tasks.spawn(move || service.request.to_owned(), async move {
            let serve = async {
                let request = timeout(READING, read(&mut stream, service.end)).await??;
                slot.set_busy();
                timeout(service.answering, async {
                    stream.write_all(&answer(request).await).await?;
                    stream.shutdown().await
                })
                .await?
            };
            // Errors are ignored. If the peer was too slow, it must retry.
            tokio::select! {
                biased;
                _ = closed => {}
                _ = serve => {}
            }
        });
    }
}

/// Reads a request up to its terminator or the end of the stream.
async fn read(stream: &mut (impl AsyncRead + Unpin), end: &[u8]) -> io::Result<Vec<u8>> {
    let mut request = Vec::with_capacity(LONGEST_REQUEST);
    while !request.windows(end.len()).any(|octets| octets == end) {
        if request.len() >= LONGEST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    Ok(request)
}

/// The open connections of a listener, the oldest first.
#[derive(Default)]
struct Open {
    connections: RefCell<Vec<Connection>>,
    next: Cell<u64>,
}

struct Connection {
    number: u64,
    peer: u64,
    /// True after the whole request has been read from the connection.
    is_busy: bool,
    /// Sending end of a channel. If it is dropped, the receiver returned by [`Open::enter`] completes, and the
    /// connection is closed.
    _close: oneshot::Sender<()>,
}

/// Slot of an open connection at a listener. Dropping this value releases the slot.
struct ConnectionSlot {
    open: Rc<Open>,
    number: u64,
}

impl Open {
    /// Adds a connection. If the listener already has its maximum number of connections, one of them is closed. The
    /// returned receiver completes when the added connection must be closed.
    fn enter(open: &Rc<Open>, peer: u64) -> (ConnectionSlot, oneshot::Receiver<()>) {
        let (close, closed) = oneshot::channel();
        let number = open.next.replace(open.next.get() + 1);
        let mut connections = open.connections.borrow_mut();
        if connections.len() >= CONNECTIONS {
            let least = least_needed(&connections);
            connections.remove(least);
        }
        connections.push(Connection { number, peer, is_busy: false, _close: close });
        (ConnectionSlot { open: Rc::clone(open), number }, closed)
    }
}

/// Returns the position of the connection to close. The candidates are the connections of the peers with the most
/// connections. The oldest candidate whose request is incomplete is closed. If all requests are complete, the oldest
/// candidate is closed.
fn least_needed(connections: &[Connection]) -> usize {
    let held = |of: &Connection| connections.iter().filter(|one| one.peer == of.peer).count();
    let most = connections.iter().map(held).max().unwrap_or(0);
    let first = |is_busy: bool| {
        connections.iter().position(|one| held(one) == most && (is_busy || !one.is_busy))
    };
    first(false).or_else(|| first(true)).unwrap_or(0)
}

impl ConnectionSlot {
    /// Records that the request has been read completely.
    fn set_busy(&self) {
        let mut connections = self.open.connections.borrow_mut();
        if let Some(ours) = connections.iter_mut().find(|one| one.number == self.number) {
            ours.is_busy = true;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.connections.borrow_mut().retain(|one| one.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_an_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = |octets: &'static [u8]| runtime.block_on(read(&mut &octets[..], b"\n"));
        assert_eq!(read(b"a\n").unwrap(), b"a\n");
        assert_eq!(read(b"a").unwrap(), b"a");
        let long: &'static [u8] = Box::leak(vec![b'x'; 1 << 20].into_boxed_slice());
        assert!(read(long).is_err());
    }

    #[test]
    fn the_oldest_idle_connection_gives_way() {
        // Peers of the open connections, oldest first; `!` marks those with a request.
        for (connections, closed) in [
            ("1 2 3", 0),
            ("1 2 2", 1),
            ("1! 2! 2 2", 2),
            ("1 2! 2!", 1),
            ("1! 2 3", 1),
            ("1! 2! 3!", 0),
        ] {
            let connections: Vec<Connection> = connections
                .split(' ')
                .map(|text| Connection {
                    number: 0,
                    peer: text.trim_end_matches('!').parse().unwrap(),
                    is_busy: text.ends_with('!'),
                    _close: oneshot::channel().0,
                })
                .collect();
            assert_eq!(least_needed(&connections), closed, "{closed}");
        }
    }

    #[test]
    fn a_place_is_free_once_its_connection_ends() {
        let open = Rc::new(Open::default());
        let mut slots: Vec<_> = (0..CONNECTIONS).map(|_| Open::enter(&open, 7)).collect();
        slots[0].0.set_busy();
        let (last, _closed) = Open::enter(&open, 8);
        let is_closed = |of: &mut (ConnectionSlot, oneshot::Receiver<()>)| {
            matches!(of.1.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        let closed: Vec<bool> = slots.iter_mut().map(is_closed).collect();
        assert_eq!(closed.iter().filter(|is_closed| **is_closed).count(), 1);
        assert!(closed[1], "the oldest one without a request");
        drop((slots, last));
        assert!(open.connections.borrow().is_empty());
    }
}
