//! DNSSEC settings of each server.

use std::fs;

use super::{Imported, Note, file, import};

/// DS record of a key that dns64d has built in.
const BUILT_IN: &str = "20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D";
/// DS record of another key.
const OTHER: &str = "4711 13 2 1111111111111111111111111111111111111111111111111111111111111111";

/// Returns the table `[dnssec]` of a result, and the notes. `DIR` stands for the folder of the file.
fn imported(name: &str, text: &str) -> (toml::Table, Vec<Note>) {
    let (folder, path) = file(name, "");
    fs::write(folder.path().join("keys"), format!("; a comment\n. IN DS {OTHER}\n")).unwrap();
    fs::write(folder.path().join("below"), format!("corp.example. IN DS {OTHER}\n")).unwrap();
    fs::write(folder.path().join("sha1"), ". IN DS 1 5 1 00\n").unwrap();
    let key = format!(". 86400 IN DS {OTHER} ;;state=1 [ ADDPEND ] ;;count=1\n");
    fs::write(folder.path().join("pending"), key).unwrap();
    let lua =
        format!("addTA('.', '{OTHER}')\nclearTA()\naddNTA('a.example')\nclearNTA('A.example.')\n");
    fs::write(folder.path().join("clear.lua"), lua).unwrap();
    let lua = "addNTA('a.example', 'why')\nreadTrustAnchorsFromFile('keys')\n";
    fs::write(folder.path().join("read.lua"), lua).unwrap();
    let text = text.replace("DIR", folder.path().to_str().unwrap());
    fs::write(&path, text).unwrap();
    let Imported { toml, notes } = import(&path, None).unwrap_or_else(|error| panic!("{error}"));
    let toml = toml.replace(folder.path().to_str().unwrap(), "DIR");
    let table: toml::Table = toml::from_str(&toml).unwrap();
    (table["dnssec"].as_table().unwrap().clone(), notes)
}

/// Returns the texts of the notes that report an effect on answers and contain the text.
fn lost(notes: &[Note], text: &str) -> Vec<String> {
    let lost = notes.iter().filter(|note| note.changes_answers()).map(ToString::to_string);
    lost.filter(|note| note.contains(text)).collect()
}

#[test]
fn validation_is_on_if_the_other_server_validates() {
    let bind = |options: &str, more: &str| format!("options {{ {options} }};\n{more}\n");
    let anchor = format!("trust-anchors {{ . static-ds {} }};", quoted(BUILT_IN));
    let unbound = |lines: &str| format!("server:\n{lines}\n");
    let anchor_of_unbound = format!("trust-anchor: \". DS {BUILT_IN}\"\n");
    let cases = [
        ("named.conf", bind("", ""), true),
        ("named.conf", bind("dnssec-validation auto;", ""), true),
        ("named.conf", bind("dnssec-validation no;", &anchor), false),
        ("named.conf", bind("dnssec-validation yes;", ""), false),
        ("named.conf", bind("dnssec-validation yes;", "trust-anchors { };"), false),
        ("named.conf", bind("dnssec-validation yes;", &anchor), true),
        ("unbound.conf", unbound(""), false),
        ("unbound.conf", unbound("trust-anchor-file: \"\""), false),
        ("unbound.conf", unbound(&anchor_of_unbound), true),
        ("unbound.conf", unbound(&format!("{anchor_of_unbound}module-config: iterator")), false),
        (
            "unbound.conf",
            unbound(&format!("{anchor_of_unbound}module-config: \"dns64 validator iterator\"")),
            true,
        ),
        ("unbound.conf", unbound(&format!("{anchor_of_unbound}val-permissive-mode: yes")), false),
        ("recursor.conf", "dnssec=off\n".into(), false),
        ("recursor.conf", "dnssec=process-no-validate\n".into(), false),
        ("recursor.conf", "threads=1\n".into(), true),
        ("recursor.conf", "dnssec=log-fail\n".into(), true),
        ("recursor.conf", "dnssec=validate\n".into(), true),
        ("recursor.conf", "dnssec=validate\nlua-config-file=clear.lua\n".into(), false),
        ("recursor.yml", "dnssec:\n  validation: off\n".into(), false),
        ("recursor.yml", "dnssec:\n  validation: process\n".into(), true),
        ("kresd.conf", "modules.load('stats')\n".into(), true),
        ("kresd.conf", "trust_anchors.remove('.')\n".into(), false),
        (
            "kresd.conf",
            format!("trust_anchors.remove('.')\ntrust_anchors.add('. DS {OTHER}')\n"),
            true,
        ),
        ("kresd.conf", "policy.add(policy.all(policy.STUB('192.0.2.1')))\n".into(), false),
        ("kresd.conf", "policy.add(policy.all(policy.FORWARD('192.0.2.1')))\n".into(), true),
        ("knot.yaml", "network: {}\n".into(), true),
        ("knot.yaml", "dnssec: true\n".into(), true),
        ("knot.yaml", "dnssec: false\n".into(), false),
        ("knot.yaml", "dnssec: { enabled: false }\n".into(), false),
        ("Corefile", ".:53 {\n  cache\n}\n".into(), false),
        ("mtd64-ng.conf", "nameserver 192.0.2.1\n".into(), false),
    ];
    for (name, text, validates) in cases {
        let (table, notes) = imported(name, &text);
        assert_eq!(table["validate"].as_bool(), Some(validates), "{name}: {text}\n{notes:#?}");
    }
}

