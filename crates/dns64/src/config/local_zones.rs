//! `local-zones`: zones that the server answers locally, as empty zones (RFC 6303).

use std::fmt;

use dns64_import::standard_local_zones;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::name::{LowerName, text};
use crate::translation::special;

/// Value of the key `local-zones`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub(crate) enum LocalZoneKeys {
    /// `true` selects the standard zones, and `false` selects no zones.
    Standard(bool),
    /// Exactly the listed zones.
    Listed(Vec<ZoneName>),
}

impl Default for LocalZoneKeys {
    fn default() -> LocalZoneKeys {
        LocalZoneKeys::Standard(false)
    }
}

impl LocalZoneKeys {
    /// Returns the apexes of the zones, without duplicates.
    pub(super) fn apexes(&self) -> Vec<LowerName> {
        let mut apexes: Vec<LowerName> = Vec::new();
        match self {
            LocalZoneKeys::Standard(false) => (),
            LocalZoneKeys::Standard(true) => {
                apexes.extend(standard_local_zones().map(|zone| zone.parse().expect("a constant")));
            }
            LocalZoneKeys::Listed(zones) => {
                for ZoneName(zone) in zones {
                    if !apexes.contains(zone) {
                        apexes.push(zone.clone());
                    }
                }
            }
        }
        apexes
    }
}

impl<'de> Deserialize<'de> for LocalZoneKeys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LocalZoneKeys, D::Error> {
        from.deserialize_any(Value)
    }
}

struct Value;

impl<'de> Visitor<'de> for Value {
    type Value = LocalZoneKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "true, false or a list of zones; write for example [\"home.arpa\", \"10.in-addr.arpa\"]",
        )
    }

    fn visit_bool<E: Error>(self, all: bool) -> Result<LocalZoneKeys, E> {
        Ok(LocalZoneKeys::Standard(all))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LocalZoneKeys, A::Error> {
        let mut zones = Vec::new();
        while let Some(zone) = list.next_element()? {
            zones.push(zone);
        }
        Ok(LocalZoneKeys::Listed(zones))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<LocalZoneKeys, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Other("a table"), &self))
    }
}

/// Apex of a local zone.
#[derive(Clone, Debug, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct ZoneName(LowerName);

impl Serialize for ZoneName {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&without_final_dot(self.0.wire()))
    }
}

impl<'de> Deserialize<'de> for ZoneName {
    // The visitor checks the name, so that an error message gives the line of the name.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ZoneName, D::Error> {
        from.deserialize_str(Name)
    }
}

struct Name;

impl Visitor<'_> for Name {
    type Value = ZoneName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a zone; write for example \"10.in-addr.arpa\"")
    }

    fn visit_str<E: Error>(self, written: &str) -> Result<ZoneName, E> {
        let zone: LowerName = written.parse().map_err(|error| {
            E::custom(format!(
                "local-zones: '{written}': {error}; write for example \"10.in-addr.arpa\""
            ))
        })?;
        if zone.wire() == b"\0" {
            let reason =
                "local-zones: '.' would leave no name for the upstreams; name zones below it";
            return Err(E::custom(reason));
        }
        Ok(ZoneName(zone))
    }
}

/// Returns the zones that the server answers locally, each of them once. The reverse zones of the DNS64 prefixes are
/// not included. The domain of a `[[forward]]` entry is not answered locally; `is_forwarded` returns true for such a
/// domain.
pub(super) fn in_effect(
    keys: &LocalZoneKeys,
    is_forwarded: impl Fn(&LowerName) -> bool,
) -> Vec<String> {
    let mut zones = vec!["ipv4only.arpa".to_owned()];
    let all = special::domains().map(LowerName::from_wire).chain(keys.apexes());
    for zone in all.filter(|zone| !is_forwarded(zone)) {
        let zone = without_final_dot(zone.wire());
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    }
    zones
}

