//! DNSSEC settings of Unbound. It validates if the module `validator` is loaded and there is a trust anchor.

use std::path::{Path, PathBuf};

use super::clauses::{Clause, Entry};
use crate::draft::{Draft, Origin};
use crate::local_zones::{is_lan_reverse_zone, standard_local_zones};

/// Keys with trust anchors.
const ANCHORS: [&str; 4] =
    ["auto-trust-anchor-file", "trust-anchor", "trust-anchor-file", "trusted-keys-file"];
/// Configuration keys of the validator that do not affect answers.
const IDLE: &[&str] = &[
    "add-holddown",
    "del-holddown",
    "disable-dnssec-lame-check",
    "harden-algo-downgrade",
    "harden-dnssec-stripped",
    "ignore-cd-flag",
    "keep-missing",
    "permit-small-holddown",
    "root-key-sentinel",
    "trust-anchor-signaling",
    "val-bogus-ttl",
    "val-clean-additional",
    "val-log-level",
    "val-log-squelch",
    "val-max-restart",
    "val-override-date",
    "val-sig-skew-max",
    "val-sig-skew-min",
];

/// Converts the trust anchors, and the keys that determine whether and where Unbound validates. `directory` is the
/// working directory of Unbound.
pub(super) fn import(server: &Clause, directory: &Path, draft: &mut Draft) {
    let is_anchor =
        |entry: &&Entry| ANCHORS.contains(&entry.key.as_str()) && !entry.value().is_empty();
    let anchors: Vec<&Entry> = server.entries.iter().filter(is_anchor).collect();
    let modules = server.find("module-config").filter(|modules| !modules.has_word("validator"));
    let permissive = server.find("val-permissive-mode").filter(|entry| entry.is_yes());
    let (validates, origin) = match (modules, anchors.first(), permissive) {
        (Some(modules), ..) => (false, modules.origin()),
        (_, None, _) => (false, Origin::new(&server.location, "no trust anchor")),
        (_, _, Some(permissive)) => {
            let why = "Unbound sets AD in secure answers, and returns bogus ones; dns64d does not validate";
            draft.notes.answers(&permissive.location, &permissive.written(), why);
            (false, permissive.origin())
        }
        (_, Some(anchor), _) => (true, anchor.origin()),
    };
    draft.dnssec.set_validate(validates, origin);
    let chroot = server.find("chroot").map(Entry::value).unwrap_or_default();
    for entry in anchors {
        match entry.key.as_str() {
            "trust-anchor" => {
                draft.dnssec.add_line(&entry.values.join(" "), false, entry.origin());
            }
            key => {
                let path = path(entry.value(), chroot, directory);
                draft.dnssec.add_file(path, key.starts_with("auto"), entry.origin());
            }
        }
    }
    for entry in server.entries.iter().filter(|entry| entry.key == "domain-insecure") {
        draft.add_negative_anchor(entry.value(), entry.origin());
    }
    if let Some(entry) = server.find("insecure-lan-zones").filter(|entry| entry.is_yes()) {
        let zones = standard_local_zones().filter(|zone| is_lan_reverse_zone(zone));
        zones.for_each(|zone| draft.add_negative_anchor(&zone, entry.origin()));
    }
}

/// Returns the path of a file with trust anchors. Unbound opens it after it has changed its root directory to `chroot`.
fn path(named: &str, chroot: &str, directory: &Path) -> PathBuf {
    let is_inside = Path::new(named).is_relative() || Path::new(named).starts_with(chroot);
    match named.strip_prefix('/') {
        Some(named) if !is_inside => Path::new(chroot).join(named),
        _ => directory.join(named),
    }
}

/// Adds a note on a DNSSEC key that [`import`] does not convert. Returns true for a DNSSEC key.
pub(super) fn setting(entry: &Entry, draft: &mut Draft) -> bool {
    let effect = match entry.key.as_str() {
        "domain-insecure" | "insecure-lan-zones" | "val-permissive-mode" => return true,
        key if ANCHORS.contains(&key) => return true,
        "val-override-date" if !matches!(entry.value(), "" | "0") => {
            Some("dns64d checks signatures at the current time")
        }
        "val-sig-skew-min" | "val-sig-skew-max" if entry.value() != "0" => {
            Some("dns64d has no tolerance for wrong clocks")
        }
        "val-nsec3-keysize-iterations" => {
            Some("for dns64d, a denial with more than 50 additional NSEC3 iterations is insecure")
        }
        "ignore-cd-flag" if entry.is_yes() => {
            Some("dns64d returns data that is not validated if a query has CD=1")
        }
        "harden-dnssec-stripped" if !entry.is_yes() => {
            Some("if signatures are missing, dns64d answers with SERVFAIL")
        }
        "harden-algo-downgrade" if entry.is_yes() => {
            Some("for dns64d, a valid signature with one of the zone's algorithms is sufficient")
        }
        "root-key-sentinel" if entry.is_yes() => Some("dns64d has no root key sentinel (RFC 8509)"),
        key if IDLE.contains(&key) => None,
        _ => return false,
    };
    draft.dnssec_option(&entry.origin(), effect);
    true
}
