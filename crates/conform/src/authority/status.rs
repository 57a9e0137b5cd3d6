//! Status socket, through which checks in another process read the query log of the test authoritative server.
//!
//! Requests and responses are lines of JSON, and a client may send any number of requests. The response to
//! `{"asked":"NAME"}` is a list of the queries received for this name ([`Asked`]). The response to `{"anchors":true}`
//! is a list of trust anchors in zone file format. After any other request the server closes the connection.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use net::status::StatusSocket;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::log::Log;
use super::view::{Asked, View};
use crate::message::Name;

/// Timeout for reading or writing a response on the status socket.
const PATIENCE: Duration = Duration::from_secs(5);

/// Request that a client sends over the status socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Requests a list of the queries that the server has received for this name.
    Asked(String),
    /// Requests the trust anchors of the signed zones; the value is `true`.
    Anchors(bool),
}

/// Serves the log and the trust anchors on a status socket, until the process ends.
///
/// # Errors
/// Returns the errors of [`StatusSocket::serve`].
pub fn serve(socket: &StatusSocket, log: Arc<Log>, anchors: Vec<String>) -> io::Result<()> {
    socket.serve(move |stream| converse(stream, &log, &anchors))
}

fn converse(stream: &UnixStream, log: &Log, anchors: &[String]) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    for line in BufReader::new(stream).lines() {
        let reply = match serde_json::from_str(&line?)? {
            Request::Asked(name) => {
                let name: Name = name.parse().map_err(io::Error::other)?;
                serde_json::to_string(&log.asked(&name)?)?
            }
            Request::Anchors(_) => serde_json::to_string(anchors)?,
        };
        writeln!(&mut &*stream, "{reply}")?;
    }
    Ok(())
}

/// Test authoritative server in another process on this host, accessed through its status socket.
#[derive(Clone, Debug)]
pub struct Remote {
    path: PathBuf,
}

impl Remote {
    /// Creates a client for the status socket `path`; no request is sent yet.
    pub fn new(path: impl Into<PathBuf>) -> Remote {
        Remote { path: path.into() }
    }

    /// Returns the trust anchors of the signed zones, as lines of a zone file.
    ///
    /// # Errors
    /// Returns an error if no process serves the socket, or if the process that serves it is not a test authoritative
    /// server.
    pub fn anchors(&self) -> io::Result<Vec<String>> {
        self.ask(&Request::Anchors(true))
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> io::Result<T> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{}", serde_json::to_string(request)?)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl View for Remote {
    fn asked(&self, name: &Name) -> io::Result<Vec<Asked>> {
        self.ask(&Request::Asked(name.to_string()))
    }
}
