//! DNS over TLS, HTTPS and QUIC, and certificates that are replaced.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dns64::Transport;
use dns64::config::Settings;
use dns64::metrics::Count;
use dns64::server::{Activated, RunningServer, bind};
use domain::base::iana::{Rcode, Rtype};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::harness::*;

/// Codes of EDNS options.
const COOKIE: u16 = 10;
const KEEPALIVE: u16 = 11;
const PADDING: u16 = 12;

/// Writes a certificate for `dns64.example` and 127.0.0.1, and its key, to a folder.
fn write_certificate(folder: &Path, change: impl Fn(&mut rcgen::CertificateParams)) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["dns64.example".to_owned(), "127.0.0.1".to_owned()];
    let mut parameters = rcgen::CertificateParams::new(names).unwrap();
    change(&mut parameters);
    let certificate = parameters.self_signed(&key).unwrap();
    // Rename, so that the server never reads half a file.
    for (file, text) in [("key.pem", key.serialize_pem()), ("certificate.pem", certificate.pem())] {
        let new = folder.join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, folder.join(file)).unwrap();
    }
}

/// A server with all transports, and the folder with its certificate.
struct Encrypted {
    running: RunningServer,
    folder: TempDir,
    _upstream: Upstream,
}

impl Encrypted {
    fn new(configuration: &str) -> Encrypted {
        let upstream = Upstream::new(|q| match q.qtype {
            Rtype::AAAA => q.nodata(60, 60).send(),
            _ => q.answer().a(&q.name, 90, "192.0.2.1").send(),
        });
        let folder = tempfile::tempdir().unwrap();
        write_certificate(folder.path(), |_| {});
        let settings = || {
            let text = listening(folder.path(), configuration, upstream.address);
            Settings::from_text(&text, Path::new("test.toml"))
                .unwrap_or_else(|e| panic!("{text}\n{e}"))
        };
        let bound = (0..50).find_map(|_| bind(settings(), Activated::default()).ok());
        let running = bound.expect("a free port").start().unwrap();
        Encrypted { running, folder, _upstream: upstream }
    }

    /// Returns the address of the `number`th listen address with this transport.
    fn address(&self, transport: Transport, number: usize) -> SocketAddr {
        let all = self.running.encrypted_addresses().iter();
        all.filter(|one| one.0 == transport).nth(number).unwrap().1
    }

    fn count(&self, what: Count) -> u64 {
        self.running.metrics().total(what)
    }

