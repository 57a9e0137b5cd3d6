//! Conversion of a server's answers on the control socket to readable text.

use std::fmt::Write;
use std::time::Duration;

use super::explanation::{
    Explanation, PrefixRule, QuestionAsked, RulesApplied, Source, TtlBounds, ZoneInChain,
};
use super::outcomes::{FlushReport, ReloadOutcome, ReloadReport};
use super::status::{PrefixStatus, Status, UpstreamState, UpstreamStatus};
use crate::translation::policy::{Hints, Mode, Select};

/// Width of the label column, in characters.
const LABEL: usize = 11;

/// Appends a line with a label and a text. The function cannot fail, because it writes to a string.
fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "  {label:LABEL$} {text}");
}

/// Formats a duration in whole seconds, for example `1h 2m 3s`.
fn seconds(seconds: u64) -> String {
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// Formats a point in time, given in seconds since 1970.
fn moment(unix_s: u64) -> String {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(unix_s);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Formats the explanation of a reply.
pub(crate) fn explanation(explained: &Explanation) -> String {
    let Explanation { name, rtype, client, rcode, decision, decided_by, rules, .. } = explained;
    let mut out = format!("{name} {rtype} for {client}: {rcode}\n");
    line(&mut out, "why", decision.sentence());
    line(&mut out, "by", &format!("{decided_by} ({})", decision.word()));
    if explained.stale {
        line(&mut out, "", "An expired answer was used (RFC 8767).");
    }
    out.push_str("Rules\n");
    describe_rules(&mut out, rules);
    if !explained.questions.is_empty() {
        out.push_str("Questions\n");
    }
    for question in &explained.questions {
        let asked = format!("{} {}", question.name, question.rtype);
        let _ = writeln!(out, "  {asked}: {}", outcome(question));
    }
    if !explained.chain.is_empty() {
        out.push_str("Chain of trust\n");
    }
    for ZoneInChain { zone, security, key_tags, extended_error: code } in &explained.chain {
        let tags: Vec<String> = key_tags.iter().map(ToString::to_string).collect();
        let tags =
            if tags.is_empty() { String::new() } else { format!("; keys {}", tags.join(", ")) };
        let code = code.map(|code| format!("; EDE {}", extended_error(code))).unwrap_or_default();
        let _ = writeln!(out, "  {zone}: {security}{tags}{code}");
    }
    out.push_str("Answer\n");
    for record in &explained.answer {
        let _ = writeln!(out, "  {} {} {} {}", record.name, record.ttl, record.rtype, record.data);
    }
    if explained.answer.is_empty() {
        out.push_str("  no records\n");
    }
    if let Some(bounds) = &explained.ttl {
        line(&mut out, "TTL", &ttl(bounds));
    }
    for code in &explained.extended_errors {
        line(&mut out, "EDE", &extended_error(*code));
    }
    out
}

/// Names of extended errors by code (RFC 8914 §4 and the IANA registry).
const EXTENDED_ERRORS: [&str; 34] = [
    "Other",
    "Unsupported DNSKEY Algorithm",
    "Unsupported DS Digest Type",
    "Stale Answer",
    "Forged Answer",
    "DNSSEC Indeterminate",
    "DNSSEC Bogus",
    "Signature Expired",
    "Signature Not Yet Valid",
    "DNSKEY Missing",
    "RRSIGs Missing",
    "No Zone Key Bit Set",
    "NSEC Missing",
    "Cached Error",
    "Not Ready",
    "Blocked",
    "Censored",
    "Filtered",
    "Prohibited",
    "Stale NXDOMAIN Answer",
    "Not Authoritative",
    "Not Supported",
    "No Reachable Authority",
    "Network Error",
    "Invalid Data",
    "Signature Expired before Valid",
    "Too Early",
    "Unsupported NSEC3 Iterations Value",
    "Unable to conform to policy",
    "Synthesized",
    "Invalid Query Type",
    "Rate Limited",
    "Over Quota",
    "Negative Trust Anchor",
];

/// Formats the code and name of an extended error.
fn extended_error(code: u16) -> String {
    match EXTENDED_ERRORS.get(usize::from(code)) {
        Some(name) => format!("{code} {name}"),
        None => format!("{code}"),
    }
}

fn describe_rules(out: &mut String, rules: &RulesApplied) {
    if !rules.allowed {
        return line(out, "client", "not in [access] allow");
    }
    let group = rules.group.map_or("in no [[group]]".to_owned(), |n| format!("in [[group]] {n}"));
    line(out, "client", &group);
    let domains = [("[[group.domain]]", &rules.group_domain), ("[[domain]]", &rules.domain)];
    let domains: Vec<String> = domains
        .into_iter()
        .filter_map(|(table, domain)| Some(format!("{table} {}", domain.as_deref()?)))
        .collect();
    let within = if domains.is_empty() { "in no domain".to_owned() } else { domains.join(", ") };
    line(out, "name", &within);
    let prefixes: Vec<String> = rules.prefixes.iter().map(prefix_rule).collect();
    let prefixes = if prefixes.is_empty() { "none".to_owned() } else { prefixes.join(", ") };
    line(out, "prefixes", &prefixes);
    line(out, "mode", mode(rules.mode));
    let switches = switches(rules);
    if !switches.is_empty() {
        line(out, "also", &switches.join(", "));
    }
    let upstreams: Vec<String> = rules.upstreams.iter().map(ToString::to_string).collect();
    let forward = rules.forward.as_ref().map(|domain| format!(" ([[forward]] {domain})"));
    line(out, "upstreams", &format!("{}{}", upstreams.join(", "), forward.unwrap_or_default()));
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Strict => "strict: A records are queried whenever there are no AAAA records",
        Mode::NodataOnly => "nodata-only: A records are queried only after NODATA",
        Mode::Timeout => "timeout: A records are queried after NODATA or a timeout",
    }
}

/// Returns a text for each configuration key with a value other than its default.
fn switches(rules: &RulesApplied) -> Vec<&'static str> {
    let all = [
        (rules.ignore_aaaa, "ignore-aaaa"),
        (rules.fallback_native, "fallback-native"),
        (rules.break_dnssec, "break-dnssec"),
        (rules.recursive_only, "recursive-only"),
        (rules.filter_a, "filter-a"),
        (rules.https_hints == Hints::Strip, "https-hints strip"),
        (rules.https_hints == Hints::Translate, "https-hints translate"),
        (rules.select == Select::First, "select first"),
        (rules.select == Select::Spread, "select spread"),
    ];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| word).collect()
}

