//! Evaluation of the replies while `try` waits until the server resolves the test names. The functions do no I/O.
//!
//! ```text
//! AAAA reply ─┬─ NODATA ─► A reply ─┐
//!             └─────────────────────┴─► State ─► Next: begin, give up, query again
//! ```

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tester::measurer::expect::Prefix;
use wire::rcode::Rcode;

/// Prefix lengths of RFC 6052 §2.2. The longest length is tried first, because it is the least likely to match by
/// chance.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];

/// The reply to one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// No response in time.
    Silent,
    /// A network error, such as an ICMP error for a closed port.
    Unreachable(io::ErrorKind),
    /// A response with an RCODE other than NOERROR.
    Error(Rcode),
    /// A response with NOERROR and these addresses; an empty list means NODATA.
    Addresses(Vec<IpAddr>),
}

/// Replies to the queries for one name.
#[derive(Clone, Debug)]
pub(super) struct NameReplies {
    /// IPv4 address from which the test name is generated. It is also the address in the A record of that name.
    pub(super) name: Ipv4Addr,
    pub(super) aaaa: Reply,
    /// Reply to the query for A records. This query is sent only if the reply to the AAAA query was NODATA.
    pub(super) a: Option<Reply>,
    /// True if AuthDNS received a query after the first query for the name was sent, and before the last reply arrived.
    pub(super) auth_asked: bool,
}

/// The state of the server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Silent,
    Unreachable(io::ErrorKind),
    /// NXDOMAIN: the domain is not forwarded.
    NotForwarded,
    /// REFUSED: the server does not answer queries from this host.
    Refused,
    /// SERVFAIL, and AuthDNS received no query.
    NotReached,
    /// SERVFAIL, although AuthDNS received a query.
    Rejected,
    OtherError(Rcode),
    /// NODATA replies to the AAAA query and to the A query.
    NoAddress,
    /// NODATA reply to the AAAA query, and the correct A record: the server does not synthesize.
    NotSynthesized,
    /// An AAAA record with an address that consists of an unexpected prefix and the IPv4 address of the name.
    OtherPrefix(Prefix),
    /// An address that is different from the IPv4 address of the name and does not embed it.
    OtherAddress(IpAddr),
    Ready,
}

/// Next step while the command waits for the server to resolve the test names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Begin,
    GiveUp,
    AskAgain,
}

impl NameReplies {
    /// Derives the state of the server from the replies. Synthesized addresses must be within one of the prefixes
    /// `expected`.
    pub(super) fn state(&self, expected: &[Prefix]) -> State {
        match (&self.aaaa, &self.a) {
            (Reply::Addresses(none), Some(a)) if none.is_empty() => match a {
                Reply::Addresses(addresses) => self.without_aaaa(addresses),
                other => self.without_address(other),
            },
            (Reply::Addresses(addresses), _) => self.with_aaaa(addresses, expected),
            (other, _) => self.without_address(other),
        }
    }

    fn without_aaaa(&self, addresses: &[IpAddr]) -> State {
        match addresses.iter().find(|address| **address != self.name) {
            Some(&other) => State::OtherAddress(other),
            None if addresses.is_empty() => State::NoAddress,
            None => State::NotSynthesized,
        }
    }

    fn with_aaaa(&self, addresses: &[IpAddr], expected: &[Prefix]) -> State {
        let is_expected = |address: &IpAddr| {
            expected.iter().any(|prefix| IpAddr::V6(prefix.embed(self.name)) == *address)
        };
        match addresses.iter().find(|address| !is_expected(address)) {
            Some(&other) => {
                prefix_of(other, self.name).map_or(State::OtherAddress(other), State::OtherPrefix)
            }
            None if addresses.is_empty() => State::NoAddress,
            None => State::Ready,
        }
    }

    fn without_address(&self, reply: &Reply) -> State {
        match *reply {
            Reply::Silent => State::Silent,
            Reply::Unreachable(kind) => State::Unreachable(kind),
            Reply::Error(Rcode::NXDOMAIN) => State::NotForwarded,
            Reply::Error(Rcode::REFUSED) => State::Refused,
            Reply::Error(Rcode::SERVFAIL) if self.auth_asked => State::Rejected,
            Reply::Error(Rcode::SERVFAIL) => State::NotReached,
            Reply::Error(rcode) => State::OtherError(rcode),
            Reply::Addresses(_) => State::NoAddress,
        }
    }
}

impl State {
    /// Returns the next step. The command has already waited for the time `waited`, and may wait up to `limit`. A wrong
    /// prefix ends the wait early, because only the user can correct it with `--expect-prefix`.
    pub(super) fn next(self, waited: Duration, limit: Duration) -> Next {
        match self {
            State::Ready => Next::Begin,
            State::OtherPrefix(_) => Next::GiveUp,
            _ if waited >= limit => Next::GiveUp,
            _ => Next::AskAgain,
        }
    }