    /// Returns the TLS settings of a client that trusts the current certificate.
    fn client(&self, protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let file = self.folder.path().join("certificate.pem");
        roots.add(CertificateDer::from_pem_file(file).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// Opens a connection for DNS over TLS.
    fn over_tls(&self, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(self.address(Transport::Tls, 0)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let name = ServerName::try_from("dns64.example").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), stream)
    }
}

/// Returns a configuration with one listen address per transport, and one for HTTP behind a proxy.
fn listening(folder: &Path, configuration: &str, upstream: SocketAddr) -> String {
    let files =
        format!("certificate = '{0}/certificate.pem', key = '{0}/key.pem'", folder.display());
    let entry = |transport: &str, keys: &str| {
        format!("{{ address = '127.0.0.1:0', transport = '{transport}'{keys} }}")
    };
    let (with_files, none) = (format!(", {files}"), String::new());
    let entries = [
        entry("tls", &with_files),
        entry("https", &with_files),
        entry("https", &none),
        entry("quic", &with_files),
    ];
    format!(
        "listen = ['127.0.0.1:0', {}]\nthreads = 1\n{configuration}\n{PREFIX}\n\
         [dnssec]\nvalidate = false\n[[upstream]]\naddress = '{}'\nport = {}\n",
        entries.join(", "),
        upstream.ip(),
        upstream.port()
    )
}

/// Exchanges a message on a stream with length fields.
fn exchange(stream: &mut (impl Read + Write), query: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A query as sent over HTTPS and QUIC, with message ID 0.
fn without_id(ask: Ask) -> Vec<u8> {
    Ask { id: 0, ..ask }.bytes()
}

#[test]
fn tls_connections_are_kept_and_resumed() {
    let server = Encrypted::new("");
    let config = Arc::new(server.client(&["dot"]));
    for connection in 1..=2 {
        let mut stream = server.over_tls(&config);
        for name in ["a.test", "b.test"] {
            let reply = exchange(&mut stream, &ask(name, Rtype::AAAA).bytes()).unwrap();
            assert_eq!(Got::new(&reply).addresses(), [mapped("192.0.2.1")], "{connection}");
        }
    }
    assert_eq!(server.count(Count::TlsAaaa), 4);
    assert_eq!((server.count(Count::HandshakeFull), server.count(Count::HandshakeResumed)), (1, 1));
}

#[test]
fn tls_versions_and_protocols_are_checked() {
    let server = Encrypted::new("");
    let tls12 = {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    let query = ask("a.test", Rtype::AAAA).bytes();
    for config in [tls12, server.client(&["h2"])] {
        let mut stream = server.over_tls(&Arc::new(config));
        assert_eq!(exchange(&mut stream, &query), None);
    }
    // A client without ALPN is accepted (RFC 7858 §3.2 does not require ALPN).
    let mut stream = server.over_tls(&Arc::new(server.client(&[])));
    assert!(exchange(&mut stream, &query).is_some());
    eventually("failed handshakes are counted", || server.count(Count::HandshakeFailed) == 2);
}

#[test]
fn replies_to_padded_queries_are_padded() {
    let server = Encrypted::new("");
    let config = Arc::new(server.client(&["dot"]));
    let mut stream = server.over_tls(&config);
    let padded = ask("a.test", Rtype::AAAA).option(PADDING, &[0; 7]).option(KEEPALIVE, &[]);
    let got = Got::new(&exchange(&mut stream, &padded.bytes()).unwrap());
    assert_eq!(got.len(), 468);
    // 10 s, the default of `tcp-idle`, in units of 100 ms.
    assert_eq!(got.options()[&KEEPALIVE], 100_u16.to_be_bytes());
    let plain = ask("a.test", Rtype::AAAA).option(COOKIE, &[7; 8]);
    let got = Got::new(&exchange(&mut stream, &plain.bytes()).unwrap());
    assert!(got.len() < 468 && got.options().contains_key(&COOKIE));
    let tcp = Server { address: server.running.addresses()[0], running: server.running };
    let got = padded.over_tcp(&tcp);
    assert!(!got.options().contains_key(&PADDING) && !got.options().contains_key(&KEEPALIVE));
}

/// Sends requests on one HTTP/2 connection. Returns status, cache lifetime and body of each response.
fn over_https(
    server: &Encrypted,
    requests: Vec<Request<Full<Bytes>>>,
) -> Vec<(u16, String, Bytes)> {
    let config = Arc::new(server.client(&["h2"]));
    let address = server.address(Transport::Https, 0);
    runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("dns64.example").unwrap();
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = TokioIo::new(connector.connect(name, stream).await.unwrap());
        let executor = TokioExecutor::new();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
        tokio::spawn(connection);
        let mut responses = Vec::new();
        for request in requests {
            let response: Response<_> = sender.send_request(request).await.unwrap();
            let status = response.status().as_u16();
            let header = |name: &str| match response.headers().get(name) {
                Some(value) => value.to_str().unwrap().to_owned(),
                None => String::new(),
            };
            let lifetime = header("cache-control");
            assert_eq!(header("content-type") == "application/dns-message", status == 200);
            responses.push((
                status,
                lifetime,
                response.into_body().collect().await.unwrap().to_bytes(),
            ));
        }
        responses
    })
}

#[test]
fn https_answers_get_and_post() {
    let server = Encrypted::new("");
    let query = without_id(ask("a.test", Rtype::AAAA));
    let encoded = {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&query)
    };
    let uri = |path: &str| format!("https://dns64.example{path}");
    let post = |path: &str, body: Vec<u8>| {
        let request = Request::post(uri(path)).header("content-type", "application/dns-message");
        request.body(Full::new(Bytes::from(body))).unwrap()
    };
    let get = |path: &str| Request::get(uri(path)).body(Full::default()).unwrap();
    let responses = over_https(
        &server,
        vec![
            get(&format!("/dns-query?dns={encoded}")),
            post("/dns-query", query.clone()),
            post("/dns-query", without_id(ask("resolver.arpa", Rtype::A))),
            post("/other", query.clone()),
            post("/dns-query", b"no DNS".to_vec()),
            get("/dns-query"),
        ],
    );
    let statuses: Vec<u16> = responses.iter().map(|response| response.0).collect();
    assert_eq!(statuses, [200, 200, 200, 404, 400, 400]);
    for (_, lifetime, body) in &responses[..2] {
        assert_eq!(Got::new(body).addresses(), [mapped("192.0.2.1")]);
        // The negative answer for AAAA has a TTL of 60 s.
        assert_eq!(lifetime, "max-age=60");
    }
    assert_eq!(Got::new(&responses[2].2).rcode(), Rcode::NOERROR);
    assert_eq!(server.count(Count::HttpsAaaa), 2);
}

