//! Warnings about a valid configuration, with file and line.

use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use toml_faults::{line_at, line_of, strings};

use super::ddr::encrypted;
use super::error::RESOLV_CONF;
use super::keys::{DomainKeys, ForwardKeys};
use super::networks::NamedNetworks;
use super::policies::{NOT_GLOBAL, prefix_locations};
use super::settings::{Settings, covers_all_clients};
use crate::networks::{Network, Networks};
use crate::prefixes::LivePrefixes;
use crate::translation::policy::Mapping;

impl Settings {
    /// Returns the file and line of a key, such as `dns64d.toml:12` for `group.0.clients`.
    pub(crate) fn location(&self, path: &str) -> String {
        at(&self.source, line_of(self.text(), path))
    }

    /// Returns the warnings for the operator of a server with these settings.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.host_bits();
        let location = |path: &str| self.location(path);
        if self.config.listen.is_empty() {
            let text = "listen is empty: only sockets passed by systemd are served";
            warnings.push(format!("{}: {text}", location("listen")));
        }
        if let Some(reason) = self.no_upstream() {
            warnings.push(format!(
                "{reason}; queries that need one get SERVFAIL until {RESOLV_CONF} lists one"
            ));
        }
        warnings.extend(self.unusable_name_servers());
        if self.config.ddr.name.is_some() && encrypted(&self.config.listen).next().is_none() {
            let text = "no effect, because no listen address has a certificate";
            warnings.push(format!("{}: {text}", location("ddr.name")));
        }
        if let Some(net) = covers_all_clients(&self.clients).filter(|_| !self.is_local()) {
            let limits = self.config.limits;
            let mut text = format!(
                "{}: an open resolver: access.allow covers {net}, which can include forged addresses",
                location("access.allow")
            );
            if limits.client_rate == 0 {
                text += "; set limits.client-rate";
            }
            if limits.amplification_rate == 0 {
                text += "; limits.amplification-rate = 0 allows amplification attacks on others";
            }
            warnings.push(text);
        }
        self.warn_of_groups(&mut warnings);
        self.warn_of_domains(&mut warnings);
        self.warn_of_ranges(&mut warnings);
        warnings.extend(self.validated_forwards());
        warnings
    }

    /// Warns of domains with separate upstreams that are validated. If the domain does not exist in the public DNS, the
    /// signed zone above it proves that, and all answers are bogus. There is no warning for the root domain, or for a
    /// domain at or below a negative trust anchor.
    fn validated_forwards(&self) -> Vec<String> {
        let canonical = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
        let negative = &self.config.dnssec.negative_trust_anchors;
        let is_exempt = |domain: &str| {
            domain.is_empty()
                || negative.iter().any(|anchor| {
                    let above = domain.strip_suffix(&canonical(anchor.get_ref().domain()));
                    above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                })
        };
        let is_validated = |forward: &&ForwardKeys| {
            self.validator.is_some()
                && forward.validate
                && !forward.upstreams.is_empty()
                && !is_exempt(&canonical(forward.domain.get_ref()))
        };
        let warning = |forward: &ForwardKeys| {
            format!(
                "{}: {} is validated: set validate = false if it is a private domain, because the signed zone above it \
                 proves that it does not exist",
                at(&self.source, line_at(self.text(), forward.domain.span().start)),
                forward.domain.get_ref()
            )
        };
        self.config.forwards.iter().filter(is_validated).map(warning).collect()
    }

    /// Warns of networks in which address bits after the prefix length are set.
    fn host_bits(&self) -> Vec<String> {
        let warning = |(offset, text): &(usize, String)| {
            let network: IpNet = text.trim_start_matches('!').trim_start().parse().ok()?;
            let meant = network.trunc();
            (meant != network).then(|| {
                format!(
                    "{}: {network} is read as {meant}; write that, or {} for the single address",
                    at(&self.source, line_at(self.text(), *offset)),
                    network.addr()
                )
            })
        };
        strings(self.text()).iter().filter_map(warning).collect()
    }

    /// Warns of two errors in the configuration of a group of clients: IPv4 clients get synthesized answers, or all
    /// clients in a network of the group get REFUSED.
    fn warn_of_groups(&self, warnings: &mut Vec<String>) {
        for (number, (members, synthesizes)) in self.policies.groups().enumerate() {
            let location = self.location(&format!("group.{number}.clients"));
            let all = members.included();
            let ipv4 = all.iter().find(|net| matches!(net, IpNet::V4(_)));
            if let Some(net) = ipv4.filter(|_| synthesizes) {
                warnings.push(format!(
                    "{location}: clients of {net} have IPv4, but get synthesized answers; prefixes = [] disables that"
                ));
            }
            for net in all {
                if is_refused(net, members, &self.clients) {
                    warnings.push(format!(
                        "{location}: clients of {net} get REFUSED, because [access] allow does not include them"
                    ));
                }
            }
        }
    }

    /// Warns of each `[[domain]]` whose prefixes are never used, because all clients are in groups without prefixes.
    fn warn_of_domains(&self, warnings: &mut Vec<String>) {
        let groups = || self.policies.groups();
        let is_grouped = |net: &IpNet| {
            let covers = |members: &Networks<IpNet>| {
                members.included().iter().any(|other| other.contains(net))
            };
            groups().any(|(members, _)| covers(members))
        };
        let all_off = groups().next().is_some() && !groups().any(|(_, synthesizes)| synthesizes);
        if !all_off || !self.clients.included().iter().all(is_grouped) {
            return;
        }
        let has_prefixes =
            |keys: &DomainKeys| keys.prefixes.as_ref().is_some_and(|all| !all.is_empty());
        for (number, keys) in
            self.config.domains.iter().enumerate().filter(|(_, keys)| has_prefixes(keys))
        {
            warnings.push(format!(
                "{}: [[domain]] {}: its prefixes are never used, because all clients are in groups without prefixes; use [[group.domain]]",
                self.location(&format!("domain.{number}.prefixes")),
                keys.domain.get_ref()
            ));
        }
    }

    /// Warns of each IPv4 range in a key `ranges` that has no effect. Such a range contains no global address, although
    /// the prefix with this key must embed only global addresses.
    fn warn_of_ranges(&self, warnings: &mut Vec<String>) {
        let Ok(named) = NamedNetworks::new(&self.config.networks) else { return };
        for (path, keys) in prefix_locations(&self.config) {
            let mappings = keys.mappings(&[], &named, &LivePrefixes::default()).unwrap_or_default();
            for range in mappings.iter().flat_map(Mapping::not_carried) {
                warnings.push(format!(
                    "{}: no address of {range} is synthesized: {NOT_GLOBAL}",
                    self.location(&format!("{path}.ranges"))
                ));
            }
        }
    }
}

