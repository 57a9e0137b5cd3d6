//! Tests that import whole configurations. Each configuration is in a folder of `tests/import`,
//! with its expected result in the files `dns64d.toml` and `notes.txt`. With BLESS=1 the test
//! writes both files.

use std::fs;
use std::path::PathBuf;

use super::*;

mod dnssec;
mod listen;

/// Imports a file. The `is_own` function compares only the given addresses, and so does not depend
/// on this host.
fn import(file: &Path, source: Option<Source>) -> Result<Imported, ImportError> {
    super::import(file, source, |listen, server| listen.contains(&server))
}

/// Folder of each configuration, and the name of the file to import.
const FILES: [(&str, &str); 8] = [
    ("bind", "named.conf"),
    ("coredns", "Corefile"),
    ("knot-resolver", "kresd.conf"),
    ("knot-resolver-yaml", "config.yaml"),
    ("mtd64-ng", "mtd64-ng.conf"),
    ("powerdns", "recursor.conf"),
    ("powerdns-yaml", "recursor.yml"),
    ("unbound", "unbound.conf"),
];

#[test]
fn whole_configurations_are_carried_over() {
    for (folder, file) in FILES {
        let folder = Path::new("tests/import").join(folder);
        let source = (file == "config.yaml").then_some(Source::KnotResolver);
        let imported = import(&folder.join(file), source).unwrap_or_else(|error| panic!("{error}"));
        let notes: String = imported.notes.iter().map(|note| format!("{note}\n")).collect();
        for (name, found) in [("dns64d.toml", imported.toml), ("notes.txt", notes)] {
            let wanted = folder.join(name);
            if std::env::var_os("BLESS").is_some() {
                fs::write(&wanted, &found).unwrap();
            }
            let text = fs::read_to_string(&wanted).unwrap_or_default();
            assert!(
                text == found,
                "{}: BLESS=1 writes what is found now:\n{found}",
                wanted.display()
            );
        }
    }
}

#[test]
fn servers_are_detected_by_name_or_content() {
    let of = |name: &str, text: &str| Source::of(Path::new(name), text);
    assert_eq!(of("/etc/bind/named.conf", ""), Some(Source::Bind));
    assert_eq!(of("Corefile", ""), Some(Source::Coredns));
    assert_eq!(of("mtd64-ng.conf", ""), Some(Source::Mtd64Ng));
    assert_eq!(of("old", "# x\nserver:\n"), Some(Source::Unbound));
    assert_eq!(of("config.yaml", "network:\n  listen: []\n"), Some(Source::KnotResolver));
    assert_eq!(of("old", "hello"), None);
    let (_folder, path) = file("old", "hello");
    let error = import(&path, None).unwrap_err().to_string();
    assert!(error.contains("--from"), "{error}");
}

#[test]
fn an_error_has_file_and_line() {
    let cases = [
        ("named.conf", "options {\n  directory \"x;\n", "2: an unmatched '\"'"),
        ("named.conf", "options {\n", "1: an unmatched '{'"),
        ("named.conf", "options { };\n};\n", "2: an unmatched '}'"),
        ("named.conf", "include \"named.conf\";\n", "1: files include each other"),
        ("unbound.conf", "verbosity: 1\n", "1: 'verbosity:' is not in a clause"),
        ("unbound.conf", "server:\n  verbosity 1\n", "2: 'verbosity' is not a key"),
        ("unbound.conf", "server:\ninclude: unbound.conf\n", "2: files include each other"),
        ("unbound.conf", "server:\ndns64:\n prefix: 64:ff9b::/96\n", "2: Unbound has no clause"),
        ("kresd.conf", "\ndofile('kresd.conf')\n", "2: files include each other"),
        ("recursor.yml", "a: [\n", "recursor.yml: "),
    ];
    for (name, text, wanted) in cases {
        let (_folder, path) = file(name, text);
        let error = import(&path, None).map(|imported| imported.toml).unwrap_err().to_string();
        assert!(error.contains(wanted), "{name}: {error}, not {wanted}");
    }
}

