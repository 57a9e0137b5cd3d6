//! Selection of the translation policy for a client and a queried name.
//!
//! ```text
//! in a group    [[group.domain]] ─► [[domain]] ─► [group.dns64] ─► [dns64]      others    [[domain]] ─► [dns64]
//! ```
//!
//! The value of a key comes from the first table that sets the key, in the order of this diagram.
//! If several entries of the same kind, `[[group.domain]]` or `[[domain]]`, match the name, the
//! longest domain applies. If a group has an empty list of prefixes, translation is off for its
//! clients, except in its `[[group.domain]]` entries. All possible policies are built when the
//! configuration is read. A query then needs two table lookups, or none if no domains are
//! configured.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use rustc_hash::FxHashMap;
use toml::Spanned;

use super::keys::{Config, DomainKeys, GroupKeys, PrefixKeys, TranslationKeys};
use super::networks::{BadList, NamedNetworks, NetworkList};
use crate::name::{DomainTable, LowerName, labels};
use crate::networks::{Lists, Networks};
use crate::prefixes::LivePrefixes;
use crate::translation::local::empty_zones;
use crate::translation::policy::{Hints, Mapping, Mode, Policy, PolicyByName, Select};
use crate::translation::prefix::Prefix;

/// Errors that occur while the policies are built, with their position in the file.
#[derive(Debug)]
pub(super) enum BadPolicy {
    /// A list of networks is invalid.
    List(BadList),
    /// Position of the error in the file, as an offset in octets, and a message that describes the error and the
    /// correct form.
    At(usize, String),
    /// Path of the invalid key, and a message that describes the error and the correct form.
    Path(String, String),
}

impl From<BadList> for BadPolicy {
    fn from(list: BadList) -> BadPolicy {
        BadPolicy::List(list)
    }
}

/// The policies of all clients for all names.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    /// For each domain of a `[[domain]]` entry, the index of the entry. These entries apply to all groups.
    domains: DomainTable<usize>,
    /// Clients of each group, in the order of the configuration file.
    members: Lists,
    groups: Vec<GroupPolicies>,
    /// Policies of clients without a group.
    others: GroupPolicies,
}

/// Policies of the clients of one group.
#[derive(Clone, Debug)]
struct GroupPolicies {
    /// Policy for names outside of all configured domains.
    policy: Policy,
    /// Policies for names in the domain of a `[[domain]]` entry, by index of the entry.
    by_domain: Vec<Policy>,
    /// Policies for names in the domain of a `[[group.domain]]` entry of this group, by domain.
    own: DomainTable<GroupDomain>,
}

/// Source of a policy: indices of the entries that apply to a client and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicySource {
    /// Index of the `[[group]]` entry for the client's group; `None` if the client belongs to no group.
    pub group: Option<usize>,
    /// Index of the `[[group.domain]]` entry that applies to the name; `None` if there is no such entry.
    pub group_domain: Option<usize>,
    /// Index of the `[[domain]]` entry that applies to the name; `None` if there is no such entry.
    pub domain: Option<usize>,
}

/// Policies for names in the domain of a `[[group.domain]]` entry.
#[derive(Clone, Debug)]
struct GroupDomain {
    /// Index of the entry among the `[[group.domain]]` entries of the group.
    index: usize,
    /// Policy for names in this domain that are outside of the domains in `below`. If this domain is in the domain of a
    /// `[[domain]]` entry, the policy includes the keys of that entry. If there are several such entries, the longest
    /// domain applies.
    policy: Policy,
    /// Policies for names in more specific domains. Each of these domains has a `[[domain]]` entry and lies below this
    /// domain. The key of the map is the index of the `[[domain]]` entry.
    below: FxHashMap<usize, Policy>,
}

impl Policies {
    /// Builds the policies of a configuration. `live` is the current state of the prefixes. Missing keys of `[dns64]`
    /// must have been set to their defaults.
    pub(super) fn new(
        config: &Config,
        named: &NamedNetworks<'_>,
        live: &LivePrefixes,
    ) -> Result<Policies, BadPolicy> {
        let known = &TableInputs { named, live };
        let base = TableKeys::of_translation(&config.dns64, known)?;
        check_domains(&config.domains)?;
        let common = Domains::new(&config.domains, known)?;
        check_forwards(config, &common)?;
        let mut groups = Vec::with_capacity(config.groups.len());
        for (number, group) in config.groups.iter().enumerate() {
            check_misplaced(number, group)?;
            let clients = named.look_up(&group.clients)?;
            groups.push((clients, Group::new(group, known)?));
        }
        let layers = std::iter::once(&base)
            .chain(groups.iter().flat_map(|(_, group)| group.layers()))
            .chain(common.layers());
        let zones = config.local.zones(config.cache.max_ttl);
        let mut zones =
            zones.map_err(|(key, reason)| BadPolicy::Path(format!("local.{key}"), reason))?;
        let resolvers = config.ddr.records(&config.listen);
        zones.resolvers = resolvers.map_err(|reason| BadPolicy::Path("ddr.name".into(), reason))?;
        let reverse = all_prefixes(layers);
        let forwards = config.forwards.iter().filter_map(|keys| keys.domain.get_ref().parse().ok());
        let empty_zones = empty_zones(&config.local_zones.apexes(), forwards, &reverse);
        let (zones, empty_zones) = (Arc::new(zones), Arc::new(empty_zones));
        let same = Policy { reverse, zones, empty_zones, ..Policy::default() };
        let together = |group: &Group| group.policies(&base, &common, &same);
        Ok(Policies {
            groups: groups.iter().map(|(_, group)| together(group)).collect(),
            members: Lists::new(groups.iter().map(|(clients, _)| clients.clone()).collect()),
            others: together(&Group::default()),
            domains: common.indices,
        })
    }