fn at(file: &Path, line: usize) -> String {
    format!("{}:{line}", file.display())
}

/// True if `members` contains addresses of `net`, and if all these addresses get REFUSED.
fn is_refused(net: IpNet, members: &Networks<IpNet>, allowed: &Networks<IpNet>) -> bool {
    // Membership in `members` and `allowed` changes only at the boundaries of networks, so it is enough to test the
    // addresses at these boundaries.
    let mut edges: Vec<IpAddr> = members.edges();
    edges.extend(allowed.edges());
    let mut among =
        edges.iter().filter(|edge| net.covers(edge) && members.contains(edge)).peekable();
    among.peek().is_some() && !among.any(|edge| allowed.contains(edge))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(text: &str) -> Vec<String> {
        let text = format!("{text}\n[[upstream]]\naddress = '192.0.2.1'\n");
        let settings = Settings::from_text(&text, Path::new("test.toml"));
        settings.unwrap_or_else(|error| panic!("{text}: {error}")).warnings()
    }

    #[test]
    fn item_42_loopback_addresses_are_no_open_resolver() {
        for (listen, is_open) in [
            ("'127.0.0.1:53', '[::1]:53'", false),
            ("'127.0.0.1:53', '192.0.2.2:53'", true),
            ("'[::]:53'", true),
            ("", true),
        ] {
            let access = "[access]\nallow = ['::/0']\nopen-resolver = true";
            let found = warnings(&format!("listen = [{listen}]\n{access}")).concat();
            assert_eq!(found.contains("an open resolver"), is_open, "{listen}: {found}");
        }
    }

    #[test]
    fn validated_private_domains_are_named_with_their_line() {
        for (validate, negative, of_forward, upstreams, warns) in [
            (true, "", "", "['own']", true),
            (true, "", "validate = false", "['own']", false),
            (true, "", "", "[]", false),
            (false, "", "", "['own']", false),
            (true, "'corp.example'", "", "['own']", false),
            (true, "{ domain = 'EXAMPLE.', until = 2090-01-01T00:00:00Z }", "", "['own']", false),
            (true, "'p.example', 'www.corp.example'", "", "['own']", true),
        ] {
            let text = format!(
                "[dnssec]\nvalidate = {validate}\nnegative-trust-anchors = [{negative}]\n\
                 [[upstream]]\nname = 'own'\naddress = '192.0.2.9'\n\
                 [[forward]]\ndomain = 'corp.example'\nupstreams = {upstreams}\n{of_forward}\n\
                 [[forward]]\ndomain = '.'\nupstreams = ['own']\n"
            );
            let found = warnings(&text).concat();
            assert_eq!(found.contains("test.toml:8: corp.example is validated"), warns, "{found}");
            assert!(!found.contains(": . is validated"), "{found}");
        }
    }

    #[test]
    fn groups_without_access_are_named_with_their_line() {
        for (allow, clients, refused) in [
            ("'10.0.0.0/8'", "'2001:db8:1::/48'", &["2001:db8:1::/48"][..]),
            ("'2001:db8::/32'", "'2001:db8:1::/48'", &[]),
            ("'2001:db8:1::/64'", "'2001:db8:1::/48'", &[]),
            ("'2001:db8:1::/48'", "'2001:db8:1::/48', '2001:db8:2::/48'", &["2001:db8:2::/48"]),
            ("'!2001:db8:1::/48', '2001:db8::/32'", "'2001:db8:1::/64'", &["2001:db8:1::/64"]),
            ("'!2001:db8:1::/65', '2001:db8::/32'", "'2001:db8:1::/64'", &[]),
            // The group excludes the part of its network that `allow` contains.
            ("'2001:db8:1::/64'", "'!2001:db8:1::/64', '2001:db8:1::/48'", &["2001:db8:1::/48"]),
            ("'10.0.0.0/8'", "'::/0', '0.0.0.0/0'", &["::/0"]),
            ("'lab'", "'lab'", &[]),
        ] {
            let text = format!(
                "[networks]\nlab = ['2001:db8:9::/48']\n[access]\nallow = [{allow}]\n[dns64]\nprefixes = []\n\
                 [[group]]\nclients = [{clients}]\n"
            );
            let expected: Vec<String> = refused
                .iter()
                .map(|net| {
                    format!("test.toml:8: clients of {net} get REFUSED, because [access] allow does not include them")
                })
                .collect();
            assert_eq!(warnings(&text), expected, "{allow} {clients}");
        }
    }

    #[test]
    fn networks_with_host_bits_are_named_in_every_list() {
        for (text, line, written, meant) in [
            (
                "[access]\nallow = [\n '10.0.0.0/8',\n '2001:db8:10::1/48']",
                4,
                "2001:db8:10::1/48",
                "2001:db8:10::/48",
            ),
            ("[networks]\nlab = ['!10.0.0.1/8', '0.0.0.0/0']", 2, "10.0.0.1/8", "10.0.0.0/8"),
            ("[dns64]\nexclude = ['2001:db8::1/32']", 2, "2001:db8::1/32", "2001:db8::/32"),
            (
                "[[domain]]\ndomain = 'a'\nexclude = ['2001:db8::1/32']",
                3,
                "2001:db8::1/32",
                "2001:db8::/32",
            ),
            (
                "[dns64]\nprefixes = [{ prefix = '2001:db8::/96',\n ranges = ['192.0.2.1/24'] }]",
                3,
                "192.0.2.1/24",
                "192.0.2.0/24",
            ),
            (
                "[[group]]\nclients = ['fd00::1/64']\ndns64.prefixes = []",
                2,
                "fd00::1/64",
                "fd00::/64",
            ),
        ] {
            let found = warnings(text);
            let expected =
                format!("test.toml:{line}: {written} is read as {meant}; write that, or ");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{text}: {found:?}");
        }
        assert_eq!(warnings("[access]\nallow = ['10.0.0.1', '10.0.0.0/8']"), [""; 0]);
    }

    #[test]
    fn ranges_without_a_carried_address_cause_warnings() {
        for (ranges, named) in [
            ("'192.0.2.0/24', '8.8.8.0/24'", &["192.0.2.0/24"][..]),
            ("'10.0.0.0/8', '8.0.0.0/6'", &["10.0.0.0/8"]),
            ("'8.0.0.0/6'", &[]),
            ("'0.0.0.0/0'", &[]),
            ("'!8.0.0.0/7', '!11.0.0.0/8', '8.0.0.0/6', '1.1.1.1'", &["8.0.0.0/6"]),
        ] {
            let text =
                format!("[dns64]\nprefixes = [{{ prefix = '64:ff9b::/96', ranges = [{ranges}] }}]");
            let found = warnings(&text);
            let is_named = |(warning, range): (&String, &&str)| {
                warning.starts_with(&format!("test.toml:2: no address of {range} is synthesized"))
            };
            assert!(
                found.len() == named.len() && found.iter().zip(named).all(is_named),
                "{ranges}: {found:?}"
            );
            let allowed = text.replace("] }", "], allow-non-global = true }");
            assert_eq!(warnings(&allowed), [""; 0], "{allowed}");
        }
        let text = "[[group]]\nclients = ['fd00::/64']\n[[group.domain]]\ndomain = 'a'\n\
                    prefixes = [{ prefix = '64:ff9b::/96', ranges = ['192.0.2.0/24', '8.8.8.8'] }]";
        let found = warnings(text);
        assert!(
            found.len() == 1 && found[0].starts_with("test.toml:5: no address of"),
            "{found:?}"
        );
    }
}