fn quoted(ds: &str) -> String {
    let (fields, digest) = ds.rsplit_once(' ').unwrap();
    format!("{fields} \"{digest}\";")
}

#[test]
fn modes_between_on_and_off_are_noted() {
    let anchor = format!("server:\n  trust-anchor: \". DS {BUILT_IN}\"\n");
    let cases = [
        (
            "recursor.conf",
            "threads=1\n".to_owned(),
            ":1: dnssec=process (default since 4.5): ",
            true,
        ),
        ("recursor.conf", "threads=1\ndnssec=log-fail\n".into(), ":2: dnssec=log-fail: ", true),
        ("recursor.conf", "dnssec=validate\n".into(), "dnssec", false),
        ("recursor.conf", "dnssec=off\n".into(), "dnssec", false),
        (
            "unbound.conf",
            anchor.clone() + "  val-permissive-mode: yes\n",
            ":3: val-permissive",
            true,
        ),
        ("unbound.conf", anchor + "  val-permissive-mode: no\n", "val-permissive", false),
    ];
    for (name, text, wanted, is_noted) in cases {
        let (_, notes) = imported(name, &text);
        assert_eq!(!lost(&notes, wanted).is_empty(), is_noted, "{text}: {notes:#?}");
    }
}

#[test]
fn one_file_with_trust_anchors_is_carried_over() {
    let unbound = |lines: &str| format!("server:\n{lines}\n");
    let yes = Some("DIR/keys");
    let cases = [
        ("unbound.conf", unbound("trust-anchor-file: DIR/keys"), yes),
        ("unbound.conf", unbound("trust-anchor-file: \"keys\""), yes),
        ("unbound.conf", unbound("directory: DIR\nauto-trust-anchor-file: keys"), yes),
        ("unbound.conf", unbound("chroot: DIR\ntrust-anchor-file: /keys"), yes),
        ("unbound.conf", unbound("chroot: DIR\ntrust-anchor-file: DIR/keys"), yes),
        ("unbound.conf", unbound("trust-anchor-file: DIR/below"), Some("DIR/below")),
        (
            "unbound.conf",
            unbound(&format!("trust-anchor: \". DS {BUILT_IN}\"\ntrust-anchor-file: DIR/keys")),
            yes,
        ),
        // The file would replace the built-in keys of the root zone.
        (
            "unbound.conf",
            unbound(&format!("trust-anchor: \". DS {BUILT_IN}\"\ntrust-anchor-file: DIR/below")),
            None,
        ),
        (
            "unbound.conf",
            unbound("trust-anchor-file: DIR/keys\ntrust-anchor-file: DIR/below"),
            None,
        ),
        ("unbound.conf", unbound("trust-anchor-file: DIR/gone"), None),
        ("unbound.conf", unbound("trust-anchor-file: DIR/sha1"), None),
        ("unbound.conf", unbound("auto-trust-anchor-file: DIR/pending"), None),
        ("recursor.conf", "dnssec=validate\nlua-config-file=read.lua\n".into(), yes),
        ("recursor.yml", "dnssec:\n  validation: validate\n  trustanchorfile: keys\n".into(), yes),
        (
            "recursor.yml",
            "dnssec:\n  validation: validate\n  trustanchorfile: below\n".into(),
            None,
        ),
        ("kresd.conf", "trust_anchors.add_file('keys', true)\n".into(), yes),
        ("kresd.conf", "trust_anchors.add_file('below', true)\n".into(), None),
        (
            "kresd.conf",
            "trust_anchors.remove('.')\ntrust_anchors.add_file('below', true)\n".into(),
            Some("DIR/below"),
        ),
        (
            "knot.yaml",
            "dnssec:\n  trust-anchors-files: [{ file: keys, read-only: true }]\n".into(),
            yes,
        ),
    ];
    for (name, text, path) in cases {
        let (table, notes) = imported(name, &text);
        let found = table.get("trust-anchors").and_then(toml::Value::as_str);
        assert_eq!(found, path, "{text}: {notes:#?}");
        let advice = lost(&notes, "trust-anchors in [dnssec]");
        assert_eq!(advice.is_empty(), path.is_some(), "{text}: {notes:#?}");
        assert_eq!(table["validate"].as_bool(), Some(true), "{text}");
    }
}

