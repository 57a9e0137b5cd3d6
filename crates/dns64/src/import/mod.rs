//! `dns64d import`: what the configuration of another DNS64 server says, in the words of ours.
//!
//! ```text
//! file, and what it includes ─► bind, unbound, powerdns, knot_resolver, coredns, mtd64_ng
//!                                 │ statements, lua, tree: what is written, with its lines
//!                                 ├─► Draft ─► the file, with the line that each piece comes from
//!                                 └─► Notes: what is not carried over, and whether answers depend on it
//! ```
//!
//! What is read is what a server does, not only what is written: where its defaults are others than
//! ours (which AAAA records count as none, whether A records are asked for after an error, private
//! addresses below the well-known prefix), ours are written out. Words that nobody here knows are
//! taken for ones that answers depend on.

mod addresses;
mod bind;
mod coredns;
mod draft;
mod error;
mod files;
mod knot_resolver;
mod lua;
mod mtd64_ng;
mod notes;
mod powerdns;
mod statements;
mod tree;
mod unbound;
mod values;

use std::path::Path;

use self::draft::Draft;
pub(crate) use self::error::ImportError;
use self::files::{called, read};
pub(crate) use self::notes::Note;
use crate::config::{LONGEST_FILE, Settings};

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    // The option says what each is; doc comments here would make its help text of another style.
    Bind,
    Unbound,
    Powerdns,
    KnotResolver,
    Coredns,
    Mtd64Ng,
}

/// What came of an import.
#[derive(Debug)]
pub(crate) struct Imported {
    /// The configuration file of ours, which `check` passes.
    pub toml: String,
    /// What is not in it.
    pub notes: Vec<Note>,
}

/// Reads `file`, as `source`'s or whosever it looks like.
///
/// # Errors
/// If a file cannot be read or makes no sense; each message has file and line.
pub(crate) fn import(file: &Path, source: Option<Source>) -> Result<Imported, ImportError> {
    let text = read(file)?;
    let source = match source.or_else(|| Source::of(file, &text)) {
        Some(source) => source,
        None => return Err(ImportError::Whose { file: file.to_owned() }),
    };
    let mut draft = Draft::default();
    let origin = match source {
        Source::Bind => bind::import(file, &mut draft).map(|()| "BIND's"),
        Source::Unbound => unbound::import(file, &mut draft).map(|()| "Unbound's"),
        Source::Powerdns => powerdns::import(file, &mut draft).map(|()| "PowerDNS Recursor's"),
        Source::KnotResolver => knot_resolver::import(file, &mut draft).map(|()| "Knot Resolver's"),
        Source::Coredns => coredns::import(file, &mut draft).map(|()| "CoreDNS's"),
        Source::Mtd64Ng => mtd64_ng::import(file, &mut draft).map(|()| "mtd64-ng's"),
    }?;
    let toml = draft.finish(&format!("{origin} {}", called(file)));
    if toml.len() as u64 > LONGEST_FILE {
        return Err(ImportError::TooLong { file: file.to_owned() });
    }
    checked(&toml, file)?;
    Ok(Imported { toml, notes: draft.notes.into_vec() })
}

/// An upstream that no server is.
const STAND_IN: &str = "\n[[upstream]]\naddress = \"192.0.2.53\"\nport = 9\n";

/// Whether `check` would pass it; where it names no upstream, with one, as that is left to the
/// operator.
fn checked(toml: &str, file: &Path) -> Result<(), ImportError> {
    let has_upstream = toml.lines().any(|line| line == "[[upstream]]");
    let other = if has_upstream { "" } else { STAND_IN };
    match Settings::from_text(&format!("{toml}{other}"), file) {
        Ok(_) => Ok(()),
        Err(error) => Err(ImportError::Fault { file: file.to_owned(), reason: error.to_string() }),
    }
}

impl Source {
    /// Whose configuration a file looks like, by its name or else by what is in it.
    fn of(file: &Path, text: &str) -> Option<Source> {
        let name = file.file_name()?.to_str()?.to_ascii_lowercase();
        let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if is(&["mtd64"]) {
            return Some(Source::Mtd64Ng);
        }
        let by_name = [
            (&["named", "bind"][..], Source::Bind),
            (&["unbound"], Source::Unbound),
            (&["recursor", "pdns"], Source::Powerdns),
            (&["kresd", "knot"], Source::KnotResolver),
            (&["corefile"], Source::Coredns),
        ];
        if let Some((_, source)) = by_name.iter().find(|(words, _)| is(words)) {
            return Some(*source);
        }
        let begins = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
        let by_words = [
            ("options {", Source::Bind),
            ("server:", Source::Unbound),
            ("forward-zones", Source::Powerdns),
            ("recursor:", Source::Powerdns),
            ("net.listen", Source::KnotResolver),
            ("network:", Source::KnotResolver),
            ("dns64-prefix ", Source::Mtd64Ng),
            ("forward . ", Source::Coredns),
        ];
        by_words.iter().find(|(word, _)| begins(word)).map(|(_, source)| *source)
    }
}

#[cfg(test)]
mod tests;