#[test]
fn notes_report_effects_on_answers() {
    let (_folder, path) =
        file("unbound.conf", "server:\n  verbosity: 2\n  local-zone: \"a.\" static\n");
    let notes: Vec<String> =
        import(&path, None).unwrap().notes.iter().map(ToString::to_string).collect();
    let of = |word: &str| notes.iter().find(|note| note.contains(word)).unwrap();
    assert!(of("verbosity").contains(":2: ") && of("verbosity").contains("no effect on answers"));
    assert!(of("local-zone").contains(":3: ") && of("local-zone").contains("answers may differ"));
}

#[test]
fn lost_settings_that_affect_answers_have_a_note() {
    let zone = "forward-zone:\n  name: a.example\n  forward-addr: 192.0.2.1\n";
    let of_zone = |more: &str| format!("{zone}  {more}\n");
    let root = |address: &str| format!("forward-zone:\n  name: .\n  forward-addr: {address}\n");
    let server = |port: u16, address: &str| format!(".:{port} {{\n  forward . {address}\n}}\n");
    let policy = |address: &str| format!("policy.add(policy.all(policy.FORWARD('{address}')))\n");
    let (one, two) = ("192.0.2.1", "192.0.2.2");
    let cases = [
        ("unbound.conf", of_zone("forward-no-cache: yes"), ":4: forward-no-cache: yes"),
        ("unbound.conf", of_zone("forward-tcp-upstream: yes"), ":4: forward-tcp-upstream: yes"),
        ("unbound.conf", of_zone("forward-new: 1"), ":4: forward-new: 1"),
        ("unbound.conf", root(one) + &root(two), ":4: forward-zone: ."),
        ("Corefile", server(53, one) + &server(5300, two), ":5: forward . 192.0.2.2"),
        ("kresd.conf", policy(one) + &policy(two), ":2: policy.add("),
        ("recursor.conf", format!("forward-zones-recurse=.={one}, .={two}\n"), ":1: .=192.0.2.2"),
    ];
    for (name, text, wanted) in cases {
        let (_folder, path) = file(name, &text);
        let Imported { toml, notes } = import(&path, None).unwrap();
        let mut lost = notes.iter().filter(|note| note.changes_answers());
        assert!(lost.any(|note| note.to_string().contains(wanted)), "{name}: {notes:#?}");
        assert!(!toml.contains(two), "{name}: only the first ones are asked:\n{toml}");
    }
    let whole = [
        (
            "unbound.conf",
            of_zone("forward-no-cache: no") + "  forward-tls-upstream: no\n" + &root(one),
        ),
        ("Corefile", server(53, one) + &server(5300, one)),
    ];
    for (name, text) in whole {
        let (_folder, path) = file(name, &text);
        let notes = import(&path, None).unwrap().notes;
        assert!(!notes.iter().any(Note::changes_answers), "{name}: {notes:#?}");
    }
}

#[test]
fn a_cache_for_some_zones_is_one_for_all_names() {
    let cases = [
        ("cache", 3_600, false),
        ("cache 30", 30, false),
        ("cache 30 .", 30, false),
        ("cache 30 example.org", 30, true),
        ("cache example.org", 3_600, true),
    ];
    for (words, ttl, is_lost) in cases {
        let (_folder, path) = file("Corefile", &format!(". {{\n  {words}\n}}\n"));
        let Imported { toml, notes } = import(&path, None).unwrap();
        assert!(toml.contains(&format!("\nmax-ttl = {ttl}\n")), "{words}:\n{toml}");
        assert_eq!(notes.iter().any(Note::changes_answers), is_lost, "{words}: {notes:#?}");
    }
}

#[test]
fn the_files_of_a_pattern_are_counted() {
    let cases = [
        ("named.conf", "include \"d/*.conf\";\n", "conf"),
        ("unbound.conf", "include: \"d/*.conf\"\n", "conf"),
        ("recursor.conf", "include-dir=d\n", "conf"),
        ("recursor.yml", "recursor: { include_dir: d }\n", "yml"),
        ("Corefile", "import d/*.conf\n", "conf"),
    ];
    for (name, text, extension) in cases {
        let (folder, path) = file(name, text);
        let included = folder.path().join("d");
        fs::create_dir(&included).unwrap();
        for n in 0..=files::MOST {
            fs::write(included.join(format!("{n}.{extension}")), "").unwrap();
        }
        let error = import(&path, None).map(|imported| imported.toml).unwrap_err().to_string();
        assert!(error.contains(":1: ") && error.contains("there are too many"), "{name}: {error}");
    }
}