#[test]
fn trust_anchors_in_the_configuration_are_noted_with_their_line() {
    let of_bind =
        |kind: &str, ds: &str| format!("trust-anchors {{\n  . {kind} {}\n}};\n", quoted(ds));
    let root = |line: &str| vec![format!("write the line '. IN DS {line}' to a file")];
    let none = Vec::new;
    let below = format!("'corp.example IN DS {OTHER}'");
    let cases = [
        ("named.conf", of_bind("static-ds", BUILT_IN), none()),
        (
            "named.conf",
            of_bind("initial-ds", BUILT_IN),
            vec![":2: . initial-ds".into(), "RFC 5011".into()],
        ),
        ("named.conf", of_bind("static-ds", OTHER), root(OTHER)),
        (
            "named.conf",
            "trusted-keys { corp.example. 257 3 13 \"AAAA AAAA\"; };\n".into(),
            vec![
                "'corp.example. IN DNSKEY 257 3 13 AAAA AAAA'".into(),
                "add the lines '. IN DS 20326".into(),
            ],
        ),
        (
            "named.conf",
            "managed-keys { corp.example. initial-key 257 3 5 \"AAAA\"; };\n".into(),
            vec!["cannot use it (the algorithm must be".into(), "RFC 5011".into()],
        ),
        ("named.conf", "trust-anchors { x; };\n".into(), vec!["not a trust anchor".into()]),
        ("unbound.conf", format!("server:\n  trust-anchor: \". DS {BUILT_IN}\"\n"), none()),
        (
            "unbound.conf",
            format!("server:\n  trust-anchor: \". 3600  IN\tDS {OTHER}\"\n"),
            vec![format!("'. 3600 IN DS {OTHER}'")],
        ),
        // The file replaces the built-in keys, which the server uses too.
        (
            "unbound.conf",
            format!(
                "server:\n  trust-anchor: \". DS {BUILT_IN}\"\n  trust-anchor: \"corp.example IN DS {OTHER}\"\n"
            ),
            vec![below.clone(), "add the lines '. IN DS 20326".into()],
        ),
        (
            "unbound.conf",
            "server:\n  auto-trust-anchor-file: DIR/keys\n".into(),
            vec![":2: auto-trust-anchor-file".into(), "RFC 5011".into()],
        ),
        (
            "recursor.yml",
            format!(
                "dnssec:\n  validation: validate\n  trustanchors:\n    - {{ name: corp.example, dsrecords: ['{OTHER}'] }}\n"
            ),
            vec![below.clone(), "add the lines '. IN DS 20326".into()],
        ),
        (
            "kresd.conf",
            format!("trust_anchors.add('corp.example IN DS {OTHER}')\n"),
            vec![":1: trust_anchors.add(".into(), below.clone()],
        ),
        ("kresd.conf", "trust_anchors.add(key)\n".into(), vec!["only literal arguments".into()]),
        (
            "knot.yaml",
            format!("dnssec:\n  trust-anchors: ['corp.example IN DS {OTHER}']\n"),
            vec![below],
        ),
        // Without validation, trust anchors have no effect.
        (
            "kresd.conf",
            "trust_anchors.add_file('gone')\n".into(),
            vec!["cannot use".into(), "RFC 5011".into()],
        ),
        (
            "knot.yaml",
            format!("dnssec:\n  enabled: false\n  trust-anchors: ['. IN DS {OTHER}']\n"),
            none(),
        ),
    ];
    for (name, text, wanted) in cases {
        let (table, notes) = imported(name, &text);
        let about_anchors = notes.iter().filter(|note| {
            let text = note.to_string();
            note.changes_answers()
                && ["anchor", "RFC 5011", "literal"].iter().any(|word| text.contains(word))
        });
        assert_eq!(about_anchors.count() == 0, wanted.is_empty(), "{text}: {notes:#?}");
        for part in wanted {
            assert!(!lost(&notes, &part).is_empty(), "{text}: no '{part}' in {notes:#?}");
        }
        assert!(!table.contains_key("trust-anchors") || text.contains("DIR"), "{text}");
    }
}

