//! Steps that the guest has reported, and the checks of their results.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Minimum number of received datagrams in a loop test. The largest ring has 16 384 entries, so its first entries are used
/// again.
const MIN_RECEIVED: u64 = 20_000;

/// Exit status and output of a command in the guest.
struct Step {
    status: i32,
    output: String,
}

/// Reported steps by name.
pub(super) struct Steps(BTreeMap<String, Step>);

/// A check: a name, and a function that returns a summary or the fault.
type Check = (&'static str, fn(&Steps) -> Result<String>);

/// All checks, in the order of the steps in `guest.sh`.
pub(super) const CHECKS: [Check; 8] = [
    ("igb", |steps| steps.card("igb", 2)),
    ("virtio-net", |steps| steps.card("virtio", 1)),
    ("Measurer, dns64d and AuthDNS", chain),
    ("dns64d killed and restarted", killed),
    ("queue count", channels),
    ("MTU", mtu),
    ("link down and up", flap),
    ("counters of AuthDNS", auth),
];

impl Steps {
    /// Reads the lines of the guest's first serial port.
    pub(super) fn of(text: &str) -> Steps {
        let step = |line: &str| {
            let (name, rest) = line.trim_end().split_once(' ')?;
            let (status, output) = rest.split_once(' ').unwrap_or((rest, ""));
            let step = Step { status: status.parse().ok()?, output: output.to_owned() };
            Some((name.to_owned(), step))
        };
        Steps(text.lines().filter_map(step).collect())
    }

    fn get(&self, name: &str) -> Result<&Step> {
        self.0.get(name).with_context(|| format!("the guest did not report the step {name}"))
    }

    fn json(&self, name: &str) -> Result<Value> {
        let step = self.get(name)?;
        serde_json::from_str(&step.output)
            .with_context(|| format!("{name}: status {}, no JSON", step.status))
    }

    /// Checks that a command was accepted or refused.
    fn expect_accepted(&self, name: &str, is_expected: bool) -> Result<()> {
        let Step { status, output } = self.get(name)?;
        ensure!((*status == 0) == is_expected, "{name}: status {status} {output}");
        Ok(())
    }

    /// Checks the number of dns64d's interfaces that have a filter.
    fn expect_filters(&self, name: &str, expected: &str) -> Result<()> {
        let found = &self.get(name)?.output;
        ensure!(found == expected, "{name}: {found} interfaces with a filter, not {expected}");
        Ok(())
    }

    /// Checks that a trial passed with zero-copy at both ends, and returns a summary.
    fn expect_passed(&self, name: &str) -> Result<String> {
        let trial = self.json(name)?;
        for end in [&trial["sending"], &trial["auth"]] {
            let way = &end["past_stack"]["way"];
            ensure!(*way == "zero-copy", "{name}: {way} instead of zero-copy");
        }
        let (sent, valid) = (number(&trial["sent"])?, number(&trial["valid"])?);
        ensure!(trial["verdict"] == "passed" && valid == sent, "{name}: {}", trial["reasons"]);
        Ok(format!("{valid} of {sent} queries valid"))
    }

    /// Checks the step `name` of `check --xdp`: the number of queues, zero-copy, and the loop test between two cards.
    fn card(&self, name: &str, queues: u64) -> Result<String> {
        let report = self.json(name)?;
        let value = |subject: &str| {
            let mut findings = report["findings"].as_array().into_iter().flatten();
            let is_it = |finding: &&Value| {
                finding["subject"].as_str().is_some_and(|text| text.contains(subject))
            };
            let found = findings.find(is_it).and_then(|finding| finding["value"].as_str());
            found.with_context(|| format!("no finding about {subject}"))
        };
        let found = value(": queues")?;
        ensure!(found.starts_with(&format!("{queues} ")), "queues: {found}");
        let zero_copy = value("native, zero-copy")?;
        ensure!(zero_copy == "works", "zero-copy: {zero_copy}");
        let looped = value("AF_XDP from ")?;
        let is_whole = looped.contains("sent native, zero-copy, received native, zero-copy");
        let (received, rest) = looped.split_once(" of ").context(looped.to_owned())?;
        let (sent, _) = rest.split_once(" datagrams").context(looped.to_owned())?;
        let (received, sent) = (grouped(received)?, grouped(sent)?);
        // The emulated igb drops datagrams if the guest does not read them fast enough.
        let needed = if name == "igb" { MIN_RECEIVED } else { sent };
        let is_enough = received >= needed.max(MIN_RECEIVED) && received <= sent;
        ensure!(is_whole && is_enough, "{looped}");
        Ok(format!("queues: {queues}, zero-copy; {received} of {sent} datagrams over the link"))
    }
}

fn chain(steps: &Steps) -> Result<String> {
    steps.expect_accepted("spread", true)?;
    steps.expect_filters("start", "2")?;
    let trial = steps.expect_passed("chain")?;
    let statistics = &steps.get("queues")?.output;
    let mut received = Vec::new();
    for queue in 0..2 {
        let name = format!("rx_queue_{queue}_packets:");
        let mut words = statistics.split_whitespace().skip_while(|word| *word != name).skip(1);
        received.push(words.next().context(name.clone())?.parse::<u64>()?);
    }
    ensure!(received.iter().all(|&count| count > 0), "{received:?} packets in the two queues");
    Ok(format!("{trial}, {} and {} packets in dns64d's queues", received[0], received[1]))
}

fn killed(steps: &Steps) -> Result<String> {
    steps.expect_filters("kill", "0")?;
    steps.expect_filters("restart", "2")?;
    Ok(format!("no filter left; then {}", steps.expect_passed("after_kill")?))
}

fn channels(steps: &Steps) -> Result<String> {
    steps.expect_accepted("channels_in_use", false)?;
    let refused = steps.expect_passed("after_channels")?;
    steps.expect_accepted("channels", true)?;
    steps.expect_filters("one_queue", "2")?;
    let changed = steps.expect_passed("with_one_queue")?;
    Ok(format!("refused while in use, {refused}; one queue after a restart, {changed}"))
}

fn mtu(steps: &Steps) -> Result<String> {
    steps.expect_accepted("long_mtu", false)?;
    steps.expect_accepted("short_mtu", true)?;
    let trial = steps.expect_passed("after_mtu")?;
    Ok(format!("9000 refused, 1400 accepted; then {trial}"))
}

/// Checks a trial during which the link of dns64d goes down and up. The lost queries must count as the server's failure.
fn flap(steps: &Steps) -> Result<String> {
    let trial = steps.json("flap")?;
    let (sent, valid) = (number(&trial["sent"])?, number(&trial["valid"])?);
    let is_counted = trial["verdict"] == "failed" && (1..sent).contains(&valid);
    ensure!(
        is_counted,
        "{valid} of {sent} queries valid, {}: {}",
        trial["verdict"],
        trial["reasons"]
    );
    let after = steps.expect_passed("after_flap")?;
    Ok(format!("{valid} of {sent} queries valid during the change; then {after}"))
}

/// Checks that AuthDNS has answered all queries.
fn auth(steps: &Steps) -> Result<String> {
    let counters = steps.json("auth")?;
    let sum = |of: &str| -> Result<u64> {
        counters[of].as_object().context(of.to_owned())?.values().map(number).sum()
    };
    let (queries, replies) = (sum("queries")?, sum("replies")?);
    let lost = number(&counters["socket_drops"])? + number(&counters["send_refused"])?;
    ensure!(queries == replies && lost == 0, "{replies} replies to {queries} queries, {lost} lost");
    Ok(format!("{replies} replies to {queries} queries"))
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is not a number"))
}

/// Reads a number with separators between groups of digits.
fn grouped(text: &str) -> Result<u64> {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().with_context(|| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trial(valid: u64, verdict: &str, way: &str) -> String {
        let end = json!({ "past_stack": { "way": way } });
        json!({ "sent": 200, "valid": valid, "verdict": verdict, "reasons": [verdict], "sending": end, "auth": end })
            .to_string()
    }

    fn loop_report(looped: &str) -> String {
        let found = |subject: &str, value: &str| json!({ "subject": subject, "value": value });
        json!({ "findings": [
            found("AF_XDP on eth0: queues", "2 for received packets"),
            found("AF_XDP on eth0: native, zero-copy", "works"),
            found("AF_XDP from eth0 to eth1", looped),
        ] })
        .to_string()
    }

    #[test]
    fn a_missing_step_is_a_fault() {
        let steps = Steps::of("start 0 2\r\nspread 0\r\nhalf");
        assert_eq!(steps.get("spread").unwrap().output, "");
        assert_eq!(steps.0.len(), 2);
        let fault = CHECKS.map(|(_, check)| check(&steps).unwrap_err().to_string());
        assert_eq!(fault[2], "the guest did not report the step chain");
    }

    #[test]
    fn only_complete_trials_with_zero_copy_pass() {
        for (valid, verdict, way, is_expected) in [
            (200, "passed", "zero-copy", true),
            (199, "passed", "zero-copy", false),
            (200, "invalid", "zero-copy", false),
            (200, "passed", "copy", false),
        ] {
            let steps = Steps::of(&format!("chain 0 {}", trial(valid, verdict, way)));
            assert_eq!(
                steps.expect_passed("chain").is_ok(),
                is_expected,
                "{valid} {verdict} {way}"
            );
        }
    }

    #[test]
    fn losses_during_a_link_change_are_the_servers() {
        for (valid, verdict, is_expected) in [
            (94, "failed", true),
            (0, "failed", false),
            (200, "passed", false),
            (94, "invalid", false),
        ] {
            let (during, after) =
                (trial(valid, verdict, "zero-copy"), trial(200, "passed", "zero-copy"));
            let steps = Steps::of(&format!("flap 1 {during}\nafter_flap 0 {after}"));
            assert_eq!(flap(&steps).is_ok(), is_expected, "{valid} {verdict}");
        }
    }

    #[test]
    fn only_the_igb_may_lose_datagrams_of_the_loop() {
        let ways = "sent native, zero-copy, received native, zero-copy";
        for (name, looped, is_expected) in [
            ("igb", format!("32\u{202f}531 of 42\u{202f}496 datagrams arrived; {ways}"), true),
            ("igb", format!("12\u{202f}531 of 42\u{202f}496 datagrams arrived; {ways}"), false),
            ("virtio", format!("41\u{202f}311 of 41\u{202f}311 datagrams arrived; {ways}"), true),
            ("virtio", format!("41\u{202f}310 of 41\u{202f}311 datagrams arrived; {ways}"), false),
            ("virtio", format!("41\u{202f}312 of 41\u{202f}311 datagrams arrived; {ways}"), false),
            ("virtio", "41 of 41 datagrams arrived; sent generic".into(), false),
        ] {
            let steps = Steps::of(&format!("{name} 0 {}", loop_report(&looped)));
            assert_eq!(steps.card(name, 2).is_ok(), is_expected, "{name} {looped}");
        }
    }

    #[test]
    fn an_unanswered_query_of_authdns_is_a_fault() {
        let counters = |nodata: u64, drops: u64| {
            let value = json!({ "queries": { "a": 2, "aaaa": 3 }, "replies": { "noerror": 2, "nodata": nodata },
                "socket_drops": drops, "send_refused": 0 });
            auth(&Steps::of(&format!("auth 0 {value}"))).is_ok()
        };
        assert!(counters(3, 0) && !counters(2, 0) && !counters(3, 1));
    }
}
