//! Encrypted transports of dns64d, queried by common clients.
//!
//! ```text
//! kdig, dig, dnsperf, curl, openssl ─► dns64d: TLS, HTTPS, HTTP ─► AuthDNS
//! ```

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::dns64d::NAME;
use super::harness::{A, AAAA, Bench, LIMIT, wait_for};
use super::test::Test;
use crate::process::{Server, free_port, output};

pub(super) static TESTS: &[Test] = &[Test::new(
    "encrypted: kdig, dig, dnsperf, curl and openssl with dns64d",
    &["kdig", "dig", "dnsperf", "curl", "openssl"],
    clients,
)];

/// Address that dns64d synthesizes for [`NAME`].
const ADDRESS: &str = "64:ff9b::a00:1";
/// Name in the certificate.
const HOST: &str = "dns64.example";
/// Query for the AAAA records of `a.`, in base64url.
const QUERY: &str = "AAABAAABAAAAAAAAAWEAABwAAQ";

fn clients(bench: &Bench) -> Result<()> {
    let (certificate, key) = (bench.path("certificate.pem"), bench.path("key.pem"));
    let subject = format!("subjectAltName=DNS:{HOST},IP:127.0.0.1");
    let request = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=dns64d",
        "-addext",
        &subject,
        "-keyout",
        &key,
        "-out",
        &certificate,
    ];
    output("openssl", &request, LIMIT)?;
    let ports = [(); 5].map(|()| free_port()).into_iter().collect::<Result<Vec<u16>>>()?;
    let [upstream, plain, tls, https, http] = ports[..] else { unreachable!("five ports") };
    let auth = format!("127.0.0.1:{upstream}");
    let _auth = Server::start(bench.program(), &["auth", "--listen", &auth, "--aaaa-share", "0"])?;
    wait_for(&auth, NAME, A)?;
    let control = bench.path("control.sock");
    let files = format!("certificate = '{certificate}'\nkey = '{key}'\n");
    let listen = |port: u16, transport: &str, files: &str| {
        format!("[[listen]]\naddress = '127.0.0.1:{port}'\ntransport = '{transport}'\n{files}")
    };
    let config = [
        listen(plain, "udp", ""),
        listen(tls, "tls", &files),
        listen(https, "https", &files),
        listen(http, "https", ""),
        format!("[ddr]\nname = '{HOST}'\n[control]\nsocket = '{control}'\n"),
        "[dnssec]\nvalidate = false\n".to_owned(),
        "[dns64]\nprefixes = [{ prefix = '64:ff9b::/96', allow-non-global = true }]\n".to_owned(),
        format!("[[upstream]]\naddress = '127.0.0.1'\nport = {upstream}\n"),
    ];
    let config = bench.file("dns64d.toml", &config.concat())?;
    let dns64d = bench.dns64d_program();
    output(&dns64d, &["--config", &config, "check"], LIMIT)?;
    let server = Server::start(&dns64d, &["--config", &config])?;
    wait_for(&format!("127.0.0.1:{plain}"), NAME, AAAA)?;

    let (ca, host) = (format!("+tls-ca={certificate}"), format!("+tls-hostname={HOST}"));
    let answers = |client: &str, port: u16, options: &[&str]| -> Result<()> {
        let port = port.to_string();
        let query = ["@127.0.0.1", "-p", &port, NAME, "AAAA", "+short"];
        let answer = output(client, &[&query[..], options].concat(), LIMIT)?;
        ensure!(answer.trim() == ADDRESS, "{client} {options:?}: {answer}");
        println!("        {client} {}: {ADDRESS}", options[0]);
        Ok(())
    };
    answers("kdig", tls, &["+tls", &ca, &host])?;
    answers("kdig", https, &["+https", &ca, &host])?;
    answers("kdig", https, &["+https-get", &ca, &host])?;
    answers("dig", tls, &["+tls", &ca, &host])?;
    answers("dig", https, &["+https", &ca, &host])?;
    answers("dig", https, &["+https-get", &ca, &host])?;
    answers("dig", http, &["+http-plain"])?;
    // One query at a time: if several responses arrive together, dnsperf reads only the last one.
    let names = bench.file("names", &format!("{NAME} AAAA\n").repeat(50))?;
    for (mode, port, at_once) in [("dot", tls, "20"), ("doh", https, "1")] {
        let (port, uri) = (port.to_string(), "doh-uri=https://127.0.0.1/dns-query");
        let run = [
            "-m",
            mode,
            "-O",
            uri,
            "-s",
            "127.0.0.1",
            "-p",
            &port,
            "-d",
            &names,
            "-n",
            "1",
            "-q",
            at_once,
        ];
        let printed = output("dnsperf", &run, LIMIT)?;
        ensure!(
            printed.contains("Queries completed:    50 (100.00%)"),
            "dnsperf {mode}: {printed}"
        );
        println!("        dnsperf -m {mode}: 50 of 50 answered");
    }
    for (version, resolve, scheme, port) in [
        ("--http2", HOST, "https", https),
        ("--http1.1", "localhost", "http", http),
        ("--http2-prior-knowledge", "localhost", "http", http),
    ] {
        let uri = format!("{scheme}://{resolve}:{port}/dns-query?dns={QUERY}");
        let resolve = format!("{resolve}:{port}:127.0.0.1");
        let printed = "%{http_code} %{content_type}";
        let run = [
            version,
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            printed,
            "--cacert",
            &certificate,
            "--resolve",
            &resolve,
            &uri,
        ];
        let status = output("curl", &run, LIMIT)?;
        ensure!(status == "200 application/dns-message", "curl {version}: {status}");
        println!("        curl {version}: {status}");
    }
    let connect = format!("127.0.0.1:{tls}");
    let client = [
        "s_client",
        "-connect",
        &connect,
        "-alpn",
        "dot",
        "-CAfile",
        &certificate,
        "-verify_return_error",
        "-verify_hostname",
        HOST,
    ];
    let printed = output("openssl", &client, LIMIT)?;
    ensure!(printed.contains("ALPN protocol: dot"), "{printed}");
    println!("        openssl s_client: verified, ALPN protocol dot");
    let discovered = {
        let port = plain.to_string();
        let query = ["@127.0.0.1", "-p", &port, "_dns.resolver.arpa", "SVCB", "+short"];
        output("dig", &query, LIMIT)?
    };
    ensure!(discovered.lines().count() == 2 && discovered.contains(HOST), "{discovered}");
    let status = output(&dns64d, &["status", "--socket", &control, "--json"], LIMIT)?;
    let status: Value = serde_json::from_str(&status)?;
    let counted = |kind: &str| {
        status["counters"]["queries"][kind].as_u64().with_context(|| format!("no count {kind}"))
    };
    ensure!(counted("tls_aaaa")? >= 52 && counted("https_aaaa")? >= 58, "{status}");
    server.end()?;
    Ok(())
}