fn prefix_rule(rule: &PrefixRule) -> String {
    let mut marks: Vec<String> = Vec::new();
    marks.extend(rule.used.then(|| "used".to_owned()));
    marks.extend(rule.draining.then(|| "draining".to_owned()));
    marks.extend(rule.unhealthy.then(|| "unhealthy".to_owned()));
    marks.extend(rule.expires_in_s.map(|left| format!("expires in {}", seconds(left))));
    let name = rule.name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    format!("{}{name}{marks}", rule.prefix)
}

/// Formats the outcome of one of the questions that were resolved to produce a reply.
fn outcome(question: &QuestionAsked) -> String {
    let addresses: Vec<String> = question.addresses.iter().map(ToString::to_string).collect();
    let found = match question.found.as_str() {
        "data" if addresses.is_empty() => "records".to_owned(),
        "data" => addresses.join(", "),
        "no-data" => "no data".to_owned(),
        "no-name" => "name does not exist".to_owned(),
        "alias" => "alias without its target".to_owned(),
        "error" => question.rcode.clone().unwrap_or_else(|| "an error".to_owned()),
        "timeout" => "no answer in time".to_owned(),
        "malformed" => "malformed answer".to_owned(),
        "alias-loop" => "alias loop".to_owned(),
        "overload" => "not queried: too many queries in flight".to_owned(),
        other => other.to_owned(),
    };
    let mut parts = vec![found];
    parts.extend(question.alias_of.as_ref().map(|name| format!("an alias of {name}")));
    parts.extend(question.extended_error.map(|code| format!("EDE {}", extended_error(code))));
    parts.extend(question.probe.then(|| "probe with CD for the reason of the error".to_owned()));
    parts.extend(question.signed.then(|| "signed".to_owned()));
    match &question.security {
        Some(security) => parts.push(security.clone()),
        None => parts.extend(question.authentic.then(|| "validated by the upstream".to_owned())),
    }
    match question.source {
        Source::Cache => {
            let age = question.age_s.map_or(String::new(), |age| format!(", {age} s old"));
            parts.push(format!("from the cache{age}"));
        }
        Source::Upstream => {
            let took = question.took_us;
            parts.push(format!("queried, {}.{} ms", took / 1_000, took % 1_000 / 100));
        }
        Source::Local => parts.push("answered locally".to_owned()),
        Source::Nobody => {}
    }
    parts.extend(question.ttl_s.map(|left| format!("{left} s left")));
    parts.extend(question.stale.then(|| "expired".to_owned()));
    parts.join("; ")
}

