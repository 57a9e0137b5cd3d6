//! Differences between two configurations, key by key.
//!
//! ```text
//! Config ─► Written: value by key ─┬─► at the start ──┐
//!                                  └─► in effect ─────┴─► Changes: in effect, waiting for a restart
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::keys::Config;

/// Keys and tables that are read only at startup.
pub(crate) const READ_AT_START: [&str; 13] = [
    "listen",
    "xdp-mode",
    "xdp-fallback",
    "threads",
    "cpus",
    "user",
    "cache.mebibytes",
    "metrics",
    "log",
    "control",
    "query-log",
    "dnstap",
    "dnssec.validate",
];

/// Values of a configuration by key, such as `cache.max-ttl`. A list is one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KeyValues(BTreeMap<String, toml::Value>);

impl KeyValues {
    /// Returns the value of each key in the configuration `config`.
    pub(crate) fn of(config: &Config) -> KeyValues {
        let mut values = BTreeMap::new();
        if let Ok(toml::Value::Table(table)) = toml::Value::try_from(config) {
            flatten("", table, &mut values);
        }
        KeyValues(values)
    }

    /// Returns the values of all keys except `key`.
    pub(crate) fn without(mut self, key: &str) -> KeyValues {
        self.0.remove(key);
        self
    }

    /// Returns the keys with different values, in alphabetical order.
    fn difference<'a>(&'a self, other: &'a KeyValues) -> impl Iterator<Item = &'a str> {
        let keys: BTreeSet<&str> =
            self.0.keys().chain(other.0.keys()).map(String::as_str).collect();
        keys.into_iter().filter(move |key| self.0.get(*key) != other.0.get(*key))
    }
}

/// Adds the values of a table and of nested tables.
fn flatten(path: &str, table: toml::Table, values: &mut BTreeMap<String, toml::Value>) {
    for (key, value) in table {
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(table) => flatten(&path, table, values),
            value => drop(values.insert(path, value)),
        }
    }
}

/// True if a new value of the key `key` takes effect only after a restart.
fn waits_for_restart(key: &str) -> bool {
    let is_within = |start: &&str| {
        key.strip_prefix(*start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    READ_AT_START.iter().any(is_within)
}

/// Result of a reload: the keys with changed values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Keys that have changed since the configuration was last loaded. Their new values are in effect.
    pub(crate) in_effect: Vec<String>,
    /// Keys that have changed since the server started. Their new values take effect after a restart.
    pub(crate) waiting: Vec<String>,
}

/// The configuration of a running server.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    at_start: KeyValues,
    in_effect: KeyValues,
}

impl Running {
    /// Creates the state of a server that has just started with this configuration.
    pub(crate) fn started(with: KeyValues) -> Running {
        Running { at_start: with.clone(), in_effect: with }
    }

    /// Replaces the configuration, and returns the changes.
    pub(crate) fn replace(&mut self, new: KeyValues) -> Changes {
        let in_effect = self.in_effect.difference(&new).filter(|key| !waits_for_restart(key));
        let waiting = self.at_start.difference(&new).filter(|key| waits_for_restart(key));
        let changes = Changes {
            in_effect: in_effect.map(str::to_owned).collect(),
            waiting: waiting.map(str::to_owned).collect(),
        };
        self.in_effect = new;
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Settings;

    fn written(text: &str) -> KeyValues {
        let text = format!("{text}\n[[upstream]]\naddress = '192.0.2.1'\n");
        KeyValues::of(&Settings::from_text(&text, Path::new("test.toml")).unwrap().config)
    }

    /// Returns the changed keys that are in effect, and the changed keys that need a restart.
    fn changes(running: &mut Running, text: &str) -> (String, String) {
        let Changes { in_effect, waiting } = running.replace(written(text));
        (in_effect.join(" "), waiting.join(" "))
    }

    #[test]
    fn each_changed_key_is_in_effect_or_waits() {
        for (text, in_effect, waiting) in [
            ("", "", ""),
            ("# a comment\nlisten = [ \"[::1]:5380\" ]", "", ""),
            ("listen = ['[::1]:5381']", "", "listen"),
            ("xdp-mode = 'generic'\nxdp-fallback = false", "", "xdp-fallback xdp-mode"),
            ("threads = 3\ncpus = [0]\nuser = 'daemon'", "", "cpus threads user"),
            ("[cache]\nmebibytes = 7\nmax-ttl = 8", "cache.max-ttl", "cache.mebibytes"),
            ("[metrics]\nlisten = '[::1]:9153'", "", "metrics.listen"),
            ("[log]\nlevel = 'debug'\nformat = 'json'", "", "log.format log.level"),
            ("[control]\nsocket = '/run/c'\ngroup = 'adm'", "", "control.group control.socket"),
            ("[query-log]\nto = 'stderr'\nsample = 2", "", "query-log.sample query-log.to"),
            ("[dnstap]\nsocket = '/run/t'", "", "dnstap.socket"),
            ("[dns64]\nprefixes = []", "dns64.prefixes", ""),
            ("[limits]\nclient-rate = 9", "limits.client-rate", ""),
            ("[networks]\nlab = ['10.0.0.0/8']", "networks.lab", ""),
            ("[[group]]\nclients = ['10.0.0.1']\ndns64.prefixes = []", "group", ""),
            ("[[upstream]]\naddress = '192.0.2.2'", "upstream", ""),
        ] {
            let mut running = Running::started(written(""));
            let found = changes(&mut running, text);
            assert_eq!((&*found.0, &*found.1), (in_effect, waiting), "{text}");
        }
    }

    #[test]
    fn a_waiting_key_is_reported_until_it_is_undone() {
        let mut running = Running::started(written(""));
        let (both, later) = ("[cache]\nmax-ttl = 8\n[log]\nlevel = 'debug'", "log.level");
        assert_eq!(changes(&mut running, both), ("cache.max-ttl".into(), later.into()));
        assert_eq!(changes(&mut running, both), (String::new(), later.into()));
        assert_eq!(changes(&mut running, ""), ("cache.max-ttl".into(), String::new()));
    }

    /// The user documentation lists the same keys as this module.
    #[test]
    fn the_book_lists_the_keys_that_wait() {
        let book = include_str!("../../../../docs/src/dns64d/operation.md");
        let (_, rest) = book.split_once("- These keys need a restart: ").expect("the list");
        let (list, _) = rest.split_once("\n- ").expect("the next point");
        for key in READ_AT_START {
            let forms = [format!("`{key}`"), format!("`[{key}]`"), format!("`{key}.listen`")];
            assert!(forms.iter().any(|form| list.contains(form)), "{key} is not in {list}");
        }
    }

    #[test]
    fn every_key_read_at_the_start_exists() {
        let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
        for key in READ_AT_START {
            let (table, rest) = key.split_once('.').unwrap_or((key, ""));
            assert!(schema["properties"].get(table).is_some(), "{key}");
            let keys = match table {
                "cache" => "CacheKeys",
                _ => "DnssecKeys",
            };
            assert!(
                rest.is_empty() || schema["$defs"][keys]["properties"].get(rest).is_some(),
                "{key}"
            );
        }
    }
}
