//! Checks that no files of a crate import each other in a circle, and that docs/ARCHITECTURE.md
//! shows the actual dependencies between the modules of `dns64`, and lists no module that does not exist.
//!
//! ```text
//! src/**.rs ─► tokens, without comments, texts and tests ─► paths: `use` and others ─► file ─► files that it names
//!                                                                                       └─► room ─► rooms
//! ```
//!
//! A path counts as a use of the deepest module that it names, even if that module re-exports the
//! item. Code that exists only in tests is ignored. Macros are read as they are written.

mod rust_source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rust_source::literal;

/// Path of a module from the crate's root. The path of the root is empty.
type Module = Vec<String>;
/// The modules that each module uses.
type Uses<T> = BTreeMap<T, BTreeSet<T>>;

#[test]
fn no_file_imports_in_a_circle() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path()).chain([root().join("xtask")]);
    let mut found = Vec::new();
    for folder in crates {
        for sources in sources(&folder) {
            let circles = circles(&uses(&sources));
            if !circles.is_empty() {
                found.push(format!("{}: {}", folder.display(), lines(&circles)));
            }
        }
    }
    assert!(found.is_empty(), "files import in circles: {}", found.join("\n"));
}

/// Returns one line for each module, with the modules that it uses.
fn lines(uses: &Uses<Module>) -> String {
    let line = |(module, used): (&Module, &BTreeSet<Module>)| {
        let used: Vec<_> = used.iter().map(|module| module.join("::")).collect();
        format!("\n    {} > {}", module.join("::"), used.join(", "))
    };
    uses.iter().map(line).collect()
}

#[test]
fn architecture_draws_the_modules_of_dns64() {
    let drawn = drawn(&read(&root().join("docs/ARCHITECTURE.md")));
    let library = sources(&root().join("crates/dns64")).remove(0);
    let found = rooms(&uses(&library));
    let lines = found
        .iter()
        .map(|(room, used)| format!("{room} ─► {}\n", Vec::from_iter(used.clone()).join(", ")));
    assert!(
        drawn == found,
        "docs/ARCHITECTURE.md must have these lines, in any order:\n{}",
        lines.collect::<String>()
    );
}

#[test]
fn architecture_lists_modules_that_exist() {
    let page = read(&root().join("docs/ARCHITECTURE.md"));
    let (_, table) = page.split_once("| Module |").expect("a table of modules");
    let (table, _) = table.split_once("\n\n").expect("text after the table");
    let crates = root().join("crates");
    let folders: Vec<PathBuf> = std::fs::read_dir(&crates)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .collect();
    let exists = |path: &str| {
        // Crates are in bold, and other paths omit `src/`. The last column shortens paths within a crate.
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let files = [path.to_owned(), format!("{path}.rs")];
        let of_crate = [rest.to_owned(), format!("{rest}.rs")];
        files.iter().any(|file| root().join(file).exists() || crates.join(file).exists())
            || of_crate.iter().any(|file| crates.join(first).join("src").join(file).exists())
            || files.iter().any(|file| folders.iter().any(|folder| folder.join(file).exists()))
    };
    let named = table.lines().skip(1).flat_map(|row| {
        let columns: Vec<&str> = row.trim_matches('|').split('|').collect();
        [columns.first(), columns.last()].map(|column| column.map_or("", |text| text.trim()))
    });
    let named = named.map(|text| text.trim_matches(['`', '*']));
    let unknown: Vec<&str> = named
        .filter(|text| !text.contains([' ', '-', '[']) && !text.is_empty() && !exists(text))
        .collect();
    assert!(unknown.is_empty(), "docs/ARCHITECTURE.md lists {unknown:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the text of each module of a crate: one map for the library and one for the program, if
/// they exist.
fn sources(folder: &Path) -> Vec<BTreeMap<Module, String>> {
    let src = folder.join("src");
    let roots = [src.join("lib.rs"), src.join("main.rs")];
    let existing: Vec<_> = roots.iter().filter(|root| root.exists()).collect();
    existing.iter().map(|root| modules(&src, root, &existing)).collect()
}

/// Returns the text of each module of the library or program with the root file `root`. `src` is
/// the source folder, and `roots` contains all root files in this folder.
fn modules(src: &Path, root: &Path, roots: &[&PathBuf]) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path == root || !roots.contains(&&path) {
                let mut module: Module =
                    path.strip_prefix(src).unwrap().with_extension("").iter().map(text).collect();
                if path == root || module.last().is_some_and(|last| last == "mod") {
                    module.pop();
                }
                modules.insert(module, read(&path));
            }
        }
    }
    modules
}

