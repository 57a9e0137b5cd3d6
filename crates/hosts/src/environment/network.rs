//! Settings of this host that can silently drop or delay the tester's packets: packet filters,
//! connection tracking and queueing disciplines. Only the network namespace of this process is
//! examined.

use std::process::Command;

use net::queueing::{Queueing, disciplines};
use nix::unistd::geteuid;
use serde_json::Value;
use units::{counted, grouped};

use crate::environment::finding::{Finding, finding};
use crate::environment::tree::Tree;

/// Queueing disciplines that are harmless. Some of them drop or delay packets only when a queue of
/// at least a thousand packets is full. The others only pass packets to further disciplines.
const PLAIN: [&str; 7] = ["noqueue", "mq", "mqprio", "pfifo_fast", "pfifo", "bfifo", "fq"];

/// Returns all findings about packet filters, connection tracking and queueing disciplines.
pub(super) fn findings() -> Vec<Finding> {
    let rules = Rules::observe();
    let mut all = vec![packet_filter(&rules)];
    all.extend(connection_tracking(&rules));
    match disciplines() {
        Ok(found) => all.extend(found.iter().map(queueing)),
        Err(error) => all.push(finding("queueing disciplines", format!("unknown: {error}"))),
    }
    all
}

/// Rules of packet filters. Fields are `None` if their values are unknown.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    nftables: Option<u64>,
    /// True if a rule of nftables refers to connection tracking.
    track: bool,
    /// Names of the tables that iptables and ip6tables use. Only legacy iptables is covered here,
    /// because newer iptables stores its rules in nftables.
    iptables: Option<Vec<String>>,
}

impl Rules {
    fn observe() -> Rules {
        let listed = || Command::new("nft").args(["-j", "list", "ruleset"]).output().ok();
        let listed = if geteuid().is_root() { listed() } else { None };
        let listed = listed.filter(|output| output.status.success());
        let (nftables, track) = listed.and_then(|output| count_rules(&output.stdout)).unzip();
        // A kernel without iptables does not have these files. If they are not readable, the tables
        // are unknown.
        let names = |family: &str| match std::fs::read_to_string(format!(
            "/proc/net/{family}_tables_names"
        )) {
            Ok(names) => Some(names.lines().map(|name| format!("{family} {name}")).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Vec::new()),
            Err(_) => None,
        };
        let iptables =
            names("ip").zip(names("ip6")).map(|(v4, v6): (Vec<_>, Vec<_>)| [v4, v6].concat());
        Rules { nftables, track: track.unwrap_or(false), iptables }
    }

    fn are_there(&self) -> bool {
        self.nftables.is_some_and(|rules| rules > 0)
            || self.iptables.as_ref().is_some_and(|tables| !tables.is_empty())
    }
}

/// Reads the output of `nft -j list ruleset`. Returns the number of packet filter rules, and true if one of them refers
/// to connection tracking (the expression `ct` in libnftables-json(5)).
fn count_rules(json: &[u8]) -> Option<(u64, bool)> {
    let listed: Value = serde_json::from_slice(json).ok()?;
    let rules: Vec<&Value> =
        listed["nftables"].as_array()?.iter().filter_map(|object| object.get("rule")).collect();
    Some((rules.len() as u64, rules.iter().any(|rule| mentions_tracking(rule))))
}

fn mentions_tracking(value: &Value) -> bool {
    match value {
        Value::Object(map) => {
            map.iter().any(|(key, value)| key == "ct" || mentions_tracking(value))
        }
        Value::Array(values) => values.iter().any(mentions_tracking),
        _ => false,
    }
}

fn packet_filter(rules: &Rules) -> Finding {
    let why_not = if geteuid().is_root() { "unknown: needs nft" } else { "unknown: needs root" };
    let nftables = rules.nftables.map_or_else(|| why_not.to_owned(), |rules| rules.to_string());
    let iptables = match rules.iptables.as_deref() {
        None => "unknown: needs root".to_owned(),
        Some([]) => "none".to_owned(),
        Some(tables) => tables.join(", "),
    };
    let why = "a packet filter may drop queries and replies, and takes time for each; make sure that it passes DNS";
    let value = format!("nftables rules: {nftables}; iptables tables: {iptables}");
    finding("packet filter", value).concern_if(rules.are_there(), why, Some("nft flush ruleset"))
}

/// Returns the finding about connection tracking, or `None` if the kernel has no connection
/// tracking.
fn connection_tracking(rules: &Rules) -> Option<Finding> {
    let number = |name: &str| {
        Tree::here()
            .read(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"))?
            .parse::<u64>()
            .ok()
    };
    let (count, max) = (number("count")?, number("max")?);
    let why = "each flow has an entry; a full table drops packets, and the lookup takes time for each packet";
    let fix = "nft add table inet raw; nft add chain inet raw pre '{ type filter hook prerouting priority raw; }'; \
                nft add rule inet raw pre udp sport 53 notrack; nft add rule inet raw pre udp dport 53 notrack";
    let bad = count > 0 || rules.track;
    Some(
        finding(
            "connection tracking",
            format!("{} of {} in use", grouped(count), counted(max, "entry", "entries")),
        )
        .concern_if(bad, why, Some(fix)),
    )
}

fn queueing(found: &Queueing) -> Finding {
    let Queueing { interface, kind, drops, .. } = found;
    let fix = format!("tc qdisc replace dev {interface} root pfifo limit 10000");
    let why = "this queueing discipline drops or delays packets by design; drops make trials invalid, delays make replies late";
    let bad = !PLAIN.contains(&kind.as_str());
    let value = format!("{kind}, {} dropped so far", counted((*drops).into(), "packet", "packets"));
    finding(&format!("queueing on {interface}"), value).concern_if(bad, why, Some(&fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_counted_and_tracking_is_found() {
        let listed = br#"{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "t"}},
            {"rule": {"expr": [{"match": {"left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 53}}, {"drop": null}]}},
            {"rule": {"expr": [{"match": {"left": {"ct": {"key": "state"}}, "right": "new"}}]}}]}"#;
        assert_eq!(count_rules(listed), Some((2, true)));
        assert_eq!(
            count_rules(br#"{"nftables": [{"metainfo": {"version": "1.0.6"}}]}"#),
            Some((0, false))
        );
        assert_eq!(count_rules(b"no JSON"), None);
    }

    #[test]
    fn rules_are_a_concern_and_none_are_not() {
        let rules = |nftables, iptables: &[&str]| Rules {
            nftables,
            track: false,
            iptables: Some(iptables.iter().map(ToString::to_string).collect()),
        };
        assert!(packet_filter(&rules(Some(3), &[])).concern.is_some());
        assert!(packet_filter(&rules(None, &["ip filter"])).concern.is_some());
        assert!(packet_filter(&rules(Some(0), &[])).concern.is_none());
        assert!(packet_filter(&Rules::default()).value.contains("unknown"));
    }

    #[test]
    fn disciplines_that_drop_by_design_are_a_concern() {
        let found = |kind: &str| {
            let interface = "eth0".into();
            queueing(&Queueing { interface, kind: kind.into(), ..Queueing::default() })
        };
        for kind in ["tbf", "fq_codel", "cake", "netem"] {
            assert!(
                found(kind).concern.is_some_and(|concern| concern.fix.unwrap().contains("eth0")),
                "{kind}"
            );
        }
        assert!(PLAIN.iter().all(|kind| found(kind).concern.is_none()));
    }
}
