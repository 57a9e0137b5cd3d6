//! `docs`: builds the book, and checks the documents of the repository.
//!
//! ```text
//! *.md of the repository ─► headings, links ─► every link leads to a file, every anchor to a heading
//! docs/src ───────────────► mdbook build ────► target/book
//! ```
//!
//! Links to the web are not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::process::root;
use crate::tools;

/// Pages of the book. Links between them must not leave this folder, because nothing else is part of the built book.
const BOOK: &str = "docs/src";
/// Folders without our documents.
const LEFT_OUT: [&str; 5] = ["target", ".git", "corpus", "artifacts", "node_modules"];

/// Checks all documents, then builds the book if mdBook is available; `install` installs it from crates.io.
pub(crate) fn run(install: bool) -> Result<ExitCode> {
    let faults = Documents::read(&root())?.faults();
    for fault in &faults {
        eprintln!("{fault}");
    }
    let mdbook = if install { Some(tools::get("mdbook")?) } else { tools::locate("mdbook") };
    match mdbook {
        Some(program) => build(&program)?,
        None => {
            println!("Not built: mdbook is not installed (cargo xtask docs --install installs it)");
        }
    }
    println!("{} dead links", faults.len());
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build(program: &Path) -> Result<()> {
    let to = root().join("target/book");
    let status = Command::new(program)
        .arg("build")
        .arg(root().join("docs"))
        .arg("--dest-dir")
        .arg(&to)
        .status();
    ensure!(status.context("cannot run mdbook")?.success(), "mdbook build failed");
    println!("The book: {}", to.join("index.html").display());
    Ok(())
}

/// All documents of a repository, by their paths relative to the folder of the repository.
struct Documents {
    root: PathBuf,
    pages: BTreeMap<PathBuf, Page>,
}

/// Headings and links of a document.
#[derive(Debug, Default, PartialEq)]
struct Page {
    /// Anchors of the headings.
    anchors: BTreeSet<String>,
    /// Line number and target of each link.
    links: Vec<(usize, String)>,
}

impl Documents {
    /// Reads every `*.md` below `root`.
    fn read(root: &Path) -> Result<Documents> {
        let mut pages = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)
                .with_context(|| format!("cannot read {}", folder.display()))?
            {
                let entry = entry?;
                let (path, name) = (entry.path(), entry.file_name());
                if entry.file_type()?.is_dir() {
                    if !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                        folders.push(path);
                    }
                } else if path.extension().is_some_and(|e| e == "md") {
                    let text = with_included(&path)?;
                    pages.insert(path.strip_prefix(root)?.to_owned(), Page::parse(&text));
                }
            }
        }
        Ok(Documents { root: root.to_owned(), pages })
    }

    /// Returns a sentence for each fault. Faults are dead links, and pages that are missing from the book's table of
    /// contents.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (path, page) in &self.pages {
            for (line, link) in &page.links {
                if let Some(why) = self.fault_of(path, link) {
                    faults.push(format!("{}:{line}: ({link}) {why}", path.display()));
                }
            }
        }
        let summary = Path::new(BOOK).join("SUMMARY.md");
        let listed: Vec<PathBuf> = self.pages.get(&summary).map_or_else(Vec::new, |page| {
            page.links.iter().filter_map(|(_, link)| resolved(&summary, link)).collect()
        });
        let is_missing =
            |path: &&PathBuf| path.starts_with(BOOK) && **path != summary && !listed.contains(path);
        let missing = self.pages.keys().filter(is_missing);
        faults.extend(
            missing.map(|path| format!("{}: not in {}", path.display(), summary.display())),
        );
        faults
    }

    /// Returns the reason why a link of a page is dead. Returns `None` for valid links and links to
    /// the web.
    fn fault_of(&self, from: &Path, link: &str) -> Option<String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let (file, anchor) =
            link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let Some(to) = (if file.is_empty() { Some(from.to_owned()) } else { resolved(from, file) })
        else {
            return Some("leads out of the repository".into());
        };
        if from.starts_with(BOOK) && !to.starts_with(BOOK) {
            return Some(format!("leads out of {BOOK}, so it would be dead in the built book"));
        }
        if !self.root.join(&to).exists() {
            return Some(format!("leads to {}, which does not exist", to.display()));
        }
        let anchor = anchor?;
        match self.pages.get(&to) {
            Some(page) if page.anchors.contains(anchor) => None,
            Some(_) => Some(format!("{} has no heading with the anchor {anchor}", to.display())),
            None => Some(format!("{} is no document, so it has no anchors", to.display())),
        }
    }
}