fn text(part: &std::ffi::OsStr) -> String {
    part.to_str().unwrap().to_owned()
}

/// Returns the other modules that each module refers to. Modules that exist only in tests are
/// skipped.
fn uses(sources: &BTreeMap<Module, String>) -> Uses<Module> {
    let tokens: BTreeMap<&Module, Vec<String>> =
        sources.iter().map(|(module, text)| (module, without_tests(&tokens(text)))).collect();
    let declared: BTreeSet<Module> = tokens
        .iter()
        .flat_map(|(module, tokens)| {
            children(tokens).into_iter().map(|child| below(module, &child))
        })
        .chain([Vec::new()])
        .collect();
    let of = |(module, tokens): (&&Module, &Vec<String>)| {
        let named = paths(module, tokens).into_iter().map(|path| deepest(&path, &declared));
        ((**module).clone(), named.filter(|used| used != *module).collect())
    };
    tokens.iter().filter(|(module, _)| declared.contains(**module)).map(of).collect()
}

fn below(module: &Module, child: &str) -> Module {
    module.iter().cloned().chain([child.to_owned()]).collect()
}

/// Returns the longest prefix of a path that is the path of a module.
fn deepest(path: &[String], modules: &BTreeSet<Module>) -> Module {
    (0..=path.len())
        .rev()
        .map(|len| path[..len].to_vec())
        .find(|module| modules.contains(module))
        .unwrap()
}

/// Splits a text into tokens: names, `::` and single characters. Comments, strings, character
/// literals and lifetimes are skipped.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(len) = literal(rest) {
            len
        } else if first.is_alphanumeric() || first == '_' {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..len].to_owned());
            len
        } else {
            let len = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            if !first.is_whitespace() {
                tokens.push(rest[..len].to_owned());
            }
            len
        };
        rest = &rest[len..];
    }
    tokens
}

/// Returns the tokens without items under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let marks = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].iter().take(marks.len()).eq(marks.iter()) {
            at += marks.len();
            while tokens.get(at).is_some_and(|token| token == "#") {
                at += item_len(&tokens[at..], "]");
            }
            at += item_len(&tokens[at..], ";");
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the number of tokens up to and including the first `end` or `}` that is outside of all
/// brackets.
fn item_len(tokens: &[String], end: &str) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (token == end || token == "}") {
            return i + 1;
        }
    }
    tokens.len()
}

/// Returns the names of the modules declared with `mod name;`.
fn children(tokens: &[String]) -> Vec<String> {
    let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    declared.map(|three| three[1].clone()).collect()
}

/// Returns all paths in `tokens` that lead to items of this crate. Each path begins at the crate's
/// root.
fn paths(module: &Module, tokens: &[String]) -> Vec<Module> {
    let mut known: BTreeMap<String, Module> =
        children(tokens).into_iter().map(|child| (child.clone(), below(module, &child))).collect();
    let mut found = Vec::new();
    for is_use in [true, false] {
        let mut within_use = false;
        for at in 1..tokens.len() {
            let (before, after) = (tokens[at - 1].as_str(), tokens.get(at + 1).map(String::as_str));
            within_use = (within_use || before == "use" && tokens[at] != "<") && before != ";";
            let begins = match is_use {
                true => within_use && before == "use",
                false => !within_use && !matches!(before, "::" | ".") && after == Some("::"),
            };
            if !begins {
                continue;
            }
            let mut leaves = Vec::new();
            tree(tokens, at, &mut Vec::new(), &mut leaves);
            for (path, name) in leaves {
                let Some(path) = absolute(module, &path, &known) else { continue };
                if is_use {
                    known.insert(name, path.clone());
                }
                found.push(path);
            }
        }
    }
    found
}

/// Reads a path with all its branches. Adds each imported item to `leaves`, with the name that it
/// has after the import. Returns the position after the path.
fn tree(
    tokens: &[String],
    mut at: usize,
    before: &mut Vec<String>,
    leaves: &mut Vec<(Module, String)>,
) -> usize {
    let len = before.len();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, before, leaves);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                before.truncate(len);
                return at + 1;
            }
            Some(name) => before.push(name.to_owned()),
            None => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    let mut path = before.clone();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|token| token == "as") {
        name = tokens[at + 1].clone();
        at += 2;
    }
    leaves.push((path, name));
    before.truncate(len);
    at
}

