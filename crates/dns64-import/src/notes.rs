//! Locations (file and line) in another server's configuration, and notes on settings that are not
//! carried over.

use std::fmt;
use std::sync::Arc;

/// Location in a configuration: file and line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    file: Arc<str>,
    line: usize,
}

impl Location {
    /// Creates a location from a file and a line number. The first line has the number 1.
    pub(super) fn new(file: &Arc<str>, line: usize) -> Location {
        Location { file: file.clone(), line }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Note on a setting that is not carried over, or is carried over only in part.
#[derive(Clone, Debug)]
pub struct Note {
    location: Location,
    /// Text of the setting.
    what: String,
    /// Reason why the setting is not carried over, and advice.
    why: String,
    changes_answers: bool,
}

impl Note {
    /// True if some clients may get different answers from dns64d than from the other server.
    pub fn changes_answers(&self) -> bool {
        self.changes_answers
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weight =
            if self.changes_answers { "answers may differ" } else { "no effect on answers" };
        write!(f, "{}: {}: not carried over ({weight}): {}", self.location, self.what, self.why)
    }
}

/// All notes of an import.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Note>);

impl Notes {
    /// Adds a note on a setting that is not carried over and affects answers.
    pub(super) fn answers(&mut self, location: &Location, what: &str, why: impl Into<String>) {
        self.push(location, what, why.into(), true);
    }

    /// Adds a note on a setting that is not carried over and does not affect answers.
    pub(super) fn nothing(&mut self, location: &Location, what: &str, why: impl Into<String>) {
        self.push(location, what, why.into(), false);
    }

    fn push(&mut self, location: &Location, what: &str, why: String, changes_answers: bool) {
        let note = Note { location: location.clone(), what: shortened(what), why, changes_answers };
        self.0.push(note);
    }

    pub(super) fn into_vec(self) -> Vec<Note> {
        self.0
    }
}

/// Converts a text to one line of at most 60 characters: control characters become blanks, and an
/// ellipsis replaces the end of a longer text.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}