    /// Returns the policy for a client and a name (wire format, lower case).
    #[inline]
    pub(super) fn of(&self, client: IpAddr, name: &[u8]) -> &Policy {
        self.find(client, name).1
    }

    /// Returns the source of the policy for a client and a name (wire format, lower case).
    pub(super) fn whose(&self, client: IpAddr, name: &[u8]) -> PolicySource {
        self.find(client, name).0
    }

    #[inline]
    fn find(&self, client: IpAddr, name: &[u8]) -> (PolicySource, &Policy) {
        let index = self.members.index(client);
        let group = index.and_then(|index| self.groups.get(index)).unwrap_or(&self.others);
        let domain = self.domains.get(name).copied();
        let own = group.own.get(name);
        let policy = match own {
            Some(own) => domain.and_then(|domain| own.below.get(&domain)).unwrap_or(&own.policy),
            None => domain.and_then(|at| group.by_domain.get(at)).unwrap_or(&group.policy),
        };
        (PolicySource { group: index, group_domain: own.map(|own| own.index), domain }, policy)
    }

    /// Returns the clients of each group, with a flag. The flag is true if the clients get synthesized answers for
    /// names outside of all configured domains.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&Networks<IpNet>, bool)> {
        let synthesizes = self.groups.iter().map(|group| group.policy.synthesizes());
        self.members.all().iter().zip(synthesizes)
    }

    /// Returns all policies. The first policy applies to clients without a group, for names outside of all configured
    /// domains.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Policy> {
        std::iter::once(&self.others).chain(&self.groups).flat_map(|group| {
            let own = group
                .own
                .values()
                .flat_map(|own| std::iter::once(&own.policy).chain(own.below.values()));
            std::iter::once(&group.policy).chain(&group.by_domain).chain(own)
        })
    }
}

impl PolicyByName for Policies {
    fn policy_by_name(&self, client: IpAddr, name: &[u8]) -> &Policy {
        self.of(client, name)
    }
}

/// Inputs for reading the tables of the configuration: named lists of networks, and the current state of the prefixes.
struct TableInputs<'a> {
    named: &'a NamedNetworks<'a>,
    live: &'a LivePrefixes,
}

/// Prefixes in one table of the configuration, including the discovered prefixes that are currently known.
#[derive(Clone, Debug, Default)]
struct Prefixes {
    mappings: Vec<Mapping>,
    /// True if the table contains the entry `discover`, but no discovered prefix is known.
    awaits: bool,
}

impl Prefixes {
    /// Empty list of prefixes, which turns translation off.
    const NONE: &Prefixes = &Prefixes { mappings: Vec::new(), awaits: false };

    fn new(written: &[PrefixKeys], known: &TableInputs<'_>) -> Result<Prefixes, BadList> {
        let mut mappings = Vec::with_capacity(written.len());
        for keys in written {
            mappings.extend(keys.mappings(written, known.named, known.live)?);
        }
        let is_discovered = written.iter().any(PrefixKeys::is_discovered);
        Ok(Prefixes { mappings, awaits: is_discovered && known.live.announced.is_empty() })
    }

    fn is_off(&self) -> bool {
        self.mappings.is_empty() && !self.awaits
    }
}

/// Keys for translation in one table of the configuration. `None` means that the key is missing,
/// and that the value in the next table applies.
#[derive(Clone, Debug, Default)]
struct TableKeys {
    prefixes: Option<Prefixes>,
    select: Option<Select>,
    exclude: Option<Networks<Ipv6Net>>,
    mode: Option<Mode>,
    /// Key `off` of a domain. True disables translation. False enables translation even if a
    /// different table disables it.
    off: Option<bool>,
    ignore_aaaa: Option<bool>,
    fallback_native: Option<bool>,
    break_dnssec: Option<bool>,
    recursive_only: Option<bool>,
    parallel: Option<bool>,
    filter_a: Option<bool>,
    hints: Option<Hints>,
}

