//! A client's TCP connection. Several queries can be in progress at a time. Replies are sent as soon
//! as they are ready, in any order (RFC 7766 §6.2.1.1, §7).
//!
//! ```text
//! stream ─► read ─► hand on ─► … ─► reply ─► write ─► stream
//!            ▲                                │
//!            └───────── a free slot ◄─────────┘
//! ```
//!
//! No query is read while too many octets of replies are waiting ([`super::backlog`]).

use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::backlog::{Backlog, Backlogs, QueuedReply, ToStream};
use super::connections::Activity;
use super::framing::{read_message, write_message};

/// Limits of a client's TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of queries in progress.
    pub(crate) pipeline: usize,
    /// Time limit for an idle connection, for an incomplete message, and for a blocked write.
    pub(crate) idle: Duration,
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// The client closed the connection, the connection was idle for too long, or the server is stopping.
    Usual,
    /// Too many octets of replies were waiting, both on this connection and on all connections together.
    Unread,
    /// The connection was closed because a new connection needed its slot.
    Displaced,
}

/// Reads queries from a connection and writes the replies. The function ends for one of the reasons listed in
/// [`ConnectionEnd`], for example when `stopping` becomes true. The function `hand_on` is called with each query and a
/// sender. The reply to the query must be passed to this sender. If the query gets no reply, an empty message must be
/// passed to the sender instead. `backlogs` counts the waiting replies, and `activity` records queries and replies.
///
/// # Panics
/// Panics if reading, `hand_on` or writing panics.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + 'static>(
    stream: S,
    bounds: ConnectionLimits,
    backlogs: &Backlogs,
    activity: Rc<Activity>,
    mut stopping: watch::Receiver<bool>,
    mut hand_on: impl FnMut(Vec<u8>, ToStream),
) -> ConnectionEnd {
    let (mut reader, writer) = tokio::io::split(stream);
    let (reply, backlog) = backlogs.connection();
    let free = Rc::new(Semaphore::new(bounds.pipeline));
    let reply_written = ReplyWritten { free: Rc::clone(&free), activity: Rc::clone(&activity) };
    let mut writing = spawn_local(write_replies(writer, backlog, reply_written, bounds.idle));
    let ended = loop {
        // A message that has been read must be handed on even if the server stops at the same time.
        let next = async {
            let permit = free.acquire().await.ok()?;
            reply.below_limit().await;
            let bytes = read_message(&mut reader, bounds.idle).await.ok()?;
            Some((permit, bytes))
        };
        let read = tokio::select! {
            read = next => read,
            ended = &mut writing => break Some(ended),
            () = activity.displaced() => {
                writing.abort();
                return ConnectionEnd::Displaced;
            }
            _ = stopping.wait_for(|stopping| *stopping) => break None,
        };
        let Some((permit, bytes)) = read else { break None };
        // The permit is released when the reply to this query has been written.
        permit.forget();
        activity.begin_query();
        hand_on(bytes, reply.clone());
    };
    // Queries that have been handed on are still answered, because the writer ends only when all
    // senders for replies have been dropped.
    drop(reply);
    let ended = match ended {
        Some(ended) => ended,
        None => tokio::select! {
            ended = &mut writing => ended,
            () = activity.displaced() => {
                writing.abort();
                return ConnectionEnd::Displaced;
            }
        },
    };
    match ended {
        Ok(end) => end,
        // The panic must also end the task that serves this connection, so that the panic is reported.
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => ConnectionEnd::Usual,
    }
}

/// State that is updated after a reply has been written: the number of further queries that may be read, and the
/// activity of the connection.
struct ReplyWritten {
    free: Rc<Semaphore>,
    activity: Rc<Activity>,
}

