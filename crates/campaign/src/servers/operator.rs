//! What operators give of their own: lines for a server's configuration, or a whole file, or
//! commands. Words in braces in them are replaced by where and for whom the server is to work.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Custom, Setting, Task};

/// What stands in braces in commands and files of operators, and is replaced: where the server must
/// listen (`listen`, `port`), whom it must ask (`upstream`, `upstream-port`), what it must
/// synthesize with (`prefix`), how many CPUs and threads it has (`cores`, `threads`), the folder of
/// its files (`folder`), and, of an AuthDNS, its zone file (`zone`).
pub(crate) const PLACEHOLDERS: [&str; 9] =
    ["listen", "port", "upstream", "upstream-port", "prefix", "cores", "threads", "folder", "zone"];

/// What a plan says of a server beyond which one it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operator {
    /// Lines for the main section of the driver's configuration.
    pub extra: Vec<String>,
    /// A configuration in place of the driver's.
    pub config: Option<OwnFile>,
    /// Commands of the driver `custom`.
    pub custom: Option<Custom>,
    /// How its packets get past the kernel's network stack (AF_XDP); none: not at all.
    pub xdp: Option<net::xdp::Mode>,
}

/// A configuration file of an operator's. A plan names it by its path; a plan that was read holds
/// its text too, so that a run folder says what was measured whatever becomes of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "Given")]
pub struct OwnFile {
    /// Where it is, from the plan's folder on.
    pub path: PathBuf,
    /// What is in it; empty before [`OwnFile::read`].
    pub text: String,
}

/// A path, or a file that was read.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
enum Given {
    Path(PathBuf),
    Read { path: PathBuf, text: String },
}

impl From<Given> for OwnFile {
    fn from(given: Given) -> OwnFile {
        match given {
            Given::Path(path) => OwnFile { path, text: String::new() },
            Given::Read { path, text } => OwnFile { path, text },
        }
    }
}

impl OwnFile {
    /// Reads the file, if that was not done; its path begins in `folder`.
    ///
    /// # Errors
    /// A sentence that names the file, if it cannot be read, is empty, or has words in braces that
    /// stand for nothing.
    pub fn read(&mut self, folder: &Path) -> Result<(), String> {
        let path = folder.join(&self.path);
        if self.text.is_empty() {
            self.text = std::fs::read_to_string(&path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        }
        if self.text.trim().is_empty() {
            return Err(format!("{} is empty", path.display()));
        }
        match unknown_in_braces(&self.text) {
            Some(word) => Err(format!("{} has {}", path.display(), stands_for_nothing(word))),
            None => Ok(()),
        }
    }
}

/// What is wrong with an unknown word in braces, and what would be right.
pub(crate) fn stands_for_nothing(word: &str) -> String {
    format!(
        "{{{word}}}, which stands for nothing; there are {} (braces of another meaning take a blank: {{ {word} }})",
        PLACEHOLDERS.map(|word| format!("{{{word}}}")).join(", ")
    )
}

/// The first word in braces that is none of the placeholders. What a shell reads as `${name}` is
/// its own.
pub(crate) fn unknown_in_braces(text: &str) -> Option<&str> {
    text.match_indices('{').find_map(|(at, _)| {
        let inside = text[at + 1..].split_once('}')?.0;
        let is_word = !inside.is_empty()
            && inside.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_');
        (is_word && !text[..at].ends_with('$') && !PLACEHOLDERS.contains(&inside)).then_some(inside)
    })
}

impl<T: Task> Setting<'_, T> {
    /// A text with the words in braces replaced; those that the task has no value for stay.
    pub fn fill(&self, text: &str) -> String {
        let [upstream, upstream_port, prefix, zone] = self.task.values();
        let values = [
            Some(self.listen.ip().to_string()),
            Some(self.listen.port().to_string()),
            upstream,
            upstream_port,
            prefix,
            Some(self.cores.to_string()),
            Some(self.threads.to_string()),
            Some(self.place()),
            zone,
        ];
        let known = PLACEHOLDERS
            .iter()
            .zip(values)
            .filter_map(|(name, value)| Some((format!("{{{name}}}"), value?)));
        known.fold(text.to_owned(), |text, (name, value)| text.replace(&name, &value))
    }

    /// Words with the words in braces replaced.
    pub(crate) fn fill_all(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_of_a_shell_are_its_own() {
        for word in [
            "{port}",
            "a{listen}#{upstream-port}b",
            "${HOME}",
            "{ print $1 }",
            "{print $1}",
            "{}",
            "{",
            "}{",
        ] {
            assert_eq!(unknown_in_braces(word), None, "{word}");
        }
        assert_eq!(unknown_in_braces("x {port} {upstream_port}"), Some("upstream_port"));
        assert_eq!(unknown_in_braces("${HOME}{prt}"), Some("prt"));
        assert_eq!(
            unknown_in_braces("options {\n  listen-on { any; };\n};"),
            None,
            "a configuration of BIND"
        );
    }

    #[test]
    fn a_file_of_the_operators_is_read_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), "port {port}\n").unwrap();
        let mut own = OwnFile { path: "own.conf".into(), text: String::new() };
        own.read(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("own.conf")).unwrap();
        let kept = serde_json::to_string(&own).unwrap();
        let mut kept: OwnFile = serde_json::from_str(&kept).unwrap();
        kept.read(folder.path()).unwrap();
        assert_eq!((kept.text.as_str(), &kept), ("port {port}\n", &own));
        let named: OwnFile = serde_json::from_str("\"own.conf\"").unwrap();
        assert!(named.clone().read(folder.path()).unwrap_err().contains("own.conf"), "it is gone");
        std::fs::write(folder.path().join("own.conf"), "port {prt}\n").unwrap();
        assert!(
            named
                .clone()
                .read(folder.path())
                .unwrap_err()
                .contains("{prt}, which stands for nothing")
        );
    }
}
