//! Deserialization of the configuration keys.

use std::path::Path;

use schemars::schema_for;

use super::error::ConfigError;
use super::keys::Config;

/// Reads the configuration keys from the text of a file.
///
/// # Errors
/// Returns an error if the text is not TOML, or has an unknown key or an invalid value. The error contains the line and
/// the correct form.
pub(super) fn read(text: &str, file: &Path) -> Result<Config, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let schema = serde_json::to_value(schema_for!(Config)).unwrap_or_default();
        match toml_faults::fault(text, &schema) {
            Some(fault) => {
                ConfigError::Invalid { file: file.into(), line: fault.line, reason: fault.reason }
            }
            None => ConfigError::Parse { file: file.into(), source: Box::new(error) },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_a_line_and_the_right_form() {
        for (text, message) in [
            (
                "[[upstream]]\naddress = '::1'\nport = '53'",
                ":3: \"port\" takes a number from 1 to 65535",
            ),
            (
                "[[upstream]]\naddress = '::1'\nport = 65536",
                ":3: \"port\" takes a number from 1 to 65535",
            ),
            ("[cache]\nmebibytes = '256M'", ":2: \"mebibytes\" takes a number from 0 to 1048576"),
            ("[cache]\nprefetch = 1", ":2: \"prefetch\" takes true or false"),
            (
                "[dns64]\nmode = 'lax'",
                ":2: \"mode\" takes \"strict\", \"nodata-only\" or \"timeout\"",
            ),
            ("[group]\nclients = []", ":1: write [[group]]: there can be several"),
            ("[upstream]\naddress = '::1'", ":1: write [[upstream]]: there can be several"),
            ("[[cache]]\nprefetch = true", ":1: write [cache]: there is only one"),
            (
                "[dnssec]\nvalidate = 'yes'",
                ":2: \"validate\" takes true, false or \"if-possible\", not \"yes\"",
            ),
            ("cpus = 1", ":1: \"cpus\" takes a list; write cpus = [ … ]"),
            ("[[upstream]]\nport = 53", ":1: [[upstream]] needs the key \"address\""),
            ("[dns64]\nprefixes = ['64:ff9b::/96']", "{ prefix = \"64:ff9b::/96\" }"),
            (
                "[cache]\nuser = 'x'",
                ":2: [cache] has no key \"user\"; keys of the top level stand before the first [table]",
            ),
            (
                "[dns64]\nexclude = ['10.0.0.0/8']",
                "this list takes IPv6 networks, and \"10.0.0.0/8\" is IPv4",
            ),
            (
                "[dns64]\nexclude = ['10.0.0.1']",
                "this list takes IPv6 networks, and \"10.0.0.1\" is IPv4",
            ),
            (
                "[dns64]\nprefixes = [{ prefix = '64:ff9b::/96', ranges = ['fd00::/8'] }]",
                "this list takes IPv4 networks, and \"fd00::/8\" is IPv6",
            ),
            ("[forwarding]\ntimeout = 2", "write for example \"2s\""),
            ("listen = [53]", "write for example \"[::1]:53\""),
        ] {
            let error = read(text, Path::new("test.toml")).expect_err(text).to_string();
            assert!(error.starts_with("test.toml") && error.contains(message), "{text}: {error}");
        }
    }

    /// Replaces each value in the example configuration with a number, then a string, then a list.
    /// No error message contains a Rust type.
    #[test]
    fn no_error_names_a_rust_type() {
        let example = include_str!("../../../../dist/dns64d.example.toml");
        let lines: Vec<&str> =
            example.lines().map(|line| line.strip_prefix("#| ").unwrap_or(line)).collect();
        let mut errors = 0;
        for (number, line) in lines.iter().enumerate() {
            let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
                continue;
            };
            for value in ["7", "'x'", "[7]", "{ x = 7 }", "-1", "true", "1.5"] {
                let changed = format!("{key} = {value}");
                let text: Vec<&str> = lines
                    .iter()
                    .enumerate()
                    .map(|(n, line)| if n == number { &changed } else { *line })
                    .collect();
                let Err(error) = read(&text.join("\n"), Path::new("test.toml")) else { continue };
                let error = error.to_string();
                for name in [
                    "u16", "u32", "u64", "usize", "struct ", "sequence", "map", "field", "Keys",
                    "variant",
                ] {
                    assert!(!error.contains(name), "{changed}: {error}");
                }
                errors += 1;
            }
        }
        assert!(errors > 300, "{errors}");
    }
}