#[test]
fn unvalidated_domains_become_negative_trust_anchors() {
    let lan = "server:\n  trust-anchor-file: DIR/keys\n  insecure-lan-zones: yes\n";
    let cases = [
        (
            "named.conf",
            "options { validate-except { \"A.example.\"; b.example; \"a.example\"; \"c..\"; }; };\n".to_owned(),
            &["a.example", "b.example"][..],
            1,
        ),
        (
            "unbound.conf",
            "server:\n  trust-anchor-file: DIR/keys\n  domain-insecure: a.example\n  domain-insecure: *.x\n".into(),
            &["a.example"],
            1,
        ),
        ("recursor.conf", "dnssec=validate\nlua-config-file=read.lua\n".into(), &["a.example"], 0),
        (
            "recursor.yml",
            "dnssec:\n  validation: validate\n  negative_trustanchors:\n    - name: a.example\n      reason: r\n".into(),
            &["a.example"],
            0,
        ),
        (
            "kresd.conf",
            "trust_anchors.set_insecure({'b.example'})\ntrust_anchors.set_insecure({'a.example'})\n".into(),
            &["a.example"],
            0,
        ),
        ("knot.yaml", "dnssec:\n  negative-trust-anchors: [a.example]\n".into(), &["a.example"], 0),
        ("knot.yaml", "dnssec:\n  enabled: false\n  negative-trust-anchors: [a.example]\n".into(), &[], 0),
    ];
    for (name, text, wanted, invalid) in cases {
        let (table, notes) = imported(name, &text);
        assert_eq!(negative(&table), wanted, "{text}: {notes:#?}");
        let of_names =
            lost(&notes, "not a domain name").len() + lost(&notes, "the label '*'").len();
        assert_eq!(of_names, invalid, "{text}: {notes:#?}");
    }
    let (table, _) = imported("unbound.conf", lan);
    let zones = negative(&table);
    assert!(
        zones.contains(&"10.in-addr.arpa") && !zones.contains(&"127.in-addr.arpa"),
        "{zones:?}"
    );
}

