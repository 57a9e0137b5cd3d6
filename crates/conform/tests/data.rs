//! Tests of the report formats: JSON against its schema, and JUnit, HTML, Markdown and text against files in
//! `tests/golden`. `BLESS=1 cargo test -p conform --test data` rewrites the files.

use std::path::Path;

use conform::check::Level;
use conform::outcome::{Outcome, Report, Shown, Verdict};
use conform::show::{html, junit, markdown, terminal};
use schemars::generate::SchemaSettings;

fn outcome(id: &str, source: &str, level: Level, verdict: Verdict, reason: &str) -> Outcome {
    let exchange = Shown {
        dig: "dig @192.0.2.1 -p 53 x1.all-rcode-3.conform.example AAAA +ignore".into(),
        reply: "NOERROR, id 7, flags qr rd ra\n;; answer\nx1.conform.example. 300 IN TXT \"<b>&\""
            .into(),
        took_ms: 1.25,
    };
    Outcome {
        id: id.into(),
        title: format!("{id} requires this | here"),
        source: source.into(),
        sentence: if source == "hardening" { String::new() } else { "It says <so>.".into() },
        level,
        verdict,
        reason: reason.into(),
        setting: None,
        contradicts: None,
        exchanges: if verdict == Verdict::Failed { vec![exchange] } else { Vec::new() },
    }
}

/// Returns the reports of two servers. The reports contain every level and verdict, a pair of checks that contradict
/// each other, and a check that was run on one server only. They also contain text that must be escaped in markup and
/// on a terminal.
fn reports() -> [Report; 2] {
    use Level::{Hardening, May, Must, Says, Should};
    use Verdict::{Failed, NotOffered, NotTried, Passed};
    let s512 = "RFC 6147 §5.1.2";
    let mut first = Report {
        server: "dns64d <1>".into(),
        version: "0.2.0".into(),
        prefixes: vec!["64:ff9b::/96".into()],
        outcomes: vec![
            outcome("rfc6147-5.1.2-passed", s512, Must, Passed, ""),
            outcome(
                "rfc6147-5.1.2-one-fails",
                s512,
                Must,
                Passed,
                "passed on the second attempt \
                only",
            ),
            outcome(
                "rfc6147-5.1.2-all-fail",
                s512,
                Must,
                Failed,
                "the RCODE is <script>alert('x')</script>\u{1b}[31m\u{0} & *no* _code_",
            ),
            outcome("rfc6147-5.5-validates", "RFC 6147 §5.5", Must, NotOffered, "it does not"),
            outcome("rfc2308-5-view", "RFC 2308 §5", Should, NotTried, "needs --auth-status"),
            outcome("rfc2308-7-says", "RFC 2308 §7", Says, Passed, ""),
            outcome("rfc8914-2-may", "RFC 8914 §2", May, Failed, "no extended error"),
            outcome("rfc6147-5.3.1-like-this", "RFC 6147 §5.3.1", Should, Passed, ""),
            outcome(
                "hardening-like-that",
                "hardening",
                Hardening,
                Failed,
                "it does as the RFC says",
            ),
        ],
        duration_s: 1.5,
    };
    first.outcomes[7].contradicts = Some("hardening-like-that".into());
    first.outcomes[8].contradicts = Some("rfc6147-5.3.1-like-this".into());
    let mut second = first.clone();
    second.server = "other".into();
    second.version = String::new();
    second.prefixes.push("3fff::/96".into());
    second.outcomes[1] = outcome("rfc6147-5.1.2-one-fails", s512, Must, Failed, "it is silent");
    second.outcomes[7].verdict = Failed;
    second.outcomes[7].reason = "it does as our advice says".into();
    second.outcomes[8] = outcome("hardening-like-that", "hardening", Hardening, Passed, "");
    second.outcomes.remove(5);
    [first, second]
}

/// Compares the text with the file. With `BLESS=1`, writes the file instead.
fn golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("it has a parent folder")).expect("a folder");
        std::fs::write(&path, text).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{} differs; BLESS=1 cargo test -p conform --test data; it is now:\n{text}",
        path.display()
    );
}