    /// Returns the advice that is printed if the wait for the server ends in this state.
    pub(super) fn advice(self) -> String {
        match self {
            State::Silent | State::Unreachable(_) => {
                "check that the server runs and listens at this address".into()
            }
            State::NotForwarded => {
                "add the printed lines to its configuration, then reload it".into()
            }
            State::Refused => "allow this client in its access list".into(),
            State::NotReached => {
                "check the address of AuthDNS in its configuration, and firewalls between the two"
                    .into()
            }
            State::Rejected => "exempt the domain from DNSSEC validation (printed lines)".into(),
            State::OtherError(_) | State::NoAddress | State::OtherAddress(_) => {
                "check that it forwards the domain to AuthDNS and to no other server".into()
            }
            State::NotSynthesized => {
                "enable DNS64 for this client and this domain (printed lines)".into()
            }
            State::OtherPrefix(prefix) => {
                format!("if that is the prefix of this server, add --expect-prefix {prefix}")
            }
            State::Ready => String::new(),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Silent => f.write_str("no reply"),
            State::Unreachable(kind) => write!(f, "no reply: {kind}"),
            State::NotForwarded => f.write_str("NXDOMAIN: the domain is not forwarded to AuthDNS"),
            State::Refused => f.write_str("REFUSED: this client is not served"),
            State::NotReached => f.write_str("SERVFAIL: no query reached AuthDNS"),
            State::Rejected => f.write_str("SERVFAIL: the answers of AuthDNS are not accepted"),
            State::OtherError(rcode) => write!(f, "{rcode:?}"),
            State::NoAddress => f.write_str("neither A nor AAAA records: not forwarded to AuthDNS"),
            State::NotSynthesized => f.write_str("A record, but no synthesized AAAA record"),
            State::OtherPrefix(prefix) => write!(f, "AAAA record with another prefix, {prefix}"),
            State::OtherAddress(address) => {
                write!(f, "unexpected address {address}: not forwarded to AuthDNS")
            }
            State::Ready => f.write_str("names resolve correctly"),
        }
    }
}

/// Returns the DNS64 prefix of `address` if this address embeds the IPv4 address of the test name, `name` (RFC 6052
/// §2.2).
fn prefix_of(address: IpAddr, name: Ipv4Addr) -> Option<Prefix> {
    let IpAddr::V6(address) = address else { return None };
    LENGTHS.into_iter().find_map(|len| {
        let network = Ipv6Addr::from(u128::from(address) & !(u128::MAX >> len));
        let prefix: Prefix = format!("{network}/{len}").parse().ok()?;
        (prefix.embed(name) == address).then_some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Ipv4Addr = Ipv4Addr::new(9, 1, 2, 3);

    fn addresses(texts: &[&str]) -> Reply {
        Reply::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    /// Returns the state of the server that follows from the replies to an AAAA query and an A query.
    fn state(aaaa: Reply, a: Option<Reply>, auth_asked: bool) -> State {
        NameReplies { name: NAME, aaaa, a, auth_asked }.state(&[prefix("64:ff9b::/96")])
    }

    #[test]
    fn replies_have_one_state_each() {
        let refused = io::ErrorKind::ConnectionRefused;
        let nodata = || addresses(&[]);
        let error = |rcode| Reply::Error(rcode);
        for (aaaa, a, wanted) in [
            (Reply::Silent, None, State::Silent),
            (Reply::Unreachable(refused), None, State::Unreachable(refused)),
            (error(Rcode::NXDOMAIN), None, State::NotForwarded),
            (error(Rcode::REFUSED), None, State::Refused),
            (error(Rcode::SERVFAIL), None, State::NotReached),
            (error(Rcode::FORMERR), None, State::OtherError(Rcode::FORMERR)),
            (nodata(), Some(nodata()), State::NoAddress),
            (nodata(), Some(error(Rcode::NXDOMAIN)), State::NotForwarded),
            (nodata(), Some(Reply::Silent), State::Silent),
            (nodata(), Some(addresses(&["9.1.2.3"])), State::NotSynthesized),
            (
                nodata(),
                Some(addresses(&["192.0.2.1"])),
                State::OtherAddress("192.0.2.1".parse().unwrap()),
            ),
            (addresses(&["64:ff9b::901:203"]), None, State::Ready),
            (
                addresses(&["2001:db8:64::901:203"]),
                None,
                State::OtherPrefix(prefix("2001:db8:64::/96")),
            ),
            (
                addresses(&["64:ff9b::901:203", "2001:db8:1:2:9:102:300:0"]),
                None,
                State::OtherPrefix(prefix("2001:db8:1:2::/64")),
            ),
            (
                addresses(&["2001:db8::1"]),
                None,
                State::OtherAddress("2001:db8::1".parse().unwrap()),
            ),
        ] {
            assert_eq!(state(aaaa.clone(), a.clone(), false), wanted, "{aaaa:?}, {a:?}");
        }
        assert_eq!(state(error(Rcode::SERVFAIL), None, true), State::Rejected);
    }

    #[test]
    fn prefixes_of_all_lengths_are_found() {
        for text in [
            "2001:db8::/32",
            "2001:db8:100::/40",
            "2001:db8:122::/48",
            "2001:db8:122:300::/56",
            "2001:db8:122:344::/64",
            "2001:db8:122:344::/96",
        ] {
            let address = IpAddr::V6(prefix(text).embed(NAME));
            assert_eq!(prefix_of(address, NAME), Some(prefix(text)));
        }
        assert_eq!(prefix_of("2001:db8::1".parse().unwrap(), NAME), None);
        assert_eq!(prefix_of("9.1.2.3".parse().unwrap(), NAME), None);
    }

    #[test]
    fn a_wait_ends_when_ready_hopeless_or_too_long() {
        let [early, limit] = [1, 9].map(Duration::from_secs);
        let other = State::OtherPrefix(prefix("2001:db8::/96"));
        for (state, waited, next) in [
            (State::Ready, early, Next::Begin),
            (State::Ready, limit, Next::Begin),
            (State::NotForwarded, early, Next::AskAgain),
            (State::NotForwarded, limit, Next::GiveUp),
            (State::Silent, early, Next::AskAgain),
            (State::NotSynthesized, early, Next::AskAgain),
            (other, early, Next::GiveUp),
        ] {
            assert_eq!(state.next(waited, limit), next, "{state}, {waited:?}");
        }
        assert_eq!(State::Silent.next(Duration::ZERO, Duration::ZERO), Next::GiveUp);
        assert!(other.advice().ends_with("--expect-prefix 2001:db8::/96"), "{}", other.advice());
    }
}
