//! DNSSEC settings of BIND.
//!
//! With `dnssec-validation auto`, which is the default, BIND validates with its built-in keys of the root zone and with
//! the configured trust anchors. With `yes`, it validates only with the configured trust anchors.

use std::path::Path;

use crate::draft::{Draft, Origin};
use crate::files::called;
use crate::notes::Location;
use crate::statements::{Statement, Style, parse};
use crate::values::{is_no, is_validated_algorithm};

/// Statements with trust anchors.
pub(super) const ANCHORS: [&str; 3] = ["trust-anchors", "trusted-keys", "managed-keys"];
/// Options that do not affect answers of dns64d. An entry matches all option names that begin with its text.
const IDLE: &[&str] = &[
    "auto-dnssec",
    "dnskey-sig-validity",
    "dnssec-",
    "managed-keys-directory",
    "max-validation",
    "nta-",
    "sig-",
    "synth-from-dnssec",
    "trust-anchor-telemetry",
];

/// Converts the trust anchors, and the options that determine whether and where BIND validates. `folder` is the working
/// directory of BIND.
pub(super) fn import(file: &Path, folder: &Path, statements: &[Statement], draft: &mut Draft) {
    let options = || {
        let all = statements.iter().filter(|statement| statement.name() == "options");
        all.flat_map(|options| options.body())
    };
    let option = |name| options().find(|option| option.name() == name);
    let validation = option("dnssec-validation");
    let word = validation.and_then(Statement::argument).unwrap_or("auto");
    let is_auto = !is_no(word) && !matches!(word, "yes" | "true" | "1");
    let mut count = 0;
    for statement in statements.iter().filter(|statement| ANCHORS.contains(&statement.name())) {
        count += statement.body().len();
        anchors(statement, draft);
    }
    let keys = option("bindkeys-file").filter(|_| is_auto);
    if is_auto && !keys.is_some_and(|keys| root_keys(keys, folder, draft)) {
        draft.dnssec.add_built_in();
    }
    let origin = match validation {
        Some(option) => Origin::new(&option.location, option.written()),
        None => {
            let location = Location::new(&called(file), 1);
            Origin::new(&location, "no dnssec-validation: auto")
        }
    };
    let is_without_anchors = !is_no(word) && !is_auto && count == 0;
    if is_without_anchors {
        let why = "without trust-anchors, BIND does not validate";
        draft.notes.nothing(&origin.location, &origin.words, why);
    }
    draft.dnssec.set_validate(!is_no(word) && !is_without_anchors, origin);
    for name in option("validate-except").map(Statement::body).unwrap_or_default() {
        let origin = Origin::new(&name.location, format!("validate-except {}", name.written()));
        draft.add_negative_anchor(name.name(), origin);
    }
}

/// Adds the trust anchors of a statement.
fn anchors(statement: &Statement, draft: &mut Draft) {
    for entry in statement.body() {
        let origin = Origin::new(&entry.location, entry.written());
        match line(statement.name(), &entry.words) {
            Some((line, is_tracked)) => draft.dnssec.add_line(&line, is_tracked, origin),
            None => draft.notes.answers(&origin.location, &origin.words, "not a trust anchor"),
        }
    }
}

/// Adds the keys of the root zone in a `bindkeys-file`, which replace the built-in keys. Returns false if the file has
/// none, or cannot be read.
fn root_keys(option: &Statement, folder: &Path, draft: &mut Draft) -> bool {
    let file = folder.join(option.argument().unwrap_or_default());
    let Ok(statements) = parse(&file, Style::Semicolons) else {
        let why = "the file cannot be read; the built-in keys of the root zone are used";
        draft.notes.answers(&option.location, &option.written(), why);
        return false;
    };
    let mut has_root = false;
    for statement in statements.iter().filter(|statement| ANCHORS.contains(&statement.name())) {
        for entry in statement.body().iter().filter(|entry| entry.name() == ".") {
            if let Some((line, _)) = line(statement.name(), &entry.words) {
                has_root = true;
                draft.dnssec.add_line(&line, false, Origin::new(&entry.location, entry.written()));
            }
        }
    }
    has_root
}

/// Returns a trust anchor in the form of a zone file, and true if BIND follows changes of the key (RFC 5011). `keys` is
/// the name of the statement that contains the trust anchor.
fn line(keys: &str, words: &[String]) -> Option<(String, bool)> {
    let (name, kind, fields) = match words {
        [name, fields @ ..] if keys == "trusted-keys" => (name, "static-key", fields),
        [name, kind, fields @ ..] => (name, kind.as_str(), fields),
        _ => return None,
    };
    let rtype = match kind {
        "initial-ds" | "static-ds" => "DS",
        "initial-key" | "static-key" => "DNSKEY",
        _ => return None,
    };
    Some((format!("{name} IN {rtype} {}", fields.join(" ")), kind.starts_with("initial")))
}

/// Adds a note on a DNSSEC option that [`import`] does not convert. Returns true for a DNSSEC option.
pub(super) fn option(option: &Statement, draft: &mut Draft) -> bool {
    let is_yes = !is_no(option.argument().unwrap_or_default());
    let disables = |is_supported: fn(&str) -> bool| {
        option.body().iter().any(|element| is_supported(element.name()))
    };
    let effect = match option.name() {
        "dnssec-validation" | "validate-except" => return true,
        "dnssec-accept-expired" if is_yes => Some("expired signatures are bogus for dns64d"),
        "dnssec-must-be-secure" if option.words.get(2).is_none_or(|word| !is_no(word)) => {
            Some("dns64d accepts unsigned answers for this domain")
        }
        "dnssec-enable" if !is_yes => Some("dns64d returns DNSSEC records to clients with DO"),
        "disable-algorithms" if disables(is_validated_algorithm) => {
            Some("dns64d validates with these algorithms")
        }
        "disable-ds-digests" if disables(is_validated_digest) => {
            Some("dns64d validates with these digests")
        }
        "disable-algorithms" | "disable-ds-digests" => None,
        "root-key-sentinel" if is_yes => Some("dns64d has no root key sentinel (RFC 8509)"),
        "bindkeys-file" | "root-key-sentinel" => None,
        name if IDLE.iter().any(|idle| name.starts_with(idle)) => None,
        _ => return false,
    };
    draft.dnssec_option(&Origin::new(&option.location, option.written()), effect);
    true
}

/// True for the mnemonics and numbers of the DS digests SHA-256 and SHA-384.
fn is_validated_digest(word: &str) -> bool {
    let word = word.to_ascii_uppercase().replace('-', "");
    matches!(word.as_str(), "SHA256" | "SHA384" | "2" | "4")
}
