//! Configuration tables for observability: the control socket, the query log and dnstap.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Path of the control socket of the systemd unit dns64d.service.
pub(crate) const CONTROL_SOCKET: &str = "/run/dns64d/control.sock";

/// `[control]`: the Unix socket for `dns64d status`, `explain`, `reload` and `flush`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct ControlKeys {
    /// Absolute path of the socket, at most 107 octets. The default is `control.sock` in the folder
    /// that systemd creates for `RuntimeDirectory=`. Without this folder, there is no socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
    /// Group with access to the socket, in addition to its owner (mode 0660). Without this key,
    /// only the owner has access (mode 0600).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
}

/// Format of the lines of a log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// Each log entry is one line of text.
    #[default]
    Text,
    /// Each log entry is one JSON object on a line of its own.
    Json,
}

/// `[query-log]`: log with one line for each answered query.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct QueryLogKeys {
    /// Absolute path of a file to which lines are appended, or `"stderr"`. Without this key, there
    /// is no query log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<LogTarget>,
    /// Format of each line of the log.
    pub(crate) format: LogFormat,
    /// Sampling interval N: one in N queries is logged; 1 to 1 000 000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) sample: u32,
}

impl Default for QueryLogKeys {
    fn default() -> QueryLogKeys {
        QueryLogKeys { to: None, format: LogFormat::default(), sample: 1 }
    }
}

/// Destination of the query log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub(crate) enum LogTarget {
    /// The log is written to standard error.
    Stderr,
    /// The log is appended to this file.
    File(PathBuf),
}

/// Value of `to` that selects standard error.
const STDERR: &str = "stderr";

impl From<PathBuf> for LogTarget {
    fn from(path: PathBuf) -> LogTarget {
        if path == Path::new(STDERR) { LogTarget::Stderr } else { LogTarget::File(path) }
    }
}

impl From<LogTarget> for PathBuf {
    fn from(target: LogTarget) -> PathBuf {
        match target {
            LogTarget::Stderr => STDERR.into(),
            LogTarget::File(path) => path,
        }
    }
}

impl QueryLogKeys {
    /// Returns the path of the log file, or `None` if there is no file.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.to {
            Some(LogTarget::File(file)) => Some(file),
            Some(LogTarget::Stderr) | None => None,
        }
    }
}

/// `[dnstap]`: copies of queries and replies for a program that reads them from a Unix socket
/// (<https://dnstap.info>).
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct DnstapKeys {
    /// Absolute path of the socket on which the reading program listens, at most 107 octets.
    /// Without this key, nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
    /// Identity of the server in dnstap messages. The default is the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    /// Log client queries, and the replies to them, over dnstap.
    pub(crate) clients: bool,
    /// Log upstream queries, and the responses to them, over dnstap.
    pub(crate) upstreams: bool,
}

impl Default for DnstapKeys {
    fn default() -> DnstapKeys {
        DnstapKeys { socket: None, identity: None, clients: true, upstreams: false }
    }
}

/// Maximum length of a socket path, in octets (unix(7)).
const LONGEST_SOCKET: usize = 107;
/// Maximum length of the server identity for dnstap, in octets. Host names cannot be longer.
const LONGEST_IDENTITY: usize = 255;

/// Returns the first error in the tables `[control]`, `[query-log]` and `[dnstap]`: the path of the key, and a message
/// that shows the correct form.
pub(super) fn fault(
    control: &ControlKeys,
    log: &QueryLogKeys,
    dnstap: &DnstapKeys,
) -> Option<(&'static str, String)> {
    let absolute = |at, key, path: &Path| {
        let text = format!("{key} must be an absolute path, not '{}'", path.display());
        (!path.is_absolute() || path.file_name().is_none()).then_some((at, text))
    };
    let socket = |(at, path): (&'static str, &PathBuf)| {
        let len = path.as_os_str().len();
        let text = format!("socket must be at most {LONGEST_SOCKET} octets long, not {len}");
        absolute(at, "socket", path).or((len > LONGEST_SOCKET).then_some((at, text)))
    };
    let of_control = control.socket.iter().map(|path| ("control.socket", path));
    let sockets = of_control.chain(dnstap.socket.iter().map(|path| ("dnstap.socket", path)));
    let without_socket = control.group.is_some() && control.socket.is_none();
    let without_socket = without_socket.then(|| {
        (
            "control.group",
            "group of [control] needs the key socket, such as \"/run/dns64d/control.sock\""
                .to_owned(),
        )
    });
    let bad_sample = !(1..=1_000_000).contains(&log.sample);
    let bad_sample = bad_sample
        .then(|| ("query-log.sample", format!("sample must be 1 to 1000000, not {}", log.sample)));
    let long_identity =
        dnstap.identity.as_ref().is_some_and(|identity| identity.len() > LONGEST_IDENTITY);
    let long_identity = long_identity.then(|| {
        ("dnstap.identity", format!("identity must be at most {LONGEST_IDENTITY} octets long"))
    });
    let to = log.file().map(|file| absolute("query-log.to", "to", file));
    let found = sockets.map(socket).chain(to).flatten();
    found.chain(without_socket).chain(bad_sample).chain(long_identity).next()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{LogTarget, Settings};

    const UPSTREAM: &str = "[[upstream]]\naddress = '192.0.2.1'\n";

    fn read(text: &str) -> Result<Settings, String> {
        Settings::from_text(&format!("{text}{UPSTREAM}"), Path::new("test.toml"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn all_of_it_is_off_unless_it_is_written() {
        let config = read("").unwrap().config;
        assert!(config.control.socket.is_none() && config.dnstap.socket.is_none());
        assert!(config.query_log.to.is_none() && config.query_log.file().is_none());
        let config = read("[query-log]\nto = 'stderr'\n").unwrap().config;
        assert_eq!(config.query_log.to, Some(LogTarget::Stderr));
        let settings = read(
            "[control]\nsocket = '/run/c.sock'\ngroup = 'adm'\n[query-log]\nto = '/var/log/q'\nformat = 'json'\nsample = 10\n\
             [dnstap]\nsocket = '/run/t.sock'\nidentity = 'ns1'\nupstreams = true\n",
        )
        .unwrap();
        assert_eq!(settings.config.query_log.file(), Some(Path::new("/var/log/q")));
        let again = Settings::from_text(&settings.to_toml(), Path::new("again.toml")).unwrap();
        assert_eq!(again.to_toml(), settings.to_toml());
    }

    #[test]
    fn invalid_values_are_rejected_with_their_line() {
        for (text, line, words) in [
            ("[control]\nsocket = 'control.sock'\n", 2, "an absolute path"),
            ("[control]\ngroup = 'adm'\n", 2, "needs the key socket"),
            ("[query-log]\nto = 'queries.log'\n", 2, "to must be an absolute path"),
            ("[query-log]\nto = 'stderr'\nsample = 0\n", 3, "1 to 1000000"),
            ("[dnstap]\nsocket = '/'\n", 2, "an absolute path"),
            ("[control]\nsocket = '/run/c'\n[dnstap]\nsocket = 't'\n", 4, "an absolute path"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(&format!("test.toml:{line}:")), "{text}: {error}");
            assert!(error.contains(words), "{text}: {error}");
        }
        let long = format!("[dnstap]\nsocket = '/{}'\n", "x".repeat(107));
        assert!(read(&long).expect_err("too long").contains("at most 107 octets"));
        let long = format!("[dnstap]\nidentity = '{}'\n", "x".repeat(256));
        assert!(read(&long).expect_err("too long").contains("at most 255 octets"));
    }
}
