//! A reader of Rust source code for the tests of this folder.

/// Returns the length, in octets, of the string, the character literal or the quote of a lifetime
/// at the start of `rest`. Returns `None` for any other text.
pub(crate) fn literal(rest: &str) -> Option<usize> {
    let after_b = rest.strip_prefix('b').unwrap_or(rest);
    let before = rest.len() - after_b.len();
    if let Some(raw) = after_b.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = hashes + 1;
            return Some(before + 1 + from + raw[from..].find(&end)? + end.len());
        }
    }
    let quote = after_b.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut escaped = false;
    let end = after_b.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    let len = end.map_or(after_b.len(), |(at, _)| at + 1);
    // A single character or an escape is a character literal. Otherwise it is a lifetime, and its
    // name is a token.
    let is_character =
        quote == '"' || after_b[1..].starts_with('\\') || after_b[1..len - 1].chars().count() == 1;
    Some(before + if is_character { len } else { 1 })
}
