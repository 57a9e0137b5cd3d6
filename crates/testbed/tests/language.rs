//! Checks the repository's English against the word lists and limits of `docs/style-guide.md`.

mod rust_source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rust_source::literal;

/// Largest share of doc comments that begin with a free relative clause, in per cent.
const OPENERS: f64 = 1.0;
/// Maximum number of words for persons in doc comments, per 1 000 words.
const PERSONS: f64 = 0.3;
/// Maximum number of verbs of speech and thought in doc comments, per 1 000 words.
const SPEECH: f64 = 0.8;
/// Maximum number of archaic phrases in doc comments, per 1 000 words.
const ARCHAIC: f64 = 0.3;
/// Maximum number of words from the lists in messages or on a page, per 1 000 words.
const IN_TEXT: f64 = 1.0;
/// Largest share of test names that have more than [`NAME_LEN`] characters, in per cent.
const LONG_NAMES: f64 = 2.0;
const NAME_LEN: usize = 60;
/// Largest mean length of a page's sentences, in words.
const MEAN_SENTENCE: f64 = 20.0;
/// Largest share of a page's sentences that have more than [`LONG_SENTENCE`] words, in per cent.
const LONG_SENTENCES: f64 = 3.0;
const LONG_SENTENCE: usize = 35;
/// Longest sentence of a page, in words.
const LONGEST_SENTENCE: usize = 40;
/// Minimum number of sentences of a checked page.
const FEW_SENTENCES: usize = 5;
/// Minimum number of words of a message. Shorter string literals count as names.
const MESSAGE_WORDS: usize = 4;
/// Maximum number of places that the report of a failure shows for each figure.
const SHOWN: usize = 12;

#[test]
fn the_repository_follows_the_style_guide() {
    let (root, rules) = (root(), Rules::read());
    let mut report = Report::default();
    let product = sources(&root.join("crates"), |path| {
        let text = path.to_string_lossy();
        text.contains("/src/") && !text.contains("/tests/") && !text.ends_with("/tests.rs")
    });
    check_doc_comments(&mut report, &rules, &product);
    check_messages(&mut report, &rules, &product);
    check_test_names(&mut report, &sources(&root.join("crates"), |_| true));
    check_pages(&mut report, &rules, &root);
    report.assert();
}

