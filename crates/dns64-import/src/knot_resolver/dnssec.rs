//! DNSSEC settings of Knot Resolver, which validates by default, with its built-in keys of the root zone.

use std::path::Path;

use crate::draft::{Draft, Origin};
use crate::files::{called, folder_of};
use crate::lua::Statement;
use crate::notes::Location;
use crate::tree::{Node, Value};

/// Functions that are converted.
const CALLS: [&str; 4] = [
    "trust_anchors.add",
    "trust_anchors.add_file",
    "trust_anchors.remove",
    "trust_anchors.set_insecure",
];
/// Settings in the table `trust_anchors` that do not affect answers.
const IDLE: [&str; 5] =
    ["bootstrap_ca", "bootstrap_url", "hold_down_time", "keep_removed", "refresh_time"];
/// Keys in the section `dnssec` of a config.yaml that do not affect answers.
const IDLE_KEYS: [&str; 9] = [
    "hold-down-time",
    "keep-removed",
    "log-bogus",
    "refresh-time",
    "signal-query",
    "time-skew-detection",
    "trust-anchor-signal-query",
    "trust-anchors-keep-removed",
    "trust-anchors-refresh-time",
];
const NOT_LITERAL: &str = "only literal arguments can be converted";

/// True for the name of a function that [`import_lua`] converts.
pub(super) fn is_call(name: &str) -> bool {
    CALLS.contains(&name)
}

/// True for a setting of a kresd.conf that controls how trust anchors are updated.
pub(super) fn is_idle(path: &str) -> bool {
    path.strip_prefix("trust_anchors.").is_some_and(|name| IDLE.contains(&name))
}

/// Converts the functions of the table `trust_anchors` in a kresd.conf.
pub(super) fn import_lua(statements: &[Statement], file: &Path, draft: &mut Draft) {
    draft.dnssec.add_built_in();
    for statement in statements {
        if let Statement::Call(node) = statement
            && let Value::Call(name, arguments) = &node.value
            && is_call(name)
            && call(node, name, arguments, folder_of(file), draft).is_none()
        {
            draft.notes.answers(&node.location, &node.written(), NOT_LITERAL);
        }
    }
    validate(file, draft);
}

/// Sets that Knot Resolver validates if it has trust anchors.
fn validate(file: &Path, draft: &mut Draft) {
    let location = Location::new(&called(file), 1);
    draft.dnssec.validate_with_anchors(Origin::new(&location, "validation is on by default"));
}

/// Converts a call. Returns `None` if an argument is not a literal.
fn call(
    node: &Node,
    name: &str,
    arguments: &[Node],
    folder: &Path,
    draft: &mut Draft,
) -> Option<()> {
    let origin = Origin::new(&node.location, node.written());
    let first = arguments.first()?;
    match name {
        "trust_anchors.add" => {
            first
                .text()?
                .lines()
                .for_each(|line| draft.dnssec.add_line(line, false, origin.clone()));
        }
        "trust_anchors.add_file" => {
            let is_tracked = arguments.get(1).and_then(Node::text) != Some("true");
            draft.dnssec.add_file(folder.join(first.text()?), is_tracked, origin);
        }
        "trust_anchors.remove" => draft.dnssec.remove(Some(first.text()?), origin),
        _ => {
            let names = first.elements().iter().map(Node::text).collect::<Option<Vec<&str>>>()?;
            // Each call replaces the list.
            draft.dnssec.remove_negative(None);
            names.iter().for_each(|name| draft.add_negative_anchor(name, origin.clone()));
        }
    }
    Some(())
}

/// Converts the section `dnssec` of a config.yaml: `false`, or a table.
pub(super) fn import_yaml(root: &Node, file: &Path, draft: &mut Draft) {
    draft.dnssec.add_built_in();
    let Some(section) = root.get("dnssec") else { return validate(file, draft) };
    let is_off = |node: &Node| node.text() == Some("false");
    let switch = ["enable", "enabled"].iter().find_map(|key| section.get(key));
    let switch = switch.unwrap_or(section);
    let origin = Origin::new(&switch.location, format!("dnssec: {}", section.written()));
    draft.dnssec.set_validate(!is_off(switch), origin);
    for (key, node) in section.entries() {
        let origin =
            |node: &Node| Origin::new(&node.location, format!("{key}: {}", node.written()));
        match key.as_str() {
            "enable" | "enabled" => (),
            "trust-anchors" => {
                for anchor in node.elements() {
                    draft.dnssec.add_line(&anchor.written(), false, origin(anchor));
                }
            }
            "trust-anchors-files" => {
                for entry in node.elements() {
                    let named = entry.get("file").and_then(Node::text).unwrap_or_default();
                    let is_tracked = entry.get("read-only").and_then(Node::text) != Some("true");
                    draft.dnssec.add_file(folder_of(file).join(named), is_tracked, origin(entry));
                }
            }
            "negative-trust-anchors" => {
                for name in node.elements() {
                    draft.add_negative_anchor(&name.written(), origin(name));
                }
            }
            "sentinel" | "trust-anchor-sentinel" if !is_off(node) => {
                let why = "dns64d has no root key sentinel (RFC 8509)";
                draft.dnssec_option(&origin(node), Some(why));
            }
            "sentinel" | "trust-anchor-sentinel" => draft.dnssec_option(&origin(node), None),
            key if IDLE_KEYS.contains(&key) => draft.dnssec_option(&origin(node), None),
            _ => draft.dnssec_option(&origin(node), Some("dns64d has no equivalent")),
        }
    }
}