fn ttl(bounds: &TtlBounds) -> String {
    let TtlBounds { a_s, denial_s, prefix_s } = bounds;
    let prefix = prefix_s.map(|left| format!(", prefix {left} s")).unwrap_or_default();
    let least = (*a_s).min(*denial_s).min(prefix_s.unwrap_or(u32::MAX));
    format!(
        "{least} s, the lowest of: A records {a_s} s, negative AAAA answer {denial_s} s{prefix}"
    )
}

/// Formats the status of a server.
pub(crate) fn status(status: &Status) -> String {
    let mut out = format!("dns64d {}, process {}\n", status.version, status.pid);
    let (started, uptime) = (moment(status.started_unix_s), seconds(status.uptime_s));
    line(&mut out, "since", &format!("{started}, {uptime}"));
    let configuration = &status.configuration;
    let loaded = moment(configuration.loaded_unix_s);
    let text =
        format!("{}, loaded {loaded}, {} reloads", configuration.file, configuration.reloads);
    line(&mut out, "settings", &text);
    let plain = status.addresses.iter().map(ToString::to_string);
    let encrypted = status.encrypted_addresses.iter();
    let encrypted = encrypted.map(|one| format!("{} ({})", one.address, one.transport));
    let addresses: Vec<String> = plain.chain(encrypted).collect();
    line(&mut out, "serves", &addresses.join(", "));
    for interface in &status.xdp {
        line(&mut out, "", interface);
    }
    if let Some(address) = status.metrics_address {
        line(&mut out, "metrics", &format!("http://{address}/metrics"));
    }
    let dnssec = if status.validates { "answers are validated" } else { "no validation" };
    line(&mut out, "DNSSEC", dnssec);
    out.push_str("Prefixes\n");
    for prefix in &status.prefixes {
        let _ = writeln!(out, "  {}", prefix_status(prefix));
    }
    if status.awaits_prefix {
        out.push_str("  none discovered yet: answers that need one are SERVFAIL\n");
    } else if status.prefixes.is_empty() {
        out.push_str("  none: translation is off\n");
    }
    out.push_str("Upstreams\n");
    for upstream in &status.upstreams {
        let _ = writeln!(out, "  {}", upstream_status(upstream));
    }
    describe_counters(&mut out, status);
    out
}

fn prefix_status(prefix: &PrefixStatus) -> String {
    let PrefixStatus { prefix, name, announced_by, expires_in_s, draining, health, health_for_s } =
        prefix;
    let mut parts = Vec::new();
    parts.extend((!announced_by.is_empty()).then(|| format!("by {}", announced_by.join(", "))));
    parts.extend(expires_in_s.map(|left| format!("for {}", seconds(left))));
    parts.extend(draining.then(|| "draining".to_owned()));
    let since = health_for_s.map(|long| format!(" for {}", seconds(long))).unwrap_or_default();
    parts.extend(health.as_ref().map(|health| format!("{health}{since}")));
    let name = name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join("; ")) };
    format!("{prefix}{name}{parts}")
}