#[test]
fn missing_includes_are_errors_with_file_and_line() {
    let cases = [
        ("named.conf", "options { };\ninclude \"NAME\";\n", 2),
        ("named.conf", "options { };\ninclude \"NAME/*.conf\";\n", 2),
        ("unbound.conf", "server:\n  include: NAME\n", 2),
        ("unbound.conf", "server:\n\ninclude-toplevel: \"NAME\"\n", 3),
        ("recursor.conf", "threads=1\ninclude-dir=NAME\n", 2),
        ("recursor.yml", "recursor:\n  threads: 1\n  include_dir: NAME\n", 3),
        ("kresd.conf", "-- one\ndofile('NAME')\n", 2),
        ("Corefile", "(a) {\n  cache\n}\nimport NAME\n", 4),
        ("Corefile", ". {\n  import NAME\n}\n", 2),
        ("Corefile", ". {\n  forward . NAME\n}\n", 2),
    ];
    // The last two names exist in the working directory of the test, but not beside the imported
    // file.
    for named in ["gone", "tests/import/bind/acls.conf", "tests/import/powerdns/recursor.d"] {
        assert_eq!(Path::new(named).exists(), named != "gone");
        for (name, text, line) in cases {
            let (folder, path) = file(name, &text.replace("NAME", named));
            let error = import(&path, None).map(|imported| imported.toml).unwrap_err().to_string();
            let beside = folder.path().join(named);
            let wanted = format!("{}:{line}: cannot read {}", path.display(), beside.display());
            assert!(error.starts_with(&wanted), "{error}, not {wanted}");
        }
    }
}

#[test]
fn patterns_without_files_are_allowed_except_in_bind() {
    for (name, text, is_allowed) in [
        ("named.conf", "include \"gone/*.conf\";\n", false),
        ("unbound.conf", "include: \"gone/*.conf\"\n", true),
        ("Corefile", "import gone/*\n", true),
    ] {
        let (_folder, path) = file(name, text);
        let result = import(&path, None);
        assert_eq!(result.is_ok(), is_allowed, "{name}: {result:?}");
    }
}

#[test]
fn relative_includes_are_resolved_as_by_the_server() {
    let unbound =
        |name: &str| format!("forward-zone:\n  name: {name}\n  forward-addr: 192.0.2.1\n");
    let bind =
        |name: &str| format!("zone \"{name}\" {{ type forward; forwarders {{ 192.0.2.1; }}; }};\n");
    let recursor = |name: &str| format!("forward-zones-recurse+={name}=192.0.2.1\n");
    let kresd = |name: &str| {
        format!(
            "policy.add(policy.suffix(policy.STUB('192.0.2.1'), policy.todnames({{'{name}'}})))\n"
        )
    };
    let corefile = |name: &str| format!("{name} {{\n  forward . 192.0.2.1\n}}\n");
    let cases: [(&str, [(&str, String); 4]); 5] = [
        // A path is relative to the working directory, regardless of the file that contains the path.
        (
            "unbound.conf",
            [
                ("", "include: a/1\nserver:\n  directory: DIR/b\ninclude: 3\n".to_owned()),
                ("a/1", unbound("one.test") + "include-toplevel: a/2\n"),
                ("a/2", unbound("two.test")),
                ("b/3", unbound("three.test")),
            ],
        ),
        (
            "named.conf",
            [
                (
                    "",
                    "include \"a/1\";\noptions { directory \"DIR/b\"; };\ninclude \"3\";\n"
                        .to_owned(),
                ),
                ("a/1", bind("one.test") + "include \"a/2\";\n"),
                ("a/2", bind("two.test")),
                ("b/3", bind("three.test")),
            ],
        ),
        (
            "kresd.conf",
            [
                ("", "dofile('a/1')\ndofile \"b/3\"\n".to_owned()),
                ("a/1", kresd("one.test") + "dofile('a/2')\n"),
                ("a/2", kresd("two.test")),
                ("b/3", kresd("three.test")),
            ],
        ),
        // If several folders are given, the last one applies.
        (
            "recursor.conf",
            [
                ("", "include-dir=gone\ninclude-dir=a\n".to_owned()),
                ("a/1.conf", recursor("one.test")),
                ("a/B.conf", recursor("two.test")),
                ("a/c.conf", recursor("three.test")),
            ],
        ),
        // A path is relative to the folder of the file that contains the path.
        (
            "Corefile",
            [
                ("", "import a/1\nimport b/*\n".to_owned()),
                ("a/1", corefile("one.test") + "import 2\n"),
                ("a/2", corefile("two.test")),
                ("b/3", corefile("three.test")),
            ],
        ),
    ];
    for (main, files) in cases {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for (name, text) in files {
            let name = if name.is_empty() { main } else { name };
            let text = text.replace("DIR", folder.path().to_str().unwrap());
            fs::write(folder.path().join(name), text).unwrap();
        }
        let toml = import(&folder.path().join(main), None).map(|imported| imported.toml);
        let toml = toml.unwrap_or_else(|error| panic!("{error}"));
        for domain in ["one.test", "two.test", "three.test"] {
            assert!(toml.contains(&format!("domain = \"{domain}\"")), "{main}: {domain}\n{toml}");
        }
    }
}

