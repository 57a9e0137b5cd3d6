//! Values, each with the setting of the imported configuration from which it was derived.

use super::notes::{Location, shortened};

/// A value with the setting of the imported configuration from which it was derived.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub value: T,
    pub origin: Origin,
}

/// Source line and text of a setting. The text is shortened, because it may be as long as a file, and a copy may be
/// needed for each of many `[[group]]` tables.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub location: Location,
    pub words: String,
}

impl Origin {
    pub(super) fn new(location: &Location, words: impl Into<String>) -> Origin {
        let words: String = words.into();
        Origin { location: location.clone(), words: shortened(&words) }
    }

    /// Returns the comment that precedes the setting in the resulting configuration.
    pub(super) fn comment(&self) -> String {
        format!("# {}: {}\n", self.location, self.words)
    }
}
