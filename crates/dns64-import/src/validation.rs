//! DNSSEC settings of the imported server: whether it validates, its trust anchors, and the domains that it does not
//! validate.
//!
//! ```text
//! keys built into the server ┐
//! lines in the configuration ├─► only keys that dns64d has built in ─► nothing
//! files                      ┘   one file that dns64d can read      ─► trust-anchors
//!                                all others                         ─► notes, with the lines for a file
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;

use dnssec::TrustAnchors;
use toml::Value;

use super::files::{absolute_path, called, read_file};
use super::notes::Notes;
use super::origin::{Located, Origin};

/// DS records of the keys of the root zone that are built into dns64d.
const ROOT_KEYS: [&str; 2] = [
    ". IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D",
    ". IN DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16",
];

/// DNSSEC settings of the imported server.
#[derive(Debug, Default)]
pub(super) struct DnssecDraft {
    /// Value of the key `validate`; `None` if it is not set yet.
    validate: Option<Located<bool>>,
    /// True if the server uses keys of the root zone that are built into it.
    has_built_in: bool,
    /// Trust anchors in the configuration, and files with trust anchors.
    anchors: Vec<Source>,
    /// The last setting that removed trust anchors.
    removal: Option<Origin>,
    /// Negative trust anchors: names in lower case without a final dot.
    negative: Vec<Located<String>>,
    /// Value of the key `trust-anchors`.
    file: Option<Located<String>>,
}

/// Trust anchors of the imported server.
#[derive(Debug)]
struct Source {
    place: Place,
    /// True if the server follows changes of the keys (RFC 5011).
    is_tracked: bool,
    origin: Origin,
}

#[derive(Debug)]
enum Place {
    /// A DS or DNSKEY record in the form of a zone file.
    Line(String),
    File(PathBuf),
}

impl Source {
    /// Reads the trust anchors in the same way as dns64d.
    fn read(&self) -> Result<TrustAnchors, String> {
        let parsed = match &self.place {
            Place::Line(line) => TrustAnchors::from_lines(line),
            Place::File(path) => {
                let text = read_file(path).map_err(|error| error.to_string())?;
                if let Some(number) = untrusted_line(&text) {
                    return Err(format!("line {number}: the key is not trusted yet, or no longer"));
                }
                return TrustAnchors::from_lines(&text).map_err(|error| error.to_string());
            }
        };
        parsed.map_err(|error| error.reason.to_owned())
    }
}

/// Returns the number of the first line with a key that Unbound tracks but does not trust. Unbound writes the state of a
/// key into a comment. A key is trusted in the states 2 (valid) and 3 (missing).
fn untrusted_line(text: &str) -> Option<usize> {
    let is_untrusted = |line: &str| {
        let state = line.split_once(";;state=").map(|(_, state)| state);
        state.is_some_and(|state| !state.starts_with(['2', '3']))
    };
    text.lines().position(is_untrusted).map(|index| index + 1)
}

impl DnssecDraft {
    /// Sets whether the server validates.
    pub(super) fn set_validate(&mut self, value: bool, origin: Origin) {
        self.validate = Some(Located { value, origin });
    }

    /// True if the server validates.
    pub(super) fn validates(&self) -> bool {
        self.validate.as_ref().is_some_and(|validate| validate.value)
    }

    /// Adds the keys of the root zone that are built into the server.
    pub(super) fn add_built_in(&mut self) {
        self.has_built_in = true;
    }

    /// Removes the keys of the root zone that are built into the server.
    pub(super) fn remove_built_in(&mut self) {
        self.has_built_in = false;
    }

    /// Adds a trust anchor: a DS or DNSKEY record in the form of a zone file. With `is_tracked`, the server follows
    /// changes of the key (RFC 5011).
    pub(super) fn add_line(&mut self, line: &str, is_tracked: bool, origin: Origin) {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        self.anchors.push(Source { place: Place::Line(line), is_tracked, origin });
    }

    /// Adds a file with trust anchors (see [`DnssecDraft::add_line`]).
    pub(super) fn add_file(&mut self, path: PathBuf, is_tracked: bool, origin: Origin) {
        self.anchors.push(Source { place: Place::File(path), is_tracked, origin });
    }

    /// Removes the trust anchors of a zone, or all trust anchors. The second case also removes files.
    pub(super) fn remove(&mut self, zone: Option<&str>, origin: Origin) {
        let canonical = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
        let is_removed = |name: &str| zone.is_none_or(|zone| canonical(zone) == canonical(name));
        self.has_built_in &= !is_removed(".");
        self.anchors.retain(|source| match &source.place {
            Place::Line(line) => !is_removed(line.split(' ').next().unwrap_or_default()),
            Place::File(_) => zone.is_some(),
        });
        self.removal = Some(origin);
    }

    /// Sets that the server validates if it has trust anchors. `origin` is the setting that makes it validate. If there
    /// are no trust anchors, the source of the value is the setting that removed them.
    pub(super) fn validate_with_anchors(&mut self, origin: Origin) {
        let has_anchors = self.has_built_in || !self.anchors.is_empty();
        let removal = self.removal.clone().filter(|_| !has_anchors);
        self.set_validate(has_anchors, removal.unwrap_or(origin));
    }

    /// Adds a negative trust anchor. The name is in lower case without a final dot.
    pub(super) fn add_negative(&mut self, name: String, origin: Origin) {
        if self.negative.iter().all(|known| known.value != name) {
            self.negative.push(Located { value: name, origin });
        }
    }

