//! Recognition of the server software by its answer to `version.bind`.

use super::lines::Form;

/// Beginning of the version that a server reports, in lower case, and the configuration formats of this server
/// software.
const KNOWN: &[(&str, &[Form])] = &[
    ("unbound ", &[Form::Unbound]),
    ("powerdns recursor 4", &[Form::RecursorOld]),
    ("powerdns recursor", &[Form::RecursorYaml, Form::RecursorOld]),
    ("knot resolver, version 5", &[Form::Knot5]),
    ("knot resolver", &[Form::Knot6, Form::Knot5]),
    ("coredns", &[Form::Coredns]),
    ("dns64d", &[Form::Dns64d]),
    // BIND reports only its version number, without the name BIND.
    ("9.", &[Form::Bind]),
    ("bind 9.", &[Form::Bind]),
];

/// Returns the configuration formats for a server that reports `version`, or all formats if the server is not
/// recognized.
pub(super) fn forms(version: Option<&str>) -> &'static [Form] {
    let version = version.unwrap_or_default().to_lowercase();
    let known = KNOWN.iter().find(|(begin, _)| version.starts_with(begin));
    known.map_or(Form::ALL, |(_, forms)| forms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_recognized_by_their_version() {
        for (version, wanted) in [
            ("unbound 1.17.1", &[Form::Unbound][..]),
            ("9.18.49-1~deb12u3-Debian", &[Form::Bind]),
            ("PowerDNS Recursor 4.8.8", &[Form::RecursorOld]),
            ("PowerDNS Recursor 5.2.0", &[Form::RecursorYaml, Form::RecursorOld]),
            ("CoreDNS-1.12.4", &[Form::Coredns]),
            ("dnsmasq-2.90", Form::ALL),
            ("", Form::ALL),
        ] {
            assert_eq!(forms(Some(version)), wanted, "{version}");
        }
        assert_eq!(forms(None), Form::ALL);
    }
}
