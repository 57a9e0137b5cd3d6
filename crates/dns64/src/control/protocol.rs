//! Requests at the control socket and their answers: a line of JSON each way on a connection.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::explanation::Explanation;
use super::outcomes::{FlushReport, ReloadReport};
use super::status::Status;

/// Time for an answer. Upstreams may have to be asked for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Prints what is in use.
    Status,
    /// Explains why a name is answered as it is.
    Explain(Subject),
    /// Reads the configuration again.
    Reload,
    /// Removes a name and the names below it from the cache.
    Flush {
        /// The name.
        name: String,
    },
    /// Empties the cache.
    FlushAll,
}

/// The query that is to be explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Subject {
    /// The name that is asked for.
    pub(crate) name: String,
    /// The type that is asked for, as `AAAA` or `TYPE65`.
    #[serde(default = "aaaa", rename = "type")]
    pub(crate) rtype: String,
    /// Who asks.
    #[serde(default = "loopback")]
    pub(crate) client: IpAddr,
    /// DO: it wants signatures.
    #[serde(default)]
    pub(crate) dnssec_ok: bool,
    /// CD: it validates for itself.
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
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Explain`].
    Explanation(Box<Explanation>),
    /// To [`Request::Reload`].
    Reloaded(ReloadReport),
    /// To [`Request::Flush`] and [`Request::FlushAll`].
    Flushed(FlushReport),
    /// The reason why there is no other answer.
    Error(String),
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn read(line: &[u8]) -> Result<Request, String> {
        serde_json::from_slice(line).map_err(|error| format!("no request: {error}"))
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