#[test]
fn variables_of_an_included_lua_file_are_resolved() {
    let (folder, path) = file("kresd.conf", "servers = '192.0.2.1'\ndofile('more')\n");
    let forward = "policy.add(policy.all(policy.FORWARD(servers)))\n";
    for (assignment, is_forwarded) in [("", true), ("servers = '192.0.2.2'\n", false)] {
        fs::write(folder.path().join("more"), format!("{assignment}{forward}")).unwrap();
        let toml = import(&path, None).unwrap().toml;
        assert_eq!(toml.contains("\naddress = \"192.0.2.1\"\n"), is_forwarded, "{toml}");
    }
    // The file of a `dofile` within an expression is not read.
    let (_folder, path) = file("kresd.conf", "local servers = dofile('gone')\n");
    let notes = import(&path, None).unwrap().notes;
    let is_noted = |note: &Note| note.changes_answers() && note.to_string().contains("dofile");
    assert!(notes.iter().any(is_noted), "{notes:#?}");
}

#[test]
fn recursor_conf_like_deep_yaml_is_read_as_lines() {
    let (_folder, path) = file("recursor.conf", &("? ".repeat(30_000) + "x"));
    let notes = import(&path, None).unwrap().notes;
    assert!(notes.iter().any(Note::changes_answers), "{notes:#?}");
}

#[test]
fn invalid_corefile_arguments_are_noted() {
    let cases = [
        (".:53", "dns64 foobar { prefix fd64::/96 }", "dns64 foobar", Some("fd64::/96")),
        (".:53", "dns64 fd64::/96 fd65::/96", "dns64 fd64::/96 fd65::/96", None),
        (".:53", "dns64 { prefix fd64::/96 fd65::/96 }", "prefix fd64::/96 fd65::/96", None),
        (".:53", "dns64 { prefix }", "prefix", None),
        (".:53", "dns64 { allow_ipv4 yes }", "allow_ipv4 yes", Some("64:ff9b::/96")),
        (".:53", "dns64 { translate_all no }", "translate_all no", Some("64:ff9b::/96")),
        (".:port", "dns64", ".:port", Some("64:ff9b::/96")),
        (".:53", "forward . 192.0.2.1 { policy fastest }", "policy fastest", None),
        (".:53", "cache { serve_stale long }", "serve_stale long", None),
    ];
    for (zone, plugin, wanted, prefix) in cases {
        let plugin = plugin.replace("{ ", "{\n").replace(" }", "\n}");
        let (_folder, path) = file("Corefile", &format!("{zone} {{\n{plugin}\n}}\n"));
        let Imported { toml, notes } = import(&path, None).unwrap();
        let lost = notes.iter().filter(|note| note.changes_answers()).map(ToString::to_string);
        assert!(lost.into_iter().any(|note| note.contains(&format!(": {wanted}"))), "{notes:#?}");
        if let Some(prefix) = prefix {
            assert!(toml.contains(&format!("prefix = \"{prefix}\"")), "{plugin}:\n{toml}");
        }
    }
}