#[test]
fn json_matches_its_schema() {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let schema = serde_json::to_value(generator.into_root_schema_for::<Vec<Report>>()).unwrap();
    let value = serde_json::to_value(reports()).unwrap();
    jsonschema::validate(&schema, &value).unwrap();
    let read: Vec<Report> = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(read, reports(), "the written report can be parsed");
    let mut wrong = value;
    wrong[0]["outcomes"][0]["verdict"] = "green".into();
    assert!(jsonschema::validate(&schema, &wrong).is_err());
}

#[test]
fn junit_is_read_by_pipelines() {
    let xml = junit::junit(&reports());
    golden("report.xml", &xml);
    // The first server has one failure, and the second has two. These outcomes are not failures: a MAY that is not
    // implemented, advice that is not followed, and a sentence whose opposite is our advice and is followed.
    for count in
        ["tests=\"17\"", "failures=\"3\"", "skipped=\"8\"", "failures=\"1\"", "failures=\"2\""]
    {
        assert!(xml.contains(count), "{count}: {xml}");
    }
    // If only a MAY and our advice fail, there is no failure.
    let [mut report, _] = reports();
    report.outcomes.retain(|outcome| !matches!(outcome.level, Level::Must | Level::Should));
    assert!(report.outcomes.iter().any(|outcome| outcome.verdict == Verdict::Failed));
    assert!(junit::junit(&[report]).contains("failures=\"0\""));
    assert!(!xml.contains("<script>") && !xml.contains('\u{1b}') && !xml.contains('\u{0}'));
}

#[test]
fn the_page_needs_nothing_else_and_escapes_everything() {
    let page = html::page(&reports());
    golden("scoreboard.html", &page);
    for foreign in ["<script", "http:", "https:", "<link", "url(", "@import", "\u{1b}", "\u{0}"] {
        assert!(!page.contains(foreign), "{foreign:?}");
    }
    for (markup, end) in [
        ("<table", "</table>"),
        ("<details", "</details>"),
        ("<tr", "</tr>"),
        ("<td", "</td>"),
        ("<div", "</div>"),
    ] {
        assert_eq!(page.matches(markup).count(), page.matches(end).count(), "{markup}");
    }
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in the page"));
    assert!(at("<h2>MUST</h2>") < at("<h2>SHOULD, RFC says</h2>"));
    assert!(at("rfc6147-5.1.2-all-fail") < at("rfc6147-5.1.2-one-fails"), "more failures first");
    assert!(at("rfc6147-5.1.2-one-fails") < at("rfc6147-5.1.2-passed"), "failures first");
    let conflicts = &page[at("Checks that contradict each other")..];
    assert_eq!(conflicts.matches("class=\"pair\"").count(), 1, "each pair once");
    let of = |text| conflicts.find(text).unwrap();
    assert!(of("rfc6147-5.3.1-like-this") < of("hardening-like-that"), "the RFC's sentence first");
}

#[test]
fn a_page_of_no_server_is_a_page() {
    let page = html::page(&[]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
}

#[test]
fn the_table_in_markdown() {
    let text = markdown::scoreboard(&reports());
    golden("scoreboard.md", &text);
    assert!(text.contains("rfc2308-5-view"), "checks that were not tried are listed");
    assert!(text.contains("not run"), "checks that were run on one server only are listed");
}

#[test]
fn the_text_on_a_terminal() {
    let [report, _] = reports();
    let text = terminal::text(&report);
    golden("report.txt", &text);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in the text"));
    assert!(at("MUST, failed: 1") < at("By section"), "failures come first");
    assert!(text.contains("MAY, not done: 1") && text.contains("Not tried: 1"), "{text}");
    assert!(text.ends_with("Of MUST, 1 failed and 2 passed; 1 not offered.\n"), "{text}");
    assert!(!text.contains('\u{1b}'));
}

/// The table of labels in the book equals the one in the code.
#[test]
fn the_book_has_the_labels() {
    let code = include_str!("../src/label.rs");
    let book = include_str!("../../../docs/src/conformance.md");
    let rows = code
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| row.replace("[`EVIL4`] or [`EVIL6`]", "6.6.6.6 or 2001:666::666"));
    let missing: Vec<String> = rows.filter(|row| !book.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/src/conformance.md lacks\n{}", missing.join("\n"));
}