impl TableKeys {
    /// Reads the keys that all tables have in common: `prefixes` and `exclude`.
    fn of_lists(
        prefixes: Option<&[PrefixKeys]>,
        exclude: Option<&NetworkList<Ipv6Net>>,
        known: &TableInputs<'_>,
    ) -> Result<TableKeys, BadPolicy> {
        Ok(TableKeys {
            prefixes: prefixes.map(|all| Prefixes::new(all, known)).transpose()?,
            exclude: exclude.map(|list| known.named.look_up(list)).transpose()?,
            ..TableKeys::default()
        })
    }

    fn of_translation(
        keys: &TranslationKeys,
        known: &TableInputs<'_>,
    ) -> Result<TableKeys, BadPolicy> {
        Ok(TableKeys {
            select: keys.select,
            mode: keys.mode,
            break_dnssec: keys.break_dnssec,
            recursive_only: keys.recursive_only,
            parallel: keys.parallel,
            filter_a: keys.filter_a,
            hints: keys.https_hints,
            ..TableKeys::of_lists(keys.prefixes.as_deref(), keys.exclude.as_ref(), known)?
        })
    }

    fn of_domain(keys: &DomainKeys, known: &TableInputs<'_>) -> Result<TableKeys, BadPolicy> {
        let domain = keys.domain.get_ref();
        if keys.off.is_some() && keys.prefixes.is_some() {
            return Err(at(&keys.domain, format!("{domain}: write only one of off and prefixes")));
        }
        Ok(TableKeys {
            mode: keys.mode,
            off: keys.off,
            ignore_aaaa: keys.ignore_aaaa,
            fallback_native: keys.fallback_native,
            ..TableKeys::of_lists(keys.prefixes.as_deref(), keys.exclude.as_ref(), known)?
        })
    }
}

fn at<T>(value: &Spanned<T>, reason: String) -> BadPolicy {
    BadPolicy::At(value.span().start, reason)
}

/// Reads the name of a domain.
///
/// # Errors
/// Returns an error if `text` is not a domain name, or has a wildcard label. The error message shows the correct form.
pub(super) fn domain_name(text: &str) -> Result<LowerName, String> {
    let name: LowerName = text.parse().map_err(|error| format!("domain: {error}"))?;
    if !labels(name.wire()).any(|label| label == b"*") {
        return Ok(name);
    }
    let without: Vec<&str> = text.split('.').filter(|label| *label != "*").collect();
    Err(format!(
        "domain: \"{text}\" would match only names below a literal \"*\"; a domain covers all names at and below it: write \"{}\"",
        without.join(".")
    ))
}

/// The `[[domain]]` entries, or the `[[group.domain]]` entries of one group.
#[derive(Default)]
struct Domains {
    all: Vec<(LowerName, TableKeys)>,
    /// For each domain, the index of its entry in `all`.
    indices: DomainTable<usize>,
}

impl Domains {
    fn new(written: &[DomainKeys], known: &TableInputs<'_>) -> Result<Domains, BadPolicy> {
        let mut domains = Domains::default();
        for keys in written {
            let domain = domain_name(keys.domain.get_ref());
            let domain = domain.map_err(|reason| at(&keys.domain, reason))?;
            if domains.indices.has(&domain) {
                let reason = format!("the domain {} is listed twice", keys.domain.get_ref());
                return Err(at(&keys.domain, reason));
            }
            domains.indices.insert(&domain, domains.all.len());
            domains.all.push((domain, TableKeys::of_domain(keys, known)?));
        }
        Ok(domains)
    }

    fn layers(&self) -> impl Iterator<Item = &TableKeys> {
        self.all.iter().map(|(_, layer)| layer)
    }

    /// Returns the keys of the entry with a domain equal to `domain`.
    fn exactly(&self, domain: &LowerName) -> Option<&TableKeys> {
        self.indices.has(domain).then(|| self.covering(domain)).flatten()
    }

    /// Returns the keys of the entry with the longest domain that contains `domain`.
    fn covering(&self, domain: &LowerName) -> Option<&TableKeys> {
        self.indices
            .get(domain.wire())
            .and_then(|&index| self.all.get(index))
            .map(|(_, layer)| layer)
    }
}

/// Returns an error if a `[[domain]]` entry contains `off = false`. This value is useful only in a `[[group.domain]]`
/// entry, where it overrides a `[[domain]]` entry.
fn check_domains(domains: &[DomainKeys]) -> Result<(), BadPolicy> {
    match domains.iter().find(|keys| keys.off == Some(false)) {
        Some(keys) => Err(at(
            &keys.domain,
            format!(
                "{}: off = false is allowed only in [[group.domain]]; remove it here, or write prefixes",
                keys.domain.get_ref()
            ),
        )),
        None => Ok(()),
    }
}