#[test]
fn a_prefix_over_the_well_known_one_has_its_own_note() {
    let cases = [
        ("Corefile", ".:53 {\ndns64 {\nprefix PREFIX\n}\n}\n"),
        ("named.conf", "options { dns64 PREFIX { }; };\n"),
        ("unbound.conf", "server:\nmodule-config: 'dns64 iterator'\ndns64-prefix: PREFIX\n"),
        ("recursor.conf", "dns64-prefix=PREFIX\n"),
    ];
    for (name, text) in cases {
        for (prefix, why) in [
            ("64:ff9b::/32", "it contains the well-known prefix 64:ff9b::/96"),
            ("64:ff9b::/72", "not an RFC 6052 prefix"),
            ("64:ff9b::1/96", "not an RFC 6052 prefix"),
        ] {
            let (_folder, path) = file(name, &text.replace("PREFIX", prefix));
            let notes = import(&path, None).unwrap().notes;
            let is_noted = notes.iter().any(|note| note.to_string().contains(why));
            assert!(is_noted, "{name} {prefix}: {notes:#?}");
        }
    }
}

#[test]
fn sequential_policy_becomes_the_listed_order() {
    let forward =
        |policy: &str| format!(".:53 {{\nforward . 192.0.2.1 192.0.2.2 {{\n{policy}\n}}\n}}\n");
    for (policy, is_listed) in
        [("policy sequential", true), ("policy random", false), ("policy round_robin", false)]
    {
        let toml = settings("Corefile", &forward(policy));
        assert_eq!(toml.contains("[forwarding]\norder = \"listed\""), is_listed, "{toml}");
    }
}

#[test]
fn query_limits_of_tcp_connections_are_carried_over() {
    let cases = [
        ("recursor.conf", "max-concurrent-requests-per-tcp-connection=20\n"),
        ("recursor.yml", "incoming:\n  max_concurrent_requests_per_tcp_connection: 20\n"),
        ("kresd.conf", "net.tcp_pipeline(20)\n"),
        ("kresd.yaml", "network:\n  tcp-pipeline: 20\n"),
    ];
    for (name, text) in cases {
        let toml = settings(name, text);
        assert!(toml.contains("[limits]\ntcp-pipeline = 20"), "{name}:\n{toml}");
    }
    let (_folder, path) = file("kresd.conf", "net.tcp_pipeline(65535)\n");
    let Imported { toml, notes } = import(&path, None).unwrap();
    assert!(toml.contains("\ntcp-pipeline = 10000\n"), "{toml}");
    assert!(notes.iter().any(|note| note.to_string().contains("10000 is used")), "{notes:#?}");
}

#[test]
fn synthesis_for_queries_with_cd_is_noted() {
    let cases = [
        ("named.conf", "options { dns64 64:ff9b::/96 { }; };\n", true),
        ("recursor.conf", "dns64-prefix=64:ff9b::/96\n", true),
        ("Corefile", ".:53 {\ndns64\n}\n", true),
        ("unbound.conf", "server:\n  module-config: \"dns64 iterator\"\n", false),
        ("kresd.conf", "dns64.config('64:ff9b::')\n", false),
        ("named.conf", "options { };\n", false),
        ("Corefile", ".:53 {\ncache\n}\n", false),
    ];
    for (name, text, is_noted) in cases {
        let (_folder, path) = file(name, text);
        let notes = import(&path, None).unwrap().notes;
        let found = notes.iter().any(|note| note.to_string().contains("CD=1"));
        assert_eq!(found, is_noted, "{name}: {notes:#?}");
    }
}