#[test]
fn http_behind_a_proxy_needs_no_certificate() {
    let server = Encrypted::new("");
    let mut stream = TcpStream::connect(server.address(Transport::Https, 1)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let query = without_id(ask("a.test", Rtype::AAAA));
    let head = format!(
        "POST /dns-query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/dns-message\r\nContent-Length: {}\r\n\r\n",
        query.len()
    );
    stream.write_all(&[head.as_bytes(), &query].concat()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&response));
    let body = response.windows(4).position(|octets| octets == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(Got::new(&response[body..]).addresses(), [mapped("192.0.2.1")]);
}

/// Opens a QUIC connection.
async fn over_quic(
    server: &Encrypted,
    config: &quinn::ClientConfig,
) -> (quinn::Endpoint, quinn::Connecting) {
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = server.address(Transport::Quic, 0);
    let connecting = endpoint.connect_with(config.clone(), address, "dns64.example").unwrap();
    (endpoint, connecting)
}

fn quic_client(server: &Encrypted) -> quinn::ClientConfig {
    let mut config = server.client(&["doq"]);
    config.enable_early_data = true;
    let config = quinn::crypto::rustls::QuicClientConfig::try_from(config).unwrap();
    quinn::ClientConfig::new(Arc::new(config))
}

/// Sends a query on a new stream of a QUIC connection.
async fn ask_over_quic(connection: &quinn::Connection, query: &[u8]) -> Option<Vec<u8>> {
    let (mut send, mut receive) = connection.open_bi().await.ok()?;
    send.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).await.ok()?;
    send.finish().ok()?;
    let framed = receive.read_to_end(65_537).await.ok()?;
    Some(framed[2..].to_vec())
}

#[test]
fn quic_answers_each_query_on_its_stream() {
    let server = Encrypted::new("");
    let config = quic_client(&server);
    runtime().block_on(async {
        let (_endpoint, connecting) = over_quic(&server, &config).await;
        let connection = connecting.await.unwrap();
        for name in ["a.test", "b.test"] {
            let query = without_id(ask(name, Rtype::AAAA));
            let reply = ask_over_quic(&connection, &query).await.unwrap();
            assert_eq!(Got::new(&reply).addresses(), [mapped("192.0.2.1")]);
        }
        // A message ID other than 0 is a protocol error (RFC 9250 §4.2.1).
        let with_id = Ask { id: 7, ..ask("a.test", Rtype::A) }.bytes();
        assert_eq!(ask_over_quic(&connection, &with_id).await, None);
        let quinn::ConnectionError::ApplicationClosed(close) = connection.closed().await else {
            panic!("not closed by the server")
        };
        assert_eq!(close.error_code.into_inner(), 2);
    });
    assert_eq!((server.count(Count::QuicAaaa), server.count(Count::HandshakeQuic)), (2, 1));
}

#[test]
fn quic_answers_early_data() {
    let server = Encrypted::new("");
    let config = quic_client(&server);
    let query = without_id(ask("a.test", Rtype::AAAA));
    runtime().block_on(async {
        let (endpoint, connecting) = over_quic(&server, &config).await;
        let connection = connecting.await.unwrap();
        assert!(ask_over_quic(&connection, &query).await.is_some());
        connection.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
        let (_endpoint, connecting) = over_quic(&server, &config).await;
        let Ok((connection, accepted)) = connecting.into_0rtt() else {
            panic!("no session ticket")
        };
        let reply = ask_over_quic(&connection, &query).await.unwrap();
        assert_eq!(Got::new(&reply).addresses(), [mapped("192.0.2.1")]);
        assert!(accepted.await);
    });
}

