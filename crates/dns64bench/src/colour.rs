//! Colours for verdicts and marks. They are used on a terminal, unless the user has disabled colours.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io::IsTerminal;

use method::verdict::Verdict;

/// Returns true if colours may be used on a stream. The stream must be a terminal that supports control sequences, and
/// the user must not have disabled colours (https://no-color.org).
pub(crate) fn may_colour(stream: &impl IsTerminal) -> bool {
    allowed(has_control_sequences(stream), std::env::var_os("NO_COLOR").as_deref())
}

/// Returns true if a stream is a terminal that supports control sequences. With `TERM=dumb`, no terminal supports them.
pub(crate) fn has_control_sequences(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

fn allowed(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Meaning of a text, which determines its colour (ECMA-48 §8.3.117, select graphic rendition).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Positive result: green.
    Good,
    /// Negative result: red.
    Bad,
    /// Invalid result, or a warning: yellow.
    Doubtful,
}

impl From<Verdict> for Severity {
    fn from(verdict: Verdict) -> Severity {
        match verdict {
            Verdict::Passed => Severity::Good,
            Verdict::Failed => Severity::Bad,
            Verdict::Invalid => Severity::Doubtful,
        }
    }
}

/// A text with or without colour. Format widths apply to the visible characters only.
pub(crate) struct Painted<'a> {
    text: &'a str,
    meaning: Option<Severity>,
}

/// Returns the text in the colour of its meaning, if `stream` is a terminal and the user has not disabled colours.
pub(crate) fn painted<'a>(
    text: &'a str,
    meaning: Severity,
    stream: &impl IsTerminal,
) -> Painted<'a> {
    Painted { text, meaning: may_colour(stream).then_some(meaning) }
}

/// Returns the word for a verdict, coloured if `stream` may be coloured.
pub(crate) fn verdict(verdict: Verdict, stream: &impl IsTerminal) -> Painted<'static> {
    painted(word(verdict), verdict.into(), stream)
}

pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::Invalid => "INVALID",
    }
}

impl Display for Painted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self.meaning {
            None => return f.pad(self.text),
            Some(Severity::Good) => 32,
            Some(Severity::Bad) => 31,
            Some(Severity::Doubtful) => 33,
        };
        write!(f, "\u{1b}[1;{code}m")?;
        f.pad(self.text)?;
        f.write_str("\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_only_on_terminals_without_no_color() {
        assert!(allowed(true, None) && allowed(true, Some(OsStr::new(""))));
        assert!(!allowed(true, Some(OsStr::new("1"))) && !allowed(false, None));
    }

    #[test]
    fn verdicts_have_distinct_colours_and_constant_width() {
        let shown = |meaning| Painted { text: "passed", meaning }.to_string();
        assert_eq!(shown(None), "passed");
        assert_eq!(shown(Some(Severity::Good)), "\u{1b}[1;32mpassed\u{1b}[0m");
        let meanings =
            [Verdict::Passed, Verdict::Failed, Verdict::Invalid].map(|v| shown(Some(v.into())));
        assert!(
            meanings[0] != meanings[1] && meanings[1] != meanings[2] && meanings[0] != meanings[2]
        );
        assert_eq!(format!("{:>8}|", Painted { text: "passed", meaning: None }), "  passed|");
        assert_eq!(
            format!("{:>8}|", Painted { text: "x", meaning: Some(Severity::Bad) }),
            "\u{1b}[1;31m       x\u{1b}[0m|"
        );
    }
}
