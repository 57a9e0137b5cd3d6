//! Releases of server programs, on which a server's configuration format may depend.

/// Major and minor version number of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32);

impl Release {
    /// Release of a program that does not print a release number. This value counts as later than
    /// all other releases.
    pub const UNKNOWN: Release = Release(u32::MAX, u32::MAX);

    /// Parses the release from a line of output: the first word that starts with two numbers
    /// separated by a dot. Development builds of PowerDNS print 0.0, which counts as unknown.
    pub fn parse(printed: &str) -> Release {
        let release = printed.split_whitespace().find_map(Release::parse_word);
        release.filter(|release| *release != Release(0, 0)).unwrap_or(Release::UNKNOWN)
    }

    fn parse_word(word: &str) -> Option<Release> {
        let (major, rest) = word.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Release(major.parse().ok()?, rest[..end].parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_dotted_number() {
        for (printed, expected) in [
            ("PowerDNS Recursor 5.4.9 (C) PowerDNS.COM BV", Release(5, 4)),
            ("Nov 22 14:25:00 PowerDNS Recursor 4.8.8 (C) 2001", Release(4, 8)),
            ("Knot Resolver, version 6.0.15", Release(6, 0)),
            ("BIND 9.20.30-1~deb13u1-Debian (Stable Release) <id:>", Release(9, 20)),
            ("Version 1.26", Release(1, 26)),
            ("PowerDNS Recursor 5.10.0-rc1", Release(5, 10)),
            ("PowerDNS Recursor 0.0.21547.0.master.g0", Release::UNKNOWN),
            ("unknown", Release::UNKNOWN),
        ] {
            assert_eq!(Release::parse(printed), expected, "{printed}");
        }
        assert!(Release(5, 10) > Release(5, 9) && Release::UNKNOWN > Release(9, 20));
    }
}
