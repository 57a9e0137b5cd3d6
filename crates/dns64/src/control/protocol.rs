//! Requests and answers on the control socket: one line of JSON in each direction per connection.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::explanation::Explanation;
use super::outcomes::{FlushReport, ReloadReport};
use super::status::Status;

/// Time limit for an answer. The limit is long, because an answer may need upstream queries.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A request to a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Returns the status of the server.
    Status,
    /// Explains the reply to a query.
    Explain(Subject),
    /// Reloads the configuration.
    Reload,
    /// Removes a name and all names below it from the cache.
    Flush {
        /// Name to remove, together with all names below it.
        name: String,
    },
    /// Empties the cache.
    FlushAll,
}

/// A query to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Subject {
    /// Queried name.
    pub(crate) name: String,
    /// Queried type, such as `AAAA` or `TYPE65`.
    #[serde(default = "aaaa", rename = "type")]
    pub(crate) rtype: String,
    /// Address of the client.
    #[serde(default = "loopback")]
    pub(crate) client: IpAddr,
    /// DO bit: the client requests signatures.
    #[serde(default)]
    pub(crate) dnssec_ok: bool,
    /// CD bit: the client itself validates answers.
    #[serde(default)]
    pub(crate) checking_disabled: bool,
}

fn aaaa() -> String {
    "AAAA".to_owned()
}

fn loopback() -> IpAddr {
    Ipv6Addr::LOCALHOST.into()
}

/// The answer to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// Status of the server, in answer to [`Request::Status`].
    Status(Box<Status>),
    /// Explanation of a reply, in answer to [`Request::Explain`].
    Explanation(Box<Explanation>),
    /// Report of a reload, in answer to [`Request::Reload`].
    Reloaded(ReloadReport),
    /// Number of entries removed from the cache, in answer to [`Request::Flush`] or [`Request::FlushAll`].
    Flushed(FlushReport),
    /// Error message.
    Error(String),
}

impl Request {
    /// Parses a request, which is one line of JSON.
    ///
    /// # Errors
    /// Returns a message that describes the error.
    pub(crate) fn read(line: &[u8]) -> Result<Request, String> {
        serde_json::from_slice(line).map_err(|error| format!("invalid request: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_of_json() {
        assert_eq!(Request::read(b"{\"request\":\"status\"}\n"), Ok(Request::Status));
        let subject = Subject {
            name: "www.example".into(),
            rtype: "AAAA".into(),
            client: "::1".parse().unwrap(),
            dnssec_ok: false,
            checking_disabled: false,
        };
        let short = b"{\"request\":\"explain\",\"name\":\"www.example\"}";
        assert_eq!(Request::read(short), Ok(Request::Explain(subject.clone())));
        let whole = Request::Explain(Subject { rtype: "A".into(), dnssec_ok: true, ..subject });
        assert_eq!(Request::read(&serde_json::to_vec(&whole).unwrap()), Ok(whole));
        for (line, request) in [
            (&b"{\"request\":\"reload\"}"[..], Request::Reload),
            (b"{\"request\":\"flush-all\"}", Request::FlushAll),
            (
                b"{\"request\":\"flush\",\"name\":\"a.test\"}",
                Request::Flush { name: "a.test".into() },
            ),
        ] {
            assert_eq!(Request::read(line), Ok(request));
        }
        for wrong in [
            &b"status"[..],
            b"{\"request\":\"flush\"}",
            b"",
            b"{\"request\":\"stop\"}",
            b"{\"request\":\"explain\"}",
            b"{\"request\":\"explain\",\"name\":\"a\",\"nmae\":\"b\"}",
            b"{\"request\":\"explain\",\"name\":\"a\",\"client\":\"everybody\"}",
        ] {
            assert!(Request::read(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