/// Returns the imported configuration without its comments.
fn settings(name: &str, text: &str) -> String {
    let (_folder, path) = file(name, text);
    let toml = import(&path, None).unwrap_or_else(|error| panic!("{text}\n{error}")).toml;
    let lines = toml.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn unbound_keywords_end_at_their_colon() {
    let spaced = "server:\n  interface: ::1\n  verbosity: 1\n  access-control: 10.0.0.0/8 allow\n  \
        access-control: fd00::/8 allow\nforward-zone:\n  name: \".\"\n  forward-addr: 2001:db8::53\n\
        server:\n  module-config: \"dns64 validator iterator\"\n  dns64-prefix: fd64::/96\n";
    let wanted = settings("unbound.conf", spaced);
    assert!(wanted.contains("fd64::/96") && wanted.contains("2001:db8::53"), "{wanted}");
    let tight = "\u{feff}server:interface:::1 verbosity:1\naccess-control:10.0.0.0/8 allow\n\
        access-control:fd00::/8 allow\nforward-zone:name:\".\" forward-addr:2001:db8::53\n\
        server:module-config:\"dns64 validator iterator\"\nserver:dns64-prefix:fd64::/96\n";
    let on_more_lines = spaced.replace(": fd64::/96", ":\n    # the prefix\n    fd64::/96");
    for text in [tight, &on_more_lines] {
        assert_eq!(settings("unbound.conf", text), wanted, "{text}");
    }
}

/// Returns the domains of the `[[forward]]` entries in a result.
fn forwards(toml: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(toml).unwrap();
    let all = table.get("forward").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    all.iter().map(|entry| entry["domain"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn unbounds_built_in_local_zones_are_kept() {
    let of = |lines: &str| {
        let root = "forward-zone:\n  name: .\n  forward-addr: 192.0.2.1\n";
        let (_folder, path) = file("unbound.conf", &format!("server:\n{lines}{root}"));
        let Imported { toml, notes } = import(&path, None).unwrap();
        let table: toml::Table = toml::from_str(&toml).unwrap();
        let lost = notes.iter().filter(|note| note.changes_answers()).count();
        (table["local-zones"].clone(), forwards(&toml), lost)
    };
    // Unbound has no built-in zone named `local`.
    let (zones, forwards, lost) = of("");
    assert_eq!((zones, lost), (toml::Value::Boolean(true), 0));
    assert_eq!(forwards, [".", "local"]);

    let listed = |lines: &str, notes: usize| {
        let (zones, forwards, lost) = of(lines);
        assert_eq!(lost, notes, "{lines}");
        let zones = zones.as_array().unwrap().clone();
        (zones.iter().map(|zone| zone.as_str().unwrap().to_owned()).collect::<Vec<_>>(), forwards)
    };
    for (name, kind, notes) in [
        ("10.in-addr.arpa", "nodefault", 0),
        ("\"Test.\"", "nodefault", 0),
        ("home.arpa", "transparent", 1),
    ] {
        let (zones, forwards) = listed(&format!("  local-zone: {name} {kind}\n"), notes);
        let left_out = name.trim_matches('"').trim_end_matches('.').to_ascii_lowercase();
        let wanted: Vec<String> =
            standard_local_zones().filter(|zone| *zone != left_out && zone != "local").collect();
        assert_eq!((zones, forwards), (wanted, Vec::new()), "{name}");
    }
    let (zones, _) = listed("  unblock-lan-zones: yes\n", 0);
    let loopback = format!("1{}.ip6.arpa", ".0".repeat(31));
    assert_eq!(zones, ["test", "home.arpa", "service.arpa", "127.in-addr.arpa", &loopback]);

    // In dns64d, a local zone that blocks its names still blocks them, and a note mentions the zone's type.
    let (zones, forwards, lost) = of("  local-zone: 10.in-addr.arpa static\n");
    assert_eq!((zones, lost, forwards.len()), (toml::Value::Boolean(true), 1, 2));
    let (zones, forwards, lost) = of("  local-zone: local. static\n");
    assert_eq!((zones, lost, forwards.len()), (toml::Value::Boolean(true), 1, 0));
}

#[test]
fn powerdns_reverse_zones_become_local_zones() {
    let of = |name: &str, text: &str| {
        let (_folder, path) = file(name, text);
        let Imported { toml, notes } = import(&path, None).unwrap();
        let is_noted = notes.iter().any(|note| note.to_string().contains("serve-rfc"));
        let is_default = !text.contains("rfc6303") && !text.contains("serve-rfc1918=no");
        assert_eq!(is_noted, is_default, "{text}: {notes:#?}");
        let table: toml::Table = toml::from_str(&toml).unwrap();
        let zones = table.get("local-zones").and_then(|zones| zones.as_array()).cloned();
        let zones = zones.unwrap_or_default();
        zones.iter().map(|zone| zone.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Private IPv4 addresses and loopback: 4 + 15 zones. Other: 6 IPv4 zones and 8 IPv6 zones.
    for (name, text, count) in [
        ("recursor.conf", "threads=1\n", 33),
        ("recursor.conf", "serve-rfc6303=yes\n", 33),
        ("recursor.conf", "serve-rfc6303\n", 33),
        ("recursor.conf", "serve-rfc6303=no\n", 19),
        ("recursor.conf", "serve-rfc1918=yes\nserve-rfc6303=off\n", 19),
        ("recursor.conf", "serve-rfc1918=yes\n", 33),
        ("recursor.conf", "serve-rfc1918=no\n", 0),
        ("recursor.conf", "serve-rfc1918=no\nserve-rfc6303=yes\n", 0),
        ("recursor.yml", "recursor:\n  serve_rfc6303: true\n", 33),
        ("recursor.yml", "recursor:\n  serve_rfc6303: false\n", 19),
    ] {
        let zones = of(name, text);
        assert_eq!(zones.len(), count, "{text}: {zones:?}");
        let has = |zone: &str| zones.iter().any(|known| known == zone);
        assert_eq!(has("10.in-addr.arpa") && has("127.in-addr.arpa"), count > 0, "{text}");
        assert_eq!(has("254.169.in-addr.arpa") && has("d.f.ip6.arpa"), count == 33, "{text}");
        assert!(!has("64.100.in-addr.arpa") && !has("test"), "{text}: {zones:?}");
    }
}

#[test]
fn powerdns_handling_of_queries_without_rd_is_noted() {
    for (name, text, wanted) in [
        ("recursor.conf", "threads=1\n", ":1: allow-no-rd=no (default since 5.0): "),
        ("recursor.conf", "threads=1\nallow-no-rd=no\n", ":2: allow-no-rd=no: "),
        ("recursor.conf", "threads=1\nallow-no-rd=yes\n", ":2: allow-no-rd=yes: "),
        ("recursor.yml", "incoming:\n  allow_no_rd: true\n", ":2: allow-no-rd=true: "),
    ] {
        let (_folder, path) = file(name, text);
        let notes = import(&path, None).unwrap().notes;
        let of_rd: Vec<&Note> =
            notes.iter().filter(|note| note.to_string().contains("RD=0")).collect();
        let is_noted = |note: &&Note| note.changes_answers() && note.to_string().contains(wanted);
        assert!(of_rd.len() == 1 && of_rd.iter().all(is_noted), "{text}: {notes:#?}");
    }
}

#[test]
fn opened_parts_of_unbounds_local_zones_are_forwarded() {
    let of = |lines: &str| {
        let root = "forward-zone:\n  name: .\n  forward-addr: 192.0.2.1\n";
        let (_folder, path) = file("unbound.conf", &format!("server:\n{lines}{root}"));
        let Imported { toml, notes } = import(&path, None).unwrap();
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        (forwards(&toml), notes)
    };
    let (all, _) =
        of("  local-zone: 1.10.in-addr.arpa transparent\n  local-zone: onion nodefault\n");
    assert_eq!(all, [".", "local", "1.10.in-addr.arpa", "onion"]);

    let inside = "forward-zone:\n  name: 2.10.in-addr.arpa\n  forward-addr: 192.0.2.9\n";
    let (all, notes) = of(inside);
    assert_eq!(all, [".", "2.10.in-addr.arpa", "local"]);
    let is_noted = |notes: &[String]| notes.iter().any(|note| note.contains("answers 10.in-addr"));
    assert!(is_noted(&notes), "{notes:#?}");
    for open in ["10.in-addr.arpa nodefault", "2.10.in-addr.arpa transparent"] {
        let (all, notes) = of(&format!("  local-zone: {open}\n{inside}"));
        assert!(all.contains(&"2.10.in-addr.arpa".to_owned()) && !is_noted(&notes), "{notes:#?}");
    }
}

#[test]
fn wildcards_do_not_match_hidden_files() {
    let zone = |name: &str| format!("forward-zone:\n  name: {name}\n  forward-addr: 192.0.2.1\n");
    let (folder, path) = file("unbound.conf", "include: \"d/*.conf\"\n");
    let included = folder.path().join("d");
    fs::create_dir(&included).unwrap();
    fs::write(included.join("a.conf"), zone("shown.test")).unwrap();
    fs::write(included.join(".hidden.conf"), zone("hidden.test")).unwrap();
    std::os::unix::fs::symlink("user@host.1:2", included.join(".#a.conf")).unwrap();
    let toml = import(&path, None).unwrap().toml;
    assert!(toml.contains("shown.test") && !toml.contains("hidden.test"), "{toml}");
}

#[test]
fn zones_of_link_local_addresses_are_carried_over() {
    let cases = [
        ("named.conf", "options { forwarders { AT; }; listen-on-v6 { OWN; }; };\n"),
        (
            "unbound.conf",
            "server:\n  interface: OWN\nforward-zone:\n  name: .\n  forward-addr: AT@5353\n",
        ),
        ("recursor.conf", "local-address=OWN\nforward-zones-recurse=.=[AT]:5353\n"),
        (
            "kresd.conf",
            "net.listen('OWN', 53)\npolicy.add(policy.all(policy.FORWARD('AT@5353')))\n",
        ),
        ("Corefile", ".:53 {\n  bind OWN\n  forward . [AT]:5353\n}\n"),
        ("mtd64-ng.conf", "nameserver AT\n"),
    ];
    for (name, text) in cases {
        let own = |address: &str| address.replace("::1", "::9");
        let imported = |address: &str| {
            let (_folder, path) =
                file(name, &text.replace("OWN", &own(address)).replace("AT", address));
            import(&path, None).unwrap()
        };
        for address in ["fe80::1%eth0", "fe80::1%3"] {
            let toml = imported(address).toml;
            assert!(toml.contains(&format!("\naddress = \"{address}\"\n")), "{name}:\n{toml}");
            let listens = toml.contains(&format!("\"[{}]:53\"", own(address)));
            assert!(listens || name.starts_with("mtd64"), "{name}:\n{toml}");
        }
        let Imported { toml, notes } = imported("fe80::1");
        assert!(!toml.contains("fe80"), "{name}:\n{toml}");
        let lost = |note: &&Note| note.changes_answers() && note.to_string().contains("interface");
        assert!(notes.iter().any(|note| lost(&note)), "{name}: {notes:#?}");
    }
}

#[test]
fn kresd_management_sockets_do_not_affect_answers() {
    for (kind, is_lost) in
        [("control", false), ("webmgmt", false), ("tls", true), ("doh2", true), ("new", true)]
    {
        let text = format!("net.listen('/run/kresd/1', nil, {{ kind = '{kind}' }})\n");
        let (_folder, path) = file("kresd.conf", &text);
        let notes = import(&path, None).unwrap().notes;
        let note = notes.iter().find(|note| note.to_string().contains("net.listen"));
        assert_eq!(note.map(Note::changes_answers), Some(is_lost), "{kind}: {notes:#?}");
    }
}

#[test]
fn kresd_variables_are_resolved_or_noted() {
    let all = "policy.add(policy.all(policy.FORWARD('192.0.2.53')))";
    let policy = |domains: &str| {
        format!("policy.add(policy.suffix(policy.STUB({{'192.0.2.44'}}), {domains}))\n{all}\n")
    };
    let wanted = settings("kresd.conf", &policy("policy.todnames({'corp.example'})"));
    assert!(wanted.contains("corp.example"), "{wanted}");
    for assignment in [
        "inside = policy.todnames({'corp.example'})\n",
        "local inside = {todname('corp.example')}\n",
    ] {
        assert_eq!(settings("kresd.conf", &(assignment.to_owned() + &policy("inside"))), wanted);
    }
    let unknown = ["inside", "policy.todnames(inside)", "{todname(inside)}", "config.inside"];
    for domains in unknown {
        let (_folder, path) = file("kresd.conf", &policy(domains));
        let Imported { toml, notes } = import(&path, None).unwrap();
        assert!(!toml.contains("inside"), "{domains}:\n{toml}");
        let lost =
            |note: &Note| note.changes_answers() && note.to_string().contains(":1: policy.add(");
        assert!(notes.iter().any(lost), "{domains}: {notes:#?}");
    }
}

/// Creates a file in a temporary folder, and returns both.
fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    (folder, path)
}
