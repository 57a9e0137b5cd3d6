//! Syntax of an unbound.conf: clauses (`server:`) with one key and its values per line, and includes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::draft::Origin;
use crate::error::ImportError;
use crate::files::{DEEPEST, MOST, called, changed_directory, folder_of, included, read, too_many};
use crate::notes::Location;

/// Names of clauses. Any other word that ends with a colon is a key.
const CLAUSES: &[&str] = &[
    "server",
    "remote-control",
    "forward-zone",
    "stub-zone",
    "auth-zone",
    "view",
    "python",
    "dynlib",
    "dnscrypt",
    "cachedb",
    "ipset",
    "rpz",
    "dnstap",
];
/// A key of unbound.conf with its values.
pub(super) struct Entry {
    pub location: Location,
    pub key: String,
    pub values: Vec<String>,
}

impl Entry {
    pub(super) fn value(&self) -> &str {
        self.values.first().map_or("", String::as_str)
    }

    pub(super) fn written(&self) -> String {
        format!("{}: {}", self.key, self.values.join(" "))
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::new(&self.location, self.written())
    }

    pub(super) fn is_yes(&self) -> bool {
        self.value() == "yes"
    }

    /// True if one of the values, which may be lists of words, contains this word.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.values.iter().flat_map(|value| value.split_whitespace()).any(|known| known == word)
    }
}

/// A clause of an unbound.conf, such as `server:`, with its entries.
pub(super) struct Clause {
    pub location: Location,
    pub name: String,
    pub entries: Vec<Entry>,
}

impl Clause {
    pub(super) fn find(&self, key: &str) -> Option<&Entry> {
        // If a key is repeated, the last entry applies.
        self.entries.iter().rev().find(|entry| entry.key == key)
    }
}

/// The clauses of the imported file and of all included files.
pub(super) struct Clauses {
    pub all: Vec<Clause>,
    /// Number of files included so far.
    files: usize,
    /// Working directory of Unbound, against which relative paths of includes are resolved. A
    /// `directory:` key changes it for the following lines. Unbound's initial working directory is
    /// not stated in the file, so the folder of the imported file is used instead.
    pub directory: PathBuf,
}

impl Clauses {
    /// Reads an unbound.conf and the files that it includes.
    pub(super) fn of(file: &Path) -> Result<Clauses, ImportError> {
        let directory = folder_of(file).to_owned();
        let mut clauses = Clauses { all: Vec::new(), files: 0, directory };
        clauses.read(file, 0)?;
        Ok(clauses)
    }

    /// Reads a file and the files that it includes. A keyword ends with its colon, and its first
    /// value may be on a later line.
    fn read(&mut self, file: &Path, depth: usize) -> Result<(), ImportError> {
        let mut words = words(&read(file)?, &called(file))?;
        while let Some(word) = words.pop_front() {
            let bad = |reason| ImportError::Syntax { location: word.location.clone(), reason };
            let Some((key, rest)) = word.keyword() else {
                return Err(bad(format!("'{}' is not a key: a key ends in ':'", word.text)));
            };
            if !rest.is_empty() {
                let (location, text) = (word.location.clone(), rest.to_owned());
                words.push_front(Word { location, text, is_quoted: false });
            }
            if CLAUSES.contains(&key) {
                let (location, name) = (word.location.clone(), key.to_owned());
                self.all.push(Clause { location, name, entries: Vec::new() });
                continue;
            }
            if key == "dns64" {
                let reason = "Unbound has no clause 'dns64:'; dns64-prefix belongs to 'server:'";
                return Err(bad(reason.to_owned()));
            }
            let values = values(&mut words);
            if matches!(key, "include" | "include-toplevel") {
                values.iter().try_for_each(|named| self.include(named, &word.location, depth))?;
                continue;
            }
            let Some(clause) = self.all.last_mut() else {
                return Err(bad(format!("'{key}:' is not in a clause such as 'server:'")));
            };
            if let ("server", "directory", [named]) = (&*clause.name, key, &values[..]) {
                self.directory = changed_directory(&self.directory, named);
            }
            let (location, key) = (word.location.clone(), key.to_owned());
            clause.entries.push(Entry { location, key, values });
        }
        Ok(())
    }