/// rustdoc shows all text on the line of a heading as part of the heading.
#[test]
fn headings_of_sections_stand_alone() {
    let root = root();
    for folder in ["crates", "xtask"] {
        for (path, text) in sources(&root.join(folder), |_| true) {
            for (number, line) in text.lines().enumerate() {
                let comment = line.trim_start().trim_start_matches(['/', '!']).trim_start();
                let rest = ["# Errors", "# Panics", "# Safety"]
                    .iter()
                    .find_map(|heading| comment.strip_prefix(heading));
                assert!(
                    rest.is_none_or(str::is_empty),
                    "{}:{}: {line}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// The rules must suit good prose that was written without them.
#[test]
fn the_crate_domain_follows_the_rules_for_doc_comments() {
    let mut report = Report::default();
    let folder = registry_source("domain");
    let product = sources(&folder.join("src"), |path| !path.ends_with("tests.rs"));
    assert!(product.len() > 50, "{}: {} files", folder.display(), product.len());
    check_doc_comments(&mut report, &Rules::read(), &product);
    report.assert();
}

#[test]
fn each_rule_finds_its_fault() {
    let rules = Rules::read();
    let long = format!("#[test]\nfn {}() {{}}", "a".repeat(61));
    for (text, faults) in [
        ("/// What the kernel dropped.\nfn a() {}", 1),
        ("/// Datagrams that somebody sent.\nfn a() {}", 1),
        ("//! The server is told a prefix.\n", 1),
        ("/// Reads it anew.\n", 1),
        ("/// Datagrams dropped by the kernel, whose count is read.\nfn a() {}", 0),
        ("/// ```\n/// What a test does.\n/// ```\nfn a() {}", 0),
        ("const A: &str = \"nobody answers at this address\";", 1),
        ("const A: &str = r#\"the \"server\" is told a prefix\"#;", 1),
        ("const A: &str = \"no reply: {told} and {nobody:?} at {}\";", 0),
        ("const A: char = '\"'; // nobody is told \"a b c d\"", 0),
        ("#[cfg(test)]\nmod tests { const A: &str = \"nobody answers at this address\"; }", 0),
        (&*long, 1),
    ] {
        let mut report = Report::default();
        let files = BTreeMap::from([(PathBuf::from("a.rs"), text.to_owned())]);
        check_doc_comments(&mut report, &rules, &files);
        check_messages(&mut report, &rules, &files);
        check_test_names(&mut report, &files);
        assert_eq!(report.faults.len(), faults, "{text}");
    }
}

/// Figures that exceed their limits.
#[derive(Default)]
struct Report {
    faults: Vec<String>,
}

impl Report {
    fn check(&mut self, what: &str, value: f64, limit: f64, places: &[String]) {
        if value > limit {
            let shown = places.iter().take(SHOWN).map(|place| format!("\n    {place}"));
            self.faults
                .push(format!("{what}: {value:.1}, limit {limit}{}", String::from_iter(shown)));
        }
    }

    fn assert(&self) {
        let faults = self.faults.join("\n");
        assert!(faults.is_empty(), "text breaks the rules of docs/style-guide.md:\n{faults}");
    }
}

/// The lists of the style guide, in lower case.
struct Rules(BTreeMap<String, Vec<String>>);

impl Rules {
    fn read() -> Rules {
        let guide = fs::read_to_string(root().join("docs/style-guide.md")).unwrap();
        let (_, lists) = guide.rsplit_once("```text").unwrap();
        let list = |line: &str| {
            let (name, words) = line.split_once(": ")?;
            Some((name.to_owned(), words.split(", ").map(str::to_lowercase).collect()))
        };
        Rules(lists.lines().filter_map(list).collect())
    }

    fn list(&self, name: &str) -> &[String] {
        self.0.get(name).unwrap_or_else(|| panic!("the style guide has no list {name}"))
    }

    fn is_opener(&self, text: &str) -> bool {
        words(text).next().is_some_and(|first| self.list("openers").contains(&first))
    }

    /// Returns the number of occurrences of the phrases in a list. Allowed phrases do not count.
    fn count(&self, list: &str, text: &str) -> usize {
        let text: String = words(text).map(|word| format!(" {word} ")).collect();
        let allowed = self.list("allowed");
        let counted = self.list(list).iter().filter(|phrase| !allowed.contains(phrase));
        counted
            .map(|phrase| text.matches(&format!(" {} ", phrase.replace(' ', "  "))).count())
            .sum()
    }

    /// Returns the number of occurrences of the phrases in all lists except the openers.
    fn count_all(&self, text: &str) -> usize {
        ["persons", "speech", "archaic"].iter().map(|list| self.count(list, text)).sum()
    }
}

fn check_doc_comments(report: &mut Report, rules: &Rules, files: &BTreeMap<PathBuf, String>) {
    let of_file = |(path, text): (&PathBuf, &String)| {
        let place = move |(line, text): (usize, String)| {
            let place = format!("{}:{line}: {}", path.display(), start(&text));
            (place, text)
        };
        doc_comments(without_tests(text)).into_iter().map(place).collect::<Vec<_>>()
    };
    let comments: Vec<_> = files.iter().flat_map(of_file).collect();
    let opened = comments.iter().filter(|(_, text)| rules.is_opener(text));
    let opened: Vec<_> = opened.map(|(place, _)| place.clone()).collect();
    let share = percent(opened.len(), comments.len());
    report.check("doc comments that begin with a free relative, %", share, OPENERS, &opened);
    let total = comments.iter().map(|(_, text)| words(text).count()).sum();
    for (list, limit) in [("persons", PERSONS), ("speech", SPEECH), ("archaic", ARCHAIC)] {
        let count = comments.iter().map(|(_, text)| rules.count(list, text)).sum();
        let hit = comments.iter().filter(|(_, text)| rules.count(list, text) > 0);
        let hit: Vec<_> = hit.map(|(place, _)| place.clone()).collect();
        let what = format!("doc comments: {list} per 1000 words");
        report.check(&what, per_mille(count, total), limit, &hit);
    }
}

fn check_messages(report: &mut Report, rules: &Rules, files: &BTreeMap<PathBuf, String>) {
    let (mut count, mut total, mut hit) = (0, 0, Vec::new());
    for (path, text) in files {
        for literal in literals(without_tests(text)) {
            let literal = without_arguments(&literal);
            let (len, found) = (words(&literal).count(), rules.count_all(&plain(&literal)));
            if len >= MESSAGE_WORDS {
                (count, total) = (count + found, total + len);
                let place = || format!("{}: {}", path.display(), start(&literal));
                hit.extend((found > 0).then(place));
            }
        }
    }
    let what = "messages: persons, speech and archaic per 1000 words";
    report.check(what, per_mille(count, total), IN_TEXT, &hit);
}

fn check_test_names(report: &mut Report, files: &BTreeMap<PathBuf, String>) {
    let names: Vec<_> = files.values().flat_map(|text| test_names(text)).collect();
    let long: Vec<_> = names.iter().filter(|name| name.len() > NAME_LEN).cloned().collect();
    let share = percent(long.len(), names.len());
    report.check("test names above 60 characters, %", share, LONG_NAMES, &long);
}

fn check_pages(report: &mut Report, rules: &Rules, root: &Path) {
    let mut pages = files_below(&root.join("docs"), "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    // The style guide quotes what it forbids.
    for page in pages.into_iter().filter(|page| !page.ends_with("style-guide.md")) {
        let sentences = sentences(&fs::read_to_string(&page).unwrap());
        if sentences.len() < FEW_SENTENCES {
            continue;
        }
        let page = page.strip_prefix(root).unwrap().display();
        let lengths: Vec<_> = sentences.iter().map(|sentence| words(sentence).count()).collect();
        let total: usize = lengths.iter().sum();
        let long = |sentence: &&String| words(sentence).count() > LONG_SENTENCE;
        let long: Vec<_> = sentences.iter().filter(long).cloned().collect();
        let hit = sentences.iter().filter(|sentence| rules.count_all(sentence) > 0);
        let hit: Vec<_> = hit.cloned().collect();
        let count = sentences.iter().map(|sentence| rules.count_all(sentence)).sum();
        let longest = *lengths.iter().max().unwrap_or(&0);
        for (what, value, limit, places) in [
            ("long sentences, %", percent(long.len(), lengths.len()), LONG_SENTENCES, &long),
            ("words per sentence", total as f64 / lengths.len() as f64, MEAN_SENTENCE, &long),
            ("words of the longest sentence", longest as f64, LONGEST_SENTENCE as f64, &long),
            ("persons, speech and archaic per 1000 words", per_mille(count, total), IN_TEXT, &hit),
        ] {
            report.check(&format!("{page}: {what}"), value, limit, places);
        }
    }
}

/// Returns the blocks of `///` and `//!` lines without code fences, each with the number of its
/// first line.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut kind, mut fenced) = (None, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let of_kind = |mark| {
            let rest = line.strip_prefix(mark)?;
            (!rest.starts_with('/')).then_some((mark, rest))
        };
        let Some((mark, rest)) = of_kind("///").or_else(|| of_kind("//!")) else {
            (kind, fenced) = (None, false);
            continue;
        };
        if kind != Some(mark) {
            kind = Some(mark);
            found.push((number + 1, String::new()));
        }
        if rest.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && let Some((_, block)) = found.last_mut() {
            block.push_str(rest);
            block.push(' ');
        }
    }
    found.iter_mut().for_each(|(_, text)| *text = plain(text));
    found.retain(|(_, text)| !text.trim().is_empty());
    found
}

/// Returns the text before the module of unit tests.
fn without_tests(text: &str) -> &str {
    let begins_module = |at: &usize| {
        let mut rest = text[*at..].lines().skip(1).map(str::trim_start);
        let item = rest.find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("mod ") && line.contains('{'))
    };
    let end = text.match_indices("#[cfg(test)]").map(|(at, _)| at).find(begins_module);
    &text[..end.unwrap_or(text.len())]
}

/// Returns the contents of the string literals in Rust source code.
fn literals(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(len) = literal(rest) {
            found.extend(content(&rest[..len]));
            len
        } else {
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    found
}

/// Returns the content of a string literal. Unless the literal is raw, `\n` and all other
/// backslashes are replaced by blanks. Returns `None` for other literals.
fn content(literal: &str) -> Option<String> {
    let (prefix, quoted) = literal.split_once('"')?;
    let (inner, _) = quoted.rsplit_once('"')?;
    match prefix.trim_start_matches('b') {
        "" => Some(inner.replace("\\n", " ").replace('\\', " ")),
        raw if raw.starts_with('r') => Some(inner.to_owned()),
        _ => None,
    }
}

/// Returns a format string without the names of its arguments.
fn without_arguments(literal: &str) -> String {
    let mut pieces = literal.split('{');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        text + "{}" + piece.split_once('}').map_or(piece, |(_, after)| after)
    })
}

/// Returns the names of the functions marked `#[test]`.
fn test_names(text: &str) -> Vec<String> {
    let name = |after: &str| {
        let (before, after) = after.split_once("fn ")?;
        let is_attribute =
            |line: &str| line.is_empty() || line.starts_with("#[") || line == "async";
        let name = after.split('(').next()?.to_owned();
        before.lines().map(str::trim).all(is_attribute).then_some(name)
    };
    text.split("#[test]").skip(1).filter_map(name).collect()
}

/// Returns the sentences of a page that have three words or more. Tables, headings and code are
/// skipped.
fn sentences(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let mut found = Vec::new();
    for paragraph in prose.split("\n\n").map(str::trim_start) {
        let is_prose = !paragraph.starts_with(['|', '#', '<']) && !paragraph.contains("|---");
        for item in items(paragraph).iter().filter(|_| is_prose) {
            split_sentences(&plain(item), &mut found);
        }
    }
    found.retain(|sentence| words(sentence).count() >= 3);
    found
}

/// Returns the list items of a paragraph.
fn items(paragraph: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    for line in paragraph.lines().map(str::trim_start) {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = digits.strip_prefix(". ").filter(|_| digits != line);
        let body = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered);
        if body.is_some() {
            items.push(String::new());
        }
        if let Some(item) = items.last_mut() {
            item.push_str(body.unwrap_or(line));
            item.push(' ');
        }
    }
    items
}