fn negative(table: &toml::Table) -> Vec<&str> {
    let names = table.get("negative-trust-anchors").and_then(toml::Value::as_array);
    names.into_iter().flatten().map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn stubs_of_knot_resolver_are_not_validated() {
    let stub =
        "policy.add(policy.suffix(policy.STUB('192.0.2.1'), policy.todnames({'a.example'})))\n";
    let forward =
        "policy.add(policy.suffix(policy.FORWARD('192.0.2.2'), policy.todnames({'b.example'})))\n";
    let all = |action: &str| {
        format!("{stub}{forward}policy.add(policy.all(policy.{action}('192.0.2.3')))\n")
    };
    let of_yaml = "forward:\n  - subtree: a.example\n    servers: [192.0.2.1]\n    options: { dnssec: false }\n  \
                   - subtree: b.example\n    servers: [192.0.2.2]\n  - subtree: .\n    servers: [192.0.2.3]\n";
    for (name, text) in [("kresd.conf", all("FORWARD")), ("knot.yaml", of_yaml.to_owned())] {
        let (_folder, path) = file(name, &text);
        let toml = import(&path, None).unwrap().toml;
        let table: toml::Table = toml::from_str(&toml).unwrap();
        let entries = table["forward"].as_array().unwrap().iter();
        let found: Vec<(&str, bool)> = entries
            .map(|entry| (entry["domain"].as_str().unwrap(), entry.get("validate").is_none()))
            .collect();
        assert_eq!(found, [(".", true), ("a.example", false), ("b.example", true)], "{toml}");
        assert!(toml.contains("\nvalidate = true\n"), "{toml}");
    }
    // In dns64d, a domain cannot be validated without the root.
    let (table, notes) = imported("kresd.conf", &all("STUB"));
    assert_eq!(table["validate"].as_bool(), Some(false));
    assert_eq!(lost(&notes, "dns64d validates neither").len(), 1, "{notes:#?}");
}

#[test]
fn other_dnssec_options_are_noted_with_their_effect() {
    // Text before and after the option, and its line.
    let bind = ("named.conf", "options {\n", ";\n};\n", 2);
    let unbound = ("unbound.conf", "server:\n", "\ntrust-anchor-file: DIR/keys\n", 2);
    let powerdns = ("recursor.conf", "dnssec=validate\n", "\n", 2);
    let yaml = ("recursor.yml", "dnssec:\n  validation: validate\n  ", "\n", 3);
    let kresd = ("kresd.conf", "", "\n", 1);
    let knot = ("knot.yaml", "dnssec:\n  ", "\n", 2);
    let off = ("recursor.conf", "dnssec=off\n", "\n", 2);
    let cases = [
        (bind, "dnssec-accept-expired yes", true),
        (bind, "dnssec-accept-expired no", false),
        (bind, "dnssec-must-be-secure a.example yes", true),
        (bind, "dnssec-must-be-secure a.example no", false),
        (bind, "disable-algorithms . { RSASHA256; }", true),
        (bind, "disable-algorithms . { RSAMD5; RSASHA1; }", false),
        (bind, "disable-ds-digests . { SHA-256; }", true),
        (bind, "disable-ds-digests . { SHA-1; GOST; }", false),
        (bind, "root-key-sentinel yes", true),
        (bind, "nta-lifetime 1h", false),
        (bind, "synth-from-dnssec no", false),
        (bind, "bindkeys-file \"gone\"", true),
        (unbound, "val-sig-skew-max: 60", true),
        (unbound, "val-sig-skew-max: 0", false),
        (unbound, "val-override-date: \"20260101000000\"", true),
        (unbound, "val-override-date: 0", false),
        (unbound, "val-nsec3-keysize-iterations: \"1024 150\"", true),
        (unbound, "val-log-level: 2", false),
        (unbound, "ignore-cd-flag: yes", true),
        (unbound, "ignore-cd-flag: no", false),
        (unbound, "harden-dnssec-stripped: no", true),
        (unbound, "harden-dnssec-stripped: yes", false),
        (unbound, "root-key-sentinel: yes", true),
        (unbound, "ede: yes", false),
        (powerdns, "nsec3-max-iterations=150", true),
        (powerdns, "nsec3-max-iterations=50", false),
        (powerdns, "signature-inception-skew=60", true),
        (off, "signature-inception-skew=60", false),
        (yaml, "disabled_algorithms: [8]", true),
        (yaml, "disabled_algorithms: [5]", false),
        (yaml, "trustanchorfile_interval: 1", false),
        (kresd, "trust_anchors.keep_removed = 3", false),
        (kresd, "modules.unload('ta_sentinel')", false),
        (knot, "trust-anchor-sentinel: true", true),
        (knot, "trust-anchor-sentinel: false", false),
        (knot, "log-bogus: true", false),
        (knot, "new: true", true),
    ];
    for ((name, before, after, line), option, is_lost) in cases {
        let (_, notes) = imported(name, &format!("{before}{option}{after}"));
        let at = format!("{name}:{line}: ");
        let of_option: Vec<&Note> =
            notes.iter().filter(|note| note.to_string().contains(&at)).collect();
        assert!(!of_option.is_empty(), "{option}: {notes:#?}");
        let found = of_option.iter().any(|note| note.changes_answers());
        assert_eq!(found, is_lost, "{option}: {notes:#?}");
    }
}

#[test]
fn a_bindkeys_file_replaces_the_built_in_root_keys() {
    let (folder, path) = file("named.conf", "options { bindkeys-file \"own.keys\"; };\n");
    for (ds, is_noted) in [(BUILT_IN, false), (OTHER, true)] {
        let keys = format!("managed-keys {{ . initial-ds {} }};\n", quoted(ds));
        fs::write(folder.path().join("own.keys"), keys).unwrap();
        let notes = import(&path, None).unwrap().notes;
        assert_eq!(!lost(&notes, &format!("'. IN DS {OTHER}'")).is_empty(), is_noted, "{notes:#?}");
    }
}
