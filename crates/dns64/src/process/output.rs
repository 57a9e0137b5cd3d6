//! Standard output, and text that is safe for a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

/// Writes to standard output. A closed pipe is not an error.
///
/// # Errors
/// Returns an error if writing fails, for instance on a full disk.
pub(super) fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Maximum line width of comments, in characters.
const WIDTH: usize = 100;

/// Formats a list as a comment for a configuration file, with a title. Lines have at most [`WIDTH`]
/// characters unless a single word is longer.
pub(super) fn comment(title: &str, words: &[String]) -> String {
    let mut text = String::new();
    let mut line = format!("# {title}:");
    for (number, word) in words.iter().enumerate() {
        if line.len() + word.len() + 2 > WIDTH {
            text += &(line + "\n");
            line = "#  ".to_owned();
        }
        let comma = if number + 1 < words.len() { "," } else { "" };
        line += &format!(" {word}{comma}");
    }
    text + &line + "\n"
}

/// Writes output of an interactive command, with control characters escaped.
///
/// # Errors
/// Returns the errors of [`print`].
pub(super) fn print_visible(text: &str) -> io::Result<()> {
    print(visible(text).as_bytes())
}

/// Escapes characters that change how a terminal shows other text: control characters except
/// newline, and characters that change the text direction. Arguments, files and answers can contain
/// such characters.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Maximum length of a printed error, in octets. The limit is needed because errors in a
/// configuration repeat the invalid line.
const LONGEST_ERROR: usize = 2_000;

/// Returns an error message, truncated to [`LONGEST_ERROR`] octets and with control characters escaped.
pub(super) fn bounded(error: &str) -> String {
    if error.len() <= LONGEST_ERROR {
        return visible(error).into_owned();
    }
    format!("{} …", visible(&error[..error.floor_char_boundary(LONGEST_ERROR)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_has_short_lines() {
        assert_eq!(comment("zones", &[]), "# zones:\n");
        let words: Vec<String> = (0..50).map(|n| format!("{n}.in-addr.arpa")).collect();
        let text = comment("zones", &words);
        assert!(text.lines().all(|line| line.starts_with('#') && line.len() <= WIDTH), "{text}");
        let joined: String = text.lines().map(|line| line.trim_start_matches('#')).collect();
        let found: Vec<&str> = joined.split_whitespace().skip(1).collect();
        let found: Vec<&str> = found.iter().map(|word| word.trim_end_matches(',')).collect();
        assert_eq!(found, words);
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        for (text, shown) in [
            ("plain, ü, 例\ntwo lines", "plain, ü, 例\ntwo lines"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("\r\t\0\u{7f}\u{9b}", "\\u{d}\\u{9}\\u{0}\\u{7f}\\u{9b}"),
            ("abc\u{202e}cba\u{2066}", "abc\\u{202e}cba\\u{2066}"),
        ] {
            assert_eq!(visible(text), shown, "{text:?}");
        }
    }
}
