//! A reference server that forwards queries to a test authoritative server, as used by these tests.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use conform::authority::{self, Authority, AuthorityConfig};
use conform::check::Check;
use conform::checks;
use conform::expected::Prefix;
use conform::message::{Name, name};
use conform::outcome::Report;
use conform::runner::{self, Settings};
use conform_reference::ReferenceConfig;
use conform_reference::rules::{Hooks, Rules};
use ipnet::Ipv6Net;

/// A free port of the loopback address.
pub(crate) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Range that servers are configured to exclude in addition to the default one.
pub(crate) const EXCLUDED: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0xbad, 0, 0, 0, 0, 0, 0), 32);

/// Returns the zone of the test authoritative server.
pub(crate) fn zone() -> Name {
    name("conform.example")
}

/// Starts a test authoritative server.
pub(crate) fn authority() -> Authority {
    let config = AuthorityConfig { listen: vec![ANY], zone: zone(), ns: Ipv4Addr::LOCALHOST };
    authority::start(&config).expect("there is a free port")
}

/// Parses prefixes: `3fff::/96 3fff:1::/64`.
pub(crate) fn prefixes(text: &str) -> Vec<Prefix> {
    text.split(' ').map(|prefix| prefix.parse().expect("they are literals")).collect()
}

/// Prefixes and validation of a server.
#[allow(dead_code, reason = "one of the tests starts its servers differently")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Prefixes, separated by spaces.
    pub(crate) prefixes: &'static str,
    /// True if the server validates.
    pub(crate) validates: bool,
}

#[allow(dead_code, reason = "one of the tests starts its servers differently")]
impl Server {
    /// Runs checks against a reference server with these rules and hooks. If `expects` is true, the runner gets the
    /// prefixes and does not need to discover them, because a mutant may prevent discovery.
    pub(crate) fn run(
        self,
        far: &Authority,
        expects: bool,
        only: &[&Check],
        rules: impl FnOnce(&mut Rules),
        hooks: Hooks,
    ) -> Report {
        let mut own = Rules { validates: self.validates, ..Rules::default() };
        own.excluded.push((EXCLUDED.network(), EXCLUDED.prefix_len()));
        rules(&mut own);
        let server = conform_reference::start(ReferenceConfig {
            listen: ANY,
            upstream: far.addresses()[0],
            zone: zone(),
            prefixes: prefixes(self.prefixes),
            rules: own,
            hooks,
        })
        .expect("there is a free port");
        let settings = Settings {
            zone: Some(zone()),
            expect: if expects { prefixes(self.prefixes) } else { Vec::new() },
            excluded: Some(EXCLUDED),
            only: only.iter().map(|check| check.id.to_owned()).collect(),
            validation: expects.then_some(self.validates),
            everything: true,
            ..Settings::new(server.address())
        };
        let log = far.log();
        runner::run(&settings, Some(&*log), &|_| {})
            .unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// Returns the check with this id.
#[allow(dead_code, reason = "only some of the tests use it")]
pub(crate) fn check(id: &str) -> Option<&'static Check> {
    checks::all().find(|check| check.id == id)
}
