//! Classes of cases with the same three verdicts.

use std::collections::BTreeMap;

use dnssec_fuzz::Status;

/// Number of cases that are printed of each class.
const EXAMPLES: usize = 6;

/// A case with the three verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) number: u64,
    pub(super) ours: Status,
    pub(super) unbound: Status,
    pub(super) delv: Status,
    /// True if the verdicts of dns64d and Unbound differ, and data of the case may be insecure.
    pub(super) may_be_insecure: bool,
}

/// Verdicts of dns64d, Unbound and delv, and whether insecure data are permitted.
type Verdicts = (Status, Status, Status, bool);

/// Numbers of the cases of each class.
pub(super) struct Classes(BTreeMap<Verdicts, Vec<u64>>);

impl Classes {
    pub(super) fn of(all: Vec<Judged>) -> Classes {
        let mut classes: BTreeMap<Verdicts, Vec<u64>> = BTreeMap::new();
        for Judged { number, ours, unbound, delv, may_be_insecure } in all {
            classes.entry((ours, unbound, delv, may_be_insecure)).or_default().push(number);
        }
        classes.values_mut().for_each(|numbers| numbers.sort_unstable());
        Classes(classes)
    }

    /// True if dns64d is wrong in a case.
    pub(super) fn has_fault(&self) -> bool {
        self.0.keys().any(is_fault)
    }

    /// Prints the classes. Cases in which the verdicts differ are described by `describe`.
    pub(super) fn print(&self, describe: impl Fn(u64) -> String) {
        for (verdicts, numbers) in &self.0 {
            let (ours, unbound, delv, may_be_insecure) = verdicts;
            let permitted = if *may_be_insecure { ", insecure data permitted" } else { "" };
            let fault = if is_fault(verdicts) { "FAULT: " } else { "" };
            println!(
                "{fault}dns64d {ours:?}, Unbound {unbound:?}, delv {delv:?}{permitted}: {}",
                numbers.len()
            );
            if ours != unbound || ours != delv {
                let examples = numbers.iter().take(EXAMPLES);
                examples.for_each(|number| println!("    {}", describe(*number)));
            }
        }
    }
}

/// True if dns64d differs from Unbound and delv, which agree. If a name is in an unsigned zone, or may be in one (Opt-Out),
/// validators disagree on whether a damaged response is insecure or bogus.
fn is_fault(&(ours, unbound, delv, may_be_insecure): &Verdicts) -> bool {
    let is_secure = ours == Status::Secure || unbound == Status::Secure;
    unbound == delv && ours != unbound && (is_secure || !may_be_insecure)
}

#[cfg(test)]
mod tests {
    use Status::{Bogus, Insecure, Secure};

    use super::*;

    #[test]
    fn a_fault_is_a_verdict_of_dns64d_alone() {
        for (verdicts, expected) in [
            ((Secure, Bogus, Bogus, false), true),
            ((Secure, Bogus, Bogus, true), true),
            ((Secure, Bogus, Secure, false), false),
            ((Bogus, Secure, Secure, true), true),
            ((Bogus, Secure, Bogus, false), false),
            ((Insecure, Bogus, Bogus, false), true),
            ((Insecure, Bogus, Bogus, true), false),
            ((Secure, Secure, Secure, false), false),
        ] {
            assert_eq!(is_fault(&verdicts), expected, "{verdicts:?}");
        }
    }
}
