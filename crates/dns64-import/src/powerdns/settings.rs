//! Settings of PowerDNS Recursor: the lines of a recursor.conf (`key=value`), and the keys of a recursor.yml, which are
//! converted to those of recursor.conf.

use std::path::{Path, PathBuf};

use crate::draft::Origin;
use crate::error::ImportError;
use crate::files::{MOST, called, folder_of, of_folder, read, too_many};
use crate::notes::Location;
use crate::tree::{self, Node};

/// A setting of PowerDNS Recursor with its values.
pub(super) struct Setting {
    pub location: Location,
    pub key: String,
    pub values: Vec<String>,
}

impl Setting {
    pub(super) fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    pub(super) fn is_off(&self) -> bool {
        matches!(self.value(), "no" | "off" | "false")
    }

    pub(super) fn written(&self) -> String {
        format!("{}={}", self.key, self.values.join(", "))
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::new(&self.location, self.written())
    }
}

/// Returns the setting with a key.
pub(super) fn find<'a>(settings: &'a [Setting], key: &str) -> Option<&'a Setting> {
    settings.iter().find(|setting| setting.key == key)
}

/// Reads the settings of a file and of the files that it includes.
pub(super) fn read_settings(file: &Path) -> Result<Vec<Setting>, ImportError> {
    let mut settings = Vec::new();
    if is_yaml(file) {
        of_yaml(file, &mut settings, 0)?;
    } else {
        lines(file, &mut settings, 0)?;
    }
    Ok(settings)
}

/// True if a file is YAML according to its extension or its contents (sections with keys). Since
/// version 5.1, recursor.conf may be YAML too.
fn is_yaml(file: &Path) -> bool {
    let is_table = |(_, section): &(String, Node)| matches!(section.value, tree::Value::Table(_));
    let has_sections =
        |root: Node| !root.entries().is_empty() && root.entries().iter().all(is_table);
    file.extension().is_some_and(|extension| extension == "yml" || extension == "yaml")
        || tree::yaml(file).is_ok_and(has_sections)
}

/// Reads the lines of a file, and of the files in the folder that its `include-dir` names.
fn lines(file: &Path, settings: &mut Vec<Setting>, depth: usize) -> Result<(), ImportError> {
    let name = called(file);
    let mut folder = None;
    for (number, line) in read(file)?.lines().enumerate() {
        let line = without_comment(line);
        let Some((key, value)) = line.split_once('=') else {
            if line.is_empty() {
                continue;
            }
            let location = Location::new(&name, number + 1);
            settings.push(Setting { location, key: line.to_owned(), values: vec!["yes".into()] });
            continue;
        };
        let key = key.trim_end();
        let (key, adds) = match key.strip_suffix('+') {
            Some(key) => (key.trim_end(), true),
            None => (key, false),
        };
        let location = Location::new(&name, number + 1);
        if key == "include-dir" {
            // If `include-dir` occurs several times, the last one applies.
            folder = Some((value.trim().to_owned(), location));
            continue;
        }
        let values = value.split(',').map(|value| value.trim().to_owned()).collect();
        add(settings, Setting { location, key: key.to_owned(), values }, adds);
    }
    // `include-dir` has no effect in an included file.
    let Some((named, location)) = folder.filter(|_| depth == 0) else { return Ok(()) };
    for file in include(file, &named, ".conf", &location)? {
        lines(&file, settings, depth + 1).map_err(|error| error.of_include(&location))?;
    }
    Ok(())
}

/// Returns the files of an `include-dir`. They are read after the file that contains the `include-dir`. PowerDNS
/// Recursor resolves a relative path against its working directory, which is not stated in the file. Therefore the
/// folder of the file is used instead.
fn include(
    by: &Path,
    named: &str,
    ending: &str,
    location: &Location,
) -> Result<Vec<PathBuf>, ImportError> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let folder = folder_of(by).join(named);
    let files = of_folder(&folder, ending).map_err(|error| error.of_include(location))?;
    if files.len() > MOST { Err(too_many(location)) } else { Ok(files) }
}

