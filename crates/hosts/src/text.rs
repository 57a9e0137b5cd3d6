//! Functions that sanitize texts from hosts and servers for terminals and reports.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// Maximum number of characters that are shown from a message of a host or a server.
pub const MESSAGE: usize = 4_000;

/// Removes escape sequences (ECMA-48 §5.3, §5.4, §8.3.89), control characters and direction-changing characters. Line
/// ends remain, and tabs become spaces. Then truncates the text to `most` characters. If the text was truncated, the
/// number of removed characters is appended.
pub fn plain(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut kept = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let c = match c {
            '\u{1b}' => {
                skip_sequence(&mut chars);
                continue;
            }
            // The following control characters are short forms of escape sequences: U+009B stands
            // for ESC [. U+0090, U+0098 and U+009D to U+009F stand for ESC P, ESC X, ESC ], ESC ^
            // and ESC _.
            '\u{9b}' => {
                skip_control_sequence(&mut chars);
                continue;
            }
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => {
                skip_string(&mut chars);
                continue;
            }
            '\t' => ' ',
            '\n' => c,
            _ if c.is_control() || is_direction(c) => continue,
            _ => c,
        };
        if kept == most {
            let left = chars.count() + 1;
            out.push_str(&format!("… ({left} more characters)"));
            return out;
        }
        out.push(c);
        kept += 1;
    }
    out
}

/// Returns the same text as [`plain`], but on a single line: line ends become spaces.
pub fn plain_line(text: &str, most: usize) -> String {
    plain(text.trim_end(), most).replace('\n', " ")
}

/// Removes control and direction-changing characters, except line ends and tabs. Reports contain
/// names and outputs of servers, and these can contain such characters.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    if text.contains(is_hidden) {
        Cow::Owned(text.chars().filter(|c| !is_hidden(*c)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// True for control characters and for characters that change the direction of writing.
pub fn is_hidden(c: char) -> bool {
    c.is_control() || is_direction(c)
}

/// True for characters that change the direction of writing. Such characters can make a text look
/// like a different text.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Skips the rest of an escape sequence after ESC.
fn skip_sequence(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        Some('P' | 'X' | ']' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        _ => {
            // Other escape sequences consist of intermediate characters and a final character.
            while chars.next_if(|c| (' '..='/').contains(c)).is_some() {}
            chars.next_if(|c| ('0'..='~').contains(c));
        }
    }
}

/// Skips the parameters, the intermediate characters and the final character of a control sequence.
fn skip_control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| (' '..='?').contains(c)).is_some() {}
    chars.next_if(|c| ('@'..='~').contains(c));
}

/// Skips a control string up to its terminator (BEL or ST) or the end of the line. An unterminated
/// string must not hide the lines after it.
fn skip_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next_if(|&c| c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                chars.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_controls_do_not_reach_the_terminal() {
        for (text, shown) in [
            ("plain, ü, 例", "plain, ü, 例"),
            ("two\nlines\tand a tab\r\n", "two\nlines and a tab\n"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}[2J\u{1b}[Hcleared", "cleared"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("\u{9b}31mC1\u{9d}0;t\u{9c}!", "C1!"),
            ("\u{1b}P1;2|dcs\u{1b}\\x", "x"),
            ("never ended \u{1b}]0;title\nnext line", "never ended \nnext line"),
            ("charset \u{1b}(B, reset \u{1b}c.", "charset , reset ."),
            ("bell\u{7} back\u{8}space nul\0 del\u{7f}", "bell backspace nul del"),
            ("abc\u{202e}dcba", "abcdcba"),
            ("cut\u{1b}", "cut"),
        ] {
            assert_eq!(plain(text, 100), shown, "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_with_a_note() {
        assert_eq!(plain("12345", 5), "12345");
        assert_eq!(plain("1234567", 5), "12345… (2 more characters)");
        let long = plain(&"x".repeat(3 << 20), MESSAGE);
        assert!(long.len() < 2 * MESSAGE, "{}", long.len());
        assert_eq!(plain_line("one\ntwo\n", 100), "one two");
    }
}
