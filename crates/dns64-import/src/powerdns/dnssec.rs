//! DNSSEC settings of PowerDNS Recursor: in recursor.conf, in recursor.yml, and in the Lua file that `lua-config-file`
//! names. By default, PowerDNS Recursor validates with its built-in keys of the root zone, but only if a query has the
//! DO or AD bit (`process`).

use std::path::Path;

use super::settings::{Setting, find};
use crate::draft::{Draft, Origin};
use crate::files::{called, folder_of};
use crate::lua::{self, Statement};
use crate::notes::Location;
use crate::tree::{Node, Value};
use crate::values::is_validated_algorithm;

/// Converts the trust anchors, and the settings that determine whether and where PowerDNS Recursor validates.
pub(super) fn import(settings: &[Setting], file: &Path, draft: &mut Draft) {
    let folder = folder_of(file);
    draft.dnssec.add_built_in();
    if let Some(lua) = find(settings, "lua-config-file").filter(|lua| !lua.value().is_empty()) {
        lua_config(lua, folder, draft);
    }
    if let Some(anchors) = find(settings, "trustanchors") {
        for line in &anchors.values {
            if line.starts_with(". ") {
                draft.dnssec.remove_built_in();
            }
            draft.dnssec.add_line(line, false, Origin::new(&anchors.location, line.as_str()));
        }
    }
    if let Some(file) = find(settings, "trustanchorfile").filter(|file| !file.value().is_empty()) {
        draft.dnssec.add_file(folder.join(file.value()), false, file.origin());
    }
    if let Some(anchors) = find(settings, "negative-trustanchors") {
        for name in &anchors.values {
            let origin = Origin::new(&anchors.location, format!("{} {name}", anchors.key));
            draft.add_negative_anchor(name, origin);
        }
    }
    mode(find(settings, "dnssec"), file, draft);
}

/// Converts the setting `dnssec`.
fn mode(setting: Option<&Setting>, file: &Path, draft: &mut Draft) {
    const PARTIAL: &str = "PowerDNS Recursor validates only if a query has DO or AD; dns64d always validates, and returns SERVFAIL for bogus names to all clients. A domain that only your upstreams know may need validate = false in its [[forward]]";
    let origin = setting.map_or_else(
        || Origin::new(&Location::new(&called(file), 1), "dnssec=process (default since 4.5)"),
        Setting::origin,
    );
    let mode = setting.map_or("process", Setting::value);
    if matches!(mode, "off" | "process-no-validate") {
        return draft.dnssec.set_validate(false, origin);
    }
    draft.dnssec.validate_with_anchors(origin.clone());
    match mode {
        "process" | "log-fail" if draft.dnssec.validates() => {
            draft.notes.answers(&origin.location, &origin.words, PARTIAL);
        }
        "process" | "log-fail" | "validate" => (),
        _ => draft.notes.answers(&origin.location, &origin.words, "not a mode"),
    }
}

/// Converts the functions for trust anchors in the Lua file that the setting `setting` names. All other statements of the
/// file get notes.
fn lua_config(setting: &Setting, folder: &Path, draft: &mut Draft) {
    let statements = match lua::parse(&folder.join(setting.value())) {
        Ok(statements) => statements,
        Err(error) => {
            let why = format!("{error}; it may have trust anchors and other settings");
            return draft.notes.answers(&setting.location, &setting.written(), why);
        }
    };
    for statement in statements {
        let (location, text) = match statement {
            Statement::Call(node) if call(&node, folder, draft) => continue,
            Statement::Variable => continue,
            Statement::Call(node) => (node.location.clone(), node.written()),
            Statement::Set(path, node) => (node.location.clone(), path),
            Statement::Other(location, text) => (location, text),
        };
        draft.notes.answers(&location, &text, "only functions for trust anchors are converted");
    }
}

/// Converts a call of a function for trust anchors. Returns false if it is not such a call, or if an argument is not a
/// literal.
fn call(node: &Node, folder: &Path, draft: &mut Draft) -> bool {
    let Value::Call(name, arguments) = &node.value else { return false };
    let texts: Option<Vec<&str>> = arguments.iter().map(Node::text).collect();
    let Some(texts) = texts else { return false };
    let origin = Origin::new(&node.location, node.written());
    match (name.as_str(), &texts[..]) {
        ("addTA" | "addDS", [zone, ds]) => {
            draft.dnssec.add_line(&format!("{zone} IN DS {ds}"), false, origin);
        }
        ("clearTA" | "clearDS", zone @ ([] | [_])) => {
            draft.dnssec.remove(zone.first().copied(), origin);
        }
        ("addNTA", [name] | [name, _]) => draft.add_negative_anchor(name, origin),
        ("clearNTA", name @ ([] | [_])) => draft.dnssec.remove_negative(name.first().copied()),
        ("readTrustAnchorsFromFile", [file] | [file, _]) => {
            draft.dnssec.add_file(folder.join(file), false, origin);
        }
        _ => return false,
    }
    true
}

/// Adds a note on a DNSSEC setting that [`import`] does not convert. Returns true for a DNSSEC setting.
pub(super) fn setting(setting: &Setting, draft: &mut Draft) -> bool {
    let effect = match setting.key.as_str() {
        "dnssec"
        | "lua-config-file"
        | "negative-trustanchors"
        | "trustanchorfile"
        | "trustanchors" => return true,
        "dnssec-disabled-algorithms"
            if setting.values.iter().any(|value| is_validated_algorithm(value)) =>
        {
            Some("dns64d validates with these algorithms")
        }
        "nsec3-max-iterations" if setting.value() != "50" => {
            Some("for dns64d, a denial with more than 50 additional NSEC3 iterations is insecure")
        }
        "signature-inception-skew" if setting.value() != "0" => {
            Some("dns64d has no tolerance for wrong clocks")
        }
        "dnssec-disabled-algorithms"
        | "nsec3-max-iterations"
        | "signature-inception-skew"
        | "trustanchorfile-interval"
        | "x-dnssec-names" => None,
        _ => return false,
    };
    draft.dnssec_option(&setting.origin(), effect);
    true
}
