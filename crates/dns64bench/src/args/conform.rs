//! Arguments of `conform`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use conform::expected::Prefix;
use conform::message::Name;
use ipnet::Ipv6Net;

use super::help::{AUTH, CHECKS, FILES, NAMES, SERVER};
use super::values::Server;

#[derive(Debug, Args)]
pub(crate) struct Conform {
    /// Server to check; the default port is 53
    #[arg(long, value_name = "ADDR[:PORT]", required_unless_present_any = ["list", "beside"], help_heading = SERVER)]
    pub(crate) server: Option<Server>,
    /// Name of the server in the results [default: its address]
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) name: Option<String>,
    /// DNS64 prefix of the server; may be given several times [default: discovered as specified by RFC 7050]
    #[arg(long, value_name = "PREFIX/LEN", help_heading = SERVER)]
    pub(crate) expect_prefix: Vec<Prefix>,
    /// IPv6 prefix that the server is configured to exclude, in addition to its default exclusions: the server must
    /// ignore AAAA records in this prefix (RFC 6147 §5.1.4)
    #[arg(long, value_name = "NETWORK", value_parser = excluded_range, help_heading = SERVER)]
    pub(crate) excludes: Option<Ipv6Net>,
    /// Whether the server validates DNSSEC with the trust anchors of `auth --conform`: true or false [default:
    /// detected]
    #[arg(long, value_name = "BOOL", help_heading = SERVER)]
    pub(crate) validates: Option<bool>,
    /// Declare that the server forwards queries for all names to `auth --conform`, including names outside --zone
    #[arg(long, requires = "zone", help_heading = SERVER)]
    pub(crate) forwards_all: bool,
    /// Zone that the server forwards or delegates to `auth --conform`; without this option, checks that need test names
    /// are skipped
    #[arg(long, value_name = "ZONE", help_heading = NAMES)]
    pub(crate) zone: Option<Name>,
    /// Status socket of the `auth --conform` process that serves --zone: a path on this host, or a path on a different
    /// host that is reached by ssh. Without this option, checks that need the log of upstream queries are skipped
    #[arg(long, value_name = "PATH|ssh:HOST:PATH", requires = "zone", help_heading = AUTH)]
    pub(crate) auth_status: Option<StatusSocketLocation>,
    /// ssh configuration file to use instead of the user's own file
    #[arg(long, value_name = "FILE", requires = "auth_status", help_heading = AUTH)]
    pub(crate) ssh_config: Option<PathBuf>,
    /// Run only the checks with identifiers that begin with one of these texts, such as rfc6147-5.1
    #[arg(long, value_name = "ID", num_args = 1.., value_delimiter = ',', help_heading = CHECKS)]
    pub(crate) only: Vec<String>,
    /// List the checks (all, or those selected by --only), one per line, without sending queries
    #[arg(long, help_heading = CHECKS)]
    pub(crate) list: bool,
    /// Number of checks that run in parallel
    #[arg(long, value_name = "N", default_value_t = conform::runner::PARALLEL, help_heading = CHECKS)]
    pub(crate) parallel: usize,
    /// Print the results of the checks as one JSON object
    #[arg(long, requires = "server", help_heading = FILES)]
    pub(crate) json: bool,
    /// Write the results of the checks to this file, as JUnit XML
    #[arg(long, value_name = "FILE", requires = "server", help_heading = FILES)]
    pub(crate) junit: Option<PathBuf>,
    /// Write a scoreboard to this file: one HTML page with the results of all checks
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) html: Option<PathBuf>,
    /// Add another server to the scoreboard: file with the output of `conform --json` for that server; may be given
    /// several times
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "html", help_heading = FILES)]
    pub(crate) beside: Vec<PathBuf>,
    /// Show no progress on standard error
    #[arg(long, short, help_heading = FILES)]
    pub(crate) quiet: bool,
}

/// Parses a prefix to exclude. Bits beyond the prefix length must be zero, and the prefix must not cover all addresses.
fn excluded_range(text: &str) -> Result<Ipv6Net, String> {
    let range: Option<Ipv6Net> = text.parse().ok();
    range
        .filter(|range| range.trunc() == *range && (1..=127).contains(&range.prefix_len()))
        .ok_or_else(|| {
            "a range is ADDRESS/LENGTH without bits set after its length, for example 3fff:bad::/32"
                .into()
        })
}

/// Location of AuthDNS's status socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusSocketLocation {
    /// Path of the socket, if AuthDNS runs on this host.
    Local(PathBuf),
    /// Socket on a different host, which is reached by ssh.
    OverSsh {
        /// Host name for ssh, optionally with a user name.
        host: String,
        /// Path of the socket on that host.
        path: String,
    },
}

impl FromStr for StatusSocketLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusSocketLocation, String> {
        let Some(far) = text.strip_prefix("ssh:") else {
            return Ok(StatusSocketLocation::Local(text.into()));
        };
        let place = far.split_once(":/").and_then(|(host, path)| Some((ssh_host(host)?, path)));
        match place {
            // ssh would interpret a host that begins with a hyphen as an option.
            Some((host, path)) if !host.starts_with('-') => {
                Ok(StatusSocketLocation::OverSsh { host, path: format!("/{path}") })
            }
            _ => Err("a socket on another host is ssh:HOST:/PATH".into()),
        }
    }
}

/// Removes the brackets around an IPv6 address in `USER@HOST` or `HOST`, because ssh expects the address without
/// brackets. Returns `None` if the host is empty.
fn ssh_host(text: &str) -> Option<String> {
    let (user, host) = text.split_at(text.rfind('@').map_or(0, |at| at + 1));
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    (!bare.is_empty()).then(|| format!("{user}{bare}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_to_exclude_has_no_bits_behind_its_length() {
        for (text, is_one) in [
            ("3fff:bad::/32", true),
            ("::ffff:0:0/96", true),
            ("3fff:bad::1/32", false),
            ("3fff:bad::", false),
            ("::/0", false),
            ("3fff::1/128", false),
            ("10.0.0.0/8", false),
        ] {
            assert_eq!(excluded_range(text).is_ok(), is_one, "{text}");
        }
    }

    #[test]
    fn a_status_socket_is_here_or_behind_ssh() {
        let there = |host: &str, path: &str| StatusSocketLocation::OverSsh {
            host: host.into(),
            path: path.into(),
        };
        for (text, wanted) in [
            ("far.socket", Some(StatusSocketLocation::Local("far.socket".into()))),
            ("ssh:me@auth:/run/far", Some(there("me@auth", "/run/far"))),
            ("ssh:[2001:db8::1]:/run/far", Some(there("2001:db8::1", "/run/far"))),
            ("ssh:me@[2001:db8::1]:/run/far", Some(there("me@2001:db8::1", "/run/far"))),
            ("ssh:2001:db8::1:/run/far", Some(there("2001:db8::1", "/run/far"))),
            ("ssh:auth", None),
            ("ssh::/run/far", None),
            ("ssh:[]:/run/far", None),
            ("ssh:me@:/run/far", None),
            ("ssh:[-oProxyCommand=x]:/run/far", None),
            ("ssh:-oProxyCommand=x:/run/far", None),
        ] {
            assert_eq!(text.parse().ok(), wanted, "{text}");
        }
    }
}
