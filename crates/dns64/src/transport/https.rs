//! DNS over HTTPS (RFC 8484), and DNS over HTTP behind a reverse proxy.
//!
//! ```text
//! request ─► read_query ─► hand on ─► … ─► reply ─► response
//!               │
//!               └─► status 4xx
//! ```

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::rcode::Rcode;
use wire::template::HEADER_LEN;
use wire::view::{Message, rtype};

use super::LONGEST_QUERY;
use super::backlog::{Backlogs, ConnectionBacklog, ToStream};
use super::connections::Activity;
use super::stream::{ConnectionEnd, ConnectionLimits};
use super::tls::HANDSHAKE_LIMIT;
use crate::guard::Tasks;

/// Media type of DNS messages (RFC 8484 §6).
const DNS_MESSAGE: &str = "application/dns-message";
/// Maximum size of the header fields of a request, in octets.
const HEADERS: u32 = 16 << 10;
/// Maximum size of the buffer for a response, in octets.
const SEND_BUFFER: usize = 64 << 10;
/// Status code for requests in early data, which the client then repeats (RFC 8470 §5.2).
const TOO_EARLY: u16 = 425;
/// Header field of a request that a proxy received in early data (RFC 8470 §5.1).
const EARLY_DATA: &str = "early-data";

/// The versions of HTTP that are accepted on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// HTTP/2, as negotiated by ALPN.
    Http2,
    /// HTTP/1.1 and HTTP/2. Most reverse proxies use HTTP/1.1.
    Any,
}

/// State that all requests of a connection share.
pub(crate) struct Requests<F> {
    path: Arc<str>,
    backlog: ConnectionBacklog,
    activity: Rc<Activity>,
    /// Time limit for an incomplete request.
    patience: Duration,
    hand_on: F,
}

