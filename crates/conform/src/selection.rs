//! Selection of checks by names that the user gives.

use crate::check::Check;

/// Error: a name that matches no check.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no check {wanted:?}, and no id begins with it; the nearest id is {nearest}")]
pub struct NoCheck {
    /// The name that the user gave and that matches no check.
    pub wanted: String,
    /// The check id that is most similar to `wanted`.
    pub nearest: String,
}

/// Returns the checks selected by the names in `only`, in the order of `all`. If `only` is empty, all checks are
/// returned. A complete id selects only the check with this id, even if other ids begin with the same text.
pub(crate) fn chosen<'c>(all: &[&'c Check], only: &[String]) -> Result<Vec<&'c Check>, NoCheck> {
    let is_whole = |wanted: &String| all.iter().any(|check| check.id == wanted);
    let fits = |check: &Check, wanted: &String| {
        if is_whole(wanted) { check.id == wanted } else { check.id.starts_with(wanted.as_str()) }
    };
    for wanted in only {
        if !all.iter().any(|check| fits(check, wanted)) {
            let nearest = nearest(wanted, all.iter().map(|check| check.id));
            return Err(NoCheck { wanted: wanted.clone(), nearest: nearest.into() });
        }
    }
    let is_chosen = |check: &&&Check| only.is_empty() || only.iter().any(|w| fits(check, w));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

/// Returns the id with the smallest edit distance to `wanted`. All characters beyond the length of `wanted` count as a
/// single insertion, because the user may give only the beginning of an id.
fn nearest<'i>(wanted: &str, ids: impl Iterator<Item = &'i str>) -> &'i str {
    let far = |id: &str| {
        let begin: String = id.chars().take(wanted.chars().count()).collect();
        (distance(wanted, id).min(distance(wanted, &begin) + 1), id.len())
    };
    ids.min_by_key(|id| far(id)).unwrap_or("none: there are no checks")
}

/// Returns the smallest number of insertions, deletions and replacements that turn one text into the other
/// (Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (n, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = n + 1;
        for (m, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[m + 1];
            row[m + 1] = replaced.min(row[m] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Level;

    const CHECK: Check = Check {
        id: "",
        title: "",
        rfc: 1,
        section: "1",
        sentence: "",
        level: Level::Must,
        needs: &[],
        contradicts: None,
        script: |_| Ok(()),
    };

    #[test]
    fn ids_and_beginnings_of_ids_select_checks() {
        let checks = ["rfc6147-5.1.2-nx", "rfc6147-5.1.2-nxdomain", "rfc6052-2.2-u-octet"]
            .map(|id| Check { id, ..CHECK });
        let all: Vec<&Check> = checks.iter().collect();
        let ids = |only: &[&str]| -> Result<Vec<&str>, NoCheck> {
            let only: Vec<String> = only.iter().map(|text| (*text).to_owned()).collect();
            Ok(chosen(&all, &only)?.iter().map(|check| check.id).collect())
        };
        assert_eq!(ids(&[]).unwrap().len(), 3);
        assert_eq!(ids(&["rfc6147"]).unwrap(), ["rfc6147-5.1.2-nx", "rfc6147-5.1.2-nxdomain"]);
        assert_eq!(ids(&["rfc6147-5.1.2-nx"]).unwrap(), ["rfc6147-5.1.2-nx"], "a complete id");
        assert_eq!(
            ids(&["rfc6052", "rfc6147-5.1.2-nxd"]).unwrap(),
            ["rfc6147-5.1.2-nxdomain", "rfc6052-2.2-u-octet"]
        );
        let nearest = |wanted: &str| match ids(&[wanted]) {
            Err(NoCheck { nearest, .. }) => nearest,
            other => panic!("{other:?}"),
        };
        assert_eq!(nearest("rfc6147-5.1.2-nxdomian"), "rfc6147-5.1.2-nxdomain");
        assert_eq!(nearest("rfc6025"), "rfc6052-2.2-u-octet");
        assert_eq!(nearest("rfc6052-2.2-uoctet"), "rfc6052-2.2-u-octet");
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
