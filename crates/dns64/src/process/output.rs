//! Standard output.

use std::io::{self, Write};

/// Writes to standard output. Who has read enough and is gone is no error.
///
/// # Errors
/// If it cannot be written, for instance to a full disk.
pub(super) fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Characters of a line of a comment.
const WIDTH: usize = 100;

/// A list as a comment of a configuration file, with its title and in lines of at most [`WIDTH`]
/// characters as far as its words fit into a line.
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
}
