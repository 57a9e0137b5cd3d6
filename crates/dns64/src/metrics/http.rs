//! The listener where Prometheus fetches the metrics: HTTP/1.1, one GET for each connection, on the
//! thread for TCP; in programs without one, on a thread of its own ([`serve_alone`]).

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::guard::Tasks;

/// The longest request that is read, octets, and how long it is waited for.
const LONGEST_REQUEST: usize = 4_096;
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at once; others are closed.
const CONNECTIONS: usize = 16;
/// How long to wait when no connection can be accepted: the process is out of file descriptors,
/// most likely.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers requests with what `text` returns, from the calling thread, for ever.
///
/// # Errors
/// If the process has no file descriptor left.
pub fn serve_alone(
    listener: std::net::TcpListener,
    text: impl Fn() -> String + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    LocalSet::new().block_on(&runtime, async {
        serve(
            Tasks::new(|panic, cost| eprintln!("{cost} had a defect: {panic}")),
            Rc::new(TcpListener::from_std(listener)?),
            text,
        )
        .await;
        Ok(())
    })
}

/// Answers requests with what `text` returns for ever, one for each connection.
pub(crate) async fn serve(
    tasks: Tasks,
    listener: Rc<TcpListener>,
    text: impl Fn() -> String + 'static,
) {
    let text = Rc::new(text);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let text = Rc::clone(&text);
        tasks.spawn(|| "a request for the metrics".into(), async move {
            let serve = async {
                let request = read_request(&mut stream).await?;
                stream.write_all(&response(&request, || text())).await?;
                stream.shutdown().await
            };
            // Prometheus will come again.
            let _ = timeout(PATIENCE, serve).await;
            drop(place);
        });
    }
}

/// The first line of a request; its headers say nothing that matters here.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(LONGEST_REQUEST);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        if bytes.len() >= LONGEST_REQUEST || stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned())
}

fn response(request: &str, text: impl FnOnce() -> String) -> Vec<u8> {
    let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", "/metrics", ..] => ("200 OK", text()),
        ["GET", ..] => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_owned()),
    };
    let kind = if status.starts_with("200") {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; charset=utf-8"
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_metrics_gets_metrics() {
        let of = |request: &str| String::from_utf8(response(request, || "a 1\n".into())).unwrap();
        let good = of("GET /metrics HTTP/1.1");
        assert!(
            good.starts_with("HTTP/1.1 200 OK\r\n")
                && good.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\na 1\n")
        );
        assert!(of("GET / HTTP/1.1").starts_with("HTTP/1.1 404 "));
        assert!(of("POST /metrics HTTP/1.1").starts_with("HTTP/1.1 405 "));
        assert!(of("").starts_with("HTTP/1.1 405 "));
    }
}
