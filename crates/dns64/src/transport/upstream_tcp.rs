//! Questions to upstreams over TCP: a number of them at once, over connections that are kept for a
//! few more (RFC 7766 §6.2).

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_local;
use tokio::time::timeout;
use wire::view::Message;

use super::framing::{read_message, write_message};
use crate::client::query::describe;
use crate::guard::{Tasks, catch_async};
use crate::resolver::outside::{TcpFailure, TcpQuestion};

/// Idle connections kept to an upstream.
const IDLE_CONNECTIONS: usize = 4;

/// Connections that wait for their next question.
type Idle = Rc<RefCell<HashMap<SocketAddr, Vec<TcpStream>>>>;

/// Asks what comes out of `questions`, at most `connections` of them at once, and gives `tell` what
/// comes of each, until nobody can ask any more. A panic at work on one of them costs no more than
/// its answer.
pub(crate) async fn run(
    tasks: Tasks,
    connections: usize,
    questions: Rc<Mutex<UnboundedReceiver<TcpQuestion>>>,
    tell: impl Fn(&TcpQuestion, Result<Vec<u8>, TcpFailure>) + Clone + 'static,
) {
    let room = Rc::new(Semaphore::new(connections));
    let idle = Idle::default();
    let mut questions = questions.lock().await;
    while let Some(question) = questions.recv().await {
        let (room, idle, tell, tasks) =
            (Rc::clone(&room), Rc::clone(&idle), tell.clone(), tasks.clone());
        spawn_local(async move {
            let ask = async {
                let _permit = room.acquire().await.ok()?;
                question.begun.store(true, Ordering::Relaxed);
                #[cfg(test)]
                crate::guard::panic_if_named("defect-upstream", &question.query[12..]);
                ask(&question, &idle).await.ok()
            };
            let asked = catch_async(timeout(question.timeout, ask)).await;
            let answer = asked.unwrap_or_else(|panic| {
                tasks.report(
                    &panic,
                    &format!("the answer of an upstream to {}", describe(&question.query)),
                );
                Ok(None)
            });
            let answer = answer.ok().flatten();
            let begun = question.begun.load(Ordering::Relaxed);
            tell(
                &question,
                answer.ok_or(if begun { TcpFailure::NoAnswer } else { TcpFailure::NoRoom }),
            );
        });
    }
}

async fn ask(question: &TcpQuestion, idle: &Idle) -> io::Result<Vec<u8>> {
    let kept = idle.borrow_mut().get_mut(&question.address).and_then(Vec::pop);
    if let Some(stream) = kept {
        // The upstream may have closed it meanwhile, or be gone without a word.
        if let Ok(Ok(answer)) = timeout(question.timeout / 2, ask_on(stream, question, idle)).await
        {
            return Ok(answer);
        }
    }
    let stream = TcpStream::connect(question.address).await?;
    stream.set_nodelay(true)?;
    ask_on(stream, question, idle).await
}

async fn ask_on(mut stream: TcpStream, question: &TcpQuestion, idle: &Idle) -> io::Result<Vec<u8>> {
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
        kept.push(stream);
    }
    Ok(answer)
}
