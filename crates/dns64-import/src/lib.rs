//! Conversion of another DNS64 server's configuration to a configuration of dns64d (`dns64d import`).
//!
//! ```text
//! file, and the files it includes ─► bind, unbound, powerdns, knot_resolver, coredns, mtd64_ng
//!                                     │ statements, lua, tree: syntax, with line numbers
//!                                     ├─► Draft ─► configuration file, with the source line of each setting
//!                                     └─► Notes: settings that are not carried over, with their effect on answers
//! ```
//!
//! The result reproduces the behaviour of the other server, and not only the text of its file. If a default of the
//! other server differs from that of dns64d, the other server's default is written to the result. Such defaults
//! concern, for example, which AAAA records are ignored, whether A records are queried after errors, whether answers are
//! validated with DNSSEC, and whether the well-known prefix may embed private addresses. An unknown option is assumed to affect answers.
//!
//! The crate `dns64` depends on this crate, and checks each result with its configuration code. Limits that both crates
//! need are therefore defined here.
#![forbid(unsafe_code)]

mod addresses;
mod bind;
mod coredns;
mod draft;
mod error;
mod files;
mod knot_resolver;
mod listeners;
mod local_zones;
mod lua;
mod mtd64_ng;
mod notes;
mod origin;
mod powerdns;
mod prefix;
mod statements;
mod tree;
mod unbound;
mod validation;
mod values;

use std::path::Path;

use self::draft::Draft;
pub use self::draft::{IsOwn, MAX_THREADS};
pub use self::error::ImportError;
pub use self::files::read_file;
use self::files::{called, read};
pub use self::listeners::is_https_path;
pub use self::local_zones::standard_local_zones;
pub use self::notes::{Location, Note};

/// Server software from which a configuration is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// BIND 9: named.conf.
    Bind,
    /// Unbound: unbound.conf.
    Unbound,
    /// PowerDNS Recursor: recursor.conf or recursor.yml.
    Powerdns,
    /// Knot Resolver: kresd.conf or config.yaml.
    KnotResolver,
    /// CoreDNS: Corefile.
    Coredns,
    /// mtd64-ng: mtd64-ng.conf.
    Mtd64Ng,
}

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
    /// The configuration file of dns64d.
    pub toml: String,
    /// Settings of the imported server that are not carried over.
    pub notes: Vec<Note>,
}

/// Imports `file`, a configuration of the server software `source`. If `source` is `None`, the software is detected
/// from the name or content of the file. `is_own` returns true for an upstream that is dns64d itself.
///
/// # Errors
/// Returns an error if a file cannot be read or is malformed, if the server software is not detected, or if the result
/// is too long. Syntax errors include the file and line.
pub fn import(file: &Path, source: Option<Source>, is_own: IsOwn) -> Result<Imported, ImportError> {
    let text = read(file)?;
    let Some(source) = source.or_else(|| Source::of(file, &text)) else {
        return Err(ImportError::UnknownServer { file: file.to_owned() });
    };
    let mut draft = Draft::default();
    let origin = match source {
        Source::Bind => bind::import(file, &mut draft).map(|()| "BIND's"),
        Source::Unbound => unbound::import(file, &mut draft).map(|()| "Unbound's"),
        Source::Powerdns => powerdns::import(file, &mut draft).map(|()| "PowerDNS Recursor's"),
        Source::KnotResolver => knot_resolver::import(file, &mut draft).map(|()| "Knot Resolver's"),
        Source::Coredns => coredns::import(file, &mut draft).map(|()| "CoreDNS's"),
        Source::Mtd64Ng => mtd64_ng::import(file, &mut draft).map(|()| "mtd64-ng's"),
    }?;
    let toml = draft.finish(&format!("{origin} {}", called(file)), is_own);
    if toml.len() as u64 > error::LONGEST_FILE {
        return Err(ImportError::TooLong { file: file.to_owned() });
    }
    Ok(Imported { toml, notes: draft.notes.into_vec() })
}

impl Source {
    /// All supported server software, each with its name on the command line.
    pub const ALL: [(&str, Source); 6] = [
        ("bind", Source::Bind),
        ("unbound", Source::Unbound),
        ("powerdns", Source::Powerdns),
        ("knot-resolver", Source::KnotResolver),
        ("coredns", Source::Coredns),
        ("mtd64-ng", Source::Mtd64Ng),
    ];

    /// Detects the server software from the name of the file or, if that fails, from its content.
    fn of(file: &Path, text: &str) -> Option<Source> {
        let name = file.file_name()?.to_str()?.to_ascii_lowercase();
        let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if is(&["mtd64"]) {
            return Some(Source::Mtd64Ng);
        }
        let by_name = [
            (&["named", "bind"][..], Source::Bind),
            (&["unbound"], Source::Unbound),
            (&["recursor", "pdns"], Source::Powerdns),
            (&["kresd", "knot"], Source::KnotResolver),
            (&["corefile"], Source::Coredns),
        ];
        if let Some((_, source)) = by_name.iter().find(|(words, _)| is(words)) {
            return Some(*source);
        }
        let begins = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
        let by_words = [
            ("options {", Source::Bind),
            ("server:", Source::Unbound),
            ("forward-zones", Source::Powerdns),
            ("recursor:", Source::Powerdns),
            ("net.listen", Source::KnotResolver),
            ("network:", Source::KnotResolver),
            ("dns64-prefix ", Source::Mtd64Ng),
            ("forward . ", Source::Coredns),
        ];
        by_words.iter().find(|(word, _)| begins(word)).map(|(_, source)| *source)
    }
}

#[cfg(test)]
mod tests;
