//! Groups of results with the same key.

/// Groups items by key, for example all results at one placement, in plan order.
pub fn by_key<'a, T, K: PartialEq>(all: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<(K, Vec<&'a T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for one in all {
        let of = key(one);
        match groups.iter_mut().find(|(known, _)| *known == of) {
            Some((_, known)) => known.push(one),
            None => groups.push((of, vec![one])),
        }
    }
    groups
}