/// Returns the path from the crate's root. Returns `None` if the path leads to a different crate,
/// or is a single name.
fn absolute(module: &Module, path: &[String], known: &BTreeMap<String, Module>) -> Option<Module> {
    let (first, mut rest) = path.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len() - 1].to_vec(),
        name => known.get(name)?.clone(),
    };
    while let Some((_, further)) = rest.split_first().filter(|(next, _)| *next == "super") {
        base.pop();
        rest = further;
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Returns the modules that use themselves through other modules. For each of these modules,
/// returns the modules that it uses and that in turn use it, directly or indirectly.
fn circles<T: Ord + Clone>(uses: &Uses<T>) -> Uses<T> {
    let is_circular = |module: &T| reached(module, uses).contains(module);
    let mut circles = Uses::new();
    for (module, used) in uses.iter().filter(|(module, _)| is_circular(module)) {
        let used = used.iter().filter(|used| reached(*used, uses).contains(module));
        circles.insert(module.clone(), used.cloned().collect());
    }
    circles
}

/// Returns all modules that a module uses directly or through other modules.
fn reached<'a, T: Ord>(module: &'a T, uses: &'a Uses<T>) -> BTreeSet<&'a T> {
    let mut reached: BTreeSet<&T> = BTreeSet::new();
    let mut next: Vec<&T> = uses.get(module).into_iter().flatten().collect();
    while let Some(used) = next.pop() {
        if reached.insert(used) {
            next.extend(uses.get(used).into_iter().flatten());
        }
    }
    reached
}

/// Returns the top-level modules, which are called rooms here. For each room, returns the other
/// rooms that it uses.
fn rooms(uses: &Uses<Module>) -> Uses<String> {
    let mut rooms = Uses::new();
    for (module, used) in uses {
        let Some(room) = module.first() else { continue };
        let others = used.iter().filter_map(|module| module.first()).filter(|other| *other != room);
        rooms.entry(room.clone()).or_insert_with(BTreeSet::new).extend(others.cloned());
    }
    rooms
}

/// Reads the block below "uses these others:" in the document. Returns the top-level modules, and
/// the modules that each of them uses.
fn drawn(document: &str) -> Uses<String> {
    let block = document.split("uses these others:\n").nth(1).expect("the drawing of the rooms");
    let lines =
        block.split("```").nth(1).expect("a block").lines().filter(|line| line.contains('─'));
    let room = |line: &str| {
        let (room, used) = line.split_once('─').unwrap();
        let used =
            used.trim_start_matches(['─', '►', ' ']).split(", ").filter(|used| !used.is_empty());
        (room.trim().to_owned(), used.map(|used| used.trim().to_owned()).collect())
    };
    lines.map(room).collect()
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let of = |parts: &str| {
        parts.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Module>()
    };
    let sources = BTreeMap::from(
        [
            ("", "pub mod a; mod b; #[cfg(test)] mod testing; mod alone;"),
            ("a", "mod c; mod d; pub use self::c::{C, d::D as E, f::{self, G}}; // use crate::b::No;"),
            ("a::c", "use super::super::b; fn f<'a>(x: &'a str) { b::call('\\'', '\"', \"crate::alone::X\") }"),
            ("a::d", "use std::io; fn g() { let c = 1; c.d(); super::c::C::new() }"),
            ("b", "#[cfg(test)]\n#[allow(x)] mod tests { use crate::a::C; } fn h() { #[cfg(test)] crate::a::x(if y { 1 }); }"),
            ("testing", "use crate::alone::Z;"),
            ("alone", "/* crate::a::C */ const R: &str = r#\"crate::b::B\"#;"),
        ]
        .map(|(module, text)| (of(module), text.to_owned())),
    );
    let found = uses(&sources);
    let lines: Vec<String> = found
        .iter()
        .map(|(module, used)| {
            let used: Vec<String> = used.iter().map(|used| used.join("::")).collect();
            format!("{} > {}", module.join("::"), used.join(", "))
        })
        .collect();
    assert_eq!(lines, [" > ", "a > a::c", "a::c > b", "a::d > a::c", "alone > ", "b > "]);
    assert!(circles(&found).is_empty());
    assert_eq!(rooms(&found)["a"], BTreeSet::from(["b".to_owned()]));

    let mut circular = sources.clone();
    circular.insert(of("b"), "use crate::a::d::X;".into());
    let left: Vec<Module> = circles(&uses(&circular)).into_keys().collect();
    assert_eq!(left, [of("a::c"), of("a::d"), of("b")], "a::c uses b, b uses a::d, a::d uses a::c");
}