fn upstream_status(upstream: &UpstreamStatus) -> String {
    let UpstreamStatus { address, name, queries, answers, failures, timeouts, .. } = upstream;
    let name = name.as_ref().map(|name| format!(" '{name}'")).unwrap_or_default();
    let state = match upstream.state {
        UpstreamState::Up => "up".to_owned(),
        UpstreamState::MarkedDown => {
            let long = seconds(upstream.down_for_s.unwrap_or_default());
            let reason = upstream.down_reason.as_deref().unwrap_or("unknown reason");
            let workers = match upstream.down {
                1 => "1 worker".to_owned(),
                workers => format!("{workers} workers"),
            };
            format!("marked down for {long} by {workers} ({reason}), probed")
        }
        UpstreamState::WithoutSignatures => {
            "returns no DNSSEC signatures, queried only if all others are down".to_owned()
        }
    };
    format!(
        "{address}{name}: {state}; {queries} queries, {answers} answers, {failures} failures ({timeouts} timeouts)"
    )
}

/// Appends the most important counters of a status.
fn describe_counters(out: &mut String, status: &Status) {
    let family = |name: &str| status.counters.get(name).into_iter().flatten();
    let sum = |name: &str| family(name).map(|(_, count)| count).sum::<u64>();
    let parts = |name: &str| {
        let some = family(name).filter(|(_, count)| **count > 0);
        let some: Vec<String> = some.map(|(label, count)| format!("{label} {count}")).collect();
        if some.is_empty() { String::new() } else { format!(" ({})", some.join(", ")) }
    };
    out.push_str("Counters since the start\n");
    for (label, name) in [
        ("queries", "queries"),
        ("replies", "replies"),
        ("synthesized", "synthesized"),
        ("not synth.", "not_synthesized"),
        ("denied", "denied"),
        ("defects", "defects"),
    ] {
        line(out, label, &format!("{}{}", sum(name), parts(name)));
    }
    let cache = status.cache;
    let text = format!("{} answers, {} MiB", cache.entries, cache.bytes >> 20);
    line(out, "cache", &format!("{text}{}", parts("cache_lookups")));
    line(out, "waiting", &status.in_flight.to_string());
}

/// Formats the result of a reload. The reason for a rejection is printed as an error.
pub(crate) fn reload(report: &ReloadReport) -> String {
    let mut out = String::new();
    if report.outcome == ReloadOutcome::Refused {
        return out;
    }
    let or_none = |keys: &[String]| match keys {
        [] => "none".to_owned(),
        keys => keys.join(", "),
    };
    let _ = writeln!(out, "Changed keys: {}", or_none(&report.changed));
    if !report.waiting.is_empty() {
        let _ = writeln!(out, "Waiting for a restart: {}", or_none(&report.waiting));
    }
    out
}