/// Formats a name as in the configuration, without the final dot. The name must not be the root.
fn without_final_dot(name: &[u8]) -> String {
    text(name).trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::path::Path;

    use units::Nanos;
    use wire::rcode::Rcode;
    use wire::view::rtype;

    use crate::config::Settings;
    use crate::translation::local::{Local, find_local};

    const UPSTREAM: &str = "[[upstream]]\naddress = '192.0.2.1'\n";

    fn read(text: &str) -> Result<Settings, String> {
        Settings::from_text(text, Path::new("test.toml")).map_err(|error| error.to_string())
    }

    fn settings(text: &str) -> Settings {
        read(&format!("{text}{UPSTREAM}")).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns the RCODE of the local answer to an A query for `name`, or `None` if the query is not answered locally.
    fn answer(settings: &Settings, client: &str, name: &str) -> Option<Rcode> {
        let client: IpAddr = client.parse().unwrap();
        let name = name.parse().unwrap();
        match find_local(&name, rtype::A, &settings.rules(client, &name, Nanos(0))) {
            Local::Answer(answer) => Some(answer.rcode),
            Local::No => None,
            Local::Alias(alias) => panic!("an alias: {alias:?}"),
        }
    }

    #[test]
    fn the_standard_zones_a_list_or_none() {
        let of = |text: &str, name: &str| answer(&settings(text), "10.0.0.1", name);
        for name in ["a.test", "a.local", "1.0.0.10.in-addr.arpa", "1.64.100.in-addr.arpa"] {
            assert_eq!(of("", name), None, "{name}");
            assert_eq!(of("local-zones = false\n", name), None, "{name}");
            assert_eq!(of("local-zones = true\n", name), Some(Rcode::NXDOMAIN), "{name}");
        }
        let list = "local-zones = ['Home.ARPA.', 'corp.example']\n";
        for (name, expected) in [
            ("home.arpa", Some(Rcode::NOERROR)),
            ("a.home.arpa", Some(Rcode::NXDOMAIN)),
            ("www.corp.example", Some(Rcode::NXDOMAIN)),
            ("a.test", None),
            ("1.0.0.10.in-addr.arpa", None),
        ] {
            assert_eq!(of(list, name), expected, "{name}");
        }
    }

    #[test]
    fn a_forward_takes_its_names_out_of_a_local_zone() {
        let text = "local-zones = true\n[[forward]]\ndomain = '.'\n[[forward]]\ndomain = 'test'\n\
             [[forward]]\ndomain = '1.10.in-addr.arpa'\n";
        let settings = settings(text);
        let of = |name: &str| answer(&settings, "10.0.0.1", name);
        assert_eq!([of("a.test"), of("2.1.10.in-addr.arpa")], [None; 2]);
        assert_eq!([of("2.10.in-addr.arpa"), of("a.local")], [Some(Rcode::NXDOMAIN); 2]);
        let zones = settings.local_zones();
        let is_listed = |name: &str| zones.iter().any(|zone| zone == name);
        assert!(!is_listed("test"), "{zones:?}");
        for zone in ["10.in-addr.arpa", "local", "onion", "ipv4only.arpa"] {
            assert!(is_listed(zone), "{zone}: {zones:?}");
        }
    }

    #[test]
    fn local_zones_are_the_same_for_all_groups_and_domains() {
        let settings = settings(
            "local-zones = ['test']\n[[group]]\nclients = ['10.1.0.0/16']\ndns64.prefixes = []\n\
             [[domain]]\ndomain = 'a.test'\noff = true\n",
        );
        for client in ["10.1.0.1", "10.2.0.1"] {
            for name in ["a.test", "b.test"] {
                assert_eq!(answer(&settings, client, name), Some(Rcode::NXDOMAIN), "{client}");
            }
        }
    }

    #[test]
    fn bad_local_zones_are_refused_with_file_and_line() {
        for (value, line, what) in [
            ("[\n  'home.arpa',\n  'a..b',\n]", 3, "a..b"),
            ("[\n  'home.arpa',\n\n  '.',\n]", 4, "'.'"),
            ("['home.arpa', 3]", 1, "the name of a zone"),
            ("'home.arpa'", 1, "true, false or a list"),
            ("1", 1, "true, false or a list"),
        ] {
            let error = read(&format!("local-zones = {value}\n{UPSTREAM}")).unwrap_err();
            assert!(error.starts_with("test.toml"), "{error}");
            assert!(error.contains(&format!("line {line},")), "{value}: {error}");
            assert!(error.contains(what), "{value}: {error}");
        }
        let long = format!("local-zones = ['{}.test']\n{UPSTREAM}", "a".repeat(64));
        assert!(read(&long).unwrap_err().contains("line 1,"));
    }

    #[test]
    fn the_effective_zones_can_be_parsed() {
        for text in ["", "local-zones = true\n", "local-zones = ['test', 'TEST.', 'a.b']\n"] {
            let settings = settings(text);
            let again = read(&settings.to_toml()).unwrap();
            assert_eq!(again.to_toml(), settings.to_toml(), "{text}");
            assert_eq!(again.local_zones(), settings.local_zones(), "{text}");
        }
    }
}
