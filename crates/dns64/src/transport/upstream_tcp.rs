//! Upstream queries over TCP. The number of concurrent queries is limited in total and for each
//! upstream ([`super::permits`]), so that an upstream without working TCP does not block the others.
//! A few idle connections are kept for further queries (RFC 7766 §6.2).

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use net::address::ServiceAddr;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;
use tokio::time::{timeout, timeout_at};
use wire::view::Message;

use super::framing::{read_message, write_message};
use super::permits::Permits;
use crate::client::query::describe;
use crate::guard::{Tasks, catch_async};
use crate::resolver::outside::{TcpFailure, TcpQuery};

/// Maximum number of idle connections per upstream.
const IDLE_CONNECTIONS: usize = 4;

/// Time after which an idle connection is closed.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Interval between checks for idle connections that must be closed.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// Idle connections per upstream, each with the time at which it became idle.
type Idle = Rc<RefCell<HashMap<ServiceAddr, Vec<(TcpStream, Instant)>>>>;

/// Receives upstream queries from the channel `questions`, and sends them over TCP, until the channel is closed. The
/// outcome of each query is passed to `report_result`. At most `connections` queries are in flight in total, and at
/// most `share()` of them to one upstream. If processing of a query panics, only this query fails.
pub(crate) async fn run(
    tasks: Tasks,
    connections: usize,
    share: impl Fn() -> usize + 'static,
    questions: Rc<Mutex<UnboundedReceiver<TcpQuery>>>,
    report_result: impl Fn(&TcpQuery, Result<Vec<u8>, TcpFailure>) + Clone + 'static,
) {
    let (permits, idle) = (Permits::new(connections, share), Idle::default());
    let mut questions = questions.lock().await;
    let mut next_cleanup = Instant::now() + CLEANUP_INTERVAL;
    loop {
        let next = timeout_at(next_cleanup.into(), questions.recv()).await;
        if next_cleanup <= Instant::now() {
            next_cleanup = Instant::now() + CLEANUP_INTERVAL;
            close_some(&idle, Instant::now());
        }
        let question = match next {
            Ok(Some(question)) => question,
            Ok(None) => break,
            Err(_) => continue,
        };
        let (permits, idle, report_result, tasks) =
            (Rc::clone(&permits), Rc::clone(&idle), report_result.clone(), tasks.clone());
        spawn_local(async move {
            let ask = async {
                let _permit = permits.acquire(question.address, question.client).await?;
                question.begun.store(true, Ordering::Relaxed);
                #[cfg(test)]
                crate::guard::panic_if_named("defect-upstream", &question.query[12..]);
                Some(ask(&question, &idle).await)
            };
            let asked = catch_async(timeout(question.timeout, ask)).await;
            let asked = asked.unwrap_or_else(|panic| {
                tasks.report(
                    &panic,
                    &format!("the upstream's answer to {}", describe(&question.query)),
                );
                Ok(None)
            });
            let answer = match asked {
                Ok(Some(Ok(answer))) => Ok(answer),
                _ if !question.begun.load(Ordering::Relaxed) => Err(TcpFailure::NoRoom),
                Err(_) => Err(TcpFailure::Timeout),
                Ok(Some(Err(error))) if error.kind() == io::ErrorKind::TimedOut => {
                    Err(TcpFailure::Timeout)
                }
                Ok(_) => Err(TcpFailure::NoAnswer),
            };
            report_result(&question, answer);
        });
    }
}

async fn ask(question: &TcpQuery, idle: &Idle) -> io::Result<Vec<u8>> {
    let kept = idle.borrow_mut().get_mut(&question.address).and_then(Vec::pop);
    if let Some((stream, _)) = kept {
        // The upstream may have closed this connection, or disappeared without closing it. Half of
        // the time is therefore reserved for a new connection.
        if let Ok(Ok(answer)) = timeout(question.timeout / 2, ask_on(stream, question, idle)).await
        {
            return Ok(answer);
        }
    }
    let stream = TcpStream::connect(question.address.resolve()?).await?;
    stream.set_nodelay(true)?;
    ask_on(stream, question, idle).await
}

