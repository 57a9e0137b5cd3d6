//! Queried names that are used by several files in this folder.

use domain::base::name::ToLabelIter;

use crate::trial::Trial;

/// Labels of a test name that has three A records, with TTLs of 300, 150 and 150 seconds.
pub(super) const UNEQUAL: &str = "unequal.v4-1-2-3-4.v4-8-8-4-4.v4-9-9-9-9";

/// Returns a label that occurs in no other name. If a name is below this label, its parent is also new to every cache.
/// Some checks need this, because servers that minimize query names (RFC 9156) also query the parent and cache the
/// reply.
pub(super) fn unique(t: &mut Trial<'_>) -> String {
    t.name("").iter_labels().next().map_or_else(String::new, ToString::to_string)
}
