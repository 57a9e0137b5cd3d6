//! The names that an upstream may answer for: those with the same upstreams as the question.
//!
//! With `[[forward]]`, some names belong to other upstreams. An answer is cut at the first alias
//! that leads to such a name, and the rest is resolved by those upstreams (RFC 1034 §5.3.3, step
//! 4c).

use crate::name::{DomainTable, LowerName};

/// The set of upstreams for each name. Sets are identified by an index, and equal sets have the same index.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamSets {
    by_domain: DomainTable<usize>,
    /// True if there are two or more sets.
    differ: bool,
}

impl UpstreamSets {
    /// Builds the sets from the configured domains, each with the indices of its upstreams. If a domain is configured
    /// twice, the first entry applies.
    pub(crate) fn new<'r>(
        routes: impl DoubleEndedIterator<Item = (&'r LowerName, &'r [usize])>,
    ) -> UpstreamSets {
        let mut by_domain = DomainTable::default();
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for (domain, upstreams) in routes.rev() {
            let mut set = upstreams.to_vec();
            set.sort_unstable();
            set.dedup();
            let number = sets.iter().position(|other| *other == set).unwrap_or(sets.len());
            if number == sets.len() {
                sets.push(set);
            }
            by_domain.insert(domain, number);
        }
        let differ = by_domain.values().min() != by_domain.values().max();
        UpstreamSets { by_domain, differ }
    }

    /// Returns the set of names that have the same upstreams as `name` (wire format, lower case). Returns `None` if all
    /// names have the same upstreams.
    #[inline]
    pub(crate) fn scope(&self, name: &[u8]) -> Option<Scope<'_>> {
        self.differ.then(|| Scope { sets: self, number: self.number(name) })
    }

    /// Returns the index of the upstream set for `name`.
    fn number(&self, name: &[u8]) -> Option<usize> {
        self.by_domain.get(name).copied()
    }
}

/// The names that have the same upstreams as a question.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    sets: &'a UpstreamSets,
    number: Option<usize>,
}

impl Scope<'_> {
    /// True if `name` (wire format, lower case) has the same upstreams as the question.
    pub(crate) fn covers(&self, name: &[u8]) -> bool {
        self.sets.number(name) == self.number
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::Settings;
    use crate::testing::wire;

    fn settings(forwards: &str) -> Settings {
        let upstreams = "[[upstream]]\naddress = '192.0.2.1'\nname = 'a'\n\
                         [[upstream]]\naddress = '192.0.2.2'\nname = 'b'\n";
        Settings::from_text(&format!("{upstreams}{forwards}"), Path::new("test.toml")).unwrap()
    }

    #[test]
    fn without_differing_forwards_there_is_no_scope() {
        for forwards in [
            "",
            "[[forward]]\ndomain = 'a.test'\nmode = 'nodata-only'\n",
            "[[forward]]\ndomain = 'a.test'\nupstreams = ['b', 'a']\n",
            "[[forward]]\ndomain = '.'\nupstreams = ['b']\n",
        ] {
            let settings = settings(forwards);
            assert!(settings.upstream_sets.scope(&wire("x.a.test")).is_none(), "{forwards}");
        }
    }

    #[test]
    fn item_08_the_set_of_upstreams_decides() {
        let settings = settings(
            "[[forward]]\ndomain = 'corp.test'\nupstreams = ['b']\n\
             [[forward]]\ndomain = 'same.test'\nupstreams = ['b']\n\
             [[forward]]\ndomain = 'same.test'\nupstreams = ['a']\n\
             [[forward]]\ndomain = 'public.corp.test'\nupstreams = ['a', 'b']\n\
             [[forward]]\ndomain = 'all.test'\nmode = 'nodata-only'\n\
             [[forward]]\ndomain = 'reversed.test'\nupstreams = ['b', 'a']\n\
             [[domain]]\ndomain = 'off.test'\noff = true\n",
        );
        for (asked, name, is_covered) in [
            ("www.test", "other.test", true),
            ("www.test", "corp.test", false),
            ("www.test", "app.corp.test", false),
            ("www.test", "notcorp.test", true),
            ("www.test", "x.public.corp.test", true),
            ("www.test", "all.test", true),
            ("www.test", "reversed.test", true),
            ("www.test", "off.test", true),
            ("app.corp.test", "www.test", false),
            ("app.corp.test", "test", false),
            ("app.corp.test", "corp.test", true),
            ("app.corp.test", "www.same.test", true),
            ("app.corp.test", "x.public.corp.test", false),
        ] {
            let scope = settings.upstream_sets.scope(&wire(asked)).unwrap();
            assert_eq!(scope.covers(&wire(name)), is_covered, "{asked} ─► {name}");
        }
    }
}
