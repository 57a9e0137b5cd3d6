//! Detection of hosts and CPUs that tester, DUT and AuthDNS share. This module compares the ids of
//! their machines, and their CPUs in the plan.

use method::compliance::Fact;

/// Machine and CPUs of a tester, a DUT or an AuthDNS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role<'a> {
    /// Boot id of the machine; empty if unknown.
    pub machine: &'a str,
    /// CPUs on which the tester, DUT or AuthDNS may run; an empty list means any CPU of the
    /// machine.
    pub cpus: &'a [usize],
}

impl Role<'_> {
    fn shares_host(&self, other: &Role<'_>) -> Fact {
        match (self.machine, other.machine) {
            ("", _) | (_, "") => Fact::NotKnown,
            (a, b) if a == b => Fact::Yes,
            _ => Fact::No,
        }
    }

    fn shares_cpus(&self, other: &Role<'_>) -> Fact {
        let any = self.cpus.is_empty() || other.cpus.is_empty();
        match self.shares_host(other) {
            Fact::Yes if any || self.cpus.iter().any(|cpu| other.cpus.contains(cpu)) => Fact::Yes,
            Fact::Yes => Fact::No,
            other => other,
        }
    }
}

/// Returns two facts about the given testers, DUTs and AuthDNS servers: whether any two of them
/// share a host, and whether any two of them share CPUs.
pub(super) fn shared(roles: &[Role<'_>]) -> (Fact, Fact) {
    let pairs = || {
        roles
            .iter()
            .enumerate()
            .flat_map(|(i, one)| roles[i + 1..].iter().map(move |other| (one, other)))
    };
    let worst = |facts: Vec<Fact>| {
        let is_there = |fact| facts.contains(&fact);
        if is_there(Fact::Yes) {
            Fact::Yes
        } else if is_there(Fact::NotKnown) {
            Fact::NotKnown
        } else {
            Fact::No
        }
    };
    let hosts = pairs().map(|(one, other)| one.shares_host(other)).collect();
    let cpus = pairs().map(|(one, other)| one.shares_cpus(other)).collect();
    (worst(hosts), worst(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_roles_may_share() {
        let role = |machine, cpus| Role { machine, cpus };
        for (roles, expected) in [
            ([role("a", &[0][..]), role("b", &[0]), role("c", &[0])], (Fact::No, Fact::No)),
            ([role("a", &[0]), role("a", &[1]), role("a", &[2])], (Fact::Yes, Fact::No)),
            ([role("a", &[0]), role("a", &[1]), role("a", &[0])], (Fact::Yes, Fact::Yes)),
            // A CPU that DUT and AuthDNS share has the same effect as a CPU shared with the
            // Measurer.
            ([role("a", &[0]), role("a", &[1]), role("a", &[1])], (Fact::Yes, Fact::Yes)),
            ([role("a", &[0]), role("b", &[]), role("b", &[1])], (Fact::Yes, Fact::Yes)),
            ([role("a", &[0]), role("", &[1]), role("b", &[2])], (Fact::NotKnown, Fact::NotKnown)),
        ] {
            assert_eq!(shared(&roles), expected, "{roles:?}");
        }
    }
}