/// Returns an error if a `[[forward]]` entry and a `[[domain]]` entry for the same domain both set the key `mode`.
fn check_forwards(config: &Config, domains: &Domains) -> Result<(), BadPolicy> {
    for forward in config.forwards.iter().filter(|forward| forward.mode.is_some()) {
        let written = forward.domain.get_ref();
        // A different check reports names that are not domains.
        let Ok(domain) = written.parse::<LowerName>() else { continue };
        if domains.exactly(&domain).is_some_and(|layer| layer.mode.is_some()) {
            let reason = format!(
                "the [[domain]] for {written} also has a mode; keep only that one, which takes precedence over a [[forward]]"
            );
            return Err(at(&forward.domain, reason));
        }
    }
    Ok(())
}

/// Part of an error message: the well-known prefix must embed only global IPv4 addresses.
pub(super) const NOT_GLOBAL: &str =
    "64:ff9b::/96 is for global IPv4 addresses (RFC 6052 §3.1); write allow-non-global = true";

/// Checks that each prefix embeds at least one IPv4 address.
pub(super) fn check_ranges(config: &Config, named: &NamedNetworks<'_>) -> Result<(), BadPolicy> {
    for (path, keys) in prefix_locations(config) {
        for mapping in keys.mappings(&[], named, &LivePrefixes::default())? {
            if mapping.carries_something() {
                continue;
            }
            let reason = match mapping.not_carried().is_empty() {
                true => "ranges: it contains no IPv4 address".to_owned(),
                false => format!("ranges: none of its addresses is synthesized: {NOT_GLOBAL}"),
            };
            return Err(BadPolicy::Path(format!("{path}.ranges"), reason));
        }
    }
    Ok(())
}

/// Returns all prefixes with their paths in the file, such as `group.0.dns64.prefixes.1`.
pub(super) fn prefix_locations(config: &Config) -> Vec<(String, &PrefixKeys)> {
    let mut lists = vec![("dns64.prefixes".to_owned(), &config.dns64.prefixes)];
    let of_domains = |path: &str, domains: &[DomainKeys]| -> Vec<String> {
        (0..domains.len()).map(|number| format!("{path}.{number}.prefixes")).collect()
    };
    let domains = of_domains("domain", &config.domains).into_iter();
    lists.extend(domains.zip(config.domains.iter().map(|keys| &keys.prefixes)));
    for (number, group) in config.groups.iter().enumerate() {
        lists.push((format!("group.{number}.dns64.prefixes"), &group.dns64.prefixes));
        let own = of_domains(&format!("group.{number}.domain"), &group.domains).into_iter();
        lists.extend(own.zip(group.domains.iter().map(|keys| &keys.prefixes)));
    }
    let mut locations = Vec::new();
    for (path, list) in lists {
        for (number, keys) in list.iter().flatten().enumerate() {
            locations.push((format!("{path}.{number}"), keys));
        }
    }
    locations
}

/// Returns an error if a `[group.dns64]` table contains a key that belongs directly in the `[[group]]` entry.
fn check_misplaced(number: usize, keys: &GroupKeys) -> Result<(), BadPolicy> {
    let misplaced = [
        ("filter-a", keys.dns64.filter_a.is_some()),
        ("https-hints", keys.dns64.https_hints.is_some()),
    ];
    let Some((key, _)) = misplaced.into_iter().find(|(_, is_there)| *is_there) else {
        return Ok(());
    };
    let reason = format!("in a group, {key} is a key of [[group]] itself: write it below clients");
    Err(BadPolicy::Path(format!("group.{number}.dns64.{key}"), reason))
}

/// Keys of a `[[group]]` entry. The default value has no keys, and is used for clients without a group.
#[derive(Default)]
struct Group {
    layer: TableKeys,
    own: Domains,
}

impl Group {
    fn new(keys: &GroupKeys, known: &TableInputs<'_>) -> Result<Group, BadPolicy> {
        let layer = TableKeys::of_translation(&keys.dns64, known)?;
        Ok(Group {
            layer: TableKeys { filter_a: keys.filter_a, hints: keys.https_hints, ..layer },
            own: Domains::new(&keys.domains, known)?,
        })
    }

    fn layers(&self) -> impl Iterator<Item = &TableKeys> {
        std::iter::once(&self.layer).chain(self.own.layers())
    }

