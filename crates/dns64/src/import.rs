//! Implementation of `dns64d import`. The crate `dns64-import` converts the configuration of a different DNS64
//! server, and this module checks the result.

use std::path::{Path, PathBuf};

use dns64_import::{Imported, Source};

use crate::config::{Settings, is_own};

/// Errors that can occur during an import.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    /// The file cannot be imported.
    #[error(transparent)]
    Source(#[from] dns64_import::ImportError),
    /// The import succeeded, but its result is not a valid configuration.
    #[error("bug in dns64d: the configuration converted from {file} is not valid: {reason}")]
    Defect {
        /// Path of the imported file.
        file: PathBuf,
        /// Message that `dns64d check` would print for the converted configuration.
        reason: String,
    },
}

/// Imports `file`, a configuration of the server software `source`. If `source` is `None`, the
/// software is detected from the name or content of the file.
///
/// # Errors
/// Returns an error if the file cannot be imported, or the converted configuration is not valid.
pub(crate) fn import(file: &Path, source: Option<Source>) -> Result<Imported, ImportError> {
    let imported = dns64_import::import(file, source, is_own)?;
    check(&imported.toml, file)?;
    Ok(imported)
}

/// Upstream that is added for the check if the converted configuration has no upstream.
const STAND_IN: &str = "\n[[upstream]]\naddress = \"192.0.2.53\"\nport = 9\n";

/// Checks the converted configuration as `dns64d check` does.
fn check(toml: &str, file: &Path) -> Result<(), ImportError> {
    let has_upstream = toml.lines().any(|line| line == "[[upstream]]");
    let added = if has_upstream { "" } else { STAND_IN };
    match Settings::from_text(&format!("{toml}{added}"), file) {
        Ok(_) => Ok(()),
        Err(error) => Err(ImportError::Defect { file: file.into(), reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::translation::prefix::Prefix;

    /// One file name per server software. The software is given if the file name does not identify
    /// it.
    const FILES: [(&str, Option<Source>); 8] = [
        ("named.conf", None),
        ("Corefile", None),
        ("kresd.conf", None),
        ("config.yaml", Some(Source::KnotResolver)),
        ("mtd64-ng.conf", None),
        ("recursor.conf", None),
        ("recursor.yml", None),
        ("unbound.conf", None),
    ];

    /// A file in a temporary folder.
    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn results_of_whole_configurations_are_valid() {
        let examples = Path::new("../dns64-import/tests/import");
        let mut found = 0;
        for folder in fs::read_dir(examples).unwrap() {
            let file = folder.unwrap().path().join("dns64d.toml");
            check(&fs::read_to_string(&file).unwrap(), &file).unwrap();
            found += 1;
        }
        assert_eq!(found, FILES.len());
    }

    /// `dns64-import` has separate rules for prefixes, which must match those of the server.
    #[test]
    fn prefixes_and_suffixes_are_accepted_by_the_same_rules() {
        let networks = [
            "64:ff9b::",
            "64:ff9b:1::",
            "2001:db8::",
            "2001:db8:0:1::",
            "2001:db8:0:0:100::",
            "64::",
        ];
        let suffixes = ["::", "::1", "::1:0:0", "::ff:0:0:0", "::100:0:0:0", "::1:0:0:0:0"];
        let mut accepted = [0; 2];
        for (network, len) in
            networks.iter().flat_map(|n| (0..=128).step_by(8).map(move |len| (n, len)))
        {
            let prefix = format!("{network}/{len}").parse::<Prefix>();
            for suffix in suffixes {
                let (_folder, path) = file(
                    "named.conf",
                    &format!("options {{ dns64 {network}/{len} {{ suffix {suffix}; }}; }};\n"),
                );
                let notes = import(&path, None).unwrap().notes;
                let is_noted =
                    |words: &str| notes.iter().any(|note| note.to_string().contains(words));
                let name = format!("{network}/{len} {suffix}");
                let is_rejected = is_noted("not an RFC 6052 prefix")
                    || is_noted("it contains the well-known prefix");
                assert_eq!(is_rejected, prefix.is_err(), "{name}");
                let Ok(prefix) = prefix else { continue };
                let has_suffix = prefix.with_suffix(suffix.parse().unwrap()).is_ok();
                assert_eq!(is_noted("the suffix does not fit"), !has_suffix, "{name}");
                accepted[usize::from(has_suffix)] += 1;
            }
        }
        assert!(accepted.iter().all(|count| *count > 20), "{accepted:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Any file is either rejected or converted to a valid configuration.
        #[test]
        fn no_file_gives_an_invalid_configuration(
            place in 0..FILES.len(),
            words in proptest::collection::vec(
                prop_oneof![
                    "[a-z:=.{}();!#'\"\\[\\]/ \n,*-]{0,12}",
                    proptest::sample::select(vec![
                        "options {", "dns64 64:ff9b::/96 {", "};", "clients { 10/8; !any; };", "server:\n",
                        "dns64-prefix: 64:ff9b::/96\n", "access-control: 10.0.0.0/8 allow\n", "forward-zone:\n",
                        "net.listen('::1', 53)\n", "dns64.config({ prefix = '64:ff9b::' })\n", ". {\n", "dns64\n", "}\n",
                        "exclude { any; };", "forwarders { 192.0.2.1 port 0; };", "mapped { none; };", "max-cache-ttl 99999999999;",
                        "forward . 127.0.0.1\n", "serve_stale 0s\n", "cache {\n", "acl {\n", "block type ANY\n", "threads=999\n",
                        "views:\n", "  - subnets: [10.0.0.0/8]\n    answer: refused\n", "dns64: true\n", "network:\n",
                        "recursor:\n  dns64_prefix: 64:ff9b::/96\n", "min-ttl", "cache-min-ttl: 999999\n", "name: \"a\\.\"\n",
                        "forward . 192.0.2.1\n", "dns64-prefix=64:ff9b::/96\n", "allow-from=!10.0.0.0/8, ::/0\n",
                        "validate-except { a.example; \"*.b\"; };", "trust-anchor: \". DS 1 8 2 00\"\n", "domain-insecure: .\n",
                        "trust_anchors.set_insecure({'.'})\n", "trust_anchors.remove('.')\n", "dnssec: false\n",
                        "trust-anchor-file: /etc/hostname\n", "bindkeys-file \"/\";",
                        "tls t { cert-file \"/c\"; key-file \"k\"; };", "http t { endpoints { \"/q\"; }; };",
                        "listen-on tls t { any; ", "listen-on-v6 port 53 tls t http t { ::1; };", "tls://. https://.:53 {\n",
                        "tls /c k\n", "tls-service-key: k\n", "tls-service-pem: \"c\nd\"\n", "interface: ::1@853\n",
                        "quic-port: 853\n", "net.tls('/c', 'k')\n", "net.listen('::', 53, { kind = 'tls' })\n",
                        "  tls: { cert-file: /c, key-file: k }\n", "  listen: [{ interface: '::1', kind: dot }]\n",
                    ]).prop_map(str::to_owned),
                ],
                0..20,
            ),
        ) {
            let (name, source) = FILES[place];
            let (_folder, path) = file(name, &words.concat());
            if let Err(ImportError::Defect { reason, .. }) = import(&path, source) {
                prop_assert!(false, "{reason}");
            }
        }
    }
}