/// Formats the result of a removal of answers from the cache.
pub(crate) fn flush(report: &FlushReport) -> String {
    let what = report
        .name
        .as_ref()
        .map_or("The cache".to_owned(), |name| format!("{name} and names below it"));
    format!("{what}: {} cached answers removed\n", report.removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{AnswerRecord, CacheStatus, ConfigurationStatus, EncryptedAddress};
    use crate::control::{FLUSH_VERSION, RELOAD_VERSION};
    use crate::translation::decision::Decision;

    fn rules() -> RulesApplied {
        RulesApplied {
            allowed: true,
            group: Some(2),
            group_domain: None,
            domain: Some("example".into()),
            forward: None,
            upstreams: vec!["192.0.2.53:53".parse().unwrap()],
            prefixes: vec![PrefixRule {
                prefix: "2001:db8:64::/96".into(),
                name: Some("north".into()),
                draining: false,
                unhealthy: false,
                expires_in_s: Some(90),
                used: true,
            }],
            select: Select::All,
            mode: Mode::Strict,
            ignore_aaaa: false,
            fallback_native: false,
            break_dnssec: true,
            recursive_only: false,
            filter_a: false,
            https_hints: Hints::Translate,
        }
    }

    fn question(rtype: &str, found: &str, source: Source) -> QuestionAsked {
        QuestionAsked {
            name: "www.example.".into(),
            rtype: rtype.into(),
            probe: false,
            source,
            took_us: 12_345,
            found: found.into(),
            rcode: Some("NOERROR".into()),
            extended_error: None,
            age_s: Some(31),
            ttl_s: Some(269),
            stale: false,
            signed: false,
            authentic: false,
            security: None,
            alias_of: None,
            addresses: Vec::new(),
        }
    }

    #[test]
    fn an_explanation_is_read_from_top_to_bottom() {
        let addresses = vec!["192.0.2.1".parse().unwrap()];
        let explained = Explanation {
            schema_version: 1,
            name: "www.example.".into(),
            rtype: "AAAA".into(),
            client: "192.0.2.7".parse().unwrap(),
            decision: Decision::TranslatedNoData,
            decided_by: "RFC 6147 §5.1.6".into(),
            rules: rules(),
            questions: vec![
                QuestionAsked {
                    security: Some("secure".into()),
                    ..question("AAAA", "no-data", Source::Cache)
                },
                QuestionAsked { addresses, ..question("A", "data", Source::Upstream) },
            ],
            rcode: "NOERROR".into(),
            extended_errors: vec![29],
            stale: false,
            answer: vec![AnswerRecord {
                name: "www.example.".into(),
                ttl: 90,
                rtype: "AAAA".into(),
                data: "2001:db8:64::c000:201".into(),
            }],
            ttl: Some(TtlBounds { a_s: 269, denial_s: 300, prefix_s: Some(90) }),
            chain: vec![
                ZoneInChain {
                    zone: ".".into(),
                    security: "secure".into(),
                    key_tags: vec![20_326, 7],
                    extended_error: None,
                },
                ZoneInChain {
                    zone: "example.".into(),
                    security: "bogus".into(),
                    key_tags: vec![],
                    extended_error: Some(9),
                },
            ],
        };
        let expected = "www.example. AAAA for 192.0.2.7: NOERROR\n  \
            why         The name has no AAAA records; they are synthesized from its A records.\n  \
            by          RFC 6147 §5.1.6 (translated-no-data)\n\
            Rules\n  \
            client      in [[group]] 2\n  \
            name        [[domain]] example\n  \
            prefixes    2001:db8:64::/96 'north' (used, expires in 1m 30s)\n  \
            mode        strict: A records are queried whenever there are no AAAA records\n  \
            also        break-dnssec, https-hints translate\n  \
            upstreams   192.0.2.53:53\n\
            Questions\n  \
            www.example. AAAA: no data; secure; from the cache, 31 s old; 269 s left\n  \
            www.example. A: 192.0.2.1; queried, 12.3 ms; 269 s left\n\
            Chain of trust\n  \
            .: secure; keys 20326, 7\n  \
            example.: bogus; EDE 9 DNSKEY Missing\n\
            Answer\n  \
            www.example. 90 AAAA 2001:db8:64::c000:201\n  \
            TTL         90 s, the lowest of: A records 269 s, negative AAAA answer 300 s, prefix 90 s\n  \
            EDE         29 Synthesized\n";
        assert_eq!(explanation(&explained), expected);
        let refused = RulesApplied { allowed: false, ..rules() };
        let decision = Decision::Refused;
        let refused = Explanation { rules: refused, decision, answer: vec![], ..explained };
        let text = explanation(&refused);
        assert!(text.contains("not in [access] allow") && text.contains("no records"), "{text}");
    }

    #[test]
    fn reload_and_flush_are_reported_in_words() {
        let report = ReloadReport {
            schema_version: RELOAD_VERSION,
            file: "dns64d.toml".into(),
            outcome: ReloadOutcome::NeedsRestart,
            changed: vec!["dns64.prefixes".into(), "upstream".into()],
            waiting: vec!["listen".into()],
            warnings: Vec::new(),
            error: None,
        };
        let expected = "Changed keys: dns64.prefixes, upstream\nWaiting for a restart: listen\n";
        assert_eq!(reload(&report), expected);
        let outcome = ReloadOutcome::InEffect;
        let unchanged =
            ReloadReport { outcome, changed: vec![], waiting: vec![], ..report.clone() };
        assert_eq!(reload(&unchanged), "Changed keys: none\n");
        assert_eq!(reload(&ReloadReport { outcome: ReloadOutcome::Refused, ..report }), "");
        let report = |name| FlushReport { schema_version: FLUSH_VERSION, name, removed: 3 };
        assert_eq!(
            flush(&report(Some("a.test.".into()))),
            "a.test. and names below it: 3 cached answers removed\n"
        );
        assert_eq!(flush(&report(None)), "The cache: 3 cached answers removed\n");
    }

    #[test]
    fn a_status_names_what_is_in_use() {
        let counters = [("queries", [("udp_aaaa", 7), ("udp_a", 0)])];
        let counters = counters.map(|(family, counts)| {
            let counts = counts.map(|(label, count)| (label.to_owned(), count));
            (family.to_owned(), counts.into())
        });
        let prefix = PrefixStatus {
            prefix: "2001:db8::/96".into(),
            name: None,
            announced_by: vec!["upstreams".into(), "fe80::1%eth0".into()],
            expires_in_s: Some(600),
            draining: false,
            health: Some("healthy".into()),
            health_for_s: Some(5),
        };
        let upstream = UpstreamStatus {
            address: "192.0.2.53:53".parse().unwrap(),
            name: Some("main".into()),
            state: UpstreamState::MarkedDown,
            down_for_s: Some(75),
            down_reason: Some("timeout".into()),
            queries: 9,
            answers: 5,
            failures: 4,
            timeouts: 3,
            down: 2,
        };
        let well = UpstreamStatus {
            address: "[2001:db8::53]:53".parse().unwrap(),
            name: None,
            state: UpstreamState::Up,
            down_for_s: None,
            down_reason: None,
            down: 0,
            ..upstream.clone()
        };
        let unsigned = UpstreamStatus {
            address: "[2001:db8::54]:53".parse().unwrap(),
            state: UpstreamState::WithoutSignatures,
            ..well.clone()
        };
        let mut shown = Status {
            schema_version: 1,
            version: "1.2.3".into(),
            pid: 7,
            started_unix_s: 1_767_322_923,
            uptime_s: 3_661,
            configuration: ConfigurationStatus {
                file: "/etc/dns64d.toml".into(),
                loaded_unix_s: 1_767_322_924,
                reloads: 1,
            },
            addresses: vec!["[::1]:53".parse().unwrap()],
            encrypted_addresses: vec![EncryptedAddress {
                transport: "TLS".into(),
                address: "[::1]:853".parse().unwrap(),
            }],
            xdp: vec!["AF_XDP on eth0 (native, 1 queue)".into()],
            metrics_address: None,
            prefixes: vec![prefix],
            awaits_prefix: false,
            validates: true,
            upstreams: vec![upstream, well, unsigned],
            cache: CacheStatus { entries: 3, bytes: 5 << 20 },
            in_flight: 0,
            counters: counters.into(),
        };
        let text = status(&shown);
        for line in [
            "dns64d 1.2.3, process 7",
            "  since       2026-01-02T03:02:03Z, 1h 1m 1s",
            "  serves      [::1]:53, [::1]:853 (TLS)",
            "  settings    /etc/dns64d.toml, loaded 2026-01-02T03:02:04Z, 1 reloads",
            "  2001:db8::/96: by upstreams, fe80::1%eth0; for 10m; healthy for 5s",
            "  192.0.2.53:53 'main': marked down for 1m 15s by 2 workers (timeout), probed; 9 queries, 5 answers, 4 failures (3 timeouts)",
            "  [2001:db8::53]:53: up; 9 queries, 5 answers, 4 failures (3 timeouts)",
            "  [2001:db8::54]:53: returns no DNSSEC signatures, queried only if all others are down; 9 queries, 5 answers, 4 failures (3 timeouts)",
            "  DNSSEC      answers are validated",
            "  queries     7 (udp_aaaa 7)",
            "  cache       3 answers, 5 MiB",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        shown.awaits_prefix = true;
        assert!(status(&shown).contains("are SERVFAIL"));
    }
}
