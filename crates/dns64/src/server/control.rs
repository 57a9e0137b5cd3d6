//! The control socket. The TCP thread handles its requests.

use std::net::SocketAddr;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use domain::base::iana::Rtype;
use net::clock;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use units::Nanos;
use wire::edns::{UDP_PAYLOAD, put_opt};
use wire::rcode::Rcode;
use wire::view::CLASS_IN;

use super::explain::Trace;
use super::inbox::WorkerMessage;
use super::shared::Shared;
use crate::config::PrefixKeys;
use crate::control::protocol::{Answer, PATIENCE, Request, Subject};
use crate::control::{
    CacheStatus, ConfigurationStatus, EncryptedAddress, FLUSH_VERSION, FlushReport, PrefixStatus,
    ReloadReport, STATUS_VERSION, Status, UpstreamState, UpstreamStatus,
};
use crate::guard::Tasks;
use crate::name::{LowerName, text};
use crate::prefixes::PrefixReport;
use crate::transport::Transport;
use crate::transport::requests::{self, Service};

/// Error message for requests that arrive while the server is stopping.
const ENDS: &str = "the server is stopping";

/// Properties of the control protocol. A request is one line. The time limit for a request is long, because an answer
/// may have to wait for upstreams.
const SERVICE: Service =
    Service { request: "a request at the control socket", end: b"\n", answering: PATIENCE };

/// A reload request from the control socket. If the request is dropped without an answer, the
/// client gets an error.
pub(crate) struct ReloadRequest(oneshot::Sender<ReloadReport>);

impl ReloadRequest {
    /// Sends the result of the reload to the client.
    pub(crate) fn answer(self, report: ReloadReport) {
        // Sending fails if the client has closed the connection.
        let _ = self.0.send(report);
    }
}

/// Handler of reload requests.
pub(super) type OnReload = Box<dyn Fn(ReloadRequest) + Send>;

/// Data needed to answer requests at the control socket.
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// Listen addresses for DNS clients.
    pub(super) addresses: Vec<SocketAddr>,
    /// Transports and addresses of the encrypted transports.
    pub(super) encrypted_addresses: Vec<(Transport, SocketAddr)>,
    pub(super) metrics_address: Option<SocketAddr>,
    /// Descriptions of the interfaces with AF_XDP.
    pub(super) xdp: Vec<String>,
    /// Handler of reload requests, or `None` if the program does not read a configuration.
    pub(super) on_reload: Option<OnReload>,
}

/// Answers the requests at the control socket, one per connection. Does not return.
pub(super) async fn serve(tasks: Tasks, listener: Rc<UnixListener>, context: Rc<Context>) {
    let answer = async move |request: Vec<u8>| {
        let answer = match Request::read(&request) {
            Ok(request) => context.answer(request).await,
            Err(error) => Answer::Error(error),
        };
        let mut line = serde_json::to_vec(&answer).unwrap_or_default();
        line.push(b'\n');
        line
    };
    requests::serve(tasks, listener, SERVICE, answer).await;
}

