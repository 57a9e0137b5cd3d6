//! Advice for replies that are all wrong in the same way, because the server is misconfigured.

use std::fmt;
use std::net::Ipv6Addr;

use method::records::Wrong;
use wire::name::{Domain, NameRange};
use wire::rcode::Rcode;

use super::expect::Prefix;
use super::plan::{Subject, TrialPlan};

/// Fault that all replies have in common, and the requirements that the replies violate.
#[derive(Clone, Debug, PartialEq)]
pub struct WrongReplies {
    /// The fault that the replies have in common.
    pub wrong: Wrong,
    /// Address in an AAAA record of one of the wrong replies; `None` if no such address is known.
    pub example: Option<Ipv6Addr>,
    domain: Domain,
    names: NameRange,
    prefixes: Vec<Prefix>,
    subject: Subject,
    /// First name that the trial does not use. The advice suggests it if the replies may come from a cache. `None` in
    /// campaigns, because a campaign starts each server with an empty cache.
    next_name: Option<u64>,
}

impl WrongReplies {
    /// Creates the advice for a trial that was started from the command line.
    pub fn of(plan: &TrialPlan, wrong: Wrong, example: Option<Ipv6Addr>) -> WrongReplies {
        let next_name = (plan.first_name + plan.names_needed()) % plan.names.count();
        WrongReplies {
            example,
            next_name: Some(next_name),
            ..WrongReplies::in_campaign(plan, wrong)
        }
    }

    /// Creates the advice for a trial of a campaign.
    pub fn in_campaign(plan: &TrialPlan, wrong: Wrong) -> WrongReplies {
        WrongReplies {
            wrong,
            example: None,
            domain: plan.domain.clone(),
            names: plan.names,
            prefixes: plan.prefixes.clone(),
            subject: plan.subject,
            next_name: None,
        }
    }

    /// Returns advice for the user: the changes that make the server's replies correct.
    pub fn advice(&self) -> String {
        let (domain, names, cache) = (&self.domain, self.names, self.of_cache());
        match (self.wrong, self.subject) {
            (Wrong::Rcode(code), Subject::Tester { .. }) if is_denial(code) => {
                format!("AuthDNS does not serve {domain}; start it with --domain {domain}")
            }
            (Wrong::Rcode(code), Subject::Dut) if is_denial(code) => format!(
                "the server does not forward {domain} to AuthDNS: add a forward zone for it, and switch off a built-in zone \
                 for test (RFC 6761). If it does forward, AuthDNS may lack names of {names}{cache}"
            ),
            (Wrong::Rcode(2), Subject::Dut) => format!(
                "the server gets no answer from AuthDNS: check that AuthDNS runs, and the address and port to which the \
                 server forwards {domain}"
            ),
            (Wrong::NoAaaa, Subject::Tester { .. }) => "a self-test queries AuthDNS itself, and all its names must \
                                                        have AAAA records: start it with --aaaa-share 1"
                .into(),
            (Wrong::NoAaaa, Subject::Dut) => format!(
                "the server does not synthesize AAAA records: switch on DNS64, also for this client{cache}"
            ),
            (Wrong::Address, _) => self.of_address(),
            (Wrong::Truncated, _) => {
                "the replies do not fit into 512 octets: a correct one has few records".into()
            }
            _ => "the replies do not answer these queries: check the address and port of the server".into(),
        }
    }

    fn of_address(&self) -> String {
        let got = self.example.map_or(String::new(), |got| format!(", got for example {got}"));
        let prefixes: Vec<String> = self.prefixes.iter().map(ToString::to_string).collect();
        if prefixes.is_empty() || matches!(self.subject, Subject::Tester { .. }) {
            return format!(
                "expected the addresses that AuthDNS gives{got}: give AuthDNS and the tester the same --aaaa-share, or accept \
                 any address with --any-aaaa"
            );
        }
        let option = if self.next_name.is_some() { "--expect-prefix" } else { "[trial] prefix" };
        format!(
            "expected {}{got}: the server uses another prefix; configure this one, or change {option}{}",
            prefixes.join(" or "),
            self.of_cache()
        )
    }

    /// Returns advice for a server that was reconfigured and still answers from its cache.
    fn of_cache(&self) -> String {
        self.next_name.map_or(String::new(), |next| {
            format!(
                ". If its configuration is already correct, it answers from its cache: clear the cache, or use new \
                 names with --first-name {next}"
            )
        })
    }
}

/// Returns true for the RCODEs with which a server replies if it does not forward queries for AuthDNS's zone to
/// AuthDNS.
fn is_denial(code: u8) -> bool {
    [Rcode::NXDOMAIN, Rcode::REFUSED].contains(&Rcode::new(code.into()))
}

impl fmt::Display for WrongReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.wrong, self.advice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Qps;

    #[test]
    fn each_fault_has_its_advice() {
        let plan = TrialPlan {
            prefixes: vec!["64:ff9b::/96".parse().unwrap()],
            ..TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1_000))
        };
        let tester = Subject::Tester { factor: 1.0, delta: 0.1 };
        let self_test = TrialPlan { subject: tester, ..plan.clone() };
        let any_prefix = TrialPlan { prefixes: Vec::new(), ..plan.clone() };
        let example = Some("2001:db8::a00:0".parse().unwrap());
        let cases: [(&TrialPlan, Wrong, &[&str]); 9] = [
            (
                &plan,
                Wrong::Rcode(3),
                &["NXDOMAIN; ", "not forward dns64perf.test", "10.0.0.0/8", "--first-name 60000"],
            ),
            (&plan, Wrong::Rcode(5), &["REFUSED; ", "not forward dns64perf.test"]),
            (&plan, Wrong::Rcode(2), &["SERVFAIL; ", "AuthDNS runs"]),
            (&plan, Wrong::NoAaaa, &["no AAAA record; ", "not synthesize", "--first-name 60000"]),
            (
                &plan,
                Wrong::Address,
                &["expected 64:ff9b::/96, got for example 2001:db8::a00:0", "--first-name 60000"],
            ),
            (&any_prefix, Wrong::Address, &["--any-aaaa", "got for example 2001:db8::a00:0"]),
            (&self_test, Wrong::NoAaaa, &["--aaaa-share 1"]),
            (&self_test, Wrong::Rcode(5), &["REFUSED; AuthDNS does not serve dns64perf.test"]),
            (&plan, Wrong::Malformed, &["malformed; ", "address and port"]),
        ];
        for (plan, wrong, words) in cases {
            let text = WrongReplies::of(plan, wrong, example).to_string();
            for word in words {
                assert!(text.contains(word), "{wrong:?}: {word} is not in {text}");
            }
        }
        let in_campaign = WrongReplies::in_campaign(&plan, Wrong::Address).to_string();
        assert!(
            in_campaign.contains("[trial] prefix") && !in_campaign.contains("--"),
            "{in_campaign}"
        );
    }
}