impl Page {
    /// Finds headings and links in Markdown, outside code.
    fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut seen = BTreeMap::new();
        for (number, line) in outside_of_code_blocks(text) {
            let line = without_code(line);
            let level = line.bytes().take_while(|&b| b == b'#').count();
            if (1..=6).contains(&level) && line[level..].starts_with(' ') {
                let anchor = anchor_of(&line[level..]);
                let before = seen.entry(anchor.clone()).and_modify(|n| *n += 1).or_insert(0);
                page.anchors.insert(if *before == 0 {
                    anchor
                } else {
                    format!("{anchor}-{before}")
                });
            }
            page.links.extend(links_of(&line).into_iter().map(|link| (number, link.to_owned())));
        }
        page
    }
}

/// Returns the lines of a text that are outside fenced code blocks. Lines are numbered from 1.
fn outside_of_code_blocks(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let start = line.trim_start();
        let ticks = start.bytes().take_while(|&b| b == b'`').count();
        match fence {
            Some(opened) => {
                if ticks >= opened && start[ticks..].trim().is_empty() {
                    fence = None;
                }
                None
            }
            None if ticks >= 3 => {
                fence = Some(ticks);
                None
            }
            None => Some((number + 1, line)),
        }
    })
}

/// Returns a line in which code spans cannot be mistaken for links. The words of code spans remain, because they may be
/// part of a heading's anchor.
fn without_code(line: &str) -> String {
    let in_code = |(number, part): (usize, &str)| match number % 2 {
        0 => part.to_owned(),
        _ => part.replace(['[', ']', '(', ')'], ""),
    };
    line.split('`').enumerate().map(in_code).collect::<Vec<_>>().join("`")
}

/// Returns the targets of `[text](target)` and `![text](target)` in a line, and of `[name]: target`.
fn links_of(line: &str) -> Vec<&str> {
    let mut links: Vec<&str> = line
        .match_indices("](")
        .filter_map(|(at, _)| {
            let inside = line[at + 2..].split_once(')')?.0;
            inside.split_whitespace().next()
        })
        .collect();
    if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        links.extend(target.split_whitespace().next());
    }
    links
}