#[test]
fn quic_clients_with_many_connections_prove_their_address() {
    let server = Encrypted::new("[limits]\ntcp-per-client = 4");
    runtime().block_on(async {
        let mut kept = Vec::new();
        for retries in [0, 1, 2] {
            // A client with the token of an earlier connection needs no retry.
            let config = quic_client(&server);
            let (endpoint, connecting) = over_quic(&server, &config).await;
            let connection = connecting.await.unwrap();
            let query = without_id(ask("a.test", Rtype::AAAA));
            assert!(ask_over_quic(&connection, &query).await.is_some());
            assert_eq!(server.count(Count::QuicRetry), retries);
            kept.push((endpoint, connection));
        }
    });
}

#[test]
fn a_quic_stream_that_the_client_resets_leaves_the_others() {
    let server = Encrypted::new("");
    let config = quic_client(&server);
    runtime().block_on(async {
        let (_endpoint, connecting) = over_quic(&server, &config).await;
        let connection = connecting.await.unwrap();
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&[0]).await.unwrap();
        send.reset(3_u32.into()).unwrap();
        let query = without_id(ask("a.test", Rtype::AAAA));
        assert!(ask_over_quic(&connection, &query).await.is_some());
        // DOQ_REQUEST_CANCELLED (RFC 9250 §8.4).
        let Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) =
            receive.read_to_end(9).await
        else {
            panic!("the stream was not reset")
        };
        assert_eq!(code.into_inner(), 3);
    });
}

#[test]
fn an_incomplete_request_ends_although_others_follow() {
    let server = Encrypted::new("[limits]\ntcp-idle = '200ms'");
    let mut stream = TcpStream::connect(server.address(Transport::Https, 1)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = "POST /dns-query HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nx";
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 408"), "{response}");
}

#[test]
fn disallowed_clients_are_closed_on_all_transports() {
    let server = Encrypted::new("[access]\nallow = ['192.0.2.0/24']");
    let config = Arc::new(server.client(&["dot"]));
    let query = ask("a.test", Rtype::AAAA).bytes();
    assert_eq!(exchange(&mut server.over_tls(&config), &query), None);
    let config = quic_client(&server);
    runtime().block_on(async {
        let (_endpoint, connecting) = over_quic(&server, &config).await;
        assert!(connecting.await.is_err());
    });
    assert_eq!(server.count(Count::TcpRefusedAcl), 2);
}

#[test]
fn replaced_certificates_are_used_and_broken_ones_rejected() {
    let server = Encrypted::new("");
    let query = ask("a.test", Rtype::AAAA).bytes();
    let old = Arc::new(server.client(&["dot"]));
    let mut kept = server.over_tls(&old);
    assert!(exchange(&mut kept, &query).is_some());
    write_certificate(server.folder.path(), |_| {});
    eventually("the new certificate is used", || server.count(Count::CertificateRenewed) == 1);
    let new = Arc::new(server.client(&["dot"]));
    assert!(exchange(&mut server.over_tls(&new), &query).is_some());
    assert!(exchange(&mut kept, &query).is_some(), "the old connection stays open");
    // A new certificate with the old key.
    let key = fs::read(server.folder.path().join("key.pem")).unwrap();
    write_certificate(server.folder.path(), |_| {});
    fs::write(server.folder.path().join("key.pem"), key).unwrap();
    eventually("the pair is rejected", || server.count(Count::CertificateRejected) >= 1);
    assert!(exchange(&mut server.over_tls(&new), &query).is_some(), "the last good one stays");
}

#[test]
fn idle_and_incomplete_connections_are_closed() {
    let server = Encrypted::new("[limits]\ntcp-idle = '200ms'");
    let config = Arc::new(server.client(&["dot"]));
    let mut idle = server.over_tls(&config);
    assert!(exchange(&mut idle, &ask("a.test", Rtype::A).bytes()).is_some());
    assert!(matches!(idle.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut silent = TcpStream::connect(server.address(Transport::Https, 1)).unwrap();
    silent.set_read_timeout(Some(SOON)).unwrap();
    assert!(matches!(silent.read(&mut [0; 1]), Ok(0)));
    let quic = quic_client(&server);
    runtime().block_on(async {
        let (_endpoint, connecting) = over_quic(&server, &quic).await;
        let connection = connecting.await.unwrap();
        connection.closed().await;
    });
}