/// Writes replies until all their senders are dropped, the client stops reading, or too many octets of replies are
/// waiting.
async fn write_replies(
    mut writer: impl AsyncWrite + Unpin,
    mut backlog: Backlog,
    reply_written: ReplyWritten,
    patience: Duration,
) -> ConnectionEnd {
    let (replies, refused) = backlog.parts();
    let end = tokio::select! {
        biased;
        () = refused.notified() => ConnectionEnd::Unread,
        () = write_each(&mut writer, replies, &reply_written, patience) => ConnectionEnd::Usual,
    };
    drop(backlog);
    // Over TLS, the last record must be written, for which a blocked client leaves no room.
    let _ = timeout(patience, tokio::io::AsyncWriteExt::shutdown(&mut writer)).await;
    end
}

async fn write_each(
    writer: &mut (impl AsyncWrite + Unpin),
    replies: &mut UnboundedReceiver<QueuedReply>,
    reply_written: &ReplyWritten,
    patience: Duration,
) {
    while let Some(reply) = replies.recv().await {
        if !reply.message().is_empty() {
            let write = write_message(writer, reply.message());
            if !matches!(timeout(patience, write).await, Ok(Ok(()))) {
                break;
            }
        }
        drop(reply);
        reply_written.activity.end_query();
        reply_written.free.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::transport::backlog::MOST;
    use tokio::io::DuplexStream;
    use tokio::task::LocalSet;

    const SOON: Duration = Duration::from_secs(30);
    /// Maximum length of a reply.
    const LONG: &[u8] = &[7; 65_535];

    /// Queries handed on, with the senders of their replies.
    type Asked = Rc<RefCell<Vec<(Vec<u8>, ToStream)>>>;

    /// A served connection, with the queries handed on.
    struct Test {
        client: DuplexStream,
        asked: Asked,
        stop: watch::Sender<bool>,
        serving: tokio::task::JoinHandle<ConnectionEnd>,
        activity: Rc<Activity>,
    }

    impl Test {
        fn new(pipeline: usize, idle: Duration) -> Test {
            Test::beside(&Backlogs::default(), pipeline, idle)
        }

        /// Returns a connection that shares `backlogs` with others.
        fn beside(backlogs: &Backlogs, pipeline: usize, idle: Duration) -> Test {
            let (client, stream) = tokio::io::duplex(64 << 10);
            let (stop, stopping) = watch::channel(false);
            let asked = Rc::new(RefCell::new(Vec::new()));
            let hand_on = {
                let asked = Rc::clone(&asked);
                move |bytes, reply| asked.borrow_mut().push((bytes, reply))
            };
            let (bounds, backlogs) = (ConnectionLimits { pipeline, idle }, backlogs.clone());
            let activity = Rc::<Activity>::default();
            let noted = Rc::clone(&activity);
            let serving = spawn_local(async move {
                serve(stream, bounds, &backlogs, noted, stopping, hand_on).await
            });
            Test { client, asked, stop, serving, activity }
        }

        async fn ask(&mut self, query: &[u8]) {
            write_message(&mut self.client, query).await.unwrap();
        }

        /// Returns the queries handed on, once there are `n`.
        async fn asked(&self, n: usize) -> Vec<Vec<u8>> {
            let there = async {
                while self.asked.borrow().len() < n {
                    tokio::task::yield_now().await;
                }
            };
            timeout(SOON, there).await.unwrap();
            self.asked.borrow().iter().map(|(bytes, _)| bytes.clone()).collect()
        }

        fn reply(&self, number: usize, reply: &[u8]) {
            self.asked.borrow()[number].1.send(reply.to_vec()).unwrap();
        }

        async fn read(&mut self) -> std::io::Result<Vec<u8>> {
            read_message(&mut self.client, SOON).await
        }
    }

    fn on_a_stream(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn replies_come_in_the_order_in_which_they_are_ready() {
        on_a_stream(async {
            let mut test = Test::new(2, SOON);
            for query in [b"a", b"b", b"c"] {
                test.ask(query).await;
            }
            assert_eq!(test.asked(2).await, [b"a", b"b"], "two at a time");
            test.reply(1, b"B");
            assert_eq!(test.read().await.unwrap(), b"B");
            assert_eq!(test.asked(3).await.len(), 3, "a place is free again");
            test.reply(0, b"");
            test.reply(2, b"C");
            assert_eq!(test.read().await.unwrap(), b"C", "an empty message is not sent");
        });
    }

    #[test]
    fn stopping_connection_answers_pending_queries() {
        on_a_stream(async {
            let mut test = Test::new(8, SOON);
            test.ask(b"a").await;
            test.asked(1).await;
            test.stop.send(true).unwrap();
            test.reply(0, b"A");
            test.asked.borrow_mut().clear();
            assert_eq!(test.read().await.unwrap(), b"A");
            assert!(test.read().await.is_err());
            timeout(SOON, test.serving).await.unwrap().unwrap();
        });
    }

    #[test]
    fn displaced_connection_ends_busy_or_idle() {
        on_a_stream(async {
            for in_progress in [0, 1] {
                let mut test = Test::new(8, SOON);
                for _ in 0..2 {
                    test.ask(b"a").await;
                }
                test.asked(2).await;
                (in_progress..2).for_each(|number| test.reply(number, b"A"));
                for _ in in_progress..2 {
                    assert_eq!(test.read().await.unwrap(), b"A");
                }
                assert_eq!(test.activity.is_idle(), in_progress == 0);
                test.activity.displace();
                assert!(test.read().await.is_err());
                assert_eq!(
                    timeout(SOON, test.serving).await.unwrap().unwrap(),
                    ConnectionEnd::Displaced
                );
            }
        });
    }

    #[test]
    fn idle_client_is_disconnected() {
        on_a_stream(async {
            let mut test = Test::new(8, Duration::from_millis(1));
            assert!(test.read().await.is_err());
            timeout(SOON, test.serving).await.unwrap().unwrap();
        });
    }

    #[test]
    fn reading_client_gets_all_pipelined_replies() {
        on_a_stream(async {
            let mut test = Test::new(64, SOON);
            for _ in 0..64 {
                test.ask(b"a").await;
            }
            test.asked(64).await;
            (0..64).for_each(|number| test.reply(number, LONG));
            for _ in 0..64 {
                assert_eq!(test.read().await.unwrap(), LONG);
            }
        });
    }

    #[test]
    fn nothing_is_read_while_long_replies_wait() {
        on_a_stream(async {
            let mut test = Test::new(64, SOON);
            for _ in 0..5 {
                test.ask(b"a").await;
            }
            test.asked(5).await;
            (0..5).for_each(|number| test.reply(number, LONG));
            // This query is already being read.
            test.ask(b"b").await;
            test.asked(6).await;
            test.ask(b"c").await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(test.asked.borrow().len(), 6, "five replies wait");
            for _ in 0..2 {
                assert_eq!(test.read().await.unwrap(), LONG);
            }
            assert_eq!(test.asked(7).await[6], b"c");
        });
    }

    #[test]
    fn blocked_client_is_disconnected_if_memory_is_short() {
        on_a_stream(async {
            let backlogs = Backlogs::default();
            let (others, _waiting) = backlogs.connection();
            others.send(vec![0; MOST]).unwrap();
            // The connection ends without waiting for the idle time limit.
            let mut test = Test::beside(&backlogs, 64, SOON * 100);
            for _ in 0..5 {
                test.ask(b"a").await;
            }
            test.asked(5).await;
            (0..4).for_each(|number| test.reply(number, LONG));
            assert!(test.asked.borrow()[4].1.send(LONG.to_vec()).is_err());
            assert_eq!(timeout(SOON, test.serving).await.unwrap().unwrap(), ConnectionEnd::Unread);
            assert_eq!(backlogs.octets(), MOST, "its replies are no longer counted");
        });
    }
}
