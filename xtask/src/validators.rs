//! DNSSEC validators for one zone with a trust anchor: dns64d, Unbound and delv. All of them query the same
//! authoritative server on loopback.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use dnssec_fuzz::Status;

use crate::process::{self, Server, free_port};
use crate::servers::wait_until_listens;

/// Time limit of delv.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// A zone with a trust anchor.
pub(crate) struct AnchoredZone<'a> {
    /// Folder for the files of the validators.
    pub(crate) folder: &'a str,
    pub(crate) name: &'a str,
    /// Data of the DS record.
    pub(crate) ds: &'a str,
    /// Address of the authoritative server.
    pub(crate) upstream: SocketAddr,
}

impl AnchoredZone<'_> {
    fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = format!("{}/{name}", self.folder);
        fs::write(&path, text).with_context(|| path.clone())?;
        Ok(path)
    }

    fn anchor_file(&self) -> Result<String> {
        self.file("anchors", &format!("{}. IN DS {}\n", self.name, self.ds))
    }

    /// Starts dns64d, and returns its port. It synthesizes nothing.
    pub(crate) fn dns64d(&self, program: &str) -> Result<(Server, u16)> {
        let (port, anchors) = (free_port()?, self.anchor_file()?);
        let conf = format!(
            "listen = ['127.0.0.1:{port}']\nthreads = 1\n[dns64]\nprefixes = []\n[dnssec]\nvalidate = true\n\
             trust-anchors = '{anchors}'\n[[upstream]]\naddress = '{}'\nport = {}\n",
            self.upstream.ip(),
            self.upstream.port()
        );
        let conf = self.file("dns64d.toml", &conf)?;
        let server = Server::start(program, &["--config", &conf])?;
        wait_until_listens(&[], port)?;
        Ok((server, port))
    }

    /// Starts Unbound, and returns its port. It validates like dns64d: without tolerance for the clock, with the same
    /// limit on NSEC3 iterations, and without conclusions from earlier responses. It sends queries only to loopback.
    pub(crate) fn unbound(&self) -> Result<(Server, u16)> {
        let (port, folder, anchors) = (free_port()?, self.folder, self.anchor_file()?);
        let not_queried: String =
            NOT_LOOPBACK.iter().map(|range| format!("  do-not-query-address: {range}\n")).collect();
        let conf = format!(
            "server:\n  interface: 127.0.0.1\n  port: {port}\n  module-config: \"validator iterator\"\n  username: \"\"\n  \
             chroot: \"\"\n  directory: \"{folder}\"\n  pidfile: \"{folder}/unbound.pid\"\n  use-syslog: no\n  \
             do-not-query-localhost: no\n  local-zone: \"test.\" nodefault\n  trust-anchor-file: \"{anchors}\"\n  \
             aggressive-nsec: no\n  harden-below-nxdomain: no\n  qname-minimisation: no\n  val-max-restart: 0\n  \
             val-sig-skew-min: 0\n  val-sig-skew-max: 0\n  val-nsec3-keysize-iterations: \"1024 50 2048 50 4096 50\"\n  \
             do-ip6: no\n  trust-anchor-signaling: no\n  num-threads: 1\n{not_queried}remote-control:\n  control-enable: no\n\
             stub-zone:\n  name: \"{}\"\n  stub-addr: {}@{}\n",
            self.name,
            self.upstream.ip(),
            self.upstream.port()
        );
        let conf = self.file("unbound.conf", &conf)?;
        let server = Server::start("unbound", &["-d", "-c", &conf])?;
        wait_until_listens(&[], port)?;
        Ok((server, port))
    }

    /// Returns delv's result for a query. [`AnchoredZone::delv_anchors`] must have been called.
    pub(crate) fn delv(&self, name: &str, rtype: &str) -> Result<Status> {
        let (server, port) = (format!("@{}", self.upstream.ip()), self.upstream.port().to_string());
        let root = format!("+root={}", self.name);
        let anchors = format!("{}/delv.anchors", self.folder);
        let args = [&server, "-p", &port, "-a", &anchors, &root, name, rtype];
        let ran = process::run("delv", &args, LIMIT)?;
        Ok(delv_status(&(ran.stdout + &ran.stderr)))
    }

    /// Writes the trust anchor for delv.
    pub(crate) fn delv_anchors(&self) -> Result<()> {
        let words: Vec<&str> = self.ds.split_whitespace().collect();
        let [tag, algorithm, digest_type, digest @ ..] = words.as_slice() else {
            anyhow::bail!("DS record {}", self.ds)
        };
        let text = format!(
            "trust-anchors {{ {}. static-ds {tag} {algorithm} {digest_type} \"{}\"; }};\n",
            self.name,
            digest.concat()
        );
        self.file("delv.anchors", &text).map(drop)
    }
}

/// All IPv4 addresses outside of 127.0.0.0/8.
const NOT_LOOPBACK: [&str; 8] = [
    "0.0.0.0/2",
    "64.0.0.0/3",
    "96.0.0.0/4",
    "112.0.0.0/5",
    "120.0.0.0/6",
    "124.0.0.0/7",
    "126.0.0.0/8",
    "128.0.0.0/1",
];

/// Returns the result that delv has printed.
fn delv_status(text: &str) -> Status {
    // A denial is printed as a failed resolution, followed by its verdict.
    let text = text.replace("resolution failed: ncache", "");
    // After an alias, delv prints the verdict on each part. The verdict on a denial that failed is "pending validation".
    let is_bogus =
        ["resolution failed", "pending validation"].iter().any(|sign| text.contains(sign));
    match (is_bogus, text.contains("unsigned answer")) {
        (true, _) => Status::Bogus,
        (false, true) => Status::Insecure,
        (false, false) if text.contains("fully validated") => Status::Secure,
        (false, false) => Status::Bogus,
    }
}