/// Removes a comment, which begins with `#` at the start of the line or after a blank.
fn without_comment(line: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| *at == 0 || line[..*at].ends_with([' ', '\t']);
    let comment = line.match_indices('#').find(begins);
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

/// Adds a setting. If there is an earlier setting with the same key, `=` replaces its values, and `+=` adds to them.
fn add(settings: &mut Vec<Setting>, setting: Setting, adds: bool) {
    let known = settings.iter_mut().find(|known| known.key == setting.key);
    match known {
        Some(known) if adds => known.values.extend(setting.values),
        Some(known) => *known = setting,
        None => settings.push(setting),
    }
}

/// Reads a YAML file. Its keys are converted to those of recursor.conf, and its lists of tables to
/// lists of strings.
fn of_yaml(file: &Path, settings: &mut Vec<Setting>, depth: usize) -> Result<(), ImportError> {
    let mut folder = None;
    for (section, entries) in tree::yaml(file)?.entries() {
        for (key, node) in entries.entries() {
            if key == "include_dir" {
                folder = node.text().map(|text| (text.to_owned(), node.location.clone()));
                continue;
            }
            let key = old_name(section, key);
            let elements = node.elements().iter();
            let values = match key.as_str() {
                "trustanchors" => elements.flat_map(trust_anchors).collect(),
                "negative-trustanchors" => elements.map(name_of).collect(),
                _ => elements.map(old_value).collect(),
            };
            // A list in an included file extends the list of the earlier files.
            let adds = depth > 0 && matches!(node.value, tree::Value::List(_));
            add(settings, Setting { location: node.location.clone(), key, values }, adds);
        }
    }
    // `include-dir` has no effect in an included file.
    let Some((named, location)) = folder.filter(|_| depth == 0) else { return Ok(()) };
    for file in include(file, &named, ".yml", &location)? {
        of_yaml(&file, settings, depth + 1).map_err(|error| error.of_include(&location))?;
    }
    Ok(())
}

/// Returns the key of recursor.conf for a key of recursor.yml.
fn old_name(section: &str, key: &str) -> String {
    match (section, key) {
        ("incoming", "listen") => "local-address".into(),
        ("incoming", "port") => "local-port".into(),
        ("recordcache", "max_ttl") => "max-cache-ttl".into(),
        ("recordcache", "max_negative_ttl") => "max-negative-ttl".into(),
        ("recordcache", "max_entries") => "max-cache-entries".into(),
        ("packetcache", _) => format!("packetcache-{}", key.replace('_', "-")),
        ("dnssec", "validation") => "dnssec".into(),
        ("dnssec", "disabled_algorithms") => "dnssec-disabled-algorithms".into(),
        ("logging", _) => format!("log-{}", key.replace('_', "-")),
        ("webservice", _) => format!("webserver-{}", key.replace('_', "-")),
        ("ecs" | "snmp" | "carbon" | "nod", _) => format!("{section}-{}", key.replace('_', "-")),
        _ => key.replace('_', "-"),
    }
}

/// Converts the trust anchors of a zone, `{ name: Z, dsrecords: [D] }`, to DS records in the form of a zone file.
fn trust_anchors(node: &Node) -> Vec<String> {
    let records = node.get("dsrecords").map(Node::elements).unwrap_or_default();
    records.iter().map(|record| format!("{} IN DS {}", name_of(node), record.written())).collect()
}

/// Returns the name of a negative trust anchor or a zone, `{ name: Z }`.
fn name_of(node: &Node) -> String {
    node.get("name").unwrap_or(node).written()
}

/// Converts a value of recursor.yml to the form in recursor.conf: `{ zone: Z, forwarders: [A, B] }`
/// becomes `Z=A;B`, and other values are unchanged.
fn old_value(node: &Node) -> String {
    let Some(zone) = node.get("zone").and_then(Node::text) else { return node.written() };
    let recurse = node.get("recurse").and_then(Node::text) == Some("true");
    let forwarders = node.get("forwarders").map(Node::elements).unwrap_or_default();
    let forwarders: Vec<&str> = forwarders.iter().filter_map(Node::text).collect();
    format!("{}{zone}={}", if recurse { "+" } else { "" }, forwarders.join(";"))
}
