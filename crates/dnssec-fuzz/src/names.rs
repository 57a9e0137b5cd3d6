//! Names of cases. Each case has names that no other case has, so that caches do not mix the cases:
//!
//! ```text
//! a.c0000002a.fuzz.test       case 42, data of the zone fuzz.test
//! a.z0000002a.fuzz.test       case 42, data of the zone z0000002a.fuzz.test
//! a.sec.z0000002a.fuzz.test   case 42, data of a signed zone below
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use domain::base::ToName;
use domain::base::name::{Label, NameBuilder};
use testbed::signed::{TestName, name};

/// Apex of the zone with the trust anchor.
pub const ROOT: &str = "fuzz.test";

/// Address of the authoritative server. Its port is 53, because Unbound looks for the servers of zones there.
pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 77, 0, 1)), 53);

/// Returns the label of a case, which begins with `c` or `z`.
pub(crate) fn label(kind: char, number: u64) -> String {
    format!("{kind}{number:08x}")
}

/// Returns the number of the case to which a name belongs.
pub(crate) fn number(of: &TestName) -> Option<u64> {
    let labels: Vec<&Label> = of.iter().collect();
    let root = name(ROOT);
    let index = labels.len().checked_sub(root.label_count() + 1)?;
    if !of.ends_with(&root) {
        return None;
    }
    let text = std::str::from_utf8(labels.get(index)?.as_slice()).ok()?;
    let digits = text.strip_prefix(['c', 'C', 'z', 'Z'])?;
    (digits.len() == 8).then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Returns the name `relative` below `origin`. If `relative` is empty, returns the origin.
///
/// # Panics
/// Panics if the name is too long.
pub(crate) fn below(relative: &str, origin: &TestName) -> TestName {
    let mut builder = NameBuilder::new_vec();
    for label in relative.split('.').filter(|label| !label.is_empty()) {
        builder.append_label(label.as_bytes()).expect("a short label");
    }
    builder.append_origin(origin).expect("a short name")
}

/// Replaces the suffix `from` of a name by `to`. Returns `None` if the name does not have this suffix, or if the result
/// is too long.
pub(crate) fn rebase(name: &TestName, from: &TestName, to: &TestName) -> Option<TestName> {
    if !name.ends_with(from) {
        return None;
    }
    let kept = name.label_count() - from.label_count();
    let mut builder = NameBuilder::new_vec();
    for label in name.iter().take(kept) {
        builder.append_label(label.as_slice()).ok()?;
    }
    builder.append_origin(to).ok()
}

/// Returns the parent of a name, or `None` for the root.
pub(crate) fn parent(name: &TestName) -> Option<TestName> {
    name.parent().map(|parent| parent.to_name())
}

/// Returns the ancestor of `name` with one label more than `encloser`.
///
/// # Panics
/// Panics if `encloser` is not an ancestor of `name`.
pub(crate) fn next_closer(name: &TestName, encloser: &TestName) -> TestName {
    let labels = encloser.label_count() + 1;
    let found = name.iter_suffixes().find(|suffix| suffix.label_count() == labels);
    found.expect("the encloser is an ancestor").to_name()
}

/// Returns a name with each second letter in upper case.
///
/// # Panics
/// Does not panic: the labels have the same lengths.
pub(crate) fn mixed_case(name: &TestName) -> TestName {
    let mut builder = NameBuilder::new_vec();
    for label in name.iter().filter(|label| !label.is_root()) {
        let mut octets = label.as_slice().to_vec();
        octets.iter_mut().step_by(2).for_each(|octet| octet.make_ascii_uppercase());
        builder.append_label(&octets).expect("the label was valid");
    }
    builder.append_origin(&TestName::root_vec()).expect("the name was valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_of_its_case() {
        let of = |text: &str| number(&name(text));
        assert_eq!(of("a.z0000002a.fuzz.test"), Some(42));
        assert_eq!(of("C0000002A.fuzz.test"), Some(42));
        assert_eq!(of("fuzz.test"), None);
        assert_eq!(of("z0000002a.other.test"), None);
        assert_eq!(of("z2a.fuzz.test"), None);
        let case = below(&label('z', 42), &name(ROOT));
        assert_eq!(number(&below("a.sec", &case)), Some(42));
    }
}