async fn ask_on(mut stream: TcpStream, question: &TcpQuery, idle: &Idle) -> io::Result<Vec<u8>> {
    write_message(&mut stream, &question.query).await?;
    let answer = read_message(&mut stream, question.timeout).await?;
    let is_ours = Message::new(&answer).is_some_and(|view| {
        view.is_response() && !view.is_truncated() && answer[..2] == question.query[..2]
    });
    if !is_ours {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut idle = idle.borrow_mut();
    let kept = idle.entry(question.address).or_default();
    if kept.len() < IDLE_CONNECTIONS {
        kept.push((stream, Instant::now()));
    }
    Ok(answer)
}

/// Closes idle connections that are too old. Also closes connections that the upstream has closed,
/// or on which the upstream has sent unsolicited data.
fn close_some(idle: &Idle, now: Instant) {
    let is_good = |(stream, since): &mut (TcpStream, Instant)| {
        let is_silent = stream
            .try_read(&mut [0; 1])
            .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        is_silent && now.duration_since(*since) < IDLE_TIME
    };
    idle.borrow_mut().retain(|_, kept| {
        kept.retain_mut(is_good);
        !kept.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use tokio::net::TcpListener;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::LocalSet;
    use tokio::time::sleep;

    use super::*;
    use crate::ids::{FetchId, WorkerId};
    use crate::shares::client::ClientId;

    fn local(work: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, work);
    }

    /// Starts an upstream that accepts connections, and answers if `answers` is true.
    async fn upstream(answers: bool) -> ServiceAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                if answers {
                    let mut query = read_message(&mut stream, CLEANUP_INTERVAL).await.unwrap();
                    query[2] |= 0x80;
                    write_message(&mut stream, &query).await.unwrap();
                }
                open.push(stream);
            }
        });
        address.into()
    }

    fn question(address: ServiceAddr) -> TcpQuery {
        TcpQuery {
            worker: WorkerId(0),
            fetch: FetchId { index: 0, generation: 0 },
            client: ClientId(1),
            address,
            query: vec![0; 17],
            timeout: Duration::from_secs(3),
            begun: Arc::new(AtomicBool::new(false)),
        }
    }

    #[test]
    fn upstream_without_tcp_leaves_permits_for_others() {
        local(async {
            let (dead, live) = (upstream(false).await, upstream(true).await);
            let (sender, receiver) = unbounded_channel();
            (0..20).for_each(|_| sender.send(question(dead)).unwrap());
            sender.send(question(live)).unwrap();
            let answered = Rc::new(Cell::new(None));
            let seen = Rc::clone(&answered);
            let report_result = move |question: &TcpQuery, answer: Result<_, _>| {
                if question.address == live {
                    seen.set(Some(answer.is_ok()));
                }
            };
            let tasks = Tasks::new(|panic, _| panic!("{panic}"));
            spawn_local(run(tasks, 4, || 2, Rc::new(Mutex::new(receiver)), report_result));
            while answered.get().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(answered.get(), Some(true), "no permit for the working upstream");
        });
    }

    #[test]
    fn timeout_and_refused_connection_differ() {
        local(async {
            let silent = upstream(false).await;
            let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().into();
            for (address, failure) in [(silent, TcpFailure::Timeout), (gone, TcpFailure::NoAnswer)]
            {
                let (sender, receiver) = unbounded_channel();
                let timeout = Duration::from_millis(100);
                sender.send(TcpQuery { timeout, ..question(address) }).unwrap();
                drop(sender);
                let (report_result, mut results) = unbounded_channel();
                let report_result = move |_: &TcpQuery, answer| report_result.send(answer).unwrap();
                let tasks = Tasks::new(|panic, _| panic!("{panic}"));
                run(tasks, 4, || 2, Rc::new(Mutex::new(receiver)), report_result).await;
                assert_eq!(results.recv().await, Some(Err(failure)));
            }
        });
    }

    #[test]
    fn idle_connections_close_by_time_or_peer() {
        local(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (address, idle) = (listener.local_addr().unwrap(), Idle::default());
            let server = ServiceAddr::from(address);
            let begin = Instant::now();
            let mut theirs = Vec::new();
            for _ in 0..2 {
                let stream = TcpStream::connect(address).await.unwrap();
                theirs.push(listener.accept().await.unwrap().0);
                idle.borrow_mut().entry(server).or_default().push((stream, begin));
            }
            let left = |after: Duration| {
                close_some(&idle, begin + after);
                idle.borrow().get(&server).map_or(0, Vec::len)
            };
            assert_eq!(left(IDLE_TIME - CLEANUP_INTERVAL), 2);
            drop(theirs.pop());
            let give_up = Instant::now() + Duration::from_secs(30);
            while left(CLEANUP_INTERVAL) != 1 {
                assert!(Instant::now() < give_up, "a closed connection remains");
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(left(IDLE_TIME), 0);
        });
    }
}