/// Returns the anchor that GitHub and mdBook generate for a heading: lower case, with hyphens instead of spaces, and
/// without other punctuation.
fn anchor_of(heading: &str) -> String {
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|&c| kept(c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Returns the target of a link as a path relative to the repository's folder, or `None` if it is
/// outside.
fn resolved(from: &Path, link: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Returns the text of a document, including the files that mdBook inserts (`{{#include file}}`).
fn with_included(path: &Path) -> Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut whole = String::new();
    for line in text.lines() {
        match line.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) {
            Some(file) => {
                let file = path.parent().unwrap_or(Path::new("")).join(file);
                let included = fs::read_to_string(&file);
                whole += &included.with_context(|| {
                    format!("{}: cannot read {}", path.display(), file.display())
                })?;
            }
            None => whole += line,
        }
        whole.push('\n');
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_link_of_the_repository_leads_somewhere() {
        let documents = Documents::read(&root()).unwrap();
        assert!(documents.pages.keys().any(|path| path.starts_with(BOOK)), "the book was not read");
        let faults = documents.faults();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Documents::read(folder.path()).unwrap().faults()
    }

    #[test]
    fn dead_links_and_anchors_are_found() {
        let page = "# A `b` c: d\n## Twice\n## Twice\n[x](y.md) [x](README.md#a-b-c-d) [x](#twice-1) [x](#twice-2)\n\
                    `[x](no.md)` [w](https://example.org/z)\n```sh\n[x](no.md)\n# no heading\n```\n\
                    [x](a/y.md#end) [x](a/y.md#begin \"title\") [x](../up.md) [x](f.rs#L1)\n[r]: gone.md\n";
        let found = faults(&[("README.md", page), ("a/y.md", "# End\n"), ("f.rs", "")]);
        let wrong: Vec<&str> = found
            .iter()
            .map(|fault| fault.split_once('(').unwrap().1.split_once(')').unwrap().0)
            .collect();
        assert_eq!(
            wrong,
            ["y.md", "#twice-2", "a/y.md#begin", "../up.md", "f.rs#L1", "gone.md"],
            "{found:#?}"
        );
        assert!(found[1].starts_with("README.md:4: "), "{found:#?}");
    }

    #[test]
    fn pages_of_the_book_are_listed_and_stay_within_it() {
        let found = faults(&[
            ("docs/src/SUMMARY.md", "# S\n- [A](a.md)\n"),
            (
                "docs/src/a.md",
                "[x](../b.md) {{#include ../b.md}}\n{{#include ../b.md}}\n[x](#of-b)\n",
            ),
            ("docs/src/c.md", "# C\n"),
            ("docs/b.md", "# Of B\n"),
        ]);
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(
            found[0].contains("would be dead") && found[1].contains("docs/src/c.md: not in"),
            "{found:#?}"
        );
    }

    /// Maximum size of a results file, in octets. Instead of larger raw data, the repository contains a summary.
    const LARGEST_RESULT: u64 = 100_000;

    #[test]
    fn files_of_results_are_small() {
        for folder in ["bench/results", "docs/src/results"] {
            let mut files = 0;
            for entry in fs::read_dir(root().join(folder)).unwrap() {
                let entry = entry.unwrap();
                let octets = entry.metadata().unwrap().len();
                assert!(
                    octets <= LARGEST_RESULT,
                    "{} has {octets} octets, but at most {LARGEST_RESULT} are allowed: use a summary instead",
                    entry.path().display()
                );
                files += 1;
            }
            assert!(files > 0, "no file in {folder}");
        }
    }

    /// Returns the numbers after `item`, `items` in a text: "item 9", "items 10 and 11", "Items 1 to 17",
    /// "items_14_and_15".
    fn items_cited(text: &str) -> BTreeSet<u32> {
        let lower = text.to_lowercase();
        let mut numbers = BTreeSet::new();
        for (at, word) in lower.match_indices("item") {
            let is_word = !lower[..at].ends_with(|c: char| c.is_alphanumeric());
            let mut rest =
                lower[at + word.len()..].strip_prefix('s').unwrap_or(&lower[at + word.len()..]);
            while let Some(after) = [" and ", ", ", " to ", "_and_", "_to_", " ", "_"]
                .iter()
                .find_map(|s| rest.strip_prefix(s))
            {
                let digits =
                    after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let Ok(number) = after[..digits].parse() else { break };
                if is_word {
                    numbers.insert(number);
                }
                rest = &after[digits..];
            }
        }
        numbers
    }

    #[test]
    fn items_are_found_in_names_and_comments() {
        let text = "fn item_09_x() (items 31, 34, 44). Items 1 to 17 and 24; items_10_and_11_every; items 5000; item x, daitem 7";
        let found: Vec<u32> = items_cited(text).into_iter().collect();
        assert_eq!(found, [1, 9, 10, 11, 17, 24, 31, 34, 44, 5000]);
    }

    #[test]
    fn every_item_that_dns64_cites_has_its_heading() {
        let mut cited = BTreeMap::new();
        let mut folders = vec![root().join("crates/dns64")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    cited.extend(items_cited(&text).into_iter().map(|item| (item, path.clone())));
                }
            }
        }
        assert!(cited.len() > 30, "too few items found: {cited:?}");
        let page =
            Page::parse(&fs::read_to_string(root().join(BOOK).join("dns64-items.md")).unwrap());
        let missing: Vec<_> = cited
            .iter()
            .filter(|(item, _)| !page.anchors.contains(&format!("item-{item}")))
            .collect();
        assert!(missing.is_empty(), "no heading in dns64-items.md: {missing:?}");
    }

    /// Returns the keys of a table of a plan, according to the plan's schema. `path` contains the names of the table's
    /// parents and the name of the table.
    fn keys_of_table(path: &[&str]) -> Vec<String> {
        let file = root().join("schemas/plan.schema.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        // The keys may be behind a reference, in one of several forms, or in the elements of a list.
        let table = |start: &Value| {
            let mut node = start.clone();
            while node["properties"].is_null() {
                let referred = node["$ref"].as_str().and_then(|to| schema.pointer(&to[1..]));
                let form = node["anyOf"].as_array().and_then(|forms| forms.first());
                node = referred.or(form).or(node.get("items")).expect("a table").clone();
            }
            node["properties"].clone()
        };
        let keys = path.iter().fold(table(&schema), |keys, name| table(&keys[*name]));
        keys.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn the_book_has_every_key_of_a_plan() {
        let book = fs::read_to_string(root().join(BOOK).join("campaign.md")).unwrap();
        for heading in [
            "Top level",
            "[ssh]",
            "[ssh.dut]",
            "[ssh.addresses]",
            "[auth]",
            "[[authdns]]",
            "[cpus]",
            "[trial]",
            "[search]",
            "[self-test]",
            "[measure]",
            "[[measure.placements]]",
            "[[self-test.also]]",
            "[[measure.constant-rates]]",
            "[measure.closed-loop]",
            "[dut.measure]",
            "[measure.loads]",
            "[[dut]]",
            "[dut.custom]",
        ] {
            let path = heading.trim_matches(['[', ']']);
            let path: Vec<&str> = path.split('.').filter(|name| *name != "Top level").collect();
            let keys = keys_of_table(&path);
            assert!(keys.len() > 1, "{heading}: {keys:?}");
            let title = if heading.starts_with('[') {
                format!("### `{heading}`\n")
            } else {
                format!("### {heading}\n")
            };
            let (_, section) =
                book.split_once(&title).unwrap_or_else(|| panic!("no section {heading}"));
            let section = section.split("\n### ").next().unwrap();
            for key in keys {
                assert!(section.contains(&format!("| `{key}` |")), "{heading}: no row for {key}");
            }
        }
    }

    #[test]
    fn whole_plans_in_the_book_can_be_read() {
        let mut plans = 0;
        for entry in fs::read_dir(root().join(BOOK)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for block in text.split("```toml\n").skip(1) {
                let block = block.split("```").next().unwrap();
                if block.starts_with("name = ") {
                    campaign::plan::Plan::parse(block, &path).unwrap_or_else(|e| panic!("{e}"));
                    plans += 1;
                }
            }
        }
        assert!(plans > 0, "no plan in the book");
    }

    /// Returns true if a line cites, by a number or a file name, a document that is not part of the repository.
    fn cites_a_stranger(line: &str) -> bool {
        let line = line.to_lowercase();
        let strangers =
            [["design", ".md"], ["methodology", ".md"], ["dns64-server", ".md"], ["peers", ".md"]];
        let numbered = ["seed ", "seed_", "seeds ", "seeds_"].iter().any(|word| {
            line.match_indices(word).any(|(at, _)| {
                let rest = &line.as_bytes()[at + word.len()..];
                rest.len() >= 3 && rest[..3].iter().all(u8::is_ascii_digit)
            })
        });
        numbered || strangers.iter().any(|name| line.contains(&name.concat()))
    }

    #[test]
    fn nothing_cites_a_document_that_is_not_here() {
        assert!(
            cites_a_stranger(&format!("// Seed {}", "001"))
                && !cites_a_stranger("seed 1, seed = 42")
        );
        let listed =
            Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output().unwrap();
        assert!(listed.status.success(), "this test needs git and the repository");
        let mut found = Vec::new();
        for name in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
            let Ok(text) = fs::read_to_string(root().join(name)) else { continue };
            let lines = text.lines().enumerate().filter(|(_, line)| cites_a_stranger(line));
            found.extend(lines.map(|(number, line)| format!("{name}:{}: {line}", number + 1)));
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