/// Answers the requests of a connection until the client closes it, it is idle for too long, or `stopping` becomes true.
///
/// # Panics
/// Panics if the function that gets the queries panics.
pub(crate) async fn serve<S, F>(
    stream: S,
    versions: Versions,
    limits: ConnectionLimits,
    requests: Requests<F>,
    tasks: &Tasks,
    mut stopping: watch::Receiver<bool>,
) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Fn(Vec<u8>, ToStream) + 'static,
{
    let mut builder = Builder::new(RequestTasks(tasks.clone()));
    if versions == Versions::Http2 {
        builder = builder.http2_only();
    }
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(u32::try_from(limits.pipeline).unwrap_or(u32::MAX))
        .max_header_list_size(HEADERS)
        .max_send_buf_size(SEND_BUFFER);
    let activity = Rc::clone(&requests.activity);
    let requests = Rc::new(requests);
    let service = service_fn(move |request| {
        let requests = Rc::clone(&requests);
        async move { Ok::<_, Infallible>(requests.answer(request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Errors of the connection, such as a reset by the client, end it without further effects.
        _ = connection.as_mut() => return ConnectionEnd::Usual,
        () = activity.displaced() => return ConnectionEnd::Displaced,
        () = activity.idle_for(limits.idle) => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        _ = timeout(HANDSHAKE_LIMIT, connection) => ConnectionEnd::Usual,
        () = activity.displaced() => ConnectionEnd::Displaced,
    }
}

impl<F> Requests<F> {
    /// Creates the state of a new connection. `path` is the only path that requests may have. The function `hand_on` is
    /// called with each query and the sender for its reply, as in [`super::stream::serve`].
    pub(crate) fn new(
        path: Arc<str>,
        backlogs: &Backlogs,
        activity: Rc<Activity>,
        patience: Duration,
        hand_on: F,
    ) -> Requests<F> {
        Requests { path, backlog: backlogs.multiplexed(), activity, patience, hand_on }
    }
}

impl<F: Fn(Vec<u8>, ToStream)> Requests<F> {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let query = match read_query(request, &self.path, self.patience).await {
            Ok(query) => query,
            Err(status) => return refusal(status),
        };
        let (reply, mut replies) = self.backlog.queue();
        reply.below_limit().await;
        let _in_progress = self.activity.query();
        (self.hand_on)(query, reply);
        match replies.next().await {
            Some(reply) if !reply.message().is_empty() => {
                let lifetime = smallest_ttl(reply.message());
                let mut response = Response::new(Full::new(Bytes::from_owner(reply)));
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(DNS_MESSAGE));
                let age = HeaderValue::try_from(format!("max-age={lifetime}"));
                headers.extend(age.ok().map(|age| (CACHE_CONTROL, age)));
                response
            }
            _ => refusal(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// Returns a response without a DNS message.
fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

/// Returns the DNS query in a request (RFC 8484 §4.1), or the status code for a request without one. The body is read in any
/// case, since some clients lose a response that precedes the end of their request.
async fn read_query<B>(
    request: Request<B>,
    path: &str,
    patience: Duration,
) -> Result<Vec<u8>, StatusCode>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let (head, body) = request.into_parts();
    let read = timeout(patience, Limited::new(body, LONGEST_QUERY).collect()).await;
    let body = read.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes();
    if head.uri.path() != path {
        return Err(StatusCode::NOT_FOUND);
    }
    if head.headers.contains_key(EARLY_DATA) {
        return Err(StatusCode::from_u16(TOO_EARLY).unwrap_or(StatusCode::BAD_REQUEST));
    }
    let query = match head.method {
        Method::GET => {
            let parameters = head.uri.query().unwrap_or("").split('&');
            let encoded = parameters.filter_map(|one| one.strip_prefix("dns=")).next();
            let padding = DecodePaddingMode::RequireNone;
            let config = GeneralPurposeConfig::new().with_decode_padding_mode(padding);
            let decoded = encoded.map(|text| GeneralPurpose::new(&URL_SAFE, config).decode(text));
            decoded.and_then(Result::ok).ok_or(StatusCode::BAD_REQUEST)?
        }
        Method::POST if is_dns_message(head.headers.get(CONTENT_TYPE)) => body.into(),
        Method::POST => return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        _ => return Err(StatusCode::METHOD_NOT_ALLOWED),
    };
    let is_query = Message::new(&query).is_some_and(|message| !message.is_response());
    if is_query { Ok(query) } else { Err(StatusCode::BAD_REQUEST) }
}

/// True if a media type is that of DNS messages, with or without parameters (RFC 9110 §8.3.1).
fn is_dns_message(media_type: Option<&HeaderValue>) -> bool {
    let text = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(DNS_MESSAGE)
}

/// Returns the time for which HTTP caches may keep a reply, in seconds: the smallest TTL of the answer section, or the TTL of
/// a negative answer (RFC 8484 §5.1, RFC 2308 §5). The time is zero for errors.
fn smallest_ttl(reply: &[u8]) -> u32 {
    let find = || {
        let message = Message::new(reply)?;
        let is_answer = matches!(message.rcode(), Rcode::NOERROR | Rcode::NXDOMAIN);
        let at = message.skip_name(HEADER_LEN).ok().filter(|_| is_answer)? + 4;
        let mut answers = message.records(at, message.ancount());
        let ttls: Result<Vec<u32>, _> = answers.by_ref().map(|one| Ok(one?.ttl)).collect();
        let ttl = ttls.map_err(|wire::view::Malformed| ()).ok()?.into_iter().min();
        if ttl.is_some() {
            return ttl;
        }
        let authority = message.records(answers.offset(), message.nscount());
        let soa = authority.map_while(Result::ok).find(|record| record.rtype == rtype::SOA)?;
        let minimum = u32::from_be_bytes(*soa.data.last_chunk()?);
        Some(soa.ttl.min(minimum))
    };
    find().unwrap_or(0)
}

/// Starts the tasks of the HTTP library on the thread of the connection.
#[derive(Clone)]
struct RequestTasks(Tasks);

impl<F: Future<Output = ()> + 'static> Executor<F> for RequestTasks {
    fn execute(&self, task: F) {
        self.0.spawn(|| "a request over HTTPS".to_owned(), task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: hyper::http::request::Builder, body: &'static [u8]) -> Result<Vec<u8>, u16> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = request.body(Full::new(Bytes::from_static(body))).unwrap();
        runtime
            .block_on(read_query(request, "/dns-query", Duration::MAX))
            .map_err(|status| status.as_u16())
    }

    /// The query for the AAAA records of `a.`.
    const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";
    const ENCODED: &str = "AAABAAABAAAAAAAAAWEAABwAAQ";

    #[test]
    fn queries_are_read_from_get_and_post() {
        let get = |uri: &str| status(Request::get(uri), b"");
        let post = |media: &str, body| {
            status(Request::post("/dns-query").header(CONTENT_TYPE, media), body)
        };
        assert_eq!(get(&format!("/dns-query?dns={ENCODED}")).unwrap(), QUERY);
        assert_eq!(get(&format!("/dns-query?ct&dns={ENCODED}")).unwrap(), QUERY);
        for media in [DNS_MESSAGE, "Application/DNS-Message", "application/dns-message; x=y"] {
            assert_eq!(post(media, QUERY).unwrap(), QUERY, "{media}");
        }
        for (result, expected) in [
            (get(&format!("/dns-query?dns={ENCODED}=")), 400),
            (get("/dns-query?dns=AAAB"), 400),
            (get("/dns-query"), 400),
            (get(&format!("/other?dns={ENCODED}")), 404),
            (post("text/plain", QUERY), 415),
            (post(DNS_MESSAGE, b"short"), 400),
            (post(DNS_MESSAGE, &[0; 70_000]), 413),
            (status(Request::post("/dns-query"), QUERY), 415),
            (status(Request::put("/dns-query"), QUERY), 405),
            (status(Request::get("/dns-query").header("Early-Data", "1"), b""), 425),
        ] {
            assert_eq!(result, Err(expected));
        }
    }

    #[test]
    fn lifetime_is_the_smallest_ttl() {
        let record = |rtype: u8, ttl: u8, data: &[u8]| {
            let mut record = vec![0xc0, 12, 0, rtype, 0, 1, 0, 0, 0, ttl, 0, data.len() as u8];
            record.extend(data);
            record
        };
        let reply = |rcode: u8, answers: &[Vec<u8>], authority: &[Vec<u8>]| {
            let (answer, authorities) = (answers.len() as u8, authority.len() as u8);
            let mut reply = vec![0, 0, 0x80, rcode, 0, 1, 0, answer, 0, authorities, 0, 0];
            reply.extend(&QUERY[12..]);
            reply.extend(answers.concat());
            reply.extend(authority.concat());
            reply
        };
        let [long, short] = [200, 100].map(|ttl| record(1, ttl, &[192, 0, 2, 1]));
        let soa = |ttl, minimum| record(6, ttl, &[&[0; 18][..], &[0, 0, 0, minimum]].concat());
        for (message, expected) in [
            (reply(0, &[long.clone(), short.clone()], &[soa(5, 5)]), 100),
            (reply(0, &[], &[soa(60, 30)]), 30),
            (reply(3, &[], &[soa(20, 30)]), 20),
            (reply(2, &[], &[soa(20, 30)]), 0),
            (reply(0, &[], &[]), 0),
            (b"short".to_vec(), 0),
        ] {
            assert_eq!(smallest_ttl(&message), expected);
        }
    }
}