    /// Reads the files that an `include` entry refers to. A pattern may match no file.
    fn include(
        &mut self,
        named: &str,
        location: &Location,
        depth: usize,
    ) -> Result<(), ImportError> {
        for path in included(&self.directory, named) {
            self.files += 1;
            if depth >= DEEPEST || self.files > MOST {
                return Err(too_many(location));
            }
            self.read(&path, depth + 1).map_err(|error| error.of_include(location))?;
        }
        Ok(())
    }
}

/// A word of an unbound.conf. Quotes around the word are removed.
struct Word {
    location: Location,
    text: String,
    is_quoted: bool,
}

impl Word {
    /// Returns the keyword before the first colon, and the text after the colon. Returns `None` if the word does not
    /// begin with a keyword.
    fn keyword(&self) -> Option<(&str, &str)> {
        let (key, rest) = self.text.split_once(':').filter(|_| !self.is_quoted)?;
        let is_key = key.starts_with(|c: char| c.is_ascii_lowercase())
            && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        is_key.then_some((key, rest))
    }

    /// True if this word, which follows a value, begins a new entry. False if the word is a further
    /// value of the current entry. The first group of an IPv6 address also ends with a colon, but
    /// has only hexadecimal digits.
    fn begins_an_entry(&self) -> bool {
        self.keyword().is_some_and(|(key, rest)| {
            rest.is_empty() || !key.chars().all(|c| c.is_ascii_hexdigit())
        })
    }
}

/// Consumes the values of a keyword: the next word, and all further words on the same line.
fn values(words: &mut VecDeque<Word>) -> Vec<String> {
    let Some(first) = words.pop_front() else { return Vec::new() };
    let is_value = |word: &Word| word.location == first.location && !word.begins_an_entry();
    let more = words.iter().take_while(|word| is_value(word)).count();
    let more = words.drain(..more).map(|word| word.text);
    std::iter::once(first.text.clone()).chain(more).collect()
}

/// Splits the text of a file into words, and removes comments.
fn words(text: &str, name: &Arc<str>) -> Result<VecDeque<Word>, ImportError> {
    let mut words = VecDeque::new();
    for (number, line) in text.lines().enumerate() {
        let location = Location::new(name, number + 1);
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (word, taken) = word(rest).map_err(|quote| ImportError::Syntax {
                location: location.clone(),
                reason: format!("an unmatched {quote}"),
            })?;
            let is_quoted = word.len() < taken;
            words.push_back(Word { location: location.clone(), text: word.to_owned(), is_quoted });
            rest = rest[taken..].trim_start();
        }
    }
    Ok(words)
}

/// Returns the first word of a line without its quotes, and the length of the word including the quotes. A quote ends a
/// keyword, as in `name:"."`. If a quote is not closed, returns the quote character as an error.
fn word(line: &str) -> Result<(&str, usize), char> {
    let quote = |c: char| matches!(c, '"' | '\'');
    if let Some(first) = line.chars().next().filter(|&c| quote(c)) {
        let len = line[1..].find(first).ok_or(first)?;
        return Ok((&line[1..=len], len + 2));
    }
    let end = |(at, c): (usize, char)| {
        let behind_colon = quote(c) && line[..at].ends_with(':');
        (c.is_whitespace() || behind_colon).then_some(at)
    };
    let len = line.char_indices().find_map(end).unwrap_or(line.len());
    Ok((&line[..len], len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_comments_are_removed() {
        let read = |text| {
            let words = words(text, &Arc::from("unbound.conf"));
            words.map(|words| words.into_iter().map(|word| word.text).collect::<Vec<_>>()).ok()
        };
        let some = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(read("  interface: ::1 # loopback"), some(&["interface:", "::1"]));
        assert_eq!(
            read("module-config: \"dns64 iterator\""),
            some(&["module-config:", "dns64 iterator"])
        );
        assert_eq!(read("name:'.'"), some(&["name:", "."]));
        assert_eq!(read("# nothing"), some(&[]));
        assert_eq!(read("chroot: \""), None);
    }
}