fn split_sentences(text: &str, found: &mut Vec<String>) {
    let mut start = 0;
    for (at, _) in text.match_indices(['.', '!', '?']) {
        let after = &text[at + 1..];
        let begins = |c: char| c.is_uppercase() || matches!(c, '"' | '\'' | '(');
        if after.starts_with(' ') && after.trim_start().starts_with(begins) {
            found.push(text[start..=at].trim().to_owned());
            start = at + 1;
        }
    }
    found.push(text[start..].trim().to_owned());
}

/// Removes code, the targets of links, and Markdown syntax.
fn plain(text: &str) -> String {
    let pieces = text.split('`').enumerate();
    let text: String = pieces.map(|(i, piece)| if i % 2 == 0 { piece } else { "X" }).collect();
    let mut links = text.split("](");
    let mut plain = links.next().unwrap_or_default().to_owned();
    for link in links {
        plain.push_str(link.split_once(')').map_or("", |(_, after)| after));
    }
    plain.replace(['[', ']', '*', '_', '#', '>'], " ")
}

/// Returns the words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphabetic() && !matches!(c, '\'' | '’' | '-'))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()))
        .map(str::to_lowercase)
}

fn start(text: &str) -> String {
    text.trim().chars().take(100).collect()
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn per_mille(part: usize, whole: usize) -> f64 {
    1000.0 * part as f64 / whole.max(1) as f64
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the text of each Rust file below a folder for which `is_wanted` is true.
fn sources(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> BTreeMap<PathBuf, String> {
    let files = files_below(folder, "rs").into_iter().filter(|path| is_wanted(path));
    files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the folder of a dependency's sources in cargo's registry.
fn registry_source(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.args(["metadata", "--format-version", "1", "--offline"]);
    let output = cargo.current_dir(root()).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == name).unwrap();
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}