    /// Removes a negative trust anchor, or all of them.
    pub(super) fn remove_negative(&mut self, name: Option<&str>) {
        let name = name.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        self.negative.retain(|known| name.as_ref().is_some_and(|name| *name != known.value));
    }

    /// Determines the file with trust anchors, and adds notes on trust anchors that cannot be carried over.
    pub(super) fn resolve(&mut self, notes: &mut Notes) {
        let sources = std::mem::take(&mut self.anchors);
        if !self.validates() {
            let negative = self.negative.drain(..).map(|negative| negative.origin);
            for origin in sources.into_iter().map(|source| source.origin).chain(negative) {
                notes.nothing(&origin.location, &origin.words, "validation is off");
            }
            return;
        }
        for source in sources.iter().filter(|source| source.is_tracked) {
            let why = "dns64d does not follow changes of the keys (RFC 5011): add a new key to the file yourself, or update dns64d if it is a key of the root zone";
            notes.answers(&source.origin.location, &source.origin.words, why);
        }
        let mut read: Vec<(Source, Result<TrustAnchors, String>)> = Vec::new();
        for source in sources {
            let anchors = source.read();
            read.push((source, anchors));
        }
        let chosen = self.file_of(&read);
        let mut with_root = self.needs_root(&read);
        for (index, (source, anchors)) in read.into_iter().enumerate() {
            let Source { place, origin, .. } = source;
            if Some(index) == chosen {
                self.file = path_of(&place).map(|value| Located { value, origin });
            } else if !are_built_in(&anchors) {
                let why = advice(&place, anchors.err(), std::mem::take(&mut with_root));
                notes.answers(&origin.location, &origin.words, why);
            }
        }
    }

    /// Returns the index of the file to carry over. dns64d reads one file, which replaces its built-in keys of the root
    /// zone. Therefore all other trust anchors must be keys that are built in, and the file must have the keys of the
    /// root zone if the server has such keys.
    fn file_of(&self, read: &[(Source, Result<TrustAnchors, String>)]) -> Option<usize> {
        let others: Vec<usize> =
            (0..read.len()).filter(|&index| !are_built_in(&read[index].1)).collect();
        let file = match others[..] {
            [] => read.iter().position(|(source, _)| path_of(&source.place).is_some())?,
            [other] => other,
            _ => return None,
        };
        let (source, anchors) = &read[file];
        let is_alone = !self.has_built_in && read.len() == 1;
        let is_complete = anchors.as_ref().is_ok_and(|anchors| is_alone || anchors.has_root());
        (is_complete && path_of(&source.place).is_some()).then_some(file)
    }

    /// True if a file with the trust anchors that dns64d does not have built in must also contain the built-in keys of
    /// the root zone, because the server uses them, and the file replaces them.
    fn needs_root(&self, read: &[(Source, Result<TrustAnchors, String>)]) -> bool {
        let others = || read.iter().filter(|(_, anchors)| !are_built_in(anchors));
        (self.has_built_in || others().count() < read.len())
            && !others().any(|(_, anchors)| anchors.as_ref().is_ok_and(TrustAnchors::has_root))
    }

    /// Writes the table `[dnssec]`.
    pub(super) fn write(&self, text: &mut String) {
        let Some(Located { value, origin }) = &self.validate else { return };
        let _ = writeln!(text, "[dnssec]\n{}validate = {value}", origin.comment());
        if let Some(Located { value, origin }) = &self.file {
            let path = Value::String(value.clone());
            let _ = writeln!(text, "{}trust-anchors = {path}", origin.comment());
        }
        if !self.negative.is_empty() {
            text.push_str("negative-trust-anchors = [\n");
            let mut last = String::new();
            for Located { value, origin } in &self.negative {
                // One setting may have several names.
                let comment = origin.comment();
                if comment != last {
                    let _ = write!(text, "    {comment}");
                }
                let _ = writeln!(text, "    {},", Value::String(value.clone()));
                last = comment;
            }
            text.push_str("]\n");
        }
        text.push('\n');
    }
}

/// True if dns64d has all these trust anchors built in.
fn are_built_in(anchors: &Result<TrustAnchors, String>) -> bool {
    anchors.as_ref().is_ok_and(TrustAnchors::are_built_in)
}

/// Returns the absolute path of a file with trust anchors.
fn path_of(place: &Place) -> Option<String> {
    let Place::File(path) = place else { return None };
    absolute_path(path)
}

/// Returns the text of a note on trust anchors that are not carried over. `fault` is the reason why dns64d cannot use
/// them. With `with_root`, the text has the built-in keys of the root zone.
fn advice(place: &Place, fault: Option<String>, with_root: bool) -> String {
    const KEY: &str = "set trust-anchors in [dnssec] to its path";
    let root = match with_root {
        true => format!(
            " The file replaces the built-in keys of the root zone: add the lines {}.",
            ROOT_KEYS.map(|line| format!("'{line}'")).join(" and ")
        ),
        false => String::new(),
    };
    let what = match (place, fault) {
        (Place::Line(line), None) => format!("write the line '{line}' to a file, and {KEY}."),
        (Place::Line(_), Some(fault)) => {
            format!(
                "dns64d cannot use it ({fault}): write another trust anchor to a file, and {KEY}."
            )
        }
        (Place::File(_), None) => {
            format!("dns64d reads one file: write all trust anchors to one, and {KEY}.")
        }
        (Place::File(path), Some(fault)) => format!(
            "dns64d cannot use {} ({fault}): write one DS or DNSKEY record per line to a file, and {KEY}.",
            called(path)
        ),
    };
    format!("{what}{root} Until then, the built-in keys of the root zone are used")
}