impl Context {
    async fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(self.status())),
            Request::Explain(subject) => self.explain(&subject).await,
            Request::Reload => self.reload().await,
            Request::Flush { name } => match name.parse() {
                Ok(parsed) => self.flush(Some(parsed)).await,
                Err(error) => Answer::Error(format!("the name {name}: {error}")),
            },
            Request::FlushAll => self.flush(None).await,
        }
    }

    /// Passes a query to a worker, which handles the query as if a client had sent it. Returns the explanation.
    async fn explain(&self, subject: &Subject) -> Answer {
        // A stopping worker accepts no more queries.
        if self.shared.stopping.load(Ordering::Relaxed) {
            return Answer::Error(ENDS.to_owned());
        }
        let bytes = match query(subject) {
            Ok(bytes) => bytes,
            Err(error) => return Answer::Error(error),
        };
        let (tell, reply) = oneshot::channel();
        let (client, trace) = (subject.client.to_canonical(), Box::new(Trace::new(tell)));
        let worker = rand::random_range(0..self.shared.worker_inboxes.len());
        self.shared.worker_inboxes[worker].post(WorkerMessage::Explain { bytes, client, trace });
        match reply.await {
            Ok(Ok(explanation)) => Answer::Explanation(Box::new(explanation)),
            Ok(Err(error)) => Answer::Error(error),
            Err(_) => Answer::Error(
                "the server is stopping, or had an internal error; see its log".to_owned(),
            ),
        }
    }

    /// Reloads the configuration of the process.
    async fn reload(&self) -> Answer {
        let Some(on_reload) = &self.on_reload else {
            return Answer::Error("this server has no configuration file to reload".to_owned());
        };
        let (sender, report) = oneshot::channel();
        on_reload(ReloadRequest(sender));
        match report.await {
            Ok(report) => Answer::Reloaded(report),
            Err(_) => Answer::Error(ENDS.to_owned()),
        }
    }

    /// Removes a name and all names below it, or all entries, from the cache. The removal runs on
    /// another thread, because it visits the whole cache.
    async fn flush(&self, name: Option<LowerName>) -> Answer {
        let cache = Arc::clone(&self.shared.common.cache);
        let shown = name.as_ref().map(|name| text(name.wire()));
        let flush = move || name.map_or_else(|| cache.flush_all(), |name| cache.flush(&name));
        match tokio::task::spawn_blocking(flush).await {
            Ok(removed) => {
                let what = shown.as_deref().unwrap_or("all names");
                tracing::info!("cache flushed: {what}, {removed} answers removed");
                let schema_version = FLUSH_VERSION;
                Answer::Flushed(FlushReport { schema_version, name: shown, removed })
            }
            Err(error) => Answer::Error(format!("cannot flush: {error}")),
        }
    }

    fn status(&self) -> Status {
        let (now, wall) = (clock::now(), clock::wall());
        let settings = self.shared.settings.load_full();
        let (metrics, cache) = (self.shared.metrics(), &self.shared.common.cache);
        let seconds = |moment: Nanos| moment.0 / Nanos::SECOND.0;
        let loaded = &self.shared.loaded;
        let discovers = settings.config.written_prefixes().any(PrefixKeys::is_discovered);
        let mut status = Status {
            schema_version: STATUS_VERSION,
            version: crate::BUILD.to_owned(),
            pid: std::process::id(),
            started_unix_s: seconds(self.shared.started),
            uptime_s: seconds(wall).saturating_sub(seconds(self.shared.started)),
            configuration: ConfigurationStatus {
                file: settings.source.display().to_string(),
                loaded_unix_s: seconds(Nanos(loaded.at.load(Ordering::Relaxed))),
                reloads: loaded.reloads.load(Ordering::Relaxed),
            },
            addresses: self.addresses.clone(),
            encrypted_addresses: self.encrypted_addresses.iter().map(encrypted_address).collect(),
            xdp: self.xdp.clone(),
            metrics_address: self.metrics_address,
            prefixes: self.shared.prefixes.load().iter().map(|used| status_of(used, now)).collect(),
            awaits_prefix: discovers && self.shared.live.load().announced.is_empty(),
            validates: settings.active_validator().is_some(),
            upstreams: Vec::new(),
            cache: CacheStatus { entries: cache.len() as u64, bytes: cache.weight() },
            in_flight: metrics.in_flight(),
            counters: Default::default(),
        };
        let upstreams = metrics.upstreams();
        for (upstream, keys) in settings.upstreams.iter().zip(&settings.config.upstreams) {
            let sum = upstreams.get(&upstream.address).copied().unwrap_or_default();
            let state = match sum.down_since {
                Some(_) => UpstreamState::MarkedDown,
                None if settings.lacks_signatures(upstream.address) => {
                    UpstreamState::WithoutSignatures
                }
                None => UpstreamState::Up,
            };
            status.upstreams.push(UpstreamStatus {
                address: upstream.address,
                name: keys.name.clone(),
                state,
                down_for_s: sum.down_since.map(|(since, _)| seconds(now.since(since))),
                down_reason: sum.down_since.map(|(_, trouble)| trouble.to_string()),
                queries: sum.asked,
                answers: sum.answered,
                failures: sum.failures,
                timeouts: sum.timeouts,
                down: sum.down,
            });
        }
        for (family, label, sum) in metrics.sums() {
            status.counters.entry(family.to_owned()).or_default().insert(label.to_owned(), sum);
        }
        status
    }
}

/// Converts the state of a prefix to the form in which the request `status` reports it.
fn status_of(used: &PrefixReport, now: Nanos) -> PrefixStatus {
    let seconds = |time: Nanos| time.0 / Nanos::SECOND.0;
    PrefixStatus {
        prefix: used.prefix.to_string(),
        name: used.name.clone(),
        announced_by: used.announced_by.clone(),
        expires_in_s: used.until.map(|until| seconds(until.since(now))),
        draining: used.draining,
        health: used.health.map(|(health, _)| health.name().to_owned()),
        health_for_s: used.health.map(|(_, since)| seconds(now.since(since))),
    }
}

/// Builds the query to be explained, in the form in which a client would send it.
fn query(subject: &Subject) -> Result<Vec<u8>, String> {
    let name: LowerName =
        subject.name.parse().map_err(|error| format!("the name {}: {error}", subject.name))?;
    let rtype = Rtype::from_str(&subject.rtype)
        .map_err(|_| format!("unknown type {}; write for example AAAA or TYPE65", subject.rtype))?;
    let cd = u8::from(subject.checking_disabled) << 4;
    let mut query = vec![0, 0, 1, cd, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(name.wire());
    query.extend(rtype.to_int().to_be_bytes());
    query.extend(CLASS_IN.to_be_bytes());
    // The query has EDNS, so that the reply contains extended errors.
    put_opt(&mut query, UDP_PAYLOAD as u16, Rcode::NOERROR, subject.dnssec_ok, &[]);
    Ok(query)
}

/// Returns the status of a listen address of an encrypted transport.
fn encrypted_address((transport, address): &(Transport, SocketAddr)) -> EncryptedAddress {
    EncryptedAddress { transport: transport.to_string(), address: *address }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::query::Received;

    fn subject(name: &str, rtype: &str) -> Subject {
        Subject {
            name: name.into(),
            rtype: rtype.into(),
            client: "::1".parse().unwrap(),
            dnssec_ok: true,
            checking_disabled: false,
        }
    }

    #[test]
    fn a_subject_becomes_a_query_that_can_be_read() {
        for (rtype, number) in [("AAAA", 28), ("aaaa", 28), ("TYPE65", 65), ("HTTPS", 65)] {
            let bytes = query(&subject("WWW.example", rtype)).unwrap();
            let Received::Query(query) = Received::read(&bytes) else { panic!("{bytes:?}") };
            assert_eq!((query.qtype, query.name.wire()), (number, &b"\x03www\x07example\0"[..]));
            assert!(query.recursion_desired && query.dnssec_ok() && !query.checking_disabled);
        }
        let cd = Subject { checking_disabled: true, ..subject("a", "A") };
        let bytes = query(&cd).unwrap();
        assert!(
            matches!(Received::read(&bytes), Received::Query(query) if query.checking_disabled)
        );
        assert!(query(&subject("a..b", "A")).is_err() && query(&subject("a", "X")).is_err());
    }
}
