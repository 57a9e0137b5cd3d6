//! Settings that the operator of the campaign provides for a server: additional configuration
//! lines, a whole configuration file, or commands. All of these may contain placeholders for
//! addresses and other settings.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Placeholders in the operator's commands and configuration files: listen address (`listen`, `port`), upstream
/// (`upstream`, `upstream-port`), DNS64 prefix (`prefix`), number of CPUs (`cores`), number of threads (`threads`), the
/// server's folder (`folder`) and, for an AuthDNS, its zone file (`zone`).
pub(super) const PLACEHOLDERS: [&str; 9] =
    ["listen", "port", "upstream", "upstream-port", "prefix", "cores", "threads", "folder", "zone"];

/// Settings that the operator of the campaign provides for a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operator {
    /// Lines that are added to the main section of the driver's configuration.
    pub extra: Vec<String>,
    /// A configuration file that replaces the one written by the driver.
    pub config: Option<OperatorFile>,
    /// Commands for the driver `custom`.
    pub custom: Option<Custom>,
    /// AF_XDP mode (kernel bypass). If it is absent, the server uses sockets.
    pub xdp: Option<net::xdp::Mode>,
}

/// A configuration file written by the operator. A plan gives the path of the file. Once the plan
/// has been read, the plan also contains the text of the file. The run folder therefore documents
/// the measurement even if the file changes later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(from = "OperatorFileForm")]
pub struct OperatorFile {
    /// Path relative to the plan's folder.
    pub path: PathBuf,
    /// Contents of the file; empty until [`OperatorFile::read`] has been called.
    pub text: String,
}

/// Serialized form of an [`OperatorFile`]: a path, or a path with the text of the file.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
enum OperatorFileForm {
    Path(PathBuf),
    Read { path: PathBuf, text: String },
}

impl From<OperatorFileForm> for OperatorFile {
    fn from(given: OperatorFileForm) -> OperatorFile {
        match given {
            OperatorFileForm::Path(path) => OperatorFile { path, text: String::new() },
            OperatorFileForm::Read { path, text } => OperatorFile { path, text },
        }
    }
}

impl OperatorFile {
    /// Reads the file unless its text is already present. The path is relative to `folder`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is empty, or has unknown placeholders. The error text contains
    /// the path.
    pub fn read(&mut self, folder: &Path) -> Result<(), String> {
        let path = folder.join(&self.path);
        if self.text.is_empty() {
            self.text = std::fs::read_to_string(&path)
                .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        }
        if self.text.trim().is_empty() {
            return Err(format!("{} is empty", path.display()));
        }
        match unknown_placeholder(&self.text) {
            Some(word) => {
                Err(format!("{} has {}", path.display(), unknown_placeholder_error(word)))
            }
            None => Ok(()),
        }
    }
}

/// Returns the error message for an unknown placeholder, with a list of the valid placeholders.
pub fn unknown_placeholder_error(word: &str) -> String {
    format!(
        "the unknown placeholder {{{word}}}; valid ones are {} (write other braces with spaces: {{ {word} }})",
        PLACEHOLDERS.map(|word| format!("{{{word}}}")).join(", ")
    )
}

/// Returns the first unknown placeholder in `text`. Shell variables such as `${name}` are ignored.
pub fn unknown_placeholder(text: &str) -> Option<&str> {
    text.match_indices('{').find_map(|(at, _)| {
        let inside = text[at + 1..].split_once('}')?.0;
        let is_word = !inside.is_empty()
            && inside.chars().all(|c| c.is_ascii_alphabetic() || c == '-' || c == '_');
        (is_word && !text[..at].ends_with('$') && !PLACEHOLDERS.contains(&inside)).then_some(inside)
    })
}

/// Commands for the driver `custom`, run on the DUT's host. Placeholders such as `{listen}` are
/// replaced, except in `version`, which runs before a server is started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Custom {
    /// Command that starts the server: program and arguments. Unless `stop` is set, the process
    /// must stay in the foreground and end on SIGTERM.
    pub start: Vec<String>,
    /// Command that exits with status 0 if the server is ready. The command is repeated until it
    /// exits with this status. In addition, the tester queries the server.
    pub ready: Vec<String>,
    /// Command that ends the server. If it is set, `start` may return immediately, like
    /// `systemctl start`.
    pub stop: Vec<String>,
    /// Command that prints the ids of the server's processes. The CPU time and the CPUs of these processes are
    /// recorded. By default, the process started by `start` counts as the server.
    pub cpu_pids: Vec<String>,
    /// Command that prints the version of the server.
    pub version: Vec<String>,
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
            assert_eq!(unknown_placeholder(word), None, "{word}");
        }
        assert_eq!(unknown_placeholder("x {port} {upstream_port}"), Some("upstream_port"));
        assert_eq!(unknown_placeholder("${HOME}{prt}"), Some("prt"));
        assert_eq!(
            unknown_placeholder("options {\n  listen-on { any; };\n};"),
            None,
            "a configuration of BIND"
        );
    }

    #[test]
    fn a_file_of_the_operators_is_read_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.conf"), "port {port}\n").unwrap();
        let mut own = OperatorFile { path: "own.conf".into(), text: String::new() };
        own.read(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("own.conf")).unwrap();
        let kept = serde_json::to_string(&own).unwrap();
        let mut kept: OperatorFile = serde_json::from_str(&kept).unwrap();
        kept.read(folder.path()).unwrap();
        assert_eq!((kept.text.as_str(), &kept), ("port {port}\n", &own));
        let named: OperatorFile = serde_json::from_str("\"own.conf\"").unwrap();
        assert!(named.clone().read(folder.path()).unwrap_err().contains("own.conf"), "it is gone");
        std::fs::write(folder.path().join("own.conf"), "port {prt}\n").unwrap();
        assert!(
            named
                .clone()
                .read(folder.path())
                .unwrap_err()
                .contains("the unknown placeholder {prt}")
        );
    }
}
