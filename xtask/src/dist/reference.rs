//! `dns64d.toml(5)`, generated from the example configuration, which explains every key.
//!
//! ```text
//! # Explanation,          ─► .TP key = default
//! # over several lines.        Explanation, over several lines.
//! key = default
//! [table]                 ─► .SH [TABLE]
//! ```

use std::fmt::Write;

/// Returns the page in roff format.
pub(super) fn page(example: &str, version: &str, date: &str) -> String {
    let mut page = format!(
        ".TH dns64d.toml 5 \"{date}\" \"dns64d {version}\" \"File formats\"\n.SH NAME\ndns64d.toml \\- configuration of dns64d\n\
         .SH DESCRIPTION\n"
    );
    let (head, body) = example.split_once("\n\n").unwrap_or((example, ""));
    // Examples in the file begin with "#|"; in the page they are marked.
    paragraph(&mut page, head.lines().filter(|line| !line.contains("\"#|\"")));
    page += "Keys marked as examples have no default, unless a default is given.\n";
    page += ".SH TOP LEVEL\n";
    for block in body.split("\n\n") {
        write_block(&mut page, block);
    }
    page += ".SH FILES\n.TP\n.I /etc/dns64d/dns64d.toml\nconfiguration of the systemd unit\n.SH SEE ALSO\ndns64d(1), resolv.conf(5)\n";
    page
}

/// Writes a block: the name of a table, if there is one, then comments and the keys below the comments.
fn write_block(page: &mut String, block: &str) {
    let mut lines = block.lines().peekable();
    if let Some(table) = lines.next_if(|line| line.starts_with('[')) {
        let _ = writeln!(page, ".SH {}", escaped(table));
    }
    let mut rest: Vec<&str> = lines.collect();
    while !rest.is_empty() {
        let comments = rest.iter().take_while(|line| is_comment(line)).count();
        let entries = rest[comments..].iter().take_while(|line| !is_comment(line)).count();
        let (comment, keys) =
            (rest[..comments].to_vec(), rest[comments..comments + entries].to_vec());
        rest.drain(..comments + entries);
        // A comment that explains several keys precedes the first of these keys.
        let mut keys = keys.into_iter();
        let Some(first) = keys.next() else {
            paragraph(page, comment.into_iter());
            continue;
        };
        page.push_str(".TP\n");
        for (at, key) in std::iter::once(first).chain(keys).enumerate() {
            if at > 0 {
                page.push_str(".TQ\n");
            }
            let quoted = |key: &str| escaped(key).replace('"', "\\(dq");
            let _ = match key.strip_prefix("#| ") {
                Some(key) => writeln!(page, ".BR \"{}\" \" (example)\"", quoted(key)),
                None => writeln!(page, ".B \"{}\"", quoted(key)),
            };
        }
        paragraph(page, comment.into_iter());
    }
}

/// Returns true for a comment. A line that begins with "#|" is not a comment but a key that is commented out.
fn is_comment(line: &str) -> bool {
    line.starts_with('#') && !line.starts_with("#|")
}

/// Writes comments as running text. Indented lines stay on separate lines.
fn paragraph<'a>(page: &mut String, comments: impl Iterator<Item = &'a str>) {
    for line in comments {
        let text = line.strip_prefix('#').unwrap_or(line);
        let text = text.strip_prefix(' ').unwrap_or(text);
        if text.starts_with(' ') {
            page.push_str(".br\n");
        }
        let _ = writeln!(page, "{}", escaped(text.trim()));
    }
}

/// Escapes text that roff would interpret.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.chars().next() {
        Some('.' | '\'') => format!("\\&{text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_stand_over_their_explanations() {
        let example = "# Head.\n\n# Where it\n# listens.\nlisten = [\"x\"]\n\n[log]\n# Form:\n#   .text or\n#| format = 'text'\nlevel = 1";
        let page = page(example, "1", "2026-01-02");
        let (_, body) = page.split_once(".SH TOP LEVEL\n").unwrap();
        let expected = ".TP\n.B \"listen = [\\(dqx\\(dq]\"\nWhere it\nlistens.\n.SH [log]\n.TP\n.BR \"format = 'text'\" \" (example)\"\n.TQ\n\
                        .B \"level = 1\"\nForm:\n.br\n\\&.text or\n.SH FILES\n";
        assert!(body.starts_with(expected), "{body}");
    }

    #[test]
    fn the_page_has_every_key_of_the_example() {
        let example = crate::dist::files::example(None).unwrap();
        let page = page(&example, "1", "2026-01-02");
        let key = |line: &str| {
            let line = line.strip_prefix("#| ").unwrap_or(line);
            let (key, _) = line.split_once(" = ")?;
            (!line.starts_with('#') && !line.starts_with(' ')).then(|| key.to_owned())
        };
        let keys: BTreeSet<String> = example.lines().filter_map(key).collect();
        assert!(keys.len() > 40, "{keys:?}");
        assert!(page.contains(".SH DESCRIPTION\nConfiguration of dns64d."), "{page}");
        for key in keys {
            assert!(page.contains(&format!(" \"{} = ", escaped(&key))), "{key}:\n{page}");
        }
        assert!(!page.contains("#|") && page.contains(" \" (example)\"\n"), "{page}");
        for table in ["dns64", "access", "cache", "limits", "forwarding", "metrics", "log"] {
            assert!(page.contains(&format!(".SH [{table}]\n")), "{table}");
        }
    }
}