    /// Builds the policies for the clients of this group. `same` contains the values that all
    /// policies have in common.
    fn policies(&self, base: &TableKeys, common: &Domains, same: &Policy) -> GroupPolicies {
        let policy = |own: Option<&TableKeys>, common: Option<&TableKeys>| {
            TableStack { own, common, group: &self.layer, base }.policy(same)
        };
        let mut own = DomainTable::default();
        for (at, (domain, layer)) in self.own.all.iter().enumerate() {
            let below = common.all.iter().enumerate().filter(|(_, (other, _))| {
                other.wire().len() > domain.wire().len() && other.ends_with(domain.wire())
            });
            own.insert(
                domain,
                GroupDomain {
                    index: at,
                    policy: policy(Some(layer), common.covering(domain)),
                    below: below
                        .map(|(index, (_, other))| (index, policy(Some(layer), Some(other))))
                        .collect(),
                },
            );
        }
        GroupPolicies {
            policy: policy(None, None),
            by_domain: common.layers().map(|layer| policy(None, Some(layer))).collect(),
            own,
        }
    }
}

/// Configuration tables that determine one policy, in descending order of precedence.
struct TableStack<'a> {
    own: Option<&'a TableKeys>,
    common: Option<&'a TableKeys>,
    group: &'a TableKeys,
    base: &'a TableKeys,
}

impl TableStack<'_> {
    /// Builds the policy from these tables. For a key that no table sets, `default` supplies the value.
    fn policy(&self, default: &Policy) -> Policy {
        let domains = || self.own.into_iter().chain(self.common);
        let all = || domains().chain([self.group, self.base]);
        let flag = |of: fn(&TableKeys) -> Option<bool>, default: bool| {
            all().find_map(of).unwrap_or(default)
        };
        let prefixes = self.prefixes();
        Policy {
            mappings: prefixes.mappings.clone(),
            awaits_prefix: prefixes.awaits,
            select: all().find_map(|layer| layer.select).unwrap_or(default.select),
            reverse: Arc::clone(&default.reverse),
            zones: Arc::clone(&default.zones),
            empty_zones: Arc::clone(&default.empty_zones),
            exclude: all()
                .find_map(|layer| layer.exclude.as_ref())
                .unwrap_or(&default.exclude)
                .clone(),
            ignore_aaaa: flag(|layer| layer.ignore_aaaa, default.ignore_aaaa),
            fallback_native: flag(|layer| layer.fallback_native, default.fallback_native),
            mode: all().find_map(|layer| layer.mode).unwrap_or(default.mode),
            mode_of_domain: domains().any(|layer| layer.mode.is_some()),
            break_dnssec: flag(|layer| layer.break_dnssec, default.break_dnssec),
            recursive_only: flag(|layer| layer.recursive_only, default.recursive_only),
            parallel: flag(|layer| layer.parallel, default.parallel),
            filter_a: flag(|layer| layer.filter_a, default.filter_a),
            hints: all().find_map(|layer| layer.hints).unwrap_or(default.hints),
        }
    }
}

impl<'a> TableStack<'a> {
    /// Returns the prefixes, or an empty list if translation is off. If a group has an empty list of prefixes,
    /// translation is off for its clients even if a `[[domain]]` entry has prefixes. Only a `[[group.domain]]` entry
    /// can turn translation on for these clients.
    fn prefixes(&self) -> &'a Prefixes {
        let written = |layer: &'a TableKeys| match layer.off {
            Some(true) => Some(Prefixes::NONE),
            _ => layer.prefixes.as_ref(),
        };
        let of_base = || written(self.base).unwrap_or(Prefixes::NONE);
        let outside = || written(self.group).unwrap_or_else(of_base);
        let own = self.own.and_then(written);
        let is_on = self.own.is_some_and(|own| own.off == Some(false));
        match own {
            Some(own) => own,
            None if is_on && outside().is_off() => of_base(),
            None if is_on || outside_is_off(self.group) => outside(),
            None => self.common.and_then(written).unwrap_or_else(outside),
        }
    }
}

/// True if a group has an empty list of prefixes.
fn outside_is_off(group: &TableKeys) -> bool {
    group.prefixes.as_ref().is_some_and(Prefixes::is_off)
}

