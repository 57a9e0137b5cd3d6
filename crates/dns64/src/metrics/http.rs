//! The metrics listener for Prometheus: HTTP/1.1, one GET per connection. It runs on the TCP
//! thread, or on a separate thread in programs without a TCP thread ([`serve_alone`]).

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::LocalSet;

use crate::guard::Tasks;
use crate::transport::requests::{self, Service};

/// Parameters of the metrics listener. The field `end` contains the octets that end a request. A GET request has no
/// body, so it ends with the empty line after its header.
const SERVICE: Service = Service {
    request: "a request for the metrics",
    end: b"\r\n\r\n",
    answering: Duration::from_secs(5),
};

/// Answers each HTTP request with the metrics that the function `text` returns. Runs on the calling thread, and
/// returns only if the listener cannot be set up.
///
/// # Errors
/// Returns an error if the process has no file descriptor left.
pub fn serve_alone(
    listener: std::net::TcpListener,
    text: impl Fn() -> String + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    listener.set_nonblocking(true)?;
    LocalSet::new().block_on(&runtime, async {
        serve(
            Tasks::new(|panic, cost| eprintln!("internal error in {cost}: {panic}")),
            Rc::new(TcpListener::from_std(listener)?),
            text,
        )
        .await;
        Ok(())
    })
}

/// Answers each HTTP request with the metrics that the function `text` returns, one request per connection. Does not
/// return.
pub(crate) async fn serve(
    tasks: Tasks,
    listener: Rc<TcpListener>,
    text: impl Fn() -> String + 'static,
) {
    let answer = async move |request: Vec<u8>| {
        // Only the first line is used; headers are ignored.
        let request = String::from_utf8_lossy(&request);
        response(request.lines().next().unwrap_or_default(), &text)
    };
    requests::serve(tasks, listener, SERVICE, answer).await;
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