/// Returns the prefixes of all tables of the configuration. If there is at least one prefix, the well-known prefix is
/// added. PTR queries for addresses in these prefixes are answered locally for every client.
fn all_prefixes<'a>(layers: impl Iterator<Item = &'a TableKeys>) -> Arc<[Mapping]> {
    let mut all: Vec<Mapping> =
        layers.flat_map(|layer| &layer.prefixes).flat_map(|all| all.mappings.clone()).collect();
    if !all.is_empty() && all.iter().all(|mapping| *mapping.prefix() != Prefix::WELL_KNOWN) {
        all.push(Mapping::well_known());
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use units::Nanos;

    use crate::config::Settings;
    use crate::name::LowerName;
    use crate::prefixes::LivePrefixes;
    use crate::translation::policy::Mode;
    use crate::translation::prefix::Prefix;

    const UPSTREAM: &str = "[[upstream]]\naddress = '192.0.2.1'\n";

    fn read(text: &str) -> Settings {
        let text = format!("{text}{UPSTREAM}");
        Settings::from_text(&text, Path::new("test.toml")).unwrap_or_else(|e| panic!("{text}\n{e}"))
    }

    fn refused(text: &str) -> String {
        let text = format!("{text}{UPSTREAM}");
        Settings::from_text(&text, Path::new("test.toml")).expect_err(&text).to_string()
    }

    /// Returns the effective values for a client and a name: prefixes, ignore-aaaa, fallback-native, mode and filter-a.
    fn counts(settings: &Settings, client: &str, name: &str) -> String {
        let name: LowerName = name.parse().unwrap();
        let rules = settings.rules(client.parse().unwrap(), &name, Nanos(0));
        let prefixes = rules.policy.mappings.iter().map(|m| m.prefix().network().to_string());
        let mut words: Vec<String> = prefixes.collect();
        for (is_set, word) in [
            (rules.policy.ignore_aaaa, "ignore"),
            (rules.policy.fallback_native, "fallback"),
            (rules.mode == Mode::NodataOnly, "nodata-only"),
            (rules.mode == Mode::Timeout, "timeout"),
            (rules.policy.filter_a, "filter-a"),
        ] {
            words.extend(is_set.then(|| word.to_owned()));
        }
        words.join(" ")
    }

    #[test]
    fn precedence_of_the_four_tables() {
        let settings = read(
            "[dns64]\nprefixes = [{ prefix = '2001:db8:1::/96' }]\nmode = 'nodata-only'\n\
             [[domain]]\ndomain = 'corp.example'\nprefixes = [{ prefix = '2001:db8:2::/96' }]\n\
             [[domain]]\ndomain = 'old.corp.example'\noff = true\n\
             [[domain]]\ndomain = 'deep.own.example'\nmode = 'strict'\n\
             [[group]]\nclients = ['10.1.0.0/16']\nfilter-a = true\n\
             dns64 = { prefixes = [{ prefix = '2001:db8:3::/96' }] }\n\
             [[group.domain]]\ndomain = 'own.example'\nignore-aaaa = true\nfallback-native = true\nmode = 'timeout'\n\
             [[group.domain]]\ndomain = 'corp.example'\nmode = 'strict'\n\
             [[group]]\nclients = ['10.2.0.0/16']\ndns64.prefixes = []\n\
             [[group.domain]]\ndomain = 'own.example'\nprefixes = [{ prefix = '2001:db8:4::/96' }]\n\
             [[group.domain]]\ndomain = 'on.example'\noff = false\n",
        );
        for (client, name, expected) in [
            // Clients without a group.
            ("10.3.0.1", "example", "2001:db8:1:: nodata-only"),
            ("10.3.0.1", "www.corp.example", "2001:db8:2:: nodata-only"),
            ("10.3.0.1", "old.corp.example", "nodata-only"),
            ("10.3.0.1", "a.old.corp.example", "nodata-only"),
            ("10.3.0.1", "own.example", "2001:db8:1:: nodata-only"),
            ("10.3.0.1", "deep.own.example", "2001:db8:1::"),
            // Clients of the first group.
            ("10.1.0.1", "example", "2001:db8:3:: nodata-only filter-a"),
            ("10.1.0.1", "corp.example", "2001:db8:2:: filter-a"),
            ("10.1.0.1", "old.corp.example", "filter-a"),
            ("10.1.0.1", "own.example", "2001:db8:3:: ignore fallback timeout filter-a"),
            ("10.1.0.1", "deep.own.example", "2001:db8:3:: ignore fallback timeout filter-a"),
            // Clients of the group without prefixes.
            ("10.2.0.1", "example", "nodata-only"),
            ("10.2.0.1", "corp.example", "nodata-only"),
            ("10.2.0.1", "own.example", "2001:db8:4:: nodata-only"),
            ("10.2.0.1", "deep.own.example", "2001:db8:4::"),
            ("10.2.0.1", "on.example", "2001:db8:1:: nodata-only"),
        ] {
            assert_eq!(counts(&settings, client, name), expected, "{client} {name}");
        }
        let all: Vec<String> = settings.prefixes().map(|p| p.network().to_string()).collect();
        for network in ["2001:db8:1::", "2001:db8:2::", "2001:db8:3::", "2001:db8:4::"] {
            assert!(all.iter().any(|prefix| prefix == network), "{network} of {all:?}");
        }
    }

    #[test]
    fn off_false_in_a_group_domain_overrides_domain() {
        let settings = read(
            "[[domain]]\ndomain = 'corp.example'\noff = true\n\
             [[group]]\nclients = ['10.1.0.0/16']\n\
             [[group.domain]]\ndomain = 'www.corp.example'\noff = false\n",
        );
        assert_eq!(counts(&settings, "10.1.0.1", "corp.example"), "");
        assert_eq!(counts(&settings, "10.1.0.1", "www.corp.example"), "64:ff9b::");
        assert_eq!(counts(&settings, "10.3.0.1", "www.corp.example"), "");
    }

    #[test]
    fn an_announcement_does_not_undo_draining() {
        let settings = read(
            "[dns64]\nprefixes = [{ prefix = '2001:db8:1::/96', draining = true }, { prefix = '2001:db8::/32', suffix = '::1', draining = true }, \
             { prefix = 'discover' }, { prefix = '2001:db8:2::/96' }]\n\
             [[domain]]\ndomain = 'own.example'\nprefixes = [{ prefix = 'discover', draining = true }, { prefix = '2001:db8:1::/96' }]\n\
             [[domain]]\ndomain = 'other.example'\nprefixes = [{ prefix = 'discover' }]\n",
        );
        let prefixes = ["2001:db8:1::/96", "2001:db8::/32", "2001:db8:3::/96"];
        let announced = prefixes.map(|text| (text.parse::<Prefix>().unwrap(), Nanos::SECOND));
        let live = LivePrefixes { announced: announced.to_vec(), ..LivePrefixes::default() };
        let settings = settings.with_prefixes(&live);
        let client = "10.1.0.1".parse().unwrap();
        let given = |name: &str| {
            let policy = settings.policy(client, &name.parse().unwrap());
            let given = policy.embed("8.8.8.8".parse().unwrap(), client);
            given.map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(given("example"), ["2001:db8:3::808:808", "2001:db8:2::808:808"]);
        // `draining` in a different list has no effect. `draining` in the entry `discover` has no
        // effect on a prefix with a separate entry.
        assert_eq!(given("own.example"), ["2001:db8:1::808:808"]);
        let all = ["2001:db8:1::808:808", "2001:db8:808:808::", "2001:db8:3::808:808"];
        assert_eq!(given("other.example"), all);
    }

    #[test]
    fn the_mode_of_a_domain_overrides_that_of_a_forward() {
        let settings = read(
            "[[domain]]\ndomain = 'corp.example'\nmode = 'timeout'\n\
             [[domain]]\ndomain = 'off.example'\nignore-aaaa = true\n\
             [[forward]]\ndomain = 'example'\nmode = 'nodata-only'\n",
        );
        assert_eq!(counts(&settings, "10.1.0.1", "www.corp.example"), "64:ff9b:: timeout");
        assert_eq!(counts(&settings, "10.1.0.1", "off.example"), "64:ff9b:: ignore nodata-only");
        assert_eq!(counts(&settings, "10.1.0.1", "test"), "64:ff9b::");
        let error = refused(
            "[[domain]]\ndomain = 'corp.example'\nmode = 'timeout'\n\
             [[forward]]\ndomain = 'Corp.Example.'\nmode = 'nodata-only'\n",
        );
        assert!(error.starts_with("test.toml:5:") && error.contains("also has a mode"), "{error}");
    }

    #[test]
    fn lists_have_exceptions_and_names() {
        let settings = read(
            "[networks]\noffice = ['10.1.0.0/16', '2001:db8::/32']\nlab = ['10.1.9.0/24']\nold = ['192.0.2.0/24', '!192.0.2.9', '0.0.0.0/0']\n\
             [access]\nallow = ['!lab', 'office', '127.0.0.1']\n\
             [dns64]\nprefixes = [{ prefix = '2001:db8:64::/96', ranges = ['!10.0.0.0/8', 'old'] }]\nexclude = ['!2001:db8:7::1', '2001:db8::/32']\n\
             [[group]]\nclients = ['!10.1.2.0/24', 'office']\nfilter-a = true\n",
        );
        for (client, is_allowed, is_member) in [
            ("10.1.1.1", true, true),
            ("10.1.2.1", true, false),
            ("10.1.9.1", false, true),
            ("2001:db8::1", true, true),
            ("127.0.0.1", true, false),
            ("10.2.0.1", false, false),
        ] {
            let client = client.parse().unwrap();
            assert_eq!(settings.allows(client), is_allowed, "{client}");
            let policy = settings.policy(client, &"test".parse().unwrap());
            assert_eq!(policy.filter_a, is_member, "{client}");
            for (address, is_carried) in
                [("10.0.0.1", false), ("192.0.2.9", true), ("8.8.8.8", true)]
            {
                assert_eq!(
                    policy.embed(address.parse().unwrap(), client).count() == 1,
                    is_carried,
                    "{address}"
                );
            }
            assert!(policy.excludes("2001:db8::1".parse().unwrap()));
            assert!(!policy.excludes("2001:db8:7::1".parse().unwrap()));
        }
        let again = Settings::from_text(&settings.to_toml(), Path::new("again.toml")).unwrap();
        assert_eq!(again.to_toml(), settings.to_toml());
    }

    #[test]
    fn useless_policies_cause_warnings() {
        let warnings = |text: &str| {
            let mut found = read(text).warnings();
            // Groups without access cause a separate warning.
            found.retain(|warning| !warning.contains("get REFUSED"));
            found
        };
        let group = "[[group]]\nclients = ['2001:db8::/32']\n[[group]]\nclients = ['2001:db9::/32', '10.0.0.0/8']\n";
        let found = warnings(group);
        assert!(
            found.len() == 1 && found[0].starts_with("test.toml:4: clients of 10.0.0.0/8"),
            "{found:?}"
        );
        assert!(
            warnings(&group.replace(
                "[[group]]\nclients = ['2001:db9",
                "[[group]]\ndns64.prefixes = []\nclients = ['2001:db9"
            ))
            .is_empty()
        );
        let all = "[access]\nallow = ['10.1.0.0/16', '10.2.0.0/16']\n\
                   [[domain]]\ndomain = 'corp.example'\nprefixes = [{ prefix = '2001:db8:2::/96' }]\n\
                   [[group]]\nclients = ['10.0.0.0/8']\ndns64.prefixes = []\n";
        let found = warnings(all);
        assert!(
            found.len() == 1
                && found[0].starts_with(
                    "test.toml:5: [[domain]] corp.example: its prefixes are never used"
                ),
            "{found:?}"
        );
        assert!(
            warnings(&all.replace("'10.2.0.0/16'", "'192.0.2.0/24'")).is_empty(),
            "others use them"
        );
    }

    #[test]
    fn invalid_policies_are_rejected_with_their_line() {
        for (text, line, words) in [
            (
                "[access]\nallow = [\n'10.0.0.0/8',\n'offce',\n]\n",
                4,
                "[networks] has no list 'offce' (it has: none)",
            ),
            ("[networks]\na = ['b']\nb = ['a']\n", 3, "contains itself"),
            ("[networks]\n'1a' = ['10.0.0.0/8']\n", 2, "must begin with a letter"),
            (
                "[networks]\nsix = ['2001:db8::/32']\n[dns64]\nprefixes = [{ prefix = '2001:db8:64::/96', ranges = ['six'] }]\n",
                4,
                "only IPv4 networks are allowed here, but [networks] six has 2001:db8::/32",
            ),
            ("[access]\nallow = ['!10.0.0.0/8']\n", 2, "a list of exceptions only"),
            (
                "[[domain]]\ndomain = 'a'\noff = true\nprefixes = []\n",
                2,
                "only one of off and prefixes",
            ),
            (
                "[[domain]]\ndomain = 'a'\noff = false\n",
                2,
                "off = false is allowed only in [[group.domain]]",
            ),
            ("[[domain]]\ndomain = 'a'\n[[domain]]\ndomain = 'A.'\n", 4, "twice"),
            ("[[domain]]\ndomain = 'a..b'\n", 2, "domain: "),
            ("[[domain]]\noff = true\ndomain = '*.a.test'\n", 3, "write \"a.test\""),
            ("[[domain]]\ndomain = 'b.*.a.test.'\n", 2, "write \"b.a.test.\""),
            ("[[forward]]\ndomain = '*.a.test'\n", 2, "write \"a.test\""),
            (
                "[[group]]\nclients = []\n[[group.domain]]\ndomain = '*.a.test'\n",
                4,
                "write \"a.test\"",
            ),
            (
                "[dns64]\nprefixes = [\n{ prefix = '64:ff9b::/96', ranges = ['10.0.0.0/8'] } ]\n",
                3,
                "write allow-non-global = true",
            ),
            (
                "[[domain]]\ndomain = 'a'\nprefixes = [{ prefix = '64:ff9b::/96', ranges = ['!8.0.0.0/7', '!11.0.0.0/8', '8.0.0.0/6'] }]\n",
                3,
                "write allow-non-global = true",
            ),
            (
                "[dns64]\nprefixes = [{ prefix = '2001:db8::/96', ranges = [] }]\n",
                2,
                "no IPv4 address",
            ),
            ("[[group]]\nclients = []\ndns64.filter-a = true\n", 3, "a key of [[group]] itself"),
            (
                "[dns64]\nfilter-a = true\n[[group]]\nclients = []\n[group.dns64]\nfilter-a = true\n",
                6,
                "a key of [[group]] itself",
            ),
            (
                "[[group]]\nclients = []\n[[group.domain]]\ndomain = 'a'\nofff = true\n",
                5,
                "[[group.domain]] has no key \"offf\"",
            ),
        ] {
            let error = refused(text);
            let locations = [format!("test.toml:{line}:"), format!("line {line},")];
            assert!(locations.iter().any(|location| error.contains(location)), "{text}\n{error}");
            assert!(error.contains(words), "{text}\n{error}");
        }
    }
}
